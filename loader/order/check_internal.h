/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the certificate's checker: check.c (turns, loops), check_sync.c (FIFOs),
 * check_words.c (semaphores), check_loops.c (loops with flags), check_clocks.c (what engines know
 * of each other), check_memory.c (accesses, written bytes), check_races.c (conflicts),
 * check_lanes.c (the logs that these search), check_overlap.c (the memory map), check_bindings.c
 * and check_budget.c (rules 28 and 29). Everything named tw_ck_* is private to them.
 */
#ifndef TW_LOADER_ORDER_CHECK_INTERNAL_H
#define TW_LOADER_ORDER_CHECK_INTERNAL_H

#include "loader/base/assert.h"
#include "loader/base/compiler.h"
#include "loader/order/certificate.h"
#include "tilewright/footprint.h"

#include <stdbool.h>

#define TW_CK_MAX_DEPTH TW_MAX_VARS
/* max. groups to which a stream may have data in flight; a sender has one for each chip */
#define TW_CK_MAX_IN_FLIGHT 32u

/* What checking costs and a budget limits (check_budget.c). */
enum tw_ck_resource {
    TW_CK_COMPARISONS, /* of accesses and of written bytes */
    TW_CK_CLOCK_WORK,  /* what engines know of each other: numbers copied or compared */
    TW_CK_CLOCK_BYTES, /* and the memory of it */
    TW_CK_LOG_BYTES,   /* accesses since the last rendezvous */
    TW_CK_SPAN_BYTES,  /* written bytes */
    TW_CK_TABLE_BYTES, /* FIFO pages and semaphore words that ops touch */
    TW_CK_RESOURCES
};

/* Rows of row_bytes at lo, lo + stride, ...; their number is that of `trip`, or the constant `max`.
 * One row: the bytes [lo, lo + row_bytes). */
struct tw_ck_rect {
    uint64_t lo, row_bytes, stride;
    uint32_t trip, max; /* number of rows: a trip and its maximum, or TW_NONE and the number */
    bool exact;         /* every byte is accessed, not just some of them */
};

/* In the group of an access: it is of one site. */
#define TW_CK_TO_SITE 0x80000000u

/* An access of a stream. Ops have absolute numbers (check_clocks.c), so that those of earlier
 * iterations can be told apart. */
struct tw_ck_access {
    int32_t over; /* number of its stream's ops that are over when it is */
    /* a multicast's: the siblings on these sites; TW_CK_TO_SITE | site: the one on that site, by a
     * send; TW_NONE: what the stream names on its own */
    uint32_t group;
    struct tw_ck_rect rect;
    uint64_t instance; /* tensors: a hash of the instance's affine number */
    bool constant;     /* the instance has no terms */
    bool write;
    uint32_t at; /* its op's index in the stream */
    /* columns of the table whose elements name its pages, over all iterations: first to last; no
     * table: TW_NONE */
    uint32_t table, first, last;
};
/* Accesses of one kind of one stream, by ascending number; all of them are in columns [lo, hi). */
struct tw_ck_lane {
    uint32_t stream, place; /* place: index in `order`, or TW_NONE */
    struct tw_ck_access *items;
    size_t n, cap;
    uint64_t lo, hi;
};
/* A lane's entry in `order`. */
struct tw_ck_place {
    uint64_t lo, hi;
    uint32_t lane;
};
/* All accesses of one kind to an object since the last rendezvous. */
struct tw_ck_lanes {
    struct tw_ck_lane *items;
    size_t n, cap;
    /* Columns are bytes of a row of this length; 0: rows of several kinds, or none: bytes. */
    uint64_t stride;
    /* lanes by ascending `lo`; `odd` lists those that are not in it, or whose `lo` is lower now
     * than their entry says */
    struct tw_ck_place *order;
    uint32_t *odd;
    size_t n_order, cap_order, n_odd, cap_odd;
    uint64_t longest; /* max. hi - lo of `order` */
    /* hash table of lanes by stream, open addressing; n_table is a power of two, or 0 while the
     * lanes are few enough to search */
    uint32_t *table;
    size_t n_table;
    /* the demand (struct tw_ck_demand) that all these accesses are over, by lane; `demand` is its
     * id, 0 until it is first needed */
    uint32_t *slots;
    int32_t *over;
    size_t cap_slots, cap_over;
    uint64_t demand;
};
/* The accesses of a tensor, a buffer, or all buffers of a set of siblings. Those of a set are of
 * the buffer on the stream's own site, but for multicasts and sends. */
