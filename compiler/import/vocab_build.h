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
    struct tw_vocab_header *header; /* flags and ids are the caller's to set before finish */
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

/* The next token. Its place for `length` bytes is returned through *piece, for the caller to fill.
 * Errors: RANGE (the score is not a number). The caller keeps to what it told tw_vocab_begin. */
int tw_vocab_put(struct tw_vocab_builder *b, float score, enum tw_token_type type, uint64_t length,
                 char **piece, tw_error *err);

/* Drops flags that name an absent id, checks the blob with tw_vocab_open and hands it to the
 * model. */
int tw_vocab_finish(struct tw_vocab_builder *b, struct tw_model *model, tw_error *err);

/* The type of a piece where the file gives none: "<0x0A>" is a byte, the rest is normal. */
enum tw_token_type tw_vocab_guess_type(const void *piece, uint64_t length);

#endif
