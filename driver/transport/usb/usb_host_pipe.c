/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipe over USB: the functions that its users call. Every endpoint has a fixed set of transfers
 * with buffers that the kernel can transfer without copying, if it supports that. A packet to send
 * is built in one of them and a received one is read in place; all waiting is on one condition
 * variable. usb_thread.c does the rest.
 */
#include "driver/transport/usb/usb_host_pipe.h"
#include "driver/transport/usb/usb_host_pipe_internal.h"
#include "loader/base/assert.h"
#include "loader/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* of all buffers; the kernel's default limit is 16 MiB for all users of USB together */
#define BUDGET_BYTES (8u << 20)
#define STATUS_MS 500
#define LINGER_MS 500
#define JOB_MS 10000
#define REQUEST_IN (LIBUSB_ENDPOINT_IN | LIBUSB_REQUEST_TYPE_VENDOR | LIBUSB_RECIPIENT_INTERFACE)

/* Closes a port; its fields may be NULL. */
static void close_port(struct tw_usb_port *port) {
    if (port->handle) {
        libusb_release_interface(port->handle, port->place.interface);
        libusb_close(port->handle);
    }
    if (port->context) {
        libusb_exit(port->context);
    }
    *port = (struct tw_usb_port){0};
}

/* ---- submitting; the lock is held ---- */

void tw_usb_fail_pipe(struct usb_pipe *p, const char *cause) {
    if (!p->gone) {
        p->cause = cause;
    }
    p->gone = true;
    pthread_cond_broadcast(&p->changed);
}

static bool may_submit(const struct lane *lane) {
    return !lane->pipe->gone && !lane->pipe->job && lane->state == LANE_RUNS && !lane->not_before;
}

/* Submits a slot's transfer of n bytes. On AGAIN the slot is unchanged. */
static enum tw_packet_result submit(struct slot *s, size_t n) {
    struct lane *lane = s->lane;
    struct usb_pipe *p = lane->pipe;
    TW_ASSERT(s->state == SLOT_FREE || s->state == SLOT_LENT);
    TW_ASSERT(n > 0 && n <= lane->slot_bytes && lane->in_flight < lane->n_slots);
    s->transfer->length = (int)n;
    int code = libusb_submit_transfer(s->transfer);
    if (code == 0) {
        s->state = SLOT_IN_FLIGHT;
        lane->in_flight++;
        return TW_PACKET_OK;
    }
    if (code == LIBUSB_ERROR_NO_DEVICE) {
        tw_usb_fail_pipe(p, TW_USB_UNPLUGGED);
    } else if (code == LIBUSB_ERROR_NO_MEM) {
        tw_usb_pause(lane); /* others use up the kernel's USB memory: some may be free soon */
    } else {
        tw_usb_record_error(lane);
    }
    tw_usb_wake(p);
    return p->gone ? TW_PACKET_GONE : TW_PACKET_AGAIN;
}

void tw_usb_receive_more(struct lane *lane) {
    TW_ASSERT(lane != &lane->pipe->out);
    for (unsigned i = 0; i < lane->n_slots && may_submit(lane); i++) {
        if (lane->slot[i].state == SLOT_FREE) {
            submit(&lane->slot[i], lane->slot_bytes);
        }
    }
}

/* ---- sending ---- */

static struct slot *find_free(struct lane *lane) {
    for (unsigned i = 0; i < lane->n_slots; i++) {
        if (lane->slot[i].state == SLOT_FREE) {
            return &lane->slot[i];
        }
    }
    return NULL;
}

/* Finds the slot whose buffer room() returned. */
static struct slot *find_lent(struct lane *lane, const uint8_t *bytes) {
    for (unsigned i = 0; i < lane->n_slots; i++) {
        if (lane->slot[i].buffer == bytes && lane->slot[i].state == SLOT_LENT) {
            return &lane->slot[i];
        }
    }
    return NULL;
}

void tw_usb_end_cut_packet(struct usb_pipe *p) {
    struct slot *s = find_free(&p->out);
    if (p->cut && s && may_submit(&p->out)) {
        s->buffer[0] = 0;
        p->cut = submit(s, 1) != TW_PACKET_OK;
        pthread_cond_broadcast(&p->changed);
    }
}

