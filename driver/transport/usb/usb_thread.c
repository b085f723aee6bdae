/* SPDX-License-Identifier: Apache-2.0
 *
 * The event thread of a pipe over USB. It sleeps in libusb; each time it wakes it looks at what the
 * callbacks recorded and does what they must not: cancels, clears halts, resubmits, resets. It ends
 * when the pipe is gone and no transfer is in flight, so that libusb refers to nothing of the pipe
 * when it is freed.
 */
#include "driver/transport/usb/usb_host_pipe_internal.h"
#include "loader/base/assert.h"
#include "loader/base/clock.h"

#define REQUEST_OUT (LIBUSB_ENDPOINT_OUT | LIBUSB_REQUEST_TYPE_VENDOR | LIBUSB_RECIPIENT_INTERFACE)

#define IDLE_MS 1000u
#define RETRY_MS 20u /* between attempts at something that may soon succeed */
/* The pipe fails after this many consecutive errors, but not before so many milliseconds: an
 * unplugged device may cause some before the kernel notices. */
#define MAX_ERRORS 8u
#define MAX_FAILING_MS 1000
#define RESET_MS 5000

void tw_usb_wake(struct usb_pipe *p) {
    libusb_interrupt_event_handler(p->port.context);
}

/* ---- callbacks: they only record ---- */

static void enqueue(struct slot *s, size_t n) {
    struct usb_pipe *p = s->lane->pipe;
    TW_ASSERT(s->lane == &p->in && s->state == SLOT_FREE);
    TW_ASSERT(n > 0 && n <= s->lane->slot_bytes && p->queued < TW_USB_SLOTS);
    s->state = SLOT_FULL;
    s->n = n;
    p->queue[(p->first + p->queued++) % TW_USB_SLOTS] = s;
}

/* Queues a received packet. One that fills its buffer is too long and continues in the next; it is
 * queued once, as a single byte, which fails the checks of a packet. */
static void record_packet(struct slot *s, size_t n) {
    struct usb_pipe *p = s->lane->pipe;
    bool rest = p->overlong;
    p->overlong = n == s->lane->slot_bytes;
    if (n && !rest) {
        enqueue(s, p->overlong ? 1 : n);
    }
}

static void record_notice(struct slot *s, size_t n) {
    struct usb_pipe *p = s->lane->pipe;
    struct tw_usb_notice notice;
    if (n < sizeof notice) {
        return;
    }
    memcpy(&notice, s->buffer, sizeof notice);
    if (notice.kind == TW_USB_NOTICE_DROPPED && notice.generation) {
        p->dropped = notice.generation;
        if (p->dropped == p->generation) {
            tw_usb_fail_pipe(p, TW_USB_OVER);
        }
    }
}

static void record_success(struct slot *s, size_t n) {
    struct lane *lane = s->lane;
    struct usb_pipe *p = lane->pipe;
    lane->cleared = false;
    lane->not_before = lane->errors = 0;
    if (lane == &p->in) {
        record_packet(s, n);
    } else if (lane == &p->notice) {
        record_notice(s, n);
    } else {
        p->cut = p->cut || n != (size_t)s->transfer->length;
    }
}

/* Records the n bytes that were transferred before a transfer failed or was cancelled. Received
 * ones are queued, as a damaged packet; after sent ones the device still waits for the packet's
 * end. */
static void record_partial(struct slot *s, size_t n) {
    struct usb_pipe *p = s->lane->pipe;
    if (s->lane == &p->out) {
        p->cut = true;
    } else if (s->lane == &p->in && n && !p->overlong) {
        enqueue(s, n < s->lane->slot_bytes ? n : 1);
    }
}

void tw_usb_pause(struct lane *lane) {
    TW_ASSERT(lane->n_slots > 0);
    lane->not_before = tw_clock_ms() + RETRY_MS;
}

void tw_usb_record_error(struct lane *lane) {
    struct usb_pipe *p = lane->pipe;
    uint64_t now = tw_clock_ms();
    if (lane->errors++ == 0) {
        lane->failing_since = now;
    }
    TW_ASSERT(lane->failing_since <= now);
    tw_usb_pause(lane);
    if (lane->errors < MAX_ERRORS || now - lane->failing_since < MAX_FAILING_MS) {
        return;
    }
    if (lane == &p->notice) {
        lane->state = LANE_STUCK; /* do without notices as long as packets get through */
    } else {
        tw_usb_fail_pipe(p, TW_USB_FAILS);
    }
}

