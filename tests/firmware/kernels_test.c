/* SPDX-License-Identifier: Apache-2.0
 * Every kernel of every instruction set of this processor gives the scalar kernel's bits. */
#include "tests/support/kernel_fixture.h"
#include "tilewright/numerics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 20240611 };

static const unsigned float_dtypes[] = {TW_DT_F32, TW_DT_F16, TW_DT_BF16}, quant_dtypes[] = {TW_DT_Q8_0, TW_DT_Q4_0};

/* ---- the tables ---------------------------------------------------------------------------------- */

static void every_table_has_every_data_op_and_no_control_op(void **state) {
    (void)state;
    for (int isa = 0; isa < TW_ISA_COUNT; isa++) {
        const struct tw_kernel_table *t = tw_kernel_table((enum tw_isa)isa);
        for (uint32_t op = 0; t && op < TW_OP_LIMIT; op++) {
            bool data = tw_op_info(op).name && ((op >= TW_OP_READ && op <= TW_OP_MCAST) || op >= TW_OP_RMS_NORM);
            if (data != (t->fn[op] != NULL)) {
                fail_msg("%s: op %u", t->name, op);
            }
        }
    }
    assert_non_null(tw_kernel_table(TW_ISA_SCALAR));
    assert_null(tw_kernel_table(TW_ISA_COUNT));
}

static void the_best_table_is_the_last_one_the_processor_has(void **state) {
    (void)state;
    const struct tw_kernel_table *best = NULL;
    for (int isa = 0; isa < TW_ISA_COUNT; isa++) {
        const struct tw_kernel_table *t = tw_kernel_table((enum tw_isa)isa);
        best = t ? t : best;
    }
    assert_ptr_equal(tw_kernel_table_best(), best);
    print_message("best: %s\n", best->name);
}

/* ---- matmul -------------------------------------------------------------------------------------- */

struct shape {
    uint32_t k, panels, rows, reload;
};

static void check_matmul(struct fixture_random *r, unsigned dtype, struct shape s, void *x, uint32_t x_stride,
                         uint8_t *w, const char *note) {
    uint32_t y_stride = (s.panels * 16 + 4) * 4; /* four floats between rows, which nobody may touch */
    size_t y_floats = (size_t)s.rows * (y_stride / 4);
    float *y = fixture_floats(r, y_floats);
    struct tw_kargs a = {.p = {x, w, y}, .i = {x_stride, dtype, s.k, s.panels, y_stride, s.reload}, .rows = s.rows};
    a.x_dtype = tw_dtype_block_elems(dtype) > 1 ? TW_DT_Q8S : TW_DT_F32;
    char what[120];
    snprintf(what, sizeof what, "matmul %s%s k %u, %u panels, %u rows, reload %u", tw_dtype_name(dtype), note, s.k,
             s.panels, s.rows, s.reload);
    fixture_same_bits(TW_OP_MATMUL, &a, 2, y_floats * 4, FIXTURE_FLOATS, what);
    free(y);
}

/* Every number of rows around the tiles' sizes, then any. */
static struct shape some_shape(struct fixture_random *r, uint32_t n, uint32_t unit, uint32_t most_units) {
    struct shape s = {unit * (1 + fixture_below(r, most_units)), 1 + fixture_below(r, 9), 0, fixture_below(r, 2)};
    s.rows = n < 26 ? n + 1 : 1 + fixture_below(r, 130);
    return s;
}

static void matmul_with_float_weights(void **state) {
    (void)state;
    struct fixture_random r = {SEED};
    for (uint32_t n = 0; n < 40; n++) {
        struct shape s = some_shape(&r, n, 1, 70);
        unsigned dtype = float_dtypes[n % 3];
        uint32_t stride = (s.k + fixture_below(&r, 3)) * 4;
        float *x = fixture_floats(&r, (size_t)s.rows * (stride / 4));
        uint8_t *w = fixture_panels(&r, dtype, s.k, s.panels);
        check_matmul(&r, dtype, s, x, stride, w, "");
        free(w);
        free(x);
    }
}

static void matmul_with_float_weights_of_any_bits(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 1};
    for (uint32_t n = 0; n < 12; n++) {
        struct shape s = {1 + fixture_below(&r, 3), 3, 1 + n, 0};
        unsigned dtype = float_dtypes[n % 3];
        float *x = (float *)(void *)fixture_bytes(&r, (size_t)s.rows * s.k * 4);
        uint8_t *w = fixture_bytes(&r, (size_t)tw_panel_bytes(dtype, s.k) * s.panels);
        check_matmul(&r, dtype, s, x, s.k * 4, w, " any bits");
        free(w);
        free(x);
    }
}

