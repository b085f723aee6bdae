/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine's scalar formulas against libm in double and against the formats' definitions.
 */
#include "tests/support/test.h"
#include "tilewright/numerics.h"

#include <math.h>

/* The value of a half by the definition of IEEE 754; not for NaN. */
static double half_value(uint32_t h) {
    double sign = h & 0x8000 ? -1 : 1;
    int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
    if (exponent == 31) {
        return sign * INFINITY;
    }
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

static int half_is_nan(uint32_t h) {
    return (h & 0x7FFF) > 0x7C00;
}

static void every_half_converts_to_its_value_and_back(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = tw_f16_to_f32((uint16_t)h);
        if (half_is_nan(h)) {
            assert_true(isnan(f));
            assert_int_equal(tw_f32_to_f16(f), h | 0x200); /* quiet, payload preserved */
            continue;
        }
        assert_true((double)f == half_value(h) && !signbit(f) == !(h & 0x8000));
        assert_int_equal(tw_f32_to_f16(f), h);
    }
}

/* Between two adjacent halves: below, at and above the midpoint. */
static void floats_between_halves_round_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7C00; h++) {
        double next = h + 1 == 0x7C00 ? 65536.0 : half_value(h + 1);
        float middle = (float)((half_value(h) + next) / 2);
        uint32_t even = h & 1 ? h + 1 : h;
        assert_int_equal(tw_f32_to_f16(middle), even);
        assert_int_equal(tw_f32_to_f16(-middle), even | 0x8000);
        assert_int_equal(tw_f32_to_f16(nextafterf(middle, 0.0f)), h);
        assert_int_equal(tw_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_int_equal(tw_f32_to_f16(3e38f), 0x7C00);
    assert_int_equal(tw_f32_to_f16(1e-45f), 0);
}

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t b = 0; b < 65536; b++) {
        float f = tw_bf16_to_f32((uint16_t)b);
        if (isnan(f)) {
            assert_int_equal(tw_f32_to_bf16(f), b | 0x40);
            continue;
        }
        assert_int_equal(tw_f32_to_bf16(f), b);
        if ((b & 0x7FFF) < 0x7F80) {
            uint32_t even = b & 1 ? b + 1 : b, middle = b << 16 | 0x8000;
            assert_int_equal(tw_f32_to_bf16(tw_bits_float(middle)), even);
            assert_int_equal(tw_f32_to_bf16(tw_bits_float(middle - 1)), b);
            assert_int_equal(tw_f32_to_bf16(tw_bits_float(middle + 1)), b + 1);
        }
    }
}

static void exp_is_within_its_error_bound(void **state) {
    (void)state;
    double worst = 0;
    for (uint64_t u = 0; u <= UINT32_MAX; u += 1021) {
        float x = tw_bits_float((uint32_t)u), y = tw_exp(x);
        if (isnan(x)) {
            assert_true(isnan(y));
        } else if (x < TW_EXP_LO) {
            assert_true(tw_float_bits(y) == 0);
        } else if (x > 88.722839f) {
            assert_true(y == INFINITY);
        } else {
            double e = exp((double)x), error = fabs((double)y - e) / e;
            worst = error > worst ? error : worst;
        }
    }
    print_message("worst relative error %.3g\n", worst);
    assert_true(worst < 8.6e-8);
}

static void exp_at_the_ends_of_its_range(void **state) {
    (void)state;
    assert_true(tw_exp(0.0f) == 1.0f && tw_exp(-0.0f) == 1.0f);
    assert_int_equal(tw_float_bits(tw_exp(-INFINITY)), 0);
    assert_int_equal(tw_float_bits(tw_exp(-3e38f)), 0);
    assert_true(tw_exp(INFINITY) == INFINITY && tw_exp(3e38f) == INFINITY);
    assert_true(tw_exp(TW_EXP_LO) > 1.17549435e-38f &&
                tw_exp(nextafterf(TW_EXP_LO, -100.0f)) == 0.0f);
    assert_true(isfinite(tw_exp(88.72283f)));
}

static void silu_of_any_number_is_accurate(void **state) {
    (void)state;
    for (uint64_t u = 0; u <= UINT32_MAX; u += 65521) {
        float x = tw_bits_float((uint32_t)u);
        if (isfinite(x)) {
            double expected = (double)x / (1 + exp(-(double)x)), found = (double)tw_silu(x);
            assert_true(fabs(found - expected) <= 3e-7 * fabs(expected) + 2e-36);
        }
    }
}

