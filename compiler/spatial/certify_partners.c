/* SPDX-License-Identifier: Apache-2.0
 *
 * Which engines exchange flags in loops, so that they enter these together. Each op on a semaphore
 * is listed once, with the loops around it; the partner of a loop is whoever has its next op on the
 * other side of the same word in a loop that it has not entered.
 */
#include "compiler/spatial/certify_internal.h"

/* An op on a semaphore. */
struct touch {
    uint32_t stream, at; /* at: word of the stream */
    bool waits;
    uint32_t site, group; /* raised: a site, or (TW_NONE) those of a group */
    uint32_t depth, from[TW_MAX_VARS], to[TW_MAX_VARS]; /* loops around it; `to` is their END */
};
struct touches {
    TW_VEC(struct touch) ops; /* by stream, then place */
};

/* Returns the place of the END of a LOOP. */
static uint32_t end_of(const struct tw_stream *s, uint32_t at) {
    uint32_t depth = 0;
    for (; at < s->n_words; at += s->words[at] >> 16) {
        uint32_t code = s->words[at] & 0xFFFFu;
        depth += code == TW_OP_LOOP;
        if (code == TW_OP_END && --depth == 0) {
            break;
        }
    }
    return at;
}

static void list_stream(struct certifier *c, uint32_t stream) {
    const struct tw_stream *s = &c->p->streams[stream];
    struct touch t = {.stream = stream};
    struct tw_op op;
    for (; tw_op_decode(s->words, s->n_words, t.at, &op); t.at += op.n_words) {
        if (op.code == TW_OP_LOOP) {
            t.from[t.depth] = t.at;
            t.to[t.depth++] = end_of(s, t.at);
        } else if (op.code == TW_OP_END) {
            t.depth--;
        } else if (op.code == TW_OP_SEM_INC || op.code == TW_OP_SEM_WAIT ||
                   op.code == TW_OP_MCAST_SET) {
            t.waits = op.code == TW_OP_SEM_WAIT;
            t.site = op.code == TW_OP_SEM_INC ? op.operand[TW_SEM_INC_site].id : TW_NONE;
            t.group = op.code == TW_OP_MCAST_SET ? op.operand[TW_MCAST_SET_group].id : TW_NONE;
            *TW_VEC_PUSH(c->mem, c->touches[op.operand[0].id].ops) = t;
        }
    }
}

static void list_touches(struct certifier *c) {
    c->touches = tw_cmem_alloc(c->mem, ((size_t)c->p->n_semaphores + 1) * sizeof *c->touches);
    for (uint32_t i = 0; i < c->n_streams; i++) {
        list_stream(c, i);
    }
}

static bool raises(const struct certifier *c, const struct touch *t, uint32_t site) {
    return !t->waits && (t->site != TW_NONE ? t->site == site
                                            : tw_group_holds(c->p, &c->p->groups[t->group], site));
}

/* Returns true if the two ops are on different sides of one word. */
static bool are_sides(const struct certifier *c, const struct touch *a, const struct touch *b) {
    return a->waits ? raises(c, b, c->p->streams[a->stream].site)
                    : b->waits && raises(c, a, c->p->streams[b->stream].site);
}

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
    *TW_VEC_PUSH(c->mem, c->partners) = next->stream;
    return at->words_at == next->from[depth];
}

/* Looks for the partners at one op of the loop. */
static bool partners_of(struct certifier *c, const struct touches *t, const struct touch *own) {
    uint32_t seen = TW_NONE; /* the stream whose next op was looked at */
    for (uint32_t i = 0; i < t->ops.n; i++) {
        const struct touch *other = &t->ops.items[i];
        if (other->stream == own->stream || other->stream == seen ||
            other->at < c->cursors[other->stream].words_at || !are_sides(c, own, other)) {
            continue;
        }
        seen = other->stream;
        if (!add_partner(c, other)) {
            return false;
        }
    }
    return true;
}

bool tw_certify_partners(struct certifier *c, uint32_t stream) {
    uint32_t loop = c->cursors[stream].words_at, depth = c->cursors[stream].depth;
    if (!c->touches) {
        list_touches(c);
    }
    for (uint32_t i = 0; i < c->p->n_semaphores; i++) {
        const struct touches *t = &c->touches[i];
        for (uint32_t k = 0; k < t->ops.n; k++) {
            const struct touch *own = &t->ops.items[k];
            if (own->stream == stream && own->depth > depth && own->from[depth] == loop &&
                !partners_of(c, t, own)) {
                return false;
            }
        }
    }
    return true;
}
