/* SPDX-License-Identifier: Apache-2.0
 *
 * One step with its loops multiplied out: streams, loops, pages and words; for several counts of
 * each trip.
 */
#include "tests/second_checker/second_internal.h"

static void learn(const struct second *c, uint32_t *to, const uint32_t *from) {
    for (uint32_t i = 0; i < c->n; i++) {
        to[i] = to[i] > from[i] ? to[i] : from[i];
    }
}

/* ---- loops ---- */

/* The loop at which the engine stands, or NULL. */
static const struct loop *loop_at(const struct engine *e) {
    uint32_t lo = 0, hi = e->at_end ? 0 : e->n_loops;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (e->loops[mid].head < e->at) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return !e->at_end && lo < e->n_loops && e->loops[lo].head == e->at ? &e->loops[lo] : NULL;
}

static struct group *innermost(const struct engine *e) {
    return e->depth ? e->frame[e->depth - 1].group : NULL;
}

static void together(struct second *c, uint32_t engine, uint32_t *n) {
    if (c->seen[engine] != c->stamp) {
        c->seen[engine] = c->stamp;
        c->list[(*n)++] = engine;
    }
}

/* Whether the loop at which an engine stands, or NULL, moves pages of the FIFO. */
static bool moves(const struct loop *l, uint32_t fifo) {
    for (uint32_t i = 0; l && i < l->n_moved; i++) {
        if (l->moved[i] == fifo) {
            return true;
        }
    }
    return false;
}

/* What one iteration adds to the word; -1: the loop, or NULL, does not name it. */
static int64_t adds(const struct loop *l, uint32_t word) {
    for (uint32_t i = 0; l && i < l->n_words; i++) {
        if (l->words[i].word == word) {
            return l->words[i].by;
        }
    }
    return -1;
}

/* Whether a loop names the word that the engine is not in. */
static bool named_elsewhere(const struct engine *e, uint32_t word) {
    for (uint32_t i = 0; i < e->n_loops; i++) {
        bool open = false;
        for (uint32_t d = 0; d < e->depth; d++) {
            open = open || e->frame[d].loop == &e->loops[i];
        }
        if (!open && adds(&e->loops[i], word) >= 0) {
            return true;
        }
    }
    return false;
}

/* Lists the engines that move pages or flags with this one in the loops where they stand; returns 0
 * if one of them is elsewhere, or its loop is another one. */
static uint32_t company(struct second *c, const struct engine *e) {
    const struct loop *first = loop_at(e);
    uint32_t n = 0;
    c->stamp++;
    together(c, e->number, &n);
    for (uint32_t i = 0; i < n; i++) {
        const struct engine *m = &c->e[c->list[i]];
        const struct loop *l = loop_at(m);
        if (!l || innermost(m) != innermost(e) || l->trip != first->trip || l->max != first->max ||
            l->id != first->id) {
            return 0;
        }
        for (uint32_t k = 0; k < l->n_moved; k++) {
            const struct tw_buffer *f = &c->p->buffers[l->moved[k]];
            uint32_t end = f->producer == m->s->engine ? f->consumer : f->producer,
                     other = c->engine_of[f->site * 3 + end];
            if (other == TW_NONE || !moves(loop_at(&c->e[other]), l->moved[k])) {
                return 0;
            }
            together(c, other, &n);
        }
        for (uint32_t k = 0; k < l->n_words; k++) {
            for (uint32_t other = 0; other < c->n; other++) {
                if (adds(loop_at(&c->e[other]), l->words[k].word) >= 0) {
                    together(c, other, &n);
                } else if (named_elsewhere(&c->e[other], l->words[k].word)) {
                    return 0;
                }
            }
        }
    }
    return n;
}

/* What an engine holds of a FIFO when an iteration begins, it holds when it ends; there are no
 * pages in flight. */
static void check_pages(struct second *c, const struct engine *e, bool begin) {
    const struct frame *f = &e->frame[e->depth - 1];
    for (uint32_t k = 0; k < f->loop->n_held; k++) {
        const struct fifo *q = &c->fifo[f->loop->held[k]];
        bool producer = c->p->buffers[f->loop->held[k]].producer == e->s->engine;
        uint32_t n = producer ? q->reserved : q->waited;
        NEED(6, begin || f->held[k] == n, "holds other pages after an iteration");
        f->held[k] = n;
    }
    for (uint32_t k = 0; k < f->loop->n_moved; k++) {
        const struct fifo *q = &c->fifo[f->loop->moved[k]];
        bool whole = !begin || e->at_end; /* when everyone is there */
        NEED(22, !whole || q->pushed == q->popped, "pages in flight where a loop begins or ends");
    }
}

