/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the second checker share: one context `c`, which NEED refuses the program with.
 * The condition that does not hold is the text of the refusal, which leaves through longjmp. Memory
 * belongs to the context and is freed with it.
 */
#ifndef TW_TESTS_SECOND_INTERNAL_H
#define TW_TESTS_SECOND_INTERNAL_H

#include "tests/second_checker/second_checker.h"
#include "tilewright/footprint.h"
#include "tilewright/range.h"

#include <setjmp.h>
#include <stdlib.h>

enum { SECOND_KEPT = 32, SECOND_SENT = 32, SECOND_MANY = 99999999, SECOND_MOST = 0x7FFFFFFF };
enum { SECOND_LOOPS = 1, SECOND_ROWS = 2, SECOND_NOT_0 = 4 }; /* uses of a trip */

/* Engines meet at channels: FIFOs, by the number of their buffer, then the words of semaphores. By
 * channel, `adds` is 0 if the loop has no op of it, else 1 and how much one iteration adds. The
 * stream's words where the loop, its body and what follows it begin are `head`, `body`, `next`. */
struct loop {
    uint32_t head, body, next, trip, max, id, depth, var, *adds;
};
/* The engines that run a loop together; whether it has flags. */
struct group {
    struct group *parent;
    uint32_t times, round, n, arrived;
    bool flags;
    struct engine *member[];
};
/* An engine follows its ops twice: as they are written, with loops rolled, and in each step. */
struct engine {
    const struct tw_stream *s;
    struct loop *loops;
    uint32_t n_loops, number, at, index, depth, section;
    struct frame {
        struct loop *loop;
        struct group *group;
        uint32_t *known; /* its clock before the loop */
        uint64_t *held;  /* by FIFO: pages before the iteration */
    } frame[TW_MAX_VARS];
    /* As written: the open loops of which an op had a stage, their iterations, the last
     * meeting_letter() or 'w', and whether it waits after the rendezvous. */
    uint32_t last_id, staged;
    uint64_t times;
    char meeting;
    bool late;
    /* In a step: what it knows of each engine; its clock when it left its last section, or later,
     * and at its last op that names no semaphore; the groups of multicasts, and whether any data,
     * that no flag has followed; whether it waits for others at the end of a loop. */
    uint32_t vars[TW_MAX_VARS], *clock, left, work, n_sent;
    uint8_t *sent;
    bool posted, at_end;
};
/* Of both ends, producer first, the pages pushed or popped, and reserved or waited for. By page its
 * clock, and 1 + the depth of the loops in which an op has written to it, perhaps no rows. */
struct fifo {
    struct fifo_end {
        uint64_t moved, held;
    } end[2];
    uint32_t *clocks;
    uint8_t *filled;
};
/* As written: who increments it, one stream unless `many`, by multicasts to a whole chip (1) or
 * otherwise (2), and how many ops raise it and wait. In a step: its waits and increments. */
struct word {
    uint32_t stream, kinds, raised, awaited, initial;
    bool many;
    uint64_t value;
    struct waiting {
        struct waiting *next;
        uint32_t engine, clock, per_step;
        uint64_t threshold;
    } * waits;
    struct raised {
        struct raised *next;
        uint64_t value;
        uint32_t *clock;
    } * last;
};
/* 4 bytes of SRAM: written through a buffer (plus 1), in loops of some depth, by ops whose rows
 * trips (plus 1) count, so far apart (the last two of them), and by another one. */
struct cell {
    uint32_t owner, trip[2], stride[2];
    bool plain;
    uint8_t depth;
};
/* The bytes of an op in a buffer, or in tensor object - n_buffers: with the step's rows and the
 * greatest number; the trip (plus 1) that counts rows; the table (plus 1) and columns that name
 * the page; whether a loop moves it. As an access, with its engine and clock. */
