/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of mutations of what kernels agree on (order_mutate_family.h): lists of the best and
 * their merges, weights and activations of a type, rows that go to caches, states that are merged.
 * What belongs together changes together, most of the time.
 */
#include "tests/support/order_mutate_family.h"

#include "tests/support/order_mutate_number.h"
#include "tests/support/random_model.h"
#include "tilewright/op_schema.h"

#include <stdlib.h>

/* Chooses an op and decodes it. */
static bool choose(const struct order_index *x, const struct order_mutant *m, const uint32_t *codes,
                   uint32_t n, struct order_place *p, struct tw_op *op, uint64_t *seed) {
    if (!order_choose_code(x, codes, n, p, seed)) {
        return false;
    }
    const struct tw_stream *s = &m->streams[p->stream];
    return tw_op_decode(s->words, s->n_words, order_word_of(s, p->op), op);
}

static void put(struct order_mutant *m, struct order_place p, struct tw_op *op) {
    order_put_op(m, p.stream, order_word_of(&m->streams[p.stream], p.op), op);
}

/* They keep their kinds. */
static void swap(struct tw_operand *a, struct tw_operand *b) {
    struct tw_operand was = *a;
    char kind = b->kind;
    *a = *b;
    a->kind = was.kind;
    *b = was;
    b->kind = kind;
}

/* ---- lists of the best ---- */

struct lists {
    uint32_t stream, list, k, new_k;
};

/* All lists of a buffer have other numbers of entries; they lie as they did. */
static bool set_tops(void *ctx, uint32_t stream, struct tw_op *op) {
    const struct lists *x = ctx;
    struct tw_operand *o = op->operand;
    if (stream != x->stream) {
        return false;
    }
    if (op->code == TW_OP_TOPK && o[TW_TOPK_y].id == x->list && o[TW_TOPK_k].id == x->k) {
        o[TW_TOPK_k].id = x->new_k;
        return true;
    }
    if (op->code == TW_OP_TOPK_MERGE && o[TW_TOPK_MERGE_x].id == x->list &&
        o[TW_TOPK_MERGE_k].id == x->k) {
        o[TW_TOPK_MERGE_k].id = x->new_k;
        return true;
    }
    return false;
}

static void change_topk(struct tw_op *op, uint64_t *seed) {
    struct tw_operand *o = op->operand;
    struct tw_affine *base = &o[TW_TOPK_base].offset;
    switch (random_below(seed, 5)) {
    case 0: /* a shard of other columns: with another base, or the same */
        o[TW_TOPK_x].offset.base += 4u * random_below(seed, 9);
        base->base += random_below(seed, 9);
        break;
    case 1: /* up to the last id that there may be */
        base->base = 0x7FFFFFFFu - o[TW_TOPK_cols].id + random_below(seed, 2);
        break;
    case 2:
        *base = tw_affine_plus(*base, random_below(seed, TW_MAX_VARS), random_below(seed, 64));
        break;
    case 3: /* fewer columns than entries */
        o[TW_TOPK_cols].id = 1 + random_below(seed, o[TW_TOPK_k].id + 1);
        break;
    default:
        o[TW_TOPK_y_stride].id = (uint32_t)order_tweak(o[TW_TOPK_y_stride].id, seed);
        o[TW_TOPK_x_stride].id = (uint32_t)order_tweak(o[TW_TOPK_x_stride].id, seed);
        o[TW_TOPK_rows].max = 1 + random_below(seed, 2);
        break;
    }
}

static void change_merge(struct tw_op *op, uint64_t *seed) {
    struct tw_operand *o = op->operand;
    switch (random_below(seed, 4)) {
    case 0:
        swap(&o[TW_TOPK_MERGE_x], &o[TW_TOPK_MERGE_y]);
        break;
    case 1: /* in place of the other one, which is not allowed */
        o[TW_TOPK_MERGE_z].offset = o[TW_TOPK_MERGE_y].offset;
        break;
    case 2: /* in place, but for some bytes */
        o[TW_TOPK_MERGE_z].offset = o[TW_TOPK_MERGE_x].offset;
        o[TW_TOPK_MERGE_z].offset.base += 4u * random_below(seed, 9);
        break;
    default: /* with itself */
        o[TW_TOPK_MERGE_y].offset = o[TW_TOPK_MERGE_x].offset;
        o[TW_TOPK_MERGE_y].id = o[TW_TOPK_MERGE_x].id;
        break;
    }
}

