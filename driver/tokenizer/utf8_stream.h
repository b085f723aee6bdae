/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream of text that is always valid UTF-8, made from token bytes that may stop in the middle of
 * a character.
 *
 * Well-formed means Unicode Table 3-7 (no overlong forms, no surrogates, nothing above U+10FFFF).
 * What cannot become a character is replaced by U+FFFD, one for each maximal subpart (Unicode
 * chapter 3, "Substitution of Maximal Subparts", Table 3-8). No function allocates.
 */
#ifndef TW_DRIVER_TOKENIZER_UTF8_STREAM_H
#define TW_DRIVER_TOKENIZER_UTF8_STREAM_H

#include <stddef.h>
#include <stdint.h>

/* Receives `n` >= 1 bytes of whole characters. A value other than 0 stops the stream, which returns
 * it. */
typedef int (*tw_utf8_sink)(void *context, const char *text, size_t n);

/* Zeros are a stream that has begun. */
struct tw_utf8_stream {
    uint8_t pending[4]; /* the first n bytes of a character that needs `need` */
    uint8_t n, need;
    uint8_t low, high; /* the range of the byte that may come next */
};

/* Takes `n` bytes and gives the sink every character that they complete; an incomplete one waits.
 * Returns 0 or what the sink returned; then the rest of the bytes is lost. */
int tw_utf8_push(struct tw_utf8_stream *stream, const char *bytes, size_t n, tw_utf8_sink sink,
                 void *context);

/* The end of the text: a character still incomplete becomes U+FFFD. The stream is empty
 * afterwards. */
int tw_utf8_flush(struct tw_utf8_stream *stream, tw_utf8_sink sink, void *context);

/* The length (1 to 4) of the well-formed character that `text` begins with, or 0 if it begins with
 * none. */
size_t tw_utf8_char(const char *text, size_t n);

#endif
