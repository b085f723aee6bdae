/* SPDX-License-Identifier: Apache-2.0
 *
 * A link's life: shaking hands with the device, climbing the pipe's ladder where it does not
 * answer, closing.
 */
#include "driver/transport/link/link_client_internal.h"

#include "firmware/link/packet.h"
#include "loader/base/assert.h"
#include "loader/base/lock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int finish_open(struct tw_link *l, tw_error *err) {
    struct tw_link_opened *o = &l->opened;
    o->holder[sizeof o->holder - 1] = o->target[sizeof o->target - 1] =
        o->device[sizeof o->device - 1] = 0;
    if (o->status == TW_E_DEVICE_BUSY) {
        char stopped[64];
        tw_lock_note_stopped(o->holder_pid, stopped);
        return tw_fail(err, TW_E_DEVICE_BUSY, "device %s: process %u (%s) has it%s", l->name,
                       o->holder_pid, o->holder, stopped);
    }
    if (o->status || o->credits == 0 || o->credits > TW_LINK_CREDITS ||
        o->max_payload != TW_LINK_MAX_PAYLOAD || o->generation == 0) {
        return tw_fail(err, TW_E_PROTOCOL,
                       "device %s: it opened with status %d, %u credits and payloads of %u bytes",
                       l->name, o->status, o->credits, o->max_payload);
    }
    TW_ASSERT(l->sent == 0 && l->answered == 0 && l->have == 0);
    l->generation = o->generation;
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
    for (unsigned rung = 0; ladder && l->dead && l->dead != TW_E_VERSION && !l->gone; rung++) {
        const char *done = l->pipe->ops->recover(l->pipe, rung);
        if (!done) {
            break;
        }
        if (*done) {
            note_rung(l, done);
            l->dead = 0;
            code = shake_hands(l, &e);
        }
    }
    TW_ASSERT(code || !l->dead);
    l->deadline_ms = deadline;
    l->climbing = false;
    if (l->dead && l->recovered[0]) { /* one that answers has a reason of its own */
        return tw_fail(err, code, "%s; tried: %s; unplug it and plug it in again", e.message,
                       l->recovered);
    }
    return code ? tw_fail(err, code, "%s", e.message) : 0;
}

/* Of all opens of a device the only one with this number. */
static uint64_t new_nonce(void) {
    static _Atomic uint32_t count;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t mix =
        ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec) ^ ((uint64_t)getpid() << 40);
    return (mix + (uint64_t)atomic_fetch_add(&count, 1) * 0x9E3779B97F4A7C15u) | 1;
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
    snprintf(l->name, sizeof l->name, "%s", name);
    l->pipe = pipe;
    l->message = message;
    l->base.recovered = l->recovered;
    l->nonce = new_nonce();
    l->deadline_ms = deadline_ms ? deadline_ms : TW_LINK_DEADLINE_MS;
    int code = open_device(l, err);
    if (code) {
        dispose(l);
        return code;
    }
    TW_ASSERT(l->generation != 0 && l->base.credits > 0);
    *out = l;
    return 0;
}

static bool await_state(struct tw_link *l, int ms, struct tw_link_opened *out) {
    struct tw_link_header h;
    size_t n;
    bool answered =
        tw_link_send_open(l, TW_LINK_QUERY, NULL) == 0 && l->pipe->ops->wait(l->pipe, false, ms) &&
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

void tw_link_close(struct tw_transport *t) {
    struct tw_link *l = (struct tw_link *)t;
    void (*closed)(void *) = l->closed;
    void *owner = l->owner;
    TW_ASSERT(l->answered <= l->sent);
    if (!l->dead) {
        struct tw_link_header h = tw_link_new_header(l, TW_LINK_CLOSE, 0);
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
