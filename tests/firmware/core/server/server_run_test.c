/* SPDX-License-Identifier: Apache-2.0
 *
 * Greedy runs of the command server: tokens that the device chooses and feeds by itself, where it
 * stops, and inconsistent requests.
 */
#include "tests/support/server_client.h"
#include "tests/support/test.h"
#include "tilewright/numerics.h"

#include <math.h>

/* A bigram whose likeliest successors the test chooses; two words of memory are position and end,
 * one the abort word. */
struct fixture {
    struct client c;
    struct client_bigram g;
    uint64_t pos, end, abort;
    uint32_t runs, abort_after; /* fast steps; 0: never */
};

static struct fixture f;

static void set_word(uint64_t address, uint32_t value) {
    assert_int_equal(client_call(&f.c, TW_WIRE_WRITE, address, &value, sizeof value), 0);
}

static uint32_t get_word(uint64_t address) {
    struct tw_wire_range q = {.bytes = 4};
    uint32_t value;
    assert_int_equal(client_call(&f.c, TW_WIRE_READ, address, &q, sizeof q), 0);
    memcpy(&value, f.c.answer.payload, sizeof value);
    return value;
}

static void open_fixture(enum tw_wire_mode mode) {
    memset(&f, 0, sizeof f);
    client_init(&f.c, UINT64_C(1) << 20);
    assert_int_equal(client_load_bigram(&f.c, mode, &f.g), 0);
    f.pos = client_alloc(&f.c, 4);
    f.end = client_alloc(&f.c, 4);
    f.abort = client_alloc(&f.c, 4);
}

static void close_fixture(void) {
    client_finish(&f.c);
    assert_int_equal(f.c.live, 0);
}

/* Logits after token r: those of the row. */
static void set_row(uint32_t r, const float *logits) {
    memcpy(f.g.b.table[r], logits, sizeof f.g.b.table[r]);
    assert_int_equal(client_call(&f.c, TW_WIRE_WRITE, f.g.address[BIGRAM_TABLE], f.g.b.table,
                                 sizeof f.g.b.table),
                     0);
}

static void set_next(uint32_t r, uint32_t next) {
    float logits[BIGRAM_COLS];
    for (uint32_t i = 0; i < BIGRAM_COLS; i++) {
        logits[i] = i == next ? 1.0f : -(float)i;
    }
    set_row(r, logits);
}

/* 0 -> 3 -> 6 -> 1 -> 4 -> 7 -> 2 -> 5 -> 0 */
static void set_cycle(void) {
    for (uint32_t r = 0; r < BIGRAM_VOCAB; r++) {
        set_next(r, (r + 3) % BIGRAM_VOCAB);
    }
}

struct greedy_request {
    struct tw_wire_run run;
    struct tw_wire_input in[4];
    uint32_t ids[BIGRAM_ROWS], rows, pos, end, pad;
    struct tw_wire_greedy greedy;
};
TW_STATIC_ASSERT(sizeof(struct greedy_request) == 24 + 64 + 32 + 56, "greedy request");

static struct greedy_request request(uint32_t id, uint32_t n, uint32_t pos) {
    return (struct greedy_request){
        .run = {.program = f.g.program, .n_steps = n, .n_inputs = 4, .flags = TW_WIRE_RUN_GREEDY},
        .in = {{.address = f.g.address[BIGRAM_IDS], .bytes = BIGRAM_ROWS * 4},
               {.address = f.g.address[BIGRAM_VALID], .bytes = 4},
               {.address = f.pos, .bytes = 4},
               {.address = f.end, .bytes = 4}},
        .ids = {id},
        .rows = 1,
        .pos = pos,
        .end = pos + 1,
        .greedy = {.logits = f.g.address[BIGRAM_LOGITS],
                   .abort = f.abort,
                   .n_vocab = BIGRAM_COLS,
                   .limit = 100,
                   .ids = 0,
                   .pos = 2,
                   .end = 3}};
}

