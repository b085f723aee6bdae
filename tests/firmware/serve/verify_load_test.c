/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that does not trust its host: LOAD runs what obeys the rules and has its certificate,
 * and refuses the rest with the rule's number, whatever the host does to blob, rows and
 * certificate.
 */
#include "firmware/serve/verify_load.h"
#include "tests/support/load_program.h"
#include "tests/support/order_programs.h"
#include "tests/support/test.h"

#include "tilewright/progblob.h"

#define MEMORY (UINT64_C(64) << 20)

static struct order_program lawful; /* a tiny llama, decode, on one target */
static struct client c;
static struct tw_wire_load q;

static int make_program(void **state) {
    (void)state;
    tw_error err = {0};
    return order_program_make(0, &lawful, &err) ? 0 : -1;
}

static int free_program(void **state) {
    (void)state;
    order_program_free(&lawful);
    return 0;
}

static int open_device(void **state) {
    (void)state;
    client_init(&c, MEMORY);
    c.server.port.verify = tw_serve_verify;
    return load_program_place(&c, &lawful.program, &lawful.certificate, &q) ? 0 : -1;
}

static int close_device(void **state) {
    (void)state;
    client_finish(&c);
    return c.live == 0 && c.server.counters.memory_used == 0 ? 0 : -1;
}

static void assert_refused(const struct tw_wire_load *load, int code, const char *begins) {
    uint32_t number;
    uint64_t used = c.server.counters.memory_used;
    for (uint32_t mode = 0; mode < 2; mode++) {
        struct tw_wire_load how = *load;
        how.mode = mode;
        assert_int_equal(load_program_load(&c, &how, &number), code);
        if (strncmp(client_failure(&c)->what, begins, strlen(begins)) != 0) {
            fail_msg("\"%s\" does not begin with \"%s\"", client_failure(&c)->what, begins);
        }
    }
    assert_int_equal(c.server.counters.programs, 0);
    assert_int_equal(c.server.counters.memory_used, used);
}

static void assert_runs(void) {
    for (uint32_t mode = 0; mode < 2; mode++) {
        struct tw_wire_load how = q;
        uint32_t number;
        how.mode = mode;
        assert_int_equal(load_program_load(&c, &how, &number), 0);
        assert_int_equal(load_program_step(&c, number), 0);
        assert_int_equal(client_call(&c, TW_WIRE_UNLOAD, number, NULL, 0), 0);
    }
}

static void poke(uint64_t address, uint32_t value) {
    assert_int_equal(client_call(&c, TW_WIRE_WRITE, address, &value, sizeof value), 0);
}

static uint32_t peek(uint64_t address) {
    return *(const uint32_t *)(uintptr_t)address;
}

static void hello_says_whether_programs_are_verified(void **state) {
    (void)state;
    struct tw_wire_hello hello = {.protocol_min = 1, .protocol_max = 1, .abi_major = 1};
    for (int verifies = 0; verifies < 2; verifies++) {
        c.server.port.verify = verifies ? tw_serve_verify : NULL;
        assert_int_equal(client_call(&c, TW_WIRE_HELLO, 0, &hello, sizeof hello), 0);
        const struct tw_wire_identity *id = c.answer.payload;
        assert_int_equal(!!(id->capabilities & TW_WIRE_CAN_VERIFY), verifies);
    }
}

static void a_program_with_its_certificate_runs(void **state) {
    (void)state;
    assert_runs();
}

static void a_program_without_a_certificate_is_refused(void **state) {
    (void)state;
    struct tw_wire_load bare = q;
    bare.certificate_bytes = 0;
    assert_refused(&bare, TW_E_VERIFY, "rule 18 certificate: ");
    /* as a driver from before certificates sends it */
    assert_int_equal(client_call(&c, TW_WIRE_LOAD, 0, &q, TW_WIRE_LOAD_PLAIN_BYTES), TW_E_VERIFY);
    assert_non_null(strstr(client_failure(&c)->what, "upgrade the host's driver"));
    for (uint32_t n = TW_WIRE_LOAD_PLAIN_BYTES + 1; n < sizeof q; n++) {
        assert_int_equal(client_call(&c, TW_WIRE_LOAD, 0, &q, n), TW_E_PROTOCOL);
    }
    c.server.port.verify = NULL;
    assert_int_equal(client_call(&c, TW_WIRE_LOAD, 0, &q, TW_WIRE_LOAD_PLAIN_BYTES), 0);
}

