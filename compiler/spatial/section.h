/* SPDX-License-Identifier: Apache-2.0
 *
 * Sections: a placed LowProgram as engine programs. Each site's work list is split over its LOAD,
 * MATH and STORE engines, which are connected by FIFOs; sites are connected by multicasts and
 * semaphores. A section refers to the repeated instance as loop variable 1 and leaves the loop and
 * the closing rendezvous to composition.
 */
#ifndef TW_COMPILER_SPATIAL_SECTION_H
#define TW_COMPILER_SPATIAL_SECTION_H

#include "compiler/low/low.h"
#include "compiler/spatial/program_builder.h"

#include <stdbool.h>

/* Numbers that a section needs and its LowProgram does not have. */
struct tw_section_config {
    uint32_t n_ctx; /* positions that may be fed */
    /* positions of the state: a multiple of TW_KV_BLOCK, at least n_ctx + the largest rows of a
     * program */
    uint32_t n_positions;
    /* 0: page i of the state holds positions from i * TW_KV_BLOCK on. Else the pages of the state;
     * the Input "pages", a table of n_positions / TW_KV_BLOCK numbers, says which are used. */
    uint32_t kv_pages;
    /* Of states that are read through windows: they keep the last positions only, which are counted
     * from an origin, a multiple of TW_KEY_SEGMENT, that the Inputs "pos.window", "end.window" and
     * "pages.window" have in common. The same numbers as n_ctx and n_positions, counted from there.
     * 0: such states keep all positions. */
    uint32_t window_ctx, window_positions;
    /* Each row of a step is a token of any sequence at any position, and has its own element of the
     * Inputs (struct tw_program describes them); needs kv_pages and a graph that tw_graph_all_rows
     * has made. Else the rows are consecutive tokens of one sequence. */
    bool batch;
    uint32_t index; /* of the section in its program; makes loop ids unique */
};

/* Stores the section in *out, allocated in the graph's arena, with its names in `strings`. Errors:
 * INTERNAL. */
int tw_section_build(const struct tw_low *low, const struct tw_section_config *config,
                     struct tw_strpool *strings, struct tw_builder *out, tw_error *err);

#endif
