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

/* Positions of a type's numbers in a row: `stride` bytes apart, each for `block` columns; stride 4
 * means F32. */
struct layout {
    uint32_t stride, block, exponent;
};

static struct layout layout_of(enum tw_dtype dtype) {
    switch (dtype) {
    case TW_DT_F16:
        return (struct layout){2, 1, F16_EXPONENT};
    case TW_DT_BF16:
        return (struct layout){2, 1, BF16_EXPONENT};
    case TW_DT_Q8_0:
        return (struct layout){34, 32, F16_EXPONENT};
    case TW_DT_Q4_0:
        return (struct layout){18, 32, F16_EXPONENT};
    case TW_DT_F32:
    case TW_DT_I32:
    case TW_DT_Q8S:
    case TW_DT_U8:
    case TW_DT_COUNT:
        break;
    }
    return (struct layout){4, 1, F32_EXPONENT};
}

static int fail_not_finite(const struct tw_model_tensor *t, uint32_t row, const uint8_t *bytes,
                           struct layout l, tw_error *err) {
    uint32_t i = 0;
    while (!(l.stride == 4 ? bad_f32(bytes, i) : bad_half(bytes, i, l.stride, l.exponent))) {
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
        if (l.stride == 4 ? count_f32(row, n) : count_half(row, n, l.stride, l.exponent)) {
            return fail_not_finite(t, r, row, l, err);
        }
    }
    return 0;
}
