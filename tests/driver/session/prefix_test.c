/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix cache in a deployment's pages: prompts start from what earlier ones left, with the
 * bits of sessions without a cache, wherever they part; which pages make room; tenants.
 * TW_HISTORIES: how many random histories.
 */
#include "driver/session/session.h"
#include "tests/support/model_bundle.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"
#include "tilewright/state.h"

#include <stdlib.h>

enum { N_CTX = 300, PAGES = 12, MANY_PAGES = 400, VOCAB = 1000, MOST = 5 };

static uint32_t ids[4][N_CTX]; /* sequences that have nothing in common */

static int make_ids(void **state) {
    uint64_t seed = 9;
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t i = 0; i < N_CTX; i++) {
            ids[k][i] = random_below(&seed, VOCAB);
        }
        ids[k][0] = k;
    }
    return 0;
}

/* rig.session does not use the cache. */
static void open_rig(struct rig *r, const char *target, uint32_t pages) {
    struct tw_deploy_options o = {.size = sizeof o, .state_positions = pages * TW_PAGE_POSITIONS};
    uint32_t positions = pages * TW_PAGE_POSITIONS;
    struct tw_session_options s = {
        .size = sizeof s, .n_ctx = positions < N_CTX ? positions : N_CTX, .n_threads = 1};
    rig_open(r, target, 2, NULL);
    tw_session_destroy(r->session);
    tw_deployment_destroy(r->deployment);
    assert_int_equal(tw_deploy_with(r->device, r->decoder, &o, &r->deployment, &r->err), 0);
    assert_int_equal(tw_session_create(r->deployment, &s, &r->session, &r->err), 0);
}

static tw_session *create(struct rig *r, const char *salt) {
    struct tw_session_options o = {.size = sizeof o,
                                   .n_ctx = r->session->n_ctx,
                                   .n_threads = 1,
                                   .prefix_cache = 1,
                                   .prefix_salt = salt};
    tw_session *s = NULL;
    if (tw_session_create(r->deployment, &o, &s, &r->err)) {
        fail_msg("%s", r->err.message);
    }
    return s;
}

static uint32_t feed(struct rig *r, tw_session *s, const uint32_t *tokens, uint32_t n) {
    uint32_t reused = 77;
    if (tw_session_feed_prompt(s, tokens, n, &reused, &r->err)) {
        fail_msg("%s", r->err.message);
    }
    return reused;
}

/* A session that feeds the tokens and ends; returns how many it reused. */
static uint32_t use(struct rig *r, const char *salt, const uint32_t *tokens, uint32_t n) {
    tw_session *s = create(r, salt);
    uint32_t reused = feed(r, s, tokens, n);
    tw_session_destroy(s);
    return reused;
}

/* The logits after the tokens are those of a session without a cache. */
static void same_bits(struct rig *r, const tw_session *s, const uint32_t *tokens, uint32_t n) {
    assert_int_equal(tw_session_position(s), n);
    assert_int_equal(tw_session_rewind(r->session, 0, &r->err), 0);
    assert_int_equal(tw_session_feed(r->session, tokens, n, &r->err), 0);
    if (memcmp(tw_session_logits(s), tw_session_logits(r->session), s->n_vocab * sizeof(float))) {
        fail_msg("other bits after %u tokens", n);
    }
    assert_int_equal(tw_session_rewind(r->session, 0, &r->err), 0);
}

static uint64_t steps_of(struct rig *r, const tw_session *s, uint32_t *reused) {
    struct tw_session_info info = {.size = sizeof info};
    assert_int_equal(tw_session_get_info(s, &info, &r->err), 0);
    *reused = info.n_reused;
    return info.steps;
}

static void only_what_is_new_is_computed(void **state) {
    struct rig r;
    uint32_t reused;
    (void)state;
    open_rig(&r, "host", PAGES);
    tw_session *a = create(&r, NULL), *b = create(&r, NULL);
    assert_int_equal(feed(&r, a, ids[0], 200), 0);
    assert_int_equal(feed(&r, b, ids[0], 200), 192); /* whole pages, while the other goes on */
    assert_int_equal(steps_of(&r, b, &reused), 1);
    assert_int_equal(reused, 192);
    same_bits(&r, b, ids[0], 200);
    tw_session_destroy(a); /* leaves the last page, too */
    a = create(&r, NULL);
    assert_int_equal(feed(&r, a, ids[0], 200), 199); /* the last one gives the logits */
    assert_int_equal(steps_of(&r, a, &reused), 1);
    same_bits(&r, a, ids[0], 200);
    assert_int_equal(feed(&r, a, ids[0] + 200, 50), 0);
    assert_int_equal(steps_of(&r, a, &reused), 3);
    assert_int_equal(reused, 0);
    same_bits(&r, a, ids[0], 250);
    /* what is in the middle of a sequence: the session's tokens count */
    tw_session_destroy(a);
    assert_int_equal(tw_session_rewind(b, 100, &r.err), 0);
    assert_int_equal(feed(&r, b, ids[0] + 100, 180), 150);
    same_bits(&r, b, ids[0], 280);
    tw_session_destroy(b);
    rig_close(&r);
}

