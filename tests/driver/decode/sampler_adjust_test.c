/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of logit bias, penalties and typical sampling, against their definitions written down once
 * more, in double and with logarithms.
 */
#include "driver/decode/sampler.h"
#include "tests/support/test.h"

#include <math.h>

enum { N = 12 };

static struct tw_sampler_params plain(uint64_t seed) {
    return (struct tw_sampler_params){.size = sizeof(struct tw_sampler_params),
                                      .temperature = 1.0f,
                                      .top_p = 1.0f,
                                      .seed = seed,
                                      .typical = 1.0f,
                                      .repeat_penalty = 1.0f};
}

static void open_sampler(struct tw_sampler *s, struct tw_sampler_params p) {
    tw_error err = {0};
    if (tw_sampler_init(s, &p, N, &err)) {
        fail_msg("%s", err.message);
    }
}

static uint32_t sample(struct tw_sampler *s, const float *logits) {
    uint32_t id = N;
    tw_error err = {0};
    assert_int_equal(tw_sampler_sample(s, logits, &id, &err), 0);
    return id;
}

static uint32_t next;
static float random_float(float low, float high) {
    next = next * 1664525u + 1013904223u;
    return low + (high - low) * (float)(next >> 8) / 16777216.0f;
}

/* ---- bias and penalties ---- */

/* The logits of the definition in sampler.h, from the whole sequence. */
static void adjust(const struct tw_sampler_params *p, const uint32_t *sequence, size_t n,
                   double *logits) {
    for (uint32_t i = 0; i < p->n_bias; i++) {
        logits[p->bias[i].id] += (double)p->bias[i].bias;
    }
    size_t from = n > p->repeat_last_n ? n - p->repeat_last_n : 0;
    for (uint32_t id = 0; id < N; id++) {
        unsigned count = 0;
        for (size_t i = from; i < n; i++) {
            count += sequence[i] == id;
        }
        if (count) {
            logits[id] = logits[id] > 0 ? logits[id] / (double)p->repeat_penalty
                                        : logits[id] * (double)p->repeat_penalty;
            logits[id] -= count * (double)p->frequency_penalty + (double)p->presence_penalty;
        }
    }
}

static uint32_t largest(const double *logits) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < N; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

/* A sequence of 40 tokens, greedy: each of them penalised for those before it. */
static void check_sequence(struct tw_sampler_params p) {
    uint32_t sequence[48], n = 0;
    struct tw_sampler s;
    open_sampler(&s, p);
    for (; n < 4; n++) {
        sequence[n] = (n * 5 + 1) % N;
        tw_sampler_accept(&s, sequence[n]);
    }
    for (; n < 44; n++) {
        float logits[N];
        double expected[N];
        for (uint32_t i = 0; i < N; i++) {
            logits[i] = random_float(-2.0f, 2.0f);
            expected[i] = (double)logits[i];
        }
        adjust(&p, sequence, n, expected);
        sequence[n] = sample(&s, logits);
        assert_int_equal(sequence[n], largest(expected));
        tw_sampler_accept(&s, sequence[n]);
    }
    tw_sampler_finish(&s);
}

static void penalties_follow_their_definition(void **state) {
    (void)state;
    next = 1;
    for (uint32_t round = 0; round < 300; round++) {
        struct tw_sampler_params p = plain(1);
        p.temperature = 0.0f;
        p.repeat_penalty = round % 4 ? random_float(0.5f, 2.0f) : 1.0f;
        p.presence_penalty = round % 3 ? random_float(-1.0f, 1.0f) : 0.0f;
        p.frequency_penalty = round % 2 ? random_float(-0.5f, 0.5f) : 0.0f;
        p.repeat_last_n = 1 + round % 30;
        check_sequence(p);
    }
}

static void a_bias_is_added_before_penalties(void **state) {
    (void)state;
    const struct tw_logit_bias bias[] = {{3, 1.5f}, {7, -2.0f}, {3, 0.25f}, {0, -INFINITY}};
    next = 2;
    for (uint32_t round = 0; round < 50; round++) {
        struct tw_sampler_params p = plain(1);
        p.temperature = 0.0f;
        p.bias = bias;
        p.n_bias = 4;
        p.repeat_penalty = round % 2 ? 1.4f : 1.0f;
        p.repeat_last_n = round % 20;
        check_sequence(p);
    }
}

