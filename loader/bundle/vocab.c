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

#define FLAGS_1 (TW_VOCAB_ADD_BOS | TW_VOCAB_ADD_EOS | TW_VOCAB_SPACE_PREFIX | TW_VOCAB_STOP_AT_BOS)
#define FLAGS_2                                                                    \
    (FLAGS_1 | TW_VOCAB_IGNORE_MERGES | TW_VOCAB_SQUEEZE | TW_VOCAB_PLAIN_SPACES | \
     TW_VOCAB_SPACE_SUFFIX | TW_VOCAB_PREFIX_AT_START | TW_VOCAB_PREFIX_IF_NONE)
#define SHOWN 40u /* bytes of a piece in a message */

/* Where the parts of a blob begin. */
struct parts {
    uint64_t scores, offsets, merges, types, bytes, charsmap, ends, size;
};

static bool is_first_form(const struct tw_vocab *v) {
    return v->header.magic == TW_VOCAB_MAGIC_1;
}

/* ---- headers ---- */

static int read_headers(const void *blob, size_t size, struct tw_vocab *v, tw_error *err) {
    struct tw_vocab_header *h = &v->header;
    if (size < sizeof *h) {
        return tw_fail(err, TW_E_TRUNCATED, "vocabulary: %zu bytes, expected at least %zu", size,
                       sizeof *h);
    }
    if (!blob || (uintptr_t)blob % 4 != 0) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: not aligned to 4 bytes");
    }
    memcpy(h, blob, sizeof *h);
    if (h->magic == TW_VOCAB_MAGIC_1) {
        v->extra.n_ends = h->n_ends;
        v->extra.n_scores = h->n_tokens;
        return 0;
    }
    if (h->magic != TW_VOCAB_MAGIC) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: magic is 0x%08x, expected 0x%08x", h->magic,
                       TW_VOCAB_MAGIC);
    }
    if (size < sizeof *h + sizeof v->extra) {
        return tw_fail(err, TW_E_TRUNCATED, "vocabulary: %zu bytes, expected at least %zu", size,
                       sizeof *h + sizeof v->extra);
    }
    memcpy(&v->extra, (const uint8_t *)blob + sizeof *h, sizeof v->extra);
    return 0;
}

static int check_header(const struct tw_vocab *v, tw_error *err) {
    const struct tw_vocab_header *h = &v->header;
    uint32_t last = is_first_form(v) ? TW_VOCAB_SPM_BPE : TW_VOCAB_MERGE_BPE;
    uint32_t known = is_first_form(v) ? FLAGS_1 : FLAGS_2;
    uint32_t max_ends = is_first_form(v) ? TW_VOCAB_MAX_ENDS : TW_VOCAB_MAX_EXTRA_ENDS;
    if (h->kind < TW_VOCAB_SPM_BPE || h->kind > last) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: kind is %u, expected 1 to %u", h->kind, last);
    }
    if (h->n_tokens == 0 || h->n_tokens > TW_MAX_VOCAB) {
        return tw_fail(err, TW_E_RANGE, "vocabulary: %u tokens, expected 1 to %u", h->n_tokens,
                       TW_MAX_VOCAB);
    }
    if (h->flags & ~known) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: flags are 0x%x, known flags are 0x%x",
                       h->flags, known);
    }
    if (v->extra.n_ends > max_ends) {
        return tw_fail(err, TW_E_RANGE,
                       "vocabulary: %u ids besides eos end a text, expected 0 to %u",
                       v->extra.n_ends, max_ends);
    }
    return 0;
}

static int check_pre(const struct tw_vocab *v, tw_error *err) {
    const char *pre = v->extra.pre;
    size_t n = strnlen(pre, TW_PRE_NAME_BYTES);
    bool wanted = v->header.kind == TW_VOCAB_BYTE_BPE, good = n < TW_PRE_NAME_BYTES;
    for (size_t i = n; i < TW_PRE_NAME_BYTES; i++) {
        good = good && pre[i] == 0;
    }
    if (!good || wanted != (n > 0)) {
        return tw_fail(err, TW_E_FORMAT,
                       "vocabulary: the name of the pre-tokenizer is \"%.*s\", expected %s", (int)n,
                       pre, wanted ? "a name, padded with NUL" : "none for this kind");
    }
    return 0;
}

static int check_count(const char *what, uint32_t count, uint32_t max, tw_error *err) {
    return count <= max
               ? 0
               : tw_fail(err, TW_E_RANGE, "vocabulary: %u %s, expected 0 to %u", count, what, max);
}

