/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to ids (tokenizer.h): the text is split into symbols of one character; repeatedly the
 * adjacent pair that forms the piece with the highest score is merged, the leftmost among equals,
 * until no pair forms a piece. A heap holds each symbol that begins such a pair, so a merge costs
 * two look-ups and a few moves in the heap.
 */
#include "driver/tokenizer/tokenizer_internal.h"
#include "driver/tokenizer/utf8_stream.h"

#include "loader/base/assert.h"
#include "loader/base/grow.h"
#include "tilewright/range.h"

#include <stdlib.h>
#include <string.h>

#define SPACE "\xE2\x96\x81" /* U+2581, which stands for a space in pieces */

struct symbol {
    uint32_t at, length;     /* its bytes in the text; length 0: merged into another */
    uint32_t previous, next; /* TW_NONE at the ends */
    uint32_t id;             /* of its piece, or TW_NONE */
    uint32_t merged;         /* id of the piece it forms with the next symbol, or TW_NONE */
    uint32_t place;          /* in the heap, if there is such a piece */
};

struct pass {
    const struct tw_tokenizer *tokenizer;
    const char *text;
    struct symbol *symbols;
    uint32_t *heap; /* symbols; the pair to merge first is at the top */
    uint32_t n_symbols, n_heap;
    uint64_t work;
};

static int append(struct tw_token_list *list, uint32_t id, tw_error *err) {
    if (!tw_grow(&list->ids, &list->capacity, list->n + 1, sizeof *list->ids)) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for more than %zu ids", list->n);
    }
    TW_ASSERT(list->n < list->capacity);
    list->ids[list->n++] = id;
    return 0;
}

void tw_token_list_finish(struct tw_token_list *list) {
    free(list->ids);
    memset(list, 0, sizeof *list);
}

/* Returns whether the pair of symbol `a` is merged before that of `b`. */
static bool before(const struct pass *pass, uint32_t a, uint32_t b) {
    const float *scores = pass->tokenizer->vocab.scores;
    TW_ASSERT(a < pass->n_symbols && b < pass->n_symbols);
    TW_ASSERT(pass->symbols[a].merged != TW_NONE && pass->symbols[b].merged != TW_NONE);
    float score_a = scores[pass->symbols[a].merged], score_b = scores[pass->symbols[b].merged];
    return score_a > score_b || (score_a == score_b && a < b);
}

static void put_at(struct pass *pass, uint32_t place, uint32_t symbol) {
    TW_ASSERT(place < pass->n_symbols && symbol < pass->n_symbols);
    pass->heap[place] = symbol;
    pass->symbols[symbol].place = place;
    pass->work++;
}

