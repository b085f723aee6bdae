/* SPDX-License-Identifier: Apache-2.0
 *
 * The bound on the memory that planning a model takes, computed from its shape and the target
 * before planning starts.
 */
#include "compiler/memory.h"

#include "compiler/arch/layers.h"
#include "compiler/pipeline_internal.h"

#include <stdbool.h>
#include <stdio.h>

#define KIB ((uint64_t)1 << 10)

static const uint64_t search = 4096 * KIB;

/* Storages, buffers, stages, code of a site; sends to each chip. */
static uint64_t site_bytes(const struct tw_target *t) {
    return 128 * KIB + (t->n_chips - 1) * 6 * KIB;
}

/* Attention code of the key heads; one more per site: the query heads of one key head may be on
 * several sites. */
static uint64_t head_bytes(const struct tw_hparams *h, const struct tw_target *t) {
    return ((uint64_t)h->n_kv_heads + tw_target_sites(t)) * 8 * KIB;
}

/* A batch's attention is emitted row by row. */
static uint64_t batch_bytes(const struct tw_hparams *h, const struct tw_target *t,
                            uint32_t n_bodies, uint32_t rows) {
    const uint64_t row = 4 * KIB; /* code of a site */
    uint64_t sites = tw_target_sites(t) * (site_bytes(t) + rows * row);
    return search + n_bodies * (sites + rows * head_bytes(h, t));
}

uint64_t tw_compile_memory(const struct tw_hparams *h, const struct tw_target *t, uint32_t n_bodies,
                           uint32_t batch_rows) {
    const uint64_t layer = 8 * KIB; /* symbols */
    uint64_t widest = (uint64_t)h->dim + h->hidden + (uint64_t)h->n_heads * h->head_dim;
    /* fill.c: panels that are cut by the pieces of the file, and rows to convert and converted */
    uint64_t panels = 3 * widest * TW_PANEL_ROWS * 4;
    uint64_t body = tw_target_sites(t) * site_bytes(t) + head_bytes(h, t);
    uint64_t bytes = 2 * (search + n_bodies * body) + h->n_layers * layer + panels;
    for (uint32_t rows = 2; rows < 2 * batch_rows; rows *= 2) {
        bytes += batch_bytes(h, t, n_bodies, rows);
    }
    return bytes;
}

/* Returns how many layers the bodies of the graph's regions are. */
static uint32_t layer_bodies(struct compilation *c) {
    struct tw_layer_groups groups = {{0}};
    uint32_t n = 0;
    tw_layer_groups(&c->model, &c->mem, &groups);
    for (uint32_t i = 0; i < groups.v.n; i++) {
        n += groups.v.items[i].period;
    }
    return n;
}

int tw_pipeline_check_memory(struct compilation *c, const char *path, tw_error *err) {
    const struct tw_hparams *h = &c->model.h;
    uint32_t bodies = layer_bodies(c);
    uint64_t have = c->mem.size, pair = tw_compile_memory(h, &c->target, bodies, 0),
             need = tw_compile_memory(h, &c->target, bodies, c->options.batch_rows);
    need += h->query_slope != 0.0f ? (uint64_t)c->n_ctx * 8 : 0; /* factors by position */
    need += c->options.all_logits ? pair / 2 : 0;                /* three programs, not two */
    if (need <= have) {
        return 0;
    }
    return tw_fail(
        err, TW_E_NOMEM,
        "%s: planning %u key heads and %u layers for %u sites can take %llu MiB of addresses, but "
        "only %llu MiB are available; raise the limit (ulimit -v) or use a target with fewer sites",
        path, c->model.h.n_kv_heads, c->model.h.n_layers, tw_target_sites(&c->target),
        (unsigned long long)(need >> 20), (unsigned long long)(have >> 20));
}
