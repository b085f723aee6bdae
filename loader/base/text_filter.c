/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 is decoded by the table of well-formed sequences in the Unicode standard (3.9, table 3-7):
 * only the second byte has bounds that depend on the first.
 */
#include "loader/base/text_filter.h"

#include <stdint.h>
#include <string.h>

/* Returns the length of a character by its first byte (0: invalid), and the bounds of the
 * second. */
static unsigned lead(unsigned char first, unsigned char *lo, unsigned char *hi) {
    *lo = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    *hi = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    return first < 0x80                     ? 1
           : first >= 0xC2 && first <= 0xDF ? 2
           : first >= 0xE0 && first <= 0xEF ? 3
           : first >= 0xF0 && first <= 0xF4 ? 4
                                            : 0;
}

static bool is_printable(uint32_t c) {
    bool control = c < 0x20 || (c >= 0x7F && c <= 0x9F);
    bool separator = c == 0x2028 || c == 0x2029;
    bool direction = c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
                     (c >= 0x2066 && c <= 0x2069);
    bool no_character = (c & 0xFFFE) == 0xFFFE || (c >= 0xFDD0 && c <= 0xFDEF) || c == 0xFEFF ||
                        c >> 7 == 0xE0000 >> 7;
    return !control && !separator && !direction && !no_character;
}

/* Decodes one character. *bytes: its length, or that of its well-formed part. Returns true if it is
 * complete. */
static bool decode(const unsigned char *text, size_t n, size_t *bytes, uint32_t *c) {
    unsigned char lo, hi;
    unsigned need = lead(text[0], &lo, &hi);
    *bytes = 1;
    *c = need < 2 ? text[0] : text[0] & (0x7Fu >> need);
    while (*bytes < need && *bytes < n && text[*bytes] >= lo && text[*bytes] <= hi) {
        *c = *c << 6 | (text[(*bytes)++] & 0x3Fu);
        lo = 0x80;
        hi = 0xBF;
    }
    return *bytes == need;
}

size_t tw_text_next(const char *text, size_t n, bool *printable) {
    size_t bytes;
    uint32_t c;
    *printable = decode((const unsigned char *)text, n, &bytes, &c) && is_printable(c);
    return bytes;
}

/* Returns true if text[0..n) is the beginning of a longer character. */
static bool is_cut(const char *text, size_t n) {
    size_t bytes;
    uint32_t c;
    unsigned char lo, hi;
    return !decode((const unsigned char *)text, n, &bytes, &c) && bytes == n &&
           lead((unsigned char)text[0], &lo, &hi) > n;
}

/* `out` may be `text`: writing never overtakes reading. */
static void clean(char *out, size_t room, const char *text, size_t n) {
    size_t used = 0;
    for (size_t at = 0, bytes; at < n; at += bytes) {
        bool printable;
        bytes = tw_text_next(text + at, n - at, &printable);
        size_t made = printable ? bytes : 1;
        if (used + made >= room || is_cut(text + at, n - at)) {
            break;
        }
        if (printable) {
            memmove(out + used, text + at, bytes);
        } else {
            out[used] = '?';
        }
        used += made;
    }
    out[used] = 0;
}

void tw_clean_text(char *text) {
    size_t n = strlen(text);
    clean(text, n + 1, text, n);
}

void tw_text_copy(char *out, size_t room, const char *text, size_t n) {
    clean(out, room, text, strnlen(text, n));
}

bool tw_text_is_ascii(const char *text, size_t max) {
    size_t n = 0;
    while (n <= max && text[n] >= ' ' && text[n] <= '~') {
        n++;
    }
    return n > 0 && n <= max && !text[n];
}