/* Sends it; the answer's tokens must be these, with nothing after them. */
static const struct tw_wire_tokens *run(const struct greedy_request *q, enum tw_wire_ended ended,
                                        uint32_t n, const uint32_t *tokens) {
    assert_int_equal(client_call(&f.c, TW_WIRE_RUN, 0, q, sizeof *q), 0);
    const struct tw_wire_tokens *a = f.c.answer.payload;
    const uint32_t *got = (const uint32_t *)(const void *)(a + 1);
    assert_int_equal(f.c.answer.length, sizeof *a + q->run.n_steps * 4);
    assert_int_equal(a->ended, ended);
    assert_int_equal(a->n_tokens, n);
    for (uint32_t i = 0; i < q->run.n_steps; i++) {
        assert_int_equal(got[i], i < n ? tokens[i] : TW_NONE);
    }
    return a;
}

static void a_run_feeds_its_own_tokens(void **state) {
    (void)state;
    static const uint32_t cycle[] = {3, 6, 1, 4, 7, 2, 5, 0, 3, 6};
    for (int mode = 0; mode < 2; mode++) {
        open_fixture((enum tw_wire_mode)mode);
        set_cycle();
        struct greedy_request q = request(0, 10, 5);
        const struct tw_wire_tokens *a = run(&q, TW_WIRE_ENDED_COUNT, 10, cycle);
        assert_int_equal(a->steps, 10);
        assert_true((a->ops > 0) == (mode == TW_WIRE_STRICT));
        assert_int_equal(a->failure.code, 0);
        /* The last token was not fed; the inputs are those of the last step. */
        assert_int_equal(get_word(f.g.address[BIGRAM_IDS]), 3);
        assert_int_equal(get_word(f.pos), 14);
        assert_int_equal(get_word(f.end), 15);
        assert_int_equal(f.c.server.counters.steps, 10);
        q = request(6, 1, 15);
        run(&q, TW_WIRE_ENDED_COUNT, 1, cycle + 2);
        q.greedy.pos = q.greedy.end = TW_NONE; /* a program without positions */
        q.greedy.limit = 0;
        q.greedy.abort = 0;
        q.run.n_steps = 3;
        run(&q, TW_WIRE_ENDED_COUNT, 3, cycle + 2);
        assert_int_equal(get_word(f.pos), 15);
        close_fixture();
    }
}

static void a_run_of_maximum_length_completes(void **state) {
    (void)state;
    open_fixture(TW_WIRE_FAST);
    set_cycle();
    uint32_t expected[TW_WIRE_MAX_TOKENS];
    for (uint32_t i = 0; i < TW_WIRE_MAX_TOKENS; i++) {
        expected[i] = (i + 1) * 3 % BIGRAM_VOCAB;
    }
    struct greedy_request q = request(0, TW_WIRE_MAX_TOKENS, 0);
    q.greedy.limit = TW_WIRE_MAX_TOKENS;
    run(&q, TW_WIRE_ENDED_COUNT, TW_WIRE_MAX_TOKENS, expected);
    q.run.n_steps++;
    assert_int_equal(client_call(&f.c, TW_WIRE_RUN, 0, &q, sizeof q), TW_E_PROTOCOL);
    q.run.n_steps = 0;
    assert_int_equal(client_call(&f.c, TW_WIRE_RUN, 0, &q, sizeof q), TW_E_PROTOCOL);
    close_fixture();
}

static void a_stop_id_ends_the_run_and_is_not_fed_back(void **state) {
    (void)state;
    static const uint32_t tokens[] = {3, 6, 1};
    open_fixture(TW_WIRE_FAST);
    set_cycle();
    struct greedy_request q = request(0, 9, 0);
    q.greedy.n_stops = 4;
    q.greedy.stop[0] = 20;
    q.greedy.stop[3] = 1;
    run(&q, TW_WIRE_ENDED_STOP, 3, tokens);
    assert_int_equal(get_word(f.g.address[BIGRAM_IDS]), 6);
    q.greedy.n_stops = 3; /* entries after them do not count */
    q.run.n_steps = 3;
    run(&q, TW_WIRE_ENDED_COUNT, 3, tokens);
    q.greedy.n_stops = 5;
    assert_int_equal(client_call(&f.c, TW_WIRE_RUN, 0, &q, sizeof q), TW_E_PROTOCOL);
    close_fixture();
}

