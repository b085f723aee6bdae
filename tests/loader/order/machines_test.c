/* SPDX-License-Identifier: Apache-2.0
 *
 * The three machines on small random programs that use every op and address form: what strict
 * execution finds under any schedule, the explorer finds among all of them; and of what the checker
 * accepts all schedules, and fast execution on any number of threads, leave the same bytes. A table
 * says how often each form was in a program that was accepted and ran; one that never was fails the
 * test. TW_MACHINES sets the number of programs (make machines: 10,000), TW_MACHINES_SEED the first
 * seed.
 */
#include "tests/support/order_fast.h"
#include "tests/support/order_forms.h"
#include "tests/support/order_judge.h"
#include "tests/support/order_random.h"
#include "tests/support/test.h"

enum { PROGRAMS = 1600, PROGRAMS_ASAN = 300, SCENARIOS = 4, STEPS = 2 };

struct world {
    uint32_t n, n_random, n_adversaries;
    uint64_t seed;
    bool all_forms; /* must be there */
    struct tw_cmem mem;
    uint32_t structural, refused, accepted, undecided, runs, fast_runs, fast_limits, disagreements;
    uint32_t programs[ORDER_N_FORMS], ops[ORDER_N_FORMS];
    uint32_t by_rule[ORDER_RULES];
    uint64_t schedules, states;
};

struct trial {
    uint64_t seed;
    const struct order_small *x;
    struct order_device device;
    struct order_verdict verdict;
    struct order_scenario scenario;
    bool ran;
};

static void disagree(struct world *w, const struct trial *t, const char *who, const char *what) {
    w->disagreements++;
    print_error("program %llu, inputs %u %llu: %s: %s: %s\n", (unsigned long long)t->seed,
                t->scenario.in[0].rows, (unsigned long long)t->scenario.in[0].draw,
                t->verdict.rule ? t->verdict.message : "accepted", who, what);
}

/* Runs all interleavings; returns what they find, without what the inputs cause. */
static uint32_t explore(struct world *w, struct trial *t, bool overlap) {
    struct tw_explore_options o = {
        .steps = STEPS, .max_states = 2048, .max_depth = 48, .overlap = overlap};
    struct tw_explore_result r;
    struct tw_fault fault;
    int rc = order_device_explore(&t->device, &t->scenario.in[0], o, (size_t)1 << 28, &r, &fault);
    if (rc != 0) {
        return TW_EXPLORE_LIMIT;
    }
    w->states += r.states;
    bool input = (r.found & TW_EXPLORE_FAULT) && order_fault_is_input(&t->device, &r.fault);
    return input ? TW_EXPLORE_LIMIT : r.found; /* a fault ends a path */
}

