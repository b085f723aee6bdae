/* SPDX-License-Identifier: Apache-2.0
 *
 * The scalar kernels: the definition that every other table must equal bit for bit, written to be
 * read. The sixteen "lanes" of a loop are the lanes of a vector, in the same order.
 */
#include "firmware/kernels/internal.h"
#include "tilewright/quants.h"

#include <string.h>

/* ---- rows ---- */

static float sum_of_squares(const float *x, uint32_t cols) {
    struct tw_sum sum = {0};
    for (uint32_t from = 0; from < cols; from += TW_SUM_SEGMENT) {
        float lane[TW_LANES] = {0};
        for (uint32_t c = from; c < cols && c - from < TW_SUM_SEGMENT; c++) {
            lane[c % TW_LANES] = __builtin_fmaf(x[c], x[c], lane[c % TW_LANES]);
        }
        tw_sum_add(&sum, tw_fold_add(lane));
    }
    return tw_sum_value(&sum);
}

static void scale_row(const float *x, float factor, const float *weight, uint32_t cols, float *y) {
    for (uint32_t c = 0; c < cols; c++) {
        y[c] = x[c] * factor * weight[c];
    }
}

static void rms_norm(const struct tw_kargs *a) {
    const struct tw_args_rms_norm v = tw_args_rms_norm(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        float factor = tw_rms_factor(sum_of_squares(x, v.cols), v.cols, v.epsilon);
        scale_row(x, factor, (const float *)v.weight, v.cols, tw_row(v.y, v.y_stride, r));
    }
}

static void squares(const struct tw_kargs *a) {
    const struct tw_args_squares v = tw_args_squares(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        *tw_row(v.y, v.y_stride, r) = sum_of_squares(tw_const_row(v.x, v.x_stride, r), v.cols);
    }
}

static void rms_scale(const struct tw_kargs *a) {
    const struct tw_args_rms_scale v = tw_args_rms_scale(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        float factor = tw_rms_factor(*tw_const_row(v.sum, v.sum_stride, r), v.width, v.epsilon);
        scale_row(tw_const_row(v.x, v.x_stride, r), factor, (const float *)v.weight, v.cols,
                  tw_row(v.y, v.y_stride, r));
    }
}

static float mean(const float *x, uint32_t cols) {
    struct tw_sum sum = {0};
    for (uint32_t from = 0; from < cols; from += TW_SUM_SEGMENT) {
        float lane[TW_LANES] = {0};
        for (uint32_t c = from; c < cols && c - from < TW_SUM_SEGMENT; c++) {
            lane[c % TW_LANES] += x[c];
        }
        tw_sum_add(&sum, tw_fold_add(lane));
    }
    return tw_sum_value(&sum) / (float)cols;
}

static void layer_norm(const struct tw_kargs *a) {
    const struct tw_args_layer_norm v = tw_args_layer_norm(a);
    const float *weight = (const float *)v.weight, *bias = (const float *)v.bias;
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        float *y = tw_row(v.y, v.y_stride, r), m = mean(x, v.cols);
        for (uint32_t c = 0; c < v.cols; c++) {
            y[c] = x[c] - m;
        }
        float factor = tw_rms_factor(sum_of_squares(y, v.cols), v.cols, v.epsilon);
        for (uint32_t c = 0; c < v.cols; c++) {
            y[c] = __builtin_fmaf(y[c] * factor, weight[c], bias[c]);
        }
    }
}

static void quant(const struct tw_kargs *a) {
    const struct tw_args_quant v = tw_args_quant(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        struct tw_q8s *y = (struct tw_q8s *)(void *)tw_row(v.y, v.y_stride, r);
        for (uint32_t b = 0; b < v.cols / 32; b++) {
            tw_quant_block(x + (size_t)b * 32, y + b);
        }
    }
}

