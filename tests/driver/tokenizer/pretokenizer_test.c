/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the pre-tokenizers: the words of each family, as the models' own expressions cut them
 * (by hand), and the time of runs that could make an expression backtrack.
 */
#include "driver/tokenizer/pretokenizer.h"
#include "tests/support/test.h"
#include "tilewright/vocab.h"

/* Cuts the text and writes the words with "~" between them. */
static void cut(const char *name, const char *text, char *out, size_t room) {
    struct tw_pretokenizer *pre;
    struct tw_cuts cuts = {0};
    tw_error err = {0};
    assert_int_equal(tw_pretokenizer_create(name, &pre, &err), 0);
    if (tw_pretokenizer_cut(pre, text, (uint32_t)strlen(text), &cuts, &err) != 0) {
        fail_msg("%s: %s", name, err.message);
    }
    uint32_t from = 0;
    size_t n = 0;
    for (size_t i = 0; i < cuts.n; i++) {
        assert_true(cuts.ends[i] > from);
        assert_true(n + cuts.ends[i] - from + 2 < room);
        if (i > 0) {
            out[n++] = '~';
        }
        memcpy(out + n, text + from, cuts.ends[i] - from);
        n += cuts.ends[i] - from;
        from = cuts.ends[i];
    }
    assert_int_equal(from, strlen(text));
    out[n] = 0;
    tw_cuts_finish(&cuts);
    tw_pretokenizer_destroy(pre);
}

static void expect(const char *name, const char *text, const char *words) {
    char out[512];
    cut(name, text, out, sizeof out);
    if (strcmp(out, words) != 0) {
        fail_msg("%s: \"%s\", expected \"%s\"", name, out, words);
    }
}

static void words_are_those_of_each_family(void **state) {
    (void)state;
    static const char text[] = "I'll  say It'S 12345 x=+1!\n\n  Ok";
    expect("gpt-2", text, "I~'ll~ ~ say~ It~'~S~ 12345~ x~=+~1~!~\n\n ~ Ok");
    expect("llama-bpe", text, "I~'ll~ ~ say~ It~'S~ ~123~45~ x~=+~1~!\n\n~ ~ Ok");
    expect("qwen2", text, "I~'ll~ ~ say~ It~'S~ ~1~2~3~4~5~ x~=+~1~!\n\n~ ~ Ok");
    expect("starcoder", text, "I~'ll~ ~ say~ It~'~S~ ~1~2~3~4~5~ x~=+~1~!~\n\n ~ Ok");
    expect("falcon", text, "I~'~ll~ ~ say~ It~'~S~ ~123~45~ x~=+~1~!~\n\n ~ Ok");
    expect("default", text, "I~'~ll~ ~ say~ It~'~S~ ~123~45~ x~=+~1~!~\n\n ~ Ok");
    expect("deepseek-llm", text, "I~'~ll~ ~ say~ It~'~S~ ~12345~ x~=+~1~!~\n~\n~ ~ Ok");
    expect("deepseek-coder", text, "I~'~ll~ ~ say~ It~'~S~ ~1~2~3~4~5~ x~=+~1~!~\n~\n~ ~ Ok");
    expect("deepseek-v3", text, "I~'ll~ ~ say~ It~'S~ ~123~45~ x~=+~1~!\n\n~ ~ Ok");
    expect("tekken", text, "I~'ll~ ~ say~ It~'S~ ~1~2~3~4~5~ x~=+~1~!\n\n~ ~ Ok");
    expect("gpt-4o", text, "I'll~ ~ say~ It'S~ ~123~45~ x~=+~1~!\n\n~ ~ Ok");
    expect("seed-coder", text, "I~'ll~ ~ say~ It~'S~ ~1~2~3~4~5~ x~=+~1~!~\n\n~ ~ Ok");
    expect("bailingmoe", text, "I~'ll~ ~ say~ It~'S~ ~1~2~3~4~5~ x~=+~1~!\n\n~ ~ Ok");
    expect("bloom", text, "I'll~ ~ say~ It'S~ 12345~ x=+1~!\n\n ~ Ok");
    expect("viking", text, "I'll~ ~ say~ It'S~ ~1~2~3~4~5~ x=+~1~!\n\n ~ Ok");
}

