/* SPDX-License-Identifier: Apache-2.0
 *
 * The search: a beam over a region's operations. A state records, for each value, the layout it was
 * made in and whether a whole copy is on every site. Of states with the same future (equal layouts
 * of all values) only the cheapest is kept. Each surviving state is a complete list of steps,
 * Copies included, linked backwards.
 */
#include "compiler/mid/mid.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BEAM_WIDTH 24u

struct placed {
    struct tw_layout layout;
    tw_mvalue_id made, whole; /* ids in the state's own numbering; TW_NONE: not made (yet) */
};

struct node { /* a step and its predecessor */
    struct node *previous;
    struct tw_mstep step;
};

/* What a state says of the graph's values: as long as the graph, so given back when a state is
 * dropped. Else a search would take memory with the square of the number of regions. */
struct facts {
    struct facts *next_free;
    struct tw_mvalue *values; /* copied when a state branches */
    struct placed *placed;    /* indexed by graph value */
};

struct state {
    double cycles;
    uint32_t order; /* in which the states were created: breaks ties */
    uint32_t n_values;
    struct facts *facts;
    struct node *last;
};

struct states {
    TW_VEC(struct state) v;
};

struct search {
    const struct tw_graph *g;
    const struct tw_target *t;
    struct tw_cmem *mem;
    struct facts *free;
    uint32_t rows, created;
    tw_gvalue_id first, end; /* the region's values are among first .. end - 1 */
};

static struct facts *new_facts(struct search *s) {
    struct facts *f = s->free;
    if (f) {
        s->free = f->next_free;
        return f;
    }
    size_t n = s->g->values.n;
    f = tw_cmem_alloc(s->mem, sizeof *f);
    f->values = tw_cmem_alloc(s->mem, 2 * n * sizeof *f->values);
    f->placed = tw_cmem_alloc(s->mem, n * sizeof *f->placed);
    return f;
}

static void drop(struct search *s, const struct state *st) {
    st->facts->next_free = s->free;
    s->free = st->facts;
}

static void drop_all(struct search *s, struct states *all) {
    for (uint32_t i = 0; i < all->v.n; i++) {
        drop(s, &all->v.items[i]);
    }
    all->v.n = 0;
}

static struct state clone(struct search *s, const struct state *from) {
    struct state to = *from;
    to.facts = new_facts(s);
    memcpy(to.facts->values, from->facts->values, from->n_values * sizeof *to.facts->values);
    memcpy(to.facts->placed, from->facts->placed, s->g->values.n * sizeof *to.facts->placed);
    to.order = s->created++;
    return to;
}

static void append(struct search *s, struct state *st, const struct tw_mstep *step) {
    struct node *node = tw_cmem_alloc(s->mem, sizeof *node);
    node->previous = st->last;
    node->step = *step;
    st->last = node;
    st->cycles += step->cycles;
}

static tw_mvalue_id new_value(struct state *st, tw_gvalue_id v, struct tw_layout layout) {
    st->facts->values[st->n_values] = (struct tw_mvalue){v, layout};
    return st->n_values++;
}

/* Returns the version of v that is whole on every site, inserting the Copy that makes it if there
 * is none. */
static tw_mvalue_id whole(struct search *s, struct state *st, tw_gvalue_id v) {
    struct placed *p = &st->facts->placed[v];
    if (p->whole == TW_NONE) {
        p->whole = new_value(st, v, tw_layout_replicated());
        struct tw_mstep copy = {
            .prim = TW_PRIM_COPY, .gop = TW_NONE, .strategy_name = "exchange", .owners = p->layout};
        copy.in[0] = p->made;
        copy.in[1] = copy.in[2] = TW_NONE;
        copy.out = p->whole;
        copy.cycles = tw_price_exchange(&s->g->values.items[v], p->layout, s->rows, s->t);
        append(s, st, &copy);
    }
    return p->whole;
}

static tw_mvalue_id input_version(struct search *s, struct state *st, tw_gvalue_id v,
                                  const struct tw_strategy *strategy, uint32_t i) {
    const struct placed *p = &st->facts->placed[v];
    if (p->whole != TW_NONE) {
        return p->whole; /* an owner's columns are a view of the whole */
    }
    if (!strategy->needs_all[i] && strategy->owners.parts && p->made != TW_NONE &&
        tw_layout_equal(p->layout, strategy->owners)) {
        return p->made;
    }
    return whole(s, st, v);
}

