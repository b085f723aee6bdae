/* SPDX-License-Identifier: Apache-2.0
 *
 * Emission of kernel calls: constants come from the text, pointers from the resolver, and what
 * depends on trips or dynamic loops becomes patches.
 */
#include "firmware/core/kernel_parts.h"
#include "firmware/core/plan/plan_walk.h"

#include "loader/base/assert.h"

struct plan_entry *tw_walk_emit(struct walk *w, uint32_t site, const struct walk_engine *e,
                                enum plan_kind kind) {
    uint32_t thread = walk_thread(w, site), n = w->n_entries[thread]++;
    TW_ASSERT(n < w->bounds.entries);
    if (w->plan) {
        TW_ASSERT(n < w->plan->threads[thread].n_entries); /* as many as were counted */
        w->plan->threads[thread].origins[n].engine = e ? e->engine : TW_NONE;
        w->plan->threads[thread].origins[n].op_index = e ? e->pc - e->first : 0;
    }
    struct plan_entry *entry = w->plan ? &w->plan->threads[thread].entries[n] : &w->unused_entry;
    entry->kind = (uint8_t)kind;
    entry->flags = entry->code = entry->n = 0;
    entry->site = site;
    entry->first_patch = w->n_patches[thread];
    entry->rows_trip = entry->pos_trip = PLAN_NO_TRIP;
    return entry;
}

static struct plan_patch *add_patch(struct walk *w, uint32_t thread, struct plan_entry *entry) {
    uint32_t n = w->n_patches[thread]++;
    TW_ASSERT(n < w->bounds.patches && (!w->plan || n < w->plan->threads[thread].n_patches));
    entry->kind = PLAN_PATCHED;
    entry->n++;
    return w->plan ? &w->plan->threads[thread].patches[n] : &w->unused_patch;
}

static void emit_patches(struct walk *w, uint32_t thread, struct plan_entry *entry, uint32_t target,
                         const struct walk_terms *t) {
    for (uint32_t i = 0; i < t->n; i++) {
        TW_ASSERT(t->level[i] < TW_MAX_VARS);
        *add_patch(w, thread, entry) = (struct plan_patch){target, t->level[i], t->step[i]};
    }
}

/* Moves pointer n into the page that an element of a table names. */
static void emit_page(struct walk *w, uint32_t thread, struct plan_entry *entry, uint32_t n,
                      const struct walk_page_of *p) {
    struct plan_patch base = {PLAN_PATCH_ELEMENT_BASE, 0, p->element},
                      page = {PLAN_PATCH_PAGE + n, p->table, p->page_bytes};
    if (p->any) {
        *add_patch(w, thread, entry) = base;
        emit_patches(w, thread, entry, PLAN_PATCH_ELEMENT, &p->terms);
        *add_patch(w, thread, entry) = page;
    }
}

/* The page numbers of a cache write are an argument of their own. */
static void emit_page_numbers(struct walk *w, uint32_t thread, struct plan_entry *entry,
                              const struct walk_page_of *p) {
    struct walk_terms bytes = p->terms;
    if (p->any) {
        for (uint32_t i = 0; i < bytes.n; i++) {
            bytes.step[i] *= 4;
        }
        entry->u.call.args.p[TW_PAGES_ARG] = w->inputs[p->table] + p->element * 4;
        emit_patches(w, thread, entry, TW_PAGES_ARG, &bytes);
    }
}

/* An op whose operands are bound and that is about to become an entry. */
struct bound {
    struct walk_pointer p[TW_KARGS_REGIONS];
    uint64_t block;
    struct walk_terms block_terms;
};

