/* SPDX-License-Identifier: Apache-2.0
 *
 * The scalar kernels against plain formulas in double, derived from the meaning of the operations
 * and not from the kernels.
 */
#include "tests/support/kernel_fixture.h"
#include "tests/support/panel_layout.h"
#include "tests/support/test.h"
#include "tilewright/quants.h"

#include <math.h>

enum { SEED = 7741 };

static void assert_near(double found, double expected, double tolerance, const char *what) {
    if (!(fabs(found - expected) <= tolerance)) {
        fail_msg("%s: found %.9g, expected %.9g within %.3g", what, found, expected, tolerance);
    }
}

/* The same of the other types with blocks: that these are read from a panel as from a file is what
 * pack_test.c and quants_golden_test.c show. */
static double planes_weight(const uint8_t *panel, unsigned dtype, uint32_t cols, uint32_t lane,
                            uint32_t k) {
    uint32_t elems = tw_dtype_block_elems(dtype), from = k / 256 * 256,
             segment = cols - from < 256 ? cols - from : 256;
    struct tw_block block;
    float value[TW_SUPER_BLOCK];
    tw_block_of_panel(dtype, panel + panel_segment_at(dtype, from / 32), segment,
                      (k - from) / elems, lane, &block);
    tw_block_floats(&block, elems, value);
    return (double)value[k % elems];
}

/* Returns row n, element k of a matrix packed in panels, by the layout described in machine.h. */
static double weight(const uint8_t *w, unsigned dtype, uint32_t cols, uint32_t n, uint32_t k) {
    const uint8_t *panel = w + tw_panel_bytes(dtype, cols) * (n / 16);
    uint32_t lane = n % 16;
    if (dtype == TW_DT_F32) {
        float f;
        memcpy(&f, panel + ((size_t)k * 16 + lane) * 4, 4);
        return (double)f;
    }
    uint16_t half;
    if (dtype == TW_DT_F16 || dtype == TW_DT_BF16) {
        memcpy(&half, panel + ((size_t)k * 16 + lane) * 2, 2);
        return (double)(dtype == TW_DT_F16 ? tw_f16_to_f32(half) : tw_bf16_to_f32(half));
    }
    if (dtype != TW_DT_Q8_0 && dtype != TW_DT_Q4_0) {
        return planes_weight(panel, dtype, cols, lane, k);
    }
    memcpy(&half, panel + panel_scales_at(dtype, k / 32) + (size_t)lane * 2, 2);
    double scale = (double)tw_f16_to_f32(half);
    uint32_t i = k % 32;
    const uint8_t *quants = panel + panel_quants_at(dtype, cols, k / 32) + (size_t)lane * 4;
    if (dtype == TW_DT_Q8_0) {
        return scale * (quants[i / 4 * 64 + i % 4] - 128);
    }
    uint8_t byte = quants[i % 16 / 4 * 64 + i % 4];
    return scale * ((i < 16 ? byte & 15 : byte >> 4) - 8);
}

/* Returns element k of a row of activations. */
static double activation(unsigned dtype, const char *row, uint32_t k) {
    const struct tw_q8s *small = (const struct tw_q8s *)(const void *)row + k / 32;
    const struct tw_q8k *large = (const struct tw_q8k *)(const void *)row + k / 256;
    return dtype == TW_DT_Q8S   ? (double)small->d * small->q[k % 32]
           : dtype == TW_DT_Q8K ? (double)large->d * large->q[k % 256]
                                : (double)((const float *)(const void *)row)[k];
}

static void check_product(struct fixture_random *r, unsigned dtype, unsigned x_dtype, uint32_t k,
                          uint32_t panels, bool reload) {
    uint32_t rows = 3, cols = panels * 16, stride = (uint32_t)tw_row_bytes(x_dtype, k);
    char *x = fixture_activations(r, x_dtype, rows, k);
    uint8_t *w = fixture_panels(r, dtype, k, panels);
    float *y = fixture_floats(r, (size_t)rows * cols),
          *before = (float *)fixture_alloc((size_t)rows * cols * 4);
    memcpy(before, y, (size_t)rows * cols * 4);
    struct tw_kargs a = {
        .p = {x, w, y},
        .i = {stride, (uint32_t)tw_panel_bytes(dtype, k), dtype, k, panels, cols * 4, reload},
        .rows = rows};
    a.x_dtype = x_dtype;
    fixture_scalar(TW_OP_MATMUL, &a);
    for (uint32_t i = 0; i < rows * cols; i++) {
        double sum = reload ? (double)before[i] : 0.0, size = fabs(sum);
        for (uint32_t j = 0; j < k; j++) {
            double term = weight(w, dtype, k, i % cols, j) *
                          activation(x_dtype, x + (size_t)stride * (i / cols), j);
            sum += term;
            size += fabs(term);
        }
        assert_near((double)y[i], sum, size * k * 1.2e-7, "matmul");
    }
    free(before);
    free(y);
    free(w);
    free(x);
}

