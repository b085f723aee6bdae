/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of mutations of attention (order_mutate_family.h): the segments that a state holds, and
 * with which one it begins, in all ops that have to agree; merges of its segments; and the type of
 * the caches with everything that names it.
 */
#include "tests/support/order_mutate_family.h"

#include "tests/support/order_mutate_number.h"
#include "tests/support/random_model.h"
#include "tilewright/op_schema.h"

struct keys {
    uint32_t stream, state, segments; /* of the op that was chosen */
    uint32_t new_segments;
    uint32_t from;   /* added to the first segment */
    uint64_t blocks; /* added to the blocks */
    uint32_t dtype;
};

static bool is_state(const struct tw_op *op, uint32_t operand, const struct keys *k) {
    return op->operand[operand].id == k->state;
}

/* The operands of an attn_window begin with those of an attn_step. */
static bool is_step(uint32_t code) {
    return code == TW_OP_ATTN_STEP || code == TW_OP_ATTN_WINDOW;
}

/* All ops that use the state take other segments; they keep the number of heads. */
static bool resize(void *ctx, uint32_t stream, struct tw_op *op) {
    const struct keys *k = ctx;
    if (stream != k->stream) {
        return false;
    }
    if (is_step(op->code) && is_state(op, TW_ATTN_STEP_state, k)) {
        op->operand[TW_ATTN_STEP_segments].id = k->new_segments;
        return true;
    }
    if (op->code == TW_OP_ATTN_DONE && is_state(op, TW_ATTN_DONE_state, k)) {
        op->operand[TW_ATTN_DONE_segments].id = k->new_segments;
        return true;
    }
    if (op->code == TW_OP_ATTN_INIT && is_state(op, TW_ATTN_INIT_state, k)) {
        uint32_t *heads = &op->operand[TW_ATTN_INIT_heads].id;
        *heads = *heads / k->segments * k->new_segments;
        return true;
    }
    return false;
}

static bool shift(void *ctx, uint32_t stream, struct tw_op *op) {
    const struct keys *k = ctx;
    if (stream != k->stream || !is_step(op->code)) {
        return false;
    }
    op->operand[TW_ATTN_STEP_segment].id += k->from;
    op->operand[TW_ATTN_STEP_block].offset.base += k->blocks;
    return true;
}

/* The state's last segment is merged into its first, once more, before the division. */
static void merge(struct order_mutant *m, const struct tw_op *step, const struct keys *k,
                  uint64_t *seed) {
    struct tw_stream *s = &m->streams[k->stream];
    uint32_t words[TW_MAX_OP_WORDS],
        each = step->operand[TW_ATTN_STEP_state_heads].id *
               (step->operand[TW_ATTN_STEP_head_dim].id + 2) * 4,
        at = 0;
    struct tw_op op;
    while (tw_op_decode(s->words, s->n_words, at, &op) &&
           !(op.code == TW_OP_ATTN_DONE && is_state(&op, TW_ATTN_DONE_state, k))) {
        at += op.n_words;
    }
    if (at >= s->n_words) {
        return;
    }
    struct tw_buffer_at to = {k->state, op.operand[TW_ATTN_DONE_state].offset}, from = to;
    from.offset.base += (uint64_t)(k->segments - 1) * each;
    if (random_below(seed, 2)) {
        from.offset.base = order_tweak(from.offset.base, seed);
    }
    struct tw_count rows = {op.operand[TW_ATTN_DONE_rows].id, op.operand[TW_ATTN_DONE_rows].max};
    struct tw_op made = tw_make_attn_merge(
        op.stage, from, each * k->segments, to, each * k->segments,
        step->operand[TW_ATTN_STEP_state_heads].id, step->operand[TW_ATTN_STEP_head_dim].id, rows);
    order_splice(m, k->stream, at, 0, words, tw_op_encode(&made, words));
}

static bool set_dtype(void *ctx, uint32_t stream, struct tw_op *op) {
    const struct keys *k = ctx;
    (void)stream;
    if (!is_step(op->code)) {
        return false;
    }
    op->operand[TW_ATTN_STEP_dtype].id = k->dtype;
    return true;
}

/* The caches, and the steps that read them, are of another type; the pages may be, too. */
static void retype(struct order_mutant *m, struct keys *k, uint64_t *seed) {
    struct tw_tensor *t = order_own_table(m, m->p.tensors, m->p.n_tensors, 0, sizeof *t);
    for (uint32_t i = 0; i < m->p.n_tensors; i++) {
        if (t[i].packing == TW_PACK_KEYS || t[i].packing == TW_PACK_VALUES) {
            t[i].dtype = (uint8_t)k->dtype;
            t[i].bytes = t[i].rows * tw_row_bytes(k->dtype, t[i].cols);
        }
    }
    m->p.tensors = t;
    if (random_below(seed, 2)) {
        (void)order_each_op(m, set_dtype, k);
    }
}

bool order_family_keys(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t codes[] = {TW_OP_ATTN_STEP, TW_OP_ATTN_WINDOW};
    struct order_place p;
    struct tw_op op;
    if (!order_choose_code(x, codes, 2, &p, seed)) {
        return false;
    }
    const struct tw_stream *s = &m->streams[p.stream];
    if (!tw_op_decode(s->words, s->n_words, order_word_of(s, p.op), &op)) {
        return false;
    }
    struct keys k = {.stream = p.stream,
                     .state = op.operand[TW_ATTN_STEP_state].id,
                     .segments = op.operand[TW_ATTN_STEP_segments].id};
    uint32_t way = random_below(seed, 5);
    switch (way) {
    case 0:
        k.new_segments = 1 + random_below(seed, 4);
        (void)order_each_op(m, resize, &k);
        break;
    case 1: /* together they are right, as far as the caches reach */
        k.from = 1 + random_below(seed, 2);
        k.blocks = (uint64_t)k.from * (TW_KEY_SEGMENT / TW_KV_BLOCK);
        (void)order_each_op(m, shift, &k);
        break;
    case 2:
        k.from = random_below(seed, 2);
        k.blocks = k.from ? random_below(seed, 9) : 0 - (uint64_t)random_below(seed, 9);
        (void)order_each_op(m, shift, &k);
        break;
    case 3:
        merge(m, &op, &k, seed);
        break;
    default:
        k.dtype = random_below(seed, 3) ? op.operand[TW_ATTN_STEP_dtype].id ^ 1u
                                        : random_below(seed, TW_DT_COUNT);
        retype(m, &k, seed);
        break;
    }
    order_describe(m, " [keys, way %u, at op %u of stream %u]", way, p.op, p.stream);
    return true;
}
