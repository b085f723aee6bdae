/* SPDX-License-Identifier: Apache-2.0
 *
 * Rule 10, operand_types: dtypes, packings, strides, alignments, immediates.
 */
#include "tests/support/verify_kit.h"

/* ---- operand_types ---- */
BREAK(x_of_other_blocks) {
    CHANGE(b, MATH, MATMUL, 0, op.operand[0].id = SMALL_BUF(SMALL_XK, 0));
}
BREAK(depth_odd) {
    CHANGE(b, MATH, MATMUL, 0, op.operand[TW_MATMUL_k].id = 31);
}
BREAK(panels_huge) {
    CHANGE(b, MATH, MATMUL, 1, op.operand[TW_MATMUL_panels].id = TW_NONE);
}
BREAK(weights_of_other_dtype) {
    CHANGE(b, MATH, MATMUL, 1, op.operand[TW_MATMUL_dtype].id = TW_DT_F16);
}
BREAK(weights_unaligned) {
    CHANGE(b, LOAD, READ, 2, op.operand[0].offset.base = 32);
}
BREAK(weight_page_size) {
    for (uint32_t s = 0; s < SMALL_SITES; s++) {
        b->buffers[SMALL_BUF(SMALL_WF, s)].page_bytes = 580;
    }
}
BREAK(offset_unaligned) {
    CHANGE(b, MATH, LAST_ROW, 0, op.operand[0].offset.base = 2);
}
BREAK(stride_unaligned) {
    CHANGE(b, MATH, QUANT, 0, op.operand[1].id = 126);
}
BREAK(stride_short) {
    CHANGE(b, MATH, QUANT, 0, op.operand[3].id = 36);
}
BREAK(head_dim_odd) {
    CHANGE(b, MATH, ATTN_INIT, 0, op.operand[2].id = 15);
}
BREAK(head_dim_of_cache) {
    CHANGE(b, STORE, KEY_WRITE, 0, op.operand[5].id = 8);
}
BREAK(keys_into_values) {
    CHANGE(b, STORE, KEY_WRITE, 0, op.operand[2].id = SMALL_VALUES);
}
BREAK(state_heads) {
    CHANGE(b, MATH, ATTN_STEP, 0, op.operand[TW_ATTN_STEP_first].id = 1);
}
BREAK(gather_cols) {
    CHANGE(b, LOAD, GATHER, 0, op.operand[4].id = 16);
}
BREAK(gather_ids_dtype) {
    CHANGE(b, LOAD, GATHER, 0, op.operand[1].id = SMALL_FREQ);
}
BREAK(copy_to_other_dtype) {
    CHANGE(b, MATH, COPY, 1, op.operand[0].id = SMALL_BUF(SMALL_XQ, 0));
}
BREAK(quant_of_quants) {
    CHANGE(b, MATH, QUANT, 0, op.operand[0].id = SMALL_BUF(SMALL_XQ, 0));
}
BREAK(epsilon_nan) {
    CHANGE(b, MATH, RMS_NORM, 0, op.operand[6].id = 0x7FC00000u);
}
BREAK(tensor_size) {
    b->tensors[SMALL_W].bytes -= 64;
}
BREAK(tensor_shape) {
    b->tensors[SMALL_KEYS].rows = 100;
}

static const struct breakage breakages[] = {
    ROW(operand_types, x_of_other_blocks,
        "x is q8k, which does not go with q8_0 weights (they need f32 or q8s)"),
    ROW(operand_types, depth_odd, "depth 31 is not a multiple of 32"),
    ROW(operand_types, panels_huge, "panels, is 4294967295"),
    ROW(operand_types, weights_of_other_dtype, "w is in a f32 buffer"),
    ROW(operand_types, weights_unaligned, "fills weight buffer 6 (wf)"),
    ROW(operand_types, weight_page_size, "pages of 580 bytes"),
    ROW(operand_types, offset_unaligned, "x is not aligned to 4 bytes"),
    ROW(operand_types, stride_unaligned, "is 126"),
    ROW(operand_types, stride_short, "y writes rows of 40 bytes every 36 bytes"),
    ROW(operand_types, head_dim_odd, "is 15"),
    ROW(operand_types, head_dim_of_cache, "heads of 8 into"),
    ROW(operand_types, keys_into_values, "packed as 3"),
    ROW(operand_types, state_heads, "heads 1 + 1 of a state of 1 heads"),
    ROW(operand_types, gather_cols, "16 columns of a table of 32"),
    ROW(operand_types, gather_ids_dtype, "ids is in a f32 tensor"),
    ROW(operand_types, copy_to_other_dtype, "moves q8s to f32"),
    ROW(operand_types, quant_of_quants, "x is in a q8s buffer"),
    ROW(operand_types, epsilon_nan, "operand 6 is not a finite number"),
    ROW(operand_types, tensor_size, "1088 bytes, but its shape needs 1152"),
    ROW(operand_types, tensor_shape, "cannot hold 100 x 32"),
};

int main(void) {
    RUN_BREAKAGES("verify_operands", breakages);
}
