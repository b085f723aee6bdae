/* SPDX-License-Identifier: Apache-2.0
 *
 * Hosts and devices that do not behave. A hostile host repeats a conversation that an honest one
 * had, with every kind of damage: to requests, to packets, to the order of things. A hostile device
 * is a pipe between the driver and an honest device that damages what the device says.
 */
#ifndef TW_TESTS_SUPPORT_HOSTILE_PEER_H
#define TW_TESTS_SUPPORT_HOSTILE_PEER_H

#include "tests/support/hostile_bed.h"

/* The requests of a conversation, in order. */
struct hostile_tape {
    struct hostile_request {
        uint8_t *bytes; /* header and payload */
        uint32_t n;
        uint64_t address; /* of the answer */
        uint64_t size;    /* ALLOC, FIND: bytes at that address */
    } * request;
    uint32_t n;
};

/* Returns a pipe that records the requests that go through it, and owns `inner`; aborts without
 * memory. */
struct tw_pipe *hostile_recorder(struct tw_pipe *inner, struct hostile_tape *tape);
void hostile_tape_free(struct hostile_tape *tape);

/* Plays a hostile host of the seed over the medium to its end, or sudden end. In a process of its
 * own: whatever happens to it is its own business. */
void hostile_host(const struct hostile_bed *b, enum hostile_medium medium,
                  const struct hostile_tape *tape, uint64_t seed);

/* Returns a pipe that is a hostile device, and owns the pipe of `line`, to which it is a driver's;
 * the line outlives it. The close restores the registers of a PCIe device. */
struct tw_pipe *hostile_device(struct hostile_line *line, uint64_t seed);

#endif
