/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the programs of a bundle keep the same Params and State at the same places of each
 * SRAM.
 */
#ifndef TW_LOADER_BUNDLE_SHARED_PARAMS_H
#define TW_LOADER_BUNDLE_SHARED_PARAMS_H

#include "tilewright/error.h"
#include "tilewright/machine.h"

/* Checks n programs that tw_verify_program accepts. Errors: VERIFY ("rule 26 memory_apart: ..."),
 * NOMEM. */
int tw_same_pinned(const struct tw_program *programs, uint32_t n, tw_error *err);

#endif
