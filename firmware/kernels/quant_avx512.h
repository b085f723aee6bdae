/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantised tiles with VNNI: the weights are the unsigned operand, as stored, and x the signed one;
 * four products per lane and instruction. The integer sums start at minus the weights' offset times
 * x's sum. Included by avx512.c before vector_matmul.h.
 */

struct tile_ints {
    __m512i at[QUANT_ROWS][MAX2(QUANT_PANELS, QUANT_ROW_PANELS)];
};

/* Four consecutive quants in every lane. */
TW_INLINE __m512i x_four(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

/* The weights of group g: Q8_0 has eight groups of bytes; Q4_0 has four of low, then four of high
 * nibbles. */
TW_INLINE __m512i w_group(unsigned dtype, const uint8_t *block, int g) {
    if (dtype == TW_DT_Q8_0) {
        return _mm512_load_si512(block + 64 * g);
    }
    __m512i bytes = _mm512_load_si512(block + 64 * (g % 4));
    return _mm512_and_si512(g < 4 ? bytes : _mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15));
}

TW_INLINE void block_sums(struct tile_ints *s, const struct tile_in *in, unsigned dtype,
                          const uint8_t *w, size_t b, const int R, const int P) {
    const uint32_t offset = dtype == TW_DT_Q8_0 ? 128 : 8;
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        uint32_t start = 0u - offset * (uint32_t)x_block(in, r, b)->sum;
        TW_UNROLL
        for (int p = 0; p < P; p++) {
            s->at[r][p] = _mm512_set1_epi32((int32_t)start);
        }
    }
    TW_UNROLL
    for (int g = 0; g < 8; g++) {
        __m512i weights[MAX2(QUANT_PANELS, QUANT_ROW_PANELS)];
        TW_UNROLL
        for (int p = 0; p < P; p++) {
            weights[p] = w_group(dtype, w + in->w_stride * (size_t)p, g);
        }
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            __m512i four = x_four(x_block(in, r, b)->q + 4 * g);
            TW_UNROLL
            for (int p = 0; p < P; p++) {
                s->at[r][p] = _mm512_dpbusd_epi32(s->at[r][p], weights[p], four);
            }
        }
    }
}

TW_INLINE vf ints_float(const struct tile_ints *s, const int r, const int p) {
    return _mm512_cvtepi32_ps(s->at[r][p]);
}
