/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's end of a link. There is one wait, next_packet(): it pings while nothing comes, and its deadline moves
 * only when bytes of an answer arrive or the device's progress word changes. Requests stay where the caller has them
 * until their answers are here, so whatever is lost on the way can be sent again.
 */
#include "driver/transport/link.h"

#include "firmware/port/lock.h"
#include "firmware/port/packet.h"
#include "tilewright/opcode.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define TICK_FIRST_MS 20u
#define TICK_MOST_MS 200u
#define TICKS_PER_DEADLINE 50u /* so many tries are not all lost by bad luck */

/* ---- losing it ---- */

static int lost_before(const struct tw_link *l, tw_error *err) {
    return tw_fail(err, TW_E_DEVICE_LOST, "device %s: it was lost (%s); open it again", l->name, l->cause);
}

/* Ends the link for good. `cause` may be in l->cause already. */
static int lose(struct tw_link *l, int code, const char *cause, tw_error *err) {
    if (cause != l->cause) {
        snprintf(l->cause, sizeof l->cause, "%s", cause);
    }
    l->dead = code;
    shutdown(l->fd, SHUT_RDWR);
    return tw_fail(err, code, "device %s: %s", l->name, l->cause);
}

/* The deadline has passed. What the pings brought tells which side is to blame. */
static int expire(struct tw_link *l, tw_error *err) {
    double s = 1e-3 * l->deadline_ms;
    const char *what =
        l->sent > l->answered ? tw_wire_opcode_name(l->request[(l->answered + 1) % TW_LINK_CREDITS].header[5]) : "OPEN";
    if (l->heard_at > l->moved_at) {
        char where[80] = "";
        if (l->doing == TW_WIRE_RUN && l->site != TW_NONE) {
            const char *op = tw_op_info(l->opcode).name;
            snprintf(where, sizeof where, " at site %u, %s", l->site, op ? op : "?");
        }
        snprintf(l->cause, sizeof l->cause,
                 "%s made no progress for %.1f s: the device answers, but its progress word stays at %llu%s%s%s", what,
                 s, (unsigned long long)l->beat, l->doing ? ", in " : "", l->doing ? tw_wire_opcode_name(l->doing) : "",
                 where);
        return lose(l, TW_E_TIMEOUT, l->cause, err);
    }
    if (l->all_ones) {
        snprintf(l->cause, sizeof l->cause, "all that comes for %.1f s is 0xFF bytes: the device is off its link", s);
    } else if (l->damaged) {
        snprintf(l->cause, sizeof l->cause, "all that comes for %.1f s is damaged (%u packets)", s, l->damaged);
    } else {
        snprintf(l->cause, sizeof l->cause, "no sign of life for %.1f s during %s", s, what);
    }
    return lose(l, TW_E_DEVICE_LOST, l->cause, err);
}

static int gone(struct tw_link *l, tw_error *err) {
    return lose(l, TW_E_DEVICE_LOST, "the other side closed the connection: its process has ended", err);
}

/* ---- sending ---- */

static struct tw_link_header new_header(const struct tw_link *l, enum tw_link_kind kind, uint32_t sequence) {
    return (struct tw_link_header){
        .kind = (uint8_t)kind, .generation = l->generation, .sequence = sequence, .ack = l->answered};
}

/* Waits for room, as long as the deadline allows. */
static int send_packet(struct tw_link *l, const uint8_t *bytes, size_t n, tw_error *err) {
    for (;;) {
        switch (tw_packet_send(l->fd, bytes, n)) {
        case TW_PACKET_OK:
            return 0;
        case TW_PACKET_GONE:
            return gone(l, err);
        case TW_PACKET_AGAIN:
            break;
        }
        if (tw_packet_now() - l->moved_at >= l->deadline_ms) {
            return expire(l, err);
        }
        if (tw_packet_wait(l->fd, true, TICK_MOST_MS)) {
            l->moved_at = tw_packet_now(); /* the other side takes packets */
        }
    }
}

static int send_small(struct tw_link *l, struct tw_link_header h, const void *payload, uint32_t bytes, tw_error *err) {
    uint8_t packet[TW_LINK_HEADER_BYTES + 64];
    const struct tw_packet_data data = {NULL, payload, bytes};
    return send_packet(l, packet, tw_packet_build(&h, &data, packet), err);
}

