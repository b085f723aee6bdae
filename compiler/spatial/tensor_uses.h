/* SPDX-License-Identifier: Apache-2.0
 *
 * What a section does with each of its tensors and buffers, read from its ops and trips through the
 * op table and from nothing that it declares.
 */
#ifndef TW_COMPILER_SPATIAL_TENSOR_USES_H
#define TW_COMPILER_SPATIAL_TENSOR_USES_H

#include "compiler/spatial/program_builder.h"

#include <stdbool.h>

struct tw_use {
    bool reads, writes;
    bool converts; /* every read converts from any weight type (the table of a GATHER) */
};

/* One entry a tensor, in the unit's arena. Errors: INTERNAL (code that does not decode, an id
 * outside its table). */
int tw_builder_tensor_uses(const struct tw_builder *u, struct tw_use **uses, tw_error *err);

/* What a program needs of a target. Bits: by number of the op, by number of the type. */
struct tw_needs {
    uint64_t ops;
    uint32_t dtypes;
    uint32_t words; /* of semaphores on one site */
    uint32_t chips; /* that it spans; more than one need links */
    uint64_t sram_bytes;
};
int tw_builder_needs(const struct tw_builder *u, struct tw_needs *needs, tw_error *err);

/* The lowest and the highest id of a loop over a trip; false: it has none. */
bool tw_builder_loop_ids(const struct tw_builder *u, uint32_t *first, uint32_t *last);

#endif
