/* SPDX-License-Identifier: Apache-2.0
 *
 * False answers: correct ones that are changed before they are sent.
 */
#include "firmware/faults/faults_internal.h"

/* Writes the changed header into an answer, and sets its length. */
static void write_header(struct tw_faults_answer *a, struct tw_wire_header *h) {
    tw_wire_encode(h, a->bytes);
    a->n = TW_WIRE_HEADER_BYTES +
           (h->length <= TW_LINK_MAX_PAYLOAD ? h->length : a->n - TW_WIRE_HEADER_BYTES);
}

static void change_identity(const struct tw_faults *f, struct tw_faults_answer *a) {
    struct tw_wire_identity id;
    if (a->n != TW_WIRE_HEADER_BYTES + sizeof id) {
        return;
    }
    memcpy(&id, a->bytes + TW_WIRE_HEADER_BYTES, sizeof id);
    switch (f->plan) {
    case PLAN_version:
        id.protocol_min = id.protocol_max = 99;
        break;
    case PLAN_older:
        id.protocol_min = id.protocol_max = TW_WIRE_VERSION_MIN - 1;
        break;
    case PLAN_newer_abi:
        id.abi_major = TW_MACHINE_ABI_MAJOR + 1;
        break;
    case PLAN_older_abi:
        id.abi_major = TW_MACHINE_ABI_MAJOR - 1;
        break;
    case PLAN_identity:
        memset(id.target, 0, sizeof id.target);
        memcpy(id.target, "changeling", sizeof "changeling");
        break;
    default:
        return;
    }
    memcpy(a->bytes + TW_WIRE_HEADER_BYTES, &id, sizeof id);
}

static void lower_limits(const struct tw_faults *f, struct tw_faults_answer *a) {
    struct tw_requirements r;
    if (a->n != TW_WIRE_HEADER_BYTES + sizeof r) {
        return;
    }
    memcpy(&r, a->bytes + TW_WIRE_HEADER_BYTES, sizeof r);
    if (f->plan == PLAN_fewer_ops) {
        r.ops[TW_OP_MATMUL / 32] &= ~((uint32_t)1 << TW_OP_MATMUL % 32);
    } else {
        r.dtypes &= ~((uint32_t)1 << TW_DT_Q8_0);
    }
    memcpy(a->bytes + TW_WIRE_HEADER_BYTES, &r, sizeof r);
}

static void refuse_for_memory(struct tw_faults_answer *a, struct tw_wire_header *h) {
    struct tw_wire_failure why = {
        .code = TW_E_NOMEM, .site = TW_NONE, .stage = TW_NONE, .need = 1 << 20};
    memcpy(why.what, "no memory for the program", sizeof "no memory for the program");
    memcpy(a->bytes + TW_WIRE_HEADER_BYTES, &why, sizeof why);
    h->status = TW_E_NOMEM;
    h->length = sizeof why;
    write_header(a, h);
}

static void change_answer(struct tw_faults *f, struct tw_faults_answer *a,
                          const struct tw_faults_answer *previous) {
    struct tw_wire_header h;
    const char *why;
    if (tw_wire_decode(a->bytes, &h, &why)) {
        return;
    }
    bool hello = h.opcode == TW_WIRE_HELLO;
    switch (f->plan) {
    case PLAN_version:
    case PLAN_older:
    case PLAN_newer_abi:
    case PLAN_older_abi:
        if (hello && tw_faults_triggered(f, f->trigger)) {
            change_identity(f, a);
        }
        break;
    case PLAN_identity:
        if (hello && f->over) { /* the device has "become another machine" */
            change_identity(f, a);
        }
        break;
    case PLAN_fewer_ops:
    case PLAN_fewer_types:
        if (h.opcode == TW_WIRE_LIMITS) {
            lower_limits(f, a);
        }
        break;
    case PLAN_nomem:
        if (h.opcode == TW_WIRE_LOAD && tw_faults_triggered(f, f->trigger)) {
            refuse_for_memory(a, &h);
        }
        break;
    case PLAN_other:
        if (tw_faults_triggered(f, f->requests)) {
            h.sequence += 3;
            write_header(a, &h);
        }
        break;
    case PLAN_lengths:
        if (tw_faults_triggered(f, f->requests)) {
            h.length = 0xFFFFFFF0u;
            write_header(a, &h);
        }
        break;
    case PLAN_twice:
        if (previous->n && tw_faults_triggered(f, f->requests)) {
            memcpy(a->bytes, previous->bytes, previous->n);
            a->n = previous->n;
        }
        break;
    default:
        break;
    }
}

void tw_faults_inject(struct tw_faults *f, struct tw_faults_answer *answer,
                      const struct tw_faults_answer *previous) {
    pthread_mutex_lock(&f->lock);
    change_answer(f, answer, previous);
    pthread_mutex_unlock(&f->lock);
}

void tw_faults_inject_opened(struct tw_faults *f, struct tw_link_opened *o) {
    pthread_mutex_lock(&f->lock);
    if (f->plan == PLAN_credits && tw_faults_triggered(f, f->trigger)) {
        o->credits = 0;
    }
    pthread_mutex_unlock(&f->lock);
}

void tw_faults_inject_progress(struct tw_faults *f, struct tw_link_progress *p) {
    pthread_mutex_lock(&f->lock);
    if (f->plan == PLAN_backwards && f->fired && !f->over) {
        f->progress_sent++;
        p->received = p->received > f->progress_sent ? p->received - f->progress_sent : 0;
    }
    pthread_mutex_unlock(&f->lock);
}
