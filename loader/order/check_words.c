/* SPDX-License-Identifier: Apache-2.0
 *
 * Semaphore words: what has arrived, what it carries (check_clocks.c), and which waits may still
 * count an increment. A multicast to all words of a semaphore on a chip is kept once, as a flag, so
 * it costs as much as an increment of one word.
 *
 * Rule 21 is about words that several engines increment: then only a count that includes everybody
 * tells who has come. If one engine makes all increments of a word, a wait may be for fewer than
 * have arrived: it is over after the one that reaches its threshold, and after all before that.
 */
#include "loader/order/check_internal.h"

#include "loader/base/assert.h"

#include <stdlib.h>

/* ---- tables ---- */

#define CHUNK 16u /* items */
int tw_ck_chunks_init(struct tw_checker *c, struct tw_ck_chunks *t, size_t n, size_t item_bytes) {
    t->n = n;
    t->item_bytes = item_bytes;
    t->of = calloc(n / CHUNK + 1, sizeof *t->of);
    return t->of ? 0
                 : tw_fail(c->err, TW_E_NOMEM, "out of memory to check the order of %s: %zu items",
                           c->p->name, n);
}

void tw_ck_chunks_finish(struct tw_ck_chunks *t) {
    for (size_t i = 0; t->of && i <= t->n / CHUNK; i++) {
        free(t->of[i]);
    }
    free(t->of);
    t->of = NULL;
}

void *tw_ck_made(const struct tw_ck_chunks *t, size_t i) {
    TW_ASSERT(i < t->n);
    char *chunk = t->of[i / CHUNK];
    return chunk ? chunk + i % CHUNK * t->item_bytes : NULL;
}

void *tw_ck_make(struct tw_checker *c, struct tw_ck_chunks *t, size_t i) {
    TW_ASSERT(i < t->n);
    if (!t->of[i / CHUNK]) {
        c->make_error = tw_ck_spend(c, TW_CK_TABLE_BYTES, CHUNK * t->item_bytes);
        if (c->make_error) {
            return NULL;
        }
        t->of[i / CHUNK] = calloc(CHUNK, t->item_bytes);
        if (!t->of[i / CHUNK]) {
            c->make_error =
                tw_fail(c->err, TW_E_NOMEM, "out of memory to check the order of %s: %llu bytes",
                        c->p->name, (unsigned long long)c->spent[TW_CK_TABLE_BYTES]);
            return NULL;
        }
    }
    return tw_ck_made(t, i);
}

/* ---- who increments what ---- */

static uint32_t word_index(const struct tw_checker *c, uint32_t semaphore, uint32_t site) {
    TW_ASSERT(semaphore < c->p->n_semaphores && site < c->p->n_sites);
    uint32_t index = c->word_first[semaphore] +
                     tw_group_number(c->p, &c->p->groups[c->p->semaphores[semaphore].group], site);
    TW_ASSERT(index < c->n_words);
    return index;
}

static uint32_t flag_index(const struct tw_checker *c, uint32_t semaphore, uint32_t chip) {
    const struct tw_group *g = &c->p->groups[c->p->semaphores[semaphore].group];
    TW_ASSERT(chip >= g->chip && chip - g->chip < g->chips);
    return c->flag_first[semaphore] + chip - g->chip;
}

static const struct tw_group *all_words(const struct tw_checker *c, uint32_t semaphore) {
    return &c->p->groups[c->p->semaphores[semaphore].group];
}

/* Returns true if a multicast to the group raises all words of the semaphore on its chip. */
static bool reaches_all(const struct tw_checker *c, uint32_t semaphore, const struct tw_group *g) {
    const struct tw_group *words = all_words(c, semaphore);
    return g->x0 == words->x0 && g->x1 == words->x1 && g->y0 == words->y0 && g->y1 == words->y1;
}

static void note_engine(struct tw_ck_arrivals *in, uint32_t stream) {
    in->by = in->by == TW_CK_BY_NONE || in->by == 1 + stream ? 1 + stream : TW_CK_BY_MANY;
}

