/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the tokenizer's files (README.md says which does what); not for other folders.
 */
#ifndef TW_DRIVER_TOKENIZER_TOKENIZER_INTERNAL_H
#define TW_DRIVER_TOKENIZER_TOKENIZER_INTERNAL_H

#include "driver/tokenizer/pretokenizer.h"
#include "driver/tokenizer/tokenizer.h"

#include "loader/base/assert.h"

#define TW_SPACE "\xE2\x96\x81" /* U+2581, which stands for a blank in pieces */

#define TW_PIECE_LENGTHS 1024u

struct tw_piece_slot {
    uint32_t hash;
    uint32_t id; /* TW_NONE: free */
};

struct tw_tokenizer {
    struct tw_vocab vocab;
    /* the pieces that plain text may become; open addressing, slot_mask + 1 slots */
    struct tw_piece_slot *slots;
    uint32_t slot_mask;
    uint32_t longest;                      /* bytes of the longest of them */
    uint8_t lengths[TW_PIECE_LENGTHS / 8]; /* bit n % 8 of [n / 8]: some piece has n bytes */
    uint32_t byte_ids[256];
    /* the same for merges, by their pairs: numbers of vocab.merges, or TW_NONE; NULL: the kind has
     * none */
    uint32_t *merges;
    uint32_t merge_mask;
    uint32_t *markers; /* ids of the special pieces, sorted by their bytes */
    uint32_t n_markers;
    uint32_t first_marker[257]; /* those that begin with byte b are [b] to [b + 1] */
    char *text;                 /* of each token: text[text_at[id] .. text_at[id + 1]) */
    uint32_t *text_at;
    bool words_apart;    /* no piece has a blank after another character: words are independent */
    float unknown_score; /* UNIGRAM: of a character that no piece spells */
    struct tw_pretokenizer *pre; /* BYTE_BPE only */
};

/* What an encode allocates, reused from word to word. Zero-initialise it. */
struct tw_symbol;
struct tw_encode_scratch {
    struct tw_symbol *symbols;
    uint32_t *heap;
    size_t symbols_room, heap_room;
    struct tw_cuts cuts;
};

/* Returns the piece of an id as spelled in the vocabulary. */
static inline const char *tw_piece_raw(const struct tw_vocab *vocab, uint32_t id, uint32_t *n) {
    TW_ASSERT(id < vocab->header.n_tokens && vocab->offsets[id] <= vocab->offsets[id + 1]);
    TW_ASSERT(vocab->offsets[id + 1] <= vocab->header.bytes_size);
    *n = vocab->offsets[id + 1] - vocab->offsets[id];
    return vocab->bytes + vocab->offsets[id];
}

static inline unsigned tw_piece_type(const struct tw_vocab *vocab, uint32_t id) {
    return vocab->types[id] & TW_TOKEN_TYPE_MASK;
}

/* Returns whether the pieces write blanks as U+2581. */
static inline bool tw_escapes_spaces(const struct tw_vocab *vocab) {
    return vocab->header.kind != TW_VOCAB_BYTE_BPE &&
           !(vocab->header.flags & TW_VOCAB_PLAIN_SPACES);
}

/* ---- tables (tokenizer_tables.c) ---- */

/* Builds the tables of pieces, byte tokens, special pieces, merges and texts. Errors: FORMAT,
 * NOMEM. */
int tw_tokenizer_fill_tables(struct tw_tokenizer *tokenizer, tw_error *err);

/* Returns the id of the ordinary piece that consists of exactly these bytes, or TW_NONE. */
uint32_t tw_piece_find(const struct tw_tokenizer *tokenizer, const char *bytes, uint32_t n);

/* Continues a hash, which begins as TW_PIECE_HASH, by one byte; and finds the piece of the hashed
 * bytes. */
#define TW_PIECE_HASH 0xCBF29CE484222325u
static inline uint64_t tw_piece_hash(uint64_t hash, char byte) {
    return (hash ^ (uint8_t)byte) * 0x100000001B3u; /* FNV-1a (Fowler, Noll, Vo) */
}
uint32_t tw_piece_find_hashed(const struct tw_tokenizer *tokenizer, const char *bytes, uint32_t n,
                              uint64_t hash);

/* Returns the number, which is the rank, of the merge of two pieces, or TW_NONE. */
uint32_t tw_merge_find(const struct tw_tokenizer *tokenizer, uint32_t left, uint32_t right);

/* Returns the id of the longest marker that `text` begins with, or TW_NONE; of equal ones the
 * highest id. Considers only USER_DEFINED ones if `user_only`, and none whose bit is set in
 * `except` (NULL: all). */
uint32_t tw_marker_find(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                        bool user_only, const uint8_t *except);

/* ---- encoding ---- */

int tw_append_id(struct tw_token_list *list, uint32_t id, tw_error *err);

/* Appends the byte tokens of bytes[0..n), which no piece spells, or the unknown token unless the
 * previous symbol produced one (*unknown; updated). Errors: UNSUPPORTED, NOMEM. */
int tw_append_unspelled(const struct tw_tokenizer *tokenizer, const char *bytes, uint32_t n,
                        bool *unknown, struct tw_token_list *out, tw_error *err);

/* Merges one word and appends its ids (merge.c). *unknown as above. */
int tw_encode_word(const struct tw_tokenizer *tokenizer, const char *word, uint32_t n,
                   struct tw_encode_scratch *scratch, bool *unknown, struct tw_token_list *out,
                   tw_error *err);

/* Appends the best split of a normalised text (unigram.c). */
int tw_encode_unigram(const struct tw_tokenizer *tokenizer, const char *text, uint32_t n,
                      struct tw_token_list *out, tw_error *err);

/* Makes a copy of the text as the pieces spell it (normalise.c), the caller's to free: normalised,
 * blanks as U+2581, with the blank that the flags ask for; less than 2^32 bytes. `start`: no
 * special piece is before it. Errors: RANGE (it becomes much longer), NOMEM. */
int tw_normalise(const struct tw_tokenizer *tokenizer, const char *text, size_t n, bool start,
                 char **out, size_t *length, tw_error *err);

#endif
