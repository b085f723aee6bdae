/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine code of each kind of work. An operation with weights has a LOAD half that fills pages
 * and a MATH half that uses them; values for other sites or for DRAM leave through a FIFO to STORE.
 */
#include "compiler/low/pin_params.h"
#include "compiler/spatial/section_call.h"

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

/* The first op makes all rows, so that they count as written; each of the others replaces one. */
static void emit_rope_table(struct site_call *x) {
    struct vector frequencies = load_whole_vector(x, 1);
    uint32_t stride = storage(x, x->c->out)->stride;
    for (uint32_t r = 0; r < separate_rows(x); r++) {
        tw_builder_rope_table(x->u, x->site, MATH, x->math, in_vector(&frequencies),
                              in_row(tw_in_buffer(buffer(x, x->c->out), at(0)), stride, r), stride,
                              x->c->cols / 2, position(x, r), r ? rows_of_one(x) : x->rows);
    }
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
    uint32_t from = storage(x, c->in[0])->stride, to = storage(x, c->out)->stride;
    if (x->b->config->batch) { /* so that all rows count as written */
        tw_builder_copy(x->u, x->site, MATH, x->math, columns(x, c->in[0]), from,
                        columns(x, c->out), to, c->cols * 4, x->rows);
    }
    for (uint32_t r = 0; r < separate_rows(x); r++) {
        tw_builder_pos_scale(x->u, x->site, MATH, x->math, in_row(columns(x, c->in[0]), from, r),
                             from, in_vector(&factors), in_row(columns(x, c->out), to, r), to,
                             c->cols, value(x, 1)->cols, x->op->period, position(x, r),
                             rows_of_one(x));
    }
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
        tw_section_kv_append(&x);
        break;
    case TW_GOP_ATTENTION:
        tw_section_attention(&x);
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
