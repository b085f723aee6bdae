/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden files: greedy ids and logits that other programs computed, in one form for both kinds of
 * file.
 */
#ifndef TW_TESTS_SUPPORT_GOLDEN_H
#define TW_TESTS_SUPPORT_GOLDEN_H

#include "tilewright/error.h"

#include <stdint.h>

struct golden_logit {
    uint32_t step; /* 0: the logits of the prompt's last token */
    uint32_t id;
    double logit;
};

/* One prompt and what follows it greedily. */
struct golden_run {
    const char *prompt;
    uint32_t n_prompt, n_ids, n_logits;
    uint32_t *prompt_ids; /* BOS included */
    uint32_t *ids;
    /* [n_ids] difference of the two best logits of each step, or NULL if the file has none */
    double *margins;
    struct golden_logit *logits;
};

struct golden {
    uint32_t n_runs;
    struct golden_run *runs;
    double mean_nll; /* of nll.txt; 0 where the file has none */
    uint32_t nll_tokens;
    void *json; /* keeps the prompts' text */
};

/* Reads a file of either form: data/models/golden/NAME.json ("runs"; `suffix` is NULL), or the
 * fairy-tale model's ("prompts", of which greedy_SUFFIX and top5_SUFFIX count). Errors: IO,
 * FORMAT. */
int golden_load(const char *path, const char *suffix, struct golden *out, tw_error *err);
void golden_finish(struct golden *golden);

/* Returns $TW_SHARED/rest in a static buffer; NULL, with the reason on stderr, if the data is
 * absent: the test skips. */
const char *golden_shared(const char *rest);

#endif
