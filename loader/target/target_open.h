/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading targets (tilewright/target.h): built-in ones, files, and text.
 */
#ifndef TW_LOADER_TARGET_TARGET_OPEN_H
#define TW_LOADER_TARGET_TARGET_OPEN_H

#include "tilewright/target.h"

#include <stddef.h>

/* Opens a built-in target by name ("host", "sim4x4", "grid8x8", "sim4x4x2", "quad2x2"), a JSON file
 * by path (a name with '/' or that ends in ".json"), or JSON text (a name that begins with '{').
 * host_sites: sites of "host", at most 256; 0: the processors online. *out needs no release.
 * Errors: USAGE (no such target; lists the built-in ones), IO, and those of tw_target_parse. */
int tw_target_open(const char *name, uint32_t host_sites, struct tw_target *out, tw_error *err);

/* Reads the JSON text of a target file; `name` is for messages. Errors, naming the key: FORMAT (not
 * JSON, an unknown key, a wrong type), MISSING, RANGE. A target whose chips have no links has
 * neither of the chip_link_ keys; any other has both. */
int tw_target_parse(const char *name, const char *text, size_t size, struct tw_target *out,
                    tw_error *err);

/* Writes the canonical JSON of a target, terminated; tw_target_parse reads it back to a target with
 * the same hash. Errors: NOSPACE (it needs more than `room` bytes), NOMEM. */
int tw_target_print(const struct tw_target *target, char *text, size_t room, tw_error *err);
#define TW_TARGET_TEXT_BYTES 2048u /* enough for any target, with the NUL */

/* Returns the names of the built-in targets, NULL-terminated. */
const char *const *tw_target_names(void);

#endif
