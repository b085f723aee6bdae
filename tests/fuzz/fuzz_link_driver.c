/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the driver's end of a link with a hostile device: the input is what the device does, one
 * record each time that the driver reads a packet. Whatever it does, open, requests and close
 * return, with an error that names the device. Records: kind u8, then what take_packet() reads for
 * it.
 */
#include "driver/device/device.h"
#include "driver/transport/link/link_client.h"
#include "firmware/link/packet.h"
#include "tests/support/fuzz_input.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DEADLINE_MS 1u
#define WRITE_BYTES 150000u /* three packets */

enum record {
    NOTHING,
    RAW,
    OPENED,
    DATA,
    ANSWER,
    PROGRESS,
    RESEND,
    GONE,
    NO_ROOM,
    OTHER_VERSION,
    RECORDS
};

struct device {
    struct tw_pipe base;
    struct fuzz_input in;
    uint32_t generation, sequence, no_room, rungs;
    uint8_t opcode; /* of the driver's last request, as is wire_sequence */
    uint32_t wire_sequence;
    bool gone, *closed;
    uint8_t bytes[TW_PACKET_BYTES];
};

/* ---- what the device sends ---- */

static size_t build(struct device *d, struct tw_link_header *h, const struct tw_packet_data *data) {
    h->generation = d->generation + (h->flags & 3) - (h->flags >> 2 & 1);
    return tw_packet_build(h, data, TW_LINK_CHUNK, d->bytes);
}

static size_t say(struct device *d, enum tw_link_kind kind, const void *payload, uint32_t n) {
    struct tw_link_header h = {
        .kind = (uint8_t)kind, .flags = (uint16_t)fuzz_u8(&d->in), .sequence = d->sequence + 1};
    const struct tw_packet_data data = {NULL, payload, n};
    return build(d, &h, &data);
}

static size_t say_opened(struct device *d) {
    struct tw_link_opened o;
    fuzz_bytes(&d->in, &o, 8); /* unused bytes of the record */
    memset(&o, 0, sizeof o);
    uint32_t how = fuzz_u8(&d->in);
    o.credits = how & 15;
    o.status = how & 16 ? TW_E_DEVICE_BUSY : how & 32 ? -99 : 0;
    o.max_payload = how & 64 ? fuzz_u32(&d->in) : TW_LINK_MAX_PAYLOAD;
    o.generation = d->generation = fuzz_u8(&d->in);
    memset(o.holder, how & 128 ? 0xC3 : 'x', sizeof o.holder);
    memset(o.device, 'y', sizeof o.device);
    return say(d, TW_LINK_OPENED, &o, sizeof o);
}

/* Any part of any message. */
static size_t say_data(struct device *d) {
    static uint8_t part[TW_LINK_CHUNK];
    struct tw_link_header h = {.kind = TW_LINK_DATA, .flags = (uint16_t)fuzz_u8(&d->in)};
    h.sequence = d->sequence + fuzz_u8(&d->in) - 2;
    h.offset = fuzz_u32(&d->in) % (TW_LINK_MAX_MESSAGE + 2);
    h.total = fuzz_u32(&d->in) % (TW_LINK_MAX_MESSAGE + 2);
    h.length = fuzz_u32(&d->in) % (TW_LINK_CHUNK + 2);
    h.generation = d->generation;
    size_t there = h.length < sizeof part ? h.length : sizeof part;
    fuzz_bytes(&d->in, part, there < 64 ? there : 64);
    memcpy(d->bytes + TW_LINK_HEADER_BYTES, part, there);
    h.data_crc = tw_packet_crc32c(0, part, there);
    tw_link_encode(&h, d->bytes);
    return TW_LINK_HEADER_BYTES + there;
}

/* A whole answer to the last request, possibly wrong. */
static size_t say_answer(struct device *d) {
    static uint8_t payload[65536];
    uint8_t header[TW_WIRE_HEADER_BYTES];
    uint32_t how = fuzz_u8(&d->in), n = fuzz_u16(&d->in);
    struct tw_wire_header w = {.version = TW_WIRE_VERSION_MAX,
                               .opcode = d->opcode,
                               .flags = TW_WIRE_ANSWER,
                               .sequence = d->wire_sequence - (how >> 4),
                               .status = how & 1 ? TW_E_NOMEM : 0,
                               .address = 64,
                               .length = how & 2 ? fuzz_u32(&d->in) : n};
    tw_wire_encode(&w, header);
    header[0] = (uint8_t)(header[0] ^ (how & 4));
    fuzz_bytes(&d->in, payload, n < 256 ? n : 256);
    struct tw_link_header h = {
        .kind = TW_LINK_DATA, .sequence = ++d->sequence, .generation = d->generation};
    const struct tw_packet_data data = {header, payload, n};
    return tw_packet_build(&h, &data, TW_LINK_CHUNK, d->bytes);
}

static size_t say_other_version(struct device *d) {
    memset(d->bytes, 0, TW_LINK_HEADER_BYTES);
    struct tw_link_header h = {.kind = TW_LINK_PROGRESS};
    tw_link_encode(&h, d->bytes);
    d->bytes[TW_LINK_AT_version] = (uint8_t)fuzz_u8(&d->in);
    TW_LINK_PUT(d->bytes, crc, tw_wire_crc32c(0, d->bytes, TW_LINK_AT_crc));
    return TW_LINK_HEADER_BYTES;
}

/* ---- its pipe ---- */

