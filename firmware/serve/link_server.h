/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's end of a link (tilewright/link.h): one emulator, one host at a time. A thread of its
 * own executes requests, so that the caller's thread can take packets, tell progress and notice a
 * dead host meanwhile; what takes less time than waking it is executed at once.
 */
#ifndef TW_FIRMWARE_SERVE_LINK_SERVER_H
#define TW_FIRMWARE_SERVE_LINK_SERVER_H

#include "firmware/emulator/emulator.h"
#include "firmware/faults/faults.h"
#include "firmware/link/pipe.h"
#include "tilewright/link.h"

struct tw_link_server; /* opaque */

/* Takes the emulator, and `faults` for as long as it lives. Errors: NOMEM, INTERNAL (no thread or
 * descriptor). On failure the emulator stays the caller's. */
int tw_link_server_create(struct tw_emu *emu, struct tw_faults *faults, struct tw_link_server **out,
                          tw_error *err);
/* Drops the host, as if it had died. */
void tw_link_server_drop(struct tw_link_server *s);
/* Drops the host, ends the thread, destroys the emulator. NULL is legal. */
void tw_link_server_destroy(struct tw_link_server *s);

/* The descriptor to wait on for the executing thread's news; then call tw_link_server_news. */
int tw_link_server_news_fd(const struct tw_link_server *s);
void tw_link_server_news(struct tw_link_server *s);

/* The descriptor of the host's pipe, or -1. Wait on it, then call tw_link_server_take, which may
 * end the connection. */
int tw_link_server_host_fd(const struct tw_link_server *s);
void tw_link_server_take(struct tw_link_server *s);

/* Makes a connection that has asked for the device its host. False if there is one already. Takes
 * the pipe if true. */
bool tw_link_server_attach(struct tw_link_server *s, struct tw_pipe *host, uint32_t pid,
                           const char *command);
/* What a query or a refused host is told. status: DEVICE_BUSY if there is a host. */
void tw_link_server_describe(struct tw_link_server *s, struct tw_link_opened *out);

/* What a PING is answered now, and the generation of the present open (0: there is no host). Legal
 * from any thread. */
void tw_link_server_progress(struct tw_link_server *s, struct tw_link_progress *progress,
                             uint32_t *generation);

/* Sends one packet through the faults. False: the connection is to be closed. */
bool tw_link_server_send(struct tw_link_server *s, struct tw_pipe *to, struct tw_link_header *h,
                         const void *payload, uint32_t bytes);

#endif
