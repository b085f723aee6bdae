/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that grow: the one place where room is doubled and sizes are checked for overflow.
 */
#ifndef TW_LOADER_BASE_GROW_H
#define TW_LOADER_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>

/* Makes room for `need` items of item_bytes each (not 0). `items` is the address of the pointer to
 * the array, which the caller frees with free(); NULL with *room 0 is an empty array. *room is its
 * capacity in items, and at least doubles when it changes, so that appending one by one costs
 * amortised constant time; new items are not initialised. Returns false, with array and room
 * unchanged, if memory ran out or the array would exceed PTRDIFF_MAX bytes. */
bool tw_grow(void *items, size_t *room, size_t need, size_t item_bytes);

#endif
