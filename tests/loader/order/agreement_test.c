/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker's verdict on small random programs against running every interleaving of them: what
 * it accepts runs clean, and what it calls a deadlock is one (in programs without loops). TW_AGREE
 * sets the number of programs, TW_AGREE_SEED the first seed.
 */
#include "tests/support/order_judge.h"
#include "tests/support/order_mutate.h"
#include "tests/support/order_random.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"

#define PROGRAMS (TEST_ASAN ? 800u : 3500u)

enum { STRUCTURAL = ORDER_RULES, N_ROWS };
enum { CLEAN, RACE, FAULT, DEADLOCK, UNDECIDED, N_OUTCOMES };

struct world {
    uint32_t n, disagreements;
    uint64_t seed;
    struct tw_cmem mem;
    uint32_t table[2][N_ROWS][N_OUTCOMES]; /* without loops, with */
};

/* ---- running ---- */

/* Runs all interleavings of two steps, one after the other and overlapping, for each value of the
 * trip. Returns what any of them found. */
static uint32_t explore_all(const struct tw_program *p, bool has_trip) {
    struct order_device d;
    uint32_t found = 0;
    if (!order_device_open(&d, p)) {
        return TW_EXPLORE_LIMIT;
    }
    for (uint32_t n = 0; n < (has_trip ? 3u : 1u); n++) {
        for (uint32_t overlap = 0; overlap < 2; overlap++) {
            struct tw_explore_options o = {
                .steps = 2, .max_states = 2048, .max_depth = 48, .overlap = overlap};
            struct order_inputs in = {0, n, 0, 4, 0};
            struct tw_explore_result r;
            struct tw_fault fault;
            int rc = order_device_explore(&d, &in, o, (size_t)1 << 28, &r, &fault);
            found |= rc != 0 ? TW_EXPLORE_LIMIT
                     : (r.found & TW_EXPLORE_FAULT) && order_fault_is_input(&d, &r.fault) ? 0
                                                                                          : r.found;
        }
    }
    order_device_close(&d);
    return found;
}

static uint32_t outcome_of(uint32_t found) {
    return found & TW_EXPLORE_DEADLOCK                      ? DEADLOCK
           : found & (TW_EXPLORE_RACE | TW_EXPLORE_DIFFERS) ? RACE
           : found & TW_EXPLORE_FAULT                       ? FAULT
           : found & TW_EXPLORE_LIMIT                       ? UNDECIDED
                                                            : CLEAN;
}

/* ---- one program ---- */

static void disagree(struct world *w, uint64_t seed, const struct order_mutant *m,
                     const struct order_verdict *v, uint32_t found) {
    w->disagreements++;
    print_error("program %llu%s: %s, but running it finds %s\n", (unsigned long long)seed, m->text,
                v->rule ? v->message : "accepted",
                found & TW_EXPLORE_DEADLOCK ? "a deadlock"
                : found & TW_EXPLORE_FAULT  ? "a fault"
                : found                     ? "a race"
                                            : "nothing");
}

static void compare(struct world *w, uint64_t seed, const struct tw_program *p,
                    const struct order_small *x, const struct order_mutant *m) {
    struct order_verdict v = order_judge(&w->mem, p, NULL);
    if (v.structural) {
        w->table[x->has_loop][STRUCTURAL][CLEAN]++;
        return;
    }
    uint32_t found = explore_all(p, x->has_trip), outcome = outcome_of(found);
    assert_in_range(v.rule, 0, ORDER_RULES - 1);
    w->table[x->has_loop][v.rule][outcome]++;
    bool deadlock_or_fault = found & (TW_EXPLORE_DEADLOCK | TW_EXPLORE_FAULT |
                                      TW_EXPLORE_LIMIT); /* a fault ends a path */
    if ((v.rule == 0 && outcome != CLEAN && outcome != UNDECIDED) ||
        (v.rule == TW_ORDER_no_deadlock && !x->has_loop && !deadlock_or_fault)) {
        disagree(w, seed, m, &v, found);
    }
}

