/* SPDX-License-Identifier: Apache-2.0
 *
 * The device on a real cable: a Linux board with a USB device controller becomes a Tilewright
 * device, by a gadget made through configfs and served through FunctionFS. Needs root (or
 * CAP_SYS_ADMIN and the right to write to configfs) and the kernel modules libcomposite and
 * usb_f_fs.
 */
#ifndef TW_FIRMWARE_USB_GADGET_H
#define TW_FIRMWARE_USB_GADGET_H

#include "firmware/usb/usb_device.h"

/* Makes the gadget on controller `udc` of /sys/class/udc (NULL: the first), connects it to the bus,
 * and gives the medium's pipe for a line. What a process that died left of such a gadget is taken
 * down first. The pipe's hang_up unplugs the device for good; its close takes the gadget down.
 * Errors: NO_DEVICE (no such controller), UNSUPPORTED (the kernel lacks something: names the
 * module), DEVICE_BUSY (names who has the controller), IO (no permission, or a step of the kernel's
 * failed), USAGE (serial or reason), NOMEM. */
int tw_gadget_create(const char *udc, const struct tw_usb_options *options, struct tw_pipe **out,
                     tw_error *err);
/* The controller that a gadget is on. */
const char *tw_gadget_udc(const struct tw_pipe *gadget);
/* The board's serial number: the device tree's, else one made of the machine id, else
 * "00000000". */
void tw_gadget_board_serial(char serial[TW_USB_SERIAL_MAX + 1]);

#endif
