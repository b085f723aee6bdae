/* SPDX-License-Identifier: Apache-2.0
 *
 * A weight that is not finite is found in every type and position, and its tensor, row and column
 * are named.
 */
#include "compiler/emit/finite.h"
#include "tests/support/test.h"

#define ROWS 5u
#define COLS 768u

/* Bytes of the number, or of one of the block's, that holds a column, `at` bytes into the block;
 * patterns that are not finite numbers. */
static const struct {
    enum tw_dtype dtype;
    uint32_t at, bytes;
    uint32_t infinite, nan;
    uint32_t largest; /* the largest finite number */
} types[] = {
    {TW_DT_F32, 0, 4, 0x7F800000, 0xFFC00001, 0x7F7FFFFF},
    {TW_DT_F16, 0, 2, 0xFC00, 0x7E01, 0x7BFF},
    {TW_DT_BF16, 0, 2, 0x7F80, 0xFFC1, 0xFF7F},
    {TW_DT_Q8_0, 0, 2, 0x7C00, 0x7E00, 0xFBFF},
    {TW_DT_Q4_0, 0, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_Q4_1, 0, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_Q4_1, 2, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_Q5_0, 0, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_Q5_1, 0, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_Q5_1, 2, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_IQ4_NL, 0, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_MXFP4, 0, 1, 253, 255, 252}, /* 12 * 2^125 is no float */
    {TW_DT_Q2_K, 80, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_Q2_K, 82, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_Q3_K, 108, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_Q4_K, 0, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_Q4_K, 2, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_Q5_K, 0, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_Q5_K, 2, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_Q6_K, 208, 2, 0xFC00, 0xFE01, 0x7BFF},
    {TW_DT_IQ4_XS, 0, 2, 0xFC00, 0xFE01, 0x7BFF},
};

static uint32_t block_start(size_t type, uint32_t col) {
    uint32_t elems = tw_dtype_block_elems(types[type].dtype);
    return col / elems * elems;
}

static void put(uint8_t *data, size_t type, uint32_t row, uint32_t col, uint32_t pattern) {
    enum tw_dtype dtype = types[type].dtype;
    memcpy(data + row * tw_row_bytes(dtype, COLS) + tw_row_bytes(dtype, block_start(type, col)) +
               types[type].at,
           &pattern, types[type].bytes);
}

static void every_weight_that_is_not_finite_is_named(void **state) {
    (void)state;
    static const uint32_t places[][2] = {{0, 0}, {0, 767}, {3, 300}, {4, 767}};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        uint64_t bytes = ROWS * tw_row_bytes(types[t].dtype, COLS);
        uint8_t *data = malloc(bytes);
        struct tw_model_tensor tensor = {.name = "blk.1.ffn_down.weight",
                                         .rows = ROWS,
                                         .cols = COLS,
                                         .dtype = types[t].dtype,
                                         .data = data,
                                         .bytes = bytes};
        assert_non_null(data);
        for (size_t k = 0; k < 8; k++) {
            const uint32_t *at = places[k / 2];
            char expected[80];
            tw_error err = {0};
            memset(data, 0x55, bytes);
            put(data, t, 2, 33, types[t].largest);
            assert_int_equal(tw_check_finite(&tensor, tensor.data, 0, ROWS, &err), 0);
            put(data, t, at[0], at[1], k % 2 ? types[t].nan : types[t].infinite);
            assert_int_equal(tw_check_finite(&tensor, tensor.data, 0, ROWS, &err), TW_E_RANGE);
            snprintf(expected, sizeof expected, "row %u, column %u ", at[0], block_start(t, at[1]));
            assert_non_null(strstr(err.message, expected));
            assert_non_null(strstr(err.message, "blk.1.ffn_down.weight"));
            uint32_t first = at[0] ? 0 : 1, rows = at[0] ? at[0] : ROWS - 1;
            const uint8_t *from = data + first * tw_row_bytes(types[t].dtype, COLS);
            assert_int_equal(tw_check_finite(&tensor, from, first, rows, &err), 0);
        }
        free(data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_weight_that_is_not_finite_is_named)};
    return cmocka_run_group_tests_name("finite", tests, NULL, NULL);
}
