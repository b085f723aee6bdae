/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the link server: link_server.c creates, executes and answers;
 * link_server_host.c handles what the host sends.
 */
#ifndef TW_FIRMWARE_SERVE_LINK_SERVER_INTERNAL_H
#define TW_FIRMWARE_SERVE_LINK_SERVER_INTERNAL_H

#include "firmware/serve/link_server.h"

#include <stdatomic.h>

struct slot {
    uint8_t *bytes; /* TW_LINK_MAX_MESSAGE; the payload is 8-byte aligned */
    uint32_t n;
};

/* What the executing thread has to do before the next host is accepted. */
enum cleanup {
    CLEANUP_NONE,
    CLEANUP_RELEASE, /* after CLOSE: free all but kept content */
    CLEANUP_RESET    /* after anything else */
};

struct tw_link_server {
    struct tw_emu *emu;
    struct tw_faults *faults;
    int news;

    pthread_mutex_t lock;    /* of everything below */
    pthread_cond_t work;     /* wakes the executing thread: a request, a cleanup, the end */
    pthread_cond_t sent_all; /* `sending` became false */
    pthread_t executor;
    bool quit, sending;
    struct tw_pipe *host; /* or NULL */
    uint32_t generation, pid;
    char command[32];
    bool opened, was_dirty; /* opened: OPENED was sent */
    bool close_received;
    uint64_t last_packet_ms; /* when the host's last good packet came */
    uint32_t last_kind;      /* and its kind */
    /* of the last host, for the log; used if it left without CLOSE */
    char disconnect_reason[TW_SERVER_LOG_BYTES];
    uint32_t departures; /* counts hosts that were detached */
    enum cleanup cleanup;
    uint32_t received, executed, acked;
    uint32_t received_bytes; /* of the next request */
    bool resend_requested;   /* a RESEND was sent; no other until some of the data came */
    uint32_t executing;      /* opcode, 0: none */
    uint32_t cancelled;      /* the host has sent CANCEL for requests up to this number */
    uint32_t program;        /* of a RUN, or TW_NONE */
    struct slot request[TW_LINK_CREDITS], answer[TW_LINK_CREDITS];
    _Atomic uint16_t check; /* the checksum that the host uses: TW_LINK_CHECKSUM, or 0 (CRC32C) */
    _Atomic uint64_t progress; /* counter; changes with each request */
};

/* Invariant between any two requests; with the lock. The host's numbers of requests, those
 * executed and those acknowledged never overtake each other, and no slot is in use twice. */
static inline bool tw_link_server_sound(const struct tw_link_server *s) {
    return s->acked <= s->executed && s->executed <= s->received &&
           s->received - s->executed <= TW_LINK_CREDITS &&
           s->received_bytes < TW_LINK_MAX_MESSAGE &&
           (s->host || (s->received == 0 && !s->sending)) && s->last_kind < TW_LINK_KIND_LIMIT;
}

static inline struct slot *tw_link_server_slot(struct slot *slots, uint32_t sequence) {
    return &slots[sequence % TW_LINK_CREDITS];
}

/* Sends the packets of a kept answer, from h->offset on. wait: until there is room (then call it
 * without the lock). Returns false if the host must be detached. */
bool tw_link_server_send_answer(struct tw_link_server *s, struct tw_pipe *to,
                                struct tw_link_header *h, const struct slot *a, bool wait);
/* Send OPENED or PROGRESS to the host. With the lock. Return false if the host must be detached. */
bool tw_link_server_send_opened(struct tw_link_server *s);
bool tw_link_server_send_progress(struct tw_link_server *s);
/* Executes the request that has just become complete, on the caller's thread, if that is quicker
 * than waking the executing thread. Returns false if it did not. With the lock. */
bool tw_link_server_execute_short(struct tw_link_server *s);
/* Closes the host's connection, if there is one, and starts the cleanup. With the lock, which it
 * may release while it waits. */
void tw_link_server_detach(struct tw_link_server *s, enum cleanup cleanup);
void tw_link_server_sleep(uint32_t ms);

#endif
