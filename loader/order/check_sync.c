/* SPDX-License-Identifier: Apache-2.0
 *
 * FIFO levels, semaphore words and the clocks that they carry (check_clocks.c). Ops inside an open
 * loop without flags are never taken as over by others (check_memory.c), because an earlier
 * iteration may be meant.
 */
#include "loader/order/check_internal.h"

#include "loader/base/assert.h"

#include <stdlib.h>

#define MAX_PAGES (1u << 22) /* of all FIFOs of a program */

/* Publishes in the clock of a word or flag, which is freed when an iteration is over. */
static int publish_word(struct tw_checker *c, struct tw_ck_clock **clock) {
    int rc = *clock ? 0
                    : tw_ck_grow(c, &c->live_clocks, &c->cap_live_clocks, c->n_live_clocks,
                                 sizeof *c->live_clocks);
    if (rc == 0 && !*clock) {
        c->live_clocks[c->n_live_clocks++] = clock;
    }
    return rc ? rc : tw_ck_clock_publish(c, clock);
}

static void drop_clocks(struct tw_checker *c, struct tw_ck_clock **clocks, size_t n) {
    for (size_t i = 0; clocks && i < n; i++) {
        tw_ck_clock_drop(c, &clocks[i]);
    }
}

int tw_ck_sync_init(struct tw_checker *c) {
    const struct tw_program *p = c->p;
    uint64_t n_pages = 0;
    uint32_t n_words = 0;
    c->fifos = calloc(p->n_buffers + 1, sizeof *c->fifos);
    c->word_first = calloc(p->n_semaphores + 1, sizeof *c->word_first);
    if (!c->fifos || !c->word_first) {
        return tw_fail(c->err, TW_E_NOMEM, "out of memory to check the order of %s", p->name);
    }
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        c->fifos[i].first_page = (uint32_t)n_pages;
        n_pages += p->buffers[i].kind == TW_BUF_FIFO ? p->buffers[i].pages : 0;
        if (n_pages > MAX_PAGES) {
            return tw_ck_fail(c, TW_ORDER_certificate, "the FIFOs have more than %u pages in all",
                              MAX_PAGES);
        }
    }
    for (uint32_t i = 0; i < p->n_semaphores; i++) {
        c->word_first[i] = n_words;
        /* the verifier bounds the sum */
        n_words += (uint32_t)tw_group_size(&p->groups[p->semaphores[i].group]);
    }
    c->n_pages = (uint32_t)n_pages;
    c->n_words = n_words;
    c->pages = calloc(n_pages + 1, sizeof *c->pages);
    c->page_clocks = calloc((size_t)n_pages + 1, sizeof *c->page_clocks);
    c->words = calloc(n_words + 1, sizeof *c->words);
    c->word_clocks = calloc((size_t)n_words + 1, sizeof *c->word_clocks);
    c->n_flags = (size_t)p->n_semaphores * p->n_chips;
    c->flag_clocks = calloc(c->n_flags + 1, sizeof *c->flag_clocks);
    if (!c->pages || !c->page_clocks || !c->words || !c->word_clocks || !c->flag_clocks) {
        return tw_fail(c->err, TW_E_NOMEM,
                       "out of memory to check the order of %s: %u pages, %u words, %u engines",
                       p->name, c->n_pages, n_words, c->n_streams);
    }
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        c->fifos[i].before = TW_NONE;
    }
    for (uint32_t i = 0; i < p->n_semaphores; i++) {
        const struct tw_group *g = &p->groups[p->semaphores[i].group];
        for (uint32_t k = 0; k < tw_group_size(g); k++) {
            struct tw_ck_word *w = &c->words[c->word_first[i] + k];
            *w = (struct tw_ck_word){
                .before = UINT64_MAX, .semaphore = i, .site = tw_group_site(p, g, k)};
            for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
                w->waited[e] = INT32_MIN;
            }
        }
    }
    return 0;
}

