/* SPDX-License-Identifier: Apache-2.0
 *
 * The explorer: finds what some schedule can do, reports the schedule, and takes a single path for
 * correct programs.
 */
#include "tests/support/explore_kit.h"
#include "tests/support/tiny_decoder.h"

/* ---- correct programs ---- */

/* param row i -> FIFO -> FIFO -> out row i, for 4 rows. */
static void add_pipeline(struct base *b) {
    struct pb *m = b->m;
    mb_loop(m, 0, L, 1, 4);
    mb_op(m, 0, L, RESERVE, F_(b->in), I_(1));
    READ_ROW(*b, 0, b->param, tw_affine_plus(mb_at(0), 1, 64), W_(b->in, mb_at(0)));
    mb_op(m, 0, L, PUSH, F_(b->in), I_(1));
    mb_end(m, 0, TW_ENGINE_LOAD);
    mb_loop(m, 0, M, 1, 4);
    mb_op(m, 0, M, WAIT, F_(b->in), I_(1));
    mb_op(m, 0, M, RESERVE, F_(b->done), I_(1));
    COPY_ROW(*b, 0, R_(b->in, mb_at(0)), W_(b->done, mb_at(0)));
    mb_op(m, 0, M, PUSH, F_(b->done), I_(1));
    mb_op(m, 0, M, POP, F_(b->in), I_(1));
    mb_end(m, 0, TW_ENGINE_MATH);
    mb_loop(m, 0, S, 1, 4);
    mb_op(m, 0, S, WAIT, F_(b->done), I_(1));
    WRITE_ROW(*b, 0, R_(b->done, mb_at(0)), b->out, tw_affine_plus(mb_at(0), 1, 64));
    mb_op(m, 0, S, POP, F_(b->done), I_(1));
    mb_end(m, 0, TW_ENGINE_STORE);
}

static void one_path_represents_all_of_a_pipeline(void **state) {
    (void)state;
    for (uint32_t pages = 1; pages <= 3; pages++) {
        struct base b = base_create(1, pages);
        add_pipeline(&b);
        expect(b.m, (struct tw_explore_options){.steps = 3}, 0);
        expect(b.m, (struct tw_explore_options){.steps = 3, .overlap = true}, 0);
        pb_free(b.m);
    }
}

static void one_path_represents_all_of_a_decoder(void **state) {
    (void)state;
    for (int unshared = 0; unshared < 2; unshared++) {
        struct td d = td_create((struct td_options){.width = 2, .height = 1, .unshared = unshared});
        for (uint32_t rows = 1; rows <= 4; rows += 3) {
            td_input(&d, 62, rows);
            expect(d.m, (struct tw_explore_options){.steps = 2}, 0);
        }
        expect(d.m, (struct tw_explore_options){.steps = 2, .overlap = true}, 0);
        pb_free(d.m);
    }
}

static void adjacent_columns_do_not_conflict(void **state) {
    (void)state;
    struct base b = base_create(1, 2);
    uint32_t page = pb_buffer(b.m, 0, TW_BUF_RESIDENT, 1, 256);
    /* LOAD fills columns 0..7 of four rows, MATH the other eight; then 8 and 9 as well. */
    for (uint32_t width = 32; width <= 36; width += 4) {
        b.m->streams[0].n_words = b.m->streams[1].n_words = 0;
        mb_op(b.m, 0, L, READ, T_(b.param, mb_at(0), mb_at(0)), W_(page, mb_at(0)), I_(4),
              I_(width), I_(64), I_(64));
        mb_op(b.m, 0, M, ATTN_INIT, W_(page, mb_at(32)), I_(1), I_(6), X_(TW_NONE, 1));
        expect(b.m, (struct tw_explore_options){0}, width == 32 ? 0 : TW_EXPLORE_RACE);
    }
    pb_free(b.m);
}

/* ---- incorrect programs ---- */

