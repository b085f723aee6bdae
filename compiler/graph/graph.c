/* SPDX-License-Identifier: Apache-2.0
 *
 * The ComputeGraph's builders, checker and printer.
 */
#include "compiler/graph/graph.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

const char *tw_gop_name(enum tw_gop_kind kind) {
    static const char *const names[] = {
#define TW_X(name, text, inputs, meaning) text,
        TW_GOPS(TW_X)
#undef TW_X
    };
    return kind < TW_GOP_COUNT ? names[kind] : "?";
}

uint32_t tw_gop_inputs(enum tw_gop_kind kind) {
    static const uint8_t inputs_of[] = {
#define TW_X(name, text, inputs, meaning) inputs,
        TW_GOPS(TW_X)
#undef TW_X
    };
    return kind < TW_GOP_COUNT ? inputs_of[kind] : 0;
}

static struct tw_gvalue *add_value(struct tw_graph *g, const char *name, enum tw_gvalue_kind kind,
                                   enum tw_dtype dtype) {
    struct tw_gvalue *v = TW_VEC_PUSH(g->mem, g->values);
    v->name = name;
    v->kind = kind;
    v->dtype = dtype;
    v->instances = 1;
    v->region = TW_NONE;
    return v;
}

tw_gvalue_id tw_graph_activation(struct tw_graph *g, const char *name, uint32_t token_rows,
                                 uint32_t cols, enum tw_dtype dtype) {
    struct tw_gvalue *v = add_value(g, name, TW_GV_ACTIVATION, dtype);
    v->token_rows = token_rows;
    v->rows = token_rows ? 0 : 1;
    v->cols = cols;
    v->region = g->regions.n ? g->regions.n - 1 : TW_NONE;
    return g->values.n - 1;
}

/* Instances of one sequence may differ in type; the whole sequence is then stored as F32, to which
 * every other type converts exactly. Vectors are always F32, and so are matrices whose panels are
 * not whole 64-byte lines: half precision with an odd number of columns. */
tw_gvalue_id tw_graph_weight(struct tw_graph *g, const char *name, uint32_t instances,
                             const struct tw_model_tensor **source) {
    struct tw_gvalue *v = add_value(g, name, TW_GV_WEIGHT, tw_model_type(source[0]));
    v->rows = source[0]->rows;
    v->cols = source[0]->cols;
    v->instances = instances;
    v->source = source;
    v->packing = v->rows == 1 ? TW_PACK_ROW : TW_PACK_PANEL16;
    for (uint32_t i = 0; i < instances; i++) {
        if (tw_model_type(source[i]) != v->dtype || v->rows == 1 ||
            tw_panel_bytes(v->dtype, v->cols) % 64 != 0) {
            v->dtype = TW_DT_F32;
        }
    }
    return g->values.n - 1;
}

tw_gvalue_id tw_graph_constant(struct tw_graph *g, const char *name, const float *data,
                               uint32_t cols) {
    struct tw_gvalue *v = add_value(g, name, TW_GV_WEIGHT, TW_DT_F32);
    v->rows = 1;
    v->cols = cols;
    v->constant = data;
    v->packing = TW_PACK_ROW;
    return g->values.n - 1;
}

tw_gvalue_id tw_graph_state(struct tw_graph *g, const char *name, uint32_t instances, uint32_t cols,
                            uint32_t head_dim, enum tw_packing packing) {
    struct tw_gvalue *v = add_value(g, name, TW_GV_STATE, g->cache_dtype);
    v->cols = cols;
    v->instances = instances;
    v->head_dim = head_dim;
    v->packing = packing;
    return g->values.n - 1;
}

tw_gvalue_id tw_graph_input(struct tw_graph *g, const char *name, uint32_t token_rows) {
    struct tw_gvalue *v = add_value(g, name, TW_GV_INPUT, TW_DT_I32);
    v->token_rows = token_rows;
    v->rows = token_rows ? 0 : 1;
    v->cols = 1;
    return g->values.n - 1;
}

uint32_t tw_graph_begin_region(struct tw_graph *g, const char *name, uint32_t repeat) {
    struct tw_gregion *r = TW_VEC_PUSH(g->mem, g->regions);
    r->name = name;
    r->repeat = repeat;
    r->first_op = g->ops.n;
    r->carry_in = r->carry_out = TW_NONE;
    return g->regions.n - 1;
}

