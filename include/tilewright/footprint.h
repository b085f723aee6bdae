/* SPDX-License-Identifier: Apache-2.0
 *
 * Which bytes an op touches: the extent of each of its regions, from its operands alone. Shared by
 * the verifier (with the largest row count), the strict interpreter (with the step's) and the plan
 * builder. Each data op of ops.def has its function tw_extent_NAME here.
 */
#ifndef TILEWRIGHT_FOOTPRINT_H
#define TILEWRIGHT_FOOTPRINT_H

#include "tilewright/op_schema.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rows rows of row_bytes bytes, the next row `stride` bytes further. rows = 0: nothing is
 * touched. */
struct tw_extent {
    uint64_t rows, row_bytes, stride;
};

/* Returns the bytes from the first to the end of the last; wraps only for absurd strides, which the
 * verifier refuses (strides are u32). */
static inline uint64_t tw_extent_span(struct tw_extent e) {
    return e.rows == 0 ? 0 : (e.rows - 1) * e.stride + e.row_bytes;
}

/* Returns the n-th operand that is a region (R W M D T U), or NULL. */
static inline const struct tw_operand *tw_op_region(const struct tw_op *op, uint32_t n) {
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (tw_letter_in("RWMDTU", op->operand[i].kind) && n-- == 0) {
            return &op->operand[i];
        }
    }
    return NULL;
}

/* Returns the rows of a data op, or the times of a LOOP: its last COUNT, or NULL. */
static inline const struct tw_operand *tw_op_rows(const struct tw_op *op) {
    const struct tw_operand *rows = NULL;
    for (uint32_t i = 0; i < op->n_operands; i++) {
        rows = op->operand[i].kind == TW_KIND_COUNT ? &op->operand[i] : rows;
    }
    return rows;
}

/* Returns the position of a data op's first row: the COUNT in front of its rows, or NULL. */
static inline const struct tw_operand *tw_op_position(const struct tw_op *op) {
    const struct tw_operand *rows = tw_op_rows(op);
    return rows && rows > op->operand && rows[-1].kind == TW_KIND_COUNT ? rows - 1 : NULL;
}

static inline struct tw_extent tw_extent_make(uint64_t rows, uint64_t row_bytes, uint64_t stride) {
    struct tw_extent e = {rows, row_bytes, stride};
    return e;
}

/* Returns true if a region is read for its content: it is read, or updated, except the sums of a
 * MATMUL that starts them at 0. */
static inline bool tw_op_reads(const struct tw_op *op, const struct tw_operand *region) {
    bool fresh = op->code == TW_OP_MATMUL && op->operand[TW_MATMUL_reload].id == 0;
    return region->kind == TW_KIND_READ || region->kind == TW_KIND_TENSOR_READ ||
           (region->kind == TW_KIND_UPDATE && !fresh);
}

/* ---- the extents of each op's regions ---- */

/* The immediates of a data op by name, wide enough for products: struct tw_numbers_matmul and
 * tw_numbers_matmul(op). */
#define TW_IF_NUMBER_READ(x)
#define TW_IF_NUMBER_WRITE(x)
#define TW_IF_NUMBER_UPDATE(x)
#define TW_IF_NUMBER_REMOTE(x)
#define TW_IF_NUMBER_TENSOR_READ(x)
#define TW_IF_NUMBER_TENSOR_WRITE(x)
#define TW_IF_NUMBER_GROUP(x)
#define TW_IF_NUMBER_COUNT(x)
#define TW_IF_NUMBER_AFFINE(x)
#define TW_IF_NUMBER_IMMEDIATE(x) x
#define TW_IF_NUMBER_FLOAT(x)
#define TW_NUMBER_FIELD(OP, KIND, name, DEMAND, text) TW_IF_NUMBER_##KIND(uint64_t name;)
#define TW_NUMBER_TAKE(OP, KIND, name, DEMAND, text) \
    TW_IF_NUMBER_##KIND(v.name = op->operand[TW_##OP##_##name].id;)
