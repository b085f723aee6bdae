/* SPDX-License-Identifier: Apache-2.0
 *
 * Imports a decoder from a GGUF file (import.h): keys become its description, the file of its
 * architecture (compiler/arch/) sets the rest, tensors are matched against it, and everything that
 * would change the result but is not supported is refused by name.
 */
#include "compiler/arch/arch.h"
#include "compiler/import/bytes.h"
#include "compiler/import/gguf_import.h"
#include "compiler/import/hparams.h"
#include "compiler/import/import.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_TEXT_BYTES 1024u

/* ---- kind of file ---- */

static bool text_is(const char *text, uint64_t length, const char *expected) {
    return length == strlen(expected) && memcmp(text, expected, (size_t)length) == 0;
}

static int check_split(const struct tw_importer *im) {
    uint64_t count = 1, number = 0;
    int rc = tw_gguf_uint(im->gguf, "split.count", false, 0, UINT16_MAX, &count, im->err);
    rc = rc ? rc : tw_gguf_uint(im->gguf, "split.no", false, 0, UINT16_MAX, &number, im->err);
    if (rc == 0 && count > 1 && im->gguf->n_parts == 1) {
        rc = tw_fail(im->err, TW_E_UNSUPPORTED,
                     "%s: key split.count is %" PRIu64 ": this is part %" PRIu64
                     " of a split model, expected all of them",
                     im->gguf->path, count, number + 1);
    }
    return rc;
}

static int check_kind(struct tw_importer *im) {
    const char *text = NULL;
    uint64_t length = 0;
    int rc = tw_gguf_string(im->gguf, "general.type", false, &text, &length, im->err);
    if (rc == 0 && text && !text_is(text, length, "model")) {
        rc = tw_fail(im->err, TW_E_UNSUPPORTED,
                     "%s: key general.type is \"%.*s\", expected \"model\"", im->gguf->path,
                     tw_import_shown(length), text);
    }
    rc = rc ? rc : tw_gguf_string(im->gguf, "general.architecture", true, &text, &length, im->err);
    if (rc) {
        return rc;
    }
    im->model->arch = tw_arch_find(text, length);
    return im->model->arch ? 0 : tw_arch_refuse(im->gguf->path, text, length, im->err);
}

/* ---- numbers that all architectures have ---- */

static bool is_integer(uint32_t type) {
    return type == TW_GGUF_U32 || type == TW_GGUF_I32 || type == TW_GGUF_U64 || type == TW_GGUF_I64;
}

static uint64_t element(const struct tw_gguf_kv *kv, uint32_t i) {
    bool wide = kv->elem_type == TW_GGUF_U64 || kv->elem_type == TW_GGUF_I64;
    const uint8_t *at = kv->value + (size_t)i * (wide ? 8 : 4);
    return wide ? tw_load_u64(at) : tw_load_u32(at);
}

/* The numbers of layers that may differ. */
enum of_layer { HEADS, KV_HEADS, HIDDEN };

static uint32_t *number_of(struct tw_layer *l, enum of_layer which) {
    return which == HEADS ? &l->n_heads : which == KV_HEADS ? &l->n_kv_heads : &l->hidden;
}

/* Reads a size that is one number, or an array with an entry for each layer. *max becomes the
 * largest. */
static int read_layers_size(struct tw_importer *im, const char *name, bool needed, uint32_t limit,
                            enum of_layer which, uint32_t *max) {
    struct tw_arch_source *s = &im->source;
    char key[TW_ARCH_KEY_BYTES];
    const struct tw_gguf_kv *kv = tw_gguf_find(im->gguf, tw_arch_key(s, name, key));
    bool each =
        kv && kv->type == TW_GGUF_ARRAY && is_integer(kv->elem_type) && kv->count == s->h->n_layers;
    int rc = each ? 0 : tw_arch_uint(s, name, needed, 1, limit, max);
    if (rc) {
        return rc;
    }
    uint32_t largest = each ? 0 : *max;
    for (uint32_t i = 0; i < s->h->n_layers; i++) {
        uint64_t value = each ? element(kv, i) : *max;
        if (value < 1 || value > limit) {
            return tw_fail(im->err, TW_E_RANGE,
                           "%s: element %u of key %s is %" PRIu64 ", expected 1 to %u",
                           im->gguf->path, i, key, value, limit);
        }
        *number_of(&s->layers[i], which) = (uint32_t)value;
        largest = value > largest ? (uint32_t)value : largest;
    }
    *max = largest;
    return 0;
}

