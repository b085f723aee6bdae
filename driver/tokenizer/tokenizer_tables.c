/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer's tables: hash tables of the ordinary pieces and of the merges, a sorted list of
 * the special pieces, and every token's text, with U+2581 and byte tokens already converted.
 */
#include "driver/tokenizer/tokenizer_internal.h"

#include "tilewright/range.h"

#include <stdlib.h>
#include <string.h>

/* Maximum probes per look-up. At most half of the slots are taken, so only pieces crafted to
 * collide need more. */
#define PROBES_MAX 1024u

/* What SentencePiece adds to the lowest score for a character that no piece spells. */
#define UNKNOWN_PENALTY 10.0f

static uint32_t folded(uint64_t hash) {
    return (uint32_t)(hash ^ (hash >> 32));
}

static uint32_t hash_bytes(const char *bytes, uint32_t n) {
    uint64_t hash = TW_PIECE_HASH;
    for (uint32_t i = 0; i < n; i++) {
        hash = tw_piece_hash(hash, bytes[i]);
    }
    return folded(hash);
}

static bool is_marker(unsigned type) {
    return type == TW_TOKEN_CONTROL || type == TW_TOKEN_UNKNOWN || type == TW_TOKEN_USER_DEFINED;
}

/* Slots for `count` entries of a table that is at most half full; a power of two. */
static uint64_t slots_for(uint32_t count) {
    uint64_t n = 2;
    while (n < 2 * (uint64_t)count) {
        n *= 2;
    }
    return n;
}

/* ---- ordinary pieces ---- */

/* Returns whether plain text may become this token. Of SentencePiece's USER_DEFINED pieces those
 * with a blank can only be found in text whose blanks have been converted. */
static bool is_ordinary(const struct tw_vocab *vocab, uint32_t id) {
    uint32_t n;
    const char *piece = tw_piece_raw(vocab, id, &n);
    unsigned type = tw_piece_type(vocab, id);
    bool spaced = type == TW_TOKEN_USER_DEFINED && tw_escapes_spaces(vocab) &&
                  memmem(piece, n, TW_SPACE, 3) != NULL;
    return n > 0 && ((!is_marker(type) && type != TW_TOKEN_BYTE) || spaced);
}

static bool piece_is(const struct tw_tokenizer *tokenizer, uint32_t id, const char *bytes,
                     uint32_t n) {
    uint32_t length;
    const char *piece = tw_piece_raw(&tokenizer->vocab, id, &length);
    return length == n && memcmp(piece, bytes, n) == 0;
}

/* Returns the slot of the piece, or the free one where it belongs; NULL after PROBES_MAX probes. */
static struct tw_piece_slot *find_slot(const struct tw_tokenizer *tokenizer, const char *bytes,
                                       uint32_t n, uint32_t hash) {
    for (uint32_t probe = 0; probe < PROBES_MAX; probe++) {
        struct tw_piece_slot *slot = &tokenizer->slots[(hash + probe) & tokenizer->slot_mask];
        if (slot->id == TW_NONE) {
            slot->hash = hash;
            return slot;
        }
        if (slot->hash == hash && piece_is(tokenizer, slot->id, bytes, n)) {
            return slot;
        }
    }
    return NULL;
}

/* Returns whether a blank follows another character in the piece: then a word may not end before
 * each blank. */
static bool joins_words(const char *piece, uint32_t n, const char *space, uint32_t space_bytes) {
    bool after_other = false;
    for (uint32_t i = 0; i < n;) {
        bool blank = n - i >= space_bytes && memcmp(piece + i, space, space_bytes) == 0;
        if (blank && after_other) {
            return true;
        }
        after_other = after_other || !blank;
        i += blank ? space_bytes : 1;
    }
    return false;
}

static int add_piece(struct tw_tokenizer *tokenizer, uint32_t id, tw_error *err) {
    const struct tw_vocab *vocab = &tokenizer->vocab;
    bool escaped = tw_escapes_spaces(vocab);
    uint32_t n;
    const char *piece = tw_piece_raw(vocab, id, &n);
    struct tw_piece_slot *slot = find_slot(tokenizer, piece, n, hash_bytes(piece, n));
    if (slot == NULL) {
        return tw_fail(err, TW_E_FORMAT,
                       "vocabulary: too many pieces up to token %u have equal hashes", id);
    }
    TW_ASSERT(slot->id == TW_NONE || slot->id < id);
    slot->id = id;
    tokenizer->longest = n > tokenizer->longest ? n : tokenizer->longest;
    if (n < TW_PIECE_LENGTHS) {
        tokenizer->lengths[n / 8] |= (uint8_t)(1u << n % 8);
    }
    tokenizer->words_apart =
        tokenizer->words_apart && !joins_words(piece, n, escaped ? TW_SPACE : " ", escaped ? 3 : 1);
    if (vocab->scores && vocab->scores[id] - UNKNOWN_PENALTY < tokenizer->unknown_score) {
        tokenizer->unknown_score = vocab->scores[id] - UNKNOWN_PENALTY;
    }
    return 0;
}