void tw_graph_end_region(struct tw_graph *g, tw_gvalue_id carry_in, tw_gvalue_id carry_out) {
    struct tw_gregion *r = &g->regions.items[g->regions.n - 1];
    r->n_ops = g->ops.n - r->first_op;
    r->carry_in = carry_in;
    r->carry_out = carry_out;
}

struct tw_gop *tw_graph_op(struct tw_graph *g, enum tw_gop_kind kind, const char *name,
                           tw_gvalue_id a, tw_gvalue_id b, tw_gvalue_id c, tw_gvalue_id out) {
    struct tw_gop *op = TW_VEC_PUSH(g->mem, g->ops);
    op->kind = kind;
    op->name = name;
    op->region = g->regions.n - 1;
    op->in[0] = a;
    op->in[1] = b;
    op->in[2] = c;
    op->out = out;
    return op;
}

static int bad(const struct tw_graph *g, const struct tw_gop *op, tw_error *err, const char *what) {
    return tw_fail(err, TW_E_INTERNAL, "graph: %s.%s (%s): %s", g->regions.items[op->region].name,
                   op->name, tw_gop_name(op->kind), what);
}

/* Checks that each activation is defined once, before its uses, in its own region or (shared) in an
 * earlier one. */
static int check_inputs(const struct tw_graph *g, const struct tw_gop *op, const uint8_t *defined,
                        tw_error *err) {
    for (uint32_t i = 0; i < tw_gop_inputs(op->kind); i++) {
        if (op->in[i] >= g->values.n) {
            return bad(g, op, err, "an input does not name a value");
        }
        const struct tw_gvalue *v = &g->values.items[op->in[i]];
        if (v->kind == TW_GV_ACTIVATION && !defined[op->in[i]]) {
            return bad(g, op, err, "an input is used before it is defined");
        }
        if (v->kind == TW_GV_ACTIVATION && v->region != op->region && !v->shared) {
            return bad(g, op, err, "an input of another region is not shared");
        }
        if ((v->kind == TW_GV_WEIGHT || v->kind == TW_GV_STATE) && v->instances != 1 &&
            v->instances != g->regions.items[op->region].repeat) {
            return bad(g, op, err, "a sequence's length differs from the region's repeat");
        }
    }
    return 0;
}

/* Returns the kind each input must have: A activation, W weight, S state, I input. */
static const char *input_kinds(enum tw_gop_kind kind) {
    static const char *const kinds[TW_GOP_COUNT] = {
        [TW_GOP_GATHER] = "WI",      [TW_GOP_ROPE_TABLE] = "IW", [TW_GOP_RMS_NORM] = "AW",
        [TW_GOP_QUANT] = "A",        [TW_GOP_MATMUL] = "AW",     [TW_GOP_ROPE] = "AA",
        [TW_GOP_KV_APPEND] = "ASI",  [TW_GOP_ATTENTION] = "ASS", [TW_GOP_ADD] = "AA",
        [TW_GOP_SILU_MUL] = "AA",    [TW_GOP_LAST_ROW] = "A",    [TW_GOP_OUTPUT] = "A",
        [TW_GOP_LAYER_NORM] = "AWW", [TW_GOP_BIAS] = "AW",       [TW_GOP_GELU_MUL] = "AA",
        [TW_GOP_GELU] = "A",         [TW_GOP_SCALE] = "A",       [TW_GOP_POS_SCALE] = "AWI",
    };
    return kinds[kind];
}

static int check_kinds(const struct tw_graph *g, const struct tw_gop *op, tw_error *err) {
    static const char letters[] = {
        [TW_GV_ACTIVATION] = 'A', [TW_GV_WEIGHT] = 'W', [TW_GV_STATE] = 'S', [TW_GV_INPUT] = 'I'};
    const char *kinds = input_kinds(op->kind);
    bool has_output = op->kind != TW_GOP_KV_APPEND && op->kind != TW_GOP_OUTPUT;
    for (uint32_t i = 0; kinds[i]; i++) {
        if (letters[g->values.items[op->in[i]].kind] != kinds[i]) {
            return bad(g, op, err, "an input has the wrong kind");
        }
    }
    if ((op->out != TW_NONE) != has_output) {
        return bad(g, op, err, has_output ? "it has no output" : "it has an output");
    }
    if (has_output &&
        (op->out >= g->values.n || g->values.items[op->out].kind != TW_GV_ACTIVATION)) {
        return bad(g, op, err, "its output is not an activation");
    }
    return 0;
}

