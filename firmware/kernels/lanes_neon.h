/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen float lanes as four NEON registers: the operations in terms of which vector_rows.h,
 * vector_attn.h and vector_matmul.h are written. lanes_avx2.h defines the same names. NEON has no
 * masked loads, so the ends of rows go through a buffer. Included by neon.c and neon_dot.c only,
 * with <arm_neon.h>.
 */

typedef struct {
    float32x4_t at[4];
} vf;

/* Returns a vf whose register i is the value of the expression, for each of the four. */
#define V_RETURN(expression)                    \
    do {                                        \
        vf all;                                 \
        TW_UNROLL for (int i = 0; i < 4; i++) { \
            all.at[i] = (expression);           \
        }                                       \
        return all;                             \
    } while (0)

TW_INLINE vf v_set1(float f) {
    V_RETURN(vdupq_n_f32(f));
}
TW_INLINE vf v_zero(void) {
    return v_set1(0.0f);
}
TW_INLINE vf v_load(const float *p) {
    V_RETURN(vld1q_f32(p + 4 * i));
}
TW_INLINE void v_store(float *p, vf a) {
    TW_UNROLL
    for (int i = 0; i < 4; i++) {
        vst1q_f32(p + 4 * i, a.at[i]);
    }
}
/* The first n (0..16) lanes; the others load as 0 and are not stored. */
TW_INLINE vf v_load_n(const float *p, uint32_t n) {
    float lane[TW_LANES] = {0};
    memcpy(lane, p, n * sizeof *p);
    return v_load(lane);
}
TW_INLINE void v_store_n(float *p, uint32_t n, vf a) {
    float lane[TW_LANES];
    v_store(lane, a);
    memcpy(p, lane, n * sizeof *p);
}
/* All bits set in those of the four lanes from `from` on that are among the first n of 16. */
TW_INLINE uint32x4_t v_first(uint32_t n, uint32_t from) {
    static const uint32_t lane[4] = {0, 1, 2, 3};
    return vcltq_u32(vaddq_u32(vld1q_u32(lane), vdupq_n_u32(from)), vdupq_n_u32(n));
}
/* a in the first n lanes, b in the others. */
TW_INLINE vf v_select_n(uint32_t n, vf a, vf b) {
    V_RETURN(vbslq_f32(v_first(n, 4 * (uint32_t)i), a.at[i], b.at[i]));
}
TW_INLINE vf v_add(vf a, vf b) {
    V_RETURN(vaddq_f32(a.at[i], b.at[i]));
}
TW_INLINE vf v_sub(vf a, vf b) {
    V_RETURN(vsubq_f32(a.at[i], b.at[i]));
}
TW_INLINE vf v_mul(vf a, vf b) {
    V_RETURN(vmulq_f32(a.at[i], b.at[i]));
}
TW_INLINE vf v_div(vf a, vf b) {
    V_RETURN(vdivq_f32(a.at[i], b.at[i]));
}
TW_INLINE vf v_fma(vf a, vf b, vf c) {
    V_RETURN(vfmaq_f32(c.at[i], a.at[i], b.at[i]));
}
TW_INLINE vf v_neg(vf a) {
    V_RETURN(vnegq_f32(a.at[i]));
}
/* a > b ? a : b, which is b if either is NaN; the maximum instruction would give NaN. */
TW_INLINE float32x4_t v_max_part(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
TW_INLINE vf v_max(vf a, vf b) {
    V_RETURN(v_max_part(a.at[i], b.at[i]));
}
TW_INLINE vf v_min(vf a, vf b) {
    V_RETURN(vbslq_f32(vcltq_f32(a.at[i], b.at[i]), a.at[i], b.at[i]));
}
TW_INLINE float32x4_t v_exp_scale_part(float32x4_t t) {
    int32x4_t shifted = vshlq_n_s32(vreinterpretq_s32_f32(t), 23);
    return vreinterpretq_f32_s32(vaddq_s32(shifted, vdupq_n_s32(126 << 23)));
}
/* The float whose bits are (bits of t << 23) + (126 << 23): see tw_exp. */
TW_INLINE vf v_exp_scale(vf t) {
    V_RETURN(v_exp_scale_part(t.at[i]));
}
TW_INLINE float32x4_t v_clear(uint32x4_t where, float32x4_t y) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), where));
}
/* +0 where x < low, else y. */
TW_INLINE vf v_zero_below(vf x, float low, vf y) {
    V_RETURN(v_clear(vcltq_f32(x.at[i], vdupq_n_f32(low)), y.at[i]));
}

