/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's side of a PCIe mailbox against a host that the test simulates word by word:
 * starting, ending, and that invalid data from the host only makes the device release the mailbox.
 */
#include "loader/base/event.h"
#include "tests/support/pcie_bed.h"
#include "tests/support/test.h"

#include <time.h>

static struct pcie_bed b;
static struct tw_pcie_registers *r;
static struct tw_pcie_mailbox *box;
static struct tw_pipe *p;

#define SLOT TW_PCIE_SLOT_BYTES

static void make_device(uint32_t dma_bits) {
    tw_error err = {0};
    pcie_bed_init(&b);
    r = pcie_bed_registers(&b);
    box = (void *)b.mailbox;
    struct tw_pcie_device_options o = pcie_bed_options(&b);
    o.dma_bits = dma_bits;
    assert_int_equal(tw_pcie_device_create(&o, &p, &err), 0);
}

static int make(void **state) {
    (void)state;
    make_device(64);
    return 0;
}

static int drop(void **state) {
    (void)state;
    p->ops->close(p);
    assert_int_equal(r->magic, 0);
    pcie_bed_finish(&b);
    return 0;
}

static void ring(void) {
    tw_event_signal(b.doorbell);
}

static void write_start(uint32_t kind, uint64_t mailbox, uint32_t n_slots, uint32_t slot_bytes) {
    r->mailbox_kind = kind;
    r->mailbox = mailbox;
    r->n_slots = n_slots;
    r->slot_bytes = slot_bytes;
    r->armed = TW_PCIE_ARM_PACKET | TW_PCIE_ARM_ROOM;
    tw_pcie_store(&r->start, r->start + 1);
    ring();
}

static enum tw_packet_result take(size_t *n) {
    uint8_t *bytes;
    return p->ops->take(p, &bytes, n);
}

/* Asserts that take() has nothing to return. */
static void assert_quiet(void) {
    size_t n;
    assert_int_equal(take(&n), TW_PACKET_AGAIN);
}

/* Asserts that take() reports once that the host has gone. */
static void assert_left(void) {
    size_t n = 1;
    assert_int_equal(take(&n), TW_PACKET_OK);
    assert_int_equal(n, 0);
    assert_quiet();
}

static void start_good(void) {
    write_start(TW_PCIE_IN_HOST, (uintptr_t)b.mailbox, 16, SLOT);
    assert_quiet();
    assert_int_equal(r->started, r->start);
    assert_int_equal(r->fault, 0);
}

static void assert_refused(int fault) {
    assert_quiet();
    assert_int_equal(r->started, r->start);
    assert_int_equal(r->fault, fault);
    uint8_t packet[8] = {1};
    assert_int_equal(p->ops->send(p, packet, sizeof packet), TW_PACKET_AGAIN);
}

static void registers_describe_the_device(void **state) {
    (void)state;
    assert_int_equal(r->magic, TW_PCIE_MAGIC);
    assert_int_equal(r->version, TW_PCIE_VERSION);
    assert_int_equal(r->state, TW_PCIE_RUNS);
    assert_int_equal(r->window_offset, 4096);
    assert_int_equal(r->window_bytes, PCIE_BED_BAR2 - 4096);
    assert_int_equal(r->max_slots, TW_PCIE_MAX_SLOTS);
    assert_string_equal(r->reason, "");
}

