/* SPDX-License-Identifier: Apache-2.0
 *
 * Paged state: forks, rewinds, shared steps, saving and restoring, prompts from the prefix cache
 * and sessions that come and go give the bits of a fresh run over the same tokens, whatever pages
 * they share and whatever was in those pages before; pages that nobody holds are free again.
 * TW_HISTORIES: how many random histories.
 * */
#include "driver/session/session.h"
#include "tests/support/model_bundle.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"
#include "tilewright/state.h"

#include <stdlib.h>

enum { MOST = 6, N_CTX = 300, PAGES = 12, FEW_PAGES = 7, VOCAB = 1000 };

struct history {
    struct rig rig; /* its session is the one that computes afresh */
    uint64_t seed;
    uint32_t n, refused;
    struct {
        tw_session *session;
        uint32_t tokens[N_CTX], n;
    } at[MOST];
    struct {
        uint8_t *bytes;
        size_t size;
        uint32_t tokens[N_CTX], n;
    } saved;
    uint32_t restored, reused;
};

static uint32_t below(struct history *h, uint32_t n) {
    return random_below(&h->seed, n);
}

static struct tw_session_options options_of(struct history *h) {
    static const uint32_t chunks[] = {0, 1, 3, 17, 64, 128};
    return (struct tw_session_options){.size = sizeof(struct tw_session_options),
                                       .n_ctx = N_CTX,
                                       .n_threads = 1 + below(h, 2),
                                       .prefix_cache = below(h, 3) > 0,
                                       .chunk = chunks[below(h, 6)]};
}

static void create(struct history *h) {
    struct tw_session_options o = options_of(h);
    h->at[h->n].n = 0;
    assert_int_equal(tw_session_create(h->rig.deployment, &o, &h->at[h->n].session, &h->rig.err),
                     0);
    h->n++;
}

static void fork_one(struct history *h, uint32_t i) {
    if (h->n < MOST) {
        h->at[h->n] = h->at[i];
        assert_int_equal(tw_session_fork(h->at[i].session, &h->at[h->n].session, &h->rig.err), 0);
        assert_int_equal(tw_session_position(h->at[h->n].session), h->at[i].n);
        h->n++;
    }
}

static void destroy(struct history *h, uint32_t i) {
    tw_session_destroy(h->at[i].session);
    h->at[i] = h->at[--h->n];
}

/* Feeds tokens; out of pages, it changes nothing. */
static void feed(struct history *h, uint32_t i) {
    uint32_t ids[80], room = N_CTX - h->at[i].n, n = 1 + below(h, below(h, 3) ? 12 : 80);
    n = n < room ? n : room;
    for (uint32_t k = 0; k < n; k++) {
        ids[k] = below(h, VOCAB);
    }
    if (n == 0) {
        return;
    }
    int code = tw_session_feed(h->at[i].session, ids, n, &h->rig.err);
    if (code) {
        assert_int_equal(code, TW_E_NOMEM);
        assert_non_null(strstr(h->rig.err.message, "out of state pages"));
        assert_int_equal(tw_session_position(h->at[i].session), h->at[i].n);
        h->refused++;
        destroy(h, i);
        return;
    }
    memcpy(h->at[i].tokens + h->at[i].n, ids, n * sizeof *ids);
    h->at[i].n += n;
}

