/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing of weights into PANEL16 panels (tilewright/machine.h) from row-major rows in the form of
 * model files.
 */
#ifndef TW_COMPILER_EMIT_PACK_H
#define TW_COMPILER_EMIT_PACK_H

#include "tilewright/machine.h"

/* Packs `rows` (0 to 16) rows of k elements of a type of weights (TW_WEIGHT_DTYPES; k a multiple of
 * the dtype's block) into the one panel `dst` of tw_panel_bytes(dtype, k) bytes, all of which are
 * written. Row r is at src_rows + r*src_row_bytes, in the file's own format and at any alignment;
 * only tw_row_bytes(dtype, k) bytes of each are read. The missing rows become weights with
 * scale 0. `dst` is aligned to 64 bytes and does not overlap the source. */
void tw_pack_panel(enum tw_dtype dtype, const uint8_t *src_rows, uint64_t src_row_bytes,
                   uint32_t rows, uint32_t k, uint8_t *dst);

#endif
