/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions of chat templates (parser.h), with the precedence that Jinja gives them: or, and,
 * not, comparisons, + and -, ~, * / // %, **, unary minus, then attributes, calls, filters, tests.
 */
#include "driver/chat/parser.h"

#include <stdio.h>
#include <string.h>

struct tw_jinja_node *tw_jinja_node(struct tw_jinja_parser *p, enum tw_jinja_node_kind kind) {
    struct tw_jinja_node *node = tw_jinja_alloc(p->arena, sizeof *node);
    if (!node) {
        tw_error_set(p->err, TW_E_NOMEM, "chat template: it is too large");
        return NULL;
    }
    node->kind = kind;
    node->at = p->token->at;
    return node;
}

static bool is_token(const struct tw_jinja_parser *p, enum tw_jinja_token_kind kind,
                     const char *text) {
    return p->token->kind == kind && tw_jinja_is(p->token->text, text);
}

bool tw_jinja_at_operator(const struct tw_jinja_parser *p, const char *op) {
    return is_token(p, TW_JINJA_TOKEN_OPERATOR, op);
}

bool tw_jinja_at_name(const struct tw_jinja_parser *p, const char *name) {
    return is_token(p, TW_JINJA_TOKEN_NAME, name);
}

bool tw_jinja_take_operator(struct tw_jinja_parser *p, const char *op) {
    bool is = tw_jinja_at_operator(p, op);
    p->token += is;
    return is;
}

bool tw_jinja_take_name(struct tw_jinja_parser *p, const char *name) {
    bool is = tw_jinja_at_name(p, name);
    p->token += is;
    return is;
}

int tw_jinja_unexpected(struct tw_jinja_parser *p, const char *expected) {
    const struct tw_jinja_token *t = p->token;
    if (t->kind == TW_JINJA_TOKEN_END) {
        return tw_jinja_parse_fail(p, TW_E_FORMAT, "the template ends; expected %s", expected);
    }
    int n = t->text.n < 40 ? (int)t->text.n : 40;
    return tw_jinja_parse_fail(p, TW_E_FORMAT, "found %s%.*s%s; expected %s",
                               t->kind == TW_JINJA_TOKEN_STRING ? "the string \"" : "", n,
                               t->text.p, t->kind == TW_JINJA_TOKEN_STRING ? "\"" : "", expected);
}

int tw_jinja_need_operator(struct tw_jinja_parser *p, const char *op) {
    return tw_jinja_take_operator(p, op) ? 0 : tw_jinja_unexpected(p, op);
}

int tw_jinja_need_identifier(struct tw_jinja_parser *p, struct tw_jinja_text *out) {
    if (p->token->kind != TW_JINJA_TOKEN_NAME) {
        return tw_jinja_unexpected(p, "a name");
    }
    *out = p->token++->text;
    return 0;
}

int tw_jinja_nest(struct tw_jinja_parser *p) {
    return ++p->nesting <= TW_JINJA_NESTING
               ? 0
               : tw_jinja_parse_fail(p, TW_E_UNSUPPORTED,
                                     "nested more than %u deep; the limit is %u", TW_JINJA_NESTING,
                                     TW_JINJA_NESTING);
}

/* ---- operands ---- */

static void append(struct tw_jinja_node ***tail, struct tw_jinja_node *node) {
    **tail = node;
    *tail = &node->next;
}

static bool is_keyword(const struct tw_jinja_parser *p) {
    return p->token->kind == TW_JINJA_TOKEN_NAME && p->token[1].kind == TW_JINJA_TOKEN_OPERATOR &&
           tw_jinja_is(p->token[1].text, "=");
}

static int parse_argument(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    bool list = tw_jinja_at_operator(p, "*"), dict = tw_jinja_at_operator(p, "**");
    if (!list && !dict && !is_keyword(p)) {
        return tw_jinja_parse_expression(p, out);
    }
    struct tw_jinja_node *node = *out = tw_jinja_node(p, list   ? TW_JINJA_SPREAD
                                                         : dict ? TW_JINJA_SPREAD_NAMED
                                                                : TW_JINJA_KEYWORD);
    if (!node) {
        return TW_E_NOMEM;
    }
    node->text = p->token->text;
    p->token += list || dict ? 1 : 2;
    return tw_jinja_parse_expression(p, &node->a);
}

