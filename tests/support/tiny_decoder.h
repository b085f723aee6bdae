/* SPDX-License-Identifier: Apache-2.0
 *
 * A small hand-made decoder, one head per site, for tests of the tile machine: embedding lookup,
 * layers in a constant loop with streamed weights, cache writes, attention in a dynamic loop over
 * key blocks, two all-gathers and a rendezvous per layer.
 */
#ifndef TW_TESTS_SUPPORT_TINY_DECODER_H
#define TW_TESTS_SUPPORT_TINY_DECODER_H

#include "tests/support/hand_machine.h"

enum { TD_LAYERS = 3, TD_VOCAB = 24, TD_CTX = 192, TD_HEAD = 16, TD_ROWS = 4 };
enum { TD_LAYER = 1, TD_BLOCK = 2 }; /* loop variables */

struct td_options {
    uint32_t width, height;
    /* the gathered buffers are also written by their owner, so that siblings may differ */
    bool unshared;
    uint64_t misalign;
    uint32_t chips; /* 0: one; each of width x height sites */
};

struct td {
    struct pb *m;
    uint32_t dim, row;                                              /* columns, bytes of a row */
    uint32_t ids, rows_in, pos_in, end_in;                          /* Inputs */
    uint32_t embed, norm, wq, wk, wv, wo;                           /* Params */
    uint32_t keys, values, out;                                     /* State, Output */
    uint32_t rows, pos, blocks;                                     /* trips */
    uint32_t normed, cached, valid, valid2, local, gather, release; /* semaphores */
    uint32_t heads_of, delta_of;                                    /* sibling sets */
    /* group of all sites of chip 0; then one for each chip */
    uint32_t chip_sites;
    bool unshared;
};

/* Buffers of one site. */
struct td_site {
    uint32_t s;
    uint32_t in, x, norm, n, w, q, key, value, kf, vf, state, head, y, sum;
};

/* step * (epoch * layers + layer + 1) */
static inline struct tw_affine td_every_layer(uint32_t each) {
    return tw_affine_plus(tw_affine_plus(mb_at(each), 0, (uint64_t)each * TD_LAYERS), TD_LAYER,
                          each);
}

/* The release word starts just before it wraps. */
#define TD_RELEASE_START 0xFFFFFFFEu
static inline struct tw_affine td_released(void) {
    struct tw_affine a = td_every_layer(1);
    a.base += TD_RELEASE_START;
    return a;
}

static inline void td_tensors(struct td *d) {
    struct pb *m = d->m;
    uint32_t n = m->p.n_sites;
    d->ids = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, 1, TD_ROWS, 1);
    d->rows_in = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 1, 1);
    d->pos_in = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 1, 1);
    d->end_in = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 1, 1);
    d->embed = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, TD_VOCAB, d->dim, 1);
    d->norm = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 1, d->dim, TD_LAYERS);
    uint32_t *weights[] = {&d->wq, &d->wk, &d->wv, &d->wo};
    for (int i = 0; i < 4; i++) {
        *weights[i] =
            mb_tensor_bytes(m, TW_ROLE_PARAM, TW_INIT_BLOB, d->dim, d->dim, TW_PACK_PANEL16,
                            n * tw_panel_bytes(TW_DT_F32, d->dim), TD_LAYERS);
    }
    uint64_t cache = (uint64_t)TD_CTX * d->dim * 4;
    d->keys = mb_tensor_bytes(m, TW_ROLE_STATE, TW_INIT_ZERO, TD_CTX, d->dim, TW_PACK_KEYS, cache,
                              TD_LAYERS);
    d->values = mb_tensor_bytes(m, TW_ROLE_STATE, TW_INIT_ZERO, TD_CTX, d->dim, TW_PACK_VALUES,
                                cache, TD_LAYERS);
    m->tensors[d->keys].head_dim = m->tensors[d->values].head_dim = TD_HEAD;
    d->out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, TD_ROWS, d->dim, 1);
    d->rows = pb_trip(m, NULL, d->rows_in, 0, 1, TD_ROWS);
    d->pos = pb_trip(m, NULL, d->pos_in, 0, 1, TD_CTX);
    d->blocks = pb_trip(m, NULL, d->end_in, 0, TW_KV_BLOCK, TD_CTX / TW_KV_BLOCK);
    for (uint32_t t = d->embed; t <= d->wo; t++) {
        mb_fill(m, t);
    }
    d->normed = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    d->cached = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    d->valid = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    d->valid2 = pb_semaphore(m, NULL, TW_SEM_READY, 0, 7); /* thresholds may start anywhere */
    d->local = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    d->gather = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    d->release = pb_semaphore(m, NULL, TW_SEM_READY, 0, TD_RELEASE_START);
}

