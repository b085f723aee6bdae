/* SPDX-License-Identifier: Apache-2.0
 *
 * How a section uses each of its tensors and buffers, derived from its ops and trips through the op
 * table and from none of its declarations.
 */
#ifndef TW_COMPILER_SPATIAL_TENSOR_USES_H
#define TW_COMPILER_SPATIAL_TENSOR_USES_H

#include "compiler/spatial/program_builder.h"

#include <stdbool.h>

/* All uses of one tensor. */
struct tw_use {
    bool reads, writes;
    bool converts; /* every read converts from any weight type (the table of a GATHER) */
};

/* Stores one entry per tensor, in the builder's arena. Errors: INTERNAL (code that does not decode,
 * an id outside its table). */
int tw_builder_tensor_uses(const struct tw_builder *u, struct tw_use **uses, tw_error *err);

/* Stores the lowest and the highest id of a loop over a trip; returns false if the program has
 * none. The code must decode. */
bool tw_builder_loop_ids(const struct tw_builder *u, uint32_t *first, uint32_t *last);

#endif
