/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine code of attention and of the caches that it reads: STORE appends rows to them, LOAD
 * fetches them block by block, MATH attends to a block at a time. Caches are in pages of a table.
 */
#include "compiler/spatial/section_call.h"

/* Returns whether a state has the positions of a window only. */
static bool is_windowed(const struct site_call *x, const struct tw_gvalue *state) {
    return state->window && x->b->config->window_positions;
}

/* The position of a row, as the state counts them. */
static struct tw_count state_position(const struct site_call *x, const struct tw_gvalue *state,
                                      uint32_t row) {
    uint32_t max = x->b->config->window_ctx - 1;
    return is_windowed(x, state) ? row_count(x, "pos.window", "pos.window", row, 1, max)
                                 : position(x, row);
}

/* The blocks of positions that a row sees. */
static struct tw_count blocks_of(const struct site_call *x, uint32_t row) {
    bool windowed = is_windowed(x, value(x, 1));
    uint32_t n_ctx = windowed ? x->b->config->window_ctx : x->b->config->n_ctx;
    return row_count(x, windowed ? "blocks.window" : "blocks", windowed ? "end.window" : "end", row,
                     TW_KV_BLOCK, (n_ctx + TW_KV_BLOCK - 1) / TW_KV_BLOCK);
}

/* The rows of a separate row that there are: one or none in a batch. */
static struct tw_count used_rows(const struct site_call *x, uint32_t row) {
    return x->b->config->batch ? row_count(x, "rows", "rows", row, 1, 1) : x->rows;
}

/* Returns the number of pages in a sequence's row of the table of the state's pages. */
static uint32_t slots_of(const struct site_call *x, const struct tw_gvalue *state) {
    const struct tw_section_config *c = x->b->config;
    return (is_windowed(x, state) ? c->window_positions : c->n_positions) / TW_KV_BLOCK;
}

/* Returns the table of the state's pages; adds the Input if the section has none yet. */
static uint32_t page_table(const struct site_call *x, const struct tw_gvalue *state) {
    const char *name = is_windowed(x, state) ? "pages.window" : "pages";
    uint32_t table = tw_builder_tensor(x->u, name), slots = slots_of(x, state),
             rows = separate_rows(x);
    if (table == TW_NONE) {
        struct tw_tensor t = {.rows = rows,
                              .cols = slots,
                              .dtype = TW_DT_I32,
                              .role = TW_ROLE_INPUT,
                              .bind_count = 1,
                              .bytes = (uint64_t)rows * slots * 4};
        table = tw_builder_add_tensor(x->u, name, &t, TW_NONE);
    }
    return table;
}

/* Returns a place in the page of a block of positions of a row's sequence: the i-th page, or the
 * one that the table names. */
static struct tw_tensor_at in_block(const struct site_call *x, uint32_t input, uint32_t row,
                                    uint64_t offset, uint64_t page_bytes, bool inner) {
    const struct tw_gvalue *state = value(x, input);
    struct tw_tensor_at place =
        tw_in_tensor(tw_section_tensor(x->b, x->op->in[input]), instance(state), at(offset));
    if (x->b->config->kv_pages) {
        uint64_t first = (uint64_t)row * slots_of(x, state);
        return tw_in_page(place, page_table(x, state), inner ? at_inner(first, 1) : at(first));
    }
    place.offset = inner ? at_inner(offset, page_bytes) : at(offset);
    return place;
}

static void append_row(const struct site_call *x, uint32_t stage, uint32_t row) {
    const struct tw_storage *in = storage(x, x->c->in[0]);
    const struct tw_gvalue *state = value(x, 1);
    uint32_t hd = x->op->head_dim, first = x->c->first_col / hd, heads = x->c->cols / hd;
    struct tw_buffer_at from = in_row(columns(x, x->c->in[0]), in->stride, row);
    struct tw_tensor_at cache = in_block(x, 1, row, 0, 0, false);
    struct tw_count pos = state_position(x, state, row), rows = used_rows(x, row);
    if (state->packing == TW_PACK_KEYS) {
        tw_builder_key_write(x->u, x->site, STORE, stage, from, in->stride, cache, first, heads, hd,
                             pos, rows);
    } else {
        tw_builder_value_write(x->u, x->site, STORE, stage, from, in->stride, cache, first, heads,
                               hd, pos, rows);
    }
}

