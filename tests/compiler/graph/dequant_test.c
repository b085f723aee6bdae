/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the conversion of weights to floats: bytes and values written by hand, at an odd
 * address.
 */
#include "compiler/graph/dequant.h"
#include "tests/support/test.h"

#include <math.h>

/* Converts row `row` of a tensor whose bytes begin at an odd address. */
static void convert_row(enum tw_dtype dtype, uint32_t rows, uint32_t cols, const uint8_t *bytes,
                        uint32_t row, float *out) {
    _Alignas(16) uint8_t copy[1 + 256];
    uint64_t size = tw_row_bytes(dtype, cols) * rows;
    assert_true(size <= 256);
    memcpy(copy + 1, bytes, (size_t)size);
    struct tw_model_tensor t = {
        .name = "t", .rows = rows, .cols = cols, .dtype = dtype, .data = copy + 1, .bytes = size};
    tw_dequant_row(&t, row, out);
}

static void expect_floats(const float *actual, const float *expected, size_t n) {
    assert_memory_equal(actual, expected, n * sizeof *actual);
}

static void f32_rows_are_the_floats_of_the_file(void **state) {
    (void)state;
    static const uint8_t bytes[] = {0x00, 0x00, 0x80, 0x3F, 0x00, 0x00, 0x00, 0xC0,
                                    0x01, 0x00, 0x00, 0x00, 0xDB, 0x0F, 0x49, 0x40};
    static const float expected[] = {1.0f, -2.0f, 0x1p-149f, 3.14159274f};
    float out[2];
    convert_row(TW_DT_F32, 2, 2, bytes, 0, out);
    expect_floats(out, expected, 2);
    convert_row(TW_DT_F32, 2, 2, bytes, 1, out);
    expect_floats(out, expected + 2, 2);
}

static void f16_rows_convert_exactly_including_subnormals_and_infinities(void **state) {
    (void)state;
    static const uint8_t bytes[] = {0x00, 0x3C, 0x00, 0x80, 0x01, 0x00,
                                    0xFF, 0x7B, 0x00, 0xFC, 0x55, 0x35};
    static const float expected[] = {1.0f, -0.0f, 0x1p-24f, 65504.0f, -INFINITY, 0.333251953125f};
    float out[3];
    convert_row(TW_DT_F16, 2, 3, bytes, 0, out);
    expect_floats(out, expected, 3);
    convert_row(TW_DT_F16, 2, 3, bytes, 1, out);
    expect_floats(out, expected + 3, 3);
}

static void bf16_rows_are_the_upper_halves_of_floats(void **state) {
    (void)state;
    static const uint8_t bytes[] = {0x80, 0x3F, 0x49, 0xC0, 0x01, 0x00, 0x80, 0x7F};
    static const float expected[] = {1.0f, -3.140625f, 0x1p-133f, INFINITY};
    float out[2];
    convert_row(TW_DT_BF16, 2, 2, bytes, 0, out);
    expect_floats(out, expected, 2);
    convert_row(TW_DT_BF16, 2, 2, bytes, 1, out);
    expect_floats(out, expected + 2, 2);
}

/* Two rows of two blocks with scales 0.5, 2, -1 and 0.25; the quants count up from -128, -96 and
 * -64, then down from 127. */
static void q8_0_blocks_are_scale_times_signed_quant(void **state) {
    (void)state;
    static const uint8_t scales[4][2] = {{0x00, 0x38}, {0x00, 0x40}, {0x00, 0xBC}, {0x00, 0x34}};
    static const float values[4] = {0.5f, 2.0f, -1.0f, 0.25f};
    uint8_t bytes[4 * 34];
    float expected[128], out[64];
    for (int block = 0; block < 4; block++) {
        memcpy(bytes + block * 34, scales[block], 2);
        for (int i = 0; i < 32; i++) {
            int q = block == 3 ? 127 - i : -128 + 32 * block + i;
            bytes[block * 34 + 2 + i] = (uint8_t)q;
            expected[block * 32 + i] = values[block] * (float)q;
        }
    }
    convert_row(TW_DT_Q8_0, 2, 64, bytes, 0, out);
    expect_floats(out, expected, 64);
    convert_row(TW_DT_Q8_0, 2, 64, bytes, 1, out);
    expect_floats(out, expected + 64, 64);
}

/* Byte i holds element i in its low and element i + 16 in its high nibble; nibble 8 means 0. */
static void q4_0_blocks_hold_their_halves_in_low_and_high_nibbles(void **state) {
    (void)state;
    uint8_t bytes[2 * 18];
    float expected[64], out[32];
    for (int block = 0; block < 2; block++) {
        bytes[block * 18] = 0x00;
        bytes[block * 18 + 1] = block ? 0xC0 : 0x38; /* -2, 0.5 */
        for (int i = 0; i < 16; i++) {
            int low = (i + block) % 16, high = 15 - i;
            bytes[block * 18 + 2 + i] = (uint8_t)(high * 16 + low);
            expected[block * 32 + i] = (block ? -2.0f : 0.5f) * (float)(low - 8);
            expected[block * 32 + 16 + i] = (block ? -2.0f : 0.5f) * (float)(high - 8);
        }
    }
    convert_row(TW_DT_Q4_0, 2, 32, bytes, 0, out);
    expect_floats(out, expected, 32);
    convert_row(TW_DT_Q4_0, 2, 32, bytes, 1, out);
    expect_floats(out, expected + 32, 32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_rows_are_the_floats_of_the_file),
        cmocka_unit_test(f16_rows_convert_exactly_including_subnormals_and_infinities),
        cmocka_unit_test(bf16_rows_are_the_upper_halves_of_floats),
        cmocka_unit_test(q8_0_blocks_are_scale_times_signed_quant),
        cmocka_unit_test(q4_0_blocks_hold_their_halves_in_low_and_high_nibbles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