static void matmul_is_the_sum_of_products(void **state) {
    (void)state;
    struct fixture_random r = {SEED};
    for (unsigned dtype = 0; dtype < TW_DT_COUNT; dtype++) {
        uint32_t elems = tw_dtype_block_elems(dtype);
        for (uint32_t n = 1; tw_panel_bytes(dtype, 256) && n < 4; n++) {
            uint32_t k = elems > 1 ? elems * n : 17 * n;
            check_product(&r, dtype, tw_dtype_activation(dtype), k, n, n == 2);
            check_product(&r, dtype, TW_DT_F32, k, n, n == 2);
        }
    }
}

static void quant_is_within_half_a_step(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 1};
    for (int e = -110; e < 120; e++) {
        float x[32];
        struct tw_q8s q;
        double amax = 0;
        for (int i = 0; i < 32; i++) {
            x[i] = ldexpf(fixture_unit(&r), e);
            amax = fmax(amax, fabs((double)x[i]));
        }
        struct tw_kargs a = {.p = {x, &q}, .i = {128, 40, 32}, .rows = 1};
        fixture_scalar(TW_OP_QUANT, &a);
        int sum = 0;
        for (int i = 0; i < 32; i++) {
            sum += q.q[i];
            assert_near((double)q.d * q.q[i], (double)x[i], amax / 254 * 1.13,
                        "quant"); /* half a step and the scale's rounding */
        }
        assert_int_equal(sum, q.sum);
    }
}

static void quant_of_zero_tiny_and_infinite_blocks(void **state) {
    (void)state;
    float x[4][32] = {{0}, {1e-40f, -1e-39f}, {1.0f, INFINITY}, {NAN, -2.0f}};
    struct tw_q8s q[4];
    struct tw_kargs a = {.p = {x, q}, .i = {128, 40, 32}, .rows = 4};
    fixture_scalar(TW_OP_QUANT, &a);
    static const int8_t none[32];
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(q[i].q, none, 32);
        assert_int_equal(q[i].sum, 0);
    }
    assert_true(q[0].d == 0 && q[1].d == 0);
    assert_true(isnan(q[2].d) && isnan(q[3].d));
}

/* llama.cpp stores scales in half precision; so does the machine, if the half is a normal
 * number. */
static void quant_scales_are_halves_if_the_half_is_normal(void **state) {
    (void)state;
    float x[32] = {12.7f, -3.0f};
    struct tw_q8s q;
    struct tw_kargs a = {.p = {x, &q}, .i = {128, 40, 32}, .rows = 1};
    fixture_scalar(TW_OP_QUANT, &a);
    assert_true(q.d == tw_f16_to_f32(tw_f32_to_f16(12.7f / 127.0f)) && q.d != 12.7f / 127.0f);
    assert_int_equal(q.q[0], 127);
    assert_int_equal(q.q[1], -30);
    x[0] = 1e-3f;
    x[1] = 0;
    fixture_scalar(TW_OP_QUANT, &a);
    assert_true(q.d == 1e-3f / 127.0f);
    x[0] = 1e9f;
    fixture_scalar(TW_OP_QUANT, &a);
    assert_true(q.d == 1e9f / 127.0f);
}

