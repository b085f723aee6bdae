/* SPDX-License-Identifier: Apache-2.0
 *
 * The sampler: one token id from one row of logits.
 *
 * The candidates are cut in the order of llama.cpp's default chain, then drawn from:
 *   top-k        keeps the k largest logits;
 *   top-p        keeps of these the shortest prefix whose softmax (at temperature 1) sums to top_p;
 *   min-p        keeps of these the ones at least min_p times as probable as the first;
 *   temperature  divides the logits, and one candidate is drawn with their softmax.
 * Larger logits come first, the lower id among equals. A NaN is never chosen.
 *
 * The same parameters, seed and logits give the same tokens on every machine: only correctly
 * rounded operations and tw_exp are used, sums run in a fixed order, and the random number
 * generator is part of the library (PCG32).
 */
#ifndef TW_DRIVER_DECODE_SAMPLER_H
#define TW_DRIVER_DECODE_SAMPLER_H

#include "tilewright/error.h"
#include "tilewright/machine.h"

#include <stdint.h>

struct tw_sampler_params {
    uint32_t size;     /* sizeof(struct tw_sampler_params) */
    float temperature; /* finite, >= 0; 0: choose the largest logit, draw nothing */
    uint32_t top_k;    /* 0: no limit; 1: like temperature 0 */
    float top_p;       /* above 0 up to 1; 1: no limit */
    float min_p;       /* 0 to 1; 0: no limit */
    uint64_t seed;
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
    float weight; /* first its logit minus the largest one, finally its softmax weight */
    uint32_t id;
};

/* Allocated by the caller; a zeroed one may be finished. One thread at a time. */
struct tw_sampler {
    struct tw_sampler_params params;
    uint32_t n_vocab;
    struct tw_random random;         /* two numbers per drawn token; none for a greedy choice */
    struct tw_candidate *candidates; /* n_vocab of them; NULL if nothing will be drawn */
};

/* Checks the parameters and allocates what sampling needs, once. Errors: USAGE (names the
 * parameter), NOMEM. */
int tw_sampler_init(struct tw_sampler *sampler, const struct tw_sampler_params *params,
                    uint32_t n_vocab, tw_error *err);
/* Frees what sampling needed. */
void tw_sampler_finish(struct tw_sampler *sampler);

/* Chooses one of n_vocab logits; does not allocate. Errors: FAULT (every logit is NaN). */
int tw_sampler_sample(struct tw_sampler *sampler, const float *logits, uint32_t *id, tw_error *err);

/* Chooses as tw_sampler_sample() does of n_vocab numbers, from n <= n_vocab entries that hold the
 * top_k largest of them, or all, in any order; entries that are missing are left out. For a greedy
 * choice or top_k above 0. Errors: FAULT (all are missing). */
int tw_sampler_sample_lists(struct tw_sampler *sampler, const struct tw_top *lists, uint32_t n,
                            uint32_t *id, tw_error *err);

#endif