static enum tw_packet_result take_packet(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct device *d = (struct device *)p;
    struct tw_link_progress progress;
    struct tw_link_resend resend;
    *bytes = d->bytes;
    *n = 0;
    switch (d->gone ? GONE : (enum record)(fuzz_u8(&d->in) % RECORDS)) {
    case NOTHING:
        return TW_PACKET_AGAIN;
    case RAW:
        *n = 1 + fuzz_u8(&d->in);
        fuzz_bytes(&d->in, d->bytes, *n);
        break;
    case OPENED:
        *n = say_opened(d);
        break;
    case DATA:
        *n = say_data(d);
        break;
    case ANSWER:
        *n = say_answer(d);
        break;
    case PROGRESS:
        fuzz_bytes(&d->in, &progress, sizeof progress);
        *n = say(d, TW_LINK_PROGRESS, &progress, sizeof progress);
        break;
    case RESEND:
        fuzz_bytes(&d->in, &resend, sizeof resend);
        *n = say(d, TW_LINK_RESEND, &resend, sizeof resend);
        break;
    case NO_ROOM:
        d->no_room = fuzz_u8(&d->in);
        return TW_PACKET_AGAIN;
    case OTHER_VERSION:
        *n = say_other_version(d);
        break;
    case GONE:
    case RECORDS:
        d->gone = true;
        return TW_PACKET_GONE;
    }
    return TW_PACKET_OK;
}

static enum tw_packet_result send_packet(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    struct device *d = (struct device *)p;
    struct tw_link_header h;
    if (!d->gone && d->no_room) {
        d->no_room -= d->no_room < 255; /* 255: without end */
        return TW_PACKET_AGAIN;
    }
    if (n == 0 || n > TW_PACKET_BYTES || !tw_packet_good(bytes, n, &h)) {
        abort(); /* the driver's packets are whole */
    }
    if (h.kind == TW_LINK_DATA && h.offset == 0) {
        d->opcode = bytes[TW_LINK_HEADER_BYTES + TW_WIRE_AT_opcode];
        d->wire_sequence = (uint32_t)TW_WIRE_GET(bytes + TW_LINK_HEADER_BYTES, sequence);
    }
    return d->gone ? TW_PACKET_GONE : TW_PACKET_OK;
}

static bool wait_device(struct tw_pipe *p, bool write, int ms) {
    (void)p, (void)write, (void)ms;
    return true; /* possibly wrong: callers must not rely on it */
}

static void hang_up(struct tw_pipe *p) {
    ((struct device *)p)->gone = true;
}

static void close_device(struct tw_pipe *p) {
    *((struct device *)p)->closed = true;
    free(p);
}

static const char *recover(struct tw_pipe *p, unsigned rung) {
    return rung < ((struct device *)p)->rungs ? "the fuzzer allowed it" : NULL;
}

static const struct tw_pipe_ops plain = {.send = send_packet,
                                         .take = take_packet,
                                         .wait = wait_device,
                                         .hang_up = hang_up,
                                         .close = close_device};
static const struct tw_pipe_ops with_recovery = {.send = send_packet,
                                                 .take = take_packet,
                                                 .wait = wait_device,
                                                 .hang_up = hang_up,
                                                 .close = close_device,
                                                 .recover = recover};

/* ---- its user ---- */

static const struct tw_transport_ops ops = {.name = "fuzz",
                                            .submit = tw_link_submit,
                                            .receive = tw_link_receive,
                                            .stuck = tw_link_is_stuck,
                                            .close = tw_link_close};

static void check_error(int code, const tw_error *err) {
    if (code >= 0 || err->code != code || !strstr(err->message, "device fuzz")) {
        abort();
    }
}

static int use_once(struct tw_device *device, uint32_t round) {
    static uint8_t bytes[WRITE_BYTES];
    struct tw_wire_counters counters;
    struct tw_device_call call = {
        .opcode = TW_WIRE_COUNTERS, .out = &counters, .out_bytes = sizeof counters};
    tw_error err = {0};
    int code = round == 0   ? tw_device_call(device, &call, &err)
               : round == 1 ? tw_device_write(device, 64, bytes, sizeof bytes, &err)
               : round == 2 ? tw_device_read(device, 64, bytes, 1000, &err)
                            : tw_device_place(device, bytes, 300, 64, &(uint64_t){0}, &err);
    if (code) {
        check_error(code, &err);
    }
    return code;
}

static void use(struct tw_link *link, struct device *d) {
    struct tw_device device = {.transport = &link->base, .selector = "fuzz"};
    device.identity.max_payload = 65536;
    device.identity.capabilities = TW_WIRE_CAN_KEEP;
    link->base.ops = &ops;
    pthread_mutex_init(&device.lock, NULL);
    for (uint32_t i = 0; fuzz_more(&d->in) && i < 64; i++) {
        use_once(&device, i % 4);
    }
    int lost = device.lost;
    tw_error err = {0};
    struct tw_link_progress p;
    tw_device_is_stuck(&device, &p);
    if (lost && tw_device_alloc(&device, 1, 1, false, &(uint64_t){0}, &err) != TW_E_DEVICE_LOST) {
        abort();
    }
    link->base.ops->close(&link->base);
    pthread_mutex_destroy(&device.lock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool closed = false;
    struct device *d = calloc(1, sizeof *d);
    d->in = (struct fuzz_input){data, size, 0};
    uint32_t how = fuzz_u8(&d->in);
    d->rungs = how & 3;
    d->base = (struct tw_pipe){how & 4 ? &with_recovery : &plain, how & 8 ? 64u << 10 : 1000u, -1};
    d->closed = &closed;
    struct tw_link *link;
    struct tw_link_opened opened;
    tw_error err = {0};
    if (how & 16) {
        tw_link_query(&d->base, 1, &opened);
    }
    int code = tw_link_open("fuzz", &d->base, DEADLINE_MS, &link, &err);
    if (code) {
        check_error(code, &err);
    } else {
        use(link, d);
    }
    if (!closed) {
        abort();
    }
    return 0;
}
