/* SPDX-License-Identifier: Apache-2.0
 *
 * Look-ups in a parsed GGUF file (gguf.h): sorting and binary search by name, and values converted
 * with their type and range checked.
 */
#include "compiler/import/bytes.h"
#include "compiler/import/gguf.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_key(const void *key, const void *kv) {
    return strcmp(key, ((const struct tw_gguf_kv *)kv)->key);
}

static int compare_name(const void *name, const void *tensor) {
    return strcmp(name, ((const struct tw_gguf_tensor *)tensor)->name);
}

static int compare_keys(const void *a, const void *b) {
    return compare_key(((const struct tw_gguf_kv *)a)->key, b);
}

static int compare_names(const void *a, const void *b) {
    return compare_name(((const struct tw_gguf_tensor *)a)->name, b);
}

const struct tw_gguf_kv *tw_gguf_sort_keys(struct tw_gguf *gguf) {
    if (gguf->n_kv) {
        qsort(gguf->kv, (size_t)gguf->n_kv, sizeof gguf->kv[0], compare_keys);
    }
    for (uint64_t i = 1; i < gguf->n_kv; i++) {
        if (strcmp(gguf->kv[i - 1].key, gguf->kv[i].key) == 0) {
            return &gguf->kv[i - 1];
        }
    }
    return NULL;
}

const struct tw_gguf_tensor *tw_gguf_sort_tensors(struct tw_gguf *gguf) {
    if (gguf->n_tensors) {
        qsort(gguf->tensors, (size_t)gguf->n_tensors, sizeof gguf->tensors[0], compare_names);
    }
    for (uint64_t i = 1; i < gguf->n_tensors; i++) {
        if (strcmp(gguf->tensors[i - 1].name, gguf->tensors[i].name) == 0) {
            return &gguf->tensors[i - 1];
        }
    }
    return NULL;
}

const struct tw_gguf_kv *tw_gguf_find(const struct tw_gguf *gguf, const char *key) {
    return gguf->n_kv ? bsearch(key, gguf->kv, (size_t)gguf->n_kv, sizeof gguf->kv[0], compare_key)
                      : NULL;
}

const struct tw_gguf_tensor *tw_gguf_find_tensor(const struct tw_gguf *gguf, const char *name) {
    return gguf->n_tensors ? bsearch(name, gguf->tensors, (size_t)gguf->n_tensors,
                                     sizeof gguf->tensors[0], compare_name)
                           : NULL;
}

/* "u32", "string" ... of a value; an array is only "array". */
static const char *type_name(uint32_t type) {
    static const char *const names[TW_GGUF_TYPES] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                     "i32", "f32", "bool", "string", "array",
                                                     "u64", "i64", "f64"};
    return type < TW_GGUF_TYPES ? names[type] : "unknown";
}

const char *tw_gguf_shape_text(const struct tw_gguf_tensor *tensor,
                               char buffer[TW_GGUF_SHAPE_BYTES]) {
    size_t used = (size_t)snprintf(buffer, TW_GGUF_SHAPE_BYTES, "[");
    for (uint32_t d = 0; d < tensor->n_dims; d++) {
        used += (size_t)snprintf(buffer + used, TW_GGUF_SHAPE_BYTES - used, "%s%" PRIu64,
                                 d ? ", " : "", tensor->dims[d]);
    }
    snprintf(buffer + used, TW_GGUF_SHAPE_BYTES - used, "]");
    return buffer;
}

/* Finds `key`; NULL in *kv if it is absent and not needed. */
static int look_up(const struct tw_gguf *gguf, const char *key, bool needed,
                   const struct tw_gguf_kv **kv, tw_error *err) {
    *kv = tw_gguf_find(gguf, key);
    if (!*kv && needed) {
        return tw_fail(err, TW_E_MISSING, "%s: key %s is missing", gguf->path, key);
    }
    return 0;
}

static int wrong_type(const struct tw_gguf *gguf, const struct tw_gguf_kv *kv, const char *expected,
                      tw_error *err) {
    if (kv->type == TW_GGUF_ARRAY) {
        return tw_fail(err, TW_E_FORMAT, "%s: key %s is an array of %s, expected %s", gguf->path,
                       kv->key, type_name(kv->elem_type), expected);
    }
    return tw_fail(err, TW_E_FORMAT, "%s: key %s has type %s, expected %s", gguf->path, kv->key,
                   type_name(kv->type), expected);
}

