/* SPDX-License-Identifier: Apache-2.0
 *
 * The float sums of a tile of R rows of x by P panels of weights, shared by the float and the
 * quantised products. R and P are constants where these functions are inlined, so that the arrays
 * become registers. Included by each instruction set's file, which defines the sizes FLOAT_ROWS,
 * FLOAT_MID_ROWS, FLOAT_PANELS, FLOAT_ROW_PANELS, the same with QUANT_, and ROW_PREFETCH: how many
 * bytes ahead a product with one row, which is bound by memory, prefetches weights.
 */

#define MAX2(a, b) ((a) > (b) ? (a) : (b))

/* The sums of a tile, with room for the largest tile of this instruction set. */
struct tile_sums {
    vf at[MAX2(FLOAT_ROWS, QUANT_ROWS)]
         [MAX2(MAX2(FLOAT_PANELS, FLOAT_ROW_PANELS), MAX2(QUANT_PANELS, QUANT_ROW_PANELS))];
};

/* Returns block b of 32 quants of a row of x. */
TW_INLINE const struct tw_q8s *x_block(const struct tw_matmul *m, uint32_t row, size_t b) {
    return (const struct tw_q8s *)(const void *)(m->x + m->x_stride * row) + b;
}

/* Prefetches the bytes that the product with one row needs ROW_PREFETCH bytes later. */
TW_INLINE void prefetch_ahead(const uint8_t *at, const size_t bytes) {
    TW_UNROLL
    for (size_t line = 0; line < bytes; line += 64) {
        __builtin_prefetch(at + line + ROW_PREFETCH);
    }
}

TW_INLINE void sums_start(struct tile_sums *s, const struct tw_matmul *m, uint32_t row,
                          uint32_t panel, const int R, const int P) {
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        TW_UNROLL
        for (int p = 0; p < P; p++) {
            s->at[r][p] = m->reload ? v_load(tw_matmul_y(m, row + (uint32_t)r, panel + (uint32_t)p))
                                    : v_zero();
        }
    }
}

TW_INLINE void sums_store(const struct tile_sums *s, const struct tw_matmul *m, uint32_t row,
                          uint32_t panel, const int R, const int P) {
    TW_UNROLL
    for (int r = 0; r < R; r++) {
        TW_UNROLL
        for (int p = 0; p < P; p++) {
            v_store(tw_matmul_y(m, row + (uint32_t)r, panel + (uint32_t)p), s->at[r][p]);
        }
    }
}
