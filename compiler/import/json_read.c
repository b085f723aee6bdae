/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON of model files (json_read.h).
 */
#include "compiler/import/json_read.h"

#include "loader/base/text_filter.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define SHOWN 60

const char *tw_json_kind(const json_t *value) {
    static const char *const kinds[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a fraction", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };
    return value ? kinds[json_typeof(value)] : "absent";
}

int tw_json_parse(const char *path, const void *bytes, uint64_t size, json_t **out, tw_error *err) {
    json_error_t where;
    char text[120];
    *out = json_loadb(bytes, (size_t)size, JSON_REJECT_DUPLICATES, &where);
    if (*out && json_is_object(*out)) {
        return 0;
    }
    if (*out) {
        int rc = tw_fail(err, TW_E_FORMAT, "%s: the JSON text is %s, expected an object", path,
                         tw_json_kind(*out));
        json_decref(*out);
        *out = NULL;
        return rc;
    }
    if (json_error_code(&where) == json_error_out_of_memory) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory", path);
    }
    tw_text_copy(text, sizeof text, where.text, strlen(where.text));
    return tw_fail(err, TW_E_FORMAT, "%s: line %d, column %d: not JSON: %s", path, where.line,
                   where.column, text);
}

/* Sets *out to the member, or to NULL if it is absent or null and not needed. */
static int find(const char *path, const json_t *object, const char *name, bool needed,
                const json_t **out, tw_error *err) {
    const json_t *value = object ? json_object_get(object, name) : NULL;
    *out = json_is_null(value) ? NULL : value;
    return *out || !needed ? 0 : tw_fail(err, TW_E_MISSING, "%s: %s is missing", path, name);
}

static int fail_kind(const char *path, const char *name, const json_t *value, const char *expected,
                     tw_error *err) {
    return tw_fail(err, TW_E_FORMAT, "%s: %s is %s, expected %s", path, name, tw_json_kind(value),
                   expected);
}

int tw_json_uint(const char *path, const json_t *object, const char *name, bool needed,
                 uint64_t min, uint64_t max, uint64_t *out, tw_error *err) {
    const json_t *value;
    int rc = find(path, object, name, needed, &value, err);
    if (rc || !value) {
        return rc;
    }
    if (!json_is_integer(value)) {
        return fail_kind(path, name, value, "a whole number", err);
    }
    json_int_t number = json_integer_value(value);
    if (number < 0 || (uint64_t)number < min || (uint64_t)number > max) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: %s is %" JSON_INTEGER_FORMAT ", expected %" PRIu64 " to %" PRIu64, path,
                       name, number, min, max);
    }
    *out = (uint64_t)number;
    return 0;
}

int tw_json_float(const char *path, const json_t *object, const char *name, bool needed, float *out,
                  tw_error *err) {
    const json_t *value;
    int rc = find(path, object, name, needed, &value, err);
    if (rc || !value) {
        return rc;
    }
    if (!json_is_number(value)) {
        return fail_kind(path, name, value, "a number", err);
    }
    double number = json_number_value(value);
    if (!(fabs(number) <= 3.4e38)) {
        return tw_fail(err, TW_E_RANGE, "%s: %s is %g, which is too large", path, name, number);
    }
    *out = (float)number;
    return 0;
}

int tw_json_bool(const char *path, const json_t *object, const char *name, bool *out,
                 tw_error *err) {
    const json_t *value;
    int rc = find(path, object, name, false, &value, err);
    if (rc == 0 && value && !json_is_boolean(value)) {
        return fail_kind(path, name, value, "true or false", err);
    }
    *out = value ? json_is_true(value) : *out;
    return rc;
}

int tw_json_text(const char *path, const json_t *object, const char *name, bool needed,
                 const char **out, tw_error *err) {
    const json_t *value;
    int rc = find(path, object, name, needed, &value, err);
    if (rc == 0 && value && !json_is_string(value)) {
        return fail_kind(path, name, value, "a string", err);
    }
    *out = value ? json_string_value(value) : *out;
    return rc;
}

int tw_json_object(const char *path, const json_t *object, const char *name, json_t **out,
                   tw_error *err) {
    const json_t *value;
    int rc = find(path, object, name, false, &value, err);
    if (rc == 0 && value && !json_is_object(value)) {
        return fail_kind(path, name, value, "an object", err);
    }
    *out = value ? json_object_get(object, name) : NULL;
    return rc;
}

int tw_json_array(const char *path, const json_t *object, const char *name, json_t **out,
                  tw_error *err) {
    const json_t *value;
    int rc = find(path, object, name, false, &value, err);
    if (rc == 0 && value && !json_is_array(value)) {
        return fail_kind(path, name, value, "an array", err);
    }
    *out = value ? json_object_get(object, name) : NULL;
    return rc;
}
