/* SPDX-License-Identifier: Apache-2.0
 *
 * Which process is using a device on USB: the kernel's claims as shown in sysfs, and the lock file
 * that names the holder. Any thread.
 */
#ifndef TW_DRIVER_TRANSPORT_USB_USB_HOLDER_H
#define TW_DRIVER_TRANSPORT_USB_USB_HOLDER_H

#include "driver/transport/usb/usb_find.h"

/* How a user gets permission to open a device; fits tw_transport_info.detail. */
#define TW_USB_PERMISSION_REMEDY                                   \
    "permission denied: tilewright doctor --udev-rule | sudo tee " \
    "/etc/udev/rules.d/60-tilewright.rules "                       \
    "&& sudo udevadm control --reload && sudo udevadm trigger"
TW_STATIC_ASSERT(sizeof(TW_USB_PERMISSION_REMEDY) <= 160, "permission remedy");

/* Stores the path of the device's node, "/dev/bus/usb/001/002". */
void tw_usb_node(const struct tw_usb_found *d, char node[48]);
/* Returns whether a process has claimed the device's interface. */
bool tw_usb_claimed(const struct tw_usb_found *d);
/* Stores "process 12 (name) is using it", as far as the process can be found. locked: this process
 * holds the lock file, so the holder is a program that does not use lock files. */
void tw_usb_holder(const struct tw_usb_found *d, bool locked, char text[80]);
/* Stores the path of the lock file of the device at `path`, which is the same for all users. */
void tw_usb_lock_path(const char *path, char file[160]);

#endif
