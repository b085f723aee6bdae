/* SPDX-License-Identifier: Apache-2.0
 *
 * Imports a llama model from a GGUF file (import.h): keys become hyperparameters, tensors are
 * matched against the table of llama_parts.h, and everything that would change the result but is
 * not supported is refused by name.
 */
#include "compiler/import/ggml_type.h"
#include "compiler/import/hparams.h"
#include "compiler/import/import.h"
#include "compiler/import/llama_parts.h"
#include "loader/base/assert.h"

#include <inttypes.h>
#include <string.h>

#define MAX_TEXT_BYTES 1024u

struct importer {
    const struct tw_gguf *gguf;
    struct tw_import_memory *memory;
    struct tw_model *model;
    struct tw_model_tensor *tensors; /* model->tensors, writable */
    bool *used;                      /* by index of gguf->tensors */
    tw_error *err;
};

static const struct tw_hparam_names names = {
    .dim = "key llama.embedding_length",
    .heads = "key llama.attention.head_count",
    .kv_heads = "key llama.attention.head_count_kv",
    .head_dim = "key llama.attention.key_length",
    .rope_dims = "key llama.rope.dimension_count",
    .eps = "key llama.attention.layer_norm_rms_epsilon",
    .theta = "key llama.rope.freq_base",
};

/* ---- kind of file ---- */

static bool text_is(const char *text, uint64_t length, const char *expected) {
    return length == strlen(expected) && memcmp(text, expected, (size_t)length) == 0;
}

static int shown(uint64_t length) {
    return length < 80 ? (int)length : 80;
}

