/* SPDX-License-Identifier: Apache-2.0
 *
 * The lexer of chat templates (lexer.h): alternates between text, up to the next tag, and the words
 * of a tag, up to its end outside of brackets.
 */
#include "driver/chat/lexer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BRACKETS 256u

struct lexer {
    const struct tw_jinja_source *source;
    struct tw_jinja_arena *arena;
    struct tw_jinja_tokens *out;
    tw_error *err;
    const char *s;
    size_t n, at;
    bool line_begins; /* text that begins here begins a line */
    char brackets[MAX_BRACKETS];
    unsigned depth;
};

/* Where an offset is: both from 1. */
static void place_of(const struct tw_jinja_source *source, uint32_t at, unsigned *line,
                     unsigned *column) {
    *line = *column = 1;
    for (size_t i = 0; i < at && i < source->n; i++) {
        *column = source->text[i] == '\n' ? 1 : *column + 1;
        *line += source->text[i] == '\n';
    }
}

void tw_jinja_error(const struct tw_jinja_source *source, uint32_t at, tw_error *err, int code,
                    const char *format, ...) {
    char what[360];
    unsigned line, column;
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    place_of(source, at, &line, &column);
    tw_error_set(err, code, "chat template, line %u, column %u: %s", line, column, what);
}

#define fail(l, at, ...) \
    tw_jinja_fail((l)->source, (uint32_t)(at), (l)->err, TW_E_FORMAT, __VA_ARGS__)

static int add(struct lexer *l, struct tw_jinja_token token) {
    struct tw_jinja_tokens *t = l->out;
    if (t->n == t->room) {
        size_t room = t->room ? t->room * 2 : 256;
        struct tw_jinja_token *grown = tw_jinja_alloc(l->arena, room * sizeof *grown);
        if (!grown) {
            return tw_fail(l->err, TW_E_NOMEM, "chat template: it is too large");
        }
        if (t->n) {
            memcpy(grown, t->token, t->n * sizeof *grown);
        }
        t->token = grown;
        t->room = room;
    }
    t->token[t->n++] = token;
    return 0;
}