enum { TW_CK_READS, TW_CK_WRITES, TW_CK_MULTICASTS, TW_CK_KINDS };
struct tw_ck_log {
    bool by_site; /* not a tensor */
    struct tw_ck_lanes by[TW_CK_KINDS];
};
/* Memory of logs: all of it is free again when a rendezvous has ordered what they hold. */
struct tw_ck_block {
    struct tw_ck_block *next;
    size_t bytes;
};
struct tw_ck_arena {
    struct tw_ck_block *first, *now; /* now: of which `used` bytes are taken */
    size_t used;
};

struct tw_ck_stream {
    uint32_t words_at, at, n_ops; /* next word; next op */
    /* number after the last op that is not a semaphore op: its index plus the offset then */
    int32_t last_data;
    uint32_t section; /* section of the last op, TW_NONE before the first */
    uint32_t open_from[TW_CK_MAX_DEPTH], depth; /* op index after each open LOOP */
    uint32_t loop_words[TW_CK_MAX_DEPTH];
    uint32_t loop_var[TW_CK_MAX_DEPTH], loop_count[TW_CK_MAX_DEPTH];
    /* op index after the outermost open loop that does not end in a rendezvous, or TW_NONE */
    uint32_t inner_from;
    /* groups that a multicast went to and whose flag is not raised yet */
    uint32_t in_flight[TW_CK_MAX_IN_FLIGHT], n_in_flight;
    bool sent; /* data to other sites since the last increment */
};

struct tw_ck_fifo {
    uint32_t level, head; /* published pages; ring index of the oldest */
    uint32_t first_page;  /* in `pages` and `page_clocks` */
    uint32_t before;      /* scratch: level where a loop began, TW_NONE outside its check */
};

/* Bytes that are written and may be read: columns [lo, hi) of rows of that stride and number. */
struct tw_ck_span {
    uint64_t lo, hi, stride;
    uint32_t trip, max;
    uint32_t group; /* by a multicast: on these sites; else TW_NONE */
};
struct tw_ck_written {
    struct tw_ck_span *items;
    size_t n, cap;
};

struct tw_ck_clock;
struct tw_ck_clocks;
/* A table whose items are allocated, zeroed, when they are first used, so that a program which
 * merely declares many of them costs no memory. */
struct tw_ck_chunks {
    void **of;
    size_t n, item_bytes;
};
/* A page of a FIFO. */
struct tw_ck_page {
    struct tw_ck_written written;
    struct tw_ck_clock *clock; /* the producer's when it published the page; NULL: not published */
};
/* Increments so far in this step; `before`: scratch, the count where a loop began. */
struct tw_ck_counter {
    uint64_t count, before;
    bool has_before;
};
/* The increments from one count to the next, by one op. */
struct tw_ck_arrival {
    uint64_t from, to;
    struct tw_ck_clock *clock; /* the engine's when it made them */
};
#define TW_CK_BY_NONE 0u
#define TW_CK_BY_MANY TW_NONE
/* The increments of a word, or of all words of a semaphore on a chip. Where one engine makes all of
 * them, in its program order, a wait for less than has arrived is over after a certain one of them:
 * the last ones are kept apart. */
struct tw_ck_arrivals {
    struct tw_ck_counter counter; /* first */
    uint32_t by;                  /* in the whole program: 1 + stream, TW_CK_BY_NONE or _MANY */
    bool live;                    /* listed in `live` of the checker */
    struct tw_ck_clock *clock;    /* by many: of all of them */
    struct tw_ck_arrival *items;  /* by one: ascending, the last n */
    size_t n, cap;
};
/* The word of a semaphore on a site. */
struct tw_ck_word {
    struct tw_ck_arrivals in; /* first; without multicasts to all words (struct tw_ck_flag) */
    /* by engine of the site: absolute number (check_clocks.c) after its last wait, and its place in
     * the list of the flag; 0: none */
    int32_t waited[TW_ENGINE_COUNT];
    uint32_t place[TW_ENGINE_COUNT];
};
/* All words of a semaphore on a chip: what is multicast to them together. */
struct tw_ck_flag {
    struct tw_ck_arrivals in; /* first */
    bool mixed;               /* some of the words have other increments, too */
    /* the last waits of all engines for these words, as a demand; its id is 0 until it is first
     * needed */
    uint32_t *slots;
    int32_t *over;
    size_t n, cap_slots, cap_over;
    uint64_t demand;
    bool lists_waits;
};