bool order_family_lists(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t codes[] = {TW_OP_TOPK, TW_OP_TOPK_MERGE};
    struct order_place p;
    struct tw_op op;
    if (!choose(x, m, codes, 2, &p, &op, seed)) {
        return false;
    }
    bool topk = op.code == TW_OP_TOPK;
    order_describe(m, " [stream %u op %u %s]", p.stream, p.op, tw_op_info(op.code).name);
    if (random_below(seed, 3) == 0) {
        struct lists l = {.stream = p.stream,
                          .list = op.operand[topk ? (uint32_t)TW_TOPK_y : TW_TOPK_MERGE_x].id,
                          .k = op.operand[topk ? (uint32_t)TW_TOPK_k : TW_TOPK_MERGE_k].id};
        l.new_k =
            random_below(seed, 4) ? 1 + random_below(seed, 9) : (uint32_t)order_tweak(l.k, seed);
        uint32_t n = order_each_op(m, set_tops, &l);
        order_describe(m, " [%u lists of %u entries, not %u]", n, l.new_k, l.k);
        return true;
    }
    if (topk) {
        change_topk(&op, seed);
    } else {
        change_merge(&op, seed);
    }
    put(m, p, &op);
    return true;
}

/* ---- types of weights ---- */

struct types {
    uint32_t from, to, only;
    uint64_t seed;
};

static bool set_type(void *ctx, uint32_t stream, struct tw_op *op) {
    struct types *x = ctx;
    (void)stream;
    if (op->code != TW_OP_MATMUL || op->operand[TW_MATMUL_dtype].id != x->from ||
        random_below(&x->seed, x->only)) {
        return false;
    }
    op->operand[TW_MATMUL_dtype].id = x->to;
    return true;
}

static uint32_t any_weights(uint64_t *seed) {
    uint32_t dtype = 0;
    do {
        dtype = random_below(seed, TW_DT_COUNT);
    } while (!(TW_WEIGHT_DTYPES >> dtype & 1u) && random_below(seed, 16));
    return dtype;
}

/* Params, and the buffers that keep or carry them, are of another type; their bytes may follow. */
static void retype(struct order_mutant *m, const struct types *x, uint64_t *seed) {
    struct tw_tensor *t = order_own_table(m, m->p.tensors, m->p.n_tensors, 0, sizeof *t);
    struct tw_buffer *b = order_own_table(m, m->p.buffers, m->p.n_buffers, 0, sizeof *b);
    bool tensors = random_below(seed, 4), bytes = random_below(seed, 4);
    for (uint32_t i = 0; i < m->p.n_tensors && tensors; i++) {
        if (t[i].dtype == x->from && t[i].packing == TW_PACK_PANEL16) {
            t[i].dtype = (uint8_t)x->to;
            t[i].bytes =
                bytes ? tw_panels(t[i].rows) * tw_panel_bytes(x->to, t[i].cols) : t[i].bytes;
        }
    }
    for (uint32_t i = 0; i < m->p.n_buffers; i++) {
        const struct tw_tensor *kept = tw_buffer_pinned(&m->p, &b[i]);
        if (b[i].dtype == x->from && kept && kept->packing == TW_PACK_PANEL16) {
            b[i].dtype = (uint8_t)x->to;
            b[i].page_bytes = bytes && !b[i].window_rows ? t[b[i].tensor].bytes : b[i].page_bytes;
        }
    }
    m->p.tensors = t;
    m->p.buffers = b;
}

/* QUANT for the other blocks: its result, and who reads it, may be of their type. */
static void other_quant(struct order_mutant *m, struct order_place p, struct tw_op *op,
                        uint64_t *seed) {
    bool to_k = op->code == TW_OP_QUANT;
    uint32_t y = op->operand[TW_QUANT_y].id, found = y;
    op->code = to_k ? TW_OP_QUANT_K : TW_OP_QUANT;
    for (uint32_t i = 0; i < m->p.n_buffers && random_below(seed, 64); i++) {
        if (m->p.buffers[i].dtype == (to_k ? TW_DT_Q8K : TW_DT_Q8S) &&
            m->p.buffers[i].site == p.stream / TW_ENGINE_COUNT) {
            found = i;
        }
    }
    op->operand[TW_QUANT_y].id = found;
    if (random_below(seed, 2)) {
        op->operand[TW_QUANT_cols].id = to_k ? 256 : 32 * (1 + random_below(seed, 8));
    }
    put(m, p, op);
    if (random_below(seed, 3) == 0 && y < m->p.n_buffers) {
        struct tw_buffer *b = order_own_table(m, m->p.buffers, m->p.n_buffers, 0, sizeof *b);
        b[y].dtype = to_k ? TW_DT_Q8K : TW_DT_Q8S;
        m->p.buffers = b;
    }
}

