/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the verifier: the state of one check, and the functions of each part.
 * Everything named tw_vf_* is private to loader/verify. verify.c explains how the parts work
 * together. Functions that return int return 0, or VERIFY with the message set, or NOMEM.
 */
#ifndef TW_LOADER_VERIFY_VERIFY_INTERNAL_H
#define TW_LOADER_VERIFY_VERIFY_INTERNAL_H

#include "loader/base/compiler.h"
#include "loader/verify/verify.h"
#include "tilewright/footprint.h"
#include "tilewright/range.h"

#define TW_VF_MAX_LOOPS (TW_MAX_VARS - 1u)
/* Maximum iterations of a loop or a nest of loops, rows, and increments of a word in one step. */
#define TW_VF_MAX_COUNT 0x7FFFFFFFu
/* Words of all semaphores: so many, and so many for each word of the streams. Each needs an
 * increment and a wait to be of use, so compiled programs have fewer than one for each word. */
#define TW_VF_WORDS_FREE (1u << 17)
#define TW_VF_WORDS_PER_STREAM_WORD 4u
#define TW_VF_MAX_WORDS_OF_SEMAPHORES (1u << 24)
#define TW_VF_MAX_SRAM ((uint64_t)1 << 40) /* bytes of a memory class */
#define TW_VF_MAX_REGIONS 5u
/* Heads of all segments of an attention state, so that ATTN_INIT can make it. */
#define TW_VF_MAX_STATE_HEADS (1u << 16)

/* The current place: an op of a stream, or (object != NULL) a record of a table. */
struct tw_vf_place {
    const char *object;
    uint32_t id;
    const char *name;
    uint32_t site, engine, op, code, stage;
};

/* Something that an engine counts while its loops stay rolled: pages moved by one side of a FIFO,
 * or rendezvous of a section. `count` is its value with every open loop in its first iteration.
 * `mark`: depth of the innermost open loop whose log holds the value at that loop's start. */
struct tw_vf_counter {
    uint64_t count;
    uint32_t level; /* FIFO: pages waited for or reserved; section: 1 if seen in this stream */
    uint32_t mark;
};
/* A counter's members before its first change inside a loop; item: which counter. */
struct tw_vf_saved {
    uint32_t item, mark, level, unused;
    uint64_t count;
};
struct tw_vf_log {
    struct tw_vf_saved *entry;
    size_t n, cap;
};

struct tw_vf_loop {
    uint32_t var, trip, max, id;
    uint64_t iterations; /* of its body in a step, all enclosing loops at their maximum */
    /* lengths of fifo_log, rendezvous_log and waits when the loop was opened */
    size_t fifo_base, rendezvous_base, wait_base;
};

/* A loop over a trip, kept until the engines of its site are compared. */
struct tw_vf_dynamic {
    uint32_t id, depth;
    uint32_t trip[TW_VF_MAX_LOOPS], max[TW_VF_MAX_LOOPS]; /* the nest, outermost first */
    struct tw_vf_place place;
};

/* Pages that one side of a FIFO moves in an iteration of a dynamic loop; the other side must repeat
 * the list. */
struct tw_vf_move {
    uint32_t loop, next;
    uint64_t pages;
};

struct tw_vf_buffer {
    struct tw_vf_counter side[2]; /* FIFO: producer, consumer */
    uint32_t first_move, last_move;
    uint8_t user; /* SCRATCH: 1 + the engine that uses it, 0 before the first use */
    /* read by MATMUL as weights; filled by a READ that is not 64-aligned */
    uint8_t is_weight, is_unaligned;
    struct tw_vf_place unaligned;
};

enum tw_vf_sem_use { TW_VF_PLAIN = 0, TW_VF_LOCAL = 1, TW_VF_GATHER = 2, TW_VF_RELEASE = 3 };
struct tw_vf_sem {
    uint32_t first_word; /* in `words`: one for each site of its group, in their order */
    uint32_t section;    /* the section whose rendezvous it serves; TW_NONE if PLAIN */
    enum tw_vf_sem_use use;
    uint64_t sum; /* of all increments, to keep the words from wrapping */
};

