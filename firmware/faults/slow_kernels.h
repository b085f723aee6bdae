/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that take their time, or of which one call never ends: a machine that crawls, a site that
 * hangs in the middle of a step; for the fault plans "crawl" and "site".
 */
#ifndef TW_FIRMWARE_FAULTS_SLOW_KERNELS_H
#define TW_FIRMWARE_FAULTS_SLOW_KERNELS_H

#include "firmware/kernels/kernels.h"

struct tw_slow_kernels {
    uint32_t hang_at; /* this matmul from now on hangs until it is released; 0: none */
    uint32_t late_ms; /* each matmul takes so much longer */
};
/* The kernels of `inner`, changed. One device in a process at a time. */
const struct tw_kernel_table *tw_slow_kernels_table(const struct tw_kernel_table *inner,
                                                    const struct tw_slow_kernels *how);
/* Lets it go on; from then on the kernels are sound. */
void tw_slow_kernels_release(void);

#endif
