/* SPDX-License-Identifier: Apache-2.0
 *
 * Fast execution of a program of order_device.h: planned and replayed on real threads, keeping what
 * each step leaves in Output and State, as order_device_run() does for the strict machine.
 */
#ifndef TW_TESTS_SUPPORT_ORDER_FAST_H
#define TW_TESTS_SUPPORT_ORDER_FAST_H

#include "tests/support/order_device.h"

enum { ORDER_FAST_MAX_THREADS = 4 };

/* Runs n steps from the start on that many threads with these kernels; kept_bytes for each
 * step go to `kept`. The program must have been accepted: another one may never end. Returns 0 or
 * the error of tw_plan_build() or, for inputs that the machine refuses, tw_plan_begin(), with
 * `fault` filled. */
int order_fast_run(struct order_device *d, const struct order_inputs *in, uint32_t n,
                   uint32_t threads, const struct tw_kernel_table *kernels, uint8_t *kept,
                   struct tw_fault *fault);

#endif