static int note_increment(struct tw_checker *c, uint32_t semaphore, uint32_t site,
                          uint32_t stream) {
    struct tw_ck_word *w = tw_ck_make(c, &c->words, word_index(c, semaphore, site));
    if (w) {
        note_engine(&w->in, stream);
    }
    return w ? 0 : c->make_error;
}

static int note_multicast(struct tw_checker *c, const struct tw_op *op, uint32_t stream) {
    uint32_t semaphore = op->operand[TW_MCAST_SET_semaphore].id;
    const struct tw_group *g = &c->p->groups[op->operand[TW_MCAST_SET_group].id];
    if (reaches_all(c, semaphore, g)) {
        struct tw_ck_flag *f = tw_ck_make(c, &c->flags, flag_index(c, semaphore, g->chip));
        if (f) {
            note_engine(&f->in, stream);
        }
        return f ? 0 : c->make_error;
    }
    int rc = 0;
    for (uint32_t i = 0; i < tw_group_size(g) && rc == 0; i++) {
        rc = note_increment(c, semaphore, tw_group_site(c->p, g, i), stream);
    }
    return rc;
}

/* Finds the flags some of whose words have increments of their own. */
static void find_mixed(struct tw_checker *c) {
    for (uint32_t i = 0; i < c->p->n_semaphores; i++) {
        const struct tw_group *g = all_words(c, i);
        uint32_t n = (uint32_t)tw_group_size(g) / g->chips;
        for (uint32_t chip = 0; chip < g->chips; chip++) {
            struct tw_ck_flag *f = tw_ck_made(&c->flags, c->flag_first[i] + chip);
            for (uint32_t k = 0; f && !f->mixed && k < n; k++) {
                const struct tw_ck_word *w = tw_ck_made(&c->words, c->word_first[i] + chip * n + k);
                f->mixed = w && w->in.by != TW_CK_BY_NONE;
            }
        }
    }
}

static int find_engines(struct tw_checker *c) {
    int rc = 0;
    for (uint32_t s = 0; s < c->n_streams && rc == 0; s++) {
        const struct tw_stream *stream = &c->p->streams[s];
        struct tw_op op;
        for (uint32_t at = 0; at < stream->n_words && rc == 0; at += stream->words[at] >> 16) {
            uint32_t code = stream->words[at] & 0xFFFFu;
            if (code != TW_OP_SEM_INC && code != TW_OP_MCAST_SET) {
                continue;
            }
            bool decodes = tw_op_decode(stream->words, stream->n_words, at, &op);
            TW_ASSERT(decodes); /* the verifier has decoded it */
            rc = code == TW_OP_MCAST_SET ? note_multicast(c, &op, s)
                                         : note_increment(c, op.operand[TW_SEM_INC_semaphore].id,
                                                          op.operand[TW_SEM_INC_site].id, s);
        }
    }
    find_mixed(c);
    return rc;
}

/* ---- set-up ---- */

int tw_ck_words_init(struct tw_checker *c) {
    const struct tw_program *p = c->p;
    c->word_first = calloc((size_t)p->n_semaphores + 1, sizeof *c->word_first);
    c->flag_first = calloc((size_t)p->n_semaphores + 1, sizeof *c->flag_first);
    if (!c->word_first || !c->flag_first) {
        return tw_fail(c->err, TW_E_NOMEM, "out of memory to check the order of %s: %u semaphores",
                       p->name, p->n_semaphores);
    }
    for (uint32_t i = 0; i < p->n_semaphores; i++) {
        const struct tw_group *g = &p->groups[p->semaphores[i].group];
        c->word_first[i] = c->n_words;
        c->flag_first[i] = c->n_flags;
        c->n_words += (uint32_t)tw_group_size(g); /* the verifier bounds the sum */
        c->n_flags += g->chips;
    }
    int rc = tw_ck_chunks_init(c, &c->words, c->n_words, sizeof(struct tw_ck_word));
    rc = rc ? rc : tw_ck_chunks_init(c, &c->flags, c->n_flags, sizeof(struct tw_ck_flag));
    return rc ? rc : find_engines(c);
}

