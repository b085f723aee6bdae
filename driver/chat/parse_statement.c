/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements of chat templates (parser.h): text, output, and the tags in {% %}.
 */
#include "driver/chat/parser.h"

#include "loader/base/assert.h"

#include <stdio.h>
#include <string.h>

static int parse_body(struct tw_jinja_parser *p, const char *const *ends,
                      struct tw_jinja_node **out);

static int need_end_of_tag(struct tw_jinja_parser *p) {
    if (p->token->kind != TW_JINJA_TOKEN_STATEMENT_END) {
        return tw_jinja_unexpected(p, "%}");
    }
    p->token++;
    return 0;
}

/* The body after a tag, up to and with the tag {% end %}, whose name may be repeated. */
static int parse_block(struct tw_jinja_parser *p, const char *end, struct tw_jinja_node **out) {
    const char *const ends[] = {end, NULL};
    int code = need_end_of_tag(p);
    code = code ? code : parse_body(p, ends, out);
    if (code) {
        return code;
    }
    p->token += 2; /* {% end */
    if (strcmp(end, "endmacro") == 0 || strcmp(end, "endblock") == 0) {
        p->token += p->token->kind == TW_JINJA_TOKEN_NAME;
    }
    return need_end_of_tag(p);
}

/* ---- if ---- */

/* The rest of an if after its condition: body, and the other branches. */
static int parse_branches(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    int code;
    do {
        code = tw_jinja_parse_tuple(p, &node->a);
        code = code ? code : need_end_of_tag(p);
        code = code ? code : parse_body(p, ends, &node->list);
        if (code) {
            return code;
        }
        p->token++; /* {% */
        if (tw_jinja_at_name(p, "elif")) {
            struct tw_jinja_node *branch = node->other = tw_jinja_node(p, TW_JINJA_IF);
            if (!branch) {
                return TW_E_NOMEM;
            }
            p->token++;
            node = branch;
            continue;
        }
        if (tw_jinja_take_name(p, "else")) {
            code = need_end_of_tag(p);
            code = code ? code : parse_body(p, last, &node->other);
            p->token += code ? 0 : 1;
        }
        if (!code) {
            p->token++; /* endif */
            code = need_end_of_tag(p);
        }
        return code;
    } while (true);
}

/* ---- targets ---- */

/* What may be assigned to: a name, a name's attribute, or several of them. */
static bool is_target(const struct tw_jinja_node *node, bool attributes, unsigned depth) {
    if (node->kind == TW_JINJA_ATTR) {
        return attributes && node->a->kind == TW_JINJA_NAME;
    }
    if (node->kind != TW_JINJA_ITEMS || depth > TW_JINJA_NESTING) {
        return node->kind == TW_JINJA_NAME;
    }
    bool good = node->list != NULL;
    for (const struct tw_jinja_node *item = node->list; item && good; item = item->next) {
        good = is_target(item, attributes, depth + 1);
    }
    return good;
}

/* Targets look like operands, not like expressions: "x in" begins no comparison. */
static int parse_target(struct tw_jinja_parser *p, bool attributes, struct tw_jinja_node **out) {
    const struct tw_jinja_token *begin = p->token;
    struct tw_jinja_node *first = NULL;
    int code = tw_jinja_parse_unary(p, false, &first);
    *out = first;
    if (!code && tw_jinja_at_operator(p, ",")) {
        struct tw_jinja_node *tuple = *out = tw_jinja_node(p, TW_JINJA_ITEMS);
        if (!tuple) {
            return TW_E_NOMEM;
        }
        tuple->flag = true;
        tuple->list = first;
        struct tw_jinja_node **tail = &first->next;
        while (!code && tw_jinja_take_operator(p, ",")) {
            code = tw_jinja_parse_unary(p, false, tail);
            tail = code ? tail : &(*tail)->next;
        }
    }
    if (!code && !is_target(*out, attributes, 0)) {
        p->token = begin;
        code = tw_jinja_unexpected(p, "a name to assign to");
    }
    return code;
}

/* ---- for ---- */

static int parse_for_end(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    static const char *const last[] = {"endfor", NULL};
    int code = 0;
    p->token++; /* {% */
    if (tw_jinja_take_name(p, "else")) {
        code = need_end_of_tag(p);
        code = code ? code : parse_body(p, last, &node->other);
        p->token += code ? 0 : 1;
    }
    if (!code) {
        p->token++; /* endfor */
        code = need_end_of_tag(p);
    }
    return code;
}

