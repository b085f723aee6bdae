/* SPDX-License-Identifier: Apache-2.0
 *
 * Which engines exchange flags in loops, so that they enter these together. Each op on a semaphore
 * is listed once, with the loops around it, by stream and by the word that it waits for or raises;
 * the partner of a loop is whoever has its next op on the other side of the same word in a loop
 * that it has not entered. What a group raises or waits for together is looked at once for all
 * members of a loop, and from the last stream on: streams come to their loops in ascending order,
 * so one that is not there yet is found soon.
 */
#include "compiler/spatial/certify_internal.h"

/* An op on a semaphore. */
struct touch {
    uint32_t stream, at; /* at: word of the stream */
    uint32_t semaphore;
    bool waits;
    uint32_t site,
        group; /* of a raise: a site, or (TW_NONE) those of a group; of a wait: its own */
    uint32_t depth, from[TW_MAX_VARS]; /* the loops around it; they end at to[] */
    uint32_t to[TW_MAX_VARS];
};

/* Numbers of touches, in ascending order: list i is items[first[i]] .. items[first[i + 1] - 1]. */
struct lists {
    uint32_t *first, *items;
};

struct touches {
    TW_VEC(struct touch) ops;           /* by stream, then place */
    uint32_t *first;                    /* by stream */
    struct lists words;                 /* waits and raises of one word */
    struct lists groups;                /* by semaphore: raises of groups */
    uint8_t *parts;                     /* by semaphore: some raise less than all of its words */
    uint32_t *waits_seen, *groups_seen; /* by semaphore: the gathering that looked at all of them */
};

/* ---- lists ---- */

static void list_stream(struct certifier *c, uint32_t stream) {
    const struct tw_stream *s = &c->p->streams[stream];
    struct touches *all = c->touches;
    uint32_t first = all->ops.n;
    struct touch t = {.stream = stream};
    struct tw_op op;
    for (; tw_op_decode(s->words, s->n_words, t.at, &op); t.at += op.n_words) {
        if (op.code == TW_OP_LOOP) {
            t.from[t.depth] = t.at;
            t.to[t.depth++] = s->n_words;
        } else if (op.code == TW_OP_END) {
            t.depth--;
            for (uint32_t i = all->ops.n; i > first && all->ops.items[i - 1].at > t.from[t.depth];
                 i--) { /* it is known now */
                all->ops.items[i - 1].to[t.depth] = t.at;
            }
        } else if (op.code == TW_OP_SEM_INC || op.code == TW_OP_SEM_WAIT ||
                   op.code == TW_OP_MCAST_SET) {
            t.semaphore = op.operand[0].id;
            t.waits = op.code == TW_OP_SEM_WAIT;
            t.site = t.waits                    ? s->site
                     : op.code == TW_OP_SEM_INC ? op.operand[TW_SEM_INC_site].id
                                                : TW_NONE;
            t.group = op.code == TW_OP_MCAST_SET ? op.operand[TW_MCAST_SET_group].id : TW_NONE;
            *TW_VEC_PUSH(c->mem, all->ops) = t;
        }
    }
}

/* Returns the list that a touch belongs to: of its word, or of its semaphore's groups. */
static uint32_t list_of(const struct certifier *c, const struct touch *t, bool groups) {
    bool word = t->site != TW_NONE;
    return word == groups ? TW_NONE
           : groups       ? t->semaphore
                          : tw_certify_word(c, t->semaphore, t->site);
}

