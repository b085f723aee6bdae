/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the tokenizer on real vocabularies, against ids that llama.cpp and Google's
 * sentencepiece gave.
 */
#include "tests/driver/tokenizer/tokenizer_kit.h"

#include <jansson.h>

#define SHIPPED_MODEL "tests/data/fairytale-1.7m-Q8_0.gguf"
#define SHIPPED_GOLDEN "tests/data/fairytale-1.7m.golden.json"

#define STORIES "models/stories260K.gguf"
#define STORIES_BIN "models/stories260K.bin"
#define TINY "models/tinystories656K/TinyStories-656K.f16.gguf"
#define LLAMA "gguf_vocab/ggml-vocab-llama-spm.gguf"
#define PHI3 "gguf_vocab/ggml-vocab-phi-3.gguf"

static json_t *load_json(const char *path) {
    json_error_t error;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (root == NULL) {
        print_error("%s:%d: %s\n", path, error.line, error.text);
    }
    assert_non_null(root);
    return root;
}

static void expect_json_ids(const struct real *real, const char *text, size_t n, unsigned flags,
                            const json_t *ids) {
    struct tw_token_list list = encode(real, text, n, flags);
    bool same = list.n == json_array_size(ids);
    for (size_t i = 0; same && i < list.n; i++) {
        same = list.ids[i] == json_integer_value(json_array_get(ids, i));
    }
    if (!same) {
        print_error("text: '%.*s'\n", (int)n, text);
    }
    assert_true(same);
    tw_token_list_finish(&list);
}

/* Each run's prompt; and its text, which is what its generated ids read as. */
static size_t expect_runs(const struct real *real, const json_t *runs, const char *ids_key) {
    size_t index;
    const json_t *run;
    json_array_foreach(runs, index, run) {
        const json_t *prompt = json_object_get(run, "prompt");
        expect_json_ids(real, json_string_value(prompt), json_string_length(prompt), 0,
                        json_object_get(run, ids_key));
    }
    return json_array_size(runs);
}