static int add_span(struct lexer *l, enum tw_jinja_token_kind kind, size_t from, size_t to) {
    return add(l, (struct tw_jinja_token){
                      .kind = kind, .at = (uint32_t)from, .text = {l->s + from, NULL, to - from}});
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static size_t skip_space(const struct lexer *l, size_t at) {
    while (at < l->n && is_space(l->s[at])) {
        at++;
    }
    return at;
}

static bool is_at(const struct lexer *l, size_t at, const char *what) {
    size_t n = strlen(what);
    return n <= l->n - at && memcmp(l->s + at, what, n) == 0;
}

/* ---- text ---- */

/* Adds the text s[from..to) before a tag whose sign is '-', '+' or another character. */
static int add_data(struct lexer *l, size_t from, size_t to, char sign, bool strip_line) {
    size_t end = to;
    if (sign == '-') {
        while (end > from && is_space(l->s[end - 1])) {
            end--;
        }
    } else if (sign != '+' && strip_line) {
        size_t line = to;
        while (line > from && l->s[line - 1] != '\n' && is_space(l->s[line - 1])) {
            line--;
        }
        bool whole = line == from ? l->line_begins : l->s[line - 1] == '\n';
        end = whole ? line : to;
    }
    return end > from ? add_span(l, TW_JINJA_TOKEN_DATA, from, end) : 0;
}

static size_t find_tag(const struct lexer *l, size_t at) {
    for (; at + 1 < l->n; at++) {
        if (l->s[at] == '{' && strchr("{%#", l->s[at + 1]) && l->s[at + 1]) {
            return at;
        }
    }
    return l->n;
}

/* Continues after a tag's end at `at`, whose sign was `sign`. */
static void pass_end(struct lexer *l, size_t at, char sign, bool trim) {
    if (sign == '-') {
        at = skip_space(l, at);
    } else if (sign != '+' && trim && at < l->n && l->s[at] == '\n') {
        at++;
    }
    l->line_begins = at > 0 && l->s[at - 1] == '\n';
    l->at = at;
}

static int skip_comment(struct lexer *l, size_t from) {
    const char *end = from + 2 <= l->n ? memmem(l->s + from + 2, l->n - from - 2, "#}", 2) : NULL;
    if (!end) {
        return fail(l, from, "the comment has no end: expected #}");
    }
    size_t at = (size_t)(end - l->s);
    char sign = at > from + 2 ? l->s[at - 1] : 0;
    pass_end(l, at + 2, sign, true);
    return 0;
}

/* If a tag's words begin with `word` and end right after it, returns the offset of the end, "%}" or
 * "-%}"; else 0. */
static size_t match_tag(const struct lexer *l, size_t from, const char *word) {
    size_t at = from + 2;
    at += at < l->n && (l->s[at] == '-' || l->s[at] == '+');
    at = skip_space(l, at);
    if (!is_at(l, at, word)) {
        return 0;
    }
    at = skip_space(l, at + strlen(word));
    bool sign = is_at(l, at, "-%}") || is_at(l, at, "+%}");
    return sign || is_at(l, at, "%}") ? at : 0;
}

/* {% raw %}: everything is text up to {% endraw %}. */
static int read_raw(struct lexer *l, size_t from, size_t begin_end) {
    char sign = l->s[begin_end];
    pass_end(l, begin_end + (sign == '%' ? 2 : 3), sign, false);
    size_t text = l->at, at = text, end = 0;
    for (; at + 1 < l->n && !end; at++) {
        end = is_at(l, at, "{%") ? match_tag(l, at, "endraw") : 0;
    }
    if (!end) {
        return fail(l, from, "{%% raw %%} has no end: expected {%% endraw %%}");
    }
    int code = add_data(l, text, at - 1, l->s[at + 1], true);
    sign = l->s[end];
    pass_end(l, end + (sign == '%' ? 2 : 3), sign, true);
    return code;
}

/* ---- the words of a tag ---- */

static int read_escape(struct lexer *l, size_t *at, struct tw_jinja_buffer *b);

/* Appends a code point as UTF-8. */
static void put_point(struct tw_jinja_buffer *b, uint32_t c) {
    char u[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; c >>= 6) {
        u[i] = (char)(0x80 | (c & 0x3F));
    }
    u[0] = (char)(lead[n] | c);
    tw_jinja_put(b, (struct tw_jinja_text){u, NULL, n});
}

/* \xHH, \uHHHH, \UHHHHHHHH */
static int read_hex(struct lexer *l, size_t *at, unsigned digits, struct tw_jinja_buffer *b) {
    uint32_t c = 0;
    for (unsigned i = 0; i < digits; i++, ++*at) {
        char d = *at < l->n ? l->s[*at] : 0;
        int v = d >= '0' && d <= '9'   ? d - '0'
                : d >= 'a' && d <= 'f' ? d - 'a' + 10
                : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                       : -1;
        if (v < 0) {
            return fail(l, *at, "the escape needs %u hexadecimal digits", digits);
        }
        c = c << 4 | (uint32_t)v;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) {
        return fail(l, *at, "the escape names U+%04X, which is not a character", c);
    }
    put_point(b, c);
    return 0;
}

static int read_octal(struct lexer *l, size_t *at, struct tw_jinja_buffer *b) {
    uint32_t c = 0;
    for (unsigned i = 0; i < 3 && *at < l->n && l->s[*at] >= '0' && l->s[*at] <= '7'; i++, ++*at) {
        c = c * 8 + (uint32_t)(l->s[*at] - '0');
    }
    put_point(b, c);
    return 0;
}

/* Reads what follows a backslash; an escape that Python does not know stands for itself. */
static int read_escape(struct lexer *l, size_t *at, struct tw_jinja_buffer *b) {
    static const char from[] = "ntrbfav\\'\"", to[] = "\n\t\r\b\f\a\v\\'\"";
    char c = *at < l->n ? l->s[*at] : 0;
    const char *known = c ? strchr(from, c) : NULL;
    if (c >= '0' && c <= '7') {
        return read_octal(l, at, b);
    }
    ++*at;
    if (c == 'x' || c == 'u' || c == 'U') {
        return read_hex(l, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, b);
    }
    if (known) {
        tw_jinja_put_char(b, to[known - from], false);
    } else if (c != '\n') { /* a backslash before a newline continues the line */
        tw_jinja_put_char(b, '\\', false);
        tw_jinja_put_char(b, c, false);
    }
    return 0;
}

static int read_string(struct lexer *l) {
    size_t from = l->at, at = from + 1;
    char quote = l->s[from];
    struct tw_jinja_buffer b = {.arena = l->arena};
    while (at < l->n && l->s[at] != quote) {
        char c = l->s[at++];
        int code = 0;
        if (c == '\\') {
            code = read_escape(l, &at, &b);
        } else {
            tw_jinja_put_char(&b, c, false);
        }
        if (code || b.failed) {
            return code ? code : tw_fail(l->err, TW_E_NOMEM, "chat template: it is too large");
        }
    }
    if (at >= l->n) {
        return fail(l, from, "the string has no end: expected %c", quote);
    }
    l->at = at + 1;
    return add(l, (struct tw_jinja_token){.kind = TW_JINJA_TOKEN_STRING,
                                          .at = (uint32_t)from,
                                          .text = tw_jinja_buffer_text(&b)});
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) ||
           (unsigned char)c >= 0x80;
}

