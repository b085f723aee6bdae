/* SPDX-License-Identifier: Apache-2.0
 *
 * The small program, written down op by op; each site computes 16 of the 32 columns and owns one
 * head of 16.
 */
#include "tests/support/small_program.h"

#define LAYERS 2u
#define MAX_ROWS 4u
#define ROWS pb_rows(SMALL_ROWS, MAX_ROWS)
#define POS pb_rows(SMALL_AT, 124)

static uint32_t buf(const struct pb *b, uint32_t set) {
    return SMALL_BUF(set, b->site);
}

static void tables(struct pb *b) {
    pb_tensor(b, "ids", TW_ROLE_INPUT, TW_DT_I32, TW_PACK_ROW, 4, 1, 0, 1);
    pb_tensor(b, "n", TW_ROLE_INPUT, TW_DT_I32, TW_PACK_ROW, 1, 1, 0, 1);
    pb_tensor(b, "pos", TW_ROLE_INPUT, TW_DT_I32, TW_PACK_ROW, 1, 1, 0, 1);
    pb_tensor(b, "embed", TW_ROLE_PARAM, TW_DT_F16, TW_PACK_PANEL16, 64, 32, 0, 1);
    pb_tensor(b, "norm", TW_ROLE_PARAM, TW_DT_F32, TW_PACK_ROW, 1, 32, 0, LAYERS);
    pb_tensor(b, "w", TW_ROLE_PARAM, TW_DT_Q8_0, TW_PACK_PANEL16, 32, 32, 0, LAYERS);
    pb_tensor(b, "wg", TW_ROLE_PARAM, TW_DT_F32, TW_PACK_PANEL16, 32, 32, 0, LAYERS);
    pb_tensor(b, "freq", TW_ROLE_PARAM, TW_DT_F32, TW_PACK_ROW, 1, 8, 0, 1);
    pb_tensor(b, "keys", TW_ROLE_STATE, TW_DT_F32, TW_PACK_KEYS, 128, 32, 16, LAYERS);
    pb_tensor(b, "values", TW_ROLE_STATE, TW_DT_F32, TW_PACK_VALUES, 128, 32, 16, LAYERS);
    pb_tensor(b, "logits", TW_ROLE_OUTPUT, TW_DT_F32, TW_PACK_ROW, 1, 32, 0, 1);
    pb_tensor(b, "x", TW_ROLE_ACTIVATION, TW_DT_F32, TW_PACK_ROW, 4, 32, 0, 0);
    pb_tensor(b, "kept", TW_ROLE_STATE, TW_DT_F32, TW_PACK_ROW, 1, 32, 0, 1);
    pb_buffers(b, "x", TW_BUF_RESIDENT, TW_DT_F32, 1, 512);
    pb_fifos(b, "xf", TW_ENGINE_LOAD, TW_ENGINE_MATH, TW_DT_F32, 1, 512);
    pb_fifos(b, "nf", TW_ENGINE_LOAD, TW_ENGINE_MATH, TW_DT_F32, 2, 128);
    pb_fifos(b, "wf", TW_ENGINE_LOAD, TW_ENGINE_MATH, TW_DT_Q8_0, 2, 576);
    pb_fifos(b, "gf", TW_ENGINE_LOAD, TW_ENGINE_MATH, TW_DT_F32, 2, 2048);
    pb_fifos(b, "cf", TW_ENGINE_LOAD, TW_ENGINE_MATH, TW_DT_F32, 1, 32);
    pb_fifos(b, "kf", TW_ENGINE_LOAD, TW_ENGINE_MATH, TW_DT_F32, 2, 4096);
    pb_fifos(b, "vf", TW_ENGINE_LOAD, TW_ENGINE_MATH, TW_DT_F32, 2, 4096);
    pb_buffers(b, "xn", TW_BUF_SCRATCH, TW_DT_F32, 1, 512);
    pb_buffers(b, "xq", TW_BUF_SCRATCH, TW_DT_Q8S, 1, 160);
    pb_buffers(b, "q", TW_BUF_SCRATCH, TW_DT_F32, 1, 256);
    pb_buffers(b, "cs", TW_BUF_SCRATCH, TW_DT_F32, 1, 256);
    pb_buffers(b, "st", TW_BUF_SCRATCH, TW_DT_F32, 1, 576);
    pb_buffers(b, "y", TW_BUF_SCRATCH, TW_DT_F32, 1, 256);
    pb_buffers(b, "h", TW_BUF_SCRATCH, TW_DT_F32, 1, 256);
    pb_buffers(b, "xk", TW_BUF_SCRATCH, TW_DT_Q8K, 1, 292);
    pb_fifos(b, "of", TW_ENGINE_MATH, TW_ENGINE_STORE, TW_DT_F32, 2, 256);
    pb_fifos(b, "lf", TW_ENGINE_MATH, TW_ENGINE_STORE, TW_DT_F32, 1, 64);
    pb_buffers(b, "rx", TW_BUF_RESIDENT, TW_DT_F32, 1, 64);
    pb_buffers(b, "tl", TW_BUF_SCRATCH, TW_DT_U8, 1, 64);
    pb_buffers(b, "tm", TW_BUF_SCRATCH, TW_DT_U8, 1, 64);
    for (uint32_t s = 0; s < SMALL_SITES; s++) {
        b->buffers[SMALL_BUF(SMALL_X, s)].tensor = SMALL_ACT;
    }
    pb_trip(b, "rows", SMALL_N, 0, 1, MAX_ROWS);
    pb_trip(b, "at", SMALL_POS, 0, 1, 124);
    pb_trip(b, "blocks", SMALL_POS, MAX_ROWS, TW_KV_BLOCK, 2);
}