/* A saved state may be anybody's: what it says about its tokens is for the session that restored it
 * and for forks of that, until they begin anew. */
static void restored_states_are_for_nobody_else(void **state) {
    struct rig r;
    size_t size = 0;
    uint32_t n = 0;
    (void)state;
    open_rig(&r, "host", PAGES);
    assert_int_equal(tw_session_feed(r.session, ids[0], 130, &r.err), 0);
    assert_int_equal(tw_session_save_memory(r.session, NULL, 0, &size, &r.err), 0);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    assert_int_equal(tw_session_save_memory(r.session, bytes, size, &size, &r.err), 0);
    for (uint32_t forked = 0; forked < 2; forked++) {
        tw_session *s = create(&r, NULL), *fork = NULL;
        assert_int_equal(tw_session_restore_memory(s, bytes, size, &n, &r.err), 0);
        if (forked) {
            assert_int_equal(tw_session_fork(s, &fork, &r.err), 0);
            tw_session_destroy(s);
            s = fork;
        }
        assert_int_equal(feed(&r, s, ids[0] + n, 70), 0);
        assert_int_equal(tw_session_keep_prefix(s, NULL, &r.err), 0);
        assert_int_equal(tw_session_rewind(s, 20, &r.err), 0);
        assert_int_equal(feed(&r, s, ids[1], 100), 0);
        tw_session_destroy(s);
        assert_int_equal(r.deployment->pool.n_cached, 0);
    }
    tw_session *s = create(&r, NULL);
    assert_int_equal(tw_session_restore_memory(s, bytes, size, &n, &r.err), 0);
    assert_int_equal(tw_session_rewind(s, 0, &r.err), 0);
    assert_int_equal(feed(&r, s, ids[0], 130), 0);
    tw_session_destroy(s);
    assert_int_equal(use(&r, NULL, ids[0], 130), 129);
    free(bytes);
    rig_close(&r);
}

/* What the cache had is the session's even if there are no pages for the rest, and it says so. */
static void a_prompt_that_fails_says_how_far_it_got(void **state) {
    struct rig r;
    uint32_t reused = 77;
    (void)state;
    open_rig(&r, "host", 8);
    tw_session *a = create(&r, NULL), *b = create(&r, NULL);
    assert_int_equal(feed(&r, a, ids[0], 128), 0);
    assert_int_equal(tw_session_feed(r.session, ids[1], 300, &r.err), 0); /* 5 pages */
    assert_int_equal(tw_session_feed_prompt(b, ids[0], 300, &reused, &r.err), TW_E_NOMEM);
    assert_int_equal(reused, 128);
    assert_int_equal(tw_session_position(b), 128);
    assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
    assert_int_equal(tw_session_feed(b, ids[0] + 128, 20, &r.err), 0);
    same_bits(&r, b, ids[0], 148);
    tw_session_destroy(a);
    tw_session_destroy(b);
    rig_close(&r);
}

/* Options that are not given, and sessions without the cache, leave nothing. */
static void without_the_option_nothing_is_kept(void **state) {
    struct rig r;
    struct tw_session_options o = {.size = sizeof o, .prefix_salt = "x"};
    uint32_t reused = 1;
    (void)state;
    open_rig(&r, "host", PAGES);
    assert_int_equal(feed(&r, r.session, ids[0], 200), 0);
    assert_int_equal(tw_session_keep_prefix(r.session, NULL, &r.err), 0);
    assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
    assert_int_equal(r.deployment->pool.n_free, PAGES);
    assert_int_equal(feed(&r, r.session, ids[0], 200), 0);
    assert_int_equal(tw_session_create(r.deployment, &o, &r.session, &r.err), TW_E_USAGE);
    o.prefix_cache = 2;
    assert_int_equal(tw_session_create(r.deployment, &o, &r.session, &r.err), TW_E_USAGE);
    assert_int_equal(tw_session_reuse_prefix(r.session, ids[0], 0, &reused, &r.err), TW_E_USAGE);
    assert_int_equal(tw_session_reuse_prefix(r.session, ids[0], 200, &reused, &r.err),
                     TW_E_CONTEXT_FULL);
    rig_close(&r);
}

