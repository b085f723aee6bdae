/* SPDX-License-Identifier: Apache-2.0
 *
 * Matches a container's tensors against the table of a decoder's parts (decoder_parts.h). Tensors
 * that hold several parts are cut into them: rows are contiguous, so a part is a view.
 */
#include "compiler/import/decoder_parts.h"
#include "compiler/import/ggml_type.h"
#include "compiler/import/gguf_import.h"
#include "compiler/import/hparams.h"
#include "loader/base/assert.h"
#include "tilewright/quants.h"

#include <stdio.h>
#include <string.h>

/* ---- one tensor ---- */

static bool is_plain(const struct tw_gguf_tensor *t) {
    return t->n_dims >= 1 && t->dims[2] == 1 && t->dims[3] == 1;
}

static int refuse_shape(const struct tw_importer *im, const struct tw_gguf_tensor *t, uint32_t rows,
                        uint32_t cols) {
    char found[TW_GGUF_SHAPE_BYTES];
    tw_gguf_shape_text(t, found);
    if (rows == 1) {
        return tw_fail(im->err, TW_E_SHAPE, "%s: tensor %s has shape %s, expected [%u]",
                       im->gguf->path, t->name, found, cols);
    }
    return tw_fail(im->err, TW_E_SHAPE, "%s: tensor %s has shape %s, expected [%u, %u]",
                   im->gguf->path, t->name, found, cols, rows);
}

static int check_shape(const struct tw_importer *im, const struct tw_gguf_tensor *t, uint32_t rows,
                       uint32_t cols) {
    bool same = t->dims[0] == cols && t->dims[1] == rows;
    return is_plain(t) && same ? 0 : refuse_shape(im, t, rows, cols);
}

/* A vector may be stored as a row for each head. */
static int check_vector(const struct tw_importer *im, const struct tw_gguf_tensor *t,
                        uint32_t cols) {
    bool heads = im->model->h.qk_norm == TW_QK_NORM_HEADS && t->dims[0] == im->model->h.head_dim &&
                 t->dims[1] == cols / t->dims[0] && cols % t->dims[0] == 0;
    return is_plain(t) && heads ? 0 : check_shape(im, t, 1, cols);
}

