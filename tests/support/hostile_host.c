/* SPDX-License-Identifier: Apache-2.0
 *
 * A hostile host (hostile_peer.h): it opens the device, repeats a recorded conversation with the
 * addresses that this device gives, and damages it; besides, what its medium offers: QEMU's
 * messages of usbredir, registers and mailbox of a PCIe device. It ends by closing, by being
 * killed, or in the middle of a packet.
 */
#include "firmware/link/packet.h"
#include "loader/base/clock.h"
#include "tests/support/hostile_peer.h"
#include "tests/support/random_model.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WINDOW = 256, FLOOD = 300, CONVERSATION_MS = 1500, MAX_MISSED = 3 };

struct host {
    struct tw_pipe *pipe;
    struct hostile_line *line;
    const struct hostile_tape *tape;
    uint64_t *address; /* of the tape's requests, here */
    uint64_t seed, end;
    uint32_t generation, sequence, ack, answered;
    uint32_t request_of[WINDOW]; /* by sequence */
    uint32_t rate;               /* one request in so many is damaged */
    uint32_t missed;             /* answers that did not come */
    bool gone;
    uint8_t packet[TW_PACKET_BYTES];
};

static uint32_t below(struct host *h, uint32_t n) {
    return random_below(&h->seed, n);
}

static uint64_t wild(struct host *h) {
    static const uint64_t values[] = {0,          1,          2,          0x7FFFFFFF, 0x80000000,
                                      0xFFFFFFFF, 0xFFFFFFFE, 1ull << 32, UINT64_MAX, INT64_MAX,
                                      64,         4096,       1024,       1ull << 47, 3};
    return below(h, 3) ? values[below(h, 15)] : random_next(&h->seed);
}

/* ---- packets ---- */

static void take_answer(struct host *h, const struct tw_link_header *q, const uint8_t *data) {
    struct tw_wire_header w;
    const char *why;
    uint32_t i = h->request_of[q->sequence % WINDOW];
    h->ack = h->answered = q->sequence;
    if (q->length >= TW_WIRE_HEADER_BYTES && tw_wire_decode(data, &w, &why) == 0 && w.status == 0 &&
        i < h->tape->n && w.address) {
        h->address[i] = w.address;
    }
}

/* Reads what has come. */
static void drain(struct host *h) {
    uint8_t *bytes;
    size_t n;
    enum tw_packet_result r = TW_PACKET_AGAIN;
    for (uint32_t i = 0; i < 64; i++) {
        struct tw_link_header q;
        r = h->pipe->ops->take(h->pipe, &bytes, &n);
        if (r != TW_PACKET_OK) {
            break;
        }
        if (tw_packet_good(bytes, n, &q)) {
            if (q.kind == TW_LINK_OPENED) {
                h->generation = q.generation;
            } else if (q.kind == TW_LINK_DATA && q.offset == 0) {
                take_answer(h, &q, bytes + TW_LINK_HEADER_BYTES);
            }
        }
    }
    h->gone = h->gone || r == TW_PACKET_GONE || tw_clock_ms() > h->end;
}

static void send_packet(struct host *h, size_t n) {
    enum tw_packet_result r = TW_PACKET_AGAIN;
    for (uint32_t tries = 0; tries < 50 && r == TW_PACKET_AGAIN && !h->gone; tries++) {
        r = h->pipe->ops->send(h->pipe, h->packet, n);
        if (r == TW_PACKET_AGAIN) {
            h->pipe->ops->wait(h->pipe, true, 10);
            drain(h);
        }
    }
    h->gone = h->gone || r == TW_PACKET_GONE;
}

static void damage_link(struct host *h, struct tw_link_header *q) {
    uint32_t v = (uint32_t)wild(h);
    uint32_t *const field[] = {&q->generation, &q->sequence, &q->ack, &q->offset, &q->total};
    if (below(h, 6) == 0) {
        q->kind = (uint8_t)(1 + below(h, TW_LINK_KIND_LIMIT));
        return;
    }
    uint32_t *f = field[below(h, 5)];
    *f = below(h, 2) ? v : *f + below(h, 3) - 1;
}

