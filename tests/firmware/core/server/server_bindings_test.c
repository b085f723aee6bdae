/* SPDX-License-Identifier: Apache-2.0
 *
 * What a host may bind a program to: memory of its own for everything that is written, never the
 * program itself, its rows, weights that are kept, or another tensor.
 */
#include "tests/support/server_client.h"
#include "tests/support/test.h"

static const enum tw_wire_mode modes[] = {TW_WIRE_FAST, TW_WIRE_STRICT};
enum { N_MODES = 2 };

struct fixture {
    struct client c;
    struct client_bigram g;
};

static struct fixture f;

static void open_fixture(void) {
    memset(&f, 0, sizeof f);
    client_init(&f.c, UINT64_C(1) << 20);
    client_place_bigram(&f.c, &f.g);
}

static void close_fixture(void) {
    client_finish(&f.c);
    assert_int_equal(f.c.live, 0);
}

/* Asserts that LOAD with a binding row at this address is refused and leaves the device as it was:
 * with the right address the program then loads and runs. */
static void assert_refused(uint32_t row, uint64_t address, const char *says) {
    for (uint32_t m = 0; m < N_MODES; m++) {
        uint64_t right = f.g.address[row], used = f.c.server.counters.memory_used;
        f.g.address[row] = address;
        assert_int_equal(client_bind_bigram(&f.c, modes[m], &f.g), TW_E_RANGE);
        assert_non_null(strstr(client_failure(&f.c)->what, says));
        assert_int_equal(f.c.server.counters.memory_used, used);
        f.g.address[row] = right;
        assert_int_equal(client_bind_bigram(&f.c, modes[m], &f.g), 0);
        uint32_t id = 3;
        float logits[BIGRAM_COLS];
        assert_int_equal(client_run_bigram(&f.c, &f.g, &id, 1, 1, logits), 0);
        assert_memory_equal(logits, f.g.b.table[3], sizeof logits);
        assert_int_equal(client_call(&f.c, TW_WIRE_UNLOAD, f.g.program, NULL, 0), 0);
    }
}

static void an_output_over_another_tensor_is_refused(void **state) {
    (void)state;
    open_fixture();
    /* one allocation that all three could lie in */
    uint64_t at = client_alloc(&f.c, 4096);
    assert_refused(BIGRAM_LOGITS, f.g.address[BIGRAM_IDS], "outside allocated memory");
    f.g.address[BIGRAM_IDS] = at;
    assert_refused(BIGRAM_LOGITS, at, "two tensors share memory");
    assert_refused(BIGRAM_LOGITS, at + 4 * BIGRAM_ROWS - 4, "two tensors share memory");
    f.g.address[BIGRAM_LOGITS] = at + 64;
    assert_refused(BIGRAM_VALID, at + 64 + 4 * BIGRAM_COLS - 4, "two tensors share memory");
    assert_refused(BIGRAM_IDS, at + 64 - 4, "two tensors share memory");
    close_fixture();
}

static void an_output_over_the_weights_is_refused(void **state) {
    (void)state;
    open_fixture();
    assert_refused(BIGRAM_LOGITS, f.g.address[BIGRAM_TABLE] + 64, "two tensors share memory");
    close_fixture();
}

static void nothing_is_written_over_a_program_or_its_rows(void **state) {
    (void)state;
    open_fixture();
    assert_refused(BIGRAM_LOGITS, f.g.blob + 64, "read-only");
    /* room for the logits after the rows */
    f.g.bind = client_alloc(&f.c, 1024);
    assert_refused(BIGRAM_LOGITS, f.g.bind + 512, "read-only");
    assert_refused(BIGRAM_IDS, f.g.bind + 512, "read-only");
    close_fixture();
}

static void kept_content_is_never_written(void **state) {
    struct tw_wire_content q = {.bytes = 256};
    (void)state;
    open_fixture();
    uint64_t at = client_alloc(&f.c, 256);
    assert_int_equal(client_call(&f.c, TW_WIRE_KEEP, at, &q, sizeof q), 0);
    assert_refused(BIGRAM_LOGITS, at, "read-only");
    /* and what a loaded program writes cannot be kept */
    assert_int_equal(client_bind_bigram(&f.c, TW_WIRE_FAST, &f.g), 0);
    q.bytes = BIGRAM_COLS * 4;
    assert_int_equal(client_call(&f.c, TW_WIRE_KEEP, f.g.address[BIGRAM_LOGITS], &q, sizeof q),
                     TW_E_RANGE);
    assert_int_equal(client_call(&f.c, TW_WIRE_UNLOAD, f.g.program, NULL, 0), 0);
    assert_int_equal(client_call(&f.c, TW_WIRE_KEEP, f.g.address[BIGRAM_LOGITS], &q, sizeof q), 0);
    close_fixture();
}

/* The second program's binding rows lie in memory that the first one writes. */
static void a_program_must_not_overlap_memory_that_another_writes(void **state) {
    (void)state;
    open_fixture();
    struct client_bigram second = f.g;
    uint64_t at = client_alloc(&f.c, 65536);
    f.g.address[BIGRAM_LOGITS] = at;
    assert_int_equal(client_bind_bigram(&f.c, TW_WIRE_FAST, &f.g), 0);
    for (uint32_t i = 0; i < BIGRAM_BINDS; i++) {
        second.address[i] = client_alloc(&f.c, sizeof second.b.table);
    }
    uint64_t bind = client_alloc(&f.c, sizeof second.address);
    second.bind = at + 1024;
    assert_int_equal(client_bind_bigram(&f.c, TW_WIRE_FAST, &second), TW_E_RANGE);
    assert_non_null(strstr(client_failure(&f.c)->what, "another loaded program writes"));
    second.bind = bind;
    assert_int_equal(client_bind_bigram(&f.c, TW_WIRE_FAST, &second), 0);
    close_fixture();
}

static void a_table_that_claims_more_rows_than_there_are_is_refused(void **state) {
    (void)state;
    open_fixture();
    struct tw_wire_load q = {.blob = f.g.blob,
                             .blob_bytes = f.g.blob_bytes,
                             .bind = f.g.bind,
                             .n_bind = BIGRAM_BINDS - 1};
    assert_int_equal(client_call(&f.c, TW_WIRE_LOAD, 0, &q, sizeof q), TW_E_RANGE);
    assert_non_null(
        strstr(client_failure(&f.c)->what, "a tensor names binding rows that do not exist"));
    q.n_bind = 0;
    assert_int_equal(client_call(&f.c, TW_WIRE_LOAD, 0, &q, sizeof q), TW_E_RANGE);
    close_fixture();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_output_over_another_tensor_is_refused),
        cmocka_unit_test(an_output_over_the_weights_is_refused),
        cmocka_unit_test(nothing_is_written_over_a_program_or_its_rows),
        cmocka_unit_test(kept_content_is_never_written),
        cmocka_unit_test(a_program_must_not_overlap_memory_that_another_writes),
        cmocka_unit_test(a_table_that_claims_more_rows_than_there_are_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
