/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that step sessions of one deployment with tw_step(), each its own ones, while sessions
 * come, are forked and go: each has the bits of single steps.
 */
#include "tests/driver/session/batch_kit.h"

#include <pthread.h>

enum { THREADS = 2, EACH = 5, ROUNDS = TEST_TSAN ? 12 : 40 };

struct worker {
    struct kit *kit;
    uint32_t first; /* of its sequences */
    pthread_t thread;
};

static void fail_if(int code, const tw_error *err) {
    if (code) {
        fprintf(stderr, "%s\n", err->message);
        abort(); /* cmocka ends tests on the main thread only */
    }
}

static void check(const tw_session *s, uint32_t sequence) {
    const float *expected = kit_expected(sequence, tw_session_position(s));
    if (memcmp(tw_session_logits(s), expected, KIT_VOCAB * sizeof *expected) != 0) {
        fprintf(stderr, "sequence %u has other bits\n", sequence);
        abort();
    }
}

static void *work(void *ctx) {
    struct worker *w = ctx;
    tw_session *session[EACH], *other;
    tw_error err = {0};
    for (uint32_t i = 0; i < EACH; i++) {
        fail_if(tw_session_create(w->kit->deployment, NULL, &session[i], &err), &err);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct tw_step_entry entry[EACH];
        for (uint32_t i = 0; i < EACH; i++) {
            entry[i] = kit_entry(session[i], w->first + i, 1 + (round + i) % 3, NULL);
        }
        fail_if(tw_step(entry, EACH, &err), &err);
        for (uint32_t i = 0; i < EACH; i++) {
            check(session[i], w->first + i);
        }
        uint32_t which = round % EACH;
        fail_if(tw_session_fork(session[which], &other, &err), &err);
        tw_session_destroy(session[which]);
        session[which] = other;
    }
    for (uint32_t i = 0; i < EACH; i++) {
        tw_session_destroy(session[i]);
    }
    return NULL;
}

static void threads_step_their_own_sessions(void **state) {
    (void)state;
    struct kit k;
    struct worker w[THREADS];
    kit_open(&k, "emu", "host", 2, 0);
    for (uint32_t i = 0; i < THREADS * EACH; i++) {
        kit_expected(i, 2 * ROUNDS + 5); /* known before there are threads */
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.kit = &k, .first = i * EACH};
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
    }
    assert_int_equal(k.deployment->pool.n_free, k.deployment->pool.n_pages);
    kit_close(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_step_their_own_sessions)};
    return cmocka_run_group_tests_name("steps of several sessions: threads", tests, NULL, kit_end);
}
