/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipe over USB endpoints, by libusb over a mock of the kernel's usbfs: packets of every
 * awkward size, and whatever may happen to a transfer.
 */
#include "tests/support/test.h"

#if __has_include(<umockdev.h>)
#include "driver/transport/usb/usb_host_pipe.h"
#include "tests/support/usb_mock.h"

#include <errno.h>
#include <unistd.h>

#define PATIENCE_MS 20000

/* The mock has no memory for DMA; libusb would map its plain file. */
unsigned char *libusb_dev_mem_alloc(libusb_device_handle *handle, size_t length) {
    (void)handle;
    (void)length;
    return NULL;
}

struct bed {
    struct usb_mock mock;
    struct tw_pipe *p;
    unsigned packets;
    size_t last;
    uint8_t first_byte;
};

static void record_packet(void *ctx, const uint8_t *bytes, size_t n) {
    struct bed *b = ctx;
    b->packets++;
    b->last = n;
    b->first_byte = bytes[0];
}

static int open_port(struct tw_usb_port *port) {
    struct tw_usb_list list;
    if (tw_usb_find(&list, NULL) || list.n != 1) {
        return -1;
    }
    *port = (struct tw_usb_port){.context = list.context, .place = list.device[0].place};
    int code = libusb_open(list.device[0].device, &port->handle);
    code = code ? code : libusb_claim_interface(port->handle, 0);
    list.context = NULL;
    tw_usb_find_end(&list);
    return code;
}

static int set_up(void **state) {
    struct bed *b = calloc(1, sizeof *b);
    struct tw_usb_port port;
    usb_mock_init(&b->mock);
    b->mock.on_packet = record_packet;
    b->mock.ctx = b;
    usb_mock_add(&b->mock, 1, &mock_good);
    *state = b;
    return open_port(&port) || tw_usb_host_pipe_open("usb:mock", &port, &b->p, NULL);
}

static int tear_down(void **state) {
    struct bed *b = *state;
    if (b->p) {
        b->p->ops->close(b->p);
    }
    assert_int_equal(usb_mock_flying(&b->mock), 0); /* nothing is left with the kernel */
    usb_mock_finish(&b->mock);
    free(b);
    return 0;
}

/* Waits until a counter of the mock reaches `wanted`. The mock's lock guards its counters. */
static void await(struct bed *b, const unsigned *what, unsigned wanted) {
    for (int ms = 0; ms < PATIENCE_MS; ms++) {
        pthread_mutex_lock(&b->mock.lock);
        unsigned now = *what;
        pthread_mutex_unlock(&b->mock.lock);
        if (now >= wanted) {
            return;
        }
        usleep(1000);
    }
    fail_msg("the mock's counter did not reach %u", wanted);
}

static void send_bytes(struct bed *b, const uint8_t *bytes, size_t n) {
    enum tw_packet_result r;
    while ((r = b->p->ops->send(b->p, bytes, n)) == TW_PACKET_AGAIN) {
        assert_true(b->p->ops->wait(b->p, true, PATIENCE_MS));
    }
    assert_int_equal(r, TW_PACKET_OK);
}

static size_t take_packet(struct bed *b, uint8_t **bytes) {
    size_t n = 0;
    enum tw_packet_result r;
    while ((r = b->p->ops->take(b->p, bytes, &n)) == TW_PACKET_AGAIN) {
        assert_true(b->p->ops->wait(b->p, false, PATIENCE_MS));
    }
    assert_int_equal(r, TW_PACKET_OK);
    return n;
}

static void expect_gone(struct bed *b, const char *cause) {
    uint8_t *bytes, byte = 0;
    size_t n;
    assert_true(b->p->ops->wait(b->p, false, PATIENCE_MS));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(b->p->ops->take(b->p, &bytes, &n), TW_PACKET_GONE);
        assert_int_equal(b->p->ops->send(b->p, &byte, 1), TW_PACKET_GONE);
    }
    assert_non_null(strstr(b->p->ops->cause(b->p), cause));
    struct tw_link_progress progress;
    assert_false(b->p->ops->probe_status(b->p, &progress));
    assert_null(b->p->ops->recover(b->p, 0));
}

static uint8_t pattern[2 * TW_PACKET_BYTES];

static const size_t sizes[] = {
    1,    2,    MOCK_PACKET - 1,       MOCK_PACKET,         MOCK_PACKET + 1, 2 * MOCK_PACKET,
    4096, 5000, TW_PACKET_BYTES - 513, TW_PACKET_BYTES - 1, TW_PACKET_BYTES};

