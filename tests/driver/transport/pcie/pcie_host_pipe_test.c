/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's side of a PCIe mailbox against a device simulated by the test: whatever the device
 * writes, the pipe ends with a cause and accesses nothing outside the mailbox.
 */
#include "driver/transport/pcie/pcie_host_pipe.h"
#include "loader/base/event.h"
#include "tests/support/pcie_bed.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <time.h>

static struct pcie_bed b;
static struct tw_pcie_registers *r;
static struct tw_pipe *p;
static tw_error err;

static struct tw_pcie_mailbox *box(bool window) {
    return (void *)(window ? b.bar2 + 4096 : b.mailbox);
}

/* How the device reacts to its doorbell. */
static struct {
    bool silent, leaves; /* leaves: drops off the bus when the doorbell is rung */
    int fault;
    pthread_t firmware;
    unsigned resets;
} device;

static void answer(void *ctx) {
    (void)ctx;
    if (device.leaves) {
        memset(r, 0xFF, sizeof *r);
        return;
    }
    if (!device.silent && r->started != r->start) {
        struct tw_pcie_mailbox *m = box(r->mailbox_kind == TW_PCIE_IN_WINDOW);
        r->fault = device.fault;
        r->fault_address = 0xabc000;
        m->done = r->to_device;
        m->to_host = r->taken;
        tw_pcie_store(&r->started, r->start);
    }
    if (!device.silent) {
        tw_pcie_store(&r->was_reset, r->reset);
    }
}

/* A reset clears the registers; the firmware fills them again after a while. */
static void *come_back(void *arg) {
    (void)arg;
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    r->version = TW_PCIE_VERSION;
    r->state = TW_PCIE_RUNS;
    tw_pcie_store(&r->magic, TW_PCIE_MAGIC);
    return NULL;
}

static bool reset(void *ctx) {
    (void)ctx;
    device.resets++;
    memset(r, 0, sizeof *r);
    return pthread_create(&device.firmware, NULL, come_back, NULL) == 0;
}

static int make(void **state) {
    (void)state;
    pcie_bed_init(&b);
    r = pcie_bed_registers(&b);
    r->version = TW_PCIE_VERSION;
    r->state = TW_PCIE_RUNS;
    r->max_slots = TW_PCIE_MAX_SLOTS;
    r->dma_bits = 48;
    r->window_offset = 4096;
    r->window_bytes = PCIE_BED_BAR2 - 4096;
    r->magic = TW_PCIE_MAGIC;
    p = NULL;
    memset(&device, 0, sizeof device);
    memset(&err, 0, sizeof err);
    return 0;
}

static int drop(void **state) {
    (void)state;
    if (p) {
        p->ops->close(p);
    }
    pcie_bed_finish(&b);
    return 0;
}

static int open_pipe(bool window) {
    struct tw_pcie_side side = pcie_bed_side(&b, window, false);
    side.ring = answer;
    side.reset = reset;
    int code = tw_pcie_pipe_create(&side, &p, &err);
    if (code) {
        p = NULL;
    }
    return code;
}

static uint8_t *slot_to_host(bool window, uint32_t k) {
    return (uint8_t *)box(window) + TW_PCIE_MAILBOX_HEAD + (16 + k % 16) * TW_PCIE_SLOT_BYTES;
}

static void assert_gone(const char *why) {
    uint8_t *bytes, packet[8] = {1};
    size_t n;
    assert_int_equal(p->ops->take(p, &bytes, &n), TW_PACKET_GONE);
    assert_int_equal(p->ops->send(p, packet, sizeof packet), TW_PACKET_GONE);
    assert_true(p->ops->wait(p, false, -1));
    if (!strstr(p->ops->cause(p), why)) {
        fail_msg("'%s' does not contain '%s'", p->ops->cause(p), why);
    }
    p->ops->close(p);
    p = NULL;
}

/* ---- opening ---- */

static void assert_refused(int code, const char *why) {
    assert_int_equal(open_pipe(true), code);
    assert_non_null(strstr(err.message, "pcie:bed"));
    if (!strstr(err.message, why)) {
        fail_msg("'%s' does not contain '%s'", err.message, why);
    }
}

