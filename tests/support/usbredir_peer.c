/* SPDX-License-Identifier: Apache-2.0
 *
 * The usb-guest end of usbredirparser.
 */
#include "tests/support/usbredir_peer.h"

#include "loader/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void die(const char *what) {
    fprintf(stderr, "usbredir peer: %s\n", what);
    abort();
}

static char folder[sizeof peer_path - 8];
char peer_path[64];

int peer_folder_set_up(void **state) {
    (void)state;
    strcpy(folder, "/tmp/tw-usbredir-XXXXXX");
    bool made = mkdtemp(folder) != NULL;
    snprintf(peer_path, sizeof peer_path, "%s/usb", folder);
    return made ? 0 : -1;
}

int peer_folder_tear_down(void **state) {
    (void)state;
    return rmdir(folder);
}

/* ---- what the device announces ---- */

static void on_log(void *priv, int level, const char *message) {
    (void)priv;
    if (level == usbredirparser_error) {
        fprintf(stderr, "usbredir peer: %s\n", message);
    }
}

static int moved(struct usbredir_peer *p, ssize_t n) {
    if (n > 0) {
        return (int)n;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    p->gone = true;
    return -1;
}

static int on_read(void *priv, uint8_t *bytes, int n) {
    struct usbredir_peer *p = priv;
    return moved(p, recv(p->fd, bytes, (size_t)n, MSG_DONTWAIT));
}

static int on_write(void *priv, uint8_t *bytes, int n) {
    struct usbredir_peer *p = priv;
    return moved(p, send(p->fd, bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static void on_hello(void *priv, struct usb_redir_hello_header *h) {
    (void)priv;
    (void)h;
}

static void on_connect(void *priv, struct usb_redir_device_connect_header *h) {
    struct usbredir_peer *p = priv;
    p->device = *h;
    p->connected = true;
    p->topology_first = p->has_interface && p->has_endpoints;
}

static void on_nothing(void *priv) {
    (void)priv;
}

static void on_interface(void *priv, struct usb_redir_interface_info_header *h) {
    struct usbredir_peer *p = priv;
    p->interface = *h;
    p->has_interface = true;
}

static void on_endpoints(void *priv, struct usb_redir_ep_info_header *h) {
    struct usbredir_peer *p = priv;
    p->endpoints = *h;
    p->has_endpoints = true;
    p->out = p->in = p->notices = 0;
    for (uint8_t i = 0; i < 32; i++) {
        uint8_t address = (uint8_t)((i & 15) | (i & 16) << 3);
        if (h->type[i] == usb_redir_type_bulk) {
            *(address & 0x80 ? &p->in : &p->out) = address;
        } else if (h->type[i] == usb_redir_type_interrupt) {
            p->notices = address;
        }
    }
}

static void take_answer(struct usbredir_peer *p, uint64_t id, uint8_t status, const uint8_t *data,
                        int n) {
    if (id == p->waiting && !p->answered) {
        p->answered = true;
        p->status = status;
        p->n = n > 0 ? (uint32_t)n : 0;
        memcpy(p->data, data ? data : (const uint8_t *)"",
               p->n < sizeof p->data ? p->n : sizeof p->data);
    }
}

static void on_configuration(void *priv, uint64_t id,
                             struct usb_redir_configuration_status_header *h) {
    take_answer(priv, id, h->status, &h->configuration, 1);
}

static void on_alt(void *priv, uint64_t id, struct usb_redir_alt_setting_status_header *h) {
    take_answer(priv, id, h->status, &h->alt, 1);
}

static void on_listening(void *priv, uint64_t id,
                         struct usb_redir_interrupt_receiving_status_header *h) {
    take_answer(priv, id, h->status, NULL, 0);
}

static void on_control(void *priv, uint64_t id, struct usb_redir_control_packet_header *h,
                       uint8_t *data, int n) {
    struct usbredir_peer *p = priv;
    take_answer(p, id, h->status, data, n);
    usbredirparser_free_packet_data(p->parser, data);
}

static void on_bulk(void *priv, uint64_t id, struct usb_redir_bulk_packet_header *h, uint8_t *data,
                    int n) {
    struct usbredir_peer *p = priv;
    (void)n;
    for (uint32_t i = 0; i < PEER_MOVES; i++) {
        struct peer_move *m = &p->move[i];
        if (m->used && !m->done && m->id == id) {
            m->done = true;
            m->status = h->status;
            m->n = h->length | (uint32_t)h->length_high << 16;
            m->data = data;
            return;
        }
    }
    die("an answer to no transfer");
}

static void on_interrupt(void *priv, uint64_t id, struct usb_redir_interrupt_packet_header *h,
                         uint8_t *data, int n) {
    struct usbredir_peer *p = priv;
    (void)id;
    if (h->endpoint != p->notices || n != (int)sizeof p->notice) {
        die("an interrupt packet that is not a notice");
    }
    memcpy(p->notice, data, sizeof p->notice);
    p->n_notices++;
    usbredirparser_free_packet_data(p->parser, data);
}

/* ---- the stream ---- */

static void start_parser(struct usbredir_peer *p) {
    uint32_t caps[USB_REDIR_CAPS_SIZE] = {0};
    p->parser = usbredirparser_create();
    p->parser->priv = p;
    p->parser->log_func = on_log;
    p->parser->read_func = on_read;
    p->parser->write_func = on_write;
    p->parser->hello_func = on_hello;
    p->parser->device_connect_func = on_connect;
    p->parser->device_disconnect_func = on_nothing;
    p->parser->interface_info_func = on_interface;
    p->parser->ep_info_func = on_endpoints;
    p->parser->configuration_status_func = on_configuration;
    p->parser->alt_setting_status_func = on_alt;
    p->parser->interrupt_receiving_status_func = on_listening;
    p->parser->control_packet_func = on_control;
    p->parser->bulk_packet_func = on_bulk;
    p->parser->interrupt_packet_func = on_interrupt;
    usbredirparser_caps_set_cap(caps, usb_redir_cap_connect_device_version);
    usbredirparser_caps_set_cap(caps, usb_redir_cap_ep_info_max_packet_size);
    usbredirparser_caps_set_cap(caps, usb_redir_cap_64bits_ids);
    usbredirparser_caps_set_cap(caps, usb_redir_cap_32bits_bulk_length);
    usbredirparser_init(p->parser, "test peer", caps, USB_REDIR_CAPS_SIZE, 0);
}

bool peer_connect(struct usbredir_peer *p, const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memset(p, 0, sizeof *p);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    p->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (p->fd < 0 || connect(p->fd, (const struct sockaddr *)&a, sizeof a)) {
        close(p->fd);
        return false;
    }
    p->next_id = 1;
    start_parser(p);
    return true;
}

void peer_turn(struct usbredir_peer *p, int ms) {
    if (p->gone) {
        return;
    }
    if (usbredirparser_has_data_to_write(p->parser)) {
        usbredirparser_do_write(p->parser);
    }
    struct pollfd q = {.fd = p->fd, .events = POLLIN};
    if (usbredirparser_has_data_to_write(p->parser)) {
        q.events = POLLIN | POLLOUT;
    }
    poll(&q, 1, ms);
    if (q.revents && usbredirparser_do_read(p->parser) == usbredirparser_read_parse_error) {
        die("the device does not keep to the protocol");
    }
}

void peer_open(struct usbredir_peer *p, const char *path) {
    uint64_t end = tw_clock_ms() + PEER_MS;
    if (!peer_connect(p, path)) {
        die("no server is listening");
    }
    while (!p->connected) {
        peer_turn(p, 100);
        if (p->gone || tw_clock_ms() > end) {
            die("the device does not introduce itself");
        }
    }
}

void peer_close(struct usbredir_peer *p) {
    for (uint32_t i = 0; i < PEER_MOVES; i++) {
        peer_forget(p, &p->move[i]);
    }
    usbredirparser_destroy(p->parser);
    close(p->fd);
}

/* ---- requests ---- */

static uint64_t ask(struct usbredir_peer *p) {
    p->answered = false;
    p->waiting = p->next_id++;
    return p->waiting;
}

static uint8_t hear(struct usbredir_peer *p) {
    uint64_t end = tw_clock_ms() + PEER_MS;
    while (!p->answered) {
        peer_turn(p, 100);
        if (p->gone || tw_clock_ms() > end) {
            die("a request without an answer");
        }
    }
    return p->status;
}

void peer_control_start(struct usbredir_peer *p, unsigned type, unsigned request, unsigned value,
                        unsigned index, unsigned length) {
    struct usb_redir_control_packet_header h = {.endpoint = (uint8_t)(type & 0x80),
                                                .request = (uint8_t)request,
                                                .requesttype = (uint8_t)type,
                                                .value = (uint16_t)value,
                                                .index = (uint16_t)index,
                                                .length = (uint16_t)length};
    uint8_t zeros[64] = {0};
    int n = type & 0x80 ? 0 : (int)length;
    usbredirparser_send_control_packet(p->parser, ask(p), &h, n ? zeros : NULL, n);
}

uint8_t peer_control(struct usbredir_peer *p, unsigned type, unsigned request, unsigned value,
                     unsigned index, unsigned length) {
    peer_control_start(p, type, request, value, index, length);
    return hear(p);
}

uint8_t peer_configure(struct usbredir_peer *p, uint8_t configuration) {
    struct usb_redir_set_configuration_header h = {.configuration = configuration};
    usbredirparser_send_set_configuration(p->parser, ask(p), &h);
    return hear(p);
}

uint8_t peer_set_alt(struct usbredir_peer *p, uint8_t interface, uint8_t alt) {
    struct usb_redir_set_alt_setting_header h = {.interface = interface, .alt = alt};
    usbredirparser_send_set_alt_setting(p->parser, ask(p), &h);
    return hear(p);
}

uint8_t peer_listen(struct usbredir_peer *p, bool on) {
    struct usb_redir_start_interrupt_receiving_header start = {.endpoint = p->notices};
    struct usb_redir_stop_interrupt_receiving_header stop = {.endpoint = p->notices};
    if (on) {
        usbredirparser_send_start_interrupt_receiving(p->parser, ask(p), &start);
    } else {
        usbredirparser_send_stop_interrupt_receiving(p->parser, ask(p), &stop);
    }
    return hear(p);
}

/* ---- transfers ---- */

static struct peer_move *start(struct usbredir_peer *p, uint8_t endpoint, const uint8_t *bytes,
                               uint32_t n) {
    struct usb_redir_bulk_packet_header h = {
        .endpoint = endpoint, .length = (uint16_t)(n & 0xFFFF), .length_high = (uint16_t)(n >> 16)};
    for (uint32_t i = 0; i < PEER_MOVES; i++) {
        struct peer_move *m = &p->move[i];
        if (!m->used) {
            *m = (struct peer_move){.used = true, .id = p->next_id++};
            usbredirparser_send_bulk_packet(p->parser, m->id, &h, (uint8_t *)(uintptr_t)bytes,
                                            bytes ? (int)n : 0);
            return m;
        }
    }
    die("too many transfers in a test");
    return NULL;
}

struct peer_move *peer_bulk_out(struct usbredir_peer *p, const uint8_t *bytes, uint32_t n) {
    return start(p, p->out, bytes, n);
}

struct peer_move *peer_bulk_in(struct usbredir_peer *p, uint32_t room) {
    return start(p, p->in, NULL, room);
}

void peer_cancel(struct usbredir_peer *p, const struct peer_move *m) {
    usbredirparser_send_cancel_data_packet(p->parser, m->id);
}

void peer_await(struct usbredir_peer *p, const struct peer_move *m) {
    uint64_t end = tw_clock_ms() + PEER_MS;
    while (!m->done) {
        peer_turn(p, 100);
        if (p->gone || tw_clock_ms() > end) {
            die("a transfer without an answer");
        }
    }
}

void peer_forget(struct usbredir_peer *p, struct peer_move *m) {
    usbredirparser_free_packet_data(p->parser, m->data);
    *m = (struct peer_move){.used = false};
}

/* ---- a link's pipe ---- */

#define READS 6u   /* transfers to read, in flight */
#define WRITES 16u /* to write, at most */

struct pipe {
    struct tw_pipe base;
    struct usbredir_peer *peer;
    uint32_t room;
    struct peer_move *read[READS], *write[WRITES]; /* oldest first */
    uint32_t n_writes;
    bool hung_up;
    size_t have; /* of the packet that comes */
    uint8_t packet[TW_PACKET_BYTES];
};

static void settle_writes(struct pipe *p) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->n_writes; i++) {
        if (p->write[i]->done) {
            peer_forget(p->peer, p->write[i]);
        } else {
            p->write[kept++] = p->write[i];
        }
    }
    p->n_writes = kept;
}

static bool gone(const struct pipe *p) {
    return p->hung_up || p->peer->gone;
}

static enum tw_packet_result send_packet(struct tw_pipe *pipe, const uint8_t *bytes, size_t n) {
    struct pipe *p = (struct pipe *)pipe;
    peer_turn(p->peer, 0);
    settle_writes(p);
    if (gone(p)) {
        return TW_PACKET_GONE;
    }
    if (p->n_writes + 2 > WRITES) {
        return TW_PACKET_AGAIN;
    }
    p->write[p->n_writes++] = peer_bulk_out(p->peer, bytes, (uint32_t)n);
    if (n % p->peer->endpoints.max_packet_size[p->peer->out] == 0) {
        p->write[p->n_writes++] = peer_bulk_out(p->peer, bytes, 0);
    }
    peer_turn(p->peer, 0);
    return TW_PACKET_OK;
}

/* The oldest read's bytes join the packet; true: it is whole. */
static bool join(struct pipe *p) {
    struct peer_move *m = p->read[0];
    if (m->status != usb_redir_success || p->have + m->n > sizeof p->packet) {
        die("a read that failed");
    }
    if (m->n) {
        memcpy(p->packet + p->have, m->data, m->n);
    }
    p->have += m->n;
    bool whole = m->n < p->room;
    peer_forget(p->peer, m);
    memmove(p->read, p->read + 1, (READS - 1) * sizeof p->read[0]);
    p->read[READS - 1] = peer_bulk_in(p->peer, p->room);
    return whole;
}

static enum tw_packet_result take_packet(struct tw_pipe *pipe, uint8_t **bytes, size_t *n) {
    struct pipe *p = (struct pipe *)pipe;
    peer_turn(p->peer, 0);
    while (p->read[0]->done && !gone(p)) {
        if (join(p)) {
            *bytes = p->packet;
            *n = p->have;
            p->have = 0;
            return TW_PACKET_OK;
        }
    }
    return gone(p) ? TW_PACKET_GONE : TW_PACKET_AGAIN;
}

static bool wait_pipe(struct tw_pipe *pipe, bool write, int ms) {
    struct pipe *p = (struct pipe *)pipe;
    uint64_t end = tw_clock_ms() + (uint64_t)(ms < 0 ? PEER_MS : ms);
    for (;;) {
        settle_writes(p);
        if (gone(p) || (write ? p->n_writes + 2 <= WRITES : p->read[0]->done)) {
            return true;
        }
        uint64_t now = tw_clock_ms();
        if (now >= end) {
            return false;
        }
        peer_turn(p->peer, (int)(end - now));
    }
}

static void hang_up(struct tw_pipe *pipe) {
    ((struct pipe *)pipe)->hung_up = true;
}

/* As a driver that ends: what it wrote goes out, what it waits for is cancelled. */
static void close_pipe(struct tw_pipe *pipe) {
    struct pipe *p = (struct pipe *)pipe;
    for (uint32_t i = 0; i < READS; i++) {
        if (!p->read[i]->done) {
            peer_cancel(p->peer, p->read[i]);
        }
    }
    for (uint32_t i = 0; i < p->n_writes && !p->peer->gone; i++) {
        peer_await(p->peer, p->write[i]);
    }
    settle_writes(p);
    for (uint32_t i = 0; i < READS; i++) {
        if (!p->peer->gone) {
            peer_await(p->peer, p->read[i]);
        }
        peer_forget(p->peer, p->read[i]);
    }
    free(p);
}

static const struct tw_pipe_ops ops = {.send = send_packet,
                                       .take = take_packet,
                                       .wait = wait_pipe,
                                       .hang_up = hang_up,
                                       .close = close_pipe};

struct tw_pipe *peer_pipe(struct usbredir_peer *peer, uint32_t room) {
    struct pipe *p = calloc(1, sizeof *p);
    if (!p) {
        die("no memory");
    }
    p->base = (struct tw_pipe){&ops, TW_LINK_CHUNK, -1};
    p->peer = peer;
    p->room = room;
    for (uint32_t i = 0; i < READS; i++) {
        p->read[i] = peer_bulk_in(peer, room);
    }
    return &p->base;
}
