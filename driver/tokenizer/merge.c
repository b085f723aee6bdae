/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-pair merges of one word: it is split into symbols, of one character or one byte; repeatedly
 * the adjacent pair that comes first is merged, the leftmost among equals, until no pair can be. By
 * scores the pair comes first whose joined piece has the highest; by merges, the one of the lowest
 * rank. A heap holds each symbol that begins a pair, so a merge costs two look-ups and a few moves
 * in the heap: n symbols cost n log n, whatever the word.
 */
#include "driver/tokenizer/tokenizer_internal.h"
#include "driver/tokenizer/utf8_stream.h"

#include "loader/base/grow.h"

#include <string.h>

struct tw_symbol {
    uint32_t at, length;     /* its bytes in the word; length 0: merged into another */
    uint32_t previous, next; /* TW_NONE at the ends */
    uint32_t id;             /* of its piece, or TW_NONE */
    uint32_t merged;         /* id of the piece it forms with the next symbol, or TW_NONE */
    float key;               /* of that pair: the lowest is merged first */
    uint32_t place;          /* in the heap, if there is such a piece */
};

struct pass {
    const struct tw_tokenizer *tokenizer;
    const char *text;
    struct tw_symbol *symbols;
    uint32_t *heap; /* symbols; the pair to merge first is at the top */
    uint32_t n_symbols, n_heap;
    uint64_t work;
};

/* ---- heap ---- */

/* Returns whether the pair of symbol `a` is merged before that of `b`. */
static bool before(const struct pass *pass, uint32_t a, uint32_t b) {
    TW_ASSERT(a < pass->n_symbols && b < pass->n_symbols);
    TW_ASSERT(pass->symbols[a].merged != TW_NONE && pass->symbols[b].merged != TW_NONE);
    float key_a = pass->symbols[a].key, key_b = pass->symbols[b].key;
    return key_a < key_b || (key_a == key_b && a < b);
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

/* ---- pairs ---- */

/* Finds the piece that a symbol forms with the next one, or TW_NONE, and its key. */
static uint32_t find_pair(struct pass *pass, const struct tw_symbol *symbol, float *key) {
    const struct tw_tokenizer *t = pass->tokenizer;
    if (symbol->next == TW_NONE) {
        return TW_NONE;
    }
    TW_ASSERT(symbol->next < pass->n_symbols &&
              pass->symbols[symbol->next].at == symbol->at + symbol->length);
    const struct tw_symbol *right = &pass->symbols[symbol->next];
    pass->work++;
    if (t->merges) {
        uint32_t rank = tw_merge_find(t, symbol->id, right->id);
        *key = (float)rank; /* exact: ranks are below 2^24 */
        return rank != TW_NONE ? t->vocab.merges[rank].merged : TW_NONE;
    }
    uint32_t id = tw_piece_find(t, pass->text + symbol->at, symbol->length + right->length);
    *key = id != TW_NONE ? -t->vocab.scores[id] : 0.0f;
    return id;
}

/* Looks up the pair of a symbol again, after the symbol or its neighbour grew. */
static void refresh(struct pass *pass, uint32_t index) {
    struct tw_symbol *symbol = &pass->symbols[index];
    bool queued = symbol->merged != TW_NONE;
    float key = 0.0f;
    uint32_t merged = find_pair(pass, symbol, &key);
    if (merged == TW_NONE) {
        if (queued) {
            leave_heap(pass, index);
        }
        return;
    }
    symbol->merged = merged;
    symbol->key = key;
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
    struct tw_symbol *left = &pass->symbols[index], *right = &pass->symbols[left->next];
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

static void merge_all(struct pass *pass) {
    for (uint32_t i = 0; i < pass->n_symbols; i++) {
        struct tw_symbol *symbol = &pass->symbols[i];
        symbol->merged = find_pair(pass, symbol, &symbol->key);
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

/* ---- symbols ---- */

static uint32_t character_length(const char *text, size_t n) {
    size_t length = tw_utf8_char(text, n);
    return length ? (uint32_t)length : 1;
}

/* Splits the word into symbols; there is room for one per byte. */
static void split(struct pass *pass, uint32_t n) {
    const struct tw_tokenizer *t = pass->tokenizer;
    bool bytes = t->vocab.header.kind == TW_VOCAB_BYTE_BPE;
    uint32_t count = 0;
    for (uint32_t at = 0, length; at < n; at += length) {
        length = bytes ? 1 : character_length(pass->text + at, n - at);
        pass->symbols[count] =
            (struct tw_symbol){.at = at,
                               .length = length,
                               .previous = count > 0 ? count - 1 : TW_NONE,
                               .next = at + length < n ? count + 1 : TW_NONE,
                               .id = bytes ? t->byte_ids[(uint8_t)pass->text[at]]
                                           : tw_piece_find(t, pass->text + at, length)};
        pass->work += !bytes;
        count++;
    }
    pass->n_symbols = count;
}

static int emit(const struct pass *pass, bool *unknown, struct tw_token_list *out, tw_error *err) {
    int rc = 0;
    for (uint32_t i = 0; i < pass->n_symbols && rc == 0; i++) {
        const struct tw_symbol *symbol = &pass->symbols[i];
        if (symbol->length == 0) {
            continue;
        }
        if (symbol->id == TW_NONE) {
            rc = tw_append_unspelled(pass->tokenizer, pass->text + symbol->at, symbol->length,
                                     unknown, out, err);
        } else {
            *unknown = false;
            rc = tw_append_id(out, symbol->id, err);
        }
    }
    return rc;
}

int tw_encode_word(const struct tw_tokenizer *tokenizer, const char *word, uint32_t n,
                   struct tw_encode_scratch *scratch, bool *unknown, struct tw_token_list *out,
                   tw_error *err) {
    if (!tw_grow(&scratch->symbols, &scratch->symbols_room, n, sizeof *scratch->symbols) ||
        !tw_grow(&scratch->heap, &scratch->heap_room, n, sizeof *scratch->heap)) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for a text of %u characters", n);
    }
    struct pass pass = {.tokenizer = tokenizer,
                        .text = word,
                        .symbols = scratch->symbols,
                        .heap = scratch->heap,
                        .work = n};
    split(&pass, n);
    merge_all(&pass);
    out->work += pass.work;
    return emit(&pass, unknown, out, err);
}
