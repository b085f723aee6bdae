/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the second checker share: one context `c`, which NEED refuses the program with.
 * A refusal leaves through longjmp; memory belongs to the context and is freed with it.
 */
#ifndef TW_TESTS_SECOND_INTERNAL_H
#define TW_TESTS_SECOND_INTERNAL_H

#include "tests/second_checker/second_checker.h"
#include "tilewright/footprint.h"
#include "tilewright/range.h"

#include <setjmp.h>
#include <stdlib.h>

enum { SECOND_KEPT = 32, SECOND_SENT = 32, SECOND_MANY = 99999999 };
enum { SECOND_HELD = 1, SECOND_MOVED = 2 };

struct loop {
    uint32_t stream, head, end; /* words of LOOP and END */
    uint32_t trip, max, id, depth;
    uint32_t *adds; /* by word: 0, or 1 and how much one iteration adds */
    uint8_t *pages; /* by buffer: SECOND_HELD, SECOND_MOVED */
};
struct group { /* the engines that run a loop together */
    struct group *parent;
    uint32_t times, round, n, arrived, *member;
    bool flags;
};
struct engine {
    const struct tw_stream *s;
    const struct loop *loops;
    uint32_t n_loops, number, at, index, depth, section;
    bool at_end; /* of a loop, until the others are there */
    struct frame {
        const struct loop *loop;
        struct group *group;
        uint32_t *known; /* before a loop over a trip: its clock */
        uint32_t *held;  /* by buffer: pages when an iteration begins */
    } frame[TW_MAX_VARS];
    uint32_t vars[TW_MAX_VARS];
    uint32_t *clock;                    /* what it knows of each engine */
    uint32_t left;                      /* its clock when it left its last section, or later */
    uint32_t work;                      /* its clock at its last op that names no semaphore */
    uint32_t n_sent, sent[SECOND_SENT]; /* groups of multicasts that no flag has followed */
    bool posted;                        /* data that no flag has followed */
};
struct fifo {
    uint64_t pushed, popped;
    uint32_t reserved, waited;
    uint32_t *clocks; /* by page */
    uint8_t
        *filled; /* by page: 1 + depth of loops where an op has written to it, perhaps no rows */
};
struct word {
    /* who increments it: one stream unless `many`, by multicasts to a whole chip (1), others (2) */
    uint32_t stream;
    uint8_t kinds;
    bool many;
    /* in a step */
    uint32_t value, *clock;
    uint64_t sum; /* of the increments */
    struct waiting {
        struct waiting *next;
        uint32_t engine, clock, per_step;
        uint64_t threshold;
    } * waits;
    struct raised { /* the last increments, if one engine makes them all */
        uint32_t value, *clock;
    } last[SECOND_KEPT];
    uint32_t n_last;
};
struct cell { /* 4 bytes: written, and by an op whose rows a trip (plus 1) counts, so far apart */
    uint32_t trip, stride;
    bool plain;
    uint8_t depth; /* of the loops that they were written in */
};
struct region {      /* of an op, as bytes of a buffer or tensor */
    uint32_t object; /* buffer, or n_buffers + tensor */
    uint64_t instance, lo;
    struct tw_extent e, most;    /* most: with the greatest number of rows */
    uint32_t table, first, last; /* table plus 1, and its elements that name the page; or 0 */
    bool write, one_row;         /* one_row: of the rows only the last */
    bool moves;                  /* with a loop */
    bool vector;                 /* for all rows */
    uint32_t trip;               /* that counts its rows, plus 1, or 0 */
};
struct access {
    struct access *next;
    struct region r;
    uint32_t engine, clock;
    const struct group *group;
};
struct uses {               /* of a buffer */
    uint32_t engine;        /* that uses it, plus 1; SECOND_MANY */
    uint32_t n_over, *over; /* buffers that share bytes with it */
    uint32_t first, end;    /* sections that name it or a sibling; end 0: none */
};

struct second {
    const struct tw_program *p;
    const struct tw_bind_target *rows;
    uint64_t n_rows;
    struct second_verdict verdict;
    jmp_buf out;
    struct block {
        struct block *next;
        uint64_t pad;
    } * memory;
    const char *what; /* where: a kind of record, or an engine's name */
    uint32_t site, index;
    /* of the program: loops in order of streams; by tensor, by semaphore, by word, by trip */
    uint32_t n_loops, n_words, *first_word;
    struct loop *loop;
    uint8_t *written, *kept; /* by an op; a State that is in SRAM */
    struct word *word;
    uint8_t *in_loop, *in_rows, *not_zero; /* how a trip is used */
    struct uses *uses;
    /* of a step, with these counts of trips */
    uint32_t *trip, n, *engine_of; /* engines with ops, by stream */
    struct engine *e;
    uint32_t *list, front; /* of engines; the last section that one has entered */
    uint64_t executed;
    bool alone; /* nobody can go on but by entering a loop that runs once, without its company */
    struct fifo *fifo;
    struct cell **cells;    /* by buffer */
    struct access **access; /* by buffer, then by tensor */
};

#define NEED(rule, holds, what) ((holds) ? (void)0 : second_refuse(c, (rule), (what)))

/* Returns the tensor that an operand names, or NULL if it names none. */
static inline const struct tw_tensor *second_tensor(const struct second *c,
                                                    const struct tw_operand *o) {
    return tw_letter_in("TU", o->kind) ? &c->p->tensors[o->id] : NULL;
}

/* Returns the dtype of a MATMUL's x, on which its extent depends; 0 for other ops. */
static inline uint32_t second_x_dtype(const struct second *c, const struct tw_op *op) {
    return op->code == TW_OP_MATMUL ? c->p->buffers[op->operand[TW_MATMUL_x].id].dtype : 0;
}

void second_refuse(struct second *c, int rule, const char *what) __attribute__((noreturn));
void *second_alloc(struct second *c, uint64_t n, size_t bytes); /* zeroed */
void second_free_to(struct second *c, struct block *mark);
void second_ops(struct second *c);   /* rules 2, 3, 5, 9 to 15, 23, 29 */
void second_steps(struct second *c); /* rules 6 to 8, 14, 17, 20 to 27 */
void second_uses_begin(struct second *c);
void second_uses_end(struct second *c);
void second_use(struct second *c, const struct engine *e, uint32_t buffer);
void second_data_begin(struct second *c);
void second_data_op(struct second *c, struct engine *e, const struct tw_op *op);
void second_forget_accesses(struct second *c);
/* The least and the greatest value up to each open loop's maximum; false if one is out of range. */
bool second_extremes(const struct engine *e, const struct tw_affine *a, int64_t *lo, int64_t *hi);

#endif