static void other_devices_are_refused(void **state) {
    (void)state;
    r->magic = 0;
    assert_refused(TW_E_NO_DEVICE, "not a Tilewright device");
    r->magic = UINT32_MAX;
    assert_refused(TW_E_DEVICE_LOST, "off the bus");
    r->magic = TW_PCIE_MAGIC;
    r->version = 2;
    assert_refused(TW_E_VERSION, "upgrade the driver");
    r->version = 0;
    assert_refused(TW_E_VERSION, "upgrade the device's firmware");
}

static void a_device_in_recovery_reports_its_reason(void **state) {
    (void)state;
    r->state = TW_PCIE_RECOVERY;
    memset(r->reason, 'x', sizeof r->reason); /* without an end */
    memcpy(r->reason, "no target", 9);
    assert_refused(TW_E_FAULT, "recovery and cannot run: no targetx");
    assert_null(strchr(err.message, 1));
}

static void invalid_windows_are_refused(void **state) {
    (void)state;
    static const struct {
        uint64_t at, bytes;
    } bad[] = {{0, PCIE_BED_BAR2},
               {4095, PCIE_BED_BAR2 - 8192},
               {4096, PCIE_BED_BAR2},
               {4096, 4096},
               {PCIE_BED_BAR2 - 4096, PCIE_BED_BAR2},
               {UINT64_MAX - 4095, 8192},
               {4096, UINT64_MAX - 100}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        r->window_offset = bad[i].at;
        r->window_bytes = bad[i].bytes;
        assert_refused(TW_E_PROTOCOL, "window");
    }
    r->max_slots = 15;
    assert_refused(TW_E_PROTOCOL, "slots");
}

static void a_device_that_does_not_start_is_reported(void **state) {
    (void)state;
    device.silent = true;
    assert_refused(TW_E_DEVICE_LOST, "does not answer the doorbell");
}

static void a_device_that_leaves_at_its_start_is_lost_and_has_no_fault(void **state) {
    (void)state;
    device.leaves = true;
    assert_refused(TW_E_DEVICE_LOST, "off the bus");
}

static void an_unreachable_mailbox_is_reported_with_its_address(void **state) {
    (void)state;
    device.fault = TW_E_RANGE;
    assert_refused(TW_E_FAULT, "0xabc000: the IOMMU");
    device.fault = TW_E_IO;
    assert_refused(TW_E_FAULT, "--guest-ram");
    device.fault = 12345;
    assert_refused(TW_E_FAULT, "invalid data");
    device.fault = 0;
    assert_int_equal(open_pipe(false), 0); /* an earlier fault does not matter */
}

/* ---- packets ---- */

/* A packet there and back. */
static void echo(bool window, const uint8_t *out, uint32_t n) {
    uint32_t sent = r->to_device, taken = r->taken;
    uint8_t *slot =
                (uint8_t *)box(window) + TW_PCIE_MAILBOX_HEAD + (sent % 16) * TW_PCIE_SLOT_BYTES,
            *bytes;
    size_t got;
    assert_int_equal(p->ops->send(p, out, n), TW_PACKET_OK);
    assert_int_equal(r->to_device, sent + 1);
    assert_int_equal(box(window)->to_device_bytes[sent % 16], n);
    assert_memory_equal(slot, out, n);
    memcpy(slot_to_host(window, taken), slot, n);
    box(window)->to_host_bytes[taken % 16] = n;
    tw_pcie_store(&box(window)->done, sent + 1);
    tw_pcie_store(&box(window)->to_host, taken + 1);
    assert_true(p->ops->wait(p, false, 0));
    assert_int_equal(p->ops->take(p, &bytes, &got), TW_PACKET_OK);
    assert_int_equal(got, n);
    assert_memory_equal(bytes, out, n);
    assert_int_equal(r->taken, taken + 1);
    assert_int_equal(p->ops->take(p, &bytes, &got), TW_PACKET_AGAIN);
}

