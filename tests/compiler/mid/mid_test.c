/* SPDX-License-Identifier: Apache-2.0
 *
 * Mid: layouts, strategies, prices and the beam, over models of many shapes.
 */
#include "compiler/mid/mid.h"
#include "tests/support/compile_stages.h"
#include "tests/support/test.h"

#define N_MODELS 40u

static const char *const targets[] = {"host", "sim4x4", "grid8x8", "sim4x4x2", "quad2x2"};
#define N_TARGETS (sizeof targets / sizeof *targets)
static const uint32_t host_sites[] = {1, 2, 3, 5, 8};

/* A random model on one of the targets. */
struct world {
    struct random_shape shape;
    struct random_model model;
    struct pipeline p;
};

static void open_world(struct world *w, uint64_t seed) {
    tw_error err = {0};
    w->shape = random_shape_of(seed);
    w->shape.hollow = true;
    assert_true(random_model_init(&w->model, &w->shape));
    if (pipeline_init(&w->p, &w->model.model, targets[seed % N_TARGETS], host_sites[seed % 5],
                      &err)) {
        fail_msg("%s: %s", random_shape_text(&w->shape), err.message);
    }
}

static void close_world(struct world *w) {
    pipeline_finish(&w->p);
    random_model_finish(&w->model);
}

static struct tw_mid plan(struct world *w, uint32_t rows, uint32_t rank, int *found) {
    struct tw_mid mid;
    tw_error err = {0};
    if (tw_mid_plan(&w->p.graph, &w->p.target, rows, rank, &mid, found, &err)) {
        fail_msg("%s: %s", random_shape_text(&w->shape), err.message);
    }
    return mid;
}

/* ---- layouts ---- */

static void windows_of_a_layout_partition_the_columns_in_whole_units(void **state) {
    (void)state;
    static const uint32_t cols[] = {1, 2, 15, 16, 17, 31, 32, 100, 172, 512, 1000, 32000, 16777216};
    static const uint32_t units[] = {1, 2, 8, 10, 16, 32, 64, 172, 1000};
    static const uint32_t parts[] = {1, 2, 3, 5, 7, 8, 16, 63, 64, 256, 4096};
    for (size_t i = 0; i < sizeof cols / sizeof *cols * 99; i++) {
        uint32_t c = cols[i / 99], u = units[i / 11 % 9], p = parts[i % 11], next = 0, widest = 0,
                 narrowest = UINT32_MAX;
        for (uint32_t k = 0; k < p; k++) {
            uint32_t first, n;
            tw_layout_window((struct tw_layout){p, u}, c, k, &first, &n);
            assert_int_equal(first, next);
            assert_int_equal(first % u,
                             /* an empty part may begin after the last column */
                             n ? 0 : first % u);
            next = first + n;
            uint32_t whole_units = (n + u - 1) / u;
            widest = whole_units > widest ? whole_units : widest;
            narrowest = whole_units < narrowest ? whole_units : narrowest;
        }
        assert_int_equal(next, c);
        assert_in_range(widest - narrowest, 0, 1);
    }
}

static void a_replicated_layout_holds_every_column(void **state) {
    (void)state;
    uint32_t first = 9, n = 9;
    tw_layout_window(tw_layout_replicated(), 172, 0, &first, &n);
    assert_int_equal(first, 0);
    assert_int_equal(n, 172);
}

static void parts_are_on_different_sites_in_order(void **state) {
    (void)state;
    for (uint32_t sites = 1; sites <= 64; sites++) {
        for (uint32_t parts = 1; parts <= sites; parts++) {
            for (uint32_t p = 0, before = 0; p < parts; p++) {
                uint32_t site = tw_layout_site((struct tw_layout){parts, 1}, p, sites);
                assert_true(site < sites && (p == 0 ? site == 0 : site > before));
                before = site;
            }
        }
    }
}

