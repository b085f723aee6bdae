/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that weights are finite while they are packed: a single NaN or infinity would make every
 * logit a NaN, with nothing left to name the tensor.
 */
#ifndef TW_COMPILER_EMIT_FINITE_H
#define TW_COMPILER_EMIT_FINITE_H

#include "compiler/import/model.h"

/* Checks rows [first, first + rows) of a tensor, whose bytes are at `data`. Errors: RANGE if a
 * value (or a block's scale) is infinite or a NaN, naming tensor, row and column. */
int tw_check_finite(const struct tw_model_tensor *t, const uint8_t *data, uint32_t first,
                    uint32_t rows, tw_error *err);

#endif