static int check_split(const struct importer *im) {
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

static int check_kind(const struct importer *im) {
    const char *text = NULL;
    uint64_t length = 0;
    int rc = tw_gguf_string(im->gguf, "general.type", false, &text, &length, im->err);
    if (rc == 0 && text && !text_is(text, length, "model")) {
        rc = tw_fail(im->err, TW_E_UNSUPPORTED,
                     "%s: key general.type is \"%.*s\", expected \"model\"", im->gguf->path,
                     shown(length), text);
    }
    rc = rc ? rc : tw_gguf_string(im->gguf, "general.architecture", true, &text, &length, im->err);
    if (rc == 0 && !text_is(text, length, "llama")) {
        rc = tw_fail(im->err, TW_E_UNSUPPORTED,
                     "%s: architecture \"%.*s\" is not supported, expected \"llama\"",
                     im->gguf->path, shown(length), text);
    }
    im->model->arch = "llama";
    return rc;
}

/* Keys of models related to llama. If absent or neutral they change nothing; any other value would
 * change the result and is not supported. */
static int check_neutral_uint(const struct importer *im, const char *key) {
    uint64_t value = 0;
    int rc = tw_gguf_uint(im->gguf, key, false, 0, UINT64_MAX, &value, im->err);
    if (rc == 0 && value != 0) {
        rc = tw_fail(im->err, TW_E_UNSUPPORTED,
                     "%s: key %s is %" PRIu64 ", which is not supported (expected 0)",
                     im->gguf->path, key, value);
    }
    return rc;
}

static int check_neutral_float(const struct importer *im, const char *key, float neutral) {
    float value = neutral;
    int rc = tw_gguf_float(im->gguf, key, false, &value, im->err);
    if (rc == 0 && value != neutral && value != 0.0f) {
        rc = tw_fail(im->err, TW_E_UNSUPPORTED,
                     "%s: key %s is %g, which is not supported (expected %g)", im->gguf->path, key,
                     (double)value, (double)neutral);
    }
    return rc;
}

static int check_neutral_bool(const struct importer *im, const char *key, bool neutral) {
    bool value = neutral;
    int rc = tw_gguf_bool(im->gguf, key, &value, im->err);
    if (rc == 0 && value != neutral) {
        rc = tw_fail(im->err, TW_E_UNSUPPORTED, "%s: key %s is %s, which is not supported",
                     im->gguf->path, key, value ? "true" : "false");
    }
    return rc;
}

static int check_features(const struct importer *im) {
    static const struct {
        const char *key;
        float neutral;
    } floats[] = {
        {"llama.attention.scale", 0.0f},          {"llama.attention.clamp_kqv", 0.0f},
        {"llama.attention.max_alibi_bias", 0.0f}, {"llama.attn_logit_softcapping", 0.0f},
        {"llama.final_logit_softcapping", 0.0f},  {"llama.logit_scale", 1.0f},
        {"llama.residual_scale", 1.0f},           {"llama.embedding_scale", 1.0f},
        {"llama.rope.scaling.attn_factor", 1.0f},
    };
    int rc = check_neutral_uint(im, "llama.expert_count");
    rc = rc ? rc : check_neutral_bool(im, "llama.attention.causal", true);
    rc = rc ? rc : check_neutral_bool(im, "llama.use_parallel_residual", false);
    for (size_t i = 0; i < sizeof floats / sizeof floats[0] && rc == 0; i++) {
        rc = check_neutral_float(im, floats[i].key, floats[i].neutral);
    }
    return rc;
}

/* ---- hyperparameters ---- */

static int read_size(const struct importer *im, const char *key, bool needed, uint32_t max,
                     uint32_t *out) {
    uint64_t value = *out;
    int rc = tw_gguf_uint(im->gguf, key, needed, 1, max, &value, im->err);
    *out = (uint32_t)value;
    return rc;
}

/* Reads a size that related models may give for each layer, as an array with an entry for each. */
static int read_layers_size(const struct importer *im, const char *key, bool needed, uint32_t max,
                            uint32_t *out) {
    const struct tw_gguf_kv *kv = tw_gguf_find(im->gguf, key);
    bool integers = kv && kv->type == TW_GGUF_ARRAY &&
                    (kv->elem_type == TW_GGUF_U32 || kv->elem_type == TW_GGUF_I32 ||
                     kv->elem_type == TW_GGUF_U64 || kv->elem_type == TW_GGUF_I64);
    if (integers && kv->count == im->model->h.n_layers) {
        return tw_fail(im->err, TW_E_UNSUPPORTED,
                       "%s: key %s has a value for each layer, which is not supported (expected "
                       "one number for all)",
                       im->gguf->path, key);
    }
    return read_size(im, key, needed, max, out);
}

/* The number of tokens according to the metadata; 0 if it has none. */
static int read_declared_vocab(const struct importer *im, uint64_t *out) {
    const struct tw_gguf_kv *tokens;
    *out = 0;
    int rc =
        tw_gguf_array(im->gguf, "tokenizer.ggml.tokens", false, TW_GGUF_STRING, &tokens, im->err);
    if (rc == 0 && tokens) {
        *out = tokens->count;
        return 0;
    }
    return rc ? rc
              : tw_gguf_uint(im->gguf, "llama.vocab_size", false, 1, TW_MAX_VOCAB, out, im->err);
}

static bool is_matrix(const struct tw_gguf_tensor *t) {
    return t->n_dims >= 2 && t->dims[2] == 1 && t->dims[3] == 1;
}

/* The vocabulary's size is the embedding's row count. This comes first because a file whose
 * dimensions are in the wrong order, or whose embedding_length is wrong, shows it here with the
 * clearest message. */
static int read_vocab_size(const struct importer *im) {
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

/* Keys and values must have the same head size, as in every llama. */
static int read_head_dim(const struct importer *im) {
    uint32_t key = 0, value = 0;
    int rc = read_size(im, "llama.attention.key_length", false, TW_MAX_HEAD_DIM, &key);
    rc = rc ? rc : read_size(im, "llama.attention.value_length", false, TW_MAX_HEAD_DIM, &value);
    if (rc == 0 && key == 0) {
        struct tw_hparams *h = &im->model->h;
        key = value && h->dim % h->n_heads == 0 ? h->dim / h->n_heads : 0;
    }
    if (rc == 0 && value != 0 && value != key) {
        rc = tw_fail(im->err, TW_E_UNSUPPORTED,
                     "%s: key llama.attention.value_length is %u and the keys' length is %u, "
                     "expected the same",
                     im->gguf->path, value, key);
    }
    im->model->h.head_dim = key;
    return rc;
}

static int read_window(const struct importer *im) {
    uint64_t window = 0;
    int rc = tw_gguf_uint(im->gguf, "llama.attention.sliding_window", false, 0, UINT64_MAX, &window,
                          im->err);
    if (rc == 0 && window != 0 && window < im->model->h.n_ctx_train) {
        rc = tw_fail(im->err, TW_E_UNSUPPORTED,
                     "%s: key llama.attention.sliding_window is %" PRIu64
                     ", which is not supported (expected 0 or at least llama.context_length, %u)",
                     im->gguf->path, window, im->model->h.n_ctx_train);
    }
    return rc;
}

static int read_sizes(const struct importer *im) {
    struct tw_hparams *h = &im->model->h;
    int rc = read_size(im, "llama.embedding_length", true, TW_MAX_DIM, &h->dim);
    rc = rc ? rc : read_vocab_size(im);
    rc = rc ? rc : read_size(im, "llama.context_length", true, TW_MAX_CTX, &h->n_ctx_train);
    rc = rc ? rc : read_size(im, "llama.block_count", true, TW_MAX_LAYERS, &h->n_layers);
    rc = rc ? rc
            : read_layers_size(im, "llama.feed_forward_length", true, TW_MAX_HIDDEN, &h->hidden);
    rc = rc ? rc
            : read_layers_size(im, "llama.attention.head_count", true, TW_MAX_HEADS, &h->n_heads);
    h->n_kv_heads = h->n_heads;
    rc = rc ? rc
            : read_layers_size(im, "llama.attention.head_count_kv", false, TW_MAX_HEADS,
                               &h->n_kv_heads);
    rc = rc ? rc : read_head_dim(im);
    rc = rc ? rc
            : read_size(im, "llama.rope.dimension_count", false, TW_MAX_HEAD_DIM, &h->rope_dims);
    rc = rc ? rc : read_window(im);
    return rc ? rc : tw_hparams_check_sizes(im->gguf->path, &names, h, im->err);
}

/* As llama.cpp reads it: the type defaults to linear, the factor to the old key and then to 1. */
static int read_rope_scaling(const struct importer *im) {
    struct tw_hparams *h = &im->model->h;
    const char *type = "linear";
    uint64_t length = strlen(type);
    float factor = 1.0f;
    int rc = tw_gguf_string(im->gguf, "llama.rope.scaling.type", false, &type, &length, im->err);
    rc = rc ? rc : tw_gguf_float(im->gguf, "llama.rope.scale_linear", false, &factor, im->err);
    rc = rc ? rc : tw_gguf_float(im->gguf, "llama.rope.scaling.factor", false, &factor, im->err);
    if (rc || text_is(type, length, "none")) {
        return rc;
    }
    if (!text_is(type, length, "linear")) {
        return tw_fail(
            im->err, TW_E_UNSUPPORTED,
            "%s: key llama.rope.scaling.type is \"%.*s\", expected \"none\" or \"linear\"",
            im->gguf->path, shown(length), type);
    }
    if (factor <= 0.0f) {
        return tw_fail(im->err, TW_E_RANGE,
                       "%s: key llama.rope.scaling.factor is %g, expected a number above 0",
                       im->gguf->path, (double)factor);
    }
    if (factor != 1.0f) {
        h->rope_scaling = TW_ROPE_SCALING_LINEAR;
        h->rope_factor = factor;
    }
    return 0;
}

static int read_numbers(const struct importer *im) {
    struct tw_hparams *h = &im->model->h;
    h->rope_theta = 10000.0f;
    h->rope_pairing = TW_ROPE_INTERLEAVED; /* GGUF writers permute llama's q and k to this */
    int rc = tw_gguf_float(im->gguf, "llama.attention.layer_norm_rms_epsilon", true, &h->rms_eps,
                           im->err);
    rc = rc ? rc : tw_gguf_float(im->gguf, "llama.rope.freq_base", false, &h->rope_theta, im->err);
    rc = rc ? rc : tw_hparams_check_numbers(im->gguf->path, &names, h, im->err);
    return rc ? rc : read_rope_scaling(im);
}

static int read_text(const struct importer *im, const char *key, const char **out) {
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
static int read_chat(const struct importer *im) {
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

/* ---- tensors ---- */

static int check_shape(const struct importer *im, const struct tw_gguf_tensor *t, uint32_t rows,
                       uint32_t cols) {
    char found[TW_GGUF_SHAPE_BYTES];
    bool plain = t->n_dims >= 1 && t->dims[2] == 1 && t->dims[3] == 1;
    if (plain && t->dims[0] == cols && t->dims[1] == rows) {
        return 0;
    }
    tw_gguf_shape_text(t, found);
    if (rows == 1) {
        return tw_fail(im->err, TW_E_SHAPE, "%s: tensor %s has shape %s, expected [%u]",
                       im->gguf->path, t->name, found, cols);
    }
    return tw_fail(im->err, TW_E_SHAPE, "%s: tensor %s has shape %s, expected [%u, %u]",
                   im->gguf->path, t->name, found, cols, rows);
}

static int check_type(const struct importer *im, const struct tw_gguf_tensor *t, bool vector) {
    const struct tw_ggml_type *type = tw_ggml_type_of(t->type);
    if (type->dtype < 0) {
        return tw_fail(im->err, TW_E_UNSUPPORTED,
                       "%s: tensor %s has type %s, which is not supported (expected F32, F16, "
                       "BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS or "
                       "MXFP4)",
                       im->gguf->path, t->name, type->name);
    }
    if (vector && type->block_elems != 1) {
        return tw_fail(
            im->err, TW_E_UNSUPPORTED,
            "%s: vector %s has type %s, which is not supported (expected F32, F16 or BF16)",
            im->gguf->path, t->name, type->name);
    }
    return 0;
}

/* Checks tensor `t` as `part` and appends it under `name`. */
static int add_tensor(struct importer *im, const struct tw_gguf_tensor *t, enum tw_llama_part part,
                      const char *name) {
    uint32_t rows, cols;
    TW_ASSERT(t); /* the caller has found it */
    tw_part_shape(part, &im->model->h, &rows, &cols);
    int rc = check_shape(im, t, rows, cols);
    rc = rc ? rc : check_type(im, t, rows == 1);
    if (rc) {
        return rc;
    }
    const char *copy = tw_import_text(im->memory, name, strlen(name));
    if (!copy) {
        return tw_fail(im->err, TW_E_NOMEM, "%s: no memory for the tensor table", im->gguf->path);
    }
    im->used[t - im->gguf->tensors] = true;
    im->tensors[im->model->n_tensors++] = (struct tw_model_tensor){
        .name = copy,
        .rows = rows,
        .cols = cols,
        .dtype = (enum tw_dtype)tw_ggml_type_of(t->type)->dtype,
        .data = t->data,
        .bytes = t->bytes,
        .file = t->file,
        .head_rows = t->head_rows,
    };
    return 0;
}

static int add_part(struct importer *im, enum tw_llama_part part, uint32_t layer) {
    char name[TW_PART_NAME_BYTES];
    tw_part_name(part, layer, name);
    const struct tw_gguf_tensor *t = tw_gguf_find_tensor(im->gguf, name);
    if (!t) {
        return tw_fail(im->err, TW_E_MISSING, "%s: tensor %s is missing", im->gguf->path, name);
    }
    return add_tensor(im, t, part, name);
}

/* Embedding and output may be stored once, under either name: then both are the same matrix. */
static int add_embedding(struct importer *im) {
    const struct tw_gguf_tensor *embedding = tw_gguf_find_tensor(im->gguf, "token_embd.weight");
    const struct tw_gguf_tensor *output = tw_gguf_find_tensor(im->gguf, "output.weight");
    im->model->tied = !embedding || !output;
    int rc = add_tensor(im, embedding ? embedding : output, TW_PART_EMBEDDING, "token_embd.weight");
    if (rc == 0 && !im->model->tied) {
        rc = add_tensor(im, output, TW_PART_OUTPUT, "output.weight");
    }
    return rc;
}

/* Reads the divisors of the rotary frequencies (GGUF's form of llama-3's scaling), copied because
 * the file's copy may be unaligned. */
static int add_rope_factors(struct importer *im) {
    const struct tw_gguf_tensor *t = tw_gguf_find_tensor(im->gguf, "rope_freqs.weight");
    uint32_t count = im->model->h.rope_dims / 2;
    if (!t) {
        return 0;
    }
    int rc = check_shape(im, t, 1, count);
    if (rc == 0 && t->type != 0) {
        rc = tw_fail(im->err, TW_E_UNSUPPORTED, "%s: tensor %s has type %s, expected F32",
                     im->gguf->path, t->name, tw_ggml_type_of(t->type)->name);
    }
    if (rc) {
        return rc;
    }
    float *factors = tw_import_alloc(im->memory, count, sizeof *factors);
    if (!factors) {
        return tw_fail(im->err, TW_E_NOMEM, "%s: no memory for tensor %s", im->gguf->path, t->name);
    }
    const struct tw_model_tensor tensor = {.data = t->data, .file = t->file};
    rc = tw_model_read(&tensor, 0, factors, count * sizeof *factors, im->err);
    if (rc) {
        return rc;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!(factors[i] > 0.0f) || factors[i] > 1e30f) {
            return tw_fail(im->err, TW_E_RANGE,
                           "%s: element %u of tensor %s is %g, expected a number above 0",
                           im->gguf->path, i, t->name, (double)factors[i]);
        }
    }
    im->used[t - im->gguf->tensors] = true;
    im->model->h.rope_freq_factors = factors;
    return 0;
}

/* Returns the layer number of "blk.N.rest", or -1; *rest is set after the second dot. */
static int64_t layer_of(const char *name, const char **rest) {
    int64_t layer = 0;
    const char *p = name + 4;
    if (strncmp(name, "blk.", 4) != 0 || *p < '0' || *p > '9') {
        return -1;
    }
    for (; *p >= '0' && *p <= '9' && layer <= TW_MAX_LAYERS; p++) {
        layer = layer * 10 + (*p - '0');
    }
    *rest = p + 1;
    return *p == '.' ? layer : -1;
}

static int refuse_extra(const struct importer *im, const struct tw_gguf_tensor *t) {
    const char *rest = "";
    int64_t layer = layer_of(t->name, &rest);
    if (layer >= (int64_t)im->model->h.n_layers) {
        return tw_fail(im->err, TW_E_FORMAT,
                       "%s: key llama.block_count is %u, but there is a tensor %s", im->gguf->path,
                       im->model->h.n_layers, t->name);
    }
    if (layer >= 0 && strncmp(rest, "attn_rot_embd", 13) == 0) {
        return 0; /* rotary frequencies stored by old converters; they are computed from the keys */
    }
    return tw_fail(im->err, TW_E_UNSUPPORTED,
                   "%s: tensor %s is not part of a plain llama model; ignoring it would "
                   "change the result",
                   im->gguf->path, t->name);
}

static int read_tensors(struct importer *im) {
    const struct tw_hparams *h = &im->model->h;
    im->tensors = tw_part_alloc(im->memory, h);
    im->used = tw_import_alloc(im->memory, im->gguf->n_tensors, sizeof *im->used);
    if (!im->tensors || !im->used) {
        return tw_fail(im->err, TW_E_NOMEM, "%s: no memory for the tensor table", im->gguf->path);
    }
    im->model->tensors = im->tensors;
    int rc = add_embedding(im);
    rc = rc ? rc : add_part(im, TW_PART_OUTPUT_NORM, 0);
    for (uint32_t layer = 0; layer < h->n_layers; layer++) {
        for (int part = TW_PART_ATTN_NORM; part < TW_PART_COUNT && rc == 0; part++) {
            rc = add_part(im, (enum tw_llama_part)part, layer);
        }
    }
    rc = rc ? rc : add_rope_factors(im);
    for (uint64_t i = 0; i < im->gguf->n_tensors && rc == 0; i++) {
        if (!im->used[i]) {
            rc = refuse_extra(im, &im->gguf->tensors[i]);
        }
    }
    if (rc == 0) {
        tw_part_sort(im->tensors, im->model->n_tensors);
    }
    return rc;
}

static int import(const struct tw_gguf *gguf, struct tw_import_memory *memory, struct tw_model *out,
                  tw_error *err) {
    struct importer im = {.gguf = gguf, .memory = memory, .model = out, .err = err};
    int rc = check_split(&im);
    rc = rc ? rc : check_kind(&im);
    rc = rc ? rc : check_features(&im);
    rc = rc ? rc : read_sizes(&im);
    rc = rc ? rc : read_tensors(&im);
    rc = rc ? rc : read_numbers(&im);
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
