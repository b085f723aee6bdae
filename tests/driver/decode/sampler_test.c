/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the sampler: published random numbers, ids computed by a separate program, and
 * frequencies compared with probabilities computed in double with libm.
 */
#include "driver/decode/sampler.h"
#include "tests/support/test.h"
#include "tilewright/numerics.h"

#include <math.h>

static struct tw_sampler_params params(float temperature, uint32_t top_k, float top_p, float min_p,
                                       uint64_t seed) {
    return (struct tw_sampler_params){.size = sizeof(struct tw_sampler_params),
                                      .temperature = temperature,
                                      .top_k = top_k,
                                      .top_p = top_p,
                                      .min_p = min_p,
                                      .seed = seed,
                                      .typical = 1.0f,
                                      .repeat_penalty = 1.0f};
}

static void open_sampler(struct tw_sampler *sampler, struct tw_sampler_params p, uint32_t n_vocab) {
    tw_error err = {0};
    assert_int_equal(tw_sampler_init(sampler, &p, n_vocab, &err), 0);
}

static uint32_t sample(struct tw_sampler *sampler, const float *logits) {
    uint32_t id = UINT32_MAX;
    tw_error err = {0};
    assert_int_equal(tw_sampler_sample(sampler, logits, &id, &err), 0);
    assert_true(id < sampler->n_vocab);
    return id;
}

static uint32_t sample_once(struct tw_sampler_params p, const float *logits, uint32_t n_vocab) {
    struct tw_sampler sampler;
    open_sampler(&sampler, p, n_vocab);
    uint32_t id = sample(&sampler, logits);
    tw_sampler_finish(&sampler);
    return id;
}

/* From the output of the reference library's pcg32-demo (seed 42, stream 54, round 1). */
static void the_generator_gives_the_published_numbers(void **state) {
    (void)state;
    static const uint32_t published[] = {0xa15c02b7, 0x7b47f409, 0xba1d3330,
                                         0x83d2f293, 0xbfa4784b, 0xcbed606e};
    struct tw_random random;
    tw_random_init(&random, 42, 54);
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        assert_int_equal(tw_random_next(&random), published[i]);
    }
}

/* The k best of random logits, some of them equal, in two lists of k: as from all logits. */
static void lists_of_the_best_give_what_all_logits_give(void **state) {
    (void)state;
    enum { N = 300, MAX_K = 64 };
    struct tw_random r;
    tw_random_init(&r, 20261130, 1);
    for (uint32_t round = 0; round < 400; round++) {
        float logits[N];
        struct tw_top lists[2 * MAX_K];
        uint32_t k = 1 + tw_random_next(&r) % MAX_K, id;
        for (uint32_t i = 0; i < N; i++) {
            logits[i] = (float)(tw_random_next(&r) % (round % 2 ? 40u : 100000u)) /
                        (round % 2 ? 8.0f : 9000.0f);
        }
        tw_top_row(logits, 120, 0, k, lists);
        tw_top_row(logits + 120, N - 120, 120, k, lists + k);
        struct tw_sampler_params p = params(round % 7 ? 0.9f : 0.0f, k, round % 3 ? 0.9f : 1.0f,
                                            round % 5 ? 0.05f : 0, round);
        p.typical = round % 4 ? 1.0f : 0.6f;
        struct tw_sampler a, b;
        tw_error err = {0};
        open_sampler(&a, p, N);
        open_sampler(&b, p, N);
        for (uint32_t i = 0; i < 8; i++) {
            assert_int_equal(tw_sampler_sample_lists(&b, lists, 2 * k, &id, &err), 0);
            assert_int_equal(id, sample(&a, logits));
        }
        tw_sampler_finish(&a);
        tw_sampler_finish(&b);
    }
}

/* One list of exactly k entries: the sum of their shares runs in their order, as among more. */
static void a_list_of_exactly_k_is_cut_as_among_more(void **state) {
    (void)state;
    enum { N = 200, K = 20 };
    struct tw_random r;
    tw_random_init(&r, 7, 1);
    for (uint32_t round = 0; round < 400; round++) {
        float logits[N];
        struct tw_top list[K];
        uint32_t id;
        tw_error err = {0};
        for (uint32_t i = 0; i < N; i++) {
            logits[i] = (float)(tw_random_next(&r) % 100000u) / 20000.0f;
        }
        tw_top_row(logits, N, 0, K, list);
        struct tw_sampler_params p = params(0.8f, K, 0.6f, 0.0f, round);
        p.typical = round % 2 ? 1.0f : 0.5f;
        struct tw_sampler s;
        open_sampler(&s, p, N);
        assert_int_equal(tw_sampler_sample_lists(&s, list, K, &id, &err), 0);
        assert_int_equal(id, sample_once(p, logits, N));
        tw_sampler_finish(&s);
    }
}

