/* SPDX-License-Identifier: Apache-2.0
 *
 * Text of the public API: the tokenizer of an open bundle.
 */
#include "driver/decoder/decoder.h"

#include "loader/base/sized.h"

#include <string.h>

static int need_tokenizer(const tw_decoder *decoder, tw_error *err) {
    if (decoder->tokenizer) {
        return 0;
    }
    return tw_fail(err, TW_E_UNSUPPORTED,
                   "%s: it has no tokenizer, so text cannot be read or written; use token ids "
                   "(--ids, --print-ids)",
                   decoder->bundle.path);
}

int tw_tokenize(const tw_decoder *decoder, const char *text, size_t n, unsigned flags,
                uint32_t *ids, size_t capacity, size_t *count, tw_error *err) {
    int code = TW_NEED_2(err, decoder, count);
    code = code || n == 0 ? code : TW_NEED(err, text);
    code = code || capacity == 0 ? code : TW_NEED(err, ids);
    code = code ? code
                : tw_known_flags(__func__, flags, TW_TOKENIZE_NO_BOS | TW_TOKENIZE_SPECIAL, err);
    code = code ? code : need_tokenizer(decoder, err);
    if (code) {
        return code;
    }
    unsigned f = (flags & TW_TOKENIZE_NO_BOS ? TW_ENCODE_NO_BOS : 0u) |
                 (flags & TW_TOKENIZE_SPECIAL ? TW_ENCODE_SPECIAL : 0u) | TW_ENCODE_NO_EOS |
                 TW_ENCODE_USER_DEFINED;
    struct tw_token_list list = {0};
    code = tw_tokenizer_encode(decoder->tokenizer, text, n, f, &list, err);
    if (!code) {
        *count = list.n;
        size_t fit = list.n < capacity ? list.n : capacity;
        if (fit) {
            memcpy(ids, list.ids, fit * sizeof *ids);
        }
    }
    tw_token_list_finish(&list);
    return code;
}

int tw_decoder_get_token(const tw_decoder *decoder, uint32_t id, struct tw_token_info *info,
                         tw_error *err) {
    int code = TW_NEED_2(err, decoder, info);
    code = code ? code : tw_sized_check(__func__, info, err);
    code = code ? code : need_tokenizer(decoder, err);
    struct tw_token_info i = {.size = sizeof i};
    code = code ? code
                : tw_tokenizer_piece(decoder->tokenizer, id, TW_PIECE_SPECIAL, &i.text, &i.n_text,
                                     err);
    if (!code) {
        i.is_control = tw_tokenizer_is_control(decoder->tokenizer, id);
        i.is_end = tw_tokenizer_is_end(decoder->tokenizer, id);
        tw_sized_write(info, &i, sizeof i);
    }
    return code;
}

int tw_detokenize(const tw_decoder *decoder, const uint32_t *ids, size_t count, char *text,
                  size_t capacity, size_t *n, tw_error *err) {
    int code = TW_NEED_2(err, decoder, n);
    code = code || count == 0 ? code : TW_NEED(err, ids);
    code = code || capacity == 0 ? code : TW_NEED(err, text);
    code = code ? code : need_tokenizer(decoder, err);
    return code ? code
                : tw_tokenizer_decode(decoder->tokenizer, ids, count, TW_PIECE_FIRST, text,
                                      capacity, n, err);
}
