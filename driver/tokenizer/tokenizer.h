/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer: text to token ids and back, over a vocabulary of tilewright/vocab.h
 * (SentencePiece-style BPE with byte fallback). It gives llama.cpp's ids, with these choices where
 * the text or the vocabulary is odd:
 *   - Text may hold any bytes. A byte that is not part of a well-formed UTF-8 character (NUL is one) is a symbol of its
 *     own.
 *   - A symbol that no piece spells becomes its byte tokens; where the vocabulary lacks one of these, the unknown
 *     token, one for a run of such symbols (as SentencePiece does).
 *   - Plain text never becomes a CONTROL, UNKNOWN, USER_DEFINED or BYTE token by spelling it ("</s>" is four ordinary
 *     characters). llama.cpp takes USER_DEFINED pieces out of plain text too: TW_ENCODE_USER_DEFINED asks for that.
 *   - Of equal pieces the one with the highest id is used.
 *   - U+2581 in the text is the same as a blank, as SentencePiece spells blanks so.
 * A tokenizer does not change after its creation: any number of threads may use it.
 */
#ifndef TW_DRIVER_TOKENIZER_TOKENIZER_H
#define TW_DRIVER_TOKENIZER_TOKENIZER_H

#include "tilewright/error.h"
#include "tilewright/vocab.h"

#include <stdbool.h>
#include <stdint.h>

#define TW_TEXT_BYTES_MAX (1u << 28) /* of one encode */
#define TW_MARKER_BYTES_MAX 256u     /* longer special pieces are not looked for in texts */

struct tw_tokenizer;

/* Ids in a growable array. Zero-initialise it. */
struct tw_token_list {
    uint32_t *ids;
    size_t n, capacity;
    /* steps of all encodes into it: bytes read, pieces looked up, moves in the queue of merges */
    uint64_t work;
};

enum tw_encode_flags {
    TW_ENCODE_BOS = 1,    /* BOS first, whatever the vocabulary's flag says (if there is one) */
    TW_ENCODE_NO_BOS = 2, /* no BOS; with neither flag the vocabulary decides */
    TW_ENCODE_EOS = 4,    /* the same for EOS at the end */
    TW_ENCODE_NO_EOS = 8,
    /* CONTROL, UNKNOWN and USER_DEFINED pieces in the text stand for their tokens */
    TW_ENCODE_SPECIAL = 16,
    TW_ENCODE_USER_DEFINED = 32 /* USER_DEFINED ones do */
};

enum tw_piece_flags {
    TW_PIECE_SPECIAL = 1, /* CONTROL and UNKNOWN tokens give their piece; else nothing */
    /* the text begins here: the blank that the encoder puts first is dropped */
    TW_PIECE_FIRST = 2
};

/* Builds the tables over `vocab`, whose blob must outlive the tokenizer. Memory: 20 to 36 bytes a
 * token and the pieces. Errors: UNSUPPORTED (another kind of vocabulary), FORMAT (a bad byte token,
 * or pieces made to collide), NOMEM. */
int tw_tokenizer_create(const struct tw_vocab *vocab, struct tw_tokenizer **out, tw_error *err);
void tw_tokenizer_destroy(struct tw_tokenizer *tokenizer); /* NULL is fine */

/* True for the ids that end a text: EOS, those that end a turn or a message, and BOS where the
 * vocabulary says so. */
bool tw_tokenizer_is_end(const struct tw_tokenizer *tokenizer, uint32_t id);

/* Appends the ids of text[0..n) to `out`; `flags` of tw_encode_flags. Time n log n, memory about 32
 * bytes a character while it runs. On failure `out` holds the ids that it held before. Errors:
 * RANGE (text too long), UNSUPPORTED (a character that the vocabulary has no token for, not even an
 * unknown one), NOMEM. */
int tw_tokenizer_encode(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                        unsigned flags, struct tw_token_list *out, tw_error *err);
void tw_token_list_finish(struct tw_token_list *list);

/* The text of one token: n bytes, not terminated, part of a character at times; it lives as long as
 * the tokenizer and may be empty. `flags` of tw_piece_flags. Errors: RANGE (no such id). */
int tw_tokenizer_piece(const struct tw_tokenizer *tokenizer, uint32_t id, unsigned flags,
                       const char **bytes, size_t *n, tw_error *err);

/* The text of `count` tokens, as much of it as `capacity` bytes hold, not terminated; *n is the
 * length of all of it. TW_PIECE_FIRST counts for the first token that is not BOS. Errors: RANGE. */
int tw_tokenizer_decode(const struct tw_tokenizer *tokenizer, const uint32_t *ids, size_t count,
                        unsigned flags, char *out, size_t capacity, size_t *n, tw_error *err);

#endif