/* Steps some of the sessions together; those that are out of pages are as they were. */
static void step_some(struct history *h) {
    static uint32_t ids[MOST][40];
    struct tw_step_entry list[MOST];
    tw_error err[MOST] = {{0}};
    uint32_t which[MOST], n = 0;
    for (uint32_t i = 0; i < h->n; i++) {
        uint32_t room = N_CTX - h->at[i].n, want = 1 + below(h, below(h, 3) ? 1 : 40);
        if (room == 0 || below(h, 4) == 0) {
            continue;
        }
        for (uint32_t k = 0; k < want; k++) {
            ids[n][k] = below(h, VOCAB);
        }
        list[n] = (struct tw_step_entry){.session = h->at[i].session,
                                         .ids = ids[n],
                                         .n = want < room ? want : room,
                                         .err = &err[n]};
        which[n++] = i;
    }
    int code = n ? tw_step(list, n, &h->rig.err) : 0;
    assert_true(code == 0 || code == TW_E_NOMEM);
    while (n--) { /* from the last, as destroy() moves those after it */
        uint32_t i = which[n];
        if (list[n].code) {
            assert_int_equal(list[n].code, TW_E_NOMEM);
            assert_non_null(strstr(err[n].message, "out of state pages"));
            assert_int_equal(tw_session_position(h->at[i].session), h->at[i].n);
            h->refused++;
            destroy(h, i);
        } else {
            memcpy(h->at[i].tokens + h->at[i].n, ids[n], list[n].n * sizeof ids[n][0]);
            h->at[i].n += (uint32_t)list[n].n;
        }
    }
}

static void save_one(struct history *h, uint32_t i) {
    if (h->at[i].n == 0) {
        return;
    }
    const tw_session *s = h->at[i].session;
    free(h->saved.bytes);
    assert_int_equal(tw_session_save_memory(s, NULL, 0, &h->saved.size, &h->rig.err), 0);
    h->saved.bytes = malloc(h->saved.size);
    assert_int_equal(
        tw_session_save_memory(s, h->saved.bytes, h->saved.size, &h->saved.size, &h->rig.err), 0);
    memcpy(h->saved.tokens, h->at[i].tokens, sizeof h->saved.tokens);
    h->saved.n = h->at[i].n;
}

/* Out of pages, the session keeps its own sequence. */
static void restore_one(struct history *h, uint32_t i) {
    uint32_t n = 0;
    if (!h->saved.bytes) {
        return;
    }
    int code =
        tw_session_restore_memory(h->at[i].session, h->saved.bytes, h->saved.size, &n, &h->rig.err);
    assert_true(code == 0 || code == TW_E_NOMEM);
    if (!code) {
        assert_int_equal(n, h->saved.n);
        memcpy(h->at[i].tokens, h->saved.tokens, sizeof h->saved.tokens);
        h->at[i].n = n;
        h->restored++;
    }
    assert_int_equal(tw_session_position(h->at[i].session), h->at[i].n);
}

/* A new sequence that begins as another one does, with what the cache has of it. */
static void begin_like(struct history *h, uint32_t i) {
    uint32_t like = below(h, h->n), n = 1 + below(h, N_CTX - 1), ids[N_CTX], reused = 0;
    for (uint32_t k = 0; k < n; k++) {
        ids[k] = k < h->at[like].n ? h->at[like].tokens[k] : below(h, VOCAB);
    }
    assert_int_equal(tw_session_rewind(h->at[i].session, 0, &h->rig.err), 0);
    h->at[i].n = 0;
    if (tw_session_feed_prompt(h->at[i].session, ids, n, &reused, &h->rig.err)) {
        destroy(h, i);
        return;
    }
    h->reused += reused;
    memcpy(h->at[i].tokens, ids, n * sizeof *ids);
    h->at[i].n = n;
}

static void rewind_one(struct history *h, uint32_t i) {
    h->at[i].n = below(h, h->at[i].n + 1);
    assert_int_equal(tw_session_rewind(h->at[i].session, h->at[i].n, &h->rig.err), 0);
}

