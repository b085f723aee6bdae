/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's end of a link (tilewright/link.h) over a pipe, shared by the backends that reach a
 * device by packets. It resends what was lost, waits as long as the device makes progress, and
 * detects that the device is gone.
 */
#ifndef TW_DRIVER_TRANSPORT_LINK_LINK_CLIENT_H
#define TW_DRIVER_TRANSPORT_LINK_LINK_CLIENT_H

#include "driver/transport/grace.h"
#include "firmware/link/pipe.h"
#include "tilewright/link.h"

/* Default timeout: milliseconds without progress after which a device counts as lost. */
#define TW_LINK_DEADLINE_MS 10000u

/* One open connection to a device. One thread at a time uses it, as with all transports. */
struct tw_link {
    struct tw_transport base; /* the backend sets ops */

    /* Set when the link is created; constant until it is closed. */
    struct {
        char name[128]; /* "socket:/run/..."; begins every error */
        struct tw_pipe *pipe;
        uint64_t nonce;              /* distinguishes this open from all others of the device */
        void (*closed)(void *owner); /* or NULL: called when the link has been closed */
        void *owner;                 /* the backend's */
    } wiring;

    /* Result of opening; only read afterwards. */
    struct {
        struct tw_link_opened answer;
        bool recovering;     /* on the recovery ladder: the pipe is still needed */
        char recovered[200]; /* recovery steps before the device answered, or "" */
    } opening;

    /* The exchange of requests and answers, from the handshake to the end. */
    struct {
        uint32_t generation;     /* the device's, of this open; 0 before its answer */
        uint32_t sent, answered; /* numbers of the last request and the last answer */
        struct {
            uint8_t header[TW_WIRE_HEADER_BYTES];
            const void *payload; /* the caller's, unchanged until the answer has arrived */
            uint32_t bytes;
        } request[TW_LINK_CREDITS];       /* the unanswered ones, by number */
        uint8_t *message;                 /* the answer being received: TW_LINK_MAX_MESSAGE */
        uint32_t received_bytes;          /* of that answer */
        bool resend_requested;            /* and no data has arrived since */
        bool missed_answer;               /* PROGRESS showed an answer that has not arrived */
        uint32_t pinged;                  /* `sent` at the last PING */
        struct tw_link_progress progress; /* the last one that arrived */
        uint32_t max_received;            /* highest progress.received so far */
    } conn;

    /* The current wait: tw_link_start_waiting() begins a new one, which keeps deadline_ms and
     * heard_at. Times are of tw_clock_ms(). */
    struct {
        uint32_t deadline_ms;   /* without progress; shorter on the recovery ladder */
        uint64_t progress_at;   /* last progress: the deadline counts from here */
        uint64_t heard_at;      /* last good packet */
        uint64_t pinged_at;     /* last PING */
        uint64_t clock_read_at; /* last look at the clock, to notice that we were stopped */
        uint32_t tick_ms;       /* from one PING to the next */
        uint32_t damaged;       /* packets that failed their checks */
        uint32_t late;          /* good packets after the deadline */
        uint32_t resends;       /* times that requests were sent again */
        uint32_t other_version; /* of packets of another link version, or 0 */
        bool all_ones, probed;  /* the last damaged packet was all 0xFF; status was probed */
        uint64_t cancelled_at;  /* first and last CANCEL of this wait; 0: none */
        uint64_t cancel_sent_at;
    } wait;
    struct tw_grace grace;

    /* How the link ended; set by a fail_*() function. */
    struct {
        /* 0 while the link works; then DEVICE_LOST, TIMEOUT, VERSION or INTERRUPTED */
        int code;
        bool pipe_gone; /* the pipe can no longer carry packets */
        char cause[200];
    } end;

    /* Packets. */
    uint8_t *in;                  /* the current packet, in the pipe's memory */
    uint8_t out[TW_PACKET_BYTES]; /* for a packet to send, if the pipe gives no room */
};

/* Creates a link over a pipe, which the link owns from then on (NULL: creating it ran out of
 * memory), and opens the device. If the device does not answer, the pipe's recovery steps are tried
 * once each until it answers OPEN. *out is the caller's: tw_link_close(). Errors: DEVICE_BUSY
 * (names the holder), DEVICE_LOST (lists what was tried), TIMEOUT, VERSION, PROTOCOL, NOMEM; the
 * pipe is closed then. */
int tw_link_open(const char *name, struct tw_pipe *pipe, uint32_t deadline_ms, struct tw_link **out,
                 tw_error *err);
/* Asks for the device's state without opening it; waits at most ms. Returns false if there is no
 * answer. The pipe stays the caller's. */
bool tw_link_query(struct tw_pipe *pipe, int ms, struct tw_link_opened *out);

/* Implement submit and receive of tw_transport_ops. */
int tw_link_submit(struct tw_transport *t, const uint8_t *header, const void *payload,
                   uint32_t payload_bytes, tw_error *err);
int tw_link_receive(struct tw_transport *t, uint8_t *header, const void **payload,
                    uint32_t *payload_bytes, tw_error *err);
/* Returns whether the link ended by a TIMEOUT in the middle of a program's step; *out is the last
 * progress, with the op where it is stuck. */
bool tw_link_is_stuck(struct tw_transport *t, struct tw_link_progress *out);
/* Sends CLOSE, closes the pipe, frees the link and calls wiring.closed(). */
void tw_link_close(struct tw_transport *t);

#endif