static int parse_for(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    static const char *const ends[] = {"else", "endfor", NULL};
    int code = parse_target(p, false, &node->target);
    if (!code && !tw_jinja_take_name(p, "in")) {
        code = tw_jinja_unexpected(p, "in");
    }
    code = code ? code : tw_jinja_parse_or(p, &node->a);
    if (!code && tw_jinja_take_name(p, "if")) {
        code = tw_jinja_parse_expression(p, &node->b);
    }
    node->flag = !code && tw_jinja_take_name(p, "recursive");
    code = code ? code : need_end_of_tag(p);
    p->loops++;
    code = code ? code : parse_body(p, ends, &node->list);
    p->loops--;
    return code ? code : parse_for_end(p, node);
}

static int parse_loop_control(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    if (p->loops == 0) {
        return tw_jinja_parse_fail(p, TW_E_FORMAT, "%s outside of a loop",
                                   node->kind == TW_JINJA_BREAK ? "break" : "continue");
    }
    return need_end_of_tag(p);
}

/* ---- set, with ---- */

static int parse_set(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    int code = parse_target(p, true, &node->target);
    if (code) {
        return code;
    }
    if (tw_jinja_take_operator(p, "=")) {
        code = tw_jinja_parse_tuple(p, &node->a);
        return code ? code : need_end_of_tag(p);
    }
    node->kind = TW_JINJA_SET_BLOCK;
    if (tw_jinja_at_operator(p, "|")) {
        code = tw_jinja_parse_filters(p, false, NULL, &node->a);
    }
    return code ? code : parse_block(p, "endset", &node->list);
}

static int parse_with(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    struct tw_jinja_node **tail = &node->other;
    int code = 0;
    while (!code && p->token->kind == TW_JINJA_TOKEN_NAME) {
        struct tw_jinja_node *set = *tail = tw_jinja_node(p, TW_JINJA_SET);
        if (!set) {
            return TW_E_NOMEM;
        }
        tail = &set->next;
        code = parse_target(p, false, &set->target);
        code = code ? code : tw_jinja_need_operator(p, "=");
        code = code ? code : tw_jinja_parse_expression(p, &set->a);
        if (!tw_jinja_take_operator(p, ",")) {
            break;
        }
    }
    return code ? code : parse_block(p, "endwith", &node->list);
}

/* ---- macro, call, filter ---- */

/* "(name, name=default)" */
static int parse_parameters(struct tw_jinja_parser *p, struct tw_jinja_node **tail) {
    int code = tw_jinja_need_operator(p, "(");
    while (!code && !tw_jinja_take_operator(p, ")")) {
        struct tw_jinja_node *parameter = *tail = tw_jinja_node(p, TW_JINJA_PARAMETER);
        if (!parameter) {
            return TW_E_NOMEM;
        }
        tail = &parameter->next;
        code = tw_jinja_need_identifier(p, &parameter->text);
        if (!code && tw_jinja_take_operator(p, "=")) {
            code = tw_jinja_parse_expression(p, &parameter->a);
        }
        if (!code && !tw_jinja_at_operator(p, ")")) {
            code = tw_jinja_need_operator(p, ",");
        }
    }
    return code;
}

/* A loop around a macro is none of the macro's body. */
static int parse_macro_body(struct tw_jinja_parser *p, const char *end,
                            struct tw_jinja_node **out) {
    unsigned loops = p->loops;
    p->loops = 0;
    int code = parse_block(p, end, out);
    p->loops = loops;
    return code;
}

static int parse_macro(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    int code = tw_jinja_need_identifier(p, &node->text);
    code = code ? code : parse_parameters(p, &node->target);
    return code ? code : parse_macro_body(p, "endmacro", &node->list);
}

static int parse_call(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    int code = tw_jinja_at_operator(p, "(") ? parse_parameters(p, &node->target) : 0;
    code = code ? code : tw_jinja_parse_expression(p, &node->a);
    if (!code && node->a->kind != TW_JINJA_CALL) {
        code = tw_jinja_unexpected(p, "a call before it");
    }
    return code ? code : parse_macro_body(p, "endcall", &node->list);
}

static int parse_filter_block(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    int code = tw_jinja_parse_filters(p, true, NULL, &node->a);
    return code ? code : parse_block(p, "endfilter", &node->list);
}