static void quant_k(const struct tw_kargs *a) {
    const struct tw_args_quant_k v = tw_args_quant_k(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        struct tw_q8k *y = (struct tw_q8k *)(void *)tw_row(v.y, v.y_stride, r);
        for (uint32_t b = 0; b < v.cols / TW_SUPER_BLOCK; b++) {
            tw_quant_block_q8k(x + (size_t)b * TW_SUPER_BLOCK, y + b);
        }
    }
}

static void add(const struct tw_kargs *a) {
    const struct tw_args_add v = tw_args_add(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r), *y = tw_const_row(v.y, v.y_stride, r);
        float *z = tw_row(v.z, v.z_stride, r);
        for (uint32_t c = 0; c < v.cols; c++) {
            z[c] = x[c] + y[c];
        }
    }
}

static void silu_mul(const struct tw_kargs *a) {
    const struct tw_args_silu_mul v = tw_args_silu_mul(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *g = tw_const_row(v.g, v.g_stride, r), *u = tw_const_row(v.u, v.u_stride, r);
        float *h = tw_row(v.h, v.h_stride, r);
        for (uint32_t c = 0; c < v.cols; c++) {
            h[c] = tw_silu(g[c]) * u[c];
        }
    }
}

static void gelu_mul(const struct tw_kargs *a) {
    const struct tw_args_gelu_mul v = tw_args_gelu_mul(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *g = tw_const_row(v.g, v.g_stride, r), *u = tw_const_row(v.u, v.u_stride, r);
        float *h = tw_row(v.h, v.h_stride, r);
        for (uint32_t c = 0; c < v.cols; c++) {
            h[c] = tw_gelu(g[c]) * u[c];
        }
    }
}

static void gelu(const struct tw_kargs *a) {
    const struct tw_args_gelu v = tw_args_gelu(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        float *y = tw_row(v.y, v.y_stride, r);
        for (uint32_t c = 0; c < v.cols; c++) {
            y[c] = tw_gelu(x[c]);
        }
    }
}

static void scale(const struct tw_kargs *a) {
    const struct tw_args_scale v = tw_args_scale(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        float *y = tw_row(v.y, v.y_stride, r);
        for (uint32_t c = 0; c < v.cols; c++) {
            y[c] = x[c] * v.factor;
        }
    }
}

static void soft_cap(const struct tw_kargs *a) {
    const struct tw_args_soft_cap v = tw_args_soft_cap(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        float *y = tw_row(v.y, v.y_stride, r);
        for (uint32_t c = 0; c < v.cols; c++) {
            y[c] = tw_soft_cap(x[c], v.cap);
        }
    }
}

static void pos_scale(const struct tw_kargs *a) {
    const struct tw_args_pos_scale v = tw_args_pos_scale(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        float *y = tw_row(v.y, v.y_stride, r), factor = tw_pos_factor(&v, r);
        for (uint32_t c = 0; c < v.cols; c++) {
            y[c] = x[c] * factor;
        }
    }
}

static void rope_table(const struct tw_kargs *a) {
    const struct tw_args_rope_table v = tw_args_rope_table(a);
    const float *frequency = (const float *)v.freq;
    uint32_t half = v.half;
    for (uint32_t r = 0; r < v.rows; r++) {
        float *cs = tw_row(v.cs, v.cs_stride, r);
        for (uint32_t i = 0; i < half; i++) {
            tw_sincos(v.pos + r, frequency[i], &cs[half + i], &cs[i]);
        }
    }
}

static void rope(const struct tw_kargs *a) {
    const struct tw_args_rope v = tw_args_rope(a);
    uint32_t half = v.rotated / 2;
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *c = tw_const_row(v.cs, v.cs_stride, r), *s = c + half;
        for (uint32_t h = 0; h < v.heads; h++) {
            float *x = tw_row(v.x, v.x_stride, r) + (size_t)h * v.head_dim;
            for (uint32_t i = 0; i < half; i++) {
                float *x0 = v.mode ? x + i : x + 2 * i;
                tw_rotate(x0, v.mode ? x0 + half : x0 + 1, c[i], s[i]);
            }
        }
    }
}

/* ---- matrix products ---- */

