/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the driver's end of a link: link_client.c sends, receives and waits;
 * link_client_open.c opens and closes.
 */
#ifndef TW_DRIVER_TRANSPORT_LINK_LINK_CLIENT_INTERNAL_H
#define TW_DRIVER_TRANSPORT_LINK_LINK_CLIENT_INTERNAL_H

#include "driver/transport/link/link_client.h"

/* Begins a new wait, whose deadline counts from now. */
void tw_link_start_waiting(struct tw_link *l);
/* Waits for the next good packet, which is at l->in. Errors: DEVICE_LOST, TIMEOUT, VERSION. */
int tw_link_next_packet(struct tw_link *l, struct tw_link_header *h, tw_error *err);
/* Returns a header with the fields that all packets of this link share. */
struct tw_link_header tw_link_new_header(const struct tw_link *l, enum tw_link_kind kind,
                                         uint32_t sequence);
/* Sends OPEN; `flags` of tw_link_open_flags. Errors: DEVICE_LOST, TIMEOUT. */
int tw_link_send_open(struct tw_link *l, uint32_t flags, tw_error *err);
/* Handles a PROGRESS packet: restarts the deadline if the device made progress, and resends or asks
 * for what one side is missing. Errors: DEVICE_LOST, TIMEOUT. */
int tw_link_take_progress(struct tw_link *l, const struct tw_link_header *h, tw_error *err);

#endif
