/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the Tilewright devices on USB, each with its state and the reason for it. Each list has its
 * own libusb context, so that it includes new devices even without udevd. Only two kinds of devices
 * are opened for it: one in recovery, to read the reason, and one on a slow link, to read its
 * highest speed. A list is used by one thread at a time.
 */
#ifndef TW_DRIVER_TRANSPORT_USB_USB_FIND_H
#define TW_DRIVER_TRANSPORT_USB_USB_FIND_H

#include "driver/transport/transport.h"

#include <libusb.h>

/* A device's interface and endpoints. Packet sizes in bytes, powers of two. */
struct tw_usb_place {
    bool found; /* the device has an interface of our class, with or without endpoints */
    uint8_t configuration, interface;
    uint8_t out, in, notice; /* endpoint addresses; notice 0: there is none */
    uint16_t out_packet, in_packet, notice_packet;
};

enum tw_usb_state {
    TW_USB_READY,
    TW_USB_BUSY,
    TW_USB_NO_PERMISSION,
    TW_USB_RECOVERY, /* it cannot run, and reports why */
    TW_USB_UNUSABLE  /* its descriptors are not those of a Tilewright device */
};

struct tw_usb_found {
    libusb_device *device; /* owned by the list */
    /* "1-2.4": bus and ports; the same device in the same socket has the same path */
    char path[32];
    char serial[48]; /* "": none that can be used as a name */
    /* the selector after "usb:": the serial number if it is unique, else the path */
    char name[64];
    enum tw_usb_state state;
    struct tw_usb_place place;
    /* speed of the link, and the highest speed of the device, in Mbit/s; 0: unknown */
    uint32_t mbits, best_mbits;
    char detail[160]; /* human-readable; the reason if state is not READY */
};

struct tw_usb_list {
    libusb_context *context;
    struct tw_usb_found *device; /* by path */
    size_t n;
};

/* Makes the list, which tw_usb_find_end() frees, also after an error. An empty list is not an
 * error: there may be no USB at all. Errors: NO_DEVICE (libusb cannot start, and why), NOMEM. */
int tw_usb_find(struct tw_usb_list *list, tw_error *err);
/* Frees the list. */
void tw_usb_find_end(struct tw_usb_list *list);

/* Reads the reason from a device in recovery; "" if it gives none. Its interface must be
 * claimed. */
void tw_usb_reason(libusb_device_handle *handle, uint8_t interface, char text[121]);

#endif
