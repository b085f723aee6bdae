/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the plan builder: one symbolic step of all engines. plan_text.c decodes the text once,
 * plan_walk.c moves the engines, plan_sync.c keeps semaphores and vector clocks, plan_resolve.c
 * turns operands into pointers (in-place reads live there), plan_calls.c emits calls, plan.c owns
 * memory and the passes.
 *
 * The walk runs several times over the same text: counting passes until no assumption about
 * in-place reads is refuted (a refuted one is marked and stays marked), then one that stores.
 */
#ifndef TW_FIRMWARE_CORE_PLAN_PLAN_WALK_H
#define TW_FIRMWARE_CORE_PLAN_PLAN_WALK_H

#include "firmware/core/machine_arena.h"
#include "firmware/core/plan/plan.h"

#define WALK_TERMS 4u

/* A number that is known up to the iterations of open dynamic loops. */
struct walk_terms {
    uint32_t n;
    uint32_t level[WALK_TERMS];
    uint64_t step[WALK_TERMS];
};
struct walk_pointer {
    uint8_t *at;
    struct walk_terms terms;
};

struct walk_region {
    uint32_t id;
    char kind;
    bool reads;
    const uint32_t *offset, *instance; /* encoded affine numbers */
    uint64_t span;                     /* bytes, at the largest row count */
};

#define WALK_OP_COPY 1u  /* READ: this one must copy */
#define WALK_OP_COUNT 2u /* has a row count */

/* One op of the text, ready to be executed symbolically any number of times. */
struct walk_op {
    /* participants: engines of the site that share a dynamic LOOP */
    uint8_t code, flags, n_regions, participants;
    uint16_t rows_trip, pos_trip; /* LOOP: rows_trip is its trip */
    uint32_t object;              /* F, S: buffer, semaphore; LOOP: loop id */
    uint32_t number;              /* pages; increment; LOOP: count */
    uint32_t target;              /* SEM_INC: site; G: group; LOOP: variable */
    uint32_t match;               /* LOOP and END: each other */
    uint32_t stage, index;
    const uint32_t *affine; /* A */
    struct walk_region region[TW_KARGS_REGIONS];
    struct tw_kargs args; /* constants */
};

struct walk_engine {
    uint32_t site, engine, thread;
    uint32_t first, end, pc; /* ops */
    uint32_t depth, loop[TW_MAX_VARS];
    uint32_t vars[TW_MAX_VARS];
    /* of a variable of a dynamic loop, plus 1; 0: its value is in vars */
    uint32_t level[TW_MAX_VARS];
};

#define WALK_BUF_WRITTEN 1u    /* by something else than READs that fill it from constant memory */
#define WALK_BUF_MCAST 2u      /* by a multicast to all siblings of its chip */
#define WALK_BUF_MCAST_PART 4u /* by a multicast to some */
#define WALK_BUF_READ 8u       /* by READs that may be done in place */
#define WALK_BUF_SHARED 16u    /* one storage for all siblings of a chip */
#define WALK_BUF_COPY 32u      /* RESIDENT: an in-place read was refuted */

struct walk_buffer {
    uint8_t *base;
    uint32_t head, level, first_page;
    uint32_t touched; /* the last dynamic loop that used it */
    uint8_t flags;
};

/* Where the content of a page is: in SRAM, or in place in device memory. */
struct walk_page {
    uint8_t *alias; /* NULL: in SRAM */
    uint64_t bytes; /* of the alias */
    struct walk_terms terms;
    uint32_t row, op; /* binding row of a tensor that may be written, or TW_NONE; the READ */
    uint64_t lo, hi;  /* the bytes of the row that are in use, over all iterations */
    uint32_t next;    /* page that is in place in the same row, or TW_NONE */
    bool written;
};

#define WALK_ROW_MAPPED 1u
#define WALK_ROW_COPY 2u /* reads of this instance must copy */
struct walk_row {
    uint8_t *at;
    uint32_t live; /* first page that is in place in it, or TW_NONE */
    uint8_t flags;
};

