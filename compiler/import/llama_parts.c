/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a llama model's tensors (llama_parts.h).
 */
#include "compiler/import/llama_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum extent { ONE, DIM, ATTN, KV, HIDDEN, VOCAB };

static const struct {
    const char *name;
    enum extent rows, cols;
} parts[TW_PART_COUNT] = {
    [TW_PART_EMBEDDING] = {"token_embd", VOCAB, DIM},
    [TW_PART_OUTPUT_NORM] = {"output_norm", ONE, DIM},
    [TW_PART_OUTPUT] = {"output", VOCAB, DIM},
    [TW_PART_ATTN_NORM] = {"attn_norm", ONE, DIM},
    [TW_PART_ATTN_Q] = {"attn_q", ATTN, DIM},
    [TW_PART_ATTN_K] = {"attn_k", KV, DIM},
    [TW_PART_ATTN_V] = {"attn_v", KV, DIM},
    [TW_PART_ATTN_OUTPUT] = {"attn_output", DIM, ATTN},
    [TW_PART_FFN_NORM] = {"ffn_norm", ONE, DIM},
    [TW_PART_FFN_GATE] = {"ffn_gate", HIDDEN, DIM},
    [TW_PART_FFN_UP] = {"ffn_up", HIDDEN, DIM},
    [TW_PART_FFN_DOWN] = {"ffn_down", DIM, HIDDEN},
};

static uint32_t extent_of(enum extent extent, const struct tw_hparams *h) {
    switch (extent) {
    case ONE:
        return 1;
    case DIM:
        return h->dim;
    case ATTN:
        return h->n_heads * h->head_dim;
    case KV:
        return h->n_kv_heads * h->head_dim;
    case HIDDEN:
        return h->hidden;
    case VOCAB:
        return h->n_vocab;
    }
    return 0;
}

const char *tw_part_name(enum tw_llama_part part, uint32_t layer, char buffer[TW_PART_NAME_BYTES]) {
    if (tw_part_is_per_layer(part)) {
        snprintf(buffer, TW_PART_NAME_BYTES, "blk.%u.%s.weight", layer, parts[part].name);
    } else {
        snprintf(buffer, TW_PART_NAME_BYTES, "%s.weight", parts[part].name);
    }
    return buffer;
}

void tw_part_shape(enum tw_llama_part part, const struct tw_hparams *h, uint32_t *rows,
                   uint32_t *cols) {
    *rows = extent_of(parts[part].rows, h);
    *cols = extent_of(parts[part].cols, h);
}

struct tw_model_tensor *tw_part_alloc(struct tw_import_memory *memory, const struct tw_hparams *h) {
    uint64_t count = (uint64_t)TW_PART_ATTN_NORM + (uint64_t)h->n_layers * TW_PARTS_PER_LAYER;
    return tw_import_alloc(memory, count, sizeof(struct tw_model_tensor));
}

static int compare(const void *a, const void *b) {
    return strcmp(((const struct tw_model_tensor *)a)->name,
                  ((const struct tw_model_tensor *)b)->name);
}

void tw_part_sort(struct tw_model_tensor *tensors, uint32_t count) {
    qsort(tensors, count, sizeof tensors[0], compare);
}
