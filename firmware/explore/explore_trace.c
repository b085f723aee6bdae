/* SPDX-License-Identifier: Apache-2.0
 *
 * The explorer's traces: unrolls each engine's loops, resolves what every op touches to addresses
 * (the position in a FIFO's ring follows from the engine's own pushes or pops), and compares. A
 * byte stands for its whole 4-byte word, as in the shadow memory.
 */
#include "firmware/explore/explore_internal.h"
#include "loader/base/assert.h"

/* ---- what an op touches ---- */

static void add_access(struct explore *x, const uint8_t *at, struct tw_extent e, bool write) {
    if (e.rows == 0 || e.row_bytes == 0) {
        return;
    }
    if (x->accesses) {
        struct explore_access a = {(uintptr_t)at, e.rows, e.row_bytes, e.stride, write, false};
        x->accesses[x->n_accesses] = a;
    }
    x->n_accesses++;
}

static uint32_t *count_of(struct explore *x, const struct strict_engine *e,
                          const struct tw_operand *o) {
    const struct tw_buffer *b = &x->config.program->buffers[o->id];
    bool both = b->producer == b->consumer;
    bool produces = e->engine == b->producer && (!both || o->kind != 'R');
    return produces ? &x->pushes[o->id] : &x->pops[o->id];
}

static void buffer_access(struct explore *x, const struct strict_engine *e,
                          const struct tw_operand *o, struct tw_extent extent) {
    const struct tw_buffer *b = &x->config.program->buffers[o->id];
    uint64_t at = tw_affine_value(&o->offset, e->vars);
    if (b->kind == TW_BUF_FIFO) {
        at = (*count_of(x, e, o) + at / b->page_bytes) % b->pages * b->page_bytes +
             at % b->page_bytes;
    }
    bool write = o->kind != 'R';
    if (b->kind == TW_BUF_SCRATCH) { /* the first engine to touch it owns it */
        at = 0;
        write = true;
        extent = tw_extent_make(1, b->pages * b->page_bytes, 0);
    }
    const struct tw_tensor *state = tw_buffer_state(x->config.program, b);
    if (state) { /* kept in the memory of its binding rows */
        struct tw_window w = tw_buffer_window(state, b);
        uint8_t *base = tw_bind_tensor(&x->config, b->tensor, at / b->page_bytes);
        if (base) { /* else the op will fault whenever it runs */
            add_access(x, base + w.first + at % b->page_bytes, extent, write);
        }
        return;
    }
    add_access(x, x->s->sram[strict_class(b)] + b->offset + at, extent, write);
}

/* Adds what an op writes in the SRAM of a site, in the memory class of a buffer at an offset. */
static void remote_access(struct explore *x, const struct strict_engine *e, uint32_t site,
                          const struct tw_buffer *b, uint64_t at, struct tw_extent extent) {
    uint32_t before = x->n_accesses;
    add_access(x, x->s->sram[(uint64_t)site * TW_MEM_CLASSES + b->mem_class] + at, extent, true);
    if (site != e->site && x->n_accesses > before) {
        x->n_sent++;
        if (x->accesses) {
            x->accesses[before].sent = true;
        }
    }
}

/* SEND has its destination where MCAST has it. */
static void remote_accesses(struct explore *x, const struct strict_engine *e,
                            const struct tw_op *op, struct tw_extent extent) {
    const struct tw_program *p = x->config.program;
    const struct tw_operand *o = &op->operand[TW_MCAST_destination];
    const struct tw_buffer *b = &p->buffers[o->id];
    uint64_t at = b->offset + tw_affine_value(&o->offset, e->vars);
    if (op->code == TW_OP_SEND) {
        remote_access(x, e, b->site, b, at, extent);
        return;
    }
    for (uint32_t site = 0; site < p->n_sites; site++) {
        if (tw_group_has(p, op->operand[TW_MCAST_group].id, site)) {
            remote_access(x, e, site, b, at, extent);
        }
    }
}

/* What the engine has sent since its last flag arrives before this one is raised: the flag counts
 * as writing it, too. */
static void arrival_accesses(struct explore *x) {
    uint32_t end = x->n_accesses;
    for (uint32_t i = x->flagged; x->accesses && x->n_sent > 0 && i < end; i++) {
        if (x->accesses[i].sent) {
            x->accesses[x->n_accesses] = x->accesses[i];
            x->accesses[x->n_accesses++].sent = false;
        }
    }
    x->n_accesses += x->accesses ? 0 : x->n_sent;
    x->flagged = x->n_accesses;
    x->n_sent = 0;
}