static void only_the_unit_of_a_divided_layout_matters(void **state) {
    (void)state;
    assert_true(tw_layout_equal((struct tw_layout){0, 16}, (struct tw_layout){0, 32}));
    assert_true(tw_layout_equal((struct tw_layout){2, 16}, (struct tw_layout){2, 16}));
    assert_false(tw_layout_equal((struct tw_layout){2, 16}, (struct tw_layout){2, 32}));
    assert_false(tw_layout_equal((struct tw_layout){2, 16}, (struct tw_layout){0, 16}));
}

/* ---- strategies ---- */

static void check_strategy(const struct world *w, const struct tw_gop *op,
                           const struct tw_strategy *strategy, uint32_t sites) {
    const struct tw_gvalue *v = &w->p.graph.values.items[op->out == TW_NONE ? op->in[0] : op->out];
    assert_true(strategy->owners.parts <= sites);
    assert_true(strategy->owners.parts == 0 || strategy->owners.unit > 0);
    if (tw_dtype_block_elems(v->dtype) > 1 && strategy->owners.parts) {
        assert_int_equal(strategy->owners.unit % 32, 0);
    }
    if (op->kind == TW_GOP_ATTENTION || op->kind == TW_GOP_ROPE || op->kind == TW_GOP_KV_APPEND) {
        assert_true(strategy->owners.parts > 0);
        assert_int_equal(strategy->owners.unit % op->head_dim, 0);
    }
    if (op->kind == TW_GOP_MATMUL) {
        assert_true(strategy->needs_all[0]); /* a product is never split over k */
    }
}

/* Walks every operation of a plan and checks all strategies that it could have used there. */
static void every_strategy_respects_blocks_heads_and_sites(void **state) {
    (void)state;
    uint32_t seen = 0;
    for (uint64_t seed = 0; seed < N_MODELS; seed++) {
        struct world w;
        int found;
        open_world(&w, seed);
        struct tw_mid mid = plan(&w, 7, 0, &found);
        uint32_t sites = tw_target_sites(&w.p.target);
        for (uint32_t r = 0; r < mid.n_regions; r++) {
            for (uint32_t i = 0; i < mid.regions[r].steps.n; i++) {
                const struct tw_mstep *s = &mid.regions[r].steps.items[i];
                if (s->prim != TW_PRIM_COMPUTE) {
                    continue;
                }
                struct tw_layout in[3] = {{0, 0}, {0, 0}, {0, 0}};
                for (uint32_t k = 0; k < 3; k++) {
                    in[k] =
                        s->in[k] == TW_NONE ? in[k] : mid.regions[r].values.items[s->in[k]].layout;
                }
                struct tw_strategy_list list = {{0}};
                tw_strategies(&w.p.graph, &w.p.graph.ops.items[s->gop], in, &w.p.target, &list);
                assert_true(list.v.n >= 1);
                for (uint32_t k = 0; k < list.v.n; k++) {
                    check_strategy(&w, &w.p.graph.ops.items[s->gop], &list.v.items[k], sites);
                    seen++;
                }
            }
        }
        close_world(&w);
    }
    assert_true(seen > 20 * N_MODELS);
}

/* The list once held six and dropped the rest in silence. */
static void a_list_of_strategies_holds_as_many_as_there_are(void **state) {
    (void)state;
    struct world w;
    struct tw_strategy_list list = {{0}};
    open_world(&w, 1);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 100; i++) {
            struct tw_strategy s = {"way", {1 + i / 4, 16}, {i & 1, i >> 1 & 1, 0}};
            tw_strategy_add(w.p.graph.mem, &list, &s);
        }
        assert_int_equal(list.v.n, 100); /* equal ones are there once */
    }
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(list.v.items[i].owners.parts, 1 + i / 4);
        assert_int_equal(list.v.items[i].needs_all[1], i >> 1 & 1);
    }
    close_world(&w);
}

/* ---- plans ---- */

