/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights to floats: one loop a type, every value read byte by byte because the file aligns
 * nothing.
 */
#include "compiler/graph/dequant.h"

#include "tilewright/numerics.h"

#include <string.h>

static float half_at(const uint8_t *p) {
    return tw_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static float bfloat_at(const uint8_t *p) {
    return tw_bf16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static float float_at(const uint8_t *p) {
    return tw_bits_float((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                         (uint32_t)p[3] << 24);
}

/* {scale f16, 32 signed bytes}: d*q */
static void q8_0_block(const uint8_t *p, float *out) {
    float d = half_at(p);
    for (uint32_t i = 0; i < 32; i++) {
        out[i] = d * (float)(int8_t)p[2 + i];
    }
}

/* {scale f16, 16 bytes}: the low nibbles are the first 16 elements, the high ones the others: d*(n
 * - 8) */
static void q4_0_block(const uint8_t *p, float *out) {
    float d = half_at(p);
    for (uint32_t i = 0; i < 16; i++) {
        out[i] = d * (float)((p[2 + i] & 15) - 8);
        out[16 + i] = d * (float)((p[2 + i] >> 4) - 8);
    }
}

void tw_dequant_row(const struct tw_model_tensor *t, uint32_t row, float *out) {
    const uint8_t *p = t->data + tw_row_bytes(t->dtype, t->cols) * row;
    uint32_t step = tw_dtype_block_elems(t->dtype);
    for (uint32_t i = 0; i < t->cols; i += step, p += tw_dtype_block_bytes(t->dtype)) {
        switch (t->dtype) {
        case TW_DT_F32:
            out[i] = float_at(p);
            break;
        case TW_DT_F16:
            out[i] = half_at(p);
            break;
        case TW_DT_BF16:
            out[i] = bfloat_at(p);
            break;
        case TW_DT_Q8_0:
            q8_0_block(p, out + i);
            break;
        case TW_DT_Q4_0:
            q4_0_block(p, out + i);
            break;
        case TW_DT_I32:
        case TW_DT_Q8S:
        case TW_DT_U8:
        case TW_DT_COUNT:
            break; /* no weight has them: the importers refuse them */
        }
    }
}
