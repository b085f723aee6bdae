/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles the host's packets: parts of requests, RESEND, PING, CANCEL, CLOSE. The static functions
 * need the lock; those that return bool return false if the host must be detached.
 */
#include "firmware/serve/link_server_internal.h"

#include "firmware/link/packet.h"
#include "loader/base/assert.h"
#include "loader/base/clock.h"

static bool request_resend(struct tw_link_server *s) {
    if (s->resend_requested) {
        return true;
    }
    TW_ASSERT(s->host && tw_link_server_sound(s));
    s->resend_requested = true;
    struct tw_link_resend r = {.offset = s->received_bytes};
    struct tw_link_header h = {
        .kind = TW_LINK_RESEND, .generation = s->generation, .sequence = s->received + 1};
    return tw_link_server_send(s, s->host, &h, &r, sizeof r);
}

static bool take_data(struct tw_link_server *s, const struct tw_link_header *h,
                      const uint8_t *bytes) {
    if (h->sequence <= s->received ||
        (h->sequence == s->received + 1 && h->offset < s->received_bytes)) {
        return true; /* received before */
    }
    if (h->sequence != s->received + 1 || h->offset != s->received_bytes ||
        h->total < TW_WIRE_HEADER_BYTES) {
        return request_resend(s);
    }
    if (h->sequence - s->executed > TW_LINK_CREDITS) {
        return true; /* the host ignores its credits: drop it */
    }
    struct slot *r = tw_link_server_slot(s->request, h->sequence);
    TW_ASSERT(h->sequence == s->received + 1 && h->offset == s->received_bytes);
    TW_ASSERT(h->total <= TW_LINK_MAX_MESSAGE && h->length <= h->total - h->offset);
    memcpy(r->bytes + h->offset, bytes, h->length);
    s->received_bytes += h->length;
    s->resend_requested = false;
    TW_ASSERT(s->received_bytes <= h->total);
    if (s->received_bytes == h->total) {
        r->n = h->total;
        s->received_bytes = 0;
        s->received++;
        TW_ASSERT(tw_link_server_sound(s));
        if (!tw_link_server_execute_short(s)) {
            pthread_cond_broadcast(&s->work);
        }
    }
    return true;
}

/* Resends the kept answers, from byte `offset` of number `from` on. Answers older than the credits
 * allow are not resent: their slots hold, or will hold, newer ones. */
static bool resend_answers(struct tw_link_server *s, uint32_t from, uint32_t offset) {
    bool connected = true;
    TW_ASSERT(tw_link_server_sound(s));
    uint32_t kept = TW_LINK_CREDITS - (s->executing ? 1 : 0);
    for (uint32_t n = from; connected && n > s->acked && n <= s->executed && s->executed - n < kept;
         n++) {
        struct tw_link_header h = {.kind = TW_LINK_DATA,
                                   .generation = s->generation,
                                   .sequence = n,
                                   .ack = s->received,
                                   .offset = n == from ? offset : 0};
        connected =
            tw_link_server_send_answer(s, s->host, &h, tw_link_server_slot(s->answer, n), false);
    }
    return connected;
}

static void fill_progress(struct tw_link_server *s, struct tw_link_progress *p) {
    memset(p, 0, sizeof *p);
    tw_emu_progress(s->emu, p);
    p->counter += atomic_load_explicit(&s->progress, memory_order_relaxed);
    p->received = s->received;
    p->answered = s->executed;
    p->executing = s->executing;
    p->program = s->program;
}

void tw_link_server_progress(struct tw_link_server *s, struct tw_link_progress *progress,
                             uint32_t *generation) {
    pthread_mutex_lock(&s->lock);
    fill_progress(s, progress);
    *generation = s->host ? s->generation : 0;
    pthread_mutex_unlock(&s->lock);
}

bool tw_link_server_send_progress(struct tw_link_server *s) {
    struct tw_link_progress p;
    fill_progress(s, &p);
    tw_faults_inject_progress(s->faults, &p);
    struct tw_link_header h = {
        .kind = TW_LINK_PROGRESS, .generation = s->generation, .ack = s->received};
    return tw_link_server_send(s, s->host, &h, &p, sizeof p);
}

