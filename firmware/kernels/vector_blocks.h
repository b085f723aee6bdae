/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with weights in blocks whose quants are in planes: unpacked to bytes group by group,
 * multiplied and summed as integers, then scaled (tilewright/quants.h). What differs between types
 * is known when a product is compiled. Included by each instruction set's file after its planes
 * header, which defines vi (16 integer lanes), struct plane_ints, plane_start and plane_sums, and
 * after BLOCK_ROWS, BLOCK_MID_ROWS, BLOCK_PANELS and BLOCK_ROW_PANELS.
 */

TW_INLINE void plane_ints_set(struct plane_ints *s, const int r, int32_t start, const int P) {
    TW_UNROLL
    for (int p = 0; p < P; p++) {
        s->at[r][p] = vi_set1(start);
    }
}

/* ---- blocks of 32 ---- */

/* Adds a block's product to the sums; its scales begin at `scales`. */
TW_INLINE void small_scales(struct tile_sums *sums, const struct plane_ints *ints,
                            const struct tile_in *in, unsigned dtype, const uint8_t *scales,
                            size_t b, const int R, const int P) {
    TW_UNROLL
    for (int p = 0; p < P; p++) {
        const uint8_t *at = scales + in->w_stride * (size_t)p;
        vf d = dtype == TW_DT_MXFP4 ? v_load_mxfp4(at) : v_load_f16(at);
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            const struct tw_q8s *x = x_block(in, r, b);
            vf *sum = &sums->at[r][p];
            *sum = v_fma(vi_float(ints->at[r][p]), v_mul(d, v_set1(x->d)), *sum);
            if (tw_block_type(dtype).minima) {
                *sum = v_fma(v_load_f16(at + 32), v_set1(x->d * (float)x->sum), *sum);
            }
        }
    }
}

TW_INLINE void small_tile(const struct tw_matmul *m, unsigned dtype, uint32_t row, uint32_t panel,
                          const int R, const int P) {
    struct tile_levels levels;
    struct tile_sums sums;
    struct tile_in in;
    const struct tw_block_type type = tw_block_type(dtype);
    const size_t quants = type.bits * 64, blocks = m->k / 32;
    size_t n = 0;
    tile_begin(&in, m, dtype, row, panel, R, P);
    const uint8_t *w = in.w;
    for (size_t b = 0;; n++) {
        size_t end = segment_end(b, blocks, TW_SUM_SEGMENT / 32);
        const uint8_t *scales = w;
        sums_zero(&sums, R, P);
        if (R == 1) {
            tile_prefetch(&in, scales, TW_SUM_SEGMENT / 32 * type.scale_bytes, P);
        }
        w += tw_segment_quants(dtype, (end - b) * 32);
        for (; b < end; b++, w += quants, scales += type.scale_bytes) {
            struct plane_ints ints;
            if (R == 1) {
                tile_prefetch(&in, w, quants, P);
            }
            TW_UNROLL
            for (int r = 0; r < R; r++) {
                const struct tw_q8s *x = x_block(&in, r, b);
                plane_ints_set(&ints, r, plane_start(dtype, x->q, x->sum), P);
            }
            plane_sums(&ints, &in, dtype, w, b * sizeof(struct tw_q8s) + offsetof(struct tw_q8s, q),
                       0, 8, R, P);
            small_scales(&sums, &ints, &in, dtype, scales, b, R, P);
        }
        if (b == blocks) {
            break;
        }
        sums_keep(&sums, &levels, n, R, P);
    }
    sums_finish(&sums, &levels, n, R, P);
    sums_store(&sums, m, row, panel, R, P);
}

/* ---- blocks of 256 ---- */

/* The scale and the minimum of sub-block `part` of those in 32 columns, number b of a block whose
 * integer scales begin at `at`. */
TW_INLINE vi sub_scale(unsigned dtype, const uint8_t *at, size_t b, const int part) {
    switch (dtype) {
    case TW_DT_Q2_K:
        return vi_and(vi_load_u8(at + (2 * b + (size_t)part) * 16), 15);
    case TW_DT_Q3_K: {
        vi low = vi_and(vi_shift_right(vi_load_u8(at + b * 16), part * 4), 15);
        vi high = vi_shift_right(vi_load_u8(at + 128 + b / 2 * 16), (int)(b % 2) * 4 + part * 2);
        return vi_add(vi_or(low, vi_shift_left(vi_and(high, 3), 4)), vi_set1(-32));
    }
    case TW_DT_Q6_K:
        return vi_load_i8(at + (2 * b + (size_t)part) * 16);
    default:
        return vi_load_i8(at + b * 16);
    }
}
TW_INLINE vi sub_minimum(unsigned dtype, const uint8_t *at, size_t b, const int part) {
    return dtype == TW_DT_Q2_K ? vi_shift_right(vi_load_u8(at + (2 * b + (size_t)part) * 16), 4)
                               : vi_load_u8(at + 128 + b * 16);
}

