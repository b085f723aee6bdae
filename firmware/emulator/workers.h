/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator's host threads: a team that runs one plan step together. The caller is member 0; the
 * others wait for the next step by spinning for a moment, then by sleeping, so that a decode loop
 * pays no system call and an idle device no processor.
 */
#ifndef TW_FIRMWARE_EMULATOR_WORKERS_H
#define TW_FIRMWARE_EMULATOR_WORKERS_H

#include "firmware/core/tile_machine.h"

struct tw_workers; /* opaque */

/* At most `n_max` members (1: no thread is ever made). NULL when memory ran out. */
struct tw_workers *tw_workers_create(uint32_t n_max);
void tw_workers_destroy(struct tw_workers *workers); /* NULL is legal */

/* Starts the threads that a step of `n` members needs; returns how many members there are now, at
 * most n. */
uint32_t tw_workers_prepare(struct tw_workers *workers, uint32_t n);

/* Runs tw_plan_run(plan, t) for t = 0 .. n-1, n at most what prepare gave; returns when all are
 * done. */
void tw_workers_run(struct tw_workers *workers, struct tw_plan *plan, uint32_t n);

#endif
