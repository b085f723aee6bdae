/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of a usbredir session: usbredir_session.c handles the guest's messages,
 * usbredir_transfers.c queues and answers its transfers, usbredir_refuse.c refuses unsupported
 * requests.
 */
#ifndef TW_FIRMWARE_USB_USBREDIR_INTERNAL_H
#define TW_FIRMWARE_USB_USBREDIR_INTERNAL_H

#include "firmware/usb/usbredir_session.h"

#include <usbredirparser.h>

/* Max. transfers in flight in one direction; QEMU's guests have a few dozen. */
#define TW_USBREDIR_TRANSFERS 4096u

struct transfer {
    uint64_t id;
    struct usb_redir_bulk_packet_header header;
    uint8_t *data; /* OUT: allocated by the parser */
    uint32_t length;
};

struct transfers {
    struct transfer *at; /* [TW_USBREDIR_TRANSFERS] */
    uint32_t first, count;
    uint64_t bytes; /* of data */
};

struct tw_usbredir_session {
    struct usbredirparser *parser;
    struct tw_usbredir_stream stream;
    struct tw_usb_device *device;
    struct tw_usb_pipe *pipe;
    struct transfers out, in;
    struct tw_usb_assembly assembly;
    struct tw_usb_split split;
    uint8_t configuration;
    bool greeted, ended;
    int quota; /* bytes that may still be read in this turn */

    bool listens;          /* the guest polls the interrupt endpoint */
    uint64_t notices_sent; /* also the id of the next one */
    bool notice_pending;
    struct tw_usb_notice notice;

    bool resetting; /* a RESET has not been answered yet */
    uint64_t reset_id, reset_until;
    struct usb_redir_control_packet_header reset_header;
};

/* Returns transfer i of a list; 0 is the oldest. */
struct transfer *tw_usbredir_nth(const struct transfers *t, uint32_t i);
/* Appends a transfer. Returns false if the list is full: more than any real guest has in flight. */
bool tw_usbredir_append(struct transfers *t, const struct transfer *x);
/* Removes and returns transfer i; the order of the others stays. */
struct transfer tw_usbredir_extract(struct transfers *t, uint32_t i);
/* Answers a transfer: n bytes were transferred; data: the bytes of an IN transfer, or NULL. Frees
 * the transfer's own data. */
void tw_usbredir_answer(struct tw_usbredir_session *s, struct transfer *x, uint8_t status,
                        const uint8_t *data, size_t n);
void tw_usbredir_answer_all(struct tw_usbredir_session *s, struct transfers *t, uint8_t status);

/* Returns wMaxPacketSize of the bulk endpoints at the current speed. */
uint32_t tw_usbredir_bus_packet(const struct tw_usbredir_session *s);
/* Returns false while so much output is waiting to be written that no more must be produced. */
bool tw_usbredir_has_room(const struct tw_usbredir_session *s);
/* Answer the transfers that can be answered now. */
void tw_usbredir_pump_out(struct tw_usbredir_session *s);
void tw_usbredir_pump_in(struct tw_usbredir_session *s);

/* Sets the parser's callbacks that refuse what the device does not support. */
void tw_usbredir_refuse(struct usbredirparser *p);

#endif
