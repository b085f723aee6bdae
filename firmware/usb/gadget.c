/* SPDX-License-Identifier: Apache-2.0
 *
 * Four threads that block in the kernel, one for each endpoint: ep0 handles bus events and control
 * requests, bulk OUT assembles packets, bulk IN sends them, the interrupt endpoint sends notices.
 * Leaving the bus ends whatever they wait for.
 */
#include "firmware/usb/gadget.h"

#include "firmware/link/packet.h"
#include "firmware/usb/gadget_tree.h"
#include "firmware/usb/usb_device_pipe.h"
#include "loader/base/clock.h"
#include "loader/base/event.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/usb/functionfs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Bytes of one read or write; halved whenever the kernel has no memory for it. All sizes are
 * multiples of every wMaxPacketSize. */
#define PIECE_MAX (TW_PACKET_BYTES / 1024 * 1024 + 1024) /* a whole packet */
#define PIECE_MIN (4u << 10)
#define PAUSE_MS 20 /* after an error whose bus event has not been handled yet */
#define LOOK_MS 500 /* a waiting thread checks the bus again after this */
#define DROP_POLL_MS 5

enum thread { CONTROL, RECEIVE, TRANSMIT, NOTIFY, THREADS };

struct gadget {
    struct tw_usb_pipe pipe;
    struct tw_usb_device device; /* used by the control thread only */
    struct tw_gadget_tree tree;
    int ep0, out, in, notices;
    int stop;        /* eventfd */
    uint8_t *buffer; /* of PIECE_MAX bytes, for the receiving thread */
    pthread_t thread[THREADS];
    uint32_t n_threads;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool enabled, stopping;
    uint32_t epoch; /* of the bus: incremented when partly transferred packets become void */
    uint32_t bus_packet;
    bool notice_pending;
    struct tw_usb_notice notice;
};

/* ---- state of the bus, shared by the threads ---- */

/* Waits until the endpoints are enabled. Returns false when the device ends. */
static bool wait_enabled(struct gadget *g, uint32_t *epoch) {
    pthread_mutex_lock(&g->lock);
    while (!g->enabled && !g->stopping) {
        pthread_cond_wait(&g->changed, &g->lock);
    }
    bool stopping = g->stopping;
    *epoch = g->epoch;
    pthread_mutex_unlock(&g->lock);
    return !stopping;
}

static uint32_t current_epoch(struct gadget *g) {
    pthread_mutex_lock(&g->lock);
    uint32_t epoch = g->epoch;
    pthread_mutex_unlock(&g->lock);
    return epoch;
}

static bool same_bus(struct gadget *g, uint32_t epoch) {
    pthread_mutex_lock(&g->lock);
    bool same = g->enabled && !g->stopping && g->epoch == epoch;
    pthread_mutex_unlock(&g->lock);
    return same;
}

