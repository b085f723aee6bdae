/* SPDX-License-Identifier: Apache-2.0
 *
 * The sampler (sampler.h). Top-k, top-p and min-p each keep a prefix of the candidates in
 * descending order, so a heap yields them one by one and only those that remain are sorted; without
 * any of the three nothing is sorted.
 */
#include "driver/decode/sampler.h"

#include "loader/base/assert.h"
#include "tilewright/machine.h"
#include "tilewright/numerics.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define STREAM 54u /* the stream used in PCG's demo program */

/* Below it tw_exp would return a subnormal number; such a candidate gets probability 0. */
#define MIN_EXPONENT (-87.0f)

void tw_random_init(struct tw_random *random, uint64_t seed, uint64_t stream) {
    random->state = 0;
    random->increment = (stream << 1) | 1;
    (void)tw_random_next(random);
    random->state += seed;
    (void)tw_random_next(random);
}

uint32_t tw_random_next(struct tw_random *random) {
    uint64_t old = random->state;
    random->state = old * 6364136223846793005u + random->increment;
    uint32_t xorshifted = (uint32_t)(((old >> 18) ^ old) >> 27);
    unsigned rotation = (unsigned)(old >> 59);
    return (xorshifted >> rotation) | (xorshifted << ((32 - rotation) & 31));
}

/* Returns a uniformly distributed number in [0, 1) with 53 bits. */
static double uniform(struct tw_random *random) {
    uint64_t high = tw_random_next(random);
    uint64_t bits = (high << 32) | tw_random_next(random);
    double u = (double)(bits >> 11) * 0x1p-53;
    TW_ASSERT(u >= 0.0 && u < 1.0);
    return u;
}

static bool is_finite(float f) {
    return f >= -3.402823466e38f && f <= 3.402823466e38f;
}

static int check_adjustments(const struct tw_sampler_params *params, uint32_t n_vocab,
                             tw_error *err) {
    if (!(params->typical > 0.0f && params->typical <= 1.0f)) {
        return tw_fail(err, TW_E_USAGE, "sampler: typical is %g, expected above 0 and at most 1",
                       (double)params->typical);
    }
    if (!(params->repeat_penalty > 0.0f && is_finite(params->repeat_penalty))) {
        return tw_fail(err, TW_E_USAGE,
                       "sampler: repeat penalty is %g, expected a finite number > 0",
                       (double)params->repeat_penalty);
    }
    if (!is_finite(params->presence_penalty) || !is_finite(params->frequency_penalty)) {
        return tw_fail(
            err, TW_E_USAGE,
            "sampler: presence penalty %g, frequency penalty %g: expected finite numbers",
            (double)params->presence_penalty, (double)params->frequency_penalty);
    }
    for (uint32_t i = 0; i < params->n_bias; i++) {
        const struct tw_logit_bias *b = &params->bias[i];
        if (b->id >= n_vocab || b->bias != b->bias) {
            return tw_fail(err, TW_E_USAGE,
                           "sampler: logit bias %g of token %u; expected a number, and a token "
                           "below %u",
                           (double)b->bias, b->id, n_vocab);
        }
    }
    return 0;
}

static int check(const struct tw_sampler_params *params, uint32_t n_vocab, tw_error *err) {
    if (params->size != sizeof *params) {
        return tw_fail(err, TW_E_USAGE, "sampler: size of the parameters is %u, expected %u",
                       params->size, (unsigned)sizeof *params);
    }
    /* Written so that a NaN fails each comparison. */
    if (!(params->temperature >= 0.0f && params->temperature <= 3.402823466e38f)) {
        return tw_fail(err, TW_E_USAGE, "sampler: temperature is %g, expected a finite number >= 0",
                       (double)params->temperature);
    }
    if (!(params->top_p > 0.0f && params->top_p <= 1.0f)) {
        return tw_fail(err, TW_E_USAGE, "sampler: top-p is %g, expected above 0 and at most 1",
                       (double)params->top_p);
    }
    if (!(params->min_p >= 0.0f && params->min_p <= 1.0f)) {
        return tw_fail(err, TW_E_USAGE, "sampler: min-p is %g, expected 0 to 1",
                       (double)params->min_p);
    }
    if (n_vocab == 0) {
        return tw_fail(err, TW_E_USAGE, "sampler: the vocabulary is empty");
    }
    return check_adjustments(params, n_vocab, err);
}

static bool is_greedy(const struct tw_sampler_params *params) {
    return params->temperature == 0.0f || params->top_k == 1;
}

static bool has_penalties(const struct tw_sampler_params *params) {
    return params->repeat_last_n > 0 &&
           (params->repeat_penalty != 1.0f || params->presence_penalty != 0.0f ||
            params->frequency_penalty != 0.0f);
}

