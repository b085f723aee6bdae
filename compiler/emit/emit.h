/* SPDX-License-Identifier: Apache-2.0
 *
 * Emission: from composed programs to a bundle. Gives every tensor instance a symbol and a binding
 * row, spreads weights over the target's banks, and packs weights as the file is written.
 */
#ifndef TW_COMPILER_EMIT_EMIT_H
#define TW_COMPILER_EMIT_EMIT_H

#include "compiler/emit/bundle_write.h"
#include "compiler/graph/graph.h"
#include "compiler/spatial/certify.h"
#include "compiler/spatial/program_builder.h"

/* What to emit; nothing is owned. */
struct tw_emit_input {
    const struct tw_graph *graph;
    const struct tw_target *target;
    uint32_t n_programs;
    struct tw_builder **programs;              /* with one common string pool */
    const struct tw_certificate *certificates; /* of the programs; used by tw_emit_bundle() only */
    uint32_t n_ctx;
    /* text for `inspect --plan` */
    const char *plan;
    /* may be NULL */
    void (*progress)(void *ctx, const char *what, uint64_t done, uint64_t total);
    void *ctx;
};

/* Sizes of a bundle's content: bytes of weights and of state, number of weights in the model. */
struct tw_emit_totals {
    uint64_t param_bytes, state_bytes, n_params;
};

/* Assigns symbols and binding rows: sets bind_first of every tensor of every program. To be called
 * once, before the programs are verified as a whole. The symbols belong to the graph's arena. */
struct tw_emit_spec tw_emit_bind(const struct tw_emit_input *in, struct tw_emit_totals *totals);

/* Completes a copy of `spec` with note, vocabulary, certificates and texts, and writes the bundle.
 * Errors: those of tw_bundle_write(); RANGE (a weight is not finite). */
int tw_emit_bundle(const struct tw_emit_input *in, const struct tw_emit_spec *spec,
                   const char *path, tw_error *err);

#endif
