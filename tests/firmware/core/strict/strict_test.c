/* SPDX-License-Identifier: Apache-2.0
 *
 * The strict interpreter: every kind of fault is found, at the op that commits it, and every
 * scheduler gives the same bytes.
 */
#include "tests/support/machine_run.h"
#include "tests/support/test.h"
#include "tests/support/tiny_decoder.h"

#include <math.h>

/* One site with: an Input, a Param, State without and with initial value, an Output of 16 floats
 * each. */
struct small {
    struct pb *m;
    uint32_t input, param, fresh, zero, out;
    /* FIFO load->math, FIFO math->store, buffers; pages of 64 bytes */
    uint32_t lm, ms, res, res2, scratch;
};

static struct small small_create(void) {
    struct small t = {.m = mb_create(1, 1)};
    t.input = mb_tensor(t.m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 16, 1);
    t.param = mb_tensor(t.m, TW_ROLE_PARAM, TW_INIT_BLOB, 4, 4, 1);
    t.fresh = mb_tensor(t.m, TW_ROLE_STATE, TW_INIT_NONE, 1, 16, 1);
    t.zero = mb_tensor(t.m, TW_ROLE_STATE, TW_INIT_ZERO, 1, 16, 1);
    t.out = mb_tensor(t.m, TW_ROLE_OUTPUT, TW_INIT_NONE, 1, 16, 1);
    t.lm = pb_fifo(t.m, 0, TW_ENGINE_LOAD, TW_ENGINE_MATH, 2, 64);
    t.ms = pb_fifo(t.m, 0, TW_ENGINE_MATH, TW_ENGINE_STORE, 2, 64);
    t.res = pb_buffer(t.m, 0, TW_BUF_RESIDENT, 1, 64);
    t.res2 = pb_buffer(t.m, 0, TW_BUF_RESIDENT, 1, 64);
    t.scratch = pb_buffer(t.m, 0, TW_BUF_SCRATCH, 1, 64);
    mb_fill(t.m, t.param);
    pb_semaphore(t.m, NULL, TW_SEM_READY, 0, 0);
    return t;
}

#define READ_INTO(t, tensor, at, target) \
    mb_op((t).m, 0, L, READ, T_(tensor, mb_at(0), mb_at(at)), target, I_(1), I_(64), I_(64), I_(64))
#define COPY_TO(t, from, target) \
    mb_op((t).m, 0, M, COPY, from, I_(64), target, I_(64), I_(64), X_(TW_NONE, 1))
#define WRITE_TO(t, from, tensor)                                                           \
    mb_op((t).m, 0, S, WRITE, from, I_(64), U_(tensor, mb_at(0), mb_at(0)), I_(64), I_(64), \
          X_(TW_NONE, 1))

static void load_page(struct small *t, uint32_t tensor) {
    mb_op(t->m, 0, L, RESERVE, F_(t->lm), I_(1));
    READ_INTO(*t, tensor, 0, W_(t->lm, mb_at(0)));
    mb_op(t->m, 0, L, PUSH, F_(t->lm), I_(1));
}

/* Runs one step and expects this fault at this op; frees the program. */
static void expect_fault(struct small *t, const char *what, enum tw_engine engine,
                         uint32_t op_index, uint32_t object) {
    mb_freeze(t->m);
    struct mr_case c = {t->m, NULL, NULL, 1};
    struct mr_result r = mr_strict(&c, TW_SCHED_CANONICAL, 0);
    assert_int_equal(r.rc, TW_E_FAULT);
    assert_int_equal(r.fault.code, TW_E_FAULT);
    assert_string_equal(r.fault.what, what);
    assert_int_equal(r.fault.site, 0);
    assert_int_equal(r.fault.engine, engine);
    assert_int_equal(r.fault.op_index, op_index);
    assert_int_equal(r.fault.object, object);
    assert_int_equal(r.fault.stage, engine);
    free(r.bytes);
    pb_free(t->m);
}

static void a_read_beyond_a_tensor_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    READ_INTO(t, t.param, 4, W_(t.res, mb_at(0)));
    expect_fault(&t, "ReadOutOfRange", TW_ENGINE_LOAD, 0, t.param);
}

