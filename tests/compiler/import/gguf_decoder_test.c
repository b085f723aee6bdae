/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of what a decoder's keys and tensors mean: complete small models of import_kit.h with one
 * key or tensor changed. The changes follow ../shared/data/variants/mkvariants.py, whose
 * expectations come from other implementations.
 */
#include "compiler/arch/arch.h"
#include "tests/compiler/import_kit_model.h"

/* ---- accepted ---- */

static void a_complete_model_is_imported(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    accept(&o, &k);
    const struct tw_hparams *h = &o.model.h;
    assert_string_equal(o.model.arch, "llama");
    assert_string_equal(o.model.name, "kit");
    assert_string_equal(o.model.license, "CC0-1.0");
    assert_int_equal(h->n_vocab, KIT_VOCAB);
    assert_int_equal(h->n_ctx_train, 128);
    assert_int_equal(h->dim, KIT_DIM);
    assert_int_equal(h->n_layers, KIT_LAYERS);
    assert_int_equal(h->n_heads, KIT_HEADS);
    assert_int_equal(h->n_kv_heads, KIT_KV_HEADS);
    assert_int_equal(h->head_dim, 8);
    assert_int_equal(h->hidden, KIT_HIDDEN);
    assert_int_equal(h->rope_dims, 8);
    assert_true(h->norm_eps == 1e-6f && h->rope_theta == 10000.0f);
    assert_int_equal(h->rope_pairing, TW_ROPE_INTERLEAVED);
    assert_int_equal(h->rope_scaling, TW_ROPE_SCALING_NONE);
    assert_null(h->rope_freq_factors);
    assert_false(o.model.tied);
    assert_int_equal(o.model.n_tensors, 3 + 9 * KIT_LAYERS);
    for (uint32_t i = 1; i < o.model.n_tensors; i++) {
        assert_true(strcmp(o.model.tensors[i - 1].name, o.model.tensors[i].name) < 0);
    }
    const struct tw_model_tensor *k1 = tw_model_find(&o.model, "blk.1.attn_k.weight");
    assert_non_null(k1);
    assert_int_equal(k1->rows, KIT_KV_DIM);
    assert_int_equal(k1->cols, KIT_DIM);
    assert_int_equal(k1->bytes, KIT_KV_DIM * KIT_DIM * 4);
    finish(&o, &k);
}

static void keys_and_tensors_may_come_in_any_order(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    for (size_t i = 0; i < k.n_kv / 2; i++) {
        struct kit_kv swap = k.kv[i];
        k.kv[i] = k.kv[k.n_kv - 1 - i];
        k.kv[k.n_kv - 1 - i] = swap;
    }
    for (size_t i = 0; i < k.n_tensors / 2; i++) {
        struct kit_tensor swap = k.tensors[i];
        k.tensors[i] = k.tensors[k.n_tensors - 1 - i];
        k.tensors[k.n_tensors - 1 - i] = swap;
    }
    accept(&o, &k);
    assert_int_equal(o.model.n_tensors, 3 + 9 * KIT_LAYERS);
    finish(&o, &k);
}

static void weights_may_have_each_supported_type(void **state) {
    (void)state;
    static const struct {
        uint32_t number;
        enum tw_dtype dtype;
    } types[] = {
        {0, TW_DT_F32}, {1, TW_DT_F16}, {30, TW_DT_BF16}, {8, TW_DT_Q8_0}, {2, TW_DT_Q4_0}};
    for (size_t i = 0; i < 5; i++) {
        struct kit k;
        struct opened o;
        kit_llama(&k);
        kit_tensor(&k, "blk.0.ffn_down.weight", types[i].number, KIT_HIDDEN, KIT_DIM);
        accept(&o, &k);
        const struct tw_model_tensor *t = tw_model_find(&o.model, "blk.0.ffn_down.weight");
        assert_int_equal(t->dtype, types[i].dtype);
        assert_int_equal(t->bytes, KIT_DIM * tw_row_bytes(t->dtype, KIT_HIDDEN));
        finish(&o, &k);
    }
}

