/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by tokenizer.c (tables, pieces) and tokenizer_encode.c; not for other files.
 */
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
    /* the pieces that merges may produce; open addressing, slot_mask + 1 slots */
    struct piece_slot *slots;
    uint32_t slot_mask;
    uint32_t longest; /* bytes of the longest of them */
    uint32_t byte_ids[256];
    uint32_t *markers; /* ids of the special pieces, sorted by their bytes */
    uint32_t n_markers;
    char *text; /* of each token: text[text_at[id] .. text_at[id + 1]) */
    uint32_t *text_at;
};

/* Returns the piece of an id as spelled in the vocabulary. */
static inline const char *tw_piece_raw(const struct tw_vocab *vocab, uint32_t id, uint32_t *n) {
    TW_ASSERT(id < vocab->header.n_tokens && vocab->offsets[id] <= vocab->offsets[id + 1]);
    TW_ASSERT(vocab->offsets[id + 1] <= vocab->header.bytes_size);
    *n = vocab->offsets[id + 1] - vocab->offsets[id];
    return vocab->bytes + vocab->offsets[id];
}

/* Returns the id of the ordinary piece that consists of exactly these bytes, or TW_NONE. */
uint32_t tw_piece_find(const struct tw_tokenizer *tokenizer, const char *bytes, uint32_t n);

/* Returns the id of the longest marker that `text` begins with, or TW_NONE; of equal ones the
 * highest id. Considers only USER_DEFINED ones if `user_only`. */
uint32_t tw_marker_find(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                        bool user_only);

#endif
