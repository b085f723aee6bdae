/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the explorer. Control never depends on data, so each engine's run is a straight line of
 * ops whose bytes are known beforehand: explore_trace.c unrolls it and tells which ops conflict,
 * explore_machine.c moves the machine, explore.c searches.
 */
#ifndef TW_FIRMWARE_EXPLORE_EXPLORE_INTERNAL_H
#define TW_FIRMWARE_EXPLORE_EXPLORE_INTERNAL_H

#include "firmware/core/machine_arena.h"
#include "firmware/core/strict/strict.h"
#include "firmware/explore/explore.h"

/* rows rows of row_bytes bytes, the next one `stride` bytes further, in the host's address
 * space. */
struct explore_access {
    uintptr_t at;
    uint64_t rows, row_bytes, stride;
    bool write;
};

struct explore_op {
    uint32_t code, index, step;
    uint32_t object;         /* buffer, semaphore */
    uint32_t number, target; /* pages, increment or threshold; site, or for MCAST_SET the group */
    uint32_t first_access, n_accesses;
};

struct explore_engine {
    uint32_t first, n;  /* its ops in `ops`, of all steps */
    uint32_t each_step; /* of one step */
};

/* A tensor instance whose bytes the result is about. */
struct explore_kept {
    uint8_t *at;
    size_t bytes;
    uint32_t tensor, instance;
};

struct explore {
    struct tw_machine_config config;
    struct tw_explore_options options;
    struct tw_strict *s;
    uint8_t *block; /* the machine's memory: all of its state but device memory */
    size_t block_bytes;
    uint32_t n_engines, n_ops, n_accesses;
    struct explore_engine *engines;
    struct explore_op *ops;
    struct explore_access *accesses;
    /* [op][engine]: ops of that engine up to the last one that conflicts */
    uint32_t *last;
    /* thresholds and words stay far from half of the number range */
    bool monotone;
    uint32_t *pos;                   /* [engine]: ops run */
    uint32_t step;                   /* that the engines are in; overlap: 0 */
    uint32_t *pushes, *pops;         /* [buffer], of the engine being unrolled */
    uint32_t *level, *words, *front; /* of the lookahead */
    struct explore_kept *kept;
    uint32_t n_kept;
    size_t kept_bytes;
};

/* explore_machine.c */

/* Machine, trips, traces; 0, NOMEM (also where 0 and arena->used > arena->size), or a fault. */
int tw_explore_prepare(struct explore *x, const struct tw_machine_config *config,
                       struct tw_arena *arena, const struct tw_explore_options *options,
                       struct tw_fault *fault);
void tw_explore_copy_kept(const struct explore *x, uint8_t *to);
void tw_explore_restore_kept(const struct explore *x, const uint8_t *from);
void tw_explore_begin(struct explore *x);
bool tw_explore_can_run(const struct explore *x, uint32_t e);
/* One op of an engine that can run; 0 or its fault. */
int tw_explore_run(struct explore *x, uint32_t e, struct tw_fault *fault);

/* explore_trace.c */

/* Unrolls all engines; x->ops and x->accesses NULL: only counts. */
void tw_explore_unroll(struct explore *x);
void tw_explore_find_conflicts(struct explore *x);
bool tw_explore_conflict(const struct explore *x, const struct explore_op *a,
                         const struct explore_op *b);
/* x->front[e]: how many ops each engine can have run at most before one of those with frozen[e]
 * runs any more. */
void tw_explore_look_ahead(struct explore *x, const uint8_t *frozen);

/* The end of the engine's current step, as a number of its ops; with overlap that of all steps. */
static inline uint32_t explore_limit(const struct explore *x, uint32_t e) {
    return x->options.overlap ? x->engines[e].n : x->engines[e].each_step * (x->step + 1);
}

static inline const struct explore_op *explore_next(const struct explore *x, uint32_t e) {
    return &x->ops[x->engines[e].first + x->pos[e]];
}

#endif