#define TW_NUMBERS_CONTROL(NAME, name)
#define TW_NUMBERS_DATA(NAME, name)                                                    \
    struct tw_numbers_##name {                                                         \
        TW_OPERANDS_##NAME(TW_NUMBER_FIELD, NAME)                                      \
    };                                                                                 \
    static inline struct tw_numbers_##name tw_numbers_##name(const struct tw_op *op) { \
        struct tw_numbers_##name v;                                                    \
        TW_OPERANDS_##NAME(TW_NUMBER_TAKE, NAME) return v;                             \
    }
#define TW_OP(NAME, number, name, engines, part) TW_NUMBERS_##part(NAME, name)
#include "tilewright/ops.def"
#undef TW_OP

/* What an extent depends on besides the op's immediates. */
struct tw_extent_of {
    uint32_t region; /* TW_MATMUL_REGION_x */
    unsigned x_dtype;
    uint64_t rows, whole; /* whole: bytes of the region's tensor */
};

/* Returns the bytes of one row's attention state: `heads` of all its segments. */
static inline uint64_t tw_state_bytes(uint64_t heads, uint64_t head_dim) {
    return heads * (head_dim + 2) * 4;
}

static inline struct tw_extent tw_extent_read(struct tw_numbers_read v, struct tw_extent_of a) {
    return tw_extent_make(v.rows, v.row_bytes,
                          a.region == TW_READ_REGION_source ? v.source_stride
                                                            : v.destination_stride);
}

static inline struct tw_extent tw_extent_gather(struct tw_numbers_gather v, struct tw_extent_of a) {
    return a.region == TW_GATHER_REGION_table ? tw_extent_make(1, a.whole, 0)
           : a.region == TW_GATHER_REGION_ids ? tw_extent_make(1, a.rows * 4, 0)
                                              : tw_extent_make(a.rows, v.cols * 4, v.y_stride);
}

static inline struct tw_extent tw_extent_write(struct tw_numbers_write v, struct tw_extent_of a) {
    return tw_extent_make(a.rows, v.row_bytes,
                          a.region == TW_WRITE_REGION_source ? v.source_stride
                                                             : v.destination_stride);
}

static inline struct tw_extent tw_extent_key_write(struct tw_numbers_key_write v,
                                                   struct tw_extent_of a) {
    return a.region == TW_KEY_WRITE_REGION_cache
               ? tw_extent_make(1, a.whole, 0)
               : tw_extent_make(a.rows, v.heads * v.head_dim * 4, v.source_stride);
}

static inline struct tw_extent tw_extent_value_write(struct tw_numbers_value_write v,
                                                     struct tw_extent_of a) {
    return a.region == TW_VALUE_WRITE_REGION_cache
               ? tw_extent_make(1, a.whole, 0)
               : tw_extent_make(a.rows, v.heads * v.head_dim * 4, v.source_stride);
}

static inline struct tw_extent tw_extent_mcast(struct tw_numbers_mcast v, struct tw_extent_of a) {
    return tw_extent_make(a.rows, v.row_bytes,
                          a.region == TW_MCAST_REGION_source ? v.source_stride
                                                             : v.destination_stride);
}

static inline struct tw_extent tw_extent_send(struct tw_numbers_send v, struct tw_extent_of a) {
    return tw_extent_make(a.rows, v.row_bytes,
                          a.region == TW_SEND_REGION_source ? v.source_stride
                                                            : v.destination_stride);
}

static inline struct tw_extent tw_extent_dram_copy(struct tw_numbers_dram_copy v,
                                                   struct tw_extent_of a) {
    return tw_extent_make(a.rows, v.row_bytes,
                          a.region == TW_DRAM_COPY_REGION_source ? v.source_stride
                                                                 : v.destination_stride);
}

