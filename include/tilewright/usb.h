/* SPDX-License-Identifier: Apache-2.0
 *
 * A Tilewright device on USB, as its host sees it. One vendor-specific interface with a bulk OUT
 * and a bulk IN endpoint for the packets of tilewright/link.h, an interrupt IN endpoint for
 * notices, and two vendor requests that work even when the endpoints do not. Endpoint numbers
 * differ between devices: a host finds them by type and direction. Freestanding.
 *
 * One packet is one transfer: it ends with a bus packet shorter than wMaxPacketSize, so a packet
 * whose length is a multiple of that is followed by a zero-length bus packet. A receiver drops a
 * transfer that is longer than the longest packet.
 */
#ifndef TILEWRIGHT_USB_H
#define TILEWRIGHT_USB_H

#include "tilewright/link.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From the block that pid.codes reserves for tests and prototypes. A board with an id of its own is
 * found by the class of its interface. */
#define TW_USB_VENDOR 0x1209u
#define TW_USB_PRODUCT 0x000Cu /* the firmware runs */
/* it cannot run: only the vendor requests work, and report the reason */
#define TW_USB_PRODUCT_RECOVERY 0x000Du
#define TW_USB_CLASS 0xFFu
#define TW_USB_SUBCLASS 0x54u /* 'T' */
#define TW_USB_PROTOCOL 0x57u /* 'W' */
/* bcdDevice is the firmware's version: major in the high byte, then one digit each of minor and
 * patch. */

/* Vendor requests to the interface (bmRequestType 0xC1 in, 0x41 out; wIndex: the interface). */
enum tw_usb_request {
    TW_USB_STATUS = 1, /* in: struct tw_usb_status */
    /* out, no data: drops the host, frees everything, clears both pipes; complete when it is
     * acknowledged */
    TW_USB_RESET = 2,
    /* in, up to 120 bytes of text: why the device is in recovery; empty if it is not */
    TW_USB_REASON = 3
};

/* Answer to TW_USB_STATUS. */
struct tw_usb_status {
    struct tw_link_progress progress; /* the same as the answer to a PING */
    uint32_t generation;              /* of the current open; 0: no host has the device open */
    uint32_t state;                   /* 0 running, 1 recovery */
};
TW_STATIC_ASSERT(sizeof(struct tw_usb_status) == sizeof(struct tw_link_progress) + 8, "usb status");

/* Interrupt IN: sent when an event occurs; 8 bytes, little-endian. */
enum tw_usb_notice_kind {
    /* generation `generation` has ended: the device was reset while its host had it open */
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
