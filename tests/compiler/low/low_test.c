/* SPDX-License-Identifier: Apache-2.0
 *
 * Low: expansion covers each value exactly once, and placement keeps storages that are live at the
 * same time apart. Live ranges are derived here independently, from the accesses, and every pair of
 * storages is compared.
 */
#include "compiler/low/low.h"
#include "tests/support/compile_stages.h"
#include "tests/support/test.h"

#define N_MODELS 60u

static const char *const targets[] = {"host", "sim4x4", "grid8x8", "sim4x4x2", "quad2x2"};
#define N_TARGETS (sizeof targets / sizeof *targets)
static const uint32_t host_sites[] = {1, 2, 3, 5, 8};
static const uint32_t rows_of[] = {1, 7, 32, 128};

struct world {
    struct random_shape shape;
    struct random_model model;
    struct pipeline p;
    struct tw_mid mid;
};

static void open_shape(struct world *w, struct random_shape shape, const char *target,
                       uint32_t sites, uint32_t rows, uint32_t rank) {
    tw_error err = {0};
    int found;
    w->shape = shape;
    w->shape.hollow = true;
    assert_true(random_model_init(&w->model, &w->shape));
    int rc = pipeline_init(&w->p, &w->model.model, target, sites, &err);
    rc = rc ? rc : tw_mid_plan(&w->p.graph, &w->p.target, rows, rank, &w->mid, &found, &err);
    if (rc) {
        fail_msg("%s: %s", random_shape_text(&w->shape), err.message);
    }
}

static void close_world(struct world *w) {
    pipeline_finish(&w->p);
    random_model_finish(&w->model);
}

/* ---- the oracle ---- */

struct range {
    uint32_t from, to; /* steps; from > to: never touched */
};

static void touch(struct range *r, uint32_t storage, uint32_t step) {
    if (storage != TW_NONE) {
        r[storage].from = step < r[storage].from ? step : r[storage].from;
        r[storage].to = step > r[storage].to ? step : r[storage].to;
    }
}

/* A storage is live while anything touches it; throughout, if another engine or another site
 * does. */
static struct range *live_ranges(const struct tw_low *low) {
    struct range *r = calloc(low->storages.n + 1, sizeof *r);
    assert_non_null(r);
    uint32_t end = low->region->steps.n;
    for (uint32_t i = 0; i < low->storages.n; i++) {
        int fifo =
            low->storages.items[i].kind == TW_ST_OUT || low->storages.items[i].kind == TW_ST_STREAM;
        r[i] = fifo ? (struct range){0, end} : (struct range){UINT32_MAX, 0};
    }
    for (uint32_t i = 0; i < low->calls.n; i++) {
        const struct tw_call *c = &low->calls.items[i];
        for (uint32_t k = 0; k < 3; k++) {
            touch(r, c->in[k], c->step);
        }
        touch(r, c->out, c->step);
        touch(r, c->scratch, c->step);
    }
    for (uint32_t i = 0; i < low->sends.n; i++) {
        const struct tw_send *s = &low->sends.items[i];
        touch(r, s->src, s->step);
        touch(r, s->dst, 0);
        touch(r, s->dst, end);
    }
    for (uint32_t i = 0; i < end; i++) {
        const struct tw_mstep *s = &low->region->steps.items[i];
        for (uint32_t site = 0; site < low->n_sites && s->carry; site++) {
            touch(r, low->storage_of[s->in[0] * low->n_sites + site], i);
        }
    }
    return r;
}

static int on_site(const struct tw_storage *s, uint32_t site) {
    return s->kind == TW_ST_SET || (s->kind != TW_ST_SHARED && s->site == site);
}

static uint64_t end_of(const struct tw_storage *s) {
    return s->offset + s->pages * s->page_bytes;
}

static void check_pair(const struct world *w, const struct tw_low *low, const struct range *r,
                       uint32_t i, uint32_t k) {
    const struct tw_storage *a = &low->storages.items[i], *b = &low->storages.items[k];
    int together = r[i].from <= r[k].to && r[k].from <= r[i].to && r[i].from <= r[i].to &&
                   r[k].from <= r[k].to;
    int apart = end_of(a) <= b->offset || end_of(b) <= a->offset;
    if (together && !apart) {
        fail_msg(
            "%s: region %u: storage %u (%s, steps %u-%u) at %llu overlaps %u (%s, steps %u-%u) "
            "at %llu",
            random_shape_text(&w->shape), low->region->region, i, a->name, r[i].from, r[i].to,
            (unsigned long long)a->offset, k, b->name, r[k].from, r[k].to,
            (unsigned long long)b->offset);
    }
}