/* A prompt may part from what was left at any position. */
static void prompts_part_at_any_position(void **state) {
    static const char *const targets[] = {"host", "sim4x4", "grid8x8", "quad2x2"};
    (void)state;
    for (uint32_t t = 0; t < 4; t++) {
        struct rig r;
        open_rig(&r, targets[t], MANY_PAGES);
        use(&r, NULL, ids[0], 201);
        for (uint32_t at = 1 + t; at <= 201; at += TEST_ASAN || t ? 31 : at % 64 < 62 ? 5 : 1) {
            uint32_t mixed[N_CTX];
            memcpy(mixed, ids[0], at * sizeof *mixed);
            memcpy(mixed + at, ids[1] + at, (N_CTX - at) * sizeof *mixed);
            mixed[at] = at < 201 ? (ids[0][at] + 1) % VOCAB : mixed[at];
            tw_session *s = create(&r, NULL);
            assert_int_equal(feed(&r, s, mixed, at + 1 + at % 5), at);
            same_bits(&r, s, mixed, at + 1 + at % 5);
            tw_session_destroy(s);
        }
        rig_close(&r);
    }
}

static void the_least_valuable_pages_make_room(void **state) {
    struct rig r;
    (void)state;
    open_rig(&r, "host", PAGES);
    const struct tw_state_pool *pool = &r.deployment->pool;
    use(&r, NULL, ids[0], 256); /* 4 pages, used longest ago */
    use(&r, NULL, ids[1], 128); /* 2 */
    use(&r, NULL, ids[2], 256); /* 4 */
    assert_int_equal(pool->n_free, 2);
    assert_int_equal(pool->n_cached, 10);
    /* Values: 256 / 5, 128 / 3, 256 / 1; a parent is worth what its own tokens are. */
    tw_session *s = create(&r, NULL);
    assert_int_equal(feed(&r, s, ids[3], 192), 0); /* takes one page: of the second */
    assert_int_equal(pool->n_free, 0);
    assert_int_equal(tw_session_rewind(s, 0, &r.err), 0);
    assert_int_equal(use(&r, NULL, ids[2], 256), 255); /* copies a page: the second's other one */
    assert_int_equal(use(&r, NULL, ids[0], 256), 255);
    assert_int_equal(use(&r, NULL, ids[1], 100), 0);
    tw_session_destroy(s);
    rig_close(&r);
}

/* With all pages in the cache, and with all in sessions. */
static void a_full_cache_is_no_lack_of_pages(void **state) {
    struct rig r;
    uint32_t tokens[N_CTX];
    (void)state;
    open_rig(&r, "host", PAGES);
    struct tw_state_pool *pool = &r.deployment->pool;
    for (uint32_t k = 0; k < 3; k++) {
        use(&r, NULL, ids[k], 256);
    }
    assert_int_equal(pool->n_free, 0);
    assert_int_equal(pool->n_cached, PAGES);
    /* more than there are: the cache keeps what it has */
    struct tw_pool_holder holder = {.pages = 0};
    uint32_t pages[PAGES + 1];
    assert_int_equal(tw_state_pool_take(pool, &holder, pages, PAGES + 1, &r.err), TW_E_NOMEM);
    assert_int_equal(pool->n_cached, PAGES);
    tw_session *a = create(&r, NULL), *b = create(&r, NULL), *c = create(&r, NULL);
    assert_int_equal(feed(&r, a, ids[2], 290), 256);
    memcpy(tokens, ids[2], sizeof tokens);
    tokens[250] = (tokens[250] + 1) % VOCAB;
    assert_int_equal(feed(&r, b, tokens, 290), 250); /* shares 3 pages, and has 2 of its own */
    assert_int_equal(feed(&r, c, ids[3], 290), 0);   /* 5: 12 in all */
    assert_int_equal(pool->n_free, 0);
    assert_int_equal(tw_session_feed(r.session, ids[0], 1, &r.err), TW_E_NOMEM);
    assert_non_null(strstr(r.err.message, "have 0 of 12, need 1"));
    assert_non_null(strstr(r.err.message, "holds 5"));
    assert_null(strstr(r.err.message, "cache"));
    /* the sessions go on: nothing of theirs was taken */
    for (uint32_t i = 0; i < 3; i++) {
        tw_session *s = i == 0 ? a : i == 1 ? b : c;
        assert_int_equal(tw_session_feed(s, ids[0], 3, &r.err), 0);
    }
    tw_session_destroy(a);
    memcpy(tokens + 290, ids[0], 3 * sizeof *tokens);
    tw_session_destroy(c);
    same_bits(&r, b, tokens, 293);
    tw_session_destroy(b);
    rig_close(&r);
}

