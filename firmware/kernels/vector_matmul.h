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
    struct tile_sums sums;
    const char *x = m->x + m->x_stride * row;
    const uint8_t *w = m->w + m->panel_bytes * panel;
    const size_t line = dtype == TW_DT_F32 ? 64 : 32;
    sums_start(&sums, m, row, panel, R, P);
    for (size_t k = 0; k < m->k; k++) {
        vf weights[sizeof sums.at[0] / sizeof(vf)];
        TW_UNROLL
        for (int p = 0; p < P; p++) {
            const uint8_t *from = w + m->panel_bytes * (size_t)p;
            if (R == 1) {
                prefetch_ahead(from + k * line, line);
            }
            weights[p] = v_load_weights(dtype, from, k);
        }
        TW_UNROLL
        for (int r = 0; r < R; r++) {
            vf xk = v_set1(((const float *)(const void *)(x + m->x_stride * (size_t)r))[k]);
            TW_UNROLL
            for (int p = 0; p < P; p++) {
                sums.at[r][p] = v_fma(weights[p], xk, sums.at[r][p]);
            }
        }
    }
    sums_store(&sums, m, row, panel, R, P);
}

/* Blocks of 32: exact integer sums, then one float operation with both scales. */
TW_INLINE void quant_tile(const struct tw_matmul *m, unsigned dtype, uint32_t row, uint32_t panel,
                          const int R, const int P) {
    struct tile_sums sums;
    const uint8_t *w = m->w + m->panel_bytes * panel;
    const size_t block_bytes = dtype == TW_DT_Q8_0 ? 512 : 256;
    sums_start(&sums, m, row, panel, R, P);
    for (size_t b = 0; b < m->k / 32; b++) {
        struct tile_ints ints;
        TW_UNROLL
        for (int p = 0; R == 1 && p < P; p++) {
            prefetch_ahead(w + m->panel_bytes * (size_t)p + b * block_bytes, block_bytes);
        }
        block_sums(&ints, m, dtype, row, w, b, R, P);
        TW_UNROLL
        for (int p = 0; p < P; p++) {
            vf scale = v_load_f16(w + m->panel_bytes * (size_t)p + m->scales + b * 32);
            TW_UNROLL
            for (int r = 0; r < R; r++) {
                vf both = v_mul(scale, v_set1(x_block(m, row + (uint32_t)r, b)->d));
                sums.at[r][p] = v_fma(ints_float(&ints, r, p), both, sums.at[r][p]);
            }
        }
    }
    sums_store(&sums, m, row, panel, R, P);
}

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
    default: /* no other dtype is packed in panels; the verifier has refused it */
        break;
    }
}
