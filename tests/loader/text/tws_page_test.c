/* SPDX-License-Identifier: Apache-2.0
 *
 * The manual page tws(5) against the tables that printer and parser are driven by: every op with
 * its operands and engines, every record with its fields, and the example, which is a valid
 * program.
 */
#include "loader/text/text_tables.h"
#include "loader/verify/verify.h"
#include "tests/support/program_text.h"
#include "tests/support/test.h"

#include <ctype.h>

#define PAGE "tools/man/tws.5"

static char *page;

static int read_page(void **state) {
    (void)state;
    size_t size;
    page = text_read_file(PAGE, &size);
    return page ? 0 : -1;
}

static int drop_page(void **state) {
    (void)state;
    free(page);
    return 0;
}

/* Returns the text between the heading and the next one of the same or a higher level; the caller
 * frees it. */
static char *part(const char *level, const char *title) {
    char heading[80];
    snprintf(heading, sizeof heading, "\n.%s %s", level, title);
    const char *from = page;
    do {
        from = strstr(from, heading);
        if (!from) {
            fail_msg("%s has no \".%s %s\"", PAGE, level, title);
            return NULL;
        }
        from += strlen(heading);
    } while (*from != '\n' && *from != ' ');
    const char *sub = strstr(from, "\n.SS "), *top = strstr(from, "\n.SH ");
    const char *to = top ? top : page + strlen(page);
    if (strcmp(level, "SS") == 0 && sub && sub < to) {
        to = sub;
    }
    char *text = calloc(1, (size_t)(to - from) + 1);
    assert_non_null(text);
    memcpy(text, from, (size_t)(to - from));
    return text;
}

/* ---- ops ---- */

/* Copies the first example of an entry, with "\-" as "-". */
static void example_of(const char *entry, char *out, size_t room) {
    const char *from = strstr(entry, "\n.EX\n");
    size_t n = 0;
    assert_non_null(from);
    for (from += 5; *from != '\n' && n + 1 < room; from++) {
        if (*from != '\\') {
            out[n++] = *from;
        }
    }
    out[n] = 0;
}

/* Skips `text` at *at, where a leading '*' stands for any name in capitals; fails if it is not
 * there. */
static void expect(const char *op, const char **at, const char *text) {
    const char *from = *at;
    bool named = *text == '*';
    text += named;
    while (named && isupper((unsigned char)**at)) {
        ++*at;
    }
    if ((named && *at == from) || strncmp(*at, text, strlen(text)) != 0) {
        fail_msg("%s: the page has \"%s\" where the table has \"%s\"", op, from, text);
    }
    *at += strlen(text);
}

static void expect_operand(const char *op, const struct tw_operand_info *o, const char **at) {
    if (tw_demand_names_dtype(o->demand)) { /* a name, without the text in front of numbers */
        expect(op, at, " DTYPE");
        return;
    }
    expect(op, at, " ");
    expect(op, at, o->text);
    switch (o->kind) {
    case 'R':
    case 'W':
    case 'M':
    case 'D':
        expect(op, at, "*[OFFSET]");
        break;
    case 'T':
    case 'U':
        expect(op, at, "*[INSTANCE, OFFSET]");
        break;
    case 'F':
        expect(op, at, "FIFO");
        break;
    case 'S':
        expect(op, at, "SEMAPHORE");
        break;
    case 'X':
        expect(op, at, "COUNT");
        break;
    case 'A':
        expect(op, at, "AFFINE");
        break;
    case 'E':
        expect(op, at, "FLOAT");
        break;
    default: /* G C I */
        expect(op, at, "N");
        break;
    }
}

static void check_synopsis(uint32_t code, const char *entry) {
    const char *name = tw_op_info(code).name;
    char synopsis[200];
    const char *at = synopsis;
    example_of(entry, synopsis, sizeof synopsis);
    if (code == TW_OP_LOOP || code == TW_OP_END) {
        assert_string_equal(synopsis, code == TW_OP_LOOP ? "loop vN < COUNT id=N {" : "}");
        return;
    }
    expect(name, &at, name);
    for (const struct tw_operand_info *o = tw_op_operands(code); o->name; o++) {
        expect_operand(name, o, &at);
    }
    assert_string_equal(at, "");
}

static void check_engines(uint32_t code, const char *entry) {
    struct tw_op_info info = tw_op_info(code);
    char line[80] = "\n.B Engines:\n";
    for (const char *e = info.engines; *e; e++) {
        size_t n = strlen(line);
        const char *name = tw_engine_name(*e == 'L'   ? TW_ENGINE_LOAD
                                          : *e == 'M' ? TW_ENGINE_MATH
                                                      : TW_ENGINE_STORE);
        snprintf(line + n, sizeof line - n, "%s%s", e == info.engines ? "" : ", ", name);
    }
    const char *at = strstr(entry, line);
    if (!at || !strchr(".;", at[strlen(line)])) {
        fail_msg("%s: the entry does not say \"%s\"", info.name, line + 1);
    }
}

