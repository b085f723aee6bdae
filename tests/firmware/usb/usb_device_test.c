/* SPDX-License-Identifier: Apache-2.0
 *
 * A device on USB: what its descriptors say by the rules of chapter 9, what it answers and refuses,
 * and packets against a bus that moves one bus packet at a time.
 */
#include "firmware/usb/usb_device.h"
#include "tests/support/test.h"

static const enum tw_usb_speed speeds[] = {TW_USB_FULL, TW_USB_HIGH, TW_USB_SUPER};

struct life {
    uint32_t generation, dropped, cleared;
};

static void report_progress(void *ctx, struct tw_link_progress *p, uint32_t *generation) {
    p->answered = 41;
    p->counter = 4711;
    *generation = ((struct life *)ctx)->generation;
}

static void drop(void *ctx) {
    ((struct life *)ctx)->dropped++;
}

static void clear(void *ctx, uint8_t endpoint) {
    ((struct life *)ctx)->cleared = endpoint;
}

static void make(struct tw_usb_device *d, struct life *life, enum tw_usb_speed speed,
                 const char *recovery) {
    const struct tw_usb_options o = {.speed = speed,
                                     .serial = "SN-1",
                                     .recovery = recovery,
                                     .firmware_version = 0x010203,
                                     .progress = report_progress,
                                     .ctx = life};
    memset(life, 0, sizeof *life);
    assert_int_equal(tw_usb_device_init(d, &o, NULL), 0);
    d->drop = drop;
    d->clear = clear;
    d->ctx = life;
}

static enum tw_usb_reply ask(struct tw_usb_device *d, unsigned type, unsigned request,
                             unsigned value, unsigned index, unsigned length,
                             uint8_t data[TW_USB_CONTROL_MAX], size_t *n) {
    const struct tw_usb_setup s = {(uint8_t)type, (uint8_t)request, (uint16_t)value,
                                   (uint16_t)index, (uint16_t)length};
    memset(data, 0xEE, TW_USB_CONTROL_MAX);
    return tw_usb_device_control(d, &s, data, n);
}

static size_t descriptor(struct tw_usb_device *d, unsigned type, unsigned index, uint8_t *data) {
    size_t n;
    enum tw_usb_reply r = ask(d, 0x80, 6, type << 8 | index, 0, 0xFFFF, data, &n);
    return r == TW_USB_DONE ? n : 0;
}

static void the_device_names_itself_at_each_speed(void **state) {
    (void)state;
    static const uint8_t bcd[] = {2, 2, 3}, packet0[] = {64, 64, 9};
    for (int i = 0; i < 3; i++) {
        struct tw_usb_device d;
        struct life life;
        uint8_t b[TW_USB_CONTROL_MAX];
        make(&d, &life, speeds[i], NULL);
        assert_int_equal(descriptor(&d, 1, 0, b), 18);
        assert_int_equal(b[0], 18);
        assert_int_equal(b[1], 1);
        assert_int_equal(b[3], bcd[i]);
        assert_int_equal(b[7], packet0[i]);
        assert_int_equal(b[8] | b[9] << 8, 0x1209);
        assert_int_equal(b[10] | b[11] << 8, 0x000C);
        assert_int_equal(b[12] | b[13] << 8, 0x0123); /* firmware 1.2.3 */
        assert_int_equal(b[17], 1);
        make(&d, &life, speeds[i], "no memory");
        descriptor(&d, 1, 0, b);
        assert_int_equal(b[10] | b[11] << 8, 0x000D);
    }
}