static void a_missing_output_or_embedding_means_tied(void **state) {
    (void)state;
    static const char *const dropped[] = {"output.weight", "token_embd.weight"};
    for (size_t i = 0; i < 2; i++) {
        struct kit k;
        struct opened o;
        kit_llama(&k);
        kit_drop_tensor(&k, dropped[i]);
        accept(&o, &k);
        assert_true(o.model.tied);
        assert_non_null(tw_model_find(&o.model, "token_embd.weight"));
        assert_null(tw_model_find(&o.model, "output.weight"));
        finish(&o, &k);
    }
}

static void integer_keys_may_have_any_integer_type(void **state) {
    (void)state;
    static const uint32_t types[] = {2, 3, 4, 5, 10, 11};
    for (size_t i = 0; i < 6; i++) {
        struct kit k;
        struct opened o;
        kit_llama(&k);
        kit_int(&k, "llama.context_length", types[i], 512);
        accept(&o, &k);
        assert_int_equal(o.model.h.n_ctx_train, 512);
        finish(&o, &k);
    }
}

static void rope_scaling_follows_type_factor_and_the_old_key(void **state) {
    (void)state;
    static const struct {
        const char *type;
        float factor, old;
        enum tw_rope_scaling scaling;
        float expected;
    } cases[] = {
        {"linear", 2, 0, TW_ROPE_SCALING_LINEAR, 2}, {NULL, 0, 4, TW_ROPE_SCALING_LINEAR, 4},
        {NULL, 3, 4, TW_ROPE_SCALING_LINEAR, 3},     {"none", 2, 0, TW_ROPE_SCALING_NONE, 0},
        {"linear", 1, 0, TW_ROPE_SCALING_NONE, 0},   {"linear", 0, 0, TW_ROPE_SCALING_NONE, 0},
    };
    for (size_t i = 0; i < 6; i++) {
        struct kit k;
        struct opened o;
        kit_llama(&k);
        if (cases[i].type) {
            kit_string(&k, "llama.rope.scaling.type", cases[i].type);
        }
        if (cases[i].factor > 0) {
            kit_f32(&k, "llama.rope.scaling.factor", cases[i].factor);
        }
        if (cases[i].old > 0) {
            kit_f32(&k, "llama.rope.scale_linear", cases[i].old);
        }
        accept(&o, &k);
        assert_int_equal(o.model.h.rope_scaling, cases[i].scaling);
        assert_true(o.model.h.rope_factor == cases[i].expected);
        finish(&o, &k);
    }
}

static void rope_base_and_partial_rotation_are_read(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    kit_f32(&k, "llama.rope.freq_base", 500000.0f);
    kit_u32(&k, "llama.rope.dimension_count", 4);
    accept(&o, &k);
    assert_true(o.model.h.rope_theta == 500000.0f);
    assert_int_equal(o.model.h.rope_dims, 4);
    finish(&o, &k);
}

static void rope_frequency_factors_are_copied(void **state) {
    (void)state;
    static const float factors[4] = {1, 1.5f, 4, 8};
    struct kit k;
    struct opened o;
    kit_llama(&k);
    kit_tensor(&k, "rope_freqs.weight", 0, 4, 1);
    k.tensors[k.n_tensors - 1].data = factors;
    accept(&o, &k);
    assert_non_null(o.model.h.rope_freq_factors);
    assert_memory_equal(o.model.h.rope_freq_factors, factors, sizeof factors);
    finish(&o, &k);
}