/* One part of a message, from offset on; how many bytes of it. */
static uint32_t send_part(struct host *h, const uint8_t *message, uint32_t n, uint32_t offset,
                          bool damaged) {
    struct tw_link_header q = {.kind = TW_LINK_DATA,
                               .generation = h->generation,
                               .sequence = h->sequence,
                               .ack = h->ack,
                               .offset = offset};
    const struct tw_packet_data data = {message, message + TW_WIRE_HEADER_BYTES,
                                        n - TW_WIRE_HEADER_BYTES};
    uint32_t chunk = below(h, 4) ? h->pipe->chunk : 1 + below(h, h->pipe->chunk);
    size_t size = tw_packet_build(&q, &data, chunk, h->packet);
    uint32_t sent = q.length;
    if (damaged && below(h, 3) == 0) {
        damage_link(h, &q);
        tw_link_encode(&q, h->packet);
    } else if (damaged && below(h, 6) == 0) {
        h->packet[random_next(&h->seed) % size] ^= 1;
        size = below(h, 2) ? size : 1 + random_next(&h->seed) % size;
    }
    send_packet(h, size);
    return sent;
}

static void send_kind(struct host *h, enum tw_link_kind kind, const void *payload, uint32_t n) {
    struct tw_link_header q = {
        .kind = (uint8_t)kind, .generation = h->generation, .sequence = below(h, 4), .ack = h->ack};
    const struct tw_packet_data data = {NULL, payload, n};
    send_packet(h, tw_packet_build(&q, &data, TW_LINK_CHUNK, h->packet));
}

static void open_device(struct host *h) {
    struct tw_link_open open = {.pid = (uint32_t)getpid(), .nonce = random_next(&h->seed) | 1};
    memset(open.command, below(h, 8) ? 'e' : 0xC3, sizeof open.command - below(h, 2));
    open.flags = below(h, 16) == 0 ? (uint32_t)wild(h) : 0;
    h->generation = 0;
    h->sequence = h->ack = h->answered = 0;
    send_kind(h, TW_LINK_OPEN, &open, sizeof open);
    for (uint64_t end = tw_clock_ms() + 500; tw_clock_ms() < end && !h->generation && !h->gone;) {
        h->pipe->ops->wait(h->pipe, false, 20);
        drain(h);
    }
    h->missed = 0;
}

/* ---- requests ---- */

/* Words that are addresses of the recorded device become those of this one. */
static uint64_t relocate(const struct host *h, uint64_t word) {
    for (uint32_t i = 0; i < h->tape->n; i++) {
        const struct hostile_request *q = &h->tape->request[i];
        if (q->size && q->address && word >= q->address && word - q->address < q->size) {
            return h->address[i] + (word - q->address);
        }
    }
    return word;
}

static void relocate_all(const struct host *h, uint8_t *payload, uint32_t n) {
    for (uint32_t at = 0; n <= 65536 && at + 8 <= n; at += 8) {
        uint64_t word;
        memcpy(&word, payload + at, 8);
        word = word >> 20 ? relocate(h, word) : word;
        memcpy(payload + at, &word, 8);
    }
}

static void damage_words(struct host *h, uint8_t *payload, uint32_t n) {
    for (uint32_t i = 1 + below(h, 3); i > 0 && n >= 4; i--) {
        uint32_t at = below(h, n / 4) * 4;
        uint64_t v = wild(h);
        if (below(h, 3) == 0) {
            payload[at] ^= (uint8_t)(1u << below(h, 8));
        } else {
            memcpy(payload + at, &v, n - at < 8 || below(h, 2) ? 4 : 8);
        }
    }
}

