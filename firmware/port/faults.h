/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator can lie: seeded fault plans between the link and the command server. A plan damages packets at random
 * (the link must hide that), or makes one thing go wrong for good, once: the next open finds a healthy device. The same
 * seed gives the same decisions in the same order.
 */
#ifndef TW_FIRMWARE_PORT_FAULTS_H
#define TW_FIRMWARE_PORT_FAULTS_H

#include "firmware/port/frozen.h"
#include "tilewright/error.h"
#include "tilewright/wire.h"

#include <pthread.h>
#include <stdbool.h>

/* X(name, what it does) */
#define TW_FAULT_PLANS(X)                                                                   \
    X(drop, "one packet in eight is lost")                                                  \
    X(delay, "one packet in four comes up to 20 ms late")                                   \
    X(duplicate, "one packet in four comes twice")                                          \
    X(truncate, "one packet in eight is cut short")                                         \
    X(corrupt, "one packet in eight has a bit flipped")                                     \
    X(mess, "all of these, one in sixteen each")                                            \
    X(stall, "one request in eight waits for 150 ms before it is handled")                  \
    X(slow, "each request takes 10 ms longer, during which the progress word moves")        \
    X(crawl, "the tile machine is some hundred times slower")                               \
    X(freeze, "a request never ends; the rest of the device answers")                       \
    X(site, "one site hangs in the middle of a step")                                       \
    X(silent, "from some packet on nothing is taken or sent")                               \
    X(ones, "from some packet on all bytes are 0xFF, as of a device that fell off its bus") \
    X(version, "HELLO tells of a protocol that no driver speaks")                           \
    X(vanish, "the connection ends in the middle of the work")

struct tw_faults {
    pthread_mutex_t lock;
    int plan; /* -1: none */
    uint64_t random;
    uint32_t packets, requests;
    uint32_t trigger; /* packet or request at which the plan's one event happens */
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
bool tw_faults_kernels(const struct tw_faults *f, struct tw_frozen *how);

/* A new host: what happened once does not happen again. */
void tw_faults_new_host(struct tw_faults *f);

/* What becomes of a packet on its way in or out; its bytes and its length may be changed (never to 0). */
struct tw_faults_packet {
    uint32_t copies; /* 0: lost */
    uint32_t late_ms;
    bool vanish; /* close the connection instead */
};
struct tw_faults_packet tw_faults_pass(struct tw_faults *f, uint8_t *bytes, size_t *n);

struct tw_faults_request {
    uint32_t wait_ms;
    bool moving; /* the progress word moves during the wait */
    bool freeze; /* until the host has gone */
    bool wrong_version;
};
struct tw_faults_request tw_faults_handle(struct tw_faults *f, unsigned opcode);

#endif