TW_INLINE float v_fold_add(vf a) {
    float32x4_t b = vaddq_f32(vaddq_f32(a.at[0], a.at[2]), vaddq_f32(a.at[1], a.at[3]));
    float32x2_t c = vadd_f32(vget_low_f32(b), vget_high_f32(b));
    return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}
TW_INLINE float v_fold_max(vf a) {
    float32x4_t b = v_max_part(v_max_part(a.at[3], a.at[1]), v_max_part(a.at[2], a.at[0]));
    b = v_max_part(vextq_f32(b, b, 2), b);
    return vgetq_lane_f32(v_max_part(vextq_f32(b, b, 1), b), 0);
}

/* 32 floats in order <-> those at even and at odd positions. */
TW_INLINE void v_unzip(vf a, vf b, vf *even, vf *odd) {
    TW_UNROLL
    for (int i = 0; i < 2; i++) {
        even->at[i] = vuzp1q_f32(a.at[2 * i], a.at[2 * i + 1]);
        even->at[i + 2] = vuzp1q_f32(b.at[2 * i], b.at[2 * i + 1]);
        odd->at[i] = vuzp2q_f32(a.at[2 * i], a.at[2 * i + 1]);
        odd->at[i + 2] = vuzp2q_f32(b.at[2 * i], b.at[2 * i + 1]);
    }
}
TW_INLINE void v_zip(vf even, vf odd, vf *a, vf *b) {
    TW_UNROLL
    for (int i = 0; i < 2; i++) {
        a->at[2 * i] = vzip1q_f32(even.at[i], odd.at[i]);
        a->at[2 * i + 1] = vzip2q_f32(even.at[i], odd.at[i]);
        b->at[2 * i] = vzip1q_f32(even.at[i + 2], odd.at[i + 2]);
        b->at[2 * i + 1] = vzip2q_f32(even.at[i + 2], odd.at[i + 2]);
    }
}

/* The 16 weights of one k of a panel. */
TW_INLINE vf v_load_f16(const uint8_t *p) {
    V_RETURN(vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * i))));
}
TW_INLINE vf v_load_bf16(const uint8_t *p) {
    V_RETURN(vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * i)), 16)));
}

/* ---- quantisation of a block: magnitudes as integers, then quants and their sum ---- */

TW_INLINE uint32_t v_block_magnitude(const float *x) {
    uint32x4_t max = vdupq_n_u32(0);
    TW_UNROLL
    for (int i = 0; i < 8; i++) {
        uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(x + 4 * i));
        max = vmaxq_u32(max, vandq_u32(bits, vdupq_n_u32(INT32_MAX)));
    }
    return vmaxvq_u32(max);
}
TW_INLINE int16x4_t v_quants(const float *x, float inverse) {
    return vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x), inverse)));
}
TW_INLINE int32_t v_block_quants(const float *x, float inverse, int8_t *q) {
    int32_t sum = 0;
    TW_UNROLL
    for (int i = 0; i < 4; i++) {
        int16x8_t eight =
            vcombine_s16(v_quants(x + 8 * i, inverse), v_quants(x + 8 * i + 4, inverse));
        vst1_s8(q + 8 * i, vmovn_s16(eight));
        sum += vaddvq_s16(eight);
    }
    return sum;
}
