/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json as keys, and names and types of tensors, of what only some architectures have: read
 * in memory, without weights.
 */
#include "compiler/import/hf.h"
#include "tests/support/test.h"

#include <math.h>

/* A config in memory. */
struct opened {
    struct tw_import_memory memory;
    struct tw_hf hf;
    tw_error err;
    int rc;
};

/* A good config of that model_type; `more` comes after its members: ", \"x\": 1". */
static void read_config(struct opened *o, const char *type, const char *more) {
    char text[1500];
    memset(o, 0, sizeof *o);
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", \"hidden_act\": \"silu\", \"hidden_size\": 8,"
             " \"intermediate_size\": 8, \"num_hidden_layers\": 4, \"num_attention_heads\": 2,"
             " \"max_position_embeddings\": 64, \"vocab_size\": 5, \"layer_norm_eps\": 1e-5,"
             " \"rms_norm_eps\": 1e-5%s}",
             type, more);
    o->rc = tw_hf_read_config("c/config.json", text, strlen(text), &o->memory, &o->hf, &o->err);
}

static void expect_refused(const char *type, const char *more, int code, const char *text) {
    struct opened o;
    read_config(&o, type, more);
    if (o.rc != code || !strstr(o.err.message, text)) {
        fail_msg("code %d, \"%s\"; expected %d and \"%s\"", o.rc, o.err.message, code, text);
    }
    tw_import_free(&o.memory);
}

/* NAN: there is no such key. */
static void expect_float(const char *type, const char *more, const char *key, float expected) {
    struct opened o;
    read_config(&o, type, more);
    float value = NAN;
    if (o.rc) {
        fail_msg("%s", o.err.message);
    }
    assert_int_equal(tw_gguf_build_finish(&o.hf.build, &o.err), 0);
    assert_int_equal(tw_gguf_float(&o.hf.build.gguf, key, false, &value, NULL), 0);
    if (!(value == expected || (isnan(value) && isnan(expected)))) {
        fail_msg("%s is %g, expected %g", key, (double)value, (double)expected);
    }
    tw_import_free(&o.memory);
}

static void expect_uint(const char *type, const char *more, const char *key, uint64_t expected) {
    struct opened o;
    read_config(&o, type, more);
    uint64_t value = 0;
    if (o.rc) {
        fail_msg("%s", o.err.message);
    }
    assert_int_equal(tw_gguf_build_finish(&o.hf.build, &o.err), 0);
    assert_int_equal(tw_gguf_uint(&o.hf.build.gguf, key, true, 0, UINT64_MAX, &value, NULL), 0);
    assert_int_equal(value, expected);
    tw_import_free(&o.memory);
}

#define YARN(more) ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0" more "}"

static void numbers_of_yarn_become_keys(void **state) {
    (void)state;
    static const char *const all = "llama.rope.scaling.yarn_log_multiplier";
    expect_float("llama", YARN(", \"beta_fast\": 8"), "llama.rope.scaling.yarn_beta_fast", 8);
    expect_float("llama", YARN(", \"beta_slow\": 2"), "llama.rope.scaling.yarn_beta_slow", 2);
    expect_float("llama", YARN(""), "llama.rope.scaling.yarn_beta_fast", NAN);
    expect_float("llama", YARN(", \"mscale\": 1, \"mscale_all_dim\": 0.5"), all, 0.5f);
    /* one of the two alone does not count in transformers */
    expect_float("llama", YARN(", \"mscale_all_dim\": 0.5"), all, NAN);
    expect_float("llama", YARN(", \"mscale\": 2"), all, NAN);
    expect_float("llama", YARN(", \"mscale\": 1, \"mscale_all_dim\": 1, \"attention_factor\": 1"),
                 all, 1);
    expect_refused("llama", YARN(", \"mscale\": 2, \"mscale_all_dim\": 1"), TW_E_UNSUPPORTED,
                   "mscale of rope_scaling is 2, which is not supported (expected 1)");
    expect_refused("llama", YARN(", \"attention_factor\": 1"), TW_E_UNSUPPORTED,
                   "attention_factor of rope_scaling is 1, which is not supported (expected 1.13");
    expect_refused("llama", YARN(", \"truncate\": false"), TW_E_UNSUPPORTED,
                   "truncate of rope_scaling is false");
}

