/* SPDX-License-Identifier: Apache-2.0
 *
 * The device as QEMU sees it: what a guest does to it, against the medium's pipe.
 */
#include "firmware/usb/usbredir.h"
#include "tests/support/test.h"
#include "tests/support/usbredir_peer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the medium alone ---- */

static uint32_t generation_now;

static void report_progress(void *ctx, struct tw_link_progress *p, uint32_t *generation) {
    (void)ctx;
    p->counter = 99;
    *generation = __atomic_load_n(&generation_now, __ATOMIC_SEQ_CST);
}

static struct tw_pipe *medium_open(enum tw_usb_speed speed, const char *recovery) {
    struct tw_pipe *medium;
    tw_error err = {0};
    const struct tw_usb_options o = {.speed = speed,
                                     .serial = "SN-7",
                                     .recovery = recovery,
                                     .firmware_version = 0x000100,
                                     .progress = report_progress};
    __atomic_store_n(&generation_now, 0, __ATOMIC_SEQ_CST);
    int code = tw_usbredir_create(peer_path, &o, &medium, &err);
    if (code) {
        fail_msg("%s", err.message);
    }
    return medium;
}

static void medium_close(struct tw_pipe *medium) {
    medium->ops->close(medium);
}

/* The packet that comes next from the bus, within a minute. */
static size_t medium_take(struct tw_pipe *medium, uint8_t **bytes) {
    size_t n = SIZE_MAX;
    assert_true(medium->ops->wait(medium, false, PEER_MS));
    assert_int_equal(medium->ops->take(medium, bytes, &n), TW_PACKET_OK);
    return n;
}

static void fill(uint8_t *bytes, size_t n, uint32_t seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

static void the_guest_gets_the_topology_before_the_device(void **state) {
    (void)state;
    static const struct {
        enum tw_usb_speed speed;
        uint8_t announced;
        uint16_t bulk;
    } cases[] = {{TW_USB_FULL, usb_redir_speed_full, 64},
                 {TW_USB_HIGH, usb_redir_speed_high, 512},
                 {TW_USB_SUPER, usb_redir_speed_super, 1024}};
    for (int i = 0; i < 3; i++) {
        struct tw_pipe *medium = medium_open(cases[i].speed, NULL);
        static struct usbredir_peer p;
        peer_open(&p, peer_path);
        assert_true(p.topology_first);
        assert_int_equal(p.device.speed, cases[i].announced);
        assert_int_equal(p.device.vendor_id, TW_USB_VENDOR);
        assert_int_equal(p.device.product_id, TW_USB_PRODUCT);
        assert_int_equal(p.device.device_version_bcd, 0x0010);
        assert_int_equal(p.interface.interface_count, 1);
        assert_int_equal(p.interface.interface_class[0], TW_USB_CLASS);
        assert_int_equal(p.endpoints.max_packet_size[p.out], cases[i].bulk);
        assert_true(p.in & 0x80 && p.notices & 0x80 && p.out);
        assert_int_equal(peer_control(&p, 0x80, 6, 0x0200, 0, 512), usb_redir_success);
        assert_int_equal(p.n, p.data[2] | p.data[3] << 8);
        assert_int_equal(peer_control(&p, 0x80, 6, 0x2200, 0, 512), usb_redir_stall);
        assert_int_equal(peer_configure(&p, 2), usb_redir_stall);
        assert_int_equal(peer_configure(&p, 1), usb_redir_success);
        assert_int_equal(peer_set_alt(&p, 0, 0), usb_redir_success);
        assert_int_equal(peer_set_alt(&p, 0, 1), usb_redir_stall);
        peer_close(&p);
        medium_close(medium);
    }
}

static void packets_pass_whole_in_both_directions(void **state) {
    (void)state;
    static uint8_t bytes[TW_PACKET_BYTES];
    static struct usbredir_peer p;
    struct tw_pipe *medium = medium_open(TW_USB_HIGH, NULL);
    peer_open(&p, peer_path);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    static const uint32_t sizes[] = {1, 511, 512, 513, 1024, 4096, 65535, TW_PACKET_BYTES};
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint32_t n = sizes[i];
        uint8_t *got;
        fill(bytes, n, i);
        /* out, in two transfers where the first may be full packets only */
        uint32_t first = n / 2 / 512 * 512;
        struct peer_move *a = first ? peer_bulk_out(&p, bytes, first) : NULL;
        struct peer_move *b = peer_bulk_out(&p, bytes + first, n - first);
        struct peer_move *c = n % 512 == 0 ? peer_bulk_out(&p, bytes, 0) : NULL;
        struct peer_move *moves[] = {a, b, c};
        for (int k = 0; k < 3; k++) {
            if (moves[k]) {
                peer_await(&p, moves[k]);
                assert_int_equal(moves[k]->status, usb_redir_success);
                peer_forget(&p, moves[k]);
            }
        }
        assert_int_equal(medium_take(medium, &got), n);
        assert_memory_equal(got, bytes, n);
        /* and in, with the end of the packet where it belongs */
        assert_int_equal(medium->ops->send(medium, bytes, n), TW_PACKET_OK);
        struct peer_move *m = peer_bulk_in(&p, n);
        peer_await(&p, m);
        assert_int_equal(m->n, n);
        assert_memory_equal(m->data, bytes, n);
        peer_forget(&p, m);
        if (n % 512 == 0) {
            m = peer_bulk_in(&p, 512);
            peer_await(&p, m);
            assert_int_equal(m->status, usb_redir_success);
            assert_int_equal(m->n, 0);
            peer_forget(&p, m);
        }
    }
    peer_close(&p);
    medium_close(medium);
}

