/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer's tables and decoding to text (tokenizer.h): a hash table of the ordinary pieces, a
 * sorted list of the special ones, and every token's text, with U+2581 and byte tokens already
 * converted.
 */
#include "driver/tokenizer/tokenizer_internal.h"

#include "loader/base/assert.h"
#include "tilewright/range.h"

#include <stdlib.h>
#include <string.h>

#define SPACE "\xE2\x96\x81" /* U+2581, which stands for a space in pieces */

/* Maximum probes per look-up. At most half of the slots are taken, so only pieces crafted to
 * collide need more. */
#define PROBES_MAX 1024u

/* FNV-1a (Fowler, Noll, Vo), folded to 32 bits. */
static uint32_t hash_bytes(const char *bytes, uint32_t n) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ (uint8_t)bytes[i]) * 0x100000001B3u;
    }
    return (uint32_t)(hash ^ (hash >> 32));
}

static bool is_marker(uint8_t type) {
    return type == TW_TOKEN_CONTROL || type == TW_TOKEN_UNKNOWN || type == TW_TOKEN_USER_DEFINED;
}

static bool piece_is(const struct tw_tokenizer *tokenizer, uint32_t id, const char *bytes,
                     uint32_t n) {
    uint32_t length;
    const char *piece = tw_piece_raw(&tokenizer->vocab, id, &length);
    return length == n && memcmp(piece, bytes, n) == 0;
}

/* Returns the slot of the piece, or the free one where it belongs; NULL after PROBES_MAX probes. */
static struct piece_slot *find_slot(const struct tw_tokenizer *tokenizer, const char *bytes,
                                    uint32_t n) {
    uint32_t hash = hash_bytes(bytes, n);
    for (uint32_t probe = 0; probe < PROBES_MAX; probe++) {
        struct piece_slot *slot = &tokenizer->slots[(hash + probe) & tokenizer->slot_mask];
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

static int fill_slots(struct tw_tokenizer *tokenizer, tw_error *err) {
    const struct tw_vocab *vocab = &tokenizer->vocab;
    uint64_t n_slots = 2;
    while (n_slots < 2 * (uint64_t)vocab->header.n_tokens) {
        n_slots *= 2;
    }
    tokenizer->slots = calloc((size_t)n_slots, sizeof *tokenizer->slots);
    if (n_slots > UINT32_MAX || tokenizer->slots == NULL) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for the table of %u pieces",
                       vocab->header.n_tokens);
    }
    TW_ASSERT((n_slots & (n_slots - 1)) == 0 && n_slots > vocab->header.n_tokens);
    tokenizer->slot_mask = (uint32_t)(n_slots - 1);
    for (uint64_t i = 0; i < n_slots; i++) {
        tokenizer->slots[i].id = TW_NONE;
    }
    for (uint32_t id = 0; id < vocab->header.n_tokens; id++) {
        uint32_t n;
        const char *piece = tw_piece_raw(vocab, id, &n);
        if (n == 0 || is_marker(vocab->types[id]) || vocab->types[id] == TW_TOKEN_BYTE) {
            continue;
        }
        struct piece_slot *slot = find_slot(tokenizer, piece, n);
        if (slot == NULL) {
            return tw_fail(err, TW_E_FORMAT,
                           "vocabulary: too many pieces up to token %u have equal hashes", id);
        }
        TW_ASSERT(slot->id == TW_NONE || slot->id < id);
        slot->id = id;
        tokenizer->longest = n > tokenizer->longest ? n : tokenizer->longest;
    }
    return 0;
}

uint32_t tw_piece_find(const struct tw_tokenizer *tokenizer, const char *bytes, uint32_t n) {
    if (n > tokenizer->longest) {
        return TW_NONE;
    }
    uint32_t hash = hash_bytes(bytes, n);
    for (uint32_t probe = 0; probe < PROBES_MAX; probe++) {
        struct piece_slot slot = tokenizer->slots[(hash + probe) & tokenizer->slot_mask];
        if (slot.id == TW_NONE || (slot.hash == hash && piece_is(tokenizer, slot.id, bytes, n))) {
            return slot.id;
        }
    }
    return TW_NONE;
}

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
        tokenizer->byte_ids[byte] = TW_NONE;
    }
    for (uint32_t id = 0; id < vocab->header.n_tokens; id++) {
        if (vocab->types[id] != TW_TOKEN_BYTE) {
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
        tokenizer->byte_ids[byte] = id;
    }
    return 0;
}

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

