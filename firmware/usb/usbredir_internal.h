/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of a usbredir session: usbredir_session.c lives and hears the guest,
 * usbredir_transfers.c keeps and answers its transfers, usbredir_refuse.c says no.
 */
#ifndef TW_FIRMWARE_USB_USBREDIR_INTERNAL_H
#define TW_FIRMWARE_USB_USBREDIR_INTERNAL_H

#include "firmware/usb/usbredir_session.h"

#include <usbredirparser.h>

#define TW_USBREDIR_TRANSFERS \
    4096u /* in flight in one direction, at most; QEMU's guests have some dozens */

struct transfer {
    uint64_t id;
    struct usb_redir_bulk_packet_header header;
    uint8_t *data; /* OUT: the parser's */
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

    bool listens;          /* to the interrupt endpoint */
    uint64_t notices_sent; /* also the next one's id */
    bool noticed;
    struct tw_usb_notice notice;

    bool resetting; /* a RESET waits for its answer */
    uint64_t reset_id, reset_until;
    struct usb_redir_control_packet_header reset_header;
};

/* Number i of a list, the oldest is 0. */
struct transfer *tw_usbredir_nth(const struct transfers *t, uint32_t i);
/* False: more in flight than any guest has. */
bool tw_usbredir_append(struct transfers *t, const struct transfer *x);
/* Takes out number i; the order of the others stays. */
struct transfer tw_usbredir_extract(struct transfers *t, uint32_t i);
/* Answers a transfer with `n` bytes moved; data: of an IN transfer. Frees its own. */
void tw_usbredir_answer(struct tw_usbredir_session *s, struct transfer *x, uint8_t status,
                        const uint8_t *data, size_t n);
void tw_usbredir_answer_all(struct tw_usbredir_session *s, struct transfers *t, uint8_t status);

/* wMaxPacketSize of the bulk endpoints now. */
uint32_t tw_usbredir_bus_packet(const struct tw_usbredir_session *s);
/* False: so much waits to be written that no more is made. */
bool tw_usbredir_has_room(const struct tw_usbredir_session *s);
/* Answers those whose turn has come. */
void tw_usbredir_pump_out(struct tw_usbredir_session *s);
void tw_usbredir_pump_in(struct tw_usbredir_session *s);

/* Sets the callbacks that refuse what the device does not have. */
void tw_usbredir_refuse(struct usbredirparser *p);

#endif
