/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine code of each kind of work. An operation with weights has a LOAD half that fills pages
 * and a MATH half that uses them; values for other sites or for DRAM leave through a FIFO to STORE.
 */
#include "compiler/low/pin_params.h"
#include "compiler/spatial/section_call.h"

static struct tw_count positions(const struct site_call *x) {
    uint32_t max = x->b->config->n_ctx - 1;
    return tw_count_of(tw_builder_trip(x->u, "pos", "pos", 1, max), max);
}

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

/* Reserves a page for a value that leaves through STORE before MATH writes it. In-place ops find it
 * reserved. */
static void reserve_output(const struct site_call *x) {
    if (x->c->out != TW_NONE && storage(x, x->c->out)->kind == TW_ST_OUT &&
        x->op->kind != TW_GOP_ROPE) {
        tw_builder_reserve(x->u, x->site, MATH, x->math, buffer(x, x->c->out), 1);
    }
}

/* ---- vectors and rows ---- */

/* The place of a vector that the op reads: pinned in SRAM, or in a page that LOAD fills. */
struct vector {
    uint32_t buffer;
    struct tw_affine at;
    bool loaded;
};

/* Emits the load of columns [first, first + cols) of a vector, unless it is pinned. */
static struct vector load_vector(struct site_call *x, uint32_t input, uint32_t first,
                                 uint32_t cols) {
    const struct tw_gvalue *v = value(x, input);
    if (v->resident) {
        struct tw_affine where = at((uint64_t)first * 4);
        if (v->instances > 1) {
            where = tw_affine_plus(where, TW_VAR_INSTANCE, tw_pinned_stride(v));
        }
        return (struct vector){tw_section_resident(x->b, x->op->in[input], x->site), where, false};
    }
    uint32_t stream = x->b->low->streams[x->site].vectors;
    add_load_stage(x);
    load_page(x, stream, input, at((uint64_t)first * 4), (uint64_t)cols * 4);
    tw_builder_wait(x->u, x->site, MATH, x->math, buffer(x, stream), 1);
    return (struct vector){buffer(x, stream), at(0), true};
}

static struct vector load_whole_vector(struct site_call *x, uint32_t input) {
    return load_vector(x, input, 0, value(x, input)->cols);
}

static struct tw_buffer_at in_vector(const struct vector *v) {
    return tw_in_buffer(v->buffer, v->at);
}

/* Frees the page again. */
static void release_vector(const struct site_call *x, const struct vector *v) {
    if (v->loaded) {
        tw_builder_pop(x->u, x->site, MATH, x->math, v->buffer, 1);
    }
}

static struct tw_affine column(const struct site_call *x, uint32_t id) {
    return at(tw_storage_col(storage(x, id), x->c->first_col));
}

static struct tw_buffer_at columns(const struct site_call *x, uint32_t id) {
    return tw_in_buffer(buffer(x, id), column(x, id));
}

/* ---- norms ---- */

/* The norms of the heads of a call, one after the other; `own`: each has its own weights. */
struct heads {
    uint32_t n;
    uint64_t bytes;
    bool own;
};

static struct heads heads_of(const struct site_call *x) {
    uint32_t dim = x->op->head_dim;
    return (struct heads){x->c->cols / dim, (uint64_t)dim * 4, value(x, 1)->cols > dim};
}

static struct tw_buffer_at each_head(struct tw_buffer_at first, uint64_t bytes) {
    first.offset = tw_affine_plus(first.offset, TW_VAR_INNER, bytes);
    return first;
}

static void emit_rms_norm_of_heads(struct site_call *x) {
    const struct tw_storage *in = storage(x, x->c->in[0]), *out = storage(x, x->c->out);
    struct heads h = heads_of(x);
    struct vector weights =
        h.own ? load_vector(x, 1, x->c->first_col, x->c->cols) : load_whole_vector(x, 1);
    emit_loop(x, MATH, x->math, h.n);
    tw_builder_rms_norm(x->u, x->site, MATH, x->math, each_head(columns(x, x->c->in[0]), h.bytes),
                        in->stride, each_head(in_vector(&weights), h.own ? h.bytes : 0),
                        each_head(columns(x, x->c->out), h.bytes), out->stride, x->op->head_dim,
                        x->op->eps, x->rows);
    emit_end(x, MATH, x->math);
    release_vector(x, &weights);
}

