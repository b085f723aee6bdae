/* SPDX-License-Identifier: Apache-2.0
 *
 * Stop words of the public API: set by a signal handler (plain assignment to a volatile
 * sig_atomic_t) or by another thread (an atomic store), so they are read by an atomic load.
 */
#ifndef TW_LOADER_BASE_STOP_H
#define TW_LOADER_BASE_STOP_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns true if *stop is set. `stop` may be NULL: never set. */
static inline bool tw_stopped(const volatile sig_atomic_t *stop) {
    return stop && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0;
}

#endif
