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
    TW_PART_ATTN_NORM, /* from here on one per layer */
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

/* Writes the name, such as "output_norm.weight" or "blk.3.attn_q.weight", into buffer; returns
 * it. */
#define TW_PART_NAME_BYTES 48
const char *tw_part_name(enum tw_llama_part part, uint32_t layer, char buffer[TW_PART_NAME_BYTES]);

/* The shape of a part; vectors have one row. */
void tw_part_shape(enum tw_llama_part part, const struct tw_hparams *h, uint32_t *rows,
                   uint32_t *cols);

/* Allocates room for all tensors of a model: 3 and those of the layers. NULL if out of memory. */
struct tw_model_tensor *tw_part_alloc(struct tw_import_memory *memory, const struct tw_hparams *h);

/* Sorts them by name, as struct tw_model requires. */
void tw_part_sort(struct tw_model_tensor *tensors, uint32_t count);

#endif
