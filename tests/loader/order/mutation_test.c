/* SPDX-License-Identifier: Apache-2.0
 *
 * Mutants of compiled programs against the checker: whatever it accepts runs without a fault and
 * leaves the same bytes under every schedule. TW_MUTANTS sets the number of mutants, with at least
 * 100 schedules for each accepted one (make mutate); TW_MUTANT_SEED sets the seed.
 */
#include "tests/support/order_programs.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"

#if defined(__SANITIZE_ADDRESS__)
#define SHORT_MUTANTS 600
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHORT_MUTANTS 600
#endif
#endif
#ifndef SHORT_MUTANTS
#define SHORT_MUTANTS 3000
#endif

enum { EXPLORED_OPS = 500, EXPLORED_BYTES = 1 << 30, MAX_PROGRAMS = 32 };

/* The results of the mutants of a kind. */
struct tally {
    uint32_t mutants, accepted, by_given, same, explored, undecided, idle;
    uint64_t schedules;
    uint32_t refused[ORDER_RULES + 1]; /* by rule; last: no memory */
};

struct world {
    uint32_t n, n_random, n_adversaries, unsafe;
    uint64_t seed;
    struct tally by_kind[ORDER_N_KINDS], by_program[MAX_PROGRAMS];
    char names[MAX_PROGRAMS][40];
};

static void read_environment(struct world *w) {
    const char *n = getenv("TW_MUTANTS"), *seed = getenv("TW_MUTANT_SEED");
    bool is_long = n && atol(n) > 0;
    w->n = is_long ? (uint32_t)atol(n) : SHORT_MUTANTS;
    w->n_random = is_long ? 100 : 6;
    w->n_adversaries = is_long ? 13 : 5;
    w->seed = seed ? strtoull(seed, NULL, 10) : 1;
}

/* ---- one mutant ---- */

static void complain(struct world *w, const struct order_program *x, const struct order_mutant *m,
                     const char *what) {
    w->unsafe++;
    print_error("unsafe acceptance: %s: %s:%s: %s\n", x->name, order_kind_name(m->kind), m->text,
                what);
}

/* Every interleaving of a small program. */
static void explore(struct world *w, const struct order_program *x, const struct order_mutant *m,
                    struct order_device *d, struct tally *t) {
    struct tw_explore_options options = {.steps = 2, .max_states = 2048, .max_depth = 32};
    struct tw_explore_result r;
    struct tw_fault fault;
    char what[200];
    int rc = order_device_explore(d, &x->scenario[0].in[1], options, EXPLORED_BYTES, &r, &fault);
    t->explored += rc == 0;
    t->undecided += rc == 0 && r.found == TW_EXPLORE_LIMIT;
    if (rc == 0 && (r.found & ~(uint32_t)TW_EXPLORE_LIMIT) &&
        !(r.found & TW_EXPLORE_FAULT && order_fault_is_input(&r.fault))) {
        snprintf(what, sizeof what,
                 "explored: found %u: race of engine %u op %u with engine %u op %u; fault %s",
                 r.found, r.race[0].engine, r.race[0].op_index, r.race[1].engine,
                 r.race[1].op_index, r.found & TW_EXPLORE_FAULT ? r.fault.what : "-");
        complain(w, x, m, what);
    }
}

static void run_accepted(struct world *w, const struct order_program *x,
                         const struct order_mutant *m, uint64_t seed, struct tally *t) {
    struct order_device d;
    uint32_t n_ops = 0, same = 0, ran = 0;
    if (!order_device_open(&d, &m->p)) {
        t->idle++;
        return;
    }
    for (uint32_t s = 0; s < ORDER_N_SCENARIOS; s++) {
        struct order_trial trial =
            order_try(&d, &x->scenario[s], s ? w->n_random / 4 : w->n_random, w->n_adversaries,
                      seed, x->expected[s], x->expected_bytes[s]);
        t->schedules += trial.schedules;
        same += trial.same;
        ran += trial.ran;
        if (!trial.safe) {
            complain(w, x, m, trial.what);
            break;
        }
    }
    t->same += same == ORDER_N_SCENARIOS;
    t->idle += ran == 0;
    for (uint32_t c = 0; c < ORDER_N_OP_CLASSES; c++) {
        n_ops += x->index.n[c];
    }
    if (ran && n_ops <= EXPLORED_OPS && order_inputs_keep_promise(&m->p, &x->scenario[0].in[1])) {
        explore(w, x, m, &d, t);
    }
    order_device_close(&d);
}

static void count(struct tally *t, const struct order_verdict *v) {
    t->mutants++;
    if (v->rule == 0) {
        t->accepted++;
        t->by_given += v->given && !v->own;
    } else {
        t->refused[v->rule > 0 && v->rule < ORDER_RULES ? v->rule : ORDER_RULES]++;
    }
}

