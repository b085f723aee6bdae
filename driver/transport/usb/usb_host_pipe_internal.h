/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by usb_host_pipe.c (the functions of the pipe) and usb_thread.c (its event thread). `lock`
 * protects all of it except libusb's own objects.
 *
 * Only the event thread handles libusb's events, cancels, clears halts and resets; callbacks run on
 * it and only record what arrived. Other threads submit transfers and wait for `changed`.
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
#define TW_USB_FAILS "all its USB transfers fail (a bad cable, hub or power supply?)"
#define TW_USB_OVER "it was reset while this process was using it"

enum slot_state {
    SLOT_FREE,
    SLOT_LENT,      /* its buffer is with a user of the pipe */
    SLOT_IN_FLIGHT, /* with libusb */
    SLOT_FULL       /* holds a received packet */
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
    LANE_HALTED, /* it stalled: the event thread clears the halt */
    LANE_STUCK   /* it stalled again at once: stays so until recovery */
};

/* One endpoint. */
struct lane {
    struct usb_pipe *pipe;
    uint8_t address;
    unsigned n_slots, in_flight;
    size_t slot_bytes; /* a multiple of the endpoint's packets */
    struct slot slot[TW_USB_SLOTS];
    enum lane_state state;
    bool cleared;           /* a halt was cleared and no transfer has succeeded since */
    uint64_t not_before;    /* 0, or when transfers may be submitted again */
    unsigned errors;        /* consecutive failed transfers */
    uint64_t failing_since; /* time of the first of them */
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
    const char *cause; /* why it is gone */
    bool cancelled;    /* it is gone, and all transfers in flight have been cancelled */

    struct slot *queue[TW_USB_SLOTS]; /* received packets, the oldest at `first` */
    unsigned first, queued;
    struct slot *lent; /* the packet that take() returned last */
    bool overlong;     /* the packet being received is too long: the rest of it is dropped */
    /* the device may have part of a packet: a single byte ends it, and it drops the packet */
    bool cut;

    uint32_t generation, dropped; /* this host's; the last that the device reported as ended */

    struct libusb_transfer *control; /* of out-of-band status */
    bool control_in_flight;

    enum usb_job job;
    bool job_started, job_succeeded;
};

/* Invariant while the lock is free: the queue is within its ring, and as many slots are with libusb
 * as the lanes count. */
static inline bool tw_usb_lane_is_consistent(const struct lane *lane) {
    unsigned in_flight = 0;
    for (unsigned i = 0; i < lane->n_slots; i++) {
        in_flight += lane->slot[i].state == SLOT_IN_FLIGHT;
    }
    return lane->n_slots <= TW_USB_SLOTS && in_flight == lane->in_flight;
}
static inline bool tw_usb_is_consistent(const struct usb_pipe *p) {
    return p->first < TW_USB_SLOTS && p->queued <= p->in.n_slots &&
           tw_usb_lane_is_consistent(&p->out) && tw_usb_lane_is_consistent(&p->in) &&
           tw_usb_lane_is_consistent(&p->notice);
}

/* ---- usb_host_pipe.c; the lock must be held ---- */

/* Submits every free slot of a lane that receives. */
void tw_usb_receive_more(struct lane *lane);
/* Marks the pipe as gone; the first cause, a static string, is kept. */
void tw_usb_fail_pipe(struct usb_pipe *p, const char *cause);
/* If part of a packet was sent, sends the byte that ends it as soon as a slot is free. */
void tw_usb_end_cut_packet(struct usb_pipe *p);

/* ---- usb_thread.c ---- */

/* Records that a transfer failed, or could not be submitted; the lock must be held. */
void tw_usb_record_error(struct lane *lane);
/* Submits no transfer of the lane for a short time; the lock must be held. */
void tw_usb_pause(struct lane *lane);

/* Wakes the event thread. Any thread, with or without the lock. */
void tw_usb_wake(struct usb_pipe *p);
/* The event thread; `pipe` is a struct usb_pipe *. Returns when it is gone and idle. */
void *tw_usb_thread(void *pipe);
/* libusb's callbacks for transfers of lanes and for the control transfer. */
void LIBUSB_CALL tw_usb_done(struct libusb_transfer *transfer);
void LIBUSB_CALL tw_usb_control_done(struct libusb_transfer *transfer);

#endif
