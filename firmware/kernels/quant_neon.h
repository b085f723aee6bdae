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

/* Sums in 16 bits of rows 0 and 1, and of rows 2 and 3. */
struct plane_words {
    int16x8_t low, high;
};

/* The same for quants in planes, one register of rows: 16-bit sums hold a few groups. */
TW_INLINE void plane_quarter_sums(int32x4_t *sum, const struct tile_in *in, unsigned dtype,
                                  const uint8_t *w, size_t x, const int from, const int to,
                                  const int R) {
    const struct tw_block_type type = tw_block_type(dtype);
    /* products are at most 128 * (2^bits - 1); in types with an offset of 128, 128 * 127 */
    const int flush = type.offset == 128 ? 2 : type.bits == 6 ? 4 : 8;
    struct plane_words words[BLOCK_ROWS];
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        words[r].low = words[r].high = vdupq_n_s16(0);
    }
    TW_UNROLL
    for (int g = from; g < to; g++) {
        int8x16_t weights = plane_group(dtype, w, g);
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            int8x16_t four = x_four((const int8_t *)in->x[r] + x + 4 * g);
            if (g % flush == 0) {
                words[r].low = vmull_s8(vget_low_s8(weights), vget_low_s8(four));
                words[r].high = vmull_high_s8(weights, four);
            } else {
                words[r].low = vmlal_s8(words[r].low, vget_low_s8(weights), vget_low_s8(four));
                words[r].high = vmlal_high_s8(words[r].high, weights, four);
            }
            if ((g + 1) % flush == 0 || g + 1 == to) {
                sum[r] = vaddq_s32(
                    sum[r], vpaddq_s32(vpaddlq_s16(words[r].low), vpaddlq_s16(words[r].high)));
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
    for (int i = 0; i < P * QUARTERS; i++) {
        int32x4_t sum[BLOCK_ROWS];
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            sum[r] = s->at[r][i / QUARTERS].at[i % QUARTERS];
        }
        plane_quarter_sums(sum, in, dtype,
                           w + in->w_stride * (size_t)(i / QUARTERS) + i % QUARTERS * 16, x, from,
                           to, R);
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            s->at[r][i / QUARTERS].at[i % QUARTERS] = sum[r];
        }
    }
}
