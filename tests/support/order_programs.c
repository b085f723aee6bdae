/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs to mutate (order_programs.h).
 */
#include "tests/support/order_programs.h"

#include "compiler/low/pin_params.h"
#include "compiler/spatial/retarget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CTX = 128, LONG = 640, ROWS = 4, VOCAB = 48 };

/* A step runs the model once; twice, one after the other, so that activations of the one share
 * bytes with those of the other; or at once on sites of its own for each, with sets of siblings on
 * a part of the mesh. PAGED: once, with its caches in pages of a table. BATCH: the same, with a row
 * of the table and a position for each row of the step. */
enum how { ONCE, TWICE, BESIDE, PAGED, BATCH };
/* LONG contexts have two segments of keys; their caches are f16. */

static const struct kind {
    const char *target;
    uint32_t host_sites, rows, weight;
    enum tw_dtype dtype;
    enum how how;
    uint32_t n_ctx; /* 0: CTX */
} kinds[] = {
    {"host", 1, 1, 4, TW_DT_F32, ONCE, 0},     {"host", 1, ROWS, 4, TW_DT_Q8_0, ONCE, 0},
    {"host", 2, 1, 8, TW_DT_Q8_0, ONCE, 0},    {"host", 2, ROWS, 8, TW_DT_F32, ONCE, 0},
    {"host", 3, 1, 5, TW_DT_F32, ONCE, 0},     {"host", 3, ROWS, 5, TW_DT_F32, ONCE, 0},
    {"sim4x4", 0, 1, 5, TW_DT_F32, ONCE, 0},   {"sim4x4", 0, ROWS, 4, TW_DT_Q8_0, ONCE, 0},
    {"grid8x8", 0, 1, 1, TW_DT_F32, ONCE, 0},  {"grid8x8", 0, ROWS, 1, TW_DT_F32, ONCE, 0},
    {"sim4x4x2", 0, 1, 2, TW_DT_F32, ONCE, 0}, {"sim4x4x2", 0, ROWS, 2, TW_DT_Q8_0, ONCE, 0},
    {"quad2x2", 0, 1, 3, TW_DT_Q8_0, ONCE, 0}, {"quad2x2", 0, ROWS, 3, TW_DT_F32, ONCE, 0},
    {"host", 2, 1, 4, TW_DT_F32, TWICE, 0},    {"host", 3, ROWS, 4, TW_DT_Q8_0, TWICE, 0},
    {"host", 2, 1, 5, TW_DT_F32, BESIDE, 0},   {"host", 1, ROWS, 3, TW_DT_Q8_0, BESIDE, 0},
    {"host", 2, 1, 4, TW_DT_F32, ONCE, LONG},  {"host", 1, ROWS, 4, TW_DT_F32, ONCE, LONG},
    {"host", 2, 1, 5, TW_DT_F32, PAGED, 0},    {"host", 3, ROWS, 5, TW_DT_Q8_0, PAGED, 0},
    {"quad2x2", 0, 1, 3, TW_DT_F32, PAGED, 0}, {"host", 2, ROWS, 5, TW_DT_F32, BATCH, 0},
    {"sim4x4", 0, 2, 3, TW_DT_Q8_0, BATCH, 0},
};
const uint32_t order_n_programs = sizeof kinds / sizeof *kinds;

static const struct random_shape shape = {.dim = 32,
                                          .hidden = 64,
                                          .n_layers = 2,
                                          .n_heads = 2,
                                          .n_kv_heads = 2,
                                          .head_dim = 16,
                                          .n_vocab = VOCAB,
                                          .n_ctx = CTX,
                                          .seed = 7};

/* Positions on both sides of a border between key blocks (of segments in LONG contexts), chunks
 * that are full and not; then a loop over no block at all. */
static void set_scenarios(struct order_program *x, uint32_t rows) {
    uint32_t part = rows > 2 ? 2 : 1, at = x->pipeline.graph.n_ctx == LONG ? 510 : 62;
    x->scenario[0] = (struct order_scenario){3,
                                             {{0, rows, rows, VOCAB, 0},
                                              {at, rows, at + rows, VOCAB, 0},
                                              {at + 8, part, at + 8 + part, VOCAB, 0}}};
    x->scenario[1] = (struct order_scenario){2, {{0, rows, 0, VOCAB, 0}, {5, part, 0, VOCAB, 0}}};
    x->scenario[2] =
        (struct order_scenario){2, {{0, rows, rows, VOCAB, 1}, {60, rows, rows, VOCAB, 2}}};
}

/* The program's sections under two names, one model after the other, or each pair of sections as a
 * phase of a mesh twice as wide. */
static bool repeat(struct order_program *x, bool beside, tw_error *err) {
    enum { MOST = 8 };
    struct tw_builder *list[MOST];
    uint32_t phases[MOST], each = x->pipeline.graph.regions.n,
                           n = 2 * each < MOST ? 2 * each : MOST;
    x->target = x->pipeline.target;
    x->target.width *= beside ? 2 : 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t model = beside ? i % 2 : i / each, section = beside ? i / 2 : i % each;
        struct tw_retarget how = {.target = &x->target,
                                  .x = beside ? model * x->pipeline.target.width : 0,
                                  .prefix = model ? "b." : "a."};
        list[i] = tw_cmem_alloc(&x->pipeline.mem, sizeof *list[i]);
        phases[i] = beside ? section : i;
        if (tw_section_retarget(x->built.sections[section], &how, &x->pipeline.mem,
                                &x->pipeline.strings, list[i], err) != 0) {
            return false;
        }
    }
    struct tw_composition c = {
        .name = "twice", .sections = list, .n = n, .phases = phases, .colour = true};
    return tw_compose_program(&c, &x->built.program, err) == 0;
}

