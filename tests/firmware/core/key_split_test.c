/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention whose keys are split: every site takes some segments of 512 positions and sends their
 * states to site 0, which merges them. The bits must be those of one site that takes all blocks in
 * one loop, however the segments are split, on every instruction set, strictly and by replay, for
 * one row and for chunks, for f32 and f16 caches.
 */
#include "tests/support/machine_run.h"
#include "tests/support/test.h"
#include "tilewright/numerics.h"

enum { POSITIONS = 4096, HEADS = 4, KV_HEADS = 2, DIM = 16, ROWS = 5, SITES = 8 };
enum { N_SEGMENTS = POSITIONS / TW_KEY_SEGMENT, BLOCK = 1 /* loop variable */ };
enum { STATE_FLOATS = HEADS * (DIM + 2), STATE = STATE_FLOATS * 4, Q_ROW = HEADS * DIM * 4 };

/* How segments are split: site s has those from first[s] to first[s + 1]. */
struct split {
    uint32_t sites, first[SITES + 1];
    bool merges; /* site 0 merges states one by one; else attn_done does */
};

struct keys {
    struct pb *m;
    struct split split;
    enum tw_dtype dtype;
    uint32_t rows_in, pos_in, end_in, q, keys, values, out; /* tensors */
    uint32_t rows, pos;                                     /* trips */
    uint32_t valid, all, root;                              /* semaphore, sibling set, group */
};

static void fill_halves(struct pb *m, uint32_t tensor) {
    mb_fill(m, tensor); /* as floats, then in place */
    uint16_t *halves = mb_data(m, tensor, 0);
    for (uint64_t i = 0; i < m->tensors[tensor].bytes / 2; i++) {
        uint32_t x = (uint32_t)i * 2654435761u + tensor;
        halves[i] = tw_f32_to_f16((float)((int32_t)(x >> 20) - 2048) / 1024.0f);
    }
}

static uint32_t cache(struct keys *k, enum tw_packing packing) {
    uint64_t bytes = (uint64_t)POSITIONS * KV_HEADS * DIM * tw_dtype_block_bytes(k->dtype);
    uint32_t t = mb_tensor_bytes(k->m, TW_ROLE_STATE, TW_INIT_ZERO, POSITIONS, KV_HEADS * DIM,
                                 packing, bytes, 1);
    k->m->tensors[t].head_dim = DIM;
    k->m->tensors[t].dtype = (uint8_t)k->dtype;
    if (k->dtype == TW_DT_F16) {
        fill_halves(k->m, t);
        return t;
    }
    mb_fill(k->m, t);
    float *f = mb_data(k->m, t, 0);
    for (uint64_t i = 0; i < bytes / 4; i++) {
        f[i] *= 8; /* scores that differ, so that maxima move */
    }
    return t;
}

static void tensors(struct keys *k) {
    struct pb *m = k->m;
    k->rows_in = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 1, 1);
    k->pos_in = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 1, 1);
    k->end_in = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 1, 1);
    k->q = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, ROWS, HEADS * DIM, 1);
    mb_fill(m, k->q);
    float *q = mb_data(m, k->q, 0);
    for (uint32_t i = 0; i < ROWS * HEADS * DIM; i++) {
        q[i] *= 4;
    }
    k->keys = cache(k, TW_PACK_KEYS);
    k->values = cache(k, TW_PACK_VALUES);
    k->out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, ROWS, HEADS * DIM, 1);
    k->rows = pb_trip(m, NULL, k->rows_in, 0, 1, ROWS);
    k->pos = pb_trip(m, NULL, k->pos_in, 0, 1, POSITIONS);
    k->valid = pb_semaphore(m, NULL, TW_SEM_VALID, 0, 0);
    k->root = pb_chip_group(m, 0, 0, 0, 1, 1);
}

/* ---- one site's part ---- */

struct part {
    uint32_t s, first, n; /* segments */
    uint32_t blocks;      /* trip */
    uint32_t q, cache, state, total, sent, y;
};

