/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines that the user types: on a terminal with libedit's editing and history, else as they come.
 */
#ifndef TW_TOOLS_LINE_INPUT_H
#define TW_TOOLS_LINE_INPUT_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stddef.h>

struct line_input;

enum line_result { LINE_READ, LINE_END, LINE_INTERRUPTED };

/* Errors: NOMEM. */
int line_input_open(struct line_input **out, tw_error *err);
/* Ends editing and restores the terminal. NULL is legal. */
void line_input_close(struct line_input *in);
/* Whether lines are typed: a prompt is shown then. */
bool line_input_is_terminal(const struct line_input *in);

/* Reads a line, without its newline; valid until the next call. LINE_INTERRUPTED: a signal came
 * (ui_stop says which). */
enum line_result line_input_read(struct line_input *in, const char *prompt, const char **text,
                                 size_t *n);

#endif