/* A thread's in-place use of a row in this step: its entries up to the last one, and what they
 * touch, as one interval.
 */
struct walk_use {
    uint32_t last;
    uint64_t lo, hi;
};

struct walk_word {
    uint32_t value, epoch_step;
    uint32_t first, last; /* increments by other threads that no wait has taken yet */
    bool waited;
};
struct walk_event {
    uint32_t before; /* the word's value before this increment */
    uint32_t snapshot, next;
};

/* Sizes, from a pass over the text; upper bounds where exact ones would need the walk itself. */
struct walk_bounds {
    uint64_t ops, pages, entries, patches, events, snapshots, shared_bytes;
};

struct walk {
    struct tw_machine_config config;
    const struct tw_program *program;
    uint32_t n_threads;
    struct walk_bounds bounds;
    struct walk_op *ops;
    struct walk_engine *engines;
    struct walk_buffer *buffers;
    struct walk_page *pages;
    struct walk_row *rows;
    struct walk_use *uses; /* [row][thread] */
    struct walk_word *words;
    struct walk_event *events;
    /* clocks at increments; [thread]: newest one */
    uint32_t *snapshots, *snapshot_thread, *last_snapshot;
    /* [thread][thread]: entries of the other known to be done */
    uint32_t *clocks;
    uint32_t *direct; /* scratch of a wait: [thread] */
    uint8_t **sram;
    uint32_t *n_entries, *n_patches; /* [thread] */
    uint32_t n_events, n_snapshots, n_ops;
    /* open dynamic loops; their number; pages in their FIFOs */
    uint32_t dynamic_depth, dynamic_serial, dynamic_pages;
    uint32_t dynamic_max[TW_MAX_VARS];
    uint32_t marks;       /* assumptions refuted in this pass */
    struct tw_plan *plan; /* NULL while counting */
    struct plan_entry unused_entry;
    struct plan_patch unused_patch;
    struct plan_checks checks;
    struct tw_plan_stats stats;
    struct tw_fault *fault;
};

static inline uint32_t walk_thread(const struct walk *w, uint32_t site) {
    TW_ASSERT(site < w->program->n_sites);
    return (uint32_t)((uint64_t)site * w->n_threads / w->program->n_sites);
}
static inline uint32_t *walk_clock(struct walk *w, uint32_t thread) {
    TW_ASSERT(thread < w->n_threads);
    return &w->clocks[(size_t)thread * w->n_threads];
}

/* plan_text.c */
int tw_walk_count_text(struct walk *w);
int tw_walk_decode_text(struct walk *w);
void tw_walk_find_shared(struct walk *w);
uint32_t tw_walk_storage(const struct walk *w, uint32_t buffer);

/* plan_walk.c: one symbolic step; plan_sync.c: semaphores. */
int tw_walk_step(struct walk *w);
bool tw_walk_sem_blocked(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                         uint32_t *have, uint32_t *need);
int tw_walk_sem_increment(struct walk *w, const struct walk_engine *e, uint32_t semaphore,
                          uint32_t site, uint32_t by);
int tw_walk_sem_wait(struct walk *w, const struct walk_engine *e, const struct walk_op *op);
int tw_walk_check_epochs(struct walk *w);

/* plan_resolve.c. All return 0 or a fault. */
int tw_walk_eval(struct walk *w, const struct walk_engine *e, const uint32_t *affine,
                 uint64_t *value, struct walk_terms *terms);
int tw_walk_resolve(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                    uint32_t n, struct walk_pointer *out);
int tw_walk_place_params(struct walk *w);
int tw_walk_read_in_place(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                          const struct walk_pointer *source, bool *done);
void tw_walk_release_page(struct walk *w, struct walk_page *page);

/* plan_calls.c. e: the engine whose op at its pc it is, or NULL. */
struct plan_entry *tw_walk_emit(struct walk *w, uint32_t site, const struct walk_engine *e,
                                enum plan_kind kind);
int tw_walk_data(struct walk *w, const struct walk_engine *e, const struct walk_op *op);

#endif
