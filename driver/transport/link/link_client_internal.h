/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of the link's driver end: link_client.c waits, sends and takes; link_client_open.c opens and
 * closes.
 */
#ifndef TW_DRIVER_TRANSPORT_LINK_LINK_CLIENT_INTERNAL_H
#define TW_DRIVER_TRANSPORT_LINK_LINK_CLIENT_INTERNAL_H

#include "driver/transport/link/link_client.h"

/* A new wait: its deadline counts from now. */
void tw_link_start_waiting(struct tw_link *l);
/* The one wait: the next good packet, at l->in. Errors: DEVICE_LOST, TIMEOUT, VERSION. */
int tw_link_next_packet(struct tw_link *l, struct tw_link_header *h, tw_error *err);
struct tw_link_header tw_link_new_header(const struct tw_link *l, enum tw_link_kind kind,
                                         uint32_t sequence);
int tw_link_send_open(struct tw_link *l, uint32_t flags, tw_error *err);
/* Compares what the device has with what we have, and mends the difference. */
int tw_link_take_progress(struct tw_link *l, const struct tw_link_header *h, tw_error *err);

#endif