/* Nodes between commas, each by `parse`, up to and with `end`; a comma may stand before it. */
static int parse_list(struct tw_jinja_parser *p, const char *end,
                      int (*parse)(struct tw_jinja_parser *, struct tw_jinja_node **),
                      struct tw_jinja_node **out) {
    struct tw_jinja_node **tail = out;
    while (!tw_jinja_take_operator(p, end)) {
        struct tw_jinja_node *node = NULL;
        int code = tail == out ? 0 : tw_jinja_need_operator(p, ",");
        if (!code && tail != out && tw_jinja_take_operator(p, end)) {
            return 0;
        }
        code = code ? code : parse(p, &node);
        if (code) {
            return code;
        }
        append(&tail, node);
    }
    return 0;
}

/* The arguments after "(". */
static int parse_arguments(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    return parse_list(p, ")", parse_argument, out);
}

/* The items of a list after "[". */
static int parse_items(struct tw_jinja_parser *p, struct tw_jinja_node *list) {
    return parse_list(p, "]", tw_jinja_parse_expression, &list->list);
}

static int parse_pair(struct tw_jinja_parser *p, struct tw_jinja_node ***tail) {
    struct tw_jinja_node *key = NULL, *value = NULL;
    int code = tw_jinja_parse_expression(p, &key);
    code = code ? code : tw_jinja_need_operator(p, ":");
    code = code ? code : tw_jinja_parse_expression(p, &value);
    if (!code) {
        append(tail, key);
        append(tail, value);
    }
    return code;
}

static int parse_pairs(struct tw_jinja_parser *p, struct tw_jinja_node *dict) {
    struct tw_jinja_node **tail = &dict->list;
    while (!tw_jinja_take_operator(p, "}")) {
        int code = tail == &dict->list ? 0 : tw_jinja_need_operator(p, ",");
        if (!code && tail != &dict->list && tw_jinja_take_operator(p, "}")) {
            return 0;
        }
        code = code ? code : parse_pair(p, &tail);
        if (code) {
            return code;
        }
    }
    return 0;
}

static int parse_brackets(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    bool list = tw_jinja_at_operator(p, "["), dict = tw_jinja_at_operator(p, "{");
    int code = tw_jinja_nest(p);
    if (code) {
        return code;
    }
    if (list || dict) {
        *out = tw_jinja_node(p, list ? TW_JINJA_ITEMS : TW_JINJA_PAIRS);
        p->token++;
        code = !*out ? TW_E_NOMEM : list ? parse_items(p, *out) : parse_pairs(p, *out);
    } else if (p->token++, tw_jinja_at_operator(p, ")")) {
        *out = tw_jinja_node(p, TW_JINJA_ITEMS);
        p->token++;
        code = *out ? 0 : TW_E_NOMEM;
        if (*out) {
            (*out)->flag = true;
        }
    } else {
        code = tw_jinja_parse_tuple(p, out);
        code = code ? code : tw_jinja_need_operator(p, ")");
    }
    p->nesting--;
    return code;
}

/* true, None and the like: 1 and the value. */
static bool constant_of(struct tw_jinja_text name, struct tw_jinja_value *out) {
    bool yes = tw_jinja_is(name, "true") || tw_jinja_is(name, "True");
    bool no = tw_jinja_is(name, "false") || tw_jinja_is(name, "False");
    bool none = tw_jinja_is(name, "none") || tw_jinja_is(name, "None");
    *out = none ? tw_jinja_none() : tw_jinja_bool(yes);
    return yes || no || none;
}

/* Strings beside each other are one. */
static int parse_string(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    struct tw_jinja_buffer b = {.arena = p->arena};
    for (; p->token->kind == TW_JINJA_TOKEN_STRING; p->token++) {
        tw_jinja_put(&b, p->token->text);
    }
    node->value = tw_jinja_string(tw_jinja_buffer_text(&b));
    return b.failed ? tw_fail(p->err, TW_E_NOMEM, "chat template: it is too large") : 0;
}