static void check_placement(const struct world *w, const struct tw_low *low) {
    struct range *r = live_ranges(low);
    uint64_t fullest = 0;
    for (uint32_t i = 0; i < low->storages.n; i++) {
        const struct tw_storage *s = &low->storages.items[i];
        assert_int_equal(s->offset % 64, 0);
        assert_true(s->page_bytes > 0 && s->pages > 0);
        fullest = s->kind != TW_ST_SHARED && end_of(s) > fullest ? end_of(s) : fullest;
    }
    assert_in_range(low->used_bytes, fullest, (fullest + 63) / 64 * 64);
    assert_true(low->used_bytes <= low->budget_bytes);
    for (uint32_t i = 0; i < low->storages.n; i++) {
        for (uint32_t k = i + 1; k < low->storages.n; k++) {
            const struct tw_storage *a = &low->storages.items[i], *b = &low->storages.items[k];
            uint32_t site = a->kind == TW_ST_SET ? b->site : a->site;
            if ((a->kind == TW_ST_SET && b->kind == TW_ST_SET) ||
                (on_site(a, site) && on_site(b, site))) {
                check_pair(w, low, r, i, k);
            }
        }
    }
    free(r);
}

/* ---- coverage ---- */

/* Adds a window to the columns of a step; a column counted twice is an error. */
static void cover(uint8_t *columns, uint32_t cols, uint32_t first, uint32_t n) {
    assert_true(n > 0 && first + n <= cols);
    for (uint32_t c = first; c < first + n; c++) {
        assert_int_equal(columns[c]++, 0);
    }
}

static void all_covered(const uint8_t *columns, uint32_t cols) {
    for (uint32_t c = 0; c < cols; c++) {
        assert_int_equal(columns[c], 1);
    }
}

static void check_step(const struct tw_low *low, uint32_t step) {
    const struct tw_mstep *s = &low->region->steps.items[step];
    const struct tw_graph *g = low->mid->graph;
    const struct tw_gop *op = s->gop == TW_NONE ? NULL : &g->ops.items[s->gop];
    uint32_t value =
        op ? (op->out == TW_NONE ? op->in[0] : op->out) : low->region->values.items[s->in[0]].value;
    uint32_t cols = g->values.items[value].cols, calls = 0;
    uint8_t *columns = calloc(cols, 1);
    assert_non_null(columns);
    for (uint32_t i = 0; i < low->calls.n; i++) {
        const struct tw_call *c = &low->calls.items[i];
        if (c->step == step && s->owners.parts) {
            cover(columns, cols, c->first_col, c->cols);
        } else if (c->step == step) {
            assert_int_equal(c->cols, cols);
            calls++;
        }
    }
    for (uint32_t i = 0; i < low->sends.n; i++) {
        if (low->sends.items[i].step == step) {
            cover(columns, cols, low->sends.items[i].first_col, low->sends.items[i].cols);
        }
    }
    if (s->owners.parts) {
        all_covered(columns, cols);
    } else if (!s->carry) {
        assert_int_equal(calls, low->n_sites);
    }
    free(columns);
}

/* Each site's list follows the steps, and has one reception per exchange and one carry per carry
 * step. */
static void check_work(const struct tw_low *low) {
    for (uint32_t site = 0; site < low->n_sites; site++) {
        uint32_t before = 0, receptions = 0, expected = 0;
        for (uint32_t i = 0; i < low->work[site].n; i++) {
            const struct tw_work *k = &low->work[site].items[i];
            assert_true(k->step >= before);
            before = k->step;
            receptions += k->kind == TW_WORK_RECV || k->kind == TW_WORK_CARRY;
            if (k->kind == TW_WORK_CALL) {
                assert_int_equal(low->calls.items[k->index].site, site);
            } else if (k->kind == TW_WORK_SEND) {
                assert_int_equal(low->sends.items[k->index].site, site);
            }
        }
        for (uint32_t i = 0; i < low->region->steps.n; i++) {
            expected += low->region->steps.items[i].prim == TW_PRIM_COPY;
        }
        assert_int_equal(receptions, expected);
    }
}

/* ---- tests over many models ---- */

static uint32_t placed;

static void try_regions(struct world *w, uint32_t rows) {
    for (uint32_t r = 0; r < w->p.graph.regions.n; r++) {
        struct tw_low low;
        tw_error err = {0};
        uint64_t budget = pipeline_budget(&w->p, rows);
        int rc = budget ? pipeline_low(&w->mid, r, budget, &low, &err) : TW_E_PLACEMENT;
        if (rc == TW_E_PLACEMENT) {
            continue; /* many rows on small memories */
        }
        if (rc) {
            fail_msg("%s: %s", random_shape_text(&w->shape), err.message);
        }
        check_placement(w, &low);
        check_work(&low);
        for (uint32_t i = 0; i < w->mid.regions[r].steps.n; i++) {
            check_step(&low, i);
        }
        placed++;
    }
}

