/* SPDX-License-Identifier: Apache-2.0
 *
 * The GGUF container reader (gguf.h): one cursor walks the file once, every step is bounded
 * by the file's end; tables grow with what was read, never with what a count claims.
 */
#include "compiler/import/gguf.h"

#include "compiler/import/bytes.h"
#include "compiler/import/ggml_type.h"
#include "compiler/import/source_file.h"
#include "tilewright/range.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ALIGNMENT 32u
#define MAX_ALIGNMENT (1u << 20)
#define MAX_KEY_BYTES 65535u
#define MAX_NAME_BYTES 64u
#define MAX_ARRAY_DEPTH 4u
#define HEAD_BYTES ((uint64_t)1 << 20) /* enough for the metadata of most files */
#define SHOWN 80                       /* bytes of a name in a message */

/* Bytes of a scalar; 0 for strings, arrays and unknown types. */
static uint32_t scalar_bytes(uint32_t type) {
    static const uint8_t bytes[TW_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < TW_GGUF_TYPES ? bytes[type] : 0;
}

/* Makes a private copy of the next `bytes`, which are inside the file, and of as much again, so
 * that a file is not copied in small pieces. */
static int hold(struct tw_source_file *r, uint64_t bytes) {
    uint64_t end = r->at + bytes, more;
    if (!r->file || end <= r->file->own_bytes) {
        return 0;
    }
    return tw_file_map_own(r->file, tw_add_u64(end, r->file->own_bytes, &more) ? more : end,
                           r->err);
}

static int need(struct tw_source_file *r, uint64_t bytes, const char *what) {
    if (tw_range_ok(r->at, bytes, r->size)) {
        return hold(r, bytes);
    }
    return tw_fail(r->err, TW_E_TRUNCATED,
                   "%s: the file ends at offset %" PRIu64 ", but %s at offset %" PRIu64
                   " needs %" PRIu64 " bytes",
                   r->path, r->size, what, r->at, bytes);
}

static int read_u32(struct tw_source_file *r, const char *what, uint32_t *out) {
    int rc = need(r, 4, what);
    if (rc == 0) {
        *out = tw_load_u32(r->bytes + r->at);
        r->at += 4;
    }
    return rc;
}

static int read_u64(struct tw_source_file *r, const char *what, uint64_t *out) {
    int rc = need(r, 8, what);
    if (rc == 0) {
        *out = tw_load_u64(r->bytes + r->at);
        r->at += 8;
    }
    return rc;
}

static int read_bytes(struct tw_source_file *r, const char *what, const uint8_t **text,
                      uint64_t *length) {
    uint64_t start = r->at;
    int rc = read_u64(r, what, length);
    if (rc) {
        return rc;
    }
    if (!tw_range_ok(r->at, *length, r->size)) {
        return tw_fail(r->err, TW_E_TRUNCATED,
                       "%s: %s at offset %" PRIu64 " has length %" PRIu64 ", but only %" PRIu64
                       " bytes follow",
                       r->path, what, start, *length, r->size - r->at);
    }
    rc = hold(r, *length);
    *text = r->bytes + r->at;
    r->at += *length;
    return rc;
}

/* A key or tensor name: not empty, no NUL (it becomes a C string), not longer than `max`. */
static int read_name(struct tw_source_file *r, const char *what, uint64_t max, const char **out) {
    uint64_t start = r->at, length;
    const uint8_t *text;
    int rc = read_bytes(r, what, &text, &length);
    if (rc) {
        return rc;
    }
    if (length == 0) {
        return tw_fail(r->err, TW_E_FORMAT, "%s: %s at offset %" PRIu64 " is empty", r->path, what,
                       start);
    }
    if (length > max) {
        return tw_fail(r->err, TW_E_FORMAT,
                       "%s: %s at offset %" PRIu64 " is %" PRIu64
                       " bytes long, expected at most %" PRIu64,
                       r->path, what, start, length, max);
    }
    if (memchr(text, 0, (size_t)length)) {
        return tw_fail(r->err, TW_E_FORMAT, "%s: %s at offset %" PRIu64 " contains a NUL byte",
                       r->path, what, start);
    }
    *out = tw_import_text(r->memory, text, length);
    return *out ? 0 : tw_fail(r->err, TW_E_NOMEM, "%s: no memory for %s", r->path, what);
}

/* Adds the previous name to a message: a wrong length or type there is only noticed at the name
 * that follows. */
static int after(struct tw_source_file *r, int rc, const char *what, const char *previous) {
    char message[sizeof r->err->message];
    if (!r->err || !previous) {
        return rc;
    }
    memcpy(message, r->err->message, sizeof message);
    return tw_fail(r->err, rc, "%.350s (after %s %.*s)", message, what, SHOWN, previous);
}

/* ---- header ---- */

static int check_version(struct tw_source_file *r, uint32_t version) {
    if (version == 2 || version == 3) {
        return 0;
    }
    if (version != 0 && (version & 0xFFFFFFu) == 0) {
        return tw_fail(r->err, TW_E_UNSUPPORTED,
                       "%s: this is a big-endian GGUF file (version %u with its bytes swapped), "
                       "expected little-endian",
                       r->path, version >> 24);
    }
    if (version == 1) {
        return tw_fail(r->err, TW_E_UNSUPPORTED,
                       "%s: GGUF version 1 is not supported (32-bit counts), expected version 2 or "
                       "3: convert it again",
                       r->path);
    }
    return tw_fail(r->err, TW_E_UNSUPPORTED, "%s: GGUF version is %u, expected 2 or 3", r->path,
                   version);
}

static int read_header(struct tw_source_file *r, struct tw_gguf *out) {
    if (r->size < 4 || memcmp(r->bytes, "GGUF", 4) != 0) {
        return tw_fail(r->err, TW_E_FORMAT, "%s: the file does not start with the magic GGUF",
                       r->path);
    }
    r->at = 4;
    int rc = read_u32(r, "the version", &out->version);
    if (rc == 0) {
        rc = check_version(r, out->version);
    }
    if (rc == 0) {
        rc = read_u64(r, "the tensor count", &out->n_tensors);
    }
    if (rc == 0) {
        rc = read_u64(r, "the key count", &out->n_kv);
    }
    return rc;
}

/* Refuses a count that the rest of the file cannot hold, before anything is read or allocated. */
static int check_count(struct tw_source_file *r, const char *what, uint64_t count,
                       uint64_t min_bytes) {
    uint64_t room = (r->size - r->at) / min_bytes;
    if (count <= room) {
        return 0;
    }
    return tw_fail(r->err, TW_E_TRUNCATED,
                   "%s: %s is %" PRIu64 ", but the %" PRIu64 " bytes after offset %" PRIu64
                   " hold at most %" PRIu64,
                   r->path, what, count, r->size - r->at, r->at, room);
}

/* ---- metadata ---- */

static int skip_elements(struct tw_source_file *r, const char *key, uint32_t elem_type,
                         uint64_t count, unsigned depth);

static int read_array_head(struct tw_source_file *r, const char *key, uint32_t *elem_type,
                           uint64_t *count) {
    int rc = read_u32(r, "an array's element type", elem_type);
    if (rc == 0) {
        rc = read_u64(r, "an array's length", count);
    }
    if (rc == 0 && *elem_type >= TW_GGUF_TYPES) {
        rc = tw_fail(r->err, TW_E_FORMAT,
                     "%s: key %.*s is an array of unknown element type %u, expected 0 to %u",
                     r->path, SHOWN, key, *elem_type, TW_GGUF_TYPES - 1);
    }
    return rc;
}

static int skip_strings(struct tw_source_file *r, uint64_t count) {
    const uint8_t *text;
    uint64_t length;
    int rc = check_count(r, "the length of a string array", count, 8);
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        rc = read_bytes(r, "a string of an array", &text, &length);
    }
    return rc;
}

