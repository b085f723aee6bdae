/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the tokenizer, the detokenizer and the UTF-8 stream. Input: a byte of encode flags, a byte
 * that chooses the vocabulary (0: the blob that follows, else a built-in one), for a blob its size
 * (16 bits, little-endian) and its bytes; the rest is the text. With a built-in vocabulary the text
 * must survive encoding and decoding, and what is streamed must be well-formed.
 */
#include "driver/tokenizer/tokenizer.h"
#include "driver/tokenizer/utf8_stream.h"
#include "loader/bundle/vocab_open.h"
#include "tests/support/vocab_fixture.h"

#include "tilewright/machine.h"

#include <stdlib.h>
#include <string.h>

#define BLANK "\xE2\x96\x81"

static const struct fixture_piece pieces[] = {
    {"<unk>", 0, TW_TOKEN_UNKNOWN},   {"<s>", 0, TW_TOKEN_CONTROL},
    {"</s>", 0, TW_TOKEN_CONTROL},    {"<s><s>", 0, TW_TOKEN_CONTROL},
    {"u", 0, TW_TOKEN_USER_DEFINED},  {BLANK, -3, TW_TOKEN_NORMAL},
    {"a", -3, TW_TOKEN_NORMAL},       {"b", -3, TW_TOKEN_NORMAL},
    {"ab", -1, TW_TOKEN_NORMAL},      {"ba", -1, TW_TOKEN_NORMAL},
    {"aa", -2, TW_TOKEN_NORMAL},      {"abab", -2, TW_TOKEN_NORMAL},
    {BLANK "a", -1, TW_TOKEN_NORMAL}, {"a" BLANK "b", 0, TW_TOKEN_NORMAL},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition) {
    if (!condition) {
        abort();
    }
}

static int check_stream(void *context, const char *text, size_t n) {
    (void)context;
    require(n > 0);
    for (size_t at = 0, length; at < n; at += length) {
        length = tw_utf8_char(text + at, n - at);
        require(length > 0);
    }
    return 0;
}

static void stream_all(const char *text, size_t n) {
    struct tw_utf8_stream stream = {.n = 0};
    for (size_t at = 0; at < n;) {
        size_t part = 1 + (uint8_t)text[at] % 7;
        part = part < n - at ? part : n - at;
        require(tw_utf8_push(&stream, text + at, part, check_stream, NULL) == 0);
        at += part;
    }
    require(tw_utf8_flush(&stream, check_stream, NULL) == 0);
    require(stream.n == 0);
}

static void run(const struct tw_vocab *vocab, unsigned flags, const char *text, size_t n,
                int must_survive) {
    struct tw_tokenizer *tokenizer;
    struct tw_token_list list = {.n = 0};
    tw_error err = {0};
    size_t length;
    if (tw_tokenizer_create(vocab, &tokenizer, &err) != 0) {
        require(err.code != 0 && !must_survive);
        return;
    }
    if (tw_tokenizer_encode(tokenizer, text, n, flags, &list, &err) == 0) {
        /* The text after a special token gets a blank in front, so only text without special tokens
         * survives unchanged. */
        int plain = !(flags & (TW_ENCODE_SPECIAL | TW_ENCODE_USER_DEFINED));
        require(tw_tokenizer_decode(tokenizer, list.ids, list.n, TW_PIECE_FIRST, NULL, 0, &length,
                                    &err) == 0);
        char *back = malloc(length + 1);
        require(back != NULL);
        require(tw_tokenizer_decode(tokenizer, list.ids, list.n, TW_PIECE_FIRST, back, length,
                                    &length, &err) == 0);
        stream_all(back, length);
        if (must_survive && plain && memmem(text, n, BLANK, 3) == NULL) {
            require(length == n && memcmp(back, text, n) == 0);
        }
        free(back);
    } else {
        require(err.code != 0 && list.n == 0 && !must_survive);
    }
    tw_token_list_finish(&list);
    tw_tokenizer_destroy(tokenizer);
}

static void run_blob(unsigned flags, const uint8_t *data, size_t size) {
    struct tw_vocab vocab;
    if (size < 2) {
        return;
    }
    size_t blob_size = data[0] | (size_t)data[1] << 8;
    blob_size = blob_size < size - 2 ? blob_size : size - 2;
    void *blob = malloc(blob_size + 1);
    require(blob != NULL);
    memcpy(blob, data + 2, blob_size);
    if (tw_vocab_open(blob, blob_size, &vocab, NULL) == 0) {
        run(&vocab, flags, (const char *)data + 2 + blob_size, size - 2 - blob_size, 0);
    }
    free(blob);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fixture fixture = {.blob = NULL};
    if (size < 2) {
        return 0;
    }
    unsigned flags = data[0], choice = data[1];
    if (choice == 0) {
        run_blob(flags, data + 2, size - 2);
        return 0;
    }
    struct tw_vocab_header header = {
        .flags = choice & 7, .bos = 1, .eos = 2, .unk = choice & 16 ? TW_NONE : 0, .pad = TW_NONE};
    int bytes = !(choice & 8);
    require(fixture_vocab(pieces, sizeof pieces / sizeof *pieces, bytes, header, &fixture, NULL) ==
            0);
    run(&fixture.vocab, flags, (const char *)data + 2, size - 2, bytes);
    free(fixture.blob);
    return 0;
}