static void matmul_with_quantised_weights(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 2};
    for (uint32_t n = 0; n < 40; n++) {
        struct shape s = some_shape(&r, n, 32, 4);
        unsigned dtype = quant_dtypes[n % 2];
        uint8_t *w = fixture_panels(&r, dtype, s.k, s.panels);
        void *x = fixture_q8s(&r, s.rows, s.k);
        check_matmul(&r, dtype, s, x, s.k / 32 * 40, w, "");
        free(x);
        free(w);
    }
}

/* Scales of any bits, quants of -128, block sums that do not belong to the quants: no different result, no undefined
 * behaviour. */
static void matmul_with_hostile_quants(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 3};
    for (uint32_t n = 0; n < 30; n++) {
        struct shape s = {32 * (1 + fixture_below(&r, 2)), 1 + fixture_below(&r, 5), 1 + fixture_below(&r, 9),
                          n % 3 == 0};
        unsigned dtype = quant_dtypes[n % 2];
        size_t w_bytes = (size_t)tw_panel_bytes(dtype, s.k) * s.panels, x_bytes = (size_t)s.rows * (s.k / 32) * 40;
        uint8_t *w = fixture_bytes(&r, w_bytes), *x = fixture_bytes(&r, x_bytes);
        if (n % 5 == 0) { /* the largest magnitudes, all at once */
            memset(w, n % 2 ? 0xFF : 0x00, (size_t)tw_panel_scales_offset(dtype, s.k));
            memset(x, 0x80, x_bytes);
        }
        check_matmul(&r, dtype, s, x, s.k / 32 * 40, w, " hostile");
        free(x);
        free(w);
    }
}

static void matmul_of_no_rows_writes_nothing(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 4};
    struct shape s = {32, 2, 0, 0};
    for (unsigned dtype = 0; dtype < TW_DT_COUNT; dtype++) {
        if (tw_panel_bytes(dtype, 32)) {
            uint8_t *w = fixture_panels(&r, dtype, 32, 2);
            check_matmul(&r, dtype, s, NULL, 40, w, "");
            free(w);
        }
    }
}

/* A chunk of rows and its rows one by one: the same bits. */
static void matmul_does_not_depend_on_the_chunk(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 5};
    enum { ROWS = 23, K = 64, PANELS = 3, COLS = 16 * PANELS };
    for (unsigned dtype = 0; dtype < TW_DT_COUNT; dtype++) {
        if (tw_panel_bytes(dtype, K) == 0) {
            continue;
        }
        bool quantised = tw_dtype_block_elems(dtype) > 1;
        char *x = quantised ? fixture_q8s(&r, ROWS, K) : (void *)fixture_floats(&r, ROWS * K);
        uint32_t stride = quantised ? K / 32 * 40 : K * 4;
        uint8_t *w = fixture_panels(&r, dtype, K, PANELS);
        float chunk[ROWS][COLS], single[ROWS][COLS];
        struct tw_kargs a = {.p = {x, w, chunk}, .i = {stride, dtype, K, PANELS, COLS * 4, 0}, .rows = ROWS};
        a.x_dtype = quantised ? TW_DT_Q8S : TW_DT_F32;
        tw_kernel_table_best()->fn[TW_OP_MATMUL](&a);
        a.rows = 1;
        for (uint32_t row = 0; row < ROWS; row++) {
            a.p[0] = x + (size_t)stride * row;
            a.p[2] = single[row];
            tw_kernel_table_best()->fn[TW_OP_MATMUL](&a);
        }
        assert_memory_equal(chunk, single, sizeof chunk);
        free(w);
        free(x);
    }
}

/* ---- rows ---------------------------------------------------------------------------------------- */

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

static void rms_norm_of_any_width(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 6};
    for (uint32_t cols = 1; cols < 70; cols += 1 + cols / 20) {
        uint32_t rows = 1 + fixture_below(&r, 4), stride = (cols + 3) * 4;
        float *x =
            cols % 5 ? fixture_floats(&r, (size_t)rows * (cols + 3)) : wild_floats(&r, (size_t)rows * (cols + 3));
        float *w = fixture_floats(&r, cols), *y = fixture_floats(&r, (size_t)rows * (cols + 3));
        struct tw_kargs a = {.p = {x, w, y}, .i = {stride, stride, cols}, .f = 1e-5f, .rows = rows};
        fixture_same_bits(TW_OP_RMS_NORM, &a, 2, (size_t)rows * stride, FIXTURE_FLOATS, "rms_norm");
        free(y);
        free(w);
        free(x);
    }
}

