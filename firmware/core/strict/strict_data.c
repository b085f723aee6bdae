/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict data ops: every operand is resolved to a region that is checked (place, bounds, role,
 * ownership), what is read must be defined, then the kernel runs and what it wrote becomes defined.
 * Ops with a row count of 0 touch nothing.
 */
#include "firmware/core/strict/strict.h"

#include "firmware/core/kernel_parts.h"

#include "loader/base/assert.h"
#include "tilewright/range.h"

/* A region of SRAM or DRAM that passed the checks. */
struct region {
    char kind;
    uint32_t id;
    uint8_t *at;
    uint64_t offset;  /* of `at`, from the start of the shadow */
    uint64_t *shadow; /* NULL: always defined */
    bool in_sram;     /* of `memory` (strict_class); State that is kept there is in its rows */
    uint64_t memory;
    struct tw_extent extent;
    const int32_t *pages; /* of a cache write: that of position 0 and those after it, or NULL */
};

struct access {
    struct tw_strict *s;
    const struct strict_engine *e;
    const struct tw_op *op;
    struct tw_fault *fault;
    bool idle; /* the op has no rows in this step */
};

static int refuse(const struct access *a, bool write, uint32_t id, uint64_t have, uint64_t need) {
    return tw_fault_fail(a->fault, write ? "WriteOutOfRange" : "ReadOutOfRange", id, have, need);
}

/* Returns true if the extent at `offset` ends at or before `limit`, and sets *end. */
static bool fits(uint64_t offset, struct tw_extent e, uint64_t limit, uint64_t *end) {
    uint64_t span = 0;
    if (e.rows > 0 &&
        (!tw_mul_u64(e.rows - 1, e.stride, &span) || !tw_add_u64(span, e.row_bytes, &span))) {
        *end = UINT64_MAX;
        return false;
    }
    if (!tw_add_u64(offset, span, end)) {
        *end = UINT64_MAX;
    }
    return tw_range_ok(offset, span, limit);
}

static bool on_producer_side(const struct access *a, const struct tw_buffer *b, char kind) {
    bool both = b->producer == b->consumer;
    return a->e->engine == b->producer && (!both || kind != 'R');
}

/* Byte offset inside the ring of a FIFO region, whose offset counts from the oldest published or
 * the next unpublished page. */
static int fifo_region(const struct access *a, const struct tw_operand *o, struct tw_extent extent,
                       uint64_t offset, uint64_t *ring) {
    const struct tw_buffer *b = &a->s->config.program->buffers[o->id];
    const struct strict_buffer *f = &a->s->buffers[o->id];
    bool producer = on_producer_side(a, b, o->kind), write = o->kind != 'R';
    uint64_t end, capacity = b->pages * b->page_bytes;
    if (a->e->engine != (producer ? b->producer : b->consumer) || (!producer && o->kind == 'W')) {
        return tw_fault_fail(a->fault, "Role", o->id, a->e->engine,
                             o->kind == 'W' ? b->producer : b->consumer);
    }
    if (!fits(offset, extent, capacity, &end)) {
        return refuse(a, write, o->id, end, capacity);
    }
    uint64_t allowed = (producer ? f->reserved : f->waited) * b->page_bytes;
    if (!fits(offset, extent, allowed, &end)) {
        return tw_fault_fail(a->fault, producer ? "FifoOverrun" : "FifoUnderrun", o->id, allowed,
                             end);
    }
    TW_ASSERT(strict_fifo_sound(f, b));
    uint64_t first = producer ? (uint64_t)f->head + f->level : f->head;
    *ring = (first + offset / b->page_bytes) % b->pages * b->page_bytes + offset % b->page_bytes;
    return fits(*ring, extent, capacity, &end) ? 0 : refuse(a, write, o->id, end, capacity);
}

/* Returns what ops.def demands of an operand of the op. */
static uint32_t demand_of(const struct access *a, const struct tw_operand *o) {
    return tw_op_operands(a->op->code)[o - a->op->operand].demand;
}

