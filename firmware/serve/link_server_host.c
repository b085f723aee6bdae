/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes from the host of a served device, packet by packet: parts of requests, questions, its
 * end. With the lock; a function that returns false means: the host has to go.
 */
#include "firmware/serve/link_server_internal.h"

#include "firmware/link/packet.h"
#include "loader/base/assert.h"

static bool request_resend(struct tw_link_server *s) {
    if (s->asked) {
        return true;
    }
    TW_ASSERT(s->host && tw_link_server_sound(s));
    s->asked = true;
    struct tw_link_resend r = {.offset = s->have};
    struct tw_link_header h = {
        .kind = TW_LINK_RESEND, .generation = s->generation, .sequence = s->received + 1};
    return tw_link_server_send(s, s->host, &h, &r, sizeof r);
}

static bool take_data(struct tw_link_server *s, const struct tw_link_header *h,
                      const uint8_t *bytes) {
    if (h->sequence <= s->received || (h->sequence == s->received + 1 && h->offset < s->have)) {
        return true; /* a repetition */
    }
    if (h->sequence != s->received + 1 || h->offset != s->have || h->total < TW_WIRE_HEADER_BYTES) {
        return request_resend(s);
    }
    if (h->sequence - s->executed > TW_LINK_CREDITS) {
        return true; /* a host that ignores its credits */
    }
    struct slot *r = tw_link_server_slot(s->request, h->sequence);
    TW_ASSERT(h->sequence == s->received + 1 && h->offset == s->have);
    TW_ASSERT(h->total <= TW_LINK_MAX_MESSAGE && h->length <= h->total - h->offset);
    memcpy(r->bytes + h->offset, bytes, h->length);
    s->have += h->length;
    s->asked = false;
    TW_ASSERT(s->have <= h->total);
    if (s->have == h->total) {
        r->n = h->total;
        s->have = 0;
        s->received++;
        TW_ASSERT(tw_link_server_sound(s));
        if (!tw_link_server_execute_short(s)) {
            pthread_cond_broadcast(&s->work);
        }
    }
    return true;
}

/* The kept answers from byte `offset` of number `from` on. What a host has that keeps to its
 * credits is not kept: its place is, or will be, another answer's. */
static bool send_again(struct tw_link_server *s, uint32_t from, uint32_t offset) {
    bool there = true;
    TW_ASSERT(tw_link_server_sound(s));
    uint32_t kept = TW_LINK_CREDITS - (s->executing ? 1 : 0);
    for (uint32_t n = from; there && n > s->acked && n <= s->executed && s->executed - n < kept;
         n++) {
        struct tw_link_header h = {.kind = TW_LINK_DATA,
                                   .generation = s->generation,
                                   .sequence = n,
                                   .ack = s->received,
                                   .offset = n == from ? offset : 0};
        there =
            tw_link_server_send_answer(s, s->host, &h, tw_link_server_slot(s->answer, n), false);
    }
    return there;
}

static void fill_progress(struct tw_link_server *s, struct tw_link_progress *p) {
    memset(p, 0, sizeof *p);
    tw_emu_progress(s->emu, p);
    p->beat += atomic_load_explicit(&s->beat, memory_order_relaxed);
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

static bool handle(struct tw_link_server *s, uint8_t *bytes, size_t n) {
    struct tw_link_header h;
    struct tw_link_resend again = {0};
    if (!tw_packet_good(bytes, n, &h)) {
        return !s->opened || request_resend(s);
    }
    atomic_store_explicit(&s->check, h.flags & TW_LINK_MIXED, memory_order_relaxed);
    s->heard_at = tw_packet_now();
    s->heard = h.kind;
    if (h.kind == TW_LINK_OPEN) {
        return !s->opened || tw_link_server_send_opened(s); /* it did not hear the first answer */
    }
    if (h.kind == TW_LINK_PING && !s->opened) {
        return tw_link_server_send_progress(s);
    }
    if (h.generation != s->generation || !s->opened) {
        return h.kind != TW_LINK_PING ||
               tw_link_server_send_progress(s); /* a stray; or one who does not know of a reset: our
                                                              generation tells */
    }
    s->acked = h.ack > s->acked && h.ack <= s->executed ? h.ack : s->acked;
    TW_ASSERT(tw_link_server_sound(s) && n == TW_LINK_HEADER_BYTES + h.length);
    switch (h.kind) {
    case TW_LINK_DATA:
        return take_data(s, &h, bytes + TW_LINK_HEADER_BYTES);
    case TW_LINK_RESEND:
        memcpy(&again, bytes + TW_LINK_HEADER_BYTES, h.length == sizeof again ? sizeof again : 0);
        return send_again(s, h.sequence, again.offset);
    case TW_LINK_PING:
        s->asked = false; /* whatever was asked for may have been lost */
        return tw_link_server_send_progress(s);
    case TW_LINK_CLOSE:
        s->said_close = true;
        return false;
    default:
        return true;
    }
}

/* A packet through the faults. */
static bool pass_in(struct tw_link_server *s, uint8_t *bytes, size_t n) {
    struct tw_faults_packet v = tw_faults_pass(s->faults, bytes, &n, false);
    if (v.late_ms) {
        tw_link_server_sleep(v.late_ms);
    }
    bool there = !v.vanish;
    for (uint32_t i = 0; there && i < v.copies; i++) {
        there = handle(s, bytes, n);
    }
    return there;
}

void tw_link_server_take(struct tw_link_server *s) {
    pthread_mutex_lock(&s->lock);
    struct tw_pipe *host = s->host;
    bool there = host != NULL;
    /* A few packets at a time, so that other descriptors get their turn. */
    for (int i = 0; there && i < 16; i++) {
        uint8_t *bytes;
        size_t n;
        enum tw_packet_result r = host->ops->take(host, &bytes, &n);
        if (r == TW_PACKET_AGAIN) {
            break;
        }
        TW_ASSERT(r != TW_PACKET_OK || n <= TW_PACKET_BYTES);
        there = r == TW_PACKET_OK && pass_in(s, bytes, n);
    }
    if (!there) {
        tw_link_server_detach(s, s->said_close ? AFTER_CLOSE : AFTER_DEATH);
    }
    pthread_mutex_unlock(&s->lock);
}
