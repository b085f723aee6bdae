/* SPDX-License-Identifier: Apache-2.0
 *
 * Creating a tokenizer, decoding to text, and what the vocabulary says besides (tokenizer.h).
 */
#include "driver/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

int tw_tokenizer_create(const struct tw_vocab *vocab, struct tw_tokenizer **out, tw_error *err) {
    *out = NULL;
    if (vocab->header.kind < TW_VOCAB_SPM_BPE || vocab->header.kind > TW_VOCAB_MERGE_BPE) {
        return tw_fail(err, TW_E_UNSUPPORTED, "vocabulary: kind is %u, expected %d to %d",
                       vocab->header.kind, TW_VOCAB_SPM_BPE, TW_VOCAB_MERGE_BPE);
    }
    struct tw_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: out of memory");
    }
    tokenizer->vocab = *vocab;
    int rc = tw_tokenizer_fill_tables(tokenizer, err);
    if (rc == 0 && vocab->header.kind == TW_VOCAB_BYTE_BPE) {
        rc = tw_pretokenizer_create(vocab->extra.pre, &tokenizer->pre, err);
    }
    if (rc) {
        tw_tokenizer_destroy(tokenizer);
        return rc;
    }
    *out = tokenizer;
    return 0;
}

void tw_tokenizer_destroy(struct tw_tokenizer *tokenizer) {
    if (tokenizer == NULL) {
        return;
    }
    tw_pretokenizer_destroy(tokenizer->pre);
    free(tokenizer->slots);
    free(tokenizer->merges);
    free(tokenizer->markers);
    free(tokenizer->text);
    free(tokenizer->text_at);
    free(tokenizer);
}

bool tw_tokenizer_is_end(const struct tw_tokenizer *tokenizer, uint32_t id) {
    const struct tw_vocab_header *header = &tokenizer->vocab.header;
    if (id == TW_NONE) {
        return false;
    }
    bool end =
        id == header->eos || (id == header->bos && (header->flags & TW_VOCAB_STOP_AT_BOS) != 0);
    for (uint32_t i = 0; i < tokenizer->vocab.extra.n_ends; i++) {
        end = end || id == tokenizer->vocab.ends[i];
    }
    return end;
}

bool tw_tokenizer_is_control(const struct tw_tokenizer *tokenizer, uint32_t id) {
    unsigned type =
        id < tokenizer->vocab.header.n_tokens ? tw_piece_type(&tokenizer->vocab, id) : 0;
    return type == TW_TOKEN_CONTROL || type == TW_TOKEN_UNKNOWN;
}

/* Returns whether the encoder puts a blank before a text. */
static bool drops_first_space(const struct tw_vocab *vocab) {
    return (vocab->header.flags & TW_VOCAB_SPACE_PREFIX) &&
           !(vocab->header.flags & TW_VOCAB_SPACE_SUFFIX);
}

int tw_tokenizer_piece(const struct tw_tokenizer *tokenizer, uint32_t id, unsigned flags,
                       const char **bytes, size_t *n, tw_error *err) {
    const struct tw_vocab *vocab = &tokenizer->vocab;
    if (id >= vocab->header.n_tokens) {
        return tw_fail(err, TW_E_RANGE, "token id %u is outside the vocabulary of %u tokens", id,
                       vocab->header.n_tokens);
    }
    bool silent = tw_tokenizer_is_control(tokenizer, id);
    TW_ASSERT(tokenizer->text_at[id] <= tokenizer->text_at[id + 1]);
    *bytes = tokenizer->text + tokenizer->text_at[id];
    *n = silent && !(flags & TW_PIECE_SPECIAL)
             ? 0
             : tokenizer->text_at[id + 1] - tokenizer->text_at[id];
    bool drop = (flags & TW_PIECE_FIRST) && drops_first_space(vocab) && !silent;
    if (drop && *n > 0 && **bytes == ' ') {
        *bytes += 1;
        *n -= 1;
    }
    return 0;
}

int tw_tokenizer_decode(const struct tw_tokenizer *tokenizer, const uint32_t *ids, size_t count,
                        unsigned flags, char *out, size_t capacity, size_t *n, tw_error *err) {
    *n = 0;
    for (size_t i = 0; i < count; i++) {
        const char *bytes;
        size_t length;
        int rc = tw_tokenizer_piece(tokenizer, ids[i], flags, &bytes, &length, err);
        if (rc) {
            return rc;
        }
        if (*n < capacity && length > 0) {
            memcpy(out + *n, bytes, length < capacity - *n ? length : capacity - *n);
        }
        *n += length;
        if (ids[i] != tokenizer->vocab.header.bos) {
            flags &= ~(unsigned)TW_PIECE_FIRST;
        }
    }
    return 0;
}
