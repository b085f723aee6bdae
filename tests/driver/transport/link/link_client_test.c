/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's end of a link against a device simulated by the test: the recovery ladder, and an
 * OPENED meant for another host.
 */
#include "driver/transport/link/link_client.h"
#include "firmware/link/packet.h"
#include "tests/support/test.h"

#include <time.h>

#define DEADLINE_MS 100u /* of a device that stays silent */

/* Each packet that the host sends is answered at once, if at all. */
static struct device {
    struct tw_pipe pipe;
    uint8_t packet[8][TW_LINK_HEADER_BYTES + sizeof(struct tw_link_opened)];
    size_t bytes[8];
    unsigned first, n;
    uint32_t generation;
    unsigned stale;          /* OPENED packets for a previous host that arrive before ours */
    int status;              /* of an open */
    unsigned rungs, failing; /* of the recovery ladder; the first `failing` ones fail */
    unsigned silent_until;   /* silent until this many rungs have been tried */
    unsigned tried;
    bool closed;
} device;

static void queue_packet(enum tw_link_kind kind, uint32_t generation, uint32_t sequence,
                         const void *data, uint32_t n) {
    struct tw_link_header h = {
        .kind = (uint8_t)kind, .generation = generation, .sequence = sequence};
    const struct tw_packet_data what = {NULL, data, n};
    unsigned at = (device.first + device.n++) % 8;
    assert_true(device.n <= 8);
    device.bytes[at] = tw_packet_build(&h, &what, TW_LINK_CHUNK, device.packet[at]);
}

static void send_opened(uint32_t generation) {
    const struct tw_link_opened o = {.status = device.status,
                                     .holder_pid = 1,
                                     .generation = generation,
                                     .credits = 1,
                                     .max_payload = TW_LINK_MAX_PAYLOAD};
    queue_packet(TW_LINK_OPENED, generation, 0, &o, sizeof o);
}

static enum tw_packet_result send_packet(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    (void)p;
    struct tw_link_header h;
    assert_true(tw_packet_good(bytes, n, &h));
    if (device.tried < device.silent_until) {
        return TW_PACKET_OK;
    }
    if (h.kind == TW_LINK_OPEN) {
        for (; device.stale; device.stale--) {
            send_opened(device.generation - device.stale);
        }
        send_opened(device.generation);
    } else if (h.kind == TW_LINK_DATA && h.generation == device.generation) {
        queue_packet(TW_LINK_DATA, h.generation, h.sequence, bytes + TW_LINK_HEADER_BYTES,
                     TW_WIRE_HEADER_BYTES);
    }
    return TW_PACKET_OK;
}

static enum tw_packet_result take(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    (void)p;
    if (!device.n) {
        return TW_PACKET_AGAIN;
    }
    *bytes = device.packet[device.first];
    *n = device.bytes[device.first];
    device.first = (device.first + 1) % 8;
    device.n--;
    return TW_PACKET_OK;
}

static bool wait_packet(struct tw_pipe *p, bool write, int ms) {
    (void)p, (void)write;
    if (!device.n && ms > 0) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return device.n > 0;
}

static void hang_up(struct tw_pipe *p) {
    (void)p;
}

static void close_pipe(struct tw_pipe *p) {
    (void)p;
    device.closed = true;
}

static const char *recover(struct tw_pipe *p, unsigned rung) {
    (void)p;
    if (rung >= device.rungs) {
        return NULL;
    }
    device.tried = rung + 1;
    return rung < device.failing ? "" : "it was reset";
}

static const struct tw_pipe_ops ops = {.send = send_packet,
                                       .take = take,
                                       .wait = wait_packet,
                                       .hang_up = hang_up,
                                       .close = close_pipe,
                                       .recover = recover};

static int open_link(struct device what, struct tw_link **link, tw_error *err) {
    device = what;
    device.pipe = (struct tw_pipe){.ops = &ops, .chunk = TW_LINK_CHUNK, .fd = -1};
    *link = NULL;
    return tw_link_open("bed", &device.pipe, DEADLINE_MS, link, err);
}

static void rungs_that_fail_do_not_end_the_ladder(void **state) {
    (void)state;
    tw_error err = {0};
    struct tw_link *link;
    assert_int_equal(
        open_link((struct device){.generation = 7, .silent_until = 3, .rungs = 3, .failing = 2},
                  &link, &err),
        0);
    assert_string_equal(link->opening.recovered, "it was reset");
    tw_link_close(&link->base);
    assert_true(device.closed);
    assert_int_equal(
        open_link((struct device){.silent_until = 9, .rungs = 3, .failing = 3}, &link, &err),
        TW_E_DEVICE_LOST);
    assert_int_equal(device.tried, 3);
    assert_true(device.closed);
}

static void a_device_that_answers_at_last_is_not_to_be_unplugged(void **state) {
    (void)state;
    tw_error err = {0};
    struct tw_link *link;
    struct device busy = {
        .generation = 7, .silent_until = 1, .rungs = 1, .status = TW_E_DEVICE_BUSY};
    assert_int_equal(open_link(busy, &link, &err), TW_E_DEVICE_BUSY);
    assert_null(strstr(err.message, "unplug"));
    busy.silent_until = 2;
    assert_int_equal(open_link(busy, &link, &err), TW_E_DEVICE_LOST);
    assert_non_null(strstr(err.message, "it was reset; unplug"));
}

static void an_opened_for_the_previous_host_is_not_a_reset(void **state) {
    (void)state;
    tw_error err = {0};
    struct tw_link *link;
    assert_int_equal(open_link((struct device){.generation = 7, .stale = 2}, &link, &err), 0);
    assert_int_equal(link->conn.generation, 5);
    uint8_t header[TW_WIRE_HEADER_BYTES] = {1, 2, 3}, answer[TW_WIRE_HEADER_BYTES];
    const void *payload;
    uint32_t n;
    assert_int_equal(tw_link_submit(&link->base, header, NULL, 0, &err), 0);
    assert_int_equal(tw_link_receive(&link->base, answer, &payload, &n, &err), 0);
    assert_memory_equal(answer, header, sizeof answer);
    assert_int_equal(link->conn.generation, 7);
    send_opened(8); /* but after an answer it is one */
    assert_int_equal(tw_link_submit(&link->base, header, NULL, 0, &err), 0);
    assert_int_equal(tw_link_receive(&link->base, answer, &payload, &n, &err), TW_E_DEVICE_LOST);
    assert_non_null(strstr(err.message, "was reset"));
    tw_link_close(&link->base);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rungs_that_fail_do_not_end_the_ladder),
        cmocka_unit_test(a_device_that_answers_at_last_is_not_to_be_unplugged),
        cmocka_unit_test(an_opened_for_the_previous_host_is_not_a_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
