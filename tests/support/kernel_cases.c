/* SPDX-License-Identifier: Apache-2.0
 *
 * Random and extreme arguments for every kernel (kernel_cases.h).
 */
#include "tests/support/kernel_cases.h"
#include "tests/support/panel_layout.h"
#include "tilewright/numerics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 20240611 };

static const unsigned float_dtypes[] = {TW_DT_F32, TW_DT_F16, TW_DT_BF16};
#define TW_X(name, bits, offset, sub_elems, minima, scale_bytes) TW_DT_##name,
static const unsigned quant_dtypes[] = {TW_BLOCK_TYPES(TW_X)};
#undef TW_X
enum { QUANT_DTYPES = sizeof quant_dtypes / sizeof quant_dtypes[0] };

enum { MATMUL_DTYPES = 3 + QUANT_DTYPES };

/* The types of weights in turn. */
static unsigned weight_dtype(uint32_t n) {
    n %= MATMUL_DTYPES;
    return n < 3 ? float_dtypes[n] : quant_dtypes[n - 3];
}

/* Returns k, widened to whole blocks. */
static uint32_t whole_blocks(unsigned dtype, uint32_t k) {
    uint32_t elems = tw_dtype_block_elems(dtype);
    return (k + elems - 1) / elems * elems;
}

static uint32_t x_bytes(unsigned dtype, uint32_t k) {
    return (uint32_t)tw_row_bytes(tw_dtype_activation(dtype), k);
}

/* Floats of every size: mostly near 1, some huge, tiny, subnormal, infinite or NaN. */
static float *wild_floats(struct fixture_random *r, size_t n) {
    float *f = fixture_floats(r, n);
    for (size_t i = 0; i < n; i++) {
        if (fixture_below(r, 16) == 0) {
            f[i] = tw_bits_float(fixture_next(r));
        } else if (fixture_below(r, 64) == 0) {
            f[i] = fixture_below(r, 2) ? INFINITY : NAN;
        }
        f[i] *= fixture_below(r, 8) ? 4.0f : 60.0f;
    }
    return f;
}

/* ---- matmul ---- */

struct shape {
    uint32_t k, panels, rows, reload;
};

static void check_product(kernel_check *check, struct fixture_random *r, unsigned dtype,
                          unsigned x_dtype, struct shape s, void *x, uint32_t x_stride, uint8_t *w,
                          const char *note) {
    /* four floats between rows, which must not be written */
    uint32_t y_stride = (s.panels * 16 + 4) * 4;
    size_t y_floats = (size_t)s.rows * (y_stride / 4);
    float *y = fixture_floats(r, y_floats);
    uint32_t w_stride = (uint32_t)tw_panel_bytes(dtype, s.k);
    struct tw_kargs a = {.p = {x, w, y},
                         .i = {x_stride, w_stride, dtype, s.k, s.panels, y_stride, s.reload},
                         .rows = s.rows};
    a.x_dtype = x_dtype;
    char what[120];
    snprintf(what, sizeof what, "matmul %s%s k %u, %u panels, %u rows, reload %u",
             tw_dtype_name(dtype), note, s.k, s.panels, s.rows, s.reload);
    check(TW_OP_MATMUL, &a, 2, y_floats * 4, FIXTURE_FLOATS, what);
    free(y);
}

static void check_matmul(kernel_check *check, struct fixture_random *r, unsigned dtype,
                         struct shape s, void *x, uint32_t x_stride, uint8_t *w, const char *note) {
    check_product(check, r, dtype, tw_dtype_activation(dtype), s, x, x_stride, w, note);
}

/* Every number of rows around the tiles' sizes, then any. */
static struct shape some_shape(struct fixture_random *r, uint32_t n, uint32_t unit,
                               uint32_t most_units) {
    struct shape s = {unit * (1 + fixture_below(r, most_units)), 1 + fixture_below(r, 9), 0,
                      fixture_below(r, 2)};
    s.rows = n < 26 ? n + 1 : 1 + fixture_below(r, 130);
    return s;
}

static void matmul_with_float_weights(kernel_check *check) {
    struct fixture_random r = {SEED};
    for (uint32_t n = 0; n < 40; n++) {
        struct shape s = some_shape(&r, n, 1, 70);
        unsigned dtype = float_dtypes[n % 3];
        uint32_t stride = (s.k + fixture_below(&r, 3)) * 4;
        float *x = fixture_floats(&r, (size_t)s.rows * (stride / 4));
        uint8_t *w = fixture_panels(&r, dtype, s.k, s.panels);
        check_matmul(check, &r, dtype, s, x, stride, w, "");
        free(w);
        free(x);
    }
}

static void matmul_with_float_weights_of_any_bits(kernel_check *check) {
    struct fixture_random r = {SEED + 1};
    for (uint32_t n = 0; n < 12; n++) {
        struct shape s = {1 + fixture_below(&r, 3), 3, 1 + n, 0};
        unsigned dtype = float_dtypes[n % 3];
        float *x = (float *)(void *)fixture_bytes(&r, (size_t)s.rows * s.k * 4);
        uint8_t *w = fixture_bytes(&r, (size_t)tw_panel_bytes(dtype, s.k) * s.panels);
        check_matmul(check, &r, dtype, s, x, s.k * 4, w, " any bits");
        free(w);
        free(x);
    }
}