static void words_of_capitals_and_small_letters_are_told_apart(void **state) {
    (void)state;
    expect("gpt-4o", "HTTPServer fooBAR's", "HTTPServer~ foo~BAR's");
    expect("tekken", "HTTPServer fooBAR/\n", "HTTPServer~ foo~BAR~/\n");
    expect("gpt-4o", "a//\n/b", "a~//\n/~b");
}

static void marks_belong_to_the_word_where_the_model_says_so(void **state) {
    (void)state;
    /* e and U+0301, a combining acute */
    expect("qwen2", "re\xCC\x81sume", "re~\xCC\x81sume");
    expect("qwen35", "re\xCC\x81sume", "re\xCC\x81sume");
    expect("qwen35", "a \xCC\x81!", "a~ \xCC\x81~!");
}

static void white_space_is_that_of_unicode(void **state) {
    (void)state;
    /* U+3000 and U+00A0 are white space, U+180E is not */
    expect("gpt-2",
           "a\xE3\x80\x80\xC2\xA0"
           "b",
           "a~\xE3\x80\x80~\xC2\xA0~b");
    expect("gpt-2",
           "a\xE1\xA0\x8E"
           "b",
           "a~\xE1\xA0\x8E~b");
    expect("deepseek-llm",
           "\xE4\xB8\xAD\xE6\x96\x87\xE3\x80\x82"
           "a",
           "\xE4\xB8\xAD\xE6\x96\x87~"
           "\xE3\x80\x82~a");
    expect("deepseek-llm", "a   ", "a~   ");
}

static void every_known_name_can_be_created_and_others_are_listed(void **state) {
    (void)state;
    static const char *const names[] = {
#define TW_X(name, family, ignores_merges, adds_bos) name,
        TW_PRETOKENIZERS(TW_X)
#undef TW_X
    };
    struct tw_pretokenizer *pre;
    tw_error err = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_true(strlen(names[i]) < TW_PRE_NAME_BYTES);
        assert_int_equal(tw_pretokenizer_create(names[i], &pre, &err), 0);
        tw_pretokenizer_destroy(pre);
    }
    assert_int_equal(tw_pretokenizer_create("qwen9", &pre, &err), TW_E_UNSUPPORTED);
    assert_null(pre);
    assert_non_null(strstr(err.message, "\"qwen9\" is not known; those known are default gpt-2"));
    tw_pretokenizer_destroy(NULL);
}

/* A million of each character, alone and before another: an expression that tries every start, or
 * gives back one character after another at each, would take hours. */
static void runs_of_any_character_are_cut_in_linear_time(void **state) {
    (void)state;
    enum { N = 200000 };
    static const char *const families[] = {
        "gpt-2",      "llama-bpe",  "qwen2",        "qwen35",         "starcoder",   "falcon",
        "default",    "tekken",     "deepseek-llm", "deepseek-coder", "deepseek-v3", "gpt-4o",
        "seed-coder", "bailingmoe", "bloom",        "viking"};
    char *text = malloc(N + 2);
    assert_non_null(text);
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        struct tw_pretokenizer *pre;
        struct tw_cuts cuts = {0};
        tw_error err = {0};
        assert_int_equal(tw_pretokenizer_create(families[f], &pre, &err), 0);
        for (const char *c = " \n\tAa1'=\x01"; *c; c++) {
            memset(text, *c, N);
            memcpy(text + N, "a", 2);
            assert_int_equal(tw_pretokenizer_cut(pre, text, N + 1, &cuts, &err), 0);
            assert_int_equal(cuts.ends[cuts.n - 1], N + 1);
        }
        tw_cuts_finish(&cuts);
        tw_pretokenizer_destroy(pre);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_those_of_each_family),
        cmocka_unit_test(words_of_capitals_and_small_letters_are_told_apart),
        cmocka_unit_test(marks_belong_to_the_word_where_the_model_says_so),
        cmocka_unit_test(white_space_is_that_of_unicode),
        cmocka_unit_test(every_known_name_can_be_created_and_others_are_listed),
        cmocka_unit_test(runs_of_any_character_are_cut_in_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
