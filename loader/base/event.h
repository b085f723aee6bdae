/* SPDX-License-Identifier: Apache-2.0
 *
 * Eventfds as bells: one side rings, the other polls the descriptor, hears and thereby silences it.
 * They are non-blocking. Ringing and hearing are legal on any thread, ringing also in a signal
 * handler.
 */
#ifndef TW_LOADER_BASE_EVENT_H
#define TW_LOADER_BASE_EVENT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The descriptor, or -1 with errno: there is none left. The caller's, for tw_event_destroy. */
static inline int tw_event_create(void) {
    return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

/* -1 is legal. */
static inline void tw_event_destroy(int fd) {
    if (fd >= 0) {
        close(fd);
    }
}

/* -1 is legal: nobody listens. */
static inline void tw_event_ring(int fd) {
    uint64_t one = 1;
    while (fd >= 0 && write(fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* True if it was rung since the last time. */
static inline bool tw_event_heard(int fd) {
    uint64_t n;
    ssize_t r;
    do {
        r = read(fd, &n, sizeof n);
    } while (r < 0 && errno == EINTR);
    return r == (ssize_t)sizeof n;
}

#endif