static void packets_go_both_ways_in_order(void **state) {
    (void)state;
    start_good();
    for (uint32_t k = 0; k < 100; k++) {
        uint8_t *slot = b.mailbox + TW_PCIE_MAILBOX_HEAD + (k % 16) * SLOT, *bytes;
        uint32_t size = 1 + k * 600;
        size_t n;
        memset(slot, (int)k, size);
        box->to_device_bytes[k % 16] = size;
        tw_pcie_store(&r->to_device, k + 1);
        ring();
        assert_int_equal(p->ops->take(p, &bytes, &n), TW_PACKET_OK);
        assert_int_equal(n, size);
        assert_true(bytes[0] == k && bytes[size - 1] == k);
        assert_int_equal(tw_pcie_load(&box->done), k + 1);
        assert_int_equal(p->ops->send(p, bytes, n), TW_PACKET_OK);
        assert_int_equal(tw_pcie_load(&box->to_host), k + 1);
        assert_int_equal(box->to_host_bytes[k % 16], size);
        slot = b.mailbox + TW_PCIE_MAILBOX_HEAD + (16 + k % 16) * SLOT;
        assert_true(slot[0] == k && slot[size - 1] == k);
        tw_pcie_store(&r->taken, k + 1);
    }
    assert_quiet();
}

static void interrupts_are_only_what_was_armed(void **state) {
    (void)state;
    uint8_t packet[8] = {1};
    start_good();
    uint32_t before = b.interrupts;
    r->armed = 0;
    assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_OK);
    assert_int_equal(b.interrupts, before);
    r->armed = TW_PCIE_ARM_ROOM;
    assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_OK);
    assert_int_equal(b.interrupts, before);
    r->armed = TW_PCIE_ARM_PACKET;
    assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_OK);
    assert_int_equal(b.interrupts, before + 1);
}

static void a_full_mailbox_has_no_room_until_the_host_takes(void **state) {
    (void)state;
    uint8_t packet[8] = {1};
    start_good();
    for (int i = 0; i < 16; i++) {
        assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_OK);
    }
    assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_AGAIN);
    assert_false(p->ops->wait(p, true, 20));
    assert_int_equal(box->wants_room, 0);
    tw_pcie_store(&r->taken, 3);
    assert_true(p->ops->wait(p, true, 20));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_OK);
    }
    assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_AGAIN);
}

static void invalid_mailboxes_are_refused(void **state) {
    (void)state;
    const uint64_t at = (uintptr_t)b.mailbox, window = PCIE_BED_BAR2 - 4096;
    const struct {
        uint32_t kind;
        uint64_t mailbox;
        uint32_t n_slots, slot_bytes;
    } bad[] = {
        {3, at, 16, SLOT},
        {UINT32_MAX, at, 16, SLOT},
        {TW_PCIE_IN_HOST, at, 0, SLOT},
        {TW_PCIE_IN_HOST, at, 3, SLOT},
        {TW_PCIE_IN_HOST, at, 128, SLOT},
        {TW_PCIE_IN_HOST, at, UINT32_MAX, UINT32_MAX},
        {TW_PCIE_IN_HOST, at, 16, 0},
        {TW_PCIE_IN_HOST, at, 16, 4096},
        {TW_PCIE_IN_HOST, at, 16, SLOT + 8},
        {TW_PCIE_IN_HOST, at, 16, 0x80000000u},
        {TW_PCIE_IN_HOST, at + 8, 16, SLOT},
        {TW_PCIE_IN_HOST, UINT64_MAX - 4095, 16, SLOT},
        {TW_PCIE_IN_WINDOW, window, 16, SLOT},
        {TW_PCIE_IN_WINDOW, UINT64_MAX - 4095, 16, SLOT},
        {TW_PCIE_IN_WINDOW, window / 4096 * 4096 - 4096, 1, SLOT},
        {TW_PCIE_IN_WINDOW, 0, 64, SLOT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_start(bad[i].kind, bad[i].mailbox, bad[i].n_slots, bad[i].slot_bytes);
        assert_refused(TW_E_PROTOCOL);
    }
    start_good();
}

static void counters_continue_from_start_to_start(void **state) {
    (void)state;
    uint8_t packet[8] = {1};
    const uint32_t at[] = {5, UINT32_MAX, 0x80000000u}; /* they wrap around, too */
    for (size_t i = 0; i < 3; i++) {
        r->to_device = at[i];
        r->taken = at[i] - 1;
        start_good();
        assert_int_equal(box->done, at[i]);
        assert_int_equal(box->to_host, at[i] - 1);
        for (uint32_t k = 0; k < 40; k++) {
            size_t n;
            box->to_device_bytes[(at[i] + k) % 16] = 3;
            tw_pcie_store(&r->to_device, at[i] + k + 1);
            ring();
            assert_int_equal(take(&n), TW_PACKET_OK);
            assert_int_equal(n, 3);
            assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_OK);
            assert_int_equal(box->to_host, at[i] + k);
            tw_pcie_store(&r->taken, at[i] + k);
        }
    }
}

