/* SPDX-License-Identifier: Apache-2.0
 *
 * A stop word, a disconnect and SIGTERM end a step that would take minutes, in this process and on
 * a served device; what is usable afterwards, and what is not.
 */
#include "driver/device/device.h"
#include "loader/base/clock.h"
#include "tests/support/command_run.h"
#include "tests/support/long_step.h"
#include "tests/support/model_bundle.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* A step that is not ended takes minutes; on a busy machine with sanitizers one that is ended may
 * take seconds. */
#define SOON_S 20.0

static const uint32_t ids[3] = {1, 2, 3};

static char long_bundle[128];
static sig_atomic_t stop;
static float *undisturbed; /* the logits after `ids`, where nothing is ever stopped */
static size_t undisturbed_bytes;

static void find_undisturbed(void) {
    struct rig r;
    struct tw_session_info info = {.size = sizeof info};
    rig_open(&r, "host", 1, NULL);
    tw_session_get_info(r.session, &info, NULL);
    undisturbed_bytes = info.n_vocab * sizeof *undisturbed;
    undisturbed = malloc(undisturbed_bytes);
    assert_int_equal(tw_session_feed(r.session, ids, 3, &r.err), 0);
    memcpy(undisturbed, tw_session_logits(r.session), undisturbed_bytes);
    rig_close(&r);
}

static int set_up(void **state) {
    tw_error err = {0};
    (void)state;
    socket_folder_make();
    snprintf(long_bundle, sizeof long_bundle, "%s.long", model_bundle("host"));
    if (long_step_write(model_bundle("host"), long_bundle, &err)) {
        print_error("%s\n", err.message);
        return -1;
    }
    find_undisturbed();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    free(undisturbed);
    unlink(long_bundle);
    model_bundle_cleanup();
    socket_folder_remove();
    return 0;
}

static void set_stop(sig_atomic_t value) {
    __atomic_store_n(&stop, value, __ATOMIC_RELAXED);
}

static void make_session(struct rig *r, enum tw_mode mode) {
    struct tw_session_options o = {.size = sizeof o, .mode = mode, .n_threads = 2, .stop = &stop};
    if (tw_session_create(r->deployment, &o, &r->session, &r->err)) {
        fail_msg("%s", r->err.message);
    }
}

/* The long bundle on a device, and a session. */
static void open_long(struct rig *r, const char *selector, enum tw_mode mode) {
    memset(r, 0, sizeof *r);
    set_stop(0);
    if (socket_open(selector, 0, &r->device, &r->err) ||
        tw_decoder_open(long_bundle, 0, &r->decoder, &r->err) ||
        tw_deploy(r->device, r->decoder, &r->deployment, &r->err)) {
        fail_msg("%s: %s", selector, r->err.message);
    }
    make_session(r, mode);
}

/* ---- who stops a step ---- */

struct stopper {
    tw_device *device;
    pthread_t thread;
    double at;
};

static bool is_running(tw_device *device) {
    struct tw_status_info i = {.size = sizeof i};
    tw_device_get_status(device, &i, NULL);
    return strcmp(i.doing, "RUN") == 0;
}

static void *stop_in_step(void *ctx) {
    struct stopper *s = ctx;
    for (double end = tw_clock_s() + SOON_S; !is_running(s->device) && tw_clock_s() < end;) {
        usleep(1000);
    }
    usleep(TEST_ASAN || TEST_TSAN ? 1500000 : 100000); /* short steps end, the long one begins */
    s->at = tw_clock_s();
    set_stop(1);
    return NULL;
}

static void stop_soon(struct stopper *s, tw_device *device) {
    s->device = device;
    assert_int_equal(pthread_create(&s->thread, NULL, stop_in_step, s), 0);
}

static void expect_soon(struct stopper *s, const char *what) {
    pthread_join(s->thread, NULL);
    double took = tw_clock_s() - s->at;
    print_message("%s: %.0f ms after the stop word\n", what, took * 1e3);
    assert_true(took < SOON_S);
    set_stop(0);
}

/* ---- sessions ---- */

