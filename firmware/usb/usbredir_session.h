/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection of a USB device to QEMU (or any other usb-guest of the usbredir protocol): what
 * the guest does to the device comes in as messages, transfers are answered when the device has
 * something to say. Whatever the other side sends, the worst that happens is that the session ends.
 */
#ifndef TW_FIRMWARE_USB_USBREDIR_SESSION_H
#define TW_FIRMWARE_USB_USBREDIR_SESSION_H

#include "firmware/usb/usb_device.h"
#include "firmware/usb/usb_device_pipe.h"

struct tw_usbredir_session; /* opaque */

/* The stream: bytes moved, 0: would block, -1: it has ended. */
struct tw_usbredir_stream {
    int (*read)(void *ctx, uint8_t *bytes, int n);
    int (*write)(void *ctx, const uint8_t *bytes, int n);
    void *ctx;
};

/* Device and pipe are the caller's and live longer; the home's part of the device becomes the
 * session's. NULL: no memory. */
struct tw_usbredir_session *tw_usbredir_session_create(struct tw_usb_device *device,
                                                       struct tw_usb_pipe *pipe,
                                                       const struct tw_usbredir_stream *stream);
/* The host has gone with it. NULL is legal. */
void tw_usbredir_session_destroy(struct tw_usbredir_session *s);

/* Reads what is there (a bounded part of it), moves what can be moved, writes what finds room.
 * False: the session is over: the stream has ended or its content is not usbredir. */
bool tw_usbredir_session_turn(struct tw_usbredir_session *s);
/* What to wait for before the next turn. */
bool tw_usbredir_session_reads(const struct tw_usbredir_session *s);
bool tw_usbredir_session_writes(const struct tw_usbredir_session *s);
/* Milliseconds after which a turn is due anyway, or -1. */
int tw_usbredir_session_tick(const struct tw_usbredir_session *s);

#endif
