/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors container: the table of tensors of a file in memory, fully checked. It is a
 * length, a JSON object of as many bytes, and the tensors' data without gaps.
 */
#ifndef TW_COMPILER_IMPORT_SAFETENSORS_H
#define TW_COMPILER_IMPORT_SAFETENSORS_H

#include "compiler/import/model_memory.h"
#include "loader/base/file_map.h"
#include "tilewright/error.h"

#define TW_ST_MAX_DIMS 8u

struct tw_st_type {
    const char *name; /* "BF16" */
    uint32_t bytes;
    int ggml_type; /* number of ggml_type.h, or -1: not a type of weights */
};

struct tw_st_tensor {
    const char *name;
    const struct tw_st_type *type;
    uint64_t shape[TW_ST_MAX_DIMS]; /* slowest first */
    uint32_t n_dims;
    uint64_t bytes;
    uint64_t begin; /* of its data, from the start of the data */
    const uint8_t *data;
    struct tw_file_map *file; /* that the data must be read from; NULL: it is in memory */
};

struct tw_safetensors {
    const char *path; /* for messages */
    uint64_t n_tensors;
    struct tw_st_tensor *tensors; /* in the order of their data */
};

/* Parses a whole file in memory; the results point into `bytes` and `memory`. Errors: TRUNCATED,
 * FORMAT, RANGE, UNSUPPORTED (a header of over 8 MiB, too many dimensions), NOMEM. */
int tw_st_parse(const char *path, const uint8_t *bytes, uint64_t size,
                struct tw_import_memory *memory, struct tw_safetensors *out, tw_error *err);
/* The same for a mapped file, whose header is copied first. Further error: IO. */
int tw_st_parse_file(const char *path, struct tw_file_map *file, struct tw_import_memory *memory,
                     struct tw_safetensors *out, tw_error *err);

#endif
