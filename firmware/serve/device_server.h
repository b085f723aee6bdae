/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator in a process of its own, or on a thread of its own, behind a UNIX socket of type
 * SEQPACKET. One host at a time; others are told who has it. The device outlives its hosts: what
 * one of them kept is there for the next.
 */
#ifndef TW_FIRMWARE_SERVE_DEVICE_SERVER_H
#define TW_FIRMWARE_SERVE_DEVICE_SERVER_H

#include "firmware/emulator/emulator.h"
#include "firmware/link/medium.h"

#include <signal.h>

struct tw_device_server; /* opaque */

struct tw_device_server_options {
    const char
        *path; /* or name (tw_runtime_socket) of the socket; NULL: only tw_device_server_pair */
    struct tw_emu_options emu;
    const char *faults; /* plan of firmware/faults/faults.h, or NULL */
    uint64_t seed;
};

/* Makes the device and listens; a socket that a dead process left at the path is replaced. While it
 * lives, PATH.lock is locked. Errors: DEVICE_BUSY (names the process that serves this path), USAGE
 * (path too long; no such fault plan), IO, NOMEM. */
int tw_device_server_create(const struct tw_device_server_options *options,
                            struct tw_device_server **out, tw_error *err);
/* Drops the host, removes socket and lock. NULL is legal. */
void tw_device_server_destroy(struct tw_device_server *s);

/* Another door to the device, beside or instead of the socket: its calls are guests as connections
 * are. The line is the device's from then on. At most 4. Before tw_device_server_run. Errors: USAGE
 * (too many; the line is destroyed). */
int tw_device_server_add_medium(struct tw_device_server *s, struct tw_medium *line, tw_error *err);
/* What a PING would be answered, and the generation of the present open (0: nobody has the device).
 * Legal from any thread while the device lives. */
void tw_device_server_progress(struct tw_device_server *s, struct tw_link_progress *progress,
                               uint32_t *generation);

/* A connection to the device for this process, or -1. */
int tw_device_server_pair(struct tw_device_server *s);

/* Serves until tw_device_server_stop was called, or *stop (may be NULL) is not 0; a signal handler
 * may assign to it. */
void tw_device_server_run(struct tw_device_server *s, const volatile sig_atomic_t *stop);
/* Legal from any thread. */
void tw_device_server_stop(struct tw_device_server *s);

#endif
