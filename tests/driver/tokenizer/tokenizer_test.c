/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the tokenizer on small vocabularies, with a plain quadratic BPE as the oracle. Real
 * vocabularies: see tokenizer_golden_test.c.
 */
#include "driver/tokenizer/tokenizer.h"
#include "tests/support/vocab_fixture.h"

#include "tests/support/test.h"
#include "tilewright/machine.h"

#define SPACE "\xE2\x96\x81"
#define BYTE(b) (19u + (b)) /* of the vocabulary below */

/* Ids 0 to 18; the byte tokens follow. */
static const struct fixture_piece pieces[] = {
    {"<unk>", 0, TW_TOKEN_UNKNOWN},
    {"<s>", 0, TW_TOKEN_CONTROL},
    {"</s>", 0, TW_TOKEN_CONTROL},
    {"<|user|>", -1000, TW_TOKEN_USER_DEFINED},
    {"a", -10, TW_TOKEN_NORMAL},
    {"b", -11, TW_TOKEN_NORMAL},
    {SPACE, -12, TW_TOKEN_NORMAL},
    {"ab", -2, TW_TOKEN_NORMAL},
    {"ba", -1, TW_TOKEN_NORMAL},
    {"aa", -3, TW_TOKEN_NORMAL},
    {"aba", -3, TW_TOKEN_NORMAL},
    {SPACE "a", -4, TW_TOKEN_NORMAL},
    {"a" SPACE "a", -5, TW_TOKEN_NORMAL},
    {"\xC3\xA9", -13, TW_TOKEN_NORMAL},
    {"<", -14, TW_TOKEN_NORMAL},
    {"s>", -15, TW_TOKEN_NORMAL},
    {"s", -16, TW_TOKEN_NORMAL},
    {">", -17, TW_TOKEN_NORMAL},
    {"<|user|>b", -1000, TW_TOKEN_CONTROL},
};
enum { N_PIECES = sizeof pieces / sizeof *pieces };

static struct tw_vocab_header header(uint32_t flags) {
    return (struct tw_vocab_header){.flags = flags, .bos = 1, .eos = 2, .unk = 0, .pad = TW_NONE};
}

struct opened {
    struct fixture fixture;
    struct tw_tokenizer *tokenizer;
};

static struct opened open_pieces(const struct fixture_piece *list, uint32_t n, int bytes,
                                 struct tw_vocab_header h) {
    struct opened o = {.tokenizer = NULL};
    tw_error err = {0};
    assert_int_equal(fixture_vocab(list, n, bytes, h, &o.fixture, &err), 0);
    assert_int_equal(tw_tokenizer_create(&o.fixture.vocab, &o.tokenizer, &err), 0);
    return o;
}

static struct opened open_usual(uint32_t flags) {
    return open_pieces(pieces, N_PIECES, 1, header(flags));
}

static void close_it(struct opened *o) {
    tw_tokenizer_destroy(o->tokenizer);
    free(o->fixture.blob);
}

static void expect_ids(const struct opened *o, const char *text, size_t n, unsigned flags,
                       const uint32_t *ids, size_t count) {
    struct tw_token_list list = {.n = 0};
    tw_error err = {0};
    assert_int_equal(tw_tokenizer_encode(o->tokenizer, text, n, flags, &list, &err), 0);
    assert_int_equal(list.n, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(list.ids[i], ids[i]);
    }
    tw_token_list_finish(&list);
}

#define IDS(...) \
    ((const uint32_t[]){__VA_ARGS__}), sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)
#define EXPECT(o, text, flags, ...) expect_ids(o, text, sizeof(text) - 1, flags, IDS(__VA_ARGS__))

static void the_highest_score_merges_first_and_the_leftmost_of_equals(void **state) {
    (void)state;
    struct opened o = open_usual(0);
    EXPECT(&o, "ab", 0, 7);
    EXPECT(&o, "bab", 0, 8, 5);   /* ba before ab */
    EXPECT(&o, "abab", 0, 10, 5); /* ba first, then a and ba */
    EXPECT(&o, "aaa", 0, 9, 4);   /* the left of two equal pairs */
    EXPECT(&o, "aaaa", 0, 9, 9);
    EXPECT(&o, "aab", 0, 4, 7);
    close_it(&o);
}