/* Elements 0 to 7 have short wavelengths and are kept, 8 is interpolated, the others are divided by
 * 8. */
static void llama3_scaling_keeps_short_waves_and_stretches_long_ones(void **state) {
    (void)state;
    static const float expected[16] = {1,
                                       0.440366596f,
                                       0.193922743f,
                                       0.0853971019f,
                                       0.0376060307f,
                                       0.0165604409f,
                                       0.00729266461f,
                                       0.00321144611f,
                                       0.000524846138f,
                                       7.78465546e-05f,
                                       3.42810235e-05f,
                                       1.50962169e-05f,
                                       6.64786967e-06f,
                                       2.92749996e-06f,
                                       1.28917316e-06f,
                                       5.6770881e-07f};
    struct opened o;
    read_config(&o, "llama",
                ", \"head_dim\": 32, \"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": "
                "\"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                "\"original_max_position_embeddings\": 8192}");
    assert_int_equal(o.rc, 0);
    for (int i = 0; i < 16; i++) {
        double found = pow(500000.0, -i / 16.0) / (double)o.hf.rope_factors[i];
        assert_true(fabs(found / (double)expected[i] - 1.0) < 2e-7);
    }
    tw_import_free(&o.memory);
    expect_refused("llama", ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 0.5}",
                   TW_E_RANGE, "rope_scaling has factor 0.5, low_freq_factor 1");
}

static void command_r_has_its_own_context_and_scale(void **state) {
    (void)state;
    expect_float("cohere", "", "command-r.logit_scale", 0.0625f);
    expect_float("cohere", ", \"logit_scale\": 0.5", "command-r.logit_scale", 0.5f);
    expect_uint("cohere", "", "command-r.context_length", 64);
    expect_uint("cohere", ", \"model_max_length\": 128", "command-r.context_length", 128);
    expect_uint("llama", ", \"model_max_length\": 128", "llama.context_length", 64);
    expect_uint("cohere2", ", \"sliding_window\": 16", "cohere2.attention.sliding_window", 16);
    expect_uint("cohere2", ", \"sliding_window_pattern\": 2",
                "cohere2.attention.sliding_window_pattern", 2);
    expect_refused("cohere2", ", \"sliding_window\": null", TW_E_UNSUPPORTED,
                   "sliding_window is null, which is not supported");
    expect_refused("cohere2", ", \"sliding_window\": 0", TW_E_UNSUPPORTED,
                   "sliding_window is 0, which is not supported");
}

static void ministral_needs_yarn(void **state) {
    (void)state;
    expect_float("ministral3", YARN(", \"llama_4_scaling_beta\": 0.25"),
                 "mistral3.attention.temperature_scale", 0.25f);
    expect_refused("ministral3", "", TW_E_UNSUPPORTED, "rope_type (none)");
    expect_refused("ministral3", YARN(", \"llama_4_scaling_beta\": -1"), TW_E_UNSUPPORTED,
                   "llama_4_scaling_beta -1, which is not supported");
    expect_refused("mistral3", "", TW_E_MISSING, "text_config is missing");
    expect_refused("mistral3", ", \"text_config\": 3", TW_E_FORMAT, "text_config is a number");
    expect_refused("mistral3", ", \"text_config\": {\"model_type\": \"x\"}", TW_E_UNSUPPORTED,
                   "model_type \"x\" is not supported");
    expect_refused("mistral3", ", \"text_config\": {}", TW_E_MISSING, "hidden_size is missing");
    expect_refused("mistral3", ", \"text_config\": {}, \"quantization_config\": {}",
                   TW_E_UNSUPPORTED, "quantization_config says");
}

/* ---- tensors ---- */

/* Adds a tensor of zeros: `shape` as in JSON. */
static int add(struct opened *o, const char *name, const char *type, const char *shape,
               size_t bytes) {
    char text[400];
    uint8_t file[1024] = {0};
    struct tw_safetensors s;
    int n = snprintf(text, sizeof text,
                     "{\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%zu]}}", name,
                     type, shape, bytes);
    file[0] = (uint8_t)n;
    file[1] = (uint8_t)(n >> 8);
    memcpy(file + 8, text, (size_t)n);
    assert_in_range(8 + (size_t)n + bytes, 0, sizeof file);
    int rc = tw_st_parse("c/m.safetensors", file, 8 + (size_t)n + bytes, &o->memory, &s, &o->err);
    return rc ? rc : tw_hf_add_tensors(&o->hf, &s, &o->err);
}

