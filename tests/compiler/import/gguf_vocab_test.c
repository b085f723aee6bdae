/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the vocabulary from a GGUF file's keys: the kit's nine tokens with one key
 * changed.
 */
#include "tests/compiler/import_kit_model.h"

static void the_vocabulary_is_imported(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    accept(&o, &k);
    const struct tw_vocab *v = &o.vocab;
    assert_int_equal(v->header.n_tokens, KIT_VOCAB);
    assert_int_equal(v->header.bos, 1);
    assert_int_equal(v->header.eos, 2);
    assert_int_equal(v->header.unk, 0);
    assert_int_equal(v->header.pad, TW_NONE);
    assert_int_equal(v->header.flags, TW_VOCAB_ADD_BOS | TW_VOCAB_SPACE_PREFIX);
    assert_int_equal(v->types[3], TW_TOKEN_BYTE);
    assert_int_equal(v->types[6], TW_TOKEN_USER_DEFINED);
    assert_true(v->scores[7] == -0.5f);
    assert_int_equal(v->offsets[8] - v->offsets[7], 2);
    assert_memory_equal(v->bytes + v->offsets[7], "ab", 2);
    assert_int_equal(v->offsets[9], v->offsets[8]); /* the empty piece */
    finish(&o, &k);
}

static void vocabulary_flags_follow_their_keys(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    kit_bool(&k, "tokenizer.ggml.add_bos_token", 0);
    kit_bool(&k, "tokenizer.ggml.add_eos_token", 1);
    kit_bool(&k, "tokenizer.ggml.add_space_prefix", 0);
    accept(&o, &k);
    assert_int_equal(o.vocab.header.flags, TW_VOCAB_ADD_EOS);
    finish(&o, &k);
}

/* Templates under other names are for tools and the like. */
static void the_template_without_a_name_counts(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    kit_string(&k, "tokenizer.chat_template.tool_use", "{{ tools }}");
    accept(&o, &k);
    assert_null(o.model.chat);
    finish(&o, &k);
    kit_llama(&k);
    kit_string(&k, "tokenizer.chat_template.tool_use", "{{ tools }}");
    kit_string(&k, "tokenizer.chat_template", "{{ messages }}");
    accept(&o, &k);
    assert_string_equal(o.model.chat, "{{ messages }}");
    finish(&o, &k);
}

static void absent_ids_are_none_and_are_never_added(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    kit_drop(&k, "tokenizer.ggml.bos_token_id");
    kit_u32(&k, "tokenizer.ggml.eos_token_id", UINT32_MAX);
    kit_int(&k, "tokenizer.ggml.padding_token_id", 5, -1);
    kit_u32(&k, "tokenizer.ggml.seperator_token_id", UINT32_MAX);
    kit_drop(&k, "tokenizer.ggml.unknown_token_id");
    kit_bool(&k, "tokenizer.ggml.add_eos_token", 1);
    accept(&o, &k);
    assert_int_equal(o.vocab.header.bos, TW_NONE);
    assert_int_equal(o.vocab.header.eos, TW_NONE);
    assert_int_equal(o.vocab.header.pad, TW_NONE);
    assert_int_equal(o.vocab.header.unk, 0); /* by its type */
    assert_int_equal(o.vocab.header.flags, TW_VOCAB_SPACE_PREFIX);
    finish(&o, &k);
}

/* The ids of end of turn and end of message end a text as eos does; an id that occurs twice is
 * stored once. */