static inline struct tw_extent tw_extent_rms_norm(struct tw_numbers_rms_norm v,
                                                  struct tw_extent_of a) {
    return a.region == TW_RMS_NORM_REGION_weight
               ? tw_extent_make(1, v.cols * 4, 0)
               : tw_extent_make(a.rows, v.cols * 4,
                                a.region == TW_RMS_NORM_REGION_x ? v.x_stride : v.y_stride);
}

static inline struct tw_extent tw_extent_layer_norm(struct tw_numbers_layer_norm v,
                                                    struct tw_extent_of a) {
    switch (a.region) {
    case TW_LAYER_NORM_REGION_weight:
    case TW_LAYER_NORM_REGION_bias:
        return tw_extent_make(1, v.cols * 4, 0);
    default:
        return tw_extent_make(a.rows, v.cols * 4,
                              a.region == TW_LAYER_NORM_REGION_x ? v.x_stride : v.y_stride);
    }
}

static inline struct tw_extent tw_extent_quant(struct tw_numbers_quant v, struct tw_extent_of a) {
    return a.region == TW_QUANT_REGION_x
               ? tw_extent_make(a.rows, v.cols * 4, v.x_stride)
               : tw_extent_make(a.rows, tw_row_bytes(TW_DT_Q8S, v.cols), v.y_stride);
}

static inline struct tw_extent tw_extent_quant_k(struct tw_numbers_quant_k v,
                                                 struct tw_extent_of a) {
    return a.region == TW_QUANT_K_REGION_x
               ? tw_extent_make(a.rows, v.cols * 4, v.x_stride)
               : tw_extent_make(a.rows, tw_row_bytes(TW_DT_Q8K, v.cols), v.y_stride);
}

static inline struct tw_extent tw_extent_matmul(struct tw_numbers_matmul v, struct tw_extent_of a) {
    switch (a.region) {
    case TW_MATMUL_REGION_x:
        return tw_extent_make(a.rows, tw_row_bytes(a.x_dtype, v.k), v.x_stride);
    case TW_MATMUL_REGION_w:
        return tw_extent_make(v.panels, tw_panel_bytes((unsigned)v.dtype, v.k), v.w_stride);
    default:
        return tw_extent_make(a.rows, v.panels * TW_PANEL_ROWS * 4, v.y_stride);
    }
}

static inline struct tw_extent tw_extent_rope_table(struct tw_numbers_rope_table v,
                                                    struct tw_extent_of a) {
    return a.region == TW_ROPE_TABLE_REGION_freq ? tw_extent_make(1, v.half * 4, 0)
                                                 : tw_extent_make(a.rows, v.half * 8, v.cs_stride);
}

static inline struct tw_extent tw_extent_rope(struct tw_numbers_rope v, struct tw_extent_of a) {
    return a.region == TW_ROPE_REGION_x
               ? tw_extent_make(a.rows, v.heads * v.head_dim * 4, v.x_stride)
               : tw_extent_make(a.rows, v.rotated * 4, v.cs_stride);
}

static inline struct tw_extent tw_extent_attn_init(struct tw_numbers_attn_init v,
                                                   struct tw_extent_of a) {
    uint64_t bytes = tw_state_bytes(v.heads, v.head_dim);
    return tw_extent_make(a.rows, bytes, bytes);
}

static inline struct tw_extent tw_extent_attn_step(struct tw_numbers_attn_step v,
                                                   struct tw_extent_of a) {
    uint64_t bytes = tw_state_bytes(v.segments * v.state_heads, v.head_dim);
    switch (a.region) {
    case TW_ATTN_STEP_REGION_q:
        return tw_extent_make(a.rows, v.heads * v.head_dim * 4, v.q_stride);
    case TW_ATTN_STEP_REGION_state:
        return tw_extent_make(a.rows, bytes, bytes);
    default: /* keys, values */
        return tw_extent_make(1, TW_KV_BLOCK * v.head_dim * tw_dtype_block_bytes((unsigned)v.dtype),
                              0);
    }
}