static void lists_without_entries_are_a_fault(void **state) {
    (void)state;
    const struct tw_top none[] = {tw_top_missing(), tw_top_missing()};
    struct tw_sampler s;
    tw_error err = {0};
    uint32_t id;
    open_sampler(&s, params(0.8f, 2, 1.0f, 0.0f, 1), 5);
    assert_int_equal(tw_sampler_sample_lists(&s, none, 2, &id, &err), TW_E_FAULT);
    assert_string_equal(err.message, "sampler: all 5 logits are NaN");
    tw_sampler_finish(&s);
}

static void temperature_zero_takes_the_lowest_of_the_largest(void **state) {
    (void)state;
    const float logits[] = {-1.0f, 2.5f, 0.0f, 2.5f, 2.4f};
    assert_int_equal(sample_once(params(0.0f, 0, 1.0f, 0.0f, 1), logits, 5), 1);
    const float negative[] = {-9.0f, -3.0f, -3.0f};
    assert_int_equal(sample_once(params(0.0f, 40, 0.5f, 0.5f, 1), negative, 3), 1);
    const float infinite[] = {1.0f, -INFINITY, INFINITY, INFINITY};
    assert_int_equal(sample_once(params(0.0f, 0, 1.0f, 0.0f, 1), infinite, 4), 2);
    const float nothing[] = {-INFINITY, -INFINITY};
    assert_int_equal(sample_once(params(0.0f, 0, 1.0f, 0.0f, 1), nothing, 2), 0);
}

static void top_k_of_one_is_temperature_zero(void **state) {
    (void)state;
    float logits[257];
    uint32_t random = 99;
    struct tw_sampler zero, one;
    open_sampler(&zero, params(0.0f, 40, 0.9f, 0.1f, 5), 257);
    open_sampler(&one, params(5.0f, 1, 0.9f, 0.1f, 6), 257);
    for (int round = 0; round < 1000; round++) {
        for (size_t i = 0; i < 257; i++) {
            random = random * 1664525u + 1013904223u;
            logits[i] = (float)(random >> 27); /* few values: many ties */
        }
        assert_int_equal(sample(&zero, logits), sample(&one, logits));
    }
    tw_sampler_finish(&zero);
    tw_sampler_finish(&one);
}

static void a_nan_is_never_chosen(void **state) {
    (void)state;
    const float logits[] = {NAN, 1.0f, NAN, 0.5f, NAN};
    assert_int_equal(sample_once(params(0.0f, 0, 1.0f, 0.0f, 0), logits, 5), 1);
    const struct tw_sampler_params cases[] = {params(1.0f, 0, 1.0f, 0.0f, 3),
                                              params(1.0f, 3, 0.99f, 0.01f, 3),
                                              params(9.0f, 0, 0.99f, 0.0f, 3)};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct tw_sampler sampler;
        unsigned seen[5] = {0};
        open_sampler(&sampler, cases[c], 5);
        for (int i = 0; i < 500; i++) {
            seen[sample(&sampler, logits)]++;
        }
        assert_int_equal(seen[1] + seen[3], 500);
        assert_true(seen[1] > 0 && seen[3] > 0);
        tw_sampler_finish(&sampler);
    }
}

static void only_nans_are_a_fault(void **state) {
    (void)state;
    const float logits[] = {NAN, NAN, NAN};
    const float temperatures[] = {0.0f, 1.0f};
    for (size_t i = 0; i < 2; i++) {
        struct tw_sampler sampler;
        tw_error err = {0};
        uint32_t id;
        open_sampler(&sampler, params(temperatures[i], 0, 1.0f, 0.0f, 0), 3);
        assert_int_equal(tw_sampler_sample(&sampler, logits, &id, &err), TW_E_FAULT);
        assert_non_null(strstr(err.message, "NaN"));
        tw_sampler_finish(&sampler);
    }
}