static int check_type(const struct tw_importer *im, const struct tw_gguf_tensor *t, bool vector) {
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

/* What a tensor of the model is. */
struct role {
    enum tw_part part;
    uint32_t layer;
    bool bias;
};

/* Appends `rows` rows of a tensor of `cols` columns, from byte `at` of it on, as what it is. The
 * tensor's shape and type have been checked. */
static int append(struct tw_importer *im, const struct tw_gguf_tensor *t, struct role role,
                  uint64_t at, uint32_t rows, uint32_t cols) {
    char name[TW_PART_NAME_BYTES];
    tw_part_name(role.part, role.layer, role.bias ? "bias" : "weight", name);
    enum tw_dtype dtype = (enum tw_dtype)tw_ggml_type_of(t->type)->dtype;
    const char *copy = tw_import_text(im->memory, name, strlen(name));
    uint64_t row = tw_row_bytes(dtype, cols);
    if (!copy) {
        return tw_fail(im->err, TW_E_NOMEM, "%s: no memory for the tensor table", im->gguf->path);
    }
    im->used[t - im->gguf->tensors] = true;
    im->tensors[im->model->n_tensors++] = (struct tw_model_tensor){
        .name = copy,
        .rows = rows,
        .cols = cols,
        .part = role.part,
        .layer = role.layer,
        .bias = role.bias,
        .dtype = dtype,
        .data = t->data + at,
        .bytes = row * rows,
        .file = t->file,
        .head_rows = t->head_rows,
    };
    return 0;
}

/* Checks tensor `t` as the weight of `part` and appends it. */
static int add_tensor(struct tw_importer *im, const struct tw_gguf_tensor *t, enum tw_part part,
                      uint32_t layer) {
    uint32_t rows, cols;
    TW_ASSERT(t); /* the caller has found it */
    tw_part_shape(part, &im->model->h, layer, &rows, &cols);
    bool norm = tw_part_is_norm(part);
    int rc = norm ? check_vector(im, t, cols) : check_shape(im, t, rows, cols);
    rc = rc ? rc : check_type(im, t, norm);
    return rc ? rc : append(im, t, (struct role){part, layer, false}, 0, rows, cols);
}

/* ---- parts ---- */

/* Adds a part's bias, if there is one. */
static int add_bias(struct tw_importer *im, enum tw_part part, uint32_t layer) {
    char name[TW_PART_NAME_BYTES];
    tw_part_name(part, layer, "bias", name);
    const struct tw_gguf_tensor *t = tw_gguf_find_tensor(im->gguf, name);
    if (!t || (tw_part_is_norm(part) && im->model->h.norm == TW_NORM_RMS)) {
        return 0; /* without a meaning it is left over, and refused by name */
    }
    uint32_t cols = tw_part_bias_cols(part, &im->model->h, layer);
    int rc = check_shape(im, t, 1, cols);
    rc = rc ? rc : check_type(im, t, true);
    return rc ? rc : append(im, t, (struct role){part, layer, true}, 0, 1, cols);
}

static int add_part(struct tw_importer *im, enum tw_part part, uint32_t layer) {
    char name[TW_PART_NAME_BYTES];
    tw_part_name(part, layer, "weight", name);
    const struct tw_gguf_tensor *t = tw_gguf_find_tensor(im->gguf, name);
    if (!t) {
        return tw_fail(im->err, TW_E_MISSING, "%s: tensor %s is missing", im->gguf->path, name);
    }
    int rc = add_tensor(im, t, part, layer);
    return rc ? rc : add_bias(im, part, layer);
}

/* Embedding and output may be stored once, under either name: then both are the same matrix. */
static int add_embedding(struct tw_importer *im) {
    const struct tw_gguf_tensor *embedding = tw_gguf_find_tensor(im->gguf, "token_embd.weight");
    const struct tw_gguf_tensor *output = tw_gguf_find_tensor(im->gguf, "output.weight");
    im->model->tied = !embedding || !output;
    int rc = add_tensor(im, embedding ? embedding : output, TW_PART_EMBEDDING, 0);
    if (rc == 0 && !im->model->tied) {
        rc = add_tensor(im, output, TW_PART_OUTPUT, 0);
    }
    return rc;
}

/* ---- several parts in one tensor ---- */

/* Cuts "blk.N.from.kind" into n parts, in order. Returns 0 and leaves *found false if there is no
 * such tensor. */
static int cut(struct tw_importer *im, const char *from, const char *kind, uint32_t layer,
               const enum tw_part *to, uint32_t n, bool *found) {
    char name[TW_PART_NAME_BYTES];
    uint32_t all = 0, rows, cols = 0, first = 0;
    bool vector = strcmp(kind, "bias") == 0;
    snprintf(name, sizeof name, "blk.%u.%s.%s", layer, from, kind);
    const struct tw_gguf_tensor *t = tw_gguf_find_tensor(im->gguf, name);
    *found = t != NULL;
    if (!t) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        tw_part_shape(to[i], &im->model->h, layer, &rows, &cols);
        all += rows;
    }
    int rc = vector ? check_shape(im, t, 1, all) : check_shape(im, t, all, cols);
    rc = rc ? rc : check_type(im, t, vector);
    enum tw_dtype dtype = (enum tw_dtype)tw_ggml_type_of(t->type)->dtype;
    for (uint32_t i = 0; i < n && rc == 0; i++, first += rows) {
        tw_part_shape(to[i], &im->model->h, layer, &rows, &cols);
        uint64_t at = vector ? tw_row_bytes(dtype, first) : tw_row_bytes(dtype, cols) * first;
        rc = append(im, t, (struct role){to[i], layer, vector}, at, vector ? 1 : rows,
                    vector ? rows : cols);
    }
    return rc;
}

/* Cuts the weights and the biases. */
static int add_cut(struct tw_importer *im, const char *from, uint32_t layer, const enum tw_part *to,
                   uint32_t n, bool *found) {
    bool bias;
    int rc = cut(im, from, "weight", layer, to, n, found);
    return rc || !*found ? rc : cut(im, from, "bias", layer, to, n, &bias);
}