static int parse_primary(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    const struct tw_jinja_token *t = p->token;
    if (t->kind == TW_JINJA_TOKEN_OPERATOR && t->text.n == 1 && strchr("([{", t->text.p[0])) {
        return parse_brackets(p, out);
    }
    if (t->kind < TW_JINJA_TOKEN_NAME || t->kind > TW_JINJA_TOKEN_FLOAT) {
        return tw_jinja_unexpected(p, "a value");
    }
    struct tw_jinja_node *node = *out = tw_jinja_node(p, TW_JINJA_CONST);
    if (!node) {
        return TW_E_NOMEM;
    }
    if (t->kind == TW_JINJA_TOKEN_STRING) {
        return parse_string(p, node);
    }
    p->token++;
    if (t->kind == TW_JINJA_TOKEN_INT || t->kind == TW_JINJA_TOKEN_FLOAT) {
        node->value =
            t->kind == TW_JINJA_TOKEN_INT ? tw_jinja_int(t->integer) : tw_jinja_float(t->number);
    } else if (!constant_of(t->text, &node->value)) {
        node->kind = TW_JINJA_NAME;
        node->text = t->text;
    }
    return 0;
}

/* ---- what follows an operand ---- */

static int parse_slice_part(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    bool none = tw_jinja_at_operator(p, ":") || tw_jinja_at_operator(p, "]");
    return none ? 0 : tw_jinja_parse_expression(p, out);
}

/* After "[": an index or a slice. */
static int parse_subscript(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    int code = parse_slice_part(p, &node->b);
    if (!code && tw_jinja_take_operator(p, ":")) {
        node->kind = TW_JINJA_SLICE;
        code = parse_slice_part(p, &node->c);
        if (!code && tw_jinja_take_operator(p, ":")) {
            code = parse_slice_part(p, &node->d);
        }
    } else if (!code && !node->b) {
        code = tw_jinja_unexpected(p, "an index");
    }
    if (!code && tw_jinja_at_operator(p, ",")) {
        code = tw_jinja_parse_fail(p, TW_E_UNSUPPORTED, "several indices are not supported");
    }
    return code ? code : tw_jinja_need_operator(p, "]");
}

static int parse_attribute(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    if (p->token->kind == TW_JINJA_TOKEN_INT) { /* list.0 */
        node->kind = TW_JINJA_ITEM;
        node->b = tw_jinja_node(p, TW_JINJA_CONST);
        if (!node->b) {
            return TW_E_NOMEM;
        }
        node->b->value = tw_jinja_int(p->token++->integer);
        return 0;
    }
    return tw_jinja_need_identifier(p, &node->text);
}

/* One ".name", "[...]" or "(...)" after `a`; *more is false if there is none. */
static int parse_trailer(struct tw_jinja_parser *p, struct tw_jinja_node **a, bool *more) {
    enum tw_jinja_node_kind kind = tw_jinja_at_operator(p, ".")   ? TW_JINJA_ATTR
                                   : tw_jinja_at_operator(p, "[") ? TW_JINJA_ITEM
                                                                  : TW_JINJA_CALL;
    *more = kind != TW_JINJA_CALL || tw_jinja_at_operator(p, "(");
    if (!*more) {
        return 0;
    }
    struct tw_jinja_node *node = tw_jinja_node(p, kind);
    if (!node) {
        return TW_E_NOMEM;
    }
    p->token++;
    node->a = *a;
    *a = node;
    return kind == TW_JINJA_ATTR   ? parse_attribute(p, node)
           : kind == TW_JINJA_ITEM ? parse_subscript(p, node)
                                   : parse_arguments(p, &node->list);
}

/* A chain is a tree as deep as it is long, and evaluated by recursion: it counts as nesting. */
static int parse_trailers(struct tw_jinja_parser *p, struct tw_jinja_node **a) {
    unsigned before = p->nesting;
    bool more = true;
    int code = 0;
    while (!code && more) {
        code = parse_trailer(p, a, &more);
        code = code || !more ? code : tw_jinja_nest(p);
    }
    p->nesting = before;
    return code;
}