static void every_plan_is_valid_and_its_cycles_are_the_sum_of_its_steps(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 7, 128};
    for (uint64_t seed = 0; seed < N_MODELS; seed++) {
        struct world w;
        open_world(&w, seed);
        for (uint32_t i = 0; i < 18; i++) {
            int found;
            uint32_t rank = i % 6 == 5 ? TW_PLAN_PLAINEST : i % 6;
            /* tw_mid_plan() also checks it */
            struct tw_mid mid = plan(&w, rows[i / 6], rank, &found);
            double total = 0;
            for (uint32_t r = 0; r < mid.n_regions; r++) {
                double cycles = 0;
                for (uint32_t k = 0; k < mid.regions[r].steps.n; k++) {
                    assert_true(mid.regions[r].steps.items[k].cycles >= 0);
                    cycles += mid.regions[r].steps.items[k].cycles;
                }
                assert_true(cycles > mid.regions[r].cycles * 0.999999 &&
                            cycles < mid.regions[r].cycles * 1.000001);
                total += mid.regions[r].cycles * w.p.graph.regions.items[r].repeat;
            }
            assert_true(total > mid.cycles * 0.999999 && total < mid.cycles * 1.000001);
            assert_true(found || rank != TW_PLAN_PLAINEST);
        }
        close_world(&w);
    }
}

static void the_search_is_never_worse_than_the_plainest_plan_and_ranks_ascend(void **state) {
    (void)state;
    uint32_t better = 0;
    for (uint64_t seed = 0; seed < N_MODELS; seed++) {
        struct world w;
        open_world(&w, seed);
        for (uint32_t rows = 1; rows <= 64; rows *= 8) {
            int found;
            double plainest = plan(&w, rows, TW_PLAN_PLAINEST, &found).cycles,
                   before = plan(&w, rows, 0, &found).cycles;
            if (before > plainest) {
                fail_msg("%s on %s, %u rows: search %.0f, plainest %.0f cycles",
                         random_shape_text(&w.shape), w.p.target.name, rows, before, plainest);
            }
            better += before < plainest;
            for (uint32_t rank = 1; rank < 4; rank++) {
                double now = plan(&w, rows, rank, &found).cycles;
                assert_true(now >= before);
                before = now;
            }
        }
        close_world(&w);
    }
    assert_true(better > N_MODELS / 2);
}

static char *plan_as_text(struct world *w, uint32_t rows, uint32_t rank) {
    char *text = NULL;
    size_t size;
    int found;
    struct tw_mid mid = plan(w, rows, rank, &found);
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    tw_mid_print(&mid, f);
    assert_int_equal(fclose(f), 0);
    return text;
}

static void two_runs_print_equal_text(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct world a, b;
        open_world(&a, seed);
        open_world(&b, seed);
        for (uint32_t rank = 0; rank < 3; rank++) {
            char *first = plan_as_text(&a, 32, rank), *second = plan_as_text(&b, 32, rank),
                 *again = plan_as_text(&a, 32, rank);
            assert_true(strlen(first) > 500);
            assert_string_equal(first, second);
            assert_string_equal(first, again);
            free(first);
            free(second);
            free(again);
        }
        close_world(&a);
        close_world(&b);
    }
}

static void a_plan_for_one_site_divides_nothing(void **state) {
    (void)state;
    struct world w = {.shape = random_shape_of(3)};
    tw_error err = {0};
    int found;
    w.shape.hollow = true;
    assert_true(random_model_init(&w.model, &w.shape));
    assert_int_equal(pipeline_init(&w.p, &w.model.model, "host", 1, &err), 0);
    struct tw_mid mid = plan(&w, 4, 0, &found);
    for (uint32_t r = 0; r < mid.n_regions; r++) {
        for (uint32_t i = 0; i < mid.regions[r].steps.n; i++) {
            assert_in_range(mid.regions[r].steps.items[i].owners.parts, 0, 1);
        }
    }
    close_world(&w);
}

/* ---- the checker ---- */

static void expect_broken(const struct tw_mid *mid, const char *what) {
    tw_error err = {0};
    assert_int_equal(tw_mid_check(mid, &err), TW_E_INTERNAL);
    assert_non_null(strstr(err.message, what));
}

