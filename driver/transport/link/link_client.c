/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's end of a link. There is one wait, tw_link_next_packet(): it pings while nothing
 * comes, and its deadline moves only when bytes of an answer arrive or the device's progress word
 * changes. Requests stay where the caller has them until their answers are here, so whatever is
 * lost on the way can be sent again.
 */
#include "driver/transport/link/link_client_internal.h"

#include "firmware/link/packet.h"
#include "loader/base/assert.h"
#include "loader/base/lock.h"
#include "tilewright/opcode.h"

#include <stdio.h>
#include <unistd.h>

#define TICK_FIRST_MS 20u
#define TICK_MOST_MS 200u
#define TICKS_PER_DEADLINE 50u /* so many tries are not all lost by bad luck */
#define PAUSE_MS \
    1000u /* a look at the pipe that is so late: this process was stopped, not the device */
#define LATE_PACKETS 64u  /* what may lie there after the deadline and is still looked at */
#define MOST_RESENDS 200u /* in one wait, without anything having got on */

/* ---- losing it ---- */

static int lost_before(const struct tw_link *l, tw_error *err) {
    return tw_fail(err, TW_E_DEVICE_LOST, "device %s: it was lost (%s); open it again", l->name,
                   l->cause);
}

/* Ends the link for good. `cause` may be in l->cause already. */
static int lose(struct tw_link *l, int code, const char *cause, tw_error *err) {
    if (cause != l->cause) {
        snprintf(l->cause, sizeof l->cause, "%s", cause);
    }
    TW_ASSERT(code == TW_E_DEVICE_LOST || code == TW_E_TIMEOUT || code == TW_E_VERSION);
    l->dead = code;
    if (!l->climbing) {
        l->pipe->ops->hang_up(l->pipe);
    }
    return tw_fail(err, code, "device %s: %s", l->name, l->cause);
}

static void add_place(char *text, size_t size, const char *before, const struct tw_link_place *p,
                      const char *after) {
    size_t n = strlen(text);
    if (p->site != TW_NONE && n < size) {
        const char *op = tw_op_info(p->opcode).name;
        snprintf(text + n, size - n, "%ssite %u, %s, op %u (%s)%s", before, p->site,
                 tw_engine_name(p->engine), p->op_index, op ? op : "?", after);
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
             "%s made no progress for %.1f s: the device answers, but its progress word stays at "
             "%llu%s%s%s",
             what, s, (unsigned long long)p->beat, p->executing ? ", in " : "",
             p->executing ? tw_wire_opcode_name(p->executing) : "", where);
    return lose(l, TW_E_TIMEOUT, l->cause, err);
}

/* The second path: what the device says where packets do not come through. True: it got on, so the
 * wait goes on. */
static bool moves_after_all(struct tw_link *l) {
    struct tw_link_progress p;
    if (!l->pipe->ops->confirm || !l->pipe->ops->confirm(l->pipe, &p)) {
        return false;
    }
    bool moved = p.beat != l->progress.beat || p.received > l->most_received;
    l->progress = p;
    l->moved_at = moved ? tw_packet_now() : l->moved_at;
    l->confirmed = true;
    return moved;
}

/* The deadline has passed. 0: the device moves after all. What the pings brought tells which side
 * is to blame. */
static int expire(struct tw_link *l, tw_error *err) {
    TW_ASSERT(!l->dead && l->sent - l->answered <= TW_LINK_CREDITS);
    if (moves_after_all(l)) {
        return 0;
    }
    double s = 1e-3 * l->deadline_ms;
    const char *what =
        l->sent > l->answered
            ? tw_wire_opcode_name(l->request[(l->answered + 1) % TW_LINK_CREDITS].header[5])
            : "OPEN";
    /* and still does */
    bool answers = l->heard_at > l->moved_at && tw_packet_now() - l->heard_at < l->deadline_ms / 2;
    if (answers || (l->confirmed && l->progress.executing)) {
        return is_stuck(l, what, s, err);
    }
    if (l->all_ones) {
        snprintf(l->cause, sizeof l->cause,
                 "all that comes for %.1f s is 0xFF bytes: the device is off its link", s);
    } else if (l->damaged) {
        snprintf(l->cause, sizeof l->cause, "all that comes for %.1f s is damaged (%u packets)", s,
                 l->damaged);
    } else if (l->confirmed) {
        snprintf(
            l->cause, sizeof l->cause,
            "nothing came over its link for %.1f s during %s, though the device itself is alive", s,
            what);
    } else {
        snprintf(l->cause, sizeof l->cause, "no sign of life for %.1f s during %s", s, what);
    }
    return lose(l, TW_E_DEVICE_LOST, l->cause, err);
}

