/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of a llama model: names and shapes as functions of the hyperparameters, in one table
 * that both importers use.
 */
#ifndef TW_COMPILER_IMPORT_LLAMA_PARTS_H
#define TW_COMPILER_IMPORT_LLAMA_PARTS_H

#include "compiler/import/model.h"
#include "compiler/import/model_memory.h"

enum tw_llama_part {
    TW_PART_EMBEDDING,
    TW_PART_OUTPUT_NORM,
    TW_PART_OUTPUT,
    TW_PART_ATTN_NORM, /* from here on one a layer */
    TW_PART_ATTN_Q,
    TW_PART_ATTN_K,
    TW_PART_ATTN_V,
    TW_PART_ATTN_OUTPUT,
    TW_PART_FFN_NORM,
    TW_PART_FFN_GATE,
    TW_PART_FFN_UP,
    TW_PART_FFN_DOWN,
    TW_PART_COUNT
};
#define TW_PARTS_PER_LAYER (TW_PART_COUNT - TW_PART_ATTN_NORM)

static inline bool tw_part_is_per_layer(enum tw_llama_part part) {
    return part >= TW_PART_ATTN_NORM;
}

/* "output_norm.weight" or "blk.3.attn_q.weight". */
#define TW_PART_NAME_BYTES 48
const char *tw_part_name(enum tw_llama_part part, uint32_t layer, char buffer[TW_PART_NAME_BYTES]);

/* Vectors have one row. */
void tw_part_shape(enum tw_llama_part part, const struct tw_hparams *h, uint32_t *rows,
                   uint32_t *cols);

/* Room for all tensors of a model: 3 and those of the layers. */
struct tw_model_tensor *tw_part_alloc(struct tw_import_memory *memory, const struct tw_hparams *h);

/* Brings them into the order of struct tw_model. */
void tw_part_sort(struct tw_model_tensor *tensors, uint32_t count);

#endif