#define FLOOD 40u

static void a_full_queue_makes_the_host_wait(void **state) {
    (void)state;
    static struct usbredir_peer p;
    struct peer_move *m[FLOOD];
    struct tw_pipe *medium = medium_open(TW_USB_SUPER, NULL);
    uint8_t byte, *got;
    uint32_t done = 0;
    peer_open(&p, peer_path);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    for (uint32_t i = 0; i < FLOOD; i++) {
        byte = (uint8_t)i;
        m[i] = peer_bulk_out(&p, &byte, 1);
    }
    /* Control requests are answered although some of the transfers wait. */
    assert_int_equal(peer_control(&p, 0x80, 0, 0, 0, 2), usb_redir_success);
    assert_int_equal(peer_control(&p, 0x80, 0, 0, 0, 2), usb_redir_success);
    for (; done < FLOOD && m[done]->done; done++) {
    }
    assert_true(done > 0 && done < FLOOD);
    for (uint32_t i = done; i < FLOOD; i++) {
        assert_false(m[i]->done);
    }
    /* The last one is taken back. */
    peer_cancel(&p, m[FLOOD - 1]);
    peer_await(&p, m[FLOOD - 1]);
    assert_int_equal(m[FLOOD - 1]->status, usb_redir_cancelled);
    for (uint32_t i = 0; i + 1 < FLOOD; i++) {
        assert_int_equal(medium_take(medium, &got), 1);
        assert_int_equal(got[0], i);
        peer_await(&p, m[i]);
        assert_int_equal(m[i]->status, usb_redir_success);
    }
    size_t n;
    assert_int_equal(medium->ops->take(medium, &got, &n), TW_PACKET_AGAIN);
    /* In the other direction the device has to wait. */
    for (done = 0; medium->ops->send(medium, &byte, 1) == TW_PACKET_OK; done++) {
        assert_true(done < 1000);
    }
    assert_false(medium->ops->wait(medium, true, 0));
    struct peer_move *read = peer_bulk_in(&p, 1024);
    peer_await(&p, read);
    assert_true(medium->ops->wait(medium, true, PEER_MS));
    peer_close(&p);
    medium_close(medium);
}

static void a_cancelled_read_loses_no_packet(void **state) {
    (void)state;
    static struct usbredir_peer p;
    struct tw_pipe *medium = medium_open(TW_USB_HIGH, NULL);
    peer_open(&p, peer_path);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    struct peer_move *a = peer_bulk_in(&p, 512), *b = peer_bulk_in(&p, 512);
    peer_cancel(&p, a);
    peer_await(&p, a);
    assert_int_equal(a->status, usb_redir_cancelled);
    peer_cancel(&p, a); /* once more, too late */
    assert_int_equal(medium->ops->send(medium, (const uint8_t *)"abc", 3), TW_PACKET_OK);
    peer_await(&p, b);
    assert_int_equal(b->status, usb_redir_success);
    assert_int_equal(b->n, 3);
    assert_memory_equal(b->data, "abc", 3);
    peer_close(&p);
    medium_close(medium);
}

