/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a program's bytes lie in the SRAM of each site. Activations come first, each at one offset
 * on all sites that have it; behind them the private memory of the phases, which share it, since a
 * rendezvous lies between any two.
 */
#ifndef TW_COMPILER_SPATIAL_RESIDENCY_H
#define TW_COMPILER_SPATIAL_RESIDENCY_H

#include "compiler/spatial/unify.h"

#include <stdio.h>

struct tw_residency {
    uint32_t n_sites;
    uint64_t *offset; /* by tensor of the program: UINT64_MAX: it has no buffer */
    uint64_t *bytes;
    uint64_t shared;  /* end of the activations */
    uint64_t **sites; /* by tensor: a bit for each site that holds it; NULL: none */
    uint64_t *top;    /* by site: scratch */
};

/* Places the activations. Two that share no site may lie at one place. With `colour`, so may two
 * that share no phase, and the private memory of a phase may lie where an activation is that it
 * comes before or after; else each has bytes of its own. */
void tw_residency_plan(const struct tw_composition *c, const struct tw_unified *n,
                       struct tw_residency *out);

/* Where the private memory of each of the sections [first, first + n), which run at once, begins:
 * as low as those before it on its sites allow. `private_bytes`: what the fullest site has of them.
 * Errors: residency_overflow, phase_overflow. */
int tw_residency_phase(const struct tw_composition *c, const struct tw_unified *u,
                       const struct tw_residency *r, uint32_t first, uint32_t n, uint64_t *bases,
                       uint64_t *private_bytes, tw_error *err);

#endif
