/* SPDX-License-Identifier: Apache-2.0
 *
 * A served device in a process of its own, for peers that do not behave: it listens on a socket, on
 * a usbredir socket (this process plays QEMU and its guest's driver) and on an ivshmem socket (this
 * process maps its BAR2 and shares a file of RAM with it).
 */
#ifndef TW_TESTS_SUPPORT_HOSTILE_BED_H
#define TW_TESTS_SUPPORT_HOSTILE_BED_H

#include "driver/device/device.h"
#include "tests/support/usbredir_peer.h"
#include "tilewright/pcie.h"

#include <sys/types.h>

enum hostile_medium { HOSTILE_SOCKET, HOSTILE_USBREDIR, HOSTILE_IVSHMEM, HOSTILE_MEDIA };
extern const char *const hostile_medium_name[HOSTILE_MEDIA];

struct hostile_bed {
    pid_t pid;
    char path[3][120]; /* by medium */
    char ram[120];     /* file */
};

/* Starts the server, which dies with this process. Aborts if it cannot. XDG_RUNTIME_DIR must be the
 * test's own (socket_folder_make). */
void hostile_bed_start(struct hostile_bed *b);
/* Returns true while the server is running. */
bool hostile_bed_lives(const struct hostile_bed *b);
/* Stops it; returns its exit status: 0, or 23 if it has leaked memory. */
int hostile_bed_end(struct hostile_bed *b);

/* A host's connection to the server over one medium. */
struct hostile_line {
    enum hostile_medium medium;
    struct tw_pipe *pipe; /* for packets; the caller's */
    /* usbredir */
    struct usbredir_peer peer;
    bool has_peer;
    /* ivshmem */
    int qemu, doorbell, interrupt;
    uint8_t *bar2, *ram;
};
enum { HOSTILE_RAM = 4 << 20 };

/* Connects, within a minute, and makes the pipe; `window` (ivshmem): the mailbox is in BAR2, not in
 * RAM. False if the medium does not answer. */
bool hostile_line_open(const struct hostile_bed *b, enum hostile_medium medium, bool window,
                       struct hostile_line *out);
/* Connects without making a pipe. */
bool hostile_line_connect(const struct hostile_bed *b, enum hostile_medium medium,
                          struct hostile_line *out);
/* Closes the connection; call it after the pipe is closed. */
void hostile_line_close(struct hostile_line *line);

#endif
