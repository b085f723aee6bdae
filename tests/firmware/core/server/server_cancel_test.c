/* SPDX-License-Identifier: Apache-2.0
 *
 * What the command server answers when a request is cancelled: in the middle of a step, between two
 * steps, before the first; and in the requests that take as long as memory is large.
 */
#include "tests/support/server_client.h"
#include "tests/support/test.h"

static struct client c;
static struct client_bigram g;
static uint32_t looks, cancel_at; /* looks so far; from which on the answer is yes (0: never) */

static bool asked(void *ctx) {
    (void)ctx;
    return ++looks >= cancel_at && cancel_at;
}

/* From the n-th look on the server is asked to cancel; 0: never. */
static void cancel_from(uint32_t n) {
    looks = 0;
    cancel_at = n;
}

static void open_server(enum tw_wire_mode mode) {
    client_init(&c, UINT64_C(16) << 20);
    c.server.cancel.interrupt.is_requested = asked;
    cancel_from(0);
    assert_int_equal(client_load_bigram(&c, mode, &g), 0);
    cancel_from(0);
}

static int run(uint32_t n_steps) {
    static const uint32_t ids[BIGRAM_ROWS] = {1};
    float logits[BIGRAM_COLS];
    return client_run_bigram(&c, &g, ids, 1, n_steps, logits);
}

static void expect_nothing_queued(void) {
    assert_int_equal(client_call(&c, TW_WIRE_EVENT, 0, NULL, 0), 0);
    assert_int_equal(c.answer.length, 0);
    assert_int_equal(c.server.counters.faults, 0);
}

static void a_step_that_is_cancelled_breaks_its_program(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        open_server((enum tw_wire_mode)mode);
        assert_int_equal(run(1), 0);
        uint32_t whole = looks;
        assert_true(whole >= 2);
        for (uint32_t at = 2; at <= whole; at++) { /* every look in the step; the first is before */
            cancel_from(at);
            assert_int_equal(run(1), TW_E_INTERRUPTED);
            assert_string_equal(client_failure(&c)->what, "Cancelled");
            assert_int_equal(client_failure(&c)->program, g.program);
            assert_true((client_failure(&c)->site == 0) == (mode == TW_WIRE_STRICT));
            cancel_from(0);
            assert_int_equal(run(1), TW_E_FAULT);
            assert_string_equal(client_failure(&c)->what,
                                "a step of the program was cancelled; it must be loaded again");
            expect_nothing_queued();
            assert_int_equal(client_call(&c, TW_WIRE_UNLOAD, g.program, NULL, 0), 0);
            assert_int_equal(client_bind_bigram(&c, (enum tw_wire_mode)mode, &g), 0);
            assert_int_equal(run(1), 0);
        }
        client_finish(&c);
    }
}

static void a_run_that_is_cancelled_before_a_step_leaves_its_program_whole(void **state) {
    (void)state;
    open_server(TW_WIRE_FAST);
    assert_int_equal(run(2), 0);
    uint32_t step = looks / 2;
    cancel_from(1);
    assert_int_equal(run(2), TW_E_INTERRUPTED);
    assert_string_equal(client_failure(&c)->what, "cancelled before the step began");
    assert_int_equal(client_failure(&c)->have, 0);
    cancel_from(step + 1);
    assert_int_equal(run(2), TW_E_INTERRUPTED);
    assert_int_equal(client_failure(&c)->have, 1);
    cancel_from(0);
    assert_int_equal(run(1), 0);
    tw_server_cancel(&c.server, true); /* the word does the same */
    assert_int_equal(run(1), TW_E_INTERRUPTED);
    tw_server_cancel(&c.server, false);
    assert_int_equal(run(1), 0);
    expect_nothing_queued();
    client_finish(&c);
}

struct greedy_request {
    struct tw_wire_run run;
    struct tw_wire_input in[2];
    uint32_t ids[BIGRAM_ROWS], rows, pad;
    struct tw_wire_greedy greedy;
};