static void a_halted_endpoint_stalls_until_it_is_cleared(void **state) {
    (void)state;
    static struct usbredir_peer p;
    uint8_t *got;
    struct tw_pipe *medium = medium_open(TW_USB_HIGH, NULL);
    static uint8_t full[512];
    peer_open(&p, peer_path);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    peer_await(&p,
               peer_bulk_out(&p, full, 512)); /* half a packet, which clearing the halt discards */
    assert_int_equal(peer_control(&p, 0x02, 3, 0, p.out, 0), usb_redir_success);
    struct peer_move *m = peer_bulk_out(&p, full, 5);
    peer_await(&p, m);
    assert_int_equal(m->status, usb_redir_stall);
    assert_int_equal(peer_control(&p, 0x02, 1, 0, p.out, 0), usb_redir_success);
    m = peer_bulk_out(&p, full, 5);
    peer_await(&p, m);
    assert_int_equal(m->status, usb_redir_success);
    assert_int_equal(medium_take(medium, &got), 5);
    peer_close(&p);
    medium_close(medium);
}

static void leaving_the_bus_is_reported_once(void **state) {
    (void)state;
    static struct usbredir_peer p;
    uint8_t *got, byte = 1;
    size_t n;
    struct tw_pipe *medium = medium_open(TW_USB_HIGH, NULL);
    for (int way = 0; way < 3; way++) {
        peer_open(&p, peer_path);
        assert_int_equal(peer_configure(&p, 1), usb_redir_success);
        peer_await(&p, peer_bulk_out(&p, &byte, 1));
        peer_await(&p, peer_bulk_out(&p, &byte, 1));
        assert_int_equal(medium_take(medium, &got), 1); /* the second one is lost with its host */
        if (way == 0) {
            usbredirparser_send_reset(p.parser);
            assert_int_equal(peer_configure(&p, 1), usb_redir_success);
        } else if (way == 1) {
            assert_int_equal(peer_configure(&p, 0), usb_redir_success);
        }
        if (way == 2) {
            peer_close(&p);
        }
        while ((n = medium_take(medium, &got)) != 0) {
            assert_int_equal(way, 2); /* the connection may end later than its packets are taken */
        }
        assert_int_equal(medium->ops->take(medium, &got, &n), TW_PACKET_AGAIN);
        if (way != 2) {
            peer_close(&p);
        }
        /* Without a host, what is sent is lost, and nobody waits. */
        assert_true(medium->ops->wait(medium, true, PEER_MS));
    }
    medium_close(medium);
}

static void hang_up_unplugs_the_device(void **state) {
    (void)state;
    static struct usbredir_peer p, q;
    uint8_t byte = 0, *got;
    size_t n;
    struct tw_pipe *medium = medium_open(TW_USB_HIGH, NULL);
    peer_open(&p, peer_path);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    peer_bulk_in(&p, 512);
    medium->ops->hang_up(medium);
    medium->ops->hang_up(medium);
    for (uint64_t i = 0; !p.gone; i++) {
        assert_true(i < PEER_MS / 100);
        peer_turn(&p, 100);
    }
    peer_close(&p);
    assert_int_equal(medium->ops->send(medium, &byte, 1), TW_PACKET_GONE);
    assert_int_equal(medium->ops->take(medium, &got, &n), TW_PACKET_GONE);
    assert_true(medium->ops->wait(medium, false, -1));
    medium_close(medium);
    assert_false(peer_connect(&q, peer_path));
}