static inline struct td_site td_buffers(struct td *d, uint32_t s) {
    struct pb *m = d->m;
    uint64_t rows = (uint64_t)TD_ROWS * d->row, mine = TD_ROWS * 64,
             page = tw_panel_bytes(TW_DT_F32, d->dim);
    uint64_t block = (uint64_t)TW_KV_BLOCK * TD_HEAD * 4;
    struct td_site b = {.s = s};
    b.in = pb_fifo(m, s, TW_ENGINE_LOAD, TW_ENGINE_MATH, 1, rows);
    b.x = pb_buffer(m, s, TW_BUF_RESIDENT, 1, rows);
    b.norm = pb_buffer(m, s, TW_BUF_RESIDENT, 1, d->row + 64);
    b.n = pb_buffer(m, s, TW_BUF_SCRATCH, 1, rows);
    b.w = pb_fifo(m, s, TW_ENGINE_LOAD, TW_ENGINE_MATH, 2, page);
    b.q = pb_buffer(m, s, TW_BUF_SCRATCH, 1, mine);
    b.key = pb_fifo(m, s, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, mine);
    b.value = pb_fifo(m, s, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, mine);
    b.kf = pb_fifo(m, s, TW_ENGINE_LOAD, TW_ENGINE_MATH, 2, block);
    b.vf = pb_fifo(m, s, TW_ENGINE_LOAD, TW_ENGINE_MATH, 2, block);
    b.state = pb_buffer(m, s, TW_BUF_SCRATCH, 1, (uint64_t)TD_ROWS * (TD_HEAD + 2) * 4);
    b.head = pb_fifo(m, s, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, mine);
    b.y = pb_fifo(m, s, TW_ENGINE_MATH, TW_ENGINE_STORE, 2, mine);
    return b;
}

/* One page of weights of this layer: the site's panel. */
static inline void td_load_weight(const struct td *d, const struct td_site *b, uint32_t tensor) {
    struct pb *m = d->m;
    uint64_t page = tw_panel_bytes(TW_DT_F32, d->dim);
    mb_op(m, b->s, L, RESERVE, F_(b->w), I_(1));
    mb_op(m, b->s, L, READ, T_(tensor, tw_affine_plus(mb_at(0), TD_LAYER, 1), mb_at(b->s * page)),
          W_(b->w, mb_at(0)), I_(1), I_(page), I_(page), I_(page));
    mb_op(m, b->s, L, PUSH, F_(b->w), I_(1));
}

static inline void td_load_cache(const struct td *d, const struct td_site *b, uint32_t tensor,
                                 uint32_t fifo) {
    struct pb *m = d->m;
    uint64_t block = (uint64_t)TW_KV_BLOCK * TD_HEAD * 4;
    struct tw_affine at = tw_affine_plus(mb_at(b->s * block), TD_BLOCK, m->p.n_sites * block);
    mb_op(m, b->s, L, RESERVE, F_(fifo), I_(1));
    mb_op(m, b->s, L, READ, T_(tensor, tw_affine_plus(mb_at(0), TD_LAYER, 1), at),
          W_(fifo, mb_at(0)), I_(1), I_(block), I_(0), I_(0));
    mb_op(m, b->s, L, PUSH, F_(fifo), I_(1));
}