static void make_lists(struct certifier *c, struct lists *l, uint32_t n, bool groups) {
    const struct touches *all = c->touches;
    l->first = tw_cmem_alloc(c->mem, ((size_t)n + 2) * sizeof(uint32_t));
    l->items = tw_cmem_alloc(c->mem, ((size_t)all->ops.n + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < all->ops.n; i++) {
        uint32_t k = list_of(c, &all->ops.items[i], groups);
        if (k != TW_NONE) {
            l->first[k + 2]++;
        }
    }
    for (uint32_t k = 2; k < n + 2; k++) {
        l->first[k] += l->first[k - 1];
    }
    for (uint32_t i = 0; i < all->ops.n; i++) {
        uint32_t k = list_of(c, &all->ops.items[i], groups);
        if (k != TW_NONE) {
            l->items[l->first[k + 1]++] = i;
        }
    }
}

/* Returns true if the group is all words of the semaphore. */
static bool is_all(const struct certifier *c, uint32_t semaphore, uint32_t group) {
    const struct tw_group *all = &c->p->groups[c->p->semaphores[semaphore].group];
    return tw_group_within(all, &c->p->groups[group]) != 0;
}

static void list_touches(struct certifier *c) {
    uint32_t n = c->p->n_semaphores;
    struct touches *all = c->touches = tw_cmem_alloc(c->mem, sizeof *c->touches);
    all->first = tw_cmem_alloc(c->mem, ((size_t)c->n_streams + 1) * sizeof(uint32_t));
    all->parts = tw_cmem_alloc(c->mem, (size_t)n + 1);
    all->waits_seen = tw_cmem_alloc(c->mem, ((size_t)n + 1) * sizeof(uint32_t));
    all->groups_seen = tw_cmem_alloc(c->mem, ((size_t)n + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < c->n_streams; i++) {
        all->first[i] = all->ops.n;
        list_stream(c, i);
    }
    all->first[c->n_streams] = all->ops.n;
    for (uint32_t i = 0; i < all->ops.n; i++) {
        const struct touch *t = &all->ops.items[i];
        all->parts[t->semaphore] |= t->site == TW_NONE && !is_all(c, t->semaphore, t->group);
    }
    make_lists(c, &all->words, c->n_words, false);
    make_lists(c, &all->groups, n, true);
}

/* ---- partners ---- */

/* Looks at the next op of another stream on the other side of a word. */
static bool add_partner(struct certifier *c, const struct touch *next) {
    const struct cursor *at = &c->cursors[next->stream];
    uint32_t depth = at->depth;
    for (uint32_t d = 0; d < depth && d < next->depth; d++) {
        if (next->from[d] >= at->words_at || next->to[d] < at->words_at) {
            return true; /* not in the loops where the stream is */
        }
    }
    if (next->depth <= depth) {
        return true; /* in none that it would have to enter */
    }
    if (at->words_at != next->from[depth]) {
        return false;
    }
    *TW_VEC_PUSH(c->mem, c->partners) = next->stream;
    return true;
}

/* Looks at a list, of each stream at its next op that waits (or does not), from the last stream
 * on; of raises of groups at those that hold the site. */
static bool add_list(struct certifier *c, const struct lists *l, uint32_t list, bool waits,
                     uint32_t site, uint32_t own) {
    const struct touch *ops = c->touches->ops.items, *next = NULL;
    for (uint32_t i = l->first[list + 1]; i > l->first[list]; i--) {
        const struct touch *t = &ops[l->items[i - 1]];
        bool holds = t->site != TW_NONE || site == TW_NONE ||
                     tw_group_holds(c->p, &c->p->groups[t->group], site);
        if (next && next->stream != t->stream) {
            if (!add_partner(c, next)) {
                return false;
            }
            next = NULL;
        }
        if (t->stream != own && t->waits == waits && holds &&
            t->at >= c->cursors[t->stream].words_at) {
            next = t;
        }
    }
    return !next || add_partner(c, next);
}

/* Those who raise a word that the op waits for. */
static bool add_raisers(struct certifier *c, const struct touch *own) {
    struct touches *all = c->touches;
    uint32_t *seen = &all->groups_seen[own->semaphore], word = list_of(c, own, false);
    if (!add_list(c, &all->words, word, false, own->site, own->stream)) {
        return false;
    }
    if (*seen == c->gathering && !all->parts[own->semaphore]) {
        return true; /* they raise all words, and were looked at */
    }
    *seen = c->gathering;
    return add_list(c, &all->groups, own->semaphore, false, own->site, own->stream);
}

/* Those who wait for words that the op raises. */
static bool add_waiters(struct certifier *c, const struct touch *own) {
    struct touches *all = c->touches;
    if (own->site != TW_NONE) {
        return add_list(c, &all->words, list_of(c, own, false), true, TW_NONE, own->stream);
    }
    if (all->waits_seen[own->semaphore] == c->gathering) {
        return true;
    }
    const struct tw_group *g = &c->p->groups[own->group];
    for (uint32_t i = (uint32_t)tw_group_size(g); i > 0; i--) {
        uint32_t word = tw_certify_word(c, own->semaphore, tw_group_site(c->p, g, i - 1));
        if (!add_list(c, &all->words, word, true, TW_NONE, own->stream)) {
            return false;
        }
    }
    if (is_all(c, own->semaphore, own->group)) {
        all->waits_seen[own->semaphore] = c->gathering;
    }
    return true;
}

/* Returns the stream's first touch at that word of it or after. */
static uint32_t find_touch(const struct touches *all, uint32_t stream, uint32_t at) {
    uint32_t from = all->first[stream], to = all->first[stream + 1];
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (all->ops.items[middle].at < at) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

bool tw_certify_partners(struct certifier *c, uint32_t stream) {
    uint32_t loop = c->cursors[stream].words_at, depth = c->cursors[stream].depth;
    if (!c->touches) {
        list_touches(c);
    }
    const struct touches *all = c->touches;
    for (uint32_t i = find_touch(all, stream, loop); i < all->first[stream + 1]; i++) {
        const struct touch *own = &all->ops.items[i];
        if (own->depth <= depth || own->from[depth] != loop) {
            break;
        }
        if (!(own->waits ? add_raisers(c, own) : add_waiters(c, own))) {
            return false;
        }
    }
    return true;
}
