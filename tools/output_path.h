/* SPDX-License-Identifier: Apache-2.0
 *
 * The file that a verb writes, as --output names it.
 */
#ifndef TW_TOOLS_OUTPUT_PATH_H
#define TW_TOOLS_OUTPUT_PATH_H

#include "tilewright/error.h"

#include <stddef.h>

/* Checks, before long work, that `out` names a file that can be written, and is none of the inputs
 * (which may be NULL) that the output, a `what`, is made from: it would replace them. Errors:
 * USAGE, IO, NOMEM. */
int output_check(const char *out, const char *what, const char *const inputs[], size_t n_inputs,
                 tw_error *err);

#endif
