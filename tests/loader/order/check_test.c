/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of the certificate (TW_ORDER_RULES). tests/loader/order_rules/NN-NAME.ok*.tws obey rule
 * NN and run clean under every schedule; NN-NAME.bad*.tws pass the structural rules and are refused
 * by rule NN with the message of their second line. Their third line states what running every
 * interleaving finds ("nothing" for programs that are refused only out of caution).
 */
#include "tests/support/order_judge.h"
#include "tests/support/program_text.h"
#include "tests/support/test.h"

#include <dirent.h>

#define FOLDER "tests/loader/order_rules"
enum { MAX_FILES = 128 };

static const struct rule {
    int number;
    const char *name;
} rules[] = {
#define TW_X(number, name, text) {number, #name},
    TW_ORDER_RULES(TW_X)
#undef TW_X
};
enum { N_RULES = sizeof rules / sizeof rules[0] };

struct file {
    char path[200];
    char *bytes;
    struct tw_program_text *text;
    struct tw_cmem mem;
};

static void open_file(struct file *f, const char *name) {
    tw_error err = {0};
    size_t size = 0;
    snprintf(f->path, sizeof f->path, FOLDER "/%s", name);
    f->bytes = text_read_file(f->path, &size);
    assert_non_null(f->bytes);
    if (tw_program_parse(f->path, f->bytes, size, &f->text, &err) != 0) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(tw_cmem_init(&f->mem, &err), 0);
}

static void close_file(struct file *f) {
    tw_cmem_finish(&f->mem);
    tw_program_text_free(f->text);
    free(f->bytes);
}

/* ---- running ---- */

static uint32_t explore_all(const struct file *f) {
    struct order_device d;
    uint32_t found = 0;
    assert_true(order_device_open(&d, &f->text->program));
    for (uint32_t n = 0; n < 3; n++) {
        struct tw_explore_options options = {.steps = 2, .max_states = 4096};
        struct order_inputs in = {0, n, n, 4, 0};
        struct tw_explore_result r;
        struct tw_fault fault;
        if (order_device_explore(&d, &in, options, (size_t)1 << 30, &r, &fault) != 0) {
            fail_msg("%s: %s", f->path, fault.what);
        }
        found |= r.found;
    }
    order_device_close(&d);
    return found;
}

/* Writes the outcomes as the third line of a file has them. */
static void found_text(uint32_t found, char *to, size_t size) {
    static const char *const words[] = {" deadlock", " fault", " differs", " race"};
    static const uint32_t bits[] = {TW_EXPLORE_DEADLOCK, TW_EXPLORE_FAULT, TW_EXPLORE_DIFFERS,
                                    TW_EXPLORE_RACE};
    to[0] = 0;
    for (size_t i = 0; i < 4; i++) {
        if (found & bits[i]) {
            strncat(to, words[i], size - strlen(to) - 1);
        }
    }
    if (!to[0]) {
        snprintf(to, size, " nothing");
    }
}

static void assert_line(const struct file *f, uint32_t line, const char *lead, const char *rest) {
    const char *at = f->bytes;
    for (; line > 1; line--) {
        at += strcspn(at, "\n") + 1;
    }
    size_t n = strcspn(at, "\n");
    if (n != strlen(lead) + strlen(rest) || strncmp(at, lead, strlen(lead)) != 0 ||
        strncmp(at + strlen(lead), rest, strlen(rest)) != 0) {
        fail_msg("%s: expected \"%s%s\", the file expects \"%.*s\"", f->path, lead, rest, (int)n,
                 at);
    }
}

/* ---- files ---- */

static void obeys(const char *name, int rule) {
    struct file f;
    open_file(&f, name);
    struct order_verdict v = order_judge(&f.mem, &f.text->program, NULL);
    if (!v.own) {
        fail_msg("%s: %s", f.path, v.message);
    }
    struct tw_verify_report report = {.failed_rule = 0};
    struct tw_certificate c;
    assert_int_equal(tw_certify(&f.mem, &f.text->program, &c, NULL), 0);
    assert_int_equal(tw_check_order(&f.text->program, &c, &report, NULL), 0);
    if (report.checked[rule] == 0) {
        fail_msg("%s has nothing that rule %d is about", f.path, rule);
    }
    if (explore_all(&f) != 0) {
        fail_msg("%s is accepted, but running it finds harm", f.path);
    }
    close_file(&f);
}

