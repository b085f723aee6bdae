/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a vocabulary blob of tilewright/vocab.h.
 */
#ifndef TW_LOADER_BUNDLE_VOCAB_OPEN_H
#define TW_LOADER_BUNDLE_VOCAB_OPEN_H

#include "tilewright/vocab.h"

/* Tokens of a vocabulary, at most: of models, of blobs, and what a bundle's note may claim. */
#define TW_MAX_VOCAB (1u << 24)

/* Checks the blob (4-byte aligned; sizes, monotone offsets, ids below n_tokens, finite scores) and
 * creates a view of it; the blob must outlive the view. Errors: FORMAT, TRUNCATED, RANGE. */
int tw_vocab_open(const void *blob, size_t size, struct tw_vocab *out, tw_error *err);

#endif
