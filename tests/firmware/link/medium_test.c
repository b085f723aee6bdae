/* SPDX-License-Identifier: Apache-2.0
 *
 * A medium cut into connections: one begins with a new host's OPEN, and ends with the next host's,
 * when its host has gone, or when the device ends it.
 */
#include "firmware/link/medium.h"
#include "firmware/link/packet.h"
#include "tests/support/test.h"
#include "tests/support/test_medium.h"

#include <sys/socket.h>
#include <unistd.h>

struct bed {
    struct tw_pipe *host;
    struct test_medium *fake;
    struct tw_medium *medium;
    bool closed;
};

static int set_up(void **state) {
    static struct bed b;
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fd), 0);
    b = (struct bed){.host = tw_pipe_socket(fd[0])};
    b.fake = test_medium_create(tw_pipe_socket(fd[1]), 1000, &b.closed);
    b.medium = tw_medium_create(&b.fake->base);
    *state = &b;
    return 0;
}

static int tear_down(void **state) {
    struct bed *b = *state;
    tw_medium_destroy(b->medium);
    assert_true(b->closed);
    b->host->ops->close(b->host);
    return 0;
}

static void send_kind(struct bed *b, enum tw_link_kind kind, uint64_t nonce) {
    uint8_t bytes[200];
    struct tw_link_open q = {.pid = 1, .nonce = nonce};
    struct tw_link_header h = {.kind = (uint8_t)kind};
    const struct tw_packet_data data = {NULL, &q, kind == TW_LINK_OPEN ? sizeof q : 0};
    assert_int_equal(b->host->ops->send(b->host, bytes, tw_packet_build(&h, &data, 1000, bytes)),
                     TW_PACKET_OK);
}

/* The kind of the packet that a connection takes next. */
static int take_kind(struct tw_pipe *connection) {
    uint8_t *bytes;
    size_t n;
    struct tw_link_header h;
    if (connection->ops->take(connection, &bytes, &n) != TW_PACKET_OK) {
        return -1;
    }
    assert_true(tw_packet_good(bytes, n, &h));
    return h.kind;
}

static enum tw_packet_result state_of(struct tw_pipe *connection) {
    uint8_t *bytes;
    size_t n;
    return connection->ops->take(connection, &bytes, &n);
}

static void a_connection_begins_only_with_open(void **state) {
    struct bed *b = *state;
    assert_null(tw_medium_accept(b->medium));
    send_kind(b, TW_LINK_PING, 0);
    send_kind(b, TW_LINK_OPEN, 0); /* a host without a nonce */
    send_kind(b, TW_LINK_OPEN, 7);
    send_kind(b, TW_LINK_PING, 0);
    assert_true(tw_medium_fd(b->medium) >= 0);
    struct tw_pipe *connection = tw_medium_accept(b->medium);
    assert_non_null(connection);
    assert_int_equal(tw_medium_fd(b->medium), -1);
    assert_null(tw_medium_accept(b->medium));
    assert_int_equal(take_kind(connection), TW_LINK_OPEN);
    assert_int_equal(take_kind(connection), TW_LINK_PING);
    assert_int_equal(state_of(connection), TW_PACKET_AGAIN);
    send_kind(b, TW_LINK_OPEN, 7); /* it did not receive the answer */
    assert_int_equal(take_kind(connection), TW_LINK_OPEN);
    connection->ops->close(connection);
}

static void the_next_host_ends_the_previous_connection(void **state) {
    struct bed *b = *state;
    send_kind(b, TW_LINK_OPEN, 1);
    struct tw_pipe *connection = tw_medium_accept(b->medium);
    assert_int_equal(take_kind(connection), TW_LINK_OPEN);
    send_kind(b, TW_LINK_OPEN, 2);
    send_kind(b, TW_LINK_CLOSE, 0);
    assert_int_equal(state_of(connection), TW_PACKET_GONE);
    assert_int_equal(state_of(connection), TW_PACKET_GONE);
    uint8_t byte = 0;
    assert_int_equal(connection->ops->send(connection, &byte, 1), TW_PACKET_GONE);
    connection->ops->close(connection);
    connection = tw_medium_accept(b->medium);
    assert_non_null(connection);
    assert_int_equal(take_kind(connection), TW_LINK_OPEN);
    assert_int_equal(take_kind(connection), TW_LINK_CLOSE);
    connection->ops->close(connection);
    send_kind(b, TW_LINK_OPEN, 2); /* an old packet, repeated: not a new host */
    assert_null(tw_medium_accept(b->medium));
}

/* The recovery ladder of a host resets the medium, and the host repeats its OPEN with the same
 * nonce. That was once mistaken for an old packet, so that no rung of the ladder could help. */
static void the_same_host_may_reconnect_after_a_reset_of_the_medium(void **state) {
    struct bed *b = *state;
    for (int i = 0; i < 2; i++) { /* "host gone" is read by a connection, or without one */
        send_kind(b, TW_LINK_OPEN, 5);
        struct tw_pipe *connection = tw_medium_accept(b->medium);
        assert_non_null(connection);
        assert_int_equal(take_kind(connection), TW_LINK_OPEN);
        b->fake->host_gone = true;
        if (i == 0) {
            assert_int_equal(state_of(connection), TW_PACKET_GONE);
        }
        connection->ops->close(connection);
        assert_null(tw_medium_accept(b->medium));
    }
    send_kind(b, TW_LINK_OPEN, 5);
    struct tw_pipe *connection = tw_medium_accept(b->medium);
    assert_non_null(connection);
    connection->ops->close(connection);
}

static void a_host_that_has_gone_ends_its_connection(void **state) {
    struct bed *b = *state;
    send_kind(b, TW_LINK_OPEN, 1);
    struct tw_pipe *connection = tw_medium_accept(b->medium);
    assert_int_equal(take_kind(connection), TW_LINK_OPEN);
    b->fake->host_gone = true;
    assert_int_equal(state_of(connection), TW_PACKET_GONE);
    connection->ops->close(connection);
    assert_null(tw_medium_accept(b->medium));
    send_kind(b, TW_LINK_OPEN, 2);
    connection = tw_medium_accept(b->medium);
    assert_non_null(connection);
    connection->ops->hang_up(connection);
    assert_int_equal(state_of(connection), TW_PACKET_GONE);
    connection->ops->close(connection);
    b->host->ops->close(b->host);
    assert_null(tw_medium_accept(b->medium)); /* the medium itself is gone */
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd), 0);
    b->host = tw_pipe_socket(fd[0]);
    close(fd[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_connection_begins_only_with_open, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_next_host_ends_the_previous_connection, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_same_host_may_reconnect_after_a_reset_of_the_medium,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_host_that_has_gone_ends_its_connection, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests_name("medium", tests, NULL, NULL);
}
