/* SPDX-License-Identifier: Apache-2.0
 *
 * The listening side: a poll loop over the listening socket, the media, the pending clients, the
 * host, and the executing thread's notifications.
 */
#include "firmware/serve/device_server.h"

#include "firmware/link/packet.h"
#include "firmware/serve/link_server.h"
#include "firmware/serve/verify_load.h"
#include "loader/base/clock.h"
#include "loader/base/event.h"
#include "loader/base/listen.h"
#include "loader/base/private_path.h"
#include "loader/base/stop.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PENDING 16u
#define MAX_MEDIA 4u
/* A pending client's connection is closed after: */
#define ANSWERED_MS 10000u /* if it was answered and did not close */
#define SILENT_MS 1000u    /* if it has not sent an OPEN */
#define FULL_MS 100u       /* either, while every slot is taken and others may be waiting */
/* The stop word is checked at least this often: a signal that sets it does not end the poll if
 * another thread receives it, or if it comes just before the poll. */
#define BUSY_MS 40  /* with a host, whose step may have to be ended, or with every slot taken */
#define IDLE_MS 250 /* otherwise */

/* A client that is not (or not yet) the host. */
struct pending {
    struct tw_pipe *pipe; /* NULL: the slot is free */
    bool answered;
    uint64_t since;
};

struct tw_device_server {
    struct tw_link_server *link;
    struct tw_faults faults;
    struct tw_listen listen;
    int wake;
    struct pending pending[MAX_PENDING];
    struct tw_medium *medium[MAX_MEDIA];
    uint32_t n_media;
    _Atomic bool stop;
};

static void close_pending(struct pending *c) {
    c->pipe->ops->close(c->pipe);
    c->pipe = NULL;
}

/* ---- creation and end ---- */

static int open_path(struct tw_device_server *s, const char *name, tw_error *err) {
    char path[TW_LISTEN_PATH];
    int code = tw_runtime_socket(name, true, path, err);
    if (code) {
        return code;
    }
    return tw_listen_begin(&s->listen, "socket", path, SOCK_SEQPACKET, err);
}

static int make_device(struct tw_device_server *s, const struct tw_device_server_options *o,
                       tw_error *err) {
    struct tw_emu_options e = o->emu;
    e.max_payload = TW_LINK_MAX_PAYLOAD;
    e.verify = tw_serve_verify; /* no host is trusted */
    e.can_cancel = true;
    struct tw_emu *emu;
    struct tw_slow_kernels how;
    if (tw_faults_kernels(&s->faults, &how)) {
        e.kernels = tw_slow_kernels_table(e.kernels ? e.kernels : tw_kernel_table_best(), &how);
    }
    int code = tw_emu_create(&e, &emu, err);
    if (code) {
        return code;
    }
    code = tw_link_server_create(emu, &s->faults, &s->link, err);
    if (code) {
        tw_emu_destroy(emu);
    }
    return code;
}

int tw_device_server_create(const struct tw_device_server_options *o, struct tw_device_server **out,
                            tw_error *err) {
    struct tw_device_server *s = calloc(1, sizeof *s);
    if (!s) {
        return tw_fail(err, TW_E_NOMEM, "emulator: no memory for its socket");
    }
    s->listen.fd = s->listen.lock = -1;
    int code = tw_faults_init(&s->faults, o->faults, o->seed, err);
    if (code) {
        free(s);
        return code;
    }
    s->wake = tw_event_create();
    code = s->wake < 0 ? tw_fail(err, TW_E_IO, "emulator: no descriptor: %s", strerror(errno)) : 0;
    code = code || !o->path ? code : open_path(s, o->path, err);
    code = code ? code : make_device(s, o, err);
    if (code) {
        tw_device_server_destroy(s);
        return code;
    }
    *out = s;
    return 0;
}

void tw_device_server_destroy(struct tw_device_server *s) {
    if (!s) {
        return;
    }
    for (uint32_t i = 0; i < MAX_PENDING; i++) {
        if (s->pending[i].pipe) {
            close_pending(&s->pending[i]);
        }
    }
    if (s->link) {
        tw_link_server_drop(s->link); /* a connection must end before its medium, */
    }
    for (uint32_t i = 0; i < s->n_media; i++) {
        /* and a medium, which may query the progress, before the device */
        tw_medium_destroy(s->medium[i]);
    }
    tw_link_server_destroy(s->link);
    tw_faults_finish(&s->faults);
    tw_event_destroy(s->wake);
    tw_listen_end(&s->listen);
    free(s);
}