static void drop_arrivals(struct tw_checker *c, struct tw_ck_arrivals *in) {
    tw_ck_clock_drop(c, &in->clock);
    for (size_t i = 0; i < in->n; i++) {
        tw_ck_clock_drop(c, &in->items[i].clock);
    }
    in->n = 0;
}

void tw_ck_words_finish(struct tw_checker *c) {
    for (size_t i = 0; i < c->n_words && c->words.of; i++) {
        struct tw_ck_word *w = tw_ck_made(&c->words, i);
        if (w) {
            drop_arrivals(c, &w->in);
            free(w->in.items);
        }
    }
    for (size_t i = 0; i < c->n_flags && c->flags.of; i++) {
        struct tw_ck_flag *f = tw_ck_made(&c->flags, i);
        if (f) {
            drop_arrivals(c, &f->in);
            free(f->in.items);
            free(f->slots);
            free(f->over);
        }
    }
    tw_ck_chunks_finish(&c->words);
    tw_ck_chunks_finish(&c->flags);
    free(c->word_first);
    free(c->flag_first);
    free(c->word_log.items);
    free(c->flag_log.items);
    free(c->waits);
    free(c->live);
}

/* ---- increments ---- */

/* The last increments of one engine that are kept apart; a wait for less learns nothing. */
#define MAX_ARRIVALS 32u

static int add_arrival(struct tw_checker *c, struct tw_ck_arrivals *in, uint64_t from) {
    if (in->n == MAX_ARRIVALS) {
        tw_ck_clock_drop(c, &in->items[0].clock);
        memmove(in->items, in->items + 1, (in->n - 1) * sizeof *in->items);
        in->n--;
    }
    if (!in->items) { /* most words never need more */
        in->items = malloc(sizeof *in->items);
        in->cap = in->items ? 1 : 0;
    }
    int rc = tw_ck_grow(c, &in->items, &in->cap, in->n, sizeof *in->items);
    if (rc) {
        return rc;
    }
    in->items[in->n] = (struct tw_ck_arrival){from, in->counter.count, NULL};
    return tw_ck_clock_publish(c, &in->items[in->n++].clock);
}

/* Adds increments, with what the engine knows; that is dropped when an iteration of a closed loop
 * is over. */
static int publish(struct tw_checker *c, struct tw_ck_arrivals *in, uint32_t by) {
    uint64_t from = in->counter.count;
    int rc = in->live ? 0 : tw_ck_grow(c, &c->live, &c->cap_live, c->n_live, sizeof *c->live);
    if (rc) {
        return rc;
    }
    if (!in->live) {
        c->live[c->n_live++] = in;
        in->live = true;
    }
    in->counter.count += by;
    return in->by == TW_CK_BY_MANY ? tw_ck_clock_publish(c, &in->clock) : add_arrival(c, in, from);
}

/* Returns true if one engine makes all increments of a word: its own or the flag's. */
static bool is_ordered(const struct tw_ck_word *w, const struct tw_ck_flag *f) {
    uint32_t own = w->in.by, all = f ? f->in.by : TW_CK_BY_NONE;
    return (own == TW_CK_BY_NONE || all == TW_CK_BY_NONE) && own != TW_CK_BY_MANY &&
           all != TW_CK_BY_MANY;
}

/* Rule 21: an engine that increments a word after a wait on it must know that the wait is over,
 * because otherwise the wait might have counted the increment. */
static int check_waits(struct tw_checker *c, uint32_t semaphore, uint32_t site,
                       const struct tw_ck_word *w) {
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        uint32_t other = site * TW_ENGINE_COUNT + e;
        if (w->waited[e] && tw_ck_known(c, c->stream, other) < w->waited[e] - c->offset[other]) {
            return tw_ck_fail(c, TW_ORDER_exact_threshold,
                              "increments semaphore %u (%s) of site %u, which may still wait for "
                              "less in its %s op %d",
                              semaphore, tw_program_string(c->p, c->p->semaphores[semaphore].name),
                              site, tw_engine_name(e), w->waited[e] - c->offset[other] - 1);
        }
    }
    return 0;
}