static int gone(struct tw_link *l, tw_error *err) {
    l->gone = true;
    struct tw_pipe *p = l->pipe;
    const char *cause = p->ops->cause ? p->ops->cause(p) : NULL;
    return lose(l, TW_E_DEVICE_LOST,
                cause ? cause : "the other side closed the connection: its process has ended", err);
}

static int other_version(struct tw_link *l, tw_error *err) {
    snprintf(l->cause, sizeof l->cause, "it speaks link version %u, this driver %u: upgrade the %s",
             l->other_version, TW_LINK_VERSION,
             l->other_version > TW_LINK_VERSION ? "driver" : "device's firmware");
    return lose(l, TW_E_VERSION, l->cause, err);
}

/* A medium that outlives its hosts may bring what the one of before did not hear, an OPENED too,
 * and its generation was taken for ours: before the first answer the real one is still believed,
 * and gets all requests from the first on. */
static bool was_opened_late(const struct tw_link *l, const struct tw_link_header *h) {
    return h->kind == TW_LINK_OPENED && h->generation > l->generation && l->answered == 0 &&
           l->have == 0;
}

/* A packet of an open behind ours: the device has forgotten us. */
static int was_reset(struct tw_link *l, uint32_t generation, tw_error *err) {
    snprintf(l->cause, sizeof l->cause,
             "it was reset in the meantime (its generation is %u, that of this open %u)",
             generation, l->generation);
    return lose(l, TW_E_DEVICE_LOST, l->cause, err);
}

/* ---- sending ---- */

struct tw_link_header tw_link_new_header(const struct tw_link *l, enum tw_link_kind kind,
                                         uint32_t sequence) {
    return (struct tw_link_header){.kind = (uint8_t)kind,
                                   .flags = tw_packet_check(),
                                   .generation = l->generation,
                                   .sequence = sequence,
                                   .ack = l->answered};
}

/* The clock of the wait. Time in which this process was stopped, or got no processor, does not
 * count. */
static uint64_t look_at_clock(struct tw_link *l) {
    uint64_t now = tw_packet_now(), pause = now - l->looked_at;
    TW_ASSERT(l->looked_at <= now);
    if (pause > PAUSE_MS) {
        l->moved_at = l->moved_at + pause < now ? l->moved_at + pause : now;
    }
    l->looked_at = now;
    TW_ASSERT(l->moved_at <= now);
    return now;
}

/* Nothing more fits now: waits, as long as the deadline allows. */
static int wait_for_room(struct tw_link *l, tw_error *err) {
    if (look_at_clock(l) - l->moved_at >= l->deadline_ms) {
        return expire(l, err);
    }
    l->pipe->ops->wait(l->pipe, true, TICK_MOST_MS);
    return 0;
}

