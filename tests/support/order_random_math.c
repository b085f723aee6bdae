/* SPDX-License-Identifier: Apache-2.0
 *
 * Math of random programs (order_random_internal.h): chains of ops that make a page of 16 floats
 * from another one, through scratch buffers; attention over a block of keys that LOAD brought; and
 * what STORE writes to the caches.
 */
#include "tests/support/order_random_internal.h"

static struct tw_affine zero(void) {
    return tw_affine_const(0);
}

static struct tw_operand once(void) {
    return pb_rows(TW_NONE, 1);
}

/* ---- tables ---- */

static const uint8_t weight_types[] = {TW_DT_F32,  TW_DT_F16,    TW_DT_BF16,  TW_DT_Q8_0,
                                       TW_DT_Q4_0, TW_DT_Q4_1,   TW_DT_Q5_0,  TW_DT_Q5_1,
                                       TW_DT_Q2_K, TW_DT_IQ4_NL, TW_DT_MXFP4, TW_DT_Q3_K,
                                       TW_DT_Q4_K, TW_DT_Q5_K,   TW_DT_Q6_K,  TW_DT_IQ4_XS};

static bool is_float(uint32_t dtype) {
    return tw_dtype_block_elems(dtype) == 1;
}

/* A product takes this part of the columns: half of them. */
static uint32_t part_of(uint32_t dtype) {
    return is_float(dtype) ? 16 : TW_SUM_SEGMENT;
}

void order_math_tensors(struct gen *g) {
    for (uint32_t i = 0; i < N_WEIGHTS; i++) {
        uint32_t n = sizeof weight_types, dtype = weight_types[below(g, n)];
        g->weights[i].dtype = dtype;
        g->weights[i].whole = below(g, 2);
        g->weights[i].part = below(g, 2);
        g->weights[i].tensor = pb_tensor(g->b, "w", TW_ROLE_PARAM, (enum tw_dtype)dtype,
                                         TW_PACK_PANEL16, 32, 2 * part_of(dtype), 0, 1);
    }
    g->cache_dtype = below(g, 2) ? TW_DT_F32 : TW_DT_F16;
    g->key_blocks = below(g, 4) ? 2 : 3 * TW_KEY_SEGMENT / TW_KV_BLOCK; /* or a long context */
    for (uint32_t i = 0; i < 4; i++) { /* keys and values; the same, in pages that a table names */
        static const char *const names[] = {"keys", "values", "key_pages", "value_pages"};
        uint32_t rows = (i < 2 ? g->key_blocks : (uint32_t)ORDER_PAGES) * TW_KV_BLOCK,
                 packing = i % 2 ? TW_PACK_VALUES : TW_PACK_KEYS;
        g->caches[i] =
            pb_tensor(g->b, names[i], TW_ROLE_STATE, (enum tw_dtype)g->cache_dtype,
                      (enum tw_packing)packing, rows, CACHE_HEADS * HEAD_DIM, HEAD_DIM, 1);
    }
}

/* The weights stay in SRAM: all of them, or one half of the columns of both panels. */
void order_math_pinned(struct gen *g) {
    struct pb *b = g->b;
    for (uint32_t i = 0; i < N_WEIGHTS; i++) {
        struct weights *w = &g->weights[i];
        const struct tw_tensor *t = &b->tensors[w->tensor];
        uint64_t panel = tw_panel_bytes(w->dtype, t->cols),
                 part = tw_panel_bytes(w->dtype, part_of(w->dtype));
        w->buffer = b->p.n_buffers;
        w->stride = (uint32_t)(w->whole ? panel : part);
        for (uint32_t site = 0; site < g->sites; site++) {
            uint64_t bytes = w->whole ? t->bytes : 2 * part;
            struct tw_buffer *f = &b->buffers[pb_buffer(b, site, TW_BUF_RESIDENT, 1, bytes)];
            f->dtype = (uint8_t)w->dtype;
            f->tensor = w->tensor;
            f->window_rows = w->whole ? 0 : 2;
            f->window_row_bytes = w->whole ? 0 : (uint32_t)part;
            f->window_first = w->whole ? 0 : w->part * part;
            f->window_stride = w->whole ? 0 : panel;
        }
    }
}

