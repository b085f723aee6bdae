/* SPDX-License-Identifier: Apache-2.0
 *
 * The device as QEMU sees it: a USB device behind a UNIX stream socket, by the usbredir protocol. A
 * guest gets it with
 *   -chardev socket,id=tw,path=PATH,reconnect=1 -device usb-redir,chardev=tw
 * One QEMU at a time; it may come and go. A thread of its own serves the bus.
 */
#ifndef TW_FIRMWARE_USB_USBREDIR_H
#define TW_FIRMWARE_USB_USBREDIR_H

#include "firmware/usb/usb_device.h"

/* Listens, and gives the medium's pipe for a line. Its hang_up unplugs the device for good; its
 * close also ends the thread and removes the socket. Errors: USAGE (path, serial or reason),
 * DEVICE_BUSY (names the process that serves this path), IO, NOMEM. */
int tw_usbredir_create(const char *path, const struct tw_usb_options *options, struct tw_pipe **out,
                       tw_error *err);

#endif