static void an_instance_that_has_no_row_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    mb_op(t.m, 0, L, READ, T_(t.param, mb_at(1), mb_at(0)), W_(t.res, mb_at(0)), I_(1), I_(64),
          I_(64), I_(64));
    expect_fault(&t, "ReadOutOfRange", TW_ENGINE_LOAD, 0, t.param);
}

static void a_write_beyond_a_buffer_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    READ_INTO(t, t.param, 0, W_(t.res, mb_at(4)));
    expect_fault(&t, "WriteOutOfRange", TW_ENGINE_LOAD, 0, t.res);
}

static void a_region_that_wraps_around_the_ring_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    load_page(&t, t.param);
    mb_op(t.m, 0, L, RESERVE, F_(t.lm), I_(2)); /* page 1 and, after the pop, page 0 */
    mb_op(t.m, 0, L, READ, T_(t.param, mb_at(0), mb_at(0)), W_(t.lm, mb_at(32)), I_(1), I_(64),
          I_(64), I_(64));
    mb_op(t.m, 0, M, WAIT, F_(t.lm), I_(1));
    mb_op(t.m, 0, M, POP, F_(t.lm), I_(1));
    expect_fault(&t, "WriteOutOfRange", TW_ENGINE_LOAD, 4, t.lm);
}

static void a_cache_position_beyond_the_context_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    uint32_t cache =
        mb_tensor_bytes(t.m, TW_ROLE_STATE, TW_INIT_ZERO, 64, 16, TW_PACK_VALUES, 64 * 64, 1);
    t.m->tensors[cache].head_dim = 16;
    mb_op(t.m, 0, M, RESERVE, F_(t.ms), I_(1));
    mb_op(t.m, 0, M, ATTN_INIT, W_(t.ms, mb_at(0)), I_(1), I_(14), X_(TW_NONE, 1));
    mb_op(t.m, 0, M, PUSH, F_(t.ms), I_(1));
    mb_op(t.m, 0, S, WAIT, F_(t.ms), I_(1));
    mb_op(t.m, 0, S, VALUE_WRITE, R_(t.ms, mb_at(0)), I_(64), U_(cache, mb_at(0), mb_at(0)), I_(0),
          I_(1), I_(16), X_(TW_NONE, 64), X_(TW_NONE, 1));
    expect_fault(&t, "WriteOutOfRange", TW_ENGINE_STORE, 1, cache);
}

static void bytes_never_written_are_found_when_read(void **state) {
    (void)state;
    struct small t = small_create();
    COPY_TO(t, R_(t.res, mb_at(0)), W_(t.scratch, mb_at(0)));
    expect_fault(&t, "Undefined", TW_ENGINE_MATH, 0, t.res);
}

static void a_half_written_page_is_found_when_read_whole(void **state) {
    (void)state;
    struct small t = small_create();
    mb_op(t.m, 0, L, RESERVE, F_(t.lm), I_(1));
    mb_op(t.m, 0, L, READ, T_(t.param, mb_at(0), mb_at(0)), W_(t.lm, mb_at(0)), I_(1), I_(60),
          I_(60), I_(60));
    mb_op(t.m, 0, L, PUSH, F_(t.lm), I_(1));
    mb_op(t.m, 0, M, WAIT, F_(t.lm), I_(1));
    COPY_TO(t, R_(t.lm, mb_at(0)), W_(t.scratch, mb_at(0)));
    expect_fault(&t, "Undefined", TW_ENGINE_MATH, 1, t.lm);
}

static void state_without_initial_value_is_undefined_until_written(void **state) {
    (void)state;
    struct small t = small_create();
    load_page(&t, t.fresh);
    expect_fault(&t, "Undefined", TW_ENGINE_LOAD, 1, t.fresh);
}

static void the_bytes_of_the_last_step_do_not_count_as_written(void **state) {
    (void)state;
    struct small t = small_create();
    uint32_t rows = pb_trip(t.m, NULL, t.input, 0, 1, 1);
    mb_op(t.m, 0, M, ATTN_INIT, W_(t.res, mb_at(0)), I_(1), I_(14), X_(rows, 1));
    COPY_TO(t, R_(t.res, mb_at(0)), W_(t.res2, mb_at(0)));
    mb_freeze(t.m);
    struct tw_strict *s = NULL;
    struct tw_fault f;
    void *memory;
    assert_int_equal(mb_strict(t.m, &memory, &s, &f), 0);
    mb_set_i32(t.m, t.input, 0, 1);
    assert_int_equal(tw_strict_step(s, TW_SCHED_CANONICAL, 0, &f), 0);
    mb_set_i32(t.m, t.input, 0, 0); /* now nothing is written */
    assert_int_equal(tw_strict_step(s, TW_SCHED_CANONICAL, 0, &f), TW_E_FAULT);
    assert_string_equal(f.what, "Undefined");
    assert_int_equal(f.object, t.res);
    free(memory);
    pb_free(t.m);
}

