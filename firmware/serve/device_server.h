/* SPDX-License-Identifier: Apache-2.0
 *
 * The device server: an emulator in a process or on a thread of its own, behind a UNIX socket of
 * type SEQPACKET and any number of media (USB, PCIe). It has one host at a time; other clients get
 * an error that names its process. The device outlives its hosts: content that one of them kept is
 * there for the next.
 */
#ifndef TW_FIRMWARE_SERVE_DEVICE_SERVER_H
#define TW_FIRMWARE_SERVE_DEVICE_SERVER_H

#include "firmware/emulator/emulator.h"
#include "firmware/link/medium.h"

#include <signal.h>

struct tw_device_server; /* opaque */

struct tw_device_server_options {
    /* the socket's path, or its name (tw_runtime_socket); NULL: no socket
     * (tw_device_server_pair) */
    const char *path;
    struct tw_emu_options emu;
    const char *faults; /* fault plan (firmware/faults/faults.h), or NULL */
    uint64_t seed;      /* of the fault plan */
};

/* Creates the device and listens; a socket that a dead process left at the path is replaced. Holds
 * a lock on PATH.lock until it is destroyed. Errors: DEVICE_BUSY (names the process that serves
 * this path), USAGE (path too long; no such fault plan), IO, NOMEM, INTERNAL (no thread). */
int tw_device_server_create(const struct tw_device_server_options *options,
                            struct tw_device_server **out, tw_error *err);
/* Drops the host, destroys the device and its media, removes socket and lock. Not while
 * tw_device_server_run runs. NULL is legal. */
void tw_device_server_destroy(struct tw_device_server *s);

/* Adds another endpoint to the device, beside or instead of the socket, and takes ownership of the
 * medium; its connections are handled like those of the socket. Call before tw_device_server_run.
 * Errors: USAGE (more than 4; the medium is destroyed). */
int tw_device_server_add_medium(struct tw_device_server *s, struct tw_medium *medium,
                                tw_error *err);
/* Returns the progress that a PING would be answered with, and the generation of the current host's
 * connection (0: no host). Legal from any thread until the server is destroyed. */
void tw_device_server_progress(struct tw_device_server *s, struct tw_link_progress *progress,
                               uint32_t *generation);

/* Returns a connected socket for this process, which the caller closes; -1 without a descriptor,
 * memory or free slot. Not while tw_device_server_run runs. */
int tw_device_server_pair(struct tw_device_server *s);

/* Serves until tw_device_server_stop is called, or *stop (may be NULL) is not 0; a signal handler
 * may assign to it. */
void tw_device_server_run(struct tw_device_server *s, const volatile sig_atomic_t *stop);
/* Ends tw_device_server_run, now or when it is next called. Legal from any thread. */
void tw_device_server_stop(struct tw_device_server *s);

#endif
