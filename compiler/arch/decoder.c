/* SPDX-License-Identifier: Apache-2.0
 *
 * From a decoder's description to its graph: a region that embeds, one for each group of layers
 * (layers.h), and the head. Each switch of struct tw_hparams is looked at in one place here.
 */
#include "compiler/arch/arch.h"

#include "compiler/arch/layers.h"
#include "compiler/arch/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct builder {
    struct tw_graph *g;
    const struct tw_hparams *h;
    tw_gvalue_id cos_sin[TW_LAYER_ROPE_NONE]; /* of this step's positions, by kind of rotation */
    tw_gvalue_id query_factors;               /* TW_NONE: none */
    struct tw_layer_group group;              /* of the current region */
    uint32_t number;                          /* of the current layer, in the group's body */
    struct tw_layer layer;
    bool alone; /* the current region is the only one of layers, and its body is one layer */
};

/* ---- names and weights ---- */

/* Returns a name of the current layer's: with the first layer's number where there is more than one
 * body. */
static const char *layer_name(const struct builder *b, const char *name) {
    return b->alone ? tw_cmem_printf(b->g->mem, "%s", name)
                    : tw_cmem_printf(b->g->mem, "%s.%u", name, b->group.first + b->number);
}

/* The importer has checked that all layers have the tensors that the description demands. */
static const struct tw_model_tensor *layer_tensor(const struct builder *b, uint32_t repeat,
                                                  const char *suffix) {
    char name[96];
    snprintf(name, sizeof name, "blk.%u.%s", b->group.first + b->number + repeat * b->group.period,
             suffix);
    return tw_model_find(b->g->model, name);
}

/* Returns the sequence "blk.<i>.<name>.<kind>" over the group's layers; TW_NONE if the model has
 * none. */
static tw_gvalue_id layer_weight(struct builder *b, const char *name, const char *kind) {
    struct tw_graph *g = b->g;
    const char *suffix = tw_cmem_printf(g->mem, "%s.%s", name, kind);
    const struct tw_model_tensor **source = tw_cmem_alloc(g->mem, b->group.repeat * sizeof *source);
    for (uint32_t i = 0; i < b->group.repeat; i++) {
        source[i] = layer_tensor(b, i, suffix);
        if (!source[i]) {
            return TW_NONE;
        }
    }
    return tw_graph_weight(g, layer_name(b, suffix), b->group.repeat, source);
}

static tw_gvalue_id single_weight(struct builder *b, const char *name) {
    const struct tw_model_tensor **source = tw_cmem_alloc(b->g->mem, sizeof *source);
    source[0] = tw_model_find(b->g->model, name);
    return source[0] ? tw_graph_weight(b->g, name, 1, source) : TW_NONE;
}

/* ---- operations ---- */

static const struct tw_gvalue *value(const struct builder *b, tw_gvalue_id id) {
    return &b->g->values.items[id];
}

/* Adds an operation whose output is like x, but has `cols` columns. */
static tw_gvalue_id op(struct builder *b, enum tw_gop_kind kind, const char *name, tw_gvalue_id x,
                       tw_gvalue_id y, tw_gvalue_id z, uint32_t cols) {
    tw_gvalue_id out = tw_graph_activation(b->g, name, value(b, x)->token_rows, cols, TW_DT_F32);
    tw_graph_op(b->g, kind, name, x, y, z, out);
    return out;
}

static struct tw_gop *last_op(const struct builder *b) {
    return &b->g->ops.items[b->g->ops.n - 1];
}

/* Adds an operation on x, and on y if there is one, that leaves the shape. */
static tw_gvalue_id like(struct builder *b, enum tw_gop_kind kind, const char *name, tw_gvalue_id x,
                         tw_gvalue_id y) {
    return op(b, kind, name, x, y, TW_NONE, value(b, x)->cols);
}

/* Multiplies by a factor; 0 and 1 are none. */
static tw_gvalue_id scale(struct builder *b, const char *name, tw_gvalue_id x, float factor) {
    if (factor == 0.0f || factor == 1.0f) {
        return x;
    }
    tw_gvalue_id out = like(b, TW_GOP_SCALE, name, x, TW_NONE);
    last_op(b)->scale = factor;
    return out;
}