/* A State in SRAM is kept in the memory of its binding rows, so that each session has its own. */
static int state_region(const struct access *a, const struct tw_operand *o,
                        const struct tw_buffer *b, uint64_t at, struct region *r) {
    const struct tw_tensor *t = tw_buffer_state(a->s->config.program, b);
    struct tw_window w = tw_buffer_window(t, b);
    uint64_t page = at / b->page_bytes, end;
    uint8_t *base = tw_bind_tensor(&a->s->config, b->tensor, page);
    if (!base || !fits(at % b->page_bytes, r->extent, tw_window_bytes(&w), &end)) {
        return refuse(a, o->kind != 'R', o->id, at, tw_window_bytes(&w));
    }
    r->offset = w.first + at % b->page_bytes;
    r->at = base + r->offset;
    r->shadow = a->s->dram_shadow[b->tensor];
    if (r->shadow) {
        r->shadow += page * tw_shadow_words(t->bytes);
    }
    return 0;
}

static int buffer_region(const struct access *a, const struct tw_operand *o, uint64_t offset,
                         struct region *r) {
    const struct tw_buffer *b = &a->s->config.program->buffers[o->id];
    struct strict_buffer *state = &a->s->buffers[o->id];
    uint64_t at = offset, end;
    if (o->kind != 'D' && b->site != a->e->site) {
        return tw_fault_fail(a->fault, "Role", o->id, a->e->site, b->site);
    }
    if (o->kind == 'D' &&
        (b->kind != TW_BUF_RESIDENT || tw_buffer_state(a->s->config.program, b))) {
        return tw_fault_fail(a->fault, "Role", o->id, b->kind, TW_BUF_RESIDENT);
    }
    if (tw_buffer_param(a->s->config.program, b) &&
        !tw_demand_role(o->kind, demand_of(a, o), TW_ROLE_PARAM)) {
        return tw_fault_fail(a->fault, "Role", o->id, TW_ROLE_PARAM, TW_ROLE_ACTIVATION);
    }
    if (b->kind == TW_BUF_FIFO) {
        int rc = fifo_region(a, o, r->extent, offset, &at);
        if (rc != 0) {
            return rc;
        }
    } else if (!fits(offset, r->extent, b->pages * b->page_bytes, &end)) {
        return refuse(a, o->kind != 'R', o->id, end, b->pages * b->page_bytes);
    }
    if (b->kind == TW_BUF_SCRATCH) {
        if (state->owner != 0 && state->owner != a->e->engine + 1) {
            return tw_fault_fail(a->fault, "Role", o->id, a->e->engine, state->owner - 1u);
        }
        state->owner = (uint8_t)(a->e->engine + 1);
    }
    if (tw_buffer_state(a->s->config.program, b)) {
        return state_region(a, o, b, at, r);
    }
    r->offset = b->offset + at;
    r->memory = strict_class(b);
    TW_ASSERT(tw_range_ok(r->offset, tw_extent_span(r->extent), a->s->sram_bytes[r->memory]));
    r->at = a->s->sram[r->memory] + r->offset;
    r->shadow = a->s->sram_shadow[r->memory];
    r->in_sram = true;
    return 0;
}

static bool is_cache_write(const struct tw_op *op) {
    return op->code == TW_OP_KEY_WRITE || op->code == TW_OP_VALUE_WRITE;
}

/* Moves a region into the page that its element names; an op without rows uses no page. A cache
 * write finds its pages itself (check_cache). */
static int page_region(const struct access *a, const struct tw_operand *o, uint64_t *offset,
                       struct region *r) {
    const struct tw_tensor *t = &a->s->config.program->tensors[o->id];
    uint64_t element = tw_affine_value(&o->element, a->e->vars), end,
             page_bytes = tw_tensor_page_bytes(t);
    const uint8_t *numbers = a->s->inputs[o->table];
    uint32_t page = 0;
    if (is_cache_write(a->op) || a->idle) {
        r->pages = numbers ? (const int32_t *)(const void *)numbers + element : NULL;
        return 0;
    }
    int rc = tw_pages_look_up(a->s->config.program, a->s->inputs, o->id, o->table, element, &page,
                              a->fault);
    if (rc != 0) {
        return rc;
    }
    if (!fits(*offset, r->extent, page_bytes, &end)) {
        return refuse(a, o->kind == 'U', o->id, end, page_bytes);
    }
    *offset += page * page_bytes;
    return 0;
}

