/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of a hand-written program by name, for tests of texts that show them: so that a test does
 * not change when the program gets another buffer.
 */
#ifndef TW_TESTS_SUPPORT_NAMED_IDS_H
#define TW_TESTS_SUPPORT_NAMED_IDS_H

#include <inttypes.h>
#include <stdio.h>

#include "tests/support/hand_program.h"

/* The first buffer of a name. */
static inline uint32_t pb_buffer_named(const struct pb *b, const char *name, size_t bytes) {
    for (uint32_t i = 0; i < b->p.n_buffers; i++) {
        const char *of = b->strings + b->buffers[i].name;
        if (strlen(of) == bytes && memcmp(of, name, bytes) == 0) {
            return i;
        }
    }
    pb_require(false, "no buffer of this name");
    return 0;
}

static inline uint64_t pb_number_named(const struct pb *b, const char *name, size_t bytes) {
    if (bytes == 7 && memcmp(name, "buffers", 7) == 0) {
        return b->p.n_buffers;
    }
    if (bytes > 6 && memcmp(name, "words:", 6) == 0) {
        return b->streams[strtoul(name + 6, NULL, 10)].n_words;
    }
    if (bytes > 3 && memcmp(name, "at:", 3) == 0) {
        return b->buffers[pb_buffer_named(b, name + 3, bytes - 3)].offset;
    }
    return pb_buffer_named(b, name, bytes);
}

/* Copies a text with the numbers that it names:
 *
 *     $kf        id of the first buffer named kf (its sibling on site 1 is $kf+1)
 *     $at:kf     where that buffer lies
 *     $buffers   how many buffers there are
 *     $words:1   how many words stream 1 has
 *
 * each with +N or -N behind it to add or take away. */
static inline void pb_with_ids(const struct pb *b, const char *text, char *out, size_t size) {
    size_t used = 0;
    while (*text) {
        if (*text != '$') {
            pb_require(used + 1 < size, "the text is too long");
            out[used++] = *text++;
            continue;
        }
        size_t n = strspn(++text, "abcdefghijklmnopqrstuvwxyz0123456789:");
        uint64_t number = pb_number_named(b, text, n);
        text += n;
        if ((*text == '+' || *text == '-') && text[1] >= '0' && text[1] <= '9') {
            char *end;
            number += (uint64_t)strtol(text, &end, 10);
            text = end;
        }
        used += (size_t)snprintf(out + used, size - used, "%" PRIu64, number);
        pb_require(used < size, "the text is too long");
    }
    out[used] = 0;
}

#endif
