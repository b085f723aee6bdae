/* SPDX-License-Identifier: Apache-2.0
 * The rules of the machine as files: for each rule of TW_RULES rules/NN-NAME.ok.tws obeys it and rules/NN-NAME.bad.tws is
 * refused by it, with the message that its second line tells. */
#include "loader/verify.h"
#include "tests/support/program_text.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include <cmocka.h>

#define FOLDER "tests/loader/rules"

struct rule {
    int number;
    const char *name;
};
static const struct rule rules[] = {
#define TW_X(number, name, text) {number, #name},
    TW_RULES(TW_X)
#undef TW_X
};
enum { N_RULES = sizeof rules / sizeof rules[0] };

struct rule_file {
    char path[160];
    char *bytes;
    size_t size;
    struct tw_program_text *text;
};

static void open_file(struct rule_file *f, const struct rule *rule, const char *kind) {
    tw_error err = {0};
    snprintf(f->path, sizeof f->path, FOLDER "/%02d-%s.%s.tws", rule->number, rule->name, kind);
    f->bytes = text_read_file(f->path, &f->size);
    if (!f->bytes) {
        fail_msg("%s is missing: each rule has a file that obeys it and one that breaks it", f->path);
    }
    if (tw_program_parse(f->path, f->bytes, f->size, &f->text, &err) != 0) {
        fail_msg("%s", err.message);
    }
}

static void close_file(struct rule_file *f) {
    tw_program_text_free(f->text);
    free(f->bytes);
}

/* Lines that are only a comment are the author's; the others are as the printer writes them. */
static void assert_canonical(const struct rule_file *f) {
    struct text printed = {0};
    text_print(&printed, &f->text->program);
    const char *at = printed.bytes;
    for (const char *line = f->bytes; *line;) {
        size_t n = strcspn(line, "\n") + 1;
        if (line[strspn(line, " ")] != ';') {
            if (strncmp(at, line, n) != 0) {
                fail_msg("%s: \"%.*s\" is printed as \"%.*s\"", f->path, (int)n - 1, line, (int)strcspn(at, "\n"), at);
            }
            at += n;
        }
        line += n;
    }
    assert_int_equal(*at, 0);
    text_free(&printed);
}

/* The first line says what the file shows. */
static void assert_explained(const struct rule_file *f) {
    size_t n = strcspn(f->bytes, "\n");
    if (strncmp(f->bytes, "; ", 2) != 0 || n < 20 || f->bytes[n - 1] != '.') {
        fail_msg("%s: the first line is not a comment of a sentence", f->path);
    }
}

static void obeys(const struct rule *rule) {
    struct rule_file f;
    struct tw_verify_report report;
    tw_error err = {0};
    open_file(&f, rule, "ok");
    assert_explained(&f);
    assert_canonical(&f);
    if (tw_verify_program(&f.text->program, &report, &err) != 0) {
        fail_msg("%s: %s", f.path, err.message);
    }
    if (report.checked[rule->number] == 0) {
        fail_msg("%s has nothing that rule %d is about", f.path, rule->number);
    }
    close_file(&f);
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Whether " WORD 12 " is in the text. */
static bool names(const char *text, const char *word) {
    const char *at = strstr(text, word);
    return at && is_digit(at[strlen(word)]);
}

/* A refusal names the rule, an op or another object by id, and behind the place what was compared. */
static void assert_telling(const struct rule_file *f, const struct rule *rule, const char *message) {
    static const char *const objects[] = {" op ",   " tensor ", " buffer ",  " group ", " semaphore ",
                                          " trip ", " stage ",  " section ", " edge "};
    char begins[64];
    bool object = false;
    snprintf(begins, sizeof begins, "rule %d %s: ", rule->number, rule->name);
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        object |= names(message, objects[i]);
    }
    const char *compared = strstr(message + strlen(begins), ": ");
    if (strncmp(message, begins, strlen(begins)) != 0 || !object || !compared || strlen(compared) < 12) {
        fail_msg("%s: the refusal \"%s\" lacks the rule's name, an op or object, or what was compared", f->path,
                 message);
    }
}

/* "; refused: MESSAGE", the second line. */
static void assert_foretold(const struct rule_file *f, const char *message) {
    static const char lead[] = "; refused: ";
    const char *line = f->bytes + strcspn(f->bytes, "\n") + 1;
    size_t n = strcspn(line, "\n");
    if (strncmp(line, lead, strlen(lead)) != 0 || n - strlen(lead) != strlen(message) ||
        strncmp(line + strlen(lead), message, strlen(message)) != 0) {
        fail_msg("%s: the refusal is \"%s\", the file foretells \"%.*s\"", f->path, message, (int)n, line);
    }
}

static void breaks(const struct rule *rule) {
    struct rule_file f;
    struct tw_verify_report report;
    tw_error err = {0};
    open_file(&f, rule, "bad");
    assert_explained(&f);
    assert_canonical(&f);
    int rc = tw_verify_program(&f.text->program, &report, &err);
    if (rc != TW_E_VERIFY || report.failed_rule != rule->number) {
        fail_msg("%s: expected a refusal by rule %d, got %d by rule %d: %s", f.path, rule->number, rc,
                 report.failed_rule, err.message);
    }
    assert_telling(&f, rule, err.message);
    assert_foretold(&f, err.message);
    close_file(&f);
}

static void each_rule_has_a_file_that_obeys_it(void **state) {
    (void)state;
    for (size_t i = 0; i < N_RULES; i++) {
        obeys(&rules[i]);
    }
}

static void each_rule_has_a_file_that_it_refuses_with_names_and_numbers(void **state) {
    (void)state;
    for (size_t i = 0; i < N_RULES; i++) {
        breaks(&rules[i]);
    }
}

static bool is_of_a_rule(const char *file) {
    char ok[96], bad[96];
    for (size_t i = 0; i < N_RULES; i++) {
        snprintf(ok, sizeof ok, "%02d-%s.ok.tws", rules[i].number, rules[i].name);
        snprintf(bad, sizeof bad, "%02d-%s.bad.tws", rules[i].number, rules[i].name);
        if (strcmp(file, ok) == 0 || strcmp(file, bad) == 0) {
            return true;
        }
    }
    return false;
}

static void each_file_is_of_a_rule(void **state) {
    (void)state;
    DIR *folder = opendir(FOLDER);
    uint32_t n = 0;
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        if (e->d_name[0] != '.') {
            n++;
            if (!is_of_a_rule(e->d_name)) {
                fail_msg("%s/%s belongs to no rule", FOLDER, e->d_name);
            }
        }
    }
    closedir(folder);
    assert_int_equal(n, 2 * N_RULES);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_has_a_file_that_obeys_it),
        cmocka_unit_test(each_rule_has_a_file_that_it_refuses_with_names_and_numbers),
        cmocka_unit_test(each_file_is_of_a_rule),
    };
    return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
