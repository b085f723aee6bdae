/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks with which every function of the public API begins: structures that begin with their
 * size, pointers that must not be NULL, and undefined flag bits. A caller may have been compiled
 * with an older, shorter form of a structure, or with a newer, longer one: only the common part is
 * read or written. All functions are legal from any thread.
 */
#ifndef TW_LOADER_BASE_SIZED_H
#define TW_LOADER_BASE_SIZED_H

#include "tilewright/error.h"

#include <stdint.h>

/* Copies the caller's options into *to, of to_size bytes: as many as from->size says; the rest is
 * zero. `from` NULL: all zeros. `function` is for messages. Errors: USAGE (the size is smaller than
 * the size field). */
int tw_sized_read(const char *function, void *to, uint32_t to_size, const void *from,
                  tw_error *err);

/* Checks that *info can be written: it is not NULL, and its size includes the size field. Errors:
 * USAGE. */
int tw_sized_check(const char *function, const void *info, tw_error *err);

/* Copies *from, of from_size bytes, to the caller's *info, at most info->size bytes of it;
 * info->size is not changed. Call tw_sized_check first. */
void tw_sized_write(void *info, const void *from, uint32_t from_size);

/* Checks that `flags` has no bits other than those of `known`. Errors: USAGE (names the bits). */
int tw_known_flags(const char *function, uint32_t flags, uint32_t known, tw_error *err);

/* 0, or USAGE naming the function and the argument that is NULL. */
#define TW_NEED(err, pointer) \
    ((pointer) ? 0 : tw_fail((err), TW_E_USAGE, "%s: %s is NULL", __func__, #pointer))
#define TW_NEED_2(err, a, b) (TW_NEED(err, a) ? TW_E_USAGE : TW_NEED(err, b))
#define TW_NEED_3(err, a, b, c) (TW_NEED(err, a) ? TW_E_USAGE : TW_NEED_2(err, b, c))

#endif
