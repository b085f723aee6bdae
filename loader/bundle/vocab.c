/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a vocabulary blob (tilewright/vocab.h): every size, offset, id and score is checked once,
 * here, so that the tokenizer can index freely.
 */
#include "loader/bundle/vocab_open.h"

#include "tilewright/range.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define KNOWN_FLAGS \
    (TW_VOCAB_ADD_BOS | TW_VOCAB_ADD_EOS | TW_VOCAB_SPACE_PREFIX | TW_VOCAB_STOP_AT_BOS)

static int check_header(const void *blob, size_t size, struct tw_vocab_header *h, tw_error *err) {
    if (size < sizeof *h) {
        return tw_fail(err, TW_E_TRUNCATED, "vocabulary: %zu bytes, expected at least %zu", size,
                       sizeof *h);
    }
    if (!blob || (uintptr_t)blob % 4 != 0) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: not aligned to 4 bytes");
    }
    memcpy(h, blob, sizeof *h);
    if (h->magic != TW_VOCAB_MAGIC) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: magic is 0x%08x, expected 0x%08x", h->magic,
                       TW_VOCAB_MAGIC);
    }
    if (h->kind != TW_VOCAB_SPM_BPE) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: kind is %u, expected %d", h->kind,
                       TW_VOCAB_SPM_BPE);
    }
    if (h->n_tokens == 0 || h->n_tokens > TW_MAX_VOCAB) {
        return tw_fail(err, TW_E_RANGE, "vocabulary: %u tokens, expected 1 to %u", h->n_tokens,
                       TW_MAX_VOCAB);
    }
    if (h->flags & ~(uint32_t)KNOWN_FLAGS) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: flags are 0x%x, known flags are 0x%x",
                       h->flags, KNOWN_FLAGS);
    }
    if (h->n_ends > TW_VOCAB_MAX_ENDS) {
        return tw_fail(err, TW_E_RANGE,
                       "vocabulary: %u ids besides eos end a text, expected 0 to %u", h->n_ends,
                       TW_VOCAB_MAX_ENDS);
    }
    return 0;
}

static int check_id(const char *what, uint32_t id, uint32_t n_tokens, bool needed, tw_error *err) {
    if (id == TW_NONE && needed) {
        return tw_fail(err, TW_E_FORMAT,
                       "vocabulary: a flag asks for the %s token, but there is none", what);
    }
    if (id != TW_NONE && id >= n_tokens) {
        return tw_fail(err, TW_E_RANGE, "vocabulary: the %s token is %u, expected below %u", what,
                       id, n_tokens);
    }
    return 0;
}

/* Checks the ids that end a text besides eos; unused entries must be zero. */
static int check_ends(const struct tw_vocab_header *h, tw_error *err) {
    int rc = 0;
    for (uint32_t i = 0; i < TW_VOCAB_MAX_ENDS && rc == 0; i++) {
        if (i >= h->n_ends && h->end[i] != 0) {
            rc = tw_fail(err, TW_E_FORMAT,
                         "vocabulary: end token %u is %u, expected 0: only %u are used", i,
                         h->end[i], h->n_ends);
        } else if (i < h->n_ends && h->end[i] >= h->n_tokens) {
            rc = tw_fail(err, TW_E_RANGE, "vocabulary: end token %u is %u, expected below %u", i,
                         h->end[i], h->n_tokens);
        }
    }
    return rc;
}

static int check_ids(const struct tw_vocab_header *h, tw_error *err) {
    bool bos = (h->flags & (TW_VOCAB_ADD_BOS | TW_VOCAB_STOP_AT_BOS)) != 0;
    int rc = check_id("bos", h->bos, h->n_tokens, bos, err);
    rc = rc ? rc : check_id("eos", h->eos, h->n_tokens, (h->flags & TW_VOCAB_ADD_EOS) != 0, err);
    rc = rc ? rc : check_id("unk", h->unk, h->n_tokens, false, err);
    rc = rc ? rc : check_id("pad", h->pad, h->n_tokens, false, err);
    return rc ? rc : check_ends(h, err);
}

/* Finds the parts and checks that they fill the blob. n_tokens is bounded, so nothing here can
 * overflow. */
static int lay_out(const void *blob, size_t size, struct tw_vocab *v, tw_error *err) {
    const struct tw_vocab_header *h = &v->header;
    uint64_t n = h->n_tokens;
    uint64_t offsets_at = sizeof *h + 4 * n;
    uint64_t types_at = offsets_at + 4 * (n + 1);
    uint64_t bytes_at = types_at + (n + 3) / 4 * 4;
    uint64_t needed = bytes_at + h->bytes_size;
    if (size != needed) {
        return tw_fail(err, size < needed ? TW_E_TRUNCATED : TW_E_FORMAT,
                       "vocabulary: %zu bytes, but %u tokens with %u bytes of pieces need %" PRIu64,
                       size, h->n_tokens, h->bytes_size, needed);
    }
    const uint8_t *base = blob;
    v->scores = (const float *)(const void *)(base + sizeof *h);
    v->offsets = (const uint32_t *)(const void *)(base + offsets_at);
    v->types = base + types_at;
    v->bytes = (const char *)base + bytes_at;
    return 0;
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
}

static bool is_byte_piece(const char *s, uint32_t length) {
    return length == 6 && memcmp(s, "<0x", 3) == 0 && is_hex(s[3]) && is_hex(s[4]) && s[5] == '>';
}

static int check_token(const struct tw_vocab *v, uint32_t i, tw_error *err) {
    uint32_t start = v->offsets[i], end = v->offsets[i + 1];
    if (end < start || end > v->header.bytes_size) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: token %u spans bytes %u to %u of %u", i,
                       start, end, v->header.bytes_size);
    }
    if (!isfinite(v->scores[i])) {
        return tw_fail(err, TW_E_RANGE, "vocabulary: the score of token %u is not a finite number",
                       i);
    }
    if (v->types[i] < TW_TOKEN_NORMAL || v->types[i] > TW_TOKEN_BYTE) {
        return tw_fail(err, TW_E_RANGE, "vocabulary: the type of token %u is %u, expected %d to %d",
                       i, v->types[i], TW_TOKEN_NORMAL, TW_TOKEN_BYTE);
    }
    if (v->types[i] == TW_TOKEN_BYTE && !is_byte_piece(v->bytes + start, end - start)) {
        return tw_fail(err, TW_E_FORMAT,
                       "vocabulary: byte token %u is \"%.*s\", expected the form <0x0A>", i,
                       (int)(end - start < 40 ? end - start : 40), v->bytes + start);
    }
    return 0;
}

int tw_vocab_open(const void *blob, size_t size, struct tw_vocab *out, tw_error *err) {
    struct tw_vocab v = {0};
    *out = v;
    int rc = check_header(blob, size, &v.header, err);
    rc = rc ? rc : check_ids(&v.header, err);
    rc = rc ? rc : lay_out(blob, size, &v, err);
    if (rc) {
        return rc;
    }
    if (v.offsets[0] != 0 || v.offsets[v.header.n_tokens] != v.header.bytes_size) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: pieces span %u to %u, expected 0 to %u",
                       v.offsets[0], v.offsets[v.header.n_tokens], v.header.bytes_size);
    }
    for (uint32_t i = 0; i < v.header.n_tokens && rc == 0; i++) {
        rc = check_token(&v, i, err);
    }
    if (rc == 0) {
        *out = v;
    }
    return rc;
}
