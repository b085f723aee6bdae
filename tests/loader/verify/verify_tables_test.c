/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that break a rule in their tables, or name ids outside them in ops: rules 1 table_sizes,
 * 4 buffer_placed, 9 roles_kept, 11 trips_sound, 13 groups_on_chip, 16 sections_partition.
 */
#include "tests/support/verify_kit.h"

/* ---- table_sizes ---- */
BREAK(string_unterminated) {
    b->strings[b->p.strings_bytes - 1] = 'x';
}
BREAK(site_count) {
    b->p.n_chips = 2;
}
BREAK(name_outside) {
    b->tensors[3].name = b->p.strings_bytes;
}
BREAK(dtype_unknown) {
    b->tensors[3].dtype = TW_DT_COUNT;
}
BREAK(init_blob) {
    b->tensors[3].init = TW_INIT_BLOB;
}
BREAK(section_reserved) {
    b->sections[0].reserved = 1;
}
BREAK(stage_unknown) {
    CHANGE(b, MATH, QUANT, 0, op.stage = 12);
}
BREAK(stage_of_other_engine) {
    CHANGE(b, MATH, QUANT, 0, op.stage = 0);
}
BREAK(buffer_unknown) {
    CHANGE(b, MATH, QUANT, 0, op.operand[0].id = b->p.n_buffers);
}
BREAK(trip_unknown) {
    CHANGE(b, MATH, QUANT, 0, op.operand[5].id = 3);
}
BREAK(site_unknown) {
    CHANGE(b, STORE, SEM_INC, 0, op.operand[1].id = 2);
}
BREAK(group_unknown) {
    CHANGE(b, STORE, MCAST, 0, op.operand[6].id = 1);
}
BREAK(stream_order) {
    b->streams[3].engine = 1;
}

/* ---- buffer_placed ---- */
BREAK(sram_small) {
    b->p.sram_bytes[0] = b->buffers[SMALL_BUF(SMALL_TM, 0)].offset + 63;
}
BREAK(offset_odd) {
    b->buffers[SMALL_BUF(SMALL_Y, 0)].offset += 4;
}
BREAK(offset_wraps) {
    b->buffers[SMALL_BUF(SMALL_Y, 0)].offset = UINT64_MAX - 63;
}
BREAK(pages_wrap) {
    b->buffers[SMALL_BUF(SMALL_OF, 0)].page_bytes = UINT64_MAX / 2 + 257;
}
BREAK(sibling_moved) {
    b->buffers[SMALL_BUF(SMALL_X, 1)].offset = 65536;
}
BREAK(sibling_missing) {
    b->buffers[SMALL_BUF(SMALL_X, 1)].sibling_base = TW_NONE;
}
BREAK(sibling_wrong_site) {
    b->buffers[SMALL_BUF(SMALL_X, 1)].site = 0;
}

/* ---- roles_kept ---- */
BREAK(param_written) {
    CHANGE(b, STORE, WRITE, 0, op.operand[2].id = SMALL_NORM);
}
BREAK(output_unwritten) {
    for (uint32_t s = 0; s < SMALL_SITES; s++) {
        REMOVE(b, s, STORE, WRITE, 0);
    }
}
BREAK(activation_bound) {
    b->tensors[SMALL_ACT].bind_count = 1;
}
BREAK(activation_read) {
    CHANGE(b, LOAD, READ, 0, op.operand[0].id = SMALL_ACT);
}
BREAK(param_unbound) {
    b->tensors[SMALL_NORM].bind_count = 0;
}

/* ---- trips_sound ---- */
BREAK(trip_of_state) {
    b->trips[0].input = SMALL_KEYS;
}
BREAK(trip_beyond) {
    b->trips[0].input = SMALL_IDS;
    b->trips[0].element = 4;
}
BREAK(trip_clamp) {
    b->trips[0].clamp = 2;
}
BREAK(trip_div) {
    b->trips[0].div = 0;
}
BREAK(trip_exceeds) {
    b->trips[0].max = 5;
}
BREAK(loop_of_none) {
    CHANGE(b, LOAD, LOOP, 0, op.operand[1].max = 0);
}
BREAK(loops_endless) {
    INSERT(b, LOAD, RESERVE, 0, LOOP, pb_id(5), pb_rows(TW_NONE, 2), pb_id(TW_NONE));
    INSERT(b, LOAD, LOOP, 0, LOOP, pb_id(4), pb_rows(TW_NONE, 0x40000000u), pb_id(TW_NONE));
}
BREAK(rows_of_none) {
    CHANGE(b, STORE, WRITE, 0, op.operand[5].max = 0);
}

/* ---- groups_on_chip ---- */
BREAK(group_too_wide) {
    b->groups[0].x1 = 3;
}
BREAK(group_empty) {
    b->groups[0].x0 = 2;
}
BREAK(group_other_chip) {
    b->groups[0].chip = 1;
}
BREAK(group_of_no_chip) {
    b->groups[0].chips = 0;
}
/* Two chips of one site each are the same sites as one chip of two; its group spans them. */
static void on_two_chips(struct pb *b) {
    b->p.mesh_width = 1;
    b->p.n_chips = b->groups[0].chips = 2;
    b->groups[0].x1 = 1;
}
BREAK(group_of_more_chips) {
    on_two_chips(b);
    b->groups[0].chip = 1;
}
BREAK(mcast_to_two_chips) {
    on_two_chips(b);
}
BREAK(flag_to_two_chips) {
    on_two_chips(b);
    b->groups[1] = (struct tw_group){1, 0, 0, 1, 1, 1};
    b->p.n_groups = 2;
    CHANGE(b, STORE, MCAST, 0, op.operand[op.n_operands - 1].id = 1);
}
BREAK(mcast_without_siblings) {
    for (uint32_t s = 0; s < SMALL_SITES; s++) {
        b->buffers[SMALL_BUF(SMALL_X, s)].sibling_base = TW_NONE;
    }
}