static void no_step_begins_at_the_limit(void **state) {
    (void)state;
    static const uint32_t tokens[] = {3, 6, 1};
    open_fixture(TW_WIRE_STRICT);
    set_cycle();
    struct greedy_request q = request(0, 9, 97);
    run(&q, TW_WIRE_ENDED_LIMIT, 3, tokens);
    assert_int_equal(get_word(f.pos), 100);
    q = request(0, 9, 100);
    run(&q, TW_WIRE_ENDED_LIMIT, 0, NULL);
    q = request(0, 3, 97); /* as many as there is room for */
    run(&q, TW_WIRE_ENDED_COUNT, 3, tokens);
    close_fixture();
}

/* Acts as the host: sets the word while a step runs. */
static void run_and_abort(void *ctx, struct tw_plan *plan, uint32_t n_threads) {
    (void)ctx;
    (void)n_threads;
    tw_plan_run(plan, 0, NULL, NULL);
    if (++f.runs == f.abort_after) {
        *(uint32_t *)(uintptr_t)f.abort = 1;
    }
}

static void the_host_can_end_a_run_between_two_steps(void **state) {
    (void)state;
    static const uint32_t tokens[] = {3, 6, 1, 4};
    open_fixture(TW_WIRE_FAST);
    set_cycle();
    f.c.server.port.run = run_and_abort;
    f.abort_after = 4;
    struct greedy_request q = request(0, 200, 0);
    q.greedy.limit = 1000;
    run(&q, TW_WIRE_ENDED_ABORT, 4, tokens);
    run(&q, TW_WIRE_ENDED_ABORT, 0, NULL); /* still set */
    set_word(f.abort, 0);
    q.run.n_steps = 4;
    run(&q, TW_WIRE_ENDED_COUNT, 4, tokens);
    close_fixture();
}

static void equal_logits_go_to_the_lowest_id(void **state) {
    (void)state;
    float logits[BIGRAM_COLS];
    const float largest = 3.4028235e38f;
    open_fixture(TW_WIRE_FAST);
    for (uint32_t i = 0; i < BIGRAM_COLS; i++) {
        logits[i] = -largest;
    }
    set_row(0, logits);
    logits[5] = logits[2] = largest;
    set_row(1, logits);
    static const uint32_t zero = 0, two = 2;
    struct greedy_request q = request(0, 1, 0);
    run(&q, TW_WIRE_ENDED_COUNT, 1, &zero);
    q = request(1, 1, 0);
    run(&q, TW_WIRE_ENDED_COUNT, 1, &two);
    close_fixture();
}

/* One of them is enough, wherever it stands: the others cannot be trusted either. */
static void a_logit_that_is_not_finite_is_a_fault(void **state) {
    (void)state;
    static const uint32_t tokens[] = {4, 5}, at[] = {0, 3, BIGRAM_COLS - 1};
    const float bad[] = {__builtin_nanf(""), __builtin_inff(), -__builtin_inff()};
    for (int i = 0; i < 9; i++) {
        float logits[BIGRAM_COLS] = {1.0f};
        logits[at[i / 3]] = bad[i % 3];
        open_fixture(i % 2 ? TW_WIRE_STRICT : TW_WIRE_FAST);
        set_next(0, 4);
        set_next(4, 5);
        set_row(5, logits);
        struct greedy_request q = request(0, 9, 0);
        const struct tw_wire_tokens *a = run(&q, TW_WIRE_ENDED_FAULT, 2, tokens);
        assert_string_equal(a->failure.what, "NotFinite");
        assert_int_equal(a->failure.code, TW_E_FAULT);
        assert_int_equal(a->failure.site, TW_NONE);
        assert_int_equal(a->failure.have, at[i / 3]);
        assert_int_equal(a->failure.need, BIGRAM_COLS);
        q = request(0, 1, 0); /* the program itself did nothing wrong */
        run(&q, TW_WIRE_ENDED_COUNT, 1, tokens);
        close_fixture();
    }
}