static void sections(struct pb *b) {
    uint32_t all = pb_group(b, 0, 0, SMALL_SITES, 1);
    pb_semaphore(b, "kv", TW_SEM_READY, all, 0);
    pb_semaphore(b, "valid", TW_SEM_VALID, all, 0);
    for (uint32_t i = 0; i < 2; i++) {
        pb_semaphore(b, "local", TW_SEM_GATHER, all, 0);
        pb_semaphore(b, "gather", TW_SEM_GATHER, all, 0);
        pb_semaphore(b, "release", TW_SEM_RELEASE, all, 0);
    }
    pb_semaphore(b, "sent", TW_SEM_VALID, all, 0);
    pb_stages(b, 0, "layer.attn");
    pb_stages(b, 1, "head");
    struct tw_section layers = {pb_string(b, "layers"),
                                LAYERS,
                                0,
                                SMALL_BUF(SMALL_LF, 0),
                                0,
                                SMALL_HEAD,
                                0,
                                6,
                                SMALL_LAYERS,
                                SMALL_LAYERS + 1,
                                SMALL_LAYERS + 2,
                                0};
    struct tw_section head = {pb_string(b, "head"),
                              1,
                              SMALL_BUF(SMALL_LF, 0),
                              4 * SMALL_SITES,
                              SMALL_HEAD,
                              4,
                              6,
                              6,
                              SMALL_HEAD,
                              SMALL_HEAD + 1,
                              SMALL_HEAD + 2,
                              0};
    b->sections[0] = layers;
    b->sections[1] = head;
    b->p.n_sections = 2;
}

static void sem_wait(struct pb *b, uint32_t sem, uint32_t unit, uint32_t rounds) {
    struct tw_affine a = tw_affine_const(unit);
    if (rounds > 1) {
        a = tw_affine_plus(a, 1, unit);
    }
    PB_OP(b, SEM_WAIT, pb_id(sem), pb_num(tw_affine_plus(a, 0, (uint64_t)unit * rounds)));
}

static void rendezvous(struct pb *b, uint32_t first, uint32_t rounds) {
    PB_OP(b, SEM_INC, pb_id(first), pb_id(b->site), pb_id(1));
    if (b->engine == TW_ENGINE_STORE) {
        sem_wait(b, first, TW_ENGINE_COUNT, rounds);
        PB_OP(b, SEM_INC, pb_id(first + 1), pb_id(0), pb_id(1));
        if (b->site == 0) {
            sem_wait(b, first + 1, SMALL_SITES, rounds);
            PB_OP(b, MCAST_SET, pb_id(first + 2), pb_id(SMALL_ALL));
        }
    }
    sem_wait(b, first + 2, 1, rounds);
}