/* Lends a slot for one packet; NULL if none can be sent now. If the pipe is gone, lends any free
 * slot, as the caller learns of it when sending. */
static struct slot *lend(struct usb_pipe *p) {
    struct slot *s = p->gone || (may_submit(&p->out) && !p->cut) ? find_free(&p->out) : NULL;
    if (s) {
        s->state = SLOT_LENT;
    }
    return s;
}

static uint8_t *room(struct tw_pipe *pipe) {
    struct usb_pipe *p = (struct usb_pipe *)pipe;
    pthread_mutex_lock(&p->lock);
    struct slot *s = lend(p);
    pthread_mutex_unlock(&p->lock);
    return s ? s->buffer : NULL;
}

/* Sends a lent slot. It is no longer lent afterwards, whatever the result. */
static enum tw_packet_result send_lent(struct usb_pipe *p, struct slot *s, size_t n) {
    enum tw_packet_result r = p->gone ? TW_PACKET_GONE : TW_PACKET_AGAIN;
    TW_ASSERT(s->lane == &p->out && s->state == SLOT_LENT && n <= TW_PACKET_BYTES);
    if (n && may_submit(&p->out) && !p->cut) {
        r = submit(s, n);
    }
    if (r != TW_PACKET_OK) {
        s->state = SLOT_FREE;
        pthread_cond_broadcast(&p->changed);
    }
    return r;
}

static enum tw_packet_result send_copy(struct usb_pipe *p, const uint8_t *bytes, size_t n) {
    struct slot *s = lend(p);
    if (!s) {
        return p->gone ? TW_PACKET_GONE : TW_PACKET_AGAIN;
    }
    TW_ASSERT(n <= p->out.slot_bytes);
    pthread_mutex_unlock(&p->lock);
    memcpy(s->buffer, bytes, n);
    pthread_mutex_lock(&p->lock);
    return send_lent(p, s, n);
}

static enum tw_packet_result send_packet(struct tw_pipe *pipe, const uint8_t *bytes, size_t n) {
    struct usb_pipe *p = (struct usb_pipe *)pipe;
    pthread_mutex_lock(&p->lock);
    struct slot *s = find_lent(&p->out, bytes);
    enum tw_packet_result r = s ? send_lent(p, s, n) : send_copy(p, bytes, n);
    pthread_mutex_unlock(&p->lock);
    return r;
}

/* ---- receiving ---- */

static enum tw_packet_result take(struct tw_pipe *pipe, uint8_t **bytes, size_t *n) {
    struct usb_pipe *p = (struct usb_pipe *)pipe;
    enum tw_packet_result r = TW_PACKET_AGAIN;
    pthread_mutex_lock(&p->lock);
    TW_ASSERT(tw_usb_is_consistent(p));
    if (p->lent) {
        TW_ASSERT(p->lent->lane == &p->in && p->lent->state == SLOT_LENT);
        p->lent->state = SLOT_FREE;
        p->lent = NULL;
        tw_usb_receive_more(&p->in);
    }
    if (p->gone) {
        r = TW_PACKET_GONE;
    } else if (p->queued) {
        struct slot *s = p->lent = p->queue[p->first];
        TW_ASSERT(s->state == SLOT_FULL && s->n > 0 && s->n <= p->in.slot_bytes);
        p->first = (p->first + 1) % TW_USB_SLOTS;
        p->queued--;
        s->state = SLOT_LENT;
        *bytes = s->buffer;
        *n = s->n < TW_PACKET_BYTES ? s->n : TW_PACKET_BYTES;
        r = TW_PACKET_OK;
    }
    pthread_mutex_unlock(&p->lock);
    return r;
}

/* ---- waiting ---- */

/* Waits for `changed`, with the lock held; deadline NULL: forever. Returns false after the
 * deadline. */
static bool await_change(struct usb_pipe *p, const struct timespec *deadline) {
    return deadline ? pthread_cond_timedwait(&p->changed, &p->lock, deadline) != ETIMEDOUT
                    : pthread_cond_wait(&p->changed, &p->lock) == 0;
}