void order_math_buffers(struct gen *g) {
    static const struct {
        enum tw_buffer_kind kind;
        enum tw_dtype dtype;
        uint32_t bytes;
    } list[] = {{TW_BUF_SCRATCH, TW_DT_F32, WIDE_BYTES},
                {TW_BUF_SCRATCH, TW_DT_Q8S, TW_SUM_SEGMENT / 32 * 40},
                {TW_BUF_SCRATCH, TW_DT_Q8K, 292},
                {TW_BUF_SCRATCH, TW_DT_U8, 3 * PAGE},
                {TW_BUF_RESIDENT, TW_DT_U8, KV_BYTES}};
    bool f32 = g->cache_dtype == TW_DT_F32; /* then GATHER may write there */
    for (uint32_t i = 0; i < sizeof list / sizeof *list; i++) {
        enum tw_dtype dtype = i == KV - WIDE && f32 ? TW_DT_F32 : list[i].dtype;
        g->plain[WIDE + i] = pb_buffers(g->b, "m", list[i].kind, dtype, 1, list[i].bytes);
    }
}

static uint32_t own(const struct gen *g, uint32_t which) {
    return id(g, g->plain[which]);
}

/* ---- from a page to a page ---- */

static void matmul(struct gen *g, const struct weights *w, uint32_t x, uint32_t panels, uint32_t y,
                   bool reload) {
    uint64_t part = tw_panel_bytes(w->dtype, part_of(w->dtype)), at = w->whole && reload ? part : 0;
    PB_OP(g->b, MATMUL, pb_on(x, 0), pb_id(PAGE), pb_on(w->buffer + g->b->site, at),
          pb_id(w->stride), pb_id(w->dtype), pb_id(part_of(w->dtype)), pb_id(panels), pb_on(y, 0),
          pb_id(2 * PAGE), pb_id(reload), once());
}

/* The activation that the weights need. */
static uint32_t factor(struct gen *g, const struct weights *w, uint32_t from) {
    uint32_t n = TW_SUM_SEGMENT, act = tw_dtype_activation(w->dtype);
    if (is_float(w->dtype)) {
        return from;
    }
    PB_OP(g->b, COPY, pb_on(from, 0), pb_id(0), pb_on(own(g, WIDE), 0), pb_id(PAGE), pb_id(PAGE),
          pb_rows(TW_NONE, n * 4 / PAGE));
    if (below(g, 4) == 0) { /* floats go with blocks, too */
        return own(g, WIDE);
    }
    if (act == TW_DT_Q8K) {
        PB_OP(g->b, QUANT_K, pb_on(own(g, WIDE), 0), pb_id(4 * n), pb_on(own(g, QUANTS_K), 0),
              pb_id(292), pb_id(n), once());
        return own(g, QUANTS_K);
    }
    PB_OP(g->b, QUANT, pb_on(own(g, WIDE), 0), pb_id(4 * n), pb_on(own(g, QUANTS), 0),
          pb_id(n / 32 * 40), pb_id(n), once());
    return own(g, QUANTS);
}

/* A product with one panel; or with both, whose results are folded; the other half of the columns
 * may be added. */
static void product(struct gen *g, uint32_t from, uint32_t to) {
    const struct weights *w = &g->weights[below(g, N_WEIGHTS)];
    uint32_t panels = 1 + below(g, 2), y = panels == 1 ? to : own(g, WIDE), x = factor(g, w, from);
    if (x == from && from == to) {
        y = own(g, WIDE);
    } else if (x == own(g, WIDE)) {
        panels = 1;
        y = to;
    }
    matmul(g, w, x, panels, y, false);
    if (below(g, 2)) {
        matmul(g, w, x, panels, y, true);
    }
    if (panels == 2) {
        PB_OP(g->b, FOLD, pb_on(y, 0), pb_id(2 * PAGE), pb_id(2), pb_on(to, 0), pb_id(PAGE),
              pb_id(PAGE / 4), once());
    } else if (y != to) {
        PB_OP(g->b, COPY, pb_on(y, 0), pb_id(PAGE), pb_on(to, 0), pb_id(PAGE), pb_id(PAGE), once());
    }
}