/* The number of tokens according to the metadata; 0 if it has none. */
static int read_declared_vocab(const struct tw_importer *im, uint64_t *out) {
    const struct tw_gguf_kv *tokens;
    char key[TW_ARCH_KEY_BYTES];
    *out = 0;
    int rc =
        tw_gguf_array(im->gguf, "tokenizer.ggml.tokens", false, TW_GGUF_STRING, &tokens, im->err);
    if (rc == 0 && tokens) {
        *out = tokens->count;
        return 0;
    }
    return rc ? rc
              : tw_gguf_uint(im->gguf, tw_arch_key(&im->source, "vocab_size", key), false, 1,
                             TW_MAX_VOCAB, out, im->err);
}

static bool is_matrix(const struct tw_gguf_tensor *t) {
    return t->n_dims >= 2 && t->dims[2] == 1 && t->dims[3] == 1;
}

/* The vocabulary's size is the embedding's row count. This comes first because a file whose
 * dimensions are in the wrong order, or whose embedding_length is wrong, shows it here with the
 * clearest message. */
static int read_vocab_size(const struct tw_importer *im) {
    struct tw_hparams *h = &im->model->h;
    const struct tw_gguf_tensor *t = tw_gguf_find_tensor(im->gguf, "token_embd.weight");
    char shape[TW_GGUF_SHAPE_BYTES];
    uint64_t declared;
    int rc = read_declared_vocab(im, &declared);
    if (rc) {
        return rc;
    }
    if (!t) {
        t = tw_gguf_find_tensor(im->gguf, "output.weight");
    }
    if (!t) {
        return tw_fail(im->err, TW_E_MISSING, "%s: tensor token_embd.weight is missing",
                       im->gguf->path);
    }
    if (is_matrix(t) && t->dims[0] == h->dim && t->dims[1] <= TW_MAX_VOCAB) {
        h->n_vocab = (uint32_t)t->dims[1];
        return 0;
    }
    tw_gguf_shape_text(t, shape);
    if (declared) {
        return tw_fail(im->err, TW_E_SHAPE,
                       "%s: tensor %s has shape %s, expected [%u, %" PRIu64 "]", im->gguf->path,
                       t->name, shape, h->dim, declared);
    }
    return tw_fail(im->err, TW_E_SHAPE,
                   "%s: tensor %s has shape %s, expected [%u, tokens] with 1 to %u tokens",
                   im->gguf->path, t->name, shape, h->dim, TW_MAX_VOCAB);
}

/* Keys and values must have the same head size. */
static int read_head_dim(struct tw_importer *im) {
    struct tw_arch_source *s = &im->source;
    struct tw_hparams *h = s->h;
    uint32_t key = 0, value = 0;
    char name[TW_ARCH_KEY_BYTES];
    int rc = tw_arch_uint(s, "attention.key_length", false, 1, TW_MAX_HEAD_DIM, &key);
    rc = rc ? rc : tw_arch_uint(s, "attention.value_length", false, 1, TW_MAX_HEAD_DIM, &value);
    if (rc == 0 && key == 0) {
        key = value && h->dim % h->n_heads == 0 ? h->dim / h->n_heads : 0;
    }
    if (rc == 0 && value != 0 && value != key) {
        rc = tw_fail(im->err, TW_E_UNSUPPORTED,
                     "%s: key %s is %u and the keys' length is %u, expected the same",
                     im->gguf->path, tw_arch_key(s, "attention.value_length", name), value, key);
    }
    h->head_dim = key;
    return rc;
}

