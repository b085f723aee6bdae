/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass order of the compiler, in one place:
 *
 *   import -> model -> arch -> graph -> [for each program: mid -> low -> section -> compose]
 *   -> bind -> certify -> check -> emit
 *
 * Each program is first searched for its cheapest plan. If a plan does not fit the target's memory,
 * the next one is tried, the plainest last; a prefill program that fits in no form is tried again
 * with half the rows.
 */
#include "compiler/pipeline_internal.h"

#include "compiler/arch/arch.h"
#include "compiler/emit/emit.h"
#include "compiler/low/pin_params.h"
#include "compiler/spatial/certify.h"
#include "compiler/spatial/compose.h"
#include "compiler/spatial/report.h"
#include "compiler/spatial/section.h"
#include "compiler/spatial/section_proof.h"
#include "loader/base/clock.h"
#include "loader/base/sized.h"
#include "loader/verify/verify.h"
#include "tilewright/op_schema.h"
#include "tilewright/range.h"
#include "tilewright/tilewright.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int read_cache_dtype(struct compilation *c, tw_error *err) {
    const char *kv = c->options.kv ? c->options.kv : tw_dtype_name(TW_DT_F32);
    for (unsigned dtype = 0; dtype < TW_DT_COUNT; dtype++) {
        if (strcmp(kv, tw_dtype_name(dtype)) == 0 &&
            tw_demand_number(TW_DEMAND_CACHE_DTYPE, dtype)) {
            c->graph.cache_dtype = (enum tw_dtype)dtype;
            return 0;
        }
    }
    return tw_fail(err, TW_E_USAGE, "a cache of type \"%.32s\" is not possible; use f32 or f16",
                   kv);
}

static int read_quant(struct compilation *c, tw_error *err) {
    static const enum tw_dtype types[] = {TW_DT_Q8_0, TW_DT_Q4_0, TW_DT_F16};
    for (size_t i = 0; c->options.quant && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(c->options.quant, tw_dtype_name(types[i])) == 0) {
            c->quant = types[i];
            c->convert = true;
            return 0;
        }
    }
    return !c->options.quant
               ? 0
               : tw_fail(err, TW_E_USAGE,
                         "weights cannot be converted to \"%.32s\"; use q8_0, q4_0 or f16",
                         c->options.quant);
}

static int read_activations(struct compilation *c, tw_error *err) {
    const char *text = c->options.activations ? c->options.activations : "q8";
    c->graph.float_activations = strcmp(text, "f32") == 0;
    return c->graph.float_activations || strcmp(text, "q8") == 0
               ? 0
               : tw_fail(err, TW_E_USAGE,
                         "activations of type \"%.32s\" are not possible; use q8 or f32", text);
}

static int check_options(const struct compilation *c, tw_error *err) {
    if (c->options.all_logits > 1) {
        return tw_fail(err, TW_E_USAGE, "all_logits is %u, expected 0 or 1", c->options.all_logits);
    }
    if (c->options.top_k > TW_MAX_TOPS) {
        return tw_fail(err, TW_E_USAGE, "lists of the %u best logits are too long; at most %u",
                       c->options.top_k, TW_MAX_TOPS);
    }
    if (c->options.n_ctx > MAX_CTX) {
        return tw_fail(err, TW_E_USAGE, "a context of %u tokens is too long; the maximum is %u",
                       c->options.n_ctx, MAX_CTX);
    }
    if (c->options.prefill_rows > MAX_PREFILL_ROWS) {
        return tw_fail(err, TW_E_USAGE, "a prefill step of %u rows is too large; the maximum is %u",
                       c->options.prefill_rows, MAX_PREFILL_ROWS);
    }
    if (c->options.batch_rows > MAX_BATCH_ROWS) {
        return tw_fail(err, TW_E_USAGE, "a batch of %u rows is too large; the maximum is %u",
                       c->options.batch_rows, MAX_BATCH_ROWS);
    }
    return 0;
}