static size_t skip_digits(const struct lexer *l, size_t at) {
    while (at < l->n &&
           (is_digit(l->s[at]) || (l->s[at] == '_' && at + 1 < l->n && is_digit(l->s[at + 1])))) {
        at++;
    }
    return at;
}

/* Returns the end of a number that begins at `at`, and whether it has a point or an exponent. */
static size_t end_of_number(const struct lexer *l, size_t at, bool *real) {
    size_t end = skip_digits(l, at);
    if (end + 1 < l->n && l->s[end] == '.' && is_digit(l->s[end + 1])) {
        *real = true;
        end = skip_digits(l, end + 1);
    }
    if (end < l->n && (l->s[end] == 'e' || l->s[end] == 'E')) {
        size_t sign = end + 1 + (end + 1 < l->n && strchr("+-", l->s[end + 1]) != NULL);
        if (sign < l->n && is_digit(l->s[sign])) {
            *real = true;
            end = skip_digits(l, sign);
        }
    }
    return end;
}

static int read_number(struct lexer *l) {
    char digits[64];
    size_t from = l->at, n = 0;
    bool real = false;
    l->at = end_of_number(l, from, &real);
    for (size_t i = from; i < l->at && n < sizeof digits - 1; i++) {
        if (l->s[i] != '_') {
            digits[n++] = l->s[i];
        }
    }
    digits[n] = 0;
    struct tw_jinja_token t = {.kind = real ? TW_JINJA_TOKEN_FLOAT : TW_JINJA_TOKEN_INT,
                               .at = (uint32_t)from,
                               .text = {l->s + from, NULL, l->at - from}};
    if (!real && n > 18) {
        return fail(l, from, "the number has %zu digits; expected at most 18", n);
    }
    t.number = strtod(digits, NULL);
    t.integer = real ? 0 : strtoll(digits, NULL, 10);
    return add(l, t);
}

/* Keeps count of brackets; a tag does not end inside of them. */
static int count_bracket(struct lexer *l, char c) {
    static const char open[] = "([{", close[] = ")]}";
    const char *opens = strchr(open, c), *closes = strchr(close, c);
    if (opens) {
        if (l->depth == MAX_BRACKETS) {
            return fail(l, l->at, "more than %u brackets are open", MAX_BRACKETS);
        }
        l->brackets[l->depth++] = close[opens - open];
    } else if (closes) {
        if (l->depth == 0 || l->brackets[l->depth - 1] != c) {
            return fail(l, l->at, "%c closes nothing that is open", c);
        }
        l->depth--;
    }
    return 0;
}

