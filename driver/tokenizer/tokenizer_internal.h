/* SPDX-License-Identifier: Apache-2.0
 * What tokenizer.c (tables, pieces) and tokenizer_encode.c share; no one else includes it. */
#ifndef TW_DRIVER_TOKENIZER_TOKENIZER_INTERNAL_H
#define TW_DRIVER_TOKENIZER_TOKENIZER_INTERNAL_H

#include "driver/tokenizer/tokenizer.h"

#include "loader/base/assert.h"

struct piece_slot {
    uint32_t hash;
    uint32_t id; /* TW_NONE: free */
};

struct tw_tokenizer {
    struct tw_vocab vocab;
    /* the pieces that merges may make; open addressing, slot_mask + 1 slots */
    struct piece_slot *slots;
    uint32_t slot_mask;
    uint32_t longest; /* bytes of the longest of them */
    uint32_t byte_ids[256];
    uint32_t *markers; /* the special pieces, in the order of their bytes */
    uint32_t n_markers;
    char *text; /* what each token reads as: text[text_at[id] .. text_at[id + 1]) */
    uint32_t *text_at;
};

/* The piece of an id as the vocabulary spells it. */
static inline const char *tw_piece_raw(const struct tw_vocab *vocab, uint32_t id, uint32_t *n) {
    TW_ASSERT(id < vocab->header.n_tokens && vocab->offsets[id] <= vocab->offsets[id + 1]);
    TW_ASSERT(vocab->offsets[id + 1] <= vocab->header.bytes_size);
    *n = vocab->offsets[id + 1] - vocab->offsets[id];
    return vocab->bytes + vocab->offsets[id];
}

/* The id of the ordinary piece that is exactly these bytes, or TW_NONE. */
uint32_t tw_piece_find(const struct tw_tokenizer *tokenizer, const char *bytes, uint32_t n);

/* The longest marker that `text` begins with, or TW_NONE; of equal ones the highest id. Only
 * USER_DEFINED ones if `user_only`. */
uint32_t tw_marker_find(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                        bool user_only);

#endif