int tw_pipeline_begin(struct compilation *c, const char *function,
                      const struct tw_compile_options *o, tw_error *err) {
    memset(c, 0, sizeof *c);
    int rc = tw_sized_read(function, &c->options, sizeof c->options, o, err);
    if (!c->options.target) {
        c->options.target = "host";
    }
    rc = rc ? rc : read_cache_dtype(c, err);
    rc = rc ? rc : read_quant(c, err);
    rc = rc ? rc : read_activations(c, err);
    return rc ? rc : check_options(c, err);
}

/* The length that the model was trained for; of a model that rotates otherwise in long contexts,
 * the length up to which it does not. */
static uint32_t usual_context(const struct tw_hparams *h) {
    uint32_t n = h->rope_long_factors && h->rope_original_ctx < h->n_ctx_train
                     ? h->rope_original_ctx
                     : h->n_ctx_train;
    return n < MAX_CTX ? n : MAX_CTX;
}

/* import, arch: everything before a target matters. */
int tw_pipeline_frontend(struct compilation *c, const char *path, tw_error *err) {
    int rc = tw_target_open(c->options.target, c->options.host_sites, &c->target, err);
    if (rc == 0) {
        rc = tw_cmem_init(&c->mem, err);
    }
    if (rc == 0) {
        rc = tw_model_open(path, c->options.tokenizer, &c->model, err);
    }
    if (rc) {
        return rc;
    }
    if (c->convert) {
        tw_model_convert(&c->model, c->quant);
    }
    c->graph.mem = &c->mem;
    c->strings.mem = &c->mem;
    c->n_ctx = c->options.n_ctx ? c->options.n_ctx : usual_context(&c->model.h);
    uint64_t position_bytes = (uint64_t)c->model.h.n_layers * c->model.h.n_kv_heads *
                              c->model.h.head_dim * 2 * tw_dtype_block_bytes(c->graph.cache_dtype),
             state_bytes;
    if (!tw_mul_u64(position_bytes, (uint64_t)c->n_ctx + 2 * MAX_PREFILL_ROWS, &state_bytes) ||
        state_bytes >> 46) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: the state of a context of %u tokens (%u layers x %u heads x %u values "
                       "for each token) exceeds 64 TiB; use a smaller -c",
                       path, c->n_ctx, c->model.h.n_layers, c->model.h.n_kv_heads,
                       c->model.h.head_dim);
    }
    if (c->target.state_in_sram) {
        return tw_fail(
            err, TW_E_UNSUPPORTED,
            "target %s keeps State in SRAM (key \"state\"); the compiler can keep caches "
            "in DRAM only",
            c->target.name);
    }
    c->graph.n_ctx = c->n_ctx;
    c->graph.top_k = c->options.top_k;
    rc = tw_pipeline_check_memory(c, path, err);
    rc = rc ? rc : tw_arch_build(&c->model, &c->graph, err);
    if (rc == 0) {
        (void)tw_pin_params(&c->graph, &c->target);
    }
    return rc;
}

void tw_pipeline_finish(struct compilation *c) {
    tw_model_close(&c->model);
    tw_cmem_finish(&c->mem);
}

/* Returns the positions of the caches: a chunk that starts at the last position still writes inside
 * them. */
static uint32_t n_positions(const struct compilation *c) {
    return (c->n_ctx + MAX_PREFILL_ROWS + TW_KV_BLOCK - 1) / TW_KV_BLOCK * TW_KV_BLOCK;
}

/* States that are read through windows keep the positions that a step can see, counted from the
 * last multiple of TW_KEY_SEGMENT before them, so that sums are cut where they are in a whole
 * context; and room for a greedy run, during which the origin stays where it is. Without effect in
 * contexts that are not longer. */
