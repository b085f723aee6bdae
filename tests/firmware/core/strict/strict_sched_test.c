/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedulers and epochs of the strict interpreter: adversaries do what their names say and do not
 * change what a correct program computes, and the epoch may start at any number.
 */
#include "tests/support/machine_run.h"
#include "tests/support/test.h"
#include "tests/support/tiny_decoder.h"

/* One site with an Input, a Param and an Output of 16 floats a row, a FIFO from LOAD to MATH and a
 * buffer of a row. */
struct small {
    struct pb *m;
    uint32_t input, param, out, lm, res;
};

static struct small small_create(void) {
    struct small t = {.m = mb_create(1, 1)};
    t.input = mb_tensor(t.m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 16, 1);
    t.param = mb_tensor(t.m, TW_ROLE_PARAM, TW_INIT_BLOB, 4, 4, 1);
    t.out = mb_tensor(t.m, TW_ROLE_OUTPUT, TW_INIT_NONE, 1, 16, 1);
    t.lm = pb_fifo(t.m, 0, TW_ENGINE_LOAD, TW_ENGINE_MATH, 2, 64);
    t.res = pb_buffer(t.m, 0, TW_BUF_RESIDENT, 1, 64);
    mb_fill(t.m, t.param);
    pb_semaphore(t.m, NULL, TW_SEM_READY, 0, 0);
    return t;
}

#define READ_INTO(t, tensor, at, target) \
    mb_op((t).m, 0, L, READ, T_(tensor, mb_at(0), mb_at(at)), target, I_(1), I_(64), I_(64), I_(64))
#define WRITE_TO(t, from, tensor)                                                           \
    mb_op((t).m, 0, S, WRITE, from, I_(64), U_(tensor, mb_at(0), mb_at(0)), I_(64), I_(64), \
          X_(TW_NONE, 1))

static void load_page(struct small *t, uint32_t tensor) {
    mb_op(t->m, 0, L, RESERVE, F_(t->lm), I_(1));
    READ_INTO(*t, tensor, 0, W_(t->lm, mb_at(0)));
    mb_op(t->m, 0, L, PUSH, F_(t->lm), I_(1));
}

static void decoder_input(void *ctx, uint32_t step) {
    static const uint32_t pos[] = {0, 3, 4, 8, 62, 64}, rows[] = {3, 1, 4, 2, 4, 4};
    td_input(ctx, pos[step], rows[step]);
}

/* ---- adversaries ---- */

static void no_adversary_changes_the_bytes_of_the_decoder(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 1});
    struct mr_case c = {d.m, decoder_input, &d, 6};
    struct mr_result canonical = mr_strict(&c, TW_SCHED_CANONICAL, 0);
    assert_int_equal(canonical.rc, 0);
    for (uint64_t kind = 0; kind < TW_STARVE_COUNT; kind++) {
        bool named = kind <= TW_STARVE_FAVOUR;
        for (uint64_t number = 0; number < (kind == TW_STARVE_OP ? 26 : named ? 6 : 1); number++) {
            struct mr_result r = mr_begin(&c);
            struct tw_strict *s = NULL;
            void *memory;
            assert_int_equal(mb_strict(d.m, &memory, &s, &r.fault), 0);
            for (uint32_t step = 0; step < c.steps; step++) {
                decoder_input(&d, step);
                assert_int_equal(
                    tw_strict_step(s, TW_SCHED_STARVE, TW_STARVE_SEED(kind, number), &r.fault), 0);
                mr_keep(&c, &r, step);
            }
            assert_memory_equal(r.bytes, canonical.bytes, canonical.size);
            free(memory);
            free(r.bytes);
        }
    }
    free(canonical.bytes);
    pb_free(d.m);
}

