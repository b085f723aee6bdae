/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts token bytes, which may end in the middle of a character, to text that is always valid
 * UTF-8.
 *
 * Well-formed means Unicode Table 3-7 (no overlong forms, no surrogates, nothing above U+10FFFF).
 * Malformed bytes are replaced by U+FFFD, one for each maximal subpart (Unicode chapter 3,
 * "Substitution of Maximal Subparts", Table 3-8). No function allocates. One thread at a time uses
 * a stream.
 */
#ifndef TW_DRIVER_TOKENIZER_UTF8_STREAM_H
#define TW_DRIVER_TOKENIZER_UTF8_STREAM_H

#include <stddef.h>
#include <stdint.h>

/* Receives `n` >= 1 bytes of whole characters, valid during the call. A value other than 0 stops
 * the stream, which returns it. */
typedef int (*tw_utf8_sink)(void *context, const char *text, size_t n);

/* Zero-initialise it. */
struct tw_utf8_stream {
    uint8_t pending[4]; /* the first n bytes of a character that needs `need` */
    uint8_t n, need;
    uint8_t low, high; /* the range of the next byte */
};

/* Takes `n` bytes and passes every character that they complete to the sink; keeps an incomplete
 * one. Returns 0, or the sink's value if that is not 0; the rest of the bytes is then lost. */
int tw_utf8_push(struct tw_utf8_stream *stream, const char *bytes, size_t n, tw_utf8_sink sink,
                 void *context);

/* Ends the text: passes U+FFFD to the sink if a character is still incomplete. The stream is empty
 * afterwards. Returns 0 or the sink's value. */
int tw_utf8_flush(struct tw_utf8_stream *stream, tw_utf8_sink sink, void *context);

/* Returns the length (1 to 4) of the well-formed character that `text` begins with; 0 if there is
 * none. */
size_t tw_utf8_char(const char *text, size_t n);

#endif
