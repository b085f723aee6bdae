/* SPDX-License-Identifier: Apache-2.0
 *
 * tw_step(): whatever sessions share a step, each has what single steps give, bit for bit, on every
 * target; and there are no more steps than there must be.
 */
#include "tests/driver/session/batch_kit.h"
#include "tests/support/socket_device.h"

enum { MOST = KIT_SEQUENCES };

struct run {
    struct kit kit;
    uint64_t seed;
    uint32_t n;
    struct {
        tw_session *session;
        uint32_t sequence;
        bool checkable; /* its last step was not a rewind */
    } at[MOST];
};

static uint32_t below(struct run *r, uint32_t n) {
    return random_below(&r->seed, n);
}

static void create(struct run *r, enum tw_mode mode) {
    static const uint32_t chunks[] = {0, 0, 0, 1, 3, 17};
    struct tw_session_options o = {.size = sizeof o,
                                   .mode = mode,
                                   .n_threads = 1 + (below(r, 6) == 0),
                                   .chunk = chunks[below(r, 6)],
                                   .n_ctx = KIT_LENGTH};
    r->at[r->n].session = kit_create(&r->kit, &o);
    r->at[r->n].sequence = below(r, KIT_SEQUENCES);
    r->n++;
}

static void step(struct run *r) {
    struct tw_step_entry list[MOST];
    uint32_t which[MOST], n = 0, position[MOST];
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t left = KIT_LENGTH - tw_session_position(r->at[i].session),
                 most = below(r, 4)   ? 1
                        : below(r, 3) ? 8
                                      : 50,
                 want = 1 + below(r, most);
        if (below(r, 5) && left) {
            which[n] = i;
            position[n] = tw_session_position(r->at[i].session);
            list[n] = kit_entry(r->at[i].session, r->at[i].sequence, want < left ? want : left,
                                &r->kit.err);
            n++;
        }
    }
    if (n && tw_step(list, n, &r->kit.err)) {
        fail_msg("%s", r->kit.err.message);
    }
    for (uint32_t i = 0; i < n; i++) {
        tw_session *s = r->at[which[i]].session;
        assert_int_equal(list[i].code, 0);
        assert_int_equal(tw_session_position(s), position[i] + list[i].n);
        kit_check(s, r->at[which[i]].sequence);
    }
}

/* The other sequence that begins alike, or the same one. */
static void fork_one(struct run *r, uint32_t i) {
    tw_session *s = r->at[i].session;
    if (r->n < MOST && tw_session_position(s) > 0) {
        r->at[r->n] = r->at[i];
        assert_int_equal(tw_session_fork(s, &r->at[r->n].session, &r->kit.err), 0);
        if (tw_session_position(s) <= 66) {
            r->at[r->n].sequence ^= below(r, 2);
        }
        r->n++;
    }
}

static void run(struct run *r, uint32_t rounds, enum tw_mode mode) {
    while (r->n < MOST / 2) {
        create(r, mode);
    }
    for (uint32_t i = 0; i < rounds; i++) {
        uint32_t which = below(r, r->n), what = below(r, 8);
        tw_session *s = r->at[which].session;
        if (what == 0) {
            fork_one(r, which);
        } else if (what == 1) {
            uint32_t to = below(r, tw_session_position(s) + 1);
            assert_int_equal(tw_session_rewind(s, to, &r->kit.err), 0);
        } else if (what == 2 && r->n > 2) {
            tw_session_destroy(s);
            r->at[which] = r->at[--r->n];
        } else if (what == 3 && r->n < MOST) {
            create(r, mode);
        } else {
            step(r);
        }
    }
    while (r->n) {
        tw_session_destroy(r->at[--r->n].session);
    }
    struct tw_state_pool *pool = &r->kit.deployment->pool;
    assert_int_equal(pool->n_free, pool->n_pages);
}

static void random_lists_give_the_bits_of_single_steps(void **state) {
    (void)state;
    static const char *const targets[] = {"host", "sim4x4", "grid8x8", "quad2x2"};
    for (uint32_t t = 0; t < sizeof targets / sizeof targets[0]; t++) {
        struct run r = {.seed = t + 1};
        kit_open(&r.kit, "emu", targets[t], 2, 0);
        run(&r, t ? 10 : TEST_ASAN ? 40 : 80, TW_MODE_FAST);
        kit_close(&r.kit);
    }
}

static void strict_steps_give_the_same(void **state) {
    (void)state;
    struct run r = {.seed = 7};
    kit_open(&r.kit, "emu", "host", 1, 0);
    run(&r, 4, TW_MODE_STRICT);
    kit_close(&r.kit);
}

static void a_served_device_gives_the_same(void **state) {
    (void)state;
    struct socket_device d;
    struct run r = {.seed = 9};
    socket_device_start(&d, "batch", NULL, 0);
    kit_open(&r.kit, d.selector, "host", 0, 0);
    run(&r, 40, TW_MODE_FAST);
    kit_close(&r.kit);
    socket_device_end(&d);
}

/* ---- how many steps ---- */

struct steps_case {
    uint32_t n, tokens[MOST];
    uint32_t steps;
};

static uint64_t steps_so_far(struct kit *k) {
    struct tw_status_info info = {.size = sizeof info};
    tw_status_get(&k->device->status, &info);
    return info.steps;
}

static uint64_t steps_of(struct kit *k, tw_session **s, const struct steps_case *c) {
    struct tw_step_entry list[MOST];
    uint64_t before = steps_so_far(k);
    for (uint32_t i = 0; i < c->n; i++) {
        list[i] = kit_entry(s[i], i, c->tokens[i], NULL);
    }
    assert_int_equal(tw_step(list, c->n, &k->err), 0);
    return steps_so_far(k) - before;
}

static void there_are_few_steps(void **state) {
    (void)state;
    static const struct steps_case cases[] = {
        {2, {1, 1}, 1},
        {3, {1, 1, 1}, 1},
        {16, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1},
        {17, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 2},
        {3, {1, 7, 5}, 1},
        {2, {1, 15}, 1},    /* a prompt rides along */
        {2, {1, 20}, 2},    /* too long for that; steps of prompts have 32 rows */
        {3, {1, 33, 1}, 2}, /* its last token does */
        {3, {2, 40, 35}, 3},
        {1, {9}, 1},
    };
    struct kit k;
    kit_open(&k, "emu", "host", 1, 0);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct tw_session_info info = {.size = sizeof info};
        tw_session *s[MOST];
        for (uint32_t i = 0; i < cases[c].n; i++) {
            s[i] = kit_create(&k, NULL);
        }
        assert_int_equal(tw_session_get_info(s[0], &info, &k.err), 0);
        assert_int_equal(info.batch, MODEL_BATCH);
        assert_int_equal(info.chunk, 32);
        uint64_t n = steps_of(&k, s, &cases[c]);
        assert_int_equal(n, cases[c].steps);
        for (uint32_t i = 0; i < cases[c].n; i++) {
            kit_check(s[i], i);
            tw_session_destroy(s[i]);
        }
    }
    kit_close(&k);
}

static int set_up(void **state) {
    socket_folder_make();
    return (void)state, 0;
}

static int tear_down(void **state) {
    socket_folder_remove();
    return kit_end(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lists_give_the_bits_of_single_steps),
        cmocka_unit_test(strict_steps_give_the_same),
        cmocka_unit_test(a_served_device_gives_the_same),
        cmocka_unit_test(there_are_few_steps),
    };
    return cmocka_run_group_tests_name("steps of several sessions", tests, set_up, tear_down);
}
