/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipe over a SEQPACKET socket: the kernel preserves packet boundaries and reports when the other
 * end is closed. Never raises SIGPIPE.
 */
#include "firmware/link/pipe.h"
#include "loader/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Small enough for several packets in a socket buffer of the usual default size. */
#define CHUNK (64u << 10)

struct pipe_socket {
    struct tw_pipe base;
    uint8_t bytes[TW_PACKET_BYTES];
};

static enum tw_packet_result send_packet(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    for (;;) {
        ssize_t r = send(p->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (r >= 0) {
            return TW_PACKET_OK;
        }
        if (errno != EINTR) {
            return errno == EAGAIN || errno == ENOBUFS ? TW_PACKET_AGAIN : TW_PACKET_GONE;
        }
    }
}

static enum tw_packet_result take_packet(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct pipe_socket *s = (struct pipe_socket *)p;
    for (;;) {
        ssize_t r = recv(p->fd, s->bytes, sizeof s->bytes, MSG_DONTWAIT);
        if (r > 0) {
            *bytes = s->bytes;
            *n = (size_t)r;
            return TW_PACKET_OK;
        }
        if (r == 0 || errno != EINTR) {
            return r < 0 && errno == EAGAIN ? TW_PACKET_AGAIN : TW_PACKET_GONE;
        }
    }
}

static bool wait_socket(struct tw_pipe *p, bool write, int ms) {
    struct pollfd q = {.fd = p->fd, .events = write ? POLLOUT : POLLIN};
    uint64_t end = tw_clock_ms() + (uint64_t)(ms > 0 ? ms : 0);
    for (;;) {
        int n = poll(&q, 1, ms);
        if (n > 0) {
            return true;
        }
        if (n == 0 || errno != EINTR) {
            return false;
        }
        if (ms >= 0) { /* a signal: wait for the remaining time */
            uint64_t now = tw_clock_ms();
            ms = now < end ? (int)(end - now) : 0;
        }
    }
}

static void hang_up(struct tw_pipe *p) {
    shutdown(p->fd, SHUT_RDWR);
}

static void close_socket(struct tw_pipe *p) {
    close(p->fd);
    free(p);
}

static const struct tw_pipe_ops ops = {.send = send_packet,
                                       .take = take_packet,
                                       .wait = wait_socket,
                                       .hang_up = hang_up,
                                       .close = close_socket};

struct tw_pipe *tw_pipe_socket(int fd) {
    struct pipe_socket *s = malloc(sizeof *s);
    if (!s) {
        close(fd);
        return NULL;
    }
    s->base = (struct tw_pipe){&ops, CHUNK, fd};
    return &s->base;
}
