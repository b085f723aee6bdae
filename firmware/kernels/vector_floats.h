/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of float activations with weights in blocks: each segment of a panel is unpacked to
 * floats (tw_block_floats in tilewright/quants.h gives the same) and then multiplied as a panel of
 * floats is. Included by vector_matmul.h after vector_blocks.h; the planes header of the
 * instruction set defines plane_lanes, four quants of each row.
 */

/* The floats of a sub-block: a quant u is (u - offset) * scale, plus minimum. */
struct sub_floats {
    vf scale, minimum;
};

/* Those of a block of 32, whose scales begin at `at`. */
TW_INLINE struct sub_floats small_floats(unsigned dtype, const uint8_t *at) {
    struct sub_floats f = {dtype == TW_DT_MXFP4 ? v_load_mxfp4(at) : v_load_f16(at), v_zero()};
    if (tw_block_type(dtype).minima) {
        f.minimum = v_load_f16(at + 32);
    }
    return f;
}

/* Those of sub-block `part` of those in 32 columns, number b of a block of 256. */
TW_INLINE struct sub_floats super_floats(unsigned dtype, const uint8_t *at, size_t b,
                                         const int part) {
    const bool minima = tw_block_type(dtype).minima;
    const uint8_t *scales = at + (minima ? 64 : 32);
    struct sub_floats f = {v_mul(v_load_f16(at), vi_float(sub_scale(dtype, scales, b, part))),
                           v_zero()};
    if (minima) {
        f.minimum = v_mul(v_load_f16(at + 32), vi_float(sub_minimum(dtype, scales, b, part)));
    }
    return f;
}

/* Writes the floats of groups from .. to - 1 of 32 columns: 16 rows of each column side by side. */
TW_INLINE void group_floats(unsigned dtype, const uint8_t *planes, struct sub_floats f,
                            const int from, const int to, float *out) {
    const struct tw_block_type type = tw_block_type(dtype);
    const vf offset = v_set1((float)type.offset);
    TW_UNROLL
    for (int g = from; g < to; g++) {
        vi four = plane_lanes(dtype, planes, g);
        TW_UNROLL
        for (int i = 0; i < 4; i++) {
            vf u = vi_float(vi_and(vi_shift_right(four, 8 * i), 255));
            vf value = v_mul(f.scale, v_sub(u, offset));
            v_store(out + (4 * g + i) * 16, type.minima ? v_add(value, f.minimum) : value);
        }
    }
}

/* Unpacks a segment of `elems` columns: out[elems][16]. */
TW_INLINE void segment_floats(unsigned dtype, const uint8_t *segment, size_t elems, float *out) {
    const struct tw_block_type type = tw_block_type(dtype);
    const bool super = tw_dtype_block_elems(dtype) == TW_SUPER_BLOCK;
    const uint8_t *planes = segment + tw_segment_quants(dtype, elems);
    TW_ROLLED
    for (size_t b = 0; b < elems / 32; b++, planes += type.bits * 64, out += 32 * 16) {
        if (!super) {
            struct sub_floats f = small_floats(dtype, segment + b * type.scale_bytes);
            group_floats(dtype, planes, f, 0, 8, out);
        } else if (type.sub_elems == 32) {
            group_floats(dtype, planes, super_floats(dtype, segment, b, 0), 0, 8, out);
        } else {
            group_floats(dtype, planes, super_floats(dtype, segment, b, 0), 0, 4, out);
            group_floats(dtype, planes, super_floats(dtype, segment, b, 1), 4, 8, out);
        }
    }
}

typedef void segment_function(const uint8_t *segment, size_t elems, float *out);

#define TW_SEGMENT_OF(NAME)                                                                   \
    static TW_NOINLINE void floats_##NAME(const uint8_t *segment, size_t elems, float *out) { \
        segment_floats(TW_DT_##NAME, segment, elems, out);                                    \
    }
#define TW_SEGMENT_ROW(NAME) [TW_DT_##NAME] = floats_##NAME,

TW_SEGMENT_OF(Q8_0)
TW_SEGMENT_OF(Q4_0)
TW_SEGMENT_OF(Q4_1)
TW_SEGMENT_OF(Q5_0)
TW_SEGMENT_OF(Q5_1)
TW_SEGMENT_OF(IQ4_NL)
TW_SEGMENT_OF(MXFP4)
TW_SEGMENT_OF(Q2_K)
TW_SEGMENT_OF(Q3_K)
TW_SEGMENT_OF(Q4_K)
TW_SEGMENT_OF(Q5_K)
TW_SEGMENT_OF(Q6_K)
TW_SEGMENT_OF(IQ4_XS)

static segment_function *const segment_functions[TW_DT_COUNT] = {
    TW_SEGMENT_ROW(Q8_0) TW_SEGMENT_ROW(Q4_0) TW_SEGMENT_ROW(Q4_1) TW_SEGMENT_ROW(Q5_0)
        TW_SEGMENT_ROW(Q5_1) TW_SEGMENT_ROW(IQ4_NL) TW_SEGMENT_ROW(MXFP4) TW_SEGMENT_ROW(Q2_K)
            TW_SEGMENT_ROW(Q3_K) TW_SEGMENT_ROW(Q4_K) TW_SEGMENT_ROW(Q5_K) TW_SEGMENT_ROW(Q6_K)
                TW_SEGMENT_ROW(IQ4_XS)};

/* R rows of x by one panel. */
TW_INLINE void unpacked_tile(const struct tw_matmul *m, uint32_t row, uint32_t panel, const int R) {
    float weights[TW_SUM_SEGMENT * 16] __attribute__((aligned(64)));
    struct tile_levels levels;
    struct tile_sums sums;
    struct tile_in in;
    segment_function *floats = segment_functions[m->dtype];
    tile_begin(&in, m, m->dtype, row, panel, R, 1);
    const uint8_t *w = in.w;
    size_t n = 0;
    for (size_t k = 0;; n++) {
        size_t from = k, end = segment_end(k, m->k, TW_SUM_SEGMENT);
        floats(w, end - from, weights);
        w += tw_segment_bytes(m->dtype, end - from);
        sums_zero(&sums, R, 1);
        for (; k < end; k++) {
            vf column = v_load(weights + (k - from) * 16);
            TW_UNROLL
            for (int r = 0; r < R; r++) {
                sums.at[r][0] = v_fma(column, v_set1(x_float(&in, r, k)), sums.at[r][0]);
            }
        }
        if (k == m->k) {
            break;
        }
        sums_keep(&sums, &levels, n, R, 1);
    }
    sums_finish(&sums, &levels, n, R, 1);
    sums_store(&sums, m, row, panel, R, 1);
}

static TW_NOINLINE void unpacked_rows(const struct tw_matmul *m, uint32_t row, uint32_t panel) {
    unpacked_tile(m, row, panel, FLOAT_ROWS);
}
static TW_NOINLINE void unpacked_mid(const struct tw_matmul *m, uint32_t row, uint32_t panel) {
    unpacked_tile(m, row, panel, FLOAT_MID_ROWS);
}
static TW_NOINLINE void unpacked_one(const struct tw_matmul *m, uint32_t row, uint32_t panel) {
    unpacked_tile(m, row, panel, 1);
}
