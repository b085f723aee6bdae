/* SPDX-License-Identifier: Apache-2.0
 *
 * The device on a real cable: a Linux board with a USB device controller becomes a Tilewright
 * device, by a gadget that is created in configfs and served through FunctionFS. Needs root (or
 * CAP_SYS_ADMIN and the right to write to configfs) and the kernel modules libcomposite and
 * usb_f_fs.
 */
#ifndef TW_FIRMWARE_USB_GADGET_H
#define TW_FIRMWARE_USB_GADGET_H

#include "firmware/usb/usb_device.h"

/* Creates the gadget on controller `udc` of /sys/class/udc (NULL: the first), connects it to the
 * bus, and returns the pipe for tw_medium_create. Removes the remains of such a gadget of a dead
 * process first. The pipe's hang_up unplugs the device for good; its close removes the gadget.
 * Errors: NO_DEVICE (no such controller), UNSUPPORTED (a kernel module is missing: names it),
 * DEVICE_BUSY (names the user of the controller), IO (no permission, or the kernel refused a step),
 * USAGE (serial or reason), NOMEM, INTERNAL (no thread). */
int tw_gadget_create(const char *udc, const struct tw_usb_options *options, struct tw_pipe **out,
                     tw_error *err);
/* Returns the name of the controller that a gadget is on; valid until the pipe is closed. */
const char *tw_gadget_udc(const struct tw_pipe *gadget);
/* Writes the board's serial number: from the device tree, else derived from the machine id, else
 * "00000000". */
void tw_gadget_board_serial(char serial[TW_USB_SERIAL_MAX + 1]);

#endif
