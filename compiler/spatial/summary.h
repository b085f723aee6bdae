/* SPDX-License-Identifier: Apache-2.0
 *
 * What a composed program promises and needs, as text: outputs, claim, requirements, and where its tensors live.
 */
#ifndef TW_SPATIAL_SUMMARY_H
#define TW_SPATIAL_SUMMARY_H

#include "compiler/spatial/unit.h"

#include <stdio.h>

/* Errors: INTERNAL (code that does not decode). */
int tw_unit_print_summary(const struct tw_unit *program, FILE *out, tw_error *err);

#endif
