/* SPDX-License-Identifier: Apache-2.0
 *
 * An imported model: checked hyperparameters, tensors still memory-mapped in the file, and the
 * vocabulary. Every importer produces one and compiler/arch/ reads it; nothing after arch/ depends
 * on a file format.
 */
#ifndef TW_COMPILER_IMPORT_MODEL_H
#define TW_COMPILER_IMPORT_MODEL_H

#include "loader/base/file_map.h"
#include "tilewright/error.h"
#include "tilewright/machine.h"

#include <stdbool.h>

/* A weight matrix or vector in the file's row-major form. rows = 1 for vectors. `data` is not
 * necessarily aligned, and if it is in a file it must not be read in place but with tw_model_read:
 * a file that is truncated meanwhile would kill the process. */
struct tw_model_tensor {
    const char *name; /* GGUF names: token_embd.weight, blk.0.attn_q.weight, ... */
    uint32_t rows, cols;
    uint32_t part;       /* which of the decoder (enum tw_part of decoder_parts.h) */
    uint32_t layer;      /* of which layer; 0 if it is of none */
    bool bias;           /* of that part, not its weight */
    enum tw_dtype dtype; /* one of TW_WEIGHT_DTYPES */
    bool converted;      /* it is compiled as `to`, not as it is stored (tw_model_convert) */
    enum tw_dtype to;
    const uint8_t *data;
    uint64_t bytes;
    const struct tw_file_map *file; /* that contains `data`; NULL: in memory */
    /* 0, or the rows of a head, whose first and second half are to be taken in turns
     * (tw_model_source_row): rotary pairs of transformers, which lie a half apart */
    uint32_t head_rows;
};

/* Returns the row in `data` of row r of a tensor with head_rows. */
static inline uint32_t tw_model_source_row(uint32_t r, uint32_t head_rows) {
    uint32_t in = head_rows ? r % head_rows : 0;
    return head_rows ? r - in + in % 2 * (head_rows / 2) + in / 2 : r;
}

/* ---- the description of a decoder ----
 *
 * What an architecture is, as switches; zero is the plain decoder (Llama). An importer reads the
 * numbers, a file of compiler/arch/ sets the switches, and compiler/arch/decoder.c makes the graph
 * of them. */

enum tw_rope_scaling {
    TW_ROPE_SCALING_NONE = 0,
    TW_ROPE_SCALING_LINEAR = 1,
    TW_ROPE_SCALING_YARN = 2
};

/* Pairs of a head's dimensions that rotate together. */
enum tw_rope_pairing { TW_ROPE_INTERLEAVED = 0, TW_ROPE_HALVES = 1 };

enum tw_norm_kind { TW_NORM_RMS = 0, TW_NORM_LAYER = 1 };

/* Norms stand before a block, on its output before that is added, or both. */
enum tw_norm_place { TW_NORM_BEFORE = 0, TW_NORM_AFTER = 1, TW_NORM_AROUND = 2 };

/* Norms of queries and keys: of each head with weights that the heads share or with its own, or of
 * all heads at once. */
enum tw_qk_norm { TW_QK_NORM_NONE, TW_QK_NORM_HEAD, TW_QK_NORM_HEADS, TW_QK_NORM_ROW };

/* down(silu(gate) * up), down(gelu(gate) * up), down(gelu(up)). */
enum tw_feed_forward { TW_FFN_SILU = 0, TW_FFN_GELU = 1, TW_FFN_GELU_UNGATED = 2 };

/* The rotation of a layer: the model's; one for layers with a window, by window_rope_theta and
 * without scaling; none. */
enum tw_layer_rope { TW_LAYER_ROPE_MODEL = 0, TW_LAYER_ROPE_WINDOW = 1, TW_LAYER_ROPE_NONE = 2 };

/* What may differ from layer to layer. */
struct tw_layer {
    uint32_t n_heads, n_kv_heads, hidden;
    uint32_t window; /* positions that a query sees, its own included; 0: all before it */
    enum tw_layer_rope rope;
};

struct tw_hparams {
    /* the heads and the hidden width are the largest of all layers */
    uint32_t n_vocab, n_ctx_train, dim, n_layers, n_heads, n_kv_heads, head_dim, hidden;
    const struct tw_layer *layers; /* [n_layers]; NULL: all as the numbers above say */

    enum tw_norm_kind norm;
    enum tw_norm_place norm_place;
    float norm_eps;
    enum tw_qk_norm qk_norm;
    bool qk_norm_after_rope;
    bool parallel; /* attention and feed-forward read the same norm, and both are added */
    enum tw_feed_forward feed_forward;
    bool fused_gate; /* ffn_up.weight holds the gate's rows, then those of up */