static int fill_slots(struct tw_tokenizer *tokenizer, tw_error *err) {
    const struct tw_vocab *vocab = &tokenizer->vocab;
    uint64_t n_slots = slots_for(vocab->header.n_tokens);
    int rc = 0;
    tokenizer->slots = calloc((size_t)n_slots, sizeof *tokenizer->slots);
    if (n_slots > UINT32_MAX || tokenizer->slots == NULL) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for the table of %u pieces",
                       vocab->header.n_tokens);
    }
    TW_ASSERT((n_slots & (n_slots - 1)) == 0 && n_slots > vocab->header.n_tokens);
    tokenizer->slot_mask = (uint32_t)(n_slots - 1);
    tokenizer->words_apart = true;
    tokenizer->unknown_score = -UNKNOWN_PENALTY;
    for (uint64_t i = 0; i < n_slots; i++) {
        tokenizer->slots[i].id = TW_NONE;
    }
    for (uint32_t id = 0; id < vocab->header.n_tokens && rc == 0; id++) {
        rc = is_ordinary(vocab, id) ? add_piece(tokenizer, id, err) : 0;
    }
    return rc;
}

uint32_t tw_piece_find_hashed(const struct tw_tokenizer *tokenizer, const char *bytes, uint32_t n,
                              uint64_t full_hash) {
    uint32_t hash = folded(full_hash);
    for (uint32_t probe = 0; probe < PROBES_MAX; probe++) {
        struct tw_piece_slot slot = tokenizer->slots[(hash + probe) & tokenizer->slot_mask];
        if (slot.id == TW_NONE || (slot.hash == hash && piece_is(tokenizer, slot.id, bytes, n))) {
            return slot.id;
        }
    }
    return TW_NONE;
}

uint32_t tw_piece_find(const struct tw_tokenizer *tokenizer, const char *bytes, uint32_t n) {
    uint64_t hash = TW_PIECE_HASH;
    if (n > tokenizer->longest) {
        return TW_NONE;
    }
    for (uint32_t i = 0; i < n; i++) {
        hash = tw_piece_hash(hash, bytes[i]);
    }
    return tw_piece_find_hashed(tokenizer, bytes, n, hash);
}

/* ---- bytes ---- */

