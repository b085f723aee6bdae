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
    /* A query sees the positions [before[t], visible[t]) of the block; all see [first, common). */
    uint32_t before[ATTN_QUERIES], visible[ATTN_QUERIES], first, common;
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

/* Caps the scores of a query in groups [from, to). */
static void cap_scores(const struct tw_attention *v, float *s, uint32_t from, uint32_t to) {
    for (uint32_t g = from; g < to; g++) {
        v_store(s + g * TW_LANES, v_soft_cap(v_load(s + g * TW_LANES), v_set1(v->cap)));
    }
}

/* Returns how many lanes of a group are among the first `n` positions of the block. */
static inline uint32_t lanes_of(uint32_t n, uint32_t group) {
    uint32_t from = group * TW_LANES, left = n > from ? n - from : 0;
    return left < TW_LANES ? left : TW_LANES;
}

/* x in the lanes of a group that a query sees, `other` in the rest. */
TW_INLINE vf v_seen(uint32_t before, uint32_t visible, uint32_t group, vf x, vf other) {
    vf seen = v_select_n(lanes_of(visible, group), x, other);
    return before ? v_select_n(lanes_of(before, group), other, seen) : seen;
}

/* Turns the scores into p_j under the new maximum, updates m and l, and returns the factor of the
 * old sums. */
static float softmax(float *s, uint32_t before, uint32_t visible, float *state) {
    uint32_t first = before / TW_LANES, groups = (visible + TW_LANES - 1) / TW_LANES;
    vf lowest = v_set1(-__builtin_inff()), high = lowest, sum = v_zero();
    for (uint32_t g = first; g < groups; g++) {
        high = v_max(v_seen(before, visible, g, v_load(s + g * TW_LANES), lowest), high);
    }
    float m = tw_max(state[0], v_fold_max(high)), c = tw_exp(state[0] - m);
    for (uint32_t g = first; g < groups; g++) {
        vf p = v_exp(v_sub(v_load(s + g * TW_LANES), v_set1(m)));
        p = v_seen(before, visible, g, p, v_zero());
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
    size_t value = d + (size_t)tile->first * v->head_dim;
    TW_UNROLL
    for (int t = 0; t < T; t++) {
        TW_UNROLL
        for (int i = 0; i < D; i++) {
            sum[t][i] =
                v_mul(v_load_part(tile->o[t] + d + (uint32_t)i * TW_LANES, n), v_set1(tile->c[t]));
        }
    }
    TW_UNROLL
    for (int t = 0; t < T; t++) { /* only of a window that begins in the block */
        size_t own = d + (size_t)tile->before[t] * v->head_dim;
        for (uint32_t j = tile->before[t]; j < tile->first && j < tile->visible[t];
             j++, own += v->head_dim) {
            TW_UNROLL
            for (int i = 0; i < D; i++) {
                sum[t][i] = v_fma(v_set1(tile->p[t][j]),
                                  v_cached_part(v->values, own + (uint32_t)i * TW_LANES, n, half),
                                  sum[t][i]);
            }
        }
    }
    for (uint32_t j = tile->first; j < tile->common; j++, value += v->head_dim) {
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

/* Merges the last two segments of a query's state, and empties the last, if the block begins
 * another. */
static void make_room(const struct tw_attention *v, float *state) {
    if (v->merges) {
        float *before = state - tw_attention_segment(v);
        merge_state(before, before + 2, state, v->head_dim);
        tw_attention_empty(state, v->head_dim);
    }
}

/* Fills in a tile of the queries from number `index` on, with the head varying fastest, and returns
 * the last position that one of them sees. */
TW_INLINE uint32_t take_queries(const struct tw_attention *v, uint64_t index, const int T,
                                struct query_tile *tile) {
    uint32_t max_visible = 0;
    tile->first = 0;
    tile->common = TW_KV_BLOCK;
    for (int t = 0; t < T; t++) {
        uint32_t r = (uint32_t)((index + (uint64_t)t) / v->heads),
                 h = (uint32_t)((index + (uint64_t)t) % v->heads);
        tile->q[t] = tw_attention_query(v, r, h);
        tile->o[t] = tw_attention_state(v, r, h) + 2;
        uint32_t visible = tile->visible[t] = tw_attention_visible(v, r),
                 before = tile->before[t] = tw_attention_before(v, r);
        max_visible = visible > max_visible ? visible : max_visible;
        tile->common = visible < tile->common ? visible : tile->common;
        tile->first = before > tile->first ? before : tile->first;
        make_room(v, tile->o[t] - 2);
    }
    if (tile->first >= tile->common) { /* each goes its own way */
        tile->first = tile->common = TW_KV_BLOCK;
    }
    return max_visible;
}

/* Processes queries index, index + 1, ... of the chunk. Each of them sees at least one position up
 * to its own; those of a window may see none of the block, and are left out. */
TW_INLINE void attn_tile(const struct tw_attention *v, uint64_t index, const int T,
                         const int half) {
    struct query_tile tile;
    uint32_t max_visible = take_queries(v, index, T, &tile), min_before = tile.before[0];
    for (int t = 1; t < T; t++) {
        min_before = tile.before[t] < min_before ? tile.before[t] : min_before;
    }
    uint32_t groups = (max_visible + TW_LANES - 1) / TW_LANES, g = min_before / TW_LANES;
    for (; g + ATTN_GROUPS <= groups; g += ATTN_GROUPS) {
        score_groups(v, &tile, g, T, ATTN_GROUPS, half);
    }
    for (; g < groups; g++) {
        score_groups(v, &tile, g, T, 1, half);
    }
    for (int t = 0; t < T; t++) {
        if (v->cap != 0.0f) {
            cap_scores(v, tile.p[t], min_before / TW_LANES, groups);
        }
        tile.c[t] = tile.before[t] < tile.visible[t]
                        ? softmax(tile.p[t], tile.before[t], tile.visible[t], tile.o[t] - 2)
                        : 1.0f;
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

static void attn_queries(const struct tw_attention *v) {
    attn_tile_fn *many = v->half ? attn_tile_many_f16 : attn_tile_many,
                 *one = v->half ? attn_tile_one_f16 : attn_tile_one;
    uint64_t index = 0, end = (uint64_t)v->rows * v->heads;
    uint64_t start = (uint64_t)v->block * TW_KV_BLOCK;
    if (start > v->pos) { /* rows before the block do not see any of it */
        index = (start - v->pos) * v->heads;
    }
    if (tw_attention_before(v, 0) == TW_KV_BLOCK) { /* nor do any if it is before all windows */
        for (; index < end && v->merges; index++) {
            make_room(v, tw_attention_state(v, (uint32_t)(index / v->heads),
                                            (uint32_t)(index % v->heads)));
        }
        return;
    }
    for (; index + ATTN_QUERIES <= end; index += ATTN_QUERIES) {
        many(v, index);
    }
    for (; index < end; index++) {
        one(v, index);
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
