/* SPDX-License-Identifier: Apache-2.0
 *
 * The block formats of quantised weights: what a block of a model file means, and how a row of
 * weights is multiplied with quantised activations. Numerics are part of the machine, so this is
 * the definition, as tilewright/numerics.h is of the rest; a new format is a row of TW_BLOCK_TYPES
 * (tilewright/machine.h) and a function that takes a file's block apart.
 *
 * Every format is one structure (struct tw_block): quants u of up to 8 bits, an offset, integer
 * scales of sub-blocks of 16 or 32 elements, and one or two floats. Element i, in sub-block j, is
 *
 *     (d * scale[j]) * (u[i] - offset)                       without minima
 *     (d * scale[j]) * (u[i] - offset) + base * minimum[j]   with minima
 *
 * where the products are exact (11 + 7 + 7 bits at most) and the sum is rounded: the floats that
 * ggml's definition gives. In blocks of 32, scale and minimum are 1.
 *
 * A row's product with activations is made of exact integers, all modulo 2^32:
 *
 *   blocks of 32, with x in Q8S     s = sum(u * x.q) - offset * x.sum
 *                                   y = fmaf((float)s, d * x.d, y)
 *                with minima, also  y = fmaf(base, x.d * (float)x.sum, y)
 *   blocks of 256, with x in Q8K    dot_j = sum(u * x.q) - offset * sum(x.sum)
 *                                   s = sum over j of scale[j] * dot_j
 *                                   y = fmaf((float)s, d * x.d, y)
 *                with minima, also  m = sum over j of minimum[j] * sum(x.sum)
 *                                   y = fmaf((float)m, base * x.d, y)
 *
 * sum(x.sum) being that of the sub-block's one or two stored sums. With activations as QUANT makes
 * them (|x.q| <= 127, true sums) nothing wraps: |u - offset| * |x.q| * |scale| * 256 is at most
 * 127 * 127 * 32 * 256 < 2^28 (IQ4_XS; 32 * 127 * 128 * 256 < 2^28 for Q6_K), and a partial sum
 * of unsigned quants at most 255 * 127 * 32 < 2^21. (float)s is rounded to nearest even.
 */
#ifndef TILEWRIGHT_QUANTS_H
#define TILEWRIGHT_QUANTS_H

#include "tilewright/numerics.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_SUPER_BLOCK 256u

/* A block of weights. scale and minimum have one entry for each 16 elements, whatever the
 * sub-blocks. */
struct tw_block {
    unsigned dtype;
    uint32_t elems;
    float d, base;
    int8_t scale[16];
    uint8_t minimum[16];
    uint8_t u[TW_SUPER_BLOCK];
};

/* Returns the u that the four bits of a quant stand for: themselves, except in IQ4_NL, IQ4_XS and
 * MXFP4 (there 128 plus twice the value of the 4-bit float). */
static inline uint8_t tw_block_look_up(unsigned dtype, uint32_t nibble) {
    static const uint8_t iq4[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                    129, 141, 153, 166, 181, 197, 217, 241};
    static const uint8_t fp4[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                    128, 127, 126, 125, 124, 122, 120, 116};
    switch (dtype) {
    case TW_DT_IQ4_NL:
    case TW_DT_IQ4_XS:
        return iq4[nibble & 15];
    case TW_DT_MXFP4:
        return fp4[nibble & 15];
    default:
        return (uint8_t)nibble;
    }
}

/* Returns the scale of an MXFP4 block from its byte e, 2^(e - 128): half of what the byte stands
 * for, as values are stored twice as large. */
