/* SPDX-License-Identifier: Apache-2.0
 *
 * Sections: a placed LowProgram as engine programs. Each site's work list is split over its LOAD,
 * MATH and STORE engines, which meet through FIFOs; sites meet through multicasts and semaphores. A
 * section names the repeated instance as loop variable 1 and leaves the loop and the closing
 * rendezvous to compose.
 */
#ifndef TW_COMPILER_SPATIAL_SECTION_H
#define TW_COMPILER_SPATIAL_SECTION_H

#include "compiler/low/low.h"
#include "compiler/spatial/program_builder.h"

struct tw_section_config {
    uint32_t n_ctx; /* positions that may be fed */
    /* of the state: a multiple of TW_KV_BLOCK, at least n_ctx + the largest rows of a program */
    uint32_t n_positions;
    uint32_t index; /* of the section in its program: makes loop ids unique */
};

/* Errors: INTERNAL. */
int tw_section_build(const struct tw_low *low, const struct tw_section_config *config,
                     struct tw_strpool *strings, struct tw_builder *out, tw_error *err);

#endif
