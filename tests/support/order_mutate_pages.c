/* SPDX-License-Identifier: Apache-2.0
 *
 * A family of mutations of what page tables say (order_mutate_family.h): which accesses go through
 * one, which elements of which table they use, and the shapes of tables and pages.
 */
#include "tests/support/order_mutate_family.h"

#include "tests/support/order_mutate_number.h"
#include "tests/support/random_model.h"

#include <stdlib.h>

struct change {
    const struct tw_program *p;
    uint32_t how, only, table, tensor; /* tensor TW_NONE: of any */
    uint64_t element, seed;
};

static bool has_pages(const struct tw_program *p, uint32_t tensor) {
    return tensor < p->n_tensors && p->tensors[tensor].bind_count &&
           tw_tensor_pages(&p->tensors[tensor]) > 0;
}

/* Where the access is without a table: the page is part of the offset. */
static void leave_table(const struct tw_program *p, struct tw_operand *o, bool cache) {
    uint64_t page = tw_tensor_page_bytes(&p->tensors[o->id]);
    o->paged = false;
    o->offset.base += cache ? 0 : o->element.base * page;
    for (uint32_t i = 0; i < o->element.n_terms && !cache; i++) {
        o->offset =
            tw_affine_plus(o->offset, o->element.term[i].var, o->element.term[i].step * page);
    }
}

static void enter_table(const struct tw_program *p, struct tw_operand *o, uint32_t table) {
    uint64_t page = tw_tensor_page_bytes(&p->tensors[o->id]);
    struct tw_affine offset = tw_affine_const(o->offset.base % page);
    o->paged = true;
    o->table = table;
    o->element = tw_affine_const(o->offset.base / page);
    for (uint32_t i = 0; i < o->offset.n_terms; i++) {
        uint64_t step = o->offset.term[i].step;
        if (step % page == 0) {
            o->element = tw_affine_plus(o->element, o->offset.term[i].var, step / page);
        } else {
            offset = tw_affine_plus(offset, o->offset.term[i].var, step);
        }
    }
    o->offset = offset;
}

static bool change_op(void *ctx, uint32_t stream, struct tw_op *op) {
    struct change *c = ctx;
    bool cache = op->code == TW_OP_KEY_WRITE || op->code == TW_OP_VALUE_WRITE, changed = false;
    (void)stream;
    for (uint32_t i = 0; i < op->n_operands; i++) {
        struct tw_operand *o = &op->operand[i];
        if ((o->kind != 'T' && o->kind != 'U') || !has_pages(c->p, o->id) ||
            (c->tensor != TW_NONE && o->id != c->tensor) || random_below(&c->seed, c->only)) {
            continue;
        }
        changed = true;
        switch (o->paged ? c->how : 5) {
        case 0:
            leave_table(c->p, o, cache);
            break;
        case 1:
            o->table = c->table;
            break;
        case 2:
            o->element.base += c->element;
            break;
        case 3:
            o->element.base = order_tweak(o->element.base, &c->seed) % 16;
            break;
        case 4:
            if (o->element.n_terms) {
                o->element.term[0].step += c->element;
            } else {
                o->element = tw_affine_plus(o->element, 1 + random_below(&c->seed, 3), 1);
            }
            break;
        default:
            enter_table(c->p, o, c->table);
            break;
        }
    }
    return changed;
}

/* A table like one that the program has, or a small one, with memory of its own. */
static uint32_t add_table(struct order_mutant *m, uint32_t like, uint64_t *seed) {
    struct tw_tensor *t = order_own_table(m, m->p.tensors, m->p.n_tensors, 1, sizeof *t);
    struct tw_tensor *fresh = &t[m->p.n_tensors];
    uint32_t rows = 0;
    for (uint32_t i = 0; i < m->p.n_tensors; i++) {
        uint32_t end = t[i].bind_first + t[i].bind_count;
        rows = end > rows ? end : rows;
    }
    if (like != TW_NONE) {
        *fresh = t[like];
    } else {
        fresh->rows = 1 + random_below(seed, 2);
        fresh->cols = 1 + random_below(seed, 6);
        fresh->dtype = TW_DT_I32;
        fresh->role = TW_ROLE_INPUT;
        fresh->bytes = (uint64_t)fresh->rows * fresh->cols * 4;
    }
    fresh->bind_first = rows;
    fresh->bind_count = 1;
    m->p.tensors = t;
    return m->p.n_tensors++;
}

static void reshape(struct order_mutant *m, uint32_t table, uint64_t *seed) {
    struct tw_tensor *t = order_own(m, m->p.tensors, m->p.n_tensors * sizeof *t);
    uint32_t *field = random_below(seed, 2) ? &t[table].rows : &t[table].cols;
    *field = random_below(seed, 2) ? 1 + random_below(seed, 6) : *field - 1;
    if (random_below(seed, 4)) {
        t[table].bytes = (uint64_t)t[table].rows * t[table].cols * 4;
    }
    m->p.tensors = t;
}

static uint32_t find_table(const struct tw_program *p) {
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        const char *name = tw_program_string(p, p->tensors[t].name);
        if (strcmp(name, "pages") == 0) {
            return t;
        }
    }
    return TW_NONE;
}

bool order_family_pages(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    uint32_t table = find_table(&m->p), any = TW_NONE;
    (void)x;
    for (uint32_t tries = 0; tries < 64 && any == TW_NONE; tries++) {
        uint32_t t = random_below(seed, m->p.n_tensors);
        any = has_pages(&m->p, t) ? t : TW_NONE;
    }
    if (any == TW_NONE) {
        return false;
    }
    uint32_t how = random_below(seed, 7), use = table;
    if (table == TW_NONE || random_below(seed, 3) == 0) {
        use = add_table(m, random_below(seed, 3) ? table : TW_NONE, seed);
    }
    if (how == 6) {
        reshape(m, use, seed);
    }
    struct change c = {.p = &m->p,
                       .how = how % 5,
                       .only = 1 + random_below(seed, 3),
                       .table = random_below(seed, 8) ? use : random_below(seed, m->p.n_tensors),
                       .tensor = random_below(seed, 3) ? TW_NONE : any,
                       .element = random_below(seed, 3) ? 1 : (uint64_t)-1,
                       .seed = random_next(seed)};
    uint32_t n = how == 6 && random_below(seed, 2) ? 1 : order_each_op(m, change_op, &c);
    order_describe(m, " [pages: way %u of %u ops, table %u, tensor %d, by %d]", how, n, c.table,
                   (int)c.tensor, (int)c.element);
    return n > 0;
}