static void rms_norm_and_elementwise_ops_match_their_formulas(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 2};
    enum { COLS = 45 };
    float *x = fixture_floats(&r, COLS), *w = fixture_floats(&r, COLS), y[COLS];
    double squares = 0;
    for (int i = 0; i < COLS; i++) {
        x[i] *= 8;
        squares += (double)x[i] * (double)x[i];
    }
    struct tw_kargs norm = {
        .p = {x, w, y}, .i = {4 * COLS, 4 * COLS, COLS}, .f = {1e-3f}, .rows = 1};
    fixture_scalar(TW_OP_RMS_NORM, &norm);
    for (int i = 0; i < COLS; i++) {
        double expected = (double)x[i] / sqrt(squares / COLS + (double)1e-3f) * (double)w[i];
        assert_near((double)y[i], expected, 1e-6 * fabs(expected), "rms_norm");
    }
    struct tw_kargs two = {.p = {x, w, y}, .i = {4 * COLS, 4 * COLS, 4 * COLS, COLS}, .rows = 1};
    fixture_scalar(TW_OP_SILU_MUL, &two);
    for (int i = 0; i < COLS; i++) {
        double expected = (double)x[i] / (1 + exp(-(double)x[i])) * (double)w[i];
        assert_near((double)y[i], expected, 4e-7 * fabs(expected), "silu_mul");
    }
    fixture_scalar(TW_OP_ADD, &two);
    for (int i = 0; i < COLS; i++) {
        assert_true(y[i] == x[i] + w[i]);
    }
    free(w);
    free(x);
}

static double plain_gelu(double x) {
    return x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static void layer_norm_matches_its_formula(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 7};
    enum { COLS = 611 };
    float *x = fixture_floats(&r, COLS), *w = fixture_floats(&r, COLS),
          *b = fixture_floats(&r, COLS), y[COLS];
    double mean = 0, squares = 0;
    for (int i = 0; i < COLS; i++) {
        x[i] += 3;
        mean += (double)x[i] / COLS;
    }
    for (int i = 0; i < COLS; i++) {
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    }
    struct tw_kargs a = {
        .p = {x, w, b, y}, .i = {4 * COLS, 4 * COLS, COLS}, .f = {1e-3f}, .rows = 1};
    fixture_scalar(TW_OP_LAYER_NORM, &a);
    for (int i = 0; i < COLS; i++) {
        double expected =
            ((double)x[i] - mean) / sqrt(squares / COLS + (double)1e-3f) * (double)w[i] +
            (double)b[i];
        assert_near((double)y[i], expected, 2e-6, "layer_norm");
    }
    free(b);
    free(w);
    free(x);
}

static void activations_and_factors_match_their_formulas(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 8};
    enum { COLS = 4000 };
    float *x = fixture_floats(&r, COLS), *w = fixture_floats(&r, COLS),
          *y = fixture_floats(&r, COLS);
    for (int i = 0; i < COLS; i++) {
        x[i] *= ldexpf(1.0f, i % 12 - 8);
    }
    struct tw_kargs two = {.p = {x, w, y}, .i = {4 * COLS, 4 * COLS, 4 * COLS, COLS}, .rows = 1};
    fixture_scalar(TW_OP_GELU_MUL, &two);
    for (int i = 0; i < COLS; i++) {
        double expected = plain_gelu((double)x[i]) * (double)w[i];
        assert_near((double)y[i], expected, 8e-6 * fabs(expected) + 1e-9, "gelu_mul");
    }
    struct tw_kargs one = {.p = {x, y}, .i = {4 * COLS, 4 * COLS, COLS}, .f = {2.5f}, .rows = 1};
    fixture_scalar(TW_OP_GELU, &one);
    for (int i = 0; i < COLS; i++) {
        double expected = plain_gelu((double)x[i]);
        assert_near((double)y[i], expected, 8e-6 * fabs(expected) + 1e-9, "gelu");
    }
    fixture_scalar(TW_OP_SCALE, &one);
    for (int i = 0; i < COLS; i++) {
        assert_true(y[i] == x[i] * 2.5f);
    }
    fixture_scalar(TW_OP_SOFT_CAP, &one);
    for (int i = 0; i < COLS; i++) {
        double expected = 2.5 * tanh((double)x[i] / 2.5);
        assert_near((double)y[i], expected, 4e-7 * fabs(expected), "soft_cap");
    }
    free(y);
    free(w);
    free(x);
}