static void a_push_of_an_unwritten_page_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    mb_op(t.m, 0, L, RESERVE, F_(t.lm), I_(1));
    mb_op(t.m, 0, L, PUSH, F_(t.lm), I_(1));
    expect_fault(&t, "Undefined", TW_ENGINE_LOAD, 1, t.lm);
}

static void a_write_to_a_param_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    mb_op(t.m, 0, M, RESERVE, F_(t.ms), I_(1));
    mb_op(t.m, 0, M, ATTN_INIT, W_(t.ms, mb_at(0)), I_(1), I_(14), X_(TW_NONE, 1));
    mb_op(t.m, 0, M, PUSH, F_(t.ms), I_(1));
    mb_op(t.m, 0, S, WAIT, F_(t.ms), I_(1));
    WRITE_TO(t, R_(t.ms, mb_at(0)), t.param);
    expect_fault(&t, "Role", TW_ENGINE_STORE, 1, t.param);
}

static void a_fifo_used_by_a_third_engine_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    mb_op(t.m, 0, S, WAIT, F_(t.lm), I_(0));
    expect_fault(&t, "Role", TW_ENGINE_STORE, 0, t.lm);
}

static void a_consumer_that_writes_its_page_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    load_page(&t, t.param);
    mb_op(t.m, 0, M, WAIT, F_(t.lm), I_(1));
    COPY_TO(t, R_(t.lm, mb_at(0)), W_(t.lm, mb_at(0)));
    expect_fault(&t, "Role", TW_ENGINE_MATH, 1, t.lm);
}

static void scratch_of_two_engines_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    READ_INTO(t, t.param, 0, W_(t.scratch, mb_at(0)));
    COPY_TO(t, R_(t.scratch, mb_at(0)), W_(t.res, mb_at(0)));
    expect_fault(&t, "Role", TW_ENGINE_MATH, 0, t.scratch);
}

static void a_write_to_a_page_not_reserved_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    READ_INTO(t, t.param, 0, W_(t.lm, mb_at(0)));
    expect_fault(&t, "FifoOverrun", TW_ENGINE_LOAD, 0, t.lm);
}

static void a_push_beyond_the_reservation_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    load_page(&t, t.param);
    mb_op(t.m, 0, L, PUSH, F_(t.lm), I_(1));
    expect_fault(&t, "FifoOverrun", TW_ENGINE_LOAD, 3, t.lm);
}

static void a_reservation_beyond_the_capacity_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    mb_op(t.m, 0, L, RESERVE, F_(t.lm), I_(3));
    expect_fault(&t, "FifoOverrun", TW_ENGINE_LOAD, 0, t.lm);
}

static void a_read_of_a_page_not_waited_for_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    load_page(&t, t.param);
    COPY_TO(t, R_(t.lm, mb_at(0)), W_(t.scratch, mb_at(0)));
    expect_fault(&t, "FifoUnderrun", TW_ENGINE_MATH, 0, t.lm);
}

static void a_pop_without_a_wait_is_found(void **state) {
    (void)state;
    struct small t = small_create();
    load_page(&t, t.param);
    mb_op(t.m, 0, M, POP, F_(t.lm), I_(1));
    expect_fault(&t, "FifoUnderrun", TW_ENGINE_MATH, 0, t.lm);
}

