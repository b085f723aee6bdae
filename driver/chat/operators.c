/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators on values (eval.h) as Python defines them, and iteration. Integers have 64 bits; where
 * Python's would grow beyond, rendering fails.
 */
#include "driver/chat/eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *operator_text(enum tw_jinja_operator op) {
    static const char *const text[] = {"+",  "-",  "*", "/",  "//", "%",  "**", "~",
                                       "==", "!=", "<", "<=", ">",  ">=", "in", "not in"};
    return text[op];
}

static int type_error(struct tw_jinja_render *r, enum tw_jinja_operator op,
                      const struct tw_jinja_value *a, const struct tw_jinja_value *b) {
    const struct tw_jinja_value *u = a->kind == TW_JINJA_UNDEFINED   ? a
                                     : b->kind == TW_JINJA_UNDEFINED ? b
                                                                     : NULL;
    if (u) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "'%.*s' is undefined",
                                    u->text.n < 60 ? (int)u->text.n : 60, u->text.p);
    }
    return tw_jinja_render_fail(r, TW_E_FORMAT, "%s between %s and %s", operator_text(op),
                                tw_jinja_type_name(a), tw_jinja_type_name(b));
}

/* ---- numbers ---- */

static bool power(int64_t base, int64_t exponent, int64_t *out) {
    bool over = false;
    *out = 1;
    for (; exponent > 0 && !over; exponent >>= 1) {
        over = exponent & 1 && __builtin_mul_overflow(*out, base, out);
        over = over || (exponent > 1 && __builtin_mul_overflow(base, base, &base));
    }
    return !over;
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Returns false if the result does not fit. b is not 0 where it divides. */
static bool operate_ints(enum tw_jinja_operator op, int64_t a, int64_t b, int64_t *out) {
    bool divides = op == TW_JINJA_FLOOR_DIV || op == TW_JINJA_MOD;
    if (divides && b == -1) { /* the one quotient that does not fit, which the processor traps */
        *out = 0;
        return op == TW_JINJA_MOD || !__builtin_sub_overflow((int64_t)0, a, out);
    }
    switch ((int)op) {
    case TW_JINJA_ADD:
        return !__builtin_add_overflow(a, b, out);
    case TW_JINJA_SUB:
        return !__builtin_sub_overflow(a, b, out);
    case TW_JINJA_MUL:
        return !__builtin_mul_overflow(a, b, out);
    case TW_JINJA_FLOOR_DIV:
        *out = floor_div(a, b);
        return true;
    case TW_JINJA_MOD:
        *out = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
        return true;
    default:
        return power(a, b, out);
    }
}

static double operate_floats(enum tw_jinja_operator op, double a, double b) {
    double m;
    switch ((int)op) {
    case TW_JINJA_ADD:
        return a + b;
    case TW_JINJA_SUB:
        return a - b;
    case TW_JINJA_MUL:
        return a * b;
    case TW_JINJA_DIV:
        return a / b;
    case TW_JINJA_FLOOR_DIV:
        return floor(a / b);
    case TW_JINJA_MOD:
        m = fmod(a, b);
        return m != 0 && (m < 0) != (b < 0) ? m + b : m;
    default:
        return pow(a, b);
    }
}

static int operate_numbers(struct tw_jinja_render *r, enum tw_jinja_operator op,
                           const struct tw_jinja_value *a, const struct tw_jinja_value *b,
                           struct tw_jinja_value *out) {
    bool divides = op == TW_JINJA_DIV || op == TW_JINJA_FLOOR_DIV || op == TW_JINJA_MOD;
    double x = tw_jinja_as_float(a), y = tw_jinja_as_float(b);
    if (divides && y == 0.0) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "division by zero");
    }
    bool whole = a->kind != TW_JINJA_FLOAT && b->kind != TW_JINJA_FLOAT && op != TW_JINJA_DIV;
    if (!whole || (op == TW_JINJA_POW && y < 0)) {
        *out = tw_jinja_float(operate_floats(op, x, y));
        return 0;
    }
    int64_t i = 0;
    if (!operate_ints(op, tw_jinja_as_int(a), tw_jinja_as_int(b), &i)) {
        return tw_jinja_render_fail(r, TW_E_RANGE, "%s: the result needs more than 64 bits",
                                    operator_text(op));
    }
    *out = tw_jinja_int(i);
    return 0;
}

/* ---- strings and lists ---- */

