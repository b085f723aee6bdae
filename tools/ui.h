/* SPDX-License-Identifier: Apache-2.0
 *
 * What all verbs share with the person at the terminal: interrupts, progress, output that may
 * break, and common options.
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

/* Not 0 after SIGINT, SIGTERM or SIGHUP, once ui_catch_interrupts() was called; a second signal
 * ends the process at once. */
extern volatile sig_atomic_t ui_stop;
void ui_catch_interrupts(void);
/* While files are made: a signal removes these (`second` and `folder` may be NULL), then the
 * folder, and ends the process with 130. ui_guard(NULL, NULL, NULL) ends that. */
void ui_guard(const char *first, const char *second, const char *folder);

/* ---- output ---- */

/* SIGPIPE and SIGXFSZ become errors of the write; standard streams that are closed stay so. */
void ui_init(void);
/* Flushes stdout. 0; NOSPACE or IO with a line; or UI_PIPE where the reader has gone, which is
 * nobody's mistake. */
#define UI_PIPE 1
int ui_flush(tw_error *err);
/* On a terminal: a newline, so that the shell's prompt begins a line of its own. */
void ui_end_line(void);
/* A JSON object, then a newline, to stdout; takes the reference. Errors: NOMEM (object NULL), those
 * of ui_flush. */
int ui_print_json(json_t *object, tw_error *err);
/* "1.5 MiB" in a buffer of the caller. */
const char *ui_bytes(uint64_t bytes, char text[32]);

/* On stderr: the error's line; below it "try: ..." where the message does not say itself what to do
 * and the error table does (error.h). */
void ui_print_error(const tw_error *err);

/* ---- progress ---- */

/* On stderr if that is a terminal, after one second, ten times a second; ui_progress_end wipes the
 * line. */
void ui_progress(void *ctx, const char *what, uint64_t done, uint64_t total);
void ui_progress_end(void);
/* One line on stderr that is not an error: "tilewright: ...", filtered. */
void ui_note(const char *format, ...) TW_PRINTF(1, 2);
/* The same after text that ended without a newline: where standard error goes to the same file, it
 * begins with one. */
void ui_note_below(const char *format, ...) TW_PRINTF(1, 2);

#endif
