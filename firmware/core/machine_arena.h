/* SPDX-License-Identifier: Apache-2.0
 *
 * The bump arena of the tile machine: allocation is an addition. It keeps counting when it has run
 * out, so that the caller learns the size that is needed. One thread at a time.
 */
#ifndef TW_FIRMWARE_CORE_MACHINE_ARENA_H
#define TW_FIRMWARE_CORE_MACHINE_ARENA_H

#include "firmware/core/tile_machine.h"

/* Returns `bytes` bytes aligned to `align` (a power of two), or NULL if the arena is too small;
 * `used` grows either way and saturates at SIZE_MAX. The memory is not cleared. */
void *tw_arena_take(struct tw_arena *arena, uint64_t bytes, size_t align);

/* Returns count * size bytes, cleared; an overflow counts as SIZE_MAX. Otherwise as
 * tw_arena_take. */
void *tw_arena_zeroed(struct tw_arena *arena, uint64_t count, size_t size, size_t align);

#endif
