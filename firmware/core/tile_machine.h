/* SPDX-License-Identifier: Apache-2.0
 *
 * The tile machine: loads one verified program and steps it, strictly (one op at a time, every
 * access checked) or by replay of a flattened plan. Freestanding; all memory comes from the caller
 * as one arena.
 */
#ifndef TW_FIRMWARE_CORE_TILE_MACHINE_H
#define TW_FIRMWARE_CORE_TILE_MACHINE_H

#include "firmware/kernels/kernels.h"
#include "tilewright/error.h"
#include "tilewright/machine.h"

#include <stdatomic.h>

/* A bump arena over memory of the port. `used` keeps growing past `size` when it runs out, so that
 * a first pass with size 0 tells how much is needed. */
struct tw_arena {
    uint8_t *base;
    size_t size, used;
};

/* Where a fault happened and the numbers compared. code: TW_E_* ; what: static text such as
 * "ReadOutOfRange". */
struct tw_fault {
    int code;
    const char *what;
    uint32_t site, engine, op_index, opcode, stage, object;
    uint64_t have, need;
};

/* The op that a strict step is at, and a number that changes with each. Written by the step, read
 * by anybody. */
struct tw_watch {
    _Atomic uint32_t beat, site, engine, op_index, opcode;
};

/* What the machine runs on. Device addresses are turned into pointers by `map` (NULL if [address,
 * address + size) is not device memory that the host has allocated); the emulator's is the identity
 * with a range check. */
struct tw_machine_config {
    const struct tw_program *program;
    const uint64_t *bind; /* binding rows: device addresses */
    uint64_t n_bind;
    void *(*map)(void *ctx, uint64_t address, uint64_t size);
    void *ctx;
    const struct tw_kernel_table *kernels;
    /* Number of the first step: variable 0, and every counter is as so many steps would have left
     * it. 0 but in tests; other values are refused where a word is incremented in a loop over a
     * trip. */
    uint32_t first_epoch;
    struct tw_watch *watch; /* or NULL: for those who look at strict steps from outside */
};

/* In which order engines run. Canonical: round robin over (site, engine), each as far as it goes.
 * Random: a seeded choice among runnable engines before every op. Starve: the adversary that the
 * seed names (TW_STARVE_SEED). */
enum tw_scheduler {
    TW_SCHED_CANONICAL = 0,
    TW_SCHED_RANDOM = 1,
    TW_SCHED_STARVE = 2,
    TW_SCHED_COUNT = 3
};

/* X(name, number, what it does): adversaries. Of those equally near to running, the first in
 * identity order runs. `number` is taken modulo what there is of its kind; the last five ignore
 * it. */
#define TW_STARVES(X)                                                                        \
    X(ENGINE, 0, "engine `number` runs only when nothing else can")                          \
    X(SITE, 1, "site `number` runs only when no other can")                                  \
    X(KIND, 2, "engines of one kind run only when no other can: LOAD, MATH or STORE last")   \
    X(OP, 3, "one kind of op, the `number`th of the table, runs only when nothing else can") \
    X(FAVOUR, 4, "engine `number` runs whenever it can, so as far as possible ahead")        \
    X(NEWEST, 5, "the engine that became runnable last")                                     \
    X(TURNS, 6, "the engine that has not run for longest, one op each")                      \
    X(BACKWARD, 7, "the last in identity order")                                             \
    X(LEADER, 8, "the engine that has run most ops of the step")                             \
    X(LAGGARD, 9, "the engine that has run fewest")

enum tw_starve {
#define TW_X(name, number, text) TW_STARVE_##name = number,
    TW_STARVES(TW_X)
#undef TW_X
        TW_STARVE_COUNT = 10
};
#define TW_STARVE_SEED(starve, number) ((uint64_t)(number)*TW_STARVE_COUNT + (uint64_t)(starve))

/* ---- strict: firmware/core/strict/strict.c ---- */
struct tw_strict; /* opaque, inside the arena */

/* Prepares strict execution; SRAM of all sites and shadow state come from the arena. 0 and *out, or
 * NOMEM with arena->used the size needed, or a fault. */
int tw_strict_init(const struct tw_machine_config *config, struct tw_arena *arena,
                   struct tw_strict **out, struct tw_fault *fault);
/* One step: latches trips, runs all engines to their end in the scheduler's order. Faults: FAULT
 * with what = ReadOutOfRange, WriteOutOfRange, Undefined (a byte never written was read), Role,
 * FifoOverrun, FifoUnderrun, Deadlock (no engine can run; names the first waiter), BadOp,
 * InputRange, IdOutOfRange. */
int tw_strict_step(struct tw_strict *s, enum tw_scheduler scheduler, uint64_t seed,
                   struct tw_fault *fault);
uint64_t tw_strict_ops(const struct tw_strict *s); /* ops executed in the last step */
/* Whether the steps from now on also look at what each op computes: an infinity or NaN is the fault
 * NotFinite, with `have` the first bad row and `need` the iteration of the outermost loop. */
void tw_strict_check_numbers(struct tw_strict *s, bool check);

/* ---- fast: firmware/core/plan/plan.c (build), firmware/core/plan/replay.c (run) ---- */
struct tw_plan;

/* Flattens the program for n_threads host threads (site s runs on thread s * n_threads / n_sites).
 * Same contract of the arena. */
int tw_plan_build(const struct tw_machine_config *config, uint32_t n_threads,
                  struct tw_arena *arena, struct tw_plan **out, struct tw_fault *fault);
/* Latches the trips of the next step and resets per-step thread state; called by one thread before
 * the others start. Fault InputRange. */
int tw_plan_begin(struct tw_plan *plan, struct tw_fault *fault);
/* Runs thread t's part of the step; all threads must run theirs concurrently (or t in ascending
 * order cooperatively where n_threads is 1). No allocation, no system call; waits spin with a pause
 * and call `relax` (may be NULL) after many spins. */
void tw_plan_run(struct tw_plan *plan, uint32_t thread, void (*relax)(void *ctx), void *ctx);

/* A step as tw_plan_begin and tw_plan_run together, all threads' parts on the calling thread, which
 * looks at what each op computes (tw_strict_check_numbers): to find out why the results of a step
 * that was run before are worthless. Fault NotFinite; those of tw_plan_begin. */
int tw_plan_check_numbers(struct tw_plan *plan, struct tw_fault *fault);

/* Legal from any thread while the plan runs: a number that changes as the step gets on; an op that
 * a thread is at, and one that another thread cannot begin yet. */
uint64_t tw_plan_progress(const struct tw_plan *plan);
void tw_plan_where(const struct tw_plan *plan, struct tw_place *at, struct tw_place *waiting);

/* What a plan consists of, for tests and tools (struct tw_plan in plan/plan.h). */
struct tw_plan_stats {
    /* per step, all threads, constant loops unrolled */
    uint64_t calls, waits, posts, in_place_reads, copies;
};

#endif