/* A norm's weights are as wide as a row; those of heads as wide as one, or as all. */
static int check_norm(const struct tw_graph *g, const struct tw_gop *op, tw_error *err) {
    const struct tw_gvalue *v = g->values.items;
    uint32_t out = v[op->out].cols, weight = v[op->in[1]].cols, dim = op->head_dim;
    bool fits = weight == out || (dim > 0 && weight == dim),
         bias = op->kind != TW_GOP_LAYER_NORM || v[op->in[2]].cols == weight;
    return out == v[op->in[0]].cols && fits && bias && (dim == 0 || out % dim == 0)
               ? 0
               : bad(g, op, err, "widths differ");
}

static int check_shapes(const struct tw_graph *g, const struct tw_gop *op, tw_error *err) {
    const struct tw_gvalue *v = g->values.items;
    uint32_t out = op->out == TW_NONE ? 0 : v[op->out].cols;
    switch (op->kind) {
    case TW_GOP_GATHER:
        return out == v[op->in[0]].cols ? 0 : bad(g, op, err, "table and output differ in width");
    case TW_GOP_ROPE_TABLE:
        return out == 2 * v[op->in[1]].cols
                   ? 0
                   : bad(g, op, err, "the output is not twice as wide as the frequencies");
    case TW_GOP_MATMUL: {
        if (out != v[op->in[1]].rows || v[op->in[0]].cols != v[op->in[1]].cols) {
            return bad(g, op, err, "inner or outer dimensions do not match");
        }
        return v[op->in[0]].dtype == TW_DT_F32 ||
                       v[op->in[0]].dtype == tw_dtype_activation(v[op->in[1]].dtype)
                   ? 0
                   : bad(g, op, err, "the activation's type does not match the weight's");
    }
    case TW_GOP_RMS_NORM:
    case TW_GOP_LAYER_NORM:
        return check_norm(g, op, err);
    case TW_GOP_ADD:
    case TW_GOP_BIAS:
    case TW_GOP_SILU_MUL:
    case TW_GOP_GELU_MUL:
        return out == v[op->in[0]].cols && out == v[op->in[1]].cols
                   ? 0
                   : bad(g, op, err, "widths differ");
    case TW_GOP_ROPE:
        return out == op->n_heads * op->head_dim && out == v[op->in[0]].cols &&
                       op->rope_dims <= op->head_dim && op->rope_dims == v[op->in[1]].cols
                   ? 0
                   : bad(g, op, err, "heads do not match the widths");
    case TW_GOP_ATTENTION:
        return out == op->n_heads * op->head_dim && out == v[op->in[0]].cols && op->n_kv_heads &&
                       op->n_heads % op->n_kv_heads == 0 &&
                       v[op->in[1]].cols == op->n_kv_heads * op->head_dim &&
                       v[op->in[2]].cols == v[op->in[1]].cols
                   ? 0
                   : bad(g, op, err, "heads do not match the state");
    case TW_GOP_POS_SCALE:
        return op->period > 0 && out == v[op->in[0]].cols
                   ? 0
                   : bad(g, op, err, "widths differ, or the period is 0");
    case TW_GOP_GELU:
    case TW_GOP_SCALE:
    case TW_GOP_QUANT:
    case TW_GOP_LAST_ROW:
        return out == v[op->in[0]].cols ? 0 : bad(g, op, err, "widths differ");
    case TW_GOP_KV_APPEND:
        return v[op->in[0]].cols == v[op->in[1]].cols
                   ? 0
                   : bad(g, op, err, "row and state differ in width");
    case TW_GOP_OUTPUT:
    case TW_GOP_COUNT:
        break;
    }
    return 0;
}

/* Checks that the carried value is an activation defined before the region, and the value that
 * replaces it for the next iteration one of the region's own. */
static int check_carry(const struct tw_graph *g, uint32_t index, const uint8_t *defined,
                       tw_error *err) {
    const struct tw_gregion *r = &g->regions.items[index];
    const char *what = NULL;
    if (r->carry_in == TW_NONE && r->carry_out == TW_NONE) {
        return 0;
    }
    if (r->carry_in >= g->values.n || r->carry_out >= g->values.n) {
        what = "a carried value does not name a value";
    } else if (!defined[r->carry_in] || !g->values.items[r->carry_in].shared ||
               g->values.items[r->carry_in].region >= index) {
        what = "carry_in is not a shared value of an earlier region";
    } else if (!defined[r->carry_out] || g->values.items[r->carry_out].region != index) {
        what = "carry_out is not a value of this region";
    } else if (g->values.items[r->carry_in].cols != g->values.items[r->carry_out].cols) {
        what = "carry_in and carry_out differ in width";
    }
    return what ? tw_fail(err, TW_E_INTERNAL, "graph: region %s: %s", r->name, what) : 0;
}