static void a_deadlock_names_the_first_waiter_and_what_it_waits_for(void **state) {
    (void)state;
    struct small t = small_create();
    load_page(&t, t.param);
    mb_op(t.m, 0, M, WAIT, F_(t.lm), I_(2));
    mb_op(t.m, 0, S, SEM_WAIT, S_(0), A_(mb_at(5)));
    mb_freeze(t.m);
    struct mr_case c = {t.m, NULL, NULL, 1};
    struct mr_result r = mr_strict(&c, TW_SCHED_RANDOM, 3);
    assert_string_equal(r.fault.what, "Deadlock");
    assert_int_equal(r.fault.engine, TW_ENGINE_MATH);
    assert_int_equal(r.fault.object, t.lm);
    assert_int_equal(r.fault.opcode, TW_OP_WAIT);
    assert_int_equal(r.fault.have, 1);
    assert_int_equal(r.fault.need, 2);
    free(r.bytes);
    pb_free(t.m);
}

static void pages_left_behind_are_found_at_the_end_of_the_step(void **state) {
    (void)state;
    struct small t = small_create();
    load_page(&t, t.param);
    mb_freeze(t.m);
    struct mr_case c = {t.m, NULL, NULL, 1};
    struct mr_result r = mr_strict(&c, TW_SCHED_CANONICAL, 0);
    assert_string_equal(r.fault.what, "FifoOverrun");
    assert_int_equal(r.fault.object, t.lm);
    assert_int_equal(r.fault.have, 1);
    free(r.bytes);
    pb_free(t.m);
}

static void an_op_of_another_engine_is_refused(void **state) {
    (void)state;
    struct small t = small_create();
    mb_op(t.m, 0, L, ADD, R_(t.res, mb_at(0)), I_(64), R_(t.res, mb_at(0)), I_(64),
          W_(t.res2, mb_at(0)), I_(64), I_(16), X_(TW_NONE, 1));
    expect_fault(&t, "BadOp", TW_ENGINE_LOAD, 0, TW_NONE);
}

static void an_unknown_buffer_is_refused(void **state) {
    (void)state;
    struct small t = small_create();
    mb_op(t.m, 0, L, RESERVE, F_(77), I_(1));
    expect_fault(&t, "BadOp", TW_ENGINE_LOAD, 0, 77);
}

static void a_truncated_stream_is_refused(void **state) {
    (void)state;
    struct small t = small_create();
    load_page(&t, t.param);
    t.m->streams[TW_ENGINE_LOAD].n_words--;
    mb_freeze(t.m);
    struct tw_strict *s = NULL;
    struct tw_fault f;
    void *memory;
    assert_int_equal(mb_strict(t.m, &memory, &s, &f), TW_E_FAULT);
    assert_string_equal(f.what, "BadOp");
    assert_int_equal(f.op_index, 2);
    assert_null(memory);
    pb_free(t.m);
}

static void a_loop_that_does_not_close_is_refused(void **state) {
    (void)state;
    struct small t = small_create();
    mb_loop(t.m, 0, L, 1, 2);
    mb_freeze(t.m);
    struct tw_strict *s = NULL;
    struct tw_fault f;
    void *memory;
    assert_int_equal(mb_strict(t.m, &memory, &s, &f), TW_E_FAULT);
    assert_string_equal(f.what, "BadOp");
    pb_free(t.m);
}

static void a_buffer_outside_sram_is_refused(void **state) {
    (void)state;
    struct small t = small_create();
    t.m->buffers[t.res].offset = t.m->p.sram_bytes[0] - 32;
    mb_freeze(t.m);
    struct tw_strict *s = NULL;
    struct tw_fault f;
    void *memory;
    assert_int_equal(mb_strict(t.m, &memory, &s, &f), TW_E_FAULT);
    assert_string_equal(f.what, "BadTable");
    assert_int_equal(f.object, t.res);
    pb_free(t.m);
}

static void an_id_outside_the_table_is_found(void **state) {
    (void)state;
    static const int32_t bad[] = {-1, 4, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct small t = small_create();
        mb_set_i32(t.m, t.input, 1, bad[i]);
        mb_op(t.m, 0, L, GATHER, T_(t.param, mb_at(0), mb_at(0)), T_(t.input, mb_at(0), mb_at(0)),
              W_(t.res, mb_at(0)), I_(16), I_(4), X_(TW_NONE, 2));
        expect_fault(&t, "IdOutOfRange", TW_ENGINE_LOAD, 0, t.input);
    }
}

