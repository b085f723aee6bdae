/* SPDX-License-Identifier: Apache-2.0
 *
 * Metadata of 250,000 tokens, as the largest vocabularies have: read, imported and made into a
 * tokenizer, of both kinds. The time is printed (the goal is 200 ms for the metadata), not checked.
 */
#include "compiler/import/import.h"
#include "driver/tokenizer/tokenizer.h"
#include "loader/bundle/vocab_open.h"
#include "tests/support/big_vocab.h"
#include "tests/support/test.h"

#include <time.h>

enum { TOKENS = 250000 };

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void expect_ids(const struct tw_tokenizer *t, const char *text, const uint32_t *ids,
                       size_t n) {
    struct tw_token_list list = {.n = 0};
    assert_int_equal(tw_tokenizer_encode(t, text, strlen(text), TW_ENCODE_NO_BOS, &list, NULL), 0);
    assert_int_equal(list.n, n);
    assert_memory_equal(list.ids, ids, n * sizeof *ids);
    tw_token_list_finish(&list);
}

static void check(int byte_level, const char *text, const uint32_t *ids, size_t n) {
    struct tw_import_memory memory = {0};
    struct tw_gguf gguf;
    struct tw_model model = {.h = {.n_vocab = TOKENS}};
    struct tw_vocab vocab;
    struct tw_tokenizer *tokenizer;
    tw_error err = {0};
    size_t size;
    uint8_t *file = big_vocab_gguf(TOKENS, byte_level, &size);
    assert_non_null(file);
    double start = cpu_s();
    assert_int_equal(tw_gguf_parse("big", file, size, &memory, &gguf, &err), 0);
    if (tw_import_gguf_vocab(&gguf, &memory, &model, &err) != 0) {
        fail_msg("%s", err.message);
    }
    print_message("%d tokens, %s: metadata read in %.0f ms of CPU\n", TOKENS,
                  byte_level ? "byte-level, as many merges" : "SentencePiece",
                  1e3 * (cpu_s() - start));
    assert_int_equal(tw_vocab_open(model.vocab, model.vocab_bytes, &vocab, &err), 0);
    assert_int_equal(vocab.header.n_tokens, TOKENS);
    assert_int_equal(vocab.extra.n_merges, byte_level ? TOKENS - 256 : 0);
    assert_int_equal(tw_tokenizer_create(&vocab, &tokenizer, &err), 0);
    expect_ids(tokenizer, text, ids, n);
    tw_tokenizer_destroy(tokenizer);
    tw_import_free(&memory);
    free(file);
}

/* aa is token 256, ab 257, aaa 256 + 26^2, and aaab the second of four letters. */
static void a_byte_level_vocabulary_of_250000_tokens_is_read(void **state) {
    (void)state;
    static const uint32_t ids[] = {256, 932, '_', 257};
    check(1, "aaaaa_ab", ids, 4);
}

static void a_sentencepiece_vocabulary_of_250000_tokens_is_read(void **state) {
    (void)state;
    static const uint32_t ids[] = {0, 256 + 676 + 17576 + 1};
    check(0, "aaab", ids, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_byte_level_vocabulary_of_250000_tokens_is_read),
        cmocka_unit_test(a_sentencepiece_vocabulary_of_250000_tokens_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