static void matmul_with_quantised_weights(kernel_check *check) {
    struct fixture_random r = {SEED + 2};
    for (uint32_t n = 0; n < 15 * QUANT_DTYPES; n++) {
        unsigned dtype = quant_dtypes[n % QUANT_DTYPES];
        struct shape s = some_shape(&r, n / QUANT_DTYPES * 2, tw_dtype_block_elems(dtype), 4);
        uint8_t *w = fixture_panels(&r, dtype, s.k, s.panels);
        void *x = fixture_activations(&r, tw_dtype_activation(dtype), s.rows, s.k);
        check_matmul(check, &r, dtype, s, x, x_bytes(dtype, s.k), w, "");
        free(x);
        free(w);
    }
}

/* Scales of any bits, quants of -128, block sums that do not match the quants: no different
 * result, no undefined behaviour. */
static void matmul_with_hostile_quants(kernel_check *check) {
    struct fixture_random r = {SEED + 3};
    for (uint32_t n = 0; n < 15 * QUANT_DTYPES; n++) {
        unsigned dtype = quant_dtypes[n % QUANT_DTYPES];
        uint32_t turn = n / QUANT_DTYPES, row = tw_dtype_block_elems(dtype);
        struct shape s = {row * (1 + fixture_below(&r, 2)), 1 + fixture_below(&r, 5),
                          1 + fixture_below(&r, 9), turn % 3 == 0};
        uint8_t *w = fixture_bytes(&r, (size_t)tw_panel_bytes(dtype, s.k) * s.panels);
        row = x_bytes(dtype, s.k);
        uint8_t *x = fixture_bytes(&r, (size_t)s.rows * row);
        if (turn % 5 == 0) { /* the largest magnitudes, all at once */
            memset(w + panel_quants_at(dtype, s.k, 0), turn % 2 ? 0xFF : 0x00,
                   (s.k < 256 ? s.k : 256) / 32 * panel_quants_bytes(dtype));
            memset(x, 0x80, (size_t)s.rows * row);
        }
        if (turn % 5 == 1) { /* the largest scales, too: all bits set is NaN, so not those in f16 */
            free(w);
            w = fixture_panels(&r, dtype, s.k, s.panels);
            memset(w + panel_scales_at(dtype, 0) + panel_halves(dtype) * 2, n % 2 ? 0x7F : 0x80,
                   panel_scales_bytes(dtype) - panel_halves(dtype) * 2);
        }
        check_matmul(check, &r, dtype, s, x, row, w, " hostile");
        free(x);
        free(w);
    }
}

/* Depths around whole segments and around the carries of their count. */
static const uint32_t depths[] = {224, 256, 288, 480, 512, 544, 768, 992, 1024, 1056, 1792, 2304};

/* Weights in blocks, unpacked to floats: of any number of rows, and of any bits. */
static void matmul_with_float_activations(kernel_check *check) {
    struct fixture_random r = {SEED + 40};
    for (uint32_t n = 0; n < 16 * QUANT_DTYPES; n++) {
        unsigned dtype = quant_dtypes[n % QUANT_DTYPES];
        struct shape s =
            some_shape(&r, n / QUANT_DTYPES * 2, tw_dtype_block_elems(dtype), n % 3 ? 4 : 20);
        bool any = n / QUANT_DTYPES % 4 == 3;
        s.rows = s.rows > 20 ? 20 : s.rows;
        float *x =
            any ? wild_floats(&r, (size_t)s.rows * s.k) : fixture_floats(&r, (size_t)s.rows * s.k);
        uint8_t *w = any ? fixture_bytes(&r, (size_t)(s.panels * tw_panel_bytes(dtype, s.k)))
                         : fixture_panels(&r, dtype, s.k, s.panels);
        check_product(check, &r, dtype, TW_DT_F32, s, x, s.k * 4, w, any ? " any bits" : " floats");
        free(w);
        free(x);
    }
}

static void matmul_of_many_segments(kernel_check *check) {
    struct fixture_random r = {SEED + 20};
    for (uint32_t n = 0; n < 12 * MATMUL_DTYPES; n++) {
        unsigned dtype = weight_dtype(n);
        struct shape s = {whole_blocks(dtype, depths[n / MATMUL_DTYPES]), 1 + fixture_below(&r, 5),
                          1 + fixture_below(&r, 14), n / 2 % 2};
        s.k += n % MATMUL_DTYPES >= 3 ? 0 : fixture_below(&r, 5);
        uint8_t *w = fixture_panels(&r, dtype, s.k, s.panels);
        void *x = fixture_activations(&r, tw_dtype_activation(dtype), s.rows, s.k);
        check_matmul(check, &r, dtype, s, x, x_bytes(dtype, s.k), w, "");
        free(x);
        free(w);
    }
}