/* Writes rows to the cache, then raises a flag on every site whose attention reads these heads: the
 * rows of a batch may be of one sequence, and see each other. */
void tw_section_kv_append(struct site_call *x) {
    uint32_t fifo = buffer(x, x->c->in[0]);
    uint32_t stage = tw_section_stage(x->b, TW_STAGE_STORE, x->site, STORE, x->op->name,
                                      x->c->first_col, x->c->cols, 0);
    tw_builder_push(x->u, x->site, MATH, x->math, fifo, 1);
    tw_builder_wait(x->u, x->site, STORE, stage, fifo, 1);
    for (uint32_t r = 0; r < separate_rows(x); r++) {
        append_row(x, stage, r);
    }
    tw_builder_pop(x->u, x->site, STORE, stage, fifo, 1);
    for (uint32_t i = 0; i < x->b->attention.n; i++) {
        const struct tw_call *reader = &x->b->low->calls.items[x->b->attention.items[i]];
        if (tw_section_reads_heads(x->b, reader, x->c)) {
            tw_builder_sem_inc(x->u, x->site, STORE, stage, x->b->cache_sem[reader->step],
                               reader->site, 1);
        }
    }
}

/* The key heads of an attention call. */
struct key_heads {
    uint32_t first, last;
};

static struct key_heads key_heads_of(const struct site_call *x) {
    uint32_t group = x->op->n_heads / x->op->n_kv_heads, hd = x->op->head_dim;
    return (struct key_heads){x->c->first_col / hd / group,
                              ((x->c->first_col + x->c->cols) / hd - 1) / group};
}

/* Stores the query heads [first, first + n) of this call that share key head `kv`. */
static void group_heads(const struct site_call *x, uint32_t kv, uint32_t *first, uint32_t *n) {
    uint32_t group = x->op->n_heads / x->op->n_kv_heads, hd = x->op->head_dim;
    uint32_t from = x->c->first_col / hd, to = from + x->c->cols / hd;
    *first = kv * group > from ? kv * group : from;
    uint32_t end = (kv + 1) * group < to ? (kv + 1) * group : to;
    *n = end - *first;
}

/* Loads the blocks that a row sees. */
static void load_row(const struct site_call *x, uint32_t row) {
    uint32_t fifo = buffer(x, x->b->low->streams[x->site].cache),
             bytes = TW_KV_BLOCK * (uint32_t)tw_row_bytes(value(x, 1)->dtype, x->op->head_dim);
    uint64_t page_bytes = (uint64_t)x->op->n_kv_heads * bytes; /* a block of all heads */
    uint64_t page = storage(x, x->b->low->streams[x->site].cache)->page_bytes;
    struct key_heads heads = key_heads_of(x);
    tw_builder_loop(x->u, x->site, LOAD, x->load, TW_VAR_INNER, blocks_of(x, row),
                    x->b->step_loop + row);
    for (uint32_t kv = heads.first; kv <= heads.last; kv++) {
        tw_builder_reserve(x->u, x->site, LOAD, x->load, fifo, 2);
        for (uint32_t k = 0; k < 2; k++) { /* keys, then values */
            tw_builder_read(x->u, x->site, LOAD, x->load,
                            in_block(x, 1 + k, row, (uint64_t)kv * bytes, page_bytes, true),
                            tw_in_buffer(fifo, at(k * page)), 1, bytes, bytes, bytes);
        }
        tw_builder_push(x->u, x->site, LOAD, x->load, fifo, 2);
    }
    emit_end(x, LOAD, x->load);
}

static uint32_t state_heads(const struct site_call *x) {
    return x->c->cols / x->op->head_dim;
}

/* Bytes of a row of the running state. */
static uint32_t state_bytes(const struct site_call *x) {
    return tw_low_segments(x->b->graph) * state_heads(x) * (x->op->head_dim + 2) * 4;
}

