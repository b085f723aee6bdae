/* SPDX-License-Identifier: Apache-2.0
 *
 * Read-only file mappings (mapfile.h): open without blocking on a pipe, insist on a regular file,
 * map it private.
 */
#include "compiler/import/mapfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *tw_short_path(const char *path, char buffer[TW_SHORT_PATH_BYTES]) {
    size_t length = strlen(path);
    size_t keep = TW_SHORT_PATH_BYTES - 4;
    if (length <= keep) {
        return path;
    }
    snprintf(buffer, TW_SHORT_PATH_BYTES, "...%s", path + (length - keep));
    return buffer;
}

static int check_kind(const char *name, const struct stat *st, tw_error *err) {
    if (S_ISDIR(st->st_mode)) {
        return tw_fail(err, TW_E_IO, "%s: is a directory, expected a file", name);
    }
    if (!S_ISREG(st->st_mode)) {
        return tw_fail(err, TW_E_IO,
                       "%s: is not a regular file (a pipe or device cannot be mapped)", name);
    }
    if (st->st_size <= 0) {
        return tw_fail(err, TW_E_IO, "%s: the file is empty", name);
    }
    if ((uint64_t)st->st_size > SIZE_MAX) {
        return tw_fail(err, TW_E_IO, "%s: %lld bytes do not fit this machine's address space", name,
                       (long long)st->st_size);
    }
    return 0;
}

int tw_mapfile_open(const char *path, struct tw_mapfile *out, tw_error *err) {
    char buffer[TW_SHORT_PATH_BYTES];
    const char *name = tw_short_path(path, buffer);
    struct stat st;
    *out = (struct tw_mapfile){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return tw_fail(err, TW_E_IO, "%s: cannot be opened: %s", name, strerror(errno));
    }
    int rc = fstat(fd, &st) == 0
                 ? check_kind(name, &st, err)
                 : tw_fail(err, TW_E_IO, "%s: cannot be examined: %s", name, strerror(errno));
    if (rc == 0) {
        void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED) {
            rc = tw_fail(err, errno == ENOMEM ? TW_E_NOMEM : TW_E_IO, "%s: cannot be mapped: %s",
                         name, strerror(errno));
        } else {
            out->bytes = bytes;
            out->size = (uint64_t)st.st_size;
        }
    }
    close(fd);
    return rc;
}

void tw_mapfile_close(struct tw_mapfile *file) {
    if (file->bytes) {
        munmap((void *)(uintptr_t)file->bytes, (size_t)file->size);
    }
    *file = (struct tw_mapfile){0};
}
