/* SPDX-License-Identifier: Apache-2.0
 *
 * The ComputeGraph: a decoder step in semantic operations, divided into regions. A region with
 * repeat > 1 is a Repeat: one shared body, executed `repeat` times. Its weights and states are
 * sequences with one member per iteration; `carry_in` is the value carried from one iteration to
 * the next, and `carry_out` the value that replaces it for the next iteration and, after the last
 * one, for the rest of the graph.
 *
 * Values have the shape [rows, cols]; activations with token_rows have one row per token of the
 * step. All memory belongs to the graph's arena.
 */
#ifndef TW_COMPILER_GRAPH_GRAPH_H
#define TW_COMPILER_GRAPH_GRAPH_H

#include "compiler/arena.h"
#include "compiler/import/model.h"

#include <stdio.h>

/* X(NAME, text, inputs, meaning). Each operation has one output, except KV_APPEND and OUTPUT, which
 * have none. */
#define TW_GOPS(X)                                                              \
    X(GATHER, "gather", 2, "out[t, :] = table[ids[t], :]")                      \
    X(ROPE_TABLE, "rope_table", 2, "out[t, :] = cos and sin of (pos + t)*freq") \
    X(RMS_NORM, "rms_norm", 2, "out = x / rms(x) * weight, by rows or heads")   \
    X(LAYER_NORM, "layer_norm", 3,                                              \
      "out = (x - mean) / deviation * weight + bias, by rows or heads")         \
    X(QUANT, "quant", 1, "out = x in blocks of 32 or 256 with one scale each")  \
    X(MATMUL, "matmul", 2,                                                      \
      "out[t, n] = sum over k of x[t, k]*w[n, k]; then times scale and capped") \
    X(ROPE, "rope", 2, "out = x with each head's pairs rotated by the table")   \
    X(KV_APPEND, "kv_append", 3, "state[pos + t] = x[t]")                       \
    X(ATTENTION, "attention", 3,                                                \
      "out = softmax(q*k^T*scale, capped, causal, in the window)*v over the "   \
      "state, grouped heads")                                                   \
    X(ADD, "add", 2, "out = x + y")                                             \
    X(BIAS, "bias", 2, "out = x + a row for all tokens")                        \
    X(SILU_MUL, "silu_mul", 2, "out = silu(g)*u")                               \
    X(GELU_MUL, "gelu_mul", 2, "out = gelu(g)*u")                               \
    X(GELU, "gelu", 1, "out = gelu(x)")                                         \
    X(SCALE, "scale", 1, "out = x * scale")                                     \
    X(POS_SCALE, "pos_scale", 3, "out[t] = x[t] * factors[(pos + t) / period]") \
    X(LAST_ROW, "last_row", 1, "out[0, :] = x[last token, :], or all of x")     \
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
    uint32_t window;         /* STATE: its readers see so many positions; 0: all */
    enum tw_packing packing; /* STATE: KEYS or VALUES; WEIGHT: PANEL16 or ROW */
    /* WEIGHT: the tensor of each instance; NULL if `constant` is set */
    const struct tw_model_tensor **source;
    const float *constant; /* WEIGHT [1, cols] computed by arch/; else NULL */
    /* region that defines the value; TW_NONE for weights, states and inputs */
    uint32_t region;
    uint32_t shared;   /* 1: read or carried by other regions under this name */
    uint32_t resident; /* WEIGHT, 1: stays in SRAM (low/pin_params.h) */
};

/* One operation. Which attributes are used depends on its kind. */
struct tw_gop {
    enum tw_gop_kind kind;
    const char *name; /* "attn_q" */
    uint32_t region;
    tw_gvalue_id in[3];
    tw_gvalue_id out; /* TW_NONE: none */
    /* MATMUL: scale 0: none. cap 0: none; else cap * tanh(x / cap). */
    float eps, scale, cap;
    /* head_dim of a norm: that of the heads whose norms they are, each with the same weights or, if
     * there are so many, with its own; 0: the norm of a row */
    uint32_t n_heads, n_kv_heads, head_dim, rope_dims;
    uint32_t
        window; /* ATTENTION: positions that a query sees, its own included; 0: all before it */
    uint32_t period; /* POS_SCALE */
    enum tw_rope_pairing pairing;
};

/* Operations [first_op, first_op + n_ops), executed `repeat` times. */
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
    uint32_t n_ctx;            /* positions that may be fed; set before planning */
    uint32_t top_k;            /* entries of an owner's list of the best logits; 0: no lists */
    bool float_activations;    /* of products with quantised weights; set before */
    enum tw_dtype cache_dtype; /* F32 or F16: of the states that arch/ adds; set before */
};

/* Builders used by arch/; they append to the graph and return the new value's id. Names are not
 * copied: they must be static or in the graph's arena. An activation belongs to the region that was
 * begun last, and token_rows is 1 for one row per token of the step, 0 for a single row. */
tw_gvalue_id tw_graph_activation(struct tw_graph *g, const char *name, uint32_t token_rows,
                                 uint32_t cols, enum tw_dtype dtype);
/* `source` has one tensor per instance, all of the shape of the first; it is not copied and must
 * outlive the graph. */
tw_gvalue_id tw_graph_weight(struct tw_graph *g, const char *name, uint32_t instances,
                             const struct tw_model_tensor **source);
/* `data` has cols floats; it is not copied and must outlive the graph. */
tw_gvalue_id tw_graph_constant(struct tw_graph *g, const char *name, const float *data,
                               uint32_t cols);
/* States are of the graph's cache_dtype; `cols` is n_kv_heads * head_dim. */
tw_gvalue_id tw_graph_state(struct tw_graph *g, const char *name, uint32_t instances, uint32_t cols,
                            uint32_t head_dim, enum tw_packing packing);
tw_gvalue_id tw_graph_input(struct tw_graph *g, const char *name, uint32_t token_rows);
/* Starts a region and returns its index; operations and activations added from now on belong to
 * it. */
uint32_t tw_graph_begin_region(struct tw_graph *g, const char *name, uint32_t repeat);
/* Ends the current region. TW_NONE for both ids: nothing is carried. */
void tw_graph_end_region(struct tw_graph *g, tw_gvalue_id carry_in, tw_gvalue_id carry_out);
/* Appends an operation to the current region and returns it, so that the caller can set its
 * attributes; the pointer is valid until the next operation is appended. Unused inputs are
 * TW_NONE. */
struct tw_gop *tw_graph_op(struct tw_graph *g, enum tw_gop_kind kind, const char *name,
                           tw_gvalue_id a, tw_gvalue_id b, tw_gvalue_id c, tw_gvalue_id out);

/* Makes *out the graph in which every token of a step gets its logits, not only the last one: where
 * LAST_ROW chooses a row, all rows pass. Values, operations and regions keep their ids; *out has
 * its own values and shares the rest with g, which must outlive it. */
void tw_graph_all_rows(const struct tw_graph *g, struct tw_graph *out);

/* Checks static single assignment inside regions, kinds, shapes, sequence lengths and dtypes.
 * Errors: INTERNAL naming the operation. */
int tw_graph_check(const struct tw_graph *g, tw_error *err);
/* Prints the graph as text (`dump --stage graph`). */
void tw_graph_print(const struct tw_graph *g, FILE *out);

/* Returns the operation's name in the text form, and its number of inputs. */
const char *tw_gop_name(enum tw_gop_kind kind);
uint32_t tw_gop_inputs(enum tw_gop_kind kind);

#endif
