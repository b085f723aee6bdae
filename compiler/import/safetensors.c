/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors reader (safetensors.h). Tensors are sorted by where their data begins; each must
 * begin where the one before it ends, which excludes gaps and overlaps at once.
 */
#include "compiler/import/safetensors.h"

#include "compiler/import/bytes.h"
#include "compiler/import/json_read.h"
#include "compiler/import/source_file.h"
#include "tilewright/range.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEADER_BYTES ((uint64_t)8 << 20)
#define MAX_NAME_BYTES 256u
#define SHOWN 80

static const struct tw_st_type types[] = {
    {"F32", 4, 0},      {"F16", 2, 1},  {"BF16", 2, 30}, {"F64", 8, -1},     {"I8", 1, -1},
    {"I16", 2, -1},     {"I32", 4, -1}, {"I64", 8, -1},  {"U8", 1, -1},      {"U16", 2, -1},
    {"U32", 4, -1},     {"U64", 8, -1}, {"BOOL", 1, -1}, {"F8_E4M3", 1, -1}, {"F8_E5M2", 1, -1},
    {"F8_E8M0", 1, -1}, {"C64", 8, -1},
};

/* Of the reader, `at` is where the tensors' data begins. */

static int find_type(const struct tw_source_file *r, const char *name, const json_t *entry,
                     const struct tw_st_type **out) {
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    for (size_t i = 0; text && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(text, types[i].name) == 0) {
            *out = &types[i];
            return 0;
        }
    }
    return tw_fail(r->err, TW_E_FORMAT,
                   "%s: tensor %.*s has dtype %.*s, expected the name of a type such as BF16",
                   r->path, SHOWN, name, 32,
                   text ? text : tw_json_kind(json_object_get(entry, "dtype")));
}

/* Sets shape and bytes. */
static int read_shape(const struct tw_source_file *r, const json_t *entry, struct tw_st_tensor *t) {
    const json_t *shape = json_object_get(entry, "shape"), *dim;
    size_t i;
    if (!json_is_array(shape)) {
        return tw_fail(r->err, TW_E_FORMAT, "%s: the shape of tensor %.*s is %s, expected an array",
                       r->path, SHOWN, t->name, tw_json_kind(shape));
    }
    if (json_array_size(shape) > TW_ST_MAX_DIMS) {
        return tw_fail(r->err, TW_E_UNSUPPORTED,
                       "%s: tensor %.*s has %zu dimensions, expected at most %u", r->path, SHOWN,
                       t->name, json_array_size(shape), TW_ST_MAX_DIMS);
    }
    t->bytes = t->type->bytes;
    t->n_dims = (uint32_t)json_array_size(shape);
    json_array_foreach(shape, i, dim) {
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            return tw_fail(r->err, TW_E_FORMAT,
                           "%s: dimension %zu of tensor %.*s is %s, expected a whole number from 0",
                           r->path, i, SHOWN, t->name,
                           json_is_integer(dim) ? "negative" : tw_json_kind(dim));
        }
        t->shape[i] = (uint64_t)json_integer_value(dim);
        if (!tw_mul_u64(t->bytes, t->shape[i], &t->bytes)) {
            return tw_fail(r->err, TW_E_RANGE, "%s: tensor %.*s is larger than 2^64 bytes", r->path,
                           SHOWN, t->name);
        }
    }
    return 0;
}

static int read_offsets(const struct tw_source_file *r, const json_t *entry,
                        struct tw_st_tensor *t) {
    const json_t *offsets = json_object_get(entry, "data_offsets"),
                 *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin)) {
        return tw_fail(
            r->err, TW_E_FORMAT,
            "%s: data_offsets of tensor %.*s are not [begin, end] with 0 <= begin <= end", r->path,
            SHOWN, t->name);
    }
    t->begin = (uint64_t)json_integer_value(begin);
    uint64_t bytes = (uint64_t)json_integer_value(end) - t->begin;
    if (bytes != t->bytes) {
        return tw_fail(r->err, TW_E_SHAPE,
                       "%s: tensor %.*s has %" PRIu64
                       " bytes by its data_offsets, expected %" PRIu64 " by its shape and dtype",
                       r->path, SHOWN, t->name, bytes, t->bytes);
    }
    if (!tw_range_ok(t->begin, bytes, r->size - r->at)) {
        return tw_fail(r->err, TW_E_TRUNCATED,
                       "%s: tensor %.*s has %" PRIu64 " bytes at offset %" PRIu64
                       " of the data, of which the file has %" PRIu64,
                       r->path, SHOWN, t->name, bytes, t->begin, r->size - r->at);
    }
    t->data = r->bytes + r->at + t->begin;
    t->file = r->file;
    return 0;
}

