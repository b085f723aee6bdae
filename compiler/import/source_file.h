/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that a container's reader walks: in memory, or mapped, of which a part is copied first.
 */
#ifndef TW_COMPILER_IMPORT_SOURCE_FILE_H
#define TW_COMPILER_IMPORT_SOURCE_FILE_H

#include "compiler/import/model_memory.h"
#include "loader/base/file_map.h"

struct tw_source_file {
    const char *path; /* for messages */
    const uint8_t *bytes;
    uint64_t size, at;        /* at: where the reader is */
    struct tw_file_map *file; /* NULL: the bytes do not change */
    struct tw_import_memory *memory;
    tw_error *err;
};

/* Returns the reader of a file in memory. */
static inline struct tw_source_file tw_source_of_bytes(const char *path, const uint8_t *bytes,
                                                       uint64_t size,
                                                       struct tw_import_memory *memory,
                                                       tw_error *err) {
    struct tw_source_file s = {
        .path = path, .bytes = bytes, .size = size, .memory = memory, .err = err};
    return s;
}

/* Sets *out to the reader of a mapped file whose first `head` bytes, or as many as it has, are a
 * private copy. Errors: IO, TRUNCATED, NOMEM. */
static inline int tw_source_of_map(const char *path, struct tw_file_map *file, uint64_t head,
                                   struct tw_import_memory *memory, struct tw_source_file *out,
                                   tw_error *err) {
    *out = tw_source_of_bytes(path, file->bytes, file->size, memory, err);
    out->file = file;
    return tw_file_map_own(file, head, err);
}

#endif