static struct tw_buffer_at state_of(const struct site_call *x, uint32_t row) {
    return in_row(tw_in_buffer(buffer(x, x->c->scratch), at(0)), state_bytes(x), row);
}

/* Attends to a block of keys and values, with the query heads that share key head `kv`. */
static void attend(const struct site_call *x, uint32_t row, uint32_t kv) {
    const struct tw_storage *q = storage(x, x->c->in[0]);
    uint32_t fifo = buffer(x, x->b->low->streams[x->site].cache), hd = x->op->head_dim,
             heads = state_heads(x), segments = tw_low_segments(x->b->graph), first, n;
    uint64_t page = storage(x, x->b->low->streams[x->site].cache)->page_bytes;
    struct tw_count pos = state_position(x, value(x, 1), row), rows = rows_of_one(x);
    group_heads(x, kv, &first, &n);
    struct tw_buffer_at from = in_row(
                            tw_in_buffer(buffer(x, x->c->in[0]), at(tw_storage_col(q, first * hd))),
                            q->stride, row),
                        keys = tw_in_buffer(fifo, at(0)), values = tw_in_buffer(fifo, at(page));
    first -= x->c->first_col / hd;
    if (x->op->window || x->op->cap != 0.0f) {
        tw_builder_attn_window(x->u, x->site, MATH, x->math, from, q->stride, keys, values,
                               value(x, 1)->dtype, state_of(x, row), n, first, heads, segments, 0,
                               hd, x->op->scale, at_inner(0, 1), pos, rows,
                               x->op->window ? x->op->window : INT32_MAX, x->op->cap);
    } else {
        tw_builder_attn_step(x->u, x->site, MATH, x->math, from, q->stride, keys, values,
                             value(x, 1)->dtype, state_of(x, row), n, first, heads, segments, 0, hd,
                             x->op->scale, at_inner(0, 1), pos, rows);
    }
}

static void attend_row(const struct site_call *x, uint32_t row) {
    uint32_t fifo = buffer(x, x->b->low->streams[x->site].cache);
    struct key_heads heads = key_heads_of(x);
    tw_builder_loop(x->u, x->site, MATH, x->math, TW_VAR_INNER, blocks_of(x, row),
                    x->b->step_loop + row);
    for (uint32_t kv = heads.first; kv <= heads.last; kv++) {
        tw_builder_wait(x->u, x->site, MATH, x->math, fifo, 2);
        attend(x, row, kv);
        tw_builder_pop(x->u, x->site, MATH, x->math, fifo, 2);
    }
    emit_end(x, MATH, x->math);
}

/* A row of a batch that is not there has seen no keys, so that its result is no number; it stays
 * 0. */
static void finish_rows(const struct site_call *x) {
    const struct tw_storage *q = storage(x, x->c->in[0]), *out = storage(x, x->c->out);
    if (x->b->config->batch) {
        tw_builder_scale(x->u, x->site, MATH, x->math, columns(x, x->c->in[0]), q->stride,
                         columns(x, x->c->out), out->stride, x->c->cols, 0.0f, x->rows);
    }
    for (uint32_t r = 0; r < separate_rows(x); r++) {
        tw_builder_attn_done(x->u, x->site, MATH, x->math, state_of(x, r),
                             tw_low_segments(x->b->graph),
                             in_row(columns(x, x->c->out), out->stride, r), out->stride,
                             state_heads(x), x->op->head_dim, used_rows(x, r));
    }
}

void tw_section_attention(struct site_call *x) {
    uint32_t writes = x->b->cache_writes[x->c->step * x->b->low->n_sites + x->site];
    add_load_stage(x);
    tw_builder_sem_wait(x->u, x->site, LOAD, x->load, x->b->cache_sem[x->c->step],
                        tw_builder_threshold(x->u, writes));
    tw_builder_attn_init(x->u, x->site, MATH, x->math, state_of(x, 0),
                         tw_low_segments(x->b->graph) * state_heads(x), x->op->head_dim, x->rows);
    for (uint32_t r = 0; r < separate_rows(x); r++) {
        load_row(x, r);
        attend_row(x, r);
    }
    reserve_output(x);
    finish_rows(x);
}
