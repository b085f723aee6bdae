/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary builder (vocab_build.h): one allocation laid out as tilewright/vocab.h says, with
 * room for the greatest number of ends, which come last.
 */
#include "compiler/import/vocab_build.h"

#include "compiler/import/hparams.h"
#include "loader/base/assert.h"
#include "loader/bundle/vocab_open.h"
#include "tilewright/range.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Maximum probes of a look-up: at most half of the slots are taken, so only pieces crafted to
 * collide need more. */
#define PROBES_MAX 1024u

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
}

enum tw_token_type tw_vocab_guess_type(const void *piece, uint64_t length) {
    const char *s = piece;
    bool byte =
        length == 6 && memcmp(s, "<0x", 3) == 0 && is_hex(s[3]) && is_hex(s[4]) && s[5] == '>';
    return byte ? TW_TOKEN_BYTE : TW_TOKEN_NORMAL;
}

/* ---- sizes ---- */

static uint64_t padded(uint64_t bytes) {
    return (bytes + 3) / 4 * 4;
}

static int check_size(const char *path, const char *what, uint64_t size, uint64_t max,
                      tw_error *err) {
    return size <= max ? 0
                       : tw_fail(err, TW_E_RANGE,
                                 "%s: the vocabulary has %" PRIu64 " %s, expected at most %" PRIu64,
                                 path, size, what, max);
}

static int check_sizes(const char *path, const struct tw_vocab_sizes *s, tw_error *err) {
    if (s->n_tokens == 0 || s->n_tokens > TW_MAX_VOCAB) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: the vocabulary has %" PRIu64 " tokens, expected 1 to %u", path,
                       s->n_tokens, TW_MAX_VOCAB);
    }
    int rc = check_size(path, "bytes of pieces", s->bytes, UINT32_MAX - 4, err);
    rc = rc ? rc : check_size(path, "merges", s->n_merges, TW_MAX_VOCAB, err);
    return rc ? rc
              : check_size(path, "bytes of normalisations", s->charsmap_bytes,
                           TW_VOCAB_MAX_CHARSMAP_BYTES, err);
}

static void lay_out(struct tw_vocab_builder *b, const struct tw_vocab_sizes *s, bool scored) {
    uint8_t *at = (uint8_t *)(b->header + 1);
    b->extra = (struct tw_vocab_extra *)(void *)at;
    at += sizeof *b->extra;
    b->scores = scored ? (float *)(void *)at : NULL;
    at += scored ? s->n_tokens * sizeof *b->scores : 0;
    b->offsets = (uint32_t *)(void *)at;
    b->merges = (struct tw_vocab_merge *)(void *)(b->offsets + s->n_tokens + 1);
    b->types = (uint8_t *)(b->merges + s->n_merges);
    b->bytes = (char *)b->types + padded(s->n_tokens);
    b->charsmap = (uint8_t *)b->bytes + padded(s->bytes);
    b->ends = (uint32_t *)(void *)(b->charsmap + padded(s->charsmap_bytes));
    b->size = (size_t)((uint8_t *)b->ends - (uint8_t *)b->header);
}

static void fill_headers(struct tw_vocab_builder *b, const struct tw_vocab_sizes *s) {
    *b->header = (struct tw_vocab_header){.magic = TW_VOCAB_MAGIC,
                                          .kind = s->kind,
                                          .n_tokens = (uint32_t)s->n_tokens,
                                          .bos = TW_NONE,
                                          .eos = TW_NONE,
                                          .unk = TW_NONE,
                                          .pad = TW_NONE,
                                          .bytes_size = (uint32_t)s->bytes};
    b->extra->n_scores = b->scores ? (uint32_t)s->n_tokens : 0;
    b->extra->n_merges = (uint32_t)s->n_merges;
    b->extra->charsmap_bytes = (uint32_t)s->charsmap_bytes;
    for (uint32_t i = 0; i < TW_SPECIALS; i++) {
        b->extra->special[i] = TW_NONE;
    }
}

