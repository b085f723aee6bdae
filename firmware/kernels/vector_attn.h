/* SPDX-License-Identifier: Apache-2.0
 *
 * The online softmax over 16 lanes. A tile of T queries (any rows of a chunk and heads of a group)
 * is processed against the keys and values of a block together, so that each is loaded once for T
 * queries. Positions that a query does not see are computed but masked before anything is derived
 * from them; their values are never read. Included by each instruction set's file, which defines
 * ATTN_QUERIES, ATTN_GROUPS (key vectors) and ATTN_DIMS (value vectors).
 */

struct query_tile {
    const float *q[ATTN_QUERIES];
    float *o[ATTN_QUERIES];
    uint32_t visible[ATTN_QUERIES], common; /* common: the smallest `visible` of the tile */
    float c[ATTN_QUERIES];
    float p[ATTN_QUERIES][TW_KV_BLOCK];
};

/* Loads elements `at` on of a cache, f16 (`half`) or f32. */
TW_INLINE vf v_cached(const void *cache, size_t at, const int half) {
    return half ? v_load_f16((const uint8_t *)cache + at * 2) : v_load((const float *)cache + at);
}

TW_INLINE vf v_cached_part(const void *cache, size_t at, uint32_t n, const int half) {
    if (n == TW_LANES) {
        return v_cached(cache, at, half);
    }
    if (!half) {
        return v_load_n((const float *)cache + at, n);
    }
    uint8_t lane[TW_LANES * 2] = {0};
    memcpy(lane, (const uint8_t *)cache + at * 2, (size_t)n * 2);
    return v_load_f16(lane);
}

/* Computes the scores of J groups of 16 positions from `group` on. */
TW_INLINE void score_groups(const struct tw_attention *v, struct query_tile *tile, uint32_t group,
                            const int T, const int J, const int half) {
    vf sum[ATTN_QUERIES][ATTN_GROUPS];
    const size_t step = (size_t)v->head_dim * TW_LANES;
    TW_UNROLL
    for (int t = 0; t < T; t++) {
        TW_UNROLL
        for (int j = 0; j < J; j++) {
            sum[t][j] = v_zero();
        }
    }
    for (size_t d = 0; d < v->head_dim; d++) {
        vf key[ATTN_GROUPS];
        TW_UNROLL
        for (int j = 0; j < J; j++) {
            key[j] = v_cached(v->keys, (group + (size_t)j) * step + d * TW_LANES, half);
        }
        TW_UNROLL
        for (int t = 0; t < T; t++) {
            vf q = v_set1(tile->q[t][d]);
            TW_UNROLL
            for (int j = 0; j < J; j++) {
                sum[t][j] = v_fma(q, key[j], sum[t][j]);
            }
        }
    }
    TW_UNROLL
    for (int t = 0; t < T; t++) {
        TW_UNROLL
        for (int j = 0; j < J; j++) {
            v_store(tile->p[t] + (group + (uint32_t)j) * TW_LANES,
                    v_mul(sum[t][j], v_set1(v->scale)));
        }
    }
}

static inline uint32_t visible_lanes(uint32_t visible, uint32_t group) {
    uint32_t left = visible - group * TW_LANES;
    return left < TW_LANES ? left : TW_LANES;
}

/* Turns the scores into p_j under the new maximum, updates m and l, and returns the factor of the
 * old sums. */
static float softmax(float *s, uint32_t visible, float *state) {
    uint32_t groups = (visible + TW_LANES - 1) / TW_LANES;
    vf lowest = v_set1(-__builtin_inff()), high = lowest, sum = v_zero();
    for (uint32_t g = 0; g < groups; g++) {
        high = v_max(v_select_n(visible_lanes(visible, g), v_load(s + g * TW_LANES), lowest), high);
    }
    float m = tw_max(state[0], v_fold_max(high)), c = tw_exp(state[0] - m);
    for (uint32_t g = 0; g < groups; g++) {
        vf p = v_exp(v_sub(v_load(s + g * TW_LANES), v_set1(m)));
        p = v_select_n(visible_lanes(visible, g), p, v_zero());
        v_store(s + g * TW_LANES, p);
        sum = v_add(sum, p);
    }
    state[0] = m;
    state[1] = __builtin_fmaf(state[1], c, v_fold_add(sum));
    return c;
}

