/* SPDX-License-Identifier: Apache-2.0
 *
 * Numerics are part of the machine. This header is the scalar definition of every formula whose
 * rounding matters; each kernel of each instruction set gives the same bits. Compile with
 * -ffp-contract=off: a fused multiply-add happens only where fmaf is written. Rounding mode:
 * nearest even; subnormals are kept.
 *
 * Freestanding apart from fmaf, fma and sqrtf, which must be correctly rounded. On a processor
 * without double precision the library's fma may round twice (newlib's does): a port to it must
 * supply a correct one.
 *
 * Results are bit-identical for all numbers and infinities. Where a result is NaN, it is NaN
 * everywhere, but its sign and payload are not defined.
 *
 * The orders of sums:
 *   canonical   sums over k (products, squares): k is cut from 0 in segments of TW_SUM_SEGMENT,
 *               each has its own sum, and those of segments are added in a fixed tree ("canonical
 *               sums", below), whatever k is split over
 *   matmul      a segment: s = 0; for k ascending: s = fmaf(w[k], x[k], s)
 *               quantised, a block of 32 at a time: s = fmaf((float)i, dw * dx, s) with the exact
 *               integer i = sum(w_q * x_q); Q8_0 as stored (q + 128):
 *               i = sum(u * x_q) - 128 * x.sum; Q4_0: i = sum(n * x_q) - 8 * x.sum;
 *               all modulo 2^32
 *               weights in blocks, but x in F32: each weight as a float (tw_block_floats in
 *               tilewright/quants.h), then as float weights
 *               y = the canonical sum; on reload, y = the old y + that
 *   squares     a segment: 16 lanes, lane l takes the elements l, l + 16, ... ascending,
 *               fmaf(x, x, lane), then tw_fold_add
 *   layer_norm  mean = the canonical sum of x / cols, with 16 lanes as for squares, lane + x; then
 *               d = x - mean, f as of rms_norm from the squares of d, y = fmaf(d * f, weight, bias)
 *   softmax     (denominator and maximum): 16 lanes as above, then tw_fold_add or tw_fold_max
 *   attention   keys are cut by position into blocks of TW_KV_BLOCK and segments of
 *               TW_KEY_SEGMENT; each segment has a state (m, l, o), empty at first: (-inf, 0, 0).
 *               One step over a block of positions j, in ascending order of the blocks: s_j = 0,
 *               for d ascending s_j = fmaf(q[d], k[j][d], s_j), then s_j * scale, then capped
 *               where the op says so; positions before the query's window do not exist for it;
 *               m' = max(m, s_j); c = exp(m - m'); p_j = exp(s_j - m');
 *               l = fmaf(l, c, sum of p_j);
 *               o[d] = o[d] * c, then for j ascending o[d] = fmaf(p_j, v[j][d], o[d]).
 *               The segments' states merge into the first in ascending order (tw_attn_merge), and
 *               the result is o / l. k and v of an f16 cache are converted, which is exact.
 */
#ifndef TILEWRIGHT_NUMERICS_H
#define TILEWRIGHT_NUMERICS_H

#include "tilewright/machine.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_LANES 16u

/* ---- bits and formats ---- */

static inline uint32_t tw_float_bits(float f) {
    uint32_t u;
    __builtin_memcpy(&u, &f, sizeof u);
    return u;
}

static inline float tw_bits_float(uint32_t u) {
    float f;
    __builtin_memcpy(&f, &u, sizeof f);
    return f;
}

/* Converts IEEE half to float: exact; a signalling NaN becomes quiet. */
static inline float tw_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u,
             mantissa = h & 0x3FFu;
    if (exponent == 31) {
        return tw_bits_float(sign | 0x7F800000u | mantissa << 13 | (mantissa ? 0x400000u : 0));
    }
    if (exponent == 0) {
        float magnitude = (float)mantissa * 5.9604644775390625e-08f; /* 2^-24, exact */
        return tw_bits_float(sign | tw_float_bits(magnitude));
    }
    return tw_bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* Converts float to IEEE half, nearest even; overflow gives infinity, a NaN stays a (quiet) NaN. */
