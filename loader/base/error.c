/* SPDX-License-Identifier: Apache-2.0
 *
 * The error table's texts and the formatter of the error object (tilewright/error.h).
 */
#include "tilewright/error.h"

#include "loader/base/text_filter.h"

#include <stdio.h>
#include <string.h>

struct entry {
    const char *name, *cause, *remedy;
    enum tw_error_class class_;
};

static const struct entry *find(int code) {
    static const struct entry ok = {"OK", "no error", "nothing to do", TW_CLASS_OK};
    static const struct entry unknown = {"UNKNOWN", "unknown error code", "report this",
                                         TW_CLASS_INTERNAL};
    switch (code) {
    case TW_OK:
        return &ok;
#define TW_X(name, number, klass, cause, remedy)                                \
    case TW_E_##name: {                                                         \
        static const struct entry e = {#name, cause, remedy, TW_CLASS_##klass}; \
        return &e;                                                              \
    }
        TW_ERRORS(TW_X)
#undef TW_X
    default:
        return &unknown;
    }
}

const char *tw_error_name(int code) {
    return find(code)->name;
}
const char *tw_error_cause(int code) {
    return find(code)->cause;
}
const char *tw_error_remedy(int code) {
    return find(code)->remedy;
}
enum tw_error_class tw_error_class_of(int code) {
    return find(code)->class_;
}

int tw_error_exit_status(int code) {
    return code == TW_E_INTERRUPTED ? 130 : (int)find(code)->class_;
}

void tw_error_vset(tw_error *err, int code, const char *format, va_list args) {
    if (err) {
        err->code = code;
        if (!format) {
            snprintf(err->message, sizeof err->message, "%s", tw_error_cause(code));
            return;
        }
        vsnprintf(err->message, sizeof err->message, format, args);
        tw_clean_text(err->message);
    }
}

void tw_error_set(tw_error *err, int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    tw_error_vset(err, code, format, args);
    va_end(args);
}

void tw_error_prefix(tw_error *err, const char *prefix) {
    if (!err || !prefix) {
        return;
    }
    char old[sizeof err->message];
    memcpy(old, err->message, sizeof old);
    size_t n = (size_t)snprintf(err->message, sizeof err->message, "%s: ", prefix);
    if (n < sizeof err->message) {
        snprintf(err->message + n, sizeof err->message - n, "%s", old);
    }
    tw_clean_text(err->message);
}

void tw_error_append(tw_error *err, const char *format, ...) {
    if (!err) {
        return;
    }
    size_t n = strlen(err->message);
    va_list args;
    va_start(args, format);
    vsnprintf(err->message + n, sizeof err->message - n, format, args);
    va_end(args);
    tw_clean_text(err->message);
}
