/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the vocabulary blob of tilewright/vocab.h: tokens one by one, then what the header and
 * the merges say about them.
 */
#ifndef TW_COMPILER_IMPORT_VOCAB_BUILD_H
#define TW_COMPILER_IMPORT_VOCAB_BUILD_H

#include "compiler/import/model.h"
#include "compiler/import/model_memory.h"
#include "tilewright/vocab.h"

struct tw_vocab_sizes {
    enum tw_vocab_kind kind;
    uint64_t n_tokens, bytes; /* of all pieces */
    uint64_t n_merges, charsmap_bytes;
};

struct tw_vocab_builder {
    const char *path;               /* for messages */
    struct tw_vocab_header *header; /* the caller sets flags and ids before tw_vocab_finish */
    struct tw_vocab_extra *extra;   /* the caller sets `pre` and `special` */
    float *scores;                  /* NULL: the kind has none */
    uint32_t *offsets;
    struct tw_vocab_merge *merges; /* all of them the caller's to fill */
    uint8_t *types;
    char *bytes;
    uint8_t *charsmap; /* the caller's to fill */
    uint32_t *ends;
    uint32_t next; /* tokens so far */
    size_t size;   /* of the blob, without ends */
    /* ids by the bytes of their pieces, once tw_vocab_find was called; open addressing */
    uint32_t *index;
    uint64_t index_mask;
    struct tw_import_memory *memory;
};

/* Makes room for what `sizes` says; ids start as TW_NONE. Errors: RANGE, NOMEM. */
int tw_vocab_begin(struct tw_vocab_builder *b, const char *path, const struct tw_vocab_sizes *sizes,
                   struct tw_import_memory *memory, tw_error *err);

/* Adds the next token. *piece is set to room for its `length` bytes, which the caller fills; if it
 * needs fewer, it lowers offsets[next]. `type` may have the bits TW_TOKEN_LSTRIP and
 * TW_TOKEN_RSTRIP. The caller must not exceed the sizes given to tw_vocab_begin. Errors: RANGE (the
 * score is not finite). */
int tw_vocab_put(struct tw_vocab_builder *b, float score, unsigned type, uint64_t length,
                 char **piece, tw_error *err);

/* Finds the token with exactly these bytes after all were added, or TW_NONE; of several the last
 * that is not special, or else the last. The first call builds an index. Errors: NOMEM, FORMAT
 * (pieces crafted to collide). */
int tw_vocab_find(struct tw_vocab_builder *b, const void *bytes, uint64_t length, uint32_t *id,
                  tw_error *err);

/* Adds an id that ends a text besides eos, unless it is TW_NONE, eos or already there. Ids beyond
 * TW_VOCAB_MAX_EXTRA_ENDS are dropped. */
void tw_vocab_add_end(struct tw_vocab_builder *b, uint32_t id);

/* Adds as ends, and types as CONTROL, the tokens whose piece is one of the names that models give
 * to the end of a text, turn or message, and the padding, repository and separator of fill in the
 * middle; sets the `special` that are still TW_NONE by the usual names. */
int tw_vocab_add_known_names(struct tw_vocab_builder *b, tw_error *err);

/* Types what begins or ends a text as CONTROL if it was USER_DEFINED, drops flags that refer to an
 * absent id and what the pieces left of sizes.bytes, checks the blob with tw_vocab_open and stores
 * it in the model. */
int tw_vocab_finish(struct tw_vocab_builder *b, struct tw_model *model, tw_error *err);

/* Guesses the type of a piece if the file gives none: "<0x0A>" is a byte, everything else is
 * normal. */
enum tw_token_type tw_vocab_guess_type(const void *piece, uint64_t length);

/* Converts a piece of byte-level BPE, in which each byte is written as one character (GPT-2's
 * table: printable ones of Latin-1 as themselves, the others from U+0100 on), to the bytes. `out`
 * has room for `length` bytes; returns how many it used. What is not in the table stays as it
 * is. */
uint64_t tw_vocab_unmap_bytes(const void *piece, uint64_t length, char *out);

#endif
