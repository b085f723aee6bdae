/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files that make random programs share: order_random.c (sections, the program),
 * order_random_work.c (transactions), order_random_moves.c (movement),
 * order_random_math.c (kernels).
 */
#ifndef TW_TESTS_SUPPORT_ORDER_RANDOM_INTERNAL_H
#define TW_TESTS_SUPPORT_ORDER_RANDOM_INTERNAL_H

#include "tests/support/order_device.h"
#include "tests/support/order_random.h"
#include "tests/support/random_model.h"

enum { T_IN, T_OUT, T_N, T_STATE, T_TABLE, T_IDS, T_KEPT, T_RING, T_PAGES };
enum { X0, X1, SCRATCH, WIDE, QUANTS, QUANTS_K, LISTS, KV, N_PLAIN };
/* What handshakes order: x0, x1, the State in SRAM, the keys and values of a site; the caches in
 * DRAM, which all sites share, in the place of site 0. */
enum { TOUCH_STATE = 2, TOUCH_KV, TOUCH_CACHE, N_TOUCHES };
/* Trips over T_N: `trip` of the program is 0 or TRIP_HALF, at most 2. */
enum { TRIP_HALF = 1, TRIP_POS, TRIP_SOME, POS_MAX = 66 };
enum { HEAD_DIM = 2, CACHE_HEADS = 2, N_WEIGHTS = 2 };
enum { WIDE_BYTES = 1024, KV_BYTES = 2048 };
/* In a class of their own: on each site, a window of T_IN and one of the State T_KEPT. Half of the
 * other sets are in a third class. */
enum { CLASS_PINNED = 1, CLASS_OTHER = 2, CLASS_BYTES = 16384 };
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

/* A Param of two panels that stays in SRAM: whole, or one part of its columns. */
struct weights {
    uint32_t dtype, tensor, buffer, stride, part; /* buffer: of site 0 */
    bool whole;
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
    uint32_t window, kept; /* buffers of site 0; those of other sites follow */
    struct touch touch[N_TOUCHES][PB_SITES];
    /* caches: keys, values, the same in pages of a table */
    uint32_t trip, cache_dtype, key_blocks, caches[4];
    bool has_some; /* the trip TRIP_SOME is there */
    struct weights weights[N_WEIGHTS];
    uint32_t first_stage, rendezvous;
    uint64_t first_byte; /* of SRAM after what it keeps */
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
void order_send_loop(struct gen *g);
void order_copy(struct gen *g);
void order_kernel(struct gen *g);
void order_keys_load(struct gen *g);
void order_attention(struct gen *g);
void order_cache_write(struct gen *g);

/* Tools of transactions. The number of a flag of the section, a new one if there is one; a LOOP
 * over the program's trip (loop: its id) or a number; a wait of a loop whose iterations overlap,
 * mostly what the handshake needs; what an engine does with a page; a row of a page of the ring,
 * mostly of one that an element of the table names. */
uint32_t order_new_flag(struct gen *g);
void order_loop_begin(struct gen *g, uint32_t site, uint32_t engine, uint32_t loop, uint32_t count);
void order_overlap_wait(struct gen *g, uint32_t semaphore, uint32_t base, uint32_t each,
                        uint32_t total);
void order_consume(struct gen *g, uint32_t from);
struct tw_operand order_in_ring(struct gen *g);

/* Flags from the last ones that accessed what the touch is of to the stream. */
void order_before_access(struct gen *g, uint32_t touch, uint32_t site, uint32_t stream, bool write);
/* MATH makes the page `to` from the page `from`, in one of many ways. */
void order_math(struct gen *g, uint32_t from, uint32_t to);
/* Tensors, buffers that keep some of them in SRAM, buffers of a section, for order_math. */
void order_math_tensors(struct gen *g);
void order_math_pinned(struct gen *g);
void order_math_buffers(struct gen *g);

#endif