static void a_reset_is_answered_when_the_host_is_dropped(void **state) {
    (void)state;
    static struct usbredir_peer p;
    uint8_t byte = 1, *got;
    struct tw_usb_notice notice;
    struct tw_usb_status s;
    struct tw_pipe *medium = medium_open(TW_USB_HIGH, NULL);
    peer_open(&p, peer_path);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    assert_int_equal(peer_listen(&p, true), usb_redir_success);
    peer_await(&p, peer_bulk_out(&p, &byte, 1));
    __atomic_store_n(&generation_now, 3, __ATOMIC_SEQ_CST);
    assert_int_equal(peer_control(&p, 0xC1, TW_USB_STATUS, 0, 0, 64), usb_redir_success);
    assert_int_equal(p.n, sizeof s);
    memcpy(&s, p.data, sizeof s);
    assert_int_equal(s.generation, 3);
    assert_int_equal(s.progress.counter, 99);
    peer_control_start(&p, 0x41, TW_USB_RESET, 0, 0, 0);
    peer_turn(&p, 100);
    while (medium_take(medium, &got) != 0) { /* the mark: the device drops its host */
    }
    /* to the host that is dropped */
    assert_int_equal(medium->ops->send(medium, &byte, 1), TW_PACKET_OK);
    __atomic_store_n(&generation_now, 0, __ATOMIC_SEQ_CST);
    while (!p.answered) {
        peer_turn(&p, 100);
    }
    assert_int_equal(p.status, usb_redir_success);
    for (int i = 0; p.n_notices == 0; i++) {
        assert_true(i < PEER_MS / 100);
        peer_turn(&p, 100);
    }
    memcpy(&notice, p.notice, sizeof notice);
    assert_int_equal(notice.kind, TW_USB_NOTICE_DROPPED);
    assert_int_equal(notice.generation, 3);
    /* Both pipes are empty: the first packet that comes is the first of the next host. */
    assert_int_equal(medium->ops->send(medium, (const uint8_t *)"new", 3), TW_PACKET_OK);
    struct peer_move *m = peer_bulk_in(&p, 512);
    peer_await(&p, m);
    assert_int_equal(m->n, 3);
    peer_close(&p);
    medium_close(medium);
}

static void a_host_that_does_not_go_fails_the_reset(void **state) {
    (void)state;
    static struct usbredir_peer p;
    struct tw_pipe *medium = medium_open(TW_USB_HIGH, NULL);
    peer_open(&p, peer_path);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    __atomic_store_n(&generation_now, 5, __ATOMIC_SEQ_CST);
    assert_int_equal(peer_control(&p, 0x41, TW_USB_RESET, 0, 0, 0), usb_redir_stall);
    peer_close(&p);
    medium_close(medium);
}

static void a_device_in_recovery_reports_the_reason(void **state) {
    (void)state;
    static struct usbredir_peer p;
    uint8_t byte = 1, *got;
    size_t n;
    struct tw_usb_status s;
    struct tw_pipe *medium = medium_open(TW_USB_SUPER, "the fan is blocked");
    peer_open(&p, peer_path);
    assert_int_equal(p.device.product_id, TW_USB_PRODUCT_RECOVERY);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    assert_int_equal(peer_control(&p, 0xC1, TW_USB_REASON, 0, 0, 120), usb_redir_success);
    assert_int_equal(p.n, 18);
    assert_memory_equal(p.data, "the fan is blocked", 18);
    assert_int_equal(peer_control(&p, 0xC1, TW_USB_STATUS, 0, 0, 64), usb_redir_success);
    memcpy(&s, p.data, sizeof s);
    assert_int_equal(s.state, 1);
    peer_await(&p, peer_bulk_out(&p, &byte, 1));
    assert_int_equal(medium->ops->take(medium, &got, &n), TW_PACKET_AGAIN);
    peer_close(&p);
    medium_close(medium);
}