/* Allocates what bias and penalties need. */
static bool make_adjustments(struct tw_sampler *s) {
    bool penalties = has_penalties(&s->params);
    if (!penalties && s->params.n_bias == 0) {
        return true;
    }
    s->adjusted = calloc(s->n_vocab, sizeof *s->adjusted);
    if (penalties) {
        s->window.size = s->params.repeat_last_n;
        s->window.ids = calloc(s->window.size, sizeof *s->window.ids);
        s->window.counts = calloc(s->n_vocab, sizeof *s->window.counts);
    }
    return s->adjusted && (!penalties || (s->window.ids && s->window.counts));
}

int tw_sampler_init(struct tw_sampler *sampler, const struct tw_sampler_params *params,
                    uint32_t n_vocab, tw_error *err) {
    memset(sampler, 0, sizeof *sampler);
    int rc = check(params, n_vocab, err);
    if (rc) {
        return rc;
    }
    sampler->params = *params;
    sampler->n_vocab = n_vocab;
    tw_random_init(&sampler->random, params->seed, STREAM);
    bool draws = !is_greedy(params);
    if (draws) {
        sampler->candidates = calloc(n_vocab, sizeof *sampler->candidates);
    }
    if ((draws && sampler->candidates == NULL) || !make_adjustments(sampler)) {
        tw_sampler_finish(sampler);
        return tw_fail(err, TW_E_NOMEM, "sampler: no memory for %u candidates", n_vocab);
    }
    return 0;
}

void tw_sampler_finish(struct tw_sampler *sampler) {
    free(sampler->candidates);
    free(sampler->adjusted);
    free(sampler->window.ids);
    free(sampler->window.counts);
    memset(sampler, 0, sizeof *sampler);
}

/* ---- bias and penalties ---- */

void tw_sampler_accept(struct tw_sampler *sampler, uint32_t id) {
    struct tw_sampler_window *w = &sampler->window;
    if (w->size == 0 || id >= sampler->n_vocab) {
        return;
    }
    if (w->n == w->size) {
        w->counts[w->ids[w->oldest]]--;
        w->ids[w->oldest] = id;
        w->oldest = w->oldest + 1 == w->size ? 0 : w->oldest + 1;
    } else {
        w->ids[w->n++] = id; /* the ring is not full, so `oldest` is 0 */
    }
    w->counts[id]++;
}

static float penalise(const struct tw_sampler_params *p, float logit, int32_t count) {
    logit = logit > 0.0f ? logit / p->repeat_penalty : logit * p->repeat_penalty;
    return logit - ((float)count * p->frequency_penalty + p->presence_penalty);
}

/* Each token of the window once: its count is negative from then on, until all are done. */
static void apply_penalties(struct tw_sampler *sampler) {
    const struct tw_sampler_window *w = &sampler->window;
    for (uint32_t i = 0; i < w->n; i++) {
        int32_t *count = &w->counts[w->ids[i]];
        if (*count > 0) {
            float *logit = &sampler->adjusted[w->ids[i]];
            *logit = penalise(&sampler->params, *logit, *count);
            *count = -*count;
        }
    }
    for (uint32_t i = 0; i < w->n; i++) {
        int32_t *count = &w->counts[w->ids[i]];
        *count = *count < 0 ? -*count : *count;
    }
}

/* Returns the logits to choose from. */
static const float *adjust(struct tw_sampler *sampler, const float *logits) {
    if (!sampler->adjusted) {
        return logits;
    }
    memcpy(sampler->adjusted, logits, sampler->n_vocab * sizeof *logits);
    for (uint32_t i = 0; i < sampler->params.n_bias; i++) {
        sampler->adjusted[sampler->params.bias[i].id] += sampler->params.bias[i].bias;
    }
    apply_penalties(sampler);
    return sampler->adjusted;
}

/* ---- the choice ---- */

/* Returns the id of the largest logit, the lowest among equals; TW_NONE if all are NaN. */
static uint32_t largest(const float *logits, uint32_t n) {
    uint32_t best = tw_argmax(logits, n);
    return best < n ? best : TW_NONE;
}

/* Returns the softmax weight of a logit that differs from the largest one by `difference` <= 0. */
static float softmax_weight(float difference) {
    return difference < MIN_EXPONENT ? 0.0f : tw_exp(difference);
}

static bool before(struct tw_candidate a, struct tw_candidate b) {
    return a.weight > b.weight || (a.weight == b.weight && a.id < b.id);
}

static void sift_down(struct tw_candidate *heap, uint32_t n, uint32_t at) {
    struct tw_candidate moving = heap[at];
    TW_ASSERT(at <= n);
    for (;;) {
        uint64_t child = 2 * (uint64_t)at + 1;
        if (child >= n) {
            break;
        }
        if (child + 1 < n && before(heap[child + 1], heap[child])) {
            child++;
        }
        if (!before(heap[child], moving)) {
            break;
        }
        heap[at] = heap[child];
        at = (uint32_t)child;
    }
    heap[at] = moving;
}