static inline void td_load(const struct td *d, const struct td_site *b) {
    struct pb *m = d->m;
    uint32_t s = b->s;
    mb_op(m, s, L, RESERVE, F_(b->in), I_(1));
    mb_op(m, s, L, GATHER, T_(d->embed, mb_at(0), mb_at(0)), T_(d->ids, mb_at(0), mb_at(0)),
          W_(b->in, mb_at(0)), I_(d->row), I_(d->dim), X_(d->rows, TD_ROWS));
    mb_op(m, s, L, PUSH, F_(b->in), I_(1));
    mb_loop(m, s, L, TD_LAYER, TD_LAYERS);
    mb_op(m, s, L, READ, T_(d->norm, tw_affine_plus(mb_at(0), TD_LAYER, 1), mb_at(0)),
          W_(b->norm, mb_at(0)), I_(1), I_(d->row), I_(d->row), I_(d->row));
    mb_op(m, s, L, SEM_INC, S_(d->normed), C_(s), I_(1));
    td_load_weight(d, b, d->wq);
    td_load_weight(d, b, d->wk);
    td_load_weight(d, b, d->wv);
    mb_op(m, s, L, SEM_WAIT, S_(d->cached), A_(td_every_layer(1)));
    mb_dynamic(m, s, L, TD_BLOCK, d->blocks, 7);
    td_load_cache(d, b, d->keys, b->kf);
    td_load_cache(d, b, d->values, b->vf);
    mb_end(m, s, TW_ENGINE_LOAD);
    td_load_weight(d, b, d->wo);
    mb_op(m, s, L, SEM_INC, S_(d->local), C_(s), I_(1));
    mb_op(m, s, L, SEM_WAIT, S_(d->release), A_(td_released()));
    mb_end(m, s, TW_ENGINE_LOAD);
}

static inline void td_matmul(const struct td *d, const struct td_site *b, struct tw_operand x,
                             struct tw_operand y) {
    struct pb *m = d->m;
    mb_op(m, b->s, M, WAIT, F_(b->w), I_(1));
    mb_op(m, b->s, M, MATMUL, x, I_(d->row), R_(b->w, mb_at(0)), I_(d->dim * 64), I_(TW_DT_F32),
          I_(d->dim), I_(1), y, I_(64), I_(0), X_(d->rows, TD_ROWS));
    mb_op(m, b->s, M, POP, F_(b->w), I_(1));
}

static inline void td_matmul_to(const struct td *d, const struct td_site *b, struct tw_operand x,
                                uint32_t fifo) {
    mb_op(d->m, b->s, M, RESERVE, F_(fifo), I_(1));
    td_matmul(d, b, x, M_(fifo, mb_at(0)));
    mb_op(d->m, b->s, M, PUSH, F_(fifo), I_(1));
}

static inline void td_attention(const struct td *d, const struct td_site *b) {
    struct pb *m = d->m;
    uint32_t s = b->s;
    mb_op(m, s, M, ATTN_INIT, W_(b->state, mb_at(0)), I_(1), I_(TD_HEAD), X_(d->rows, TD_ROWS));
    mb_dynamic(m, s, M, TD_BLOCK, d->blocks, 7);
    mb_op(m, s, M, WAIT, F_(b->kf), I_(1));
    mb_op(m, s, M, WAIT, F_(b->vf), I_(1));
    mb_op(m, s, M, ATTN_STEP, R_(b->q, mb_at(0)), I_(64), R_(b->kf, mb_at(0)), R_(b->vf, mb_at(0)),
          I_(TW_DT_F32), M_(b->state, mb_at(0)), I_(1), I_(0), I_(1), I_(1), I_(0), I_(TD_HEAD),
          E_(0.25f), A_(tw_affine_plus(mb_at(0), TD_BLOCK, 1)), X_(d->pos, TD_CTX),
          X_(d->rows, TD_ROWS));
    mb_op(m, s, M, POP, F_(b->kf), I_(1));
    mb_op(m, s, M, POP, F_(b->vf), I_(1));
    mb_end(m, s, TW_ENGINE_MATH);
    mb_op(m, s, M, RESERVE, F_(b->head), I_(1));
    mb_op(m, s, M, ATTN_DONE, R_(b->state, mb_at(0)), I_(1), W_(b->head, mb_at(0)), I_(64), I_(1),
          I_(TD_HEAD), X_(d->rows, TD_ROWS));
    mb_op(m, s, M, PUSH, F_(b->head), I_(1));
}

