/* SPDX-License-Identifier: Apache-2.0
 *
 * The tests of templates, "x is NAME" (eval.h).
 */
#include "driver/chat/eval.h"

#include <string.h>

#define KIND_TEST(function, condition)                                               \
    static int function(struct tw_jinja_render *r, const struct tw_jinja_call *call, \
                        struct tw_jinja_value *out) {                                \
        const struct tw_jinja_value *v = &call->self;                                \
        (void)r;                                                                     \
        *out = tw_jinja_bool(condition);                                             \
        return 0;                                                                    \
    }

KIND_TEST(is_defined, v->kind != TW_JINJA_UNDEFINED)
KIND_TEST(is_undefined, v->kind == TW_JINJA_UNDEFINED)
KIND_TEST(is_none, v->kind == TW_JINJA_NONE)
KIND_TEST(is_boolean, v->kind == TW_JINJA_BOOL)
KIND_TEST(is_true, v->kind == TW_JINJA_BOOL && v->boolean)
KIND_TEST(is_false, v->kind == TW_JINJA_BOOL && !v->boolean)
KIND_TEST(is_integer, v->kind == TW_JINJA_INT)
KIND_TEST(is_float, v->kind == TW_JINJA_FLOAT)
KIND_TEST(is_number, tw_jinja_is_number(v))
KIND_TEST(is_string, v->kind == TW_JINJA_STRING)
KIND_TEST(is_mapping, v->kind == TW_JINJA_DICT)
KIND_TEST(is_iterable, v->kind == TW_JINJA_STRING || tw_jinja_is_sequence(v) ||
                           v->kind == TW_JINJA_DICT || v->kind == TW_JINJA_UNDEFINED)
KIND_TEST(is_sequence, v->kind == TW_JINJA_STRING || tw_jinja_is_sequence(v) ||
                           v->kind == TW_JINJA_DICT || v->kind == TW_JINJA_UNDEFINED)
KIND_TEST(is_callable,
          v->kind == TW_JINJA_FUNCTION || v->kind == TW_JINJA_MACRO || v->kind == TW_JINJA_LOOP)

/* ---- with an argument ---- */

#define OPERATOR_TEST(function, op)                                                  \
    static int function(struct tw_jinja_render *r, const struct tw_jinja_call *call, \
                        struct tw_jinja_value *out) {                                \
        return tw_jinja_operate(r, (op), &call->self, call->arg[0], out);            \
    }

OPERATOR_TEST(is_eq, TW_JINJA_EQ)
OPERATOR_TEST(is_ne, TW_JINJA_NE)
OPERATOR_TEST(is_lt, TW_JINJA_LT)
OPERATOR_TEST(is_le, TW_JINJA_LE)
OPERATOR_TEST(is_gt, TW_JINJA_GT)
OPERATOR_TEST(is_ge, TW_JINJA_GE)
OPERATOR_TEST(is_in, TW_JINJA_IN)

static int is_divisible(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                        struct tw_jinja_value *out) {
    struct tw_jinja_value zero = tw_jinja_int(0), rest;
    int code = tw_jinja_operate(r, TW_JINJA_MOD, &call->self, call->arg[0], &rest);
    *out = tw_jinja_bool(!code && tw_jinja_equal(&rest, &zero));
    return code;
}

static int has_parity(struct tw_jinja_render *r, const struct tw_jinja_value *v, int64_t parity,
                      struct tw_jinja_value *out) {
    struct tw_jinja_value two = tw_jinja_int(2), want = tw_jinja_int(parity), rest;
    int code = tw_jinja_operate(r, TW_JINJA_MOD, v, &two, &rest);
    *out = tw_jinja_bool(!code && tw_jinja_equal(&rest, &want));
    return code;
}

static int is_odd(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                  struct tw_jinja_value *out) {
    return has_parity(r, &call->self, 1, out);
}

static int is_even(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                   struct tw_jinja_value *out) {
    return has_parity(r, &call->self, 0, out);
}

/* The same object: for values that have no identity here, the same type and content. */
static int is_same(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                   struct tw_jinja_value *out) {
    const struct tw_jinja_value *a = &call->self, *b = call->arg[0];
    (void)r;
    bool lists = tw_jinja_is_sequence(a) || tw_jinja_is_dict(a);
    bool same = lists ? a->list == b->list : tw_jinja_equal(a, b);
    *out = tw_jinja_bool(a->kind == b->kind && same);
    return 0;
}

/* Letters, all of them in that case. */
static int has_case(const struct tw_jinja_value *v, bool upper, struct tw_jinja_value *out) {
    bool letters = false, good = v->kind == TW_JINJA_STRING;
    for (size_t i = 0; good && i < v->text.n; i++) {
        char c = v->text.p[i];
        letters = letters || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        good = upper ? !(c >= 'a' && c <= 'z') : !(c >= 'A' && c <= 'Z');
    }
    *out = tw_jinja_bool(good && letters);
    return 0;
}

static int is_upper(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                    struct tw_jinja_value *out) {
    (void)r;
    return has_case(&call->self, true, out);
}

static int is_lower(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                    struct tw_jinja_value *out) {
    (void)r;
    return has_case(&call->self, false, out);
}

static int is_filter(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                     struct tw_jinja_value *out) {
    (void)r;
    *out = tw_jinja_bool(call->self.kind == TW_JINJA_STRING && tw_jinja_filter(call->self.text));
    return 0;
}

static int is_test(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                   struct tw_jinja_value *out) {
    (void)r;
    *out = tw_jinja_bool(call->self.kind == TW_JINJA_STRING && tw_jinja_test(call->self.text));
    return 0;
}

const struct tw_jinja_function *tw_jinja_test(struct tw_jinja_text name) {
    static const struct tw_jinja_function table[] = {
        {"defined", "", 0, is_defined},
        {"undefined", "", 0, is_undefined},
        {"none", "", 0, is_none},
        {"boolean", "", 0, is_boolean},
        {"true", "", 0, is_true},
        {"false", "", 0, is_false},
        {"integer", "", 0, is_integer},
        {"float", "", 0, is_float},
        {"number", "", 0, is_number},
        {"string", "", 0, is_string},
        {"mapping", "", 0, is_mapping},
        {"iterable", "", 0, is_iterable},
        {"sequence", "", 0, is_sequence},
        {"callable", "", 0, is_callable},
        {"odd", "", 0, is_odd},
        {"even", "", 0, is_even},
        {"divisibleby", "num", 1, is_divisible},
        {"eq", "other", 1, is_eq},
        {"equalto", "other", 1, is_eq},
        {"==", "other", 1, is_eq},
        {"ne", "other", 1, is_ne},
        {"!=", "other", 1, is_ne},
        {"lt", "other", 1, is_lt},
        {"lessthan", "other", 1, is_lt},
        {"<", "other", 1, is_lt},
        {"le", "other", 1, is_le},
        {"<=", "other", 1, is_le},
        {"gt", "other", 1, is_gt},
        {"greaterthan", "other", 1, is_gt},
        {">", "other", 1, is_gt},
        {"ge", "other", 1, is_ge},
        {">=", "other", 1, is_ge},
        {"in", "seq", 1, is_in},
        {"sameas", "other", 1, is_same},
        {"upper", "", 0, is_upper},
        {"lower", "", 0, is_lower},
        {"filter", "", 0, is_filter},
        {"test", "", 0, is_test},
    };
    return TW_JINJA_IN_TABLE(table, name);
}
