/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's end of a link. All waiting is in tw_link_next_packet(): it pings while nothing
 * arrives, and its deadline restarts only when bytes of an answer arrive or the device's progress
 * counter changes. Requests stay in the caller's memory until they are answered, so whatever is
 * lost can be sent again.
 */
#include "driver/transport/link/link_client_internal.h"

#include "firmware/link/packet.h"
#include "loader/base/assert.h"
#include "loader/base/clock.h"
#include "loader/base/lock.h"
#include "tilewright/opcode.h"

#include <stdio.h>
#include <unistd.h>

#define TICK_FIRST_MS 20u
#define TICK_MAX_MS 200u
#define TICKS_PER_DEADLINE 50u /* enough pings that they are not all lost by chance */
/* if longer passes between two reads of the clock, this process was stopped, not the device */
#define PAUSE_MS 1000u
#define LATE_PACKETS 64u /* packets that are still examined after the deadline */
/* With a stop word: the longest wait before another look at it, milliseconds from one CANCEL to the
 * next, and from the first to letting go of a device that does not follow it. */
#define STOP_LOOK_MS 10u
#define CANCEL_TICK_MS 20u
#define CANCEL_MS 1000u
#define MAX_RESENDS 200u /* in one wait, without progress */

/* ---- failing ---- */

static int lost_before(const struct tw_link *l, tw_error *err) {
    return tw_fail(err, TW_E_DEVICE_LOST, "device %s: it was lost earlier (%s); open it again",
                   l->wiring.name, l->end.cause);
}

/* Ends the link for good. `cause` may be in l->end.cause already. */
static int fail_link(struct tw_link *l, int code, const char *cause, tw_error *err) {
    if (cause != l->end.cause) {
        snprintf(l->end.cause, sizeof l->end.cause, "%s", cause);
    }
    TW_ASSERT(code == TW_E_DEVICE_LOST || code == TW_E_TIMEOUT || code == TW_E_VERSION ||
              code == TW_E_INTERRUPTED);
    l->end.code = code;
    if (!l->opening.recovering) {
        l->wiring.pipe->ops->hang_up(l->wiring.pipe);
    }
    return tw_fail(err, code, "device %s: %s", l->wiring.name, l->end.cause);
}

static void add_place(char *text, size_t size, const char *before, const struct tw_place *p,
                      const char *after) {
    size_t n = strlen(text);
    if (p->site != TW_NONE && n < size) {
        const char *op = tw_op_info(p->opcode).name;
        snprintf(text + n, size - n, "%ssite %u, %s, op %u (%s)%s", before, p->site,
                 tw_engine_name(p->engine), p->op_index, op ? op : "?", after);
    }
}

/* The device answers, but makes no progress. */
static int fail_stuck(struct tw_link *l, const char *what, double s, tw_error *err) {
    const struct tw_link_progress *p = &l->conn.progress;
    char where[160] = "";
    if (p->executing == TW_WIRE_RUN) {
        add_place(where, sizeof where, " at ", &p->at, "");
        add_place(where, sizeof where, "; ", &p->waiting, " waits for it");
    }
    snprintf(
        l->end.cause, sizeof l->end.cause,
        "%s made no progress for %.1f s: the device answers, but its progress counter stays at "
        "%llu%s%s%s",
        what, s, (unsigned long long)p->counter, p->executing ? ", in " : "",
        p->executing ? tw_wire_opcode_name(p->executing) : "", where);
    return fail_link(l, TW_E_TIMEOUT, l->end.cause, err);
}

/* Asks for the device's progress out of band, without packets. Returns true if it has made
 * progress, so that the wait continues. */
static bool progresses_out_of_band(struct tw_link *l) {
    struct tw_link_progress p;
    if (!l->wiring.pipe->ops->probe_status ||
        !l->wiring.pipe->ops->probe_status(l->wiring.pipe, &p)) {
        return false;
    }
    bool progressed = p.counter != l->conn.progress.counter || p.received > l->conn.max_received;
    l->conn.progress = p;
    l->wait.progress_at = progressed ? tw_clock_ms() : l->wait.progress_at;
    l->wait.probed = true;
    return progressed;
}

