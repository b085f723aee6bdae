/* SPDX-License-Identifier: Apache-2.0
 *
 * The clocks: clock_gettime() in the units that callers use.
 */
#include "loader/base/clock.h"

#define NS_PER_S 1000000000
#define NS_PER_MS 1000000

static struct timespec read_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t;
}

static uint64_t to_ns(struct timespec t) {
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t tw_clock_ns(void) {
    return to_ns(read_clock(CLOCK_MONOTONIC));
}

uint64_t tw_clock_ms(void) {
    return tw_clock_ns() / NS_PER_MS;
}

double tw_clock_s(void) {
    struct timespec t = read_clock(CLOCK_MONOTONIC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

uint64_t tw_clock_coarse_ns(void) {
    return to_ns(read_clock(CLOCK_MONOTONIC_COARSE));
}

uint64_t tw_clock_real_ns(void) {
    return to_ns(read_clock(CLOCK_REALTIME));
}

struct timespec tw_clock_after_ms(uint32_t ms) {
    struct timespec t = read_clock(CLOCK_MONOTONIC);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * NS_PER_MS;
    if (t.tv_nsec >= NS_PER_S) {
        t.tv_sec++;
        t.tv_nsec -= NS_PER_S;
    }
    return t;
}

void tw_clock_init_condition(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