static void quant_of_any_floats(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 7};
    for (uint32_t n = 0; n < 60; n++) {
        uint32_t blocks = 1 + fixture_below(&r, 4), rows = 1 + fixture_below(&r, 3), cols = blocks * 32;
        float *x = n % 2 ? wild_floats(&r, (size_t)rows * cols) : fixture_floats(&r, (size_t)rows * cols);
        float scale = ldexpf(1.0f, (int)fixture_below(&r, 250) - 125);
        for (size_t i = 0; n % 3 == 0 && i < (size_t)rows * cols; i++) {
            x[i] *= scale;
        }
        uint8_t *y = fixture_bytes(&r, (size_t)rows * blocks * 40);
        struct tw_kargs a = {.p = {x, y}, .i = {cols * 4, blocks * 40, cols}, .rows = rows};
        fixture_same_bits(TW_OP_QUANT, &a, 1, (size_t)rows * blocks * 40, FIXTURE_EXACT, "quant");
        free(y);
        free(x);
    }
}

static void add_and_silu_mul_of_any_floats(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 8};
    for (uint32_t cols = 1; cols < 300; cols += 1 + cols / 8) {
        uint32_t rows = 1 + fixture_below(&r, 3), stride = (cols + 1) * 4;
        float *x = wild_floats(&r, (size_t)rows * (cols + 1)), *y = wild_floats(&r, (size_t)rows * (cols + 1));
        float *z = fixture_floats(&r, (size_t)rows * (cols + 1));
        struct tw_kargs a = {.p = {x, y, z}, .i = {stride, stride, stride, cols}, .rows = rows};
        fixture_same_bits(TW_OP_ADD, &a, 2, (size_t)rows * stride, FIXTURE_FLOATS, "add");
        fixture_same_bits(TW_OP_SILU_MUL, &a, 2, (size_t)rows * stride, FIXTURE_FLOATS, "silu_mul");
        free(z);
        free(y);
        free(x);
    }
}

static void rope_tables_and_rotations(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 9};
    for (uint32_t n = 0; n < 60; n++) {
        uint32_t half = 1 + fixture_below(&r, 50), head_dim = 2 * half + fixture_below(&r, 5), heads = 1 + n % 3;
        uint32_t rows = 1 + fixture_below(&r, 4), cs_floats = 2 * half + 1, x_floats = heads * head_dim + 2;
        float *freq = n % 7 ? fixture_floats(&r, half) : wild_floats(&r, half);
        float *cs = fixture_floats(&r, (size_t)rows * cs_floats), *x = fixture_floats(&r, (size_t)rows * x_floats);
        struct tw_kargs table = {.p = {freq, cs}, .i = {cs_floats * 4, half}, .rows = rows};
        table.pos = n % 2 ? fixture_below(&r, 4096) : fixture_next(&r);
        fixture_same_bits(TW_OP_ROPE_TABLE, &table, 1, (size_t)rows * cs_floats * 4, FIXTURE_FLOATS, "rope_table");
        struct tw_kargs a = {.p = {x, cs}, .i = {x_floats * 4, cs_floats * 4, heads, head_dim, 2 * half, n / 2 % 2}};
        a.rows = rows;
        fixture_same_bits(TW_OP_ROPE, &a, 0, (size_t)rows * x_floats * 4, FIXTURE_FLOATS, "rope");
        free(x);
        free(cs);
        free(freq);
    }
}

/* ---- attention ----------------------------------------------------------------------------------- */

struct attention_case {
    uint32_t heads, first, state_heads, head_dim, block, pos, rows;
    bool wild;
};

/* Keys and values of positions that the last row does not see are NaN: stale memory must not be felt. */
static void stale(float *keys, float *values, const struct attention_case *c) {
    int64_t seen = (int64_t)c->pos + c->rows - (int64_t)c->block * 64;
    for (int64_t j = seen < 0 ? 0 : seen; j < 64; j++) {
        for (uint32_t d = 0; d < c->head_dim; d++) {
            keys[((size_t)(j / 16) * c->head_dim + d) * 16 + (size_t)(j % 16)] = NAN;
            values[(size_t)j * c->head_dim + d] = NAN;
        }
    }
}

