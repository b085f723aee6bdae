/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the plan builder: one symbolic step of all engines. plan_text.c decodes the text
 * once, plan_walk.c advances the engines, plan_sync.c tracks semaphores and vector clocks,
 * plan_resolve.c turns operands into pointers (and decides on in-place reads), plan_calls.c emits
 * calls, plan.c owns memory and the passes.
 *
 * The walk runs several times over the same text: counting passes until no assumption about
 * in-place reads is refuted (a refuted one is marked and stays marked), then one that stores the
 * plan. All functions that return int return 0 or the code of the fault in w->fault.
 */
#ifndef TW_FIRMWARE_CORE_PLAN_PLAN_WALK_H
#define TW_FIRMWARE_CORE_PLAN_PLAN_WALK_H

#include "firmware/core/machine_arena.h"
#include "firmware/core/plan/plan.h"

#define WALK_TERMS 4u

/* Terms of a number that is known except for the iterations of open dynamic loops. */
struct walk_terms {
    uint32_t n;
    uint32_t level[WALK_TERMS];
    uint64_t step[WALK_TERMS];
};
/* The page in which an address is: the one that an element of a latched table names. */
struct walk_page_of {
    bool any; /* false: the address is in no such page */
    uint32_t table;
    uint64_t element, page_bytes;
    struct walk_terms terms; /* of the element */
};
/* An address that is known except for the iterations of open dynamic loops, and for the page. Of a
 * cache write `page` says where its page numbers are, and is not part of the address. */
struct walk_pointer {
    uint8_t *at;
    struct walk_terms terms;
    struct walk_page_of page;
};

/* One region of an op. */
struct walk_region {
    uint32_t id;
    char kind;
    bool reads;
    bool paged;
    uint32_t table;
    const uint32_t *offset, *instance, *element; /* encoded affine numbers */
    uint64_t span;                               /* bytes, at the maximum row count */
};

#define WALK_OP_COPY 1u  /* READ: must be executed as a copy */
#define WALK_OP_COUNT 2u /* has a row count */

/* One op of the text, decoded once and executed symbolically any number of times. */
struct walk_op {
    /* participants: engines of the site that share a dynamic LOOP */
    uint8_t code, flags, n_regions, participants;
    uint16_t rows_trip, pos_trip; /* LOOP: rows_trip is its trip */
    uint32_t object;              /* F, S: buffer, semaphore; LOOP: loop id */
    uint32_t number;              /* pages; increment; LOOP: count */
    uint32_t target;              /* SEM_INC: site; G: group; LOOP: variable */
    uint32_t match;               /* LOOP and END: index of the other one */
    uint32_t stage, index;
    const uint32_t *affine; /* A */
    struct walk_region region[TW_KARGS_REGIONS];
    struct tw_kargs args; /* constants */
};

/* READ: its rows have no gaps, so one pointer can stand for all of them. */
static inline bool walk_is_dense(const struct walk_op *op) {
    struct tw_args_read v = tw_args_read(&op->args);
    return v.rows == 1 || v.source_stride == v.destination_stride;
}

struct walk_engine {
    uint32_t site, engine, thread;
    uint32_t first, end, pc; /* ops */
    uint32_t depth, loop[TW_MAX_VARS];
    uint32_t vars[TW_MAX_VARS];
    /* nesting level, plus 1, of a variable of an open dynamic loop; 0: its value is in vars */
    uint32_t level[TW_MAX_VARS];
};

#define WALK_BUF_WRITTEN 1u    /* written, other than by READs that fill it from constant memory */
#define WALK_BUF_MCAST 2u      /* written by a multicast to all siblings of its chip */
#define WALK_BUF_MCAST_PART 4u /* written by a multicast to some siblings only */
#define WALK_BUF_READ 8u       /* written by READs that may be done in place */
#define WALK_BUF_SHARED 16u    /* one storage for all siblings of a chip */
#define WALK_BUF_COPY 32u      /* RESIDENT: an in-place read was refuted */

struct walk_buffer {
    uint8_t *base;
    uint32_t head, level, first_page;
    uint32_t touched; /* serial number of the last dynamic loop that used it */
    uint8_t flags;
};

/* Where the content of a page is: in SRAM, or in place in device memory. */
struct walk_page {
    uint8_t *alias; /* NULL: in SRAM */
    uint64_t bytes; /* of the alias */
    struct walk_terms terms;
    struct walk_page_of page;
    uint32_t row, op; /* binding row of a tensor that may be written, or TW_NONE; the READ */
    /* bytes of the row that are in use, over all iterations (struct bytes in plan_resolve.c) */
    uint64_t lo, hi;
    uint32_t next; /* next page that is in place in the same row, or TW_NONE */
    bool written;
};

