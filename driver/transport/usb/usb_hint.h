/* SPDX-License-Identifier: Apache-2.0
 *
 * A hint that a device was plugged in or out, from libusb's hotplug events. Only a hint: without
 * udevd there are no events, so the caller must still read the list periodically. One thread at a
 * time.
 */
#ifndef TW_DRIVER_TRANSPORT_USB_USB_HINT_H
#define TW_DRIVER_TRANSPORT_USB_USB_HINT_H

#include <stdbool.h>

struct tw_usb_hint; /* opaque */

/* Starts to listen for events. Returns NULL if that is not possible here. The caller's:
 * tw_usb_hint_destroy(). */
struct tw_usb_hint *tw_usb_hint_create(void);
/* Waits at most `ms` milliseconds; `hint` may be NULL. Returns whether a device was plugged in or
 * out since the last call. */
bool tw_usb_hint_wait(struct tw_usb_hint *hint, unsigned ms);
/* Stops listening. NULL is legal. */
void tw_usb_hint_destroy(struct tw_usb_hint *hint);

#endif
