/* SPDX-License-Identifier: Apache-2.0
 *
 * A device in another process: the same bits, one holder at a time, and a clear error when it
 * disappears.
 */
#include "driver/device/device.h"
#include "loader/base/clock.h"
#include "tests/support/decode_trace.h"
#include "tests/support/model_bundle.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"
#include "tilewright/emulate.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKENS 64u
#define LONG_S 60 /* longer than anything may take, on any machine */

static void open_on(struct rig *r, const char *selector, const struct tw_session_options *o) {
    memset(r, 0, sizeof *r);
    assert_int_equal(socket_open(selector, 0, &r->device, &r->err), 0);
    assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &r->decoder, &r->err), 0);
    assert_int_equal(tw_deploy(r->device, r->decoder, &r->deployment, &r->err), 0);
    assert_int_equal(tw_session_create(r->deployment, o, &r->session, &r->err), 0);
}

static void decode(const char *selector, const struct tw_session_options *o,
                   struct decode_trace *t) {
    struct rig r;
    open_on(&r, selector, o);
    decode_trace(r.session, TOKENS, t);
    rig_close(&r);
}

static void ids_and_logits_are_those_of_the_emulator(void **state) {
    (void)state;
    static const struct tw_session_options modes[] = {{.size = sizeof modes[0]},
                                                      {.size = sizeof modes[0], .chunk = 1}};
    struct socket_device d;
    socket_device_start(&d, "bits", NULL, 0);
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        struct decode_trace here, there;
        decode("emu", &modes[m], &here);
        decode(d.selector, &modes[m], &there);
        decode_trace_check_equal(&here, &there, TOKENS);
        free(here.logits);
        free(there.logits);
    }
    assert_int_equal(socket_device_end(&d), 0);
}

static void kept_weights_give_way_to_allocations(void **state) {
    (void)state;
    struct socket_device d;
    tw_device *device;
    tw_error err = {0};
    uint64_t at;
    size_t n = 100u << 20; /* of 256 MiB */
    uint8_t *bytes = calloc(n, 1);
    socket_device_start(&d, "room", NULL, 0);
    for (int i = 0; i < 4; i++) {
        bytes[0] = (uint8_t)i;
        assert_int_equal(socket_open(d.selector, 0, &device, &err), 0);
        assert_int_equal(tw_device_place(device, bytes, n, 64, &at, &err), 0);
        uint8_t back[2] = {9, 9};
        assert_int_equal(tw_device_read(device, at, back, 2, &err), 0);
        assert_int_equal(back[0], i);
        tw_device_close(device);
    }
    free(bytes);
    assert_int_equal(socket_device_end(&d), 0);
}

struct found {
    const char *selector;
    struct tw_device_info info;
};

static bool match(void *ctx, const struct tw_device_info *info) {
    struct found *f = ctx;
    if (strcmp(info->selector, f->selector) == 0) {
        f->info = *info;
    }
    return true;
}

static struct tw_device_info find(const char *selector) {
    struct found f = {.selector = selector};
    tw_device_list(match, &f, NULL);
    return f.info;
}

/* Tries repeatedly, as a busy machine may keep a device from answering a query in time. */
static void expect_state(const char *selector, const char *state) {
    struct tw_device_info info = find(selector);
    for (double end = tw_clock_s() + LONG_S; strcmp(info.state, state) != 0 && tw_clock_s() < end;
         info = find(selector)) {
        usleep(1000);
    }
    assert_string_equal(info.state, state);
}

static void a_second_host_is_refused_with_the_holders_name(void **state) {
    (void)state;
    struct socket_device d;
    tw_device *a, *b = NULL;
    tw_error err = {0};
    char pid[24];
    snprintf(pid, sizeof pid, "process %d (", (int)getpid());
    socket_device_start(&d, "mine", NULL, 0);
    expect_state(d.selector, "ready");
    assert_int_equal(socket_open(d.selector, 0, &a, &err), 0);
    assert_int_equal(socket_open(d.selector, 0, &b, &err), TW_E_DEVICE_BUSY);
    assert_null(b);
    assert_non_null(strstr(err.message, pid));
    expect_state(d.selector, "busy");
    assert_non_null(strstr(find(d.selector).detail, pid));
    /* Without the lock file the device itself says so. */
    char use[120];
    snprintf(use, sizeof use, "%s.use", d.path);
    assert_int_equal(unlink(use), 0);
    assert_int_equal(socket_open(d.selector, 0, &b, &err), TW_E_DEVICE_BUSY);
    assert_non_null(strstr(err.message, pid));
    tw_device_close(a);
    assert_int_equal(socket_open(d.selector, 0, &b, &err), 0);
    tw_device_close(b);
    assert_int_equal(socket_device_end(&d), 0);
}

static uint64_t memory_used(tw_device *device) {
    struct tw_wire_counters c = {0};
    struct tw_device_call call = {.opcode = TW_WIRE_COUNTERS, .out = &c, .out_bytes = sizeof c};
    assert_int_equal(tw_device_call(device, &call, NULL), 0);
    return c.memory_used;
}

