/* SPDX-License-Identifier: Apache-2.0
 *
 * What must hold for a device outside this process, whatever the transport: weights are sent once,
 * a greedy run is one command, opening and closing leaks nothing. TW_DEVICE names the device;
 * without it one on a socket is used.
 */
#include "driver/device/device.h"
#include "tests/support/model_bundle.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"

#include <unistd.h>

#define TOKENS 64u

static const char *selector;

static void open_rig(struct rig *r) {
    memset(r, 0, sizeof *r);
    if (socket_open(selector, 0, &r->device, &r->err) ||
        tw_decoder_open(model_bundle("host"), 0, &r->decoder, &r->err) ||
        tw_deploy(r->device, r->decoder, &r->deployment, &r->err) ||
        tw_session_create(r->deployment, NULL, &r->session, &r->err)) {
        fail_msg("%s", r->err.message);
    }
}

static uint64_t bytes_to_deploy(void) {
    struct rig r;
    open_rig(&r);
    uint64_t bytes = r.device->sent_bytes;
    rig_close(&r);
    return bytes;
}

/* Frees what the device keeps from earlier hosts. */
static void forget_everything(void) {
    tw_device *device;
    tw_error err = {0};
    if (socket_open(selector, 0, &device, &err) || tw_device_reset(device, &err)) {
        fail_msg("%s", err.message);
    }
    tw_device_close(device);
}

static void a_second_open_of_a_bundle_sends_no_weights(void **state) {
    (void)state;
    struct tw_decoder_info info = {.size = sizeof info};
    tw_decoder *decoder;
    assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &decoder, NULL), 0);
    tw_decoder_get_info(decoder, &info, NULL);
    tw_decoder_close(decoder);
    forget_everything();
    assert_true(bytes_to_deploy() > info.param_bytes);
    uint64_t second = bytes_to_deploy();
    assert_true(second < 8 * info.n_bind_rows + 4096);
    assert_true(second < info.param_bytes / 20);
}

static struct tw_wire_counters counters(tw_device *device) {
    struct tw_wire_counters c = {0};
    struct tw_device_call call = {.opcode = TW_WIRE_COUNTERS, .out = &c, .out_bytes = sizeof c};
    assert_int_equal(tw_device_call(device, &call, NULL), 0);
    return c;
}

static void a_greedy_run_is_one_command_and_few_bytes(void **state) {
    (void)state;
    struct rig r;
    const uint32_t prompt[] = {1, 403};
    uint32_t ids[TOKENS], n = 0;
    enum tw_stop_reason reason;
    struct tw_session_info info = {.size = sizeof info};
    struct tw_greedy_options o = {.size = sizeof o, .n = TOKENS};
    open_rig(&r);
    tw_session_get_info(r.session, &info, NULL);
    assert_int_equal(tw_session_feed(r.session, prompt, 2, &r.err), 0);
    struct tw_wire_counters before = counters(r.device);
    assert_int_equal(tw_session_run_greedy(r.session, 407, &o, ids, &n, &reason, &r.err), 0);
    struct tw_wire_counters after = counters(r.device);
    assert_int_equal(n, TOKENS);
    assert_true(after.steps - before.steps == TOKENS);
    /* the run, its surroundings, and the counters themselves */
    assert_true(after.messages - before.messages <= 8);
    uint64_t bytes = after.bytes_in - before.bytes_in + after.bytes_out - before.bytes_out;
    /* and the logits of the last */
    assert_true(bytes < 1024 * TOKENS + info.n_vocab * sizeof(float));
    rig_close(&r);
}

static void opening_and_closing_leaks_nothing(void **state) {
    (void)state;
    const char *wish = getenv("TW_LONG");
    unsigned cycles = wish && *wish ? 1000 : 30, fds = 0;
    unsigned long kib = 0;
    for (unsigned i = 0; i < cycles; i++) {
        struct rig r;
        open_rig(&r);
        uint32_t id = 1;
        assert_int_equal(tw_session_feed(r.session, &id, 1, &r.err), 0);
        rig_close(&r);
        if (i == 10) { /* caches are warm */
            fds = process_fds(getpid());
            kib = process_kib(getpid());
        }
    }
    assert_int_equal(process_fds(getpid()), fds);
    assert_true(TEST_ASAN || TEST_TSAN || process_kib(getpid()) < kib + 2048);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_open_of_a_bundle_sends_no_weights),
        cmocka_unit_test(a_greedy_run_is_one_command_and_few_bytes),
        cmocka_unit_test(opening_and_closing_leaks_nothing),
    };
    struct socket_device own = {.pid = 0};
    selector = getenv("TW_DEVICE");
    if (!selector) {
        socket_folder_make();
        socket_device_start(&own, "own", NULL, 0);
        selector = own.selector;
    }
    model_bundle("host");
    int failed = cmocka_run_group_tests_name(selector, tests, NULL, NULL);
    if (own.pid) {
        failed += socket_device_end(&own);
        socket_folder_remove();
    }
    model_bundle_cleanup();
    return failed;
}