static void load(const struct keys *k, const struct part *p) {
    struct pb *m = k->m;
    uint32_t bytes = TW_KV_BLOCK * DIM * tw_dtype_block_bytes(k->dtype);
    mb_op(m, p->s, L, RESERVE, F_(p->q), I_(1));
    mb_op(m, p->s, L, READ, T_(k->q, mb_at(0), mb_at(0)), W_(p->q, mb_at(0)), I_(ROWS), I_(Q_ROW),
          I_(Q_ROW), I_(Q_ROW));
    mb_op(m, p->s, L, PUSH, F_(p->q), I_(1));
    mb_dynamic(m, p->s, L, BLOCK, p->blocks, 7);
    for (uint32_t kv = 0; kv < KV_HEADS; kv++) {
        uint64_t first = (uint64_t)p->first * 8 * KV_HEADS + kv; /* a page holds all heads */
        struct tw_affine at =
            tw_affine_plus(mb_at(first * bytes), BLOCK, (uint64_t)KV_HEADS * bytes);
        mb_op(m, p->s, L, RESERVE, F_(p->cache), I_(2));
        mb_op(m, p->s, L, READ, T_(k->keys, mb_at(0), at), W_(p->cache, mb_at(0)), I_(1), I_(bytes),
              I_(0), I_(0));
        mb_op(m, p->s, L, READ, T_(k->values, mb_at(0), at), W_(p->cache, mb_at(bytes)), I_(1),
              I_(bytes), I_(0), I_(0));
        mb_op(m, p->s, L, PUSH, F_(p->cache), I_(2));
    }
    mb_end(m, p->s, TW_ENGINE_LOAD);
}

/* `segments`: of the state; 2 hold any number. */
static void attend(const struct keys *k, const struct part *p, uint32_t segments) {
    struct pb *m = k->m;
    struct tw_operand rows = X_(k->rows, ROWS);
    uint32_t bytes = TW_KV_BLOCK * DIM * tw_dtype_block_bytes(k->dtype), group = HEADS / KV_HEADS;
    mb_op(m, p->s, M, ATTN_INIT, W_(p->state, mb_at(0)), I_(segments * HEADS), I_(DIM), rows);
    mb_op(m, p->s, M, WAIT, F_(p->q), I_(1));
    mb_dynamic(m, p->s, M, BLOCK, p->blocks, 7);
    for (uint32_t kv = 0; kv < KV_HEADS; kv++) {
        mb_op(m, p->s, M, WAIT, F_(p->cache), I_(2));
        mb_op(m, p->s, M, ATTN_STEP, R_(p->q, mb_at((uint64_t)kv * group * DIM * 4)), I_(Q_ROW),
              R_(p->cache, mb_at(0)), R_(p->cache, mb_at(bytes)), I_(k->dtype),
              M_(p->state, mb_at(0)), I_(group), I_(kv * group), I_(HEADS), I_(segments),
              I_(p->first), I_(DIM), E_(0.25f), A_(tw_affine_plus(mb_at(p->first * 8), BLOCK, 1)),
              X_(k->pos, POSITIONS), rows);
        mb_op(m, p->s, M, POP, F_(p->cache), I_(2));
    }
    mb_end(m, p->s, TW_ENGINE_MATH);
    mb_op(m, p->s, M, POP, F_(p->q), I_(1));
}

static void finish(const struct keys *k, const struct part *p, uint32_t state, uint32_t segments) {
    struct pb *m = k->m;
    struct tw_operand rows = X_(k->rows, ROWS);
    mb_op(m, p->s, M, RESERVE, F_(p->y), I_(1));
    mb_op(m, p->s, M, ATTN_DONE, R_(state, mb_at(0)), I_(segments), W_(p->y, mb_at(0)), I_(Q_ROW),
          I_(HEADS), I_(DIM), rows);
    mb_op(m, p->s, M, PUSH, F_(p->y), I_(1));
    mb_op(m, p->s, S, WAIT, F_(p->y), I_(1));
    mb_op(m, p->s, S, WRITE, R_(p->y, mb_at(0)), I_(Q_ROW), U_(k->out, mb_at(0), mb_at(0)),
          I_(Q_ROW), I_(Q_ROW), rows);
    mb_op(m, p->s, S, POP, F_(p->y), I_(1));
}

static void send(const struct keys *k, const struct part *p) {
    struct pb *m = k->m;
    struct tw_operand rows = X_(k->rows, ROWS);
    uint32_t bytes = p->n * STATE;
    mb_op(m, p->s, M, RESERVE, F_(p->sent), I_(1));
    mb_op(m, p->s, M, COPY, R_(p->state, mb_at(0)), I_(bytes), W_(p->sent, mb_at(0)), I_(bytes),
          I_(bytes), rows);
    mb_op(m, p->s, M, PUSH, F_(p->sent), I_(1));
    mb_op(m, p->s, S, WAIT, F_(p->sent), I_(1));
    mb_op(m, p->s, S, MCAST, R_(p->sent, mb_at(0)), I_(bytes),
          D_(k->all + p->s, mb_at((uint64_t)p->first * STATE)), I_(N_SEGMENTS * STATE), I_(bytes),
          rows, G_(k->root));
    mb_op(m, p->s, S, MCAST_SET, S_(k->valid), G_(k->root));
    mb_op(m, p->s, S, POP, F_(p->sent), I_(1));
}