static uint32_t after(const struct engine *e, uint32_t at) {
    return at + (e->s->words[at] >> 16);
}

static bool enter(struct second *c, struct engine *e) {
    uint32_t n = company(c, e);
    const struct loop *l = loop_at(e);
    if (n == 0) {
        return false;
    }
    struct group *g = second_alloc(c, 1, sizeof *g);
    *g = (struct group){.parent = innermost(e), .loop = l, .n = n};
    g->member = second_copy(c, c->list, n, sizeof *c->list);
    g->times = l->trip == TW_NONE ? l->max : c->trip[l->trip];
    for (uint32_t i = 0; i < n; i++) {
        struct engine *m = &c->e[g->member[i]];
        struct frame *f = &m->frame[m->depth++];
        l = loop_at(m);
        g->flags = g->flags || l->n_words > 0;
        *f = (struct frame){l, g, NULL, second_alloc(c, l->n_held, sizeof *f->held)};
        f->known = l->trip == TW_NONE ? NULL : second_copy(c, m->clock, c->n, sizeof *m->clock);
        m->at_end = true;
        check_pages(c, m, true);
        m->at_end = false;
        m->vars[m->s->words[l->head + 2]] = 0;
        m->at = after(m, g->times ? l->head : l->end);
        m->depth -= g->times == 0;
    }
    return true;
}

/* Whether a loop with flags is closed: all engines are in it, and know that all others have done
 * their work in this iteration. */
static bool is_closed(const struct second *c, const struct group *g) {
    bool closed = g->flags && g->n == c->n;
    for (uint32_t i = 0; i < g->n && closed; i++) {
        for (uint32_t k = 0; k < g->n && closed; k++) {
            closed = k == i || c->e[i].clock[k] >= c->e[k].work;
        }
    }
    return closed;
}

/* The last of the group has reached its END. */
static void leave(struct second *c, struct group *g) {
    g->arrived = 0;
    g->round++;
    if (is_closed(c, g)) {
        second_forget_accesses(c);
    }
    g->over = g->round >= g->times;
    for (uint32_t i = 0; i < g->n; i++) {
        struct engine *e = &c->e[g->member[i]];
        struct frame *f = &e->frame[e->depth - 1];
        check_pages(c, e, false);
        e->at_end = false;
        e->vars[e->s->words[f->loop->head + 2]] = g->round;
        e->at = after(e, g->over ? f->loop->end : f->loop->head);
        e->depth -= g->over;
        if (g->over && f->known) { /* there may have been no iteration */
            f->known[e->number] = e->clock[e->number];
            e->clock = f->known;
        }
    }
    for (struct bytes *m = g->over ? g->made : NULL; m; m = m->next) {
        memset(c->defined[m->buffer] + m->at, 0, m->n);
    }
}

/* ---- pages and words ---- */

static bool take_pages(struct second *c, struct engine *e, const struct tw_op *op) {
    uint32_t id = op->operand[0].id, n = op->operand[1].id;
    struct fifo *f = &c->fifo[id];
    uint64_t pages = c->p->buffers[id].pages, level = f->pushed - f->popped;
    bool reserve = op->code == TW_OP_RESERVE;
    uint32_t *holds = reserve ? &f->reserved : &f->waited;
    second_use(c, e, id);
    if (n > (reserve ? pages - level : level)) {
        return false;
    }
    *holds = *holds > n ? *holds : n;
    for (uint64_t i = f->popped; i < f->popped + n && !reserve; i++) {
        learn(c, e->clock, f->clocks + i % pages * c->n);
    }
    return true;
}

static void give_pages(struct second *c, struct engine *e, const struct tw_op *op) {
    uint32_t id = op->operand[0].id, n = op->operand[1].id;
    const struct tw_buffer *b = &c->p->buffers[id];
    struct fifo *f = &c->fifo[id];
    bool push = op->code == TW_OP_PUSH;
    uint32_t *holds = push ? &f->reserved : &f->waited;
    NEED(6, n <= *holds, "gives pages that it does not hold");
    *holds -= n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t page = (push ? f->pushed++ : f->popped++) % b->pages;
        NEED(25, !push || f->filled[page], "pushes an unwritten page");
        f->filled[page] = push;
        if (push) {
            memcpy(f->clocks + page * c->n, e->clock, c->n * sizeof *e->clock);
        } else {
            memset(c->defined[id] + page * b->page_bytes / 4, 0, b->page_bytes / 4);
        }
    }
}

