/* SPDX-License-Identifier: Apache-2.0
 *
 * Stop texts (stop_text.h): what is held back is always the longest end of the text so far that
 * begins one of them. They begin with a whole character, so what goes out ends with one.
 */
#include "driver/decode/stop_text.h"

#include "driver/tokenizer/utf8_stream.h"

#include <string.h>

static bool is_utf8(const char *text, size_t n) {
    size_t at = 0, length = 1;
    for (; at < n && length; at += length) {
        length = tw_utf8_char(text + at, n - at);
    }
    return at == n && length;
}

int tw_stop_text_init(struct tw_stop_text *stop, const char *const *texts, uint32_t n_texts,
                      tw_error *err) {
    *stop = (struct tw_stop_text){.texts = texts, .n_texts = n_texts};
    if (n_texts > TW_STOP_TEXTS_MAX || (n_texts && !texts)) {
        return tw_fail(err, TW_E_USAGE, "%u stop texts; expected at most %u", n_texts,
                       TW_STOP_TEXTS_MAX);
    }
    for (uint32_t i = 0; i < n_texts; i++) {
        size_t n = texts[i] ? strlen(texts[i]) : 0;
        if (n == 0 || n > TW_STOP_TEXT_BYTES_MAX || !is_utf8(texts[i], n)) {
            return tw_fail(err, TW_E_USAGE,
                           "stop text %u has %zu bytes; expected 1 to %u bytes of UTF-8", i + 1, n,
                           TW_STOP_TEXT_BYTES_MAX);
        }
    }
    return 0;
}

/* Returns where the stop text begins that is complete first, and of several that end there the
 * longest: so it does not matter in which parts the text came. n_held if there is none. */
static uint32_t find_complete(const struct tw_stop_text *stop) {
    size_t begin = stop->n_held, end = SIZE_MAX;
    for (uint32_t i = 0; i < stop->n_texts; i++) {
        size_t n = strlen(stop->texts[i]);
        const char *found = memmem(stop->held, stop->n_held, stop->texts[i], n);
        size_t at = found ? (size_t)(found - stop->held) : 0;
        if (found && (at + n < end || (at + n == end && at < begin))) {
            begin = at;
            end = at + n;
        }
    }
    return (uint32_t)begin;
}

/* Returns where the longest end begins that begins a stop text. */
static uint32_t find_begun(const struct tw_stop_text *stop) {
    for (uint32_t at = 0; at < stop->n_held; at++) {
        uint32_t n = stop->n_held - at;
        for (uint32_t i = 0; i < stop->n_texts; i++) {
            if (n < strlen(stop->texts[i]) && memcmp(stop->held + at, stop->texts[i], n) == 0) {
                return at;
            }
        }
    }
    return stop->n_held;
}

/* Passes on the first n bytes that are held. */
static int pass(struct tw_stop_text *stop, uint32_t n,
                int (*sink)(void *ctx, const char *text, size_t n), void *ctx) {
    int stopped = n ? sink(ctx, stop->held, n) : 0;
    stop->n_held -= n;
    memmove(stop->held, stop->held + n, stop->n_held);
    return stopped;
}

int tw_stop_text_push(struct tw_stop_text *stop, const char *text, size_t n,
                      int (*sink)(void *ctx, const char *text, size_t n), void *ctx, bool *found) {
    *found = false;
    while (n > 0) {
        size_t room = sizeof stop->held - stop->n_held, part = n < room ? n : room;
        memcpy(stop->held + stop->n_held, text, part);
        stop->n_held += (uint32_t)part;
        text += part;
        n -= part;
        uint32_t at = find_complete(stop);
        *found = at < stop->n_held;
        int stopped = pass(stop, *found ? at : find_begun(stop), sink, ctx);
        if (*found || stopped) {
            stop->n_held = *found ? 0 : stop->n_held;
            return stopped;
        }
    }
    return 0;
}

int tw_stop_text_flush(struct tw_stop_text *stop,
                       int (*sink)(void *ctx, const char *text, size_t n), void *ctx) {
    return pass(stop, stop->n_held, sink, ctx);
}
