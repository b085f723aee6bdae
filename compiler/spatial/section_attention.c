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

/* The position of the first row, as the state counts them. */
static struct tw_count state_positions(const struct site_call *x, const struct tw_gvalue *state) {
    uint32_t max = x->b->config->window_ctx - 1;
    return is_windowed(x, state)
               ? tw_count_of(tw_builder_trip(x->u, "pos.window", "pos.window", 1, max), max)
               : positions(x);
}

/* Returns the table of the state's pages; adds the Input if the section has none yet. */
static uint32_t page_table(const struct site_call *x, const struct tw_gvalue *state) {
    const struct tw_section_config *c = x->b->config;
    bool windowed = is_windowed(x, state);
    const char *name = windowed ? "pages.window" : "pages";
    uint32_t table = tw_builder_tensor(x->u, name),
             slots = (windowed ? c->window_positions : c->n_positions) / TW_KV_BLOCK;
    if (table == TW_NONE) {
        struct tw_tensor t = {.rows = 1,
                              .cols = slots,
                              .dtype = TW_DT_I32,
                              .role = TW_ROLE_INPUT,
                              .bind_count = 1,
                              .bytes = (uint64_t)slots * 4};
        table = tw_builder_add_tensor(x->u, name, &t, TW_NONE);
    }
    return table;
}

/* Returns a place in the page of a block of positions of a state: the i-th page, or the one that
 * the table names. */
static struct tw_tensor_at in_block(const struct site_call *x, uint32_t input, uint64_t offset,
                                    uint64_t page_bytes, bool inner) {
    struct tw_tensor_at place = tw_in_tensor(tw_section_tensor(x->b, x->op->in[input]),
                                             instance(value(x, input)), at(offset));
    if (x->b->config->kv_pages) {
        return tw_in_page(place, page_table(x, value(x, input)), inner ? at_inner(0, 1) : at(0));
    }
    place.offset = inner ? at_inner(offset, page_bytes) : at(offset);
    return place;
}

