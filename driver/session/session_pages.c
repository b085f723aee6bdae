/* SPDX-License-Identifier: Apache-2.0
 *
 * The pages of a sequence: its table on the host, and the device's copy of it, which an executor
 * has one of and its sessions write when it is their turn.
 */
#include "driver/session/session.h"

#include "loader/base/assert.h"

#include <stdlib.h>

static uint32_t slots_of(uint32_t positions) {
    return (uint32_t)tw_state_pages(positions);
}

/* ---- room ---- */

static int make(struct tw_state_pool *pool, uint32_t room, struct session_pages *p, tw_error *err) {
    if (pool->n_tensors == 0) {
        return 0;
    }
    p->room = room;
    p->page = malloc(room * sizeof *p->page);
    p->spare = malloc(room * sizeof *p->spare);
    if (!p->page || !p->spare) {
        return tw_fail(err, TW_E_NOMEM, "session: out of memory");
    }
    tw_state_pool_join(pool, &p->holder);
    return 0;
}

int tw_session_make_pages(struct tw_session *s, tw_error *err) {
    struct tw_state_pool *pool = &s->deployment->pool, *window = &s->deployment->window_pool;
    uint64_t most = pool->n_tensors ? (uint64_t)pool->n_pages * TW_KV_BLOCK : UINT32_MAX;
    if (s->n_ctx > most && s->options.n_ctx) {
        return tw_fail(err, TW_E_NOMEM,
                       "context of %u positions: have %llu, need %u; deploy with more positions of "
                       "state",
                       s->n_ctx, (unsigned long long)most, s->n_ctx);
    }
    s->n_ctx = s->n_ctx < most ? s->n_ctx : (uint32_t)most;
    int code = make(pool, slots_of(s->n_ctx), &s->pages, err);
    return code ? code : make(window, slots_of(window->window_ctx) + 1, &s->window, err);
}

static void drop_spare(struct tw_session *s) {
    struct session_pages *w = &s->window;
    if (w->n_spare) {
        tw_state_pool_drop(&s->deployment->window_pool, &w->holder, w->spare, w->n_spare);
        w->n_spare = 0;
    }
}

/* Gives back the pages from slot `keep` on. */
static void cut(struct tw_state_pool *pool, struct session_pages *p, uint32_t keep) {
    uint32_t stay = keep > p->first ? keep - p->first : 0;
    if (stay < p->n) {
        tw_state_pool_drop(pool, &p->holder, p->page + stay, p->n - stay);
        p->n = stay;
    }
}

static void finish(struct tw_state_pool *pool, struct session_pages *p) {
    if (p->page && p->spare) {
        cut(pool, p, 0);
        tw_state_pool_leave(pool, &p->holder);
    }
    free(p->page);
    free(p->spare);
    memset(p, 0, sizeof *p);
}

void tw_session_free_pages(struct tw_session *s) {
    drop_spare(s);
    finish(&s->deployment->pool, &s->pages);
    finish(&s->deployment->window_pool, &s->window);
}

static uint32_t window_slot(const struct tw_session *s, uint32_t position) {
    return tw_state_pool_window_slot(&s->deployment->window_pool, position);
}

void tw_session_drop_pages(struct tw_session *s, uint32_t position) {
    struct session_pages *w = &s->window;
    drop_spare(s);
    cut(&s->deployment->pool, &s->pages, slots_of(position));
    cut(&s->deployment->window_pool, w, slots_of(position));
    if (w->room && w->first > window_slot(s, position)) {
        cut(&s->deployment->window_pool, w, 0);
        s->window_lost = true;
        w->first = 0;
    }
    s->window_lost = s->window_lost && position > 0;
}

static void share(struct tw_state_pool *pool, struct session_pages *to,
                  const struct session_pages *from) {
    if (from->n) {
        memcpy(to->page, from->page, from->n * sizeof *to->page);
        tw_state_pool_share(pool, &to->holder, to->page, from->n);
    }
    to->n = from->n;
    to->first = from->first;
}

void tw_session_share_pages(struct tw_session *s, const struct tw_session *from) {
    share(&s->deployment->pool, &s->pages, &from->pages);
    share(&s->deployment->window_pool, &s->window, &from->window);
    s->window_lost = from->window_lost;
}

/* ---- the table of all positions ---- */

/* The device's tables are not this session's from entry `slot` on. */
static void note_change(struct tw_session *s, uint32_t slot) {
    struct tw_executor *x = s->executor;
    for (uint32_t i = 0; i < x->n_tables; i++) {
        struct page_table *t = &x->table[i];
        if (t->owner == s && t->valid > slot) {
            t->valid = slot;
        }
    }
}

