/* SPDX-License-Identifier: Apache-2.0
 *
 * Sections that run at once: phases of a composition, each of which is one loop in the end.
 */
#ifndef TW_COMPILER_SPATIAL_PHASES_H
#define TW_COMPILER_SPATIAL_PHASES_H

#include "compiler/spatial/unify.h"

/* Sections of the phase that begins with section `first`. */
uint32_t tw_phase_size(const struct tw_composition *c, uint32_t first);

/* The same composition with all sections of a phase repeated equally often, phases numbered from 0.
 * Errors: INTERNAL. */
int tw_phases_cut(const struct tw_composition *c, struct tw_composition *out, tw_error *err);

#endif
