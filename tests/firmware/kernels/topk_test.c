/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of the largest: the formula against a sort, and that neither the cut of a row into shards
 * nor the order of merging shows in the list.
 */
#include "tests/support/kernel_fixture.h"
#include "tests/support/test.h"
#include "tilewright/numerics.h"

#include <math.h>

enum { MAX_COLS = 3000, MAX_K = 64, MAX_OWNERS = 64 };

/* Values of which some are equal, infinite or NaN, more of them where `few`. */
static void some_row(struct fixture_random *r, float *x, uint32_t cols, bool few) {
    static const float some[] = {0.0f, -0.0f, 3.0f, -INFINITY, INFINITY, NAN};
    for (uint32_t c = 0; c < cols; c++) {
        x[c] = fixture_unit(r) * 8;
        if (few ? fixture_below(r, 4) > 0 : fixture_below(r, 50) == 0) {
            x[c] = some[fixture_below(r, sizeof some / sizeof some[0])];
        }
    }
}

/* ---- against a sort ---- */

static int by_value_then_id(const void *a, const void *b) {
    const struct tw_top *x = a, *y = b;
    if (x->value != y->value) {
        return x->value > y->value ? -1 : 1;
    }
    return x->id < y->id ? -1 : 1;
}

static void sorted_list(const float *x, uint32_t cols, uint32_t base, uint32_t k,
                        struct tw_top *list) {
    static struct tw_top all[MAX_COLS];
    uint32_t n = 0;
    for (uint32_t c = 0; c < cols; c++) {
        if (!isnan(x[c])) {
            all[n++] = (struct tw_top){x[c], base + c};
        }
    }
    qsort(all, n, sizeof all[0], by_value_then_id);
    for (uint32_t i = 0; i < k; i++) {
        list[i] = i < n ? all[i] : tw_top_missing();
    }
}

static void topk_of(const struct tw_kernel_table *t, float *x, uint32_t cols, uint32_t base,
                    uint32_t k, struct tw_top *list) {
    struct tw_kargs a = {.p = {x, list}, .i = {cols * 4, k * 8, cols, k}, .block = base, .rows = 1};
    t->fn[TW_OP_TOPK](&a);
}

static void merge(const struct tw_kernel_table *t, struct tw_top *x, struct tw_top *y, uint32_t k,
                  struct tw_top *z) {
    struct tw_kargs a = {.p = {x, y, z}, .i = {k * 8, k * 8, k * 8, k}, .rows = 1};
    t->fn[TW_OP_TOPK_MERGE](&a);
}

static void every_table_lists_what_a_sort_lists(void **state) {
    static float x[MAX_COLS];
    struct fixture_random r = {31};
    (void)state;
    for (uint32_t n = 0; n < 200; n++) {
        uint32_t cols = n % 4 ? 1 + fixture_below(&r, MAX_COLS - 1) : 1 + n / 4,
                 k = n % 3 ? 1 + fixture_below(&r, MAX_K) : 1;
        struct tw_top expected[MAX_K], list[MAX_K];
        some_row(&r, x, cols, n % 5 == 0);
        sorted_list(x, cols, 77, k, expected);
        for (int isa = 0; isa < TW_ISA_COUNT; isa++) {
            const struct tw_kernel_table *t = tw_kernel_table((enum tw_isa)isa);
            if (t) {
                topk_of(t, x, cols, 77, k, list);
                assert_memory_equal(list, expected, k * sizeof list[0]);
            }
        }
        uint32_t best = tw_argmax(x, cols);
        assert_int_equal(expected[0].id, best < cols ? 77 + best : TW_NONE);
    }
}

/* ---- shards ---- */

/* Cuts [0, cols) into 1 to 64 shards, some of them empty, and returns how many. */
static uint32_t cut(struct fixture_random *r, uint32_t cols, uint32_t at[MAX_OWNERS + 1]) {
    uint32_t n = 1 + fixture_below(r, MAX_OWNERS);
    at[0] = 0;
    at[n] = cols;
    for (uint32_t i = 1; i < n; i++) {
        at[i] = fixture_below(r, cols + 1);
    }
    for (uint32_t i = 1; i < n; i++) { /* insertion sort */
        uint32_t v = at[i], k = i;
        for (; k > 1 && at[k - 1] > v; k--) {
            at[k] = at[k - 1];
        }
        at[k] = v;
    }
    return n;
}

/* Merges two lists chosen at random, in place or not, until one is left. */
static void merge_all(struct fixture_random *r, struct tw_top lists[][MAX_K], uint32_t n,
                      uint32_t k) {
    const struct tw_kernel_table *t = tw_kernel_table_best();
    struct tw_top merged[MAX_K];
    for (; n > 1; n--) {
        uint32_t a = fixture_below(r, n), b = fixture_below(r, n - 1);
        b += b >= a;
        uint32_t in_place = fixture_below(r, 3);
        struct tw_top *to = in_place == 0 ? lists[a] : in_place == 1 ? lists[b] : merged;
        merge(t, lists[a], lists[b], k, to);
        uint32_t kept = in_place == 1 ? b : a, gone = in_place == 1 ? a : b;
        memmove(lists[kept], to, k * sizeof *to);
        memmove(lists[gone], lists[n - 1], k * sizeof *to);
    }
}

static void shards_and_the_order_of_merging_do_not_show(void **state) {
    static float x[MAX_COLS];
    static struct tw_top lists[MAX_OWNERS][MAX_K];
    struct fixture_random r = {32};
    (void)state;
    for (uint32_t n = 0; n < 400; n++) {
        uint32_t cols = 1 + fixture_below(&r, n % 3 ? MAX_COLS - 1 : 90),
                 k = n % 3 ? 1 + fixture_below(&r, MAX_K) : 1, at[MAX_OWNERS + 1];
        struct tw_top whole[MAX_K];
        some_row(&r, x, cols, n % 4 == 0);
        topk_of(tw_kernel_table_best(), x, cols, 1000, k, whole);
        uint32_t owners = cut(&r, cols, at);
        for (uint32_t o = 0; o < owners; o++) {
            topk_of(tw_kernel_table_best(), x + at[o], at[o + 1] - at[o], 1000 + at[o], k,
                    lists[o]);
        }
        merge_all(&r, lists, owners, k);
        if (memcmp(whole, lists[0], k * sizeof whole[0]) != 0) {
            fail_msg("%u columns, k %u, %u owners", cols, k, owners);
        }
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_lists_what_a_sort_lists),
        cmocka_unit_test(shards_and_the_order_of_merging_do_not_show),
    };
    return cmocka_run_group_tests_name("topk", tests, NULL, NULL);
}