static void expect_texts(const struct real *real, const json_t *runs) {
    size_t index;
    const json_t *run;
    json_array_foreach(runs, index, run) {
        const json_t *ids = json_object_get(run, "ids"), *text = json_object_get(run, "text");
        uint32_t copy[512];
        char out[8192];
        size_t n, count = json_array_size(ids);
        assert_in_range(count, 1, 512);
        for (size_t i = 0; i < count; i++) {
            copy[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
        }
        assert_int_equal(
            tw_tokenizer_decode(real->tokenizer, copy, count, 0, out, sizeof out, &n, NULL), 0);
        assert_int_equal(n, json_string_length(text));
        assert_memory_equal(out, json_string_value(text), n);
    }
}

static void the_shipped_model_gives_its_golden_ids(void **state) {
    (void)state;
    struct real real = open_real(SHIPPED_MODEL);
    json_t *golden = load_json(SHIPPED_GOLDEN);
    assert_int_equal(expect_runs(&real, json_object_get(golden, "prompts"), "ids"), 11);
    json_decref(golden);
    close_real(&real);
}

static void prompts_give_the_golden_ids_and_ids_the_golden_texts(void **state) {
    (void)state;
    static const struct {
        const char *golden, *model;
    } cases[] = {
        {"models/golden/stories260K.json", STORIES},
        {"models/golden/stories260K.json", STORIES_BIN},
        {"models/golden/TinyStories-656K.f16.json", TINY},
        {"models/golden/TinyStories-656K-Q8_0.json",
         "models/tinystories656K/TinyStories-656K-Q8_0.gguf"},
        {"models/golden/ts656k-BF16.json", "models/tinystories656K/derived/ts656k-BF16.gguf"},
        {"models/golden/ts656k-IQ4_NL.json", "models/tinystories656K/derived/ts656k-IQ4_NL.gguf"},
        {"models/golden/ts656k-Q4_0.json", "models/tinystories656K/derived/ts656k-Q4_0.gguf"},
        {"models/golden/ts656k-Q4_1.json", "models/tinystories656K/derived/ts656k-Q4_1.gguf"},
        {"models/golden/ts656k-Q4_K_M.json", "models/tinystories656K/derived/ts656k-Q4_K_M.gguf"},
        {"models/golden/ts656k-Q5_0.json", "models/tinystories656K/derived/ts656k-Q5_0.gguf"},
        {"models/golden/ts656k-Q6_K.json", "models/tinystories656K/derived/ts656k-Q6_K.gguf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct real real = open_real(shared(cases[i].model));
        json_t *golden = load_json(shared(cases[i].golden));
        const json_t *runs = json_object_get(golden, "runs");
        assert_in_range(expect_runs(&real, runs, "prompt_ids"), 4, 5);
        expect_texts(&real, runs);
        json_decref(golden);
        close_real(&real);
    }
}

static void flags_of_the_vocabulary_change_the_ids_as_in_llama_cpp(void **state) {
    (void)state;
    static const struct {
        const char *name;
        long flags;
    } cases[] = {
        {"add_bos_false", TW_VOCAB_SPACE_PREFIX},
        {"add_eos_true", TW_VOCAB_ADD_BOS | TW_VOCAB_ADD_EOS | TW_VOCAB_SPACE_PREFIX},
        {"add_space_prefix_false", TW_VOCAB_ADD_BOS},
    };
    json_t *golden = load_json(shared("variants/golden.json"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct real real = open_with_flags(shared(STORIES), cases[i].flags);
        const json_t *variant = json_object_get(json_object_get(golden, "gguf"), cases[i].name);
        assert_int_equal(expect_runs(&real, json_object_get(variant, "runs"), "prompt_ids"), 2);
        close_real(&real);
    }
    json_decref(golden);
}

/* Removes the spaces that tok512's own normaliser removes, which neither .bin nor GGUF carries. */
static size_t collapse_spaces(const char *text, size_t n, char *out) {
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != ' ' || (length > 0 && out[length - 1] != ' ')) {
            out[length++] = text[i];
        }
    }
    while (length > 0 && out[length - 1] == ' ') {
        length--;
    }
    return length;
}

static void expect_vectors(const char *model, const char *vectors, bool squeeze) {
    struct real real = open_real(shared(model));
    json_t *all = load_json(shared("tokenizers/spm_vectors.json"));
    const json_t *list = json_object_get(all, vectors), *vector;
    size_t index;
    assert_int_equal(json_array_size(list), 81);
    json_array_foreach(list, index, vector) {
        const json_t *text = json_object_get(vector, "text");
        char squeezed[4096];
        size_t n = json_string_length(text);
        const char *bytes = json_string_value(text);
        assert_true(n < sizeof squeezed);
        if (squeeze) {
            n = collapse_spaces(bytes, n, squeezed);
            bytes = squeezed;
        }
        expect_json_ids(&real, bytes, n, TW_ENCODE_NO_BOS, json_object_get(vector, "ids"));
    }
    json_decref(all);
    close_real(&real);
}

static void odd_lines_give_the_ids_of_sentencepiece(void **state) {
    (void)state;
    expect_vectors(STORIES, "tok512", true);
    expect_vectors(STORIES_BIN, "tok512", true);
    expect_vectors(LLAMA, "llama2", false);
}

/* ---- llama.cpp's vocabulary tests: texts between separators, a line of ids for each ---- */

static void the_vocabulary_tests_of_llama_cpp_pass(void **state) {
    (void)state;
    static const char *const models[] = {LLAMA, PHI3};
    for (size_t m = 0; m < 2; m++) {
        struct real real = open_real(shared(models[m]));
        expect_inp_out(&real, models[m]);
        close_real(&real);
    }
}

/* ---- reports of users ---- */

static void a_character_beyond_a_vocabulary_without_bytes_is_one_unknown_token(void **state) {
    (void)state;
    struct real real = open_real(shared(TINY));
    struct tw_token_list list = encode(&real, "Caf\xC3\xA9", 5, 0);
    assert_true(list.n > 2);
    assert_int_equal(list.ids[0], 1);
    for (size_t i = 1; i < list.n; i++) {
        assert_true((list.ids[i] == 0) == (i == list.n - 1));
    }
    tw_token_list_finish(&list);
    close_real(&real);
}

static void special_looking_text_stays_plain(void **state) {
    (void)state;
    static const char *models[] = {LLAMA, PHI3, STORIES};
    for (size_t m = 0; m < 3; m++) {
        struct real real = open_real(shared(models[m]));
        struct tw_token_list plain = encode(&real, "</s><s>[INST]", 13, TW_ENCODE_NO_BOS);
        for (size_t i = 0; i < plain.n; i++) {
            assert_true(plain.ids[i] > 2);
        }
        struct tw_token_list parsed =
            encode(&real, "</s><s>[INST]", 13, TW_ENCODE_NO_BOS | TW_ENCODE_SPECIAL);
        assert_int_equal(parsed.ids[0], 2);
        assert_int_equal(parsed.ids[1], 1);
        tw_token_list_finish(&plain);
        tw_token_list_finish(&parsed);
        close_real(&real);
    }
}

static void the_text_of_every_id_survives_a_round_trip(void **state) {
    (void)state;
    static const char *models[] = {STORIES, STORIES_BIN, TINY,
                                   LLAMA,   PHI3,        "gguf_vocab/ggml-vocab-baichuan.gguf"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct real real = open_real(shared(models[m]));
        uint32_t n_tokens = real.tokenizer->vocab.header.n_tokens;
        for (uint32_t id = 0; id < n_tokens; id++) {
            const char *text;
            size_t n;
            assert_int_equal(tw_tokenizer_piece(real.tokenizer, id, 0, &text, &n, NULL), 0);
            expect_round_trip(&real, text, n, 0);
        }
        close_real(&real);
    }
}

static void a_long_text_survives_and_costs_n_log_n(void **state) {
    (void)state;
    enum { COPIES = 16 };
    size_t n;
    struct real real = open_real(shared(LLAMA));
    char *once = load_text(shared("tokenizers/war-and-peace.64k.txt"), &n);
    char *text = malloc(n * COPIES);
    assert_non_null(text);
    for (size_t i = 0; i < COPIES; i++) {
        memcpy(text + i * n, once, n);
    }
    expect_round_trip(&real, text, n * COPIES, 0);
    struct tw_token_list one = encode(&real, text, n, 0), all = encode(&real, text, n * COPIES, 0);
    assert_true(all.work < 2 * COPIES * one.work);
    assert_true(all.work < 64 * COPIES * n);
    tw_token_list_finish(&one);
    tw_token_list_finish(&all);
    free(once);
    free(text);
    close_real(&real);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shipped_model_gives_its_golden_ids),
        cmocka_unit_test(prompts_give_the_golden_ids_and_ids_the_golden_texts),
        cmocka_unit_test(flags_of_the_vocabulary_change_the_ids_as_in_llama_cpp),
        cmocka_unit_test(odd_lines_give_the_ids_of_sentencepiece),
        cmocka_unit_test(the_vocabulary_tests_of_llama_cpp_pass),
        cmocka_unit_test(a_character_beyond_a_vocabulary_without_bytes_is_one_unknown_token),
        cmocka_unit_test(special_looking_text_stays_plain),
        cmocka_unit_test(the_text_of_every_id_survives_a_round_trip),
        cmocka_unit_test(a_long_text_survives_and_costs_n_log_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
