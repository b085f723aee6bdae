/* SPDX-License-Identifier: Apache-2.0
 *
 * A line: a pipe that outlives its hosts (USB endpoints, rings of a PCIe device), cut into calls. A
 * call is a pipe for one host: it begins with an OPEN packet of a host that has not called yet
 * (tw_link_open.nonce) and ends when the next one calls, when the medium says that the host has
 * gone (its take gives a packet of 0 bytes), or when the device closes it. So whoever serves calls
 * needs not know that no socket is behind them.
 */
#ifndef TW_FIRMWARE_LINK_MEDIUM_H
#define TW_FIRMWARE_LINK_MEDIUM_H

#include "firmware/link/pipe.h"

struct tw_medium; /* opaque */

/* Takes the medium's pipe, whose fd is >= 0. NULL: no memory; the medium is closed. */
struct tw_medium *tw_medium_create(struct tw_pipe *medium);
/* Closes the medium. The calls have been closed. NULL is legal. */
void tw_medium_destroy(struct tw_medium *line);

/* What to wait on (readable) before tw_medium_accept; -1 while a call is alive: then wait on the
 * call's fd. */
int tw_medium_fd(const struct tw_medium *line);
/* A new call, if a host has opened one and the last one has been closed; else NULL. Packets of
 * nobody are dropped. */
struct tw_pipe *tw_medium_accept(struct tw_medium *line);
#endif
