/* SPDX-License-Identifier: Apache-2.0
 *
 * Large kernel calls in parts. A MATMUL may fill the SRAM of a site, and then takes seconds on a
 * slow processor; a few panels at a time give the same bits, as no output depends on another.
 */
#ifndef TW_FIRMWARE_CORE_KERNEL_PARTS_H
#define TW_FIRMWARE_CORE_KERNEL_PARTS_H

#include "firmware/kernels/kernels.h"

/* Multiply-adds: of a part (a few milliseconds of a vector unit), and of a call that is worth a
 * look for a cancel. */
#define TW_PART_WORK ((uint64_t)1 << 24)
#define TW_LOOK_WORK ((uint64_t)1 << 18)

/* Returns the multiply-adds of a data op's call; 0 for ops whose work is in proportion to the bytes
 * that they touch. */
static inline uint64_t tw_call_work(uint32_t code, const struct tw_kargs *k) {
    if (code == TW_OP_MATMUL) {
        const struct tw_args_matmul v = tw_args_matmul(k);
        return (uint64_t)v.rows * v.k * v.panels * TW_PANEL_ROWS;
    }
    if (code == TW_OP_ATTN_STEP || code == TW_OP_ATTN_WINDOW) { /* which begins alike */
        const struct tw_args_attn_step v = tw_args_attn_step(k);
        return (uint64_t)v.rows * v.heads * v.head_dim * (2 * TW_KV_BLOCK);
    }
    return 0;
}

/* Returns the number of panels in a part of a MATMUL: at least 1. */
static inline uint32_t tw_part_panels(const struct tw_kargs *k) {
    const struct tw_args_matmul v = tw_args_matmul(k);
    uint64_t panel = (uint64_t)v.rows * v.k * TW_PANEL_ROWS, n = panel ? TW_PART_WORK / panel : 1;
    return n < 1 ? 1 : n < v.panels ? (uint32_t)n : v.panels;
}

/* Fills in *part, the n panels of the MATMUL *k from number `first` on. */
static inline void tw_part_of(const struct tw_kargs *k, uint32_t first, uint32_t n,
                              struct tw_kargs *part) {
    const struct tw_args_matmul v = tw_args_matmul(k);
    *part = *k;
    part->p[TW_MATMUL_REGION_w] = (uint8_t *)k->p[TW_MATMUL_REGION_w] + (size_t)first * v.w_stride;
    part->p[TW_MATMUL_REGION_y] =
        (uint8_t *)k->p[TW_MATMUL_REGION_y] + (size_t)first * TW_PANEL_ROWS * sizeof(float);
    part->i[TW_MATMUL_IMM_panels] = v.panels - first < n ? v.panels - first : n;
}

#endif
