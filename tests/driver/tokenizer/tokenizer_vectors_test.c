/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of byte-level BPE on real vocabularies: llama.cpp's vectors, round trips of any bytes, and
 * the cost of long texts.
 */
#include "tests/driver/tokenizer/tokenizer_kit.h"

#define VOCAB "gguf_vocab/ggml-vocab-"
#define LARGE "gguf_vocab/large_gz/ggml-vocab-"
#define GPT2 VOCAB "gpt-2.gguf"

static struct real open_model(const char *name) {
    char path[128];
    snprintf(path, sizeof path, VOCAB "%s.gguf", name);
    if (access(shared(path), R_OK) == 0) {
        return open_real(shared(path));
    }
    snprintf(path, sizeof path, LARGE "%s.gguf.gz", name);
    return open_compressed(shared(path));
}

static uint32_t next_random(uint32_t *random) {
    *random = *random * 1664525u + 1013904223u;
    return *random >> 16;
}

/* Writes a random character of 1 to 4 bytes and returns its length; sometimes white space. */
static size_t random_character(uint32_t *random, char *out) {
    static const uint32_t limit[] = {0x80, 0x800, 0xD800, 0x10000, 0x110000};
    uint32_t kind = next_random(random) % 6;
    uint32_t c = kind < 5 ? (next_random(random) << 8 ^ next_random(random)) % limit[kind]
                          : (uint8_t) " \n\t\r "[next_random(random) % 5];
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    c = c >= 0xD800 && c < 0xE000 ? 0x20AC : c;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) {
        out[i] = (char)(0x80 | (c & 0x3F));
    }
    out[0] = (char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

static bool has_all(const struct real *real, unsigned first, unsigned last) {
    bool all = true;
    for (unsigned byte = first; byte <= last; byte++) {
        all = all && real->tokenizer->byte_ids[byte] != TW_NONE;
    }
    return all;
}

/* Random characters, and random bytes, as far as there are tokens for them. */
static void expect_any_text_survives(const struct real *real, uint32_t seed) {
    bool all_bytes = has_all(real, 0, 255);
    if (!has_all(real, 0, 0xBF) || !has_all(real, 0xC2, 0xF4)) {
        return;
    }
    char text[300];
    for (uint32_t round = 0; round < 200; round++) {
        size_t n = 0, wanted = next_random(&seed) % 256;
        while (n < wanted) {
            if (round % 2 || !all_bytes) {
                n += random_character(&seed, text + n);
            } else {
                text[n++] = (char)next_random(&seed);
            }
        }
        expect_round_trip(real, text, n, TW_ENCODE_NO_BOS | TW_ENCODE_USER_DEFINED);
        expect_round_trip(real, text, n, TW_ENCODE_NO_BOS);
    }
}

static void expect_linear(const struct real *real, const char *text, size_t n) {
    enum { COPIES = 4 };
    char *many = malloc(n * COPIES);
    assert_non_null(many);
    for (size_t i = 0; i < COPIES; i++) {
        memcpy(many + i * n, text, n);
    }
    struct tw_token_list one = encode(real, text, n, 0), all = encode(real, many, n * COPIES, 0);
    assert_true(all.work < 2 * COPIES * one.work);
    assert_true(all.work < 16 * COPIES * n);
    tw_token_list_finish(&one);
    tw_token_list_finish(&all);
    free(many);
}

static void expect_model(const char *name) {
    char model[128];
    size_t n;
    struct real real = open_model(name);
    snprintf(model, sizeof model, VOCAB "%s.gguf", name);
    expect_inp_out(&real, model);
    expect_any_text_survives(&real, 1);
    char *text = load_text(shared("tokenizers/war-and-peace.64k.txt"), &n);
    expect_round_trip(&real, text, n, TW_ENCODE_NO_BOS | TW_ENCODE_USER_DEFINED);
    expect_linear(&real, text, n);
    free(text);
    close_real(&real);
}

static void gpt_2_gives_the_ids_of_llama_cpp(void **state) {
    (void)state;
    expect_model("gpt-2");
}
static void mpt_gives_the_ids_of_llama_cpp(void **state) {
    (void)state;
    expect_model("mpt");
}
static void starcoder_gives_the_ids_of_llama_cpp(void **state) {
    (void)state;
    expect_model("starcoder");
}
static void deepseek_llm_gives_the_ids_of_llama_cpp(void **state) {
    (void)state;
    expect_model("deepseek-llm");
}
static void llama_3_gives_the_ids_of_llama_cpp(void **state) {
    (void)state;
    expect_model("llama-bpe");
}
static void qwen_2_gives_the_ids_of_llama_cpp(void **state) {
    (void)state;
    expect_model("qwen2");
}
static void qwen_3_5_gives_the_ids_of_llama_cpp(void **state) {
    (void)state;
    expect_model("qwen35");
}

/* One word of n bytes, whether it merges much ("e", " ") or not at all. */
static void a_long_word_costs_n_log_n(void **state) {
    (void)state;
    enum { N = 100000 };
    struct real real = open_real(shared(GPT2));
    char *text = malloc(N);
    assert_non_null(text);
    for (const char *c = "eA =\n1\x01\xC3"; *c; c++) {
        memset(text, *c, N);
        struct tw_token_list list = encode(&real, text, N, 0);
        assert_true(list.work < UINT64_C(6) * N * 17);
        tw_token_list_finish(&list);
    }
    free(text);
    close_real(&real);
}

/* The names of special tokens in a text are text, unless parsed. */
static void special_looking_text_stays_plain(void **state) {
    (void)state;
    static const char text[] = "<|endoftext|>";
    struct real real = open_real(shared(GPT2));
    struct tw_token_list plain = encode(&real, text, 13, TW_ENCODE_USER_DEFINED);
    struct tw_token_list parsed = encode(&real, text, 13, TW_ENCODE_SPECIAL);
    assert_int_equal(plain.n, 7);
    assert_int_equal(plain.ids[0], 27);
    assert_int_equal(parsed.n, 1);
    assert_int_equal(parsed.ids[0], 50256);
    assert_true(tw_tokenizer_is_end(real.tokenizer, 50256));
    tw_token_list_finish(&plain);
    tw_token_list_finish(&parsed);
    close_real(&real);
}

/* Vocabularies without tokens for bytes that UTF-8 cannot have, or seldom has (0xF1). */
static void a_character_without_tokens_becomes_the_replacement_character(void **state) {
    (void)state;
    static const char *const names[] = {"deepseek-llm", "starcoder"};
    for (size_t i = 0; i < 2; i++) {
        struct real real = open_model(names[i]);
        struct tw_token_list odd = encode(&real,
                                          "a\xFF"
                                          "b",
                                          3, TW_ENCODE_NO_BOS);
        struct tw_token_list even = encode(&real,
                                           "a\xEF\xBF\xBD"
                                           "b",
                                           5, TW_ENCODE_NO_BOS);
        assert_int_equal(odd.n, even.n);
        assert_memory_equal(odd.ids, even.ids, odd.n * sizeof *odd.ids);
        tw_token_list_finish(&odd);
        if (i == 1) {
            odd = encode(&real,
                         "a\xF1\x80\x80\x80"
                         "b",
                         6, TW_ENCODE_NO_BOS);
            assert_int_equal(odd.n, even.n);
            assert_memory_equal(odd.ids, even.ids, odd.n * sizeof *odd.ids);
            tw_token_list_finish(&odd);
        }
        tw_token_list_finish(&even);
        close_real(&real);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt_2_gives_the_ids_of_llama_cpp),
        cmocka_unit_test(mpt_gives_the_ids_of_llama_cpp),
        cmocka_unit_test(starcoder_gives_the_ids_of_llama_cpp),
        cmocka_unit_test(deepseek_llm_gives_the_ids_of_llama_cpp),
        cmocka_unit_test(llama_3_gives_the_ids_of_llama_cpp),
        cmocka_unit_test(qwen_2_gives_the_ids_of_llama_cpp),
        cmocka_unit_test(qwen_3_5_gives_the_ids_of_llama_cpp),
        cmocka_unit_test(a_long_word_costs_n_log_n),
        cmocka_unit_test(special_looking_text_stays_plain),
        cmocka_unit_test(a_character_without_tokens_becomes_the_replacement_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