static void a_token_of_bias_minus_infinity_is_never_drawn(void **state) {
    (void)state;
    const struct tw_logit_bias bias[] = {{4, -INFINITY}, {5, 100.0f}};
    float logits[N] = {0};
    struct tw_sampler_params p = plain(3);
    struct tw_sampler s;
    logits[4] = 50.0f;
    p.bias = bias;
    p.n_bias = 1;
    open_sampler(&s, p);
    assert_true(tw_sampler_adjusts(&s));
    for (int i = 0; i < 1000; i++) {
        assert_int_not_equal(sample(&s, logits), 4);
    }
    tw_sampler_finish(&s);
    p.n_bias = 2;
    open_sampler(&s, p);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sample(&s, logits), 5);
    }
    tw_sampler_finish(&s);
}

static void without_bias_and_penalties_nothing_is_adjusted(void **state) {
    (void)state;
    struct tw_sampler_params p = plain(1);
    struct tw_sampler s;
    p.repeat_last_n = 64;
    open_sampler(&s, p);
    assert_false(tw_sampler_adjusts(&s));
    tw_sampler_accept(&s, 3);
    tw_sampler_finish(&s);
    p.presence_penalty = 0.5f;
    p.repeat_last_n = 0;
    open_sampler(&s, p);
    assert_false(tw_sampler_adjusts(&s));
    tw_sampler_finish(&s);
}

/* ---- typical ---- */

/* Which ids remain after top-k and typical, by the paper's definition; of the k largest. */
static void expected_typical(const struct tw_sampler_params *p, const float *logits, bool *kept) {
    double share[N], total = 0.0, entropy = 0.0, reached = 0.0, far[N];
    for (uint32_t i = 0; i < N; i++) {
        unsigned larger = 0;
        for (uint32_t j = 0; j < N; j++) {
            larger += logits[j] > logits[i];
        }
        share[i] = p->top_k && larger >= p->top_k ? 0.0 : exp((double)logits[i]);
        total += share[i];
        kept[i] = false;
    }
    for (uint32_t i = 0; i < N; i++) {
        share[i] /= total;
        entropy -= share[i] > 0 ? share[i] * log(share[i]) : 0.0;
    }
    for (uint32_t i = 0; i < N; i++) {
        far[i] = share[i] > 0 ? fabs(-log(share[i]) - entropy) : INFINITY;
    }
    while (!(reached > (double)p->typical)) {
        uint32_t best = N;
        for (uint32_t i = 0; i < N; i++) {
            if (!kept[i] && far[i] < INFINITY && (best == N || far[i] < far[best])) {
                best = i;
            }
        }
        if (best == N) {
            break;
        }
        kept[best] = true;
        reached += share[best];
    }
}

static void typical_keeps_what_the_paper_says(void **state) {
    (void)state;
    next = 3;
    for (uint32_t round = 0; round < 60; round++) {
        float logits[N];
        bool kept[N];
        unsigned seen[N] = {0};
        struct tw_sampler_params p = plain(round);
        p.typical = random_float(0.05f, 0.99f);
        p.top_k = round % 3 ? 0 : 3 + round % 7;
        for (uint32_t i = 0; i < N; i++) {
            logits[i] = random_float(-2.0f, 2.0f);
        }
        expected_typical(&p, logits, kept);
        struct tw_sampler s;
        open_sampler(&s, p);
        for (int i = 0; i < 3000; i++) {
            seen[sample(&s, logits)]++;
        }
        tw_sampler_finish(&s);
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(seen[i] > 0, kept[i]); /* the least likely one has 0.15 % */
        }
    }
}

/* A likeliest token that is too likely is cut, which no other step does. */
static void typical_may_drop_the_likeliest(void **state) {
    (void)state;
    float logits[N] = {1.2f};
    bool kept[N];
    struct tw_sampler_params p = plain(5);
    p.typical = 0.5f;
    expected_typical(&p, logits, kept);
    assert_false(kept[0]);
    struct tw_sampler s;
    open_sampler(&s, p);
    for (int i = 0; i < 1000; i++) {
        assert_int_not_equal(sample(&s, logits), 0);
    }
    tw_sampler_finish(&s);
}

