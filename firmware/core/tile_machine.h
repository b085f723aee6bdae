/* SPDX-License-Identifier: Apache-2.0
 *
 * The tile machine: loads one verified program and steps it, strictly (one op at a time, every
 * access checked) or by replay of a flattened plan. Freestanding; all memory comes from the caller
 * as one arena.
 */
#ifndef TW_FIRMWARE_CORE_TILE_MACHINE_H
#define TW_FIRMWARE_CORE_TILE_MACHINE_H

#include "firmware/kernels/kernels.h"
#include "loader/base/interrupt.h"
#include "tilewright/error.h"
#include "tilewright/machine.h"

#include <stdatomic.h>

/* A bump arena over memory of the port. `used` keeps growing past `size` when it runs out, so that
 * a first pass with size 0 finds how much is needed. */
struct tw_arena {
    uint8_t *base;
    size_t size, used;
};

/* A fault: its place (TW_NONE where there is none) and the numbers compared. code: TW_E_*; what:
 * static text such as "ReadOutOfRange". */
struct tw_fault {
    int code;
    const char *what;
    uint32_t site, engine, op_index, opcode, stage, object;
    uint64_t have, need;
    uint32_t element; /* of the page table `object`: PageOutOfRange, PageShared; else 0 */
};

/* The op at which a strict step is, and a progress counter that changes with each op. Written by
 * the step; any thread may read it. */
struct tw_watch {
    _Atomic uint32_t progress, site, engine, op_index, opcode;
};

/* Ends a step that is running, from outside. A step that was ended leaves the machine faulted, and
 * what it writes (State, Outputs) undefined. Every thread that runs a step looks at it before each
 * op, or every few entries of a plan and turns of a wait, so a step ends when a few kernels
 * have. */
struct tw_cancel {
    /* Not 0: end the step. Any thread may set it at any time; who clears it waits until no step
     * runs. */
    _Atomic uint32_t now;
    /* For words that only the port knows, such as one that a signal handler sets. Asked as often as
     * `now` is read, by several threads at once, so it must be cheap. */
    struct tw_interrupt interrupt;
};
static inline bool tw_cancelled(const struct tw_cancel *c) {
    return c && (atomic_load_explicit(&c->now, memory_order_relaxed) != 0 ||
                 tw_interrupted(&c->interrupt));
}

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
    /* Number of the first step: variable 0; every semaphore has the value that so many steps would
     * have left. 0 except in tests; other values are refused if a semaphore is incremented in a
     * loop over a trip. */
    uint32_t first_epoch;
    struct tw_watch *watch;         /* or NULL: where strict steps report their progress */
    const struct tw_cancel *cancel; /* or NULL: nothing ends a step from outside */
};

/* The order in which engines run. Canonical: round robin over (site, engine), each until it blocks.
 * Random: a seeded choice among runnable engines before every op. Starve: the adversary that the
 * seed selects (TW_STARVE_SEED). */
enum tw_scheduler {
    TW_SCHED_CANONICAL = 0,
    TW_SCHED_RANDOM = 1,
    TW_SCHED_STARVE = 2,
    TW_SCHED_COUNT = 3
};

/* X(name, number, what it does): adversaries. Among engines that it ranks equally, the first in
 * identity order (site, then engine) runs. The seed's `number` is taken modulo the count of what it
 * selects; adversaries that do not mention it ignore it. */
#define TW_STARVES(X)                                                                        \
    X(ENGINE, 0, "engine `number` runs only when nothing else can")                          \
    X(SITE, 1, "site `number` runs only when no other can")                                  \
    X(KIND, 2, "engines of one kind run only when no other can: LOAD, MATH or STORE last")   \
    X(OP, 3, "one kind of op, the `number`th of the table, runs only when nothing else can") \
    X(FAVOUR, 4, "engine `number` runs whenever it can, so it is as far ahead as possible")  \
    X(NEWEST, 5, "the engine that became runnable last runs")                                \
    X(TURNS, 6, "the engine that has not run for the longest time runs one op")              \
    X(BACKWARD, 7, "the last engine in identity order runs")                                 \
    X(LEADER, 8, "the engine that has run the most ops of the step runs")                    \
    X(LAGGARD, 9, "the engine that has run the fewest ops of the step runs")