static int skip_arrays(struct tw_source_file *r, const char *key, uint64_t count, unsigned depth) {
    if (depth >= MAX_ARRAY_DEPTH) {
        return tw_fail(r->err, TW_E_UNSUPPORTED, "%s: key %.*s nests arrays deeper than %u levels",
                       r->path, SHOWN, key, MAX_ARRAY_DEPTH);
    }
    int rc = check_count(r, "the length of an array of arrays", count, 12);
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        uint32_t elem_type;
        uint64_t elems;
        rc = read_array_head(r, key, &elem_type, &elems);
        if (rc == 0) {
            rc = skip_elements(r, key, elem_type, elems, depth + 1);
        }
    }
    return rc;
}

static int skip_elements(struct tw_source_file *r, const char *key, uint32_t elem_type,
                         uint64_t count, unsigned depth) {
    if (elem_type == TW_GGUF_STRING) {
        return skip_strings(r, count);
    }
    if (elem_type == TW_GGUF_ARRAY) {
        return skip_arrays(r, key, count, depth);
    }
    int rc = check_count(r, "the length of an array", count, scalar_bytes(elem_type));
    if (rc == 0) {
        /* cannot wrap: it was just found to fit the file */
        rc = hold(r, count * scalar_bytes(elem_type));
        r->at += count * scalar_bytes(elem_type);
    }
    return rc;
}