static void fill(struct pb *b, uint32_t set, uint32_t tensor, struct tw_affine instance,
                 struct tw_affine offset, uint32_t bytes) {
    PB_OP(b, RESERVE, pb_id(buf(b, set)), pb_id(1));
    PB_OP(b, READ, pb_of(tensor, instance, offset), pb_on(buf(b, set), 0), pb_id(1), pb_id(bytes),
          pb_id(bytes), pb_id(bytes));
    PB_OP(b, PUSH, pb_id(buf(b, set)), pb_id(1));
}

static void load(struct pb *b) {
    struct tw_affine zero = tw_affine_const(0), layer = pb_v(0, 1, 1);
    struct tw_affine block = pb_v(b->site * 4096u, 2, SMALL_SITES * 4096u);
    PB_OP(b, RESERVE, pb_id(buf(b, SMALL_XF)), pb_id(1));
    PB_OP(b, GATHER, pb_of(SMALL_EMBED, zero, zero), pb_of(SMALL_IDS, zero, zero),
          pb_on(buf(b, SMALL_XF), 0), pb_id(128), pb_id(32), ROWS);
    PB_OP(b, PUSH, pb_id(buf(b, SMALL_XF)), pb_id(1));
    fill(b, SMALL_CF, SMALL_FREQ, zero, zero, 32);
    PB_OP(b, LOOP, pb_id(1), pb_rows(TW_NONE, LAYERS), pb_id(TW_NONE));
    fill(b, SMALL_NF, SMALL_NORM, layer, zero, 128);
    fill(b, SMALL_WF, SMALL_W, layer, tw_affine_const(b->site * 576u), 576);
    PB_OP(b, SEM_WAIT, pb_id(SMALL_KV), pb_num(tw_affine_plus(pb_v(1, 1, 1), 0, LAYERS)));
    PB_OP(b, LOOP, pb_id(2), pb_rows(SMALL_BLOCKS, 2), pb_id(7));
    fill(b, SMALL_KF, SMALL_KEYS, layer, block, 4096);
    fill(b, SMALL_VF, SMALL_VALUES, layer, block, 4096);
    pb_end(b);
    fill(b, SMALL_GF, SMALL_WG, layer, tw_affine_const(b->site * 2048u), 2048);
    rendezvous(b, SMALL_LAYERS, LAYERS);
    pb_end(b);
}

static void attention(struct pb *b) {
    PB_OP(b, ATTN_INIT, pb_on(buf(b, SMALL_ST), 0), pb_id(1), pb_id(16), ROWS);
    PB_OP(b, ATTN_INIT, pb_on(buf(b, SMALL_ST), 288), pb_id(1), pb_id(16), ROWS);
    PB_OP(b, LOOP, pb_id(3), pb_rows(SMALL_BLOCKS, 2), pb_id(7));
    PB_OP(b, WAIT, pb_id(buf(b, SMALL_KF)), pb_id(1));
    PB_OP(b, WAIT, pb_id(buf(b, SMALL_VF)), pb_id(1));
    PB_OP(b, ATTN_STEP, pb_on(buf(b, SMALL_Q), 0), pb_id(64), pb_on(buf(b, SMALL_KF), 0),
          pb_on(buf(b, SMALL_VF), 0), pb_id(TW_DT_F32), pb_on(buf(b, SMALL_ST), 0), pb_id(1),
          pb_id(0), pb_id(1), pb_id(1), pb_id(0), pb_id(16), pb_float(0.25f), pb_num(pb_v(0, 3, 1)),
          POS, ROWS);
    PB_OP(b, ATTN_WINDOW, pb_on(buf(b, SMALL_Q), 0), pb_id(64), pb_on(buf(b, SMALL_KF), 0),
          pb_on(buf(b, SMALL_VF), 0), pb_id(TW_DT_F32), pb_on(buf(b, SMALL_ST), 0), pb_id(1),
          pb_id(0), pb_id(1), pb_id(1), pb_id(0), pb_id(16), pb_float(0.25f), pb_num(pb_v(0, 3, 1)),
          POS, ROWS, pb_id(5), pb_float(20.0f));
    PB_OP(b, QUANT_K, pb_on(buf(b, SMALL_KF), 0), pb_id(1024), pb_on(buf(b, SMALL_XK), 0),
          pb_id(292), pb_id(256), pb_rows(TW_NONE, 1));
    PB_OP(b, POP, pb_id(buf(b, SMALL_KF)), pb_id(1));
    PB_OP(b, POP, pb_id(buf(b, SMALL_VF)), pb_id(1));
    pb_end(b);
    PB_OP(b, ATTN_MERGE, pb_on(buf(b, SMALL_ST), 0), pb_id(72), pb_on(buf(b, SMALL_ST), 288),
          pb_id(72), pb_id(1), pb_id(16), ROWS);
    PB_OP(b, ATTN_DONE, pb_on(buf(b, SMALL_ST), 288), pb_id(1), pb_on(buf(b, SMALL_Y), 0),
          pb_id(64), pb_id(1), pb_id(16), ROWS);
}

