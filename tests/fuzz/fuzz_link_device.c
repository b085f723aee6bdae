/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the device's end of a link with a hostile host: firmware/serve/link_server.c with an
 * emulator that verifies what it loads. The input is what the host sends, one record for each
 * packet or message. Whatever it sends, the next host gets a clean device. Records: kind u8, then
 * what give_packet() reads for it.
 */
#include "firmware/link/packet.h"
#include "firmware/serve/link_server.h"
#include "firmware/serve/verify_load.h"
#include "tests/support/fuzz_input.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEMORY (UINT64_C(1) << 20)
#define MAX_PAYLOAD 4096u
#define ADDRESSES 8u

enum record {
    RAW,
    REQUEST,
    PART,
    RESEND,
    PING,
    CLOSE,
    OPEN,
    SETTLE,
    ACK,
    NO_ROOM,
    GONE,
    CANCEL,
    RECORDS
};

struct host {
    struct tw_pipe base;
    struct fuzz_input in;
    uint32_t sequence, ack;
    bool settle;
    /* of what the device sent; written by its two threads */
    _Atomic uint32_t generation, opened, no_room, n_addresses;
    _Atomic uint64_t address[ADDRESSES];
    _Atomic bool gone;
    uint8_t bytes[TW_PACKET_BYTES];
};

static struct tw_link_server *served;
static struct tw_emu *emu;
static struct tw_faults no_faults;

/* ---- what the host sends ---- */

static size_t say(struct host *h, enum tw_link_kind kind, uint32_t sequence, const void *payload,
                  uint32_t n) {
    struct tw_link_header q = {
        .kind = (uint8_t)kind, .generation = h->generation, .sequence = sequence, .ack = h->ack};
    const struct tw_packet_data data = {NULL, payload, n};
    return tw_packet_build(&q, &data, TW_LINK_CHUNK, h->bytes);
}

static size_t say_request(struct host *h) {
    static uint8_t payload[MAX_PAYLOAD];
    uint8_t header[TW_WIRE_HEADER_BYTES];
    uint32_t opcode = fuzz_u8(&h->in) % TW_WIRE_OPCODE_LIMIT, place = fuzz_u8(&h->in),
             n = fuzz_u16(&h->in);
    n = n < MAX_PAYLOAD ? n : MAX_PAYLOAD;
    struct tw_wire_header w = {.version = TW_WIRE_VERSION_MAX,
                               .opcode = (uint8_t)opcode,
                               .sequence = h->sequence,
                               .address = h->address[place % ADDRESSES] + (place >> 4),
                               .length = n};
    tw_wire_encode(&w, header);
    fuzz_bytes(&h->in, payload, n);
    struct tw_link_header q = {.kind = TW_LINK_DATA,
                               .generation = h->generation,
                               .sequence = ++h->sequence,
                               .ack = h->ack};
    const struct tw_packet_data data = {header, payload, n};
    return tw_packet_build(&q, &data, TW_LINK_CHUNK, h->bytes);
}

/* Any part of any message. */
static size_t say_part(struct host *h) {
    struct tw_link_header q = {.kind = TW_LINK_DATA, .generation = h->generation, .ack = h->ack};
    q.sequence = h->sequence + fuzz_u8(&h->in) - 2;
    q.offset = fuzz_u32(&h->in) % (TW_LINK_MAX_MESSAGE + 2);
    q.total = fuzz_u32(&h->in) % (TW_LINK_MAX_MESSAGE + 2);
    q.length = fuzz_u32(&h->in) % (TW_LINK_CHUNK + 1);
    uint8_t *part = h->bytes + TW_LINK_HEADER_BYTES;
    memset(part, 0, q.length);
    fuzz_bytes(&h->in, part, q.length < 64 ? q.length : 64);
    q.data_crc = tw_packet_crc32c(0, part, q.length);
    tw_link_encode(&q, h->bytes);
    return TW_LINK_HEADER_BYTES + q.length;
}

static size_t give_packet(struct host *h) {
    struct tw_link_open open;
    struct tw_link_resend resend;
    size_t n;
    switch ((enum record)(fuzz_u8(&h->in) % RECORDS)) {
    case RAW:
        n = 1 + fuzz_u8(&h->in);
        fuzz_bytes(&h->in, h->bytes, n);
        return n;
    case REQUEST:
        return say_request(h);
    case PART:
        return say_part(h);
    case RESEND:
        n = fuzz_u8(&h->in);
        resend = (struct tw_link_resend){.offset = fuzz_u32(&h->in)};
        return say(h, TW_LINK_RESEND, (uint32_t)n, &resend, sizeof resend);
    case PING:
        return say(h, TW_LINK_PING, 0, NULL, 0);
    case CLOSE:
        return say(h, TW_LINK_CLOSE, 0, NULL, 0);
    case CANCEL:
        n = fuzz_u8(&h->in);
        return say(h, TW_LINK_CANCEL, (uint32_t)n, NULL, 0);
    case OPEN:
        fuzz_bytes(&h->in, &open, sizeof open);
        return say(h, TW_LINK_OPEN, 0, &open, sizeof open);
    case SETTLE:
        h->settle = true;
        return 0;
    case ACK:
        h->ack = fuzz_u8(&h->in);
        return 0;
    case NO_ROOM:
        h->no_room = fuzz_u8(&h->in);
        return 0;
    case GONE:
    case RECORDS:
        h->gone = true;
    }
    return 0;
}