/* LOAD and MATH race for one buffer; STORE saves what the later one left. */
static float left_by(enum tw_scheduler scheduler, uint64_t seed) {
    struct small t = small_create();
    uint32_t done = pb_semaphore(t.m, NULL, TW_SEM_READY, 0, 0);
    mb_op(t.m, 0, L, SEM_INC, S_(0), C_(0), I_(1));
    READ_INTO(t, t.param, 0, W_(t.res, mb_at(0)));
    mb_op(t.m, 0, L, SEM_INC, S_(done), C_(0), I_(1));
    mb_op(t.m, 0, M, ATTN_INIT, W_(t.res, mb_at(0)), I_(1), I_(14), X_(TW_NONE, 1));
    mb_op(t.m, 0, M, SEM_INC, S_(done), C_(0), I_(1));
    mb_op(t.m, 0, S, SEM_WAIT, S_(done), A_(mb_at(2)));
    WRITE_TO(t, R_(t.res, mb_at(0)), t.out);
    mb_freeze(t.m);
    struct mr_case c = {t.m, NULL, NULL, 1};
    struct mr_result r = mr_strict(&c, scheduler, seed);
    assert_int_equal(r.rc, 0);
    float first;
    memcpy(&first, mb_data(t.m, t.out, 0), sizeof first);
    assert_true(first == *(float *)mb_data(t.m, t.param, 0) || first < -1e30f);
    free(r.bytes);
    pb_free(t.m);
    return first;
}

static uint64_t op_number(uint32_t code) {
    static const uint32_t codes[] = {
#define TW_OP(NAME, number, name, engines, part) number,
#include "tilewright/ops.def"
#undef TW_OP
    };
    uint64_t n = 0;
    while (codes[n] != code) {
        n++;
    }
    return n;
}

static void an_adversary_does_what_its_name_says(void **state) {
    (void)state;
    const struct {
        enum tw_starve kind;
        uint64_t number;
        bool load_last;
    } cases[] = {
        {TW_STARVE_ENGINE, 0, true},   {TW_STARVE_ENGINE, 1, false},
        {TW_STARVE_KIND, 0, true},     {TW_STARVE_KIND, 1, false},
        {TW_STARVE_FAVOUR, 0, false},  {TW_STARVE_FAVOUR, 1, true},
        {TW_STARVE_NEWEST, 0, false},  {TW_STARVE_TURNS, 0, true},
        {TW_STARVE_BACKWARD, 0, true}, {TW_STARVE_LEADER, 0, false},
        {TW_STARVE_LAGGARD, 0, true},  {TW_STARVE_OP, op_number(TW_OP_READ), true},
        {TW_STARVE_SITE, 0, false},    {TW_STARVE_OP, op_number(TW_OP_ATTN_INIT), false},
    };
    assert_true(left_by(TW_SCHED_CANONICAL, 0) < -1e30f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float left = left_by(TW_SCHED_STARVE, TW_STARVE_SEED(cases[i].kind, cases[i].number));
        if ((left > -1e30f) != cases[i].load_last) {
            fail_msg("adversary %d %u: %s came last", (int)cases[i].kind, (unsigned)cases[i].number,
                     cases[i].load_last ? "MATH" : "LOAD");
        }
    }
}

/* Both sites write their row to one place; the starved one is the last. */
static void a_starved_site_comes_last(void **state) {
    (void)state;
    for (uint32_t victim = 0; victim < 2; victim++) {
        struct pb *m = mb_create(2, 1);
        uint32_t param = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 2, 16, 1);
        uint32_t out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 1, 16, 1),
                 ready = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
        mb_fill(m, param);
        for (uint32_t s = 0; s < 2; s++) {
            uint32_t b = pb_buffer(m, s, TW_BUF_RESIDENT, 1, 64);
            mb_op(m, s, L, READ, T_(param, mb_at(0), mb_at(s * 64)), W_(b, mb_at(0)), I_(1), I_(64),
                  I_(64), I_(64));
            mb_op(m, s, L, SEM_INC, S_(ready), C_(s), I_(1));
            mb_op(m, s, S, SEM_WAIT, S_(ready), A_(mb_at(1)));
            mb_op(m, s, S, WRITE, R_(b, mb_at(0)), I_(64), U_(out, mb_at(0), mb_at(0)), I_(64),
                  I_(64), X_(TW_NONE, 1));
        }
        mb_freeze(m);
        struct mr_case c = {m, NULL, NULL, 1};
        struct mr_result r = mr_strict(&c, TW_SCHED_STARVE, TW_STARVE_SEED(TW_STARVE_SITE, victim));
        assert_int_equal(r.rc, 0);
        assert_memory_equal(mb_data(m, out, 0),
                            (uint8_t *)mb_data(m, param, 0) + (size_t)victim * 64, 64);
        free(r.bytes);
        pb_free(m);
    }
}