/* The deadline has passed: fails, unless the device makes progress after all (returns 0). What the
 * pings brought back shows the cause. */
static int fail_expired(struct tw_link *l, tw_error *err) {
    TW_ASSERT(!l->end.code && l->conn.sent - l->conn.answered <= TW_LINK_CREDITS);
    if (progresses_out_of_band(l)) {
        return 0;
    }
    double s = 1e-3 * l->wait.deadline_ms;
    const char *what =
        l->conn.sent > l->conn.answered
            ? tw_wire_opcode_name(l->conn.request[(l->conn.answered + 1) % TW_LINK_CREDITS]
                                      .header[TW_WIRE_AT_opcode])
            : "OPEN";
    /* it answered since, and recently */
    bool answers = l->wait.heard_at > l->wait.progress_at &&
                   tw_clock_ms() - l->wait.heard_at < l->wait.deadline_ms / 2;
    if (answers || (l->wait.probed && l->conn.progress.executing)) {
        return fail_stuck(l, what, s, err);
    }
    if (l->wait.all_ones) {
        snprintf(l->end.cause, sizeof l->end.cause,
                 "received only 0xFF for %.1f s: the device has dropped off the bus", s);
    } else if (l->wait.damaged) {
        snprintf(l->end.cause, sizeof l->end.cause,
                 "received only damaged packets for %.1f s (%u of them)", s, l->wait.damaged);
    } else if (l->wait.probed) {
        snprintf(l->end.cause, sizeof l->end.cause,
                 "received no packet for %.1f s during %s, though the device itself is running", s,
                 what);
    } else {
        snprintf(l->end.cause, sizeof l->end.cause, "no answer for %.1f s during %s", s, what);
    }
    return fail_link(l, TW_E_DEVICE_LOST, l->end.cause, err);
}

static int fail_gone(struct tw_link *l, tw_error *err) {
    l->end.pipe_gone = true;
    struct tw_pipe *p = l->wiring.pipe;
    const char *cause = p->ops->cause ? p->ops->cause(p) : NULL;
    return fail_link(l, TW_E_DEVICE_LOST,
                     cause ? cause : "the other side closed the connection: its process has ended",
                     err);
}

static int fail_version(struct tw_link *l, tw_error *err) {
    snprintf(l->end.cause, sizeof l->end.cause,
             "it uses link version %u, this driver %u: upgrade the %s", l->wait.other_version,
             TW_LINK_VERSION,
             l->wait.other_version > TW_LINK_VERSION ? "driver" : "device's firmware");
    return fail_link(l, TW_E_VERSION, l->end.cause, err);
}

/* Returns whether this packet is the answer to our OPEN, after an OPENED of the previous host was
 * mistaken for it: a medium that outlives its hosts may still deliver packets meant for them. Our
 * own is accepted until the first answer has arrived, and all requests are then sent again. */
static bool was_opened_late(const struct tw_link *l, const struct tw_link_header *h) {
    return h->kind == TW_LINK_OPENED && h->generation > l->conn.generation &&
           l->conn.answered == 0 && l->conn.received_bytes == 0;
}

/* Fails after a packet of a later generation: the device no longer knows this open. */
static int fail_reset(struct tw_link *l, uint32_t generation, tw_error *err) {
    snprintf(l->end.cause, sizeof l->end.cause,
             "it was reset in the meantime (its generation is %u, this open's is %u)", generation,
             l->conn.generation);
    return fail_link(l, TW_E_DEVICE_LOST, l->end.cause, err);
}

/* ---- sending ---- */

struct tw_link_header tw_link_new_header(const struct tw_link *l, enum tw_link_kind kind,
                                         uint32_t sequence) {
    return (struct tw_link_header){.kind = (uint8_t)kind,
                                   .flags = tw_packet_check(),
                                   .generation = l->conn.generation,
                                   .sequence = sequence,
                                   .ack = l->conn.answered};
}

/* Returns the time. Extends the deadline by pauses in which this process was stopped or not
 * scheduled. */
