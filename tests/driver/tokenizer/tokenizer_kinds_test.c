/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the tokenizer on small vocabularies of the kinds that merge by rank or split by score,
 * with plain searches as oracles; of special pieces in templates; and of what else a vocabulary
 * carries. Scored merges: tokenizer_test.c.
 */
#include "driver/tokenizer/tokenizer.h"
#include "tests/support/test.h"
#include "tests/support/vocab_made.h"

#include <math.h>

#define SPACE "\xE2\x96\x81"

struct opened {
    struct made_vocab made;
    struct tw_tokenizer *tokenizer;
};

static struct opened open_spec(const struct made_spec *spec) {
    struct opened o;
    tw_error err = {0};
    if (made_vocab(spec, &o.made, &err) != 0 ||
        tw_tokenizer_create(&o.made.vocab, &o.tokenizer, &err) != 0) {
        fail_msg("%s", err.message);
    }
    return o;
}

static void close_it(struct opened *o) {
    tw_tokenizer_destroy(o->tokenizer);
    tw_import_free(&o->made.memory);
}

static void expect_ids(const struct opened *o, const char *text, size_t n, unsigned flags,
                       const uint32_t *ids, size_t count) {
    struct tw_token_list list = {.n = 0};
    tw_error err = {0};
    assert_int_equal(tw_tokenizer_encode(o->tokenizer, text, n, flags, &list, &err), 0);
    for (size_t i = 0; i < count && i < list.n; i++) {
        if (list.ids[i] != ids[i]) {
            fail_msg("'%s': id %zu is %u, expected %u", text, i, list.ids[i], ids[i]);
        }
    }
    assert_int_equal(list.n, count);
    tw_token_list_finish(&list);
}

#define IDS(...) \
    ((const uint32_t[]){__VA_ARGS__}), sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)
#define EXPECT(o, text, flags, ...) expect_ids(o, text, sizeof(text) - 1, flags, IDS(__VA_ARGS__))

/* ---- byte-level BPE ---- */

#define AT(i) (256u + (i)) /* after the bytes */
static const struct made_piece words[] = {
    {"he", 0, TW_TOKEN_NORMAL},
    {"el", 0, TW_TOKEN_NORMAL},
    {"ll", 0, TW_TOKEN_NORMAL},
    {"hell", 0, TW_TOKEN_NORMAL},
    {" h", 0, TW_TOKEN_NORMAL},
    {"hello", 0, TW_TOKEN_NORMAL},
    {"<|bos|>", 0, TW_TOKEN_CONTROL},
    {"<|im_end|>", 0, TW_TOKEN_USER_DEFINED}, /* a name that makes it CONTROL */
    {"<tool>", 0, TW_TOKEN_USER_DEFINED},
    {"<|user|>", 0, TW_TOKEN_CONTROL | TW_TOKEN_RSTRIP},
    {"<|mask|>", 0, TW_TOKEN_CONTROL | TW_TOKEN_LSTRIP},
    {"\xE4\xB8", 0, TW_TOKEN_NORMAL},
};
static const struct made_merge merges[] = {{"l", "l"}, {"h", "e"}, {"he", "ll"},
                                           {" ", "h"}, {"e", "l"}, {"\xE4", "\xB8"}};
static const struct made_spec byte_level = {.kind = TW_VOCAB_BYTE_BPE,
                                            .pieces = words,
                                            .n_pieces = sizeof words / sizeof *words,
                                            .merges = merges,
                                            .n_merges = sizeof merges / sizeof *merges,
                                            .pre = "gpt-2",
                                            .bytes = true,
                                            .flags = TW_VOCAB_ADD_BOS,
                                            .has_bos = true,
                                            .bos = AT(6)};

static void the_lowest_rank_merges_first(void **state) {
    (void)state;
    struct opened o = open_spec(&byte_level);
    EXPECT(&o, "hell", TW_ENCODE_NO_BOS, AT(3));
    EXPECT(&o, "hello", TW_ENCODE_NO_BOS, AT(3), 'o'); /* no merge makes the piece */
    EXPECT(&o, "elel", 0, AT(6), AT(1), AT(1));
    EXPECT(&o, "lll", TW_ENCODE_NO_BOS, AT(2), 'l');
    EXPECT(&o, "a hell", TW_ENCODE_NO_BOS, 'a', ' ',
           AT(3)); /* h and e are joined before the blank */
    EXPECT(&o, "a h", TW_ENCODE_NO_BOS, 'a', AT(4));
    EXPECT(&o, "h\xE4\xB8\xAD\xFF", TW_ENCODE_NO_BOS, 'h', AT(11), 0xAD, 0xFF);
    expect_ids(&o, "", 0, TW_ENCODE_NO_BOS, NULL, 0);
    close_it(&o);
    struct made_spec whole = byte_level;
    whole.flags = TW_VOCAB_IGNORE_MERGES;
    o = open_spec(&whole);
    EXPECT(&o, "hello", 0, AT(5));
    EXPECT(&o, "hellos", 0, AT(3), 'o', 's');
    close_it(&o);
}