/* The call's columns of the norms of rows that are whole on its site. */
static void emit_norm_of_part(struct site_call *x) {
    const struct tw_storage *in = storage(x, x->c->in[0]), *out = storage(x, x->c->out);
    uint32_t sum = buffer(x, x->c->scratch), width = value(x, 0)->cols;
    struct vector weights = load_vector(x, 1, x->c->first_col, x->c->cols);
    tw_builder_squares(x->u, x->site, MATH, x->math, tw_in_buffer(buffer(x, x->c->in[0]), at(0)),
                       in->stride, tw_in_buffer(sum, at(0)), 4, width, x->rows);
    tw_builder_rms_scale(x->u, x->site, MATH, x->math, columns(x, x->c->in[0]), in->stride,
                         tw_in_buffer(sum, at(0)), 4, in_vector(&weights), columns(x, x->c->out),
                         out->stride, x->c->cols, width, x->op->eps, x->rows);
    release_vector(x, &weights);
}

static void emit_rms_norm(struct site_call *x) {
    const struct tw_storage *in = storage(x, x->c->in[0]), *out = storage(x, x->c->out);
    if (x->op->head_dim > 0) {
        emit_rms_norm_of_heads(x);
        return;
    }
    if (tw_low_norm_of_part(x->b->graph, x->op, x->c->cols)) {
        emit_norm_of_part(x);
        return;
    }
    struct vector weights = load_whole_vector(x, 1);
    tw_builder_rms_norm(x->u, x->site, MATH, x->math, tw_in_buffer(buffer(x, x->c->in[0]), at(0)),
                        in->stride, in_vector(&weights), tw_in_buffer(buffer(x, x->c->out), at(0)),
                        out->stride, x->c->cols, x->op->eps, x->rows);
    release_vector(x, &weights);
}

/* Weights and bias are two pages of one stream. */
static void emit_layer_norm(struct site_call *x) {
    const struct tw_storage *in = storage(x, x->c->in[0]), *out = storage(x, x->c->out);
    bool by_head = x->op->head_dim > 0;
    struct heads h = by_head ? heads_of(x) : (struct heads){1, 0, false};
    uint32_t stream = x->b->low->streams[x->site].vectors, fifo = buffer(x, stream),
             first = h.own ? x->c->first_col : 0, cols = h.own ? x->c->cols : value(x, 1)->cols;
    uint64_t page = storage(x, stream)->page_bytes, step = h.own ? h.bytes : 0;
    add_load_stage(x);
    for (uint32_t input = 1; input < 3; input++) {
        load_page(x, stream, input, at((uint64_t)first * 4), (uint64_t)cols * 4);
    }
    tw_builder_wait(x->u, x->site, MATH, x->math, fifo, 2);
    if (by_head) {
        emit_loop(x, MATH, x->math, h.n);
    }
    tw_builder_layer_norm(x->u, x->site, MATH, x->math, each_head(columns(x, x->c->in[0]), h.bytes),
                          in->stride, each_head(tw_in_buffer(fifo, at(0)), step),
                          each_head(tw_in_buffer(fifo, at(page)), step),
                          each_head(columns(x, x->c->out), h.bytes), out->stride,
                          by_head ? x->op->head_dim : x->c->cols, x->op->eps, x->rows);
    if (by_head) {
        emit_end(x, MATH, x->math);
    }
    tw_builder_pop(x->u, x->site, MATH, x->math, fifo, 2);
}

static void emit_rope_table(struct site_call *x) {
    struct vector frequencies = load_whole_vector(x, 1);
    tw_builder_rope_table(x->u, x->site, MATH, x->math,
                          tw_in_buffer(frequencies.buffer, frequencies.at),
                          tw_in_buffer(buffer(x, x->c->out), at(0)), storage(x, x->c->out)->stride,
                          x->c->cols / 2, positions(x), x->rows);
    release_vector(x, &frequencies);
}

