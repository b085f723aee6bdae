/* SPDX-License-Identifier: Apache-2.0
 *
 * A link over the two sides of a PCIe mailbox to an emulator: the same bits as in process, in each
 * mode; and hosts and devices that disappear in the middle.
 */
#include "loader/base/clock.h"
#include "loader/base/event.h"
#include "tests/support/decode_trace.h"
#include "tests/support/model_bundle.h"
#include "tests/support/pcie_bed.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"

#include <unistd.h>

static struct pcie_bed bed;

static int make_bed(void **state) {
    (void)state;
    pcie_bed_init(&bed);
    pcie_bed_serve(&bed, NULL);
    return 0;
}

static int drop_bed(void **state) {
    (void)state;
    pcie_bed_end(&bed);
    pcie_bed_finish(&bed);
    return 0;
}

static void open_mode(unsigned mode, tw_device **d) {
    tw_error err = {0};
    int code = pcie_bed_open(&bed, mode & 1, mode & 2, 0, d, &err);
    if (code) {
        fail_msg("%s", err.message);
    }
}

/* ---- the same bits ---- */

#define TOKENS 16u

static void decode(tw_device *device, struct decode_trace *t) {
    struct rig r = {.device = device};
    assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &r.decoder, &r.err), 0);
    if (tw_deploy(r.device, r.decoder, &r.deployment, &r.err)) {
        fail_msg("%s", r.err.message);
    }
    assert_int_equal(tw_session_create(r.deployment, NULL, &r.session, &r.err), 0);
    decode_trace(r.session, TOKENS, t);
    rig_close(&r);
}

static void a_decode_gives_the_bits_of_the_emulator_in_each_mode(void **state) {
    (void)state;
    struct decode_trace here, there;
    tw_device *d;
    assert_int_equal(socket_open("emu", 0, &d, NULL), 0);
    decode(d, &here);
    for (unsigned mode = 0; mode < 4; mode++) {
        open_mode(mode, &d);
        decode(d, &there);
        decode_trace_check_equal(&here, &there, TOKENS);
        free(there.logits);
    }
    free(here.logits);
}

static void a_second_open_sends_no_weights(void **state) {
    (void)state;
    struct decode_trace t;
    tw_device *d;
    uint64_t sent[2];
    for (int i = 0; i < 2; i++) {
        struct rig r = {0};
        open_mode(0, &r.device);
        assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &r.decoder, &r.err), 0);
        assert_int_equal(tw_deploy(r.device, r.decoder, &r.deployment, &r.err), 0);
        sent[i] = r.device->sent_bytes;
        rig_close(&r);
    }
    assert_true(sent[0] > 1000000);
    assert_true(sent[1] < 100000);
    open_mode(0, &d); /* and they are good */
    decode(d, &t);
    free(t.logits);
}

/* ---- memory of all sizes ---- */

static void echo(tw_device *d, uint64_t at, const uint8_t *bytes, uint8_t *back, size_t n) {
    tw_error err = {0};
    memset(back, 0x55, n);
    assert_int_equal(tw_device_write(d, at, bytes, n, &err), 0);
    assert_int_equal(tw_device_read(d, at, back, n, &err), 0);
    assert_memory_equal(bytes, back, n);
}

static void messages_of_all_sizes_come_whole(void **state) {
    (void)state;
    const size_t max = 3u << 20;
    uint8_t *bytes = malloc(max), *back = malloc(max);
    for (size_t i = 0; i < max; i++) {
        bytes[i] = (uint8_t)(i * 7 + (i >> 9));
    }
    for (unsigned mode = 0; mode < 4; mode++) {
        tw_device *d;
        uint64_t at;
        open_mode(mode, &d);
        assert_int_equal(tw_device_alloc(d, max, 4096, false, &at, NULL), 0);
        for (size_t n = 1; n <= max; n = n * 3 + 1) {
            echo(d, at, bytes, back, n);
        }
        echo(d, at, bytes, back, 65536 - 32);
        echo(d, at, bytes, back, max);
        tw_device_close(d);
    }
    free(bytes);
    free(back);
}

/* ---- disappearing ---- */

static int heartbeat(tw_device *d, tw_error *err) {
    struct tw_device_call call = {.opcode = TW_WIRE_HEARTBEAT};
    return tw_device_call(d, &call, err);
}

static uint64_t memory_used(tw_device *d) {
    struct tw_wire_counters c = {0};
    struct tw_device_call call = {.opcode = TW_WIRE_COUNTERS, .out = &c, .out_bytes = sizeof c};
    assert_int_equal(tw_device_call(d, &call, NULL), 0);
    return c.memory_used;
}

static bool eventually(bool (*what)(void)) {
    for (double end = tw_clock_s() + 60; tw_clock_s() < end; usleep(1000)) {
        if (what()) {
            return true;
        }
    }
    return what();
}

static bool is_idle(void) {
    return tw_pcie_load(&pcie_bed_registers(&bed)->generation) == 0;
}

