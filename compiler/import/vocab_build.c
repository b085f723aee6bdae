/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary builder (vocab_build.h): one allocation laid out as tilewright/vocab.h says.
 */
#include "compiler/import/vocab_build.h"

#include "compiler/import/hparams.h"
#include "loader/bundle/vocab_open.h"
#include "tilewright/range.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
}

enum tw_token_type tw_vocab_guess_type(const void *piece, uint64_t length) {
    const char *s = piece;
    bool byte =
        length == 6 && memcmp(s, "<0x", 3) == 0 && is_hex(s[3]) && is_hex(s[4]) && s[5] == '>';
    return byte ? TW_TOKEN_BYTE : TW_TOKEN_NORMAL;
}

int tw_vocab_begin(struct tw_vocab_builder *b, const char *path, uint64_t n_tokens, uint64_t bytes,
                   struct tw_import_memory *memory, tw_error *err) {
    *b = (struct tw_vocab_builder){.path = path};
    if (n_tokens == 0 || n_tokens > TW_MAX_VOCAB) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: the vocabulary has %" PRIu64 " tokens, expected 1 to %u", path,
                       n_tokens, TW_MAX_VOCAB);
    }
    if (bytes >= UINT32_MAX) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: the vocabulary's pieces have %" PRIu64 " bytes, expected at most %u",
                       path, bytes, UINT32_MAX - 1);
    }
    uint64_t types_bytes = (n_tokens + 3) / 4 * 4;
    uint64_t size = sizeof *b->header + n_tokens * 4 + (n_tokens + 1) * 4 + types_bytes + bytes;
    b->header = tw_import_alloc(memory, size, 1);
    if (!b->header) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for a vocabulary of %" PRIu64 " bytes", path,
                       size);
    }
    b->size = (size_t)size;
    uint8_t *at = (uint8_t *)(b->header + 1);
    b->scores = (float *)(void *)at;
    b->offsets = (uint32_t *)(void *)(at + n_tokens * sizeof *b->scores);
    b->types = (uint8_t *)(b->offsets + n_tokens + 1);
    b->bytes = (char *)b->types + types_bytes;
    b->header->magic = TW_VOCAB_MAGIC;
    b->header->kind = TW_VOCAB_SPM_BPE;
    b->header->n_tokens = (uint32_t)n_tokens;
    b->header->bytes_size = (uint32_t)bytes;
    b->header->bos = b->header->eos = b->header->unk = b->header->pad = TW_NONE;
    return 0;
}

int tw_vocab_put(struct tw_vocab_builder *b, float score, enum tw_token_type type, uint64_t length,
                 char **piece, tw_error *err) {
    uint32_t i = b->next;
    uint32_t at = b->offsets[i];
    if (i >= b->header->n_tokens || !tw_range_ok(at, length, b->header->bytes_size)) {
        return tw_fail(err, TW_E_INTERNAL,
                       "%s: token %u exceeds the size that the vocabulary was created with",
                       b->path, i);
    }
    if (!isfinite(score)) {
        return tw_fail(err, TW_E_RANGE, "%s: the score of token %u is %g, expected a finite number",
                       b->path, i, (double)score);
    }
    b->scores[i] = score;
    b->types[i] = (uint8_t)type;
    b->offsets[i + 1] = at + (uint32_t)length;
    b->next = i + 1;
    *piece = b->bytes + at;
    return 0;
}

int tw_vocab_finish(struct tw_vocab_builder *b, struct tw_model *model, tw_error *err) {
    struct tw_vocab view;
    if (b->header->bos == TW_NONE) {
        b->header->flags &= ~(uint32_t)(TW_VOCAB_ADD_BOS | TW_VOCAB_STOP_AT_BOS);
    }
    if (b->header->eos == TW_NONE) {
        b->header->flags &= ~(uint32_t)TW_VOCAB_ADD_EOS;
    }
    int rc = tw_vocab_open(b->header, b->size, &view, err);
    if (rc) {
        tw_error_prefix(err, b->path);
        return rc;
    }
    model->vocab = b->header;
    model->vocab_bytes = b->size;
    return 0;
}
