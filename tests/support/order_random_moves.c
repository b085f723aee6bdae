/* SPDX-License-Identifier: Apache-2.0
 *
 * Movement in random programs (order_random_internal.h): to other sites, between tensors, inside a
 * site.
 */
#include "tests/support/order_random_internal.h"

static struct tw_affine zero(void) {
    return tw_affine_const(0);
}

/* A site sends its x0 to the x1 of all, or of one, which may be another one, on another chip; MATH
 * of each waits for the flag. */
void order_multicast(struct gen *g) {
    if (g->care == 0) { /* before a section's loop there are no flags */
        return;
    }
    uint32_t site = below(g, g->sites), k = order_new_flag(g),
             store = site * TW_ENGINE_COUNT + TW_ENGINE_STORE, first = 0, end = g->sites;
    if (!is_active(g, site, TW_ENGINE_STORE) || !g->touch[0][site].written) {
        return;
    }
    if (g->b->p.n_chips > 1 || below(g, 4) == 0) {
        first = below(g, g->sites);
        end = first + 1;
    }
    uint32_t group = end - first < g->sites || g->b->p.n_chips > 1 ? 1 + first : 0;
    order_before_access(g, 0, site, store, false);
    for (uint32_t s = first; s < end; s++) {
        order_before_access(g, 1, s, store, true);
    }
    block(g, site, TW_ENGINE_STORE);
    PB_OP(g->b, MCAST, pb_on(id(g, g->plain[X0]), 0), pb_id(PAGE), pb_on(id(g, g->plain[X1]), 0),
          pb_id(PAGE), pb_id(PAGE), pb_rows(TW_NONE, 1), pb_id(group));
    PB_OP(g->b, MCAST_SET, pb_id(g->flags[k]), pb_id(group));
    for (uint32_t s = first; s < end; s++) {
        g->flag_count[k][s]++;
        if (is_active(g, s, TW_ENGINE_MATH) && below(g, 16) < g->care) {
            block(g, s, TW_ENGINE_MATH);
            PB_OP(g->b, SEM_WAIT, pb_id(g->flags[k]), pb_num(tw_affine_const(g->flag_count[k][s])));
        }
    }
}

/* A site sends its x0, or a part of it, to the x1 of the other; the flag is a block of its own, so
 * that the two may come apart. */
void order_send(struct gen *g) {
    uint32_t site = below(g, g->sites), other = 1 - site,
             store = site * TW_ENGINE_COUNT + TW_ENGINE_STORE;
    if (g->care == 0 || g->sites != 2 || !is_active(g, site, TW_ENGINE_STORE) ||
        !g->touch[0][site].written) {
        return;
    }
    uint32_t k = order_new_flag(g), part = below(g, 6) == 0 ? PAGE / 2 : PAGE;
    order_before_access(g, 0, site, store, false);
    order_before_access(g, 1, other, store, true);
    block(g, site, TW_ENGINE_STORE);
    PB_OP(g->b, SEND, pb_on(id(g, g->plain[X0]), PAGE - part), pb_id(PAGE),
          pb_on(g->plain[X1] + other, 0), pb_id(PAGE), pb_id(part), pb_rows(TW_NONE, 1));
    if (below(g, 16) >= g->care) {
        return;
    }
    if (below(g, 2)) {
        block(g, site, TW_ENGINE_STORE);
    }
    PB_OP(g->b, SEM_INC, pb_id(g->flags[k]), pb_id(other), pb_id(1));
    g->flag_count[k][other]++;
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        if (is_active(g, other, e) && below(g, 16) < g->care) {
            block(g, other, e);
            PB_OP(g->b, SEM_WAIT, pb_id(g->flags[k]),
                  pb_num(tw_affine_const(g->flag_count[k][other])));
        }
    }
}

