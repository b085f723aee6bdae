/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening sockets (loader/base/listen.h). The lock is taken first, so no other server of ours can
 * be at the path. If a socket exists there, connecting to it shows whether a program is still
 * listening or the socket is stale.
 */
#include "loader/base/listen.h"

#include "loader/base/lock.h"
#include "loader/base/private_path.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SCARCE_US 50000 /* pause after accept() has run out of descriptors or memory */

/* Returns true if a process has the socket at that address open, whatever the socket's type: only a
 * stale one refuses a connection. */
static bool is_alive(const struct sockaddr_un *a, int type) {
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool alive = fd < 0 || connect(fd, (const struct sockaddr *)a, sizeof *a) == 0 ||
                 (errno != ECONNREFUSED && errno != ENOENT);
    if (fd >= 0) {
        close(fd);
    }
    return alive;
}

/* Removes a stale socket of this user. */
static int remove_stale(const struct tw_listen *l, const struct sockaddr_un *a, int type,
                        tw_error *err) {
    struct stat st;
    if (lstat(l->path, &st) != 0) {
        return 0;
    }
    if (!S_ISSOCK(st.st_mode)) {
        return tw_fail(err, TW_E_IO, "%s: exists and is not a socket; choose another path",
                       l->path);
    }
    if (is_alive(a, type)) {
        return tw_fail(err, TW_E_DEVICE_BUSY,
                       "%s: another program is listening there; choose another path", l->path);
    }
    if (st.st_uid != geteuid()) {
        return tw_fail(err, TW_E_IO,
                       "%s: a stale socket of user %u is there; remove it, or "
                       "choose another path",
                       l->path, (unsigned)st.st_uid);
    }
    unlink(l->path);
    return 0;
}

static void record_inode(struct tw_listen *l) {
    struct stat st;
    if (lstat(l->path, &st) == 0) {
        l->device = (uint64_t)st.st_dev;
        l->inode = (uint64_t)st.st_ino;
    }
}

static int bind_path(struct tw_listen *l, int type, tw_error *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, l->path, strlen(l->path) + 1);
    int code = remove_stale(l, &a, type, err);
    if (code) {
        return code;
    }
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
        fchmod(fd, 0600); /* for the path that bind creates, whatever the umask */
    }
    bool bound = fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof a) == 0;
    if (!bound || listen(fd, 16)) {
        int why = errno;
        if (bound) {
            unlink(l->path);
        }
        if (fd >= 0) {
            close(fd);
        }
        return tw_fail(err, TW_E_IO, "%s: cannot create the socket: %s", l->path, strerror(why));
    }
    l->fd = fd;
    record_inode(l);
    return 0;
}

int tw_listen_begin(struct tw_listen *l, const char *what, const char *path, int type,
                    tw_error *err) {
    char text[160];
    l->fd = l->lock = -1;
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof l->path) {
        return tw_fail(err, TW_E_USAGE, "%s %.120s: the path has %zu bytes; it must have 1 to %zu",
                       what, path, n, sizeof l->path - 1);
    }
    memcpy(l->path, path, n + 1);
    snprintf(l->lock_path, sizeof l->lock_path, "%s.lock", path);
    snprintf(text, sizeof text, "%.30s %s", what, path);
    int code = tw_lock_take(l->lock_path, text, &l->lock, err);
    code = code ? code : bind_path(l, type, err);
    if (code) {
        tw_listen_end(l);
    }
    return code;
}

/* Returns true for a process of this user or root. Other users are accepted only if the socket was
 * opened to them (chmod) after it was created. */
static bool may_connect(const struct tw_listen *l, int fd) {
    struct stat st;
    return tw_peer_is_trusted(fd) || (lstat(l->path, &st) == 0 && st.st_mode & (S_IWGRP | S_IWOTH));
}

int tw_listen_accept(const struct tw_listen *l, int flags) {
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | flags);
    if (fd >= 0 && !may_connect(l, fd)) {
        close(fd);
        return -1;
    }
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
        usleep(SCARCE_US);
    }
    return fd;
}

void tw_listen_end(struct tw_listen *l) {
    if (l->fd >= 0) {
        struct stat st;
        bool ours = lstat(l->path, &st) == 0 && (uint64_t)st.st_dev == l->device &&
                    (uint64_t)st.st_ino == l->inode;
        close(l->fd);
        if (ours) {
            unlink(l->path);
        }
    }
    tw_lock_release(l->lock_path, l->lock);
    l->fd = l->lock = -1;
}
