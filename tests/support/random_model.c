/* SPDX-License-Identifier: Apache-2.0
 *
 * Random models (random_model.h): the table of a decoder's tensors, filled from a counter-based
 * generator.
 */
#include "tests/support/random_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u; /* SplitMix64 */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint32_t random_below(uint64_t *state, uint32_t n) {
    return (uint32_t)(random_next(state) % n);
}

/* ---- shapes ---- */

#define PICK(state, ...)                                                                           \
    ((const uint32_t[]){__VA_ARGS__}[random_below(state, sizeof((const uint32_t[]){__VA_ARGS__}) / \
                                                             sizeof(uint32_t))])

struct random_shape random_shape_of(uint64_t seed) {
    uint64_t s = seed * 7919 + 1;
    struct random_shape shape = {.seed = seed};
    shape.dim = PICK(&s, 1, 8, 20, 32, 48, 64, 96, 160, 172, 288);
    shape.hidden = PICK(&s, 1, 8, 32, 64, 96, 172, 256, 384);
    shape.n_layers = PICK(&s, 1, 2, 3, 5);
    shape.n_kv_heads = PICK(&s, 1, 1, 2, 3, 4, 8);
    shape.n_heads = shape.n_kv_heads * PICK(&s, 1, 1, 2, 3, 4);
    shape.head_dim = PICK(&s, 2, 4, 8, 10, 16, 32, 48, 64);
    shape.rope_dims = random_below(&s, 3) ? 0 : 2 + 2 * random_below(&s, shape.head_dim / 2);
    shape.n_vocab = PICK(&s, 1, 5, 17, 64, 512, 1000, 1031);
    shape.n_ctx = PICK(&s, 1, 7, 64, 100, 512);
    shape.dtype = (enum tw_dtype)PICK(&s, TW_DT_F32, TW_DT_F16, TW_DT_BF16, TW_DT_Q8_0, TW_DT_Q8_0,
                                      TW_DT_Q4_0);
    shape.tied = random_below(&s, 2);
    shape.halves = random_below(&s, 2);
    shape.mixed = random_below(&s, 4) == 0;
    return shape;
}

struct random_shape random_decoder_of(uint64_t seed) {
    uint64_t s = seed * 104729 + 5;
    struct random_shape shape = random_shape_of(seed);
    struct tw_hparams *h = &shape.switches;
    shape.dim = shape.dim < 8 ? 24 : shape.dim; /* a norm over one element keeps only its sign */
    h->norm = (enum tw_norm_kind)random_below(&s, 2);
    h->norm_place = (enum tw_norm_place)random_below(&s, 3);
    h->parallel = h->norm_place == TW_NORM_BEFORE && random_below(&s, 3) == 0;
    h->qk_norm = (enum tw_qk_norm)random_below(&s, h->norm == TW_NORM_LAYER ? 3 : 4);
    h->qk_norm_after_rope = random_below(&s, 3) == 0;
    h->feed_forward = (enum tw_feed_forward)random_below(&s, 3);
    h->embedding_scale = random_below(&s, 2) ? 2.5f : 0.0f;
    h->attention_scale = random_below(&s, 2) ? 0.3f : 0.0f;
    h->residual_scale = random_below(&s, 2) ? 0.7f : 0.0f;
    h->logit_scale = random_below(&s, 2) ? 0.6f : 0.0f;
    h->attention_cap = random_below(&s, 3) ? 0.0f : 3.0f;
    h->logit_cap = random_below(&s, 3) ? 0.0f : 5.0f;
    h->query_slope = random_below(&s, 3) ? 0.0f : 0.2f;
    h->query_period = 1 + random_below(&s, 20);
    h->rope_scaling = (enum tw_rope_scaling)PICK(&s, TW_ROPE_SCALING_NONE, TW_ROPE_SCALING_LINEAR,
                                                 TW_ROPE_SCALING_YARN);
    h->rope_factor = 4.0f;
    h->rope_beta_fast = 8.0f;
    h->rope_beta_slow = 0.5f;
    h->rope_original_ctx = 32;
    h->rope_magnitude = random_below(&s, 2) ? 1.1f : 0.0f;
    h->window_rope_theta = random_below(&s, 2) ? 500.0f : 0.0f;
    shape.window = random_below(&s, 3) ? PICK(&s, 1, 5, 40, 64, 70) : 0;
    shape.period = PICK(&s, 1, 2, 2, 3, 6);
    shape.no_rope = random_below(&s, 4) == 0;
    shape.biases = random_below(&s, 2);
    shape.n_layers = PICK(&s, 1, 2, 4, 5, 7);
    shape.factors = random_below(&s, 3) == 0;
    shape.long_factors = shape.factors && random_below(&s, 2);
    if (random_below(&s, 3) == 0) {
        shape.odd_kv_heads = 1 + random_below(&s, shape.n_kv_heads);
        shape.odd_heads =
            shape.odd_kv_heads * (1 + random_below(&s, shape.n_heads / shape.odd_kv_heads));
        shape.odd_hidden = PICK(&s, 0, 8, 32);
    }
    return shape;
}

