/* SPDX-License-Identifier: Apache-2.0
 *
 * Large vocabularies (big_vocab.h): the file is written key by key into a buffer that grows.
 */
#include "tests/support/big_vocab.h"

#include "loader/base/grow.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { U32 = 4, I32 = 5, F32 = 6, STRING = 8, ARRAY = 9 };

struct out {
    uint8_t *bytes;
    size_t n, room;
    bool failed;
};

static void put(struct out *o, const void *bytes, size_t n) {
    if (o->failed || !tw_grow(&o->bytes, &o->room, o->n + n, 1)) {
        o->failed = true;
        return;
    }
    memcpy(o->bytes + o->n, bytes, n);
    o->n += n;
}

static void put_u32(struct out *o, uint32_t value) {
    put(o, &value, sizeof value); /* this is a little-endian machine */
}

static void put_text(struct out *o, const char *text) {
    uint64_t n = strlen(text);
    put(o, &n, sizeof n);
    put(o, text, (size_t)n);
}

static void put_key(struct out *o, const char *key, uint32_t type) {
    put_text(o, key);
    put_u32(o, type);
}

static void put_array(struct out *o, const char *key, uint32_t type, uint64_t count) {
    put_key(o, key, ARRAY);
    put_u32(o, type);
    put(o, &count, sizeof count);
}

/* Writes token `id` as byte-level BPE spells it, and the length of the part that its merge has on
 * the left. */
static uint32_t word(uint32_t id, char *text) {
    uint32_t i = id - 256, letters = 2, count = 26 * 26;
    if (id < 256) {
        bool plain = (id >= 0x21 && id <= 0x7E) || (id >= 0xA1 && id != 0xAD);
        uint32_t c = plain ? id : 0x100 + (id < 0x21 ? id : id < 0xA1 ? id - 0x7F + 33 : 67);
        snprintf(text, 8, "%c%c", (int)(c < 0x80 ? c : 0xC0 | c >> 6), (int)(0x80 | (c & 0x3F)));
        text[c < 0x80 ? 1 : 2] = 0;
        return 0;
    }
    for (; i >= count; count *= 26, letters++) {
        i -= count;
    }
    text[letters] = 0;
    for (uint32_t k = letters; k-- > 0; i /= 26) {
        text[k] = (char)('a' + i % 26);
    }
    return letters - 1;
}

static void put_merges(struct out *o, uint32_t n) {
    put_array(o, "tokenizer.ggml.merges", STRING, n - 256);
    for (uint32_t id = 256; id < n; id++) {
        char text[8], merge[16];
        uint32_t left = word(id, text);
        snprintf(merge, sizeof merge, "%.*s %s", (int)left, text, text + left);
        put_text(o, merge);
    }
}

uint8_t *big_vocab_gguf(uint32_t n_tokens, int byte_level, size_t *size) {
    struct out o = {.n = 0};
    const uint64_t counts[] = {0, byte_level ? 6u : 5u};
    put(&o, "GGUF\3\0\0\0", 8);
    put(&o, counts, sizeof counts);
    put_key(&o, "general.architecture", STRING);
    put_text(&o, "llama");
    put_key(&o, "tokenizer.ggml.model", STRING);
    put_text(&o, byte_level ? "gpt2" : "llama");
    put_array(&o, "tokenizer.ggml.tokens", STRING, n_tokens);
    for (uint32_t id = 0; id < n_tokens; id++) {
        char text[8];
        (void)word(id, text);
        put_text(&o, id == 0 && !byte_level ? "\xE2\x96\x81" : text);
    }
    put_array(&o, "tokenizer.ggml.token_type", I32, n_tokens);
    for (uint32_t id = 0; id < n_tokens; id++) {
        put_u32(&o, 1);
    }
    if (byte_level) {
        put_key(&o, "tokenizer.ggml.pre", STRING);
        put_text(&o, "gpt-4o");
        put_merges(&o, n_tokens);
    } else {
        put_array(&o, "tokenizer.ggml.scores", F32, n_tokens);
        for (uint32_t id = 0; id < n_tokens; id++) {
            float score = -(float)id;
            put(&o, &score, sizeof score);
        }
    }
    if (o.failed) {
        free(o.bytes);
        return NULL;
    }
    *size = o.n;
    return o.bytes;
}
