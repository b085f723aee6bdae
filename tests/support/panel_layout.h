/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the parts of a quantised panel are, written from tilewright-machine(7) and not from the
 * code that packs: segments of eight blocks, each its quants and then its scales.
 */
#ifndef TW_TESTS_SUPPORT_PANEL_LAYOUT_H
#define TW_TESTS_SUPPORT_PANEL_LAYOUT_H

#include "tilewright/machine.h"

/* Returns the bytes of a block's quants for 16 rows. */
static inline size_t panel_quants_bytes(unsigned dtype) {
    return dtype == TW_DT_Q8_0 ? 16 * 32 : 16 * 16;
}

/* Returns the byte offset of the quants of a block of 32 columns. */
static inline size_t panel_quants_at(unsigned dtype, uint32_t block) {
    size_t segment = 8 * (panel_quants_bytes(dtype) + 16 * 2);
    return block / 8 * segment + block % 8 * panel_quants_bytes(dtype);
}

/* Returns the byte offset of the 16 scales of a block in a panel of k columns. */
static inline size_t panel_scales_at(unsigned dtype, uint32_t k, uint32_t block) {
    uint32_t first = block / 8 * 8, left = k / 32 - first;
    return panel_quants_at(dtype, first) + (left < 8 ? left : 8) * panel_quants_bytes(dtype) +
           (size_t)(block - first) * 32;
}

#endif