const char *random_shape_text(const struct random_shape *s) {
    static char text[256];
    snprintf(text, sizeof text,
             "seed %llu: dim %u hidden %u layers %u heads %u/%u x %u rope %u vocab %u ctx %u %s%s%s"
             "%s%s",
             (unsigned long long)s->seed, s->dim, s->hidden, s->n_layers, s->n_heads, s->n_kv_heads,
             s->head_dim, s->rope_dims, s->n_vocab, s->n_ctx, tw_dtype_name(s->dtype),
             s->tied ? " tied" : "", s->mixed ? " mixed" : "", s->factors ? " factors" : "",
             s->odd_heads ? " odd layers" : "");
    return text;
}

/* ---- tensors ---- */

/* Half and bfloat16 numbers of either sign, of magnitude 2^-6 to 2^-3. */
static uint16_t small_half(uint64_t *s) {
    uint32_t r = (uint32_t)random_next(s);
    return (uint16_t)((r & 0x83FFu) | (9 + (r >> 16) % 3) << 10);
}
static uint16_t small_bfloat(uint64_t *s) {
    uint32_t r = (uint32_t)random_next(s);
    return (uint16_t)((r & 0x807Fu) | (121 + (r >> 16) % 3) << 7);
}
static float small_float(uint64_t *s) {
    return (float)((double)(random_next(s) >> 40) / (1 << 23) - 1.0) * 0.125f;
}

static void fill_blocks(uint8_t *at, uint64_t blocks, uint32_t block_bytes, uint64_t *s) {
    for (uint64_t b = 0; b < blocks; b++, at += block_bytes) {
        /* the quants reach 127 */
        uint16_t scale = (uint16_t)((small_half(s) & 0x7FFFu) - (4u << 10));
        memcpy(at, &scale, sizeof scale);
        for (uint32_t i = 2; i < block_bytes; i += 8) {
            uint64_t r = random_next(s);
            memcpy(at + i, &r, block_bytes - i < 8 ? block_bytes - i : 8);
        }
    }
}

static void fill_tensor(uint8_t *at, const struct tw_model_tensor *t, uint64_t *s) {
    uint64_t n = (uint64_t)t->rows * t->cols;
    if (tw_dtype_block_elems(t->dtype) > 1) {
        fill_blocks(at, n / 32, tw_dtype_block_bytes(t->dtype), s);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        if (t->dtype == TW_DT_F32) {
            float x = small_float(s) + (t->rows == 1 ? 1.0f : 0.0f);
            memcpy(at + i * 4, &x, 4);
        } else {
            uint16_t x = t->dtype == TW_DT_F16 ? small_half(s) : small_bfloat(s);
            memcpy(at + i * 2, &x, 2);
        }
    }
}

/* A matrix of the shape's type if its rows are whole blocks. rows 1 with cols: a vector, F32. */
static void add_tensor(struct random_model *m, uint32_t rows, uint32_t cols, enum tw_dtype dtype,
                       bool bias, enum tw_part part, uint32_t layer) {
    struct tw_model_tensor *t = &m->tensors[m->model.n_tensors];
    char *name = m->names[m->model.n_tensors++];
    bool vector = bias || tw_part_is_norm(part);
    tw_part_name(part, layer, bias ? "bias" : "weight", name);
    /* one row: a vector to an importer */
    if (vector || rows == 1 || cols % tw_dtype_block_elems(dtype) != 0) {
        dtype = TW_DT_F32;
    }
    *t = (struct tw_model_tensor){.name = name,
                                  .rows = rows,
                                  .cols = cols,
                                  .part = part,
                                  .layer = layer,
                                  .bias = bias,
                                  .dtype = dtype};
    t->bytes = rows * tw_row_bytes(dtype, cols);
}

static enum tw_dtype layer_dtype(const struct random_shape *s, uint32_t layer) {
    return s->mixed && layer % 2 ? (s->dtype == TW_DT_F16 ? TW_DT_Q8_0 : TW_DT_F16) : s->dtype;
}

