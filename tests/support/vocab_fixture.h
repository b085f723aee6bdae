/* SPDX-License-Identifier: Apache-2.0
 *
 * Vocabularies for tests, made from a list of pieces.
 */
#ifndef TW_TESTS_SUPPORT_VOCAB_FIXTURE_H
#define TW_TESTS_SUPPORT_VOCAB_FIXTURE_H

#include "tilewright/vocab.h"

struct fixture_piece {
    const char *text;
    float score;
    enum tw_token_type type;
};

struct fixture {
    void *blob; /* to be freed */
    struct tw_vocab vocab;
};

/* A vocabulary of `n` pieces; if `bytes`, the 256 byte tokens follow them. Of `header`, flags and
 * ids count. Returns what tw_vocab_open returns, or NOMEM. */
int fixture_vocab(const struct fixture_piece *pieces, uint32_t n, int bytes,
                  struct tw_vocab_header header, struct fixture *out, tw_error *err);

#endif
