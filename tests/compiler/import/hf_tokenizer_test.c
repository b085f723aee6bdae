/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of tokenizer.json: a Llama 3 in small with the ids of the large one, a model whose ids
 * transformers gave, small texts of each kind, and what is refused, by name.
 */
#include "compiler/import/hf_tokenizer.h"
#include "driver/tokenizer/tokenizer.h"
#include "loader/bundle/vocab_open.h"
#include "tests/support/test.h"

#include <jansson.h>

/* Returns the content of a file of ../shared/data, which the caller frees; skips the test if there
 * is no such folder. */
static struct tw_hf_file shared(const char *name) {
    static char path[4096];
    const char *folder = getenv("TW_SHARED");
    if (!folder) {
        print_message("skipped: TW_SHARED is not set, so %s is not there\n", name);
        skip();
    }
    snprintf(path, sizeof path, "%s/data/%s", folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    struct tw_hf_file file = {.path = "t.json", .size = (uint64_t)ftell(f)};
    char *bytes = malloc(file.size + 1);
    assert_non_null(bytes);
    rewind(f);
    assert_int_equal(fread(bytes, 1, file.size, f), file.size);
    fclose(f);
    file.bytes = bytes;
    return file;
}

static void release(struct tw_hf_file *file) {
    free((void *)(uintptr_t)file->bytes);
}

static struct tw_hf_file text_file(const char *path, const char *text) {
    return (struct tw_hf_file){path, text, text ? strlen(text) : 0};
}

struct opened {
    struct tw_import_memory memory;
    struct tw_model model;
    struct tw_vocab vocab;
    struct tw_tokenizer *tokenizer;
};

static void open_files(struct opened *o, const struct tw_hf_tokenizer_files *files, uint32_t n) {
    tw_error err = {0};
    memset(o, 0, sizeof *o);
    o->model.h.n_vocab = n;
    if (tw_import_hf_tokenizer(files, &o->memory, &o->model, &err) != 0) {
        fail_msg("%s", err.message);
    }
    if (!o->model.vocab) {
        fail_msg("no vocabulary: %s", o->model.tokenizer_problem);
    }
    assert_int_equal(tw_vocab_open(o->model.vocab, o->model.vocab_bytes, &o->vocab, &err), 0);
    assert_int_equal(tw_tokenizer_create(&o->vocab, &o->tokenizer, &err), 0);
}

static void close_it(struct opened *o) {
    tw_tokenizer_destroy(o->tokenizer);
    tw_import_free(&o->memory);
}

static void expect_ids(const struct opened *o, const char *text, unsigned flags,
                       const uint32_t *ids, size_t count) {
    struct tw_token_list list = {.n = 0};
    tw_error err = {0};
    assert_int_equal(tw_tokenizer_encode(o->tokenizer, text, strlen(text), flags, &list, &err), 0);
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

/* ---- real files ---- */

static void a_llama_3_in_small_gives_the_ids_of_llama_3(void **state) {
    (void)state;
    struct tw_hf_tokenizer_files files = {.tokenizer =
                                              shared("tokenizers/mini_llama.tokenizer.json")};
    struct opened o;
    open_files(&o, &files, 128256);
    assert_string_equal(o.vocab.extra.pre, "llama-bpe");
    expect_ids(&o, "can't", 0, IDS(4919, 956));
    expect_ids(&o, "you're", 0, IDS(88, 78, 84, 2351));
    expect_ids(&o, "func()", 0, IDS(2900, 368));
    expect_ids(&o, "000", 0, IDS(931));
    expect_ids(&o, "caf\xC3\xA9", 0, IDS(936, 59958));
    expect_ids(&o, "x   y", 0, IDS(87, 256, 220, 88));
    expect_ids(&o, "<|end_of_text|>", TW_ENCODE_SPECIAL, IDS(128001));
    assert_true(tw_tokenizer_is_end(o.tokenizer, 128001)); /* by its name */
    assert_int_equal(o.vocab.types[100000], TW_TOKEN_CONTROL);
    /* Llama 3 takes words that are pieces whole, whatever the merges; this file does not say so. */
    assert_int_equal(o.vocab.header.flags, 0);
    tw_tokenizer_destroy(o.tokenizer);
    o.vocab.header.flags = TW_VOCAB_IGNORE_MERGES;
    assert_int_equal(tw_tokenizer_create(&o.vocab, &o.tokenizer, NULL), 0);
    expect_ids(&o, "Hello world", 0, IDS(9906, 1917));
    expect_ids(&o, "func main() {}", 0, IDS(2900, 1925, 368, 4792));
    expect_ids(&o, "000123", 0, IDS(931, 4513));
    close_it(&o);
    release(&files.tokenizer);
}

static void a_model_of_transformers_gives_its_ids(void **state) {
    (void)state;
    struct tw_hf_tokenizer_files files = {.tokenizer =
                                              shared("models/tinystories656K/tokenizer.json")};
    struct tw_hf_file config = shared("models/tinystories656K/tokenizer_config.json");
    struct tw_hf_file greedy = shared("models/tinystories656K/greedy.json");
    json_t *runs = json_loadb(greedy.bytes, (size_t)greedy.size, 0, NULL), *run;
    struct opened o;
    size_t i, k;
    files.config = config;
    open_files(&o, &files, 2048);
    assert_int_equal(o.vocab.header.kind, TW_VOCAB_MERGE_BPE);
    assert_int_equal(o.vocab.header.flags, TW_VOCAB_ADD_BOS | TW_VOCAB_SPACE_PREFIX);
    assert_int_equal(o.vocab.header.eos, 2);
    assert_int_equal(o.vocab.header.unk, 0);
    assert_in_range(json_array_size(runs), 1, 100);
    json_array_foreach(runs, i, run) {
        uint32_t ids[64];
        const json_t *list = json_object_get(run, "prompt_ids"), *id;
        json_array_foreach(list, k, id) {
            ids[k] = (uint32_t)json_integer_value(id);
        }
        expect_ids(&o, json_string_value(json_object_get(run, "prompt")), 0, ids,
                   json_array_size(list));
    }
    json_decref(runs);
    close_it(&o);
    release(&files.tokenizer);
    release(&config);
    release(&greedy);
}

/* ---- small files ---- */

#define QWEN2                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?" \
    "[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define WORDS(regex)                                                                               \
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": " \
    "\"" regex "\"}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "   \
    "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}]}"
#define BYTE_LEVEL(words, merges)                                                                  \
    "{\"added_tokens\": [{\"id\": 5, \"content\": \"<|im_end|>\", \"special\": true, \"rstrip\": " \
    "true}, {\"id\": 6, \"content\": \"<tool>\", \"special\": false}], \"normalizer\": "           \
    "{\"type\": "                                                                                  \
    "\"NFC\"}, \"pre_tokenizer\": " words ", \"post_processor\": {\"type\": \"ByteLevel\"}, "      \
    "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": "   \
    "0, "                                                                                          \
    "\"b\": 1, \"\\u0120\": 2, \"ab\": 3, \"\\u0120ab\": 4}, \"merges\": " merges "}}"
#define MERGES "[\"a b\", \"\\u0120 ab\"]"

static const char config_text[] =
    "{\"bos_token\": null, \"eos_token\": {\"content\": \"<|im_end|>\"}, \"pad_token\": \"a\", "
    "\"add_bos_token\": false, \"chat_template\": [{\"name\": \"tool_use\", \"template\": \"no\"}, "
    "{\"name\": \"default\", \"template\": \"{{ yes }}\"}]}";

static void a_byte_level_tokenizer_is_imported(void **state) {
    (void)state;
    struct tw_hf_tokenizer_files files = {
        .tokenizer = text_file("tokenizer.json", BYTE_LEVEL(WORDS(QWEN2), MERGES)),
        .config = text_file("tokenizer_config.json", config_text),
        .generation_config = text_file("generation_config.json", "{\"eos_token_id\": [5, 1]}")};
    struct opened o;
    open_files(&o, &files, 9);
    assert_string_equal(o.vocab.extra.pre, "qwen2");
    assert_int_equal(o.vocab.header.bos, TW_NONE);
    assert_int_equal(o.vocab.header.eos, 5);
    assert_int_equal(o.vocab.header.pad, 0);
    assert_int_equal(o.vocab.extra.n_ends, 1);
    assert_int_equal(o.vocab.ends[0], 1);
    assert_int_equal(o.vocab.types[5], TW_TOKEN_CONTROL | TW_TOKEN_RSTRIP);
    assert_int_equal(o.vocab.types[6], TW_TOKEN_USER_DEFINED);
    assert_int_equal(o.vocab.types[8], TW_TOKEN_CONTROL);
    assert_string_equal(o.model.chat, "{{ yes }}");
    expect_ids(&o, "ab ab<tool>", TW_ENCODE_USER_DEFINED, IDS(3, 4, 6));
    expect_ids(&o, "a<|im_end|> b", TW_ENCODE_SPECIAL, IDS(0, 5, 1));
    close_it(&o);
    /* merges as lists; a template in a file of its own */
    files.tokenizer =
        text_file("t", BYTE_LEVEL(WORDS(QWEN2), "[[\"a\", \"b\"], [\"\\u0120\", \"ab\"]]"));
    files.chat_template = text_file("chat_template.jinja", "{{ own }}");
    open_files(&o, &files, 7);
    assert_string_equal(o.model.chat, "{{ own }}");
    expect_ids(&o, "ab ab", 0, IDS(3, 4));
    close_it(&o);
}

/* Of named templates only the default one counts; there may be none. */
static void other_named_templates_are_not_read(void **state) {
    (void)state;
    static const char *const lists[] = {
        "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"{{ a }}\"}]}",
        "{\"chat_template\": [{\"name\": \"default\"}, 3]}", "{\"chat_template\": []}",
        "{\"chat_template\": {\"default\": \"{{ a }}\"}}", "{\"chat_template\": \"\"}"};
    struct tw_hf_tokenizer_files files = {
        .tokenizer = text_file("tokenizer.json", BYTE_LEVEL(WORDS(QWEN2), MERGES))};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct opened o;
        files.config = text_file("tokenizer_config.json", lists[i]);
        open_files(&o, &files, 7);
        assert_null(o.model.chat);
        close_it(&o);
    }
}

static void a_unigram_tokenizer_is_imported(void **state) {
    (void)state;
    static const char text[] =
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"</s>\", \"special\": true}], "
        "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Precompiled\", "
        "\"precompiled_charsmap\": \"BAAAAAAAAAA=\"}, {\"type\": \"Replace\", \"pattern\": "
        "{\"Regex\": \" {2,}\"}, \"content\": \" \"}]}, \"pre_tokenizer\": {\"type\": "
        "\"Sequence\", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, {\"type\": "
        "\"Metaspace\", \"replacement\": \"\\u2581\", \"prepend_scheme\": \"always\"}]}, "
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": "
        "{\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": "
        "0}}]}, \"decoder\": {\"type\": \"Metaspace\"}, \"model\": {\"type\": \"Unigram\", "
        "\"unk_id\": 2, \"vocab\": [[\"<pad>\", 0], [\"</s>\", 0], [\"<unk>\", 0], [\"\\u2581a\", "
        "-1.5], [\"b\", -2], [\"\\u2581\", -3]]}}";
    struct tw_hf_tokenizer_files files = {.tokenizer = text_file("tokenizer.json", text)};
    struct opened o;
    open_files(&o, &files, 6);
    assert_int_equal(o.vocab.header.kind, TW_VOCAB_UNIGRAM);
    assert_int_equal(o.vocab.header.flags, TW_VOCAB_ADD_EOS | TW_VOCAB_SPACE_PREFIX |
                                               TW_VOCAB_PREFIX_IF_NONE | TW_VOCAB_SQUEEZE);
    assert_int_equal(o.vocab.header.unk, 2);
    assert_int_equal(o.vocab.extra.charsmap_bytes, 8);
    assert_true(o.vocab.scores[3] == -1.5f);
    expect_ids(&o, "a  ab", 0, IDS(3, 3, 4, 1));
    expect_ids(&o, "x", TW_ENCODE_NO_EOS, IDS(5, 2));
    close_it(&o);
}

/* ---- blanks ---- */

#define TABLE "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"BAAAAAAAAAA=\"}"
#define STRIP(left, right) \
    "{\"type\": \"Strip\", \"strip_left\": " left ", \"strip_right\": " right "}"
#define SEVERAL(content) \
    "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \" {2,}\"}, \"content\": \"" content "\"}"
#define META(scheme) \
    "{\"type\": \"Metaspace\", \"replacement\": \"\\u2581\", \"prepend_scheme\": \"" scheme "\"}"
#define PREPEND "{\"type\": \"Prepend\", \"prepend\": \"\\u2581\"}"
#define CUT "{\"type\": \"WhitespaceSplit\"}"

/* A tokenizer with these steps, joined by commas, of tokens a, U+2581 and <s>, in 5 rows. */
static void blanks_file(char *text, size_t size, const char *normalizers, const char *cutters) {
    snprintf(
        text, size,
        "{\"added_tokens\": [{\"id\": 2, \"content\": \"<s>\", \"special\": true}], "
        "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [%s]}, \"pre_tokenizer\": "
        "{\"type\": \"Sequence\", \"pretokenizers\": [%s]}, \"model\": {\"type\": \"Unigram\", "
        "\"unk_id\": 3, \"vocab\": [[\"a\", -1], [\"\\u2581\", -1], [\"<s>\", 0], [\"?\", 0]]}}",
        normalizers, cutters);
}

static void sets_of_steps_say_what_becomes_of_blanks(void **state) {
    (void)state;
    static const struct {
        const char *normalizers, *cutters, *text;
        uint32_t n, ids[8];
    } cases[] = {
        {TABLE ", " STRIP("false", "true") ", " SEVERAL("\\u2581"),
         META("always"),
         " a  a ",
         4,
         {1, 0, 1, 0}},
        {TABLE ", " STRIP("true", "true") ", " SEVERAL(" "), META("never"), " a  a ", 3, {0, 1, 0}},
        {TABLE ", " SEVERAL(" "), CUT ", " META("always"), "  a  a ", 4, {1, 0, 1, 0}},
        {TABLE, CUT ", " META("always"), "  a  a ", 4, {1, 0, 1, 0}},
        {"", META("always"), "a<s>a a", 7, {1, 0, 2, 1, 0, 1, 0}},
        {"", META("first"), "a<s>a a", 6, {1, 0, 2, 0, 1, 0}},
        {"", META("first"), "<s>a", 2, {2, 0}},
        {"", META("first"), " a", 2, {1, 0}},
        {"", META("never"), "a<s>a", 3, {0, 2, 0}},
        {PREPEND, META("first"), " a<s>a", 6, {1, 1, 0, 2, 1, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        struct tw_hf_tokenizer_files files = {0};
        struct opened o;
        blanks_file(text, sizeof text, cases[i].normalizers, cases[i].cutters);
        files.tokenizer = text_file("tokenizer.json", text);
        open_files(&o, &files, 5);
        expect_ids(&o, cases[i].text, TW_ENCODE_SPECIAL, cases[i].ids, cases[i].n);
        close_it(&o);
    }
}

/* Only where text is cut at blanks are pieces that span some not found. */
static void pieces_may_span_words_that_are_not_cut(void **state) {
    (void)state;
    struct tw_hf_tokenizer_files files = {
        .tokenizer = text_file(
            "tokenizer.json",
            "{\"added_tokens\": [{\"id\": 2, \"content\": \"\\u2581\\u2581\"}], \"pre_tokenizer\": "
            "{\"type\": \"Metaspace\", \"replacement\": \"\\u2581\", \"prepend_scheme\": "
            "\"never\", "
            "\"split\": false}, \"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\\u2581a\", "
            "-1], "
            "[\"a\", -1]]}}")};
    struct opened o;
    open_files(&o, &files, 3);
    expect_ids(&o, "a a", 0, IDS(0));
    close_it(&o);
}

/* A row without a token has score 0, which would win. */
static void text_never_becomes_a_row_without_a_token(void **state) {
    (void)state;
    char text[1024];
    struct tw_hf_tokenizer_files files = {0};
    struct opened o;
    blanks_file(text, sizeof text, "", META("never"));
    files.tokenizer = text_file("tokenizer.json", text);
    open_files(&o, &files, 5);
    assert_int_equal(o.vocab.types[4], TW_TOKEN_CONTROL);
    expect_ids(&o, "a[PAD4]a", 0, IDS(0, 3, 0));
    close_it(&o);
}

/* ---- refusals ---- */

static int try(const char *text, struct opened *o, tw_error *err) {
    struct tw_hf_tokenizer_files files = {.tokenizer = text_file("tokenizer.json", text)};
    memset(o, 0, sizeof *o);
    memset(err, 0, sizeof *err);
    o->model.h.n_vocab = 7;
    return tw_import_hf_tokenizer(&files, &o->memory, &o->model, err);
}

static void what_is_not_supported_is_named(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{\"model\": {\"type\": \"WordPiece\"}}", "model \"WordPiece\""},
        {"{\"model\": {}}", "model \"(none)\""},
        {"{\"model\": {\"type\": \"BPE\", \"end_of_word_suffix\": \"</w>\"}}",
         "end_of_word_suffix"},
        {"{\"normalizer\": {\"type\": \"Lowercase\"}, \"model\": {\"type\": \"BPE\"}}",
         "normalizer Lowercase"},
        {"{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"x\"}}, \"model\": "
         "{\"type\": \"BPE\"}}",
         "normalizer Replace: x"},
        {"{\"pre_tokenizer\": {\"type\": \"Whitespace\"}, \"model\": {\"type\": \"BPE\"}}",
         "pre_tokenizer Whitespace"},
        {BYTE_LEVEL(WORDS("\\\\w+|(a+)+$"), MERGES), "pre_tokenizer with the steps: =\\w+|(a+)+$"},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true}, \"model\": "
         "{\"type\": \"BPE\"}}",
         "ByteLevel: add_prefix_space"},
        {"{\"post_processor\": {\"type\": \"BertProcessing\"}, \"model\": {\"type\": \"BPE\"}}",
         "post_processor BertProcessing"},
        {"{\"pre_tokenizer\": " META("never") ", \"model\": {\"type\": \"BPE\", \"vocab\": "
                                              "{\"a\\u2581b\": 0}, \"merges\": []}}",
         "Metaspace, which splits, with the piece \"a\xE2\x96\x81"
         "b\""},
        {"{\"pre_tokenizer\": " META("never") ", \"model\": {\"type\": \"Unigram\", \"vocab\": "
                                              "[[\"\\u2581\\u2581\", -1]]}}",
         "Metaspace, which splits, with the piece"},
        {"{\"decoder\": {\"type\": \"CTC\"}, \"model\": {\"type\": \"BPE\"}}", "decoder CTC"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct opened o;
        tw_error err;
        if (try(cases[i][0], &o, &err) != 0) {
            fail_msg("%zu: %s", i, err.message);
        }
        assert_null(o.model.vocab);
        assert_non_null(o.model.tokenizer_problem);
        if (!strstr(o.model.tokenizer_problem, cases[i][1]) ||
            !strstr(o.model.tokenizer_problem, "is not supported")) {
            fail_msg("problem \"%s\" does not contain \"%s\"", o.model.tokenizer_problem,
                     cases[i][1]);
        }
        tw_import_free(&o.memory);
    }
}

static void steps_that_drop_only_some_blanks_are_named(void **state) {
    (void)state;
    static const struct {
        const char *normalizers, *cutters, *name;
    } cases[] = {
        {TABLE ", " STRIP("true", "true"), META("always"), "Strip"},
        {TABLE ", " SEVERAL(" "), META("always"), "Replace"},
        {TABLE ", " STRIP("true", "false") ", " SEVERAL(" "), META("always"), "Strip"},
        {TABLE ", " STRIP("false", "true") ", " SEVERAL(" "), META("first"), "Strip"},
        {TABLE ", " STRIP("true", "true") ", " SEVERAL(" "), "", "Strip"},
        {TABLE ", " PREPEND ", " STRIP("true", "true") ", " SEVERAL(" "), META("always"), "Strip"},
        {STRIP("true", "true") ", " SEVERAL(" "), META("always"), "Strip"},
        {SEVERAL(" ") ", " TABLE, CUT ", " META("always"), "Replace"},
        {TABLE, CUT ", " META("first"), "WhitespaceSplit"},
        {"", CUT ", " META("always"), "WhitespaceSplit"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024], expected[100];
        struct opened o;
        tw_error err;
        blanks_file(text, sizeof text, cases[i].normalizers, cases[i].cutters);
        snprintf(expected, sizeof expected,
                 "tokenizer.json: dropping some blanks by %s is not supported", cases[i].name);
        assert_int_equal(try(text, &o, &err), 0);
        assert_null(o.model.vocab);
        assert_string_equal(o.model.tokenizer_problem, expected);
        tw_import_free(&o.memory);
    }
}

/* Of a chain that is cut, what is left may be that of a known model. */
static void long_expressions_are_not_cut(void **state) {
    (void)state;
    char long_one[5000], text[8000];
    struct opened o;
    tw_error err;
    memset(long_one, 'x', sizeof long_one - 1);
    long_one[sizeof long_one - 1] = 0;
    snprintf(text, sizeof text,
             "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
             "\"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": \"Isolated\"}, {\"type\": "
             "\"ByteLevel\"}]}, \"model\": {\"type\": \"BPE\"}}",
             long_one);
    assert_int_equal(try(text, &o, &err), 0);
    assert_non_null(o.model.tokenizer_problem);
    assert_string_equal(o.model.tokenizer_problem,
                        "tokenizer.json: pre_tokenizer Sequence: over 4096 bytes of "
                        "expressions is not supported");
    tw_import_free(&o.memory);
}

static void malformed_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *part;
    } cases[] = {
        {"", TW_E_FORMAT, "tokenizer.json: line 1"},
        {"[]", TW_E_FORMAT, "tokenizer.json"},
        {"{}", TW_E_MISSING, "tokenizer.json: model is missing"},
        {"{\"model\": 3}", TW_E_FORMAT, "tokenizer.json: model is"},
        {"{\"model\": {\"type\": \"BPE\"}}", TW_E_MISSING, "model.vocab is missing"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 7}}}", TW_E_RANGE,
         "token \"a\" has id 7, expected 0 to 6"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}}}", TW_E_RANGE, "has id -1"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": \"0\"}}}", TW_E_FORMAT,
         "has no integer id"},
        {"{\"added_tokens\": [{\"id\": 1}], \"model\": {\"type\": \"BPE\", \"vocab\": {}}}",
         TW_E_FORMAT, "added_tokens"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]]}}", TW_E_FORMAT,
         "model.vocab: entry 0 is not a pair"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 1e300]]}}", TW_E_RANGE,
         "score of token 0"},
        {BYTE_LEVEL(WORDS(QWEN2), "[\"ab\"]"), TW_E_FORMAT,
         "model.merges: entry 0 is not two texts"},
        {BYTE_LEVEL(WORDS(QWEN2), "[\"a b\", \"a \"]"), TW_E_FORMAT, "entry 1 has a part"},
        {BYTE_LEVEL(WORDS(QWEN2), "[\"b a\"]"), TW_E_FORMAT, "not tokens"},
        {BYTE_LEVEL(WORDS(QWEN2), "[3]"), TW_E_FORMAT, "entry 0 is not two texts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct opened o;
        tw_error err;
        if (try(cases[i].text, &o, &err) != cases[i].code || !strstr(err.message, cases[i].part)) {
            fail_msg("%zu: code %d, message \"%s\", expected %d and \"%s\"", i, err.code,
                     err.message, cases[i].code, cases[i].part);
        }
        assert_null(o.model.vocab);
        tw_import_free(&o.memory);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_3_in_small_gives_the_ids_of_llama_3),
        cmocka_unit_test(a_model_of_transformers_gives_its_ids),
        cmocka_unit_test(a_byte_level_tokenizer_is_imported),
        cmocka_unit_test(other_named_templates_are_not_read),
        cmocka_unit_test(a_unigram_tokenizer_is_imported),
        cmocka_unit_test(sets_of_steps_say_what_becomes_of_blanks),
        cmocka_unit_test(pieces_may_span_words_that_are_not_cut),
        cmocka_unit_test(text_never_becomes_a_row_without_a_token),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(steps_that_drop_only_some_blanks_are_named),
        cmocka_unit_test(long_expressions_are_not_cut),
        cmocka_unit_test(malformed_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
