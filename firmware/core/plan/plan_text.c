/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan builder's view of the text: counts the maximum that a step can need, decodes every op
 * once, and determines how each buffer is written, which decides what may be shared or read in
 * place.
 */
#include "firmware/core/plan/plan_walk.h"

#include "loader/base/assert.h"
#include "tilewright/range.h"

static void add(uint64_t *total, uint64_t times, uint64_t each) {
    uint64_t n;
    if (!tw_mul_u64(times, each, &n) || !tw_add_u64(*total, n, total)) {
        *total = UINT64_MAX / 4096; /* more than any memory, yet far from overflow */
    }
}

static uint64_t group_sites(const struct walk *w, const struct tw_op *op) {
    for (uint32_t n = 0; n < op->n_operands; n++) {
        if (op->operand[n].kind == 'G') {
            return tw_group_size(&w->program->groups[op->operand[n].id]);
        }
    }
    return 1;
}

static uint32_t count_regions(const struct tw_op *op) {
    uint32_t n = 0;
    while (tw_op_region(op, n)) {
        n++;
    }
    return n;
}

/* Returns the most patches that a call of an op can have: of each region the terms of its address,
 * and those of its page's element with two more (emit_page in plan_calls.c); the terms of a
 * block. */
static uint64_t max_patches(const struct walk_bounds *b, const struct tw_op *op, bool dynamic) {
    uint64_t terms = dynamic ? WALK_TERMS : 0, page = b->page_uses > 0 ? 2 + terms : 0;
    return count_regions(op) * (terms + page) + terms;
}

static int count_op(void *ctx, const struct tw_text_place *at, const struct tw_op *op,
                    struct tw_fault *fault) {
    struct walk *w = ctx;
    struct walk_bounds *b = &w->bounds;
    (void)fault;
    b->ops++;
    if (tw_op_is_data(op->code)) {
        uint64_t calls = op->code == TW_OP_MCAST ? group_sites(w, op) : 1;
        add(&b->entries, at->times, calls);
        add(&b->patches, at->times, calls * max_patches(b, op, at->dynamic > 0));
    } else if (op->code == TW_OP_LOOP && op->operand[TW_LOOP_times].id != TW_NONE) {
        add(&b->entries, at->times, 2);
    } else if (w->n_threads > 1 && op->code == TW_OP_SEM_WAIT) {
        add(&b->entries, at->times, (w->n_threads - 1 + PLAN_WAITS - 1) / PLAN_WAITS);
    } else if (w->n_threads > 1 && (op->code == TW_OP_SEM_INC || op->code == TW_OP_MCAST_SET)) {
        add(&b->events, at->times, group_sites(w, op));
        add(&b->snapshots, at->times, 1);
    }
    return 0;
}

int tw_walk_count_text(struct walk *w) {
    const struct tw_program *p = w->program;
    int rc = tw_pages_count(&w->config, &w->bounds.page_uses, w->fault);
    rc = rc ? rc : tw_text_walk(&w->config, count_op, w, w->fault);
    for (uint32_t i = 0; i < p->n_buffers && rc == 0; i++) {
        add(&w->bounds.pages, p->buffers[i].pages, 1);
        if (p->buffers[i].sibling_base == i) {
            for (uint32_t chip = 0; chip < p->n_chips; chip++) {
                add(&w->bounds.shared_bytes, p->buffers[i].pages, p->buffers[i].page_bytes + 64);
            }
        }
    }
    if (rc == 0 && w->bounds.entries > UINT32_MAX / 4) {
        return tw_fault_fail(w->fault, "BadOp", TW_NONE, w->bounds.entries, UINT32_MAX / 4);
    }
    return rc;
}

/* ---- decoding ---- */

static const uint32_t *affine_end(const uint32_t *a) {
    return a + 3 + 3 * a[2];
}

/* Stores where the affine numbers of the op are encoded. */
static void find_affines(struct walk_op *out, const struct tw_op *op, const uint32_t *words) {
    const uint32_t *at = words + 2;
    uint32_t region = 0;
    for (uint32_t n = 0; n < op->n_operands; n++) {
        char kind = op->operand[n].kind;
        if (kind == 'A') {
            out->affine = at;
            at = affine_end(at);
            continue;
        }
        at += kind == 'X' || tw_region_is_tensor(kind) ? 2 : 1;
        if (tw_letter_in("RWMDTU", kind)) {
            struct walk_region *r = &out->region[region++];
            if (tw_region_is_tensor(kind)) {
                r->instance = at;
                at = affine_end(at);
            }
            r->offset = at;
            at = affine_end(at);
            if (op->operand[n].paged) {
                r->element = at;
                at = affine_end(at);
            }
        }
    }
}

