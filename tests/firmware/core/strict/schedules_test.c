/* SPDX-License-Identifier: Apache-2.0
 *
 * The shipped model on the strict machine: whatever the schedule, and wherever epochs begin to
 * count, it leaves the same bytes.
 */
#include "tests/support/machine_run.h"
#include "tests/support/model_machine.h"
#include "tests/support/test.h"

enum { TOKENS = TEST_ASAN ? 40 : 200, RANDOM_SCHEDULES = TEST_ASAN ? 4 : 20, WRAP_TOKENS = 10 };
enum { CHIP_TOKENS = TEST_ASAN ? 3 : 16, CHIP_SCHEDULES = 6 };

static const uint64_t adversaries[] = {
    TW_STARVE_SEED(TW_STARVE_ENGINE, 16),
    TW_STARVE_SEED(TW_STARVE_SITE, 0),
    TW_STARVE_SEED(TW_STARVE_KIND, TW_ENGINE_LOAD),
    TW_STARVE_SEED(TW_STARVE_KIND, TW_ENGINE_STORE),
    TW_STARVE_SEED(TW_STARVE_OP, 6),
    TW_STARVE_SEED(TW_STARVE_FAVOUR, 46),
    TW_STARVE_SEED(TW_STARVE_NEWEST, 0),
    TW_STARVE_SEED(TW_STARVE_TURNS, 0),
    TW_STARVE_SEED(TW_STARVE_BACKWARD, 0),
};
#define ADVERSARIES (sizeof adversaries / sizeof *adversaries)

/* ---- strict ---- */

struct strict_run {
    struct tw_strict *s;
    void *memory;
    enum tw_scheduler scheduler;
    uint64_t seed;
    struct tw_fault fault;
};

static void strict_open(struct model_machine *m, struct strict_run *r) {
    struct tw_arena arena = {NULL, 0, 0};
    assert_int_equal(tw_strict_init(&m->config, &arena, &r->s, &r->fault), TW_E_NOMEM);
    r->memory = malloc(arena.used);
    arena = (struct tw_arena){r->memory, arena.used, 0};
    assert_int_equal(tw_strict_init(&m->config, &arena, &r->s, &r->fault), 0);
}

static int strict_step(void *ctx, uint32_t step) {
    struct strict_run *r = ctx;
    bool random = r->scheduler == TW_SCHED_RANDOM;
    return tw_strict_step(r->s, r->scheduler, r->seed + (random ? step : 0), &r->fault);
}

static struct model_trace strict_trace(struct model_machine *m, enum tw_scheduler scheduler,
                                       uint64_t seed, uint32_t tokens) {
    struct strict_run r = {.scheduler = scheduler, .seed = seed};
    struct model_trace t;
    strict_open(m, &r);
    if (model_machine_decode(m, strict_step, &r, tokens, &t) != 0) {
        fail_msg("schedule %d, seed %llu: %s at site %u, %s, op %u", (int)scheduler,
                 (unsigned long long)seed, r.fault.what, r.fault.site,
                 tw_engine_name(r.fault.engine), r.fault.op_index);
    }
    free(r.memory);
    return t;
}

static void expect_equal(const struct model_machine *m, const struct model_trace *expected,
                         struct model_trace got, const char *what, uint64_t seed) {
    uint32_t at = model_trace_compare(m, expected, &got);
    if (at != UINT32_MAX) {
        fail_msg("%s %llu: other bytes at token %u", what, (unsigned long long)seed, at);
    }
    model_trace_finish(&got);
}

static void every_schedule_gives_the_model_the_same_bytes(void **state) {
    struct model_machine *m = *state;
    struct model_trace canonical = strict_trace(m, TW_SCHED_CANONICAL, 0, TOKENS);
    uint32_t distinct = 0;
    for (uint32_t i = 1; i < TOKENS; i++) {
        distinct += canonical.ids[i] != canonical.ids[i - 1];
    }
    assert_true(distinct > TOKENS / 2); /* the text is not one token over and over */
    for (uint64_t seed = 1; seed <= RANDOM_SCHEDULES; seed++) {
        expect_equal(m, &canonical, strict_trace(m, TW_SCHED_RANDOM, seed * 1000003, TOKENS),
                     "random", seed);
    }
    for (size_t i = 0; i < (TEST_ASAN ? 5 : ADVERSARIES); i++) {
        expect_equal(m, &canonical, strict_trace(m, TW_SCHED_STARVE, adversaries[i], TOKENS),
                     "adversary", adversaries[i]);
    }
    model_trace_finish(&canonical);
}

/* ---- fast ---- */

struct fast_run {
    struct tw_plan *plan;
    uint32_t n_threads;
};

