/* SPDX-License-Identifier: Apache-2.0
 *
 * Lexical functions of the parser: blanks, marks, words, numbers, and the position and text that
 * messages quote. */
#include "loader/text/parse_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- messages ---- */

void tw_parse_error(const struct tw_parser *p, int code, size_t at, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tw_error_set(p->err, code, "%.150s:%u:%zu: %s", p->file, p->line, at - p->line_start + 1, text);
}

/* Quotes the text at the current position: up to 24 bytes, unprintable ones as \xNN. */
static void describe(const struct tw_parser *p, char *out, size_t room) {
    int c = tw_parse_peek(p);
    if (tw_parse_line_ends(p)) {
        snprintf(out, room, "%s", c < 0 ? "the end of the text" : "the end of the line");
        return;
    }
    size_t n = (size_t)snprintf(out, room, "'");
    for (size_t i = 0; i < 24 && p->at + i < p->size; i++) {
        unsigned char b = (unsigned char)p->text[p->at + i];
        if (i > 0 && (b == ' ' || b == '\t' || b == '\r' || b == '\n')) {
            break;
        }
        n += (size_t)snprintf(out + n, room - n, b < 0x20 || b >= 0x7F ? "\\x%02x" : "%c", b);
    }
    snprintf(out + n, room - n, "'");
}

void tw_parse_error_expected(const struct tw_parser *p, const char *what) {
    char found[128];
    describe(p, found, sizeof found);
    tw_parse_error(p, TW_E_FORMAT, p->at, "found %s, expected %s", found, what);
}

/* ---- blanks, lines, marks ---- */

static bool is_blank(int c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_comment(int c) {
    return c == ';' || c == '#';
}

bool tw_parse_line_ends(const struct tw_parser *p) {
    int c = tw_parse_peek(p);
    return c < 0 || c == '\n';
}

static void skip_blanks(struct tw_parser *p) {
    while (is_blank(tw_parse_peek(p))) {
        p->at++;
    }
    if (is_comment(tw_parse_peek(p))) {
        const char *end = memchr(p->text + p->at, '\n', p->size - p->at);
        p->at = end ? (size_t)(end - p->text) : p->size;
    }
}

int tw_parse_gap(struct tw_parser *p) {
    int c = tw_parse_peek(p);
    if (!is_blank(c) && !is_comment(c) && !tw_parse_line_ends(p)) {
        return tw_parse_expected(p, "a space");
    }
    skip_blanks(p);
    return 0;
}

int tw_parse_end_of_line(struct tw_parser *p) {
    skip_blanks(p);
    return tw_parse_line_ends(p) ? 0 : tw_parse_expected(p, "the end of the line");
}

void tw_parse_next_line(struct tw_parser *p) {
    skip_blanks(p);
    while (tw_parse_peek(p) == '\n') {
        p->line_start = ++p->at;
        p->line++;
        skip_blanks(p);
    }
}

bool tw_parse_accept(struct tw_parser *p, const char *mark) {
    size_t n = strlen(mark);
    if (n > p->size - p->at || memcmp(p->text + p->at, mark, n) != 0) {
        return false;
    }
    p->at += n;
    return true;
}

int tw_parse_mark(struct tw_parser *p, const char *mark) {
    char what[40];
    if (tw_parse_accept(p, mark)) {
        return 0;
    }
    snprintf(what, sizeof what, "'%.30s'", mark);
    return tw_parse_expected(p, what);
}

size_t tw_parse_word(const struct tw_parser *p) {
    size_t n = 0;
    while (p->at + n < p->size && tw_text_is_word((unsigned char)p->text[p->at + n], n == 0)) {
        n++;
    }
    return n;
}

bool tw_parse_word_is(const struct tw_parser *p, size_t length, const char *word) {
    return strlen(word) == length && memcmp(p->text + p->at, word, length) == 0;
}

/* ---- numbers ---- */

int tw_parse_number(struct tw_parser *p, const char *what, uint64_t max, uint64_t *out) {
    size_t start = p->at;
    uint64_t value = 0;
    if (!tw_parse_is_digit(tw_parse_peek(p))) {
        return tw_parse_expected(p, what);
    }
    for (; tw_parse_is_digit(tw_parse_peek(p)); p->at++) {
        uint64_t digit = (uint64_t)(p->text[p->at] - '0');
        if (value > max / 10 || digit > max - value * 10) {
            return tw_parse_fail(p, TW_E_RANGE, start, "%s is more than %llu", what,
                                 (unsigned long long)max);
        }
        value = value * 10 + digit;
    }
    *out = value;
    return 0;
}

int tw_parse_u32(struct tw_parser *p, const char *what, uint32_t *out) {
    uint64_t value = 0;
    int rc = tw_parse_number(p, what, UINT32_MAX, &value);
    *out = (uint32_t)value;
    return rc;
}

int tw_parse_hex32(struct tw_parser *p, uint32_t *out) {
    uint32_t value = 0, n = 0;
    int rc = tw_parse_mark(p, "0x");
    for (; rc == 0 && n < 8 && tw_parse_hex_digit(tw_parse_peek(p)) >= 0; n++, p->at++) {
        value = value << 4 | (uint32_t)tw_parse_hex_digit(tw_parse_peek(p));
    }
    *out = value;
    return rc || n == 8 ? rc : tw_parse_expected(p, "eight hexadecimal digits");
}

/* ---- floats ---- */

enum { MAX_DIGITS = 40, MAX_EXPONENT = 999 };

/* Parses digits with at most one '.'; *scale: the number of digits after it. */
static int mantissa(struct tw_parser *p, char *digits, int *scale) {
    size_t start = p->at, n = 0;
    bool point = false;
    *scale = 0;
    if (!tw_parse_is_digit(tw_parse_peek(p))) {
        return tw_parse_expected(p, "a number");
    }
    for (int c; (c = tw_parse_peek(p)), tw_parse_is_digit(c) || (c == '.' && !point); p->at++) {
        if (c == '.') {
            point = true;
            continue;
        }
        if (n == MAX_DIGITS) {
            return tw_parse_fail(p, TW_E_RANGE, start, "a number has more than %d digits",
                                 MAX_DIGITS);
        }
        digits[n++] = (char)c;
        *scale += point;
    }
    digits[n] = 0;
    return 0;
}

static int exponent(struct tw_parser *p, int *out) {
    *out = 0;
    if (!tw_parse_accept(p, "e")) {
        return 0;
    }
    bool negative = tw_parse_accept(p, "-");
    uint64_t value = 0;
    int rc = tw_parse_number(p, "the exponent", MAX_EXPONENT, &value);
    *out = negative ? -(int)value : (int)value;
    return rc;
}

int tw_parse_float(struct tw_parser *p, uint32_t *bits) {
    char digits[MAX_DIGITS + 1];
    size_t start = p->at;
    int scale, power;
    if (p->size - p->at > 1 && p->text[p->at] == '0' && p->text[p->at + 1] == 'x') {
        return tw_parse_hex32(p, bits);
    }
    bool negative = tw_parse_accept(p, "-");
    int rc = mantissa(p, digits, &scale);
    rc = rc ? rc : exponent(p, &power);
    if (rc) {
        return rc;
    }
    float value = tw_text_decimal(negative, digits, power - scale);
    if (!isfinite(value)) {
        return tw_parse_fail(p, TW_E_RANGE, start, "the number exceeds the largest float");
    }
    memcpy(bits, &value, sizeof value);
    return 0;
}
