/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of transformers as those of a GGUF file (hf.h): their names, the order of the rows of q
 * and k, and vectors as F32, with what GGUF adds to them.
 */
#include "compiler/import/bytes.h"
#include "compiler/import/hf.h"
#include "compiler/import/hparams.h"
#include "tilewright/numerics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHOWN 80
#define NAME_BYTES 160u

/* ---- names ---- */

static bool starts(const char *text, const char *with, const char **rest) {
    size_t n = strlen(with);
    *rest = text + n;
    return strncmp(text, with, n) == 0;
}

/* Splits "model.layers.3.rest". */
static bool layer_of(const char *name, uint32_t *layer, const char **rest) {
    const char *p;
    if (!starts(name, "model.layers.", &p) || *p < '0' || *p > '9') {
        return false;
    }
    for (*layer = 0; *p >= '0' && *p <= '9' && *layer < 100000; p++) {
        *layer = *layer * 10 + (uint32_t)(*p - '0');
    }
    *rest = p + 1;
    return *p == '.';
}

/* Writes the name that a tensor has in a model for text alone; "": it has none there. */
static void unwrap(const struct tw_hf *hf, const char *name, char out[NAME_BYTES]) {
    static const char *const parts[] = {"vision_tower.", "multi_modal_projector."};
    const char *model = "", *rest;
    out[0] = 0;
    if (hf->wrapped && starts(name, "language_model.", &rest)) {
        name = rest; /* language_model.model.norm, language_model.lm_head */
    } else if (hf->wrapped && starts(name, "model.", &rest)) {
        model = starts(rest, "language_model.", &name) ? "model." : "";
        name = *model ? name : rest; /* model.language_model.norm, lm_head */
    }
    for (size_t i = 0; i < 2 && hf->wrapped; i++) {
        if (starts(name, parts[i], &rest)) {
            return;
        }
    }
    snprintf(out, NAME_BYTES, "%s%s", model, name);
}

/* Buffers that old versions wrote, which are computed. */
static bool is_ignored(const char *name) {
    size_t n = strlen(name), tail = strlen(".rotary_emb.inv_freq");
    return n == 0 || (n > tail && strcmp(name + n - tail, ".rotary_emb.inv_freq") == 0);
}

static int refuse(const struct tw_hf *hf, const char *path, const char *name, tw_error *err) {
    return tw_fail(err, TW_E_UNSUPPORTED,
                   "%s: tensor %.*s is not part of a model of model_type \"%s\"; ignoring it would "
                   "change the result",
                   path, SHOWN, name, hf->arch->model_type);
}

/* Sets *out to the GGUF name, in memory; NULL: the tensor is to be left out. */
static int name_of(struct tw_hf *hf, const char *path, const char *stored, const char **out,
                   tw_error *err) {
    static const char *const whole[][2] = {{"model.embed_tokens.weight", "token_embd.weight"},
                                           {"model.norm.weight", "output_norm.weight"},
                                           {"model.norm.bias", "output_norm.bias"},
                                           {"lm_head.weight", "output.weight"},
                                           {"lm_head.bias", "output.bias"}};
    char buffer[NAME_BYTES], name[NAME_BYTES];
    uint32_t layer;
    const char *rest, *dot;
    *out = NULL;
    unwrap(hf, stored, name);
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        if (strcmp(name, whole[i][0]) == 0) {
            *out = whole[i][1];
            return 0;
        }
    }
    if (is_ignored(name)) {
        return 0;
    }
    dot = strrchr(name, '.');
    if (!layer_of(name, &layer, &rest) || dot < rest ||
        (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0)) {
        return refuse(hf, path, stored, err);
    }
    if (layer >= hf->n_layers) {
        return tw_fail(err, TW_E_FORMAT, "%s: num_hidden_layers is %u, but there is a tensor %.*s",
                       hf->build.gguf.path, hf->n_layers, SHOWN, stored);
    }
    const char *part = tw_hf_layer_name(hf->arch, rest, (size_t)(dot - rest));
    if (!part) {
        return refuse(hf, path, stored, err);
    }
    snprintf(buffer, sizeof buffer, "blk.%u.%s%s", layer, part, dot);
    *out = tw_import_text(hf->build.memory, buffer, strlen(buffer));
    return *out ? 0 : tw_fail(err, TW_E_NOMEM, "%s: no memory for its tensors", path);
}