/* What fast execution does not take, although it is correct (firmware/core/README.md). */
static bool is_limit(const struct tw_fault *fault) {
    static const char *const limits[] = {"DynamicInstance", "PagesInDynamicLoop",
                                         "SyncInDynamicLoop", "TooManyTerms", "TooManyChecks"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (strcmp(fault->what, limits[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void run_fast(struct world *w, struct trial *t) {
    size_t bytes = t->device.kept_bytes * STEPS;
    uint8_t *strict = calloc(2, bytes + 1), *fast = strict + bytes;
    struct tw_fault fault = {.what = "no memory"};
    char what[120];
    assert_non_null(strict);
    struct order_run r =
        order_device_run(&t->device, t->scenario.in, STEPS, TW_SCHED_CANONICAL, 0, strict);
    assert_int_equal(r.rc, 0);
    for (uint32_t threads = 1; threads <= t->x->b->p.n_sites; threads++) {
        const struct tw_kernel_table *kernels =
            (t->seed + threads) % 2 ? tw_kernel_table_best() : tw_kernel_table(TW_ISA_SCALAR);
        int rc = order_fast_run(&t->device, t->scenario.in, STEPS, threads, kernels, fast, &fault);
        if (rc != 0 && is_limit(&fault)) {
            w->fast_limits++;
            break;
        }
        w->fast_runs++;
        if (rc != 0) {
            disagree(w, t, "fast", fault.what);
        } else if (memcmp(strict, fast, bytes) != 0) {
            size_t at = 0;
            for (; strict[at] == fast[at]; at++) {
            }
            snprintf(what, sizeof what, "%u threads, %s kernels: other bytes than strict, byte %zu",
                     threads, kernels->name, at);
            disagree(w, t, "fast", what);
        }
    }
    free(strict);
}

static void run(struct world *w, struct trial *t) {
    bool accepted = t->verdict.rule == 0;
    uint32_t found = explore(w, t, false) | (accepted ? explore(w, t, true) : 0);
    struct order_trial trial =
        order_try(&t->device, &t->scenario, w->n_random, w->n_adversaries, t->seed, NULL, 0);
    w->schedules += trial.schedules;
    w->runs++;
    if (found == 0 && trial.ran && !trial.safe) {
        disagree(w, t, "strict finds what the explorer does not", trial.what);
    }
    if (!accepted) {
        return;
    }
    w->undecided += found == TW_EXPLORE_LIMIT && trial.ran;
    if (found & ~(uint32_t)TW_EXPLORE_LIMIT) {
        disagree(w, t, "explorer", found & TW_EXPLORE_RACE ? "a race" : "no race");
    } else if (!trial.safe) {
        disagree(w, t, "strict", trial.what);
    } else if (trial.ran) {
        run_fast(w, t);
        t->ran = true;
    }
}

static void count(struct world *w, const struct tw_program *p) {
    uint32_t counts[ORDER_N_FORMS] = {0};
    order_forms_count(p, counts);
    for (uint32_t f = 0; f < ORDER_N_FORMS; f++) {
        w->programs[f] += counts[f] > 0;
        w->ops[f] += counts[f];
    }
}

static void take(struct world *w, uint64_t seed) {
    struct order_small x = order_small_program(seed);
    struct trial t = {.seed = seed, .x = &x};
    t.verdict = order_judge(&w->mem, &x.b->p, NULL);
    w->structural += t.verdict.structural;
    w->by_rule[t.verdict.structural ? (uint32_t)t.verdict.rule % ORDER_RULES : 0]++;
    if (!t.verdict.structural && order_device_open(&t.device, &x.b->p)) {
        w->accepted += t.verdict.rule == 0;
        w->refused += t.verdict.rule != 0;
        w->by_rule[t.verdict.rule % ORDER_RULES]++;
        for (uint32_t s = 0; s < (x.has_trip ? SCENARIOS : 1u); s++) {
            struct order_inputs in = {.rows = s, .n_ids = 4, .draw = s < 3 ? 0 : seed * 4 + s};
            t.scenario = (struct order_scenario){STEPS, {in, in}};
            run(w, &t);
        }
        order_device_close(&t.device);
        if (t.ran) {
            count(w, &x.b->p);
        }
    }
    pb_free(x.b);
}

/* ---- table ---- */

static uint32_t print_forms(const struct world *w) {
    uint32_t missing = 0;
    print_message("%-52s %9s %9s\n", "form, in what was accepted and ran", "programs", "ops");
    for (uint32_t f = 0; f < ORDER_N_FORMS; f++) {
        const char *name = order_form_name(f);
        if (name) {
            print_message("%-52s %9u %9u%s\n", name, w->programs[f], w->ops[f],
                          w->programs[f] ? "" : "  never");
            missing += w->programs[f] == 0;
        }
    }
    return missing;
}

static void strict_explorer_and_fast_agree(void **state) {
    static struct world w;
    const char *n = getenv("TW_MACHINES"), *seed = getenv("TW_MACHINES_SEED");
    (void)state;
    w.n = n && atol(n) > 0 ? (uint32_t)atol(n) : TEST_ASAN ? PROGRAMS_ASAN : PROGRAMS;
    w.all_forms = w.n >= PROGRAMS;
    w.n_random = n ? 8 : 3;
    w.n_adversaries = n ? 13 : 3;
    w.seed = seed ? strtoull(seed, NULL, 10) : 1;
    assert_int_equal(tw_cmem_init(&w.mem, NULL), 0);
    for (uint64_t s = w.seed; s < w.seed + w.n; s++) {
        take(&w, s);
    }
    tw_cmem_finish(&w.mem);
    uint32_t missing = print_forms(&w);
    for (uint32_t r = 1; r < ORDER_RULES; r++) {
        if (w.by_rule[r]) {
            print_message("refused by rule %u: %u\n", r, w.by_rule[r]);
        }
    }
    print_message("%u programs: %u refused by structural rules, %u by order rules, %u accepted; "
                  "%u runs of %llu schedules, %llu states explored, %u undecided, %u fast runs, "
                  "%u beyond what fast execution takes; %u forms never; disagreements: %u\n",
                  w.n, w.structural, w.refused, w.accepted, w.runs, (unsigned long long)w.schedules,
                  (unsigned long long)w.states, w.undecided, w.fast_runs, w.fast_limits, missing,
                  w.disagreements);
    assert_int_equal(w.disagreements, 0);
    assert_true(!w.all_forms || missing == 0);
    assert_true(w.accepted > w.n / 5 && w.refused > w.n / 20);
    assert_true(w.undecided * 50 <= w.runs && w.fast_limits * 20 <= w.runs);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_explorer_and_fast_agree),
    };
    return cmocka_run_group_tests_name("machines", tests, NULL, NULL);
}
