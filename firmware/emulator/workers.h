/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator's host threads: a team that runs one plan step together. The caller is member 0; the
 * others wait for the next step by spinning for a moment, then by sleeping, so that a decode loop
 * makes no system calls and an idle device uses no processor time. One caller at a time.
 */
#ifndef TW_FIRMWARE_EMULATOR_WORKERS_H
#define TW_FIRMWARE_EMULATOR_WORKERS_H

#include "firmware/core/tile_machine.h"

struct tw_workers; /* opaque */

/* Creates a team of at most `n_max` members (1: no thread is ever started). Returns NULL if memory
 * ran out. */
struct tw_workers *tw_workers_create(uint32_t n_max);
/* Ends the threads. NULL is legal. */
void tw_workers_destroy(struct tw_workers *workers);

/* Starts the threads that a step of `n` members needs. Returns how many members there are, at most
 * n: fewer if threads could not be started. */
uint32_t tw_workers_prepare(struct tw_workers *workers, uint32_t n);

/* Runs tw_plan_run(plan, t) for t = 0 .. n-1, with n at most what tw_workers_prepare returned.
 * Returns when all are done. */
void tw_workers_run(struct tw_workers *workers, struct tw_plan *plan, uint32_t n);

#endif
