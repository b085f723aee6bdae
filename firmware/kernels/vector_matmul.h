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
    const size_t line = dtype == TW_DT_F32 ? 64 : 32;
    size_t n = 0;
    tile_begin(&in, m, dtype, row, panel, R, P);
    for (size_t k = 0;; n++) {
        size_t end = segment_end(k, m->k, TW_SUM_SEGMENT);
        sums_zero(&sums, R, P);
        for (; k < end; k++) {
            vf weights[sizeof sums.at[0] / sizeof(vf)];
            if (R == 1 && k % 4 == 0) {
                tile_prefetch(&in, in.w + k * line, 4 * line, P);
            }
            TW_UNROLL
            for (int p = 0; p < P; p++) {
                weights[p] = v_load_weights(dtype, in.w + in.w_stride * (size_t)p, k);
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

/* Blocks of 32: exact integer sums, then one float operation with both scales. The quants of a
 * segment follow its scales. */
TW_INLINE void quant_tile(const struct tw_matmul *m, unsigned dtype, uint32_t row, uint32_t panel,
                          const int R, const int P) {
    struct tile_levels levels;
    struct tile_sums sums;
    struct tile_in in;
    const size_t block_bytes = dtype == TW_DT_Q8_0 ? 512 : 256, blocks = m->k / 32;
    size_t n = 0;
    tile_begin(&in, m, dtype, row, panel, R, P);
    const uint8_t *w = in.w;
    for (size_t b = 0;; n++) {
        size_t end = segment_end(b, blocks, TW_SUM_SEGMENT / 32);
        const uint8_t *scales = w;
        sums_zero(&sums, R, P);
        if (R == 1) {
            tile_prefetch(&in, scales, TW_SUM_SEGMENT / 32 * 32, P);
        }
        w += tw_segment_quants(dtype, (end - b) * 32);
        for (; b < end; b++) {
            struct tile_ints ints;
            if (R == 1) {
                tile_prefetch(&in, w, block_bytes, P);
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
        sums_keep(&sums, &levels, n, R, P);
    }
    sums_finish(&sums, &levels, n, R, P);
    sums_store(&sums, m, row, panel, R, P);
}

#include "firmware/kernels/vector_blocks.h"

#include "firmware/kernels/vector_floats.h"

/* Tiles of one type of weights: of a single row of x, and of strips of the full width and of one
 * panel. Each tile is a function of its own: where several were inlined into one, gcc kept their
 * sums in memory. */
typedef void tile_function(const struct tw_matmul *m, uint32_t row, uint32_t panel);

enum tile_height { TILE_ROWS, TILE_MID_ROWS, TILE_ONE_ROW, TILE_HEIGHTS };
enum tile_width { TILE_PANELS, TILE_ONE_PANEL, TILE_WIDTHS };

struct tiles {
    tile_function *row, *strip[TILE_WIDTHS][TILE_HEIGHTS];
    uint32_t row_panels, rows[TILE_HEIGHTS], panels[TILE_WIDTHS];
};

#define TW_TILE(name, tile, dtype, R, P)                                                    \
    static TW_NOINLINE void name(const struct tw_matmul *m, uint32_t row, uint32_t panel) { \
        tile(m, dtype, row, panel, R, P);                                                   \
    }
#define TW_TILES(name, tile, dtype, size)                                                     \
    TW_TILE(name##_row, tile, dtype, 1, size##_ROW_PANELS)                                    \
    TW_TILE(name##_rows, tile, dtype, size##_ROWS, size##_PANELS)                             \
    TW_TILE(name##_mid, tile, dtype, size##_MID_ROWS, size##_PANELS)                          \
    TW_TILE(name##_one, tile, dtype, 1, size##_PANELS)                                        \
    TW_TILE(name##_rows_1, tile, dtype, size##_ROWS, 1)                                       \
    TW_TILE(name##_mid_1, tile, dtype, size##_MID_ROWS, 1)                                    \
    TW_TILE(name##_one_1, tile, dtype, 1, 1)                                                  \
    static const struct tiles name = {                                                        \
        name##_row,                                                                           \
        {{name##_rows, name##_mid, name##_one}, {name##_rows_1, name##_mid_1, name##_one_1}}, \
        size##_ROW_PANELS,                                                                    \
        {size##_ROWS, size##_MID_ROWS, 1},                                                    \
        {size##_PANELS, 1},                                                                   \
    };

/* All rows by a strip of panels. */
static void strip(const struct tw_matmul *m, const struct tiles *t, uint32_t panel,
                  enum tile_width width) {
    uint32_t row = 0;
    for (unsigned height = 0; height < TILE_HEIGHTS; height++) {
        for (; m->rows - row >= t->rows[height]; row += t->rows[height]) {
            t->strip[width][height](m, row, panel);
        }
    }
}

static void product(const struct tw_matmul *m, const struct tiles *t) {
    uint32_t panel = 0;
    for (; m->rows == 1 && m->panels - panel >= t->row_panels; panel += t->row_panels) {
        t->row(m, 0, panel);
    }
    for (unsigned width = 0; width < TILE_WIDTHS; width++) {
        for (; m->panels - panel >= t->panels[width]; panel += t->panels[width]) {
            strip(m, t, panel, width);
        }
    }
}

TW_TILES(tiles_f32, float_tile, TW_DT_F32, FLOAT)
TW_TILES(tiles_f16, float_tile, TW_DT_F16, FLOAT)
TW_TILES(tiles_bf16, float_tile, TW_DT_BF16, FLOAT)
TW_TILES(tiles_q8_0, quant_tile, TW_DT_Q8_0, QUANT)
TW_TILES(tiles_q4_0, quant_tile, TW_DT_Q4_0, QUANT)
TW_TILES(tiles_q4_1, small_tile, TW_DT_Q4_1, BLOCK)
TW_TILES(tiles_q5_0, small_tile, TW_DT_Q5_0, BLOCK)
TW_TILES(tiles_q5_1, small_tile, TW_DT_Q5_1, BLOCK)
TW_TILES(tiles_iq4_nl, small_tile, TW_DT_IQ4_NL, BLOCK)
TW_TILES(tiles_mxfp4, small_tile, TW_DT_MXFP4, BLOCK)
TW_TILES(tiles_q2_k, super_tile, TW_DT_Q2_K, BLOCK)
TW_TILES(tiles_q3_k, super_tile, TW_DT_Q3_K, BLOCK)
TW_TILES(tiles_q4_k, super_tile, TW_DT_Q4_K, BLOCK)
TW_TILES(tiles_q5_k, super_tile, TW_DT_Q5_K, BLOCK)
TW_TILES(tiles_q6_k, super_tile, TW_DT_Q6_K, BLOCK)
TW_TILES(tiles_iq4_xs, super_tile, TW_DT_IQ4_XS, BLOCK)

/* Panels are unpacked for a tile's rows alone: one at a time suffices. */
static const struct tiles tiles_unpacked = {
    unpacked_one,
    {{unpacked_rows, unpacked_mid, unpacked_one}, {unpacked_rows, unpacked_mid, unpacked_one}},
    1,
    {FLOAT_ROWS, FLOAT_MID_ROWS, 1},
    {1, 1},
};

static void matmul(const struct tw_kargs *a) {
    struct tw_matmul m = tw_matmul_view(a);
    if (m.x_is_float && segment_functions[m.dtype]) {
        product(&m, &tiles_unpacked);
        return;
    }
    switch (m.dtype) {
    case TW_DT_F32:
        product(&m, &tiles_f32);
        break;
    case TW_DT_F16:
        product(&m, &tiles_f16);
        break;
    case TW_DT_BF16:
        product(&m, &tiles_bf16);
        break;
    case TW_DT_Q8_0:
        product(&m, &tiles_q8_0);
        break;
    case TW_DT_Q4_0:
        product(&m, &tiles_q4_0);
        break;
    case TW_DT_Q4_1:
        product(&m, &tiles_q4_1);
        break;
    case TW_DT_Q5_0:
        product(&m, &tiles_q5_0);
        break;
    case TW_DT_Q5_1:
        product(&m, &tiles_q5_1);
        break;
    case TW_DT_IQ4_NL:
        product(&m, &tiles_iq4_nl);
        break;
    case TW_DT_MXFP4:
        product(&m, &tiles_mxfp4);
        break;
    case TW_DT_Q2_K:
        product(&m, &tiles_q2_k);
        break;
    case TW_DT_Q3_K:
        product(&m, &tiles_q3_k);
        break;
    case TW_DT_Q4_K:
        product(&m, &tiles_q4_k);
        break;
    case TW_DT_Q5_K:
        product(&m, &tiles_q5_k);
        break;
    case TW_DT_Q6_K:
        product(&m, &tiles_q6_k);
        break;
    case TW_DT_IQ4_XS:
        product(&m, &tiles_iq4_xs);
        break;
    default: /* no other dtype is packed in panels; the verifier has refused it */
        break;
    }
}
