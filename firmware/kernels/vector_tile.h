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

/* What a tile reads: the rows of x, from their start, and P panels, from w on. Pointers, so that a
 * segment begins without computing them again. */
struct tile_in {
    const char *x[MAX2(FLOAT_ROWS, QUANT_ROWS)];
    const uint8_t *w, *w_end; /* the first panel */
    size_t w_stride;
    size_t w_next; /* from a panel's end to where the same panel of the next tile begins */
};

TW_INLINE void tile_begin(struct tile_in *in, const struct tw_matmul *m, unsigned dtype,
                          uint32_t row, uint32_t panel, const int R, const int P) {
    size_t bytes = (size_t)tw_panel_bytes(dtype, m->k);
    const char *x = m->x + m->x_stride * row;
    TW_UNROLL
    for (int r = 0; r < R; r++, x += m->x_stride) {
        in->x[r] = x;
    }
    in->w_stride = m->w_stride;
    in->w = m->w + m->w_stride * panel;
    in->w_end = in->w + bytes;
    in->w_next = m->w_stride * (size_t)P - bytes;
}

/* Returns element k, or block b of 32 quants, of row r of the tile. */
TW_INLINE float x_float(const struct tile_in *in, int r, size_t k) {
    return ((const float *)(const void *)in->x[r])[k];
}
TW_INLINE const struct tw_q8s *x_block(const struct tile_in *in, int r, size_t b) {
    return (const struct tw_q8s *)(const void *)in->x[r] + b;
}

/* Prefetches, of each panel, the bytes that are read ROW_PREFETCH bytes after those at `at` in the
 * first: past a panel's end, those of the next tile. The empty statement makes each line an offset
 * from one register: else gcc keeps an address per line, and moves it from a vector register each
 * time. */
TW_INLINE void tile_prefetch(const struct tile_in *in, const uint8_t *at, const size_t bytes,
                             const int P) {
    at += ROW_PREFETCH;
    at += at < in->w_end ? 0 : in->w_next;
    TW_UNROLL
    for (int p = 0; p < P; p++) {
        const uint8_t *panel = at + in->w_stride * (size_t)p;
        __asm__("" : "+r"(panel));
        TW_UNROLL
        for (size_t line = 0; line < bytes; line += 64) {
            __builtin_prefetch(panel + line);
        }
    }
}

/* The sums of the segments so far, in memory: level j holds the sums of 2^j segments (struct tw_sum
 * in tilewright/numerics.h), each a tile of R * P vectors. */
enum {
    TILE_VECTORS = MAX2(MAX2(FLOAT_ROWS * FLOAT_PANELS, FLOAT_ROW_PANELS),
                        MAX2(QUANT_ROWS *QUANT_PANELS, QUANT_ROW_PANELS))
};
struct tile_levels {
    vf at[TW_SUM_LEVELS][TILE_VECTORS];
};

TW_INLINE void sums_zero(struct tile_sums *s, const int R, const int P) {
    TW_UNROLL
    for (int i = 0; i < R * P; i++) {
        s->at[i / P][i % P] = v_zero();
    }
}

TW_INLINE void sums_add(struct tile_sums *s, const vf *level, const int R, const int P) {
    TW_UNROLL
    for (int i = 0; i < R * P; i++) {
        s->at[i / P][i % P] = v_add(level[i], s->at[i / P][i % P]);
    }
}

/* Puts away the sums of segment number n, after those of equal size before it were added, and
 * starts new ones. */
TW_INLINE void sums_keep(struct tile_sums *s, struct tile_levels *levels, size_t n, const int R,
                         const int P) {
    vf *level = levels->at[0];
    for (; n & 1; n >>= 1, level += TILE_VECTORS) {
        sums_add(s, level, R, P);
    }
    TW_UNROLL
    for (int i = 0; i < R * P; i++) {
        level[i] = s->at[i / P][i % P];
    }
}

/* Completes the sums of the last segment, number n, with all that was put away. */
TW_INLINE void sums_finish(struct tile_sums *s, const struct tile_levels *levels, size_t n,
                           const int R, const int P) {
    const vf *level = levels->at[0];
    for (; n; n >>= 1, level += TILE_VECTORS) {
        if (n & 1) {
            sums_add(s, level, R, P);
        }
    }
}

TW_INLINE void sums_store(struct tile_sums *s, const struct tw_matmul *m, uint32_t row,
                          uint32_t panel, const int R, const int P) {
    float *y = tw_matmul_y(m, row, panel);
    if (m->reload) {
        const float *old = y;
        TW_UNROLL
        for (int i = 0; i < R * P; i++) {
            s->at[i / P][i % P] = v_add(v_load(old + i % P * 16), s->at[i / P][i % P]);
            old = i % P == P - 1 ? tw_const_row(old, (uint32_t)m->y_stride, 1) : old;
        }
    }
    TW_UNROLL
    for (int i = 0; i < R * P; i++) {
        v_store(y + i % P * 16, s->at[i / P][i % P]);
        y = i % P == P - 1 ? tw_row(y, (uint32_t)m->y_stride, 1) : y;
    }
}
