/* SPDX-License-Identifier: Apache-2.0
 *
 * The bump arena of the tile machine: allocation is an addition, and running out keeps counting so
 * that the caller learns the size it should have given.
 */
#ifndef TW_FIRMWARE_CORE_MACHINE_ARENA_H
#define TW_FIRMWARE_CORE_MACHINE_ARENA_H

#include "firmware/core/tile_machine.h"

/* `bytes` bytes aligned to `align` (a power of two), or NULL when the arena is too small; `used`
 * grows either way and saturates at SIZE_MAX. The memory is not cleared. */
void *tw_arena_take(struct tw_arena *arena, uint64_t bytes, size_t align);

/* The same, cleared; count * size is checked. */
void *tw_arena_zeroed(struct tw_arena *arena, uint64_t count, size_t size, size_t align);

#endif
