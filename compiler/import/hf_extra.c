/* SPDX-License-Identifier: Apache-2.0
 *
 * What single architectures have in config.json besides (hf.h): factors, caps, windows by layer,
 * layers that do not rotate.
 */
#include "compiler/import/hf_config.h"
#include "compiler/import/hparams.h"

#include <math.h>
#include <string.h>

/* Puts a float under a key if the config has it. */
static int copy_float(struct tw_hf_config *c, const char *name, const char *key) {
    float value = 0.0f;
    bool there = json_is_number(json_object_get(c->json, name));
    int rc = tw_json_float(c->path, c->json, name, false, &value, c->err);
    if (rc == 0 && there) {
        tw_gguf_put_float(&c->hf->build, key, value);
    }
    return rc;
}

/* ---- kinds of layers ---- */

/* Checks that exactly every nth layer is `whole` in an array of the layers' kinds. */
static bool every_nth(const json_t *kinds, uint32_t n, bool (*is_whole)(const json_t *kind)) {
    const json_t *kind;
    size_t i;
    json_array_foreach(kinds, i, kind) {
        if (is_whole(kind) != (i % n == n - 1)) {
            return false;
        }
    }
    return true;
}

static bool is_full(const json_t *kind) {
    const char *text = json_string_value(kind);
    return !text || strcmp(text, "sliding_attention") != 0;
}

static bool is_zero(const json_t *kind) {
    return json_is_integer(kind) && json_integer_value(kind) == 0;
}

/* Checks that there is a kind for each layer, and that it is one of the two. */
static int check_kinds(struct tw_hf_config *c, json_t *kinds) {
    size_t i;
    json_t *kind;
    if (kinds && json_array_size(kinds) != c->hf->n_layers) {
        return tw_fail(c->err, TW_E_SHAPE, "%s: layer_types has %zu entries, expected %u", c->path,
                       json_array_size(kinds), c->hf->n_layers);
    }
    json_array_foreach(kinds, i, kind) {
        const char *text = json_string_value(kind);
        if (!text || (strcmp(text, "full_attention") && strcmp(text, "sliding_attention"))) {
            return tw_fail(
                c->err, TW_E_UNSUPPORTED,
                "%s: entry %zu of layer_types is %.40s, which is not supported (expected "
                "full_attention or sliding_attention)",
                c->path, i, text ? text : "no string");
        }
    }
    return 0;
}

/* layer_types says which layers have a window; GGUF says only that every nth has none. */
static int read_layer_types(struct tw_hf_config *c) {
    json_t *kinds = NULL;
    uint64_t period = c->hf->arch->window_period, first = 0;
    int rc = tw_json_array(c->path, c->json, "layer_types", &kinds, c->err);
    rc = rc ? rc : check_kinds(c, kinds);
    if (rc == 0 && !json_is_string(json_object_get(c->json, "sliding_window_pattern"))) {
        rc = tw_json_uint(c->path, c->json, "sliding_window_pattern", false, 1, TW_MAX_LAYERS,
                          &period, c->err); /* as text, "LLLG", it says no more than layer_types */
    }
    while (kinds && first < json_array_size(kinds) && !is_full(json_array_get(kinds, first))) {
        first++;
    }
    if (kinds && first < json_array_size(kinds)) {
        period = first + 1;
    } else if (kinds) {
        period = (uint64_t)c->hf->n_layers + 1; /* all have one */
    }
    if (rc == 0 && kinds && first < json_array_size(kinds) &&
        !every_nth(kinds, (uint32_t)period, is_full)) {
        rc =
            tw_fail(c->err, TW_E_UNSUPPORTED,
                    "%s: layer_types is not full_attention in every %uth layer alone, which is not "
                    "supported",
                    c->path, (uint32_t)period);
    }
    if (rc == 0 && period != c->hf->arch->window_period) {
        tw_gguf_put_uint(&c->hf->build, ".attention.sliding_window_pattern", (uint32_t)period);
    }
    return rc;
}

/* ---- architectures ---- */

