/* SPDX-License-Identifier: Apache-2.0
 *
 * The listening side: a poll loop over the socket, those who have connected and not said what they
 * want, the host, and the executing thread's news.
 */
#include "firmware/serve/device_server.h"

#include "firmware/link/packet.h"
#include "firmware/serve/link_server.h"
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

#define GUESTS 16u
#define GUEST_MS 10000u /* a connection that was answered and stays is closed after this */
#define SILENT_MS 1000u /* and one that has not said what it wants, after this; */
#define FULL_MS 100u    /* where all places are taken, and others may wait, either after this */
#define LINES 4u

/* A connection that is not (or not yet) the host's. */
struct guest {
    struct tw_pipe *pipe; /* NULL: none */
    bool answered;
    uint64_t since;
};

struct tw_device_server {
    struct tw_link_server *served;
    struct tw_faults faults;
    struct tw_listen listen;
    int wake;
    struct guest guest[GUESTS];
    struct tw_medium *line[LINES];
    uint32_t n_lines;
    _Atomic bool stop;
};

static void dismiss(struct guest *g) {
    g->pipe->ops->close(g->pipe);
    g->pipe = NULL;
}

/* ---- making ---- */

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
    struct tw_emu *emu;
    struct tw_slow_kernels how;
    if (tw_faults_kernels(&s->faults, &how)) {
        e.kernels = tw_slow_kernels_table(e.kernels ? e.kernels : tw_kernel_table_best(), &how);
    }
    int code = tw_emu_create(&e, &emu, err);
    if (code) {
        return code;
    }
    code = tw_link_server_create(emu, &s->faults, &s->served, err);
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
    for (uint32_t i = 0; i < GUESTS; i++) {
        if (s->guest[i].pipe) {
            dismiss(&s->guest[i]);
        }
    }
    if (s->served) {
        tw_link_server_drop(s->served); /* a call ends before its line, */
    }
    for (uint32_t i = 0; i < s->n_lines; i++) {
        /* and a line, which may ask for progress, before the device */
        tw_medium_destroy(s->line[i]);
    }
    tw_link_server_destroy(s->served);
    tw_faults_finish(&s->faults);
    tw_event_destroy(s->wake);
    tw_listen_end(&s->listen);
    free(s);
}

/* ---- guests ---- */

/* Room for packets in flight; what the system allows. */
static void enlarge(int fd) {
    int bytes = 1 << 20;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

/* NULL: all are taken. Then new connections stay in the listen backlog, and those that hold a place
 * without need lose it sooner (dismiss_idle). */
static struct guest *free_place(struct tw_device_server *s) {
    for (uint32_t i = 0; i < GUESTS; i++) {
        if (!s->guest[i].pipe) {
            return &s->guest[i];
        }
    }
    return NULL;
}

/* False: no memory. */
static bool welcome(struct guest *place, int fd) {
    enlarge(fd);
    *place = (struct guest){.pipe = tw_pipe_socket(fd), .since = tw_clock_ms()};
    return place->pipe != NULL;
}

static void accept_all(struct tw_device_server *s) {
    struct guest *place;
    while ((place = free_place(s))) {
        int fd = tw_listen_accept(&s->listen, SOCK_NONBLOCK);
        if (fd < 0 || !welcome(place, fd)) {
            return;
        }
    }
}

int tw_device_server_add_medium(struct tw_device_server *s, struct tw_medium *line, tw_error *err) {
    if (s->n_lines == LINES) {
        tw_medium_destroy(line);
        return tw_fail(err, TW_E_USAGE, "emulator: at most %u doors besides its socket", LINES);
    }
    s->line[s->n_lines++] = line;
    return 0;
}

void tw_device_server_progress(struct tw_device_server *s, struct tw_link_progress *progress,
                               uint32_t *generation) {
    tw_link_server_progress(s->served, progress, generation);
}

int tw_device_server_pair(struct tw_device_server *s) {
    int fd[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd)) {
        return -1;
    }
    struct guest *place = free_place(s);
    if (!place || !welcome(place, fd[1])) {
        close(fd[0]);
        if (!place) {
            close(fd[1]);
        }
        return -1;
    }
    enlarge(fd[0]);
    return fd[0];
}

static void answer(struct tw_device_server *s, struct guest *g) {
    struct tw_link_opened o;
    struct tw_link_header h = {.kind = TW_LINK_OPENED};
    tw_link_server_describe(s->served, &o);
    tw_link_server_send(s->served, g->pipe, &h, &o, sizeof o);
    /* it stays until the other side closes: closing first could swallow the answer */
    g->answered = true;
    g->since = tw_clock_ms();
}

static uint32_t peer_pid(int fd, uint32_t said) {
    uint32_t pid, uid;
    return tw_peer(fd, &pid, &uid) && pid ? pid : said;
}

