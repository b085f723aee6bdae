/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright inspect --map: where a bundle's bytes are.
 */
#ifndef TW_TOOLS_CMD_INSPECT_MAP_H
#define TW_TOOLS_CMD_INSPECT_MAP_H

#include "tilewright/tilewright.h"

#include <jansson.h>

/* Before anything is printed: USAGE where a program has no such site. */
int inspect_check_site(const tw_decoder *decoder, uint32_t site, tw_error *err);
/* The SRAM of one site for each program, then the DRAM banks. Errors: NOMEM. */
int inspect_print_map(const tw_decoder *decoder, uint32_t site, tw_error *err);
/* The same as {"site":, "sram": [...], "dram": [...]}. */
int inspect_map_json(const tw_decoder *decoder, uint32_t site, json_t **out, tw_error *err);

#endif