/* What came with version 2.1, on the first half of each row. */
static void elementwise(struct pb *b) {
    struct tw_operand y = pb_on(buf(b, SMALL_Y), 0), h = pb_on(buf(b, SMALL_H), 0), s = pb_id(64),
                      cols = pb_id(16);
    PB_OP(b, LAYER_NORM, pb_on(buf(b, SMALL_X), 0), pb_id(128), pb_on(buf(b, SMALL_NF), 0),
          pb_on(buf(b, SMALL_NF), 64), y, s, cols, pb_float(1e-5f), ROWS);
    PB_OP(b, GELU, y, s, h, s, cols, ROWS);
    PB_OP(b, GELU_MUL, h, s, y, s, h, s, cols, ROWS);
    PB_OP(b, SCALE, h, s, h, s, cols, pb_float(0.5f), ROWS);
    PB_OP(b, SOFT_CAP, h, s, h, s, cols, pb_float(30.0f), ROWS);
    PB_OP(b, POS_SCALE, h, s, pb_on(buf(b, SMALL_NF), 0), h, s, cols, pb_id(2), pb_id(3), POS,
          ROWS);
}

/* The norm of the second half of each row, by itself; and the sum of both halves. */
static void split_norm(struct pb *b) {
    PB_OP(b, SQUARES, pb_on(buf(b, SMALL_X), 0), pb_id(128), pb_on(buf(b, SMALL_Q), 0), pb_id(64),
          pb_id(32), ROWS);
    PB_OP(b, RMS_SCALE, pb_on(buf(b, SMALL_X), 64), pb_id(128), pb_on(buf(b, SMALL_Q), 0),
          pb_id(64), pb_on(buf(b, SMALL_NF), 64), pb_on(buf(b, SMALL_Y), 0), pb_id(64), pb_id(16),
          pb_id(32), pb_float(1e-5f), ROWS);
    PB_OP(b, FOLD, pb_on(buf(b, SMALL_XN), 0), pb_id(128), pb_id(2), pb_on(buf(b, SMALL_H), 0),
          pb_id(64), pb_id(16), ROWS);
}

static void project(struct pb *b) {
    PB_OP(b, WAIT, pb_id(buf(b, SMALL_NF)), pb_id(1));
    PB_OP(b, RMS_NORM, pb_on(buf(b, SMALL_X), 0), pb_id(128), pb_on(buf(b, SMALL_NF), 0),
          pb_on(buf(b, SMALL_XN), 0), pb_id(128), pb_id(32), pb_float(1e-5f), ROWS);
    elementwise(b);
    split_norm(b);
    PB_OP(b, POP, pb_id(buf(b, SMALL_NF)), pb_id(1));
    PB_OP(b, QUANT, pb_on(buf(b, SMALL_XN), 0), pb_id(128), pb_on(buf(b, SMALL_XQ), 0), pb_id(40),
          pb_id(32), ROWS);
    PB_OP(b, WAIT, pb_id(buf(b, SMALL_WF)), pb_id(1));
    PB_OP(b, MATMUL, pb_on(buf(b, SMALL_XQ), 0), pb_id(40), pb_on(buf(b, SMALL_WF), 0), pb_id(576),
          pb_id(TW_DT_Q8_0), pb_id(32), pb_id(1), pb_on(buf(b, SMALL_Q), 0), pb_id(64), pb_id(0),
          ROWS);
    PB_OP(b, POP, pb_id(buf(b, SMALL_WF)), pb_id(1));
    PB_OP(b, ROPE, pb_on(buf(b, SMALL_Q), 0), pb_id(64), pb_on(buf(b, SMALL_CS), 0), pb_id(64),
          pb_id(1), pb_id(16), pb_id(16), pb_id(0), ROWS);
    PB_OP(b, RESERVE, pb_id(buf(b, SMALL_OF)), pb_id(1));
    PB_OP(b, COPY, pb_on(buf(b, SMALL_Q), 0), pb_id(64), pb_on(buf(b, SMALL_OF), 0), pb_id(64),
          pb_id(64), ROWS);
    PB_OP(b, PUSH, pb_id(buf(b, SMALL_OF)), pb_id(1));
}