static void sift_up(struct pass *pass, uint32_t place) {
    TW_ASSERT(place < pass->n_heap);
    uint32_t symbol = pass->heap[place];
    while (place > 0 && before(pass, symbol, pass->heap[(place - 1) / 2])) {
        put_at(pass, place, pass->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put_at(pass, place, symbol);
}

static void sift_down(struct pass *pass, uint32_t place) {
    TW_ASSERT(place < pass->n_heap);
    uint32_t symbol = pass->heap[place];
    for (;;) {
        uint32_t child = 2 * place + 1; /* below 2^30: there are at most 2^28 + 1 symbols */
        if (child >= pass->n_heap) {
            break;
        }
        if (child + 1 < pass->n_heap && before(pass, pass->heap[child + 1], pass->heap[child])) {
            child++;
        }
        if (!before(pass, pass->heap[child], symbol)) {
            break;
        }
        put_at(pass, place, pass->heap[child]);
        place = child;
    }
    put_at(pass, place, symbol);
}

/* Restores the order after the pair of the symbol at `place` changed. */
static void reorder(struct pass *pass, uint32_t place) {
    uint32_t symbol = pass->heap[place];
    sift_up(pass, place);
    sift_down(pass, pass->symbols[symbol].place);
}

static void leave_heap(struct pass *pass, uint32_t symbol) {
    uint32_t place = pass->symbols[symbol].place;
    TW_ASSERT(place < pass->n_heap && pass->heap[place] == symbol);
    uint32_t last = pass->heap[--pass->n_heap];
    pass->symbols[symbol].merged = TW_NONE;
    if (last != symbol) {
        put_at(pass, place, last);
        reorder(pass, place);
    }
}

static uint32_t find(struct pass *pass, uint32_t at, uint32_t length) {
    pass->work++;
    return tw_piece_find(pass->tokenizer, pass->text + at, length);
}

/* Finds the piece that a symbol forms with the next one, or TW_NONE. */
static uint32_t find_pair(struct pass *pass, const struct symbol *symbol) {
    if (symbol->next == TW_NONE) {
        return TW_NONE;
    }
    TW_ASSERT(symbol->next < pass->n_symbols &&
              pass->symbols[symbol->next].at == symbol->at + symbol->length);
    return find(pass, symbol->at, symbol->length + pass->symbols[symbol->next].length);
}

/* Looks up the pair of a symbol again, after the symbol or its neighbour grew. */
static void refresh(struct pass *pass, uint32_t index) {
    struct symbol *symbol = &pass->symbols[index];
    bool queued = symbol->merged != TW_NONE;
    uint32_t merged = find_pair(pass, symbol);
    if (merged == TW_NONE) {
        if (queued) {
            leave_heap(pass, index);
        }
        return;
    }
    symbol->merged = merged;
    if (queued) {
        reorder(pass, symbol->place);
    } else {
        put_at(pass, pass->n_heap++, index);
        sift_up(pass, pass->n_heap - 1);
    }
}

/* Merges the pair at the top of the heap. */
static void merge(struct pass *pass) {
    uint32_t index = pass->heap[0];
    TW_ASSERT(pass->n_heap > 0 && pass->symbols[index].next < pass->n_symbols);
    struct symbol *left = &pass->symbols[index], *right = &pass->symbols[left->next];
    if (right->merged != TW_NONE) {
        leave_heap(pass, left->next);
    }
    TW_ASSERT(left->merged != TW_NONE && left->length > 0 && right->length > 0);
    TW_ASSERT(right->previous == index);
    left->id = left->merged;
    left->length += right->length;
    right->length = 0;
    left->next = right->next;
    if (left->next != TW_NONE) {
        pass->symbols[left->next].previous = index;
    }
    refresh(pass, index);
    if (left->previous != TW_NONE) {
        refresh(pass, left->previous);
    }
}

static uint32_t character_length(const char *text, size_t n) {
    size_t length = tw_utf8_char(text, n);
    return length ? (uint32_t)length : 1;
}

static int split(struct pass *pass, size_t n, tw_error *err) {
    uint32_t count = 0;
    for (size_t at = 0; at < n; at += character_length(pass->text + at, n - at)) {
        count++;
    }
    pass->symbols = calloc(count, sizeof *pass->symbols);
    pass->heap = calloc(count, sizeof *pass->heap);
    if (pass->symbols == NULL || pass->heap == NULL) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for a text of %u characters", count);
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = character_length(pass->text + at, n - at);
        pass->symbols[i] = (struct symbol){.at = at,
                                           .length = length,
                                           .previous = i > 0 ? i - 1 : TW_NONE,
                                           .next = i + 1 < count ? i + 1 : TW_NONE,
                                           .id = find(pass, at, length)};
        at += length;
    }
    TW_ASSERT(at == n);
    pass->n_symbols = count;
    return 0;
}

static void merge_all(struct pass *pass) {
    for (uint32_t i = 0; i < pass->n_symbols; i++) {
        struct symbol *symbol = &pass->symbols[i];
        symbol->merged = find_pair(pass, symbol);
        if (symbol->merged != TW_NONE) {
            put_at(pass, pass->n_heap++, i);
        }
    }
    for (uint32_t i = pass->n_heap / 2; i-- > 0;) {
        sift_down(pass, i);
    }
    while (pass->n_heap > 0) {
        merge(pass);
    }
}

/* Appends a symbol that is not a piece: its byte tokens, or the unknown token unless the previous
 * symbol already produced one. */
static int append_fallback(const struct pass *pass, const struct symbol *symbol, bool after_unknown,
                           bool *unknown, struct tw_token_list *out, tw_error *err) {
    const uint32_t *byte_ids = pass->tokenizer->byte_ids;
    const uint8_t *bytes = (const uint8_t *)pass->text + symbol->at;
    *unknown = false;
    for (uint32_t i = 0; i < symbol->length; i++) {
        *unknown = *unknown || byte_ids[bytes[i]] == TW_NONE;
    }
    if (*unknown) {
        uint32_t unk = pass->tokenizer->vocab.header.unk;
        if (unk == TW_NONE) {
            return tw_fail(err, TW_E_UNSUPPORTED,
                           "text: the vocabulary has neither a token for the character that begins "
                           "with byte 0x%02X nor an unknown token",
                           bytes[0]);
        }
        return after_unknown ? 0 : append(out, unk, err);
    }
    int rc = 0;
    for (uint32_t i = 0; i < symbol->length && rc == 0; i++) {
        rc = append(out, byte_ids[bytes[i]], err);
    }
    return rc;
}

static int emit(const struct pass *pass, struct tw_token_list *out, tw_error *err) {
    bool unknown = false;
    int rc = 0;
    for (uint32_t i = 0; i < pass->n_symbols && rc == 0; i++) {
        const struct symbol *symbol = &pass->symbols[i];
        if (symbol->length == 0) {
            continue;
        }
        if (symbol->id == TW_NONE) {
            rc = append_fallback(pass, symbol, unknown, &unknown, out, err);
        } else {
            unknown = false;
            rc = append(out, symbol->id, err);
        }
    }
    return rc;
}

/* Returns a copy of the text with each space replaced by U+2581, and one more at its beginning if
 * `prefix`; NULL if out of memory. */
static char *escape_spaces(const char *text, size_t n, bool prefix, size_t *length) {
    size_t spaces = prefix;
    for (size_t i = 0; i < n; i++) {
        spaces += text[i] == ' ';
    }
    char *escaped = malloc(n + 3 * spaces + 1);
    if (escaped == NULL) {
        return NULL;
    }
    char *end = escaped;
    if (prefix) {
        memcpy(end, SPACE, 3);
        end += 3;
    }
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ' ') {
            memcpy(end, SPACE, 3);
            end += 3;
        } else {
            *end++ = text[i];
        }
    }
    *length = (size_t)(end - escaped);
    return escaped;
}