static bool is_in_use(void) {
    return !is_idle();
}

static void a_killed_host_is_detected_by_its_unmapped_memory(void **state) {
    (void)state;
    tw_device *d;
    uint64_t at;
    open_mode(0, &d);
    assert_int_equal(tw_device_alloc(d, 1 << 20, 4096, false, &at, NULL), 0);
    assert_true(eventually(is_in_use)); /* the register lags behind a little */
    pcie_bed_kill_host(&bed, d);
    assert_true(eventually(is_idle));
    assert_int_equal(__atomic_load_n(&pcie_bed_registers(&bed)->fault, __ATOMIC_ACQUIRE),
                     TW_E_RANGE);
    open_mode(0, &d);
    assert_int_equal(memory_used(d), 0);
    assert_int_equal(((struct tw_link *)d->transport)->opening.answer.was_dirty, 1);
    tw_device_close(d);
}

static void the_next_host_ends_one_whose_mailbox_was_in_the_window(void **state) {
    (void)state;
    tw_device *d;
    uint64_t at;
    open_mode(1, &d);
    assert_int_equal(tw_device_alloc(d, 1 << 20, 4096, false, &at, NULL), 0);
    pcie_bed_kill_host(&bed, d);
    open_mode(1, &d);
    assert_int_equal(memory_used(d), 0);
    tw_device_close(d);
}

static void a_device_that_ends_is_reported_as_such(void **state) {
    (void)state;
    tw_device *d;
    tw_error err = {0};
    open_mode(0, &d);
    pcie_bed_end(&bed);
    assert_int_equal(heartbeat(d, &err), TW_E_DEVICE_LOST);
    assert_non_null(strstr(err.message, "firmware has ended"));
    assert_int_equal(heartbeat(d, &err), TW_E_DEVICE_LOST);
    tw_device_close(d);
    assert_int_equal(pcie_bed_open(&bed, false, false, 500, &d, &err), TW_E_NO_DEVICE);
    pcie_bed_serve(&bed, NULL);
    open_mode(0, &d);
    tw_device_close(d);
}

static void a_device_off_the_bus_is_reported_as_such(void **state) {
    (void)state;
    tw_device *d;
    tw_error err = {0};
    open_mode(0, &d);
    pcie_bed_end(&bed);
    memset(bed.bar2, 0xFF, PCIE_BED_BAR2);
    assert_int_equal(heartbeat(d, &err), TW_E_DEVICE_LOST);
    assert_non_null(strstr(err.message, "off the bus"));
    tw_device_close(d);
    assert_int_equal(pcie_bed_open(&bed, false, false, 500, &d, &err), TW_E_DEVICE_LOST);
    assert_non_null(strstr(err.message, "all ones"));
    pcie_bed_serve(&bed, NULL);
}

static void an_unplug_request_ends_the_handle(void **state) {
    (void)state;
    tw_device *d;
    tw_error err = {0};
    open_mode(0, &d);
    bed.deaf = true; /* so that it has to wait */
    tw_event_signal(bed.request);
    assert_int_equal(heartbeat(d, &err), TW_E_DEVICE_LOST);
    assert_non_null(strstr(err.message, "unplugged"));
    bed.deaf = false;
    tw_device_close(d);
    assert_true(tw_event_clear(bed.request));
}

/* ---- recovery ---- */

static struct tw_pipe *pipe_of(tw_device *d) {
    return ((struct tw_link *)d->transport)->wiring.pipe;
}

static void a_mailbox_started_again_loses_nothing(void **state) {
    (void)state;
    tw_device *d;
    uint64_t at;
    uint8_t bytes[3000] = {1, 2, 3}, back[3000];
    open_mode(0, &d);
    assert_int_equal(tw_device_alloc(d, 4096, 4096, false, &at, NULL), 0);
    for (int i = 0; i < 20; i++) {
        bytes[5] = (uint8_t)i;
        assert_non_null(pipe_of(d)->ops->recover(pipe_of(d), 0));
        echo(d, at, bytes, back, sizeof bytes);
    }
    tw_device_close(d);
}

/* Requests and answers that are in flight when the mailbox starts again are resent by number. */
static void a_mailbox_started_again_in_mid_work_loses_nothing(void **state) {
    (void)state;
    tw_device *d;
    uint64_t at;
    enum { SIZE = 100000 };
    uint8_t *bytes = malloc(8 * SIZE), *back = malloc(8 * SIZE), header[TW_WIRE_HEADER_BYTES];
    for (int i = 0; i < 8 * SIZE; i++) {
        bytes[i] = (uint8_t)(i * 3 + i / 1000);
    }
    for (unsigned mode = 0; mode < 8; mode++) {
        open_mode(mode % 4, &d);
        struct tw_transport *t = d->transport;
        assert_int_equal(tw_device_alloc(d, 8 * SIZE, 4096, true, &at, NULL), 0);
        for (uint32_t i = 0; i < t->credits; i++) {
            struct tw_wire_header h = {.version = 1,
                                       .opcode = TW_WIRE_WRITE,
                                       .sequence = ++d->sequence,
                                       .address = at + i * SIZE,
                                       .length = SIZE};
            tw_wire_encode(&h, header);
            assert_int_equal(t->ops->submit(t, header, bytes + i * SIZE, SIZE, NULL), 0);
            if (i % 3 == mode % 3) {
                assert_non_null(pipe_of(d)->ops->recover(pipe_of(d), 0));
            }
        }
        for (uint32_t i = 0; i < t->credits; i++) {
            const void *payload;
            uint32_t n;
            assert_int_equal(t->ops->receive(t, header, &payload, &n, NULL), 0);
        }
        assert_int_equal(tw_device_read(d, at, back, t->credits * SIZE, NULL), 0);
        assert_memory_equal(bytes, back, t->credits * SIZE);
        tw_device_close(d);
    }
    free(bytes);
    free(back);
}

