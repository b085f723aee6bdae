/* SPDX-License-Identifier: Apache-2.0
 *
 * A device behind the queues of a USB device's end, without a bus: hosts that open, work and die
 * without CLOSE, with packets left in both directions.
 */
#include "firmware/link/packet.h"
#include "firmware/serve/device_server.h"
#include "firmware/usb/usb_device_pipe.h"
#include "loader/base/clock.h"
#include "tests/support/test.h"

#define PATIENCE_MS 60000u
#define DEAD_HOSTS 200u

struct bed {
    struct tw_usb_pipe pipe;
    struct tw_device_server *socket;
    pthread_t thread;
    uint8_t *to_device, *from_device; /* the bus's buffers */
    uint32_t random;
};

static void close_pipe(struct tw_pipe *p) {
    tw_usb_pipe_finish((struct tw_usb_pipe *)p);
}

static const struct tw_pipe_ops ops = {.send = tw_usb_pipe_send,
                                       .take = tw_usb_pipe_take,
                                       .wait = tw_usb_pipe_wait,
                                       .hang_up = tw_usb_pipe_hang_up,
                                       .close = close_pipe};

static void *serve(void *arg) {
    tw_device_server_run(arg, NULL);
    return NULL;
}

static int set_up(void **state) {
    static struct bed b;
    tw_error err = {0};
    const struct tw_device_server_options o = {
        .emu = {.n_threads = 1, .memory_bytes = 64u << 20, .target = ""}};
    memset(&b, 0, sizeof b);
    b.random = 1;
    assert_int_equal(tw_device_server_create(&o, &b.socket, &err), 0);
    assert_int_equal(tw_usb_pipe_init(&b.pipe, &ops, false, &err), 0);
    struct tw_medium *line = tw_medium_create(&b.pipe.base);
    assert_non_null(line);
    assert_int_equal(tw_device_server_add_medium(b.socket, line, &err), 0);
    b.to_device = b.pipe.spare[0];
    b.from_device = b.pipe.spare[1];
    tw_usb_pipe_cut(&b.pipe, true);
    assert_int_equal(pthread_create(&b.thread, NULL, serve, b.socket), 0);
    *state = &b;
    return 0;
}

static int tear_down(void **state) {
    struct bed *b = *state;
    tw_device_server_stop(b->socket);
    pthread_join(b->thread, NULL);
    tw_device_server_destroy(b->socket);
    return 0;
}

static uint32_t draw(struct bed *b, uint32_t below) {
    b->random = b->random * 1664525u + 1013904223u;
    return (b->random >> 8) % below;
}

/* ---- a host ---- */

static void send_packet(struct bed *b, struct tw_link_header h, const struct tw_packet_data *data) {
    static const struct tw_packet_data none;
    size_t n = tw_packet_build(&h, data ? data : &none, TW_LINK_CHUNK, b->to_device);
    assert_true(tw_usb_pipe_wait_room(&b->pipe, (int)PATIENCE_MS));
    assert_true(tw_usb_pipe_put(&b->pipe, &b->to_device, n));
}

static void send_open(struct bed *b, uint64_t nonce) {
    const struct tw_link_open q = {.pid = 1, .nonce = nonce, .command = "host"};
    const struct tw_packet_data data = {NULL, &q, sizeof q};
    send_packet(b, (struct tw_link_header){.kind = TW_LINK_OPEN}, &data);
}

static void request(struct bed *b, uint32_t generation, uint32_t number, struct tw_wire_header w,
                    const void *payload) {
    uint8_t header[TW_WIRE_HEADER_BYTES];
    const struct tw_packet_data data = {header, payload, w.length};
    w.version = TW_WIRE_VERSION_MAX;
    w.sequence = number;
    tw_wire_encode(&w, header);
    send_packet(
        b,
        (struct tw_link_header){.kind = TW_LINK_DATA, .generation = generation, .sequence = number},
        &data);
}

/* The next packet of this kind, in b->from_device. False: none came in time. */
static bool receive(struct bed *b, enum tw_link_kind kind, uint32_t ms, struct tw_link_header *h) {
    uint64_t end = tw_clock_ms() + ms;
    size_t n;
    while (tw_clock_ms() < end) {
        if (tw_usb_pipe_wait_get(&b->pipe, &b->from_device, &n, 20) &&
            tw_packet_good(b->from_device, n, h) && h->kind == kind) {
            return true;
        }
    }
    return false;
}

/* Sends OPEN until the answer to a new open arrives; returns its generation. */
static uint32_t open_device(struct bed *b, uint64_t nonce, uint32_t before) {
    struct tw_link_header h;
    uint64_t end = tw_clock_ms() + PATIENCE_MS;
    while (tw_clock_ms() < end) {
        send_open(b, nonce);
        if (receive(b, TW_LINK_OPENED, 100, &h) && h.generation > before) {
            return h.generation;
        }
    }
    fail_msg("no answer to OPEN");
    return 0;
}

static uint64_t allocate(struct bed *b, uint32_t generation, uint64_t bytes) {
    const struct tw_wire_alloc q = {.bytes = bytes, .align = 4096};
    struct tw_link_header h;
    request(b, generation, 1, (struct tw_wire_header){.opcode = TW_WIRE_ALLOC, .length = sizeof q},
            &q);
    do {
        assert_true(receive(b, TW_LINK_DATA, PATIENCE_MS, &h));
    } while (h.generation != generation);
    assert_int_equal(TW_WIRE_GET(b->from_device + TW_LINK_HEADER_BYTES, status), 0);
    return TW_WIRE_GET(b->from_device + TW_LINK_HEADER_BYTES, address);
}

/* Leaves more answers on their way than the queue holds, and half a request. */
static void die_in_mid_work(struct bed *b, uint32_t generation) {
    const struct tw_wire_range all = {.bytes = TW_LINK_MAX_PAYLOAD};
    uint64_t address = allocate(b, generation, all.bytes);
    uint32_t n = draw(b, TW_LINK_CREDITS + 1);
    for (uint32_t i = 0; i < n; i++) {
        const struct tw_wire_header read = {
            .opcode = TW_WIRE_READ, .address = address, .length = sizeof all};
        request(b, generation, 2 + i, read, &all);
    }
    if (draw(b, 2)) {
        const struct tw_packet_data half = {b->from_device, b->from_device, 100};
        send_packet(b,
                    (struct tw_link_header){
                        .kind = TW_LINK_DATA, .generation = generation, .sequence = 2 + n},
                    &half);
    }
}

/* ---- tests ---- */

static void an_open_is_answered_without_another_packet(void **state) {
    struct bed *b = *state;
    struct tw_link_header h;
    send_open(b, 7);
    assert_true(receive(b, TW_LINK_OPENED, PATIENCE_MS, &h));
}

static void hosts_that_died_do_not_keep_the_next_one_out(void **state) {
    struct bed *b = *state;
    uint32_t generation = 0;
    for (uint32_t i = 0; i < DEAD_HOSTS; i++) {
        generation = open_device(b, 100 + i, generation);
        if (draw(b, 4)) {
            die_in_mid_work(b, generation);
        }
        if (draw(b, 3) == 0) {
            tw_usb_pipe_cut(&b->pipe, true); /* a reset of some kind */
        }
    }
    generation = open_device(b, 1, generation);
    tw_usb_pipe_cut(&b->pipe, true);
    open_device(b, 1, generation); /* the same host again */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_open_is_answered_without_another_packet, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(hosts_that_died_do_not_keep_the_next_one_out, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests_name("usb medium", tests, NULL, NULL);
}
