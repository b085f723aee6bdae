/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products over 16 lanes; a lane is one output row of the panel. A tile of R rows of x by P
 * panels keeps its sums in registers, so that weights are loaded (and widened) once for R rows; a
 * single row takes several panels to hide latency. All rows are processed with a strip of panels
 * that is small enough for the cache before the next strip begins.
 *
 * Included last by each instruction set's file, after its quant_*.h, which defines struct
 * tile_ints, block_sums (the integer sums of one block) and ints_float (those of one row and panel,
 * as lanes).
 */

/* Returns where the segment ends that begins at `from`, of `whole` elements or blocks in all. */
TW_INLINE size_t segment_end(size_t from, size_t whole, size_t segment) {
    return whole - from < segment ? whole : from + segment;
}

TW_INLINE vf v_load_weights(unsigned dtype, const uint8_t *panel, size_t k) {
    switch (dtype) {
    case TW_DT_F16:
        return v_load_f16(panel + k * 32);
    case TW_DT_BF16:
        return v_load_bf16(panel + k * 32);
    default:
        return v_load((const float *)(const void *)(panel + k * 64));
    }
}

TW_INLINE void float_tile(const struct tw_matmul *m, unsigned dtype, uint32_t row, uint32_t panel,
                          const int R, const int P) {
    struct tile_levels levels;
    struct tile_sums sums;
    struct tile_in in;
    const uint8_t *w = m->w + m->w_stride * panel;
    const size_t line = dtype == TW_DT_F32 ? 64 : 32;
    size_t n = 0;
    tile_begin(&in, m, row, R);
    for (size_t k = 0;; n++) {
        size_t end = segment_end(k, m->k, TW_SUM_SEGMENT);
        sums_zero(&sums, R, P);
        for (; k < end; k++) {
            vf weights[sizeof sums.at[0] / sizeof(vf)];
            TW_UNROLL
            for (int p = 0; p < P; p++) {
                const uint8_t *from = w + in.w_stride * (size_t)p;
                if (R == 1) {
                    prefetch(from + k * line + ROW_PREFETCH, line);
                }
                weights[p] = v_load_weights(dtype, from, k);
            }
            TW_UNROLL
            for (int r = 0; r < R; r++) {
                vf xk = v_set1(x_float(&in, r, k));
                TW_UNROLL
                for (int p = 0; p < P; p++) {
                    sums.at[r][p] = v_fma(weights[p], xk, sums.at[r][p]);
                }
            }
        }
        if (k == m->k) {
            break;
        }
        sums_keep(&sums, &levels, n, R, P);
    }
    sums_finish(&sums, &levels, n, R, P);
    sums_store(&sums, m, row, panel, R, P);
}

/* Blocks of 32: exact integer sums, then one float operation with both scales. The scales of a
 * segment follow its quants. With one row, the next segment is prefetched. */
TW_INLINE void quant_tile(const struct tw_matmul *m, unsigned dtype, uint32_t row, uint32_t panel,
                          const int R, const int P) {
    struct tile_levels levels;
    struct tile_sums sums;
    struct tile_in in;
    const size_t block_bytes = dtype == TW_DT_Q8_0 ? 512 : 256, blocks = m->k / 32;
    const size_t ahead = TW_SUM_SEGMENT / 32 * (block_bytes + 32);
    const uint8_t *w = m->w + m->w_stride * panel;
    size_t n = 0;
    tile_begin(&in, m, row, R);
    for (size_t b = 0;; n++) {
        size_t end = segment_end(b, blocks, TW_SUM_SEGMENT / 32);
        const uint8_t *scales = w + (end - b) * block_bytes;
        sums_zero(&sums, R, P);
        TW_UNROLL
        for (int p = 0; R == 1 && p < P; p++) {
            prefetch(scales + in.w_stride * (size_t)p + ahead, TW_SUM_SEGMENT / 32 * 32);
        }
        for (; b < end; b++) {
            struct tile_ints ints;
            TW_UNROLL
            for (int p = 0; R == 1 && p < P; p++) {
                prefetch(w + in.w_stride * (size_t)p + ahead, block_bytes);
            }
            block_sums(&ints, &in, dtype, w, b, R, P);
            TW_UNROLL
            for (int p = 0; p < P; p++) {
                vf scale = v_load_f16(scales + in.w_stride * (size_t)p);
                TW_UNROLL
                for (int r = 0; r < R; r++) {
                    vf both = v_mul(scale, v_set1(x_block(&in, r, b)->d));
                    sums.at[r][p] = v_fma(ints_float(&ints, r, p), both, sums.at[r][p]);
                }
            }
            w += block_bytes;
            scales += 32;
        }
        if (b == blocks) {
            break;
        }
        w = scales;
        sums_keep(&sums, &levels, n, R, P);
    }
    sums_finish(&sums, &levels, n, R, P);
    sums_store(&sums, m, row, panel, R, P);
}