static int fill_markers(struct tw_tokenizer *tokenizer, tw_error *err) {
    const struct tw_vocab *vocab = &tokenizer->vocab;
    uint32_t count = 0, n;
    for (uint32_t id = 0; id < vocab->header.n_tokens; id++) {
        count += is_marker(vocab->types[id]);
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
        if (is_marker(vocab->types[id]) && n > 0 && n <= TW_MARKER_BYTES_MAX) {
            markers[count++] = (struct marker){.bytes = bytes, .n = n, .id = id};
        }
    }
    qsort(markers, count, sizeof *markers, compare_markers);
    for (uint32_t i = 0; i < count; i++) {
        /* Keep only the last of equal ones, so that many equal markers cannot slow down the
         * search. */
        bool again = i + 1 < count && markers[i].n == markers[i + 1].n &&
                     memcmp(markers[i].bytes, markers[i + 1].bytes, markers[i].n) == 0;
        if (!again) {
            tokenizer->markers[tokenizer->n_markers++] = markers[i].id;
        }
    }
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

uint32_t tw_marker_find(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                        bool user_only) {
    uint32_t low = 0, high = tokenizer->n_markers, found = TW_NONE;
    for (uint32_t at = 0; low < high; at++) {
        /* The marker that ends here, if any, comes first: `text` begins with it. */
        uint32_t longer = lower_bound(tokenizer, low, high, at, 0);
        if (longer > low && (!user_only || tokenizer->vocab.types[tokenizer->markers[low]] ==
                                               TW_TOKEN_USER_DEFINED)) {
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

/* Writes the text of a token and returns its end. It is never longer than the piece. */
static char *write_text(const struct tw_vocab *vocab, uint32_t id, char *out) {
    uint32_t n;
    const char *piece = tw_piece_raw(vocab, id, &n);
    uint8_t type = vocab->types[id];
    if (type == TW_TOKEN_BYTE) {
        TW_ASSERT(byte_of(piece, n) >= 0); /* fill_byte_ids has refused others */
        *out++ = (char)byte_of(piece, n);
        return out;
    }
    for (uint32_t i = 0; i < n; out++) {
        bool space = n - i >= 3 && memcmp(piece + i, SPACE, 3) == 0 && type != TW_TOKEN_CONTROL;
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

int tw_tokenizer_create(const struct tw_vocab *vocab, struct tw_tokenizer **out, tw_error *err) {
    *out = NULL;
    if (vocab->header.kind != TW_VOCAB_SPM_BPE) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "vocabulary: kind is %u, expected %d (SentencePiece BPE)",
                       vocab->header.kind, TW_VOCAB_SPM_BPE);
    }
    struct tw_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: out of memory");
    }
    tokenizer->vocab = *vocab;
    int rc = fill_slots(tokenizer, err);
    if (rc == 0) {
        rc = fill_byte_ids(tokenizer, err);
    }
    if (rc == 0) {
        rc = fill_markers(tokenizer, err);
    }
    if (rc == 0) {
        rc = fill_text(tokenizer, err);
    }
    if (rc) {
        tw_tokenizer_destroy(tokenizer);
        return rc;
    }
    *out = tokenizer;
    return 0;
}

void tw_tokenizer_destroy(struct tw_tokenizer *tokenizer) {
    if (tokenizer == NULL) {
        return;
    }
    free(tokenizer->slots);
    free(tokenizer->markers);
    free(tokenizer->text);
    free(tokenizer->text_at);
    free(tokenizer);
}

bool tw_tokenizer_is_end(const struct tw_tokenizer *tokenizer, uint32_t id) {
    const struct tw_vocab_header *header = &tokenizer->vocab.header;
    if (id == TW_NONE) {
        return false;
    }
    bool end =
        id == header->eos || (id == header->bos && (header->flags & TW_VOCAB_STOP_AT_BOS) != 0);
    for (uint32_t i = 0; i < header->n_ends; i++) {
        end = end || id == header->end[i];
    }
    return end;
}

int tw_tokenizer_piece(const struct tw_tokenizer *tokenizer, uint32_t id, unsigned flags,
                       const char **bytes, size_t *n, tw_error *err) {
    const struct tw_vocab *vocab = &tokenizer->vocab;
    if (id >= vocab->header.n_tokens) {
        return tw_fail(err, TW_E_RANGE, "token id %u is outside the vocabulary of %u tokens", id,
                       vocab->header.n_tokens);
    }
    bool silent = vocab->types[id] == TW_TOKEN_CONTROL || vocab->types[id] == TW_TOKEN_UNKNOWN;
    TW_ASSERT(tokenizer->text_at[id] <= tokenizer->text_at[id + 1]);
    *bytes = tokenizer->text + tokenizer->text_at[id];
    *n = silent && !(flags & TW_PIECE_SPECIAL)
             ? 0
             : tokenizer->text_at[id + 1] - tokenizer->text_at[id];
    bool drop =
        (flags & TW_PIECE_FIRST) && (vocab->header.flags & TW_VOCAB_SPACE_PREFIX) && !silent;
    if (drop && *n > 0 && **bytes == ' ') {
        *bytes += 1;
        *n -= 1;
    }
    return 0;
}

int tw_tokenizer_decode(const struct tw_tokenizer *tokenizer, const uint32_t *ids, size_t count,
                        unsigned flags, char *out, size_t capacity, size_t *n, tw_error *err) {
    *n = 0;
    for (size_t i = 0; i < count; i++) {
        const char *bytes;
        size_t length;
        int rc = tw_tokenizer_piece(tokenizer, ids[i], flags, &bytes, &length, err);
        if (rc) {
            return rc;
        }
        if (*n < capacity && length > 0) {
            memcpy(out + *n, bytes, length < capacity - *n ? length : capacity - *n);
        }
        *n += length;
        if (ids[i] != tokenizer->vocab.header.bos) {
            flags &= ~(unsigned)TW_PIECE_FIRST;
        }
    }
    return 0;
}