void tw_ck_sync_finish(struct tw_checker *c) {
    for (uint32_t d = 0; d < TW_CK_MAX_DEPTH; d++) {
        drop_clocks(c, c->frames[d].known, c->frames[d].n);
        free(c->frames[d].known);
    }
    drop_clocks(c, c->page_clocks, c->n_pages);
    drop_clocks(c, c->word_clocks, c->n_words);
    drop_clocks(c, c->flag_clocks, c->n_flags);
    free(c->flag_clocks);
    free(c->fifos);
    free(c->word_first);
    free(c->pages);
    free(c->page_clocks);
    free(c->words);
    free(c->word_clocks);
    free(c->fifo_log);
    free(c->word_log);
    free(c->live_clocks);
}

/* Saves an item's value when the innermost loop first changes it. A second entry for the same
 * item is harmless: the first wins. */
static int save(struct tw_checker *c, struct tw_ck_saved **log, size_t *n, size_t *cap,
                uint32_t item, uint64_t value) {
    if (c->depth == 0) {
        return 0;
    }
    int rc = tw_ck_grow(c, log, cap, *n, sizeof **log);
    if (rc == 0) {
        (*log)[(*n)++] = (struct tw_ck_saved){item, value};
    }
    return rc;
}

/* ---- FIFOs ---- */

static uint32_t page_at(const struct tw_checker *c, uint32_t buffer, uint32_t k) {
    const struct tw_ck_fifo *f = &c->fifos[buffer];
    TW_ASSERT(f->head < c->p->buffers[buffer].pages);
    TW_ASSERT(f->first_page + c->p->buffers[buffer].pages <= c->n_pages);
    return f->first_page + (uint32_t)(((uint64_t)f->head + k) % c->p->buffers[buffer].pages);
}

static int push(struct tw_checker *c, uint32_t buffer, uint32_t n) {
    struct tw_ck_fifo *f = &c->fifos[buffer];
    struct tw_ck_clock *clock = NULL; /* of all n pages */
    for (uint32_t k = 0; k < n; k++) {
        uint32_t page = page_at(c, buffer, f->level + k);
        if (c->pages[page].n == 0) {
            return tw_ck_fail(c, TW_ORDER_defined,
                              "a page of FIFO %u (%s) is published, but nothing was written to it",
                              buffer, tw_program_string(c->p, c->p->buffers[buffer].name));
        }
        int rc = k ? 0 : tw_ck_clock_publish(c, &clock);
        TW_ASSERT(!c->page_clocks[page]); /* freed when it was popped */
        c->page_clocks[page] = k ? tw_ck_clock_hold(clock) : clock;
        if (rc) {
            return rc;
        }
    }
    f->level += n;
    TW_ASSERT(f->level <= c->p->buffers[buffer].pages); /* the verifier: only reserved are pushed */
    return 0;
}

static int fail_deadlock(struct tw_checker *c, uint32_t buffer, const char *what, uint32_t have,
                         uint32_t need) {
    return tw_ck_fail(c, TW_ORDER_no_deadlock, "FIFO %u (%s): %u pages %s, but %u are needed",
                      buffer, tw_program_string(c->p, c->p->buffers[buffer].name), have, what,
                      need);
}

