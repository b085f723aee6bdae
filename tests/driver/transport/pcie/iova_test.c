/* SPDX-License-Identifier: Apache-2.0
 *
 * DMA addresses are inside what the IOMMU translates and the device can form, never overlap, and
 * can be reused when freed.
 */
#include "driver/transport/pcie/iova.h"
#include "tests/support/test.h"

static struct tw_iova a;
static tw_error err;

static int finish(void **state) {
    (void)state;
    tw_iova_finish(&a);
    return 0;
}

/* What Linux reports on a PC: all but the window of message-signalled interrupts. */
static const struct tw_iova_range pc[] = {{0, 0xfedfffff}, {0xfef00000, (UINT64_C(1) << 48) - 1}};

static void a_page_serves_the_iommu_and_the_host(void **state) {
    (void)state;
    assert_int_equal(tw_iova_page(0x1000 | 0x200000 | 0x40000000, 4096), 4096);
    /* a host page is never mapped in part */
    assert_int_equal(tw_iova_page(0x1000 | 0x200000, 16384), 16384);
    assert_int_equal(tw_iova_page(0x10000 | 0x20000000, 4096), 65536);
    assert_int_equal(tw_iova_page(0, 16384), 16384);
    assert_int_equal(tw_iova_page(UINT64_C(1) << 63, 4096), UINT64_C(1) << 63);
}

static void addresses_are_pages_of_any_size(void **state) {
    (void)state;
    static const uint64_t sizes[] = {4096, 16384, 65536, 1 << 21};
    for (size_t s = 0; s < 4; s++) {
        uint64_t page = sizes[s], x, y;
        assert_int_equal(tw_iova_init(&a, pc, 2, 48, page, &err), 0);
        assert_int_equal(tw_iova_alloc(&a, 1, &x, &err), 0);
        assert_int_equal(tw_iova_alloc(&a, page + 1, &y, &err), 0);
        assert_int_equal(x, page); /* not 0 */
        assert_int_equal(y, 2 * page);
        tw_iova_free(&a, x, 1);
        tw_iova_free(&a, y, page + 1);
        assert_int_equal(a.n, 2);
        assert_int_equal(a.free[0].first, page);
        assert_int_equal(a.live, 0);
        tw_iova_finish(&a);
    }
}

static void the_devices_dma_bits_limit_the_ranges(void **state) {
    (void)state;
    uint64_t x;
    assert_int_equal(tw_iova_init(&a, pc, 2, 32, 4096, &err), 0);
    assert_int_equal(a.n, 2);
    assert_int_equal(a.free[1].last, 0xffffffff);
    tw_iova_finish(&a);
    assert_int_equal(tw_iova_init(&a, pc, 2, 30, 4096, &err), 0);
    assert_int_equal(a.n, 1);
    assert_int_equal(tw_iova_alloc(&a, (1 << 30) - 4096, &x, &err), 0);
    assert_int_equal(tw_iova_alloc(&a, 1, &x, &err), TW_E_NOMEM);
    assert_non_null(strstr(err.message, "has 0"));
}

static void ranges_that_the_device_cannot_address_are_refused_with_both_limits(void **state) {
    (void)state;
    static const struct tw_iova_range high[] = {{UINT64_C(1) << 40, (UINT64_C(1) << 41) - 1}};
    assert_int_equal(tw_iova_init(&a, high, 1, 40, 4096, &err), TW_E_NOMEM);
    assert_non_null(strstr(err.message, "2^40"));
    assert_non_null(strstr(err.message, "0x10000000000"));
    assert_int_equal(tw_iova_init(&a, NULL, 0, 48, 4096, &err), TW_E_NOMEM);
}

static void parts_of_pages_at_the_edges_are_left_out(void **state) {
    (void)state;
    static const struct tw_iova_range odd[] = {
        {0x11000, 0x2efff}, {0x3f000, 0x4ffff}, {0x50000, 0x50fff}};
    uint64_t x;
    assert_int_equal(tw_iova_init(&a, odd, 3, 64, 0x10000, &err), 0);
    assert_int_equal(a.n, 1); /* of the first range no whole page is left */
    assert_int_equal(tw_iova_alloc(&a, 0x10000, &x, &err), 0);
    assert_int_equal(x, 0x40000);
    assert_int_equal(tw_iova_alloc(&a, 1, &x, &err), TW_E_NOMEM);
}