static int parse_dotted(struct tw_jinja_parser *p, struct tw_jinja_text *name) {
    int code = tw_jinja_need_identifier(p, name);
    if (!code && tw_jinja_at_operator(p, ".")) {
        code =
            tw_jinja_parse_fail(p, TW_E_UNSUPPORTED, "names with a point are not supported here");
    }
    return code;
}

/* A long chain, of filters or of operators, is a deep tree, which is evaluated by recursion: each
 * link counts as nesting. */
int tw_jinja_parse_filters(struct tw_jinja_parser *p, bool first, struct tw_jinja_node *a,
                           struct tw_jinja_node **out) {
    unsigned before = p->nesting;
    int code = 0;
    *out = a;
    while (!code && (first || tw_jinja_at_operator(p, "|"))) {
        p->token += !first;
        first = false;
        struct tw_jinja_node *node = tw_jinja_node(p, TW_JINJA_FILTER);
        if (!node) {
            return TW_E_NOMEM;
        }
        node->a = *out;
        *out = node;
        code = tw_jinja_nest(p);
        code = code ? code : parse_dotted(p, &node->text);
        if (!code && tw_jinja_take_operator(p, "(")) {
            code = parse_arguments(p, &node->list);
        }
    }
    p->nesting = before;
    return code;
}

/* Whether a test's argument without brackets follows: "is divisibleby 3". */
static bool at_bare_argument(const struct tw_jinja_parser *p) {
    const struct tw_jinja_token *t = p->token;
    if (t->kind == TW_JINJA_TOKEN_NAME) {
        static const char *const not_one[] = {"else", "or", "and", "if", "is", "in", "not"};
        for (size_t i = 0; i < sizeof not_one / sizeof *not_one; i++) {
            if (tw_jinja_is(t->text, not_one[i])) {
                return false;
            }
        }
        return true;
    }
    return (t->kind >= TW_JINJA_TOKEN_STRING && t->kind <= TW_JINJA_TOKEN_FLOAT) ||
           tw_jinja_at_operator(p, "[") || tw_jinja_at_operator(p, "{");
}

/* After "is". */
static int parse_test(struct tw_jinja_parser *p, struct tw_jinja_node **a) {
    struct tw_jinja_node *node = tw_jinja_node(p, TW_JINJA_TEST);
    if (!node) {
        return TW_E_NOMEM;
    }
    node->flag = tw_jinja_take_name(p, "not");
    node->a = *a;
    *a = node;
    int code = parse_dotted(p, &node->text);
    if (code) {
        return code;
    }
    if (tw_jinja_take_operator(p, "(")) {
        return parse_arguments(p, &node->list);
    }
    if (at_bare_argument(p)) {
        code = parse_primary(p, &node->list);
        return code ? code : parse_trailers(p, &node->list);
    }
    return 0;
}

/* Filters, tests and calls of what they give. */
static int parse_suffixes(struct tw_jinja_parser *p, struct tw_jinja_node **a) {
    unsigned before = p->nesting;
    int code = 0;
    for (;;) {
        if (tw_jinja_at_operator(p, "|")) {
            code = tw_jinja_parse_filters(p, false, *a, a);
        } else if (tw_jinja_take_name(p, "is")) {
            code = parse_test(p, a);
        } else if (tw_jinja_at_operator(p, "(")) {
            code = parse_trailers(p, a);
        } else {
            break;
        }
        code = code ? code : tw_jinja_nest(p);
        if (code) {
            return code;
        }
    }
    p->nesting = before;
    return 0;
}

static int parse_sign(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    bool minus = tw_jinja_at_operator(p, "-");
    struct tw_jinja_node *node = *out = tw_jinja_node(p, minus ? TW_JINJA_NEGATE : TW_JINJA_PLUS);
    int code = node ? tw_jinja_nest(p) : TW_E_NOMEM;
    if (!code) {
        p->token++;
        code = tw_jinja_parse_unary(p, false, &node->a);
        p->nesting--;
    }
    return code;
}

