/* SPDX-License-Identifier: Apache-2.0
 *
 * A model file's weights as floats.
 */
#ifndef TW_COMPILER_GRAPH_DEQUANT_H
#define TW_COMPILER_GRAPH_DEQUANT_H

#include "compiler/import/model.h"

/* out[0 .. t->cols) = row `row` (below t->rows) of the tensor. Exact: every type converts to float
 * without rounding, but for Q8_0 and Q4_0, whose product of scale and quant is rounded once. The
 * tensor's data needs no alignment. */
void tw_dequant_row(const struct tw_model_tensor *t, uint32_t row, float *out);

#endif