static void expect_contains(const char *text, const char *part) {
    if (!strstr(text, part)) {
        fail_msg("\"%s\" does not say \"%s\"", text, part);
    }
}

/* The cut session refuses everything; another one works, with a step that is not long. */
static void expect_broken(struct rig *r, enum tw_mode mode) {
    assert_int_equal(tw_session_feed(r->session, ids, 2, &r->err), TW_E_FAULT);
    expect_contains(r->err.message, "create a new session");
    assert_null(tw_session_logits(r->session));
    tw_session_destroy(r->session);
    make_session(r, mode);
    assert_int_equal(tw_session_feed(r->session, ids, 3, &r->err), 0);
    assert_int_equal(tw_session_position(r->session), 3);
    assert_memory_equal(tw_session_logits(r->session), undisturbed, undisturbed_bytes);
}

static void stop_a_feed(const char *selector, enum tw_mode mode, const char *what) {
    struct rig r;
    struct stopper s;
    open_long(&r, selector, mode);
    assert_int_equal(tw_session_feed(r.session, ids, 3, &r.err), 0); /* prefill */
    stop_soon(&s, r.device);
    assert_int_equal(tw_session_feed(r.session, ids, 1, &r.err), TW_E_INTERRUPTED);
    expect_soon(&s, what);
    expect_contains(r.err.message, "decode: interrupted in the middle of a step, at position 3");
    assert_int_equal(tw_session_position(r.session), 3);
    expect_broken(&r, mode);
    rig_close(&r);
}

static void a_stop_word_ends_a_step_in_this_process(void **state) {
    (void)state;
    stop_a_feed("emu", TW_MODE_STRICT, "strict");
    stop_a_feed("emu", TW_MODE_FAST, "fast");
}

static void a_stop_word_ends_a_greedy_run(void **state) {
    struct tw_greedy_options o = {.size = sizeof o, .n = 4};
    enum tw_stop_reason reason = TW_STOP_COUNT;
    struct rig r;
    struct stopper s;
    uint32_t tokens[4], n = 9;
    (void)state;
    open_long(&r, "emu", TW_MODE_FAST);
    stop_soon(&s, r.device);
    assert_int_equal(tw_session_run_greedy(r.session, 1, &o, tokens, &n, &reason, &r.err),
                     TW_E_INTERRUPTED);
    expect_soon(&s, "greedy");
    assert_int_equal(n, 0);
    assert_int_equal(reason, TW_STOP_INTERRUPT);
    expect_contains(r.err.message, "in the middle of a step, at position 0");
    expect_broken(&r, TW_MODE_FAST);
    rig_close(&r);
}

static int count_token(void *ctx, uint32_t id, const float *logits) {
    (void)id;
    (void)logits;
    ++*(uint32_t *)ctx;
    return 0;
}

/* With tokens that the host chooses, and that the device does; by the word of tw_generate alone. */
static void a_stop_word_ends_generation_in_a_step(void **state) {
    (void)state;
    for (uint32_t flags = 0; flags <= TW_GENERATE_NO_LOGITS; flags += TW_GENERATE_NO_LOGITS) {
        struct rig r;
        struct stopper s;
        uint32_t passed = 0;
        open_long(&r, "emu", TW_MODE_FAST);
        tw_session_destroy(r.session);
        assert_int_equal(tw_session_create(r.deployment, NULL, &r.session, &r.err), 0);
        struct tw_generate_options o = {.size = sizeof o,
                                        .n_predict = 9,
                                        .flags = flags | TW_GENERATE_IGNORE_EOS,
                                        .on_token = count_token,
                                        .ctx = &passed,
                                        .stop = &stop};
        struct tw_generate_result result = {.size = sizeof result};
        stop_soon(&s, r.device);
        assert_int_equal(tw_generate(r.session, ids, 3, &o, &result, &r.err), TW_E_INTERRUPTED);
        expect_soon(&s, flags ? "tokens of the device" : "tokens of the host");
        expect_contains(r.err.message, "in the middle of a step");
        assert_int_equal(result.reason, TW_STOP_INTERRUPT);
        assert_int_equal(result.n_prompt, 3);
        assert_int_equal(result.n_generated, 1);
        assert_int_equal(passed, 1);
        expect_broken(&r, TW_MODE_FAST);
        rig_close(&r);
    }
}