int tw_vocab_begin(struct tw_vocab_builder *b, const char *path, const struct tw_vocab_sizes *sizes,
                   struct tw_import_memory *memory, tw_error *err) {
    *b = (struct tw_vocab_builder){.path = path, .memory = memory};
    bool scored = sizes->kind == TW_VOCAB_SPM_BPE || sizes->kind == TW_VOCAB_UNIGRAM;
    int rc = check_sizes(path, sizes, err);
    if (rc) {
        return rc;
    }
    uint64_t size = sizeof *b->header + sizeof *b->extra + (scored ? sizes->n_tokens * 4 : 0) +
                    (sizes->n_tokens + 1) * 4 + sizes->n_merges * sizeof *b->merges +
                    padded(sizes->n_tokens) + padded(sizes->bytes) + padded(sizes->charsmap_bytes) +
                    TW_VOCAB_MAX_EXTRA_ENDS * sizeof *b->ends;
    b->header = tw_import_alloc(memory, size, 1);
    if (!b->header) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for a vocabulary of %" PRIu64 " bytes", path,
                       size);
    }
    lay_out(b, sizes, scored);
    fill_headers(b, sizes);
    return 0;
}

/* ---- tokens ---- */

int tw_vocab_put(struct tw_vocab_builder *b, float score, unsigned type, uint64_t length,
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
    if (b->scores) {
        b->scores[i] = score;
    }
    b->types[i] = (uint8_t)type;
    b->offsets[i + 1] = at + (uint32_t)length;
    b->next = i + 1;
    *piece = b->bytes + at;
    return 0;
}

/* FNV-1a, folded. */
static uint32_t hash_bytes(const uint8_t *bytes, uint64_t n) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (uint64_t i = 0; i < n; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001B3u;
    }
    return (uint32_t)(hash ^ (hash >> 32));
}

/* Returns the slot with the piece, or the free one where it belongs; NULL after PROBES_MAX. */
static uint32_t *find_slot(const struct tw_vocab_builder *b, const void *bytes, uint64_t n) {
    uint32_t hash = hash_bytes(bytes, n);
    for (uint32_t probe = 0; probe < PROBES_MAX; probe++) {
        uint32_t *slot = &b->index[(hash + probe) & b->index_mask];
        uint32_t id = *slot;
        if (id == TW_NONE || (b->offsets[id + 1] - b->offsets[id] == n &&
                              memcmp(b->bytes + b->offsets[id], bytes, (size_t)n) == 0)) {
            return slot;
        }
    }
    return NULL;
}

static bool is_special(const struct tw_vocab_builder *b, uint32_t id) {
    unsigned type = b->types[id] & TW_TOKEN_TYPE_MASK;
    return type != TW_TOKEN_NORMAL && type != TW_TOKEN_UNUSED;
}

static int make_index(struct tw_vocab_builder *b, tw_error *err) {
    uint64_t n_slots = 2;
    while (n_slots < 2 * (uint64_t)b->next) {
        n_slots *= 2;
    }
    b->index = tw_import_alloc(b->memory, n_slots, sizeof *b->index);
    if (!b->index) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for an index of %u tokens", b->path,
                       b->next);
    }
    b->index_mask = n_slots - 1;
    memset(b->index, 0xFF, n_slots * sizeof *b->index);
    for (uint32_t id = 0; id < b->next; id++) {
        uint32_t *slot =
            find_slot(b, b->bytes + b->offsets[id], b->offsets[id + 1] - b->offsets[id]);
        if (!slot) {
            b->index = NULL;
            return tw_fail(err, TW_E_FORMAT, "%s: too many pieces up to token %u have equal hashes",
                           b->path, id);
        }
        if (*slot == TW_NONE || !is_special(b, id) || is_special(b, *slot)) {
            *slot = id;
        }
    }
    return 0;
}

int tw_vocab_find(struct tw_vocab_builder *b, const void *bytes, uint64_t length, uint32_t *id,
                  tw_error *err) {
    int rc = b->index ? 0 : make_index(b, err);
    if (rc == 0) {
        const uint32_t *slot = find_slot(b, bytes, length);
        *id = slot ? *slot : TW_NONE;
    }
    return rc;
}