/* A guest that wants to be the host. A host that has died is noticed first. */
static void promote(struct tw_device_server *s, struct guest *g, const struct tw_link_open *q) {
    for (int i = 0; i < 1000; i++) { /* what it sent before it died is read first */
        struct pollfd p = {.fd = tw_link_server_host_fd(s->served), .events = POLLIN};
        if (p.fd < 0 || poll(&p, 1, 0) <= 0) {
            break;
        }
        tw_link_server_take(s->served);
    }
    if (tw_link_server_attach(s->served, g->pipe, peer_pid(g->pipe->fd, q->pid), q->command)) {
        g->pipe = NULL;
    } else {
        answer(s, g);
    }
}

static void hear(struct tw_device_server *s, struct guest *g) {
    uint8_t *bytes;
    size_t n;
    struct tw_link_header h;
    struct tw_link_open q;
    enum tw_packet_result r = g->pipe->ops->take(g->pipe, &bytes, &n);
    if (r == TW_PACKET_AGAIN) {
        return;
    }
    if (r == TW_PACKET_GONE) {
        dismiss(g);
        return;
    }
    if (!tw_packet_good(bytes, n, &h) || h.kind != TW_LINK_OPEN || h.length != sizeof q) {
        return; /* it will ask again */
    }
    memcpy(&q, bytes + TW_LINK_HEADER_BYTES, sizeof q);
    q.command[sizeof q.command - 1] = 0;
    if (g->answered || q.flags & TW_LINK_QUERY) {
        answer(s, g);
    } else {
        promote(s, g, &q);
    }
}

/* What began a call has left its medium, whose descriptor may say nothing more: so it is heard at
 * once. */
static void accept_calls(struct tw_device_server *s) {
    for (uint32_t i = 0; i < s->n_lines; i++) {
        struct guest *place = free_place(s);
        struct tw_pipe *call = place ? tw_medium_accept(s->line[i]) : NULL;
        if (call) {
            *place = (struct guest){.pipe = call, .since = tw_clock_ms()};
            hear(s, place);
        }
    }
}

/* ---- the loop ---- */

#define OWN 4u

static uint32_t list_fds(struct tw_device_server *s, struct pollfd *p, struct guest **who) {
    uint32_t n = 0;
    bool full = free_place(s) == NULL;
    const int own[] = {s->wake, full ? -1 : s->listen.fd, tw_link_server_news_fd(s->served),
                       tw_link_server_host_fd(s->served)};
    for (; n < OWN; n++) {
        p[n] = (struct pollfd){.fd = own[n], .events = POLLIN};
    }
    for (uint32_t i = 0; i < s->n_lines; i++) {
        p[n++] = (struct pollfd){.fd = full ? -1 : tw_medium_fd(s->line[i]), .events = POLLIN};
    }
    for (uint32_t i = 0; i < GUESTS; i++) {
        if (s->guest[i].pipe) {
            who[n] = &s->guest[i];
            p[n++] = (struct pollfd){.fd = s->guest[i].pipe->fd, .events = POLLIN};
        }
    }
    return n;
}

/* A connection asks at once for what it wants; one that does not must not keep others out. */
static void dismiss_idle(struct tw_device_server *s) {
    uint64_t now = tw_clock_ms();
    bool full = free_place(s) == NULL;
    for (uint32_t i = 0; i < GUESTS; i++) {
        struct guest *g = &s->guest[i];
        uint64_t allowed = full ? FULL_MS : g->answered ? GUEST_MS : SILENT_MS;
        if (g->pipe && now - g->since > allowed) {
            dismiss(g);
        }
    }
}

static void turn(struct tw_device_server *s) {
    struct pollfd p[OWN + LINES + GUESTS];
    struct guest *who[OWN + LINES + GUESTS];
    uint32_t n = list_fds(s, p, who);
    if (poll(p, n, free_place(s) ? 250 : FULL_MS / 2) < 0) {
        return; /* a signal */
    }
    if (p[2].revents) {
        tw_link_server_news(s->served);
    }
    /* a call that was hung up is not told by its line's descriptor */
    if (p[3].revents || s->n_lines) {
        tw_link_server_take(s->served);
    }
    for (uint32_t i = OWN + s->n_lines; i < n; i++) {
        if (p[i].revents) {
            hear(s, who[i]);
        }
    }
    if (p[1].revents) {
        accept_all(s);
    }
    accept_calls(s);
    dismiss_idle(s);
}

void tw_device_server_run(struct tw_device_server *s, const volatile sig_atomic_t *stop) {
    while (!atomic_load(&s->stop) && !tw_stopped(stop)) {
        turn(s);
    }
}

void tw_device_server_stop(struct tw_device_server *s) {
    atomic_store(&s->stop, true);
    tw_event_ring(s->wake);
}