static int hold_and_sleep(void *ctx) {
    tw_device *device;
    uint64_t at;
    if (socket_open(ctx, 0, &device, NULL) ||
        tw_device_alloc(device, 1 << 20, 64, false, &at, NULL)) {
        return 1;
    }
    pause();
    return 0;
}

static void a_host_that_is_killed_leaves_a_clean_device(void **state) {
    (void)state;
    struct socket_device d;
    tw_device *device;
    tw_error err = {0};
    socket_device_start(&d, "orphan", NULL, 0);
    for (int i = 0; i < 3; i++) {
        pid_t child = child_start(hold_and_sleep, d.selector);
        expect_state(d.selector, "busy");
        kill(child, SIGKILL);
        assert_int_equal(child_wait(child), 128 + SIGKILL);
        assert_int_equal(socket_open(d.selector, 0, &device, &err), 0);
        assert_int_equal(memory_used(device), 0);
        tw_device_close(device);
    }
    assert_int_equal(socket_device_end(&d), 0);
}

static void a_device_that_is_killed_ends_every_call(void **state) {
    (void)state;
    struct socket_device d;
    struct rig r;
    const uint32_t ids[] = {1, 403, 407};
    socket_device_start(&d, "victim", NULL, 0);
    open_on(&r, d.selector, NULL);
    assert_int_equal(tw_session_feed(r.session, ids, 3, &r.err), 0);
    socket_device_kill(&d);
    double start = tw_clock_s();
    assert_int_equal(tw_session_feed(r.session, ids, 1, &r.err), TW_E_DEVICE_LOST);
    assert_non_null(strstr(r.err.message, d.selector));
    assert_true(tw_clock_s() - start < 9); /* at once, not after its deadline of 10 s */
    uint64_t at;
    assert_int_equal(tw_device_alloc(r.device, 64, 64, false, &at, &r.err), TW_E_DEVICE_LOST);
    assert_non_null(strstr(r.err.message, "open it again"));
    assert_non_null(strstr(r.err.message, "closed the connection"));
    struct tw_device_info info = {.size = sizeof info};
    tw_device_get_info(r.device, &info, NULL);
    assert_string_equal(info.state, "lost");
    expect_state(d.selector, "gone");
    rig_close(&r);

    socket_device_start(&d, "victim", NULL, 0); /* over the dead one's socket */
    open_on(&r, d.selector, NULL);
    assert_int_equal(tw_session_feed(r.session, ids, 3, &r.err), 0);
    rig_close(&r);
    assert_int_equal(socket_device_end(&d), 0);
}

static void a_socket_is_served_once_and_removed(void **state) {
    (void)state;
    struct socket_device d;
    struct stat st;
    tw_error err = {0};
    char pid[24], other[120];
    volatile sig_atomic_t stop = 1;
    socket_device_start(&d, "once", NULL, 0);
    struct tw_emulate_options o = {.size = sizeof o, .path = "once"};
    assert_int_equal(tw_emulate(&o, &stop, &err), TW_E_DEVICE_BUSY);
    snprintf(pid, sizeof pid, "process %d (", (int)d.pid);
    assert_non_null(strstr(err.message, pid));
    assert_int_equal(socket_device_end(&d), 0);
    assert_int_equal(stat(d.path, &st), -1);
    snprintf(other, sizeof other, "%s.lock", d.path);
    assert_int_equal(stat(other, &st), -1);
    snprintf(other, sizeof other, "%s.use", d.path);
    assert_int_equal(stat(other, &st), -1);
}

static void something_else_at_the_path_is_left_alone(void **state) {
    (void)state;
    char path[] = "/tmp/tw-file-XXXXXX";
    tw_error err = {0};
    tw_device *device;
    volatile sig_atomic_t stop = 1;
    close(mkstemp(path));
    struct tw_emulate_options o = {.size = sizeof o, .path = path};
    assert_int_equal(tw_emulate(&o, &stop, &err), TW_E_IO);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(unlink(path), 0);
    char selector[64];
    snprintf(selector, sizeof selector, "socket:%s", path);
    assert_int_equal(socket_open(selector, 0, &device, &err), TW_E_NO_DEVICE);
    assert_non_null(strstr(err.message, "tilewright emulate --listen"));
}

static void a_stopped_device_is_lost_at_the_deadline(void **state) {
    (void)state;
    struct socket_device d;
    tw_device *device;
    tw_error err = {0};
    uint64_t at;
    char words[80];
    socket_device_start(&d, "stopped", NULL, 0);
    snprintf(words, sizeof words,
             "process %d serves it and is stopped (to resume it: kill -CONT %d)", (int)d.pid,
             (int)d.pid);
    assert_int_equal(socket_open(d.selector, 1000, &device, &err), 0);
    child_stop(d.pid);
    double start = tw_clock_s();
    assert_int_equal(tw_device_alloc(device, 64, 64, false, &at, &err), TW_E_DEVICE_LOST);
    assert_non_null(strstr(err.message, "no answer for 1.0 s"));
    assert_non_null(strstr(err.message, words));
    assert_true(tw_clock_s() - start > 0.9 && tw_clock_s() - start < LONG_S);
    expect_state(d.selector, "silent");
    tw_device_close(device);
    assert_int_equal(socket_open(d.selector, 500, &device, &err), TW_E_DEVICE_LOST);
    assert_non_null(strstr(err.message, words));
    kill(d.pid, SIGCONT);
    assert_int_equal(socket_open(d.selector, 0, &device, &err), 0);
    tw_device_close(device);
    assert_int_equal(socket_device_end(&d), 0);
}

