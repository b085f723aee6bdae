/* SPDX-License-Identifier: Apache-2.0
 *
 * Unigram: of all splits of a text into pieces, the one with the highest sum of scores (Viterbi's
 * algorithm over the characters). A character that no piece spells costs what SentencePiece charges
 * for it, and a USER_DEFINED piece nothing.
 */
#include "driver/tokenizer/tokenizer_internal.h"
#include "driver/tokenizer/utf8_stream.h"

#include <math.h>
#include <stdlib.h>

/* Longer pieces are not tried in plain text, so that the time is linear whatever the vocabulary. */
#define PIECE_BYTES_MAX 512u

/* The best split of the text up to a place: its score, and its last piece. */
struct best {
    double score;
    uint32_t from, id; /* id TW_NONE: an unknown character */
};

static void offer(struct best *best, double score, uint32_t from, uint32_t id) {
    if (score > best->score) {
        *best = (struct best){score, from, id};
    }
}

/* Extends the best split that ends at `at` by every piece that begins there. */
static void extend(const struct tw_tokenizer *t, const char *text, uint32_t n, uint32_t at,
                   struct best *best, uint64_t *work) {
    uint32_t max = t->longest < PIECE_BYTES_MAX ? t->longest : PIECE_BYTES_MAX;
    uint32_t length = (uint32_t)tw_utf8_char(text + at, n - at), end = max < n - at ? max : n - at;
    uint64_t hash = TW_PIECE_HASH;
    bool spelled = false;
    length = length ? length : 1;
    for (uint32_t i = 1; i <= end; i++) {
        hash = tw_piece_hash(hash, text[at + i - 1]);
        uint32_t id =
            t->lengths[i / 8] & 1u << i % 8 ? tw_piece_find_hashed(t, text + at, i, hash) : TW_NONE;
        ++*work;
        if (id != TW_NONE) {
            bool free_of_cost = tw_piece_type(&t->vocab, id) == TW_TOKEN_USER_DEFINED;
            double score = free_of_cost ? 0.0 : (double)t->vocab.scores[id];
            offer(&best[at + i], best[at].score + score, at, id);
            spelled = spelled || i == length;
        }
    }
    if (!spelled) {
        offer(&best[at + length], best[at].score + (double)t->unknown_score, at, TW_NONE);
    }
}

/* Turns the chain of pieces around: best[i].from becomes where the piece that begins at i ends. */
static void turn_around(struct best *best, uint32_t n) {
    uint32_t end = n, next_end = n, next_id = TW_NONE;
    while (end > 0) {
        uint32_t from = best[end].from, id = best[end].id;
        best[end].from = next_end;
        best[end].id = next_id;
        next_end = end;
        next_id = id;
        end = from;
    }
    best[0].from = next_end;
    best[0].id = next_id;
}

int tw_encode_unigram(const struct tw_tokenizer *tokenizer, const char *text, uint32_t n,
                      struct tw_token_list *out, tw_error *err) {
    struct best *best = malloc(((size_t)n + 1) * sizeof *best);
    bool unknown = false;
    int rc = 0;
    if (!best) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for a text of %u bytes", n);
    }
    for (uint32_t i = 0; i <= n; i++) {
        best[i] = (struct best){i == 0 ? 0.0 : -INFINITY, 0, TW_NONE};
    }
    for (uint32_t at = 0; at < n; at++) {
        if (best[at].score > -INFINITY) {
            extend(tokenizer, text, n, at, best, &out->work);
        }
    }
    turn_around(best, n);
    for (uint32_t at = 0; at < n && rc == 0; at = best[at].from) {
        if (best[at].id == TW_NONE) {
            rc = tw_append_unspelled(tokenizer, text + at, best[at].from - at, &unknown, out, err);
        } else {
            unknown = false;
            rc = tw_append_id(out, best[at].id, err);
        }
    }
    free(best);
    return rc;
}
