/* SPDX-License-Identifier: Apache-2.0
 *
 * What lives in SRAM: windows of Params, State, several memory classes. Strict execution and replay
 * must leave the bytes that the tensors say, whatever of them is in SRAM.
 */
#include "tests/support/machine_run.h"
#include "tests/support/test.h"

enum { STEPS = 50 };

/* Runs strictly, under two schedulers, and by replay; checks that all agree and returns the bytes,
 * which the caller frees. */
static uint8_t *run_all(struct pb *m, uint32_t steps, uint32_t threads) {
    struct mr_case c = {m, NULL, NULL, steps};
    struct mr_result strict = mr_strict(&c, TW_SCHED_CANONICAL, 0),
                     random = mr_strict(&c, TW_SCHED_RANDOM, 7), fast = mr_fast(&c, threads, NULL);
    if (strict.rc || random.rc || fast.rc) {
        fail_msg("strict %s, random %s, fast %s", strict.fault.what, random.fault.what,
                 fast.fault.what);
    }
    assert_memory_equal(strict.bytes, random.bytes, strict.size);
    assert_memory_equal(strict.bytes, fast.bytes, strict.size);
    free(random.bytes);
    free(fast.bytes);
    return strict.bytes;
}

/* ---- windows of a Param ---- */

static uint32_t pinned(struct pb *m, uint32_t tensor, struct tw_window w) {
    uint64_t page = (w.rows * w.row_bytes + 63) / 64 * 64;
    uint32_t id = pb_buffer(m, 0, TW_BUF_RESIDENT, m->tensors[tensor].bind_count, page);
    m->buffers[id].tensor = tensor;
    m->buffers[id].window_first = w.first;
    m->buffers[id].window_stride = w.stride;
    m->buffers[id].window_rows = (uint32_t)w.rows;
    m->buffers[id].window_row_bytes = (uint32_t)w.row_bytes;
    return id;
}

/* Each page of the window goes to an output of its own; the expectation is cut out of the Param. */
static void check_window(struct tw_window w, uint32_t instances) {
    struct pb *m = mb_create(1, 1);
    uint32_t bytes = (uint32_t)(w.rows * w.row_bytes);
    uint32_t param = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 4, 64, instances),
             out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 1, bytes / 4, instances),
             buffer = pinned(m, param, w);
    uint64_t page = m->buffers[buffer].page_bytes;
    mb_fill(m, param);
    mb_loop(m, 0, S, 1, instances);
    mb_op(m, 0, S, WRITE, R_(buffer, tw_affine_plus(mb_at(0), 1, page)), I_(bytes),
          U_(out, tw_affine_plus(mb_at(0), 1, 1), mb_at(0)), I_(bytes), I_(bytes), X_(TW_NONE, 1));
    mb_end(m, 0, TW_ENGINE_STORE);
    mb_freeze(m);
    free(run_all(m, 2, 1));
    for (uint32_t i = 0; i < instances; i++) {
        for (uint64_t r = 0; r < w.rows; r++) {
            assert_memory_equal((uint8_t *)mb_data(m, out, i) + r * w.row_bytes,
                                (uint8_t *)mb_data(m, param, i) + w.first + r * w.stride,
                                w.row_bytes);
        }
    }
    pb_free(m);
}

static void a_window_holds_its_rows_of_each_instance(void **state) {
    (void)state;
    check_window((struct tw_window){.first = 256, .row_bytes = 512, .rows = 1}, 3);
    /* one that begins where a kernel may not read in place */
    check_window((struct tw_window){.first = 4, .row_bytes = 128, .rows = 1}, 2);
    /* columns of each row, with gaps */
    check_window((struct tw_window){.first = 128, .stride = 256, .row_bytes = 64, .rows = 4}, 3);
    check_window((struct tw_window){.first = 12, .stride = 256, .row_bytes = 20, .rows = 3}, 2);
    /* rows without gaps, as rows */
    check_window((struct tw_window){.first = 64, .stride = 64, .row_bytes = 64, .rows = 5}, 1);
}