static void every_key_of_an_end_counts(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    accept(&o, &k);
    assert_int_equal(o.vocab.extra.n_ends, 0);
    finish(&o, &k);
    kit_llama(&k);
    kit_u32(&k, "tokenizer.ggml.eot_token_id", 5);
    kit_u32(&k, "tokenizer.ggml.eom_token_id", 4);
    accept(&o, &k);
    assert_int_equal(o.vocab.extra.n_ends, 2);
    assert_int_equal(o.vocab.ends[0], 5);
    assert_int_equal(o.vocab.ends[1], 4);
    finish(&o, &k);
    kit_llama(&k);
    kit_u32(&k, "tokenizer.ggml.eot_token_id", 2); /* eos */
    kit_u32(&k, "tokenizer.ggml.eom_token_id", 7);
    kit_drop(&k, "tokenizer.ggml.token_type");
    accept(&o, &k);
    assert_int_equal(o.vocab.extra.n_ends, 1);
    assert_int_equal(o.vocab.ends[0], 7);
    assert_int_equal(o.vocab.types[7], TW_TOKEN_CONTROL);
    finish(&o, &k);
    kit_llama(&k);
    kit_u32(&k, "tokenizer.ggml.eot_token_id", UINT32_MAX);
    kit_u32(&k, "tokenizer.ggml.eom_token_id", KIT_VOCAB);
    expect_refused(&k, TW_E_RANGE, "key tokenizer.ggml.eom_token_id is 9, expected 0 to 8");
}

static void missing_token_types_are_derived(void **state) {
    (void)state;
    static const uint8_t expected[KIT_VOCAB] = {2, 3, 3, 6, 1, 1, 1, 1, 1};
    struct kit k;
    struct opened o;
    kit_llama(&k);
    kit_drop(&k, "tokenizer.ggml.token_type");
    accept(&o, &k);
    assert_memory_equal(o.vocab.types, expected, sizeof expected);
    finish(&o, &k);
}

static void expect_no_vocabulary(struct kit *k, const char *problem) {
    struct opened o;
    accept(&o, k);
    assert_null(o.model.vocab);
    assert_non_null(o.model.tokenizer_problem);
    if (!strstr(o.model.tokenizer_problem, problem)) {
        fail_msg("problem \"%s\" does not contain \"%s\"", o.model.tokenizer_problem, problem);
    }
    assert_true(strlen(o.model.tokenizer_problem) < 200); /* tw_model_info */
    finish(&o, k);
}

static void other_tokenizers_are_not_imported(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    kit_string(&k, "tokenizer.ggml.model", "rwkv");
    expect_no_vocabulary(&k, "key tokenizer.ggml.model is \"rwkv\", expected \"llama\"");
    kit_llama(&k);
    kit_string(&k, "tokenizer.ggml.model", "gpt2");
    expect_no_vocabulary(&k, "key tokenizer.ggml.pre is missing");
    kit_llama(&k);
    kit_string(&k, "tokenizer.ggml.model", "gpt2");
    kit_string(&k, "tokenizer.ggml.pre", "a-cutter-of-the-year-2030-and-later");
    expect_no_vocabulary(&k, "key tokenizer.ggml.pre is \"a-cutter-of-the-year-203\", expected "
                             "default gpt-2 llama-bpe");
    kit_llama(&k);
    kit_drop(&k, "tokenizer.ggml.model");
    accept(&o, &k);
    assert_null(o.model.vocab);
    assert_string_equal(o.model.tokenizer, "");
    finish(&o, &k);
}

/* The kit's model with a byte-level vocabulary: its ids are those of the array below. */
static void kit_byte_level(struct kit *k) {
    static const char *const pieces[KIT_VOCAB] = {"\xC4\xA0",
                                                  "a",
                                                  "b",
                                                  "\xC4\xA0"
                                                  "a",
                                                  "<|eot_id|>",
                                                  "\xC4\xA0"
                                                  "ab",
                                                  "<|x y|>",
                                                  "<|end|>",
                                                  "[PAD8]"};
    static const int32_t types[KIT_VOCAB] = {1, 1, 1, 1, 1, 1, 4, 4, 5};
    static const char *const merges[] = {"\xC4\xA0 a", "\xC4\xA0"
                                                       "a b"};
    kit_llama(k);
    kit_string(k, "tokenizer.ggml.model", "gpt2");
    kit_string(k, "tokenizer.ggml.pre", "llama-bpe");
    kit_drop(k, "tokenizer.ggml.scores");
    kit_strings(k, "tokenizer.ggml.tokens", pieces, KIT_VOCAB);
    kit_array(k, "tokenizer.ggml.token_type", 5, KIT_VOCAB, types, sizeof types);
    kit_strings(k, "tokenizer.ggml.merges", merges, 2);
    kit_drop(k, "tokenizer.ggml.unknown_token_id");
    kit_u32(k, "tokenizer.ggml.bos_token_id", 6);
    kit_u32(k, "tokenizer.ggml.eos_token_id", 8);
    kit_u32(k, "tokenizer.ggml.fim_pre_token_id", 6);
}