static struct tw_ck_flag *flag_of(const struct tw_checker *c, uint32_t semaphore, uint32_t site) {
    return tw_ck_made(&c->flags,
                      flag_index(c, semaphore, site / (c->p->mesh_width * c->p->mesh_height)));
}

static int increment(struct tw_checker *c, uint32_t semaphore, uint32_t site, uint32_t by) {
    uint32_t index = word_index(c, semaphore, site);
    struct tw_ck_word *w = tw_ck_made(&c->words, index);
    TW_ASSERT(w && w->in.by != TW_CK_BY_NONE); /* find_engines has made it */
    int rc = is_ordered(w, flag_of(c, semaphore, site)) ? 0 : check_waits(c, semaphore, site, w);
    rc = rc ? rc : tw_ck_save(c, &c->word_log, index, w->in.counter.count);
    return rc ? rc : publish(c, &w->in, by);
}

int tw_ck_words_increment(struct tw_checker *c) {
    const struct tw_operand *o = c->op.operand;
    return increment(c, o[TW_SEM_INC_semaphore].id, o[TW_SEM_INC_site].id, o[TW_SEM_INC_by].id);
}

/* ---- waits ---- */

/* Records an engine's last wait in the flag's list. */
static int list_wait(struct tw_checker *c, struct tw_ck_flag *f, struct tw_ck_word *w,
                     uint32_t stream) {
    uint32_t e = c->p->streams[stream].engine;
    if (w->place[e] == 0) {
        int rc = tw_ck_grow(c, &f->slots, &f->cap_slots, f->n, sizeof *f->slots);
        rc = rc ? rc : tw_ck_grow(c, &f->over, &f->cap_over, f->n, sizeof *f->over);
        if (rc) {
            return rc;
        }
        f->slots[f->n++] = c->slot[stream];
        w->place[e] = (uint32_t)f->n;
    }
    f->over[w->place[e] - 1] = w->waited[e];
    f->demand = 0;
    return 0;
}

/* Lists the waits so far, before the first multicast to these words. */
static int list_waits(struct tw_checker *c, struct tw_ck_flag *f, uint32_t semaphore,
                      const struct tw_group *g) {
    int rc = 0;
    for (uint32_t i = 0; i < tw_group_size(g) && rc == 0; i++) {
        uint32_t site = tw_group_site(c->p, g, i);
        struct tw_ck_word *w = tw_ck_made(&c->words, word_index(c, semaphore, site));
        for (uint32_t e = 0; w && e < TW_ENGINE_COUNT && rc == 0; e++) {
            rc = w->waited[e] ? list_wait(c, f, w, site * TW_ENGINE_COUNT + e) : 0;
        }
    }
    f->lists_waits = true;
    return rc ? rc : tw_ck_spend(c, TW_CK_COMPARISONS, tw_group_size(g) / 8);
}

static int fail_threshold(struct tw_checker *c, uint32_t semaphore, uint64_t threshold,
                          uint64_t arrived) {
    const char *name = tw_program_string(c->p, c->p->semaphores[semaphore].name);
    if (threshold > arrived) {
        return tw_ck_fail(c, TW_ORDER_no_deadlock,
                          "semaphore %u (%s): %llu have arrived, but %llu are needed", semaphore,
                          name, (unsigned long long)arrived, (unsigned long long)threshold);
    }
    return tw_ck_fail(c, TW_ORDER_exact_threshold,
                      "semaphore %u (%s): waits for %llu, but %llu may have arrived", semaphore,
                      name, (unsigned long long)threshold, (unsigned long long)arrived);
}

