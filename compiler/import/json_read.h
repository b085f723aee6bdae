/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON of model files, by jansson: parsing with limits, and members of a certain type. Objects with
 * two members of one name are refused, and so is nesting deeper than jansson allows (2048).
 */
#ifndef TW_COMPILER_IMPORT_JSON_READ_H
#define TW_COMPILER_IMPORT_JSON_READ_H

#include "tilewright/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Parses an object of `size` bytes; what follows it must be white space. *out is the caller's:
 * json_decref(). `path` is for messages. Errors: FORMAT (with line and column), NOMEM. */
int tw_json_parse(const char *path, const void *bytes, uint64_t size, json_t **out, tw_error *err);

/* Members. Each leaves *out unchanged and returns 0 if the member is absent or null and `needed` is
 * false. `object` may be NULL: it has no members. Errors: MISSING, FORMAT (another type), RANGE. */
int tw_json_uint(const char *path, const json_t *object, const char *name, bool needed,
                 uint64_t min, uint64_t max, uint64_t *out, tw_error *err);
int tw_json_float(const char *path, const json_t *object, const char *name, bool needed, float *out,
                  tw_error *err);
int tw_json_bool(const char *path, const json_t *object, const char *name, bool *out,
                 tw_error *err);
/* *out belongs to the object. */
int tw_json_text(const char *path, const json_t *object, const char *name, bool needed,
                 const char **out, tw_error *err);
/* The object or array under `name`; NULL in *out if it is absent. */
int tw_json_object(const char *path, const json_t *object, const char *name, json_t **out,
                   tw_error *err);
int tw_json_array(const char *path, const json_t *object, const char *name, json_t **out,
                  tw_error *err);

/* Returns what a value is, for messages: "a string". */
const char *tw_json_kind(const json_t *value);

#endif
