/* SPDX-License-Identifier: Apache-2.0
 *
 * The identity of a decoder (compiler/graph/identity.h). Everything is hashed as numbers and
 * terminated texts in a fixed order, so no two graphs give the same bytes.
 */
#include "compiler/graph/identity.h"

#include "compiler/graph/dequant.h"
#include "compiler/graph/quantise.h"
#include "loader/base/hash.h"

#include <string.h>

#define IDENTITY_VERSION 1u /* of what is hashed */
#define READ_BYTES 0x40000u /* of a weight at once, if its rows are smaller */

static void add_number(struct tw_hash *h, uint32_t number) {
    tw_hash_update(h, &number, sizeof number);
}

static void add_float(struct tw_hash *h, float number) {
    tw_hash_update(h, &number, sizeof number);
}

static void add_text(struct tw_hash *h, const char *text) {
    tw_hash_update(h, text, strlen(text) + 1);
}

/* ---- weights ---- */

/* Rows that are compiled as another type than that of the file. */
static void add_converted(struct tw_hash *h, const struct tw_graph *g, struct tw_model_tensor piece,
                          const uint8_t *rows, uint32_t n) {
    size_t used = g->mem->used;
    uint64_t bytes = tw_row_bytes(piece.to, piece.cols);
    float *row = tw_cmem_alloc(g->mem, piece.cols * sizeof *row);
    uint8_t *to = tw_cmem_alloc(g->mem, bytes);
    piece.data = rows; /* in their logical order already */
    piece.head_rows = 0;
    piece.rows = n;
    for (uint32_t r = 0; r < n; r++) {
        tw_dequant_row(&piece, r, row);
        tw_quantise_row(piece.to, row, piece.cols, to);
        tw_hash_update(h, to, bytes);
    }
    tw_cmem_release(g->mem, used);
}

/* Rows in their logical order, whatever their order in the file. */
static int add_rows(struct tw_hash *h, const struct tw_graph *g, const struct tw_model_tensor *t,
                    uint8_t *buffer, uint32_t at_once, tw_error *err) {
    int code = 0;
    for (uint32_t r = 0; r < t->rows && !code; r += at_once) {
        uint32_t n = t->rows - r < at_once ? t->rows - r : at_once;
        code = tw_model_read_rows(t, r, n, buffer, err);
        if (!code && t->converted) {
            add_converted(h, g, *t, buffer, n);
        } else {
            tw_hash_update(h, buffer, code ? 0 : n * (t->bytes / t->rows));
        }
    }
    return code;
}

static int add_tensor(struct tw_hash *h, const struct tw_graph *g, const struct tw_model_tensor *t,
                      tw_error *err) {
    add_number(h, tw_model_type(t));
    add_number(h, t->rows);
    add_number(h, t->cols);
    uint64_t row_bytes = t->rows ? t->bytes / t->rows : 0;
    if (row_bytes == 0) {
        return 0;
    }
    uint64_t rows = READ_BYTES / row_bytes;
    uint32_t at_once = rows == 0 ? 1 : rows < t->rows ? (uint32_t)rows : t->rows;
    size_t used = g->mem->used;
    int code = add_rows(h, g, t, tw_cmem_alloc(g->mem, at_once * row_bytes), at_once, err);
    tw_cmem_release(g->mem, used);
    return code;
}

/* ---- the graph ---- */

static bool is_position_factors(const struct tw_graph *g, uint32_t value) {
    for (uint32_t i = 0; i < g->ops.n; i++) {
        const struct tw_gop *op = &g->ops.items[i];
        if (op->kind == TW_GOP_POS_SCALE && (op->in[1] == value || op->in[2] == value)) {
            return true;
        }
    }
    return false;
}

/* The type of a state is that of the caches, and how it is packed follows from its use. */
static int add_value(struct tw_hash *h, const struct tw_graph *g, uint32_t id, tw_error *err) {
    const struct tw_gvalue *v = &g->values.items[id];
    bool factors = v->constant && is_position_factors(g, id); /* as many as the context asks for */
    int code = 0;
    add_text(h, v->name);
    add_number(h, v->kind);
    add_number(h, v->kind == TW_GV_STATE ? 0 : v->dtype);
    add_number(h, v->token_rows);
    add_number(h, v->rows);
    add_number(h, factors ? 0 : v->cols);
    add_number(h, v->instances);
    add_number(h, v->head_dim);
    if (factors) {
        add_float(h, g->model->h.query_slope); /* they follow from it and the op's period */
    } else if (v->constant) {
        tw_hash_update(h, v->constant, v->cols * sizeof *v->constant);
    } else if (v->kind == TW_GV_WEIGHT) {
        for (uint32_t i = 0; i < v->instances && !code; i++) {
            code = add_tensor(h, g, v->source[i], err);
        }
    }
    return code;
}

static void add_op(struct tw_hash *h, const struct tw_gop *op) {
    add_number(h, op->kind);
    add_text(h, op->name);
    add_number(h, op->region);
    for (uint32_t i = 0; i < 3; i++) {
        add_number(h, i < tw_gop_inputs(op->kind) ? op->in[i] : 0);
    }
    add_number(h, op->out);
    add_float(h, op->eps);
    add_float(h, op->scale);
    add_float(h, op->cap);
    add_number(h, op->n_heads);
    add_number(h, op->n_kv_heads);
    add_number(h, op->head_dim);
    add_number(h, op->rope_dims);
    add_number(h, op->window);
    add_number(h, op->period);
    add_number(h, op->pairing);
}

static void add_regions(struct tw_hash *h, const struct tw_graph *g) {
    add_number(h, g->regions.n);
    for (uint32_t i = 0; i < g->regions.n; i++) {
        const struct tw_gregion *r = &g->regions.items[i];
        add_text(h, r->name);
        add_number(h, r->repeat);
        add_number(h, r->first_op);
        add_number(h, r->n_ops);
        add_number(h, r->carry_in);
        add_number(h, r->carry_out);
    }
}

int tw_graph_identity(const struct tw_graph *g, uint8_t identity[TW_HASH_BYTES], tw_error *err) {
    struct tw_hash h;
    int code = 0;
    tw_hash_init(&h);
    add_number(&h, IDENTITY_VERSION);
    add_number(&h, TW_MACHINE_ABI_MAJOR); /* the arithmetic */
    add_number(&h, g->float_activations);
    add_regions(&h, g);
    add_number(&h, g->ops.n);
    for (uint32_t i = 0; i < g->ops.n; i++) {
        add_op(&h, &g->ops.items[i]);
    }
    add_number(&h, g->values.n);
    for (uint32_t i = 0; i < g->values.n && !code; i++) {
        code = add_value(&h, g, i, err);
    }
    tw_hash_final(&h, identity);
    return code;
}
