/* SPDX-License-Identifier: Apache-2.0
 *
 * Both checkers judge the same programs: the files of rules, compiled programs of each target, and
 * mutants. TW_MUTANTS (1000) mutants of compiled programs and as many small random programs and
 * mutants of them, from TW_MUTANT_SEED (1) on; TW_MUTANT_PRINT=NAME prints the programs that they
 * disagree about and whose names contain that.
 */
#include "tests/support/test.h"

#include "loader/bundle/bindings.h"
#include "tests/second_checker/second_checker.h"
#include "tests/support/model_bundle.h"
#include "tests/support/order_programs.h"
#include "tests/support/program_mutate.h"
#include "tests/support/program_text.h"

#include <dirent.h>
#include <time.h>

enum { RULES = 32 };

struct tally {
    uint32_t n, same, other_rule, explained, unjudged;
    uint32_t first_only[RULES], second_only[RULES]; /* refused by one alone, by its rule */
    uint32_t by_rule[RULES];                        /* refused by both, by the first one's rule */
    double seconds[2];
    struct tw_cmem mem;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void print_program(const char *name, const struct tw_program *p) {
    const char *wanted = getenv("TW_MUTANT_PRINT");
    if (wanted && strstr(name, wanted)) {
        tw_error err;
        (void)tw_program_print_file(p, TW_PRINT_ALL, stdout, &err);
    }
}

/* Whether a bundle can have its rows there: Params, State and the rest are in segments of their own
 * (tilewright-bundle(5)). */
static bool places(const struct tw_program *p, const struct tw_bind_target *rows, uint64_t n) {
    for (uint32_t i = 0; i < p->n_tensors && rows; i++) {
        const struct tw_tensor *t = &p->tensors[i];
        uint32_t segment = t->role == TW_ROLE_PARAM ? 0 : t->role == TW_ROLE_STATE ? 1 : 2;
        for (uint64_t k = t->bind_first; k < n && k - t->bind_first < t->bind_count; k++) {
            if (rows[k].segment != segment) {
                return false;
            }
        }
    }
    return rows != NULL;
}

/* What the first checker says of a program whose binding rows are there. */
static struct order_verdict first_verdict(struct tw_cmem *mem, const struct tw_program *p,
                                          const struct tw_bind_target *rows, uint64_t n_rows) {
    struct order_verdict v = order_judge(mem, p, NULL);
    if (v.rule == 0 && rows) {
        struct tw_program copy = *p;
        struct tw_segment segments[3] = {{.kind = TW_SEG_PARAM, .size = UINT64_MAX / 4},
                                         {.kind = TW_SEG_STATE, .size = UINT64_MAX / 4},
                                         {.kind = TW_SEG_SCRATCH, .size = UINT64_MAX / 4}};
        struct tw_bind_target *bind = exact_clone(rows, n_rows * sizeof *rows);
        struct tw_bundle b = {.path = "mutant",
                              .n_programs = 1,
                              .programs = &copy,
                              .n_segments = 3,
                              .segments = segments,
                              .n_bind_rows = n_rows,
                              .bind = bind};
        tw_error err;
        if (tw_bundle_check_bindings(&b, NULL, &err) != 0) {
            v.rule = 28;
            snprintf(v.message, sizeof v.message, "%s", err.message);
        }
        free(bind);
    }
    return v;
}

/* The second checker executes a step, so it is exact where the first is not, on purpose, and says
 * for each such limit of the page whether the program has to do with it. */
static bool on_purpose(int first, const struct second_verdict *second) {
    return second->rule == 0 && (second->limits >> first & 1) != 0;
}

/* Returns true if the two agree whether the program is to be refused, or it is known why not. */
static bool compare(struct tally *t, const char *name, const struct tw_program *p,
                    const struct tw_bind_target *rows, uint64_t n_rows) {
    double at = now();
    struct order_verdict a = first_verdict(&t->mem, p, rows, n_rows);
    int first = a.rule;
    t->seconds[0] += now() - at;
    at = now();
    struct second_verdict b = second_check(p, rows, n_rows);
    t->seconds[1] += now() - at;
    t->n++;
    if (b.unjudged) {
        t->unjudged++;
        return true;
    }
    if ((first == 0) == (b.rule == 0)) {
        t->same++;
        t->by_rule[first]++;
        t->other_rule += first != b.rule;
        return true;
    }
    (first ? t->first_only : t->second_only)[first ? first : b.rule]++;
    if (on_purpose(first, &b)) {
        t->explained++;
        if (getenv("TW_MUTANT_EXPLAINED")) {
            printf("# EXPL %s\n#   first %d: %s\n", name, first, a.message);
            print_program(name, p);
        }
        return true;
    }
    printf("# %s\n#   first %d: %s\n#   second %d: %s\n", name, first, a.message, b.rule, b.text);
    print_program(name, p);
    return false;
}

/* Ends the test: it fails if a disagreement is not explained. */
static void report(struct tally *t) {
    tw_cmem_finish(&t->mem);
    printf("# %u programs: %u judged alike (%u refused by another rule), %u refused on purpose, %u "
           "unjudged, %u unexplained; %.1f s and %.1f s\n",
           t->n, t->same, t->other_rule, t->explained, t->unjudged,
           t->n - t->same - t->explained - t->unjudged, t->seconds[0], t->seconds[1]);
    for (uint32_t i = 0; i < RULES; i++) {
        if (t->by_rule[i] || t->first_only[i] || t->second_only[i]) {
            printf("# %s %2u: both %u, first alone %u, second alone %u\n", i ? "rule" : "none", i,
                   t->by_rule[i], t->first_only[i], t->second_only[i]);
        }
    }
    assert_int_equal(t->same + t->explained + t->unjudged, t->n);
}

static void begin(struct tally *t) {
    tw_error err;
    *t = (struct tally){0};
    assert_int_equal(tw_cmem_init(&t->mem, &err), 0);
}

static void compare_folder(struct tally *t, const char *folder) {
    struct dirent **list;
    int n = scandir(folder, &list, NULL, alphasort);
    assert_true(n > 2);
    for (int i = 0; i < n; i++) {
        char path[512];
        size_t size = 0;
        tw_error err;
        struct tw_program_text *text;
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (strstr(list[i]->d_name, ".tws")) {
            char *bytes = text_read_file(path, &size);
            assert_non_null(bytes);
            assert_int_equal(tw_program_parse(path, bytes, size, &text, &err), 0);
            /* The files of rules 1 to 17 need not obey the others; some programs of the others are
             * refused although they would run, as their second line says. */
            int rule = strstr(path, ".bad") ? atoi(list[i]->d_name) : 0;
            struct second_verdict v = second_check(&text->program, NULL, 0);
            bool purpose = strstr(bytes, "; found: nothing\n") != NULL;
            bool right = rule == 0 ? v.rule == 0 || (v.rule > 17 && strstr(folder, "/rules"))
                                   : v.rule != 0 || (purpose && on_purpose(rule, &v));
            t->n++;
            t->same += right && !v.unjudged;
            t->other_rule += right && rule != 0 && v.rule != rule;
            if (v.rule != rule) {
                printf("# %s: rule %d %s\n", path, v.rule, v.text);
            }
            tw_program_text_free(text);
            free(bytes);
        }
        free(list[i]);
    }
    free(list);
}

static void test_rule_files(void **state) {
    struct tally t = {0};
    (void)state;
    compare_folder(&t, "tests/loader/rules");
    compare_folder(&t, "tests/loader/order_rules");
    printf("# %u of %u rule files judged as their names say, %u by another rule\n", t.same, t.n,
           t.other_rule);
    assert_int_equal(t.same, t.n);
    /* Eight break another rule, too, or are sound. One more: the second has lost a rule, and finds
     * the next thing that is wrong. */
    assert_int_equal(t.other_rule, 8);
}

/* Programs of the shipped model, with their binding rows. */
static void test_bundles(void **state) {
    static const char *const targets[] = {"host", "sim4x4", "sim4x4x2", "quad2x2"};
    (void)state;
    for (uint32_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        struct tw_bundle b;
        tw_error err;
        assert_int_equal(tw_bundle_open(model_bundle(targets[i]), 0, &b, &err), 0);
        for (uint32_t k = 0; k < b.n_programs; k++) {
            double at = now();
            struct second_verdict v = second_check(&b.programs[k], b.bind, b.n_bind_rows);
            printf("# %s %s: rule %d %s %s(%.1f s)\n", targets[i], b.programs[k].name, v.rule,
                   v.text, v.unjudged ? "unjudged " : "", now() - at);
            assert_int_equal(v.rule, 0);
        }
        tw_bundle_close(&b);
    }
    model_bundle_cleanup();
}

static uint64_t number(const char *name, uint64_t otherwise) {
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 10) : otherwise;
}