static void a_mailbox_beyond_the_devices_reach_is_refused(void **state) {
    (void)state;
    p->ops->close(p);
    pcie_bed_finish(&b);
    make_device(32);
    write_start(TW_PCIE_IN_HOST, 0xfffff000u, 16, SLOT);
    assert_refused(TW_E_PROTOCOL);
    write_start(TW_PCIE_IN_HOST, UINT64_C(0x100000000), 16, SLOT);
    assert_refused(TW_E_PROTOCOL);
}

static void unmapped_memory_is_reported_with_its_address(void **state) {
    (void)state;
    b.mapped = false;
    write_start(TW_PCIE_IN_HOST, (uintptr_t)b.mailbox, 16, SLOT);
    assert_refused(TW_E_RANGE);
    assert_int_equal(r->fault_address, (uintptr_t)b.mailbox);
    b.mapped = b.read_only = true;
    write_start(TW_PCIE_IN_HOST, (uintptr_t)b.mailbox, 16, SLOT);
    assert_refused(TW_E_RANGE);
    b.read_only = false;
    start_good();
}

/* What a running host may do wrong: each time the device releases the mailbox once, and works again
 * after the next start. */
static void counters_and_lengths_out_of_range_end_the_host(void **state) {
    (void)state;
    const uint32_t counters[] = {17, 1000, UINT32_MAX, 0x80000000u};
    for (size_t i = 0; i < 4; i++) {
        start_good();
        tw_pcie_store(&r->to_device, box->done + counters[i]);
        ring();
        assert_left();
        assert_int_equal(r->fault, TW_E_PROTOCOL);
    }
    const uint32_t lengths[] = {0, SLOT + 1, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        start_good();
        uint32_t slot = box->done % 16;
        box->to_device_bytes[slot] = lengths[i];
        tw_pcie_store(&r->to_device, box->done + 1);
        ring();
        assert_left();
        assert_int_equal(r->fault, TW_E_PROTOCOL);
        assert_int_equal(r->fault_address, (uintptr_t)b.mailbox +
                                               offsetof(struct tw_pcie_mailbox, to_device_bytes) +
                                               slot * 4);
    }
    const uint32_t taken[] = {1, 17, UINT32_MAX - 16};
    for (size_t i = 0; i < 3; i++) {
        uint8_t packet[8] = {1};
        start_good();
        tw_pcie_store(&r->taken, box->to_host + taken[i]);
        assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_AGAIN);
        assert_left();
        assert_int_equal(r->fault, TW_E_PROTOCOL);
    }
    start_good();
}

static void memory_that_goes_away_ends_the_host(void **state) {
    (void)state;
    uint8_t packet[8] = {1};
    start_good();
    b.mapped = false;
    assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_AGAIN);
    assert_left();
    b.mapped = true;
    start_good();
    b.mapped = false; /* without packets: the status thread probes, and rings */
    assert_true(p->ops->wait(p, false, 60000));
    assert_left();
    assert_int_equal(r->fault, TW_E_RANGE);
}

static void overwriting_the_devices_words_has_no_effect(void **state) {
    (void)state;
    uint8_t packet[8] = {1};
    write_start(TW_PCIE_IN_WINDOW, 0, 16, SLOT);
    assert_quiet();
    uint32_t start = r->start;
    memset(r, 0xFF, offsetof(struct tw_pcie_registers, start));
    ring();
    assert_quiet();
    assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_OK);
    memset(r, 0, offsetof(struct tw_pcie_registers, start));
    assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_OK);
    assert_int_equal(b.bar2[4096 + 4096 + 17 * SLOT], 1);
    assert_int_equal(r->start, start);
}

