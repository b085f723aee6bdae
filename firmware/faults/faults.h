/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault injection for the emulator: seeded fault plans between the link and the command server. A
 * plan damages packets at random, which the link must hide, or makes one thing go wrong, once and
 * for the rest of that connection; the next host finds a healthy device. The same seed gives the
 * same decisions in the same order. Functions that take `struct tw_faults *` are legal from any
 * thread between init and finish.
 */
#ifndef TW_FIRMWARE_FAULTS_FAULTS_H
#define TW_FIRMWARE_FAULTS_FAULTS_H

#include "firmware/faults/slow_kernels.h"
#include "tilewright/error.h"
#include "tilewright/link.h"

#include <pthread.h>
#include <stdbool.h>

/* X(name, what it does). Up to "crawl" the only visible effect must be the time that is lost. */
#define TW_FAULT_PLANS(X)                                                                       \
    X(drop, "one packet in eight is lost")                                                      \
    X(delay, "one packet in four arrives up to 20 ms late")                                     \
    X(duplicate, "one packet in four arrives twice")                                            \
    X(truncate, "one packet in eight is truncated")                                             \
    X(corrupt, "one packet in eight has a bit flipped")                                         \
    X(mess, "all of these, one in sixteen each")                                                \
    X(tail, "one in three final packets of long messages is lost")                              \
    X(hundredth, "every hundredth packet is late, cut to one byte, or lost")                    \
    X(ghost, "one packet in eight carries the generation of an earlier open")                   \
    X(stall, "one request in eight is handled 150 ms late")                                     \
    X(slow, "each request takes 10 ms longer, while the progress counter advances")             \
    X(crawl, "the tile machine is about a hundred times slower")                                \
    X(freeze, "a request never completes; the rest of the device keeps answering")              \
    X(flood, "a request never completes, and the device keeps sending unrequested PROGRESS")    \
    X(backwards, "a request never completes, and the count of received requests decreases")     \
    X(site, "one site hangs in the middle of a step")                                           \
    X(silent, "after some packet, nothing is received or sent")                                 \
    X(ones, "after some packet, all bytes are 0xFF, as from a device that dropped off the bus") \
    X(zeros, "after some packet, all bytes are 0")                                              \
    X(vanish, "the connection closes in the middle of the work")                                \
    X(identity, "the connection closes, and the device returns as another machine")             \
    X(reset, "the device resets itself in the middle of the work")                              \
    X(midrun, "the device resets itself instead of completing a RUN")                           \
    X(stale, "after some packet, all carry another generation, as after a device reset")        \
    X(other, "an answer carries the sequence number of another request")                        \
    X(twice, "the previous answer is sent again, instead of the next one")                      \
    X(lengths, "an answer claims a length of nearly 4 GiB")                                     \
    X(credits, "the open is answered with 0 credits")                                           \
    X(nomem, "LOAD fails for lack of memory")                                                   \
    X(rot, "content that the device keeps for its next host changes")                           \
    X(version, "HELLO reports a protocol version that no driver knows yet")                     \
    X(older, "HELLO reports a protocol version older than the first")                           \
    X(newer_abi, "HELLO reports the next machine ABI")                                          \
    X(older_abi, "HELLO reports the previous machine ABI")                                      \
    X(fewer_ops, "LIMITS says that the device has no op matmul")                                \
    X(fewer_types, "LIMITS says that the device has no element type q8_0")                      \
    X(link, "packets carry the next link version")

struct tw_faults {
    pthread_mutex_t lock;
    int plan; /* -1: none */
    uint64_t random;
    /* counted so far; progress_sent: PROGRESS packets since the event */
    uint32_t packets, requests, runs, progress_sent;
    /* number of the packet or request at which the plan's event happens */
    uint32_t trigger;
    /* fired: the event has happened; over: and another host has connected since */
    bool fired, over;
};

/* Initialises *f with the plan of that name; NULL or "": no faults. Errors: USAGE (no such plan;
 * lists them). */
int tw_faults_init(struct tw_faults *f, const char *name, uint64_t seed, tw_error *err);
void tw_faults_finish(struct tw_faults *f);
/* Returns the plan's name, or "". */
const char *tw_faults_name(const struct tw_faults *f);
/* Returns the name of plan number i and its *text; NULL past the last plan. */
const char *tw_faults_list(unsigned i, const char **text);

/* Returns true for plans that need slow kernels, and describes them in *how. */
bool tw_faults_kernels(const struct tw_faults *f, struct tw_slow_kernels *how);

/* Reports a new host: a plan's event that has happened does not happen again. */
void tw_faults_new_host(struct tw_faults *f);

/* The fate of one packet. */
struct tw_faults_packet {
    uint32_t copies; /* 0: lost */
    uint32_t late_ms;
    bool vanish; /* close the connection instead */
};
/* Decides the fate of a packet on its way in or out. May change its bytes and shorten it (never to
 * 0 bytes). */
struct tw_faults_packet tw_faults_pass(struct tw_faults *f, uint8_t *bytes, size_t *n, bool out);

/* The fate of one request. */
struct tw_faults_request {
    uint32_t wait_ms;
    bool moving; /* the progress counter advances during the wait */
    bool freeze; /* until the host has gone */
    bool flood;  /* send PROGRESS continuously meanwhile */
    bool reset;  /* the device forgets its host instead */
    bool rot;    /* change the kept content afterwards */
};
/* Decides the fate of a request before it is handled. */
struct tw_faults_request tw_faults_handle(struct tw_faults *f, unsigned opcode);

/* faults_answers.c: changes answers. An answer is a whole message, in a buffer of
 * TW_LINK_MAX_MESSAGE bytes. */
struct tw_faults_answer {
    uint8_t *bytes;
    uint32_t n;
};
/* Changes an answer's bytes and length as the plan says. `previous` is the answer before it (n 0:
 * none). */
void tw_faults_inject(struct tw_faults *f, struct tw_faults_answer *answer,
                      const struct tw_faults_answer *previous);
/* Change an OPENED or a PROGRESS before it is sent. */
void tw_faults_inject_opened(struct tw_faults *f, struct tw_link_opened *o);
void tw_faults_inject_progress(struct tw_faults *f, struct tw_link_progress *p);

#endif