static void a_trip_out_of_range_refuses_only_the_step(void **state) {
    (void)state;
    struct small t = small_create();
    uint32_t trip = pb_trip(t.m, NULL, t.input, 3, 2, 10);
    mb_dynamic(t.m, 0, L, 1, trip, 1);
    mb_op(t.m, 0, L, SEM_INC, S_(0), C_(0), I_(0));
    mb_end(t.m, 0, TW_ENGINE_LOAD);
    mb_freeze(t.m);
    struct tw_strict *s = NULL;
    struct tw_fault f;
    void *memory;
    assert_int_equal(mb_strict(t.m, &memory, &s, &f), 0);
    mb_set_i32(t.m, t.input, 0, -1);
    assert_int_equal(tw_strict_step(s, TW_SCHED_CANONICAL, 0, &f), TW_E_FAULT);
    assert_string_equal(f.what, "InputRange");
    mb_set_i32(t.m, t.input, 0, 18);
    assert_int_equal(tw_strict_step(s, TW_SCHED_CANONICAL, 0, &f), TW_E_FAULT);
    assert_int_equal(f.have, 11);
    assert_int_equal(f.need, 10);
    mb_set_i32(t.m, t.input, 0, 17);
    assert_int_equal(tw_strict_step(s, TW_SCHED_CANONICAL, 0, &f), 0);
    assert_int_equal(tw_strict_ops(s), 1 + 10 * 2);
    free(memory);
    pb_free(t.m);
}

/* Returns the iterations of a loop over the trip when the elements of its Input are 7, x, 7, 7. */
static uint64_t iterations(struct tw_trip trip, int32_t x, struct tw_fault *f) {
    struct small t = small_create();
    const int32_t values[4] = {7, x, 7, 7};
    trip.input = t.input;
    mb_dynamic(t.m, 0, L, 1, pb_trip_of(t.m, NULL, trip), 1);
    mb_op(t.m, 0, L, SEM_INC, S_(0), C_(0), I_(0));
    mb_end(t.m, 0, TW_ENGINE_LOAD);
    mb_freeze(t.m);
    for (uint32_t i = 0; i < 4; i++) {
        mb_set_i32(t.m, t.input, i, values[i]);
    }
    struct tw_strict *s = NULL;
    void *memory;
    assert_int_equal(mb_strict(t.m, &memory, &s, f), 0);
    int rc = tw_strict_step(s, TW_SCHED_CANONICAL, 0, f);
    uint64_t ops = tw_strict_ops(s);
    free(memory);
    pb_free(t.m);
    assert_int_equal(rc, f->code);
    return rc ? UINT64_MAX : (ops - 1) / 2;
}

/* Against the formula in double, at and beyond both ends. */
static void a_trip_is_signed_and_is_clamped_or_refused(void **state) {
    (void)state;
    static const int32_t at[] = {INT32_MIN, -100, -65, -64, -1, 0,  1,   4,   5,        6,
                                 63,        64,   65,  69,  70, 73, 128, 513, INT32_MAX};
    static const struct tw_trip trips[] = {
        {.element = 1, .add = 0, .div = 1, .max = 10},
        {.element = 1, .add = -5, .div = 1, .max = 10},
        {.element = 1, .add = -64, .div = 64, .max = 7},
        {.element = 1, .add = 63, .div = 64, .max = 7},
        {.element = 1, .add = INT32_MIN, .div = 3, .max = 9},
        {.element = 1, .add = INT32_MAX, .div = UINT32_MAX, .max = 9},
    };
    for (size_t k = 0; k < 2 * sizeof trips / sizeof *trips; k++) {
        struct tw_trip trip = trips[k / 2];
        trip.clamp = k % 2;
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            double exact = ceil(((double)at[i] + trip.add) / trip.div);
            double limited = fmin(trip.max, fmax(0, exact));
            bool refused = !trip.clamp && (at[i] < 0 || exact != limited);
            struct tw_fault f;
            uint64_t n = iterations(trip, at[i], &f);
            assert_int_equal(n, refused ? UINT64_MAX : (uint64_t)limited);
            if (refused) {
                assert_string_equal(f.what, "InputRange");
            }
        }
    }
}

