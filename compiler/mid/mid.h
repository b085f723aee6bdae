/* SPDX-License-Identifier: Apache-2.0
 *
 * The MidProgram: which distributed work realises each operation of a region. A value's type is
 * shape, dtype and layout over the target's sites; work is a list of three primitives over such
 * values:
 *   Copy     change of layout: every site receives the whole value (exchange), or the carried value moves to its name
 *   Compute  one kernel on every owner
 *   Sum      over an axis of independent partials (in the type; the catalogue has no way that uses it, because a product's sum
 *            is defined in ascending k and is never split)
 * Orders and distributions are decided here only.
 */
#ifndef TW_COMPILER_MID_MID_H
#define TW_COMPILER_MID_MID_H

#include "compiler/graph/graph.h"
#include "tilewright/target.h"

/* Columns of a value over sites. parts 0: replicated, every site holds all columns. Otherwise part
 * p holds the columns of its units [p*U/parts, (p+1)*U/parts) of `unit` columns, U =
 * ceil(cols/unit), and lives on site p*n_sites/parts. */
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
void tw_layout_window(struct tw_layout l, uint32_t cols, uint32_t part, uint32_t *first,
                      uint32_t *n);
uint32_t tw_layout_site(struct tw_layout l, uint32_t part, uint32_t n_sites);

/* One way to do an operation: who owns the work, what each activation input must be, what the
 * output is. */
struct tw_way {
    const char *name;
    struct tw_layout owners; /* replicated: every site does all of it */
    /* input i is needed whole on every owner; else in the owners' layout (or a view of the
     * whole) */
    uint8_t needs_all[3];
};
#define TW_MAX_WAYS 6u

typedef uint32_t tw_mvalue_id;
struct tw_mvalue {
    tw_gvalue_id value;
    struct tw_layout layout;
};

enum tw_prim { TW_PRIM_COPY, TW_PRIM_COMPUTE, TW_PRIM_SUM };
struct tw_mstep {
    enum tw_prim prim;
    uint32_t gop; /* COMPUTE: index in graph->ops; COPY: TW_NONE */
    uint32_t way; /* index of the way in the catalogue's order */
    const char *way_name;
    struct tw_layout owners;
    tw_mvalue_id in[3]; /* activations; TW_NONE for weights, states, inputs */
    tw_mvalue_id out;   /* TW_NONE: none */
    uint32_t carry;     /* COPY that moves the carried value to its name */
    double cycles;
};

struct tw_mid_region {
    uint32_t region; /* in graph->regions */
    TW_VEC(struct tw_mvalue) values;
    TW_VEC(struct tw_mstep) steps;
    double cycles; /* of one iteration */
};

struct tw_mid {
    const struct tw_graph *graph;
    const struct tw_target *target;
    uint32_t rows; /* tokens of a step */
    uint32_t n_regions;
    struct tw_mid_region *regions;
    double cycles; /* predicted, of a step */
};

/* catalogue.c: the ways of an operation whose inputs have the given layouts (of activations),
 * plainest first. */
uint32_t tw_strategies(const struct tw_graph *g, const struct tw_gop *op,
                       const struct tw_layout in_layout[3], const struct tw_target *t,
                       struct tw_way ways[TW_MAX_WAYS]);

/* price.c: cycles; the one price function, of local geometry and the target's constants. */
double tw_price_compute(const struct tw_graph *g, const struct tw_gop *op, struct tw_layout owners,
                        uint32_t rows, const struct tw_target *t);
double tw_price_exchange(const struct tw_gvalue *v, struct tw_layout from, uint32_t rows,
                         const struct tw_target *t);

/* beam.c: plans every region. rank 0 is the cheapest plan found, 1, 2, ... the next ones;
 * TW_PLAN_PLAINEST the first way of everything. Errors: INTERNAL. *found is 0 if there is no plan
 * of that rank. */
#define TW_PLAN_PLAINEST 1000u
int tw_mid_plan(const struct tw_graph *g, const struct tw_target *t, uint32_t rows, uint32_t rank,
                struct tw_mid *out, int *found, tw_error *err);

/* check.c, print.c */
int tw_mid_check(const struct tw_mid *mid, tw_error *err);
void tw_mid_print(const struct tw_mid *mid, FILE *out);

#endif
