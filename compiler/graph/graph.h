/* SPDX-License-Identifier: Apache-2.0
 *
 * The ComputeGraph: a decoder step in semantic operations, structured in regions. A region with
 * repeat > 1 is a Repeat: one shared body, run once an instance; its weights and states are
 * sequences with one member an instance, `carry_in` is its carried value and `carry_out` what the
 * next iteration (and after the last, the rest of the graph) sees under that name.
 *
 * Values have the shape [rows, cols]; activations with token_rows have one row a token of the step.
 */
#ifndef TW_COMPILER_GRAPH_GRAPH_H
#define TW_COMPILER_GRAPH_GRAPH_H

#include "compiler/arena.h"
#include "compiler/import/model.h"

#include <stdio.h>

/* X(NAME, text, inputs, meaning) ; outputs: one value each, none for KV_APPEND */
#define TW_GOPS(X)                                                              \
    X(GATHER, "gather", 2, "out[t, :] = table[ids[t], :]")                      \
    X(ROPE_TABLE, "rope_table", 2, "out[t, :] = cos and sin of (pos + t)*freq") \
    X(RMS_NORM, "rms_norm", 2, "out = x / rms(x) * weight")                     \
    X(QUANT, "quant", 1, "out = x in blocks of 32 with one scale each")         \
    X(MATMUL, "matmul", 2, "out[t, n] = sum over k of x[t, k]*w[n, k]")         \
    X(ROPE, "rope", 2, "out = x with each head's pairs rotated by the table")   \
    X(KV_APPEND, "kv_append", 3, "state[pos + t] = x[t]")                       \
    X(ATTENTION, "attention", 3,                                                \
      "out = softmax(q*k^T*scale, causal)*v over the state, grouped heads")     \
    X(ADD, "add", 2, "out = x + y")                                             \
    X(SILU_MUL, "silu_mul", 2, "out = silu(g)*u")                               \
    X(LAST_ROW, "last_row", 1, "out[0, :] = x[last token, :]")                  \
    X(OUTPUT, "output", 1, "the step's result")

enum tw_gop_kind {
#define TW_X(name, text, inputs, meaning) TW_GOP_##name,
    TW_GOPS(TW_X)
#undef TW_X
        TW_GOP_COUNT
};

enum tw_gvalue_kind { TW_GV_ACTIVATION, TW_GV_WEIGHT, TW_GV_STATE, TW_GV_INPUT };

typedef uint32_t tw_gvalue_id;

struct tw_gvalue {
    const char *name;
    enum tw_gvalue_kind kind;
    enum tw_dtype dtype;
    uint32_t token_rows; /* 1: rows are the step's tokens, `rows` is 0 */
    uint32_t rows, cols;
    uint32_t instances;      /* WEIGHT, STATE: members of the sequence */
    uint32_t head_dim;       /* STATE */
    enum tw_packing packing; /* STATE: KEYS or VALUES; WEIGHT: PANEL16 or ROW */
    /* WEIGHT: tensor of each instance, or NULL with `constant` */
    const struct tw_model_tensor **source;
    const float *constant; /* WEIGHT [1, cols] computed by arch/ */
    /* that defines it; TW_NONE for weights, states, inputs */
    uint32_t region;
    uint32_t shared;   /* 1: read or carried by other regions under this name */
    uint32_t resident; /* WEIGHT, 1: kept in SRAM (spatial/deploy.h) */
};

struct tw_gop {
    enum tw_gop_kind kind;
    const char *name; /* "attn_q" */
    uint32_t region;
    tw_gvalue_id in[3];
    tw_gvalue_id out; /* TW_NONE: none */
    float eps, scale;
    uint32_t n_heads, n_kv_heads, head_dim, rope_dims;
    enum tw_rope_pairing pairing;
};

struct tw_gregion {
    const char *name;
    uint32_t repeat;
    uint32_t first_op, n_ops;
    tw_gvalue_id carry_in, carry_out; /* TW_NONE where nothing is carried */
};

struct tw_graph {
    struct tw_cmem *mem;
    const struct tw_model *model;
    TW_VEC(struct tw_gvalue) values;
    TW_VEC(struct tw_gop) ops;
    TW_VEC(struct tw_gregion) regions;
    tw_gvalue_id ids, pos; /* inputs */
    tw_gvalue_id logits;
};

/* Builders used by arch/. All names are copied into the graph's arena by the caller or static. */
tw_gvalue_id tw_graph_activation(struct tw_graph *g, const char *name, uint32_t token_rows,
                                 uint32_t cols, enum tw_dtype dtype);
tw_gvalue_id tw_graph_weight(struct tw_graph *g, const char *name, uint32_t instances,
                             const struct tw_model_tensor **source);
tw_gvalue_id tw_graph_constant(struct tw_graph *g, const char *name, const float *data,
                               uint32_t cols);
tw_gvalue_id tw_graph_state(struct tw_graph *g, const char *name, uint32_t instances, uint32_t cols,
                            uint32_t head_dim, enum tw_packing packing);
tw_gvalue_id tw_graph_input(struct tw_graph *g, const char *name, uint32_t token_rows);
uint32_t tw_graph_begin_region(struct tw_graph *g, const char *name, uint32_t repeat);
void tw_graph_end_region(struct tw_graph *g, tw_gvalue_id carry_in, tw_gvalue_id carry_out);
struct tw_gop *tw_graph_op(struct tw_graph *g, enum tw_gop_kind kind, const char *name,
                           tw_gvalue_id a, tw_gvalue_id b, tw_gvalue_id c, tw_gvalue_id out);

/* Static single assignment inside regions, shapes, sequence lengths, dtypes. INTERNAL naming the op
 * on a violation. */
int tw_graph_check(const struct tw_graph *g, tw_error *err);
void tw_graph_print(const struct tw_graph *g, FILE *out);

const char *tw_gop_name(enum tw_gop_kind kind);
uint32_t tw_gop_inputs(enum tw_gop_kind kind);

#endif
