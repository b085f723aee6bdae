/* SPDX-License-Identifier: Apache-2.0 Weights that are no numbers, found while they are packed: one
 * of them makes every logit a NaN, and nothing would name the tensor any more. */
#ifndef TW_COMPILER_EMIT_FINITE_H
#define TW_COMPILER_EMIT_FINITE_H

#include "compiler/import/model.h"

/* RANGE if a value (or a block's scale) in rows [first, first + rows), whose bytes are at `data`, is
 * infinite or a NaN; names tensor, row and column. */
int tw_check_finite(const struct tw_model_tensor *t, const uint8_t *data, uint32_t first,
                    uint32_t rows, tw_error *err);

#endif
