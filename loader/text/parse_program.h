/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs from text, the language of tws(5): the inverse of print_program.h. Printing what was
 * parsed gives the text back in its canonical form; what the printer wrote comes back byte for
 * byte.
 *
 * Total on every input, in time and memory linear in the text (plus one record a stream of the
 * sites it names, at most TW_MAX_SITES). It checks the language and the widths of fields, not the
 * rules of the machine: the result may hold ids outside of tables and is for tw_verify_program to
 * judge.
 */
#ifndef TW_LOADER_TEXT_PARSE_PROGRAM_H
#define TW_LOADER_TEXT_PARSE_PROGRAM_H

#include "tilewright/error.h"
#include "tilewright/machine.h"

#define TW_PROGRAM_TEXT_MAX (UINT32_C(1) << 30) /* bytes of a text */

/* Owns everything that `program` points to. */
struct tw_program_text {
    struct tw_program program;
    uint32_t line; /* of its `program` line */
};

/* Where in a text of several programs the next one is looked for; zeroed: at the start. */
struct tw_text_position {
    size_t at;
    uint32_t line; /* lines before `at` */
};

/* Parses the only program of text[0, size). `name` is the file's, for messages of the form
 *     FILE:LINE:COL: found ..., expected ...
 * (columns count bytes). *out is NULL after an error. Errors: FORMAT, RANGE (a number too large for
 * its field, a text too long), NOMEM. */
int tw_program_parse(const char *name, const char *text, size_t size, struct tw_program_text **out,
                     tw_error *err);

/* Parses the program at *position, which moves on to the next one; *out NULL and 0 where there is
 * none any more. */
int tw_program_parse_next(const char *name, const char *text, size_t size,
                          struct tw_text_position *position, struct tw_program_text **out,
                          tw_error *err);

void tw_program_text_free(struct tw_program_text *text);

#endif