static void packets_go_out_whole_at_every_size(void **state) {
    struct bed *b = *state;
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        send_bytes(b, pattern + i, sizes[i]);
        await(b, &b->packets, i + 1);
        assert_int_equal(b->last, sizes[i]);
        assert_memory_equal(b->mock.assembly, pattern + i, sizes[i]);
    }
}

static void packets_come_in_whole_at_every_size(void **state) {
    struct bed *b = *state;
    uint8_t *bytes;
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        usb_mock_send(&b->mock, pattern + i, sizes[i]);
        assert_int_equal(take_packet(b, &bytes), sizes[i]);
        assert_memory_equal(bytes, pattern + i, sizes[i]);
    }
}

static void packets_keep_their_order_and_many_may_wait(void **state) {
    struct bed *b = *state;
    uint8_t *bytes;
    for (uint32_t i = 0; i < 100; i++) {
        usb_mock_send(&b->mock, &i, sizeof i);
    }
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(take_packet(b, &bytes), sizeof i);
        assert_memory_equal(bytes, &i, sizeof i);
    }
}

static void room_is_sent_without_a_copy_or_given_back(void **state) {
    struct bed *b = *state;
    uint8_t *unused = b->p->ops->room(b->p), *room = b->p->ops->room(b->p);
    assert_non_null(unused);
    assert_non_null(room);
    assert_ptr_not_equal(unused, room);
    memcpy(room, pattern, 3000);
    b->p->ops->send(b->p, unused, 0);
    assert_int_equal(b->p->ops->send(b->p, room, 3000), TW_PACKET_OK);
    await(b, &b->packets, 1);
    assert_int_equal(b->last, 3000);
    for (int i = 0; i < 50; i++) { /* no buffer stays lent for ever */
        send_bytes(b, pattern, 10);
    }
    await(b, &b->packets, 51);
}

static void what_is_in_flight_is_bounded(void **state) {
    struct bed *b = *state;
    unsigned before = usb_mock_flying(&b->mock), sent = 0;
    usb_mock_set_out(&b->mock, MOCK_HOLD);
    while (b->p->ops->send(b->p, pattern, 100) == TW_PACKET_OK) {
        sent++;
    }
    assert_true(sent >= 2 && sent <= 8);
    assert_int_equal(usb_mock_flying(&b->mock), before + sent);
    assert_null(b->p->ops->room(b->p));
    assert_false(b->p->ops->wait(b->p, true, 20));
}

static void empty_packets_are_dropped_and_long_ones_come_as_damaged(void **state) {
    struct bed *b = *state;
    uint8_t *bytes;
    usb_mock_send(&b->mock, "", 0);
    usb_mock_send(&b->mock, pattern, TW_PACKET_BYTES + 1000);
    assert_int_equal(take_packet(b, &bytes), 1);
    usb_mock_send(&b->mock, "next", 4);
    /* the rest of the long one is not taken for a packet */
    assert_int_equal(take_packet(b, &bytes), 4);
    assert_memory_equal(bytes, "next", 4);
}

static void a_stall_is_cleared_once(void **state) {
    struct bed *b = *state;
    uint8_t *bytes;
    pthread_mutex_lock(&b->mock.lock);
    b->mock.stalls_in = 1;
    pthread_mutex_unlock(&b->mock.lock);
    usb_mock_send(&b->mock, "one", 3); /* the transfer submitted next stalls */
    take_packet(b, &bytes);
    b->p->ops->take(b->p, &bytes, &(size_t){0});
    await(b, &b->mock.clears, 1);
    usb_mock_send(&b->mock, "two", 3);
    take_packet(b, &bytes);
    assert_memory_equal(bytes, "two", 3);
    assert_int_equal(b->mock.clears, 1);
}

static void an_endpoint_that_stalls_again_waits_for_recovery(void **state) {
    struct bed *b = *state;
    uint8_t *bytes;
    pthread_mutex_lock(&b->mock.lock);
    b->mock.stalls_in = 1000;
    pthread_mutex_unlock(&b->mock.lock);
    usb_mock_send(&b->mock, "one", 3);
    take_packet(b, &bytes);
    b->p->ops->take(b->p, &bytes, &(size_t){0});
    await(b, &b->mock.clears, 1);
    usleep(200000);
    assert_int_equal(b->mock.clears, 1); /* it is not cleared again and again */
    pthread_mutex_lock(&b->mock.lock);
    b->mock.stalls_in = 0;
    pthread_mutex_unlock(&b->mock.lock);
    assert_non_null(strstr(b->p->ops->recover(b->p, 0), "endpoints"));
    usb_mock_send(&b->mock, "two", 3);
    take_packet(b, &bytes);
    assert_memory_equal(bytes, "two", 3);
}

