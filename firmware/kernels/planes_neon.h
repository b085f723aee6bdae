/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen integer lanes as four NEON registers, and quants in planes as signed bytes: shared by
 * quant_neon.h and quant_neon_dot.h, which add their sums (plane_sums), and included before either.
 * planes_avx512.h has the same names.
 */

typedef struct {
    int32x4_t at[4];
} vi;

/* Returns a vi whose register i is the value of the expression, for each of the four. */
#define VI_RETURN(expression)                   \
    do {                                        \
        vi all;                                 \
        TW_UNROLL for (int i = 0; i < 4; i++) { \
            all.at[i] = (expression);           \
        }                                       \
        return all;                             \
    } while (0)

TW_INLINE vi vi_set1(int32_t n) {
    VI_RETURN(vdupq_n_s32(n));
}
TW_INLINE vi vi_of_words(int16x8_t low, int16x8_t high) {
    vi v = {{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)),
             vmovl_high_s16(high)}};
    return v;
}
/* 16 bytes, without and with sign. */
TW_INLINE vi vi_load_u8(const uint8_t *p) {
    uint8x16_t bytes = vld1q_u8(p);
    return vi_of_words(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes))),
                       vreinterpretq_s16_u16(vmovl_high_u8(bytes)));
}
TW_INLINE vi vi_load_i8(const uint8_t *p) {
    int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
    return vi_of_words(vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
}
TW_INLINE vi vi_add(vi a, vi b) {
    VI_RETURN(vaddq_s32(a.at[i], b.at[i]));
}
/* a + b * c */
TW_INLINE vi vi_add_mul(vi a, vi b, vi c) {
    VI_RETURN(vmlaq_s32(a.at[i], b.at[i], c.at[i]));
}
TW_INLINE vi vi_and(vi a, int32_t mask) {
    VI_RETURN(vandq_s32(a.at[i], vdupq_n_s32(mask)));
}
TW_INLINE vi vi_or(vi a, vi b) {
    VI_RETURN(vorrq_s32(a.at[i], b.at[i]));
}
TW_INLINE vi vi_shift_left(vi a, int n) {
    VI_RETURN(vshlq_s32(a.at[i], vdupq_n_s32(n)));
}
/* The bits above the lowest n; a is not negative. */
TW_INLINE vi vi_shift_right(vi a, int n) {
    VI_RETURN(vshlq_s32(a.at[i], vdupq_n_s32(-n)));
}
TW_INLINE vf vi_float(vi a) {
    V_RETURN(vcvtq_f32_s32(a.at[i]));
}
TW_INLINE float32x4_t v_four_mxfp4(int32x4_t e) {
    int32x4_t small = vshlq_s32(vdupq_n_s32(0x00200000), e);
    int32x4_t bits = vshlq_n_s32(vsubq_s32(e, vdupq_n_s32(1)), 23);
    return vreinterpretq_f32_s32(vbslq_s32(vcltq_s32(e, vdupq_n_s32(2)), small, bits));
}
/* The floats of 16 bytes of MXFP4: tw_mxfp4_scale. */
TW_INLINE vf v_load_mxfp4(const uint8_t *p) {
    vi e = vi_load_u8(p);
    V_RETURN(v_four_mxfp4(e.at[i]));
}

/* The integer sums of a tile. */
struct plane_ints {
    vi at[BLOCK_ROWS][MAX2(BLOCK_PANELS, BLOCK_ROW_PANELS)];
};

/* Returns the value at which a sum starts: it cancels the quants' offset by means of x's sum. An
 * offset of 128 is not in the bytes multiplied here, so the value is 0 unless the stored sum of the
 * 32 quants is wrong; then the result must still equal the other tables'. */
TW_INLINE int32_t plane_start(unsigned dtype, const int8_t *q, int32_t sum) {
    const uint32_t offset = tw_block_type(dtype).offset;
    if (offset == 128) {
        int32_t quants = vaddlvq_s8(vld1q_s8(q)) + vaddlvq_s8(vld1q_s8(q + 16));
        return (int32_t)(128u * ((uint32_t)quants - (uint32_t)sum));
    }
    return (int32_t)(0u - offset * (uint32_t)sum);
}

/* Bits `shift` and up of every byte that `mask` keeps, moved to the mask. */
TW_INLINE uint8x16_t plane_bits(const uint8_t *line, const int shift, const uint8_t mask) {
    return vandq_u8(vshlq_u8(vld1q_u8(line), vdupq_n_s8((int8_t)-shift)), vdupq_n_u8(mask));
}

/* The signed values of four bits of a type with an offset of 128. */
TW_INLINE uint8x16_t plane_table(unsigned dtype) {
    uint8_t u[16];
    TW_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        u[i] = tw_block_look_up(dtype, i) ^ 128;
    }
    return vld1q_u8(u);
}

TW_INLINE uint8x16_t plane_unsigned(unsigned dtype, const uint8_t *w, const int g) {
    const uint32_t bits = tw_block_type(dtype).bits;
    const int pair = g % 4 * 2;
    if (bits == 2) {
        return plane_bits(w + g / 4 * 64, pair, 3);
    }
    if (bits == 3) {
        return vorrq_u8(plane_bits(w + g / 4 * 64, pair, 3), plane_bits(w + 128, g - 2, 4));
    }
    uint8x16_t low = plane_bits(w + g % 4 * 64, g / 4 * 4, 15);
    if (bits == 5) {
        return vorrq_u8(low, plane_bits(w + 256, g - 4, 16));
    }
    if (bits == 6) {
        return vorrq_u8(low, plane_bits(w + 256 + g / 4 * 64, pair - 4, 48));
    }
    return tw_block_type(dtype).offset == 128 ? vqtbl1q_u8(plane_table(dtype), low) : low;
}

/* The quants of group g of 32 columns, for four rows. */
TW_INLINE int8x16_t plane_group(unsigned dtype, const uint8_t *w, const int g) {
    return vreinterpretq_s8_u8(plane_unsigned(dtype, w, g));
}

/* The quants of a group as they are stored or looked up, for all 16 rows: four bytes in each lane;
 * also of 8 bits. */
TW_INLINE vi plane_lanes(unsigned dtype, const uint8_t *w, const int g) {
    const struct tw_block_type type = tw_block_type(dtype);
    if (type.bits == 8) {
        VI_RETURN(vreinterpretq_s32_u8(vld1q_u8(w + g * 64 + 16 * i)));
    }
    const uint8x16_t sign = vdupq_n_u8(type.offset == 128 ? 128 : 0);
    VI_RETURN(vreinterpretq_s32_u8(veorq_u8(plane_unsigned(dtype, w + 16 * i, g), sign)));
}