/* ---- pending clients ---- */

/* Requests a buffer for the packets in flight; the system may grant less. */
static void enlarge(int fd) {
    int bytes = 1 << 20;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

/* Returns NULL if every slot is taken. New connections then stay in the listen backlog, and idle
 * ones are closed sooner (close_idle). */
static struct pending *free_slot(struct tw_device_server *s) {
    for (uint32_t i = 0; i < MAX_PENDING; i++) {
        if (!s->pending[i].pipe) {
            return &s->pending[i];
        }
    }
    return NULL;
}

/* Returns false if memory ran out; fd is closed then. */
static bool fill_slot(struct pending *slot, int fd) {
    enlarge(fd);
    *slot = (struct pending){.pipe = tw_pipe_socket(fd), .since = tw_clock_ms()};
    return slot->pipe != NULL;
}

static void accept_all(struct tw_device_server *s) {
    struct pending *slot;
    while ((slot = free_slot(s))) {
        int fd = tw_listen_accept(&s->listen, SOCK_NONBLOCK);
        if (fd < 0 || !fill_slot(slot, fd)) {
            return;
        }
    }
}

int tw_device_server_add_medium(struct tw_device_server *s, struct tw_medium *medium,
                                tw_error *err) {
    if (s->n_media == MAX_MEDIA) {
        tw_medium_destroy(medium);
        return tw_fail(err, TW_E_USAGE,
                       "emulator: too many endpoints: at most %u besides its socket", MAX_MEDIA);
    }
    s->medium[s->n_media++] = medium;
    return 0;
}

void tw_device_server_progress(struct tw_device_server *s, struct tw_link_progress *progress,
                               uint32_t *generation) {
    tw_link_server_progress(s->link, progress, generation);
}

int tw_device_server_pair(struct tw_device_server *s) {
    int fd[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd)) {
        return -1;
    }
    struct pending *slot = free_slot(s);
    if (!slot || !fill_slot(slot, fd[1])) {
        close(fd[0]);
        if (!slot) {
            close(fd[1]);
        }
        return -1;
    }
    enlarge(fd[0]);
    return fd[0];
}

static void answer(struct tw_device_server *s, struct pending *c) {
    struct tw_link_opened o;
    struct tw_link_header h = {.kind = TW_LINK_OPENED};
    tw_link_server_describe(s->link, &o);
    tw_link_server_send(s->link, c->pipe, &h, &o, sizeof o);
    /* The client closes: if we closed first, the answer could be lost. */
    c->answered = true;
    c->since = tw_clock_ms();
}

static uint32_t peer_pid(int fd, uint32_t claimed) {
    uint32_t pid, uid;
    return tw_peer(fd, &pid, &uid) && pid ? pid : claimed;
}

/* Makes a pending client the host, unless there is one; a host that has died is detected first. */
static void promote(struct tw_device_server *s, struct pending *c, const struct tw_link_open *q) {
    for (int i = 0; i < 1000; i++) { /* read what it sent before it died */
        struct pollfd p = {.fd = tw_link_server_host_fd(s->link), .events = POLLIN};
        if (p.fd < 0 || poll(&p, 1, 0) <= 0) {
            break;
        }
        tw_link_server_take(s->link);
    }
    if (tw_link_server_attach(s->link, c->pipe, peer_pid(c->pipe->fd, q->pid), q->command)) {
        c->pipe = NULL;
    } else {
        answer(s, c);
    }
}