static void an_infinite_logit_takes_all(void **state) {
    (void)state;
    const float logits[] = {5.0f, INFINITY, -INFINITY, INFINITY};
    struct tw_sampler sampler;
    unsigned seen[4] = {0};
    open_sampler(&sampler, params(1.0f, 0, 1.0f, 0.0f, 11), 4);
    for (int i = 0; i < 400; i++) {
        seen[sample(&sampler, logits)]++;
    }
    assert_int_equal(seen[1] + seen[3], 400);
    assert_true(seen[1] > 100 && seen[3] > 100);
    tw_sampler_finish(&sampler);
}

static void extreme_temperatures_give_a_token(void **state) {
    (void)state;
    const float logits[] = {0.0f, 1.0f, 3.0e38f, -3.0e38f};
    assert_int_equal(sample_once(params(1e-45f, 0, 1.0f, 0.0f, 1), logits, 4), 2);
    assert_int_equal(sample_once(params(1e-45f, 3, 0.9f, 0.1f, 1), logits, 4), 2);
    assert_true(sample_once(params(3.4e38f, 0, 1.0f, 0.0f, 1), logits, 4) < 4);
}

/* Ids computed by a program in another language that sorts everything in double; each draw was at
 * least 0.006 of the largest share away from its neighbour. */
static void a_seed_gives_the_same_tokens_everywhere(void **state) {
    (void)state;
    static const struct {
        float temperature;
        uint32_t top_k;
        float top_p, min_p;
        uint64_t seed;
        uint8_t ids[16];
    } cases[] = {
        {0.8f, 40, 0.95f, 0.05f, 133742, {12, 8, 20, 16, 1, 4, 31, 27, 28, 4, 48, 8, 1, 39, 8, 27}},
        {1.5f, 0, 1.0f, 0.0f, 0, {12, 25, 29, 16, 4, 39, 39, 21, 25, 35, 1, 35, 31, 6, 28, 1}},
        {1.0f,
         0,
         0.9f,
         0.0f,
         UINT64_MAX,
         {5, 31, 8, 47, 4, 12, 27, 4, 16, 16, 31, 27, 28, 4, 27, 4}},
        {2.0f, 10, 1.0f, 0.0f, 7, {31, 43, 31, 4, 8, 20, 4, 35, 39, 12, 27, 16, 16, 8, 39, 31}},
    };
    float logits[50];
    for (int i = 0; i < 50; i++) {
        logits[i] = (float)(i * 37 % 50) / 8.0f - 3.0f;
    }
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct tw_sampler sampler;
        open_sampler(&sampler,
                     params(cases[c].temperature, cases[c].top_k, cases[c].top_p, cases[c].min_p,
                            cases[c].seed),
                     50);
        for (size_t i = 0; i < 16; i++) {
            assert_int_equal(sample(&sampler, logits), cases[c].ids[i]);
        }
        tw_sampler_finish(&sampler);
    }
}

static void other_seeds_give_other_tokens(void **state) {
    (void)state;
    float logits[64] = {0};
    struct tw_sampler a, b;
    int same = 0;
    open_sampler(&a, params(1.0f, 0, 1.0f, 0.0f, 1), 64);
    open_sampler(&b, params(1.0f, 0, 1.0f, 0.0f, 2), 64);
    for (int i = 0; i < 256; i++) {
        same += sample(&a, logits) == sample(&b, logits);
    }
    assert_true(same < 32); /* 4 expected */
    tw_sampler_finish(&a);
    tw_sampler_finish(&b);
}

/* ---- cuts and shares ---- */

/* The shares that the header promises, in double, by sorting and with libm. */
static void expected_shares(const struct tw_sampler_params *p, const float *logits, uint32_t n,
                            double *shares) {
    uint32_t order[64], kept = p->top_k && p->top_k < n ? p->top_k : n;
    double total = 0.0, reached = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && logits[order[at - 1]] < logits[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
        shares[i] = 0.0;
    }
    for (uint32_t i = 0; i < kept; i++) {
        total += exp((double)logits[order[i]]);
    }
    for (uint32_t i = 0; i < kept; i++) {
        reached += exp((double)logits[order[i]]) / total;
        if (p->top_p < 1.0f && reached >= (double)p->top_p) {
            kept = i + 1;
        }
    }
    while (kept > 1 &&
           exp((double)logits[order[kept - 1]] - (double)logits[order[0]]) < (double)p->min_p) {
        kept--;
    }
    total = 0.0;
    for (uint32_t i = 0; i < kept; i++) {
        shares[order[i]] = exp((double)logits[order[i]] / (double)p->temperature);
        total += shares[order[i]];
    }
    for (uint32_t i = 0; i < n; i++) {
        shares[i] /= total;
    }
}

