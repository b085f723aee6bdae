/* SPDX-License-Identifier: Apache-2.0
 *
 * The clocks. All are monotonic but tw_clock_real_ns(): they count from an unspecified moment, never
 * go back, and go on while the process is stopped. None fails; all are legal on any thread. Where the
 * kernel has a vDSO they are no system calls, so the token path may use them.
 */
#ifndef TW_LOADER_BASE_CLOCK_H
#define TW_LOADER_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Now, in nanoseconds, milliseconds (the clock of all deadlines) and seconds (for reports). */
uint64_t tw_clock_ns(void);
uint64_t tw_clock_ms(void);
double tw_clock_s(void);

/* As tw_clock_ns(), exact to a few milliseconds, and cheap whatever the kernel's clock source is.
 * Comparable between processes, not with tw_clock_ns(). */
uint64_t tw_clock_coarse_ns(void);

/* Nanoseconds since 1970. Jumps when somebody sets the clock. */
uint64_t tw_clock_real_ns(void);

/* The moment `ms` from now, for a timed wait on a condition of tw_clock_init_condition(). */
struct timespec tw_clock_after_ms(uint32_t ms);
/* Initialises a condition whose timed waits go by the monotonic clock; pthread_cond_destroy() ends
 * it. */
void tw_clock_init_condition(pthread_cond_t *condition);

#endif
