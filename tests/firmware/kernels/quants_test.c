/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised blocks (tilewright/quants.h) against sums in 64 bits and products in
 * double, and the activations in blocks of 256.
 */
#include "tests/support/kernel_fixture.h"
#include "tests/support/test.h"
#include "tilewright/quants.h"

#include <math.h>

static const unsigned types[] = {
#define TW_X(name, bits, offset, sub_elems, minima, scale_bytes) TW_DT_##name,
    TW_BLOCK_TYPES(TW_X)
#undef TW_X
};
enum { N_TYPES = sizeof types / sizeof types[0] };

static void floats_of(struct fixture_random *r, float scale, float *x) {
    for (uint32_t i = 0; i < TW_SUPER_BLOCK; i++) {
        x[i] = scale * fixture_unit(r);
    }
}

/* A block of random bytes whose floats are ordinary numbers. */
static void random_block(struct fixture_random *r, unsigned type, struct tw_block *b) {
    uint8_t *bytes = fixture_bytes(r, tw_dtype_block_bytes(type));
    tw_block_of_file(type, bytes, b);
    b->d = fixture_unit(r);
    b->base = tw_block_type(type).minima ? fixture_unit(r) : 0.0f;
    free(bytes);
}

/* The block with the largest magnitudes that its type has. */
static void largest_block(unsigned type, struct tw_block *b) {
    static const int8_t scales[][2] = {{TW_DT_Q2_K, 15}, {TW_DT_Q3_K, -32},  {TW_DT_Q4_K, 63},
                                       {TW_DT_Q5_K, 63}, {TW_DT_Q6_K, -128}, {TW_DT_IQ4_XS, -32}};
    struct tw_block_type t = tw_block_type(type);
    tw_block_begin(type, b);
    b->d = b->base = 1.0f;
    memset(b->scale, 1, sizeof b->scale);
    memset(b->minimum, type == TW_DT_Q2_K ? 15 : b->elems == 256 ? 63 : 1, sizeof b->minimum);
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        if ((unsigned)scales[i][0] == type) {
            memset(b->scale, scales[i][1], sizeof b->scale);
        }
    }
    bool chosen = t.offset == 128 && t.bits == 4;
    memset(b->u, chosen ? 1 : t.offset ? 0 : (1 << t.bits) - 1, sizeof b->u);
}

/* The product of a block with 32 or 256 quants in 64 bits, from what the numbers mean. */
struct wide_sums {
    int64_t s, m;
};

static struct wide_sums wide_sums(const struct tw_block *b, const int8_t *q) {
    struct wide_sums w = {0, 0};
    uint32_t offset = tw_block_type(b->dtype).offset;
    for (uint32_t i = 0; i < b->elems; i++) {
        w.s += (int64_t)b->scale[i / 16] * (b->u[i] - (int32_t)offset) * q[i];
        w.m += (int64_t)b->minimum[i / 16] * q[i];
    }
    return w;
}

static float product(const struct tw_block *b, const float *x, float y, struct wide_sums *wide,
                     float *d) {
    if (b->elems == 32) {
        struct tw_q8s q;
        tw_quant_block(x, &q);
        *wide = wide_sums(b, q.q);
        *d = q.d;
        return tw_block_times_q8s(b, &q, y);
    }
    struct tw_q8k q;
    tw_quant_block_q8k(x, &q);
    *wide = wide_sums(b, q.q);
    *d = q.d;
    return tw_block_times_q8k(b, &q, y);
}

static float expected_product(const struct tw_block *b, struct wide_sums w, float d, float y) {
    y = fmaf((float)w.s, b->d * d, y);
    if (!tw_block_type(b->dtype).minima) {
        return y;
    }
    return b->elems == 32 ? fmaf(b->base, d * (float)w.m, y) : fmaf((float)w.m, b->base * d, y);
}

static void products_are_those_of_exact_integers(void **state) {
    (void)state;
    struct fixture_random r = {61};
    for (uint32_t n = 0; n < 2000 * N_TYPES; n++) {
        float x[TW_SUPER_BLOCK], y = fixture_unit(&r), d;
        struct tw_block b;
        struct wide_sums wide;
        floats_of(&r, 3.0f, x);
        random_block(&r, types[n % N_TYPES], &b);
        float found = product(&b, x, y, &wide, &d);
        assert_true(tw_float_bits(found) == tw_float_bits(expected_product(&b, wide, d, y)));
    }
}

