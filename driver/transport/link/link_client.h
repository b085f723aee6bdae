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

/* One open connection to a device. Of one thread at a time, as all transports are. */
struct tw_link {
    struct tw_transport base; /* the backend sets ops */

    /* Set when the link is made; the same until it is closed. */
    struct {
        char name[128]; /* "socket:/run/..."; begins every error */
        struct tw_pipe *pipe;
        uint64_t nonce;              /* tells this open from all others of the device */
        void (*closed)(void *owner); /* or NULL: called when the link has been closed */
        void *owner;                 /* the backend's */
    } wiring;

    /* What opening brought; only read afterwards. */
    struct {
        struct tw_link_opened answer;
        bool climbing;       /* on the recovery ladder: the pipe is still needed */
        char recovered[200]; /* what the ladder did before the device answered, or "" */
    } opening;

    /* The exchange of requests and answers, from the handshake to the end. */
    struct {
        uint32_t generation;     /* the device's, of this open; 0 before its answer */
        uint32_t sent, answered; /* numbers of the last request and the last answer */
        struct {
            uint8_t header[TW_WIRE_HEADER_BYTES];
            const void *payload; /* the caller's until the answer is here */
            uint32_t bytes;
        } request[TW_LINK_CREDITS];       /* those unanswered, by number */
        uint8_t *message;                 /* the answer that is coming: TW_LINK_MAX_MESSAGE */
        uint32_t received_bytes;          /* of it */
        bool resend_requested;            /* and nothing has come since */
        bool missed_answer;               /* PROGRESS told of an answer that is not here */
        uint32_t pinged;                  /* `sent` at the last PING */
        struct tw_link_progress progress; /* the last one that came */
        uint32_t most_received;           /* of all that came */
    } conn;

    /* The wait at hand: tw_link_start_waiting() begins a new one, which leaves the deadline and
     * heard_at as they are. Times are of tw_clock_ms(). */
    struct {
        uint32_t deadline_ms;     /* without progress; shorter on the ladder */
        uint64_t progress_at;     /* something made progress: the deadline counts from here */
        uint64_t heard_at;        /* a good packet came */
        uint64_t pinged_at;       /* a PING was sent */
        uint64_t looked_at;       /* the clock was read: a long pause means that we were stopped */
        uint32_t tick_ms;         /* until the next PING */
        uint32_t damaged;         /* packets that fail their checks */
        uint32_t late;            /* good packets after the deadline */
        uint32_t resends;         /* times that requests were sent again */
        uint32_t other_version;   /* of packets of another version of the link, or 0 */
        bool all_ones, confirmed; /* only 0xFF bytes came; the second path answered */
    } wait;

    /* How the link ended, by a fail_*() function. */
    struct {
        int code;       /* 0 while it lives; then DEVICE_LOST, TIMEOUT or VERSION */
        bool pipe_gone; /* the pipe cannot carry anything any more */
        char cause[200];
    } end;

    /* Packets. */
    uint8_t *in;                  /* the one at hand: the pipe's */
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
/* Whether the link ended by a TIMEOUT in the middle of a program's step; *out is the last progress, with the
 * op where it is stuck. */
bool tw_link_is_stuck(struct tw_transport *t, struct tw_link_progress *out);
/* Says CLOSE, frees, calls closed(). */
void tw_link_close(struct tw_transport *t);

#endif
