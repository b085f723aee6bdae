/* SPDX-License-Identifier: Apache-2.0
 *
 * What a composed program computes and needs, as text: outputs, claim, requirements, and the
 * locations of its tensors.
 */
#ifndef TW_COMPILER_SPATIAL_REPORT_H
#define TW_COMPILER_SPATIAL_REPORT_H

#include "compiler/spatial/program_builder.h"

#include <stdio.h>

/* Prints the report, the last part of `inspect --plan`. Errors: INTERNAL (code that does not
 * decode). Write errors are left to the caller (ferror). */
int tw_builder_print_report(struct tw_builder *program, FILE *out, tw_error *err);

#endif
