/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of transformers: the bundle is that of the GGUF file of the same weights, byte for byte;
 * what is wrong with a config, an index or a shard is refused by name.
 */
#include "compiler/import/hf.h"
#include "compiler/import/import.h"
#include "tests/support/bundle_fixture.h"
#include "tests/support/hf_folder.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"
#include "tilewright/compile.h"

#include <unistd.h>

static const struct random_shape shape = {.dim = 64,
                                          .hidden = 96,
                                          .n_layers = 2,
                                          .n_heads = 4,
                                          .n_kv_heads = 2,
                                          .head_dim = 24,
                                          .n_vocab = 37,
                                          .n_ctx = 64,
                                          .seed = 5};

/* A folder of one test. */
struct world {
    struct random_model model;
    char folder[64], gguf[96], bundle[2][96];
    uint32_t parts;
};

static void open_world(struct world *w, const struct random_shape *s, uint32_t parts,
                       const char *more) {
    *w = (struct world){.parts = parts};
    strcpy(w->folder, "/tmp/tw-hf-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->gguf, sizeof w->gguf, "%s.gguf", w->folder);
    snprintf(w->bundle[0], sizeof w->bundle[0], "%s.0.twb", w->folder);
    snprintf(w->bundle[1], sizeof w->bundle[1], "%s.1.twb", w->folder);
    assert_true(random_model_init(&w->model, s));
    assert_true(hf_folder_write(&w->model.model, w->folder, parts, more));
}

static void close_world(struct world *w) {
    hf_folder_remove(w->folder, w->parts);
    assert_int_equal(access(w->folder, F_OK), -1);
    unlink(w->gguf);
    unlink(w->bundle[0]);
    unlink(w->bundle[1]);
    random_model_finish(&w->model);
}

static void compile(const char *model, const char *bundle) {
    const struct tw_compile_options o = {.size = sizeof o, .host_sites = 2};
    tw_error err = {0};
    if (tw_compile_file(model, bundle, &o, NULL, &err)) {
        fail_msg("%s", err.message);
    }
}

static void same_bundles(const struct world *w) {
    size_t n[2];
    uint8_t *bytes[2];
    compile(w->gguf, w->bundle[0]);
    compile(w->folder, w->bundle[1]);
    for (int i = 0; i < 2; i++) {
        bytes[i] = bundle_fixture_read(w->bundle[i], &n[i]);
        assert_non_null(bytes[i]);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    free(bytes[0]);
    free(bytes[1]);
}

/* ---- equal to GGUF ---- */

static void a_folder_gives_the_bundle_of_the_gguf_file(void **state) {
    (void)state;
    static const enum tw_dtype types[] = {TW_DT_F32, TW_DT_F16, TW_DT_BF16};
    for (uint32_t i = 0; i < 12; i++) {
        struct world w;
        struct random_shape s = shape;
        s.dtype = types[i % 3];
        s.tied = i % 2;
        s.seed = i;
        open_world(&w, &s, i < 6 ? 1 : 3, NULL);
        assert_true(random_model_save(&w.model, w.gguf));
        same_bundles(&w);
        close_world(&w);
    }
}

static void weights_can_be_converted(void **state) {
    (void)state;
    struct tw_compile_options o = {.size = sizeof o, .host_sites = 2, .quant = "q8_0"};
    struct world w;
    tw_error err = {0};
    open_world(&w, &shape, 1, NULL);
    assert_true(random_model_save(&w.model, w.gguf));
    assert_int_equal(tw_compile_file(w.gguf, w.bundle[0], &o, NULL, &err), 0);
    assert_int_equal(tw_compile_file(w.folder, w.bundle[1], &o, NULL, &err), 0);
    size_t n[2];
    uint8_t *a = bundle_fixture_read(w.bundle[0], &n[0]),
            *b = bundle_fixture_read(w.bundle[1], &n[1]);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(a, b, n[0]);
    free(a);
    free(b);
    close_world(&w);
}

static void a_key_covers_every_file_of_the_folder(void **state) {
    (void)state;
    static const char *const names[] = {"model-00002-of-00003.safetensors", "tokenizer.json"};
    struct tw_compile_options o = {.size = sizeof o, .host_sites = 2};
    char key[4][65];
    struct world w;
    open_world(&w, &shape, 3, NULL);
    assert_int_equal(tw_compile_key(w.folder, &o, key[0], NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_true(hf_folder_put(w.folder, names[i], "x", 1));
        assert_int_equal(tw_compile_key(w.folder, &o, key[1 + i], NULL), 0);
    }
    char path[128];
    snprintf(path, sizeof path, "%s/notes.txt", w.folder);
    assert_true(hf_folder_put(w.folder, "notes.txt", "x", 1));
    assert_int_equal(tw_compile_key(w.folder, &o, key[3], NULL), 0);
    assert_string_not_equal(key[0], key[1]);
    assert_string_not_equal(key[1], key[2]);
    assert_string_equal(key[2], key[3]);
    unlink(path);
    snprintf(path, sizeof path, "%s/tokenizer.json", w.folder);
    unlink(path);
    close_world(&w);
}

/* The tokenizer of the folder, and what is said if there is none or it is not supported. */
static void the_tokenizer_of_the_folder_is_imported(void **state) {
    (void)state;
    static const char good[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 3}, \"merges\": []}}";
    static const char bad[] = "{\"model\": {\"type\": \"WordPiece\"}}";
    static const char config[] = "{\"eos_token\": \"a\", \"chat_template\": \"{{ x }}\"}";
    struct world w;
    struct tw_model m;
    tw_error err = {0};
    char path[128];
    open_world(&w, &shape, 1, NULL);
    assert_int_equal(tw_model_open(w.folder, NULL, &m, &err), 0);
    assert_null(m.vocab);
    assert_non_null(strstr(m.tokenizer_problem, "there is no tokenizer.json"));
    tw_model_close(&m);
    assert_true(hf_folder_put(w.folder, "tokenizer.json", good, sizeof good - 1));
    assert_true(hf_folder_put(w.folder, "tokenizer_config.json", config, sizeof config - 1));
    assert_int_equal(tw_model_open(w.folder, NULL, &m, &err), 0);
    assert_non_null(m.vocab);
    assert_string_equal(m.chat, "{{ x }}");
    tw_model_close(&m);
    assert_true(hf_folder_put(w.folder, "tokenizer.json", bad, sizeof bad - 1));
    assert_int_equal(tw_model_open(w.folder, NULL, &m, &err), 0);
    assert_null(m.vocab);
    assert_non_null(strstr(m.tokenizer_problem, "model \"WordPiece\" is not supported"));
    tw_model_close(&m);
    snprintf(path, sizeof path, "%s/tokenizer.json", w.folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", w.folder);
    unlink(path);
    close_world(&w);
}

/* ---- refusals ---- */

static void refuse_path(const char *path, int code, const char *file, const char *text) {
    struct tw_model m;
    tw_error err = {0};
    int rc = tw_model_open(path, NULL, &m, &err);
    if (rc != code || !strstr(err.message, file) || !strstr(err.message, text)) {
        fail_msg("code %d, \"%s\"; expected %d, \"%s\" and \"%s\"", rc, err.message, code, file,
                 text);
    }
    tw_model_close(&m);
}

/* `more` comes after the members of a good config, in which `drop` (NULL: none) was renamed. */
static void refuse_config(const char *drop, const char *more, int code, const char *text) {
    struct world w;
    open_world(&w, &shape, 1, NULL);
    char *config = hf_config_text(&w.model.model, more), *at = drop ? strstr(config, drop) : NULL;
    assert_true(!drop || at);
    if (at) {
        at[0] = '_';
    }
    assert_true(hf_folder_put(w.folder, "config.json", config, strlen(config)));
    refuse_path(w.folder, code, "/config.json: ", text);
    free(config);
    close_world(&w);
}

static void members_that_are_missing_or_wrong_are_named(void **state) {
    (void)state;
    refuse_config("model_type", NULL, TW_E_MISSING, "model_type is missing");
    refuse_config("model_type", ", \"model_type\": \"mamba\"", TW_E_UNSUPPORTED,
                  "model_type \"mamba\" is not supported; supported: llama");
    refuse_config("hidden_size", NULL, TW_E_MISSING, "hidden_size is missing");
    refuse_config("hidden_size", ", \"hidden_size\": 64.0", TW_E_FORMAT,
                  "hidden_size is a fraction, expected a whole number");
    refuse_config("hidden_size", ", \"hidden_size\": -1", TW_E_RANGE, "hidden_size is -1");
    refuse_config("hidden_size", ", \"hidden_size\": 99999999999", TW_E_RANGE, "hidden_size is 9");
    refuse_config("num_key_value_heads", ", \"num_key_value_heads\": 3", TW_E_RANGE,
                  "num_key_value_heads is 3, expected a divisor");
    refuse_config("rms_norm_eps", ", \"rms_norm_eps\": \"1e-6\"", TW_E_FORMAT,
                  "rms_norm_eps is a string, expected a number");
    refuse_config("rope_theta", ", \"rope_theta\": -1", TW_E_RANGE, "rope_theta is -1");
    refuse_config("hidden_act", ", \"hidden_act\": \"gelu\"", TW_E_UNSUPPORTED,
                  "hidden_act is \"gelu\"");
    refuse_config("rope_scaling", ", \"rope_scaling\": {\"rope_type\": \"x\", \"factor\": 2}",
                  TW_E_UNSUPPORTED, "rope_type \"x\"");
    refuse_config("rope_scaling", ", \"rope_scaling\": {\"rope_type\": \"linear\"}", TW_E_MISSING,
                  "factor is missing");
    refuse_config(NULL, ", \"attention_bias\": true", TW_E_MISSING,
                  "attention_bias is true, but tensor model.layers.0.self_attn.q_proj.bias");
    refuse_config(NULL, ", \"quantization_config\": {\"quant_method\": \"gptq\"}", TW_E_UNSUPPORTED,
                  "quantised (gptq)");
    refuse_config("num_hidden_layers", ", \"num_hidden_layers\": 3", TW_E_MISSING,
                  "num_hidden_layers is 3, but there are no tensors model.layers.2.*");
    refuse_config("num_hidden_layers", ", \"num_hidden_layers\": 1", TW_E_FORMAT,
                  "num_hidden_layers is 1, but there is a tensor model.layers.1.");
    refuse_config("tie_word", ", \"tie_word_embeddings\": 1", TW_E_FORMAT,
                  "tie_word_embeddings is a number, expected true or false");
    refuse_config("rms_norm_eps", NULL, TW_E_MISSING, "rms_norm_eps is missing");
    refuse_config("model_type",
                  ", \"model_type\": \"olmo3\", \"layer_types\": [\"full_attention\"]", TW_E_SHAPE,
                  "layer_types has 1 entries, expected 2");
    refuse_config("model_type",
                  ", \"model_type\": \"olmo3\", "
                  "\"layer_types\": [\"full_attention\", \"chunked_attention\"]",
                  TW_E_UNSUPPORTED, "entry 1 of layer_types is chunked_attention");
    refuse_config("model_type",
                  ", \"model_type\": \"gemma2\", \"hidden_activation\": \"gelu_pytorch_tanh\", "
                  "\"attn_logit_softcapping\": null",
                  TW_E_UNSUPPORTED, "attn_logit_softcapping is null");
}

static void texts_that_are_not_a_config_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {{"", "empty"},
                 {"[]", "the JSON text is an array, expected an object"},
                 {"{\"a\": 1, \"a\": 2}", "line 1, column 12: not JSON: duplicate object key"},
                 {"{\"a\": 1}\n x", "line 2, column 2: not JSON"},
                 {"{\"a\": \"\\u0000\"}", "not JSON"},
                 {"{\n\"a\": }", "line 2, column 6: not JSON"}};
    struct world w;
    open_world(&w, &shape, 1, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(hf_folder_put(w.folder, "config.json", cases[i].text, strlen(cases[i].text)));
        refuse_path(w.folder, i ? TW_E_FORMAT : TW_E_TRUNCATED, "/config.json", cases[i].message);
    }
    char *deep = calloc(1, 100001);
    memset(deep, '[', 100000);
    memcpy(deep, "{\"a\":", 5);
    assert_true(hf_folder_put(w.folder, "config.json", deep, 100000));
    refuse_path(w.folder, TW_E_FORMAT, "/config.json: ", "maximum parsing depth reached");
    free(deep);
    close_world(&w);
}

static void a_folder_without_a_model_says_what_is_missing(void **state) {
    (void)state;
    char folder[] = "/tmp/tw-hf-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    refuse_path(folder, TW_E_MISSING, "/config.json: ", "there is no such file");
    struct random_model m;
    assert_true(random_model_init(&m, &shape));
    char *config = hf_config_text(&m.model, NULL);
    assert_true(hf_folder_put(folder, "config.json", config, strlen(config)));
    refuse_path(folder, TW_E_MISSING,
                "/model.safetensors: ", "there is no such file, nor model.safetensors.index.json");
    free(config);
    random_model_finish(&m);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    rmdir(folder);
}

/* Each text is a whole index. %s: a good map of all tensors, all in model-00001-of-00002. */
static void indexes_that_do_not_fit_their_shards_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *weights;
        int code;
        const char *text;
    } cases[] = {
        {"{\"a\": \"../../../../etc/passwd\"}", TW_E_FORMAT, "expected the name of a safetensors"},
        {"{\"a\": \"/etc/passwd\"}", TW_E_FORMAT, "expected the name of a safetensors"},
        {"{\"a\": \".safetensors\"}", TW_E_FORMAT, "expected the name of a safetensors"},
        {"{\"a\": 7}", TW_E_FORMAT, "is a number, expected the name of a file"},
        {"{}", TW_E_MISSING, "weight_map is missing or empty"},
        {"[]", TW_E_FORMAT, "weight_map is an array"},
        {"{\"a\": \"b.safetensors\"}", TW_E_MISSING, "b.safetensors: there is no such file"},
        {"{\"a\": \"model-00001-of-00002.safetensors\"}", TW_E_FORMAT,
         "is in model-00001-of-00002.safetensors, but weight_map names no file"},
    };
    struct world w;
    open_world(&w, &shape, 2, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[300];
        snprintf(text, sizeof text, "{\"weight_map\": %s}", cases[i].weights);
        assert_true(hf_folder_put(w.folder, "model.safetensors.index.json", text, strlen(text)));
        refuse_path(w.folder, cases[i].code, w.folder, cases[i].text);
    }
    close_world(&w);
}

static void a_tensor_that_the_index_promises_must_be_there(void **state) {
    (void)state;
    struct world w;
    size_t n;
    char path[128];
    open_world(&w, &shape, 2, NULL);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", w.folder);
    uint8_t *index = bundle_fixture_read(path, &n);
    char *text = calloc(1, n + 100);
    memcpy(text, index, n);
    strcpy(strrchr(text, '"') + 1, ", \"model.x\": \"model-00002-of-00002.safetensors\"}}");
    assert_true(hf_folder_put(w.folder, "model.safetensors.index.json", text, strlen(text)));
    refuse_path(w.folder, TW_E_MISSING,
                "index.json: ", "tensor model.x is not in model-00002-of-00002.safetensors");
    free(index);
    free(text);
    close_world(&w);
}

/* ---- tensors ---- */

/* Imports shard 0 of 1 in memory, after `change` was made to the model. */
static void refuse_tensors(void (*change)(struct tw_model *), int code, const char *text) {
    struct random_model m;
    struct tw_import_memory memory = {0};
    struct tw_hf hf;
    struct tw_safetensors s;
    tw_error err = {0};
    size_t size;
    assert_true(random_model_init(&m, &shape));
    char *config = hf_config_text(&m.model, NULL);
    change(&m.model);
    uint8_t *bytes = hf_safetensors(&m.model, 0, 1, &size);
    assert_int_equal(tw_hf_read_config("c/config.json", config, strlen(config), &memory, &hf, &err),
                     0);
    int rc = tw_st_parse("c/m.safetensors", bytes, size, &memory, &s, &err);
    rc = rc ? rc : tw_hf_add_tensors(&hf, &s, &err);
    rc = rc ? rc : tw_hf_finish_tensors(&hf, &err);
    struct tw_model model;
    rc = rc ? rc : tw_import_gguf_keys(&hf.build.gguf, &memory, &model, &err);
    if (rc != code || !strstr(err.message, text)) {
        fail_msg("code %d, \"%s\"; expected %d and \"%s\"", rc, err.message, code, text);
    }
    tw_import_free(&memory);
    free(bytes);
    free(config);
    random_model_finish(&m);
}

static struct tw_model_tensor *tensor(struct tw_model *m, const char *name) {
    struct tw_model_tensor *t = (struct tw_model_tensor *)(uintptr_t)tw_model_find(m, name);
    assert_non_null(t);
    return t;
}

static void halve_q(struct tw_model *m) {
    tensor(m, "blk.1.attn_q.weight")->rows /= 2;
    tensor(m, "blk.1.attn_q.weight")->bytes /= 2;
}
static void halve_up(struct tw_model *m) {
    tensor(m, "blk.1.ffn_up.weight")->rows /= 2;
    tensor(m, "blk.1.ffn_up.weight")->bytes /= 2;
}
static void shorten_table(struct tw_model *m) {
    tensor(m, "token_embd.weight")->rows -= 1;
    tensor(m, "token_embd.weight")->bytes -= 64 * 4;
}
static void drop_last(struct tw_model *m) { /* token_embd */
    m->n_tensors--;
}
static void drop_first(struct tw_model *m) { /* blk.0.attn_k */
    m->tensors++;
    m->n_tensors--;
}
static void twice(struct tw_model *m) {
    tensor(m, "blk.1.ffn_up.weight")->name = "blk.1.ffn_gate.weight";
}

static void tensors_that_do_not_fit_the_config_are_named(void **state) {
    (void)state;
    refuse_tensors(halve_q, TW_E_SHAPE,
                   "tensor model.layers.1.self_attn.q_proj.weight has 48 rows, expected 96");
    refuse_tensors(halve_up, TW_E_SHAPE, "tensor blk.1.ffn_up.weight has shape [64, 48]");
    refuse_tensors(shorten_table, TW_E_SHAPE,
                   "tensor model.embed_tokens.weight has 36 rows, expected 37, the vocab_size");
    refuse_tensors(drop_last, TW_E_MISSING, "tensor model.embed_tokens.weight is missing");
    refuse_tensors(drop_first, TW_E_MISSING, "tensor blk.0.attn_k.weight is missing");
    refuse_tensors(twice, TW_E_FORMAT, "duplicate object key");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_gives_the_bundle_of_the_gguf_file),
        cmocka_unit_test(weights_can_be_converted),
        cmocka_unit_test(a_key_covers_every_file_of_the_folder),
        cmocka_unit_test(the_tokenizer_of_the_folder_is_imported),
        cmocka_unit_test(members_that_are_missing_or_wrong_are_named),
        cmocka_unit_test(texts_that_are_not_a_config_are_refused),
        cmocka_unit_test(a_folder_without_a_model_says_what_is_missing),
        cmocka_unit_test(indexes_that_do_not_fit_their_shards_are_refused),
        cmocka_unit_test(a_tensor_that_the_index_promises_must_be_there),
        cmocka_unit_test(tensors_that_do_not_fit_the_config_are_named),
    };
    return cmocka_run_group_tests_name("transformers", tests, NULL, NULL);
}