/* Adds the rows that KEY_WRITE and VALUE_WRITE touch: head by head, position by position. */
static void cache_access(struct explore *x, const struct tw_op *op, uint8_t *base,
                         const struct tw_tensor *t, const int32_t *pages, uint64_t pos,
                         uint64_t rows) {
    const struct tw_numbers_key_write v = tw_numbers_key_write(op);
    uint64_t first = v.first, end = first + v.heads, bytes = tw_dtype_block_bytes(t->dtype);
    for (uint64_t head = first; head < end; head++) {
        for (uint64_t p = pos; p < pos + rows; p++) {
            uint32_t next;
            uint64_t page = pages ? (uint32_t)pages[p / TW_KV_BLOCK] : p / TW_KV_BLOCK;
            uint64_t at = page * tw_tensor_page_bytes(t) + head * tw_cache_head_bytes(t) +
                          tw_cache_element(t, p % TW_KV_BLOCK, &next) * bytes;
            add_access(x, base + at,
                       next > 1 ? tw_extent_make(t->head_dim, bytes, next * bytes)
                                : tw_extent_make(1, t->head_dim * bytes, 0),
                       true);
        }
    }
}

static void tensor_access(struct explore *x, const struct strict_engine *e, const struct tw_op *op,
                          uint32_t n, uint64_t pos, uint64_t rows) {
    const struct tw_operand *o = tw_op_region(op, n);
    const struct tw_tensor *t = &x->config.program->tensors[o->id];
    uint8_t *base = tw_bind_tensor(&x->config, o->id, tw_affine_value(&o->instance, e->vars));
    if (!base) {
        return; /* the op will fault whenever it runs */
    }
    uint64_t element = o->paged ? tw_affine_value(&o->element, e->vars) : 0;
    const uint8_t *table = o->paged ? x->s->inputs[o->table] : NULL;
    if (op->code == TW_OP_KEY_WRITE || op->code == TW_OP_VALUE_WRITE) {
        cache_access(x, op, base, t, table ? (const int32_t *)(const void *)table + element : NULL,
                     pos, rows);
        return;
    }
    uint32_t page = 0;
    struct tw_fault ignored;
    if (o->paged && tw_pages_look_up(x->config.program, x->s->inputs, o->id, o->table, element,
                                     &page, &ignored) != 0) {
        return; /* the op will fault, too */
    }
    uint64_t at = page * tw_tensor_page_bytes(t) + tw_affine_value(&o->offset, e->vars);
    add_access(x, base + at, tw_op_extent(op, n, rows, 0, t), o->kind == 'U');
}

static void data_accesses(struct explore *x, const struct strict_engine *e,
                          const struct tw_op *op) {
    const struct tw_program *p = x->config.program;
    const struct tw_operand *count = tw_op_rows(op), *first = tw_op_position(op);
    uint32_t rows = count ? tw_bind_count(count, x->s->trips) : 0;
    uint32_t pos = first ? tw_bind_count(first, x->s->trips) : 0;
    unsigned x_dtype = op->code == TW_OP_MATMUL ? p->buffers[op->operand[TW_MATMUL_x].id].dtype : 0;
    if (count && rows == 0) {
        return;
    }
    for (uint32_t n = 0; tw_op_region(op, n); n++) {
        const struct tw_operand *o = tw_op_region(op, n);
        if (tw_region_is_tensor(o->kind)) {
            tensor_access(x, e, op, n, pos, rows);
        } else if (o->kind == 'D') {
            remote_accesses(x, e, op, tw_op_extent(op, n, rows, x_dtype, NULL));
        } else {
            buffer_access(x, e, o, tw_op_extent(op, n, rows, x_dtype, NULL));
        }
    }
}

/* Popped pages become undefined, which counts as a write. */
static void pop_accesses(struct explore *x, const struct tw_op *op) {
    uint32_t fifo = op->operand[TW_POP_fifo].id, n = op->operand[TW_POP_pages].id;
    const struct tw_buffer *b = &x->config.program->buffers[fifo];
    n = n < b->pages ? n : b->pages;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t page = (x->pops[fifo] + i) % b->pages;
        add_access(x, x->s->sram[strict_class(b)] + b->offset + page * b->page_bytes,
                   tw_extent_make(1, b->page_bytes, 0), true);
    }
}

/* ---- unrolling ---- */

