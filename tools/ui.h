/* SPDX-License-Identifier: Apache-2.0
 *
 * What all verbs use to talk to the user: interrupts, progress, notes, errors, and output that may
 * fail.
 */
#ifndef TW_TOOLS_UI_H
#define TW_TOOLS_UI_H

#include "loader/base/compiler.h"
#include "tilewright/error.h"

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ---- interrupts ---- */

/* The signal, after SIGINT, SIGTERM or SIGHUP, once ui_catch_interrupts() was called, which may be
 * called again; a second signal after a call ends the process at once. */
extern volatile sig_atomic_t ui_stop;
void ui_catch_interrupts(void);
/* Returns ui_stop. If it is 0 or SIGINT, makes it 0 and catches signals again, with no signal lost
 * between the two; another signal, which ends the program, stays. */
int ui_take_interrupt(void);
/* To be called while files are being written: a signal removes these (`second` and `folder` may be
 * NULL), then the folder, and exits with 130. ui_guard(NULL, NULL, NULL) ends the protection. */
void ui_guard(const char *first, const char *second, const char *folder);

/* ---- output ---- */

/* Turns SIGPIPE and SIGXFSZ into write errors; standard streams that were closed stay closed. */
void ui_init(void);
/* Flushes stdout. Returns 0; NOSPACE or IO with a message; or UI_PIPE if the reader has closed the
 * pipe, which is not an error. */
#define UI_PIPE 1
int ui_flush(tw_error *err);
/* Prints a newline if stdout is a terminal, so that the shell's prompt starts on a new line. */
void ui_end_line(void);
/* Prints a JSON object and a newline to stdout; takes the reference. Errors: NOMEM (object NULL),
 * those of ui_flush. */
int ui_print_json(json_t *object, tw_error *err);
/* Formats a size, such as "1.5 MiB", into the caller's buffer and returns it. */
const char *ui_bytes(uint64_t bytes, char text[32]);

/* Prints the error's line to stderr; below it "try: ..." with the error table's remedy (error.h),
 * if there is one and the message itself contains no advice. */
void ui_print_error(const tw_error *err);

/* ---- progress ---- */

/* Shows progress on stderr if that is a terminal, once a second has passed, at most ten times a
 * second; ui_progress_end erases the line. */
void ui_progress(void *ctx, const char *what, uint64_t done, uint64_t total);
void ui_progress_end(void);
/* Prints a line that is not an error to stderr: "tilewright: ...", filtered. */
void ui_note(const char *format, ...) TW_PRINTF(1, 2);
/* The same after text that ended without a newline: begins with a newline if standard error goes to
 * the same file as standard output. */
void ui_note_below(const char *format, ...) TW_PRINTF(1, 2);

#endif