/* Returns whether a packet can be sent (`write`) or taken. Sending also needs a free slot on a pipe
 * that is gone, so that room() can return one and send report GONE. */
static bool is_ready(struct usb_pipe *p, bool write) {
    if (write) {
        return (p->gone || (may_submit(&p->out) && !p->cut)) && find_free(&p->out);
    }
    return p->gone || p->queued > 0;
}

static bool wait_ready(struct tw_pipe *pipe, bool write, int ms) {
    struct usb_pipe *p = (struct usb_pipe *)pipe;
    struct timespec end = tw_clock_after_ms(ms > 0 ? (uint32_t)ms : 0);
    pthread_mutex_lock(&p->lock);
    bool ready, time_left = true;
    while (!(ready = is_ready(p, write)) && time_left) {
        time_left = await_change(p, ms < 0 ? NULL : &end);
    }
    TW_ASSERT(tw_usb_is_consistent(p));
    pthread_mutex_unlock(&p->lock);
    return ready;
}

/* ---- out-of-band status ---- */

/* Reads the device's status by a control transfer, for which it waits, with the lock held. */
static bool query_status(struct usb_pipe *p, struct tw_usb_status *status) {
    const struct timespec end = tw_clock_after_ms(STATUS_MS);
    if (p->gone || p->job || p->control_in_flight || libusb_submit_transfer(p->control)) {
        return false;
    }
    p->control_in_flight = true;
    while (p->control_in_flight && await_change(p, &end)) {
    }
    if (p->control_in_flight || p->control->status != LIBUSB_TRANSFER_COMPLETED ||
        p->control->actual_length != (int)sizeof *status) {
        return false;
    }
    memcpy(status, libusb_control_transfer_get_data(p->control), sizeof *status);
    return true;
}

static bool probe_status(struct tw_pipe *pipe, struct tw_link_progress *out) {
    struct usb_pipe *p = (struct usb_pipe *)pipe;
    struct tw_usb_status status;
    pthread_mutex_lock(&p->lock);
    bool answered = query_status(p, &status) && status.state == 0;
    pthread_mutex_unlock(&p->lock);
    if (answered) {
        *out = status.progress;
    }
    return answered;
}

static const char *recover(struct tw_pipe *pipe, unsigned rung) {
    static const struct {
        enum usb_job job;
        const char *text;
    } ladder[] = {{JOB_CLEAR_HALTS, "both endpoints were cleared"},
                  {JOB_RESET_HOST, "the device was made to drop its host"},
                  {JOB_RESET_PORT, "the device was reset by its port"}};
    struct usb_pipe *p = (struct usb_pipe *)pipe;
    const struct timespec end = tw_clock_after_ms(JOB_MS);
    if (rung >= sizeof ladder / sizeof ladder[0]) {
        return NULL;
    }
    pthread_mutex_lock(&p->lock);
    bool mine = !p->gone && !p->job;
    if (mine) {
        TW_ASSERT(!p->job_started);
        p->job = ladder[rung].job;
        p->job_succeeded = false;
        tw_usb_wake(p);
    }
    while (mine && p->job && !p->gone && await_change(p, &end)) {
    }
    bool ended = mine && !p->job && !p->gone, done = p->job_succeeded;
    pthread_mutex_unlock(&p->lock);
    return !ended ? NULL : done ? ladder[rung].text : "";
}

/* ---- the end ---- */

static void lose_and_wake(struct usb_pipe *p, const char *cause) {
    pthread_mutex_lock(&p->lock);
    tw_usb_fail_pipe(p, cause);
    pthread_mutex_unlock(&p->lock);
    tw_usb_wake(p);
}

static void hang_up(struct tw_pipe *pipe) {
    lose_and_wake((struct usb_pipe *)pipe, "this side closed the connection");
}

static void free_lane(struct lane *lane) {
    for (unsigned i = 0; i < lane->n_slots; i++) {
        struct slot *s = &lane->slot[i];
        TW_ASSERT(s->state != SLOT_IN_FLIGHT);
        if (s->mapped) {
            libusb_dev_mem_free(lane->pipe->port.handle, s->buffer, lane->slot_bytes);
        } else {
            free(s->buffer);
        }
        libusb_free_transfer(s->transfer);
    }
}