static inline void td_math(const struct td *d, const struct td_site *b) {
    struct pb *m = d->m;
    uint32_t s = b->s, heads = d->heads_of + s, delta = d->delta_of + s;
    struct tw_operand rows = X_(d->rows, TD_ROWS);
    mb_op(m, s, M, WAIT, F_(b->in), I_(1));
    mb_op(m, s, M, COPY, R_(b->in, mb_at(0)), I_(d->row), W_(b->x, mb_at(0)), I_(d->row),
          I_(d->row), rows);
    mb_op(m, s, M, POP, F_(b->in), I_(1));
    if (d->unshared) { /* the columns that only this site sends */
        mb_op(m, s, M, COPY, R_(b->x, mb_at(0)), I_(d->row), W_(heads, mb_at((uint64_t)s * 64)),
              I_(d->row), I_(64), rows);
    }
    mb_loop(m, s, M, TD_LAYER, TD_LAYERS);
    mb_op(m, s, M, SEM_WAIT, S_(d->normed), A_(td_every_layer(1)));
    mb_op(m, s, M, RMS_NORM, R_(b->x, mb_at(0)), I_(d->row), R_(b->norm, mb_at(0)),
          W_(b->n, mb_at(0)), I_(d->row), I_(d->dim), E_(1e-5f), rows);
    td_matmul(d, b, R_(b->n, mb_at(0)), M_(b->q, mb_at(0)));
    td_matmul_to(d, b, R_(b->n, mb_at(0)), b->key);
    td_matmul_to(d, b, R_(b->n, mb_at(0)), b->value);
    td_attention(d, b);
    mb_op(m, s, M, SEM_WAIT, S_(d->valid), A_(td_every_layer(m->p.n_sites)));
    td_matmul_to(d, b, R_(heads, mb_at(0)), b->y);
    struct tw_affine all = td_every_layer(m->p.n_sites);
    all.base += 7;
    mb_op(m, s, M, SEM_WAIT, S_(d->valid2), A_(all));
    mb_op(m, s, M, ADD, R_(b->x, mb_at(0)), I_(d->row), R_(delta, mb_at(0)), I_(d->row),
          W_(b->x, mb_at(0)), I_(d->row), I_(d->dim), rows);
    mb_op(m, s, M, SEM_INC, S_(d->local), C_(s), I_(1));
    mb_op(m, s, M, SEM_WAIT, S_(d->release), A_(td_released()));
    mb_end(m, s, TW_ENGINE_MATH);
    mb_op(m, s, M, RESERVE, F_(b->y), I_(1));
    mb_op(m, s, M, COPY, R_(b->x, mb_at((uint64_t)s * 64)), I_(d->row), W_(b->y, mb_at(0)), I_(64),
          I_(64), rows);
    mb_op(m, s, M, PUSH, F_(b->y), I_(1));
}

static inline void td_multicast(const struct td *d, const struct td_site *b, uint32_t fifo,
                                uint32_t set, uint32_t flag) {
    struct pb *m = d->m;
    mb_op(m, b->s, S, WAIT, F_(fifo), I_(1));
    for (uint32_t chip = 0; chip < m->p.n_chips; chip++) {
        mb_op(m, b->s, S, MCAST, R_(fifo, mb_at(0)), I_(64),
              D_(set + b->s, mb_at((uint64_t)b->s * 64)), I_(d->row), I_(64), X_(d->rows, TD_ROWS),
              G_(d->chip_sites + chip));
        mb_op(m, b->s, S, MCAST_SET, S_(flag), G_(d->chip_sites + chip));
    }
    mb_op(m, b->s, S, POP, F_(fifo), I_(1));
}

/* The rendezvous: a site's three engines arrive at the site, each site at the root, the root
 * releases all. */