/* One value in quantised blocks of 32 and of 256; TW_NONE: not made yet. */
struct quants {
    tw_gvalue_id q8s, q8k;
};
#define NO_QUANTS \
    { TW_NONE, TW_NONE }

/* Adds x*w^T. Quantised weights take x in quantised blocks as long as theirs, which are made once
 * for all products of the same x and kept in `made`. */
static tw_gvalue_id matmul(struct builder *b, const char *name, tw_gvalue_id x, tw_gvalue_id w,
                           struct quants *made) {
    struct tw_graph *g = b->g;
    g->values.items[w].packing = TW_PACK_PANEL16; /* even if it has a single row */
    const struct tw_gvalue xv = g->values.items[x], wv = g->values.items[w];
    unsigned dtype = g->float_activations ? TW_DT_F32 : tw_dtype_activation(wv.dtype);
    if (dtype != TW_DT_F32) {
        tw_gvalue_id *cache = dtype == TW_DT_Q8S ? &made->q8s : &made->q8k;
        if (*cache == TW_NONE) {
            const char *quant_name =
                tw_cmem_printf(g->mem, dtype == TW_DT_Q8S ? "%s_q8" : "%s_q8k", xv.name);
            *cache =
                tw_graph_activation(g, quant_name, xv.token_rows, xv.cols, (enum tw_dtype)dtype);
            tw_graph_op(g, TW_GOP_QUANT, quant_name, x, TW_NONE, TW_NONE, *cache);
        }
        x = *cache;
    }
    return op(b, TW_GOP_MATMUL, name, x, w, TW_NONE, wv.rows);
}

/* A layer's product "name", and its bias if it has one. */
static tw_gvalue_id linear(struct builder *b, const char *name, tw_gvalue_id x,
                           struct quants *made) {
    tw_gvalue_id y = matmul(b, layer_name(b, name), x, layer_weight(b, name, "weight"), made),
                 bias = layer_weight(b, name, "bias");
    if (bias == TW_NONE) {
        return y;
    }
    return like(b, TW_GOP_BIAS, layer_name(b, tw_cmem_printf(b->g->mem, "%s_bias", name)), y, bias);
}

static tw_gvalue_id zeros(struct builder *b, uint32_t cols) {
    char name[32];
    snprintf(name, sizeof name, "zeros.%u", cols);
    for (uint32_t i = 0; i < b->g->values.n; i++) {
        if (strcmp(b->g->values.items[i].name, name) == 0) {
            return i;
        }
    }
    float *data = tw_cmem_alloc(b->g->mem, cols * sizeof *data);
    return tw_graph_constant(b->g, tw_cmem_printf(b->g->mem, "%s", name), data, cols);
}

/* Adds the model's kind of norm, of whole rows or (head_dim > 0) of each head. */
static tw_gvalue_id norm(struct builder *b, const char *name, tw_gvalue_id x, tw_gvalue_id weight,
                         tw_gvalue_id bias, uint32_t head_dim) {
    tw_gvalue_id out;
    if (b->h->norm == TW_NORM_LAYER) {
        bias = bias == TW_NONE ? zeros(b, value(b, weight)->cols) : bias;
        out = op(b, TW_GOP_LAYER_NORM, name, x, weight, bias, value(b, x)->cols);
    } else {
        out = like(b, TW_GOP_RMS_NORM, name, x, weight);
    }
    struct tw_gop *added = last_op(b);
    added->eps = b->h->norm_eps;
    added->head_dim = head_dim;
    return out;
}

static tw_gvalue_id layer_norm(struct builder *b, const char *name, tw_gvalue_id x,
                               uint32_t head_dim) {
    tw_gvalue_id weight = layer_weight(b, name, "weight"), bias = layer_weight(b, name, "bias");
    return norm(b, layer_name(b, name), x, weight, bias, head_dim);
}

/* ---- attention ---- */