/* Moves the first candidate of a heap of n to the end and restores the heap of the other n - 1. */
static void pop(struct tw_candidate *heap, uint32_t n) {
    TW_ASSERT(n > 0);
    struct tw_candidate first = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = first;
    sift_down(heap, n - 1, 0);
}

/* Collects the candidates that are not NaN, in the order of their ids, with their difference from
 * the largest logit. Returns how many. */
static uint32_t gather(struct tw_sampler *sampler, const float *logits, float max) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < sampler->n_vocab; i++) {
        if (logits[i] == logits[i]) {
            /* the difference of two infinities would be NaN */
            float difference = logits[i] == max ? 0.0f : logits[i] - max;
            sampler->candidates[n++] = (struct tw_candidate){.weight = difference, .id = i};
        }
    }
    TW_ASSERT(n > 0 && n <= sampler->n_vocab); /* the largest one is not NaN */
    return n;
}

/* Sorts the first `k` of n candidates to the end (rank r at n - 1 - r) and returns the sum of their
 * shares. */
static double take_top_k(struct tw_candidate *c, uint32_t n, uint32_t k) {
    double total = 0.0;
    TW_ASSERT(k <= n);
    for (uint32_t r = 0; r < k; r++) {
        pop(c, n - r);
        total += (double)softmax_weight(c[n - 1 - r].weight);
    }
    return total;
}

/* Applies top-k, top-p and min-p to n candidates, which are the first of `all`. Returns how many
 * remain; they are at the end of the array. */
static uint32_t cut(const struct tw_sampler_params *params, struct tw_candidate *c, uint32_t n,
                    uint32_t all) {
    bool by_k = params->top_k != 0 && params->top_k < all;
    bool by_p = params->top_p < 1.0f;
    if (!by_k && !by_p && params->min_p == 0.0f) {
        return n;
    }
    double total = 0.0;
    for (uint32_t i = 0; by_p && !by_k && i < n; i++) {
        total += (double)softmax_weight(c[i].weight);
    }
    for (uint32_t i = n / 2; i-- > 0;) {
        sift_down(c, n, i);
    }
    uint32_t limit = by_k && params->top_k < n ? params->top_k : n, kept = 0;
    if (by_k) {
        total = take_top_k(c, n, limit);
    }
    double reached = 0.0;
    while (kept < limit && !(by_p && reached >= (double)params->top_p * total)) {
        if (!by_k) {
            pop(c, n - kept);
        }
        float probability = softmax_weight(c[n - 1 - kept].weight);
        if (kept > 0 && probability < params->min_p) {
            break;
        }
        reached += (double)probability;
        kept++;
    }
    TW_ASSERT(kept > 0 && kept <= limit && limit <= n);
    return kept;
}

/* ---- typical ---- */

/* How a candidate's surprise differs from the entropy, see sampler.h. */
static double strangeness(double mean, struct tw_candidate c) {
    double difference = mean - (double)c.weight;
    return difference < 0 ? -difference : difference;
}

static bool is_more_typical(double mean, struct tw_candidate a, struct tw_candidate b) {
    double x = strangeness(mean, a), y = strangeness(mean, b);
    return x < y || (x == y && before(a, b));
}

static void sift_typical(double mean, struct tw_candidate *heap, uint32_t n, uint32_t at) {
    struct tw_candidate moving = heap[at];
    for (;;) {
        uint64_t child = 2 * (uint64_t)at + 1;
        if (child >= n) {
            break;
        }
        child += child + 1 < n && is_more_typical(mean, heap[child + 1], heap[child]);
        if (!is_more_typical(mean, heap[child], moving)) {
            break;
        }
        heap[at] = heap[child];
        at = (uint32_t)child;
    }
    heap[at] = moving;
}

/* Applies top-k: moves the first k of n candidates, which are the first of `all`, to the beginning,
 * the largest last. Returns how many there are. If they are all of the first k already they are
 * only sorted, so that the sums over them run in the same order. */
static uint32_t keep_top_k(struct tw_candidate *c, uint32_t n, uint32_t k, uint32_t all) {
    if (k == 0 || k >= all) {
        return n;
    }
    k = k < n ? k : n;
    for (uint32_t i = n / 2; i-- > 0;) {
        sift_down(c, n, i);
    }
    (void)take_top_k(c, n, k);
    memmove(c, c + (n - k), k * sizeof *c);
    return k;
}

/* Makes the weights of n candidates differences from the largest of them, since the likeliest one
 * may be gone: min-p is relative to the first of those that remain, and shares at a low temperature
 * would all be 0. */
