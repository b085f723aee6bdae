/* SPDX-License-Identifier: Apache-2.0
 *
 * Mutants of sums that are split: another window of k or of columns, of the same size or not, other
 * panels, other parts. The numbers change together, so that most mutants are still sums.
 */
#include "tests/support/order_mutate_family.h"
#include "tests/support/order_mutate_number.h"
#include "tests/support/random_model.h"
#include "tilewright/op_schema.h"

/* Moves a region to the second half of a window of `size`, if so: `step` bytes an element. */
static void shift(struct tw_op *op, uint32_t size, uint32_t region, uint64_t step, bool second) {
    uint32_t half = op->operand[size].id / 2;
    op->operand[region].offset.base += second ? (uint64_t)half * step : 0;
}

static void window_of_product(const struct tw_program *p, struct tw_op *op, uint64_t *seed) {
    struct tw_operand *o = op->operand;
    bool second = random_below(seed, 2), quants = o[TW_MATMUL_dtype].id != TW_DT_F32;
    switch (random_below(seed, 4)) {
    case 0:
        if (p->buffers[o[TW_MATMUL_x].id].dtype == TW_DT_F32) {
            shift(op, TW_MATMUL_k, TW_MATMUL_x, 4, second);
        }
        shift(op, TW_MATMUL_k, TW_MATMUL_w, quants ? 0 : 64, second);
        o[TW_MATMUL_k].id /= 2;
        break;
    case 1: /* every other panel */
        o[TW_MATMUL_w_stride].id *= 2;
        o[TW_MATMUL_panels].id = (o[TW_MATMUL_panels].id + 1) / 2;
        break;
    case 2:
        o[TW_MATMUL_w_stride].id = (uint32_t)order_tweak(o[TW_MATMUL_w_stride].id, seed) & ~63u;
        o[TW_MATMUL_w].offset.base += 64u * random_below(seed, 4);
        break;
    default: /* onto what is there, or is not */
        o[TW_MATMUL_reload].id ^= 1u;
        o[TW_MATMUL_y].offset.base += 64u * random_below(seed, 2);
        break;
    }
}

static void parts_of_fold(struct tw_op *op, uint64_t *seed) {
    struct tw_operand *o = op->operand;
    if (random_below(seed, 2)) {
        o[TW_FOLD_parts].id *= 2;
        o[TW_FOLD_cols].id = (o[TW_FOLD_cols].id + 1) / 2;
    } else {
        o[TW_FOLD_parts].id += 1 - 2 * random_below(seed, 2);
        o[TW_FOLD_x].offset.base += 4u * o[TW_FOLD_cols].id * random_below(seed, 2);
    }
}

static void window_of_columns(struct tw_op *op, uint64_t *seed) {
    bool second = random_below(seed, 2), sum = op->code == TW_OP_SQUARES;
    uint32_t cols = sum ? TW_SQUARES_cols : TW_RMS_SCALE_cols;
    shift(op, cols, sum ? TW_SQUARES_x : TW_RMS_SCALE_x, 4, second);
    if (!sum) {
        shift(op, cols, TW_RMS_SCALE_weight, 4, second);
        shift(op, cols, TW_RMS_SCALE_y, 4, random_below(seed, 2));
    }
    op->operand[cols].id = (op->operand[cols].id + 1) / 2;
}

bool order_family_sums(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t ops[] = {TW_OP_MATMUL, TW_OP_FOLD, TW_OP_SQUARES, TW_OP_RMS_SCALE};
    struct order_place at;
    struct tw_op op;
    if (!order_choose_code(x, ops, sizeof ops / sizeof *ops, &at, seed)) {
        return false;
    }
    const struct tw_stream *s = &m->streams[at.stream];
    uint32_t word = order_word_of(s, at.op);
    if (!tw_op_decode(s->words, s->n_words, word, &op)) {
        return false;
    }
    order_describe(m, " [site %u %s op %u %s]", s->site, tw_engine_name(s->engine), at.op,
                   tw_op_info(op.code).name);
    if (op.code == TW_OP_MATMUL) {
        window_of_product(&m->p, &op, seed);
    } else if (op.code == TW_OP_FOLD) {
        parts_of_fold(&op, seed);
    } else {
        window_of_columns(&op, seed);
    }
    order_put_op(m, at.stream, word, &op);
    return true;
}