static void a_head_size_of_its_own_is_read(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    kit_u32(&k, "llama.attention.key_length", 16);
    kit_u32(&k, "llama.attention.value_length", 16);
    for (unsigned layer = 0; layer < KIT_LAYERS; layer++) {
        static const struct {
            const char *name;
            uint64_t d0, d1;
        } parts[] = {{"attn_q", KIT_DIM, 64},
                     {"attn_k", KIT_DIM, 32},
                     {"attn_v", KIT_DIM, 32},
                     {"attn_output", 64, KIT_DIM}};
        for (size_t i = 0; i < 4; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s.weight", layer, parts[i].name);
            kit_tensor(&k, name, 0, parts[i].d0, parts[i].d1);
        }
    }
    accept(&o, &k);
    assert_int_equal(o.model.h.head_dim, 16);
    assert_int_equal(o.model.h.rope_dims, 16);
    finish(&o, &k);
}

static void neutral_values_of_unsupported_keys_are_accepted(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    kit_u32(&k, "llama.expert_count", 0);
    kit_u32(&k, "llama.attention.sliding_window", 128);
    kit_f32(&k, "llama.logit_scale", 1.0f);
    kit_bool(&k, "llama.attention.causal", 1);
    kit_u32(&k, "split.count", 1);
    kit_string(&k, "general.type", "model");
    accept(&o, &k);
    finish(&o, &k);
}

static void products_may_have_biases(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    kit_tensor(&k, "blk.0.attn_k.bias", 0, KIT_KV_DIM, 1);
    kit_tensor(&k, "blk.1.ffn_up.bias", 0, KIT_HIDDEN, 1);
    accept(&o, &k);
    const struct tw_model_tensor *bias = tw_model_find(&o.model, "blk.1.ffn_up.bias");
    assert_non_null(bias);
    assert_true(bias->rows == 1 && bias->cols == KIT_HIDDEN);
    assert_non_null(tw_model_find(&o.model, "blk.0.attn_k.bias"));
    finish(&o, &k);
}

/* Makes the kit's model one of another architecture: its keys are renamed. */
static void rename_arch(struct kit *k, const char *arch) {
    for (size_t i = 0; i < k->n_kv; i++) {
        if (strncmp(k->kv[i].key, "llama.", 6) == 0) {
            char rest[80];
            snprintf(rest, sizeof rest, "%s.%.60s", arch, k->kv[i].key + 6);
            snprintf(k->kv[i].key, sizeof k->kv[i].key, "%s", rest);
        }
    }
    kit_string(k, "general.architecture", arch);
}

static void factors_that_overflow_are_refused(void **state) {
    (void)state;
    struct kit k;
    kit_llama(&k);
    rename_arch(&k, "granite");
    kit_f32(&k, "granite.logit_scale", 1e-45f);
    expect_refused(&k, TW_E_RANGE, "the keys of granite give a factor of the logits");
    kit_llama(&k);
    rename_arch(&k, "mistral3");
    kit_f32(&k, "mistral3.attention.temperature_scale", 1e30f);
    expect_refused(&k, TW_E_RANGE, "the keys of mistral3 give a factor of the queries");
    kit_llama(&k);
    kit_string(&k, "llama.rope.scaling.type", "yarn");
    kit_f32(&k, "llama.rope.scaling.factor", 8.0f);
    kit_f32(&k, "llama.rope.scaling.yarn_log_multiplier", -1.0f / 0.207944154f);
    kit_f32(&k, "llama.rope.scaling.yarn_beta_fast", -1.0f);
    expect_refused(&k, TW_E_RANGE, "key llama.rope.scaling.yarn_beta_fast is -1");
}