static void a_byte_level_vocabulary_is_imported(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_byte_level(&k);
    accept(&o, &k);
    const struct tw_vocab *v = &o.vocab;
    assert_int_equal(v->header.kind, TW_VOCAB_BYTE_BPE);
    assert_int_equal(v->header.flags, TW_VOCAB_ADD_BOS | TW_VOCAB_IGNORE_MERGES);
    assert_int_equal(v->header.bos, 6);
    assert_int_equal(v->header.unk, TW_NONE);
    assert_string_equal(v->extra.pre, "llama-bpe");
    assert_memory_equal(v->bytes, " ab a<|eot_id|> ab<|x y|><|end|>[PAD8]", 39);
    assert_int_equal(v->extra.n_merges, 2);
    assert_int_equal(v->merges[1].left, 3);
    assert_int_equal(v->merges[1].right, 2);
    assert_int_equal(v->merges[1].merged, 5);
    /* by name, although the file gives them other types: the end of a turn, and another */
    assert_int_equal(v->types[4], TW_TOKEN_CONTROL);
    assert_int_equal(v->types[7], TW_TOKEN_CONTROL);
    assert_int_equal(v->types[6], TW_TOKEN_CONTROL); /* bos, which the file says is USER_DEFINED */
    assert_int_equal(v->extra.n_ends, 2);
    assert_int_equal(v->extra.special[TW_SPECIAL_EOT], 4);
    assert_int_equal(v->extra.special[TW_SPECIAL_FIM_PREFIX], 6);
    finish(&o, &k);
}

static void bad_merges_are_refused(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"ab", "is not two parts with a space between them"},
        {"a ", "is not two parts with a space between them"},
        {" a", "is not two parts with a space between them"},
        {"a q", "names parts that, alone or together, are not tokens"},
        {"b a", "names parts that, alone or together, are not tokens"},
    };
    struct kit k;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kit_byte_level(&k);
        kit_strings(&k, "tokenizer.ggml.merges", &bad[i][0], 1);
        expect_refused(&k, TW_E_FORMAT, bad[i][1]);
    }
    kit_byte_level(&k);
    kit_drop(&k, "tokenizer.ggml.merges");
    expect_refused(&k, TW_E_MISSING, "key tokenizer.ggml.merges is missing");
    kit_byte_level(&k);
    kit_int(&k, "tokenizer.ggml.eom_token_id", 5, 9);
    expect_refused(&k, TW_E_RANGE, "key tokenizer.ggml.eom_token_id is 9, expected 0 to 8");
}

static void a_unigram_vocabulary_is_imported(void **state) {
    (void)state;
    static const uint8_t map[] = {0, 0, 0, 0, 'x', 0};
    struct kit k;
    struct opened o;
    kit_llama(&k);
    kit_string(&k, "tokenizer.ggml.model", "t5");
    kit_array(&k, "tokenizer.ggml.precompiled_charsmap", 1, sizeof map, map, sizeof map);
    kit_bool(&k, "tokenizer.ggml.remove_extra_whitespaces", 1);
    accept(&o, &k);
    assert_int_equal(o.vocab.header.kind, TW_VOCAB_UNIGRAM);
    assert_int_equal(o.vocab.header.flags,
                     TW_VOCAB_ADD_EOS | TW_VOCAB_SPACE_PREFIX | TW_VOCAB_SQUEEZE);
    assert_int_equal(o.vocab.extra.charsmap_bytes, sizeof map);
    assert_memory_equal(o.vocab.charsmap, map, sizeof map);
    assert_true(o.vocab.scores[7] == -0.5f);
    finish(&o, &k);
    kit_llama(&k);
    kit_string(&k, "tokenizer.ggml.model", "t5");
    kit_string(&k, "tokenizer.ggml.precompiled_charsmap", "x");
    expect_refused(&k, TW_E_FORMAT,
                   "key tokenizer.ggml.precompiled_charsmap is not an array of bytes");
}