/* Frees the pipe, when no transfer is in flight. */
static void dispose(struct usb_pipe *p) {
    TW_ASSERT(p->out.in_flight + p->in.in_flight + p->notice.in_flight == 0 &&
              !p->control_in_flight);
    free_lane(&p->out);
    free_lane(&p->in);
    free_lane(&p->notice);
    if (p->control) {
        free(p->control->buffer);
        libusb_free_transfer(p->control);
    }
    close_port(&p->port);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static const char *get_cause(struct tw_pipe *pipe) {
    struct usb_pipe *p = (struct usb_pipe *)pipe;
    pthread_mutex_lock(&p->lock);
    const char *cause = p->cause;
    pthread_mutex_unlock(&p->lock);
    return cause;
}

/* Waits until what was sent last, for example CLOSE, has gone out. */
static void linger(struct usb_pipe *p) {
    const struct timespec end = tw_clock_after_ms(LINGER_MS);
    pthread_mutex_lock(&p->lock);
    while (!p->gone && p->out.in_flight && await_change(p, &end)) {
    }
    pthread_mutex_unlock(&p->lock);
}

static void close_pipe(struct tw_pipe *pipe) {
    struct usb_pipe *p = (struct usb_pipe *)pipe;
    linger(p);
    hang_up(pipe);
    pthread_join(p->thread, NULL);
    dispose(p);
}

void tw_usb_host_pipe_set_generation(struct tw_pipe *pipe, uint32_t generation) {
    struct usb_pipe *p = (struct usb_pipe *)pipe;
    pthread_mutex_lock(&p->lock);
    p->generation = generation;
    bool over = generation && p->dropped == generation;
    pthread_mutex_unlock(&p->lock);
    if (over) {
        lose_and_wake(p, TW_USB_OVER);
    }
}

/* ---- opening ---- */

static const struct tw_pipe_ops usb_ops = {.send = send_packet,
                                           .take = take,
                                           .wait = wait_ready,
                                           .hang_up = hang_up,
                                           .close = close_pipe,
                                           .room = room,
                                           .probe_status = probe_status,
                                           .recover = recover,
                                           .cause = get_cause};

static bool make_slot(struct lane *lane, struct slot *s, unsigned char type) {
    libusb_device_handle *handle = lane->pipe->port.handle;
    TW_ASSERT(s == &lane->slot[lane->n_slots] && lane->n_slots < TW_USB_SLOTS);
    s->lane = lane;
    s->transfer = libusb_alloc_transfer(0);
    s->buffer = libusb_dev_mem_alloc(handle, lane->slot_bytes);
    s->mapped = s->buffer != NULL;
    s->buffer = s->mapped ? s->buffer : malloc(lane->slot_bytes);
    lane->n_slots++;
    if (!s->transfer || !s->buffer) {
        return false;
    }
    libusb_fill_bulk_transfer(s->transfer, handle, lane->address, s->buffer, 0, tw_usb_done, s, 0);
    s->transfer->type = type;
    s->transfer->flags = lane->address & LIBUSB_ENDPOINT_IN ? 0 : LIBUSB_TRANSFER_ADD_ZERO_PACKET;
    return true;
}

static bool make_lane(struct lane *lane, uint8_t address, size_t bytes, unsigned n) {
    unsigned char type =
        lane == &lane->pipe->notice ? LIBUSB_TRANSFER_TYPE_INTERRUPT : LIBUSB_TRANSFER_TYPE_BULK;
    TW_ASSERT(n <= TW_USB_SLOTS && bytes > 0);
    lane->address = address;
    lane->slot_bytes = bytes;
    bool made = true;
    while (made && lane->n_slots < n) {
        made = make_slot(lane, &lane->slot[lane->n_slots], type);
    }
    return made;
}

/* Returns a buffer size that is larger than any legal packet (of `max` bytes), so that the end of a
 * packet is always detected. */
static size_t buffer_bytes(size_t max, uint16_t packet) {
    TW_ASSERT(packet > 0);
    return (max / packet + 1) * packet;
}

static bool make_lanes(struct usb_pipe *p) {
    const struct tw_usb_place *at = &p->port.place;
    size_t out = buffer_bytes(TW_PACKET_BYTES, at->out_packet),
           in = buffer_bytes(TW_PACKET_BYTES, at->in_packet);
    size_t fit = BUDGET_BYTES / (out + in);
    unsigned n = fit < 2 ? 2 : fit < TW_USB_SLOTS ? (unsigned)fit : TW_USB_SLOTS;
    return make_lane(&p->out, at->out, out, n) && make_lane(&p->in, at->in, in, n) &&
           (!at->notice ||
            make_lane(&p->notice, at->notice,
                      buffer_bytes(sizeof(struct tw_usb_notice) - 1, at->notice_packet), 1));
}

static bool make_control(struct usb_pipe *p) {
    const uint16_t bytes = sizeof(struct tw_usb_status);
    unsigned char *buffer = malloc(LIBUSB_CONTROL_SETUP_SIZE + bytes);
    p->control = libusb_alloc_transfer(0);
    if (!p->control || !buffer) {
        free(buffer);
        return false;
    }
    libusb_fill_control_setup(buffer, REQUEST_IN, TW_USB_STATUS, 0, p->port.place.interface, bytes);
    libusb_fill_control_transfer(p->control, p->port.handle, buffer, tw_usb_control_done, p,
                                 TW_USB_CONTROL_MS);
    return true;
}

/* Starts the event thread with all signals blocked, which are for the application's threads. */
static bool start_thread(struct usb_pipe *p) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&p->thread, NULL, tw_usb_thread, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code == 0;
}

