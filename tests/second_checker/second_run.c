/* SPDX-License-Identifier: Apache-2.0
 *
 * One step with its loops multiplied out: streams, loops, pages and words; for several counts of
 * each trip.
 */
#include "tests/second_checker/second_internal.h"

struct word *second_word(const struct second *c, uint32_t semaphore, uint32_t site) {
    const struct tw_group *g = &c->p->groups[c->p->semaphores[semaphore].group];
    bool there = tw_group_holds(c->p, g, site);
    return there ? &c->word[c->first_word[semaphore] + tw_group_number(c->p, g, site)] : NULL;
}

struct fifo_end *second_end(const struct second *c, const struct engine *e, uint32_t buffer) {
    const struct tw_buffer *b = &c->p->buffers[buffer];
    bool producer = e->s->engine == b->producer, is = producer || e->s->engine == b->consumer;
    bool here = is && b->kind == TW_BUF_FIFO && b->site == e->s->site;
    return here ? &c->fifo[buffer].end[!producer] : NULL;
}

static void learn(const struct second *c, const uint32_t *from) {
    for (uint32_t i = 0, *to = c->e->clock; i < c->n; i++) {
        to[i] = to[i] > from[i] ? to[i] : from[i];
    }
}

static uint32_t *copy_clock(struct second *c, const uint32_t *clock) {
    return memcpy(second_alloc(c, c->n, sizeof *clock), clock, c->n * sizeof *clock);
}

/* ---- loops ---- */

/* The loop at which the engine stands, or NULL. */
static struct loop *loop_at(const struct engine *e) {
    for (uint32_t i = 0; i < e->n_loops && !e->at_end; i++) {
        if (e->loops[i].head == e->at) {
            return &e->loops[i];
        }
    }
    return NULL;
}

static struct group *innermost(const struct engine *e) {
    return e->depth ? e->frame[e->depth - 1].group : NULL;
}

/* Whether the engine is an end of the FIFO, or a loop that it is not in names the word. */
static bool elsewhere(const struct second *c, const struct engine *e, uint32_t channel) {
    const struct loop *l = e->loops;
    return channel < c->p->n_buffers
               ? second_end(c, e, channel) != NULL
               : ANY(i, e->n_loops,
                     l[i].adds[channel] && (e->at < l[i].body || e->at >= l[i].next));
}

/* Lists the engines that move pages or flags with this one in the loops where they stand; returns 0
 * if one of them is elsewhere, or its loop is another one. */
static uint32_t company(struct second *c) {
    const struct loop *first = loop_at(c->e), *l, *x;
    uint32_t n = 1;
    c->list[0] = c->e;
    for (uint32_t i = 0; i < n; i++) {
        l = loop_at(c->list[i]);
        if (innermost(c->list[i]) != innermost(c->e) || l->trip != first->trip ||
            l->max != first->max || l->id != first->id) {
            return 0;
        }
        for (uint32_t k = 0; k < c->n_channels; k++) {
            for (struct engine *o = c->engine; o < c->engine + c->n && l->adds[k]; o++) {
                x = loop_at(o);
                if (x && x->adds[k] && !ANY(m, n, c->list[m] == o)) {
                    c->list[n++] = o;
                } else if (!(x && x->adds[k]) && elsewhere(c, o, k)) {
                    return 0;
                }
            }
        }
    }
    return n;
}

/* What an engine holds of a FIFO when an iteration begins, it holds when it ends; there are no
 * pages in flight. */
static void check_border(struct second *c, const struct engine *e, bool begin) {
    const struct frame *f = &e->frame[e->depth - 1];
    for (uint32_t k = 0; k < c->p->n_buffers; k++) {
        const struct fifo_end *own = second_end(c, e, k), *end = c->fifo[k].end;
        NEED(6, begin || !own || f->held[k] == own->held);
        NEED(22, !f->loop->adds[k] || end[0].moved == end[1].moved);
        f->held[k] = own ? own->held : 0;
    }
}

