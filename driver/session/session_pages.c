/* SPDX-License-Identifier: Apache-2.0
 *
 * The pages of a sequence: its table on the host, and the device's copy of it, which an executor
 * has one of and its sessions write when it is their turn.
 */
#include "driver/session/session.h"

#include "loader/base/assert.h"

#include <stdlib.h>

static bool is_paged(const struct tw_session *s) {
    return s->deployment->pool.n_tensors > 0;
}

static uint32_t slots_of(uint32_t positions) {
    return positions / TW_KV_BLOCK + (positions % TW_KV_BLOCK != 0);
}

int tw_session_make_pages(struct tw_session *s, tw_error *err) {
    if (!is_paged(s)) {
        return 0;
    }
    struct tw_state_pool *pool = &s->deployment->pool;
    uint64_t most = (uint64_t)pool->n_pages * TW_KV_BLOCK;
    if (s->n_ctx > most && s->options.n_ctx) {
        return tw_fail(err, TW_E_NOMEM,
                       "context of %u positions: have %llu, need %u; deploy with more positions of "
                       "state",
                       s->n_ctx, (unsigned long long)most, s->n_ctx);
    }
    s->n_ctx = s->n_ctx < most ? s->n_ctx : (uint32_t)most;
    s->pages.page = malloc(slots_of(s->n_ctx) * sizeof *s->pages.page);
    if (!s->pages.page) {
        return tw_fail(err, TW_E_NOMEM, "session: out of memory");
    }
    tw_state_pool_join(pool, &s->pages.holder);
    return 0;
}

void tw_session_free_pages(struct tw_session *s) {
    if (s->pages.page) {
        tw_session_drop_pages(s, 0);
        tw_state_pool_leave(&s->deployment->pool, &s->pages.holder);
        free(s->pages.page);
        s->pages.page = NULL;
    }
}

void tw_session_drop_pages(struct tw_session *s, uint32_t position) {
    uint32_t keep = slots_of(position);
    if (is_paged(s) && keep < s->pages.n) {
        tw_state_pool_drop(&s->deployment->pool, &s->pages.holder, s->pages.page + keep,
                           s->pages.n - keep);
        s->pages.n = keep;
    }
}

void tw_session_share_pages(struct tw_session *s, const struct tw_session *from) {
    memcpy(s->pages.page, from->pages.page, from->pages.n * sizeof *s->pages.page);
    s->pages.n = from->pages.n;
    tw_state_pool_share(&s->deployment->pool, &s->pages.holder, s->pages.page, s->pages.n);
}

#define PROGRAMS 3u

static struct session_program *program_of(struct tw_executor *x, uint32_t i) {
    return i == 0 ? &x->decode : i == 1 ? &x->prefill : &x->score;
}

/* The device's tables are not this session's from entry `slot` on. */
static void note_change(struct tw_session *s, uint32_t slot) {
    for (uint32_t i = 0; i < PROGRAMS; i++) {
        struct session_program *p = program_of(s->executor, i);
        if (p->table_owner == s && p->table_valid > slot) {
            p->table_valid = slot;
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

/* Notes whose table is at the address of p's; programs may have it in common. */
static void set_owner(struct tw_session *s, const struct session_program *p,
                      const struct tw_session *owner) {
    for (uint32_t i = 0; i < PROGRAMS; i++) {
        struct session_program *other = program_of(s->executor, i);
        if (other->table_address == p->table_address) {
            other->table_owner = owner;
            other->table_valid = owner ? owner->pages.n : 0;
        }
    }
}

/* Replaces the last page, which others hold too, by a copy of it. */
static int copy_last(struct tw_session *s, tw_error *err) {
    struct tw_state_pool *pool = &s->deployment->pool;
    uint32_t last = s->pages.n - 1, old = s->pages.page[last], new;
    int code = tw_state_pool_take(pool, &s->pages.holder, &new, 1, err);
    if (code) {
        return code;
    }
    code = tw_state_pool_copy(pool, old, new, err);
    tw_state_pool_drop(pool, &s->pages.holder, code ? &new : &old, 1);
    if (!code) {
        s->pages.page[last] = new;
        note_change(s, last);
    }
    return code;
}

int tw_session_own_pages(struct tw_session *s, uint32_t from, uint32_t to, tw_error *err) {
    struct tw_state_pool *pool = &s->deployment->pool;
    uint32_t have = s->pages.n, need = slots_of(to);
    if (!is_paged(s)) {
        return 0;
    }
    TW_ASSERT(from <= to && to <= s->n_ctx && have == slots_of(from));
    if (need > have) {
        int code =
            tw_state_pool_take(pool, &s->pages.holder, s->pages.page + have, need - have, err);
        if (code) {
            return code;
        }
        s->pages.n = need;
        note_change(s, have);
    }
    bool partly = from % TW_KV_BLOCK != 0 && from < to;
    if (!partly || !tw_state_pool_is_shared(pool, s->pages.page[have - 1])) {
        return 0;
    }
    s->pages.n = have;
    int code = copy_last(s, err);
    s->pages.n = need;
    if (code) {
        tw_session_drop_pages(s, from);
    }
    return code;
}

int tw_session_write_table(struct tw_session *s, struct session_program *p, tw_error *err) {
    uint32_t valid = p->table_owner == s ? p->table_valid : 0;
    if (!p->table_address || valid >= s->pages.n) {
        return 0;
    }
    set_owner(s, p, NULL); /* until it is written */
    int code = tw_device_write(s->deployment->device, p->table_address + (uint64_t)valid * 4,
                               s->pages.page + valid, (uint64_t)(s->pages.n - valid) * 4, err);
    if (!code) {
        set_owner(s, p, s);
    }
    return code;
}
