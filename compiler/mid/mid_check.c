/* SPDX-License-Identifier: Apache-2.0
 *
 * The MidProgram's checker and printer: every step's inputs are made before it, in a layout that
 * its owners can use.
 */
#include "compiler/mid/mid.h"

static int bad(const struct tw_mid *m, const struct tw_mid_region *r, uint32_t step, tw_error *err,
               const char *what) {
    return tw_fail(err, TW_E_INTERNAL, "mid: %s step %u: %s",
                   m->graph->regions.items[r->region].name, step, what);
}

static int check_step(const struct tw_mid *m, const struct tw_mid_region *r, uint32_t i,
                      uint8_t *made, tw_error *err) {
    const struct tw_mstep *s = &r->steps.items[i];
    if (s->prim == TW_PRIM_SUM) { /* expansion knows Copy and Compute only */
        return bad(m, r, i, err, "a Sum of partials cannot be expanded");
    }
    for (uint32_t k = 0; k < 3; k++) {
        if (s->in[k] == TW_NONE) {
            continue;
        }
        if (s->in[k] >= r->values.n || !made[s->in[k]]) {
            return bad(m, r, i, err, "an input is used before it is made");
        }
        struct tw_layout l = r->values.items[s->in[k]].layout;
        if (s->prim == TW_PRIM_COMPUTE && l.parts && !tw_layout_equal(l, s->owners)) {
            return bad(m, r, i, err, "an input's layout differs from the owners' layout");
        }
    }
    if (s->prim == TW_PRIM_COPY && r->values.items[s->out].layout.parts) {
        return bad(m, r, i, err, "a Copy's result is not whole");
    }
    if (s->out != TW_NONE) {
        if (made[s->out] && !s->carry) {
            return bad(m, r, i, err, "its output is made twice");
        }
        made[s->out] = 1;
    }
    return 0;
}

int tw_mid_check(const struct tw_mid *m, tw_error *err) {
    for (uint32_t k = 0; k < m->n_regions; k++) {
        const struct tw_mid_region *r = &m->regions[k];
        uint8_t *made = tw_cmem_alloc(m->graph->mem, r->values.n + 1);
        for (uint32_t v = 0; v < r->values.n; v++) {
            const struct tw_gvalue *g = &m->graph->values.items[r->values.items[v].value];
            made[v] = g->shared && g->region != k;
        }
        for (uint32_t i = 0; i < r->steps.n; i++) {
            int rc = check_step(m, r, i, made, err);
            if (rc) {
                return rc;
            }
        }
    }
    return 0;
}

static void print_value(const struct tw_mid *m, const struct tw_mid_region *r, tw_mvalue_id id,
                        FILE *out) {
    const struct tw_mvalue *v = &r->values.items[id];
    const struct tw_gvalue *g = &m->graph->values.items[v->value];
    fprintf(out, "%%%s:%s", g->name, tw_dtype_name(g->dtype));
    if (v->layout.parts) {
        fprintf(out, "<%u x %u>", v->layout.parts, v->layout.unit);
    } else {
        fprintf(out, "<all>");
    }
}

static void print_step(const struct tw_mid *m, const struct tw_mid_region *r,
                       const struct tw_mstep *s, FILE *out) {
    static const char *const prims[] = {"copy", "compute", "sum"};
    fprintf(out, "    ");
    if (s->out != TW_NONE) {
        print_value(m, r, s->out, out);
        fprintf(out, " = ");
    }
    fprintf(out, "%s", prims[s->prim]);
    if (s->gop != TW_NONE) {
        fprintf(out, " %s", tw_gop_name(m->graph->ops.items[s->gop].kind));
    }
    fprintf(out, " %s", s->strategy_name);
    for (uint32_t k = 0; k < 3; k++) {
        if (s->in[k] != TW_NONE) {
            fprintf(out, " ");
            print_value(m, r, s->in[k], out);
        }
    }
    fprintf(out, "  # %.0f cycles\n", s->cycles);
}

void tw_mid_print(const struct tw_mid *m, FILE *out) {
    fprintf(out, "mid rows %u target %s sites %u  # %.0f cycles per step\n", m->rows,
            m->target->name, tw_target_sites(m->target), m->cycles);
    for (uint32_t k = 0; k < m->n_regions; k++) {
        const struct tw_mid_region *r = &m->regions[k];
        const struct tw_gregion *g = &m->graph->regions.items[r->region];
        fprintf(out, "\nregion %s repeat %u {  # %.0f cycles per iteration\n", g->name, g->repeat,
                r->cycles);
        for (uint32_t i = 0; i < r->steps.n; i++) {
            print_step(m, r, &r->steps.items[i], out);
        }
        fprintf(out, "}\n");
    }
}
