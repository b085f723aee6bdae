/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary, as the importers create it, `.tw.vocab` stores it and the tokenizer reads it: one
 * little-endian blob of
 *   struct tw_vocab_header, float scores[n], uint32_t offsets[n + 1], uint8_t types[n],
 *   char bytes[]
 * each part starting at a multiple of 4 bytes. Piece i is bytes[offsets[i] .. offsets[i+1]), not
 * terminated, of any bytes (SentencePiece's U+2581 for a blank, as in GGUF; byte tokens as "<0x0A>"
 * with type BYTE).
 */
#ifndef TILEWRIGHT_VOCAB_H
#define TILEWRIGHT_VOCAB_H

#include "tilewright/error.h"
#include "tilewright/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TW_VOCAB_MAGIC 0x31435654u /* "TVC1" */

enum tw_vocab_kind { TW_VOCAB_NONE = 0, TW_VOCAB_SPM_BPE = 1 };

/* Token types, numbered as in GGUF. */
enum tw_token_type {
    TW_TOKEN_NORMAL = 1,
    TW_TOKEN_UNKNOWN = 2,
    TW_TOKEN_CONTROL = 3,
    TW_TOKEN_USER_DEFINED = 4,
    TW_TOKEN_UNUSED = 5,
    TW_TOKEN_BYTE = 6
};

enum tw_vocab_flags {
    TW_VOCAB_ADD_BOS = 1,
    TW_VOCAB_ADD_EOS = 2,
    TW_VOCAB_SPACE_PREFIX = 4,
    TW_VOCAB_STOP_AT_BOS = 8 /* llama2.c: a sampled BOS ends the text */
};

/* Token ids are TW_NONE if the model has none. Besides eos the tokens end[0 .. n_ends) end a
 * text: those that end a turn or a message. (These three words were reserved, and zero, in bundles
 * of version 1.0.) */
#define TW_VOCAB_MAX_ENDS 2u
struct tw_vocab_header {
    uint32_t magic, kind, n_tokens, flags;
    uint32_t bos, eos, unk, pad;
    uint32_t bytes_size;
    uint32_t n_ends, end[TW_VOCAB_MAX_ENDS];
};
TW_STATIC_ASSERT(sizeof(struct tw_vocab_header) == 48, "vocab header");

/* A checked view of a blob (tw_vocab_open of loader/bundle/vocab_open.h); all pointers are into the
 * blob. */
struct tw_vocab {
    struct tw_vocab_header header;
    const float *scores;
    const uint32_t *offsets;
    const uint8_t *types;
    const char *bytes;
};

#ifdef __cplusplus
}
#endif
#endif
