/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions and the prefix cache: what they take from the deployment's tree (prefix_tree.h) or from
 * its folder (prefix_files.c), and leave there.
 */
#include "driver/session/prefix_files.h"
#include "driver/session/session.h"
#include "loader/base/hash.h"
#include "loader/base/sized.h"

#include <stdlib.h>

/* ---- what prefixes stand for ---- */

/* What tokens mean is the same for all sessions of a deployment; for files it says all that the
 * state depends on, which their schema says once more, in full. */
static void make_root(struct tw_session *s) {
    const struct tw_bundle *b = &s->deployment->decoder->bundle;
    const char *salt = s->options.prefix_salt ? s->options.prefix_salt : "";
    static const char policy[] = "tilewright prefix 1, positions absolute";
    const struct tw_state_pool *pool = &s->deployment->pool;
    const uint64_t form[] = {TW_KV_BLOCK, s->n_vocab, pool->page_bytes,
                             s->deployment->window_pool.page_bytes};
    struct tw_hash h;
    tw_hash_init(&h);
    tw_hash_update(&h, policy, sizeof policy);
    tw_hash_update(&h, b->identity ? b->identity : b->note->content_hash, TW_HASH_BYTES);
    tw_hash_update(&h, form, sizeof form);
    tw_hash_update(&h, salt, strlen(salt));
    tw_hash_final(&h, s->prefix_root);
}

void tw_session_begin_prefix(struct tw_session *s) {
    s->caches = s->options.prefix_cache && s->deployment->prefixes;
    if (s->caches) {
        make_root(s);
    }
    s->options.prefix_salt = NULL; /* the caller's */
}

/* ---- leaving ---- */

static bool can_leave(const struct tw_session *s) {
    return s->caches && s->executor && s->executor->shared && s->position > 0 && !s->foreign &&
           !s->window_lost && (!s->pages.room || s->pages.n == tw_state_pages(s->position)) &&
           !tw_session_check_usable(s, NULL);
}

void tw_session_leave_prefix(struct tw_session *s, bool ends) {
    if (!can_leave(s)) {
        return;
    }
    uint32_t n = ends ? s->position : s->position / TW_KV_BLOCK * TW_KV_BLOCK;
    const struct tw_prefix_sequence left = {.root = s->prefix_root,
                                            .tokens = s->ids,
                                            .n = n,
                                            .of = {{s->pages.page, s->pages.n, s->pages.first},
                                                   {s->window.page, s->window.n, s->window.first}}};
    tw_prefix_tree_add(s->deployment->prefixes, &left);
}

/* ---- taking ---- */

/* From the tree: of the session's tokens and those after them, `n` in all. */
static uint32_t take_pages(struct tw_session *s, uint32_t n) {
    struct tw_pool_holder *const holder[] = {&s->pages.holder, &s->window.holder};
    uint32_t *page[TW_PREFIX_KINDS] = {malloc((s->pages.room + 1) * sizeof(uint32_t)),
                                       malloc((s->window.room + 1) * sizeof(uint32_t))};
    struct tw_prefix_sequence found = {.root = s->prefix_root,
                                       .tokens = s->ids,
                                       .n = n,
                                       .of = {{.page = page[0]}, {.page = page[1]}}};
    uint32_t had = page[0] && page[1]
                       ? tw_prefix_tree_take(s->deployment->prefixes, &found, s->position, holder)
                       : 0;
    if (had) {
        tw_session_take_over(s, &found);
        s->foreign = false; /* nothing of the session's own is left */
        s->position = had;
        s->logits = NULL;
    }
    free(page[0]);
    free(page[1]);
    return had;
}

uint32_t tw_session_take_prefix(struct tw_session *s, const uint32_t *ids, size_t n) {
    uint32_t from = s->position, all = from + (uint32_t)n;
    s->n_reused = 0;
    if (!s->caches || !s->executor->shared) {
        return 0;
    }
    memcpy(s->ids + from, ids, n * sizeof *ids);
    take_pages(s, all - 1);
    tw_prefix_files_take(s, all - 1);
    s->n_reused = s->position - from;
    return s->n_reused;
}

/* ---- feeding ---- */

int tw_session_feed_part(struct tw_session *s, const uint32_t *ids, size_t n, tw_error *err) {
    bool windows = s->caches && s->window.room;
    int code = 0;
    while (n && !code) {
        /* Windows are left where the session has all of them, which is until the next segment. */
        size_t left = TW_KEY_SEGMENT - s->position % TW_KEY_SEGMENT;
        size_t part = windows && left < n ? left : n;
        code = tw_session_feed(s, ids, part, err);
        if (!code && windows) {
            tw_session_leave_prefix(s, false);
        }
        ids += part;
        n -= part;
    }
    return code;
}

static int check(const struct tw_session *s, const uint32_t *ids, size_t n, tw_error *err) {
    int code = TW_NEED_2(err, s, ids);
    return code ? code : tw_session_check_feed(s, ids, n, err);
}

int tw_session_reuse_prefix(tw_session *session, const uint32_t *ids, size_t n, uint32_t *n_reused,
                            tw_error *err) {
    int code = check(session, ids, n, err);
    if (!code) {
        uint32_t reused = tw_session_take_prefix(session, ids, n);
        *(n_reused ? n_reused : &reused) = reused;
    }
    return code;
}

int tw_session_feed_prompt(tw_session *session, const uint32_t *ids, size_t n, uint32_t *n_reused,
                           tw_error *err) {
    uint32_t reused = 0;
    int code = tw_session_reuse_prefix(session, ids, n, &reused, err);
    if (code) {
        return code;
    }
    *(n_reused ? n_reused : &reused) = reused; /* it has them even if feeding the others fails */
    code = tw_session_feed_part(session, ids + reused, n - reused, err);
    if (!code) {
        tw_session_leave_prefix(session, false);
    }
    return code;
}

int tw_session_keep_prefix(tw_session *session, uint64_t *written_bytes, tw_error *err) {
    uint64_t written = 0;
    int code = TW_NEED(err, session);
    code = code || !session->caches ? code : tw_session_check_usable(session, err);
    if (!code && session->caches) {
        tw_session_leave_prefix(session, false);
        code = tw_prefix_files_keep(session, &written, err);
    }
    if (!code && written_bytes) {
        *written_bytes = written;
    }
    return code;
}
