/* SPDX-License-Identifier: Apache-2.0
 *
 * `tilewright run` as a child process: token ids in, token ids and logits out.
 */
#ifndef TW_TESTS_SUPPORT_COMMAND_RUN_H
#define TW_TESTS_SUPPORT_COMMAND_RUN_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stdint.h>

/* What to run; options whose field is zero or NULL are not given. */
struct command_run {
    const char *model;
    const uint32_t *ids;
    uint32_t n_ids, n; /* of the prompt; to generate */
    const char *target, *mode, *isa, *kv;
    uint32_t threads, chunk, rows, sites;
    bool no_logits; /* then the device chooses the tokens */
};

struct command_output {
    uint32_t n, n_vocab;
    uint32_t *ids;
    float *logits; /* [n][n_vocab]; NULL with no_logits */
};

/* Returns NULL, or the reason why there is no command to test. */
const char *command_absent(void);

/* Runs $TW_BIN greedily, ignoring end-of-text tokens, for 120 s at most. Errors: INTERNAL
 * (unexpected exit status, number of ids or logits; the message has the command line and its
 * standard error). */
int command_run(const struct command_run *run, uint32_t n_vocab, struct command_output *out,
                tw_error *err);
void command_output_finish(struct command_output *out);

/* "--target sim4x4 --mode strict ...": for messages, in a static buffer. */
const char *command_text(const struct command_run *run);

/* The folder for the runs' files, created on the first call; and its removal. */
const char *command_folder(void);
void command_folder_remove(void);

#endif
