/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of programs as text, one program after the other, to be verified, printed or explored.
 */
#ifndef TW_DRIVER_DECODER_PROGRAM_FILE_H
#define TW_DRIVER_DECODER_PROGRAM_FILE_H

#include "loader/text/parse_program.h"

/* Reads the file and calls `each` with every program in it, in their order, until it returns other
 * than 0; a program lives as long as its call. A file without a program is an error. Errors: IO,
 * FORMAT and RANGE (FILE:LINE:COL: what was found and expected), NOMEM, and what `each` returns. */
int tw_program_file_each(const char *path,
                         int (*each)(void *ctx, const struct tw_program_text *text, tw_error *err),
                         void *ctx, tw_error *err);

#endif