/* A pattern of windows is a number, or a flag for each layer. */
static void windows_follow_their_pattern(void **state) {
    static const uint8_t flags[KIT_LAYERS] = {0, 1};
    (void)state;
    for (int array = 0; array < 2; array++) {
        struct kit k;
        struct opened o;
        kit_llama(&k);
        rename_arch(&k, "cohere2");
        kit_f32(&k, "cohere2.attention.layer_norm_epsilon", 1e-5f);
        for (uint32_t n = 0; n < KIT_LAYERS; n++) {
            char name[80];
            snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", n);
            kit_drop_tensor(&k, name);
        }
        kit_u32(&k, "cohere2.attention.sliding_window", 5);
        if (array) {
            kit_array(&k, "cohere2.attention.sliding_window_pattern", TW_GGUF_BOOL, KIT_LAYERS,
                      flags, sizeof flags);
        } else {
            kit_u32(&k, "cohere2.attention.sliding_window_pattern", 2);
        }
        accept(&o, &k);
        for (uint32_t n = 0; n < KIT_LAYERS; n++) {
            const struct tw_layer l = tw_layer_of(&o.model.h, n);
            bool window = array ? n == 1 : n == 0;
            assert_int_equal(l.window, window ? 5 : 0);
            assert_int_equal(l.rope, window ? TW_LAYER_ROPE_MODEL : TW_LAYER_ROPE_NONE);
        }
        finish(&o, &k);
    }
}

