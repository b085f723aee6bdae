/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's end of a link (tilewright/link.h) over a pipe: what the backends share that reach a
 * device by packets. It sends again what was lost, waits as long as the device gets on, and knows
 * when the device is gone.
 */
#ifndef TW_DRIVER_TRANSPORT_LINK_LINK_CLIENT_H
#define TW_DRIVER_TRANSPORT_LINK_LINK_CLIENT_H

#include "driver/transport/transport.h"
#include "firmware/link/pipe.h"
#include "tilewright/link.h"

/* Milliseconds without progress after which a device is given up, where the caller names none. */
#define TW_LINK_DEADLINE_MS 10000u

struct tw_link {
    struct tw_transport base; /* the backend sets ops */
    char name[128];           /* "socket:/run/..."; begins every error */
    struct tw_pipe *pipe;
    void (*closed)(void *owner); /* or NULL: called when the link has been closed */
    void *owner;
    uint32_t deadline_ms, generation;
    uint32_t sent, answered; /* numbers of the last request and the last answer */
    struct {
        uint8_t header[TW_WIRE_HEADER_BYTES];
        const void *payload;
        uint32_t bytes;
    } request[TW_LINK_CREDITS];
    uint8_t *message; /* the answer that is coming: TW_LINK_MAX_MESSAGE */
    uint32_t have;
    /* RESEND was sent; PROGRESS told of an answer that is not here */
    bool asked, behind;
    uint32_t pinged;                        /* `sent` at the last PING */
    struct tw_link_progress progress;       /* the last one that came */
    uint32_t most_received;                 /* of all that came */
    uint64_t moved_at, heard_at, pinged_at; /* something got on; a good packet came */
    uint64_t looked_at;                     /* at the pipe */
    uint32_t tick_ms;
    /* Of this wait: damaged packets; good ones behind the deadline; times that requests were sent
     * again; the version of packets of another one. */
    uint32_t damaged, late, resends, other_version;
    bool all_ones, confirmed; /* confirmed: the second path answered in this wait */
    bool climbing;            /* the ladder: the pipe is still needed */
    bool gone;                /* the pipe is */
    int dead;                 /* 0, or why: DEVICE_LOST, TIMEOUT, VERSION */
    char cause[200];
    struct tw_link_opened opened;
    uint64_t nonce;               /* of this open */
    char recovered[200];          /* what the ladder did before the device answered, or "" */
    uint8_t *in;                  /* the packet at hand: the pipe's */
    uint8_t out[TW_PACKET_BYTES]; /* one to send, where the pipe has no room of its own */
};

/* Makes a link of a pipe, which is the link's from then on (NULL: there was no memory for it), and
 * opens the device. If it does not answer the rungs of the pipe's ladder are tried, each once, and
 * an answer to OPEN is the proof of success. Errors: DEVICE_BUSY (names the holder), DEVICE_LOST
 * (tells what was tried), TIMEOUT, NOMEM; the pipe is closed then. */
int tw_link_open(const char *name, struct tw_pipe *pipe, uint32_t deadline_ms, struct tw_link **out,
                 tw_error *err);
/* Asks for the device's state without opening it; waits at most ms. False: no answer. The pipe
 * stays the caller's. */
bool tw_link_query(struct tw_pipe *pipe, int ms, struct tw_link_opened *out);

/* As the vtable has them. */
int tw_link_submit(struct tw_transport *t, const uint8_t *header, const void *payload,
                   uint32_t payload_bytes, tw_error *err);
int tw_link_receive(struct tw_transport *t, uint8_t *header, const void **payload,
                    uint32_t *payload_bytes, tw_error *err);
/* True after a TIMEOUT in the middle of a program's step: where it is stuck. */
bool tw_link_fail_stuck(struct tw_transport *t, struct tw_link_progress *out);
/* Says CLOSE, frees, calls closed(). */
void tw_link_close(struct tw_transport *t);

#endif
