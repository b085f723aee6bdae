/* SPDX-License-Identifier: Apache-2.0
 *
 * Option and verb names that users know from other programs, and names that they mistyped.
 */
#ifndef TW_TOOLS_OPTION_NAMES_H
#define TW_TOOLS_OPTION_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#define OPTION_NAME_BYTES 32u

/* Returns our name for a long option name[0..n) (without dashes) that other programs of the field
 * use for the same thing, or NULL. */
const char *option_other_name(const char *name, size_t n);

/* If `word`, up to its "=", is an option of llama.cpp with one dash and several letters, returns
 * why there is no such option here, or "" if there is nothing to say; else NULL. Such a word is not
 * a short option with an attached argument. */
const char *option_of_llama(const char *word);

/* Returns our long name for an option of several letters with one dash that we have, or NULL. */
const char *option_of_one_dash(const char *word);

/* Returns true if `to` may have been meant: a small edit distance, or `from` is a prefix of it. */
bool option_is_near(const char *from, const char *to, size_t *distance);

#endif