static void the_configuration_is_a_sequence_of_whole_descriptors(void **state) {
    (void)state;
    static const unsigned bulk[] = {64, 512, 1024};
    for (int i = 0; i < 3; i++) {
        struct tw_usb_device d;
        struct life life;
        uint8_t b[TW_USB_CONTROL_MAX];
        unsigned interfaces = 0, endpoints = 0, companions = 0;
        make(&d, &life, speeds[i], NULL);
        size_t n = descriptor(&d, 2, 0, b);
        assert_int_equal(n, (size_t)(b[2] | b[3] << 8));
        assert_int_equal(b[4], 1);
        size_t at = 0;
        for (; at < n; at += b[at]) {
            assert_true(b[at] >= 2 && b[at] <= n - at);
            if (b[at + 1] == 4) {
                interfaces++;
                assert_int_equal(b[at + 4], 3);
                assert_int_equal(b[at + 5], 0xFF);
                assert_int_equal(b[at + 6], 'T');
                assert_int_equal(b[at + 7], 'W');
            } else if (b[at + 1] == 5) {
                bool is_bulk = (b[at + 3] & 3) == 2;
                endpoints++;
                assert_int_equal(b[at + 4] | b[at + 5] << 8, is_bulk ? bulk[i] : 16);
                assert_true(is_bulk || b[at + 2] & 0x80); /* notices go to the host */
            } else if (b[at + 1] == 48) {
                companions++;
            }
        }
        assert_int_equal(at, n);
        assert_int_equal(interfaces, 1);
        assert_int_equal(endpoints, 3);
        assert_int_equal(companions, speeds[i] == TW_USB_SUPER ? 3 : 0);
        assert_int_equal(descriptor(&d, 2, 1, b), 0);
        assert_int_equal(descriptor(&d, 6, 0, b), speeds[i] == TW_USB_HIGH ? 10 : 0);
        n = descriptor(&d, 15, 0, b);
        assert_int_equal(n, speeds[i] == TW_USB_SUPER ? (size_t)(b[2] | b[3] << 8) : 0);
    }
}

static void strings_are_utf16_and_the_host_gets_no_more_than_it_asked_for(void **state) {
    (void)state;
    struct tw_usb_device d;
    struct life life;
    uint8_t b[TW_USB_CONTROL_MAX];
    size_t n;
    make(&d, &life, TW_USB_HIGH, NULL);
    assert_int_equal(descriptor(&d, 3, 0, b), 4);
    assert_int_equal(b[2] | b[3] << 8, 0x0409);
    assert_int_equal(descriptor(&d, 3, 3, b), 10);
    assert_memory_equal(b, ((uint8_t[]){10, 3, 'S', 0, 'N', 0, '-', 0, '1', 0}), 10);
    assert_int_equal(descriptor(&d, 3, 4, b), 0);
    assert_int_equal(descriptor(&d, 3, 255, b), 0);
    assert_int_equal(ask(&d, 0x80, 6, 0x0100, 0, 8, b, &n), TW_USB_DONE);
    assert_int_equal(n, 8);
    assert_int_equal(ask(&d, 0x80, 6, 0x0100, 0, 0, b, &n), TW_USB_DONE);
    assert_int_equal(n, 0);
}

static void a_serial_number_is_short_printable_text(void **state) {
    (void)state;
    char longest[TW_USB_SERIAL_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[TW_USB_SERIAL_MAX + 1] = 0;
    const char *const bad[] = {NULL, "", "a\nb", "\xC3\xA4", longest};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tw_usb_device d;
        tw_error err = {0};
        const struct tw_usb_options o = {.serial = bad[i]};
        assert_int_equal(tw_usb_device_init(&d, &o, &err), TW_E_USAGE);
        assert_non_null(strstr(err.message, "serial"));
    }
    struct tw_usb_device d;
    longest[TW_USB_SERIAL_MAX] = 0;
    const struct tw_usb_options o = {.serial = longest};
    assert_int_equal(tw_usb_device_init(&d, &o, NULL), 0);
    uint8_t b[TW_USB_CONTROL_MAX];
    assert_int_equal(descriptor(&d, 3, 3, b), 2 + 2 * TW_USB_SERIAL_MAX);
}

