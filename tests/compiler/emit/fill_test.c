/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed weights: the whole has every element where the machine's definition puts it, and pieces of
 * any size, in any order, are equal to the same part of the whole.
 */
#include "compiler/emit/fill.h"
#include "compiler/graph/dequant.h"
#include "compiler/graph/quantise.h"
#include "tests/support/compile_stages.h"
#include "tests/support/panel_layout.h"
#include "tests/support/test.h"

struct world {
    struct random_model model;
    struct pipeline p;
};

static const enum tw_dtype dtypes[] = {TW_DT_F32, TW_DT_F16, TW_DT_BF16, TW_DT_Q8_0, TW_DT_Q4_0};

/* TW_DT_COUNT: converted to nothing. */
static void open_converted(struct world *w, enum tw_dtype dtype, bool mixed, enum tw_dtype to) {
    struct random_shape shape = {.dim = 64,
                                 .hidden = 160,
                                 .n_layers = 3,
                                 .n_heads = 5,
                                 .n_kv_heads = 1,
                                 .head_dim = 32,
                                 .n_vocab = 35,
                                 .n_ctx = 8,
                                 .dtype = dtype,
                                 .mixed = mixed,
                                 .seed = dtype};
    tw_error err = {0};
    assert_true(random_model_init(&w->model, &shape));
    if (to != TW_DT_COUNT) {
        tw_model_convert(&w->model.model, to);
    }
    if (pipeline_init(&w->p, &w->model.model, "sim4x4", 0, &err)) {
        fail_msg("%s", err.message);
    }
}

static void open_world(struct world *w, enum tw_dtype dtype, bool mixed) {
    open_converted(w, dtype, mixed, TW_DT_COUNT);
}

static void close_world(struct world *w) {
    pipeline_finish(&w->p);
    random_model_finish(&w->model);
}

static uint64_t packed_bytes(const struct tw_gvalue *v) {
    return v->packing == TW_PACK_ROW ? (uint64_t)v->cols * 4
                                     : tw_panels(v->rows) * tw_panel_bytes(v->dtype, v->cols);
}

/* Returns room at an address that is a multiple of 64, plus `shift`, with guard bytes after it. The
 * caller frees *base. */
static uint8_t *room(uint64_t bytes, size_t shift, uint8_t **base) {
    *base = aligned_alloc(64, (bytes + shift + 64 + 63) / 64 * 64);
    assert_non_null(*base);
    memset(*base, 0xEE, bytes + shift + 64);
    return *base + shift;
}

static uint8_t *fill_whole(struct world *w, const struct tw_gvalue *v, uint32_t instance,
                           uint8_t **base) {
    struct tw_filler f = {.mem = &w->p.mem};
    struct tw_fill_source source = {v, instance};
    uint64_t bytes = packed_bytes(v);
    uint8_t *whole = room(bytes, 0, base);
    assert_int_equal(tw_fill(&f, &source, 0, bytes, whole, NULL), 0);
    assert_int_equal(whole[bytes], 0xEE);
    return whole;
}

static void each_weight(struct world *w, void (*check)(struct world *w, const struct tw_gvalue *v,
                                                       uint32_t instance)) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->p.graph.values.n; i++) {
        const struct tw_gvalue *v = &w->p.graph.values.items[i];
        for (uint32_t k = 0; v->kind == TW_GV_WEIGHT && k < v->instances; k++) {
            check(w, v, k);
            n++;
        }
    }
    assert_int_equal(n, 4 + 9 * 3); /* embedding, norm, output, frequencies; three layers */
}

/* ---- whole weights ---- */

/* Element (row, k) of a panel-packed matrix, by the definition in machine.h. */
static float panel_element(const struct tw_gvalue *v, const uint8_t *packed, uint32_t row,
                           uint32_t k) {
    const uint8_t *panel = packed + row / 16 * tw_panel_bytes(v->dtype, v->cols);
    uint32_t lane = row % 16, block = k / 32, in = k % 32;
    struct tw_model_tensor one = {.rows = 1, .cols = 1, .dtype = v->dtype};
    float x[32];
    if (v->dtype != TW_DT_Q8_0 && v->dtype != TW_DT_Q4_0) {
        one.data = panel + ((size_t)k * 16 + lane) * tw_dtype_block_bytes(v->dtype);
        tw_dequant_row(&one, 0, x);
        return x[0];
    }
    one.dtype = TW_DT_F16;
    one.data = panel + panel_scales_at(v->dtype, block) + (size_t)lane * 2;
    tw_dequant_row(&one, 0, x);
    panel += panel_quants_at(v->dtype, v->cols, block);
    if (v->dtype == TW_DT_Q8_0) {
        return x[0] * (float)(panel[(in / 4 * 16 + lane) * 4 + in % 4] - 128);
    }
    uint8_t both = panel[(in % 16 / 4 * 16 + lane) * 4 + in % 4];
    return x[0] * (float)((in < 16 ? both & 15 : both >> 4) - 8);
}

