/* SPDX-License-Identifier: Apache-2.0
 *
 * Host threads of the emulator. A step is published by storing its number and its member count in
 * one word, `step`; a member compares it with the word it saw last, and touches the rest of the
 * record only if it takes part, since the next step is not published before all members are done.
 * Sleeping members are counted under the mutex before they look at `step` for the last time, so a
 * publisher that reads a count of 0 needs no wake-up.
 */
#include "firmware/emulator/workers.h"

#include "loader/base/compiler.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* about 50-100 us of pauses: longer than the host's part of a token */
#define SPINS_BEFORE_SLEEP 4000u
#define SPINS_BEFORE_YIELD 2000u

struct member {
    struct tw_workers *workers;
    pthread_t thread;
    uint32_t index;
};

struct tw_workers {
    uint32_t n_max, n_started; /* members, the caller included */
    /* Each word that threads poll is in a cache line of its own. */
    _Alignas(64) _Atomic uint64_t step; /* number << 16 | members of the published step */
    _Alignas(64) _Atomic uint32_t done; /* members that have finished it */
    _Alignas(64) _Atomic uint32_t sleepers;
    _Atomic bool quit;
    struct tw_plan *plan; /* of the published step */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct member member[];
};

/* Yields the processor: on a busy machine the member that this one waits for may need it. */
static void relax(void *ctx) {
    (void)ctx;
    sched_yield();
}

static void sleep_until(struct tw_workers *w, uint64_t seen) {
    pthread_mutex_lock(&w->mutex);
    atomic_fetch_add(&w->sleepers, 1);
    while (atomic_load(&w->step) == seen && !atomic_load(&w->quit)) {
        pthread_cond_wait(&w->wake, &w->mutex);
    }
    atomic_fetch_sub(&w->sleepers, 1);
    pthread_mutex_unlock(&w->mutex);
}

/* Waits for a step after `seen` and returns its word; returns `seen` when the team ends. */
static uint64_t next_step(struct tw_workers *w, uint64_t seen) {
    for (uint32_t spin = 0; spin < SPINS_BEFORE_SLEEP; spin++) {
        uint64_t now = atomic_load_explicit(&w->step, memory_order_acquire);
        if (now != seen || atomic_load_explicit(&w->quit, memory_order_relaxed)) {
            return now;
        }
        TW_SPIN_PAUSE();
    }
    sleep_until(w, seen);
    return atomic_load(&w->step);
}

static void *work(void *arg) {
    struct member *m = arg;
    struct tw_workers *w = m->workers;
    uint64_t seen = 0;
    for (;;) {
        uint64_t now = next_step(w, seen);
        if (atomic_load(&w->quit)) {
            return NULL;
        }
        if (now == seen) {
            continue;
        }
        seen = now;
        if (m->index < (now & 0xFFFFu)) {
            tw_plan_run(w->plan, m->index, relax, NULL);
            atomic_fetch_add_explicit(&w->done, 1, memory_order_release);
        }
    }
}

struct tw_workers *tw_workers_create(uint32_t n_max) {
    size_t bytes = sizeof(struct tw_workers) + n_max * sizeof(struct member);
    struct tw_workers *w = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!w) {
        return NULL;
    }
    memset(w, 0, bytes);
    w->n_max = n_max;
    w->n_started = 1;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->wake, NULL);
    return w;
}

uint32_t tw_workers_prepare(struct tw_workers *w, uint32_t n) {
    n = n < w->n_max ? n : w->n_max;
    while (w->n_started < n) {
        struct member *m = &w->member[w->n_started];
        m->workers = w;
        m->index = w->n_started;
        if (pthread_create(&m->thread, NULL, work, m)) {
            break;
        }
        w->n_started++;
    }
    return n < w->n_started ? n : w->n_started;
}

void tw_workers_run(struct tw_workers *w, struct tw_plan *plan, uint32_t n) {
    if (n <= 1) {
        tw_plan_run(plan, 0, relax, NULL);
        return;
    }
    w->plan = plan;
    atomic_store_explicit(&w->done, 0, memory_order_relaxed);
    uint64_t number = (atomic_load_explicit(&w->step, memory_order_relaxed) >> 16) + 1;
    atomic_store(&w->step, number << 16 | n);
    if (atomic_load(&w->sleepers)) {
        pthread_mutex_lock(&w->mutex);
        pthread_cond_broadcast(&w->wake);
        pthread_mutex_unlock(&w->mutex);
    }
    tw_plan_run(plan, 0, relax, NULL);
    for (uint32_t spin = 0; atomic_load_explicit(&w->done, memory_order_acquire) != n - 1; spin++) {
        TW_SPIN_PAUSE();
        if (spin > SPINS_BEFORE_YIELD) {
            relax(NULL);
        }
    }
}

void tw_workers_destroy(struct tw_workers *w) {
    if (!w) {
        return;
    }
    pthread_mutex_lock(&w->mutex);
    atomic_store(&w->quit, true);
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    for (uint32_t i = 1; i < w->n_started; i++) {
        pthread_join(w->member[i].thread, NULL);
    }
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->wake);
    free(w);
}