static int hex_digit(char c) {
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c ? strchr(digits, c >= 'a' && c <= 'f' ? c - 'a' + 'A' : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Returns the byte that a piece of the form <0x0A> stands for, or -1. */
static int byte_of(const char *piece, uint32_t n) {
    if (n != 6 || memcmp(piece, "<0x", 3) != 0 || piece[5] != '>') {
        return -1;
    }
    int high = hex_digit(piece[3]), low = hex_digit(piece[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static int fill_byte_ids(struct tw_tokenizer *tokenizer, tw_error *err) {
    const struct tw_vocab *vocab = &tokenizer->vocab;
    for (unsigned byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        tokenizer->byte_ids[byte] =
            vocab->header.kind == TW_VOCAB_BYTE_BPE ? tw_piece_find(tokenizer, &c, 1) : TW_NONE;
    }
    for (uint32_t id = 0; id < vocab->header.n_tokens; id++) {
        if (tw_piece_type(vocab, id) != TW_TOKEN_BYTE) {
            continue;
        }
        uint32_t n;
        const char *piece = tw_piece_raw(vocab, id, &n);
        int byte = byte_of(piece, n);
        if (byte < 0) {
            return tw_fail(err, TW_E_FORMAT,
                           "vocabulary: byte token %u is '%.*s', expected <0x00> to <0xFF>", id,
                           (int)(n < 32 ? n : 32), piece);
        }
        if (vocab->header.kind != TW_VOCAB_BYTE_BPE || tokenizer->byte_ids[byte] == TW_NONE) {
            tokenizer->byte_ids[byte] = id;
        }
    }
    return 0;
}

/* ---- merges ---- */

static uint32_t hash_pair(uint32_t left, uint32_t right) {
    uint64_t x = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)((x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u >> 32);
}

/* Returns the slot of the merge, or the free one where it belongs; NULL after PROBES_MAX probes. */
static uint32_t *merge_slot(const struct tw_tokenizer *tokenizer, uint32_t left, uint32_t right) {
    uint32_t hash = hash_pair(left, right);
    for (uint32_t probe = 0; probe < PROBES_MAX; probe++) {
        uint32_t *slot = &tokenizer->merges[(hash + probe) & tokenizer->merge_mask];
        if (*slot == TW_NONE) {
            return slot;
        }
        const struct tw_vocab_merge *merge = &tokenizer->vocab.merges[*slot];
        if (merge->left == left && merge->right == right) {
            return slot;
        }
    }
    return NULL;
}

uint32_t tw_merge_find(const struct tw_tokenizer *tokenizer, uint32_t left, uint32_t right) {
    const uint32_t *slot = merge_slot(tokenizer, left, right);
    return slot ? *slot : TW_NONE;
}

static int fill_merges(struct tw_tokenizer *tokenizer, tw_error *err) {
    uint32_t n = tokenizer->vocab.extra.n_merges, kind = tokenizer->vocab.header.kind;
    uint64_t n_slots = slots_for(n);
    if (kind != TW_VOCAB_BYTE_BPE && kind != TW_VOCAB_MERGE_BPE) {
        return 0;
    }
    tokenizer->merges = malloc((size_t)n_slots * sizeof *tokenizer->merges);
    if (n_slots > UINT32_MAX || tokenizer->merges == NULL) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for the table of %u merges", n);
    }
    tokenizer->merge_mask = (uint32_t)(n_slots - 1);
    memset(tokenizer->merges, 0xFF, (size_t)n_slots * sizeof *tokenizer->merges);
    for (uint32_t rank = 0; rank < n; rank++) {
        const struct tw_vocab_merge *merge = &tokenizer->vocab.merges[rank];
        if (!is_ordinary(&tokenizer->vocab, merge->merged)) {
            continue; /* or text could spell a token that ends a turn */
        }
        uint32_t *slot = merge_slot(tokenizer, merge->left, merge->right);
        if (slot == NULL) {
            return tw_fail(err, TW_E_FORMAT,
                           "vocabulary: too many merges up to %u have equal hashes", rank);
        }
        *slot = *slot == TW_NONE ? rank : *slot; /* the first of equal merges counts */
    }
    return 0;
}

/* ---- special pieces ---- */

struct marker {
    const char *bytes;
    uint32_t n, id;
};

static int compare_markers(const void *left, const void *right) {
    const struct marker *a = left, *b = right;
    int order = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    if (order == 0) {
        order = (a->n > b->n) - (a->n < b->n);
    }
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

/* Keeps only the last of equal ones, so that many equal markers cannot slow down the search. */
static void keep_markers(struct tw_tokenizer *tokenizer, const struct marker *markers,
                         uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        bool again = i + 1 < count && markers[i].n == markers[i + 1].n &&
                     memcmp(markers[i].bytes, markers[i + 1].bytes, markers[i].n) == 0;
        if (!again) {
            tokenizer->first_marker[(uint8_t)markers[i].bytes[0] + 1]++;
            tokenizer->markers[tokenizer->n_markers++] = markers[i].id;
        }
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        tokenizer->first_marker[byte + 1] += tokenizer->first_marker[byte];
    }
}

static int fill_markers(struct tw_tokenizer *tokenizer, tw_error *err) {
    const struct tw_vocab *vocab = &tokenizer->vocab;
    uint32_t count = 0, n;
    for (uint32_t id = 0; id < vocab->header.n_tokens; id++) {
        count += is_marker(tw_piece_type(vocab, id));
    }
    struct marker *markers = calloc((size_t)count + 1, sizeof *markers);
    tokenizer->markers = calloc((size_t)count + 1, sizeof *tokenizer->markers);
    if (markers == NULL || tokenizer->markers == NULL) {
        free(markers);
        return tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for %u special pieces", count);
    }
    count = 0;
    for (uint32_t id = 0; id < vocab->header.n_tokens; id++) {
        const char *bytes = tw_piece_raw(vocab, id, &n);
        if (is_marker(tw_piece_type(vocab, id)) && n > 0 && n <= TW_MARKER_BYTES_MAX) {
            markers[count++] = (struct marker){.bytes = bytes, .n = n, .id = id};
        }
    }
    qsort(markers, count, sizeof *markers, compare_markers);
    keep_markers(tokenizer, markers, count);
    free(markers);
    return 0;
}

/* Returns the first marker of [low, high), which all agree in their first `at` bytes, whose next
 * byte is at least `byte`; the end of a marker counts as -1. */
static uint32_t lower_bound(const struct tw_tokenizer *tokenizer, uint32_t low, uint32_t high,
                            uint32_t at, int byte) {
    while (low < high) {
        uint32_t n, middle = low + (high - low) / 2;
        const char *piece = tw_piece_raw(&tokenizer->vocab, tokenizer->markers[middle], &n);
        if ((n > at ? (uint8_t)piece[at] : -1) < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool is_wanted(const struct tw_tokenizer *tokenizer, uint32_t id, bool user_only,
                      const uint8_t *except) {
    bool excepted = except && except[id / 8] >> id % 8 & 1;
    return !excepted &&
           (!user_only || tw_piece_type(&tokenizer->vocab, id) == TW_TOKEN_USER_DEFINED);
}

uint32_t tw_marker_find(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                        bool user_only, const uint8_t *except) {
    uint32_t first = n > 0 ? (uint8_t)text[0] : 0;
    uint32_t low = tokenizer->first_marker[first], high = tokenizer->first_marker[first + 1];
    uint32_t found = TW_NONE;
    for (uint32_t at = 1; n > 0 && low < high; at++) {
        /* The marker that ends here, if any, comes first: `text` begins with it. */
        uint32_t longer = lower_bound(tokenizer, low, high, at, 0);
        if (longer > low && is_wanted(tokenizer, tokenizer->markers[low], user_only, except)) {
            found = tokenizer->markers[low];
        }
        if (at == n) {
            break;
        }
        TW_ASSERT(low <= longer && longer <= high && at < n);
        low = lower_bound(tokenizer, longer, high, at, (uint8_t)text[at]);
        high = lower_bound(tokenizer, low, high, at, (uint8_t)text[at] + 1);
    }
    return found;
}

/* ---- texts ---- */

/* Writes the text of a token and returns its end. It is never longer than the piece. */
static char *write_text(const struct tw_vocab *vocab, uint32_t id, char *out) {
    uint32_t n;
    const char *piece = tw_piece_raw(vocab, id, &n);
    unsigned type = tw_piece_type(vocab, id);
    if (type == TW_TOKEN_BYTE) {
        TW_ASSERT(byte_of(piece, n) >= 0); /* fill_byte_ids has refused others */
        *out++ = (char)byte_of(piece, n);
        return out;
    }
    bool escaped = tw_escapes_spaces(vocab) && type != TW_TOKEN_CONTROL;
    for (uint32_t i = 0; i < n; out++) {
        bool space = escaped && n - i >= 3 && memcmp(piece + i, TW_SPACE, 3) == 0;
        *out = space ? ' ' : piece[i];
        i += space ? 3 : 1;
    }
    return out;
}

static int fill_text(struct tw_tokenizer *tokenizer, tw_error *err) {
    const struct tw_vocab *vocab = &tokenizer->vocab;
    tokenizer->text = malloc((size_t)vocab->header.bytes_size + 1);
    tokenizer->text_at = calloc((size_t)vocab->header.n_tokens + 1, sizeof *tokenizer->text_at);
    if (tokenizer->text == NULL || tokenizer->text_at == NULL) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for %u bytes of text",
                       vocab->header.bytes_size);
    }
    char *end = tokenizer->text;
    for (uint32_t id = 0; id < vocab->header.n_tokens; id++) {
        end = write_text(vocab, id, end);
        TW_ASSERT(end <=
                  tokenizer->text + vocab->offsets[id + 1]); /* never longer than its piece */
        tokenizer->text_at[id + 1] = (uint32_t)(end - tokenizer->text);
    }
    return 0;
}

int tw_tokenizer_fill_tables(struct tw_tokenizer *tokenizer, tw_error *err) {
    int rc = fill_slots(tokenizer, err);
    rc = rc ? rc : fill_byte_ids(tokenizer, err);
    rc = rc ? rc : fill_merges(tokenizer, err);
    rc = rc ? rc : fill_markers(tokenizer, err);
    return rc ? rc : fill_text(tokenizer, err);
}