static struct word *word_on(struct second *c, uint32_t semaphore, uint32_t site) {
    const struct tw_group *g = &c->p->groups[c->p->semaphores[semaphore].group];
    return &c->word[c->first_word[semaphore] + tw_group_number(c->p, g, site)];
}

static bool one_writer(const struct second *c, const struct word *w) {
    const struct writers *x = &c->writers[w - c->word];
    return !x->many && x->kinds != 3;
}

static void increment(struct second *c, struct engine *e, struct word *w, uint32_t by) {
    for (const struct waiting *x = w->waits; x && !one_writer(c, w); x = x->next) {
        NEED(21, e->clock[x->engine] >= x->clock, "may raise a word before a wait is over");
    }
    w->value += by;
    w->sum += by;
    NEED(14, w->sum <= 0x7FFFFFFF, "increments in one step");
    learn(c, w->clock, e->clock);
    if (one_writer(c, w)) {
        struct raised *r = &w->last[w->n_last++ % SECOND_KEPT];
        r->value = w->value;
        r->clock = second_copy(c, e->clock, c->n, sizeof *e->clock);
    }
}

/* What the engine that makes all increments knew when the word reached the threshold. */
static void learn_reached(const struct second *c, struct engine *e, const struct word *w,
                          uint32_t threshold) {
    uint32_t oldest = w->n_last > SECOND_KEPT ? w->n_last - SECOND_KEPT : 0;
    for (uint32_t i = oldest; i < w->n_last; i++) {
        const struct raised *r = &w->last[i % SECOND_KEPT];
        if ((int32_t)(r->value - threshold) >= 0) {
            bool here = i == 0 || i > oldest; /* else an earlier one may have reached it */
            if (here) {
                learn(c, e->clock, r->clock);
            }
            return;
        }
    }
}

/* The threshold grows in each loop as the word does. */
static void check_growth(struct second *c, const struct engine *e, const struct tw_affine *a,
                         uint32_t word) {
    for (uint32_t d = 0; d < e->depth; d++) {
        const struct frame *f = &e->frame[d];
        uint32_t step = 0, grows = 0;
        for (uint32_t i = 0; i < a->n_terms; i++) {
            bool var = a->term[i].var == e->s->words[f->loop->head + 2];
            step += var ? (uint32_t)a->term[i].step : 0;
        }
        for (uint32_t i = 0; i < f->group->n; i++) {
            int64_t by = adds(c->e[f->group->member[i]].frame[d].loop, word);
            grows += by > 0 ? (uint32_t)by : 0;
        }
        NEED(22, step == grows || f->loop->max == 1, "a threshold does not grow as its word does");
    }
}

static bool await(struct second *c, struct engine *e, const struct tw_op *op) {
    struct word *w = word_on(c, op->operand[0].id, e->s->site);
    const struct tw_affine *a = &op->operand[1].offset;
    uint32_t threshold = (uint32_t)tw_affine_value(a, e->vars);
    if ((int32_t)(w->value - threshold) < 0) {
        return false;
    }
    check_growth(c, e, a, (uint32_t)(w - c->word));
    uint32_t initial = c->p->semaphores[op->operand[0].id].initial;
    const struct tw_section *s = &c->p->sections[e->section];
    uint32_t id = op->operand[0].id;
    bool meets = id == s->local || id == s->gather || id == s->release;
    NEED(15, !meets || (w->value == threshold && threshold != initial), "a rendezvous");
    if (one_writer(c, w) && (int32_t)(initial - threshold) < 0) {
        learn_reached(c, e, w, threshold);
    } else if (!one_writer(c, w)) {
        NEED(21, w->value == threshold, "waits for less than what may have arrived");
        learn(c, e->clock, w->clock);
    }
    struct waiting *x = second_alloc(c, 1, sizeof *x);
    *x = (struct waiting){w->waits, e->number, e->clock[e->number], 0, 0};
    x->threshold = tw_affine_value(a, e->vars);
    for (uint32_t i = 0; i < a->n_terms; i++) {
        x->per_step += a->term[i].var == 0 ? (uint32_t)a->term[i].step : 0;
    }
    w->waits = x;
    return true;
}