static void a_broken_plan_is_refused(void **state) {
    (void)state;
    struct world w;
    int found;
    open_world(&w, 1);
    struct tw_mid mid = plan(&w, 1, 0, &found);
    struct tw_mid_region *layer = &mid.regions[1];
    uint32_t copy = 0, compute = 0;
    for (uint32_t i = 0; i < layer->steps.n; i++) {
        const struct tw_mstep *s = &layer->steps.items[i];
        copy = s->prim == TW_PRIM_COPY && !s->carry ? i : copy;
        compute = s->prim == TW_PRIM_COMPUTE && s->owners.parts && s->in[0] != TW_NONE &&
                          layer->values.items[s->in[0]].layout.parts
                      ? i
                      : compute;
    }
    assert_true(copy && compute);
    struct tw_mstep good = layer->steps.items[copy];
    layer->steps.items[copy].in[0] = good.out;
    expect_broken(&mid, "before it is made");
    layer->steps.items[copy] = good;
    layer->steps.items[copy].in[0] = layer->values.n;
    expect_broken(&mid, "before it is made");
    layer->steps.items[copy] = good;
    layer->steps.items[copy].out = good.in[0];
    expect_broken(&mid, "not whole");
    layer->steps.items[copy] = good;
    good = layer->steps.items[compute];
    layer->steps.items[compute].owners.unit += 16;
    expect_broken(&mid, "differs from the owners' layout");
    layer->steps.items[compute] = good;
    layer->steps.items[compute].out = layer->steps.items[0].out;
    expect_broken(&mid, "made twice");
    layer->steps.items[compute] = good;
    layer->steps.items[compute].prim = TW_PRIM_SUM;
    expect_broken(&mid, "a Sum of partials cannot be expanded");
    layer->steps.items[compute] = good;
    assert_int_equal(tw_mid_check(&mid, NULL), 0);
    close_world(&w);
}

/* ---- prices ---- */

static void prices_never_fall_as_rows_rise(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < N_MODELS; seed++) {
        struct world w;
        open_world(&w, seed);
        const struct tw_graph *g = &w.p.graph;
        static const struct tw_layout layouts[] = {{0, 0}, {1, 16}, {2, 16}, {4, 64}};
        for (uint32_t i = 0; i < g->ops.n * 4; i++) {
            double before = 0;
            for (uint32_t rows = 1; rows <= 128; rows = rows * 2 + rows % 2) {
                double now =
                    tw_price_compute(g, &g->ops.items[i / 4], layouts[i % 4], rows, &w.p.target);
                assert_true(now >= before && now >= w.p.target.call_cycles);
                before = now;
            }
        }
        for (uint32_t v = 0; v < g->values.n; v++) {
            double one = tw_price_exchange(&g->values.items[v], layouts[2], 1, &w.p.target);
            assert_true(tw_price_exchange(&g->values.items[v], layouts[2], 64, &w.p.target) >= one);
            assert_true(one >= w.p.target.sync_cycles);
        }
        double before = 0;
        for (uint32_t rows = 1; rows <= 128; rows *= 2) {
            int found;
            double now = plan(&w, rows, TW_PLAN_PLAINEST, &found).cycles;
            assert_true(now >= before);
            before = now;
        }
        close_world(&w);
    }
}

/* A model on a target in which every width is 512. */
struct priced {
    struct random_model model;
    struct pipeline p;
    const struct tw_gop *product;
    const struct tw_gvalue *row; /* 512 columns of f32 */
};

static void open_priced(struct priced *x, const char *target) {
    struct random_shape shape = {.dim = 512,
                                 .hidden = 512,
                                 .n_layers = 1,
                                 .n_heads = 8,
                                 .n_kv_heads = 8,
                                 .head_dim = 64,
                                 .n_vocab = 512,
                                 .n_ctx = 8,
                                 .dtype = TW_DT_F32,
                                 .hollow = true};
    tw_error err = {0};
    uint32_t i = 0;
    assert_true(random_model_init(&x->model, &shape));
    assert_int_equal(pipeline_init(&x->p, &x->model.model, target, 0, &err), 0);
    while (x->p.graph.ops.items[i].kind != TW_GOP_MATMUL) {
        i++;
    }
    x->product = &x->p.graph.ops.items[i];
    x->row = &x->p.graph.values.items[x->product->out];
    assert_int_equal(x->row->cols, 512);
}