static inline void td_rendezvous(const struct td *d, const struct td_site *b) {
    struct pb *m = d->m;
    mb_op(m, b->s, S, SEM_INC, S_(d->local), C_(b->s), I_(1));
    mb_op(m, b->s, S, SEM_WAIT, S_(d->local), A_(td_every_layer(3)));
    mb_op(m, b->s, S, SEM_INC, S_(d->gather), C_(0), I_(1));
    if (b->s == 0) {
        mb_op(m, b->s, S, SEM_WAIT, S_(d->gather), A_(td_every_layer(m->p.n_sites)));
        for (uint32_t chip = 0; chip < m->p.n_chips; chip++) {
            mb_op(m, b->s, S, MCAST_SET, S_(d->release), G_(d->chip_sites + chip));
        }
    }
    mb_op(m, b->s, S, SEM_WAIT, S_(d->release), A_(td_released()));
}

static inline void td_store(const struct td *d, const struct td_site *b) {
    struct pb *m = d->m;
    uint32_t s = b->s;
    mb_loop(m, s, S, TD_LAYER, TD_LAYERS);
    struct tw_affine layer = tw_affine_plus(mb_at(0), TD_LAYER, 1);
    mb_op(m, s, S, WAIT, F_(b->key), I_(1));
    mb_op(m, s, S, KEY_WRITE, R_(b->key, mb_at(0)), I_(64), U_(d->keys, layer, mb_at(0)), I_(s),
          I_(1), I_(TD_HEAD), X_(d->pos, TD_CTX), X_(d->rows, TD_ROWS));
    mb_op(m, s, S, POP, F_(b->key), I_(1));
    mb_op(m, s, S, WAIT, F_(b->value), I_(1));
    mb_op(m, s, S, VALUE_WRITE, R_(b->value, mb_at(0)), I_(64), U_(d->values, layer, mb_at(0)),
          I_(s), I_(1), I_(TD_HEAD), X_(d->pos, TD_CTX), X_(d->rows, TD_ROWS));
    mb_op(m, s, S, POP, F_(b->value), I_(1));
    mb_op(m, s, S, SEM_INC, S_(d->cached), C_(s), I_(1));
    td_multicast(d, b, b->head, d->heads_of, d->valid);
    td_multicast(d, b, b->y, d->delta_of, d->valid2);
    td_rendezvous(d, b);
    mb_end(m, s, TW_ENGINE_STORE);
    mb_op(m, s, S, WAIT, F_(b->y), I_(1));
    mb_op(m, s, S, WRITE, R_(b->y, mb_at(0)), I_(64), U_(d->out, mb_at(0), mb_at((uint64_t)s * 64)),
          I_(d->row), I_(64), X_(d->rows, TD_ROWS));
    mb_op(m, s, S, POP, F_(b->y), I_(1));
}

static inline struct td td_create(struct td_options o) {
    struct td d = {.m = mb_create_chips(o.chips ? o.chips : 1, o.width, o.height),
                   .unshared = o.unshared};
    d.chip_sites = d.m->p.n_groups;
    for (uint32_t chip = 0; chip < d.m->p.n_chips; chip++) {
        pb_chip_group(d.m, chip, 0, 0, o.width, o.height);
    }
    d.m->misalign = o.misalign;
    d.dim = TD_HEAD * d.m->p.n_sites;
    d.row = d.dim * 4;
    td_tensors(&d);
    d.heads_of = pb_siblings(d.m, (uint64_t)TD_ROWS * d.row);
    d.delta_of = pb_siblings(d.m, (uint64_t)TD_ROWS * d.row);
    for (uint32_t s = 0; s < d.m->p.n_sites; s++) {
        struct td_site b = td_buffers(&d, s);
        td_load(&d, &b);
        td_math(&d, &b);
        td_store(&d, &b);
    }
    mb_freeze(d.m);
    return d;
}

/* The inputs of a step that feeds `rows` tokens from position `pos`. */
static inline void td_input(struct td *d, uint32_t pos, uint32_t rows) {
    for (uint32_t r = 0; r < TD_ROWS; r++) {
        mb_set_i32(d->m, d->ids, r, (int32_t)((pos + r) * 7 % TD_VOCAB));
    }
    mb_set_i32(d->m, d->rows_in, 0, (int32_t)rows);
    mb_set_i32(d->m, d->pos_in, 0, (int32_t)pos);
    mb_set_i32(d->m, d->end_in, 0, (int32_t)(pos + rows));
}

#endif