static void add_bias(struct random_model *m, const struct random_shape *s, enum tw_part part,
                     uint32_t layer) {
    bool wanted = tw_part_is_norm(part) ? m->model.h.norm == TW_NORM_LAYER
                                        : part != TW_PART_OUTPUT && part != TW_PART_EMBEDDING;
    if (s->biases && wanted) {
        add_tensor(m, 1, tw_part_bias_cols(part, &m->model.h, layer), TW_DT_F32, true, part, layer);
    }
}

static void add_part(struct random_model *m, const struct random_shape *s, enum tw_part part,
                     uint32_t layer) {
    uint32_t rows, cols;
    if (!tw_part_exists(part, &m->model.h)) {
        return;
    }
    tw_part_shape(part, &m->model.h, layer, &rows, &cols);
    add_tensor(m, rows, cols, tw_part_is_per_layer(part) ? layer_dtype(s, layer) : s->dtype, false,
               part, layer);
    add_bias(m, s, part, layer);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct tw_model_tensor *)a)->name,
                  ((const struct tw_model_tensor *)b)->name);
}

static bool make_data(struct random_model *m, uint64_t seed) {
    uint64_t bytes = 0, state = seed ^ 0xDA7A;
    for (uint32_t i = 0; i < m->model.n_tensors; i++) {
        bytes += m->tensors[i].bytes;
    }
    m->data = malloc((size_t)bytes + 1);
    if (!m->data) {
        return false;
    }
    uint8_t *at = m->data + 1; /* as in a file: at any alignment */
    for (uint32_t i = 0; i < m->model.n_tensors; at += m->tensors[i++].bytes) {
        fill_tensor(at, &m->tensors[i], &state);
        m->tensors[i].data = at;
    }
    return true;
}

/* Numbers from 1 on, as those of long contexts are. */
static void describe_factors(struct random_model *m, const struct random_shape *s) {
    struct tw_hparams *h = &m->model.h;
    uint32_t n = h->rope_dims / 2;
    uint64_t state = s->seed ^ 0xFAC7;
    for (uint32_t i = 0; i < 2 * n; i++) {
        m->factors[i] = 1.0f + (float)random_below(&state, 64) / 16.0f;
    }
    h->rope_freq_factors = s->factors ? m->factors : NULL;
    h->rope_long_factors = s->long_factors ? m->factors + n : NULL;
}

static struct tw_layer sizes_of(const struct random_shape *s, uint32_t i) {
    struct tw_layer layer = {s->n_heads, s->n_kv_heads, s->hidden, 0, TW_LAYER_ROPE_MODEL};
    if (i % 2 && s->odd_heads) {
        layer.n_heads = s->odd_heads;
        layer.n_kv_heads = s->odd_kv_heads;
        layer.hidden = s->odd_hidden && s->odd_hidden < s->hidden ? s->odd_hidden : s->hidden;
    }
    return layer;
}

static void describe(struct random_model *m, const struct random_shape *s) {
    struct tw_hparams *h = &m->model.h;
    *h = s->switches;
    h->n_vocab = s->n_vocab;
    h->n_ctx_train = s->n_ctx;
    h->dim = s->dim;
    h->n_layers = s->n_layers;
    h->n_heads = s->n_heads;
    h->n_kv_heads = s->n_kv_heads;
    h->head_dim = s->head_dim;
    h->hidden = s->hidden;
    h->norm_eps = 1e-5f;
    h->rope_theta = 10000.0f;
    h->rope_dims = s->rope_dims ? s->rope_dims : s->head_dim;
    h->rope_pairing = s->halves ? TW_ROPE_HALVES : TW_ROPE_INTERLEAVED;
    h->rope_factor = h->rope_factor > 0.0f ? h->rope_factor : 1.0f;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        bool whole = s->window == 0 || i % s->period == s->period - 1;
        enum tw_layer_rope own =
            h->window_rope_theta > 0.0f ? TW_LAYER_ROPE_WINDOW : TW_LAYER_ROPE_MODEL;
        m->layers[i] = sizes_of(s, i);
        m->layers[i].window = whole ? 0 : s->window;
        m->layers[i].rope = !whole ? own : s->no_rope ? TW_LAYER_ROPE_NONE : TW_LAYER_ROPE_MODEL;
    }
    h->layers = m->layers;
    describe_factors(m, s);
}

