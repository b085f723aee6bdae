/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU. Three regions: embed, the
 * layers as one Repeat, head. In files of mixed types, each run of layers whose matrices have the
 * same types is a Repeat of its own, so that all are multiplied as they are stored.
 */
#include "compiler/arch/arch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct builder {
    struct tw_graph *g;
    const struct tw_hparams *h;
    tw_gvalue_id cos_sin; /* of this step's positions */
    uint32_t first, n;    /* the layers of the current region */
};

/* The importer has checked that all layers have all tensors. */
static const struct tw_model_tensor *layer_tensor(const struct builder *b, uint32_t layer,
                                                  const char *suffix) {
    char name[96];
    snprintf(name, sizeof name, "blk.%u.%s", layer, suffix);
    return tw_model_find(b->g->model, name);
}

/* Returns the name of a sequence of the current region's layers: with the first one's number where
 * the layers have more than one region. */
static const char *sequence_name(const struct builder *b, const char *name) {
    return b->n == b->h->n_layers ? tw_cmem_printf(b->g->mem, "%s", name)
                                  : tw_cmem_printf(b->g->mem, "%s.%u", name, b->first);
}

/* Returns the sequence "blk.<i>.<suffix>" over the region's layers. */
static tw_gvalue_id layer_weight(struct builder *b, const char *suffix) {
    struct tw_graph *g = b->g;
    const struct tw_model_tensor **source = tw_cmem_alloc(g->mem, b->n * sizeof *source);
    for (uint32_t i = 0; i < b->n; i++) {
        source[i] = layer_tensor(b, b->first + i, suffix);
    }
    return tw_graph_weight(g, sequence_name(b, suffix), b->n, source);
}

/* Returns how many layers from `first` on have matrices of the same types as this one. */
static uint32_t layers_alike(const struct builder *b, uint32_t first) {
    static const char *const matrices[] = {"attn_q.weight",      "attn_k.weight",   "attn_v.weight",
                                           "attn_output.weight", "ffn_gate.weight", "ffn_up.weight",
                                           "ffn_down.weight"};
    uint32_t end = first + 1;
    for (; end < b->h->n_layers; end++) {
        for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
            if (tw_model_type(layer_tensor(b, end, matrices[i])) !=
                tw_model_type(layer_tensor(b, first, matrices[i]))) {
                return end - first;
            }
        }
    }
    return end - first;
}

static tw_gvalue_id single_weight(struct builder *b, const char *name) {
    const struct tw_model_tensor **source = tw_cmem_alloc(b->g->mem, sizeof *source);
    source[0] = tw_model_find(b->g->model, name);
    return tw_graph_weight(b->g, name, 1, source);
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
    tw_gvalue_id out = tw_graph_activation(g, name, xv.token_rows, wv.rows, TW_DT_F32);
    tw_graph_op(g, TW_GOP_MATMUL, name, x, w, TW_NONE, out);
    return out;
}

static tw_gvalue_id rms_norm(struct builder *b, const char *name, tw_gvalue_id x, tw_gvalue_id w) {
    const struct tw_gvalue xv = b->g->values.items[x];
    tw_gvalue_id out = tw_graph_activation(b->g, name, xv.token_rows, xv.cols, TW_DT_F32);
    tw_graph_op(b->g, TW_GOP_RMS_NORM, name, x, w, TW_NONE, out)->eps = b->h->rms_eps;
    return out;
}

static tw_gvalue_id binary(struct builder *b, enum tw_gop_kind kind, const char *name,
                           tw_gvalue_id x, tw_gvalue_id y) {
    tw_gvalue_id out = tw_graph_activation(b->g, name, 1, b->g->values.items[x].cols, TW_DT_F32);
    tw_graph_op(b->g, kind, name, x, y, TW_NONE, out);
    return out;
}