static void damage_request(struct host *h, struct tw_wire_header *w, uint8_t *payload,
                           uint32_t *n) {
    switch (below(h, 10)) {
    case 0:
        w->opcode = (uint8_t)below(h, TW_WIRE_OPCODE_LIMIT + 2);
        break;
    case 1:
        w->address =
            below(h, 2) ? wild(h) : w->address + 8 * (uint64_t)(int64_t)(below(h, 33) - 16);
        break;
    case 2:
        w->length = (uint32_t)wild(h);
        break;
    case 3:
        *n = *n ? below(h, *n) : 0;
        w->length = *n;
        break;
    case 4:
        w->sequence = (uint32_t)wild(h);
        w->flags = (uint16_t)wild(h);
        break;
    default:
        damage_words(h, payload, *n);
        break;
    }
}

/* Sends request i of the tape, perhaps not as it was, not to its end, or more than once. */
static void send_request(struct host *h, uint32_t i) {
    const struct hostile_request *q = &h->tape->request[i];
    uint8_t *message = malloc(q->n + 64);
    struct tw_wire_header w;
    const char *why;
    if (!message) {
        return;
    }
    memcpy(message, q->bytes, q->n);
    uint32_t n = q->n - TW_WIRE_HEADER_BYTES;
    uint8_t *payload = message + TW_WIRE_HEADER_BYTES;
    if (tw_wire_decode(message, &w, &why) == 0) {
        w.address = relocate(h, w.address);
        relocate_all(h, payload, n);
        bool damaged = below(h, h->rate) == 0,
             likely = w.opcode == TW_WIRE_LOAD || w.opcode == TW_WIRE_RUN;
        if (damaged || (likely && below(h, 3) == 0)) {
            damage_request(h, &w, payload, &n);
        }
        tw_wire_encode(&w, message);
        h->sequence++;
        h->request_of[h->sequence % WINDOW] = i;
        uint32_t half = damaged && below(h, 8) == 0 ? below(h, n + 1) : n + TW_WIRE_HEADER_BYTES;
        for (uint32_t at = 0; at < half && !h->gone;) {
            uint32_t sent = send_part(h, message, n + TW_WIRE_HEADER_BYTES, at, damaged);
            at += sent ? sent : 1;
        }
    }
    free(message);
}

/* ---- requests of its own ---- */

/* An address that the device gave, or near one. */
static uint64_t some_address(struct host *h) {
    for (uint32_t tries = 0; tries < 64; tries++) {
        uint32_t i = below(h, h->tape->n);
        const struct hostile_request *q = &h->tape->request[i];
        if (q->size && h->address[i]) {
            uint64_t at = random_next(&h->seed) % (q->size + 1) / 4 * 4;
            return h->address[i] + (below(h, 4) ? at : below(h, 2) ? 0 : q->size - 4);
        }
    }
    return wild(h);
}

/* Any access to the memory of its allocations, or beyond their ends. */
static void stray(struct host *h) {
    static const uint8_t opcodes[] = {TW_WIRE_WRITE, TW_WIRE_WRITE,  TW_WIRE_WRITE, TW_WIRE_FILL,
                                      TW_WIRE_READ,  TW_WIRE_FREE,   TW_WIRE_HASH,  TW_WIRE_KEEP,
                                      TW_WIRE_FIND,  TW_WIRE_UNLOAD, TW_WIRE_ALLOC};
    uint8_t message[TW_WIRE_HEADER_BYTES + 64];
    uint32_t n = below(h, 17) * 4;
    struct tw_wire_header w = {.version = TW_WIRE_VERSION_MAX,
                               .opcode = opcodes[below(h, sizeof opcodes)],
                               .address = some_address(h)};
    if (w.opcode == TW_WIRE_UNLOAD) {
        w.address = below(h, 3);
    }
    for (uint32_t at = 0; at < 64; at += 8) {
        uint64_t v = below(h, 2) ? wild(h) : below(h, 512);
        memcpy(message + TW_WIRE_HEADER_BYTES + at, &v, 8);
    }
    w.length = n = w.opcode == TW_WIRE_WRITE || below(h, 8) == 0            ? n
                   : w.opcode == TW_WIRE_KEEP || w.opcode == TW_WIRE_FIND   ? 40
                   : w.opcode == TW_WIRE_FREE || w.opcode == TW_WIRE_UNLOAD ? 0
                                                                            : 16;
    w.sequence = ++h->sequence;
    h->request_of[h->sequence % WINDOW] = h->tape->n; /* of none */
    tw_wire_encode(&w, message);
    send_part(h, message, n + TW_WIRE_HEADER_BYTES, 0, false);
}