int tw_graph_check(const struct tw_graph *g, tw_error *err) {
    uint8_t *defined = tw_cmem_alloc(g->mem, g->values.n + 1);
    for (uint32_t i = 0; i < g->ops.n; i++) {
        const struct tw_gop *op = &g->ops.items[i];
        int rc = check_inputs(g, op, defined, err);
        rc = rc ? rc : check_kinds(g, op, err);
        if (rc == 0 && op->out != TW_NONE && defined[op->out]) {
            rc = bad(g, op, err, "its output is defined twice");
        }
        if (rc == 0) {
            rc = check_shapes(g, op, err);
        }
        if (rc) {
            return rc;
        }
        if (op->out != TW_NONE) {
            defined[op->out] = 1;
        }
    }
    for (uint32_t i = 0; i < g->regions.n; i++) {
        int rc = check_carry(g, i, defined, err);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

static void print_value(const struct tw_graph *g, tw_gvalue_id id, FILE *out) {
    const struct tw_gvalue *v = &g->values.items[id];
    fprintf(out, "%%%s", v->name);
}

void tw_graph_print(const struct tw_graph *g, FILE *out) {
    static const char *const kinds[] = {"activation", "weight", "state", "input"};
    for (uint32_t i = 0; i < g->values.n; i++) {
        const struct tw_gvalue *v = &g->values.items[i];
        fprintf(out, "value %%%s: %s %s[%s%.0u, %u]", v->name, kinds[v->kind],
                tw_dtype_name(v->dtype),
                v->token_rows            ? "tokens"
                : v->kind == TW_GV_STATE ? "positions"
                                         : "",
                v->rows, v->cols);
        fprintf(out, v->instances > 1 ? " x %u\n" : "\n", v->instances);
    }
    for (uint32_t r = 0; r < g->regions.n; r++) {
        const struct tw_gregion *region = &g->regions.items[r];
        fprintf(out, "\nregion %s", region->name);
        if (region->repeat > 1 || region->carry_in != TW_NONE) {
            fprintf(out, " repeat %u", region->repeat);
        }
        if (region->carry_in != TW_NONE) {
            fprintf(out, " carry %%%s <- %%%s", g->values.items[region->carry_in].name,
                    g->values.items[region->carry_out].name);
        }
        fprintf(out, " {\n");
        for (uint32_t i = 0; i < region->n_ops; i++) {
            const struct tw_gop *op = &g->ops.items[region->first_op + i];
            fprintf(out, "    ");
            if (op->out != TW_NONE) {
                print_value(g, op->out, out);
                fprintf(out, " = ");
            }
            fprintf(out, "%s", tw_gop_name(op->kind));
            for (uint32_t k = 0; k < tw_gop_inputs(op->kind); k++) {
                fprintf(out, k ? ", " : " ");
                print_value(g, op->in[k], out);
            }
            fprintf(out, "\n");
        }
        fprintf(out, "}\n");
    }
}

/* ---- all rows ---- */

void tw_graph_all_rows(const struct tw_graph *g, struct tw_graph *out) {
    uint32_t n = g->values.n;
    *out = *g;
    out->values.items = tw_cmem_alloc(g->mem, n * sizeof *out->values.items);
    memcpy(out->values.items, g->values.items, n * sizeof *out->values.items);
    uint8_t *follows = tw_cmem_alloc(g->mem, n); /* values computed from the last row */
    for (uint32_t i = 0; i < g->ops.n; i++) {
        const struct tw_gop *op = &g->ops.items[i];
        bool all = op->kind == TW_GOP_LAST_ROW;
        for (uint32_t k = 0; k < tw_gop_inputs(op->kind); k++) {
            all = all || (op->in[k] != TW_NONE && follows[op->in[k]]);
        }
        if (all && op->out != TW_NONE) {
            follows[op->out] = 1;
            out->values.items[op->out].token_rows = 1;
            out->values.items[op->out].rows = 0;
        }
    }
}