static void set_window(const struct compilation *c, struct tw_section_config *config) {
    uint32_t window = 0;
    for (uint32_t i = 0; i < c->graph.values.n; i++) {
        uint32_t one = c->graph.values.items[i].window;
        window = one > window ? one : window;
    }
    uint64_t n_ctx = (uint64_t)window + TW_KEY_SEGMENT + TW_GREEDY_MAX,
             n = (n_ctx + MAX_PREFILL_ROWS + TW_KV_BLOCK - 1) / TW_KV_BLOCK * TW_KV_BLOCK;
    if (window && n < config->n_positions) {
        config->window_ctx = (uint32_t)n_ctx;
        config->window_positions = (uint32_t)n;
    }
}

static int place_region(struct planned *p, uint32_t region, uint64_t budget, tw_error *err) {
    int rc = tw_low_expand(&p->mid, region, budget, &p->lows[region], err);
    return rc ? rc : tw_low_place(&p->lows[region], err);
}

static int build_section(struct compilation *c, struct planned *p, uint32_t region, tw_error *err) {
    /* As many pages as one sequence takes; a deployment has as many as it wants. */
    struct tw_section_config config = {.n_ctx = c->n_ctx,
                                       .n_positions = n_positions(c),
                                       .kv_pages = n_positions(c) / TW_KV_BLOCK,
                                       .batch = p->batch,
                                       .index = region};
    set_window(c, &config);
    p->sections[region] = tw_cmem_alloc(&c->mem, sizeof **p->sections);
    int rc = tw_section_build(&p->lows[region], &config, &c->strings, p->sections[region], err);
    return rc ? rc : tw_section_prove(p->sections[region], err);
}

/* Carries one plan through to a complete program. */
static int build_program(struct compilation *c, struct planned *p, const char *name, uint32_t rows,
                         tw_error *err) {
    uint32_t own = c->target.class_of[TW_HOLDS_PRIVATE];
    uint64_t shared = tw_pin_shared_bytes(p->graph, &c->target, own, rows),
             sram = c->target.class_bytes[own];
    if (shared >= sram) {
        return tw_fail(err, TW_E_PLACEMENT,
                       "program %s: activations of %u rows need %llu bytes of SRAM, but a site "
                       "of target %s has %llu",
                       name, rows, (unsigned long long)shared, c->target.name,
                       (unsigned long long)sram);
    }
    p->lows = tw_cmem_alloc(&c->mem, c->graph.regions.n * sizeof *p->lows);
    p->sections = tw_cmem_alloc(&c->mem, c->graph.regions.n * sizeof *p->sections);
    int rc = 0;
    /* place everything first: a plan that does not fit fails before any code is generated */
    for (uint32_t r = 0; r < c->graph.regions.n && rc == 0; r++) {
        rc = place_region(p, r, sram - shared, err);
    }
    for (uint32_t r = 0; r < c->graph.regions.n && rc == 0; r++) {
        rc = build_section(c, p, r, err);
    }
    p->program = tw_cmem_alloc(&c->mem, sizeof *p->program);
    struct tw_composition whole = {
        .name = name, .sections = p->sections, .n = c->graph.regions.n, .colour = true};
    return rc ? rc : tw_compose_program(&whole, p->program, err);
}

/* Discards all of an attempt that did not fit, so that the last attempt has as much memory as the
 * first. */
static void discard_attempt(struct compilation *c, size_t used, const struct tw_strpool *strings) {
    tw_strpool_rewind(&c->strings, strings);
    tw_cmem_release(&c->mem, used);
}

/* Plans and builds a program by the cheapest plan that fits: finalists in order, the plainest
 * last. */
static int plan_program(struct compilation *c, struct planned *p, const char *name, uint32_t rows,
                        tw_error *err) {
    const struct tw_strpool strings = c->strings;
    const size_t used = c->mem.used;
    int rc = 0;
    for (uint32_t i = 0; i <= MAX_FINALISTS; i++) {
        int found;
        discard_attempt(c, used, &strings);
        rc = tw_mid_plan(p->graph, &c->target, rows, i < MAX_FINALISTS ? i : TW_PLAN_PLAINEST,
                         &p->mid, &found, err);
        if (rc) {
            return rc;
        }
        if (!found) {
            continue;
        }
        rc = build_program(c, p, name, rows, err);
        if (rc != TW_E_PLACEMENT) {
            return rc;
        }
    }
    return rc;
}

