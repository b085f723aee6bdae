/* SPDX-License-Identifier: Apache-2.0
 *
 * The strategies for each operation: those whose parts are whole blocks, heads and panels on the
 * given sites. The plainest comes first.
 */
#include "compiler/mid/mid.h"

#include <stdbool.h>

void tw_layout_window(struct tw_layout l, uint32_t cols, uint32_t part, uint32_t *first,
                      uint32_t *n) {
    if (l.parts == 0) {
        *first = 0;
        *n = cols;
        return;
    }
    uint64_t units = (cols + l.unit - 1) / l.unit;
    uint64_t from = units * part / l.parts * l.unit, to = units * (part + 1) / l.parts * l.unit;
    *first = (uint32_t)from;
    *n = (uint32_t)((to > cols ? cols : to) - from);
}

uint32_t tw_layout_site(struct tw_layout l, uint32_t part, uint32_t n_sites) {
    return (uint32_t)((uint64_t)part * n_sites / l.parts);
}

struct list {
    struct tw_cmem *mem;
    struct tw_strategy_list *to;
};

static void add(struct list *l, const char *name, struct tw_layout owners, uint8_t all0,
                uint8_t all1, uint8_t all2) {
    tw_strategy_add(l->mem, l->to, &(struct tw_strategy){name, owners, {all0, all1, all2}});
}

static struct tw_layout split(uint32_t parts, uint32_t unit) {
    struct tw_layout l = {parts, unit};
    return l;
}

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Returns true for operations that make each column of their output of the same one of x. */
static bool keeps_columns(const struct tw_gop *op) {
    return op->kind == TW_GOP_BIAS || op->kind == TW_GOP_POS_SCALE || op->kind == TW_GOP_SCALE ||
           ((op->kind == TW_GOP_RMS_NORM || op->kind == TW_GOP_LAYER_NORM) && op->head_dim > 0);
}

/* Returns an operation that needs whole heads of v (rotation, caches, attention), or of what is
 * made of v column by column; NULL if the columns of v may be cut anywhere. */
static const struct tw_gop *head_consumer(const struct tw_graph *g, tw_gvalue_id v) {
    for (uint32_t i = 0; i < g->ops.n; i++) {
        const struct tw_gop *op = &g->ops.items[i];
        if (op->in[0] != v) {
            continue;
        }
        if (op->kind == TW_GOP_ROPE || op->kind == TW_GOP_KV_APPEND ||
            op->kind == TW_GOP_ATTENTION) {
            return op;
        }
        if (keeps_columns(op)) { /* operations come after what they read */
            v = op->out;
        }
    }
    return NULL;
}

/* Layouts by heads: a part is whole query heads, or whole groups of query heads that share a key
 * head. */
static void head_strategies(struct list *l, const struct tw_gop *op, uint32_t sites, uint8_t all0) {
    uint32_t group = op->n_heads / op->n_kv_heads;
    add(l, "heads", split(min_u32(sites, op->n_heads), op->head_dim), all0, 0, 0);
    if (group > 1 && op->n_kv_heads < sites) {
        add(l, "groups", split(min_u32(sites, op->n_kv_heads), op->head_dim * group), all0, 0, 0);
    }
    if (sites > 1) {
        add(l, "heads.half", split((min_u32(sites, op->n_heads) + 1) / 2, op->head_dim), all0, 0,
            0);
    }
}

static void matmul_strategies(struct list *l, const struct tw_graph *g, const struct tw_gop *op,
                              uint32_t sites) {
    const struct tw_gop *heads = head_consumer(g, op->out);
    if (heads) {
        head_strategies(l, heads, sites, 1);
        return;
    }
    uint32_t panels = (uint32_t)tw_panels(g->values.items[op->out].cols);
    /* Units of 32 columns let the consumer of the product quantise its own columns before they are
     * sent. */
    add(l, "rows", split(min_u32(sites, panels), TW_PANEL_ROWS), 1, 0, 0);
    if (panels >= 2) {
        add(l, "rows.32", split(min_u32(sites, (panels + 1) / 2), 2 * TW_PANEL_ROWS), 1, 0, 0);
    }
    if (sites > 1 && panels > 1) {
        add(l, "rows.half", split((min_u32(sites, panels) + 1) / 2, TW_PANEL_ROWS), 1, 0, 0);
    }
}

static void one_or_all(struct list *l, uint32_t cols) {
    add(l, "everywhere", tw_layout_replicated(), 1, 1, 0);
    add(l, "one_site", split(1, cols), 0, 0, 0);
}

/* A norm of heads stays where they were made. A norm of a row needs all of it: on every site, on
 * one, or, if heads are made of it, for their columns where they are needed. */
static void norm_strategies(struct list *l, const struct tw_graph *g, const struct tw_gop *op,
                            struct tw_layout in, uint32_t sites) {
    const struct tw_gop *heads = op->kind == TW_GOP_RMS_NORM ? head_consumer(g, op->out) : NULL;
    if (op->head_dim > 0 && in.parts > 0) {
        add(l, "as_made", in, 0, 0, 0);
    } else if (op->head_dim == 0 && heads) {
        head_strategies(l, heads, sites, 1);
    } else {
        one_or_all(l, g->values.items[op->out].cols);
    }
}

void tw_strategies(const struct tw_graph *g, const struct tw_gop *op,
                   const struct tw_layout in_layout[3], const struct tw_target *t,
                   struct tw_strategy_list *out) {
    struct list l = {g->mem, out};
    out->v.n = 0;
    uint32_t sites = tw_target_sites(t);
    uint32_t cols = op->out == TW_NONE ? 0 : g->values.items[op->out].cols;
    switch (op->kind) {
    case TW_GOP_GATHER:
    case TW_GOP_ROPE_TABLE:
        one_or_all(&l, cols);
        break;
    case TW_GOP_RMS_NORM:
    case TW_GOP_LAYER_NORM:
        norm_strategies(&l, g, op, in_layout[0], sites);
        break;
    case TW_GOP_QUANT:
        add(&l, "everywhere", tw_layout_replicated(), 1, 0, 0);
        if (in_layout[0].parts > 0 &&
            in_layout[0].unit % tw_dtype_block_elems(g->values.items[op->out].dtype) == 0) {
            add(&l, "before_exchange", in_layout[0], 0, 0, 0);
        }
        break;
    case TW_GOP_MATMUL:
        matmul_strategies(&l, g, op, sites);
        break;
    case TW_GOP_ROPE:
    case TW_GOP_KV_APPEND:
        add(&l, "as_made", in_layout[0], 0, 1, 0); /* the table is whole on every site */
        break;
    case TW_GOP_ATTENTION:
        add(&l, "as_made", in_layout[0], 0, 0, 0);
        break;
    case TW_GOP_ADD:
    case TW_GOP_BIAS:
    case TW_GOP_SILU_MUL:
    case TW_GOP_GELU_MUL:
    case TW_GOP_GELU:
    case TW_GOP_SCALE:
    case TW_GOP_POS_SCALE:
        if (in_layout[0].parts > 0) {
            add(&l, "as_made", in_layout[0], 0, 0, 0);
        }
        add(&l, "everywhere", tw_layout_replicated(), 1, 1, 0);
        break;
    case TW_GOP_LAST_ROW:
        add(&l, "everywhere", tw_layout_replicated(), 1, 0, 0);
        break;
    case TW_GOP_OUTPUT:
        add(&l, "as_made", in_layout[0], 0, 0, 0);
        break;
    case TW_GOP_COUNT:
        break;
    }
}
