/* SPDX-License-Identifier: Apache-2.0
 *
 * What the proof assumes of a host (loader/README.md): each promise is broken, and the firmware
 * refuses the step; then its enforcer is taken away, and the harm is there.
 */
#include "firmware/core/plan/plan.h"
#include "firmware/core/strict/strict.h"
#include "tests/support/machine_run.h"
#include "tests/support/server_client.h"
#include "tests/support/test.h"
#include "tests/support/tiny_decoder.h"

/* ---- ids: a table of 4 rows, and behind it a row that no id may name ---- */

enum { COLS = 16, ROW = COLS * 4, IDS_ROWS = 2 };

struct lookup {
    struct pb *m;
    uint32_t ids, table, behind, out;
    struct tw_cancel host; /* writes to the Inputs in the middle of a step */
    int32_t late_id;       /* what it writes; -1: nothing */
    struct tw_strict *strict;
    struct tw_plan *plan;
    void *memory;
};

static bool write_late_id(void *ctx) {
    struct lookup *l = ctx;
    if (l->late_id >= 0) {
        mb_set_i32(l->m, l->ids, 0, l->late_id);
    }
    return false;
}

static void lookup_create(struct lookup *l, bool fast) {
    struct tw_fault f;
    memset(l, 0, sizeof *l);
    struct pb *m = l->m = mb_create(1, 1);
    l->late_id = -1;
    l->ids = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, 1, IDS_ROWS, 1);
    l->table = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 4, COLS, 1);
    l->behind = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 1, COLS, 1);
    l->out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, IDS_ROWS, COLS, 1);
    mb_fill(m, l->table);
    mb_fill(m, l->behind);
    uint32_t row = pb_fifo(m, 0, TW_ENGINE_LOAD, TW_ENGINE_STORE, 1, IDS_ROWS * ROW);
    mb_op(m, 0, L, RESERVE, F_(row), I_(1));
    mb_op(m, 0, L, GATHER, T_(l->table, mb_at(0), mb_at(0)), T_(l->ids, mb_at(0), mb_at(0)),
          W_(row, mb_at(0)), I_(ROW), I_(COLS), X_(TW_NONE, IDS_ROWS));
    mb_op(m, 0, L, PUSH, F_(row), I_(1));
    mb_op(m, 0, S, WAIT, F_(row), I_(1));
    mb_op(m, 0, S, WRITE, R_(row, mb_at(0)), I_(ROW), U_(l->out, mb_at(0), mb_at(0)), I_(ROW),
          I_(ROW), X_(TW_NONE, IDS_ROWS));
    mb_op(m, 0, S, POP, F_(row), I_(1));
    mb_freeze(m);
    l->host.interrupt.is_requested = write_late_id;
    l->host.interrupt.ctx = l;
    m->config.cancel = &l->host;
    assert_int_equal(fast ? mb_plan(m, 1, &l->memory, &l->plan, &f)
                          : mb_strict(m, &l->memory, &l->strict, &f),
                     0);
}

static void lookup_free(struct lookup *l) {
    free(l->memory);
    pb_free(l->m);
}

static int lookup_step(struct lookup *l, int32_t first_id, struct tw_fault *f) {
    mb_set_i32(l->m, l->ids, 0, first_id);
    if (l->strict) {
        return tw_strict_step(l->strict, TW_SCHED_CANONICAL, 0, f);
    }
    int rc = tw_plan_begin(l->plan, f);
    if (rc == 0) {
        tw_plan_run(l->plan, 0, NULL, NULL);
    }
    return rc;
}

static void expect_row(struct lookup *l, uint32_t tensor, uint32_t row) {
    assert_memory_equal(mb_data(l->m, l->out, 0), (uint8_t *)mb_data(l->m, tensor, 0) + row * ROW,
                        ROW);
}

