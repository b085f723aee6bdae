/* SPDX-License-Identifier: Apache-2.0
 *
 * Exhaustive execution of tiny programs: every interleaving of the engines' ops that can matter,
 * found by running the strict machine. Waits are monotone, so ops of different engines commute
 * unless they touch the same bytes and one writes. Where no other engine can come to touch what an
 * op touches before that op has run, one order stands for all; everywhere else every order is run,
 * and states that were met before are not run again. A program without races takes a single path.
 */
#ifndef TW_FIRMWARE_EXPLORE_EXPLORE_H
#define TW_FIRMWARE_EXPLORE_EXPLORE_H

#include "firmware/core/tile_machine.h"

#include <stdbool.h>

enum tw_explore_found {
    TW_EXPLORE_RACE =
        1, /* two ops of different engines can run in either order, touch the same bytes, and one writes */
    TW_EXPLORE_DIFFERS = 2,  /* two schedules leave different bytes in Output or State */
    TW_EXPLORE_FAULT = 4,    /* a schedule faults */
    TW_EXPLORE_DEADLOCK = 8, /* a schedule ends with engines that wait */
    /* not everything was run: what was found is there, what was not found may be there too */
    TW_EXPLORE_LIMIT = 16
};

struct tw_explore_options {
    uint32_t steps;      /* run with the same inputs, one after the other; 0: 1 */
    uint32_t max_states; /* states remembered at most; 0: 65536 */
    uint32_t max_depth;  /* open choices at most; 0: 64 */
    /* an engine begins its next step without waiting for the others to end theirs */
    bool overlap;
};

/* Which engine (site * TW_ENGINE_COUNT + engine) ran, one entry an op; LOOP and END have none, they
 * run along. */
struct tw_explore_schedule {
    const uint16_t *engine;
    uint32_t n;
};

struct tw_explore_result {
    uint32_t found;  /* of enum tw_explore_found; 0: every schedule ends with the same bytes */
    uint64_t states; /* distinct states with a choice; 0: one path stood for all */
    uint64_t ends;   /* times that the last step ended */
    struct {
        uint32_t engine, op_index, step;
    } race[2]; /* the first one: the ops, and the step each belongs to */
    struct tw_fault fault, deadlock;
    struct tw_explore_schedule fault_schedule, deadlock_schedule;
    /* After step `step` of these two, this byte of this instance of the tensor differs. */
    struct tw_explore_schedule differs_schedule[2];
    uint32_t step, tensor, instance;
    uint64_t offset;
};

/* Explores. Inputs and the initial State are what device memory holds; it is left as it was found.
 * The result's schedules lie in the arena. A step ends as in tw_strict_step; with `overlap` only
 * the last one does, and only its bytes are compared. Returns 0 and *result; NOMEM with arena->used
 * the size to come back with, which may be told in two stages; or the fault of tw_strict_init or of
 * latching the trips. Time: quadratic in the ops of a step, times the paths. */
int tw_explore(const struct tw_machine_config *config, struct tw_arena *arena,
               const struct tw_explore_options *options, struct tw_explore_result *result,
               struct tw_fault *fault);

/* Runs a schedule from the result of the same exploration and leaves its bytes in device memory. 0,
 * or what it comes to: the fault, Deadlock, or BadSchedule (object: the entry) if it does not fit
 * the program. */
int tw_explore_replay(const struct tw_machine_config *config, struct tw_arena *arena,
                      const struct tw_explore_options *options,
                      const struct tw_explore_schedule *schedule, struct tw_fault *fault);

#endif