static bool is_listed(const char *index, const char *name) {
    size_t n = strlen(name);
    for (const char *at = index; (at = strstr(at, name)); at += n) {
        if (strchr(" \n", at[-1]) && strchr(",\n", at[n])) {
            return true;
        }
    }
    return false;
}

static void every_op_has_its_entry(void **state) {
    static const char *const parts[] = {"\n.B Waits:\n", "\n.B Does:\n", "\n.B Faults:\n"};
    char *index = part("SH", "INDEX");
    uint32_t n = 0;
    (void)state;
    for (uint32_t code = 0; code < TW_OP_LIMIT; code++) {
        const char *name = tw_op_info(code).name;
        if (!name) {
            continue;
        }
        char *entry = part("SS", name);
        check_synopsis(code, entry);
        check_engines(code, entry);
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            const char *at = strstr(entry, parts[i]);
            if (!at || strlen(at + strlen(parts[i])) < 8) {
                fail_msg("%s: the entry does not have \"%s\"", name, parts[i] + 1);
            }
        }
        if (!is_listed(index, name)) {
            fail_msg("the index does not list %s", name);
        }
        free(entry);
        n++;
    }
    assert_true(n >= 27);
    free(index);
}

/* ---- records ---- */

static void check_field(const struct tw_text_record *r, const struct tw_text_field *f,
                        const char *entry) {
    char line[64];
    snprintf(line, sizeof line, "\n.BI %s%s= ", f->optional ? "[" : "", f->key);
    const char *at = strstr(entry, line);
    if (!at) {
        fail_msg("%s: the entry does not have \"%s\"", r->word, line + 1);
        return;
    }
    size_t n = strcspn(at + 1, "\n");
    char *mark = f->between ? strstr(at + strlen(line), f->between) : NULL;
    if (f->between && (!mark || mark > at + n)) {
        fail_msg("%s: %s= has no '%s'", r->word, f->key, f->between);
    }
    const char *end = strstr(at + 1, "\n.TP");
    for (uint32_t i = 0; i < f->n_names && strcmp(f->key, "engine") != 0; i++) {
        const char *name = strstr(at, f->names[i]);
        if (!name || (end && name > end)) {
            fail_msg("%s: %s= does not name %s", r->word, f->key, f->names[i]);
        }
    }
}

static void every_record_has_its_entry_with_all_fields(void **state) {
    char *index = part("SH", "INDEX");
    (void)state;
    for (int table = 0; table < TW_TEXT_TABLE_COUNT; table++) {
        const struct tw_text_record *r = tw_text_record((enum tw_text_table)table);
        const char *after = table == TW_TEXT_PROGRAM  ? " NAME"
                            : table == TW_TEXT_STREAM ? " INDEX"
                            : table == TW_TEXT_STAGES ? " ID ORIGIN"
                            : r->has_name             ? " ID NAME"
                                                      : " ID";
        char title[40];
        snprintf(title, sizeof title, "%s%s", r->word, after);
        char *entry = part("SS", title);
        for (uint32_t i = 0; i < r->n_fields; i++) {
            check_field(r, &r->fields[i], entry);
        }
        if (!is_listed(index, r->word)) {
            fail_msg("the index does not list %s", r->word);
        }
        free(entry);
    }
    free(index);
}

static void the_example_is_a_valid_program_in_canonical_form(void **state) {
    char *section = part("SH", "EXAMPLE");
    struct tw_program_text *text = NULL;
    struct text printed = {0};
    tw_error err = {0};
    (void)state;
    char *from = strstr(section, "\n.EX\n"), *to = strstr(section, "\n.EE");
    assert_true(from && to && from < to);
    from += 5;
    to[1] = 0;
    if (tw_program_parse("example", from, strlen(from), &text, &err) != 0 ||
        tw_verify_program(&text->program, NULL, &err) != 0) {
        fail_msg("%s", err.message);
        return;
    }
    text_print(&printed, &text->program);
    assert_string_equal(printed.bytes, from);
    text_free(&printed);
    tw_program_text_free(text);
    free(section);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_its_entry),
        cmocka_unit_test(every_record_has_its_entry_with_all_fields),
        cmocka_unit_test(the_example_is_a_valid_program_in_canonical_form),
    };
    return cmocka_run_group_tests_name("tws_page", tests, read_page, drop_page);
}
