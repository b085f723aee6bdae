/* SPDX-License-Identifier: Apache-2.0
 *
 * False certificates (order_false_certificates.h).
 */
#include "tests/support/order_false_certificates.h"

#include "tests/support/random_model.h"
#include "tilewright/opcode.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void make_room(struct order_false *l, uint32_t n) {
    if (n > l->room) {
        l->room = n * 2 + 64;
        l->words = realloc(l->words, l->room * sizeof *l->words);
        assert(l->words);
    }
}

void order_false_begin(struct order_false *l, const struct tw_certificate *c) {
    memset(l, 0, sizeof *l);
    make_room(l, c->n_words + 1);
    if (c->n_words) {
        memcpy(l->words, c->words, c->n_words * sizeof *l->words);
    }
    l->n = c->n_words;
}

void order_false_free(struct order_false *l) {
    free(l->words);
    memset(l, 0, sizeof *l);
}

/* ---- changes ---- */

static void insert(struct order_false *l, uint32_t at, const uint32_t *words, uint32_t n) {
    make_room(l, l->n + n);
    memmove(l->words + at + n, l->words + at, (size_t)(l->n - at) * 4);
    memcpy(l->words + at, words, (size_t)n * 4);
    l->n += n;
}

static void cut(struct order_false *l, uint32_t at, uint32_t n) {
    n = n < l->n - at ? n : l->n - at;
    memmove(l->words + at, l->words + at + n, (size_t)(l->n - at - n) * 4);
    l->n -= n;
}

static uint32_t turn_words(const struct order_false *l, uint32_t at) {
    uint32_t turn = l->words[at] >> 28, value = l->words[at] & 0x0FFFFFFFu;
    uint32_t n = turn == TW_TURN_RUN ? 2 : turn == TW_TURN_LOOP && value < l->n ? 1 + value : 1;
    return n < l->n - at ? n : l->n - at;
}

/* The turn that begins at or before a word. */
static uint32_t turn_at(const struct order_false *l, uint32_t word) {
    uint32_t at = 0;
    while (at + turn_words(l, at) <= word) {
        at += turn_words(l, at);
    }
    return at;
}

static void exchange(struct order_false *l, uint32_t at, uint32_t to) {
    uint32_t copy[64], n = turn_words(l, at);
    if (n > 64) {
        return;
    }
    memcpy(copy, l->words + at, (size_t)n * 4);
    cut(l, at, n);
    insert(l, l->n ? (to < l->n ? turn_at(l, to) : l->n) : 0, copy, n);
}

void order_false_edit(struct order_false *l, uint32_t kind, uint32_t at, uint32_t value) {
    uint32_t run[2] = {TW_TURN_WORD(TW_TURN_RUN, value % 16), 1 + value / 16 % 8};
    if (l->n == 0) {
        insert(l, 0, run, 2);
        return;
    }
    at %= l->n;
    uint32_t copy = l->words[at];
    switch (kind % 10) {
    case 0:
        l->words[at] ^= 1u << value % 32;
        break;
    case 1:
        l->words[at] += value % 2 ? 1 : (uint32_t)-1;
        break;
    case 2:
        l->words[at] = value;
        break;
    case 3:
        cut(l, at, 1 + value % 3);
        break;
    case 4:
        l->n = at; /* the end is missing */
        break;
    case 5:
        insert(l, at, &copy, 1);
        break;
    case 6:
        exchange(l, turn_at(l, at), value % (l->n + 1));
        break;
    case 7:
        at = turn_at(l, at);
        exchange(l, at, at + turn_words(l, at));
        break;
    case 8:
        insert(l, turn_at(l, at), run, 2);
        break;
    default: /* part of a run now, the rest later */
        at = turn_at(l, at);
        if (l->words[at] >> 28 == TW_TURN_RUN && at + 1 < l->n && l->words[at + 1] > 1) {
            uint32_t now = 1 + value % (l->words[at + 1] - 1),
                     later[2] = {l->words[at], l->words[at + 1] - now};
            l->words[at + 1] = now;
            insert(l, turn_at(l, (at + 2 + value / 16 % 8) % l->n), later, 2);
        }
        break;
    }
}