static float weight_at(const struct tw_matmul *m, const uint8_t *panel, uint32_t k, uint32_t lane) {
    size_t at = (size_t)k * TW_PANEL_ROWS + lane;
    if (m->dtype == TW_DT_F32) {
        return ((const float *)(const void *)panel)[at];
    }
    uint16_t half = ((const uint16_t *)(const void *)panel)[at];
    return m->dtype == TW_DT_F16 ? tw_f16_to_f32(half) : tw_bf16_to_f32(half);
}

/* Return the sum over a segment of a row of the panel, `elems` columns from number `from` on. */
static float float_segment(const struct tw_matmul *m, const float *x, const uint8_t *panel,
                           uint32_t lane, uint32_t from, uint32_t elems) {
    float sum = 0.0f;
    for (uint32_t k = from; k < from + elems; k++) {
        sum = __builtin_fmaf(weight_at(m, panel, k, lane), x[k], sum);
    }
    return sum;
}

static float quant_segment(const struct tw_matmul *m, const void *x, const uint8_t *panel,
                           uint32_t lane, uint32_t from, uint32_t elems) {
    uint32_t block_elems = tw_dtype_block_elems(m->dtype);
    const uint8_t *segment = panel + tw_panel_offset(m->dtype, from);
    float sum = 0.0f;
    for (uint32_t n = 0; n < elems / block_elems; n++) {
        struct tw_block b;
        size_t at = from / block_elems + n;
        tw_block_of_panel(m->dtype, segment, elems, n, lane, &b);
        sum = block_elems == 32 ? tw_block_times_q8s(&b, (const struct tw_q8s *)x + at, sum)
                                : tw_block_times_q8k(&b, (const struct tw_q8k *)x + at, sum);
    }
    return sum;
}

/* Blocks as floats, with float activations. */
static float unpacked_segment(const struct tw_matmul *m, const float *x, const uint8_t *panel,
                              uint32_t lane, uint32_t from, uint32_t elems) {
    uint32_t block_elems = tw_dtype_block_elems(m->dtype);
    const uint8_t *segment = panel + tw_panel_offset(m->dtype, from);
    float sum = 0.0f;
    for (uint32_t n = 0; n < elems / block_elems; n++) {
        struct tw_block b;
        float w[TW_SUPER_BLOCK];
        tw_block_of_panel(m->dtype, segment, elems, n, lane, &b);
        tw_block_floats(&b, block_elems, w);
        for (uint32_t k = 0; k < block_elems; k++) {
            sum = __builtin_fmaf(w[k], x[from + n * block_elems + k], sum);
        }
    }
    return sum;
}

static float segment_sum(const struct tw_matmul *m, const void *x, const uint8_t *panel,
                         uint32_t lane, uint32_t from, uint32_t elems) {
    if (tw_dtype_block_elems(m->dtype) == 1) {
        return float_segment(m, (const float *)x, panel, lane, from, elems);
    }
    return m->x_is_float ? unpacked_segment(m, (const float *)x, panel, lane, from, elems)
                         : quant_segment(m, x, panel, lane, from, elems);
}

static float product(const struct tw_matmul *m, const void *x, const uint8_t *panel,
                     uint32_t lane) {
    struct tw_sum sum = {0};
    for (uint32_t from = 0; from < m->k; from += TW_SUM_SEGMENT) {
        uint32_t elems = m->k - from < TW_SUM_SEGMENT ? m->k - from : TW_SUM_SEGMENT;
        tw_sum_add(&sum, segment_sum(m, x, panel, lane, from, elems));
    }
    return tw_sum_value(&sum);
}

static void matmul(const struct tw_kargs *a) {
    struct tw_matmul m = tw_matmul_view(a);
    for (uint32_t r = 0; r < m.rows; r++) {
        const void *x = m.x + m.x_stride * r;
        for (uint32_t p = 0; p < m.panels; p++) {
            const uint8_t *panel = m.w + m.w_stride * p;
            float *y = tw_matmul_y(&m, r, p);
            for (uint32_t lane = 0; lane < TW_PANEL_ROWS; lane++) {
                float sum = product(&m, x, panel, lane);
                y[lane] = m.reload ? y[lane] + sum : sum;
            }
        }
    }
}