static void an_unordered_read_is_a_race_and_can_fault(void **state) {
    (void)state;
    struct base b = base_create(1, 2);
    uint32_t page = pb_buffer(b.m, 0, TW_BUF_RESIDENT, 1, 64),
             mine = pb_buffer(b.m, 0, TW_BUF_SCRATCH, 1, 64);
    READ_ROW(b, 0, b.param, mb_at(0), W_(page, mb_at(0)));
    mb_op(b.m, 0, L, SEM_INC, S_(b.sem), C_(0), I_(1));
    COPY_ROW(b, 0, R_(page, mb_at(0)), W_(mine, mb_at(0)));
    mb_freeze(b.m);
    struct mr_case c = {b.m, NULL, NULL, 1};
    struct mr_result r = mr_strict(&c, TW_SCHED_CANONICAL, 0);
    assert_int_equal(r.rc, 0); /* the canonical schedule hides it */
    free(r.bytes);
    expect(b.m, (struct tw_explore_options){0}, TW_EXPLORE_RACE | TW_EXPLORE_FAULT);
    struct explored x = explore(b.m, (struct tw_explore_options){0});
    assert_string_equal(x.r.fault.what, "Undefined");
    assert_int_equal(x.r.race[0].engine + x.r.race[1].engine, TW_ENGINE_LOAD + TW_ENGINE_MATH);
    assert_int_equal(x.r.race[0].op_index + x.r.race[1].op_index, 0);
    free(x.memory);
    mb_op(b.m, 0, M, SEM_INC, S_(b.sem), C_(0), I_(1)); /* after the read it does not help */
    expect(b.m, (struct tw_explore_options){0}, TW_EXPLORE_RACE | TW_EXPLORE_FAULT);
    b.m->streams[1].n_words = 0;
    mb_op(b.m, 0, M, SEM_WAIT, S_(b.sem), A_(mb_at(1)));
    COPY_ROW(b, 0, R_(page, mb_at(0)), W_(mine, mb_at(0)));
    expect(b.m, (struct tw_explore_options){0}, 0);
    pb_free(b.m);
}

/* Each site's engines copy a row of the Param to the same row of the Output. */
static struct base two_writers(uint32_t second_source) {
    struct base b = base_create(2, 1);
    uint32_t page[2] = {pb_buffer(b.m, 0, TW_BUF_RESIDENT, 1, 64),
                        pb_buffer(b.m, 1, TW_BUF_RESIDENT, 1, 64)};
    for (uint32_t s = 0; s < 2; s++) {
        READ_ROW(b, s, b.param, mb_at(s * second_source), W_(page[s], mb_at(0)));
        mb_op(b.m, s, L, SEM_INC, S_(b.sem), C_(s), I_(1));
        mb_op(b.m, s, S, SEM_WAIT, S_(b.sem), A_(mb_at(1)));
        WRITE_ROW(b, s, R_(page[s], mb_at(0)), b.out, mb_at(0));
    }
    return b;
}

static void two_writers_of_one_place_leave_different_bytes(void **state) {
    (void)state;
    struct base b = two_writers(64);
    expect(b.m, (struct tw_explore_options){0}, TW_EXPLORE_RACE | TW_EXPLORE_DIFFERS);
    struct explored x = explore(b.m, (struct tw_explore_options){0});
    assert_int_equal(x.r.tensor, b.out);
    assert_int_equal(x.r.offset / 4, 0);
    assert_int_equal(x.r.ends, 2);
    assert_int_equal(x.r.states, 1);
    free(x.memory);
    pb_free(b.m);
}

static void a_race_that_changes_nothing_is_distinguished(void **state) {
    (void)state;
    struct base b = two_writers(0); /* both copy the same bytes */
    expect(b.m, (struct tw_explore_options){0}, TW_EXPLORE_RACE);
    pb_free(b.m);
}

