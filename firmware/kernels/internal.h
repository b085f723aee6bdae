/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel files share: the names of the tables, views of the larger ops' arguments and loop
 * helpers.
 */
#ifndef TW_FIRMWARE_KERNELS_INTERNAL_H
#define TW_FIRMWARE_KERNELS_INTERNAL_H

#include "firmware/kernels/kernels.h"
#include "loader/base/compiler.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define TW_KERNELS_X86 1
#else
#define TW_KERNELS_X86 0
#endif
#if defined(__aarch64__) && defined(__GNUC__)
#define TW_KERNELS_ARM64 1
#else
#define TW_KERNELS_ARM64 0
#endif
/* Before release 16, clang supports the dot product only if the whole file is compiled for it. */
#if TW_KERNELS_ARM64 && \
    (!defined(__clang__) || __clang_major__ >= 16 || defined(__ARM_FEATURE_DOTPROD))
#define TW_KERNELS_ARM64_DOT 1
#else
#define TW_KERNELS_ARM64_DOT 0
#endif

/* Tiles are templates: functions that take their sizes as constant arguments and must be inlined
 * and unrolled for their accumulators to stay in registers. Loops over the groups of a block stay
 * rolled where a compiler, seeing all the integer additions at once, would reorder them into more
 * live values than there are registers. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(undefined_behavior_sanitizer)
#define TW_SANITIZED 1
#endif
#endif
#if defined(TW_SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TW_ROLLED
#define TW_UNROLL /* each access is instrumented: unrolled, compilation takes minutes */
#elif defined(__clang__)
#define TW_UNROLL _Pragma("clang loop unroll(full)")
#define TW_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define TW_UNROLL _Pragma("GCC unroll 64")
#define TW_ROLLED _Pragma("GCC unroll 1")
#endif

/* Marks a function into which all that it calls is inlined. */
#define TW_FLATTEN __attribute__((flatten))

extern const struct tw_kernel_table tw_kernels_scalar;
#if TW_KERNELS_X86
extern const struct tw_kernel_table tw_kernels_avx2, tw_kernels_avx512;
#endif
#if TW_KERNELS_ARM64
extern const struct tw_kernel_table tw_kernels_neon;
#endif
#if TW_KERNELS_ARM64_DOT
extern const struct tw_kernel_table tw_kernels_neon_dot;
#endif

/* Data movement, in move.c; the same for every table. */
tw_kernel tw_move_read, tw_move_gather, tw_move_write, tw_move_key_write, tw_move_value_write,
    tw_move_mcast, tw_move_send, tw_move_dram_copy, tw_move_copy, tw_move_last_row,
    tw_move_topk_merge;

#define TW_MOVE_KERNELS                                                                          \
    [TW_OP_READ] = tw_move_read, [TW_OP_GATHER] = tw_move_gather, [TW_OP_WRITE] = tw_move_write, \
    [TW_OP_KEY_WRITE] = tw_move_key_write, [TW_OP_VALUE_WRITE] = tw_move_value_write,            \
    [TW_OP_MCAST] = tw_move_mcast, [TW_OP_SEND] = tw_move_send,                                  \
    [TW_OP_DRAM_COPY] = tw_move_dram_copy, [TW_OP_COPY] = tw_move_copy,                          \
    [TW_OP_LAST_ROW] = tw_move_last_row, [TW_OP_TOPK_MERGE] = tw_move_topk_merge

/* The entries of a table that come from vector_*.h. */
#define TW_VECTOR_KERNELS                                                                          \
    TW_MOVE_KERNELS,                                                                               \
        [TW_OP_RMS_NORM] = rms_norm, [TW_OP_QUANT] = quant, [TW_OP_MATMUL] = matmul,               \
        [TW_OP_ROPE_TABLE] = rope_table, [TW_OP_ROPE] = rope, [TW_OP_ATTN_INIT] = attn_init,       \
        [TW_OP_ATTN_STEP] = attn_step, [TW_OP_ATTN_DONE] = attn_done,                              \
        [TW_OP_ATTN_MERGE] = attn_merge, [TW_OP_ADD] = add, [TW_OP_SILU_MUL] = silu_mul,           \
        [TW_OP_TOPK] = topk, [TW_OP_FOLD] = fold, [TW_OP_SQUARES] = squares,                       \
        [TW_OP_RMS_SCALE] = rms_scale, [TW_OP_QUANT_K] = quant_k, [TW_OP_LAYER_NORM] = layer_norm, \
        [TW_OP_GELU] = gelu, [TW_OP_GELU_MUL] = gelu_mul, [TW_OP_SCALE] = scale,                   \
        [TW_OP_SOFT_CAP] = soft_cap, [TW_OP_POS_SCALE] = pos_scale,                                \
        [TW_OP_ATTN_WINDOW] = attn_window

/* Return row r of a region. */
static inline float *tw_row(void *base, uint32_t stride, uint32_t r) {
    return (float *)(void *)((char *)base + (size_t)stride * r);
}
static inline const float *tw_const_row(const void *base, uint32_t stride, uint32_t r) {
    return (const float *)(const void *)((const char *)base + (size_t)stride * r);
}

/* Returns the factor of row r of a POS_SCALE. */
static inline float tw_pos_factor(const struct tw_args_pos_scale *v, uint32_t r) {
    uint32_t entry = (v->pos + r) / v->period, last = v->entries - 1;
    return ((const float *)v->factors)[entry < last ? entry : last];
}

