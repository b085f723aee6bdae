/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of FIFOs: 5 fifo_ends, 6 fifo_balance.
 */
#include "tests/support/verify_kit.h"

/* ---- fifo_ends ---- */
BREAK(same_ends) {
    b->buffers[SMALL_BUF(SMALL_OF, 0)].consumer = MATH;
}
BREAK(wrong_consumer) {
    CHANGE(b, STORE, WAIT, 0, op.operand[0].id = SMALL_BUF(SMALL_KF, 0));
}
BREAK(not_a_fifo) {
    CHANGE(b, STORE, WAIT, 0, op.operand[0].id = SMALL_BUF(SMALL_X, 0));
}
BREAK(read_of_foreign_fifo) {
    CHANGE(b, MATH, QUANT, 0, op.operand[0].id = SMALL_BUF(SMALL_LF, 0));
    b->buffers[SMALL_BUF(SMALL_LF, 0)].producer = LOAD;
}
BREAK(consumer_writes) {
    CHANGE(b, MATH, ROPE, 0, op.operand[0].id = SMALL_BUF(SMALL_GF, 0));
}
BREAK(scratch_shared) {
    CHANGE(b, STORE, MCAST, 0, op.operand[0].id = SMALL_BUF(SMALL_H, 0));
}

/* ---- fifo_balance ---- */
BREAK(push_twice) {
    INSERT(b, MATH, PUSH, 1, PUSH, pb_id(SMALL_BUF(SMALL_OF, 0)), pb_id(1));
}
BREAK(pop_forgotten) {
    REMOVE(b, 0, MATH, POP, 4);
}
BREAK(pop_too_many) {
    CHANGE(b, MATH, POP, 2, op.operand[1].id = 2);
}
BREAK(capacity) {
    CHANGE(b, MATH, WAIT, 2, op.operand[1].id = 3);
}
BREAK(unequal_step) {
    REMOVE(b, 0, MATH, WAIT, 0);
    REMOVE(b, 0, MATH, COPY, 0);
    REMOVE(b, 0, MATH, POP, 0);
}
BREAK(unequal_iteration) {
    /* One pair of key pages fewer in the loop, so the trip decides whether pages are left over. */
    REMOVE(b, 0, LOAD, READ, 3);
    REMOVE(b, 0, LOAD, PUSH, 4);
    REMOVE(b, 0, LOAD, RESERVE, 4);
}
BREAK(level_left) {
    INSERT(b, MATH, SEM_INC, 1, RESERVE, pb_id(SMALL_BUF(SMALL_LF, 0)), pb_id(1));
}
BREAK(pages_outside_loop) {
    /* The producer publishes in a constant loop what the consumer takes in a loop over the trip. */
    CHANGE(b, LOAD, LOOP, 1, op.operand[1].id = TW_NONE, op.operand[2].id = TW_NONE);
}

static const struct breakage breakages[] = {
    ROW(fifo_ends, same_ends, "producer 1 and consumer 1"),
    ROW(fifo_ends, wrong_consumer, "FIFO $kf (kf) is consumed by engine math, not store"),
    ROW(fifo_ends, not_a_fifo, "buffer $x (x) is not a FIFO"),
    ROW(fifo_ends, read_of_foreign_fifo, "reads x in FIFO $lf (lf)"),
    ROW(fifo_ends, consumer_writes, "writes x in FIFO $gf (gf)"),
    ROW(fifo_ends, scratch_shared, "scratch $h (h), which engine math uses"),
    ROW(fifo_balance, push_twice, "1 pages of FIFO $of (of), of which only 0 are reserved"),
    ROW(fifo_balance, pop_forgotten,
        "1 pages are waited for at the end of the loop, 0 at its start"),
    ROW(fifo_balance, pop_too_many, "2 pages of FIFO $nf (nf), of which only 1 are waited for"),
    ROW(fifo_balance, capacity, "3 pages of FIFO $nf (nf), which has 2"),
    ROW(fifo_balance, unequal_step, "1 pages are pushed and 0 popped in a step"),
    ROW(fifo_balance, unequal_iteration,
        "an iteration of loop 7 pops 1 pages, but the other engine moves none in a loop over a "
        "trip"),
    ROW(fifo_balance, level_left, "a step ends with 1 pages reserved and 0 waited for"),
    ROW(fifo_balance, pages_outside_loop,
        "an iteration of loop 7 pops 1 pages, but the other engine moves none in a loop over a "
        "trip"),
};

int main(void) {
    RUN_BREAKAGES("verify_fifo", breakages);
}