static void a_false_certificate_is_refused(void **state) {
    (void)state;
    struct tw_wire_load wrong = q;
    wrong.certificate_bytes -= 4;
    assert_refused(&wrong, TW_E_VERIFY, "rule 19 witness: ");
    wrong = q;
    wrong.step_ops = 1;
    assert_refused(&wrong, TW_E_VERIFY, "rule 29 step_budget: ");
    uint32_t first = peek(q.certificate);
    poke(q.certificate, UINT32_MAX);
    assert_refused(&q, TW_E_VERIFY, "rule 19 witness: ");
    poke(q.certificate, first);
    assert_runs();
}

static void a_certificate_outside_memory_is_refused(void **state) {
    (void)state;
    struct tw_wire_load wrong = q;
    wrong.certificate += 4;
    assert_refused(&wrong, TW_E_RANGE, "certificate outside");
    wrong = q;
    wrong.certificate_bytes = UINT64_MAX - 3;
    assert_refused(&wrong, TW_E_RANGE, "certificate outside");
    wrong = q;
    wrong.certificate += 2;
    wrong.certificate_bytes -= 4;
    assert_refused(&wrong, TW_E_RANGE, "certificate outside");
    wrong.certificate = 0;
    assert_refused(&wrong, TW_E_RANGE, "certificate outside");
}

static void a_program_that_breaks_a_rule_is_refused_by_its_number(void **state) {
    (void)state;
    const struct tw_progblob_header *h = (const void *)(uintptr_t)q.blob;
    uint32_t tensor = 0; /* one that is in memory */
    while (lawful.program.tensors[tensor].role == TW_ROLE_ACTIVATION) {
        tensor++;
    }
    uint64_t buffers = q.blob + h->table[TW_PB_BUFFERS].offset;
    uint64_t at = q.blob + h->table[TW_PB_TENSORS].offset + tensor * sizeof(struct tw_tensor) +
                  offsetof(struct tw_tensor, rows);
    uint32_t before = peek(at);
    poke(at, before + 32);
    assert_refused(&q, TW_E_VERIFY, "rule 10 operand_types: ");
    poke(at, before);
    at = buffers + offsetof(struct tw_buffer, offset);
    before = peek(at);
    poke(at, before + 4);
    assert_refused(&q, TW_E_VERIFY, "rule 4 buffer_placed: ");
    poke(at, before);
    assert_runs();
    /* the reason is in the log, too */
    assert_int_equal(client_call(&c, TW_WIRE_LOG, 0, NULL, 0), 0);
    assert_memory_equal(c.answer.payload, "rule 10 operand_types: ", 23);
}

/* Whatever is changed in one word of the blob, the program is refused, or runs and leaves the
 * device whole. */
static void no_word_of_a_blob_harms_the_device(void **state) {
    (void)state;
    static const uint32_t values[] = {0, 1, 0x7FFFFFFF, 0x80000000, UINT32_MAX};
    uint32_t refused = 0, step = (uint32_t)(q.blob_bytes / 4 / 600) + 1;
    for (uint32_t word = 0; word < q.blob_bytes / 4; word += word < 128 ? 1 : step) {
        uint64_t at = q.blob + word * 4;
        uint32_t before = peek(at);
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            struct tw_wire_load how = q;
            uint32_t number;
            how.mode = v % 2;
            poke(at, values[v]);
            if (load_program_load(&c, &how, &number) == 0) {
                int code = load_program_step(&c, number);
                assert_true(code == 0 || code == TW_E_FAULT);
                assert_int_equal(client_call(&c, TW_WIRE_UNLOAD, number, NULL, 0), 0);
            } else {
                refused++;
            }
        }
        poke(at, before);
    }
    assert_true(refused > 1000);
    assert_runs();
}

/* ---- cancelling ---- */

static uint32_t looks, cancel_at;

static bool count_looks(void *ctx) {
    (void)ctx;
    return ++looks == cancel_at;
}

static void a_check_can_be_cancelled_wherever_it_looks(void **state) {
    (void)state;
    uint32_t number, cancelled = 0;
    int code;
    uint64_t used = c.server.counters.memory_used;
    c.server.cancel.interrupt.is_requested = count_looks;
    for (cancel_at = 1; (looks = 0, code = load_program_load(&c, &q, &number)) != 0; cancel_at++) {
        assert_int_equal(code, TW_E_INTERRUPTED);
        assert_int_equal(c.server.counters.programs, 0);
        assert_int_equal(c.server.counters.memory_used, used);
        cancelled += strstr(client_failure(&c)->what, "was interrupted") != NULL;
    }
    assert_true(cancelled >= 2); /* in the rules, and in the order */
    c.server.cancel.interrupt.is_requested = NULL;
    assert_int_equal(load_program_step(&c, number), 0);
    assert_int_equal(client_call(&c, TW_WIRE_UNLOAD, number, NULL, 0), 0);
}

/* ---- frozen memory ---- */

