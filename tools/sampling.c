/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of sampling (sampling.h).
 */
#include "tools/sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- --logit-bias ---- */

static int bad_bias(const char *text, tw_error *err) {
    return tw_fail(err, TW_E_USAGE,
                   "option --logit-bias: '%.60s' is not TOKEN+N or TOKEN-N, such as 13-2.5, "
                   "13-inf or hello+1",
                   text);
}

/* Finds the sign of the number at the end of the text: the last one that a number follows. */
static const char *find_sign(const char *text, float *value) {
    for (size_t at = strlen(text); at-- > 1;) {
        if (text[at] != '+' && text[at] != '-') {
            continue;
        }
        const char *number = text + at + 1;
        char *end;
        bool inf = strcmp(number, "inf") == 0;
        bool digits = *number && strspn(number, "0123456789.") == strlen(number);
        double v = inf ? (double)INFINITY : digits ? strtod(number, &end) : 0;
        if (inf || (digits && *end == 0 && v <= 1e30)) {
            *value = (float)(text[at] == '-' ? -v : v);
            return text + at;
        }
    }
    return NULL;
}

/* The token that a text is. */
static int find_token(const tw_decoder *decoder, const char *text, size_t n, uint32_t *id,
                      tw_error *err) {
    uint32_t ids[4] = {0};
    size_t count = 0;
    int code = tw_tokenize(decoder, text, n, TW_TOKENIZE_NO_BOS | TW_TOKENIZE_SPECIAL, ids, 4,
                           &count, err);
    if (!code && count != 1) {
        code = tw_fail(err, TW_E_USAGE,
                       "option --logit-bias: '%.*s' is %zu tokens (%u, %u ...); name the ids",
                       n < 40 ? (int)n : 40, text, count, ids[0], ids[1]);
    }
    *id = ids[0];
    return code;
}

static int parse_bias(const char *text, const tw_decoder *decoder, struct tw_logit_bias *out,
                      tw_error *err) {
    struct tw_decoder_info info = {.size = sizeof info};
    const char *sign = find_sign(text, &out->bias);
    size_t n = sign ? (size_t)(sign - text) : 0;
    tw_decoder_get_info(decoder, &info, NULL);
    if (!sign) {
        return bad_bias(text, err);
    }
    if (strspn(text, "0123456789") < n) {
        return find_token(decoder, text, n, &out->id, err);
    }
    unsigned long id = n < 10 ? strtoul(text, NULL, 10) : UINT32_MAX;
    out->id = (uint32_t)id;
    return id < info.n_vocab
               ? 0
               : tw_fail(err, TW_E_USAGE,
                         "option --logit-bias: id %.*s is not below the vocabulary's %u tokens",
                         n < 20 ? (int)n : 20, text, info.n_vocab);
}

/* ---- all of them ---- */

static uint64_t choose_seed(int64_t given) {
    uint64_t seed = (uint64_t)given;
    if (given < 0 && getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed) {
        seed &= (UINT64_C(1) << 53) - 1;
    }
    return seed;
}

/* The library takes 0 for the default of these. */
static float above_0(float f) {
    return f > 0 ? f : FLT_MIN;
}

int sampling_apply(const struct sampling_options *o, const tw_decoder *decoder, bool greedy,
                   struct sampling *s, struct tw_generate_options *g, tw_error *err) {
    bool penalties = o->repeat_last_n != 0;
    g->temperature = o->temp >= 0 ? o->temp : greedy ? 0.0f : 0.8f;
    g->top_k = (uint32_t)o->top_k;
    g->top_p = above_0(o->top_p);
    g->min_p = o->min_p;
    g->typical = above_0(o->typical);
    g->repeat_penalty = penalties ? o->repeat_penalty : 1.0f;
    g->presence_penalty = penalties ? o->presence_penalty : 0.0f;
    g->frequency_penalty = penalties ? o->frequency_penalty : 0.0f;
    g->repeat_last_n = o->repeat_last_n < 0 ? UINT32_MAX : (uint32_t)o->repeat_last_n;
    g->seed = choose_seed(o->seed);
    g->stop_texts = o->stop.text;
    g->n_stop_texts = (uint32_t)o->stop.n;
    g->logit_bias = s->bias;
    g->n_logit_bias = (uint32_t)o->bias.n;
    int code = 0;
    for (size_t i = 0; i < o->bias.n && !code; i++) {
        code = parse_bias(o->bias.text[i], decoder, &s->bias[i], err);
    }
    return code;
}

int sampling_refuse(const struct opt_verb *verb, const struct opt_result *result, const char *why,
                    tw_error *err) {
    static const char *const names[] = {"seed",
                                        "temp",
                                        "top-k",
                                        "top-p",
                                        "min-p",
                                        "typical",
                                        "repeat-penalty",
                                        "presence-penalty",
                                        "frequency-penalty",
                                        "repeat-last-n",
                                        "logit-bias",
                                        "stop"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (opt_was_given(verb, result, names[i])) {
            return tw_fail(err, TW_E_USAGE,
                           "option --%s has no effect with --%s, which samples nothing", names[i],
                           why);
        }
    }
    return 0;
}