static void a_deadlock_is_found_with_the_schedule_that_led_to_it(void **state) {
    (void)state;
    struct base b = base_create(1, 2);
    mb_op(b.m, 0, L, SEM_INC, S_(b.sem), C_(0), I_(1));
    mb_op(b.m, 0, L, SEM_WAIT, S_(b.sem), A_(mb_at(3)));
    mb_op(b.m, 0, M, SEM_INC, S_(b.sem), C_(0), I_(1));
    mb_op(b.m, 0, M, SEM_WAIT, S_(b.sem), A_(mb_at(3)));
    mb_op(b.m, 0, M, SEM_INC, S_(b.sem), C_(0), I_(1));
    expect(b.m, (struct tw_explore_options){0}, TW_EXPLORE_DEADLOCK);
    struct explored x = explore(b.m, (struct tw_explore_options){0});
    assert_int_equal(x.r.deadlock_schedule.n, 2);
    assert_int_equal(x.r.deadlock.object, b.sem);
    assert_int_equal(x.r.deadlock.have, 2);
    assert_int_equal(x.r.deadlock.need, 3);
    free(x.memory);
    pb_free(b.m);
}

static void pages_left_in_a_fifo_are_a_fault(void **state) {
    (void)state;
    struct base b = base_create(1, 2);
    mb_op(b.m, 0, L, RESERVE, F_(b.in), I_(1));
    READ_ROW(b, 0, b.param, mb_at(0), W_(b.in, mb_at(0)));
    mb_op(b.m, 0, L, PUSH, F_(b.in), I_(1));
    expect(b.m, (struct tw_explore_options){0}, TW_EXPLORE_FAULT);
    pb_free(b.m);
}

static void a_page_popped_too_early_is_a_race(void **state) {
    (void)state;
    struct base b = base_create(1, 1);
    uint32_t mine = pb_buffer(b.m, 0, TW_BUF_SCRATCH, 1, 64),
             alias = pb_buffer(b.m, 0, TW_BUF_RESIDENT, 1, 64);
    /* the same bytes under another name, read after the pop */
    b.m->buffers[alias].offset = b.m->buffers[b.in].offset;
    mb_op(b.m, 0, L, RESERVE, F_(b.in), I_(1));
    READ_ROW(b, 0, b.param, mb_at(0), W_(b.in, mb_at(0)));
    mb_op(b.m, 0, L, PUSH, F_(b.in), I_(1));
    mb_op(b.m, 0, L, RESERVE, F_(b.in), I_(1));
    READ_ROW(b, 0, b.param, mb_at(64), W_(b.in, mb_at(0)));
    mb_op(b.m, 0, L, PUSH, F_(b.in), I_(1));
    mb_op(b.m, 0, M, WAIT, F_(b.in), I_(1));
    mb_op(b.m, 0, M, POP, F_(b.in), I_(1));
    COPY_ROW(b, 0, R_(alias, mb_at(0)), W_(mine, mb_at(0)));
    mb_op(b.m, 0, M, WAIT, F_(b.in), I_(1));
    mb_op(b.m, 0, M, POP, F_(b.in), I_(1));
    expect(b.m, (struct tw_explore_options){0}, TW_EXPLORE_RACE | TW_EXPLORE_FAULT);
    pb_free(b.m);
}

/* No engine writes the page again, but the content of a popped page is undefined. */
static void a_pop_that_may_come_before_the_last_read_is_a_race(void **state) {
    (void)state;
    for (int before = 0; before < 2; before++) {
        struct base b = base_create(1, 1);
        uint32_t alias = pb_buffer(b.m, 0, TW_BUF_RESIDENT, 1, 64),
                 read = pb_semaphore(b.m, NULL, TW_SEM_READY, 0, 0);
        b.m->buffers[alias].offset = b.m->buffers[b.in].offset;
        mb_op(b.m, 0, L, RESERVE, F_(b.in), I_(1));
        READ_ROW(b, 0, b.param, mb_at(0), W_(b.in, mb_at(0)));
        mb_op(b.m, 0, L, PUSH, F_(b.in), I_(1));
        mb_op(b.m, 0, M, WAIT, F_(b.in), I_(1));
        mb_op(b.m, 0, M, SEM_INC, S_(b.sem), C_(0), I_(1));
        mb_op(b.m, 0, M, SEM_WAIT, S_(read), A_(mb_at(before ? 0 : 1)));
        mb_op(b.m, 0, M, POP, F_(b.in), I_(1));
        mb_op(b.m, 0, S, SEM_WAIT, S_(b.sem), A_(mb_at(1)));
        WRITE_ROW(b, 0, R_(alias, mb_at(0)), b.out, mb_at(0));
        mb_op(b.m, 0, S, SEM_INC, S_(read), C_(0), I_(1));
        expect(b.m, (struct tw_explore_options){0},
               before ? TW_EXPLORE_RACE | TW_EXPLORE_FAULT : 0);
        pb_free(b.m);
    }
}