/* Operands of MATMUL. */
struct tw_matmul {
    const char *x; /* rows of k floats, or of blocks of q8s or q8k */
    bool x_is_float;
    const uint8_t *w; /* panels */
    char *y;          /* rows of 16*panels floats */
    size_t x_stride, w_stride, y_stride;
    uint32_t dtype, k, panels, rows;
    bool reload;
};

static inline struct tw_matmul tw_matmul_view(const struct tw_kargs *a) {
    const struct tw_args_matmul v = tw_args_matmul(a);
    struct tw_matmul m;
    m.x = (const char *)v.x;
    m.x_is_float = a->x_dtype == TW_DT_F32;
    m.w = (const uint8_t *)v.w;
    m.y = (char *)v.y;
    m.x_stride = v.x_stride;
    m.w_stride = v.w_stride;
    m.dtype = v.dtype;
    m.k = v.k;
    m.panels = v.panels;
    m.y_stride = v.y_stride;
    m.reload = v.reload != 0;
    m.rows = v.rows;
    return m;
}

/* Returns the 16 outputs of a panel in row `row` of y. */
static inline float *tw_matmul_y(const struct tw_matmul *m, uint32_t row, uint32_t panel) {
    return (float *)(void *)(m->y + m->y_stride * row) + (size_t)panel * TW_PANEL_ROWS;
}

/* Operands of ATTN_STEP and ATTN_WINDOW. A query is one (row, head); its state of a segment is m,
 * l, o[head_dim]. */
struct tw_attention {
    const void *q, *keys, *values;
    float *state;
    uint32_t q_stride, heads, first, state_heads, head_dim, block, pos, rows;
    uint32_t segments, at; /* of the state, and the one that the block belongs to */
    float scale;
    uint32_t window; /* positions that a query sees; 0: all up to its own */
    float cap;       /* of the scores; 0: none */
    bool half;       /* keys and values are f16 */
    /* the block begins a segment for which the state has no place: the last two are merged first */
    bool merges;
};

static inline struct tw_attention tw_attention_view(const struct tw_kargs *a) {
    const struct tw_args_attn_step s = tw_args_attn_step(a);
    struct tw_attention v;
    v.q = s.q;
    v.keys = s.keys;
    v.values = s.values;
    v.state = (float *)s.state;
    v.q_stride = s.q_stride;
    v.heads = s.heads;
    v.first = s.first;
    v.state_heads = s.state_heads;
    v.head_dim = s.head_dim;
    v.scale = s.scale;
    v.block = s.block;
    v.pos = s.pos;
    v.rows = s.rows;
    v.window = 0;
    v.cap = 0.0f;
    v.half = s.dtype == TW_DT_F16;
    v.segments = s.segments;
    uint32_t blocks = TW_KEY_SEGMENT / TW_KV_BLOCK, number = s.block / blocks - s.segment;
    v.at = number < s.segments ? number : s.segments - 1;
    v.merges = number >= s.segments && s.segments > 1 && s.block % blocks == 0;
    return v;
}

/* The operands of an ATTN_WINDOW begin with those of an ATTN_STEP. */
static inline struct tw_attention tw_attention_window_view(const struct tw_kargs *a) {
    const struct tw_args_attn_window s = tw_args_attn_window(a);
    struct tw_attention v = tw_attention_view(a);
    v.window = s.window;
    v.cap = s.cap;
    return v;
}

/* Returns how many positions of the block, from its first one, are visible to row r: 0 ..
 * TW_KV_BLOCK. */
static inline uint32_t tw_attention_visible(const struct tw_attention *v, uint32_t r) {
    uint64_t end = (uint64_t)v->pos + r + 1, start = (uint64_t)v->block * TW_KV_BLOCK;
    if (end <= start) {
        return 0;
    }
    return end - start < TW_KV_BLOCK ? (uint32_t)(end - start) : TW_KV_BLOCK;
}

/* Returns how many positions of the block are before the window of row r: 0 .. TW_KV_BLOCK. */
static inline uint32_t tw_attention_before(const struct tw_attention *v, uint32_t r) {
    uint64_t end = (uint64_t)v->pos + r + 1, start = (uint64_t)v->block * TW_KV_BLOCK + v->window;
    if (v->window == 0 || end <= start) {
        return 0;
    }
    return end - start < TW_KV_BLOCK ? (uint32_t)(end - start) : TW_KV_BLOCK;
}

static inline const float *tw_attention_query(const struct tw_attention *v, uint32_t r,
                                              uint32_t h) {
    return tw_const_row(v->q, v->q_stride, r) + (size_t)h * v->head_dim;
}
/* Returns the floats from a segment's state to the next segment's. */
static inline size_t tw_attention_segment(const struct tw_attention *v) {
    return v->state_heads * ((size_t)v->head_dim + 2);
}
static inline float *tw_attention_state(const struct tw_attention *v, uint32_t r, uint32_t h) {
    return v->state + ((size_t)r * v->segments + v->at) * tw_attention_segment(v) +
           (v->first + h) * ((size_t)v->head_dim + 2);
}

/* Makes the state of a query empty. */
static inline void tw_attention_empty(float *state, uint32_t head_dim) {
    memset(state, 0, ((size_t)head_dim + 2) * sizeof *state);
    state[0] = -__builtin_inff();
}

#endif