static int concat(struct tw_jinja_render *r, struct tw_jinja_text a, struct tw_jinja_text b,
                  struct tw_jinja_value *out) {
    struct tw_jinja_buffer buffer = {.arena = r->arena};
    if (a.n == 0 || b.n == 0) {
        *out = tw_jinja_string(a.n ? a : b);
        return 0;
    }
    tw_jinja_put(&buffer, a);
    tw_jinja_put(&buffer, b);
    int code = tw_jinja_finish_text(r, &buffer, out);
    return code ? code : tw_jinja_step(r, (a.n + b.n) / 256);
}

static int append_list(struct tw_jinja_render *r, const struct tw_jinja_list *from,
                       struct tw_jinja_list *to) {
    for (size_t i = 0; i < from->n; i++) {
        if (!tw_jinja_push(r->arena, to, from->item[i])) {
            return tw_jinja_no_memory(r);
        }
    }
    return tw_jinja_step(r, from->n / 16);
}

static int join_lists(struct tw_jinja_render *r, const struct tw_jinja_value *a,
                      const struct tw_jinja_value *b, struct tw_jinja_value *out) {
    struct tw_jinja_value list;
    if (!tw_jinja_new_list(r->arena, a->kind, &list)) {
        return tw_jinja_no_memory(r);
    }
    int code = append_list(r, a->list, list.list);
    code = code ? code : append_list(r, b->list, list.list);
    *out = list;
    return code;
}

/* A string or a list, n times. */
static int repeat(struct tw_jinja_render *r, const struct tw_jinja_value *v, int64_t n,
                  struct tw_jinja_value *out) {
    struct tw_jinja_value self = *v;
    struct tw_jinja_buffer b = {.arena = r->arena};
    bool text = self.kind == TW_JINJA_STRING;
    int code = 0;
    if (!text && !tw_jinja_new_list(r->arena, self.kind, out)) {
        return tw_jinja_no_memory(r);
    }
    size_t size = text ? self.text.n : self.list->n;
    for (int64_t i = 0; i < n && !code && !b.failed && size; i++) {
        code = tw_jinja_step(r, 1);
        if (text) {
            tw_jinja_put(&b, self.text);
        } else {
            code = code ? code : append_list(r, self.list, out->list);
        }
    }
    return code || !text ? code : tw_jinja_finish_text(r, &b, out);
}

static bool is_repeated(const struct tw_jinja_value *v, const struct tw_jinja_value *n) {
    return (v->kind == TW_JINJA_STRING || tw_jinja_is_sequence(v)) &&
           (n->kind == TW_JINJA_INT || n->kind == TW_JINJA_BOOL);
}

/* ---- in ---- */

static int contains(struct tw_jinja_render *r, const struct tw_jinja_value *item,
                    const struct tw_jinja_value *in, bool *out) {
    *out = false;
    if (in->kind == TW_JINJA_STRING) {
        if (item->kind != TW_JINJA_STRING) {
            return type_error(r, TW_JINJA_IN, item, in);
        }
        *out = item->text.n == 0 || tw_jinja_find(in->text, item->text, 0) < in->text.n;
        return tw_jinja_step(r, in->text.n / 256);
    }
    if (tw_jinja_is_dict(in)) {
        *out = tw_jinja_get(in->dict, item) != NULL;
        return tw_jinja_step(r, in->dict->n / 16);
    }
    if (in->kind == TW_JINJA_UNDEFINED) {
        return 0;
    }
    if (!tw_jinja_is_sequence(in)) {
        return type_error(r, TW_JINJA_IN, item, in);
    }
    for (size_t i = 0; i < in->list->n && !*out; i++) {
        *out = tw_jinja_equal(&in->list->item[i], item);
    }
    return tw_jinja_step(r, in->list->n / 16);
}

/* ---- all of them ---- */

static int compare(struct tw_jinja_render *r, enum tw_jinja_operator op,
                   const struct tw_jinja_value *a, const struct tw_jinja_value *b,
                   struct tw_jinja_value *out) {
    int order;
    if (op == TW_JINJA_EQ || op == TW_JINJA_NE) {
        *out = tw_jinja_bool(tw_jinja_equal(a, b) == (op == TW_JINJA_EQ));
        return 0;
    }
    if (!tw_jinja_compare(a, b, &order)) {
        return type_error(r, op, a, b);
    }
    *out = tw_jinja_bool(op == TW_JINJA_LT   ? order < 0
                         : op == TW_JINJA_LE ? order <= 0
                         : op == TW_JINJA_GT ? order > 0
                                             : order >= 0);
    return 0;
}