/* A window of the columns of wider panels: from a multiple of 256 to another, or to the end. */
static void matmul_of_a_window(kernel_check *check) {
    struct fixture_random r = {SEED + 21};
    enum { PANELS = 3, ROWS = 5 };
    for (uint32_t n = 0; n < 8 * MATMUL_DTYPES; n++) {
        unsigned dtype = weight_dtype(n);
        const uint32_t k = whole_blocks(dtype, 1504);
        uint32_t from = 256 * fixture_below(&r, 6), end = from + 256 * (1 + fixture_below(&r, 6));
        end = end < k ? end : k;
        uint32_t w_stride = (uint32_t)tw_panel_bytes(dtype, k), x_row = x_bytes(dtype, k);
        uint8_t *w = fixture_panels(&r, dtype, k, PANELS);
        char *x = fixture_activations(&r, tw_dtype_activation(dtype), ROWS, k);
        float *y = fixture_floats(&r, ROWS * 16 * PANELS);
        struct tw_kargs a = {
            .p = {x + x_bytes(dtype, from), w + tw_panel_offset(dtype, from), y},
            .i = {x_row, w_stride, dtype, end - from, PANELS, PANELS * 64, n / 2 % 2},
            .rows = n < 4 * MATMUL_DTYPES ? ROWS : 1};
        a.x_dtype = tw_dtype_activation(dtype);
        check(TW_OP_MATMUL, &a, 2, ROWS * 16 * PANELS * 4, FIXTURE_FLOATS, "matmul of a window");
        free(y);
        free(x);
        free(w);
    }
}

static void matmul_of_no_rows_writes_nothing(kernel_check *check) {
    struct fixture_random r = {SEED + 4};
    for (uint32_t n = 0; n < MATMUL_DTYPES; n++) {
        unsigned dtype = weight_dtype(n);
        struct shape s = {whole_blocks(dtype, 32), 2, 0, 0};
        uint8_t *w = fixture_panels(&r, dtype, s.k, 2);
        check_matmul(check, &r, dtype, s, NULL, 40, w, "");
        free(w);
    }
}

/* ---- rows ---- */

static void fold_of_any_number_of_parts(kernel_check *check) {
    struct fixture_random r = {SEED + 22};
    for (uint32_t parts = 1; parts < 70; parts += 1 + parts / 12) {
        uint32_t cols = 1 + fixture_below(&r, 70), rows = 1 + fixture_below(&r, 3),
                 x_floats = parts * cols + fixture_below(&r, 3), y_floats = cols + 2;
        float *x = wild_floats(&r, (size_t)rows * x_floats),
              *y = fixture_floats(&r, (size_t)rows * y_floats);
        struct tw_kargs a = {
            .p = {x, y}, .i = {x_floats * 4, parts, y_floats * 4, cols}, .rows = rows};
        check(TW_OP_FOLD, &a, 1, (size_t)rows * y_floats * 4, FIXTURE_FLOATS, "fold");
        free(y);
        free(x);
    }
}

static void squares_and_scale_of_any_width(kernel_check *check) {
    struct fixture_random r = {SEED + 23};
    for (uint32_t cols = 1; cols < 1600; cols += 1 + cols / 15) {
        uint32_t rows = 1 + fixture_below(&r, 3), stride = (cols + fixture_below(&r, 4)) * 4;
        float *x = wild_floats(&r, (size_t)rows * (stride / 4)), *w = fixture_floats(&r, cols),
              *y = fixture_floats(&r, (size_t)rows * (stride / 4)), *s = fixture_floats(&r, rows);
        struct tw_kargs sum = {.p = {x, s}, .i = {stride, 4, cols}, .rows = rows};
        check(TW_OP_SQUARES, &sum, 1, (size_t)rows * 4, FIXTURE_FLOATS, "squares");
        struct tw_kargs scale = {.p = {x, s, w, y},
                                 .i = {stride, 4, stride, cols, cols + fixture_below(&r, 2000)},
                                 .f = {1e-5f},
                                 .rows = rows};
        check(TW_OP_RMS_SCALE, &scale, 3, (size_t)rows * stride, FIXTURE_FLOATS, "rms_scale");
        free(s);
        free(y);
        free(w);
        free(x);
    }
}

static void rms_norm_of_any_width(kernel_check *check) {
    struct fixture_random r = {SEED + 6};
    for (uint32_t cols = 1; cols < 1600; cols += 1 + cols / 20) {
        uint32_t rows = 1 + fixture_below(&r, 4), stride = (cols + 3) * 4;
        float *x = cols % 5 ? fixture_floats(&r, (size_t)rows * (cols + 3))
                            : wild_floats(&r, (size_t)rows * (cols + 3));
        float *w = fixture_floats(&r, cols), *y = fixture_floats(&r, (size_t)rows * (cols + 3));
        struct tw_kargs a = {
            .p = {x, w, y}, .i = {stride, stride, cols}, .f = {1e-5f}, .rows = rows};
        check(TW_OP_RMS_NORM, &a, 2, (size_t)rows * stride, FIXTURE_FLOATS, "rms_norm");
        free(y);
        free(w);
        free(x);
    }
}