static void status_is_the_progress_of_the_open(void **state) {
    (void)state;
    struct tw_usb_device d;
    struct life life;
    uint8_t b[TW_USB_CONTROL_MAX];
    size_t n;
    struct tw_usb_status s;
    make(&d, &life, TW_USB_HIGH, NULL);
    life.generation = 5;
    assert_int_equal(ask(&d, 0xC1, TW_USB_STATUS, 0, 0, sizeof s, b, &n), TW_USB_DONE);
    assert_int_equal(n, sizeof s);
    memcpy(&s, b, sizeof s);
    assert_int_equal(s.progress.answered, 41);
    assert_int_equal(s.progress.counter, 4711);
    assert_int_equal(s.generation, 5);
    assert_int_equal(s.state, 0);
    assert_int_equal(ask(&d, 0xC1, TW_USB_REASON, 0, 0, 120, b, &n), TW_USB_DONE);
    assert_int_equal(n, 0);
}

static void recovery_reports_the_reason_in_120_bytes(void **state) {
    (void)state;
    struct tw_usb_device d;
    struct life life;
    uint8_t b[TW_USB_CONTROL_MAX];
    size_t n;
    struct tw_usb_status s;
    char reason[200];
    memset(reason, 'r', sizeof reason);
    reason[199] = 0;
    make(&d, &life, TW_USB_HIGH, reason);
    assert_int_equal(ask(&d, 0xC1, TW_USB_REASON, 0, 0, 200, b, &n), TW_USB_DONE);
    assert_int_equal(n, 120);
    assert_memory_equal(b, reason, 120);
    assert_int_equal(ask(&d, 0xC1, TW_USB_STATUS, 0, 0, sizeof s, b, &n), TW_USB_DONE);
    memcpy(&s, b, sizeof s);
    assert_int_equal(s.state, 1);
}

static void a_reset_is_done_when_the_open_is_over(void **state) {
    (void)state;
    struct tw_usb_device d;
    struct life life;
    struct tw_usb_notice notice;
    uint8_t b[TW_USB_CONTROL_MAX];
    size_t n;
    make(&d, &life, TW_USB_HIGH, NULL);
    assert_int_equal(ask(&d, 0x41, TW_USB_RESET, 0, 0, 0, b, &n), TW_USB_DONE); /* no host */
    assert_int_equal(life.dropped, 1);
    assert_false(tw_usb_device_dropped(&d, &notice));
    life.generation = 7;
    assert_int_equal(ask(&d, 0x41, TW_USB_RESET, 0, 0, 0, b, &n), TW_USB_LATER);
    assert_int_equal(life.dropped, 2);
    assert_false(tw_usb_device_dropped(&d, &notice));
    life.generation = 8;
    assert_true(tw_usb_device_dropped(&d, &notice));
    assert_int_equal(notice.kind, TW_USB_NOTICE_DROPPED);
    assert_int_equal(notice.generation, 7);
    assert_false(tw_usb_device_dropped(&d, &notice)); /* reported once */
}

static void unknown_requests_are_refused(void **state) {
    (void)state;
    static const struct {
        unsigned type, request, value, index, length;
    } bad[] = {
        {0xC1, TW_USB_RESET, 0, 0, 0},   /* the wrong direction */
        {0x41, TW_USB_STATUS, 0, 0, 0},  /* likewise */
        {0x41, TW_USB_RESET, 0, 0, 4},   /* with data */
        {0xC1, TW_USB_STATUS, 0, 1, 64}, /* another interface */
        {0xC0, TW_USB_STATUS, 0, 0, 64}, /* to the device */
        {0xC1, 0, 0, 0, 64},
        {0xC1, 99, 0, 0, 64},
        {0x80, 6, 0x2900, 0, 64}, /* a hub's descriptor */
        {0xA1, 1, 0, 0, 64},      /* a class request */
        {0x80, 7, 0x0100, 0, 18},
        {0x02, 3, 0, 0x05, 0}, /* halts an endpoint that is not there */
        {0x02, 3, 1, 0x01, 0}, /* a feature that endpoints do not have */
        {0x00, 0x30, 0, 0, 6}, /* of super speed only */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tw_usb_device d;
        struct life life;
        uint8_t b[TW_USB_CONTROL_MAX];
        size_t n;
        make(&d, &life, TW_USB_HIGH, NULL);
        assert_int_equal(
            ask(&d, bad[i].type, bad[i].request, bad[i].value, bad[i].index, bad[i].length, b, &n),
            TW_USB_STALL);
        assert_int_equal(life.dropped, 0);
    }
}