static void packets_of_all_sizes_go_both_ways(void **state) {
    (void)state;
    const uint32_t max = TW_LINK_HEADER_BYTES + TW_PCIE_CHUNK;
    uint8_t *out = malloc(max);
    for (uint32_t i = 0; i < max; i++) {
        out[i] = (uint8_t)(i * 5 + i / 251);
    }
    for (int window = 0; window < 2; window++) {
        /* as a previous host left them; they wrap around */
        r->to_device = UINT32_MAX - 50;
        r->taken = 77;
        assert_int_equal(open_pipe(window), 0);
        for (uint32_t k = 0; k < 100; k++) {
            echo(window, out, k < 40 ? k + 1 : max - (k * 977) % max);
        }
        p->ops->close(p);
        p = NULL;
    }
    free(out);
}

static void room_is_a_slot_that_is_sent_as_it_is(void **state) {
    (void)state;
    uint8_t packet[8] = {9};
    assert_int_equal(open_pipe(false), 0);
    for (int i = 0; i < 16; i++) {
        uint8_t *room = p->ops->room(p);
        assert_ptr_equal(room, b.mailbox + TW_PCIE_MAILBOX_HEAD + (uint32_t)i * TW_PCIE_SLOT_BYTES);
        assert_null(p->ops->room(p)); /* one at a time */
        assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_AGAIN);
        assert_int_equal(p->ops->send(p, room, 0), TW_PACKET_OK); /* given back */
        assert_ptr_equal(p->ops->room(p), room);
        memset(room, i, 100);
        assert_int_equal(p->ops->send(p, room, 100), TW_PACKET_OK);
        assert_int_equal(box(false)->to_device_bytes[i], 100);
    }
    assert_null(p->ops->room(p));
    assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_AGAIN);
    assert_false(p->ops->wait(p, true, 10));
    tw_pcie_store(&box(false)->done, 1);
    assert_true(p->ops->wait(p, true, 10));
    assert_non_null(p->ops->room(p));
}

static void a_packet_does_not_change_after_it_was_taken(void **state) {
    (void)state;
    uint8_t *bytes;
    size_t n;
    assert_int_equal(open_pipe(false), 0);
    memset(slot_to_host(false, 0), 7, 100);
    box(false)->to_host_bytes[0] = 100;
    tw_pcie_store(&box(false)->to_host, 1);
    assert_int_equal(p->ops->take(p, &bytes, &n), TW_PACKET_OK);
    memset(slot_to_host(false, 0), 8, 100);
    assert_int_equal(bytes[99], 7);
}

static void counters_out_of_range_end_the_pipe(void **state) {
    (void)state;
    const uint32_t bad[] = {17, 1000, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < 8; i++) {
        bool window = i & 1;
        assert_int_equal(open_pipe(window), 0);
        tw_pcie_store(&box(window)->to_host, r->taken + bad[i / 2]);
        assert_gone("counter is damaged");
        assert_int_equal(open_pipe(window), 0);
        /* slightly less than to_device would be legal: packets in flight */
        uint32_t done = r->to_device + bad[i / 2] - (i / 2 == 3 ? 100 : 0);
        tw_pcie_store(&box(window)->done, done);
        uint8_t packet[8] = {1};
        assert_int_equal(p->ops->send(p, packet, 8), TW_PACKET_GONE);
        assert_gone("counter is damaged");
    }
}

/* Otherwise a sender would wait for room until its deadline. */
static void a_pipe_that_is_gone_has_room_and_send_reports_it(void **state) {
    (void)state;
    assert_int_equal(open_pipe(false), 0);
    tw_pcie_store(&box(false)->done, 1000);
    uint8_t *room = p->ops->room(p);
    assert_non_null(room);
    assert_int_equal(p->ops->send(p, room, 8), TW_PACKET_GONE);
    assert_non_null(p->ops->room(p));
    assert_gone("taken 1000 packets of the 0 it was sent: its counter is damaged");
}