/* Notes loops that need not be alike, as they run once; a trip that ends below the loop's count; a
 * word that is waited for but not raised; and engines outside the group that have a loop of its
 * count before them. */
static void note_limits(struct second *c, const struct group *g, const struct loop *l) {
    bool below = l->trip != TW_NONE && c->p->trips[l->trip].max < l->max;
    c->verdict.limits |= (uint32_t)(l->max == 1) << 20 | (below ? 255u << 20 : 0);
    for (uint32_t w = 0; w < c->n_channels; w++) {
        bool named = ANY(i, g->n, loop_at(g->member[i])->adds[w] > 0);
        bool only = named && ALL(i, g->n, loop_at(g->member[i])->adds[w] <= 1);
        c->verdict.limits |= (uint32_t)only << 20;
    }
    for (const struct engine *e = c->engine; e < c->engine + c->n; e++) {
        bool member = innermost(e) != g->parent || ANY(k, g->n, g->member[k] == e);
        const struct loop *x = e->loops;
        bool equal =
            ANY(k, e->n_loops, x[k].head >= e->at && x[k].trip == l->trip && x[k].max == l->max);
        c->verdict.limits |= equal && !member ? 5u << 20 : 0;
    }
}

static bool enter(struct second *c) {
    uint32_t n = company(c);
    struct loop *l = loop_at(c->e);
    n = n == 0 && c->alone && l->max == 1 && l->trip == TW_NONE ? 1 : n;
    if (n == 0) {
        return false;
    }
    c->alone = false;
    struct group *g = second_alloc(c, 1, sizeof *g + n * sizeof *g->member);
    *g = (struct group){.parent = innermost(c->e), .n = n};
    memcpy(g->member, c->list, n * sizeof *g->member);
    g->times = l->trip == TW_NONE ? l->max : c->trip[l->trip];
    note_limits(c, g, l);
    for (uint32_t i = 0; i < n; i++) {
        struct engine *m = g->member[i];
        struct frame *f = &m->frame[m->depth++];
        *f = (struct frame){.loop = l = loop_at(m), .group = g};
        f->known = l->trip == TW_NONE ? NULL : copy_clock(c, m->clock);
        NEW(c->p->n_buffers, f->held);
        check_border(c, m, true);
        g->flags =
            g->flags || ANY(k, c->n_channels - c->p->n_buffers, l->adds[c->p->n_buffers + k]);
        m->vars[l->var] = 0;
        m->at = g->times ? l->body : l->next;
        m->depth -= g->times == 0;
    }
    return true;
}

/* The last of the group has reached its END. A loop with flags is closed if all engines are in it,
 * and know that all others have done their work in this iteration. */
static void leave(struct second *c, struct group *g) {
    bool over = ++g->round >= g->times;
    const struct engine *e = c->engine;
    uint32_t n = c->n;
    g->arrived = 0;
    if (g->flags && g->n == n &&
        ALL(i, n * n, i / n == i % n || e[i / n].clock[i % n] >= e[i % n].work)) {
        second_forget_accesses(c);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        struct engine *m = g->member[i];
        struct frame *f = &m->frame[m->depth - 1];
        check_border(c, m, false);
        m->at_end = false;
        m->vars[f->loop->var] = g->round;
        m->at = over ? f->loop->next : f->loop->body;
        m->depth -= over;
        if (over && f->known) { /* there may have been no iteration */
            f->known[m->number] = m->clock[m->number];
            m->clock = f->known;
        }
    }
}

/* ---- pages and words ---- */

static void clear_page(struct second *c, uint32_t fifo, uint64_t page) {
    uint64_t n = c->p->buffers[fifo].page_bytes / 4;
    struct cell *is = second_cells(c, fifo) + page * n;
    c->fifo[fifo].filled[page] = 0;
    for (; n > 0; n--, is++) {
        is->owner = is->owner == fifo + 1 ? 0 : is->owner;
    }
}

