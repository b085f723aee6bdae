/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of chat templates as text (value.h): what Python's str(), repr() and json.dumps() give.
 */
#include "driver/chat/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- numbers ---- */

static void put_int(struct tw_jinja_buffer *b, int64_t i) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)i);
    tw_jinja_put_string(b, text);
}

/* The shortest digits that read back as f, as "d.ddde+xx". */
static void shortest(double f, char *text, size_t size) {
    for (int digits = 0; digits < 17; digits++) {
        snprintf(text, size, "%.*e", digits, f);
        if (strtod(text, NULL) == f) {
            return;
        }
    }
}

/* Python's repr() of a finite float: positional from 1e-4 up to below 1e16, with ".0" if it is
 * whole. */
static void put_finite(struct tw_jinja_buffer *b, double f) {
    char e[40], digits[24], text[48];
    int n = 0;
    shortest(f, e, sizeof e);
    char *mark = strchr(e, 'e');
    int exponent = mark ? atoi(mark + 1) : 0;
    for (const char *c = e; mark && c < mark; c++) {
        if (*c >= '0' && *c <= '9' && n < 20) {
            digits[n++] = *c;
        }
    }
    digits[n] = 0;
    const char *sign = signbit(f) ? "-" : "";
    if (exponent < -4 || exponent >= 16) {
        snprintf(text, sizeof text, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "",
                 digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        snprintf(text, sizeof text, "%s0.%.*s%s", sign, -exponent - 1, "0000", digits);
    } else if (n > exponent + 1) {
        snprintf(text, sizeof text, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
    } else {
        snprintf(text, sizeof text, "%s%s%.*s.0", sign, digits, exponent + 1 - n,
                 "0000000000000000");
    }
    tw_jinja_put_string(b, text);
}

static void put_float(struct tw_jinja_buffer *b, double f, bool json) {
    if (isnan(f)) {
        tw_jinja_put_string(b, json ? "NaN" : "nan");
    } else if (isinf(f)) {
        tw_jinja_put_string(b, f < 0 ? "-" : "");
        tw_jinja_put_string(b, json ? "Infinity" : "inf");
    } else {
        put_finite(b, f);
    }
}

/* ---- str and repr ---- */

static bool is_printable(uint32_t c) {
    static const utf8proc_category_t hidden[] = {
        UTF8PROC_CATEGORY_CN, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_CS,
        UTF8PROC_CATEGORY_CO, UTF8PROC_CATEGORY_ZL, UTF8PROC_CATEGORY_ZP, UTF8PROC_CATEGORY_ZS};
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    bool shown = true;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        shown = shown && category != hidden[i];
    }
    return shown || c == ' ';
}

/* Puts "\n" and the like, of a byte that comes from where `data` says. */
static void put_escape(struct tw_jinja_buffer *b, const char *escape, bool data) {
    for (; *escape; escape++) {
        tw_jinja_put_char(b, *escape, data);
    }
}

static void put_repr_char(struct tw_jinja_buffer *b, struct tw_jinja_text c, char quote) {
    uint32_t point = tw_jinja_code_point(c, 0);
    char escape[12] = {'\\', 0};
    if (point == '\n' || point == '\r' || point == '\t') {
        escape[1] = point == '\n' ? 'n' : point == '\r' ? 'r' : 't';
    } else if (point == '\\' || point == (uint8_t)quote) {
        escape[1] = (char)point;
    } else if (!is_printable(point)) {
        snprintf(escape, sizeof escape,
                 point < 0x100     ? "\\x%02x"
                 : point < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                 point);
    } else {
        tw_jinja_put(b, c);
        return;
    }
    put_escape(b, escape, c.data && c.data[0]);
}

static void put_quoted(struct tw_jinja_buffer *b, struct tw_jinja_text text) {
    bool single = memchr(text.p, '\'', text.n), twice = memchr(text.p, '"', text.n);
    char quote = text.n && single && !twice ? '"' : '\'';
    tw_jinja_put_char(b, quote, false);
    for (size_t at = 0, n; at < text.n; at += n) {
        n = tw_jinja_char_bytes(text, at);
        put_repr_char(b, tw_jinja_cut(text, at, at + n), quote);
    }
    tw_jinja_put_char(b, quote, false);
}

static void put_value(struct tw_jinja_buffer *b, const struct tw_jinja_value *v, unsigned depth);

static void put_list(struct tw_jinja_buffer *b, const struct tw_jinja_value *v, unsigned depth) {
    bool tuple = v->kind == TW_JINJA_TUPLE;
    tw_jinja_put_string(b, tuple ? "(" : "[");
    for (size_t i = 0; i < v->list->n && !b->failed; i++) {
        tw_jinja_put_string(b, i ? ", " : "");
        put_value(b, &v->list->item[i], depth + 1);
    }
    tw_jinja_put_string(b, !tuple ? "]" : v->list->n == 1 ? ",)" : ")");
}

static void put_dict(struct tw_jinja_buffer *b, const struct tw_jinja_dict *d, unsigned depth) {
    tw_jinja_put_string(b, "{");
    for (size_t i = 0; i < d->n && !b->failed; i++) {
        tw_jinja_put_string(b, i ? ", " : "");
        put_value(b, &d->entry[i].key, depth + 1);
        tw_jinja_put_string(b, ": ");
        put_value(b, &d->entry[i].value, depth + 1);
    }
    tw_jinja_put_string(b, "}");
}

static void put_value(struct tw_jinja_buffer *b, const struct tw_jinja_value *v, unsigned depth) {
    if (depth > TW_JINJA_VALUE_DEPTH) {
        tw_jinja_put_string(b, "...");
        return;
    }
    switch (v->kind) {
    case TW_JINJA_UNDEFINED:
        tw_jinja_put_string(b, depth ? "Undefined" : "");
        return;
    case TW_JINJA_NONE:
        tw_jinja_put_string(b, "None");
        return;
    case TW_JINJA_BOOL:
        tw_jinja_put_string(b, v->boolean ? "True" : "False");
        return;
    case TW_JINJA_INT:
        put_int(b, v->integer);
        return;
    case TW_JINJA_FLOAT:
        put_float(b, v->number, false);
        return;
    case TW_JINJA_STRING:
        put_quoted(b, v->text);
        return;
    case TW_JINJA_LIST:
    case TW_JINJA_TUPLE:
        put_list(b, v, depth);
        return;
    case TW_JINJA_DICT:
    case TW_JINJA_NAMESPACE:
        put_dict(b, v->dict, depth);
        return;
    case TW_JINJA_FUNCTION:
    case TW_JINJA_MACRO:
    case TW_JINJA_LOOP:
        tw_jinja_put_string(b, "<");
        tw_jinja_put_string(b, tw_jinja_type_name(v));
        tw_jinja_put_string(b, ">");
        return;
    }
}

void tw_jinja_put_repr(struct tw_jinja_buffer *b, const struct tw_jinja_value *v) {
    put_value(b, v, v->kind == TW_JINJA_UNDEFINED);
}

void tw_jinja_put_str(struct tw_jinja_buffer *b, const struct tw_jinja_value *v) {
    if (v->kind == TW_JINJA_STRING) {
        tw_jinja_put(b, v->text);
    } else {
        put_value(b, v, 0);
    }
}

struct tw_jinja_text tw_jinja_str(struct tw_jinja_arena *arena, const struct tw_jinja_value *v) {
    struct tw_jinja_buffer b = {.arena = arena};
    if (v->kind == TW_JINJA_STRING) {
        return v->text;
    }
    put_value(&b, v, 0);
    return tw_jinja_buffer_text(&b);
}

/* ---- JSON ---- */

struct json {
    struct tw_jinja_buffer *b;
    const struct tw_jinja_json_style *style;
    const char *refused; /* the name of a type that JSON does not have */
};

static void put_unicode_escape(struct tw_jinja_buffer *b, uint32_t point, bool data) {
    char escape[16];
    if (point >= 0x10000) {
        point -= 0x10000;
        snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD800 + (point >> 10),
                 0xDC00 + (point & 0x3FF));
    } else {
        snprintf(escape, sizeof escape, "\\u%04x", point);
    }
    put_escape(b, escape, data);
}

