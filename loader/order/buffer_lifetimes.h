/* SPDX-License-Identifier: Apache-2.0
 *
 * Lifetimes of buffers: the sections of a program in which each is accessed.
 */
#ifndef TW_LOADER_ORDER_BUFFER_LIFETIMES_H
#define TW_LOADER_ORDER_BUFFER_LIFETIMES_H

#include "tilewright/machine.h"

/* first, last: section; TW_NONE: no op names the buffer. A buffer that keeps a Param is always
 * alive. */
struct tw_life {
    uint32_t first, last;
};

/* Fills lifetimes[0 .. n_buffers). The program need not be verified: ids outside their table are
 * ignored. */
void tw_buffer_lifetimes(const struct tw_program *program, struct tw_life *lifetimes);

#endif