static void ids_are_rows_of_their_table(void **state) {
    (void)state;
    for (int fast = 0; fast < 2; fast++) {
        struct lookup l;
        struct tw_fault f;
        lookup_create(&l, fast);
        assert_int_equal(lookup_step(&l, 3, &f), 0);
        expect_row(&l, l.table, 3);
        assert_int_equal(lookup_step(&l, 4, &f), TW_E_FAULT);
        assert_string_equal(f.what, "IdOutOfRange");
        if (fast) { /* without the check the id reads what lies behind the table */
            l.plan->checks.n_ids = 0;
            assert_int_equal(lookup_step(&l, 4, &f), 0);
            expect_row(&l, l.behind, 0);
        }
        lookup_free(&l);
    }
}

static void inputs_do_not_change_while_a_step_runs(void **state) {
    (void)state;
    for (int fast = 0; fast < 2; fast++) {
        struct lookup l;
        struct tw_fault f;
        lookup_create(&l, fast);
        l.late_id = 1000000; /* the host has the memory, and writes when the check is over */
        assert_int_equal(lookup_step(&l, 2, &f), 0);
        expect_row(&l, l.table, 2);
        if (!fast) { /* without the copy it is the late id that is used */
            l.strict->inputs[l.ids] = NULL;
            assert_int_equal(lookup_step(&l, 2, &f), TW_E_FAULT);
            assert_string_equal(f.what, "IdOutOfRange");
            assert_int_equal(f.have, 1000000);
        }
        lookup_free(&l);
    }
}

/* ---- positions ---- */

static void positions_stay_inside_the_cache(void **state) {
    struct td d = td_create((struct td_options){.width = 1, .height = 1});
    struct tw_plan *plan = NULL;
    struct tw_fault f;
    void *memory;
    (void)state;
    assert_int_equal(mb_plan(d.m, 1, &memory, &plan, &f), 0);
    td_input(&d, TD_CTX - 1, 1);
    mb_set_i32(d.m, d.rows_in, 0, 2);
    assert_int_equal(tw_plan_begin(plan, &f), TW_E_FAULT);
    assert_string_equal(f.what, "WriteOutOfRange");
    struct tw_strict *strict = NULL;
    void *strict_memory;
    assert_int_equal(mb_strict(d.m, &strict_memory, &strict, &f), 0);
    assert_int_equal(tw_strict_step(strict, TW_SCHED_CANONICAL, 0, &f), TW_E_FAULT);
    assert_string_equal(f.what, "WriteOutOfRange");
    /* Without the check the last layer's keys run over into the first values. */
    static const uint8_t zeros[64];
    mb_rewind(d.m);
    td_input(&d, TD_CTX - 2, 2);
    assert_int_equal(tw_plan_begin(plan, &f), 0);
    tw_plan_run(plan, 0, NULL, NULL);
    assert_memory_equal(mb_data(d.m, d.values, 0), zeros, sizeof zeros);
    plan->checks.n_pos = 0;
    uint8_t *before = malloc(MB_DRAM);
    uint32_t changed = 0;
    mb_rewind(d.m);
    memcpy(before, d.m->dram, MB_DRAM);
    td_input(&d, TD_CTX - 1, 1);
    mb_set_i32(d.m, d.rows_in, 0, 2);
    assert_int_equal(tw_plan_begin(plan, &f), 0);
    tw_plan_run(plan, 0, NULL, NULL);
    const uint8_t *behind = mb_data(d.m, d.values, 0);
    for (size_t i = 0; i < d.m->tensors[d.values].bytes / 2;
         i++) { /* positions of its first half */
        changed += behind[i] != before[(size_t)(behind - d.m->dram) + i];
    }
    assert_true(changed > 0);
    free(before);
    free(memory);
    free(strict_memory);
    pb_free(d.m);
}

/* `end` says how many positions attention looks at. Any value that its trip admits only reads other
 * blocks of keys and values: strict execution checks each access. */
