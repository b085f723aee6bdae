/* SPDX-License-Identifier: Apache-2.0
 *
 * Tilewright devices on USB: all there are, each with its state and reason. A list is made by a
 * libusb context of its own, so it also sees what came where nobody runs udevd. Nothing is opened
 * to make it but a device in recovery, which is asked why, and one on a slow link, which is asked
 * what it could do.
 */
#ifndef TW_DRIVER_TRANSPORT_USB_USB_FIND_H
#define TW_DRIVER_TRANSPORT_USB_USB_FIND_H

#include "driver/transport/transport.h"

#include <libusb.h>

/* Where in a device its interface is. Packet sizes in bytes, powers of two. */
struct tw_usb_place {
    bool found; /* there is an interface of our class, with or without endpoints */
    uint8_t configuration, interface;
    uint8_t out, in, notice; /* endpoint addresses; notice 0: there is none */
    uint16_t out_packet, in_packet, notice_packet;
};

enum tw_usb_state {
    TW_USB_READY,
    TW_USB_BUSY,
    TW_USB_NO_PERMISSION,
    TW_USB_RECOVERY, /* it cannot run, and says why */
    TW_USB_UNUSABLE  /* its descriptors are not those of a Tilewright device */
};

struct tw_usb_found {
    libusb_device *device; /* the list's */
    /* "1-2.4": bus and ports; the same device in the same socket has the same path */
    char path[32];
    char serial[48]; /* "": none that can be used as a name */
    /* the selector behind "usb:": its serial where no other device has it, else its path */
    char name[64];
    enum tw_usb_state state;
    struct tw_usb_place place;
    /* of the link; what the device could do on a better one; 0: not known */
    uint32_t mbits, best_mbits;
    char detail[160]; /* for people; says the reason where state is not READY */
};

struct tw_usb_list {
    libusb_context *context;
    struct tw_usb_found *device; /* by path */
    size_t n;
};

/* An empty list is no error: there may be no USB at all. Errors: NO_DEVICE (libusb cannot start:
 * why), NOMEM. */
int tw_usb_find(struct tw_usb_list *list, tw_error *err);
/* Legal after an error. */
void tw_usb_find_end(struct tw_usb_list *list);

/* The text a device in recovery gives, or "". Its interface is claimed. */
void tw_usb_reason(libusb_device_handle *handle, uint8_t interface, char text[121]);

#endif
