/* SPDX-License-Identifier: Apache-2.0
 *
 * Idle connections to the device server: they do not keep others out.
 */
#include "loader/base/clock.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SILENT 33

static int connect_to(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* As many as the server accepts at a time, as many as the listen backlog holds, and one more. */
static void silent_clients_do_not_lock_others_out(void **state) {
    (void)state;
    struct socket_device d;
    int fd[SILENT];
    tw_device *device;
    tw_error err = {0};
    socket_device_start(&d, "crowd", NULL, 0);
    for (int i = 0; i < SILENT; i++) {
        fd[i] = connect_to(d.path);
    }
    double start = tw_clock_s();
    int code = socket_open(d.selector, 20000, &device, &err);
    assert_int_equal(code, 0);
    assert_true(tw_clock_s() - start < 5);
    tw_device_close(device);
    for (int i = 0; i < SILENT; i++) {
        close(fd[i]);
    }
    assert_int_equal(socket_device_end(&d), 0);
}

static void a_silent_connection_is_closed(void **state) {
    (void)state;
    struct socket_device d;
    char byte;
    socket_device_start(&d, "quiet", NULL, 0);
    int fd = connect_to(d.path);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 200), 0); /* it has some time to send its request */
    assert_int_equal(poll(&p, 1, 8000), 1);
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    close(fd);
    assert_int_equal(socket_device_end(&d), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_clients_do_not_lock_others_out),
        cmocka_unit_test(a_silent_connection_is_closed),
    };
    return cmocka_run_group_tests_name("device_server", tests, socket_folder_set_up,
                                       socket_folder_tear_down);
}