/* Builds the packet at h->offset of `data` where the pipe wants it, and sends it. */
static int send_packet(struct tw_link *l, struct tw_link_header *h,
                       const struct tw_packet_data *data, tw_error *err) {
    struct tw_pipe *p = l->pipe;
    TW_ASSERT(p->chunk > 0 && p->chunk <= TW_LINK_CHUNK);
    for (bool waited = false;; waited = true) {
        uint8_t *room = p->ops->room ? p->ops->room(p) : l->out;
        enum tw_packet_result r = TW_PACKET_AGAIN;
        if (room) {
            r = p->ops->send(p, room, tw_packet_build(h, data, p->chunk, room));
        }
        if (r == TW_PACKET_OK && waited && !l->resends) {
            l->moved_at = tw_packet_now(); /* the other side takes packets */
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

static int send_small(struct tw_link *l, struct tw_link_header h, const void *payload,
                      uint32_t bytes, tw_error *err) {
    const struct tw_packet_data data = {NULL, payload, bytes};
    return send_packet(l, &h, &data, err);
}

/* A request's packets from `offset` on. */
static int send_request(struct tw_link *l, uint32_t sequence, uint32_t offset, tw_error *err) {
    uint32_t i = sequence % TW_LINK_CREDITS;
    TW_ASSERT(sequence > l->answered && sequence <= l->sent);
    TW_ASSERT(l->request[i].bytes <= TW_LINK_MAX_PAYLOAD);
    const struct tw_packet_data data = {l->request[i].header, l->request[i].payload,
                                        l->request[i].bytes};
    struct tw_link_header h = tw_link_new_header(l, TW_LINK_DATA, sequence);
    int code = 0;
    for (h.offset = offset; !code && h.offset < TW_WIRE_HEADER_BYTES + data.payload_bytes;
         h.offset += h.length) {
        code = send_packet(l, &h, &data, err);
    }
    return code;
}

static int send_again(struct tw_link *l, uint32_t from, uint32_t offset, tw_error *err) {
    int code = 0;
    if (++l->resends > MOST_RESENDS) {
        return lose(l, TW_E_DEVICE_LOST, "it wants the same requests again and again", err);
    }
    if (from <= l->answered) { /* what it asked for it has got meanwhile */
        from = l->answered + 1;
        offset = 0;
    }
    TW_ASSERT(from > l->answered);
    for (uint32_t n = from; !code && n <= l->sent; n++) {
        l->base.count.resent++;
        code = send_request(l, n, n == from ? offset : 0, err);
    }
    return code;
}

static int request_resend(struct tw_link *l, tw_error *err) {
    if (l->asked || l->generation == 0) {
        return 0;
    }
    TW_ASSERT(l->have < TW_LINK_MAX_MESSAGE);
    l->asked = true;
    l->base.count.resent++;
    struct tw_link_resend r = {.offset = l->have};
    return send_small(l, tw_link_new_header(l, TW_LINK_RESEND, l->answered + 1), &r, sizeof r, err);
}

int tw_link_send_open(struct tw_link *l, uint32_t flags, tw_error *err) {
    struct tw_link_open q = {.flags = flags, .pid = (uint32_t)getpid(), .nonce = l->nonce};
    tw_lock_own_name(q.command);
    return send_small(l, tw_link_new_header(l, TW_LINK_OPEN, 0), &q, sizeof q, err);
}

/* ---- waiting ---- */

static uint32_t tick_most(const struct tw_link *l) {
    uint32_t most = l->deadline_ms / TICKS_PER_DEADLINE;
    return most < TICK_FIRST_MS ? TICK_FIRST_MS : most < TICK_MOST_MS ? most : TICK_MOST_MS;
}

void tw_link_start_waiting(struct tw_link *l) {
    l->moved_at = l->pinged_at = l->looked_at = tw_packet_now();
    l->tick_ms = TICK_FIRST_MS;
    l->damaged = l->late = l->resends = l->other_version = 0;
    l->all_ones = l->confirmed = false;
}

static int ping(struct tw_link *l, uint64_t now, tw_error *err) {
    l->pinged_at = now;
    l->pinged = l->sent;
    l->tick_ms = l->tick_ms * 2 < tick_most(l) ? l->tick_ms * 2 : tick_most(l);
    l->asked = false; /* whatever was asked for may have been lost */
    int code = l->generation ? 0 : tw_link_send_open(l, 0, err);
    return code ? code : send_small(l, tw_link_new_header(l, TW_LINK_PING, 0), NULL, 0, err);
}

static void note_damage(struct tw_link *l, size_t n) {
    struct tw_link_header h;
    const char *why;
    if (tw_link_decode(l->in, n, &h, &why) == TW_E_VERSION) {
        l->other_version = h.version;
    }
    l->damaged++;
    l->base.count.damaged++;
    l->all_ones = true;
    for (size_t i = 0; i < n; i++) {
        l->all_ones = l->all_ones && l->in[i] == 0xFF;
    }
}

/* Nothing good is there. */
static int idle(struct tw_link *l, uint64_t now, bool damaged, size_t n, tw_error *err) {
    if (damaged) {
        note_damage(l, n);
    }
    if (l->other_version) {
        return other_version(l, err);
    }
    if (now - l->moved_at >= l->deadline_ms) {
        return expire(l, err);
    }
    if (damaged) {
        return request_resend(l, err);
    }
    if (now - l->pinged_at >= l->tick_ms) {
        return ping(l, now, err);
    }
    TW_ASSERT(l->pinged_at <= now && l->moved_at <= now && l->tick_ms > 0);
    uint64_t tick = l->pinged_at + l->tick_ms - now, left = l->moved_at + l->deadline_ms - now;
    l->pipe->ops->wait(l->pipe, false, (int)(tick < left ? tick : left));
    return 0;
}

int tw_link_next_packet(struct tw_link *l, struct tw_link_header *h, tw_error *err) {
    TW_ASSERT(!l->dead && l->deadline_ms > 0);
    for (;;) {
        size_t n = 0;
        enum tw_packet_result r = l->pipe->ops->take(l->pipe, &l->in, &n);
        if (r == TW_PACKET_GONE) {
            return gone(l, err);
        }
        uint64_t now = look_at_clock(l);
        TW_ASSERT(r != TW_PACKET_OK || (l->in && n <= TW_PACKET_BYTES));
        bool good = r == TW_PACKET_OK && tw_packet_good(l->in, n, h);
        l->heard_at = good ? now : l->heard_at;
        /* What came in time may be looked at late; a flood of packets that say nothing new is no
         * sign of progress. */
        if (good && (now - l->moved_at < l->deadline_ms || ++l->late <= LATE_PACKETS)) {
            return 0;
        }
        int code = good ? expire(l, err) : idle(l, now, r == TW_PACKET_OK, n, err);
        if (code) {
            return code;
        }
    }
}

static void tell_moved(const struct tw_link *l) {
    if (l->base.moved) {
        l->base.moved(l->base.moved_ctx);
    }
}

int tw_link_take_progress(struct tw_link *l, const struct tw_link_header *h, tw_error *err) {
    struct tw_link_progress p;
    if (h->length != sizeof p) {
        return 0;
    }
    memcpy(&p, l->in + TW_LINK_HEADER_BYTES, sizeof p);
    if (p.beat != l->progress.beat || p.received > l->most_received) {
        l->moved_at = l->heard_at;
        l->resends = l->late = 0;
        tell_moved(l);
    }
    l->most_received = p.received > l->most_received ? p.received : l->most_received;
    l->progress = p;
    bool lacking = p.answered > l->answered && l->generation;
    bool ask = lacking && l->behind; /* told twice: it is not just on its way */
    l->behind = lacking;
    int code = ask ? request_resend(l, err) : 0;
    return code || p.received >= l->pinged || !l->generation
               ? code
               : send_again(l, p.received + 1, 0, err);
}

static int take_resend(struct tw_link *l, const struct tw_link_header *h, tw_error *err) {
    struct tw_link_resend r = {0};
    memcpy(&r, l->in + TW_LINK_HEADER_BYTES, h->length == sizeof r ? sizeof r : 0);
    return send_again(l, h->sequence, r.offset, err);
}

/* True when the answer is whole. */
static bool take_data(struct tw_link *l, const struct tw_link_header *h) {
    TW_ASSERT(h->offset == l->have && h->length <= h->total - h->offset);
    TW_ASSERT(h->total <= TW_LINK_MAX_MESSAGE && l->have <= TW_LINK_MAX_MESSAGE - h->length);
    memcpy(l->message + l->have, l->in + TW_LINK_HEADER_BYTES, h->length);
    l->have += h->length;
    l->asked = l->behind = false;
    tw_link_start_waiting(l);
    TW_ASSERT(l->have <= h->total);
    return l->have == h->total;
}

static bool is_next(const struct tw_link *l, const struct tw_link_header *h) {
    return h->sequence == l->answered + 1 && h->offset == l->have &&
           h->total >= TW_WIRE_HEADER_BYTES && h->length;
}

static bool is_new(const struct tw_link *l, const struct tw_link_header *h) {
    return h->sequence > l->answered + 1 || (h->sequence == l->answered + 1 && h->offset > l->have);
}

/* ---- the vtable's functions ---- */

int tw_link_submit(struct tw_transport *t, const uint8_t *header, const void *payload,
                   uint32_t payload_bytes, tw_error *err) {
    struct tw_link *l = (struct tw_link *)t;
    if (l->dead) {
        return lost_before(l, err);
    }
    if (l->sent - l->answered >= t->credits) {
        return tw_fail(err, TW_E_USAGE, "device %s: %u requests are unanswered already", l->name,
                       t->credits);
    }
    if (payload_bytes > TW_LINK_MAX_PAYLOAD) {
        return tw_fail(err, TW_E_USAGE, "device %s: a payload of %u bytes, at most %u are possible",
                       l->name, payload_bytes, TW_LINK_MAX_PAYLOAD);
    }
    TW_ASSERT(t->credits > 0 && t->credits <= TW_LINK_CREDITS);
    TW_ASSERT(payload || payload_bytes == 0);
    uint32_t i = ++l->sent % TW_LINK_CREDITS;
    memcpy(l->request[i].header, header, TW_WIRE_HEADER_BYTES);
    l->request[i].payload = payload;
    l->request[i].bytes = payload_bytes;
    tw_link_start_waiting(l);
    return send_request(l, l->sent, 0, err);
}

int tw_link_receive(struct tw_transport *t, uint8_t *header, const void **payload,
                    uint32_t *payload_bytes, tw_error *err) {
    struct tw_link *l = (struct tw_link *)t;
    if (l->dead) {
        return lost_before(l, err);
    }
    if (l->sent == l->answered) {
        return tw_fail(err, TW_E_USAGE, "device %s: no request is unanswered", l->name);
    }
    TW_ASSERT(l->sent - l->answered <= t->credits);
    tw_link_start_waiting(l);
    for (int code = 0; !code;) {
        struct tw_link_header h;
        code = tw_link_next_packet(l, &h, err);
        if (code) {
            return code;
        }
        if (was_opened_late(l, &h)) {
            l->generation = h.generation;
            code = send_again(l, 1, 0, err);
        } else if (h.generation > l->generation) {
            return was_reset(l, h.generation, err);
        } else if (h.generation != l->generation) {
            continue; /* a stray */
        } else if (h.kind == TW_LINK_DATA && is_next(l, &h)) {
            if (take_data(l, &h)) {
                break;
            }
        } else if (h.kind == TW_LINK_DATA) {
            code = is_new(l, &h) ? request_resend(l, err) : 0;
        } else if (h.kind == TW_LINK_PROGRESS) {
            code = tw_link_take_progress(l, &h, err);
        } else if (h.kind == TW_LINK_RESEND) {
            code = take_resend(l, &h, err);
        }
        if (code) {
            return code;
        }
    }
    TW_ASSERT(l->have >= TW_WIRE_HEADER_BYTES && l->have <= TW_LINK_MAX_MESSAGE);
    memcpy(header, l->message, TW_WIRE_HEADER_BYTES);
    *payload = l->message + TW_WIRE_HEADER_BYTES;
    *payload_bytes = l->have - TW_WIRE_HEADER_BYTES;
    l->have = 0;
    l->answered++;
    TW_ASSERT(l->answered <= l->sent);
    return 0;
}

bool tw_link_fail_stuck(struct tw_transport *t, struct tw_link_progress *out) {
    const struct tw_link *l = (const struct tw_link *)t;
    *out = l->progress;
    return l->dead == TW_E_TIMEOUT && l->progress.executing == TW_WIRE_RUN &&
           l->progress.at.site != TW_NONE;
}
