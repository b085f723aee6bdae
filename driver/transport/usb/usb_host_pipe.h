/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's end of a pipe (firmware/link/pipe.h) over the endpoints of a USB device, with all
 * optional functions. One packet is one transfer; several are in flight in each direction.
 */
#ifndef TW_DRIVER_TRANSPORT_USB_USB_HOST_PIPE_H
#define TW_DRIVER_TRANSPORT_USB_USB_HOST_PIPE_H

#include "driver/transport/usb/usb_find.h"
#include "firmware/link/pipe.h"

/* An open device whose interface is claimed, with a libusb context of its own. */
struct tw_usb_port {
    libusb_context *context;
    libusb_device_handle *handle;
    struct tw_usb_place place;
};

/* Creates a pipe, which owns the port from then on; on error the port is closed. `name` begins
 * error messages. Errors: NOMEM (also of the kernel's memory for USB transfers, and how to raise
 * it), DEVICE_LOST. */
int tw_usb_host_pipe_open(const char *name, const struct tw_usb_port *port, struct tw_pipe **out,
                          tw_error *err);

/* Sets the generation that the device assigned to this host: the pipe hangs up when the device
 * reports that this generation has ended. Any thread. */
void tw_usb_host_pipe_set_generation(struct tw_pipe *p, uint32_t generation);

#endif
