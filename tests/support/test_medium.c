/* SPDX-License-Identifier: Apache-2.0
 *
 * A medium's pipe over another one, with what a socket cannot do: it reports that the host has gone
 * (a packet of 0 bytes).
 */
#include "tests/support/test_medium.h"

#include <stdlib.h>

static enum tw_packet_result send_packet(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    struct tw_pipe *q = ((struct test_medium *)p)->inner;
    return q->ops->send(q, bytes, n);
}

static enum tw_packet_result take_packet(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct test_medium *m = (struct test_medium *)p;
    if (atomic_exchange(&m->host_gone, false)) {
        *n = 0;
        return TW_PACKET_OK;
    }
    return m->inner->ops->take(m->inner, bytes, n);
}

static bool wait_medium(struct tw_pipe *p, bool write, int ms) {
    struct tw_pipe *q = ((struct test_medium *)p)->inner;
    return q->ops->wait(q, write, ms);
}

static void hang_up(struct tw_pipe *p) {
    (void)p;
}

static void close_medium(struct tw_pipe *p) {
    struct test_medium *m = (struct test_medium *)p;
    if (m->closed) {
        *m->closed = true;
    }
    m->inner->ops->close(m->inner);
    free(m);
}

static const struct tw_pipe_ops ops = {.send = send_packet,
                                       .take = take_packet,
                                       .wait = wait_medium,
                                       .hang_up = hang_up,
                                       .close = close_medium};

struct test_medium *test_medium_create(struct tw_pipe *inner, uint32_t chunk, bool *closed) {
    struct test_medium *m = calloc(1, sizeof *m);
    if (!m) {
        abort();
    }
    m->base = (struct tw_pipe){&ops, chunk, inner->fd};
    m->inner = inner;
    m->closed = closed;
    return m;
}
