/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by certify.c and certify_partners.c: the certifier's state.
 */
#ifndef TW_COMPILER_SPATIAL_CERTIFY_INTERNAL_H
#define TW_COMPILER_SPATIAL_CERTIFY_INTERNAL_H

#include "compiler/spatial/certify.h"
#include "tilewright/op_schema.h"

/* What a stream waits for. */
enum waiting { FOR_NOTHING, FOR_FIFO, FOR_WORD };

struct cursor {
    uint32_t words_at, index;
    uint32_t run;  /* ops executed since the last turn was written */
    uint8_t depth; /* loop depth of the group it runs in */
    uint8_t waiting;
    bool at_loop;    /* its next op is a LOOP */
    uint32_t object; /* FIFO, or index of the word */
};

/* Streams of a group that may be able to run, as bits, and which words of bits are not 0. */
struct ready {
    uint64_t *bits, *any;
};

/* Increments so far. */
struct counter {
    uint64_t n, before; /* before: scratch of multiply_words */
    bool has_before;
};

/* The words of a semaphore on one chip, as far as multicasts reach all of them. */
struct flag {
    struct counter count;
    uint64_t need;            /* no stream waits for less than so many of them */
    TW_VEC(uint32_t) waiting; /* streams */
};

/* A word or flag before an increment. */
struct saved {
    struct counter *counter;
    uint64_t value;
};

struct certifier {
    struct tw_cmem *mem;
    const struct tw_program *p;
    tw_error *err;
    uint32_t n_streams, n_active; /* active: with ops */
    uint32_t n_at_loop;           /* streams that are at a LOOP */
    uint32_t wants_all;           /* the first of them that needs all others there, or TW_NONE */
    struct cursor *cursors;
    uint64_t *levels; /* by FIFO: published pages */
    struct counter *words;
    struct flag *flags;
    uint32_t *word_first, *flag_first;   /* by semaphore */
    uint32_t n_words;                    /* of all semaphores */
    TW_VEC(struct saved) log;            /* increments in open loops with flags */
    uint32_t n_logging;                  /* such loops */
    struct ready ready[TW_MAX_VARS + 1]; /* by depth */
    TW_VEC(uint32_t) members;            /* of open loops */
    uint8_t *of_rendezvous;              /* by semaphore */
    struct touches *touches;             /* NULL: not found yet */
    uint32_t gathering;                  /* number of the search for a loop's members */
    uint32_t *member_of;                 /* by stream: the last of them that found it */
    TW_VEC(uint32_t) partners;           /* scratch */
    uint32_t vars[TW_MAX_VARS];
    TW_VEC(uint32_t) turns;
    struct tw_op op;
};

/* Returns the number of a semaphore's word on a site. */
uint32_t tw_certify_word(const struct certifier *c, uint32_t semaphore, uint32_t site);

/* Adds to c->partners the streams that raise flags for which the loop at the stream's cursor waits,
 * or wait for those that it raises, in a loop of their own that comes next; without some that were
 * added for another member of the same c->gathering. Returns false if one of them is still before
 * that loop. */
bool tw_certify_partners(struct certifier *c, uint32_t stream);

#endif