static uint64_t read_clock(struct tw_link *l) {
    uint64_t now = tw_clock_ms(), pause = now - l->wait.clock_read_at;
    TW_ASSERT(l->wait.clock_read_at <= now);
    if (pause > PAUSE_MS) {
        l->wait.progress_at = l->wait.progress_at + pause < now ? l->wait.progress_at + pause : now;
    }
    l->wait.clock_read_at = now;
    TW_ASSERT(l->wait.progress_at <= now);
    return now;
}

/* Waits until the pipe may have room for a packet. Fails after the deadline. */
static int wait_for_room(struct tw_link *l, tw_error *err) {
    if (read_clock(l) - l->wait.progress_at >= l->wait.deadline_ms) {
        return fail_expired(l, err);
    }
    l->wiring.pipe->ops->wait(l->wiring.pipe, true, TICK_MAX_MS);
    return 0;
}

/* Builds the packet at h->offset of `data`, in the pipe's memory if it has room, and sends it. */
static int send_packet(struct tw_link *l, struct tw_link_header *h,
                       const struct tw_packet_data *data, tw_error *err) {
    struct tw_pipe *p = l->wiring.pipe;
    TW_ASSERT(p->chunk > 0 && p->chunk <= TW_LINK_CHUNK);
    for (bool waited = false;; waited = true) {
        uint8_t *room = p->ops->room ? p->ops->room(p) : l->out;
        enum tw_packet_result r = TW_PACKET_AGAIN;
        if (room) {
            r = p->ops->send(p, room, tw_packet_build(h, data, p->chunk, room));
        }
        if (r == TW_PACKET_OK && waited && !l->wait.resends) {
            l->wait.progress_at = tw_clock_ms(); /* the other side takes packets */
        }
        if (r != TW_PACKET_AGAIN) {
            return r == TW_PACKET_OK ? 0 : fail_gone(l, err);
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

/* Sends a request's packets from `offset` on. */
static int send_request(struct tw_link *l, uint32_t sequence, uint32_t offset, tw_error *err) {
    uint32_t i = sequence % TW_LINK_CREDITS;
    TW_ASSERT(sequence > l->conn.answered && sequence <= l->conn.sent);
    TW_ASSERT(l->conn.request[i].bytes <= TW_LINK_MAX_PAYLOAD);
    const struct tw_packet_data data = {l->conn.request[i].header, l->conn.request[i].payload,
                                        l->conn.request[i].bytes};
    struct tw_link_header h = tw_link_new_header(l, TW_LINK_DATA, sequence);
    int code = 0;
    for (h.offset = offset; !code && h.offset < TW_WIRE_HEADER_BYTES + data.payload_bytes;
         h.offset += h.length) {
        code = send_packet(l, &h, &data, err);
    }
    return code;
}

/* Sends the unanswered requests again, from byte `offset` of request `from` on. */
static int resend(struct tw_link *l, uint32_t from, uint32_t offset, tw_error *err) {
    int code = 0;
    if (++l->wait.resends > MAX_RESENDS) {
        return fail_link(l, TW_E_DEVICE_LOST, "it keeps requesting the same data again", err);
    }
    if (from <= l->conn.answered) { /* it has received that one in the meantime */
        from = l->conn.answered + 1;
        offset = 0;
    }
    TW_ASSERT(from > l->conn.answered);
    for (uint32_t n = from; !code && n <= l->conn.sent; n++) {
        l->base.count.resent++;
        code = send_request(l, n, n == from ? offset : 0, err);
    }
    return code;
}

static int request_resend(struct tw_link *l, tw_error *err) {
    if (l->conn.resend_requested || l->conn.generation == 0) {
        return 0;
    }
    TW_ASSERT(l->conn.received_bytes < TW_LINK_MAX_MESSAGE);
    l->conn.resend_requested = true;
    l->base.count.resent++;
    struct tw_link_resend r = {.offset = l->conn.received_bytes};
    return send_small(l, tw_link_new_header(l, TW_LINK_RESEND, l->conn.answered + 1), &r, sizeof r,
                      err);
}

int tw_link_send_open(struct tw_link *l, uint32_t flags, tw_error *err) {
    struct tw_link_open q = {.flags = flags, .pid = (uint32_t)getpid(), .nonce = l->wiring.nonce};
    tw_lock_own_name(q.command);
    return send_small(l, tw_link_new_header(l, TW_LINK_OPEN, 0), &q, sizeof q, err);
}

/* ---- waiting ---- */

static uint32_t max_tick(const struct tw_link *l) {
    uint32_t max = l->wait.deadline_ms / TICKS_PER_DEADLINE;
    return max < TICK_FIRST_MS ? TICK_FIRST_MS : max < TICK_MAX_MS ? max : TICK_MAX_MS;
}

void tw_link_start_waiting(struct tw_link *l) {
    l->wait.progress_at = l->wait.pinged_at = l->wait.clock_read_at = tw_clock_ms();
    l->wait.tick_ms = TICK_FIRST_MS;
    l->wait.damaged = l->wait.late = l->wait.resends = l->wait.other_version = 0;
    l->wait.all_ones = l->wait.probed = false;
    l->wait.cancelled_at = l->wait.cancel_sent_at = 0;
}

static int ping(struct tw_link *l, uint64_t now, tw_error *err) {
    l->wait.pinged_at = now;
    l->conn.pinged = l->conn.sent;
    l->wait.tick_ms = l->wait.tick_ms * 2 < max_tick(l) ? l->wait.tick_ms * 2 : max_tick(l);
    l->conn.resend_requested = false; /* the request to resend may have been lost */
    int code = l->conn.generation ? 0 : tw_link_send_open(l, 0, err);
    return code ? code : send_small(l, tw_link_new_header(l, TW_LINK_PING, 0), NULL, 0, err);
}

/* Has the device end what it is executing for us, if the owner's stop word says so. CANCEL is sent
 * again until the answer arrives, for it may be lost. Fails if the device does not follow. */
static int follow_stop(struct tw_link *l, uint64_t now, tw_error *err) {
    if (l->conn.sent == l->conn.answered || !tw_grace_is_over(&l->grace, &l->base)) {
        return 0;
    }
    if (!l->base.can_cancel) {
        return fail_link(l, TW_E_INTERRUPTED,
                         "interrupted; it cannot end a step that is running, so the connection was "
                         "closed, which resets it",
                         err);
    }
    if (l->wait.cancelled_at && now - l->wait.cancelled_at >= CANCEL_MS) {
        return fail_link(l, TW_E_INTERRUPTED,
                         "interrupted; it did not end the step that is running, so the connection "
                         "was closed, which resets it",
                         err);
    }
    if (l->wait.cancel_sent_at && now - l->wait.cancel_sent_at < CANCEL_TICK_MS) {
        return 0;
    }
    l->wait.cancelled_at = l->wait.cancelled_at ? l->wait.cancelled_at : now;
    l->wait.cancel_sent_at = now;
    return send_small(l, tw_link_new_header(l, TW_LINK_CANCEL, l->conn.sent), NULL, 0, err);
}

static void record_damage(struct tw_link *l, size_t n) {
    struct tw_link_header h;
    const char *why;
    if (tw_link_decode(l->in, n, &h, &why) == TW_E_VERSION) {
        l->wait.other_version = h.version;
    }
    l->wait.damaged++;
    l->base.count.damaged++;
    l->wait.all_ones = true;
    for (size_t i = 0; i < n; i++) {
        l->wait.all_ones = l->wait.all_ones && l->in[i] == 0xFF;
    }
}

/* Handles an iteration of the wait without a good packet: there was none, or a damaged one of n
 * bytes. */
static int idle(struct tw_link *l, uint64_t now, bool damaged, size_t n, tw_error *err) {
    if (damaged) {
        record_damage(l, n);
    }
    if (l->wait.other_version) {
        return fail_version(l, err);
    }
    if (now - l->wait.progress_at >= l->wait.deadline_ms) {
        return fail_expired(l, err);
    }
    if (damaged) {
        return request_resend(l, err);
    }
    if (now - l->wait.pinged_at >= l->wait.tick_ms) {
        return ping(l, now, err);
    }
    TW_ASSERT(l->wait.pinged_at <= now && l->wait.progress_at <= now && l->wait.tick_ms > 0);
    uint64_t tick = l->wait.pinged_at + l->wait.tick_ms - now,
             left = l->wait.progress_at + l->wait.deadline_ms - now;
    left = tick < left ? tick : left;
    left = tw_stop_words_exist(&l->base) && left > STOP_LOOK_MS ? STOP_LOOK_MS : left;
    l->wiring.pipe->ops->wait(l->wiring.pipe, false, (int)left);
    return 0;
}

int tw_link_next_packet(struct tw_link *l, struct tw_link_header *h, tw_error *err) {
    TW_ASSERT(!l->end.code && l->wait.deadline_ms > 0);
    for (;;) {
        size_t n = 0;
        enum tw_packet_result r = l->wiring.pipe->ops->take(l->wiring.pipe, &l->in, &n);
        if (r == TW_PACKET_GONE) {
            return fail_gone(l, err);
        }
        uint64_t now = read_clock(l);
        int code = follow_stop(l, now, err);
        if (code) {
            return code;
        }
        TW_ASSERT(r != TW_PACKET_OK || (l->in && n <= TW_PACKET_BYTES));
        bool good = r == TW_PACKET_OK && tw_packet_good(l->in, n, h);
        l->wait.heard_at = good ? now : l->wait.heard_at;
        /* Some packets that arrived in time may be read late; but a flood of packets without news
         * is not progress. */
        if (good &&
            (now - l->wait.progress_at < l->wait.deadline_ms || ++l->wait.late <= LATE_PACKETS)) {
            return 0;
        }
        code = good ? fail_expired(l, err) : idle(l, now, r == TW_PACKET_OK, n, err);
        if (code) {
            return code;
        }
    }
}

static void report_progress(const struct tw_link *l) {
    if (l->base.on_progress) {
        l->base.on_progress(l->base.progress_ctx);
    }
}

int tw_link_take_progress(struct tw_link *l, const struct tw_link_header *h, tw_error *err) {
    struct tw_link_progress p;
    if (h->length != sizeof p) {
        return 0;
    }
    memcpy(&p, l->in + TW_LINK_HEADER_BYTES, sizeof p);
    if (p.counter != l->conn.progress.counter || p.received > l->conn.max_received) {
        l->wait.progress_at = l->wait.heard_at;
        l->wait.resends = l->wait.late = 0;
        report_progress(l);
    }
    l->conn.max_received = p.received > l->conn.max_received ? p.received : l->conn.max_received;
    l->conn.progress = p;
    bool missing = p.answered > l->conn.answered && l->conn.generation;
    bool ask = missing && l->conn.missed_answer; /* seen twice: it is not just in transit */
    l->conn.missed_answer = missing;
    int code = ask ? request_resend(l, err) : 0;
    return code || p.received >= l->conn.pinged || !l->conn.generation
               ? code
               : resend(l, p.received + 1, 0, err);
}

static int take_resend(struct tw_link *l, const struct tw_link_header *h, tw_error *err) {
    struct tw_link_resend r = {0};
    memcpy(&r, l->in + TW_LINK_HEADER_BYTES, h->length == sizeof r ? sizeof r : 0);
    return resend(l, h->sequence, r.offset, err);
}

/* Appends the packet's data to the answer. Returns true when it is complete. */
static bool take_data(struct tw_link *l, const struct tw_link_header *h) {
    TW_ASSERT(h->offset == l->conn.received_bytes && h->length <= h->total - h->offset);
    TW_ASSERT(h->total <= TW_LINK_MAX_MESSAGE &&
              l->conn.received_bytes <= TW_LINK_MAX_MESSAGE - h->length);
    memcpy(l->conn.message + l->conn.received_bytes, l->in + TW_LINK_HEADER_BYTES, h->length);
    l->conn.received_bytes += h->length;
    l->conn.resend_requested = l->conn.missed_answer = false;
    tw_link_start_waiting(l);
    TW_ASSERT(l->conn.received_bytes <= h->total);
    return l->conn.received_bytes == h->total;
}

static bool is_next(const struct tw_link *l, const struct tw_link_header *h) {
    return h->sequence == l->conn.answered + 1 && h->offset == l->conn.received_bytes &&
           h->total >= TW_WIRE_HEADER_BYTES && h->length;
}

static bool is_new(const struct tw_link *l, const struct tw_link_header *h) {
    return h->sequence > l->conn.answered + 1 ||
           (h->sequence == l->conn.answered + 1 && h->offset > l->conn.received_bytes);
}

/* ---- the vtable's functions ---- */

int tw_link_submit(struct tw_transport *t, const uint8_t *header, const void *payload,
                   uint32_t payload_bytes, tw_error *err) {
    struct tw_link *l = (struct tw_link *)t;
    if (l->end.code) {
        return lost_before(l, err);
    }
    if (l->conn.sent - l->conn.answered >= t->credits) {
        return tw_fail(err, TW_E_USAGE, "device %s: %u requests are in flight, its maximum",
                       l->wiring.name, t->credits);
    }
    if (payload_bytes > TW_LINK_MAX_PAYLOAD) {
        return tw_fail(err, TW_E_USAGE, "device %s: payload of %u bytes, expected at most %u",
                       l->wiring.name, payload_bytes, TW_LINK_MAX_PAYLOAD);
    }
    TW_ASSERT(t->credits > 0 && t->credits <= TW_LINK_CREDITS);
    TW_ASSERT(payload || payload_bytes == 0);
    uint32_t i = ++l->conn.sent % TW_LINK_CREDITS;
    memcpy(l->conn.request[i].header, header, TW_WIRE_HEADER_BYTES);
    l->conn.request[i].payload = payload;
    l->conn.request[i].bytes = payload_bytes;
    tw_link_start_waiting(l);
    return send_request(l, l->conn.sent, 0, err);
}

int tw_link_receive(struct tw_transport *t, uint8_t *header, const void **payload,
                    uint32_t *payload_bytes, tw_error *err) {
    struct tw_link *l = (struct tw_link *)t;
    if (l->end.code) {
        return lost_before(l, err);
    }
    if (l->conn.sent == l->conn.answered) {
        return tw_fail(err, TW_E_USAGE, "device %s: no request is unanswered", l->wiring.name);
    }
    TW_ASSERT(l->conn.sent - l->conn.answered <= t->credits);
    tw_link_start_waiting(l);
    for (int code = 0; !code;) {
        struct tw_link_header h;
        code = tw_link_next_packet(l, &h, err);
        if (code) {
            return code;
        }
        if (was_opened_late(l, &h)) {
            l->conn.generation = h.generation;
            code = resend(l, 1, 0, err);
        } else if (h.generation > l->conn.generation) {
            return fail_reset(l, h.generation, err);
        } else if (h.generation != l->conn.generation) {
            continue; /* from an earlier open */
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
    TW_ASSERT(l->conn.received_bytes >= TW_WIRE_HEADER_BYTES &&
              l->conn.received_bytes <= TW_LINK_MAX_MESSAGE);
    memcpy(header, l->conn.message, TW_WIRE_HEADER_BYTES);
    *payload = l->conn.message + TW_WIRE_HEADER_BYTES;
    *payload_bytes = l->conn.received_bytes - TW_WIRE_HEADER_BYTES;
    l->conn.received_bytes = 0;
    l->conn.answered++;
    TW_ASSERT(l->conn.answered <= l->conn.sent);
    return 0;
}

bool tw_link_is_stuck(struct tw_transport *t, struct tw_link_progress *out) {
    const struct tw_link *l = (const struct tw_link *)t;
    *out = l->conn.progress;
    return l->end.code == TW_E_TIMEOUT && l->conn.progress.executing == TW_WIRE_RUN &&
           l->conn.progress.at.site != TW_NONE;
}
