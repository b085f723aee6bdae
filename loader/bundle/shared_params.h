/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the programs of a bundle keep the same Params at the same places of each SRAM.
 */
#ifndef TW_LOADER_BUNDLE_SHARED_PARAMS_H
#define TW_LOADER_BUNDLE_SHARED_PARAMS_H

#include "tilewright/error.h"
#include "tilewright/machine.h"

/* 0, or VERIFY with "rule 26 memory_apart: ..."; NOMEM. The programs obey the rules of verify.h. */
int tw_same_params(const struct tw_program *programs, uint32_t n, tw_error *err);

#endif
