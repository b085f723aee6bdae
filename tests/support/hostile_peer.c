/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder of conversations, and the hostile device (hostile_peer.h). Damage to a packet or to
 * an answer in it mostly gets right checksums, so that it is seen by what comes after these.
 */
#include "tests/support/hostile_peer.h"

#include "firmware/link/packet.h"
#include "tests/support/random_model.h"

#include <stdlib.h>

static void *memory(size_t n) {
    void *p = calloc(1, n);
    if (!p) {
        abort();
    }
    return p;
}

/* ---- the recorder ---- */

struct recorder {
    struct tw_pipe base, *inner;
    struct hostile_tape *tape;
};

/* Packets of a message come in order, but may come again. */
static void record(struct hostile_tape *t, const struct tw_link_header *h, const uint8_t *data) {
    uint32_t i = h->sequence - 1;
    if (h->sequence == 0 || i > t->n || h->total < h->offset + h->length) {
        return;
    }
    if (i == t->n) {
        t->request = realloc(t->request, (t->n + 1) * sizeof *t->request);
        if (!t->request) {
            abort();
        }
        t->request[t->n++] = (struct hostile_request){.bytes = memory(h->total + 1), .n = h->total};
    }
    if (t->request[i].n == h->total) {
        memcpy(t->request[i].bytes + h->offset, data, h->length);
    }
}

static enum tw_packet_result recorder_send(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    struct recorder *r = (struct recorder *)p;
    enum tw_packet_result result = r->inner->ops->send(r->inner, bytes, n);
    struct tw_link_header h;
    if (result == TW_PACKET_OK && tw_packet_good(bytes, n, &h) && h.kind == TW_LINK_DATA) {
        record(r->tape, &h, bytes + TW_LINK_HEADER_BYTES);
    }
    return result;
}

static void record_answer(struct hostile_tape *t, uint32_t sequence, const uint8_t *bytes) {
    struct tw_wire_header w;
    const char *why;
    if (sequence == 0 || sequence > t->n || tw_wire_decode(bytes, &w, &why) || w.status) {
        return;
    }
    struct hostile_request *q = &t->request[sequence - 1];
    q->address = w.address;
    if ((w.opcode == TW_WIRE_ALLOC || w.opcode == TW_WIRE_FIND) &&
        q->n >= TW_WIRE_HEADER_BYTES + sizeof q->size) {
        memcpy(&q->size, q->bytes + TW_WIRE_HEADER_BYTES, sizeof q->size);
    }
}

static enum tw_packet_result recorder_take(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct recorder *r = (struct recorder *)p;
    enum tw_packet_result result = r->inner->ops->take(r->inner, bytes, n);
    struct tw_link_header h;
    if (result == TW_PACKET_OK && tw_packet_good(*bytes, *n, &h) && h.kind == TW_LINK_DATA &&
        h.offset == 0 && h.length >= TW_WIRE_HEADER_BYTES) {
        record_answer(r->tape, h.sequence, *bytes + TW_LINK_HEADER_BYTES);
    }
    return result;
}

static bool recorder_wait(struct tw_pipe *p, bool write, int ms) {
    struct recorder *r = (struct recorder *)p;
    return r->inner->ops->wait(r->inner, write, ms);
}

static void recorder_hang_up(struct tw_pipe *p) {
    struct recorder *r = (struct recorder *)p;
    r->inner->ops->hang_up(r->inner);
}

static void recorder_close(struct tw_pipe *p) {
    struct recorder *r = (struct recorder *)p;
    r->inner->ops->close(r->inner);
    free(r);
}

static const struct tw_pipe_ops recorder_ops = {.send = recorder_send,
                                                .take = recorder_take,
                                                .wait = recorder_wait,
                                                .hang_up = recorder_hang_up,
                                                .close = recorder_close};

struct tw_pipe *hostile_recorder(struct tw_pipe *inner, struct hostile_tape *tape) {
    struct recorder *r = memory(sizeof *r);
    r->base = (struct tw_pipe){&recorder_ops, inner->chunk, inner->fd};
    r->inner = inner;
    r->tape = tape;
    return &r->base;
}