static int tensor_region(const struct access *a, const struct tw_operand *o, uint64_t offset,
                         struct region *r) {
    const struct tw_tensor *t = &a->s->config.program->tensors[o->id];
    uint64_t instance = tw_affine_value(&o->instance, a->e->vars), end;
    bool write = o->kind == 'U';
    uint32_t demand = demand_of(a, o);
    if (!tw_demand_role(o->kind, demand, t->role)) {
        return tw_fault_fail(a->fault, "Role", o->id, t->role,
                             demand == TW_DEMAND_IDS ? TW_ROLE_INPUT : TW_ROLE_STATE);
    }
    uint8_t *base = tw_bind_tensor(&a->s->config, o->id, instance);
    if (!base) {
        return refuse(a, write, o->id, instance, t->bind_count);
    }
    int rc = o->paged ? page_region(a, o, &offset, r) : 0;
    if (rc != 0) {
        return rc;
    }
    if (!fits(offset, r->extent, t->bytes, &end)) {
        return refuse(a, write, o->id, end, t->bytes);
    }
    r->at = tw_bind_input(&a->s->config, a->s->inputs, o->id, base + offset);
    r->offset = offset;
    r->shadow = a->s->dram_shadow[o->id];
    if (r->shadow) {
        r->shadow += instance * tw_shadow_words(t->bytes);
    }
    return 0;
}

static int resolve(const struct access *a, uint32_t n, uint32_t rows, struct region *r) {
    const struct tw_program *p = a->s->config.program;
    const struct tw_operand *o = tw_op_region(a->op, n);
    const struct tw_tensor *t = tw_region_is_tensor(o->kind) ? &p->tensors[o->id] : NULL;
    unsigned x_dtype =
        a->op->code == TW_OP_MATMUL ? p->buffers[a->op->operand[TW_MATMUL_x].id].dtype : 0;
    memset(r, 0, sizeof *r);
    r->kind = o->kind;
    r->id = o->id;
    r->extent = tw_op_extent(a->op, n, rows, x_dtype, t);
    uint64_t offset = tw_affine_value(&o->offset, a->e->vars);
    return t ? tensor_region(a, o, offset, r) : buffer_region(a, o, offset, r);
}

static int check_defined(const struct access *a, const struct region *r) {
    for (uint64_t row = 0; r->shadow && row < r->extent.rows; row++) {
        uint64_t at = r->offset + row * r->extent.stride;
        if (!tw_shadow_defined(r->shadow, at, r->extent.row_bytes)) {
            return tw_fault_fail(a->fault, "Undefined", r->id, row, r->extent.rows);
        }
    }
    return 0;
}

/* Marks the FIFO pages that a write touches: they may now be pushed. */
static void mark_pages(struct tw_strict *s, const struct region *r) {
    const struct tw_buffer *b = &s->config.program->buffers[r->id];
    uint64_t span = tw_extent_span(r->extent), from = (r->offset - b->offset) / b->page_bytes;
    uint64_t to = (r->offset - b->offset + (span ? span - 1 : 0)) / b->page_bytes;
    TW_ASSERT(r->offset >= b->offset && from <= to && to < b->pages);
    TW_ASSERT(s->buffers[r->id].first_flag + to < s->n_page_flags);
    for (uint64_t page = from; page <= to; page++) {
        s->page_written[s->buffers[r->id].first_flag + page] = 1;
    }
}

static void mark_written(struct tw_strict *s, const struct region *r) {
    for (uint64_t row = 0; r->shadow && row < r->extent.rows; row++) {
        tw_shadow_mark(r->shadow, r->offset + row * r->extent.stride, r->extent.row_bytes, true);
    }
    if (r->kind != 'U' && s->config.program->buffers[r->id].kind == TW_BUF_FIFO) {
        mark_pages(s, r);
    }
}

