/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference evaluator (reference.h): walks the regions and their operations in order; each
 * activation has one row, which holds its value until it is computed anew.
 */
#include "tests/support/reference.h"

#include "compiler/graph/dequant.h"
#include "loader/base/assert.h"
#include "tilewright/range.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tw_reference {
    const struct tw_graph *g;
    uint32_t n_ctx;
    uint32_t pos;
    uint32_t token;
    /* indexed by value: ACTIVATION [cols], STATE [instances][n_ctx][cols], else NULL */
    float **rows;
    float *weights; /* one row of a weight, as floats */
    float *vector;  /* another one */
    double *scores; /* of one head's attention, [n_ctx] */
};

/* ---- the operations ---- */

/* Returns row `row` of a weight, or of its member for this iteration of the region. */
static const float *weight_row(struct tw_reference *r, tw_gvalue_id id, uint32_t instance,
                               uint32_t row) {
    const struct tw_gvalue *v = &r->g->values.items[id];
    if (v->constant) {
        return v->constant;
    }
    tw_dequant_row(v->source[v->instances > 1 ? instance : 0], row, r->weights);
    return r->weights;
}

/* Returns the state's row for a position, in the member for this iteration. */
static float *state_row(struct tw_reference *r, tw_gvalue_id id, uint32_t instance, uint32_t pos) {
    const struct tw_gvalue *v = &r->g->values.items[id];
    size_t member = v->instances > 1 ? instance : 0;
    return r->rows[id] + (member * r->n_ctx + pos) * v->cols;
}

static float dot(const float *x, const float *y, uint32_t n) {
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

/* out[half + half] = cosines, sines of pos*freq[half]. The angle is computed in double because a
 * float has no fraction digits left at large positions. */
static void rope_table(float *out, const float *freq, uint32_t half, uint32_t pos) {
    for (uint32_t i = 0; i < half; i++) {
        double angle = (double)pos * (double)freq[i];
        out[i] = (float)cos(angle);
        out[half + i] = (float)sin(angle);
    }
}

/* out[n] = x[n] / sqrt(mean of squares + eps) * w[n] */
static void rms_norm(float *out, const float *x, const float *w, uint32_t n, float eps) {
    TW_ASSERT(out && x && w);
    float factor = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = x[i] * factor * w[i];
    }
}

/* out[n] = (x[n] - mean) / sqrt(mean of (x - mean)^2 + eps) * w[n] + b[n] */
static void layer_norm(float *out, const float *x, const float *w, const float *b, uint32_t n,
                       float eps) {
    double mean = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++) {
        mean += (double)x[i] / n;
    }
    for (uint32_t i = 0; i < n; i++) {
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    }
    double factor = 1.0 / sqrt(squares / n + (double)eps);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (float)(((double)x[i] - mean) * factor * (double)w[i] + (double)b[i]);
    }
}

/* The norm of a row, or of each of its heads, with weights of a head or of all. */
static void norm(struct tw_reference *r, float *out, const float *x, const struct tw_gop *op,
                 uint32_t instance, uint32_t cols) {
    uint32_t n = op->head_dim ? op->head_dim : cols, own = r->g->values.items[op->in[1]].cols;
    for (uint32_t at = 0; at < cols; at += n) {
        uint32_t from = own == cols ? at : 0;
        const float *w = weight_row(r, op->in[1], instance, 0);
        if (op->kind == TW_GOP_RMS_NORM) {
            rms_norm(out + at, x + at, w + from, n, op->eps);
            continue;
        }
        memcpy(r->vector, w, own * sizeof *w); /* weight_row has room for one */
        layer_norm(out + at, x + at, r->vector + from, weight_row(r, op->in[2], instance, 0) + from,
                   n, op->eps);
    }
}

static float capped(float x, float cap) {
    return cap != 0.0f ? (float)((double)cap * tanh((double)x / (double)cap)) : x;
}

/* out[rows] = w[rows, cols] * x[cols] */
static void matmul(struct tw_reference *r, float *out, const float *x, const struct tw_gop *op,
                   uint32_t instance) {
    tw_gvalue_id w = op->in[1];
    const struct tw_gvalue *v = &r->g->values.items[w];
    TW_ASSERT(out && x);
    for (uint32_t n = 0; n < v->rows; n++) {
        float sum = dot(weight_row(r, w, instance, n), x, v->cols);
        out[n] = capped(op->scale != 0.0f ? sum * op->scale : sum, op->cap);
    }
}

/* out[heads, head_dim] = x with the first rope_dims of each head rotated in pairs */
static void rope(float *out, const float *x, const float *table, const struct tw_gop *op) {
    const uint32_t half = op->rope_dims / 2;
    TW_ASSERT(out && x && table);
    const float *cosines = table, *sines = table + half;
    memcpy(out, x, (size_t)op->n_heads * op->head_dim * sizeof *out);
    for (uint32_t head = 0; head < op->n_heads; head++) {
        const float *from = x + (size_t)head * op->head_dim;
        float *to = out + (size_t)head * op->head_dim;
        for (uint32_t i = 0; i < half; i++) {
            uint32_t a = op->pairing == TW_ROPE_HALVES ? i : 2 * i;
            uint32_t b = op->pairing == TW_ROPE_HALVES ? i + half : 2 * i + 1;
            to[a] = from[a] * cosines[i] - from[b] * sines[i];
            to[b] = from[a] * sines[i] + from[b] * cosines[i];
        }
    }
}