void hostile_tape_free(struct hostile_tape *tape) {
    for (uint32_t i = 0; i < tape->n; i++) {
        free(tape->request[i].bytes);
    }
    free(tape->request);
    memset(tape, 0, sizeof *tape);
}

/* ---- a hostile device ---- */

struct device {
    struct tw_pipe base, *inner;
    struct hostile_line *line;
    uint64_t seed;
    uint32_t rate; /* one packet in so many is damaged */
    bool gone;
    uint8_t registers[TW_PCIE_REGISTER_BYTES];
    uint8_t packet[TW_PACKET_BYTES], last[TW_PACKET_BYTES];
    size_t n_last;
    uint32_t repeats; /* of the last packet, to come */
};

static uint64_t wild(uint64_t *seed) {
    static const uint64_t values[] = {
        0,          1,         2,  0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE,     1ull << 32,
        UINT64_MAX, INT64_MAX, 64, 4096,       1u << 20,   1ull << 47, UINT64_MAX - 63};
    return random_below(seed, 3) ? values[random_below(seed, 15)] : random_next(seed);
}

static void scramble(uint8_t *bytes, size_t n, uint64_t *seed) {
    for (uint32_t i = 1 + random_below(seed, 3); i > 0 && n >= 4; i--) {
        size_t at = random_next(seed) % (n / 4) * 4;
        uint64_t v = wild(seed);
        if (random_below(seed, 2)) {
            bytes[at] ^= (uint8_t)(1u << random_below(seed, 8));
        } else {
            memcpy(bytes + at, &v, n - at < 8 || random_below(seed, 2) ? 4 : 8);
        }
    }
}

/* An answer with other contents or header. */
static void damage_answer(struct tw_link_header *h, uint8_t *data, uint64_t *seed) {
    struct tw_wire_header w;
    const char *why;
    if (h->offset != 0 || h->length < TW_WIRE_HEADER_BYTES || tw_wire_decode(data, &w, &why)) {
        scramble(data, h->length, seed);
        return;
    }
    uint64_t v = wild(seed);
    switch (random_below(seed, 8)) {
    case 0:
        w.status = (int32_t)v;
        break;
    case 1:
        w.address = random_below(seed, 2) ? v : w.address + v;
        break;
    case 2:
        w.length = (uint32_t)v;
        break;
    case 3:
        w.sequence += (uint32_t)v;
        break;
    case 4:
        w.opcode = (uint8_t)v;
        break;
    case 5:
        w.status = -(int32_t)random_below(seed, 40);
        break;
    default:
        scramble(data + TW_WIRE_HEADER_BYTES, h->length - TW_WIRE_HEADER_BYTES, seed);
        break;
    }
    tw_wire_encode(&w, data);
}

static void damage_header(struct tw_link_header *h, uint64_t *seed) {
    uint32_t v = (uint32_t)wild(seed);
    uint32_t *const field[] = {&h->generation, &h->sequence, &h->ack, &h->offset, &h->total};
    if (random_below(seed, 6) == 0) {
        h->kind = (uint8_t)(1 + random_below(seed, TW_LINK_KIND_LIMIT));
        return;
    }
    uint32_t *f = field[random_below(seed, 5)];
    *f = random_below(seed, 2) ? v : *f + random_below(seed, 3) - 1;
}

/* Damages a packet in place; its new size. */
static size_t damage(uint8_t *bytes, size_t n, uint64_t *seed) {
    struct tw_link_header h;
    uint8_t *data = bytes + TW_LINK_HEADER_BYTES;
    if (!tw_packet_good(bytes, n, &h) || random_below(seed, 8) == 0) { /* as it comes */
        scramble(bytes, n, seed);
        return random_below(seed, 2) ? n : 1 + random_next(seed) % n;
    }
    if (random_below(seed, 3) == 0) {
        damage_header(&h, seed);
    } else if (h.kind == TW_LINK_DATA) {
        damage_answer(&h, data, seed);
    } else {
        scramble(data, h.length, seed);
    }
    h.flags &= (uint16_t)~TW_LINK_CHECKSUM;
    h.data_crc = tw_packet_crc32c(0, data, h.length);
    tw_link_encode(&h, bytes);
    return n;
}