static void emit_call(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                      const struct bound *b) {
    struct plan_entry *entry = tw_walk_emit(w, e->site, e, PLAN_CALL);
    TW_ASSERT(w->config.kernels->fn[op->code] && op->n_regions <= TW_KARGS_REGIONS);
    entry->code = op->code;
    entry->u.call.fn = w->config.kernels->fn[op->code];
    uint64_t work = tw_call_work(op->code, &op->args);
    entry->flags |= (uint8_t)((work >= TW_LOOK_WORK ? PLAN_LOOK : 0u) |
                              (op->code == TW_OP_MATMUL && work > TW_PART_WORK ? PLAN_PARTS : 0u));
    entry->u.call.args = op->args;
    entry->u.call.args.block = (uint32_t)b->block;
    entry->rows_trip = op->rows_trip;
    entry->pos_trip = op->pos_trip;
    if (op->rows_trip != PLAN_NO_TRIP || op->pos_trip != PLAN_NO_TRIP) {
        entry->kind = PLAN_PATCHED;
    }
    for (uint32_t n = 0; n < op->n_regions; n++) {
        entry->u.call.args.p[n] = b->p[n].at;
        emit_patches(w, e->thread, entry, n, &b->p[n].terms);
        if (walk_is_cache_write(op)) {
            emit_page_numbers(w, e->thread, entry, &b->p[n].page);
        } else {
            emit_page(w, e->thread, entry, n, &b->p[n].page);
        }
    }
    emit_patches(w, e->thread, entry, PLAN_PATCH_BLOCK, &b->block_terms);
    w->stats.calls++;
    w->stats.copies += op->code == TW_OP_READ || op->code == TW_OP_MCAST || op->code == TW_OP_SEND;
}

/* ---- values known only per step, checked before it begins ---- */

static int add_id_check(struct walk *w, const struct walk_op *op, const struct bound *b) {
    struct plan_checks *c = &w->checks;
    TW_ASSERT(op->n_regions > 1 && op->args.tensor && c->n_ids <= PLAN_CHECKS);
    const struct walk_pointer *at = &b->p[TW_GATHER_REGION_ids];
    uint32_t id = op->region[TW_GATHER_REGION_ids].id;
    const struct tw_tensor *ids = &w->program->tensors[id];
    struct plan_id_check check = {at->at, op->args.rows, op->args.tensor->rows, id, op->rows_trip};
    if (!tw_demand_role(TW_KIND_TENSOR_READ, TW_DEMAND_IDS, ids->role)) {
        return tw_fault_fail(w->fault, "Role", id, ids->role, TW_ROLE_INPUT);
    }
    if (at->terms.n > 0) {
        return tw_fault_fail(w->fault, "DynamicIds", id, at->terms.n, 0);
    }
    for (uint32_t i = 0; i < c->n_ids; i++) {
        const struct plan_id_check *o = &c->ids[i];
        if (o->ids == check.ids && o->rows == check.rows && o->limit == check.limit &&
            o->rows_trip == check.rows_trip) {
            return 0;
        }
    }
    if (c->n_ids == PLAN_CHECKS) {
        return tw_fault_fail(w->fault, "TooManyChecks", id, c->n_ids + 1, PLAN_CHECKS);
    }
    c->ids[c->n_ids++] = check;
    return 0;
}

static int add_pos_check(struct walk *w, const struct walk_op *op) {
    struct plan_checks *c = &w->checks;
    const struct tw_tensor *t = op->args.tensor;
    TW_ASSERT(op->n_regions > 1 && t && c->n_pos <= PLAN_CHECKS);
    const struct tw_args_key_write v = tw_args_key_write(&op->args);
    uint32_t cache = op->region[TW_KEY_WRITE_REGION_cache].id;
    struct plan_pos_check check = {v.pos, v.rows, t->rows, cache, op->pos_trip, op->rows_trip};
    uint64_t heads = t->head_dim ? t->cols / t->head_dim : 0,
             head_end = (uint64_t)v.first + v.heads;
    if (v.head_dim != t->head_dim || head_end > heads) {
        return tw_fault_fail(w->fault, "WriteOutOfRange", cache, head_end, heads);
    }
    if (op->region[TW_KEY_WRITE_REGION_cache].paged) {
        return 0; /* the table limits positions: pages.c */
    }
    for (uint32_t i = 0; i < c->n_pos; i++) {
        const struct plan_pos_check *o = &c->pos[i];
        if (o->pos == check.pos && o->rows == check.rows && o->limit == check.limit &&
            o->pos_trip == check.pos_trip && o->rows_trip == check.rows_trip) {
            return 0;
        }
    }
    if (c->n_pos == PLAN_CHECKS) {
        return tw_fault_fail(w->fault, "TooManyChecks", cache, c->n_pos + 1, PLAN_CHECKS);
    }
    c->pos[c->n_pos++] = check;
    return 0;
}

