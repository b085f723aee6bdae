/* SPDX-License-Identifier: Apache-2.0
 *
 * The lexer of chat templates: the text between tags and the words inside them, with the white
 * space removed that `-`, trim_blocks and lstrip_blocks remove. The settings are those with which
 * the transformers library reads templates: both on, the last newline of the source dropped.
 */
#ifndef TW_DRIVER_CHAT_LEXER_H
#define TW_DRIVER_CHAT_LEXER_H

#include "driver/chat/value.h"

enum tw_jinja_token_kind {
    TW_JINJA_TOKEN_DATA,            /* text outside of tags */
    TW_JINJA_TOKEN_OUTPUT_BEGIN,    /* {{ */
    TW_JINJA_TOKEN_OUTPUT_END,      /* }} */
    TW_JINJA_TOKEN_STATEMENT_BEGIN, /* {% */
    TW_JINJA_TOKEN_STATEMENT_END,   /* %} */
    TW_JINJA_TOKEN_NAME,
    TW_JINJA_TOKEN_STRING,
    TW_JINJA_TOKEN_INT,
    TW_JINJA_TOKEN_FLOAT,
    TW_JINJA_TOKEN_OPERATOR,
    TW_JINJA_TOKEN_END
};

struct tw_jinja_token {
    enum tw_jinja_token_kind kind;
    uint32_t at;               /* offset in the source */
    struct tw_jinja_text text; /* DATA, STRING: what it stands for; else its spelling */
    int64_t integer;
    double number;
};

struct tw_jinja_tokens {
    struct tw_jinja_token *token; /* the last one is END */
    size_t n, room;
};

/* A template's text, with newlines as LF and without its last one. */
struct tw_jinja_source {
    char *text;
    size_t n;
};

/* Fills `err` with "chat template, line L, column C: ...". */
void tw_jinja_error(const struct tw_jinja_source *source, uint32_t at, tw_error *err, int code,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));
#define tw_jinja_fail(source, at, err, code, ...) \
    (tw_jinja_error((source), (at), (err), (code), __VA_ARGS__), (code))

/* Splits the source into tokens, in the arena. Errors: FORMAT (a tag, string or comment without its
 * end, a character that begins nothing), NOMEM. */
int tw_jinja_lex(const struct tw_jinja_source *source, struct tw_jinja_arena *arena,
                 struct tw_jinja_tokens *out, tw_error *err);

#endif