/* A window that leaves its instance, or a page that is too small, never reaches a kernel. */
static void a_window_outside_its_instance_is_refused(void **state) {
    (void)state;
    static const struct tw_window bad[] = {
        {.first = 1024 - 64, .row_bytes = 128, .rows = 1},
        {.first = 0, .stride = 512, .row_bytes = 64, .rows = 3},
        {.first = UINT64_MAX - 32, .row_bytes = 64, .rows = 1},
        {.first = 0, .stride = UINT64_MAX / 2 + 1, .row_bytes = 64, .rows = 3},
        {.first = 0, .stride = 0, .row_bytes = 0, .rows = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pb *m = mb_create(1, 1);
        void *memory = NULL;
        struct tw_strict *s = NULL;
        struct tw_plan *plan = NULL;
        struct tw_fault fault;
        uint32_t param = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 4, 64, 1);
        uint32_t buffer = pinned(m, param, bad[i]);
        m->buffers[buffer].page_bytes = 4096;
        mb_freeze(m);
        assert_int_equal(mb_strict(m, &memory, &s, &fault), TW_E_FAULT);
        assert_string_equal(fault.what, "BadTable");
        free(memory);
        assert_int_equal(mb_plan(m, 1, &memory, &plan, &fault), TW_E_FAULT);
        free(memory);
        pb_free(m);
    }
}

/* ---- State ---- */

/* s[i] = s[i] * ... : each step adds a row of a Param to two instances of a State, and writes the
 * sum out. In DRAM the State passes through LOAD and STORE; in SRAM MATH changes it in place. */
struct counter {
    struct pb *m;
    uint32_t state, out;
};

static struct counter make_counter(bool in_sram) {
    struct pb *m = mb_create(1, 1);
    struct counter c = {m, mb_tensor(m, TW_ROLE_STATE, TW_INIT_ZERO, 1, 64, 2),
                        mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 1, 64, 2)};
    uint32_t param = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 1, 64, 2);
    uint32_t w = pb_fifo(m, 0, TW_ENGINE_LOAD, TW_ENGINE_MATH, 1, 256),
             r = pb_fifo(m, 0, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, 256),
             s = in_sram ? pinned(m, c.state, (struct tw_window){.row_bytes = 256, .rows = 1})
                         : pb_fifo(m, 0, TW_ENGINE_LOAD, TW_ENGINE_MATH, 1, 256);
    struct tw_affine i = tw_affine_plus(mb_at(0), 1, 1),
                     page = in_sram ? tw_affine_plus(mb_at(0), 1, 256) : mb_at(0);
    mb_fill(m, param);
    mb_loop(m, 0, L, 1, 2);
    mb_op(m, 0, L, RESERVE, F_(w), I_(1));
    mb_op(m, 0, L, READ, T_(param, i, mb_at(0)), W_(w, mb_at(0)), I_(1), I_(256), I_(256), I_(256));
    mb_op(m, 0, L, PUSH, F_(w), I_(1));
    if (!in_sram) {
        mb_op(m, 0, L, RESERVE, F_(s), I_(1));
        mb_op(m, 0, L, READ, T_(c.state, i, mb_at(0)), W_(s, mb_at(0)), I_(1), I_(256), I_(256),
              I_(256));
        mb_op(m, 0, L, PUSH, F_(s), I_(1));
    }
    mb_end(m, 0, TW_ENGINE_LOAD);
    mb_loop(m, 0, M, 1, 2);
    mb_op(m, 0, M, WAIT, F_(w), I_(1));
    if (!in_sram) {
        mb_op(m, 0, M, WAIT, F_(s), I_(1));
    }
    mb_op(m, 0, M, RESERVE, F_(r), I_(1));
    mb_op(m, 0, M, ADD, R_(s, page), I_(256), R_(w, mb_at(0)), I_(256), W_(r, mb_at(0)), I_(256),
          I_(64), X_(TW_NONE, 1));
    if (in_sram) { /* twice, so that it reads what it has just written */
        mb_op(m, 0, M, ADD, R_(s, page), I_(256), R_(w, mb_at(0)), I_(256), W_(s, page), I_(256),
              I_(64), X_(TW_NONE, 1));
    } else {
        mb_op(m, 0, M, POP, F_(s), I_(1));
    }
    mb_op(m, 0, M, PUSH, F_(r), I_(1));
    mb_op(m, 0, M, POP, F_(w), I_(1));
    mb_end(m, 0, TW_ENGINE_MATH);
    mb_loop(m, 0, S, 1, 2);
    mb_op(m, 0, S, WAIT, F_(r), I_(1));
    mb_op(m, 0, S, WRITE, R_(r, mb_at(0)), I_(256), U_(c.out, i, mb_at(0)), I_(256), I_(256),
          X_(TW_NONE, 1));
    if (!in_sram) {
        mb_op(m, 0, S, WRITE, R_(r, mb_at(0)), I_(256), U_(c.state, i, mb_at(0)), I_(256), I_(256),
              X_(TW_NONE, 1));
    }
    mb_op(m, 0, S, POP, F_(r), I_(1));
    mb_end(m, 0, TW_ENGINE_STORE);
    mb_freeze(m);
    return c;
}

