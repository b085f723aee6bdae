/* SPDX-License-Identifier: Apache-2.0
 *
 * Python's strings (strings.h).
 */
#include "driver/chat/strings.h"

#include <string.h>
#include <utf8proc.h>

bool tw_jinja_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_stripped(struct tw_jinja_text c, const struct tw_jinja_text *chars) {
    return chars ? tw_jinja_find(*chars, c, 0) < chars->n
                 : tw_jinja_is_space(tw_jinja_code_point(c, 0));
}

/* Returns where the last character of text[0..n) begins. */
static size_t last_char(struct tw_jinja_text text, size_t n) {
    size_t from = n > 4 ? n - 4 : 0;
    for (size_t at = from; at < n; at++) {
        if (at + tw_jinja_char_bytes(tw_jinja_cut(text, 0, n), at) == n) {
            return at;
        }
    }
    return n - 1;
}

struct tw_jinja_text tw_jinja_strip(struct tw_jinja_text text, const struct tw_jinja_text *chars,
                                    bool left, bool right) {
    size_t from = 0, to = text.n;
    while (left && from < to) {
        size_t n = tw_jinja_char_bytes(text, from);
        if (!is_stripped(tw_jinja_cut(text, from, from + n), chars)) {
            break;
        }
        from += n;
    }
    while (right && to > from) {
        size_t at = last_char(text, to);
        if (!is_stripped(tw_jinja_cut(text, at, to), chars)) {
            break;
        }
        to = at;
    }
    return tw_jinja_cut(text, from, to > from ? to : from);
}

/* ---- case ---- */

static bool is_letter(uint32_t c) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

/* Whether a character that follows `before` begins a word. */
static bool begins_word(uint32_t before, bool words) {
    return words ? before == '-' || before == '(' || before == '{' || before == '[' ||
                       before == '<' || tw_jinja_is_space(before)
                 : !is_letter(before);
}

/* Puts a character that was mapped to another one, with the mark of the first. */
static void put_point(struct tw_jinja_buffer *b, struct tw_jinja_text c, uint32_t to) {
    utf8proc_uint8_t bytes[4];
    uint8_t marks[4];
    utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)to, bytes);
    if (n <= 0 || to == tw_jinja_code_point(c, 0)) {
        tw_jinja_put(b, c);
        return;
    }
    memset(marks, c.data ? c.data[0] : 0, sizeof marks);
    tw_jinja_put(b, (struct tw_jinja_text){(char *)bytes, c.data ? marks : NULL, (size_t)n});
}

void tw_jinja_put_case(struct tw_jinja_buffer *b, struct tw_jinja_text text, enum tw_jinja_case to,
                       bool words) {
    uint32_t before = ' ';
    bool first = true;
    for (size_t at = 0, n; at < text.n && !b->failed; at += n, first = false) {
        n = tw_jinja_char_bytes(text, at);
        struct tw_jinja_text c = tw_jinja_cut(text, at, at + n);
        uint32_t point = tw_jinja_code_point(c, 0);
        bool up = to == TW_JINJA_UPPER || (to == TW_JINJA_CAPITALIZE && first) ||
                  (to == TW_JINJA_TITLE && begins_word(before, words));
        if (up && point == 0xDF) { /* sharp s has two capital letters */
            tw_jinja_put_char(b, 'S', c.data && c.data[0]);
            tw_jinja_put_char(b, to == TW_JINJA_UPPER ? 'S' : 's', c.data && c.data[0]);
            before = point;
            continue;
        }
        bool malformed = n == 1 && point >= 0x80;
        utf8proc_int32_t mapped = up ? utf8proc_toupper((utf8proc_int32_t)point)
                                     : utf8proc_tolower((utf8proc_int32_t)point);
        put_point(b, c, malformed ? point : (uint32_t)mapped);
        before = point;
    }
}

/* ---- find and replace ---- */

bool tw_jinja_begins(struct tw_jinja_text text, struct tw_jinja_text what) {
    return what.n <= text.n && tw_jinja_same(tw_jinja_cut(text, 0, what.n), what);
}

bool tw_jinja_ends(struct tw_jinja_text text, struct tw_jinja_text what) {
    return what.n <= text.n && tw_jinja_same(tw_jinja_cut(text, text.n - what.n, text.n), what);
}

size_t tw_jinja_find_last(struct tw_jinja_text text, struct tw_jinja_text what) {
    for (size_t at = what.n <= text.n ? text.n - what.n + 1 : 0; at-- > 0;) {
        if (tw_jinja_same(tw_jinja_cut(text, at, at + what.n), what)) {
            return at;
        }
    }
    return text.n;
}

/* Replacing nothing puts `new` before each character and at the end. */
static void put_between(struct tw_jinja_buffer *b, struct tw_jinja_text text,
                        struct tw_jinja_text new, int64_t count) {
    for (size_t at = 0, n; at < text.n && !b->failed; at += n) {
        n = tw_jinja_char_bytes(text, at);
        if (count != 0) {
            tw_jinja_put(b, new);
            count--;
        }
        tw_jinja_put(b, tw_jinja_cut(text, at, at + n));
    }
    if (count != 0) {
        tw_jinja_put(b, new);
    }
}

