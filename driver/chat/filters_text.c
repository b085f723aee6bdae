/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters that make text and numbers (filters_text.h).
 */
#include "driver/chat/filters_text.h"
#include "driver/chat/strings.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name)                                                             \
    static int name(struct tw_jinja_render *r, const struct tw_jinja_call *call, \
                    struct tw_jinja_value *out)

static struct tw_jinja_text self_text(struct tw_jinja_render *r, const struct tw_jinja_call *call) {
    return tw_jinja_str(r->arena, &call->self);
}

FILTER(run_string) {
    *out = tw_jinja_string(self_text(r, call));
    return 0;
}

FILTER(run_trim) {
    const struct tw_jinja_value *chars = call->arg[0];
    struct tw_jinja_text text = self_text(r, call);
    const struct tw_jinja_text *set = chars && chars->kind == TW_JINJA_STRING ? &chars->text : NULL;
    int code = tw_jinja_step_product(r, text.n, set ? set->n : 0);
    *out = tw_jinja_string(code ? text : tw_jinja_strip(text, set, true, true));
    return code;
}

FILTER(run_upper) {
    return tw_jinja_change_case(r, self_text(r, call), TW_JINJA_UPPER, true, out);
}

FILTER(run_lower) {
    return tw_jinja_change_case(r, self_text(r, call), TW_JINJA_LOWER, true, out);
}

FILTER(run_title) {
    return tw_jinja_change_case(r, self_text(r, call), TW_JINJA_TITLE, true, out);
}

FILTER(run_capitalize) {
    return tw_jinja_change_case(r, self_text(r, call), TW_JINJA_CAPITALIZE, true, out);
}

FILTER(run_replace) {
    struct tw_jinja_buffer b = {.arena = r->arena};
    struct tw_jinja_text text = self_text(r, call);
    bool limited = call->arg[2] && call->arg[2]->kind == TW_JINJA_INT;
    tw_jinja_put_replaced(&b, text, tw_jinja_str(r->arena, call->arg[0]),
                          tw_jinja_str(r->arena, call->arg[1]),
                          limited ? call->arg[2]->integer : -1);
    int code = tw_jinja_finish_text(r, &b, out);
    return code ? code : tw_jinja_step(r, text.n / 64);
}

/* What json.dumps(separators=...) takes: a pair of strings. */
static bool read_separators(const struct tw_jinja_value *v, struct tw_jinja_json_style *style) {
    if (!v || v->kind == TW_JINJA_NONE) {
        return true;
    }
    bool good = tw_jinja_is_sequence(v) && v->list->n == 2 &&
                v->list->item[0].kind == TW_JINJA_STRING &&
                v->list->item[1].kind == TW_JINJA_STRING;
    if (good) {
        style->item = v->list->item[0].text;
        style->colon = v->list->item[1].text;
    }
    return good;
}

FILTER(run_tojson) {
    const struct tw_jinja_value *ascii = call->arg[0], *indent = call->arg[1], *sort = call->arg[3];
    struct tw_jinja_buffer b = {.arena = r->arena};
    bool lines = indent && indent->kind == TW_JINJA_INT;
    struct tw_jinja_json_style style = {
        .indent = lines ? (int)(indent->integer < 0 ? 0 : indent->integer & 63) : -1,
        .item = lines ? TW_JINJA_TEXT(",") : TW_JINJA_TEXT(", "),
        .colon = TW_JINJA_TEXT(": "),
        .ascii = ascii && tw_jinja_truth(ascii),
        .sort = sort && tw_jinja_truth(sort)};
    if (!read_separators(call->arg[2], &style)) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "tojson: separators must be two strings");
    }
    const char *refused = tw_jinja_put_json(&b, &call->self, &style);
    if (refused) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "tojson: %s has no form in JSON", refused);
    }
    int code = tw_jinja_finish_text(r, &b, out);
    return code ? code : tw_jinja_step(r, b.n / 64);
}

/* ---- indent, join-like ---- */

FILTER(run_indent) {
    const struct tw_jinja_value *width = call->arg[0];
    bool first = call->arg[1] && tw_jinja_truth(call->arg[1]);
    bool blank = call->arg[2] && tw_jinja_truth(call->arg[2]);
    char spaces[64];
    memset(spaces, ' ', sizeof spaces);
    int64_t n = width && width->kind == TW_JINJA_INT ? width->integer : 4;
    struct tw_jinja_text by = {spaces, NULL, (size_t)(n < 0 ? 0 : n & 63)};
    if (width && width->kind == TW_JINJA_STRING) {
        by = width->text;
    }
    struct tw_jinja_value list;
    struct tw_jinja_buffer b = {.arena = r->arena};
    struct tw_jinja_text text = self_text(r, call), newline = TW_JINJA_TEXT("\n");
    bool good = tw_jinja_new_list(r->arena, TW_JINJA_LIST, &list) &&
                tw_jinja_split(r->arena, text, &newline, -1, false, list.list);
    for (size_t i = 0; good && i < list.list->n; i++) {
        struct tw_jinja_text line = list.list->item[i].text;
        tw_jinja_put_string(&b, i ? "\n" : "");
        if ((i || first) && (line.n || blank || (first && !i))) {
            tw_jinja_put(&b, by);
        }
        tw_jinja_put(&b, line);
    }
    return good ? tw_jinja_finish_text(r, &b, out) : tw_jinja_no_memory(r);
}

