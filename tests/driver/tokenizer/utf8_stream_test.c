/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the UTF-8 stream: the examples of the Unicode Standard, and an oracle that knows UTF-8
 * as arithmetic.
 */
#include "driver/tokenizer/utf8_stream.h"
#include "tests/support/test.h"

#define FFFD "\xEF\xBF\xBD"

struct text {
    char bytes[4096];
    size_t n;
    int calls;
};

static int collect(void *context, const char *text, size_t n) {
    struct text *out = context;
    assert_true(n >= 1 && n <= sizeof out->bytes - out->n);
    memcpy(out->bytes + out->n, text, n);
    out->n += n;
    out->calls++;
    /* Every call gives whole characters. */
    for (size_t at = 0, length; at < n; at += length) {
        length = tw_utf8_char(text + at, n - at);
        assert_true(length > 0);
    }
    return 0;
}

static struct text stream_whole(const char *bytes, size_t n) {
    struct tw_utf8_stream stream = {0};
    struct text out = {.n = 0};
    assert_int_equal(tw_utf8_push(&stream, bytes, n, collect, &out), 0);
    assert_int_equal(tw_utf8_flush(&stream, collect, &out), 0);
    return out;
}

static void expect(const char *bytes, size_t n, const char *wanted) {
    struct text out = stream_whole(bytes, n);
    assert_int_equal(out.n, strlen(wanted));
    assert_memory_equal(out.bytes, wanted, out.n);
    /* Cut anywhere, or byte by byte, the text is the same. */
    for (size_t cut = 0; cut <= n; cut++) {
        struct tw_utf8_stream stream = {.n = 0};
        struct text parts = {.n = 0};
        (void)tw_utf8_push(&stream, bytes, cut, collect, &parts);
        for (size_t i = cut; i < n; i++) {
            (void)tw_utf8_push(&stream, bytes + i, 1, collect, &parts);
        }
        (void)tw_utf8_flush(&stream, collect, &parts);
        assert_int_equal(parts.n, out.n);
        assert_memory_equal(parts.bytes, wanted, parts.n);
    }
}

#define EXPECT(bytes, wanted) expect(bytes, sizeof(bytes) - 1, wanted)

/* The Unicode Standard 15.0, section 3.9, tables 3-8 to 3-11. */
static void the_examples_of_the_unicode_standard_come_out_as_printed(void **state) {
    (void)state;
    EXPECT("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A");
    EXPECT("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A");
    EXPECT("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B");
    EXPECT("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", FFFD FFFD FFFD FFFD "A");
    EXPECT("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64",
           "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d");
}

static void whole_characters_pass_unchanged(void **state) {
    (void)state;
    EXPECT("", "");
    EXPECT("plain", "plain");
    EXPECT("Caf\xC3\xA9 \xF0\x9F\x90\x89 \xE2\x80\x94",
           "Caf\xC3\xA9 \xF0\x9F\x90\x89 \xE2\x80\x94");
    EXPECT("\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4"
           "\x8F\xBF\xBF",
           "\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4"
           "\x8F\xBF\xBF");
}

static void an_incomplete_character_waits_for_its_bytes(void **state) {
    (void)state;
    struct tw_utf8_stream stream = {.n = 0};
    struct text out = {.n = 0};
    assert_int_equal(tw_utf8_push(&stream, "\xF0\x9F", 2, collect, &out), 0);
    assert_int_equal(tw_utf8_push(&stream, "\x90", 1, collect, &out), 0);
    assert_int_equal(out.n, 0);
    assert_int_equal(out.calls, 0);
    assert_int_equal(tw_utf8_push(&stream, "\x89!", 2, collect, &out), 0);
    assert_int_equal(out.n, 5);
    assert_int_equal(out.calls, 1);
    assert_memory_equal(out.bytes, "\xF0\x9F\x90\x89!", 5);
    assert_int_equal(tw_utf8_flush(&stream, collect, &out), 0);
    assert_int_equal(out.n, 5);
}

static void a_character_cut_off_at_the_end_becomes_one_replacement(void **state) {
    (void)state;
    EXPECT("x\xC3", "x" FFFD);
    EXPECT("x\xE2\x80", "x" FFFD);
    EXPECT("x\xF0\x9F\x90", "x" FFFD);
}

