/* SPDX-License-Identifier: Apache-2.0
 *
 * The bump arena (machine_arena.h). Addresses are aligned, not offsets, so the base need not be
 * aligned; while there is no memory the worst padding is counted.
 */
#include "firmware/core/machine_arena.h"

#include "tilewright/range.h"

#include <string.h>

static bool grow(const struct tw_arena *arena, uint64_t bytes, size_t align, size_t *start,
                 size_t *end) {
    uint64_t from = arena->used, to, pad = align - 1;
    if (arena->base) {
        pad = (align - ((uintptr_t)arena->base + arena->used) % align) % align;
    }
    if (!tw_add_u64(from, pad, &from) || !tw_add_u64(from, bytes, &to) || to > SIZE_MAX) {
        return false;
    }
    *start = (size_t)from;
    *end = (size_t)to;
    return true;
}

void *tw_arena_take(struct tw_arena *arena, uint64_t bytes, size_t align) {
    size_t start, end;
    if (!grow(arena, bytes, align, &start, &end)) {
        arena->used = SIZE_MAX;
        return NULL;
    }
    arena->used = end;
    return arena->base && end <= arena->size ? arena->base + start : NULL;
}

void *tw_arena_zeroed(struct tw_arena *arena, uint64_t count, size_t size, size_t align) {
    uint64_t bytes;
    if (!tw_mul_u64(count, size, &bytes)) {
        arena->used = SIZE_MAX;
        return NULL;
    }
    void *p = tw_arena_take(arena, bytes, align);
    if (p) {
        memset(p, 0, (size_t)bytes);
    }
    return p;
}
