/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the command server, in whole messages: memory, programs, faults, events, and
 * inconsistent requests.
 */
#include "tests/support/server_client.h"
#include "tests/support/test.h"

#define MEMORY (UINT64_C(1) << 20)

static int open_client(void **state) {
    static struct client c;
    client_init(&c, MEMORY);
    *state = &c;
    return 0;
}

static int close_client(void **state) {
    struct client *c = *state;
    client_finish(c);
    assert_int_equal(c->live, 0); /* whatever the test did, a reset gives all memory back */
    assert_int_equal(c->server.counters.memory_used, 0);
    return 0;
}

static int range_call(struct client *c, enum tw_wire_opcode opcode, uint64_t address,
                      uint64_t bytes, uint32_t value) {
    struct tw_wire_range q = {.bytes = bytes, .value = value};
    return client_call(c, opcode, address, &q, sizeof q);
}

static void hello_returns_the_identity(void **state) {
    struct client *c = *state;
    struct tw_wire_hello h = {.protocol_min = 1, .protocol_max = 1, .abi_major = 1};
    assert_int_equal(client_call(c, TW_WIRE_HELLO, 0, &h, sizeof h), 0);
    const struct tw_wire_identity *id = c->answer.payload;
    assert_int_equal(c->answer.length, sizeof *id);
    assert_string_equal(id->target, "t");
    assert_int_equal(id->capabilities, TW_WIRE_CAN_STRICT | TW_WIRE_CAN_FAST | TW_WIRE_CAN_GREEDY |
                                           TW_WIRE_CAN_KEEP | TW_WIRE_CAN_LINK |
                                           TW_WIRE_CAN_LIMITS | TW_WIRE_CAN_COPY |
                                           TW_WIRE_CAN_COUNT);
    assert_int_equal(id->memory_bytes, MEMORY);
    assert_int_equal(id->protocol_max, TW_WIRE_VERSION_MAX);
}

static void a_driver_of_another_version_may_only_query_the_identity(void **state) {
    struct client *c = *state;
    struct tw_wire_hello hello = {.protocol_min = 9, .protocol_max = 9};
    uint8_t header[TW_WIRE_HEADER_BYTES];
    struct tw_wire_header h = {.version = 9, .opcode = TW_WIRE_HELLO, .length = sizeof hello};
    tw_wire_encode(&h, header);
    tw_server_handle(&c->server, header, &hello, sizeof hello, &c->answer);
    const char *why;
    tw_wire_decode(c->answer.header, &c->header, &why);
    assert_int_equal(c->header.status, 0);
    h.opcode = TW_WIRE_COUNTERS;
    h.length = 0;
    tw_wire_encode(&h, header);
    tw_server_handle(&c->server, header, NULL, 0, &c->answer);
    tw_wire_decode(c->answer.header, &c->header, &why);
    assert_int_equal(c->header.status, TW_E_VERSION);
}

static void written_bytes_come_back(void **state) {
    struct client *c = *state;
    uint64_t at = client_alloc(c, 100);
    assert_true(at != 0);
    assert_int_equal(client_call(c, TW_WIRE_WRITE, at + 10, "abcdef", 6), 0);
    assert_int_equal(range_call(c, TW_WIRE_READ, at + 9, 8, 0), 0);
    assert_int_equal(c->answer.length, 8);
    assert_memory_equal(c->answer.payload, "\0abcdef\0", 8);
    assert_int_equal(range_call(c, TW_WIRE_FILL, at + 12, 2, 0x7A), 0);
    assert_int_equal(range_call(c, TW_WIRE_READ, at + 10, 6, 0), 0);
    assert_memory_equal(c->answer.payload, "abzzef", 6);
    assert_int_equal(range_call(c, TW_WIRE_HASH, at + 10, 6, 0), 0);
    const struct tw_wire_hash *hash = c->answer.payload;
    assert_int_equal(hash->crc32c, tw_wire_crc32c(0, "abzzef", 6));
}

static int copy_call(struct client *c, uint64_t to, uint64_t from, uint64_t bytes, uint64_t stride,
                     uint32_t rows) {
    struct tw_wire_copy q = {.from = from, .bytes = bytes, .stride = stride, .rows = rows};
    return client_call(c, TW_WIRE_COPY, to, &q, sizeof q);
}