bool random_model_init(struct random_model *m, const struct random_shape *s) {
    size_t max = 2 * (TW_PART_ATTN_NORM + (size_t)TW_PARTS_PER_LAYER * s->n_layers);
    *m = (struct random_model){.tensors = calloc(max, sizeof *m->tensors),
                               .names = calloc(max, sizeof *m->names),
                               .layers = calloc(s->n_layers, sizeof *m->layers),
                               .factors = calloc(s->head_dim + 1, sizeof *m->factors)};
    if (!m->tensors || !m->names || !m->layers || !m->factors) {
        random_model_finish(m);
        return false;
    }
    describe(m, s);
    for (int part = 0; part < TW_PART_ATTN_NORM; part++) {
        if (part != TW_PART_OUTPUT || !s->tied) {
            add_part(m, s, (enum tw_part)part, 0);
        }
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        for (int part = TW_PART_ATTN_NORM; part < TW_PART_COUNT; part++) {
            add_part(m, s, (enum tw_part)part, i);
        }
    }
    qsort(m->tensors, m->model.n_tensors, sizeof *m->tensors, by_name);
    if (!s->hollow && !make_data(m, s->seed)) {
        random_model_finish(m);
        return false;
    }
    m->model.path = "random";
    m->model.arch = "llama";
    m->model.name = "random";
    m->model.license = "CC0-1.0";
    m->model.tied = s->tied;
    m->model.tensors = m->tensors;
    return true;
}

void random_model_finish(struct random_model *m) {
    free(m->tensors);
    free(m->names);
    free(m->layers);
    free(m->factors);
    free(m->data);
    *m = (struct random_model){.data = NULL};
}

/* ---- files ---- */

static void put_int(FILE *f, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) {
        fputc((int)(value >> (8 * i) & 0xFF), f);
    }
}

static void put_text(FILE *f, const char *text) {
    put_int(f, strlen(text), 8);
    fputs(text, f);
}

static void put_u32(FILE *f, const char *key, uint32_t value) {
    put_text(f, key);
    put_int(f, 4, 4);
    put_int(f, value, 4);
}

static void put_header(FILE *f, const struct tw_model *m) {
    const struct tw_hparams *h = &m->h;
    float eps = h->norm_eps;
    uint32_t bits;
    memcpy(&bits, &eps, sizeof bits);
    fputs("GGUF", f);
    put_int(f, 3, 4);
    put_int(f, m->n_tensors, 8);
    put_int(f, 11, 8);
    put_text(f, "general.architecture");
    put_int(f, 8, 4);
    put_text(f, m->arch);
    put_text(f, "llama.attention.layer_norm_rms_epsilon");
    put_int(f, 6, 4);
    put_int(f, bits, 4);
    put_u32(f, "llama.context_length", h->n_ctx_train);
    put_u32(f, "llama.embedding_length", h->dim);
    put_u32(f, "llama.block_count", h->n_layers);
    put_u32(f, "llama.feed_forward_length", h->hidden);
    put_u32(f, "llama.attention.head_count", h->n_heads);
    put_u32(f, "llama.attention.head_count_kv", h->n_kv_heads);
    put_u32(f, "llama.attention.key_length", h->head_dim);
    put_u32(f, "llama.attention.value_length", h->head_dim);
    put_u32(f, "llama.rope.dimension_count", h->rope_dims);
}

static void put_tensors(FILE *f, const struct tw_model *m) {
    static const uint8_t ggml_type[TW_DT_COUNT] = {
        [TW_DT_F32] = 0, [TW_DT_F16] = 1, [TW_DT_BF16] = 30, [TW_DT_Q8_0] = 8, [TW_DT_Q4_0] = 2};
    uint64_t offset = 0;
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const struct tw_model_tensor *t = &m->tensors[i];
        bool vector = strstr(t->name, "norm") != NULL;
        put_text(f, t->name);
        put_int(f, vector ? 1 : 2, 4);
        put_int(f, t->cols, 8);
        if (!vector) {
            put_int(f, t->rows, 8);
        }
        put_int(f, ggml_type[t->dtype], 4);
        put_int(f, offset, 8);
        offset += (t->bytes + 31) / 32 * 32;
    }
}

bool random_model_save(const struct random_model *m, const char *path) {
    FILE *f = fopen(path, "wb");
    if (!f) {
        return false;
    }
    put_header(f, &m->model);
    put_tensors(f, &m->model);
    off_t at = (ftello(f) + 31) / 32 * 32;
    for (uint32_t i = 0; i < m->model.n_tensors; i++) {
        const struct tw_model_tensor *t = &m->tensors[i];
        if (t->data) {
            fseeko(f, at, SEEK_SET);
            fwrite(t->data, 1, (size_t)t->bytes, f);
        }
        at += (off_t)((t->bytes + 31) / 32 * 32);
    }
    bool ok = fflush(f) == 0 && !ferror(f) && ftruncate(fileno(f), at) == 0;
    return fclose(f) == 0 && ok;
}