void tw_jinja_put_replaced(struct tw_jinja_buffer *b, struct tw_jinja_text text,
                           struct tw_jinja_text old, struct tw_jinja_text new, int64_t count) {
    if (old.n == 0) {
        put_between(b, text, new, count);
        return;
    }
    size_t from = 0;
    for (size_t at; count != 0 && !b->failed; count--, from = at + old.n) {
        at = tw_jinja_find(text, old, from);
        if (at == text.n) {
            break;
        }
        tw_jinja_put(b, tw_jinja_cut(text, from, at));
        tw_jinja_put(b, new);
    }
    tw_jinja_put(b, tw_jinja_cut(text, from, text.n));
}

/* ---- split ---- */

static bool push_text(struct tw_jinja_arena *arena, struct tw_jinja_list *list,
                      struct tw_jinja_text text) {
    return tw_jinja_push(arena, list, tw_jinja_string(text));
}

static bool split_first(struct tw_jinja_arena *arena, struct tw_jinja_text text,
                        struct tw_jinja_text separator, int64_t max, struct tw_jinja_list *out) {
    size_t from = 0;
    bool good = true;
    for (; max != 0 && good; max--) {
        size_t at = tw_jinja_find(text, separator, from);
        if (at == text.n) {
            break;
        }
        good = push_text(arena, out, tw_jinja_cut(text, from, at));
        from = at + separator.n;
    }
    return good && push_text(arena, out, tw_jinja_cut(text, from, text.n));
}

static void reverse(struct tw_jinja_list *list) {
    for (size_t i = 0, j = list->n; i + 1 < j; i++) {
        struct tw_jinja_value v = list->item[i];
        list->item[i] = list->item[--j];
        list->item[j] = v;
    }
}

static bool split_last(struct tw_jinja_arena *arena, struct tw_jinja_text text,
                       struct tw_jinja_text separator, int64_t max, struct tw_jinja_list *out) {
    bool good = true;
    for (; max != 0 && good; max--) {
        size_t at = tw_jinja_find_last(text, separator);
        if (at == text.n) {
            break;
        }
        good = push_text(arena, out, tw_jinja_cut(text, at + separator.n, text.n));
        text = tw_jinja_cut(text, 0, at);
    }
    good = good && push_text(arena, out, text);
    reverse(out);
    return good;
}

static size_t skip(struct tw_jinja_text text, size_t at, bool space) {
    while (at < text.n && tw_jinja_is_space(tw_jinja_code_point(text, at)) == space) {
        at += tw_jinja_char_bytes(text, at);
    }
    return at;
}

static bool split_words(struct tw_jinja_arena *arena, struct tw_jinja_text text, int64_t max,
                        struct tw_jinja_list *out) {
    bool good = true;
    for (size_t at = skip(text, 0, true); at < text.n && good; max--) {
        size_t end = max == 0 ? text.n : skip(text, at, false);
        good = push_text(arena, out, tw_jinja_cut(text, at, end));
        at = skip(text, end, true);
    }
    return good;
}

static size_t word_begin(struct tw_jinja_text text, size_t end) {
    while (end > 0) {
        size_t at = last_char(text, end);
        if (tw_jinja_is_space(tw_jinja_code_point(text, at))) {
            break;
        }
        end = at;
    }
    return end;
}

static bool split_last_words(struct tw_jinja_arena *arena, struct tw_jinja_text text, int64_t max,
                             struct tw_jinja_list *out) {
    bool good = true;
    for (text = tw_jinja_strip(text, NULL, false, true); text.n && good; max--) {
        size_t at = max == 0 ? 0 : word_begin(text, text.n);
        good = push_text(arena, out, tw_jinja_cut(text, at, text.n));
        text = tw_jinja_strip(tw_jinja_cut(text, 0, at), NULL, false, true);
    }
    reverse(out);
    return good;
}

bool tw_jinja_split(struct tw_jinja_arena *arena, struct tw_jinja_text text,
                    const struct tw_jinja_text *separator, int64_t max, bool last,
                    struct tw_jinja_list *out) {
    if (!separator) {
        return last ? split_last_words(arena, text, max, out) : split_words(arena, text, max, out);
    }
    return last ? split_last(arena, text, *separator, max, out)
                : split_first(arena, text, *separator, max, out);
}

/* Returns the bytes of the end of a line at `at`: 0 if there is none. */
static size_t end_of_line(struct tw_jinja_text text, size_t at) {
    uint32_t c = tw_jinja_code_point(text, at);
    if (c == '\r' && at + 1 < text.n && text.p[at + 1] == '\n') {
        return 2;
    }
    bool is =
        (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    return is ? tw_jinja_char_bytes(text, at) : 0;
}

bool tw_jinja_split_lines(struct tw_jinja_arena *arena, struct tw_jinja_text text, bool keep_ends,
                          struct tw_jinja_list *out) {
    size_t from = 0;
    bool good = true;
    for (size_t at = 0; at < text.n && good;) {
        size_t end = end_of_line(text, at);
        if (end) {
            good = push_text(arena, out, tw_jinja_cut(text, from, keep_ends ? at + end : at));
            from = at + end;
        }
        at += end ? end : tw_jinja_char_bytes(text, at);
    }
    return good && (from == text.n || push_text(arena, out, tw_jinja_cut(text, from, text.n)));
}