/* ---- the three kinds of data op ---- */

static int emit_multicast(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                          struct bound *b) {
    const struct tw_program *p = w->program;
    uint32_t named = op->region[TW_MCAST_REGION_destination].id;
    struct walk_pointer *to_place = &b->p[TW_MCAST_REGION_destination];
    if (p->buffers[named].sibling_base == TW_NONE || p->buffers[named].kind != TW_BUF_RESIDENT) {
        return tw_fault_fail(w->fault, "Role", named, p->buffers[named].kind, TW_BUF_RESIDENT);
    }
    TW_ASSERT(op->n_regions == 2 && b->p[1].at >= w->buffers[named].base);
    size_t offset = (size_t)(to_place->at - w->buffers[named].base);
    for (uint32_t site = 0; site < p->n_sites; site++) {
        if (!tw_group_has(p, op->target, site)) {
            continue;
        }
        uint32_t to = tw_buffer_sibling(p, &p->buffers[named], site);
        if (to == TW_NONE) {
            return tw_fault_fail(w->fault, "Role", named, site, p->buffers[named].group);
        }
        /* only once if a chip's siblings share their storage */
        if (tw_walk_storage(w, to) == to) {
            to_place->at = w->buffers[to].base + offset;
            emit_call(w, e, op, b);
        }
    }
    return 0;
}

static int emit_read(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                     struct bound *b) {
    struct walk_pointer *source = &b->p[TW_READ_REGION_source];
    bool done;
    int rc = tw_walk_resolve(w, e, op, TW_READ_REGION_source, source);
    if (rc == 0) {
        uint32_t id = op->region[TW_READ_REGION_source].id;
        source->at = tw_bind_input(&w->config, w->inputs, id, source->at);
        rc = tw_walk_read_in_place(w, e, op, source, &done);
    }
    if (rc != 0) {
        return rc;
    }
    if (done) {
        w->stats.in_place_reads++;
        return 0;
    }
    rc = tw_walk_resolve(w, e, op, TW_READ_REGION_destination, &b->p[TW_READ_REGION_destination]);
    if (rc == 0) {
        emit_call(w, e, op, b);
    }
    return rc;
}

static int check_values(struct walk *w, const struct walk_op *op, const struct bound *b) {
    if (op->code == TW_OP_GATHER) {
        return add_id_check(w, op, b);
    }
    return op->code == TW_OP_KEY_WRITE || op->code == TW_OP_VALUE_WRITE ? add_pos_check(w, op) : 0;
}

int tw_walk_data(struct walk *w, const struct walk_engine *e, const struct walk_op *op) {
    struct bound b;
    int rc = 0;
    memset(&b, 0, sizeof b);
    if (op->code == TW_OP_READ) {
        return emit_read(w, e, op, &b);
    }
    for (uint32_t n = 0; n < op->n_regions && rc == 0; n++) {
        rc = tw_walk_resolve(w, e, op, n, &b.p[n]);
    }
    if (rc == 0 && op->affine) {
        rc = tw_walk_eval(w, e, op->affine, &b.block, &b.block_terms);
    }
    for (uint32_t n = 0; n < op->n_regions && rc == 0; n++) {
        if (tw_region_is_tensor(op->region[n].kind)) {
            b.p[n].at = tw_bind_input(&w->config, w->inputs, op->region[n].id, b.p[n].at);
        }
    }
    if (rc == 0) {
        rc = check_values(w, op, &b);
    }
    if (rc != 0 || ((op->flags & WALK_OP_COUNT) && op->args.rows == 0)) {
        return rc; /* never any rows: nothing to do */
    }
    if (op->code == TW_OP_MCAST) {
        return emit_multicast(w, e, op, &b);
    }
    emit_call(w, e, op, &b);
    return 0;
}