/* Plans a program of up to `rows` rows, with half as many where they do not fit. The number of rows
 * is given in *rows, and part of the name; one that the caller has chosen is tried alone. */
static int plan_rows(struct compilation *c, struct planned *p, const char *name, bool chosen,
                     uint32_t *rows, tw_error *err) {
    int rc = TW_E_PLACEMENT;
    for (uint32_t n = *rows; n >= 1 && rc == TW_E_PLACEMENT; n /= 2) {
        *rows = n;
        rc = plan_program(c, p, tw_cmem_printf(&c->mem, "%s.%u", name, n), n, err);
        if (chosen) {
            break;
        }
    }
    return rc;
}

static int plan_prefill(struct compilation *c, tw_error *err) {
    uint32_t rows = c->options.prefill_rows ? c->options.prefill_rows : MAX_PREFILL_ROWS;
    c->prefill_rows = rows < c->n_ctx ? rows : c->n_ctx;
    c->prefill.graph = &c->graph;
    return plan_rows(c, &c->prefill, "prefill", c->options.prefill_rows != 0, &c->prefill_rows,
                     err);
}

/* The program that gives the logits of all rows. */
static int plan_score(struct compilation *c, tw_error *err) {
    if (!c->options.all_logits) {
        return 0;
    }
    c->score.graph = &c->all_rows;
    c->score_rows = c->prefill_rows < MAX_SCORE_ROWS ? c->prefill_rows : MAX_SCORE_ROWS;
    return plan_rows(c, &c->score, "score", false, &c->score_rows, err);
}

/* Each op that uses a page table through a row of it, of a cache's keys or values, is a use of its
 * own for the device, which has room for so many. */
static bool has_room_for_pages(const struct compilation *c, uint32_t rows) {
    uint32_t states = 0;
    for (uint32_t i = 0; i < c->graph.values.n; i++) {
        states += c->graph.values.items[i].kind == TW_GV_STATE;
    }
    return states <= TW_MAX_PAGE_USES / 2 / rows; /* written and read */
}

/* The programs of 2, 4, ... rows of different sequences, as far as they fit. */
static int plan_batches(struct compilation *c, tw_error *err) {
    int rc = 0;
    for (uint32_t rows = 2; rows < 2 * c->options.batch_rows && rc == 0; rows *= 2) {
        struct planned *p = &c->batch[c->n_batches];
        *p = (struct planned){.graph = &c->all_rows, .batch = true};
        rc = has_room_for_pages(c, rows)
                 ? plan_program(c, p, tw_cmem_printf(&c->mem, "decode.%u", rows), rows, err)
                 : TW_E_PLACEMENT;
        if (rc == 0) {
            c->n_batches++;
            c->batch_rows = rows;
        }
    }
    return rc == TW_E_PLACEMENT ? 0 : rc;
}

int tw_pipeline_plan(struct compilation *c, tw_error *err) {
    c->decode.graph = &c->graph;
    tw_graph_all_rows(&c->graph, &c->all_rows);
    int rc = plan_program(c, &c->decode, "decode", 1, err);
    rc = rc ? rc : plan_prefill(c, err);
    rc = rc ? rc : plan_score(c, err);
    rc = rc ? rc : plan_batches(c, err);
    if (rc == 0 && err) {
        memset(err, 0, sizeof *err); /* attempts that did not fit do not count as a failure */
    }
    return rc;
}

/* Verifies the whole program and computes its certificate, which the loader's own checker then
 * checks before anything is written. */
static int prove_whole(struct compilation *c, struct planned *p, tw_error *err) {
    struct tw_program program = tw_builder_program(p->program);
    int rc = tw_verify_program(&program, NULL, err);
    if (rc == 0) {
        rc = tw_certify(&c->mem, &program, &p->certificate, err);
    }
    return rc ? rc : tw_check_order(&program, &p->certificate, NULL, err);
}