static void emit_gather(struct site_call *x) {
    uint32_t rows = x->b->low->streams[x->site].rows, fifo = buffer(x, rows);
    const struct tw_storage *out = storage(x, x->c->out);
    add_load_stage(x);
    tw_builder_reserve(x->u, x->site, LOAD, x->load, fifo, 1);
    uint32_t ids = tw_section_tensor(x->b, x->op->in[1]),
             table = tw_section_tensor(x->b, x->op->in[0]);
    tw_builder_gather(x->u, x->site, LOAD, x->load, tw_in_tensor(table, at(0), at(0)),
                      tw_in_tensor(ids, at(0), at(0)), tw_in_buffer(fifo, at(0)), out->stride,
                      x->c->cols, x->rows);
    tw_builder_push(x->u, x->site, LOAD, x->load, fifo, 1);
    tw_builder_wait(x->u, x->site, MATH, x->math, fifo, 1);
    tw_builder_copy(x->u, x->site, MATH, x->math, tw_in_buffer(fifo, at(0)), out->stride,
                    tw_in_buffer(buffer(x, x->c->out), at(0)), out->stride, x->c->cols * 4,
                    x->rows);
    tw_builder_pop(x->u, x->site, MATH, x->math, fifo, 1);
}

/* ---- elementwise ---- */

static void emit_binary(struct site_call *x) {
    const struct tw_call *c = x->c;
    struct tw_buffer_at a = columns(x, c->in[0]), b = columns(x, c->in[1]),
                        out = columns(x, c->out);
    uint32_t a_stride = storage(x, c->in[0])->stride, b_stride = storage(x, c->in[1])->stride,
             out_stride = storage(x, c->out)->stride;
    if (x->op->kind == TW_GOP_ADD) {
        tw_builder_add(x->u, x->site, MATH, x->math, a, a_stride, b, b_stride, out, out_stride,
                       c->cols, x->rows);
    } else if (x->op->kind == TW_GOP_GELU_MUL) {
        tw_builder_gelu_mul(x->u, x->site, MATH, x->math, a, a_stride, b, b_stride, out, out_stride,
                            c->cols, x->rows);
    } else {
        tw_builder_silu_mul(x->u, x->site, MATH, x->math, a, a_stride, b, b_stride, out, out_stride,
                            c->cols, x->rows);
    }
}

static void emit_unary(struct site_call *x) {
    const struct tw_call *c = x->c;
    uint32_t from = storage(x, c->in[0])->stride, to = storage(x, c->out)->stride;
    if (x->op->kind == TW_GOP_GELU) {
        tw_builder_gelu(x->u, x->site, MATH, x->math, columns(x, c->in[0]), from,
                        columns(x, c->out), to, c->cols, x->rows);
    } else {
        tw_builder_scale(x->u, x->site, MATH, x->math, columns(x, c->in[0]), from,
                         columns(x, c->out), to, c->cols, x->op->scale, x->rows);
    }
}

/* A row that is added to all: its stride is 0. */
static void emit_bias(struct site_call *x) {
    const struct tw_call *c = x->c;
    struct vector bias = load_vector(x, 1, c->first_col, c->cols);
    tw_builder_add(x->u, x->site, MATH, x->math, columns(x, c->in[0]), storage(x, c->in[0])->stride,
                   in_vector(&bias), 0, columns(x, c->out), storage(x, c->out)->stride, c->cols,
                   x->rows);
    release_vector(x, &bias);
}

static void emit_pos_scale(struct site_call *x) {
    const struct tw_call *c = x->c;
    struct vector factors = load_whole_vector(x, 1);
    tw_builder_pos_scale(x->u, x->site, MATH, x->math, columns(x, c->in[0]),
                         storage(x, c->in[0])->stride, in_vector(&factors), columns(x, c->out),
                         storage(x, c->out)->stride, c->cols, value(x, 1)->cols, x->op->period,
                         positions(x), x->rows);
    release_vector(x, &factors);
}

static void emit_quant(struct site_call *x) {
    const struct tw_call *c = x->c;
    uint32_t from = storage(x, c->in[0])->stride, to = storage(x, c->out)->stride;
    if (storage(x, c->out)->dtype == TW_DT_Q8K) {
        tw_builder_quant_k(x->u, x->site, MATH, x->math, columns(x, c->in[0]), from,
                           columns(x, c->out), to, c->cols, x->rows);
    } else {
        tw_builder_quant(x->u, x->site, MATH, x->math, columns(x, c->in[0]), from,
                         columns(x, c->out), to, c->cols, x->rows);
    }
}