static void layer_norm_of_any_width(kernel_check *check) {
    struct fixture_random r = {SEED + 30};
    for (uint32_t cols = 1; cols < 1600; cols += 1 + cols / 20) {
        uint32_t rows = 1 + fixture_below(&r, 4), stride = (cols + 3) * 4;
        size_t floats = (size_t)rows * (cols + 3);
        float *x = cols % 5 ? fixture_floats(&r, floats) : wild_floats(&r, floats);
        float *w = fixture_floats(&r, cols), *b = fixture_floats(&r, cols),
              *y = fixture_floats(&r, floats);
        struct tw_kargs a = {
            .p = {x, w, b, y}, .i = {stride, stride, cols}, .f = {1e-5f}, .rows = rows};
        check(TW_OP_LAYER_NORM, &a, 3, (size_t)rows * stride, FIXTURE_FLOATS, "layer_norm");
        free(y);
        free(b);
        free(w);
        free(x);
    }
}

static void quant_of_any_floats(kernel_check *check) {
    struct fixture_random r = {SEED + 7};
    for (uint32_t n = 0; n < 60; n++) {
        uint32_t blocks = 1 + fixture_below(&r, 4), rows = 1 + fixture_below(&r, 3),
                 cols = blocks * 32;
        float *x =
            n % 2 ? wild_floats(&r, (size_t)rows * cols) : fixture_floats(&r, (size_t)rows * cols);
        float scale = ldexpf(1.0f, (int)fixture_below(&r, 250) - 125);
        for (size_t i = 0; n % 3 == 0 && i < (size_t)rows * cols; i++) {
            x[i] *= scale;
        }
        uint8_t *y = fixture_bytes(&r, (size_t)rows * blocks * 40);
        struct tw_kargs a = {.p = {x, y}, .i = {cols * 4, blocks * 40, cols}, .rows = rows};
        check(TW_OP_QUANT, &a, 1, (size_t)rows * blocks * 40, FIXTURE_EXACT, "quant");
        free(y);
        free(x);
    }
}

static void quant_k_of_any_floats(kernel_check *check) {
    struct fixture_random r = {SEED + 22};
    for (uint32_t n = 0; n < 60; n++) {
        uint32_t blocks = 1 + fixture_below(&r, 3), rows = 1 + fixture_below(&r, 3),
                 cols = blocks * 256, bytes = blocks * (uint32_t)sizeof(struct tw_q8k);
        size_t floats = (size_t)rows * cols;
        float *x = n % 4 == 1 ? wild_floats(&r, floats) : fixture_floats(&r, floats);
        float scale = ldexpf(1.0f, (int)fixture_below(&r, 250) - 125);
        for (size_t i = 0; n % 3 == 0 && i < floats; i++) {
            x[i] *= scale;
        }
        uint8_t *y = fixture_bytes(&r, (size_t)rows * bytes);
        struct tw_kargs a = {.p = {x, y}, .i = {cols * 4, bytes, cols}, .rows = rows};
        check(TW_OP_QUANT_K, &a, 1, (size_t)rows * bytes, FIXTURE_EXACT, "quant_k");
        free(y);
        free(x);
    }
}

static void elementwise_ops_of_any_floats(kernel_check *check) {
    struct fixture_random r = {SEED + 8};
    for (uint32_t cols = 1; cols < 300; cols += 1 + cols / 8) {
        uint32_t rows = 1 + fixture_below(&r, 3), stride = (cols + 1) * 4;
        float *x = wild_floats(&r, (size_t)rows * (cols + 1)),
              *y = wild_floats(&r, (size_t)rows * (cols + 1));
        float *z = fixture_floats(&r, (size_t)rows * (cols + 1));
        struct tw_kargs a = {.p = {x, y, z}, .i = {stride, stride, stride, cols}, .rows = rows};
        check(TW_OP_ADD, &a, 2, (size_t)rows * stride, FIXTURE_FLOATS, "add");
        check(TW_OP_SILU_MUL, &a, 2, (size_t)rows * stride, FIXTURE_FLOATS, "silu_mul");
        check(TW_OP_GELU_MUL, &a, 2, (size_t)rows * stride, FIXTURE_FLOATS, "gelu_mul");
        struct tw_kargs one = {
            .p = {x, z}, .i = {stride, stride, cols}, .f = {30.0f}, .rows = rows};
        check(TW_OP_GELU, &one, 1, (size_t)rows * stride, FIXTURE_FLOATS, "gelu");
        check(TW_OP_SCALE, &one, 1, (size_t)rows * stride, FIXTURE_FLOATS, "scale");
        check(TW_OP_SOFT_CAP, &one, 1, (size_t)rows * stride, FIXTURE_FLOATS, "soft_cap");
        uint32_t entries = 1 + fixture_below(&r, cols);
        struct tw_kargs by_pos = {.p = {x, y, z},
                                  .i = {stride, stride, cols, entries, 1 + fixture_below(&r, 3)},
                                  .pos = fixture_below(&r, 2 * entries),
                                  .rows = rows};
        check(TW_OP_POS_SCALE, &by_pos, 2, (size_t)rows * stride, FIXTURE_FLOATS, "pos_scale");
        free(z);
        free(y);
        free(x);
    }
}