static int read_value(struct tw_source_file *r, struct tw_gguf_kv *kv) {
    int rc;
    switch (kv->type) {
    case TW_GGUF_STRING:
        return read_bytes(r, "a string value", &kv->value, &kv->count);
    case TW_GGUF_ARRAY:
        rc = read_array_head(r, kv->key, &kv->elem_type, &kv->count);
        kv->value = r->bytes + r->at;
        return rc ? rc : skip_elements(r, kv->key, kv->elem_type, kv->count, 1);
    default:
        break;
    }
    uint32_t bytes = scalar_bytes(kv->type);
    if (bytes == 0) {
        return tw_fail(r->err, TW_E_FORMAT,
                       "%s: key %.*s has unknown value type %u, expected 0 to %u", r->path, SHOWN,
                       kv->key, kv->type, TW_GGUF_TYPES - 1);
    }
    rc = need(r, bytes, "a value");
    if (rc) {
        return rc;
    }
    kv->value = r->bytes + r->at;
    kv->count = 1;
    r->at += bytes;
    if (kv->type == TW_GGUF_BOOL && kv->value[0] > 1) {
        return tw_fail(r->err, TW_E_FORMAT, "%s: key %.*s is a bool of value %u, expected 0 or 1",
                       r->path, SHOWN, kv->key, kv->value[0]);
    }
    return 0;
}

/* Makes room for one more element in a table that starts empty and doubles, so that memory use
 * follows the file's real content. Old copies stay allocated: at most as much again. */
static void *grow(struct tw_source_file *r, void *table, uint64_t count, uint64_t *capacity,
                  uint64_t size) {
    if (count < *capacity) {
        return table;
    }
    uint64_t wanted = *capacity ? *capacity * 2 : 64;
    void *larger = tw_import_alloc(r->memory, wanted, size);
    if (!larger) {
        tw_error_set(r->err, TW_E_NOMEM, "%s: no memory for a table of %" PRIu64 " entries",
                     r->path, wanted);
        return NULL;
    }
    if (count > 0) {
        memcpy(larger, table, (size_t)(count * size));
    }
    *capacity = wanted;
    return larger;
}

static int read_metadata(struct tw_source_file *r, struct tw_gguf *out) {
    uint64_t capacity = 0;
    int rc = check_count(r, "the key count", out->n_kv, 8 + 1 + 4 + 1);
    for (uint64_t i = 0; i < out->n_kv && rc == 0; i++) {
        struct tw_gguf_kv kv = {.offset = r->at};
        rc = read_name(r, "a key", MAX_KEY_BYTES, &kv.key);
        if (rc) {
            return after(r, rc, "key", i > 0 ? out->kv[i - 1].key : NULL);
        }
        rc = read_u32(r, "a value type", &kv.type);
        if (rc == 0) {
            rc = read_value(r, &kv);
        }
        if (rc == 0) {
            out->kv = grow(r, out->kv, i, &capacity, sizeof kv);
            if (!out->kv) {
                return TW_E_NOMEM;
            }
            out->kv[i] = kv;
        }
    }
    return rc;
}