/* A run that looks at each result says where the first bad one was made. */
static void a_checked_run_names_the_place_of_the_fault(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        float logits[BIGRAM_COLS] = {1.0f};
        logits[7] = __builtin_nanf("");
        open_fixture((enum tw_wire_mode)mode);
        set_cycle();
        struct greedy_request q = request(3, 1, 0);
        q.ids[1] = 5;
        q.rows = 2;
        q.run.flags = TW_WIRE_RUN_CHECK;
        uint32_t bytes = (uint32_t)offsetof(struct greedy_request, pad);
        assert_int_equal(client_call(&f.c, TW_WIRE_RUN, 0, &q, bytes), 0);
        set_row(5, logits);
        assert_int_equal(client_call(&f.c, TW_WIRE_RUN, 0, &q, bytes), TW_E_FAULT);
        const struct tw_wire_failure *why = f.c.answer.payload;
        assert_string_equal(why->what, "NotFinite");
        assert_int_equal(why->opcode, TW_OP_GATHER);
        assert_int_equal(why->site, 0);
        assert_int_equal(why->have, 1); /* the second row */
        close_fixture();
    }
}

static void a_fault_returns_the_tokens_before_it(void **state) {
    (void)state;
    static const uint32_t tokens[] = {3, 6, 9};
    for (int mode = 0; mode < 2; mode++) {
        open_fixture((enum tw_wire_mode)mode);
        set_next(0, 3);
        set_next(3, 6);
        set_next(6, 9); /* there is no row 9 */
        struct greedy_request q = request(0, 8, 0);
        const struct tw_wire_tokens *a = run(&q, TW_WIRE_ENDED_FAULT, 3, tokens);
        assert_int_equal(a->failure.code, TW_E_FAULT);
        assert_string_equal(a->failure.what, "IdOutOfRange");
        assert_int_equal(a->failure.have, 9);
        assert_int_equal(a->failure.program, f.g.program);
        assert_int_equal(f.c.server.counters.faults, 1);
        assert_int_equal(client_call(&f.c, TW_WIRE_EVENT, 0, NULL, 0), 0);
        const struct tw_wire_event *e = f.c.answer.payload;
        assert_int_equal(e->kind, TW_WIRE_EVENT_FAULT);
        assert_string_equal(e->failure.what, "IdOutOfRange");
        q = request(0, 1, 0);
        /* to be loaded again */
        assert_int_equal(client_call(&f.c, TW_WIRE_RUN, 0, &q, sizeof q), TW_E_FAULT);
        close_fixture();
    }
}

/* Logits 2i and 2i + 1 of a row are entry i of a list: a value, and the bits of an id. */
static void set_list(uint32_t r, const struct tw_top *list, uint32_t n) {
    float logits[BIGRAM_COLS];
    for (uint32_t i = 0; i < BIGRAM_COLS / 2; i++) {
        struct tw_top entry = i < n ? list[i] : tw_top_missing();
        memcpy(logits + 2 * i, &entry, sizeof entry);
    }
    set_row(r, logits);
}

static struct greedy_request request_of_lists(uint32_t id) {
    struct greedy_request q = request(id, 3, 0);
    q.run.flags |= TW_WIRE_RUN_CHOICE;
    q.greedy.n_vocab = BIGRAM_COLS / 2;
    return q;
}

static void a_run_chooses_the_first_entry_of_lists(void **state) {
    (void)state;
    static const struct tw_top best_last[] = {{1, 7}, {2, 9}, {3, 5}},
                               equal[] = {{2, 4}, {1, 0}, {2, 1}, {2, 3}},
                               after_missing[] = {{NAN, TW_NONE}, {NAN, TW_NONE}, {-3, 2}},
                               infinite[] = {{1, 1}, {INFINITY, 2}};
    for (int mode = 0; mode < 2; mode++) {
        open_fixture((enum tw_wire_mode)mode);
        set_list(0, best_last, 3);
        set_list(5, equal, 4);
        set_list(1, after_missing, 3);
        set_list(2, infinite, 2);
        struct greedy_request q = request_of_lists(0);
        static const uint32_t tokens[] = {5, 1, 2};
        run(&q, TW_WIRE_ENDED_COUNT, 3, tokens);
        q = request_of_lists(2);
        const struct tw_wire_tokens *a = run(&q, TW_WIRE_ENDED_FAULT, 0, NULL);
        assert_string_equal(a->failure.what, "NotFinite");
        assert_int_equal(a->failure.have, 1);
        assert_int_equal(a->failure.need, BIGRAM_COLS / 2);
        close_fixture();
        open_fixture((enum tw_wire_mode)mode);
        set_list(2, NULL, 0);
        q = request_of_lists(2);
        a = run(&q, TW_WIRE_ENDED_FAULT, 0, NULL);
        assert_string_equal(a->failure.what, "NotFinite");
        close_fixture();
    }
}

