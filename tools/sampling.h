/* SPDX-License-Identifier: Apache-2.0
 *
 * What run and chat share: the options of sampling, and how they become those of tw_generate().
 */
#ifndef TW_TOOLS_SAMPLING_H
#define TW_TOOLS_SAMPLING_H

#include "tilewright/tilewright.h"
#include "tools/options.h"

struct sampling_options {
    int64_t seed, top_k, repeat_last_n;
    float temp, top_p, min_p, typical;
    float repeat_penalty, presence_penalty, frequency_penalty;
    struct opt_texts stop, bias;
};
/* temp: below 0 if it was not given */
#define SAMPLING_DEFAULTS                                                                         \
    {                                                                                             \
        .seed = -1, .top_k = 40, .repeat_last_n = 64, .temp = -1, .top_p = 0.95f, .min_p = 0.05f, \
        .typical = 1, .repeat_penalty = 1                                                         \
    }
#define SAMPLING_SEED_MAX 9007199254740992.0 /* 2^53: survives any JSON reader */

/* Their rows of an option table; `type` is the verb's structure, whose field `sampling` is a struct
 * sampling_options. */
#define SAMPLING_OFFSET(type, field) \
    (offsetof(type, sampling) + offsetof(struct sampling_options, field))
/* clang-format off */
#define SAMPLING_ROWS(type)                                                                       \
    {OPT_I64, 's', "seed", "N", SAMPLING_OFFSET(type, seed), -1, SAMPLING_SEED_MAX,               \
     "the same seed gives the same text; -1: a random seed (-1)"},                                \
    {OPT_FLOAT, 0, "temp", "T", SAMPLING_OFFSET(type, temp), 0, 100,                              \
     "temperature; 0: always pick the likeliest token (0.8)"},                                    \
    {OPT_I64, 0, "top-k", "K", SAMPLING_OFFSET(type, top_k), 0, 1 << 24,                          \
     "sample from the K likeliest tokens; 0: from all (40)"},                                     \
    {OPT_FLOAT, 0, "top-p", "P", SAMPLING_OFFSET(type, top_p), 0, 1,                              \
     "... from the likeliest ones with a total probability of P (0.95)"},                         \
    {OPT_FLOAT, 0, "min-p", "P", SAMPLING_OFFSET(type, min_p), 0, 1,                              \
     "... from those at least P times as likely as the likeliest (0.05)"},                        \
    {OPT_FLOAT, 0, "typical", "P", SAMPLING_OFFSET(type, typical), 0, 1,                          \
     "... from the most typical ones with a total probability of P (1: all)"},                    \
    {OPT_FLOAT, 0, "repeat-penalty", "R", SAMPLING_OFFSET(type, repeat_penalty), 0.01, 100,       \
     "divide positive logits of tokens that occurred lately by R (1: not)"},                      \
    {OPT_FLOAT, 0, "presence-penalty", "R", SAMPLING_OFFSET(type, presence_penalty), -100, 100,   \
     "lower the logits of tokens that occurred lately by R (0)"},                                 \
    {OPT_FLOAT, 0, "frequency-penalty", "R", SAMPLING_OFFSET(type, frequency_penalty), -100, 100, \
     "... by R for each time that they occurred (0)"},                                            \
    {OPT_I64, 0, "repeat-last-n", "N", SAMPLING_OFFSET(type, repeat_last_n), -1, 1 << 24,         \
     "lately: among the last N tokens; 0: never, -1: in the context (64)"},                       \
    {OPT_TEXTS, 0, "logit-bias", "T+N", SAMPLING_OFFSET(type, bias), 0, 0,                        \
     "add N to the logit of token T, an id or a text; T-inf: never T; repeatable"},               \
    {OPT_TEXTS, 0, "stop", "TEXT", SAMPLING_OFFSET(type, stop), 0, 0,                             \
     "end the text before TEXT; repeatable"}
/* clang-format on */

/* The logit biases of the options, for tw_generate_options. */
struct sampling {
    struct tw_logit_bias bias[OPT_MAX_TEXTS];
};

/* Sets the sampling options of `g`; what they point to is in *s and *o. `greedy`: without --temp,
 * take the likeliest token. A negative seed is replaced by a random one. Errors: USAGE (a bias that
 * is not TOKEN+N or TOKEN-N; a text that is not one token), those of tw_tokenize(). */
int sampling_apply(const struct sampling_options *o, const tw_decoder *decoder, bool greedy,
                   struct sampling *s, struct tw_generate_options *g, tw_error *err);

/* Refuses these options where nothing is sampled: `why` is the option that makes it so. Errors:
 * USAGE (names the first of them that was given). */
int sampling_refuse(const struct opt_verb *verb, const struct opt_result *result, const char *why,
                    tw_error *err);

#endif
