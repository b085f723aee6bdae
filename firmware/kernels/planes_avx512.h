/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen integer lanes, and the integer sums of quants in planes with VNNI: the weights are the
 * unsigned operand, as stored or looked up, and x the signed one. Included by avx512.c after
 * quant_avx512.h; planes_avx2.h and planes_neon.h define the same names.
 */

typedef __m512i vi;

TW_INLINE vi vi_set1(int32_t n) {
    return _mm512_set1_epi32(n);
}
/* 16 bytes, without and with sign. */
TW_INLINE vi vi_load_u8(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
TW_INLINE vi vi_load_i8(const uint8_t *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
TW_INLINE vi vi_add(vi a, vi b) {
    return _mm512_add_epi32(a, b);
}
/* a + b * c */
TW_INLINE vi vi_add_mul(vi a, vi b, vi c) {
    return _mm512_add_epi32(a, _mm512_mullo_epi32(b, c));
}
TW_INLINE vi vi_and(vi a, int32_t mask) {
    return _mm512_and_si512(a, _mm512_set1_epi32(mask));
}
TW_INLINE vi vi_or(vi a, vi b) {
    return _mm512_or_si512(a, b);
}
TW_INLINE vi vi_shift_left(vi a, int n) {
    return _mm512_sll_epi32(a, _mm_cvtsi32_si128(n));
}
TW_INLINE vi vi_shift_right(vi a, int n) {
    return _mm512_srl_epi32(a, _mm_cvtsi32_si128(n));
}
TW_INLINE vf vi_float(vi a) {
    return _mm512_cvtepi32_ps(a);
}
/* The floats of 16 bytes of MXFP4: tw_mxfp4_scale. */
TW_INLINE vf v_load_mxfp4(const uint8_t *p) {
    __m512i e = vi_load_u8(p);
    __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __mmask16 is_small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, is_small, small));
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
typedef uint16_t plane_words __attribute__((vector_size(64)));

/* Bits `shift` and up of every byte that `mask` keeps, moved to the mask. */
TW_INLINE __m512i plane_bits(const uint8_t *line, const int shift, const char mask) {
    plane_words words = (plane_words)_mm512_load_si512(line);
    words = shift < 0 ? words << -shift : words >> shift;
    return _mm512_and_si512((__m512i)words, _mm512_set1_epi8(mask));
}

TW_INLINE __m512i plane_table(unsigned dtype) {
    uint8_t u[16];
    TW_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        u[i] = tw_block_look_up(dtype, i);
    }
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)u));
}

/* The quants of group g of 32 columns. */
TW_INLINE __m512i plane_group(unsigned dtype, const uint8_t *w, const int g) {
    const uint32_t bits = tw_block_type(dtype).bits;
    const int pair = g % 4 * 2;
    if (bits == 2) {
        return plane_bits(w + g / 4 * 64, pair, 3);
    }
    if (bits == 3) {
        return _mm512_or_si512(plane_bits(w + g / 4 * 64, pair, 3), plane_bits(w + 128, g - 2, 4));
    }
    __m512i low = plane_bits(w + g % 4 * 64, g / 4 * 4, 15);
    if (bits == 5) {
        return _mm512_or_si512(low, plane_bits(w + 256, g - 4, 16));
    }
    if (bits == 6) {
        return _mm512_or_si512(low, plane_bits(w + 256 + g / 4 * 64, pair - 4, 48));
    }
    return tw_block_type(dtype).offset == 128 ? _mm512_shuffle_epi8(plane_table(dtype), low) : low;
}

/* The same, four bytes in each lane; also of 8 bits. */
TW_INLINE vi plane_lanes(unsigned dtype, const uint8_t *w, const int g) {
    return tw_block_type(dtype).bits == 8 ? _mm512_load_si512(w + g * 64)
                                          : plane_group(dtype, w, g);
}

/* Adds the products of groups from .. to - 1 of 32 columns; row r's quants are at in->x[r] + x. */
TW_INLINE void plane_sums(struct plane_ints *s, const struct tile_in *in, unsigned dtype,
                          const uint8_t *w, size_t x, const int from, const int to, const int R,
                          const int P) {
    TW_UNROLL
    for (int g = from; g < to; g++) {
        __m512i weights[MAX2(BLOCK_PANELS, BLOCK_ROW_PANELS)];
        TW_UNROLL
        for (int p = 0; p < P; p++) {
            weights[p] = plane_group(dtype, w + in->w_stride * (size_t)p, g);
        }
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            __m512i four = x_four((const int8_t *)in->x[r] + x + 4 * g);
            TW_UNROLL
            for (int p = 0; p < P; p++) {
                s->at[r][p] = _mm512_dpbusd_epi32(s->at[r][p], weights[p], four);
            }
        }
    }
}
