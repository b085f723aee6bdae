/* SPDX-License-Identifier: Apache-2.0
 *
 * What programs may need of a device: LIMITS says it, and LOAD refuses a program that needs more,
 * or that states less than it needs.
 */
#include "tests/support/server_client.h"
#include "tests/support/test.h"
#include "tilewright/progblob.h"

#define MEMORY (UINT64_C(1) << 20)

static struct client c;
static struct client_bigram g;
static struct tw_requirements limits;

/* A device that has all that this firmware knows, as the tests' own limits. */
static int open_client(void **state) {
    (void)state;
    memset(&g, 0, sizeof g);
    client_init(&c, MEMORY);
    tw_server_limits(&c.server, &limits);
    c.server.port.limits = &limits;
    client_place_bigram(&c, &g);
    return 0;
}

static int close_client(void **state) {
    (void)state;
    client_finish(&c);
    assert_int_equal(c.live, 0);
    return 0;
}

static int load(void) {
    return client_bind_bigram(&c, TW_WIRE_STRICT, &g);
}

static void assert_refused(const char *what, uint64_t have, uint64_t need) {
    assert_int_equal(load(), TW_E_UNSUPPORTED);
    const struct tw_wire_failure *f = client_failure(&c);
    assert_string_equal(f->what, what);
    assert_true(f->have == have && f->need == need);
    tw_server_limits(&c.server, &limits);
}

static bool has_op(const struct tw_requirements *r, uint32_t code) {
    return r->ops[code / 32] >> code % 32 & 1;
}

static void limits_are_what_the_firmware_has(void **state) {
    (void)state;
    c.server.port.limits = NULL;
    assert_int_equal(client_call(&c, TW_WIRE_LIMITS, 0, NULL, 0), 0);
    struct tw_requirements r;
    assert_int_equal(c.answer.length, sizeof r);
    memcpy(&r, c.answer.payload, sizeof r);
    for (uint32_t code = 0; code < 32 * TW_REQ_OP_WORDS; code++) {
        bool known = code < TW_OP_LIMIT && tw_op_info(code).name &&
                     (!tw_op_is_data(code) || c.server.port.kernels->fn[code]);
        assert_int_equal(has_op(&r, code), known);
    }
    assert_true(has_op(&r, TW_OP_LOOP) && has_op(&r, TW_OP_MATMUL));
    assert_true(r.dtypes == (1u << TW_DT_COUNT) - 1 && r.features == TW_FEATURE_ALL);
    assert_int_equal(load(), 0);
    /* without kernels it runs nothing */
    struct tw_server_port none = c.server.port;
    none.kernels = NULL;
    struct tw_server server;
    tw_server_init(&server, &none);
    tw_server_limits(&server, &r);
    assert_true(r.ops[0] == 0 && r.ops[1] == 0);
}

static void a_port_may_lower_them(void **state) {
    (void)state;
    limits.rows = 7;
    limits.dtypes &= ~(1u << TW_DT_Q4_0);
    limits.sram_bytes[1] = 0;
    struct tw_requirements r;
    tw_server_limits(&c.server, &r);
    assert_int_equal(r.rows, 7);
    assert_false(r.dtypes >> TW_DT_Q4_0 & 1);
    assert_true(r.sram_bytes[1] == 0 && r.sram_bytes[0] == UINT64_MAX);
}

static void a_program_that_needs_more_is_refused_by_name_and_number(void **state) {
    (void)state;
    limits.ops[TW_OP_GATHER / 32] &= ~(1u << TW_OP_GATHER % 32);
    assert_refused("the program needs op 10", 0, 1);
    limits.dtypes &= ~(1u << TW_DT_I32);
    assert_refused("the program needs element type 3", 0, 1);
    limits.packings = 0;
    assert_refused("the program needs packing 0", 0, 1);
    limits.sites = 0;
    assert_refused("the program spans too many sites", 0, 1);
    limits.chips = 0;
    assert_refused("the program spans too many chips", 0, 1);
    limits.rows = BIGRAM_ROWS - 1;
    assert_refused("the program has too many rows in a step", BIGRAM_ROWS - 1, BIGRAM_ROWS);
    limits.trips = 0;
    assert_refused("the program has too many trips", 0, 1);
    limits.sram_bytes[0] = 64;
    uint64_t end = 0;
    for (uint32_t i = 0; i < g.b.program.n_buffers; i++) {
        const struct tw_buffer *b = &g.b.program.buffers[i];
        uint64_t e = b->offset + b->pages * b->page_bytes;
        end = e > end ? e : end;
    }
    assert_refused("the program needs too much SRAM of memory class 0", 64, end);
    assert_int_equal(load(), 0);
}

static struct tw_progblob_header *header(void) {
    return (struct tw_progblob_header *)(uintptr_t)g.blob;
}

/* A program of a newer minor version has an op that this firmware cannot even decode: it is refused
 * by the op's number. */
static void a_program_of_a_newer_minor_version_is_refused(void **state) {
    (void)state;
    struct tw_requirements needs = header()->needs;
    header()->needs.ops[6] |= 1u << 8;
    assert_refused("the program needs op 200", 0, 1);
    header()->needs = needs;
    header()->needs.features |= 1u << 31;
    limits.features = TW_FEATURE_ALL;
    assert_refused("the program needs feature 31", 0, 1);
    header()->needs = needs;
    assert_int_equal(load(), 0);
}

static void a_program_that_states_something_else_is_refused(void **state) {
    (void)state;
    struct tw_requirements needs = header()->needs;
    memset(&header()->needs, 0, sizeof needs);
    assert_int_equal(load(), TW_E_FORMAT);
    assert_non_null(strstr(client_failure(&c)->what, "requirements"));
    header()->needs = needs;
    header()->needs.ops[TW_OP_MATMUL / 32] |= 1u << TW_OP_MATMUL % 32;
    assert_int_equal(load(), TW_E_FORMAT);
    header()->needs = needs;
    assert_int_equal(load(), 0);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(limits_are_what_the_firmware_has, open_client,
                                        close_client),
        cmocka_unit_test_setup_teardown(a_port_may_lower_them, open_client, close_client),
        cmocka_unit_test_setup_teardown(a_program_that_needs_more_is_refused_by_name_and_number,
                                        open_client, close_client),
        cmocka_unit_test_setup_teardown(a_program_of_a_newer_minor_version_is_refused, open_client,
                                        close_client),
        cmocka_unit_test_setup_teardown(a_program_that_states_something_else_is_refused,
                                        open_client, close_client),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
