/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that grow: the one place where room is doubled and sizes are checked for overflow.
 */
#ifndef TW_LOADER_BASE_GROW_H
#define TW_LOADER_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>

/* Makes room for `need` items of item_bytes each (not 0). `items` is the address of the pointer to the
 * array, which free() ends; NULL with *room 0 is an empty one. *room is what it has room for, in
 * items, and at least doubles when it changes, so that appending one by one costs amortised constant
 * time; what is new is not initialised. False: no memory, or more bytes than an object may have; array
 * and room are as before. */
bool tw_grow(void *items, size_t *room, size_t need, size_t item_bytes);

#endif