static int read_operator(struct lexer *l) {
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
        if (is_at(l, l->at, two[i])) {
            l->at += 2;
            return add_span(l, TW_JINJA_TOKEN_OPERATOR, l->at - 2, l->at);
        }
    }
    char c = l->s[l->at];
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) {
        char shown[8];
        snprintf(shown, sizeof shown, (unsigned char)c > 32 && c < 127 ? "%c" : "\\x%02x",
                 (unsigned char)c);
        return fail(l, l->at, "%s begins neither a name, a number, a string nor an operator",
                    shown);
    }
    int code = count_bracket(l, c);
    l->at++;
    return code ? code : add_span(l, TW_JINJA_TOKEN_OPERATOR, l->at - 1, l->at);
}

/* Returns the length of the tag's end at the current place, with its sign: 0, 2 or 3. */
static size_t at_end_of_tag(const struct lexer *l, const char *end) {
    char c = l->s[l->at];
    size_t sign = c == '-' || (c == '+' && end[0] == '%');
    return l->depth == 0 && l->at + sign < l->n && is_at(l, l->at + sign, end) ? sign + 2 : 0;
}

static int read_word(struct lexer *l) {
    char c = l->s[l->at];
    if (c == '"' || c == '\'') {
        return read_string(l);
    }
    if (is_digit(c)) {
        return read_number(l);
    }
    if (!is_word(c)) {
        return read_operator(l);
    }
    size_t from = l->at;
    while (l->at < l->n && is_word(l->s[l->at])) {
        l->at++;
    }
    return add_span(l, TW_JINJA_TOKEN_NAME, from, l->at);
}

static int read_tag(struct lexer *l, size_t from, bool statement) {
    const char *end = statement ? "%}" : "}}";
    int code = add_span(l, statement ? TW_JINJA_TOKEN_STATEMENT_BEGIN : TW_JINJA_TOKEN_OUTPUT_BEGIN,
                        from, from + 2);
    l->at = from + 2;
    l->at += l->at < l->n && (l->s[l->at] == '-' || (l->s[l->at] == '+' && statement));
    l->depth = 0;
    while (!code) {
        l->at = skip_space(l, l->at);
        if (l->at >= l->n) {
            return fail(l, from, "the tag has no end: expected %s", end);
        }
        size_t n = at_end_of_tag(l, end);
        if (n) {
            size_t at = l->at;
            code = add_span(l, statement ? TW_JINJA_TOKEN_STATEMENT_END : TW_JINJA_TOKEN_OUTPUT_END,
                            at, at + n);
            pass_end(l, at + n, n == 3 ? l->s[at] : 0, statement);
            return code;
        }
        code = read_word(l);
    }
    return code;
}

int tw_jinja_lex(const struct tw_jinja_source *source, struct tw_jinja_arena *arena,
                 struct tw_jinja_tokens *out, tw_error *err) {
    struct lexer l = {.source = source,
                      .arena = arena,
                      .out = out,
                      .err = err,
                      .s = source->text,
                      .n = source->n,
                      .line_begins = true};
    int code = 0;
    while (!code && l.at < l.n) {
        size_t tag = find_tag(&l, l.at);
        char kind = tag < l.n ? l.s[tag + 1] : 0, sign = tag + 2 < l.n ? l.s[tag + 2] : 0;
        code = add_data(&l, l.at, tag, kind ? sign : 0, kind == '%' || kind == '#');
        size_t raw = kind == '%' ? match_tag(&l, tag, "raw") : 0;
        l.at = tag;
        if (!code && kind) {
            code = raw           ? read_raw(&l, tag, raw)
                   : kind == '#' ? skip_comment(&l, tag)
                                 : read_tag(&l, tag, kind == '%');
        }
    }
    return code ? code : add_span(&l, TW_JINJA_TOKEN_END, l.n, l.n);
}