static void a_stalled_send_is_lost_and_the_next_arrives(void **state) {
    struct bed *b = *state;
    pthread_mutex_lock(&b->mock.lock);
    b->mock.stalls_out = 1;
    pthread_mutex_unlock(&b->mock.lock);
    send_bytes(b, pattern, 600);
    await(b, &b->mock.clears, 1);
    send_bytes(b, pattern, 700);
    await(b, &b->packets, 2); /* the byte that ends a packet that may have been cut, then ours */
    assert_int_equal(b->last, 700);
    assert_int_equal(b->mock.ended_bytes, 1);
}

static void a_packet_that_was_cut_does_not_swallow_the_next(void **state) {
    struct bed *b = *state;
    usb_mock_set_out(&b->mock, MOCK_CUT);
    send_bytes(b, pattern, 3000);
    for (int ms = 0; usb_mock_flying(&b->mock) > 9 && ms < PATIENCE_MS; ms++) {
        usleep(1000);
    }
    usb_mock_set_out(&b->mock, MOCK_TAKE);
    await(b, &b->packets, 1); /* the cut packet with its end: longer than what came, and damaged */
    assert_true(b->last < 3000);
    send_bytes(b, pattern, 900);
    await(b, &b->packets, 2);
    assert_int_equal(b->last, 900);
}

static void a_few_errors_are_survived(void **state) {
    struct bed *b = *state;
    uint8_t *bytes;
    pthread_mutex_lock(&b->mock.lock);
    b->mock.errors_in = 5;
    pthread_mutex_unlock(&b->mock.lock);
    for (int i = 0; i < 20; i++) {
        usb_mock_send(&b->mock, &i, sizeof i);
        assert_int_equal(take_packet(b, &bytes), sizeof i);
        assert_memory_equal(bytes, &i, sizeof i);
    }
}

static void persistent_errors_end_the_pipe(void **state) {
    struct bed *b = *state;
    uint8_t *bytes;
    pthread_mutex_lock(&b->mock.lock);
    b->mock.errors_in = UINT32_MAX;
    pthread_mutex_unlock(&b->mock.lock);
    usb_mock_send(&b->mock, "one", 3);
    take_packet(b, &bytes);
    b->p->ops->take(b->p, &bytes, &(size_t){0});
    expect_gone(b, "fail");
}

static void no_memory_in_the_kernel_is_waited_for(void **state) {
    struct bed *b = *state;
    pthread_mutex_lock(&b->mock.lock);
    b->mock.refuse_submit = ENOMEM;
    pthread_mutex_unlock(&b->mock.lock);
    assert_int_equal(b->p->ops->send(b->p, pattern, 100), TW_PACKET_AGAIN);
    usleep(100000);
    assert_int_not_equal(b->p->ops->send(b->p, pattern, 100), TW_PACKET_GONE);
    pthread_mutex_lock(&b->mock.lock);
    b->mock.refuse_submit = 0;
    pthread_mutex_unlock(&b->mock.lock);
    send_bytes(b, pattern, 100);
    await(b, &b->packets, 1);
}

static void a_device_that_vanishes_ends_every_transfer(void **state) {
    struct bed *b = *state;
    usb_mock_set_out(&b->mock, MOCK_HOLD);
    while (b->p->ops->send(b->p, pattern, 5000) == TW_PACKET_OK) {
    }
    usb_mock_vanish(&b->mock);
    expect_gone(b, "unplugged");
    assert_int_equal(usb_mock_flying(&b->mock), 0);
}

static void *hang_up_soon(void *pipe) {
    struct tw_pipe *p = pipe;
    usleep(50000);
    p->ops->hang_up(p);
    p->ops->hang_up(p);
    return NULL;
}

static void hanging_up_wakes_waiting_threads(void **state) {
    struct bed *b = *state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, hang_up_soon, b->p), 0);
    assert_true(b->p->ops->wait(b->p, false, -1));
    pthread_join(thread, NULL);
    expect_gone(b, "this side");
}

static void what_was_sent_last_arrives_before_the_pipe_is_closed(void **state) {
    struct bed *b = *state;
    assert_int_equal(b->p->ops->send(b->p, pattern, 77), TW_PACKET_OK);
    b->p->ops->close(b->p);
    b->p = NULL;
    assert_int_equal(b->packets, 1);
    assert_int_equal(b->last, 77);
}