static void lengths_out_of_range_end_the_pipe(void **state) {
    (void)state;
    const uint32_t bad[] = {0, TW_PCIE_SLOT_BYTES + 1, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(open_pipe(false), 0);
        box(false)->to_host_bytes[0] = bad[i];
        tw_pcie_store(&box(false)->to_host, 1);
        assert_gone("bytes into a slot");
    }
}

static void a_device_that_leaves_during_a_wait_is_reported(void **state) {
    (void)state;
    assert_int_equal(open_pipe(false), 0);
    memset(b.bar2, 0xFF, PCIE_BED_BAR2);
    assert_true(p->ops->wait(p, false, 60000));
    assert_gone("off the bus");
    make(state);
    assert_int_equal(open_pipe(false), 0);
    r->fault = TW_E_RANGE;
    tw_event_signal(b.interrupt);
    assert_true(p->ops->wait(p, false, 60000));
    assert_gone("IOMMU");
    assert_int_equal(open_pipe(false), 0);
    r->magic = 0x12345678;
    assert_true(p->ops->wait(p, true, -1)); /* there is room */
    assert_true(p->ops->wait(p, false, 60000));
    assert_gone("12345678");
}

/* ---- the other paths ---- */

static void a_device_whose_counter_stands_still_is_not_alive(void **state) {
    (void)state;
    struct tw_link_progress progress;
    assert_int_equal(open_pipe(false), 0);
    assert_false(p->ops->probe_status(p, &progress));
}

static void the_ladder_has_three_rungs(void **state) {
    (void)state;
    assert_int_equal(open_pipe(false), 0);
    uint32_t start = r->start;
    assert_non_null(strstr(p->ops->recover(p, 0), "started again"));
    assert_int_equal(r->start, start + 1);
    assert_non_null(strstr(p->ops->recover(p, 1), "reset"));
    assert_int_equal(r->was_reset, r->reset);
    assert_non_null(strstr(p->ops->recover(p, 2), "function was reset"));
    assert_int_equal(device.resets, 1);
    assert_int_equal(pthread_join(device.firmware, NULL), 0);
    assert_int_equal(r->start, start + 2);
    assert_null(p->ops->recover(p, 3));
    r->start = UINT32_MAX; /* what the register holds does not matter any more */
    assert_non_null(p->ops->recover(p, 0));
    assert_int_equal(r->start, start + 3);
    device.silent = true;
    assert_string_equal(p->ops->recover(p, 1), ""); /* it failed; the next rung may succeed */
    p->ops->hang_up(p);
    assert_null(p->ops->recover(p, 0));
}

static void a_start_is_never_number_0(void **state) {
    (void)state;
    r->start = UINT32_MAX;
    assert_int_equal(open_pipe(false), 0);
    assert_int_equal(r->start, 1);
}

static void closing_makes_the_device_release_the_mailbox(void **state) {
    (void)state;
    assert_int_equal(open_pipe(false), 0);
    p->ops->close(p);
    p = NULL;
    assert_int_equal(r->mailbox_kind, TW_PCIE_NONE);
    assert_int_equal(r->start, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(other_devices_are_refused),
        TEST(a_device_in_recovery_reports_its_reason),
        TEST(invalid_windows_are_refused),
        TEST(a_device_that_does_not_start_is_reported),
        TEST(a_device_that_leaves_at_its_start_is_lost_and_has_no_fault),
        TEST(an_unreachable_mailbox_is_reported_with_its_address),
        TEST(packets_of_all_sizes_go_both_ways),
        TEST(room_is_a_slot_that_is_sent_as_it_is),
        TEST(a_packet_does_not_change_after_it_was_taken),
        TEST(counters_out_of_range_end_the_pipe),
        TEST(a_pipe_that_is_gone_has_room_and_send_reports_it),
        TEST(lengths_out_of_range_end_the_pipe),
        TEST(a_device_that_leaves_during_a_wait_is_reported),
        TEST(a_device_whose_counter_stands_still_is_not_alive),
        TEST(the_ladder_has_three_rungs),
        TEST(a_start_is_never_number_0),
        TEST(closing_makes_the_device_release_the_mailbox),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