/* Encodes a stretch of plain text of at least one byte. */
static int encode_plain(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                        bool prefix, struct tw_token_list *out, tw_error *err) {
    size_t length;
    char *escaped = escape_spaces(text, n, prefix, &length);
    if (escaped == NULL) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for a text of %zu bytes", n);
    }
    struct pass pass = {.tokenizer = tokenizer, .text = escaped, .work = length};
    int rc = split(&pass, length, err);
    if (rc == 0) {
        merge_all(&pass);
        rc = emit(&pass, out, err);
    }
    out->work += pass.work;
    free(pass.symbols);
    free(pass.heap);
    free(escaped);
    return rc;
}

/* Finds the next marker at or after `at`. Returns its position and stores its id; `n` and TW_NONE
 * if there is none. */
static size_t next_marker(const struct tw_tokenizer *tokenizer, const char *text, size_t at,
                          size_t n, unsigned flags, uint32_t *id) {
    *id = TW_NONE;
    if (!(flags & (TW_ENCODE_SPECIAL | TW_ENCODE_USER_DEFINED))) {
        return n;
    }
    for (; at < n; at++) {
        *id = tw_marker_find(tokenizer, text + at, n - at, !(flags & TW_ENCODE_SPECIAL));
        if (*id != TW_NONE) {
            break;
        }
    }
    return at;
}

/* Encodes stretches of plain text and the markers between them. Each stretch gets a leading space,
 * as in llama.cpp. */
static int encode_text(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                       unsigned flags, struct tw_token_list *out, tw_error *err) {
    bool prefix = (tokenizer->vocab.header.flags & TW_VOCAB_SPACE_PREFIX) != 0;
    int rc = 0;
    for (size_t at = 0; at < n && rc == 0;) {
        uint32_t marker, length = 0;
        size_t end = next_marker(tokenizer, text, at, n, flags, &marker);
        if (end > at) {
            rc = encode_plain(tokenizer, text + at, end - at, prefix, out, err);
        }
        if (rc == 0 && marker != TW_NONE) {
            (void)tw_piece_raw(&tokenizer->vocab, marker, &length);
            rc = append(out, marker, err);
        }
        at = end + length;
    }
    return rc;
}

static bool wants(unsigned flags, unsigned yes, unsigned no, bool otherwise) {
    return (flags & yes) || (otherwise && !(flags & no));
}

int tw_tokenizer_encode(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                        unsigned flags, struct tw_token_list *out, tw_error *err) {
    const struct tw_vocab_header *header = &tokenizer->vocab.header;
    size_t n_before = out->n;
    int rc = 0;
    if (n > TW_TEXT_BYTES_MAX) {
        return tw_fail(err, TW_E_RANGE, "text of %zu bytes, expected at most %u", n,
                       TW_TEXT_BYTES_MAX);
    }
    if (header->bos != TW_NONE &&
        wants(flags, TW_ENCODE_BOS, TW_ENCODE_NO_BOS, (header->flags & TW_VOCAB_ADD_BOS) != 0)) {
        rc = append(out, header->bos, err);
    }
    if (rc == 0) {
        rc = encode_text(tokenizer, text, n, flags, out, err);
    }
    if (rc == 0 && header->eos != TW_NONE &&
        wants(flags, TW_ENCODE_EOS, TW_ENCODE_NO_EOS, (header->flags & TW_VOCAB_ADD_EOS) != 0)) {
        rc = append(out, header->eos, err);
    }
    if (rc) {
        out->n = n_before;
    }
    return rc;
}