static int fast_step(void *ctx, uint32_t step) {
    struct fast_run *r = ctx;
    (void)step;
    int rc = tw_plan_begin(r->plan, NULL);
    if (rc == 0) {
        mr_run_threads(r->plan, r->n_threads);
    }
    return rc;
}

static struct model_trace fast_trace(struct model_machine *m, uint32_t n_threads, uint32_t tokens) {
    struct tw_arena arena = {NULL, 0, 0};
    struct fast_run r = {NULL, n_threads};
    struct model_trace t;
    assert_int_equal(tw_plan_build(&m->config, n_threads, &arena, &r.plan, NULL), TW_E_NOMEM);
    void *memory = malloc(arena.used);
    arena = (struct tw_arena){memory, arena.used, 0};
    assert_int_equal(tw_plan_build(&m->config, n_threads, &arena, &r.plan, NULL), 0);
    assert_int_equal(model_machine_decode(m, fast_step, &r, tokens, &t), 0);
    free(memory);
    return t;
}

/* ---- chips ---- */

/* An engine and a site of the last chip, besides what is starved on one chip. */
static uint64_t chip_adversary(const struct tw_program *p, size_t i) {
    const uint64_t far[] = {TW_STARVE_SEED(TW_STARVE_ENGINE, p->n_sites * TW_ENGINE_COUNT - 1),
                            TW_STARVE_SEED(TW_STARVE_SITE, p->n_sites - 1)};
    return i < ADVERSARIES ? adversaries[i] : far[i - ADVERSARIES];
}

static void check_chips(const struct model_trace *one, const char *target, uint32_t n_chips) {
    struct model_machine m;
    model_machine_open(&m, target);
    const struct tw_program *p = m.config.program;
    assert_int_equal(p->n_chips, n_chips);
    expect_equal(&m, one, strict_trace(&m, TW_SCHED_CANONICAL, 0, CHIP_TOKENS), target, 0);
    for (uint64_t seed = 1; seed <= CHIP_SCHEDULES; seed++) {
        expect_equal(&m, one, strict_trace(&m, TW_SCHED_RANDOM, seed * 1000003, CHIP_TOKENS),
                     target, seed);
    }
    for (size_t i = 0; i < ADVERSARIES + 2; i++) {
        uint64_t seed = chip_adversary(p, i);
        expect_equal(&m, one, strict_trace(&m, TW_SCHED_STARVE, seed, CHIP_TOKENS), target, seed);
    }
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        expect_equal(&m, one, fast_trace(&m, threads, CHIP_TOKENS), target, threads);
    }
    model_machine_close(&m);
}

static void several_chips_leave_the_bytes_of_one_whatever_the_schedule(void **state) {
    struct model_trace one = strict_trace(*state, TW_SCHED_CANONICAL, 0, CHIP_TOKENS);
    check_chips(&one, "sim4x4x2", 2);
    check_chips(&one, "quad2x2", 4);
    model_trace_finish(&one);
}

/* ---- epochs ---- */

static void epochs_may_wrap_while_the_model_decodes(void **state) {
    struct model_machine *m = *state;
    struct model_trace ordinary = strict_trace(m, TW_SCHED_CANONICAL, 0, WRAP_TOKENS);
    /* The epoch itself wraps; it passes 2^31; words wrap that grow by 8 (layers) or 128 (16 sites
     * in each layer) per step. */
    static const uint32_t first[] = {UINT32_MAX - 2, INT32_MAX - 2, UINT32_MAX / 8 - 2,
                                     UINT32_MAX / 128 - 2};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        m->config.first_epoch = first[i];
        expect_equal(m, &ordinary, strict_trace(m, TW_SCHED_CANONICAL, 0, WRAP_TOKENS),
                     "strict from", first[i]);
        expect_equal(m, &ordinary, strict_trace(m, TW_SCHED_RANDOM, i, WRAP_TOKENS), "random from",
                     first[i]);
        expect_equal(m, &ordinary, fast_trace(m, 1, WRAP_TOKENS), "fast from", first[i]);
        expect_equal(m, &ordinary, fast_trace(m, 3, WRAP_TOKENS), "fast, 3 threads, from",
                     first[i]);
    }
    m->config.first_epoch = 0;
    model_trace_finish(&ordinary);
}

static int open_machine(void **state) {
    static struct model_machine m;
    model_machine_open(&m, "sim4x4");
    *state = &m;
    return 0;
}

static int close_machine(void **state) {
    model_machine_close(*state);
    model_bundle_cleanup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_gives_the_model_the_same_bytes),
        cmocka_unit_test(several_chips_leave_the_bytes_of_one_whatever_the_schedule),
        cmocka_unit_test(epochs_may_wrap_while_the_model_decodes),
    };
    return cmocka_run_group_tests(tests, open_machine, close_machine);
}
