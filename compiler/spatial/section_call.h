/* SPDX-License-Identifier: Apache-2.0
 *
 * One call being emitted, and what the files that emit calls (section_ops.c, section_matmul.c,
 * section_attention.c) say of it.
 */
#ifndef TW_COMPILER_SPATIAL_SECTION_CALL_H
#define TW_COMPILER_SPATIAL_SECTION_CALL_H

#include "compiler/spatial/section_internal.h"

#include <stdbool.h>

#define LOAD TW_ENGINE_LOAD
#define MATH TW_ENGINE_MATH
#define STORE TW_ENGINE_STORE

/* One call being emitted. */
struct site_call {
    struct tw_section_builder *b;
    struct tw_builder *u;
    const struct tw_call *c;
    const struct tw_gop *op;
    uint32_t site;
    struct tw_count rows;       /* of the op */
    uint32_t load, math, store; /* stages */
};

static inline struct tw_affine at(uint64_t offset) {
    return tw_affine_const(offset);
}

static inline struct tw_affine at_inner(uint64_t offset, uint64_t step) {
    return tw_affine_plus(at(offset), TW_VAR_INNER, step);
}

static inline const struct tw_storage *storage(const struct site_call *x, uint32_t id) {
    return &x->b->low->storages.items[id];
}

static inline const struct tw_gvalue *value_of(const struct site_call *x, uint32_t id) {
    return &x->b->graph->values.items[id];
}

static inline const struct tw_gvalue *value(const struct site_call *x, uint32_t input) {
    return value_of(x, x->op->in[input]);
}

static inline uint32_t buffer(const struct site_call *x, uint32_t id) {
    return tw_section_buffer(x->b, id, x->site);
}

/* Returns the instance of a sequence that this iteration uses. */
static inline struct tw_affine instance(const struct tw_gvalue *v) {
    return v->instances > 1 ? tw_affine_plus(at(0), TW_VAR_INSTANCE, 1) : at(0);
}

/* Returns the number of rows of a value: with token rows all those of a batch, the trip "rows", or
 * 1 if the program's steps have one token; else 1. */
static inline struct tw_count count_rows(struct tw_section_builder *b, int token_rows) {
    uint32_t max = token_rows ? b->low->rows : 1;
    return max > 1 && !b->config->batch
               ? tw_count_of(tw_builder_trip(b->u, "rows", "rows", 1, b->low->rows), max)
               : tw_count_const(max);
}

static inline void add_load_stage(struct site_call *x) {
    x->load = tw_section_stage(x->b, TW_STAGE_LOAD, x->site, LOAD, x->op->name, x->c->first_col,
                               x->c->cols, 0);
}

/* Loads one page of the stream: [offset, offset + bytes) of a tensor. */
static inline void load_page(const struct site_call *x, uint32_t stream, uint32_t input,
                             struct tw_affine offset, uint64_t bytes) {
    uint32_t tensor = tw_section_tensor(x->b, x->op->in[input]), fifo = buffer(x, stream),
             n = (uint32_t)bytes;
    tw_builder_reserve(x->u, x->site, LOAD, x->load, fifo, 1);
    tw_builder_read(x->u, x->site, LOAD, x->load,
                    tw_in_tensor(tensor, instance(value(x, input)), offset),
                    tw_in_buffer(fifo, at(0)), 1, n, n, n);
    tw_builder_push(x->u, x->site, LOAD, x->load, fifo, 1);
}

static inline void emit_loop(const struct site_call *x, enum tw_engine e, uint32_t stage,
                             uint32_t count) {
    tw_builder_loop(x->u, x->site, e, stage, TW_VAR_INNER, tw_count_const(count), TW_NONE);
}

static inline void emit_end(const struct site_call *x, enum tw_engine e, uint32_t stage) {
    tw_builder_end(x->u, x->site, e, stage);
}

/* Positions are those of all rows, which follow that of the first one; in a batch each row has its
 * own, so that what uses them is emitted row by row. */
static inline uint32_t separate_rows(const struct site_call *x) {
    return x->b->config->batch ? x->b->low->rows : 1;
}

/* The rows of an op that is emitted for each of separate_rows(). */
static inline struct tw_count rows_of_one(const struct site_call *x) {
    return x->b->config->batch ? tw_count_const(1) : x->rows;
}

/* The number of a separate row, from the Input: its element, or the only one. */
static inline struct tw_count row_count(const struct site_call *x, const char *name,
                                        const char *input, uint32_t row, uint32_t div,
                                        uint32_t max) {
    if (x->b->config->batch) {
        name = tw_cmem_printf(x->u->mem, "%s.%u", name, row);
    }
    return tw_count_of(tw_builder_row_trip(x->u, name, input, separate_rows(x), row, div, max),
                       max);
}

static inline struct tw_count position(const struct site_call *x, uint32_t row) {
    return row_count(x, "pos", "pos", row, 1, x->b->config->n_ctx - 1);
}

/* A place in the first row, moved to that of a separate row. */
static inline struct tw_buffer_at in_row(struct tw_buffer_at place, uint32_t stride, uint32_t row) {
    place.offset.base += (uint64_t)stride * row;
    return place;
}

/* Reserves a page for a value that leaves through STORE before MATH writes it. In-place ops find it
 * reserved. */
static inline void reserve_output(const struct site_call *x) {
    if (x->c->out != TW_NONE && storage(x, x->c->out)->kind == TW_ST_OUT &&
        x->op->kind != TW_GOP_ROPE) {
        tw_builder_reserve(x->u, x->site, MATH, x->math, buffer(x, x->c->out), 1);
    }
}

static inline struct tw_affine column(const struct site_call *x, uint32_t id) {
    return at(tw_storage_col(storage(x, id), x->c->first_col));
}

static inline struct tw_buffer_at columns(const struct site_call *x, uint32_t id) {
    return tw_in_buffer(buffer(x, id), column(x, id));
}

/* Emits a matrix product (section_matmul.c); logits are also listed, if the graph says so. */
void tw_section_matmul(struct site_call *x);
/* Emit the appending of rows to a cache, and attention (section_attention.c). */
void tw_section_kv_append(struct site_call *x);
void tw_section_attention(struct site_call *x);

#endif