static void describe_sync(struct explore *x, const struct strict_engine *e, const struct tw_op *op,
                          struct explore_op *out) {
    out->object = tw_op_object(op);
    switch (op->code) {
    case TW_OP_SEM_INC:
        arrival_accesses(x);
        out->target = op->operand[TW_SEM_INC_site].id;
        out->number = op->operand[TW_SEM_INC_by].id;
        return;
    case TW_OP_SEM_WAIT:
        out->target = e->site;
        out->number =
            (uint32_t)tw_affine_value(&op->operand[TW_SEM_WAIT_threshold].offset, e->vars);
        return;
    case TW_OP_MCAST_SET:
        arrival_accesses(x);
        out->target = op->operand[TW_MCAST_SET_group].id;
        out->number = 1;
        return;
    default: /* FIFO: the operands of RESERVE */
        out->number = op->operand[TW_RESERVE_pages].id;
        if (op->code == TW_OP_PUSH) {
            x->pushes[out->object] += out->number;
        } else if (op->code == TW_OP_POP) {
            pop_accesses(x, op);
            x->pops[out->object] += out->number;
        }
        return;
    }
}

static void unroll_op(struct explore *x, const struct strict_engine *e, const struct tw_op *op,
                      uint32_t step) {
    struct explore_op out;
    memset(&out, 0, sizeof out);
    out.code = op->code;
    out.index = e->index;
    out.step = step;
    out.first_access = x->n_accesses;
    if (tw_op_is_data(op->code)) {
        data_accesses(x, e, op);
    } else {
        describe_sync(x, e, op, &out);
    }
    out.n_accesses = x->n_accesses - out.first_access;
    if (x->ops) {
        x->ops[x->n_ops] = out;
    }
    x->n_ops++;
}

static void unroll_step(struct explore *x, struct strict_engine *e, uint32_t step) {
    struct tw_fault ignored;
    struct tw_op op;
    e->at = e->index = e->depth = 0;
    memset(e->vars, 0, sizeof e->vars);
    e->vars[0] = x->config.first_epoch + step;
    while (e->at < e->n_words) {
        strict_fetch(e, &op);
        if (op.code == TW_OP_LOOP || op.code == TW_OP_END) {
            tw_strict_sync(x->s, e, &op, &ignored);
            continue;
        }
        unroll_op(x, e, &op, step);
        e->at += op.n_words;
        e->index++;
    }
}

void tw_explore_unroll(struct explore *x) {
    size_t n = x->config.program->n_buffers * sizeof *x->pushes;
    TW_ASSERT(x->options.steps > 0);
    x->n_ops = x->n_accesses = 0;
    for (uint32_t i = 0; i < x->n_engines; i++) {
        struct strict_engine e = x->s->engines[i];
        struct explore_engine *out = &x->engines[i];
        memset(x->pushes, 0, n);
        memset(x->pops, 0, n);
        out->first = x->n_ops;
        x->flagged = x->n_accesses;
        x->n_sent = 0;
        for (uint32_t step = 0; step < x->options.steps; step++) {
            unroll_step(x, &e, step);
        }
        out->n = x->n_ops - out->first;
        out->each_step = out->n / x->options.steps;
    }
}

/* ---- conflicts ---- */

static uintptr_t low(const struct explore_access *a, uint64_t row) {
    return (a->at + row * a->stride) & ~(uintptr_t)3;
}

static uintptr_t high(const struct explore_access *a, uint64_t row) {
    return (a->at + row * a->stride + a->row_bytes + 3) & ~(uintptr_t)3;
}

/* Returns true if a row of b overlaps [from, to). */
static bool overlaps_range(const struct explore_access *b, uintptr_t from, uintptr_t to) {
    uint64_t row = 0;
    if (b->stride > 0 && from > b->at + b->row_bytes) {
        row = (from - b->at - b->row_bytes) / b->stride;
        row -= row > 0; /* rounding to words can reach back a little */
    }
    for (; row < b->rows && low(b, row) < to; row++) {
        if (high(b, row) > from) {
            return true;
        }
    }
    return false;
}

static bool accesses_conflict(const struct explore_access *a, const struct explore_access *b) {
    if (!(a->write || b->write) || high(a, a->rows - 1) <= low(b, 0) ||
        high(b, b->rows - 1) <= low(a, 0)) {
        return false;
    }
    for (uint64_t row = 0; row < a->rows; row++) {
        if (overlaps_range(b, low(a, row), high(a, row))) {
            return true;
        }
    }
    return false;
}

