/* SPDX-License-Identifier: Apache-2.0
 *
 * The strict interpreter's state, shared by strict.c (creation and steps), strict_sched.c (the
 * choice of the next engine), strict_sync.c (control, FIFOs, semaphores), strict_data.c (checks and
 * execution of data ops) and explore.c.
 */
#ifndef TW_FIRMWARE_CORE_STRICT_STRICT_H
#define TW_FIRMWARE_CORE_STRICT_STRICT_H

#include "firmware/core/pages.h"
#include "firmware/core/strict/shadow.h"

struct strict_loop {
    uint32_t var, count;
    uint32_t word, index; /* of the first op of the body */
};

struct strict_engine {
    uint32_t stream, site, engine;
    const uint32_t *words;
    uint32_t n_words, at, index; /* next op: its first word and its number */
    uint32_t depth;
    struct strict_loop loop[TW_MAX_VARS];
    uint32_t vars[TW_MAX_VARS];
    uint64_t ops;           /* ops run in this step */
    uint64_t since, ran_at; /* schedulers: when it became runnable, when it ran last */
};

struct strict_buffer {
    uint32_t head, level;      /* FIFO: oldest published page, published pages */
    uint32_t reserved, waited; /* pages that producer and consumer may access now */
    uint32_t first_flag;       /* of its pages in page_written */
    uint8_t owner;             /* SCRATCH: 1 + the engine that accessed it first; 0: none yet */
};

/* Data that an engine has sent to another site and that counts as not arrived until the engine's
 * next flag: the bytes are there, but nobody may use them. The oldest arrives early where there is
 * no room for another. */
#define STRICT_IN_FLIGHT 32u
struct strict_sent {
    uint64_t memory; /* index of its SRAM: strict_class */
    struct tw_extent extent;
    uint64_t offset;
};
struct strict_outbox {
    uint32_t n;
    struct strict_sent sent[STRICT_IN_FLIGHT];
};

struct tw_strict {
    struct tw_machine_config config;
    struct strict_engine *engines;
    struct strict_buffer *buffers;
    uint8_t *page_written;
    uint8_t **sram;                 /* bytes of each memory class of each site: strict_class */
    uint64_t **sram_shadow;         /* and their definedness */
    uint64_t **in_flight;           /* and which have been sent there and not arrived */
    struct strict_outbox *outboxes; /* of each site's engine STORE, which alone sends */
    uint64_t *sram_bytes;
    uint64_t **dram_shadow;     /* of each tensor, all instances; NULL: always defined */
    uint32_t *words;            /* semaphore words: [semaphore][site] */
    uint32_t *trips, *trip_min; /* latched values; the minimum of each */
    uint8_t **inputs;           /* tw_bind_take_inputs */
    struct tw_pages pages;
    uint32_t epoch;
    uint64_t n_page_flags, ops;
    /* schedulers: runnable engines, unordered; index of each engine in `ready`, or TW_NONE */
    uint32_t *ready, *slot;
    uint32_t n_ready;
    bool faulted, check_numbers;
    bool cut; /* config.cancel ended this step before its first op */
};

static inline uint32_t strict_n_engines(const struct tw_strict *s) {
    return s->config.program->n_sites * TW_ENGINE_COUNT;
}

/* Returns the index of a buffer's memory in sram, sram_shadow and sram_bytes. */
static inline uint64_t strict_class(const struct tw_buffer *b) {
    return (uint64_t)b->site * TW_MEM_CLASSES + b->mem_class;
}

static inline uint32_t *strict_word(struct tw_strict *s, uint32_t semaphore, uint32_t site) {
    TW_ASSERT(semaphore < s->config.program->n_semaphores && site < s->config.program->n_sites);
    return &s->words[(uint64_t)semaphore * s->config.program->n_sites + site];
}

/* Decodes the engine's next op; the text was checked when the machine was made. */
static inline void strict_fetch(const struct strict_engine *e, struct tw_op *op) {
    bool decodes = tw_op_decode(e->words, e->n_words, e->at, op);
    TW_ASSERT(decodes);
    if (!decodes) {
        memset(op, 0, sizeof *op);
    }
}

/* Invariant of a FIFO between ops: the pages published and those that may be written do not overlap
 * in the ring, and only published pages can have been waited for. */
static inline bool strict_fifo_sound(const struct strict_buffer *f, const struct tw_buffer *b) {
    return f->head < b->pages && (uint64_t)f->level + f->reserved <= b->pages &&
           f->waited <= f->level;
}

/* strict.c. tw_strict_begin resets the state for a step. tw_strict_execute runs one op of a
 * runnable engine and returns it in *op. tw_strict_end checks, when no engine can run, for a
 * deadlock and for pages left in FIFOs. Errors: FAULT. */
void tw_strict_begin(struct tw_strict *s);
int tw_strict_execute(struct tw_strict *s, struct strict_engine *e, struct tw_op *op,
                      struct tw_fault *fault);
int tw_strict_end(struct tw_strict *s, struct tw_fault *fault);

/* strict_sched.c: runs engines until none is runnable, or one faults. */
int tw_strict_run(struct tw_strict *s, enum tw_scheduler scheduler, uint64_t seed,
                  struct tw_fault *fault);

/* strict_sync.c. tw_strict_blocked returns true if the engine's next op would block, and what it
 * waits for in *why. tw_strict_sync executes control and synchronisation ops. */
struct strict_block {
    uint32_t object;
    uint64_t have, need;
};
bool tw_strict_blocked(struct tw_strict *s, const struct strict_engine *e,
                       struct strict_block *why);
int tw_strict_sync(struct tw_strict *s, struct strict_engine *e, const struct tw_op *op,
                   struct tw_fault *fault);

static inline bool strict_runnable(struct tw_strict *s, const struct strict_engine *e) {
    struct strict_block why;
    return e->at < e->n_words && !tw_strict_blocked(s, e, &why);
}

/* strict_data.c: checks and executes one data op. Errors: FAULT. tw_strict_arrive: what the engine
 * has sent has arrived. */
void tw_strict_arrive(struct tw_strict *s, const struct strict_engine *e);
int tw_strict_data(struct tw_strict *s, const struct strict_engine *e, const struct tw_op *op,
                   struct tw_fault *fault);

#endif