/* llama.cpp knows the tokens of Phi-3 that take white space with them by the model's name. */
static void special_tokens_of_phi_3_take_white_space_with_them(void **state) {
    (void)state;
    static const char *const names[] = {"Phi-3 mini 4k", "phi3", "Philosopher"};
    for (size_t i = 0; i < 3; i++) {
        struct kit k;
        struct opened o;
        kit_llama(&k);
        kit_string(&k, "general.name", names[i]);
        accept(&o, &k);
        assert_int_equal(o.vocab.types[1], TW_TOKEN_CONTROL); /* <s> does not */
        assert_int_equal(o.vocab.types[2], TW_TOKEN_CONTROL | (i < 2 ? TW_TOKEN_RSTRIP : 0));
        assert_int_equal(o.vocab.types[6], TW_TOKEN_USER_DEFINED | (i < 2 ? TW_TOKEN_RSTRIP : 0));
        assert_int_equal(o.vocab.types[7], TW_TOKEN_NORMAL);
        finish(&o, &k);
    }
}

static void bad_vocabularies_are_refused(void **state) {
    (void)state;
    static const float scores[KIT_VOCAB] = {0};
    static const int32_t types[KIT_VOCAB] = {1, 1, 1, 1, 1, 7, 1, 1, 1};
    static const int32_t bytes[KIT_VOCAB] = {1, 1, 1, 1, 1, 6, 1, 1, 1};
    struct kit k;
    kit_llama(&k);
    kit_array(&k, "tokenizer.ggml.scores", 6, KIT_VOCAB - 1, scores, sizeof scores - 4);
    expect_refused(&k, TW_E_SHAPE, "key tokenizer.ggml.scores has 8 entries, expected 9");
    kit_llama(&k);
    kit_drop(&k, "tokenizer.ggml.scores");
    expect_refused(&k, TW_E_MISSING, "key tokenizer.ggml.scores is missing");
    kit_llama(&k);
    kit_array(&k, "tokenizer.ggml.token_type", 0, KIT_VOCAB, types, KIT_VOCAB);
    expect_refused(&k, TW_E_FORMAT,
                   "key tokenizer.ggml.token_type is an array of u8, expected an array of i32");
    kit_llama(&k);
    kit_array(&k, "tokenizer.ggml.token_type", 5, KIT_VOCAB, types, sizeof types);
    expect_refused(&k, TW_E_RANGE, "entry 5 of key tokenizer.ggml.token_type is 7");
    kit_llama(&k);
    kit_array(&k, "tokenizer.ggml.token_type", 5, KIT_VOCAB, bytes, sizeof bytes);
    expect_refused(&k, TW_E_FORMAT, "byte token 5 is \"a\"");
    kit_llama(&k);
    kit_u32(&k, "tokenizer.ggml.bos_token_id", KIT_VOCAB);
    expect_refused(&k, TW_E_RANGE, "key tokenizer.ggml.bos_token_id is 9, expected 0 to 8");
    kit_llama(&k);
    kit_tensor(&k, "token_embd.weight", 0, KIT_DIM, KIT_VOCAB + 1);
    kit_tensor(&k, "output.weight", 0, KIT_DIM, KIT_VOCAB + 1);
    expect_refused(&k, TW_E_SHAPE, "key tokenizer.ggml.tokens has 9 entries, expected 10");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vocabulary_is_imported),
        cmocka_unit_test(vocabulary_flags_follow_their_keys),
        cmocka_unit_test(the_template_without_a_name_counts),
        cmocka_unit_test(absent_ids_are_none_and_are_never_added),
        cmocka_unit_test(every_key_of_an_end_counts),
        cmocka_unit_test(missing_token_types_are_derived),
        cmocka_unit_test(other_tokenizers_are_not_imported),
        cmocka_unit_test(a_byte_level_vocabulary_is_imported),
        cmocka_unit_test(bad_merges_are_refused),
        cmocka_unit_test(a_unigram_vocabulary_is_imported),
        cmocka_unit_test(special_tokens_of_phi_3_take_white_space_with_them),
        cmocka_unit_test(bad_vocabularies_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
