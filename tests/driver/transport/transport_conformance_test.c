/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract of driver/transport/transport.h, tested with every backend. A backend must report
 * what it supports in its identity and refuse anything else with an error. With TW_CONFORM, a list
 * of selectors, these devices are tested instead: TW_CONFORM="usb pcie:0000:00:02.0".
 */
#include "driver/transport/transport.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"

struct bed {
    const struct tw_transport_ops *ops;
    const char *rest;
    struct tw_transport *t;
    uint32_t sequence;
};

/* A backend under test: vtable, the selector after "name:", and the target of that device; NULL:
 * any. */
struct backend {
    const struct tw_transport_ops *ops;
    const char *rest, *target;
};

/* The same contract holds over a link that loses and damages packets. */
static const struct backend own[] = {{&tw_transport_emu, "", ""},
                                     {&tw_transport_emu, "sim4x4", "sim4x4"},
                                     {&tw_transport_emu, "quad2x2", "quad2x2"},
                                     {&tw_transport_emu, "sim4x4?faults=mess,1", "sim4x4"},
                                     {&tw_transport_socket, "one", ""},
                                     {&tw_transport_socket, "faulty", ""},
                                     {&tw_transport_null, "", ""}};

static const struct tw_transport_options no_options;
static struct bed bed;
static struct backend current;

static int open_bed(void **state) {
    tw_error err = {0};
    bed = (struct bed){.ops = current.ops, .rest = current.rest};
    int code = bed.ops->open(bed.rest, &no_options, &bed.t, &err);
    *state = &bed;
    return code;
}

static int close_bed(void **state) {
    struct bed *b = *state;
    b->t->ops->close(b->t);
    return 0;
}

static int submit(struct bed *b, enum tw_wire_opcode opcode, uint64_t address, const void *payload,
                  uint32_t bytes, tw_error *err) {
    uint8_t header[TW_WIRE_HEADER_BYTES];
    struct tw_wire_header h = {.version = 1,
                               .opcode = (uint8_t)opcode,
                               .sequence = ++b->sequence,
                               .address = address,
                               .length = bytes};
    tw_wire_encode(&h, header);
    return b->t->ops->submit(b->t, header, payload, bytes, err);
}

static struct tw_wire_header receive(struct bed *b, const void **payload) {
    uint8_t header[TW_WIRE_HEADER_BYTES];
    uint32_t bytes = UINT32_MAX;
    struct tw_wire_header h;
    const char *why;
    tw_error err = {0};
    assert_int_equal(b->t->ops->receive(b->t, header, payload, &bytes, &err), 0);
    assert_int_equal(tw_wire_decode(header, &h, &why), 0);
    assert_int_equal(h.length, bytes);
    assert_int_equal(h.flags, TW_WIRE_ANSWER);
    return h;
}

static struct tw_wire_header call(struct bed *b, enum tw_wire_opcode opcode, uint64_t address,
                                  const void *payload, uint32_t bytes, const void **answer) {
    tw_error err = {0};
    assert_int_equal(submit(b, opcode, address, payload, bytes, &err), 0);
    struct tw_wire_header h = receive(b, answer);
    assert_int_equal(h.opcode, opcode);
    assert_int_equal(h.sequence, b->sequence);
    return h;
}

static struct tw_wire_identity identify(struct bed *b) {
    struct tw_wire_hello hello = {.protocol_min = 1, .protocol_max = 1, .abi_major = 1};
    const void *answer;
    struct tw_wire_header h = call(b, TW_WIRE_HELLO, 0, &hello, sizeof hello, &answer);
    struct tw_wire_identity id;
    assert_int_equal(h.status, 0);
    assert_int_equal(h.length, sizeof id);
    memcpy(&id, answer, sizeof id);
    return id;
}

