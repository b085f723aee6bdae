/* SPDX-License-Identifier: Apache-2.0
 *
 * A copy of a kernel table with matmul replaced. Kernels have no context, so the state is global to
 * the process.
 */
#include "firmware/faults/slow_kernels.h"

#include "tilewright/opcode.h"

#include <stdatomic.h>
#include <time.h>

static struct tw_kernel_table table;
static tw_kernel *matmul;
static _Atomic uint32_t calls_left, late_ms;
static _Atomic bool released;

static void sleep_ms(uint32_t ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static void slow_matmul(const struct tw_kargs *args) {
    if (atomic_load_explicit(&calls_left, memory_order_relaxed) &&
        atomic_fetch_sub(&calls_left, 1) == 1) {
        while (!atomic_load(&released)) {
            sleep_ms(1);
        }
    }
    uint32_t ms = atomic_load_explicit(&late_ms, memory_order_relaxed);
    if (ms) {
        sleep_ms(ms);
    }
    matmul(args);
}

const struct tw_kernel_table *tw_slow_kernels_table(const struct tw_kernel_table *inner,
                                                    const struct tw_slow_kernels *how) {
    table = *inner;
    matmul = table.fn[TW_OP_MATMUL];
    table.fn[TW_OP_MATMUL] = slow_matmul;
    atomic_store(&released, false);
    atomic_store(&calls_left, how->hang_at);
    atomic_store(&late_ms, how->late_ms);
    return &table;
}

void tw_slow_kernels_release(void) {
    atomic_store(&released, true);
    atomic_store(&calls_left, 0);
    atomic_store(&late_ms, 0);
}