/* Row r of a weight as it is compiled. */
static void expected_row(const struct tw_model_tensor *t, uint32_t r, float *row) {
    uint8_t bytes[1024];
    const struct tw_model_tensor one = {
        .rows = 1, .cols = t->cols, .dtype = tw_model_type(t), .data = bytes};
    tw_dequant_row(t, r, row);
    if (t->converted) {
        tw_quantise_row(t->to, row, t->cols, bytes);
        tw_dequant_row(&one, 0, row);
    }
}

static void compare_elements(struct world *w, const struct tw_gvalue *v, uint32_t instance) {
    uint8_t *base;
    const uint8_t *packed = fill_whole(w, v, instance, &base);
    float row[256];
    for (uint32_t r = 0; r < tw_panels(v->rows) * 16 && v->packing == TW_PACK_PANEL16; r++) {
        if (r < v->rows) {
            expected_row(v->source[instance], r, row);
        }
        for (uint32_t k = 0; k < v->cols; k++) {
            assert_true(panel_element(v, packed, r, k) == (r < v->rows ? row[k] : 0.0f));
        }
    }
    if (v->packing == TW_PACK_ROW && !v->constant) {
        tw_dequant_row(v->source[instance], 0, row);
    }
    if (v->packing == TW_PACK_ROW) {
        assert_memory_equal(packed, v->constant ? v->constant : row, v->cols * 4);
    }
    free(base);
}

static void every_element_of_every_type_is_where_the_machine_wants_it(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        struct world w;
        open_world(&w, dtypes[i], false);
        each_weight(&w, compare_elements);
        close_world(&w);
    }
}

/* Layers of other types are sequences of their own, so nothing is converted. */
static void layers_of_mixed_types_stay_as_they_are_stored(void **state) {
    (void)state;
    uint32_t kept = 0;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        struct world w;
        open_world(&w, dtypes[i], true);
        for (uint32_t k = 0; k < w.p.graph.values.n; k++) {
            const struct tw_gvalue *v = &w.p.graph.values.items[k];
            if (v->kind == TW_GV_WEIGHT && v->source && v->rows > 1) {
                assert_int_equal(v->dtype, v->source[0]->dtype);
                assert_int_equal(v->instances, 1);
                kept += v->dtype != dtypes[i];
            }
        }
        each_weight(&w, compare_elements);
        close_world(&w);
    }
    assert_int_equal(kept, 5 * 7);
}

/* ---- pieces ---- */

static uint64_t piece_size(uint64_t *s, uint64_t panel, uint64_t left) {
    const uint64_t sizes[] = {1, 7, 63, 64, 65, panel - 1, panel, panel + 1, 3 * panel, left};
    uint64_t n = sizes[random_below(s, sizeof sizes / sizeof *sizes)];
    return n == 0 ? 1 : n < left ? n : left;
}

/* Fills pieces in order, at addresses of any alignment, as the writer of a bundle does. */
static void compare_pieces(struct world *w, const struct tw_gvalue *v, uint32_t instance) {
    uint64_t bytes = packed_bytes(v),
             panel = v->packing == TW_PACK_ROW ? 64 : tw_panel_bytes(v->dtype, v->cols);
    struct tw_filler f = {.mem = &w->p.mem};
    struct tw_fill_source source = {v, instance};
    uint64_t s = v->cols * 1000 + instance;
    uint8_t *base, *pieces_base;
    const uint8_t *whole = fill_whole(w, v, instance, &base);
    for (uint32_t round = 0; round < 3; round++) {
        uint8_t *pieces = room(bytes, round * 20, &pieces_base);
        for (uint64_t at = 0, n; at < bytes; at += n) {
            n = piece_size(&s, panel, bytes - at);
            assert_int_equal(tw_fill(&f, &source, at, n, pieces + at, NULL), 0);
            assert_int_equal(pieces[at + n], 0xEE);
        }
        assert_memory_equal(pieces, whole, bytes);
        free(pieces_base);
    }
    free(base);
}

static void pieces_of_any_size_make_the_whole(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes * 2; i++) {
        struct world w;
        open_world(&w, dtypes[i / 2], i % 2);
        each_weight(&w, compare_pieces);
        close_world(&w);
    }
}

/* ---- converted weights ---- */

/* What is stored in fewer bits stays as it is. */
static void weights_are_converted_to_a_smaller_type_alone(void **state) {
    (void)state;
    static const enum tw_dtype to[] = {TW_DT_Q8_0, TW_DT_Q4_0, TW_DT_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes * 3; i++) {
        struct world w;
        enum tw_dtype from = dtypes[i / 3];
        bool smaller = from == TW_DT_F32 ||
                       (to[i % 3] != TW_DT_F16 && from != TW_DT_Q4_0 && from != to[i % 3]);
        open_converted(&w, from, i % 2, to[i % 3]);
        const struct tw_gvalue *table = &w.p.graph.values.items[2]; /* ids, pos, table */
        assert_string_equal(table->name, "token_embd.weight");
        assert_int_equal(table->source[0]->converted, smaller);
        assert_int_equal(table->dtype, smaller ? to[i % 3] : from);
        each_weight(&w, compare_elements);
        each_weight(&w, compare_pieces);
        close_world(&w);
    }
}

