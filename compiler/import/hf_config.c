/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of transformers as keys of a GGUF file (hf.h). Members that would change the result
 * and have no key are refused unless they have no effect.
 */
#include "compiler/import/hf_config.h"
#include "compiler/import/hparams.h"

#include <math.h>
#include <string.h>

static int read_uint(const struct tw_hf_config *c, const char *name, bool needed, uint32_t max,
                     uint32_t *out) {
    uint64_t value = *out;
    int rc = tw_json_uint(c->path, c->json, name, needed, 1, max, &value, c->err);
    *out = (uint32_t)value;
    return rc;
}

/* ---- kind of model ---- */

/* Models that take images have the config of the part for text, the only one that is read, in an
 * object of its own. */
static int read_type(struct tw_hf_config *c, const char **type) {
    json_t *text = NULL;
    int rc = tw_json_text(c->path, c->json, "model_type", true, type, c->err);
    if (rc || strcmp(*type, "mistral3") != 0) {
        return rc;
    }
    rc = tw_json_object(c->path, c->json, "text_config", &text, c->err);
    if (rc == 0 && !text) {
        rc = tw_fail(c->err, TW_E_MISSING, "%s: text_config is missing", c->path);
    }
    c->json = text;
    c->hf->wrapped = true;
    *type = "mistral"; /* as old files do not say */
    return rc ? rc : tw_json_text(c->path, c->json, "model_type", false, type, c->err);
}

static int read_arch(struct tw_hf_config *c) {
    const char *type = NULL, *method = "?";
    char list[400];
    json_t *quantisation = NULL;
    int rc = read_type(c, &type);
    rc = rc ? rc : tw_json_object(c->path, c->outer, "quantization_config", &quantisation, c->err);
    rc = rc ? rc : tw_json_text(c->path, quantisation, "quant_method", false, &method, c->err);
    if (rc) {
        return rc;
    }
    c->hf->arch = tw_hf_find_arch(type);
    if (!c->hf->arch) {
        return tw_fail(c->err, TW_E_UNSUPPORTED,
                       "%s: model_type \"%.60s\" is not supported; supported: %s", c->path, type,
                       tw_hf_arch_list(list, sizeof list));
    }
    if (quantisation) {
        return tw_fail(c->err, TW_E_UNSUPPORTED,
                       "%s: quantization_config says that the weights are quantised (%.40s), which "
                       "is not supported in safetensors; use a GGUF file",
                       c->path, method);
    }
    c->hf->build.architecture = c->hf->arch->gguf;
    tw_gguf_put_text(&c->hf->build, "general.architecture", c->hf->arch->gguf);
    return 0;
}

static int check_activation(const struct tw_hf_config *c) {
    const char *found = c->hf->arch->activation, *expected = found;
    int rc = tw_json_text(c->path, c->json, "hidden_act", false, &found, c->err);
    rc = rc ? rc : tw_json_text(c->path, c->json, "hidden_activation", false, &found, c->err);
    if (rc == 0 && strcmp(found, expected) != 0) {
        rc = tw_fail(c->err, TW_E_UNSUPPORTED,
                     "%s: hidden_act is \"%.40s\", which is not supported (expected \"%s\")",
                     c->path, found, expected);
    }
    return rc;
}

static int read_window(const struct tw_hf_config *c) {
    bool used = c->hf->arch->window == TW_HF_WINDOW_KEY;
    uint64_t window = 0;
    int rc = 0;
    if (c->hf->arch->window == TW_HF_WINDOW_SWITCH) {
        rc = tw_json_bool(c->path, c->json, "use_sliding_window", &used, c->err);
    }
    rc =
        rc ? rc
           : tw_json_uint(c->path, c->json, "sliding_window", false, 0, INT32_MAX, &window, c->err);
    if (rc == 0 && used && window) {
        tw_gguf_put_uint(&c->hf->build, ".attention.sliding_window", (uint32_t)window);
    }
    return rc;
}

/* ---- sizes ---- */