static void nul_is_a_character(void **state) {
    (void)state;
    struct text out = stream_whole("a\0b", 3);
    assert_int_equal(out.n, 3);
    assert_memory_equal(out.bytes, "a\0b", 3);
}

static int refuse(void *context, const char *text, size_t n) {
    (void)text;
    (void)n;
    ++*(int *)context;
    return 7;
}

static void the_sink_can_stop_the_stream(void **state) {
    (void)state;
    struct tw_utf8_stream stream = {.n = 0};
    int calls = 0;
    char bytes[1000];
    memset(bytes, 'a', sizeof bytes);
    assert_int_equal(tw_utf8_push(&stream, bytes, sizeof bytes, refuse, &calls), 7);
    assert_int_equal(calls, 1);
    assert_int_equal(tw_utf8_push(&stream, "\xC3", 1, refuse, &calls), 0);
    assert_int_equal(tw_utf8_flush(&stream, refuse, &calls), 7);
    assert_int_equal(calls, 2);
}

/* ---- the oracle ---- */

/* Returns whether the encoding of some code point (U+0000 to U+10FFFF, no surrogates) begins with
 * these bytes, and sets *whole if they are all of it. */
static bool can_begin(const uint8_t *bytes, size_t n, bool *whole) {
    static const uint32_t min[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t lead = bytes[0];
    size_t length = lead < 0x80   ? 1
                    : lead < 0xC0 ? 0
                    : lead < 0xE0 ? 2
                    : lead < 0xF0 ? 3
                    : lead < 0xF8 ? 4
                                  : 0;
    if (length == 0 || n > length) {
        return false;
    }
    uint32_t low = length == 1 ? lead : lead & (0x7Fu >> length), high;
    for (size_t i = 1; i < n; i++) {
        if ((bytes[i] & 0xC0) != 0x80) {
            return false;
        }
        low = low << 6 | (bytes[i] & 0x3Fu);
    }
    high = low;
    for (size_t i = n; i < length; i++) {
        low <<= 6;
        high = high << 6 | 0x3F;
    }
    *whole = n == length;
    low = low < min[length] ? min[length] : low;
    high = high > 0x10FFFF ? 0x10FFFF : high;
    return low <= high && !(low >= 0xD800 && high <= 0xDFFF);
}

static size_t oracle(const uint8_t *bytes, size_t n, char *out) {
    size_t written = 0;
    for (size_t at = 0; at < n;) {
        size_t length = 0;
        bool whole = false, is_whole = false;
        while (at + length < n && can_begin(bytes + at, length + 1, &whole)) {
            length++;
            is_whole = whole;
        }
        if (is_whole) {
            memcpy(out + written, bytes + at, length);
            written += length;
        } else {
            memcpy(out + written, FFFD, 3);
            written += 3;
        }
        at += length ? length : 1;
    }
    return written;
}

static void random_bytes_come_out_as_the_oracle_says(void **state) {
    (void)state;
    static const uint8_t often[] = {'a',  0x80, 0xBF, 0x90, 0xC2, 0xE0, 0xED,
                                    0xA0, 0x9F, 0xF0, 0xF4, 0x8F, 0xE1, 0xF1};
    uint32_t random = 12345;
    char wanted[3 * 24];
    for (int round = 0; round < 200000; round++) {
        uint8_t bytes[24];
        size_t n = (size_t)round % sizeof bytes;
        for (size_t i = 0; i < n; i++) {
            random = random * 1664525u + 1013904223u;
            bytes[i] = random >> 28 ? often[(random >> 16) % sizeof often] : (uint8_t)(random >> 8);
        }
        struct text out = stream_whole((const char *)bytes, n);
        size_t length = oracle(bytes, n, wanted);
        assert_int_equal(out.n, length);
        assert_memory_equal(out.bytes, wanted, length);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_of_the_unicode_standard_come_out_as_printed),
        cmocka_unit_test(whole_characters_pass_unchanged),
        cmocka_unit_test(an_incomplete_character_waits_for_its_bytes),
        cmocka_unit_test(a_character_cut_off_at_the_end_becomes_one_replacement),
        cmocka_unit_test(nul_is_a_character),
        cmocka_unit_test(the_sink_can_stop_the_stream),
        cmocka_unit_test(random_bytes_come_out_as_the_oracle_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
