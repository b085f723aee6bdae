/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of streams and their loops: 2 stream_decodes, 3 engine_runs_op, 12 loops_agree.
 */
#include "tests/support/verify_kit.h"

/* ---- stream_decodes ---- */
BREAK(op_unknown) {
    b->words[1][0] = 31 | 2u << 16;
}
BREAK(op_too_short) {
    b->words[1][0] -= 1u << 16;
}
BREAK(stream_cut) {
    b->streams[2].n_words -= 1;
}
BREAK(loop_unclosed) {
    INSERT(b, MATH, RESERVE, 1, LOOP, pb_id(1), pb_rows(TW_NONE, 2), pb_id(TW_NONE));
}
BREAK(end_alone) {
    struct tw_op end = pb_make(TW_NONE, TW_OP_END, NULL, 0);
    pb_splice(b, 0, MATH, 0, 0, &end);
}
BREAK(variable_reused) {
    CHANGE(b, LOAD, LOOP, 1, op.operand[0].id = 1);
}
BREAK(variable_closed) {
    CHANGE(b, MATH, ATTN_DONE, 0, op.operand[0].offset = pb_v(0, 3, 0x40));
}
BREAK(epoch_in_offset) {
    CHANGE(b, MATH, QUANT, 0, op.operand[0].offset = pb_v(0, 0, 4));
}

/* ---- engine_runs_op ---- */
BREAK(math_reads_dram) {
    INSERT(b, MATH, QUANT, 0, READ, pb_of(SMALL_FREQ, pb_v(0, 0, 0), pb_v(0, 0, 0)),
           pb_on(SMALL_BUF(SMALL_XN, 0), 0), pb_id(1), pb_id(32), pb_id(32), pb_id(32));
}
BREAK(load_quantises) {
    INSERT(b, LOAD, RESERVE, 0, QUANT, pb_on(SMALL_BUF(SMALL_XN, 0), 0), pb_id(128),
           pb_on(SMALL_BUF(SMALL_XQ, 0), 0), pb_id(40), pb_id(32), pb_rows(SMALL_ROWS, 4));
}

/* ---- loops_agree ---- */
BREAK(other_trip) {
    CHANGE(b, MATH, LOOP, 1, op.operand[1] = pb_rows(SMALL_ROWS, 4), op.operand[1].kind = 'X');
    CHANGE(b, MATH, ATTN_STEP, 0, op.operand[TW_ATTN_STEP_block].offset = tw_affine_const(0));
}
BREAK(other_depth) {
    INSERT(b, MATH, LOOP, 1, LOOP, pb_id(5), pb_rows(TW_NONE, 1), pb_id(TW_NONE));
    pb_insert_end(b, 0, MATH, TW_OP_END, 0);
}
BREAK(other_max) {
    CHANGE(b, MATH, LOOP, 1, op.operand[1].max = 3);
    CHANGE(b, MATH, ATTN_STEP, 0, op.operand[TW_ATTN_STEP_block].offset = tw_affine_const(0));
}
BREAK(ids_descend) {
    CHANGE(b, MATH, LOOP, 0, op.operand[1] = pb_rows(SMALL_BLOCKS, 2), op.operand[1].kind = 'X',
           op.operand[2].id = 7);
}
BREAK(constant_with_id) {
    CHANGE(b, LOAD, LOOP, 0, op.operand[2].id = 1);
}
BREAK(trip_without_id) {
    CHANGE(b, LOAD, LOOP, 1, op.operand[2].id = TW_NONE);
}
BREAK(flag_in_trip_loop) {
    INSERT(b, LOAD, RESERVE, 4, SEM_INC, pb_id(SMALL_KV), pb_id(0), pb_id(1));
}

static const struct breakage breakages[] = {
    ROW(stream_decodes, op_unknown, "word 0 of $words:1"),
    ROW(stream_decodes, op_too_short, "word 0 of $words:1"),
    ROW(stream_decodes, stream_cut, "0x"),
    ROW(stream_decodes, loop_unclosed, "variable 1 is used by an enclosing loop"),
    ROW(stream_decodes, end_alone, "END without a LOOP"),
    ROW(stream_decodes, variable_reused, "variable 1 is used by an enclosing loop"),
    ROW(stream_decodes, variable_closed, "variable 3 belongs to no enclosing loop"),
    ROW(stream_decodes, epoch_in_offset, "variable 0 is the epoch"),
    ROW(engine_runs_op, math_reads_dram, "engine math may not run it, only load may"),
    ROW(engine_runs_op, load_quantises, "engine load may not run it, only math may"),
    ROW(loops_agree, other_trip, "loop id 7: trip 0 at depth 2"),
    ROW(loops_agree, other_depth, "loop id 7: trip 2 at depth 3, but load op"),
    ROW(loops_agree, other_max, "their nests or maxima differ"),
    ROW(loops_agree, ids_descend, "loop id 7 comes after 7"),
    ROW(loops_agree, constant_with_id, "a loop with a constant count has id 1"),
    ROW(loops_agree, trip_without_id, "a loop over a trip has no id"),
    ROW(loops_agree, flag_in_trip_loop, "inside a loop over a trip"),
};

int main(void) {
    RUN_BREAKAGES("verify_streams", breakages);
}