static void pos_scale_takes_the_factor_of_each_period(void **state) {
    (void)state;
    enum { ROWS = 9, COLS = 3 };
    float x[ROWS * COLS], factors[] = {2, 3, 5}, y[ROWS * COLS];
    static const float expected[ROWS] = {2, 3, 3, 3, 3, 5, 5, 5, 5};
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = (float)(1 + i);
    }
    struct tw_kargs a = {.p = {x, factors, y},
                         .i = {4 * COLS, 4 * COLS, COLS, 3, 4},
                         .pos = 3,
                         .rows = ROWS}; /* positions 3 to 11, of which 8 on have the last factor */
    fixture_scalar(TW_OP_POS_SCALE, &a);
    for (int i = 0; i < ROWS * COLS; i++) {
        assert_true(y[i] == x[i] * expected[i / COLS]);
    }
}

static void check_rotation(const float *x, const float *y, uint32_t i0, uint32_t i1, double angle) {
    double c = cos(angle), s = sin(angle), a = (double)x[i0], b = (double)x[i1];
    assert_near((double)y[i0], a * c - b * s, 4e-7, "rope");
    assert_near((double)y[i1], a * s + b * c, 4e-7, "rope");
}

static void rope_rotates_pairs_by_position_times_frequency(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 3};
    enum { HALF = 5, DIM = 13, HEADS = 2, ROWS = 3, POS = 1234 };
    float freq[HALF], cs[ROWS][2 * HALF], *before = fixture_floats(&r, ROWS * HEADS * DIM);
    for (int i = 0; i < HALF; i++) {
        freq[i] = powf(10000.0f, (float)-i / HALF);
    }
    struct tw_kargs table = {.p = {freq, cs}, .i = {sizeof cs[0], HALF}, .pos = POS, .rows = ROWS};
    fixture_scalar(TW_OP_ROPE_TABLE, &table);
    for (uint32_t mode = 0; mode < 2; mode++) {
        float y[ROWS * HEADS * DIM];
        memcpy(y, before, sizeof y);
        struct tw_kargs a = {.p = {y, cs},
                             .i = {HEADS * DIM * 4, sizeof cs[0], HEADS, DIM, 2 * HALF, mode}};
        a.rows = ROWS;
        fixture_scalar(TW_OP_ROPE, &a);
        for (uint32_t n = 0; n < ROWS * HEADS; n++) {
            for (uint32_t i = 0; i < HALF; i++) {
                uint32_t i0 = mode ? i : 2 * i, i1 = mode ? i + HALF : 2 * i + 1;
                check_rotation(before + n * DIM, y + n * DIM, i0, i1,
                               (double)(POS + n / HEADS) * (double)freq[i]);
            }
            assert_memory_equal(y + n * DIM + 2 * HALF, before + n * DIM + 2 * HALF,
                                (DIM - 2 * HALF) * 4);
        }
    }
    free(before);
}

/* ---- attention over several blocks, from init to done ---- */

enum { DIM = 10, HEADS = 3, BLOCKS = 3, ROWS = 5 };

static double score(const float *q, const float *keys, uint32_t j, double scale) {
    double s = 0;
    for (uint32_t d = 0; d < DIM; d++) {
        s += (double)q[d] * (double)keys[((size_t)(j / 16) * DIM + d) * 16 + j % 16];
    }
    return s * scale;
}

struct attention {
    uint32_t pos, window; /* window 0: ATTN_STEP */
    float scale, cap;
};

static double capped_score(const float *q, const float *keys, uint32_t j,
                           const struct attention *a) {
    double s = score(q, keys, j, (double)a->scale);
    return a->cap != 0.0f ? (double)a->cap * tanh(s / (double)a->cap) : s;
}

/* Computes one query's attention over positions first .. last directly. */
static void plain_attention(const float *q, const float *keys, const float *values, uint32_t last,
                            const struct attention *a, double *o) {
    uint32_t first = a->window && last >= a->window ? last - a->window + 1 : 0;
    double high = -INFINITY, l = 0;
    for (uint32_t j = first; j <= last; j++) {
        high = fmax(high, capped_score(q, keys, j, a));
    }
    memset(o, 0, DIM * sizeof *o);
    for (uint32_t j = first; j <= last; j++) {
        double p = exp(capped_score(q, keys, j, a) - high);
        l += p;
        for (uint32_t d = 0; d < DIM; d++) {
            o[d] += p * (double)values[(size_t)j * DIM + d];
        }
    }
    for (uint32_t d = 0; d < DIM; d++) {
        o[d] /= l;
    }
}

