/* SPDX-License-Identifier: Apache-2.0
 *
 * How work that takes long is ended early: it asks now and then. Freestanding.
 */
#ifndef TW_LOADER_BASE_INTERRUPT_H
#define TW_LOADER_BASE_INTERRUPT_H

#include <stdbool.h>

struct tw_interrupt {
    bool (*is_requested)(void *ctx); /* NULL: never */
    void *ctx;
};

/* Returns true if the work must end. `i` may be NULL: never. */
static inline bool tw_interrupted(const struct tw_interrupt *i) {
    return i && i->is_requested && i->is_requested(i->ctx);
}

#endif
