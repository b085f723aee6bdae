/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files that make random programs share: order_random.c (sections, the program),
 * order_random_work.c (transactions).
 */
#ifndef TW_TESTS_SUPPORT_ORDER_RANDOM_INTERNAL_H
#define TW_TESTS_SUPPORT_ORDER_RANDOM_INTERNAL_H

#include "tests/support/order_device.h"
#include "tests/support/order_random.h"
#include "tests/support/random_model.h"

enum { T_IN, T_OUT, T_N, T_STATE, T_TABLE, T_IDS, T_KEPT, T_RING, T_PAGES };
enum { X0, X1, SCRATCH, N_PLAIN };
/* In a class of their own: on each site, a window of T_IN and one of the State T_KEPT. Half of the
 * other sets are in a third class. */
enum { CLASS_PINNED = 1, CLASS_OTHER = 2, CLASS_BYTES = 4096 };
enum { RING_SLOTS = 5 }; /* elements of the table of the ring's pages, which have two rows */
enum { MAX_FIFOS = 4, MAX_BLOCKS = 64, PAGE = 64, OUT_ROWS = 6, MAX_FLAGS = 4, MAX_SETS = 32 };
enum { V_LOOP = 1, V_PART, V_REPEAT }; /* loop variables */

struct fifo {
    uint32_t set, pending;
    enum tw_engine from, to;
    uint32_t pages;
};

/* Streams that accessed a resident buffer since its last write was synchronised with all. */
struct touch {
    bool written, read;
    uint32_t writer, reader; /* streams */
};

struct gen {
    struct pb *b;
    uint64_t seed;
    uint32_t sites, section, n_fifos, n_flags, next_loop, depth;
    struct fifo before; /* one of the previous section */
    bool active[PB_SITES * TW_ENGINE_COUNT];
    uint32_t care;   /* of 16: how often a required handshake is present */
    uint32_t repeat; /* iterations of the section */
    /* sets of buffers, as bits, whose content has as many rows as the trip says */
    uint32_t by_rows;
    uint32_t plain[N_PLAIN];
    struct fifo fifos[MAX_FIFOS];
    /* flags of a loop whose iterations overlap: data is there, there is room; once in a section */
    uint32_t valid, ready, credit;
    bool streamed;
    uint32_t flags[MAX_FLAGS], flag_count[MAX_FLAGS][PB_SITES];
    uint32_t window, kept;           /* buffers of site 0; those of other sites follow */
    struct touch touch[3][PB_SITES]; /* X0, X1, the State in SRAM */
    uint32_t first_stage, rendezvous;
    uint32_t blocks[PB_SITES * TW_ENGINE_COUNT][MAX_BLOCKS], n_blocks[PB_SITES * TW_ENGINE_COUNT];
    struct order_small *out;
};

static inline uint32_t below(struct gen *g, uint32_t n) {
    return random_below(&g->seed, n);
}

static inline void go(struct gen *g, uint32_t site, uint32_t engine) {
    g->b->site = site;
    g->b->engine = engine;
    g->b->stage = g->first_stage + site * TW_ENGINE_COUNT + engine;
}

/* A place where blocks of this stream may be exchanged. */
static inline void block(struct gen *g, uint32_t site, uint32_t engine) {
    uint32_t s = site * TW_ENGINE_COUNT + engine;
    go(g, site, engine);
    if (g->depth == 0 && g->n_blocks[s] < MAX_BLOCKS) {
        g->blocks[s][g->n_blocks[s]++] = pb_stream(g->b, site, engine)->n_words;
    }
}

static inline bool is_active(const struct gen *g, uint32_t site, uint32_t engine) {
    return g->active[site * TW_ENGINE_COUNT + engine];
}

static inline uint32_t id(const struct gen *g, uint32_t set) {
    return set + g->b->site;
}

/* `base` in the first iteration and step, n more in each. */
struct tw_affine order_threshold(const struct gen *g, uint64_t base, uint32_t n);

/* Transactions: each adds the ops of a handshake or an access to the engines, or nothing if it is
 * not possible. */
void order_fifo_transaction(struct gen *g);
void order_drain(struct gen *g);
void order_loop_transaction(struct gen *g);
void order_resident_write(struct gen *g);
void order_resident_read(struct gen *g);
void order_multicast(struct gen *g);
void order_pinned(struct gen *g);
void order_send(struct gen *g);
void order_dram_copy(struct gen *g);
void order_flag_loop(struct gen *g);
void order_nested_loops(struct gen *g);
void order_overlapping_loop(struct gen *g);

#endif
