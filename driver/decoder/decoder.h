/* SPDX-License-Identifier: Apache-2.0
 *
 * An open bundle with its tokenizer: the structure behind tw_decoder. Immutable but for its
 * reference count, so any thread may use it.
 */
#ifndef TW_DRIVER_DECODER_DECODER_H
#define TW_DRIVER_DECODER_DECODER_H

#include "driver/tokenizer/tokenizer.h"
#include "loader/bundle/loader.h"
#include "tilewright/tilewright.h"

#include <stdatomic.h>

struct tw_decoder {
    _Atomic uint32_t users; /* references besides the caller's: deployments */
    struct tw_bundle bundle;
    struct tw_vocab vocab;
    struct tw_tokenizer *tokenizer; /* NULL: the bundle has none */
    bool verified;
};

/* Adds a reference, which tw_decoder_close() drops. Takes a const pointer because callers see a
 * decoder as immutable; the count is internal. */
struct tw_decoder *tw_decoder_retain(const tw_decoder *decoder);
/* Stores the distinct ids that end a text, the usual ones first, and returns how many: 0 to
 * TW_ENDS_MAX. A vocabulary may have more: tw_tokenizer_is_end() knows all. */
uint32_t tw_decoder_ends(const tw_decoder *decoder, uint32_t end[TW_ENDS_MAX]);

#endif