bool tw_explore_conflict(const struct explore *x, const struct explore_op *a,
                         const struct explore_op *b) {
    for (uint32_t i = 0; i < a->n_accesses; i++) {
        for (uint32_t k = 0; k < b->n_accesses; k++) {
            if (accesses_conflict(&x->accesses[a->first_access + i],
                                  &x->accesses[b->first_access + k])) {
                return true;
            }
        }
    }
    return false;
}

static void compare_engines(struct explore *x, uint32_t a, uint32_t b) {
    const struct explore_engine *ea = &x->engines[a], *eb = &x->engines[b];
    for (uint32_t i = 0; i < ea->n; i++) {
        uint32_t *last = &x->last[(size_t)(ea->first + i) * x->n_engines + b];
        for (uint32_t k = eb->n; k > 0 && *last == 0; k--) {
            *last =
                tw_explore_conflict(x, &x->ops[ea->first + i], &x->ops[eb->first + k - 1]) ? k : 0;
        }
    }
}

/* A wait that has passed stays passed only while no word exceeds its threshold by 2^31, as the
 * difference is compared as a signed number. */
static bool is_monotone(const struct explore *x) {
    const uint64_t far = UINT64_C(1) << 30;
    uint64_t added = 0;
    for (uint32_t i = 0; i < x->n_ops; i++) {
        const struct explore_op *op = &x->ops[i];
        if (op->code == TW_OP_SEM_WAIT) {
            uint32_t gap = op->number - *strict_word(x->s, op->object, op->target);
            if (gap > far && 0u - gap > far) {
                return false;
            }
        }
        added += op->code == TW_OP_SEM_INC || op->code == TW_OP_MCAST_SET ? op->number : 0;
    }
    return added < far;
}

void tw_explore_find_conflicts(struct explore *x) {
    for (uint32_t a = 0; a < x->n_engines; a++) {
        for (uint32_t b = 0; b < x->n_engines; b++) {
            if (a != b) {
                compare_engines(x, a, b);
            }
        }
    }
    x->monotone = is_monotone(x);
}

/* ---- how far engines can get ---- */

static uint32_t *word_at(struct explore *x, const struct explore_op *op, uint32_t site) {
    return &x->words[(size_t)op->object * x->config.program->n_sites + site];
}

static bool is_blocked(struct explore *x, const struct explore_op *op) {
    const struct tw_program *p = x->config.program;
    if (op->code == TW_OP_SEM_WAIT) {
        return tw_group_has(p, p->semaphores[op->object].group, op->target) &&
               (int32_t)(*word_at(x, op, op->target) - op->number) < 0;
    }
    if (op->code != TW_OP_RESERVE && op->code != TW_OP_WAIT) {
        return false;
    }
    uint32_t pages = p->buffers[op->object].pages, level = x->level[op->object];
    return op->number <= pages && (op->code == TW_OP_WAIT ? level : pages - level) < op->number;
}

static void apply(struct explore *x, const struct explore_op *op) {
    const struct tw_program *p = x->config.program;
    if (op->code == TW_OP_PUSH) {
        x->level[op->object] += op->number;
    } else if (op->code == TW_OP_POP) {
        x->level[op->object] -= op->number;
    } else if (op->code == TW_OP_SEM_INC) {
        *word_at(x, op, op->target) += op->number;
    } else if (op->code == TW_OP_MCAST_SET) {
        for (uint32_t site = 0; site < p->n_sites; site++) {
            *word_at(x, op, site) += tw_group_has(p, op->target, site) ? op->number : 0;
        }
    }
}

void tw_explore_look_ahead(struct explore *x, const uint8_t *frozen) {
    const struct tw_program *p = x->config.program;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        x->level[i] = x->s->buffers[i].level;
    }
    memcpy(x->words, x->s->words, (size_t)p->n_semaphores * p->n_sites * sizeof *x->words);
    memcpy(x->front, x->pos, x->n_engines * sizeof *x->front);
    for (bool progressed = true; progressed;) {
        progressed = false;
        for (uint32_t e = 0; e < x->n_engines; e++) {
            const struct explore_op *ops = &x->ops[x->engines[e].first];
            uint32_t limit = explore_limit(x, e);
            for (; !frozen[e] && x->front[e] < limit && !is_blocked(x, &ops[x->front[e]]);
                 x->front[e]++) {
                apply(x, &ops[x->front[e]]);
                progressed = true;
            }
        }
    }
}
