/* SPDX-License-Identifier: Apache-2.0
 *
 * A cancel ends a step in its middle, whatever runs: strict under every scheduler, plans on one and
 * two threads, threads that wait for the one that is cancelled, the builder of plans. Every program
 * here would run for years. Also run under the thread sanitizer.
 */
#include "firmware/core/plan/plan.h"
#include "tests/support/machine_run.h"
#include "tests/support/test.h"

#include <time.h>

enum { VAR_OUTER = 1, VAR_INNER = 2, FOREVER = 1 << 30 };

/* Site 0 loops over two trips, then says so to site 1, which waits. */
struct endless {
    struct pb *m;
    uint32_t times_in;
    struct tw_cancel cancel;
    pthread_t asked_thread; /* `asked` is true on this thread, */
    bool asked_elsewhere;   /* or on all others */
};

static void append_work(struct pb *m, uint32_t site) {
    uint32_t work = pb_buffer(m, site, TW_BUF_SCRATCH, 1, 64);
    mb_op(m, site, M, ATTN_INIT, W_(work, mb_at(0)), I_(1), I_(14), X_(TW_NONE, 1));
}

static struct endless endless_create(void) {
    struct endless e = {.m = mb_create(2, 1)};
    struct pb *m = e.m;
    uint32_t told = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    e.times_in = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 1, 1);
    mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 1, 1, 1);
    uint32_t times = pb_trip(m, NULL, e.times_in, 0, 1, FOREVER);
    mb_dynamic(m, 0, M, VAR_OUTER, times, 1);
    mb_dynamic(m, 0, M, VAR_INNER, times, 2);
    append_work(m, 0);
    mb_end(m, 0, TW_ENGINE_MATH);
    mb_end(m, 0, TW_ENGINE_MATH);
    mb_op(m, 0, M, SEM_INC, S_(told), C_(1), I_(1));
    mb_op(m, 1, M, SEM_WAIT, S_(told), A_(tw_affine_plus(mb_at(1), 0, 1)));
    append_work(m, 1);
    mb_set_i32(m, e.times_in, 0, FOREVER);
    mb_freeze(m);
    return e;
}

static void *cancel_soon(void *ctx) {
    const struct timespec t = {0, 20000000};
    nanosleep(&t, NULL);
    atomic_store_explicit(&((struct tw_cancel *)ctx)->now, 1, memory_order_relaxed);
    return NULL;
}

static void expect_cancelled(int rc, const struct tw_fault *f) {
    assert_int_equal(rc, TW_E_INTERRUPTED);
    assert_int_equal(f->code, TW_E_INTERRUPTED);
    assert_string_equal(f->what, "Cancelled");
}

/* ---- strict ---- */

static void a_strict_step_ends_under_every_scheduler(void **state) {
    (void)state;
    for (uint32_t scheduler = 0; scheduler < TW_SCHED_COUNT; scheduler++) {
        struct endless e = endless_create();
        struct tw_strict *s = NULL;
        struct tw_fault f;
        void *memory;
        pthread_t thread;
        e.m->config.cancel = &e.cancel;
        assert_int_equal(mb_strict(e.m, &memory, &s, &f), 0);
        pthread_create(&thread, NULL, cancel_soon, &e.cancel);
        expect_cancelled(tw_strict_step(s, (enum tw_scheduler)scheduler, 1, &f), &f);
        pthread_join(thread, NULL);
        assert_int_equal(f.site, 0);
        assert_int_equal(f.engine, TW_ENGINE_MATH);
        assert_true(tw_strict_ops(s) > 0);
        atomic_store(&e.cancel.now, 0);
        assert_int_equal(tw_strict_step(s, (enum tw_scheduler)scheduler, 1, &f), TW_E_FAULT);
        assert_string_equal(f.what, "Faulted");
        free(memory);
        pb_free(e.m);
    }
}

static void a_strict_step_that_is_cancelled_before_runs_nothing(void **state) {
    (void)state;
    struct endless e = endless_create();
    struct tw_strict *s = NULL;
    struct tw_fault f;
    void *memory;
    e.m->config.cancel = &e.cancel;
    assert_int_equal(mb_strict(e.m, &memory, &s, &f), 0);
    atomic_store(&e.cancel.now, 1);
    expect_cancelled(tw_strict_step(s, TW_SCHED_CANONICAL, 0, &f), &f);
    assert_int_equal(tw_strict_ops(s), 0);
    free(memory);
    pb_free(e.m);
}

/* ---- plans ---- */

struct member {
    struct endless *e;
    struct tw_plan *plan;
    uint32_t index;
};

