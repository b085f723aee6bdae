/* SPDX-License-Identifier: Apache-2.0
 *
 * What usb_pipe.c (the calls of the pipe's users) and usb_thread.c (its event thread) share. All of
 * it is guarded by `lock`, but for libusb's own objects.
 *
 * Who may do what: only the event thread handles libusb's events, cancels, clears halts and resets;
 * a callback runs on it and only notes what came. Everybody else submits transfers and waits for
 * `changed`.
 */
#ifndef TW_DRIVER_TRANSPORT_USB_USB_HOST_PIPE_INTERNAL_H
#define TW_DRIVER_TRANSPORT_USB_USB_HOST_PIPE_INTERNAL_H

#include "driver/transport/usb/usb_host_pipe.h"
#include "tilewright/usb.h"

#include <pthread.h>

#define TW_USB_SLOTS 8u
#define TW_USB_CONTROL_MS 400u

/* Why a pipe is gone. */
#define TW_USB_UNPLUGGED "it was unplugged, or lost its power"
#define TW_USB_FAILS "its transfers fail all the time (a bad cable, hub or power supply?)"
#define TW_USB_OVER "it was reset under this process"

enum slot_state {
    SLOT_FREE,
    SLOT_LENT,   /* its buffer is with a user of the pipe */
    SLOT_FLYING, /* with libusb */
    SLOT_FULL    /* holds a packet that came */
};

struct lane;
struct slot {
    struct lane *lane;
    struct libusb_transfer *transfer;
    uint8_t *buffer;
    bool mapped; /* by libusb_dev_mem_alloc */
    enum slot_state state;
    size_t n; /* FULL: bytes of its packet */
};

enum lane_state {
    LANE_RUNS,
    LANE_HALTED, /* it stalled: the event thread clears that */
    LANE_STUCK   /* it stalls again at once: until somebody recovers it */
};

/* One endpoint. */
struct lane {
    struct usb_pipe *pipe;
    uint8_t address;
    unsigned n_slots, flying;
    size_t slot_bytes; /* a multiple of the endpoint's packets */
    struct slot slot[TW_USB_SLOTS];
    enum lane_state state;
    bool cleared;           /* a halt was cleared and no transfer has come through since */
    uint64_t not_before;    /* 0, or when the event thread lets transfers be submitted again */
    unsigned errors;        /* transfers in a row that failed */
    uint64_t failing_since; /* the first of them */
};

enum usb_job { JOB_NONE, JOB_CLEAR_HALTS, JOB_RESET_HOST, JOB_RESET_PORT };

struct usb_pipe {
    struct tw_pipe base;
    char name[80];
    struct tw_usb_port port;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    struct lane out, in, notice; /* notice.n_slots 0: there is none */
    bool gone;
    const char *cause; /* of that */
    bool cancelled;    /* gone, and what was in flight then has been cancelled */

    struct slot *queue[TW_USB_SLOTS]; /* packets that came, the oldest at `first` */
    unsigned first, queued;
    struct slot *lent; /* the packet that take() gave last */
    bool overlong;     /* the packet that comes is longer than one may be: its rest is dropped */
    /* the device may have part of a packet: one byte ends it, and it drops the whole */
    bool cut;

    uint32_t generation, dropped; /* ours; the last one that the device said is over */

    struct libusb_transfer *control; /* confirm's */
    bool control_flying;

    enum usb_job job;
    bool job_started, job_succeeded;
};

/* What holds whenever the lock is free: the queue is within its ring, and as many slots are with
 * libusb as the lanes count. */
static inline bool tw_usb_lane_sound(const struct lane *lane) {
    unsigned flying = 0;
    for (unsigned i = 0; i < lane->n_slots; i++) {
        flying += lane->slot[i].state == SLOT_FLYING;
    }
    return lane->n_slots <= TW_USB_SLOTS && flying == lane->flying;
}
static inline bool tw_usb_sound(const struct usb_pipe *p) {
    return p->first < TW_USB_SLOTS && p->queued <= p->in.n_slots && tw_usb_lane_sound(&p->out) &&
           tw_usb_lane_sound(&p->in) && tw_usb_lane_sound(&p->notice);
}

/* ---- usb_host_pipe.c; the lock is held ---- */

/* AGAIN: the slot is as it was. */
enum tw_packet_result tw_usb_submit(struct slot *s, size_t n);
/* Submits every free slot of a lane that receives. */
void tw_usb_receive_more(struct lane *lane);
void tw_usb_lose(struct usb_pipe *p, const char *cause);
/* Sends the byte that ends a packet that was cut, if there is one and a slot is free. */
void tw_usb_end_cut_packet(struct usb_pipe *p);

/* ---- usb_thread.c ---- */

/* A transfer failed, or could not be submitted; the lock is held. */
void tw_usb_note_error(struct lane *lane);
/* The event thread looks again after a moment; the lock is held. */
void tw_usb_pause(struct lane *lane);

void tw_usb_wake(struct usb_pipe *p);
void *tw_usb_thread(void *pipe);
void LIBUSB_CALL tw_usb_done(struct libusb_transfer *transfer);
void LIBUSB_CALL tw_usb_control_done(struct libusb_transfer *transfer);

#endif
