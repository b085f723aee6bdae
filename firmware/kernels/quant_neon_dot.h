/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantised tiles by the signed dot product of Armv8.2: four products per lane and instruction,
 * exact. Included by neon_dot.c before vector_matmul.h.
 */

/* The weights of group g: Q8_0 has eight groups of bytes; Q4_0 has four of low, then four of high
 * nibbles. */
TW_INLINE int8x16_t w_group(unsigned dtype, const uint8_t *quarter, int g) {
    if (dtype == TW_DT_Q8_0) {
        return w_signed(quarter + g * 64);
    }
    return g < 4 ? w_low(quarter + g * 64) : w_high(quarter + (g - 4) * 64);
}

TW_INLINE void block_sums(struct tile_ints *s, const struct tile_in *in, unsigned dtype,
                          const uint8_t *w, size_t b, const int R, const int P) {
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        int32x4_t start = ints_start(dtype, x_block(in, r, b));
        TW_UNROLL
        for (int i = 0; i < P * QUARTERS; i++) {
            s->at[r][i / QUARTERS][i % QUARTERS] = start;
        }
    }
    TW_ROLLED
    for (int g = 0; g < 8; g++) {
        int8x16_t weights[MAX2(QUANT_PANELS, QUANT_ROW_PANELS) * QUARTERS];
        TW_UNROLL
        for (int i = 0; i < P * QUARTERS; i++) {
            const uint8_t *panel = w + in->w_stride * (size_t)(i / QUARTERS);
            weights[i] = w_group(dtype, panel + i % QUARTERS * 16, g);
        }
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            int8x16_t four = x_four(x_block(in, r, b)->q + 4 * g);
            TW_UNROLL
            for (int i = 0; i < P * QUARTERS; i++) {
                int32x4_t *sum = &s->at[r][i / QUARTERS][i % QUARTERS];
                *sum = vdotq_s32(*sum, weights[i], four);
            }
        }
    }
}

/* Adds the products of groups from .. to - 1 of 32 columns in planes; row r's quants are at
 * in->x[r] + x. */
TW_INLINE void plane_sums(struct plane_ints *s, const struct tile_in *in, unsigned dtype,
                          const uint8_t *w, size_t x, const int from, const int to, const int R,
                          const int P) {
    TW_UNROLL
    for (int g = from; g < to; g++) {
        int8x16_t weights[MAX2(BLOCK_PANELS, BLOCK_ROW_PANELS) * QUARTERS];
        TW_UNROLL
        for (int i = 0; i < P * QUARTERS; i++) {
            const uint8_t *panel = w + in->w_stride * (size_t)(i / QUARTERS);
            weights[i] = plane_group(dtype, panel + i % QUARTERS * 16, g);
        }
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            int8x16_t four = x_four((const int8_t *)in->x[r] + x + 4 * g);
            TW_UNROLL
            for (int i = 0; i < P * QUARTERS; i++) {
                int32x4_t *sum = &s->at[r][i / QUARTERS].at[i % QUARTERS];
                *sum = vdotq_s32(*sum, weights[i], four);
            }
        }
    }
}