/* Reads the number of "blk.3.PART"; false: the tensor is of no layer. */
static bool number_of(const char *name, uint32_t *layer) {
    return sscanf(name, "blk.%" SCNu32 ".", layer) == 1;
}

/* Returns the part of "blk.3.PART". */
static const char *part_of(const char *name) {
    const char *dot = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
    return dot ? dot + 1 : name;
}

/* ---- values ---- */

/* Returns element i of numbers of one of the three types (numbers of ggml_type.h). */
static float number_at(const uint8_t *raw, uint32_t type, uint32_t i) {
    if (type == 0) {
        return tw_bits_float(tw_load_u32(raw + 4 * (size_t)i));
    }
    uint16_t half = (uint16_t)(raw[2 * (size_t)i] | raw[2 * (size_t)i + 1] << 8);
    return type == 1 ? tw_f16_to_f32(half) : tw_bf16_to_f32(half);
}

/* Replaces a vector, or a norm of several, by F32 in memory: in GGUF's order, and with 1 added to
 * the weights of norms where transformers leaves it out. */
static int convert_vector(struct tw_hf *hf, struct tw_gguf_tensor *t, tw_error *err) {
    uint32_t n = (uint32_t)(t->dims[0] * t->dims[1]);
    uint8_t *raw = tw_import_alloc(hf->build.memory, t->bytes, 1);
    float *y = tw_import_alloc(hf->build.memory, n, sizeof *y);
    if (!raw || !y) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for tensor %s", hf->build.gguf.path,
                       t->name);
    }
    const struct tw_model_tensor from = {.data = t->data, .file = t->file};
    int rc = tw_model_read(&from, 0, raw, t->bytes, err);
    if (rc) {
        return rc;
    }
    bool offset = hf->arch->norm_offset && strstr(t->name, "norm.weight");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t from_i = t->head_rows ? tw_model_source_row(i, t->head_rows) : i;
        y[i] = number_at(raw, t->type, from_i) + (offset ? 1.0f : 0.0f);
    }
    t->type = 0;
    t->data = (const uint8_t *)y;
    t->bytes = (uint64_t)n * 4;
    t->file = NULL;
    t->head_rows = 0;
    return 0;
}

/* Says in which order the rows of q and k must be read. */
static int set_order(const struct tw_hf *hf, const char *path, const char *name,
                     struct tw_gguf_tensor *t, tw_error *err) {
    const char *part = part_of(t->name);
    bool q = strncmp(part, "attn_q.", 7) == 0, k = strncmp(part, "attn_k.", 7) == 0;
    if (!hf->arch->interleaved || !(q || k)) {
        return 0;
    }
    uint64_t rows = t->dims[t->n_dims - 1],
             expected = (uint64_t)(q ? hf->n_heads : hf->n_kv_heads) * hf->head_dim;
    if (rows != expected || hf->head_dim % 2) {
        return tw_fail(err, TW_E_SHAPE,
                       "%s: tensor %.*s has %" PRIu64 " rows, expected %" PRIu64
                       ": %u heads of %u, an even number, by config.json",
                       path, SHOWN, name, rows, expected, q ? hf->n_heads : hf->n_kv_heads,
                       hf->head_dim);
    }
    t->head_rows = hf->head_dim;
    return 0;
}

/* ---- tensors ---- */