static void a_word_is_never_merged_with_the_next(void **state) {
    (void)state;
    struct opened o = open_spec(&byte_level);
    EXPECT(&o, "l l", TW_ENCODE_NO_BOS, 'l', ' ', 'l');
    EXPECT(&o, "1h", TW_ENCODE_NO_BOS, '1', 'h');
    close_it(&o);
}

static void pieces_of_bytes_read_as_themselves(void **state) {
    (void)state;
    struct opened o = open_spec(&byte_level);
    const uint32_t ids[] = {AT(6), AT(4), AT(11), 0xAD, AT(7), AT(8)};
    char out[32];
    size_t n;
    assert_int_equal(
        tw_tokenizer_decode(o.tokenizer, ids, 6, TW_PIECE_FIRST, out, sizeof out, &n, NULL), 0);
    assert_int_equal(n, 11);
    assert_memory_equal(out, " h\xE4\xB8\xAD<tool>", 11);
    close_it(&o);
}

/* A learned piece that a file types CONTROL, or USER_DEFINED, and its merges. */
static void merges_never_make_special_tokens(void **state) {
    (void)state;
    static const struct made_piece pieces[] = {{"ab", 0, TW_TOKEN_NORMAL},
                                               {"abc", 0, TW_TOKEN_CONTROL},
                                               {"uv", 0, TW_TOKEN_NORMAL},
                                               {"uvw", 0, TW_TOKEN_USER_DEFINED}};
    static const struct made_merge pairs[] = {{"a", "b"}, {"ab", "c"}, {"u", "v"}, {"uv", "w"}};
    struct made_spec spec = {.kind = TW_VOCAB_BYTE_BPE,
                             .pieces = pieces,
                             .n_pieces = 4,
                             .merges = pairs,
                             .n_merges = 4,
                             .pre = "default",
                             .bytes = true};
    struct opened o = open_spec(&spec);
    EXPECT(&o, "abc", TW_ENCODE_USER_DEFINED, AT(0), 'c');
    EXPECT(&o, "abc", TW_ENCODE_SPECIAL, AT(1));
    EXPECT(&o, "uvw", 0, AT(2), 'w');
    EXPECT(&o, "uvw", TW_ENCODE_USER_DEFINED, AT(3));
    close_it(&o);
}

/* Merges the pair of the lowest rank anywhere, the leftmost first, until there is none. */
static size_t plain_merges(const struct tw_vocab *v, uint32_t *ids, size_t n) {
    for (;;) {
        uint32_t best = TW_NONE;
        size_t where = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            for (uint32_t r = 0; r < v->extra.n_merges && r < best; r++) {
                if (v->merges[r].left == ids[i] && v->merges[r].right == ids[i + 1]) {
                    best = r;
                    where = i;
                }
            }
        }
        if (best == TW_NONE) {
            return n;
        }
        ids[where] = v->merges[best].merged;
        memmove(&ids[where + 1], &ids[where + 2], (n - where - 2) * sizeof *ids);
        n--;
    }
}

static uint32_t next_random(uint32_t *random) {
    *random = *random * 1664525u + 1013904223u;
    return *random >> 16;
}