static int check_ids(const struct access *a, const struct tw_kargs *k) {
    TW_ASSERT(k->tensor && (k->rows == 0 || k->p[1]));
    const uint8_t *ids = k->p[TW_GATHER_REGION_ids];
    for (uint32_t r = 0; r < k->rows; r++) {
        int32_t id;
        memcpy(&id, ids + (size_t)r * 4, sizeof id);
        if (id < 0 || (uint32_t)id >= k->tensor->rows) {
            return tw_fault_fail(a->fault, "IdOutOfRange", a->op->operand[TW_GATHER_ids].id,
                                 (uint64_t)(int64_t)id, k->tensor->rows);
        }
    }
    return 0;
}

/* VALUE_WRITE has the operands of KEY_WRITE. */
static int check_cache(const struct access *a, const struct tw_kargs *k) {
    const struct tw_tensor *t = k->tensor;
    TW_ASSERT(t);
    uint64_t heads = t->head_dim ? t->cols / t->head_dim : 0;
    const struct tw_args_key_write v = tw_args_key_write(k);
    uint64_t last = (uint64_t)v.pos + v.rows, head_end = (uint64_t)v.first + v.heads;
    const struct tw_operand *o = &a->op->operand[TW_KEY_WRITE_cache];
    uint32_t cache = o->id;
    if (v.head_dim != t->head_dim || head_end > heads) {
        return refuse(a, true, cache, head_end, heads);
    }
    if (!o->paged) {
        return last <= t->rows ? 0 : refuse(a, true, cache, last, t->rows);
    }
    uint64_t element = tw_affine_value(&o->element, a->e->vars);
    for (uint64_t i = v.pos / TW_KV_BLOCK; i <= (last - 1) / TW_KV_BLOCK; i++) {
        uint32_t page;
        int rc = tw_pages_look_up(a->s->config.program, a->s->inputs, cache, o->table, element + i,
                                  &page, a->fault);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static void mark_cache(const struct region *r, const struct tw_kargs *k) {
    const struct tw_args_key_write v = tw_args_key_write(k);
    uint64_t head_bytes = tw_cache_head_bytes(k->tensor),
             page_bytes = tw_tensor_page_bytes(k->tensor),
             bytes = tw_dtype_block_bytes(k->tensor->dtype);
    for (uint32_t row = 0; r->shadow && row < v.rows; row++) {
        uint32_t position = v.pos + row, block = position / TW_KV_BLOCK, next;
        uint64_t at = (r->pages ? (uint32_t)r->pages[block] : block) * page_bytes +
                      tw_cache_element(k->tensor, position % TW_KV_BLOCK, &next) * bytes;
        for (uint32_t head = v.first; head < v.first + v.heads; head++) {
            for (uint32_t d = 0; d < k->tensor->head_dim; d++) {
                tw_shadow_mark(r->shadow, at + head * head_bytes + d * next * bytes, bytes, true);
            }
        }
    }
}

/* ---- other sites ---- */

static uint64_t *in_flight(const struct access *a, const struct region *r) {
    return a->s->in_flight[r->memory];
}

/* Nobody may use bytes that have been sent and have not arrived. */
static int check_arrived(const struct access *a, const struct region *r) {
    for (uint64_t row = 0; row < r->extent.rows; row++) {
        uint64_t at = r->offset + row * r->extent.stride;
        if (tw_shadow_any(in_flight(a, r), at, r->extent.row_bytes)) {
            return tw_fault_fail(a->fault, "InFlight", r->id, row, r->extent.rows);
        }
    }
    return 0;
}

static void mark_in_flight(struct tw_strict *s, const struct strict_sent *x, bool sent) {
    for (uint64_t row = 0; row < x->extent.rows; row++) {
        tw_shadow_mark(s->in_flight[x->memory], x->offset + row * x->extent.stride,
                       x->extent.row_bytes, sent);
    }
}

static void arrive_first(struct tw_strict *s, struct strict_outbox *out) {
    mark_in_flight(s, &out->sent[0], false);
    out->n--;
    memmove(&out->sent[0], &out->sent[1], out->n * sizeof out->sent[0]);
    for (uint32_t i = 0; i < out->n; i++) { /* what it shared bytes with is still on its way */
        mark_in_flight(s, &out->sent[i], true);
    }
}

void tw_strict_arrive(struct tw_strict *s, const struct strict_engine *e) {
    struct strict_outbox *out = &s->outboxes[e->site];
    if (e->engine != TW_ENGINE_STORE) {
        return;
    }
    for (uint32_t i = 0; i < out->n; i++) {
        mark_in_flight(s, &out->sent[i], false);
    }
    memset(out, 0, sizeof *out); /* the explorer compares states by their bytes */
}

static bool shares_bytes(const struct strict_sent *x, const struct region *r) {
    return x->memory == r->memory && x->offset < r->offset + tw_extent_span(r->extent) &&
           r->offset < x->offset + tw_extent_span(x->extent);
}

/* What one engine sends to one site arrives in order, so it may send there again. */
static int check_sendable(const struct access *a, const struct region *r) {
    const struct strict_outbox *out = &a->s->outboxes[a->e->site];
    for (uint32_t i = 0; i < out->n; i++) {
        if (shares_bytes(&out->sent[i], r)) {
            return 0;
        }
    }
    return check_arrived(a, r);
}

/* Copies the rows to a region of any site. */
static int deliver(const struct access *a, struct tw_kargs *k, const struct region *r) {
    struct strict_outbox *out = &a->s->outboxes[a->e->site];
    struct strict_sent sent;
    memset(&sent, 0, sizeof sent);
    sent.memory = r->memory;
    sent.offset = r->offset;
    sent.extent = r->extent;
    int rc = check_sendable(a, r);
    if (rc != 0) {
        return rc;
    }
    k->p[TW_SEND_REGION_destination] = r->at;
    a->s->config.kernels->fn[a->op->code](k);
    mark_written(a->s, r);
    if (r->memory / TW_MEM_CLASSES == a->e->site) { /* does not leave the site */
        return 0;
    }
    if (out->n == STRICT_IN_FLIGHT) {
        arrive_first(a->s, out);
    }
    out->sent[out->n++] = sent;
    mark_in_flight(a->s, &sent, true);
    return 0;
}

/* A member of the set has been resolved; all others have the same offset and size. */
static int multicast(const struct access *a, struct tw_kargs *k, const struct region *named) {
    const struct tw_program *p = a->s->config.program;
    const struct tw_buffer *b = &p->buffers[named->id];
    uint32_t group = a->op->operand[TW_MCAST_group].id;
    int rc = 0;
    if (b->sibling_base == TW_NONE) {
        return tw_fault_fail(a->fault, "Role", named->id, b->kind, TW_BUF_RESIDENT);
    }
    for (uint32_t site = 0; site < p->n_sites && rc == 0; site++) {
        if (tw_group_has(p, group, site)) {
            struct region r = *named;
            r.id = tw_buffer_sibling(p, b, site);
            if (r.id == TW_NONE) {
                return tw_fault_fail(a->fault, "Role", named->id, site, b->group);
            }
            r.memory = strict_class(&p->buffers[r.id]);
            r.at = a->s->sram[r.memory] + named->offset;
            r.shadow = a->s->sram_shadow[r.memory];
            rc = deliver(a, k, &r);
        }
    }
    return rc;
}

static int check_values(const struct access *a, const struct tw_kargs *k) {
    if (a->op->code == TW_OP_GATHER) {
        return check_ids(a, k);
    }
    return is_cache_write(a->op) ? check_cache(a, k) : 0;
}

static void finish(const struct access *a, const struct tw_kargs *k, const struct region *regions,
                   uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (is_cache_write(a->op) && regions[i].kind == 'U') {
            mark_cache(&regions[i], k);
        } else if (tw_region_writes(regions[i].kind)) {
            mark_written(a->s, &regions[i]);
        }
    }
}

static void bind_values(const struct access *a, struct tw_kargs *k) {
    const struct tw_operand *rows = tw_op_rows(a->op), *pos = tw_op_position(a->op);
    tw_bind_constants(a->s->config.program, a->op, k);
    if (rows) {
        k->rows = tw_bind_count(rows, a->s->trips);
        k->pos = pos ? tw_bind_count(pos, a->s->trips) : 0;
    }
    for (uint32_t n = 0; n < a->op->n_operands; n++) {
        if (a->op->operand[n].kind == 'A') {
            k->block = (uint32_t)tw_affine_value(&a->op->operand[n].offset, a->e->vars);
        }
    }
}

/* `need` of the fault is the iteration of the outermost loop: the layer, in a loop over layers. */
static int check_numbers(const struct access *a, const struct region *regions, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint64_t row;
        if (tw_bad_row(a->s->config.program, a->op, i, regions[i].extent, regions[i].at, &row)) {
            uint32_t turn = a->e->depth ? a->e->vars[a->e->loop[0].var] : 0;
            return tw_fault_fail(a->fault, "NotFinite", regions[i].id, row, turn);
        }
    }
    return 0;
}