/* Where the ops of a section, or of those before it, end in a stream. */
struct tw_ck_section_end {
    uint32_t section;
    int32_t end;  /* op index after the last op that is not a semaphore op */
    int32_t left; /* offset of the stream when it entered a later section in this step */
};

/* What an engine must know: that each stream is past an absolute number. A demand never changes;
 * another one has another id. */
struct tw_ck_demand {
    uint64_t id;
    uint32_t n;
    const uint32_t *slots; /* NULL: 0 to n - 1 */
    const int32_t *over;
};

/* A wait in a loop with flags. */
struct tw_ck_wait {
    uint32_t stream, at, semaphore, word, flag;
    struct tw_affine threshold;
};

struct tw_ck_saved {
    uint32_t item;
    uint64_t value;
};
struct tw_ck_saves {
    struct tw_ck_saved *items;
    size_t n, cap;
};

/* A change of written bytes when a loop is over: its iterations together have written `rect`,
 * unless the FIFO moved meanwhile; or (drop) the page counts as unwritten, because the loop may not
 * have run. */
struct tw_ck_pending {
    uint32_t buffer, page; /* page: index in `pages`, or TW_NONE for the buffer's own list */
    uint32_t frame;        /* which loop */
    uint32_t group;        /* of a multicast, to the set that begins with `buffer`; or TW_NONE */
    bool drop;
    struct tw_ck_rect rect;
};

struct tw_ck_settled {
    struct tw_ck_clock *clock;
    size_t n; /* of a word: how many of its last increments follow */
};

struct tw_ck_frame {
    uint32_t first, n; /* streams, in `members` */
    bool flags;        /* holds semaphore ops */
    /* with flags: all engines are in it, and know where the body ends that all have come there */
    bool closed;
    bool dynamic;
    uint32_t count, trip; /* max. iterations; trip or TW_NONE */
    uint32_t section;     /* of all its ops */
    uint32_t body;        /* certificate word after LOOP */
    /* 0, 1, ...: the value of the loop's variable; two iterations show that all are alike, but
     * where iterations overlap (check_loops.c) */
    uint32_t pass;
    size_t fifo_log, word_log, flag_log, pending, waits;
    size_t end_words, end_flags; /* of the logs, after the first pass */
    /* overlapping iterations: clocks where the last pass ended, in the order of check_loops.c */
    struct tw_ck_settled *settled;
    size_t n_settled;
    uint64_t outside;           /* id of a base that says nothing of the body */
    struct tw_ck_clock **known; /* dynamic: the members' clocks where the loop began */
};