static void close_priced(struct priced *x) {
    pipeline_finish(&x->p);
    random_model_finish(&x->model);
}

/* A product of 512 x 512 in one call: 2^18 multiply-adds per row, or the time to load the weights
 * from DRAM. */
static void a_product_costs_its_weights_or_its_arithmetic(void **state) {
    (void)state;
    struct priced x;
    open_priced(&x, "sim4x4");
    /* One site: 512*512*4 bytes at 16 bytes per cycle; then 128 rows of 2^18 at 64 per cycle. */
    struct tw_layout one = {1, 512}, all = {16, 16};
    assert_true(tw_price_compute(&x.p.graph, x.product, one, 1, &x.p.target) ==
                20 + 1048576.0 / 16);
    assert_true(tw_price_compute(&x.p.graph, x.product, one, 128, &x.p.target) ==
                20 + 128.0 * 262144 / 64);
    /* All sites share 64 bytes per cycle: a sixteenth of the weights each, at 4 bytes per cycle. */
    assert_true(tw_price_compute(&x.p.graph, x.product, all, 1, &x.p.target) ==
                20 + 1048576.0 / 16 / 4);
    close_priced(&x);
    /* Two such chips have twice the DRAM: a 32nd of the weights each, at 4 bytes per cycle. */
    open_priced(&x, "sim4x4x2");
    all.parts = 32;
    assert_true(tw_price_compute(&x.p.graph, x.product, all, 1, &x.p.target) ==
                20 + 1048576.0 / 32 / 4);
    close_priced(&x);
}

static void an_exchange_between_chips_also_costs_their_links(void **state) {
    (void)state;
    struct priced x;
    struct tw_layout all = {32, 16}, one = {1, 512};
    open_priced(&x, "sim4x4");
    assert_true(tw_price_exchange(x.row, one, 1, &x.p.target) == 50 + 2 * 1 + 2048.0 / 32);
    close_priced(&x);
    /* Each chip sends its half of 2048 bytes to the other one at 8 bytes per cycle, with a latency
     * of 600 cycles. */
    open_priced(&x, "sim4x4x2");
    assert_true(tw_price_exchange(x.row, all, 1, &x.p.target) ==
                50 + 2 * 33 + 2048.0 / 32 + 600 + 1024.0 / 8);
    close_priced(&x);
    /* The chip that has all of it sends it to three others, at 16 bytes per cycle. */
    open_priced(&x, "quad2x2");
    assert_true(tw_price_exchange(x.row, one, 1, &x.p.target) ==
                50 + 2 * 4 + 2048.0 / 32 + 400 + 3 * 2048.0 / 16);
    close_priced(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_of_a_layout_partition_the_columns_in_whole_units),
        cmocka_unit_test(a_replicated_layout_holds_every_column),
        cmocka_unit_test(parts_are_on_different_sites_in_order),
        cmocka_unit_test(only_the_unit_of_a_divided_layout_matters),
        cmocka_unit_test(every_strategy_respects_blocks_heads_and_sites),
        cmocka_unit_test(a_list_of_strategies_holds_as_many_as_there_are),
        cmocka_unit_test(every_plan_is_valid_and_its_cycles_are_the_sum_of_its_steps),
        cmocka_unit_test(the_search_is_never_worse_than_the_plainest_plan_and_ranks_ascend),
        cmocka_unit_test(two_runs_print_equal_text),
        cmocka_unit_test(a_plan_for_one_site_divides_nothing),
        cmocka_unit_test(a_broken_plan_is_refused),
        cmocka_unit_test(prices_never_fall_as_rows_rise),
        cmocka_unit_test(a_product_costs_its_weights_or_its_arithmetic),
        cmocka_unit_test(an_exchange_between_chips_also_costs_their_links),
    };
    return cmocka_run_group_tests_name("mid", tests, NULL, NULL);
}
