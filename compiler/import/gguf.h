/* SPDX-License-Identifier: Apache-2.0
 *
 * The GGUF container (versions 2 and 3, little-endian): metadata and tensor table of a file in
 * memory, fully checked.
 *
 * After tw_gguf_parse every string, array and tensor is inside the file, names are unique and
 * tensor sizes are those of their shapes. The keys are interpreted by gguf_decoder.c and
 * gguf_vocab.c.
 */
#ifndef TW_COMPILER_IMPORT_GGUF_H
#define TW_COMPILER_IMPORT_GGUF_H

#include "compiler/import/model_memory.h"
#include "loader/base/file_map.h"
#include "tilewright/error.h"

#include <stdbool.h>

enum tw_gguf_type {
    TW_GGUF_U8 = 0,
    TW_GGUF_I8 = 1,
    TW_GGUF_U16 = 2,
    TW_GGUF_I16 = 3,
    TW_GGUF_U32 = 4,
    TW_GGUF_I32 = 5,
    TW_GGUF_F32 = 6,
    TW_GGUF_BOOL = 7,
    TW_GGUF_STRING = 8,
    TW_GGUF_ARRAY = 9,
    TW_GGUF_U64 = 10,
    TW_GGUF_I64 = 11,
    TW_GGUF_F64 = 12
};
#define TW_GGUF_TYPES 13u
#define TW_GGUF_MAX_DIMS 4u

struct tw_gguf_kv {
    const char *key; /* terminated copy */
    /* in the file, unaligned: the scalar, the string's bytes, the array's elements */
    const uint8_t *value;
    uint64_t offset;    /* of the key in the file */
    uint64_t count;     /* bytes of a string, elements of an array, else 1 */
    uint32_t type;      /* enum tw_gguf_type */
    uint32_t elem_type; /* of an array */
};

struct tw_gguf_tensor {
    const char *name; /* terminated copy */
    const uint8_t *data;
    uint64_t bytes;
    uint64_t offset;                 /* from the start of the data section */
    uint64_t dims[TW_GGUF_MAX_DIMS]; /* fastest first, 1 beyond n_dims */
    /* the file that the data must be read from (not in place); NULL: the data is in memory */
    struct tw_file_map *file;
    uint32_t head_rows; /* as in struct tw_model_tensor; 0 in files of this format */
    uint32_t n_dims;
    uint32_t type; /* number in ggml_type.h's table; never one that GGUF has removed */
};

struct tw_gguf {
    const char *path; /* for messages */
    uint32_t n_parts; /* files that it was read from (gguf_split.h) */
    uint32_t version;
    uint64_t alignment, data_start;
    uint64_t n_kv, n_tensors;
    struct tw_gguf_kv *kv;          /* sorted by key */
    struct tw_gguf_tensor *tensors; /* sorted by name */
};

/* Parses a whole file in memory; the results point into `bytes` and `memory`. Work and memory are
 * bounded by `size`, whatever the counts in the file say. Errors: FORMAT, TRUNCATED, RANGE,
 * UNSUPPORTED (version, byte order, tensor types whose block size is unknown), NOMEM. */
int tw_gguf_parse(const char *path, const uint8_t *bytes, uint64_t size,
                  struct tw_import_memory *memory, struct tw_gguf *out, tw_error *err);
/* The same for a mapped file. Everything before the tensors' data is copied before it is read.
 * Further error: IO. */
int tw_gguf_parse_file(const char *path, struct tw_file_map *file, struct tw_import_memory *memory,
                       struct tw_gguf *out, tw_error *err);

/* Sort keys, or tensors, by name. Each returns the first of two of the same name, which stand next
 * to each other; NULL: all differ. */
const struct tw_gguf_kv *tw_gguf_sort_keys(struct tw_gguf *gguf);
const struct tw_gguf_tensor *tw_gguf_sort_tensors(struct tw_gguf *gguf);

const struct tw_gguf_kv *tw_gguf_find(const struct tw_gguf *gguf, const char *key);
const struct tw_gguf_tensor *tw_gguf_find_tensor(const struct tw_gguf *gguf, const char *name);

/* ---- typed values (gguf_value.c) ---- Each leaves *out unchanged and returns 0 if the key is
 * absent and `needed` is false. Errors: MISSING, FORMAT (the value has another type), RANGE. */

/* Any integer type; min <= value <= max. */
int tw_gguf_uint(const struct tw_gguf *gguf, const char *key, bool needed, uint64_t min,
                 uint64_t max, uint64_t *out, tw_error *err);
/* F32 or F64; must be finite. */
int tw_gguf_float(const struct tw_gguf *gguf, const char *key, bool needed, float *out,
                  tw_error *err);
int tw_gguf_bool(const struct tw_gguf *gguf, const char *key, bool *out, tw_error *err);
/* A string of *length bytes at *out, inside the file and not terminated. */
int tw_gguf_string(const struct tw_gguf *gguf, const char *key, bool needed, const char **out,
                   uint64_t *length, tw_error *err);
/* The array of `elem_type` under `key`, or NULL in *out if it is absent and not needed. */
int tw_gguf_array(const struct tw_gguf *gguf, const char *key, bool needed,
                  enum tw_gguf_type elem_type, const struct tw_gguf_kv **out, tw_error *err);

/* Steps through the elements of a checked string array: *cursor starts at kv->value. */
void tw_gguf_next_string(const uint8_t **cursor, const uint8_t **text, uint64_t *length);

/* The shape as "[64, 512]", in the file's order. */
#define TW_GGUF_SHAPE_BYTES 96
const char *tw_gguf_shape_text(const struct tw_gguf_tensor *tensor,
                               char buffer[TW_GGUF_SHAPE_BYTES]);

#endif