static char *plan_text(struct compilation *c) {
    struct planned *list[MAX_PROGRAMS];
    uint32_t n = tw_pipeline_programs(c, list);
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) {
        return NULL;
    }
    int rc = 0;
    for (uint32_t i = 0; i < n; i++) {
        tw_mid_print(&list[i]->mid, f);
        fprintf(f, "\n");
    }
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        rc = tw_builder_print_report(list[i]->program, f, NULL);
    }
    if (fclose(f) != 0 || rc) {
        free(text);
        return NULL;
    }
    return text;
}

static void fill_report(struct compilation *c, const struct tw_emit_totals *totals,
                        const char *path, double start, double planned,
                        struct tw_compile_report *r) {
    struct stat st;
    snprintf(r->target, sizeof r->target, "%s", c->target.name);
    r->n_sites = tw_target_sites(&c->target);
    r->n_ctx = c->n_ctx;
    r->prefill_rows = c->prefill_rows;
    r->score_rows = c->score_rows;
    r->batch_rows = c->batch_rows;
    r->n_params = totals->n_params;
    r->param_bytes = totals->param_bytes;
    r->state_bytes = totals->state_bytes;
    r->bundle_bytes = stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
    r->plan_s = planned - start;
    r->emit_s = tw_clock_s() - planned;
    r->decode_cycles = (uint64_t)c->decode.mid.cycles;
    r->prefill_cycles = (uint64_t)c->prefill.mid.cycles;
    r->decode_tok_s = c->target.clock_hz / c->decode.mid.cycles;
    r->prefill_tok_s = c->target.clock_hz * c->prefill_rows / c->prefill.mid.cycles;
}

static int emit_all(struct compilation *c, const char *path, struct tw_emit_totals *totals,
                    tw_error *err) {
    struct planned *list[MAX_PROGRAMS];
    struct tw_builder *programs[MAX_PROGRAMS];
    struct tw_certificate certificates[MAX_PROGRAMS];
    uint32_t n = tw_pipeline_programs(c, list);
    for (uint32_t i = 0; i < n; i++) {
        programs[i] = list[i]->program;
    }
    char *plan = plan_text(c);
    struct tw_emit_input in = {.graph = &c->graph,
                               .target = &c->target,
                               .n_programs = n,
                               .programs = programs,
                               .n_ctx = c->n_ctx,
                               .plan = plan,
                               .progress = c->options.progress,
                               .ctx = c->options.ctx};
    if (!plan) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for the text of the plan", path);
    }
    struct tw_emit_spec spec = tw_emit_bind(&in, totals);
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        rc = prove_whole(c, list[i], err);
        certificates[i] = list[i]->certificate;
    }
    if (rc == 0) {
        in.certificates = certificates;
        rc = tw_emit_bundle(&in, &spec, path, err);
    }
    free(plan);
    return rc;
}

int tw_compile_file(const char *model_path, const char *out_path,
                    const struct tw_compile_options *options, struct tw_compile_report *report,
                    tw_error *err) {
    struct compilation c;
    struct tw_emit_totals totals;
    double start = tw_clock_s(), planned = 0;
    int rc = TW_NEED_2(err, model_path, out_path);
    rc = rc || !report ? rc : tw_sized_check(__func__, report, err);
    if (rc) {
        return rc;
    }
    rc = tw_pipeline_begin(&c, __func__, options, err);
    rc = rc ? rc : tw_pipeline_frontend(&c, model_path, err);
    if (rc == 0) {
        rc = tw_pipeline_plan(&c, err);
        planned = tw_clock_s();
    }
    if (rc == 0) {
        rc = emit_all(&c, out_path, &totals, err);
    }
    if (rc == 0 && report) {
        struct tw_compile_report r = {.size = sizeof r};
        fill_report(&c, &totals, out_path, start, planned, &r);
        tw_sized_write(report, &r, sizeof r);
    }
    tw_pipeline_finish(&c);
    return rc;
}