static int convert(struct tw_hf *hf, const char *path, const struct tw_st_tensor *from,
                   const char *name, struct tw_gguf_tensor *t, tw_error *err) {
    if (from->type->ggml_type < 0) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "%s: tensor %.*s has dtype %s, which is not supported (expected F32, F16 or "
                       "BF16)",
                       path, SHOWN, from->name, from->type->name);
    }
    *t = (struct tw_gguf_tensor){.name = name,
                                 .data = from->data,
                                 .bytes = from->bytes,
                                 .dims = {1, 1, 1, 1},
                                 .file = from->file,
                                 .n_dims = from->n_dims,
                                 .type = (uint32_t)from->type->ggml_type};
    for (uint32_t i = 0; i < from->n_dims && from->n_dims <= TW_GGUF_MAX_DIMS; i++) {
        t->dims[i] = from->shape[from->n_dims - 1 - i];
    }
    if (from->n_dims < 1 || from->n_dims > 2 || !from->bytes || t->dims[0] > TW_MAX_HIDDEN ||
        t->dims[1] > TW_MAX_VOCAB) {
        return tw_fail(err, TW_E_SHAPE,
                       "%s: tensor %.*s has %u dimensions and %" PRIu64
                       " bytes, expected a vector or a matrix",
                       path, SHOWN, from->name, from->n_dims, from->bytes);
    }
    int rc = set_order(hf, path, from->name, t, err);
    if (rc == 0 && t->n_dims == 2 && t->dims[1] == 1 && strstr(t->name, "norm.")) {
        t->n_dims = 1; /* a norm written as a row */
    }
    bool matrix = t->n_dims == 2 && !strstr(t->name, "norm.");
    if (rc == 0 && t->n_dims == 2 && !matrix && t->dims[0] * t->dims[1] > TW_MAX_HIDDEN) {
        return tw_fail(err, TW_E_SHAPE,
                       "%s: tensor %.*s has %" PRIu64 " elements, expected a norm of at most %u",
                       path, SHOWN, from->name, t->dims[0] * t->dims[1], TW_MAX_HIDDEN);
    }
    return rc || matrix ? rc : convert_vector(hf, t, err);
}

static int add_tensor(struct tw_hf *hf, const char *path, const struct tw_st_tensor *from,
                      tw_error *err) {
    struct tw_gguf_tensor t;
    const char *name;
    int rc = name_of(hf, path, from->name, &name, err);
    if (rc || !name) {
        return rc;
    }
    rc = convert(hf, path, from, name, &t, err);
    if (rc) {
        return rc;
    }
    uint32_t layer;
    if (number_of(name, &layer)) {
        hf->layers[layer] = true;
    }
    bool embedding = strcmp(name, "token_embd.weight") == 0,
         output = strcmp(name, "output.weight") == 0;
    hf->embedding = embedding ? t.dims[1] : hf->embedding;
    hf->output = output ? t.dims[1] : hf->output;
    if ((embedding || output) && t.dims[1] != hf->n_vocab) {
        return tw_fail(err, TW_E_SHAPE,
                       "%s: tensor %.*s has %" PRIu64 " rows, expected %u, the vocab_size of "
                       "config.json",
                       path, SHOWN, from->name, t.dims[1], hf->n_vocab);
    }
    tw_gguf_put_tensor(&hf->build, &t);
    return 0;
}

int tw_hf_add_tensors(struct tw_hf *hf, const struct tw_safetensors *file, tw_error *err) {
    if (!hf->layers) {
        hf->layers = tw_import_alloc(hf->build.memory, hf->n_layers, sizeof *hf->layers);
    }
    int rc = hf->layers ? 0 : tw_fail(err, TW_E_NOMEM, "%s: no memory for its tensors", file->path);
    for (uint64_t i = 0; i < file->n_tensors && rc == 0; i++) {
        rc = add_tensor(hf, file->path, &file->tensors[i], err);
    }
    return rc;
}

/* ---- the table ---- */