struct tw_checker {
    const struct tw_program *p;
    const struct tw_certificate *cert;
    const struct tw_interrupt *interrupt; /* or NULL */
    struct tw_verify_report *report, own_report;
    tw_error *err;
    uint32_t n_streams, n_pages, n_words, n_flags, at; /* at: next word of the certificate */
    uint32_t vars[TW_MAX_VARS]; /* of the current stream: pass of each open loop */
    struct tw_ck_stream *streams;
    struct tw_ck_clocks *clocks;
    uint32_t *slot, *stream_of; /* streams that have ops are numbered; TW_NONE: it has none */
    int32_t *offset;            /* by stream: ops of earlier iterations; see check_clocks.c */
    uint64_t executed;          /* ops, so far */
    bool part;                  /* a section alone: activations are written before it */
    bool again;                 /* in the second step: memory is not followed */
    /* of stream s from ends_first[s] to ends_first[s + 1], by ascending section and end */
    struct tw_ck_section_end *section_ends;
    size_t *ends_first, n_section_ends, cap_section_ends;
    /* the demand that all data ops of the sections up to ends_section are over; by slot */
    struct tw_ck_demand ends_demand;
    uint32_t ends_section;
    int32_t *ends_over, *loop_over; /* content of demands, by slot */
    int32_t *back;                  /* scratch of repeated bodies, by stream */
    struct tw_ck_fifo *fifos;
    struct tw_ck_chunks pages, words, flags; /* of struct tw_ck_page, _word, _flag */
    uint64_t bytes_of_streams;
    int make_error; /* of tw_ck_make or tw_ck_alloc, where it has returned NULL */
    /* by semaphore: its first word, by tw_group_number, and its first chip's flag */
    uint32_t *word_first, *flag_first;
    /* by buffer, those of a set in its first one; by tensor; NULL: no accesses */
    struct tw_ck_log **buffer_log, **tensor_log;
    struct tw_ck_arena logs;
    struct tw_ck_written *written;     /* by buffer */
    struct tw_ck_written *set_written; /* by multicasts; in the set's first buffer */
    uint8_t *set_kinds;                /* of the set's buffers, as bits; in its first one */
    /* by buffer: others of its site that share bytes, ended by TW_NONE */
    uint32_t *overlap_first, *overlaps;
    uint32_t *buffer_section;
    uint32_t top_section;  /* the last one that any stream has entered in this step */
    uint8_t *buffer_users; /* engines */
    struct tw_ck_frame frames[TW_CK_MAX_DEPTH];
    uint32_t depth;
    uint32_t *members, n_members;
    uint8_t *frame_of; /* by stream: depth of the innermost frame that it is in */
    struct tw_ck_saves fifo_log, word_log, flag_log;
    struct tw_ck_pending *pending;
    size_t n_pending, cap_pending;
    struct tw_ck_wait *waits; /* in open loops with flags */
    size_t n_waits, cap_waits;
    /* What the next rendezvous has to reset, so that it costs only the work since the last one. */
    struct tw_ck_arrivals **live;  /* with clocks */
    struct tw_ck_log ***used_logs; /* addresses of those with accesses */
    size_t n_live, cap_live, n_used_logs, cap_used_logs;
    uint64_t spent[TW_CK_RESOURCES], accesses; /* so far (check_budget.c) */
    /* the op being executed */
    uint32_t stream;
    struct tw_op op;
};

/* Fills the error with "rule N name: program place: ..." and remembers the rule; tw_ck_fail's value
 * is TW_E_VERIFY (tilewright/error.h). */
void tw_ck_error(struct tw_checker *c, enum tw_order_rule rule, const char *format, ...)
    TW_PRINTF(3, 4);
#define tw_ck_fail(c, rule, ...) (tw_ck_error((c), (rule), __VA_ARGS__), TW_E_VERIFY)
static inline void tw_ck_count(struct tw_checker *c, enum tw_order_rule rule) {
    c->report->checked[rule]++;
}
/* Makes room for item n of an array. Returns 0 or NOMEM. */
int tw_ck_grow(struct tw_checker *c, void *items, size_t *cap, size_t n, size_t item_bytes);
static inline uint32_t tw_ck_site(const struct tw_checker *c, uint32_t stream) {
    TW_ASSERT(stream < c->n_streams);
    return c->p->streams[stream].site;
}
static inline struct tw_ck_frame *tw_ck_top(struct tw_checker *c) {
    return c->depth ? &c->frames[c->depth - 1] : NULL;
}

/* check_clocks.c. Errors: NOMEM, and VERIFY where a budget is exceeded. */
int tw_ck_clocks_init(struct tw_checker *c);
void tw_ck_clocks_finish(struct tw_checker *c);
/* Returns the number of ops of stream `of` that `stream` knows to be over, counted in the current
 * iteration: ops of the previous iteration have numbers below its first op, also negative ones. */
int32_t tw_ck_known(const struct tw_checker *c, uint32_t stream, uint32_t of);
/* Joins what the current stream knows, with the current op as over, into *clock, which may be NULL
 * and is then created. */
