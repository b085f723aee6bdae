/* SPDX-License-Identifier: Apache-2.0
 *
 * The prompt of a command line: text, a file, a pipe or ids, as the token ids to feed.
 */
#ifndef TW_TOOLS_PROMPT_H
#define TW_TOOLS_PROMPT_H

#include "tilewright/tilewright.h"
#include "tools/options.h"

struct prompt_options {
    const char *text, *file; /* NULL: not given */
    struct opt_ids ids;
    bool no_bos, escape; /* escape: interpret \n and the like in the text */
    /* not an option: the prompt continues a sequence, so nothing is put before it, and there may be
     * none */
    bool continues;
};

struct prompt {
    char *text; /* NULL for ids */
    size_t n_text;
    uint32_t *ids;
    size_t n; /* > 0, unless it continues a sequence */
};

/* Reads and tokenizes the prompt. Without text, file and ids, standard input is read if it is a
 * pipe or a file; else the prompt is the beginning-of-text token. The last newline of what is read
 * from a file or standard input is dropped. If the text itself begins with that token (`special`),
 * no second one is put before it. The caller calls prompt_finish in any case. Errors: USAGE (an id
 * outside of the vocabulary, no token at all), UNSUPPORTED (no tokenizer), IO, RANGE (a file over
 * 64 MiB). */
int prompt_read(const struct prompt_options *options, bool special, const tw_decoder *decoder,
                struct prompt *out, tw_error *err);
/* Reads the text only, terminated: out->ids stays NULL. Errors: IO, RANGE, NOMEM. */
int prompt_read_text(const struct prompt_options *options, struct prompt *out, tw_error *err);
void prompt_finish(struct prompt *prompt);

#endif