static int fifo_op(struct tw_checker *c) {
    uint32_t buffer = c->op.operand[TW_RESERVE_fifo].id, n = c->op.operand[TW_RESERVE_pages].id,
             pages = c->p->buffers[buffer].pages;
    struct tw_ck_fifo *f = &c->fifos[buffer];
    TW_ASSERT(buffer < c->p->n_buffers && c->p->buffers[buffer].kind == TW_BUF_FIFO);
    TW_ASSERT(f->level <= pages);
    int rc = tw_ck_own_section(c, buffer);
    tw_ck_count(c, TW_ORDER_no_deadlock);
    if (rc) {
        return rc;
    }
    if (c->op.code == TW_OP_RESERVE) {
        if (n > pages - f->level) {
            return fail_deadlock(c, buffer, "free", pages - f->level, n);
        }
        /* the content of an earlier use of the page does not count */
        for (uint32_t k = 0; k < n; k++) {
            c->pages[page_at(c, buffer, f->level + k)].n = 0;
        }
        return 0;
    }
    if (c->op.code == TW_OP_WAIT) {
        if (n > f->level) {
            return fail_deadlock(c, buffer, "published", f->level, n);
        }
        for (uint32_t k = 0; k < n && rc == 0; k++) {
            const struct tw_ck_clock *clock = c->page_clocks[page_at(c, buffer, k)];
            rc = k && clock == c->page_clocks[page_at(c, buffer, k - 1)]
                     ? 0
                     : tw_ck_clock_learn(c, clock);
        }
        return rc;
    }
    rc = save(c, &c->fifo_log, &c->n_fifo_log, &c->cap_fifo_log, buffer, f->level);
    if (rc == 0 && c->op.code == TW_OP_PUSH) {
        return push(c, buffer, n);
    }
    if (rc == 0) {
        for (uint32_t k = 0; k < n; k++) {
            tw_ck_clock_drop(c, &c->page_clocks[page_at(c, buffer, k)]);
        }
        f->head = (uint32_t)(((uint64_t)f->head + n) % pages);
        TW_ASSERT(n <= f->level); /* the verifier: only waited pages are popped */
        f->level -= n;
    }
    return rc;
}

/* ---- semaphores ---- */

static uint32_t word_index(const struct tw_checker *c, uint32_t semaphore, uint32_t site) {
    TW_ASSERT(semaphore < c->p->n_semaphores && site < c->p->n_sites);
    uint32_t index = c->word_first[semaphore] +
                     tw_group_number(c->p, &c->p->groups[c->p->semaphores[semaphore].group], site);
    TW_ASSERT(index < c->n_words && c->words[index].site == site);
    return index;
}

/* Returns the clock of increments of all words of a semaphore on one chip. */
static struct tw_ck_clock **flag_clock(const struct tw_checker *c, uint32_t semaphore,
                                       uint32_t chip) {
    TW_ASSERT(semaphore < c->p->n_semaphores && chip < c->p->n_chips);
    return &c->flag_clocks[(size_t)semaphore * c->p->n_chips + chip];
}

/* Rule 21: an engine that increments a word after a wait on it must know that the wait is over,
 * because otherwise the wait might have counted the increment. */
static int increment(struct tw_checker *c, uint32_t semaphore, uint32_t site, uint32_t by) {
    uint32_t index = word_index(c, semaphore, site);
    struct tw_ck_word *w = &c->words[index];
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        uint32_t other = site * TW_ENGINE_COUNT + e;
        if (w->waited[e] != INT32_MIN &&
            tw_ck_known(c, c->stream, other) < w->waited[e] - c->offset[other]) {
            return tw_ck_fail(c, TW_ORDER_exact_threshold,
                              "increments semaphore %u (%s) of site %u, which may still wait for "
                              "less in its %s op %d",
                              semaphore, tw_program_string(c->p, c->p->semaphores[semaphore].name),
                              site, tw_engine_name(e), w->waited[e] - c->offset[other] - 1);
        }
    }
    int rc = save(c, &c->word_log, &c->n_word_log, &c->cap_word_log, index, w->count);
    w->count += by;
    return rc;
}

