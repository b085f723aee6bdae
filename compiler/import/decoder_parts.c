/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a decoder's tensors (decoder_parts.h).
 */
#include "compiler/import/decoder_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum width { ONE, DIM, ATTN, KV, HIDDEN, VOCAB, Q_NORM, K_NORM };
enum when { ALWAYS, NORMS_BEFORE, NORMS_AFTER, SECOND_NORM, QK_NORMS, GATED };

static const struct {
    const char *name;
    enum width rows, cols;
    enum when when;
} parts[TW_PART_COUNT] = {
#define TW_X(NAME, name, rows, cols, when) [TW_PART_##NAME] = {name, rows, cols, when},
    TW_PARTS(TW_X)
#undef TW_X
};

bool tw_part_exists(enum tw_part part, const struct tw_hparams *h) {
    switch (parts[part].when) {
    case ALWAYS:
        return true;
    case NORMS_BEFORE:
        return h->norm_place != TW_NORM_AFTER;
    case NORMS_AFTER:
        return h->norm_place != TW_NORM_BEFORE;
    case SECOND_NORM:
        return h->norm_place != TW_NORM_AFTER && !h->parallel;
    case QK_NORMS:
        return h->qk_norm != TW_QK_NORM_NONE;
    case GATED:
        return h->feed_forward != TW_FFN_GELU_UNGATED;
    }
    return false;
}

static uint32_t norm_width(const struct tw_hparams *h, uint32_t heads) {
    return h->qk_norm == TW_QK_NORM_HEAD ? h->head_dim : heads * h->head_dim;
}

static uint32_t width_of(enum width width, const struct tw_hparams *h, uint32_t layer) {
    const struct tw_layer l = tw_layer_of(h, layer);
    switch (width) {
    case ONE:
        return 1;
    case DIM:
        return h->dim;
    case ATTN:
        return l.n_heads * h->head_dim;
    case KV:
        return l.n_kv_heads * h->head_dim;
    case HIDDEN:
        return l.hidden;
    case VOCAB:
        return h->n_vocab;
    case Q_NORM:
        return norm_width(h, l.n_heads);
    case K_NORM:
        return norm_width(h, l.n_kv_heads);
    }
    return 0;
}

const char *tw_part_name(enum tw_part part, uint32_t layer, const char *kind,
                         char buffer[TW_PART_NAME_BYTES]) {
    if (tw_part_is_per_layer(part)) {
        snprintf(buffer, TW_PART_NAME_BYTES, "blk.%u.%s.%s", layer, parts[part].name, kind);
    } else {
        snprintf(buffer, TW_PART_NAME_BYTES, "%s.%s", parts[part].name, kind);
    }
    return buffer;
}

void tw_part_shape(enum tw_part part, const struct tw_hparams *h, uint32_t layer, uint32_t *rows,
                   uint32_t *cols) {
    *rows = width_of(parts[part].rows, h, layer);
    *cols = width_of(parts[part].cols, h, layer);
}

bool tw_part_is_norm(enum tw_part part) {
    return parts[part].rows == ONE;
}

uint32_t tw_part_bias_cols(enum tw_part part, const struct tw_hparams *h, uint32_t layer) {
    return width_of(tw_part_is_norm(part) ? parts[part].cols : parts[part].rows, h, layer);
}

struct tw_model_tensor *tw_part_alloc(struct tw_import_memory *memory, const struct tw_hparams *h) {
    uint64_t count = (uint64_t)TW_PART_ATTN_NORM + (uint64_t)h->n_layers * TW_PARTS_PER_LAYER;
    return tw_import_alloc(memory, 2 * count, sizeof(struct tw_model_tensor));
}

static int compare(const void *a, const void *b) {
    return strcmp(((const struct tw_model_tensor *)a)->name,
                  ((const struct tw_model_tensor *)b)->name);
}

void tw_part_sort(struct tw_model_tensor *tensors, uint32_t count) {
    qsort(tensors, count, sizeof tensors[0], compare);
}