/* The last page, which only the cache holds besides the session, is not copied when no page is
 * left. */
static void one_context_of_pages_is_enough(void **state) {
    struct rig r;
    (void)state;
    open_rig(&r, "host", 3);
    tw_session *s;
    for (uint32_t i = 0; i < 4; i++) {
        s = create(&r, NULL);
        feed(&r, s, ids[i % 2], 180);
        assert_int_equal(tw_session_rewind(s, 100, &r.err), 0);
        feed(&r, s, ids[2] + 100, 92);
        assert_int_equal(tw_session_rewind(s, 150, &r.err), 0); /* in a page that was left */
        assert_int_equal(tw_session_feed(s, ids[3], 1, &r.err), 0);
        tw_session_destroy(s);
    }
    s = create(&r, NULL);
    feed(&r, s, ids[1], 180);
    float *logits = malloc(s->n_vocab * sizeof *logits);
    assert_non_null(logits);
    memcpy(logits, tw_session_logits(s), s->n_vocab * sizeof *logits);
    uint32_t n_vocab = s->n_vocab;
    tw_session_destroy(s);
    assert_int_equal(tw_session_feed(r.session, ids[1], 180, &r.err), 0);
    assert_memory_equal(logits, tw_session_logits(r.session), n_vocab * sizeof *logits);
    free(logits);
    rig_close(&r);
}

static void tenants_find_only_their_own(void **state) {
    struct rig r;
    char salt[] = "one";
    (void)state;
    open_rig(&r, "host", MANY_PAGES);
    tw_session *a = create(&r, salt), *fork;
    salt[0] = 'x'; /* it was copied */
    feed(&r, a, ids[0], 130);
    assert_int_equal(tw_session_fork(a, &fork, &r.err), 0);
    tw_session_destroy(a);
    assert_int_equal(feed(&r, fork, ids[0] + 130, 70), 0);
    tw_session_destroy(fork); /* is of the same tenant */
    assert_int_equal(use(&r, "two", ids[0], 200), 0);
    assert_int_equal(use(&r, NULL, ids[0], 200), 0);
    assert_int_equal(use(&r, "", ids[0], 200), 199); /* none, too */
    assert_int_equal(use(&r, "one", ids[0], 200), 199);
    assert_int_equal(use(&r, "two", ids[0], 150), 149);
    rig_close(&r);
}

static void generation_begins_and_ends_with_the_cache(void **state) {
    struct rig r;
    struct tw_generate_options o = {
        .size = sizeof o, .n_predict = 40, .flags = TW_GENERATE_NO_LOGITS | TW_GENERATE_IGNORE_EOS};
    struct tw_generate_result result = {.size = sizeof result};
    uint32_t tokens[N_CTX];
    (void)state;
    open_rig(&r, "host", PAGES);
    for (uint32_t i = 0; i < 2; i++) {
        tw_session *s = create(&r, NULL);
        assert_int_equal(tw_generate(s, ids[0], 100, &o, &result, &r.err), 0);
        assert_int_equal(result.n_prompt, 100);
        assert_int_equal(result.n_reused, i ? 99 : 0);
        assert_int_equal(tw_session_tokens(s, tokens, N_CTX), 139);
        tw_session_destroy(s);
    }
    /* the next turn begins with prompt and answer */
    tokens[139] = 5;
    tw_session *s = create(&r, NULL);
    assert_int_equal(feed(&r, s, tokens, 140), 139);
    same_bits(&r, s, tokens, 140);
    tw_session_destroy(s);
    rig_close(&r);
}

/* ---- histories ---- */

struct history {
    struct rig r;
    uint64_t seed;
    uint32_t n, reused, refused;
    struct {
        tw_session *s;
        uint32_t n, tokens[N_CTX];
    } at[MOST];
};

static uint32_t below(struct history *h, uint32_t n) {
    return random_below(&h->seed, n);
}

static void forget(struct history *h, uint32_t i) {
    tw_session_destroy(h->at[i].s);
    h->at[i] = h->at[--h->n];
}