static void a_space_is_prepended_where_the_vocabulary_says_so(void **state) {
    (void)state;
    struct opened with = open_usual(TW_VOCAB_SPACE_PREFIX), without = open_usual(0);
    EXPECT(&with, "a", 0, 11);
    EXPECT(&without, "a", 0, 4);
    EXPECT(&with, " a", 0, 6, 11);
    EXPECT(&with, " ", 0, 6, 6);
    /* A piece may span a space, and U+2581 is one. */
    EXPECT(&without, "a a", 0, 12);
    EXPECT(&without, "a" SPACE "a", 0, 12);
    expect_ids(&with, "", 0, 0, NULL, 0);
    close_it(&with);
    close_it(&without);
}

static void bos_and_eos_follow_the_vocabulary_unless_overridden(void **state) {
    (void)state;
    struct opened both = open_usual(TW_VOCAB_ADD_BOS | TW_VOCAB_ADD_EOS), none = open_usual(0);
    EXPECT(&both, "b", 0, 1, 5, 2);
    EXPECT(&both, "", 0, 1, 2);
    EXPECT(&both, "b", TW_ENCODE_NO_BOS, 5, 2);
    EXPECT(&both, "b", TW_ENCODE_NO_EOS, 1, 5);
    EXPECT(&none, "b", 0, 5);
    EXPECT(&none, "b", TW_ENCODE_BOS, 1, 5);
    EXPECT(&none, "", TW_ENCODE_BOS, 1);
    EXPECT(&none, "b", TW_ENCODE_EOS, 5, 2);
    close_it(&both);
    close_it(&none);
}

static void without_a_bos_id_none_is_added(void **state) {
    (void)state;
    struct tw_vocab_header h = header(0);
    h.bos = h.eos = TW_NONE;
    struct opened o = open_pieces(pieces, N_PIECES, 1, h);
    EXPECT(&o, "b", TW_ENCODE_BOS | TW_ENCODE_EOS, 5);
    expect_ids(&o, "", 0, TW_ENCODE_BOS, NULL, 0);
    assert_false(tw_tokenizer_is_end(o.tokenizer, TW_NONE));
    close_it(&o);
}

static void what_no_piece_spells_becomes_bytes(void **state) {
    (void)state;
    struct opened o = open_usual(0);
    EXPECT(&o, "a\xC3\xA9", 0, 4, 13);
    EXPECT(&o, "\xF0\x9F\x90\x89", 0, BYTE(0xF0), BYTE(0x9F), BYTE(0x90), BYTE(0x89));
    EXPECT(&o, "a\0b", 0, 4, BYTE(0), 5);
    EXPECT(&o, "a\xFF", 0, 4, BYTE(0xFF));
    EXPECT(&o, "a\xC3", 0, 4, BYTE(0xC3));
    EXPECT(&o,
           "\xC3"
           "b",
           0, BYTE(0xC3), 5); /* the b is not part of a bad character */
    EXPECT(&o, "\xC3\xC3\xA9", 0, BYTE(0xC3), 13);
    EXPECT(&o, "\xED\xA0\x80", 0, BYTE(0xED), BYTE(0xA0), BYTE(0x80));
    close_it(&o);
}

static void without_byte_tokens_a_run_of_unknown_characters_is_one_unknown_token(void **state) {
    (void)state;
    struct opened o = open_pieces(pieces, N_PIECES, 0, header(0));
    EXPECT(&o, "ax", 0, 4, 0);
    EXPECT(&o, "\xF0\x9F\x90\x89xyz", 0, 0);
    EXPECT(&o, "xaxx", 0, 0, 4, 0);
    EXPECT(&o, "\xFF\0a", 0, 0, 4);
    close_it(&o);
}

