/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of text with and without special tokens (encode_parts.h): collects plain text up to the
 * next special token of a part that may have some, and encodes it.
 */
#include "driver/tokenizer/encode_parts.h"
#include "driver/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

/* Plain text that is not encoded yet. */
struct stretch {
    char *text;
    size_t n;
};

static int encode_stretch(const struct tw_tokenizer *tokenizer, struct stretch *s,
                          struct tw_token_list *out, tw_error *err) {
    size_t n = s->n;
    s->n = 0;
    return n ? tw_tokenizer_encode(tokenizer, s->text, n,
                                   TW_ENCODE_NO_BOS | TW_ENCODE_NO_EOS | TW_ENCODE_USER_DEFINED,
                                   out, err)
             : 0;
}

/* Appends a special token, which tw_tokenizer_encode recognises by its spelling. */
static int append_marker(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                         struct tw_token_list *out, tw_error *err) {
    return tw_tokenizer_encode(tokenizer, text, n,
                               TW_ENCODE_NO_BOS | TW_ENCODE_NO_EOS | TW_ENCODE_SPECIAL, out, err);
}

static int encode_part(const struct tw_tokenizer *tokenizer, const struct tw_text_part *part,
                       struct stretch *s, struct tw_token_list *out, tw_error *err) {
    int rc = 0;
    for (size_t at = 0; at < part->n && rc == 0;) {
        uint32_t length = 0;
        uint32_t id = part->special
                          ? tw_marker_find(tokenizer, part->text + at, part->n - at, false)
                          : TW_NONE;
        if (id == TW_NONE) {
            s->text[s->n++] = part->text[at++];
            continue;
        }
        (void)tw_piece_raw(&tokenizer->vocab, id, &length);
        rc = encode_stretch(tokenizer, s, out, err);
        rc = rc ? rc : append_marker(tokenizer, part->text + at, length, out, err);
        at += length;
    }
    return rc;
}

int tw_tokenizer_encode_parts(const struct tw_tokenizer *tokenizer,
                              const struct tw_text_part *parts, size_t n_parts,
                              struct tw_token_list *out, tw_error *err) {
    size_t total = 0, before = out->n;
    for (size_t i = 0; i < n_parts; i++) {
        total += parts[i].n;
    }
    struct stretch s = {.text = malloc(total + 1)};
    int rc = s.text ? 0 : tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for %zu bytes", total);
    for (size_t i = 0; i < n_parts && rc == 0; i++) {
        rc = encode_part(tokenizer, &parts[i], &s, out, err);
    }
    rc = rc ? rc : encode_stretch(tokenizer, &s, out, err);
    out->n = rc ? before : out->n;
    free(s.text);
    return rc;
}
