/* SPDX-License-Identifier: Apache-2.0
 *
 * Manual pages and the tables they must agree with (tests/support/man_page.h): plain searches in
 * the page's text.
 */
#include "tests/support/man_page.h"
#include "tests/support/test.h"

#include "tests/support/program_text.h"

static const char *path;
static char *page;
static char expected[32768];

int man_page_open(const char *file) {
    size_t size;
    path = file;
    page = text_read_file(file, &size);
    return page ? 0 : -1;
}

void man_page_close(void) {
    free(page);
    page = NULL;
}

const char *man_page_text(void) {
    return page;
}

/* ---- whole rows ---- */

void man_page_begin(void) {
    expected[0] = 0;
}

void man_page_add(const char *format, ...) {
    size_t n = strlen(expected);
    va_list args;
    va_start(args, format);
    vsnprintf(expected + n, sizeof expected - n, format, args);
    va_end(args);
    assert_true(strlen(expected) + 1 < sizeof expected);
}

void man_page_add_text(const char *text) {
    man_page_add("T{\n");
    for (const char *c = text; *c; c++) {
        man_page_add(*c == '-' ? "\\-" : "%c", *c);
    }
    man_page_add("\nT}\n");
}

/* The first row of a table, or NULL. */
static const char *first_row(const char *name) {
    char mark[160];
    snprintf(mark, sizeof mark, ".\\\" rows %s\n", name);
    const char *from = strstr(page, mark);
    return from ? from + strlen(mark) : NULL;
}

char *man_page_rows(const char *name) {
    const char *from = first_row(name), *to = from ? strstr(from, ".TE\n") : NULL;
    return to ? strndup(from, (size_t)(to - from)) : NULL;
}

void man_page_check_rows(const char *name) {
    char *rows = man_page_rows(name);
    if (!rows || strcmp(rows, expected) != 0) {
        free(rows);
        fputs(expected, stderr); /* cmocka cuts long messages */
        fail_msg("%s: the table \"rows %s\" should be as printed above", path, name);
    }
    free(rows);
}

void man_page_check_found(const char *what) {
    if (!strstr(page, expected)) {
        fail_msg("%s: %s should be:\n%s", path, what, expected);
    }
}

/* ---- rows with prose ---- */

/* Past the row that begins with `row`, with its text block; NULL: it is not there. */
static const char *expect_row(const char *at, const char *row) {
    size_t n = strlen(row);
    if (strncmp(at, row, n) != 0) {
        return NULL;
    }
    const char *end = strchr(at, '\n');
    if (end && end - at >= 2 && strncmp(end - 2, "T{", 2) == 0) {
        end = strstr(end, "\nT}\n");
        end = end ? end + 3 : NULL;
    }
    return end ? end + 1 : NULL;
}

static void expect_end(const char *at, const char *name, const char *last) {
    if (!at || strncmp(at, ".TE\n", 4) != 0) {
        fail_msg("%s: %s: the row \"%s\" is missing, or a row follows the last one", path, name,
                 last);
    }
}

void man_page_check_begins(const char *name, const struct man_row *rows, size_t n) {
    const char *at = first_row(name), *last = "";
    for (size_t i = 0; i < n && at; i++) {
        last = rows[i].begins;
        at = expect_row(at, last);
    }
    expect_end(at, name, last);
}

void man_page_check_layout(const struct man_layout *l) {
    char text[120];
    snprintf(text, sizeof text, "%s %zu", l->name, l->bytes);
    const char *at = first_row(text);
    size_t next = 0;
    for (size_t i = 0; i < l->n && at; i++) {
        snprintf(text, sizeof text, "%s|%zu|%zu|", l->fields[i].name, l->fields[i].offset,
                 l->fields[i].bytes);
        at = expect_row(at, text);
        assert_int_equal(l->fields[i].offset, next); /* the test's own list has them all */
        next += l->fields[i].bytes;
    }
    expect_end(at, l->name, text);
    assert_int_equal(next, l->bytes);
}

void man_page_check_constant(const struct man_constant *c) {
    char decimal[100], hex[100];
    snprintf(decimal, sizeof decimal, "\n%s|%lu|", c->name, c->value);
    snprintf(hex, sizeof hex, "\n%s|0x%lX|", c->name, c->value);
    if (!strstr(page, decimal) && !strstr(page, hex)) {
        fail_msg("%s: a row \"%s\" is missing", path, decimal + 1);
    }
}

/* ---- nothing of a header is left out ---- */

static char *read_header(const char *header) {
    size_t size;
    char *text = text_read_file(header, &size);
    assert_non_null(text);
    return text;
}

static bool is_layout(const char *name, const struct man_layout *layouts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(layouts[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_listed(const char *name, const char *const *others) {
    while (*others && strcmp(name, *others) != 0) {
        others++;
    }
    return *others != NULL;
}

static bool contains(const char *name, const char *const *others) {
    while (*others && !strstr(name, *others)) {
        others++;
    }
    return *others != NULL;
}

void man_page_check_structures(const char *header, const struct man_layout *layouts, size_t n,
                               const char *const *others) {
    char *text = read_header(header);
    for (const char *at = text; (at = strstr(at, "\nstruct tw_")); at++) {
        char name[64];
        if (sscanf(at, "\nstruct %63[a-z_0-9] {", name) != 1 || at[8 + strlen(name) + 1] != '{') {
            continue;
        }
        if (!is_layout(name, layouts, n) && !is_listed(name, others)) {
            fail_msg("%s: struct %s is not in %s", header, name, path);
        }
    }
    free(text);
}

static bool is_constant(const char *name, const struct man_constant *constants, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(constants[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

void man_page_check_constants(const char *header, const struct man_constant *constants, size_t n,
                              const char *const *others) {
    char *text = read_header(header);
    for (const char *at = text; (at = strstr(at, "TW_")); at += 3) {
        char name[64];
        size_t length = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789#");
        bool defined = at - text > 9 && strncmp(at - 9, "\n#define ", 9) == 0 && at[length] == ' ';
        bool counted = strncmp(at + length, " = ", 3) == 0 && at > text && strchr(" {\t", at[-1]);
        if ((!defined && !counted) || length >= sizeof name) {
            continue;
        }
        memcpy(name, at, length);
        name[length] = 0;
        /* "##": made of a table, whose rows are checked */
        if (!strchr(name, '#') && !is_constant(name, constants, n) && !contains(name, others)) {
            fail_msg("%s: %s is not in %s", header, name, path);
        }
    }
    free(text);
}