TW_INLINE vf v_load_part(const float *p, uint32_t n) {
    return n == TW_LANES ? v_load(p) : v_load_n(p, n);
}

/* Updates o in D vectors from dimension d on, in n lanes of the last one (a constant 16 except at
 * the end of odd head sizes). */
TW_INLINE void value_dims(const struct tw_attention *v, struct query_tile *tile, uint32_t d,
                          uint32_t n, const int T, const int D, const int half) {
    vf sum[ATTN_QUERIES][ATTN_DIMS];
    size_t value = d;
    TW_UNROLL
    for (int t = 0; t < T; t++) {
        TW_UNROLL
        for (int i = 0; i < D; i++) {
            sum[t][i] =
                v_mul(v_load_part(tile->o[t] + d + (uint32_t)i * TW_LANES, n), v_set1(tile->c[t]));
        }
    }
    for (uint32_t j = 0; j < tile->common; j++, value += v->head_dim) {
        vf x[ATTN_DIMS];
        TW_UNROLL
        for (int i = 0; i < D; i++) {
            x[i] = v_cached_part(v->values, value + (uint32_t)i * TW_LANES, n, half);
        }
        TW_UNROLL
        for (int t = 0; t < T; t++) {
            vf p = v_set1(tile->p[t][j]);
            TW_UNROLL
            for (int i = 0; i < D; i++) {
                sum[t][i] = v_fma(p, x[i], sum[t][i]);
            }
        }
    }
    TW_UNROLL
    for (int t = 0; t < T; t++) {
        size_t own = value;
        for (uint32_t j = tile->common; j < tile->visible[t]; j++, own += v->head_dim) {
            TW_UNROLL
            for (int i = 0; i < D; i++) {
                sum[t][i] = v_fma(v_set1(tile->p[t][j]),
                                  v_cached_part(v->values, own + (uint32_t)i * TW_LANES, n, half),
                                  sum[t][i]);
            }
        }
        TW_UNROLL
        for (int i = 0; i < D; i++) {
            v_store_n(tile->o[t] + d + (uint32_t)i * TW_LANES, n, sum[t][i]);
        }
    }
}

TW_INLINE void attn_values(const struct tw_attention *v, struct query_tile *tile, const int T,
                           const int half) {
    uint32_t d = 0;
    for (; d + ATTN_DIMS * TW_LANES <= v->head_dim; d += ATTN_DIMS * TW_LANES) {
        value_dims(v, tile, d, TW_LANES, T, ATTN_DIMS, half);
    }
    for (; d + TW_LANES <= v->head_dim; d += TW_LANES) {
        value_dims(v, tile, d, TW_LANES, T, 1, half);
    }
    if (d < v->head_dim) {
        value_dims(v, tile, d, v->head_dim - d, T, 1, half);
    }
}

/* Merges x into the state whose m and l are at ml. */
static void merge_state(float *ml, float *o, const float *x, uint32_t head_dim) {
    float factor, later;
    uint32_t end = vectors_end(head_dim), rest = head_dim - end;
    enum tw_attn_merge how = tw_attn_merge(ml, x, &factor, &later);
    x += 2;
    if (how == TW_MERGE_REPLACE) {
        memcpy(o, x, head_dim * sizeof *o);
    }
    if (how != TW_MERGE_ADD) {
        return;
    }
    vf a = v_set1(factor), b = v_set1(later);
    for (uint32_t d = 0; d < end; d += TW_LANES) {
        v_store(o + d, v_fma(v_load(x + d), b, v_mul(v_load(o + d), a)));
    }
    v_store_n(o + end, rest, v_fma(v_load_n(x + end, rest), b, v_mul(v_load_n(o + end, rest), a)));
}

/* Processes queries index, index + 1, ... of the chunk, numbered with the head varying fastest.
 * Each of them sees at least one position. */
