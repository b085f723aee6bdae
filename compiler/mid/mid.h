/* SPDX-License-Identifier: Apache-2.0
 *
 * The MidProgram: the distributed work that realises each operation of a region. A value's type is
 * shape, dtype and layout over the target's sites; work is a list of three primitives over such
 * values:
 *   Copy     change of layout: every site receives the whole value (exchange); or, at the end of a
 *            region, the value for the next iteration is copied over the carried one (carry)
 *   Compute  one kernel on every owner
 *   Sum      over an axis of independent partials (part of the type, but no strategy makes one and
 *            the checker refuses it)
 * No later stage changes the order of the work or its distribution over sites.
 */
#ifndef TW_COMPILER_MID_MID_H
#define TW_COMPILER_MID_MID_H

#include "compiler/graph/graph.h"
#include "tilewright/target.h"

#include <string.h>

/* Columns of a value over sites. parts 0: replicated, every site holds all columns. Otherwise the U
 * = ceil(cols/unit) units of `unit` columns are divided: part p holds the units [p*U/parts,
 * (p+1)*U/parts) and resides on site p*n_sites/parts. */
struct tw_layout {
    uint32_t parts, unit;
};
static inline struct tw_layout tw_layout_replicated(void) {
    struct tw_layout l = {0, 0};
    return l;
}
static inline int tw_layout_equal(struct tw_layout a, struct tw_layout b) {
    return a.parts == b.parts && (a.parts == 0 || a.unit == b.unit);
}
/* Stores the columns [*first, *first + *n) of a part; *n may be 0. */
void tw_layout_window(struct tw_layout l, uint32_t cols, uint32_t part, uint32_t *first,
                      uint32_t *n);
/* Returns the site of a part; the layout must not be replicated. */
uint32_t tw_layout_site(struct tw_layout l, uint32_t part, uint32_t n_sites);

/* One strategy for an operation: which sites own the work, and in which layout each activation
 * input must be. The output is in the owners' layout. */
struct tw_strategy {
    const char *name;
    struct tw_layout owners; /* replicated: every site does all of it */
    /* 1: input i must be whole on every owner; 0: in the owners' layout (or a view of the whole) */
    uint8_t needs_all[3];
};

/* The strategies for an operation, in the arena of its graph: as many as there are. */
struct tw_strategy_list {
    TW_VEC(struct tw_strategy) v;
};

/* Appends a strategy to a list, unless an equal one (same owners, same needs) is in it already. */
static inline void tw_strategy_add(struct tw_cmem *mem, struct tw_strategy_list *list,
                                   const struct tw_strategy *strategy) {
    for (uint32_t i = 0; i < list->v.n; i++) {
        const struct tw_strategy *known = &list->v.items[i];
        if (tw_layout_equal(known->owners, strategy->owners) &&
            !memcmp(known->needs_all, strategy->needs_all, sizeof known->needs_all)) {
            return;
        }
    }
    *TW_VEC_PUSH(mem, list->v) = *strategy;
}

typedef uint32_t tw_mvalue_id;
struct tw_mvalue {
    tw_gvalue_id value;
    struct tw_layout layout;
};

enum tw_prim { TW_PRIM_COPY, TW_PRIM_COMPUTE, TW_PRIM_SUM };
/* One primitive of a region's plan. */
struct tw_mstep {
    enum tw_prim prim;
    uint32_t gop;      /* COMPUTE: index in graph->ops; COPY: TW_NONE */
    uint32_t strategy; /* index into the strategies of the operation, in tw_strategies()'s order */
    const char *strategy_name;
    struct tw_layout owners;
    tw_mvalue_id in[3]; /* activations; TW_NONE for weights, states and inputs */
    tw_mvalue_id out;   /* TW_NONE: none */
    uint32_t carry;     /* 1: the COPY that updates the carried value */
    double cycles;
};

struct tw_mid_region {
    uint32_t region; /* in graph->regions */
    TW_VEC(struct tw_mvalue) values;
    TW_VEC(struct tw_mstep) steps;
    double cycles; /* of one iteration, predicted */
};

struct tw_mid {
    const struct tw_graph *graph;
    const struct tw_target *target;
    uint32_t rows; /* tokens per step */
    uint32_t n_regions;
    struct tw_mid_region *regions;
    double cycles; /* per step, predicted */
};

/* strategies.c: stores the strategies of an operation whose activation inputs have the given
 * layouts, plainest first, in *out (whatever it held is forgotten). */
void tw_strategies(const struct tw_graph *g, const struct tw_gop *op,
                   const struct tw_layout in_layout[3], const struct tw_target *t,
                   struct tw_strategy_list *out);

/* price.c: the cost model. Both return cycles, computed from local geometry and the target's
 * constants: of an operation on its slowest owner, and of the exchange that makes a value whole on
 * every site. */
double tw_price_compute(const struct tw_graph *g, const struct tw_gop *op, struct tw_layout owners,
                        uint32_t rows, const struct tw_target *t);
double tw_price_exchange(const struct tw_gvalue *v, struct tw_layout from, uint32_t rows,
                         const struct tw_target *t);

/* beam.c: plans every region for steps of `rows` tokens. rank 0 is the cheapest plan found, 1, 2,
 * ... the next ones; TW_PLAN_PLAINEST takes the first strategy everywhere. *found is 0 if there is
 * no plan of that rank (*out is then the last one). Everything is allocated in the graph's arena.
 * Errors: INTERNAL. */
#define TW_PLAN_PLAINEST 1000u
int tw_mid_plan(const struct tw_graph *g, const struct tw_target *t, uint32_t rows, uint32_t rank,
                struct tw_mid *out, int *found, tw_error *err);

/* mid_check.c: checks that every step's inputs are made before it in a layout that its owners can
 * use (Errors: INTERNAL), and prints the plan (`dump --stage mid`). */
int tw_mid_check(const struct tw_mid *mid, tw_error *err);
void tw_mid_print(const struct tw_mid *mid, FILE *out);

#endif
