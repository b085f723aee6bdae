/* SPDX-License-Identifier: Apache-2.0
 *
 * Semaphore words: what has arrived, what it carries (check_clocks.c), and which waits may still
 * count an increment. A multicast to all words of a semaphore on a chip is kept once, as a flag, so
 * it costs as much as an increment of one word.
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
    return rc ? rc : tw_ck_chunks_init(c, &c->flags, c->n_flags, sizeof(struct tw_ck_flag));
}

void tw_ck_words_finish(struct tw_checker *c) {
    for (size_t i = 0; i < c->n_words && c->words.of; i++) {
        struct tw_ck_word *w = tw_ck_made(&c->words, i);
        if (w) {
            tw_ck_clock_drop(c, &w->clock);
        }
    }
    for (size_t i = 0; i < c->n_flags && c->flags.of; i++) {
        struct tw_ck_flag *f = tw_ck_made(&c->flags, i);
        if (f) {
            tw_ck_clock_drop(c, &f->clock);
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
    free(c->live_clocks);
}

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

/* ---- increments ---- */

/* Publishes in the clock of a word or flag, which is dropped when an iteration is over. */
static int publish(struct tw_checker *c, struct tw_ck_clock **clock) {
    int rc = *clock ? 0
                    : tw_ck_grow(c, &c->live_clocks, &c->cap_live_clocks, c->n_live_clocks,
                                 sizeof *c->live_clocks);
    if (rc == 0 && !*clock) {
        c->live_clocks[c->n_live_clocks++] = clock;
    }
    return rc ? rc : tw_ck_clock_publish(c, clock);
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

static int increment(struct tw_checker *c, uint32_t semaphore, uint32_t site, uint32_t by) {
    uint32_t index = word_index(c, semaphore, site);
    struct tw_ck_word *w = tw_ck_make(c, &c->words, index);
    if (!w) {
        return c->make_error;
    }
    int rc = check_waits(c, semaphore, site, w);
    rc = rc ? rc : tw_ck_save(c, &c->word_log, index, w->counter.count);
    w->counter.count += by;
    return rc ? rc : publish(c, &w->clock);
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

int tw_ck_words_wait(struct tw_checker *c) {
    uint32_t semaphore = c->op.operand[TW_SEM_WAIT_semaphore].id, site = tw_ck_site(c, c->stream),
             chip = site / (c->p->mesh_width * c->p->mesh_height);
    struct tw_ck_word *w = tw_ck_make(c, &c->words, word_index(c, semaphore, site));
    struct tw_ck_flag *f = tw_ck_made(&c->flags, flag_index(c, semaphore, chip));
    if (!w) {
        return c->make_error;
    }
    uint64_t threshold = tw_affine_value(&c->op.operand[TW_SEM_WAIT_threshold].offset, c->vars);
    uint64_t arrived =
        c->p->semaphores[semaphore].initial + w->counter.count + (f ? f->counter.count : 0);
    tw_ck_count(c, TW_ORDER_exact_threshold);
    if (threshold != arrived) {
        return fail_threshold(c, semaphore, threshold, arrived);
    }
    w->waited[c->p->streams[c->stream].engine] =
        (int32_t)c->streams[c->stream].at + 1 + c->offset[c->stream];
    int rc = f && f->lists_waits ? list_wait(c, f, w, c->stream) : 0;
    rc = rc ? rc : tw_ck_clock_learn(c, w->clock);
    return rc || !f ? rc : tw_ck_clock_learn(c, f->clock);
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
    struct tw_ck_flag *f = tw_ck_make(c, &c->flags, index);
    if (!f) {
        return c->make_error;
    }
    int rc = f->lists_waits ? 0 : list_waits(c, f, semaphore, g);
    rc = rc ? rc : check_all_waits(c, f, semaphore, g);
    rc = rc ? rc : tw_ck_save(c, &c->flag_log, index, f->counter.count);
    f->counter.count++;
    return rc ? rc : publish(c, &f->clock);
}

int tw_ck_words_multicast(struct tw_checker *c) {
    const struct tw_program *p = c->p;
    uint32_t semaphore = c->op.operand[TW_MCAST_SET_semaphore].id;
    const struct tw_group *g = &p->groups[c->op.operand[TW_MCAST_SET_group].id],
                          *words = &p->groups[p->semaphores[semaphore].group];
    if (g->x0 == words->x0 && g->x1 == words->x1 && g->y0 == words->y0 && g->y1 == words->y1) {
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
    for (size_t i = 0; i < c->n_live_clocks; i++) {
        tw_ck_clock_drop(c, c->live_clocks[i]);
    }
    c->n_live_clocks = 0;
}

/* Multiplies what one pass adds to the counters of a table, which are first in their items. The
 * log's first entry of an item is its value where the loop began; backwards, it is applied last. */
static void multiply(const struct tw_ck_saves *log, size_t from, const struct tw_ck_chunks *table,
                     const struct tw_ck_frame *f) {
    for (size_t i = log->n; i > from; i--) {
        struct tw_ck_counter *x = tw_ck_made(table, log->items[i - 1].item);
        x->before = log->items[i - 1].value;
        x->has_before = true;
    }
    for (size_t i = from; i < log->n; i++) {
        struct tw_ck_counter *x = tw_ck_made(table, log->items[i].item);
        if (x->has_before) {
            TW_ASSERT(x->count >= x->before);
            x->count = x->before + (x->count - x->before) / (f->pass + 1u) * f->count;
            x->has_before = false;
        }
    }
}

void tw_ck_words_multiply(struct tw_checker *c, const struct tw_ck_frame *f) {
    TW_ASSERT(f->word_log <= c->word_log.n && f->flag_log <= c->flag_log.n && f->pass <= 1);
    multiply(&c->word_log, f->word_log, &c->words, f);
    multiply(&c->flag_log, f->flag_log, &c->flags, f);
}
