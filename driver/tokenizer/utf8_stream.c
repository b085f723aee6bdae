/* SPDX-License-Identifier: Apache-2.0
 *
 * The UTF-8 stream (utf8_stream.h): a state machine for Table 3-7, whose state is the pending bytes
 * and the range of the next one. Whole characters are collected in a small buffer, so that most
 * pushes call the sink only once.
 */
#include "driver/tokenizer/utf8_stream.h"

#include <stdbool.h>
#include <string.h>

/* Returns the length of the character that begins with `lead`, and stores the range of its second
 * byte; 0 if no character begins with it. */
static unsigned lead_length(uint8_t lead, uint8_t *low, uint8_t *high) {
    *low = 0x80;
    *high = 0xBF;
    if (lead < 0x80) {
        return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return 0;
    }
    switch (lead) {
    case 0xE0: /* below: overlong */
        *low = 0xA0;
        break;
    case 0xED: /* above: surrogates */
        *high = 0x9F;
        break;
    case 0xF0: /* below: overlong */
        *low = 0x90;
        break;
    case 0xF4: /* above: beyond U+10FFFF */
        *high = 0x8F;
        break;
    default:
        break;
    }
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

size_t tw_utf8_char(const char *text, size_t n) {
    uint8_t low, high;
    if (n == 0) {
        return 0;
    }
    unsigned length = lead_length((uint8_t)text[0], &low, &high);
    if (length > n) {
        return 0;
    }
    for (unsigned i = 1; i < length; i++) {
        uint8_t byte = (uint8_t)text[i];
        if (byte < low || byte > high) {
            return 0;
        }
        low = 0x80;
        high = 0xBF;
    }
    return length;
}

/* Collects what goes to the sink. */
struct out {
    char text[128];
    size_t n;
    tw_utf8_sink sink;
    void *context;
};

static int drain(struct out *out) {
    size_t n = out->n;
    out->n = 0;
    return n != 0 ? out->sink(out->context, out->text, n) : 0;
}

static int put(struct out *out, const void *text, size_t n) {
    if (n > sizeof out->text - out->n) {
        int stopped = drain(out);
        if (stopped) {
            return stopped;
        }
    }
    memcpy(out->text + out->n, text, n);
    out->n += n;
    return 0;
}

static int put_replacement(struct out *out) {
    return put(out, "\xEF\xBF\xBD", 3);
}

/* Takes a byte where a character begins. */
static int begin(struct tw_utf8_stream *stream, uint8_t byte, struct out *out) {
    unsigned need = lead_length(byte, &stream->low, &stream->high);
    if (need == 0) {
        return put_replacement(out);
    }
    if (need == 1) {
        return put(out, &byte, 1);
    }
    stream->pending[0] = byte;
    stream->n = 1;
    stream->need = (uint8_t)need;
    return 0;
}

static int take(struct tw_utf8_stream *stream, uint8_t byte, struct out *out) {
    if (stream->n == 0) {
        return begin(stream, byte, out);
    }
    if (byte < stream->low || byte > stream->high) {
        /* The pending bytes are a maximal subpart: one replacement for all of them, and this byte
         * begins a new character. */
        stream->n = 0;
        int stopped = put_replacement(out);
        return stopped ? stopped : begin(stream, byte, out);
    }
    stream->pending[stream->n++] = byte;
    stream->low = 0x80;
    stream->high = 0xBF;
    if (stream->n < stream->need) {
        return 0;
    }
    stream->n = 0;
    return put(out, stream->pending, stream->need);
}

int tw_utf8_push(struct tw_utf8_stream *stream, const char *bytes, size_t n, tw_utf8_sink sink,
                 void *context) {
    struct out out = {.n = 0, .sink = sink, .context = context};
    for (size_t i = 0; i < n; i++) {
        int stopped = take(stream, (uint8_t)bytes[i], &out);
        if (stopped) {
            return stopped;
        }
    }
    return drain(&out);
}

int tw_utf8_flush(struct tw_utf8_stream *stream, tw_utf8_sink sink, void *context) {
    bool incomplete = stream->n != 0;
    stream->n = 0;
    return incomplete ? sink(context, "\xEF\xBF\xBD", 3) : 0;
}