TW_INLINE void attn_tile(const struct tw_attention *v, uint64_t index, const int T,
                         const int half) {
    struct query_tile tile;
    uint32_t max_visible = 0;
    tile.common = TW_KV_BLOCK;
    for (int t = 0; t < T; t++) {
        uint32_t r = (uint32_t)((index + (uint64_t)t) / v->heads),
                 h = (uint32_t)((index + (uint64_t)t) % v->heads);
        tile.q[t] = tw_attention_query(v, r, h);
        tile.o[t] = tw_attention_state(v, r, h) + 2;
        uint32_t visible = tile.visible[t] = tw_attention_visible(v, r);
        max_visible = visible > max_visible ? visible : max_visible;
        tile.common = visible < tile.common ? visible : tile.common;
        if (v->merges) {
            float *state = tile.o[t] - 2, *before = state - tw_attention_segment(v);
            merge_state(before, before + 2, state, v->head_dim);
            tw_attention_empty(state, v->head_dim);
        }
    }
    uint32_t groups = (max_visible + TW_LANES - 1) / TW_LANES, g = 0;
    for (; g + ATTN_GROUPS <= groups; g += ATTN_GROUPS) {
        score_groups(v, &tile, g, T, ATTN_GROUPS, half);
    }
    for (; g < groups; g++) {
        score_groups(v, &tile, g, T, 1, half);
    }
    for (int t = 0; t < T; t++) {
        tile.c[t] = softmax(tile.p[t], tile.visible[t], tile.o[t] - 2);
    }
    attn_values(v, &tile, T, half);
}

typedef void attn_tile_fn(const struct tw_attention *v, uint64_t index);

static void attn_tile_many(const struct tw_attention *v, uint64_t index) {
    attn_tile(v, index, ATTN_QUERIES, 0);
}
static void attn_tile_one(const struct tw_attention *v, uint64_t index) {
    attn_tile(v, index, 1, 0);
}
static void attn_tile_many_f16(const struct tw_attention *v, uint64_t index) {
    attn_tile(v, index, ATTN_QUERIES, 1);
}
static void attn_tile_one_f16(const struct tw_attention *v, uint64_t index) {
    attn_tile(v, index, 1, 1);
}

static void attn_step(const struct tw_kargs *a) {
    struct tw_attention v = tw_attention_view(a);
    attn_tile_fn *many = v.half ? attn_tile_many_f16 : attn_tile_many,
                 *one = v.half ? attn_tile_one_f16 : attn_tile_one;
    uint64_t index = 0, end = (uint64_t)v.rows * v.heads;
    uint64_t start = (uint64_t)v.block * TW_KV_BLOCK;
    if (start > v.pos) { /* rows before the block do not see any of it */
        index = (start - v.pos) * v.heads;
    }
    for (; index + ATTN_QUERIES <= end; index += ATTN_QUERIES) {
        many(&v, index);
    }
    for (; index < end; index++) {
        one(&v, index);
    }
}

static void attn_init(const struct tw_kargs *a) {
    const struct tw_args_attn_init v = tw_args_attn_init(a);
    float *state = (float *)v.state;
    for (size_t i = 0; i < (size_t)v.rows * v.heads; i++, state += (size_t)v.head_dim + 2) {
        tw_attention_empty(state, v.head_dim);
    }
}

static void attn_merge(const struct tw_kargs *a) {
    const struct tw_args_attn_merge v = tw_args_attn_merge(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *x = tw_const_row(v.x, v.x_stride, r);
        float *state = tw_row(v.state, v.state_stride, r);
        for (uint32_t h = 0; h < v.heads; h++) {
            merge_state(state, state + 2, x, v.head_dim);
            state += (size_t)v.head_dim + 2;
            x += (size_t)v.head_dim + 2;
        }
    }
}

/* Computes y = o / l of the merged states of a head's segments. One state is divided where it is;
 * the sum of several is kept in y. */
static void done_query(const struct tw_args_attn_done *v, const float *state, float *y) {
    uint32_t head_dim = v->head_dim, end = vectors_end(head_dim), rest = head_dim - end;
    const float *o = state + 2;
    float ml[2] = {state[0], state[1]};
    for (uint32_t s = 1; s < v->segments; s++) {
        if (s == 1) {
            memcpy(y, o, head_dim * sizeof *y);
            o = y;
        }
        state += v->heads * ((size_t)head_dim + 2);
        merge_state(ml, y, state, head_dim);
    }
    vf l = v_set1(ml[1]);
    for (uint32_t d = 0; d < end; d += TW_LANES) {
        v_store(y + d, v_div(v_load(o + d), l));
    }
    v_store_n(y + end, rest, v_div(v_load_n(o + end, rest), l));
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