static void hello_is_answered_with_an_identity(void **state) {
    struct bed *b = *state;
    struct tw_wire_identity id = identify(b);
    uint32_t version;
    assert_int_equal(tw_wire_agree(1, 1, id.protocol_min, id.protocol_max, &version), 0);
    assert_int_equal(id.abi_major, TW_MACHINE_ABI_MAJOR);
    assert_true(id.n_threads >= 1);
    assert_true(id.max_payload >= 4096);
    assert_true(memchr(id.target, 0, sizeof id.target) != NULL);
    assert_true(memchr(id.device, 0, sizeof id.device) != NULL);
    if (current.target) {
        assert_string_equal(id.target, current.target);
    }
}

static void credits_are_kept_and_answers_come_in_order(void **state) {
    struct bed *b = *state;
    tw_error err = {0};
    assert_true(b->t->credits >= 1);
    uint32_t first = b->sequence + 1;
    for (uint32_t i = 0; i < b->t->credits; i++) {
        assert_int_equal(submit(b, TW_WIRE_HEARTBEAT, 0, NULL, 0, &err), 0);
    }
    assert_int_equal(submit(b, TW_WIRE_HEARTBEAT, 0, NULL, 0, &err), TW_E_USAGE);
    assert_true(err.message[0] != 0);
    for (uint32_t i = 0; i < b->t->credits; i++) {
        const void *answer;
        assert_int_equal(receive(b, &answer).sequence, first + i);
    }
    uint8_t header[TW_WIRE_HEADER_BYTES];
    const void *answer;
    uint32_t bytes;
    assert_int_equal(b->t->ops->receive(b->t, header, &answer, &bytes, &err), TW_E_USAGE);
}

static void memory_holds_what_is_written_or_there_is_none(void **state) {
    struct bed *b = *state;
    struct tw_wire_identity id = identify(b);
    struct tw_wire_alloc q = {.bytes = 1000, .align = 4096, .flags = TW_WIRE_ALLOC_ZERO};
    const void *answer;
    struct tw_wire_header h = call(b, TW_WIRE_ALLOC, 0, &q, sizeof q, &answer);
    if (id.memory_bytes == 0) {
        assert_int_equal(h.status, TW_E_NOMEM);
        assert_int_equal(h.length, sizeof(struct tw_wire_failure));
        return;
    }
    assert_int_equal(h.status, 0);
    uint64_t at = h.address;
    assert_int_equal(at % 4096, 0);
    struct tw_wire_range all = {.bytes = 1000};
    h = call(b, TW_WIRE_READ, at, &all, sizeof all, &answer);
    assert_int_equal(h.length, 1000);
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(((const uint8_t *)answer)[i], 0);
    }
    uint64_t words[4] = {1, 2, 3, UINT64_MAX};
    assert_int_equal(call(b, TW_WIRE_WRITE, at + 960, words, sizeof words, &answer).status, 0);
    assert_int_equal(call(b, TW_WIRE_WRITE, at + 976, words, sizeof words, &answer).status,
                     TW_E_RANGE);
    struct tw_wire_range part = {.bytes = sizeof words};
    call(b, TW_WIRE_READ, at + 960, &part, sizeof part, &answer);
    assert_memory_equal(answer, words, sizeof words);
    call(b, TW_WIRE_HASH, at + 960, &part, sizeof part, &answer);
    assert_int_equal(((const struct tw_wire_hash *)answer)->crc32c,
                     tw_wire_crc32c(0, words, sizeof words));
    assert_int_equal(call(b, TW_WIRE_FREE, at, NULL, 0, &answer).status, 0);
    assert_int_equal(call(b, TW_WIRE_READ, at, &part, sizeof part, &answer).status, TW_E_RANGE);
}