static int add_layer(struct tw_importer *im, uint32_t layer) {
    static const enum tw_part qkv[] = {TW_PART_ATTN_Q, TW_PART_ATTN_K, TW_PART_ATTN_V},
                              gated[] = {TW_PART_FFN_GATE, TW_PART_FFN_UP};
    const struct tw_hparams *h = &im->model->h;
    bool fused_qkv = false, fused_gate = false;
    int rc = add_cut(im, "attn_qkv", layer, qkv, 3, &fused_qkv);
    if (rc == 0 && h->fused_gate) {
        rc = add_cut(im, "ffn_up", layer, gated, 2, &fused_gate);
    }
    for (int i = TW_PART_ATTN_NORM; i < TW_PART_COUNT && rc == 0; i++) {
        enum tw_part part = (enum tw_part)i;
        bool there = (fused_qkv && part >= TW_PART_ATTN_Q && part <= TW_PART_ATTN_V) ||
                     (fused_gate && (part == TW_PART_FFN_GATE || part == TW_PART_FFN_UP));
        if (!there && tw_part_exists(part, h)) {
            rc = add_part(im, part, layer);
        }
    }
    return rc;
}

/* ---- rotary factors ---- */

/* Reads divisors of the rotary frequencies, copied because the file's copy may be unaligned; *out
 * stays NULL without the tensor. */
static int add_factors(struct tw_importer *im, const char *name, const float **out) {
    const struct tw_gguf_tensor *t = tw_gguf_find_tensor(im->gguf, name);
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
    *out = factors;
    return 0;
}

/* One set of factors for all contexts, or one for short and one for long ones. */
static int add_rope_factors(struct tw_importer *im) {
    struct tw_hparams *h = &im->model->h;
    const float *for_short = NULL, *for_long = NULL;
    int rc = add_factors(im, "rope_freqs.weight", &h->rope_freq_factors);
    rc = rc ? rc : add_factors(im, "rope_factors_short.weight", &for_short);
    rc = rc ? rc : add_factors(im, "rope_factors_long.weight", &for_long);
    if (rc == 0 && !for_short != !for_long) {
        rc = tw_fail(im->err, TW_E_MISSING, "%s: tensor rope_factors_%s.weight is missing",
                     im->gguf->path, for_short ? "long" : "short");
    }
    h->rope_freq_factors = for_short ? for_short : h->rope_freq_factors;
    h->rope_long_factors = for_long;
    if (for_long && !h->rope_original_ctx) {
        h->rope_original_ctx = h->n_ctx_train;
    }
    return rc;
}

/* ---- what is left ---- */

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

static int refuse_extra(const struct tw_importer *im, const struct tw_gguf_tensor *t) {
    const char *rest = "";
    int64_t layer = layer_of(t->name, &rest);
    if (layer >= (int64_t)im->model->h.n_layers) {
        return tw_fail(im->err, TW_E_FORMAT,
                       "%s: key %s.block_count is %u, but there is a tensor %s", im->gguf->path,
                       im->model->arch, im->model->h.n_layers, t->name);
    }
    if (layer >= 0 && strncmp(rest, "attn_rot_embd", 13) == 0) {
        return 0; /* rotary frequencies stored by old converters; they are computed from the keys */
    }
    return tw_fail(im->err, TW_E_UNSUPPORTED,
                   "%s: tensor %s is not part of a %s model as far as it is supported; ignoring it "
                   "would change the result",
                   im->gguf->path, t->name, im->model->arch);
}

int tw_import_tensors(struct tw_importer *im) {
    const struct tw_hparams *h = &im->model->h;
    im->tensors = tw_part_alloc(im->memory, h);
    im->used = tw_import_alloc(im->memory, im->gguf->n_tensors, sizeof *im->used);
    if (!im->tensors || !im->used) {
        return tw_fail(im->err, TW_E_NOMEM, "%s: no memory for the tensor table", im->gguf->path);
    }
    im->model->tensors = im->tensors;
    int rc = add_embedding(im);
    rc = rc ? rc : add_part(im, TW_PART_OUTPUT_NORM, 0);
    for (uint32_t layer = 0; layer < h->n_layers && rc == 0; layer++) {
        rc = add_layer(im, layer);
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