/* A request's packets from `offset` on. */
static int send_request(struct tw_link *l, uint32_t sequence, uint32_t offset, tw_error *err) {
    uint8_t packet[TW_PACKET_BYTES];
    uint32_t i = sequence % TW_LINK_CREDITS;
    const struct tw_packet_data data = {l->request[i].header, l->request[i].payload, l->request[i].bytes};
    struct tw_link_header h = new_header(l, TW_LINK_DATA, sequence);
    int code = 0;
    for (h.offset = offset; !code && h.offset < TW_WIRE_HEADER_BYTES + data.payload_bytes; h.offset += h.length) {
        code = send_packet(l, packet, tw_packet_build(&h, &data, packet), err);
    }
    return code;
}

static int send_again(struct tw_link *l, uint32_t from, uint32_t offset, tw_error *err) {
    int code = 0;
    from = from > l->answered ? from : l->answered + 1;
    for (uint32_t n = from; !code && n <= l->sent; n++) {
        code = send_request(l, n, n == from ? offset : 0, err);
    }
    return code;
}

static int ask_again(struct tw_link *l, tw_error *err) {
    if (l->asked || l->generation == 0) {
        return 0;
    }
    l->asked = true;
    struct tw_link_resend r = {.offset = l->have};
    return send_small(l, new_header(l, TW_LINK_RESEND, l->answered + 1), &r, sizeof r, err);
}

static int send_open(struct tw_link *l, uint32_t flags, tw_error *err) {
    struct tw_link_open q = {.flags = flags, .pid = (uint32_t)getpid()};
    tw_lock_own_name(q.command);
    return send_small(l, new_header(l, TW_LINK_OPEN, 0), &q, sizeof q, err);
}

/* ---- waiting ---- */

static uint32_t tick_most(const struct tw_link *l) {
    uint32_t most = l->deadline_ms / TICKS_PER_DEADLINE;
    return most < TICK_FIRST_MS ? TICK_FIRST_MS : most < TICK_MOST_MS ? most : TICK_MOST_MS;
}

static void start_waiting(struct tw_link *l) {
    l->moved_at = l->pinged_at = tw_packet_now();
    l->tick_ms = TICK_FIRST_MS;
    l->damaged = 0;
    l->all_ones = false;
}

static int ping(struct tw_link *l, uint64_t now, tw_error *err) {
    l->pinged_at = now;
    l->pinged = l->sent;
    l->tick_ms = l->tick_ms * 2 < tick_most(l) ? l->tick_ms * 2 : tick_most(l);
    l->asked = false; /* whatever was asked for may have been lost */
    int code = l->generation ? 0 : send_open(l, 0, err);
    return code ? code : send_small(l, new_header(l, TW_LINK_PING, 0), NULL, 0, err);
}

static void note_damage(struct tw_link *l, size_t n) {
    l->damaged++;
    l->all_ones = true;
    for (size_t i = 0; i < n; i++) {
        l->all_ones = l->all_ones && l->packet[i] == 0xFF;
    }
}

/* The one wait: the next good packet, in l->packet. */
static int next_packet(struct tw_link *l, struct tw_link_header *h, tw_error *err) {
    for (int code = 0; !code;) {
        size_t n;
        enum tw_packet_result r = tw_packet_take(l->fd, l->packet, &n);
        if (r == TW_PACKET_GONE) {
            return gone(l, err);
        }
        uint64_t now = tw_packet_now();
        if (r == TW_PACKET_OK && tw_packet_good(l->packet, n, h)) {
            l->heard_at = now;
            return 0;
        }
        if (now - l->moved_at >= l->deadline_ms) {
            return expire(l, err);
        }
        if (r == TW_PACKET_OK) {
            note_damage(l, n);
            code = ask_again(l, err);
        } else if (now - l->pinged_at >= l->tick_ms) {
            code = ping(l, now, err);
        } else {
            uint64_t tick = l->pinged_at + l->tick_ms - now, left = l->moved_at + l->deadline_ms - now;
            tw_packet_wait(l->fd, false, (int)(tick < left ? tick : left));
        }
        if (code) {
            return code;
        }
    }
    return 0;
}