/* Reserves pages or waits for them, pushes or pops; false: they are not there. */
static bool move_pages(struct second *c) {
    uint32_t id = c->op.operand[0].id, n = c->op.operand[1].id, code = c->op.code;
    struct fifo *f = &c->fifo[id];
    struct fifo_end *end = second_end(c, c->e, id);
    uint64_t pages = c->p->buffers[id].pages, level = f->end[0].moved - f->end[1].moved;
    bool push = code == TW_OP_PUSH, gives = push || code == TW_OP_POP;
    NEED(6, !gives || n <= end->held);
    NEED(27, !push || !c->e->posted);
    if (!gives && n > (code == TW_OP_RESERVE ? pages - level : level)) {
        return false;
    }
    end->held = gives ? end->held - n : n > end->held ? n : end->held;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t page = (end->moved + i) % pages;
        NEED(25, !push || f->filled[page]);
        c->verdict.limits |= (uint32_t)(push && f->filled[page] > c->e->depth + 1) << 25;
        if (push) {
            memcpy(f->clocks + page * c->n, c->e->clock, c->n * sizeof *f->clocks);
        } else if (code == TW_OP_WAIT) {
            learn(c, f->clocks + page * c->n);
        } else {
            clear_page(c, id, page);
        }
    }
    end->moved += gives ? n : 0;
    return true;
}

static bool one_writer(const struct word *w) {
    return !w->many && w->kinds != 3;
}

static void increment(struct second *c, struct word *w, uint32_t by) {
    const struct engine *e = c->e;
    for (const struct waiting *x = w->waits; x && !one_writer(w); x = x->next) {
        NEED(21, e->clock[x->engine] >= x->clock);
    }
    struct raised *last = second_alloc(c, 1, sizeof *last);
    w->value += by;
    NEED(14, w->value - w->initial <= SECOND_MOST);
    *last = (struct raised){w->last, w->value, copy_clock(c, e->clock)};
    w->last = last;
}

static void raise_words(struct second *c) {
    uint32_t id = c->op.operand[0].id, to = c->op.operand[1].id;
    c->e->posted = false;
    if (c->op.code == TW_OP_SEM_INC) {
        increment(c, second_word(c, id, to), c->op.operand[2].id);
        return;
    }
    const struct tw_group *g = &c->p->groups[to];
    for (uint32_t i = 0; i < tw_group_size(g); i++) {
        increment(c, second_word(c, id, tw_group_site(c->p, g, i)), 1);
    }
    c->e->n_sent -= c->e->sent[to];
    c->e->sent[to] = 0;
}

/* Whether a number of 32 bits that only grows has reached the threshold. */
static bool reached(uint64_t value, uint32_t threshold) {
    return (int32_t)((uint32_t)value - threshold) >= 0;
}

/* What the engine that makes all increments knew when the word reached the threshold, if that is
 * among the last. */
static void learn_reached(struct second *c, const struct raised *r, uint32_t threshold) {
    const struct raised *at = NULL;
    uint32_t n = 0;
    for (; r && n < SECOND_KEPT && reached(r->value, threshold); r = r->next, n++) {
        at = r;
    }
    if (at && (n < SECOND_KEPT || !at->next)) { /* else an older one may have reached it */
        learn(c, at->clock);
    }
}

static uint32_t step_of(const struct tw_affine *a, uint32_t var) {
    return (uint32_t)SUM(i, a->n_terms, a->term[i].var == var ? a->term[i].step : 0);
}