static void a_stop_word_that_is_set_already_ends_nothing_in_its_middle(void **state) {
    struct tw_greedy_options o = {.size = sizeof o, .n = 4};
    enum tw_stop_reason reason = TW_STOP_COUNT;
    uint32_t tokens[4], n = 9;
    struct rig r;
    (void)state;
    open_long(&r, "emu", TW_MODE_FAST);
    assert_int_equal(tw_session_feed(r.session, ids, 3, &r.err), 0);
    set_stop(1);
    assert_int_equal(tw_session_feed(r.session, ids, 3, &r.err), TW_E_INTERRUPTED);
    assert_int_equal(tw_session_run_greedy(r.session, 1, &o, tokens, &n, &reason, &r.err), 0);
    assert_int_equal(n, 0);
    assert_int_equal(reason, TW_STOP_INTERRUPT);
    set_stop(0);
    assert_int_equal(tw_session_feed(r.session, ids, 3, &r.err), 0);
    assert_int_equal(tw_session_position(r.session), 6);
    rig_close(&r);
}

/* ---- served devices ---- */

static void a_served_device_ends_a_step_and_stays_open(void **state) {
    struct socket_device d;
    (void)state;
    socket_device_start(&d, "stopped", NULL, 0);
    stop_a_feed(d.selector, TW_MODE_STRICT, "served, strict");
    stop_a_feed(d.selector, TW_MODE_FAST, "served, fast");
    assert_int_equal(socket_device_end(&d), 0);
}

/* A device of before CANCEL, or a port that cannot look at it: its host lets go of it. */
static void a_device_that_cannot_cancel_is_let_go_of(void **state) {
    struct socket_device d;
    struct rig r;
    struct stopper s;
    (void)state;
    socket_device_start(&d, "old", NULL, 0);
    open_long(&r, d.selector, TW_MODE_FAST);
    assert_true(r.device->transport->can_cancel);
    r.device->transport->can_cancel = false;
    stop_soon(&s, r.device);
    assert_int_equal(tw_session_feed(r.session, ids, 1, &r.err), TW_E_INTERRUPTED);
    expect_soon(&s, "cannot cancel");
    expect_contains(r.err.message, "the connection was closed");
    assert_int_equal(tw_session_feed(r.session, ids, 1, &r.err), TW_E_FAULT);
    assert_int_equal(tw_device_reset(r.device, &r.err), TW_E_DEVICE_LOST);
    rig_close(&r);
    stop_a_feed(d.selector, TW_MODE_FAST, "the next host");
    assert_int_equal(socket_device_end(&d), 0);
}

static void a_device_that_ignores_the_cancel_is_let_go_of(void **state) {
    struct socket_device d;
    struct rig r;
    struct stopper s;
    (void)state;
    socket_device_start(&d, "deaf", "site", 1); /* a kernel hangs */
    memset(&r, 0, sizeof r);
    set_stop(0);
    if (socket_open(d.selector, 60000, &r.device, &r.err) ||
        tw_decoder_open(model_bundle("host"), 0, &r.decoder, &r.err) ||
        tw_deploy(r.device, r.decoder, &r.deployment, &r.err)) {
        fail_msg("%s", r.err.message);
    }
    make_session(&r, TW_MODE_FAST);
    int code = 0;
    stop_soon(&s, r.device);
    while (!code) {
        code = tw_session_feed(r.session, ids, 1, &r.err);
    }
    assert_int_equal(code, TW_E_INTERRUPTED);
    expect_soon(&s, "ignored");
    rig_close(&r);
    assert_int_equal(socket_device_end(&d), 0);
}

/* A host in a child process, in the middle of the long step. */
static int host(void *ctx) {
    struct rig r;
    open_long(&r, ctx, TW_MODE_FAST);
    return tw_session_feed(r.session, ids, 1, &r.err) != 0;
}