/* The largest Gemmas have their own scale, which no key tells. */
static void the_largest_gemmas_scale_scores_by_their_width(void **state) {
    static const struct {
        int (*describe)(struct tw_arch_source *);
        uint32_t n_layers, dim, n_heads;
        float expected;
    } cases[] = {{tw_arch_gemma2, 46, 4608, 32, 0.083333333f},
                 {tw_arch_gemma2, 42, 3584, 16, 0},
                 {tw_arch_gemma3, 62, 5376, 32, 0.077151675f},
                 {tw_arch_gemma3, 48, 3840, 16, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct tw_gguf none = {.path = "t.gguf"};
        struct tw_layer layers[62] = {{0}};
        struct tw_hparams h = {.n_layers = cases[i].n_layers,
                               .dim = cases[i].dim,
                               .n_heads = cases[i].n_heads,
                               .head_dim = 128,
                               .layers = layers};
        tw_error err = {0};
        struct tw_arch_source s = {
            .gguf = &none, .arch = "gemma", .h = &h, .layers = layers, .err = &err};
        assert_int_equal(cases[i].describe(&s), 0);
        assert_true(h.attention_scale <= cases[i].expected * 1.0001f &&
                    h.attention_scale >= cases[i].expected * 0.9999f);
    }
}

/* Without a key for it, a window is the one that the architecture has. */
static void a_window_that_no_key_gives_is_the_usual_one(void **state) {
    (void)state;
    const struct tw_gguf none = {.path = "t.gguf"};
    struct tw_layer layers[64] = {{0}};
    struct tw_hparams h = {.n_layers = 64, .dim = 64, .n_heads = 2, .layers = layers};
    tw_error err = {0};
    struct tw_arch_source s = {
        .gguf = &none, .arch = "exaone4", .h = &h, .layers = layers, .err = &err};
    assert_int_equal(tw_arch_exaone4(&s), 0);
    assert_int_equal(layers[0].window, 4096);
    assert_int_equal(layers[3].window, 0);
    assert_int_equal(layers[3].rope, TW_LAYER_ROPE_NONE);
}

/* q, k and v in one tensor, gate and up in another, are cut by rows. */
static void tensors_of_several_parts_are_cut(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    kit_llama(&k);
    rename_arch(&k, "phi3");
    for (uint32_t n = 0; n < KIT_LAYERS; n++) {
        static const char *const parts[] = {"attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"};
        char name[80];
        for (size_t i = 0; i < 5; i++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", n, parts[i]);
            kit_drop_tensor(&k, name);
        }
        snprintf(name, sizeof name, "blk.%u.attn_qkv.weight", n);
        kit_tensor(&k, name, 0, KIT_DIM, KIT_DIM + 2 * KIT_KV_DIM);
        snprintf(name, sizeof name, "blk.%u.ffn_up.weight", n);
        kit_tensor(&k, name, 0, KIT_DIM, 2 * KIT_HIDDEN);
    }
    accept(&o, &k);
    const struct tw_model_tensor *q = tw_model_find(&o.model, "blk.1.attn_q.weight"),
                                 *v = tw_model_find(&o.model, "blk.1.attn_v.weight"),
                                 *gate = tw_model_find(&o.model, "blk.1.ffn_gate.weight"),
                                 *up = tw_model_find(&o.model, "blk.1.ffn_up.weight");
    assert_true(q && v && gate && up);
    assert_true(v->rows == KIT_KV_DIM && v->bytes == KIT_KV_DIM * KIT_DIM * 4);
    assert_true(v->data == q->data + (KIT_DIM + KIT_KV_DIM) * KIT_DIM * 4);
    assert_true(gate->rows == KIT_HIDDEN && up->data == gate->data + KIT_HIDDEN * KIT_DIM * 4);
    finish(&o, &k);
}

/* ---- refused ---- */

static void another_architecture_is_named(void **state) {
    (void)state;
    struct kit k;
    kit_llama(&k);
    kit_string(&k, "general.architecture", "qwen99moe");
    expect_refused(&k, TW_E_UNSUPPORTED, "architecture \"qwen99moe\" is not supported");
    kit_llama(&k);
    kit_drop(&k, "general.architecture");
    expect_refused(&k, TW_E_MISSING, "key general.architecture is missing");
    kit_llama(&k);
    kit_string(&k, "general.type", "adapter");
    expect_refused(&k, TW_E_UNSUPPORTED, "key general.type is \"adapter\"");
    kit_llama(&k);
    kit_int(&k, "split.count", 2, 3);
    expect_refused(&k, TW_E_UNSUPPORTED, "key split.count is 3");
}

static void reversed_dimensions_are_refused_with_found_and_expected_shape(void **state) {
    (void)state;
    struct kit k;
    kit_llama(&k);
    kit_tensor(&k, "token_embd.weight", 0, KIT_VOCAB, KIT_DIM);
    /* the shape says more than the missing key */
    kit_drop(&k, "llama.attention.layer_norm_rms_epsilon");
    expect_refused(&k, TW_E_SHAPE, "tensor token_embd.weight has shape [9, 32], expected [32, 9]");
    kit_llama(&k);
    kit_tensor(&k, "blk.1.attn_k.weight", 0, KIT_KV_DIM, KIT_DIM);
    expect_refused(&k, TW_E_SHAPE,
                   "tensor blk.1.attn_k.weight has shape [16, 32], expected [32, 16]");
    kit_llama(&k);
    kit_tensor(&k, "output_norm.weight", 0, 33, 1);
    expect_refused(&k, TW_E_SHAPE, "tensor output_norm.weight has shape [33], expected [32]");
}

static void missing_tensors_are_named(void **state) {
    (void)state;
    static const char *const dropped[] = {"output_norm.weight", "blk.0.attn_norm.weight",
                                          "blk.1.ffn_down.weight"};
    for (size_t i = 0; i < 3; i++) {
        struct kit k;
        kit_llama(&k);
        kit_drop_tensor(&k, dropped[i]);
        expect_refused(&k, TW_E_MISSING, dropped[i]);
    }
    struct kit k;
    kit_llama(&k);
    kit_drop_tensor(&k, "token_embd.weight");
    kit_drop_tensor(&k, "output.weight");
    expect_refused(&k, TW_E_MISSING, "tensor token_embd.weight is missing");
    kit_llama(&k);
    /* defaults to head_count, which then does not fit */
    kit_drop(&k, "llama.attention.head_count_kv");
    expect_refused(&k, TW_E_SHAPE,
                   "tensor blk.0.attn_k.weight has shape [32, 16], expected [32, 32]");
}

static void required_keys_are_named_when_missing(void **state) {
    (void)state;
    static const char *const keys[] = {
        "llama.context_length",       "llama.embedding_length",
        "llama.block_count",          "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < 6; i++) {
        struct kit k;
        kit_llama(&k);
        kit_drop(&k, keys[i]);
        expect_refused(&k, TW_E_MISSING, keys[i]);
    }
}

static void sizes_outside_their_range_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *key;
        int64_t value;
        const char *part;
    } cases[] = {
        {"llama.context_length", 0, "key llama.context_length is 0, expected 1 to"},
        {"llama.context_length", INT32_MAX, "is 2147483647, expected 1 to"},
        {"llama.block_count", 4097, "key llama.block_count is 4097, expected 1 to 4096"},
        {"llama.embedding_length", -1, "key llama.embedding_length is -1"},
        {"llama.attention.head_count", 0, "key llama.attention.head_count is 0"},
        {"llama.attention.head_count_kv", 0, "key llama.attention.head_count_kv is 0"},
        {"llama.attention.head_count_kv", 3,
         "key llama.attention.head_count_kv is 3, expected a divisor of"},
        {"llama.attention.head_count_kv", 8,
         "key llama.attention.head_count_kv is 8, expected a divisor of"},
        {"llama.attention.head_count", 6,
         "key llama.embedding_length is 32, expected a multiple of"},
        {"llama.rope.dimension_count", 7,
         "key llama.rope.dimension_count is 7, expected an even number"},
        {"llama.rope.dimension_count", 10,
         "key llama.rope.dimension_count is 10, expected an even number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kit k;
        kit_llama(&k);
        kit_int(&k, cases[i].key, 11, cases[i].value);
        expect_refused(&k, TW_E_RANGE, cases[i].part);
    }
}

