/* SPDX-License-Identifier: Apache-2.0
 *
 * Private files, folders and sockets (loader/base/private_path.h). What is checked is always an
 * open file, never a path, which could name something else a moment later.
 */
#include "loader/base/private_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITABLE_BY_OTHERS (S_IWGRP | S_IWOTH)

/* Checks owner and mode of an open file or folder. */
static int check_owner(int fd, const char *path, tw_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return tw_fail(err, TW_E_IO, "%s: cannot stat: %s", path, strerror(errno));
    }
    if (st.st_uid != geteuid()) {
        return tw_fail(
            err, TW_E_IO,
            "%s: belongs to user %u, not to this one (%u), so its content cannot be trusted; "
            "remove it",
            path, (unsigned)st.st_uid, (unsigned)geteuid());
    }
    if (st.st_mode & WRITABLE_BY_OTHERS) {
        return tw_fail(err, TW_E_IO,
                       "%s: other users may write to it (mode %03o); run: chmod go-w '%s'", path,
                       (unsigned)st.st_mode & 0777u, path);
    }
    return 0;
}

static int open_folder(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int tw_private_folder(const char *path, bool make, tw_error *err) {
    int fd = open_folder(path);
    if (fd < 0 && errno == ENOENT && make) {
        if (mkdir(path, 0700) != 0 && errno != EEXIST) {
            return tw_fail(err, TW_E_IO, "%s: cannot create the folder: %s", path, strerror(errno));
        }
        fd = open_folder(path);
    }
    if (fd < 0) {
        int why = errno;
        bool link = why == ELOOP || why == ENOTDIR;
        tw_error_set(err, TW_E_IO, "%s: %s", path,
                     link ? "expected a folder, found a link or file; remove it" : strerror(why));
        errno = why;
        return TW_E_IO;
    }
    int code = check_owner(fd, path, err);
    close(fd);
    errno = code ? EPERM : 0;
    return code;
}

static int open_file(const char *path, int access, int *out, tw_error *err) {
    struct stat st;
    int fd = open(path, access | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        int why = errno;
        tw_error_set(err, TW_E_IO, "%s: %s", path,
                     why == ELOOP ? "expected a file, found a symbolic link; remove it"
                                  : strerror(why));
        errno = why;
        return TW_E_IO;
    }
    int code = check_owner(fd, path, err);
    if (!code && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
        code = tw_fail(err, TW_E_IO, "%s: is not a regular file; remove it", path);
    }
    if (code) {
        close(fd);
        errno = EPERM;
        return code;
    }
    *out = fd;
    return 0;
}

int tw_private_file_open(const char *path, int *out, tw_error *err) {
    return open_file(path, O_RDONLY, out, err);
}

int tw_private_file_update(const char *path, int *out, tw_error *err) {
    return open_file(path, O_RDWR, out, err);
}

int tw_private_file_create(const char *path, int *out, tw_error *err) {
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return tw_fail(err, errno == ENOSPC || errno == EDQUOT ? TW_E_NOSPACE : TW_E_IO,
                       "%s: cannot create: %s", path, strerror(errno));
    }
    *out = fd;
    return 0;
}

/* ---- the runtime folder ---- */

/* Returns true if the folder exists and only this user can write to it. */
static bool is_private(const char *path) {
    return tw_private_folder(path, false, NULL) == 0;
}

/* Returns true if $XDG_RUNTIME_DIR, `runtime`, is to be used: it is unless it belongs to another
 * user (sudo may keep the variable). One that does not exist is used, so that the error names
 * it. */
static bool is_usable(const char *runtime) {
    return runtime && *runtime && strlen(runtime) < 80 && (is_private(runtime) || errno != EPERM);
}

int tw_runtime_folder(bool make, char path[TW_RUNTIME_FOLDER], tw_error *err) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    unsigned uid = (unsigned)geteuid();
    char user[40];
    snprintf(user, sizeof user, "/run/user/%u", uid);
    if (is_usable(runtime)) {
        snprintf(path, TW_RUNTIME_FOLDER, "%s/tilewright", runtime);
    } else if (is_private(user)) {
        snprintf(path, TW_RUNTIME_FOLDER, "%s/tilewright", user);
    } else {
        snprintf(path, TW_RUNTIME_FOLDER, "/tmp/tilewright-%u", uid);
    }
    return tw_private_folder(path, make, err);
}

int tw_runtime_socket(const char *name, bool make, char path[TW_SOCKET_PATH], tw_error *err) {
    char folder[TW_RUNTIME_FOLDER];
    int n;
    if (strchr(name, '/')) {
        n = snprintf(path, TW_SOCKET_PATH, "%s", name);
    } else {
        int code = tw_runtime_folder(make, folder, err);
        if (code && (make || errno != ENOENT)) {
            return code;
        }
        n = snprintf(path, TW_SOCKET_PATH, "%s/%s.sock", folder, name);
    }
    return n < (int)TW_SOCKET_PATH
               ? 0
               : tw_fail(err, TW_E_USAGE,
                         "socket %.120s: the path has %d bytes; at most 107 are allowed", name, n);
}

/* ---- peers ---- */

bool tw_peer(int fd, uint32_t *pid, uint32_t *uid) {
    struct ucred c;
    socklen_t n = sizeof c;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) != 0 || c.pid < 0) {
        return false;
    }
    *pid = (uint32_t)c.pid;
    *uid = c.uid;
    return true;
}

bool tw_peer_is_trusted(int fd) {
    uint32_t pid, uid;
    return tw_peer(fd, &pid, &uid) && (uid == geteuid() || uid == 0);
}
