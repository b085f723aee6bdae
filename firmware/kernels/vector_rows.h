/* SPDX-License-Identifier: Apache-2.0
 *
 * Row kernels over 16 lanes: norm, quantisation, elementwise, rotary. Written once in terms of
 * lanes_*.h and included by each instruction set's file. The formulas are those of scalar.c, lane
 * for lane.
 */

TW_INLINE vf v_exp(vf x) {
    vf a = v_min(v_set1(TW_EXP_HI), v_max(v_set1(TW_EXP_LO), x));
    vf t = v_fma(a, v_set1(TW_EXP_LOG2E), v_set1(TW_ROUND_MAGIC));
    vf n = v_sub(t, v_set1(TW_ROUND_MAGIC));
    vf r = v_fma(n, v_set1(-TW_EXP_LN2_LO), v_fma(n, v_set1(-TW_EXP_LN2_HI), a));
    vf q = v_fma(v_set1(TW_EXP_C6), r, v_set1(TW_EXP_C5));
    q = v_fma(q, r, v_set1(TW_EXP_C4));
    q = v_fma(q, r, v_set1(TW_EXP_C3));
    q = v_fma(q, r, v_set1(TW_EXP_C2));
    q = v_add(v_fma(q, v_mul(r, r), r), v_set1(1.0f));
    return v_zero_below(x, TW_EXP_LO, v_mul(v_add(q, q), v_exp_scale(t)));
}

TW_INLINE vf v_silu(vf x) {
    return v_div(x, v_add(v_set1(1.0f), v_exp(v_neg(x))));
}

TW_INLINE vf v_gelu(vf x) {
    vf z = v_mul(x, v_fma(v_set1(TW_GELU_C3), v_mul(x, x), v_set1(TW_GELU_C1)));
    return v_div(x, v_add(v_set1(1.0f), v_exp(z)));
}

TW_INLINE vf v_tanh(vf x) {
    vf a = v_min(v_set1(TW_TANH_LIMIT), v_max(v_set1(-TW_TANH_LIMIT), v_add(x, x)));
    vf t = v_fma(a, v_set1(TW_EXP_LOG2E), v_set1(TW_ROUND_MAGIC));
    vf n = v_sub(t, v_set1(TW_ROUND_MAGIC));
    vf r = v_fma(n, v_set1(-TW_EXP_LN2_LO), v_fma(n, v_set1(-TW_EXP_LN2_HI), a));
    vf q = v_fma(v_set1(TW_EXP_C6), r, v_set1(TW_EXP_C5));
    q = v_fma(q, r, v_set1(TW_EXP_C4));
    q = v_fma(q, r, v_set1(TW_EXP_C3));
    q = v_fma(q, r, v_set1(TW_EXP_C2));
    q = v_fma(q, v_mul(r, r), r);
    vf half = v_exp_scale(t), scale = v_add(half, half);
    vf e = v_fma(scale, q, v_sub(scale, v_set1(1.0f)));
    return v_div(e, v_add(e, v_set1(2.0f)));
}

TW_INLINE vf v_soft_cap(vf x, vf cap) {
    return v_mul(cap, v_tanh(v_div(x, cap)));
}

/* Returns where the whole vectors of 16 end in a row. */
TW_INLINE uint32_t vectors_end(uint32_t cols) {
    return cols / TW_LANES * TW_LANES;
}

/* The sum of the squares of at most a segment, as lanes. */
TW_INLINE vf v_squares(const float *x, uint32_t cols) {
    uint32_t end = vectors_end(cols), rest = cols - end;
    vf sum = v_zero();
    for (uint32_t c = 0; c < end; c += TW_LANES) {
        vf e = v_load(x + c);
        sum = v_fma(e, e, sum);
    }
    if (rest) {
        vf tail = v_load_n(x + end, rest);
        sum = v_fma(tail, tail, sum);
    }
    return sum;
}

TW_INLINE float sum_of_squares(const float *x, uint32_t cols) {
    struct tw_sum sum;
    sum.n = 0;
    for (; cols > TW_SUM_SEGMENT; x += TW_SUM_SEGMENT, cols -= TW_SUM_SEGMENT) {
        tw_sum_add(&sum, v_fold_add(v_squares(x, TW_SUM_SEGMENT)));
    }
    tw_sum_add(&sum, v_fold_add(v_squares(x, cols)));
    return tw_sum_value(&sum);
}