static void state_in_sram_is_that_in_dram_over_many_steps(void **state) {
    (void)state;
    struct counter dram = make_counter(false), sram = make_counter(true);
    uint8_t *a = run_all(dram.m, STEPS, 1), *b = run_all(sram.m, STEPS, 1);
    assert_memory_equal(a, b, mr_kept_bytes(dram.m) * STEPS);
    float first, last;
    memcpy(&first, a + 4, 4);
    memcpy(&last, a + mr_kept_bytes(dram.m) * (STEPS - 1) + 4, 4);
    assert_true(first != 0 && last != first); /* it does add up */
    free(a);
    free(b);
    pb_free(dram.m);
    pb_free(sram.m);
}

/* Two sessions are two sets of binding rows; their steps alternate on one program's text. */
static void sessions_have_each_their_own_state(void **state) {
    (void)state;
    for (int fast = 0; fast < 2; fast++) {
        struct counter one = make_counter(true), two = make_counter(true);
        void *memory[2];
        struct tw_strict *s[2];
        struct tw_plan *plan[2];
        struct tw_fault fault;
        struct counter *c[2] = {&one, &two};
        for (int i = 0; i < 2; i++) {
            mb_rewind(c[i]->m);
            assert_int_equal(fast ? mb_plan(c[i]->m, 1, &memory[i], &plan[i], &fault)
                                  : mb_strict(c[i]->m, &memory[i], &s[i], &fault),
                             0);
        }
        for (uint32_t step = 0; step < 7; step++) { /* the second one every other time */
            for (int i = 0; i < (step % 2 ? 2 : 1); i++) {
                if (fast) {
                    assert_int_equal(tw_plan_begin(plan[i], &fault), 0);
                    mr_run_threads(plan[i], 1);
                } else {
                    assert_int_equal(tw_strict_step(s[i], TW_SCHED_CANONICAL, 0, &fault), 0);
                }
            }
        }
        for (int i = 0; i < 2; i++) {
            const float *w = mb_data(c[i]->m, 2, 0), *sum = mb_data(c[i]->m, one.state, 0);
            float expected = 0;
            for (int k = 0; k < (i ? 3 : 7); k++) {
                expected += w[5];
            }
            assert_true(sum[5] == expected && expected != 0);
            free(memory[i]);
        }
        pb_free(one.m);
        pb_free(two.m);
    }
}

/* A READ into the pages of a State must not make them an alias of what it read. */
static void a_read_fills_a_state_in_sram(void **state) {
    (void)state;
    struct pb *m = mb_create(1, 1);
    uint32_t param = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 1, 64, 1),
             s = mb_tensor(m, TW_ROLE_STATE, TW_INIT_ZERO, 1, 64, 1),
             b = pinned(m, s, (struct tw_window){.row_bytes = 256, .rows = 1}),
             sem = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    mb_fill(m, param);
    mb_op(m, 0, L, READ, T_(param, mb_at(0), mb_at(0)), W_(b, mb_at(0)), I_(1), I_(256), I_(256),
          I_(256));
    mb_op(m, 0, L, SEM_INC, S_(sem), C_(0), I_(1));
    mb_op(m, 0, M, SEM_WAIT, S_(sem), A_(tw_affine_plus(mb_at(1), 0, 1)));
    mb_op(m, 0, M, ADD, R_(b, mb_at(0)), I_(256), R_(b, mb_at(0)), I_(256), W_(b, mb_at(0)),
          I_(256), I_(64), X_(TW_NONE, 1));
    mb_freeze(m);
    free(run_all(m, 3, 1));
    const float *w = mb_data(m, param, 0), *twice = mb_data(m, s, 0);
    for (uint32_t i = 0; i < 64; i++) {
        assert_true(twice[i] == 2 * w[i]);
    }
    pb_free(m);
}

/* Without an initial value, State in SRAM is undefined until it is written, as in DRAM. */
static void unwritten_state_in_sram_is_a_fault(void **state) {
    (void)state;
    struct counter c = make_counter(true);
    void *memory;
    struct tw_strict *s;
    struct tw_fault fault;
    c.m->tensors[c.state].init = TW_INIT_NONE;
    assert_int_equal(mb_strict(c.m, &memory, &s, &fault), 0);
    assert_int_equal(tw_strict_step(s, TW_SCHED_CANONICAL, 0, &fault), TW_E_FAULT);
    assert_string_equal(fault.what, "Undefined");
    free(memory);
    pb_free(c.m);
}