static void a_start_without_a_mailbox_ends_it(void **state) {
    (void)state;
    uint8_t packet[8] = {1};
    start_good();
    write_start(TW_PCIE_NONE, 0, 0, 0);
    assert_left();
    assert_int_equal(r->started, r->start);
    b.mapped = false;
    assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_AGAIN);
    assert_int_equal(r->fault, 0); /* it did not try to access the mailbox */
    b.mapped = true;
    write_start(TW_PCIE_NONE, 0, 0, 0);
    assert_quiet(); /* there was no host to go */
}

static void a_reset_is_done_when_the_host_is_released(void **state) {
    (void)state;
    start_good();
    tw_pcie_store(&r->reset, 7);
    ring();
    assert_left();
    for (int i = 0; i < 60000 && tw_pcie_load(&r->was_reset) != 7; i++) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    assert_int_equal(r->was_reset, 7);
    uint8_t packet[8] = {1};
    assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_OK); /* the mailbox is still there */
}

static void a_reset_drops_packets_in_flight_to_the_device(void **state) {
    (void)state;
    start_good();
    box->to_device_bytes[0] = 8;
    tw_pcie_store(&r->to_device, 1);
    tw_pcie_store(&r->reset, 1);
    ring();
    assert_left(); /* and nothing after it */
    assert_int_equal(box->done, 1);
}

static void a_device_in_recovery_reports_the_reason(void **state) {
    (void)state;
    struct pcie_bed other;
    struct tw_pipe *q;
    pcie_bed_init(&other);
    struct tw_pcie_device_options o = pcie_bed_options(&other);
    char reason[300];
    memset(reason, 'x', sizeof reason - 1);
    reason[sizeof reason - 1] = 0;
    o.reason = reason;
    assert_int_equal(tw_pcie_device_create(&o, &q, NULL), 0);
    assert_int_equal(pcie_bed_registers(&other)->state, TW_PCIE_RECOVERY);
    assert_int_equal(strlen(pcie_bed_registers(&other)->reason), sizeof r->reason - 1);
    q->ops->close(q);
    o.dma_bits = 65;
    assert_int_equal(tw_pcie_device_create(&o, &q, NULL), TW_E_USAGE);
    o.dma_bits = 64;
    o.access.bar2_bytes = 4096;
    assert_int_equal(tw_pcie_device_create(&o, &q, NULL), TW_E_USAGE);
    pcie_bed_finish(&other);
}

static void hanging_up_is_for_good(void **state) {
    (void)state;
    size_t n;
    uint8_t packet[8] = {1};
    start_good();
    p->ops->hang_up(p);
    p->ops->hang_up(p);
    assert_int_equal(take(&n), TW_PACKET_GONE);
    assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_GONE);
    assert_true(p->ops->wait(p, true, -1));
    assert_true(p->ops->wait(p, false, -1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(registers_describe_the_device),
        TEST(packets_go_both_ways_in_order),
        TEST(interrupts_are_only_what_was_armed),
        TEST(a_full_mailbox_has_no_room_until_the_host_takes),
        TEST(invalid_mailboxes_are_refused),
        TEST(counters_continue_from_start_to_start),
        TEST(a_mailbox_beyond_the_devices_reach_is_refused),
        TEST(unmapped_memory_is_reported_with_its_address),
        TEST(counters_and_lengths_out_of_range_end_the_host),
        TEST(memory_that_goes_away_ends_the_host),
        TEST(overwriting_the_devices_words_has_no_effect),
        TEST(a_start_without_a_mailbox_ends_it),
        TEST(a_reset_is_done_when_the_host_is_released),
        TEST(a_reset_drops_packets_in_flight_to_the_device),
        TEST(a_device_in_recovery_reports_the_reason),
        TEST(hanging_up_is_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