/* An integer scalar as sign and 64 bits; false if the value is of another type. */
static bool load_integer(const struct tw_gguf_kv *kv, uint64_t *value, bool *negative) {
    int64_t number = 0;
    switch (kv->type) {
    case TW_GGUF_U8:
        number = kv->value[0];
        break;
    case TW_GGUF_I8:
        number = (int8_t)kv->value[0];
        break;
    case TW_GGUF_U16:
        number = (int64_t)tw_load_u16(kv->value);
        break;
    case TW_GGUF_I16:
        number = (int16_t)tw_load_u16(kv->value);
        break;
    case TW_GGUF_U32:
        number = (int64_t)tw_load_u32(kv->value);
        break;
    case TW_GGUF_I32:
        number = (int32_t)tw_load_u32(kv->value);
        break;
    case TW_GGUF_I64:
        number = (int64_t)tw_load_u64(kv->value);
        break;
    case TW_GGUF_U64:
        *value = tw_load_u64(kv->value);
        *negative = false;
        return true;
    default:
        return false;
    }
    *value = (uint64_t)number;
    *negative = number < 0;
    return true;
}

int tw_gguf_uint(const struct tw_gguf *gguf, const char *key, bool needed, uint64_t min,
                 uint64_t max, uint64_t *out, tw_error *err) {
    const struct tw_gguf_kv *kv;
    uint64_t value;
    bool negative;
    int rc = look_up(gguf, key, needed, &kv, err);
    if (rc || !kv) {
        return rc;
    }
    if (!load_integer(kv, &value, &negative)) {
        return wrong_type(gguf, kv, "an integer", err);
    }
    if (negative) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: key %s is %" PRId64 ", expected %" PRIu64 " to %" PRIu64, gguf->path,
                       key, (int64_t)value, min, max);
    }
    if (value < min || value > max) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: key %s is %" PRIu64 ", expected %" PRIu64 " to %" PRIu64, gguf->path,
                       key, value, min, max);
    }
    *out = value;
    return 0;
}

int tw_gguf_float(const struct tw_gguf *gguf, const char *key, bool needed, float *out,
                  tw_error *err) {
    const struct tw_gguf_kv *kv;
    int rc = look_up(gguf, key, needed, &kv, err);
    if (rc || !kv) {
        return rc;
    }
    if (kv->type != TW_GGUF_F32 && kv->type != TW_GGUF_F64) {
        return wrong_type(gguf, kv, "f32", err);
    }
    double value =
        kv->type == TW_GGUF_F32 ? (double)tw_load_f32(kv->value) : tw_load_f64(kv->value);
    if (!(fabs(value) <= (double)FLT_MAX)) {
        return tw_fail(err, TW_E_RANGE, "%s: key %s is %g, expected a finite number", gguf->path,
                       key, value);
    }
    *out = (float)value;
    return 0;
}

int tw_gguf_bool(const struct tw_gguf *gguf, const char *key, bool *out, tw_error *err) {
    const struct tw_gguf_kv *kv = tw_gguf_find(gguf, key);
    if (!kv) {
        return 0;
    }
    if (kv->type != TW_GGUF_BOOL) {
        return wrong_type(gguf, kv, "bool", err);
    }
    *out = kv->value[0] != 0;
    return 0;
}

int tw_gguf_string(const struct tw_gguf *gguf, const char *key, bool needed, const char **out,
                   uint64_t *length, tw_error *err) {
    const struct tw_gguf_kv *kv;
    int rc = look_up(gguf, key, needed, &kv, err);
    if (rc || !kv) {
        return rc;
    }
    if (kv->type != TW_GGUF_STRING) {
        return wrong_type(gguf, kv, "string", err);
    }
    *out = (const char *)kv->value;
    *length = kv->count;
    return 0;
}

int tw_gguf_array(const struct tw_gguf *gguf, const char *key, bool needed,
                  enum tw_gguf_type elem_type, const struct tw_gguf_kv **out, tw_error *err) {
    int rc = look_up(gguf, key, needed, out, err);
    if (rc || !*out) {
        return rc;
    }
    if ((*out)->type != TW_GGUF_ARRAY || (*out)->elem_type != (uint32_t)elem_type) {
        char expected[40];
        snprintf(expected, sizeof expected, "an array of %s", type_name(elem_type));
        return wrong_type(gguf, *out, expected, err);
    }
    return 0;
}

void tw_gguf_next_string(const uint8_t **cursor, const uint8_t **text, uint64_t *length) {
    *length = tw_load_u64(*cursor);
    *text = *cursor + 8;
    *cursor = *text + *length;
}
