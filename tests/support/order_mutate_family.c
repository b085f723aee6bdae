/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of mutations (order_mutate_family.h): their tools, and pairs of fields.
 */
#include "tests/support/order_mutate_family.h"

#include "tests/support/order_mutate_number.h"
#include "tests/support/random_model.h"

#include <assert.h>
#include <stdlib.h>

bool order_change_family(const struct order_index *x, struct order_mutant *m, uint32_t family,
                         uint64_t *seed) {
    static bool (*const families[])(const struct order_index *, struct order_mutant *,
                                    uint64_t *) = {
#define TW_X(id, name, function) order_family_##function,
        ORDER_FAMILIES(TW_X)
#undef TW_X
    };
    free(m->words); /* other ops in other places: there is nothing to adapt to */
    m->words = NULL;
    m->n_words = 0;
    return families[family](x, m, seed);
}

/* ---- tools ---- */

void *order_own_table(struct order_mutant *m, const void *from, uint32_t n, uint32_t more,
                      size_t record_bytes) {
    uint8_t *to = order_own(m, NULL, 0);
    m->owned[m->n_owned - 1] = to = realloc(to, (n + more) * record_bytes + 1);
    assert(to);
    if (n) {
        memcpy(to, from, n * record_bytes);
    }
    memset(to + n * record_bytes, 0, more * record_bytes);
    return to;
}

uint32_t order_put_op(struct order_mutant *m, uint32_t stream, uint32_t at, struct tw_op *op) {
    uint32_t words[TW_MAX_OP_WORDS], old = order_size_at(&m->streams[stream], at),
                                     n = tw_op_encode(op, words);
    order_splice(m, stream, at, old, words, n);
    return n;
}

/* A stream is copied when its first op changes; each op may grow to the maximum. */
static uint32_t change_stream(struct order_mutant *m, uint32_t stream,
                              bool (*change)(void *ctx, uint32_t stream, struct tw_op *op),
                              void *ctx) {
    const struct tw_stream *s = &m->streams[stream];
    uint32_t *words = NULL, n = 0, changed = 0;
    struct tw_op op;
    for (uint32_t at = 0; tw_op_decode(s->words, s->n_words, at, &op); at += s->words[at] >> 16) {
        if (change(ctx, stream, &op)) {
            if (!words) {
                words = order_own_table(m, s->words, at, (order_op_count(s) + 1) * TW_MAX_OP_WORDS,
                                        sizeof *words);
            }
            n += tw_op_encode(&op, words + n);
            changed++;
        } else if (words) {
            memcpy(words + n, s->words + at, (s->words[at] >> 16) * sizeof *words);
            n += s->words[at] >> 16;
        } else {
            n += s->words[at] >> 16;
        }
    }
    if (words) {
        m->streams[stream].words = words;
        m->streams[stream].n_words = n;
    }
    return changed;
}

uint32_t order_each_op(struct order_mutant *m,
                       bool (*change)(void *ctx, uint32_t stream, struct tw_op *op), void *ctx) {
    uint32_t changed = 0;
    for (uint32_t s = 0; s < m->p.n_sites * TW_ENGINE_COUNT && m->n_owned + 8 < ORDER_MAX_OWNED;
         s++) {
        changed += change_stream(m, s, change, ctx);
    }
    return changed;
}

bool order_choose(const struct order_index *x, uint32_t op_class, struct order_place *out,
                  uint64_t *seed) {
    for (uint32_t tries = 0; tries < 8; tries++) {
        uint32_t c =
            op_class < ORDER_N_OP_CLASSES ? op_class : random_below(seed, ORDER_N_OP_CLASSES);
        if (x->n[c]) {
            *out = x->places[c][random_below(seed, x->n[c])];
            return true;
        }
    }
    return false;
}

bool order_choose_code(const struct order_index *x, const uint32_t *codes, uint32_t n,
                       struct order_place *out, uint64_t *seed) {
    for (uint32_t tries = 0; tries < 64; tries++) {
        if (order_choose(x, ORDER_N_OP_CLASSES, out, seed)) {
            const struct tw_stream *s = &x->program->streams[out->stream];
            uint32_t code = s->words[order_word_of(s, out->op)] & 0xFFFFu;
            for (uint32_t i = 0; i < n; i++) {
                if (codes[i] == code) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* ---- pairs of fields ---- */

static bool alter(struct order_mutant *m, struct order_place p, uint32_t fields, uint64_t *seed) {
    const struct tw_stream *s = &m->streams[p.stream];
    uint32_t at = order_word_of(s, p.op);
    struct tw_op op;
    if (!tw_op_decode(s->words, s->n_words, at, &op)) {
        return false;
    }
    order_describe(m, " [site %u %s op %u %s", s->site, tw_engine_name(s->engine), p.op,
                   tw_op_info(op.code).name);
    for (uint32_t i = 0; i < fields; i++) {
        char what[160];
        order_alter_op(&m->p, p.stream, &op, seed, what, sizeof what);
        order_describe(m, " %s", what);
    }
    order_describe(m, "]");
    order_put_op(m, p.stream, at, &op);
    return true;
}

bool order_family_fields(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    struct order_place p;
    return order_choose(x, ORDER_N_OP_CLASSES, &p, seed) && alter(m, p, 2, seed);
}

/* Two ops of one engine, near each other half of the time; or the same op of two sites. */
bool order_family_ops(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    struct order_place a, b;
    if (!order_choose(x, ORDER_N_OP_CLASSES, &a, seed)) {
        return false;
    }
    uint32_t n = order_op_count(&m->streams[a.stream]);
    uint64_t same = random_next(seed), again = same;
    b = (struct order_place){a.stream, (a.op + 1 + random_below(seed, 6)) % n};
    if (random_below(seed, 2)) {
        b.op = random_below(seed, n);
    }
    if (random_below(seed, 3) == 0) { /* also the same change, on a site like it */
        b = (struct order_place){
            (random_below(seed, m->p.n_sites) * TW_ENGINE_COUNT + a.stream % TW_ENGINE_COUNT),
            a.op};
        again = random_below(seed, 2) ? same : random_next(seed);
    } else {
        again = random_next(seed);
    }
    return alter(m, a, 1, &same) && alter(m, b, 1, &again);
}

bool order_family_records(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    uint32_t changed = 0;
    for (uint32_t i = 0; i < 2; i++) {
        enum order_record r = (enum order_record)random_below(seed, ORDER_N_RECORDS);
        char what[160];
        size_t bytes = 0;
        const void *table = order_record_table(&m->p, r, &bytes);
        if (!table || bytes) {
            void *copy = order_own(m, table, bytes);
            order_alter_record(&m->p, r, copy, seed, what, sizeof what);
            order_describe(m, " [%s]", what);
            changed++;
        }
    }
    struct order_place p;
    if (changed < 2 && order_choose(x, ORDER_N_OP_CLASSES, &p, seed)) {
        changed += alter(m, p, 1, seed);
    }
    return changed > 0;
}
