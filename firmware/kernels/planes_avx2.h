/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen integer lanes as two AVX2 registers, and the integer sums of quants in planes without
 * VNNI, exact. Quants of up to 6 bits go through the byte product, whose 16-bit sums hold a few
 * groups; those of IQ4_NL, IQ4_XS and MXFP4 have 8 bits, so their even and odd bytes are multiplied
 * as 16-bit pairs. Included by avx2.c after quant_avx2.h; planes_avx512.h has the same names.
 */

typedef struct {
    __m256i half[2];
} vi;

TW_INLINE vi vi_both(__m256i low, __m256i high) {
    vi v = {{low, high}};
    return v;
}
TW_INLINE vi vi_set1(int32_t n) {
    return vi_both(_mm256_set1_epi32(n), _mm256_set1_epi32(n));
}
/* 16 bytes, without and with sign. */
TW_INLINE vi vi_load_u8(const uint8_t *p) {
    return vi_both(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)),
                   _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p + 8))));
}
TW_INLINE vi vi_load_i8(const uint8_t *p) {
    return vi_both(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)),
                   _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p + 8))));
}
TW_INLINE vi vi_add(vi a, vi b) {
    return vi_both(_mm256_add_epi32(a.half[0], b.half[0]), _mm256_add_epi32(a.half[1], b.half[1]));
}
/* a + b * c */
TW_INLINE vi vi_add_mul(vi a, vi b, vi c) {
    return vi_add(a, vi_both(_mm256_mullo_epi32(b.half[0], c.half[0]),
                             _mm256_mullo_epi32(b.half[1], c.half[1])));
}
TW_INLINE vi vi_and(vi a, int32_t mask) {
    __m256i m = _mm256_set1_epi32(mask);
    return vi_both(_mm256_and_si256(a.half[0], m), _mm256_and_si256(a.half[1], m));
}
TW_INLINE vi vi_or(vi a, vi b) {
    return vi_both(_mm256_or_si256(a.half[0], b.half[0]), _mm256_or_si256(a.half[1], b.half[1]));
}
TW_INLINE vi vi_shift_left(vi a, int n) {
    __m128i count = _mm_cvtsi32_si128(n);
    return vi_both(_mm256_sll_epi32(a.half[0], count), _mm256_sll_epi32(a.half[1], count));
}
TW_INLINE vi vi_shift_right(vi a, int n) {
    __m128i count = _mm_cvtsi32_si128(n);
    return vi_both(_mm256_srl_epi32(a.half[0], count), _mm256_srl_epi32(a.half[1], count));
}
TW_INLINE vf vi_float(vi a) {
    return v_both(_mm256_cvtepi32_ps(a.half[0]), _mm256_cvtepi32_ps(a.half[1]));
}

TW_INLINE __m256 v_eight_mxfp4(__m256i e) {
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(bits, small, is_small));
}
/* The floats of 16 bytes of MXFP4: tw_mxfp4_scale. */
TW_INLINE vf v_load_mxfp4(const uint8_t *p) {
    vi e = vi_load_u8(p);
    return v_both(v_eight_mxfp4(e.half[0]), v_eight_mxfp4(e.half[1]));
}

/* The integer sums of a tile. */
struct plane_ints {
    vi at[BLOCK_ROWS][MAX2(BLOCK_PANELS, BLOCK_ROW_PANELS)];
};

/* Returns the value at which a sum starts: it cancels the quants' offset by means of x's sum. */
TW_INLINE int32_t plane_start(unsigned dtype, const int8_t *q, int32_t sum) {
    (void)q;
    return (int32_t)(0u - tw_block_type(dtype).offset * (uint32_t)sum);
}

/* Compilers' own vectors: they do not agree on the type of a shift's count in intrinsics. */
typedef uint16_t plane_words __attribute__((vector_size(32)));

/* Bits `shift` and up of every byte that `mask` keeps, moved to the mask. */
TW_INLINE __m256i plane_bits(const uint8_t *line, const int shift, const char mask) {
    plane_words words = (plane_words)w_load(line);
    words = shift < 0 ? words << -shift : words >> shift;
    return _mm256_and_si256((__m256i)words, _mm256_set1_epi8(mask));
}