static int check_extra(const struct tw_vocab *v, tw_error *err) {
    const struct tw_vocab_extra *x = &v->extra;
    const struct tw_vocab_header *h = &v->header;
    bool scored = h->kind == TW_VOCAB_SPM_BPE || h->kind == TW_VOCAB_UNIGRAM;
    bool merged = h->kind == TW_VOCAB_BYTE_BPE || h->kind == TW_VOCAB_MERGE_BPE;
    if (is_first_form(v)) {
        return 0;
    }
    if (x->n_scores != (scored ? h->n_tokens : 0)) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: %u scores, expected %u", x->n_scores,
                       scored ? h->n_tokens : 0);
    }
    if (h->n_ends || h->end[0] || h->end[1] || x->reserved[0] || x->reserved[1] ||
        x->special[TW_SPECIALS - 1] != TW_NONE) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: a reserved word is not empty");
    }
    int rc = check_pre(v, err);
    rc = rc ? rc : check_count("merges", x->n_merges, merged ? TW_MAX_VOCAB : 0, err);
    return rc ? rc
              : check_count("bytes of normalisations", x->charsmap_bytes,
                            h->kind == TW_VOCAB_UNIGRAM ? TW_VOCAB_MAX_CHARSMAP_BYTES : 0, err);
}

/* ---- ids ---- */

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

static int check_ids(const struct tw_vocab *v, tw_error *err) {
    static const char *const names[TW_SPECIALS] = {
        "end of turn", "end of message", "separator",     "newline",
        "mask",        "FIM prefix",     "FIM suffix",    "FIM middle",
        "FIM padding", "FIM repository", "FIM separator", "reserved"};
    const struct tw_vocab_header *h = &v->header;
    bool bos = (h->flags & (TW_VOCAB_ADD_BOS | TW_VOCAB_STOP_AT_BOS)) != 0;
    int rc = check_id("bos", h->bos, h->n_tokens, bos, err);
    rc = rc ? rc : check_id("eos", h->eos, h->n_tokens, (h->flags & TW_VOCAB_ADD_EOS) != 0, err);
    rc = rc ? rc : check_id("unk", h->unk, h->n_tokens, false, err);
    rc = rc ? rc : check_id("pad", h->pad, h->n_tokens, false, err);
    for (uint32_t i = 0; i < TW_SPECIALS && rc == 0 && !is_first_form(v); i++) {
        rc = check_id(names[i], v->extra.special[i], h->n_tokens, false, err);
    }
    return rc;
}

/* Checks the ids that end a text besides eos; unused entries of the first form must be zero. */
static int check_ends(const struct tw_vocab *v, tw_error *err) {
    const struct tw_vocab_header *h = &v->header;
    for (uint32_t i = 0; i < v->extra.n_ends; i++) {
        if (v->ends[i] >= h->n_tokens) {
            return tw_fail(err, TW_E_RANGE, "vocabulary: end token %u is %u, expected below %u", i,
                           v->ends[i], h->n_tokens);
        }
    }
    for (uint32_t i = v->extra.n_ends; is_first_form(v) && i < TW_VOCAB_MAX_ENDS; i++) {
        if (h->end[i] != 0) {
            return tw_fail(err, TW_E_FORMAT,
                           "vocabulary: end token %u is %u, expected 0: only %u are used", i,
                           h->end[i], h->n_ends);
        }
    }
    return 0;
}

/* ---- parts ---- */

static uint64_t padded(uint64_t bytes) {
    return (bytes + 3) / 4 * 4;
}

/* Every count is bounded by 32 bits, so nothing here can overflow. */
static struct parts find_parts(const struct tw_vocab *v) {
    const struct tw_vocab_extra *x = &v->extra;
    struct parts p = {0};
    uint64_t n = v->header.n_tokens;
    bool first = is_first_form(v);
    p.scores = sizeof v->header + (first ? 0 : sizeof *x);
    p.offsets = p.scores + (uint64_t)4 * x->n_scores;
    p.merges = p.offsets + 4 * (n + 1);
    p.types = p.merges + (uint64_t)x->n_merges * sizeof *v->merges;
    p.bytes = p.types + padded(n);
    p.size = p.bytes + v->header.bytes_size;
    if (first) {
        p.ends = offsetof(struct tw_vocab_header, end);
        return p;
    }
    p.charsmap = padded(p.size);
    p.ends = p.charsmap + padded(x->charsmap_bytes);
    p.size = p.ends + (uint64_t)4 * x->n_ends;
    return p;
}