/* A key as it is called in messages. */
static const char *spoken(struct tw_importer *im, const char *name) {
    char text[TW_ARCH_KEY_BYTES + 8], key[TW_ARCH_KEY_BYTES];
    snprintf(text, sizeof text, "key %s", tw_arch_key(&im->source, name, key));
    const char *copy = tw_import_text(im->memory, text, strlen(text));
    return copy ? copy : name;
}

static struct tw_hparam_names names(struct tw_importer *im) {
    return (struct tw_hparam_names){
        .dim = spoken(im, "embedding_length"),
        .heads = spoken(im, "attention.head_count"),
        .kv_heads = spoken(im, "attention.head_count_kv"),
        .head_dim = spoken(im, "attention.key_length"),
        .rope_dims = spoken(im, "rope.dimension_count"),
        .eps = spoken(im, im->model->h.norm == TW_NORM_LAYER ? "attention.layer_norm_epsilon"
                                                             : "attention.layer_norm_rms_epsilon"),
        .theta = spoken(im, "rope.freq_base"),
    };
}

static int make_layers(struct tw_importer *im) {
    struct tw_hparams *h = &im->model->h;
    im->source.layers = tw_import_alloc(im->memory, h->n_layers, sizeof *im->source.layers);
    h->layers = im->source.layers;
    return h->layers ? 0
                     : tw_fail(im->err, TW_E_NOMEM, "%s: no memory for %u layers", im->gguf->path,
                               h->n_layers);
}

static int read_sizes(struct tw_importer *im) {
    struct tw_arch_source *s = &im->source;
    struct tw_hparams *h = s->h;
    int rc = tw_arch_uint(s, "embedding_length", true, 1, TW_MAX_DIM, &h->dim);
    rc = rc ? rc : read_vocab_size(im);
    rc = rc ? rc : tw_arch_uint(s, "context_length", true, 1, TW_MAX_CTX, &h->n_ctx_train);
    rc = rc ? rc : tw_arch_uint(s, "block_count", true, 1, TW_MAX_LAYERS, &h->n_layers);
    rc = rc ? rc : make_layers(im);
    rc = rc ? rc
            : read_layers_size(im, "feed_forward_length", true, TW_MAX_HIDDEN, HIDDEN, &h->hidden);
    rc = rc ? rc
            : read_layers_size(im, "attention.head_count", true, TW_MAX_HEADS, HEADS, &h->n_heads);
    for (uint32_t i = 0; i < h->n_layers && rc == 0; i++) { /* where no other number is given */
        s->layers[i].n_kv_heads = s->layers[i].n_heads;
    }
    char key[TW_ARCH_KEY_BYTES];
    h->n_kv_heads = h->n_heads;
    if (rc == 0 && tw_gguf_find(im->gguf, tw_arch_key(s, "attention.head_count_kv", key))) {
        rc = read_layers_size(im, "attention.head_count_kv", false, TW_MAX_HEADS, KV_HEADS,
                              &h->n_kv_heads);
    }
    rc = rc ? rc : read_head_dim(im);
    return rc ? rc
              : tw_arch_uint(s, "rope.dimension_count", false, 1, TW_MAX_HEAD_DIM, &h->rope_dims);
}

/* YaRN (Peng and others, 2023) also enlarges what is rotated, by 1 + 0.1 ln(factor); a multiplier m
 * divides that by 1 + 0.1 m ln(factor). */
