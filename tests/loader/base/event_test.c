/* SPDX-License-Identifier: Apache-2.0
 *
 * Events: signalled several times, they are reported once; their descriptors can be polled.
 */
#include "loader/base/event.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <poll.h>

static bool is_readable(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void an_event_is_reported_once_however_often_it_was_signalled(void **state) {
    (void)state;
    int fd = tw_event_create();
    assert_true(fd >= 0);
    assert_false(is_readable(fd));
    assert_false(tw_event_clear(fd)); /* does not block */
    for (int i = 0; i < 3; i++) {
        tw_event_signal(fd);
    }
    assert_true(is_readable(fd));
    assert_true(tw_event_clear(fd));
    assert_false(is_readable(fd));
    assert_false(tw_event_clear(fd));
    tw_event_destroy(fd);
}

static void child_programs_do_not_inherit_an_event(void **state) {
    (void)state;
    int fd = tw_event_create();
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    tw_event_destroy(fd);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

/* -1: nobody listens, or no descriptor could be created. */
static void an_invalid_descriptor_is_legal(void **state) {
    (void)state;
    errno = 0;
    tw_event_signal(-1);
    tw_event_destroy(-1);
    assert_int_equal(errno, 0); /* no call was made */
    assert_false(tw_event_clear(-1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_reported_once_however_often_it_was_signalled),
        cmocka_unit_test(child_programs_do_not_inherit_an_event),
        cmocka_unit_test(an_invalid_descriptor_is_legal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
