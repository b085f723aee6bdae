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

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
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
    if (!l->climbing) {
        l->pipe->ops->hang_up(l->pipe);
    }
    return tw_fail(err, code, "device %s: %s", l->name, l->cause);
}

static void add_place(char *text, size_t size, const char *before, const struct tw_link_place *p, const char *after) {
    size_t n = strlen(text);
    if (p->site != TW_NONE && n < size) {
        const char *op = tw_op_info(p->opcode).name;
        snprintf(text + n, size - n, "%ssite %u, %s, op %u (%s)%s", before, p->site, tw_engine_name(p->engine),
                 p->op_index, op ? op : "?", after);
    }
}

/* It answers, but gets nowhere. */
static int is_stuck(struct tw_link *l, const char *what, double s, tw_error *err) {
    const struct tw_link_progress *p = &l->progress;
    char where[160] = "";
    if (p->executing == TW_WIRE_RUN) {
        add_place(where, sizeof where, " at ", &p->at, "");
        add_place(where, sizeof where, "; ", &p->waiting, " waits for it");
    }
    snprintf(l->cause, sizeof l->cause,
             "%s made no progress for %.1f s: the device answers, but its progress word stays at %llu%s%s%s", what, s,
             (unsigned long long)p->beat, p->executing ? ", in " : "",
             p->executing ? tw_wire_opcode_name(p->executing) : "", where);
    return lose(l, TW_E_TIMEOUT, l->cause, err);
}

/* The second path: what the device says where packets do not come through. True: it got on, so the wait goes on. */
static bool moves_after_all(struct tw_link *l) {
    struct tw_link_progress p;
    if (!l->pipe->ops->confirm || !l->pipe->ops->confirm(l->pipe, &p)) {
        return false;
    }
    bool moved = p.beat != l->progress.beat || p.received != l->progress.received;
    l->progress = p;
    l->moved_at = moved ? tw_packet_now() : l->moved_at;
    l->confirmed = true;
    return moved;
}

/* The deadline has passed. 0: the device moves after all. What the pings brought tells which side is to blame. */
static int expire(struct tw_link *l, tw_error *err) {
    if (moves_after_all(l)) {
        return 0;
    }
    double s = 1e-3 * l->deadline_ms;
    const char *what =
        l->sent > l->answered ? tw_wire_opcode_name(l->request[(l->answered + 1) % TW_LINK_CREDITS].header[5]) : "OPEN";
    if (l->heard_at > l->moved_at || (l->confirmed && l->progress.executing)) {
        return is_stuck(l, what, s, err);
    }
    if (l->all_ones) {
        snprintf(l->cause, sizeof l->cause, "all that comes for %.1f s is 0xFF bytes: the device is off its link", s);
    } else if (l->damaged) {
        snprintf(l->cause, sizeof l->cause, "all that comes for %.1f s is damaged (%u packets)", s, l->damaged);
    } else if (l->confirmed) {
        snprintf(l->cause, sizeof l->cause,
                 "nothing came over its link for %.1f s during %s, though the device itself is alive", s, what);
    } else {
        snprintf(l->cause, sizeof l->cause, "no sign of life for %.1f s during %s", s, what);
    }
    return lose(l, TW_E_DEVICE_LOST, l->cause, err);
}

static int gone(struct tw_link *l, tw_error *err) {
    l->gone = true;
    struct tw_pipe *p = l->pipe;
    const char *cause = p->ops->cause ? p->ops->cause(p) : NULL;
    return lose(l, TW_E_DEVICE_LOST, cause ? cause : "the other side closed the connection: its process has ended",
                err);
}

/* ---- sending ---- */

static struct tw_link_header new_header(const struct tw_link *l, enum tw_link_kind kind, uint32_t sequence) {
    return (struct tw_link_header){
        .kind = (uint8_t)kind, .generation = l->generation, .sequence = sequence, .ack = l->answered};
}

/* Nothing more fits now: waits, as long as the deadline allows. */
static int wait_for_room(struct tw_link *l, tw_error *err) {
    if (tw_packet_now() - l->moved_at >= l->deadline_ms) {
        return expire(l, err);
    }
    if (l->pipe->ops->wait(l->pipe, true, TICK_MOST_MS)) {
        l->moved_at = tw_packet_now(); /* the other side takes packets */
    }
    return 0;
}