struct tw_vf_wait {
    struct tw_affine threshold;
    uint64_t max; /* at epoch 0 */
    uint32_t sem;
    uint32_t unit; /* increments per pass (tw_vf_rendezvous_unit); 0 for PLAIN semaphores */
    struct tw_vf_place place;
};

struct tw_vf_section {
    struct tw_vf_counter passes; /* passes by the stream being walked */
    uint64_t body;               /* passes in an iteration of the loop being closed */
    uint64_t passes_per_step;    /* 0: no stream has closed the section yet */
    uint64_t arrivals;           /* sent to the root by the site being walked */
    uint32_t root;
};

/* The operands of a data op, by kind. */
struct tw_vf_data {
    uint32_t n_regions, n_imm, n_counts;
    const struct tw_operand *region[TW_VF_MAX_REGIONS];
    uint32_t region_demand[TW_VF_MAX_REGIONS], imm_demand[TW_MAX_OPERANDS]; /* enum tw_demand */
    const struct tw_buffer *buffer[TW_VF_MAX_REGIONS];                      /* R W M */
    const struct tw_tensor *tensor[TW_VF_MAX_REGIONS];                      /* T U */
    struct tw_extent extent[TW_VF_MAX_REGIONS];
    uint64_t lo[TW_VF_MAX_REGIONS], hi[TW_VF_MAX_REGIONS]; /* smallest and largest offset */
    uint32_t imm[TW_MAX_OPERANDS];
    const struct tw_operand *count[2];
    uint64_t rows;
};

struct tw_verifier {
    const struct tw_program *program;
    const struct tw_interrupt *interrupt; /* or NULL */
    struct tw_verify_report *report, own_report;
    tw_error *err;
    struct tw_vf_place place;
    /* per object */
    struct tw_vf_buffer *buffers;
    struct tw_vf_sem *sems;
    struct tw_vf_section *sections;
    uint64_t *words;
    uint8_t *written;  /* tensor: a WRITE names it */
    uint8_t *in_sram;  /* tensor: a State that lives in SRAM */
    uint32_t *windows; /* buffers that hold windows of State; tw_vf_tables sorts them */
    uint32_t n_words, n_windows;
    /* positions that the longest key cache has, or the longest row of a table of its pages; key
     * blocks that attention reads, and the op that reads the last */
    uint64_t key_positions, key_blocks;
    struct tw_vf_place key_place;
    uint32_t n_closing, n_active_sites;
    /* the stream being walked */
    struct tw_op op;
    struct tw_vf_loop loop[TW_VF_MAX_LOOPS];
    uint32_t n_loops, n_dynamic_open;
    uint32_t var_count[TW_MAX_VARS]; /* maximum of each open loop, 0: not open */
    uint32_t site_engines;           /* engines of the site that have ops */
    struct tw_vf_log fifo_log, rendezvous_log;
    struct tw_vf_dynamic *dynamic[TW_ENGINE_COUNT];
    size_t n_dynamic[TW_ENGINE_COUNT], cap_dynamic[TW_ENGINE_COUNT];
    struct tw_vf_move *moves;
    size_t n_moves, cap_moves;
    struct tw_vf_wait *waits;
    size_t n_waits, cap_waits;
    /* sections that this stream has closed; sections for which this site has sent arrivals */
    uint32_t *seen, *arrived;
    size_t n_seen, n_arrived;
    int rendezvous_state; /* enum in verify_rendezvous.c; 0: not inside a rendezvous */
    uint32_t rendezvous_section;
    int closed; /* the last op other than END completed the last section's rendezvous */
};

/* verify.c. Fills the error with "rule N name: program place: ..." and remembers the rule;
 * tw_vf_fail's value is TW_E_VERIFY (tilewright/error.h). */
