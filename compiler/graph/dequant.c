/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts weights to floats. Values are read byte by byte because the file
 * aligns nothing.
 */
#include "compiler/graph/dequant.h"

#include "tilewright/quants.h"

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

void tw_dequant_row(const struct tw_model_tensor *t, uint32_t row, float *out) {
    const uint8_t *p =
        t->data + tw_row_bytes(t->dtype, t->cols) * tw_model_source_row(row, t->head_rows);
    uint32_t step = tw_dtype_block_elems(t->dtype);
    for (uint32_t i = 0; i < t->cols; i += step, p += tw_dtype_block_bytes(t->dtype)) {
        struct tw_block block;
        switch ((unsigned)t->dtype) {
        case TW_DT_F32:
            out[i] = float_at(p);
            break;
        case TW_DT_F16:
            out[i] = half_at(p);
            break;
        case TW_DT_BF16:
            out[i] = bfloat_at(p);
            break;
        default: /* importers refuse tensors of other types */
            tw_block_of_file(t->dtype, p, &block);
            tw_block_floats(&block, block.elems, out + i);
            break;
        }
    }
}