static int wait_for_word(struct tw_checker *c) {
    uint32_t semaphore = c->op.operand[TW_SEM_WAIT_semaphore].id, site = tw_ck_site(c, c->stream),
             index = word_index(c, semaphore, site);
    struct tw_ck_word *w = &c->words[index];
    uint64_t threshold = tw_affine_value(&c->op.operand[TW_SEM_WAIT_threshold].offset, c->vars);
    uint64_t arrived = c->p->semaphores[semaphore].initial + w->count;
    tw_ck_count(c, TW_ORDER_exact_threshold);
    if (threshold > arrived) {
        return tw_ck_fail(c, TW_ORDER_no_deadlock,
                          "semaphore %u (%s): %llu have arrived, but %llu are needed", semaphore,
                          tw_program_string(c->p, c->p->semaphores[semaphore].name),
                          (unsigned long long)arrived, (unsigned long long)threshold);
    }
    if (threshold < arrived) {
        return tw_ck_fail(c, TW_ORDER_exact_threshold,
                          "semaphore %u (%s): waits for %llu, but %llu may have arrived", semaphore,
                          tw_program_string(c->p, c->p->semaphores[semaphore].name),
                          (unsigned long long)threshold, (unsigned long long)arrived);
    }
    w->waited[c->p->streams[c->stream].engine] =
        (int32_t)c->streams[c->stream].at + 1 + c->offset[c->stream];
    int rc = tw_ck_clock_learn(c, c->word_clocks[index]);
    return rc ? rc
              : tw_ck_clock_learn(
                    c, *flag_clock(c, semaphore, site / (c->p->mesh_width * c->p->mesh_height)));
}

static int increment_one(struct tw_checker *c, uint32_t semaphore, uint32_t site, uint32_t by) {
    int rc = increment(c, semaphore, site, by);
    return rc ? rc : publish_word(c, &c->word_clocks[word_index(c, semaphore, site)]);
}

static uint32_t find_in_flight(const struct tw_ck_stream *s, uint32_t group) {
    uint32_t i = 0;
    while (i < s->n_in_flight && s->in_flight[i] != group) {
        i++;
    }
    return i;
}

int tw_ck_sync_sent(struct tw_checker *c, uint32_t group) {
    struct tw_ck_stream *s = &c->streams[c->stream];
    if (find_in_flight(s, group) < s->n_in_flight) {
        return 0;
    }
    if (s->n_in_flight == TW_CK_MAX_IN_FLIGHT) {
        return tw_ck_fail(c, TW_ORDER_flag_after_data,
                          "multicasts to more than %u groups whose flags are not raised yet",
                          TW_CK_MAX_IN_FLIGHT);
    }
    s->in_flight[s->n_in_flight++] = group;
    return 0;
}

/* A flag on all words of the semaphore on a chip carries the same clock to all, which is stored
 * once. */
static int multicast_flag(struct tw_checker *c) {
    const struct tw_program *p = c->p;
    uint32_t semaphore = c->op.operand[TW_MCAST_SET_semaphore].id,
             group = c->op.operand[TW_MCAST_SET_group].id;
    const struct tw_group *g = &p->groups[group],
                          *words = &p->groups[p->semaphores[semaphore].group];
    bool all = g->x0 == words->x0 && g->x1 == words->x1 && g->y0 == words->y0 && g->y1 == words->y1;
    int rc = all ? publish_word(c, flag_clock(c, semaphore, g->chip)) : 0;
    for (uint32_t i = 0; i < tw_group_size(g) && rc == 0; i++) {
        uint32_t site = tw_group_site(p, g, i);
        rc = all ? increment(c, semaphore, site, 1) : increment_one(c, semaphore, site, 1);
    }
    struct tw_ck_stream *s = &c->streams[c->stream];
    uint32_t at = find_in_flight(s, group);
    if (at < s->n_in_flight) {
        s->in_flight[at] = s->in_flight[--s->n_in_flight];
    }
    return rc;
}

/* Rule 27: the engine must not block while it has data in flight whose flag is not raised yet. */
static int check_flag(struct tw_checker *c) {
    tw_ck_count(c, TW_ORDER_flag_after_data);
    const struct tw_ck_stream *s = &c->streams[c->stream];
    if (s->n_in_flight == 0) {
        return 0;
    }
    return tw_ck_fail(c, TW_ORDER_flag_after_data,
                      "blocks after a multicast to group %u whose flag is not raised yet",
                      s->in_flight[0]);
}

