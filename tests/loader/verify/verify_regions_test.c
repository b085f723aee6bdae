/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of regions: 7 region_in_buffer, 8 region_in_tensor, 17 regions_apart.
 */
#include "tests/support/verify_kit.h"

/* ---- region_in_buffer ---- */
BREAK(rows_too_many) {
    CHANGE(b, MATH, QUANT, 0, op.operand[5].max = 5);
}
BREAK(step_too_far) {
    CHANGE(b, MATH, QUANT, 0, op.operand[0].offset = pb_v(0, 1, 4));
}
BREAK(step_below) {
    CHANGE(b, MATH, QUANT, 0, op.operand[0].offset = pb_v(0, 1, (uint64_t)-4));
}
BREAK(step_wraps) {
    CHANGE(b, MATH, QUANT, 0, op.operand[0].offset = pb_v(0, 1, 1ull << 63));
}
BREAK(two_pages) {
    CHANGE(b, LOAD, RESERVE, 2, op.operand[1].id = 2);
    CHANGE(b, LOAD, READ, 1, op.operand[1].offset.base = 64);
}
BREAK(page_not_waited_for) {
    CHANGE(b, MATH, RMS_NORM, 0, op.operand[2].offset.base = 128);
}
BREAK(page_not_reserved) {
    REMOVE(b, 0, LOAD, RESERVE, 0);
    REMOVE(b, 0, LOAD, PUSH, 0);
}
BREAK(other_site) {
    CHANGE(b, MATH, QUANT, 0, op.operand[0].id = SMALL_BUF(SMALL_XN, 1));
}

/* ---- region_in_tensor ---- */
BREAK(instance_outside) {
    CHANGE(b, LOAD, READ, 2, op.operand[0].instance.base = 1);
}
BREAK(panel_outside) {
    CHANGE(b, LOAD, READ, 2, op.operand[0].offset.base = 640);
}
BREAK(key_block_outside) {
    CHANGE(b, LOAD, LOOP, 1, op.operand[1].max = 5);
    CHANGE(b, MATH, LOOP, 1, op.operand[1].max = 5);
}
BREAK(attn_block_outside) {
    CHANGE(b, MATH, ATTN_STEP, 0, op.operand[TW_ATTN_STEP_block].offset.base = 1);
}
BREAK(position_outside) {
    CHANGE(b, STORE, KEY_WRITE, 0, op.operand[6].max = 125);
}
BREAK(head_outside) {
    CHANGE(b, STORE, VALUE_WRITE, 0, op.operand[3].id = 2);
}
BREAK(huge_read) {
    CHANGE(b, LOAD, READ, 1, op.operand[2].id = TW_NONE / 2, op.operand[4].id = 0xFFFFFFFCu);
}

/* ---- regions_apart ---- */
BREAK(norm_in_place) {
    CHANGE(b, MATH, RMS_NORM, 0, op.operand[3].id = op.operand[0].id);
}
BREAK(copy_one_row_down) {
    CHANGE(b, MATH, COPY, 0, op.operand[0].id = SMALL_BUF(SMALL_X, 0),
           op.operand[2].offset.base = 128, op.operand[5] = pb_rows(TW_NONE, 2),
           op.operand[5].kind = 'X');
}
BREAK(memory_shared) {
    for (uint32_t s = 0; s < SMALL_SITES; s++) {
        b->buffers[SMALL_BUF(SMALL_Y, s)].offset = b->buffers[SMALL_BUF(SMALL_H, s)].offset;
    }
}

static const struct breakage breakages[] = {
    ROW(region_in_buffer, rows_too_many, "x spans [0, 640) of a page of 512 bytes"),
    ROW(region_in_buffer, step_too_far, "x spans [0, 516) of a page of 512 bytes"),
    ROW(region_in_buffer, step_below, "18446744073709551615) of a page of 512 bytes"),
    ROW(region_in_buffer, step_wraps, "18446744073709551615) of a page of 512 bytes"),
    ROW(region_in_buffer, two_pages, "destination spans 128 bytes from 64 of a page of 128 bytes"),
    ROW(region_in_buffer, page_not_waited_for,
        "weight spans [128, 256), but only 1 pages of 128 bytes are waited for"),
    ROW(region_in_buffer, page_not_reserved,
        "y spans [0, 512), but only 0 pages of 512 bytes are reserved"),
    ROW(region_in_buffer, other_site, "buffer 17 (xn) is on site 1"),
    ROW(region_in_tensor, instance_outside, "uses instances up to 2 of w, which has 2"),
    ROW(region_in_tensor, panel_outside, "source spans [640, 1216) of the 1152 bytes of w"),
    ROW(region_in_tensor, key_block_outside, "source spans [0, 36864) of the 16384 bytes of keys"),
    ROW(region_in_tensor, attn_block_outside, "key blocks up to 2 of caches of 128 positions"),
    ROW(region_in_tensor, position_outside, "positions up to 129 of a cache of 128"),
    ROW(region_in_tensor, head_outside, "heads 2 + 1 of a cache of 2 heads"),
    ROW(region_in_tensor, huge_read, "of the 128 bytes of norm"),
    ROW(regions_apart, norm_in_place, "y [0, 512) of buffer 0 overlaps x [0, 512) of buffer 0"),
    ROW(regions_apart, copy_one_row_down,
        "y [128, 384) of buffer 0 overlaps x [0, 256) of buffer 0"),
    ROW(regions_apart, memory_shared, "y [0, 256) of buffer 28"),
};

int main(void) {
    RUN_BREAKAGES("verify_regions", breakages);
}