static void sine_and_cosine_of_positions_are_accurate(void **state) {
    (void)state;
    for (uint32_t n = 0; n < 200000; n++) {
        uint32_t position = n < 70000 ? n : n * 5417u >> (n % 12 + 4);
        float frequency = powf(500000.0f, -(float)(n % 64) / 64.0f), s, c;
        double angle = (double)position * (double)frequency;
        tw_sincos(position, frequency, &s, &c);
        assert_true(fabs((double)s - sin(angle)) < 1.2e-7 && fabs((double)c - cos(angle)) < 1.2e-7);
    }
    float s, c;
    tw_sincos(0, 1.0f, &s, &c);
    assert_true(s == 0.0f && c == 1.0f);
    tw_sincos(1, INFINITY, &s, &c);
    assert_true(isnan(s) && isnan(c));
}

static void folds_combine_the_lanes_in_tree_order(void **state) {
    (void)state;
    /* 1 and several 2^-24: which sums are rounded shows the order. */
    float lane[16] = {0}, high[16];
    lane[0] = 1.0f;
    lane[8] = lane[4] = lane[2] = lane[1] = 0x1p-24f;
    assert_true(tw_fold_add(lane) == 1.0f); /* each 2^-24 is added to 1 alone */
    memset(lane, 0, sizeof lane);
    lane[0] = 1.0f;
    lane[1] = lane[9] = 0x1p-24f;
    assert_true(tw_fold_add(lane) == 1.0f + 0x1p-23f); /* lanes 1 and 9 are added first */
    for (int i = 0; i < 16; i++) {
        high[i] = (float)(i * 7 % 16);
    }
    assert_true(tw_fold_max(high) == 15.0f);
    assert_true(tw_max(-1.0f, NAN) == -1.0f);
}

static void the_factor_of_an_overflow_is_not_zero(void **state) {
    (void)state;
    const float largest = 3.4028235e38f;
    assert_true(tw_rms_factor(12.0f, 3, 0.0f) == 0.5f);
    assert_true(tw_rms_factor(largest, 1, 0.0f) > 0.0f);
    assert_true(isnan(tw_rms_factor(INFINITY, 64, 1e-5f)));
    assert_true(isnan(tw_rms_factor(NAN, 64, 1e-5f)));
    assert_true(isnan(tw_rms_factor(-NAN, 64, 1e-5f)));
}

static void the_first_number_that_is_not_finite_is_found(void **state) {
    (void)state;
    const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    float x[700];
    for (uint32_t i = 0; i < 700; i++) {
        x[i] = i % 3 == 0 ? 3.4028235e38f : i % 3 == 1 ? -3.4028235e38f : 1e-45f;
    }
    for (uint32_t n = 0; n <= 700; n += 7) {
        assert_int_equal(tw_first_not_finite(x, n), n);
    }
    for (uint32_t at = 0; at < 700; at++) {
        float kept = x[at];
        x[at] = bad[at % 4];
        assert_int_equal(tw_first_not_finite(x, 700), at);
        assert_int_equal(tw_first_not_finite(x, at), at);
        assert_int_equal(tw_first_not_finite(x + at, 700 - at), 0);
        x[at] = kept;
    }
}

/* As a plain comparison of each with the best before it finds it. */
static uint32_t plain_argmax(const float *x, uint32_t n) {
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++) {
        if (best == n ? !isnan(x[i]) : x[i] > x[best]) {
            best = i;
        }
    }
    return best;
}

static void the_first_of_the_largest_numbers_is_found(void **state) {
    (void)state;
    static const float few[] = {0.0f,      -0.0f, 1e-45f, -1e-45f, INFINITY,
                                -INFINITY, NAN,   -NAN,   1.0f,    -1.0f};
    float x[700];
    uint32_t seed = 1;
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t n = round % 700, kinds = 1 + round % (sizeof few / sizeof *few);
        for (uint32_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            x[i] = round % 2 ? few[(seed >> 16) % kinds]
                             : tw_bits_float(round % 4 ? seed : seed & 0xBFFFFFFFu);
        }
        assert_int_equal(tw_argmax(x, n), plain_argmax(x, n));
        for (uint32_t i = 0; i < n && round % 8 == 7; i++) {
            x[i] = i % 2 ? NAN : i > 600 ? -INFINITY : -NAN;
        }
        assert_int_equal(tw_argmax(x, n), plain_argmax(x, n));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_the_largest_numbers_is_found),
        cmocka_unit_test(every_half_converts_to_its_value_and_back),
        cmocka_unit_test(floats_between_halves_round_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(exp_is_within_its_error_bound),
        cmocka_unit_test(exp_at_the_ends_of_its_range),
        cmocka_unit_test(silu_of_any_number_is_accurate),
        cmocka_unit_test(sine_and_cosine_of_positions_are_accurate),
        cmocka_unit_test(the_factor_of_an_overflow_is_not_zero),
        cmocka_unit_test(the_first_number_that_is_not_finite_is_found),
        cmocka_unit_test(folds_combine_the_lanes_in_tree_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
