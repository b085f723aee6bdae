/* SPDX-License-Identifier: Apache-2.0
 *
 * The clocks. All are monotonic except tw_clock_real_ns(): they count from an unspecified moment,
 * never go back, and continue while the process is stopped. None fails; all are legal from any
 * thread. Where the kernel has a vDSO they make no system calls, so the token path may use them.
 */
#ifndef TW_LOADER_BASE_CLOCK_H
#define TW_LOADER_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Return the current time in nanoseconds, milliseconds (used for all deadlines) and seconds (for
 * reports). */
uint64_t tw_clock_ns(void);
uint64_t tw_clock_ms(void);
double tw_clock_s(void);

/* Returns nanoseconds, accurate to a few milliseconds, and cheap whatever the kernel's clock source
 * is. Comparable between processes, not with tw_clock_ns(). */
uint64_t tw_clock_coarse_ns(void);

/* Returns nanoseconds since 1970. Jumps when the clock is set. */
uint64_t tw_clock_real_ns(void);

/* Returns the moment `ms` milliseconds from now, for a timed wait on a condition of
 * tw_clock_init_condition(). */
struct timespec tw_clock_after_ms(uint32_t ms);
/* Initialises a condition whose timed waits use the monotonic clock. The caller destroys it with
 * pthread_cond_destroy(). */
void tw_clock_init_condition(pthread_cond_t *condition);

#endif
