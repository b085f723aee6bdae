/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops with flags. A closed one is entered by all engines, and each knows where the body ends that
 * all have come there: an iteration is then like a step. In any other, iterations overlap: an
 * engine may be in one while others are still in an earlier one, as far as flags and their
 * thresholds let it (a flag raised in iteration i, waited for in iteration i + d).
 *
 * Why a few iterations prove all. Iterations are followed until one ends with everything that
 * engines know, and that words carry, at least what it was where it began, moved on by one
 * iteration. More knowledge never makes an access a race or lets an engine learn less, and all else
 * is the same in each iteration (levels are restored; each threshold grows by what arrives, so a
 * wait is over after the same increment, counted from the last). So every later iteration begins
 * with at least that knowledge, and its accesses are in order as those that were checked. What has
 * not moved on is forgotten before the next attempt: knowing less is always true. An access counts
 * with all that it touches in any iteration, so later ones are in order with all earlier ones.
 */
#include "loader/order/check_internal.h"

#include <stdlib.h>

#define MAX_PASSES 8u

/* A walk over the clocks of the state, in the same order each time: those of the members; then of
 * each word that the body raises, the one of all increments and those of the body's last ones, the
 * last one first. */
struct walk {
    const struct tw_ck_settled *old; /* of the last pass, or NULL */
    size_t at;                       /* in `old` */
    bool settled;
    struct tw_ck_settled *items; /* of this one */
    size_t n, cap;
};

static int visit_clock(struct tw_checker *c, struct walk *w, struct tw_ck_clock **clock, bool old) {
    int rc = 0;
    if (w->old && old) {
        rc = tw_ck_clock_settle(c, clock, w->old[w->at++].clock, &w->settled);
    }
    rc = rc ? rc : tw_ck_grow(c, &w->items, &w->cap, w->n, sizeof *w->items);
    if (rc == 0) {
        w->items[w->n++] = (struct tw_ck_settled){tw_ck_clock_hold(*clock), 0};
    }
    return rc;
}

static int visit_arrivals(struct tw_checker *c, struct tw_ck_arrivals *in, void *context) {
    struct walk *w = context;
    size_t n_old = w->old ? w->old[w->at].n : 0, header = w->n, n = 0;
    int rc = visit_clock(c, w, &in->clock, true);
    while (n < in->n && in->items[in->n - 1 - n].from >= in->counter.before && rc == 0) {
        rc = visit_clock(c, w, &in->items[in->n - 1 - n].clock, n < n_old);
        n++;
    }
    if (rc == 0 && n < n_old) { /* a loop in the body is closed now, and has dropped them */
        w->at += n_old - n;
        w->settled = false;
    }
    if (rc == 0) {
        w->items[header].n = n;
    }
    return rc;
}

static void drop_settled(struct tw_checker *c, struct tw_ck_frame *f) {
    for (size_t i = 0; i < f->n_settled; i++) {
        tw_ck_clock_drop(c, &f->settled[i].clock);
    }
    free(f->settled);
    f->settled = NULL;
    f->n_settled = 0;
}

void tw_ck_loop_finish(struct tw_checker *c, struct tw_ck_frame *f) {
    drop_settled(c, f);
}

static int save(struct tw_checker *c, struct tw_ck_frame *f, bool *settled) {
    struct walk w = {.old = f->settled, .settled = true};
    int rc = 0;
    for (uint32_t i = 0; i < f->n && rc == 0; i++) {
        struct tw_ck_clock **clock = tw_ck_clock_place(c, c->members[f->first + i]);
        rc = visit_clock(c, &w, clock, true);
    }
    rc = rc ? rc : tw_ck_words_raised(c, f, visit_arrivals, &w);
    drop_settled(c, f);
    f->settled = w.items;
    f->n_settled = w.n;
    *settled = w.settled;
    return rc;
}

/* Finds whether every engine knows that every other is past its last op that is not a semaphore op,
 * in the body or before the loop. */
static int find_closed(struct tw_checker *c, struct tw_ck_frame *f, uint32_t engines) {
    struct tw_ck_demand d = {tw_ck_demand_id(c), f->n, NULL, c->loop_over};
    int rc = 0;
    f->closed = f->n == engines;
    for (uint32_t i = 0; i < f->n && f->closed; i++) {
        uint32_t t = c->members[f->first + i];
        int32_t last = c->streams[t].last_data;
        c->loop_over[c->slot[t]] = last > 0 ? last : INT32_MIN;
    }
    for (uint32_t i = 0; i < f->n && f->closed && rc == 0; i++) {
        tw_ck_count(c, TW_ORDER_closed_loop);
        rc = tw_ck_demand_met(c, c->members[f->first + i], &d, &f->closed);
    }
    return rc;
}

int tw_ck_loop_first(struct tw_checker *c, struct tw_ck_frame *f, uint32_t engines) {
    bool settled;
    f->end_words = c->word_log.n;
    f->end_flags = c->flag_log.n;
    int rc = find_closed(c, f, engines);
    return rc || f->closed || f->count == 1 ? rc : save(c, f, &settled);
}

int tw_ck_loop_settle(struct tw_checker *c, struct tw_ck_frame *f, bool *settled) {
    tw_ck_count(c, TW_ORDER_closed_loop);
    if (f->pass + 1 == f->count) { /* all iterations were followed: nothing is left to prove */
        *settled = true;
        return 0;
    }
    int rc = save(c, f, settled);
    if (rc || *settled || f->pass + 1 < MAX_PASSES) {
        return rc;
    }
    return tw_ck_fail(c, TW_ORDER_closed_loop,
                      "after %u iterations what engines know of each other still differs from one "
                      "to the next",
                      MAX_PASSES);
}