static void expect_shares(struct tw_sampler_params p, const float *logits, uint32_t n,
                          const char *wanted_ids) {
    enum { DRAWS = 50000 };
    double shares[64], chi_square = 0.0;
    unsigned seen[64] = {0}, kept = 0;
    struct tw_sampler sampler;
    open_sampler(&sampler, p, n);
    for (int i = 0; i < DRAWS; i++) {
        seen[sample(&sampler, logits)]++;
    }
    tw_sampler_finish(&sampler);
    expected_shares(&p, logits, n, shares);
    for (uint32_t i = 0; i < n; i++) {
        double wanted = shares[i] * DRAWS;
        if (shares[i] == 0.0) {
            assert_int_equal(seen[i], 0);
            continue;
        }
        kept++;
        chi_square += ((double)seen[i] - wanted) * ((double)seen[i] - wanted) / wanted;
        if (wanted_ids) {
            assert_non_null(strchr(wanted_ids, '0' + (int)i));
        }
    }
    if (wanted_ids) {
        assert_int_equal(kept, strlen(wanted_ids));
    }
    /* Mean kept - 1, deviation sqrt(2 kept - 2): five deviations. The seed is fixed, so this is not
     * left to luck. */
    double bound = (double)kept - 1.0 + 5.0 * sqrt(2.0 * (double)kept);
    assert_true(chi_square <= bound);
}

static void the_cuts_keep_what_they_should(void **state) {
    (void)state;
    /* Shares 0.05, 0.4, 0.1, 0.3, 0.15. */
    const float logits[] = {-2.9957323f, -0.9162907f, -2.3025851f, -1.2039728f, -1.8971200f};
    expect_shares(params(1.0f, 0, 1.0f, 0.0f, 1), logits, 5, "01234");
    expect_shares(params(1.0f, 3, 1.0f, 0.0f, 2), logits, 5, "134");
    expect_shares(params(1.0f, 5, 1.0f, 0.0f, 3), logits, 5, "01234");
    expect_shares(params(1.0f, 0, 0.6f, 0.0f, 4), logits, 5, "13");
    expect_shares(params(1.0f, 0, 0.3f, 0.0f, 5), logits, 5, "1");
    expect_shares(params(1.0f, 0, 1.0f, 0.3f, 6), logits, 5, "134");
    expect_shares(params(1.0f, 0, 1.0f, 1.0f, 7), logits, 5, "1");
    /* top-p counts within top-k: 0.8 takes three of all five, but two of three. */
    expect_shares(params(1.0f, 0, 0.8f, 0.0f, 8), logits, 5, "134");
    expect_shares(params(1.0f, 3, 0.8f, 0.0f, 9), logits, 5, "13");
    expect_shares(params(1.0f, 4, 0.95f, 0.5f, 10), logits, 5, "13");
    /* The temperature comes last: it does not widen the choice. */
    expect_shares(params(8.0f, 0, 0.6f, 0.0f, 11), logits, 5, "13");
    expect_shares(params(8.0f, 0, 1.0f, 0.3f, 12), logits, 5, "134");
}

static void of_equal_logits_the_lower_ids_stay(void **state) {
    (void)state;
    const float logits[] = {1.0f, 2.0f, 2.0f, 2.0f, 2.0f, 0.0f};
    expect_shares(params(1.0f, 2, 1.0f, 0.0f, 1), logits, 6, "12");
    expect_shares(params(1.0f, 0, 0.4f, 0.0f, 2), logits, 6, "12");
}

