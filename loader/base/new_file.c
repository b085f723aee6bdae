/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that get their names when they are complete (loader/base/new_file.h).
 */
#include "loader/base/new_file.h"

#include "loader/base/file_limit.h"
#include "loader/base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int tw_fail_write(const char *path, int number, tw_error *err) {
    bool full = number == ENOSPC || number == EDQUOT || number == EFBIG;
    return tw_fail(err, full ? TW_E_NOSPACE : TW_E_IO, "%s: cannot write: %s", path,
                   strerror(number));
}

/* Refuses to replace a device or a pipe with a file. */
static int check_target(const char *path, tw_error *err) {
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return tw_fail(err, TW_E_IO, "%s: exists and is not a regular file", path);
    }
    return 0;
}

/* Makes the new name durable across a power loss; best effort, as some file systems refuse it. */
static void sync_folder(const char *path) {
    char copy[PATH_MAX];
    if (strlen(path) >= sizeof copy) {
        return;
    }
    strcpy(copy, path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

/* Opens a file without a name, so that a process that is killed leaves nothing; if the file system
 * has no such files, one with the temporary name. Returns the descriptor, or -1 with errno set. */
static int open_unnamed(struct tw_new_file *f) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", f->path);
    int fd = strlen(f->path) < sizeof folder
                 ? open(dirname(folder), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644)
                 : -1;
    snprintf(f->name, sizeof f->name, "/proc/self/fd/%d", fd);
    if (fd >= 0 && access(f->name, F_OK)) { /* without /proc, linkat() could not name it */
        close(fd);
        fd = -1;
    }
    if (fd < 0) {
        snprintf(f->name, sizeof f->name, "%s", f->temporary);
        fd = open(f->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    }
    return fd;
}

int tw_new_file_open(const char *path, struct tw_new_file *out, tw_error *err) {
    *out = (struct tw_new_file){.path = path, .fd = -1};
    int code = check_target(path, err);
    if (code) {
        return code;
    }
    out->temporary = tw_temporary_path(path);
    if (!out->temporary) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for the temporary name", path);
    }
    unlink(out->temporary);
    out->fd = open_unnamed(out);
    if (out->fd < 0) {
        code = tw_fail_write(path, errno, err);
        free(out->temporary);
        out->temporary = NULL;
    }
    return code;
}

int tw_new_file_write_at(const struct tw_new_file *f, uint64_t offset, const void *bytes,
                         uint64_t n, tw_error *err) {
    const uint8_t *at = bytes;
    if (n && !tw_file_size_allowed(offset + n)) {
        return tw_fail_write(f->path, EFBIG, err); /* instead of SIGXFSZ */
    }
    while (n) {
        ssize_t done = pwrite(f->fd, at, n, (off_t)offset);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return tw_fail_write(f->path, done < 0 ? errno : ENOSPC, err);
        }
        at += done;
        n -= (uint64_t)done;
        offset += (uint64_t)done;
    }
    return 0;
}

int tw_new_file_append(struct tw_new_file *f, const void *bytes, uint64_t n, tw_error *err) {
    int code = tw_new_file_write_at(f, f->appended, bytes, n, err);
    f->appended += code ? 0 : n;
    return code;
}

/* Gives the file its final name. Returns 0 or an errno. */
static int publish(const struct tw_new_file *f) {
    bool unnamed = strcmp(f->name, f->temporary) != 0;
    if (unnamed && linkat(AT_FDCWD, f->name, AT_FDCWD, f->temporary, AT_SYMLINK_FOLLOW)) {
        return errno;
    }
    return rename(f->temporary, f->path) ? errno : 0;
}

int tw_new_file_end(struct tw_new_file *f, int code, tw_error *err) {
    int number = code == 0 && fsync(f->fd) != 0 ? errno : 0;
    number = code || number ? number : publish(f);
    close(f->fd); /* all of it has been written */
    if (code == 0 && number) {
        code = tw_fail_write(f->path, number, err);
    }
    if (code == 0) {
        sync_folder(f->path);
    } else {
        unlink(f->temporary);
    }
    free(f->temporary);
    *f = (struct tw_new_file){.fd = -1};
    return code;
}
