/* SPDX-License-Identifier: Apache-2.0
 *
 * The family of mutations of what goes to other sites or moves inside one
 * (order_mutate_family.h): sends become multicasts and the other way round, go elsewhere, change
 * places with their flags; copies change engines; writes become copies inside DRAM.
 */
#include "tests/support/order_mutate_family.h"

#include "tests/support/random_model.h"
#include "tilewright/op_schema.h"

/* SEND and MCAST have the same operands, but for the group. */
static void other_transport(const struct order_mutant *m, struct tw_op *op, uint64_t *seed) {
    struct tw_operand *to = &op->operand[TW_SEND_destination];
    if (op->code == TW_OP_MCAST) {
        op->code = TW_OP_SEND;
        op->n_operands = TW_SEND_COUNT;
        uint32_t there =
            to->id < m->p.n_buffers
                ? tw_buffer_sibling(&m->p, &m->p.buffers[to->id], random_below(seed, m->p.n_sites))
                : TW_NONE;
        to->id = there == TW_NONE ? to->id : there;
        return;
    }
    op->code = TW_OP_MCAST;
    op->n_operands = TW_MCAST_COUNT;
    tw_set_number(&op->operand[TW_MCAST_group], TW_KIND_GROUP, random_below(seed, m->p.n_groups));
}

/* Another buffer, or the same one of another site. */
static void other_place(const struct order_mutant *m, struct tw_op *op, uint64_t *seed) {
    struct tw_operand *to = &op->operand[TW_SEND_destination];
    uint32_t there =
        to->id < m->p.n_buffers && random_below(seed, 2)
            ? tw_buffer_sibling(&m->p, &m->p.buffers[to->id], random_below(seed, m->p.n_sites))
            : TW_NONE;
    to->id = there != TW_NONE ? there : random_below(seed, m->p.n_buffers);
}

static void cut_op(struct order_mutant *m, uint32_t stream, uint32_t op) {
    uint32_t at = order_word_of(&m->streams[stream], op);
    order_splice(m, stream, at, order_size_at(&m->streams[stream], at), NULL, 0);
}

/* Moves an op to another place of its stream, or to another engine of its site. */
static void move(struct order_mutant *m, struct order_place p, uint32_t stream, uint32_t op,
                 struct tw_op *o) {
    uint32_t words[TW_MAX_OP_WORDS], n = tw_op_encode(o, words);
    cut_op(m, p.stream, p.op);
    uint32_t count = order_op_count(&m->streams[stream]);
    op = op < count ? op : count;
    order_splice(m, stream, order_word_of(&m->streams[stream], op), 0, words, n);
}

/* The number of the next flag after an op, or of the op itself. */
static uint32_t next_flag(const struct tw_stream *s, uint32_t op) {
    uint32_t i = 0;
    for (uint32_t at = 0; at < s->n_words; at += s->words[at] >> 16, i++) {
        uint32_t code = s->words[at] & 0xFFFFu;
        if (i > op && (code == TW_OP_SEM_INC || code == TW_OP_MCAST_SET)) {
            return i;
        }
    }
    return op;
}

static void change_copy(struct order_mutant *m, struct order_place p, struct tw_op *op,
                        uint64_t *seed);

/* Half of the bytes, from or to the other half; or two rows of them, next to each other or not.
 * SEND, MCAST, COPY and DRAM_COPY begin with the same operands. */
static void other_windows(struct tw_op *op, uint64_t *seed) {
    struct tw_operand *o = op->operand;
    uint32_t half = o[TW_SEND_row_bytes].id / 2 & ~3u;
    bool rows = random_below(seed, 2);
    o[TW_SEND_row_bytes].id = half;
    o[TW_SEND_source].offset.base += random_below(seed, 2) * half;
    o[TW_SEND_destination].offset.base += random_below(seed, 2) * half;
    if (rows && o[TW_SEND_rows].id == TW_NONE) {
        o[TW_SEND_rows].max *= 2;
        o[TW_SEND_source_stride].id = random_below(seed, 3) * half;
        o[TW_SEND_destination_stride].id = random_below(seed, 3) * half;
    }
}

_Static_assert((unsigned)TW_SEND_rows == TW_COPY_rows &&
                   (unsigned)TW_SEND_rows == TW_DRAM_COPY_rows &&
                   (unsigned)TW_SEND_rows == TW_MCAST_rows,
               "they are of one shape");

static void change_copy_or_windows(struct order_mutant *m, struct order_place p, struct tw_op *op,
                                   uint64_t *seed) {
    if (random_below(seed, 2)) {
        change_copy(m, p, op, seed);
        return;
    }
    other_windows(op, seed);
    order_put_op(m, p.stream, order_word_of(&m->streams[p.stream], p.op), op);
}

