/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipe carries packets (tilewright/link.h) between the two ends of a link, whatever the medium
 * is. Each call sends or takes one whole packet; a pipe does not look into packets. The driver's
 * and the device's end both use it. The smallest implementation is pipe_socket.c, over a UNIX
 * socket: start a new one from a copy of it.
 */
#ifndef TW_FIRMWARE_LINK_PIPE_H
#define TW_FIRMWARE_LINK_PIPE_H

#include "tilewright/link.h"

#include <stdbool.h>

#define TW_PACKET_BYTES (TW_LINK_HEADER_BYTES + TW_LINK_CHUNK)

enum tw_packet_result {
    TW_PACKET_OK,
    TW_PACKET_AGAIN, /* no packet to take, or no room to send one: try again later */
    /* final: the other end is closed, the device unplugged, or hang_up was called */
    TW_PACKET_GONE
};

struct tw_pipe; /* an implementation's own structure, which begins with this */

struct tw_pipe_ops {
    /* Sends one packet of n bytes (1 .. TW_PACKET_BYTES), whole or not at all. Never waits. Two
     * threads may send at once. `bytes` is either what room() returned or stays the caller's. */
    enum tw_packet_result (*send)(struct tw_pipe *p, const uint8_t *bytes, size_t n);
    /* Takes the oldest packet: *n bytes (at most TW_PACKET_BYTES; a longer one is truncated) at
     * *bytes, which the caller may change and which stay valid until the next take. Never waits.
     * Only one thread takes. */
    enum tw_packet_result (*take)(struct tw_pipe *p, uint8_t **bytes, size_t *n);
    /* Waits until a packet can be taken (`write`: sent) or the pipe is gone, for at most `ms`
     * milliseconds (-1: no limit). Returns false on a timeout. May return true early. */
    bool (*wait)(struct tw_pipe *p, bool write, int ms);
    /* Makes every later call return GONE, and wakes threads in wait(). Legal from any thread and
     * more than once. */
    void (*hang_up)(struct tw_pipe *p);
    /* Closes and frees the pipe. No other thread may still use it. */
    void (*close)(struct tw_pipe *p);

    /* Optional (driver's end). Returns room for one packet, to build it without a copy. The next
     * send must pass this address (n 0 returns it unsent); whatever that send returns, the room is
     * the pipe's again. NULL: none at present; wait until a packet can be sent, or send from your
     * own memory. A pipe that is gone has room as well: send reports GONE. */
    uint8_t *(*room)(struct tw_pipe *p);
    /* Optional (driver's end). Reads the device's progress out of band, without packets. Returns
     * false if that fails, too. Waits at most half a second. */
    bool (*probe_status)(struct tw_pipe *p, struct tw_link_progress *out);
    /* Optional (driver's end). Tries rung 0, 1, ... of the recovery ladder, mildest first. Returns
     * what was done ("both endpoints were reset"); "" if it failed and the next rung should be
     * tried; NULL if there is no such rung, or the pipe is gone. */
    const char *(*recover)(struct tw_pipe *p, unsigned rung);
    /* Optional (driver's end). Returns why the pipe is gone, once a call has returned GONE; NULL if
     * the other side closed it. */
    const char *(*cause)(struct tw_pipe *p);
};

struct tw_pipe {
    const struct tw_pipe_ops *ops;
    uint32_t chunk; /* best number of data bytes in a packet: 1 .. TW_LINK_CHUNK */
    int fd;         /* device's end: readable when take() has a result; -1: none */
};

/* Creates a pipe over a connected, non-blocking SEQPACKET socket and takes ownership of it. Returns
 * NULL if memory ran out; fd is closed then. */
struct tw_pipe *tw_pipe_socket(int fd);

#endif