/* Each engine uses one half of it; but scratch belongs to one engine, and the second one to touch
 * it faults. */
static void scratch_used_by_two_engines_is_a_race(void **state) {
    (void)state;
    struct base b = base_create(1, 1);
    uint32_t scratch = pb_buffer(b.m, 0, TW_BUF_SCRATCH, 1, 128);
    READ_ROW(b, 0, b.param, mb_at(0), W_(scratch, mb_at(0)));
    mb_op(b.m, 0, M, ATTN_INIT, W_(scratch, mb_at(64)), I_(1), I_(14), ONE);
    expect(b.m, (struct tw_explore_options){0}, TW_EXPLORE_RACE | TW_EXPLORE_FAULT);
    pb_free(b.m);
}

/* Site 0 sends a State that grows by a row of the Param each step; site 1 adds what it receives to
 * another State. `waits` is the threshold that site 1 waits for; with `closes`, site 0 waits for
 * site 1 at the end of the step. */
static struct base sender_and_receiver(struct tw_affine waits, bool closes) {
    struct base b = base_create(2, 1);
    struct pb *m = b.m;
    uint32_t sum = mb_tensor(m, TW_ROLE_STATE, TW_INIT_ZERO, 1, 16, 1);
    uint32_t x = pb_fifo(m, 0, TW_ENGINE_LOAD, TW_ENGINE_MATH, 2, 64);
    uint32_t y = pb_fifo(m, 1, TW_ENGINE_LOAD, TW_ENGINE_MATH, 2, 64);
    uint32_t z = pb_fifo(m, 1, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, 64);
    m->sram_next[0] = m->sram_next[1] = 4096;
    uint32_t got = pb_siblings(m, 64), again = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    struct tw_affine next = tw_affine_plus(mb_at(0), 0, 1), ended = tw_affine_plus(mb_at(1), 0, 1);
    for (uint32_t s = 0; s < 2; s++) {
        uint32_t to = s ? y : x;
        mb_op(m, s, L, SEM_WAIT, S_(again), A_(next)); /* the site's own State is written */
        mb_op(m, s, L, RESERVE, F_(to), I_(2));
        READ_ROW(b, s, s ? sum : b.zero, mb_at(0), W_(to, mb_at(0)));
        READ_ROW(b, s, b.param, mb_at(0), W_(to, mb_at(64)));
        mb_op(m, s, L, PUSH, F_(to), I_(2));
    }
    mb_op(m, 0, M, WAIT, F_(x), I_(2));
    mb_op(m, 0, M, RESERVE, F_(b.done), I_(1));
    mb_op(m, 0, M, ADD, R_(x, mb_at(0)), I_(64), R_(x, mb_at(64)), I_(64), W_(b.done, mb_at(0)),
          I_(64), I_(16), ONE);
    mb_op(m, 0, M, PUSH, F_(b.done), I_(1));
    mb_op(m, 0, M, POP, F_(x), I_(2));
    mb_op(m, 0, S, WAIT, F_(b.done), I_(1));
    WRITE_ROW(b, 0, R_(b.done, mb_at(0)), b.zero, mb_at(0));
    mb_op(m, 0, S, MCAST, R_(b.done, mb_at(0)), I_(64), D_(got, mb_at(0)), I_(64), I_(64), ONE,
          G_(0));
    mb_op(m, 0, S, MCAST_SET, S_(b.sem), G_(0));
    mb_op(m, 0, S, POP, F_(b.done), I_(1));
    mb_op(m, 1, M, WAIT, F_(y), I_(2));
    mb_op(m, 1, M, SEM_WAIT, S_(b.sem), A_(waits));
    mb_op(m, 1, M, RESERVE, F_(z), I_(1));
    mb_op(m, 1, M, ADD, R_(y, mb_at(0)), I_(64), R_(got + 1, mb_at(0)), I_(64), W_(z, mb_at(0)),
          I_(64), I_(16), ONE);
    mb_op(m, 1, M, PUSH, F_(z), I_(1));
    mb_op(m, 1, M, POP, F_(y), I_(2));
    mb_op(m, 1, S, WAIT, F_(z), I_(1));
    WRITE_ROW(b, 1, R_(z, mb_at(0)), sum, mb_at(0));
    mb_op(m, 1, S, POP, F_(z), I_(1));
    mb_op(m, 1, S, SEM_INC, S_(again), C_(1), I_(1));
    if (closes) {
        uint32_t closed = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
        mb_op(m, 1, S, SEM_INC, S_(closed), C_(0), I_(1));
        mb_op(m, 0, S, SEM_WAIT, S_(closed), A_(ended));
    }
    mb_op(m, 0, S, SEM_INC, S_(again), C_(0), I_(1));
    return b;
}