static inline struct tw_extent tw_extent_attn_window(struct tw_numbers_attn_window v,
                                                     struct tw_extent_of a) {
    uint64_t bytes = tw_state_bytes(v.segments * v.state_heads, v.head_dim);
    switch (a.region) {
    case TW_ATTN_WINDOW_REGION_q:
        return tw_extent_make(a.rows, v.heads * v.head_dim * 4, v.q_stride);
    case TW_ATTN_WINDOW_REGION_state:
        return tw_extent_make(a.rows, bytes, bytes);
    default: /* keys, values */
        return tw_extent_make(1, TW_KV_BLOCK * v.head_dim * tw_dtype_block_bytes((unsigned)v.dtype),
                              0);
    }
}

static inline struct tw_extent tw_extent_attn_merge(struct tw_numbers_attn_merge v,
                                                    struct tw_extent_of a) {
    return tw_extent_make(a.rows, tw_state_bytes(v.heads, v.head_dim),
                          a.region == TW_ATTN_MERGE_REGION_x ? v.x_stride : v.state_stride);
}

static inline struct tw_extent tw_extent_attn_done(struct tw_numbers_attn_done v,
                                                   struct tw_extent_of a) {
    uint64_t bytes = tw_state_bytes(v.segments * v.heads, v.head_dim);
    return a.region == TW_ATTN_DONE_REGION_state
               ? tw_extent_make(a.rows, bytes, bytes)
               : tw_extent_make(a.rows, v.heads * v.head_dim * 4, v.y_stride);
}

static inline struct tw_extent tw_extent_add(struct tw_numbers_add v, struct tw_extent_of a) {
    return tw_extent_make(a.rows, v.cols * 4,
                          a.region == TW_ADD_REGION_x   ? v.x_stride
                          : a.region == TW_ADD_REGION_y ? v.y_stride
                                                        : v.z_stride);
}

static inline struct tw_extent tw_extent_silu_mul(struct tw_numbers_silu_mul v,
                                                  struct tw_extent_of a) {
    return tw_extent_make(a.rows, v.cols * 4,
                          a.region == TW_SILU_MUL_REGION_g   ? v.g_stride
                          : a.region == TW_SILU_MUL_REGION_u ? v.u_stride
                                                             : v.h_stride);
}

static inline struct tw_extent tw_extent_gelu_mul(struct tw_numbers_gelu_mul v,
                                                  struct tw_extent_of a) {
    return tw_extent_make(a.rows, v.cols * 4,
                          a.region == TW_GELU_MUL_REGION_g   ? v.g_stride
                          : a.region == TW_GELU_MUL_REGION_u ? v.u_stride
                                                             : v.h_stride);
}

/* Of x or y, where each of `cols` elements of y is made of one of x. */
static inline struct tw_extent tw_extent_each(struct tw_extent_of a, bool x, uint64_t cols,
                                              uint64_t x_stride, uint64_t y_stride) {
    return tw_extent_make(a.rows, cols * 4, x ? x_stride : y_stride);
}

static inline struct tw_extent tw_extent_gelu(struct tw_numbers_gelu v, struct tw_extent_of a) {
    return tw_extent_each(a, a.region == TW_GELU_REGION_x, v.cols, v.x_stride, v.y_stride);
}

static inline struct tw_extent tw_extent_scale(struct tw_numbers_scale v, struct tw_extent_of a) {
    return tw_extent_each(a, a.region == TW_SCALE_REGION_x, v.cols, v.x_stride, v.y_stride);
}

static inline struct tw_extent tw_extent_soft_cap(struct tw_numbers_soft_cap v,
                                                  struct tw_extent_of a) {
    return tw_extent_each(a, a.region == TW_SOFT_CAP_REGION_x, v.cols, v.x_stride, v.y_stride);
}

static inline struct tw_extent tw_extent_pos_scale(struct tw_numbers_pos_scale v,
                                                   struct tw_extent_of a) {
    return a.region == TW_POS_SCALE_REGION_factors
               ? tw_extent_make(1, v.entries * 4, 0)
               : tw_extent_each(a, a.region == TW_POS_SCALE_REGION_x, v.cols, v.x_stride,
                                v.y_stride);
}

