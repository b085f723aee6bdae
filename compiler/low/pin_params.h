/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of a deployment: which Params stay in SRAM for all programs of a bundle, and which are
 * loaded from DRAM in every step.
 */
#ifndef TW_COMPILER_LOW_PIN_PARAMS_H
#define TW_COMPILER_LOW_PIN_PARAMS_H

#include "compiler/graph/graph.h"
#include "tilewright/target.h"

/* Marks (`resident`) the vectors that each step reads on every site: weights of norms, frequencies
 * of the rotation. All their instances stay, in order of the graph, as long as they take no more
 * than an eighth of a site's SRAM together. Returns what they take. */
uint64_t tw_pin_params(struct tw_graph *graph, const struct tw_target *target);

/* SRAM of a site that programs of `rows` tokens give to those, and to the values that cross
 * regions, as low will shape them. */
uint64_t tw_pin_shared_bytes(const struct tw_graph *graph, uint32_t rows);

/* Bytes from one instance of a resident Param to the next. */
static inline uint64_t tw_pinned_stride(const struct tw_gvalue *v) {
    return (tw_row_bytes(v->dtype, v->cols) + 63) / 64 * 64;
}

#endif