FILTER(run_escape) {
    static const char from[] = "&<>'\"", *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct tw_jinja_text text = self_text(r, call);
    struct tw_jinja_buffer b = {.arena = r->arena};
    for (size_t i = 0; i < text.n && !b.failed; i++) {
        const char *known = text.p[i] ? strchr(from, text.p[i]) : NULL;
        if (known) {
            tw_jinja_put_string(&b, to[known - from]);
        } else {
            tw_jinja_put(&b, tw_jinja_cut(text, i, i + 1));
        }
    }
    return tw_jinja_finish_text(r, &b, out);
}

FILTER(run_wordcount) {
    struct tw_jinja_list words = {0};
    bool good = tw_jinja_split(r->arena, self_text(r, call), NULL, -1, false, &words);
    *out = tw_jinja_int((int64_t)words.n);
    return good ? 0 : tw_jinja_no_memory(r);
}

/* ---- numbers ---- */

/* Reads the whole of a text as a number. */
static bool read_number(struct tw_jinja_text text, double *number, int64_t *integer, bool *whole) {
    char digits[64], *end;
    text = tw_jinja_strip(text, NULL, true, true);
    if (text.n == 0 || text.n >= sizeof digits || memchr(text.p, 'x', text.n) ||
        memchr(text.p, 'X', text.n)) {
        return false;
    }
    memcpy(digits, text.p, text.n);
    digits[text.n] = 0;
    errno = 0;
    *integer = strtoll(digits, &end, 10);
    *whole = *end == 0 && errno == 0;
    *number = strtod(digits, &end);
    return *end == 0;
}

FILTER(run_int) {
    const struct tw_jinja_value *v = &call->self;
    struct tw_jinja_value otherwise = call->arg[0] ? *call->arg[0] : tw_jinja_int(0);
    double f = 0;
    int64_t i = 0;
    bool whole = false, good = false;
    if (v->kind == TW_JINJA_STRING) {
        good = read_number(v->text, &f, &i, &whole);
    } else if (tw_jinja_is_number(v)) {
        whole = v->kind != TW_JINJA_FLOAT;
        i = whole ? tw_jinja_as_int(v) : 0;
        f = tw_jinja_as_float(v);
        good = true;
    }
    good = good && (whole || (f > -9e18 && f < 9e18));
    *out = !good ? otherwise : tw_jinja_int(whole ? i : (int64_t)f);
    return tw_jinja_step(r, 1);
}

FILTER(run_float) {
    const struct tw_jinja_value *v = &call->self;
    double f = 0;
    int64_t i;
    bool whole, good = tw_jinja_is_number(v);
    if (good) {
        f = tw_jinja_as_float(v);
    } else if (v->kind == TW_JINJA_STRING) {
        good = read_number(v->text, &f, &i, &whole);
    }
    *out = good ? tw_jinja_float(f) : call->arg[0] ? *call->arg[0] : tw_jinja_float(0.0);
    return tw_jinja_step(r, 1);
}

static int need_number(struct tw_jinja_render *r, const char *filter,
                       const struct tw_jinja_value *v) {
    return tw_jinja_is_number(v)
               ? 0
               : tw_jinja_render_fail(r, TW_E_FORMAT, "%s needs a number, found %s", filter,
                                      tw_jinja_type_name(v));
}

FILTER(run_abs) {
    int code = need_number(r, "abs", &call->self);
    if (code) {
        return code;
    }
    bool real = call->self.kind == TW_JINJA_FLOAT;
    int64_t i = real ? 0 : tw_jinja_as_int(&call->self);
    *out = real ? tw_jinja_float(fabs(call->self.number))
                : tw_jinja_int(i < 0 && i > INT64_MIN ? -i : i);
    return 0;
}

/* To the nearest, halves to even; or up, or down. */
FILTER(run_round) {
    const struct tw_jinja_value *precision = call->arg[0], *method = call->arg[1];
    int code = need_number(r, "round", &call->self);
    if (code) {
        return code;
    }
    int64_t digits = precision && precision->kind == TW_JINJA_INT ? precision->integer : 0;
    double scale = pow(10.0, (double)(digits < 0 ? 0 : digits > 15 ? 15 : digits));
    double f = tw_jinja_as_float(&call->self) * scale;
    bool up = method && method->kind == TW_JINJA_STRING && tw_jinja_is(method->text, "ceil");
    bool down = method && method->kind == TW_JINJA_STRING && tw_jinja_is(method->text, "floor");
    *out = tw_jinja_float((up ? ceil(f) : down ? floor(f) : nearbyint(f)) / scale);
    return 0;
}

