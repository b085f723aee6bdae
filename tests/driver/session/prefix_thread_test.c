/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix cache with threads: sessions of several threads take from it and leave in it, in a
 * pool that is too small for all, and have the bits of sessions that were alone.
 */
#include "driver/session/session.h"
#include "tests/support/model_bundle.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"

#include <pthread.h>

enum { THREADS = 3, ROUNDS = 12, N = 150, SEQUENCES = 3, PAGES = 9 };

static uint32_t ids[SEQUENCES][N];
static float *expected[SEQUENCES];
static struct rig rig;

struct worker {
    pthread_t thread;
    uint64_t seed;
    uint32_t reused, refused, wrong, failed;
};

static tw_session *create(uint32_t cache) {
    struct tw_session_options o = {
        .size = sizeof o, .n_ctx = N, .n_threads = 1, .prefix_cache = cache};
    tw_session *s = NULL;
    tw_error err = {0};
    return tw_session_create(rig.deployment, &o, &s, &err) ? NULL : s;
}

static void *work(void *ctx) {
    struct worker *w = ctx;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t k = random_below(&w->seed, SEQUENCES), reused = 0;
        tw_session *s = create(1);
        tw_error err = {0};
        int code = s ? tw_session_feed_prompt(s, ids[k], N, &reused, &err) : TW_E_INTERNAL;
        w->reused += code ? 0 : reused;
        w->refused += code == TW_E_NOMEM;
        w->failed += code && code != TW_E_NOMEM;
        w->wrong += !code && memcmp(tw_session_logits(s), expected[k],
                                    rig.session->n_vocab * sizeof(float)) != 0;
        tw_session_destroy(s);
    }
    return NULL;
}

static void threads_share_the_cache(void **state) {
    struct tw_deploy_options o = {.size = sizeof o, .state_positions = PAGES * TW_PAGE_POSITIONS};
    struct worker w[THREADS] = {{0}};
    uint64_t seed = 21;
    uint32_t reused = 0;
    (void)state;
    rig_open(&rig, "host", 1, NULL);
    tw_session_destroy(rig.session);
    tw_deployment_destroy(rig.deployment);
    assert_int_equal(tw_deploy_with(rig.device, rig.decoder, &o, &rig.deployment, &rig.err), 0);
    rig.session = create(0);
    assert_non_null(rig.session);
    for (uint32_t k = 0; k < SEQUENCES; k++) {
        for (uint32_t i = 0; i < N; i++) {
            ids[k][i] = i < 70 ? i * 11 % 900 : random_below(&seed, 900);
        }
        assert_int_equal(tw_session_feed(rig.session, ids[k], N, &rig.err), 0);
        size_t bytes = rig.session->n_vocab * sizeof(float);
        expected[k] = malloc(bytes);
        assert_non_null(expected[k]);
        memcpy(expected[k], tw_session_logits(rig.session), bytes);
        assert_int_equal(tw_session_rewind(rig.session, 0, &rig.err), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        w[i].seed = i;
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
        assert_int_equal(w[i].wrong + w[i].failed, 0);
        reused += w[i].reused;
    }
    assert_true(reused > 0);
    struct tw_state_pool *pool = &rig.deployment->pool;
    assert_int_equal(pool->n_free + pool->n_cached, PAGES);
    for (uint32_t k = 0; k < SEQUENCES; k++) {
        free(expected[k]);
    }
    rig_close(&rig);
}

static int cleanup(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_share_the_cache)};
    return cmocka_run_group_tests_name("prefix cache with threads", tests, NULL, cleanup);
}