/* Submits the first transfers. The thread is running already, so that a failure is cleaned up like
 * any other. */
static int start_receiving(struct usb_pipe *p, tw_error *err) {
    pthread_mutex_lock(&p->lock);
    tw_usb_receive_more(&p->in);
    tw_usb_receive_more(&p->notice);
    bool receives = p->in.in_flight || p->queued, gone = p->gone,
         no_memory = p->in.not_before && !p->in.errors;
    pthread_mutex_unlock(&p->lock);
    if (gone || (!receives && !no_memory)) {
        return tw_fail(err, TW_E_DEVICE_LOST,
                       "device %s: it was unplugged, or its USB transfers fail; plug it in again",
                       p->name);
    }
    return receives ? 0
                    : tw_fail(err, TW_E_NOMEM,
                              "device %s: the kernel has no memory left for USB transfers; echo "
                              "128 | sudo tee "
                              "/sys/module/usbcore/parameters/usbfs_memory_mb",
                              p->name);
}

static struct usb_pipe *create(const char *name, const struct tw_usb_port *port) {
    struct usb_pipe *p = calloc(1, sizeof *p);
    if (!p) {
        return NULL;
    }
    p->base = (struct tw_pipe){.ops = &usb_ops, .chunk = TW_LINK_CHUNK, .fd = -1};
    p->port = *port;
    p->out.pipe = p->in.pipe = p->notice.pipe = p;
    snprintf(p->name, sizeof p->name, "%s", name);
    pthread_mutex_init(&p->lock, NULL);
    tw_clock_init_condition(&p->changed);
    return p;
}

int tw_usb_host_pipe_open(const char *name, const struct tw_usb_port *port, struct tw_pipe **out,
                          tw_error *err) {
    struct tw_usb_port owned = *port;
    struct usb_pipe *p = create(name, port);
    if (!p) {
        close_port(&owned);
        return tw_fail(err, TW_E_NOMEM, "device %s: out of memory", name);
    }
    if (!make_lanes(p) || !make_control(p) || !start_thread(p)) {
        dispose(p);
        return tw_fail(err, TW_E_NOMEM, "device %s: out of memory or threads", name);
    }
    int code = start_receiving(p, err);
    if (code) {
        close_pipe(&p->base);
        return code;
    }
    *out = &p->base;
    return 0;
}