static int parse_generation(struct tw_jinja_parser *p, struct tw_jinja_node *node) {
    return parse_block(p, "endgeneration", &node->list);
}

/* ---- tags ---- */

static const struct tag {
    const char *name;
    enum tw_jinja_node_kind kind;
    int (*parse)(struct tw_jinja_parser *p, struct tw_jinja_node *node);
} tags[] = {
    {"if", TW_JINJA_IF, parse_branches},
    {"for", TW_JINJA_FOR, parse_for},
    {"set", TW_JINJA_SET, parse_set},
    {"macro", TW_JINJA_MACRO_DEF, parse_macro},
    {"call", TW_JINJA_CALL_BLOCK, parse_call},
    {"filter", TW_JINJA_FILTER_BLOCK, parse_filter_block},
    {"with", TW_JINJA_WITH, parse_with},
    {"generation", TW_JINJA_BODY, parse_generation},
    {"break", TW_JINJA_BREAK, parse_loop_control},
    {"continue", TW_JINJA_CONTINUE, parse_loop_control},
};

static int parse_tag(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    struct tw_jinja_text name = p->token[1].text;
    p->token++;
    if (p->token->kind != TW_JINJA_TOKEN_NAME) {
        return tw_jinja_unexpected(p, "the name of a statement");
    }
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (tw_jinja_is(name, tags[i].name)) {
            *out = tw_jinja_node(p, tags[i].kind);
            p->token++;
            return *out ? tags[i].parse(p, *out) : TW_E_NOMEM;
        }
    }
    int n = name.n < 40 ? (int)name.n : 40;
    bool end = n > 3 && memcmp(name.p, "end", 3) == 0;
    return tw_jinja_parse_fail(p, end ? TW_E_FORMAT : TW_E_UNSUPPORTED,
                               end ? "{%% %.*s %%} ends nothing that is open"
                                   : "the statement {%% %.*s %%} is not supported",
                               n, name.p);
}

static int parse_output(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    *out = tw_jinja_node(p, TW_JINJA_OUTPUT);
    if (!*out) {
        return TW_E_NOMEM;
    }
    p->token++;
    int code = tw_jinja_parse_tuple(p, &(*out)->a);
    if (!code && p->token->kind != TW_JINJA_TOKEN_OUTPUT_END) {
        code = tw_jinja_unexpected(p, "}}");
    }
    p->token++;
    return code;
}

static int parse_statement(struct tw_jinja_parser *p, struct tw_jinja_node **out) {
    if (p->token->kind == TW_JINJA_TOKEN_OUTPUT_BEGIN) {
        return parse_output(p, out);
    }
    if (p->token->kind == TW_JINJA_TOKEN_STATEMENT_BEGIN) {
        return parse_tag(p, out);
    }
    *out = tw_jinja_node(p, TW_JINJA_DATA);
    if (!*out) {
        return TW_E_NOMEM;
    }
    (*out)->text = p->token++->text;
    return 0;
}

static bool at_end(const struct tw_jinja_parser *p, const char *const *ends) {
    bool is = false;
    for (; p->token->kind == TW_JINJA_TOKEN_STATEMENT_BEGIN && ends && *ends && !is; ends++) {
        is = p->token[1].kind == TW_JINJA_TOKEN_NAME && tw_jinja_is(p->token[1].text, *ends);
    }
    return is;
}

/* Statements up to a tag of one of these names (at which the parser stays), or, without names, to
 * the end of the template. */
static int parse_body(struct tw_jinja_parser *p, const char *const *ends,
                      struct tw_jinja_node **out) {
    struct tw_jinja_node **tail = out;
    int code = tw_jinja_nest(p);
    while (!code && !at_end(p, ends)) {
        if (p->token->kind == TW_JINJA_TOKEN_END) {
            char expected[48];
            snprintf(expected, sizeof expected, "{%% %s %%}", ends ? ends[0] : "");
            code = ends ? tw_jinja_unexpected(p, expected) : 0;
            break;
        }
        code = parse_statement(p, tail);
        if (!code) {
            TW_ASSERT(*tail);
            tail = &(*tail)->next;
        }
    }
    p->nesting--;
    return code;
}

int tw_jinja_parse(struct tw_jinja_parser *parser, struct tw_jinja_node **out) {
    *out = NULL;
    return parse_body(parser, NULL, out);
}