static void collect(const struct keys *k, const struct part *p, uint32_t senders) {
    struct pb *m = k->m;
    struct tw_operand rows = X_(k->rows, ROWS);
    mb_op(m, 0, M, SEM_WAIT, S_(k->valid), A_(tw_affine_plus(mb_at(senders), 0, senders)));
    if (!k->split.merges) {
        finish(k, p, k->all, N_SEGMENTS);
        return;
    }
    mb_op(m, 0, M, ATTN_INIT, W_(p->total, mb_at(0)), I_(HEADS), I_(DIM), rows);
    for (uint32_t g = 0; g < N_SEGMENTS; g++) {
        mb_op(m, 0, M, ATTN_MERGE, R_(k->all, mb_at((uint64_t)g * STATE)), I_(N_SEGMENTS * STATE),
              M_(p->total, mb_at(0)), I_(STATE), I_(HEADS), I_(DIM), rows);
    }
    finish(k, p, p->total, 1);
}

static struct part part_of(const struct keys *k, uint32_t s) {
    struct pb *m = k->m;
    bool whole = k->split.sites == 1;
    struct part p = {.s = s, .first = k->split.first[s]};
    p.n = k->split.first[s + 1] - p.first;
    uint32_t slots = whole ? 2 : p.n, bytes = TW_KV_BLOCK * DIM * tw_dtype_block_bytes(k->dtype);
    struct tw_trip blocks = {.input = k->end_in,
                             .add = -(int32_t)(p.first * TW_KEY_SEGMENT),
                             .div = TW_KV_BLOCK,
                             .max = p.n * (TW_KEY_SEGMENT / TW_KV_BLOCK),
                             .clamp = 1};
    p.blocks = pb_trip_of(m, NULL, blocks);
    p.q = pb_fifo(m, s, TW_ENGINE_LOAD, TW_ENGINE_MATH, 1, ROWS * Q_ROW);
    p.cache = pb_fifo(m, s, TW_ENGINE_LOAD, TW_ENGINE_MATH, 4, bytes);
    m->buffers[p.cache].dtype = (uint8_t)k->dtype;
    p.state = pb_buffer(m, s, TW_BUF_SCRATCH, 1, (uint64_t)ROWS * slots * STATE);
    p.total = pb_buffer(m, s, TW_BUF_SCRATCH, 1, ROWS * STATE);
    p.sent = pb_fifo(m, s, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, (uint64_t)ROWS * slots * STATE);
    p.y = pb_fifo(m, s, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, ROWS * Q_ROW);
    return p;
}

static struct keys build(struct split split, enum tw_dtype dtype) {
    struct keys k = {.m = mb_create(split.sites, 1), .split = split, .dtype = dtype};
    struct part root = {.s = 0};
    uint32_t senders = 0;
    tensors(&k);
    k.all = pb_siblings(k.m, (uint64_t)ROWS * N_SEGMENTS * STATE);
    for (uint32_t s = 0; s < split.sites; s++) {
        if (split.first[s + 1] == split.first[s] && s) {
            continue; /* a site without a segment */
        }
        struct part p = part_of(&k, s);
        if (split.first[s + 1] > split.first[s]) {
            load(&k, &p);
            attend(&k, &p, split.sites == 1 ? 2 : p.n);
            if (split.sites > 1) {
                send(&k, &p);
            }
            senders++;
        }
        root = s == 0 ? p : root;
    }
    if (split.sites == 1) {
        finish(&k, &root, root.state, 2);
    } else {
        collect(&k, &root, senders);
    }
    mb_freeze(k.m);
    return k;
}

/* ---- comparing ---- */

/* Positions and row counts: at both ends of the first and some later segment, at the end of all. */
static const uint32_t steps[][2] = {{0, 1},    {0, 5},    {63, 1},   {300, 5},  {507, 5},
                                    {509, 5},  {511, 1},  {512, 1},  {513, 5},  {1021, 5},
                                    {1023, 1}, {1024, 1}, {1600, 1}, {2046, 5}, {3000, 2},
                                    {3583, 3}, {4091, 5}, {4095, 1}};
