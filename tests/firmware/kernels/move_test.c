/* SPDX-License-Identifier: Apache-2.0
 *
 * The data movement kernels: where every byte ends up, and that nothing else changes.
 */
#include "tests/support/kernel_fixture.h"
#include "tests/support/test.h"
#include "tilewright/numerics.h"

#include <math.h>

static void run(uint32_t op, const struct tw_kargs *a) {
    tw_kernel_table_best()->fn[op](a);
}

/* Copies four rows of 5 bytes, 8 apart, to rows 12 apart; the gaps of the destination must keep
 * their bytes. */
static void check_rows(uint32_t op, struct tw_kargs a) {
    struct fixture_random r = {11};
    uint8_t *from = fixture_bytes(&r, 3 * 8 + 5), *to = fixture_bytes(&r, 3 * 12 + 5),
            before[3 * 12 + 5];
    memcpy(before, to, sizeof before);
    a.p[0] = from;
    a.p[1] = to;
    run(op, &a);
    for (size_t i = 0; i < sizeof before; i++) {
        size_t row = i / 12, col = i % 12;
        assert_int_equal(to[i], col < 5 ? from[row * 8 + col] : before[i]);
    }
    free(to);
    free(from);
}

static void rows_are_copied_with_their_strides(void **state) {
    (void)state;
    check_rows(TW_OP_READ, (struct tw_kargs){.i = {4, 5, 8, 12}});
    check_rows(TW_OP_WRITE, (struct tw_kargs){.i = {8, 12, 5}, .rows = 4});
    check_rows(TW_OP_MCAST, (struct tw_kargs){.i = {8, 12, 5}, .rows = 4});
    check_rows(TW_OP_SEND, (struct tw_kargs){.i = {8, 12, 5}, .rows = 4});
    check_rows(TW_OP_DRAM_COPY, (struct tw_kargs){.i = {8, 12, 5}, .rows = 4});
    check_rows(TW_OP_COPY, (struct tw_kargs){.i = {8, 12, 5}, .rows = 4});
}

static void rows_without_gaps_are_copied(void **state) {
    (void)state;
    uint8_t from[12] = "abcdefghijk", to[12] = {0};
    struct tw_kargs a = {.p = {from, to}, .i = {4, 4, 4}, .rows = 3};
    run(TW_OP_COPY, &a);
    assert_memory_equal(from, to, 12);
}

static void last_row_copies_the_last_row_or_nothing(void **state) {
    (void)state;
    uint32_t from[6] = {1, 2, 3, 4, 5, 6}, to[2] = {0, 9};
    struct tw_kargs a = {.p = {from, to}, .i = {8, 4}, .rows = 0};
    run(TW_OP_LAST_ROW, &a);
    assert_int_equal(to[0], 0);
    a.rows = 3;
    run(TW_OP_LAST_ROW, &a);
    assert_int_equal(to[0], 5);
    assert_int_equal(to[1], 9);
}

enum {
    POSITIONS = 128,
    HEADS = 3,
    DIM = 6,
    FIRST = 1,
    COUNT = 2,
    ROWS = 20,
    POS = 57,
    STRIDE = COUNT * DIM + 1
};

/* Offsets of (head, position, d) in the caches: [page of 64][head]... */
static size_t key_at(uint32_t h, uint32_t p, uint32_t d) {
    return ((((size_t)(p / 64) * HEADS + h) * 4 + p % 64 / 16) * DIM + d) * 16 + p % 16;
}
static size_t value_at(uint32_t h, uint32_t p, uint32_t d) {
    return (((size_t)(p / 64) * HEADS + h) * 64 + p % 64) * DIM + d;
}

static float cached(unsigned dtype, const uint8_t *cache, size_t at) {
    uint16_t half;
    float f;
    memcpy(&half, cache + at * 2, dtype == TW_DT_F16 ? sizeof half : 0);
    memcpy(&f, cache + at * 4, dtype == TW_DT_F16 ? 0 : sizeof f);
    return dtype == TW_DT_F16 ? tw_f16_to_f32(half) : f;
}

/* Row 0 of the second head begins with two ties, which round to even halves, and the first values
 * that overflow and underflow a half. */
