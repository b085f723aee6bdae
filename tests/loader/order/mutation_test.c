/* SPDX-License-Identifier: Apache-2.0
 *
 * Mutants of compiled and of small random programs against the checker: whatever it accepts runs
 * without a fault, in no more ops than stated, and leaves the same bytes under every schedule.
 * TW_MUTANTS sets the number of mutants, with more than 100 schedules for each accepted one of a
 * compiled program (make mutate); TW_MUTANT_SEED sets the seed, TW_MUTANT_KIND the word that the
 * names of the kinds to make contain.
 */
#include "loader/bundle/bindings.h"
#include "tests/support/order_programs.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"

#include <time.h>

enum { EXPLORED_OPS = 500, EXPLORED_BYTES = 1 << 30, MAX_PROGRAMS = 32 };
/* Mutants made from one small program; ops of a step from which on few schedules are run, and none;
 * one mutant in so many is of a compiled program. */
enum {
    PER_SMALL = 24,
    MANY_OPS = 20000,
    TOO_MANY_OPS = 1 << 20,
    COMPILED_SHARE = 4,
    COMPILED_SHARE_LONG = 8
};

/* The results of the mutants of a kind. */
struct tally {
    uint32_t mutants, accepted, by_given, same, explored, undecided, idle;
    uint64_t schedules, ns;
    uint32_t refused[ORDER_RULES + 1]; /* by rule; last: no memory */
};

struct world {
    uint32_t n, n_random, n_adversaries, unsafe;
    uint64_t seed;
    bool is_long;
    const char *only;
    struct tally by_kind[ORDER_N_KINDS], by_program[MAX_PROGRAMS];
    char names[MAX_PROGRAMS][40];
};

static void read_environment(struct world *w) {
    const char *n = getenv("TW_MUTANTS"), *seed = getenv("TW_MUTANT_SEED");
    w->is_long = n && atol(n) > 0;
    w->n = w->is_long ? (uint32_t)atol(n) : TEST_ASAN ? 1000 : 8000;
    w->n_random = w->is_long ? 42 : 6; /* with adversaries and scenarios more than 100 */
    w->n_adversaries = w->is_long ? 13 : 5;
    w->only = getenv("TW_MUTANT_KIND");
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
        !(r.found & TW_EXPLORE_FAULT && order_fault_is_input(d, &r.fault))) {
        snprintf(what, sizeof what,
                 "explored: found %u: race of engine %u op %u with engine %u op %u; fault %s",
                 r.found, r.race[0].engine, r.race[0].op_index, r.race[1].engine,
                 r.race[1].op_index, r.found & TW_EXPLORE_FAULT ? r.fault.what : "-");
        complain(w, x, m, what);
    }
}

/* Ops of a step, counted apart from the checker: every loop to its maximum. Saturates. */
static double step_ops(const struct tw_program *p) {
    double sum = 0;
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        double times[TW_MAX_VARS + 1] = {1};
        uint32_t depth = 0;
        struct tw_op op;
        for (uint32_t at = 0; tw_op_decode(p->streams[s].words, p->streams[s].n_words, at, &op);
             at += op.n_words) {
            sum += times[depth];
            if (op.code == TW_OP_LOOP) {
                times[depth + 1] = times[depth] * op.operand[TW_LOOP_times].max;
                depth++;
            } else if (op.code == TW_OP_END) {
                depth--;
            }
        }
    }
    return sum;
}

struct schedules {
    uint32_t random, adversaries;
};

static struct schedules schedules_of(const struct world *w, const struct order_program *x,
                                     uint32_t scenario, double ops) {
    struct schedules n = {w->n_random, w->n_adversaries};
    if (ops > MANY_OPS) {
        return (struct schedules){1, 1};
    }
    n.random = x->small.b ? n.random / 2 : n.random; /* these are also explored */
    n.random = scenario ? n.random / 4 : n.random;
    return n;
}

