/* SPDX-License-Identifier: Apache-2.0
 *
 * The device for QEMU: a USB device behind a UNIX stream socket, by the usbredir protocol. A guest
 * gets it with
 *   -chardev socket,id=tw,path=PATH,reconnect=1 -device usb-redir,chardev=tw
 * One QEMU at a time; it may disconnect and reconnect. A thread of its own serves the bus.
 */
#ifndef TW_FIRMWARE_USB_USBREDIR_H
#define TW_FIRMWARE_USB_USBREDIR_H

#include "firmware/usb/usb_device.h"

/* Listens, and returns the pipe for tw_medium_create. The pipe's hang_up unplugs the device for
 * good; its close also ends the thread and removes the socket. Errors: USAGE (path, serial or
 * reason), DEVICE_BUSY (names the process that serves this path), IO, NOMEM, INTERNAL (no
 * thread). */
int tw_usbredir_create(const char *path, const struct tw_usb_options *options, struct tw_pipe **out,
                       tw_error *err);

#endif