/* The best of two shards, in a list of 8 entries. */
static void choose(struct gen *g, uint32_t from, uint32_t to) {
    uint32_t list = own(g, LISTS), half = PAGE / 2, each = 4 * (uint32_t)sizeof(struct tw_top);
    struct tw_affine base = tw_affine_const(below(g, 2) * 8);
    if (g->repeat > 1 && g->care) { /* inside of the section's loop */
        base = tw_affine_plus(base, V_REPEAT, 16);
    }
    for (uint32_t i = 0; i < 2; i++) {
        PB_OP(g->b, TOPK, pb_on(from, i * half), pb_id(half), pb_on(list, i * each), pb_id(each),
              pb_id(8), pb_id(4), pb_num(tw_affine_plus(base, 0, 0)), once());
        base.base += 8;
    }
    uint32_t z = below(g, 2) ? 0 : 2 * each; /* in place, or not */
    PB_OP(g->b, TOPK_MERGE, pb_on(list, 0), pb_id(each), pb_on(list, each), pb_id(each),
          pb_on(list, z), pb_id(each), pb_id(4), once());
    for (uint32_t i = 0; i < 2; i++) {
        PB_OP(g->b, COPY, pb_on(list, z), pb_id(each), pb_on(to, i * half), pb_id(half),
              pb_id(each), once());
    }
}

/* Turned by angles that are of the page, too. */
static void rope(struct gen *g, uint32_t from, uint32_t to) {
    uint32_t mode = below(g, 2), wide = own(g, WIDE);
    struct tw_operand pos = below(g, 2) ? pb_rows(TRIP_POS, POS_MAX) : pb_rows(TW_NONE, 3);
    g->out->has_trip = g->out->has_trip || pos.id != TW_NONE;
    PB_OP(g->b, ROPE_TABLE, pb_on(from, 0), pb_on(wide, 0), pb_id(PAGE), pb_id(PAGE / 8), pos,
          once());
    PB_OP(g->b, COPY, pb_on(from, 0), pb_id(PAGE), pb_on(to, 0), pb_id(PAGE), pb_id(PAGE), once());
    PB_OP(g->b, ROPE, pb_on(to, 0), pb_id(PAGE), pb_on(wide, 0), pb_id(PAGE), pb_id(1),
          pb_id(PAGE / 4), pb_id(PAGE / 4), pb_id(mode), once());
}

/* The last of two rows, or of as many as a trip says, at least one; four times, so that the page is
 * complete. */
static void last_row(struct gen *g, uint32_t from, uint32_t to) {
    uint32_t each = PAGE / 4;
    bool trip = g->has_some && below(g, 2);
    g->out->has_trip = g->out->has_trip || trip;
    for (uint32_t i = 0; i < 4; i++) {
        PB_OP(g->b, LAST_ROW, pb_on(from, 0), pb_id(each), pb_on(to, i * each), pb_id(each),
              trip ? pb_rows(TRIP_SOME, 3) : pb_rows(TW_NONE, 1 + i));
    }
}

static void norm(struct gen *g, uint32_t from, uint32_t to) {
    PB_OP(g->b, RMS_NORM, pb_on(from, 0), pb_id(PAGE), pb_on(g->window + g->b->site, 0),
          pb_on(to, 0), pb_id(PAGE), pb_id(PAGE / 4), pb_float(1e-5f), once());
}

/* The norms and activations that came with version 2.1. */
static void elementwise(struct gen *g, uint32_t from, uint32_t to) {
    uint32_t vector = g->window + g->b->site, cols = PAGE / 4;
    struct tw_operand pos = below(g, 2) ? pb_rows(TRIP_POS, POS_MAX) : pb_rows(TW_NONE, 3);
    switch (below(g, 6)) {
    case 0:
        PB_OP(g->b, LAYER_NORM, pb_on(from, 0), pb_id(PAGE), pb_on(vector, 0), pb_on(vector, 0),
              pb_on(to, 0), pb_id(PAGE), pb_id(cols), pb_float(1e-5f), once());
        break;
    case 1:
        PB_OP(g->b, GELU, pb_on(from, 0), pb_id(PAGE), pb_on(to, 0), pb_id(PAGE), pb_id(cols),
              once());
        break;
    case 2:
        PB_OP(g->b, GELU_MUL, pb_on(from, 0), pb_id(PAGE), pb_on(from, 0), pb_id(PAGE),
              pb_on(to, 0), pb_id(PAGE), pb_id(cols), once());
        break;
    case 3:
        PB_OP(g->b, SCALE, pb_on(from, 0), pb_id(PAGE), pb_on(to, 0), pb_id(PAGE), pb_id(cols),
              pb_float(0.5f), once());
        break;
    case 4:
        PB_OP(g->b, SOFT_CAP, pb_on(from, 0), pb_id(PAGE), pb_on(to, 0), pb_id(PAGE), pb_id(cols),
              pb_float(30.0f), once());
        break;
    default:
        g->out->has_trip = g->out->has_trip || pos.id != TW_NONE;
        PB_OP(g->b, POS_SCALE, pb_on(from, 0), pb_id(PAGE), pb_on(vector, 0), pb_on(to, 0),
              pb_id(PAGE), pb_id(cols), pb_id(2), pb_id(2), pos, once());
        break;
    }
}