static void status_is_available_out_of_band(void **state) {
    struct bed *b = *state;
    struct tw_link_progress progress;
    b->mock.status =
        (struct tw_usb_status){.progress = {.received = 7, .counter = 1234}, .generation = 3};
    usb_mock_set_out(&b->mock, MOCK_HOLD);
    send_bytes(b, pattern, 100);
    assert_true(b->p->ops->probe_status(b->p, &progress));
    assert_int_equal(progress.received, 7);
    assert_int_equal(progress.counter, 1234);
    b->mock.status.state = 1;
    assert_false(b->p->ops->probe_status(b->p, &progress));
    b->mock.silent_status = true;
    assert_false(b->p->ops->probe_status(b->p, &progress));
    /* the first may not have ended yet: no matter */
    assert_false(b->p->ops->probe_status(b->p, &progress));
}

static void the_ladder_has_three_rungs(void **state) {
    struct bed *b = *state;
    uint8_t *bytes;
    usb_mock_set_out(&b->mock, MOCK_HOLD);
    while (b->p->ops->send(b->p, pattern, 100) == TW_PACKET_OK) {
    }
    usb_mock_set_out(&b->mock, MOCK_TAKE);
    for (unsigned rung = 0; rung < 3; rung++) {
        assert_non_null(b->p->ops->recover(b->p, rung));
        usb_mock_send(&b->mock, &rung, sizeof rung);
        assert_int_equal(take_packet(b, &bytes), sizeof rung);
        unsigned before = b->packets;
        send_bytes(b, pattern, 50 + rung);
        await(b, &b->packets, before + 1);
    }
    assert_null(b->p->ops->recover(b->p, 3));
    assert_int_equal(b->mock.host_resets, 1);
    assert_int_equal(b->mock.resets, 1);
    assert_true(b->mock.clears >= 4);
}

static void a_notice_about_our_open_hangs_up(void **state) {
    struct bed *b = *state;
    uint8_t *bytes;
    const struct tw_usb_notice other = {TW_USB_NOTICE_DROPPED, 4},
                               ours = {TW_USB_NOTICE_DROPPED, 5};
    tw_usb_host_pipe_set_generation(b->p, 5);
    usb_mock_notice(&b->mock, &other);
    usb_mock_send(&b->mock, "alive", 5);
    assert_int_equal(take_packet(b, &bytes), 5);
    for (int ms = 0; usb_mock_flying(&b->mock) < 9 && ms < PATIENCE_MS; ms++) {
        b->p->ops->take(b->p, &bytes, &(size_t){0});
        usleep(1000);
    }
    usb_mock_notice(&b->mock, &ours);
    expect_gone(b, "reset");
}

static void a_notice_that_came_too_early_counts(void **state) {
    struct bed *b = *state;
    uint8_t *bytes;
    usb_mock_notice(&b->mock, &(struct tw_usb_notice){TW_USB_NOTICE_DROPPED, 9});
    usb_mock_send(&b->mock, "alive", 5);
    take_packet(b, &bytes);
    usleep(50000);
    tw_usb_host_pipe_set_generation(b->p, 9);
    expect_gone(b, "reset");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int argc, char **argv) {
    (void)argc;
    usb_mock_enter(argv);
    for (size_t i = 0; i < sizeof pattern; i++) {
        pattern[i] = (uint8_t)(i * 31 ^ i >> 8);
    }
    const struct CMUnitTest tests[] = {
        TEST(packets_go_out_whole_at_every_size),
        TEST(packets_come_in_whole_at_every_size),
        TEST(packets_keep_their_order_and_many_may_wait),
        TEST(room_is_sent_without_a_copy_or_given_back),
        TEST(what_is_in_flight_is_bounded),
        TEST(empty_packets_are_dropped_and_long_ones_come_as_damaged),
        TEST(a_stall_is_cleared_once),
        TEST(an_endpoint_that_stalls_again_waits_for_recovery),
        TEST(a_stalled_send_is_lost_and_the_next_arrives),
        TEST(a_packet_that_was_cut_does_not_swallow_the_next),
        TEST(a_few_errors_are_survived),
        TEST(persistent_errors_end_the_pipe),
        TEST(no_memory_in_the_kernel_is_waited_for),
        TEST(a_device_that_vanishes_ends_every_transfer),
        TEST(hanging_up_wakes_waiting_threads),
        TEST(what_was_sent_last_arrives_before_the_pipe_is_closed),
        TEST(status_is_available_out_of_band),
        TEST(the_ladder_has_three_rungs),
        TEST(a_notice_about_our_open_hangs_up),
        TEST(a_notice_that_came_too_early_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
    puts("skip the pipe over USB: libumockdev-dev is not installed");
    return 0;
}
#endif