static void put_json_char(const struct json *j, struct tw_jinja_text c) {
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    uint32_t point = tw_jinja_code_point(c, 0);
    const char *known = point && point < 0x80 ? strchr(from, (int)point) : NULL;
    bool data = c.data && c.data[0];
    if (known) {
        tw_jinja_put_char(j->b, '\\', data);
        tw_jinja_put_char(j->b, to[known - from], data);
    } else if (point < 0x20 || (j->style->ascii && point > 0x7E)) {
        put_unicode_escape(j->b, point, data);
    } else {
        tw_jinja_put(j->b, c);
    }
}

static void put_json_string(const struct json *j, struct tw_jinja_text text) {
    tw_jinja_put_string(j->b, "\"");
    for (size_t at = 0, n; at < text.n && !j->b->failed; at += n) {
        n = tw_jinja_char_bytes(text, at);
        put_json_char(j, tw_jinja_cut(text, at, at + n));
    }
    tw_jinja_put_string(j->b, "\"");
}

static void put_json_line(const struct json *j, unsigned depth) {
    if (j->style->indent >= 0) {
        tw_jinja_put_string(j->b, "\n");
        for (unsigned i = 0; i < depth * (unsigned)j->style->indent && !j->b->failed; i++) {
            tw_jinja_put_string(j->b, " ");
        }
    }
}

