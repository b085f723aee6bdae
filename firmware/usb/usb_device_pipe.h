/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's end of a USB pipe: two bounded queues of packets between the device server, which
 * uses the functions of struct tw_pipe, and a port (gadget.c, usbredir.c), whose threads move
 * packets over the bus by the functions below. Both sides exchange buffers with the queues, so that
 * a queue can be cleared while a packet is in use. Unless stated otherwise, the functions below are
 * legal from any thread.
 */
#ifndef TW_FIRMWARE_USB_USB_DEVICE_PIPE_H
#define TW_FIRMWARE_USB_USB_DEVICE_PIPE_H

#include "firmware/link/pipe.h"

#include <pthread.h>

#define TW_USB_QUEUE 32u /* maximum number of packets queued in each direction */

struct tw_usb_queue {
    uint8_t *bytes[TW_USB_QUEUE];
    size_t n[TW_USB_QUEUE];
    uint32_t first, count;
};

struct tw_usb_pipe {
    struct tw_pipe base; /* ops->close is the port's; base.fd is an eventfd */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* monotonic clock */
    struct tw_usb_queue in, out;
    uint8_t *view; /* the packet that take() returned last */
    bool present;  /* a host has configured the device; otherwise sent packets are dropped */
    bool seen;     /* a packet of the present host has been queued */
    bool gone;
    /* eventfd that wakes the port's thread: a packet to send, room in `in`, or gone; -1: its
     * threads use the waiting functions */
    int wake;
    uint8_t *memory;
    /* buffers for the port to exchange with the queues; when it ends it puts two back */
    uint8_t *spare[2];
};

/* Initialises the pipe. wakes: create the wake descriptor. ops->close is the port's, and calls
 * tw_usb_pipe_finish. Errors: NOMEM, IO (no descriptors). */
int tw_usb_pipe_init(struct tw_usb_pipe *p, const struct tw_pipe_ops *ops, bool wakes,
                     tw_error *err);
/* Frees what tw_usb_pipe_init allocated. No other thread may still use the pipe. */
void tw_usb_pipe_finish(struct tw_usb_pipe *p);
/* For the port's table of ops; contracts: struct tw_pipe_ops. */
enum tw_packet_result tw_usb_pipe_send(struct tw_pipe *p, const uint8_t *bytes, size_t n);
enum tw_packet_result tw_usb_pipe_take(struct tw_pipe *p, uint8_t **bytes, size_t *n);
bool tw_usb_pipe_wait(struct tw_pipe *p, bool write, int ms);
void tw_usb_pipe_hang_up(struct tw_pipe *p);

/* ---- the port's side ---- */

/* Returns true if a packet can be put. */
bool tw_usb_pipe_room(struct tw_usb_pipe *p);
/* Queues the packet of n bytes (1 .. TW_PACKET_BYTES) in *bytes, which becomes another buffer.
 * Returns false without room, or if the pipe is gone. */
bool tw_usb_pipe_put(struct tw_usb_pipe *p, uint8_t **bytes, size_t n);
/* Takes the oldest packet to send, in exchange for the buffer *bytes. Returns false if there is
 * none. */
bool tw_usb_pipe_get(struct tw_usb_pipe *p, uint8_t **bytes, size_t *n);
/* Drops everything that is queued and reports to the medium that the host has gone, because the bus
 * was reset, configured or left. present: there is a host from now on. */
void tw_usb_pipe_cut(struct tw_usb_pipe *p, bool present);
/* Drops the packets that are queued for the host. */
void tw_usb_pipe_clear_out(struct tw_usb_pipe *p);
/* Returns true after hang_up. */
bool tw_usb_pipe_gone(struct tw_usb_pipe *p);
/* Wait for room to put, or for a packet to get, for at most `ms` milliseconds. Return false on a
 * timeout, or if the pipe is gone. */
bool tw_usb_pipe_wait_room(struct tw_usb_pipe *p, int ms);
bool tw_usb_pipe_wait_get(struct tw_usb_pipe *p, uint8_t **bytes, size_t *n, int ms);
/* Clears the wake descriptor. */
void tw_usb_pipe_awake(struct tw_usb_pipe *p);

#endif