/* Writes rows to the cache, then raises a flag on every site whose attention reads these heads. */
void tw_section_kv_append(struct site_call *x) {
    const struct tw_storage *in = storage(x, x->c->in[0]);
    uint32_t fifo = buffer(x, x->c->in[0]), hd = x->op->head_dim;
    const struct tw_gvalue *state = value(x, 1);
    uint32_t stage = tw_section_stage(x->b, TW_STAGE_STORE, x->site, STORE, x->op->name,
                                      x->c->first_col, x->c->cols, 0);
    tw_builder_push(x->u, x->site, MATH, x->math, fifo, 1);
    tw_builder_wait(x->u, x->site, STORE, stage, fifo, 1);
    struct tw_count pos = state_positions(x, state);
    struct tw_tensor_at cache = in_block(x, 1, 0, 0, false);
    uint32_t first = x->c->first_col / hd, heads = x->c->cols / hd;
    if (state->packing == TW_PACK_KEYS) {
        tw_builder_key_write(x->u, x->site, STORE, stage, columns(x, x->c->in[0]), in->stride,
                             cache, first, heads, hd, pos, x->rows);
    } else {
        tw_builder_value_write(x->u, x->site, STORE, stage, columns(x, x->c->in[0]), in->stride,
                               cache, first, heads, hd, pos, x->rows);
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

/* Stores the query heads [first, first + n) of this call that share key head `kv`. */
static void group_heads(const struct site_call *x, uint32_t kv, uint32_t *first, uint32_t *n) {
    uint32_t group = x->op->n_heads / x->op->n_kv_heads, hd = x->op->head_dim;
    uint32_t from = x->c->first_col / hd, to = from + x->c->cols / hd;
    *first = kv * group > from ? kv * group : from;
    uint32_t end = (kv + 1) * group < to ? (kv + 1) * group : to;
    *n = end - *first;
}

static void attention_load(const struct site_call *x, uint32_t first_kv, uint32_t last_kv,
                           struct tw_count blocks) {
    uint32_t fifo = buffer(x, x->b->low->streams[x->site].cache),
             row = (uint32_t)tw_row_bytes(value(x, 1)->dtype, x->op->head_dim),
             bytes = TW_KV_BLOCK * row;
    uint64_t page_bytes = (uint64_t)x->op->n_kv_heads * bytes; /* a block of all heads */
    uint64_t page = storage(x, x->b->low->streams[x->site].cache)->page_bytes;
    uint32_t writes = x->b->cache_writes[x->c->step * x->b->low->n_sites + x->site];
    tw_builder_sem_wait(x->u, x->site, LOAD, x->load, x->b->cache_sem[x->c->step],
                        tw_builder_threshold(x->u, writes));
    tw_builder_loop(x->u, x->site, LOAD, x->load, TW_VAR_INNER, blocks, x->b->step_loop);
    for (uint32_t kv = first_kv; kv <= last_kv; kv++) {
        tw_builder_reserve(x->u, x->site, LOAD, x->load, fifo, 2);
        for (uint32_t k = 0; k < 2; k++) { /* keys, then values */
            tw_builder_read(x->u, x->site, LOAD, x->load,
                            in_block(x, 1 + k, (uint64_t)kv * bytes, page_bytes, true),
                            tw_in_buffer(fifo, at(k * page)), 1, bytes, bytes, bytes);
        }
        tw_builder_push(x->u, x->site, LOAD, x->load, fifo, 2);
    }
    emit_end(x, LOAD, x->load);
}

static void attention_math(const struct site_call *x, uint32_t first_kv, uint32_t last_kv,
                           struct tw_count blocks) {
    const struct tw_storage *q = storage(x, x->c->in[0]), *out = storage(x, x->c->out);
    uint32_t fifo = buffer(x, x->b->low->streams[x->site].cache), state = buffer(x, x->c->scratch),
             hd = x->op->head_dim;
    uint64_t page = storage(x, x->b->low->streams[x->site].cache)->page_bytes;
    struct tw_count pos = state_positions(x, value(x, 1));
    uint32_t heads = x->c->cols / hd, first_head = x->c->first_col / hd,
             segments = tw_low_segments(x->b->graph);
    tw_builder_attn_init(x->u, x->site, MATH, x->math, tw_in_buffer(state, at(0)), segments * heads,
                         hd, x->rows);
    tw_builder_loop(x->u, x->site, MATH, x->math, TW_VAR_INNER, blocks, x->b->step_loop);
    for (uint32_t kv = first_kv; kv <= last_kv; kv++) {
        uint32_t first, n;
        group_heads(x, kv, &first, &n);
        tw_builder_wait(x->u, x->site, MATH, x->math, fifo, 2);
        struct tw_buffer_at from = tw_in_buffer(buffer(x, x->c->in[0]),
                                                at(tw_storage_col(q, first * hd))),
                            keys = tw_in_buffer(fifo, at(0)), values = tw_in_buffer(fifo, at(page)),
                            to = tw_in_buffer(state, at(0));
        if (x->op->window || x->op->cap != 0.0f) {
            tw_builder_attn_window(x->u, x->site, MATH, x->math, from, q->stride, keys, values,
                                   value(x, 1)->dtype, to, n, first - first_head, heads, segments,
                                   0, hd, x->op->scale, at_inner(0, 1), pos, x->rows,
                                   x->op->window ? x->op->window : INT32_MAX, x->op->cap);
        } else {
            tw_builder_attn_step(x->u, x->site, MATH, x->math, from, q->stride, keys, values,
                                 value(x, 1)->dtype, to, n, first - first_head, heads, segments, 0,
                                 hd, x->op->scale, at_inner(0, 1), pos, x->rows);
        }
        tw_builder_pop(x->u, x->site, MATH, x->math, fifo, 2);
    }
    emit_end(x, MATH, x->math);
    reserve_output(x);
    tw_builder_attn_done(x->u, x->site, MATH, x->math, tw_in_buffer(state, at(0)), segments,
                         columns(x, x->c->out), out->stride, heads, hd, x->rows);
}

void tw_section_attention(struct site_call *x) {
    uint32_t group = x->op->n_heads / x->op->n_kv_heads, hd = x->op->head_dim;
    uint32_t first_kv = x->c->first_col / hd / group,
             last_kv = ((x->c->first_col + x->c->cols) / hd - 1) / group;
    bool windowed = is_windowed(x, value(x, 1));
    uint32_t n_ctx = windowed ? x->b->config->window_ctx : x->b->config->n_ctx,
             max_blocks = (n_ctx + TW_KV_BLOCK - 1) / TW_KV_BLOCK;
    struct tw_count blocks =
        tw_count_of(tw_builder_trip(x->u, windowed ? "blocks.window" : "blocks",
                                    windowed ? "end.window" : "end", TW_KV_BLOCK, max_blocks),
                    max_blocks);
    add_load_stage(x);
    attention_load(x, first_kv, last_kv, blocks);
    attention_math(x, first_kv, last_kv, blocks);
}