TW_INLINE void scale_row(const float *x, float f, const float *weight, uint32_t cols, float *y) {
    uint32_t end = vectors_end(cols), rest = cols - end;
    vf factor = v_set1(f);
    for (uint32_t c = 0; c < end; c += TW_LANES) {
        v_store(y + c, v_mul(v_mul(v_load(x + c), factor), v_load(weight + c)));
    }
    v_store_n(y + end, rest,
              v_mul(v_mul(v_load_n(x + end, rest), factor), v_load_n(weight + end, rest)));
}

static void rms_norm(const struct tw_kargs *a) {
    const struct tw_args_rms_norm v = tw_args_rms_norm(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        float factor = tw_rms_factor(sum_of_squares(x, v.cols), v.cols, v.epsilon);
        scale_row(x, factor, (const float *)v.weight, v.cols, tw_row(v.y, v.y_stride, r));
    }
}

/* The sum of at most a segment, as lanes. */
TW_INLINE vf v_sums(const float *x, uint32_t cols) {
    uint32_t end = vectors_end(cols), rest = cols - end;
    vf sum = v_zero();
    for (uint32_t c = 0; c < end; c += TW_LANES) {
        sum = v_add(sum, v_load(x + c));
    }
    return rest ? v_add(sum, v_load_n(x + end, rest)) : sum;
}

TW_INLINE float mean(const float *x, uint32_t cols) {
    struct tw_sum sum;
    uint32_t left = cols;
    sum.n = 0;
    for (; left > TW_SUM_SEGMENT; x += TW_SUM_SEGMENT, left -= TW_SUM_SEGMENT) {
        tw_sum_add(&sum, v_fold_add(v_sums(x, TW_SUM_SEGMENT)));
    }
    tw_sum_add(&sum, v_fold_add(v_sums(x, left)));
    return tw_sum_value(&sum) / (float)cols;
}

/* y is first the distance from the mean, then the result. */
static void layer_norm_row(const float *x, const float *weight, const float *bias, uint32_t cols,
                           float epsilon, float *y) {
    uint32_t end = vectors_end(cols), rest = cols - end;
    vf m = v_set1(mean(x, cols));
    for (uint32_t c = 0; c < end; c += TW_LANES) {
        v_store(y + c, v_sub(v_load(x + c), m));
    }
    v_store_n(y + end, rest, v_sub(v_load_n(x + end, rest), m));
    vf factor = v_set1(tw_rms_factor(sum_of_squares(y, cols), cols, epsilon));
    for (uint32_t c = 0; c < end; c += TW_LANES) {
        v_store(y + c, v_fma(v_mul(v_load(y + c), factor), v_load(weight + c), v_load(bias + c)));
    }
    v_store_n(y + end, rest,
              v_fma(v_mul(v_load_n(y + end, rest), factor), v_load_n(weight + end, rest),
                    v_load_n(bias + end, rest)));
}

