/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing of weights into panels: 16 rows are transposed in units of one float, one half, or four
 * quants. Floats go a short run of k at a time, so that source and destination lines stay in the
 * first-level cache; blocks are taken apart one by one.
 */
#include "compiler/emit/pack.h"

#include "tilewright/quants.h"

#include <stdbool.h>
#include <string.h>

enum { PANEL = TW_PANEL_ROWS, RUN = 16 };

static void transpose_u32(const uint8_t *src, size_t stride, uint32_t rows, uint32_t k,
                          uint32_t *dst) {
    for (uint32_t from = 0; from < k; from += RUN) {
        uint32_t end = k - from < RUN ? k : from + RUN;
        for (uint32_t r = 0; r < rows; r++) {
            const uint8_t *row = src + stride * r;
            for (uint32_t i = from; i < end; i++) {
                memcpy(&dst[(size_t)i * PANEL + r], row + (size_t)i * 4, 4);
            }
        }
    }
}

static void transpose_u16(const uint8_t *src, size_t stride, uint32_t rows, uint32_t k,
                          uint16_t *dst) {
    for (uint32_t from = 0; from < k; from += RUN) {
        uint32_t end = k - from < RUN ? k : from + RUN;
        for (uint32_t r = 0; r < rows; r++) {
            const uint8_t *row = src + stride * r;
            for (uint32_t i = from; i < end; i++) {
                memcpy(&dst[(size_t)i * PANEL + r], row + (size_t)i * 2, 2);
            }
        }
    }
}

/* Returns four quants as the bytes of a word. */
static uint32_t four(const uint8_t *u) {
    uint32_t word;
    memcpy(&word, u, 4);
    return word;
}

/* Packs 32 quants into a row's four bytes of each line of their planes. */
static void pack_planes(uint32_t bits, const uint8_t *u, uint8_t *at) {
    uint32_t line[8] = {0}, n = 0;
    for (uint32_t g = 0; bits == 8 && g < 8; g++) {
        line[n++] = four(u + 4 * g);
    }
    for (uint32_t g = 0; bits >= 4 && bits < 8 && g < 4; g++) {
        line[n++] = (four(u + 4 * g) & 0x0F0F0F0Fu) | (four(u + 4 * g + 16) & 0x0F0F0F0Fu) << 4;
    }
    uint32_t first = bits == 6 ? 4 : 0; /* of the pairs of bits */
    for (uint32_t g = 0; (bits == 2 || bits == 3 || bits == 6) && g < 8; g++) {
        line[n + g / 4] |= (four(u + 4 * g) >> first & 0x03030303u) << g % 4 * 2;
    }
    n += bits == 2 || bits == 3 || bits == 6 ? 2 : 0;
    for (uint32_t g = 0; (bits == 3 || bits == 5) && g < 8; g++) {
        line[n] |= (four(u + 4 * g) >> (bits - 1) & 0x01010101u) << g;
    }
    n += bits == 3 || bits == 5;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(at + (size_t)i * PANEL * 4, &line[i], 4);
    }
}

static void put_half(float f, uint8_t *at) {
    uint16_t half = tw_f32_to_f16(f);
    memcpy(at, &half, 2);
}

/* Packs the integer scales and minima of a block of 256; `t`: the row's byte of their first line.
 * What shares a byte must have been cleared. */
static void pack_sub_scales(const struct tw_block *b, uint8_t *t) {
    uint32_t each = tw_block_type(b->dtype).sub_elems / 16;
    for (uint32_t j = 0; j < 16 / each; j++) {
        uint8_t scale = (uint8_t)b->scale[j * each], minimum = b->minimum[j * each];
        switch (b->dtype) {
        case TW_DT_Q2_K:
            t[j * PANEL] = (uint8_t)(scale | minimum << 4);
            break;
        case TW_DT_Q3_K:
            scale = (uint8_t)(scale + 32);
            t[j / 2 * PANEL] |= (uint8_t)((scale & 15) << j % 2 * 4);
            t[128 + j / 4 * PANEL] |= (uint8_t)(scale >> 4 << j % 4 * 2);
            break;
        case TW_DT_Q4_K:
        case TW_DT_Q5_K:
            t[128 + j * PANEL] = minimum;
            t[j * PANEL] = scale;
            break;
        default:
            t[j * PANEL] = scale;
            break;
        }
    }
}

