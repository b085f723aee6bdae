/* SPDX-License-Identifier: Apache-2.0
 *
 * A hint that something was plugged in or out, from libusb's hotplug events. Only a hint: where
 * nobody runs udevd none comes, so whoever waits here looks at the list from time to time anyway.
 */
#ifndef TW_DRIVER_TRANSPORT_USB_USB_HINT_H
#define TW_DRIVER_TRANSPORT_USB_USB_HINT_H

#include <stdbool.h>

struct tw_usb_hint; /* opaque */

/* NULL: there are no such events here. */
struct tw_usb_hint *tw_usb_hint_create(void);
/* Waits at most ms. True: something came or went since the last call. hint may be NULL. */
bool tw_usb_hint_wait(struct tw_usb_hint *hint, unsigned ms);
/* NULL is legal. */
void tw_usb_hint_destroy(struct tw_usb_hint *hint);

#endif
