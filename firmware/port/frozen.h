/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that take their time, or of which one call never ends: a machine that crawls, a site that hangs in the middle
 * of a step; for the fault plans "crawl" and "site".
 */
#ifndef TW_FIRMWARE_PORT_FROZEN_H
#define TW_FIRMWARE_PORT_FROZEN_H

#include "firmware/kernels/kernels.h"

struct tw_frozen {
    uint32_t hang_at; /* this matmul from now on hangs until it is released; 0: none */
    uint32_t late_ms; /* each matmul takes so much longer */
};
/* The kernels of `inner`, changed. One device in a process at a time. */
const struct tw_kernel_table *tw_frozen_kernels(const struct tw_kernel_table *inner, const struct tw_frozen *how);
/* Lets it go on; from then on the kernels are sound. */
void tw_frozen_release(void);

#endif