static void shared_memory_is_seen_from_both_sides(void **state) {
    struct bed *b = *state;
    if (!b->t->ops->map || !b->t->ops->adopt) {
        /* one without the other has no use */
        assert_true(b->t->ops->map == NULL && b->t->ops->adopt == NULL);
        return;
    }
    static const uint64_t constant[8] = {7, 8, 9};
    tw_error err = {0};
    uint64_t at;
    const void *answer;
    assert_int_equal(b->t->ops->adopt(b->t, constant, sizeof constant, &at, &err), 0);
    struct tw_wire_range part = {.bytes = 24};
    assert_int_equal(call(b, TW_WIRE_READ, at, &part, sizeof part, &answer).status, 0);
    assert_memory_equal(answer, constant, 24);
    assert_int_equal(call(b, TW_WIRE_FILL, at, &part, sizeof part, &answer).status, TW_E_RANGE);
    assert_int_equal(call(b, TW_WIRE_FREE, at, NULL, 0, &answer).status, 0);
    assert_int_equal(b->t->ops->adopt(b->t, constant, 0, &at, &err), TW_E_RANGE);

    struct tw_wire_alloc q = {.bytes = 64, .align = 64};
    at = call(b, TW_WIRE_ALLOC, 0, &q, sizeof q, &answer).address;
    uint32_t *shared = b->t->ops->map(b->t, at + 32, 32);
    assert_non_null(shared);
    assert_null(b->t->ops->map(b->t, at + 32, 33));
    assert_int_equal(call(b, TW_WIRE_WRITE, at + 32, constant, 8, &answer).status, 0);
    assert_int_equal(*shared, 7);
}

static void programs_that_do_not_exist_cannot_run(void **state) {
    struct bed *b = *state;
    const void *answer;
    struct tw_wire_run run = {.program = 0, .n_steps = 1};
    struct tw_wire_header h = call(b, TW_WIRE_RUN, 0, &run, sizeof run, &answer);
    assert_int_equal(h.status, TW_E_RANGE);
    assert_int_equal(h.length, sizeof(struct tw_wire_failure));
    struct tw_wire_load load = {.mode = TW_WIRE_FAST};
    assert_true(call(b, TW_WIRE_LOAD, 0, &load, sizeof load, &answer).status < 0);
    assert_int_equal(call(b, TW_WIRE_UNLOAD, 0, NULL, 0, &answer).status, TW_E_RANGE);
}

static void damaged_requests_are_refused_as_such(void **state) {
    struct bed *b = *state;
    tw_error err = {0};
    uint8_t header[TW_WIRE_HEADER_BYTES];
    const void *before;
    call(b, TW_WIRE_COUNTERS, 0, NULL, 0, &before);
    /* a device outlives its hosts */
    uint64_t refused = ((const struct tw_wire_counters *)before)->refused;
    struct tw_wire_header h = {.version = 1, .opcode = TW_WIRE_COUNTERS};
    tw_wire_encode(&h, header);
    header[TW_WIRE_AT_sequence + 1] ^= 0x10;
    assert_int_equal(b->t->ops->submit(b->t, header, NULL, 0, &err), 0);
    uint32_t bytes;
    const void *answer;
    const char *why;
    assert_int_equal(b->t->ops->receive(b->t, header, &answer, &bytes, &err), 0);
    tw_wire_decode(header, &h, &why);
    assert_int_equal(h.status, TW_E_PROTOCOL);
    assert_int_equal(call(b, TW_WIRE_COUNTERS, 0, NULL, 0, &answer).status, 0);
    assert_int_equal(((const struct tw_wire_counters *)answer)->refused, refused + 1);
}

static void a_reset_frees_everything(void **state) {
    struct bed *b = *state;
    const void *answer;
    if (identify(b).memory_bytes) {
        struct tw_wire_alloc q = {.bytes = 4096, .align = 64};
        call(b, TW_WIRE_COUNTERS, 0, NULL, 0, &answer);
        /* weights of earlier hosts */
        uint64_t kept = ((const struct tw_wire_counters *)answer)->memory_used;
        assert_int_equal(call(b, TW_WIRE_ALLOC, 0, &q, sizeof q, &answer).status, 0);
        call(b, TW_WIRE_COUNTERS, 0, NULL, 0, &answer);
        assert_int_equal(((const struct tw_wire_counters *)answer)->memory_used, kept + 4096);
    }
    assert_int_equal(call(b, TW_WIRE_RESET, 0, NULL, 0, &answer).status, 0);
    call(b, TW_WIRE_COUNTERS, 0, NULL, 0, &answer);
    assert_int_equal(((const struct tw_wire_counters *)answer)->memory_used, 0);
    assert_int_equal(((const struct tw_wire_counters *)answer)->allocations, 0);
}

