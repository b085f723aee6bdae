/* SPDX-License-Identifier: Apache-2.0
 *
 * A medium. The OPEN packet that begins a connection is recognised when it is taken from the
 * medium, by the previous connection or by tw_medium_accept, and kept for the connection that it
 * begins.
 */
#include "firmware/link/medium.h"

#include "firmware/link/packet.h"
#include "loader/base/assert.h"

#include <stdatomic.h>
#include <stdlib.h>

#define OPEN_BYTES (TW_LINK_HEADER_BYTES + sizeof(struct tw_link_open))

struct connection {
    struct tw_pipe base;
    struct tw_medium *medium;
    bool first; /* the OPEN packet has not been taken yet */
    _Atomic bool gone;
};

struct tw_medium {
    struct tw_pipe *pipe;
    struct connection *connection; /* NULL: none */
    uint64_t nonce;                /* of the last connection */
    bool opening;                  /* `open` begins the next connection */
    uint8_t open[OPEN_BYTES];
};

struct tw_medium *tw_medium_create(struct tw_pipe *pipe) {
    struct tw_medium *m = calloc(1, sizeof *m);
    if (!m) {
        pipe->ops->close(pipe);
        return NULL;
    }
    m->pipe = pipe;
    return m;
}

void tw_medium_destroy(struct tw_medium *m) {
    if (m) {
        TW_ASSERT(!m->connection);
        m->pipe->ops->close(m->pipe);
        free(m);
    }
}

int tw_medium_fd(const struct tw_medium *m) {
    return m->connection ? -1 : m->pipe->fd;
}

/* Returns true for an OPEN with a new nonce, and keeps it. A query begins a connection, too: it may
 * be the first packet of its host. */
static bool begins_connection(struct tw_medium *m, const uint8_t *bytes, size_t n) {
    struct tw_link_header h;
    struct tw_link_open q;
    if (n != OPEN_BYTES || !tw_packet_good(bytes, n, &h) || h.kind != TW_LINK_OPEN) {
        return false;
    }
    memcpy(&q, bytes + TW_LINK_HEADER_BYTES, sizeof q);
    if (q.nonce == m->nonce || q.nonce == 0) {
        return false;
    }
    TW_ASSERT(n == sizeof m->open);
    m->nonce = q.nonce;
    m->opening = true;
    memcpy(m->open, bytes, n);
    return true;
}

/* Returns true if the medium reports that the host has gone (0 bytes), or if another host opens.
 * After a reset of the medium the same host may connect again, so its nonce is forgotten. */
static bool ends_connection(struct tw_medium *m, const uint8_t *bytes, size_t n) {
    m->nonce = n == 0 ? 0 : m->nonce;
    return n == 0 || begins_connection(m, bytes, n);
}

/* ---- one connection ---- */

static enum tw_packet_result send_packet(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    struct connection *c = (struct connection *)p;
    return atomic_load(&c->gone) ? TW_PACKET_GONE
                                 : c->medium->pipe->ops->send(c->medium->pipe, bytes, n);
}

static enum tw_packet_result take_packet(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct connection *c = (struct connection *)p;
    struct tw_medium *m = c->medium;
    TW_ASSERT(m->connection == c);
    if (atomic_load(&c->gone)) {
        return TW_PACKET_GONE;
    }
    if (c->first) {
        TW_ASSERT(!m->opening); /* the next one begins only after this one's packets */
        c->first = false;
        *bytes = m->open;
        *n = sizeof m->open;
        return TW_PACKET_OK;
    }
    enum tw_packet_result r = m->pipe->ops->take(m->pipe, bytes, n);
    if (r == TW_PACKET_GONE || (r == TW_PACKET_OK && ends_connection(m, *bytes, *n))) {
        atomic_store(&c->gone, true);
        return TW_PACKET_GONE;
    }
    return r;
}

static bool wait_medium(struct tw_pipe *p, bool write, int ms) {
    struct connection *c = (struct connection *)p;
    return atomic_load(&c->gone) || c->medium->pipe->ops->wait(c->medium->pipe, write, ms);
}

static void hang_up(struct tw_pipe *p) {
    atomic_store(&((struct connection *)p)->gone, true);
}

static void close_connection(struct tw_pipe *p) {
    struct connection *c = (struct connection *)p;
    TW_ASSERT(c->medium->connection == c);
    c->medium->connection = NULL;
    free(c);
}

static const struct tw_pipe_ops ops = {.send = send_packet,
                                       .take = take_packet,
                                       .wait = wait_medium,
                                       .hang_up = hang_up,
                                       .close = close_connection};

/* ---- accepting ---- */

static void read_until_open(struct tw_medium *m) {
    uint8_t *bytes;
    size_t n;
    for (int i = 0;
         i < 16 && !m->opening && m->pipe->ops->take(m->pipe, &bytes, &n) == TW_PACKET_OK; i++) {
        ends_connection(m, bytes, n);
    }
}

struct tw_pipe *tw_medium_accept(struct tw_medium *m) {
    if (m->connection) {
        return NULL;
    }
    read_until_open(m);
    struct connection *c = m->opening ? malloc(sizeof *c) : NULL;
    if (!c) {
        return NULL; /* out of memory: the caller's next turn tries again */
    }
    TW_ASSERT(m->nonce != 0 && !m->connection);
    c->base = (struct tw_pipe){&ops, m->pipe->chunk, m->pipe->fd};
    c->medium = m;
    c->first = true;
    m->opening = false;
    atomic_init(&c->gone, false);
    m->connection = c;
    return &c->base;
}
