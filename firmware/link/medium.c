/* SPDX-License-Identifier: Apache-2.0
 *
 * A line. The packet that begins a call is looked at where it is taken from the medium, by the call
 * before or by tw_medium_accept, and kept for the call that it begins.
 */
#include "firmware/link/medium.h"

#include "firmware/link/packet.h"
#include "loader/base/assert.h"

#include <stdatomic.h>
#include <stdlib.h>

#define OPEN_BYTES (TW_LINK_HEADER_BYTES + sizeof(struct tw_link_open))

struct call {
    struct tw_pipe base;
    struct tw_medium *line;
    bool first; /* the packet that began it has not been taken */
    _Atomic bool gone;
};

struct tw_medium {
    struct tw_pipe *medium;
    struct call *call; /* NULL: none */
    uint64_t nonce;    /* of the last call */
    bool opening;      /* `open` begins the next call */
    uint8_t open[OPEN_BYTES];
};

struct tw_medium *tw_medium_create(struct tw_pipe *medium) {
    struct tw_medium *l = calloc(1, sizeof *l);
    TW_ASSERT(medium->fd >= 0);
    if (!l) {
        medium->ops->close(medium);
        return NULL;
    }
    l->medium = medium;
    return l;
}

void tw_medium_destroy(struct tw_medium *line) {
    if (line) {
        TW_ASSERT(!line->call);
        line->medium->ops->close(line->medium);
        free(line);
    }
}

int tw_medium_fd(const struct tw_medium *line) {
    return line->call ? -1 : line->medium->fd;
}

/* An OPEN of a host that has not called yet; it is kept. A query begins a call, too: it may be the
 * first of its host. */
static bool begins_call(struct tw_medium *l, const uint8_t *bytes, size_t n) {
    struct tw_link_header h;
    struct tw_link_open q;
    if (n != OPEN_BYTES || !tw_packet_good(bytes, n, &h) || h.kind != TW_LINK_OPEN) {
        return false;
    }
    memcpy(&q, bytes + TW_LINK_HEADER_BYTES, sizeof q);
    if (q.nonce == l->nonce || q.nonce == 0) {
        return false;
    }
    TW_ASSERT(n == sizeof l->open);
    l->nonce = q.nonce;
    l->opening = true;
    memcpy(l->open, bytes, n);
    return true;
}

/* The host has gone, says the medium, or another one is there. After a reset of the medium the same
 * host calls again. */
static bool ends_call(struct tw_medium *l, const uint8_t *bytes, size_t n) {
    l->nonce = n == 0 ? 0 : l->nonce;
    return n == 0 || begins_call(l, bytes, n);
}

/* ---- a call ---- */

static enum tw_packet_result send_packet(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    struct call *c = (struct call *)p;
    return atomic_load(&c->gone) ? TW_PACKET_GONE
                                 : c->line->medium->ops->send(c->line->medium, bytes, n);
}

static enum tw_packet_result take_packet(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct call *c = (struct call *)p;
    struct tw_medium *l = c->line;
    TW_ASSERT(l->call == c);
    if (atomic_load(&c->gone)) {
        return TW_PACKET_GONE;
    }
    if (c->first) {
        TW_ASSERT(!l->opening); /* the next call can only begin behind this one's packets */
        c->first = false;
        *bytes = l->open;
        *n = sizeof l->open;
        return TW_PACKET_OK;
    }
    enum tw_packet_result r = l->medium->ops->take(l->medium, bytes, n);
    if (r == TW_PACKET_GONE || (r == TW_PACKET_OK && ends_call(l, *bytes, *n))) {
        atomic_store(&c->gone, true);
        return TW_PACKET_GONE;
    }
    return r;
}

static bool wait_medium(struct tw_pipe *p, bool write, int ms) {
    struct call *c = (struct call *)p;
    return atomic_load(&c->gone) || c->line->medium->ops->wait(c->line->medium, write, ms);
}

static void hang_up(struct tw_pipe *p) {
    atomic_store(&((struct call *)p)->gone, true);
}

static void close_call(struct tw_pipe *p) {
    struct call *c = (struct call *)p;
    TW_ASSERT(c->line->call == c);
    c->line->call = NULL;
    free(c);
}

static const struct tw_pipe_ops ops = {.send = send_packet,
                                       .take = take_packet,
                                       .wait = wait_medium,
                                       .hang_up = hang_up,
                                       .close = close_call};

/* ---- the next one ---- */

static void look_for_call(struct tw_medium *l) {
    uint8_t *bytes;
    size_t n;
    for (int i = 0;
         i < 16 && !l->opening && l->medium->ops->take(l->medium, &bytes, &n) == TW_PACKET_OK;
         i++) {
        ends_call(l, bytes, n);
    }
}

struct tw_pipe *tw_medium_accept(struct tw_medium *line) {
    if (line->call) {
        return NULL;
    }
    look_for_call(line);
    struct call *c = line->opening ? malloc(sizeof *c) : NULL;
    if (!c) {
        return NULL; /* without memory now, maybe with the next turn */
    }
    TW_ASSERT(line->nonce != 0 && !line->call);
    c->base = (struct tw_pipe){&ops, line->medium->chunk, line->medium->fd};
    c->line = line;
    c->first = true;
    line->opening = false;
    atomic_init(&c->gone, false);
    line->call = c;
    return &c->base;
}