static void layer_norm(const struct tw_kargs *a) {
    const struct tw_args_layer_norm v = tw_args_layer_norm(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        layer_norm_row(tw_const_row(v.x, v.x_stride, r), (const float *)v.weight,
                       (const float *)v.bias, v.cols, v.epsilon, tw_row(v.y, v.y_stride, r));
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

/* The fold of `parts` vectors, `step` floats apart; of the last one only `n` lanes count. */
TW_INLINE vf v_fold_parts(const float *x, size_t step, uint32_t parts, uint32_t n) {
    vf level[TW_SUM_LEVELS];
    for (uint32_t i = 0;; i++, x += step) {
        uint32_t j = 0;
        vf sum = n == TW_LANES ? v_load(x) : v_load_n(x, n);
        if (i == parts - 1) {
            for (; i >> j; j++) {
                sum = i >> j & 1u ? v_add(level[j], sum) : sum;
            }
            return sum;
        }
        for (; i >> j & 1u; j++) {
            sum = v_add(level[j], sum);
        }
        level[j] = sum;
    }
}

static void fold(const struct tw_kargs *a) {
    const struct tw_args_fold v = tw_args_fold(a);
    uint32_t end = vectors_end(v.cols), rest = v.cols - end;
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        float *y = tw_row(v.y, v.y_stride, r);
        for (uint32_t c = 0; c < end; c += TW_LANES) {
            v_store(y + c, v_fold_parts(x + c, v.cols, v.parts, TW_LANES));
        }
        if (rest) {
            v_store_n(y + end, rest, v_fold_parts(x + end, v.cols, v.parts, rest));
        }
    }
}

static void quant(const struct tw_kargs *a) {
    const struct tw_args_quant v = tw_args_quant(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        struct tw_q8s *y = (struct tw_q8s *)(void *)tw_row(v.y, v.y_stride, r);
        for (uint32_t b = 0; b < v.cols / 32; b++, x += 32, y++) {
            float inverse;
            y->d = tw_quant_scale(v_block_magnitude(x), &inverse);
            if (inverse == 0.0f) {
                memset(y->q, 0, sizeof y->q);
                y->sum = 0;
            } else {
                y->sum = v_block_quants(x, inverse, y->q);
            }
        }
    }
}

TW_INLINE void quant_block_q8k(const float *x, struct tw_q8k *y) {
    uint32_t amax = 0;
    for (uint32_t i = 0; i < TW_SUPER_BLOCK; i += 32) {
        uint32_t magnitude = v_block_magnitude(x + i);
        amax = magnitude > amax ? magnitude : amax;
    }
    float inverse;
    y->d = tw_quant_scale_q8k(amax, &inverse);
    if (inverse == 0.0f) {
        memset(y->q, 0, sizeof y->q);
        memset(y->sum, 0, sizeof y->sum);
        return;
    }
    for (uint32_t i = 0; i < TW_SUPER_BLOCK; i += 32) {
        int32_t both = v_block_quants(x + i, inverse, y->q + i), first = 0;
        for (uint32_t n = i; n < i + 16; n++) {
            first += y->q[n];
        }
        y->sum[i / 16] = (int16_t)first;
        y->sum[i / 16 + 1] = (int16_t)(both - first);
    }
}

static void quant_k(const struct tw_kargs *a) {
    const struct tw_args_quant_k v = tw_args_quant_k(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        struct tw_q8k *y = (struct tw_q8k *)(void *)tw_row(v.y, v.y_stride, r);
        for (uint32_t b = 0; b < v.cols / TW_SUPER_BLOCK; b++) {
            quant_block_q8k(x + (size_t)b * TW_SUPER_BLOCK, y + b);
        }
    }
}

static void add(const struct tw_kargs *a) {
    const struct tw_args_add v = tw_args_add(a);
    uint32_t end = vectors_end(v.cols), rest = v.cols - end;
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r), *y = tw_const_row(v.y, v.y_stride, r);
        float *z = tw_row(v.z, v.z_stride, r);
        for (uint32_t c = 0; c < end; c += TW_LANES) {
            v_store(z + c, v_add(v_load(x + c), v_load(y + c)));
        }
        v_store_n(z + end, rest, v_add(v_load_n(x + end, rest), v_load_n(y + end, rest)));
    }
}

/* Define the kernel of an op whose rows are made of the same columns of one or two others, with the
 * operands' names of ops.def: y[c] = of(x[c], factor), where the factor, of the operands v and the
 * row r, is the same for a row; and h[c] = of(g[c]) * u[c]. */
#define UNARY_ROWS(name, of, factor)                                      \
    static void name(const struct tw_kargs *a) {                          \
        const struct tw_args_##name v = tw_args_##name(a);                \
        uint32_t end = vectors_end(v.cols), rest = v.cols - end;          \
        for (uint32_t r = 0; r < v.rows; r++) {                           \
            const float *x = tw_const_row(v.x, v.x_stride, r);            \
            float *y = tw_row(v.y, v.y_stride, r);                        \
            vf f = v_set1(factor);                                        \
            for (uint32_t c = 0; c < end; c += TW_LANES) {                \
                v_store(y + c, of(v_load(x + c), f));                     \
            }                                                             \
            if (rest) {                                                   \
                v_store_n(y + end, rest, of(v_load_n(x + end, rest), f)); \
            }                                                             \
        }                                                                 \
    }

#define GATED_ROWS(name, of)                                                            \
    static void name(const struct tw_kargs *a) {                                        \
        const struct tw_args_##name v = tw_args_##name(a);                              \
        uint32_t end = vectors_end(v.cols), rest = v.cols - end;                        \
        for (uint32_t r = 0; r < v.rows; r++) {                                         \
            const float *g = tw_const_row(v.g, v.g_stride, r),                          \
                        *u = tw_const_row(v.u, v.u_stride, r);                          \
            float *h = tw_row(v.h, v.h_stride, r);                                      \
            for (uint32_t c = 0; c < end; c += TW_LANES) {                              \
                v_store(h + c, v_mul(of(v_load(g + c)), v_load(u + c)));                \
            }                                                                           \
            if (rest) {                                                                 \
                v_store_n(h + end, rest,                                                \
                          v_mul(of(v_load_n(g + end, rest)), v_load_n(u + end, rest))); \
            }                                                                           \
        }                                                                               \
    }