static void set_heads(struct builder *b, struct tw_gop *op, uint32_t n_heads) {
    op->n_heads = n_heads;
    op->n_kv_heads = b->h->n_kv_heads;
    op->head_dim = b->h->head_dim;
    op->rope_dims = b->h->rope_dims;
    op->pairing = b->h->rope_pairing;
    op->scale = 1.0f / sqrtf((float)b->h->head_dim);
}

static tw_gvalue_id rope(struct builder *b, const char *name, tw_gvalue_id x, uint32_t n_heads) {
    tw_gvalue_id out = tw_graph_activation(b->g, name, 1, n_heads * b->h->head_dim, TW_DT_F32);
    set_heads(b, tw_graph_op(b->g, TW_GOP_ROPE, name, x, b->cos_sin, TW_NONE, out), n_heads);
    return out;
}

static void kv_append(struct builder *b, const char *name, tw_gvalue_id x, tw_gvalue_id state) {
    set_heads(b, tw_graph_op(b->g, TW_GOP_KV_APPEND, name, x, state, b->g->pos, TW_NONE),
              b->h->n_kv_heads);
}

static tw_gvalue_id attention_block(struct builder *b, tw_gvalue_id x) {
    struct tw_graph *g = b->g;
    const struct tw_hparams *h = b->h;
    uint32_t kv_cols = h->n_kv_heads * h->head_dim;
    struct quants quant = NO_QUANTS, quant_out = NO_QUANTS;
    tw_gvalue_id keys =
        tw_graph_state(g, sequence_name(b, "attn.key"), b->n, kv_cols, h->head_dim, TW_PACK_KEYS);
    tw_gvalue_id values = tw_graph_state(g, sequence_name(b, "attn.value"), b->n, kv_cols,
                                         h->head_dim, TW_PACK_VALUES);
    tw_gvalue_id n = rms_norm(b, "attn_norm", x, layer_weight(b, "attn_norm.weight"));
    tw_gvalue_id k = matmul(b, "attn_k", n, layer_weight(b, "attn_k.weight"), &quant);
    tw_gvalue_id v = matmul(b, "attn_v", n, layer_weight(b, "attn_v.weight"), &quant);
    kv_append(b, "append_k", rope(b, "rope_k", k, h->n_kv_heads), keys);
    kv_append(b, "append_v", v, values);
    tw_gvalue_id q = matmul(b, "attn_q", n, layer_weight(b, "attn_q.weight"), &quant);
    tw_gvalue_id qr = rope(b, "rope_q", q, h->n_heads);
    tw_gvalue_id a = tw_graph_activation(g, "attention", 1, h->n_heads * h->head_dim, TW_DT_F32);
    set_heads(b, tw_graph_op(g, TW_GOP_ATTENTION, "attention", qr, keys, values, a), h->n_heads);
    tw_gvalue_id o = matmul(b, "attn_output", a, layer_weight(b, "attn_output.weight"), &quant_out);
    return binary(b, TW_GOP_ADD, "attn_residual", o, x);
}

static tw_gvalue_id feed_forward_block(struct builder *b, tw_gvalue_id x) {
    struct quants quant = NO_QUANTS, quant_down = NO_QUANTS;
    tw_gvalue_id n = rms_norm(b, "ffn_norm", x, layer_weight(b, "ffn_norm.weight"));
    tw_gvalue_id gate = matmul(b, "ffn_gate", n, layer_weight(b, "ffn_gate.weight"), &quant);
    tw_gvalue_id up = matmul(b, "ffn_up", n, layer_weight(b, "ffn_up.weight"), &quant);
    tw_gvalue_id act = binary(b, TW_GOP_SILU_MUL, "ffn_act", gate, up);
    tw_gvalue_id down = matmul(b, "ffn_down", act, layer_weight(b, "ffn_down.weight"), &quant_down);
    return binary(b, TW_GOP_ADD, "ffn_residual", down, x);
}

