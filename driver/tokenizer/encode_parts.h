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

/* USER_DEFINED pieces by which a chat template marks turns. Zero-initialise it. */
struct tw_reserved {
    uint8_t *bits; /* bit id % 8 of [id / 8]; NULL: none */
};
/* Adds those that occur in a template's text. Only pieces in angle or square brackets, such as
 * <|user|>, are taken for marks: blanks, digits and words may be USER_DEFINED, too. Errors:
 * NOMEM. */
int tw_reserved_add(struct tw_reserved *reserved, const struct tw_tokenizer *tokenizer,
                    const char *text, size_t n, tw_error *err);
/* Copies `from` to *out, which is uninitialised. Errors: NOMEM. */
int tw_reserved_copy(const struct tw_reserved *from, const struct tw_tokenizer *tokenizer,
                     struct tw_reserved *out, tw_error *err);
void tw_reserved_finish(struct tw_reserved *reserved);

/* Appends the ids of the parts' text to `out`, without BOS and EOS. What lies between two special
 * tokens is encoded as one text, whatever parts it is from. A special token must lie in parts that
 * may have some. Other USER_DEFINED pieces than those of `reserved` (NULL: none) are recognised
 * everywhere, as the models' own tokenizers do. Errors: those of tw_tokenizer_encode(); then the
 * ids in `out` are unchanged. */
int tw_tokenizer_encode_parts(const struct tw_tokenizer *tokenizer,
                              const struct tw_text_part *parts, size_t n_parts,
                              const struct tw_reserved *reserved, struct tw_token_list *out,
                              tw_error *err);

#endif