static void set_heads(struct builder *b, struct tw_gop *added, uint32_t n_heads) {
    const struct tw_hparams *h = b->h;
    added->n_heads = n_heads;
    added->n_kv_heads = b->layer.n_kv_heads;
    added->head_dim = h->head_dim;
    added->rope_dims = h->rope_dims;
    added->pairing = h->rope_pairing;
    added->scale =
        h->attention_scale > 0.0f ? h->attention_scale : 1.0f / sqrtf((float)h->head_dim);
}

static tw_gvalue_id rope(struct builder *b, const char *name, tw_gvalue_id x, uint32_t n_heads) {
    if (b->layer.rope == TW_LAYER_ROPE_NONE) {
        return x;
    }
    tw_gvalue_id out = op(b, TW_GOP_ROPE, layer_name(b, name), x, b->cos_sin[b->layer.rope],
                          TW_NONE, n_heads * b->h->head_dim);
    set_heads(b, last_op(b), n_heads);
    return out;
}

static tw_gvalue_id qk_norm(struct builder *b, const char *name, tw_gvalue_id x) {
    if (b->h->qk_norm == TW_QK_NORM_NONE) {
        return x;
    }
    return layer_norm(b, name, x, b->h->qk_norm == TW_QK_NORM_ROW ? 0 : b->h->head_dim);
}

/* The norm and the rotation of queries or keys. */
static tw_gvalue_id turned(struct builder *b, const char *norm_name, const char *rope_name,
                           tw_gvalue_id x, uint32_t n_heads) {
    if (b->h->qk_norm_after_rope) {
        return qk_norm(b, norm_name, rope(b, rope_name, x, n_heads));
    }
    return rope(b, rope_name, qk_norm(b, norm_name, x), n_heads);
}

static void kv_append(struct builder *b, const char *name, tw_gvalue_id x, tw_gvalue_id state) {
    set_heads(
        b, tw_graph_op(b->g, TW_GOP_KV_APPEND, layer_name(b, name), x, state, b->g->pos, TW_NONE),
        b->layer.n_kv_heads);
}

static tw_gvalue_id queries(struct builder *b, tw_gvalue_id n, struct quants *quant) {
    tw_gvalue_id q = linear(b, "attn_q", n, quant);
    q = turned(b, "attn_q_norm", "rope_q", q, b->layer.n_heads);
    if (b->query_factors != TW_NONE) {
        q = op(b, TW_GOP_POS_SCALE, layer_name(b, "query_scale"), q, b->query_factors, b->g->pos,
               value(b, q)->cols);
        last_op(b)->period = b->h->query_period;
    }
    return q;
}

/* The states of a layer. */
struct caches {
    tw_gvalue_id keys, values;
};

static struct caches make_caches(struct builder *b) {
    uint32_t cols = b->layer.n_kv_heads * b->h->head_dim, dim = b->h->head_dim;
    tw_gvalue_id keys = tw_graph_state(b->g, layer_name(b, "attn.key"), b->group.repeat, cols, dim,
                                       TW_PACK_KEYS),
                 values = tw_graph_state(b->g, layer_name(b, "attn.value"), b->group.repeat, cols,
                                         dim, TW_PACK_VALUES);
    b->g->values.items[keys].window = b->g->values.items[values].window = b->layer.window;
    return (struct caches){keys, values};
}

/* What attention adds to x, from n. */
static tw_gvalue_id attention(struct builder *b, tw_gvalue_id n, struct caches c,
                              struct quants *quant) {
    struct quants quant_out = NO_QUANTS;
    tw_gvalue_id k = linear(b, "attn_k", n, quant), v = linear(b, "attn_v", n, quant);
    kv_append(b, "append_k", turned(b, "attn_k_norm", "rope_k", k, b->layer.n_kv_heads), c.keys);
    kv_append(b, "append_v", v, c.values);
    tw_gvalue_id q = queries(b, n, quant);
    tw_gvalue_id a = op(b, TW_GOP_ATTENTION, layer_name(b, "attention"), q, c.keys, c.values,
                        b->layer.n_heads * b->h->head_dim);
    struct tw_gop *added = last_op(b);
    set_heads(b, added, b->layer.n_heads);
    added->window = b->layer.window;
    added->cap = b->h->attention_cap;
    return linear(b, "attn_output", a, &quant_out);
}