static void set_enabled(struct gadget *g, bool enabled) {
    pthread_mutex_lock(&g->lock);
    g->enabled = enabled;
    g->epoch++;
    g->notice_pending = false;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Keeps the endpoints disabled until the queues are empty, so that the device server learns that
 * the old host has gone before it gets a packet of the new one. */
static void change_bus(struct gadget *g, bool enabled) {
    set_enabled(g, false);
    tw_usb_device_configured(&g->device);
    tw_usb_pipe_cut(&g->pipe, enabled);
    if (enabled) {
        set_enabled(g, true);
    }
}

static void pause_ms(long ms) {
    struct timespec t = {0, ms * 1000000};
    nanosleep(&t, NULL);
}

/* Returns true if a failed read or write should be retried at once. Halves *piece if the kernel had
 * no memory. */
static bool should_retry(size_t *piece) {
    if (errno == ENOMEM && *piece > PIECE_MIN) {
        *piece = *piece / 2048 * 1024;
        return true;
    }
    return errno == EINTR;
}

/* ---- bulk ---- */

static void queue_packet(struct gadget *g, struct tw_usb_assembly *a, uint32_t epoch) {
    while (!g->device.recovery && same_bus(g, epoch)) {
        if (tw_usb_pipe_wait_room(&g->pipe, LOOK_MS) &&
            tw_usb_pipe_put(&g->pipe, &a->bytes, a->n)) {
            break;
        }
    }
    tw_usb_assembly_clear(a);
}

static void *receive(void *arg) {
    static const struct tw_usb_assembly none;
    struct gadget *g = arg;
    struct tw_usb_assembly a = none;
    size_t piece = PIECE_MAX;
    uint32_t epoch = 0, now;
    a.bytes = g->pipe.spare[0];
    while (wait_enabled(g, &now)) {
        ssize_t n = read(g->out, g->buffer, piece);
        if (n < 0) {
            if (!should_retry(&piece)) {
                pause_ms(PAUSE_MS);
            }
            continue;
        }
        /* a read that waited through a reset returns the next host's first packet */
        now = current_epoch(g);
        if (now != epoch) {
            tw_usb_assembly_clear(&a);
            epoch = now;
        }
        if (tw_usb_assembly_add(&a, g->buffer, (size_t)n, (size_t)n < piece)) {
            queue_packet(g, &a, epoch);
        }
    }
    return NULL;
}

static bool write_bus(struct gadget *g, const uint8_t *bytes, size_t n, size_t *piece,
                      uint32_t epoch) {
    for (;;) {
        size_t part = n < *piece ? n : *piece;
        ssize_t done = write(g->in, bytes, part);
        if (done < 0) {
            if (!same_bus(g, epoch) || !should_retry(piece)) {
                return false;
            }
        } else if ((n -= (size_t)done) == 0) { /* a packet of 0 bytes must be written, too */
            return true;
        } else {
            bytes += done;
        }
    }
}

static void *transmit(void *arg) {
    struct gadget *g = arg;
    uint8_t *bytes = g->pipe.spare[1];
    size_t n, piece = PIECE_MAX;
    uint32_t epoch;
    while (wait_enabled(g, &epoch)) {
        if (!tw_usb_pipe_wait_get(&g->pipe, &bytes, &n, LOOK_MS)) {
            continue;
        }
        pthread_mutex_lock(&g->lock);
        uint32_t bus_packet = g->bus_packet;
        pthread_mutex_unlock(&g->lock);
        bool sent = write_bus(g, bytes, n, &piece, epoch);
        if (sent && n % bus_packet == 0) {
            sent = write_bus(g, bytes, 0, &piece, epoch); /* ends the packet */
        }
        if (!sent) {
            pause_ms(PAUSE_MS);
        }
    }
    return NULL;
}

static void *notify(void *arg) {
    struct gadget *g = arg;
    pthread_mutex_lock(&g->lock);
    while (!g->stopping) {
        if (!g->enabled || !g->notice_pending) {
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        struct tw_usb_notice notice = g->notice;
        g->notice_pending = false;
        pthread_mutex_unlock(&g->lock);
        /* blocks until the host polls, or the bus changes */
        ssize_t n = write(g->notices, &notice, sizeof notice);
        (void)n;
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* ---- ep0 ---- */

static void drop(void *ctx) {
    struct gadget *g = ctx;
    pthread_mutex_lock(&g->lock);
    g->epoch++;
    pthread_mutex_unlock(&g->lock);
    tw_usb_pipe_cut(&g->pipe, true);
}

/* Waits until the host has been dropped. Returns false if it was not within TW_USB_DROP_MS. */
static bool finish_drop(struct gadget *g) {
    struct tw_usb_notice notice;
    uint64_t until = tw_clock_ms() + TW_USB_DROP_MS;
    while (!tw_usb_device_dropped(&g->device, &notice)) {
        struct pollfd p = {.fd = g->stop, .events = POLLIN};
        if (tw_clock_ms() > until || poll(&p, 1, DROP_POLL_MS) > 0) {
            g->device.dropping = 0;
            return false;
        }
    }
    tw_usb_pipe_clear_out(&g->pipe); /* what was queued for it meanwhile */
    pthread_mutex_lock(&g->lock);
    g->notice = notice;
    g->notice_pending = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return true;
}

static void answer(struct gadget *g, const struct usb_ctrlrequest *c) {
    const struct tw_usb_setup s = {c->bRequestType, c->bRequest, le16toh(c->wValue),
                                   le16toh(c->wIndex), le16toh(c->wLength)};
    uint8_t data[TW_USB_CONTROL_MAX];
    size_t n = 0;
    bool in = s.type & USB_DIR_IN;
    enum tw_usb_reply r = tw_usb_device_control(&g->device, &s, data, &n);
    bool done = r == TW_USB_DONE || (r == TW_USB_LATER && finish_drop(g));
    /* Reading or writing acknowledges the request; doing the wrong one of the two makes FunctionFS
     * stall. An error only means that the host has given up. */
    ssize_t ignored = in == done ? write(g->ep0, data, done ? n : 0) : read(g->ep0, data, 0);
    (void)ignored;
}

/* Derives the bus speed from the endpoint's packet size. */
static void read_speed(struct gadget *g) {
    struct usb_endpoint_descriptor e;
    uint32_t size = 512;
    if (ioctl(g->in, FUNCTIONFS_ENDPOINT_DESC, &e) == 0) {
        size = le16toh(e.wMaxPacketSize) & 0x7FF;
    }
    g->device.speed = size >= 1024 ? TW_USB_SUPER : size >= 512 ? TW_USB_HIGH : TW_USB_FULL;
    pthread_mutex_lock(&g->lock);
    g->bus_packet = tw_usb_bulk_packet(g->device.speed);
    pthread_mutex_unlock(&g->lock);
}

static void handle_event(struct gadget *g, const struct usb_functionfs_event *e) {
    switch (e->type) {
    case FUNCTIONFS_ENABLE:
        read_speed(g);
        change_bus(g, true);
        break;
    case FUNCTIONFS_DISABLE:
    case FUNCTIONFS_UNBIND:
        change_bus(g, false);
        break;
    case FUNCTIONFS_SETUP:
        answer(g, &e->u.setup);
        break;
    default: /* BIND, SUSPEND, RESUME: no effect on packets */
        break;
    }
}

static void *control(void *arg) {
    struct gadget *g = arg;
    struct pollfd p[2] = {{.fd = g->stop, .events = POLLIN}, {.fd = g->ep0, .events = POLLIN}};
    for (;;) {
        struct usb_functionfs_event e[4];
        if (poll(p, 2, -1) < 0) {
            continue;
        }
        if (p[0].revents) {
            break;
        }
        ssize_t n = read(g->ep0, e, sizeof e);
        for (ssize_t i = 0; i < n / (ssize_t)sizeof *e; i++) {
            handle_event(g, &e[i]);
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            pause_ms(PAUSE_MS);
        }
    }
    pthread_mutex_lock(&g->lock);
    g->stopping = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    tw_gadget_tree_unbind(&g->tree); /* wakes the threads that wait for an endpoint */
    return NULL;
}

/* ---- descriptors for FunctionFS ---- */

static uint8_t *put32(uint8_t *at, uint32_t v) {
    tw_wire_put(at, v, 4);
    return at + 4;
}

static bool write_descriptors(int ep0) {
    uint8_t all[24 + 3 * TW_USB_FUNCTION_MAX], *at = all + 24, *count = all + 12;
    for (int speed = TW_USB_FULL; speed <= TW_USB_SUPER; speed++) {
        uint32_t n;
        at += tw_usb_function((enum tw_usb_speed)speed, at, &n);
        count = put32(count, n);
    }
    size_t n = (size_t)(at - all);
    put32(all, FUNCTIONFS_DESCRIPTORS_MAGIC_V2);
    put32(all + 4, (uint32_t)n);
    put32(all + 8, FUNCTIONFS_HAS_FS_DESC | FUNCTIONFS_HAS_HS_DESC | FUNCTIONFS_HAS_SS_DESC |
                       FUNCTIONFS_ALL_CTRL_RECIP);
    return write(ep0, all, n) == (ssize_t)n;
}

/* The interface has no name string. */
static bool write_strings(int ep0) {
    uint8_t all[16];
    put32(put32(put32(put32(all, FUNCTIONFS_STRINGS_MAGIC), sizeof all), 0), 0);
    return write(ep0, all, sizeof all) == (ssize_t)sizeof all;
}

static int fail_endpoint(const struct gadget *g, const char *what, tw_error *err) {
    return tw_fail(err, TW_E_IO, "gadget on %s: FunctionFS: %s: %s", g->tree.udc, what,
                   strerror(errno));
}

static int open_endpoints(struct gadget *g, tw_error *err) {
    int files = g->tree.files;
    g->ep0 = openat(files, "ep0", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (g->ep0 < 0 || !write_descriptors(g->ep0) || !write_strings(g->ep0)) {
        return fail_endpoint(g, "cannot describe the endpoints", err);
    }
    /* Non-blocking: without a bus an endpoint fails at once. */
    g->out = openat(files, "ep1", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    g->in = openat(files, "ep2", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    g->notices = openat(files, "ep3", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    return g->out < 0 || g->in < 0 || g->notices < 0
               ? fail_endpoint(g, "cannot open the endpoints", err)
               : 0;
}

/* ---- life ---- */

static void hang_up(struct tw_pipe *p) {
    struct gadget *g = (struct gadget *)p;
    tw_usb_pipe_hang_up(p);
    tw_event_signal(g->stop);
}

static void close_fd(int fd) {
    if (fd >= 0) {
        close(fd);
    }
}

static void destroy(struct gadget *g) {
    hang_up(&g->pipe.base);
    if (g->tree.gadgets >= 0) {
        /* the control thread may be waiting for a host that does not read its answer */
        tw_gadget_tree_unbind(&g->tree);
    }
    for (uint32_t i = 0; i < g->n_threads; i++) {
        pthread_join(g->thread[i], NULL);
    }
    close_fd(g->out);
    close_fd(g->in);
    close_fd(g->notices);
    close_fd(g->ep0);
    tw_gadget_tree_remove(&g->tree);
    tw_event_destroy(g->stop);
    free(g->buffer);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    tw_usb_pipe_finish(&g->pipe);
    free(g);
}

static void close_pipe(struct tw_pipe *p) {
    destroy((struct gadget *)p);
}

static const struct tw_pipe_ops ops = {.send = tw_usb_pipe_send,
                                       .take = tw_usb_pipe_take,
                                       .wait = tw_usb_pipe_wait,
                                       .hang_up = hang_up,
                                       .close = close_pipe};

static int start_threads(struct gadget *g, tw_error *err) {
    static void *(*const work[THREADS])(void *) = {control, receive, transmit, notify};
    for (; g->n_threads < THREADS; g->n_threads++) {
        if (pthread_create(&g->thread[g->n_threads], NULL, work[g->n_threads], g)) {
            return tw_fail(err, TW_E_INTERNAL, "gadget on %s: cannot create a thread", g->tree.udc);
        }
    }
    return 0;
}

static int start(struct gadget *g, const char *udc, tw_error *err) {
    g->stop = tw_event_create();
    if (g->stop < 0) {
        return tw_fail(err, TW_E_IO, "gadget: cannot create an eventfd: %s", strerror(errno));
    }
    g->buffer = malloc(PIECE_MAX);
    if (!g->buffer) {
        return tw_fail(err, TW_E_NOMEM, "gadget: out of memory for its receive buffer");
    }
    g->device.drop = drop;
    g->device.ctx = g;
    int code = tw_gadget_tree_make(&g->tree, "", udc, &g->device, err);
    code = code ? code : open_endpoints(g, err);
    code = code ? code : start_threads(g, err);
    return code ? code : tw_gadget_tree_bind(&g->tree, err);
}

int tw_gadget_create(const char *udc, const struct tw_usb_options *options, struct tw_pipe **out,
                     tw_error *err) {
    struct gadget *g = calloc(1, sizeof *g);
    if (!g) {
        return tw_fail(err, TW_E_NOMEM, "gadget: out of memory for the device");
    }
    int code = tw_usb_device_init(&g->device, options, err);
    code = code ? code : tw_usb_pipe_init(&g->pipe, &ops, false, err);
    if (code) {
        free(g);
        return code;
    }
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->ep0 = g->out = g->in = g->notices = g->stop = -1;
    g->tree.lock = g->tree.gadgets = g->tree.files = -1;
    g->bus_packet = 512;
    code = start(g, udc, err);
    if (code) {
        destroy(g);
        return code;
    }
    *out = &g->pipe.base;
    return 0;
}

const char *tw_gadget_udc(const struct tw_pipe *gadget) {
    return ((const struct gadget *)gadget)->tree.udc;
}

/* Reads the first word of a file. Returns false if there is none or it is not printable. */
static bool read_word(const char *path, char *to, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, to, room - 1);
    close_fd(fd);
    size_t length = 0;
    while (n > 0 && length < (size_t)n && to[length] > 0x20 && to[length] < 0x7F) {
        length++;
    }
    to[length] = 0;
    return length > 0;
}

void tw_gadget_board_serial(char serial[TW_USB_SERIAL_MAX + 1]) {
    char id[64];
    if (read_word("/proc/device-tree/serial-number", serial, TW_USB_SERIAL_MAX + 1)) {
        return;
    }
    /* The machine id is confidential; its checksum is not. */
    bool known = read_word("/etc/machine-id", id, sizeof id);
    snprintf(serial, TW_USB_SERIAL_MAX + 1, known ? "%08X" : "00000000",
             tw_packet_crc32c(0, id, strlen(id)));
}