static void breaks(const char *name, int rule) {
    struct file f;
    char found[80];
    open_file(&f, name);
    struct order_verdict v = order_judge(&f.mem, &f.text->program, NULL);
    if (v.structural || v.rule != rule) {
        fail_msg("%s: expected a refusal by rule %d, got %d: %s", f.path, rule, v.rule, v.message);
    }
    assert_line(&f, 2, "; refused: ", v.message);
    if (rule == TW_ORDER_step_budget) { /* it would run for minutes, which is why it is refused */
        snprintf(found, sizeof found, " not run");
    } else {
        found_text(explore_all(&f), found, sizeof found);
    }
    assert_line(&f, 3, "; found:", found);
    close_file(&f);
}

/* The rule that a file's name begins with, or NULL. */
static const struct rule *rule_of(const char *name, bool *ok) {
    for (size_t i = 0; i < N_RULES; i++) {
        char lead[80];
        int n = snprintf(lead, sizeof lead, "%02d-%s.", rules[i].number, rules[i].name);
        if (strncmp(name, lead, (size_t)n) == 0) {
            *ok = strncmp(name + n, "ok.", 3) == 0;
            return *ok || strncmp(name + n, "bad.", 4) == 0 ? &rules[i] : NULL;
        }
    }
    return NULL;
}

static void each_rule_refuses_violations_and_nothing_else(void **state) {
    uint32_t n_ok[N_RULES] = {0}, n_bad[N_RULES] = {0};
    DIR *folder = opendir(FOLDER);
    (void)state;
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        bool ok = false;
        const struct rule *r = e->d_name[0] == '.' ? NULL : rule_of(e->d_name, &ok);
        if (r && ok) {
            obeys(e->d_name, r->number);
            n_ok[r - rules]++;
        } else if (r) {
            breaks(e->d_name, r->number);
            n_bad[r - rules]++;
        } else if (e->d_name[0] != '.') {
            fail_msg("%s/%s belongs to no rule", FOLDER, e->d_name);
        }
    }
    closedir(folder);
    /* 18 and 19 are about certificates, not programs: certificate_test.c */
    for (size_t i = 0; i < N_RULES; i++) {
        bool of_programs = rules[i].number >= TW_ORDER_no_deadlock;
        assert_true(!of_programs || (n_ok[i] > 0 && n_bad[i] > 0));
    }
}

/* ---- an increment that a wait does not know of ---- */

/* In the order that the certifier finds, MATH raises the flag before STORE waits; in this one,
 * after. Neither passes. */
static void an_early_increment_is_refused_in_every_order(void **state) {
    static const uint32_t math_later[] = {TW_TURN_WORD(TW_TURN_RUN, 0), 3,
                                          TW_TURN_WORD(TW_TURN_RUN, 2), 2,
                                          TW_TURN_WORD(TW_TURN_RUN, 1), 2};
    struct file f;
    tw_error err = {0};
    struct tw_verify_report report = {.failed_rule = 0};
    struct tw_certificate c = {math_later, sizeof math_later / 4, TW_STEP_OPS_UNSTATED};
    (void)state;
    open_file(&f, "21-exact_threshold.bad.tws");
    assert_int_equal(tw_verify_program(&f.text->program, NULL, &err), 0);
    assert_int_equal(tw_check_order(&f.text->program, &c, &report, &err), TW_E_VERIFY);
    assert_int_equal(report.failed_rule, TW_ORDER_exact_threshold);
    assert_non_null(strstr(err.message, "may still wait for less"));
    close_file(&f);
}

/* ---- the cost ---- */

struct writer {
    char *text;
    size_t size;
    FILE *out;
};

#define LINE(w, ...) fprintf((w)->out, __VA_ARGS__)

/* Two sites; on each, LOAD fills x once and STORE writes it n times. The sites write alternate
 * pieces of one tensor, `stride` bytes apart, and nothing orders the two STOREs. */