static void emit_last_row(struct site_call *x) {
    struct tw_count rows = count_rows(x->b, 1);
    if (value_of(x, x->op->out)->token_rows) { /* all rows (tw_graph_all_rows) */
        tw_builder_copy(x->u, x->site, MATH, x->math, tw_in_buffer(buffer(x, x->c->in[0]), at(0)),
                        storage(x, x->c->in[0])->stride, tw_in_buffer(buffer(x, x->c->out), at(0)),
                        storage(x, x->c->out)->stride, x->c->cols * 4, rows);
        return;
    }
    tw_builder_last_row(x->u, x->site, MATH, x->math, tw_in_buffer(buffer(x, x->c->in[0]), at(0)),
                        storage(x, x->c->in[0])->stride, tw_in_buffer(buffer(x, x->c->out), at(0)),
                        x->c->cols * 4, rows);
}

static void emit_rope(struct site_call *x) {
    const struct tw_storage *s = storage(x, x->c->out), *cs = storage(x, x->c->in[1]);
    tw_builder_rope(x->u, x->site, MATH, x->math, columns(x, x->c->out), s->stride,
                    tw_in_buffer(buffer(x, x->c->in[1]), at(0)), cs->stride,
                    x->c->cols / x->op->head_dim, x->op->head_dim, x->op->rope_dims,
                    (uint32_t)x->op->pairing, x->rows);
}

