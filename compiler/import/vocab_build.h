/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the vocabulary blob of tilewright/vocab.h token by token.
 */
#ifndef TW_COMPILER_IMPORT_VOCAB_BUILD_H
#define TW_COMPILER_IMPORT_VOCAB_BUILD_H

#include "compiler/import/model.h"
#include "compiler/import/model_memory.h"
#include "tilewright/vocab.h"

struct tw_vocab_builder {
    const char *path;               /* for messages */
    struct tw_vocab_header *header; /* the caller sets flags and ids before tw_vocab_finish */
    float *scores;
    uint32_t *offsets;
    uint8_t *types;
    char *bytes;
    uint32_t next; /* tokens so far */
    size_t size;   /* of the blob */
};

/* Makes room for `n_tokens` pieces of `bytes` bytes in all; ids start as TW_NONE. Errors: RANGE,
 * NOMEM. */
int tw_vocab_begin(struct tw_vocab_builder *b, const char *path, uint64_t n_tokens, uint64_t bytes,
                   struct tw_import_memory *memory, tw_error *err);

/* Adds the next token. *piece is set to room for its `length` bytes, which the caller fills. The
 * caller must not exceed the sizes given to tw_vocab_begin. Errors: RANGE (the score is not
 * finite). */
int tw_vocab_put(struct tw_vocab_builder *b, float score, enum tw_token_type type, uint64_t length,
                 char **piece, tw_error *err);

/* Drops flags that refer to an absent id, checks the blob with tw_vocab_open and stores it in the
 * model. */
int tw_vocab_finish(struct tw_vocab_builder *b, struct tw_model *model, tw_error *err);

/* Guesses the type of a piece if the file gives none: "<0x0A>" is a byte, everything else is
 * normal. */
enum tw_token_type tw_vocab_guess_type(const void *piece, uint64_t length);

#endif
