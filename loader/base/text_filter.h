/* SPDX-License-Identifier: Apache-2.0
 *
 * The filter for text from outside (models, bundles, devices, other processes, paths) on its way to
 * an error, a terminal or JSON: what leaves it is well-formed UTF-8, on one line, and cannot move a
 * terminal's cursor or change the order in which text is read.
 */
#ifndef TW_LOADER_BASE_TEXT_FILTER_H
#define TW_LOADER_BASE_TEXT_FILTER_H

#include <stdbool.h>
#include <stddef.h>

/* What text[0..n), n > 0, begins with. Returns how many bytes it has: a character's, or those of
 * the part that is not UTF-8 (as many as the Unicode standard replaces by one U+FFFD).
 * *printable: a character, and not a control: U+0000-001F, U+007F-009F, separators of lines, marks
 * that change the direction of text, noncharacters. */
size_t tw_text_next(const char *text, size_t n, bool *printable);

/* Cleans text in place: '?' replaces each part that is not printable. A character that the end of
 * the text cuts is dropped, so that a buffer that was too short ends between characters. */
void tw_clean_text(char *text);

/* Copies text[0..n), up to its first NUL if it has one, cleaned and cut between characters to what
 * `room` bytes with the NUL hold; room > 0. */
void tw_text_copy(char *out, size_t room, const char *text, size_t n);

/* True for 1 to `max` printable ASCII characters. */
bool tw_text_is_ascii(const char *text, size_t max);

#endif