static void record_stall(struct lane *lane) {
    if (lane->state == LANE_RUNS) {
        lane->state = lane->cleared ? LANE_STUCK : LANE_HALTED;
    }
}

static void record(struct slot *s, enum libusb_transfer_status status, size_t n) {
    struct lane *lane = s->lane;
    switch (status) {
    case LIBUSB_TRANSFER_COMPLETED:
        record_success(s, n);
        return;
    case LIBUSB_TRANSFER_NO_DEVICE:
        tw_usb_fail_pipe(lane->pipe, TW_USB_UNPLUGGED);
        return;
    case LIBUSB_TRANSFER_OVERFLOW:
        record_partial(s, n ? n : 1); /* the device sent too much: a packet is lost */
        return;
    case LIBUSB_TRANSFER_STALL:
        record_partial(s, n);
        record_stall(lane);
        return;
    case LIBUSB_TRANSFER_ERROR:
        record_partial(s, n);
        tw_usb_record_error(lane);
        return;
    case LIBUSB_TRANSFER_CANCELLED:
    case LIBUSB_TRANSFER_TIMED_OUT:
        record_partial(s, n);
        return;
    }
}

void LIBUSB_CALL tw_usb_done(struct libusb_transfer *transfer) {
    struct slot *s = transfer->user_data;
    struct usb_pipe *p = s->lane->pipe;
    pthread_mutex_lock(&p->lock);
    TW_ASSERT(transfer == s->transfer && s->state == SLOT_IN_FLIGHT && s->lane->in_flight > 0);
    s->state = SLOT_FREE;
    s->lane->in_flight--;
    record(s, transfer->status, transfer->actual_length > 0 ? (size_t)transfer->actual_length : 0);
    TW_ASSERT(tw_usb_is_consistent(p));
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void LIBUSB_CALL tw_usb_control_done(struct libusb_transfer *transfer) {
    struct usb_pipe *p = transfer->user_data;
    pthread_mutex_lock(&p->lock);
    TW_ASSERT(p->control_in_flight && transfer == p->control);
    p->control_in_flight = false;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* ---- the thread's work, with the lock held unless stated otherwise ---- */

static void cancel(struct lane *lane) {
    for (unsigned i = 0; i < lane->n_slots; i++) {
        if (lane->slot[i].state == SLOT_IN_FLIGHT) {
            libusb_cancel_transfer(lane->slot[i].transfer);
        }
    }
}

static bool is_empty(const struct usb_pipe *p) {
    return p->out.in_flight + p->in.in_flight + p->notice.in_flight == 0 && !p->control_in_flight;
}

static void cancel_all(struct usb_pipe *p) {
    cancel(&p->out);
    cancel(&p->in);
    cancel(&p->notice);
    if (p->control_in_flight) {
        libusb_cancel_transfer(p->control);
    }
}

static void start_lane(struct lane *lane) {
    lane->state = LANE_RUNS;
    lane->not_before = lane->errors = 0;
    lane->cleared = false;
}

/* Clears a halt, once the endpoint's queue is empty. */
static void clear_stall(struct lane *lane) {
    struct usb_pipe *p = lane->pipe;
    if (lane->state != LANE_HALTED) {
        return;
    }
    if (lane->in_flight) {
        cancel(lane);
        return;
    }
    pthread_mutex_unlock(&p->lock);
    int code = libusb_clear_halt(p->port.handle, lane->address);
    pthread_mutex_lock(&p->lock);
    TW_ASSERT(lane->state == LANE_HALTED &&
              lane->in_flight == 0); /* nobody submits to a halted one */
    if (code == LIBUSB_ERROR_NO_DEVICE) {
        tw_usb_fail_pipe(p, TW_USB_UNPLUGGED);
    }
    lane->state = code ? LANE_STUCK : LANE_RUNS;
    lane->cleared = true;
    pthread_cond_broadcast(&p->changed);
}

static int clear_halts(const struct usb_pipe *p) {
    int code = libusb_clear_halt(p->port.handle, p->out.address);
    int second = code ? code : libusb_clear_halt(p->port.handle, p->in.address);
    return second || !p->notice.n_slots ? second
                                        : libusb_clear_halt(p->port.handle, p->notice.address);
}

/* Does the job without the lock: nothing is in flight, and nobody submits while there is a job. */
static int do_job(const struct usb_pipe *p) {
    int code;
    switch (p->job) {
    case JOB_CLEAR_HALTS:
        return clear_halts(p);
    case JOB_RESET_HOST:
        code = libusb_control_transfer(p->port.handle, REQUEST_OUT, TW_USB_RESET, 0,
                                       p->port.place.interface, NULL, 0, RESET_MS);
        return code < 0 ? code : clear_halts(p);
    case JOB_RESET_PORT:
        return libusb_reset_device(p->port.handle);
    case JOB_NONE:
        break;
    }
    return 0;
}

static void end_job(struct usb_pipe *p, int code) {
    TW_ASSERT(p->job_started && is_empty(p));
    /* NOT_FOUND: the device was enumerated again after its reset */
    if (code == LIBUSB_ERROR_NO_DEVICE || code == LIBUSB_ERROR_NOT_FOUND) {
        tw_usb_fail_pipe(p, TW_USB_UNPLUGGED);
    }
    p->job = JOB_NONE;
    p->job_started = false;
    p->job_succeeded = code == 0;
    p->overlong = false;
    p->cut = true;
    start_lane(&p->out);
    start_lane(&p->in);
    start_lane(&p->notice);
    pthread_cond_broadcast(&p->changed);
}

static void serve_job(struct usb_pipe *p) {
    TW_ASSERT(p->job != JOB_NONE && !p->gone);
    if (!p->job_started) {
        p->job_started = true;
        cancel_all(p);
    }
    if (!is_empty(p)) {
        return;
    }
    if (p->job != JOB_CLEAR_HALTS) {
        p->generation = 0; /* the reset ends it, so the device's notice of that is no failure */
    }
    pthread_mutex_unlock(&p->lock);
    int code = do_job(p);
    pthread_mutex_lock(&p->lock);
    end_job(p, code);
}

static void serve_gone(struct usb_pipe *p) {
    TW_ASSERT(p->gone && p->cause);
    if (!p->cancelled) {
        p->cancelled = true;
        cancel_all(p);
    }
    p->job = JOB_NONE;
    p->job_succeeded = false;
}

/* Returns whether the lane is paused; ends a pause that is over. */
static bool is_paused(struct lane *lane) {
    if (lane->not_before && tw_clock_ms() >= lane->not_before) {
        lane->not_before = 0;
        pthread_cond_broadcast(&lane->pipe->changed);
    }
    return lane->not_before != 0;
}

/* Returns whether to look again soon. */
static bool serve_lanes(struct usb_pipe *p) {
    struct lane *const all[] = {&p->out, &p->in, &p->notice};
    bool soon = false;
    for (size_t i = 0; i < 3; i++) {
        clear_stall(all[i]);
        soon = is_paused(all[i]) || soon;
    }
    tw_usb_end_cut_packet(p);
    tw_usb_receive_more(&p->in);
    tw_usb_receive_more(&p->notice);
    return soon || p->in.not_before || p->notice.not_before;
}

static bool serve(struct usb_pipe *p) {
    if (!p->gone && p->job) {
        serve_job(p);
    }
    if (p->gone) {
        serve_gone(p);
        return false;
    }
    return !p->job && serve_lanes(p);
}

static void handle_events(struct usb_pipe *p, unsigned ms) {
    struct timeval t = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
    libusb_handle_events_timeout_completed(p->port.context, &t, NULL);
}

void *tw_usb_thread(void *pipe) {
    struct usb_pipe *p = pipe;
    pthread_mutex_lock(&p->lock);
    while (!p->gone || !is_empty(p)) {
        TW_ASSERT(tw_usb_is_consistent(p));
        bool soon = serve(p);
        bool done = p->gone && is_empty(p);
        pthread_mutex_unlock(&p->lock);
        if (!done) {
            handle_events(p, soon ? RETRY_MS : IDLE_MS);
        }
        pthread_mutex_lock(&p->lock);
    }
    TW_ASSERT(p->gone && is_empty(p));
    pthread_mutex_unlock(&p->lock);
    return NULL;
}
