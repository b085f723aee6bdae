/* SPDX-License-Identifier: Apache-2.0
 *
 * What every entry of the public API checks first: structures that begin with their size, pointers
 * that must not be NULL, and flag bits that nobody defined. A caller may know an older, shorter
 * form of a structure, or a newer, longer one: only what both sides know is read or written.
 */
#ifndef TW_LOADER_BASE_SIZED_H
#define TW_LOADER_BASE_SIZED_H

#include "tilewright/error.h"

#include <stdint.h>

/* Copies the caller's options into *to, of to_size bytes: as many as from->size says there are; the
 * rest is zero. `from` NULL: all zeros. `function` is for messages. Errors: USAGE (the size cannot
 * hold even itself). */
int tw_sized_read(const char *function, void *to, uint32_t to_size, const void *from,
                  tw_error *err);

/* Whether *info can be written: not NULL, and a size that holds at least itself. Errors: USAGE. */
int tw_sized_check(const char *function, const void *info, tw_error *err);

/* Copies *from, of from_size bytes, to the caller's *info, at most info->size bytes of it; the size
 * itself stays. Only after tw_sized_check. */
void tw_sized_write(void *info, const void *from, uint32_t from_size);

/* Whether `flags` has no bits but those of `known`. Errors: USAGE (names the bits). */
int tw_known_flags(const char *function, uint32_t flags, uint32_t known, tw_error *err);

/* 0, or USAGE that names the function and the pointer that is NULL. */
#define TW_NEED(err, pointer) \
    ((pointer) ? 0 : tw_fail((err), TW_E_USAGE, "%s: %s is NULL", __func__, #pointer))
#define TW_NEED_2(err, a, b) (TW_NEED(err, a) ? TW_E_USAGE : TW_NEED(err, b))
#define TW_NEED_3(err, a, b, c) (TW_NEED(err, a) ? TW_E_USAGE : TW_NEED_2(err, b, c))

#endif