static void rows_are_copied(void **state) {
    struct client *c = *state;
    uint64_t a = client_alloc(c, 100), b = client_alloc(c, 50);
    assert_int_equal(client_call(c, TW_WIRE_WRITE, a, "0123456789abcdefghij", 20), 0);
    assert_int_equal(copy_call(c, b + 1, a + 2, 3, 10, 2), 0);
    assert_int_equal(range_call(c, TW_WIRE_READ, b, 15, 0), 0);
    assert_memory_equal(c->answer.payload,
                        "\0"
                        "234"
                        "\0\0\0\0\0\0\0"
                        "cde"
                        "\0",
                        15);
    assert_int_equal(copy_call(c, a + 3, a, 10, 10, 1), 0); /* as by memmove */
    assert_int_equal(range_call(c, TW_WIRE_READ, a, 14, 0), 0);
    assert_memory_equal(c->answer.payload, "0120123456789d", 14);
    static const struct {
        uint64_t to, from, bytes, stride;
        uint32_t rows;
    } bad[] = {{41, 0, 10, 10, 1}, {0, 91, 10, 10, 1},       {0, 0, 10, 9, 1},
               {0, 0, 0, 10, 1},   {0, 0, 10, 10, 0},        {0, 0, 10, 21, 3},
               {0, 0, 10, 46, 3},  {0, 0, 1, UINT64_MAX, 3}, {0, 0, UINT64_MAX, UINT64_MAX, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(
            copy_call(c, b + bad[i].to, a + bad[i].from, bad[i].bytes, bad[i].stride, bad[i].rows),
            TW_E_RANGE);
    }
}

static void access_outside_allocations_is_refused(void **state) {
    struct client *c = *state;
    uint64_t at = client_alloc(c, 100);
    static const struct {
        uint64_t offset, bytes;
    } bad[] = {{0, 101}, {100, 1}, {UINT64_MAX, 1}, {1, UINT64_MAX}, {101, 0}, {0, UINT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(range_call(c, TW_WIRE_READ, at + bad[i].offset, bad[i].bytes, 0),
                         TW_E_RANGE);
        assert_int_equal(range_call(c, TW_WIRE_FILL, at + bad[i].offset, bad[i].bytes, 0),
                         TW_E_RANGE);
        assert_int_equal(range_call(c, TW_WIRE_HASH, at + bad[i].offset, bad[i].bytes, 0),
                         TW_E_RANGE);
    }
    assert_int_equal(client_call(c, TW_WIRE_WRITE, at + 99, "xy", 2), TW_E_RANGE);
    assert_int_equal(client_call(c, TW_WIRE_FREE, at + 1, NULL, 0), TW_E_RANGE);
    assert_int_equal(client_call(c, TW_WIRE_FREE, at, NULL, 0), 0);
    assert_int_equal(range_call(c, TW_WIRE_READ, at, 1, 0), TW_E_RANGE);
    assert_int_equal(client_call(c, TW_WIRE_FREE, at, NULL, 0), TW_E_RANGE);
}

static void memory_is_limited_to_what_the_device_states(void **state) {
    struct client *c = *state;
    assert_int_equal(client_alloc(c, MEMORY + 1), 0);
    assert_int_equal(c->header.status, TW_E_NOMEM);
    assert_int_equal(client_failure(c)->need, MEMORY + 1);
    assert_int_equal(client_alloc(c, UINT64_MAX), 0);
    uint64_t at = client_alloc(c, MEMORY);
    assert_true(at != 0);
    assert_int_equal(client_alloc(c, 1), 0);
    client_call(c, TW_WIRE_FREE, at, NULL, 0);
    c->no_memory = true;
    assert_int_equal(client_alloc(c, 1), 0);
    assert_int_equal(c->header.status, TW_E_NOMEM);
}

static void bad_allocations_are_refused(void **state) {
    struct client *c = *state;
    const struct tw_wire_alloc bad[] = {{.bytes = 0, .align = 64},
                                        {.bytes = 8, .align = 0},
                                        {.bytes = 8, .align = 3},
                                        {.bytes = 8, .align = 1u << 17},
                                        {.bytes = 8, .align = 64, .flags = 2}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(client_call(c, TW_WIRE_ALLOC, 0, &bad[i], sizeof bad[i]), TW_E_RANGE);
    }
}

static void a_full_allocation_table_refuses(void **state) {
    struct client *c = *state;
    for (uint32_t i = 0; i < TW_SERVER_ALLOCATIONS; i++) {
        assert_true(client_alloc(c, 8) != 0);
    }
    assert_int_equal(client_alloc(c, 8), 0);
    assert_int_equal(c->header.status, TW_E_NOMEM);
    assert_int_equal(client_call(c, TW_WIRE_RESET, 0, NULL, 0), 0);
    assert_true(client_alloc(c, 8) != 0);
}

static void adopted_memory_can_be_read_only(void **state) {
    struct client *c = *state;
    static const uint8_t bytes[64] = {1, 2, 3};
    uint64_t at = (uintptr_t)bytes;
    assert_int_equal(tw_server_adopt(&c->server, at, sizeof bytes), 0);
    assert_int_equal(tw_server_adopt(&c->server, at + 8, 8), TW_E_RANGE);
    assert_int_equal(tw_server_adopt(&c->server, at, sizeof bytes), 0);
    assert_int_equal(tw_server_adopt(&c->server, at, 0), TW_E_RANGE);
    assert_int_equal(tw_server_adopt(&c->server, UINT64_MAX, 8), TW_E_RANGE);
    assert_int_equal(range_call(c, TW_WIRE_READ, at, 3, 0), 0);
    assert_ptr_equal(c->answer.payload, bytes); /* no copy */
    assert_int_equal(client_call(c, TW_WIRE_WRITE, at, "x", 1), TW_E_RANGE);
    assert_int_equal(client_call(c, TW_WIRE_FREE, at, NULL, 0), 0);
    assert_int_equal(range_call(c, TW_WIRE_READ, at, 3, 0), 0); /* it was adopted twice */
    assert_int_equal(client_call(c, TW_WIRE_FREE, at, NULL, 0), 0);
    assert_int_equal(range_call(c, TW_WIRE_READ, at, 3, 0), TW_E_RANGE);
}

static void requests_with_wrong_payloads_are_refused(void **state) {
    struct client *c = *state;
    uint8_t bytes[256] = {0};
    for (unsigned op = 1; op < TW_WIRE_OPCODE_LIMIT; op++) {
        if (op != TW_WIRE_WRITE && op != TW_WIRE_RUN) {
            assert_int_equal(client_call(c, (enum tw_wire_opcode)op, 0, bytes, 255), TW_E_PROTOCOL);
        }
    }
    assert_int_equal(client_call(c, TW_WIRE_RUN, 0, bytes, 23), TW_E_PROTOCOL);
    assert_int_equal(client_call(c, TW_WIRE_WRITE, 0, bytes, 0), TW_E_PROTOCOL);
    assert_int_equal(c->server.counters.refused, TW_WIRE_OPCODE_LIMIT - 1);
}

static void a_length_other_than_the_headers_is_refused(void **state) {
    struct client *c = *state;
    uint8_t header[TW_WIRE_HEADER_BYTES];
    struct tw_wire_header h = {.version = 1, .opcode = TW_WIRE_WRITE, .length = 8};
    tw_wire_encode(&h, header);
    tw_server_handle(&c->server, header, "12345678", 7, &c->answer);
    const char *why;
    assert_int_equal(tw_wire_decode(c->answer.header, &c->header, &why), 0);
    assert_int_equal(c->header.status, TW_E_PROTOCOL);
    header[0] ^= 1;
    tw_server_handle(&c->server, header, "12345678", 8, &c->answer);
    tw_wire_decode(c->answer.header, &c->header, &why);
    assert_int_equal(c->header.status, TW_E_PROTOCOL);
    assert_string_equal(client_failure(c)->what, "magic");
}

static void check_bigram(struct client *c, enum tw_wire_mode mode) {
    struct client_bigram g;
    float logits[BIGRAM_COLS];
    assert_int_equal(client_load_bigram(c, mode, &g), 0);
    const uint32_t ids[BIGRAM_ROWS] = {5, 0, 7, 3};
    for (uint32_t rows = 1; rows <= BIGRAM_ROWS; rows++) {
        assert_int_equal(client_run_bigram(c, &g, ids, rows, 1, logits), 0);
        assert_memory_equal(logits, g.b.table[ids[rows - 1]], sizeof logits);
    }
    assert_int_equal(client_run_bigram(c, &g, ids, 2, 3, logits), 0);
    assert_int_equal(c->server.counters.steps, 7);
    assert_int_equal(client_call(c, TW_WIRE_HEARTBEAT, 0, NULL, 0), 0);
    assert_int_equal(c->header.address, 7);
}

static void a_strict_program_computes(void **state) {
    check_bigram(*state, TW_WIRE_STRICT);
    struct client *c = *state;
    assert_true(c->server.counters.ops > 0);
}

static void a_fast_program_computes_the_same(void **state) {
    check_bigram(*state, TW_WIRE_FAST);
}

static void memory_of_a_loaded_program_can_be_neither_freed_nor_rewritten(void **state) {
    struct client *c = *state;
    struct client_bigram g;
    assert_int_equal(client_load_bigram(c, TW_WIRE_STRICT, &g), 0);
    for (uint32_t i = 0; i < BIGRAM_BINDS; i++) {
        assert_int_equal(client_call(c, TW_WIRE_FREE, g.address[i], NULL, 0), TW_E_DEVICE_BUSY);
    }
    assert_int_equal(client_call(c, TW_WIRE_FREE, g.blob, NULL, 0), TW_E_DEVICE_BUSY);
    assert_int_equal(client_call(c, TW_WIRE_WRITE, g.blob, "12345678", 8), TW_E_RANGE);
    assert_int_equal(client_call(c, TW_WIRE_WRITE, g.bind, "12345678", 8), TW_E_RANGE);
    assert_int_equal(client_call(c, TW_WIRE_WRITE, g.address[BIGRAM_IDS], "1234", 4), 0);
    assert_int_equal(client_call(c, TW_WIRE_UNLOAD, g.program, NULL, 0), 0);
    assert_int_equal(client_call(c, TW_WIRE_UNLOAD, g.program, NULL, 0), TW_E_RANGE);
    assert_int_equal(client_call(c, TW_WIRE_FREE, g.blob, NULL, 0), 0);
    assert_int_equal(client_call(c, TW_WIRE_FREE, g.address[BIGRAM_TABLE], NULL, 0), 0);
}

static uint64_t bytes_at(const struct client *c, uint64_t address) {
    for (uint32_t i = 0; i < c->server.n_allocations; i++) {
        if (c->server.allocations[i].address == address) {
            return c->server.allocations[i].bytes;
        }
    }
    return 0;
}

/* A binding row that no tensor has may name anything, also memory that comes and goes while its
 * program is loaded: that is never in use, and unloading takes away no use of another program. */
static void a_binding_row_that_no_tensor_has_uses_nothing(void **state) {
    static _Alignas(64) uint8_t late[64];
    struct client *c = *state;
    struct client_bigram g;
    uint64_t rows[BIGRAM_BINDS + 1];
    assert_int_equal(client_load_bigram(c, TW_WIRE_FAST, &g), 0);
    memcpy(rows, g.address, sizeof g.address);
    rows[BIGRAM_BINDS] = (uintptr_t)late;
    uint64_t bind = client_alloc(c, sizeof rows);
    assert_int_equal(client_call(c, TW_WIRE_WRITE, bind, rows, sizeof rows), 0);
    struct tw_wire_load q = {.blob = g.blob,
                             .blob_bytes = bytes_at(c, g.blob),
                             .bind = bind,
                             .n_bind = BIGRAM_BINDS + 1,
                             .mode = TW_WIRE_STRICT};
    assert_int_equal(client_call(c, TW_WIRE_LOAD, 0, &q, sizeof q), 0);
    uint32_t program = ((const struct tw_wire_loaded *)c->answer.payload)->program;
    assert_int_equal(tw_server_adopt(&c->server, (uintptr_t)late, sizeof late), 0);
    assert_int_equal(client_call(c, TW_WIRE_UNLOAD, program, NULL, 0), 0);
    assert_int_equal(c->server.allocations[c->server.n_allocations - 1].users, 0);
    assert_int_equal(client_call(c, TW_WIRE_FREE, (uintptr_t)late, NULL, 0), 0);
}

/* Trips are checked before anything runs, so the program can still be run. */
static void too_many_rows_are_refused_and_nothing_breaks(void **state) {
    struct client *c = *state;
    for (unsigned mode = 0; mode < 2; mode++) {
        struct client_bigram g;
        float logits[BIGRAM_COLS];
        const uint32_t ids[BIGRAM_ROWS] = {1, 2, 3, 4};
        assert_int_equal(client_load_bigram(c, (enum tw_wire_mode)mode, &g), 0);
        assert_int_equal(client_run_bigram(c, &g, ids, BIGRAM_ROWS + 1, 1, logits), TW_E_FAULT);
        assert_string_equal(client_failure(c)->what, "InputRange");
        assert_int_equal(client_run_bigram(c, &g, ids, 4, 1, logits), 0);
        assert_memory_equal(logits, g.b.table[4], sizeof logits);
    }
}

static void a_fault_names_the_op_and_becomes_an_event(void **state) {
    struct client *c = *state;
    struct client_bigram g;
    float logits[BIGRAM_COLS];
    const uint32_t ids[BIGRAM_ROWS] = {BIGRAM_VOCAB, 0, 0, 0};
    assert_int_equal(client_load_bigram(c, TW_WIRE_STRICT, &g), 0);
    assert_int_equal(client_run_bigram(c, &g, ids, 1, 1, logits), TW_E_FAULT);
    const struct tw_wire_failure *f = client_failure(c);
    assert_string_equal(f->what, "IdOutOfRange");
    assert_int_equal(f->site, 0);
    assert_int_equal(f->engine, TW_ENGINE_LOAD);
    assert_int_equal(f->opcode, TW_OP_GATHER);
    assert_int_equal(f->have, BIGRAM_VOCAB);
    assert_int_equal(client_call(c, TW_WIRE_EVENT, 0, NULL, 0), 0);
    const struct tw_wire_event *e = c->answer.payload;
    assert_int_equal(e->kind, TW_WIRE_EVENT_FAULT);
    assert_string_equal(e->failure.what, "IdOutOfRange");
    assert_int_equal(client_call(c, TW_WIRE_EVENT, 0, NULL, 0), 0);
    assert_int_equal(c->answer.length, 0);
    assert_int_equal(client_call(c, TW_WIRE_LOG, 0, NULL, 0), 0);
    assert_memory_equal(c->answer.payload, "IdOutOfRange", 12);
    /* It stopped in the middle of a step: it has to be loaded again. */
    const uint32_t good[BIGRAM_ROWS] = {1, 0, 0, 0};
    assert_int_equal(client_run_bigram(c, &g, good, 1, 1, logits), TW_E_FAULT);
    assert_int_equal(client_load_bigram(c, TW_WIRE_STRICT, &g), 0);
    assert_int_equal(client_run_bigram(c, &g, good, 1, 1, logits), 0);
}

static void lost_events_are_counted(void **state) {
    struct client *c = *state;
    for (uint32_t i = 0; i < TW_SERVER_EVENTS + 5; i++) {
        assert_int_equal(client_call(c, TW_WIRE_RESET, 0, NULL, 0), 0);
    }
    assert_int_equal(client_call(c, TW_WIRE_EVENT, 0, NULL, 0), 0);
    const struct tw_wire_event *e = c->answer.payload;
    assert_int_equal(e->kind, TW_WIRE_EVENT_RESET);
    assert_int_equal(e->lost, 5);
    assert_int_equal(e->number, 6);
}

static void inconsistent_loads_are_refused(void **state) {
    struct client *c = *state;
    struct client_bigram g;
    assert_int_equal(client_load_bigram(c, TW_WIRE_STRICT, &g), 0);
    const struct tw_server_program *p = &c->server.programs[g.program];
    struct tw_wire_load good = {
        .blob = g.blob, .blob_bytes = 64, .bind = g.bind, .n_bind = BIGRAM_BINDS};
    good.blob_bytes = bytes_at(c, g.blob);
    assert_true(p->used);
    struct tw_wire_load q = good;
    q.blob_bytes = 63;
    assert_true(client_call(c, TW_WIRE_LOAD, 0, &q, sizeof q) < 0);
    q = good;
    q.blob += 4;
    assert_true(client_call(c, TW_WIRE_LOAD, 0, &q, sizeof q) < 0);
    q = good;
    q.blob = g.address[BIGRAM_TABLE];
    q.blob_bytes = sizeof g.b.table;
    assert_true(client_call(c, TW_WIRE_LOAD, 0, &q, sizeof q) < 0);
    q = good;
    q.n_bind = UINT64_MAX / 4;
    assert_int_equal(client_call(c, TW_WIRE_LOAD, 0, &q, sizeof q), TW_E_RANGE);
    q = good;
    q.mode = 2;
    assert_int_equal(client_call(c, TW_WIRE_LOAD, 0, &q, sizeof q), TW_E_UNSUPPORTED);
    q = good;
    q.n_bind = 1; /* tensors name rows that are not there */
    assert_true(client_call(c, TW_WIRE_LOAD, 0, &q, sizeof q) < 0);
    assert_int_equal(c->server.counters.programs, 1);
}

static void inconsistent_runs_write_nothing(void **state) {
    struct client *c = *state;
    struct client_bigram g;
    assert_int_equal(client_load_bigram(c, TW_WIRE_STRICT, &g), 0);
    struct {
        struct tw_wire_run run;
        struct tw_wire_input in[2];
        uint32_t data[2];
    } q = {.run = {.program = g.program, .n_steps = 1, .n_inputs = 2},
           .in = {{.address = g.address[BIGRAM_VALID], .bytes = 4},
                  {.address = g.address[BIGRAM_TABLE], .bytes = 4}},
           .data = {9, 9}};
    q.in[1].address = g.blob;
    assert_int_equal(client_call(c, TW_WIRE_RUN, 0, &q, sizeof q), TW_E_RANGE);
    q.in[1].address = g.address[BIGRAM_IDS];
    q.in[1].bytes = 8;
    assert_int_equal(client_call(c, TW_WIRE_RUN, 0, &q, sizeof q), TW_E_PROTOCOL);
    q.run.n_inputs = 1000000000;
    assert_int_equal(client_call(c, TW_WIRE_RUN, 0, &q, sizeof q), TW_E_PROTOCOL);
    q.run.n_inputs = 2;
    q.run.program = 31;
    assert_int_equal(client_call(c, TW_WIRE_RUN, 0, &q, sizeof q), TW_E_RANGE);
    assert_int_equal(range_call(c, TW_WIRE_READ, g.address[BIGRAM_VALID], 4, 0), 0);
    assert_memory_equal(c->answer.payload, "\0\0\0\0", 4);
}

static void a_full_program_table_refuses(void **state) {
    struct client *c = *state;
    struct client_bigram g;
    for (uint32_t i = 0; i < TW_SERVER_PROGRAMS; i++) {
        assert_int_equal(client_load_bigram(c, TW_WIRE_FAST, &g), 0);
    }
    assert_int_equal(client_load_bigram(c, TW_WIRE_FAST, &g), TW_E_NOMEM);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_client, close_client)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(hello_returns_the_identity),
        TEST(a_driver_of_another_version_may_only_query_the_identity),
        TEST(written_bytes_come_back),
        TEST(rows_are_copied),
        TEST(access_outside_allocations_is_refused),
        TEST(memory_is_limited_to_what_the_device_states),
        TEST(bad_allocations_are_refused),
        TEST(a_full_allocation_table_refuses),
        TEST(adopted_memory_can_be_read_only),
        TEST(requests_with_wrong_payloads_are_refused),
        TEST(a_length_other_than_the_headers_is_refused),
        TEST(a_strict_program_computes),
        TEST(a_fast_program_computes_the_same),
        TEST(memory_of_a_loaded_program_can_be_neither_freed_nor_rewritten),
        TEST(a_binding_row_that_no_tensor_has_uses_nothing),
        TEST(too_many_rows_are_refused_and_nothing_breaks),
        TEST(a_fault_names_the_op_and_becomes_an_event),
        TEST(lost_events_are_counted),
        TEST(inconsistent_loads_are_refused),
        TEST(inconsistent_runs_write_nothing),
        TEST(a_full_program_table_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