static int look_only(void *ctx, const struct tw_program *p,
                     const struct tw_server_certificate *certificate,
                     const struct tw_interrupt *interrupt, char *what, uint32_t size) {
    struct client *device = ctx;
    uint32_t before = tw_server_progress(&device->server);
    assert_false(tw_interrupted(interrupt));
    assert_true(tw_server_progress(&device->server) != before); /* or the host would time out */
    uint32_t frozen = 0;
    for (uint32_t i = 0; i < device->server.n_allocations; i++) {
        frozen += device->server.allocations[i].frozen;
    }
    assert_int_equal(frozen, 3); /* blob, rows, certificate: before the first look at them */
    assert_ptr_equal(certificate->words, (const void *)(uintptr_t)q.certificate);
    assert_int_equal(certificate->n_words, q.certificate_bytes / 4);
    assert_int_equal(p->n_tensors, lawful.program.n_tensors);
    snprintf(what, size, "%s", "not today");
    return TW_E_VERIFY;
}

static void what_is_checked_is_frozen_before_the_check_until_unload(void **state) {
    (void)state;
    const uint64_t parts[] = {q.blob, q.bind, q.certificate};
    uint32_t number;
    c.server.port.verify = look_only;
    assert_refused(&q, TW_E_VERIFY, "not today");
    c.server.port.verify = tw_serve_verify;
    assert_int_equal(load_program_load(&c, &q, &number), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(client_call(&c, TW_WIRE_WRITE, parts[i], "x", 1), TW_E_RANGE);
        assert_int_equal(client_call(&c, TW_WIRE_FREE, parts[i], NULL, 0), TW_E_DEVICE_BUSY);
    }
    assert_int_equal(client_call(&c, TW_WIRE_UNLOAD, number, NULL, 0), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(client_call(&c, TW_WIRE_FREE, parts[i], NULL, 0), 0);
    }
}

/* Kept content that nobody uses gives way to allocations, but not the program that is being loaded
 * to the memory that loading it takes. */
static void loading_does_not_evict_what_it_loads(void **state) {
    (void)state;
    const uint64_t parts[] = {q.blob, q.certificate}, bytes[] = {q.blob_bytes, q.certificate_bytes};
    uint32_t number;
    for (uint8_t i = 0; i < 2; i++) {
        struct tw_wire_content content = {.bytes = bytes[i], .hash = {i}};
        assert_int_equal(client_call(&c, TW_WIRE_KEEP, parts[i], &content, sizeof content), 0);
        assert_int_equal(client_call(&c, TW_WIRE_FREE, parts[i], NULL, 0), 0);
    }
    /* room for the streams, not for the machine */
    uint64_t left = c.server.port.memory_bytes - c.server.counters.memory_used;
    assert_true(client_alloc(&c, left - 4096) != 0);
    assert_int_equal(load_program_load(&c, &q, &number), TW_E_NOMEM);
    for (uint8_t i = 0; i < 2; i++) {
        struct tw_wire_content content = {.bytes = bytes[i], .hash = {i}};
        assert_int_equal(client_call(&c, TW_WIRE_FIND, 0, &content, sizeof content), 0);
        assert_int_equal(c.header.address, parts[i]);
    }
    assert_int_equal(client_call(&c, TW_WIRE_RESET, 0, NULL, 0), 0);
}

static void a_tensor_must_begin_where_kernels_may_read_it(void **state) {
    (void)state;
    const uint64_t *rows = (const void *)(uintptr_t)q.bind;
    uint64_t before = rows[q.n_bind - 1];
    for (uint32_t shift = 4; shift < 64; shift *= 2) {
        poke(q.bind + (q.n_bind - 1) * 8, (uint32_t)(before - shift));
        uint32_t number;
        assert_int_equal(load_program_load(&c, &q, &number), TW_E_RANGE);
    }
    poke(q.bind + (q.n_bind - 1) * 8, (uint32_t)before);
    assert_runs();
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_device, close_device)
    const struct CMUnitTest tests[] = {
        TEST(hello_says_whether_programs_are_verified),
        TEST(a_program_with_its_certificate_runs),
        TEST(a_program_without_a_certificate_is_refused),
        TEST(a_false_certificate_is_refused),
        TEST(a_certificate_outside_memory_is_refused),
        TEST(a_program_that_breaks_a_rule_is_refused_by_its_number),
        TEST(no_word_of_a_blob_harms_the_device),
        TEST(a_check_can_be_cancelled_wherever_it_looks),
        TEST(what_is_checked_is_frozen_before_the_check_until_unload),
        TEST(loading_does_not_evict_what_it_loads),
        TEST(a_tensor_must_begin_where_kernels_may_read_it),
    };
    return cmocka_run_group_tests_name("verify at load", tests, make_program, free_program);
}