static void put_json_value(struct json *j, const struct tw_jinja_value *v, unsigned depth);

static void put_json_list(struct json *j, const struct tw_jinja_list *list, unsigned depth) {
    tw_jinja_put_string(j->b, "[");
    for (size_t i = 0; i < list->n && !j->b->failed; i++) {
        if (i) {
            tw_jinja_put(j->b, j->style->item);
        }
        put_json_line(j, depth + 1);
        put_json_value(j, &list->item[i], depth + 1);
    }
    if (list->n) {
        put_json_line(j, depth);
    }
    tw_jinja_put_string(j->b, "]");
}

/* Keys that are not strings become one, as json.dumps has it. */
static void put_json_key(struct json *j, const struct tw_jinja_value *key) {
    if (key->kind == TW_JINJA_STRING) {
        put_json_string(j, key->text);
        return;
    }
    tw_jinja_put_string(j->b, "\"");
    put_json_value(j, key, 0);
    tw_jinja_put_string(j->b, "\"");
    if (tw_jinja_is_sequence(key) || tw_jinja_is_dict(key)) {
        j->refused = "such a key";
    }
}

static int by_key(const void *a, const void *b) {
    const struct tw_jinja_entry *x = a, *y = b;
    int order = 0;
    return tw_jinja_compare(&x->key, &y->key, &order) ? order : 0;
}

static const struct tw_jinja_entry *sorted_entries(struct json *j, const struct tw_jinja_dict *d) {
    struct tw_jinja_entry *copy =
        j->style->sort ? tw_jinja_alloc(j->b->arena, d->n * sizeof *copy) : NULL;
    if (copy && d->n) {
        memcpy(copy, d->entry, d->n * sizeof *copy);
        qsort(copy, d->n, sizeof *copy, by_key);
    }
    return copy ? copy : d->entry;
}

static void put_json_dict(struct json *j, const struct tw_jinja_dict *d, unsigned depth) {
    const struct tw_jinja_entry *entry = sorted_entries(j, d);
    tw_jinja_put_string(j->b, "{");
    for (size_t i = 0; i < d->n && !j->b->failed; i++) {
        if (i) {
            tw_jinja_put(j->b, j->style->item);
        }
        put_json_line(j, depth + 1);
        put_json_key(j, &entry[i].key);
        tw_jinja_put(j->b, j->style->colon);
        put_json_value(j, &entry[i].value, depth + 1);
    }
    if (d->n) {
        put_json_line(j, depth);
    }
    tw_jinja_put_string(j->b, "}");
}

static void put_json_value(struct json *j, const struct tw_jinja_value *v, unsigned depth) {
    if (depth > TW_JINJA_VALUE_DEPTH) {
        j->refused = "a value nested so deeply";
        return;
    }
    switch (v->kind) {
    case TW_JINJA_NONE:
        tw_jinja_put_string(j->b, "null");
        return;
    case TW_JINJA_BOOL:
        tw_jinja_put_string(j->b, v->boolean ? "true" : "false");
        return;
    case TW_JINJA_INT:
        put_int(j->b, v->integer);
        return;
    case TW_JINJA_FLOAT:
        put_float(j->b, v->number, true);
        return;
    case TW_JINJA_STRING:
        put_json_string(j, v->text);
        return;
    case TW_JINJA_LIST:
    case TW_JINJA_TUPLE:
        put_json_list(j, v->list, depth);
        return;
    case TW_JINJA_DICT:
        put_json_dict(j, v->dict, depth);
        return;
    case TW_JINJA_UNDEFINED:
    case TW_JINJA_NAMESPACE:
    case TW_JINJA_FUNCTION:
    case TW_JINJA_MACRO:
    case TW_JINJA_LOOP:
        j->refused = tw_jinja_type_name(v);
        return;
    }
}

const char *tw_jinja_put_json(struct tw_jinja_buffer *b, const struct tw_jinja_value *v,
                              const struct tw_jinja_json_style *style) {
    struct json j = {.b = b, .style = style};
    put_json_value(&j, v, 0);
    return j.refused;
}