static void count_from_largest(struct tw_candidate *c, uint32_t n) {
    float largest_weight = c[0].weight;
    for (uint32_t i = 1; i < n; i++) {
        largest_weight = c[i].weight > largest_weight ? c[i].weight : largest_weight;
    }
    for (uint32_t i = 0; i < n; i++) {
        /* the difference of two infinities would be NaN */
        c[i].weight = c[i].weight == largest_weight ? 0.0f : c[i].weight - largest_weight;
    }
}

/* Applies top-k and typical to n candidates. Returns how many remain; they are at the beginning of
 * the array. */
static uint32_t cut_to_typical(const struct tw_sampler_params *params, struct tw_candidate *c,
                               uint32_t n, uint32_t all) {
    double total = 0.0, mean = 0.0, reached = 0.0;
    uint32_t kept = 0;
    n = keep_top_k(c, n, params->top_k, all);
    for (uint32_t i = 0; i < n; i++) {
        double p = (double)softmax_weight(c[i].weight);
        total += p;
        mean += p > 0.0 ? p * (double)c[i].weight : 0.0;
    }
    mean /= total;
    for (uint32_t i = n / 2; i-- > 0;) {
        sift_typical(mean, c, n, i);
    }
    while (kept < n && !(reached > (double)params->typical * total)) {
        struct tw_candidate first = c[0];
        c[0] = c[n - 1 - kept];
        sift_typical(mean, c, n - 1 - kept, 0);
        c[n - 1 - kept++] = first;
        reached += (double)softmax_weight(first.weight);
    }
    memmove(c, c + (n - kept), kept * sizeof *c);
    count_from_largest(c, kept);
    return kept;
}

/* Draws one of n candidates with the softmax at the temperature. */
static uint32_t draw(struct tw_sampler *sampler, struct tw_candidate *c, uint32_t n) {
    double total = 0.0, passed = 0.0;
    uint32_t chosen = 0;
    TW_ASSERT(n > 0 && sampler->params.temperature > 0.0f);
    for (uint32_t i = 0; i < n; i++) {
        c[i].weight = softmax_weight(c[i].weight / sampler->params.temperature);
        total += (double)c[i].weight;
    }
    double target = uniform(&sampler->random) * total;
    for (uint32_t i = 0; i < n && passed <= target; i++) {
        if (c[i].weight > 0.0f) {
            /* if rounding makes the target equal to the total, the last one with a weight */
            chosen = i;
            passed += (double)c[i].weight;
        }
    }
    TW_ASSERT(chosen < n && c[chosen].id < sampler->n_vocab);
    return c[chosen].id;
}

/* Chooses one of n candidates, which are the first of `all`. */
static uint32_t choose(struct tw_sampler *sampler, struct tw_candidate *c, uint32_t n,
                       uint32_t all) {
    struct tw_sampler_params params = sampler->params;
    if (params.typical < 1.0f) {
        n = cut_to_typical(&params, c, n, all);
        params.top_k = 0; /* it is done */
        all = n;
    }
    uint32_t kept = cut(&params, c, n, all);
    return draw(sampler, c + (n - kept), kept);
}

int tw_sampler_sample(struct tw_sampler *sampler, const float *logits, uint32_t *id,
                      tw_error *err) {
    TW_ASSERT(sampler->n_vocab > 0 && (sampler->candidates || is_greedy(&sampler->params)));
    logits = adjust(sampler, logits);
    uint32_t best = largest(logits, sampler->n_vocab);
    if (best == TW_NONE) {
        return tw_fail(err, TW_E_FAULT, "sampler: all %u logits are NaN", sampler->n_vocab);
    }
    if (is_greedy(&sampler->params)) {
        *id = best;
        return 0;
    }
    uint32_t n = gather(sampler, logits, logits[best]);
    *id = choose(sampler, sampler->candidates, n, n);
    return 0;
}

int tw_sampler_sample_lists(struct tw_sampler *sampler, const struct tw_top *lists, uint32_t n,
                            uint32_t *id, tw_error *err) {
    struct tw_candidate *c = sampler->candidates;
    uint32_t at = tw_top_first(lists, n), found = 0;
    TW_ASSERT(is_greedy(&sampler->params) || (c && sampler->params.top_k > 0));
    if (at == n || lists[at].id >= sampler->n_vocab) {
        return tw_fail(err, TW_E_FAULT, "sampler: all %u logits are NaN", sampler->n_vocab);
    }
    const struct tw_top best = lists[at];
    *id = best.id;
    if (is_greedy(&sampler->params)) {
        return 0;
    }
    for (uint32_t i = 0; i < n && found < sampler->n_vocab; i++) {
        float difference = lists[i].value == best.value ? 0.0f : lists[i].value - best.value;
        if (lists[i].id < sampler->n_vocab) {
            c[found++] = (struct tw_candidate){.weight = difference, .id = lists[i].id};
        }
    }
    *id = choose(sampler, c, found, sampler->n_vocab);
    return 0;
}