static inline float tw_mxfp4_scale(uint8_t e) {
    return tw_bits_float(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* ---- blocks of files ---- */

static inline float tw_block_half(const uint8_t *p) {
    return tw_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* Quants of 4 bits, 32 in 16 bytes: low nibbles first; `high`: 32 more bits, a fifth of each, or
 * NULL. */
static inline void tw_block_nibbles(const uint8_t *p, const uint8_t *high, uint8_t *u) {
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t nibble = i < 16 ? p[i] & 15u : p[i - 16] >> 4;
        uint32_t fifth = high ? (uint32_t)(high[i / 8] >> (i % 8) & 1) << 4 : 0;
        u[i] = (uint8_t)(nibble | fifth);
    }
}

/* Blocks of 32: {d, base where there are minima, high bits of Q5, quants}. */
static inline void tw_block_small(const uint8_t *p, struct tw_block *b) {
    uint32_t dtype = b->dtype, minima = tw_block_type(dtype).minima;
    const uint8_t *q = p + 2 + 2 * minima;
    b->d = tw_block_half(p);
    b->base = minima ? tw_block_half(p + 2) : 0.0f;
    if (dtype == TW_DT_Q8_0) {
        for (uint32_t i = 0; i < 32; i++) {
            b->u[i] = q[i] ^ 128;
        }
    } else if (dtype == TW_DT_MXFP4) {
        b->d = tw_mxfp4_scale(p[0]);
        tw_block_nibbles(p + 1, NULL, b->u);
    } else if (dtype == TW_DT_Q5_0 || dtype == TW_DT_Q5_1) {
        tw_block_nibbles(q + 4, q, b->u);
    } else {
        tw_block_nibbles(q, NULL, b->u);
    }
}

/* {16 bytes: low nibble scale, high nibble minimum; 64 bytes: quants of 2 bits; d, base}. Byte l of
 * each 32 holds elements l, l + 32, l + 64, l + 96 of 128, from the lowest bits on. */
static inline void tw_block_q2_k(const uint8_t *p, struct tw_block *b) {
    b->d = tw_block_half(p + 80);
    b->base = -tw_block_half(p + 82);
    for (uint32_t j = 0; j < 16; j++) {
        b->scale[j] = (int8_t)(p[j] & 15);
        b->minimum[j] = p[j] >> 4;
    }
    for (uint32_t i = 0; i < 256; i++) {
        b->u[i] = p[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
    }
}

/* {32 bytes: bit n of byte l is the third bit of element l + 32n; 64 bytes as in Q2_K; 12 bytes: 16
 * scales of 6 bits, plus 32; d}. */
static inline void tw_block_q3_k(const uint8_t *p, struct tw_block *b) {
    const uint8_t *s = p + 96;
    b->d = tw_block_half(p + 108);
    for (uint32_t j = 0; j < 16; j++) {
        int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4, high = s[8 + j % 4] >> (j / 4 * 2) & 3;
        b->scale[j] = (int8_t)((low | high << 4) - 32);
    }
    for (uint32_t i = 0; i < 256; i++) {
        int low = p[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        b->u[i] = (uint8_t)(low | (p[i % 32] >> (i / 32) & 1) << 2);
    }
}

/* {d, base, 12 bytes: 8 scales and 8 minima of 6 bits; Q5_K: 32 bytes, of which bit n of byte l is
 * the fifth bit of element l + 32n; 128 bytes: byte l of each 32 holds elements l and l + 32 of
 * 64}. */
static inline void tw_block_q45_k(const uint8_t *p, struct tw_block *b) {
    bool five = b->dtype == TW_DT_Q5_K;
    const uint8_t *s = p + 4, *high = p + 16, *q = five ? p + 48 : p + 16;
    b->d = tw_block_half(p);
    b->base = -tw_block_half(p + 2);
    for (uint32_t j = 0; j < 8; j++) {
        int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        int minimum = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
        b->scale[2 * j] = b->scale[2 * j + 1] = (int8_t)scale;
        b->minimum[2 * j] = b->minimum[2 * j + 1] = (uint8_t)minimum;
    }
    for (uint32_t i = 0; i < 256; i++) {
        int nibble = q[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
        int fifth = five ? (high[i % 32] >> (i / 32) & 1) << 4 : 0;
        b->u[i] = (uint8_t)(nibble | fifth);
    }
}

/* {128 bytes: byte l of each 64 holds the low 4 bits of elements l and l + 64 of 128; 64 bytes:
 * byte l of each 32 the high 2 bits of elements l, l + 32, l + 64, l + 96; 16 signed scales; d}. */
static inline void tw_block_q6_k(const uint8_t *p, struct tw_block *b) {
    b->d = tw_block_half(p + 208);
    for (uint32_t j = 0; j < 16; j++) {
        b->scale[j] = (int8_t)p[192 + j];
    }
    for (uint32_t i = 0; i < 256; i++) {
        int low = p[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
        int high = p[128 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        b->u[i] = (uint8_t)(low | high << 4);
    }
}

/* {d; 2 bytes: high 2 bits of 8 scales; 4 bytes: low 4 bits, plus 32 in all; 128 bytes: 16 for each
 * sub-block, low nibbles first}. */
static inline void tw_block_iq4_xs(const uint8_t *p, struct tw_block *b) {
    b->d = tw_block_half(p);
    for (uint32_t j = 0; j < 8; j++) {
        int low = p[4 + j / 2] >> (j % 2 * 4) & 15, high = p[2 + j / 4] >> (j % 4 * 2) & 3;
        b->scale[2 * j] = b->scale[2 * j + 1] = (int8_t)((low | high << 4) - 32);
        tw_block_nibbles(p + 8 + 16 * j, NULL, b->u + 32 * j);
    }
}

/* Sets what does not depend on a block's bytes. */
static inline void tw_block_begin(unsigned dtype, struct tw_block *b) {
    b->dtype = dtype;
    b->elems = tw_dtype_block_elems(dtype);
    b->d = b->base = 0.0f;
    for (uint32_t j = 0; j < 16; j++) {
        b->scale[j] = 1;
        b->minimum[j] = 1;
    }
}

/* Takes a block of a file apart, with its quants as they are stored, but those of Q8_0 as q + 128:
 * tw_dtype_block_bytes(dtype) bytes at any alignment. `dtype` is one of TW_BLOCK_TYPES. */
static inline void tw_block_parts(unsigned dtype, const uint8_t *p, struct tw_block *b) {
    tw_block_begin(dtype, b);
    switch (dtype) {
    case TW_DT_Q2_K:
        tw_block_q2_k(p, b);
        break;
    case TW_DT_Q3_K:
        tw_block_q3_k(p, b);
        break;
    case TW_DT_Q4_K:
    case TW_DT_Q5_K:
        tw_block_q45_k(p, b);
        break;
    case TW_DT_Q6_K:
        tw_block_q6_k(p, b);
        break;
    case TW_DT_IQ4_XS:
        tw_block_iq4_xs(p, b);
        break;
    default:
        tw_block_small(p, b);
        break;
    }
}

/* Replaces quants as stored by what they stand for. */
static inline void tw_block_finish(struct tw_block *b) {
    for (uint32_t i = 0; tw_block_type(b->dtype).bits == 4 && i < b->elems; i++) {
        b->u[i] = tw_block_look_up(b->dtype, b->u[i]);
    }
}

static inline void tw_block_of_file(unsigned dtype, const uint8_t *p, struct tw_block *b) {
    tw_block_parts(dtype, p, b);
    tw_block_finish(b);
}

/* ---- blocks of panels (the layout is described in tilewright/machine.h) ---- */

/* Returns quant i of 32; `p`: the row's four bytes of the first line of their planes. Reads no line
 * that the planes of so many bits do not have. */
static inline uint8_t tw_panel_quant(uint32_t bits, const uint8_t *p, uint32_t i) {
    uint32_t g = i / 4, nibble_line = g % 4 * 64, nibble_at = g / 4 * 4, pair_line = g / 4 * 64,
             pair_at = g % 4 * 2;
    const uint8_t *at = p + i % 4;
    switch (bits) {
    case 2:
        return (uint8_t)(at[pair_line] >> pair_at & 3);
    case 3:
        return (uint8_t)((at[pair_line] >> pair_at & 3) | (at[128] >> g & 1) << 2);
    case 4:
        return (uint8_t)(at[nibble_line] >> nibble_at & 15);
    case 5:
        return (uint8_t)((at[nibble_line] >> nibble_at & 15) | (at[256] >> g & 1) << 4);
    case 6:
        return (uint8_t)((at[nibble_line] >> nibble_at & 15) | (at[256 + pair_line] >> pair_at & 3)
                                                                   << 4);
    default:
        return at[g * 64];
    }
}

/* The integer scales and minima of a block of 256; `t`: the row's byte of their first line. */
static inline void tw_panel_sub_scales(const uint8_t *t, struct tw_block *b) {
    uint32_t sub_elems = tw_block_type(b->dtype).sub_elems;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t j = i * 16 / sub_elems;
        uint8_t byte = t[j * 16];
        switch (b->dtype) {
        case TW_DT_Q2_K:
            b->minimum[i] = byte >> 4;
            byte &= 15;
            break;
        case TW_DT_Q3_K:
            byte = t[j / 2 * 16] >> (j % 2 * 4) & 15;
            byte = (uint8_t)((byte | (t[128 + j / 4 * 16] >> (j % 4 * 2) & 3) << 4) - 32);
            break;
        case TW_DT_Q4_K:
        case TW_DT_Q5_K:
            b->minimum[i] = t[128 + j * 16];
            break;
        default:
            break;
        }
        b->scale[i] = (int8_t)byte;
    }
}

/* Takes block n of a row of a segment of `elems` columns apart. */
static inline void tw_block_of_panel(unsigned dtype, const uint8_t *segment, uint32_t elems,
                                     uint32_t n, uint32_t row, struct tw_block *b) {
    struct tw_block_type t = tw_block_type(dtype);
    tw_block_begin(dtype, b);
    const uint8_t *scales = segment + n * t.scale_bytes,
                  *quants = segment + tw_segment_quants(dtype, elems) +
                            tw_segment_quants_bytes(dtype, n * b->elems) + row * 4;
    for (uint32_t i = 0; i < b->elems; i++) {
        const uint8_t *part = quants + tw_segment_quants_bytes(dtype, i / 32 * 32);
        b->u[i] = tw_panel_quant(t.bits, part, i % 32);
    }
    tw_block_finish(b);
    b->d = dtype == TW_DT_MXFP4 ? tw_mxfp4_scale(scales[row]) : tw_block_half(scales + row * 2);
    b->base = t.minima ? tw_block_half(scales + 32 + row * 2) : 0.0f;
    if (b->elems == TW_SUPER_BLOCK) {
        tw_panel_sub_scales(scales + 32 + 32 * t.minima + row, b);
    }
}

/* ---- values and products ---- */

/* Writes the first n of the block's elements as floats. */
static inline void tw_block_floats(const struct tw_block *b, uint32_t n, float *out) {
    struct tw_block_type t = tw_block_type(b->dtype);
    for (uint32_t i = 0; i < n; i++) {
        float scale = b->d * (float)b->scale[i / 16];
        float value = scale * (float)((int32_t)b->u[i] - (int32_t)t.offset);
        out[i] = t.minima ? value + b->base * (float)b->minimum[i / 16] : value;
    }
}

/* Return the sum y of a row's product so far, continued by a block of 32, and by one of 256. */
static inline float tw_block_times_q8s(const struct tw_block *b, const struct tw_q8s *x, float y) {
    struct tw_block_type t = tw_block_type(b->dtype);
    uint32_t s = 0u - t.offset * (uint32_t)x->sum;
    for (uint32_t i = 0; i < 32; i++) {
        s += (uint32_t)(b->u[i] * x->q[i]);
    }
    y = __builtin_fmaf((float)(int32_t)s, b->d * x->d, y);
    return t.minima ? __builtin_fmaf(b->base, x->d * (float)x->sum, y) : y;
}

static inline float tw_block_times_q8k(const struct tw_block *b, const struct tw_q8k *x, float y) {
    struct tw_block_type t = tw_block_type(b->dtype);
    uint32_t s = 0, m = 0;
    for (uint32_t j = 0; j < 16; j++) {
        uint32_t sum = (uint32_t)(int32_t)x->sum[j], dot = 0u - t.offset * sum;
        for (uint32_t i = 16 * j; i < 16 * j + 16; i++) {
            dot += (uint32_t)(b->u[i] * x->q[i]);
        }
        s += (uint32_t)(int32_t)b->scale[j] * dot;
        m += b->minimum[j] * sum;
    }
    y = __builtin_fmaf((float)(int32_t)s, b->d * x->d, y);
    return t.minima ? __builtin_fmaf((float)(int32_t)m, b->base * x->d, y) : y;
}

/* ---- activations in blocks of 256 ---- */

/* Returns the scale of a block whose largest magnitude has the bits `amax`, as tw_quant_scale does,
 * but d as it is. */
static inline float tw_quant_scale_q8k(uint32_t amax, float *inverse) {
    float rounded = tw_quant_scale(amax, inverse);
    return *inverse != 0.0f ? tw_bits_float(amax) / 127.0f : rounded;
}

/* Quantises 256 floats: q = x/d to nearest even, |q| <= 127. */
static inline void tw_quant_block_q8k(const float *x, struct tw_q8k *out) {
    uint32_t amax = 0;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t magnitude = tw_float_bits(x[i]) & 0x7FFFFFFFu;
        amax = magnitude > amax ? magnitude : amax;
    }
    float inverse;
    out->d = tw_quant_scale_q8k(amax, &inverse);
    for (uint32_t j = 0; j < 16; j++) {
        out->sum[j] = 0;
        for (uint32_t i = 16 * j; i < 16 * j + 16; i++) {
            out->q[i] = (int8_t)tw_quant_of(x[i], inverse);
            out->sum[j] = (int16_t)(out->sum[j] + out->q[i]);
        }
    }
}

#ifdef __cplusplus
}
#endif
#endif
