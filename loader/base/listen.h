/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening on a UNIX socket's path, whose server is this process alone.
 */
#ifndef TW_LOADER_BASE_LISTEN_H
#define TW_LOADER_BASE_LISTEN_H

#include "tilewright/error.h"

#define TW_LISTEN_PATH 108u /* bytes of a path with its end */

struct tw_listen {
    int fd, lock; /* fd: non-blocking, -1: none */
    char path[TW_LISTEN_PATH], lock_path[TW_LISTEN_PATH + 8];
};

/* Listens with a socket of `type` (SOCK_STREAM, SOCK_SEQPACKET); one that a dead process left at
 * the path is replaced. While it lives, PATH.lock is locked. `what` ("socket", "usbredir") begins
 * an error. Errors: USAGE (path too long), DEVICE_BUSY (names the process that serves this path),
 * IO. l needs no tw_listen_end then. */
int tw_listen_begin(struct tw_listen *l, const char *what, const char *path, int type,
                    tw_error *err);
/* Who has connected, with SOCK_CLOEXEC and `flags`; -1: nobody. Where there is no descriptor for
 * him it takes a moment, so that a loop that polls does not spin until there is one. */
int tw_listen_accept(const struct tw_listen *l, int flags);
/* Removes socket and lock. Legal for one with fd and lock -1, and twice. */
void tw_listen_end(struct tw_listen *l);

#endif
