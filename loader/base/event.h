/* SPDX-License-Identifier: Apache-2.0
 *
 * Notifications through eventfds: one side signals; the other polls the descriptor and clears it
 * with tw_event_clear. Neither blocks. All functions are legal from any thread, tw_event_signal
 * also in a signal handler.
 */
#ifndef TW_LOADER_BASE_EVENT_H
#define TW_LOADER_BASE_EVENT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Returns a descriptor that the caller closes with tw_event_destroy, or -1 with errno set. */
static inline int tw_event_create(void) {
    return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

/* Closes the descriptor. -1 is legal. */
static inline void tw_event_destroy(int fd) {
    if (fd >= 0) {
        close(fd);
    }
}

/* Makes the descriptor readable. -1 is legal and has no effect. */
static inline void tw_event_signal(int fd) {
    uint64_t one = 1;
    while (fd >= 0 && write(fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* Clears the descriptor. Returns true if it was signalled since the last call. */
static inline bool tw_event_clear(int fd) {
    uint64_t n;
    ssize_t r;
    do {
        r = read(fd, &n, sizeof n);
    } while (r < 0 && errno == EINTR);
    return r == (ssize_t)sizeof n;
}

#endif
