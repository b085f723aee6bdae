/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement of a program's bytes in the SRAM of each site. Activations come first, each at the same
 * offset on all sites that have it; after them comes the private memory of the phases, which share
 * the same bytes because a rendezvous separates any two phases.
 */
#ifndef TW_COMPILER_SPATIAL_RESIDENCY_H
#define TW_COMPILER_SPATIAL_RESIDENCY_H

#include "compiler/spatial/unify.h"

#include <stdio.h>

/* The placement of one program, in the arena of its sections. */
struct tw_residency {
    uint32_t n_sites;
    uint64_t *offset; /* by tensor of the program; UINT64_MAX: the tensor has no buffer */
    uint64_t *bytes;
    uint8_t *mem_class;
    uint64_t shared;  /* end of the activations in the memory class of private memory, in bytes */
    uint64_t **sites; /* by tensor: one bit per site that holds it; NULL: none does */
    uint64_t *top;    /* by site and memory class: end of what is placed so far (scratch) */
};

/* Places the activations, each in its memory class. Two that share no site may overlap. With
 * `colour`, so may two that share no phase, and the private memory of a phase may overlap
 * activations that are not live in it; without, all are disjoint. Does not fail:
 * tw_residency_phase() reports what does not fit. */
void tw_residency_plan(const struct tw_composition *c, const struct tw_unified *n,
                       struct tw_residency *out);

/* Computes where the private memory of each of the sections [first, first + n), which run at the
 * same time, begins: as low as the sections before it on its sites allow. *private_bytes is the
 * total of the fullest site. Errors: residency_overflow, phase_overflow. */
int tw_residency_phase(const struct tw_composition *c, const struct tw_unified *u,
                       const struct tw_residency *r, uint32_t first, uint32_t n, uint64_t *bases,
                       uint64_t *private_bytes, tw_error *err);

#endif
