/* SPDX-License-Identifier: Apache-2.0
 *
 * Text from outside (names in models and bundles, paths, what a model writes) on its way to the
 * terminal and to JSON. Texts in the library's fixed arrays and in errors are clean already.
 */
#ifndef TW_TOOLS_TEXT_H
#define TW_TOOLS_TEXT_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_BYTES 4160u /* a path and a little more */

struct text_clean {
    char text[TEXT_BYTES];
};

/* A copy for one printf: printf("%s", text_clean(name).text). NULL gives "". */
struct text_clean text_clean(const char *text);
/* A JSON string of any length, filtered; JSON null for NULL. NULL: no memory. */
json_t *text_json(const char *text);
/* A text of several lines, each filtered. */
void text_print_lines(const char *text, FILE *out);

/* What a model writes, or a prompt: as it is, for other programs; on a terminal without control
 * characters but tab and newline, so that no model moves the cursor. text[0..n) ends between
 * characters. */
void text_print_generated(const char *text, size_t n);

/* A number that was given as a float, with as many digits as tell it from others: 0.8. */
json_t *text_json_float(float value);
/* "" for 1, "s" for other counts. */
const char *text_s(uint64_t n);

#endif
