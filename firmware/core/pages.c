/* SPDX-License-Identifier: Apache-2.0
 *
 * Page tables (pages.h). The uses of all ops are gathered in one walk over the text; most are
 * equal, because layers and heads use the same elements. When a step begins, each use enumerates
 * its elements: first those of writes, which become the owners of their pages, then those of reads.
 */
#include "firmware/core/pages.h"

#include "firmware/core/machine_arena.h"

/* ---- finding ---- */

struct finder {
    struct tw_pages *pages; /* NULL: only count */
    uint32_t n, depth;
    struct {
        uint32_t var, trip, max;
    } loop[TW_MAX_VARS];
};

/* The loops whose iteration the element depends on, and those that may not run at all. */
static void add_loops(const struct finder *f, const struct tw_affine *element,
                      struct tw_page_use *use) {
    for (uint32_t d = 0; d < f->depth; d++) {
        uint64_t step = 0;
        for (uint32_t i = 0; i < element->n_terms; i++) {
            step += element->term[i].var == f->loop[d].var ? element->term[i].step : 0;
        }
        if (step != 0 || f->loop[d].trip != TW_NONE) {
            use->loop[use->n_loops].trip = f->loop[d].trip;
            use->loop[use->n_loops].max = f->loop[d].max;
            use->loop[use->n_loops++].step = step;
        }
    }
}

static void describe(const struct finder *f, const struct tw_text_place *at, const struct tw_op *op,
                     const struct tw_operand *o, struct tw_page_use *use) {
    const struct tw_operand *rows = tw_op_rows(op), *pos = tw_op_position(op);
    memset(use, 0, sizeof *use);
    use->tensor = o->id;
    use->table = o->table;
    use->base = o->element.base;
    use->writes = tw_region_writes(o->kind);
    use->is_cache = op->code == TW_OP_KEY_WRITE || op->code == TW_OP_VALUE_WRITE;
    use->pos.trip = pos && use->is_cache ? pos->id : TW_NONE;
    use->pos.max = pos && use->is_cache ? pos->max : 0;
    use->rows.trip = rows ? rows->id : TW_NONE;
    use->rows.max = rows ? rows->max : 1;
    add_loops(f, &o->element, use);
    use->site = tw_stream_site(at->stream);
    use->engine = tw_stream_engine(at->stream);
    use->op_index = at->index;
    use->opcode = op->code;
    use->stage = op->stage;
}

static int add_use(struct tw_pages *p, const struct tw_page_use *use, struct tw_fault *fault) {
    for (uint32_t i = 0; i < p->n; i++) {
        if (memcmp(&p->uses[i], use, offsetof(struct tw_page_use, site)) == 0) {
            return 0;
        }
    }
    if (p->n == p->room) {
        return tw_fault_fail(fault, "TooManyChecks", use->table, p->n + 1, p->room);
    }
    p->uses[p->n++] = *use;
    return 0;
}

static int visit(void *ctx, const struct tw_text_place *at, const struct tw_op *op,
                 struct tw_fault *fault) {
    struct finder *f = ctx;
    f->depth = at->depth; /* loops that have ended since are gone */
    int rc = 0;
    for (uint32_t i = 0; i < op->n_operands && rc == 0; i++) {
        struct tw_page_use use;
        if (op->operand[i].paged) {
            f->n++;
            if (f->pages) {
                describe(f, at, op, &op->operand[i], &use);
                rc = add_use(f->pages, &use, fault);
            }
        }
    }
    if (op->code == TW_OP_LOOP && f->depth < TW_MAX_VARS) {
        const struct tw_operand *times = &op->operand[TW_LOOP_times];
        f->loop[f->depth].var = op->operand[TW_LOOP_var].id;
        f->loop[f->depth].trip = times->id;
        f->loop[f->depth].max = times->max;
    }
    return rc;
}

int tw_pages_count(const struct tw_machine_config *config, uint32_t *n, struct tw_fault *fault) {
    struct finder f;
    memset(&f, 0, sizeof f);
    int rc = tw_text_walk(config, visit, &f, fault);
    *n = f.n < TW_MAX_PAGE_USES ? f.n : TW_MAX_PAGE_USES;
    return rc;
}

