/* SPDX-License-Identifier: Apache-2.0
 *
 * FIFO levels, what loops must restore, and what engines must know where loops end. Whatever
 * another engine knows of ops inside an open loop without flags does not count (check_races.c),
 * because it may be about an earlier iteration.
 */
#include "loader/order/check_internal.h"

#include "loader/base/assert.h"

#include <stdlib.h>

#define MAX_PAGES (1u << 22) /* of all FIFOs of a program */

int tw_ck_sync_init(struct tw_checker *c) {
    const struct tw_program *p = c->p;
    uint64_t n_pages = 0;
    c->fifos = calloc((size_t)p->n_buffers + 1, sizeof *c->fifos);
    if (!c->fifos) {
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
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        c->fifos[i].before = TW_NONE;
    }
    c->n_pages = (uint32_t)n_pages;
    int rc = tw_ck_chunks_init(c, &c->pages, n_pages, sizeof(struct tw_ck_page));
    return rc ? rc : tw_ck_words_init(c);
}

void tw_ck_sync_finish(struct tw_checker *c) {
    for (uint32_t d = 0; d < TW_CK_MAX_DEPTH; d++) {
        tw_ck_loop_finish(c, &c->frames[d]);
        for (uint32_t i = 0; i < c->frames[d].n && c->frames[d].known; i++) {
            tw_ck_clock_drop(c, &c->frames[d].known[i]);
        }
        free(c->frames[d].known);
    }
    for (size_t i = 0; i < c->n_pages && c->pages.of; i++) {
        struct tw_ck_page *page = tw_ck_made(&c->pages, i);
        if (page) {
            tw_ck_clock_drop(c, &page->clock);
            free(page->written.items);
        }
    }
    tw_ck_chunks_finish(&c->pages);
    tw_ck_words_finish(c);
    free(c->fifos);
    free(c->fifo_log.items);
}

int tw_ck_save(struct tw_checker *c, struct tw_ck_saves *log, uint32_t item, uint64_t value) {
    if (c->depth == 0) {
        return 0;
    }
    int rc = tw_ck_grow(c, &log->items, &log->cap, log->n, sizeof *log->items);
    if (rc == 0) {
        log->items[log->n++] = (struct tw_ck_saved){item, value};
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
        size_t at = page_at(c, buffer, f->level + k);
        struct tw_ck_page *page =
            c->again ? tw_ck_make(c, &c->pages, at) : tw_ck_made(&c->pages, at);
        if (!page && c->again) {
            return c->make_error;
        }
        if (!page || (page->written.n == 0 && !c->again)) {
            return tw_ck_fail(c, TW_ORDER_defined,
                              "a page of FIFO %u (%s) is published, but nothing was written to it",
                              buffer, tw_program_string(c->p, c->p->buffers[buffer].name));
        }
        int rc = k ? 0 : tw_ck_clock_publish(c, &clock);
        TW_ASSERT(!page->clock); /* dropped when it was popped */
        page->clock = k ? tw_ck_clock_hold(clock) : clock;
        if (rc) {
            return rc;
        }
    }
    f->level += n;
    TW_ASSERT(f->level <=
              c->p->buffers[buffer].pages); /* the verifier: only reserved pages are pushed */
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
    const struct tw_ck_clock *last = NULL; /* pages of one push share a clock */
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
            struct tw_ck_page *page = tw_ck_made(&c->pages, page_at(c, buffer, f->level + k));
            if (page) {
                page->written.n = 0;
            }
        }
        return tw_ck_spend(c, TW_CK_COMPARISONS, n / 8);
    }
    if (c->op.code == TW_OP_WAIT) {
        if (n > f->level) {
            return fail_deadlock(c, buffer, "published", f->level, n);
        }
        for (uint32_t k = 0; k < n && rc == 0; k++) {
            const struct tw_ck_page *page = tw_ck_made(&c->pages, page_at(c, buffer, k));
            TW_ASSERT(page && page->clock); /* it is published */
            rc = page->clock == last ? 0 : tw_ck_clock_learn(c, page->clock);
            last = page->clock;
        }
        return rc;
    }
    rc = tw_ck_save(c, &c->fifo_log, buffer, f->level);
    if (rc == 0 && c->op.code == TW_OP_PUSH) {
        return push(c, buffer, n);
    }
    if (rc == 0) {
        for (uint32_t k = 0; k < n; k++) {
            struct tw_ck_page *page = tw_ck_made(&c->pages, page_at(c, buffer, k));
            TW_ASSERT(page);
            tw_ck_clock_drop(c, &page->clock);
        }
        f->head = (uint32_t)(((uint64_t)f->head + n) % pages);
        TW_ASSERT(n <= f->level); /* the verifier: only waited pages are popped */
        f->level -= n;
    }
    return rc;
}