int tw_ck_clock_publish(struct tw_checker *c, struct tw_ck_clock **clock);
/* Joins a clock (or NULL) into what the current stream knows. */
int tw_ck_clock_learn(struct tw_checker *c, struct tw_ck_clock *clock);
/* Clocks are reference-counted; _drop sets *clock to NULL. */
struct tw_ck_clock *tw_ck_clock_hold(struct tw_ck_clock *clock);
void tw_ck_clock_drop(struct tw_checker *c, struct tw_ck_clock **clock);
/* The place of a stream's clock. */
struct tw_ck_clock **tw_ck_clock_place(struct tw_checker *c, uint32_t stream);
/* A stream's clock; it may be NULL. _restore takes over the reference. */
struct tw_ck_clock *tw_ck_clock_of(const struct tw_checker *c, uint32_t stream);
void tw_ck_clock_restore(struct tw_checker *c, uint32_t stream, struct tw_ck_clock *saved);
/* Makes each member of the innermost loop forget what it knows of the ops of the other members in
 * the loop's body. */
int tw_ck_clocks_lower(struct tw_checker *c, const struct tw_ck_frame *f);
/* Where the body of the innermost loop ends again: compares a clock with what it was one iteration
 * before. What it says of the members' ops in the loop must have moved on by an iteration;
 * otherwise it is forgotten, and *settled becomes false. */
int tw_ck_clock_settle(struct tw_checker *c, struct tw_ck_clock **now,
                       const struct tw_ck_clock *before, bool *settled);
/* Returns the id of a new demand. */
uint64_t tw_ck_demand_id(struct tw_checker *c);
/* Sets *met to whether a stream knows that every other one is past its number in the demand. Linear
 * in the demand once for engines that have the same base, then in what the base lacks. */
int tw_ck_demand_met(struct tw_checker *c, uint32_t stream, const struct tw_ck_demand *d,
                     bool *met);

/* check_words.c */
int tw_ck_chunks_init(struct tw_checker *c, struct tw_ck_chunks *t, size_t n, size_t item_bytes);
void tw_ck_chunks_finish(struct tw_ck_chunks *t);
/* Returns an item, NULL if it was never made; _make makes it, or returns NULL and
 * leaves the error in make_error. */
void *tw_ck_made(const struct tw_ck_chunks *t, size_t i);
void *tw_ck_make(struct tw_checker *c, struct tw_ck_chunks *t, size_t i);
int tw_ck_words_init(struct tw_checker *c);
void tw_ck_words_finish(struct tw_checker *c);
/* Each executes the current op: a SEM_INC, a wait, a multicast of a flag. */
int tw_ck_words_increment(struct tw_checker *c);
int tw_ck_words_wait(struct tw_checker *c);
int tw_ck_words_multicast(struct tw_checker *c);
/* Drops, where the next iteration begins, the clocks that increments carried. */
void tw_ck_words_forget(struct tw_checker *c);
/* Multiplies what one body has added by the loop's iterations. */
void tw_ck_words_multiply(struct tw_checker *c, const struct tw_ck_frame *f);
/* Rule 22: checks where the body has ended once that the threshold of each wait in it grows with
 * each iteration by as much as arrives in one. */
int tw_ck_words_pace(struct tw_checker *c, struct tw_ck_frame *f);
/* Rule 21: at the end of the first step, checks that no word can be so far ahead of a wait that
 * their difference wraps. */
int tw_ck_words_bounded(struct tw_checker *c);
/* Calls visit() for the increments of each word and flag that the first pass of a loop has raised,
 * once, in the same order each time. */
int tw_ck_words_raised(struct tw_checker *c, const struct tw_ck_frame *f,
                       int (*visit)(struct tw_checker *, struct tw_ck_arrivals *, void *),
                       void *context);

/* check_loops.c */
/* Called where the body of a loop with flags has ended once: finds whether it is closed, otherwise
 * saves what its engines know. `engines`: all that have ops. */
int tw_ck_loop_first(struct tw_checker *c, struct tw_ck_frame *f, uint32_t engines);
/* The same after the later passes of one that is not closed: *settled if all later iterations are
 * like the last one. Saves again. */
int tw_ck_loop_settle(struct tw_checker *c, struct tw_ck_frame *f, bool *settled);
void tw_ck_loop_finish(struct tw_checker *c, struct tw_ck_frame *f);

/* check_sync.c */
/* Saves an item's value when the innermost loop first changes it. A second entry for the same item
 * is harmless: the first wins. */