static void an_adversary_finds_the_same_faults(void **state) {
    (void)state;
    struct small t = small_create();
    load_page(&t, t.param);
    mb_op(t.m, 0, M, WAIT, F_(t.lm), I_(2));
    mb_freeze(t.m);
    struct mr_case c = {t.m, NULL, NULL, 1};
    for (uint64_t kind = 0; kind < TW_STARVE_COUNT; kind++) {
        struct mr_result r = mr_strict(&c, TW_SCHED_STARVE, TW_STARVE_SEED(kind, 1));
        assert_string_equal(r.fault.what, "Deadlock");
        assert_int_equal(r.fault.object, t.lm);
        free(r.bytes);
    }
    pb_free(t.m);
}

/* ---- epochs ---- */

static void words_may_start_just_below_their_wrap(void **state) {
    (void)state;
    /* All words wrap together with the epoch, or pass 2^31 with it, or each wraps at its own
     * time. */
    static const uint32_t first[] = {UINT32_MAX, UINT32_MAX - 3, INT32_MAX - 2, UINT32_MAX / 3 - 1,
                                     UINT32_MAX / 6 - 2};
    struct td d = td_create((struct td_options){.width = 2, .height = 1});
    struct mr_case c = {d.m, decoder_input, &d, 6};
    struct mr_result ordinary = mr_strict(&c, TW_SCHED_CANONICAL, 0);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        d.m->config.first_epoch = first[i];
        for (int scheduler = 0; scheduler < TW_SCHED_COUNT; scheduler++) {
            struct mr_result r = mr_strict(&c, (enum tw_scheduler)scheduler, 5);
            assert_int_equal(r.rc, 0);
            assert_memory_equal(r.bytes, ordinary.bytes, ordinary.size);
            free(r.bytes);
        }
    }
    free(ordinary.bytes);
    pb_free(d.m);
}

/* A threshold that grows by the wrong amount per epoch is right in epoch 0 only. */
static void a_wrong_step_of_the_epoch_shows_at_any_later_epoch(void **state) {
    (void)state;
    for (uint32_t first = 0; first < 2; first++) {
        struct small t = small_create();
        mb_op(t.m, 0, L, SEM_INC, S_(0), C_(0), I_(1));
        mb_op(t.m, 0, M, SEM_WAIT, S_(0), A_(tw_affine_plus(mb_at(1), 0, 2)));
        t.m->config.first_epoch = first * 1000;
        mb_freeze(t.m);
        struct mr_case c = {t.m, NULL, NULL, 1};
        struct mr_result r = mr_strict(&c, TW_SCHED_CANONICAL, 0);
        assert_int_equal(r.rc, first ? TW_E_FAULT : 0);
        assert_int_equal(r.fault.have, first ? 1001 : 0);
        assert_int_equal(r.fault.need, first ? 2001 : 0);
        free(r.bytes);
        pb_free(t.m);
    }
}

static void an_epoch_cannot_be_chosen_where_trips_decide_the_words(void **state) {
    (void)state;
    struct small t = small_create();
    uint32_t trip = pb_trip(t.m, NULL, t.input, 0, 1, 4);
    mb_dynamic(t.m, 0, L, 1, trip, 1);
    mb_op(t.m, 0, L, SEM_INC, S_(0), C_(0), I_(1));
    mb_end(t.m, 0, TW_ENGINE_LOAD);
    mb_freeze(t.m);
    struct tw_strict *s = NULL;
    struct tw_fault f;
    void *memory;
    assert_int_equal(mb_strict(t.m, &memory, &s, &f), 0);
    free(memory);
    t.m->config.first_epoch = 1;
    assert_int_equal(mb_strict(t.m, &memory, &s, &f), TW_E_FAULT);
    assert_string_equal(f.what, "EpochStep");
    free(memory);
    pb_free(t.m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_adversary_changes_the_bytes_of_the_decoder),
        cmocka_unit_test(an_adversary_does_what_its_name_says),
        cmocka_unit_test(a_starved_site_comes_last),
        cmocka_unit_test(an_adversary_finds_the_same_faults),
        cmocka_unit_test(words_may_start_just_below_their_wrap),
        cmocka_unit_test(a_wrong_step_of_the_epoch_shows_at_any_later_epoch),
        cmocka_unit_test(an_epoch_cannot_be_chosen_where_trips_decide_the_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