static bool await(struct second *c) {
    uint32_t id = c->op.operand[0].id;
    struct engine *e = c->e;
    struct word *w = second_word(c, id, e->s->site);
    const struct tw_affine *a = &c->op.operand[1].offset;
    uint64_t whole = tw_affine_value(a, e->vars);
    uint32_t threshold = (uint32_t)whole, k = c->p->n_buffers + (uint32_t)(w - c->word);
    if (!reached(w->value, threshold)) {
        return false;
    }
    for (uint32_t d = 0; d < e->depth; d++) { /* it grows in each loop as the word does */
        const struct loop *l = e->frame[d].loop;
        const struct group *g = e->frame[d].group;
        uint64_t grows = SUM(i, g->n, g->member[i]->frame[d].loop->adds[k]) -
                         SUM(i, g->n, g->member[i]->frame[d].loop->adds[k] > 0);
        NEED(22, step_of(a, l->var) == (uint32_t)grows || l->max == 1);
    }
    const struct tw_section *s = &c->p->sections[e->section];
    bool meets = id == s->local || id == s->gather || id == s->release;
    NEED(15, !meets || (w->value == threshold && threshold != w->initial));
    NEED(21, one_writer(w) || (uint32_t)w->value == threshold);
    for (const struct raised *r = w->last; r && !one_writer(w); r = r->next) {
        learn(c, r->clock);
    }
    if (one_writer(w) && !reached(w->initial, threshold)) {
        learn_reached(c, w->last, threshold);
    }
    struct waiting *x = second_alloc(c, 1, sizeof *x);
    *x = (struct waiting){w->waits, e->number, e->clock[e->number], step_of(a, 0), whole};
    w->waits = x;
    return true;
}

/* ---- engines ---- */

/* No engine enters a section before it knows that all have left the previous ones. */
static void follow_section(struct second *c) {
    struct engine *e = c->e;
    const struct engine *o = c->engine;
    uint32_t to = c->op.stage == TW_NONE ? e->section : c->p->stages[c->op.stage].section;
    const struct tw_section *s = &c->p->sections[to];
    uint32_t word = second_semaphore(c);
    bool meets = word != TW_NONE && (word == s->gather || word == s->release);
    bool works = c->op.code != TW_OP_SEM_WAIT && !meets;
    NEED(23, to <= e->section ||
                 ALL(k, c->n, o + k == e || o[k].section >= to || e->clock[k] >= o[k].left));
    e->section = to;
    if (to > c->front) {
        c->front = to;
        second_forget_accesses(c);
    }
    NEED(23, !works || to == c->front);
    e->left = works ? e->clock[e->number] : e->left;
    e->work = word == TW_NONE ? e->clock[e->number] : e->work;
}

/* Executes the op; false: it must wait. */
static bool execute(struct second *c) {
    uint32_t code = c->op.code;
    bool waits = code == TW_OP_RESERVE || code == TW_OP_WAIT || code == TW_OP_SEM_WAIT;
    NEED(27, !waits || c->e->n_sent == 0);
    if (code >= TW_OP_RESERVE && code <= TW_OP_POP) {
        return move_pages(c);
    } else if (code == TW_OP_SEM_WAIT) {
        return await(c);
    } else if (code == TW_OP_SEM_INC || code == TW_OP_MCAST_SET) {
        raise_words(c);
    } else {
        second_data_op(c);
    }
    return true;
}

/* Returns true if the engine did something. */
static bool advance(struct second *c) {
    struct engine *e = c->e;
    struct group *g = innermost(e);
    if (e->at_end || !tw_op_decode(e->s->words, e->s->n_words, e->at, &c->op)) {
        return false;
    }
    if (c->op.code == TW_OP_LOOP) {
        return enter(c);
    }
    if (c->op.code == TW_OP_END) {
        e->at_end = true;
        if (++g->arrived == g->n) {
            leave(c, g);
        }
        return true;
    }
    e->clock[e->number]++;
    follow_section(c);
    bool done = execute(c);
    e->clock[e->number] -= !done;
    e->at += done ? c->op.n_words : 0;
    e->index += done;
    return done;
}

/* ---- the step ---- */