/* Every third program is mutated as well. */
static void take(struct world *w, uint64_t seed) {
    struct order_small x = order_small_program(seed);
    struct order_mutant m = {.text = ""};
    struct order_index index;
    struct tw_certificate none = {NULL, 0, TW_STEP_OPS_UNSTATED};
    uint64_t s = seed;
    order_index_make(&index, &x.b->p);
    bool mutated =
        seed % 3 == 0 && order_mutate(&index, &none, random_below(&s, ORDER_KIND_RECORDS), &s, &m);
    compare(w, seed, mutated ? &m.p : &x.b->p, &x, &m);
    order_mutant_free(&m);
    order_index_free(&index);
    pb_free(x.b);
}

/* ---- table ---- */

static uint32_t sum(const uint32_t *row) {
    uint32_t n = 0;
    for (uint32_t o = 0; o < N_OUTCOMES; o++) {
        n += row[o];
    }
    return n;
}

static void print_table(const struct world *w) {
    print_message("%-14s %-8s %9s %9s %9s %9s %9s %9s\n", "loops", "verdict", "programs", "clean",
                  "race", "fault", "deadlock", "undecided");
    for (uint32_t loops = 0; loops < 2; loops++) {
        for (uint32_t r = 0; r < ORDER_RULES; r++) {
            const uint32_t *row = w->table[loops][r];
            char name[16];
            snprintf(name, sizeof name, r ? "rule %u" : "accepted", r);
            if (sum(row)) {
                print_message("%-14s %-8s %9u %9u %9u %9u %9u %9u\n",
                              loops ? "with loops" : "without loops", name, sum(row), row[CLEAN],
                              row[RACE], row[FAULT], row[DEADLOCK], row[UNDECIDED]);
            }
        }
    }
    print_message("refused by the structural rules before: %u; disagreements: %u\n",
                  w->table[0][STRUCTURAL][CLEAN] + w->table[1][STRUCTURAL][CLEAN],
                  w->disagreements);
    print_message("refused and clean: loops that are not alike (20), thresholds below what has "
                  "arrived (21), pages or flags\n"
                  "around a loop (22), an order that only a freed page or accesses inside one loop "
                  "show (24), bytes\n"
                  "written through another buffer or in a loop that may not run (25)\n");
}

static void verdicts_agree_with_every_interleaving(void **state) {
    static struct world w;
    const char *n = getenv("TW_AGREE"), *seed = getenv("TW_AGREE_SEED");
    uint32_t judged = 0, accepted = 0, undecided = 0, harm[ORDER_RULES] = {0};
    (void)state;
    w.n = n && atol(n) > 0 ? (uint32_t)atol(n) : TEST_ASAN ? PROGRAMS / 4 : PROGRAMS;
    w.seed = seed ? strtoull(seed, NULL, 10) : 1;
    assert_int_equal(tw_cmem_init(&w.mem, NULL), 0);
    for (uint64_t s = w.seed; s < w.seed + w.n; s++) {
        take(&w, s);
    }
    tw_cmem_finish(&w.mem);
    print_table(&w);
    for (uint32_t r = 0; r < ORDER_RULES; r++) {
        for (uint32_t l = 0; l < 2; l++) {
            judged += sum(w.table[l][r]);
            harm[r] += w.table[l][r][RACE] + w.table[l][r][FAULT] + w.table[l][r][DEADLOCK];
        }
    }
    accepted = sum(w.table[0][0]) + sum(w.table[1][0]);
    undecided = w.table[0][0][UNDECIDED] + w.table[1][0][UNDECIDED];
    assert_int_equal(w.disagreements, 0);
    assert_true(judged > w.n / 5 * 3 && accepted > judged / 4 && accepted < judged / 10 * 9);
    assert_true(undecided * 100 <= accepted);
    for (uint32_t r = TW_ORDER_no_deadlock; r <= TW_ORDER_defined; r++) {
        /* each of these rules keeps something out */
        assert_true(r == TW_ORDER_section_order || harm[r] > 0);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_agree_with_every_interleaving),
    };
    return cmocka_run_group_tests_name("agreement", tests, NULL, NULL);
}
