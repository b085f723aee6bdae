/* SPDX-License-Identifier: Apache-2.0
 *
 * The clocks agree with each other and with the kernel's, and a timed wait on a condition uses the
 * monotonic one.
 */
#include "loader/base/clock.h"
#include "tests/support/test.h"

#include <errno.h>
#include <unistd.h>

#define MS 1000000u /* ns */

static void units_of_the_monotonic_clock_agree(void **state) {
    (void)state;
    uint64_t ns = tw_clock_ns(), ms = tw_clock_ms();
    double s = tw_clock_s();
    uint64_t end = tw_clock_ns();
    assert_in_range(ms, ns / MS, end / MS);
    assert_true(s >= 1e-9 * (double)ns - 1e-6 && s <= 1e-9 * (double)end + 1e-6);
}

static void the_monotonic_clock_advances_as_time_does(void **state) {
    (void)state;
    uint64_t ns = tw_clock_ns(), ms = tw_clock_ms();
    usleep(30000);
    assert_true(tw_clock_ns() - ns >= 30 * MS);
    assert_true(tw_clock_ms() - ms >= 29);
}

static void the_coarse_clock_is_the_kernels(void **state) {
    (void)state;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &a);
    uint64_t ns = tw_clock_coarse_ns();
    clock_gettime(CLOCK_MONOTONIC_COARSE, &b);
    assert_in_range(ns, (uint64_t)a.tv_sec * 1000 * MS + (uint64_t)a.tv_nsec,
                    (uint64_t)b.tv_sec * 1000 * MS + (uint64_t)b.tv_nsec);
}

static void the_real_clock_counts_from_1970(void **state) {
    (void)state;
    time_t before = time(NULL) - 1;
    uint64_t s = tw_clock_real_ns() / (1000 * (uint64_t)MS);
    assert_in_range(s, (uint64_t)before, (uint64_t)time(NULL) + 1);
}

/* Also if the nanoseconds carry into the next second, which happens within 2 s of 10 ms steps. */
static void a_moment_from_now_is_a_valid_time(void **state) {
    (void)state;
    for (uint32_t ms = 0; ms < 2000; ms += 10) {
        uint64_t begin = tw_clock_ns();
        struct timespec t = tw_clock_after_ms(ms);
        uint64_t end = tw_clock_ns();
        assert_in_range(t.tv_nsec, 0, 999999999);
        assert_in_range((uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec,
                        begin + (uint64_t)ms * MS, end + (uint64_t)ms * MS);
    }
}

static void a_timed_wait_ends_at_that_moment(void **state) {
    (void)state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition;
    tw_clock_init_condition(&condition);
    uint64_t begin = tw_clock_ms();
    const struct timespec end = tw_clock_after_ms(50);
    int code = 0;
    pthread_mutex_lock(&lock);
    while (code == 0) { /* with another clock it would end at once, or in decades */
        code = pthread_cond_timedwait(&condition, &lock, &end);
    }
    pthread_mutex_unlock(&lock);
    assert_int_equal(code, ETIMEDOUT);
    assert_in_range(tw_clock_ms() - begin, 49, 30000);
    pthread_cond_destroy(&condition);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_of_the_monotonic_clock_agree),
        cmocka_unit_test(the_monotonic_clock_advances_as_time_does),
        cmocka_unit_test(the_coarse_clock_is_the_kernels),
        cmocka_unit_test(the_real_clock_counts_from_1970),
        cmocka_unit_test(a_moment_from_now_is_a_valid_time),
        cmocka_unit_test(a_timed_wait_ends_at_that_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