static void decode_regions(const struct walk *w, struct walk_op *out, const struct tw_op *op) {
    const struct tw_operand *o;
    for (uint32_t n = 0; n < TW_KARGS_REGIONS && (o = tw_op_region(op, n)) != NULL; n++) {
        const struct tw_tensor *t =
            tw_region_is_tensor(o->kind) ? &w->program->tensors[o->id] : NULL;
        out->region[n].id = o->id;
        out->region[n].kind = o->kind;
        out->region[n].reads = tw_op_reads(op, o);
        out->region[n].paged = o->paged;
        out->region[n].table = o->table;
        out->region[n].span =
            tw_extent_span(tw_op_extent(op, n, out->args.rows, out->args.x_dtype, t));
        out->n_regions = (uint8_t)(n + 1);
    }
}

static uint16_t trip_of(const struct tw_operand *x) {
    return x && x->id != TW_NONE ? (uint16_t)x->id : (uint16_t)PLAN_NO_TRIP;
}

static void decode_scalars(struct walk_op *out, const struct tw_op *op) {
    out->rows_trip = trip_of(tw_op_rows(op));
    out->pos_trip = trip_of(tw_op_position(op));
    out->flags = tw_op_rows(op) && op->code != TW_OP_LOOP ? WALK_OP_COUNT : 0;
    for (uint32_t n = 0; n < op->n_operands; n++) {
        const struct tw_operand *o = &op->operand[n];
        if (o->kind == 'F' || o->kind == 'S') {
            out->object = o->id;
        } else if (o->kind == 'C' || o->kind == 'G' || o->kind == 'V') {
            out->target = o->id;
        } else if (o->kind == 'I' && !tw_op_is_data(op->code)) {
            out->number = o->id;
        }
    }
    if (op->code == TW_OP_LOOP) {
        out->object = op->operand[TW_LOOP_id].id;
        out->number = op->operand[TW_LOOP_times].max;
    }
}

static uint8_t *buffer_flags(struct walk *w, uint32_t id) {
    return &w->buffers[id].flags;
}

static bool is_constant_zero(const uint32_t *affine) {
    return affine[0] == 0 && affine[1] == 0 && affine[2] == 0;
}

/* Returns true for a READ whose source could replace its destination: rows without gaps, from
 * memory that no program writes. */
static bool can_replace_destination(const struct walk *w, const struct walk_op *op,
                                    const struct tw_text_place *at) {
    unsigned role = w->program->tensors[op->region[TW_READ_REGION_source].id].role;
    return walk_is_dense(op) && at->dynamic == 0 &&
           is_constant_zero(op->region[TW_READ_REGION_destination].offset) &&
           (role == TW_ROLE_PARAM || role == TW_ROLE_INPUT);
}

/* Records the multicast for the siblings on every chip that it addresses, whether it reaches them
 * or not: siblings stay equal only if it reaches all of them. */
static void record_multicast(struct walk *w, const struct walk_op *op) {
    const struct tw_program *p = w->program;
    const struct tw_group *g = &p->groups[op->target];
    const struct tw_buffer *own = &p->buffers[op->region[TW_MCAST_REGION_destination].id];
    if (own->sibling_base == TW_NONE) {
        return; /* faults when it is executed */
    }
    const struct tw_group *set = &p->groups[own->group];
    bool all = g->x0 <= set->x0 && set->x1 <= g->x1 && g->y0 <= set->y0 && set->y1 <= g->y1;
    for (uint32_t site = 0; site < p->n_sites; site++) {
        uint32_t chip = tw_chip_of(p, site), id = tw_buffer_sibling(p, own, site);
        if (id != TW_NONE && chip >= g->chip && chip - g->chip < g->chips) {
            *buffer_flags(w, id) |= (uint8_t)(all ? WALK_BUF_MCAST : WALK_BUF_MCAST_PART);
        }
    }
}

static void record_writes(struct walk *w, const struct walk_op *op,
                          const struct tw_text_place *at) {
    if (op->code == TW_OP_MCAST) {
        record_multicast(w, op);
        return;
    }
    for (uint32_t n = 0; n < op->n_regions; n++) {
        char kind = op->region[n].kind;
        if (kind == 'W' || kind == 'M' || kind == 'D') {
            bool in_place = op->code == TW_OP_READ && can_replace_destination(w, op, at);
            *buffer_flags(w, op->region[n].id) |=
                (uint8_t)(in_place ? WALK_BUF_READ : WALK_BUF_WRITTEN);
        }
    }
}

