/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of mutations that move or copy whole blocks of ops (order_mutate_family.h). Where a
 * block arrives at another site or engine, its stages, buffers and sites become those of the new
 * place, so that it is refused for where it is, not for whose it was.
 */
#include "tests/support/order_mutate_family.h"
#include "tests/support/random_model.h"
#include "tilewright/op_schema.h"

#include <stdlib.h>

enum { MAX_BLOCK = 24, MAX_LOOP = 200 };

struct block {
    uint32_t stream, op, n; /* ops [op, op + n) */
};

/* ---- to another place ---- */

static uint32_t stage_at(const struct tw_program *p, uint32_t stage, uint32_t site,
                         uint32_t engine) {
    if (stage >= p->n_stages) {
        return stage;
    }
    const struct tw_stage *old = &p->stages[stage];
    uint32_t found = stage;
    for (uint32_t i = 0; i < p->n_stages; i++) {
        const struct tw_stage *s = &p->stages[i];
        if (s->section == old->section && s->site == site && s->engine == engine) {
            found = i;
            if (s->kind == old->kind && s->origin == old->origin) {
                break;
            }
        }
    }
    return found;
}

/* The buffer of the other site that is of the same set, or has the same name and kind. */
static uint32_t buffer_at(const struct tw_program *p, uint32_t buffer, uint32_t site) {
    if (buffer >= p->n_buffers || p->buffers[buffer].site == site) {
        return buffer;
    }
    const struct tw_buffer *old = &p->buffers[buffer];
    uint32_t sibling = tw_buffer_sibling(p, old, site);
    for (uint32_t i = 0; i < p->n_buffers && sibling == TW_NONE; i++) {
        const struct tw_buffer *b = &p->buffers[i];
        if (b->site == site && b->name == old->name && b->kind == old->kind &&
            b->page_bytes == old->page_bytes) {
            sibling = i;
        }
    }
    return sibling == TW_NONE ? buffer : sibling;
}

/* Rewrites an op of one stream for another. */
static void adopt(const struct tw_program *p, struct tw_op *op, uint32_t from, uint32_t to) {
    uint32_t site = to / TW_ENGINE_COUNT, old = from / TW_ENGINE_COUNT;
    op->stage = stage_at(p, op->stage, site, to % TW_ENGINE_COUNT);
    for (uint32_t i = 0; i < op->n_operands; i++) {
        struct tw_operand *o = &op->operand[i];
        switch (o->kind) {
        case 'R':
        case 'W':
        case 'M':
        case 'F':
            o->id = buffer_at(p, o->id, site);
            break;
        case 'C':
            o->id = o->id == old ? site : o->id;
            break;
        case 'D': /* to the site that the block came from, or another one */
            o->id = p->buffers[o->id].site == site ? buffer_at(p, o->id, old) : o->id;
            break;
        default:
            break;
        }
    }
}

/* The words of a block, rewritten for stream `to`; allocated. */
static uint32_t *take(const struct order_mutant *m, struct block b, uint32_t to, uint32_t *n) {
    const struct tw_stream *s = &m->streams[b.stream];
    uint32_t *words = malloc((size_t)(b.n + 1) * TW_MAX_OP_WORDS * sizeof *words);
    uint32_t at = order_word_of(s, b.op);
    struct tw_op op;
    *n = 0;
    for (uint32_t i = 0; words && i < b.n && tw_op_decode(s->words, s->n_words, at, &op); i++) {
        at += op.n_words;
        if (b.stream != to) {
            adopt(&m->p, &op, b.stream, to);
        }
        *n += tw_op_encode(&op, words + *n);
    }
    return words;
}

static uint32_t words_of(const struct order_mutant *m, struct block b) {
    const struct tw_stream *s = &m->streams[b.stream];
    return order_word_of(s, b.op + b.n) - order_word_of(s, b.op);
}

static void cut(struct order_mutant *m, struct block b) {
    order_splice(m, b.stream, order_word_of(&m->streams[b.stream], b.op), words_of(m, b), NULL, 0);
}

/* Moves or copies the block before op `op` of the stream; op counts as before the move. */
static void put(struct order_mutant *m, struct block b, uint32_t to, uint32_t op, bool move) {
    uint32_t n, *words = take(m, b, to, &n);
    order_describe(m, " [%s site %u %s ops %u..%u to site %u %s op %u]", move ? "moved" : "copied",
                   b.stream / TW_ENGINE_COUNT, tw_engine_name(b.stream % TW_ENGINE_COUNT), b.op,
                   b.op + b.n - 1, to / TW_ENGINE_COUNT, tw_engine_name(to % TW_ENGINE_COUNT), op);
    if (move) {
        cut(m, b);
        op -= to == b.stream && op > b.op ? (op >= b.op + b.n ? b.n : op - b.op) : 0;
    }
    order_splice(m, to, order_word_of(&m->streams[to], op), 0, words, n);
    free(words);
}

/* ---- blocks ---- */