/* Feeds one more token to the session, and all of them to the one that begins afresh. */
static void check(struct history *h, uint32_t i) {
    uint32_t id = below(h, VOCAB), n = h->at[i].n;
    if (n == N_CTX || tw_session_feed(h->at[i].session, &id, 1, &h->rig.err)) {
        return;
    }
    h->at[i].tokens[h->at[i].n++] = id;
    tw_session *fresh = h->rig.session;
    assert_int_equal(tw_session_rewind(fresh, 0, &h->rig.err), 0);
    if (tw_session_feed(fresh, h->at[i].tokens, n + 1, &h->rig.err)) {
        return; /* no pages */
    }
    if (memcmp(tw_session_logits(fresh), tw_session_logits(h->at[i].session),
               fresh->n_vocab * sizeof(float)) != 0) {
        fail_msg("other bits after %u tokens", n + 1);
    }
    assert_int_equal(tw_session_rewind(fresh, 0, &h->rig.err), 0);
}

static void run_history(struct history *h, uint32_t steps) {
    create(h);
    for (uint32_t i = 0; i < steps; i++) {
        if (h->n == 0) {
            create(h);
        }
        uint32_t which = below(h, h->n);
        switch (below(h, 13)) {
        case 0:
            fork_one(h, which);
            break;
        case 1:
            rewind_one(h, which);
            break;
        case 2:
            check(h, which);
            break;
        case 3:
            if (h->n < MOST) {
                create(h);
            }
            break;
        case 4:
            if (h->n > 3) {
                destroy(h, which);
            }
            break;
        case 5:
        case 6:
            step_some(h);
            break;
        case 7:
            save_one(h, which);
            break;
        case 8:
            restore_one(h, which);
            break;
        case 9:
            begin_like(h, which);
            break;
        default:
            feed(h, which);
        }
    }
    for (uint32_t i = 0; i < h->n; i++) {
        check(h, i);
    }
    while (h->n) {
        destroy(h, h->n - 1);
    }
    free(h->saved.bytes);
    h->saved.bytes = NULL;
    const struct tw_state_pool *pool = &h->rig.deployment->pool;
    assert_int_equal(pool->n_free + pool->n_cached, FEW_PAGES);
}

static void open_rig(struct history *h, const char *target, uint32_t pages) {
    struct tw_deploy_options o = {.size = sizeof o, .state_positions = pages * TW_PAGE_POSITIONS};
    struct tw_session_options s = {.size = sizeof s, .n_ctx = N_CTX, .n_threads = 1};
    memset(h, 0, sizeof *h);
    rig_open(&h->rig, target, 2, NULL);
    tw_session_destroy(h->rig.session);
    tw_deployment_destroy(h->rig.deployment);
    tw_decoder_close(h->rig.decoder);
    assert_int_equal(tw_decoder_open(model_bundle_batch(target), 0, &h->rig.decoder, &h->rig.err),
                     0);
    assert_int_equal(
        tw_deploy_with(h->rig.device, h->rig.decoder, &o, &h->rig.deployment, &h->rig.err), 0);
    assert_int_equal(tw_session_create(h->rig.deployment, &s, &h->rig.session, &h->rig.err), 0);
}

static void random_histories_give_the_bits_of_fresh_runs(void **state) {
    (void)state;
    static const char *const targets[] = {"host", "sim4x4", "grid8x8", "quad2x2"};
    const char *many = getenv("TW_HISTORIES");
    uint32_t n = many ? (uint32_t)strtoul(many, NULL, 0) : 16, refused = 0, restored = 0,
             reused = 0;
    for (uint32_t t = 0; t < sizeof targets / sizeof *targets; t++) {
        struct history h;
        open_rig(&h, targets[t], FEW_PAGES);
        for (uint32_t i = 0; i < n / 4 * (t == 0 ? 2 : 1); i++) {
            h.seed = i * 4 + t;
            run_history(&h, 30);
        }
        refused += h.refused;
        restored += h.restored;
        reused += h.reused;
        rig_close(&h.rig);
    }
    assert_true(refused > 0 && restored > 0 && reused > 0);
}

