/* SPDX-License-Identifier: Apache-2.0
 *
 * Text of which only some parts may hold special tokens: a prompt made of a chat template, whose
 * markers are tokens, and of what users wrote, where the same characters are text.
 */
#ifndef TW_DRIVER_TOKENIZER_ENCODE_PARTS_H
#define TW_DRIVER_TOKENIZER_ENCODE_PARTS_H

#include "driver/tokenizer/tokenizer.h"

struct tw_text_part {
    const char *text;
    size_t n;
    bool special; /* CONTROL, UNKNOWN and USER_DEFINED pieces in it are recognised */
};

/* Appends the ids of the parts' text to `out`, without BOS and EOS. What lies between two special
 * tokens is encoded as one text, whatever parts it is from. A special token must lie in parts that
 * may have some. USER_DEFINED pieces are recognised everywhere, as the models' own tokenizers do.
 * Errors: those of tw_tokenizer_encode(); then the ids in `out` are unchanged. */
int tw_tokenizer_encode_parts(const struct tw_tokenizer *tokenizer,
                              const struct tw_text_part *parts, size_t n_parts,
                              struct tw_token_list *out, tw_error *err);

#endif