static void run_accepted(struct world *w, const struct order_program *x,
                         const struct order_mutant *m, uint64_t seed, struct tally *t) {
    struct order_device d;
    uint32_t n_ops = 0, same = 0, ran = 0;
    double ops = step_ops(&m->p);
    if (ops > (double)TW_MAX_STEP_OPS) {
        complain(w, x, m, "a step of more ops than a step may have");
        return;
    }
    if (ops > TOO_MANY_OPS || !order_device_open_at(&d, &m->p, m->rows, m->n_rows)) {
        t->idle++;
        return;
    }
    for (uint32_t s = 0; s < ORDER_N_SCENARIOS; s++) {
        struct schedules n = schedules_of(w, x, s, ops);
        struct order_trial trial = order_try(&d, &x->scenario[s], n.random, n.adversaries, seed,
                                             x->expected[s], x->expected_bytes[s]);
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
    if (ran && n_ops <= EXPLORED_OPS && ops <= MANY_OPS) {
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
    to->ns += from->ns;
    for (uint32_t r = 0; r <= ORDER_RULES; r++) {
        to->refused[r] += from->refused[r];
    }
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The loader gives Params, State and the rest segments of their own and refuses a row in another's
 * (loader/bundle/symbols.c). */
static bool rows_fit(const struct order_mutant *m) {
    for (uint32_t t = 0; t < m->p.n_tensors; t++) {
        const struct tw_tensor *x = &m->p.tensors[t];
        uint32_t segment = x->role == TW_ROLE_PARAM ? 0 : x->role == TW_ROLE_STATE ? 1 : 2;
        for (uint32_t i = 0; i < x->bind_count && x->bind_first + i < m->n_rows; i++) {
            if (m->rows[x->bind_first + i].segment != segment) {
                return false;
            }
        }
    }
    return true;
}

/* Rule 28 by bytes, as a bundle with these rows would be checked. */
static void judge_rows(const struct order_mutant *m, struct order_verdict *v) {
    struct tw_program p = m->p;
    struct tw_bundle bundle = {
        .n_programs = 1, .programs = &p, .n_bind_rows = m->n_rows, .bind = m->rows};
    tw_error err = {0};
    if (v->rule == 0 && m->rows &&
        (!rows_fit(m) || tw_bundle_check_bindings(&bundle, NULL, &err) != 0)) {
        v->rule = TW_ORDER_bindings_apart;
    }
}

static void try_mutant(struct world *w, struct order_program *x, uint32_t program, uint32_t kind,
                       uint64_t *seed) {
    struct order_mutant m;
    struct tally t = {0};
    uint64_t began = now_ns();
    if (!order_mutate(&x->index, &x->certificate, kind, seed, &m)) {
        return;
    }
    struct tw_certificate given = {m.words, m.n_words, TW_STEP_OPS_UNSTATED};
    struct order_verdict v = order_judge(&x->pipeline.mem, &m.p, &given);
    judge_rows(&m, &v);
    count(&t, &v);
    if (v.rule == 0) {
        run_accepted(w, x, &m, *seed, &t);
    }
    t.ns = now_ns() - began;
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
    print_message("%-22s %7u %8u %8u %6u %6u %9llu %8u %6.0f  %s\n", name, t->mutants,
                  t->mutants - t->accepted, t->accepted, t->same, t->idle,
                  (unsigned long long)t->schedules, t->explored - t->undecided,
                  t->ns ? t->mutants * 1e9 / (double)t->ns : 0, rules);
}

static void print_tables(const struct world *w) {
    struct tally sum = {0};
    print_message("%-22s %7s %8s %8s %6s %6s %9s %8s %6s  %s\n", "mutation", "mutants", "refused",
                  "accepted", "equal", "idle", "schedules", "explored", "per s",
                  "refused by rule:number");
    for (uint32_t k = 0; k < ORDER_N_KINDS; k++) {
        print_row(order_kind_name(k), &w->by_kind[k]);
        add(&sum, &w->by_kind[k]);
    }
    for (uint32_t p = 0; p <= order_n_programs; p++) {
        print_row(w->names[p], &w->by_program[p]);
    }
    print_row("all", &sum);
    print_message("accepted by the adapted old certificate only: %u; equal: the bytes of the "
                  "program itself; idle: refuses "
                  "its inputs, or a step of more than %d ops; per s: of processor time\n",
                  sum.by_given, (int)TOO_MANY_OPS);
    print_message("unsafe acceptances: %u\n", w->unsafe);
}

/* ---- the test ---- */

/* Families half of the time; of the others those of single ops and of pairs more often than those
 * of records. */
static uint32_t choose_kind(const struct world *w, uint64_t *seed) {
    uint32_t kind, tries = 0;
    do {
        uint32_t r = random_below(seed, ORDER_KIND_FAMILIES + 12);
        kind = random_below(seed, 2)          ? ORDER_KIND_FAMILIES + r % ORDER_N_FAMILIES
               : r < ORDER_KIND_FAMILIES      ? r
               : r < ORDER_KIND_FAMILIES + 4u ? (uint32_t)ORDER_KIND_ALL_SITES
                                              : (uint32_t)ORDER_KIND_PAIR;
    } while (w->only && !strstr(order_kind_name(kind), w->only) && ++tries < 10000);
    return kind;
}

static void mutate(struct world *w, struct order_program *x, uint32_t program, uint32_t n,
                   uint64_t *seed) {
    uint32_t end = w->by_program[program].mutants + n;
    for (uint32_t tries = 0; w->by_program[program].mutants < end && tries < 4 * n; tries++) {
        try_mutant(w, x, program, choose_kind(w, seed), seed);
    }
}

static void tell(const struct world *w, uint32_t program) {
    if (w->is_long) {
        print_message("%s: %u mutants, %u accepted, %u unsafe so far\n", w->names[program],
                      w->by_program[program].mutants, w->by_program[program].accepted, w->unsafe);
        fflush(NULL);
    }
}

static uint32_t all_weights(void) {
    uint32_t weights = 0;
    for (uint32_t p = 0; p < order_n_programs; p++) {
        static struct order_program x;
        tw_error err = {0};
        if (!order_program_make(p, &x, &err)) {
            fail_msg("%s", err.message);
        }
        weights += x.weight;
        order_program_free(&x);
    }
    return weights;
}

static void mutate_compiled(struct world *w, uint32_t all) {
    uint32_t weights = all_weights();
    for (uint32_t p = 0; p < order_n_programs; p++) {
        static struct order_program x;
        uint64_t seed = w->seed * 1000 + p;
        tw_error err = {0};
        assert_true(order_program_make(p, &x, &err));
        snprintf(w->names[p], sizeof w->names[p], "%s", x.name);
        mutate(w, &x, p, (uint32_t)((uint64_t)all * x.weight / weights), &seed);
        tell(w, p);
        order_program_free(&x);
    }
}

static void mutate_small(struct world *w, uint32_t all) {
    const struct tally *t = &w->by_program[order_n_programs];
    snprintf(w->names[order_n_programs], sizeof w->names[0], "small random");
    for (uint32_t i = 0; t->mutants < all && i < all; i++) {
        static struct order_program x;
        uint64_t program = w->seed * 100000000 + i, seed = program;
        tw_error err = {0};
        if (order_program_make_small(program, &x, &err)) {
            uint32_t left = all - t->mutants;
            mutate(w, &x, order_n_programs, left < PER_SMALL ? left : PER_SMALL, &seed);
        }
        order_program_free(&x);
        if (i % 2000 == 1999) {
            tell(w, order_n_programs);
        }
    }
    tell(w, order_n_programs);
}

static void what_the_checker_accepts_is_the_same_under_every_schedule(void **state) {
    static struct world w;
    (void)state;
    read_environment(&w);
    assert_in_range(order_n_programs, 1, MAX_PROGRAMS - 1);
    print_message("%u mutants, seed %llu\n", w.n, (unsigned long long)w.seed);
    uint32_t compiled = w.n / (w.is_long ? COMPILED_SHARE_LONG : COMPILED_SHARE);
    mutate_small(&w, w.n - compiled);
    mutate_compiled(&w, compiled);
    print_tables(&w);
    assert_int_equal(w.unsafe, 0);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_checker_accepts_is_the_same_under_every_schedule),
    };
    return cmocka_run_group_tests_name("mutation", tests, NULL, NULL);
}