/* Builds the packet at h->offset of `data` where the pipe wants it, and sends it. */
static int send_packet(struct tw_link *l, struct tw_link_header *h, const struct tw_packet_data *data, tw_error *err) {
    struct tw_pipe *p = l->pipe;
    for (;;) {
        uint8_t *room = p->ops->room ? p->ops->room(p) : l->out;
        enum tw_packet_result r = TW_PACKET_AGAIN;
        if (room) {
            r = p->ops->send(p, room, tw_packet_build(h, data, p->chunk, room));
        }
        if (r != TW_PACKET_AGAIN) {
            return r == TW_PACKET_OK ? 0 : gone(l, err);
        }
        int code = wait_for_room(l, err);
        if (code) {
            return code;
        }
    }
}

static int send_small(struct tw_link *l, struct tw_link_header h, const void *payload, uint32_t bytes, tw_error *err) {
    const struct tw_packet_data data = {NULL, payload, bytes};
    return send_packet(l, &h, &data, err);
}

/* A request's packets from `offset` on. */
static int send_request(struct tw_link *l, uint32_t sequence, uint32_t offset, tw_error *err) {
    uint32_t i = sequence % TW_LINK_CREDITS;
    const struct tw_packet_data data = {l->request[i].header, l->request[i].payload, l->request[i].bytes};
    struct tw_link_header h = new_header(l, TW_LINK_DATA, sequence);
    int code = 0;
    for (h.offset = offset; !code && h.offset < TW_WIRE_HEADER_BYTES + data.payload_bytes; h.offset += h.length) {
        code = send_packet(l, &h, &data, err);
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
    struct tw_link_open q = {.flags = flags, .pid = (uint32_t)getpid(), .nonce = l->nonce};
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
    l->all_ones = l->confirmed = false;
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
        l->all_ones = l->all_ones && l->in[i] == 0xFF;
    }
}

/* The one wait: the next good packet, at l->in. */
static int next_packet(struct tw_link *l, struct tw_link_header *h, tw_error *err) {
    for (int code = 0; !code;) {
        size_t n = 0;
        enum tw_packet_result r = l->pipe->ops->take(l->pipe, &l->in, &n);
        if (r == TW_PACKET_GONE) {
            return gone(l, err);
        }
        uint64_t now = tw_packet_now();
        if (r == TW_PACKET_OK && tw_packet_good(l->in, n, h)) {
            l->heard_at = now;
            return 0;
        }
        if (now - l->moved_at >= l->deadline_ms) {
            code = expire(l, err);
        } else if (r == TW_PACKET_OK) {
            note_damage(l, n);
            code = ask_again(l, err);
        } else if (now - l->pinged_at >= l->tick_ms) {
            code = ping(l, now, err);
        } else {
            uint64_t tick = l->pinged_at + l->tick_ms - now, left = l->moved_at + l->deadline_ms - now;
            l->pipe->ops->wait(l->pipe, false, (int)(tick < left ? tick : left));
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
    memcpy(&p, l->in + TW_LINK_HEADER_BYTES, sizeof p);
    if (p.beat != l->progress.beat || p.received != l->progress.received) {
        l->moved_at = l->heard_at;
    }
    l->progress = p;
    bool lacking = p.answered > l->answered && l->generation;
    bool ask = lacking && l->behind; /* told twice: it is not just on its way */
    l->behind = lacking;
    int code = ask ? ask_again(l, err) : 0;
    return code || p.received >= l->pinged || !l->generation ? code : send_again(l, p.received + 1, 0, err);
}

static int take_resend(struct tw_link *l, const struct tw_link_header *h, tw_error *err) {
    struct tw_link_resend r = {0};
    memcpy(&r, l->in + TW_LINK_HEADER_BYTES, h->length == sizeof r ? sizeof r : 0);
    return send_again(l, h->sequence, r.offset, err);
}

/* True when the answer is whole. */
static bool take_data(struct tw_link *l, const struct tw_link_header *h) {
    memcpy(l->message + l->have, l->in + TW_LINK_HEADER_BYTES, h->length);
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
            memcpy(&l->opened, l->in + TW_LINK_HEADER_BYTES, sizeof l->opened);
            return finish_open(l, err);
        }
    }
    return code;
}

static void dispose(struct tw_link *l) {
    l->pipe->ops->close(l->pipe);
    free(l->message);
    free(l);
}

/* "both endpoints were reset, the device was reset" */
static void note_rung(struct tw_link *l, const char *done) {
    size_t n = strlen(l->recovered);
    snprintf(l->recovered + n, sizeof l->recovered - n, "%s%s", n ? ", " : "", done);
}