/* Repeats the requests of an opcode: runs what is loaded, or loads it again. */
static void again(struct host *h, uint32_t opcode) {
    for (uint32_t i = 0; i < h->tape->n && !h->gone; i++) {
        if (h->tape->request[i].bytes[TW_WIRE_AT_opcode] == opcode) {
            send_request(h, i);
            drain(h);
        }
    }
}

static void await(struct host *h) {
    uint64_t end = tw_clock_ms() + 50;
    while (h->answered != h->sequence && !h->gone && tw_clock_ms() < end) {
        h->pipe->ops->wait(h->pipe, false, 5);
        drain(h);
    }
    h->missed += h->answered != h->sequence;
}

/* ---- other things ---- */

static void flood(struct host *h) {
    uint32_t n = 1 + below(h, FLOOD), what = below(h, 4);
    uint32_t request = below(h, h->tape->n);
    for (uint32_t i = 0; i < n && !h->gone; i++) {
        struct tw_link_resend r = {.offset = (uint32_t)wild(h)};
        switch (what) {
        case 0:
            send_kind(h, TW_LINK_PING, NULL, 0);
            break;
        case 1:
            send_kind(h, TW_LINK_RESEND, &r, sizeof r);
            break;
        case 2:
            send_request(h, request);
            break;
        default:
            for (uint32_t k = 0; k < 64; k++) {
                h->packet[k] = (uint8_t)random_next(&h->seed);
            }
            send_packet(h, 1 + below(h, 64));
            break;
        }
        if (below(h, 2)) {
            drain(h);
        }
    }
}

/* Words of the host's part of the registers, or any; of the mailbox; and the doorbell. */
static void scribble(struct host *h) {
    struct tw_pcie_registers *r = (void *)h->line->bar2;
    static const uint32_t max_word = TW_PCIE_REGISTER_BYTES / 4;
    for (uint32_t i = 1 + below(h, 8); i > 0; i--) {
        uint32_t at = below(h, 4) ? 256 + below(h, 12) : 256 + below(h, max_word - 256);
        uint32_t *word = (uint32_t *)(void *)r + at;
        if (below(h, 3) == 0) {
            uint8_t *base = below(h, 2) ? h->line->ram : h->line->bar2 + TW_PCIE_REGISTER_BYTES;
            word = (uint32_t *)(void *)base + below(h, TW_PCIE_MAILBOX_HEAD / 4);
        }
        uint32_t v = (uint32_t)wild(h);
        tw_pcie_store(word, below(h, 2) ? v : *word + below(h, 5) - 2);
    }
    uint64_t one = 1;
    if (write(h->line->doorbell, &one, sizeof one) < 0) {
        h->gone = true;
    }
}

static void other_thing(struct host *h) {
    switch (below(h, 12)) {
    case 0:
        flood(h);
        break;
    case 1:
    case 8:
    case 9:
    case 10:
        for (uint32_t i = 1 + below(h, 12); i > 0 && !h->gone; i--) {
            stray(h);
            await(h);
        }
        again(h, below(h, 4) ? TW_WIRE_RUN : TW_WIRE_LOAD);
        break;
    case 2:
        send_kind(h, TW_LINK_CLOSE, NULL, 0);
        open_device(h);
        break;
    case 3:
        open_device(h);
        break;
    case 4:
        if (h->line->has_peer) {
            peer_control_start(&h->line->peer, below(h, 256), below(h, 256), (uint32_t)wild(h),
                               below(h, 8), below(h, 64));
            peer_turn(&h->line->peer, 1);
        }
        break;
    default:
        if (h->line->bar2) {
            scribble(h);
        }
        break;
    }
}