static inline uint16_t tw_f32_to_f16(float f) {
    uint32_t u = tw_float_bits(f), sign = (u >> 16) & 0x8000u;
    u &= 0x7FFFFFFFu;
    if (u > 0x7F800000u) {
        return (uint16_t)(sign | 0x7E00u | ((u >> 13) & 0x3FFu));
    }
    if (u >= 0x47800000u) { /* 2^16 and beyond */
        return (uint16_t)(sign | 0x7C00u);
    }
    /* below 2^-14: the addition of 1/2 leaves the rounded multiple of 2^-24 in the low bits */
    if (u < 0x38800000u) {
        return (uint16_t)(sign | (tw_float_bits(tw_bits_float(u) + 0.5f) - 0x3F000000u));
    }
    u += 0xFFFu + ((u >> 13) & 1u);
    return (uint16_t)(sign | ((u - 0x38000000u) >> 13));
}

/* Scans of logits go by blocks of a constant size, which compilers vectorise at -O2. */
enum { TW_SCAN_BLOCK = 256 };

/* Returns the index of the first infinity or NaN in x[0 .. n), or n. */
static inline uint32_t tw_first_not_finite(const float *x, uint32_t n) {
    uint32_t i = 0;
    for (; n - i >= TW_SCAN_BLOCK; i += TW_SCAN_BLOCK) {
        uint32_t bad = 0;
        for (uint32_t k = 0; k < TW_SCAN_BLOCK; k++) {
            bad |= (tw_float_bits(x[i + k]) & 0x7F800000u) + 0x00800000u; /* bit 31: all ones */
        }
        if (bad >> 31) {
            break;
        }
    }
    while (i < n && (tw_float_bits(x[i]) & 0x7F800000u) != 0x7F800000u) {
        i++;
    }
    return i;
}

/* Returns an integer that is ordered as x is: the same for 0 and -0, the least one for NaN. */
static inline int32_t tw_float_order(float x) {
    uint32_t u = tw_float_bits(x + 0.0f);
    uint32_t order = u >> 31 ? u ^ 0x7FFFFFFFu : u;
    return (u & 0x7FFFFFFFu) > 0x7F800000u ? INT32_MIN : (int32_t)order;
}

/* Returns the index of the first of the largest values in x[0 .. n), leaving out NaNs; n if there
 * are no others. */
static inline uint32_t tw_argmax(const float *x, uint32_t n) {
    int32_t max = INT32_MIN;
    uint32_t best = n, i = 0;
    for (; n - i >= TW_SCAN_BLOCK; i += TW_SCAN_BLOCK) {
        int32_t block = INT32_MIN;
        for (uint32_t k = 0; k < TW_SCAN_BLOCK; k++) {
            int32_t order = tw_float_order(x[i + k]);
            block = order > block ? order : block;
        }
        if (block > max) { /* seldom */
            max = block;
            for (best = i; tw_float_order(x[best]) != max; best++) {
            }
        }
    }
    for (; i < n; i++) {
        int32_t order = tw_float_order(x[i]);
        best = order > max ? i : best;
        max = order > max ? order : max;
    }
    return best;
}

/* ---- lists of the largest ---- */

/* Returns true if x comes before y in a list: the larger value (in tw_float_order), of equal ones
 * the lower id. */
static inline bool tw_top_before(struct tw_top x, struct tw_top y) {
    int32_t a = tw_float_order(x.value), b = tw_float_order(y.value);
    return a > b || (a == b && x.id < y.id);
}

static inline struct tw_top tw_top_missing(void) {
    struct tw_top none = {tw_bits_float(0x7FC00000u), TW_NONE};
    return none;
}

/* Returns the index of the first of n entries in the order above, whatever theirs is; n if all are
 * missing. */
static inline uint32_t tw_top_first(const struct tw_top *list, uint32_t n) {
    struct tw_top best = tw_top_missing();
    uint32_t at = n;
    for (uint32_t i = 0; i < n; i++) {
        if (tw_top_before(list[i], best)) {
            best = list[i];
            at = i;
        }
    }
    return at;
}

/* Puts an entry that comes before the last one into its place in a list of k; the last one falls
 * out. */
static inline void tw_top_insert(struct tw_top *list, uint32_t k, struct tw_top entry) {
    uint32_t i = k - 1;
    for (; i > 0 && tw_top_before(entry, list[i - 1]); i--) {
        list[i] = list[i - 1];
    }
    list[i] = entry;
}