/* Rows of 80 columns become halves where blocks of 32 were wanted. */
static void rows_that_are_no_whole_blocks_become_halves(void **state) {
    (void)state;
    struct tw_model_tensor tensors[] = {{.name = "a", .rows = 2, .cols = 80, .dtype = TW_DT_F32},
                                        {.name = "b", .rows = 2, .cols = 80, .dtype = TW_DT_BF16},
                                        {.name = "c", .rows = 2, .cols = 64, .dtype = TW_DT_BF16},
                                        {.name = "d", .rows = 1, .cols = 64, .dtype = TW_DT_F32}};
    struct tw_model m = {.n_tensors = 4, .tensors = tensors};
    tw_model_convert(&m, TW_DT_Q4_0);
    assert_int_equal(tw_model_type(&tensors[0]), TW_DT_F16);
    assert_int_equal(tw_model_type(&tensors[1]), TW_DT_BF16);
    assert_int_equal(tw_model_type(&tensors[2]), TW_DT_Q4_0);
    assert_int_equal(tw_model_type(&tensors[3]), TW_DT_F32);
}

static void a_weight_that_its_new_type_cannot_hold_is_refused(void **state) {
    (void)state;
    float x[64] = {[40] = 1e30f};
    const struct tw_model_tensor t = {.name = "w",
                                      .rows = 1,
                                      .cols = 64,
                                      .dtype = TW_DT_F32,
                                      .converted = true,
                                      .to = TW_DT_Q8_0,
                                      .data = (const uint8_t *)x,
                                      .bytes = sizeof x};
    const struct tw_model_tensor *source[] = {&t};
    const struct tw_gvalue v = {.rows = 1,
                                .cols = 64,
                                .dtype = TW_DT_Q8_0,
                                .instances = 1,
                                .packing = TW_PACK_PANEL16,
                                .source = source};
    struct world w;
    tw_error err = {0};
    uint8_t *base, *out = room(4096, 0, &base);
    open_world(&w, TW_DT_F32, false);
    struct tw_filler f = {.mem = &w.p.mem};
    assert_int_equal(tw_fill(&f, &(struct tw_fill_source){&v, 0}, 0, 64, out, &err), TW_E_RANGE);
    assert_non_null(strstr(err.message, "tensor w: the scale of the block at row 0, column 32"));
    close_world(&w);
    free(base);
}

/* ---- many weights ---- */

/* One filler for random pieces of random weights: what it caches of one weight never shows up in
 * another. */
static void pieces_of_many_weights_in_any_order_do_not_mix(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes * 2; i++) {
        struct world w;
        uint64_t s = i;
        struct tw_fill_source sources[64];
        uint8_t *whole[64], *base[64], *out_base;
        uint32_t n = 0;
        open_world(&w, dtypes[i / 2], i % 2);
        struct tw_filler f = {.mem = &w.p.mem};
        for (uint32_t k = 0; k < w.p.graph.values.n; k++) {
            const struct tw_gvalue *v = &w.p.graph.values.items[k];
            for (uint32_t instance = 0; v->kind == TW_GV_WEIGHT && instance < v->instances;
                 instance++, n++) {
                sources[n] = (struct tw_fill_source){v, instance};
                whole[n] = fill_whole(&w, v, instance, &base[n]);
            }
        }
        size_t used = 0;
        for (uint32_t k = 0; k < 2000; k++) {
            uint32_t which = random_below(&s, n);
            const struct tw_gvalue *v = sources[which].value;
            uint64_t bytes = packed_bytes(v), at = random_next(&s) % bytes;
            uint64_t size = piece_size(
                &s, v->packing == TW_PACK_ROW ? 64 : tw_panel_bytes(v->dtype, v->cols), bytes - at);
            uint8_t *out = room(size, k % 2 * 24, &out_base);
            assert_int_equal(tw_fill(&f, &sources[which], at, size, out, NULL), 0);
            assert_memory_equal(out, whole[which] + at, size);
            assert_int_equal(out[size], 0xEE);
            free(out_base);
            used = k == 1000 ? w.p.mem.used : used;
        }
        assert_int_equal(w.p.mem.used, used); /* its scratch memory is allocated once */
        for (uint32_t k = 0; k < n; k++) {
            free(base[k]);
        }
        close_world(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_of_every_type_is_where_the_machine_wants_it),
        cmocka_unit_test(layers_of_mixed_types_stay_as_they_are_stored),
        cmocka_unit_test(pieces_of_any_size_make_the_whole),
        cmocka_unit_test(weights_are_converted_to_a_smaller_type_alone),
        cmocka_unit_test(rows_that_are_no_whole_blocks_become_halves),
        cmocka_unit_test(a_weight_that_its_new_type_cannot_hold_is_refused),
        cmocka_unit_test(pieces_of_many_weights_in_any_order_do_not_mix),
    };
    return cmocka_run_group_tests_name("fill", tests, NULL, NULL);
}
