/* SPDX-License-Identifier: Apache-2.0 The rules of the certificate (TW_ORDER_RULES).
 * tests/loader/order_rules/NN-NAME.ok*.tws obey rule NN and run clean under every schedule;
 * NN-NAME.bad*.tws pass the structural rules and are refused by rule NN with the message of their
 * second line, and the third says what running every interleaving finds: what is refused on purpose
 * though it would run finds nothing. */
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
        struct order_inputs in = {0, n, n, 4};
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

/* The words of a line behind its lead. */
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
        fail_msg("%s: expected \"%s%s\", the file foretells \"%.*s\"", f->path, lead, rest, (int)n,
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
    found_text(explore_all(&f), found, sizeof found);
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

static void each_rule_refuses_what_breaks_it_and_nothing_that_obeys_it(void **state) {
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

/* In the order that the certifier finds, MATH raises the flag before STORE waits; in this one
 * behind it. Neither passes. */
static void an_early_increment_is_refused_in_every_order(void **state) {
    static const uint32_t math_later[] = {TW_TURN_WORD(TW_TURN_RUN, 0), 3,
                                          TW_TURN_WORD(TW_TURN_RUN, 2), 2,
                                          TW_TURN_WORD(TW_TURN_RUN, 1), 2};
    struct file f;
    tw_error err = {0};
    struct tw_verify_report report = {.failed_rule = 0};
    struct tw_certificate c = {math_later, sizeof math_later / 4};
    (void)state;
    open_file(&f, "21-exact_threshold.bad.tws");
    assert_int_equal(tw_verify_program(&f.text->program, NULL, &err), 0);
    assert_int_equal(tw_check_order(&f.text->program, &c, &report, &err), TW_E_VERIFY);
    assert_int_equal(report.failed_rule, TW_ORDER_exact_threshold);
    assert_non_null(strstr(err.message, "may still wait for less"));
    close_file(&f);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_refuses_what_breaks_it_and_nothing_that_obeys_it),
        cmocka_unit_test(an_early_increment_is_refused_in_every_order),
    };
    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