static int read_yarn(struct tw_importer *im) {
    struct tw_arch_source *s = &im->source;
    struct tw_hparams *h = s->h;
    float multiplier = 0.0f;
    h->rope_original_ctx = h->rope_original_ctx ? h->rope_original_ctx : h->n_ctx_train;
    h->rope_beta_fast = 32.0f;
    h->rope_beta_slow = 1.0f;
    int rc = tw_arch_positive(s, "rope.scaling.yarn_beta_fast", false, &h->rope_beta_fast);
    rc = rc ? rc : tw_arch_positive(s, "rope.scaling.yarn_beta_slow", false, &h->rope_beta_slow);
    rc = rc ? rc : tw_arch_float(s, "rope.scaling.yarn_log_multiplier", false, &multiplier);
    if (rc == 0 && h->rope_scaling == TW_ROPE_SCALING_YARN) {
        double grown = 0.1 * log((double)h->rope_factor);
        double magnitude = (1.0 + grown) / (1.0 + (double)multiplier * grown);
        h->rope_magnitude =
            (float)(magnitude * (h->rope_magnitude > 0.0f ? (double)h->rope_magnitude : 1.0));
    }
    return rc;
}

/* As llama.cpp reads it: the type defaults to linear, the factor to the old key and then to 1. */
static int read_rope_scaling(struct tw_importer *im) {
    struct tw_arch_source *s = &im->source;
    struct tw_hparams *h = s->h;
    char key[TW_ARCH_KEY_BYTES];
    const char *type = "linear";
    uint64_t length = strlen(type);
    float factor = 1.0f;
    int rc = tw_gguf_string(im->gguf, tw_arch_key(s, "rope.scaling.type", key), false, &type,
                            &length, im->err);
    rc = rc ? rc : tw_arch_float(s, "rope.scale_linear", false, &factor);
    rc = rc ? rc : tw_arch_float(s, "rope.scaling.factor", false, &factor);
    rc = rc ? rc : tw_arch_positive(s, "rope.scaling.attn_factor", false, &h->rope_magnitude);
    rc = rc ? rc
            : tw_arch_uint(s, "rope.scaling.original_context_length", false, 1, TW_MAX_CTX,
                           &h->rope_original_ctx);
    if (rc || text_is(type, length, "none") || text_is(type, length, "longrope")) {
        return rc; /* long factors are tensors */
    }
    bool yarn = text_is(type, length, "yarn");
    if (!yarn && !text_is(type, length, "linear")) {
        return tw_fail(im->err, TW_E_UNSUPPORTED,
                       "%s: key %s is \"%.*s\", expected \"none\", \"linear\", \"yarn\" or "
                       "\"longrope\"",
                       im->gguf->path, key, tw_import_shown(length), type);
    }
    if (factor <= 0.0f) {
        return tw_fail(im->err, TW_E_RANGE, "%s: key %s is %g, expected a number above 0",
                       im->gguf->path, tw_arch_key(s, "rope.scaling.factor", key), (double)factor);
    }
    if (factor != 1.0f) {
        h->rope_scaling = yarn ? TW_ROPE_SCALING_YARN : TW_ROPE_SCALING_LINEAR;
        h->rope_factor = factor;
    }
    return yarn ? read_yarn(im) : 0;
}

static int read_numbers(struct tw_importer *im) {
    struct tw_arch_source *s = &im->source;
    struct tw_hparams *h = s->h;
    h->rope_theta = 10000.0f;
    int rc = tw_arch_float(s, "rope.freq_base", false, &h->rope_theta);
    return rc ? rc : read_rope_scaling(im);
}

/* The epsilon has a key for each kind of norm, and which it is the architecture has said. */
static int read_epsilon(struct tw_importer *im) {
    struct tw_hparams *h = &im->model->h;
    bool layer = h->norm == TW_NORM_LAYER;
    return tw_arch_float(
        &im->source, layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
        true, &h->norm_eps);
}

/* Factors that were computed from keys, which may be any numbers. */
static int check_factors(const struct tw_importer *im) {
    const struct tw_hparams *h = &im->model->h;
    const char *what = !isfinite(h->logit_scale)          ? "logits"
                       : !isfinite(h->rope_magnitude)     ? "rotary positions"
                       : !(fabsf(h->query_slope) <= 1e6f) ? "queries by position"
                                                          : NULL;
    return what ? tw_fail(im->err, TW_E_RANGE,
                          "%s: the keys of %s give a factor of the %s that is out of range",
                          im->gguf->path, im->model->arch, what)
                : 0;
}