/* Compares what the device has with what we have, and mends the difference. */
static int take_progress(struct tw_link *l, const struct tw_link_header *h, tw_error *err) {
    struct tw_link_progress p;
    if (h->length != sizeof p) {
        return 0;
    }
    memcpy(&p, l->packet + TW_LINK_HEADER_BYTES, sizeof p);
    if (p.beat != l->beat || p.received != l->received) {
        l->beat = p.beat;
        l->moved_at = l->heard_at;
    }
    l->received = p.received;
    l->doing = p.executing;
    l->site = p.at.site;
    l->opcode = p.at.opcode;
    bool lacking = p.answered > l->answered && l->generation;
    bool ask = lacking && l->behind; /* told twice: it is not just on its way */
    l->behind = lacking;
    int code = ask ? ask_again(l, err) : 0;
    return code || p.received >= l->pinged || !l->generation ? code : send_again(l, p.received + 1, 0, err);
}

static int take_resend(struct tw_link *l, const struct tw_link_header *h, tw_error *err) {
    struct tw_link_resend r = {0};
    memcpy(&r, l->packet + TW_LINK_HEADER_BYTES, h->length == sizeof r ? sizeof r : 0);
    return send_again(l, h->sequence, r.offset, err);
}

/* True when the answer is whole. */
static bool take_data(struct tw_link *l, const struct tw_link_header *h) {
    memcpy(l->message + l->have, l->packet + TW_LINK_HEADER_BYTES, h->length);
    l->have += h->length;
    l->asked = l->behind = false;
    start_waiting(l);
    return l->have == h->total;
}

static bool is_next(const struct tw_link *l, const struct tw_link_header *h) {
    return h->sequence == l->answered + 1 && h->offset == l->have && h->total >= TW_WIRE_HEADER_BYTES && h->length;
}

static bool is_new(const struct tw_link *l, const struct tw_link_header *h) {
    return h->sequence > l->answered + 1 || (h->sequence == l->answered + 1 && h->offset > l->have);
}

/* ---- the vtable's functions ---- */

int tw_link_submit(struct tw_transport *t, const uint8_t *header, const void *payload, uint32_t payload_bytes,
                   tw_error *err) {
    struct tw_link *l = (struct tw_link *)t;
    if (l->dead) {
        return lost_before(l, err);
    }
    if (l->sent - l->answered >= t->credits) {
        return tw_fail(err, TW_E_USAGE, "device %s: %u requests are unanswered already", l->name, t->credits);
    }
    if (payload_bytes > TW_LINK_MAX_PAYLOAD) {
        return tw_fail(err, TW_E_USAGE, "device %s: a payload of %u bytes, at most %u are possible", l->name,
                       payload_bytes, TW_LINK_MAX_PAYLOAD);
    }
    uint32_t i = ++l->sent % TW_LINK_CREDITS;
    memcpy(l->request[i].header, header, TW_WIRE_HEADER_BYTES);
    l->request[i].payload = payload;
    l->request[i].bytes = payload_bytes;
    start_waiting(l);
    return send_request(l, l->sent, 0, err);
}

int tw_link_receive(struct tw_transport *t, uint8_t *header, const void **payload, uint32_t *payload_bytes,
                    tw_error *err) {
    struct tw_link *l = (struct tw_link *)t;
    if (l->dead) {
        return lost_before(l, err);
    }
    if (l->sent == l->answered) {
        return tw_fail(err, TW_E_USAGE, "device %s: no request is unanswered", l->name);
    }
    start_waiting(l);
    for (int code = 0; !code;) {
        struct tw_link_header h;
        code = next_packet(l, &h, err);
        if (code) {
            return code;
        }
        if (h.generation != l->generation) {
            continue; /* a stray */
        }
        if (h.kind == TW_LINK_DATA && is_next(l, &h)) {
            if (take_data(l, &h)) {
                break;
            }
        } else if (h.kind == TW_LINK_DATA) {
            code = is_new(l, &h) ? ask_again(l, err) : 0;
        } else if (h.kind == TW_LINK_PROGRESS) {
            code = take_progress(l, &h, err);
        } else if (h.kind == TW_LINK_RESEND) {
            code = take_resend(l, &h, err);
        }
        if (code) {
            return code;
        }
    }
    memcpy(header, l->message, TW_WIRE_HEADER_BYTES);
    *payload = l->message + TW_WIRE_HEADER_BYTES;
    *payload_bytes = l->have - TW_WIRE_HEADER_BYTES;
    l->have = 0;
    l->answered++;
    return 0;
}