/* Is stopped by its parent, and checks after waking that its memory is still there. */
static int hold_and_be_stopped(void *ctx) {
    tw_device *device;
    tw_error err = {0};
    uint64_t at, word = 7, back = 0;
    int code = socket_open(ctx, 0, &device, &err);
    code = code ? code : tw_device_alloc(device, 8, 64, false, &at, &err);
    code = code ? code : tw_device_write(device, at, &word, 8, &err);
    raise(SIGSTOP);
    code = code ? code : tw_device_read(device, at, &back, 8, &err);
    if (code) {
        fprintf(stderr, "# %s\n", err.message);
    } else {
        tw_device_close(device);
    }
    return code != 0 || back != word;
}

static void a_stopped_host_keeps_its_device(void **state) {
    (void)state;
    struct socket_device d;
    tw_device *device;
    tw_error err = {0};
    char words[80];
    socket_device_start(&d, "kept", NULL, 0);
    pid_t child = child_start(hold_and_be_stopped, d.selector);
    child_wait_stopped(child);
    snprintf(words, sizeof words, ") is using it and is stopped (to resume it: kill -CONT %d)",
             (int)child);
    assert_int_equal(socket_open(d.selector, 0, &device, &err), TW_E_DEVICE_BUSY);
    assert_non_null(strstr(err.message, words));
    expect_state(d.selector, "busy");
    assert_non_null(strstr(find(d.selector).detail, words));
    kill(child, SIGCONT);
    assert_int_equal(child_wait(child), 0);
    assert_int_equal(socket_open(d.selector, 0, &device, &err), 0);
    tw_device_close(device);
    assert_int_equal(socket_device_end(&d), 0);
}

/* The oldest line of the device's log. */
static void read_log(tw_device *device, char line[128]) {
    uint8_t header[TW_WIRE_HEADER_BYTES];
    struct tw_wire_header h = {
        .version = TW_WIRE_VERSION_MAX, .opcode = TW_WIRE_LOG, .sequence = ++device->sequence};
    const void *payload;
    uint32_t n;
    struct tw_transport *t = device->transport;
    tw_wire_encode(&h, header);
    assert_int_equal(t->ops->submit(t, header, NULL, 0, NULL), 0);
    assert_int_equal(t->ops->receive(t, header, &payload, &n, NULL), 0);
    assert_true(n < 128);
    memcpy(line, payload, n);
    line[n] = 0;
}

static void a_device_logs_why_its_host_left(void **state) {
    (void)state;
    struct socket_device d;
    tw_device *device;
    char line[128], who[32];
    socket_device_start(&d, "log", NULL, 0);
    pid_t child = child_start(hold_and_sleep, d.selector);
    expect_state(d.selector, "busy");
    kill(child, SIGKILL);
    assert_int_equal(child_wait(child), 128 + SIGKILL);
    assert_int_equal(socket_open(d.selector, 0, &device, NULL), 0);
    read_log(device, line);
    snprintf(who, sizeof who, "host %d (", (int)child);
    assert_int_equal(strncmp(line, who, strlen(who)), 0);
    assert_non_null(strstr(line, ") disconnected without CLOSE, "));
    read_log(device, line);
    assert_string_equal(line, "");
    tw_device_close(device);
    assert_int_equal(socket_open(d.selector, 0, &device, NULL), 0);
    read_log(device, line); /* that one closed in order */
    assert_string_equal(line, "");
    tw_device_close(device);
    assert_int_equal(socket_device_end(&d), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_logits_are_those_of_the_emulator),
        cmocka_unit_test(kept_weights_give_way_to_allocations),
        cmocka_unit_test(a_second_host_is_refused_with_the_holders_name),
        cmocka_unit_test(a_host_that_is_killed_leaves_a_clean_device),
        cmocka_unit_test(a_device_that_is_killed_ends_every_call),
        cmocka_unit_test(a_socket_is_served_once_and_removed),
        cmocka_unit_test(something_else_at_the_path_is_left_alone),
        cmocka_unit_test(a_stopped_device_is_lost_at_the_deadline),
        cmocka_unit_test(a_stopped_host_keeps_its_device),
        cmocka_unit_test(a_device_logs_why_its_host_left),
    };
    socket_folder_make();
    int failed = cmocka_run_group_tests_name("socket", tests, NULL, NULL);
    model_bundle_cleanup();
    socket_folder_remove();
    return failed;
}