static void sizes_may_have_a_value_for_each_layer(void **state) {
    (void)state;
    static const char *const keys[] = {"llama.attention.head_count_kv",
                                       "llama.attention.head_count", "llama.feed_forward_length"};
    static const uint32_t values[][KIT_LAYERS + 1] = {
        {KIT_KV_HEADS, KIT_KV_HEADS, 1}, {KIT_HEADS, KIT_HEADS, 1}, {KIT_HIDDEN, KIT_HIDDEN, 1}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct kit k;
        struct opened o;
        for (uint32_t type = TW_GGUF_U32; type <= TW_GGUF_I32; type++) {
            kit_llama(&k);
            kit_array(&k, keys[i], type, KIT_LAYERS, values[i], KIT_LAYERS * sizeof values[0][0]);
            accept(&o, &k);
            for (uint32_t n = 0; n < KIT_LAYERS; n++) {
                const struct tw_layer l = tw_layer_of(&o.model.h, n);
                assert_int_equal(l.n_kv_heads, KIT_KV_HEADS);
                assert_int_equal(l.n_heads, KIT_HEADS);
                assert_int_equal(l.hidden, KIT_HIDDEN);
            }
            finish(&o, &k);
        }
        kit_llama(&k); /* more values than layers: malformed */
        kit_array(&k, keys[i], TW_GGUF_U32, KIT_LAYERS + 1, values[i], sizeof values[i]);
        expect_refused(&k, TW_E_FORMAT, "is an array of u32, expected an integer");
        kit_llama(&k); /* a layer without */
        uint32_t none[KIT_LAYERS] = {values[i][0], 0};
        kit_array(&k, keys[i], TW_GGUF_U32, KIT_LAYERS, none, sizeof none);
        expect_refused(&k, TW_E_RANGE, "element 1 of key llama.");
    }
}