/* Packs a block at a row of its quants and of its scales. `mxfp4`: the byte of such a block. */
static void pack_block(const struct tw_block *b, uint8_t mxfp4, uint32_t row, uint8_t *quants,
                       uint8_t *scales) {
    struct tw_block_type t = tw_block_type(b->dtype);
    for (uint32_t i = 0; i < b->elems; i += 32) {
        pack_planes(t.bits, b->u + i, quants + row * 4 + (size_t)i * t.bits * 2);
    }
    if (b->dtype == TW_DT_MXFP4) {
        scales[row] = mxfp4;
        return;
    }
    put_half(b->d, scales + row * 2);
    if (t.minima) {
        put_half(b->base, scales + PANEL * 2 + row * 2);
    }
    if (b->elems == TW_SUPER_BLOCK) {
        pack_sub_scales(b, scales + PANEL * 2 * (1 + t.minima) + row);
    }
}

/* The block of a row that does not exist: all scales are 0, and quants mean 0, or (IQ4_NL, IQ4_XS,
 * which have no 0) the least positive value. */
static void zero_block(enum tw_dtype dtype, struct tw_block *b) {
    struct tw_block_type t = tw_block_type(dtype);
    bool chosen = t.bits == 4 && t.offset == 128;
    uint32_t zero = chosen ? (dtype == TW_DT_MXFP4 ? 0 : 8) : t.offset;
    tw_block_begin(dtype, b);
    memset(b->scale, 0, sizeof b->scale);
    memset(b->minimum, 0, sizeof b->minimum);
    memset(b->u, (int)zero, sizeof b->u);
}

/* Packs the blocks of one segment: scales, zeros up to a whole line, quants. */
static void pack_segment(enum tw_dtype dtype, const uint8_t *src, size_t stride, uint32_t rows,
                         uint32_t elems, uint8_t *dst) {
    const struct tw_block_type t = tw_block_type(dtype);
    uint64_t quants = tw_segment_quants(dtype, elems);
    uint32_t block_elems = tw_dtype_block_elems(dtype), bytes = tw_dtype_block_bytes(dtype);
    memset(dst, 0, (size_t)quants);
    for (uint32_t n = 0; n < elems / block_elems; n++) {
        uint8_t *scales = dst + (size_t)n * t.scale_bytes,
                *to = dst + quants + tw_segment_quants_bytes(dtype, n * block_elems);
        for (uint32_t r = 0; r < PANEL; r++) {
            const uint8_t *from = src + stride * r + (size_t)n * bytes;
            struct tw_block b;
            if (r < rows) {
                tw_block_parts(dtype, from, &b);
            } else {
                zero_block(dtype, &b);
            }
            pack_block(&b, r < rows ? from[0] : 0, r, to, scales);
        }
    }
}

static void pack_quants(enum tw_dtype dtype, const uint8_t *src, size_t stride, uint32_t rows,
                        uint32_t k, uint8_t *dst) {
    for (uint32_t from = 0; from < k; from += TW_SUM_SEGMENT) {
        uint32_t elems = k - from < TW_SUM_SEGMENT ? k - from : TW_SUM_SEGMENT;
        pack_segment(dtype, src + tw_row_bytes(dtype, from), stride, rows, elems,
                     dst + tw_panel_offset(dtype, from));
    }
}

void tw_pack_panel(enum tw_dtype dtype, const uint8_t *src_rows, uint64_t src_row_bytes,
                   uint32_t rows, uint32_t k, uint8_t *dst) {
    size_t stride = (size_t)src_row_bytes, bytes = (size_t)tw_panel_bytes(dtype, k);
    if (tw_block_type(dtype).bits) {
        pack_quants(dtype, src_rows, stride, rows, k, dst);
        return;
    }
    if (rows < PANEL) {
        memset(dst, 0, bytes);
    }
    if (dtype == TW_DT_F32) {
        transpose_u32(src_rows, stride, rows, k, (uint32_t *)(void *)dst);
    } else if (dtype == TW_DT_F16 || dtype == TW_DT_BF16) {
        transpose_u16(src_rows, stride, rows, k, (uint16_t *)(void *)dst);
    }
}
