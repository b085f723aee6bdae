/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantised tiles without VNNI, exact. Q8_0: the byte product instruction would saturate, so the
 * even and the odd bytes of each four are widened in place (a mask and a shift) and multiplied as
 * 16-bit pairs. Q4_0: nibbles are small enough for the byte product, and its 16-bit sums hold a
 * whole block: 8 * 2 * 15 * 128 < 2^15. Included by avx2.c before vector_matmul.h.
 */

enum { HALVES = 2 }; /* registers of a panel's 16 rows */

struct tile_ints {
    __m256i at[QUANT_ROWS][MAX2(QUANT_PANELS, QUANT_ROW_PANELS)][HALVES];
};

/* The quants of a block of R rows as 16-bit numbers: the even and the odd ones of each four, two
 * per 32-bit element. */
struct wide_quants {
    int32_t even[QUANT_ROWS][8], odd[QUANT_ROWS][8];
};

TW_INLINE __m256i w_load(const uint8_t *p) {
    return _mm256_load_si256((const __m256i *)(const void *)p);
}

TW_INLINE void widen(struct wide_quants *wide, const struct tile_in *in, size_t b, const int R) {
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        const int8_t *q = x_block(in, r, b)->q;
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)q);
        __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8),
                odd = _mm256_srai_epi16(bytes, 8);
        _mm256_storeu_si256((__m256i *)(void *)wide->even[r], even);
        _mm256_storeu_si256((__m256i *)(void *)wide->odd[r], odd);
    }
}

TW_INLINE void q8_sums(struct tile_ints *s, const struct tile_in *in, const uint8_t *w, size_t b,
                       const int R, const int P) {
    struct wide_quants wide;
    const __m256i low = _mm256_set1_epi16(255);
    widen(&wide, in, b, R);
    TW_UNROLL
    for (int i = 0; i < P * HALVES; i++) {
        const uint8_t *half = w + in->w_stride * (size_t)(i / HALVES) + i % HALVES * 32;
        __m256i sum[QUANT_ROWS];
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            sum[r] = s->at[r][i / HALVES][i % HALVES];
        }
        TW_ROLLED
        for (int g = 0; g < 8; g++) {
            __m256i bytes = w_load(half + g * 64);
            __m256i even = _mm256_and_si256(bytes, low), odd = _mm256_srli_epi16(bytes, 8);
            TW_UNROLL
            for (int r = 0; r < R; r++) {
                __m256i product = _mm256_madd_epi16(even, _mm256_set1_epi32(wide.even[r][g]));
                sum[r] = _mm256_add_epi32(sum[r], product);
                sum[r] = _mm256_add_epi32(
                    sum[r], _mm256_madd_epi16(odd, _mm256_set1_epi32(wide.odd[r][g])));
            }
        }
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            s->at[r][i / HALVES][i % HALVES] = sum[r];
        }
    }
}

/* Four consecutive quants in every lane. */
TW_INLINE __m256i x_four(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

TW_INLINE void q4_sums(struct tile_ints *s, const struct tile_in *in, const uint8_t *w, size_t b,
                       const int R, const int P) {
    const __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    TW_UNROLL
    for (int i = 0; i < P * HALVES; i++) {
        __m256i words[QUANT_ROWS];
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            words[r] = _mm256_setzero_si256();
        }
        TW_ROLLED
        for (int g = 0; g < 4; g++) {
            __m256i bytes =
                w_load(w + in->w_stride * (size_t)(i / HALVES) + g * 64 + i % HALVES * 32);
            __m256i low = _mm256_and_si256(bytes, nibble);
            __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
            TW_UNROLL
            for (int r = 0; r < R; r++) {
                const int8_t *q = x_block(in, r, b)->q + 4 * g;
                __m256i pair = _mm256_maddubs_epi16(low, x_four(q));
                pair = _mm256_add_epi16(pair, _mm256_maddubs_epi16(high, x_four(q + 16)));
                words[r] = _mm256_add_epi16(words[r], pair);
            }
        }
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            __m256i *sum = &s->at[r][i / HALVES][i % HALVES];
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(words[r], ones));
        }
    }
}

/* Integer sums start at minus the weights' offset times x's sum. */
TW_INLINE void ints_start(struct tile_ints *s, const struct tile_in *in, uint32_t offset, size_t b,
                          const int R, const int P) {
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        uint32_t start = 0u - offset * (uint32_t)x_block(in, r, b)->sum;
        TW_UNROLL
        for (int i = 0; i < P * HALVES; i++) {
            s->at[r][i / HALVES][i % HALVES] = _mm256_set1_epi32((int32_t)start);
        }
    }
}

TW_INLINE void block_sums(struct tile_ints *s, const struct tile_in *in, unsigned dtype,
                          const uint8_t *w, size_t b, const int R, const int P) {
    ints_start(s, in, dtype == TW_DT_Q8_0 ? 128 : 8, b, R, P);
    if (dtype == TW_DT_Q8_0) {
        q8_sums(s, in, w, b, R, P);
    } else {
        q4_sums(s, in, w, b, R, P);
    }
}

TW_INLINE vf ints_float(const struct tile_ints *s, const int r, const int p) {
    return v_both(_mm256_cvtepi32_ps(s->at[r][p][0]), _mm256_cvtepi32_ps(s->at[r][p][1]));
}