/* Learns what the increments carry that a wait counts, if `need` of them are needed; those of one
 * engine include all before them. */
static int learn(struct tw_checker *c, const struct tw_ck_arrivals *in, int64_t need) {
    size_t i = in->n;
    if (in->by == TW_CK_BY_MANY) {
        return tw_ck_clock_learn(c, in->clock);
    }
    while (i > 0 && need <= (int64_t)in->items[i - 1].from) {
        i--; /* the one before is enough */
    }
    return i > 0 ? tw_ck_clock_learn(c, in->items[i - 1].clock) : 0;
}

/* Records a wait whose loops have not ended once. */
static int note_wait(struct tw_checker *c, uint32_t semaphore, uint32_t word, uint32_t flag) {
    bool first = false;
    for (uint32_t d = 0; d < c->depth; d++) {
        first = first || (c->frames[d].flags && c->frames[d].pass == 0);
    }
    int rc = first ? tw_ck_grow(c, &c->waits, &c->cap_waits, c->n_waits, sizeof *c->waits) : 0;
    if (rc == 0 && first) {
        c->waits[c->n_waits++] =
            (struct tw_ck_wait){c->stream, c->streams[c->stream].at,
                                semaphore, word,
                                flag,      c->op.operand[TW_SEM_WAIT_threshold].offset};
    }
    return rc;
}

int tw_ck_words_wait(struct tw_checker *c) {
    uint32_t semaphore = c->op.operand[TW_SEM_WAIT_semaphore].id, site = tw_ck_site(c, c->stream),
             chip = site / (c->p->mesh_width * c->p->mesh_height),
             word = word_index(c, semaphore, site), flag = flag_index(c, semaphore, chip);
    struct tw_ck_word *w = tw_ck_make(c, &c->words, word);
    struct tw_ck_flag *f = tw_ck_made(&c->flags, flag);
    if (!w) {
        return c->make_error;
    }
    uint64_t threshold = tw_affine_value(&c->op.operand[TW_SEM_WAIT_threshold].offset, c->vars);
    uint64_t initial = c->p->semaphores[semaphore].initial,
             arrived = initial + w->in.counter.count + (f ? f->in.counter.count : 0);
    bool ordered = is_ordered(w, f);
    tw_ck_count(c, TW_ORDER_exact_threshold);
    if (ordered ? (int64_t)threshold > (int64_t)arrived : threshold != arrived) {
        return fail_threshold(c, semaphore, threshold, arrived);
    }
    int rc = note_wait(c, semaphore, word, flag);
    if (!ordered) {
        w->waited[c->p->streams[c->stream].engine] =
            (int32_t)c->streams[c->stream].at + 1 + c->offset[c->stream];
        rc = rc ? rc : f && f->lists_waits ? list_wait(c, f, w, c->stream) : 0;
    }
    int64_t need = ordered ? (int64_t)(threshold - initial) : INT64_MAX;
    rc = rc ? rc : learn(c, &w->in, need);
    return rc || !f ? rc : learn(c, &f->in, need);
}

/* ---- multicasts ---- */

static int check_all_waits(struct tw_checker *c, struct tw_ck_flag *f, uint32_t semaphore,
                           const struct tw_group *g) {
    bool over = true;
    f->demand = f->demand ? f->demand : tw_ck_demand_id(c);
    struct tw_ck_demand d = {f->demand, (uint32_t)f->n, f->slots, f->over};
    int rc = f->n ? tw_ck_demand_met(c, c->stream, &d, &over) : 0;
    for (uint32_t i = 0; !over && i < tw_group_size(g) && rc == 0; i++) { /* find the first */
        uint32_t site = tw_group_site(c->p, g, i);
        struct tw_ck_word *w = tw_ck_made(&c->words, word_index(c, semaphore, site));
        rc = w ? check_waits(c, semaphore, site, w) : 0;
    }
    return rc;
}