static double dot_double(const float *x, const float *y, uint32_t n) {
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)y[i];
    }
    return sum;
}

static void softmax(double *x, uint32_t n) {
    double max = -DBL_MAX, sum = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        max = fmax(max, x[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        x[i] = exp(x[i] - max);
        sum += x[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        x[i] /= sum;
    }
}

/* out[heads, head_dim]: each query head attends to all positions so far, in the keys and values of
 * its group's head. In double, over all positions at once: the machine's blocks and segments, and
 * what long sums lose, are to be compared with it. */
static void attention(struct tw_reference *r, float *out, const float *q, const struct tw_gop *op,
                      uint32_t instance) {
    TW_ASSERT(out && q);
    const uint32_t dim = op->head_dim, group = op->n_heads / op->n_kv_heads;
    const uint32_t first = op->window && r->pos >= op->window ? r->pos - op->window + 1 : 0;
    for (uint32_t head = 0; head < op->n_heads; head++) {
        size_t at = (size_t)head * dim, kv_at = (size_t)(head / group) * dim;
        for (uint32_t t = first; t <= r->pos; t++) {
            const float *key = state_row(r, op->in[1], instance, t) + kv_at;
            double s = dot_double(q + at, key, dim) * (double)op->scale, cap = (double)op->cap;
            r->scores[t] = op->cap != 0.0f ? cap * tanh(s / cap) : s;
        }
        softmax(r->scores + first, r->pos + 1 - first);
        for (uint32_t i = 0; i < dim; i++) {
            double sum = 0.0;
            for (uint32_t t = first; t <= r->pos; t++) {
                const float *value = state_row(r, op->in[2], instance, t) + kv_at;
                sum += r->scores[t] * (double)value[i];
            }
            out[at + i] = (float)sum;
        }
    }
}

/* out[n] = g*sigmoid(g) * u */
static void silu_mul(float *out, const float *gate, const float *up, uint32_t n) {
    TW_ASSERT(out && gate && up);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
}

static float gelu(float x) {
    double z = sqrt(2 / 3.14159265358979323846) *
               ((double)x + 0.044715 * (double)x * (double)x * (double)x);
    return (float)((double)x / 2 * (1 + tanh(z)));
}

/* out[n] = gelu(x) * y, or gelu(x) without y */
static void gelu_mul(float *out, const float *x, const float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        out[i] = gelu(x[i]) * (y ? y[i] : 1.0f);
    }
}

static void scale(float *out, const float *x, float factor, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        out[i] = x[i] * factor;
    }
}

/* The factor of this position: the last one for all positions beyond the table. */
static float pos_factor(const struct tw_reference *r, const struct tw_gop *op) {
    const struct tw_gvalue *factors = &r->g->values.items[op->in[1]];
    uint32_t at = r->pos / op->period;
    return factors->constant[at < factors->cols ? at : factors->cols - 1];
}

static void add(float *out, const float *x, const float *y, uint32_t n) {
    TW_ASSERT(out && x && y);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = x[i] + y[i];
    }
}

static void evaluate(struct tw_reference *r, const struct tw_gop *op, uint32_t instance) {
    const struct tw_gvalue *values = r->g->values.items;
    const float *x = op->in[0] == TW_NONE ? NULL : r->rows[op->in[0]];
    const float *y = op->in[1] == TW_NONE ? NULL : r->rows[op->in[1]];
    float *out = op->out == TW_NONE ? NULL : r->rows[op->out];
    const uint32_t cols = op->out == TW_NONE ? 0 : values[op->out].cols;
    switch (op->kind) {
    case TW_GOP_GATHER:
        TW_ASSERT(out);
        memcpy(out, weight_row(r, op->in[0], instance, r->token), cols * sizeof *out);
        break;
    case TW_GOP_ROPE_TABLE:
        rope_table(out, weight_row(r, op->in[1], instance, 0), cols / 2, r->pos);
        break;
    case TW_GOP_RMS_NORM:
    case TW_GOP_LAYER_NORM:
        norm(r, out, x, op, instance, cols);
        break;
    case TW_GOP_QUANT:    /* another representation of the same value */
    case TW_GOP_LAST_ROW: /* the only row */
        TW_ASSERT(out && x);
        memcpy(out, x, cols * sizeof *out);
        break;
    case TW_GOP_MATMUL:
        matmul(r, out, x, op, instance);
        break;
    case TW_GOP_ROPE:
        rope(out, x, y, op);
        break;
    case TW_GOP_KV_APPEND:
        TW_ASSERT(x);
        memcpy(state_row(r, op->in[1], instance, r->pos), x, values[op->in[1]].cols * sizeof *x);
        break;
    case TW_GOP_ATTENTION:
        attention(r, out, x, op, instance);
        break;
    case TW_GOP_ADD:
        add(out, x, y, cols);
        break;
    case TW_GOP_SILU_MUL:
        silu_mul(out, x, y, cols);
        break;
    case TW_GOP_BIAS:
        add(out, x, weight_row(r, op->in[1], instance, 0), cols);
        break;
    case TW_GOP_GELU:
    case TW_GOP_GELU_MUL:
        gelu_mul(out, x, op->kind == TW_GOP_GELU ? NULL : y, cols);
        break;
    case TW_GOP_SCALE:
        scale(out, x, op->scale, cols);
        break;
    case TW_GOP_POS_SCALE:
        scale(out, x, pos_factor(r, op), cols);
        break;
    case TW_GOP_OUTPUT: /* the caller reads the value itself */
    case TW_GOP_COUNT:
        break;
    }
}

