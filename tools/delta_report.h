/* SPDX-License-Identifier: Apache-2.0
 *
 * What diff, patch and compile --delta-from report of a delta.
 */
#ifndef TW_TOOLS_DELTA_REPORT_H
#define TW_TOOLS_DELTA_REPORT_H

#include "tilewright/delta.h"

#include <jansson.h>

/* The delta at `path` as a JSON object. NULL if out of memory. */
json_t *delta_json(const struct tw_delta_info *info, const char *path);
/* The same as a line of text on standard output. */
void delta_print(const struct tw_delta_info *info, const char *path);

#endif