static int describe(struct tw_importer *im) {
    struct tw_hparam_names called = names(im);
    int rc = tw_hparams_check_sizes(im->gguf->path, &called, &im->model->h, im->err);
    rc = rc ? rc : read_numbers(im);
    rc = rc ? rc : tw_arch_describe(&im->source);
    rc = rc ? rc : check_factors(im);
    rc = rc ? rc : read_epsilon(im);
    called = names(im);
    return rc ? rc : tw_hparams_check_numbers(im->gguf->path, &called, &im->model->h, im->err);
}

static int read_text(const struct tw_importer *im, const char *key, const char **out) {
    const char *text = "";
    uint64_t length = 0;
    int rc = tw_gguf_string(im->gguf, key, false, &text, &length, im->err);
    if (rc) {
        return rc;
    }
    *out = tw_import_text(im->memory, text, length < MAX_TEXT_BYTES ? length : MAX_TEXT_BYTES);
    return *out ? 0 : tw_fail(im->err, TW_E_NOMEM, "%s: no memory for key %s", im->gguf->path, key);
}

/* The chat template; it is interpreted when a chat begins, not here. */
static int read_chat(const struct tw_importer *im) {
    static const char *const key = "tokenizer.chat_template";
    const char *text = NULL;
    uint64_t length = 0;
    int rc = tw_gguf_string(im->gguf, key, false, &text, &length, im->err);
    if (rc || !text || length == 0) {
        return rc;
    }
    if (length > TW_CHAT_BYTES_MAX || memchr(text, 0, length)) {
        return tw_fail(im->err, TW_E_RANGE,
                       "%s: key %s: %llu bytes, expected at most %u, none of them 0",
                       im->gguf->path, key, (unsigned long long)length, TW_CHAT_BYTES_MAX);
    }
    im->model->chat = tw_import_text(im->memory, text, length);
    return im->model->chat
               ? 0
               : tw_fail(im->err, TW_E_NOMEM, "%s: no memory for key %s", im->gguf->path, key);
}

static int import(const struct tw_gguf *gguf, struct tw_import_memory *memory, struct tw_model *out,
                  tw_error *err) {
    struct tw_importer im = {.gguf = gguf, .memory = memory, .model = out, .err = err};
    int rc = check_split(&im);
    rc = rc ? rc : check_kind(&im);
    im.source = (struct tw_arch_source){.gguf = gguf, .arch = out->arch, .h = &out->h, .err = err};
    rc = rc ? rc : read_sizes(&im);
    rc = rc ? rc : describe(&im);
    rc = rc ? rc : tw_import_tensors(&im);
    rc = rc ? rc : read_text(&im, "general.name", &out->name);
    rc = rc ? rc : read_text(&im, "general.license", &out->license);
    rc = rc ? rc : read_text(&im, "tokenizer.ggml.model", &out->tokenizer);
    rc = rc ? rc : read_chat(&im);
    return rc ? rc : tw_import_gguf_vocab(gguf, memory, out, err);
}

int tw_import_gguf(const char *path, const uint8_t *bytes, uint64_t size,
                   struct tw_import_memory *memory, struct tw_model *out, tw_error *err) {
    struct tw_gguf gguf;
    *out = (struct tw_model){.path = path};
    int rc = tw_gguf_parse(path, bytes, size, memory, &gguf, err);
    return rc ? rc : import(&gguf, memory, out, err);
}

int tw_import_gguf_keys(const struct tw_gguf *gguf, struct tw_import_memory *memory,
                        struct tw_model *out, tw_error *err) {
    *out = (struct tw_model){.path = gguf->path};
    return import(gguf, memory, out, err);
}
