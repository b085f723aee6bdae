/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that a plan asks for against what it uses, on random programs and mutants of them: a
 * plan is built in exactly what was asked for, between guards, and no program is charged more than
 * a constant times what its plan keeps and its walk needs. Builds with assertions check the bound
 * of each table besides. TW_PLAN_BOUNDS=N takes N programs.
 */
#include "firmware/core/plan/plan.h"
#include "tests/support/order_judge.h"
#include "tests/support/order_mutate.h"
#include "tests/support/order_random.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"

enum { PROGRAMS = 3000, GUARD = 256, MARK = 0xA5 };

/* A plan is asked to have at most so many times the bytes of what it keeps, and some kilobytes of
 * scratch for the walk: each data op inside a loop over a trip is taken to have patches for all of
 * its operands. */
enum { MOST_TIMES = 4, FREE_BYTES = 64 << 10 };

struct tally {
    uint32_t built, refused, threads[5];
    double most_times;
};

static void check_guard(const uint8_t *at) {
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(at[i], MARK);
    }
}

/* Builds the plan of a program that the structural rules accept. */
static void build(const struct tw_program *p, uint32_t n_threads, struct tally *t) {
    struct order_device d;
    struct tw_fault fault;
    struct tw_plan *plan = NULL;
    if (!order_device_open(&d, p)) {
        return;
    }
    struct tw_machine_config config = order_device_config(&d);
    struct tw_arena ask = {NULL, 0, 0};
    int rc = tw_plan_build(&config, n_threads, &ask, &plan, &fault);
    if (rc == TW_E_NOMEM) {
        size_t need = ask.used, size = (need + 63) / 64 * 64;
        uint8_t *memory = aligned_alloc(64, size + 2 * GUARD);
        assert_non_null(memory);
        memset(memory, MARK, size + 2 * GUARD);
        struct tw_arena arena = {memory + GUARD, need, 0};
        rc = tw_plan_build(&config, n_threads, &arena, &plan, &fault);
        assert_int_not_equal(rc, TW_E_NOMEM);
        check_guard(memory);
        check_guard(memory + GUARD + need);
        if (rc == 0) {
            assert_true(arena.used <= need);
            size_t extra = need > FREE_BYTES ? need - FREE_BYTES : 0;
            double times = (double)extra / (double)arena.used;
            t->most_times = times > t->most_times ? times : t->most_times;
            assert_true(extra <= MOST_TIMES * arena.used);
            t->built++;
            t->threads[n_threads]++;
        }
        t->refused += rc != 0;
        free(memory);
    }
    order_device_close(&d);
}

static void a_plan_fits_what_it_asked_for(void **state) {
    const char *n = getenv("TW_PLAN_BOUNDS");
    uint32_t programs = n && atol(n) > 0 ? (uint32_t)atol(n) : PROGRAMS;
    struct tally t = {0, 0, {0}, 0};
    (void)state;
    for (uint64_t seed = 1; seed <= programs; seed++) {
        struct order_small x = order_small_program(seed);
        struct order_mutant m = {.text = ""};
        struct order_index index;
        struct tw_certificate none = {NULL, 0, TW_STEP_OPS_UNSTATED};
        uint64_t s = seed;
        order_index_make(&index, &x.b->p);
        bool mutated = seed % 3 == 0 &&
                       order_mutate(&index, &none, random_below(&s, ORDER_KIND_RECORDS), &s, &m);
        const struct tw_program *p = mutated ? &m.p : &x.b->p;
        if (tw_verify_program(p, NULL, NULL) == 0) {
            build(p, 1 + (uint32_t)(seed % 4), &t);
        }
        order_mutant_free(&m);
        order_index_free(&index);
        pb_free(x.b);
    }
    print_message("%u plans built (%u, %u, %u and %u on 1 to 4 threads), %u refused; asked for at "
                  "most %.1f times what was kept, and %u bytes\n",
                  t.built, t.threads[1], t.threads[2], t.threads[3], t.threads[4], t.refused,
                  t.most_times, (unsigned)FREE_BYTES);
    assert_true(t.built > programs / 3);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_fits_what_it_asked_for),
    };
    return cmocka_run_group_tests_name("plan_bound", tests, NULL, NULL);
}