static uint32_t code_at(const struct tw_stream *s, uint32_t op) {
    uint32_t at = order_word_of(s, op);
    return at < s->n_words ? s->words[at] & 0xFFFFu : 0;
}

/* A run of ops with all of the loops in it, or a loop with its borders. */
static bool choose_block(const struct order_index *x, struct order_mutant *m, struct block *b,
                         uint64_t *seed) {
    struct order_place p;
    static const uint32_t loop = TW_OP_LOOP;
    if (!(random_below(seed, 4) == 0 && order_choose_code(x, &loop, 1, &p, seed)) &&
        !order_choose(x, ORDER_N_OP_CLASSES, &p, seed)) {
        return false;
    }
    const struct tw_stream *s = &m->streams[p.stream];
    uint32_t n = order_op_count(s), want = 1 + random_below(seed, 10), end = p.op;
    while (end < n && end - p.op < MAX_LOOP) {
        uint32_t code = code_at(s, end);
        if (end - p.op >= want || code == TW_OP_END || code == 0) {
            break;
        }
        end = code == TW_OP_LOOP ? order_other_border(s, end) + 1 : end + 1;
        want = code == TW_OP_LOOP && random_below(seed, 2) ? 0 : want;
    }
    *b = (struct block){p.stream, p.op, end - p.op};
    return b->n > 0;
}

static bool is_control(const struct order_mutant *m, struct block b) {
    for (uint32_t i = 0; i < b.n; i++) {
        if (tw_op_is_data(code_at(&m->streams[b.stream], b.op + i))) {
            return false;
        }
    }
    return true;
}

/* The same engine, or that of another site; another engine only for ops that every one may run. */
static uint32_t choose_stream(const struct order_mutant *m, struct block b, uint64_t *seed) {
    uint32_t r = random_below(seed, 4), site = random_below(seed, m->p.n_sites),
             engine = b.stream % TW_ENGINE_COUNT;
    if (r == 0 && is_control(m, b)) {
        return b.stream - engine + random_below(seed, TW_ENGINE_COUNT);
    }
    return r < 2 && m->p.n_sites > 1 ? site * TW_ENGINE_COUNT + engine : b.stream;
}

/* Where to: near the place that the block has, or anywhere. */
static uint32_t choose_op(const struct order_mutant *m, struct block b, uint32_t stream,
                          uint64_t *seed) {
    uint32_t n = order_op_count(&m->streams[stream]), by = 1 + random_below(seed, 12);
    if (random_below(seed, 3) == 0) {
        return random_below(seed, n + 1);
    }
    uint32_t at = random_below(seed, 2) ? b.op + b.n + by : b.op > by ? b.op - by : 0;
    return at < n ? at : n;
}

bool order_family_block(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    struct block a;
    if (!choose_block(x, m, &a, seed)) {
        return false;
    }
    uint32_t to = choose_stream(m, a, seed), op = choose_op(m, a, to, seed);
    bool swap = random_below(seed, 3) == 0, move = swap || random_below(seed, 2);
    if (swap) { /* what is there comes here: first, while both places count as before */
        uint32_t n = order_op_count(&m->streams[to]), k = 1 + random_below(seed, 6);
        struct block b = {to, op, op + k <= n ? k : n - op};
        bool apart = to != a.stream || op >= a.op + a.n || op + b.n <= a.op;
        if (b.n && apart) {
            bool before = to == a.stream && op < a.op;
            put(m, b, a.stream, before ? a.op : a.op + a.n, false);
            a.op += before ? b.n : 0;
            b.op += to == a.stream && !before ? b.n : 0;
            cut(m, b);
            a.op -= before ? b.n : 0;
            op = b.op;
        }
    }
    put(m, a, to, op, move);
    return true;
}

/* ---- both ends of a FIFO ---- */

/* The ops from one of code `from` to the next of code `to` on the same FIFO. */
static bool find_end(const struct order_mutant *m, uint32_t stream, uint32_t fifo, uint32_t from,
                     uint32_t to, uint32_t nth, struct block *b) {
    const struct tw_stream *s = &m->streams[stream];
    uint32_t i = 0, begin = TW_NONE;
    for (uint32_t at = 0; at < s->n_words; at += s->words[at] >> 16, i++) {
        uint32_t code = s->words[at] & 0xFFFFu;
        if (code == from && s->words[at + 2] == fifo) {
            begin = nth-- == 0 ? i : begin;
        } else if (code == to && s->words[at + 2] == fifo && begin != TW_NONE) {
            *b = (struct block){stream, begin, i + 1 - begin};
            return b->n <= MAX_BLOCK;
        }
    }
    return false;
}

static void remove_or_copy(struct order_mutant *m, struct block b, uint32_t action, uint32_t site,
                           uint64_t *seed) {
    uint32_t to = site * TW_ENGINE_COUNT + b.stream % TW_ENGINE_COUNT;
    if (action == 0) {
        order_describe(m, " [cut %u..%u of stream %u]", b.op, b.op + b.n - 1, b.stream);
        cut(m, b);
    } else {
        put(m, b, to, action == 1 ? b.op + b.n : choose_op(m, b, to, seed), action == 3);
    }
}