/* ---- "%s" ---- */

/* Appends one value by a conversion of "%": s, r, d, i, or f with an optional precision. */
static bool put_conversion(struct tw_jinja_buffer *b, char conversion, int precision,
                           const struct tw_jinja_value *v) {
    char text[400];
    if (conversion == 's') {
        tw_jinja_put_str(b, v);
        return precision < 0;
    }
    if (conversion == 'r') {
        tw_jinja_put_repr(b, v);
        return precision < 0;
    }
    if (!tw_jinja_is_number(v) || precision > 40) {
        return false;
    }
    if (conversion == 'd' || conversion == 'i') {
        double f = tw_jinja_as_float(v);
        snprintf(text, sizeof text, "%.0f", trunc(f));
        struct tw_jinja_value whole = *v;
        if (v->kind != TW_JINJA_FLOAT) {
            whole = tw_jinja_int(tw_jinja_as_int(v));
            tw_jinja_put_str(b, &whole);
        } else {
            tw_jinja_put_string(b, text);
        }
        return precision < 0;
    }
    snprintf(text, sizeof text, "%.*f", precision < 0 ? 6 : precision, tw_jinja_as_float(v));
    tw_jinja_put_string(b, text);
    return conversion == 'f';
}

/* Reads "%.3f" or "%s" at `at`, after the "%". */
static char read_conversion(struct tw_jinja_text format, size_t *at, int *precision) {
    *precision = -1;
    if (*at < format.n && format.p[*at] == '.') {
        for (*precision = 0, ++*at; *at < format.n && *precision < 1000; ++*at) {
            char c = format.p[*at];
            if (c < '0' || c > '9') {
                break;
            }
            *precision = *precision * 10 + (c - '0');
        }
    }
    return *at < format.n ? format.p[(*at)++] : 0;
}

int tw_jinja_percent(struct tw_jinja_render *r, struct tw_jinja_text format,
                     const struct tw_jinja_value *v, struct tw_jinja_value *out) {
    const struct tw_jinja_value *values = v->kind == TW_JINJA_TUPLE ? v->list->item : v;
    size_t n = v->kind == TW_JINJA_TUPLE ? v->list->n : 1, used = 0;
    struct tw_jinja_buffer b = {.arena = r->arena};
    for (size_t at = 0; at < format.n && !b.failed;) {
        if (format.p[at] != '%') {
            tw_jinja_put(&b, tw_jinja_cut(format, at, at + 1));
            at++;
            continue;
        }
        int precision;
        at++;
        char conversion = read_conversion(format, &at, &precision);
        if (conversion == '%') {
            tw_jinja_put_string(&b, "%");
        } else if (used == n || !put_conversion(&b, conversion, precision, &values[used++])) {
            return tw_jinja_render_fail(r, TW_E_UNSUPPORTED,
                                        "the conversion %%%c is not supported, or has no value",
                                        conversion > 32 && conversion < 127 ? conversion : '?');
        }
    }
    if (used < n) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "%% has more values than conversions");
    }
    return tw_jinja_finish_text(r, &b, out);
}

FILTER(run_format) {
    struct tw_jinja_value values = {.kind = TW_JINJA_TUPLE};
    struct tw_jinja_list copy = call->all->positional;
    values.list = &copy;
    if (call->all->keyword.n) {
        return tw_jinja_render_fail(r, TW_E_UNSUPPORTED, "format by name is not supported");
    }
    return tw_jinja_percent(r, self_text(r, call), &values, out);
}

const struct tw_jinja_function *tw_jinja_text_filter(struct tw_jinja_text name) {
    static const struct tw_jinja_function table[] = {
        {"string", "", 0, run_string},
        {"safe", "", 0, run_string},
        {"trim", "chars", 0, run_trim},
        {"upper", "", 0, run_upper},
        {"lower", "", 0, run_lower},
        {"title", "", 0, run_title},
        {"capitalize", "", 0, run_capitalize},
        {"replace", "old new count", 2, run_replace},
        {"tojson", "ensure_ascii indent separators sort_keys", 0, run_tojson},
        {"indent", "width first blank", 0, run_indent},
        {"escape", "", 0, run_escape},
        {"e", "", 0, run_escape},
        {"wordcount", "", 0, run_wordcount},
        {"int", "default base", 0, run_int},
        {"float", "default", 0, run_float},
        {"abs", "", 0, run_abs},
        {"round", "precision method", 0, run_round},
        {"format", "*", 0, run_format},
    };
    return TW_JINJA_IN_TABLE(table, name);
}
