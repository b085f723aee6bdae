/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and closing a link: the handshake with the device, and the pipe's recovery ladder if it
 * does not answer.
 */
#include "driver/transport/link/link_client_internal.h"

#include "firmware/link/packet.h"
#include "loader/base/assert.h"
#include "loader/base/clock.h"
#include "loader/base/lock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int finish_open(struct tw_link *l, tw_error *err) {
    struct tw_link_opened *o = &l->opening.answer;
    o->holder[sizeof o->holder - 1] = o->target[sizeof o->target - 1] =
        o->device[sizeof o->device - 1] = 0;
    if (o->status == TW_E_DEVICE_BUSY) {
        char stopped[64];
        tw_lock_note_stopped(o->holder_pid, stopped);
        return tw_fail(err, TW_E_DEVICE_BUSY, "device %s: process %u (%s) is using it%s",
                       l->wiring.name, o->holder_pid, o->holder, stopped);
    }
    if (o->status || o->credits == 0 || o->credits > TW_LINK_CREDITS ||
        o->max_payload != TW_LINK_MAX_PAYLOAD || o->generation == 0) {
        return tw_fail(err, TW_E_PROTOCOL,
                       "device %s: invalid answer to OPEN: status %d, generation %u, %u credits, "
                       "payloads of %u bytes",
                       l->wiring.name, o->status, o->generation, o->credits, o->max_payload);
    }
    TW_ASSERT(l->conn.sent == 0 && l->conn.answered == 0 && l->conn.received_bytes == 0);
    l->conn.generation = o->generation;
    l->base.credits = o->credits;
    return 0;
}

static int shake_hands(struct tw_link *l, tw_error *err) {
    tw_link_start_waiting(l);
    int code = tw_link_send_open(l, 0, err);
    while (!code) {
        struct tw_link_header h;
        code = tw_link_next_packet(l, &h, err);
        if (code) {
            return code;
        }
        if (h.kind == TW_LINK_PROGRESS) {
            code = tw_link_take_progress(l, &h, err);
        } else if (h.kind == TW_LINK_OPENED && h.length == sizeof l->opening.answer) {
            memcpy(&l->opening.answer, l->in + TW_LINK_HEADER_BYTES, sizeof l->opening.answer);
            return finish_open(l, err);
        }
    }
    return code;
}

static void dispose(struct tw_link *l) {
    l->wiring.pipe->ops->close(l->wiring.pipe);
    free(l->conn.message);
    free(l);
}

/* "both endpoints were reset, the device was reset" */
static void record_recovery(struct tw_link *l, const char *done) {
    size_t n = strlen(l->opening.recovered);
    snprintf(l->opening.recovered + n, sizeof l->opening.recovered - n, "%s%s", n ? ", " : "",
             done);
}

/* Opens the device, and takes one recovery step after the other until it answers. */
static int open_device(struct tw_link *l, tw_error *err) {
    uint32_t deadline = l->wait.deadline_ms;
    bool ladder = l->opening.recovering = l->wiring.pipe->ops->recover != NULL;
    l->wait.deadline_ms = ladder && deadline > 4000 ? deadline / 4 : deadline;
    tw_error e = {0};
    int code = shake_hands(l, &e);
    for (unsigned rung = 0;
         ladder && l->end.code && l->end.code != TW_E_VERSION && !l->end.pipe_gone; rung++) {
        const char *done = l->wiring.pipe->ops->recover(l->wiring.pipe, rung);
        if (!done) {
            break;
        }
        if (*done) {
            record_recovery(l, done);
            l->end.code = 0;
            code = shake_hands(l, &e);
        }
    }
    TW_ASSERT(code || !l->end.code);
    l->wait.deadline_ms = deadline;
    l->opening.recovering = false;
    if (l->end.code && l->opening.recovered[0]) { /* else the device answered and refused */
        return tw_fail(err, code, "%s; tried: %s; unplug it and plug it in again", e.message,
                       l->opening.recovered);
    }
    return code ? tw_fail(err, code, "%s", e.message) : 0;
}

/* Returns a number that no other open of a device has. */
static uint64_t new_nonce(void) {
    static _Atomic uint32_t count;
    uint64_t seed = tw_clock_real_ns() ^ ((uint64_t)getpid() << 40);
    return (seed + (uint64_t)atomic_fetch_add(&count, 1) * 0x9E3779B97F4A7C15u) | 1;
}

int tw_link_open(const char *name, struct tw_pipe *pipe, uint32_t deadline_ms, struct tw_link **out,
                 tw_error *err) {
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
    snprintf(l->wiring.name, sizeof l->wiring.name, "%s", name);
    l->wiring.pipe = pipe;
    l->conn.message = message;
    l->base.recovered = l->opening.recovered;
    l->wiring.nonce = new_nonce();
    l->wait.deadline_ms = deadline_ms ? deadline_ms : TW_LINK_DEADLINE_MS;
    int code = open_device(l, err);
    if (code) {
        dispose(l);
        return code;
    }
    TW_ASSERT(l->conn.generation != 0 && l->base.credits > 0);
    *out = l;
    return 0;
}

static bool query_opened(struct tw_link *l, int ms, struct tw_link_opened *out) {
    struct tw_link_header h;
    size_t n;
    bool answered = tw_link_send_open(l, TW_LINK_QUERY, NULL) == 0 &&
                    l->wiring.pipe->ops->wait(l->wiring.pipe, false, ms) &&
                    l->wiring.pipe->ops->take(l->wiring.pipe, &l->in, &n) == TW_PACKET_OK &&
                    tw_packet_good(l->in, n, &h) && h.kind == TW_LINK_OPENED &&
                    h.length == sizeof *out;
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
    l->wiring.pipe = pipe;
    l->wait.deadline_ms = (uint32_t)ms;
    l->wait.progress_at = tw_clock_ms();
    l->wiring.nonce = new_nonce();
    bool answered = query_opened(l, ms, out);
    free(l);
    return answered;
}

void tw_link_close(struct tw_transport *t) {
    struct tw_link *l = (struct tw_link *)t;
    void (*closed)(void *) = l->wiring.closed;
    void *owner = l->wiring.owner;
    TW_ASSERT(l->conn.answered <= l->conn.sent);
    if (!l->end.code) {
        struct tw_link_header h = tw_link_new_header(l, TW_LINK_CLOSE, 0);
        const struct tw_packet_data none = {NULL, NULL, 0};
        uint8_t *room =
            l->wiring.pipe->ops->room ? l->wiring.pipe->ops->room(l->wiring.pipe) : l->out;
        if (room) { /* best effort: without CLOSE the device resets itself */
            l->wiring.pipe->ops->send(l->wiring.pipe, room,
                                      tw_packet_build(&h, &none, l->wiring.pipe->chunk, room));
        }
    }
    dispose(l);
    if (closed) {
        closed(owner);
    }
}