static int sort_metadata(struct tw_source_file *r, struct tw_gguf *out) {
    const struct tw_gguf_kv *twice = tw_gguf_sort_keys(out);
    return twice ? tw_fail(r->err, TW_E_FORMAT,
                           "%s: key %.*s occurs twice (offsets %" PRIu64 " and %" PRIu64 ")",
                           r->path, SHOWN, twice[1].key, twice[0].offset, twice[1].offset)
                 : 0;
}

static int read_alignment(struct tw_source_file *r, struct tw_gguf *out) {
    out->alignment = DEFAULT_ALIGNMENT;
    int rc =
        tw_gguf_uint(out, "general.alignment", false, 8, MAX_ALIGNMENT, &out->alignment, r->err);
    if (rc == 0 && !tw_is_pow2_u64(out->alignment)) {
        rc = tw_fail(r->err, TW_E_RANGE,
                     "%s: key general.alignment is %" PRIu64 ", expected a power of two", r->path,
                     out->alignment);
    }
    return rc;
}

/* ---- tensors ---- */

static int read_dims(struct tw_source_file *r, struct tw_gguf_tensor *t) {
    int rc = read_u32(r, "a tensor's dimension count", &t->n_dims);
    if (rc == 0 && t->n_dims > TW_GGUF_MAX_DIMS) {
        rc = tw_fail(r->err, TW_E_FORMAT, "%s: tensor %s has %u dimensions, expected at most %u",
                     r->path, t->name, t->n_dims, TW_GGUF_MAX_DIMS);
    }
    for (uint32_t d = 0; d < TW_GGUF_MAX_DIMS && rc == 0; d++) {
        t->dims[d] = 1;
        if (d < t->n_dims) {
            rc = read_u64(r, "a tensor's dimension", &t->dims[d]);
        }
        if (rc == 0 && (t->dims[d] == 0 || t->dims[d] > INT64_MAX)) {
            rc = tw_fail(r->err, TW_E_RANGE,
                         "%s: dimension %u of tensor %s is %" PRId64 ", expected at least 1",
                         r->path, d, t->name, (int64_t)t->dims[d]);
        }
    }
    return rc;
}

/* Sets t->bytes from shape and type. */
static int size_tensor(struct tw_source_file *r, struct tw_gguf_tensor *t) {
    const struct tw_ggml_type *type = tw_ggml_type_of(t->type);
    if (!type) {
        return tw_fail(r->err, TW_E_UNSUPPORTED, "%s: tensor %s has unknown type %u", r->path,
                       t->name, t->type);
    }
    if (type->block_elems == 0) {
        return tw_fail(r->err, TW_E_UNSUPPORTED,
                       "%s: tensor %s has type %s (%u), which is not supported", r->path, t->name,
                       type->name, t->type);
    }
    if (t->dims[0] % type->block_elems != 0) {
        return tw_fail(r->err, TW_E_SHAPE,
                       "%s: tensor %s of type %s has rows of %" PRIu64
                       " elements, expected a multiple of %u",
                       r->path, t->name, type->name, t->dims[0], type->block_elems);
    }
    uint64_t bytes = t->dims[0] / type->block_elems;
    bool fits = tw_mul_u64(bytes, type->block_bytes, &bytes);
    for (uint32_t d = 1; d < TW_GGUF_MAX_DIMS && fits; d++) {
        fits = tw_mul_u64(bytes, t->dims[d], &bytes);
    }
    if (!fits) {
        char shape[TW_GGUF_SHAPE_BYTES];
        return tw_fail(r->err, TW_E_RANGE, "%s: tensor %s of shape %s is larger than 2^64 bytes",
                       r->path, t->name, tw_gguf_shape_text(t, shape));
    }
    t->bytes = bytes;
    return 0;
}

