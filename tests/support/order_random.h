/* SPDX-License-Identifier: Apache-2.0
 *
 * Small random programs: one or two sites, two to five engines, FIFOs, flags, resident buffers,
 * loops, multicasts, one or two sections. About half are correct by construction; in the others
 * blocks of ops were exchanged or a handshake was omitted.
 */
#ifndef TW_TESTS_SUPPORT_ORDER_RANDOM_H
#define TW_TESTS_SUPPORT_ORDER_RANDOM_H

#include "tests/support/hand_program.h"

struct order_small {
    struct pb *b; /* pb_free */
    bool has_trip, has_loop, has_flag;
};

/* Creates the program of a seed. */
struct order_small order_small_program(uint64_t seed);

#endif