static void check_cache(uint32_t op, unsigned dtype, size_t (*at)(uint32_t, uint32_t, uint32_t)) {
    static const float edges[4] = {1.00048828125f, 1.00146484375f, 65520.0f, 0x1p-25f},
                       halves[4] = {1.0f, 1.001953125f, INFINITY, 0.0f};
    struct fixture_random r = {12};
    size_t bytes = HEADS * POSITIONS * DIM * tw_dtype_block_bytes(dtype);
    float *from = fixture_floats(&r, ROWS * STRIDE);
    uint8_t *cache = fixture_bytes(&r, bytes), before[HEADS * POSITIONS * DIM * 4];
    memset(cache, 0x31, bytes);
    memcpy(from + DIM, edges, sizeof edges);
    memcpy(before, cache, bytes);
    struct tw_tensor tensor = {.rows = POSITIONS,
                               .cols = HEADS * DIM,
                               .head_dim = DIM,
                               .dtype = (uint8_t)dtype,
                               .packing = op == TW_OP_KEY_WRITE ? TW_PACK_KEYS : TW_PACK_VALUES,
                               .bytes = bytes};
    struct tw_kargs a = {
        .p = {from, cache}, .i = {STRIDE * 4, FIRST, COUNT, DIM}, .rows = ROWS, .pos = POS};
    a.tensor = &tensor;
    run(op, &a);
    for (uint32_t h = 0; h < HEADS; h++) {
        for (uint32_t p = 0; p < POSITIONS; p++) {
            for (uint32_t d = 0; d < DIM; d++) {
                bool written = h >= FIRST && h < FIRST + COUNT && p >= POS && p < POS + ROWS;
                float expected = written ? from[(p - POS) * STRIDE + (h - FIRST) * DIM + d]
                                         : cached(dtype, before, at(h, p, d));
                if (written && dtype == TW_DT_F16) {
                    expected = p == POS && h == FIRST + 1 && d < 4
                                   ? halves[d]
                                   : tw_f16_to_f32(tw_f32_to_f16(expected));
                }
                assert_true(cached(dtype, cache, at(h, p, d)) == expected);
            }
        }
    }
    free(cache);
    free(from);
}

static void keys_and_values_are_written_to_their_caches(void **state) {
    (void)state;
    check_cache(TW_OP_KEY_WRITE, TW_DT_F32, key_at);
    check_cache(TW_OP_VALUE_WRITE, TW_DT_F32, value_at);
}

static void caches_of_f16_are_rounded_to_nearest_even(void **state) {
    (void)state;
    check_cache(TW_OP_KEY_WRITE, TW_DT_F16, key_at);
    check_cache(TW_OP_VALUE_WRITE, TW_DT_F16, value_at);
}

/* Embedding tables in the form of files; panels are covered by the pack test. */
static void gather_decodes_rows_of_a_row_major_table(void **state) {
    (void)state;
    uint8_t q8[3][34] = {{0}}, q4[3][18] = {{0}};
    q8[2][1] = q4[2][1] = 0x3C; /* scale 1 */
    q8[1][1] = q4[1][1] = 0x40; /* scale 2 */
    for (int i = 0; i < 32; i++) {
        q8[1][2 + i] = (uint8_t)(i - 16);
        q8[2][2 + i] = (uint8_t)(-128 + i);
    }
    for (int i = 0; i < 16; i++) {
        q4[1][2 + i] = (uint8_t)(i | (15 - i) << 4);
        q4[2][2 + i] = 0x0F;
    }
    int32_t ids[2] = {2, 1};
    float y[2][33];
    struct tw_tensor t = {.rows = 3, .cols = 32, .dtype = TW_DT_Q8_0, .packing = TW_PACK_ROW};
    struct tw_kargs a = {.p = {q8, ids, y}, .i = {sizeof y[0], 32}, .rows = 2, .tensor = &t};
    run(TW_OP_GATHER, &a);
    for (int i = 0; i < 32; i++) {
        assert_true(y[0][i] == (float)(i - 128) && y[1][i] == (float)(2 * (i - 16)));
    }
    t.dtype = TW_DT_Q4_0;
    a.p[0] = q4;
    run(TW_OP_GATHER, &a);
    for (int i = 0; i < 32; i++) {
        assert_true(y[0][i] == (i < 16 ? 7.0f : -8.0f));
        assert_true(y[1][i] == (float)(2 * (i < 16 ? i - 8 : 15 - (i - 16) - 8)));
    }
}

static void gather_decodes_floats_and_halves(void **state) {
    (void)state;
    uint16_t f16[2][3] = {{0}, {0x3C00, 0xC000, 1}}, bf16[2][3] = {{0}, {0x3F80, 0xC000, 0x4049}};
    float f32[2][3] = {{0}, {1.5f, -2.5f, 3.25f}}, y[3];
    int32_t ids[1] = {1};
    struct tw_tensor t = {.rows = 2, .cols = 3, .dtype = TW_DT_F16, .packing = TW_PACK_ROW};
    struct tw_kargs a = {.p = {f16, ids, y}, .i = {12, 3}, .rows = 1, .tensor = &t};
    run(TW_OP_GATHER, &a);
    assert_true(y[0] == 1.0f && y[1] == -2.0f && y[2] == 0x1p-24f);
    t.dtype = TW_DT_BF16;
    a.p[0] = bf16;
    run(TW_OP_GATHER, &a);
    assert_true(y[0] == 1.0f && y[1] == -2.0f && y[2] == 3.140625f);
    t.dtype = TW_DT_F32;
    a.p[0] = f32;
    run(TW_OP_GATHER, &a);
    assert_memory_equal(y, f32[1], sizeof y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_copied_with_their_strides),
        cmocka_unit_test(rows_without_gaps_are_copied),
        cmocka_unit_test(last_row_copies_the_last_row_or_nothing),
        cmocka_unit_test(keys_and_values_are_written_to_their_caches),
        cmocka_unit_test(caches_of_f16_are_rounded_to_nearest_even),
        cmocka_unit_test(gather_decodes_rows_of_a_row_major_table),
        cmocka_unit_test(gather_decodes_floats_and_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