int tw_ck_save(struct tw_checker *c, struct tw_ck_saves *log, uint32_t item, uint64_t value);
int tw_ck_sync_init(struct tw_checker *c);
int tw_ck_sync_op(struct tw_checker *c);
void tw_ck_sync_finish(struct tw_checker *c);
int tw_ck_sync_enter(struct tw_checker *c, struct tw_ck_frame *f);
int tw_ck_sync_leave(struct tw_checker *c, struct tw_ck_frame *f);
/* Checks, where a body ends, that levels are restored. */
int tw_ck_sync_balanced(struct tw_checker *c, const struct tw_ck_frame *f);
/* Begins the next iteration: back[t] is the number of ops that stream t goes back. Op k of the
 * previous iteration becomes op k - back, before the first of the next one. */
void tw_ck_sync_repeat(struct tw_checker *c, const int32_t *back);
/* The same for a loop without flags: streams know what was before the loop, but nothing of each
 * other's next iteration. */
int tw_ck_sync_again(struct tw_checker *c, const struct tw_ck_frame *f);
/* Rule 27: records that the stream has sent data to the group, whose flag is not raised yet. */
int tw_ck_sync_sent(struct tw_checker *c, uint32_t group);
/* Checks that the stream knows every other one to be past its number in the demand, which covers
 * every slot; `what` begins the message. Errors: VERIFY with `rule`, NOMEM. */
int tw_ck_all_known(struct tw_checker *c, uint32_t stream, const struct tw_ck_demand *d,
                    const char *what, enum tw_order_rule rule);

/* check_memory.c */
int tw_ck_memory_init(struct tw_checker *c);
int tw_ck_memory_op(struct tw_checker *c);
/* Rule 26: checks that the buffer is an activation or belongs to the section of the current op. */
int tw_ck_own_section(struct tw_checker *c, uint32_t buffer);
/* Called when a section is entered: frees what is known of the buffers of earlier sections. */
void tw_ck_memory_section(struct tw_checker *c, uint32_t section);
int tw_ck_memory_leave(struct tw_checker *c, const struct tw_ck_frame *f);
void tw_ck_memory_finish(struct tw_checker *c);

/* check_races.c */
uint64_t tw_ck_rect_end(const struct tw_ck_rect *r);
bool tw_ck_in_columns(const struct tw_ck_rect *r);
/* Compares an access of the current stream with those of others that may still be under way, and
 * adds it to the log, which is made if it is NULL. */
int tw_ck_log_access(struct tw_checker *c, struct tw_ck_log **log, bool by_site,
                     const struct tw_ck_access *now, const char *name);
/* Forgets all accesses so far: every engine that accesses anything later knows that they are
 * over. */
void tw_ck_memory_forget(struct tw_checker *c);

/* check_lanes.c */
enum { TW_CK_FEW_LANES = 8 }; /* up to this many are compared one by one, without an index */
/* Returns zeroed memory of the logs; NULL leaves the error in make_error. */
void *tw_ck_alloc(struct tw_checker *c, size_t bytes);
void tw_ck_alloc_reset(struct tw_checker *c);
void tw_ck_alloc_finish(struct tw_checker *c);
struct tw_ck_lane *tw_ck_find_lane(const struct tw_ck_lanes *l, uint32_t stream);
/* The columns of a rectangle, in rows of `stride` bytes or in bytes. */
struct tw_ck_place tw_ck_columns(const struct tw_ck_rect *r, uint64_t stride);
/* Counts columns in bytes from now on, if an access has rows of another length, or none. */
int tw_ck_fit_columns(struct tw_checker *c, struct tw_ck_lanes *l, const struct tw_ck_rect *r);
/* Returns the first place in the order that begins at or after `lo`. */
size_t tw_ck_find_place(const struct tw_ck_lanes *l, uint64_t lo);
/* Adds an access of the current stream. */
int tw_ck_add_access(struct tw_checker *c, struct tw_ck_lanes *l, const struct tw_ck_access *now);

/* check_bindings.c: rule 28, by the rows that tensors claim. */
int tw_ck_bindings(struct tw_checker *c);
/* check_budget.c: rule 29, and the budgets of the check itself. */
int tw_ck_budget(struct tw_checker *c);
/* Adds to what a resource has cost. Errors: VERIFY where that exceeds its budget. */
int tw_ck_spend(struct tw_checker *c, enum tw_ck_resource resource, uint64_t amount);

/* check_overlap.c: finds buffers that share bytes and checks that they may. */
int tw_ck_overlap_init(struct tw_checker *c);

#endif