static void fold(const struct tw_kargs *a) {
    const struct tw_args_fold v = tw_args_fold(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        float *y = tw_row(v.y, v.y_stride, r);
        for (uint32_t c = 0; c < v.cols; c++) {
            struct tw_sum sum = {0};
            for (uint32_t p = 0; p < v.parts; p++) {
                tw_sum_add(&sum, x[(size_t)p * v.cols + c]);
            }
            y[c] = tw_sum_value(&sum);
        }
    }
}

/* ---- attention ---- */

static void attn_init(const struct tw_kargs *a) {
    const struct tw_args_attn_init v = tw_args_attn_init(a);
    float *state = (float *)v.state;
    for (size_t i = 0; i < (size_t)v.rows * v.heads; i++, state += (size_t)v.head_dim + 2) {
        tw_attention_empty(state, v.head_dim);
    }
}

static float cached(const struct tw_attention *v, const void *cache, size_t at) {
    return v->half ? tw_f16_to_f32(((const uint16_t *)cache)[at]) : ((const float *)cache)[at];
}

/* Computes s_j of the positions from `before` on. */
static void scores(const struct tw_attention *v, const float *q, uint32_t before, uint32_t visible,
                   float *s) {
    for (uint32_t j = before; j < visible; j++) {
        size_t key = (size_t)(j / 16) * v->head_dim * 16 + j % 16;
        float sum = 0.0f;
        for (uint32_t d = 0; d < v->head_dim; d++) {
            sum = __builtin_fmaf(q[d], cached(v, v->keys, key + (size_t)d * 16), sum);
        }
        s[j] = sum * v->scale;
        if (v->cap != 0.0f) {
            s[j] = tw_soft_cap(s[j], v->cap);
        }
    }
}

/* Turns the scores into p_j under the new maximum, updates m and l, and returns the factor of the
 * old sums. */
static float softmax(float *s, uint32_t before, uint32_t visible, float *state) {
    float high[TW_LANES], sum[TW_LANES] = {0};
    for (uint32_t i = 0; i < TW_LANES; i++) {
        high[i] = -__builtin_inff();
    }
    for (uint32_t j = before; j < visible; j++) {
        high[j % TW_LANES] = tw_max(high[j % TW_LANES], s[j]);
    }
    float m = tw_max(state[0], tw_fold_max(high)), c = tw_exp(state[0] - m);
    for (uint32_t j = before; j < visible; j++) {
        s[j] = tw_exp(s[j] - m);
        sum[j % TW_LANES] += s[j];
    }
    state[0] = m;
    state[1] = __builtin_fmaf(state[1], c, tw_fold_add(sum));
    return c;
}

/* Merges x into the state whose m and l are at ml. */
static void merge(float *ml, float *o, const float *x, uint32_t head_dim) {
    float factor, later;
    enum tw_attn_merge how = tw_attn_merge(ml, x, &factor, &later);
    for (uint32_t d = 0; d < head_dim && how != TW_MERGE_NOTHING; d++) {
        o[d] = how == TW_MERGE_REPLACE ? x[2 + d] : __builtin_fmaf(x[2 + d], later, o[d] * factor);
    }
}

static void attn_query(const struct tw_attention *v, uint32_t r, uint32_t h) {
    float p[TW_KV_BLOCK], *state = tw_attention_state(v, r, h), *o = state + 2;
    uint32_t visible = tw_attention_visible(v, r), before = tw_attention_before(v, r);
    if (visible == 0) {
        return;
    }
    if (v->merges) {
        float *earlier = state - tw_attention_segment(v);
        merge(earlier, earlier + 2, state, v->head_dim);
        tw_attention_empty(state, v->head_dim);
    }
    if (before == TW_KV_BLOCK) {
        return;
    }
    scores(v, tw_attention_query(v, r, h), before, visible, p);
    float c = softmax(p, before, visible, state);
    for (uint32_t d = 0; d < v->head_dim; d++) {
        float sum = o[d] * c;
        for (uint32_t j = before; j < visible; j++) {
            sum = __builtin_fmaf(p[j], cached(v, v->values, (size_t)j * v->head_dim + d), sum);
        }
        o[d] = sum;
    }
}