enum tw_starve {
#define TW_X(name, number, text) TW_STARVE_##name = number,
    TW_STARVES(TW_X)
#undef TW_X
        TW_STARVE_COUNT = 10
};
#define TW_STARVE_SEED(starve, number) ((uint64_t)(number)*TW_STARVE_COUNT + (uint64_t)(starve))

/* ---- strict: firmware/core/strict/strict.c ---- */
struct tw_strict; /* opaque, inside the arena */

/* Prepares strict execution; SRAM of all sites and shadow state come from the arena, which must
 * outlive *out. `fault` may be NULL. Errors: NOMEM (arena->used is the size needed), FAULT (BadOp,
 * BadTable, EpochStep). */
int tw_strict_init(const struct tw_machine_config *config, struct tw_arena *arena,
                   struct tw_strict **out, struct tw_fault *fault);
/* Runs one step: latches the trips, then runs all engines to their end in the scheduler's order.
 * After a fault other than InputRange, PageOutOfRange (when the step begins) and PageShared, with
 * which nothing has run, every later step is refused (Faulted). Errors: FAULT with
 * what = ReadOutOfRange, WriteOutOfRange, Undefined (a byte never written was read), Role,
 * FifoOverrun, FifoUnderrun, Deadlock (no engine can run; names the first waiter), BadOp,
 * InputRange, PageOutOfRange, PageShared, IdOutOfRange, InFlight (bytes are used that another
 * engine has sent to this site and that need not have arrived; in strict execution nothing arrives
 * before its sender's next flag). INTERRUPTED with what = Cancelled: config.cancel ended the step,
 * at the op that the fault names. */
int tw_strict_step(struct tw_strict *s, enum tw_scheduler scheduler, uint64_t seed,
                   struct tw_fault *fault);
/* Returns the number of ops executed in the last step. */
uint64_t tw_strict_ops(const struct tw_strict *s);
/* Sets whether later steps also check what each op computes: an infinity or NaN is then the fault
 * NotFinite, with `have` the first bad row and `need` the iteration of the outermost loop. */
void tw_strict_check_numbers(struct tw_strict *s, bool check);

/* ---- fast: firmware/core/plan/plan.c (build), firmware/core/plan/replay.c (run) ---- */
struct tw_plan;

/* Flattens the program for n_threads host threads (site s runs on thread s * n_threads / n_sites).
 * The arena is used as by tw_strict_init. Errors: NOMEM, FAULT, INTERRUPTED (Cancelled). */
int tw_plan_build(const struct tw_machine_config *config, uint32_t n_threads,
                  struct tw_arena *arena, struct tw_plan **out, struct tw_fault *fault);
/* Latches the trips of the next step and resets per-step thread state; called by one thread before
 * the others start. Faults: InputRange, PageOutOfRange, PageShared. */
int tw_plan_begin(struct tw_plan *plan, struct tw_fault *fault);
/* Runs thread t's part of the step; all threads must run theirs concurrently (or t in ascending
 * order cooperatively where n_threads is 1). No allocation, no system call; waits spin with a pause
 * and call `relax` (may be NULL) after many spins. If config.cancel ends the step in one thread,
 * all of them return. */
void tw_plan_run(struct tw_plan *plan, uint32_t thread, void (*relax)(void *ctx), void *ctx);
/* Returns true if the last step was ended by config.cancel before it was complete. Call it when all
 * threads have returned from tw_plan_run. */
bool tw_plan_was_cut(const struct tw_plan *plan);

/* Runs a step as tw_plan_begin and tw_plan_run do, with all threads' parts on the calling thread,
 * and checks what each op computes (as tw_strict_check_numbers): to find why an earlier run of the
 * same step had an unusable result. Faults: NotFinite, Cancelled (INTERRUPTED), and those of
 * tw_plan_begin. */
int tw_plan_check_numbers(struct tw_plan *plan, struct tw_fault *fault);

/* Legal from any thread while the plan runs. tw_plan_progress returns a counter that changes as the
 * step makes progress; tw_plan_where fills in an op at which a thread is, and one that another
 * thread cannot begin yet. */
uint64_t tw_plan_progress(const struct tw_plan *plan);
void tw_plan_where(const struct tw_plan *plan, struct tw_place *at, struct tw_place *waiting);

/* Contents of a plan, for tests and tools (struct tw_plan in plan/plan.h). */
struct tw_plan_stats {
    /* per step, all threads, constant loops unrolled */
    uint64_t calls, waits, posts, in_place_reads, copies;
};

#endif
