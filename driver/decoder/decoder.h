/* SPDX-License-Identifier: Apache-2.0
 *
 * An open bundle with its tokenizer: what tw_decoder points to.
 */
#ifndef TW_DRIVER_DECODER_DECODER_H
#define TW_DRIVER_DECODER_DECODER_H

#include "driver/tokenizer/tokenizer.h"
#include "loader/bundle/loader.h"
#include "tilewright/tilewright.h"

#include <stdatomic.h>

struct tw_decoder {
    _Atomic uint32_t users; /* besides the caller: deployments */
    struct tw_bundle bundle;
    struct tw_vocab vocab;
    struct tw_tokenizer *tokenizer; /* NULL: the bundle has none */
    bool verified;
};

/* One more user; each ends with tw_decoder_close. To callers a decoder does not change; how many
 * use it is ours. */
struct tw_decoder *tw_decoder_retain(const tw_decoder *decoder);
/* The ids that end a text: 0 to TW_ENDS_MAX of them, none twice. */
uint32_t tw_decoder_ends(const tw_decoder *decoder, uint32_t end[TW_ENDS_MAX]);

#endif
