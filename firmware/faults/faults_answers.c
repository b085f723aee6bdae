/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers of a device that lies: true ones, changed afterwards.
 */
#include "firmware/faults/faults_internal.h"

/* Puts changed fields into an answer's header. */
static void rewrite(struct tw_faults_answer *a, struct tw_wire_header *h) {
    tw_wire_encode(h, a->bytes);
    a->n = TW_WIRE_HEADER_BYTES +
           (h->length <= TW_LINK_MAX_PAYLOAD ? h->length : a->n - TW_WIRE_HEADER_BYTES);
}

static void lie_about_identity(const struct tw_faults *f, struct tw_faults_answer *a) {
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

static void refuse(struct tw_faults_answer *a, struct tw_wire_header *h) {
    struct tw_wire_failure why = {
        .code = TW_E_NOMEM, .site = TW_NONE, .stage = TW_NONE, .need = 1 << 20};
    memcpy(why.what, "no memory for the program", sizeof "no memory for the program");
    memcpy(a->bytes + TW_WIRE_HEADER_BYTES, &why, sizeof why);
    h->status = TW_E_NOMEM;
    h->length = sizeof why;
    rewrite(a, h);
}

static void lie(struct tw_faults *f, struct tw_faults_answer *a,
                const struct tw_faults_answer *before) {
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
            lie_about_identity(f, a);
        }
        break;
    case PLAN_identity:
        if (hello && f->over) { /* what it has become, for good */
            lie_about_identity(f, a);
        }
        break;
    case PLAN_nomem:
        if (h.opcode == TW_WIRE_LOAD && tw_faults_triggered(f, f->trigger)) {
            refuse(a, &h);
        }
        break;
    case PLAN_other:
        if (tw_faults_triggered(f, f->requests)) {
            h.sequence += 3;
            rewrite(a, &h);
        }
        break;
    case PLAN_lengths:
        if (tw_faults_triggered(f, f->requests)) {
            h.length = 0xFFFFFFF0u;
            rewrite(a, &h);
        }
        break;
    case PLAN_twice:
        if (before->n && tw_faults_triggered(f, f->requests)) {
            memcpy(a->bytes, before->bytes, before->n);
            a->n = before->n;
        }
        break;
    default:
        break;
    }
}

void tw_faults_inject(struct tw_faults *f, struct tw_faults_answer *answer,
                      const struct tw_faults_answer *before) {
    pthread_mutex_lock(&f->lock);
    lie(f, answer, before);
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
        f->told++;
        p->received = p->received > f->told ? p->received - f->told : 0;
    }
    pthread_mutex_unlock(&f->lock);
}
