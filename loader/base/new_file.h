/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that is written whole before it gets its name: what has the name stays until then, and a
 * process that dies leaves nothing (where the file system has files without names) or one file with
 * the name of tw_temporary_path().
 */
#ifndef TW_LOADER_BASE_NEW_FILE_H
#define TW_LOADER_BASE_NEW_FILE_H

#include "tilewright/error.h"

#include <limits.h>
#include <stdint.h>

struct tw_new_file {
    const char *path; /* the name that it gets; the caller's, valid until the end */
    char *temporary;
    int fd;                   /* to read and write */
    uint64_t appended;        /* bytes */
    char name[PATH_MAX + 64]; /* by which it can be opened again meanwhile */
};

/* Begins a file. Errors: IO (what has the name is no regular file; it cannot be created), NOSPACE,
 * NOMEM. */
int tw_new_file_open(const char *path, struct tw_new_file *out, tw_error *err);
/* Write n bytes at `offset`; at the end of what was appended so far. Errors: IO, NOSPACE (also
 * where the limit on the size of files would be exceeded). */
int tw_new_file_write_at(const struct tw_new_file *f, uint64_t offset, const void *bytes,
                         uint64_t n, tw_error *err);
int tw_new_file_append(struct tw_new_file *f, const void *bytes, uint64_t n, tw_error *err);
/* Gives the file its name, durably, and ends it; or, if `code` is not 0, or that fails, removes it.
 * Returns `code`, or 0, or IO or NOSPACE. */
int tw_new_file_end(struct tw_new_file *f, int code, tw_error *err);

/* Fails with NOSPACE or IO: a write to `path` failed with that errno. */
int tw_fail_write(const char *path, int number, tw_error *err);

#endif