static void frequencies_follow_the_shares(void **state) {
    (void)state;
    float logits[40];
    for (int i = 0; i < 40; i++) {
        logits[i] = (float)(i * 23 % 40) / 10.0f;
    }
    expect_shares(params(0.5f, 0, 1.0f, 0.0f, 21), logits, 40, NULL);
    expect_shares(params(1.0f, 0, 1.0f, 0.0f, 22), logits, 40, NULL);
    expect_shares(params(2.0f, 0, 1.0f, 0.0f, 23), logits, 40, NULL);
    expect_shares(params(0.8f, 30, 0.95f, 0.05f, 24), logits, 40, NULL);
    expect_shares(params(1.3f, 17, 0.77f, 0.0f, 25), logits, 40, NULL);
    expect_shares(params(1.3f, 0, 0.77f, 0.2f, 26), logits, 40, NULL);
}

/* ---- parameters ---- */

static void expect_refusal(struct tw_sampler_params p, uint32_t n_vocab, const char *word) {
    struct tw_sampler sampler;
    tw_error err = {0};
    assert_int_equal(tw_sampler_init(&sampler, &p, n_vocab, &err), TW_E_USAGE);
    assert_non_null(strstr(err.message, word));
    tw_sampler_finish(&sampler);
}

static void bad_parameters_are_refused_by_name(void **state) {
    (void)state;
    const float bad_temperatures[] = {-0.1f, NAN, INFINITY, -INFINITY};
    const float bad_top_ps[] = {0.0f, -1.0f, 1.001f, NAN, INFINITY};
    const float bad_min_ps[] = {-0.001f, 1.001f, NAN, INFINITY};
    for (size_t i = 0; i < 4; i++) {
        expect_refusal(params(bad_temperatures[i], 0, 1.0f, 0.0f, 0), 4, "temperature");
        expect_refusal(params(1.0f, 0, 1.0f, bad_min_ps[i], 0), 4, "min-p");
    }
    for (size_t i = 0; i < 5; i++) {
        expect_refusal(params(1.0f, 0, bad_top_ps[i], 0.0f, 0), 4, "top-p");
    }
    expect_refusal(params(1.0f, 0, 1.0f, 0.0f, 0), 0, "vocabulary");
    struct tw_sampler_params p = params(1.0f, 0, 1.0f, 0.0f, 0);
    p.size = 3;
    expect_refusal(p, 4, "size");
}

static void the_edges_of_the_ranges_are_accepted(void **state) {
    (void)state;
    const float logits[] = {0.0f, 1.0f};
    assert_int_equal(sample_once(params(0.0f, 0, 1.0f, 1.0f, 0), logits, 2), 1);
    assert_int_equal(sample_once(params(1.0f, 2, 1e-45f, 0.0f, 0), logits, 2), 1);
    assert_int_equal(sample_once(params(3.4028235e38f, UINT32_MAX, 1.0f, 1.0f, 0), logits, 2), 1);
    const float alone[] = {-4.0f};
    assert_int_equal(sample_once(params(1.0f, 40, 0.95f, 0.05f, 0), alone, 1), 0);
}

static void the_defaults_of_llama_cpp_are_valid(void **state) {
    (void)state;
    struct tw_sampler sampler;
    open_sampler(&sampler, params(0.8f, 40, 0.95f, 0.05f, 0), 100);
    assert_int_equal(sampler.params.top_k, 40);
    tw_sampler_finish(&sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_generator_gives_the_published_numbers),
        cmocka_unit_test(lists_of_the_best_give_what_all_logits_give),
        cmocka_unit_test(a_list_of_exactly_k_is_cut_as_among_more),
        cmocka_unit_test(lists_without_entries_are_a_fault),
        cmocka_unit_test(temperature_zero_takes_the_lowest_of_the_largest),
        cmocka_unit_test(top_k_of_one_is_temperature_zero),
        cmocka_unit_test(a_nan_is_never_chosen),
        cmocka_unit_test(only_nans_are_a_fault),
        cmocka_unit_test(an_infinite_logit_takes_all),
        cmocka_unit_test(extreme_temperatures_give_a_token),
        cmocka_unit_test(a_seed_gives_the_same_tokens_everywhere),
        cmocka_unit_test(other_seeds_give_other_tokens),
        cmocka_unit_test(the_cuts_keep_what_they_should),
        cmocka_unit_test(of_equal_logits_the_lower_ids_stay),
        cmocka_unit_test(frequencies_follow_the_shares),
        cmocka_unit_test(bad_parameters_are_refused_by_name),
        cmocka_unit_test(the_edges_of_the_ranges_are_accepted),
        cmocka_unit_test(the_defaults_of_llama_cpp_are_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