#define WALK_ROW_MAPPED 1u
#define WALK_ROW_COPY 2u /* reads of this instance must copy */
struct walk_row {
    uint8_t *at;
    uint32_t live; /* first page that is in place in it, or TW_NONE */
    uint8_t flags;
};

/* A thread's in-place uses of a row in this step: its entries up to the last one, and the bytes
 * they touch, as one interval. */
struct walk_use {
    uint32_t last;
    uint64_t lo, hi;
};

/* The state of a semaphore's word on one site. */
struct walk_word {
    uint32_t value, epoch_step;
    uint32_t first, last; /* increments by other threads that no wait has taken yet */
    bool waited;
};
/* An increment by another thread. */
struct walk_event {
    uint32_t before; /* the word's value before this increment */
    uint32_t snapshot, next;
};

/* Sizes determined by a pass over the text; upper bounds where exact numbers would require the walk
 * itself. */
struct walk_bounds {
    uint64_t ops, pages, entries, patches, events, snapshots, shared_bytes;
    uint32_t page_uses;
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
    /* clocks at increments; snapshot_thread: the incrementing thread; last_snapshot [thread]: its
     * newest */
    uint32_t *snapshots, *snapshot_thread, *last_snapshot;
    /* [thread][thread]: entries of the other thread that are known to be complete */
    uint32_t *clocks;
    uint32_t *direct;                /* [thread], scratch of a wait */
    uint8_t **sram;                  /* by site and memory class */
    uint8_t **inputs;                /* the plan's */
    uint32_t *n_entries, *n_patches; /* [thread] */
    uint32_t n_events, n_snapshots, n_ops;
    /* nesting of open dynamic loops; their serial number; pages in FIFOs */
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

static inline bool walk_is_cache_write(const struct walk_op *op) {
    return op->code == TW_OP_KEY_WRITE || op->code == TW_OP_VALUE_WRITE;
}

/* Returns the host thread that executes a site, and the vector clock of a thread. */
static inline uint32_t walk_thread(const struct walk *w, uint32_t site) {
    TW_ASSERT(site < w->program->n_sites);
    return (uint32_t)((uint64_t)site * w->n_threads / w->program->n_sites);
}
static inline uint32_t *walk_clock(struct walk *w, uint32_t thread) {
    TW_ASSERT(thread < w->n_threads);
    return &w->clocks[(size_t)thread * w->n_threads];
}

/* plan_text.c: tw_walk_count_text() fills w->bounds; tw_walk_decode_text() fills w->ops and the
 * engines; tw_walk_find_shared() decides which siblings share one storage, and tw_walk_storage()
 * returns the buffer whose storage a buffer uses. */
int tw_walk_count_text(struct walk *w);
int tw_walk_decode_text(struct walk *w);
void tw_walk_find_shared(struct walk *w);
uint32_t tw_walk_storage(const struct walk *w, uint32_t buffer);

/* plan_walk.c: walks one symbolic step. plan_sync.c: semaphores. tw_walk_sem_blocked() returns true
 * while the wait is not satisfied, and its numbers for a message. */
int tw_walk_step(struct walk *w);
bool tw_walk_sem_blocked(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                         uint32_t *have, uint32_t *need);
int tw_walk_sem_increment(struct walk *w, const struct walk_engine *e, uint32_t semaphore,
                          uint32_t site, uint32_t by);
int tw_walk_sem_wait(struct walk *w, const struct walk_engine *e, const struct walk_op *op);
int tw_walk_check_epochs(struct walk *w);

/* plan_resolve.c: tw_walk_eval() evaluates an encoded affine number; tw_walk_resolve() turns region
 * n of an op into a pointer; tw_walk_place_pinned() finds the pages of Params and State in SRAM;
 * tw_walk_read_in_place() sets *done if the READ need not be executed; tw_walk_release_page()
 * discards the content of a popped page. */
int tw_walk_eval(struct walk *w, const struct walk_engine *e, const uint32_t *affine,
                 uint64_t *value, struct walk_terms *terms);
int tw_walk_resolve(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                    uint32_t n, struct walk_pointer *out);
int tw_walk_place_pinned(struct walk *w);
int tw_walk_read_in_place(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                          const struct walk_pointer *source, bool *done);
void tw_walk_release_page(struct walk *w, struct walk_page *page);

/* plan_calls.c: tw_walk_emit() appends an entry to the site's thread; `e` is the engine whose
 * current op it comes from, or NULL. tw_walk_data() emits a data op. */
struct plan_entry *tw_walk_emit(struct walk *w, uint32_t site, const struct walk_engine *e,
                                enum plan_kind kind);
int tw_walk_data(struct walk *w, const struct walk_engine *e, const struct walk_op *op);

#endif