/* LOAD or STORE copies a row to a tensor, or one half of "state" to the other. */
void order_dram_copy(struct gen *g) {
    uint32_t site = below(g, g->sites), engine = below(g, 2) ? TW_ENGINE_LOAD : TW_ENGINE_STORE,
             bytes = PAGE / 2;
    if (!is_active(g, site, engine)) {
        return;
    }
    block(g, site, engine);
    if (below(g, 3) == 0) { /* out of a page, or into one, or both */
        uint32_t which = below(g, 3), row = below(g, 2) * PAGE;
        struct tw_operand from = pb_of(T_IN, zero(), tw_affine_const(row)),
                          to = pb_of(T_OUT, zero(), tw_affine_const(site * PAGE));
        from = which ? order_in_ring(g) : from;
        to = which == 2 ? to : order_in_ring(g);
        PB_OP(g->b, DRAM_COPY, from, pb_id(PAGE), to, pb_id(PAGE), pb_id(PAGE),
              pb_rows(TW_NONE, 1));
        return;
    }
    if (below(g, 4) == 0) {
        PB_OP(g->b, DRAM_COPY, pb_of(T_STATE, zero(), zero()), pb_id(bytes),
              pb_of(T_STATE, zero(), tw_affine_const(bytes)), pb_id(bytes), pb_id(bytes),
              pb_rows(TW_NONE, 1));
        return;
    }
    uint32_t row = below(g, 4) ? site : below(g, OUT_ROWS), first = below(g, 2) * PAGE,
             instance = below(g, 2);
    PB_OP(g->b, DRAM_COPY, pb_of(T_IN, zero(), tw_affine_const(first)), pb_id(PAGE),
          pb_of(T_OUT, tw_affine_const(instance), tw_affine_const(row * PAGE)), pb_id(PAGE),
          pb_id(PAGE), pb_rows(TW_NONE, 1));
}

/* STORE sends its x0 to the other site's x1 in each iteration, as far ahead as the credit lets it;
 * MATH or STORE there reads it in a loop of its own. */
void order_send_loop(struct gen *g) {
    uint32_t site = below(g, g->sites), other = 1 - site, count = 2 + below(g, 3),
             to = 1 + below(g, 2), store = site * TW_ENGINE_COUNT + TW_ENGINE_STORE,
             reader = other * TW_ENGINE_COUNT + to;
    if (g->care == 0 || g->streamed || g->sites != 2 || !g->active[store] || !g->active[reader] ||
        !g->touch[0][site].written) {
        return;
    }
    g->streamed = true;
    order_before_access(g, 0, site, store, false);
    order_before_access(g, 1, other, store, true);
    order_loop_begin(g, site, TW_ENGINE_STORE, TW_NONE, count);
    order_loop_begin(g, other, to, TW_NONE, count);
    g->depth++;
    go(g, site, TW_ENGINE_STORE);
    order_overlap_wait(g, g->ready, 1, 1, count);
    PB_OP(g->b, SEND, pb_on(id(g, g->plain[X0]), 0), pb_id(PAGE), pb_on(g->plain[X1] + other, 0),
          pb_id(PAGE), pb_id(PAGE), pb_rows(TW_NONE, 1));
    PB_OP(g->b, SEM_INC, pb_id(g->valid), pb_id(other), pb_id(1));
    go(g, other, to);
    order_overlap_wait(g, g->valid, 1, 1, count);
    order_consume(g, id(g, g->plain[X1]));
    PB_OP(g->b, SEM_INC, pb_id(g->ready), pb_id(site), pb_id(1));
    g->depth--;
    go(g, site, TW_ENGINE_STORE);
    pb_end(g->b);
    go(g, other, to);
    pb_end(g->b);
    g->touch[1][other] =
        (struct touch){.written = true, .read = true, .writer = store, .reader = reader};
    g->out->has_flag = true;
    g->out->has_loop = true;
}

/* Any engine copies x0 to x1. */
void order_copy(struct gen *g) {
    uint32_t site = below(g, g->sites), engine = below(g, 4) % 3,
             stream = site * TW_ENGINE_COUNT + engine;
    if (!g->active[stream] || !g->touch[0][site].written) {
        return;
    }
    order_before_access(g, 0, site, stream, false);
    order_before_access(g, 1, site, stream, true);
    block(g, site, engine);
    PB_OP(g->b, COPY, pb_on(id(g, g->plain[X0]), 0), pb_id(PAGE), pb_on(id(g, g->plain[X1]), 0),
          pb_id(PAGE), pb_id(PAGE), pb_rows(TW_NONE, 1));
}