void tw_vf_error(struct tw_verifier *v, enum tw_rule rule, const char *format, ...) TW_PRINTF(3, 4);
#define tw_vf_fail(v, rule, ...) (tw_vf_error((v), (rule), __VA_ARGS__), TW_E_VERIFY)
void tw_vf_at_object(struct tw_verifier *v, const char *object, uint32_t id, uint32_t name);
static inline void tw_vf_count(struct tw_verifier *v, enum tw_rule rule) {
    v->report->checked[rule]++;
}
/* Makes room for item n of a growing array, as tw_grow does. Errors: NOMEM. */
int tw_vf_grow(struct tw_verifier *v, void *items, size_t *cap, size_t n, size_t item_bytes);
/* Call it before a counter changes: saves its value at the first change inside the innermost open
 * loop. */
int tw_vf_touch(struct tw_verifier *v, struct tw_vf_log *log, struct tw_vf_counter *counter,
                uint32_t item);
uint32_t tw_vf_stream_words(const struct tw_verifier *v, uint32_t site, unsigned engine);

/* verify_tables.c: rules 1, 4, 5, 9, 11, 13, 15 and 16 on the tables alone. */
int tw_vf_tables(struct tw_verifier *v);
/* Before the verifier's own arrays exist: strings, counts, pointers. */
int tw_vf_header(struct tw_verifier *v);

/* verify_streams.c: walks all streams once. */
int tw_vf_streams(struct tw_verifier *v);

/* verify_operands.c: ids, loop variables and types of an op's operands (rules 1, 2, 10, 11). */
int tw_vf_operands(struct tw_verifier *v, struct tw_vf_data *d);
int tw_vf_types(struct tw_verifier *v, const struct tw_vf_data *d);
const char *tw_vf_region_name(uint32_t code, uint32_t n);

/* verify_regions.c: extents of a data op inside buffers and tensors (rules 5, 7, 8, 9, 10, 13),
 * and then whether they are apart. */
int tw_vf_regions(struct tw_verifier *v, struct tw_vf_data *d);
/* Returns the end of a region for messages: exclusive, saturated. */
unsigned long long tw_vf_end_of(const struct tw_vf_data *d, uint32_t n);
int tw_vf_regions_finish(struct tw_verifier *v);
/* Computes the minimum and maximum over the open loops, with epoch 0; [0, 2^64) if it can wrap. */
void tw_vf_range(const struct tw_verifier *v, const struct tw_affine *a, uint64_t *lo,
                 uint64_t *hi);

/* verify_apart.c: the regions of an op, which are inside of what they are of (rule 17). */
int tw_vf_apart(struct tw_verifier *v, const struct tw_vf_data *d);

/* verify_fifo.c: rules 5 and 6. */
int tw_vf_fifo_op(struct tw_verifier *v);
int tw_vf_fifo_end_loop(struct tw_verifier *v, const struct tw_vf_loop *loop);
int tw_vf_fifo_finish(struct tw_verifier *v);

/* verify_sync.c: rules 12 (loops), 14 (semaphores). */
int tw_vf_dynamic_loop(struct tw_verifier *v, uint32_t engine);
int tw_vf_dynamic_compare(struct tw_verifier *v);
int tw_vf_sync_op(struct tw_verifier *v);
int tw_vf_mcast_group(struct tw_verifier *v, uint32_t group);
int tw_vf_sync_finish(struct tw_verifier *v);
uint64_t *tw_vf_word(const struct tw_verifier *v, uint32_t sem, uint32_t site);

/* verify_rendezvous.c: rules 15 (rendezvous) and 16 (its place at the end of each stream). */
int tw_vf_rendezvous_op(struct tw_verifier *v, uint32_t sem, const struct tw_affine *threshold);
int tw_vf_rendezvous_end_loop(struct tw_verifier *v, const struct tw_vf_loop *loop);
int tw_vf_rendezvous_end_stream(struct tw_verifier *v);
int tw_vf_rendezvous_end_site(struct tw_verifier *v);
int tw_vf_rendezvous_finish(struct tw_verifier *v);
uint32_t tw_vf_rendezvous_unit(const struct tw_verifier *v, uint32_t sem);

#endif