static void without_an_unknown_token_an_unknown_character_is_refused(void **state) {
    (void)state;
    struct tw_vocab_header h = header(0);
    h.unk = TW_NONE;
    struct opened o = open_pieces(pieces, N_PIECES, 0, h);
    struct tw_token_list list = {.n = 0};
    tw_error err = {0};
    assert_int_equal(tw_tokenizer_encode(o.tokenizer, "ab", 2, 0, &list, &err), 0);
    assert_int_equal(tw_tokenizer_encode(o.tokenizer, "abz", 3, TW_ENCODE_BOS, &list, &err),
                     TW_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "0x7A"));
    assert_int_equal(list.n, 1);
    assert_int_equal(list.ids[0], 7);
    tw_token_list_finish(&list);
    close_it(&o);
}

static void special_pieces_in_plain_text_are_plain_text(void **state) {
    (void)state;
    struct opened o = open_usual(0);
    EXPECT(&o, "<s>", 0, 14, 15);
    EXPECT(&o, "</s>", 0, 14, BYTE('/'), 15);
    EXPECT(&o, "<unk>", 0, 14, BYTE('u'), BYTE('n'), BYTE('k'), 17);
    EXPECT(&o, "<0x0A>", 0, 14, BYTE('0'), BYTE('x'), BYTE('0'), BYTE('A'), 17);
    EXPECT(&o, "<|user|>", 0, 14, BYTE('|'), BYTE('u'), 16, BYTE('e'), BYTE('r'), BYTE('|'), 17);
    close_it(&o);
}

static void special_pieces_are_parsed_where_requested(void **state) {
    (void)state;
    struct opened o = open_usual(TW_VOCAB_SPACE_PREFIX);
    EXPECT(&o, "<s>", TW_ENCODE_SPECIAL, 1);
    EXPECT(&o, "<s>a</s>a<unk>", TW_ENCODE_SPECIAL, 1, 11, 2, 11, 0);
    EXPECT(&o, "<s", TW_ENCODE_SPECIAL, 6, 14, 16);
    EXPECT(&o, "<<s>", TW_ENCODE_SPECIAL, 6, 14, 1);
    /* The longest one wins; USER_DEFINED alone may be requested. */
    EXPECT(&o, "<|user|>b<|user|>", TW_ENCODE_SPECIAL, 18, 3);
    EXPECT(&o, "<|user|>b<s>", TW_ENCODE_USER_DEFINED, 3, 6, 5, 14, 15);
    close_it(&o);
}

static void of_equal_pieces_the_highest_id_is_used(void **state) {
    (void)state;
    const struct fixture_piece list[] = {{"a", 0, TW_TOKEN_NORMAL},    {"b", 0, TW_TOKEN_NORMAL},
                                         {"a", 0, TW_TOKEN_NORMAL},    {"<m>", 0, TW_TOKEN_CONTROL},
                                         {"<m>", 0, TW_TOKEN_CONTROL}, {"", 0, TW_TOKEN_NORMAL},
                                         {"", 0, TW_TOKEN_CONTROL}};
    struct tw_vocab_header h = {.bos = TW_NONE, .eos = TW_NONE, .unk = TW_NONE, .pad = TW_NONE};
    struct opened o = open_pieces(list, 7, 0, h);
    EXPECT(&o, "ab<m>", TW_ENCODE_SPECIAL, 2, 1, 4);
    close_it(&o);
}

static void ids_are_appended(void **state) {
    (void)state;
    struct opened o = open_usual(0);
    struct tw_token_list list = {.n = 0};
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(tw_tokenizer_encode(o.tokenizer, i % 2 ? "b" : "a", 1, 0, &list, NULL), 0);
        assert_int_equal(list.n, i + 1);
    }
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(list.ids[i], 4 + i % 2);
    }
    tw_token_list_finish(&list);
    close_it(&o);
}

static void a_text_beyond_the_limit_is_refused(void **state) {
    (void)state;
    struct opened o = open_usual(0);
    struct tw_token_list list = {.n = 0};
    tw_error err = {0};
    assert_int_equal(
        tw_tokenizer_encode(o.tokenizer, "a", (size_t)TW_TEXT_BYTES_MAX + 1, 0, &list, &err),
        TW_E_RANGE);
    assert_int_equal(list.n, 0);
    close_it(&o);
}