static void a_halt_lasts_until_it_is_cleared(void **state) {
    (void)state;
    static const unsigned address[] = {TW_USB_OUT, TW_USB_IN};
    for (int i = 0; i < 2; i++) {
        struct tw_usb_device d;
        struct life life;
        uint8_t b[TW_USB_CONTROL_MAX];
        size_t n;
        make(&d, &life, TW_USB_HIGH, NULL);
        assert_int_equal(ask(&d, 0x02, 3, 0, address[i], 0, b, &n), TW_USB_DONE);
        assert_true(i == 0 ? d.out_halted : d.in_halted);
        assert_false(i == 0 ? d.in_halted : d.out_halted);
        ask(&d, 0x82, 0, 0, address[i], 2, b, &n);
        assert_memory_equal(b, ((uint8_t[]){1, 0}), 2);
        assert_int_equal(ask(&d, 0x02, 1, 0, address[i], 0, b, &n), TW_USB_DONE);
        assert_false(d.out_halted || d.in_halted);
        assert_int_equal(life.cleared, address[i]);
        ask(&d, 0x82, 0, 0, address[i], 2, b, &n);
        assert_memory_equal(b, ((uint8_t[]){0, 0}), 2);
    }
}

/* ---- packets against a bus ---- */

static uint32_t seed = 12345;

static uint32_t draw(uint32_t below) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static size_t draw_length(uint32_t mps) {
    switch (draw(4)) {
    case 0:
        return mps * (1 + draw(TW_PACKET_BYTES / mps)); /* the case with the zero-length packet */
    case 1:
        return TW_PACKET_BYTES;
    case 2:
        return 1 + draw(200);
    default:
        return 1 + draw(TW_PACKET_BYTES);
    }
}

/* The lengths of a sequence of bus packets. */
struct bus {
    size_t n, length[TW_PACKET_BYTES / 64 + 1];
};

static void to_bus(struct bus *b, size_t bytes, uint32_t mps) {
    size_t full = bytes / mps;
    assert_true(full < sizeof b->length / sizeof b->length[0]);
    for (size_t i = 0; i < full; i++) {
        b->length[i] = mps;
    }
    b->length[full] = bytes % mps;
    b->n = full + 1;
}

/* The host's controller sends a packet in transfers of its choice; transfers hold whole bus
 * packets. */
static void packets_arrive_as_they_were_sent(void **state) {
    (void)state;
    static uint8_t sent[TW_PACKET_BYTES], buffer[TW_PACKET_BYTES];
    static struct bus bus;
    for (int round = 0; round < 400; round++) {
        uint32_t mps = tw_usb_bulk_packet(speeds[draw(3)]);
        size_t n = draw_length(mps), at = 0, i = 0;
        struct tw_usb_assembly a = {.bytes = buffer};
        for (size_t k = 0; k < n; k++) {
            sent[k] = (uint8_t)draw(256);
        }
        to_bus(&bus, n, mps);
        bool whole = false;
        while (i < bus.n) {
            size_t take = 1 + draw((uint32_t)(bus.n - i)), bytes = 0;
            for (size_t k = 0; k < take; k++) {
                bytes += bus.length[i + k];
            }
            i += take;
            assert_false(whole);
            whole = tw_usb_assembly_add(&a, sent + at, bytes, bus.length[i - 1] < mps);
            at += bytes;
        }
        assert_true(whole);
        assert_int_equal(a.n, n);
        assert_memory_equal(a.bytes, sent, n);
    }
}

static void a_packet_that_is_too_long_is_dropped_up_to_its_end(void **state) {
    (void)state;
    static uint8_t buffer[TW_PACKET_BYTES], piece[1024];
    struct tw_usb_assembly a = {.bytes = buffer};
    for (uint32_t i = 0; i < 2 * TW_PACKET_BYTES / sizeof piece; i++) {
        assert_false(tw_usb_assembly_add(&a, piece, sizeof piece, false));
    }
    assert_false(tw_usb_assembly_add(&a, piece, 3, true)); /* its end */
    assert_true(tw_usb_assembly_add(&a, piece, 5, true));
    assert_int_equal(a.n, 5);
    tw_usb_assembly_clear(&a);
    static uint8_t big[TW_PACKET_BYTES + 1];
    assert_false(tw_usb_assembly_add(&a, big, sizeof big, true)); /* too long and ended at once */
    /* a zero-length packet alone is not a packet */
    assert_false(tw_usb_assembly_add(&a, NULL, 0, true));
    assert_true(tw_usb_assembly_add(&a, big, TW_PACKET_BYTES, true));
    assert_int_equal(a.n, TW_PACKET_BYTES);
}