/* Cancels the requests up to number `sequence`: the one that is executing now, and the others when
 * their turn comes. Those that have been executed are not affected (the host may have sent the
 * CANCEL before it had the answer), nor are later ones. */
static void take_cancel(struct tw_link_server *s, uint32_t sequence) {
    TW_ASSERT(s->host && tw_link_server_sound(s));
    s->cancelled = sequence > s->cancelled ? sequence : s->cancelled;
    if (s->executing && s->executed < s->cancelled) {
        tw_server_cancel(tw_emu_server(s->emu), true);
    }
}

static bool handle(struct tw_link_server *s, uint8_t *bytes, size_t n) {
    struct tw_link_header h;
    struct tw_link_resend resend = {0};
    if (!tw_packet_good(bytes, n, &h)) {
        return !s->opened || request_resend(s);
    }
    atomic_store_explicit(&s->check, h.flags & TW_LINK_CHECKSUM, memory_order_relaxed);
    s->last_packet_ms = tw_clock_ms();
    s->last_kind = h.kind;
    if (h.kind == TW_LINK_OPEN) {
        return !s->opened || tw_link_server_send_opened(s); /* the first answer was lost */
    }
    if (h.kind == TW_LINK_PING && !s->opened) {
        return tw_link_server_send_progress(s);
    }
    if (h.generation != s->generation || !s->opened) {
        /* stale; but a PING may come from a host that missed a reset: it gets our generation */
        return h.kind != TW_LINK_PING || tw_link_server_send_progress(s);
    }
    s->acked = h.ack > s->acked && h.ack <= s->executed ? h.ack : s->acked;
    TW_ASSERT(tw_link_server_sound(s) && n == TW_LINK_HEADER_BYTES + h.length);
    switch (h.kind) {
    case TW_LINK_DATA:
        return take_data(s, &h, bytes + TW_LINK_HEADER_BYTES);
    case TW_LINK_RESEND:
        memcpy(&resend, bytes + TW_LINK_HEADER_BYTES,
               h.length == sizeof resend ? sizeof resend : 0);
        return resend_answers(s, h.sequence, resend.offset);
    case TW_LINK_PING:
        s->resend_requested = false; /* the request or its answer may have been lost */
        return tw_link_server_send_progress(s);
    case TW_LINK_CANCEL:
        take_cancel(s, h.sequence);
        return true;
    case TW_LINK_CLOSE:
        s->close_received = true;
        return false;
    default:
        return true;
    }
}

/* Passes a received packet through the fault plan, then handles it. */
static bool receive(struct tw_link_server *s, uint8_t *bytes, size_t n) {
    struct tw_faults_packet v = tw_faults_pass(s->faults, bytes, &n, false);
    if (v.late_ms) {
        tw_link_server_sleep(v.late_ms);
    }
    bool connected = !v.vanish;
    for (uint32_t i = 0; connected && i < v.copies; i++) {
        connected = handle(s, bytes, n);
    }
    return connected;
}

void tw_link_server_take(struct tw_link_server *s) {
    pthread_mutex_lock(&s->lock);
    struct tw_pipe *host = s->host;
    bool connected = host != NULL;
    /* A few packets at a time, so that other descriptors get their turn. */
    for (int i = 0; connected && i < 16; i++) {
        uint8_t *bytes;
        size_t n;
        enum tw_packet_result r = host->ops->take(host, &bytes, &n);
        if (r == TW_PACKET_AGAIN) {
            break;
        }
        TW_ASSERT(r != TW_PACKET_OK || n <= TW_PACKET_BYTES);
        connected = r == TW_PACKET_OK && receive(s, bytes, n);
    }
    if (!connected) {
        tw_link_server_detach(s, s->close_received ? CLEANUP_RELEASE : CLEANUP_RESET);
    }
    pthread_mutex_unlock(&s->lock);
}