/* ---- back to text ---- */

static void expect_piece(const struct opened *o, uint32_t id, unsigned flags, const char *wanted,
                         size_t n) {
    const char *bytes;
    size_t length;
    assert_int_equal(tw_tokenizer_piece(o->tokenizer, id, flags, &bytes, &length, NULL), 0);
    assert_int_equal(length, n);
    assert_memory_equal(bytes, wanted, n);
}

static void the_text_of_a_piece_has_spaces_and_bytes_converted(void **state) {
    (void)state;
    struct opened o = open_usual(TW_VOCAB_SPACE_PREFIX);
    expect_piece(&o, 12, 0, "a a", 3);
    expect_piece(&o, 11, 0, " a", 2);
    expect_piece(&o, 11, TW_PIECE_FIRST, "a", 1);
    expect_piece(&o, 6, TW_PIECE_FIRST, "", 0);
    expect_piece(&o, 4, TW_PIECE_FIRST, "a", 1);
    for (unsigned byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        expect_piece(&o, BYTE(byte), 0, &c, 1);
    }
    close_it(&o);
    struct opened bare = open_usual(0);
    expect_piece(&bare, 11, TW_PIECE_FIRST, " a", 2);
    close_it(&bare);
}

static void control_tokens_read_as_nothing_unless_requested(void **state) {
    (void)state;
    struct opened o = open_usual(TW_VOCAB_SPACE_PREFIX);
    expect_piece(&o, 1, 0, "", 0);
    expect_piece(&o, 0, 0, "", 0);
    expect_piece(&o, 1, TW_PIECE_SPECIAL, "<s>", 3);
    expect_piece(&o, 0, TW_PIECE_SPECIAL, "<unk>", 5);
    expect_piece(&o, 3, 0, "<|user|>", 8);
    close_it(&o);
}

static void a_bad_id_is_a_range_error(void **state) {
    (void)state;
    struct opened o = open_usual(0);
    const uint32_t bad[] = {N_PIECES + 256, 0x7FFFFFFF, 0x80000000, UINT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        const char *bytes;
        size_t n;
        tw_error err = {0};
        assert_int_equal(tw_tokenizer_piece(o.tokenizer, bad[i], 0, &bytes, &n, &err), TW_E_RANGE);
        assert_non_null(strstr(err.message, "275"));
        assert_int_equal(tw_tokenizer_decode(o.tokenizer, &bad[i], 1, 0, NULL, 0, &n, &err),
                         TW_E_RANGE);
    }
    close_it(&o);
}

static void decoding_drops_the_space_that_encoding_prepended(void **state) {
    (void)state;
    struct opened o = open_usual(TW_VOCAB_SPACE_PREFIX);
    const uint32_t ids[] = {1, 11, 11, 2};
    char out[16];
    size_t n;
    assert_int_equal(
        tw_tokenizer_decode(o.tokenizer, ids, 4, TW_PIECE_FIRST, out, sizeof out, &n, NULL), 0);
    assert_int_equal(n, 3);
    assert_memory_equal(out, "a a", 3);
    assert_int_equal(tw_tokenizer_decode(o.tokenizer, ids + 1, 2, 0, out, sizeof out, &n, NULL), 0);
    assert_int_equal(n, 4);
    assert_memory_equal(out, " a a", 4);
    /* Too little room: what fits, and the whole length. */
    memset(out, 'x', sizeof out);
    assert_int_equal(tw_tokenizer_decode(o.tokenizer, ids, 4, TW_PIECE_SPECIAL, out, 5, &n, NULL),
                     0);
    assert_int_equal(n, 11);
    assert_memory_equal(out, "<s> axx", 7);
    close_it(&o);
}

