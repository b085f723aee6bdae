/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock is taken first, so a socket at the path is nobody's and may be replaced.
 */
#include "loader/base/listen.h"

#include "loader/base/lock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SCARCE_US 50000

static int bind_path(struct tw_listen *l, int type, tw_error *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    memcpy(a.sun_path, l->path, strlen(l->path) + 1);
    if (lstat(l->path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode)) {
            return tw_fail(err, TW_E_IO,
                           "%s: there is something else than a socket; choose another path",
                           l->path);
        }
        unlink(l->path);
    }
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool bound = fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof a) == 0;
    if (!bound || listen(fd, 16)) {
        int why = errno;
        if (bound) {
            unlink(l->path);
        }
        if (fd >= 0) {
            close(fd);
        }
        return tw_fail(err, TW_E_IO, "%s: the socket cannot be made: %s", l->path, strerror(why));
    }
    l->fd = fd;
    return 0;
}

int tw_listen_begin(struct tw_listen *l, const char *what, const char *path, int type,
                    tw_error *err) {
    char text[160];
    l->fd = l->lock = -1;
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof l->path) {
        return tw_fail(err, TW_E_USAGE, "%s %.120s: the path has %zu bytes, 1 to %zu are possible",
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

int tw_listen_accept(const struct tw_listen *l, int flags) {
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | flags);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
        usleep(SCARCE_US);
    }
    return fd;
}

void tw_listen_end(struct tw_listen *l) {
    if (l->fd >= 0) {
        close(l->fd);
        unlink(l->path);
    }
    tw_lock_release(l->lock_path, l->lock);
    l->fd = l->lock = -1;
}