/* ---- sections_partition ---- */
BREAK(sections_overlap) {
    b->sections[1].first_buffer--;
    b->sections[1].n_buffers++;
}
BREAK(buffers_left_over) {
    b->sections[1].n_buffers--;
}
BREAK(stage_elsewhere) {
    b->stages[7].section = 0;
}
BREAK(last_section_open) {
    b->sections[1].local = b->sections[1].gather = b->sections[1].release = TW_NONE;
}
BREAK(work_after_the_end) {
    b->site = 0;
    b->engine = MATH;
    b->stage = TW_NONE;
    PB_OP(b, ATTN_INIT, pb_on(SMALL_BUF(SMALL_ST, 0), 0), pb_id(1), pb_id(16), pb_rows(TW_NONE, 1));
}

static const struct breakage breakages[] = {
    ROW(table_sizes, string_unterminated, "does not begin and end with a zero byte"),
    ROW(table_sizes, site_count, "2 sites, but 2 chips of 2 x 1"),
    ROW(table_sizes, name_outside, "tensor 3"),
    ROW(table_sizes, dtype_unknown, "dtype 20"),
    ROW(table_sizes, init_blob, "bytes of the bundle, which this version does not read"),
    ROW(table_sizes, section_reserved, "reserved is 1, expected 0"),
    ROW(table_sizes, stage_unknown, "stage 12 does not exist, there are 12"),
    ROW(table_sizes, stage_of_other_engine, "stage 0 belongs to site 0 load"),
    ROW(table_sizes, buffer_unknown, "buffer $buffers does not exist, there are $buffers"),
    ROW(table_sizes, trip_unknown, "trip 3 does not exist, there are 3"),
    ROW(table_sizes, site_unknown, "site 2 does not exist, there are 2"),
    ROW(table_sizes, group_unknown, "group 1 does not exist, there are 1"),
    ROW(table_sizes, stream_order, "stream 3 is site 1 engine 1"),
    ROW(buffer_placed, sram_small,
        "1 pages of 64 bytes at $at:tm do not fit memory class 0 of $at:tm+63"),
    ROW(buffer_placed, offset_odd, "offset $at:y+4"),
    ROW(buffer_placed, offset_wraps, "do not fit memory class 0 of 1048576"),
    ROW(buffer_placed, pages_wrap, "do not fit memory class 0 of 1048576"),
    ROW(buffer_placed, sibling_moved, "differs from its sibling 0"),
    ROW(buffer_placed, sibling_missing, "buffer 1 is not its sibling"),
    ROW(buffer_placed, sibling_wrong_site, "is on site 0, where it is not a member of the set"),
    ROW(roles_kept, param_written, "writes tensor 4 (norm), a param"),
    ROW(roles_kept, output_unwritten, "tensor 10 (logits): no op writes this output"),
    ROW(roles_kept, activation_bound, "an activation tensor with 1 binding rows"),
    ROW(roles_kept, activation_read, "reads tensor 11 (x), an activation"),
    ROW(roles_kept, param_unbound, "with 0 binding rows"),
    ROW(trips_sound, trip_of_state, "reads tensor 8"),
    ROW(trips_sound, trip_beyond, "reads element 4 of tensor 0, which has 4 x 1"),
    ROW(trips_sound, trip_clamp, "clamp 2"),
    ROW(trips_sound, trip_div, "div 0"),
    ROW(trips_sound, trip_exceeds, "count is at most 4, but trip 0 (rows) reaches 5"),
    ROW(trips_sound, loop_of_none, "count 0 is out of range"),
    ROW(trips_sound, loops_endless, "a loop of 2 iterations inside loops of 1073741824"),
    ROW(trips_sound, rows_of_none, "count 0 is out of range"),
    ROW(groups_on_chip, group_too_wide, "x 0..3"),
    ROW(groups_on_chip, group_empty, "x 2..2"),
    ROW(groups_on_chip, group_other_chip, "chips 1..2 x 0..2"),
    ROW(groups_on_chip, group_of_no_chip, "chips 0..0"),
    ROW(groups_on_chip, group_of_more_chips,
        "chips 1..3 x 0..1 y 0..1 is not a rectangle on 2 chips of 1 x 1"),
    ROW(groups_on_chip, mcast_to_two_chips,
        "(mcast, layer.attn): multicasts to group 0 on 2 chips, expected one chip"),
    ROW(groups_on_chip, flag_to_two_chips,
        "(mcast_set, layer.attn): multicasts to group 0 on 2 chips"),
    ROW(groups_on_chip, mcast_without_siblings, "buffer 0 (x) has no siblings"),
    ROW(sections_partition, sections_overlap, "begins at buffer $lf-1"),
    ROW(sections_partition, buffers_left_over, "sections hold $buffers-1 buffers"),
    ROW(sections_partition, stage_elsewhere, "names section 0"),
    ROW(sections_partition, last_section_open, "the last section does not close"),
    ROW(sections_partition, work_after_the_end, "does not end with the last section's rendezvous"),
};

int main(void) {
    RUN_BREAKAGES("verify_tables", breakages);
}
