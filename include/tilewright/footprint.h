/* SPDX-License-Identifier: Apache-2.0
 *
 * What bytes an op touches: the extent of each of its regions, from its operands alone. Shared by
 * the verifier (with the largest row count), the strict interpreter (with the step's) and the plan
 * builder.
 */
#ifndef TILEWRIGHT_FOOTPRINT_H
#define TILEWRIGHT_FOOTPRINT_H

#include "tilewright/opcode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rows rows of row_bytes bytes, the next row `stride` bytes further. rows = 0: nothing is
 * touched. */
struct tw_extent {
    uint64_t rows, row_bytes, stride;
};

/* Bytes from the first to behind the last; wraps only for absurd strides, which the verifier
 * refuses (strides are u32). */
static inline uint64_t tw_extent_span(struct tw_extent e) {
    return e.rows == 0 ? 0 : (e.rows - 1) * e.stride + e.row_bytes;
}

/* The n-th immediate (letter I) of an op, or 0. */
static inline uint32_t tw_op_imm(const struct tw_op *op, uint32_t n) {
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (op->operand[i].kind == 'I' && n-- == 0) {
            return op->operand[i].id;
        }
    }
    return 0;
}

/* The n-th operand that is a region (R W M T U), or NULL. */
static inline const struct tw_operand *tw_op_region(const struct tw_op *op, uint32_t n) {
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (tw_letter_in("RWMTU", op->operand[i].kind) && n-- == 0) {
            return &op->operand[i];
        }
    }
    return NULL;
}

/* The n-th row count (letter X), or NULL. The last X of an op is its rows; with two, the first is
 * the position. */
static inline const struct tw_operand *tw_op_count(const struct tw_op *op, uint32_t n) {
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (op->operand[i].kind == 'X' && n-- == 0) {
            return &op->operand[i];
        }
    }
    return NULL;
}

static inline struct tw_extent tw_extent_make(uint64_t rows, uint64_t row_bytes, uint64_t stride) {
    struct tw_extent e = {rows, row_bytes, stride};
    return e;
}

/* Extent of region n of a data op that runs with `rows` rows. x_dtype: dtype of the buffer of
 * region 0 (MATMUL). tensor: the record of the region's tensor for T and U (its whole instance for
 * GATHER's table, KEY_WRITE and VALUE_WRITE), else NULL. */
static inline struct tw_extent tw_op_extent(const struct tw_op *op, uint32_t n, uint64_t rows,
                                            unsigned x_dtype, const struct tw_tensor *tensor) {
    uint32_t i[TW_MAX_OPERANDS] = {0}; /* the immediates, in order; 0 beyond */
    for (uint32_t k = 0, n_imm = 0; k < op->n_operands; k++) {
        if (op->operand[k].kind == 'I') {
            i[n_imm++] = op->operand[k].id;
        }
    }
    uint64_t whole = tensor ? tensor->bytes : 0;
    switch (op->code) {
    case TW_OP_READ:
        return tw_extent_make(i[0], i[1], n == 0 ? i[2] : i[3]);
    case TW_OP_GATHER:
        return n == 0   ? tw_extent_make(1, whole, 0)
               : n == 1 ? tw_extent_make(1, rows * 4, 0)
                        : tw_extent_make(rows, (uint64_t)i[1] * 4, i[0]);
    case TW_OP_WRITE:
    case TW_OP_MCAST:
        return tw_extent_make(rows, i[2], n == 0 ? i[0] : i[1]);
    case TW_OP_KEY_WRITE:
    case TW_OP_VALUE_WRITE:
        return n == 0 ? tw_extent_make(rows, (uint64_t)i[2] * i[3] * 4, i[0])
                      : tw_extent_make(1, whole, 0);
    case TW_OP_RMS_NORM:
        return n == 1 ? tw_extent_make(1, (uint64_t)i[2] * 4, 0)
                      : tw_extent_make(rows, (uint64_t)i[2] * 4, n == 0 ? i[0] : i[1]);
    case TW_OP_QUANT:
        return n == 0 ? tw_extent_make(rows, (uint64_t)i[2] * 4, i[0])
                      : tw_extent_make(rows, (uint64_t)i[2] / 32 * 40, i[1]);
    case TW_OP_MATMUL:
        return n == 0
                   ? tw_extent_make(
                         rows, x_dtype == TW_DT_Q8S ? (uint64_t)i[2] / 32 * 40 : (uint64_t)i[2] * 4,
                         i[0])
               : n == 1 ? tw_extent_make(1, i[3] * tw_panel_bytes(i[1], i[2]), 0)
                        : tw_extent_make(rows, (uint64_t)i[3] * 64, i[4]);
    case TW_OP_ROPE_TABLE:
        return n == 0 ? tw_extent_make(1, (uint64_t)i[1] * 4, 0)
                      : tw_extent_make(rows, (uint64_t)i[1] * 8, i[0]);
    case TW_OP_ROPE:
        return n == 0 ? tw_extent_make(rows, (uint64_t)i[2] * i[3] * 4, i[0])
                      : tw_extent_make(rows, (uint64_t)i[4] * 4, i[1]);
    case TW_OP_ATTN_INIT: {
        uint64_t bytes = (uint64_t)i[0] * (i[1] + 2) * 4;
        return tw_extent_make(rows, bytes, bytes);
    }
    case TW_OP_ATTN_STEP: {
        uint64_t bytes = (uint64_t)i[3] * (i[4] + 2) * 4;
        return n == 0   ? tw_extent_make(rows, (uint64_t)i[1] * i[4] * 4, i[0])
               : n == 3 ? tw_extent_make(rows, bytes, bytes)
                        : tw_extent_make(1, (uint64_t)TW_KV_BLOCK * i[4] * 4, 0);
    }
    case TW_OP_ATTN_DONE: {
        uint64_t bytes = (uint64_t)i[1] * (i[2] + 2) * 4;
        return n == 0 ? tw_extent_make(rows, bytes, bytes)
                      : tw_extent_make(rows, (uint64_t)i[1] * i[2] * 4, i[0]);
    }
    case TW_OP_ADD:
    case TW_OP_SILU_MUL:
        return tw_extent_make(rows, (uint64_t)i[3] * 4, i[n]);
    case TW_OP_COPY:
        return tw_extent_make(rows, i[2], i[n]);
    case TW_OP_LAST_ROW:
        return n == 0 ? tw_extent_make(rows, i[1], i[0]) : tw_extent_make(1, i[1], 0);
    default:
        return tw_extent_make(0, 0, 0);
    }
}

#ifdef __cplusplus
}
#endif
#endif
