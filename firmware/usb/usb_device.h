/* SPDX-License-Identifier: Apache-2.0
 *
 * A Tilewright device on USB, independent of the bus controller or protocol that carries it: its
 * descriptors, its answers to control requests, and how packets of the link are split into and
 * assembled from bus packets. Pure: no threads, no system calls, no allocation; one caller at a
 * time. The "port" here is the USB port that drives it: gadget.c or usbredir_session.c.
 */
#ifndef TW_FIRMWARE_USB_USB_DEVICE_H
#define TW_FIRMWARE_USB_USB_DEVICE_H

#include "firmware/link/pipe.h"
#include "tilewright/usb.h"

enum tw_usb_speed { TW_USB_FULL, TW_USB_HIGH, TW_USB_SUPER };

/* Endpoint addresses in our descriptors. A bus controller may replace them. */
#define TW_USB_OUT 0x01u
#define TW_USB_IN 0x82u
#define TW_USB_NOTICE 0x83u

#define TW_USB_SERIAL_MAX 63u
#define TW_USB_REASON_MAX 120u
#define TW_USB_CONTROL_MAX 256u  /* bytes of the longest answer to a control request */
#define TW_USB_FUNCTION_MAX 64u  /* bytes of the longest interface with its endpoints */
#define TW_USB_DROP_MS 4000u     /* time limit for a RESET to drop the host */
#define TW_USB_NOTICE_PACKET 16u /* wMaxPacketSize of the interrupt endpoint */

struct tw_usb_options {
    /* at which it connects; ignored by a bus controller that negotiates the speed */
    enum tw_usb_speed speed;
    const char *serial; /* 1 .. TW_USB_SERIAL_MAX printable ASCII characters */
    /* NULL: it runs. Otherwise the reason why it cannot, truncated to TW_USB_REASON_MAX bytes. */
    const char *recovery;
    uint32_t firmware_version; /* major << 16 | minor << 8 | patch */
    /* Returns what a PING would be answered, and the generation of the current open (0: no host).
     * Called from any thread. NULL in recovery. */
    void (*progress)(void *ctx, struct tw_link_progress *progress, uint32_t *generation);
    void *ctx;
};

struct tw_usb_device {
    char serial[TW_USB_SERIAL_MAX + 1], reason[TW_USB_REASON_MAX + 1];
    bool recovery;
    enum tw_usb_speed speed;
    uint32_t firmware_version;
    void (*progress)(void *ctx, struct tw_link_progress *progress, uint32_t *generation);
    void *progress_ctx;

    /* Set by the port. drop: empty both queues and report to the medium that the host has gone.
     * clear: discard a partly transferred packet of the endpoint. */
    void (*drop)(void *ctx);
    void (*clear)(void *ctx, uint8_t endpoint);
    void *ctx;

    bool out_halted, in_halted;
    uint32_t dropping; /* generation that a RESET must end, or 0 */
};

/* Checks and copies the options; the port's part stays unset. Errors: USAGE (serial or reason). */
int tw_usb_device_init(struct tw_usb_device *d, const struct tw_usb_options *options,
                       tw_error *err);

/* Return idProduct, which differs in recovery, and bcdDevice, the firmware's version. */
uint16_t tw_usb_product(const struct tw_usb_device *d);
uint16_t tw_usb_bcd_version(const struct tw_usb_device *d);
/* Returns wMaxPacketSize of the bulk endpoints. */
uint32_t tw_usb_bulk_packet(enum tw_usb_speed speed);
/* The strings of the descriptors. */
#define TW_USB_VENDOR_TEXT "Tilewright"
const char *tw_usb_product_text(const struct tw_usb_device *d);

/* Writes the descriptors of the interface and its endpoints (at super speed with companions) as a
 * configuration lists them. Returns their bytes; *count: the number of descriptors. */
size_t tw_usb_function(enum tw_usb_speed speed, uint8_t bytes[TW_USB_FUNCTION_MAX],
                       uint32_t *count);

/* ---- control requests ---- */

struct tw_usb_setup {
    uint8_t type, request; /* bmRequestType, bRequest */
    uint16_t value, index, length;
};

enum tw_usb_reply {
    TW_USB_STALL, /* refused */
    TW_USB_DONE,  /* *n bytes of data, 0 for a request that has none */
    /* answer when tw_usb_device_dropped returns true, or stall after TW_USB_DROP_MS */
    TW_USB_LATER
};

/* Answers a control request. `data`: room for TW_USB_CONTROL_MAX bytes; *n: bytes to send, at most
 * setup->length. Standard requests that change address, configuration or interface are not handled
 * here: ports see them as events. */
enum tw_usb_reply tw_usb_device_control(struct tw_usb_device *d, const struct tw_usb_setup *setup,
                                        uint8_t *data, size_t *n);
/* Returns true once the open that a RESET had to end is over; the caller then sends *notice on the
 * interrupt endpoint. */
bool tw_usb_device_dropped(struct tw_usb_device *d, struct tw_usb_notice *notice);
/* Clears the halts, after a new bus configuration. */
void tw_usb_device_configured(struct tw_usb_device *d);

/* ---- packets ---- */

/* A packet of the link that is being assembled from bulk OUT data. */
struct tw_usb_assembly {
    uint8_t *bytes; /* TW_PACKET_BYTES; set by the owner */
    size_t n;
    bool too_long; /* the packet is dropped, up to its end */
};
/* Adds n bytes. ends: they end with a short or zero-length bus packet. Returns true when a packet
 * of a->n bytes is complete; clear it before the next call (a->bytes may be another buffer
 * then). */
bool tw_usb_assembly_add(struct tw_usb_assembly *a, const uint8_t *bytes, size_t n, bool ends);
/* Discards the packet. */
void tw_usb_assembly_clear(struct tw_usb_assembly *a);

/* A packet of the link that is being split into answers to bulk IN transfers. */
struct tw_usb_split {
    uint8_t *bytes; /* TW_PACKET_BYTES; set by the owner */
    size_t n, at;
    bool open; /* something is left to send: bytes, or the zero-length bus packet after them */
};
/* Begins to split the n bytes at s->bytes. */
void tw_usb_split_begin(struct tw_usb_split *s, size_t n);
/* Returns the number of bytes that answer a transfer of `room` bytes, and points *bytes at them.
 * *babble: the room was too small for the next bus packet, so the transfer fails after the bytes
 * before it. Only while s->open. */
size_t tw_usb_split_next(struct tw_usb_split *s, size_t room, uint32_t bus_packet,
                         const uint8_t **bytes, bool *babble);

#endif