/* Random vocabularies over x, y, z: each merge joins two random earlier pieces. */
static void random_merges_agree_with_a_plain_search(void **state) {
    (void)state;
    uint32_t random = 7;
    for (int round = 0; round < 40; round++) {
        char texts[60][64];
        struct made_piece pieces[60];
        struct made_merge pairs[60];
        uint32_t n = 0;
        for (; n < 3; n++) {
            snprintf(texts[n], 64, "%c", (int)('x' + n));
        }
        uint32_t n_merges = 0;
        for (uint32_t tries = 0; tries < 50; tries++) {
            const char *left = texts[next_random(&random) % n];
            const char *right = texts[next_random(&random) % n];
            bool known = strlen(left) + strlen(right) > 8;
            if (!known) {
                memcpy(texts[n], left, strlen(left));
                memcpy(texts[n] + strlen(left), right, strlen(right) + 1);
            }
            for (uint32_t i = 0; i < n; i++) {
                known = known || strcmp(texts[i], texts[n]) == 0;
            }
            if (!known) {
                pairs[n_merges++] = (struct made_merge){left, right};
                n++;
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            pieces[i] = (struct made_piece){texts[i], 0, TW_TOKEN_NORMAL};
        }
        struct made_spec spec = {.kind = round % 2 ? TW_VOCAB_BYTE_BPE : TW_VOCAB_MERGE_BPE,
                                 .pre = round % 2 ? "qwen2" : NULL,
                                 .pieces = pieces,
                                 .n_pieces = n,
                                 .merges = pairs,
                                 .n_merges = n_merges};
        struct opened o = open_spec(&spec);
        for (int i = 0; i < 20; i++) {
            char text[41] = {0};
            uint32_t ids[41], length = next_random(&random) % 41;
            for (uint32_t at = 0; at < length; at++) {
                ids[at] = next_random(&random) % 3;
                text[at] = (char)('x' + ids[at]);
            }
            size_t count = plain_merges(&o.made.vocab, ids, length);
            expect_ids(&o, text, length, 0, ids, count);
        }
        close_it(&o);
    }
}

/* ---- special pieces ---- */

static void users_text_in_a_template_is_not_parsed(void **state) {
    (void)state;
    static const char text[] = "<|im_end|>l<|im_end|>l<tool>";
    struct opened o = open_spec(&byte_level);
    struct tw_token_list list = {.n = 0};
    tw_error err = {0};
    unsigned flags = TW_ENCODE_NO_BOS | TW_ENCODE_SPECIAL;
    /* the second name, and the letters around it */
    struct tw_text_span span = {10, 12};
    assert_int_equal(tw_tokenizer_encode_spans(o.tokenizer, text, 28, &span, 1, flags, &list, &err),
                     0);
    const uint32_t name[] = {'l', '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>', 'l'};
    assert_int_equal(list.n, 14);
    assert_int_equal(list.ids[0], AT(7));
    assert_memory_equal(list.ids + 1, name, sizeof name);
    assert_int_equal(list.ids[13], AT(8));
    list.n = 0;
    /* a name that crosses an edge is none; what is USER_DEFINED is found in spans, too */
    struct tw_text_span two[] = {{0, 1}, {22, 6}};
    flags |= TW_ENCODE_USER_DEFINED;
    assert_int_equal(tw_tokenizer_encode_spans(o.tokenizer, text, 28, two, 2, flags, &list, &err),
                     0);
    assert_int_equal(list.ids[0], '<');
    assert_int_equal(list.ids[1], '|');
    assert_int_equal(list.ids[list.n - 1], AT(8));
    assert_int_equal(list.ids[list.n - 3], AT(7));
    list.n = 0;
    /* words go on across the edges of spans */
    struct tw_text_span middle = {1, 1};
    assert_int_equal(
        tw_tokenizer_encode_spans(o.tokenizer, "ll", 2, &middle, 1, flags, &list, &err), 0);
    assert_int_equal(list.n, 1);
    assert_int_equal(list.ids[0], AT(2));
    tw_token_list_finish(&list);
    close_it(&o);
}

static void spans_out_of_order_are_refused(void **state) {
    (void)state;
    struct opened o = open_spec(&byte_level);
    struct tw_token_list list = {.n = 0};
    static const struct tw_text_span bad[][2] = {{{2, 1}, {0, 1}},
                                                 {{0, 2}, {1, 1}},
                                                 {{0, 1}, {3, 2}},
                                                 {{0, 1}, {5, 0}},
                                                 {{0, SIZE_MAX}, {0, 0}}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tw_error err = {0};
        assert_int_equal(
            tw_tokenizer_encode_spans(o.tokenizer, "abcd", 4, bad[i], 2, 0, &list, &err),
            TW_E_RANGE);
        assert_non_null(strstr(err.message, "span"));
    }
    close_it(&o);
}

static void special_pieces_take_white_space_with_them_where_marked(void **state) {
    (void)state;
    struct opened o = open_spec(&byte_level);
    unsigned flags = TW_ENCODE_NO_BOS | TW_ENCODE_SPECIAL;
    EXPECT(&o, "<|user|> \n l", flags, AT(9), 'l');
    EXPECT(&o, "l\t <|mask|> l", flags, 'l', AT(10), ' ', 'l');
    EXPECT(&o, " <|mask|>", flags, AT(10));
    EXPECT(&o, "<|bos|> l", flags, AT(6), ' ', 'l');
    close_it(&o);
}

static void tokens_that_end_a_turn_are_control_tokens(void **state) {
    (void)state;
    struct opened o = open_spec(&byte_level);
    assert_true(tw_tokenizer_is_control(o.tokenizer, AT(7))); /* by its name */
    assert_true(tw_tokenizer_is_end(o.tokenizer, AT(7)));
    assert_false(tw_tokenizer_is_control(o.tokenizer, AT(8)));
    assert_false(tw_tokenizer_is_control(o.tokenizer, UINT32_MAX));
    assert_false(tw_tokenizer_is_end(o.tokenizer, AT(6)));
    close_it(&o);
}

static void an_unknown_pre_tokenizer_is_refused_by_name(void **state) {
    (void)state;
    struct made_spec spec = byte_level;
    struct made_vocab made;
    struct tw_tokenizer *tokenizer;
    tw_error err = {0};
    spec.pre = "gpt-9";
    assert_int_equal(made_vocab(&spec, &made, &err), 0);
    assert_int_equal(tw_tokenizer_create(&made.vocab, &tokenizer, &err), TW_E_UNSUPPORTED);
    assert_null(tokenizer);
    assert_non_null(strstr(err.message, "\"gpt-9\" is not known; those known are"));
    tw_import_free(&made.memory);
}

/* ---- merges of characters ---- */

static void characters_are_merged_by_rank_and_others_become_bytes(void **state) {
    (void)state;
    static const struct made_piece pieces[] = {
        {SPACE, 0, TW_TOKEN_NORMAL},     {"a", 0, TW_TOKEN_NORMAL},
        {"b", 0, TW_TOKEN_NORMAL},       {"ab", 0, TW_TOKEN_NORMAL},
        {SPACE "a", 0, TW_TOKEN_NORMAL}, {SPACE "ab", 0, TW_TOKEN_NORMAL}};
    static const struct made_merge pairs[] = {{SPACE, "a"}, {"a", "b"}, {SPACE "a", "b"}};
    struct made_spec spec = {.kind = TW_VOCAB_MERGE_BPE,
                             .pieces = pieces,
                             .n_pieces = 6,
                             .merges = pairs,
                             .n_merges = 3,
                             .bytes = true};
    struct opened o = open_spec(&spec);
    EXPECT(&o, "ab ab", 0, AT(3), AT(5));
    EXPECT(&o, " b", 0, AT(0), AT(2));
    EXPECT(&o, "a\xC3\xA9", 0, AT(1), 0xC3, 0xA9);
    close_it(&o);
}

/* ---- blanks ---- */

static void flags_say_what_becomes_of_blanks(void **state) {
    (void)state;
    static const struct made_piece escaped[] = {{SPACE, -1, TW_TOKEN_NORMAL},
                                                {"a", -1, TW_TOKEN_NORMAL}};
    static const struct made_piece plain[] = {{" ", -1, TW_TOKEN_NORMAL},
                                              {"a", -1, TW_TOKEN_NORMAL}};
    static const struct {
        uint32_t flags;
        const char *text;
        uint32_t n, ids[8];
    } cases[] = {
        {0, " a  a ", 6, {0, 1, 0, 0, 1, 0}},
        {TW_VOCAB_SQUEEZE, " a  a ", 3, {1, 0, 1}},
        {TW_VOCAB_SQUEEZE | TW_VOCAB_SPACE_PREFIX, "  a ", 2, {0, 1}},
        {TW_VOCAB_SQUEEZE | TW_VOCAB_SPACE_PREFIX, "  ", 0, {0}},
        {TW_VOCAB_SPACE_PREFIX, "a", 2, {0, 1}},
        {TW_VOCAB_SPACE_PREFIX, " a", 3, {0, 0, 1}},
        {TW_VOCAB_SPACE_PREFIX | TW_VOCAB_PREFIX_IF_NONE, " a", 2, {0, 1}},
        {TW_VOCAB_SPACE_PREFIX | TW_VOCAB_PREFIX_IF_NONE, SPACE "a", 2, {0, 1}},
        {TW_VOCAB_SPACE_PREFIX | TW_VOCAB_PREFIX_IF_NONE, "a a", 4, {0, 1, 0, 1}},
        {TW_VOCAB_SQUEEZE | TW_VOCAB_SPACE_PREFIX | TW_VOCAB_PREFIX_IF_NONE, " a", 2, {0, 1}},
        {TW_VOCAB_SPACE_PREFIX | TW_VOCAB_SPACE_SUFFIX, "a", 2, {1, 0}},
        {TW_VOCAB_PLAIN_SPACES, "a a", 3, {1, 0, 1}},
        {TW_VOCAB_PLAIN_SPACES | TW_VOCAB_SPACE_PREFIX, "a", 2, {0, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (unsigned kind = 0; kind < 2; kind++) {
            struct made_spec spec = {.kind = kind ? TW_VOCAB_SPM_BPE : TW_VOCAB_UNIGRAM,
                                     .pieces =
                                         cases[i].flags & TW_VOCAB_PLAIN_SPACES ? plain : escaped,
                                     .n_pieces = 2,
                                     .flags = cases[i].flags};
            struct opened o = open_spec(&spec);
            expect_ids(&o, cases[i].text, strlen(cases[i].text), 0, cases[i].ids, cases[i].n);
            close_it(&o);
        }
    }
}

static void a_prefix_is_put_after_special_pieces_or_only_at_the_start(void **state) {
    (void)state;
    static const struct made_piece pieces[] = {
        {SPACE, -1, TW_TOKEN_NORMAL}, {"a", -1, TW_TOKEN_NORMAL}, {"<s>", 0, TW_TOKEN_CONTROL}};
    struct made_spec spec = {
        .kind = TW_VOCAB_SPM_BPE, .pieces = pieces, .n_pieces = 3, .flags = TW_VOCAB_SPACE_PREFIX};
    struct opened o = open_spec(&spec);
    EXPECT(&o, "a<s>a", TW_ENCODE_SPECIAL, 0, 1, 2, 0, 1);
    close_it(&o);
    spec.flags |= TW_VOCAB_PREFIX_AT_START;
    o = open_spec(&spec);
    EXPECT(&o, "a<s>a", TW_ENCODE_SPECIAL, 0, 1, 2, 1);
    EXPECT(&o, "<s>a", TW_ENCODE_SPECIAL, 2, 1);
    EXPECT(&o, " a", TW_ENCODE_SPECIAL, 0, 0, 1);
    close_it(&o);
}

/* SentencePiece's USER_DEFINED pieces may be runs of blanks, which plain text becomes. */
static void user_defined_runs_of_blanks_are_merged(void **state) {
    (void)state;
    static const struct made_piece pieces[] = {{SPACE, -9, TW_TOKEN_NORMAL},
                                               {SPACE SPACE, 0, TW_TOKEN_USER_DEFINED},
                                               {"a", -1, TW_TOKEN_NORMAL},
                                               {SPACE "a", -2, TW_TOKEN_NORMAL}};
    struct made_spec spec = {.kind = TW_VOCAB_SPM_BPE, .pieces = pieces, .n_pieces = 4};
    struct opened o = open_spec(&spec);
    EXPECT(&o, "  a", 0, 1, 2);
    EXPECT(&o, "   a", 0, 1, 3);
    EXPECT(&o, "a a", 0, 2, 3);
    close_it(&o);
}

/* ---- unigram ---- */

static const struct made_piece grams[] = {
    {"<unk>", 0, TW_TOKEN_UNKNOWN},   {"a", -3, TW_TOKEN_NORMAL},
    {"b", -3, TW_TOKEN_NORMAL},       {"ab", -4, TW_TOKEN_NORMAL},
    {"aba", -4.5f, TW_TOKEN_NORMAL},  {"bab", -8, TW_TOKEN_NORMAL},
    {SPACE "a", -2, TW_TOKEN_NORMAL}, {"<x>", 0, TW_TOKEN_USER_DEFINED}};

static void the_best_sum_of_scores_wins(void **state) {
    (void)state;
    struct made_spec spec = {.kind = TW_VOCAB_UNIGRAM,
                             .pieces = grams,
                             .n_pieces = 8,
                             .has_unk = true,
                             .flags = TW_VOCAB_SPACE_PREFIX};
    struct opened o = open_spec(&spec);
    EXPECT(&o, "ab", 0, 6, 2);
    EXPECT(&o, "abab", 0, 6, 2, 3);
    EXPECT(&o, "acca", 0, 6, 0, 1); /* one unknown token for a run */
    EXPECT(&o, "\xE6\xBC\xA2", 0, 0);
    EXPECT(&o, "a<x>a", TW_ENCODE_USER_DEFINED, 6, 7, 6);
    close_it(&o);
}

/* The best score of any split, by trying all. */
static double best_of(const struct made_piece *pieces, uint32_t n, const char *text) {
    double best = *text ? -INFINITY : 0.0;
    for (uint32_t i = 0; i < n; i++) {
        size_t length = strlen(pieces[i].text);
        if (*text && strncmp(text, pieces[i].text, length) == 0) {
            double score = (double)pieces[i].score + best_of(pieces, n, text + length);
            best = score > best ? score : best;
        }
    }
    return best;
}

static void random_texts_get_the_best_score_of_all_splits(void **state) {
    (void)state;
    uint32_t random = 99;
    for (int round = 0; round < 30; round++) {
        char texts[20][8];
        struct made_piece pieces[20];
        uint32_t n = 0;
        for (; n < 20; n++) {
            uint32_t length = n < 2 ? 1 : 2 + next_random(&random) % 4;
            for (uint32_t i = 0; i < length; i++) {
                texts[n][i] = (char)('x' + (n < 2 ? n : next_random(&random) % 2));
            }
            texts[n][length] = 0;
            pieces[n] = (struct made_piece){texts[n], -(float)(1 + next_random(&random) % 100),
                                            TW_TOKEN_NORMAL};
            for (uint32_t i = 0; i < n; i++) { /* equal pieces get equal scores */
                pieces[n].score = strcmp(texts[i], texts[n]) ? pieces[n].score : pieces[i].score;
            }
        }
        struct made_spec spec = {.kind = TW_VOCAB_UNIGRAM, .pieces = pieces, .n_pieces = n};
        struct opened o = open_spec(&spec);
        for (int i = 0; i < 10; i++) {
            char text[11] = {0}, back[16];
            struct tw_token_list list = {.n = 0};
            double score = 0.0;
            size_t length = next_random(&random) % 11, made;
            for (size_t at = 0; at < length; at++) {
                text[at] = (char)('x' + next_random(&random) % 2);
            }
            assert_int_equal(tw_tokenizer_encode(o.tokenizer, text, length, 0, &list, NULL), 0);
            for (size_t t = 0; t < list.n; t++) {
                score += (double)pieces[list.ids[t]].score;
            }
            assert_true(fabs(score - best_of(pieces, n, text)) < 1e-6);
            assert_int_equal(
                tw_tokenizer_decode(o.tokenizer, list.ids, list.n, 0, back, 16, &made, NULL), 0);
            assert_int_equal(made, length);
            assert_memory_equal(back, text, length);
            tw_token_list_finish(&list);
        }
        close_it(&o);
    }
}

/* ---- normalisations ---- */

struct hostile_map {
    uint32_t size, units[256];
    char texts[1024];
};

static struct opened open_map(const struct hostile_map *map) {
    struct made_spec spec = {.kind = TW_VOCAB_UNIGRAM,
                             .pieces = grams,
                             .n_pieces = 8,
                             .has_unk = true,
                             .charsmap = map,
                             .charsmap_bytes = sizeof *map};
    return open_spec(&spec);
}

/* Unit 64 has an offset of 'b', so that "bbb..." stays in it; and "a" is replaced by 'a's. */
static struct hostile_map map_of_b_and_a(uint32_t at) {
    struct hostile_map map = {.size = sizeof map.units};
    map.units[0] = ('b' ^ 64u) << 10;
    map.units[64] = (uint32_t)'b' << 10 | 'b';
    uint32_t a = 'b' ^ 64u ^ 'a';
    map.units[a] = (a ^ 200u) << 10 | 1u << 8 | 'a';
    map.units[200] = 1u << 31 | at;
    memset(map.texts, 'a', sizeof map.texts);
    return map;
}

static void hostile_tables_of_replacements_cost_little(void **state) {
    (void)state;
    enum { LONG = 1000000 };
    char *text = malloc(LONG);
    struct tw_token_list list = {.n = 0};
    tw_error err = {0};
    assert_non_null(text);
    memset(text, 'b', LONG);
    /* each "b" would be followed to the end of the text: 10^12 steps */
    struct hostile_map map = map_of_b_and_a(0);
    struct opened o = open_map(&map);
    assert_int_equal(tw_tokenizer_encode(o.tokenizer, text, LONG, 0, &list, &err), 0);
    assert_int_equal(list.n, LONG);
    /* replacements that have no end, or none soon, are none */
    EXPECT(&o, "ab", 0, 3);
    close_it(&o);
    map.texts[1000] = 0;
    o = open_map(&map);
    EXPECT(&o, "ab", 0, 3);
    close_it(&o);
    map.texts[3] = 0;
    o = open_map(&map);
    EXPECT(&o, "ab", 0, 1, 1, 3);
    close_it(&o);
    /* 200 bytes for each */
    map.texts[3] = 'a';
    map.texts[200] = 0;
    o = open_map(&map);
    memset(text, 'a', LONG);
    list.n = 0;
    assert_int_equal(tw_tokenizer_encode(o.tokenizer, text, LONG, 0, &list, &err), TW_E_RANGE);
    assert_non_null(strstr(err.message, "32 times as long"));
    assert_int_equal(list.n, 0);
    close_it(&o);
    tw_token_list_finish(&list);
    free(text);
}

/* A double array in Darts' form that has the one key "A" (65), whose value is the text at 2: unit 0
 * is the root with offset 64, so that "A" is unit 64 ^ 65 = 1, which has a leaf, with offset 2, so
 * that its value is unit 1 ^ 2 = 3. */
static void characters_are_replaced_by_the_models_table(void **state) {
    (void)state;
    uint32_t table[1 + 66] = {66 * 4};
    char map[sizeof table + 6];
    table[1 + 0] = 64u << 10;
    table[1 + 1] = 2u << 10 | 1u << 8 | 'A';
    table[1 + 3] = 1u << 31 | 2;
    memcpy(map, table, sizeof table);
    memcpy(map + sizeof table, "q\0ab\0", 6);
    struct made_spec spec = {.kind = TW_VOCAB_UNIGRAM,
                             .pieces = grams,
                             .n_pieces = 8,
                             .has_unk = true,
                             .charsmap = map,
                             .charsmap_bytes = sizeof map};
    struct opened o = open_spec(&spec);
    EXPECT(&o, "A", 0, 3);
    EXPECT(&o, "bAaB", 0, 2, 4, 0);
    expect_ids(&o, "", 0, 0, NULL, 0);
    close_it(&o);
    /* tables that point outside of themselves change nothing */
    for (size_t cut = 0; cut < sizeof map; cut++) {
        memset(map + cut, 0xFF, sizeof map - cut);
        o = open_spec(&spec);
        struct tw_token_list list = {.n = 0};
        assert_int_equal(tw_tokenizer_encode(o.tokenizer, "AAbA", 4, 0, &list, NULL), 0);
        assert_true(list.n > 0);
        tw_token_list_finish(&list);
        close_it(&o);
        memcpy(map, table, sizeof table);
        memcpy(map + sizeof table, "q\0ab\0", 6);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_rank_merges_first),
        cmocka_unit_test(merges_never_make_special_tokens),
        cmocka_unit_test(a_word_is_never_merged_with_the_next),
        cmocka_unit_test(pieces_of_bytes_read_as_themselves),
        cmocka_unit_test(random_merges_agree_with_a_plain_search),
        cmocka_unit_test(users_text_in_a_template_is_not_parsed),
        cmocka_unit_test(spans_out_of_order_are_refused),
        cmocka_unit_test(special_pieces_take_white_space_with_them_where_marked),
        cmocka_unit_test(tokens_that_end_a_turn_are_control_tokens),
        cmocka_unit_test(an_unknown_pre_tokenizer_is_refused_by_name),
        cmocka_unit_test(characters_are_merged_by_rank_and_others_become_bytes),
        cmocka_unit_test(flags_say_what_becomes_of_blanks),
        cmocka_unit_test(a_prefix_is_put_after_special_pieces_or_only_at_the_start),
        cmocka_unit_test(user_defined_runs_of_blanks_are_merged),
        cmocka_unit_test(the_best_sum_of_scores_wins),
        cmocka_unit_test(random_texts_get_the_best_score_of_all_splits),
        cmocka_unit_test(hostile_tables_of_replacements_cost_little),
        cmocka_unit_test(characters_are_replaced_by_the_models_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