/* Also with every quant 127 and of the weight's own sign, or of both signs in turn. */
static void the_largest_sums_stay_in_32_bits(void **state) {
    (void)state;
    for (uint32_t n = 0; n < 3 * N_TYPES; n++) {
        float x[TW_SUPER_BLOCK], d;
        struct tw_block b;
        struct wide_sums wide;
        largest_block(types[n / 3], &b);
        for (uint32_t i = 0; i < TW_SUPER_BLOCK; i++) {
            x[i] = n % 3 == 0 || (n % 3 == 1 && i % 2) ? 127.0f : -127.0f;
        }
        float found = product(&b, x, 0.0f, &wide, &d);
        assert_true(llabs(wide.s) < INT64_C(1) << 28 && llabs(wide.m) < INT64_C(1) << 28);
        assert_true(tw_float_bits(found) == tw_float_bits(expected_product(&b, wide, d, 0.0f)));
    }
}

/* The product with the quantised x is close to that with the dequantised weights. */
static void products_are_those_of_the_values(void **state) {
    (void)state;
    struct fixture_random r = {62};
    for (uint32_t n = 0; n < 200 * N_TYPES; n++) {
        float x[TW_SUPER_BLOCK], value[TW_SUPER_BLOCK], d;
        struct tw_block b;
        struct wide_sums wide;
        double exact = 0, magnitude = 0;
        floats_of(&r, 1.0f, x);
        random_block(&r, types[n % N_TYPES], &b);
        tw_block_floats(&b, b.elems, value);
        for (uint32_t i = 0; i < b.elems; i++) {
            exact += (double)value[i] * (double)x[i];
            magnitude += fabs((double)value[i]);
        }
        float found = product(&b, x, 0.0f, &wide, &d);
        assert_true(fabs((double)found - exact) <=
                    magnitude * 0.0045); /* half a step of 1/127, d rounded */
    }
}

static void check_q8k(const float *x) {
    struct tw_q8k q;
    float max = 0;
    tw_quant_block_q8k(x, &q);
    for (uint32_t i = 0; i < TW_SUPER_BLOCK; i++) {
        max = fmaxf(max, fabsf(x[i]));
    }
    assert_true(tw_float_bits(q.d) == tw_float_bits(max / 127.0f));
    for (uint32_t j = 0; j < 16; j++) {
        int sum = 0;
        for (uint32_t i = 16 * j; i < 16 * j + 16; i++) {
            assert_true(fabsf((float)q.q[i] * q.d - x[i]) <= 0.5001f * q.d);
            sum += q.q[i];
        }
        assert_int_equal(q.sum[j], sum);
    }
}

static void q8k_keeps_the_scale_the_nearest_quants_and_their_sums(void **state) {
    (void)state;
    struct fixture_random r = {63};
    for (uint32_t n = 0; n < 500; n++) {
        float x[TW_SUPER_BLOCK];
        floats_of(&r, ldexpf(1.0f, (int)fixture_below(&r, 200) - 100), x);
        check_q8k(x);
    }
}

static void q8k_of_what_is_not_a_number_is_not_a_number_and_of_nothing_is_zero(void **state) {
    (void)state;
    float x[TW_SUPER_BLOCK] = {0};
    struct tw_q8k q;
    tw_quant_block_q8k(x, &q);
    assert_true(q.d == 0.0f && q.q[17] == 0 && q.sum[15] == 0);
    x[200] = 1e-38f; /* a 127th of it is below the normal floats */
    tw_quant_block_q8k(x, &q);
    assert_true(q.d == 0.0f && q.q[200] == 0);
    x[3] = 1.0f;
    x[255] = -INFINITY;
    tw_quant_block_q8k(x, &q);
    assert_true(isnan(q.d) && q.q[3] == 0 && q.sum[0] == 0);
    x[255] = NAN;
    tw_quant_block_q8k(x, &q);
    assert_true(isnan(q.d) && q.q[255] == 0);
}

static void every_type_with_blocks_is_described_and_no_other(void **state) {
    (void)state;
    for (unsigned dtype = 0; dtype < TW_DT_COUNT + 2; dtype++) {
        bool weights = tw_dtype_block_elems(dtype) > 1 && !tw_dtype_is_activation(dtype);
        assert_int_equal(tw_block_type(dtype).bits > 0, weights);
        assert_int_equal(tw_dtype_block_elems(tw_dtype_activation(dtype)),
                         tw_dtype_block_elems(dtype));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_exact_integers),
        cmocka_unit_test(the_largest_sums_stay_in_32_bits),
        cmocka_unit_test(products_are_those_of_the_values),
        cmocka_unit_test(q8k_keeps_the_scale_the_nearest_quants_and_their_sums),
        cmocka_unit_test(q8k_of_what_is_not_a_number_is_not_a_number_and_of_nothing_is_zero),
        cmocka_unit_test(every_type_with_blocks_is_described_and_no_other),
    };
    return cmocka_run_group_tests_name("quants", tests, NULL, NULL);
}