#include "firmware/kernels/vector_blocks.h"

/* Defines `name`, the whole product with weights of one dtype, in terms of tiles: strips of panels,
 * then rows. */
#define TW_PRODUCT(name, tile, dtype, size)                                                       \
    TW_INLINE void name##_strip(const struct tw_matmul *m, uint32_t panel, const int P) {         \
        uint32_t row = 0;                                                                         \
        for (; row + size##_ROWS <= m->rows; row += size##_ROWS) {                                \
            tile(m, dtype, row, panel, size##_ROWS, P);                                           \
        }                                                                                         \
        for (; row + size##_MID_ROWS <= m->rows; row += size##_MID_ROWS) {                        \
            tile(m, dtype, row, panel, size##_MID_ROWS, P);                                       \
        }                                                                                         \
        for (; row < m->rows; row++) {                                                            \
            tile(m, dtype, row, panel, 1, P);                                                     \
        }                                                                                         \
    }                                                                                             \
    static void name(const struct tw_matmul *m) {                                                 \
        uint32_t panel = 0;                                                                       \
        for (; m->rows == 1 && panel + size##_ROW_PANELS <= m->panels;                            \
             panel += size##_ROW_PANELS) {                                                        \
            tile(m, dtype, 0, panel, 1, size##_ROW_PANELS);                                       \
        }                                                                                         \
        for (; size##_PANELS > 1 && panel + size##_PANELS <= m->panels; panel += size##_PANELS) { \
            name##_strip(m, panel, size##_PANELS);                                                \
        }                                                                                         \
        for (; panel < m->panels; panel++) {                                                      \
            name##_strip(m, panel, 1);                                                            \
        }                                                                                         \
    }

TW_PRODUCT(product_f32, float_tile, TW_DT_F32, FLOAT)
TW_PRODUCT(product_f16, float_tile, TW_DT_F16, FLOAT)
TW_PRODUCT(product_bf16, float_tile, TW_DT_BF16, FLOAT)
TW_PRODUCT(product_q8_0, quant_tile, TW_DT_Q8_0, QUANT)
TW_PRODUCT(product_q4_0, quant_tile, TW_DT_Q4_0, QUANT)
TW_PRODUCT(product_q4_1, small_tile, TW_DT_Q4_1, BLOCK)
TW_PRODUCT(product_q5_0, small_tile, TW_DT_Q5_0, BLOCK)
TW_PRODUCT(product_q5_1, small_tile, TW_DT_Q5_1, BLOCK)
TW_PRODUCT(product_iq4_nl, small_tile, TW_DT_IQ4_NL, BLOCK)
TW_PRODUCT(product_mxfp4, small_tile, TW_DT_MXFP4, BLOCK)
TW_PRODUCT(product_q2_k, super_tile, TW_DT_Q2_K, BLOCK)
TW_PRODUCT(product_q3_k, super_tile, TW_DT_Q3_K, BLOCK)
TW_PRODUCT(product_q4_k, super_tile, TW_DT_Q4_K, BLOCK)
TW_PRODUCT(product_q5_k, super_tile, TW_DT_Q5_K, BLOCK)
TW_PRODUCT(product_q6_k, super_tile, TW_DT_Q6_K, BLOCK)
TW_PRODUCT(product_iq4_xs, super_tile, TW_DT_IQ4_XS, BLOCK)

static void matmul(const struct tw_kargs *a) {
    struct tw_matmul m = tw_matmul_view(a);
    switch (m.dtype) {
    case TW_DT_F32:
        product_f32(&m);
        break;
    case TW_DT_F16:
        product_f16(&m);
        break;
    case TW_DT_BF16:
        product_bf16(&m);
        break;
    case TW_DT_Q8_0:
        product_q8_0(&m);
        break;
    case TW_DT_Q4_0:
        product_q4_0(&m);
        break;
    case TW_DT_Q4_1:
        product_q4_1(&m);
        break;
    case TW_DT_Q5_0:
        product_q5_0(&m);
        break;
    case TW_DT_Q5_1:
        product_q5_1(&m);
        break;
    case TW_DT_IQ4_NL:
        product_iq4_nl(&m);
        break;
    case TW_DT_MXFP4:
        product_mxfp4(&m);
        break;
    case TW_DT_Q2_K:
        product_q2_k(&m);
        break;
    case TW_DT_Q3_K:
        product_q3_k(&m);
        break;
    case TW_DT_Q4_K:
        product_q4_k(&m);
        break;
    case TW_DT_Q5_K:
        product_q5_k(&m);
        break;
    case TW_DT_Q6_K:
        product_q6_k(&m);
        break;
    case TW_DT_IQ4_XS:
        product_iq4_xs(&m);
        break;
    default: /* no other dtype is packed in panels; the verifier has refused it */
        break;
    }
}