static int multicast_all(struct tw_checker *c, uint32_t semaphore, const struct tw_group *g) {
    uint32_t index = flag_index(c, semaphore, g->chip);
    struct tw_ck_flag *f = tw_ck_made(&c->flags, index);
    TW_ASSERT(f && f->in.by != TW_CK_BY_NONE); /* find_engines has made it */
    bool ordered = f->in.by != TW_CK_BY_MANY && !f->mixed;
    int rc = ordered || f->lists_waits ? 0 : list_waits(c, f, semaphore, g);
    rc = rc || ordered ? rc : check_all_waits(c, f, semaphore, g);
    rc = rc ? rc : tw_ck_save(c, &c->flag_log, index, f->in.counter.count);
    return rc ? rc : publish(c, &f->in, 1);
}

int tw_ck_words_multicast(struct tw_checker *c) {
    const struct tw_program *p = c->p;
    uint32_t semaphore = c->op.operand[TW_MCAST_SET_semaphore].id;
    const struct tw_group *g = &p->groups[c->op.operand[TW_MCAST_SET_group].id];
    if (reaches_all(c, semaphore, g)) {
        return multicast_all(c, semaphore, g);
    }
    int rc = 0;
    for (uint32_t i = 0; i < tw_group_size(g) && rc == 0; i++) {
        rc = increment(c, semaphore, tw_group_site(p, g, i), 1);
    }
    return rc;
}

/* ---- loops ---- */

void tw_ck_words_forget(struct tw_checker *c) {
    for (size_t i = 0; i < c->n_live; i++) {
        drop_arrivals(c, c->live[i]);
        c->live[i]->live = false;
    }
    c->n_live = 0;
}

/* Multiplies what the passes have added to the increments of a table, which are first in its items.
 * The log's first entry of an item is its count where the loop began; backwards, it is applied
 * last. The last pass stands for the last iteration. */
static void multiply(const struct tw_ck_saves *log, size_t from, const struct tw_ck_chunks *table,
                     const struct tw_ck_frame *f) {
    for (size_t i = log->n; i > from; i--) {
        struct tw_ck_arrivals *x = tw_ck_made(table, log->items[i - 1].item);
        x->counter.before = log->items[i - 1].value;
        x->counter.has_before = true;
    }
    for (size_t i = from; i < log->n; i++) {
        struct tw_ck_arrivals *in = tw_ck_made(table, log->items[i].item);
        struct tw_ck_counter *x = &in->counter;
        if (x->has_before) {
            TW_ASSERT(x->count >= x->before);
            uint64_t skipped = (x->count - x->before) / (f->pass + 1u) * (f->count - f->pass - 1u);
            for (size_t k = 0; k < in->n; k++) {
                bool inside = in->items[k].from >= x->before;
                in->items[k].from += inside ? skipped : 0;
                in->items[k].to += inside ? skipped : 0;
            }
            x->count += skipped;
            x->has_before = false;
        }
    }
}

void tw_ck_words_multiply(struct tw_checker *c, const struct tw_ck_frame *f) {
    TW_ASSERT(f->word_log <= c->word_log.n && f->flag_log <= c->flag_log.n);
    TW_ASSERT(f->pass < f->count);
    multiply(&c->word_log, f->word_log, &c->words, f);
    multiply(&c->flag_log, f->flag_log, &c->flags, f);
}

static int visit_raised(struct tw_checker *c, const struct tw_ck_saves *log, size_t from,
                        size_t end, const struct tw_ck_chunks *table,
                        int (*visit)(struct tw_checker *, struct tw_ck_arrivals *, void *),
                        void *context) {
    int rc = 0;
    for (size_t i = end; i > from; i--) {
        struct tw_ck_arrivals *x = tw_ck_made(table, log->items[i - 1].item);
        x->counter.before = log->items[i - 1].value;
        x->counter.has_before = true;
    }
    for (size_t i = from; i < end; i++) {
        struct tw_ck_arrivals *x = tw_ck_made(table, log->items[i].item);
        rc = rc || !x->counter.has_before ? rc : visit(c, x, context);
        x->counter.has_before = false;
    }
    return rc;
}

