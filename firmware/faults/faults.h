/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator can lie: seeded fault plans between the link and the command server. A plan damages
 * packets at random (the link must hide that), or makes one thing go wrong for good, once: the next
 * open finds a healthy device. The same seed gives the same decisions in the same order.
 */
#ifndef TW_FIRMWARE_FAULTS_FAULTS_H
#define TW_FIRMWARE_FAULTS_FAULTS_H

#include "firmware/faults/slow_kernels.h"
#include "tilewright/error.h"
#include "tilewright/link.h"

#include <pthread.h>
#include <stdbool.h>

/* X(name, what it does). The first group must have no effect but time. */
#define TW_FAULT_PLANS(X)                                                                     \
    X(drop, "one packet in eight is lost")                                                    \
    X(delay, "one packet in four comes up to 20 ms late")                                     \
    X(duplicate, "one packet in four comes twice")                                            \
    X(truncate, "one packet in eight is cut short")                                           \
    X(corrupt, "one packet in eight has a bit flipped")                                       \
    X(mess, "all of these, one in sixteen each")                                              \
    X(tail, "one in three last packets of long messages is lost")                             \
    X(hundredth, "each hundredth packet comes late, or cut to a byte, or not at all")         \
    X(ghost, "one packet in eight comes as of an earlier open")                               \
    X(stall, "one request in eight waits for 150 ms before it is handled")                    \
    X(slow, "each request takes 10 ms longer, during which the progress word moves")          \
    X(crawl, "the tile machine is some hundred times slower")                                 \
    X(freeze, "a request never ends; the rest of the device answers")                         \
    X(flood, "a request never ends, and the device tells so without being asked, on and on")  \
    X(backwards, "a request never ends, and the count of those received goes backwards")      \
    X(site, "one site hangs in the middle of a step")                                         \
    X(silent, "from some packet on nothing is taken or sent")                                 \
    X(ones, "from some packet on all bytes are 0xFF, as of a device that fell off its bus")   \
    X(zeros, "from some packet on all bytes are 0")                                           \
    X(vanish, "the connection ends in the middle of the work")                                \
    X(identity, "the connection ends, and the device comes back as another machine")          \
    X(reset, "the device resets itself in the middle of the work")                            \
    X(midrun, "the device resets itself instead of ending a RUN")                             \
    X(stale, "from some packet on they are of another open, as if the device had been reset") \
    X(other, "a request is answered with the number of another one")                          \
    X(twice, "the answer to the request before comes a second time, instead of the next")     \
    X(lengths, "an answer says that it has some 4 GiB")                                       \
    X(credits, "the open is answered with room for no request")                               \
    X(nomem, "there is no memory to prepare programs")                                        \
    X(rot, "what the device keeps for its next host changes")                                 \
    X(version, "HELLO tells of a protocol that no driver speaks yet")                         \
    X(older, "HELLO tells of the protocol before the first")                                  \
    X(newer_abi, "HELLO tells of the machine ABI behind this one")                            \
    X(older_abi, "HELLO tells of the machine ABI before this one")                            \
    X(link, "its packets are of the link version behind this one")

struct tw_faults {
    pthread_mutex_t lock;
    int plan; /* -1: none */
    uint64_t random;
    uint32_t packets, requests, runs, told; /* told: PROGRESS since the event */
    /* packet or request at which the plan's one event happens */
    uint32_t trigger;
    bool fired, over; /* over: a new connection came after it */
};

/* name NULL or "": no faults. Errors: USAGE (names the plans). */
int tw_faults_init(struct tw_faults *f, const char *name, uint64_t seed, tw_error *err);
void tw_faults_finish(struct tw_faults *f);
/* The plan's name, or "". */
const char *tw_faults_name(const struct tw_faults *f);
/* Text of plan number i, or NULL behind the last. */
const char *tw_faults_list(unsigned i, const char **text);

/* True for the plans that need kernels of their own, and which. */
bool tw_faults_kernels(const struct tw_faults *f, struct tw_slow_kernels *how);

/* A new host: what happened once does not happen again. */
void tw_faults_new_host(struct tw_faults *f);

/* What becomes of a packet on its way in or out; its bytes and its length may be changed (never to
 * 0). */
struct tw_faults_packet {
    uint32_t copies; /* 0: lost */
    uint32_t late_ms;
    bool vanish; /* close the connection instead */
};
struct tw_faults_packet tw_faults_pass(struct tw_faults *f, uint8_t *bytes, size_t *n, bool out);

/* What happens to a request before it is handled. */
struct tw_faults_request {
    uint32_t wait_ms;
    bool moving; /* the progress word moves during the wait */
    bool freeze; /* until the host has gone */
    bool flood;  /* PROGRESS all the while */
    bool reset;  /* the device forgets its host instead */
    bool rot;    /* what it keeps changes afterwards */
};
struct tw_faults_request tw_faults_handle(struct tw_faults *f, unsigned opcode);

/* faults_answers.c: what the device says instead of the truth. An answer is a whole message, in
 * room for TW_LINK_MAX_MESSAGE bytes; `before` (n 0: none) is the one to the request before. */
struct tw_faults_answer {
    uint8_t *bytes;
    uint32_t n;
};
void tw_faults_inject(struct tw_faults *f, struct tw_faults_answer *answer,
                      const struct tw_faults_answer *before);
void tw_faults_inject_opened(struct tw_faults *f, struct tw_link_opened *o);
void tw_faults_inject_progress(struct tw_faults *f, struct tw_link_progress *p);

#endif
