/* SPDX-License-Identifier: Apache-2.0
 *
 * Who has a device on USB, and who may have it: the kernel's claims as sysfs shows them, and the
 * lock file that names the holder.
 */
#ifndef TW_DRIVER_TRANSPORT_USB_USB_HOLDER_H
#define TW_DRIVER_TRANSPORT_USB_USB_HOLDER_H

#include "driver/transport/usb/usb_find.h"

/* How a user gets the permission to open it; fits a line of discovery's detail. */
#define TW_USB_PERMISSION_REMEDY                                   \
    "not yours to open: tilewright doctor --udev-rule | sudo tee " \
    "/etc/udev/rules.d/60-tilewright.rules "                       \
    "&& sudo udevadm control --reload && sudo udevadm trigger"
TW_STATIC_ASSERT(sizeof(TW_USB_PERMISSION_REMEDY) <= 160, "permission remedy");

/* "/dev/bus/usb/001/002" */
void tw_usb_node(const struct tw_usb_found *d, char node[48]);
/* A process has its interface. */
bool tw_usb_claimed(const struct tw_usb_found *d);
/* "process 12 (name) has it", as far as it can be known who. locked: by us, so it is a program that
 * does not look at the lock file. */
void tw_usb_holder(const struct tw_usb_found *d, bool locked, char text[80]);
/* The lock file of the device at `path`; every user's processes find the same. */
void tw_usb_lock_path(const char *path, char file[160]);

#endif
