/* SPDX-License-Identifier: Apache-2.0
 *
 * Distinguishes text files of programs (tws(5)) from models and bundles.
 */
#ifndef TW_TOOLS_TEXT_FILE_H
#define TW_TOOLS_TEXT_FILE_H

#include <stdbool.h>

/* True if the file begins with text: at least one byte, no control characters. False also if it
 * cannot be read (the next step reports why). */
bool text_file_is(const char *path);

#endif
