/* SPDX-License-Identifier: Apache-2.0
 *
 * A medium: a pipe that outlives its hosts (USB endpoints, the mailbox of a PCIe device), cut into
 * connections. A connection is a pipe for one host: it begins with an OPEN packet that has a new
 * nonce (tw_link_open.nonce) and ends when the next host opens, when the medium reports that the
 * host has gone (its take() returns a packet of 0 bytes), or when the device closes it. The device
 * server handles such connections like those of its socket.
 *
 * All functions are called by one thread, the device server's.
 */
#ifndef TW_FIRMWARE_LINK_MEDIUM_H
#define TW_FIRMWARE_LINK_MEDIUM_H

#include "firmware/link/pipe.h"

struct tw_medium; /* opaque */

/* Creates a medium over `pipe`, whose fd must be >= 0, and takes ownership of it. Returns NULL if
 * memory ran out; the pipe is closed then. */
struct tw_medium *tw_medium_create(struct tw_pipe *pipe);
/* Closes the pipe and frees the medium. Its connection must have been closed. NULL is legal. */
void tw_medium_destroy(struct tw_medium *medium);

/* Returns the descriptor that becomes readable before tw_medium_accept has a connection; -1 while
 * there is one: then wait on that connection's fd. */
int tw_medium_fd(const struct tw_medium *medium);
/* Returns a new connection (the caller closes it) if a host has sent an OPEN and the last
 * connection has been closed; NULL if not, or if memory ran out. Drops packets that belong to no
 * connection. */
struct tw_pipe *tw_medium_accept(struct tw_medium *medium);
#endif