static int read_tensor_info(struct tw_source_file *r, struct tw_gguf_tensor *t) {
    int rc = read_name(r, "a tensor name", MAX_NAME_BYTES, &t->name);
    if (rc == 0) {
        rc = read_dims(r, t);
    }
    if (rc == 0) {
        rc = read_u32(r, "a tensor's type", &t->type);
    }
    if (rc == 0) {
        rc = read_u64(r, "a tensor's offset", &t->offset);
    }
    return rc ? rc : size_tensor(r, t);
}

static int read_tensor_infos(struct tw_source_file *r, struct tw_gguf *out) {
    uint64_t capacity = 0;
    int rc = check_count(r, "the tensor count", out->n_tensors, 8 + 1 + 4 + 4 + 8);
    for (uint64_t i = 0; i < out->n_tensors && rc == 0; i++) {
        struct tw_gguf_tensor t = {0};
        rc = read_tensor_info(r, &t);
        if (rc == 0) {
            out->tensors = grow(r, out->tensors, i, &capacity, sizeof t);
            if (!out->tensors) {
                return TW_E_NOMEM;
            }
            out->tensors[i] = t;
        }
    }
    return rc;
}

/* Finds one tensor's bytes in the data section. Overlap is harmless here, since nothing writes to
 * them. */
static int place_tensor(struct tw_source_file *r, const struct tw_gguf *g,
                        struct tw_gguf_tensor *t) {
    uint64_t start;
    if (t->offset % g->alignment != 0) {
        return tw_fail(r->err, TW_E_FORMAT,
                       "%s: tensor %s is at offset %" PRIu64
                       " of the data, expected a multiple of %" PRIu64,
                       r->path, t->name, t->offset, g->alignment);
    }
    if (!tw_add_u64(g->data_start, t->offset, &start) || !tw_range_ok(start, t->bytes, r->size)) {
        return tw_fail(r->err, TW_E_TRUNCATED,
                       "%s: tensor %s has %" PRIu64 " bytes at offset %" PRIu64
                       " of the data (which starts at %" PRIu64 "), but the file ends at %" PRIu64,
                       r->path, t->name, t->bytes, t->offset, g->data_start, r->size);
    }
    t->data = r->bytes + start;
    t->file = r->file;
    return 0;
}

static int place_tensors(struct tw_source_file *r, struct tw_gguf *out) {
    int rc = 0;
    if (!tw_align_u64(r->at, out->alignment, &out->data_start)) {
        return tw_fail(r->err, TW_E_RANGE, "%s: the data section starts beyond 2^64", r->path);
    }
    for (uint64_t i = 0; i < out->n_tensors && rc == 0; i++) {
        rc = place_tensor(r, out, &out->tensors[i]);
    }
    const struct tw_gguf_tensor *twice = rc ? NULL : tw_gguf_sort_tensors(out);
    return twice ? tw_fail(r->err, TW_E_FORMAT, "%s: tensor %s occurs twice", r->path, twice->name)
                 : rc;
}

static int parse(struct tw_source_file *r, struct tw_gguf *out) {
    static int (*const steps[])(struct tw_source_file *, struct tw_gguf *) = {
        read_header, read_metadata, sort_metadata, read_alignment, read_tensor_infos, place_tensors,
    };
    *out = (struct tw_gguf){.path = r->path, .n_parts = 1};
    int rc = 0;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && rc == 0; i++) {
        rc = steps[i](r, out);
    }
    return rc;
}

int tw_gguf_parse(const char *path, const uint8_t *bytes, uint64_t size,
                  struct tw_import_memory *memory, struct tw_gguf *out, tw_error *err) {
    struct tw_source_file r = tw_source_of_bytes(path, bytes, size, memory, err);
    return parse(&r, out);
}

int tw_gguf_parse_file(const char *path, struct tw_file_map *file, struct tw_import_memory *memory,
                       struct tw_gguf *out, tw_error *err) {
    struct tw_source_file r;
    int rc = tw_source_of_map(path, file, HEAD_BYTES, memory, &r, err);
    return rc ? rc : parse(&r, out);
}
