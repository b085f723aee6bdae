/* SPDX-License-Identifier: Apache-2.0
 *
 * The event thread of a pipe over USB. It sleeps in libusb; each time it wakes it looks at what the
 * callbacks noted and does what they must not: cancels, clears halts, submits again, resets. It
 * ends when the pipe is gone and no transfer is in flight any more, so that nothing of the pipe is
 * in libusb's hands when it is freed.
 */
#include "driver/transport/usb/usb_host_pipe_internal.h"
#include "firmware/link/packet.h"
#include "loader/base/assert.h"

#define REQUEST_OUT (LIBUSB_ENDPOINT_OUT | LIBUSB_REQUEST_TYPE_VENDOR | LIBUSB_RECIPIENT_INTERFACE)

#define IDLE_MS 1000u
#define HURRY_MS 20u   /* between tries of what may work soon */
#define ERRORS_MOST 8u /* in a row, ... */
#define FAILING_MOST_MS \
    1000 /* and for this long: an unplugged device may give some before the kernel knows */
#define RESET_MS 5000

void tw_usb_wake(struct usb_pipe *p) {
    libusb_interrupt_event_handler(p->port.context);
}

/* ---- callbacks: they only note ---- */

static void enqueue(struct slot *s, size_t n) {
    struct usb_pipe *p = s->lane->pipe;
    TW_ASSERT(s->lane == &p->in && s->state == SLOT_FREE);
    TW_ASSERT(n > 0 && n <= s->lane->slot_bytes && p->queued < TW_USB_SLOTS);
    s->state = SLOT_FULL;
    s->n = n;
    p->queue[(p->first + p->queued++) % TW_USB_SLOTS] = s;
}

/* A packet that fills a whole buffer goes on in the next one: it is longer than a packet may be. It
 * is told once, as one that fails its checks. */
static void note_packet(struct slot *s, size_t n) {
    struct usb_pipe *p = s->lane->pipe;
    bool rest = p->overlong;
    p->overlong = n == s->lane->slot_bytes;
    if (n && !rest) {
        enqueue(s, p->overlong ? 1 : n);
    }
}

static void note_notice(struct slot *s, size_t n) {
    struct usb_pipe *p = s->lane->pipe;
    struct tw_usb_notice notice;
    if (n < sizeof notice) {
        return;
    }
    memcpy(&notice, s->buffer, sizeof notice);
    if (notice.kind == TW_USB_NOTICE_DROPPED && notice.generation) {
        p->dropped = notice.generation;
        if (p->dropped == p->generation) {
            tw_usb_lose(p, TW_USB_OVER);
        }
    }
}

static void note_success(struct slot *s, size_t n) {
    struct lane *lane = s->lane;
    struct usb_pipe *p = lane->pipe;
    lane->cleared = false;
    lane->not_before = lane->errors = 0;
    if (lane == &p->in) {
        note_packet(s, n);
    } else if (lane == &p->notice) {
        note_notice(s, n);
    } else {
        p->cut = p->cut || n != (size_t)s->transfer->length;
    }
}

/* What moved before a transfer was cancelled or failed has moved: on the way in it is told as what
 * came, which is a damaged packet; on the way out the device waits for its end. */
static void note_part(struct slot *s, size_t n) {
    struct usb_pipe *p = s->lane->pipe;
    if (s->lane == &p->out) {
        p->cut = true;
    } else if (s->lane == &p->in && n && !p->overlong) {
        enqueue(s, n < s->lane->slot_bytes ? n : 1);
    }
}

void tw_usb_pause(struct lane *lane) {
    TW_ASSERT(lane->n_slots > 0);
    lane->not_before = tw_packet_now() + HURRY_MS;
}

void tw_usb_note_error(struct lane *lane) {
    struct usb_pipe *p = lane->pipe;
    uint64_t now = tw_packet_now();
    if (lane->errors++ == 0) {
        lane->failing_since = now;
    }
    TW_ASSERT(lane->failing_since <= now);
    tw_usb_pause(lane);
    if (lane->errors < ERRORS_MOST || now - lane->failing_since < FAILING_MOST_MS) {
        return;
    }
    if (lane == &p->notice) {
        lane->state = LANE_STUCK; /* the packets get through: the device works */
    } else {
        tw_usb_lose(p, TW_USB_FAILS);
    }
}

static void note_stall(struct lane *lane) {
    if (lane->state == LANE_RUNS) {
        lane->state = lane->cleared ? LANE_STUCK : LANE_HALTED;
    }
}