/* Opens the device, and climbs the ladder as long as it does not answer. */
static int open_device(struct tw_link *l, tw_error *err) {
    uint32_t deadline = l->deadline_ms;
    bool ladder = l->climbing = l->pipe->ops->recover != NULL;
    l->deadline_ms = ladder && deadline > 4000 ? deadline / 4 : deadline;
    tw_error e = {0};
    int code = shake_hands(l, &e);
    for (unsigned rung = 0; ladder && l->dead && !l->gone; rung++) {
        const char *done = l->pipe->ops->recover(l->pipe, rung);
        if (!done) {
            break;
        }
        note_rung(l, done);
        l->dead = 0;
        code = shake_hands(l, &e);
    }
    l->deadline_ms = deadline;
    l->climbing = false;
    if (code && l->recovered[0]) {
        return tw_fail(err, code, "%s; tried: %s; unplug it and plug it in again", e.message, l->recovered);
    }
    return code ? tw_fail(err, code, "%s", e.message) : 0;
}

/* Of all opens of a device the only one with this number. */
static uint64_t new_nonce(void) {
    static _Atomic uint32_t count;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t mix = ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec) ^ ((uint64_t)getpid() << 40);
    return (mix + (uint64_t)atomic_fetch_add(&count, 1) * 0x9E3779B97F4A7C15u) | 1;
}

int tw_link_open(const char *name, struct tw_pipe *pipe, uint32_t deadline_ms, struct tw_link **out, tw_error *err) {
    struct tw_link *l = pipe ? calloc(1, sizeof *l) : NULL;
    uint8_t *message = pipe ? malloc(TW_LINK_MAX_MESSAGE) : NULL;
    if (!l || !message) {
        free(l);
        free(message);
        if (pipe) {
            pipe->ops->close(pipe);
        }
        return tw_fail(err, TW_E_NOMEM, "device %s: out of memory", name);
    }
    snprintf(l->name, sizeof l->name, "%s", name);
    l->pipe = pipe;
    l->message = message;
    l->nonce = new_nonce();
    l->deadline_ms = deadline_ms ? deadline_ms : TW_LINK_DEADLINE_MS;
    int code = open_device(l, err);
    if (code) {
        dispose(l);
        return code;
    }
    *out = l;
    return 0;
}

static bool await_state(struct tw_link *l, int ms, struct tw_link_opened *out) {
    struct tw_link_header h;
    size_t n;
    bool answered = send_open(l, TW_LINK_QUERY, NULL) == 0 && l->pipe->ops->wait(l->pipe, false, ms) &&
                    l->pipe->ops->take(l->pipe, &l->in, &n) == TW_PACKET_OK && tw_packet_good(l->in, n, &h) &&
                    h.kind == TW_LINK_OPENED && h.length == sizeof *out;
    if (answered) {
        memcpy(out, l->in + TW_LINK_HEADER_BYTES, sizeof *out);
        out->holder[sizeof out->holder - 1] = out->target[sizeof out->target - 1] = 0;
        out->device[sizeof out->device - 1] = out->faults[sizeof out->faults - 1] = 0;
    }
    return answered;
}

bool tw_link_query(struct tw_pipe *pipe, int ms, struct tw_link_opened *out) {
    struct tw_link *l = calloc(1, sizeof *l);
    if (!l) {
        return false;
    }
    l->pipe = pipe;
    l->deadline_ms = (uint32_t)ms;
    l->moved_at = tw_packet_now();
    l->nonce = new_nonce();
    bool answered = await_state(l, ms, out);
    free(l);
    return answered;
}

bool tw_link_stuck(struct tw_transport *t, struct tw_link_progress *out) {
    const struct tw_link *l = (const struct tw_link *)t;
    *out = l->progress;
    return l->dead == TW_E_TIMEOUT && l->progress.executing == TW_WIRE_RUN && l->progress.at.site != TW_NONE;
}

void tw_link_close(struct tw_transport *t) {
    struct tw_link *l = (struct tw_link *)t;
    void (*closed)(void *) = l->closed;
    void *owner = l->owner;
    if (!l->dead) {
        struct tw_link_header h = new_header(l, TW_LINK_CLOSE, 0);
        const struct tw_packet_data none = {NULL, NULL, 0};
        uint8_t *room = l->pipe->ops->room ? l->pipe->ops->room(l->pipe) : l->out;
        if (room) { /* an attempt: unsaid, the device is reset */
            l->pipe->ops->send(l->pipe, room, tw_packet_build(&h, &none, l->pipe->chunk, room));
        }
    }
    dispose(l);
    if (closed) {
        closed(owner);
    }
}