/* ---- opening and closing ---- */

static int finish_open(struct tw_link *l, tw_error *err) {
    struct tw_link_opened *o = &l->opened;
    o->holder[sizeof o->holder - 1] = o->target[sizeof o->target - 1] = o->device[sizeof o->device - 1] = 0;
    if (o->status == TW_E_DEVICE_BUSY) {
        return tw_fail(err, TW_E_DEVICE_BUSY, "device %s: process %u (%s) has it", l->name, o->holder_pid, o->holder);
    }
    if (o->status || o->credits == 0 || o->credits > TW_LINK_CREDITS || o->max_payload != TW_LINK_MAX_PAYLOAD ||
        o->generation == 0) {
        return tw_fail(err, TW_E_PROTOCOL, "device %s: it opened with status %d, %u credits and payloads of %u bytes",
                       l->name, o->status, o->credits, o->max_payload);
    }
    l->generation = o->generation;
    l->base.credits = o->credits;
    return 0;
}

static int shake_hands(struct tw_link *l, tw_error *err) {
    start_waiting(l);
    int code = send_open(l, 0, err);
    while (!code) {
        struct tw_link_header h;
        code = next_packet(l, &h, err);
        if (code) {
            return code;
        }
        if (h.kind == TW_LINK_PROGRESS) {
            code = take_progress(l, &h, err);
        } else if (h.kind == TW_LINK_OPENED && h.length == sizeof l->opened) {
            memcpy(&l->opened, l->packet + TW_LINK_HEADER_BYTES, sizeof l->opened);
            return finish_open(l, err);
        }
    }
    return code;
}

static void dispose(struct tw_link *l) {
    close(l->fd);
    free(l->message);
    free(l);
}

int tw_link_open(const char *name, int fd, uint32_t deadline_ms, struct tw_link **out, tw_error *err) {
    struct tw_link *l = calloc(1, sizeof *l);
    uint8_t *message = malloc(TW_LINK_MAX_MESSAGE);
    if (!l || !message) {
        free(l);
        free(message);
        close(fd);
        return tw_fail(err, TW_E_NOMEM, "device %s: out of memory", name);
    }
    snprintf(l->name, sizeof l->name, "%s", name);
    l->fd = fd;
    l->message = message;
    l->deadline_ms = deadline_ms ? deadline_ms : TW_LINK_DEADLINE_MS;
    int code = shake_hands(l, err);
    if (code) {
        dispose(l);
        return code;
    }
    *out = l;
    return 0;
}

bool tw_link_query(int fd, int ms, struct tw_link_opened *out) {
    struct tw_link *l = calloc(1, sizeof *l);
    bool answered = false;
    if (l) {
        l->fd = fd;
        l->deadline_ms = (uint32_t)ms;
        l->moved_at = tw_packet_now();
        struct tw_link_header h;
        size_t n;
        answered = send_open(l, TW_LINK_QUERY, NULL) == 0 && tw_packet_wait(fd, false, ms) &&
                   tw_packet_take(fd, l->packet, &n) == TW_PACKET_OK && tw_packet_good(l->packet, n, &h) &&
                   h.kind == TW_LINK_OPENED && h.length == sizeof *out;
        if (answered) {
            memcpy(out, l->packet + TW_LINK_HEADER_BYTES, sizeof *out);
            out->holder[sizeof out->holder - 1] = out->target[sizeof out->target - 1] = 0;
            out->device[sizeof out->device - 1] = out->faults[sizeof out->faults - 1] = 0;
        }
    }
    free(l);
    return answered;
}

void tw_link_close(struct tw_transport *t) {
    struct tw_link *l = (struct tw_link *)t;
    void (*closed)(void *) = l->closed;
    void *owner = l->owner;
    if (!l->dead) {
        uint8_t packet[TW_LINK_HEADER_BYTES];
        struct tw_link_header h = new_header(l, TW_LINK_CLOSE, 0);
        const struct tw_packet_data none = {NULL, NULL, 0};
        tw_packet_send(l->fd, packet, tw_packet_build(&h, &none, packet)); /* an attempt: unsaid, the device is reset */
    }
    dispose(l);
    if (closed) {
        closed(owner);
    }
}