enum { N_STEPS = sizeof steps / sizeof steps[0] };

static void set_input(void *ctx, uint32_t step) {
    const struct keys *k = ctx;
    mb_set_i32(k->m, k->pos_in, 0, (int32_t)steps[step][0]);
    mb_set_i32(k->m, k->rows_in, 0, (int32_t)steps[step][1]);
    mb_set_i32(k->m, k->end_in, 0, (int32_t)(steps[step][0] + steps[step][1]));
}

static struct mr_result run(struct keys *k, enum tw_isa isa, bool strict) {
    struct mr_case c = {.m = k->m, .input = set_input, .ctx = k, .steps = N_STEPS};
    k->m->config.kernels = tw_kernel_table(isa);
    struct mr_result r = strict ? mr_strict(&c, TW_SCHED_CANONICAL, 0) : mr_fast(&c, 1, NULL);
    if (r.rc) {
        fail_msg("%s: fault %s, object %u, have %llu, need %llu", tw_isa_name(isa), r.fault.what,
                 r.fault.object, (unsigned long long)r.fault.have,
                 (unsigned long long)r.fault.need);
    }
    return r;
}

static void compare(struct keys *k, const struct mr_result *base, enum tw_isa isa, bool strict) {
    struct mr_result r = run(k, isa, strict);
    size_t each = r.size / N_STEPS;
    assert_int_equal(r.size, base->size);
    for (uint32_t i = 0; i < N_STEPS; i++) {
        if (memcmp(r.bytes + i * each, base->bytes + i * each, each) != 0) {
            fail_msg("%u sites, %s, %s, %s: position %u, %u rows differ from one site",
                     k->split.sites, tw_dtype_name(k->dtype), tw_isa_name(isa),
                     strict ? "strict" : "fast", steps[i][0], steps[i][1]);
        }
    }
    free(r.bytes);
}

static struct split random_split(uint32_t sites, uint32_t seed) {
    struct split s = {.sites = sites, .merges = seed % 2};
    s.first[sites] = N_SEGMENTS;
    for (uint32_t i = 1; i < sites; i++) { /* in order; some sites may have none */
        seed = seed * 1664525u + 1013904223u;
        uint32_t left = N_SEGMENTS - s.first[i - 1];
        s.first[i] = s.first[i - 1] + (seed >> 16) % (left + 1) / (i % 2 + 1);
    }
    return s;
}

static struct split even_split(uint32_t sites) {
    struct split s = {.sites = sites};
    for (uint32_t i = 0; i <= sites; i++) {
        s.first[i] = i * N_SEGMENTS / sites;
    }
    return s;
}

static void check_split(struct split split, enum tw_dtype dtype, const struct mr_result *base) {
    struct keys k = build(split, dtype);
    for (uint32_t isa = 0; isa < TW_ISA_COUNT; isa++) {
        if (tw_kernel_table((enum tw_isa)isa)) {
            compare(&k, base, (enum tw_isa)isa, true);
            compare(&k, base, (enum tw_isa)isa, false);
        }
    }
    pb_free(k.m);
}

static void check_dtype(enum tw_dtype dtype) {
    static const uint32_t sites[] = {2, 3, 4, 8};
    struct split one = {.sites = 1, .first = {0, N_SEGMENTS}};
    struct keys k = build(one, dtype);
    struct mr_result base = run(&k, TW_ISA_SCALAR, true);
    check_split(one, dtype, &base);
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i += TEST_ASAN ? 2 : 1) {
        check_split(even_split(sites[i]), dtype, &base);
        for (uint32_t seed = 1; seed < (TEST_ASAN ? 2 : 4); seed++) {
            check_split(random_split(sites[i], seed), dtype, &base);
        }
    }
    free(base.bytes);
    pb_free(k.m);
}

static void sites_that_share_f32_keys_give_the_bits_of_one(void **state) {
    (void)state;
    check_dtype(TW_DT_F32);
}

static void sites_that_share_f16_keys_give_the_bits_of_one(void **state) {
    (void)state;
    check_dtype(TW_DT_F16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sites_that_share_f32_keys_give_the_bits_of_one),
        cmocka_unit_test(sites_that_share_f16_keys_give_the_bits_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