static void a_loop_of_no_iterations_skips_its_body_and_nested_loops(void **state) {
    (void)state;
    struct small t = small_create();
    uint32_t trip = pb_trip(t.m, NULL, t.input, 0, 1, 4);
    mb_dynamic(t.m, 0, L, 1, trip, 1);
    mb_loop(t.m, 0, L, 2, 3);
    READ_INTO(t, t.param, 0, W_(t.lm, mb_at(0))); /* would fault */
    mb_end(t.m, 0, TW_ENGINE_LOAD);
    mb_end(t.m, 0, TW_ENGINE_LOAD);
    mb_op(t.m, 0, L, SEM_INC, S_(0), C_(0), I_(1));
    mb_op(t.m, 0, M, SEM_WAIT, S_(0), A_(tw_affine_plus(mb_at(1), 0, 1)));
    mb_freeze(t.m);
    struct mr_case c = {t.m, NULL, NULL, 3};
    struct mr_result r = mr_strict(&c, TW_SCHED_CANONICAL, 0);
    assert_int_equal(r.rc, 0);
    free(r.bytes);
    pb_free(t.m);
}

static void a_faulted_machine_does_not_run_on(void **state) {
    (void)state;
    struct small t = small_create();
    mb_op(t.m, 0, M, WAIT, F_(t.lm), I_(1));
    mb_freeze(t.m);
    struct tw_strict *s = NULL;
    struct tw_fault f;
    void *memory;
    assert_int_equal(mb_strict(t.m, &memory, &s, &f), 0);
    assert_int_equal(tw_strict_step(s, TW_SCHED_CANONICAL, 0, &f), TW_E_FAULT);
    assert_string_equal(f.what, "Deadlock");
    assert_int_equal(tw_strict_step(s, TW_SCHED_CANONICAL, 0, &f), TW_E_FAULT);
    assert_string_equal(f.what, "Faulted");
    free(memory);
    pb_free(t.m);
}

static void state_written_in_one_step_may_be_read_in_the_next(void **state) {
    (void)state;
    struct small t = small_create();
    mb_op(t.m, 0, M, RESERVE, F_(t.ms), I_(1));
    mb_op(t.m, 0, M, ATTN_INIT, W_(t.ms, mb_at(0)), I_(1), I_(14), X_(TW_NONE, 1));
    mb_op(t.m, 0, M, PUSH, F_(t.ms), I_(1));
    mb_op(t.m, 0, M, SEM_WAIT, S_(0), A_(tw_affine_plus(mb_at(1), 0, 1)));
    mb_op(t.m, 0, S, WAIT, F_(t.ms), I_(1));
    WRITE_TO(t, R_(t.ms, mb_at(0)), t.fresh);
    mb_op(t.m, 0, S, POP, F_(t.ms), I_(1));
    mb_op(t.m, 0, S, SEM_INC, S_(0), C_(0), I_(1));
    mb_op(t.m, 0, L, SEM_WAIT, S_(0), A_(tw_affine_plus(mb_at(1), 0, 1)));
    load_page(&t, t.fresh);
    mb_op(t.m, 0, M, WAIT, F_(t.lm), I_(1));
    mb_op(t.m, 0, M, POP, F_(t.lm), I_(1));
    mb_freeze(t.m);
    struct mr_case c = {t.m, NULL, NULL, 2};
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct mr_result r = mr_strict(&c, TW_SCHED_RANDOM, seed);
        assert_int_equal(r.rc, 0);
        free(r.bytes);
    }
    pb_free(t.m);
}

static void decoder_input(void *ctx, uint32_t step) {
    static const uint32_t pos[] = {0, 3, 4, 8, 62, 64}, rows[] = {3, 1, 4, 2, 4, 4};
    td_input(ctx, pos[step], rows[step]);
}

static void every_scheduler_gives_the_decoder_the_same_bytes(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 1});
    struct mr_case c = {d.m, decoder_input, &d, 6};
    struct mr_result canonical = mr_strict(&c, TW_SCHED_CANONICAL, 0);
    assert_int_equal(canonical.rc, 0);
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct mr_result random = mr_strict(&c, TW_SCHED_RANDOM, seed * 1000);
        assert_int_equal(random.rc, 0);
        assert_memory_equal(random.bytes, canonical.bytes, canonical.size);
        free(random.bytes);
    }
    free(canonical.bytes);
    pb_free(d.m);
}