static int decode_op(void *ctx, const struct tw_text_place *at, const struct tw_op *op,
                     struct tw_fault *fault) {
    struct walk *w = ctx;
    struct walk_engine *e = &w->engines[at->stream];
    struct walk_op *out = &w->ops[w->n_ops];
    (void)fault;
    if (at->index == 0) {
        e->first = w->n_ops;
    }
    memset(out, 0, sizeof *out);
    out->code = (uint8_t)op->code;
    out->stage = op->stage;
    out->index = at->index;
    tw_bind_constants(w->program, op, &out->args);
    decode_scalars(out, op);
    find_affines(out, op, w->program->streams[at->stream].words + at->word);
    decode_regions(w, out, op);
    if (op->code == TW_OP_END) {
        out->match = e->first + at->match;
        w->ops[out->match].match = w->n_ops;
    }
    record_writes(w, out, at);
    e->end = ++w->n_ops;
    return 0;
}

/* Returns the engines of a site that have a dynamic loop with this id; they execute it together. */
static uint32_t find_participants(const struct walk *w, uint32_t site, uint32_t loop) {
    uint32_t mask = 0;
    for (uint32_t n = 0; n < TW_ENGINE_COUNT; n++) {
        const struct walk_engine *e = &w->engines[site * TW_ENGINE_COUNT + n];
        for (uint32_t i = e->first; i < e->end; i++) {
            const struct walk_op *op = &w->ops[i];
            if (op->code == TW_OP_LOOP && op->rows_trip != PLAN_NO_TRIP && op->object == loop) {
                mask |= 1u << n;
            }
        }
    }
    return mask;
}

int tw_walk_decode_text(struct walk *w) {
    int rc = tw_text_walk(&w->config, decode_op, w, w->fault);
    for (uint32_t s = 0; s < w->program->n_sites * TW_ENGINE_COUNT && rc == 0; s++) {
        struct walk_engine *e = &w->engines[s];
        e->site = tw_stream_site(s);
        e->engine = tw_stream_engine(s);
        e->thread = walk_thread(w, e->site);
        for (uint32_t i = e->first; i < e->end; i++) {
            struct walk_op *op = &w->ops[i];
            if (op->code == TW_OP_LOOP && op->rows_trip != PLAN_NO_TRIP) {
                uint32_t alone = 1u << e->engine;
                op->participants =
                    (uint8_t)(op->object == TW_NONE ? alone
                                                    : find_participants(w, e->site, op->object));
            }
        }
    }
    return rc;
}

static void find_shared_on(struct walk *w, uint32_t first, uint32_t n) {
    uint32_t flags = 0;
    for (uint32_t i = first; i < first + n; i++) {
        flags |= w->buffers[i].flags;
    }
    for (uint32_t i = first; i < first + n && flags == WALK_BUF_MCAST; i++) {
        w->buffers[i].flags |= WALK_BUF_SHARED;
    }
}

/* Returns the first member of the buffer's set on its chip, if they share their storage; else the
 * buffer itself. */
uint32_t tw_walk_storage(const struct walk *w, uint32_t id) {
    const struct tw_program *p = w->program;
    const struct tw_buffer *b = &p->buffers[id];
    if (!(w->buffers[id].flags & WALK_BUF_SHARED)) {
        return id;
    }
    const struct tw_group *g = &p->groups[b->group];
    uint32_t per_chip = (uint32_t)tw_group_size(g) / g->chips;
    TW_ASSERT(per_chip > 0 && b->sibling_base <= id);
    return id - (id - b->sibling_base) % per_chip;
}

/* If the members of a set on one chip are written only by multicasts to all of them, they always
 * hold the same bytes, so one storage is enough. */
void tw_walk_find_shared(struct walk *w) {
    const struct tw_program *p = w->program;
    for (uint32_t base = 0; base < p->n_buffers; base++) {
        if (p->buffers[base].sibling_base != base || p->buffers[base].kind != TW_BUF_RESIDENT) {
            continue;
        }
        const struct tw_group *g = &p->groups[p->buffers[base].group];
        uint32_t per_chip = (uint32_t)tw_group_size(g) / g->chips;
        for (uint32_t chip = 0; chip < g->chips; chip++) {
            find_shared_on(w, base + chip * per_chip, per_chip);
        }
    }
}