struct looking {
    pid_t pid;
    bool running;
};

static bool look(void *ctx, const struct tw_status_info *info) {
    struct looking *l = ctx;
    l->running |= info->pid == (uint32_t)l->pid && strcmp(info->doing, "RUN") == 0;
    return !l->running;
}

static pid_t start_host(const struct socket_device *d) {
    struct looking l = {.pid = child_start(host, (void *)(uintptr_t)d->selector)};
    for (double end = tw_clock_s() + SOON_S; !l.running && tw_clock_s() < end;) {
        usleep(5000);
        tw_status_list(look, &l, NULL);
    }
    assert_true(l.running);
    usleep(100000);
    return l.pid;
}

static void a_host_that_dies_in_a_step_frees_the_device(void **state) {
    struct socket_device d;
    struct rig r;
    (void)state;
    socket_device_start(&d, "left", NULL, 0);
    pid_t pid = start_host(&d);
    kill(pid, SIGKILL);
    double at = tw_clock_s();
    child_wait(pid);
    open_long(&r, d.selector, TW_MODE_FAST);
    assert_int_equal(tw_session_feed(r.session, ids, 3, &r.err), 0);
    double took = tw_clock_s() - at;
    print_message("next host: %.0f ms after the death of the last\n", took * 1e3);
    assert_true(took < SOON_S);
    rig_close(&r);
    assert_int_equal(socket_device_end(&d), 0);
}

static void sigterm_ends_a_device_in_a_step(void **state) {
    struct socket_device d;
    (void)state;
    socket_device_start(&d, "ended", NULL, 0);
    pid_t pid = start_host(&d);
    double at = tw_clock_s();
    assert_int_equal(socket_device_end(&d), 0);
    double took = tw_clock_s() - at;
    print_message("device: %.0f ms after SIGTERM\n", took * 1e3);
    assert_true(took < SOON_S);
    assert_int_equal(child_wait(pid), 1); /* its device was lost */
}

/* ---- the command ---- */

static int run_command(void *ctx) {
    if (!freopen("/dev/null", "w", stdout)) {
        return 1;
    }
    execl(getenv("TW_BIN"), "tilewright", "run", long_bundle, "-p", "Once", "--mode", (char *)ctx,
          (char *)NULL);
    return 1;
}

static void ctrl_c_ends_the_command_in_a_step(void **state) {
    static const char *const modes[] = {"strict", "fast"};
    (void)state;
    if (command_absent()) {
        print_message("%s\n", command_absent());
        skip();
    }
    for (int i = 0; i < 2; i++) {
        struct looking l = {.pid = child_start(run_command, (void *)(uintptr_t)modes[i])};
        for (double end = tw_clock_s() + SOON_S; !l.running && tw_clock_s() < end;) {
            usleep(5000);
            tw_status_list(look, &l, NULL);
        }
        usleep(200000); /* past the prompt */
        kill(l.pid, SIGINT);
        double at = tw_clock_s();
        assert_int_equal(child_wait(l.pid), 130);
        print_message("%s: %.0f ms after SIGINT\n", modes[i], (tw_clock_s() - at) * 1e3);
        assert_true(tw_clock_s() - at < SOON_S);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_word_ends_a_step_in_this_process),
        cmocka_unit_test(a_stop_word_ends_a_greedy_run),
        cmocka_unit_test(a_stop_word_ends_generation_in_a_step),
        cmocka_unit_test(a_stop_word_that_is_set_already_ends_nothing_in_its_middle),
        cmocka_unit_test(a_served_device_ends_a_step_and_stays_open),
        cmocka_unit_test(a_device_that_cannot_cancel_is_let_go_of),
        cmocka_unit_test(a_device_that_ignores_the_cancel_is_let_go_of),
        cmocka_unit_test(a_host_that_dies_in_a_step_frees_the_device),
        cmocka_unit_test(sigterm_ends_a_device_in_a_step),
        cmocka_unit_test(ctrl_c_ends_the_command_in_a_step),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