static void rope_tables_and_rotations(kernel_check *check) {
    struct fixture_random r = {SEED + 9};
    for (uint32_t n = 0; n < 60; n++) {
        uint32_t half = 1 + fixture_below(&r, 50), head_dim = 2 * half + fixture_below(&r, 5),
                 heads = 1 + n % 3;
        uint32_t rows = 1 + fixture_below(&r, 4), cs_floats = 2 * half + 1,
                 x_floats = heads * head_dim + 2;
        float *freq = n % 7 ? fixture_floats(&r, half) : wild_floats(&r, half);
        float *cs = fixture_floats(&r, (size_t)rows * cs_floats),
              *x = fixture_floats(&r, (size_t)rows * x_floats);
        struct tw_kargs table = {.p = {freq, cs}, .i = {cs_floats * 4, half}, .rows = rows};
        table.pos = n % 2 ? fixture_below(&r, 4096) : fixture_next(&r);
        check(TW_OP_ROPE_TABLE, &table, 1, (size_t)rows * cs_floats * 4, FIXTURE_FLOATS,
              "rope_table");
        struct tw_kargs a = {
            .p = {x, cs}, .i = {x_floats * 4, cs_floats * 4, heads, head_dim, 2 * half, n / 2 % 2}};
        a.rows = rows;
        check(TW_OP_ROPE, &a, 0, (size_t)rows * x_floats * 4, FIXTURE_FLOATS, "rope");
        free(x);
        free(cs);
        free(freq);
    }
}

/* ---- attention ---- */

struct attention_case {
    uint32_t heads, first, state_heads, head_dim, block, pos, rows;
    bool wild, half;
    uint32_t segments, segment; /* 0 segments: one, that of the block */
    uint32_t window;            /* 0: ATTN_STEP */
    float cap;
};

static void set_stale(void *cache, size_t at, bool half) {
    static const float nan = NAN;
    static const uint16_t half_nan = 0x7E00;
    memcpy((char *)cache + at * (half ? 2 : 4), half ? (const void *)&half_nan : &nan,
           half ? 2 : 4);
}

/* Keys and values of positions that no row attends to are NaN: stale memory must have no effect. */
static void stale(void *keys, void *values, const struct attention_case *c) {
    int64_t first = (int64_t)c->pos - (int64_t)c->block * 64, seen = first + c->rows;
    for (int64_t j = 0; j < 64; j++) {
        bool old = c->window && j + c->window <= first;
        if (j < seen && !old) {
            continue;
        }
        for (uint32_t d = 0; d < c->head_dim; d++) {
            set_stale(keys, ((size_t)(j / 16) * c->head_dim + d) * 16 + (size_t)(j % 16), c->half);
            set_stale(values, (size_t)j * c->head_dim + d, c->half);
        }
    }
}

/* Returns a cache of n elements; `keys` of a wild case are mostly ordinary, so that some positions
 * that are seen are not. */
static void *random_cache(struct fixture_random *r, const struct attention_case *c, size_t n,
                          bool keys) {
    if (c->wild && !keys) {
        return c->half ? (void *)fixture_bytes(r, n * 2) : wild_floats(r, n);
    }
    float *floats = fixture_floats(r, n);
    for (size_t i = 0; c->wild && i < n; i += 1 + fixture_below(r, 200)) {
        floats[i] = fixture_below(r, 2) ? NAN : INFINITY;
    }
    if (!c->half) {
        return floats;
    }
    uint16_t *halves = fixture_alloc(n * 2);
    for (size_t i = 0; i < n; i++) {
        halves[i] = tw_f32_to_f16(floats[i]);
    }
    free(floats);
    return halves;
}

/* Returns n states, some of them empty. l is at least 1, as it is after any position. */
static float *random_states(struct fixture_random *r, size_t n, uint32_t head_dim, bool wild) {
    float *s = wild ? wild_floats(r, n * (head_dim + 2)) : fixture_floats(r, n * (head_dim + 2));
    for (size_t i = 0; i < n; i++) {
        float *state = s + i * (head_dim + 2);
        state[0] = wild ? state[0] : 30 * state[0];
        state[1] = wild ? state[1] : 1 + state[1] * state[1];
        if (fixture_below(r, 4) == 0) {
            memset(state, 0, (head_dim + 2) * sizeof *state);
            state[0] = -INFINITY;
        }
    }
    return s;
}

static void check_done(kernel_check *check, struct fixture_random *r,
                       const struct attention_case *c, float *s) {
    uint32_t y_floats = c->state_heads * c->head_dim + 1;
    float *y = fixture_floats(r, (size_t)c->rows * y_floats);
    struct tw_kargs done = {.p = {s, y},
                            .i = {c->segments, y_floats * 4, c->state_heads, c->head_dim},
                            .rows = c->rows};
    check(TW_OP_ATTN_DONE, &done, 1, (size_t)c->rows * y_floats * 4, FIXTURE_FLOATS, "attn_done");
    free(y);
}