/* Returns the byte that the character stands for in byte-level pieces, or -1. */
static int byte_of(uint32_t character) {
    if ((character >= 0x21 && character <= 0x7E) ||
        (character >= 0xA1 && character <= 0xFF && character != 0xAD)) {
        return (int)character;
    }
    /* the 68 others, in ascending order: 0x00-0x20, 0x7F-0xA0, 0xAD */
    uint32_t i = character - 0x100;
    return character < 0x100 || i > 67 ? -1 : (int)(i < 33 ? i : i < 67 ? i - 33 + 0x7F : 0xAD);
}

uint64_t tw_vocab_unmap_bytes(const void *piece, uint64_t length, char *out) {
    const uint8_t *p = piece;
    uint64_t n = 0;
    for (uint64_t i = 0; i < length;) {
        /* The table's characters have one byte, or two. */
        bool two = i + 1 < length && p[i] >= 0xC2 && p[i] <= 0xDF && (p[i + 1] & 0xC0) == 0x80;
        int byte = byte_of(two ? (p[i] & 0x1Fu) << 6 | (p[i + 1] & 0x3Fu) : p[i] < 0x80 ? p[i] : 0);
        if (byte < 0) {
            out[n++] = (char)p[i];
            i++;
            continue;
        }
        out[n++] = (char)byte;
        i += two ? 2 : 1;
    }
    return n;
}

/* ---- ends ---- */

void tw_vocab_add_end(struct tw_vocab_builder *b, uint32_t id) {
    TW_ASSERT(b->extra); /* the builder has begun */
    uint32_t n = b->extra->n_ends;
    bool wanted = id != TW_NONE && id != b->header->eos && n < TW_VOCAB_MAX_EXTRA_ENDS;
    for (uint32_t i = 0; i < n; i++) {
        wanted = wanted && b->ends[i] != id;
    }
    if (wanted) {
        b->ends[b->extra->n_ends++] = id;
    }
}

/* Tokens that models are known to end a turn, message or text with, and their roles. */
#define NO_ROLE TW_SPECIALS
static const struct {
    const char *name;
    uint32_t special;
    bool ends;
} known_names[] = {
    {"<|eot_id|>", TW_SPECIAL_EOT, true},
    {"<|im_end|>", TW_SPECIAL_EOT, true},
    {"<|end|>", TW_SPECIAL_EOT, true},
    {"<end_of_turn>", TW_SPECIAL_EOT, true},
    {"<turn|>", TW_SPECIAL_EOT, true},
    {"<|endofturn|>", TW_SPECIAL_EOT, true},
    {"[|endofturn|]", TW_SPECIAL_EOT, true},
    {"<|end_of_turn|>", TW_SPECIAL_EOT, true},
    {"<end_of_utterance>", TW_SPECIAL_EOT, true},
    {"<EOT>", TW_SPECIAL_EOT, true},
    {"_<EOT>", TW_SPECIAL_EOT, true},
    {"<|eot|>", TW_SPECIAL_EOT, true},
    {"<|return|>", TW_SPECIAL_EOT, true},
    {"<|call|>", NO_ROLE, true},
    {"<|eom_id|>", TW_SPECIAL_EOM, true},
    {"<|eom|>", TW_SPECIAL_EOM, true},
    {"<|endoftext|>", NO_ROLE, true},
    {"<|end_of_text|>", NO_ROLE, true},
    {"<|eos|>", NO_ROLE, true},
    {"<eos>", NO_ROLE, true},
    {"<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
     NO_ROLE, true},
    {"<|fim_prefix|>", TW_SPECIAL_FIM_PREFIX, false},
    {"<fim_prefix>", TW_SPECIAL_FIM_PREFIX, false},
    {"<fim-prefix>", TW_SPECIAL_FIM_PREFIX, false},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "begin\xEF\xBD\x9C>",
     TW_SPECIAL_FIM_PREFIX, false},
    {"<|fim_suffix|>", TW_SPECIAL_FIM_SUFFIX, false},
    {"<fim_suffix>", TW_SPECIAL_FIM_SUFFIX, false},
    {"<fim-suffix>", TW_SPECIAL_FIM_SUFFIX, false},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81hole\xEF\xBD\x9C>",
     TW_SPECIAL_FIM_SUFFIX, false},
    {"<|fim_middle|>", TW_SPECIAL_FIM_MIDDLE, false},
    {"<fim_middle>", TW_SPECIAL_FIM_MIDDLE, false},
    {"<fim-middle>", TW_SPECIAL_FIM_MIDDLE, false},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "end\xEF\xBD\x9C>",
     TW_SPECIAL_FIM_MIDDLE, false},
    {"<|fim_pad|>", TW_SPECIAL_FIM_PAD, true},
    {"<fim_pad>", TW_SPECIAL_FIM_PAD, true},
    {"<fim-pad>", TW_SPECIAL_FIM_PAD, true},
    {"<|repo_name|>", TW_SPECIAL_FIM_REPO, true},
    {"<|fim_repo|>", TW_SPECIAL_FIM_REPO, true},
    {"<repo_name>", TW_SPECIAL_FIM_REPO, true},
    {"<reponame>", TW_SPECIAL_FIM_REPO, true},
    {"<|file_sep|>", TW_SPECIAL_FIM_SEP, true},
    {"<file_sep>", TW_SPECIAL_FIM_SEP, true},
};

