/* SPDX-License-Identifier: Apache-2.0
 *
 * In which sections of a program each buffer is touched.
 */
#ifndef TW_LOADER_ORDER_BUFFER_LIFETIMES_H
#define TW_LOADER_ORDER_BUFFER_LIFETIMES_H

#include "tilewright/machine.h"

/* first, last: section; TW_NONE: no op names the buffer. One that keeps a Param lives always. */
struct tw_life {
    uint32_t first, last;
};

/* Fills lives[0 .. n_buffers). The program need not be verified: what is outside its table is
 * passed over. */
void tw_buffer_lifetimes(const struct tw_program *program, struct tw_life *lives);

#endif
