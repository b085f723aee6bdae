/* SPDX-License-Identifier: Apache-2.0
 *
 * A sum has the same bits however its length is split: products over owners of windows of k, folded
 * by FOLD, and norms over owners of windows of columns, for every weight type and instruction set,
 * equal the one op over all. What a canonical sum is, and how wrong it may be, is checked against
 * formulas that are written here from tilewright/numerics.h.
 */
#include "tests/support/kernel_fixture.h"
#include "tests/support/test.h"
#include "tilewright/numerics.h"

#include <math.h>

enum { SEED = 90210, ROWS = 2, PANELS = 2, COLS = 16 * PANELS, SEGMENT = 256, MAX_PARTS = 64 };

static const unsigned dtypes[] = {TW_DT_F32,  TW_DT_F16,    TW_DT_BF16,   TW_DT_Q8_0,
                                  TW_DT_Q4_0, TW_DT_Q4_1,   TW_DT_Q5_0,   TW_DT_Q5_1,
                                  TW_DT_Q2_K, TW_DT_Q3_K,   TW_DT_Q4_K,   TW_DT_Q5_K,
                                  TW_DT_Q6_K, TW_DT_IQ4_NL, TW_DT_IQ4_XS, TW_DT_MXFP4};
static const uint32_t depths[] = {300,  512,  768,  1000, 1280, 2048, 2816,  3072,
                                  4096, 4864, 5632, 6912, 8192, 9728, 11008, 14336};
static const uint32_t owners[] = {2, 3, 4, 8};

/* ---- a product and its windows ---- */

struct product {
    const struct tw_kernel_table *table;
    unsigned dtype;
    uint32_t k;
    char *x;
    uint8_t *w;
    float whole[ROWS * COLS];
};

static uint32_t x_bytes(const struct product *p, uint32_t k) {
    return (uint32_t)tw_row_bytes(tw_dtype_activation(p->dtype), k);
}

/* The sum of columns [from, end) -> part `part` of `parts` of y, or on top of it. */
static void window(const struct product *p, uint32_t from, uint32_t end, float *y, uint32_t part,
                   uint32_t parts, bool reload) {
    struct tw_kargs a = {.p = {p->x + x_bytes(p, from), p->w + tw_panel_offset(p->dtype, from),
                               y + (size_t)part * COLS},
                         .i = {x_bytes(p, p->k), (uint32_t)tw_panel_bytes(p->dtype, p->k), p->dtype,
                               end - from, PANELS, parts * COLS * 4, reload},
                         .rows = ROWS};
    a.x_dtype = tw_dtype_activation(p->dtype);
    p->table->fn[TW_OP_MATMUL](&a);
}

static void fold(const struct tw_kernel_table *table, const float *x, uint32_t parts, float *y,
                 uint32_t cols) {
    struct tw_kargs a = {.p = {(void *)(uintptr_t)x, y},
                         .i = {parts * cols * 4, parts, cols * 4, cols},
                         .rows = ROWS};
    table->fn[TW_OP_FOLD](&a);
}

static void product_start(struct product *p, struct fixture_random *r,
                          const struct tw_kernel_table *table, unsigned dtype, uint32_t k) {
    uint32_t block = tw_dtype_block_elems(dtype);
    k = k / block * block;
    *p = (struct product){.table = table, .dtype = dtype, .k = k};
    p->x = fixture_activations(r, tw_dtype_activation(dtype), ROWS, k);
    p->w = fixture_panels(r, dtype, k, PANELS);
    window(p, 0, k, p->whole, 0, 1, false);
}

static void product_end(struct product *p) {
    free(p->w);
    free(p->x);
}

static void expect_whole(const struct product *p, const float *y, const char *how) {
    if (memcmp(y, p->whole, sizeof p->whole) != 0) {
        fail_msg("%s, %s, k %u, %s: other bits than unsplit", p->table->name,
                 tw_dtype_name(p->dtype), p->k, how);
    }
}

/* ---- equal runs: one partial sum an owner, one FOLD ---- */

/* Runs of `unit` segments each, the last one perhaps shorter. */
static void split_in_runs(const struct product *p, uint32_t unit) {
    uint32_t step = unit * SEGMENT, parts = (p->k + step - 1) / step;
    float y[ROWS * COLS], *partial = fixture_alloc((size_t)ROWS * parts * COLS * 4);
    char how[60];
    for (uint32_t i = parts; i-- > 0;) { /* in any order */
        uint32_t end = p->k - i * step < step ? p->k : (i + 1) * step;
        window(p, i * step, end, partial, i, parts, false);
    }
    fold(p->table, partial, parts, y, COLS);
    snprintf(how, sizeof how, "%u runs of %u segments", parts, unit);
    expect_whole(p, y, how);
    free(partial);
}

/* ---- any cuts: owners send one partial sum for each aligned run they own ---- */

struct part {
    uint32_t first, size; /* segments */
    float y[ROWS * COLS];
};
struct parts {
    uint32_t n, segments;
    struct part at[MAX_PARTS];
};

