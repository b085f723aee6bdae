/* SPDX-License-Identifier: Apache-2.0
 *
 * Floats as weights of another type, rounded as the format's reference quantiser does (ggml's
 * quantize_row_*_ref).
 */
#ifndef TW_COMPILER_GRAPH_QUANTISE_H
#define TW_COMPILER_GRAPH_QUANTISE_H

#include "tilewright/machine.h"

/* Converts n finite floats, whole blocks of `to` (Q8_0, Q4_0 or F16), to tw_row_bytes(to, n) bytes
 * at `out`, at any alignment. What is too large for a half, a value or a block's scale, becomes
 * infinite: the caller checks (compiler/emit/finite.h). */
void tw_quantise_row(enum tw_dtype to, const float *x, uint32_t n, uint8_t *out);

#endif