/* TOPK's row: list[0 .. k) = the k first of x[0 .. cols) in the order above, column c with the id
 * base + c. NaNs are left out. What is missing is tw_top_missing(). */
static inline void tw_top_row(const float *x, uint32_t cols, uint32_t base, uint32_t k,
                              struct tw_top *list) {
    for (uint32_t i = 0; i < k; i++) {
        list[i] = tw_top_missing();
    }
    for (uint32_t c = 0; c < cols; c++) {
        struct tw_top entry = {x[c], base + c};
        if (tw_float_order(x[c]) != INT32_MIN && tw_top_before(entry, list[k - 1])) {
            tw_top_insert(list, k, entry);
        }
    }
}

/* TOPK_MERGE's row: z[0 .. k) = the k first of x[0 .. k) and y[0 .. k), of equal entries x's first.
 * z may be x or y: it is filled from its end, where nothing is that is still needed. */
static inline void tw_top_merge(const struct tw_top *x, const struct tw_top *y, uint32_t k,
                                struct tw_top *z) {
    uint32_t from_x = 0, from_y = 0;
    while (from_x + from_y < k) {
        bool second = tw_top_before(y[from_y], x[from_x]);
        from_x += second ? 0 : 1;
        from_y += second ? 1 : 0;
    }
    for (uint32_t i = k; i > 0; i--) {
        bool second = from_y > 0 && (from_x == 0 || !tw_top_before(y[from_y - 1], x[from_x - 1]));
        z[i - 1] = second ? y[--from_y] : x[--from_x];
    }
}

static inline float tw_bf16_to_f32(uint16_t b) {
    return tw_bits_float((uint32_t)b << 16);
}

