/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantised tiles by widening multiplication, exact. A register of weights is four rows of four k,
 * whose products are adjacent until pairs of them are added. Q8_0: products have 16 bits and are
 * immediately added in pairs into 32 bits, since two of the largest would overflow. Q4_0: nibbles
 * are small enough for 16-bit sums of a whole block: 8 * 15 * 128 < 2^15. Included by neon.c before
 * vector_matmul.h.
 */

/* Pairs that are still to be added: of rows 0 and 1, and of rows 2 and 3. */
struct pair_sums {
    int32x4_t low[QUANT_ROWS], high[QUANT_ROWS];
};

TW_INLINE void q8_pairs(struct pair_sums *s, const struct tile_in *in, const uint8_t *w, size_t b,
                        const int R) {
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        s->low[r] = s->high[r] = vdupq_n_s32(0);
    }
    TW_ROLLED
    for (int g = 0; g < 8; g++) {
        int8x16_t weights = w_signed(w + g * 64);
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            int8x16_t four = x_four(x_block(in, r, b)->q + 4 * g);
            s->low[r] = vpadalq_s16(s->low[r], vmull_s8(vget_low_s8(weights), vget_low_s8(four)));
            s->high[r] = vpadalq_s16(s->high[r], vmull_high_s8(weights, four));
        }
    }
}

TW_INLINE void q4_pairs(struct pair_sums *s, const struct tile_in *in, const uint8_t *w, size_t b,
                        const int R) {
    int16x8_t low[QUANT_ROWS], high[QUANT_ROWS];
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        low[r] = high[r] = vdupq_n_s16(0);
    }
    TW_ROLLED
    for (int g = 0; g < 4; g++) {
        int8x16_t first = w_low(w + g * 64), second = w_high(w + g * 64);
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            const int8_t *q = x_block(in, r, b)->q + 4 * g;
            int8x16_t x = x_four(q), y = x_four(q + 16);
            low[r] = vmlal_s8(low[r], vget_low_s8(first), vget_low_s8(x));
            low[r] = vmlal_s8(low[r], vget_low_s8(second), vget_low_s8(y));
            high[r] = vmlal_high_s8(high[r], first, x);
            high[r] = vmlal_high_s8(high[r], second, y);
        }
    }
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        s->low[r] = vpaddlq_s16(low[r]);
        s->high[r] = vpaddlq_s16(high[r]);
    }
}

TW_INLINE void block_sums(struct tile_ints *s, const struct tile_in *in, unsigned dtype,
                          const uint8_t *w, size_t b, const int R, const int P) {
    const bool q8 = dtype == TW_DT_Q8_0;
    int32x4_t start[QUANT_ROWS];
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        start[r] = ints_start(dtype, x_block(in, r, b));
    }
    TW_UNROLL
    for (int i = 0; i < P * QUARTERS; i++) {
        const uint8_t *quarter = w + in->w_stride * (size_t)(i / QUARTERS) + i % QUARTERS * 16;
        struct pair_sums pairs;
        if (q8) {
            q8_pairs(&pairs, in, quarter, b, R);
        } else {
            q4_pairs(&pairs, in, quarter, b, R);
        }
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            s->at[r][i / QUARTERS][i % QUARTERS] =
                vaddq_s32(start[r], vpaddq_s32(pairs.low[r], pairs.high[r]));
        }
    }
}