static void attn_queries(const struct tw_attention *v) {
    for (uint32_t r = 0; r < v->rows; r++) {
        for (uint32_t h = 0; h < v->heads; h++) {
            attn_query(v, r, h);
        }
    }
}

static void attn_step(const struct tw_kargs *a) {
    struct tw_attention v = tw_attention_view(a);
    attn_queries(&v);
}

static void attn_window(const struct tw_kargs *a) {
    struct tw_attention v = tw_attention_window_view(a);
    attn_queries(&v);
}

static void attn_merge(const struct tw_kargs *a) {
    const struct tw_args_attn_merge v = tw_args_attn_merge(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        float *state = tw_row(v.state, v.state_stride, r);
        for (uint32_t h = 0; h < v.heads; h++) {
            merge(state, state + 2, x, v.head_dim);
            state += (size_t)v.head_dim + 2;
            x += (size_t)v.head_dim + 2;
        }
    }
}

/* Merges the states of a head's segments; o is summed in y. */
static void done_query(const struct tw_args_attn_done *v, const float *state, float *y) {
    float ml[2] = {state[0], state[1]};
    memcpy(y, state + 2, v->head_dim * sizeof *y);
    for (uint32_t s = 1; s < v->segments; s++) {
        state += v->heads * ((size_t)v->head_dim + 2);
        merge(ml, y, state, v->head_dim);
    }
    for (uint32_t d = 0; d < v->head_dim; d++) {
        y[d] /= ml[1];
    }
}

static void attn_done(const struct tw_kargs *a) {
    const struct tw_args_attn_done v = tw_args_attn_done(a);
    size_t floats = (size_t)v.head_dim + 2;
    const float *state = (const float *)v.state;
    for (uint32_t r = 0; r < v.rows; r++, state += v.segments * v.heads * floats) {
        for (uint32_t h = 0; h < v.heads; h++) {
            done_query(&v, state + h * floats, tw_row(v.y, v.y_stride, r) + h * (size_t)v.head_dim);
        }
    }
}

static void topk(const struct tw_kargs *a) {
    const struct tw_args_topk v = tw_args_topk(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        tw_top_row(tw_const_row(v.x, v.x_stride, r), v.cols, v.base, v.k,
                   (void *)tw_row(v.y, v.y_stride, r));
    }
}

const struct tw_kernel_table tw_kernels_scalar = {
    "scalar",
    {
        TW_MOVE_KERNELS,
        [TW_OP_RMS_NORM] = rms_norm,
        [TW_OP_QUANT] = quant,
        [TW_OP_MATMUL] = matmul,
        [TW_OP_ROPE_TABLE] = rope_table,
        [TW_OP_ROPE] = rope,
        [TW_OP_ATTN_INIT] = attn_init,
        [TW_OP_ATTN_STEP] = attn_step,
        [TW_OP_ATTN_DONE] = attn_done,
        [TW_OP_ATTN_MERGE] = attn_merge,
        [TW_OP_ADD] = add,
        [TW_OP_TOPK] = topk,
        [TW_OP_SILU_MUL] = silu_mul,
        [TW_OP_QUANT_K] = quant_k,
        [TW_OP_FOLD] = fold,
        [TW_OP_SQUARES] = squares,
        [TW_OP_RMS_SCALE] = rms_scale,
        [TW_OP_LAYER_NORM] = layer_norm,
        [TW_OP_GELU] = gelu,
        [TW_OP_GELU_MUL] = gelu_mul,
        [TW_OP_SCALE] = scale,
        [TW_OP_SOFT_CAP] = soft_cap,
        [TW_OP_POS_SCALE] = pos_scale,
        [TW_OP_ATTN_WINDOW] = attn_window,
    },
};
