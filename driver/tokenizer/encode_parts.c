/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of text with and without special tokens (encode_parts.h): they become one text, of which
 * the parts without are literal spans.
 */
#include "driver/tokenizer/encode_parts.h"
#include "driver/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- reserved pieces ---- */

static size_t set_bytes(const struct tw_tokenizer *tokenizer) {
    return (size_t)tokenizer->vocab.header.n_tokens / 8 + 1;
}

static bool is_in_brackets(const struct tw_tokenizer *tokenizer, uint32_t id) {
    uint32_t n;
    const char *piece = tw_piece_raw(&tokenizer->vocab, id, &n);
    return n >= 3 &&
           ((piece[0] == '<' && piece[n - 1] == '>') || (piece[0] == '[' && piece[n - 1] == ']'));
}

static int need_bits(struct tw_reserved *reserved, const struct tw_tokenizer *tokenizer,
                     tw_error *err) {
    reserved->bits = reserved->bits ? reserved->bits : calloc(1, set_bytes(tokenizer));
    return reserved->bits ? 0
                          : tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for %zu bytes",
                                    set_bytes(tokenizer));
}

int tw_reserved_add(struct tw_reserved *reserved, const struct tw_tokenizer *tokenizer,
                    const char *text, size_t n, tw_error *err) {
    int rc = need_bits(reserved, tokenizer, err);
    for (size_t at = 0; at < n && rc == 0; at++) {
        bool bracket = text[at] == '<' || text[at] == '[';
        uint32_t id = bracket ? tw_marker_find(tokenizer, text + at, n - at, true, NULL) : TW_NONE;
        if (id != TW_NONE && is_in_brackets(tokenizer, id)) {
            reserved->bits[id / 8] |= (uint8_t)(1u << id % 8);
        }
    }
    return rc;
}

int tw_reserved_copy(const struct tw_reserved *from, const struct tw_tokenizer *tokenizer,
                     struct tw_reserved *out, tw_error *err) {
    *out = (struct tw_reserved){0};
    int rc = need_bits(out, tokenizer, err);
    if (rc == 0 && from->bits) {
        memcpy(out->bits, from->bits, set_bytes(tokenizer));
    }
    return rc;
}

void tw_reserved_finish(struct tw_reserved *reserved) {
    free(reserved->bits);
    *reserved = (struct tw_reserved){0};
}

/* ---- parts ---- */

/* The parts as one text. */
struct joined {
    char *text;
    size_t n;
    struct tw_text_span *literal;
    size_t n_literal;
};

static int join(const struct tw_text_part *parts, size_t n_parts, struct joined *j, tw_error *err) {
    size_t total = 0;
    for (size_t i = 0; i < n_parts; i++) {
        total += parts[i].n;
    }
    *j = (struct joined){.text = malloc(total + 1),
                         .literal = calloc(n_parts + 1, sizeof *j->literal)};
    if (!j->text || !j->literal) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for %zu bytes", total);
    }
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].n == 0) {
            continue;
        }
        if (!parts[i].special) {
            j->literal[j->n_literal++] = (struct tw_text_span){j->n, parts[i].n};
        }
        memcpy(j->text + j->n, parts[i].text, parts[i].n);
        j->n += parts[i].n;
    }
    return 0;
}

int tw_tokenizer_encode_parts(const struct tw_tokenizer *tokenizer,
                              const struct tw_text_part *parts, size_t n_parts,
                              const struct tw_reserved *reserved, struct tw_token_list *out,
                              tw_error *err) {
    const unsigned flags =
        TW_ENCODE_NO_BOS | TW_ENCODE_NO_EOS | TW_ENCODE_SPECIAL | TW_ENCODE_USER_DEFINED;
    struct joined j;
    int rc = join(parts, n_parts, &j, err);
    rc = rc ? rc
            : tw_tokenizer_encode_reserving(tokenizer, j.text, j.n, j.literal, j.n_literal,
                                            reserved ? reserved->bits : NULL, flags, out, err);
    free(j.text);
    free(j.literal);
    return rc;
}