/* A product of another buffer of the site: of floats, which go with all weights, or of any type. */
static void other_factor(struct order_mutant *m, struct order_place p, struct tw_op *op,
                         uint64_t *seed) {
    bool any = random_below(seed, 4) == 0;
    uint32_t from = random_below(seed, m->p.n_buffers);
    for (uint32_t k = 0; k < m->p.n_buffers; k++) {
        uint32_t i = (from + k) % m->p.n_buffers;
        if (m->p.buffers[i].site == p.stream / TW_ENGINE_COUNT &&
            (any || m->p.buffers[i].dtype == TW_DT_F32)) {
            op->operand[TW_MATMUL_x].id = i;
            break;
        }
    }
    if (random_below(seed, 2)) {
        op->operand[TW_MATMUL_x_stride].id = op->operand[TW_MATMUL_k].id * 4;
    }
    put(m, p, op);
    order_describe(m, " [x is buffer %u]", op->operand[TW_MATMUL_x].id);
}

bool order_family_types(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t codes[] = {TW_OP_MATMUL, TW_OP_QUANT, TW_OP_QUANT_K};
    struct order_place p;
    struct tw_op op;
    if (!choose(x, m, codes, 3, &p, &op, seed)) {
        return false;
    }
    struct tw_operand *o = op.operand;
    order_describe(m, " [stream %u op %u %s]", p.stream, p.op, tw_op_info(op.code).name);
    if (op.code != TW_OP_MATMUL) {
        if (random_below(seed, 2)) {
            other_quant(m, p, &op, seed);
        } else {
            o[TW_QUANT_cols].id += random_below(seed, 2) ? 32 : (uint32_t)-32;
            o[TW_QUANT_y_stride].id = (uint32_t)order_tweak(o[TW_QUANT_y_stride].id, seed);
            put(m, p, &op);
        }
        return true;
    }
    if (random_below(seed, 3) == 0) {
        other_factor(m, p, &op, seed);
        return true;
    }
    struct types t = {
        .from = o[TW_MATMUL_dtype].id, .to = any_weights(seed), .only = 1 + random_below(seed, 2)};
    t.seed = random_next(seed);
    uint32_t n = 0;
    if (random_below(seed, 4)) {
        retype(m, &t, seed);
    }
    n = order_each_op(m, set_type, &t);
    order_describe(m, " [%u products of %s, not %s]", n, tw_dtype_name(t.to),
                   tw_dtype_name(t.from));
    return true;
}

/* ---- rows of caches ---- */

/* Keys as values, with the cache packed for them or not. */
static void other_cache(struct order_mutant *m, struct tw_op *op, uint64_t *seed) {
    uint32_t id = op->operand[TW_KEY_WRITE_cache].id;
    bool keys = op->code == TW_OP_KEY_WRITE;
    op->code = keys ? TW_OP_VALUE_WRITE : TW_OP_KEY_WRITE;
    if (random_below(seed, 2) && id < m->p.n_tensors) {
        struct tw_tensor *t = order_own_table(m, m->p.tensors, m->p.n_tensors, 0, sizeof *t);
        t[id].packing = keys ? TW_PACK_VALUES : TW_PACK_KEYS;
        m->p.tensors = t;
    }
}

static void other_heads(struct order_mutant *m, struct tw_op *op, uint64_t *seed) {
    struct tw_operand *o = op->operand;
    uint32_t id = o[TW_KEY_WRITE_cache].id;
    switch (random_below(seed, 4)) {
    case 0:
        o[TW_KEY_WRITE_first].id += 1;
        break;
    case 1:
        o[TW_KEY_WRITE_heads].id += random_below(seed, 2) ? 1 : (uint32_t)-1;
        break;
    case 2: /* one head of twice the size */
        o[TW_KEY_WRITE_head_dim].id *= 2;
        o[TW_KEY_WRITE_heads].id = (o[TW_KEY_WRITE_heads].id + 1) / 2;
        if (random_below(seed, 2) && id < m->p.n_tensors) {
            struct tw_tensor *t = order_own_table(m, m->p.tensors, m->p.n_tensors, 0, sizeof *t);
            t[id].head_dim *= 2;
            m->p.tensors = t;
        }
        break;
    default:
        o[TW_KEY_WRITE_source_stride].id =
            (uint32_t)order_tweak(o[TW_KEY_WRITE_source_stride].id, seed);
        break;
    }
}

