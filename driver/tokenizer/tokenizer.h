/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer: text to token ids and back, over a vocabulary of tilewright/vocab.h. It produces
 * llama.cpp's ids, with these choices for unusual texts and vocabularies:
 *   - Text may contain any bytes. A byte that is not part of a well-formed UTF-8 character is a
 *     symbol of its own (and, where words are cut, like a control character); NUL is a character.
 *   - A symbol that no piece spells becomes its byte tokens. If the vocabulary lacks one of them it
 *     becomes the unknown token, one for a run of such symbols (as in SentencePiece). In
 *     byte-level BPE, U+FFFD stands for a character of which a byte has no token.
 *   - Plain text never becomes a CONTROL, UNKNOWN or BYTE token by spelling it ("</s>" is four
 *     ordinary characters), nor a USER_DEFINED one unless TW_ENCODE_USER_DEFINED is set, as
 *     llama.cpp does in any text.
 *   - Of equal pieces the one with the highest id is used.
 *   - Where pieces spell blanks as U+2581, U+2581 in the text is the same as a space.
 * A tokenizer is immutable, so any number of threads may use it.
 */
#ifndef TW_DRIVER_TOKENIZER_TOKENIZER_H
#define TW_DRIVER_TOKENIZER_TOKENIZER_H

#include "tilewright/error.h"
#include "tilewright/vocab.h"

#include <stdbool.h>
#include <stdint.h>

#define TW_TEXT_BYTES_MAX (1u << 28) /* maximum text per encode */
#define TW_MARKER_BYTES_MAX 256u     /* longer special pieces are not recognised in text */

struct tw_tokenizer;

/* Bytes [at, at + n) of a text. */
struct tw_text_span {
    size_t at, n;
};

/* Ids in a growable array. Zero-initialise it. */
struct tw_token_list {
    uint32_t *ids;
    size_t n, capacity;
    /* steps of all encodes into it: bytes read, pieces looked up, moves in the heap of merges */
    uint64_t work;
};

enum tw_encode_flags {
    TW_ENCODE_BOS = 1, /* prepend BOS if there is one, even if the vocabulary does not request it */
    TW_ENCODE_NO_BOS = 2, /* no BOS; with neither flag the vocabulary decides */
    TW_ENCODE_EOS = 4,    /* the same for EOS at the end */
    TW_ENCODE_NO_EOS = 8,
    /* recognise CONTROL, UNKNOWN and USER_DEFINED pieces in the text */
    TW_ENCODE_SPECIAL = 16,
    TW_ENCODE_USER_DEFINED = 32 /* recognise USER_DEFINED pieces in the text */
};

enum tw_piece_flags {
    TW_PIECE_SPECIAL = 1, /* the text of CONTROL and UNKNOWN tokens is their piece; else empty */
    /* the text begins here: drop the space that the encoder prepends */
    TW_PIECE_FIRST = 2
};

/* Builds the tables over `vocab`, whose blob must outlive the tokenizer. Uses 20 to 36 bytes of
 * memory per token, the pieces, and 8 to 16 bytes per merge. *out is the caller's:
 * tw_tokenizer_destroy(). Errors: UNSUPPORTED (another kind of vocabulary, an unknown
 * pre-tokenizer), FORMAT (a malformed byte token, pieces or merges crafted to collide), NOMEM. */
int tw_tokenizer_create(const struct tw_vocab *vocab, struct tw_tokenizer **out, tw_error *err);
/* Frees a tokenizer. NULL is legal. */
void tw_tokenizer_destroy(struct tw_tokenizer *tokenizer);

/* Returns whether the id ends a text: EOS, the ids that end a turn or a message, and BOS if the
 * vocabulary says so. */
bool tw_tokenizer_is_end(const struct tw_tokenizer *tokenizer, uint32_t id);

/* Returns whether the id is a CONTROL or UNKNOWN token, which has no text of its own. */
bool tw_tokenizer_is_control(const struct tw_tokenizer *tokenizer, uint32_t id);
/* Appends the ids of text[0..n) to `out`; `flags` of tw_encode_flags. The spans `literal`, in
 * ascending order and without overlaps, are what users wrote in a chat template's text: in them,
 * and across their edges, TW_ENCODE_SPECIAL does not apply, and no piece is recognised whose bit is
 * set in `reserved` (bit id % 8 of [id / 8]; NULL: none). The text is still one text: words go on
 * across the edges. Takes O(n log n) time and about 36 bytes of temporary memory per character. On
 * failure the ids in `out` are unchanged. Errors: RANGE (text too long, or made so by the table of
 * replacements; a span out of order or outside of the text), UNSUPPORTED (a character without a
 * token in a vocabulary without an unknown token), NOMEM. */
int tw_tokenizer_encode_reserving(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                                  const struct tw_text_span *literal, size_t n_literal,
                                  const uint8_t *reserved, unsigned flags,
                                  struct tw_token_list *out, tw_error *err);
/* The same without pieces that are reserved. */
static inline int tw_tokenizer_encode_spans(const struct tw_tokenizer *tokenizer, const char *text,
                                            size_t n, const struct tw_text_span *literal,
                                            size_t n_literal, unsigned flags,
                                            struct tw_token_list *out, tw_error *err) {
    return tw_tokenizer_encode_reserving(tokenizer, text, n, literal, n_literal, NULL, flags, out,
                                         err);
}
/* The same without spans. */
static inline int tw_tokenizer_encode(const struct tw_tokenizer *tokenizer, const char *text,
                                      size_t n, unsigned flags, struct tw_token_list *out,
                                      tw_error *err) {
    return tw_tokenizer_encode_spans(tokenizer, text, n, NULL, 0, flags, out, err);
}
/* Frees the ids and makes the list empty. */
void tw_token_list_finish(struct tw_token_list *list);

/* Stores the text of one token: *n bytes, not terminated, possibly none or only part of a
 * character, valid as long as the tokenizer. `flags` of tw_piece_flags. Errors: RANGE (no such
 * id). */
int tw_tokenizer_piece(const struct tw_tokenizer *tokenizer, uint32_t id, unsigned flags,
                       const char **bytes, size_t *n, tw_error *err);

/* Stores the first `capacity` bytes of the text of `count` tokens, without a terminator, and the
 * total length in *n. `flags` of tw_piece_flags; TW_PIECE_FIRST applies to the first token after
 * BOS. Errors: RANGE (no such id). */
int tw_tokenizer_decode(const struct tw_tokenizer *tokenizer, const uint32_t *ids, size_t count,
                        unsigned flags, char *out, size_t capacity, size_t *n, tw_error *err);

#endif
