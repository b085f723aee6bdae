/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that weights are finite (compiler/emit/finite.h): a number is not if all bits of its
 * exponent are set. Whole rows are scanned by a loop that compilers vectorise; only in a bad row is
 * the position searched for.
 */
#include "compiler/emit/finite.h"

#include <string.h>

#define F32_EXPONENT 0x7F800000u
#define F16_EXPONENT 0x7C00u
#define BF16_EXPONENT 0x7F80u

static bool bad_f32(const uint8_t *row, uint32_t i) {
    uint32_t v;
    memcpy(&v, row + (size_t)i * 4, 4);
    return (v & F32_EXPONENT) == F32_EXPONENT;
}

/* `stride` is the number of bytes from one number to the next. */
static bool bad_half(const uint8_t *row, uint32_t i, uint32_t stride, uint32_t exponent) {
    uint16_t v;
    memcpy(&v, row + (size_t)i * stride, 2);
    return (v & exponent) == exponent;
}

static uint32_t count_f32(const uint8_t *row, uint32_t n) {
    uint32_t bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        bad += bad_f32(row, i);
    }
    return bad;
}

static uint32_t count_half(const uint8_t *row, uint32_t n, uint32_t stride, uint32_t exponent) {
    uint32_t bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        bad += bad_half(row, i, stride, exponent);
    }
    return bad;
}

/* Returns true if byte i of a row of MXFP4 blocks' scales makes the largest value of a block
 * infinite, 12 * 2^(e - 128). */
static bool bad_mxfp4(const uint8_t *row, uint32_t i, uint32_t stride) {
    return row[(size_t)i * stride] >= 253;
}

static uint32_t count_mxfp4(const uint8_t *row, uint32_t n, uint32_t stride) {
    uint32_t bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        bad += bad_mxfp4(row, i, stride);
    }
    return bad;
}

/* Positions of a type's numbers in a row: one in `block` columns and `stride` bytes, `at` bytes
 * from the start of these, and perhaps a second one at `second` (else the same). */
struct layout {
    uint32_t stride, block, at, second;
};

static struct layout layout_of(unsigned dtype) {
    uint32_t stride = tw_dtype_block_bytes(dtype), block = tw_dtype_block_elems(dtype);
    switch (dtype) {
    case TW_DT_Q4_1:
    case TW_DT_Q5_1:
    case TW_DT_Q4_K:
    case TW_DT_Q5_K:
        return (struct layout){stride, block, 0, 2};
    case TW_DT_Q2_K:
        return (struct layout){stride, block, 80, 82};
    case TW_DT_Q3_K:
        return (struct layout){stride, block, 108, 108};
    case TW_DT_Q6_K:
        return (struct layout){stride, block, 208, 208};
    default:
        return (struct layout){stride, block, 0, 0};
    }
}

/* Return true if number i of a row is infinite or NaN, and how many of the first n are. */
static bool bad_number(unsigned dtype, const uint8_t *row, uint32_t i, struct layout l) {
    switch (dtype) {
    case TW_DT_F32:
        return bad_f32(row, i);
    case TW_DT_MXFP4:
        return bad_mxfp4(row, i, l.stride);
    case TW_DT_BF16:
        return bad_half(row, i, l.stride, BF16_EXPONENT);
    default:
        return bad_half(row + l.at, i, l.stride, F16_EXPONENT) ||
               bad_half(row + l.second, i, l.stride, F16_EXPONENT);
    }
}

static uint32_t count_numbers(unsigned dtype, const uint8_t *row, uint32_t n, struct layout l) {
    switch (dtype) {
    case TW_DT_F32:
        return count_f32(row, n);
    case TW_DT_MXFP4:
        return count_mxfp4(row, n, l.stride);
    case TW_DT_BF16:
        return count_half(row, n, l.stride, BF16_EXPONENT);
    default:
        return count_half(row + l.at, n, l.stride, F16_EXPONENT) +
               (l.second != l.at ? count_half(row + l.second, n, l.stride, F16_EXPONENT) : 0);
    }
}

static int fail_not_finite(const struct tw_model_tensor *t, uint32_t row, const uint8_t *bytes,
                           struct layout l, tw_error *err) {
    uint32_t i = 0;
    while (!bad_number(t->dtype, bytes, i, l)) {
        i++;
    }
    return tw_fail(err, TW_E_RANGE,
                   "tensor %s: the %s at row %u, column %u is infinite or not a number: the model "
                   "is damaged, or its conversion overflowed",
                   t->name, l.block > 1 ? "scale of the block" : "weight", row, i * l.block);
}

int tw_check_finite(const struct tw_model_tensor *t, const uint8_t *data, uint32_t first,
                    uint32_t rows, tw_error *err) {
    struct layout l = layout_of(t->dtype);
    uint64_t row_bytes = tw_row_bytes(t->dtype, t->cols);
    uint32_t n = t->cols / l.block;
    for (uint32_t r = first; r < first + rows; r++) {
        const uint8_t *row = data + (r - first) * row_bytes;
        if (count_numbers(t->dtype, row, n, l)) {
            return fail_not_finite(t, r, row, l, err);
        }
    }
    return 0;
}
