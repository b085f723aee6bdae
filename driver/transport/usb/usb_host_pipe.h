/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipe (firmware/link/pipe.h) over the endpoints of a USB device: the driver's end of it, with
 * everything that is optional. One packet is one transfer; several are in flight each way.
 */
#ifndef TW_DRIVER_TRANSPORT_USB_USB_HOST_PIPE_H
#define TW_DRIVER_TRANSPORT_USB_USB_HOST_PIPE_H

#include "driver/transport/usb/usb_find.h"
#include "firmware/link/pipe.h"

/* An open device whose interface is claimed. Nobody else uses its context. */
struct tw_usb_port {
    libusb_context *context;
    libusb_device_handle *handle;
    struct tw_usb_place place;
};

/* The port is the pipe's from then on, and is closed on error. `name` begins messages. Errors:
 * NOMEM (also the kernel's memory for USB transfers: how to raise it), DEVICE_LOST. */
int tw_usb_host_pipe_open(const char *name, const struct tw_usb_port *port, struct tw_pipe **out,
                          tw_error *err);

/* The generation that the device gave this host: the pipe hangs up when the device says that it is
 * over. */
void tw_usb_host_pipe_set_generation(struct tw_pipe *p, uint32_t generation);

#endif