void tw_session_replace_pages(struct tw_session *s, const uint32_t *pages, uint32_t n) {
    pthread_mutex_lock(&s->executor->lock);
    tw_session_drop_pages(s, 0);
    memcpy(s->pages.page, pages, n * sizeof *pages);
    s->pages.n = n;
    note_change(s, 0);
    pthread_mutex_unlock(&s->executor->lock);
}

static void take_over(struct session_pages *to, const uint32_t *pages, uint32_t n, uint32_t first) {
    if (n) {
        memcpy(to->page, pages, n * sizeof *pages);
    }
    to->n = n;
    to->first = first;
}

void tw_session_take_over(struct tw_session *s, const struct tw_prefix_sequence *from) {
    pthread_mutex_lock(&s->executor->lock);
    tw_session_drop_pages(s, 0);
    take_over(&s->pages, from->of[TW_PREFIX_ALL].page, from->of[TW_PREFIX_ALL].n_pages, 0);
    take_over(&s->window, from->of[TW_PREFIX_WINDOW].page, from->of[TW_PREFIX_WINDOW].n_pages,
              from->of[TW_PREFIX_WINDOW].first);
    note_change(s, 0);
    pthread_mutex_unlock(&s->executor->lock);
}

/* Replaces the last page, which others hold too, by a copy of it: page `new`, which the session
 * holds. */
static int copy_last(struct tw_state_pool *pool, struct session_pages *p, uint32_t new,
                     tw_error *err) {
    uint32_t old = p->page[p->n - 1];
    int code = tw_state_pool_copy(pool, old, new, err);
    tw_state_pool_drop(pool, &p->holder, code ? &new : &old, 1);
    p->page[p->n - 1] = code ? old : new;
    return code;
}

/* Returns whether the last page has positions before `from`, and others hold it too. */
static bool must_copy(struct tw_state_pool *pool, const struct session_pages *p, uint32_t from) {
    return p->n && from % TW_KV_BLOCK != 0 && tw_state_pool_is_shared(pool, p->page[p->n - 1]);
}

/* Takes a page for a copy of the last one, if that is needed, and pages for the slots [have, need).
 * What must be copied may be found to be the session's alone once the cache has given back all that
 * it had: then it needs a page less. */
static int take_all(struct tw_session *s, uint32_t from, uint32_t need, bool *copies, uint32_t *new,
                    tw_error *err) {
    struct tw_state_pool *pool = &s->deployment->pool;
    struct session_pages *p = &s->pages;
    uint32_t n = need - p->n;
    *copies = must_copy(pool, p, from);
    uint32_t *to = p->page + p->n;
    int code = *copies ? tw_state_pool_take(pool, &p->holder, new, 1, err) : 0;
    if (code && !must_copy(pool, p, from)) {
        *copies = false;
        code = 0;
    }
    code = code || !n ? code : tw_state_pool_take(pool, &p->holder, to, n, err);
    if (!code || !*copies) {
        return code;
    }
    if (n && !must_copy(pool, p, from)) {
        *copies = false;
        to[0] = *new;
        return n > 1 ? tw_state_pool_take(pool, &p->holder, to + 1, n - 1, err) : 0;
    }
    return code;
}

/* Takes pages of all positions. */
static int own_all(struct tw_session *s, uint32_t from, uint32_t to, tw_error *err) {
    struct tw_state_pool *pool = &s->deployment->pool;
    struct session_pages *p = &s->pages;
    uint32_t have = p->n, need = slots_of(to), new = TW_NONE;
    bool copies;
    TW_ASSERT(from <= to && to <= s->n_ctx && have == slots_of(from));
    int code = take_all(s, from, need, &copies, &new, err);
    if (code && new != TW_NONE) {
        tw_state_pool_drop(pool, &p->holder, &new, 1);
    }
    if (code) {
        return code;
    }
    note_change(s, copies ? have - 1 : have);
    code = copies ? copy_last(pool, p, new, err) : 0;
    p->n = need;
    return code;
}

/* Keeps the first n pages for positions to come, those that nobody else holds. */
static void leave_behind(struct tw_session *s, uint32_t n) {
    struct tw_state_pool *pool = &s->deployment->window_pool;
    struct session_pages *w = &s->window;
    for (uint32_t i = 0; i < n; i++) {
        if (w->n_spare < w->room && !tw_state_pool_is_shared(pool, w->page[i])) {
            w->spare[w->n_spare++] = w->page[i];
        } else {
            tw_state_pool_drop(pool, &w->holder, &w->page[i], 1);
        }
    }
}