static void live_storages_are_disjoint_and_every_column_is_computed_once(void **state) {
    (void)state;
    placed = 0;
    for (uint64_t seed = 0; seed < N_MODELS; seed++) {
        struct world w;
        uint32_t rows = rows_of[seed / 3 % 4];
        open_shape(&w, random_shape_of(seed), targets[seed % N_TARGETS], host_sites[seed % 5], rows,
                   seed % 4 == 3 ? TW_PLAN_PLAINEST : seed % 4);
        try_regions(&w, rows);
        close_world(&w);
    }
    assert_true(placed > 2 * N_MODELS);
}

static void odd_sizes_on_many_sites_are_placed(void **state) {
    (void)state;
    static const struct random_shape odd[] = {
        {.dim = 64,
         .hidden = 172,
         .n_layers = 5,
         .n_heads = 8,
         .n_kv_heads = 4,
         .head_dim = 8,
         .n_vocab = 512,
         .n_ctx = 512},
        {.dim = 172,
         .hidden = 1,
         .n_layers = 1,
         .n_heads = 63,
         .n_kv_heads = 9,
         .head_dim = 6,
         .n_vocab = 3,
         .n_ctx = 512},
        {.dim = 1,
         .hidden = 1,
         .n_layers = 1,
         .n_heads = 1,
         .n_kv_heads = 1,
         .head_dim = 2,
         .n_vocab = 1,
         .n_ctx = 1},
        {.dim = 32,
         .hidden = 32,
         .n_layers = 1,
         .n_heads = 128,
         .n_kv_heads = 128,
         .head_dim = 2,
         .n_vocab = 33,
         .n_ctx = 64},
        {.dim = 288,
         .hidden = 768,
         .n_layers = 6,
         .n_heads = 6,
         .n_kv_heads = 6,
         .head_dim = 48,
         .n_vocab = 32000,
         .n_ctx = 256,
         .dtype = TW_DT_Q8_0},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        for (uint32_t k = 0; k < 4; k++) {
            struct world w;
            open_shape(&w, odd[i], "grid8x8", 0, rows_of[k], k == 3 ? TW_PLAN_PLAINEST : k);
            placed = 0;
            try_regions(&w, rows_of[k]);
            assert_int_equal(placed, 3);
            close_world(&w);
        }
    }
}

/* ---- memory ---- */

static void a_smaller_budget_is_met_or_refused_with_the_numbers(void **state) {
    (void)state;
    uint32_t refused = 0, met = 0;
    for (uint64_t seed = 0; seed < N_MODELS; seed += 3) {
        struct world w;
        open_shape(&w, random_shape_of(seed), "sim4x4", 0, 32, 0);
        for (uint64_t budget = 1 << 22; budget >= 64; budget /= 2) {
            struct tw_low low;
            tw_error err = {0};
            int rc = pipeline_low(&w.mid, 1, budget, &low, &err);
            char numbers[2][32];
            snprintf(numbers[0], sizeof numbers[0], "needs %llu bytes",
                     (unsigned long long)low.used_bytes);
            snprintf(numbers[1], sizeof numbers[1], "only %llu are left",
                     (unsigned long long)budget);
            if (rc == 0) {
                assert_true(low.used_bytes <= budget);
                met++;
                continue;
            }
            assert_int_equal(rc, TW_E_PLACEMENT);
            assert_true(low.used_bytes > budget);
            assert_non_null(strstr(err.message, "section layer"));
            assert_non_null(strstr(err.message, " for 32 rows"));
            assert_non_null(strstr(err.message, "target sim4x4"));
            assert_non_null(strstr(err.message, numbers[0]));
            assert_non_null(strstr(err.message, numbers[1]));
            refused++;
        }
        close_world(&w);
    }
    assert_true(refused > 20 && met > 20);
}

static void placement_needs_less_than_all_storages_side_by_side(void **state) {
    (void)state;
    struct world w;
    struct tw_low low;
    open_shape(&w,
               (struct random_shape){.dim = 288,
                                     .hidden = 768,
                                     .n_layers = 6,
                                     .n_heads = 6,
                                     .n_kv_heads = 6,
                                     .head_dim = 48,
                                     .n_vocab = 512,
                                     .n_ctx = 256,
                                     .dtype = TW_DT_F32},
               "host", 1, 128, 0);
    assert_int_equal(pipeline_low(&w.mid, 1, 16 << 20, &low, NULL), 0);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < low.storages.n; i++) {
        const struct tw_storage *s = &low.storages.items[i];
        sum += s->kind == TW_ST_SHARED ? 0 : s->pages * s->page_bytes;
    }
    assert_true(low.used_bytes < sum * 9 / 10);
    close_world(&w);
}

