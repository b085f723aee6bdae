/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of a served device: served.c lives, executes and answers; served_host.c takes
 * what the host sends.
 */
#ifndef TW_FIRMWARE_SERVE_LINK_SERVER_INTERNAL_H
#define TW_FIRMWARE_SERVE_LINK_SERVER_INTERNAL_H

#include "firmware/serve/link_server.h"

#include <stdatomic.h>

struct slot {
    uint8_t *bytes; /* TW_LINK_MAX_MESSAGE; the payload is 8-byte aligned */
    uint32_t n;
};

enum after { AFTER_NOTHING, AFTER_CLOSE, AFTER_DEATH };

struct tw_link_server {
    struct tw_emu *emu;
    struct tw_faults *faults;
    int news;

    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t work, still;
    pthread_t executor;
    bool started, quit, sending;
    struct tw_pipe *host; /* or NULL */
    uint32_t generation, pid;
    char command[32];
    bool opened, was_dirty; /* opened: OPENED was sent */
    bool said_close;
    uint64_t heard_at; /* of the host's last good packet, and its kind */
    uint32_t heard;
    /* how the last host went, if not in order: for the log */
    char disconnect_reason[TW_SERVER_LOG_BYTES];
    uint32_t departures; /* hosts that went */
    enum after after;    /* what the executor has to do before a host is let in */
    uint32_t received, executed, acked;
    uint32_t have;      /* bytes of request received + 1 */
    bool asked;         /* RESEND was sent for what is missing; not again until something came */
    uint32_t executing; /* opcode, 0: none */
    uint32_t program;   /* RUN: which */
    struct slot request[TW_LINK_CREDITS], answer[TW_LINK_CREDITS];
    _Atomic uint16_t check; /* how the host checks data: its packets' TW_LINK_MIXED, or 0 */
    _Atomic uint64_t beat;
};

/* What holds between any two requests; with the lock. The host's numbers of requests, those
 * executed and those acknowledged never overtake each other, and no slot is in use twice. */
static inline bool tw_link_server_sound(const struct tw_link_server *s) {
    return s->acked <= s->executed && s->executed <= s->received &&
           s->received - s->executed <= TW_LINK_CREDITS && s->have < TW_LINK_MAX_MESSAGE &&
           (s->host || (s->received == 0 && !s->sending)) && s->heard < TW_LINK_KIND_LIMIT;
}

static inline struct slot *tw_link_server_slot(struct slot *slots, uint32_t sequence) {
    return &slots[sequence % TW_LINK_CREDITS];
}

/* `wait`: as long as there is no room; without the lock then. False: the host has to go. */
bool tw_link_server_send_answer(struct tw_link_server *s, struct tw_pipe *to,
                                struct tw_link_header *h, const struct slot *a, bool wait);
/* With the lock. */
bool tw_link_server_send_opened(struct tw_link_server *s);
bool tw_link_server_send_progress(struct tw_link_server *s);
/* Executes the request that is complete now on the caller's thread, if that is the quicker way;
 * with the lock. */
bool tw_link_server_execute_short(struct tw_link_server *s);
/* Lets the host go; with the lock. */
void tw_link_server_detach(struct tw_link_server *s, enum after after);
void tw_link_server_sleep(uint32_t ms);

#endif
