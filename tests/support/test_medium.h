/* SPDX-License-Identifier: Apache-2.0
 *
 * A medium's pipe over another one, with what a socket cannot do: it reports that the host has gone
 * (a packet of 0 bytes).
 */
#ifndef TW_TESTS_SUPPORT_TEST_MEDIUM_H
#define TW_TESTS_SUPPORT_TEST_MEDIUM_H

#include "firmware/link/pipe.h"

#include <stdatomic.h>

struct test_medium {
    struct tw_pipe base;
    struct tw_pipe *inner;
    _Atomic bool host_gone; /* set by any thread: the next packet that is taken says so */
    bool *closed;           /* or NULL: set when the pipe is closed */
};

/* Takes over `inner`; `chunk` is the pipe's. Freed by the pipe's close. */
struct test_medium *test_medium_create(struct tw_pipe *inner, uint32_t chunk, bool *closed);

#endif