static void every_scheduler_chooses_the_same_tokens(void **state) {
    (void)state;
    static const uint32_t cycle[] = {3, 6, 1, 4, 7};
    open_fixture(TW_WIRE_STRICT);
    set_cycle();
    for (uint32_t scheduler = 0; scheduler < TW_SCHED_COUNT; scheduler++) {
        for (uint64_t seed = 0; seed < 12; seed++) {
            struct greedy_request q = request(0, 5, 0);
            q.run.scheduler = (uint16_t)scheduler;
            q.run.seed = seed;
            run(&q, TW_WIRE_ENDED_COUNT, 5, cycle);
        }
    }
    struct greedy_request q = request(0, 5, 0);
    q.run.scheduler = TW_SCHED_COUNT;
    assert_int_equal(client_call(&f.c, TW_WIRE_RUN, 0, &q, sizeof q), TW_E_UNSUPPORTED);
    close_fixture();
}

static void inconsistent_runs_write_nothing(void **state) {
    (void)state;
    open_fixture(TW_WIRE_STRICT);
    set_cycle();
    const struct greedy_request good = request(7, 2, 9);
    struct greedy_request bad[15];
    for (size_t i = 0; i < 15; i++) {
        bad[i] = good;
    }
    bad[0].greedy.ids = 4;
    bad[1].greedy.ids = TW_NONE;
    bad[2].greedy.pos = 4;
    bad[3].greedy.end = 77;
    bad[4].greedy.n_vocab = 0;
    bad[5].greedy.n_vocab = UINT32_MAX;
    bad[6].greedy.logits += 1;
    bad[7].greedy.logits = 64;
    bad[8].greedy.abort += 2;
    bad[9].greedy.abort = UINT64_MAX - 3;
    bad[10].run.flags = 3;
    bad[11].in[2].bytes = 0; /* a position without a word; the bytes after it move up */
    bad[12].run.flags = TW_WIRE_RUN_CHOICE; /* of what is no greedy run */
    bad[13].run.flags |= TW_WIRE_RUN_CHOICE | TW_WIRE_RUN_CHECK;
    bad[14].run.flags |= TW_WIRE_RUN_CHOICE;
    bad[14].greedy.n_vocab = BIGRAM_COLS; /* 128 bytes of lists in 64 */
    for (size_t i = 0; i < 15; i++) {
        int code = client_call(&f.c, TW_WIRE_RUN, 0, &bad[i], sizeof bad[i]);
        assert_true(code == TW_E_PROTOCOL || code == TW_E_RANGE || code == TW_E_UNSUPPORTED);
    }
    assert_int_equal(client_call(&f.c, TW_WIRE_RUN, 0, &good, sizeof good - 8), TW_E_PROTOCOL);
    assert_int_equal(client_call(&f.c, TW_WIRE_RUN, 0, &good, sizeof good - sizeof good.greedy),
                     TW_E_PROTOCOL);
    assert_int_equal(get_word(f.g.address[BIGRAM_IDS]), 0);
    assert_int_equal(get_word(f.pos), 0);
    assert_int_equal(f.c.server.counters.steps, 0);
    static const uint32_t tokens[] = {2, 5};
    run(&good, TW_WIRE_ENDED_COUNT, 2, tokens);
    close_fixture();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_feeds_its_own_tokens),
        cmocka_unit_test(a_run_of_maximum_length_completes),
        cmocka_unit_test(a_stop_id_ends_the_run_and_is_not_fed_back),
        cmocka_unit_test(no_step_begins_at_the_limit),
        cmocka_unit_test(the_host_can_end_a_run_between_two_steps),
        cmocka_unit_test(equal_logits_go_to_the_lowest_id),
        cmocka_unit_test(a_logit_that_is_not_finite_is_a_fault),
        cmocka_unit_test(a_checked_run_names_the_place_of_the_fault),
        cmocka_unit_test(a_fault_returns_the_tokens_before_it),
        cmocka_unit_test(a_run_chooses_the_first_entry_of_lists),
        cmocka_unit_test(every_scheduler_chooses_the_same_tokens),
        cmocka_unit_test(inconsistent_runs_write_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
