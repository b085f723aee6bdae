/* SPDX-License-Identifier: Apache-2.0
 *
 * What a composed program promises and needs, as text: outputs, claim, requirements, and where its
 * tensors live.
 */
#ifndef TW_COMPILER_SPATIAL_REPORT_H
#define TW_COMPILER_SPATIAL_REPORT_H

#include "compiler/spatial/program_builder.h"

#include <stdio.h>

/* Errors: INTERNAL (code that does not decode). */
int tw_builder_print_report(const struct tw_builder *program, FILE *out, tw_error *err);

#endif
