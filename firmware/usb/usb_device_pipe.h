/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipe of a USB device's end: two bounded queues of packets between whoever serves the link (by
 * the functions of struct tw_pipe) and the home's threads that move them over the bus (by the
 * functions below). Both sides exchange buffers with the queues, so that a queue may be cleared
 * while a packet is being worked on.
 */
#ifndef TW_FIRMWARE_USB_USB_DEVICE_PIPE_H
#define TW_FIRMWARE_USB_USB_DEVICE_PIPE_H

#include "firmware/link/pipe.h"

#include <pthread.h>

#define TW_USB_QUEUE 32u /* packets that wait, in each direction */

struct tw_usb_queue {
    uint8_t *bytes[TW_USB_QUEUE];
    size_t n[TW_USB_QUEUE];
    uint32_t first, count;
};

struct tw_usb_pipe {
    struct tw_pipe base; /* ops->close is the home's; base.fd is an eventfd */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* monotonic clock */
    struct tw_usb_queue in, out;
    uint8_t *view; /* what take() gave last */
    bool present;  /* a host has configured the device; without one, what is sent is lost */
    bool heard;    /* a packet came since the last mark */
    bool gone;
    /* eventfd for the home's thread: something to send, room in `in`, or gone; -1: it waits
     * otherwise */
    int wake;
    uint8_t *memory;
    /* buffers for the home to exchange with the queues; it puts back what it ends with */
    uint8_t *spare[2];
};

/* wakes: there is a wake descriptor. `close` is the home's and frees the whole. Errors: NOMEM, IO
 * (no descriptors). */
int tw_usb_pipe_init(struct tw_usb_pipe *p, const struct tw_pipe_ops *ops, bool wakes,
                     tw_error *err);
void tw_usb_pipe_finish(struct tw_usb_pipe *p);
/* For the home's table of ops. */
enum tw_packet_result tw_usb_pipe_send(struct tw_pipe *p, const uint8_t *bytes, size_t n);
enum tw_packet_result tw_usb_pipe_take(struct tw_pipe *p, uint8_t **bytes, size_t *n);
bool tw_usb_pipe_wait(struct tw_pipe *p, bool write, int ms);
void tw_usb_pipe_hang_up(struct tw_pipe *p);

/* ---- the home's side ---- */

bool tw_usb_pipe_room(struct tw_usb_pipe *p);
/* Queues the packet of n bytes (1 .. TW_PACKET_BYTES) in *bytes, which becomes another buffer.
 * False: no room, or gone. */
bool tw_usb_pipe_put(struct tw_usb_pipe *p, uint8_t **bytes, size_t n);
/* The oldest packet to send, in exchange for the buffer *bytes. False: there is none. */
bool tw_usb_pipe_get(struct tw_usb_pipe *p, uint8_t **bytes, size_t *n);
/* The bus was reset, configured or left: what is queued is dropped, and the line is told that the
 * host has gone. present: a host is there. */
void tw_usb_pipe_cut(struct tw_usb_pipe *p, bool present);
/* Drops what is queued for the host. */
void tw_usb_pipe_clear_out(struct tw_usb_pipe *p);
bool tw_usb_pipe_gone(struct tw_usb_pipe *p);
/* For threads that may wait: for room to put, for a packet to get, at most ms. False: there is
 * none, or gone. */
bool tw_usb_pipe_wait_room(struct tw_usb_pipe *p, int ms);
bool tw_usb_pipe_wait_get(struct tw_usb_pipe *p, uint8_t **bytes, size_t *n, int ms);
/* Reads the wake descriptor empty. */
void tw_usb_pipe_awake(struct tw_usb_pipe *p);

#endif