static void a_fork_shares_pages_until_one_writes(void **state) {
    (void)state;
    struct history h;
    struct tw_session_info info = {.size = sizeof info};
    uint32_t ids[N_CTX];
    tw_session *fork;
    open_rig(&h, "host", PAGES);
    struct tw_state_pool *pool = &h.rig.deployment->pool;
    for (uint32_t i = 0; i < N_CTX; i++) {
        ids[i] = i * 7 % VOCAB;
    }
    tw_session *first = h.rig.session;
    assert_int_equal(tw_session_feed(first, ids, 130, &h.rig.err), 0); /* 2 pages, and 2 of 64 */
    assert_int_equal(pool->n_free, PAGES - 3);
    assert_int_equal(tw_session_fork(first, &fork, &h.rig.err), 0);
    assert_int_equal(pool->n_free, PAGES - 3);
    assert_ptr_not_equal(tw_session_logits(fork), tw_session_logits(first));
    assert_memory_equal(tw_session_logits(fork), tw_session_logits(first),
                        first->n_vocab * sizeof(float));
    assert_int_equal(tw_session_feed(fork, ids, 1, &h.rig.err), 0); /* copies the third */
    assert_int_equal(pool->n_free, PAGES - 4);
    assert_int_equal(tw_session_feed(first, ids, 1, &h.rig.err), 0); /* is alone now */
    assert_int_equal(pool->n_free, PAGES - 4);
    assert_int_equal(tw_session_get_info(fork, &info, &h.rig.err), 0);
    assert_int_equal(info.pages, 3);
    assert_int_equal(tw_session_rewind(first, 128, &h.rig.err), 0);
    assert_int_equal(pool->n_free, PAGES - 3);
    assert_int_equal(tw_session_feed(first, ids, 1, &h.rig.err), 0); /* a page of its own */
    tw_session_destroy(fork);
    assert_int_equal(pool->n_free, PAGES - 3);
    assert_int_equal(tw_session_feed(first, ids, 200, &h.rig.err), TW_E_CONTEXT_FULL);
    rig_close(&h.rig);
}

static void out_of_pages_names_the_holders(void **state) {
    (void)state;
    struct history h;
    uint32_t ids[N_CTX] = {0};
    struct tw_session_options o = {.size = sizeof o, .n_ctx = N_CTX};
    open_rig(&h, "host", PAGES);
    tw_session *more[2];
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(tw_session_create(h.rig.deployment, &o, &more[i], &h.rig.err), 0);
    }
    assert_int_equal(tw_session_feed(h.rig.session, ids, 300, &h.rig.err), 0);
    assert_int_equal(tw_session_feed(more[0], ids, 300, &h.rig.err), 0);
    assert_int_equal(tw_session_feed(more[1], ids, 128, &h.rig.err), 0);
    int code = tw_session_feed(more[1], ids, 1, &h.rig.err);
    assert_int_equal(code, TW_E_NOMEM);
    assert_non_null(strstr(h.rig.err.message, "have 0 of 12, need 1"));
    assert_non_null(strstr(h.rig.err.message, "session 1 holds 5"));
    assert_non_null(strstr(h.rig.err.message, "session 3 holds 2"));
    tw_session_destroy(more[0]); /* and nothing else was disturbed */
    assert_int_equal(tw_session_feed(more[1], ids, 1, &h.rig.err), 0);
    tw_session_destroy(more[1]);
    rig_close(&h.rig);
    open_rig(&h, "host", FEW_PAGES);
    o.n_ctx = FEW_PAGES * TW_PAGE_POSITIONS + 1;
    assert_int_equal(tw_session_create(h.rig.deployment, &o, &more[0], &h.rig.err), TW_E_NOMEM);
    assert_non_null(strstr(h.rig.err.message, "have 448, need 449"));
    rig_close(&h.rig);
}

static int cleanup(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_shares_pages_until_one_writes),
        cmocka_unit_test(out_of_pages_names_the_holders),
        cmocka_unit_test(random_histories_give_the_bits_of_fresh_runs),
    };
    return cmocka_run_group_tests_name("state histories", tests, NULL, cleanup);
}
