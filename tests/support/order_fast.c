/* SPDX-License-Identifier: Apache-2.0
 *
 * Fast execution of a program of order_device.h (order_fast.h).
 */
#include "tests/support/order_fast.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

struct part {
    struct tw_plan *plan;
    uint32_t thread;
};

static void relax(void *ctx) {
    (void)ctx;
    sched_yield();
}

static void *run_part(void *arg) {
    const struct part *part = arg;
    tw_plan_run(part->plan, part->thread, relax, NULL);
    return NULL;
}

static void run_parts(struct tw_plan *plan, uint32_t threads) {
    pthread_t thread[ORDER_FAST_MAX_THREADS];
    struct part part[ORDER_FAST_MAX_THREADS];
    for (uint32_t t = 0; t < threads; t++) {
        part[t] = (struct part){plan, t};
        int rc = t ? pthread_create(&thread[t], NULL, run_part, &part[t]) : 0;
        assert(rc == 0);
        (void)rc;
    }
    run_part(&part[0]);
    for (uint32_t t = 1; t < threads; t++) {
        pthread_join(thread[t], NULL);
    }
}

int order_fast_run(struct order_device *d, const struct order_inputs *in, uint32_t n,
                   uint32_t threads, const struct tw_kernel_table *kernels, uint8_t *kept,
                   struct tw_fault *fault) {
    struct tw_machine_config config = order_device_config(d);
    struct tw_plan *plan = NULL;
    assert(threads > 0 && threads <= ORDER_FAST_MAX_THREADS);
    config.kernels = kernels;
    order_device_rewind(d);
    struct tw_arena arena = {NULL, 0, 0};
    int rc = tw_plan_build(&config, threads, &arena, &plan, fault);
    void *memory = rc == TW_E_NOMEM ? malloc(arena.used) : NULL;
    if (memory) {
        arena = (struct tw_arena){memory, arena.used, 0};
        rc = tw_plan_build(&config, threads, &arena, &plan, fault);
    }
    for (uint32_t step = 0; step < n && rc == 0; step++) {
        order_device_set(d, &in[step]);
        rc = tw_plan_begin(plan, fault);
        if (rc == 0) {
            run_parts(plan, threads);
            order_device_keep(d, kept + step * d->kept_bytes);
        }
    }
    free(memory);
    return rc;
}
