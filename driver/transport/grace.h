/* SPDX-License-Identifier: Apache-2.0
 *
 * The grace between a transport's stop word and the end of what its device is executing.
 */
#ifndef TW_DRIVER_TRANSPORT_GRACE_H
#define TW_DRIVER_TRANSPORT_GRACE_H

#include "driver/transport/transport.h"
#include "loader/base/clock.h"
#include "loader/base/stop.h"

#include <stdatomic.h>

/* When a stop word was first seen to be set, of tw_clock_ms(); 0: none is. */
struct tw_grace {
    _Atomic uint64_t since;
};

static inline bool tw_stop_words_exist(const struct tw_transport *t) {
    return t->stop[0] || t->stop[1];
}

/* Returns true once a stop word has been set for TW_STOP_GRACE_MS, counted from the first call that
 * saw it. Any number of threads may call it at once; without a stop word that is set it costs a few
 * loads. */
static inline bool tw_grace_is_over(struct tw_grace *g, const struct tw_transport *t) {
    uint64_t since = atomic_load_explicit(&g->since, memory_order_relaxed);
    if (!tw_stopped(t->stop[0]) && !tw_stopped(t->stop[1])) {
        if (since) {
            atomic_store_explicit(&g->since, 0, memory_order_relaxed);
        }
        return false;
    }
    uint64_t now = tw_clock_ms();
    if (since == 0) {
        /* another thread may have been first: a millisecond more or less */
        atomic_store_explicit(&g->since, now, memory_order_relaxed);
        return false;
    }
    return now - since >= TW_STOP_GRACE_MS;
}

#endif
