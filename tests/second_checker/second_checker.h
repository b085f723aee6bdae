/* SPDX-License-Identifier: Apache-2.0
 *
 * A second judge of programs, written from tilewright-machine(7) and tws(5) alone by someone who
 * had not read the loader's. It is simple rather than fast: tables and ops are checked one by one,
 * then one step is executed with its loops multiplied out, for several counts of each trip, with a
 * vector clock for each engine. It needs no certificate: engines enter a loop when all that move
 * pages or flags in it can, which is what a certificate would state.
 */
#ifndef TW_TESTS_SECOND_CHECKER_H
#define TW_TESTS_SECOND_CHECKER_H

#include "loader/bundle/loader.h"

struct second_verdict {
    int rule;      /* the violated rule; 0: accepted */
    bool unjudged; /* the step is too long to execute */
    /* Bit n: a program that is accepted has something that the loader's rule n may refuse, though
     * it is sound, by what the page says is refused on purpose: places in one object that move, or
     * rows of different strides there (17); loops of equal counts that are not entered together
     * (20, 22), or that run once (20); accesses without order of different bytes of one object
     * (24); reads of what nested loops have written, or of what a loop has written before, at a
     * place that moves (25); counts above a trip's maximum: of rows (24, 25), of loops (20 to 27).
     */
    uint32_t limits;
    char text[256];
};

/* Judges a program. `rows` (may be NULL: each row has its own memory) says where each of the n_rows
 * binding rows is. Terminates for every program whose tables and streams are readable memory. */
struct second_verdict second_check(const struct tw_program *p, const struct tw_bind_target *rows,
                                   uint64_t n_rows);

#endif
