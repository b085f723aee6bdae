/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection of a USB device to QEMU (or any other usb-guest of the usbredir protocol): what
 * the guest does to the device arrives as messages, and transfers are answered when the device has
 * packets. Whatever the other side sends, at worst the session ends. One thread at a time.
 */
#ifndef TW_FIRMWARE_USB_USBREDIR_SESSION_H
#define TW_FIRMWARE_USB_USBREDIR_SESSION_H

#include "firmware/usb/usb_device.h"
#include "firmware/usb/usb_device_pipe.h"

struct tw_usbredir_session; /* opaque */

/* The stream. Both functions return the bytes transferred, 0 if it would block, -1 if it has
 * ended. */
struct tw_usbredir_stream {
    int (*read)(void *ctx, uint8_t *bytes, int n);
    int (*write)(void *ctx, const uint8_t *bytes, int n);
    void *ctx;
};

/* Creates a session over a device and a pipe, which must outlive it; it sets the port's part of the
 * device. Returns NULL if memory ran out. */
struct tw_usbredir_session *tw_usbredir_session_create(struct tw_usb_device *device,
                                                       struct tw_usb_pipe *pipe,
                                                       const struct tw_usbredir_stream *stream);
/* Ends the session and reports to the medium that the host has gone. NULL is legal. */
void tw_usbredir_session_destroy(struct tw_usbredir_session *s);

/* Reads a bounded amount, handles it, answers transfers, and writes as far as possible. Returns
 * false if the session is over: the stream has ended or does not follow the protocol. */
bool tw_usbredir_session_turn(struct tw_usbredir_session *s);
/* Return whether to wait for input, and for room for output, before the next turn. */
bool tw_usbredir_session_reads(const struct tw_usbredir_session *s);
bool tw_usbredir_session_writes(const struct tw_usbredir_session *s);
/* Returns the milliseconds after which a turn is due in any case, or -1. */
int tw_usbredir_session_tick(const struct tw_usbredir_session *s);

#endif