/* ---- attention ---- */

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
static void emit_kv_append(struct site_call *x) {
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

static void emit_attention(struct site_call *x) {
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

/* ---- the kinds of work ---- */

static void emit_call(struct tw_section_builder *b, const struct tw_call *c) {
    const struct tw_gop *op = &b->graph->ops.items[b->low->region->steps.items[c->step].gop];
    struct site_call x = {.b = b, .u = b->u, .c = c, .op = op, .site = c->site, .load = TW_NONE};
    const struct tw_gvalue *shape =
        &b->graph->values.items[op->out == TW_NONE ? op->in[0] : op->out];
    x.rows = count_rows(b, (int)shape->token_rows);
    uint32_t depth = op->kind == TW_GOP_MATMUL ? b->graph->values.items[op->in[1]].cols : 0;
    x.math = tw_section_stage(b, TW_STAGE_COMPUTE, c->site, MATH, op->name, c->first_col, c->cols,
                              depth);
    if (op->kind != TW_GOP_ATTENTION) { /* attention reserves after its loop */
        reserve_output(&x);
    }
    switch (op->kind) {
    case TW_GOP_GATHER:
        emit_gather(&x);
        break;
    case TW_GOP_ROPE_TABLE:
        emit_rope_table(&x);
        break;
    case TW_GOP_RMS_NORM:
        emit_rms_norm(&x);
        break;
    case TW_GOP_QUANT:
        emit_quant(&x);
        break;
    case TW_GOP_MATMUL:
        tw_section_matmul(&x);
        break;
    case TW_GOP_ROPE:
        emit_rope(&x);
        break;
    case TW_GOP_KV_APPEND:
        emit_kv_append(&x);
        break;
    case TW_GOP_ATTENTION:
        emit_attention(&x);
        break;
    case TW_GOP_LAYER_NORM:
        emit_layer_norm(&x);
        break;
    case TW_GOP_ADD:
    case TW_GOP_SILU_MUL:
    case TW_GOP_GELU_MUL:
        emit_binary(&x);
        break;
    case TW_GOP_GELU:
    case TW_GOP_SCALE:
        emit_unary(&x);
        break;
    case TW_GOP_BIAS:
        emit_bias(&x);
        break;
    case TW_GOP_POS_SCALE:
        emit_pos_scale(&x);
        break;
    case TW_GOP_LAST_ROW:
        emit_last_row(&x);
        break;
    case TW_GOP_OUTPUT: /* its product streams out page by page */
    case TW_GOP_COUNT:
        break;
    }
}

static void emit_send(struct tw_section_builder *b, const struct tw_send *s) {
    const struct tw_storage *src = &b->low->storages.items[s->src],
                            *dst = &b->low->storages.items[s->dst];
    const struct tw_gvalue *v =
        &b->graph->values.items[b->low->region->values.items[dst->value].value];
    uint32_t fifo = tw_section_buffer(b, s->staging == TW_NONE ? s->src : s->staging, s->site);
    uint32_t bytes = (uint32_t)tw_row_bytes(v->dtype, s->cols), chips = b->u->target->n_chips;
    struct tw_count rows = count_rows(b, (int)v->token_rows);
    const char *origin = tw_cmem_printf(b->u->mem, "%s.exchange", v->name);
    uint32_t stage =
        tw_section_stage(b, TW_STAGE_STORE, s->site, STORE, origin, s->first_col, s->cols, 0);
    uint32_t math =
        tw_section_stage(b, TW_STAGE_COMPUTE, s->site, MATH, origin, s->first_col, s->cols, 0);
    struct tw_affine from = at(tw_storage_col(src, s->first_col)),
                     to = at(tw_storage_col(dst, s->first_col));
    if (s->staging != TW_NONE) {
        tw_builder_reserve(b->u, s->site, MATH, math, fifo, 1);
        tw_builder_copy(b->u, s->site, MATH, math,
                        tw_in_buffer(tw_section_buffer(b, s->src, s->site), from), src->stride,
                        tw_in_buffer(fifo, from), src->stride, bytes, rows);
    }
    tw_builder_push(b->u, s->site, MATH, math, fifo, 1);
    tw_builder_wait(b->u, s->site, STORE, stage, fifo, 1);
    /* data, then its flag, chip by chip: nothing blocks between the two */
    for (uint32_t chip = 0; chip < chips; chip++) {
        uint32_t group = tw_builder_chip_sites(b->u, chip);
        tw_builder_mcast(b->u, s->site, STORE, stage, tw_in_buffer(fifo, from), src->stride,
                         tw_in_buffer(tw_section_buffer(b, s->dst, s->site), to), dst->stride,
                         bytes, rows, group);
        if (chip + 1 == chips) {
            tw_builder_pop(b->u, s->site, STORE, stage, fifo, 1);
        }
        tw_builder_mcast_set(b->u, s->site, STORE, stage, b->exchange_sem[s->step], group);
    }
}

static void emit_recv(struct tw_section_builder *b, uint32_t site, uint32_t step) {
    const struct tw_mstep *s = &b->low->region->steps.items[step];
    const struct tw_gvalue *v = &b->graph->values.items[b->low->region->values.items[s->out].value];
    uint32_t stage =
        tw_section_stage(b, TW_STAGE_RECV, site, MATH,
                         tw_cmem_printf(b->u->mem, "%s.exchange", v->name), 0, v->cols, 0);
    tw_builder_sem_wait(b->u, site, MATH, stage, b->exchange_sem[step],
                        tw_builder_threshold(b->u, b->low->senders[step]));
}

static void emit_carry(struct tw_section_builder *b, uint32_t site, uint32_t step) {
    const struct tw_mstep *s = &b->low->region->steps.items[step];
    uint32_t from = b->low->storage_of[s->in[0] * b->low->n_sites + site],
             to = b->low->storage_of[s->out * b->low->n_sites + site];
    const struct tw_storage *src = &b->low->storages.items[from],
                            *dst = &b->low->storages.items[to];
    uint32_t cols = b->graph->values.items[b->low->region->values.items[s->out].value].cols;
    struct tw_count rows = count_rows(b, 1);
    uint32_t stage = tw_section_stage(b, TW_STAGE_COMPUTE, site, MATH, "carry", 0, cols, 0);
    tw_builder_copy(b->u, site, MATH, stage, tw_in_buffer(tw_section_buffer(b, from, site), at(0)),
                    src->stride, tw_in_buffer(tw_section_buffer(b, to, site), at(0)), dst->stride,
                    cols * 4, rows);
}

int tw_section_emit_work(struct tw_section_builder *b, uint32_t site, const struct tw_work *work,
                         tw_error *err) {
    switch (work->kind) {
    case TW_WORK_CALL:
        emit_call(b, &b->low->calls.items[work->index]);
        return 0;
    case TW_WORK_SEND:
        emit_send(b, &b->low->sends.items[work->index]);
        return 0;
    case TW_WORK_RECV:
        emit_recv(b, site, work->step);
        return 0;
    case TW_WORK_CARRY:
        emit_carry(b, site, work->step);
        return 0;
    }
    return tw_fail(err, TW_E_INTERNAL, "section: unknown kind of work %u", work->kind);
}
