/* SPDX-License-Identifier: Apache-2.0
 *
 * A Tilewright device on USB: what it shows to its host. One vendor-specific interface with a bulk
 * OUT and a bulk IN endpoint for the packets of tilewright/link.h, an interrupt IN endpoint for
 * notices, and two vendor requests that work while the endpoints do not. Endpoint numbers differ
 * from device to device: a host finds them by type and direction. Freestanding.
 *
 * One packet is one transfer: it ends with a bus packet that is shorter than wMaxPacketSize, so one
 * whose length is a multiple of it is followed by a zero-length one. A receiver drops what is
 * longer than a packet may be.
 */
#ifndef TILEWRIGHT_USB_H
#define TILEWRIGHT_USB_H

#include "tilewright/link.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From the block that pid.codes gives to tests and prototypes. A board with an id of its own is
 * found by the class of its interface. */
#define TW_USB_VENDOR 0x1209u
#define TW_USB_PRODUCT 0x000Cu          /* runs */
#define TW_USB_PRODUCT_RECOVERY 0x000Du /* cannot run: only the vendor requests work, and say why */
#define TW_USB_CLASS 0xFFu
#define TW_USB_SUBCLASS 0x54u /* 'T' */
#define TW_USB_PROTOCOL 0x57u /* 'W' */
/* bcdDevice is the firmware's version: major in the high byte, minor and patch a digit each. */

/* Vendor requests to the interface (bmRequestType 0xC1 in, 0x41 out; wIndex: the interface). */
enum tw_usb_request {
    TW_USB_STATUS = 1, /* in: struct tw_usb_status */
    /* out, no data: drops the host, frees everything, clears both pipes; done when it is
     * answered */
    TW_USB_RESET = 2,
    TW_USB_REASON = 3 /* in, up to 120 bytes: text, why the device is in recovery; or empty */
};

struct tw_usb_status {
    struct tw_link_progress progress; /* as if a PING had come */
    uint32_t generation;              /* of the present open; 0: nobody has it */
    uint32_t state;                   /* 0 runs, 1 recovery */
};
TW_STATIC_ASSERT(sizeof(struct tw_usb_status) == sizeof(struct tw_link_progress) + 8, "usb status");

/* Interrupt IN: sent when one of them happens; 8 bytes, little-endian. */
enum tw_usb_notice_kind {
    /* generation `generation` is over: the device was reset under its host */
    TW_USB_NOTICE_DROPPED = 1
};
struct tw_usb_notice {
    uint32_t kind;
    uint32_t generation;
};
TW_STATIC_ASSERT(sizeof(struct tw_usb_notice) == 8, "usb notice");

#ifdef __cplusplus
}
#endif
#endif