static void compare_mutants(struct tally *t, const struct order_program *x, uint32_t n,
                            uint64_t *seed, uint32_t from) {
    for (uint32_t i = 0; i < n; i++) {
        struct order_mutant m;
        uint64_t before = *seed;
        uint32_t kind = (from + i) % ORDER_N_KINDS;
        if (order_mutate(&x->index, &x->certificate, kind, seed, &m)) {
            char name[600];
            snprintf(name, sizeof name, "%s, %s: %s (seed %llu)", x->name, order_kind_name(kind),
                     m.text, (unsigned long long)before);
            (void)compare(t, name, &m.p, places(&m.p, m.rows, m.n_rows) ? m.rows : NULL, m.n_rows);
            order_mutant_free(&m);
        }
    }
}

static void test_mutants(void **state) {
    struct tally t;
    uint64_t n = number("TW_MUTANTS", TEST_ASAN ? 250 : 1000),
             seed = number("TW_MUTANT_SEED", 1) * 0x9E3779B97F4A7C15;
    tw_error err;
    (void)state;
    begin(&t);
    for (uint32_t i = 0; i < order_n_programs; i++) {
        struct order_program x;
        assert_true(order_program_make(i, &x, &err));
        (void)compare(&t, x.name, &x.program, NULL, 0);
        compare_mutants(&t, &x, (uint32_t)(n / order_n_programs), &seed, 0);
        order_program_free(&x);
    }
    report(&t);
}

/* Half of the small random programs are wrong on purpose; some mutants of each. */
static void test_small(void **state) {
    struct tally t;
    uint64_t n = number("TW_MUTANTS", TEST_ASAN ? 250 : 1000), first = number("TW_MUTANT_SEED", 1);
    (void)state;
    begin(&t);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t seed = first + i;
        char name[100];
        struct order_small small = order_small_program(seed);
        snprintf(name, sizeof name, "small, seed %llu", (unsigned long long)seed);
        (void)compare(&t, name, &small.b->p, NULL, 0);
        struct order_program x = {.program = small.b->p};
        snprintf(x.name, sizeof x.name, "small %llu", (unsigned long long)seed);
        order_index_make(&x.index, &small.b->p);
        seed = seed * 0x9E3779B97F4A7C15 | 1;
        compare_mutants(&t, &x, 3, &seed, (uint32_t)(first + i) * 3);
        order_index_free(&x.index);
        pb_free(small.b);
    }
    report(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule_files),
        cmocka_unit_test(test_bundles),
        cmocka_unit_test(test_mutants),
        cmocka_unit_test(test_small),
    };
    cmocka_set_test_filter(getenv("TW_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
