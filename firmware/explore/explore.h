/* SPDX-License-Identifier: Apache-2.0
 *
 * Exhaustive execution of small programs: runs every interleaving of the engines' ops that can
 * matter on the strict machine (a search with partial-order reduction). Waits are monotone, so ops
 * of different engines commute unless they touch the same bytes and one writes. If no other engine
 * can reach a conflicting op before an engine's next op has run, that op is run first and one order
 * represents all; otherwise every order is run, except from states that were seen before. A program
 * without races takes a single path.
 *
 * Freestanding, without allocation: all memory comes from the caller's arena. One exploration runs
 * on one thread.
 */
#ifndef TW_FIRMWARE_EXPLORE_EXPLORE_H
#define TW_FIRMWARE_EXPLORE_EXPLORE_H

#include "firmware/core/tile_machine.h"

#include <stdbool.h>

enum tw_explore_found {
    /* two ops of different engines can run in either order, touch the same bytes, and one writes */
    TW_EXPLORE_RACE = 1,
    TW_EXPLORE_DIFFERS = 2,  /* two schedules leave different bytes in Output or State */
    TW_EXPLORE_FAULT = 4,    /* a schedule faults */
    TW_EXPLORE_DEADLOCK = 8, /* a schedule ends with engines that are still waiting */
    /* not everything was run: what was found is real, but there may be more */
    TW_EXPLORE_LIMIT = 16
};

/* Zeros are the defaults. */
struct tw_explore_options {
    uint32_t steps;      /* steps to run with the same inputs, one after the other; 0: 1 */
    uint32_t max_states; /* maximum number of states to store; 0: 65536 */
    uint32_t max_depth;  /* maximum number of open choices; 0: 64 */
    /* an engine begins its next step without waiting for the others to complete theirs */
    bool overlap;
};

/* The engine (site * TW_ENGINE_COUNT + engine) that ran, one entry per op. LOOP and END have no
 * entries; they are executed with the op before them. */
struct tw_explore_schedule {
    const uint16_t *engine;
    uint32_t n;
};

/* What was found. Schedules are in the caller's arena. */
struct tw_explore_result {
    uint32_t found;  /* of enum tw_explore_found; 0: every schedule ends with the same bytes */
    uint64_t states; /* distinct states with a choice; 0: one path represents all */
    uint64_t ends;   /* number of times that the last step was completed */
    struct {
        uint32_t engine, op_index, step;
    } race[2]; /* the first one: the two ops, and the step of each */
    struct tw_fault fault, deadlock;
    struct tw_explore_schedule fault_schedule, deadlock_schedule;
    /* This byte of this instance of the tensor differs after step `step` of these two schedules. */
    struct tw_explore_schedule differs_schedule[2];
    uint32_t step, tensor, instance;
    uint64_t offset;
};

/* Explores the program. Inputs and the initial State are taken from device memory, which is left
 * unchanged. A step ends as in tw_strict_step(); with `overlap` only the last one does, and only
 * its bytes are compared. Returns 0 and *result; NOMEM with arena->used set to the size to retry
 * with, which may have to be repeated once; or the fault of tw_strict_init() or of latching the
 * trips. `fault` may be NULL. Time: quadratic in the ops of a step, times the number of paths. */
int tw_explore(const struct tw_machine_config *config, struct tw_arena *arena,
               const struct tw_explore_options *options, struct tw_explore_result *result,
               struct tw_fault *fault);

/* Runs a schedule from the result of the same exploration and leaves its bytes in device memory.
 * Returns 0 or the outcome: the fault, Deadlock, or BadSchedule (object: the entry) if it does not
 * fit the program. `fault` may be NULL. */
int tw_explore_replay(const struct tw_machine_config *config, struct tw_arena *arena,
                      const struct tw_explore_options *options,
                      const struct tw_explore_schedule *schedule, struct tw_fault *fault);

#endif