static void apply(struct search *s, struct state *st, const struct tw_gop *op,
                  const struct tw_strategy *strategy, uint32_t index) {
    struct tw_mstep step = {.prim = TW_PRIM_COMPUTE,
                            .gop = (uint32_t)(op - s->g->ops.items),
                            .strategy = index,
                            .strategy_name = strategy->name,
                            .owners = strategy->owners,
                            .out = TW_NONE};
    for (uint32_t i = 0; i < 3; i++) {
        step.in[i] = TW_NONE;
        if (i < tw_gop_inputs(op->kind) && s->g->values.items[op->in[i]].kind == TW_GV_ACTIVATION) {
            step.in[i] = input_version(s, st, op->in[i], strategy, i);
        }
    }
    if (op->out != TW_NONE) {
        step.out = new_value(st, op->out, strategy->owners);
        st->facts->placed[op->out] = (struct placed){strategy->owners, step.out,
                                                     strategy->owners.parts ? TW_NONE : step.out};
    }
    step.cycles = tw_price_compute(s->g, op, strategy->owners, s->rows, s->t);
    append(s, st, &step);
}

static int by_price(const void *a, const void *b) {
    const struct state *x = a, *y = b;
    if (x->cycles != y->cycles) {
        return x->cycles < y->cycles ? -1 : 1;
    }
    return x->order < y->order ? -1 : x->order > y->order;
}

static int same_future(const struct search *s, const struct state *a, const struct state *b) {
    for (tw_gvalue_id v = s->first; v < s->end; v++) { /* all others are where start() put them */
        const struct placed *x = &a->facts->placed[v], *y = &b->facts->placed[v];
        if ((x->made == TW_NONE) != (y->made == TW_NONE) ||
            (x->whole == TW_NONE) != (y->whole == TW_NONE) ||
            !tw_layout_equal(x->layout, y->layout)) {
            return 0;
        }
    }
    return 1;
}

static bool is_dominated(const struct search *s, const struct state *kept, uint32_t n,
                         const struct state *st) {
    uint32_t k = 0;
    while (k < n && !same_future(s, &kept[k], st)) {
        k++;
    }
    return k < n;
}

/* Sorts states cheapest first, drops dominated ones, and cuts at the beam's width. */
static void prune(struct search *s, struct states *all) {
    struct state *states = all->v.items;
    if (!states) {
        return; /* no way to go on */
    }
    qsort(states, all->v.n, sizeof *states, by_price);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < all->v.n; i++) {
        if (kept == BEAM_WIDTH || is_dominated(s, states, kept, &states[i])) {
            drop(s, &states[i]);
        } else {
            states[kept++] = states[i];
        }
    }
    all->v.n = kept;
}

static void start(struct search *s, uint32_t region, struct state *st) {
    const struct tw_graph *g = s->g;
    *st = (struct state){0};
    st->facts = new_facts(s);
    s->first = g->values.n;
    s->end = 0;
    for (uint32_t v = 0; v < g->values.n; v++) {
        st->facts->placed[v] = (struct placed){tw_layout_replicated(), TW_NONE, TW_NONE};
        const struct tw_gvalue *value = &g->values.items[v];
        if (value->region == region) {
            s->first = v < s->first ? v : s->first;
            s->end = v + 1;
        }
        /* values of earlier regions are whole on every site */
        if (value->shared && value->region != region) {
            tw_mvalue_id id = new_value(st, v, tw_layout_replicated());
            st->facts->placed[v] = (struct placed){tw_layout_replicated(), id, id};
        }
    }
}

/* Makes shared values of the region whole, and copies the value for the next iteration over the
 * carried one. */
static void close_region(struct search *s, struct state *st, uint32_t region) {
    const struct tw_graph *g = s->g;
    const struct tw_gregion *r = &g->regions.items[region];
    for (uint32_t v = 0; v < g->values.n; v++) {
        if (g->values.items[v].shared && g->values.items[v].region == region) {
            whole(s, st, v);
        }
    }
    if (r->carry_out != TW_NONE) {
        struct tw_mstep copy = {
            .prim = TW_PRIM_COPY, .gop = TW_NONE, .strategy_name = "carry", .carry = 1};
        copy.in[0] = whole(s, st, r->carry_out);
        copy.in[1] = copy.in[2] = TW_NONE;
        copy.out = st->facts->placed[r->carry_in].whole;
        copy.cycles = s->t->call_cycles +
                      (double)s->rows * g->values.items[r->carry_in].cols / s->t->vector_per_cycle;
        append(s, st, &copy);
    }
}