/* Layers of different widths: the tensors of each must fit its own. */
static void layers_of_different_widths_are_checked_each(void **state) {
    (void)state;
    static const uint32_t widths[KIT_LAYERS] = {KIT_HIDDEN, KIT_HIDDEN / 2};
    struct kit k;
    struct opened o;
    kit_llama(&k);
    kit_array(&k, "llama.feed_forward_length", TW_GGUF_U32, KIT_LAYERS, widths, sizeof widths);
    expect_refused(&k, TW_E_SHAPE, "tensor blk.1.ffn_gate.weight has shape [32, 64], expected");
    kit_llama(&k);
    kit_array(&k, "llama.feed_forward_length", TW_GGUF_U32, KIT_LAYERS, widths, sizeof widths);
    kit_tensor(&k, "blk.1.ffn_gate.weight", 0, KIT_DIM, KIT_HIDDEN / 2);
    kit_tensor(&k, "blk.1.ffn_up.weight", 0, KIT_DIM, KIT_HIDDEN / 2);
    kit_tensor(&k, "blk.1.ffn_down.weight", 0, KIT_HIDDEN / 2, KIT_DIM);
    accept(&o, &k);
    assert_int_equal(o.model.h.hidden, KIT_HIDDEN);
    assert_int_equal(tw_layer_of(&o.model.h, 1).hidden, KIT_HIDDEN / 2);
    finish(&o, &k);
}

static void numbers_outside_their_range_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *key;
        const char *value;
    } cases[] = {
        {"llama.attention.layer_norm_rms_epsilon", "nan"},
        {"llama.attention.layer_norm_rms_epsilon", "inf"},
        {"llama.attention.layer_norm_rms_epsilon", "-1"},
        {"llama.rope.freq_base", "0"},
        {"llama.rope.freq_base", "-10000"},
        {"llama.rope.scaling.factor", "0"},
        {"llama.rope.scaling.factor", "-2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kit k;
        kit_llama(&k);
        kit_f32(&k, cases[i].key, strtof(cases[i].value, NULL));
        expect_refused(&k, TW_E_RANGE, cases[i].key);
    }
    struct kit k;
    kit_llama(&k);
    kit_f32(&k, "llama.attention.layer_norm_rms_epsilon", 0.0f);
    struct opened o;
    accept(&o, &k);
    finish(&o, &k);
}

static void features_that_change_the_result_are_refused_by_name(void **state) {
    (void)state;
    struct kit k;
    kit_llama(&k);
    kit_string(&k, "llama.rope.scaling.type", "su");
    expect_refused(&k, TW_E_UNSUPPORTED, "key llama.rope.scaling.type is \"su\"");
    kit_llama(&k);
    kit_u32(&k, "llama.expert_count", 8);
    expect_refused(&k, TW_E_UNSUPPORTED, "key llama.expert_count is 8");
    kit_llama(&k);
    kit_f32(&k, "llama.attention.scale", 0.5f);
    expect_refused(&k, TW_E_UNSUPPORTED, "key llama.attention.scale is 0.5");
    kit_llama(&k);
    kit_bool(&k, "llama.attention.causal", 0);
    expect_refused(&k, TW_E_UNSUPPORTED, "key llama.attention.causal is false");
    kit_llama(&k);
    kit_f32(&k, "llama.logit_scale", 2.0f);
    expect_refused(&k, TW_E_UNSUPPORTED, "key llama.logit_scale is 2");
    kit_llama(&k);
    kit_u32(&k, "llama.attention.key_length", 8);
    kit_u32(&k, "llama.attention.value_length", 16);
    expect_refused(&k, TW_E_UNSUPPORTED, "key llama.attention.value_length is 16");
    kit_llama(&k);
    kit_array(&k, "llama.attention.head_count", 4, 1, "\4\0\0\0", 4);
    expect_refused(&k, TW_E_FORMAT,
                   "key llama.attention.head_count is an array of u32, expected an integer");
}

static void extra_tensors_are_refused_by_name(void **state) {
    (void)state;
    struct kit k;
    kit_llama(&k);
    kit_tensor(&k, "blk.0.attn_sinks.weight", 0, KIT_HEADS, 1);
    expect_refused(&k, TW_E_UNSUPPORTED, "tensor blk.0.attn_sinks.weight is not part of a llama");
    kit_llama(&k);
    kit_tensor(&k, "blk.0.attn_norm.bias", 0, KIT_DIM, 1);
    expect_refused(&k, TW_E_UNSUPPORTED, "tensor blk.0.attn_norm.bias is not part of a llama");
    kit_llama(&k);
    kit_tensor(&k, "blk.0.attn_k.bias", 0, KIT_DIM, 1);
    expect_refused(&k, TW_E_SHAPE, "tensor blk.0.attn_k.bias has shape [32], expected [16]");
    kit_llama(&k);
    kit_u32(&k, "llama.block_count", 1);
    expect_refused(&k, TW_E_FORMAT, "key llama.block_count is 1, but there is a tensor blk.1.");
    kit_llama(&k);
    kit_tensor(&k, "blk.0.attn_rot_embd.weight", 0, 4, 1);
    struct opened o;
    accept(&o, &k);
    finish(&o, &k);
}