int tw_ck_sync_op(struct tw_checker *c) {
    TW_ASSERT(c->stream < c->n_streams && c->op.n_operands > 0);
    const struct tw_operand *o = c->op.operand;
    uint32_t code = c->op.code;
    if (code == TW_OP_RESERVE || code == TW_OP_WAIT || code == TW_OP_SEM_WAIT) {
        int rc = check_flag(c);
        if (rc) {
            return rc;
        }
    }
    if (o->kind == 'F') {
        return fifo_op(c);
    }
    if (code == TW_OP_SEM_WAIT) {
        return wait_for_word(c);
    }
    return code == TW_OP_SEM_INC ? increment_one(c, o[TW_SEM_INC_semaphore].id,
                                                 o[TW_SEM_INC_site].id, o[TW_SEM_INC_by].id)
                                 : multicast_flag(c);
}

/* ---- loops ---- */

int tw_ck_all_known(struct tw_checker *c, uint32_t stream, const struct tw_ck_demand *d,
                    const char *what, enum tw_order_rule rule) {
    bool met = true;
    int rc = tw_ck_demand_met(c, stream, d, &met);
    for (uint32_t i = 0; rc == 0 && !met && i < d->n; i++) {
        uint32_t t = c->stream_of[i];
        int32_t known = tw_ck_known(c, stream, t);
        if (t != stream && d->over[i] > known + c->offset[t]) {
            return tw_ck_fail(c, rule,
                              "%s though site %u %s may still be at op %d (it must be past op %d)",
                              what, tw_ck_site(c, t), tw_engine_name(c->p->streams[t].engine),
                              known < 0 ? 0 : known, d->over[i] - c->offset[t] - 1);
        }
    }
    return rc;
}

/* A loop over a trip may run once or not at all, so after it its streams know only what they knew
 * before. */
static int save_clocks(struct tw_checker *c, struct tw_ck_frame *f) {
    TW_ASSERT(!f->known && f->n > 0);
    f->known = calloc(f->n, sizeof *f->known);
    if (!f->known) {
        return tw_fail(c->err, TW_E_NOMEM, "no memory to check the order of %s: %u engines",
                       c->p->name, c->n_streams);
    }
    for (uint32_t i = 0; i < f->n; i++) {
        f->known[i] = tw_ck_clock_hold(tw_ck_clock_of(c, c->members[f->first + i]));
    }
    return 0;
}

static void restore_clocks(struct tw_checker *c, struct tw_ck_frame *f) {
    for (uint32_t i = 0; i < f->n && f->known; i++) {
        tw_ck_clock_restore(c, c->members[f->first + i], f->known[i]);
    }
    free(f->known);
    f->known = NULL;
}

/* Loops without flags hide their ops from other engines while they are open. */
int tw_ck_sync_enter(struct tw_checker *c, struct tw_ck_frame *f) {
    for (uint32_t i = 0; i < f->n && !f->flags; i++) {
        struct tw_ck_stream *s = &c->streams[c->members[f->first + i]];
        s->inner_from = s->inner_from == TW_NONE ? s->at : s->inner_from;
    }
    return f->dynamic ? save_clocks(c, f) : 0;
}

/* Otherwise what one engine knows of the previous iteration could reach a third one as if it were
 * of this iteration. */
int tw_ck_sync_again(struct tw_checker *c, const struct tw_ck_frame *f) {
    TW_ASSERT(c->depth > 0 && !f->flags);
    return tw_ck_clocks_lower(c, f);
}

/* After a body with flags every engine must know that every other is past its last op that is not a
 * semaphore op, in the body or before the loop. */
