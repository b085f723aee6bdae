/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the parts of a quantised panel are, written from tilewright-machine(7) and not from the
 * code that packs: segments of 256 columns, each its scales and then its quants.
 */
#ifndef TW_TESTS_SUPPORT_PANEL_LAYOUT_H
#define TW_TESTS_SUPPORT_PANEL_LAYOUT_H

#include "tilewright/machine.h"

/* Returns the bytes of the quants of 32 columns for 16 rows: 64 for each bit of a quant. */
static inline size_t panel_quants_bytes(unsigned dtype) {
    switch (dtype) {
    case TW_DT_Q8_0:
        return 64 * 8;
    case TW_DT_Q6_K:
        return 64 * 6;
    case TW_DT_Q5_0:
    case TW_DT_Q5_1:
    case TW_DT_Q5_K:
        return 64 * 5;
    case TW_DT_Q3_K:
        return 64 * 3;
    case TW_DT_Q2_K:
        return 64 * 2;
    default:
        return 64 * 4;
    }
}

/* Returns how many numbers in half precision begin the scales of 16 blocks. */
static inline size_t panel_halves(unsigned dtype) {
    switch (dtype) {
    case TW_DT_MXFP4:
        return 0;
    case TW_DT_Q4_1:
    case TW_DT_Q5_1:
    case TW_DT_Q2_K:
    case TW_DT_Q4_K:
    case TW_DT_Q5_K:
        return 32;
    default:
        return 16;
    }
}

/* Returns the bytes of the scales of 16 blocks. */
static inline size_t panel_scales_bytes(unsigned dtype) {
    size_t halves = panel_halves(dtype) * 2;
    switch (dtype) {
    case TW_DT_MXFP4:
        return 16;
    case TW_DT_Q3_K:
        return halves + 12 * 16;
    case TW_DT_IQ4_XS:
        return halves + 8 * 16;
    case TW_DT_Q2_K:
    case TW_DT_Q4_K:
    case TW_DT_Q5_K:
    case TW_DT_Q6_K:
        return halves + 16 * 16;
    default:
        return halves;
    }
}

/* Returns the bytes of the scales of a segment with that many blocks, and zeros up to a line. */
static inline size_t panel_scales_area(unsigned dtype, uint32_t blocks) {
    return (blocks * panel_scales_bytes(dtype) + 63) / 64 * 64;
}

/* Returns the byte offset of the segment that 32 columns, number n, belong to. */
static inline size_t panel_segment_at(unsigned dtype, uint32_t n) {
    return n / 8 *
           (panel_scales_area(dtype, 256 / tw_dtype_block_elems(dtype)) +
            8 * panel_quants_bytes(dtype));
}

/* Returns the byte offset of the quants of 32 columns, number n, in a panel of k columns. */
static inline size_t panel_quants_at(unsigned dtype, uint32_t k, uint32_t n) {
    uint32_t left = k - n / 8 * 256,
             blocks = (left < 256 ? left : 256) / tw_dtype_block_elems(dtype);
    return panel_segment_at(dtype, n) + panel_scales_area(dtype, blocks) +
           n % 8 * panel_quants_bytes(dtype);
}

/* Returns the byte offset of the scales of a block in a panel. */
static inline size_t panel_scales_at(unsigned dtype, uint32_t block) {
    uint32_t per_segment = 256 / tw_dtype_block_elems(dtype);
    return panel_segment_at(dtype, block / per_segment * 8) +
           block % per_segment * panel_scales_bytes(dtype);
}

#endif
