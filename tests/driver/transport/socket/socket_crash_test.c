/* SPDX-License-Identifier: Apache-2.0
 *
 * Endurance: devices that are opened and closed repeatedly, killed on either side at random times,
 * and contended by several hosts. These are short forms; `make soak` runs the long ones: 1,000
 * opens, 1,000 kills, 200 resets in the middle of a run.
 */
#include "driver/device/device.h"
#include "loader/base/clock.h"
#include "tests/support/model_bundle.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"

#include <signal.h>
#include <unistd.h>

static uint32_t times(uint32_t shorter, uint32_t longer) {
    const char *wish = getenv("TW_LONG");
    return wish && *wish ? longer : shorter;
}

#define LONG_S 60 /* longer than anything may take, on any machine */

/* Waits until a process has that many open descriptors (0: until their number is stable), as the
 * other side closes some of them later. */
static void wait_for_fds(pid_t pid, unsigned wanted) {
    unsigned last = 0, now = process_fds(pid);
    for (double end = tw_clock_s() + LONG_S; now != (wanted ? wanted : last) && tw_clock_s() < end;
         now = process_fds(pid)) {
        last = now;
        usleep(20000);
    }
}

/* Returns whether memory use grew by more than 2 MiB. Sanitizers keep freed memory. */
static bool grew(unsigned long before_kib, unsigned long now_kib) {
    return !TEST_ASAN && !TEST_TSAN && now_kib > before_kib + 2048;
}

/* Opens, deploys, decodes n tokens; 0 or the code. */
static int use(const char *selector, uint32_t n, tw_error *err) {
    struct rig r = {.device = NULL};
    uint32_t id = 1;
    int code = socket_open(selector, 0, &r.device, err);
    code = code ? code : tw_decoder_open(model_bundle("host"), 0, &r.decoder, err);
    code = code ? code : tw_deploy(r.device, r.decoder, &r.deployment, err);
    code = code ? code : tw_session_create(r.deployment, NULL, &r.session, err);
    for (uint32_t i = 0; !code && i < n; i++) {
        code = tw_session_feed(r.session, &id, 1, err);
        id = 1 + i % 100;
    }
    rig_close(&r);
    return code;
}

static void opening_and_closing_leaks_nothing(void **state) {
    (void)state;
    struct socket_device d;
    tw_error err = {0};
    socket_device_start(&d, "cycles", NULL, 0);
    unsigned mine = 0, theirs = 0;
    unsigned long my_kib = 0, their_kib = 0;
    for (uint32_t i = 0; i < times(100, 1000); i++) {
        if (use(d.selector, 1, &err)) {
            fail_msg("cycle %u: %s", i, err.message);
        }
        if (i == 20) { /* caches are warm */
            wait_for_fds(d.pid, 0);
            mine = process_fds(getpid());
            theirs = process_fds(d.pid);
            my_kib = process_kib(getpid());
            their_kib = process_kib(d.pid);
        }
    }
    wait_for_fds(d.pid, theirs);
    assert_int_equal(process_fds(getpid()), mine);
    assert_int_equal(process_fds(d.pid), theirs);
    printf("# opened and closed: RSS of the host %lu -> %lu KiB, of the device %lu -> %lu KiB\n",
           my_kib, process_kib(getpid()), their_kib, process_kib(d.pid));
    assert_false(grew(my_kib, process_kib(getpid())));
    assert_false(grew(their_kib, process_kib(d.pid)));
    assert_int_equal(socket_device_end(&d), 0);
}

static int use_for_ever(void *selector) {
    tw_error err = {0};
    while (use(selector, 50, &err) == 0) {
    }
    bool device_error =
        err.code == TW_E_DEVICE_LOST || err.code == TW_E_NO_DEVICE || err.code == TW_E_DEVICE_BUSY;
    if (!device_error || !strstr(err.message, selector)) {
        fprintf(stderr, "# %d '%s'\n", err.code, err.message);
        return 4;
    }
    return 3;
}

static uint32_t draw(uint64_t *state, uint32_t n) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

static void must_work(const struct socket_device *d, uint32_t round) {
    tw_error err = {0};
    double start = tw_clock_s();
    int code = use(d->selector, 2, &err);
    if (code || tw_clock_s() - start > LONG_S) {
        fail_msg("round %u: %d '%s' after %.1f s", round, code, err.message, tw_clock_s() - start);
    }
}

