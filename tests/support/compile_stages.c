/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the compiler's stages (compile_stages.h).
 */
#include "tests/support/compile_stages.h"
#include "loader/target/target_open.h"

#include "compiler/low/pin_params.h"

#include <string.h>

int pipeline_init(struct pipeline *p, const struct tw_model *model, const char *target,
                  uint32_t host_sites, tw_error *err) {
    memset(p, 0, sizeof *p);
    uint32_t n_ctx = model->h.n_ctx_train;
    p->config.n_ctx = n_ctx;
    p->config.n_positions = (n_ctx + 128 + TW_KV_BLOCK - 1) / TW_KV_BLOCK * TW_KV_BLOCK;
    p->graph.mem = p->strings.mem = &p->mem;
    int rc = tw_target_open(target, host_sites, &p->target, err);
    rc = rc ? rc : tw_cmem_init(&p->mem, err);
    p->graph.n_ctx = n_ctx;
    return rc ? rc : tw_arch_build(model, &p->graph, err);
}

void pipeline_finish(struct pipeline *p) {
    tw_cmem_finish(&p->mem);
}

uint64_t pipeline_budget(const struct pipeline *p, uint32_t rows) {
    uint64_t shared = 0;
    for (uint32_t v = 0; v < p->graph.values.n; v++) {
        const struct tw_gvalue *g = &p->graph.values.items[v];
        shared += g->resident ? tw_pinned_stride(g) * g->instances : 0;
        shared +=
            g->shared ? (g->token_rows ? rows : 1) * ((uint64_t)g->cols * 4 + 127) / 64 * 64 : 0;
    }
    return shared < p->target.class_bytes[0] ? p->target.class_bytes[0] - shared : 0;
}

int pipeline_low(const struct tw_mid *mid, uint32_t region, uint64_t budget, struct tw_low *out,
                 tw_error *err) {
    int rc = tw_low_expand(mid, region, budget, out, err);
    return rc ? rc : tw_low_place(out, err);
}

static int build_section(struct pipeline *p, struct pipeline_program *out, uint32_t region,
                         tw_error *err) {
    struct tw_section_config config = p->config;
    config.index = region;
    int rc =
        pipeline_low(&out->mid, region, pipeline_budget(p, out->rows), &out->lows[region], err);
    if (rc == 0) {
        out->sections[region] = tw_cmem_alloc(&p->mem, sizeof **out->sections);
        rc = tw_section_build(&out->lows[region], &config, &p->strings, out->sections[region], err);
    }
    return rc;
}

int pipeline_program(struct pipeline *p, uint32_t rows, uint32_t rank, struct pipeline_program *out,
                     tw_error *err) {
    int found;
    memset(out, 0, sizeof *out);
    out->rows = rows;
    if (pipeline_budget(p, rows) == 0) {
        return tw_fail(err, TW_E_PLACEMENT, "pipeline: activations of %u rows do not fit", rows);
    }
    out->graph = p->graph;
    if (p->config.batch || p->all_logits) {
        tw_graph_all_rows(&p->graph, &out->graph);
    }
    int rc = tw_mid_plan(&out->graph, &p->target, rows, rank, &out->mid, &found, err);
    out->lows = tw_cmem_alloc(&p->mem, p->graph.regions.n * sizeof *out->lows);
    out->sections = tw_cmem_alloc(&p->mem, p->graph.regions.n * sizeof *out->sections);
    for (uint32_t r = 0; r < p->graph.regions.n && rc == 0; r++) {
        rc = build_section(p, out, r, err);
    }
    const char *name = tw_cmem_printf(&p->mem,
                                      p->config.batch ? "decode.%u"
                                      : p->all_logits ? "score.%u"
                                      : rows == 1     ? "decode"
                                                      : "prefill.%u",
                                      rows);
    return rc ? rc : tw_compose(out->sections, p->graph.regions.n, name, &out->program, err);
}