static const struct tw_gguf_tensor *last(const struct opened *o) {
    assert_true(o->hf.build.gguf.n_tensors > 0);
    return &o->hf.build.gguf.tensors[o->hf.build.gguf.n_tensors - 1];
}

/* Norms with weights of their own for each head are matrices, but F32 as all norms. */
static void norms_of_heads_become_f32(void **state) {
    (void)state;
    struct opened o;
    read_config(&o, "cohere", ", \"use_qk_norm\": true");
    assert_int_equal(o.rc, 0);
    assert_int_equal(add(&o, "model.layers.0.self_attn.q_norm.weight", "BF16", "[2,4]", 16), 0);
    const struct tw_gguf_tensor *t = last(&o);
    assert_string_equal(t->name, "blk.0.attn_q_norm.weight");
    assert_int_equal(t->type, 0);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 4);
    assert_int_equal(t->dims[1], 2);
    assert_int_equal(t->bytes, 8 * 4);
    for (int i = 1; i < 4; i++) {
        char name[80];
        snprintf(name, sizeof name, "model.layers.%d.input_layernorm.weight", i);
        assert_int_equal(add(&o, name, "F32", "[8]", 32), 0);
    }
    assert_int_equal(add(&o, "model.embed_tokens.weight", "F16", "[5,8]", 80), 0);
    assert_int_equal(tw_hf_finish_tensors(&o.hf, &o.err), TW_E_MISSING);
    assert_non_null(strstr(o.err.message, "use_qk_norm is true, but tensor"));
    tw_import_free(&o.memory);
}

static void tensors_of_the_part_for_images_are_left_out(void **state) {
    (void)state;
    static const struct {
        const char *name, *expected; /* NULL: left out; "": refused */
    } cases[] = {{"language_model.model.norm.weight", "output_norm.weight"},
                 {"model.language_model.norm.weight", "output_norm.weight"},
                 {"language_model.model.layers.3.input_layernorm.weight", "blk.3.attn_norm.weight"},
                 {"vision_tower.patch_conv.weight", NULL},
                 {"model.vision_tower.ln_pre.weight", NULL},
                 {"multi_modal_projector.norm.weight", NULL},
                 {"audio_tower.norm.weight", ""},
                 {"language_model.audio.weight", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct opened o = {.rc = 0};
        static const char text[] =
            "{\"model_type\": \"mistral3\", \"text_config\": {\"hidden_size\": 8,"
            " \"intermediate_size\": 8, \"num_hidden_layers\": 4, \"num_attention_heads\": 2,"
            " \"max_position_embeddings\": 64, \"vocab_size\": 5, \"rms_norm_eps\": 1e-5}}";
        assert_int_equal(
            tw_hf_read_config("c/config.json", text, strlen(text), &o.memory, &o.hf, &o.err), 0);
        int rc = add(&o, cases[i].name, "F32", "[8]", 32);
        if (cases[i].expected && *cases[i].expected) {
            assert_int_equal(rc, 0);
            assert_string_equal(last(&o)->name, cases[i].expected);
        } else {
            assert_int_equal(rc, cases[i].expected ? TW_E_UNSUPPORTED : 0);
            assert_int_equal(o.hf.build.gguf.n_tensors, 0);
        }
        tw_import_free(&o.memory);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_yarn_become_keys),
        cmocka_unit_test(llama3_scaling_keeps_short_waves_and_stretches_long_ones),
        cmocka_unit_test(command_r_has_its_own_context_and_scale),
        cmocka_unit_test(ministral_needs_yarn),
        cmocka_unit_test(norms_of_heads_become_f32),
        cmocka_unit_test(tensors_of_the_part_for_images_are_left_out),
    };
    return cmocka_run_group_tests_name("config.json", tests, NULL, NULL);
}