    /* Factors; 0: none, or 1/sqrt(head_dim) for the scores. */
    float embedding_scale, attention_scale, residual_scale, logit_scale;
    float attention_cap, logit_cap; /* cap * tanh(x / cap); 0: none */
    /* Queries are multiplied by 1 + slope * ln(1 + floor(position / period)); 0: not. */
    float query_slope;
    uint32_t query_period;

    float rope_theta, window_rope_theta;
    uint32_t rope_dims; /* rotated dimensions of a head, even, <= head_dim */
    enum tw_rope_pairing rope_pairing;
    enum tw_rope_scaling rope_scaling;
    float rope_factor;                    /* LINEAR, YARN */
    float rope_beta_fast, rope_beta_slow; /* YARN */
    float rope_magnitude;                 /* of the rotated numbers; 0: 1 */
    uint32_t rope_original_ctx;           /* YARN, long factors */
    /* rope_dims/2 divisors of the frequencies (GGUF rope_freqs.weight, or
     * rope_factors_short.weight), or NULL; and those for contexts above rope_original_ctx
     * (rope_factors_long.weight) */
    const float *rope_freq_factors, *rope_long_factors;
};

/* The longest chat template. */
#define TW_CHAT_BYTES_MAX (1u << 20)

/* Returns layer i. */
static inline struct tw_layer tw_layer_of(const struct tw_hparams *h, uint32_t i) {
    struct tw_layer plain = {h->n_heads, h->n_kv_heads, h->hidden, 0, TW_LAYER_ROPE_MODEL};
    return h->layers ? h->layers[i] : plain;
}

struct tw_model {
    const char *path;
    const char *arch;    /* a name of compiler/arch/arch.h's list */
    const char *name;    /* general.name, or "" */
    const char *license; /* general.license, or "" */
    /* GGUF: the value of key tokenizer.ggml.model, or "" without it; other formats: NULL */
    const char *tokenizer;
    const char *chat; /* the chat template (tokenizer.chat_template), or NULL */
    /* why there is no vocabulary although the file has a tokenizer, as half a sentence; or NULL */
    const char *tokenizer_problem;
    struct tw_hparams h;
    uint32_t n_tensors;
    const struct tw_model_tensor *tensors; /* sorted by name */
    /* blob of tilewright/vocab.h, or NULL: the file has no tokenizer, or an unsupported one */
    const void *vocab;
    size_t vocab_bytes;
    bool tied; /* the output matrix is the embedding (no output.weight) */
    void *owner;
};

/* Opens and checks a model file of any supported format (decided by content, not by name).
 * `tokenizer` is the path of a llama2.c tokenizer.bin, or NULL: then, for a llama2.c checkpoint,
 * "tokenizer.bin" or "tok<vocab>.bin" beside it is used if present. On success the caller calls
 * tw_model_close. Errors: IO, TRUNCATED, FORMAT, RANGE, MISSING, SHAPE, UNSUPPORTED, NOMEM;
 * messages name the file, the key, tensor or offset, what was found and what was expected. */
int tw_model_open(const char *path, const char *tokenizer, struct tw_model *out, tw_error *err);
void tw_model_close(struct tw_model *model); /* may be zeroed or NULL */

/* Returns the tensor of that name, or NULL. */
const struct tw_model_tensor *tw_model_find(const struct tw_model *model, const char *name);

/* Returns the type that the tensor is compiled as. */
static inline enum tw_dtype tw_model_type(const struct tw_model_tensor *tensor) {
    return tensor->converted ? tensor->to : tensor->dtype;
}

/* Has all matrices with more bits per weight than `to` (Q8_0, Q4_0 or F16) compiled as `to`; those
 * whose rows are not whole blocks of it as F16, unless they are smaller already. */
void tw_model_convert(struct tw_model *model, enum tw_dtype to);

/* Copies rows [first, first + n) of the tensor, in its own order; the contract is that below. */
int tw_model_read_rows(const struct tw_model_tensor *tensor, uint32_t first, uint32_t n, void *to,
                       tw_error *err);

/* Copies bytes [at, at + n) of the tensor's data, which must be inside it. Errors: TRUNCATED (the
 * file was truncated meanwhile), IO; none if the data is in memory. */
int tw_model_read(const struct tw_model_tensor *tensor, uint64_t at, void *to, uint64_t n,
                  tw_error *err);

#endif
