/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells a file of programs as text (tws(5)) from models and bundles.
 */
#ifndef TW_TOOLS_TEXT_FILE_H
#define TW_TOOLS_TEXT_FILE_H

#include <stdbool.h>

/* True if the file begins with text: something, without control characters. False also where it
 * cannot be read (the next step says why). */
bool text_file_is(const char *path);

#endif
