/* SPDX-License-Identifier: Apache-2.0
 *
 * The parser of chat templates: tokens to a tree, by recursive descent. Nesting is limited.
 */
#ifndef TW_DRIVER_CHAT_PARSER_H
#define TW_DRIVER_CHAT_PARSER_H

#include "driver/chat/ast.h"
#include "driver/chat/lexer.h"

/* Brackets, operators and statements inside each other. */
#define TW_JINJA_NESTING 200u

struct tw_jinja_parser {
    const struct tw_jinja_source *source;
    struct tw_jinja_arena *arena;
    const struct tw_jinja_token *token; /* the next one; the last one is END */
    unsigned nesting, loops;
    tw_error *err;
};

/* Parses a whole template to its list of statements. Errors: FORMAT (what was found and expected,
 * where), UNSUPPORTED (names the statement), NOMEM. */
int tw_jinja_parse(struct tw_jinja_parser *parser, struct tw_jinja_node **out);

/* ---- between the parser's files ---- */

#define tw_jinja_parse_fail(p, code, ...) \
    tw_jinja_fail((p)->source, (p)->token->at, (p)->err, (code), __VA_ARGS__)

/* Returns a new node at the current token; NULL: no memory, and the error is set. */
struct tw_jinja_node *tw_jinja_node(struct tw_jinja_parser *p, enum tw_jinja_node_kind kind);
/* Whether the current token is that operator, or name; and passes it if it is. */
bool tw_jinja_at_operator(const struct tw_jinja_parser *p, const char *op);
bool tw_jinja_at_name(const struct tw_jinja_parser *p, const char *name);
bool tw_jinja_take_operator(struct tw_jinja_parser *p, const char *op);
bool tw_jinja_take_name(struct tw_jinja_parser *p, const char *name);
/* Errors: FORMAT (another token: what was found). */
int tw_jinja_need_operator(struct tw_jinja_parser *p, const char *op);
int tw_jinja_need_identifier(struct tw_jinja_parser *p, struct tw_jinja_text *out);
/* "expected X, found Y" at the current token. */
int tw_jinja_unexpected(struct tw_jinja_parser *p, const char *expected);
int tw_jinja_nest(struct tw_jinja_parser *p);

/* An expression; one without "x if y"; one that may be a tuple without brackets. */
int tw_jinja_parse_expression(struct tw_jinja_parser *p, struct tw_jinja_node **out);
int tw_jinja_parse_or(struct tw_jinja_parser *p, struct tw_jinja_node **out);
int tw_jinja_parse_tuple(struct tw_jinja_parser *p, struct tw_jinja_node **out);
/* One operand with what follows it: attributes, calls, filters, tests. */
int tw_jinja_parse_unary(struct tw_jinja_parser *p, bool filters, struct tw_jinja_node **out);
/* Filters of `a`: "|name(...)", at least none; `first`: the "|" of the first one is missing. */
int tw_jinja_parse_filters(struct tw_jinja_parser *p, bool first, struct tw_jinja_node *a,
                           struct tw_jinja_node **out);

#endif
