/* SPDX-License-Identifier: Apache-2.0
 *
 * The pre-tokenizers of byte-level BPE: regular expressions (PCRE2) that cut a text into the words
 * within which bytes are merged. Each family of tilewright/vocab.h's TW_PRETOKENIZERS has one
 * expression, or several of which each cuts what the one before it left. None of them
 * backtracks further than a run of like characters, which the next alternative then takes as a
 * whole, so the time is linear.
 *
 * A pre-tokenizer is immutable: any number of threads may use one.
 */
#ifndef TW_DRIVER_TOKENIZER_PRETOKENIZER_H
#define TW_DRIVER_TOKENIZER_PRETOKENIZER_H

#include "tilewright/error.h"

#include <stddef.h>
#include <stdint.h>

struct tw_pretokenizer;

/* Where the words of a text end, in ascending order; the last is the text's end. Zero-initialise
 * it. */
struct tw_cuts {
    uint32_t *ends, *old; /* `old` is room for the previous stage's */
    size_t n, room, old_room;
};

/* Creates the pre-tokenizer of that name. *out is the caller's: tw_pretokenizer_destroy(). Errors:
 * UNSUPPORTED (the name is unknown; lists those that are), NOMEM. */
int tw_pretokenizer_create(const char *name, struct tw_pretokenizer **out, tw_error *err);
void tw_pretokenizer_destroy(struct tw_pretokenizer *pre); /* NULL is legal */

/* Cuts text[0..n), n > 0, which must be well-formed UTF-8, into cuts->ends. Errors: NOMEM. */
int tw_pretokenizer_cut(const struct tw_pretokenizer *pre, const char *text, uint32_t n,
                        struct tw_cuts *cuts, tw_error *err);
void tw_cuts_finish(struct tw_cuts *cuts);

#endif