static void check_attention(kernel_check *check, struct fixture_random *r,
                            const struct attention_case *of) {
    struct attention_case c = *of;
    if (c.segments == 0) {
        c.segments = 1;
        c.segment = c.block / 8;
    }
    uint32_t q_floats = c.heads * c.head_dim + 3;
    size_t states = (size_t)c.rows * c.segments * c.state_heads,
           state_floats = states * (c.head_dim + 2), kv = (size_t)64 * c.head_dim;
    float *q = fixture_floats(r, (size_t)c.rows * q_floats),
          *s = random_states(r, states, c.head_dim, c.wild);
    void *keys = random_cache(r, &c, kv, true), *values = random_cache(r, &c, kv, false);
    stale(keys, values, &c);
    struct tw_kargs init = {
        .p = {s}, .i = {c.segments * c.state_heads, c.head_dim}, .rows = c.rows};
    if (fixture_below(r, 2)) {
        check(TW_OP_ATTN_INIT, &init, 0, state_floats * 4, FIXTURE_EXACT, "attn_init");
    }
    struct tw_kargs a = {.p = {q, keys, values, s}, .block = c.block, .pos = c.pos, .rows = c.rows};
    uint32_t imms[] = {q_floats * 4,  c.half ? TW_DT_F16 : TW_DT_F32,
                       c.heads,       c.first,
                       c.state_heads, c.segments,
                       c.segment,     c.head_dim};
    memcpy(a.i, imms, sizeof imms);
    a.i[TW_ATTN_WINDOW_IMM_window] = c.window;
    a.f[0] = c.wild ? 30.0f : 0.25f;
    a.f[1] = c.cap;
    char what[180];
    snprintf(what, sizeof what,
             "%s %u %s heads %u of %u, dim %u, block %u, pos %u, rows %u, segments %u from %u",
             c.window ? "attn_window" : "attn_step", c.window, c.half ? "f16" : "f32", c.heads,
             c.state_heads, c.head_dim, c.block, c.pos, c.rows, c.segments, c.segment);
    check(c.window ? TW_OP_ATTN_WINDOW : TW_OP_ATTN_STEP, &a, 3, state_floats * 4, FIXTURE_FLOATS,
          what);
    check_done(check, r, &c, s);
    free(values);
    free(keys);
    free(s);
    free(q);
}

static void attention_at_every_edge_of_a_block(kernel_check *check) {
    struct fixture_random r = {SEED + 10};
    static const uint32_t dims[] = {8, 48, 64, 16, 20, 1, 33, 128, 80, 320, 512};
    static const uint32_t edges[] = {0,  1,  14, 15, 16,  17,  31,  32,  47,  48,
                                     62, 63, 64, 65, 100, 127, 128, 129, 191, 192};
    for (uint32_t n = 0; n < 4 * (sizeof edges / sizeof *edges); n++) {
        uint32_t first = fixture_below(&r, 3);
        struct attention_case c = {
            .heads = 1 + fixture_below(&r, 5), .first = first, .head_dim = dims[n % 11]};
        c.state_heads = first + c.heads + fixture_below(&r, 2);
        c.block = fixture_below(&r, 3);
        c.pos = edges[n % (sizeof edges / sizeof *edges)];
        c.rows = n % 4 ? 1 + fixture_below(&r, 9) : 1;
        c.wild = n % 5 == 4;
        c.half = n % 2;
        check_attention(check, &r, &c);
    }
}

static void attention_of_a_long_chunk(kernel_check *check) {
    struct fixture_random r = {SEED + 11};
    for (uint32_t block = 0; block < 3; block++) {
        struct attention_case c = {.heads = 2, .state_heads = 2, .head_dim = 24, .rows = 130};
        c.block = block;
        c.pos = 7;
        c.half = block == 1;
        check_attention(check, &r, &c);
    }
}

/* Blocks 6 to 26, that is the segments 0 to 3, by chunks that begin before the block, in it and in
 * front of it: in states of that segment alone, of two, of three from the block's on, and of
 * four. */
static void attention_at_every_edge_of_a_segment(kernel_check *check) {
    struct fixture_random r = {SEED + 14};
    static const uint32_t dims[] = {8, 48, 20, 33, 64};
    for (uint32_t block = 6; block < 27; block++) {
        for (uint32_t segments = 1; segments < 5; segments++) {
            struct attention_case c = {.heads = 1 + fixture_below(&r, 4),
                                       .head_dim = dims[fixture_below(&r, 5)]};
            c.first = fixture_below(&r, 3);
            c.state_heads = c.first + c.heads + fixture_below(&r, 2);
            c.block = block;
            c.pos = block * 64 - 9 + fixture_below(&r, 80);
            c.rows = 1 + fixture_below(&r, 20);
            c.half = fixture_below(&r, 2);
            c.wild = fixture_below(&r, 6) == 0;
            c.segments = segments;
            c.segment = segments == 1 || segments == 3 ? block / 8 : 0;
            check_attention(check, &r, &c);
        }
    }
}

