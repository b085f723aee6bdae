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

enum { SECOND_TAGS = 120 };

struct block { /* of memory; 16-aligned */
    struct block *next;
    size_t used, size, align;
};
struct loop {           /* of a stream */
    uint32_t head, end; /* words of LOOP and END */
    uint32_t trip, max, id;
    uint32_t n_words; /* semaphore words that are named in it, and by how much one */
    struct counted {  /* iteration increments each */
        uint32_t word, by;
    } * words;
    uint32_t n_moved, *moved; /* FIFOs that are pushed or popped in it */
    uint32_t n_held, *held;   /* FIFOs with any op in it */
};
struct group { /* the engines that run a loop together */
    struct group *parent;
    const struct loop *loop; /* of one of them */
    uint32_t times, round, n, arrived, *member;
    struct bytes *made; /* of a loop over a trip: what it has defined */
    bool over, flags;
};
struct bytes { /* n units of 4 bytes of a buffer */
    struct bytes *next;
    uint32_t buffer;
    uint64_t at, n;
};
struct frame { /* an open loop of an engine */
    const struct loop *loop;
    struct group *group;
    uint32_t *known; /* before a loop over a trip: its clock */
    uint32_t *held;  /* by FIFO of the loop: pages when an iteration begins */
};
struct engine {
    const struct tw_stream *s;
    const struct loop *loops;
    uint32_t n_loops, number, at, index, depth, section;
    bool at_end; /* of a loop, until the others are there */
    struct frame frame[TW_MAX_VARS];
    uint32_t vars[TW_MAX_VARS];
    uint32_t *clock;           /* what it knows of each engine */
    uint32_t left;             /* its clock when it arrived at its last rendezvous, or later */
    uint32_t work;             /* its clock at its last op that was not of a semaphore */
    uint32_t n_sent, sent[16]; /* groups of multicasts that no flag has followed */
};
struct fifo {
    uint64_t pushed, popped;
    uint32_t reserved, waited;
    uint32_t *clocks; /* by page */
    uint8_t *filled;  /* by page: an op has written to it, perhaps no rows */
};
struct waiting {
    struct waiting *next;
    uint32_t engine, clock, per_step;
    uint64_t threshold;
};
enum { SECOND_KEPT = 32 };
struct word {
    uint32_t value, *clock;
    uint64_t sum; /* of the increments of this step */
    struct waiting *waits;
    struct raised { /* the last increments, if one engine makes them all */
        uint32_t value, *clock;
    } * last;
    uint32_t n_last;
};
struct writers { /* of a word: one stream, unless `many`; multicasts to all of a chip, or others */
    uint32_t stream;
    uint8_t kinds;
    bool many;
};
struct access {
    uint64_t lo;
    struct tw_extent e;
    uint32_t engine, clock;
    bool write;
    const struct group *group;
};
struct accesses {
    struct access *a;
    uint32_t n, room;
};
struct uses { /* of a buffer */
    uint8_t engines;
    uint32_t n_over, *over; /* buffers that share bytes with it */
    uint32_t first, end;    /* sections that name it or a sibling; end 0: none */
};

struct second {
    const struct tw_program *p;
    const struct tw_bind_target *rows;
    uint64_t n_rows;
    struct second_verdict verdict;
    jmp_buf out;
    struct block *memory;
    const char *what; /* where: a kind of record, or an engine's name */
    uint32_t site, index;
    /* second_ops.c */
    uint32_t *n_loops; /* by stream */
    struct loop **loops;
    uint8_t *written, *kept;               /* by tensor: by an op; a State that is in SRAM */
    uint32_t n_words, *first_word;         /* by semaphore */
    struct writers *writers;               /* by word */
    uint8_t *in_loop, *in_rows, *not_zero; /* by trip: how it is used */
    /* a step, with these counts of trips */
    uint32_t *trip;
    bool alone;             /* engines may enter empty loops alone */
    uint32_t n, *engine_of; /* engines with ops, by stream */
    struct engine *e;
    uint32_t *list, *seen, stamp; /* of a search for engines */
    uint32_t front;               /* the last section that an engine has entered */
    uint64_t executed;
    struct fifo *fifo;
    struct word *word;
    /* second_data.c */
    struct uses *uses;
    uint8_t **defined; /* by buffer, by 4 bytes: 1, and the tag of rows that a trip counts */
    uint32_t n_tags, tag[SECOND_TAGS][2];
    struct accesses *access; /* by buffer, then by tensor */
};

#define NEED(rule, holds, what) ((holds) ? (void)0 : second_refuse(c, (rule), (what)))

void second_refuse(struct second *c, int rule, const char *what) __attribute__((noreturn));
void *second_alloc(struct second *c, size_t n, size_t bytes); /* zeroed */
void *second_copy(struct second *c, const void *from, size_t n, size_t bytes);
void second_free_to(struct second *c, struct block *mark); /* a block without room */
void second_ops(struct second *c);                         /* rules 2, 3, 5, 9 to 15, 23, 29 */
void second_steps(struct second *c);                       /* rules 6 to 8, 14, 17, 20 to 27 */
void second_uses_begin(struct second *c);
void second_uses_end(struct second *c);
void second_data_begin(struct second *c);
void second_data_op(struct second *c, struct engine *e, const struct tw_op *op);
void second_forget_accesses(struct second *c);
void second_use(struct second *c, const struct engine *e, uint32_t buffer);

#endif
