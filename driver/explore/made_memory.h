/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory for a program that no host has prepared: every binding row is there, Params hold
 * small numbers, State is as the program says, and Inputs are ones that it takes.
 */
#ifndef TW_DRIVER_EXPLORE_MADE_MEMORY_H
#define TW_DRIVER_EXPLORE_MADE_MEMORY_H

#include "firmware/core/tile_machine.h"

struct made_memory {
    const struct tw_program *program; /* the caller's; has passed the verifier */
    uint64_t *address, *bytes;        /* by binding row */
    uint32_t n_rows;
    uint8_t *memory;
};

/* Makes it; the same for the same program and `number`, which is what Inputs hold that are no ids, as
 * far as the program takes it (a position is always 0). At most limit_bytes. Errors: NOMEM; *m needs
 * no finish then. One thread. */
int made_memory_init(struct made_memory *m, const struct tw_program *program, uint32_t number,
                     uint64_t limit_bytes, tw_error *err);
void made_memory_finish(struct made_memory *m);

/* A machine over it; valid as long as *m. */
struct tw_machine_config made_memory_machine(struct made_memory *m);

#endif
