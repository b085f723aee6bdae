/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of a decoder: names and shapes as functions of its description, in one table that all
 * importers use.
 */
#ifndef TW_COMPILER_IMPORT_DECODER_PARTS_H
#define TW_COMPILER_IMPORT_DECODER_PARTS_H

#include "compiler/import/model.h"
#include "compiler/import/model_memory.h"

/* X(NAME, name, rows, cols, when): rows and cols name widths of decoder_parts.c, `when` says in
 * which decoders it is. Norms and products may have a bias beside their weight. */
#define TW_PARTS(X)                                                 \
    X(EMBEDDING, "token_embd", VOCAB, DIM, ALWAYS)                  \
    X(OUTPUT_NORM, "output_norm", ONE, DIM, ALWAYS)                 \
    X(OUTPUT, "output", VOCAB, DIM, ALWAYS)                         \
    /* from here on one per layer */                                \
    X(ATTN_NORM, "attn_norm", ONE, DIM, NORMS_BEFORE)               \
    X(ATTN_Q, "attn_q", ATTN, DIM, ALWAYS)                          \
    X(ATTN_K, "attn_k", KV, DIM, ALWAYS)                            \
    X(ATTN_V, "attn_v", KV, DIM, ALWAYS)                            \
    X(ATTN_Q_NORM, "attn_q_norm", ONE, Q_NORM, QK_NORMS)            \
    X(ATTN_K_NORM, "attn_k_norm", ONE, K_NORM, QK_NORMS)            \
    X(ATTN_OUTPUT, "attn_output", DIM, ATTN, ALWAYS)                \
    X(ATTN_POST_NORM, "post_attention_norm", ONE, DIM, NORMS_AFTER) \
    X(FFN_NORM, "ffn_norm", ONE, DIM, SECOND_NORM)                  \
    X(FFN_GATE, "ffn_gate", HIDDEN, DIM, GATED)                     \
    X(FFN_UP, "ffn_up", HIDDEN, DIM, ALWAYS)                        \
    X(FFN_DOWN, "ffn_down", DIM, HIDDEN, ALWAYS)                    \
    X(FFN_POST_NORM, "post_ffw_norm", ONE, DIM, NORMS_AFTER)

enum tw_part {
#define TW_X(NAME, name, rows, cols, when) TW_PART_##NAME,
    TW_PARTS(TW_X)
#undef TW_X
        TW_PART_COUNT
};
#define TW_PARTS_PER_LAYER (TW_PART_COUNT - TW_PART_ATTN_NORM)

static inline bool tw_part_is_per_layer(enum tw_part part) {
    return part >= TW_PART_ATTN_NORM;
}

/* Returns true if decoders of this description have the part (OUTPUT: unless it is tied). */
bool tw_part_exists(enum tw_part part, const struct tw_hparams *h);

/* Writes the name, such as "output_norm.weight" or "blk.3.attn_q.bias", into buffer; returns it.
 * `kind`: "weight" or "bias". */
#define TW_PART_NAME_BYTES 56
const char *tw_part_name(enum tw_part part, uint32_t layer, const char *kind,
                         char buffer[TW_PART_NAME_BYTES]);

/* Returns true for norms, whose weights are vectors; all others are the matrices of products. */
bool tw_part_is_norm(enum tw_part part);

/* The shape of a part's weight; vectors have one row. */
void tw_part_shape(enum tw_part part, const struct tw_hparams *h, uint32_t layer, uint32_t *rows,
                   uint32_t *cols);
/* The elements of its bias: as many as a norm's weight has, or rows of a product's. */
uint32_t tw_part_bias_cols(enum tw_part part, const struct tw_hparams *h, uint32_t layer);

/* Allocates room for all tensors of a model, biases included. NULL if out of memory. */
struct tw_model_tensor *tw_part_alloc(struct tw_import_memory *memory, const struct tw_hparams *h);

/* Sorts them by name, as struct tw_model requires. */
void tw_part_sort(struct tw_model_tensor *tensors, uint32_t count);

#endif
