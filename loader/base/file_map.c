/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapped files (loader/base/file_map.h). A mapping reserves address space for the file and 64 KiB
 * more, then maps the file over the aligned part, so that what is 64 KiB-aligned in the file is
 * also aligned in memory. The private part is anonymous memory over the file's first pages: a
 * private mapping of the file would not do, because truncating the file also removes pages that
 * were written to.
 */
#include "loader/base/file_map.h"

#include "tilewright/bundle.h"
#include "tilewright/range.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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
        return tw_fail(err, TW_E_TRUNCATED, "%s: the file is empty", name);
    }
    return 0;
}

static void unmap(const uint8_t *from, const uint8_t *to) {
    if (from < to) {
        munmap((void *)(uintptr_t)from, (size_t)(to - from));
    }
}

static uint64_t round_to_page(uint64_t bytes) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Returns the address, or NULL with errno set. */
static const uint8_t *map_aligned(int fd, uint64_t bytes) {
    uint64_t room;
    if (!tw_add_u64(bytes, 2 * TW_PARAM_ALIGN, &room) || room > SIZE_MAX / 2) {
        errno = ENOMEM;
        return NULL;
    }
    uint64_t rounded = round_to_page(bytes);
    room = rounded + TW_PARAM_ALIGN;
    uint8_t *reserved =
        mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
        return NULL;
    }
    uint8_t *start =
        reserved + (TW_PARAM_ALIGN - (uintptr_t)reserved % TW_PARAM_ALIGN) % TW_PARAM_ALIGN;
    if (mmap(start, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int why = errno;
        munmap(reserved, room);
        errno = why;
        return NULL;
    }
    unmap(reserved, start);
    unmap(start + rounded, reserved + room);
    return start;
}

static int map_file(struct tw_file_map *map, const char *name, tw_error *err) {
    struct stat st;
    if (fstat(map->fd, &st) != 0) {
        return tw_fail(err, TW_E_IO, "%s: cannot stat the file: %s", name, strerror(errno));
    }
    int rc = check_kind(name, &st, err);
    if (rc != 0) {
        return rc;
    }
    map->size = (uint64_t)st.st_size;
    map->bytes = map_aligned(map->fd, map->size);
    if (!map->bytes) {
        return tw_fail(err, errno == ENOMEM ? TW_E_NOMEM : TW_E_IO, "%s: cannot map %llu bytes: %s",
                       name, (unsigned long long)map->size, strerror(errno));
    }
    map->guard = tw_file_guard_add(map->bytes, map->bytes + round_to_page(map->size));
    return map->guard ? 0 : tw_fail(err, TW_E_NOMEM, "%s: out of memory to map the file", name);
}

/* O_NONBLOCK: opening a pipe must not wait for its writer. */
int tw_file_map_open(const char *path, struct tw_file_map *out, tw_error *err) {
    char buffer[TW_SHORT_PATH_BYTES];
    const char *name = tw_short_path(path, buffer);
    memset(out, 0, sizeof *out);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return tw_fail(err, TW_E_IO, "%s: cannot open: %s", name, strerror(errno));
    }
    char *copy = strdup(path);
    if (!copy) {
        close(fd);
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory to open the file", name);
    }
    out->fd = fd;
    out->path = copy;
    int rc = map_file(out, name, err);
    if (rc != 0) {
        tw_file_map_close(out);
    }
    return rc;
}

void tw_file_map_close(struct tw_file_map *map) {
    if (!map->path) {
        return;
    }
    tw_file_guard_remove(map->guard);
    if (map->bytes) {
        unmap(map->bytes, map->bytes + round_to_page(map->size));
    }
    close(map->fd);
    free(map->path);
    memset(map, 0, sizeof *map);
}

static int fail_cut(const struct tw_file_map *map, tw_error *err) {
    char buffer[TW_SHORT_PATH_BYTES];
    struct stat st;
    const char *name = tw_short_path(map->path, buffer);
    if (fstat(map->fd, &st) != 0 || (uint64_t)st.st_size >= map->size) {
        return tw_fail(err, TW_E_TRUNCATED,
                       "%s: a page of the file became unreadable while it was in use", name);
    }
    return tw_fail(
        err, TW_E_TRUNCATED,
        "%s: the file was truncated while it was in use: it had %llu bytes and now has %llu; "
        "to replace a file, rename a new one over it",
        name, (unsigned long long)map->size, (unsigned long long)st.st_size);
}

static int read_file(const struct tw_file_map *map, uint64_t at, uint8_t *to, uint64_t n,
                     tw_error *err) {
    char buffer[TW_SHORT_PATH_BYTES];
    for (uint64_t done = 0; done < n;) {
        uint64_t left = n - done < (1u << 30) ? n - done : 1u << 30;
        ssize_t got = pread(map->fd, to + done, (size_t)left, (off_t)(at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return tw_fail(err, TW_E_IO, "%s: cannot read at offset %llu: %s",
                           tw_short_path(map->path, buffer), (unsigned long long)(at + done),
                           strerror(errno));
        }
        if (got == 0) {
            return fail_cut(map, err);
        }
        done += (uint64_t)got;
    }
    return 0;
}

int tw_file_map_read(const struct tw_file_map *map, uint64_t at, void *to, uint64_t n,
                     tw_error *err) {
    uint64_t own = at < map->own_bytes ? map->own_bytes - at : 0;
    own = own < n ? own : n;
    memcpy(to, map->bytes + at, (size_t)own);
    return read_file(map, at + own, (uint8_t *)to + own, n - own, err);
}

int tw_file_map_own(struct tw_file_map *map, uint64_t bytes, tw_error *err) {
    char buffer[TW_SHORT_PATH_BYTES];
    uint64_t from = map->own_bytes, to = bytes < map->size ? round_to_page(bytes) : map->size;
    to = to < map->size ? to : map->size;
    if (to <= from) {
        return 0;
    }
    /* `from` is the end of a page: it is the file's end only when all is private */
    uint8_t *at = (uint8_t *)(uintptr_t)map->bytes + from;
    if (mmap(at, (size_t)(to - from), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        return tw_fail(err, TW_E_NOMEM, "%s: cannot allocate a copy of %llu bytes: %s",
                       tw_short_path(map->path, buffer), (unsigned long long)(to - from),
                       strerror(errno));
    }
    tw_file_guard_move(map->guard, map->bytes + round_to_page(to));
    int rc = read_file(map, from, at, to - from, err);
    mprotect(at, (size_t)(to - from), PROT_READ);
    map->own_bytes = to;
    return rc;
}

int tw_file_map_intact(const struct tw_file_map *map, tw_error *err) {
    return map->guard && tw_file_guard_was_cut(map->guard) ? fail_cut(map, err) : 0;
}
