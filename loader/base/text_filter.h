/* SPDX-License-Identifier: Apache-2.0
 *
 * The filter for text from outside (models, bundles, devices, other processes, paths) on its way to
 * an error, a terminal or JSON: its output is well-formed UTF-8, on one line, and cannot move a
 * terminal's cursor or change the direction of text. All functions are legal from any thread.
 */
#ifndef TW_LOADER_BASE_TEXT_FILTER_H
#define TW_LOADER_BASE_TEXT_FILTER_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the bytes of the first character of text[0..n), n > 0, or of the first part that is not
 * UTF-8 (as many as the Unicode standard replaces by one U+FFFD). *printable: it is a character,
 * and not a control (U+0000-001F, U+007F-009F), line separator, mark that changes the direction of
 * text, or noncharacter. */
size_t tw_text_next(const char *text, size_t n, bool *printable);

/* Cleans text in place: '?' replaces each part that is not printable. An incomplete
 * character at the end is dropped, so that text that was truncated ends between characters. */
void tw_clean_text(char *text);

/* Copies text[0..n), up to its first NUL if it has one, cleaned, and truncated between characters
 * to `room` bytes with the NUL; room > 0. */
void tw_text_copy(char *out, size_t room, const char *text, size_t n);

/* Returns true for 1 to `max` printable ASCII characters. */
bool tw_text_is_ascii(const char *text, size_t max);

#endif