void order_math(struct gen *g, uint32_t from, uint32_t to) {
    switch (below(g, 13)) {
    case 5:
    case 6:
        elementwise(g, from, to);
        break;
    case 0:
        PB_OP(g->b, SILU_MUL, pb_on(from, 0), pb_id(PAGE), pb_on(from, 0), pb_id(PAGE),
              pb_on(to, 0), pb_id(PAGE), pb_id(PAGE / 4), once());
        break;
    case 1:
        choose(g, from, to);
        break;
    case 2:
        rope(g, from, to);
        break;
    case 3:
        last_row(g, from, to);
        break;
    case 4:
        norm(g, from, to);
        break;
    default:
        product(g, from, to);
        break;
    }
}

/* MATH makes x1 from x0, or the other way. */
void order_kernel(struct gen *g) {
    uint32_t site = below(g, g->sites), from = below(g, 2),
             stream = site * TW_ENGINE_COUNT + TW_ENGINE_MATH;
    if (!is_active(g, site, TW_ENGINE_MATH) || (!g->touch[from][site].written && below(g, 64))) {
        return;
    }
    order_before_access(g, from, site, stream, false);
    order_before_access(g, 1 - from, site, stream, true);
    block(g, site, TW_ENGINE_MATH);
    order_math(g, own(g, from), own(g, 1 - from));
}

/* ---- attention ---- */

/* One head's part of a block: of the cache, or of the page that an element of the table names. */
static struct tw_operand block_of(struct gen *g, uint32_t cache, bool paged) {
    const struct tw_tensor *t = &g->b->tensors[g->caches[cache + (paged ? 2 : 0)]];
    uint64_t head = below(g, CACHE_HEADS) * tw_cache_head_bytes(t);
    struct tw_affine at = tw_affine_const(head);
    uint32_t id = g->caches[cache + (paged ? 2 : 0)];
    if (paged) {
        return pb_in_page(pb_of(id, zero(), at), T_PAGES, tw_affine_const(below(g, RING_SLOTS)));
    }
    at.base += below(g, 2) * tw_tensor_page_bytes(t);
    return pb_of(id, zero(), at);
}

void order_keys_load(struct gen *g) {
    uint32_t site = below(g, g->sites), stream = site * TW_ENGINE_COUNT + TW_ENGINE_LOAD;
    if (!is_active(g, site, TW_ENGINE_LOAD)) {
        return;
    }
    order_before_access(g, TOUCH_KV, site, stream, true);
    const struct weights *w = &g->weights[below(g, N_WEIGHTS)];
    if (g->cache_dtype == TW_DT_F32 && !is_float(w->dtype) && below(g, 3) == 0) {
        block(g, site, TW_ENGINE_LOAD); /* any numbers are keys */
        PB_OP(g->b, GATHER, pb_of(w->tensor, zero(), zero()), pb_of(T_IDS, zero(), zero()),
              pb_on(own(g, KV), 0), pb_id(KV_BYTES), pb_id(2 * TW_SUM_SEGMENT), once());
        return;
    }
    order_before_access(g, TOUCH_CACHE, 0, stream, false);
    block(g, site, TW_ENGINE_LOAD);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t bytes = (uint32_t)tw_cache_head_bytes(&g->b->tensors[g->caches[i]]);
        PB_OP(g->b, READ, block_of(g, i, below(g, 2)), pb_on(own(g, KV), i * KV_BYTES / 2),
              pb_id(1), pb_id(bytes), pb_id(bytes), pb_id(bytes));
    }
}

/* MATH attends from x0 to the keys and values, in one segment or two, which are merged before the
 * division or by it. */