/* Windows that begin before, in and after a block, of chunks that are shorter and longer than it,
 * with capped scores and without. */
static void attention_at_every_edge_of_a_window(kernel_check *check) {
    struct fixture_random r = {SEED + 31};
    static const uint32_t windows[] = {1, 2, 5, 8, 17, 63, 64, 65, 128, 0x7FFFFFFF};
    static const uint32_t dims[] = {8, 48, 20, 33, 64};
    for (uint32_t n = 0; n < 600; n++) {
        struct attention_case c = {.heads = 1 + fixture_below(&r, 4),
                                   .head_dim = dims[fixture_below(&r, 5)]};
        c.first = fixture_below(&r, 3);
        c.state_heads = c.first + c.heads + fixture_below(&r, 2);
        c.window = windows[n % 10];
        c.block = 6 + fixture_below(&r, 21); /* segments 0 to 3: a state of two merges */
        c.pos = c.block * 64 - 20 + fixture_below(&r, 170);
        c.rows = 1 + fixture_below(&r, n % 3 ? 9 : 90);
        c.cap = n % 4 == 1 ? 50.0f : 0.0f;
        c.half = fixture_below(&r, 2);
        c.wild = fixture_below(&r, 6) == 0;
        c.segments = 1 + fixture_below(&r, 2);
        c.segment = c.segments == 1 ? c.block / 8 : 0;
        check_attention(check, &r, &c);
    }
}

static void attention_states_merge(kernel_check *check) {
    struct fixture_random r = {SEED + 15};
    static const uint32_t dims[] = {8, 48, 2, 33, 64, 512};
    for (uint32_t n = 0; n < 60; n++) {
        uint32_t heads = 1 + fixture_below(&r, 4), dim = dims[n % 6],
                 rows = 1 + fixture_below(&r, 4), floats = heads * (dim + 2),
                 more = heads + fixture_below(&r, 3);
        float *x = random_states(&r, (size_t)rows * heads, dim, n % 7 == 6),
              *s = random_states(&r, (size_t)rows * more, dim, n % 5 == 4);
        struct tw_kargs a = {
            .p = {x, s}, .i = {floats * 4, more * (dim + 2) * 4, heads, dim}, .rows = rows};
        check(TW_OP_ATTN_MERGE, &a, 1, (size_t)rows * more * (dim + 2) * 4, FIXTURE_FLOATS,
              "attn_merge");
        struct attention_case c = {.state_heads = more, .head_dim = dim, .rows = rows};
        c.segments = 1;
        check_done(check, &r, &c, s);
        free(s);
        free(x);
    }
}

/* ---- movement ---- */

/* Rows of a table in both packings; the panels' weights are random bytes, whatever that makes of
 * halves and scales. */
static void gather_of_any_bits(kernel_check *check) {
    struct fixture_random r = {SEED + 12};
    for (uint32_t n = 0; n < 4 * TW_DT_COUNT; n++) {
        struct tw_tensor t = {.dtype = (uint8_t)(n % TW_DT_COUNT),
                              .rows = 48,
                              .packing = (uint8_t)(n / TW_DT_COUNT % 2)};
        t.cols = whole_blocks(t.dtype, 32 * (1 + fixture_below(&r, 12)));
        size_t panels = (size_t)tw_panel_bytes(t.dtype, t.cols) * 3;
        if (panels == 0) {
            continue; /* no dtype of tables */
        }
        size_t bytes =
            t.packing == TW_PACK_PANEL16 ? panels : (size_t)tw_row_bytes(t.dtype, t.cols) * t.rows;
        uint8_t *table = fixture_bytes(&r, bytes);
        int32_t ids[5];
        for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
            ids[i] = (int32_t)fixture_below(&r, t.rows);
        }
        uint32_t stride = (t.cols + 2) * 4;
        float *y = fixture_floats(&r, (size_t)5 * (t.cols + 2));
        struct tw_kargs a = {.p = {table, ids, y}, .i = {stride, t.cols}, .rows = 5, .tensor = &t};
        check(TW_OP_GATHER, &a, 2, (size_t)5 * stride, FIXTURE_FLOATS, tw_dtype_name(t.dtype));
        free(y);
        free(table);
    }
}

