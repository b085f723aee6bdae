/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen float lanes as one AVX-512 register: the operations in terms of which vector_rows.h,
 * vector_attn.h and vector_matmul.h are written. lanes_avx2.h defines the same names. Included by
 * avx512.c only, under its target.
 */

typedef __m512 vf;

TW_INLINE vf v_zero(void) {
    return _mm512_setzero_ps();
}
TW_INLINE vf v_set1(float f) {
    return _mm512_set1_ps(f);
}
TW_INLINE vf v_load(const float *p) {
    return _mm512_loadu_ps(p);
}
TW_INLINE void v_store(float *p, vf a) {
    _mm512_storeu_ps(p, a);
}
TW_INLINE __mmask16 v_first(uint32_t n) {
    return (__mmask16)((1u << n) - 1u);
}
/* The first n (0..16) lanes; the others load as 0 and are not stored. */
TW_INLINE vf v_load_n(const float *p, uint32_t n) {
    return _mm512_maskz_loadu_ps(v_first(n), p);
}
TW_INLINE void v_store_n(float *p, uint32_t n, vf a) {
    _mm512_mask_storeu_ps(p, v_first(n), a);
}
/* a in the first n lanes, b in the others. */
TW_INLINE vf v_select_n(uint32_t n, vf a, vf b) {
    return _mm512_mask_blend_ps(v_first(n), b, a);
}
TW_INLINE vf v_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
TW_INLINE vf v_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
TW_INLINE vf v_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
TW_INLINE vf v_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
TW_INLINE vf v_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
TW_INLINE vf v_neg(vf a) {
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)));
}
/* a > b ? a : b, which is b if either is NaN. */
TW_INLINE vf v_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}
TW_INLINE vf v_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
/* The float whose bits are (bits of t << 23) + (126 << 23): see tw_exp. */
TW_INLINE vf v_exp_scale(vf t) {
    __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_set1_epi32(126 << 23)));
}
/* +0 where x < low, else y. */
TW_INLINE vf v_zero_below(vf x, float low, vf y) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, v_set1(low), _CMP_NLT_UQ), y);
}

TW_INLINE __m256 v_high(vf a) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
}
TW_INLINE float v_fold_add(vf a) {
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), v_high(a));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
TW_INLINE float v_fold_max(vf a) {
    __m256 b = _mm256_max_ps(v_high(a), _mm512_castps512_ps256(a));
    __m128 c = _mm_max_ps(_mm256_extractf128_ps(b, 1), _mm256_castps256_ps128(b));
    c = _mm_max_ps(_mm_movehl_ps(c, c), c);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(c), c));
}

/* 32 floats in order <-> those at even and at odd positions. */
TW_INLINE void v_unzip(vf a, vf b, vf *even, vf *odd) {
    __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b);
}
TW_INLINE void v_zip(vf even, vf odd, vf *a, vf *b) {
    __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *a = _mm512_permutex2var_ps(even, low, odd);
    *b = _mm512_permutex2var_ps(even, _mm512_add_epi32(low, _mm512_set1_epi32(8)), odd);
}

/* The 16 weights of one k of a panel. */
TW_INLINE vf v_load_f16(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
TW_INLINE vf v_load_bf16(const uint8_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* ---- quantisation of a block: magnitudes as integers, then quants and their sum ---- */

TW_INLINE uint32_t v_block_magnitude(const float *x) {
    __m512i mask = _mm512_set1_epi32(INT32_MAX);
    __m512i a = _mm512_and_si512(_mm512_castps_si512(v_load(x)), mask);
    __m512i b = _mm512_and_si512(_mm512_castps_si512(v_load(x + 16)), mask);
    return _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
}
TW_INLINE int32_t v_block_quants(const float *x, float inverse, int8_t *q) {
    __m512i a = _mm512_cvtps_epi32(v_mul(v_load(x), v_set1(inverse)));
    __m512i b = _mm512_cvtps_epi32(v_mul(v_load(x + 16), v_set1(inverse)));
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(a));
    _mm_storeu_si128((__m128i *)(void *)(q + 16), _mm512_cvtepi32_epi8(b));
    return _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
}