/* ---- its pipe ---- */

static enum tw_packet_result take_packet(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct host *h = (struct host *)p;
    if (h->gone || h->settle || !fuzz_more(&h->in)) {
        return h->gone ? TW_PACKET_GONE : TW_PACKET_AGAIN;
    }
    *bytes = h->bytes;
    *n = give_packet(h);
    return h->gone ? TW_PACKET_GONE : *n == 0 ? TW_PACKET_AGAIN : TW_PACKET_OK;
}

static void record_answer(struct host *h, const uint8_t *message, uint32_t n) {
    struct tw_wire_header w;
    const char *why;
    if (n < TW_WIRE_HEADER_BYTES ||
        (tw_wire_decode(message, &w, &why) && strcmp(why, "opcode") != 0)) {
        abort(); /* an answer is a whole message */
    }
    if (w.opcode == TW_WIRE_ALLOC && w.status == 0) {
        h->address[h->n_addresses++ % ADDRESSES] = w.address;
    }
}

static enum tw_packet_result send_packet(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    struct host *h = (struct host *)p;
    struct tw_link_header q;
    if (h->gone) {
        return TW_PACKET_GONE;
    }
    uint32_t no_room = h->no_room;
    if (no_room && atomic_compare_exchange_strong(&h->no_room, &no_room, no_room - 1)) {
        return TW_PACKET_AGAIN;
    }
    if (!tw_packet_good(bytes, n, &q)) {
        abort(); /* the device's packets are whole */
    }
    if (q.kind == TW_LINK_OPENED) {
        h->generation = q.generation;
        h->opened = 1;
    } else if (q.kind == TW_LINK_DATA && q.offset == 0) {
        record_answer(h, bytes + TW_LINK_HEADER_BYTES, q.length);
    }
    return TW_PACKET_OK;
}

static bool wait_host(struct tw_pipe *p, bool write, int ms) {
    (void)p, (void)write, (void)ms;
    return true;
}

static void hang_up(struct tw_pipe *p) {
    ((struct host *)p)->gone = true;
}

static void close_host(struct tw_pipe *p) {
    free(p);
}

static const struct tw_pipe_ops ops = {.send = send_packet,
                                       .take = take_packet,
                                       .wait = wait_host,
                                       .hang_up = hang_up,
                                       .close = close_host};

/* ---- the device ---- */

static void make_device(void) {
    const struct tw_emu_options o = {.n_threads = 1,
                                     .memory_bytes = MEMORY,
                                     .max_payload = TW_LINK_MAX_PAYLOAD,
                                     .verify = tw_serve_verify};
    if (tw_faults_init(&no_faults, NULL, 0, NULL) || tw_emu_create(&o, &emu, NULL) ||
        tw_link_server_create(emu, &no_faults, &served, NULL)) {
        abort();
    }
}

/* Connects a host, as soon as the device has cleared what the previous one left. */
static struct host *connect_host(const uint8_t *data, size_t size) {
    struct host *h = calloc(1, sizeof *h);
    h->base = (struct tw_pipe){&ops, 1000, -1};
    h->in = (struct fuzz_input){data, size, 0};
    if (!tw_link_server_attach(served, &h->base, 1, "fuzz")) {
        abort();
    }
    struct pollfd news = {.fd = tw_link_server_news_fd(served), .events = POLLIN};
    for (int n; !h->opened; tw_link_server_news(served)) {
        while ((n = poll(&news, 1, 15000)) < 0) { /* EINTR: the fuzzer's timer */
        }
        if (n == 0) {
            abort(); /* the device did not become ready again */
        }
    }
    return h;
}

static bool has_host(void) {
    struct tw_link_opened state;
    tw_link_server_describe(served, &state);
    return state.status == TW_E_DEVICE_BUSY;
}

/* Waits until everything that was received is executed. */
static void settle(void) {
    struct tw_link_progress p;
    uint32_t generation;
    do {
        tw_link_server_progress(served, &p, &generation);
    } while (generation && p.answered != p.received);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!served) {
        make_device();
    }
    struct host *h = connect_host(data, size);
    while (has_host() && fuzz_more(&h->in)) {
        tw_link_server_take(served);
        if (has_host() && h->settle) {
            h->settle = false;
            settle();
        }
    }
    if (has_host()) {
        h->gone = true;
        tw_link_server_take(served);
    }
    /* a close keeps the content cache; this host disappears instead, which must free everything */
    h = connect_host(NULL, 0);
    h->gone = true;
    tw_link_server_take(served);
    h = connect_host(NULL, 0);
    if (tw_emu_server(emu)->counters.memory_used) {
        abort();
    }
    h->gone = true;
    tw_link_server_take(served);
    return 0;
}