/* In a config null means no cap; GGUF has no word for it. */
static int check_caps(struct tw_hf_config *c) {
    static const char *const names[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    bool gemma2 = strcmp(c->hf->arch->gguf, "gemma2") == 0;
    for (size_t i = 0; i < 2 && gemma2; i++) {
        if (json_is_null(json_object_get(c->json, names[i]))) {
            return tw_fail(c->err, TW_E_UNSUPPORTED,
                           "%s: %s is null, which is not supported (expected a number)", c->path,
                           names[i]);
        }
    }
    return 0;
}

/* Scores are scaled by the head size; a config may ask for another one. */
static int check_query_scale(struct tw_hf_config *c) {
    float scalar = (float)c->hf->head_dim;
    int rc = tw_json_float(c->path, c->json, "query_pre_attn_scalar", false, &scalar, c->err);
    if (rc == 0 && scalar != (float)c->hf->head_dim) {
        rc = tw_fail(c->err, TW_E_UNSUPPORTED,
                     "%s: query_pre_attn_scalar is %g, which is not supported (expected head_dim, "
                     "%u)",
                     c->path, (double)scalar, c->hf->head_dim);
    }
    return rc;
}

static int read_gemma(struct tw_hf_config *c) {
    json_t *parameters = NULL, *sliding = NULL;
    float local = 10000.0f;
    int rc = check_query_scale(c);
    rc = rc ? rc : check_caps(c);
    rc = rc ? rc : copy_float(c, "final_logit_softcapping", ".final_logit_softcapping");
    rc = rc ? rc : copy_float(c, "attn_logit_softcapping", ".attn_logit_softcapping");
    rc = rc ? rc : read_layer_types(c);
    if (rc || strcmp(c->hf->arch->gguf, "gemma3") != 0) {
        return rc;
    }
    rc = tw_json_object(c->path, c->json, "rope_parameters", &parameters, c->err);
    rc = rc ? rc : tw_json_object(c->path, parameters, "sliding_attention", &sliding, c->err);
    rc = rc ? rc : tw_json_float(c->path, c->json, "rope_local_base_freq", false, &local, c->err);
    rc = rc ? rc : tw_json_float(c->path, sliding, "rope_theta", false, &local, c->err);
    tw_gguf_put_float(&c->hf->build, ".rope.freq_base_swa", local);
    return rc;
}

static int read_granite(struct tw_hf_config *c) {
    int rc = copy_float(c, "embedding_multiplier", ".embedding_scale");
    rc = rc ? rc : copy_float(c, "attention_multiplier", ".attention.scale");
    rc = rc ? rc : copy_float(c, "residual_multiplier", ".residual_scale");
    return rc ? rc : copy_float(c, "logits_scaling", ".logit_scale");
}

/* The fourth layer of each four does not rotate, whatever the config says. */
static int read_smollm3(struct tw_hf_config *c) {
    json_t *kinds = NULL;
    uint64_t interval = 4;
    int rc = tw_json_array(c->path, c->json, "no_rope_layers", &kinds, c->err);
    rc = rc ? rc
            : tw_json_uint(c->path, c->json, "no_rope_layer_interval", false, 1, TW_MAX_LAYERS,
                           &interval, c->err);
    bool as_expected = kinds ? every_nth(kinds, 4, is_zero) : interval == 4;
    return rc || as_expected
               ? rc
               : tw_fail(c->err, TW_E_UNSUPPORTED,
                         "%s: no_rope_layers is not 0 for every fourth layer alone, which is not "
                         "supported",
                         c->path);
}

static int read_stablelm(struct tw_hf_config *c) {
    bool parallel = false;
    int rc = tw_json_bool(c->path, c->json, "use_parallel_residual", &parallel, c->err);
    tw_gguf_put_bool(&c->hf->build, ".use_parallel_residual", parallel);
    return rc;
}

static int read_hunyuan(struct tw_hf_config *c) {
    float alpha = 0.0f;
    int rc = tw_json_float(c->path, c->rope, "alpha", false, &alpha, c->err);
    if (rc == 0 && alpha > 0.0f) {
        tw_gguf_put_float(&c->hf->build, ".rope.scaling.alpha", alpha);
    }
    return rc;
}

static int read_cohere(struct tw_hf_config *c) {
    float scale = 0.0625f;
    int rc = tw_json_float(c->path, c->json, "logit_scale", false, &scale, c->err);
    rc = rc ? rc : tw_json_bool(c->path, c->json, "use_qk_norm", &c->hf->qk_norm, c->err);
    tw_gguf_put_float(&c->hf->build, ".logit_scale", scale);
    return rc;
}

/* Layers with a window rotate, the others do not; without a window none would. */
static int read_cohere2(struct tw_hf_config *c) {
    const json_t *window = json_object_get(c->json, "sliding_window");
    if (json_is_null(window) || (json_is_integer(window) && json_integer_value(window) == 0)) {
        return tw_fail(c->err, TW_E_UNSUPPORTED,
                       "%s: sliding_window is %s, which is not supported (expected a number above "
                       "0)",
                       c->path, json_is_null(window) ? "null" : "0");
    }
    int rc = read_cohere(c);
    return rc ? rc : read_layer_types(c);
}

/* Queries grow with their position in steps of the original context, which YaRN has. */
static int read_ministral3(struct tw_hf_config *c) {
    const char *type = "(none)";
    float beta = 0.0f;
    int rc = tw_json_float(c->path, c->rope, "llama_4_scaling_beta", false, &beta, c->err);
    rc = rc ? rc : tw_json_text(c->path, c->rope, "rope_type", false, &type, c->err);
    if (rc == 0 && (strcmp(type, "yarn") != 0 || beta < 0.0f)) {
        rc =
            tw_fail(c->err, TW_E_UNSUPPORTED,
                    "%s: rope_parameters has rope_type %.40s and llama_4_scaling_beta %g, which is "
                    "not supported (expected yarn and a number from 0 on)",
                    c->path, type, (double)beta);
    }
    tw_gguf_put_float(&c->hf->build, ".attention.temperature_scale", beta);
    return rc;
}

int tw_hf_read_extra(struct tw_hf_config *c) {
    static const struct {
        const char *gguf;
        int (*read)(struct tw_hf_config *);
    } extra[] = {
        {"gemma2", read_gemma},      {"gemma3", read_gemma},          {"granite", read_granite},
        {"smollm3", read_smollm3},   {"olmo2", read_layer_types},     {"exaone4", read_layer_types},
        {"stablelm", read_stablelm}, {"hunyuan-dense", read_hunyuan}, {"command-r", read_cohere},
        {"cohere2", read_cohere2},   {"mistral3", read_ministral3}};
    for (size_t i = 0; i < sizeof extra / sizeof extra[0]; i++) {
        if (strcmp(c->hf->arch->gguf, extra[i].gguf) == 0) {
            return extra[i].read(c);
        }
    }
    return 0;
}

/* ---- factors of long contexts ---- */

static int read_factors(struct tw_hf_config *c, const char *name, float **out) {
    json_t *array = NULL;
    uint32_t n = c->hf->rope_dims / 2;
    int rc = tw_json_array(c->path, c->rope, name, &array, c->err);
    if (rc == 0 && json_array_size(array) != n) {
        rc = tw_fail(c->err, TW_E_SHAPE, "%s: %s has %zu elements, expected %u", c->path, name,
                     json_array_size(array), n);
    }
    *out = rc ? NULL : tw_import_alloc(c->hf->build.memory, n + 1, sizeof **out);
    c->hf->build.failed = c->hf->build.failed || (rc == 0 && !*out);
    for (uint32_t i = 0; *out && i < n && rc == 0; i++) {
        double value = json_number_value(json_array_get(array, i));
        (*out)[i] = (float)value;
        if (!(value > 0.0 && value < 1e30)) {
            rc =
                tw_fail(c->err, TW_E_RANGE, "%s: element %u of %s is %g, expected a number above 0",
                        c->path, i, name, value);
        }
    }
    return rc;
}

int tw_hf_read_longrope(struct tw_hf_config *c) {
    uint64_t original = 0;
    int rc = tw_json_uint(c->path, c->json, "original_max_position_embeddings", false, 2,
                          TW_MAX_CTX, &original, c->err);
    rc = rc ? rc
            : tw_json_uint(c->path, c->rope, "original_max_position_embeddings", original == 0, 2,
                           TW_MAX_CTX, &original, c->err);
    rc = rc ? rc : read_factors(c, "long_factor", &c->hf->long_factors);
    rc = rc ? rc : read_factors(c, "short_factor", &c->hf->short_factors);
    if (rc) {
        return rc;
    }
    double scale = (double)c->n_positions / (double)original;
    float factor = scale > 1.0 ? (float)sqrt(1.0 + log(scale) / log((double)original)) : 1.0f;
    rc = tw_json_float(c->path, c->rope, "attention_factor", false, &factor, c->err);
    tw_gguf_put_uint(&c->hf->build, ".rope.scaling.original_context_length", (uint32_t)original);
    tw_gguf_put_float(&c->hf->build, ".rope.scaling.attn_factor", factor);
    return rc;
}