/* Positions up to the end of the cache, or of the pages that the table has after the element. */
static void other_position(struct order_mutant *m, struct tw_op *op, uint64_t *seed) {
    struct tw_operand *o = op->operand, *pos = &o[TW_KEY_WRITE_pos];
    uint32_t id = o[TW_KEY_WRITE_cache].id, rows = id < m->p.n_tensors ? m->p.tensors[id].rows : 64;
    if (o[TW_KEY_WRITE_cache].paged && random_below(seed, 2)) {
        o[TW_KEY_WRITE_cache].element.base += random_below(seed, 4);
    } else if (pos->id == TW_NONE || random_below(seed, 3) == 0) {
        pos->id = TW_NONE;
        pos->max = rows - random_below(seed, 6);
    } else if (pos->id < m->p.n_trips) {
        struct tw_trip *t = order_own_table(m, m->p.trips, m->p.n_trips, 0, sizeof *t);
        t[pos->id].max = pos->max = rows - random_below(seed, 6);
        t[pos->id].add += (int32_t)(rows - 4);
        m->p.trips = t;
    }
}

bool order_family_caches(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t codes[] = {TW_OP_KEY_WRITE, TW_OP_VALUE_WRITE};
    struct order_place p;
    struct tw_op op;
    if (!choose(x, m, codes, 2, &p, &op, seed)) {
        return false;
    }
    uint32_t way = random_below(seed, 3);
    order_describe(m, " [stream %u op %u %s, way %u]", p.stream, p.op, tw_op_info(op.code).name,
                   way);
    if (way == 0) {
        other_cache(m, &op, seed);
    } else if (way == 1) {
        other_heads(m, &op, seed);
    } else {
        other_position(m, &op, seed);
    }
    put(m, p, &op);
    return true;
}

/* ---- states ---- */

bool order_family_states(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t codes[] = {TW_OP_ATTN_MERGE, TW_OP_ATTN_DONE, TW_OP_ATTN_INIT};
    struct order_place p;
    struct tw_op op;
    if (!choose(x, m, codes, 1, &p, &op, seed) && !choose(x, m, codes, 3, &p, &op, seed)) {
        return false;
    }
    struct tw_operand *o = op.operand;
    uint32_t way = random_below(seed, 4);
    order_describe(m, " [stream %u op %u %s, way %u]", p.stream, p.op, tw_op_info(op.code).name,
                   way);
    if (op.code == TW_OP_ATTN_INIT) {
        uint32_t *heads = &o[TW_ATTN_INIT_heads].id;
        *heads = way ? *heads + 1 - 2 * random_below(seed, 2) : *heads * 2;
    } else if (op.code == TW_OP_ATTN_DONE) {
        uint32_t *segments = &o[TW_ATTN_DONE_segments].id;
        *segments = way ? *segments + 1 - 2 * random_below(seed, 2) : 1;
    } else if (way == 0) {
        swap(&o[TW_ATTN_MERGE_x], &o[TW_ATTN_MERGE_state]);
    } else if (way == 1) { /* with itself, or what it overlaps */
        o[TW_ATTN_MERGE_x].offset = o[TW_ATTN_MERGE_state].offset;
        o[TW_ATTN_MERGE_x].offset.base += 4u * random_below(seed, 40);
    } else if (way == 2) { /* two rows of half of the heads */
        o[TW_ATTN_MERGE_heads].id = (o[TW_ATTN_MERGE_heads].id + 1) / 2;
        o[TW_ATTN_MERGE_x_stride].id /= 2;
        o[TW_ATTN_MERGE_state_stride].id /= random_below(seed, 2) + 1;
        o[TW_ATTN_MERGE_rows].max = 2;
    } else {
        o[TW_ATTN_MERGE_heads].id += 1 - 2 * random_below(seed, 2);
    }
    put(m, p, &op);
    return true;
}