/* ---- flags after data ---- */

static uint32_t find_in_flight(const struct tw_ck_stream *s, uint32_t group) {
    uint32_t i = 0;
    while (i < s->n_in_flight && s->in_flight[i] != group) {
        i++;
    }
    return i;
}

int tw_ck_sync_sent(struct tw_checker *c, uint32_t group) {
    struct tw_ck_stream *s = &c->streams[c->stream];
    s->sent = true;
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

static int raise_flag(struct tw_checker *c) {
    struct tw_ck_stream *s = &c->streams[c->stream];
    uint32_t at = find_in_flight(s, c->op.operand[TW_MCAST_SET_group].id);
    if (at < s->n_in_flight) {
        s->in_flight[at] = s->in_flight[--s->n_in_flight];
    }
    return tw_ck_words_multicast(c);
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

/* Rule 27, too: what an engine has sent has arrived when it raises its next flag, so whoever learns
 * of that flag, from whomever, may use the data. Published pages wait for nothing that was sent,
 * and would tell of it too early. */
static int check_publication(struct tw_checker *c) {
    tw_ck_count(c, TW_ORDER_flag_after_data);
    return c->streams[c->stream].sent
               ? tw_ck_fail(c, TW_ORDER_flag_after_data,
                            "publishes pages after it has sent data to another site, before a flag")
               : 0;
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
        int rc = code == TW_OP_PUSH ? check_publication(c) : 0;
        return rc ? rc : fifo_op(c);
    }
    if (code == TW_OP_SEM_WAIT) {
        return tw_ck_words_wait(c);
    }
    c->streams[c->stream].sent = false;
    return code == TW_OP_SEM_INC ? tw_ck_words_increment(c) : raise_flag(c);
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

/* The log's earliest entry of a FIFO is its level where the loop began. */
int tw_ck_sync_balanced(struct tw_checker *c, const struct tw_ck_frame *f) {
    int rc = 0;
    TW_ASSERT(f->fifo_log <= c->fifo_log.n);
    for (size_t i = c->fifo_log.n; i > f->fifo_log; i--) {
        c->fifos[c->fifo_log.items[i - 1].item].before = (uint32_t)c->fifo_log.items[i - 1].value;
    }
    for (size_t i = f->fifo_log; i < c->fifo_log.n && rc == 0; i++) {
        uint32_t buffer = c->fifo_log.items[i].item;
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
    return rc;
}

void tw_ck_sync_repeat(struct tw_checker *c, const int32_t *back) {
    for (uint32_t s = 0; s < c->n_streams; s++) {
        c->offset[s] += back[s];
    }
    c->ends_section = TW_NONE; /* its numbers were those of the last iteration */
}

int tw_ck_sync_leave(struct tw_checker *c, struct tw_ck_frame *f) {
    int rc = tw_ck_sync_balanced(c, f);
    if (rc) {
        return rc;
    }
    restore_clocks(c, f);
    tw_ck_loop_finish(c, f);
    tw_ck_words_multiply(c, f);
    if (c->depth == 1) {
        c->fifo_log.n = c->word_log.n = c->flag_log.n = 0;
    }
    for (uint32_t i = 0; i < f->n; i++) {
        struct tw_ck_stream *s = &c->streams[c->members[f->first + i]];
        if (s->inner_from == s->open_from[c->depth - 1]) {
            s->inner_from = TW_NONE;
        }
    }
    return 0;
}
