/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of text with and without special tokens (encode_parts.h): they become one text, of which
 * the parts without are literal spans.
 */
#include "driver/tokenizer/encode_parts.h"

#include <stdlib.h>
#include <string.h>

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
                              struct tw_token_list *out, tw_error *err) {
    const unsigned flags =
        TW_ENCODE_NO_BOS | TW_ENCODE_NO_EOS | TW_ENCODE_SPECIAL | TW_ENCODE_USER_DEFINED;
    struct joined j;
    int rc = join(parts, n_parts, &j, err);
    rc = rc ? rc
            : tw_tokenizer_encode_spans(tokenizer, j.text, j.n, j.literal, j.n_literal, flags, out,
                                        err);
    free(j.text);
    free(j.literal);
    return rc;
}