static bool compile(const struct kind *k, struct order_program *x, tw_error *err) {
    struct random_shape s = shape;
    s.dtype = k->dtype;
    s.n_ctx = k->n_ctx ? k->n_ctx : CTX;
    snprintf(x->name, sizeof x->name, "%s%.0u %s%s", k->target, k->host_sites,
             k->n_ctx ? "long " : "",
             k->how == TWICE    ? "twice"
             : k->how == BESIDE ? "beside"
             : k->how == PAGED  ? "paged"
             : k->how == BATCH  ? "batch"
             : k->rows == 1     ? "decode"
                                : "prefill");
    if (!random_model_init(&x->model, &s) ||
        pipeline_init(&x->pipeline, &x->model.model, k->target, k->host_sites, err) != 0) {
        return false;
    }
    x->pipeline.config.kv_pages = k->how == PAGED || k->how == BATCH ? ORDER_PAGES : 0;
    x->pipeline.config.batch = k->how == BATCH;
    for (uint32_t v = 0; k->n_ctx && v < x->pipeline.graph.values.n; v++) {
        struct tw_gvalue *value = &x->pipeline.graph.values.items[v];
        value->dtype = value->kind == TW_GV_STATE ? TW_DT_F16 : value->dtype;
    }
    if (k->rows == 1) { /* the others load what these keep */
        (void)tw_pin_params(&x->pipeline.graph, &x->pipeline.target);
    }
    if (pipeline_program(&x->pipeline, k->rows, 0, &x->built, err) != 0 ||
        ((k->how == TWICE || k->how == BESIDE) && !repeat(x, k->how == BESIDE, err))) {
        return false;
    }
    x->program = tw_builder_program(&x->built.program);
    /* Binding rows are the bundle's to give; here each tensor has its own. */
    struct tw_tensor *tensors = x->built.program.tensors.items;
    for (uint32_t t = 0, row = 0; t < x->program.n_tensors; t++) {
        tensors[t].bind_first = row;
        row += tensors[t].bind_count;
    }
    return true;
}

static bool run(struct order_program *x, tw_error *err) {
    struct order_device d;
    if (!order_device_open(&d, &x->program)) {
        tw_error_set(err, TW_E_NOMEM, "%s: no device memory", x->name);
        return false;
    }
    bool ok = true;
    for (uint32_t s = 0; s < ORDER_N_SCENARIOS && ok; s++) {
        x->expected_bytes[s] = d.kept_bytes * x->scenario[s].n;
        x->expected[s] = calloc(1, x->expected_bytes[s] + 1);
        struct order_run r = order_device_run(&d, x->scenario[s].in, x->scenario[s].n,
                                              TW_SCHED_CANONICAL, 0, x->expected[s]);
        if (r.rc != 0 && !order_fault_is_input(&d, &r.fault)) {
            tw_error_set(err, TW_E_FAULT, "%s: scenario %u, step %u: %s at site %u %s op %u",
                         x->name, s, r.steps, r.fault.what, r.fault.site,
                         tw_engine_name(r.fault.engine), r.fault.op_index);
            ok = false;
        }
    }
    order_device_close(&d);
    return ok;
}

static bool check_and_run(struct order_program *x, tw_error *err) {
    if (tw_verify_program(&x->program, NULL, err) != 0 ||
        tw_certify(&x->pipeline.mem, &x->program, &x->certificate, err) != 0 ||
        tw_check_order(&x->program, &x->certificate, NULL, err) != 0) {
        return false;
    }
    order_index_make(&x->index, &x->program);
    return run(x, err);
}

bool order_program_make(uint32_t n, struct order_program *x, tw_error *err) {
    const struct kind *k = &kinds[n];
    memset(x, 0, sizeof *x);
    x->weight = k->weight;
    if (!compile(k, x, err)) {
        return false;
    }
    set_scenarios(x, k->rows);
    return check_and_run(x, err);
}

/* The inputs are any that its trips admit. */
bool order_program_make_small(uint64_t seed, struct order_program *x, tw_error *err) {
    memset(x, 0, sizeof *x);
    snprintf(x->name, sizeof x->name, "small %llu", (unsigned long long)seed);
    x->small = order_small_program(seed);
    x->program = x->small.b->p;
    for (uint32_t s = 0; s < ORDER_N_SCENARIOS; s++) {
        x->scenario[s] = (struct order_scenario){2, {{0, 2 - s, 0, 4, 0}, {0, s % 2, 0, 4, 0}}};
    }
    x->scenario[2].in[0].draw = seed * 2 + 1;
    x->scenario[2].in[1].draw = seed * 2 + 2;
    return tw_cmem_init(&x->pipeline.mem, err) == 0 && check_and_run(x, err);
}

void order_program_free(struct order_program *x) {
    order_index_free(&x->index);
    for (uint32_t s = 0; s < ORDER_N_SCENARIOS; s++) {
        free(x->expected[s]);
    }
    pb_free(x->small.b);
    pipeline_finish(&x->pipeline);
    random_model_finish(&x->model);
    memset(x, 0, sizeof *x);
}
