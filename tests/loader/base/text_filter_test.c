/* SPDX-License-Identifier: Apache-2.0
 *
 * The text filter: what stays, what becomes '?', and where a text that is too long ends. The
 * sequences are the Unicode standard's examples and the usual mistakes of UTF-8 decoders.
 */
#include "loader/base/text_filter.h"
#include "tests/support/test.h"
#include "tilewright/error.h"

static void cleans(const char *from, const char *to) {
    char text[64], copy[64];
    strcpy(text, from);
    tw_clean_text(text);
    assert_string_equal(text, to);
    tw_text_copy(copy, sizeof copy, from, strlen(from));
    assert_string_equal(copy, to);
    tw_clean_text(text); /* what is clean stays as it is */
    assert_string_equal(text, to);
}

static void characters_of_every_length_stay(void **state) {
    (void)state;
    cleans("", "");
    cleans("plain ~", "plain ~");
    cleans("\u00e9\u0161\u20ac\U0001F600", "\u00e9\u0161\u20ac\U0001F600");
    cleans("\ue000\U0010FFFD\u200d", "\ue000\U0010FFFD\u200d"); /* private use, a joiner */
}

static void controls_become_question_marks(void **state) {
    (void)state;
    cleans("a\033[2Jb\nc\td\177", "a?[2Jb?c?d?");
    cleans("\xc2\x80\xc2\x9b"
           "31m\xc2\xa0",
           "??31m\xc2\xa0");                                       /* C1: U+009B is CSI, as ESC [ */
    cleans("a\u2028b\u2029c\u202ed\u2066e\ufefff", "a?b?c?d?e?f"); /* line ends, directions, BOM */
    cleans("\xef\xbf\xbe\xef\xb7\x90", "??");                      /* noncharacters */
    cleans("\xf3\xa0\x81\x81", "?");                               /* a tag: invisible */
}

static void each_part_that_is_not_utf8_becomes_one_question_mark(void **state) {
    (void)state;
    cleans("\xff\xfe x", "?? x");
    cleans("\x80\xbfx", "??x");
    cleans("\xc0\xaf\xc1\xbfx", "????x");    /* overlong */
    cleans("\xe0\x80\xafx", "???x");         /* overlong */
    cleans("\xed\xa0\x80x", "???x");         /* a surrogate */
    cleans("\xf4\x90\x80\x80x", "????x");    /* beyond U+10FFFF */
    cleans("\xe2\x82x", "?x");               /* one part, cut */
    cleans("\xf0\x9f\x98 \xc3 x", "? ? x");  /* two, cut */
    cleans("\xe2\x82\xc3\xa9", "?\xc3\xa9"); /* the next one is whole */
}

static void truncation_never_splits_a_character(void **state) {
    (void)state;
    cleans("ab\xc3", "ab");
    cleans("ab\xf0\x9f\x98", "ab");
    cleans("ab\xff", "ab?"); /* nothing begins like this */
    char out[8];
    for (size_t room = 1; room <= sizeof out; room++) {
        tw_text_copy(out, room, "\xc3\xa9\xe2\x82\xac\xc3\xa9!", 8);
        static const size_t length[] = {0, 0, 0, 2, 2, 2, 5, 5, 7};
        assert_int_equal(strlen(out), length[room]);
    }
    tw_text_copy(out, sizeof out, "\xc3\xa9\xe2\x82\xac", 4); /* the source is cut */
    assert_string_equal(out, "\xc3\xa9");
    tw_text_copy(out, sizeof out, "ab\0cd", 5);
    assert_string_equal(out, "ab");
}

/* An independent check, byte by byte, of what the filter lets through: shortest forms only, no
 * surrogates, no controls. */
static bool is_clean(const char *text) {
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        unsigned more = *c < 0x80 ? 0 : *c >= 0xF0 ? 3 : *c >= 0xE0 ? 2 : 1;
        uint32_t value = more == 0 ? *c : *c & (0x3Fu >> more);
        if (*c < 0x20 || *c == 0x7F || (*c >= 0x80 && *c < 0xC2) || *c > 0xF4) {
            return false;
        }
        for (unsigned i = 0; i < more; i++) {
            if ((*++c & 0xC0) != 0x80) {
                return false;
            }
            value = value << 6 | (*c & 0x3F);
        }
        static const uint32_t min[] = {0x20, 0xA0, 0x800, 0x10000};
        if (value < min[more] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
            return false;
        }
    }
    return true;
}

static void random_bytes_come_out_clean(void **state) {
    (void)state;
    srand(7);
    for (int i = 0; i < 200000; i++) {
        char text[24], copy[24];
        size_t n = (size_t)rand() % sizeof text;
        for (size_t k = 0; k < n; k++) {
            int r = rand();
            text[k] = (char)(r % 3 ? 0x80 | (r >> 8 & 0x7F) : r >> 8 & 0xFF);
        }
        text[n] = 0;
        tw_text_copy(copy, 1 + (size_t)rand() % sizeof copy, text, n);
        assert_true(is_clean(copy));
        tw_clean_text(text);
        assert_true(is_clean(text) && strlen(text) <= n);
    }
}

static void an_error_is_one_clean_line_truncated_between_characters(void **state) {
    (void)state;
    tw_error err;
    char path[600];
    tw_error_set(&err, TW_E_IO, "/tmp/\xff/\033[31m\nx: %s", "no");
    assert_string_equal(err.message, "/tmp/?/?[31m?x: no");
    for (size_t i = 0; i < 300; i++) {
        memcpy(path + 2 * i, "\xc3\xa9", 2);
    }
    path[599] = 0;
    tw_error_set(&err, TW_E_IO, "a%s", path); /* 479 bytes: the last character has no room */
    assert_int_equal(strlen(err.message), 479);
    assert_true(is_clean(err.message));
    tw_error_set(&err, TW_E_IO, "%s", path);
    assert_int_equal(strlen(err.message), 478);
    assert_true(is_clean(err.message));
    tw_error_prefix(&err, "\xff");
    assert_true(is_clean(err.message));
    assert_memory_equal(err.message, "?: \xc3\xa9", 5);
}

static void ascii_is_distinguished_from_the_rest(void **state) {
    (void)state;
    assert_true(tw_text_is_ascii("a b~", 4));
    assert_false(tw_text_is_ascii("a b~", 3));
    assert_false(tw_text_is_ascii("", 3));
    assert_false(tw_text_is_ascii("a\n", 3));
    assert_false(tw_text_is_ascii("\xc3\xa9", 3));
    assert_false(tw_text_is_ascii("\177", 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_of_every_length_stay),
        cmocka_unit_test(controls_become_question_marks),
        cmocka_unit_test(each_part_that_is_not_utf8_becomes_one_question_mark),
        cmocka_unit_test(truncation_never_splits_a_character),
        cmocka_unit_test(random_bytes_come_out_clean),
        cmocka_unit_test(an_error_is_one_clean_line_truncated_between_characters),
        cmocka_unit_test(ascii_is_distinguished_from_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