/* A PCIe device writes its registers and its words of the mailbox as it likes. */
static void scribble(struct device *d) {
    struct tw_pcie_registers *r = (void *)d->line->bar2;
    uint32_t at = random_below(&d->seed, 256), value = (uint32_t)wild(&d->seed);
    if (random_below(&d->seed, 2)) {
        tw_pcie_store((uint32_t *)(void *)r + at, value);
        return;
    }
    uint8_t *mailbox =
        r->mailbox_kind == TW_PCIE_IN_HOST ? d->line->ram : d->line->bar2 + TW_PCIE_REGISTER_BYTES;
    at = random_below(&d->seed, 3) ? random_below(&d->seed, 3) : 16 + random_below(&d->seed, 64);
    uint32_t *word = (uint32_t *)(void *)mailbox + at;
    tw_pcie_store(word, random_below(&d->seed, 2) ? value : *word + random_below(&d->seed, 4) - 1);
}

static enum tw_packet_result take_evil(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct device *d = (struct device *)p;
    if (d->repeats && !d->gone) { /* a flood of the last one */
        d->repeats--;
        memcpy(d->packet, d->last, d->n_last);
        *bytes = d->packet;
        *n = d->n_last;
        return TW_PACKET_OK;
    }
    enum tw_packet_result result = d->inner->ops->take(d->inner, bytes, n);
    if (d->gone || result != TW_PACKET_OK || *n > sizeof d->packet) {
        return d->gone ? TW_PACKET_GONE : result;
    }
    memcpy(d->packet, *bytes, *n);
    *bytes = d->packet;
    if (random_below(&d->seed, d->rate)) {
        return TW_PACKET_OK;
    }
    switch (random_below(&d->seed, 10)) {
    case 0:
        return TW_PACKET_AGAIN; /* lost */
    case 1:
        d->gone = random_below(&d->seed, 2);
        return d->gone ? TW_PACKET_GONE : TW_PACKET_OK;
    case 2:
        memcpy(d->last, d->packet, *n);
        d->n_last = *n;
        d->repeats = 1 + random_below(&d->seed, 64);
        return TW_PACKET_OK;
    case 3:
        if (d->line->bar2) {
            scribble(d);
        }
        return TW_PACKET_OK;
    default:
        *n = damage(d->packet, *n, &d->seed);
        return TW_PACKET_OK;
    }
}

static enum tw_packet_result send_evil(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    struct device *d = (struct device *)p;
    if (!d->gone && random_below(&d->seed, d->rate * 4) == 0) {
        return TW_PACKET_OK; /* lost */
    }
    return d->gone ? TW_PACKET_GONE : d->inner->ops->send(d->inner, bytes, n);
}

static bool wait_evil(struct tw_pipe *p, bool write, int ms) {
    struct device *d = (struct device *)p;
    return d->gone || (!write && d->repeats) || d->inner->ops->wait(d->inner, write, ms);
}

static void hang_up_evil(struct tw_pipe *p) {
    ((struct device *)p)->gone = true;
}

static void close_evil(struct tw_pipe *p) {
    struct device *d = (struct device *)p;
    if (d->line->bar2) {
        memcpy(d->line->bar2, d->registers, offsetof(struct tw_pcie_registers, started));
    }
    d->inner->ops->close(d->inner);
    free(d);
}

static const struct tw_pipe_ops evil_ops = {.send = send_evil,
                                            .take = take_evil,
                                            .wait = wait_evil,
                                            .hang_up = hang_up_evil,
                                            .close = close_evil};

struct tw_pipe *hostile_device(struct hostile_line *line, uint64_t seed) {
    struct device *d = memory(sizeof *d);
    d->base = (struct tw_pipe){&evil_ops, line->pipe->chunk, line->pipe->fd};
    d->inner = line->pipe;
    d->line = line;
    d->seed = seed;
    d->rate = 1u << random_below(&d->seed, 7);
    if (line->bar2) {
        memcpy(d->registers, line->bar2, sizeof d->registers);
    }
    return &d->base;
}