static void read_open(struct tw_device_server *s, struct pending *c) {
    uint8_t *bytes;
    size_t n;
    struct tw_link_header h;
    struct tw_link_open q;
    enum tw_packet_result r = c->pipe->ops->take(c->pipe, &bytes, &n);
    if (r == TW_PACKET_AGAIN) {
        return;
    }
    if (r == TW_PACKET_GONE) {
        close_pending(c);
        return;
    }
    if (!tw_packet_good(bytes, n, &h) || h.kind != TW_LINK_OPEN || h.length != sizeof q) {
        return; /* the client resends its OPEN */
    }
    memcpy(&q, bytes + TW_LINK_HEADER_BYTES, sizeof q);
    q.command[sizeof q.command - 1] = 0;
    if (c->answered || q.flags & TW_LINK_QUERY) {
        answer(s, c);
    } else {
        promote(s, c, &q);
    }
}

/* Accepts the media's connections. Each OPEN is handled at once: it has been taken from the medium,
 * whose descriptor may not become readable again. */
static void accept_media(struct tw_device_server *s) {
    for (uint32_t i = 0; i < s->n_media; i++) {
        struct pending *slot = free_slot(s);
        struct tw_pipe *connection = slot ? tw_medium_accept(s->medium[i]) : NULL;
        if (connection) {
            *slot = (struct pending){.pipe = connection, .since = tw_clock_ms()};
            read_open(s, slot);
        }
    }
}

/* ---- the loop ---- */

/* The server's own descriptors, at the start of the poll list. */
enum { FD_WAKE, FD_LISTEN, FD_NEWS, FD_HOST, N_OWN };

static uint32_t list_fds(struct tw_device_server *s, struct pollfd *p, struct pending **who) {
    uint32_t n = 0;
    bool full = free_slot(s) == NULL;
    const int own[N_OWN] = {[FD_WAKE] = s->wake,
                            [FD_LISTEN] = full ? -1 : s->listen.fd,
                            [FD_NEWS] = tw_link_server_news_fd(s->link),
                            [FD_HOST] = tw_link_server_host_fd(s->link)};
    for (; n < N_OWN; n++) {
        p[n] = (struct pollfd){.fd = own[n], .events = POLLIN};
    }
    for (uint32_t i = 0; i < s->n_media; i++) {
        p[n++] = (struct pollfd){.fd = full ? -1 : tw_medium_fd(s->medium[i]), .events = POLLIN};
    }
    for (uint32_t i = 0; i < MAX_PENDING; i++) {
        if (s->pending[i].pipe) {
            who[n] = &s->pending[i];
            p[n++] = (struct pollfd){.fd = s->pending[i].pipe->fd, .events = POLLIN};
        }
    }
    return n;
}

/* Closes idle connections, so that they do not keep others out. */
static void close_idle(struct tw_device_server *s) {
    uint64_t now = tw_clock_ms();
    bool full = free_slot(s) == NULL;
    for (uint32_t i = 0; i < MAX_PENDING; i++) {
        struct pending *c = &s->pending[i];
        uint64_t allowed = full ? FULL_MS : c->answered ? ANSWERED_MS : SILENT_MS;
        if (c->pipe && now - c->since > allowed) {
            close_pending(c);
        }
    }
}

static void turn(struct tw_device_server *s) {
    struct pollfd p[N_OWN + MAX_MEDIA + MAX_PENDING];
    struct pending *who[N_OWN + MAX_MEDIA + MAX_PENDING];
    uint32_t n = list_fds(s, p, who);
    int ms = p[FD_HOST].fd >= 0 || !free_slot(s) ? BUSY_MS : IDLE_MS;
    if (poll(p, n, ms) < 0) {
        return; /* a signal */
    }
    if (p[FD_NEWS].revents) {
        tw_link_server_news(s->link);
    }
    /* a medium's descriptor does not report a connection that was hung up */
    if (p[FD_HOST].revents || s->n_media) {
        tw_link_server_take(s->link);
    }
    for (uint32_t i = N_OWN + s->n_media; i < n; i++) {
        if (p[i].revents) {
            read_open(s, who[i]);
        }
    }
    if (p[FD_LISTEN].revents) {
        accept_all(s);
    }
    accept_media(s);
    close_idle(s);
}

void tw_device_server_run(struct tw_device_server *s, const volatile sig_atomic_t *stop) {
    while (!atomic_load(&s->stop) && !tw_stopped(stop)) {
        turn(s);
    }
}

void tw_device_server_stop(struct tw_device_server *s) {
    atomic_store(&s->stop, true);
    tw_event_signal(s->wake);
}