/* ---- layers ---- */

static tw_gvalue_id feed_forward(struct builder *b, tw_gvalue_id n, struct quants *quant) {
    struct quants quant_down = NO_QUANTS;
    tw_gvalue_id act;
    if (b->h->feed_forward == TW_FFN_GELU_UNGATED) {
        act =
            like(b, TW_GOP_GELU, layer_name(b, "ffn_act"), linear(b, "ffn_up", n, quant), TW_NONE);
    } else {
        tw_gvalue_id gate = linear(b, "ffn_gate", n, quant), up = linear(b, "ffn_up", n, quant);
        act = like(b, b->h->feed_forward == TW_FFN_GELU ? TW_GOP_GELU_MUL : TW_GOP_SILU_MUL,
                   layer_name(b, "ffn_act"), gate, up);
    }
    return linear(b, "ffn_down", act, &quant_down);
}

/* Adds a block's result to x, behind the norm and the factor that the model puts there. */
static tw_gvalue_id residual(struct builder *b, const char *name, const char *norm_name,
                             tw_gvalue_id y, tw_gvalue_id x) {
    if (b->h->norm_place != TW_NORM_BEFORE) {
        y = layer_norm(b, norm_name, y, 0);
    }
    y = scale(b, layer_name(b, tw_cmem_printf(b->g->mem, "%s_scale", name)), y,
              b->h->residual_scale);
    return like(b, TW_GOP_ADD, layer_name(b, name), y, x);
}

static tw_gvalue_id before(struct builder *b, const char *norm_name, tw_gvalue_id x) {
    return b->h->norm_place == TW_NORM_AFTER ? x : layer_norm(b, norm_name, x, 0);
}

static tw_gvalue_id layer(struct builder *b, tw_gvalue_id x) {
    struct quants quant = NO_QUANTS, quant_ffn = NO_QUANTS;
    struct caches caches = make_caches(b);
    tw_gvalue_id n = before(b, "attn_norm", x), a = attention(b, n, caches, &quant);
    tw_gvalue_id y = residual(b, "attn_residual", "post_attention_norm", a, x);
    tw_gvalue_id f = b->h->parallel ? feed_forward(b, n, &quant)
                                    : feed_forward(b, before(b, "ffn_norm", y), &quant_ffn);
    return residual(b, "ffn_residual", "post_ffw_norm", f, y);
}

static void add_group(struct builder *b, tw_gvalue_id x) {
    tw_gvalue_id after = x;
    b->number = 0;
    tw_graph_begin_region(b->g, layer_name(b, "layer"), b->group.repeat);
    for (; b->number < b->group.period; b->number++) {
        b->layer = tw_layer_of(b->h, b->group.first + b->number);
        after = layer(b, after);
    }
    tw_graph_end_region(b->g, x, after);
}

static void add_layers(struct builder *b, tw_gvalue_id x) {
    struct tw_layer_groups groups = {{0}};
    tw_layer_groups(b->g->model, b->g->mem, &groups);
    b->alone = groups.v.n == 1 && groups.v.items[0].period == 1;
    for (uint32_t i = 0; i < groups.v.n; i++) {
        b->group = groups.v.items[i];
        add_group(b, x);
    }
}

/* ---- what all layers use ---- */