static void begin(struct second *c) {
    const struct tw_program *p = c->p;
    c->front = 0;
    c->executed = 0;
    NEW(c->n, c->engine);
    NEW(c->n, c->list);
    for (uint32_t i = 0; i < c->n; i++) {
        struct engine *e = &c->engine[i], *x = &c->start[i];
        *e = (struct engine){.s = x->s, .loops = x->loops, .n_loops = x->n_loops, .number = i};
        NEW(c->n, e->clock);
        NEW(p->n_groups, e->sent);
    }
    NEW(p->n_buffers, c->fifo);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        uint64_t pages = p->buffers[i].kind == TW_BUF_FIFO ? p->buffers[i].pages : 0;
        NEW(pages, c->fifo[i].filled);
        NEW(pages * c->n, c->fifo[i].clocks);
    }
    for (struct word *w = c->word; w < c->word + c->n_channels - p->n_buffers; w++) {
        w->value = w->initial;
        w->last = NULL;
        w->waits = NULL;
    }
    second_data_begin(c);
}

static void end(struct second *c) {
    for (c->e = c->engine; c->e < c->engine + c->n; c->e++) {
        NEED(20, c->e->at == c->e->s->n_words);
        NEED(27, c->e->n_sent == 0 && !c->e->posted);
    }
    c->e = NULL;
    for (const struct fifo *f = c->fifo; f < c->fifo + c->p->n_buffers; f++) {
        NEED(6, f->end[0].moved == f->end[1].moved && f->end[0].held + f->end[1].held == 0);
    }
    for (const struct word *w = c->word; w < c->word + c->n_channels - c->p->n_buffers; w++) {
        for (const struct waiting *x = w->waits; x; x = x->next) {
            NEED(14, x->threshold <= w->value && x->per_step == w->value - w->initial);
        }
    }
}

static void run_step(struct second *c) {
    uint64_t most = 50000 + 64 * SUM(i, c->n, c->start[i].s->n_words);
    bool progress = true;
    begin(c);
    for (uint32_t idle = 0; idle < 2; idle = progress ? 0 : idle + 1) {
        c->alone = idle > 0;
        progress = false;
        for (c->e = c->engine; c->e < c->engine + c->n; c->e++) {
            for (; advance(c); progress = true) {
                NEED(0, ++c->executed <= most);
            }
        }
    }
    end(c);
}

/* ---- choices of trips ---- */

/* The greatest small count that is tried of a trip, plus 1: beside its max and down to 0, or 1. */
static uint32_t top(const struct second *c, uint32_t t) {
    uint32_t max = c->p->trips[t].max, small = c->counts[t] & SECOND_LOOPS ? 4 : 2;
    return max < small ? max : small;
}

/* Tries all counts, the first trip changing fastest; in long steps one or all are not max. */
void second_steps(struct second *c) {
    uint32_t n = c->p->n_trips, used = 0, *of = second_alloc(c, n, sizeof *of);
    uint64_t choices = 1, size = 0;
    NEW(n, c->trip);
    for (uint32_t t = 0; t < n; t++) {
        of[t] = c->counts[t] ? top(c, t) + 1 - !!(c->counts[t] & SECOND_NOT_0) : 1;
        used += c->counts[t] != 0;
        choices *= of[t];
        NEED(0, choices < 1 << 24);
    }
    c->verdict.limits |= choices == 0 ? UINT32_MAX : 0; /* no step can begin */
    for (uint64_t i = 0; i < choices; i++) {
        struct block *mark = c->memory;
        uint64_t rest = i;
        uint32_t below = 0;
        for (uint32_t t = 0; t < n; rest /= of[t++]) {
            uint32_t k = (uint32_t)(rest % of[t]);
            c->trip[t] = k ? top(c, t) - k : c->p->trips[t].max;
            below += k > 0;
        }
        if (size < 1000 || below < 2 || below == used) {
            run_step(c);
        }
        size = i == 0 ? c->executed : size;
        second_free_to(c, mark);
    }
}