static void killed_hosts_do_no_harm(void **state) {
    (void)state;
    struct socket_device d;
    uint64_t random = 1;
    socket_device_start(&d, "hosts", NULL, 0);
    must_work(&d, 0);
    wait_for_fds(d.pid, 0);
    unsigned fds = process_fds(d.pid);
    unsigned long kib = process_kib(d.pid);
    for (uint32_t i = 0; i < times(20, 500); i++) {
        pid_t child = child_start(use_for_ever, d.selector);
        usleep(draw(&random, 60000));
        kill(child, SIGKILL);
        assert_int_equal(child_wait(child), 128 + SIGKILL);
        must_work(&d, i);
    }
    wait_for_fds(d.pid, fds);
    assert_int_equal(process_fds(d.pid), fds);
    printf("# hosts killed: RSS of the device %lu -> %lu KiB\n", kib, process_kib(d.pid));
    assert_false(grew(kib, process_kib(d.pid)));
    assert_int_equal(socket_device_end(&d), 0);
}

static void killed_devices_do_no_harm(void **state) {
    (void)state;
    struct socket_device d;
    uint64_t random = 2;
    unsigned fds = process_fds(getpid());
    for (uint32_t i = 0; i < times(20, 500); i++) {
        socket_device_start(&d, "devices", NULL, 0);
        pid_t child = child_start(use_for_ever, d.selector);
        usleep(draw(&random, 60000));
        socket_device_kill(&d);
        double start = tw_clock_s();
        assert_int_equal(child_wait(child), 3); /* a device error, not a hang or a crash */
        assert_true(tw_clock_s() - start < LONG_S);
        if (i % 4 == 0) {
            socket_device_start(&d, "devices", NULL, 0);
            must_work(&d, i);
            assert_int_equal(socket_device_end(&d), 0);
        }
    }
    assert_int_equal(process_fds(getpid()), fds);
}

static void resets_in_the_middle_of_a_run_do_no_harm(void **state) {
    (void)state;
    unsigned fds = process_fds(getpid());
    for (uint32_t i = 0; i < times(10, 200); i++) {
        struct socket_device d;
        tw_error err = {0};
        socket_device_start(&d, "resets", "midrun", i + 1);
        int code = use(d.selector, 100, &err);
        if (code != TW_E_DEVICE_LOST ||
            !strstr(err.message, "device socket:resets: it was reset in the meantime")) {
            fail_msg("round %u: %d '%s'", i, code, err.message);
        }
        must_work(&d, i);
        assert_int_equal(socket_device_end(&d), 0);
    }
    assert_int_equal(process_fds(getpid()), fds);
}

/* Killed processes leave their sockets and locks behind; later ones remove them. */
static void nothing_is_left_behind(void **state) {
    (void)state;
    static const char *const names[] = {"hosts", "devices"};
    for (size_t i = 0; i < 2; i++) {
        struct socket_device d;
        socket_device_start(&d, names[i], NULL, 0);
        must_work(&d, 0);
        assert_int_equal(socket_device_end(&d), 0);
    }
    assert_int_equal(socket_folder_entries(), 0);
}

struct rival {
    const char *selector;
    uint32_t wins;
};

/* Exit status: 0 won often enough, 1 never, 2 a wrong refusal. */
static int compete(void *ctx) {
    const struct rival *r = ctx;
    uint32_t won = 0;
    for (double end = tw_clock_s() + 150; won < r->wins && tw_clock_s() < end;) {
        tw_error err = {0};
        int code = use(r->selector, 1, &err);
        if (code && (code != TW_E_DEVICE_BUSY || !strstr(err.message, "process"))) {
            fprintf(stderr, "# %s\n", err.message);
            return 2;
        }
        won += code == 0;
        usleep(won * 100);
    }
    return won == r->wins ? 0 : 1;
}

static void rivals_take_turns(void **state) {
    (void)state;
    struct socket_device d;
    socket_device_start(&d, "rivals", NULL, 0);
    struct rival r = {d.selector, times(10, 100)};
    pid_t child[3];
    for (int i = 0; i < 3; i++) {
        child[i] = child_start(compete, &r);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(child_wait(child[i]), 0);
    }
    assert_int_equal(socket_device_end(&d), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_and_closing_leaks_nothing),
        cmocka_unit_test(killed_hosts_do_no_harm),
        cmocka_unit_test(killed_devices_do_no_harm),
        cmocka_unit_test(resets_in_the_middle_of_a_run_do_no_harm),
        cmocka_unit_test(rivals_take_turns),
        cmocka_unit_test(nothing_is_left_behind),
    };
    socket_folder_make();
    model_bundle("host"); /* before the children need it */
    int failed = cmocka_run_group_tests_name("socket_crash", tests, NULL, NULL);
    model_bundle_cleanup();
    socket_folder_remove();
    return failed;
}
