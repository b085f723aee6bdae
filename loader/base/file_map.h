/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular files mapped read-only; their owner may change or truncate them at any time. Data that is
 * checked and then relied on (headers, tables, texts) is copied once into private memory at the
 * same addresses (tw_file_map_own); bulk data that is read once is read with tw_file_map_read; only
 * numbers that may have any value are used in place. Reading a page in place that the file no
 * longer has raises SIGBUS, unless the program asked for tw_guard_files (tilewright.h): then the
 * page reads as zeros and tw_file_map_intact reports it. One thread at a time, except as stated.
 */
#ifndef TW_LOADER_BASE_FILE_MAP_H
#define TW_LOADER_BASE_FILE_MAP_H

#include "tilewright/error.h"

#include <stdint.h>

struct tw_file_guard; /* a mapping as the fault handler sees it */

struct tw_file_map {
    const uint8_t *bytes; /* at a 64 KiB boundary */
    uint64_t size;        /* of the file when it was opened, > 0 */
    uint64_t own_bytes;   /* [0, own_bytes) is a private copy */
    char *path;           /* owned; NULL: not open */
    int fd;
    struct tw_file_guard *guard;
};

/* Maps the file at `path`. Does not wait for a pipe's writer. On failure *out is zeroed. Errors: IO
 * (cannot be opened, not a regular file), TRUNCATED (empty), NOMEM. */
int tw_file_map_open(const char *path, struct tw_file_map *out, tw_error *err);
/* Unmaps and closes. Legal for a zeroed struct, and twice. */
void tw_file_map_close(struct tw_file_map *map);

/* Makes at least [0, bytes) a private copy (at most the whole file); what was private before stays
 * as it is, so pointers into it stay valid. Errors: TRUNCATED (the file has fewer bytes now), IO,
 * NOMEM. */
int tw_file_map_own(struct tw_file_map *map, uint64_t bytes, tw_error *err);

/* Reads n bytes at offset `at`, from the private copy or by a system call, never through the
 * mapping. Errors: TRUNCATED, IO. Legal from any thread. */
int tw_file_map_read(const struct tw_file_map *map, uint64_t at, void *to, uint64_t n,
                     tw_error *err);

/* Returns 0, or TRUNCATED, naming the file, if a guarded access met a page that the file no longer
 * has. Costs two loads; legal from any thread. */
int tw_file_map_intact(const struct tw_file_map *map, tw_error *err);

/* Returns `path`, or in `buffer` its last part after "...", short enough to leave room for facts in
 * an error line. */
#define TW_SHORT_PATH_BYTES 164
const char *tw_short_path(const char *path, char buffer[TW_SHORT_PATH_BYTES]);

/* ---- between file_map.c and file_guard.c ---- */

/* Register [start, end) as pages of a file (NULL: out of memory); change the start; unregister;
 * return whether an access met a missing page. Legal from any thread. */
struct tw_file_guard *tw_file_guard_add(const void *start, const void *end);
void tw_file_guard_move(struct tw_file_guard *guard, const void *start);
void tw_file_guard_remove(struct tw_file_guard *guard); /* NULL is legal */
int tw_file_guard_was_cut(const struct tw_file_guard *guard);

#endif