static void texts_end_with_eos_and_if_flagged_with_bos(void **state) {
    (void)state;
    struct opened gguf = open_usual(0), llama2c = open_usual(TW_VOCAB_STOP_AT_BOS);
    assert_true(tw_tokenizer_is_end(gguf.tokenizer, 2));
    assert_false(tw_tokenizer_is_end(gguf.tokenizer, 1));
    assert_false(tw_tokenizer_is_end(gguf.tokenizer, 5));
    assert_true(tw_tokenizer_is_end(llama2c.tokenizer, 1));
    close_it(&gguf);
    close_it(&llama2c);
}

static void another_kind_of_vocabulary_is_refused(void **state) {
    (void)state;
    struct tw_vocab vocab = {.header = {.kind = 7}};
    struct tw_tokenizer *tokenizer;
    tw_error err = {0};
    assert_int_equal(tw_tokenizer_create(&vocab, &tokenizer, &err), TW_E_UNSUPPORTED);
    assert_null(tokenizer);
    assert_non_null(strstr(err.message, "7"));
    tw_tokenizer_destroy(NULL);
}

/* ---- the oracle ---- */

/* Plain BPE: begins with one symbol for each byte, and repeatedly merges the best pair of the whole
 * text, found by trying all pairs. */
static size_t plain_bpe(const struct fixture_piece *list, uint32_t n, const char *text,
                        uint32_t *ids) {
    char symbols[64][64];
    size_t count = strlen(text);
    for (size_t i = 0; i < count; i++) {
        symbols[i][0] = text[i];
        symbols[i][1] = 0;
    }
    for (;;) {
        size_t best = SIZE_MAX;
        float best_score = 0.0f;
        for (size_t i = 0; i + 1 < count; i++) {
            for (uint32_t id = 0; id < n; id++) {
                size_t left = strlen(symbols[i]);
                bool fits = strncmp(list[id].text, symbols[i], left) == 0 &&
                            !strcmp(list[id].text + left, symbols[i + 1]);
                if (fits && (best == SIZE_MAX || list[id].score > best_score)) {
                    best = i;
                    best_score = list[id].score;
                }
            }
        }
        if (best == SIZE_MAX) {
            break;
        }
        size_t left = strlen(symbols[best]);
        memcpy(symbols[best] + left, symbols[best + 1], strlen(symbols[best + 1]) + 1);
        count--;
        memmove(symbols[best + 1], symbols[best + 2], (count - best - 1) * sizeof *symbols);
    }
    for (size_t i = 0; i < count; i++) {
        for (uint32_t id = 0; id < n; id++) {
            if (!strcmp(list[id].text, symbols[i])) {
                ids[i] = id;
            }
        }
    }
    return count;
}

static uint32_t next_random(uint32_t *random) {
    *random = *random * 1664525u + 1013904223u;
    return *random >> 16;
}

static void random_texts_and_scores_agree_with_plain_bpe(void **state) {
    (void)state;
    uint32_t random = 2024;
    for (int round = 0; round < 60; round++) {
        char names[64][8];
        struct fixture_piece list[64];
        uint32_t n = 0;
        /* All strings of "xyz" up to three letters, and a few longer ones; small scores, so that
         * many are equal. */
        for (uint32_t code = 0; code < 52; code++) {
            uint32_t length = code < 3    ? 1
                              : code < 12 ? 2
                              : code < 39 ? 3
                                          : 4 + next_random(&random) % 3;
            for (uint32_t i = 0; i < length; i++) {
                uint32_t digit = code < 3    ? code
                                 : code < 12 ? (i ? (code - 3) / 3 : (code - 3) % 3)
                                             : next_random(&random) % 3;
                names[n][i] = (char)('x' + digit);
            }
            names[n][length] = 0;
            bool known = false;
            for (uint32_t i = 0; i < n; i++) {
                known = known || !strcmp(names[i], names[n]);
            }
            if (!known && (code < 3 || next_random(&random) % 4)) {
                list[n] = (struct fixture_piece){names[n], -(float)(next_random(&random) % 8),
                                                 TW_TOKEN_NORMAL};
                n++;
            }
        }
        struct tw_vocab_header h = {.bos = TW_NONE, .eos = TW_NONE, .unk = TW_NONE, .pad = TW_NONE};
        struct opened o = open_pieces(list, n, 0, h);
        for (int i = 0; i < 30; i++) {
            char text[41] = {0};
            uint32_t ids[64];
            for (uint32_t at = 0, length = next_random(&random) % 41; at < length; at++) {
                text[at] = (char)('x' + next_random(&random) % 3);
            }
            size_t count = plain_bpe(list, n, text, ids);
            expect_ids(&o, text, strlen(text), 0, ids, count);
        }
        close_it(&o);
    }
}