/* Feeds what other sessions are likely to have fed, too. */
static void step(struct history *h, uint32_t i) {
    uint32_t room = N_CTX - h->at[i].n, n = 1 + below(h, 90), reused = 0;
    n = n < room ? n : room;
    if (n == 0) {
        return;
    }
    uint32_t *to = h->at[i].tokens + h->at[i].n;
    memcpy(to, ids[below(h, 2)] + h->at[i].n, n * sizeof *to);
    to[n - 1] = below(h, 3) ? to[n - 1] : below(h, 3);
    int code = below(h, 4) ? tw_session_feed_prompt(h->at[i].s, to, n, &reused, &h->r.err)
                           : tw_session_feed(h->at[i].s, to, n, &h->r.err);
    if (code) {
        assert_int_equal(code, TW_E_NOMEM);
        h->refused++;
        forget(h, i);
        return;
    }
    h->reused += reused;
    h->at[i].n += n;
    assert_int_equal(tw_session_position(h->at[i].s), h->at[i].n);
}

static void check(struct history *h, uint32_t i) {
    uint32_t n = h->at[i].n;
    const float *logits = tw_session_logits(h->at[i].s);
    assert_int_equal(tw_session_rewind(h->r.session, 0, &h->r.err), 0);
    if (!logits || tw_session_feed(h->r.session, h->at[i].tokens, n, &h->r.err)) {
        return;
    }
    if (memcmp(logits, tw_session_logits(h->r.session), h->at[i].s->n_vocab * sizeof(float)) != 0) {
        fail_msg("seed %llu: other bits after %u tokens", (unsigned long long)h->seed, n);
    }
    assert_int_equal(tw_session_rewind(h->r.session, 0, &h->r.err), 0);
}

static void act(struct history *h) {
    uint32_t i = below(h, h->n), back;
    switch (below(h, 10)) {
    case 0:
        forget(h, i);
        break;
    case 1:
        back = below(h, h->at[i].n + 1);
        h->at[i].n = back;
        assert_int_equal(tw_session_rewind(h->at[i].s, back, &h->r.err), 0);
        break;
    case 2:
        if (h->n < MOST) {
            h->at[h->n] = h->at[i];
            assert_int_equal(tw_session_fork(h->at[i].s, &h->at[h->n].s, &h->r.err), 0);
            h->n++;
        }
        break;
    case 3:
        check(h, i);
        break;
    default:
        step(h, i);
    }
}

static void random_histories_give_the_bits_of_fresh_runs(void **state) {
    const char *many = getenv("TW_HISTORIES");
    uint32_t n = many ? (uint32_t)strtoul(many, NULL, 0) : TEST_ASAN ? 4 : 16;
    uint32_t reused = 0, refused = 0;
    (void)state;
    for (uint32_t k = 0; k < n; k++) {
        struct history h = {.seed = k};
        open_rig(&h.r, "host", 7);
        for (uint32_t i = 0; i < 50; i++) {
            if (h.n == 0 || (h.n < MOST && below(&h, 8) == 0)) {
                h.at[h.n].n = 0;
                h.at[h.n++].s = create(&h.r, below(&h, 3) ? NULL : "salt");
            }
            act(&h);
        }
        while (h.n) {
            check(&h, 0);
            forget(&h, 0);
        }
        assert_int_equal(h.r.deployment->pool.n_free + h.r.deployment->pool.n_cached, 7);
        assert_int_equal(h.r.deployment->pool.n_shared, 0);
        reused += h.reused;
        refused += h.refused;
        rig_close(&h.r);
    }
    assert_true(reused > 0 && refused > 0);
}

static int cleanup(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_new_is_computed),
        cmocka_unit_test(restored_states_are_for_nobody_else),
        cmocka_unit_test(a_prompt_that_fails_says_how_far_it_got),
        cmocka_unit_test(without_the_option_nothing_is_kept),
        cmocka_unit_test(prompts_part_at_any_position),
        cmocka_unit_test(the_least_valuable_pages_make_room),
        cmocka_unit_test(a_full_cache_is_no_lack_of_pages),
        cmocka_unit_test(one_context_of_pages_is_enough),
        cmocka_unit_test(tenants_find_only_their_own),
        cmocka_unit_test(generation_begins_and_ends_with_the_cache),
        cmocka_unit_test(random_histories_give_the_bits_of_fresh_runs),
    };
    return cmocka_run_group_tests_name("prefix cache", tests, make_ids, cleanup);
}