void tw_pages_take(const struct tw_program *program, uint32_t n, struct tw_arena *arena,
                   struct tw_pages *out) {
    memset(out, 0, sizeof *out);
    if (n == 0) {
        return;
    }
    out->uses = tw_arena_zeroed(arena, n, sizeof *out->uses, 8);
    out->owners = tw_arena_zeroed(arena, program->n_tensors, sizeof *out->owners, 8);
    out->room = n;
    for (uint32_t i = 0; i < program->n_tensors; i++) {
        const struct tw_tensor *t = &program->tensors[i];
        if (t->role == TW_ROLE_STATE && tw_tensor_pages(t) > 0) {
            struct tw_page_owner *owner =
                tw_arena_zeroed(arena, tw_tensor_pages(t), sizeof *owner, 8);
            if (out->owners) {
                out->owners[i] = owner;
            }
        }
    }
}

int tw_pages_find(const struct tw_machine_config *config, struct tw_pages *pages,
                  struct tw_fault *fault) {
    struct finder f;
    memset(&f, 0, sizeof f);
    f.pages = pages;
    pages->n = 0;
    return pages->room ? tw_text_walk(config, visit, &f, fault) : 0;
}

/* ---- checking ---- */

struct check {
    const struct tw_program *program;
    struct tw_pages *pages;
    uint8_t *const *inputs;
    const uint32_t *trips;
    struct tw_fault *fault;
};

static int refuse(struct tw_fault *fault, const char *what, uint32_t table, uint64_t element,
                  uint64_t have, uint64_t need) {
    tw_fault_set(fault, what, table, have, need);
    fault->element = element < TW_NONE ? (uint32_t)element : TW_NONE;
    return TW_E_FAULT;
}

int tw_pages_look_up(const struct tw_program *program, uint8_t *const *inputs, uint32_t tensor,
                     uint32_t table, uint64_t element, uint32_t *page, struct tw_fault *fault) {
    const struct tw_tensor *t = &program->tensors[table];
    uint64_t elements = (uint64_t)t->rows * t->cols;
    uint32_t pages = tw_tensor_pages(&program->tensors[tensor]);
    int32_t number;
    if (element >= elements || !inputs[table]) {
        return refuse(fault, "PageOutOfRange", table, element, element, elements);
    }
    memcpy(&number, inputs[table] + (size_t)element * 4, sizeof number);
    if (number < 0 || (uint32_t)number >= pages) {
        return refuse(fault, "PageOutOfRange", table, element, (uint64_t)(int64_t)number, pages);
    }
    *page = (uint32_t)number;
    return 0;
}

/* The rows of a table may be of one sequence: then elements of one column name one page, and writes
 * through them are of different positions. */
static bool may_share(const struct check *c, const struct tw_page_owner *owner,
                      const struct tw_page_use *use, uint64_t element, uint64_t positions) {
    uint64_t cols = c->program->tensors[use->table].cols;
    return owner->table == use->table &&
           (owner->element == element ||
            (owner->element % cols == element % cols && !(owner->positions & positions)));
}

/* `positions`: those that the use writes, as in struct tw_page_owner; 0: it reads. */
static int check_element(const struct check *c, const struct tw_page_use *use, uint64_t element,
                         uint64_t positions) {
    uint32_t page = 0;
    int rc =
        tw_pages_look_up(c->program, c->inputs, use->tensor, use->table, element, &page, c->fault);
    struct tw_page_owner *owner =
        rc == 0 && c->pages->owners[use->tensor] ? &c->pages->owners[use->tensor][page] : NULL;
    if (!owner) {
        return rc;
    }
    bool owned = owner->step == c->pages->step;
    if (owned && !may_share(c, owner, use, element, positions)) {
        return refuse(c->fault, "PageShared", use->table, element, page, owner->element);
    }
    if (positions) {
        owner->positions = positions | (owned ? owner->positions : 0);
        owner->step = c->pages->step;
        owner->table = use->table;
        owner->element = element;
    }
    return 0;
}