/* Calls the op's kernel, a large MATMUL in parts. Fault: Cancelled. */
static int call(const struct access *a, const struct tw_kargs *k) {
    const struct tw_machine_config *config = &a->s->config;
    tw_kernel *fn = config->kernels->fn[a->op->code];
    TW_ASSERT(fn);
    if (a->op->code != TW_OP_MATMUL) {
        fn(k);
        return 0;
    }
    struct tw_kargs part;
    uint32_t n = tw_part_panels(k), panels = tw_args_matmul(k).panels;
    for (uint32_t first = 0; first < panels; first += n) {
        if (first && tw_cancelled(config->cancel)) {
            return tw_fault_cancelled(a->fault);
        }
        tw_part_of(k, first, n, &part);
        fn(&part);
    }
    return 0;
}

int tw_strict_data(struct tw_strict *s, const struct strict_engine *e, const struct tw_op *op,
                   struct tw_fault *fault) {
    struct access a = {s, e, op, fault, false};
    struct region regions[TW_KARGS_REGIONS];
    struct tw_kargs k;
    uint32_t n = 0;
    int rc = 0;
    bind_values(&a, &k);
    bool idle = tw_op_rows(op) && k.rows == 0;
    a.idle = idle;
    TW_ASSERT((int)TW_SEND_REGION_destination == (int)TW_MCAST_REGION_destination);
    for (; tw_op_region(op, n) && rc == 0; n++) {
        TW_ASSERT(n < TW_KARGS_REGIONS);
        rc = resolve(&a, n, k.rows, &regions[n]);
        if (rc == 0 && !idle && tw_op_reads(op, tw_op_region(op, n))) {
            rc = check_defined(&a, &regions[n]);
        }
        if (rc == 0 && !idle && regions[n].in_sram && regions[n].kind != 'D') {
            rc = check_arrived(&a, &regions[n]);
        }
        k.p[n] = rc == 0 ? regions[n].at : NULL;
        if (rc == 0 && regions[n].pages) {
            k.p[TW_PAGES_ARG] = (void *)(uintptr_t)regions[n].pages;
        }
    }
    if (rc == 0 && !idle) {
        rc = check_values(&a, &k);
    }
    if (rc != 0) {
        return rc;
    }
    if (!idle && op->code == TW_OP_MCAST) {
        TW_ASSERT(n == 2);
        return multicast(&a, &k, &regions[TW_MCAST_REGION_destination]);
    }
    if (!idle && op->code == TW_OP_SEND) {
        TW_ASSERT(n == 2);
        return deliver(&a, &k, &regions[TW_SEND_REGION_destination]);
    }
    if (!idle) {
        rc = call(&a, &k);
    }
    if (rc != 0) {
        return rc;
    }
    for (uint32_t i = 0; i < n && idle; i++) {
        regions[i].extent.rows = 0; /* nothing is defined, but a page of no rows may be pushed */
    }
    finish(&a, &k, regions, n);
    return s->check_numbers && !idle ? check_numbers(&a, regions, n) : 0;
}