/* Expands every state by every strategy of one operation. */
static void expand(struct search *s, const struct tw_gop *op, const struct states *from,
                   int plainest, struct states *to) {
    struct tw_strategy_list list = {{0}};
    for (uint32_t i = 0; i < from->v.n; i++) {
        const struct state *base = &from->v.items[i];
        struct tw_layout in_layout[3] = {{0, 0}, {0, 0}, {0, 0}};
        for (uint32_t k = 0; k < tw_gop_inputs(op->kind); k++) {
            in_layout[k] = base->facts->placed[op->in[k]].layout;
        }
        tw_strategies(s->g, op, in_layout, s->t, &list);
        for (uint32_t k = 0; k < (plainest && list.v.n ? 1 : list.v.n); k++) {
            struct state *next = TW_VEC_PUSH(s->mem, to->v);
            *next = clone(s, base);
            apply(s, next, op, &list.v.items[k], k);
        }
    }
    prune(s, to);
}

static void unroll(struct search *s, const struct state *st, struct tw_mid_region *out) {
    uint32_t n = 0;
    for (const struct node *k = st->last; k; k = k->previous) {
        n++;
    }
    for (uint32_t i = 0; i < n; i++) {
        TW_VEC_PUSH(s->mem, out->steps);
    }
    for (const struct node *k = st->last; k; k = k->previous) {
        out->steps.items[--n] = k->step;
    }
    for (uint32_t i = 0; i < st->n_values; i++) {
        *TW_VEC_PUSH(s->mem, out->values) = st->facts->values[i];
    }
    out->cycles = st->cycles;
}

/* Returns 1; 0 if the region has no plan of that rank (then *out is the last one); -1 if it has no
 * plan at all. */
static int plan_region(struct search *s, uint32_t region, uint32_t rank,
                       struct tw_mid_region *out) {
    const struct tw_gregion *r = &s->g->regions.items[region];
    struct states now = {{0}}, next = {{0}};
    start(s, region, TW_VEC_PUSH(s->mem, now.v));
    for (uint32_t i = 0; i < r->n_ops; i++) {
        expand(s, &s->g->ops.items[r->first_op + i], &now, rank == TW_PLAN_PLAINEST, &next);
        drop_all(s, &now);
        struct states swap = now;
        now = next;
        next = swap;
    }
    for (uint32_t i = 0; i < now.v.n; i++) {
        close_region(s, &now.v.items[i], region);
    }
    if (now.v.n == 0) {
        return -1;
    }
    qsort(now.v.items, now.v.n, sizeof *now.v.items, by_price);
    uint32_t pick = rank == TW_PLAN_PLAINEST ? 0 : rank;
    bool exists = pick < now.v.n;
    unroll(s, &now.v.items[exists ? pick : now.v.n - 1], out);
    drop_all(s, &now);
    return exists;
}

int tw_mid_plan(const struct tw_graph *g, const struct tw_target *t, uint32_t rows, uint32_t rank,
                struct tw_mid *out, int *found, tw_error *err) {
    struct search s = {.g = g, .t = t, .mem = g->mem, .rows = rows};
    *out = (struct tw_mid){.graph = g, .target = t, .rows = rows, .n_regions = g->regions.n};
    out->regions = tw_cmem_alloc(g->mem, g->regions.n * sizeof *out->regions);
    *found = 0;
    for (uint32_t r = 0; r < g->regions.n; r++) {
        out->regions[r].region = r;
        int exists = plan_region(&s, r, rank, &out->regions[r]);
        if (exists < 0) {
            return tw_fail(err, TW_E_INTERNAL,
                           "mid: no plan for region %s: an operation has no strategy",
                           g->regions.items[r].name);
        }
        *found |= exists;
        out->cycles += out->regions[r].cycles * g->regions.items[r].repeat;
    }
    return tw_mid_check(out, err);
}