int tw_jinja_parse_unary(struct tw_jinja_parser *p, bool filters, struct tw_jinja_node **out) {
    bool sign = tw_jinja_at_operator(p, "-") || tw_jinja_at_operator(p, "+");
    int code = sign ? parse_sign(p, out) : parse_primary(p, out);
    code = code ? code : parse_trailers(p, out);
    return code || !filters ? code : parse_suffixes(p, out);
}

/* ---- operators ---- */

/* Levels of binary operators, from the loosest. */
enum level { LEVEL_SUM, LEVEL_CONCAT, LEVEL_PRODUCT, LEVEL_POWER, LEVEL_UNARY };

static bool binary_at(const struct tw_jinja_parser *p, enum level level,
                      enum tw_jinja_operator *op) {
    static const struct {
        const char *text;
        enum level level;
        enum tw_jinja_operator op;
    } table[] = {
        {"+", LEVEL_SUM, TW_JINJA_ADD},       {"-", LEVEL_SUM, TW_JINJA_SUB},
        {"~", LEVEL_CONCAT, TW_JINJA_CONCAT}, {"*", LEVEL_PRODUCT, TW_JINJA_MUL},
        {"/", LEVEL_PRODUCT, TW_JINJA_DIV},   {"//", LEVEL_PRODUCT, TW_JINJA_FLOOR_DIV},
        {"%", LEVEL_PRODUCT, TW_JINJA_MOD},   {"**", LEVEL_POWER, TW_JINJA_POW},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].level == level && tw_jinja_at_operator(p, table[i].text)) {
            *op = table[i].op;
            return true;
        }
    }
    return false;
}

/* Makes *left "left op right"; `right` is parsed next into the place returned, or NULL. */
static struct tw_jinja_node **join(struct tw_jinja_parser *p, enum tw_jinja_node_kind kind,
                                   enum tw_jinja_operator op, struct tw_jinja_node **left) {
    struct tw_jinja_node *node = tw_jinja_node(p, kind);
    if (!node) {
        return NULL;
    }
    node->op = op;
    node->a = *left;
    *left = node;
    return &node->b;
}

static int parse_binary(struct tw_jinja_parser *p, enum level level, struct tw_jinja_node **out) {
    if (level == LEVEL_UNARY) {
        return tw_jinja_parse_unary(p, true, out);
    }
    unsigned before = p->nesting;
    enum tw_jinja_operator op;
    int code = parse_binary(p, level + 1, out);
    while (!code && binary_at(p, level, &op)) {
        struct tw_jinja_node **right = join(p, TW_JINJA_BINARY, op, out);
        p->token++;
        code = right ? tw_jinja_nest(p) : TW_E_NOMEM;
        code = code ? code : parse_binary(p, level + 1, right);
    }
    p->nesting = before;
    return code;
}

static bool comparison_at(struct tw_jinja_parser *p, enum tw_jinja_operator *op) {
    static const struct {
        const char *text;
        enum tw_jinja_operator op;
    } table[] = {{"==", TW_JINJA_EQ}, {"!=", TW_JINJA_NE}, {"<", TW_JINJA_LT},
                 {"<=", TW_JINJA_LE}, {">", TW_JINJA_GT},  {">=", TW_JINJA_GE}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (tw_jinja_take_operator(p, table[i].text)) {
            *op = table[i].op;
            return true;
        }
    }
    *op = TW_JINJA_IN;
    if (tw_jinja_take_name(p, "in")) {
        return true;
    }
    bool not_in = tw_jinja_at_name(p, "not") && p->token[1].kind == TW_JINJA_TOKEN_NAME &&
                  tw_jinja_is(p->token[1].text, "in");
    *op = TW_JINJA_NOT_IN;
    p->token += not_in ? 2 : 0;
    return not_in;
}