static void check_attention(struct fixture_random *r, const struct attention_case *c) {
    uint32_t q_floats = c->heads * c->head_dim + 3;
    size_t state_floats = (size_t)c->rows * c->state_heads * (c->head_dim + 2), kv = (size_t)64 * c->head_dim;
    float *q = fixture_floats(r, (size_t)c->rows * q_floats), *keys = fixture_floats(r, kv);
    for (size_t i = 0; c->wild && i < kv; i += 1 + fixture_below(r, 200)) {
        keys[i] = fixture_below(r, 2) ? NAN : INFINITY; /* some positions that are seen */
    }
    float *values = c->wild ? wild_floats(r, kv) : fixture_floats(r, kv), *s = fixture_floats(r, state_floats);
    stale(keys, values, c);
    struct tw_kargs init = {.p = {s}, .i = {c->state_heads, c->head_dim}, .rows = c->rows};
    if (fixture_below(r, 2)) {
        fixture_same_bits(TW_OP_ATTN_INIT, &init, 0, state_floats * 4, FIXTURE_EXACT, "attn_init");
    }
    struct tw_kargs a = {.p = {q, keys, values, s}, .block = c->block, .pos = c->pos, .rows = c->rows};
    uint32_t imms[] = {q_floats * 4, c->heads, c->first, c->state_heads, c->head_dim};
    memcpy(a.i, imms, sizeof imms);
    a.f = c->wild ? 30.0f : 0.25f;
    char what[140];
    snprintf(what, sizeof what, "attn_step heads %u of %u, dim %u, block %u, pos %u, rows %u", c->heads, c->state_heads,
             c->head_dim, c->block, c->pos, c->rows);
    fixture_same_bits(TW_OP_ATTN_STEP, &a, 3, state_floats * 4, FIXTURE_FLOATS, what);
    uint32_t y_floats = c->state_heads * c->head_dim + 1;
    float *y = fixture_floats(r, (size_t)c->rows * y_floats);
    struct tw_kargs done = {.p = {s, y}, .i = {y_floats * 4, c->state_heads, c->head_dim}, .rows = c->rows};
    fixture_same_bits(TW_OP_ATTN_DONE, &done, 1, (size_t)c->rows * y_floats * 4, FIXTURE_FLOATS, "attn_done");
    free(y);
    free(s);
    free(values);
    free(keys);
    free(q);
}

static void attention_at_every_edge_of_a_block(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 10};
    static const uint32_t dims[] = {8, 48, 64, 16, 20, 1, 33, 128, 80};
    static const uint32_t edges[] = {0,  1,  14, 15, 16,  17,  31,  32,  47,  48,
                                     62, 63, 64, 65, 100, 127, 128, 129, 191, 192};
    for (uint32_t n = 0; n < 4 * (sizeof edges / sizeof *edges); n++) {
        uint32_t first = fixture_below(&r, 3);
        struct attention_case c = {.heads = 1 + fixture_below(&r, 5), .first = first, .head_dim = dims[n % 9]};
        c.state_heads = first + c.heads + fixture_below(&r, 2);
        c.block = fixture_below(&r, 3);
        c.pos = edges[n % (sizeof edges / sizeof *edges)];
        c.rows = n % 4 ? 1 + fixture_below(&r, 9) : 1;
        c.wild = n % 5 == 4;
        check_attention(&r, &c);
    }
}

static void attention_of_a_long_chunk(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 11};
    for (uint32_t block = 0; block < 3; block++) {
        struct attention_case c = {2, 0, 2, 24, block, 7, 130, false};
        check_attention(&r, &c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_has_every_data_op_and_no_control_op),
        cmocka_unit_test(the_best_table_is_the_last_one_the_processor_has),
        cmocka_unit_test(matmul_with_float_weights),
        cmocka_unit_test(matmul_with_float_weights_of_any_bits),
        cmocka_unit_test(matmul_with_quantised_weights),
        cmocka_unit_test(matmul_with_hostile_quants),
        cmocka_unit_test(matmul_of_no_rows_writes_nothing),
        cmocka_unit_test(matmul_does_not_depend_on_the_chunk),
        cmocka_unit_test(rms_norm_of_any_width),
        cmocka_unit_test(quant_of_any_floats),
        cmocka_unit_test(add_and_silu_mul_of_any_floats),
        cmocka_unit_test(rope_tables_and_rotations),
        cmocka_unit_test(attention_at_every_edge_of_a_block),
        cmocka_unit_test(attention_of_a_long_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