static void check_attention(const struct attention *of) {
    uint32_t pos = of->pos;
    struct fixture_random r = {SEED + 4 + pos};
    float *q = fixture_floats(&r, ROWS * HEADS * DIM),
          *keys = fixture_floats(&r, BLOCKS * 64 * DIM);
    float *values = fixture_floats(&r, BLOCKS * 64 * DIM), s[ROWS * HEADS * (DIM + 2)],
          y[ROWS * HEADS * DIM];
    struct tw_kargs init = {.p = {s}, .i = {HEADS, DIM}, .rows = ROWS};
    fixture_scalar(TW_OP_ATTN_INIT, &init);
    for (uint32_t b = 0; b <= (pos + ROWS - 1) / 64; b++) {
        size_t at = (size_t)b * 64 * DIM;
        struct tw_kargs a = {
            .p = {q, keys + at, values + at, s},
            .i = {HEADS * DIM * 4, TW_DT_F32, HEADS, 0, HEADS, 1, 0, DIM, of->window},
            .f = {of->scale, of->cap}};
        a.block = b;
        a.pos = pos;
        a.rows = ROWS;
        fixture_scalar(of->window ? TW_OP_ATTN_WINDOW : TW_OP_ATTN_STEP, &a);
    }
    struct tw_kargs done = {.p = {s, y}, .i = {1, HEADS * DIM * 4, HEADS, DIM}, .rows = ROWS};
    fixture_scalar(TW_OP_ATTN_DONE, &done);
    for (uint32_t n = 0; n < ROWS * HEADS; n++) {
        double o[DIM];
        plain_attention(q + (size_t)n * DIM, keys, values, pos + n / HEADS, of, o);
        for (uint32_t d = 0; d < DIM; d++) {
            assert_near((double)y[n * DIM + d], o[d], 2e-5, "attention");
        }
    }
    free(values);
    free(keys);
    free(q);
}

static void attention_is_softmax_over_the_visible_positions(void **state) {
    (void)state;
    static const uint32_t positions[] = {0, 1, 15, 60, 63, 64, 100, 127, 128, 187};
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        check_attention(&(struct attention){positions[i], 0, 0.3f, 0});
        check_attention(&(struct attention){positions[i], 0, 40.0f, 0});
    }
}

static void attention_sees_its_window_and_caps_its_scores(void **state) {
    (void)state;
    static const uint32_t positions[] = {0, 1, 15, 60, 63, 64, 100, 127, 128, 187},
                          windows[] = {1, 7, 64, 100, 0x7FFFFFFF};
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
            check_attention(&(struct attention){positions[i], windows[w], 0.3f, 0});
            check_attention(&(struct attention){positions[i], windows[w], 40.0f, 50.0f});
        }
    }
}

/* ---- the order of a long sum ---- */

enum { LONG = 4096, LONG_DIM = 16 };

/* Scores that are exact: q is (1, 0, ...), so that s_j = k[j][0]. They rise, fall or are all equal,
 * so that the maximum moves in every block, in the first only, or never. */
static float long_score(int shape, uint32_t j) {
    return shape == 0 ? 0.0f : (shape == 1 ? 1.0f : -1.0f) * (float)j / 1024.0f;
}

/* Stores attention over LONG positions, by segments or (one state of one segment takes any number
 * of blocks) by one chain. */
static void long_attention(const float *keys, const float *values, bool segments, float *y) {
    uint32_t n = segments ? 2 : 1;
    float q[LONG_DIM] = {1.0f}, s[2 * (LONG_DIM + 2)];
    struct tw_kargs init = {.p = {s}, .i = {n, LONG_DIM}, .rows = 1};
    fixture_scalar(TW_OP_ATTN_INIT, &init);
    for (uint32_t b = 0; b < LONG / 64; b++) {
        size_t at = (size_t)b * 64 * LONG_DIM;
        struct tw_kargs a = {
            .p = {q, (void *)(uintptr_t)(keys + at), (void *)(uintptr_t)(values + at), s},
            .i = {LONG_DIM * 4, TW_DT_F32, 1, 0, 1, n, 0, LONG_DIM}};
        a.f[0] = 1.0f;
        a.block = b;
        a.pos = LONG - 1;
        a.rows = 1;
        fixture_scalar(TW_OP_ATTN_STEP, &a);
    }
    struct tw_kargs done = {.p = {s, y}, .i = {n, LONG_DIM * 4, 1, LONG_DIM}, .rows = 1};
    fixture_scalar(TW_OP_ATTN_DONE, &done);
}