/* ---- memory classes ---- */

/* MATH copies x to y and y to z; the three have the same offsets in three classes. */
static void equal_offsets_in_different_classes_are_different_bytes(void **state) {
    (void)state;
    struct pb *m = mb_create(2, 1);
    uint32_t param = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 1, 64, 1),
             out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 4, 64, 1);
    m->p.sram_bytes[1] = m->p.sram_bytes[2] = 4096;
    mb_fill(m, param);
    for (uint32_t site = 0; site < 2; site++) {
        uint32_t x = pb_fifo(m, site, TW_ENGINE_LOAD, TW_ENGINE_MATH, 1, 256),
                 y = pb_buffer(m, site, TW_BUF_SCRATCH, 1, 256),
                 z = pb_fifo(m, site, TW_ENGINE_MATH, TW_ENGINE_STORE, 2, 256);
        m->buffers[y].offset = m->buffers[z].offset = m->buffers[x].offset;
        m->buffers[y].mem_class = 1;
        m->buffers[z].mem_class = 2;
        mb_op(m, site, L, RESERVE, F_(x), I_(1));
        mb_op(m, site, L, READ, T_(param, mb_at(0), mb_at(0)), W_(x, mb_at(0)), I_(1), I_(256),
              I_(256), I_(256));
        mb_op(m, site, L, PUSH, F_(x), I_(1));
        mb_op(m, site, M, WAIT, F_(x), I_(1));
        mb_op(m, site, M, ADD, R_(x, mb_at(0)), I_(256), R_(x, mb_at(0)), I_(256), W_(y, mb_at(0)),
              I_(256), I_(64), X_(TW_NONE, 1));
        mb_op(m, site, M, RESERVE, F_(z), I_(2));
        mb_op(m, site, M, ADD, R_(x, mb_at(0)), I_(256), R_(y, mb_at(0)), I_(256), W_(z, mb_at(0)),
              I_(256), I_(64), X_(TW_NONE, 1));
        mb_op(m, site, M, COPY, R_(y, mb_at(0)), I_(256), W_(z, mb_at(256)), I_(256), I_(256),
              X_(TW_NONE, 1));
        mb_op(m, site, M, PUSH, F_(z), I_(2));
        mb_op(m, site, M, POP, F_(x), I_(1));
        mb_op(m, site, S, WAIT, F_(z), I_(2));
        for (uint32_t page = 0; page < 2; page++) {
            mb_op(m, site, S, WRITE, R_(z, mb_at(page * 256)), I_(256),
                  U_(out, mb_at(0), mb_at((site * 2 + page) * 256)), I_(256), I_(256),
                  X_(TW_NONE, 1));
        }
        mb_op(m, site, S, POP, F_(z), I_(2));
    }
    mb_freeze(m);
    free(run_all(m, 2, 2));
    const float *w = mb_data(m, param, 0), *to = mb_data(m, out, 0);
    for (uint32_t i = 0; i < 256; i++) {
        assert_true(to[i] == (i / 64 % 2 ? 2 * w[i % 64] : w[i % 64] + 2 * w[i % 64]));
    }
    pb_free(m);
}

static void a_class_that_the_machine_does_not_have_is_refused(void **state) {
    (void)state;
    static const uint8_t bad[] = {1, 3, 4, 255};
    for (size_t i = 0; i < sizeof bad; i++) {
        struct pb *m = mb_create(1, 1);
        void *memory;
        struct tw_strict *s;
        struct tw_fault fault;
        m->buffers[pb_buffer(m, 0, TW_BUF_SCRATCH, 1, 256)].mem_class = bad[i];
        mb_freeze(m);
        assert_int_equal(mb_strict(m, &memory, &s, &fault), TW_E_FAULT);
        assert_string_equal(fault.what, "BadTable");
        free(memory);
        pb_free(m);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_holds_its_rows_of_each_instance),
        cmocka_unit_test(a_window_outside_its_instance_is_refused),
        cmocka_unit_test(state_in_sram_is_that_in_dram_over_many_steps),
        cmocka_unit_test(sessions_have_each_their_own_state),
        cmocka_unit_test(a_read_fills_a_state_in_sram),
        cmocka_unit_test(unwritten_state_in_sram_is_a_fault),
        cmocka_unit_test(equal_offsets_in_different_classes_are_different_bytes),
        cmocka_unit_test(a_class_that_the_machine_does_not_have_is_refused),
    };
    return cmocka_run_group_tests_name("sram", tests, NULL, NULL);
}