/* A page and its way through the FIFO is cut out, doubled, or moved to another place or site; the
 * ends may change their engines, or the FIFO its size. */
bool order_family_passage(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t reserve = TW_OP_RESERVE;
    struct order_place p;
    if (!order_choose_code(x, &reserve, 1, &p, seed)) {
        return false;
    }
    const struct tw_stream *s = &m->streams[p.stream];
    uint32_t fifo = s->words[order_word_of(s, p.op) + 2];
    if (fifo >= m->p.n_buffers) {
        return false;
    }
    struct tw_buffer *buffers = order_own(m, m->p.buffers, m->p.n_buffers * sizeof *m->p.buffers);
    struct block in, out;
    uint32_t nth = random_below(seed, 3), action = random_below(seed, 4),
             site = random_below(seed, 2) ? s->site : random_below(seed, m->p.n_sites),
             consumer = s->site * TW_ENGINE_COUNT + m->p.buffers[fifo].consumer;
    m->p.buffers = buffers;
    if (random_below(seed, 4) == 0) {
        buffers[fifo].pages += random_below(seed, 2) ? 1 : (uint32_t)-1;
        order_describe(m, " [pages %u]", buffers[fifo].pages);
    }
    if (!find_end(m, p.stream, fifo, TW_OP_RESERVE, TW_OP_PUSH, nth, &in)) {
        return true;
    }
    remove_or_copy(m, in, action, site, seed);
    if (consumer < m->p.n_sites * TW_ENGINE_COUNT &&
        find_end(m, consumer, fifo, TW_OP_WAIT, TW_OP_POP,
                 random_below(seed, 4) ? nth : random_below(seed, 3), &out)) {
        remove_or_copy(m, out, action, site, seed);
    }
    return true;
}

/* ---- a loop around a block ---- */

static void insert(struct order_mutant *m, uint32_t stream, uint32_t op, struct tw_op *o) {
    uint32_t words[TW_MAX_OP_WORDS], n = tw_op_encode(o, words);
    order_splice(m, stream, order_word_of(&m->streams[stream], op), 0, words, n);
}

static void wrap(struct order_mutant *m, struct block b, uint32_t var, uint32_t trip,
                 uint32_t times, uint32_t id) {
    const struct tw_stream *s = &m->streams[b.stream];
    struct tw_op loop, end;
    memset(&loop, 0, sizeof loop);
    memset(&end, 0, sizeof end);
    loop.code = TW_OP_LOOP;
    end.code = TW_OP_END;
    loop.stage = end.stage = s->words[order_word_of(s, b.op) + 1];
    loop.n_operands = 3;
    loop.operand[TW_LOOP_var].kind = 'V';
    loop.operand[TW_LOOP_var].id = var;
    loop.operand[TW_LOOP_times].kind = 'X';
    loop.operand[TW_LOOP_times].id = trip;
    loop.operand[TW_LOOP_times].max = times;
    loop.operand[TW_LOOP_id].kind = 'I';
    loop.operand[TW_LOOP_id].id = id;
    insert(m, b.stream, b.op + b.n, &end);
    insert(m, b.stream, b.op, &loop);
}

/* A block becomes the body of a loop, on both sides of a FIFO if it is a passage's; or a loop
 * loses its borders together with those that it shares an id with. */
bool order_family_body(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    struct block a, b;
    if (!choose_block(x, m, &a, seed)) {
        return false;
    }
    bool dynamic = m->p.n_trips && random_below(seed, 2);
    uint32_t trip = dynamic ? random_below(seed, m->p.n_trips) : TW_NONE,
             var = 1 + random_below(seed, TW_MAX_VARS - 1),
             times = dynamic                 ? m->p.trips[trip].max
                     : random_below(seed, 2) ? 1 + random_below(seed, 3)
                                             : 1u << random_below(seed, 20),
             id = dynamic ? 1000 + random_below(seed, 2) : TW_NONE;
    const struct tw_stream *s = &m->streams[a.stream];
    uint32_t at = order_word_of(s, a.op);
    bool is_end = code_at(s, a.op) == TW_OP_RESERVE;
    if (is_end && s->words[at + 2] < m->p.n_buffers &&
        find_end(m, a.stream, s->words[at + 2], TW_OP_RESERVE, TW_OP_PUSH, 0, &a) &&
        find_end(m, s->site * TW_ENGINE_COUNT + m->p.buffers[s->words[at + 2]].consumer % 3u,
                 s->words[at + 2], TW_OP_WAIT, TW_OP_POP, 0, &b) &&
        b.stream != a.stream) {
        wrap(m, b, var, trip, times, id);
    }
    wrap(m, a, var, trip, times, id);
    order_describe(m, " [loop of %u, trip %d, around %u..%u of stream %u]", times, (int)trip, a.op,
                   a.op + a.n - 1, a.stream);
    return true;
}
