/* SPDX-License-Identifier: Apache-2.0
 *
 * The integer sums of a quantised tile, and weights and quants as signed bytes: shared by
 * quant_neon.h and quant_neon_dot.h, and included before either.
 */

enum { QUARTERS = 4 }; /* registers of a panel's 16 rows */

struct tile_ints {
    int32x4_t at[QUANT_ROWS][MAX2(QUANT_PANELS, QUANT_ROW_PANELS)][QUARTERS];
};

/* Four consecutive quants, repeated four times. */
TW_INLINE int8x16_t x_four(const int8_t *q) {
    int32_t four;
    __builtin_memcpy(&four, q, sizeof four); /* inlined, also in freestanding code */
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

/* Q8_0 weights without the offset of 128 with which they are stored. */
TW_INLINE int8x16_t w_signed(const uint8_t *w) {
    return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(w), vdupq_n_u8(128)));
}
TW_INLINE int8x16_t w_low(const uint8_t *w) {
    return vreinterpretq_s8_u8(vandq_u8(vld1q_u8(w), vdupq_n_u8(15)));
}
TW_INLINE int8x16_t w_high(const uint8_t *w) {
    return vreinterpretq_s8_u8(vshrq_n_u8(vld1q_u8(w), 4));
}

/* Returns the value at which the integer sum of a block of x starts: it cancels the weights' offset
 * by means of x's stored sum. Q8_0 weights (w_signed) have no offset left, so the value is 0 unless
 * the stored sum is wrong; then the result must still equal the other tables'. */
TW_INLINE int32x4_t ints_start(unsigned dtype, const struct tw_q8s *x) {
    uint32_t sum = (uint32_t)x->sum;
    if (dtype == TW_DT_Q8_0) {
        int32_t quants = vaddlvq_s8(vld1q_s8(x->q)) + vaddlvq_s8(vld1q_s8(x->q + 16));
        return vdupq_n_s32((int32_t)(128u * ((uint32_t)quants - sum)));
    }
    return vdupq_n_s32((int32_t)(0u - 8u * sum));
}

TW_INLINE vf ints_float(const struct tile_ints *s, const int r, const int p) {
    V_RETURN(vcvtq_f32_s32(s->at[r][p][i]));
}