static int read_heads(const struct tw_hf_config *c) {
    struct tw_hf *hf = c->hf;
    uint32_t dim = 0;
    int rc = read_uint(c, "hidden_size", true, TW_MAX_DIM, &dim);
    rc = rc ? rc : read_uint(c, "num_attention_heads", true, TW_MAX_HEADS, &hf->n_heads);
    hf->n_kv_heads = hf->n_heads;
    rc = rc ? rc : read_uint(c, "num_key_value_heads", false, TW_MAX_HEADS, &hf->n_kv_heads);
    hf->head_dim = hf->arch->head_dim;
    rc = rc ? rc : read_uint(c, "head_dim", false, TW_MAX_HEAD_DIM, &hf->head_dim);
    if (rc) {
        return rc;
    }
    if (hf->n_kv_heads > hf->n_heads || hf->n_heads % hf->n_kv_heads != 0) {
        return tw_fail(c->err, TW_E_RANGE,
                       "%s: num_key_value_heads is %u, expected a divisor of num_attention_heads, "
                       "which is %u",
                       c->path, hf->n_kv_heads, hf->n_heads);
    }
    if (hf->head_dim == 0 && dim % hf->n_heads != 0) {
        return tw_fail(c->err, TW_E_RANGE,
                       "%s: hidden_size is %u, expected a multiple of num_attention_heads, which "
                       "is %u",
                       c->path, dim, hf->n_heads);
    }
    hf->head_dim = hf->head_dim ? hf->head_dim : dim / hf->n_heads;
    tw_gguf_put_uint(&hf->build, ".embedding_length", dim);
    tw_gguf_put_uint(&hf->build, ".attention.head_count", hf->n_heads);
    tw_gguf_put_uint(&hf->build, ".attention.head_count_kv", hf->n_kv_heads);
    tw_gguf_put_uint(&hf->build, ".attention.key_length", hf->head_dim);
    tw_gguf_put_uint(&hf->build, ".attention.value_length", hf->head_dim);
    return 0;
}

static int read_sizes(struct tw_hf_config *c) {
    struct tw_hf *hf = c->hf;
    uint32_t hidden = 0, positions = 0;
    int rc = read_heads(c);
    rc = rc ? rc : read_uint(c, "num_hidden_layers", true, TW_MAX_LAYERS, &hf->n_layers);
    rc = rc ? rc : read_uint(c, "intermediate_size", true, TW_MAX_HIDDEN, &hidden);
    rc = rc ? rc : read_uint(c, "max_position_embeddings", true, TW_MAX_CTX, &positions);
    rc = rc || !hf->arch->context ? rc
                                  : read_uint(c, hf->arch->context, false, TW_MAX_CTX, &positions);
    rc = rc ? rc : read_uint(c, "vocab_size", true, TW_MAX_VOCAB, &hf->n_vocab);
    if (rc == 0) {
        tw_gguf_put_uint(&hf->build, ".block_count", hf->n_layers);
        tw_gguf_put_uint(&hf->build, ".feed_forward_length", hidden);
        tw_gguf_put_uint(&hf->build, ".context_length", positions);
        c->n_positions = positions;
        tw_gguf_put_uint(&hf->build, ".vocab_size", hf->n_vocab);
    }
    return rc;
}

static int read_norms(const struct tw_hf_config *c) {
    float epsilon = 0.0f;
    int rc = tw_json_float(c->path, c->json, c->hf->arch->epsilon, true, &epsilon, c->err);
    if (rc == 0) {
        tw_gguf_put_float(&c->hf->build,
                          c->hf->arch->layer_norm ? ".attention.layer_norm_epsilon"
                                                  : ".attention.layer_norm_rms_epsilon",
                          epsilon);
    }
    return rc;
}

static int read_flags(const struct tw_hf_config *c) {
    struct tw_hf *hf = c->hf;
    hf->tied = hf->arch->tied;
    int rc = tw_json_bool(c->path, c->outer, "tie_word_embeddings", &hf->tied, c->err);
    rc = rc ? rc : tw_json_bool(c->path, c->json, "tie_word_embeddings", &hf->tied, c->err);
    rc = rc ? rc : tw_json_bool(c->path, c->json, "attention_bias", &hf->attention_bias, c->err);
    return rc ? rc : tw_json_bool(c->path, c->json, "mlp_bias", &hf->mlp_bias, c->err);
}

/* ---- rotary positions ---- */

/* The object is called rope_scaling, since version 5 of transformers rope_parameters; that may have
 * one object for each kind of layer. */
static int find_rope(struct tw_hf_config *c) {
    json_t *old = NULL, *new = NULL, *full = NULL;
    int rc = tw_json_object(c->path, c->json, "rope_scaling", &old, c->err);
    rc = rc ? rc : tw_json_object(c->path, c->json, "rope_parameters", &new, c->err);
    rc = rc ? rc : tw_json_object(c->path, new, "full_attention", &full, c->err);
    c->rope = full ? full : new ? new : old;
    return rc;
}