static void make_rotation(struct builder *b, enum tw_layer_rope kind, const char *name,
                          const char *freq_name) {
    uint32_t half = b->h->rope_dims / 2;
    bool used = false;
    for (uint32_t i = 0; i < b->h->n_layers; i++) {
        used = used || tw_layer_of(b->h, i).rope == kind;
    }
    if (!used) {
        return;
    }
    float *freq = tw_cmem_alloc(b->g->mem, half * sizeof *freq);
    tw_rope_frequencies(b->h, kind, b->g->n_ctx, freq);
    tw_gvalue_id table = tw_graph_constant(b->g, freq_name, freq, half);
    tw_gvalue_id cs = tw_graph_activation(b->g, name, 1, b->h->rope_dims, TW_DT_F32);
    tw_graph_op(b->g, TW_GOP_ROPE_TABLE, name, b->g->pos, table, TW_NONE, cs);
    cs = scale(b, tw_cmem_printf(b->g->mem, "%s.scaled", name), cs, tw_rope_magnitude(b->h, kind));
    b->g->values.items[cs].shared = 1;
    b->cos_sin[kind] = cs;
}

/* 1 + slope * ln(1 + i) for the i-th period of the context. */
static void make_query_factors(struct builder *b) {
    const struct tw_hparams *h = b->h;
    b->query_factors = TW_NONE;
    if (h->query_slope == 0.0f || h->query_period == 0) {
        return;
    }
    uint32_t n = b->g->n_ctx / h->query_period + 1;
    float *factors = tw_cmem_alloc(b->g->mem, n * sizeof *factors);
    for (uint32_t i = 0; i < n; i++) {
        factors[i] = (float)(1.0 + (double)h->query_slope * log(1.0 + i));
    }
    b->query_factors = tw_graph_constant(b->g, "query.factors", factors, n);
}

static tw_gvalue_id embed(struct builder *b, tw_gvalue_id table) {
    struct tw_graph *g = b->g;
    bool scaled = b->h->embedding_scale != 0.0f && b->h->embedding_scale != 1.0f;
    tw_gvalue_id x = tw_graph_activation(g, scaled ? "x.unscaled" : "x", 1, b->h->dim, TW_DT_F32);
    tw_graph_op(g, TW_GOP_GATHER, "token_embd", table, g->ids, TW_NONE, x);
    x = scale(b, "x", x, b->h->embedding_scale);
    g->values.items[x].shared = 1;
    return x;
}

static void add_head(struct builder *b, tw_gvalue_id x, tw_gvalue_id table) {
    struct tw_graph *g = b->g;
    tw_gvalue_id last = tw_graph_activation(g, "last", 0, b->h->dim, TW_DT_F32);
    tw_graph_op(g, TW_GOP_LAST_ROW, "last", x, TW_NONE, TW_NONE, last);
    tw_gvalue_id n = norm(b, "output_norm", last, single_weight(b, "output_norm.weight"),
                          single_weight(b, "output_norm.bias"), 0);
    struct quants quant = NO_QUANTS;
    g->logits =
        matmul(b, "logits", n, g->model->tied ? table : single_weight(b, "output.weight"), &quant);
    last_op(b)->scale = b->h->logit_scale;
    last_op(b)->cap = b->h->logit_cap;
    tw_graph_op(g, TW_GOP_OUTPUT, "logits", g->logits, TW_NONE, TW_NONE, TW_NONE);
}

int tw_decoder_build(const struct tw_model *model, struct tw_graph *g, tw_error *err) {
    struct builder b = {.g = g, .h = &model->h, .query_factors = TW_NONE};
    if (b.h->head_dim > 512 || b.h->head_dim % 2) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "%s: head dimension %u is not supported; supported: even numbers up to 512",
                       model->path, b.h->head_dim);
    }
    g->ids = tw_graph_input(g, "ids", 1);
    g->pos = tw_graph_input(g, "pos", 0);
    tw_gvalue_id table = single_weight(&b, "token_embd.weight");
    tw_graph_begin_region(g, "embed", 1);
    tw_gvalue_id x = embed(&b, table);
    make_rotation(&b, TW_LAYER_ROPE_MODEL, "rope", "rope.freq");
    make_rotation(&b, TW_LAYER_ROPE_WINDOW, "rope.window", "rope.window.freq");
    make_query_factors(&b);
    tw_graph_end_region(g, TW_NONE, TW_NONE);
    add_layers(&b, x);
    tw_graph_begin_region(g, "head", 1);
    add_head(&b, x, table);
    tw_graph_end_region(g, TW_NONE, TW_NONE);
    return 0;
}