/* The host reads with transfers of any size; a transfer ends when it is full or with a short bus
 * packet. */
static void the_host_sees_the_end_of_each_packet(void **state) {
    (void)state;
    static uint8_t packet[TW_PACKET_BYTES], got[TW_PACKET_BYTES];
    for (int round = 0; round < 400; round++) {
        uint32_t mps = tw_usb_bulk_packet(speeds[draw(3)]);
        size_t n = draw_length(mps), have = 0, transfers = 0;
        struct tw_usb_split s = {.bytes = packet};
        bool border = false;
        for (size_t k = 0; k < n; k++) {
            packet[k] = (uint8_t)draw(256);
        }
        tw_usb_split_begin(&s, n);
        while (s.open) {
            size_t room = mps * (1 + draw(draw(2) ? 3 : 80));
            const uint8_t *bytes;
            bool babble;
            size_t m = tw_usb_split_next(&s, room, mps, &bytes, &babble);
            assert_false(border || babble);
            assert_true(m <= room);
            memcpy(got + have, bytes, m);
            have += m;
            transfers++;
            border = m < room;
            assert_true(border || m == room);
        }
        assert_int_equal(have, n);
        assert_memory_equal(got, packet, n);
        /* a full transfer needs a zero-length packet after it */
        assert_true(border || n % mps != 0);
    }
}

static void too_little_room_for_a_bus_packet_is_babble(void **state) {
    (void)state;
    static uint8_t packet[2000];
    struct tw_usb_split s = {.bytes = packet};
    const uint8_t *bytes;
    bool babble;
    tw_usb_split_begin(&s, sizeof packet);
    assert_int_equal(tw_usb_split_next(&s, 700, 512, &bytes, &babble), 512);
    assert_true(babble && s.open);
    assert_int_equal(tw_usb_split_next(&s, 0, 512, &bytes, &babble), 0);
    assert_true(babble && s.open);
    assert_int_equal(tw_usb_split_next(&s, 1488, 512, &bytes, &babble), 1488);
    assert_ptr_equal(bytes, packet + 512);
    assert_false(babble || s.open);
    tw_usb_split_begin(&s, 512);
    assert_int_equal(tw_usb_split_next(&s, 512, 512, &bytes, &babble), 512);
    assert_true(s.open);
    /* the zero-length packet */
    assert_int_equal(tw_usb_split_next(&s, 0, 512, &bytes, &babble), 0);
    assert_false(babble || s.open);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_names_itself_at_each_speed),
        cmocka_unit_test(the_configuration_is_a_sequence_of_whole_descriptors),
        cmocka_unit_test(strings_are_utf16_and_the_host_gets_no_more_than_it_asked_for),
        cmocka_unit_test(a_serial_number_is_short_printable_text),
        cmocka_unit_test(status_is_the_progress_of_the_open),
        cmocka_unit_test(recovery_reports_the_reason_in_120_bytes),
        cmocka_unit_test(a_reset_is_done_when_the_open_is_over),
        cmocka_unit_test(unknown_requests_are_refused),
        cmocka_unit_test(a_halt_lasts_until_it_is_cleared),
        cmocka_unit_test(packets_arrive_as_they_were_sent),
        cmocka_unit_test(a_packet_that_is_too_long_is_dropped_up_to_its_end),
        cmocka_unit_test(the_host_sees_the_end_of_each_packet),
        cmocka_unit_test(too_little_room_for_a_bus_packet_is_babble),
    };
    return cmocka_run_group_tests_name("usb device", tests, NULL, NULL);
}
