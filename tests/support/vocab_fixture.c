/* SPDX-License-Identifier: Apache-2.0
 *
 * Vocabularies for tests: lays the parts of the blob out and opens it (vocab_fixture.h).
 */
#include "tests/support/vocab_fixture.h"

#include "loader/bundle/vocab_open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parts {
    float *scores;
    uint32_t *offsets;
    uint8_t *types;
    char *bytes;
    uint32_t next;
};

static void put(struct parts *parts, const char *text, float score, enum tw_token_type type) {
    uint32_t at = parts->offsets[parts->next], n = (uint32_t)strlen(text);
    memcpy(parts->bytes + at, text, n);
    parts->scores[parts->next] = score;
    parts->types[parts->next] = (uint8_t)type;
    parts->offsets[++parts->next] = at + n;
}

int fixture_vocab(const struct fixture_piece *pieces, uint32_t n, int bytes,
                  struct tw_vocab_header header, struct fixture *out, tw_error *err) {
    uint32_t n_tokens = n + (bytes ? 256 : 0);
    size_t bytes_size = bytes ? 256 * 6 : 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes_size += strlen(pieces[i].text);
    }
    size_t scores_at = sizeof header, offsets_at = scores_at + 4 * (size_t)n_tokens;
    size_t types_at = offsets_at + 4 * ((size_t)n_tokens + 1),
           bytes_at = types_at + ((size_t)n_tokens + 3) / 4 * 4;
    char *blob = calloc(1, bytes_at + bytes_size);
    if (blob == NULL) {
        return tw_fail(err, TW_E_NOMEM, "fixture");
    }
    struct parts parts = {.scores = (float *)(void *)(blob + scores_at),
                          .offsets = (uint32_t *)(void *)(blob + offsets_at),
                          .types = (uint8_t *)(blob + types_at),
                          .bytes = blob + bytes_at};
    header.magic = TW_VOCAB_MAGIC_1;
    header.kind = TW_VOCAB_SPM_BPE;
    header.n_tokens = n_tokens;
    header.bytes_size = (uint32_t)bytes_size;
    memcpy(blob, &header, sizeof header);
    for (uint32_t i = 0; i < n; i++) {
        put(&parts, pieces[i].text, pieces[i].score, pieces[i].type);
    }
    for (unsigned byte = 0; bytes && byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        put(&parts, text, 0.0f, TW_TOKEN_BYTE);
    }
    out->blob = blob;
    return tw_vocab_open(blob, bytes_at + bytes_size, &out->vocab, err);
}
