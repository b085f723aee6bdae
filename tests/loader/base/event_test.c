/* SPDX-License-Identifier: Apache-2.0
 *
 * Events: rung often, reported once, and polled meanwhile.
 */
#include "loader/base/event.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <poll.h>

static bool polls(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void a_bell_is_heard_once_however_often_it_rang(void **state) {
    (void)state;
    int fd = tw_event_create();
    assert_true(fd >= 0);
    assert_false(polls(fd));
    assert_false(tw_event_heard(fd)); /* does not block */
    for (int i = 0; i < 3; i++) {
        tw_event_ring(fd);
    }
    assert_true(polls(fd));
    assert_true(tw_event_heard(fd));
    assert_false(polls(fd));
    assert_false(tw_event_heard(fd));
    tw_event_destroy(fd);
}

static void programs_that_are_started_do_not_inherit_it(void **state) {
    (void)state;
    int fd = tw_event_create();
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    tw_event_destroy(fd);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

/* Where nobody listens, or no descriptor could be made. */
static void no_bell_is_legal(void **state) {
    (void)state;
    errno = 0;
    tw_event_ring(-1);
    tw_event_destroy(-1);
    assert_int_equal(errno, 0); /* no call was made */
    assert_false(tw_event_heard(-1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bell_is_heard_once_however_often_it_rang),
        cmocka_unit_test(programs_that_are_started_do_not_inherit_it),
        cmocka_unit_test(no_bell_is_legal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
