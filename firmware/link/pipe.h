/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipe: what carries packets of tilewright/link.h between the two ends of a link, whatever the
 * medium is. One call sends or takes one whole packet; nothing here looks into packets. Both the
 * driver's and the device's end use it: pipe_socket.c is the one over a UNIX socket, and the
 * smallest to copy.
 */
#ifndef TW_FIRMWARE_LINK_PIPE_H
#define TW_FIRMWARE_LINK_PIPE_H

#include "tilewright/link.h"

#include <stdbool.h>

#define TW_PACKET_BYTES (TW_LINK_HEADER_BYTES + TW_LINK_CHUNK)

enum tw_packet_result {
    TW_PACKET_OK,
    TW_PACKET_AGAIN, /* nothing there, or no room */
    /* the other end is closed, the device unplugged, or hang_up was called: for good */
    TW_PACKET_GONE
};

struct tw_pipe; /* an implementation's own structure, which begins with this */

struct tw_pipe_ops {
    /* Takes one packet of n bytes (1 .. TW_PACKET_BYTES) whole, or nothing. Never waits. Two
     * threads may send at once. `bytes` may be what room() gave, and is the caller's again
     * afterwards otherwise. */
    enum tw_packet_result (*send)(struct tw_pipe *p, const uint8_t *bytes, size_t n);
    /* The oldest packet: *bytes (*n, at most TW_PACKET_BYTES; a longer one comes cut) may be
     * changed by the caller and is valid until the next take. Never waits. One thread takes. */
    enum tw_packet_result (*take)(struct tw_pipe *p, uint8_t **bytes, size_t *n);
    /* Until a packet can be taken (`write`: sent) or the pipe is gone, at most ms (-1: for ever).
     * False: the time is up. May return early. */
    bool (*wait)(struct tw_pipe *p, bool write, int ms);
    /* From now on every call gives GONE, and who waits is woken. Legal from any thread, and
     * twice. */
    void (*hang_up)(struct tw_pipe *p);
    /* Ends the pipe; nobody uses it any more. */
    void (*close)(struct tw_pipe *p);

    /* Optional (driver's end). Room for one packet, in which it may be built without a copy; the
     * next send has to be of this address (n 0: gives it back unsent), and whatever it returns, the
     * room is the pipe's again. NULL: there is none now; wait until one can be sent, or send from
     * memory of your own. A pipe that is gone has room, too, or will have it soon: send tells. */
    uint8_t *(*room)(struct tw_pipe *p);
    /* Optional (driver's end). A path to the device that does not use the packets: its progress, by
     * value. False: this does not answer either. Waits at most half a second. */
    bool (*confirm)(struct tw_pipe *p, struct tw_link_progress *out);
    /* Optional (driver's end). Rung 0, 1, ... of the recovery ladder between link and device,
     * mildest first; what was done in words ("both endpoints were reset"), "": it failed, so the
     * next one's turn; NULL: there is no such rung, or the pipe is gone. */
    const char *(*recover)(struct tw_pipe *p, unsigned rung);
    /* Optional (driver's end). Why it is gone, once a call gave GONE. NULL: the other side closed
     * it. */
    const char *(*cause)(struct tw_pipe *p);
};

struct tw_pipe {
    const struct tw_pipe_ops *ops;
    uint32_t chunk; /* data bytes of a packet that it carries best: 1 .. TW_LINK_CHUNK */
    int fd;         /* device's end: readable when take() has something to say; -1: none */
};

/* Over a connected, non-blocking SEQPACKET socket, which is the pipe's from then on. NULL: no
 * memory; fd is closed. */
struct tw_pipe *tw_pipe_socket(int fd);

#endif