/* Adds the aligned runs of an owner's segments [from, to). A run that the end of k cuts off counts
 * as whole. */
static void own(const struct product *p, struct parts *parts, uint32_t from, uint32_t to) {
    while (from < to) {
        uint32_t size = 1;
        while (from % (2 * size) == 0 && (from + 2 * size <= to || to == parts->segments) &&
               from + size < to) {
            size *= 2;
        }
        assert_true(parts->n < MAX_PARTS);
        struct part *part = &parts->at[parts->n++];
        uint32_t end = from + size < to ? from + size : to;
        *part = (struct part){.first = from, .size = size};
        window(p, from * SEGMENT, end * SEGMENT < p->k ? end * SEGMENT : p->k, part->y, 0, 1,
               false);
        from = end;
    }
}

/* The sum of segments [first, first + size), a run of the tree: a partial sum as it is, or the fold
 * of its halves. */
static void gather(const struct product *p, const struct parts *parts, uint32_t first,
                   uint32_t size, float *y) {
    for (uint32_t i = 0; i < parts->n; i++) {
        if (parts->at[i].first == first && parts->at[i].size >= size) {
            memcpy(y, parts->at[i].y, sizeof parts->at[i].y);
            return;
        }
    }
    assert_true(size > 1);
    if (first + size / 2 >= parts->segments) {
        gather(p, parts, first, size / 2, y);
        return;
    }
    float half[2][ROWS * COLS], both[ROWS * 2 * COLS];
    gather(p, parts, first, size / 2, half[0]);
    gather(p, parts, first + size / 2, size / 2, half[1]);
    for (uint32_t i = 0; i < 2 * ROWS; i++) {
        memcpy(both + i * COLS, half[i % 2] + i / 2 * COLS, COLS * 4);
    }
    fold(p->table, both, 2, y, COLS);
}

static void split_at(const struct product *p, const uint32_t *cut, uint32_t n) {
    struct parts parts = {.segments = (p->k + SEGMENT - 1) / SEGMENT};
    uint32_t size = 1;
    float y[ROWS * COLS];
    char how[60];
    for (uint32_t i = 0; i < n; i++) {
        own(p, &parts, cut[i], cut[i + 1]);
    }
    while (size < parts.segments) {
        size *= 2;
    }
    gather(p, &parts, 0, size, y);
    snprintf(how, sizeof how, "%u owners, the first of %u segments, %u partial sums", n, cut[1],
             parts.n);
    expect_whole(p, y, how);
}

/* Equal shares, then random ones, some of them empty. */
static void split_over(const struct product *p, struct fixture_random *r, uint32_t n) {
    uint32_t segments = (p->k + SEGMENT - 1) / SEGMENT, cut[9] = {0};
    for (uint32_t way = 0; way < 4; way++) {
        for (uint32_t i = 1; i < n; i++) {
            cut[i] = way ? fixture_below(r, segments + 1) : segments * i / n;
            for (uint32_t j = i; j > 1 && cut[j] < cut[j - 1]; j--) {
                uint32_t t = cut[j];
                cut[j] = cut[j - 1];
                cut[j - 1] = t;
            }
        }
        cut[n] = segments;
        split_at(p, cut, n);
    }
}

/* Sanitized programs are slow: other depths for each type. */
enum { STEP = TEST_ASAN ? 3 : 1 };

static void a_product_has_the_same_bits_however_k_is_split(void **state) {
    (void)state;
    struct fixture_random r = {SEED};
    uint32_t n = 0;
    for (int isa = 0; isa < TW_ISA_COUNT; isa++) {
        const struct tw_kernel_table *table = tw_kernel_table((enum tw_isa)isa);
        for (size_t d = 0; table && d < sizeof dtypes / sizeof *dtypes; d++) {
            for (size_t k = d % STEP; k < sizeof depths / sizeof *depths; k += STEP) {
                struct product p;
                product_start(&p, &r, table, dtypes[d], depths[k]);
                for (uint32_t unit = 1; unit * SEGMENT < 2 * p.k; unit *= 2, n++) {
                    split_in_runs(&p, unit);
                }
                for (size_t o = 0; o < sizeof owners / sizeof *owners; o++, n += 4) {
                    split_over(&p, &r, owners[o]);
                }
                product_end(&p);
            }
        }
    }
    print_message("%u splits\n", n);
}

/* An owner of two neighbours of equal size may add the second to the first (reload). */
static void neighbours_merge_by_reload(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 1};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        for (uint32_t k = 288; k <= 1024; k += 160) {
            struct product p;
            float y[ROWS * COLS];
            product_start(&p, &r, tw_kernel_table_best(), dtypes[d], k);
            uint32_t half = p.k > 512 ? 512 : 256;
            window(&p, 0, half, y, 0, 1, false);
            if (p.k > half) { /* k is whole blocks */
                window(&p, half, p.k, y, 0, 1, true);
            }
            expect_whole(&p, y, "two halves");
            product_end(&p);
        }
    }
}

/* ---- norms over windows of columns ---- */