/* "a < b < c" is "a < b and b < c". */
static int parse_comparison(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    enum tw_jinja_operator op;
    unsigned before = p->nesting;
    struct tw_jinja_node *last = NULL;
    int code = parse_binary(p, LEVEL_SUM, out);
    while (!code && comparison_at(p, &op)) {
        struct tw_jinja_node *left = last ? last : *out,
                             **right = join(p, TW_JINJA_BINARY, op, &left);
        code = right ? tw_jinja_nest(p) : TW_E_NOMEM;
        code = code ? code : parse_binary(p, LEVEL_SUM, right);
        if (code) {
            return code;
        }
        if (last) {
            struct tw_jinja_node **both = join(p, TW_JINJA_AND, op, out);
            if (!both) {
                return TW_E_NOMEM;
            }
            *both = left;
        } else {
            *out = left;
        }
        last = *right;
    }
    p->nesting = before;
    return code;
}

static int parse_not(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    if (!tw_jinja_at_name(p, "not")) {
        return parse_comparison(p, out);
    }
    struct tw_jinja_node *node = *out = tw_jinja_node(p, TW_JINJA_NOT);
    int code = node ? tw_jinja_nest(p) : TW_E_NOMEM;
    if (!code) {
        p->token++;
        code = parse_not(p, &node->a);
        p->nesting--;
    }
    return code;
}

static int parse_and(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    unsigned before = p->nesting;
    int code = parse_not(p, out);
    while (!code && tw_jinja_take_name(p, "and")) {
        struct tw_jinja_node **right = join(p, TW_JINJA_AND, TW_JINJA_EQ, out);
        code = right ? tw_jinja_nest(p) : TW_E_NOMEM;
        code = code ? code : parse_not(p, right);
    }
    p->nesting = before;
    return code;
}

int tw_jinja_parse_or(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    unsigned before = p->nesting;
    int code = parse_and(p, out);
    while (!code && tw_jinja_take_name(p, "or")) {
        struct tw_jinja_node **right = join(p, TW_JINJA_OR, TW_JINJA_EQ, out);
        code = right ? tw_jinja_nest(p) : TW_E_NOMEM;
        code = code ? code : parse_and(p, right);
    }
    p->nesting = before;
    return code;
}

/* "b if a else c" */
static int parse_choice(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    struct tw_jinja_node *node = tw_jinja_node(p, TW_JINJA_IF_ELSE);
    if (!node) {
        return TW_E_NOMEM;
    }
    node->b = *out;
    *out = node;
    int code = tw_jinja_parse_or(p, &node->a);
    return !code && tw_jinja_take_name(p, "else") ? tw_jinja_parse_expression(p, &node->c) : code;
}

int tw_jinja_parse_expression(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    unsigned before = p->nesting;
    int code = tw_jinja_nest(p);
    code = code ? code : tw_jinja_parse_or(p, out);
    while (!code && tw_jinja_take_name(p, "if")) {
        code = parse_choice(p, out);
        code = code ? code : tw_jinja_nest(p);
    }
    p->nesting = before;
    return code;
}

static bool at_end_of_tuple(const struct tw_jinja_parser *p) {
    return p->token->kind == TW_JINJA_TOKEN_OUTPUT_END ||
           p->token->kind == TW_JINJA_TOKEN_STATEMENT_END || tw_jinja_at_operator(p, ")") ||
           tw_jinja_at_operator(p, "=") || tw_jinja_at_name(p, "in");
}

int tw_jinja_parse_tuple(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    struct tw_jinja_node *first = NULL, *tuple, **tail;
    int code = tw_jinja_parse_expression(p, &first);
    *out = first;
    if (code || !tw_jinja_at_operator(p, ",")) {
        return code;
    }
    *out = tuple = tw_jinja_node(p, TW_JINJA_ITEMS);
    if (!tuple) {
        return TW_E_NOMEM;
    }
    tuple->flag = true;
    tuple->list = first;
    tail = &first->next;
    while (!code && tw_jinja_take_operator(p, ",") && !at_end_of_tuple(p)) {
        code = tw_jinja_parse_expression(p, tail);
        tail = code ? tail : &(*tail)->next;
    }
    return code;
}