TW_INLINE __m256i plane_table(unsigned dtype) {
    uint8_t u[16];
    TW_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        u[i] = tw_block_look_up(dtype, i);
    }
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)u));
}

/* The quants of group g of 32 columns, for eight rows. */
TW_INLINE __m256i plane_group(unsigned dtype, const uint8_t *w, const int g) {
    const uint32_t bits = tw_block_type(dtype).bits;
    const int pair = g % 4 * 2;
    if (bits == 2) {
        return plane_bits(w + g / 4 * 64, pair, 3);
    }
    if (bits == 3) {
        return _mm256_or_si256(plane_bits(w + g / 4 * 64, pair, 3), plane_bits(w + 128, g - 2, 4));
    }
    __m256i low = plane_bits(w + g % 4 * 64, g / 4 * 4, 15);
    if (bits == 5) {
        return _mm256_or_si256(low, plane_bits(w + 256, g - 4, 16));
    }
    if (bits == 6) {
        return _mm256_or_si256(low, plane_bits(w + 256 + g / 4 * 64, pair - 4, 48));
    }
    return tw_block_type(dtype).offset == 128 ? _mm256_shuffle_epi8(plane_table(dtype), low) : low;
}

/* The same for all 16 rows, four bytes in each lane; also of 8 bits. */
TW_INLINE vi plane_lanes(unsigned dtype, const uint8_t *w, const int g) {
    if (tw_block_type(dtype).bits == 8) {
        return vi_both(w_load(w + g * 64), w_load(w + g * 64 + 32));
    }
    return vi_both(plane_group(dtype, w, g), plane_group(dtype, w + 32, g));
}

/* The sums of one half of a panel's rows: of bytes, four by four. */
TW_INLINE void plane_wide(__m256i *sum, const struct tile_in *in, __m256i weights, size_t x,
                          const int R) {
    __m256i even = _mm256_and_si256(weights, _mm256_set1_epi16(255)),
            odd = _mm256_srli_epi16(weights, 8);
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        __m256i four = x_four((const int8_t *)in->x[r] + x);
        __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(four, 8), 8),
                x_odd = _mm256_srai_epi16(four, 8);
        sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(even, x_even));
        sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(odd, x_odd));
    }
}

TW_INLINE void plane_half_sums(__m256i *sum, const struct tile_in *in, unsigned dtype,
                               const uint8_t *w, size_t x, const int from, const int to,
                               const int R) {
    const uint32_t bits = tw_block_type(dtype).bits;
    /* groups whose products fit in 16 bits: 2 * 128 * (2^bits - 1) each */
    const int flush = bits == 6 ? 2 : bits == 5 ? 4 : 8;
    __m256i words[BLOCK_ROWS];
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        words[r] = _mm256_setzero_si256();
    }
    TW_UNROLL
    for (int g = from; g < to; g++) {
        __m256i weights = plane_group(dtype, w, g);
        if (tw_block_type(dtype).offset == 128) {
            plane_wide(sum, in, weights, x + 4 * (size_t)g, R);
            continue;
        }
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            __m256i four = x_four((const int8_t *)in->x[r] + x + 4 * g);
            words[r] = _mm256_add_epi16(words[r], _mm256_maddubs_epi16(weights, four));
            if ((g + 1) % flush == 0 || g + 1 == to) {
                sum[r] =
                    _mm256_add_epi32(sum[r], _mm256_madd_epi16(words[r], _mm256_set1_epi16(1)));
                words[r] = _mm256_setzero_si256();
            }
        }
    }
}

/* Adds the products of groups from .. to - 1 of 32 columns; row r's quants are at in->x[r] + x. */
TW_INLINE void plane_sums(struct plane_ints *s, const struct tile_in *in, unsigned dtype,
                          const uint8_t *w, size_t x, const int from, const int to, const int R,
                          const int P) {
    TW_UNROLL
    for (int i = 0; i < P * HALVES; i++) {
        __m256i sum[BLOCK_ROWS];
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            sum[r] = s->at[r][i / HALVES].half[i % HALVES];
        }
        plane_half_sums(sum, in, dtype, w + in->w_stride * (size_t)(i / HALVES) + i % HALVES * 32,
                        x, from, to, R);
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            s->at[r][i / HALVES].half[i % HALVES] = sum[r];
        }
    }
}