GATED_ROWS(silu_mul, v_silu)
GATED_ROWS(gelu_mul, v_gelu)
TW_INLINE vf v_gelu_of(vf x, vf none) {
    (void)none;
    return v_gelu(x);
}
UNARY_ROWS(gelu, v_gelu_of, 0.0f)
UNARY_ROWS(scale, v_mul, v.factor)
UNARY_ROWS(soft_cap, v_soft_cap, v.cap)
UNARY_ROWS(pos_scale, v_mul, tw_pos_factor(&v, r))

/* Computed once per token: the scalar formula, with this instruction set's fused multiply-add. */
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

TW_INLINE void v_rotate(vf *x0, vf *x1, const float *c, const float *s) {
    vf a = *x0, b = *x1, vc = v_load(c), vs = v_load(s);
    *x0 = v_fma(a, vc, v_neg(v_mul(b, vs)));
    *x1 = v_fma(a, vs, v_mul(b, vc));
}

/* Pairs (2i, 2i+1). */
static void rope_adjacent(float *x, const float *c, const float *s, uint32_t half) {
    uint32_t i = 0;
    for (; i + TW_LANES <= half; i += TW_LANES) {
        vf x0, x1, a, b;
        v_unzip(v_load(x + 2 * i), v_load(x + 2 * i + TW_LANES), &x0, &x1);
        v_rotate(&x0, &x1, c + i, s + i);
        v_zip(x0, x1, &a, &b);
        v_store(x + 2 * i, a);
        v_store(x + 2 * i + TW_LANES, b);
    }
    for (; i < half; i++) {
        tw_rotate(x + 2 * i, x + 2 * i + 1, c[i], s[i]);
    }
}

/* Pairs (i, i + half). */
static void rope_halves(float *x, const float *c, const float *s, uint32_t half) {
    uint32_t i = 0;
    for (; i + TW_LANES <= half; i += TW_LANES) {
        vf x0 = v_load(x + i), x1 = v_load(x + half + i);
        v_rotate(&x0, &x1, c + i, s + i);
        v_store(x + i, x0);
        v_store(x + half + i, x1);
    }
    for (; i < half; i++) {
        tw_rotate(x + i, x + half + i, c[i], s[i]);
    }
}

static void rope(const struct tw_kargs *a) {
    const struct tw_args_rope v = tw_args_rope(a);
    uint32_t half = v.rotated / 2;
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *c = tw_const_row(v.cs, v.cs_stride, r);
        float *x = tw_row(v.x, v.x_stride, r);
        for (uint32_t h = 0; h < v.heads; h++, x += v.head_dim) {
            if (v.mode) {
                rope_halves(x, c, c + half, half);
            } else {
                rope_adjacent(x, c, c + half, half);
            }
        }
    }
}

/* ---- the largest ---- */

/* Returns the largest tw_float_order() of a block; a loop that compilers vectorise. */
TW_INLINE int32_t max_order(const float *x) {
    int32_t max = INT32_MIN;
    for (uint32_t i = 0; i < TW_SCAN_BLOCK; i++) {
        int32_t order = tw_float_order(x[i]);
        max = order > max ? order : max;
    }
    return max;
}

/* Takes x[c] for c in [from, to) into a list; *last is the order of its last entry. Columns ascend,
 * so that of equal values an earlier one is there already. */
static void take_tops(const float *x, uint32_t from, uint32_t to, uint32_t base, uint32_t k,
                      struct tw_top *list, int32_t *last) {
    for (uint32_t c = from; c < to; c++) {
        if (tw_float_order(x[c]) > *last) {
            struct tw_top entry = {x[c], base + c};
            tw_top_insert(list, k, entry);
            *last = tw_float_order(list[k - 1].value);
        }
    }
}

/* Most blocks hold nothing larger than the list's last entry. */
static void topk(const struct tw_kargs *a) {
    const struct tw_args_topk v = tw_args_topk(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        struct tw_top *list = (struct tw_top *)(void *)tw_row(v.y, v.y_stride, r);
        int32_t last = INT32_MIN;
        uint32_t c = 0;
        for (uint32_t i = 0; i < v.k; i++) {
            list[i] = tw_top_missing();
        }
        for (; v.cols - c >= TW_SCAN_BLOCK; c += TW_SCAN_BLOCK) {
            if (max_order(x + c) > last) {
                take_tops(x, c, c + TW_SCAN_BLOCK, v.base, v.k, list, &last);
            }
        }
        take_tops(x, c, v.cols, v.base, v.k, list, &last);
    }
}