static void unsupported_weight_types_are_refused_by_name(void **state) {
    (void)state;
    struct kit k;
    kit_llama(&k);
    kit_tensor(&k, "blk.1.ffn_up.weight", 24, KIT_DIM, KIT_HIDDEN);
    expect_refused(&k, TW_E_UNSUPPORTED,
                   "tensor blk.1.ffn_up.weight has type I8, which is not supported");
    kit_llama(&k);
    kit_tensor(&k, "blk.1.ffn_norm.weight", 8, KIT_DIM, 1);
    expect_refused(&k, TW_E_UNSUPPORTED, "vector blk.1.ffn_norm.weight has type Q8_0");
}

static void bad_rope_factors_are_refused(void **state) {
    (void)state;
    static const float zero[4] = {1, 0, 1, 1};
    struct kit k;
    kit_llama(&k);
    kit_tensor(&k, "rope_freqs.weight", 0, 3, 1);
    expect_refused(&k, TW_E_SHAPE, "tensor rope_freqs.weight has shape [3], expected [4]");
    kit_llama(&k);
    kit_tensor(&k, "rope_freqs.weight", 0, 4, 1);
    k.tensors[k.n_tensors - 1].data = zero;
    expect_refused(&k, TW_E_RANGE, "element 1 of tensor rope_freqs.weight is 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_complete_model_is_imported),
        cmocka_unit_test(keys_and_tensors_may_come_in_any_order),
        cmocka_unit_test(weights_may_have_each_supported_type),
        cmocka_unit_test(a_missing_output_or_embedding_means_tied),
        cmocka_unit_test(integer_keys_may_have_any_integer_type),
        cmocka_unit_test(rope_scaling_follows_type_factor_and_the_old_key),
        cmocka_unit_test(rope_base_and_partial_rotation_are_read),
        cmocka_unit_test(rope_frequency_factors_are_copied),
        cmocka_unit_test(a_head_size_of_its_own_is_read),
        cmocka_unit_test(neutral_values_of_unsupported_keys_are_accepted),
        cmocka_unit_test(products_may_have_biases),
        cmocka_unit_test(tensors_of_several_parts_are_cut),
        cmocka_unit_test(factors_that_overflow_are_refused),
        cmocka_unit_test(windows_follow_their_pattern),
        cmocka_unit_test(the_largest_gemmas_scale_scores_by_their_width),
        cmocka_unit_test(a_window_that_no_key_gives_is_the_usual_one),
        cmocka_unit_test(another_architecture_is_named),
        cmocka_unit_test(reversed_dimensions_are_refused_with_found_and_expected_shape),
        cmocka_unit_test(missing_tensors_are_named),
        cmocka_unit_test(required_keys_are_named_when_missing),
        cmocka_unit_test(sizes_outside_their_range_are_refused),
        cmocka_unit_test(sizes_may_have_a_value_for_each_layer),
        cmocka_unit_test(layers_of_different_widths_are_checked_each),
        cmocka_unit_test(numbers_outside_their_range_are_refused),
        cmocka_unit_test(features_that_change_the_result_are_refused_by_name),
        cmocka_unit_test(extra_tensors_are_refused_by_name),
        cmocka_unit_test(unsupported_weight_types_are_refused_by_name),
        cmocka_unit_test(bad_rope_factors_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