void order_false_describe(struct order_false *l, uint64_t *seed) {
    uint32_t kind = random_below(seed, 10), at = (uint32_t)random_next(seed);
    order_false_edit(l, kind, at, (uint32_t)random_next(seed));
}

void order_false_split(struct order_false *l, uint64_t *seed) {
    for (uint32_t at = 0; at < l->n; at += turn_words(l, at)) {
        if (l->words[at] >> 28 == TW_TURN_RUN && l->words[at + 1] > 1 && random_below(seed, 2)) {
            uint32_t now = 1 + random_below(seed, l->words[at + 1] - 1),
                     first[2] = {l->words[at], now};
            l->words[at + 1] -= now;
            insert(l, at, first, 2);
        }
    }
}

/* ---- other orders ---- */

struct wander {
    const struct tw_program *p;
    uint32_t *at;     /* [stream]: next word */
    uint32_t *levels; /* [buffer] */
    uint64_t *words;  /* [semaphore][site] */
    struct tw_op op;
};

static bool can_run(struct wander *w, uint32_t stream) {
    const struct tw_stream *s = &w->p->streams[stream];
    static const uint32_t first_epoch[TW_MAX_VARS] = {0};
    if (!tw_op_decode(s->words, s->n_words, w->at[stream], &w->op)) {
        return false;
    }
    const struct tw_operand *o = w->op.operand;
    switch (w->op.code) {
    case TW_OP_RESERVE:
        return w->p->buffers[o[0].id].pages - w->levels[o[0].id] >= o[1].id;
    case TW_OP_WAIT:
        return w->levels[o[0].id] >= o[1].id;
    case TW_OP_SEM_WAIT:
        return w->p->semaphores[o[0].id].initial +
                   w->words[(size_t)o[0].id * w->p->n_sites + s->site] >=
               tw_affine_value(&o[1].offset, first_epoch);
    case TW_OP_LOOP:
        return false;
    default:
        return true;
    }
}

static void run_op(struct wander *w, uint32_t stream) {
    const struct tw_program *p = w->p;
    const struct tw_operand *o = w->op.operand;
    w->at[stream] += w->op.n_words;
    if (w->op.code == TW_OP_PUSH) {
        w->levels[o[0].id] += o[1].id;
    } else if (w->op.code == TW_OP_POP) {
        w->levels[o[0].id] -= o[1].id;
    } else if (w->op.code == TW_OP_SEM_INC) {
        w->words[(size_t)o[0].id * p->n_sites + o[1].id] += o[2].id;
    } else if (w->op.code == TW_OP_MCAST_SET) {
        const struct tw_group *g = &p->groups[o[1].id];
        for (uint32_t y = g->y0; y < g->y1; y++) {
            for (uint32_t x = g->x0; x < g->x1; x++) {
                w->words[(size_t)o[0].id * p->n_sites +
                         (g->chip * p->mesh_height + y) * p->mesh_width + x]++;
            }
        }
    }
}

bool order_false_wander(struct order_false *l, const struct tw_program *p, uint64_t *seed) {
    uint32_t n = p->n_sites * TW_ENGINE_COUNT, left;
    struct wander w = {.p = p};
    w.at = calloc(n, sizeof *w.at);
    w.levels = calloc(p->n_buffers + 1, sizeof *w.levels);
    w.words = calloc((size_t)p->n_semaphores * p->n_sites + 1, sizeof *w.words);
    uint32_t *ready = calloc(n, sizeof *ready);
    assert(w.at && w.levels && w.words && ready);
    for (l->n = 0, left = 1; left;) {
        uint32_t n_ready = 0;
        left = 0;
        for (uint32_t s = 0; s < n; s++) {
            left += w.at[s] < p->streams[s].n_words;
            if (can_run(&w, s)) {
                ready[n_ready++] = s;
            }
        }
        if (n_ready == 0) {
            break;
        }
        uint32_t s = ready[random_below(seed, n_ready)], run[2] = {TW_TURN_WORD(TW_TURN_RUN, s), 1};
        (void)can_run(&w, s); /* decodes it again */
        run_op(&w, s);
        insert(l, l->n, run, 2);
    }
    free(w.at);
    free(w.levels);
    free(w.words);
    free(ready);
    return left == 0;
}