/* ---- cost ---- */

static uint64_t work_of(const struct opened *o, char letter, size_t n) {
    struct tw_token_list list = {.n = 0};
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, letter, n);
    assert_int_equal(tw_tokenizer_encode(o->tokenizer, text, n, TW_ENCODE_SPECIAL, &list, NULL), 0);
    size_t length;
    char *back = malloc(n);
    assert_int_equal(tw_tokenizer_decode(o->tokenizer, list.ids, list.n, 0, back, n, &length, NULL),
                     0);
    assert_int_equal(length, n);
    assert_memory_equal(back, text, n);
    uint64_t work = list.work;
    tw_token_list_finish(&list);
    free(text);
    free(back);
    return work;
}

static void long_runs_of_one_letter_cost_n_log_n(void **state) {
    (void)state;
    char names[12][2049];
    struct fixture_piece list[12];
    for (uint32_t i = 0; i < 12; i++) {
        memset(names[i], 'A', (size_t)1 << i);
        names[i][(size_t)1 << i] = 0;
        list[i] = (struct fixture_piece){names[i], -(float)i, TW_TOKEN_NORMAL};
    }
    struct tw_vocab_header h = {.bos = TW_NONE, .eos = TW_NONE, .unk = TW_NONE, .pad = TW_NONE};
    struct opened o = open_pieces(list, 12, 1, h);
    const size_t lengths[] = {9400, 100000, 1000000};
    for (size_t i = 0; i < 3; i++) {
        double logarithm = 0.0;
        for (size_t n = lengths[i]; n > 1; n /= 2) {
            logarithm += 1.0;
        }
        assert_true((double)work_of(&o, 'A', lengths[i]) < 6.0 * (double)lengths[i] * logarithm);
        /* nothing merges */
        assert_true((double)work_of(&o, 'B', lengths[i]) < 6.0 * (double)lengths[i]);
    }
    close_it(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_score_merges_first_and_the_leftmost_of_equals),
        cmocka_unit_test(a_space_is_prepended_where_the_vocabulary_says_so),
        cmocka_unit_test(bos_and_eos_follow_the_vocabulary_unless_overridden),
        cmocka_unit_test(without_a_bos_id_none_is_added),
        cmocka_unit_test(what_no_piece_spells_becomes_bytes),
        cmocka_unit_test(without_byte_tokens_a_run_of_unknown_characters_is_one_unknown_token),
        cmocka_unit_test(without_an_unknown_token_an_unknown_character_is_refused),
        cmocka_unit_test(special_pieces_in_plain_text_are_plain_text),
        cmocka_unit_test(special_pieces_are_parsed_where_requested),
        cmocka_unit_test(of_equal_pieces_the_highest_id_is_used),
        cmocka_unit_test(ids_are_appended),
        cmocka_unit_test(a_text_beyond_the_limit_is_refused),
        cmocka_unit_test(the_text_of_a_piece_has_spaces_and_bytes_converted),
        cmocka_unit_test(control_tokens_read_as_nothing_unless_requested),
        cmocka_unit_test(a_bad_id_is_a_range_error),
        cmocka_unit_test(decoding_drops_the_space_that_encoding_prepended),
        cmocka_unit_test(texts_end_with_eos_and_if_flagged_with_bos),
        cmocka_unit_test(another_kind_of_vocabulary_is_refused),
        cmocka_unit_test(random_texts_and_scores_agree_with_plain_bpe),
        cmocka_unit_test(long_runs_of_one_letter_cost_n_log_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
