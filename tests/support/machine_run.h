/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a hand-made program for a number of steps and keeps the contents of Output and State after
 * each, for comparison: strictly, or by replay on real threads.
 */
#ifndef TW_TESTS_SUPPORT_MACHINE_RUN_H
#define TW_TESTS_SUPPORT_MACHINE_RUN_H

#include "tests/support/hand_machine.h"
#include "tests/support/plan_describe.h"

#include <pthread.h>
#include <sched.h>

enum { MR_MAX_THREADS = 16 };

/* Sets the inputs of step n. */
typedef void mr_input(void *ctx, uint32_t step);

struct mr_case {
    struct pb *m;
    mr_input *input; /* may be NULL */
    void *ctx;
    uint32_t steps;
};

struct mr_result {
    int rc;
    struct tw_fault fault;
    uint8_t *bytes; /* of each step after the other; the caller frees */
    size_t size;
};

static inline size_t mr_kept_bytes(const struct pb *m) {
    size_t n = 0;
    for (uint32_t t = 0; t < m->p.n_tensors; t++) {
        bool kept = m->tensors[t].role == TW_ROLE_OUTPUT || m->tensors[t].role == TW_ROLE_STATE;
        n += kept ? (size_t)m->tensors[t].bytes * m->tensors[t].bind_count : 0;
    }
    return n;
}

static inline void mr_keep(const struct mr_case *c, struct mr_result *r, uint32_t step) {
    uint8_t *to = r->bytes + mr_kept_bytes(c->m) * step;
    for (uint32_t t = 0; t < c->m->p.n_tensors; t++) {
        const struct tw_tensor *x = &c->m->tensors[t];
        bool kept = x->role == TW_ROLE_OUTPUT || x->role == TW_ROLE_STATE;
        for (uint32_t i = 0; kept && i < x->bind_count; i++, to += x->bytes) {
            memcpy(to, mb_data(c->m, t, i), (size_t)x->bytes);
        }
    }
}

static inline struct mr_result mr_begin(const struct mr_case *c) {
    struct mr_result r;
    memset(&r, 0, sizeof r);
    r.size = mr_kept_bytes(c->m) * c->steps;
    r.bytes = calloc(1, r.size);
    pb_require(r.bytes != NULL, "memory");
    mb_rewind(c->m);
    return r;
}

static inline struct mr_result mr_strict(const struct mr_case *c, enum tw_scheduler scheduler,
                                         uint64_t seed) {
    struct mr_result r = mr_begin(c);
    void *memory;
    struct tw_strict *s = NULL;
    r.rc = mb_strict(c->m, &memory, &s, &r.fault);
    for (uint32_t step = 0; step < c->steps && r.rc == 0; step++) {
        if (c->input) {
            c->input(c->ctx, step);
        }
        r.rc = tw_strict_step(s, scheduler, seed + step, &r.fault);
        mr_keep(c, &r, step);
    }
    free(memory);
    return r;
}

struct mr_thread {
    struct tw_plan *plan;
    uint32_t index;
};

static inline void mr_relax(void *ctx) {
    (void)ctx;
    sched_yield();
}

static inline void *mr_thread_main(void *arg) {
    struct mr_thread *t = arg;
    tw_plan_run(t->plan, t->index, mr_relax, NULL);
    return NULL;
}

static inline void mr_run_threads(struct tw_plan *plan, uint32_t n) {
    pthread_t thread[MR_MAX_THREADS];
    struct mr_thread arg[MR_MAX_THREADS];
    pb_require(n > 0 && n <= MR_MAX_THREADS, "number of threads");
    for (uint32_t t = 0; t < n; t++) {
        arg[t] = (struct mr_thread){plan, t};
        pb_require(t == 0 || pthread_create(&thread[t], NULL, mr_thread_main, &arg[t]) == 0,
                   "pthread_create");
    }
    mr_thread_main(&arg[0]);
    for (uint32_t t = 1; t < n; t++) {
        pthread_join(thread[t], NULL);
    }
}

static inline struct mr_result mr_fast(const struct mr_case *c, uint32_t threads,
                                       struct tw_plan_stats *stats) {
    struct mr_result r = mr_begin(c);
    void *memory;
    struct tw_plan *plan = NULL;
    r.rc = mb_plan(c->m, threads, &memory, &plan, &r.fault);
    if (r.rc == 0 && stats) {
        *stats = plan_stats(plan);
    }
    for (uint32_t step = 0; step < c->steps && r.rc == 0; step++) {
        if (c->input) {
            c->input(c->ctx, step);
        }
        r.rc = tw_plan_begin(plan, &r.fault);
        if (r.rc == 0) {
            mr_run_threads(plan, threads);
        }
        mr_keep(c, &r, step);
    }
    free(memory);
    return r;
}

#endif
