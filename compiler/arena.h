/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of one compilation: a bump arena over one reserved range of addresses, freed as a whole,
 * and growable arrays in it. Pages are backed only when touched, so the reservation costs nothing.
 * An arena belongs to one thread. It does not fail: the importers bound every count, and
 * tw_compile_memory() refuses beforehand what could exceed it.
 */
#ifndef TW_COMPILER_ARENA_H
#define TW_COMPILER_ARENA_H

#include "loader/base/compiler.h"
#include "tilewright/error.h"

#include <stddef.h>
#include <stdint.h>

struct tw_cmem {
    uint8_t *base;
    size_t used, size;
};

/* Reserves the range, 4 GiB or what an address-space limit leaves (64 MiB at least). Errors:
 * NOMEM. */
int tw_cmem_init(struct tw_cmem *m, tw_error *err);
/* Releases the range and everything in it; NULL and an arena that was never initialised (zeroed)
 * are legal. */
void tw_cmem_finish(struct tw_cmem *m);

/* Returns `bytes` of zeroed memory, aligned to 16 bytes, valid until it is released. Aborts when
 * the arena is full, which is our own mistake. */
void *tw_cmem_alloc(struct tw_cmem *m, size_t bytes);
/* Releases and zeroes everything allocated since m->used had the value `used`. */
void tw_cmem_release(struct tw_cmem *m, size_t used);
/* Returns the formatted text, cut at 511 bytes, in the arena. */
char *tw_cmem_printf(struct tw_cmem *m, const char *format, ...) TW_PRINTF(2, 3);

/* A growable array: T *items, n, cap. TW_VEC_PUSH evaluates to a pointer to a new element; elements
 * of an array that is never popped are zeroed. */
#define TW_VEC(T)     \
    struct {          \
        T *items;     \
        uint32_t n;   \
        uint32_t cap; \
    }
/* Doubles `*cap` and returns a copy of the n items with room for that many; the old copy stays in
 * the arena. */
void *tw_vec_grow(struct tw_cmem *m, void *items, uint32_t n, uint32_t *cap, size_t item_bytes);
#define TW_VEC_PUSH(m, v)                                                                      \
    ((v).n == (v).cap                                                                          \
         ? (void)((v).items = tw_vec_grow((m), (v).items, (v).n, &(v).cap, sizeof *(v).items)) \
         : (void)0,                                                                            \
     &(v).items[(v).n++])

#endif