/* A copy between tensors the other way, between other windows, by the other engine. */
static void change_dram_copy(struct order_mutant *m, struct order_place p, struct tw_op *op,
                             uint64_t *seed) {
    struct tw_operand *o = op->operand, from = o[TW_DRAM_COPY_source];
    switch (random_below(seed, 3)) {
    case 0:
        o[TW_DRAM_COPY_source] = o[TW_DRAM_COPY_destination];
        o[TW_DRAM_COPY_source].kind = TW_KIND_TENSOR_READ;
        if (random_below(seed, 2)) {
            o[TW_DRAM_COPY_destination] = from;
        }
        o[TW_DRAM_COPY_destination].kind = TW_KIND_TENSOR_WRITE;
        break;
    case 1:
        other_windows(op, seed);
        break;
    default:
        change_copy(m, p, op, seed);
        return;
    }
    order_put_op(m, p.stream, order_word_of(&m->streams[p.stream], p.op), op);
}

static void change_send(struct order_mutant *m, struct order_place p, struct tw_op *op,
                        uint64_t *seed) {
    uint32_t flag = next_flag(&m->streams[p.stream], p.op), at;
    at = order_word_of(&m->streams[p.stream], p.op);
    switch (random_below(seed, 5)) {
    case 4:
        order_describe(m, " [other windows]");
        other_windows(op, seed);
        order_put_op(m, p.stream, at, op);
        break;
    case 0:
        order_describe(m, " [other transport]");
        other_transport(m, op, seed);
        order_put_op(m, p.stream, at, op);
        break;
    case 1:
        order_describe(m, " [to another place]");
        other_place(m, op, seed);
        order_put_op(m, p.stream, at, op);
        break;
    case 2:
        order_describe(m, " [after its flag, op %u]", flag);
        move(m, p, p.stream, flag, op);
        break;
    default:
        order_describe(m, " [without its flag, op %u]", flag);
        cut_op(m, p.stream, flag);
        break;
    }
}

/* The engine that runs the copy, on the same site. */
static void change_copy(struct order_mutant *m, struct order_place p, struct tw_op *op,
                        uint64_t *seed) {
    uint32_t stream = p.stream - p.stream % TW_ENGINE_COUNT + random_below(seed, TW_ENGINE_COUNT);
    order_describe(m, " [copy to %s]", tw_engine_name(stream % TW_ENGINE_COUNT));
    if (random_below(seed, 3)) { /* its stage is the other engine's, too */
        const struct tw_stream *s = &m->streams[stream];
        op->stage = s->n_words > 1 ? s->words[1] : op->stage;
    }
    move(m, p, stream, random_below(seed, order_op_count(&m->streams[stream]) + 1), op);
}

/* WRITE becomes a copy from a tensor to the same place. */
static void change_write(struct order_mutant *m, struct order_place p, const struct tw_op *op,
                         uint64_t *seed) {
    const struct tw_operand *o = op->operand;
    struct tw_op copy = tw_make_dram_copy(
        op->stage,
        tw_in_tensor(random_below(seed, m->p.n_tensors), o[TW_WRITE_destination].instance,
                     random_below(seed, 2) ? tw_affine_const(0) : o[TW_WRITE_destination].offset),
        o[TW_WRITE_source_stride].id,
        tw_in_tensor(o[TW_WRITE_destination].id, o[TW_WRITE_destination].instance,
                     o[TW_WRITE_destination].offset),
        o[TW_WRITE_destination_stride].id, o[TW_WRITE_row_bytes].id,
        tw_count_of(o[TW_WRITE_rows].id, o[TW_WRITE_rows].max));
    order_describe(m, " [write becomes dram_copy]");
    order_put_op(m, p.stream, order_word_of(&m->streams[p.stream], p.op), &copy);
}

bool order_family_sends(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t codes[] = {TW_OP_SEND, TW_OP_MCAST, TW_OP_COPY, TW_OP_WRITE,
                                     TW_OP_DRAM_COPY};
    struct order_place p;
    struct tw_op op;
    bool found = order_choose_code(x, codes, 2, &p, seed) ||
                 order_choose_code(x, codes, sizeof codes / sizeof codes[0], &p, seed);
    if (!found || m->p.n_buffers == 0 || m->p.n_tensors == 0) {
        return false;
    }
    const struct tw_stream *s = &m->streams[p.stream];
    if (!tw_op_decode(s->words, s->n_words, order_word_of(s, p.op), &op)) {
        return false;
    }
    if (random_below(seed, 3) == 0) { /* not only sends */
        order_choose_code(x, codes + 2, 3, &p, seed);
        s = &m->streams[p.stream];
        if (!tw_op_decode(s->words, s->n_words, order_word_of(s, p.op), &op)) {
            return false;
        }
    }
    order_describe(m, " [site %u op %u %s]", s->site, p.op, tw_op_info(op.code).name);
    if (op.code == TW_OP_COPY) {
        change_copy_or_windows(m, p, &op, seed);
    } else if (op.code == TW_OP_DRAM_COPY) {
        change_dram_copy(m, p, &op, seed);
    } else if (op.code == TW_OP_WRITE) {
        change_write(m, p, &op, seed);
    } else if (op.code == TW_OP_SEND || op.code == TW_OP_MCAST) {
        change_send(m, p, &op, seed);
    }
    return true;
}