/* Converts float to bfloat16, nearest even; a NaN stays a (quiet) NaN. */
static inline uint16_t tw_f32_to_bf16(float f) {
    uint32_t u = tw_float_bits(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) {
        return (uint16_t)(u >> 16 | 0x40u);
    }
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

/* ---- functions ---- */

/* e^x = 2^n * e^r with n = round(x/ln 2), r = x - n*ln2 in two parts, and e^r = 1 + r + r^2*q(r)
 * with a minimax q (relative error 3.1e-9 before rounding). Bound, over every float from TW_EXP_LO
 * to the overflow: relative error below 8.6e-8 (0.72 of 2^-23). Below TW_EXP_LO, including
 * -infinity, the result is +0 (the true value is under 1.9e-38), so that no subnormal is ever
 * produced; from 88.7228394 on it is +infinity. NaN gives NaN; a number never does. */
#define TW_EXP_LO (-86.9f)
#define TW_EXP_HI 88.73f
#define TW_EXP_LOG2E 1.44269502f
#define TW_EXP_LN2_HI 0.693145751953125f
#define TW_EXP_LN2_LO 1.42860682e-06f
#define TW_EXP_C2 0.49999994f
#define TW_EXP_C3 0.166665211f
#define TW_EXP_C4 0.0416683890f
#define TW_EXP_C5 0.00836872403f
#define TW_EXP_C6 0.00138145837f
/* 1.5 * 2^23: adding it rounds to an integer, which ends up in the low bits */
#define TW_ROUND_MAGIC 12582912.0f

static inline float tw_exp(float x) {
    float a = TW_EXP_LO > x ? TW_EXP_LO : x; /* a NaN passes through both */
    a = TW_EXP_HI < a ? TW_EXP_HI : a;
    float t = __builtin_fmaf(a, TW_EXP_LOG2E, TW_ROUND_MAGIC);
    float n = t - TW_ROUND_MAGIC;
    float r = __builtin_fmaf(n, -TW_EXP_LN2_HI, a);
    r = __builtin_fmaf(n, -TW_EXP_LN2_LO, r);
    float q = __builtin_fmaf(TW_EXP_C6, r, TW_EXP_C5);
    q = __builtin_fmaf(q, r, TW_EXP_C4);
    q = __builtin_fmaf(q, r, TW_EXP_C3);
    q = __builtin_fmaf(q, r, TW_EXP_C2);
    q = __builtin_fmaf(q, r * r, r) + 1.0f;
    /* Twice e^r times 2^(n-1): n reaches 128, and 2^128 is not a float. The low 9 bits of t are
     * those of n. */
    float scale = tw_bits_float((tw_float_bits(t) << 23) + (126u << 23));
    float y = (q + q) * scale;
    return x < TW_EXP_LO ? 0.0f : y;
}

static inline float tw_silu(float x) {
    return x / (1.0f + tw_exp(-x));
}

/* GELU in its approximation by the hyperbolic tangent (Hendrycks and Gimpel, Gaussian error linear
 * units, 2016): x/2 * (1 + tanh(z)) with z = sqrt(2/pi) * (x + 0.044715 x^3), which is x / (1 +
 * e^(-2z)). Relative error below 8e-6 where the result is not negligible: that of e^(-2z) and of
 * rounding 2z. */
#define TW_GELU_C1 (-1.59576912f) /* -2 sqrt(2/pi) */
#define TW_GELU_C3 (-0.0713548163f)

static inline float tw_gelu(float x) {
    float z = x * __builtin_fmaf(TW_GELU_C3, x * x, TW_GELU_C1);
    return x / (1.0f + tw_exp(z));
}

/* tanh(x) = (e^2x - 1) / (e^2x + 1). e^2x - 1 is taken from tw_exp's polynomial before 1 is added,
 * so that small x keep their precision: e^2x - 1 = 2^n * (e^r - 1) + (2^n - 1). Relative error
 * below 3e-7; beyond 2x = 40 the result is +-1. */
#define TW_TANH_LIMIT 40.0f

static inline float tw_tanh(float x) {
    float a = x + x;
    a = -TW_TANH_LIMIT > a ? -TW_TANH_LIMIT : a; /* a NaN passes through both */
    a = TW_TANH_LIMIT < a ? TW_TANH_LIMIT : a;
    float t = __builtin_fmaf(a, TW_EXP_LOG2E, TW_ROUND_MAGIC);
    float n = t - TW_ROUND_MAGIC;
    float r = __builtin_fmaf(n, -TW_EXP_LN2_HI, a);
    r = __builtin_fmaf(n, -TW_EXP_LN2_LO, r);
    float q = __builtin_fmaf(TW_EXP_C6, r, TW_EXP_C5);
    q = __builtin_fmaf(q, r, TW_EXP_C4);
    q = __builtin_fmaf(q, r, TW_EXP_C3);
    q = __builtin_fmaf(q, r, TW_EXP_C2);
    q = __builtin_fmaf(q, r * r, r);
    float half = tw_bits_float((tw_float_bits(t) << 23) + (126u << 23)), scale = half + half;
    float e = __builtin_fmaf(scale, q, scale - 1.0f);
    return e / (e + 2.0f);
}

/* Keeps x between -cap and cap; cap is not 0. */
static inline float tw_soft_cap(float x, float cap) {
    return cap * tw_tanh(x / cap);
}

/* Sine and cosine of position*frequency: the product and its reduction by multiples of pi/2 (two
 * parts, fused) in double, then float polynomials on [-pi/4, pi/4]. Absolute error below 1.2e-7
 * while |angle| < 2^31. Infinite or NaN frequencies give NaN; an angle of 2^51 or more gives an
 * arbitrary number or NaN. */
static inline void tw_sincos(uint32_t position, float frequency, float *sine, float *cosine) {
    double angle = (double)position * (double)frequency;
    double t = angle * 0.6366197723675814 + 6755399441055744.0; /* 1.5 * 2^52 */
    double n = t - 6755399441055744.0;
    uint64_t quadrant;
    __builtin_memcpy(&quadrant, &t, sizeof quadrant);
    double reduced = __builtin_fma(n, -1.5707963267948966, angle);
    float r = (float)__builtin_fma(n, -6.123233995736766e-17, reduced), z = r * r;
    float s = __builtin_fmaf(2.71827457e-06f, z, -0.000198393303f);
    s = __builtin_fmaf(s, z, 0.00833332911f);
    s = __builtin_fmaf(s, z, -0.166666672f);
    s = __builtin_fmaf(s, r * z, r);
    float c = __builtin_fmaf(2.44327857e-05f, z, -0.0013887313f);
    c = __builtin_fmaf(c, z, 0.0416666456f);
    c = __builtin_fmaf(c, z * z, __builtin_fmaf(-0.5f, z, 1.0f));
    float sin_part = quadrant & 1 ? c : s, cos_part = quadrant & 1 ? s : c;
    *sine = quadrant & 2 ? -sin_part : sin_part;
    *cosine = (quadrant + 1) & 2 ? -cos_part : cos_part;
}

/* Rotates one pair of a rotary embedding in place. */
static inline void tw_rotate(float *x0, float *x1, float c, float s) {
    float a = *x0, b = *x1;
    *x0 = __builtin_fmaf(a, c, -(b * s));
    *x1 = __builtin_fmaf(a, s, b * c);
}

/* ---- reductions ---- */

/* The machine's maximum: x if it is greater, else `best`; a NaN x is ignored. */
static inline float tw_max(float best, float x) {
    return x > best ? x : best;
}

/* Folds 16 lanes: lane i takes lane i + 8, then + 4, + 2, + 1. Overwrites `lane`. */
static inline float tw_fold_add(float lane[TW_LANES]) {
    for (uint32_t width = TW_LANES / 2; width; width /= 2) {
        for (uint32_t i = 0; i < width; i++) {
            lane[i] += lane[i + width];
        }
    }
    return lane[0];
}

static inline float tw_fold_max(float lane[TW_LANES]) {
    for (uint32_t width = TW_LANES / 2; width; width /= 2) {
        for (uint32_t i = 0; i < width; i++) {
            lane[i] = tw_max(lane[i], lane[i + width]);
        }
    }
    return lane[0];
}

/* ---- canonical sums ---- */

/* Sums of segments are taken in order and counted in binary: two neighbours that are sums of
 * equally many segments are added at once, as a carry. What is left in the end is added from the
 * smallest up. This is the perfect binary tree over the segments, without those that are missing at
 * the end: the sum of a run of 2^j segments that starts at a multiple of 2^j (the last such run may
 * be shorter) is one number of the tree, whoever adds it. So runs may be summed in different
 * places, each by the same rule, and their sums folded by the same rule again (FOLD): the bits are
 * those of one sum over all.
 *
 * Error: with u = 2^-24 and g(n) = n*u / (1 - n*u), a sum of k products is wrong by at most
 * g(d) * (the sum of |w[i] * x[i]|), where d is the longest way of a product to the result
 * (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, sections 3.1 and 4.2):
 *   d = 256 + ceil(log2(ceil(k / 256)))     for k > 256, else d = k
 *   d = 9 + ceil(log2(ceil(k / 256)))       with quantised weights: eight blocks, and one rounding
 *                                           of dw * dx; the sums of blocks are exact
 * One chain over all k has d = k, quantised d = k / 32 + 1: never less, and more for each k > 257,
 * quantised k > 288. At k = 14,336 the bound is 262 for 14,336 u, and 15 for 449 u. */

/* Bits of a count of segments: as many as 2^26 elements have. */
#define TW_SUM_LEVELS 19u

/* A canonical sum on its way: level j holds the sum of 2^j segments where bit j of n is set. Starts
 * as all zeros. */
struct tw_sum {
    uint32_t n;
    float level[TW_SUM_LEVELS];
};

/* Takes the sum of the next segment, or of the next of equal runs of 2^j segments. */
static inline void tw_sum_add(struct tw_sum *s, float x) {
    uint32_t level = 0;
    for (; s->n >> level & 1u; level++) {
        x = s->level[level] + x;
    }
    s->level[level] = x;
    s->n++;
}

/* Returns the sum of all that was taken: at least one. */
static inline float tw_sum_value(const struct tw_sum *s) {
    uint32_t level = 0;
    while (!(s->n >> level & 1u)) {
        level++;
    }
    float sum = s->level[level];
    while (s->n >> ++level) {
        sum = s->n >> level & 1u ? s->level[level] + sum : sum;
    }
    return sum;
}

/* Returns the factor of rms_norm, y = (x * factor) * w, for this sum of squares. A sum that has
 * overflowed gives NaN, not zero: with zero, the whole row would become zeros and hide the
 * overflow. */
static inline float tw_rms_factor(float sum_of_squares, uint32_t cols, float epsilon) {
    if (tw_float_bits(sum_of_squares) >= 0x7F800000u) {
        return tw_bits_float(0x7FC00000u);
    }
    return 1.0f / __builtin_sqrtf(sum_of_squares / (float)cols + epsilon);
}

/* ---- attention ---- */

/* How a state enters the one before it. */
enum tw_attn_merge { TW_MERGE_NOTHING, TW_MERGE_REPLACE, TW_MERGE_ADD };

/* Merges m and l of a state over some segments of keys, x, into those of the segments before them,
 * ml, and returns what becomes of o[d]: nothing; o_x[d] in its place; or
 * fmaf(o_x[d], later, o[d] * factor).
 *   m' = max(m, m_x); factor = exp(m - m'), later = exp(m_x - m'); l = fmaf(l_x, later, l * factor)
 * The factor of the larger maximum is exactly 1. A state that has seen no position (l = 0; a
 * position leaves l >= 1) changes nothing, and is replaced by x. So to merge an empty state is the
 * exact identity on both sides, and it does not matter which sites hold segments that a context
 * does not reach yet.
 *
 * Bound, with u = 2^-24 and to first order, of o / l relative to sum(p_j |v_j|) / l, from the order
 * alone (the s_j are given): an element passes at most 512 additions and 8 changes of the maximum
 * in its segment, each a factor (an exponential, 1.44 u) and a rounding, and one merge for each of
 * the S = ceil(N / 512) segments, a factor and two roundings: (512 + 8 * 2.44 + 3.44 S) u for o and
 * less for l. One chain over all N positions: (N + 2.44 N / 64) u. At N = 4,096: 559 u against
 * 4,252 u. */
static inline enum tw_attn_merge tw_attn_merge(float *ml, const float *x, float *factor,
                                               float *later) {
    if (x[1] == 0.0f) {
        return TW_MERGE_NOTHING;
    }
    if (ml[1] == 0.0f) {
        ml[0] = x[0];
        ml[1] = x[1];
        return TW_MERGE_REPLACE;
    }
    float max = tw_max(ml[0], x[0]);
    *factor = tw_exp(ml[0] - max);
    *later = tw_exp(x[0] - max);
    ml[0] = max;
    ml[1] = __builtin_fmaf(x[1], *later, ml[1] * *factor);
    return TW_MERGE_ADD;
}

/* ---- activation blocks ---- */

/* Returns the scale of a block of 32 whose largest magnitude has the bits `amax` (as an integer, so
 * that the maximum of any floats is defined in any order; a NaN is the largest).
 *   ordinary: d = amax/127, *inverse = 1/d, and the scale stored is d rounded to half precision if
 *             that is a normal half (as ggml stores it), otherwise d itself, so that nothing
 *             overflows or underflows
 *   amax/127 below the normal floats: the block is zero: *inverse = 0, stored scale 0
 *   an infinity or a NaN in the block: quants 0 and the scale NaN, so that every product with the
 *             block is NaN */
static inline float tw_quant_scale(uint32_t amax, float *inverse) {
    *inverse = 0.0f;
    if (amax >= 0x7F800000u) {
        return tw_bits_float(0x7FC00000u);
    }
    float d = tw_bits_float(amax) / 127.0f;
    if (tw_float_bits(d) < 0x00800000u) {
        return 0.0f;
    }
    *inverse = 1.0f / d;
    uint16_t half = tw_f32_to_f16(d);
    uint32_t exponent = (half >> 10) & 31u;
    return exponent >= 1 && exponent <= 30 ? tw_f16_to_f32(half) : d;
}

/* Returns x/d to nearest even, where `inverse` is 1/d, or 0 for a block without quants. */
static inline int32_t tw_quant_of(float x, float inverse) {
    /* The rounded integer is in the low bits, in two's complement. */
    return inverse != 0.0f ? (int32_t)(tw_float_bits(x * inverse + TW_ROUND_MAGIC) - 0x4B400000u)
                           : 0;
}

/* Quantises 32 floats: q = x/d to nearest even, |q| <= 127. */
static inline void tw_quant_block(const float *x, struct tw_q8s *out) {
    uint32_t amax = 0;
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t magnitude = tw_float_bits(x[i]) & 0x7FFFFFFFu;
        amax = magnitude > amax ? magnitude : amax;
    }
    float inverse;
    out->d = tw_quant_scale(amax, &inverse);
    out->sum = 0;
    for (uint32_t i = 0; i < 32; i++) {
        int32_t q = tw_quant_of(x[i], inverse);
        out->q[i] = (int8_t)q;
        out->sum += q;
    }
}

#ifdef __cplusplus
}
#endif
#endif
