/* SPDX-License-Identifier: Apache-2.0
 *
 * Pinning of Params: which ones stay in SRAM for all programs of a bundle, and which are loaded
 * from DRAM in every step.
 */
#ifndef TW_COMPILER_LOW_PIN_PARAMS_H
#define TW_COMPILER_LOW_PIN_PARAMS_H

#include "compiler/graph/graph.h"
#include "tilewright/target.h"

/* Pins (sets `resident` of) the vectors that every site reads in every step: weights of norms,
 * frequencies of the rotation. Either all instances of a vector stay or none. Vectors are taken in
 * the order of the graph as long as they fit into an eighth of the memory class that the target
 * gives to Params, or all of it if nothing else goes there. Returns the bytes taken per site. */
uint64_t tw_pin_params(struct tw_graph *graph, const struct tw_target *target);

/* Returns the bytes of a memory class of each site that a program of `rows` tokens gives to pinned
 * Params and to the values that cross regions, in the shapes that compiler/low gives them. */
uint64_t tw_pin_shared_bytes(const struct tw_graph *graph, const struct tw_target *target,
                             uint32_t mem_class, uint32_t rows);

/* Returns the bytes from one instance of a resident Param to the next. */
static inline uint64_t tw_pinned_stride(const struct tw_gvalue *v) {
    return (tw_row_bytes(v->dtype, v->cols) + 63) / 64 * 64;
}

#endif
