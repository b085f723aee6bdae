/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening on a UNIX socket's path, whose server is this process alone.
 */
#ifndef TW_LOADER_BASE_LISTEN_H
#define TW_LOADER_BASE_LISTEN_H

#include "tilewright/error.h"

#include <stdint.h>

#define TW_LISTEN_PATH 108u /* bytes of a path with its end */

struct tw_listen {
    int fd, lock;           /* fd: non-blocking, -1: none */
    uint64_t device, inode; /* of the socket that was made at the path */
    char path[TW_LISTEN_PATH], lock_path[TW_LISTEN_PATH + 8];
};

/* Listens with a socket of `type` (SOCK_STREAM, SOCK_SEQPACKET) that only this user may connect to;
 * one that a dead process of this user left at the path is replaced. While it lives, PATH.lock is locked. `what` ("socket", "usbredir") begins
 * an error. Errors: USAGE (path too long), DEVICE_BUSY (names the process that serves this path;
 * or another program has a socket there), IO. l needs no tw_listen_end then. */
int tw_listen_begin(struct tw_listen *l, const char *what, const char *path, int type,
                    tw_error *err);
/* Who has connected, with SOCK_CLOEXEC and `flags`; -1: nobody, or a process of another user (not
 * root), unless the socket was opened to others with chmod. Where there is no descriptor for
 * him it takes a moment, so that a loop that polls does not spin until there is one. */
int tw_listen_accept(const struct tw_listen *l, int flags);
/* Removes lock, and socket if it is still the one that was made. Legal for one with fd and lock -1, and twice. */
void tw_listen_end(struct tw_listen *l);

#endif