int tw_ck_words_raised(struct tw_checker *c, const struct tw_ck_frame *f,
                       int (*visit)(struct tw_checker *, struct tw_ck_arrivals *, void *),
                       void *context) {
    int rc = visit_raised(c, &c->word_log, f->word_log, f->end_words, &c->words, visit, context);
    return rc ? rc
              : visit_raised(c, &c->flag_log, f->flag_log, f->end_flags, &c->flags, visit, context);
}

static void mark_counts(const struct tw_ck_saves *log, size_t from,
                        const struct tw_ck_chunks *table, bool mark) {
    for (size_t i = log->n; i > from; i--) {
        struct tw_ck_arrivals *x = tw_ck_made(table, log->items[i - 1].item);
        x->counter.before = log->items[i - 1].value;
        x->counter.has_before = mark;
    }
}

/* Returns what the pass has added. */
static uint64_t added(const struct tw_ck_chunks *table, uint32_t item) {
    const struct tw_ck_arrivals *in = tw_ck_made(table, item);
    return in && in->counter.has_before ? in->counter.count - in->counter.before : 0;
}

static int check_pace(struct tw_checker *c, const struct tw_ck_wait *w) {
    uint64_t step = 0, arrive = added(&c->words, w->word) + added(&c->flags, w->flag);
    for (uint32_t k = 0; k < w->threshold.n_terms; k++) {
        bool own = w->threshold.term[k].var == c->streams[w->stream].loop_var[c->depth - 1];
        step += own ? w->threshold.term[k].step : 0;
    }
    tw_ck_count(c, TW_ORDER_closed_loop);
    if (step == arrive) {
        return 0;
    }
    return tw_ck_fail(
        c, TW_ORDER_closed_loop,
        "semaphore %u (%s): the threshold of site %u %s op %u grows by %lld in each iteration, "
        "but %llu arrive",
        w->semaphore, tw_program_string(c->p, c->p->semaphores[w->semaphore].name),
        tw_ck_site(c, w->stream), tw_engine_name(c->p->streams[w->stream].engine), w->at,
        (long long)step, (unsigned long long)arrive);
}

int tw_ck_words_pace(struct tw_checker *c, struct tw_ck_frame *f) {
    int rc = 0;
    mark_counts(&c->word_log, f->word_log, &c->words, true);
    mark_counts(&c->flag_log, f->flag_log, &c->flags, true);
    for (size_t i = f->waits; i < c->n_waits && rc == 0 && f->count > 1; i++) {
        rc = check_pace(c, &c->waits[i]);
    }
    mark_counts(&c->word_log, f->word_log, &c->words, false);
    mark_counts(&c->flag_log, f->flag_log, &c->flags, false);
    c->n_waits = c->depth == 1 ? f->waits : c->n_waits;
    return rc;
}

int tw_ck_words_bounded(struct tw_checker *c) {
    for (uint32_t i = 0; i < c->p->n_semaphores; i++) {
        const struct tw_group *g = all_words(c, i);
        uint32_t n = (uint32_t)tw_group_size(g) / g->chips;
        for (uint32_t k = 0; k < n * g->chips; k++) {
            const struct tw_ck_word *w = tw_ck_made(&c->words, c->word_first[i] + k);
            const struct tw_ck_flag *f = tw_ck_made(&c->flags, c->flag_first[i] + k / n);
            uint64_t sum = c->p->semaphores[i].initial + (w ? w->in.counter.count : 0) +
                           (f ? f->in.counter.count : 0);
            if (sum > INT32_MAX) {
                c->stream = TW_NONE;
                return tw_ck_fail(c, TW_ORDER_exact_threshold,
                                  "semaphore %u (%s): a word may be %llu ahead of a wait; the "
                                  "maximum is %d",
                                  i, tw_program_string(c->p, c->p->semaphores[i].name),
                                  (unsigned long long)sum, INT32_MAX);
            }
        }
    }
    return 0;
}