static void a_reset_by_register_frees_everything(void **state) {
    (void)state;
    tw_device *d, *e;
    uint64_t at;
    open_mode(0, &d);
    assert_int_equal(tw_device_alloc(d, 1 << 20, 4096, false, &at, NULL), 0);
    assert_non_null(pipe_of(d)->ops->recover(pipe_of(d), 1));
    /* this one has no hardware reset */
    assert_string_equal(pipe_of(d)->ops->recover(pipe_of(d), 2), "");
    assert_true(is_idle());
    pcie_bed_kill_host(&bed, d);
    open_mode(0, &e);
    assert_int_equal(memory_used(e), 0);
    tw_device_close(e);
}

static void progress_is_available_out_of_band(void **state) {
    (void)state;
    tw_device *d;
    struct tw_link_progress p = {0};
    open_mode(0, &d);
    assert_int_equal(heartbeat(d, NULL), 0);
    assert_true(pipe_of(d)->ops->probe_status(pipe_of(d), &p));
    /* the second is newer than the request */
    assert_true(pipe_of(d)->ops->probe_status(pipe_of(d), &p));
    assert_int_equal(p.answered, 2);
    assert_int_equal(p.executing, 0);
    tw_device_close(d);
}

static void a_frozen_device_is_distinguished_from_a_dead_one(void **state) {
    (void)state;
    tw_device *d;
    tw_error err = {0};
    pcie_bed_end(&bed);
    pcie_bed_serve(&bed, "freeze");
    int code = 0;
    for (int i = 0; i < 100 && !code; i++) { /* the plan freezes a later request */
        uint64_t at;
        code = i ? 0 : pcie_bed_open(&bed, false, false, 1500, &d, &err);
        code = code ? code : tw_device_alloc(d, 4096, 4096, false, &at, &err);
    }
    assert_int_equal(code, TW_E_TIMEOUT);
    assert_non_null(strstr(err.message, "made no progress"));
    tw_device_close(d);
    open_mode(0, &d);
    assert_int_equal(heartbeat(d, &err), 0);
    tw_device_close(d);
}

static void injected_link_faults_change_no_result(void **state) {
    (void)state;
    tw_device *d;
    struct decode_trace here, there;
    assert_int_equal(socket_open("emu", 0, &d, NULL), 0);
    decode(d, &here);
    pcie_bed_end(&bed);
    pcie_bed_serve(&bed, "mess");
    open_mode(0, &d);
    decode(d, &there);
    decode_trace_check_equal(&here, &there, TOKENS);
    free(here.logits);
    free(there.logits);
}

static void many_opens_leak_nothing(void **state) {
    (void)state;
    tw_device *d;
    open_mode(0, &d);
    tw_device_close(d);
    unsigned fds = process_fds(getpid());
    for (unsigned i = 0; i < 200; i++) {
        open_mode(i % 4, &d);
        assert_int_equal(heartbeat(d, NULL), 0);
        if (i % 5 == 0) {
            pcie_bed_kill_host(&bed, d);
        } else {
            tw_device_close(d);
        }
    }
    assert_int_equal(process_fds(getpid()), fds);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_bed, drop_bed)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_decode_gives_the_bits_of_the_emulator_in_each_mode),
        TEST(a_second_open_sends_no_weights),
        TEST(messages_of_all_sizes_come_whole),
        TEST(a_killed_host_is_detected_by_its_unmapped_memory),
        TEST(the_next_host_ends_one_whose_mailbox_was_in_the_window),
        TEST(a_device_that_ends_is_reported_as_such),
        TEST(a_device_off_the_bus_is_reported_as_such),
        TEST(an_unplug_request_ends_the_handle),
        TEST(a_mailbox_started_again_loses_nothing),
        TEST(a_mailbox_started_again_in_mid_work_loses_nothing),
        TEST(a_reset_by_register_frees_everything),
        TEST(progress_is_available_out_of_band),
        TEST(a_frozen_device_is_distinguished_from_a_dead_one),
        TEST(injected_link_faults_change_no_result),
        TEST(many_opens_leak_nothing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_bundle_cleanup();
    return failed;
}