/* Finds the parts and checks that they fill the blob. */
static int lay_out(const void *blob, size_t size, struct tw_vocab *v, tw_error *err) {
    const struct tw_vocab_header *h = &v->header;
    struct parts p = find_parts(v);
    if (size != p.size) {
        return tw_fail(err, size < p.size ? TW_E_TRUNCATED : TW_E_FORMAT,
                       "vocabulary: %zu bytes, but %u tokens with %u bytes of pieces need %" PRIu64,
                       size, h->n_tokens, h->bytes_size, p.size);
    }
    const uint8_t *base = blob;
    v->scores = v->extra.n_scores ? (const float *)(const void *)(base + p.scores) : NULL;
    v->offsets = (const uint32_t *)(const void *)(base + p.offsets);
    v->merges = (const struct tw_vocab_merge *)(const void *)(base + p.merges);
    v->types = base + p.types;
    v->bytes = (const char *)base + p.bytes;
    v->charsmap = base + p.charsmap;
    v->ends = (const uint32_t *)(const void *)(base + p.ends);
    return 0;
}

/* ---- content ---- */

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
}

static bool is_byte_piece(const char *s, uint32_t length) {
    return length == 6 && memcmp(s, "<0x", 3) == 0 && is_hex(s[3]) && is_hex(s[4]) && s[5] == '>';
}

static int check_type(const struct tw_vocab *v, uint32_t i, tw_error *err) {
    uint32_t type = v->types[i];
    uint32_t start = v->offsets[i], length = v->offsets[i + 1] - start;
    if (!is_first_form(v)) {
        type &= ~(TW_TOKEN_LSTRIP | TW_TOKEN_RSTRIP);
    }
    if (type < TW_TOKEN_NORMAL || type > TW_TOKEN_BYTE) {
        return tw_fail(err, TW_E_RANGE, "vocabulary: the type of token %u is %u, expected %d to %d",
                       i, v->types[i], TW_TOKEN_NORMAL, TW_TOKEN_BYTE);
    }
    if (type == TW_TOKEN_BYTE && !is_byte_piece(v->bytes + start, length)) {
        return tw_fail(err, TW_E_FORMAT,
                       "vocabulary: byte token %u is \"%.*s\", expected the form <0x0A>", i,
                       (int)(length < SHOWN ? length : SHOWN), v->bytes + start);
    }
    return 0;
}

static int check_token(const struct tw_vocab *v, uint32_t i, tw_error *err) {
    uint32_t start = v->offsets[i], end = v->offsets[i + 1];
    if (end < start || end > v->header.bytes_size) {
        return tw_fail(err, TW_E_FORMAT, "vocabulary: token %u spans bytes %u to %u of %u", i,
                       start, end, v->header.bytes_size);
    }
    if (v->scores && !isfinite(v->scores[i])) {
        return tw_fail(err, TW_E_RANGE, "vocabulary: the score of token %u is not a finite number",
                       i);
    }
    return check_type(v, i, err);
}

/* Returns whether the merged piece is spelled as the two together, and longer than each. */
static bool is_joined(const struct tw_vocab *v, const struct tw_vocab_merge *m) {
    uint32_t left = v->offsets[m->left], right = v->offsets[m->right], at = v->offsets[m->merged];
    uint32_t n_left = v->offsets[m->left + 1] - left, n_right = v->offsets[m->right + 1] - right;
    return n_left > 0 && n_right > 0 &&
           v->offsets[m->merged + 1] - at == (uint64_t)n_left + n_right &&
           memcmp(v->bytes + at, v->bytes + left, n_left) == 0 &&
           memcmp(v->bytes + at + n_left, v->bytes + right, n_right) == 0;
}

static int check_merges(const struct tw_vocab *v, tw_error *err) {
    uint32_t n = v->header.n_tokens;
    for (uint32_t i = 0; i < v->extra.n_merges; i++) {
        const struct tw_vocab_merge *m = &v->merges[i];
        if (m->left >= n || m->right >= n || m->merged >= n) {
            return tw_fail(err, TW_E_RANGE,
                           "vocabulary: merge %u joins tokens %u and %u to %u, expected below %u",
                           i, m->left, m->right, m->merged, n);
        }
        if (!is_joined(v, m)) {
            return tw_fail(
                err, TW_E_FORMAT,
                "vocabulary: merge %u joins tokens %u and %u to %u, which is not spelled "
                "as the two together",
                i, m->left, m->right, m->merged);
        }
    }
    return 0;
}

int tw_vocab_open(const void *blob, size_t size, struct tw_vocab *out, tw_error *err) {
    struct tw_vocab v = {0};
    *out = v;
    int rc = read_headers(blob, size, &v, err);
    rc = rc ? rc : check_header(&v, err);
    rc = rc ? rc : check_extra(&v, err);
    rc = rc ? rc : check_ids(&v, err);
    rc = rc ? rc : lay_out(blob, size, &v, err);
    rc = rc ? rc : check_ends(&v, err);
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
    rc = rc ? rc : check_merges(&v, err);
    if (rc == 0) {
        *out = v;
    }
    return rc;
}