/* Returns rotation frequency i, theta^(-2i/d), scaled as the model demands. LLAMA3 (Llama 3.1 model
 * card): wavelengths longer than original_ctx/low are divided by the factor, those
 * shorter than original_ctx/high are kept, those between are interpolated. */
static float scaled_frequency(const struct tw_hparams *h, uint32_t i) {
    double freq = pow((double)h->rope_theta, -2.0 * i / h->rope_dims);
    if (h->rope_freq_factors) {
        freq /= (double)h->rope_freq_factors[i];
    }
    if (h->rope_scaling == TW_ROPE_SCALING_LINEAR) {
        freq /= (double)h->rope_factor;
    } else if (h->rope_scaling == TW_ROPE_SCALING_LLAMA3) {
        double turns = h->rope_original_ctx * freq / (2.0 * 3.14159265358979323846);
        double low = (double)h->rope_low_freq_factor, high = (double)h->rope_high_freq_factor;
        double smooth = turns <= low ? 0.0 : turns >= high ? 1.0 : (turns - low) / (high - low);
        freq = (1.0 - smooth) * freq / (double)h->rope_factor + smooth * freq;
    }
    return (float)freq;
}

static tw_gvalue_id frequencies(struct builder *b) {
    uint32_t half = b->h->rope_dims / 2;
    float *freq = tw_cmem_alloc(b->g->mem, half * sizeof *freq);
    for (uint32_t i = 0; i < half; i++) {
        freq[i] = scaled_frequency(b->h, i);
    }
    return tw_graph_constant(b->g, "rope.freq", freq, half);
}

int tw_arch_llama(const struct tw_model *model, struct tw_graph *g, tw_error *err) {
    struct builder b = {.g = g, .h = &model->h};
    if (b.h->head_dim > 512 || b.h->head_dim % 2) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "%s: head dimension %u is not supported; supported: even numbers up to 512",
                       model->path, b.h->head_dim);
    }
    g->ids = tw_graph_input(g, "ids", 1);
    g->pos = tw_graph_input(g, "pos", 0);
    tw_gvalue_id table = single_weight(&b, "token_embd.weight");

    tw_graph_begin_region(g, "embed", 1);
    tw_gvalue_id x = tw_graph_activation(g, "x", 1, b.h->dim, TW_DT_F32);
    tw_graph_op(g, TW_GOP_GATHER, "token_embd", table, g->ids, TW_NONE, x);
    tw_gvalue_id freq = frequencies(&b);
    b.cos_sin = tw_graph_activation(g, "rope", 1, b.h->rope_dims, TW_DT_F32);
    tw_graph_op(g, TW_GOP_ROPE_TABLE, "rope", g->pos, freq, TW_NONE, b.cos_sin);
    g->values.items[x].shared = g->values.items[b.cos_sin].shared = 1;
    tw_graph_end_region(g, TW_NONE, TW_NONE);

    for (; b.first < b.h->n_layers; b.first += b.n) {
        b.n = layers_alike(&b, b.first);
        tw_graph_begin_region(g, sequence_name(&b, "layer"), b.n);
        tw_gvalue_id after = feed_forward_block(&b, attention_block(&b, x));
        tw_graph_end_region(g, x, after);
    }

    tw_graph_begin_region(g, "head", 1);
    tw_gvalue_id last = tw_graph_activation(g, "last", 0, b.h->dim, TW_DT_F32);
    tw_graph_op(g, TW_GOP_LAST_ROW, "last", x, TW_NONE, TW_NONE, last);
    tw_gvalue_id n = rms_norm(&b, "output_norm", last, single_weight(&b, "output_norm.weight"));
    struct quants quant = NO_QUANTS;
    g->logits =
        matmul(&b, "logits", n, model->tied ? table : single_weight(&b, "output.weight"), &quant);
    tw_graph_op(g, TW_GOP_OUTPUT, "logits", g->logits, TW_NONE, TW_NONE, TW_NONE);
    tw_graph_end_region(g, TW_NONE, TW_NONE);
    return 0;
}
