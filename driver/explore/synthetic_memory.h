/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic device memory for a program that comes without a bundle: every binding row is backed,
 * Params hold small numbers, State is initialised as the program declares, and Inputs hold values
 * that the program accepts.
 */
#ifndef TW_DRIVER_EXPLORE_SYNTHETIC_MEMORY_H
#define TW_DRIVER_EXPLORE_SYNTHETIC_MEMORY_H

#include "firmware/core/tile_machine.h"

struct synthetic_memory {
    const struct tw_program *program; /* the caller's; has passed the verifier */
    uint64_t *address, *bytes;        /* by binding row */
    uint32_t n_rows;
    uint8_t *memory;
};

/* Allocates the memory, at most limit_bytes, and fills it. The same program and `input` give the
 * same bytes. Inputs that are token ids step through the table's rows, positions are 0, and all
 * others hold `input`, or the largest value that the program accepts if that is smaller. Errors:
 * NOMEM; *m then needs no finish. One thread. */
int synthetic_memory_init(struct synthetic_memory *m, const struct tw_program *program,
                          uint32_t input, uint64_t limit_bytes, tw_error *err);
void synthetic_memory_finish(struct synthetic_memory *m);

/* Returns the configuration of a machine on this memory, valid as long as *m. */
struct tw_machine_config synthetic_memory_machine(struct synthetic_memory *m);

#endif
