/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen float lanes as two AVX2 registers: the operations in terms of which vector_rows.h,
 * vector_attn.h and vector_matmul.h are written. lanes_avx512.h defines the same names. Included by
 * avx2.c only, under its target.
 */

typedef struct {
    __m256 lo, hi;
} vf;

TW_INLINE vf v_both(__m256 lo, __m256 hi) {
    vf v = {lo, hi};
    return v;
}
TW_INLINE vf v_zero(void) {
    return v_both(_mm256_setzero_ps(), _mm256_setzero_ps());
}
TW_INLINE vf v_set1(float f) {
    return v_both(_mm256_set1_ps(f), _mm256_set1_ps(f));
}
TW_INLINE vf v_load(const float *p) {
    return v_both(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
TW_INLINE void v_store(float *p, vf a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
/* All bits set in those of the eight lanes from `from` on that are among the first n of 16. */
TW_INLINE __m256i v_first(uint32_t n, int from) {
    __m256i lane =
        _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(from));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}
/* The first n (0..16) lanes; the others load as 0 and are not stored. */
TW_INLINE vf v_load_n(const float *p, uint32_t n) {
    return v_both(_mm256_maskload_ps(p, v_first(n, 0)), _mm256_maskload_ps(p + 8, v_first(n, 8)));
}
TW_INLINE void v_store_n(float *p, uint32_t n, vf a) {
    _mm256_maskstore_ps(p, v_first(n, 0), a.lo);
    _mm256_maskstore_ps(p + 8, v_first(n, 8), a.hi);
}
/* a in the first n lanes, b in the others. */
TW_INLINE vf v_select_n(uint32_t n, vf a, vf b) {
    return v_both(_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(v_first(n, 0))),
                  _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(v_first(n, 8))));
}
TW_INLINE vf v_add(vf a, vf b) {
    return v_both(_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi));
}
TW_INLINE vf v_sub(vf a, vf b) {
    return v_both(_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi));
}
TW_INLINE vf v_mul(vf a, vf b) {
    return v_both(_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi));
}
TW_INLINE vf v_div(vf a, vf b) {
    return v_both(_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi));
}
TW_INLINE vf v_fma(vf a, vf b, vf c) {
    return v_both(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
TW_INLINE vf v_neg(vf a) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return v_both(_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign));
}
/* a > b ? a : b, which is b if either is NaN. */
TW_INLINE vf v_max(vf a, vf b) {
    return v_both(_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi));
}
TW_INLINE vf v_min(vf a, vf b) {
    return v_both(_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi));
}
TW_INLINE __m256 v_exp_scale_half(__m256 t) {
    __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(shifted, _mm256_set1_epi32(126 << 23)));
}
/* The float whose bits are (bits of t << 23) + (126 << 23): see tw_exp. */
TW_INLINE vf v_exp_scale(vf t) {
    return v_both(v_exp_scale_half(t.lo), v_exp_scale_half(t.hi));
}
/* +0 where x < low, else y. */
TW_INLINE vf v_zero_below(vf x, float low, vf y) {
    __m256 l = _mm256_set1_ps(low);
    return v_both(_mm256_and_ps(_mm256_cmp_ps(x.lo, l, _CMP_NLT_UQ), y.lo),
                  _mm256_and_ps(_mm256_cmp_ps(x.hi, l, _CMP_NLT_UQ), y.hi));
}

TW_INLINE float v_fold_add(vf a) {
    __m256 b = _mm256_add_ps(a.lo, a.hi);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
TW_INLINE float v_fold_max(vf a) {
    __m256 b = _mm256_max_ps(a.hi, a.lo);
    __m128 c = _mm_max_ps(_mm256_extractf128_ps(b, 1), _mm256_castps256_ps128(b));
    c = _mm_max_ps(_mm_movehl_ps(c, c), c);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(c), c));
}

/* Sixteen floats -> the eight at even and the eight at odd positions. */
TW_INLINE __m256 v_in_order(__m256 a) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), 0xD8));
}
TW_INLINE __m256 v_even(vf a) {
    return v_in_order(_mm256_shuffle_ps(a.lo, a.hi, 0x88));
}
TW_INLINE __m256 v_odd(vf a) {
    return v_in_order(_mm256_shuffle_ps(a.lo, a.hi, 0xDD));
}
/* 32 floats in order <-> those at even and at odd positions. */
TW_INLINE void v_unzip(vf a, vf b, vf *even, vf *odd) {
    *even = v_both(v_even(a), v_even(b));
    *odd = v_both(v_odd(a), v_odd(b));
}
TW_INLINE vf v_zip_half(__m256 even, __m256 odd) {
    __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    return v_both(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}
TW_INLINE void v_zip(vf even, vf odd, vf *a, vf *b) {
    *a = v_zip_half(even.lo, odd.lo);
    *b = v_zip_half(even.hi, odd.hi);
}

TW_INLINE __m128i v_eight_halves(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
/* The 16 weights of one k of a panel. */
TW_INLINE vf v_load_f16(const uint8_t *p) {
    return v_both(_mm256_cvtph_ps(v_eight_halves(p)), _mm256_cvtph_ps(v_eight_halves(p + 16)));
}
TW_INLINE __m256 v_eight_bf16(const uint8_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v_eight_halves(p)), 16));
}
TW_INLINE vf v_load_bf16(const uint8_t *p) {
    return v_both(v_eight_bf16(p), v_eight_bf16(p + 16));
}

/* ---- quantisation of a block: magnitudes as integers, then quants and their sum ---- */

TW_INLINE __m256i v_magnitude(const float *x) {
    return _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x)), _mm256_set1_epi32(INT32_MAX));
}
TW_INLINE uint32_t v_block_magnitude(const float *x) {
    __m256i a = _mm256_max_epu32(v_magnitude(x), v_magnitude(x + 8));
    a = _mm256_max_epu32(a, _mm256_max_epu32(v_magnitude(x + 16), v_magnitude(x + 24)));
    __m128i b = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(b, _mm_shuffle_epi32(b, 0xB1)));
}
TW_INLINE __m256i v_quants(const float *x, __m256 inverse) {
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}
TW_INLINE int32_t v_block_quants(const float *x, float inverse, int8_t *q) {
    __m256 f = _mm256_set1_ps(inverse);
    __m256i a = v_quants(x, f), b = v_quants(x + 8, f), c = v_quants(x + 16, f),
            d = v_quants(x + 24, f);
    __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)q, packed);
    __m256i s = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xB1)));
}