/* Returns the positions of page `block` of a sequence that are among pos .. end - 1, one bit
 * each. */
static uint64_t positions_of(uint64_t block, uint64_t pos, uint64_t end) {
    uint64_t at = block * TW_KV_BLOCK, from = pos > at ? pos - at : 0,
             n = (end - at < TW_KV_BLOCK ? end - at : TW_KV_BLOCK) - from;
    return (n < 64 ? ((uint64_t)1 << n) - 1 : UINT64_MAX) << from;
}

/* Checks the elements from `element` on that the positions of a cache write need: they are in one
 * row of the table. */
static int check_positions(const struct check *c, const struct tw_page_use *use, uint64_t element,
                           uint32_t pos, uint32_t rows) {
    uint64_t cols = c->program->tensors[use->table].cols, first = pos / TW_KV_BLOCK,
             end = (uint64_t)pos + rows, last = (end - 1) / TW_KV_BLOCK, column = element % cols;
    int rc = column + last < cols ? 0
                                  : refuse(c->fault, "PageOutOfRange", use->table, element + last,
                                           column + last, cols);
    for (uint64_t i = first; i <= last && rc == 0; i++) {
        rc = check_element(c, use, element + i, positions_of(i, pos, end));
    }
    return rc;
}

static uint32_t value(const struct check *c, uint32_t trip, uint32_t max) {
    return trip == TW_NONE ? max : c->trips[trip];
}

/* Enumerates the iterations of the loops; the last one is the innermost. */
static int check_use(const struct check *c, const struct tw_page_use *use) {
    uint32_t count[TW_MAX_VARS], at[TW_MAX_VARS] = {0}, d;
    uint32_t rows = value(c, use->rows.trip, use->rows.max),
             pos = value(c, use->pos.trip, use->pos.max);
    bool runs = rows > 0;
    for (d = 0; d < use->n_loops; d++) {
        uint32_t n = value(c, use->loop[d].trip, use->loop[d].max);
        runs = runs && n > 0;
        count[d] = use->loop[d].step ? n : 1; /* the same element in each iteration */
    }
    uint64_t element = use->base;
    while (runs) {
        int rc = use->is_cache ? check_positions(c, use, element, pos, rows)
                               : check_element(c, use, element, use->writes ? UINT64_MAX : 0);
        if (rc != 0) {
            return rc;
        }
        for (d = use->n_loops; d > 0 && ++at[d - 1] == count[d - 1]; d--) {
            element -= use->loop[d - 1].step * (count[d - 1] - 1);
            at[d - 1] = 0;
        }
        runs = d > 0;
        element += runs ? use->loop[d - 1].step : 0;
    }
    return 0;
}

static void forget_owners(const struct tw_program *program, struct tw_pages *pages) {
    for (uint32_t i = 0; i < program->n_tensors; i++) {
        if (pages->owners[i]) {
            memset(pages->owners[i], 0,
                   tw_tensor_pages(&program->tensors[i]) * sizeof *pages->owners[i]);
        }
    }
}

int tw_pages_check(const struct tw_program *program, struct tw_pages *pages, uint8_t *const *inputs,
                   const uint32_t *trips, struct tw_fault *fault) {
    struct check c = {program, pages, inputs, trips, fault};
    int rc = 0;
    if (pages->n > 0 && ++pages->step == 0) { /* owners of 2^32 steps ago must not look current */
        forget_owners(program, pages);
        pages->step = 1;
    }
    for (uint32_t writes = 2; writes-- > 0 && rc == 0;) {
        for (uint32_t i = 0; i < pages->n && rc == 0; i++) {
            const struct tw_page_use *use = &pages->uses[i];
            if (use->writes == writes && (rc = check_use(&c, use)) != 0) {
                fault->site = use->site;
                fault->engine = use->engine;
                fault->op_index = use->op_index;
                fault->opcode = use->opcode;
                fault->stage = use->stage;
            }
        }
    }
    return rc;
}
