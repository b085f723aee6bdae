/* SPDX-License-Identifier: Apache-2.0
 *
 * The online softmax over 16 lanes. A tile of T queries (rows of a chunk and heads of a group
 * alike) meets the keys and the values of a block together, so that each is loaded once for T
 * queries. Positions a query does not see are computed but masked before anything is derived from
 * them; their values are never read. Included by each instruction set's file, which defines
 * ATTN_QUERIES, ATTN_GROUPS (key vectors) and ATTN_DIMS (value vectors).
 */

struct query_tile {
    const float *q[ATTN_QUERIES];
    float *o[ATTN_QUERIES];
    uint32_t visible[ATTN_QUERIES], common; /* common: the least visible of the tile */
    float c[ATTN_QUERIES];
    float p[ATTN_QUERIES][TW_KV_BLOCK];
};

/* Scores of J groups of 16 positions from `group` on. */
TW_INLINE void score_groups(const struct tw_attention *v, struct query_tile *tile, uint32_t group,
                            const int T, const int J) {
    vf sum[ATTN_QUERIES][ATTN_GROUPS];
    const size_t step = (size_t)v->head_dim * TW_LANES;
    const float *keys = v->keys + group * step;
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
            key[j] = v_load(keys + (size_t)j * step + d * TW_LANES);
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

static inline uint32_t lanes_seen(uint32_t visible, uint32_t group) {
    uint32_t left = visible - group * TW_LANES;
    return left < TW_LANES ? left : TW_LANES;
}

/* Scores to p_j under the new maximum; updates m and l and returns the factor of the old sums. */
static float softmax(float *s, uint32_t visible, float *state) {
    uint32_t groups = (visible + TW_LANES - 1) / TW_LANES;
    vf lowest = v_set1(-__builtin_inff()), high = lowest, sum = v_zero();
    for (uint32_t g = 0; g < groups; g++) {
        high = v_max(v_select_n(lanes_seen(visible, g), v_load(s + g * TW_LANES), lowest), high);
    }
    float m = tw_max(state[0], v_fold_max(high)), c = tw_exp(state[0] - m);
    for (uint32_t g = 0; g < groups; g++) {
        vf p = v_exp(v_sub(v_load(s + g * TW_LANES), v_set1(m)));
        p = v_select_n(lanes_seen(visible, g), p, v_zero());
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

/* o of D vectors from dimension d on; n lanes of the last one (a constant 16 but for the end of odd
 * head sizes). */
TW_INLINE void value_dims(const struct tw_attention *v, struct query_tile *tile, uint32_t d,
                          uint32_t n, const int T, const int D) {
    vf sum[ATTN_QUERIES][ATTN_DIMS];
    const float *value = v->values + d;
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
            x[i] = v_load_part(value + (uint32_t)i * TW_LANES, n);
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
        const float *own = value;
        for (uint32_t j = tile->common; j < tile->visible[t]; j++, own += v->head_dim) {
            TW_UNROLL
            for (int i = 0; i < D; i++) {
                sum[t][i] = v_fma(v_set1(tile->p[t][j]),
                                  v_load_part(own + (uint32_t)i * TW_LANES, n), sum[t][i]);
            }
        }
        TW_UNROLL
        for (int i = 0; i < D; i++) {
            v_store_n(tile->o[t] + d + (uint32_t)i * TW_LANES, n, sum[t][i]);
        }
    }
}

TW_INLINE void attn_values(const struct tw_attention *v, struct query_tile *tile, const int T) {
    uint32_t d = 0;
    for (; d + ATTN_DIMS * TW_LANES <= v->head_dim; d += ATTN_DIMS * TW_LANES) {
        value_dims(v, tile, d, TW_LANES, T, ATTN_DIMS);
    }
    for (; d + TW_LANES <= v->head_dim; d += TW_LANES) {
        value_dims(v, tile, d, TW_LANES, T, 1);
    }
    if (d < v->head_dim) {
        value_dims(v, tile, d, v->head_dim - d, T, 1);
    }
}

/* Queries index, index + 1, ... of the chunk, counted with the head running fastest. All of them
 * see something. */
TW_INLINE void attn_tile(const struct tw_attention *v, uint64_t index, const int T) {
    struct query_tile tile;
    uint32_t most = 0;
    tile.common = TW_KV_BLOCK;
    for (int t = 0; t < T; t++) {
        uint32_t r = (uint32_t)((index + (uint64_t)t) / v->heads),
                 h = (uint32_t)((index + (uint64_t)t) % v->heads);
        tile.q[t] = tw_attention_query(v, r, h);
        tile.o[t] = tw_attention_state(v, r, h) + 2;
        uint32_t visible = tile.visible[t] = tw_attention_visible(v, r);
        most = visible > most ? visible : most;
        tile.common = visible < tile.common ? visible : tile.common;
    }
    uint32_t groups = (most + TW_LANES - 1) / TW_LANES, g = 0;
    for (; g + ATTN_GROUPS <= groups; g += ATTN_GROUPS) {
        score_groups(v, &tile, g, T, ATTN_GROUPS);
    }
    for (; g < groups; g++) {
        score_groups(v, &tile, g, T, 1);
    }
    for (int t = 0; t < T; t++) {
        tile.c[t] = softmax(tile.p[t], tile.visible[t], tile.o[t] - 2);
    }
    attn_values(v, &tile, T);
}

static void attn_tile_many(const struct tw_attention *v, uint64_t index) {
    attn_tile(v, index, ATTN_QUERIES);
}
static void attn_tile_one(const struct tw_attention *v, uint64_t index) {
    attn_tile(v, index, 1);
}

static void attn_step(const struct tw_kargs *a) {
    struct tw_attention v = tw_attention_view(a);
    uint64_t index = 0, end = (uint64_t)v.rows * v.heads;
    uint64_t start = (uint64_t)v.block * TW_KV_BLOCK;
    if (start > v.pos) { /* rows before the block see nothing of it */
        index = (start - v.pos) * v.heads;
    }
    for (; index + ATTN_QUERIES <= end; index += ATTN_QUERIES) {
        attn_tile_many(&v, index);
    }
    for (; index < end; index++) {
        attn_tile_one(&v, index);
    }
}

static void attn_init(const struct tw_kargs *a) {
    const struct tw_args_attn_init v = tw_args_attn_init(a);
    size_t floats = (size_t)v.head_dim + 2, n = (size_t)v.rows * v.heads;
    float *state = (float *)v.state;
    memset(state, 0, n * floats * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        state[i * floats] = -__builtin_inff();
    }
}

static void attn_done(const struct tw_kargs *a) {
    const struct tw_args_attn_done v = tw_args_attn_done(a);
    uint32_t heads = v.heads, head_dim = v.head_dim, end = vectors_end(head_dim),
             rest = head_dim - end;
    const float *state = (const float *)v.state;
    for (uint32_t r = 0; r < v.rows; r++) {
        float *y = tw_row(v.y, v.y_stride, r);
        for (uint32_t h = 0; h < heads; h++, state += (size_t)head_dim + 2, y += head_dim) {
            const float *o = state + 2;
            vf l = v_set1(state[1]);
            for (uint32_t d = 0; d < end; d += TW_LANES) {
                v_store(y + d, v_div(v_load(o + d), l));
            }
            v_store_n(y + end, rest, v_div(v_load_n(o + end, rest), l));
        }
    }
}
