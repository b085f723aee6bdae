/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters of templates that make text and numbers.
 */
#ifndef TW_DRIVER_CHAT_FILTERS_TEXT_H
#define TW_DRIVER_CHAT_FILTERS_TEXT_H

#include "driver/chat/eval.h"

/* The entry of the table of these filters, or NULL. */
const struct tw_jinja_function *tw_jinja_text_filter(struct tw_jinja_text name);

#endif