static int read_tensor(const struct tw_source_file *r, const char *name, const json_t *entry,
                       struct tw_st_tensor *t) {
    size_t length = strlen(name);
    *t = (struct tw_st_tensor){.name = name};
    if (length == 0 || length > MAX_NAME_BYTES) {
        return tw_fail(r->err, TW_E_FORMAT,
                       "%s: the name of tensor %.*s has %zu bytes, expected 1 to %u", r->path,
                       SHOWN, name, length, MAX_NAME_BYTES);
    }
    if (!json_is_object(entry)) {
        return tw_fail(r->err, TW_E_FORMAT,
                       "%s: the entry of tensor %.*s is %s, expected an object", r->path, SHOWN,
                       name, tw_json_kind(entry));
    }
    int rc = find_type(r, name, entry, &t->type);
    rc = rc ? rc : read_shape(r, entry, t);
    rc = rc ? rc : read_offsets(r, entry, t);
    if (rc == 0) {
        t->name = tw_import_text(r->memory, name, length);
        rc = t->name ? 0 : tw_fail(r->err, TW_E_NOMEM, "%s: no memory for its tensors", r->path);
    }
    return rc;
}

/* The metadata is a map from strings to strings; nothing in it is used. */
static int check_metadata(const struct tw_source_file *r, json_t *metadata) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) {
        return tw_fail(r->err, TW_E_FORMAT, "%s: __metadata__ is %s, expected an object", r->path,
                       tw_json_kind(metadata));
    }
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value)) {
            return tw_fail(r->err, TW_E_FORMAT, "%s: __metadata__ %.*s is %s, expected a string",
                           r->path, SHOWN, key, tw_json_kind(value));
        }
    }
    return 0;
}

static int compare(const void *a, const void *b) {
    const struct tw_st_tensor *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int check_layout(const struct tw_source_file *r, const struct tw_safetensors *s) {
    uint64_t end = 0;
    for (uint64_t i = 0; i < s->n_tensors; i++) {
        const struct tw_st_tensor *t = &s->tensors[i];
        if (t->begin != end) {
            return tw_fail(r->err, TW_E_FORMAT,
                           "%s: tensor %.*s begins at offset %" PRIu64
                           " of the data, expected %" PRIu64 ", where the one before it ends",
                           r->path, SHOWN, t->name, t->begin, end);
        }
        end += t->bytes;
    }
    if (end != r->size - r->at) {
        return tw_fail(r->err, TW_E_FORMAT,
                       "%s: the tensors end at offset %" PRIu64
                       " of the data, but the file has %" PRIu64 " bytes of them",
                       r->path, end, r->size - r->at);
    }
    return 0;
}

static int read_table(const struct tw_source_file *r, json_t *header, struct tw_safetensors *out) {
    const char *name;
    json_t *entry;
    int rc = 0;
    out->tensors = tw_import_alloc(r->memory, json_object_size(header), sizeof out->tensors[0]);
    if (!out->tensors) {
        return tw_fail(r->err, TW_E_NOMEM, "%s: no memory for its tensors", r->path);
    }
    json_object_foreach(header, name, entry) {
        if (rc == 0 && strcmp(name, "__metadata__") == 0) {
            rc = check_metadata(r, entry);
        } else if (rc == 0) {
            rc = read_tensor(r, name, entry, &out->tensors[out->n_tensors++]);
        }
    }
    if (rc == 0 && out->n_tensors) {
        qsort(out->tensors, (size_t)out->n_tensors, sizeof out->tensors[0], compare);
    }
    return rc ? rc : check_layout(r, out);
}

static int parse(struct tw_source_file *r, struct tw_safetensors *out) {
    json_t *header = NULL;
    *out = (struct tw_safetensors){.path = r->path};
    if (r->size < 8) {
        return tw_fail(r->err, TW_E_TRUNCATED,
                       "%s: a safetensors file begins with 8 bytes, but this one has %" PRIu64,
                       r->path, r->size);
    }
    uint64_t length = tw_load_u64(r->bytes);
    if (!tw_range_ok(8, length, r->size)) {
        return tw_fail(r->err, TW_E_TRUNCATED,
                       "%s: the header has %" PRIu64 " bytes, but the file only %" PRIu64, r->path,
                       length, r->size);
    }
    if (length > MAX_HEADER_BYTES) {
        return tw_fail(r->err, TW_E_UNSUPPORTED,
                       "%s: the header has %" PRIu64 " bytes, expected at most %" PRIu64, r->path,
                       length, MAX_HEADER_BYTES);
    }
    r->at = 8 + length;
    int rc = r->file ? tw_file_map_own(r->file, r->at, r->err) : 0;
    rc = rc ? rc : tw_json_parse(r->path, r->bytes + 8, length, &header, r->err);
    if (rc == 0) {
        rc = read_table(r, header, out);
        json_decref(header);
    }
    return rc;
}

int tw_st_parse(const char *path, const uint8_t *bytes, uint64_t size,
                struct tw_import_memory *memory, struct tw_safetensors *out, tw_error *err) {
    struct tw_source_file r = tw_source_of_bytes(path, bytes, size, memory, err);
    return parse(&r, out);
}

int tw_st_parse_file(const char *path, struct tw_file_map *file, struct tw_import_memory *memory,
                     struct tw_safetensors *out, tw_error *err) {
    struct tw_source_file r;
    int rc = tw_source_of_map(path, file, 8, memory, &r, err);
    return rc ? rc : parse(&r, out);
}
