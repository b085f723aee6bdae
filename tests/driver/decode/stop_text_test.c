/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of stop texts: any way of cutting a text into parts gives what searching the whole text
 * gives, and no more is held back than may begin a stop text.
 */
#include "driver/decode/stop_text.h"
#include "tests/support/test.h"

struct heard {
    char text[2048];
    size_t n;
};

static int hear(void *ctx, const char *text, size_t n) {
    struct heard *h = ctx;
    memcpy(h->text + h->n, text, n);
    h->n += n;
    h->text[h->n] = 0;
    return 0;
}

static uint32_t seed = 1;
static uint32_t random_below(uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

/* n characters of a small alphabet, so that stop texts occur and nearly occur. */
static void random_text(char *out, uint32_t n) {
    static const char *const alphabet[] = {"a", "b", "\xC3\xA9", "\xE2\x82\xAC"};
    out[0] = 0;
    while (n-- > 0) {
        strcat(out, alphabet[random_below(4)]);
    }
}

static bool begins_one(const char *text, const char *const *stops, uint32_t n_stops) {
    bool begins = false;
    for (uint32_t i = 0; i < n_stops; i++) {
        begins = begins || strncmp(stops[i], text, strlen(text)) == 0;
    }
    return begins;
}

/* What is held after `n` bytes is the longest end that begins a stop text. */
static void expect_least_held(const char *text, size_t n, size_t out, const char *const *stops,
                              uint32_t n_stops) {
    char so_far[2048];
    memcpy(so_far, text, n);
    so_far[n] = 0;
    assert_true(out == n || begins_one(so_far + out, stops, n_stops));
    for (size_t at = 0; at < out; at++) {
        assert_false(begins_one(so_far + at, stops, n_stops));
    }
}

static size_t char_end(const char *text, size_t at) {
    at++;
    while (((unsigned char)text[at] & 0xC0) == 0x80) {
        at++;
    }
    return at;
}

static void check(const char *text, const char *const *stops, uint32_t n_stops) {
    const char *first = NULL, *end_of_first = NULL;
    for (uint32_t i = 0; i < n_stops; i++) {
        const char *at = strstr(text, stops[i]), *after = at ? at + strlen(stops[i]) : NULL;
        if (at && (!first || after < end_of_first || (after == end_of_first && at < first))) {
            first = at;
            end_of_first = after;
        }
    }
    struct tw_stop_text stop;
    struct heard h = {.n = 0};
    bool found = false;
    assert_int_equal(tw_stop_text_init(&stop, stops, n_stops, NULL), 0);
    for (size_t at = 0, end; text[at] && !found; at = end) {
        end = char_end(text, at);
        for (uint32_t more = random_below(3); more > 0 && text[end]; more--) {
            end = char_end(text, end);
        }
        assert_int_equal(tw_stop_text_push(&stop, text + at, end - at, hear, &h, &found), 0);
        if (!found) {
            expect_least_held(text, end, h.n, stops, n_stops);
        }
    }
    assert_int_equal(found, first != NULL);
    if (!found) {
        assert_int_equal(tw_stop_text_flush(&stop, hear, &h), 0);
    }
    size_t n = first ? (size_t)(first - text) : strlen(text);
    assert_int_equal(h.n, n);
    assert_memory_equal(h.text, text, n);
}

static void any_cut_of_a_text_gives_the_same(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 4000; round++) {
        char text[256], stop[3][32];
        const char *const stops[] = {stop[0], stop[1], stop[2]};
        random_text(text, 1 + random_below(30));
        for (uint32_t i = 0; i < 3; i++) {
            random_text(stop[i], 1 + random_below(5));
        }
        check(text, stops, 1 + random_below(3));
    }
}

static void long_texts_pass_in_parts(void **state) {
    (void)state;
    char text[1200], long_stop[TW_STOP_TEXT_BYTES_MAX + 1];
    const char *const stops[] = {long_stop};
    struct tw_stop_text stop;
    struct heard h = {.n = 0};
    bool found;
    memset(long_stop, 'x', sizeof long_stop - 1);
    long_stop[sizeof long_stop - 1] = 0;
    memset(text, 'x', 200);
    memset(text + 200, 'y', 700);
    memset(text + 900, 'x', 300);
    assert_int_equal(tw_stop_text_init(&stop, stops, 1, NULL), 0);
    assert_int_equal(tw_stop_text_push(&stop, text, sizeof text, hear, &h, &found), 0);
    assert_true(found);
    assert_int_equal(h.n, 900);
    assert_memory_equal(h.text, text, 900);
}

static void bad_stop_texts_are_refused(void **state) {
    (void)state;
    char many[TW_STOP_TEXT_BYTES_MAX + 2];
    const char *const stops[] = {"ok", many, "\xA9x"};
    struct tw_stop_text stop;
    tw_error err = {0};
    memset(many, 'x', sizeof many);
    many[sizeof many - 1] = 0;
    assert_int_equal(tw_stop_text_init(&stop, stops, 2, &err), TW_E_USAGE);
    assert_non_null(strstr(err.message, "stop text 2 has 257 bytes"));
    assert_int_equal(tw_stop_text_init(&stop, stops + 2, 1, &err), TW_E_USAGE);
    many[0] = 0;
    assert_int_equal(tw_stop_text_init(&stop, stops, 2, &err), TW_E_USAGE);
    assert_int_equal(tw_stop_text_init(&stop, stops, TW_STOP_TEXTS_MAX + 1, &err), TW_E_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_of_a_text_gives_the_same),
        cmocka_unit_test(long_texts_pass_in_parts),
        cmocka_unit_test(bad_stop_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