static void feeding_in_chunks_equals_feeding_one_by_one(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 1});
    float last[2][32];
    for (uint32_t rows = 1; rows <= 4; rows += 3) {
        struct tw_strict *s = NULL;
        struct tw_fault f;
        void *memory;
        mb_rewind(d.m);
        assert_int_equal(mb_strict(d.m, &memory, &s, &f), 0);
        for (uint32_t pos = 0; pos < 8; pos += rows) {
            td_input(&d, pos, rows);
            assert_int_equal(tw_strict_step(s, TW_SCHED_CANONICAL, 0, &f), 0);
        }
        memcpy(last[rows / 4], (float *)mb_data(d.m, d.out, 0) + (size_t)(rows - 1) * d.dim,
               sizeof last[0]);
        free(memory);
    }
    assert_memory_equal(last[0], last[1], sizeof last[0]);
    pb_free(d.m);
}

static void too_little_memory_reports_the_size_needed(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 1});
    struct tw_arena arena = {NULL, 0, 0};
    struct tw_strict *s = NULL;
    struct tw_fault f;
    assert_int_equal(tw_strict_init(&d.m->config, &arena, &s, &f), TW_E_NOMEM);
    size_t need = arena.used;
    assert_true(need > 10000);
    assert_int_equal(f.need, need);
    arena = (struct tw_arena){malloc(need), need / 2, 0};
    assert_int_equal(tw_strict_init(&d.m->config, &arena, &s, &f), TW_E_NOMEM);
    assert_true(arena.used > need / 2 && arena.used <= need);
    arena.size = need;
    arena.used = 0;
    assert_int_equal(tw_strict_init(&d.m->config, &arena, &s, &f), 0);
    free(arena.base);
    pb_free(d.m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_beyond_a_tensor_is_found),
        cmocka_unit_test(an_instance_that_has_no_row_is_found),
        cmocka_unit_test(a_write_beyond_a_buffer_is_found),
        cmocka_unit_test(a_region_that_wraps_around_the_ring_is_found),
        cmocka_unit_test(a_cache_position_beyond_the_context_is_found),
        cmocka_unit_test(bytes_never_written_are_found_when_read),
        cmocka_unit_test(a_half_written_page_is_found_when_read_whole),
        cmocka_unit_test(state_without_initial_value_is_undefined_until_written),
        cmocka_unit_test(the_bytes_of_the_last_step_do_not_count_as_written),
        cmocka_unit_test(a_push_of_an_unwritten_page_is_found),
        cmocka_unit_test(a_write_to_a_param_is_found),
        cmocka_unit_test(a_fifo_used_by_a_third_engine_is_found),
        cmocka_unit_test(a_consumer_that_writes_its_page_is_found),
        cmocka_unit_test(scratch_of_two_engines_is_found),
        cmocka_unit_test(a_write_to_a_page_not_reserved_is_found),
        cmocka_unit_test(a_push_beyond_the_reservation_is_found),
        cmocka_unit_test(a_reservation_beyond_the_capacity_is_found),
        cmocka_unit_test(a_read_of_a_page_not_waited_for_is_found),
        cmocka_unit_test(a_pop_without_a_wait_is_found),
        cmocka_unit_test(a_deadlock_names_the_first_waiter_and_what_it_waits_for),
        cmocka_unit_test(pages_left_behind_are_found_at_the_end_of_the_step),
        cmocka_unit_test(an_op_of_another_engine_is_refused),
        cmocka_unit_test(an_unknown_buffer_is_refused),
        cmocka_unit_test(a_truncated_stream_is_refused),
        cmocka_unit_test(a_loop_that_does_not_close_is_refused),
        cmocka_unit_test(a_buffer_outside_sram_is_refused),
        cmocka_unit_test(an_id_outside_the_table_is_found),
        cmocka_unit_test(a_trip_out_of_range_refuses_only_the_step),
        cmocka_unit_test(a_trip_is_signed_and_is_clamped_or_refused),
        cmocka_unit_test(a_loop_of_no_iterations_skips_its_body_and_nested_loops),
        cmocka_unit_test(a_faulted_machine_does_not_run_on),
        cmocka_unit_test(state_written_in_one_step_may_be_read_in_the_next),
        cmocka_unit_test(every_scheduler_gives_the_decoder_the_same_bytes),
        cmocka_unit_test(feeding_in_chunks_equals_feeding_one_by_one),
        cmocka_unit_test(too_little_memory_reports_the_size_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