static void the_whole_address_space_is_a_range(void **state) {
    (void)state;
    static const struct tw_iova_range all[] = {{0, UINT64_MAX}};
    uint64_t x;
    assert_int_equal(tw_iova_init(&a, all, 1, 64, 4096, &err), 0);
    assert_int_equal(a.free[0].last, UINT64_MAX);
    assert_int_equal(tw_iova_alloc(&a, UINT64_MAX, &x, &err), TW_E_NOMEM);
    assert_int_equal(tw_iova_alloc(&a, UINT64_MAX - 8191, &x, &err), 0);
    assert_int_equal(x, 4096);
    assert_int_equal(a.n, 1); /* one page is left */
    tw_iova_free(&a, x, UINT64_MAX - 8191);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.free[0].first, 4096);
}

static void ranges_in_disorder_are_put_in_order(void **state) {
    (void)state;
    static const struct tw_iova_range mess[] = {{0x50000, 0x5ffff},
                                                {0x10000, 0x1ffff},
                                                {0x20000, 0x2ffff},
                                                {0x9000, 0x8000},
                                                {0x18000, 0x3ffff}};
    assert_int_equal(tw_iova_init(&a, mess, 5, 64, 4096, &err), 0);
    assert_int_equal(a.n, 2);
    assert_int_equal(a.free[0].first, 0x10000);
    assert_int_equal(a.free[0].last, 0x3ffff);
    assert_int_equal(a.free[1].first, 0x50000);
}

/* Against a plain map of pages. */
static void random_use_never_overlaps_and_leaks_nothing(void **state) {
    (void)state;
    enum { PAGES = 256, PAGE = 16384, LIVE = 40 };
    static const struct tw_iova_range holes[] = {{PAGE, 100 * PAGE - 1},
                                                 {120 * PAGE, PAGES * PAGE - 1}};
    static bool used[PAGES];
    struct {
        uint64_t at, bytes;
    } live[LIVE] = {{0}};
    uint64_t seed = 12345;
    assert_int_equal(tw_iova_init(&a, holes, 2, 40, PAGE, &err), 0);
    for (int turn = 0; turn < 20000; turn++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        size_t i = (seed >> 33) % LIVE;
        bool free_it = live[i].bytes != 0;
        uint64_t bytes = free_it ? live[i].bytes : 1 + (seed >> 40) % (12 * PAGE);
        if (!free_it && tw_iova_alloc(&a, bytes, &live[i].at, &err)) {
            continue;
        }
        for (uint64_t p = live[i].at / PAGE; p <= (live[i].at + bytes - 1) / PAGE; p++) {
            assert_true(p >= 1 && p < PAGES && (p < 100 || p >= 120));
            assert_true(used[p] == free_it);
            used[p] = !free_it;
        }
        if (free_it) {
            tw_iova_free(&a, live[i].at, bytes);
        }
        live[i].bytes = free_it ? 0 : bytes;
    }
    for (size_t i = 0; i < LIVE; i++) {
        if (live[i].bytes) {
            tw_iova_free(&a, live[i].at, live[i].bytes);
        }
    }
    assert_int_equal(a.n, 2);
    assert_int_equal(a.free[0].last, 100 * PAGE - 1);
    assert_int_equal(a.free[1].first, 120 * PAGE);
    assert_int_equal(a.live, 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, finish)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_page_serves_the_iommu_and_the_host),
        TEST(addresses_are_pages_of_any_size),
        TEST(the_devices_dma_bits_limit_the_ranges),
        TEST(ranges_that_the_device_cannot_address_are_refused_with_both_limits),
        TEST(parts_of_pages_at_the_edges_are_left_out),
        TEST(the_whole_address_space_is_a_range),
        TEST(ranges_in_disorder_are_put_in_order),
        TEST(random_use_never_overlaps_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