struct region {
    uint32_t object, table, first, last;
    uint64_t instance, lo;
    struct tw_extent e[2];
    const struct group *group;
    uint32_t trip, write, moves, engine;
    struct region *next;
    uint32_t clock;
};
/* Of a buffer: the stream (plus 1) that uses it, or SECOND_MANY; its section, and those that name
 * it; whether it is filled at odd places, and read by a matmul as weights. */
struct uses {
    uint32_t stream, section, first, end;
    uint8_t unaligned, weights;
};

struct second {
    const struct tw_program *p;
    const struct tw_bind_target *rows;
    uint64_t n_rows, step_ops, executed;
    struct second_verdict verdict;
    jmp_buf out;
    struct block {
        struct block *next;
        uint64_t pad;
    } * memory;
    /* Where it is: at an engine's op or, if there is none, at a record of that kind and number. */
    struct engine *e;
    struct tw_op op;
    const char *what;
    uint32_t index;
    /* The program: by tensor, that an op writes it, and a State that is in SRAM; uses of trips, and
     * of buffers; the first word of each semaphore; room for loops; the n engines with ops. */
    uint8_t *written, *kept, *counts;
    struct uses *uses;
    uint32_t *first_word, n_channels, n;
    struct word *word;
    struct loop *loop;
    struct engine *start;
    /* A step with these counts of trips: its engines, and some of them; the last section that one
     * has entered; whether none can go on, but for a loop that runs once, by itself; FIFOs by
     * buffer; SRAM by site and memory class; accesses by buffer, then by tensor. */
    uint32_t *trip, front;
    struct engine *engine, **list;
    bool alone;
    struct fifo *fifo;
    struct cell **sram;
    struct region **access;
};

#define NEED(rule, ...) ((__VA_ARGS__) ? (void)0 : second_refuse(c, (rule), #__VA_ARGS__))
#define NEW(n, pointer) ((pointer) = second_alloc(c, (n), sizeof *(pointer)))

/* The sum of a number over all i below n; whether a condition holds for any of them, for all. */
#define SUM(i, n, ...)                                          \
    ({                                                          \
        uint64_t sum_##i = 0;                                   \
        for (uint64_t i = 0, i##_end = (n); i < i##_end; i++) { \
            sum_##i += (__VA_ARGS__);                           \
        }                                                       \
        sum_##i;                                                \
    })
#define ANY(i, n, ...) (SUM(i, n, (__VA_ARGS__) ? 1 : 0) > 0)
#define ALL(i, n, ...) (SUM(i, n, (__VA_ARGS__) ? 0 : 1) == 0)

void second_refuse(struct second *c, int rule, const char *what) __attribute__((noreturn));
void *second_alloc(struct second *c, uint64_t n, size_t bytes); /* zeroed */
void second_free_to(struct second *c, struct block *mark);
void second_ops(struct second *c);   /* rules 2, 3, 5, 7 to 15, 23, 25, 26, 29 */
void second_steps(struct second *c); /* rules 6, 7, 14, 15, 17, 20 to 27 */
void second_data_begin(struct second *c);
void second_data_op(struct second *c);
void second_forget_accesses(struct second *c);
/* The cells of a buffer, which other buffers may share; whether two do. */
struct cell *second_cells(const struct second *c, uint32_t buffer);
bool second_share(const struct tw_buffer *a, const struct tw_buffer *b);
/* The tensor that an operand names, or NULL; the semaphore that the op names, or TW_NONE. */
const struct tw_tensor *second_tensor(const struct second *c, const struct tw_operand *o);
uint32_t second_semaphore(const struct second *c);
/* The word of a semaphore on a site, the engine's end of a FIFO; NULL: there is none. */
struct word *second_word(const struct second *c, uint32_t semaphore, uint32_t site);
struct fifo_end *second_end(const struct second *c, const struct engine *e, uint32_t buffer);
/* The extent of the op's n-th region, with so many rows. */
struct tw_extent second_extent(const struct second *c, uint32_t n, uint64_t rows);
/* Whether for all values of the open loops, up to their maxima, size bytes are below the limit. */
bool second_inside(const struct second *c, const struct tw_affine *a, uint64_t size,
                   uint64_t limit);

#endif
