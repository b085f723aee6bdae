/* SPDX-License-Identifier: Apache-2.0
 *
 * An open bundle with its tokenizer: what tw_decoder points to.
 */
#ifndef TW_DRIVER_DECODER_DECODER_H
#define TW_DRIVER_DECODER_DECODER_H

#include "driver/tokenizer/tokenizer.h"
#include "loader/bundle/loader.h"
#include "tilewright/tilewright.h"

struct tw_decoder {
    struct tw_bundle bundle;
    struct tw_vocab vocab;
    struct tw_tokenizer *tokenizer; /* NULL: the bundle has none */
    bool verified;
};

#endif