static void norm_over(const struct tw_kernel_table *table, struct fixture_random *r, uint32_t cols,
                      uint32_t unit) {
    uint32_t step = unit * SEGMENT, parts = (cols + step - 1) / step;
    float *x = fixture_floats(r, (size_t)ROWS * cols), *weight = fixture_floats(r, cols),
          *whole = fixture_alloc((size_t)ROWS * cols * 4),
          *y = fixture_alloc((size_t)ROWS * cols * 4), *s = fixture_alloc((size_t)ROWS * parts * 4),
          sum[ROWS];
    struct tw_kargs norm = {
        .p = {x, weight, whole}, .i = {cols * 4, cols * 4, cols}, .f = {1e-5f}, .rows = ROWS};
    table->fn[TW_OP_RMS_NORM](&norm);
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t n = cols - i * step < step ? cols - i * step : step;
        struct tw_kargs a = {
            .p = {x + i * step, s + i}, .i = {cols * 4, parts * 4, n}, .rows = ROWS};
        table->fn[TW_OP_SQUARES](&a);
    }
    fold(table, s, parts, sum, 1);
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t n = cols - i * step < step ? cols - i * step : step;
        struct tw_kargs a = {.p = {x + i * step, sum, weight + i * step, y + i * step},
                             .i = {cols * 4, 4, cols * 4, n, cols},
                             .f = {1e-5f},
                             .rows = ROWS};
        table->fn[TW_OP_RMS_SCALE](&a);
    }
    if (memcmp(y, whole, (size_t)ROWS * cols * 4) != 0) {
        fail_msg("%s: a norm of %u columns in runs of %u segments has other bits", table->name,
                 cols, unit);
    }
    free(s);
    free(y);
    free(whole);
    free(weight);
    free(x);
}

static void a_norm_has_the_same_bits_however_columns_are_split(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 2};
    for (int isa = 0; isa < TW_ISA_COUNT; isa++) {
        const struct tw_kernel_table *table = tw_kernel_table((enum tw_isa)isa);
        for (uint32_t cols = 17; table && cols < 15000; cols += 1 + cols / (TEST_ASAN ? 1 : 3)) {
            for (uint32_t unit = 1; unit * SEGMENT < 2 * cols; unit *= 2) {
                norm_over(table, &r, cols, unit);
            }
        }
    }
}

/* ---- the definition ---- */

/* Segments [first, first + size) of the products of one output in a perfect binary tree, missing
 * ones left out; a segment is a chain. */
static float tree(const float *w, const float *x, uint32_t k, uint32_t first, uint32_t size) {
    if (size == 1) {
        float sum = 0.0f;
        for (uint32_t i = first * SEGMENT; i < k && i < (first + 1) * SEGMENT; i++) {
            sum = fmaf(w[(size_t)i * 16], x[i], sum);
        }
        return sum;
    }
    float left = tree(w, x, k, first, size / 2);
    uint32_t right = first + size / 2;
    return right * SEGMENT < k ? left + tree(w, x, k, right, size / 2) : left;
}

static void a_product_is_the_documented_tree_within_its_bound(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 3};
    double worst = 0, worst_chain = 0;
    for (uint32_t k = 1; k < 15000; k += 1 + k / (TEST_ASAN ? 1 : 5)) {
        struct product p;
        uint32_t segments = (k + SEGMENT - 1) / SEGMENT, size = 1, depth = 0;
        product_start(&p, &r, tw_kernel_table_best(), TW_DT_F32, k);
        for (; size < segments; size *= 2) {
            depth++;
        }
        for (uint32_t i = 0; i < ROWS * COLS; i++) {
            const float *x = (const float *)(const void *)p.x + (size_t)(i / COLS) * k,
                        *w = (const float *)(const void *)p.w + (size_t)(i % COLS / 16) * k * 16 +
                             i % 16;
            double sum = 0, sizes = 0;
            float chain = 0.0f;
            for (uint32_t j = 0; j < k; j++) {
                sum += (double)w[(size_t)j * 16] * (double)x[j];
                sizes += fabs((double)w[(size_t)j * 16] * (double)x[j]);
                chain = fmaf(w[(size_t)j * 16], x[j], chain);
            }
            assert_true(p.whole[i] == tree(w, x, k, 0, size));
            assert_true(k > SEGMENT || p.whole[i] == chain);
            double d = (k < SEGMENT ? k : SEGMENT) + depth, error = fabs((double)p.whole[i] - sum);
            assert_true(error <= d * 0x1p-24 / (1 - d * 0x1p-24) * sizes);
            worst = fmax(worst, error / sizes);
            worst_chain = fmax(worst_chain, fabs((double)chain - sum) / sizes);
        }
        product_end(&p);
    }
    print_message("largest error over the sum of magnitudes: %.3g, of chains %.3g\n", worst,
                  worst_chain);
    assert_true(worst < worst_chain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_has_the_same_bits_however_k_is_split),
        cmocka_unit_test(neighbours_merge_by_reload),
        cmocka_unit_test(a_norm_has_the_same_bits_however_columns_are_split),
        cmocka_unit_test(a_product_is_the_documented_tree_within_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