static void raise_words(struct second *c, struct engine *e, const struct tw_op *op) {
    uint32_t id = op->operand[0].id, sent = e->n_sent;
    if (op->code == TW_OP_SEM_INC) {
        increment(c, e, word_on(c, id, op->operand[1].id), op->operand[2].id);
        return;
    }
    const struct tw_group *g = &c->p->groups[op->operand[1].id];
    for (uint32_t i = 0; i < tw_group_size(g); i++) {
        increment(c, e, word_on(c, id, tw_group_site(c->p, g, i)), 1);
    }
    e->n_sent = 0;
    for (uint32_t i = 0; i < sent; i++) {
        if (!tw_group_within(&c->p->groups[e->sent[i]], g)) {
            e->sent[e->n_sent++] = e->sent[i];
        }
    }
}

/* ---- engines ---- */

/* No engine enters a section before it knows that all have left the previous ones. */
static void follow_section(struct second *c, struct engine *e, const struct tw_op *op) {
    uint32_t to = op->stage == TW_NONE ? e->section : c->p->stages[op->stage].section;
    const struct tw_section *s = &c->p->sections[to];
    uint32_t word = op->operand[0].kind == 'S' ? op->operand[0].id : TW_NONE;
    bool meets = word != TW_NONE && (word == s->gather || word == s->release);
    for (uint32_t k = 0; k < c->n && to > e->section; k++) {
        bool left = c->e[k].section >= to || e->clock[k] >= c->e[k].left;
        NEED(23, &c->e[k] == e || left, "enters a section before another engine has left one");
    }
    e->section = to;
    if (to > c->front) {
        c->front = to;
        second_forget_accesses(c);
    }
    NEED(23, op->code == TW_OP_SEM_WAIT || meets || to == c->front, "works in a section left");
    if (op->code != TW_OP_SEM_WAIT && !meets) {
        e->left = e->clock[e->number];
    }
    if (word == TW_NONE) {
        e->work = e->clock[e->number];
    }
}

/* Executes an op; false: it must wait. */
static bool execute(struct second *c, struct engine *e, const struct tw_op *op) {
    switch (op->code) {
    case TW_OP_RESERVE:
    case TW_OP_WAIT:
        NEED(27, e->n_sent == 0, "may wait between a multicast and its flag");
        return take_pages(c, e, op);
    case TW_OP_SEM_WAIT:
        NEED(27, e->n_sent == 0, "may wait between a multicast and its flag");
        return await(c, e, op);
    case TW_OP_PUSH:
    case TW_OP_POP:
        give_pages(c, e, op);
        return true;
    case TW_OP_SEM_INC:
    case TW_OP_MCAST_SET:
        raise_words(c, e, op);
        return true;
    default:
        second_data_op(c, e, op);
        return true;
    }
}

/* Returns true if the engine did something. */
static bool advance(struct second *c, struct engine *e) {
    struct tw_op op;
    c->site = e->s->site;
    c->what = tw_engine_name(e->s->engine);
    c->index = e->index;
    if (e->at_end || !tw_op_decode(e->s->words, e->s->n_words, e->at, &op)) {
        return false;
    }
    if (op.code == TW_OP_LOOP) {
        return enter(c, e);
    }
    if (op.code == TW_OP_END) {
        struct group *g = innermost(e);
        e->at_end = true;
        if (++g->arrived == g->n) {
            leave(c, g);
        }
        return true;
    }
    e->clock[e->number]++;
    follow_section(c, e, &op);
    if (!execute(c, e, &op)) {
        e->clock[e->number]--;
        return false;
    }
    e->at += op.n_words;
    e->index++;
    return true;
}

/* ---- the step ---- */

static void begin(struct second *c) {
    const struct tw_program *p = c->p;
    uint32_t streams = p->n_sites * TW_ENGINE_COUNT;
    c->engine_of = second_alloc(c, streams, sizeof *c->engine_of);
    c->e = second_alloc(c, streams, sizeof *c->e);
    c->n = c->front = c->stamp = 0;
    for (uint32_t i = 0; i < streams; i++) {
        struct engine e = {.s = &p->streams[i], .loops = c->loops[i], .n_loops = c->n_loops[i]};
        e.number = c->n;
        c->engine_of[i] = e.s->n_words ? c->n : TW_NONE;
        c->e[c->n] = e;
        c->n += e.s->n_words != 0;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        c->e[i].clock = second_alloc(c, c->n, sizeof(uint32_t));
    }
    c->list = second_alloc(c, c->n, sizeof *c->list);
    c->seen = second_alloc(c, c->n, sizeof *c->seen);
    c->fifo = second_alloc(c, p->n_buffers, sizeof *c->fifo);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        size_t pages = p->buffers[i].kind == TW_BUF_FIFO ? p->buffers[i].pages : 0;
        c->fifo[i].filled = second_alloc(c, pages, 1);
        c->fifo[i].clocks = second_alloc(c, pages * c->n, sizeof(uint32_t));
    }
    c->word = second_alloc(c, c->n_words, sizeof *c->word);
    for (uint32_t i = 0, w = 0; w < c->n_words; w++) {
        for (; i + 1 < p->n_semaphores && c->first_word[i + 1] <= w; i++) {
        }
        c->word[w].value = p->semaphores[i].initial;
        c->word[w].clock = second_alloc(c, c->n, sizeof(uint32_t));
        c->word[w].last = second_alloc(c, SECOND_KEPT, sizeof *c->word[w].last);
    }
}

