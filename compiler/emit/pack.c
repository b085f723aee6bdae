/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing of weights into panels: 16 rows are transposed in units of one float, one half, or four
 * quants, a short run of k at a time so that source and destination lines stay in the first-level
 * cache.
 */
#include "compiler/emit/pack.h"

#include <stdbool.h>
#include <string.h>

enum { PANEL = TW_PANEL_ROWS, RUN = 16 };

static void transpose_u32(const uint8_t *src, size_t stride, uint32_t rows, uint32_t k,
                          uint32_t *dst) {
    for (uint32_t from = 0; from < k; from += RUN) {
        uint32_t end = k - from < RUN ? k : from + RUN;
        for (uint32_t r = 0; r < rows; r++) {
            const uint8_t *row = src + stride * r;
            for (uint32_t i = from; i < end; i++) {
                memcpy(&dst[(size_t)i * PANEL + r], row + (size_t)i * 4, 4);
            }
        }
    }
}

static void transpose_u16(const uint8_t *src, size_t stride, uint32_t rows, uint32_t k,
                          uint16_t *dst) {
    for (uint32_t from = 0; from < k; from += RUN) {
        uint32_t end = k - from < RUN ? k : from + RUN;
        for (uint32_t r = 0; r < rows; r++) {
            const uint8_t *row = src + stride * r;
            for (uint32_t i = from; i < end; i++) {
                memcpy(&dst[(size_t)i * PANEL + r], row + (size_t)i * 2, 2);
            }
        }
    }
}

/* Packs one block. Both formats are a half-precision scale and groups of four bytes, which are
 * copied to the row's lane, for Q8_0 with the sign bits flipped to the panel's offset form. ggml's
 * Q4_0 keeps k and k + 16 in the nibbles of one byte, as the panel does. */
static void pack_block(const uint8_t *block, uint32_t groups, uint32_t flip, uint8_t *quants,
                       uint8_t *scale) {
    memcpy(scale, block, 2);
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t four;
        memcpy(&four, block + 2 + g * 4, 4);
        four ^= flip;
        memcpy(quants + g * PANEL * 4, &four, 4);
    }
}

/* Packs a block of a row that does not exist: zero weights with scale 0. */
static void clear_block(uint32_t groups, uint32_t zero, uint8_t *quants, uint8_t *scale) {
    memset(scale, 0, 2);
    for (uint32_t g = 0; g < groups; g++) {
        memcpy(quants + g * PANEL * 4, &zero, 4);
    }
}

/* Packs the blocks of one segment: quants, scales, zeros up to a whole line. */
static void pack_segment(enum tw_dtype dtype, const uint8_t *src, size_t stride, uint32_t rows,
                         uint32_t elems, uint8_t *dst) {
    const bool q8 = dtype == TW_DT_Q8_0;
    const uint32_t groups = q8 ? 8 : 4, flip = q8 ? 0x80808080u : 0,
                   zero = q8 ? 0x80808080u : 0x88888888u, blocks = elems / 32;
    const size_t block_bytes = tw_dtype_block_bytes(dtype),
                 quant_bytes = (size_t)groups * PANEL * 4;
    uint8_t *scales = dst + tw_segment_quants_bytes(dtype, elems),
            *end = scales + (size_t)blocks * PANEL * 2;
    for (uint32_t b = 0; b < blocks; b++) {
        uint8_t *quants = dst + b * quant_bytes, *scale = scales + (size_t)b * PANEL * 2;
        for (uint32_t r = 0; r < rows; r++) {
            pack_block(src + stride * r + b * block_bytes, groups, flip, quants + r * 4,
                       scale + r * 2);
        }
        for (uint32_t r = rows; r < PANEL; r++) {
            clear_block(groups, zero, quants + r * 4, scale + r * 2);
        }
    }
    memset(end, 0, (size_t)(dst + tw_segment_bytes(dtype, elems) - end));
}

static void pack_quants(enum tw_dtype dtype, const uint8_t *src, size_t stride, uint32_t rows,
                        uint32_t k, uint8_t *dst) {
    for (uint32_t from = 0; from < k; from += TW_SUM_SEGMENT) {
        uint32_t elems = k - from < TW_SUM_SEGMENT ? k - from : TW_SUM_SEGMENT;
        pack_segment(dtype, src + tw_row_bytes(dtype, from), stride, rows, elems,
                     dst + tw_panel_offset(dtype, from));
    }
}

void tw_pack_panel(enum tw_dtype dtype, const uint8_t *src_rows, uint64_t src_row_bytes,
                   uint32_t rows, uint32_t k, uint8_t *dst) {
    size_t stride = (size_t)src_row_bytes, bytes = (size_t)tw_panel_bytes(dtype, k);
    if (dtype == TW_DT_Q8_0 || dtype == TW_DT_Q4_0) {
        pack_quants(dtype, src_rows, stride, rows, k, dst);
        return;
    }
    if (rows < PANEL) {
        memset(dst, 0, bytes);
    }
    if (dtype == TW_DT_F32) {
        transpose_u32(src_rows, stride, rows, k, (uint32_t *)(void *)dst);
    } else if (dtype == TW_DT_F16 || dtype == TW_DT_BF16) {
        transpose_u16(src_rows, stride, rows, k, (uint16_t *)(void *)dst);
    }
}
