/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of the machine as files: for each rule of TW_RULES rules/NN-NAME.ok*.tws obey it and
 * rules/NN-NAME.bad*.tws are refused by it, with the message of the second line.
 */
#include "loader/verify/verify.h"
#include "tests/support/program_text.h"
#include "tests/support/test.h"

#include <dirent.h>

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

static void open_file(struct rule_file *f, const char *name) {
    tw_error err = {0};
    snprintf(f->path, sizeof f->path, FOLDER "/%.120s", name);
    f->bytes = text_read_file(f->path, &f->size);
    assert_non_null(f->bytes);
    if (tw_program_parse(f->path, f->bytes, f->size, &f->text, &err) != 0) {
        fail_msg("%s", err.message);
    }
}

static void close_file(struct rule_file *f) {
    tw_program_text_free(f->text);
    free(f->bytes);
}

/* Checks that all lines except comments are as the printer writes them. */
static void assert_canonical(const struct rule_file *f) {
    struct text printed = {0};
    text_print(&printed, &f->text->program);
    const char *at = printed.bytes;
    for (const char *line = f->bytes; *line;) {
        size_t n = strcspn(line, "\n") + 1;
        if (line[strspn(line, " ")] != ';') {
            if (strncmp(at, line, n) != 0) {
                fail_msg("%s: \"%.*s\" is printed as \"%.*s\"", f->path, (int)n - 1, line,
                         (int)strcspn(at, "\n"), at);
            }
            at += n;
        }
        line += n;
    }
    assert_int_equal(*at, 0);
    text_free(&printed);
}

/* Checks that the first line explains the file. */
static void assert_explained(const struct rule_file *f) {
    size_t n = strcspn(f->bytes, "\n");
    if (strncmp(f->bytes, "; ", 2) != 0 || n < 20 || f->bytes[n - 1] != '.') {
        fail_msg("%s: the first line is not a comment with a sentence", f->path);
    }
}

static void obeys(const char *name, const struct rule *rule) {
    struct rule_file f;
    struct tw_verify_report report;
    tw_error err = {0};
    open_file(&f, name);
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

/* Returns true if " WORD 12 " is in the text. */
static bool names(const char *text, const char *word) {
    const char *at = strstr(text, word);
    return at && is_digit(at[strlen(word)]);
}

/* Checks that a refusal names the rule, then an op or another object by id, then what was
 * compared. */
static void assert_specific(const struct rule_file *f, const struct rule *rule,
                            const char *message) {
    static const char *const objects[] = {" op ",        " tensor ", " buffer ", " group ",
                                          " semaphore ", " trip ",   " stage ",  " section "};
    char begins[64];
    bool object = false;
    snprintf(begins, sizeof begins, "rule %d %s: ", rule->number, rule->name);
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        object |= names(message, objects[i]);
    }
    const char *compared = strstr(message + strlen(begins), ": ");
    if (strncmp(message, begins, strlen(begins)) != 0 || !object || !compared ||
        strlen(compared) < 12) {
        fail_msg("%s: the refusal \"%s\" does not have the rule's name, an op or object, "
                 "and what was compared",
                 f->path, message);
    }
}

/* Checks that the second line is "; refused: MESSAGE". */
static void assert_expected_message(const struct rule_file *f, const char *message) {
    static const char lead[] = "; refused: ";
    const char *line = f->bytes + strcspn(f->bytes, "\n") + 1;
    size_t n = strcspn(line, "\n");
    if (strncmp(line, lead, strlen(lead)) != 0 || n - strlen(lead) != strlen(message) ||
        strncmp(line + strlen(lead), message, strlen(message)) != 0) {
        fail_msg("%s: the refusal is \"%s\", the file expects \"%.*s\"", f->path, message, (int)n,
                 line);
    }
}

static void breaks(const char *name, const struct rule *rule) {
    struct rule_file f;
    struct tw_verify_report report;
    tw_error err = {0};
    open_file(&f, name);
    assert_explained(&f);
    assert_canonical(&f);
    int rc = tw_verify_program(&f.text->program, &report, &err);
    if (rc != TW_E_VERIFY || report.failed_rule != rule->number) {
        fail_msg("%s: expected a refusal by rule %d, got %d by rule %d: %s", f.path, rule->number,
                 rc, report.failed_rule, err.message);
    }
    assert_specific(&f, rule, err.message);
    assert_expected_message(&f, err.message);
    close_file(&f);
}

/* Returns the rule that a file is about, or NULL; *ok: the file obeys it. */
static const struct rule *rule_of(const char *file, bool *ok) {
    char lead[64];
    for (size_t i = 0; i < N_RULES; i++) {
        int n = snprintf(lead, sizeof lead, "%02d-%s.", rules[i].number, rules[i].name);
        if (strncmp(file, lead, (size_t)n) == 0) {
            *ok = strncmp(file + n, "ok.", 3) == 0;
            return *ok || strncmp(file + n, "bad.", 4) == 0 ? &rules[i] : NULL;
        }
    }
    return NULL;
}

static void each_rule_refuses_violations_and_nothing_else(void **state) {
    uint32_t n_ok[N_RULES] = {0}, n_bad[N_RULES] = {0};
    (void)state;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        bool ok = false;
        const struct rule *r = e->d_name[0] == '.' ? NULL : rule_of(e->d_name, &ok);
        if (r && ok) {
            obeys(e->d_name, r);
            n_ok[r - rules]++;
        } else if (r) {
            breaks(e->d_name, r);
            n_bad[r - rules]++;
        } else if (e->d_name[0] != '.') {
            fail_msg("%s/%s belongs to no rule", FOLDER, e->d_name);
        }
    }
    closedir(folder);
    for (size_t i = 0; i < N_RULES; i++) {
        if (n_ok[i] == 0 || n_bad[i] == 0) {
            fail_msg("rule %d %s does not have both a file that obeys it and one that breaks it",
                     rules[i].number, rules[i].name);
        }
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_refuses_violations_and_nothing_else),
    };
    return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
