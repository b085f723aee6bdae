/* SPDX-License-Identifier: Apache-2.0
 *
 * Imports llama2.c checkpoints (import.h): a header of sizes, then float32 matrices without names,
 * so that the layout is a list of parts and the file's size is the only check of the content.
 */
#include "compiler/import/bytes.h"
#include "compiler/import/decoder_parts.h"
#include "compiler/import/hparams.h"
#include "compiler/import/import.h"
#include "tilewright/range.h"

#include <inttypes.h>
#include <string.h>

#define LEGACY_HEADER_BYTES 28u /* seven int32 */
#define V1_HEADER_BYTES 256u
#define V1_MAGIC 0x616b3432u /* "ak42" */

#define FREQUENCIES TW_PART_COUNT /* two tables of rotary frequencies, stored but not used */

static const int legacy_order[] = {
    TW_PART_EMBEDDING,   TW_PART_ATTN_NORM, TW_PART_ATTN_Q,   TW_PART_ATTN_K,   TW_PART_ATTN_V,
    TW_PART_ATTN_OUTPUT, TW_PART_FFN_NORM,  TW_PART_FFN_GATE, TW_PART_FFN_DOWN, TW_PART_FFN_UP,
    TW_PART_OUTPUT_NORM, FREQUENCIES,       TW_PART_OUTPUT,
};
static const int v1_order[] = {
    TW_PART_ATTN_NORM, TW_PART_FFN_NORM, TW_PART_OUTPUT_NORM, TW_PART_EMBEDDING,
    TW_PART_ATTN_Q,    TW_PART_ATTN_K,   TW_PART_ATTN_V,      TW_PART_ATTN_OUTPUT,
    TW_PART_FFN_GATE,  TW_PART_FFN_DOWN, TW_PART_FFN_UP,      TW_PART_OUTPUT,
};

static const struct tw_hparam_names names = {
    .dim = "header field dim",
    .heads = "header field n_heads",
    .kv_heads = "header field n_kv_heads",
    .head_dim = "the head size",
    .rope_dims = "the head size",
    .eps = "the epsilon",
    .theta = "the rotary base",
};

struct checkpoint {
    const char *path;
    const uint8_t *bytes;
    uint64_t size;
    uint64_t weights_at;
    const int *order;
    size_t n_order;
    bool frequencies; /* the file has the tables */
    struct tw_model *model;
    tw_error *err;
};

/* ---- header ---- */

/* Reads the seven sizes at `at`. A negative vocabulary means a separate output matrix (legacy form
 * only). */
static int read_sizes(struct checkpoint *c, uint64_t at, bool *negative_vocab) {
    struct tw_hparams *h = &c->model->h;
    const struct {
        const char *name;
        uint32_t max;
        uint32_t *out;
    } fields[] = {
        {"dim", TW_MAX_DIM, &h->dim},
        {"hidden_dim", TW_MAX_HIDDEN, &h->hidden},
        {"n_layers", TW_MAX_LAYERS, &h->n_layers},
        {"n_heads", TW_MAX_HEADS, &h->n_heads},
        {"n_kv_heads", TW_MAX_HEADS, &h->n_kv_heads},
        {"vocab_size", TW_MAX_VOCAB, &h->n_vocab},
        {"seq_len", TW_MAX_CTX, &h->n_ctx_train},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        int64_t value = (int32_t)tw_load_u32(c->bytes + at + 4 * i);
        if (fields[i].out == &h->n_vocab && value < 0) {
            *negative_vocab = true;
            value = -value;
        }
        if (value < 1 || value > (int64_t)fields[i].max) {
            return tw_fail(c->err, TW_E_RANGE,
                           "%s: %sfield %s of a llama2.c header (offset %" PRIu64 ") is %" PRId64
                           ", expected 1 to %u",
                           c->path, at == 0 ? "not a GGUF file, and " : "", fields[i].name,
                           at + 4 * i, value, fields[i].max);
        }
        *fields[i].out = (uint32_t)value;
    }
    return 0;
}

static int read_legacy(struct checkpoint *c) {
    bool untied = false;
    if (c->size < LEGACY_HEADER_BYTES) {
        return tw_fail(c->err, TW_E_TRUNCATED,
                       "%s: %" PRIu64
                       " bytes are too few for a model file (a llama2.c header has %u)",
                       c->path, c->size, LEGACY_HEADER_BYTES);
    }
    c->weights_at = LEGACY_HEADER_BYTES;
    c->order = legacy_order;
    c->n_order = sizeof legacy_order / sizeof legacy_order[0];
    int rc = read_sizes(c, 0, &untied);
    c->model->tied = !untied;
    return rc;
}

static int read_versioned(struct checkpoint *c) {
    bool negative = false;
    uint32_t version = c->size >= 8 ? tw_load_u32(c->bytes + 4) : 1;
    if (version == 2) {
        return tw_fail(c->err, TW_E_UNSUPPORTED,
                       "%s: llama2.c checkpoint version 2 (int8) is not supported, expected "
                       "version 1 or the legacy form",
                       c->path);
    }
    if (version != 1) {
        return tw_fail(c->err, TW_E_UNSUPPORTED,
                       "%s: llama2.c checkpoint version is %u, expected 1", c->path, version);
    }
    if (c->size < V1_HEADER_BYTES) {
        return tw_fail(c->err, TW_E_TRUNCATED,
                       "%s: %" PRIu64 " bytes, but a llama2.c version 1 header has %u", c->path,
                       c->size, V1_HEADER_BYTES);
    }
    c->weights_at = V1_HEADER_BYTES;
    c->order = v1_order;
    c->n_order = sizeof v1_order / sizeof v1_order[0];
    int rc = read_sizes(c, 8, &negative);
    if (rc == 0 && negative) {
        rc = tw_fail(c->err, TW_E_RANGE,
                     "%s: llama2.c header field vocab_size is negative, expected 1 to %u", c->path,
                     TW_MAX_VOCAB);
    }
    if (rc == 0 && c->bytes[36] > 1) {
        rc = tw_fail(c->err, TW_E_RANGE,
                     "%s: llama2.c header field shared_classifier is %u, expected 0 or 1", c->path,
                     c->bytes[36]);
    }
    c->model->tied = c->bytes[36] != 0;
    return rc;
}