static void another_end_touches_nothing_else(void **state) {
    (void)state;
    for (int32_t end = 0; end <= TD_CTX; end += 16) {
        struct td d = td_create((struct td_options){.width = 2, .height = 1});
        struct tw_strict *strict = NULL;
        struct tw_fault f;
        void *memory;
        assert_int_equal(mb_strict(d.m, &memory, &strict, &f), 0);
        td_input(&d, 70, 2);
        mb_set_i32(d.m, d.end_in, 0, end);
        if (tw_strict_step(strict, TW_SCHED_CANONICAL, 0, &f)) {
            fail_msg("end %d: %s", end, f.what);
        }
        free(memory);
        pb_free(d.m);
    }
}

/* ---- counts ---- */

static void a_last_row_has_rows(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        static struct client c;
        struct client_bigram g;
        float logits[BIGRAM_COLS];
        const uint32_t ids[BIGRAM_ROWS] = {1, 2, 3, 4};
        client_init(&c, UINT64_C(1) << 20);
        assert_int_equal(client_load_bigram(&c, (enum tw_wire_mode)mode, &g), 0);
        assert_int_equal(client_run_bigram(&c, &g, ids, 2, 1, logits), 0);
        assert_int_equal(client_run_bigram(&c, &g, ids, 0, 1, logits), TW_E_FAULT);
        assert_string_equal(client_failure(&c)->what, "InputRange");
        assert_int_equal(client_run_bigram(&c, &g, ids, 3, 1, logits), 0);
        assert_memory_equal(logits, g.b.table[3], sizeof logits);
        /* Without the minimum of its trip the step reads a row that nothing has written. */
        struct tw_server_program *p = &c.server.programs[g.program];
        *(p->strict ? p->strict->trip_min : p->plan->trip_min) = 0;
        int rc = client_run_bigram(&c, &g, ids, 0, 1, logits);
        if (mode == TW_WIRE_STRICT) {
            assert_int_equal(rc, TW_E_FAULT);
            assert_string_equal(client_failure(&c)->what, "Undefined");
        } else { /* a fast step does not see it: these are the logits of an earlier token */
            assert_int_equal(rc, 0);
            assert_memory_equal(logits, g.b.table[3], sizeof logits);
        }
        client_finish(&c);
    }
}

static void a_count_is_at_most_its_trips_maximum(void **state) {
    (void)state;
    static struct client c;
    struct client_bigram g;
    float logits[BIGRAM_COLS];
    const uint32_t ids[BIGRAM_ROWS] = {1, 2, 3, 4};
    static const uint32_t bad[] = {BIGRAM_ROWS + 1, 1000, INT32_MAX, UINT32_MAX};
    client_init(&c, UINT64_C(1) << 20);
    assert_int_equal(client_load_bigram(&c, TW_WIRE_STRICT, &g), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(client_run_bigram(&c, &g, ids, bad[i], 1, logits), TW_E_FAULT);
        assert_string_equal(client_failure(&c)->what, "InputRange");
    }
    /* Without it the step writes behind its page. */
    struct tw_server_program *p = &c.server.programs[g.program];
    struct tw_trip trip = p->program.trips[0];
    trip.max = 1000;
    struct tw_program loose = p->program;
    loose.trips = &trip;
    p->strict->config.program = &loose;
    assert_int_equal(client_run_bigram(&c, &g, ids, BIGRAM_ROWS + 1, 1, logits), TW_E_FAULT);
    assert_string_not_equal(client_failure(&c)->what, "InputRange");
    client_finish(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_rows_of_their_table),
        cmocka_unit_test(inputs_do_not_change_while_a_step_runs),
        cmocka_unit_test(positions_stay_inside_the_cache),
        cmocka_unit_test(another_end_touches_nothing_else),
        cmocka_unit_test(a_last_row_has_rows),
        cmocka_unit_test(a_count_is_at_most_its_trips_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