static void gate(struct pb *b) {
    PB_OP(b, WAIT, pb_id(buf(b, SMALL_GF)), pb_id(1));
    PB_OP(b, MATMUL, pb_on(buf(b, SMALL_XN), 0), pb_id(128), pb_on(buf(b, SMALL_GF), 0),
          pb_id(2048), pb_id(TW_DT_F32), pb_id(32), pb_id(1), pb_on(buf(b, SMALL_Q), 0), pb_id(64),
          pb_id(0), ROWS);
    PB_OP(b, POP, pb_id(buf(b, SMALL_GF)), pb_id(1));
    PB_OP(b, SILU_MUL, pb_on(buf(b, SMALL_Q), 0), pb_id(64), pb_on(buf(b, SMALL_Y), 0), pb_id(64),
          pb_on(buf(b, SMALL_H), 0), pb_id(64), pb_id(16), ROWS);
    PB_OP(b, RESERVE, pb_id(buf(b, SMALL_OF)), pb_id(1));
    PB_OP(b, ADD, pb_on(buf(b, SMALL_H), 0), pb_id(64), pb_on(buf(b, SMALL_X), b->site * 64u),
          pb_id(128), pb_on(buf(b, SMALL_OF), 0), pb_id(64), pb_id(16), ROWS);
    PB_OP(b, PUSH, pb_id(buf(b, SMALL_OF)), pb_id(1));
    PB_OP(b, SEM_WAIT, pb_id(SMALL_VALID), pb_num(tw_affine_plus(pb_v(2, 1, 2), 0, 2 * LAYERS)));
}

static void math(struct pb *b) {
    PB_OP(b, WAIT, pb_id(buf(b, SMALL_XF)), pb_id(1));
    PB_OP(b, COPY, pb_on(buf(b, SMALL_XF), 0), pb_id(128), pb_on(buf(b, SMALL_X), 0), pb_id(128),
          pb_id(128), ROWS);
    PB_OP(b, POP, pb_id(buf(b, SMALL_XF)), pb_id(1));
    PB_OP(b, WAIT, pb_id(buf(b, SMALL_CF)), pb_id(1));
    PB_OP(b, ROPE_TABLE, pb_on(buf(b, SMALL_CF), 0), pb_on(buf(b, SMALL_CS), 0), pb_id(64),
          pb_id(8), POS, ROWS);
    PB_OP(b, POP, pb_id(buf(b, SMALL_CF)), pb_id(1));
    PB_OP(b, LOOP, pb_id(1), pb_rows(TW_NONE, LAYERS), pb_id(TW_NONE));
    project(b);
    attention(b);
    gate(b);
    rendezvous(b, SMALL_LAYERS, LAYERS);
    pb_end(b);
}

static void math_head(struct pb *b) {
    PB_OP(b, RESERVE, pb_id(buf(b, SMALL_LF)), pb_id(1));
    PB_OP(b, LAST_ROW, pb_on(buf(b, SMALL_X), b->site * 64u), pb_id(128),
          pb_on(buf(b, SMALL_LF), 0), pb_id(64), ROWS);
    PB_OP(b, PUSH, pb_id(buf(b, SMALL_LF)), pb_id(1));
    PB_OP(b, TOPK, pb_on(buf(b, SMALL_X), b->site * 64u), pb_id(128), pb_on(buf(b, SMALL_TL), 0),
          pb_id(16), pb_id(16), pb_id(2), pb_num(tw_affine_const(b->site * 16u)), ROWS);
    sem_wait(b, SMALL_SENT, 1, 1);
    PB_OP(b, TOPK, pb_on(buf(b, SMALL_RX), 0), pb_id(64), pb_on(buf(b, SMALL_TM), 0), pb_id(16),
          pb_id(16), pb_id(2), pb_num(tw_affine_const((1 - b->site) * 16u)), pb_rows(TW_NONE, 1));
    PB_OP(b, TOPK_MERGE, pb_on(buf(b, SMALL_TM), 0), pb_id(16), pb_on(buf(b, SMALL_TL), 0),
          pb_id(16), pb_on(buf(b, SMALL_TM), 0), pb_id(16), pb_id(2), pb_rows(TW_NONE, 1));
}

