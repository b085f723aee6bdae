/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of a model file as floats.
 */
#ifndef TW_COMPILER_GRAPH_DEQUANT_H
#define TW_COMPILER_GRAPH_DEQUANT_H

#include "compiler/import/model.h"

/* Converts row `row` (below t->rows) of a tensor to floats in out[0 .. t->cols). Exact: every type
 * converts to float without rounding, except those with minima, whose sum is rounded once
 * (tilewright/quants.h). The tensor's data need not be aligned. */
void tw_dequant_row(const struct tw_model_tensor *t, uint32_t row, float *out);

#endif
