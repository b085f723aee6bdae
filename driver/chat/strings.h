/* SPDX-License-Identifier: Apache-2.0
 *
 * What Python's strings can do, for the methods and the filters of templates. The marks of where
 * bytes come from (value.h) stay with them. Functions that append stop where the buffer fails.
 */
#ifndef TW_DRIVER_CHAT_STRINGS_H
#define TW_DRIVER_CHAT_STRINGS_H

#include "driver/chat/value.h"

/* str.strip(chars); chars NULL: white space. `left`, `right`: which ends. */
struct tw_jinja_text tw_jinja_strip(struct tw_jinja_text text, const struct tw_jinja_text *chars,
                                    bool left, bool right);
/* Whether a character is white space, as str.isspace() says. */
bool tw_jinja_is_space(uint32_t code_point);

enum tw_jinja_case { TW_JINJA_UPPER, TW_JINJA_LOWER, TW_JINJA_TITLE, TW_JINJA_CAPITALIZE };
/* str.upper() and so on, by the simple mappings of single characters. `words`: TITLE begins a word
 * only after white space and brackets, as the filter does; else after whatever is not a letter. */
void tw_jinja_put_case(struct tw_jinja_buffer *b, struct tw_jinja_text text, enum tw_jinja_case to,
                       bool words);

/* str.replace(old, new, count); count below 0: all. */
void tw_jinja_put_replaced(struct tw_jinja_buffer *b, struct tw_jinja_text text,
                           struct tw_jinja_text old, struct tw_jinja_text new, int64_t count);
/* str.split(separator, max); separator NULL: at white space; max below 0: no limit. `last`: from
 * the end (rsplit). False: no memory. */
bool tw_jinja_split(struct tw_jinja_arena *arena, struct tw_jinja_text text,
                    const struct tw_jinja_text *separator, int64_t max, bool last,
                    struct tw_jinja_list *out);
/* str.splitlines(). False: no memory. */
bool tw_jinja_split_lines(struct tw_jinja_arena *arena, struct tw_jinja_text text, bool keep_ends,
                          struct tw_jinja_list *out);
/* Returns whether text begins, or ends, with `what`. */
bool tw_jinja_begins(struct tw_jinja_text text, struct tw_jinja_text what);
bool tw_jinja_ends(struct tw_jinja_text text, struct tw_jinja_text what);
/* Returns the position of the last `what`; text.n if there is none. */
size_t tw_jinja_find_last(struct tw_jinja_text text, struct tw_jinja_text what);

#endif