static void write_parallel(struct writer *w, uint32_t n, uint32_t stride) {
    uint32_t bytes = 2 * n * stride;
    w->out = open_memstream(&w->text, &w->size);
    assert_non_null(w->out);
    LINE(w, "program p rows=1 sites=2 mesh=2x1 chips=1 sram=8192\n");
    LINE(w, "tensor 0 in role=param dtype=f32 shape=1x16 packing=row bytes=64 bind=0+1\n");
    LINE(w, "tensor 1 out role=output dtype=f32 shape=1x%u packing=row bytes=%u bind=1+1\n",
         bytes / 4, bytes);
    for (uint32_t i = 0; i < 2; i++) {
        LINE(w, "buffer %u x site=%u kind=resident dtype=f32 pages=1x64 offset=0\n", i, i);
    }
    LINE(w, "group 0 chip=0 x=0..2 y=0..1\n"
            "semaphore 0 one role=valid group=0\n"
            "semaphore 1 local role=gather group=0\n"
            "semaphore 2 gather role=gather group=0\n"
            "semaphore 3 release role=release group=0\n"
            "section 0 a repeat=1 buffers=0+2 semaphores=0+4 stages=0+4 local=1 gather=2 "
            "release=3\n");
    for (uint32_t i = 0; i < 2; i++) {
        LINE(w, "stage %u demo kind=load site=%u engine=load section=0\n", 2 * i, i);
        LINE(w, "stage %u demo kind=store site=%u engine=store section=0\n", 2 * i + 1, i);
    }
    for (uint32_t i = 0; i < 2; i++) {
        LINE(w, "stream %u site=%u engine=load\n    stage=%u\n", 3 * i, i, 2 * i);
        LINE(w, "    read in@0[0, 0] -> x@%u[0] n=1 b=4 s=4 s=4\n    sem_inc one@0 site=%u 1\n", i,
             i);
        LINE(w, "    sem_inc local@1 site=%u 1\n    sem_wait local@1 >= 2+v0*2\n", i);
        LINE(w, "    sem_inc gather@2 site=0 1\n%s",
             i ? ""
               : "    sem_wait gather@2 >= 2+v0*2\n    sem_inc release@3 site=0 1\n"
                 "    sem_inc release@3 site=1 1\n");
        LINE(w, "    sem_wait release@3 >= 1+v0*1\n");
        LINE(w, "stream %u site=%u engine=store\n    stage=%u\n", 3 * i + 2, i, 2 * i + 1);
        LINE(w, "    sem_wait one@0 >= 1+v0*1\n");
        for (uint32_t k = 0; k < n; k++) {
            LINE(w, "    write x@%u[0] s=4 -> out@1[0, %u] s=4 b=4 rows=1\n", i,
                 (2 * k + i) * stride);
        }
        LINE(w, "    sem_inc local@1 site=%u 1\n    sem_wait release@3 >= 1+v0*1\n", i);
    }
    assert_int_equal(fclose(w->out), 0);
}

/* Returns what the checker said; *checked: what it counted of rule 24. */
static int check_parallel(uint32_t n, uint32_t stride, uint64_t *checked, tw_error *err) {
    struct writer w;
    struct tw_program_text *text;
    struct tw_cmem mem;
    struct tw_certificate c;
    struct tw_verify_report report = {.failed_rule = 0};
    write_parallel(&w, n, stride);
    assert_int_equal(tw_program_parse("parallel", w.text, w.size, &text, err), 0);
    assert_int_equal(tw_verify_program(&text->program, NULL, err), 0);
    assert_int_equal(tw_cmem_init(&mem, err), 0);
    assert_int_equal(tw_certify(&mem, &text->program, &c, err), 0);
    int rc = tw_check_order(&text->program, &c, &report, err);
    *checked = report.checked[TW_ORDER_race_free];
    tw_cmem_finish(&mem);
    tw_program_text_free(text);
    free(w.text);
    return rc;
}

/* Twice the ops take twice the work; a program that would take quadratic work is refused first. */
static void checking_is_linear_in_the_ops(void **state) {
    uint64_t one, two;
    tw_error err = {0};
    (void)state;
    assert_int_equal(check_parallel(1000, 4, &one, &err), 0);
    assert_int_equal(check_parallel(2000, 4, &two, &err), 0);
    assert_in_range(two, one * 3 / 2, one * 5 / 2);
    assert_int_equal(check_parallel(20000, 16, &two, &err), TW_E_VERIFY);
    assert_non_null(strstr(err.message, "comparisons of accesses"));
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_refuses_violations_and_nothing_else),
        cmocka_unit_test(an_early_increment_is_refused_in_every_order),
        cmocka_unit_test(checking_is_linear_in_the_ops),
    };
    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