static void *run_member(void *ctx) {
    struct member *m = ctx;
    tw_plan_run(m->plan, m->index, NULL, NULL);
    return NULL;
}

/* Runs a step with n threads; thread 0 is the caller's. */
static void run_plan(struct endless *e, struct tw_plan *plan, uint32_t n) {
    struct member other = {e, plan, 1};
    pthread_t thread;
    struct tw_fault f;
    assert_int_equal(tw_plan_begin(plan, &f), 0);
    if (n > 1) {
        pthread_create(&thread, NULL, run_member, &other);
    }
    tw_plan_run(plan, 0, NULL, NULL);
    if (n > 1) {
        pthread_join(thread, NULL);
    }
}

static void a_plan_ends_on_all_threads_and_can_begin_again(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 2; n++) {
        struct endless e = endless_create();
        struct tw_plan *plan = NULL;
        struct tw_fault f;
        void *memory;
        pthread_t thread;
        e.m->config.cancel = &e.cancel;
        assert_int_equal(mb_plan(e.m, n, &memory, &plan, &f), 0);
        assert_int_equal(plan->n_threads, n);
        pthread_create(&thread, NULL, cancel_soon, &e.cancel);
        run_plan(&e, plan, n);
        pthread_join(thread, NULL);
        assert_true(tw_plan_was_cut(plan));
        atomic_store(&e.cancel.now, 0);
        mb_set_i32(e.m, e.times_in, 0, 2);
        run_plan(&e, plan, n);
        assert_false(tw_plan_was_cut(plan));
        free(memory);
        pb_free(e.m);
    }
}

static bool asked_on_one_thread(void *ctx) {
    const struct endless *e = ctx;
    return !pthread_equal(pthread_self(), e->asked_thread) == e->asked_elsewhere;
}

/* The thread that is not asked may wait for ever for the one that is, or work for ever. */
static void one_thread_that_is_asked_ends_all(void **state) {
    (void)state;
    for (uint32_t who = 0; who < 2; who++) {
        struct endless e = endless_create();
        struct tw_plan *plan = NULL;
        struct tw_fault f;
        void *memory;
        e.asked_thread = pthread_self();
        e.asked_elsewhere = who == 1;
        e.m->config.cancel = &e.cancel;
        assert_int_equal(mb_plan(e.m, 2, &memory, &plan, &f), 0);
        e.cancel.interrupt.is_requested = asked_on_one_thread;
        e.cancel.interrupt.ctx = &e;
        run_plan(&e, plan, 2);
        assert_true(tw_plan_was_cut(plan));
        free(memory);
        pb_free(e.m);
    }
}

static void a_plan_that_checks_numbers_ends(void **state) {
    (void)state;
    struct endless e = endless_create();
    struct tw_plan *plan = NULL;
    struct tw_fault f;
    void *memory;
    pthread_t thread;
    e.m->config.cancel = &e.cancel;
    assert_int_equal(mb_plan(e.m, 2, &memory, &plan, &f), 0);
    pthread_create(&thread, NULL, cancel_soon, &e.cancel);
    expect_cancelled(tw_plan_check_numbers(plan, &f), &f);
    pthread_join(thread, NULL);
    free(memory);
    pb_free(e.m);
}

/* Constant loops are unrolled while a plan is built. This one has nothing to unroll, and as many
 * iterations as a program may have. */
static void the_building_of_a_plan_ends(void **state) {
    (void)state;
    struct pb *m = mb_create(1, 1);
    struct tw_cancel cancel = {.now = 0};
    struct tw_plan *plan = NULL;
    struct tw_fault f;
    void *memory;
    pthread_t thread;
    mb_loop(m, 0, M, VAR_OUTER, UINT32_MAX);
    mb_end(m, 0, TW_ENGINE_MATH);
    mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 1, 1, 1);
    mb_freeze(m);
    m->config.cancel = &cancel;
    pthread_create(&thread, NULL, cancel_soon, &cancel);
    expect_cancelled(mb_plan(m, 1, &memory, &plan, &f), &f);
    pthread_join(thread, NULL);
    free(memory);
    pb_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_strict_step_ends_under_every_scheduler),
        cmocka_unit_test(a_strict_step_that_is_cancelled_before_runs_nothing),
        cmocka_unit_test(a_plan_ends_on_all_threads_and_can_begin_again),
        cmocka_unit_test(one_thread_that_is_asked_ends_all),
        cmocka_unit_test(a_plan_that_checks_numbers_ends),
        cmocka_unit_test(the_building_of_a_plan_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
