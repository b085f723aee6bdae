/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays QEMU and its guest for a usbredir device: connects to its socket, records what it
 * announces, and makes control, bulk and interrupt transfers. One thread. If an expected message
 * does not arrive within a minute, the program ends with an error.
 */
#ifndef TW_TESTS_SUPPORT_USBREDIR_PEER_H
#define TW_TESTS_SUPPORT_USBREDIR_PEER_H

#include "firmware/link/pipe.h"

#include <usbredirparser.h>

#define PEER_MOVES 64u
#define PEER_MS 60000

/* A bulk transfer, from its submission on. */
struct peer_move {
    bool used, done;
    uint64_t id;
    uint8_t status;
    uint32_t n; /* bytes moved */
    uint8_t *data;
};

struct usbredir_peer {
    struct usbredirparser *parser;
    int fd;
    bool gone; /* the device has closed the connection */
    uint64_t next_id;

    /* Announced by the device. */
    bool topology_first; /* interface and endpoints came before the connect */
    bool connected;
    struct usb_redir_device_connect_header device;
    struct usb_redir_interface_info_header interface;
    struct usb_redir_ep_info_header endpoints;
    bool has_interface, has_endpoints;
    uint8_t out, in, notices; /* addresses, by type and direction */

    /* The answer to the request at hand. */
    uint64_t waiting;
    bool answered;
    uint8_t status;
    uint32_t n;
    uint8_t data[512];

    struct peer_move move[PEER_MOVES];
    uint32_t n_notices;
    uint8_t notice[8];
};

/* Where a test's device listens: in a folder that the first of these makes and the second removes,
 * as set-up and tear-down of a group of tests; a device must have left nothing there. */
extern char peer_path[64];
int peer_folder_set_up(void **state);
int peer_folder_tear_down(void **state);

/* Connects and waits until the device has introduced itself. */
void peer_open(struct usbredir_peer *p, const char *path);
/* Only connects and sends hello. False if no server is listening. */
bool peer_connect(struct usbredir_peer *p, const char *path);
void peer_close(struct usbredir_peer *p);

/* Sends and receives what it can without blocking, then waits up to ms for an event. */
void peer_turn(struct usbredir_peer *p, int ms);

/* Makes a control request. Returns its usb_redir status; p->data and p->n are the answer. */
uint8_t peer_control(struct usbredir_peer *p, unsigned type, unsigned request, unsigned value,
                     unsigned index, unsigned length);
/* The same, without waiting for the answer. */
void peer_control_start(struct usbredir_peer *p, unsigned type, unsigned request, unsigned value,
                        unsigned index, unsigned length);
uint8_t peer_configure(struct usbredir_peer *p, uint8_t configuration);
uint8_t peer_set_alt(struct usbredir_peer *p, uint8_t interface, uint8_t alt);
uint8_t peer_listen(struct usbredir_peer *p, bool on);

/* Transfers. The move is the caller's until peer_forget. */
struct peer_move *peer_bulk_out(struct usbredir_peer *p, const uint8_t *bytes, uint32_t n);
struct peer_move *peer_bulk_in(struct usbredir_peer *p, uint32_t room);
void peer_cancel(struct usbredir_peer *p, const struct peer_move *m);
void peer_await(struct usbredir_peer *p, const struct peer_move *m);
void peer_forget(struct usbredir_peer *p, struct peer_move *m);

/* Returns the driver's end of a link over the configured device, like a USB driver, with transfers
 * of `room` bytes to read. Its close leaves the peer open. */
struct tw_pipe *peer_pipe(struct usbredir_peer *p, uint32_t room);

#endif
