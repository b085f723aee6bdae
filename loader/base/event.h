/* SPDX-License-Identifier: Apache-2.0
 *
 * Eventfds as bells: rung by one side, heard and silenced by the other. They are non-blocking.
 */
#ifndef TW_LOADER_BASE_EVENT_H
#define TW_LOADER_BASE_EVENT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* -1: no descriptor. */
static inline int tw_event_create(void) {
    return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

static inline void tw_event_ring(int fd) {
    uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR) {
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