static void a_weight_page_holds_at_least_one_panel_and_stays_small(void **state) {
    (void)state;
    for (uint64_t budget = 4096; budget <= (uint64_t)1 << 32; budget *= 4) {
        struct tw_low low = {.budget_bytes = budget};
        for (uint32_t k = 32; k <= 1 << 20; k *= 8) {
            for (uint32_t d = 0; d < 2; d++) {
                enum tw_dtype dtype = d ? TW_DT_Q4_0 : TW_DT_F32;
                uint64_t panels = tw_low_page_panels(&low, dtype, k),
                         panel = tw_panel_bytes(dtype, k);
                assert_true(panels >= 1);
                assert_true(panels == 1 ||
                            (panels * panel <= budget / 8 && panels * panel <= 256 << 10));
                assert_true((panels + 1) * panel > budget / 8 || (panels + 1) * panel > 256 << 10);
            }
        }
    }
}

/* ---- the checker ---- */

/* An input's storage that has lost its columns, or the first block of them, does not hold what its
 * calls read. */
static void expect_short_input_refused(struct tw_low *low, uint32_t storage) {
    tw_error err = {0};
    struct tw_storage good = low->storages.items[storage], *s = &low->storages.items[storage];
    s->cols = 0;
    assert_int_equal(tw_low_check(low, &err), TW_E_INTERNAL);
    *s = good;
    s->first_col += TW_PANEL_ROWS;
    assert_int_equal(tw_low_check(low, &err), TW_E_INTERNAL);
    *s = good;
}

static void a_broken_low_program_is_refused(void **state) {
    (void)state;
    struct world w;
    struct tw_low low;
    tw_error err = {0};
    open_shape(&w, random_shape_of(4), "sim4x4", 0, 1, 0);
    assert_int_equal(pipeline_low(&w.mid, 1, 400000, &low, &err), 0);
    for (uint32_t i = 0; i < low.calls.n; i++) {
        struct tw_call good = low.calls.items[i];
        if (good.out != TW_NONE) {
            low.calls.items[i].cols += low.storages.items[good.out].cols;
            assert_int_equal(tw_low_check(&low, &err), TW_E_INTERNAL);
            low.calls.items[i] = good;
            low.calls.items[i].cols = 0;
            assert_int_equal(tw_low_check(&low, &err), TW_E_INTERNAL);
            low.calls.items[i] = good;
            low.calls.items[i].out = low.storages.n;
            assert_int_equal(tw_low_check(&low, &err), TW_E_INTERNAL);
            low.calls.items[i] = good;
        }
        if (good.in[0] != TW_NONE && low.storages.items[good.in[0]].site != TW_NONE) {
            low.calls.items[i].site = (good.site + 1) % low.n_sites;
            assert_int_equal(tw_low_check(&low, &err), TW_E_INTERNAL);
            low.calls.items[i] = good;
        }
    }
    for (uint32_t i = 0; i < low.calls.n; i++) {
        const struct tw_call *c = &low.calls.items[i];
        for (uint32_t k = 0; k < 3; k++) {
            if (c->in[k] != TW_NONE) {
                expect_short_input_refused(&low, c->in[k]);
            }
        }
    }
    for (uint32_t i = 0; i < low.sends.n; i++) {
        struct tw_send good = low.sends.items[i];
        low.sends.items[i].cols = 0;
        assert_int_equal(tw_low_check(&low, &err), TW_E_INTERNAL);
        low.sends.items[i] = good;
        low.sends.items[i].first_col += low.storages.items[good.dst].cols;
        assert_int_equal(tw_low_check(&low, &err), TW_E_INTERNAL);
        low.sends.items[i] = good;
    }
    assert_int_equal(tw_low_check(&low, &err), 0);
    assert_true(low.sends.n > 0);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_storages_are_disjoint_and_every_column_is_computed_once),
        cmocka_unit_test(odd_sizes_on_many_sites_are_placed),
        cmocka_unit_test(a_smaller_budget_is_met_or_refused_with_the_numbers),
        cmocka_unit_test(placement_needs_less_than_all_storages_side_by_side),
        cmocka_unit_test(a_weight_page_holds_at_least_one_panel_and_stays_small),
        cmocka_unit_test(a_broken_low_program_is_refused),
    };
    return cmocka_run_group_tests_name("low", tests, NULL, NULL);
}
