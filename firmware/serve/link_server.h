/* SPDX-License-Identifier: Apache-2.0
 *
 * The link server: the device's end of a link (tilewright/link.h), with one emulator and one host
 * at a time. It executes requests on a thread of its own, so that the caller's thread can meanwhile
 * take packets, report progress and detect a dead host; requests that take less time than waking
 * that thread are executed at once. Unless stated otherwise, all functions are called by one
 * thread, the device server's.
 */
#ifndef TW_FIRMWARE_SERVE_LINK_SERVER_H
#define TW_FIRMWARE_SERVE_LINK_SERVER_H

#include "firmware/emulator/emulator.h"
#include "firmware/faults/faults.h"
#include "firmware/link/pipe.h"
#include "tilewright/link.h"

struct tw_link_server; /* opaque */

/* Takes ownership of the emulator and borrows `faults` until it is destroyed. Errors: NOMEM,
 * INTERNAL (no thread or descriptor). On failure the emulator stays the caller's. */
int tw_link_server_create(struct tw_emu *emu, struct tw_faults *faults, struct tw_link_server **out,
                          tw_error *err);
/* Closes the host's connection, if there is one, as if the host had died. */
void tw_link_server_drop(struct tw_link_server *s);
/* Drops the host, ends the thread and destroys the emulator. NULL is legal. */
void tw_link_server_destroy(struct tw_link_server *s);

/* Returns the descriptor that is readable when the executing thread has finished a cleanup; then
 * call tw_link_server_news, which sends OPENED to a host that came meanwhile. */
int tw_link_server_news_fd(const struct tw_link_server *s);
void tw_link_server_news(struct tw_link_server *s);

/* Returns the descriptor of the host's pipe, or -1 without a host. When it is readable, call
 * tw_link_server_take, which handles some of its packets and may end the connection. */
int tw_link_server_host_fd(const struct tw_link_server *s);
void tw_link_server_take(struct tw_link_server *s);

/* Makes the client behind `host` the device's host and takes ownership of the pipe; `pid` and
 * `command` name it to others. Returns false, with the pipe still the caller's, if there is a host
 * already. */
bool tw_link_server_attach(struct tw_link_server *s, struct tw_pipe *host, uint32_t pid,
                           const char *command);
/* Fills in the answer to a query or a refused client; its status is DEVICE_BUSY if there is a
 * host. */
void tw_link_server_describe(struct tw_link_server *s, struct tw_link_opened *out);

/* Returns the progress that a PING would be answered with, and the generation of the current host's
 * connection (0: no host). Legal from any thread. */
void tw_link_server_progress(struct tw_link_server *s, struct tw_link_progress *progress,
                             uint32_t *generation);

/* Sends one packet, through the fault plan, to a host or a pending client. Returns false if the
 * connection must be closed. Legal from any thread. */
bool tw_link_server_send(struct tw_link_server *s, struct tw_pipe *to, struct tw_link_header *h,
                         const void *payload, uint32_t bytes);

#endif
