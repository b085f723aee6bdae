/* SPDX-License-Identifier: Apache-2.0
 *
 * The bus thread: waits for a connection, then runs its session whenever the socket, the pipe or a
 * pending reset needs it.
 */
#include "firmware/usb/usbredir.h"

#include "firmware/usb/usbredir_session.h"
#include "loader/base/listen.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct usbredir {
    struct tw_usb_pipe pipe;
    struct tw_usb_device device;
    struct tw_listen listen;
    struct tw_usbredir_session *session; /* NULL: not connected */
    int connection;
    pthread_t thread;
};

/* ---- a connection ---- */

static int moved(ssize_t n) {
    if (n > 0) {
        return (int)n;
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

static int read_stream(void *ctx, uint8_t *bytes, int n) {
    const struct usbredir *u = ctx;
    return moved(recv(u->connection, bytes, (size_t)n, MSG_DONTWAIT));
}

static int write_stream(void *ctx, const uint8_t *bytes, int n) {
    const struct usbredir *u = ctx;
    return moved(send(u->connection, bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static void disconnect(struct usbredir *u) {
    if (u->session) {
        tw_usbredir_session_destroy(u->session);
        close(u->connection);
        u->session = NULL;
    }
}

static void connect_next(struct usbredir *u) {
    const struct tw_usbredir_stream stream = {read_stream, write_stream, u};
    int bytes = 1 << 20; /* room for several transfers; the system may grant less */
    u->connection = tw_listen_accept(&u->listen, SOCK_NONBLOCK);
    if (u->connection < 0) {
        return;
    }
    setsockopt(u->connection, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    u->session = tw_usbredir_session_create(&u->device, &u->pipe, &stream);
    if (!u->session) {
        close(u->connection);
    }
}

/* ---- the thread ---- */

static void turn(struct usbredir *u) {
    struct pollfd p[2] = {{.fd = u->pipe.wake, .events = POLLIN},
                          {.fd = u->listen.fd, .events = POLLIN}};
    int ms = -1;
    if (u->session) {
        p[1].fd = u->connection;
        p[1].events = (short)((tw_usbredir_session_reads(u->session) ? POLLIN : 0) |
                              (tw_usbredir_session_writes(u->session) ? POLLOUT : 0));
        ms = tw_usbredir_session_tick(u->session);
    }
    if (poll(p, 2, ms) < 0) {
        return;
    }
    if (p[0].revents) {
        tw_usb_pipe_awake(&u->pipe);
    }
    if (!u->session) {
        connect_next(u);
    }
    if (u->session &&
        (!tw_usbredir_session_turn(u->session) || p[1].revents & (POLLERR | POLLNVAL))) {
        disconnect(u);
    }
}

static void *serve(void *arg) {
    struct usbredir *u = arg;
    while (!tw_usb_pipe_gone(&u->pipe)) {
        turn(u);
    }
    disconnect(u);
    tw_listen_end(&u->listen);
    return NULL;
}

/* ---- life ---- */

static void close_pipe(struct tw_pipe *p) {
    struct usbredir *u = (struct usbredir *)p;
    tw_usb_pipe_hang_up(p);
    pthread_join(u->thread, NULL);
    tw_usb_pipe_finish(&u->pipe);
    free(u);
}

static const struct tw_pipe_ops ops = {.send = tw_usb_pipe_send,
                                       .take = tw_usb_pipe_take,
                                       .wait = tw_usb_pipe_wait,
                                       .hang_up = tw_usb_pipe_hang_up,
                                       .close = close_pipe};

static int start(struct usbredir *u, const char *path, tw_error *err) {
    int code = tw_listen_begin(&u->listen, "usbredir", path, SOCK_STREAM, err);
    if (!code && pthread_create(&u->thread, NULL, serve, u)) {
        tw_listen_end(&u->listen);
        code = tw_fail(err, TW_E_INTERNAL, "usbredir %.120s: cannot create a thread", path);
    }
    return code;
}

int tw_usbredir_create(const char *path, const struct tw_usb_options *options, struct tw_pipe **out,
                       tw_error *err) {
    struct usbredir *u = calloc(1, sizeof *u);
    if (!u) {
        return tw_fail(err, TW_E_NOMEM, "usbredir %.120s: out of memory for the device", path);
    }
    int code = tw_usb_device_init(&u->device, options, err);
    code = code ? code : tw_usb_pipe_init(&u->pipe, &ops, true, err);
    if (code) {
        free(u);
        return code;
    }
    code = start(u, path, err);
    if (code) {
        tw_usb_pipe_finish(&u->pipe);
        free(u);
        return code;
    }
    *out = &u->pipe.base;
    return 0;
}