void order_attention(struct gen *g) {
    uint32_t site = below(g, g->sites), stream = site * TW_ENGINE_COUNT + TW_ENGINE_MATH,
             segments = 1 + below(g, 2), heads = PAGE / 4 / HEAD_DIM,
             each = heads * (HEAD_DIM + 2) * 4, dtype = g->cache_dtype;
    if (!is_active(g, site, TW_ENGINE_MATH) || !g->touch[TOUCH_KV][site].written ||
        (!g->touch[0][site].written && below(g, 64))) {
        return;
    }
    struct tw_operand pos = below(g, 2) ? pb_rows(TRIP_POS, POS_MAX) : pb_rows(TW_NONE, 63);
    uint32_t blocks = TW_KEY_SEGMENT / TW_KV_BLOCK, is_long = g->key_blocks > 2,
             from = is_long && below(g, 2), second = is_long && segments == 2 && below(g, 2);
    struct tw_affine at = tw_affine_const((from + second) * blocks);
    g->out->has_trip = g->out->has_trip || pos.id != TW_NONE;
    order_before_access(g, TOUCH_KV, site, stream, false);
    order_before_access(g, 0, site, stream, false);
    block(g, site, TW_ENGINE_MATH);
    uint32_t state = own(g, WIDE);
    PB_OP(g->b, ATTN_INIT, pb_on(state, 0), pb_id(segments * heads), pb_id(HEAD_DIM), once());
    struct tw_operand first =
        from + second ? pb_rows(TW_NONE, (from + second) * TW_KEY_SEGMENT + 70) : pos;
    if (below(g, 2)) {
        PB_OP(g->b, ATTN_WINDOW, pb_on(own(g, X0), 0), pb_id(PAGE), pb_on(own(g, KV), 0),
              pb_on(own(g, KV), KV_BYTES / 2), pb_id(dtype), pb_on(state, 0), pb_id(heads),
              pb_id(0), pb_id(heads), pb_id(segments), pb_id(from), pb_id(HEAD_DIM), pb_float(0.5f),
              pb_num(at), first, once(), pb_id(1 + below(g, 40)),
              pb_float(below(g, 2) ? 20.0f : 0.0f));
    } else {
        PB_OP(g->b, ATTN_STEP, pb_on(own(g, X0), 0), pb_id(PAGE), pb_on(own(g, KV), 0),
              pb_on(own(g, KV), KV_BYTES / 2), pb_id(dtype), pb_on(state, 0), pb_id(heads),
              pb_id(0), pb_id(heads), pb_id(segments), pb_id(from), pb_id(HEAD_DIM), pb_float(0.5f),
              pb_num(at), first, once());
    }
    if (segments == 2 && below(g, 2)) {
        PB_OP(g->b, ATTN_MERGE, pb_on(state, each), pb_id(each), pb_on(state, 0), pb_id(each),
              pb_id(heads), pb_id(HEAD_DIM), once());
        segments = 1;
    }
    PB_OP(g->b, ATTN_DONE, pb_on(state, 0), pb_id(segments), pb_on(own(g, SCRATCH), 0), pb_id(PAGE),
          pb_id(heads), pb_id(HEAD_DIM), once());
}

/* STORE writes rows of x0 to a cache, at a position of the host or a fixed one. */
void order_cache_write(struct gen *g) {
    uint32_t site = below(g, g->sites), stream = site * TW_ENGINE_COUNT + TW_ENGINE_STORE,
             bytes = CACHE_HEADS * HEAD_DIM * 4, rows = PAGE / bytes;
    if (!is_active(g, site, TW_ENGINE_STORE) || (!g->touch[0][site].written && below(g, 64))) {
        return;
    }
    bool paged = below(g, 2), values = below(g, 2), one = below(g, 4) == 0;
    struct tw_operand cache = pb_of(g->caches[values + 2u * paged], zero(), zero());
    struct tw_operand pos =
        below(g, 2) ? pb_rows(TRIP_POS, POS_MAX) : pb_rows(TW_NONE, below(g, 2) ? 0 : 62);
    struct tw_operand n = below(g, 2) ? pb_rows(TW_NONE, rows) : pb_rows(g->trip, 2);
    if (paged) {
        struct tw_affine element = tw_affine_const(below(g, RING_SLOTS - 2));
        bool by_step = g->repeat > 1 && below(g, 2);
        cache =
            pb_in_page(cache, T_PAGES, by_step ? tw_affine_plus(element, V_REPEAT, 1) : element);
    }
    g->out->has_trip = g->out->has_trip || pos.id != TW_NONE || n.id != TW_NONE;
    order_before_access(g, 0, site, stream, false);
    order_before_access(g, TOUCH_CACHE, 0, stream, true);
    block(g, site, TW_ENGINE_STORE);
    struct tw_operand from = pb_on(own(g, X0), 0), first = pb_id(one), heads = pb_id(one ? 1 : 2);
    if (values) {
        PB_OP(g->b, VALUE_WRITE, from, pb_id(bytes), cache, first, heads, pb_id(HEAD_DIM), pos, n);
    } else {
        PB_OP(g->b, KEY_WRITE, from, pb_id(bytes), cache, first, heads, pb_id(HEAD_DIM), pos, n);
    }
}
