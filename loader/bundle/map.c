/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps a file (loader/bundle/bundle_parts.h): reserves address space for the file and one alignment
 * unit more, then maps the file over its aligned part, so that what is 64 KiB-aligned in the file
 * is so in memory.
 */
#include "loader/bundle/bundle_parts.h"

#include "tilewright/range.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* O_NONBLOCK: opening a pipe must not wait for its writer. */
static int open_regular(const char *path, int *out, uint64_t *size, tw_error *err) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return tw_fail(err, TW_E_IO, "%s: cannot open: %s", path, strerror(errno));
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return tw_fail(err, TW_E_IO, "%s: is not a regular file", path);
    }
    if (st.st_size == 0) {
        close(fd);
        return tw_fail(err, TW_E_TRUNCATED, "%s: the file is empty", path);
    }
    *out = fd;
    *size = (uint64_t)st.st_size;
    return 0;
}

static void unmap(uint8_t *from, const uint8_t *to) {
    if (from < to) {
        munmap(from, (size_t)(to - from));
    }
}

static void *map_aligned(int fd, uint64_t bytes) {
    long page = sysconf(_SC_PAGESIZE);
    uint64_t rounded, room;
    if (!tw_align_u64(bytes, (uint64_t)page, &rounded) ||
        !tw_add_u64(rounded, TW_PARAM_ALIGN, &room) || room > SIZE_MAX) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    uint8_t *reserved =
        mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
        return MAP_FAILED;
    }
    uint8_t *start =
        reserved + (TW_PARAM_ALIGN - (uintptr_t)reserved % TW_PARAM_ALIGN) % TW_PARAM_ALIGN;
    if (mmap(start, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(reserved, room);
        return MAP_FAILED;
    }
    unmap(reserved, start);
    unmap(start + rounded, reserved + room);
    return start;
}

int tw_map_file(const char *path, void **map, uint64_t *bytes, tw_error *err) {
    int fd = -1;
    int rc = open_regular(path, &fd, bytes, err);
    if (rc != 0) {
        return rc;
    }
    *map = map_aligned(fd, *bytes);
    if (*map == MAP_FAILED) {
        *map = NULL;
        rc = tw_fail(err, TW_E_NOMEM, "%s: cannot map %llu bytes: %s", path,
                     (unsigned long long)*bytes, strerror(errno));
    }
    close(fd);
    return rc;
}