static inline struct tw_extent tw_extent_copy(struct tw_numbers_copy v, struct tw_extent_of a) {
    return tw_extent_make(a.rows, v.row_bytes,
                          a.region == TW_COPY_REGION_x ? v.x_stride : v.y_stride);
}

static inline struct tw_extent tw_extent_last_row(struct tw_numbers_last_row v,
                                                  struct tw_extent_of a) {
    return a.region == TW_LAST_ROW_REGION_x ? tw_extent_make(a.rows, v.row_bytes, v.x_stride)
                                            : tw_extent_make(1, v.row_bytes, 0);
}

static inline struct tw_extent tw_extent_topk(struct tw_numbers_topk v, struct tw_extent_of a) {
    return a.region == TW_TOPK_REGION_x
               ? tw_extent_make(a.rows, v.cols * 4, v.x_stride)
               : tw_extent_make(a.rows, v.k * sizeof(struct tw_top), v.y_stride);
}

static inline struct tw_extent tw_extent_topk_merge(struct tw_numbers_topk_merge v,
                                                    struct tw_extent_of a) {
    return tw_extent_make(a.rows, v.k * sizeof(struct tw_top),
                          a.region == TW_TOPK_MERGE_REGION_x   ? v.x_stride
                          : a.region == TW_TOPK_MERGE_REGION_y ? v.y_stride
                                                               : v.z_stride);
}

static inline struct tw_extent tw_extent_fold(struct tw_numbers_fold v, struct tw_extent_of a) {
    return a.region == TW_FOLD_REGION_x ? tw_extent_make(a.rows, v.parts * v.cols * 4, v.x_stride)
                                        : tw_extent_make(a.rows, v.cols * 4, v.y_stride);
}

static inline struct tw_extent tw_extent_squares(struct tw_numbers_squares v,
                                                 struct tw_extent_of a) {
    return a.region == TW_SQUARES_REGION_x ? tw_extent_make(a.rows, v.cols * 4, v.x_stride)
                                           : tw_extent_make(a.rows, 4, v.y_stride);
}

static inline struct tw_extent tw_extent_rms_scale(struct tw_numbers_rms_scale v,
                                                   struct tw_extent_of a) {
    switch (a.region) {
    case TW_RMS_SCALE_REGION_sum:
        return tw_extent_make(a.rows, 4, v.sum_stride);
    case TW_RMS_SCALE_REGION_weight:
        return tw_extent_make(1, v.cols * 4, 0);
    default:
        return tw_extent_make(a.rows, v.cols * 4,
                              a.region == TW_RMS_SCALE_REGION_x ? v.x_stride : v.y_stride);
    }
}

/* Returns the extent of region n (TW_MATMUL_REGION_x) of a data op that runs with `rows` rows; no
 * rows for other ops. x_dtype: dtype of the buffer of region 0 (MATMUL). tensor: the record of the
 * region's tensor for T and U (its whole instance for GATHER's table, KEY_WRITE and VALUE_WRITE),
 * else NULL. */
static inline struct tw_extent tw_op_extent(const struct tw_op *op, uint32_t n, uint64_t rows,
                                            unsigned x_dtype, const struct tw_tensor *tensor) {
    struct tw_extent_of a = {n, x_dtype, rows, tensor ? tensor->bytes : 0};
    switch (op->code) {
#define TW_EXTENT_CONTROL(number, name)
#define TW_EXTENT_DATA(number, name) \
    case number:                     \
        return tw_extent_##name(tw_numbers_##name(op), a);
#define TW_OP(NAME, number, name, engines, part) TW_EXTENT_##part(number, name)
#include "tilewright/ops.def"
#undef TW_OP
    default:
        return tw_extent_make(0, 0, 0);
    }
}

#ifdef __cplusplus
}
#endif
#endif