/* The integer sums of a block: s, scaled, and m. */
struct super_ints {
    struct plane_ints s, m;
};

/* Adds sub-block `part` of those in the 32 columns, number b of the block, whose planes are at w;
 * x: where the block of 256 begins in each row. */
TW_INLINE void super_part(struct super_ints *ints, const struct tile_in *in, unsigned dtype,
                          const uint8_t *w, const uint8_t *scales, size_t x, size_t b,
                          const int part, const int R, const int P) {
    const struct tw_block_type type = tw_block_type(dtype);
    const int parts = 32 / (int)type.sub_elems, groups = 8 / parts;
    const size_t q = x + offsetof(struct tw_q8k, q) + b * 32;
    struct plane_ints dot;
    int32_t sum[BLOCK_ROWS];
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        const int16_t *two = ((const struct tw_q8k *)(const void *)(in->x[r] + x))->sum + 2 * b;
        sum[r] = parts == 2 ? two[part] : two[0] + two[1];
        plane_ints_set(&dot, r, plane_start(dtype, (const int8_t *)in->x[r] + q, sum[r]), P);
    }
    plane_sums(&dot, in, dtype, w, q, part * groups, part * groups + groups, R, P);
    TW_UNROLL
    for (int p = 0; p < P; p++) {
        const uint8_t *at = scales + in->w_stride * (size_t)p;
        vi scale = sub_scale(dtype, at, b, part);
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            ints->s.at[r][p] = vi_add_mul(ints->s.at[r][p], dot.at[r][p], scale);
        }
        if (type.minima) {
            vi minimum = sub_minimum(dtype, at, b, part);
            TW_UNROLL
            for (int r = 0; r < R; r++) {
                ints->m.at[r][p] = vi_add_mul(ints->m.at[r][p], minimum, vi_set1(sum[r]));
            }
        }
    }
}

/* Sets the sums to a block's product; d is where its floats begin. */
TW_INLINE void super_scales(struct tile_sums *sums, const struct super_ints *ints,
                            const struct tile_in *in, unsigned dtype, const uint8_t *d, size_t x,
                            const int R, const int P) {
    TW_UNROLL
    for (int p = 0; p < P; p++) {
        const uint8_t *at = d + in->w_stride * (size_t)p;
        vf scale = v_load_f16(at);
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            vf xd = v_set1(((const struct tw_q8k *)(const void *)(in->x[r] + x))->d);
            vf sum = v_fma(vi_float(ints->s.at[r][p]), v_mul(scale, xd), v_zero());
            if (tw_block_type(dtype).minima) {
                sum = v_fma(vi_float(ints->m.at[r][p]), v_mul(v_load_f16(at + 32), xd), sum);
            }
            sums->at[r][p] = sum;
        }
    }
}

/* A block is a segment. */
TW_INLINE void super_tile(const struct tw_matmul *m, unsigned dtype, uint32_t row, uint32_t panel,
                          const int R, const int P) {
    struct tile_levels levels;
    struct tile_sums sums;
    struct tile_in in;
    const struct tw_block_type type = tw_block_type(dtype);
    const size_t bytes = type.bits * 64, blocks = m->k / TW_SUPER_BLOCK,
                 quants = (size_t)tw_segment_quants(dtype, TW_SUPER_BLOCK),
                 segment = quants + 8 * bytes, eighth = (segment + 511) / 512 * 64;
    tile_begin(&in, m, dtype, row, panel, R, P);
    const uint8_t *w = in.w;
    for (size_t n = 0;; n++, w += segment) {
        struct super_ints ints;
        const size_t x = n * sizeof(struct tw_q8k);
        const uint8_t *scales = w + (type.minima ? 64 : 32);
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            plane_ints_set(&ints.s, r, 0, P);
            plane_ints_set(&ints.m, r, 0, P);
        }
        TW_ROLLED
        for (size_t b = 0; b < 8; b++) {
            const uint8_t *planes = w + quants + b * bytes;
            if (R == 1) {
                tile_prefetch(&in, w + b * eighth, eighth, P);
            }
            super_part(&ints, &in, dtype, planes, scales, x, b, 0, R, P);
            if (type.sub_elems == 16) {
                super_part(&ints, &in, dtype, planes, scales, x, b, 1, R, P);
            }
        }
        super_scales(&sums, &ints, &in, dtype, w, x, R, P);
        if (n + 1 == blocks) {
            sums_finish(&sums, &levels, n, R, P);
            break;
        }
        sums_keep(&sums, &levels, n, R, P);
    }
    sums_store(&sums, m, row, panel, R, P);
}