static void add(struct tally *to, const struct tally *from) {
    to->mutants += from->mutants;
    to->accepted += from->accepted;
    to->by_given += from->by_given;
    to->same += from->same;
    to->explored += from->explored;
    to->undecided += from->undecided;
    to->idle += from->idle;
    to->schedules += from->schedules;
    for (uint32_t r = 0; r <= ORDER_RULES; r++) {
        to->refused[r] += from->refused[r];
    }
}

static void try_mutant(struct world *w, struct order_program *x, uint32_t program, uint32_t kind,
                       uint64_t *seed) {
    struct order_mutant m;
    struct tally t = {0};
    if (!order_mutate(&x->index, &x->certificate, kind, seed, &m)) {
        return;
    }
    struct tw_certificate given = {m.words, m.n_words, TW_STEP_OPS_UNSTATED};
    struct order_verdict v = order_judge(&x->pipeline.mem, &m.p, &given);
    count(&t, &v);
    if (v.rule == 0) {
        run_accepted(w, x, &m, *seed, &t);
    }
    add(&w->by_kind[kind], &t);
    add(&w->by_program[program], &t);
    order_mutant_free(&m);
}

/* ---- tables ---- */

static void print_row(const char *name, const struct tally *t) {
    char rules[400] = "";
    size_t n = 0;
    for (uint32_t r = 0; r <= ORDER_RULES && n < sizeof rules - 16; r++) {
        if (t->refused[r]) {
            n += (size_t)snprintf(rules + n, sizeof rules - n, " %s%u:%u",
                                  r == ORDER_RULES ? "memory" : "", r == ORDER_RULES ? 0 : r,
                                  t->refused[r]);
        }
    }
    print_message("%-22s %7u %8u %8u %6u %6u %9llu %8u  %s\n", name, t->mutants,
                  t->mutants - t->accepted, t->accepted, t->same, t->idle,
                  (unsigned long long)t->schedules, t->explored - t->undecided, rules);
}

static void print_tables(const struct world *w) {
    struct tally sum = {0};
    print_message("%-22s %7s %8s %8s %6s %6s %9s %8s  %s\n", "mutation", "mutants", "refused",
                  "accepted", "equal", "idle", "schedules", "explored", "refused by rule:number");
    for (uint32_t k = 0; k < ORDER_N_KINDS; k++) {
        print_row(order_kind_name(k), &w->by_kind[k]);
        add(&sum, &w->by_kind[k]);
    }
    for (uint32_t p = 0; p < order_n_programs; p++) {
        print_row(w->names[p], &w->by_program[p]);
    }
    print_row("all", &sum);
    print_message("accepted by the adapted old certificate only: %u; equal: the bytes of the "
                  "program itself; idle: refuses "
                  "its inputs\n",
                  sum.by_given);
    print_message("unsafe acceptances: %u\n", w->unsafe);
}

/* ---- the test ---- */

/* A kind for every mutant in turn, those of single ops and of pairs more often than those of
 * records. */
static uint32_t choose_kind(uint64_t *seed) {
    uint32_t r = random_below(seed, ORDER_N_KINDS + 12);
    return r < ORDER_N_KINDS       ? r
           : r < ORDER_N_KINDS + 4 ? (uint32_t)ORDER_KIND_ALL_SITES
                                   : (uint32_t)ORDER_KIND_PAIR;
}

static void what_the_checker_accepts_is_the_same_under_every_schedule(void **state) {
    static struct world w;
    uint32_t weights = 0;
    (void)state;
    read_environment(&w);
    assert_in_range(order_n_programs, 1, MAX_PROGRAMS);
    print_message("%u mutants, seed %llu\n", w.n, (unsigned long long)w.seed);
    for (uint32_t p = 0; p < order_n_programs; p++) {
        static struct order_program x;
        tw_error err = {0};
        if (!order_program_make(p, &x, &err)) {
            fail_msg("%s", err.message);
        }
        weights += x.weight;
        order_program_free(&x);
    }
    for (uint32_t p = 0; p < order_n_programs; p++) {
        static struct order_program x;
        uint64_t seed = w.seed * 1000 + p;
        tw_error err = {0};
        assert_true(order_program_make(p, &x, &err));
        snprintf(w.names[p], sizeof w.names[p], "%s", x.name);
        uint32_t n = (uint32_t)((uint64_t)w.n * x.weight / weights);
        while (w.by_program[p].mutants < n) {
            try_mutant(&w, &x, p, choose_kind(&seed), &seed);
        }
        if (w.n_random >= 100) {
            print_message("%s: %u mutants, %u accepted, %u unsafe so far\n", x.name, n,
                          w.by_program[p].accepted, w.unsafe);
        }
        order_program_free(&x);
    }
    print_tables(&w);
    assert_int_equal(w.unsafe, 0);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_checker_accepts_is_the_same_under_every_schedule),
    };
    return cmocka_run_group_tests_name("mutation", tests, NULL, NULL);
}
