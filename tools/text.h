/* SPDX-License-Identifier: Apache-2.0
 *
 * Text from outside (names in models and bundles, paths, what a model writes) on its way to the
 * terminal and to JSON. Texts in the library's fixed arrays and in errors are clean already.
 */
#ifndef TW_TOOLS_TEXT_H
#define TW_TOOLS_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_BYTES 4160u /* a path and a little more */

struct text_clean {
    char text[TEXT_BYTES];
};

/* Returns a filtered copy for one printf: printf("%s", text_clean(name).text). NULL gives "". */
struct text_clean text_clean(const char *text);
/* Returns a filtered JSON string of any length; JSON null for NULL. NULL if out of memory. */
json_t *text_json(const char *text);
/* Prints a text of several lines, each filtered. */
void text_print_lines(const char *text, FILE *out);

/* Prints a model's text or a prompt: unchanged for other programs; on a terminal without control
 * characters other than tab and newline, so that no model can move the cursor. text[0..n) ends
 * between characters. */
void text_print_generated(const char *text, size_t n);

/* Returns a float as a JSON number with the fewest digits that give the same float back: 0.8. */
json_t *text_json_float(float value);
/* Writes n bytes as hexadecimal digits to `text`, which has room for 2 * n + 1, and returns it. */
const char *text_hex(const uint8_t *bytes, size_t n, char *text);
/* "" for 1, "s" for other counts. */
const char *text_s(uint64_t n);

/* Parses a number of bytes: "4096", or a number followed by K, M, G or T ("500M", "2GiB"). */
bool text_bytes(const char *text, uint64_t *out);

#endif