static void a_missing_rendezvous_is_found_from_the_second_step_on(void **state) {
    (void)state;
    struct tw_affine by_epoch = tw_affine_plus(mb_at(1), 0, 1);
    struct tw_explore_options two = {.steps = 2}, overlap = {.steps = 2, .overlap = true};
    struct base b = sender_and_receiver(by_epoch, true);
    expect(b.m, two, 0);
    expect(b.m, overlap, 0);
    pb_free(b.m);
    b = sender_and_receiver(by_epoch, false);
    expect(b.m, two, 0);
    expect(b.m, overlap, TW_EXPLORE_RACE | TW_EXPLORE_DIFFERS | TW_EXPLORE_FAULT);
    pb_free(b.m);
}

static void a_threshold_that_does_not_grow_is_found_in_the_second_step(void **state) {
    (void)state;
    struct base b = sender_and_receiver(mb_at(1), true);
    expect(b.m, (struct tw_explore_options){.steps = 1}, 0);
    expect(b.m, (struct tw_explore_options){.steps = 2}, TW_EXPLORE_RACE | TW_EXPLORE_FAULT);
    expect(b.m, (struct tw_explore_options){.steps = 2, .overlap = true},
           TW_EXPLORE_RACE | TW_EXPLORE_DIFFERS | TW_EXPLORE_FAULT);
    pb_free(b.m);
}

static void words_may_wrap_during_an_exploration(void **state) {
    (void)state;
    static const uint32_t first[] = {UINT32_MAX, UINT32_MAX - 1, INT32_MAX};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        struct base b = sender_and_receiver(tw_affine_plus(mb_at(1), 0, 1), true);
        b.m->config.first_epoch = first[i];
        expect(b.m, (struct tw_explore_options){.steps = 3}, 0);
        expect(b.m, (struct tw_explore_options){.steps = 3, .overlap = true}, 0);
        pb_free(b.m);
    }
}

/* ---- limits ---- */

/* `n` sites whose STORE engines all write to one place: n! orders. */
static struct base many_writers(uint32_t n) {
    struct base b = base_create(n, 1);
    for (uint32_t s = 0; s < n; s++) {
        uint32_t page = pb_buffer(b.m, s, TW_BUF_RESIDENT, 1, 64);
        READ_ROW(b, s, b.param, mb_at(s % 4 * 64), W_(page, mb_at(0)));
        mb_op(b.m, s, L, SEM_INC, S_(b.sem), C_(s), I_(1));
        mb_op(b.m, s, S, SEM_WAIT, S_(b.sem), A_(mb_at(1)));
        WRITE_ROW(b, s, R_(page, mb_at(0)), b.out, mb_at(0));
    }
    return b;
}