/* Returns the largest error relative to sum(p |v|) / l, in units of 2^-24. */
static double long_error(const float *keys, const float *values, int shape, bool segments) {
    float y[LONG_DIM];
    double worst = 0;
    long_attention(keys, values, segments, y);
    for (uint32_t d = 0; d < LONG_DIM; d++) {
        double high = (double)long_score(shape, shape == 1 ? LONG - 1 : 0), l = 0, o = 0, size = 0;
        for (uint32_t j = 0; j < LONG; j++) {
            double p = exp((double)long_score(shape, j) - high),
                   v = (double)values[(size_t)j * LONG_DIM + d];
            l += p;
            o += p * v;
            size += p * fabs(v);
        }
        worst = fmax(worst, fabs((double)y[d] - o / l) / (size / l) * 0x1p24);
    }
    return worst;
}

/* The bound that numerics.h states, for o and l, and the exponentials of the p_j. */
static void a_long_sum_by_segments_is_within_its_bound(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 9};
    double bound = 512 + 8 * 2.44 + 3.44 * (LONG / 512.0), chain = 0, segments = 0;
    float *keys = fixture_floats(&r, (size_t)LONG * LONG_DIM),
          *values = fixture_floats(&r, (size_t)LONG * LONG_DIM);
    for (int shape = 0; shape < 3; shape++) {
        for (uint32_t j = 0; j < LONG; j++) {
            keys[(size_t)(j / 16) * LONG_DIM * 16 + j % 16] = long_score(shape, j);
            for (uint32_t d = 0; d < LONG_DIM; d++) { /* of one sign: nothing cancels */
                values[(size_t)j * LONG_DIM + d] = fabsf(values[(size_t)j * LONG_DIM + d]);
            }
        }
        double error = long_error(keys, values, shape, true);
        assert_true(error <= 2 * bound);
        segments = fmax(segments, error);
        chain = fmax(chain, long_error(keys, values, shape, false));
    }
    printf("%d positions: error %.1f of 2^-24 by segments, %.1f by one chain\n", LONG, segments,
           chain);
    assert_true(segments < chain);
    free(values);
    free(keys);
}

/* To merge an empty state changes no bit, not even the sign of a zero, whichever side it is on. */
static void merging_an_empty_state_is_the_identity(void **state) {
    (void)state;
    float some[6] = {-3.5f, 1.25f, -0.0f, 0.0f, 1e-44f, 7.0f}, empty[6] = {-INFINITY}, a[6], b[6];
    struct tw_kargs args = {.p = {empty, a}, .i = {24, 24, 1, 4}, .rows = 1};
    memcpy(a, some, sizeof a);
    fixture_scalar(TW_OP_ATTN_MERGE, &args);
    assert_memory_equal(a, some, sizeof some);
    memcpy(b, empty, sizeof b);
    args.p[0] = some;
    args.p[1] = b;
    fixture_scalar(TW_OP_ATTN_MERGE, &args);
    assert_memory_equal(b, some, sizeof some);
    args.p[0] = empty;
    memcpy(a, empty, sizeof a);
    args.p[1] = a;
    fixture_scalar(TW_OP_ATTN_MERGE, &args);
    assert_memory_equal(a, empty, sizeof empty);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_is_the_sum_of_products),
        cmocka_unit_test(quant_is_within_half_a_step),
        cmocka_unit_test(quant_of_zero_tiny_and_infinite_blocks),
        cmocka_unit_test(quant_scales_are_halves_if_the_half_is_normal),
        cmocka_unit_test(rms_norm_and_elementwise_ops_match_their_formulas),
        cmocka_unit_test(layer_norm_matches_its_formula),
        cmocka_unit_test(activations_and_factors_match_their_formulas),
        cmocka_unit_test(pos_scale_takes_the_factor_of_each_period),
        cmocka_unit_test(attention_sees_its_window_and_caps_its_scores),
        cmocka_unit_test(rope_rotates_pairs_by_position_times_frequency),
        cmocka_unit_test(attention_is_softmax_over_the_visible_positions),
        cmocka_unit_test(a_long_sum_by_segments_is_within_its_bound),
        cmocka_unit_test(merging_an_empty_state_is_the_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
