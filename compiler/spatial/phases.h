/* SPDX-License-Identifier: Apache-2.0
 *
 * Phases of a composition: sections that run at the same time, in one loop.
 */
#ifndef TW_COMPILER_SPATIAL_PHASES_H
#define TW_COMPILER_SPATIAL_PHASES_H

#include "compiler/spatial/unify.h"

/* Returns the number of sections in the phase that begins with section `first`. */
uint32_t tw_phase_size(const struct tw_composition *c, uint32_t first);

/* Stores the same composition in *out with all sections of a phase repeated equally often and
 * phases numbered from 0. Cut sections are allocated in the sections' arena. Errors: INTERNAL. */
int tw_phases_cut(const struct tw_composition *c, struct tw_composition *out, tw_error *err);

#endif
