/* SPDX-License-Identifier: Apache-2.0
 *
 * The line under construction and its destination, shared by print_program.c (tables) and
 * print_ops.c (streams).
 */
#ifndef TW_LOADER_TEXT_PRINT_INTERNAL_H
#define TW_LOADER_TEXT_PRINT_INTERNAL_H

#include "loader/base/compiler.h"
#include "loader/text/print_program.h"
#include "loader/text/text_tables.h"

struct tw_printer {
    const struct tw_program *program;
    tw_program_line *line;
    void *ctx;
    int rc; /* of the first line that the caller refused, or NOMEM */
    size_t used, room;
    char *text; /* `first`, or an allocation where a name made a line too long for it */
    char first[2048];
};

/* Appends formatted text to the line, at most 255 bytes at once. */
void tw_print_text(struct tw_printer *p, const char *format, ...) TW_PRINTF(2, 3);
/* Prints the string at `name`, in quotes if it is not a word; '-' if it lies outside the string
 * table. */
void tw_print_name(struct tw_printer *p, uint32_t name);
/* Prints "name@id" of a record of that table; "@id" if there is no such record, or it has no
 * name. */
void tw_print_reference(struct tw_printer *p, enum tw_text_table table, uint32_t id);
/* Ends the line and passes it to the caller's function. */
void tw_print_end(struct tw_printer *p);

/* Prints a record's line. `record` is of the type of `table`; the PROGRAM has no id. */
void tw_print_record(struct tw_printer *p, enum tw_text_table table, uint32_t id,
                     const void *record);

/* print_ops.c: prints all streams. */
void tw_print_streams(struct tw_printer *p);

#endif