static void a_path_is_served_by_one_and_is_a_socket(void **state) {
    (void)state;
    tw_error err = {0};
    struct tw_pipe *second;
    const struct tw_usb_options o = {.serial = "1"};
    struct tw_pipe *medium = medium_open(TW_USB_HIGH, NULL);
    assert_int_equal(tw_usbredir_create(peer_path, &o, &second, &err), TW_E_DEVICE_BUSY);
    assert_non_null(strstr(err.message, peer_path));
    medium_close(medium);
    int fd = open(peer_path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    assert_int_equal(tw_usbredir_create(peer_path, &o, &second, &err), TW_E_IO);
    struct stat st;
    assert_int_equal(stat(peer_path, &st), 0); /* somebody's file stays */
    unlink(peer_path);
    char name[200];
    memset(name, 'n', sizeof name);
    name[199] = 0;
    assert_int_equal(tw_usbredir_create(name, &o, &second, &err), TW_E_USAGE);
    assert_int_equal(tw_usbredir_create("/no/such/folder/usb", &o, &second, &err), TW_E_IO);
}

/* ---- hostile hosts ---- */

static void await_end(struct usbredir_peer *p) {
    for (int i = 0; !p->gone; i++) {
        assert_true(i < PEER_MS / 100);
        peer_turn(p, 100);
    }
    peer_close(p);
}

static void send_raw(struct usbredir_peer *p, const void *bytes, size_t n) {
    while (usbredirparser_has_data_to_write(p->parser)) {
        assert_int_equal(usbredirparser_do_write(p->parser), 0);
    }
    assert_int_equal(send(p->fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
}

static void invalid_usbredir_data_ends_only_the_connection(void **state) {
    (void)state;
    static struct usbredir_peer p;
    static uint8_t noise[4096];
    struct tw_pipe *medium = medium_open(TW_USB_HIGH, NULL);
    memset(noise, 0xFF, sizeof noise);
    peer_open(&p, peer_path);
    send_raw(&p, noise, sizeof noise);
    await_end(&p);
    /* a request before the hello */
    struct usb_redir_set_configuration_header h = {.configuration = 1};
    assert_true(peer_connect(&p, peer_path));
    struct usbredirparser *hello = p.parser;
    p.parser = usbredirparser_create();
    p.parser->log_func = hello->log_func;
    p.parser->read_func = hello->read_func;
    p.parser->write_func = hello->write_func;
    p.parser->hello_func = hello->hello_func;
    p.parser->priv = &p;
    usbredirparser_init(p.parser, "", NULL, 0, usbredirparser_fl_no_hello);
    usbredirparser_destroy(hello);
    usbredirparser_send_set_configuration(p.parser, 1, &h);
    await_end(&p);
    /* half a message, then nothing */
    peer_open(&p, peer_path);
    send_raw(&p, "\x64\0\0", 3);
    peer_close(&p);
    /* more reads in flight than any guest has */
    peer_open(&p, peer_path);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    struct usb_redir_bulk_packet_header b = {.endpoint = p.in, .length = 512};
    for (uint64_t i = 0; i < 5000 && !p.gone; i++) {
        usbredirparser_send_bulk_packet(p.parser, 1000 + i, &b, NULL, 0);
        peer_turn(&p, 0);
    }
    await_end(&p);
    /* and the next connection works */
    peer_open(&p, peer_path);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    peer_close(&p);
    medium_close(medium);
}

static void transfers_to_nowhere_are_refused(void **state) {
    (void)state;
    static struct usbredir_peer p;
    uint8_t byte = 1;
    struct tw_pipe *medium = medium_open(TW_USB_HIGH, NULL);
    peer_open(&p, peer_path);
    struct peer_move *m = peer_bulk_out(&p, &byte, 1); /* not configured yet */
    peer_await(&p, m);
    assert_int_equal(m->status, usb_redir_inval);
    assert_int_equal(peer_listen(&p, true), usb_redir_stall);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    p.in = 0x85;
    m = peer_bulk_in(&p, 512);
    peer_await(&p, m);
    assert_int_equal(m->status, usb_redir_inval);
    p.notices = 0x86;
    assert_int_equal(peer_listen(&p, true), usb_redir_stall);
    peer_close(&p);
    medium_close(medium);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_guest_gets_the_topology_before_the_device),
        cmocka_unit_test(packets_pass_whole_in_both_directions),
        cmocka_unit_test(a_full_queue_makes_the_host_wait),
        cmocka_unit_test(a_cancelled_read_loses_no_packet),
        cmocka_unit_test(a_halted_endpoint_stalls_until_it_is_cleared),
        cmocka_unit_test(leaving_the_bus_is_reported_once),
        cmocka_unit_test(hang_up_unplugs_the_device),
        cmocka_unit_test(a_reset_is_answered_when_the_host_is_dropped),
        cmocka_unit_test(a_host_that_does_not_go_fails_the_reset),
        cmocka_unit_test(a_device_in_recovery_reports_the_reason),
        cmocka_unit_test(a_path_is_served_by_one_and_is_a_socket),
        cmocka_unit_test(invalid_usbredir_data_ends_only_the_connection),
        cmocka_unit_test(transfers_to_nowhere_are_refused),
    };
    return cmocka_run_group_tests_name("usbredir", tests, peer_folder_set_up,
                                       peer_folder_tear_down);
}