static int read_rope_base(struct tw_hf_config *c) {
    struct tw_hf *hf = c->hf;
    float partial = hf->arch->partial > 0.0f ? hf->arch->partial : 1.0f;
    c->rope_theta = hf->arch->rope_theta > 0.0f ? hf->arch->rope_theta : 10000.0f;
    int rc = tw_json_float(c->path, c->json, "rope_theta", false, &c->rope_theta, c->err);
    rc = rc ? rc : tw_json_float(c->path, c->rope, "rope_theta", false, &c->rope_theta, c->err);
    rc =
        rc ? rc : tw_json_float(c->path, c->json, "partial_rotary_factor", false, &partial, c->err);
    rc =
        rc ? rc : tw_json_float(c->path, c->rope, "partial_rotary_factor", false, &partial, c->err);
    if (rc) {
        return rc;
    }
    if (!(partial > 0.0f && partial <= 1.0f)) {
        return tw_fail(c->err, TW_E_RANGE, "%s: partial_rotary_factor is %g, expected up to 1",
                       c->path, (double)partial);
    }
    if (!(c->rope_theta > 0.0f)) {
        return tw_fail(c->err, TW_E_RANGE, "%s: rope_theta is %g, expected a number above 0",
                       c->path, (double)c->rope_theta);
    }
    hf->rope_dims = (uint32_t)((double)hf->head_dim * (double)partial);
    tw_gguf_put_float(&hf->build, ".rope.freq_base", c->rope_theta);
    tw_gguf_put_uint(&hf->build, ".rope.dimension_count", hf->rope_dims);
    return 0;
}

/* The divisors of the frequencies that Llama 3.1's scaling comes to: wavelengths longer than
 * original/low are divided by the factor, those shorter than original/high are kept, those between
 * are interpolated. In double and then rounded, as the converter computes them: of a GGUF file they
 * are the tensor rope_freqs.weight. */
static int make_llama3(const struct tw_hf_config *c) {
    float factor = 8, low = 1, high = 4;
    uint64_t original = 8192;
    struct tw_hf *hf = c->hf;
    int rc = tw_json_float(c->path, c->rope, "factor", true, &factor, c->err);
    rc = rc ? rc : tw_json_float(c->path, c->rope, "low_freq_factor", false, &low, c->err);
    rc = rc ? rc : tw_json_float(c->path, c->rope, "high_freq_factor", false, &high, c->err);
    rc = rc ? rc
            : tw_json_uint(c->path, c->rope, "original_max_position_embeddings", false, 1,
                           TW_MAX_CTX, &original, c->err);
    if (rc == 0 && !(low > 0 && high > low && factor >= 1)) {
        rc = tw_fail(c->err, TW_E_RANGE,
                     "%s: rope_scaling has factor %g, low_freq_factor %g and high_freq_factor %g, "
                     "expected at least 1, and the second above 0 and below the third",
                     c->path, (double)factor, (double)low, (double)high);
    }
    if (rc) {
        return rc;
    }
    hf->rope_factors = tw_import_alloc(hf->build.memory, hf->rope_dims / 2 + 1, sizeof(float));
    hf->build.failed = hf->build.failed || !hf->rope_factors;
    for (uint32_t i = 0; hf->rope_factors && i < hf->rope_dims / 2; i++) {
        double turns = pow((double)c->rope_theta, -2.0 * i / hf->rope_dims);
        double wave = 2 * 3.14159265358979323846 / turns, f = (double)factor;
        double smooth = ((double)original / wave - (double)low) / ((double)high - (double)low);
        double middle = 1 / ((1 - smooth) / f + smooth);
        hf->rope_factors[i] = (float)(wave < (double)original / (double)high  ? 1.0
                                      : wave > (double)original / (double)low ? f
                                                                              : middle);
    }
    return 0;
}

/* Refuses a number of YaRN for which GGUF has no key. */
static int expect_number(const struct tw_hf_config *c, const char *name, float expected) {
    float value = expected;
    int rc = tw_json_float(c->path, c->rope, name, false, &value, c->err);
    if (rc == 0 && !(fabsf(value - expected) <= 1e-5f)) {
        rc = tw_fail(c->err, TW_E_UNSUPPORTED,
                     "%s: %s of rope_scaling is %g, which is not supported (expected %g)", c->path,
                     name, (double)value, (double)expected);
    }
    return rc;
}

/* Puts a number of YaRN under a key if the config has it. */
static int copy_number(const struct tw_hf_config *c, const char *name, const char *key) {
    float value = 0.0f;
    bool there = json_is_number(json_object_get(c->rope, name));
    int rc = tw_json_float(c->path, c->rope, name, false, &value, c->err);
    if (rc == 0 && there) {
        tw_gguf_put_float(&c->hf->build, key, value);
    }
    return rc;
}

/* mscale and mscale_all_dim, which count only together, divide what is rotated by 1 + 0.1 m
 * ln(factor). */
