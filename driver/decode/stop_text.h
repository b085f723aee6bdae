/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that end a text where they begin. What goes out is held back as long as it may turn out to
 * begin one of them. Does not allocate.
 */
#ifndef TW_DRIVER_DECODE_STOP_TEXT_H
#define TW_DRIVER_DECODE_STOP_TEXT_H

#include "tilewright/tilewright.h"

struct tw_stop_text {
    const char *const *texts; /* must outlive it */
    uint32_t n_texts;
    uint32_t n_held;
    char held[TW_STOP_TEXT_BYTES_MAX + 128];
};

/* Checks the texts. Errors: USAGE (too many; one that is empty, too long or not UTF-8). */
int tw_stop_text_init(struct tw_stop_text *stop, const char *const *texts, uint32_t n_texts,
                      tw_error *err);
/* Passes text on to the sink, as far as it cannot begin a stop text. *found: one of them is
 * complete, and the text before it was passed on. Returns what the sink returned if that is not 0.
 * Whole characters in, whole characters out. */
int tw_stop_text_push(struct tw_stop_text *stop, const char *text, size_t n,
                      int (*sink)(void *ctx, const char *text, size_t n), void *ctx, bool *found);
/* Passes on what is held back: the text is over. */
int tw_stop_text_flush(struct tw_stop_text *stop,
                       int (*sink)(void *ctx, const char *text, size_t n), void *ctx);

#endif