/* Where the output matrix is the embedding, a second copy under its own name has no effect. */
static void drop_output(struct tw_hf *hf) {
    struct tw_gguf *g = &hf->build.gguf;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        if (strcmp(g->tensors[i].name, "output.weight") == 0) {
            g->tensors[i] = g->tensors[--g->n_tensors];
            return;
        }
    }
}

static int check_embedding(const struct tw_hf *hf, tw_error *err) {
    const char *path = hf->build.gguf.path;
    if (!hf->embedding && !(hf->tied && hf->output)) {
        return tw_fail(err, TW_E_MISSING, "%s: tensor model.embed_tokens.weight is missing%s", path,
                       hf->output ? ", and tie_word_embeddings does not say that lm_head.weight "
                                    "takes its place"
                                  : "");
    }
    if (!hf->output && !hf->tied) {
        return tw_fail(err, TW_E_MISSING,
                       "%s: tensor lm_head.weight is missing, and tie_word_embeddings does not say "
                       "that model.embed_tokens.weight takes its place",
                       path);
    }
    return 0;
}

static int check_layers(const struct tw_hf *hf, tw_error *err) {
    for (uint32_t i = 0; i < hf->n_layers; i++) {
        if (!hf->layers || !hf->layers[i]) {
            return tw_fail(
                err, TW_E_MISSING,
                "%s: num_hidden_layers is %u, but there are no tensors model.layers.%u.*",
                hf->build.gguf.path, hf->n_layers, i);
        }
    }
    return 0;
}

static bool has(const struct tw_hf *hf, const char *name) {
    for (uint64_t i = 0; i < hf->build.gguf.n_tensors; i++) {
        if (strcmp(hf->build.gguf.tensors[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static int check_flags(const struct tw_hf *hf, tw_error *err) {
    bool attention =
             hf->attention_bias && !has(hf, "blk.0.attn_q.bias") && !has(hf, "blk.0.attn_qkv.bias"),
         mlp = hf->mlp_bias && !has(hf, "blk.0.ffn_up.bias");
    if (hf->qk_norm &&
        !(has(hf, "blk.0.attn_q_norm.weight") && has(hf, "blk.0.attn_k_norm.weight"))) {
        return tw_fail(err, TW_E_MISSING,
                       "%s: use_qk_norm is true, but tensor model.layers.0.self_attn.q_norm.weight "
                       "or k_norm.weight is missing",
                       hf->build.gguf.path);
    }
    return !attention && !mlp
               ? 0
               : tw_fail(err, TW_E_MISSING,
                         "%s: %s is true, but tensor model.layers.0.%s is missing",
                         hf->build.gguf.path, attention ? "attention_bias" : "mlp_bias",
                         attention ? "self_attn.q_proj.bias" : "mlp.up_proj.bias");
}

static void put_factors(struct tw_hf *hf, const char *name, const float *factors) {
    const struct tw_gguf_tensor t = {.name = name,
                                     .data = (const uint8_t *)factors,
                                     .bytes = (uint64_t)(hf->rope_dims / 2) * 4,
                                     .dims = {hf->rope_dims / 2, 1, 1, 1},
                                     .n_dims = 1};
    if (factors) {
        tw_gguf_put_tensor(&hf->build, &t);
    }
}

int tw_hf_finish_tensors(struct tw_hf *hf, tw_error *err) {
    int rc = check_embedding(hf, err);
    rc = rc ? rc : check_layers(hf, err);
    rc = rc ? rc : check_flags(hf, err);
    if (rc) {
        return rc;
    }
    if (hf->tied && hf->embedding && hf->output) {
        drop_output(hf);
    }
    put_factors(hf, "rope_freqs.weight", hf->rope_factors);
    put_factors(hf, "rope_factors_long.weight", hf->long_factors);
    put_factors(hf, "rope_factors_short.weight", hf->short_factors);
    return tw_gguf_build_finish(&hf->build, err);
}