/* Moves the window to a step from `from` on, as far as it gives pages back. */
static void advance(struct tw_session *s, uint32_t from) {
    struct session_pages *w = &s->window;
    uint32_t first = window_slot(s, from), gone = first > w->first ? first - w->first : 0;
    gone = gone < w->n ? gone : w->n;
    leave_behind(s, gone);
    w->n -= gone;
    memmove(w->page, w->page + gone, w->n * sizeof *w->page);
    w->first = first;
}

/* Returns how many more pages the windows of the steps need at one time. */
static uint32_t lacking(const struct tw_session *s, uint32_t from, uint32_t to) {
    const struct session_pages *w = &s->window;
    uint32_t n = slots_of(to) - slots_of(from) + 1, own = 0; /* 1: a copy */
    for (uint32_t i = 0; i < w->n; i++) {
        own += !tw_state_pool_is_shared(&s->deployment->window_pool, w->page[i]);
    }
    n = n < w->room - own ? n : w->room - own;
    return n > w->n_spare ? n - w->n_spare : 0;
}

/* Takes as many pages as the windows of the steps need at one time, besides those that they leave
 * behind: of these the ones that nobody else holds are used again. */
static int ready_window(struct tw_session *s, uint32_t from, uint32_t to, tw_error *err) {
    struct tw_state_pool *pool = &s->deployment->window_pool;
    struct session_pages *w = &s->window;
    advance(s, from);
    uint32_t n = lacking(s, from, to), again;
    int code = tw_state_pool_take(pool, &w->holder, w->spare + w->n_spare, n, err);
    if (code && (again = lacking(s, from, to)) < n) { /* the cache has given back all that it had */
        n = again;
        code = tw_state_pool_take(pool, &w->holder, w->spare + w->n_spare, n, err);
    }
    w->n_spare += code ? 0 : n;
    return code;
}

int tw_session_own_pages(struct tw_session *s, uint32_t from, uint32_t to, tw_error *err) {
    int code = s->pages.room ? own_all(s, from, to, err) : 0;
    code = code || !s->window.room ? code : ready_window(s, from, to, err);
    if (code) {
        tw_session_drop_pages(s, from);
    }
    return code;
}

/* ---- windows ---- */

bool tw_session_leaves_behind(const struct tw_session *s, uint32_t from) {
    return s->window.n > 0 && window_slot(s, from) > s->window.first;
}

int tw_session_slide(struct tw_session *s, uint32_t from, uint32_t to, tw_error *err) {
    struct tw_state_pool *pool = &s->deployment->window_pool;
    struct session_pages *w = &s->window;
    if (!w->room) {
        return 0;
    }
    advance(s, from);
    int code = 0;
    if (must_copy(pool, w, from)) {
        TW_ASSERT(w->n_spare > 0);
        code = copy_last(pool, w, w->spare[--w->n_spare], err);
    }
    while (w->first + w->n < slots_of(to)) {
        TW_ASSERT(w->n < w->room && w->n_spare > 0);
        w->page[w->n++] = w->spare[--w->n_spare];
    }
    return code;
}

int tw_session_write_table(struct tw_session *s, struct page_table *t, tw_error *err) {
    uint32_t valid = t && t->owner == s ? t->valid : 0;
    if (!t || valid >= s->pages.n) {
        return 0;
    }
    t->owner = NULL; /* until it is written */
    int code = tw_device_write(s->deployment->device, t->address + (uint64_t)valid * 4,
                               s->pages.page + valid, (uint64_t)(s->pages.n - valid) * 4, err);
    t->owner = code ? NULL : s;
    t->valid = s->pages.n;
    return code;
}

/* ---- steps with others ---- */

static int check_pages(struct tw_state_pool *pool, const struct session_pages *p, uint32_t from,
                       uint32_t to, const char *table, tw_error *err) {
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t slot = p->first + i;
        bool inside = p->page[i] < pool->n_pages;
        bool written = slot >= from / TW_KV_BLOCK && slot < slots_of(to);
        if (inside && !(written && tw_state_pool_is_shared(pool, p->page[i]))) {
            continue;
        }
        return tw_fail(err, TW_E_FAULT,
                       "session: element %u of its table %s is page %u, expected %s; its state is "
                       "damaged: create a new session",
                       slot, table, p->page[i],
                       inside ? "one that no other session holds" : "one of the pool");
    }
    return 0;
}

int tw_session_check_pages(struct tw_session *s, uint32_t from, uint32_t to, tw_error *err) {
    int code = check_pages(&s->deployment->pool, &s->pages, from, to, TW_PAGE_TABLE, err);
    return code ? code
                : check_pages(&s->deployment->window_pool, &s->window, from, to, TW_WINDOW_TABLE,
                              err);
}
