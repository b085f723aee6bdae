/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole program as text, in the language of tws(5): tables, then the ops of every engine with
 * their loops indented. Equal programs give equal text, and tw_program_parse (parse_program.h)
 * recovers the program: every field of every record and every word of every stream is in the text.
 * Accepts unverified programs: an enum or id without a name is printed as a number; where a stream
 * stops decoding, the rest of it is printed as words in hexadecimal. Not preserved: the offset of a
 * name outside the string table, and the layout of that table.
 */
#ifndef TW_LOADER_TEXT_PRINT_PROGRAM_H
#define TW_LOADER_TEXT_PRINT_PROGRAM_H

#include "tilewright/error.h"
#include "tilewright/machine.h"

#include <stdio.h>

/* Receives one line of `bytes` bytes, newline included. A result other than 0 stops the printer,
 * which returns it. */
typedef int tw_program_line(void *ctx, const char *line, size_t bytes);

enum { TW_PRINT_TABLES = 1, TW_PRINT_STREAMS = 2, TW_PRINT_ALL = 3 };

/* Prints the program's own line, then the parts that `what` selects. Errors: NOMEM (a name longer
 * than a line's buffer), what `line` returns. */
int tw_program_print(const struct tw_program *program, unsigned what, tw_program_line *line,
                     void *ctx);

/* The same, to a file, which stays open. Errors: IO, NOMEM. */
int tw_program_print_file(const struct tw_program *program, unsigned what, FILE *file,
                          tw_error *err);

#endif