static int calculate(struct tw_jinja_render *r, enum tw_jinja_operator op,
                     const struct tw_jinja_value *a, const struct tw_jinja_value *b,
                     struct tw_jinja_value *out) {
    if (tw_jinja_is_number(a) && tw_jinja_is_number(b)) {
        return operate_numbers(r, op, a, b, out);
    }
    if (op == TW_JINJA_ADD && a->kind == b->kind && a->kind == TW_JINJA_STRING) {
        return concat(r, a->text, b->text, out);
    }
    if (op == TW_JINJA_ADD && a->kind == b->kind && tw_jinja_is_sequence(a)) {
        return join_lists(r, a, b, out);
    }
    if (op == TW_JINJA_MUL && (is_repeated(a, b) || is_repeated(b, a))) {
        bool first = is_repeated(a, b);
        return repeat(r, first ? a : b, tw_jinja_as_int(first ? b : a), out);
    }
    if (op == TW_JINJA_MOD && a->kind == TW_JINJA_STRING) {
        return tw_jinja_percent(r, a->text, b, out);
    }
    return type_error(r, op, a, b);
}

int tw_jinja_operate(struct tw_jinja_render *r, enum tw_jinja_operator op,
                     const struct tw_jinja_value *a, const struct tw_jinja_value *b,
                     struct tw_jinja_value *out) {
    bool is = false;
    int code;
    switch (op) {
    case TW_JINJA_CONCAT:
        return concat(r, tw_jinja_str(r->arena, a), tw_jinja_str(r->arena, b), out);
    case TW_JINJA_IN:
    case TW_JINJA_NOT_IN:
        code = contains(r, a, b, &is);
        *out = tw_jinja_bool(is == (op == TW_JINJA_IN));
        return code;
    case TW_JINJA_EQ:
    case TW_JINJA_NE:
    case TW_JINJA_LT:
    case TW_JINJA_LE:
    case TW_JINJA_GT:
    case TW_JINJA_GE:
        return compare(r, op, a, b, out);
    case TW_JINJA_ADD:
    case TW_JINJA_SUB:
    case TW_JINJA_MUL:
    case TW_JINJA_DIV:
    case TW_JINJA_FLOOR_DIV:
    case TW_JINJA_MOD:
    case TW_JINJA_POW:
        return calculate(r, op, a, b, out);
    }
    return tw_jinja_render_fail(r, TW_E_INTERNAL, "an unknown operator");
}

/* ---- iteration ---- */

static bool push_chars(struct tw_jinja_render *r, struct tw_jinja_text text,
                       struct tw_jinja_list *list) {
    bool good = true;
    for (size_t at = 0, n; at < text.n && good; at += n) {
        n = tw_jinja_char_bytes(text, at);
        good = tw_jinja_push(r->arena, list, tw_jinja_string(tw_jinja_cut(text, at, at + n)));
    }
    return good;
}

static bool push_keys(struct tw_jinja_render *r, const struct tw_jinja_dict *dict,
                      struct tw_jinja_list *list) {
    bool good = true;
    for (size_t i = 0; i < dict->n && good; i++) {
        good = tw_jinja_push(r->arena, list, dict->entry[i].key);
    }
    return good;
}

/* The items that a loop has begun with: those that are left. */
static bool push_items(struct tw_jinja_render *r, const struct tw_jinja_list *from,
                       struct tw_jinja_list *list) {
    bool good = true;
    for (size_t i = 0; i < from->n && good; i++) {
        good = tw_jinja_push(r->arena, list, from->item[i]);
    }
    return good;
}

int tw_jinja_iterate(struct tw_jinja_render *r, const struct tw_jinja_value *v,
                     struct tw_jinja_value *out) {
    struct tw_jinja_value self = *v;
    bool good = tw_jinja_new_list(r->arena, TW_JINJA_LIST, out);
    if (self.kind == TW_JINJA_STRING) {
        good = good && push_chars(r, self.text, out->list);
    } else if (self.kind == TW_JINJA_DICT) {
        good = good && push_keys(r, self.dict, out->list);
    } else if (tw_jinja_is_sequence(&self)) {
        good = good && push_items(r, self.list, out->list);
    } else if (self.kind != TW_JINJA_UNDEFINED) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "a value of type %s cannot be iterated over",
                                    tw_jinja_type_name(&self));
    }
    return good ? tw_jinja_step(r, out->list->n / 16) : tw_jinja_no_memory(r);
}