static int check_rendezvous(struct tw_checker *c, const struct tw_ck_frame *f) {
    struct tw_ck_demand d = {tw_ck_demand_id(c), f->n, NULL, c->loop_over};
    int rc = 0;
    for (uint32_t i = 0; i < f->n && f->flags; i++) { /* turn_loop: all streams that have ops */
        uint32_t t = c->members[f->first + i];
        int32_t last = c->streams[t].last_data;
        c->loop_over[c->slot[t]] = last > 0 ? last + c->offset[t] : INT32_MIN;
    }
    for (uint32_t i = 0; i < f->n && f->flags && rc == 0; i++) {
        tw_ck_count(c, TW_ORDER_closed_loop);
        c->stream = c->members[f->first + i];
        rc = tw_ck_all_known(c, c->stream, &d, "a loop with flags ends", TW_ORDER_closed_loop);
    }
    return rc;
}

/* The log's earliest entry of a FIFO is its level at the begin of the loop. */
int tw_ck_sync_balanced(struct tw_checker *c, const struct tw_ck_frame *f) {
    int rc = 0;
    TW_ASSERT(f->fifo_log <= c->n_fifo_log);
    for (size_t i = c->n_fifo_log; i > f->fifo_log; i--) {
        c->fifos[c->fifo_log[i - 1].item].before = (uint32_t)c->fifo_log[i - 1].value;
    }
    for (size_t i = f->fifo_log; i < c->n_fifo_log && rc == 0; i++) {
        uint32_t buffer = c->fifo_log[i].item;
        const struct tw_ck_fifo *fifo = &c->fifos[buffer];
        tw_ck_count(c, TW_ORDER_closed_loop);
        if (fifo->level != 0 || fifo->before != 0) {
            rc = tw_ck_fail(
                c, TW_ORDER_closed_loop,
                "FIFO %u (%s): %u pages where the loop begins, %u where it ends; both must be 0",
                buffer, tw_program_string(c->p, c->p->buffers[buffer].name), fifo->before,
                fifo->level);
        }
    }
    return rc ? rc : check_rendezvous(c, f);
}

void tw_ck_sync_repeat(struct tw_checker *c, const int32_t *back) {
    for (uint32_t s = 0; s < c->n_streams; s++) {
        c->offset[s] += back[s];
    }
    c->ends_section = TW_NONE; /* its numbers were those of the last iteration */
    for (size_t i = 0; i < c->n_live_clocks; i++) {
        tw_ck_clock_drop(c, c->live_clocks[i]);
    }
    c->n_live_clocks = 0;
}

/* Multiplies what one body adds to a word by the iterations. The log's first entry of a word is its
 * value at the begin of the loop. */
static void multiply_words(struct tw_checker *c, const struct tw_ck_frame *f) {
    TW_ASSERT(f->word_log <= c->n_word_log && f->pass <= 1);
    /* backwards: the earliest entry is applied last */
    for (size_t i = c->n_word_log; i > f->word_log; i--) {
        struct tw_ck_word *w = &c->words[c->word_log[i - 1].item];
        w->before = c->word_log[i - 1].value;
    }
    for (size_t i = f->word_log; i < c->n_word_log; i++) {
        struct tw_ck_word *w = &c->words[c->word_log[i].item];
        if (w->before != UINT64_MAX) {
            uint64_t passes = f->pass + 1u;
            TW_ASSERT(w->count >= w->before);
            w->count = w->before + (w->count - w->before) / passes * f->count;
            w->before = UINT64_MAX;
        }
    }
}

int tw_ck_sync_leave(struct tw_checker *c, struct tw_ck_frame *f) {
    int rc = tw_ck_sync_balanced(c, f);
    if (rc) {
        return rc;
    }
    restore_clocks(c, f);
    multiply_words(c, f);
    if (c->depth == 1) {
        c->n_fifo_log = c->n_word_log = 0;
    }
    for (uint32_t i = 0; i < f->n; i++) {
        struct tw_ck_stream *s = &c->streams[c->members[f->first + i]];
        if (s->inner_from == s->open_from[c->depth - 1]) {
            s->inner_from = TW_NONE;
        }
    }
    return 0;
}