static int read_yarn(const struct tw_hf_config *c, float factor) {
    float scale = 0.0f, all = 0.0f, grown = 0.1f * logf(factor);
    bool truncate = true;
    int rc = copy_number(c, "beta_fast", ".rope.scaling.yarn_beta_fast");
    rc = rc ? rc : copy_number(c, "beta_slow", ".rope.scaling.yarn_beta_slow");
    rc = rc ? rc : tw_json_float(c->path, c->rope, "mscale", false, &scale, c->err);
    rc = rc ? rc : tw_json_float(c->path, c->rope, "mscale_all_dim", false, &all, c->err);
    rc = rc ? rc : tw_json_bool(c->path, c->rope, "truncate", &truncate, c->err);
    bool both = scale != 0.0f && all != 0.0f;
    rc = rc || !both ? rc : expect_number(c, "mscale", 1.0f);
    float expected = (1.0f + grown) / (1.0f + (both ? all : 0.0f) * grown);
    rc = rc ? rc : expect_number(c, "attention_factor", expected);
    if (rc == 0 && !truncate) {
        rc = tw_fail(c->err, TW_E_UNSUPPORTED,
                     "%s: truncate of rope_scaling is false, which is not supported (expected "
                     "true)",
                     c->path);
    }
    if (rc == 0 && both) {
        tw_gguf_put_float(&c->hf->build, ".rope.scaling.yarn_log_multiplier", all);
    }
    return rc;
}

static int put_scaling(const struct tw_hf_config *c, const char *type) {
    float factor = 1;
    uint64_t original = 0;
    int rc = tw_json_float(c->path, c->rope, "factor", true, &factor, c->err);
    rc = rc ? rc
            : tw_json_uint(c->path, c->rope, "original_max_position_embeddings", false, 1,
                           TW_MAX_CTX, &original, c->err);
    if (rc == 0 && strcmp(type, "yarn") == 0) {
        rc = read_yarn(c, factor);
    }
    if (rc == 0) {
        tw_gguf_put_text(&c->hf->build, ".rope.scaling.type", type);
        tw_gguf_put_float(&c->hf->build, ".rope.scaling.factor", factor);
    }
    if (rc == 0 && original) {
        tw_gguf_put_uint(&c->hf->build, ".rope.scaling.original_context_length",
                         (uint32_t)original);
    }
    return rc;
}

static int read_scaling(struct tw_hf_config *c) {
    const char *type = "default";
    int rc = tw_json_text(c->path, c->rope, "type", false, &type, c->err);
    rc = rc ? rc : tw_json_text(c->path, c->rope, "rope_type", false, &type, c->err);
    if (rc || strcmp(type, "default") == 0) {
        return rc;
    }
    if (strcmp(type, "llama3") == 0) {
        return make_llama3(c);
    }
    if (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0) {
        return put_scaling(c, type);
    }
    if (strcmp(c->hf->arch->gguf, "phi3") == 0 &&
        (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0)) {
        return tw_hf_read_longrope(c);
    }
    if (strcmp(c->hf->arch->gguf, "hunyuan-dense") == 0 && strcmp(type, "dynamic") == 0) {
        return 0; /* hf_extra.c reads its factor */
    }
    return tw_fail(c->err, TW_E_UNSUPPORTED,
                   "%s: rope_scaling of rope_type \"%.40s\" is not supported (expected default, "
                   "linear, llama3 or yarn)",
                   c->path, type);
}

/* ---- whole files ---- */

static int read_all(struct tw_hf_config *c) {
    int rc = read_arch(c);
    rc = rc ? rc : check_activation(c);
    rc = rc ? rc : read_sizes(c);
    rc = rc ? rc : read_norms(c);
    rc = rc ? rc : read_flags(c);
    rc = rc ? rc : read_window(c);
    rc = rc ? rc : find_rope(c);
    rc = rc ? rc : read_rope_base(c);
    rc = rc ? rc : read_scaling(c);
    return rc ? rc : tw_hf_read_extra(c);
}

int tw_hf_read_config(const char *path, const void *bytes, uint64_t size,
                      struct tw_import_memory *memory, struct tw_hf *hf, tw_error *err) {
    json_t *json = NULL;
    *hf = (struct tw_hf){.build = {.gguf = {.path = path, .n_parts = 1}, .memory = memory}};
    int rc = tw_json_parse(path, bytes, size, &json, err);
    if (rc) {
        return rc;
    }
    struct tw_hf_config c = {.hf = hf, .path = path, .json = json, .outer = json, .err = err};
    rc = read_all(&c);
    json_decref(json);
    return rc;
}