static const struct tw_wire_tokens *run_greedy(uint32_t n) {
    struct greedy_request q = {
        .run = {.program = g.program, .n_steps = n, .n_inputs = 2, .flags = TW_WIRE_RUN_GREEDY},
        .in = {{.address = g.address[BIGRAM_IDS], .bytes = BIGRAM_ROWS * 4},
               {.address = g.address[BIGRAM_VALID], .bytes = 4}},
        .rows = 1,
        .greedy = {.logits = g.address[BIGRAM_LOGITS],
                   .n_vocab = BIGRAM_COLS,
                   .limit = 100,
                   .pos = TW_NONE,
                   .end = TW_NONE}};
    assert_int_equal(client_call(&c, TW_WIRE_RUN, 0, &q, sizeof q), 0);
    return c.answer.payload;
}

static void a_greedy_run_returns_the_tokens_before_the_cancel(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        open_server((enum tw_wire_mode)mode);
        for (uint32_t r = 0; r < BIGRAM_VOCAB; r++) {
            g.b.table[r][(r + 1) % BIGRAM_VOCAB] = 1e6f; /* ids of the vocabulary only */
        }
        assert_int_equal(
            client_call(&c, TW_WIRE_WRITE, g.address[BIGRAM_TABLE], g.b.table, sizeof g.b.table),
            0);
        assert_int_equal(run_greedy(4)->ended, TW_WIRE_ENDED_COUNT);
        uint32_t step = looks / 4;
        cancel_from(2 * step + 1); /* between two steps */
        const struct tw_wire_tokens *t = run_greedy(4);
        assert_int_equal(t->ended, TW_WIRE_ENDED_ABORT);
        assert_int_equal(t->n_tokens, 2);
        cancel_from(2 * step + 2); /* in a step */
        t = run_greedy(4);
        assert_int_equal(t->ended, TW_WIRE_ENDED_FAULT);
        assert_int_equal(t->n_tokens, 2);
        assert_int_equal(t->failure.code, TW_E_INTERRUPTED);
        assert_string_equal(t->failure.what, "Cancelled");
        cancel_from(0);
        assert_int_equal(run(1), TW_E_FAULT);
        expect_nothing_queued();
        client_finish(&c);
    }
}

static void fill_and_hash_end_before_their_end(void **state) {
    (void)state;
    open_server(TW_WIRE_FAST);
    struct tw_wire_range q = {.bytes = (3u << 20) + 5, .value = 7};
    uint64_t address = client_alloc(&c, q.bytes);
    assert_int_equal(client_call(&c, TW_WIRE_FILL, address, &q, sizeof q), 0);
    assert_int_equal(client_call(&c, TW_WIRE_HASH, address, &q, sizeof q), 0);
    const struct tw_wire_hash *h = c.answer.payload;
    uint8_t *same = malloc((size_t)q.bytes);
    memset(same, 7, (size_t)q.bytes);
    assert_int_equal(h->crc32c, tw_wire_crc32c(0, same, (size_t)q.bytes));
    free(same);
    const enum tw_wire_opcode codes[] = {TW_WIRE_FILL, TW_WIRE_HASH};
    for (int i = 0; i < 2; i++) {
        cancel_from(3);
        assert_int_equal(client_call(&c, codes[i], address, &q, sizeof q), TW_E_INTERRUPTED);
        assert_int_equal(client_failure(&c)->have, 2u << 20);
        assert_int_equal(client_failure(&c)->need, q.bytes);
    }
    cancel_from(1);
    assert_int_equal(client_call(&c, TW_WIRE_UNLOAD, g.program, NULL, 0), 0);
    assert_int_equal(client_bind_bigram(&c, TW_WIRE_FAST, &g), TW_E_INTERRUPTED);
    cancel_from(0);
    assert_int_equal(client_bind_bigram(&c, TW_WIRE_FAST, &g), 0);
    client_finish(&c);
    assert_int_equal(c.live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_is_cancelled_breaks_its_program),
        cmocka_unit_test(a_run_that_is_cancelled_before_a_step_leaves_its_program_whole),
        cmocka_unit_test(a_greedy_run_returns_the_tokens_before_the_cancel),
        cmocka_unit_test(fill_and_hash_end_before_their_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
