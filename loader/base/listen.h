/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening on a UNIX socket's path with this process as its only server. One thread at a time.
 */
#ifndef TW_LOADER_BASE_LISTEN_H
#define TW_LOADER_BASE_LISTEN_H

#include "tilewright/error.h"

#include <stdint.h>

#define TW_LISTEN_PATH 108u /* bytes of a path, with its NUL */

struct tw_listen {
    int fd, lock;           /* fd: non-blocking, -1: none */
    uint64_t device, inode; /* of the socket that was made at the path */
    char path[TW_LISTEN_PATH], lock_path[TW_LISTEN_PATH + 8];
};

/* Listens with a socket of `type` (SOCK_STREAM, SOCK_SEQPACKET) that only this user may connect to;
 * one that a dead process of this user left at the path is replaced. Holds a lock on PATH.lock
 * until tw_listen_end. `what` ("socket", "usbredir") begins an error. Errors: USAGE (path too
 * long), DEVICE_BUSY (names the process that serves this path; or another program has a socket
 * there), IO. l needs no tw_listen_end then. */
int tw_listen_begin(struct tw_listen *l, const char *what, const char *path, int type,
                    tw_error *err);
/* Returns an accepted connection, with SOCK_CLOEXEC and `flags`, that the caller closes. -1: there
 * is none, or it came from another user (not root) and the socket was not opened to others with
 * chmod. If the process has no descriptors left it sleeps for a moment, so that a poll loop does
 * not spin. */
int tw_listen_accept(const struct tw_listen *l, int flags);
/* Removes the lock, and the socket if it is still the one that was created. Legal with fd and lock
 * -1, and twice. */
void tw_listen_end(struct tw_listen *l);

#endif
