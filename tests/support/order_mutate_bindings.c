/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of mutations of what tensors are bound to (order_mutate_family.h): the rows that they
 * claim, the places that rows name, and roles together with rows. The machine of order_device.h
 * then has its memory laid out in this way.
 */
#include "tests/support/order_mutate_family.h"

#include "tests/support/order_mutate_number.h"
#include "tests/support/random_model.h"

#include <stdlib.h>

enum { MAX_ROWS = 1 << 14 };

static struct tw_tensor *own_tensors(struct order_mutant *m) {
    struct tw_tensor *t = order_own(m, m->p.tensors, m->p.n_tensors * sizeof *t);
    m->p.tensors = t;
    return t;
}

/* A tensor with rows; one that is no Param, half of the time and more. */
static uint32_t bound_tensor(const struct tw_program *p, uint64_t *seed) {
    bool any = random_below(seed, 2);
    for (uint32_t tries = 0; tries < 64; tries++) {
        uint32_t n = random_below(seed, p->n_tensors);
        if (p->tensors[n].bind_count && (any || p->tensors[n].role != TW_ROLE_PARAM)) {
            return n;
        }
    }
    return TW_NONE;
}

/* The region of a tensor that a random op accesses: of kind 'T' it reads, of 'U' it writes. */
static bool accessed(const struct order_index *x, char kind, struct tw_operand *out,
                     uint64_t *seed) {
    for (uint32_t tries = 0; tries < 64; tries++) {
        struct order_place p;
        struct tw_op op;
        if (!order_choose(x, ORDER_DATA, &p, seed)) {
            return false;
        }
        const struct tw_stream *s = &x->program->streams[p.stream];
        bool ok = tw_op_decode(s->words, s->n_words, order_word_of(s, p.op), &op);
        for (uint32_t i = 0; ok && i < op.n_operands; i++) {
            if (op.operand[i].kind == kind && x->program->tensors[op.operand[i].id].bind_count) {
                *out = op.operand[i];
                return true;
            }
        }
    }
    return false;
}

/* What one op writes, and what another reads or writes; else any two. False: nothing is bound. */
static bool choose_two(const struct order_index *x, const struct order_mutant *m,
                       struct tw_operand *a, struct tw_operand *b, uint64_t *seed) {
    if (random_below(seed, 3) && accessed(x, 'U', a, seed) &&
        accessed(x, random_below(seed, 4) ? 'T' : 'U', b, seed)) {
        return true;
    }
    memset(a, 0, sizeof *a);
    memset(b, 0, sizeof *b);
    a->id = bound_tensor(&m->p, seed);
    b->id = bound_tensor(&m->p, seed);
    return a->id != TW_NONE && b->id != TW_NONE;
}

/* ---- rows ---- */

static void rebind(struct tw_tensor *t, uint32_t a, uint32_t b, uint32_t n_tensors,
                   uint64_t *seed) {
    uint32_t first = t[a].bind_first, count = t[a].bind_count;
    switch (random_below(seed, 7)) {
    case 0: /* over the other one, or beside its first row */
        t[a].bind_first = t[b].bind_first;
        break;
    case 1:
        t[a].bind_first = t[b].bind_first + random_below(seed, 3) - 1;
        break;
    case 2:
        t[a].bind_first = t[b].bind_first;
        t[b].bind_first = first;
        break;
    case 3: /* also as many */
        t[a].bind_first = t[b].bind_first;
        t[a].bind_count = t[b].bind_count;
        t[b].bind_first = first;
        t[b].bind_count = count;
        break;
    case 4:
        t[a].bind_count += random_below(seed, 3) - 1;
        break;
    case 5: /* all that follow, by one */
        for (uint32_t i = 0; i < n_tensors; i++) {
            t[i].bind_first += t[i].bind_count && t[i].bind_first >= first ? 1 : 0;
        }
        break;
    default:
        t[a].bind_first = (uint32_t)order_tweak(t[a].bind_first, seed) % MAX_ROWS;
        break;
    }
}

bool order_family_bindings(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    struct tw_tensor *t = own_tensors(m);
    uint32_t n = 1 + random_below(seed, 2);
    for (uint32_t i = 0; i < n; i++) {
        struct tw_operand to, from;
        if (!choose_two(x, m, &to, &from, seed)) {
            return false;
        }
        uint32_t a = to.id, b = from.id;
        rebind(t, a, b, m->p.n_tensors, seed);
        order_describe(m, " [tensor %u rows %u+%u, tensor %u rows %u+%u]", a, t[a].bind_first,
                       t[a].bind_count, b, t[b].bind_first, t[b].bind_count);
    }
    return true;
}

/* ---- places ---- */

static uint32_t segment_of(const struct tw_tensor *t) {
    return t->role == TW_ROLE_PARAM ? 0 : t->role == TW_ROLE_STATE ? 1 : 2;
}