static void note(struct slot *s, enum libusb_transfer_status status, size_t n) {
    struct lane *lane = s->lane;
    switch (status) {
    case LIBUSB_TRANSFER_COMPLETED:
        note_success(s, n);
        return;
    case LIBUSB_TRANSFER_NO_DEVICE:
        tw_usb_lose(lane->pipe, TW_USB_UNPLUGGED);
        return;
    case LIBUSB_TRANSFER_OVERFLOW:
        note_part(s, n ? n : 1); /* the device babbled: some packet is lost */
        return;
    case LIBUSB_TRANSFER_STALL:
        note_part(s, n);
        note_stall(lane);
        return;
    case LIBUSB_TRANSFER_ERROR:
        note_part(s, n);
        tw_usb_note_error(lane);
        return;
    case LIBUSB_TRANSFER_CANCELLED:
    case LIBUSB_TRANSFER_TIMED_OUT:
        note_part(s, n);
        return;
    }
}

void LIBUSB_CALL tw_usb_done(struct libusb_transfer *transfer) {
    struct slot *s = transfer->user_data;
    struct usb_pipe *p = s->lane->pipe;
    pthread_mutex_lock(&p->lock);
    TW_ASSERT(transfer == s->transfer && s->state == SLOT_FLYING && s->lane->flying > 0);
    s->state = SLOT_FREE;
    s->lane->flying--;
    note(s, transfer->status, transfer->actual_length > 0 ? (size_t)transfer->actual_length : 0);
    TW_ASSERT(tw_usb_sound(p));
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void LIBUSB_CALL tw_usb_control_done(struct libusb_transfer *transfer) {
    struct usb_pipe *p = transfer->user_data;
    pthread_mutex_lock(&p->lock);
    TW_ASSERT(p->control_flying && transfer == p->control);
    p->control_flying = false;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* ---- what the thread does, with the lock held but where it says so ---- */

static void cancel(struct lane *lane) {
    for (unsigned i = 0; i < lane->n_slots; i++) {
        if (lane->slot[i].state == SLOT_FLYING) {
            libusb_cancel_transfer(lane->slot[i].transfer);
        }
    }
}

static bool is_empty(const struct usb_pipe *p) {
    return p->out.flying + p->in.flying + p->notice.flying == 0 && !p->control_flying;
}

static void cancel_all(struct usb_pipe *p) {
    cancel(&p->out);
    cancel(&p->in);
    cancel(&p->notice);
    if (p->control_flying) {
        libusb_cancel_transfer(p->control);
    }
}

static void start_lane(struct lane *lane) {
    lane->state = LANE_RUNS;
    lane->not_before = lane->errors = 0;
    lane->cleared = false;
}

/* A halt is cleared when the endpoint's queue is empty. */
static void clear_stall(struct lane *lane) {
    struct usb_pipe *p = lane->pipe;
    if (lane->state != LANE_HALTED) {
        return;
    }
    if (lane->flying) {
        cancel(lane);
        return;
    }
    pthread_mutex_unlock(&p->lock);
    int code = libusb_clear_halt(p->port.handle, lane->address);
    pthread_mutex_lock(&p->lock);
    TW_ASSERT(lane->state == LANE_HALTED && lane->flying == 0); /* nobody submits to a halted one */
    if (code == LIBUSB_ERROR_NO_DEVICE) {
        tw_usb_lose(p, TW_USB_UNPLUGGED);
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

/* Without the lock: nothing is in flight, and nobody submits while a job is there. */
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
    /* NOT_FOUND: after its reset it came back as another device. */
    if (code == LIBUSB_ERROR_NO_DEVICE || code == LIBUSB_ERROR_NOT_FOUND) {
        tw_usb_lose(p, TW_USB_UNPLUGGED);
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
        p->generation = 0; /* it is we who end it */
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

/* Ends a pause that is over. True: there is one yet. */
static bool rests(struct lane *lane) {
    if (lane->not_before && tw_packet_now() >= lane->not_before) {
        lane->not_before = 0;
        pthread_cond_broadcast(&lane->pipe->changed);
    }
    return lane->not_before != 0;
}

/* True: look again soon. */
static bool serve_lanes(struct usb_pipe *p) {
    struct lane *const all[] = {&p->out, &p->in, &p->notice};
    bool soon = false;
    for (size_t i = 0; i < 3; i++) {
        clear_stall(all[i]);
        soon = rests(all[i]) || soon;
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
        TW_ASSERT(tw_usb_sound(p));
        bool soon = serve(p);
        bool done = p->gone && is_empty(p);
        pthread_mutex_unlock(&p->lock);
        if (!done) {
            handle_events(p, soon ? HURRY_MS : IDLE_MS);
        }
        pthread_mutex_lock(&p->lock);
    }
    TW_ASSERT(p->gone && is_empty(p));
    pthread_mutex_unlock(&p->lock);
    return NULL;
}
