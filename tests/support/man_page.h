/* SPDX-License-Identifier: Apache-2.0
 *
 * A manual page against the tables of the headers that it describes. A page marks each of its
 * tables by a line `.\" rows NAME`; the rows stand between that line and the table's end. One page
 * is open at a time; every check fails the cmocka test and says what the page should have.
 */
#ifndef TW_TESTS_SUPPORT_MAN_PAGE_H
#define TW_TESTS_SUPPORT_MAN_PAGE_H

#include <stddef.h>

/* Reads the page; 0, or -1 if it cannot be read. For cmocka's set-up and tear-down of a group. */
int man_page_open(const char *path);
void man_page_close(void);
/* The whole page, terminated. */
const char *man_page_text(void);
/* The rows of a table; NULL: the page has no such table. The
 * caller frees it. */
char *man_page_rows(const char *name);

/* What a table should have: man_page_begin(), then row after row, then man_page_check_rows(). */
void man_page_begin(void);
void man_page_add(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Adds a text as the pages write it: a block of its own, with minus signs. */
void man_page_add_text(const char *text);
/* Checks that the table consists of exactly the rows that were added. */
void man_page_check_rows(const char *name);
/* Checks that each row that was added is somewhere in the page. */
void man_page_check_found(const char *what);

/* A row by its beginning; what follows, up to the end of the row, is prose. */
struct man_row {
    const char *begins; /* "F32|0|" */
};
/* Checks that the table has exactly these rows in this order. */
void man_page_check_begins(const char *name, const struct man_row *rows, size_t n);

/* A structure: fields with offset and size, in order and without gaps. */
struct man_field {
    const char *name;
    size_t offset, bytes;
};
struct man_layout {
    const char *name;
    size_t bytes;
    const struct man_field *fields;
    size_t n;
};
#define MAN_FIELD(type, field) \
    { #field, offsetof(struct type, field), sizeof(((struct type *)0)->field) }
#define MAN_FIELDS(type, ...) static const struct man_field type##_fields[] = {__VA_ARGS__}
#define MAN_LAYOUT(type) \
    { #type, sizeof(struct type), type##_fields, sizeof type##_fields / sizeof type##_fields[0] }

/* Checks that the page has the table "rows NAME BYTES" with one row "field|offset|bytes|..." per
 * field, and that the list of fields covers every byte of the structure. */
void man_page_check_layout(const struct man_layout *layout);

/* A number with a name: a row "NAME|value|", decimal or hexadecimal. */
struct man_constant {
    const char *name;
    unsigned long value;
};
void man_page_check_constant(const struct man_constant *constant);

/* Checks that every "struct tw_x {" at the start of a line of the header is one of the layouts, or
 * one of `others` (NULL-terminated). */
void man_page_check_structures(const char *header, const struct man_layout *layouts, size_t n,
                               const char *const *others);
/* Checks that every "#define TW_X value", and every "TW_X = value" in an enum, is one of the
 * constants, or contains one of `others` (NULL-terminated). */
void man_page_check_constants(const char *header, const struct man_constant *constants, size_t n,
                              const char *const *others);

#endif