static void moves_between_rows_and_caches(kernel_check *check) {
    enum { ROWS = 9, WIDTH = 26, POSITIONS = 128, HEADS = 4, DIM = 12 };
    struct fixture_random r = {SEED + 13};
    struct tw_tensor cache = {.rows = POSITIONS,
                              .cols = HEADS * DIM,
                              .head_dim = DIM,
                              .packing = TW_PACK_KEYS,
                              .bytes = (size_t)POSITIONS * HEADS * DIM * 4};
    uint8_t *from = fixture_bytes(&r, ROWS * WIDTH * 4),
            *to = fixture_bytes(&r, HEADS * POSITIONS * DIM * 4);
    struct tw_kargs a = {
        .p = {from, to}, .i = {WIDTH * 4, 1, 2, DIM}, .rows = ROWS, .pos = 59, .tensor = &cache};
    check(TW_OP_KEY_WRITE, &a, 1, HEADS * POSITIONS * DIM * 4, FIXTURE_EXACT, "key_write");
    cache.packing = TW_PACK_VALUES;
    check(TW_OP_VALUE_WRITE, &a, 1, HEADS * POSITIONS * DIM * 4, FIXTURE_EXACT, "value_write");
    cache.dtype = TW_DT_F16;
    cache.bytes /= 2;
    check(TW_OP_VALUE_WRITE, &a, 1, HEADS * POSITIONS * DIM * 2, FIXTURE_EXACT, "value_write f16");
    cache.packing = TW_PACK_KEYS;
    check(TW_OP_KEY_WRITE, &a, 1, HEADS * POSITIONS * DIM * 2, FIXTURE_EXACT, "key_write f16");
    struct tw_kargs rows = {
        .p = {from, to}, .i = {WIDTH * 4, WIDTH * 4 + 4, WIDTH * 4 - 3}, .rows = ROWS};
    check(TW_OP_WRITE, &rows, 1, ROWS * (WIDTH * 4 + 4), FIXTURE_EXACT, "write");
    struct tw_kargs last = {.p = {from, to}, .i = {WIDTH * 4, WIDTH * 4}, .rows = ROWS};
    check(TW_OP_LAST_ROW, &last, 1, WIDTH * 4, FIXTURE_EXACT, "last_row");
    free(to);
    free(from);
}

/* ---- choosing ---- */

/* Values of which many are equal, 0 and -0 among them, some infinite or NaN. */
static float *few_values(struct fixture_random *r, size_t n) {
    static const float some[] = {0.0f, -0.0f, 1.0f, -1.0f, 2.5f, INFINITY, -INFINITY, NAN};
    float *f = fixture_floats(r, n);
    for (size_t i = 0; i < n; i++) {
        f[i] = some[fixture_below(r, sizeof some / sizeof some[0])];
    }
    return f;
}

static void lists_of_the_largest(kernel_check *check) {
    struct fixture_random r = {SEED + 14};
    for (uint32_t n = 0; n < 90; n++) {
        uint32_t cols = n < 8 ? n + 1 : 1 + fixture_below(&r, 1400),
                 rows = 1 + fixture_below(&r, 3),
                 k = n % 3 == 0 ? 1 : 1 + fixture_below(&r, n % 3 == 1 ? 8 : 60);
        uint32_t stride = (cols + 1) * 4, list = (k + 1) * 8;
        size_t floats = (size_t)rows * (cols + 1);
        float *x = n % 5 == 4   ? few_values(&r, floats)
                   : n % 5 == 3 ? wild_floats(&r, floats)
                                : fixture_floats(&r, floats);
        uint8_t *a = fixture_bytes(&r, (size_t)rows * list),
                *b = fixture_bytes(&r, (size_t)rows * list),
                *c = fixture_bytes(&r, (size_t)rows * list);
        struct tw_kargs first = {.p = {x, a},
                                 .i = {stride, list, cols, k},
                                 .block = fixture_below(&r, 1000),
                                 .rows = rows};
        struct tw_kargs second = first;
        second.p[1] = b;
        second.block = 5000;
        check(TW_OP_TOPK, &first, 1, (size_t)rows * list, FIXTURE_EXACT, "topk");
        check(TW_OP_TOPK, &second, 1, (size_t)rows * list, FIXTURE_EXACT, "topk");
        struct tw_kargs merge = {.p = {a, b, c}, .i = {list, list, list, k}, .rows = rows};
        check(TW_OP_TOPK_MERGE, &merge, 2, (size_t)rows * list, FIXTURE_EXACT, "topk_merge");
        free(c);
        free(b);
        free(a);
        free(x);
    }
}

#define CASE(name) \
    { #name, name }
const struct kernel_case kernel_cases[KERNEL_CASES] = {
    CASE(matmul_with_float_weights),
    CASE(matmul_with_float_weights_of_any_bits),
    CASE(matmul_with_quantised_weights),
    CASE(matmul_with_hostile_quants),
    CASE(matmul_with_float_activations),
    CASE(matmul_of_many_segments),
    CASE(matmul_of_a_window),
    CASE(matmul_of_no_rows_writes_nothing),
    CASE(fold_of_any_number_of_parts),
    CASE(rms_norm_of_any_width),
    CASE(squares_and_scale_of_any_width),
    CASE(quant_of_any_floats),
    CASE(quant_k_of_any_floats),
    CASE(layer_norm_of_any_width),
    CASE(elementwise_ops_of_any_floats),
    CASE(rope_tables_and_rotations),
    CASE(attention_at_every_edge_of_a_block),
    CASE(attention_of_a_long_chunk),
    CASE(attention_at_every_edge_of_a_segment),
    CASE(attention_at_every_edge_of_a_window),
    CASE(attention_states_merge),
    CASE(gather_of_any_bits),
    CASE(moves_between_rows_and_caches),
    CASE(lists_of_the_largest),
};
