/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model: cycles from local geometry and the target's constants. The slowest owner counts.
 */
#include "compiler/mid/mid.h"

/* Keys in the cache for which attention is priced: a typical context. */
#define PRICED_KEYS 256.0

static double max_d(double a, double b) {
    return a > b ? a : b;
}

/* Returns how many owners the fullest chip has: they are spread evenly over the sites. */
static uint32_t on_fullest_chip(uint32_t owners, const struct tw_target *t) {
    return owners ? (owners + t->n_chips - 1) / t->n_chips : 1;
}

/* Returns the cycles to stream `bytes` on one of `owners` sites that all stream at once from the
 * banks of their chips. */
static double load_cycles(double bytes, uint32_t owners, const struct tw_target *t) {
    double share = t->dram_bytes_per_cycle / on_fullest_chip(owners, t);
    return bytes / (share < t->site_load_bytes_per_cycle ? share : t->site_load_bytes_per_cycle);
}

static double matmul_cycles(const struct tw_gvalue *x, const struct tw_gvalue *w, uint32_t n_cols,
                            uint32_t owners, uint32_t rows, const struct tw_target *t) {
    double panels = (double)tw_panels(n_cols);
    double load = load_cycles(panels * (double)tw_panel_bytes(w->dtype, w->cols), owners, t);
    double rate = tw_dtype_is_activation(x->dtype) ? t->int8_mac_per_cycle : t->fma_per_cycle;
    return max_d(load, rows * panels * TW_PANEL_ROWS * (double)w->cols / rate);
}

static double attention_cycles(const struct tw_graph *g, const struct tw_gop *op, uint32_t n_cols,
                               uint32_t owners, uint32_t rows, const struct tw_target *t) {
    double position = (double)tw_row_bytes(g->values.items[op->in[1]].dtype, 2 * op->head_dim);
    double heads = (double)n_cols / op->head_dim, group = (double)op->n_heads / op->n_kv_heads;
    double kv_heads = heads < group ? 1.0 : heads / group;
    double keys = op->window && op->window < PRICED_KEYS ? op->window : PRICED_KEYS;
    double load = load_cycles(kv_heads * PRICED_KEYS * position, owners, t); /* of all blocks */
    double math =
        rows * heads * keys * (2.0 * op->head_dim / t->fma_per_cycle + 4.0 / t->vector_per_cycle);
    /* the states of a longer context's segments are merged at the end */
    double merge = g->n_ctx > TW_KEY_SEGMENT ? rows * heads * 2.0 * op->head_dim : 0.0;
    return max_d(load, math) + merge / t->vector_per_cycle;
}

double tw_price_compute(const struct tw_graph *g, const struct tw_gop *op, struct tw_layout owners,
                        uint32_t rows, const struct tw_target *t) {
    tw_gvalue_id shape = op->out == TW_NONE ? op->in[0] : op->out;
    const struct tw_gvalue *v = &g->values.items[shape];
    uint32_t n_owners = owners.parts ? owners.parts : tw_target_sites(t), widest = 0;
    uint32_t value_rows = v->token_rows ? rows : 1;
    for (uint32_t p = 0; p < (owners.parts ? owners.parts : 1); p++) {
        uint32_t first, n;
        tw_layout_window(owners, v->cols, p, &first, &n);
        widest = n > widest ? n : widest;
    }
    double elements = (double)value_rows * widest;
    switch (op->kind) {
    case TW_GOP_MATMUL:
        return t->call_cycles + matmul_cycles(&g->values.items[op->in[0]],
                                              &g->values.items[op->in[1]], widest, n_owners,
                                              value_rows, t);
    case TW_GOP_ATTENTION:
        return t->call_cycles + attention_cycles(g, op, widest, n_owners, value_rows, t);
    case TW_GOP_SILU_MUL:
    case TW_GOP_GELU_MUL:
    case TW_GOP_GELU:
        return t->call_cycles + 4.0 * elements / t->vector_per_cycle; /* the exponential */
    case TW_GOP_RMS_NORM:
    case TW_GOP_LAYER_NORM:
        return t->call_cycles + 2.0 * elements / t->vector_per_cycle;
    case TW_GOP_KV_APPEND:
    case TW_GOP_OUTPUT:
        return t->call_cycles + load_cycles(4.0 * elements, n_owners, t);
    case TW_GOP_GATHER:
        return t->call_cycles + load_cycles(4.0 * elements, n_owners, t);
    case TW_GOP_ROPE_TABLE:
    case TW_GOP_QUANT:
    case TW_GOP_ROPE:
    case TW_GOP_ADD:
    case TW_GOP_BIAS:
    case TW_GOP_SCALE:
    case TW_GOP_POS_SCALE:
    case TW_GOP_LAST_ROW:
    case TW_GOP_COUNT:
        break;
    }
    return t->call_cycles + elements / t->vector_per_cycle;
}

/* Returns the cycles on the links between chips: the fullest chip sends its parts to every other
 * chip, and each receives the parts of all others. */
static double link_cycles(double bytes, uint32_t parts, const struct tw_target *t) {
    double own = bytes * on_fullest_chip(parts, t) / parts, out = own * (t->n_chips - 1),
           in = bytes - own;
    return t->chip_link_cycles + max_d(out, in) / t->chip_link_bytes_per_cycle;
}

/* Every part is multicast to all sites, one chip after the other: the bytes cross each site's link
 * once, and each sender raises one flag per chip. */
double tw_price_exchange(const struct tw_gvalue *v, struct tw_layout from, uint32_t rows,
                         const struct tw_target *t) {
    uint32_t block = tw_dtype_block_elems(v->dtype);
    double bytes = (double)(v->token_rows ? rows : 1) *
                   (double)tw_row_bytes(v->dtype, ((uint64_t)v->cols + block - 1) / block * block);
    double on_chip =
        t->sync_cycles + 2.0 * (from.parts + t->n_chips - 1) + bytes / t->link_bytes_per_cycle;
    return t->n_chips > 1 && from.parts ? on_chip + link_cycles(bytes, from.parts, t) : on_chip;
}
