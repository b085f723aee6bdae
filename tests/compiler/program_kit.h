/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of programs: iteration over the ops of a stream, and the grid of models, targets and
 * rows on which every section and program must be valid.
 */
#ifndef TW_TESTS_COMPILER_PROGRAM_KIT_H
#define TW_TESTS_COMPILER_PROGRAM_KIT_H

#include "loader/verify/verify.h"
#include "tests/support/compile_stages.h"
#include "tests/support/test.h"
#include "tilewright/opcode.h"

static const struct {
    const char *name;
    uint32_t host_sites;
} grid_targets[] = {{"host", 1},   {"host", 2},    {"host", 3},     {"host", 5},   {"host", 8},
                    {"sim4x4", 0}, {"grid8x8", 0}, {"sim4x4x2", 0}, {"quad2x2", 0}};
#define N_GRID_TARGETS (sizeof grid_targets / sizeof *grid_targets)

static const uint32_t grid_rows[] = {1, 7, 32, 128};
#define N_GRID_ROWS (sizeof grid_rows / sizeof *grid_rows)

/* Realistic sizes of Llama models, and some extreme ones; the seeds of random_shape_of() add the
 * rest. */
static const struct random_shape known_shapes[] = {
    {.dim = 64,
     .hidden = 172,
     .n_layers = 5,
     .n_heads = 8,
     .n_kv_heads = 4,
     .head_dim = 8,
     .n_vocab = 512,
     .n_ctx = 512},
    {.dim = 96,
     .hidden = 256,
     .n_layers = 3,
     .n_heads = 6,
     .n_kv_heads = 2,
     .head_dim = 16,
     .n_vocab = 1000,
     .n_ctx = 100,
     .dtype = TW_DT_Q8_0,
     .tied = true},
    {.dim = 32,
     .hidden = 64,
     .n_layers = 2,
     .n_heads = 128,
     .n_kv_heads = 128,
     .head_dim = 2,
     .n_vocab = 33,
     .n_ctx = 64,
     .dtype = TW_DT_F16},
    {.dim = 1,
     .hidden = 1,
     .n_layers = 1,
     .n_heads = 1,
     .n_kv_heads = 1,
     .head_dim = 2,
     .n_vocab = 1,
     .n_ctx = 1,
     .dtype = TW_DT_F16},
    {.dim = 33,
     .hidden = 77,
     .n_layers = 2,
     .n_heads = 9,
     .n_kv_heads = 3,
     .head_dim = 6,
     .n_vocab = 19,
     .n_ctx = 65,
     .dtype = TW_DT_BF16},
};
#define N_KNOWN_SHAPES (sizeof known_shapes / sizeof *known_shapes)

struct grid_world {
    struct random_shape shape;
    struct random_model model;
    struct pipeline p;
    struct pipeline_program program;
};

static inline void open_shape(struct grid_world *w, struct random_shape shape, const char *target,
                              uint32_t host_sites) {
    tw_error err = {0};
    w->shape = shape;
    w->shape.hollow = true;
    assert_true(random_model_init(&w->model, &w->shape));
    if (pipeline_init(&w->p, &w->model.model, target, host_sites, &err)) {
        fail_msg("%s: %s", random_shape_text(&w->shape), err.message);
    }
}

static inline void close_world(struct grid_world *w) {
    pipeline_finish(&w->p);
    random_model_finish(&w->model);
}

/* Builds the program for `rows` rows; returns false if it does not fit, which must not happen for
 * decode (1 row). */
static inline bool build(struct grid_world *w, uint32_t rows, uint32_t rank) {
    tw_error err = {0};
    int rc = pipeline_program(&w->p, rows, rank, &w->program, &err);
    if (rc && (rc != TW_E_PLACEMENT || rows == 1)) {
        fail_msg("%s on %s, %u rows: %s", random_shape_text(&w->shape), w->p.target.name, rows,
                 err.message);
    }
    return rc == 0;
}

static inline void must_verify(const struct grid_world *w, struct tw_builder *u) {
    tw_error err = {0};
    struct tw_program program = tw_builder_program(u);
    if (tw_verify_program(&program, NULL, &err)) {
        fail_msg("%s on %s x %u: %s", random_shape_text(&w->shape), w->p.target.name,
                 program.n_sites, err.message);
    }
}

/* Checks that each section composed with nothing else is a valid program. */
static inline void verify_sections_alone(struct grid_world *w) {
    for (uint32_t r = 0; r < w->p.graph.regions.n; r++) {
        struct tw_builder alone;
        tw_error err = {0};
        assert_int_equal(
            tw_compose(&w->program.sections[r], 1, w->program.sections[r]->name, &alone, &err), 0);
        must_verify(w, &alone);
    }
}

/* Calls visit(w) for programs of many models on every target; returns the number of programs. */
static inline uint32_t over_the_grid(void (*visit)(struct grid_world *w)) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_KNOWN_SHAPES + 12; i++) {
        for (uint32_t t = 0; t < N_GRID_TARGETS; t++) {
            struct grid_world w;
            struct random_shape shape =
                i < N_KNOWN_SHAPES ? known_shapes[i] : random_shape_of(i * 31 + t);
            open_shape(&w, shape, grid_targets[t].name, grid_targets[t].host_sites);
            for (uint32_t r = 0; r < 2; r++) {
                if (build(&w, grid_rows[(i + t + 2 * r) % N_GRID_ROWS],
                          (i + t) % 5 == 4 ? TW_PLAN_PLAINEST : (i + t) % 5)) {
                    visit(&w);
                    n++;
                }
            }
            close_world(&w);
        }
    }
    return n;
}

/* Decodes the op at word *at of a stream and advances *at. Returns false at the end. */
static inline bool next_op(const struct tw_stream *s, uint32_t *at, struct tw_op *op) {
    if (*at == s->n_words) {
        return false;
    }
    assert_true(tw_op_decode(s->words, s->n_words, *at, op));
    *at += op->n_words;
    return true;
}

#endif
