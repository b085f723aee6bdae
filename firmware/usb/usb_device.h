/* SPDX-License-Identifier: Apache-2.0
 *
 * What a Tilewright device is on USB, whatever bus controller or protocol carries it: its
 * descriptors, its answers to control requests, and how packets of the link become bus packets and
 * come out of them. Pure: no thread, no system call, no memory of its own.
 */
#ifndef TW_FIRMWARE_USB_USB_DEVICE_H
#define TW_FIRMWARE_USB_USB_DEVICE_H

#include "firmware/link/pipe.h"
#include "tilewright/usb.h"

enum tw_usb_speed { TW_USB_FULL, TW_USB_HIGH, TW_USB_SUPER };

/* Addresses in our descriptors. A bus controller may put others in their place. */
#define TW_USB_OUT 0x01u
#define TW_USB_IN 0x82u
#define TW_USB_NOTICE 0x83u

#define TW_USB_SERIAL_MAX 63u
#define TW_USB_REASON_MAX 120u
#define TW_USB_CONTROL_MAX 256u  /* bytes of the longest answer to a control request */
#define TW_USB_FUNCTION_MAX 64u  /* bytes of the longest interface with its endpoints */
#define TW_USB_DROP_MS 4000u     /* a reset that has not dropped the host by then has failed */
#define TW_USB_NOTICE_PACKET 16u /* wMaxPacketSize of the interrupt endpoint */

/* What whoever makes a device says about it. */
struct tw_usb_options {
    /* that it connects with; a bus controller that negotiates one ignores it */
    enum tw_usb_speed speed;
    const char *serial; /* 1 .. TW_USB_SERIAL_MAX printable ASCII characters */
    /* NULL: it runs. Else why it cannot, at most TW_USB_REASON_MAX bytes are told */
    const char *recovery;
    uint32_t firmware_version; /* major << 16 | minor << 8 | patch */
    /* What a PING would be answered, and the generation of the present open (0: nobody has it);
     * from any thread. NULL in recovery. */
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

    /* The home's part, set by it. drop: clear both pipes and tell the line that the host has gone.
     * clear: forget the packet that is half through the endpoint. */
    void (*drop)(void *ctx);
    void (*clear)(void *ctx, uint8_t endpoint);
    void *ctx;

    bool out_halted, in_halted;
    uint32_t dropping; /* generation that a RESET has to end, or 0 */
};

/* Checks and copies the options; the home's part stays unset. Errors: USAGE (serial or reason). */
int tw_usb_device_init(struct tw_usb_device *d, const struct tw_usb_options *options,
                       tw_error *err);

uint16_t tw_usb_product(const struct tw_usb_device *d);
uint16_t tw_usb_bcd_version(const struct tw_usb_device *d);
/* wMaxPacketSize of the bulk endpoints. */
uint32_t tw_usb_bulk_packet(enum tw_usb_speed speed);
/* The strings of the descriptors. */
#define TW_USB_VENDOR_TEXT "Tilewright"
const char *tw_usb_product_text(const struct tw_usb_device *d);

/* The interface and its endpoints (at super speed with companions) as a configuration lists them.
 * Returns the bytes;
 * *count: descriptors among them. */
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
    /* to be answered when tw_usb_device_dropped says so, or stalled after TW_USB_DROP_MS */
    TW_USB_LATER
};

/* Answers a request. `data`: TW_USB_CONTROL_MAX bytes for the answer, of which the host gets at
 * most setup->length. The standard requests that change address, configuration or interface are not
 * here: homes see them as events. */
enum tw_usb_reply tw_usb_device_control(struct tw_usb_device *d, const struct tw_usb_setup *setup,
                                        uint8_t *data, size_t *n);
/* True when the open that a RESET had to end is over; then *notice is to be sent on the interrupt
 * endpoint. */
bool tw_usb_device_dropped(struct tw_usb_device *d, struct tw_usb_notice *notice);
/* A new bus configuration: nothing is halted. */
void tw_usb_device_configured(struct tw_usb_device *d);

/* ---- packets ---- */

/* A packet of the link being put together from bulk OUT data. */
struct tw_usb_assembly {
    uint8_t *bytes; /* TW_PACKET_BYTES; set by the owner */
    size_t n;
    bool too_long; /* the rest up to the border is dropped, and the packet with it */
};
/* Adds n bytes. `border`: they end with a short or zero-length bus packet. True: a packet of a->n
 * bytes is whole; clear before the next call (a->bytes may be another buffer then). */
bool tw_usb_assembly_add(struct tw_usb_assembly *a, const uint8_t *bytes, size_t n, bool border);
void tw_usb_assembly_clear(struct tw_usb_assembly *a);

/* A packet of the link being cut into answers to bulk IN transfers. */
struct tw_usb_split {
    uint8_t *bytes; /* TW_PACKET_BYTES; set by the owner */
    size_t n, at;
    bool open; /* something is still to be sent: bytes, or the zero-length bus packet behind them */
};
void tw_usb_split_begin(struct tw_usb_split *s, size_t n);
/* What the host gets for a transfer of `room` bytes: *bytes, returns how many. *babble: it gave
 * room for less than the bus packet that comes, and gets an error with what came before it. Only
 * while s->open. */
size_t tw_usb_split_next(struct tw_usb_split *s, size_t room, uint32_t bus_packet,
                         const uint8_t **bytes, bool *babble);

#endif