/* Typical leaves ids 1..11, of equal shares; top-p then keeps the first third of them. */
static void top_p_comes_after_typical(void **state) {
    (void)state;
    float logits[N] = {1.2f};
    unsigned seen[N] = {0};
    struct tw_sampler_params p = plain(6);
    p.typical = 0.7f;
    p.top_p = 0.34f;
    struct tw_sampler s;
    open_sampler(&s, p);
    for (int i = 0; i < 1000; i++) {
        seen[sample(&s, logits)]++;
    }
    tw_sampler_finish(&s);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(seen[i] > 0, i >= 1 && i <= 4);
    }
}

/* Draws 300 times of a likeliest token of logit 0, which typical cuts, one of -3.05 and many of
 * -3.1. Returns how many different ones came; *first is the first. */
static unsigned draw_without_the_likeliest(float min_p, float temperature, uint32_t *first) {
    enum { MANY = 1000, BETTER = 500 };
    float logits[MANY];
    unsigned seen[MANY] = {0}, different = 0;
    struct tw_sampler_params p = plain(7);
    struct tw_sampler s;
    tw_error err = {0};
    p.typical = 0.5f;
    p.min_p = min_p;
    p.temperature = temperature;
    for (uint32_t i = 0; i < MANY; i++) {
        logits[i] = i == 0 ? 0.0f : i == BETTER ? -3.05f : -3.1f;
    }
    assert_int_equal(tw_sampler_init(&s, &p, MANY, &err), 0);
    for (int i = 0; i < 300; i++) {
        uint32_t id = sample(&s, logits);
        assert_int_not_equal(id, 0);
        *first = i ? *first : id;
        different += seen[id]++ == 0;
    }
    tw_sampler_finish(&s);
    return different;
}

static void min_p_after_typical_counts_from_what_is_left(void **state) {
    (void)state;
    uint32_t first;
    assert_true(draw_without_the_likeliest(0.05f, 1.0f, &first) > 150);
    assert_int_equal(draw_without_the_likeliest(0.97f, 1.0f, &first), 1);
    assert_int_equal(first, 500);
}

static void a_low_temperature_after_typical_takes_the_best_left(void **state) {
    (void)state;
    uint32_t first;
    assert_int_equal(draw_without_the_likeliest(0.0f, 0.001f, &first), 1);
    assert_int_equal(first, 500);
}

/* ---- parameters ---- */

static void expect_refusal(struct tw_sampler_params p, const char *word) {
    struct tw_sampler s;
    tw_error err = {0};
    assert_int_equal(tw_sampler_init(&s, &p, N, &err), TW_E_USAGE);
    assert_non_null(strstr(err.message, word));
}

static void bad_parameters_are_refused_by_name(void **state) {
    (void)state;
    const struct tw_logit_bias outside = {N, 1.0f}, nan = {1, NAN};
    const float bad[] = {0.0f, -1.0f, NAN, INFINITY};
    struct tw_sampler_params p;
    for (size_t i = 0; i < 4; i++) {
        p = plain(1);
        p.typical = bad[i];
        expect_refusal(p, "typical");
        p = plain(1);
        p.repeat_penalty = bad[i];
        expect_refusal(p, "repeat penalty");
    }
    p = plain(1);
    p.presence_penalty = NAN;
    expect_refusal(p, "presence");
    p = plain(1);
    p.frequency_penalty = -INFINITY;
    expect_refusal(p, "frequency");
    p = plain(1);
    p.n_bias = 1;
    p.bias = &outside;
    expect_refusal(p, "token 12");
    p.bias = &nan;
    expect_refusal(p, "logit bias");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(penalties_follow_their_definition),
        cmocka_unit_test(a_bias_is_added_before_penalties),
        cmocka_unit_test(a_token_of_bias_minus_infinity_is_never_drawn),
        cmocka_unit_test(without_bias_and_penalties_nothing_is_adjusted),
        cmocka_unit_test(typical_keeps_what_the_paper_says),
        cmocka_unit_test(typical_may_drop_the_likeliest),
        cmocka_unit_test(top_p_comes_after_typical),
        cmocka_unit_test(min_p_after_typical_counts_from_what_is_left),
        cmocka_unit_test(a_low_temperature_after_typical_takes_the_best_left),
        cmocka_unit_test(bad_parameters_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