static void store(struct pb *b) {
    struct tw_affine zero = tw_affine_const(0), layer = pb_v(0, 1, 1);
    PB_OP(b, LOOP, pb_id(1), pb_rows(TW_NONE, LAYERS), pb_id(TW_NONE));
    PB_OP(b, WAIT, pb_id(buf(b, SMALL_OF)), pb_id(1));
    PB_OP(b, KEY_WRITE, pb_on(buf(b, SMALL_OF), 0), pb_id(64), pb_of(SMALL_KEYS, layer, zero),
          pb_id(b->site), pb_id(1), pb_id(16), POS, ROWS);
    PB_OP(b, VALUE_WRITE, pb_on(buf(b, SMALL_OF), 0), pb_id(64), pb_of(SMALL_VALUES, layer, zero),
          pb_id(b->site), pb_id(1), pb_id(16), POS, ROWS);
    PB_OP(b, POP, pb_id(buf(b, SMALL_OF)), pb_id(1));
    PB_OP(b, SEM_INC, pb_id(SMALL_KV), pb_id(b->site), pb_id(1));
    PB_OP(b, WAIT, pb_id(buf(b, SMALL_OF)), pb_id(1));
    PB_OP(b, MCAST, pb_on(buf(b, SMALL_OF), 0), pb_id(64), pb_on(buf(b, SMALL_X), b->site * 64u),
          pb_id(128), pb_id(64), ROWS, pb_id(SMALL_ALL));
    PB_OP(b, POP, pb_id(buf(b, SMALL_OF)), pb_id(1));
    PB_OP(b, MCAST_SET, pb_id(SMALL_VALID), pb_id(SMALL_ALL));
    rendezvous(b, SMALL_LAYERS, LAYERS);
    pb_end(b);
}

static void store_head(struct pb *b) {
    PB_OP(b, WAIT, pb_id(buf(b, SMALL_LF)), pb_id(1));
    PB_OP(b, WRITE, pb_on(buf(b, SMALL_LF), 0), pb_id(64),
          pb_of(SMALL_LOGITS, tw_affine_const(0), tw_affine_const(b->site * 64u)), pb_id(64),
          pb_id(64), pb_rows(TW_NONE, 1));
    PB_OP(b, SEND, pb_on(buf(b, SMALL_LF), 0), pb_id(64),
          pb_on(SMALL_BUF(SMALL_RX, 1 - b->site), 0), pb_id(64), pb_id(64), pb_rows(TW_NONE, 1));
    PB_OP(b, POP, pb_id(buf(b, SMALL_LF)), pb_id(1));
    PB_OP(b, SEM_INC, pb_id(SMALL_SENT), pb_id(1 - b->site), pb_id(1));
    PB_OP(b, DRAM_COPY, pb_of(SMALL_NORM, tw_affine_const(1), tw_affine_const(b->site * 64u)),
          pb_id(64), pb_of(SMALL_KEPT, tw_affine_const(0), tw_affine_const(b->site * 64u)),
          pb_id(64), pb_id(64), pb_rows(TW_NONE, 1));
}

struct pb *small_program(void) {
    static void (*const body[2][TW_ENGINE_COUNT])(struct pb *) = {{load, math, store},
                                                                  {NULL, math_head, store_head}};
    struct pb *b = pb_new("decode", SMALL_SITES, 1);
    b->p.rows = MAX_ROWS;
    tables(b);
    sections(b);
    for (uint32_t i = 0; i < SMALL_SITES * TW_ENGINE_COUNT; i++) {
        b->site = i / TW_ENGINE_COUNT;
        b->engine = i % TW_ENGINE_COUNT;
        b->stage = i;
        body[0][b->engine](b);
        b->stage = SMALL_SITES * TW_ENGINE_COUNT + i;
        if (body[1][b->engine]) {
            body[1][b->engine](b);
        }
        rendezvous(b, SMALL_HEAD, 1);
    }
    return b;
}
