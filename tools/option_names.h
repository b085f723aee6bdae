/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of options and verbs as people know them from elsewhere, and as they mistype them.
 */
#ifndef TW_TOOLS_OPTION_NAMES_H
#define TW_TOOLS_OPTION_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#define OPTION_NAME_BYTES 32u

/* Our name for a long option's name[0..n) (without dashes) that other programs of the field have
 * for the same thing, or NULL. */
const char *option_other_name(const char *name, size_t n);

/* If `word` is an option of llama.cpp with one dash and several letters, up to its "=": why there
 * is no such option here, or "" where nothing can be said; else NULL. Such a word is no short
 * option with its argument. */
const char *option_of_llama(const char *word);

/* True if `to` may have been meant: few changes, or the beginning of its name. */
bool option_is_near(const char *from, const char *to, size_t *distance);

#endif