int tw_vocab_add_known_names(struct tw_vocab_builder *b, tw_error *err) {
    int rc = 0;
    for (size_t i = 0; i < sizeof known_names / sizeof *known_names && rc == 0; i++) {
        uint32_t id = TW_NONE;
        rc = tw_vocab_find(b, known_names[i].name, strlen(known_names[i].name), &id, err);
        if (rc || id == TW_NONE) {
            continue;
        }
        uint32_t *special = known_names[i].special < TW_SPECIALS
                                ? &b->extra->special[known_names[i].special]
                                : NULL;
        if (special && *special == TW_NONE) {
            *special = id;
        }
        if (known_names[i].ends) {
            uint8_t strip = b->types[id] & (TW_TOKEN_LSTRIP | TW_TOKEN_RSTRIP);
            b->types[id] = (uint8_t)(TW_TOKEN_CONTROL | strip);
            tw_vocab_add_end(b, id);
        }
    }
    return rc;
}

/* Closes the gap if the pieces need fewer bytes than were announced. */
static void close_gap(struct tw_vocab_builder *b) {
    uint32_t used = b->offsets[b->header->n_tokens];
    size_t gap = (size_t)(padded(b->header->bytes_size) - padded(used));
    if (b->next == b->header->n_tokens && used < b->header->bytes_size) {
        size_t tail = (size_t)((uint8_t *)(b->ends + TW_VOCAB_MAX_EXTRA_ENDS) - b->charsmap);
        memmove(b->charsmap - gap, b->charsmap, tail);
        b->header->bytes_size = used;
        b->size -= gap;
    }
}

/* What begins or ends a text must not be what anybody's text becomes by spelling it. */
static void protect(struct tw_vocab_builder *b, uint32_t id) {
    if (id < b->header->n_tokens && (b->types[id] & TW_TOKEN_TYPE_MASK) == TW_TOKEN_USER_DEFINED) {
        b->types[id] = (uint8_t)(TW_TOKEN_CONTROL | (b->types[id] & ~TW_TOKEN_TYPE_MASK));
    }
}

int tw_vocab_finish(struct tw_vocab_builder *b, struct tw_model *model, tw_error *err) {
    struct tw_vocab view;
    if (b->header->bos == TW_NONE) {
        b->header->flags &= ~(uint32_t)(TW_VOCAB_ADD_BOS | TW_VOCAB_STOP_AT_BOS);
    }
    if (b->header->eos == TW_NONE) {
        b->header->flags &= ~(uint32_t)TW_VOCAB_ADD_EOS;
    }
    protect(b, b->header->bos);
    protect(b, b->header->eos);
    for (uint32_t i = 0; i < b->extra->n_ends; i++) {
        protect(b, b->ends[i]);
    }
    close_gap(b);
    size_t size = b->size + b->extra->n_ends * sizeof *b->ends;
    int rc = tw_vocab_open(b->header, size, &view, err);
    if (rc) {
        tw_error_prefix(err, b->path);
        return rc;
    }
    model->vocab = b->header;
    model->vocab_bytes = size;
    return 0;
}
