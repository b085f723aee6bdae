/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole program as text: tables, then the ops of every engine with their loops indented. Same program, same bytes of
 * text. Reads programs that no verifier has seen: an id outside its table is printed as such, and a stream is printed up
 * to the first word that does not decode.
 */
#ifndef TW_LOADER_PRINT_PROGRAM_H
#define TW_LOADER_PRINT_PROGRAM_H

#include "tilewright/error.h"
#include "tilewright/machine.h"

#include <stdio.h>

/* Takes one line of `bytes` bytes, newline included; a return other than 0 stops the printer, which returns it. */
typedef int tw_program_line(void *ctx, const char *line, size_t bytes);

enum { TW_PRINT_TABLES = 1, TW_PRINT_STREAMS = 2, TW_PRINT_ALL = 3 };

/* Prints the parts that `what` names. */
int tw_program_print(const struct tw_program *program, unsigned what, tw_program_line *line, void *ctx);

/* The same into a file. Errors: IO. */
int tw_program_print_file(const struct tw_program *program, unsigned what, FILE *file, tw_error *err);

#endif
