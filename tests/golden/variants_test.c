/* SPDX-License-Identifier: Apache-2.0
 *
 * Variants of two real models, as GGUF files and as folders of transformers (rotary scaling and
 * base, factors, types, shards, alignment, key order, tied output, ...), which mkvariants.py of the
 * shared data writes, through importer, graph and
 * reference evaluator, against the ids and logits that llama.cpp gives for them. A variant that we
 * refuse has to be refused by name.
 */
#include "tests/support/command_run.h"
#include "tests/support/model_fixture.h"
#include "tests/support/test.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

struct variants {
    json_t *golden; /* NULL: the shared data or python3 is missing, and the tests are skipped */
    char folder[512];
};

static int set_up(void **state) {
    char command[4096], path[2048];
    struct variants *v = calloc(1, sizeof *v);
    const char *root = getenv("TW_SHARED");
    *state = v;
    if (!v || !root || system("python3 -c 'import struct' 2>/dev/null")) {
        fprintf(stderr, "skipped: %s\n",
                root ? "python3 is not installed" : "TW_SHARED is not set");
        return 0;
    }
    snprintf(v->folder, sizeof v->folder, "%s", command_folder());
    snprintf(command, sizeof command,
             "python3 '%s/data/variants/mkvariants.py' '%s/data/models' '%s' >/dev/null", root,
             root, v->folder);
    snprintf(path, sizeof path, "%s/data/variants/golden.json", root);
    if (access(path, R_OK) || system(command)) {
        fprintf(stderr, "skipped: %s and mkvariants.py beside it cannot be used\n", path);
        return 0;
    }
    v->golden = json_load_file(path, 0, NULL);
    return v->golden ? 0 : -1;
}

static int tear_down(void **state) {
    struct variants *v = *state;
    char command[1024];
    int rc = 0;
    if (*v->folder) {
        snprintf(command, sizeof command, "rm -rf '%s'", v->folder);
        rc = system(command);
    }
    json_decref(v->golden);
    free(v);
    return rc;
}

/* ---- comparing ---- */

static uint32_t id_at(const json_t *ids, size_t i) {
    return (uint32_t)json_integer_value(json_array_get(ids, i));
}

static const float *feed(struct model_fixture *f, uint32_t id) {
    const float *logits = NULL;
    tw_error err = {0};
    if (tw_reference_step(f->reference, id, &logits, &err)) {
        fail_msg("%s", err.message);
    }
    return logits;
}

static void compare_first_logits(const char *name, const json_t *expected, const float *logits) {
    assert_int_equal(json_array_size(expected), 16);
    for (size_t i = 0; i < 16; i++) {
        double golden = json_number_value(json_array_get(expected, i));
        if (!(fabs((double)logits[i] - golden) <= 2e-4)) {
            fail_msg("%s, token %zu: logit %f, golden %f", name, i, (double)logits[i], golden);
        }
    }
}

static void compare_run(struct model_fixture *f, const char *name, const json_t *run) {
    const json_t *prompt = json_object_get(run, "prompt_ids"), *ids = json_object_get(run, "ids");
    const float *logits = NULL;
    tw_error err = {0};
    assert_int_equal(model_fixture_restart(f, &err), 0);
    assert_true(json_array_size(prompt) > 0 && json_array_size(ids) > 0);
    for (size_t i = 0; i < json_array_size(prompt); i++) {
        logits = feed(f, id_at(prompt, i));
    }
    compare_first_logits(name, json_object_get(run, "first_logits16"), logits);
    size_t n = json_array_size(ids), most = TEST_ASAN ? 16 : n; /* a sanitized evaluator is slow */
    for (size_t i = 0; i < n && i < most; i++) {
        uint32_t best = best_token(logits, f->model.h.n_vocab);
        if (!((double)logits[best] - (double)logits[id_at(ids, i)] <= 1e-4)) {
            fail_msg("%s, step %zu: token %u, golden %u", name, i, best, id_at(ids, i));
        }
        logits = feed(f, id_at(ids, i));
    }
}

static void compare_model(const struct variants *v, const char *kind, const char *name,
                          const char *path) {
    struct model_fixture f;
    size_t i;
    json_t *run;
    tw_error err = {0};
    json_t *runs = json_object_get(json_object_get(json_object_get(v->golden, kind), name), "runs");
    if (model_fixture_open(path, 512, &f, &err)) {
        fail_msg("%s", err.message);
    }
    assert_true(json_array_size(runs) > 0);
    json_array_foreach(runs, i, run) {
        compare_run(&f, name, run);
    }
    model_fixture_finish(&f);
}

static void compare_variant(const struct variants *v, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.gguf", v->folder, name);
    compare_model(v, "gguf", name, path);
}

