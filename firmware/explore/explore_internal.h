/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the explorer. Control never depends on data, so each engine executes a straight line
 * of ops whose bytes are known in advance: explore_trace.c unrolls it and determines which ops
 * conflict, explore_machine.c advances the machine, explore.c searches.
 */
#ifndef TW_FIRMWARE_EXPLORE_EXPLORE_INTERNAL_H
#define TW_FIRMWARE_EXPLORE_EXPLORE_INTERNAL_H

#include "firmware/core/machine_arena.h"
#include "firmware/core/strict/strict.h"
#include "firmware/explore/explore.h"

/* `rows` rows of `row_bytes` bytes, `stride` bytes apart, in the host's address space. */
struct explore_access {
    uintptr_t at;
    uint64_t rows, row_bytes, stride;
    bool write, sent; /* sent: to another site */
};

/* One op of an unrolled engine. */
struct explore_op {
    uint32_t code, index, step;
    uint32_t object;         /* buffer or semaphore */
    uint32_t number, target; /* pages, increment or threshold; site, or for MCAST_SET the group */
    uint32_t first_access, n_accesses;
};

struct explore_engine {
    uint32_t first, n;  /* its ops in `ops`, of all steps */
    uint32_t each_step; /* ops of one step */
};

/* A tensor instance whose bytes are compared: of an Output or a State. */
struct explore_compared {
    uint8_t *at;
    size_t bytes;
    uint32_t tensor, instance;
};

/* One exploration. */
struct explore {
    struct tw_machine_config config;
    struct tw_explore_options options;
    struct tw_strict *s;
    uint8_t *block; /* the machine's memory: all of its state except device memory */
    size_t block_bytes;
    uint32_t n_engines, n_ops, n_accesses;
    struct explore_engine *engines;
    struct explore_op *ops;
    struct explore_access *accesses;
    /* [op][engine]: number of ops of that engine up to the last one that conflicts */
    uint32_t *last;
    /* thresholds and words differ by far less than 2^31, so a wait that has passed stays passed */
    bool monotone;
    uint32_t *pos;           /* [engine]: ops executed */
    uint32_t step;           /* step that the engines are in; with overlap 0 */
    uint32_t *pushes, *pops; /* [buffer], of the engine being unrolled */
    /* of the engine being unrolled: accesses before its last flag; those since then that are
     * sent */
    uint32_t flagged, n_sent;
    uint32_t *level, *words, *front; /* of the lookahead */
    struct explore_compared *compared;
    uint32_t n_compared;
    size_t compared_bytes;
};

/* explore_machine.c */

/* Creates machine, trips and traces. Returns 0, NOMEM (the arena was also too small if it returns 0
 * and arena->used > arena->size), or a fault. */
int tw_explore_prepare(struct explore *x, const struct tw_machine_config *config,
                       struct tw_arena *arena, const struct tw_explore_options *options,
                       struct tw_fault *fault);
/* Copy the compared bytes, x->compared_bytes in all, out of and back into device memory. */
void tw_explore_copy_compared(const struct explore *x, uint8_t *to);
void tw_explore_restore_compared(const struct explore *x, const uint8_t *from);
/* Begins a step on all engines. */
void tw_explore_begin(struct explore *x);
/* Returns true if engine e has an op left in its step that can execute now. */
bool tw_explore_can_run(const struct explore *x, uint32_t e);
/* Executes one op of an engine that can run; returns 0 or its fault. */
int tw_explore_run(struct explore *x, uint32_t e, struct tw_fault *fault);

/* explore_trace.c */

/* Unrolls all engines; only counts while x->ops and x->accesses are NULL. */
void tw_explore_unroll(struct explore *x);
/* Fills x->last and x->monotone from the unrolled ops. */
void tw_explore_find_conflicts(struct explore *x);
/* Returns true if the two ops touch a common word and one of them writes it. */
bool tw_explore_conflict(const struct explore *x, const struct explore_op *a,
                         const struct explore_op *b);
/* Sets x->front[e] to the maximum number of ops that each engine can have executed before one of
 * those with frozen[e] executes another. */
void tw_explore_look_ahead(struct explore *x, const uint8_t *frozen);

/* Returns where the engine's current step ends, as a number of its ops; with overlap, where all
 * steps end. */
static inline uint32_t explore_limit(const struct explore *x, uint32_t e) {
    return x->options.overlap ? x->engines[e].n : x->engines[e].each_step * (x->step + 1);
}

static inline const struct explore_op *explore_next(const struct explore *x, uint32_t e) {
    return &x->ops[x->engines[e].first + x->pos[e]];
}

#endif