static void exceeding_a_limit_is_reported(void **state) {
    (void)state;
    struct base b = many_writers(4);
    uint32_t all = TW_EXPLORE_RACE | TW_EXPLORE_DIFFERS;
    expect(b.m, (struct tw_explore_options){0}, all);
    struct explored x = explore(b.m, (struct tw_explore_options){0});
    /* Sets of sites that have written and the last writer: 1 + 4 + 4*3 + 4*3, less those with
     * nothing left to choose. */
    assert_int_equal(x.r.states, 1 + 4 + 12);
    free(x.memory);
    expect(b.m, (struct tw_explore_options){.max_states = 17}, all);
    expect(b.m, (struct tw_explore_options){.max_states = 16}, all | TW_EXPLORE_LIMIT);
    expect(b.m, (struct tw_explore_options){.max_states = 1}, TW_EXPLORE_RACE | TW_EXPLORE_LIMIT);
    expect(b.m, (struct tw_explore_options){.max_depth = 3}, all);
    expect(b.m, (struct tw_explore_options){.max_depth = 2}, TW_EXPLORE_RACE | TW_EXPLORE_LIMIT);
    pb_free(b.m);
}

static void invalid_inputs_and_code_are_refused(void **state) {
    (void)state;
    struct base b = base_create(1, 1);
    uint32_t input = mb_tensor(b.m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 1, 1),
             trip = pb_trip(b.m, NULL, input, 0, 1, 3);
    mb_set_i32(b.m, input, 0, 4);
    mb_dynamic(b.m, 0, L, 1, trip, 1);
    mb_end(b.m, 0, TW_ENGINE_LOAD);
    mb_freeze(b.m);
    struct explored x = explore(b.m, (struct tw_explore_options){0});
    assert_int_equal(x.rc, TW_E_FAULT);
    assert_string_equal(x.fault.what, "InputRange");
    free(x.memory);
    mb_op(b.m, 0, L, RESERVE, F_(9), I_(1));
    x = explore(b.m, (struct tw_explore_options){0});
    assert_int_equal(x.rc, TW_E_FAULT);
    assert_string_equal(x.fault.what, "BadOp");
    free(x.memory);
    pb_free(b.m);
}

static void a_schedule_that_does_not_fit_is_refused(void **state) {
    (void)state;
    struct base b = base_create(1, 1);
    struct tw_fault f;
    add_pipeline(&b);
    mb_freeze(b.m);
    const uint16_t waits[] = {0, 0, 1}, unknown[] = {0, 7};
    assert_int_equal(replay(b.m, (struct tw_explore_options){0}, waits, 3, &f), TW_E_FAULT);
    assert_string_equal(f.what, "BadSchedule");
    assert_int_equal(f.object, 2);
    assert_int_equal(replay(b.m, (struct tw_explore_options){0}, unknown, 2, &f), TW_E_FAULT);
    assert_int_equal(f.object, 1);
    assert_int_equal(replay(b.m, (struct tw_explore_options){0}, waits, 2, &f), 0);
    pb_free(b.m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_path_represents_all_of_a_pipeline),
        cmocka_unit_test(one_path_represents_all_of_a_decoder),
        cmocka_unit_test(adjacent_columns_do_not_conflict),
        cmocka_unit_test(an_unordered_read_is_a_race_and_can_fault),
        cmocka_unit_test(two_writers_of_one_place_leave_different_bytes),
        cmocka_unit_test(a_race_that_changes_nothing_is_distinguished),
        cmocka_unit_test(a_deadlock_is_found_with_the_schedule_that_led_to_it),
        cmocka_unit_test(pages_left_in_a_fifo_are_a_fault),
        cmocka_unit_test(a_page_popped_too_early_is_a_race),
        cmocka_unit_test(a_pop_that_may_come_before_the_last_read_is_a_race),
        cmocka_unit_test(scratch_used_by_two_engines_is_a_race),
        cmocka_unit_test(a_missing_rendezvous_is_found_from_the_second_step_on),
        cmocka_unit_test(a_threshold_that_does_not_grow_is_found_in_the_second_step),
        cmocka_unit_test(words_may_wrap_during_an_exploration),
        cmocka_unit_test(exceeding_a_limit_is_reported),
        cmocka_unit_test(invalid_inputs_and_code_are_refused),
        cmocka_unit_test(a_schedule_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