/* ---- the step ---- */

static void run_region(struct tw_reference *r, const struct tw_gregion *region) {
    for (uint32_t instance = 0; instance < region->repeat; instance++) {
        for (uint32_t i = 0; i < region->n_ops; i++) {
            evaluate(r, &r->g->ops.items[region->first_op + i], instance);
        }
        if (region->carry_in != TW_NONE) {
            memcpy(r->rows[region->carry_in], r->rows[region->carry_out],
                   r->g->values.items[region->carry_in].cols * sizeof(float));
        }
    }
}

int tw_reference_step(struct tw_reference *r, uint32_t token, const float **logits, tw_error *err) {
    if (token >= r->g->model->h.n_vocab) {
        return tw_fail(err, TW_E_RANGE, "token %u: the vocabulary has %u tokens", token,
                       r->g->model->h.n_vocab);
    }
    if (r->pos >= r->n_ctx) {
        return tw_fail(err, TW_E_CONTEXT_FULL, "position %u: the context has %u positions", r->pos,
                       r->n_ctx);
    }
    r->token = token;
    for (uint32_t i = 0; i < r->g->regions.n; i++) {
        run_region(r, &r->g->regions.items[i]);
    }
    r->pos++;
    *logits = r->rows[r->g->logits];
    return 0;
}

uint32_t tw_reference_n_vocab(const struct tw_reference *r) {
    return r->g->values.items[r->g->logits].cols;
}

/* ---- memory ---- */

static float *alloc_floats(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t count;
    if (!tw_mul_u64(a, b, &count) || !tw_mul_u64(count, c, &count) ||
        count > SIZE_MAX / sizeof(float)) {
        return NULL;
    }
    return calloc((size_t)count, sizeof(float));
}

/* Allocates the rows of one value; returns false when memory runs out. */
static bool alloc_value(struct tw_reference *r, tw_gvalue_id id) {
    const struct tw_gvalue *v = &r->g->values.items[id];
    switch (v->kind) {
    case TW_GV_ACTIVATION:
        r->rows[id] = alloc_floats(v->cols, 1, 1);
        return r->rows[id] != NULL;
    case TW_GV_STATE:
        r->rows[id] = alloc_floats(v->instances, r->n_ctx, v->cols);
        return r->rows[id] != NULL;
    case TW_GV_WEIGHT:
    case TW_GV_INPUT:
        break;
    }
    return true;
}

static bool alloc_all(struct tw_reference *r) {
    uint32_t widest = 1;
    r->rows = calloc(r->g->values.n, sizeof *r->rows);
    if (!r->rows) {
        return false;
    }
    for (uint32_t id = 0; id < r->g->values.n; id++) {
        const struct tw_gvalue *v = &r->g->values.items[id];
        if (v->kind == TW_GV_WEIGHT && v->cols > widest) {
            widest = v->cols;
        }
        if (!alloc_value(r, id)) {
            return false;
        }
    }
    r->weights = alloc_floats(widest, 1, 1);
    r->vector = alloc_floats(widest, 1, 1);
    r->scores = calloc(r->n_ctx, sizeof *r->scores);
    return r->weights && r->vector && r->scores;
}

int tw_reference_create(const struct tw_graph *g, uint32_t n_ctx, struct tw_reference **out,
                        tw_error *err) {
    *out = NULL;
    if (n_ctx == 0) {
        return tw_fail(err, TW_E_USAGE,
                       "reference: the context has 0 positions; at least 1 is required");
    }
    struct tw_reference *r = calloc(1, sizeof *r);
    if (r) {
        r->g = g;
        r->n_ctx = n_ctx;
    }
    if (!r || !alloc_all(r)) {
        tw_reference_destroy(r);
        return tw_fail(err, TW_E_NOMEM, "reference: no memory for a context of %u positions",
                       n_ctx);
    }
    *out = r;
    return 0;
}

void tw_reference_destroy(struct tw_reference *r) {
    if (!r) {
        return;
    }
    for (uint32_t id = 0; r->rows && id < r->g->values.n; id++) {
        free(r->rows[id]);
    }
    free(r->rows);
    free(r->weights);
    free(r->vector);
    free(r->scores);
    free(r);
}
