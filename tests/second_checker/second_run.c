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

static uint32_t *copy_clock(struct second *c, const uint32_t *clock) {
    return memcpy(second_alloc(c, c->n, sizeof *clock), clock, c->n * sizeof *clock);
}

/* ---- loops ---- */

/* The loop at which the engine stands, or NULL. */
static const struct loop *loop_at(const struct engine *e) {
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

static void together(struct second *c, uint32_t engine, uint32_t *n) {
    uint32_t i = 0;
    while (i < *n && c->list[i] != engine) {
        i++;
    }
    c->list[i] = engine;
    *n += i == *n;
}

/* Whether a loop of the engine names the word that it is not in. */
static bool named_elsewhere(const struct engine *e, uint32_t word) {
    for (const struct loop *l = e->loops; l < e->loops + e->n_loops; l++) {
        if (l->adds[word] && (e->at <= l->head || e->at > l->end)) {
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
    together(c, e->number, &n);
    for (uint32_t i = 0; i < n; i++) {
        const struct engine *m = &c->e[c->list[i]];
        const struct loop *l = loop_at(m), *x;
        if (!l || innermost(m) != innermost(e) || l->trip != first->trip || l->max != first->max ||
            l->id != first->id) {
            return 0;
        }
        for (uint32_t k = 0; k < c->p->n_buffers; k++) {
            const struct tw_buffer *f = &c->p->buffers[k];
            uint32_t end = f->producer == m->s->engine ? f->consumer : f->producer;
            uint32_t other = l->pages[k] & SECOND_MOVED ? c->engine_of[f->site * 3 + end] : TW_NONE;
            x = other == TW_NONE ? NULL : loop_at(&c->e[other]);
            if (l->pages[k] & SECOND_MOVED && (!x || !(x->pages[k] & SECOND_MOVED))) {
                return 0;
            }
            together(c, x ? other : e->number, &n);
        }
        for (uint32_t k = 0; k < c->n_words; k++) {
            for (uint32_t other = 0; other < c->n && l->adds[k]; other++) {
                x = loop_at(&c->e[other]);
                if (x && x->adds[k]) {
                    together(c, other, &n);
                } else if (named_elsewhere(&c->e[other], k)) {
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
        const struct fifo *q = &c->fifo[k];
        uint32_t n = c->p->buffers[k].producer == e->s->engine ? q->reserved : q->waited;
        bool moved = f->loop->pages[k] & SECOND_MOVED;
        NEED(6, begin || !f->loop->pages[k] || f->held[k] == n, "holds other pages");
        NEED(22, !moved || q->pushed == q->popped, "pages in flight where a loop begins or ends");
        f->held[k] = n;
    }
}

static uint32_t after(const struct engine *e, uint32_t at) {
    return at + (e->s->words[at] >> 16);
}

/* Notes loops that need not be alike, as they run once; a trip that ends below the loop's count; a
 * word that is waited for but not raised; and engines outside the group that have a loop of its
 * count before them. */
static void note_order(struct second *c, const struct group *g, const struct loop *l) {
    bool below = l->trip != TW_NONE && c->p->trips[l->trip].max < l->max;
    c->verdict.limits |= (uint32_t)(l->max == 1) << 20 | (below ? 255u << 20 : 0);
    for (uint32_t w = 0; w < c->n_words; w++) {
        uint32_t most = 0;
        for (uint32_t i = 0; i < g->n; i++) {
            uint32_t adds = loop_at(&c->e[g->member[i]])->adds[w];
            most = adds > most ? adds : most;
        }
        c->verdict.limits |= (uint32_t)(most == 1) << 20;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        const struct engine *e = &c->e[i];
        bool member = innermost(e) != g->parent;
        for (uint32_t k = 0; k < g->n; k++) {
            member = member || g->member[k] == i;
        }
        for (uint32_t k = 0; k < e->n_loops && !member; k++) {
            const struct loop *x = &e->loops[k];
            bool equal = x->head >= e->at && x->trip == l->trip && x->max == l->max;
            c->verdict.limits |= equal ? 5u << 20 : 0;
        }
    }
}

static bool enter(struct second *c, struct engine *e) {
    uint32_t n = company(c, e);
    const struct loop *l = loop_at(e);
    if (n == 0 && c->alone && l->max == 1 && l->trip == TW_NONE) {
        c->list[n++] = e->number;
    }
    if (n == 0) {
        return false;
    }
    c->alone = false;
    struct group *g = second_alloc(c, 1, sizeof *g);
    *g = (struct group){.parent = innermost(e), .n = n};
    g->member = memcpy(second_alloc(c, n, sizeof *c->list), c->list, n * sizeof *c->list);
    g->times = l->trip == TW_NONE ? l->max : c->trip[l->trip];
    note_order(c, g, l);
    for (uint32_t i = 0; i < n; i++) {
        struct engine *m = &c->e[g->member[i]];
        struct frame *f = &m->frame[m->depth++];
        l = loop_at(m);
        for (uint32_t k = 0; k < c->n_words; k++) {
            g->flags = g->flags || l->adds[k];
        }
        *f = (struct frame){l, g, NULL, second_alloc(c, c->p->n_buffers, sizeof *f->held)};
        f->known = l->trip == TW_NONE ? NULL : copy_clock(c, m->clock);
        check_border(c, m, true);
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
    for (uint32_t i = 0; i < c->n * c->n && closed; i++) {
        uint32_t a = i / c->n, b = i % c->n;
        closed = a == b || c->e[a].clock[b] >= c->e[b].work;
    }
    return closed;
}

/* The last of the group has reached its END. */
static void leave(struct second *c, struct group *g) {
    bool over = ++g->round >= g->times;
    g->arrived = 0;
    if (is_closed(c, g)) {
        second_forget_accesses(c);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        struct engine *e = &c->e[g->member[i]];
        struct frame *f = &e->frame[e->depth - 1];
        check_border(c, e, false);
        e->at_end = false;
        e->vars[e->s->words[f->loop->head + 2]] = g->round;
        e->at = after(e, over ? f->loop->end : f->loop->head);
        e->depth -= over;
        if (over && f->known) { /* there may have been no iteration */
            f->known[e->number] = e->clock[e->number];
            e->clock = f->known;
        }
    }
}

/* ---- pages and words ---- */

static void clear_page(struct second *c, uint32_t fifo, uint64_t page) {
    uint64_t cells = c->p->buffers[fifo].page_bytes / 4;
    c->fifo[fifo].filled[page] = 0;
    memset(c->cells[fifo] + page * cells, 0, cells * sizeof **c->cells);
}

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
    for (uint64_t i = f->pushed; i < f->pushed + n && reserve; i++) {
        clear_page(c, id, i % pages);
    }
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
    NEED(27, !push || !e->posted, "publishes pages before the flag of what it has sent");
    *holds -= n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t page = (push ? f->pushed++ : f->popped++) % b->pages;
        NEED(25, !push || f->filled[page], "pushes an unwritten page");
        c->verdict.limits |= (uint32_t)(push && f->filled[page] > e->depth + 1) << 25;
        if (push) {
            memcpy(f->clocks + page * c->n, e->clock, c->n * sizeof *e->clock);
        } else {
            clear_page(c, id, page);
        }
    }
}

static struct word *word_on(struct second *c, uint32_t semaphore, uint32_t site) {
    const struct tw_group *g = &c->p->groups[c->p->semaphores[semaphore].group];
    return &c->word[c->first_word[semaphore] + tw_group_number(c->p, g, site)];
}

static bool one_writer(const struct word *w) {
    return !w->many && w->kinds != 3;
}

static void increment(struct second *c, struct engine *e, struct word *w, uint32_t by) {
    for (const struct waiting *x = w->waits; x && !one_writer(w); x = x->next) {
        NEED(21, e->clock[x->engine] >= x->clock, "may raise a word before a wait is over");
    }
    w->value += by;
    w->sum += by;
    NEED(14, w->sum <= 0x7FFFFFFF, "increments in one step");
    learn(c, w->clock, e->clock);
    if (one_writer(w)) {
        w->last[w->n_last++ % SECOND_KEPT] = (struct raised){w->value, copy_clock(c, e->clock)};
    }
}

static void raise_words(struct second *c, struct engine *e, const struct tw_op *op) {
    uint32_t id = op->operand[0].id, sent = e->n_sent;
    e->posted = false;
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
        bool over = e->sent[i] == op->operand[1].id;
        e->sent[e->n_sent] = e->sent[i];
        e->n_sent += !over;
    }
}

/* What the engine that makes all increments knew when the word reached the threshold. */
static void learn_reached(const struct second *c, struct engine *e, const struct word *w,
                          uint32_t threshold) {
    uint32_t oldest = w->n_last > SECOND_KEPT ? w->n_last - SECOND_KEPT : 0;
    for (uint32_t i = oldest; i < w->n_last; i++) {
        const struct raised *r = &w->last[i % SECOND_KEPT];
        if ((int32_t)(r->value - threshold) >= 0) {
            if (i == 0 || i > oldest) { /* else an earlier one may have reached it */
                learn(c, e->clock, r->clock);
            }
            return;
        }
    }
}

static uint32_t step_of(const struct tw_affine *a, uint32_t var) {
    uint32_t step = 0;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        step += a->term[i].var == var ? (uint32_t)a->term[i].step : 0;
    }
    return step;
}

/* The threshold grows in each loop as the word does. */
static void check_growth(struct second *c, const struct engine *e, const struct tw_affine *a,
                         uint32_t word) {
    for (uint32_t d = 0; d < e->depth; d++) {
        const struct frame *f = &e->frame[d];
        uint32_t grows = 0, step = step_of(a, e->s->words[f->loop->head + 2]);
        for (uint32_t i = 0; i < f->group->n; i++) {
            uint32_t adds = c->e[f->group->member[i]].frame[d].loop->adds[word];
            grows += adds ? adds - 1 : 0;
        }
        NEED(22, step == grows || f->loop->max == 1, "a threshold does not grow as its word does");
    }
}

static bool await(struct second *c, struct engine *e, const struct tw_op *op) {
    uint32_t id = op->operand[0].id, initial = c->p->semaphores[id].initial;
    struct word *w = word_on(c, id, e->s->site);
    const struct tw_affine *a = &op->operand[1].offset;
    uint32_t threshold = (uint32_t)tw_affine_value(a, e->vars);
    if ((int32_t)(w->value - threshold) < 0) {
        return false;
    }
    check_growth(c, e, a, (uint32_t)(w - c->word));
    const struct tw_section *s = &c->p->sections[e->section];
    bool meets = id == s->local || id == s->gather || id == s->release;
    NEED(15, !meets || (w->value == threshold && threshold != initial), "a rendezvous");
    if (one_writer(w) && (int32_t)(initial - threshold) < 0) {
        learn_reached(c, e, w, threshold);
    } else if (!one_writer(w)) {
        NEED(21, w->value == threshold, "waits for less than what may have arrived");
        learn(c, e->clock, w->clock);
    }
    struct waiting *x = second_alloc(c, 1, sizeof *x);
    *x = (struct waiting){w->waits, e->number, e->clock[e->number], step_of(a, 0),
                          tw_affine_value(a, e->vars)};
    w->waits = x;
    return true;
}

/* ---- engines ---- */

/* No engine enters a section before it knows that all have left the previous ones. */
static void follow_section(struct second *c, struct engine *e, const struct tw_op *op) {
    uint32_t to = op->stage == TW_NONE ? e->section : c->p->stages[op->stage].section;
    const struct tw_section *s = &c->p->sections[to];
    uint32_t word = op->operand[0].kind == 'S' ? op->operand[0].id : TW_NONE;
    bool meets = word != TW_NONE && (word == s->gather || word == s->release);
    bool works = op->code != TW_OP_SEM_WAIT && !meets;
    for (uint32_t k = 0; k < c->n && to > e->section; k++) {
        bool left = c->e[k].section >= to || e->clock[k] >= c->e[k].left;
        NEED(23, &c->e[k] == e || left, "enters a section before another engine has left one");
    }
    e->section = to;
    if (to > c->front) {
        c->front = to;
        second_forget_accesses(c);
    }
    NEED(23, !works || to == c->front, "works in a section left");
    e->left = works ? e->clock[e->number] : e->left;
    e->work = word == TW_NONE ? e->clock[e->number] : e->work;
}

/* Executes an op; false: it must wait. */
static bool execute(struct second *c, struct engine *e, const struct tw_op *op) {
    bool blocks =
        tw_letter_in((char[]){TW_OP_RESERVE, TW_OP_WAIT, TW_OP_SEM_WAIT, 0}, (char)op->code);
    NEED(27, !blocks || e->n_sent == 0, "may wait between a multicast and its flag");
    if (op->code == TW_OP_RESERVE || op->code == TW_OP_WAIT) {
        return take_pages(c, e, op);
    } else if (op->code == TW_OP_SEM_WAIT) {
        return await(c, e, op);
    } else if (op->code == TW_OP_PUSH || op->code == TW_OP_POP) {
        give_pages(c, e, op);
    } else if (op->code == TW_OP_SEM_INC || op->code == TW_OP_MCAST_SET) {
        raise_words(c, e, op);
    } else {
        second_data_op(c, e, op);
    }
    return true;
}

static void place(struct second *c, const struct engine *e) {
    c->site = e->s->site;
    c->what = tw_engine_name(e->s->engine);
    c->index = e->index;
}

/* Returns true if the engine did something. */
static bool advance(struct second *c, struct engine *e) {
    struct tw_op op;
    place(c, e);
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
    c->n = c->front = 0;
    for (uint32_t i = 0; i < streams; i++) {
        bool works = p->streams[i].n_words != 0;
        c->engine_of[i] = works ? c->n : TW_NONE;
        struct engine e = {.s = &p->streams[i], .number = c->n, .loops = c->loop};
        for (; e.loops < c->loop + c->n_loops && e.loops->stream < i; e.loops++) {
        }
        while (e.loops + e.n_loops < c->loop + c->n_loops && e.loops[e.n_loops].stream == i) {
            e.n_loops++;
        }
        c->e[c->n] = e;
        c->n += works;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        c->e[i].clock = second_alloc(c, c->n, sizeof *c->e->clock);
    }
    c->list = second_alloc(c, c->n + 1, sizeof *c->list);
    c->fifo = second_alloc(c, p->n_buffers, sizeof *c->fifo);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        uint64_t pages = p->buffers[i].kind == TW_BUF_FIFO ? p->buffers[i].pages : 0;
        c->fifo[i].filled = second_alloc(c, pages, 1);
        c->fifo[i].clocks = second_alloc(c, pages * c->n, sizeof *c->fifo->clocks);
    }
    uint32_t *clocks = second_alloc(c, (uint64_t)c->n_words * c->n, sizeof *clocks);
    for (uint32_t i = 0, w = 0; w < c->n_words; w++) {
        for (; i + 1 < p->n_semaphores && c->first_word[i + 1] <= w; i++) {
        }
        c->word[w].value = p->semaphores[i].initial;
        c->word[w].clock = clocks + (uint64_t)w * c->n;
        c->word[w].sum = c->word[w].n_last = 0;
        c->word[w].waits = NULL;
    }
}

static void end(struct second *c) {
    for (uint32_t i = 0; i < c->n; i++) {
        place(c, &c->e[i]);
        NEED(20, c->e[i].at == c->e[i].s->n_words, "waits forever");
        NEED(27, c->e[i].n_sent == 0 && !c->e[i].posted, "sends without a flag");
    }
    for (uint32_t i = 0; i < c->p->n_buffers; i++) {
        const struct fifo *f = &c->fifo[i];
        NEED(6, f->pushed == f->popped, "a FIFO with pages when the step ends");
        NEED(6, f->reserved + f->waited == 0, "pages are held when the step ends");
    }
    for (uint32_t i = 0; i < c->p->n_semaphores; i++) {
        uint32_t initial = c->p->semaphores[i].initial;
        uint32_t last = i + 1 < c->p->n_semaphores ? c->first_word[i + 1] : c->n_words;
        for (const struct word *w = c->word + c->first_word[i]; w < c->word + last; w++) {
            for (const struct waiting *x = w->waits; x; x = x->next) {
                NEED(14, x->threshold <= initial + w->sum, "a threshold is never reached");
                NEED(14, x->per_step == w->value - initial, "a threshold that grows otherwise");
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
    for (uint32_t idle = 0; idle < 2; idle = progress ? 0 : idle + 1) {
        c->alone = idle > 0;
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

/* The counts that are tried of a trip: fills `out`, 5, and returns how many. */
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

void second_steps(struct second *c) {
    uint32_t n = c->p->n_trips, *choice = second_alloc(c, n, sizeof *choice), value[5], t;
    uint64_t size = 0;
    c->trip = second_alloc(c, n, sizeof *c->trip);
    second_uses_begin(c);
    c->verdict.limits = UINT32_MAX; /* if no step can begin */
    do { /* all choices, the first trip changing fastest; in long steps one or all are not max */
        struct block *mark = c->memory;
        uint32_t changed = 0;
        bool all = true, none = false; /* none: no step can begin */
        for (t = 0; t < n; t++) {
            bool used = c->in_loop[t] || c->in_rows[t];
            uint32_t m = candidates(c, t, value);
            c->trip[t] = m ? value[m - 1 - choice[t]] : 0;
            none = none || (used && m == 0);
            changed += choice[t] > 0;
            all = all && (choice[t] > 0 || !used);
        }
        c->verdict.limits = none || size ? c->verdict.limits : 0;
        if (!none && (size < 1000 || changed < 2 || all)) {
            run_step(c);
        }
        size = size ? size : c->executed;
        second_free_to(c, mark);
        for (t = 0; t < n; choice[t++] = 0) {
            bool used = c->in_loop[t] || c->in_rows[t];
            if (used && ++choice[t] < candidates(c, t, value)) {
                break;
            }
        }
    } while (t < n);
    second_uses_end(c);
}
