/* SPDX-License-Identifier: Apache-2.0
 *
 * The sampler: one token id from one row of logits.
 *
 * The steps, in the order of llama.cpp's default chain:
 *   logit bias   is added to the logits of the tokens named;
 *   penalties    for each token that occurs in the last `repeat_last_n` of the sequence, n times:
 *                its logit is divided by repeat_penalty if positive, else multiplied (Keskar et
 *                al., "CTRL", 2019), then lowered by n * frequency_penalty + presence_penalty (the
 *                API of OpenAI);
 *   top-k        keeps the k largest logits;
 *   typical      keeps of these the ones whose surprise -log p is nearest to the entropy, up to a
 *                total probability of `typical` (Meister et al., "Locally Typical Sampling", 2022);
 *   top-p        keeps of these the shortest prefix whose softmax (at temperature 1) sums to top_p;
 *   min-p        keeps of these the ones at least min_p times as probable as the first
 *                that is left;
 *   temperature  divides the logits, and one candidate is drawn with their softmax.
 * Larger logits come first, the lower id among equals. A NaN is never chosen.
 *
 * The same parameters, seed and logits give the same tokens on every machine: only correctly
 * rounded operations and tw_exp are used, sums run in a fixed order, and the random number
 * generator is part of the library (PCG32). Typical sampling needs no logarithm: with d the
 * difference from the largest logit, -log p - H is the mean of d, weighted by p, minus d.
 */
#ifndef TW_DRIVER_DECODE_SAMPLER_H
#define TW_DRIVER_DECODE_SAMPLER_H

#include "tilewright/error.h"
#include "tilewright/machine.h"
#include "tilewright/tilewright.h"

#include <stdbool.h>
#include <stdint.h>

struct tw_sampler_params {
    uint32_t size;     /* sizeof(struct tw_sampler_params) */
    float temperature; /* finite, >= 0; 0: choose the largest logit, draw nothing */
    uint32_t top_k;    /* 0: no limit; 1: like temperature 0 */
    float top_p;       /* above 0 up to 1; 1: no limit */
    float min_p;       /* 0 to 1; 0: no limit */
    uint64_t seed;
    float typical;                    /* above 0 up to 1; 1: no limit */
    float repeat_penalty;             /* above 0, finite; 1: none */
    float presence_penalty;           /* finite; 0: none */
    float frequency_penalty;          /* finite; 0: none */
    uint32_t repeat_last_n;           /* tokens that the penalties look back; 0: none */
    const struct tw_logit_bias *bias; /* n_bias of them; must outlive the sampler */
    uint32_t n_bias;
};

/* The tokens that penalties look back at. */
struct tw_sampler_window {
    uint32_t *ids; /* a ring of `size`, of which `n` are in use; the oldest is at `oldest` */
    uint32_t size, n, oldest;
    int32_t *counts; /* n_vocab: how often each occurs in it */
};

/* PCG32, the XSH-RR 64/32 generator of M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient
 * Statistically Good Algorithms for Random Number Generation", 2014 (pcg-random.org); any two
 * streams differ. */
struct tw_random {
    uint64_t state, increment;
};
/* Seeds a generator. */
void tw_random_init(struct tw_random *random, uint64_t seed, uint64_t stream);
/* Returns the next 32 random bits. */
uint32_t tw_random_next(struct tw_random *random);

struct tw_candidate {
    /* first its logit minus the largest one, or the largest that typical left; finally its softmax
     * weight */
    float weight;
    uint32_t id;
};

/* Allocated by the caller; a zeroed one may be finished. One thread at a time. */
struct tw_sampler {
    struct tw_sampler_params params;
    uint32_t n_vocab;
    struct tw_random random;         /* two numbers per drawn token; none for a greedy choice */
    struct tw_candidate *candidates; /* n_vocab of them; NULL if nothing will be drawn */
    struct tw_sampler_window window;
    float *adjusted; /* n_vocab logits after bias and penalties; NULL if there are none */
};

/* Checks the parameters and allocates what sampling needs, once. Errors: USAGE (names the
 * parameter), NOMEM. */
int tw_sampler_init(struct tw_sampler *sampler, const struct tw_sampler_params *params,
                    uint32_t n_vocab, tw_error *err);
/* Frees what sampling needed. */
void tw_sampler_finish(struct tw_sampler *sampler);

/* Returns true if bias or penalties can change logits, so that the device's own choice, or its
 * lists of the best, cannot be used. */
static inline bool tw_sampler_adjusts(const struct tw_sampler *sampler) {
    return sampler->adjusted != NULL;
}
/* Adds a token of the sequence to what penalties look back at: those of the prompt, and each one
 * chosen. */
void tw_sampler_accept(struct tw_sampler *sampler, uint32_t id);

/* Chooses one of n_vocab logits; does not allocate. Errors: FAULT (every logit is NaN). */
int tw_sampler_sample(struct tw_sampler *sampler, const float *logits, uint32_t *id, tw_error *err);

/* Chooses as tw_sampler_sample() does of n_vocab numbers, from n <= n_vocab entries that hold the
 * top_k largest of them, or all, in any order; entries that are missing are left out. For a greedy
 * choice or top_k above 0, and a sampler that does not adjust logits. Errors: FAULT (all are
 * missing). */
int tw_sampler_sample_lists(struct tw_sampler *sampler, const struct tw_top *lists, uint32_t n,
                            uint32_t *id, tw_error *err);

#endif