/* The rows as a bundle has them: each at the end of its segment. */
static bool lay_out(struct order_mutant *m) {
    uint64_t end[3] = {0, 0, 0}, n = 0;
    for (uint32_t t = 0; t < m->p.n_tensors; t++) {
        uint64_t last = (uint64_t)m->p.tensors[t].bind_first + m->p.tensors[t].bind_count;
        n = m->p.tensors[t].bind_count && last > n ? last : n;
    }
    if (n == 0 || n > MAX_ROWS) {
        return false;
    }
    m->rows = order_own_table(m, NULL, 0, (uint32_t)n, sizeof *m->rows);
    m->n_rows = n;
    for (uint32_t t = 0; t < m->p.n_tensors; t++) {
        for (uint32_t i = 0; i < m->p.tensors[t].bind_count; i++) {
            struct tw_bind_target *r = &m->rows[m->p.tensors[t].bind_first + i];
            r->segment = segment_of(&m->p.tensors[t]);
            r->offset = end[r->segment];
            r->size = m->p.tensors[t].bytes;
            end[r->segment] += (r->size + 63) / 64 * 64;
        }
    }
    return true;
}

/* To where another row is, or just before its end, or by some lines of 64 bytes. */
static void move_row(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    struct tw_operand to, from;
    if (!choose_two(x, m, &to, &from, seed)) {
        return;
    }
    uint32_t a = to.id, b = from.id;
    const struct tw_tensor *t = &m->p.tensors[a], *u = &m->p.tensors[b];
    struct tw_bind_target *r = &m->rows[t->bind_first + random_below(seed, t->bind_count)],
                          *s = &m->rows[u->bind_first + random_below(seed, u->bind_count)];
    uint64_t lines = (s->size + 63) / 64, before = r->offset,
             line = random_below(seed, (uint32_t)(lines < 64 ? lines : 64) + 1);
    /* a bundle's Params have a segment of their own; one that is moved over them is there, too */
    bool same = r->segment == s->segment || random_below(seed, 2);
    r->segment = same ? s->segment : r->segment;
    switch (random_below(seed, 6)) {
    case 0:
        r->offset = same ? s->offset : r->offset + 64;
        break;
    case 5: /* so that both ops access the same bytes */
        r->offset = s->offset + (from.offset.base - to.offset.base) / 64 * 64;
        r->offset = r->offset > (UINT64_C(1) << 40) ? s->offset : r->offset;
        break;
    case 1:
        r->offset = same ? s->offset + line * 64 : r->offset + 64;
        break;
    case 2:
        r->offset = same ? s->offset + (lines - 1) * 64 : r->offset + 64;
        break;
    case 3:
        if (r->segment == s->segment) {
            r->offset = s->offset;
            s->offset = before;
        }
        break;
    default:
        r->offset += (uint64_t)(random_below(seed, 2) ? 1 : -1) * 64 * (1 + random_below(seed, 4));
        r->offset = r->offset > (UINT64_C(1) << 40) ? 0 : r->offset;
        break;
    }
    order_describe(m, " [tensor %u: a row from %llu to %llu of segment %u]", a,
                   (unsigned long long)before, (unsigned long long)r->offset, r->segment);
}

bool order_family_places(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    if (!lay_out(m)) {
        return false;
    }
    uint32_t n = 1 + random_below(seed, 3);
    for (uint32_t i = 0; i < n; i++) {
        move_row(x, m, seed);
    }
    return true;
}

/* ---- roles ---- */

static const uint8_t bound_roles[] = {TW_ROLE_INPUT, TW_ROLE_PARAM, TW_ROLE_OUTPUT, TW_ROLE_STATE};

bool order_family_roles(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    struct tw_tensor *t = own_tensors(m);
    struct tw_operand to, from;
    if (!choose_two(x, m, &to, &from, seed)) {
        return false;
    }
    uint32_t a = to.id, b = from.id;
    t[a].role = bound_roles[random_below(seed, 4)];
    t[a].init = t[a].role == TW_ROLE_STATE && random_below(seed, 2) ? TW_INIT_ZERO : TW_INIT_NONE;
    if (random_below(seed, 2)) {
        t[b].role = bound_roles[random_below(seed, 4)];
        t[b].init = t[b].role == TW_ROLE_STATE ? TW_INIT_ZERO : TW_INIT_NONE;
    }
    order_describe(m, " [tensor %u role %u, tensor %u role %u]", a, t[a].role, b, t[b].role);
    if (random_below(seed, 2)) {
        rebind(t, a, b, m->p.n_tensors, seed);
        order_describe(m, " [rows %u+%u, %u+%u]", t[a].bind_first, t[a].bind_count, t[b].bind_first,
                       t[b].bind_count);
    } else if (random_below(seed, 2) && lay_out(m)) {
        move_row(x, m, seed);
    }
    return true;
}