static void end(struct second *c) {
    for (uint32_t i = 0; i < c->n; i++) {
        c->site = c->e[i].s->site;
        c->what = tw_engine_name(c->e[i].s->engine);
        c->index = c->e[i].index;
        NEED(20, c->e[i].at == c->e[i].s->n_words, "waits forever");
        NEED(27, c->e[i].n_sent == 0, "a multicast without a flag");
    }
    for (uint32_t i = 0; i < c->p->n_buffers; i++) {
        const struct fifo *f = &c->fifo[i];
        NEED(6, f->pushed == f->popped, "a FIFO with pages when the step ends");
        NEED(6, f->reserved + f->waited == 0, "pages are held when the step ends");
    }
    for (uint32_t i = 0; i < c->p->n_semaphores; i++) {
        const struct tw_semaphore *s = &c->p->semaphores[i];
        for (uint32_t k = 0; k < tw_group_size(&c->p->groups[s->group]); k++) {
            const struct word *w = &c->word[c->first_word[i] + k];
            for (const struct waiting *x = w->waits; x; x = x->next) {
                NEED(14, x->threshold <= s->initial + w->sum, "a threshold is never reached");
                NEED(14, x->per_step == w->value - s->initial, "a threshold that grows otherwise");
            }
        }
    }
}

static void run_step(struct second *c) {
    uint64_t most = 50000;
    bool progress = true;
    begin(c);
    second_data_begin(c);
    c->executed = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        most += 64 * (uint64_t)c->e[i].s->n_words;
    }
    while (progress) {
        progress = false;
        for (uint32_t i = 0; i < c->n; i++) {
            for (; advance(c, &c->e[i]); progress = true) {
                NEED(0, ++c->executed <= most, "too many ops to execute");
            }
        }
    }
    end(c);
}

/* ---- choices of trips ---- */

/* The counts that are tried of a trip. */
static uint32_t candidates(const struct second *c, uint32_t t, uint32_t *out) {
    uint32_t n = 0, max = c->p->trips[t].max;
    for (uint32_t v = c->not_zero[t]; v <= 3 && v <= max; v++) {
        if (v < 2 || c->in_loop[t] || v == max) {
            out[n++] = v;
        }
    }
    if (max > 3) {
        out[n++] = max;
    }
    return n;
}

static bool used(const struct second *c, uint32_t t) {
    return c->in_loop[t] || c->in_rows[t];
}

void second_steps(struct second *c) {
    uint32_t n = c->p->n_trips, *choice = second_alloc(c, n, sizeof *choice), value[5], t;
    uint64_t size = 0;
    c->trip = second_alloc(c, n + 1, sizeof *c->trip);
    second_uses_begin(c);
    do { /* all choices, the first trip changing fastest; in long steps one or all are not max */
        struct block *mark = c->memory;
        uint32_t changed = 0;
        bool all = true, none = false; /* none: no step can begin */
        mark->used = mark->size;
        for (t = 0; t < n; t++) {
            uint32_t m = candidates(c, t, value);
            c->trip[t] = m ? value[m - 1 - choice[t]] : 0;
            none = none || (used(c, t) && m == 0);
            changed += choice[t] > 0;
            all = all && (choice[t] > 0 || !used(c, t));
        }
        if (!none && (size < 1000 || changed < 2 || all)) {
            run_step(c);
        }
        size = size ? size : c->executed;
        second_free_to(c, mark);
        for (t = 0; t < n; t++) {
            if (used(c, t) && ++choice[t] < candidates(c, t, value)) {
                break;
            }
            choice[t] = 0;
        }
    } while (t < n);
    second_uses_end(c);
}
