/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright inspect --map: where a bundle's bytes are placed.
 */
#ifndef TW_TOOLS_CMD_INSPECT_MAP_H
#define TW_TOOLS_CMD_INSPECT_MAP_H

#include "tilewright/tilewright.h"

#include <jansson.h>

/* To be called before anything is printed. Errors: USAGE (a program has no such site). */
int inspect_check_site(const tw_decoder *decoder, uint32_t site, tw_error *err);
/* Prints the SRAM of one site for each program, then the DRAM banks. Errors: NOMEM. */
int inspect_print_map(const tw_decoder *decoder, uint32_t site, tw_error *err);
/* The same as {"site":, "sram": [...], "dram": [...]}. */
int inspect_map_json(const tw_decoder *decoder, uint32_t site, json_t **out, tw_error *err);

#endif