/* Returns the path of a folder; one that has only a config gets the real model's weights. */
static const char *hf_folder(const struct variants *v, const char *name) {
    static char path[1024];
    char weights[1100], index[1100], real[2048];
    snprintf(path, sizeof path, "%s/%s", v->folder, name);
    snprintf(weights, sizeof weights, "%s/model.safetensors", path);
    snprintf(index, sizeof index, "%s/model.safetensors.index.json", path);
    snprintf(real, sizeof real, "%s/data/models/tinystories656K/model.safetensors",
             getenv("TW_SHARED"));
    if (access(weights, F_OK) != 0 && access(index, F_OK) != 0) {
        assert_int_equal(symlink(real, weights), 0);
    }
    return path;
}

static const struct variants *variants_or_skip(void **state) {
    const struct variants *v = *state;
    if (!v->golden) {
        skip();
    }
    return v;
}

/* ---- the cases ---- */

static void rotary_scaling_bases_and_factors_give_llama_cpps_ids(void **state) {
    const struct variants *v = variants_or_skip(state);
    compare_variant(v, "rope_linear2");
    compare_variant(v, "rope_linear4_oldkey");
    compare_variant(v, "rope_none_factor2");
    compare_variant(v, "rope_base500k");
    compare_variant(v, "rope_llama3_freqs");
    compare_variant(v, "rope_yarn4");
    compare_variant(v, "no_rope_dim");
}

static void the_same_model_in_another_file_gives_llama_cpps_ids(void **state) {
    const struct variants *v = variants_or_skip(state);
    compare_variant(v, "align64");
    compare_variant(v, "align4096");
    compare_variant(v, "kv_reversed");
    compare_variant(v, "tensors_reversed");
    compare_variant(v, "tied_no_output");
}

static void folders_of_transformers_give_llama_cpps_ids(void **state) {
    const struct variants *v = variants_or_skip(state);
    static const char *const names[] = {"hf_f16",
                                        "hf_bf16",
                                        "hf_mixed",
                                        "hf_both",
                                        "hf_both_tied",
                                        "hf_embed_only",
                                        "hf_shard3",
                                        "hf_nometa",
                                        "hf_dtype_v5",
                                        "hf_eos_list",
                                        "hf_head_dim16",
                                        "hf_rope_linear2",
                                        "hf_rope_linear2_oldkey",
                                        "hf_rope_llama3",
                                        "hf_rope_v5"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        compare_model(v, "hf", names[i], hf_folder(v, names[i]));
    }
}

static void a_config_that_does_not_fit_is_refused_by_name(void **state) {
    const struct variants *v = variants_or_skip(state);
    static const char *const cases[][2] = {
        {"hf_bad_no_kv_heads", "k_proj.weight has 64 rows, expected 128"},
        {"hf_bad_no_tie", "model.embed_tokens.weight is missing"},
        {"hf_bad_act_gelu", "hidden_act is \"gelu\""},
        {"hf_bad_attn_bias", "attention_bias is true"},
        {"hf_bad_head_dim32", "k_proj.weight has 64 rows, expected 128"},
        {"hf_bad_vocab2049", "has 2048 rows, expected 2049, the vocab_size"},
        {"hf_bad_layers3", "there are no tensors model.layers.2"},
        {"hf_bad_rope_unknown", "rope_type \"longrope2\""},
        {"hf_bad_model_type_x", "model_type \"frobnicate\""},
        {"hf_bad_kv3", "num_key_value_heads is 3"},
        {"hf_bad_eps_str", "rms_norm_eps is a string"},
        {"hf_bad_hidden_float", "hidden_size is a fraction"},
        {"hf_bad_theta_neg", "rope_theta is -1"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tw_model m;
        tw_error err = {0};
        assert_true(tw_model_open(hf_folder(v, cases[i][0]), NULL, &m, &err) != 0);
        if (!strstr(err.message, cases[i][1])) {
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i][0], err.message, cases[i][1]);
        }
    }
}

static void expect_refused(const struct variants *v, const char *name, const char *part) {
    struct model_fixture f;
    char path[1024];
    tw_error err = {0};
    snprintf(path, sizeof path, "%s/%s.gguf", v->folder, name);
    int rc = model_fixture_open(path, 0, &f, &err);
    assert_true(rc == TW_E_UNSUPPORTED || rc == TW_E_SHAPE);
    assert_non_null(strstr(err.message, part));
}

static void a_tensor_that_does_not_fit_is_refused_by_name(void **state) {
    const struct variants *v = variants_or_skip(state);
    expect_refused(v, "no_kv_heads", "blk.0.attn_k.weight");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotary_scaling_bases_and_factors_give_llama_cpps_ids),
        cmocka_unit_test(the_same_model_in_another_file_gives_llama_cpps_ids),
        cmocka_unit_test(folders_of_transformers_give_llama_cpps_ids),
        cmocka_unit_test(a_config_that_does_not_fit_is_refused_by_name),
        cmocka_unit_test(a_tensor_that_does_not_fit_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
