/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole program as text, in the language of tws(5): tables, then the ops of every engine with
 * their loops indented. Same program, same bytes of text, and tw_program_parse (parse_program.h)
 * gives the program back: every field of every record and every word of every stream is in the
 * text. Reads programs that no verifier has seen: an enum or id without a name is printed as a
 * number, and from the first word of a stream that does not decode the words are printed as they
 * are. What a text cannot say is which offset outside the string table a name had, and how the
 * table is laid out.
 */
#ifndef TW_LOADER_TEXT_PRINT_PROGRAM_H
#define TW_LOADER_TEXT_PRINT_PROGRAM_H

#include "tilewright/error.h"
#include "tilewright/machine.h"

#include <stdio.h>

/* Takes one line of `bytes` bytes, newline included; a return other than 0 stops the printer, which
 * returns it. */
typedef int tw_program_line(void *ctx, const char *line, size_t bytes);

enum { TW_PRINT_TABLES = 1, TW_PRINT_STREAMS = 2, TW_PRINT_ALL = 3 };

/* Prints the parts that `what` names, behind the program's own line. Errors: NOMEM (a name longer
 * than a line's buffer), what `line` returns. */
int tw_program_print(const struct tw_program *program, unsigned what, tw_program_line *line,
                     void *ctx);

/* The same into a file. Errors: IO, NOMEM. */
int tw_program_print_file(const struct tw_program *program, unsigned what, FILE *file,
                          tw_error *err);

#endif
