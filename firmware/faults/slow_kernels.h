/* SPDX-License-Identifier: Apache-2.0
 *
 * Slow kernels, for the fault plans "crawl" (every matmul is late) and "site" (one site hangs in
 * the middle of a step).
 */
#ifndef TW_FIRMWARE_FAULTS_SLOW_KERNELS_H
#define TW_FIRMWARE_FAULTS_SLOW_KERNELS_H

#include "firmware/kernels/kernels.h"

struct tw_slow_kernels {
    uint32_t hang_at; /* the matmul call with this number hangs until it is released; 0: none */
    uint32_t late_ms; /* delay of each matmul */
};
/* Returns the kernels of `inner` with a slow matmul. The table is static: one device in a process
 * at a time may use it. */
const struct tw_kernel_table *tw_slow_kernels_table(const struct tw_kernel_table *inner,
                                                    const struct tw_slow_kernels *how);
/* Releases a call that hangs; from then on the kernels are no longer slow. Legal from any
 * thread. */
void tw_slow_kernels_release(void);

#endif
