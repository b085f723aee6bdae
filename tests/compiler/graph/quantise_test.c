/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion of weights (quantise.h) against blocks that llama.cpp's quantiser has made of the same
 * floats, and at the edges of the formats.
 */
#include "compiler/graph/dequant.h"
#include "compiler/graph/quantise.h"
#include "tests/support/kernel_fixture.h"
#include "tests/support/test.h"

#include <math.h>

/* The first block of blk.0.attn_k of llama-256x1 (of the shared data, ours), as F32 and as
 * llama.cpp has quantised it. */
static const float floats[32] = {
    0x1.ca01dep-3f,  0x1.10c4a8p-5f,  0x1.5c71fep-7f,  0x1.775314p-7f,  -0x1.359f24p-5f,
    -0x1.3dba0cp-3f, 0x1.57730cp-5f,  0x1.2c74e8p-5f,  -0x1.db4282p-3f, 0x1.072556p-5f,
    -0x1.d6bd28p-5f, -0x1.81c610p-5f, -0x1.560646p-4f, 0x1.5db3fap-4f,  -0x1.cfe55ap-4f,
    -0x1.1d8a14p-5f, -0x1.8c3d8cp-5f, -0x1.eadcf6p-8f, 0x1.00bf40p-3f,  0x1.40001cp-4f,
    -0x1.33a002p-4f, -0x1.a7aebep-5f, -0x1.f9212cp-5f, -0x1.b26c06p-4f, -0x1.854abap-6f,
    -0x1.1c6e5ep-5f, 0x1.6bfcb0p-4f,  -0x1.f414b4p-4f, -0x1.507bbap-8f, -0x1.f62c9cp-4f,
    0x1.e5646cp-5f,  -0x1.984c94p-4f};
static const uint8_t in_q4_0[18] = {0x6d, 0x27, 0x6f, 0x89, 0xc8, 0xb8, 0x57, 0x63, 0x69,
                                    0x49, 0x70, 0x79, 0xb6, 0x46, 0x85, 0x4b, 0xa4, 0x57};
static const uint8_t in_q8_0[34] = {0x7c, 0x17, 0x7a, 0x12, 0x06, 0x06, 0xeb, 0xab, 0x17,
                                    0x14, 0x81, 0x12, 0xe1, 0xe6, 0xd2, 0x2f, 0xc2, 0xed,
                                    0xe6, 0xfc, 0x45, 0x2b, 0xd7, 0xe4, 0xde, 0xc6, 0xf3,
                                    0xed, 0x31, 0xbd, 0xfd, 0xbd, 0x20, 0xc9};

static void the_blocks_are_those_of_the_reference_quantiser(void **state) {
    (void)state;
    uint8_t out[34];
    tw_quantise_row(TW_DT_Q4_0, floats, 32, out);
    assert_memory_equal(out, in_q4_0, sizeof in_q4_0);
    tw_quantise_row(TW_DT_Q8_0, floats, 32, out);
    assert_memory_equal(out, in_q8_0, sizeof in_q8_0);
}

/* Of equally large values the first decides the sign of the scale; its value is exact. */
static void the_first_extreme_of_q4_0_is_exact_and_the_other_side_is_cut(void **state) {
    (void)state;
    float x[32] = {0, -2.0f, 2.0f, 1.99f}, y[32];
    uint8_t out[18];
    const struct tw_model_tensor t = {.rows = 1, .cols = 32, .dtype = TW_DT_Q4_0, .data = out};
    tw_quantise_row(TW_DT_Q4_0, x, 32, out);
    tw_dequant_row(&t, 0, y);
    assert_true(y[0] == 0.0f && y[1] == -2.0f && y[2] == 1.75f && y[3] == 1.75f);
}

static void halves_are_rounded_away_from_zero_in_q8_0(void **state) {
    (void)state;
    float x[32] = {127.0f, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f};
    uint8_t out[34];
    tw_quantise_row(TW_DT_Q8_0, x, 32, out);
    const int8_t expected[6] = {127, 1, -1, 2, 3, -3};
    assert_memory_equal(out + 2, expected, sizeof expected);
}

static void zeros_and_the_smallest_numbers_give_zeros(void **state) {
    (void)state;
    static const float tiny[] = {0.0f, 0x1p-149f, 0x1p-130f, 0x1p-126f};
    static const enum tw_dtype types[] = {TW_DT_Q8_0, TW_DT_Q4_0, TW_DT_F16};
    for (size_t i = 0; i < sizeof tiny / sizeof tiny[0] * 3; i++) {
        float x[32] = {tiny[i / 3], -tiny[i / 3]}, y[32];
        uint8_t out[64];
        const struct tw_model_tensor t = {
            .rows = 1, .cols = 32, .dtype = types[i % 3], .data = out};
        tw_quantise_row(types[i % 3], x, 32, out);
        tw_dequant_row(&t, 0, y);
        for (int k = 0; k < 32; k++) {
            assert_true(y[k] == 0.0f);
        }
    }
}

/* No value is further from its own than half a step, 1/127 or 1/8 of the largest, but for what is
 * cut, and the rounding of the scale to half precision. */
static void values_are_close(void **state) {
    (void)state;
    struct fixture_random r = {7};
    for (int n = 0; n < 500; n++) {
        float x[64], y[64], largest[2] = {0};
        uint8_t out[128];
        for (int i = 0; i < 64; i++) {
            x[i] = ((float)(int32_t)fixture_below(&r, 2000001) - 1e6f) * 1e-6f;
            largest[i / 32] = fmaxf(largest[i / 32], fabsf(x[i]));
        }
        static const enum tw_dtype types[] = {TW_DT_Q8_0, TW_DT_Q4_0, TW_DT_F16};
        static const float bound[] = {0.57f / 127, 1.01f / 8, 0x1p-11f};
        for (int t = 0; t < 3; t++) {
            const struct tw_model_tensor whole = {
                .rows = 1, .cols = 64, .dtype = types[t], .data = out};
            tw_quantise_row(types[t], x, 64, out);
            tw_dequant_row(&whole, 0, y);
            for (int i = 0; i < 64; i++) {
                assert_true(fabsf(x[i] - y[i]) <= bound[t] * largest[i / 32] + 1e-6f);
            }
        }
    }
}

static void what_exceeds_a_half_becomes_infinite(void **state) {
    (void)state;
    float x[32] = {1e30f}, y[32];
    static const enum tw_dtype types[] = {TW_DT_Q8_0, TW_DT_Q4_0, TW_DT_F16};
    for (int t = 0; t < 3; t++) {
        uint8_t out[64];
        const struct tw_model_tensor whole = {
            .rows = 1, .cols = 32, .dtype = types[t], .data = out};
        tw_quantise_row(types[t], x, 32, out);
        tw_dequant_row(&whole, 0, y);
        assert_true(isinf(y[0]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_blocks_are_those_of_the_reference_quantiser),
        cmocka_unit_test(the_first_extreme_of_q4_0_is_exact_and_the_other_side_is_cut),
        cmocka_unit_test(halves_are_rounded_away_from_zero_in_q8_0),
        cmocka_unit_test(zeros_and_the_smallest_numbers_give_zeros),
        cmocka_unit_test(values_are_close),
        cmocka_unit_test(what_exceeds_a_half_becomes_infinite),
    };
    return cmocka_run_group_tests_name("quantise", tests, NULL, NULL);
}