static void closing_with_an_unanswered_request_is_legal(void **state) {
    struct bed *b = *state;
    tw_error err = {0};
    assert_int_equal(submit(b, TW_WIRE_HEARTBEAT, 0, NULL, 0, &err), 0);
}

static void unknown_names_are_no_device(void **state) {
    struct bed *b = *state;
    tw_error err = {0};
    struct tw_transport *t = NULL;
    assert_int_equal(b->ops->open("no such thing", &no_options, &t, &err), TW_E_NO_DEVICE);
    assert_null(t);
    assert_non_null(strstr(err.message, "no such thing"));
}

static bool take_first(void *ctx, const struct tw_transport_info *info) {
    memcpy(ctx, info, sizeof *info);
    return false;
}

static bool open_each(void *ctx, const struct tw_transport_info *info) {
    const struct tw_transport_ops *ops = ctx;
    size_t n = strlen(ops->name);
    struct tw_transport *t;
    tw_error err = {0};
    assert_int_equal(strncmp(info->selector, ops->name, n), 0);
    if (strcmp(info->state, "ready") == 0) {
        assert_int_equal(
            ops->open(info->selector[n] ? info->selector + n + 1 : "", &no_options, &t, &err), 0);
        t->ops->close(t);
    }
    return true;
}

static void what_discovery_lists_as_ready_opens(void **state) {
    struct bed *b = *state;
    struct tw_transport_info first = {.selector = ""};
    b->ops->discover(take_first, &first);
    assert_int_equal(strncmp(first.selector, b->ops->name, strlen(b->ops->name)), 0);
    assert_true(first.detail[0] != 0);
    b->ops->discover(open_each, (void *)(uintptr_t)b->ops);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_bed, close_bed)

static const struct CMUnitTest tests[] = {
    TEST(hello_is_answered_with_an_identity),
    TEST(credits_are_kept_and_answers_come_in_order),
    TEST(memory_holds_what_is_written_or_there_is_none),
    TEST(shared_memory_is_seen_from_both_sides),
    TEST(programs_that_do_not_exist_cannot_run),
    TEST(damaged_requests_are_refused_as_such),
    TEST(a_reset_frees_everything),
    TEST(closing_with_an_unanswered_request_is_legal),
    TEST(unknown_names_are_no_device),
    TEST(what_discovery_lists_as_ready_opens),
};

static int run_suite(const struct backend *b) {
    char name[128];
    snprintf(name, sizeof name, "%s:%s", b->ops->name, b->rest);
    current = *b;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

static const struct tw_transport_ops *find_ops(const char *name, size_t n) {
    for (size_t i = 0; tw_transports[i]; i++) {
        if (strlen(tw_transports[i]->name) == n && memcmp(tw_transports[i]->name, name, n) == 0) {
            return tw_transports[i];
        }
    }
    return NULL;
}

static int run_selectors(char *list) {
    int failed = 0;
    for (char *rest, *s = strtok_r(list, " ", &rest); s; s = strtok_r(NULL, " ", &rest)) {
        size_t n = strcspn(s, ":");
        struct backend b = {.ops = find_ops(s, n), .rest = s[n] ? s + n + 1 : ""};
        if (!b.ops) {
            fprintf(stderr, "TW_CONFORM: there is no transport for '%s'\n", s);
        }
        failed += b.ops ? run_suite(&b) : 1;
    }
    return failed;
}

static int run_own(void) {
    struct socket_device one, faulty;
    int failed = 0;
    socket_folder_make();
    socket_device_start(&one, "one", NULL, 0);
    socket_device_start(&faulty, "faulty", "mess", 2);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        failed += run_suite(&own[i]);
    }
    failed += socket_device_end(&one) + socket_device_end(&faulty);
    socket_folder_remove();
    return failed;
}

int main(void) {
    char *selectors = getenv("TW_CONFORM");
    return selectors ? run_selectors(selectors) : run_own();
}
