/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs from text, the language of tws(5): the inverse of print_program.h. Printing a
 * parsed program gives its text in canonical form, and parsing a printed program gives an identical
 * one.
 *
 * Terminates on every input, in time and memory linear in the text (plus one record for each stream
 * of the sites that it names, at most TW_MAX_SITES). It checks the syntax and the widths of fields,
 * not the rules of the machine: the result may contain ids outside their tables; tw_verify_program
 * checks it. All functions are legal from any thread.
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

/* Where to look for the next program in a text of several; zeroed: at the start. */
struct tw_text_position {
    size_t at;
    uint32_t line; /* lines before `at` */
};

/* Parses the only program of text[0, size). `name` is the file's, for messages of the form
 *     FILE:LINE:COL: found ..., expected ...
 * (columns count bytes). The caller frees *out, which is NULL after an error, with
 * tw_program_text_free. Errors: FORMAT, RANGE (a number too large for its field, a text longer than
 * TW_PROGRAM_TEXT_MAX), NOMEM. */
int tw_program_parse(const char *name, const char *text, size_t size, struct tw_program_text **out,
                     tw_error *err);

/* Parses the program at *position and advances it to the next one. Returns 0 with *out NULL if
 * there are no more. Otherwise as tw_program_parse. */
int tw_program_parse_next(const char *name, const char *text, size_t size,
                          struct tw_text_position *position, struct tw_program_text **out,
                          tw_error *err);

/* Frees a parsed program. NULL is legal. */
void tw_program_text_free(struct tw_program_text *text);

#endif
