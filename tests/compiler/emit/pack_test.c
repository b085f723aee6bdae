/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing into panels: GATHER reads from a panel what it reads from the file's rows, bit for bit.
 */
#include "compiler/emit/pack.h"
#include "tests/support/kernel_fixture.h"
#include "tests/support/test.h"

#define TW_X(name, bits, offset, sub_elems, minima, scale_bytes) TW_DT_##name,
static const enum tw_dtype packed[] = {TW_DT_F32, TW_DT_F16, TW_DT_BF16, TW_BLOCK_TYPES(TW_X)};
#undef TW_X
enum { N_PACKED = sizeof packed / sizeof *packed };

static void gather(enum tw_dtype dtype, enum tw_packing packing, const uint8_t *table, uint32_t k,
                   int32_t id, float *y) {
    struct tw_tensor t = {
        .rows = 16, .cols = k, .dtype = (uint8_t)dtype, .packing = (uint8_t)packing};
    struct tw_kargs a = {
        .p = {(void *)(uintptr_t)table, &id, y}, .i = {k * 4, k}, .rows = 1, .tensor = &t};
    tw_kernel_table_best()->fn[TW_OP_GATHER](&a);
}

/* Packs `rows` rows at an odd address with an odd stride. Weights have random bits, which include
 * NaNs, so words are compared. */
static void check_panel(struct fixture_random *r, enum tw_dtype dtype, uint32_t k, uint32_t rows) {
    size_t row_bytes = (size_t)tw_row_bytes(dtype, k), stride = row_bytes + 5,
           bytes = (size_t)tw_panel_bytes(dtype, k);
    uint8_t *file = fixture_bytes(r, 1 + 16 * stride), *src = file + 1;
    uint8_t *panel = fixture_bytes(r, bytes), *again = fixture_bytes(r, bytes);
    float *found = (float *)fixture_alloc(k * 4), *expected = (float *)fixture_alloc(k * 4);
    tw_pack_panel(dtype, src, stride, rows, k, panel);
    tw_pack_panel(dtype, src, stride, rows, k, again);
    assert_memory_equal(panel, again, bytes);
    for (uint32_t i = 0; i < 16; i++) {
        gather(dtype, TW_PACK_PANEL16, panel, k, (int32_t)i, found);
        memset(expected, 0, k * 4);
        if (i < rows) {
            gather(dtype, TW_PACK_ROW, src + stride * i, k, 0, expected);
        }
        if (memcmp(found, expected, k * 4) != 0) {
            fail_msg("%s: k %u, row %u of %u differs", tw_dtype_name(dtype), k, i, rows);
        }
    }
    free(expected);
    free(found);
    free(again);
    free(panel);
    free(file);
}

static void a_packed_row_reads_as_the_original(void **state) {
    (void)state;
    struct fixture_random r = {31};
    for (uint32_t i = 0; i < N_PACKED; i++) {
        uint32_t unit = tw_dtype_block_elems(packed[i]);
        for (uint32_t n = 1; n < 40; n += 1 + n / 4) {
            check_panel(&r, packed[i], unit * n, 16);
        }
    }
}

static void missing_rows_are_zero_weights(void **state) {
    (void)state;
    struct fixture_random r = {32};
    for (uint32_t i = 0; i < N_PACKED; i++) {
        for (uint32_t rows = 0; rows < 16; rows += 3) {
            uint32_t unit = tw_dtype_block_elems(packed[i]);
            check_panel(&r, packed[i], unit > 32 ? unit : 32, rows);
        }
    }
}

/* Whole segments are lines, so that the next one begins with one, and hardly larger than in the
 * file. */
static void panels_are_hardly_larger_than_the_file(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_PACKED; i++) {
        double file = 16.0 * (double)tw_row_bytes(packed[i], 256);
        uint64_t bytes = tw_panel_bytes(packed[i], 256);
        assert_int_equal(bytes % 64, 0);
        assert_true((double)bytes >= file && (double)bytes <= 1.04 * file);
    }
}

static void missing_quantised_rows_have_the_documented_bytes_and_gaps_are_zero(void **state) {
    (void)state;
    struct fixture_random r = {33};
    uint8_t *src = fixture_bytes(&r, 34), *panel = fixture_bytes(&r, 576),
            *small = fixture_bytes(&r, 320);
    tw_pack_panel(TW_DT_Q8_0, src, 34, 1, 32, panel);
    assert_int_equal(panel[64 + 4], 128);
    assert_int_equal(panel[2] | panel[3], 0);
    tw_pack_panel(TW_DT_Q4_0, src, 18, 1, 32, small);
    assert_int_equal(small[64 + 4], 0x88);
    for (uint32_t i = 0; i < 32; i++) {
        assert_int_equal(panel[32 + i] | small[32 + i], 0);
    }
    free(small);
    free(panel);
    free(src);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packed_row_reads_as_the_original),
        cmocka_unit_test(missing_rows_are_zero_weights),
        cmocka_unit_test(panels_are_hardly_larger_than_the_file),
        cmocka_unit_test(missing_quantised_rows_have_the_documented_bytes_and_gaps_are_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
