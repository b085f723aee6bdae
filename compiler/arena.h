/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of one compilation: a bump arena over one reserved range of addresses, freed as a whole,
 * and growable arrays in it. Pages are only backed when touched, so a reservation costs nothing;
 * arenas of a compile stay far below it because the importers bound every count.
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

int tw_cmem_init(struct tw_cmem *m, tw_error *err);
void tw_cmem_finish(struct tw_cmem *m);

/* Zeroed, 16-byte aligned. */
void *tw_cmem_alloc(struct tw_cmem *m, size_t bytes);
/* Gives back, zeroed, everything allocated since `used` had that value. */
void tw_cmem_release(struct tw_cmem *m, size_t used);
char *tw_cmem_printf(struct tw_cmem *m, const char *format, ...) TW_PRINTF(2, 3);

/* A growable array; T *items, n, cap. TW_VEC_PUSH gives a pointer to a new zeroed element. */
#define TW_VEC(T)     \
    struct {          \
        T *items;     \
        uint32_t n;   \
        uint32_t cap; \
    }
void *tw_vec_grow(struct tw_cmem *m, void *items, uint32_t n, uint32_t *cap, size_t item_bytes);
#define TW_VEC_PUSH(m, v)                                                                      \
    ((v).n == (v).cap                                                                          \
         ? (void)((v).items = tw_vec_grow((m), (v).items, (v).n, &(v).cap, sizeof *(v).items)) \
         : (void)0,                                                                            \
     &(v).items[(v).n++])

#endif