/* ---- QEMU without a guest ---- */

/* The messages of usbredir, with any header: type, length, id; and bytes. */
static void hostile_qemu(struct host *h) {
    int fd = h->line->peer.fd;
    for (uint32_t i = 1 + below(h, 60); i > 0; i--) {
        uint8_t bytes[512];
        uint32_t type = below(h, 2) ? below(h, 28) : 100 + below(h, 8), n = below(h, 200),
                 length = below(h, 6) ? n : (uint32_t)wild(h);
        uint64_t id = below(h, 2) ? below(h, 9) : wild(h);
        memcpy(bytes, &type, 4);
        memcpy(bytes + 4, &length, 4);
        memcpy(bytes + 8, &id, 8);
        for (uint32_t k = 0; k < n; k++) {
            bytes[16 + k] = (uint8_t)(below(h, 3) ? below(h, 4) : random_next(&h->seed));
        }
        uint32_t size = below(h, 10) ? 16 + n : 1 + below(h, 16 + n);
        if (send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
            return;
        }
        uint8_t sink[4096];
        while (recv(fd, sink, sizeof sink, MSG_DONTWAIT) > 0) {
        }
    }
    usleep(below(h, 5000));
}

/* A socket's client that sends anything. */
static void hostile_client(struct host *h) {
    for (uint32_t i = 1 + below(h, 100); i > 0 && !h->gone; i--) {
        uint32_t n = 1 + below(h, below(h, 10) ? 200 : sizeof h->packet - 1);
        for (uint32_t k = 0; k < n && k < 4096; k++) {
            h->packet[k] = (uint8_t)random_next(&h->seed);
        }
        send_packet(h, n);
        drain(h);
    }
}

/* ---- the conversation ---- */

static void converse(struct host *h) {
    open_device(h);
    uint32_t first = below(h, 4) ? 0 : below(h, h->tape->n);
    uint32_t last = below(h, 3) ? h->tape->n : first + below(h, h->tape->n - first + 1);
    bool hasty = below(h, 8) == 0;
    for (uint32_t i = first; i < last && !h->gone; i++) {
        if (below(h, h->rate) == 0 && below(h, 3) == 0) {
            other_thing(h);
        }
        if (below(h, 4 * h->rate)) { /* else this one is missing */
            send_request(h, below(h, 8 * h->rate) ? i : below(h, h->tape->n));
        }
        if (!hasty && h->missed < MAX_MISSED) {
            await(h);
        }
        drain(h);
    }
    for (uint32_t i = below(h, 4); i > 0 && !h->gone; i--) {
        other_thing(h); /* to what is loaded */
    }
}

void hostile_host(const struct hostile_bed *b, enum hostile_medium medium,
                  const struct hostile_tape *tape, uint64_t seed) {
    struct hostile_line line;
    static struct host h;
    h = (struct host){.tape = tape, .seed = seed, .line = &line};
    uint32_t how = below(&h, 8);
    bool raw = how == 0 && medium == HOSTILE_USBREDIR, window = below(&h, 2);
    h.rate = 1u << below(&h, 6);
    h.end = tw_clock_ms() + CONVERSATION_MS;
    h.address = calloc(tape->n + 1, sizeof *h.address);
    if (!h.address || !(raw ? hostile_line_connect(b, medium, &line)
                            : hostile_line_open(b, medium, window, &line))) {
        return;
    }
    h.pipe = line.pipe;
    h.end = tw_clock_ms() + CONVERSATION_MS;
    if (raw) {
        hostile_qemu(&h);
        return;
    }
    if (how == 1) {
        hostile_client(&h);
        return;
    }
    converse(&h);
    if (below(&h, 3) == 0) {
        send_kind(&h, TW_LINK_CLOSE, NULL, 0);
    }
    if (below(&h, 3)) { /* an orderly end; else all of it just ends */
        h.pipe->ops->close(h.pipe);
        hostile_line_close(&line);
    }
}