/* ---- layout ---- */

/* Bytes that `part` takes in the file, all layers together. The limits on the sizes keep this far
 * below 2^63. */
static uint64_t part_bytes(const struct checkpoint *c, int part) {
    const struct tw_hparams *h = &c->model->h;
    uint32_t rows, cols;
    if (part == FREQUENCIES) {
        return c->frequencies ? (uint64_t)h->n_ctx_train * h->head_dim * sizeof(float) : 0;
    }
    if (part == TW_PART_OUTPUT && c->model->tied) {
        return 0;
    }
    tw_part_shape((enum tw_part)part, h, 0, &rows, &cols);
    return (uint64_t)rows * cols * sizeof(float) *
           (tw_part_is_per_layer((enum tw_part)part) ? h->n_layers : 1);
}

static int file_bytes(const struct checkpoint *c, uint64_t *out) {
    *out = c->weights_at;
    for (size_t i = 0; i < c->n_order; i++) {
        if (!tw_add_u64(*out, part_bytes(c, c->order[i]), out)) {
            return tw_fail(c->err, TW_E_RANGE,
                           "%s: the llama2.c header describes more than 2^64 bytes", c->path);
        }
    }
    return 0;
}

/* The legacy form ends with unused rotary tables (before a separate output matrix); newer exports
 * omit them. */
static int check_size(struct checkpoint *c) {
    const struct tw_hparams *h = &c->model->h;
    uint64_t without, with;
    c->frequencies = false;
    int rc = file_bytes(c, &without);
    c->frequencies = true;
    rc = rc ? rc : file_bytes(c, &with);
    if (rc) {
        return rc;
    }
    c->frequencies = c->order == legacy_order && c->size != without;
    if (c->size == without || (c->frequencies && c->size == with)) {
        return 0;
    }
    return tw_fail(c->err, c->size < with ? TW_E_TRUNCATED : TW_E_FORMAT,
                   "%s: the file has %" PRIu64
                   " bytes, but a llama2.c checkpoint of dim %u, hidden_dim %u, %u layers, %u"
                   " heads, %u kv heads, %u tokens%s and seq_len %u has %" PRIu64 "%s",
                   c->path, c->size, h->dim, h->hidden, h->n_layers, h->n_heads, h->n_kv_heads,
                   h->n_vocab, c->model->tied ? "" : " (untied)", h->n_ctx_train, with,
                   c->order == legacy_order ? " (fewer without the rotary tables)" : "");
}

static int add_tensor(struct checkpoint *c, struct tw_import_memory *memory,
                      struct tw_model_tensor *t, enum tw_part part, uint32_t layer, uint64_t at) {
    char name[TW_PART_NAME_BYTES];
    tw_part_name(part, layer, "weight", name);
    tw_part_shape(part, &c->model->h, layer, &t->rows, &t->cols);
    t->name = tw_import_text(memory, name, strlen(name));
    t->part = part;
    t->layer = layer;
    t->dtype = TW_DT_F32;
    t->bytes = (uint64_t)t->rows * t->cols * sizeof(float);
    t->data = c->bytes + at;
    return t->name ? 0 : tw_fail(c->err, TW_E_NOMEM, "%s: no memory for the tensor table", c->path);
}

static int make_tensors(struct checkpoint *c, struct tw_import_memory *memory) {
    struct tw_model_tensor *tensors = tw_part_alloc(memory, &c->model->h);
    uint64_t at = c->weights_at;
    uint32_t n = 0;
    if (!tensors) {
        return tw_fail(c->err, TW_E_NOMEM, "%s: no memory for the tensor table", c->path);
    }
    for (size_t i = 0; i < c->n_order; i++) {
        enum tw_part part = (enum tw_part)c->order[i];
        uint64_t bytes = part_bytes(c, c->order[i]);
        if (bytes == 0 || c->order[i] == FREQUENCIES) {
            at += bytes;
            continue;
        }
        uint32_t layers = tw_part_is_per_layer(part) ? c->model->h.n_layers : 1;
        for (uint32_t layer = 0; layer < layers; layer++, at += bytes / layers) {
            int rc = add_tensor(c, memory, &tensors[n++], part, layer, at);
            if (rc) {
                return rc;
            }
        }
    }
    tw_part_sort(tensors, n);
    c->model->tensors = tensors;
    c->model->n_tensors = n;
    return 0;
}

int tw_import_llama2c(const char *path, const uint8_t *bytes, uint64_t size,
                      struct tw_import_memory *memory, struct tw_model *out, tw_error *err) {
    struct checkpoint c = {.path = path, .bytes = bytes, .size = size, .model = out, .err = err};
    *out = (struct tw_model){.path = path, .arch = "llama", .name = "", .license = ""};
    out->h.norm_eps = 1e-5f;
    out->h.rope_theta = 10000.0f;
    out->h.rope_pairing = TW_ROPE_INTERLEAVED;
    bool versioned = size >= 4 && tw_load_u32(bytes) == V1_MAGIC;
    int rc = versioned ? read_versioned(&c) : read_legacy(&c);
    rc = rc ? rc : tw_hparams_check_sizes(path, &names, &out->h, err);
    rc = rc ? rc : check_size(&c);
    return rc ? rc : make_tensors(&c, memory);
}
