/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel files share: the tables' names, views of the uniform arguments and the loop
 * helpers.
 *
 * A view names what an op of ops.def keeps in p[] and i[], so that operand order is spelled out in
 * one place for all instruction sets.
 */
#ifndef TW_FIRMWARE_KERNELS_INTERNAL_H
#define TW_FIRMWARE_KERNELS_INTERNAL_H

#include "firmware/kernels/kernels.h"

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
/* Before release 16, clang has the dot product only where the whole file is compiled for it. */
#if TW_KERNELS_ARM64 && \
    (!defined(__clang__) || __clang_major__ >= 16 || defined(__ARM_FEATURE_DOTPROD))
#define TW_KERNELS_ARM64_DOT 1
#else
#define TW_KERNELS_ARM64_DOT 0
#endif

/* Tiles are templates: functions that take their sizes as constant arguments and must be inlined
 * and unrolled for their accumulators to stay in registers. Loops over the groups of a block stay
 * loops where a compiler, seeing all its integer additions at once, would reorder them into more
 * live values than there are registers. */
#define TW_INLINE static inline __attribute__((always_inline))
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(undefined_behavior_sanitizer)
#define TW_SANITIZED 1
#endif
#endif
#if defined(TW_SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TW_ROLLED
#define TW_UNROLL /* each access is instrumented: unrolled, compilers take minutes */
#elif defined(__clang__)
#define TW_UNROLL _Pragma("clang loop unroll(full)")
#define TW_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define TW_UNROLL _Pragma("GCC unroll 64")
#define TW_ROLLED _Pragma("GCC unroll 1")
#endif

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

/* Movement is the same for every table. In move.c. */
tw_kernel tw_move_read, tw_move_gather, tw_move_write, tw_move_key_write, tw_move_value_write,
    tw_move_mcast, tw_move_copy, tw_move_last_row;

#define TW_MOVE_KERNELS                                                                          \
    [TW_OP_READ] = tw_move_read, [TW_OP_GATHER] = tw_move_gather, [TW_OP_WRITE] = tw_move_write, \
    [TW_OP_KEY_WRITE] = tw_move_key_write, [TW_OP_VALUE_WRITE] = tw_move_value_write,            \
    [TW_OP_MCAST] = tw_move_mcast, [TW_OP_COPY] = tw_move_copy,                                  \
    [TW_OP_LAST_ROW] = tw_move_last_row

/* The entries of a table made of vector_*.h. */
#define TW_VECTOR_KERNELS                                                                         \
    TW_MOVE_KERNELS, [TW_OP_RMS_NORM] = rms_norm, [TW_OP_QUANT] = quant, [TW_OP_MATMUL] = matmul, \
                     [TW_OP_ROPE_TABLE] = rope_table, [TW_OP_ROPE] = rope,                        \
                     [TW_OP_ATTN_INIT] = attn_init, [TW_OP_ATTN_STEP] = attn_step,                \
                     [TW_OP_ATTN_DONE] = attn_done, [TW_OP_ADD] = add, [TW_OP_SILU_MUL] = silu_mul

/* Row r of a region. */
static inline float *tw_row(void *base, uint32_t stride, uint32_t r) {
    return (float *)(void *)((char *)base + (size_t)stride * r);
}
static inline const float *tw_const_row(const void *base, uint32_t stride, uint32_t r) {
    return (const float *)(const void *)((const char *)base + (size_t)stride * r);
}

/* MATMUL. */
struct tw_matmul {
    const char *x;                                  /* rows of k floats, or of k/32 blocks of q8s */
    const uint8_t *w;                               /* panels */
    char *y;                                        /* rows of 16*panels floats */
    size_t x_stride, y_stride, panel_bytes, scales; /* scales: their offset inside a panel */
    uint32_t dtype, k, panels, rows;
    bool reload;
};

static inline struct tw_matmul tw_matmul_view(const struct tw_kargs *a) {
    struct tw_matmul m;
    m.x = (const char *)a->p[0];
    m.w = (const uint8_t *)a->p[1];
    m.y = (char *)a->p[2];
    m.x_stride = a->i[0];
    m.dtype = a->i[1];
    m.k = a->i[2];
    m.panels = a->i[3];
    m.y_stride = a->i[4];
    m.reload = a->i[5] != 0;
    m.rows = a->rows;
    m.panel_bytes = (size_t)tw_panel_bytes(m.dtype, m.k);
    m.scales = (size_t)tw_panel_scales_offset(m.dtype, m.k);
    return m;
}

static inline float *tw_matmul_y(const struct tw_matmul *m, uint32_t row, uint32_t panel) {
    return (float *)(void *)(m->y + m->y_stride * row) + (size_t)panel * TW_PANEL_ROWS;
}

/* ROPE. */
struct tw_rope {
    void *x;
    const void *cs;
    uint32_t x_stride, cs_stride, heads, head_dim, half, mode, rows;
};

static inline struct tw_rope tw_rope_view(const struct tw_kargs *a) {
    struct tw_rope v = {a->p[0], a->p[1],     a->i[0], a->i[1], a->i[2],
                        a->i[3], a->i[4] / 2, a->i[5], a->rows};
    return v;
}

/* ATTN_STEP. A query is one (row, head); its state is m, l, o[head_dim]. */
struct tw_attention {
    const void *q;
    const float *keys, *values;
    float *state;
    uint32_t q_stride, heads, first, state_heads, head_dim, block, pos, rows;
    float scale;
};

static inline struct tw_attention tw_attention_view(const struct tw_kargs *a) {
    struct tw_attention v;
    v.q = a->p[0];
    v.keys = (const float *)a->p[1];
    v.values = (const float *)a->p[2];
    v.state = (float *)a->p[3];
    v.q_stride = a->i[0];
    v.heads = a->i[1];
    v.first = a->i[2];
    v.state_heads = a->i[3];
    v.head_dim = a->i[4];
    v.scale = a->f;
    v.block = a->block;
    v.pos = a->pos;
    v.rows = a->rows;
    return v;
}

/* How many positions of the block row r sees, from its first on: 0 .. TW_KV_BLOCK. */
static inline uint32_t tw_attention_visible(const struct tw_attention *v, uint32_t r) {
    uint64_t end = (uint64_t)v->pos + r + 1, start = (uint64_t)v->block * TW_KV_BLOCK;
    if (end <= start) {
        return 0;
    }
    return end - start < TW_KV_BLOCK ? (uint32_t)(end - start) : TW_KV_BLOCK;
}

static inline const float *tw_attention_query(const struct tw_attention *v, uint32_t r,
                                              uint32_t h) {
    return tw_const_row(v->q, v->q_stride, r) + (size_t)h * v->head_dim;
}
static inline float *tw_attention_state(const struct tw_attention *v, uint32_t r, uint32_t h) {
    return v->state + ((size_t)r * v->state_heads + v->first + h) * ((size_t)v->head_dim + 2);
}

#endif
