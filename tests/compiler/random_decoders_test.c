/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoders with the switches of the description at random, compiled for several targets and step
 * sizes, proved, and run on the tile machine strictly and fast: the same bits everywhere, and the
 * reference evaluator's numbers.
 */
#include "tests/compiler/program_run.h"
#include "tests/support/reference.h"

#include <math.h>

enum { N_TOKENS = 150, N_DECODERS = 12 };

static const struct {
    const char *target;
    uint32_t host_sites, rows;
    bool strict;
} cases[] = {{"host", 1, 1, false},    {"host", 1, 32, false},  {"host", 3, 7, false},
             {"sim4x4", 0, 16, false}, {"sim4x4", 0, 40, true}, {"grid8x8", 0, 32, false},
             {"quad2x2", 0, 20, false}};

struct decoder {
    struct random_shape shape;
    struct random_model model;
    uint32_t n_tokens, tokens[N_TOKENS];
    float *first; /* logits of the last token in the first case */
};

static void set_input(const struct program_run *r, const char *name, const uint32_t *values,
                      uint32_t n) {
    for (uint32_t t = 0; t < r->p.n_tensors; t++) {
        if (strcmp(run_name(r, t), name) == 0) {
            memcpy(run_data(r, t, 0), values, n * sizeof *values);
        }
    }
}

static const float *logits_of(const struct program_run *r) {
    for (uint32_t t = 0; t < r->p.n_tensors; t++) {
        if (strcmp(run_name(r, t), "logits") == 0) {
            return (const float *)(const void *)run_data(r, t, 0);
        }
    }
    fail_msg("no logits");
    return NULL;
}

/* The inputs of a step of n tokens from position pos on. */
static void set_step(const struct program_run *r, const struct decoder *d, uint32_t pos,
                     uint32_t n) {
    uint32_t end = pos + n;
    set_input(r, "ids", d->tokens + pos, n);
    set_input(r, "pos", &pos, 1);
    set_input(r, "rows", &n, 1);
    set_input(r, "end", &end, 1);
}

static struct tw_arena arena_of(size_t bytes) {
    struct tw_arena arena = {malloc(bytes), bytes, 0};
    assert_non_null(arena.base);
    return arena;
}

static void feed_strictly(struct program_run *r, const struct decoder *d, uint32_t rows) {
    struct tw_arena arena = {NULL, 0, 0};
    struct tw_strict *s;
    struct tw_fault fault = {0};
    assert_int_equal(tw_strict_init(&r->config, &arena, &s, &fault), TW_E_NOMEM);
    arena = arena_of(arena.used);
    must_not_fault(r, tw_strict_init(&r->config, &arena, &s, &fault), &fault);
    for (uint32_t pos = 0; pos < d->n_tokens; pos += rows) {
        set_step(r, d, pos, d->n_tokens - pos < rows ? d->n_tokens - pos : rows);
        must_not_fault(r, tw_strict_step(s, TW_SCHED_RANDOM, pos, &fault), &fault);
    }
    free(arena.base);
}

static void feed_fast(struct program_run *r, const struct decoder *d, uint32_t rows) {
    struct tw_arena arena = {NULL, 0, 0};
    struct tw_plan *plan;
    struct tw_fault fault = {0};
    r->config.kernels = tw_kernel_table_best();
    assert_int_equal(tw_plan_build(&r->config, 1, &arena, &plan, &fault), TW_E_NOMEM);
    arena = arena_of(arena.used);
    must_not_fault(r, tw_plan_build(&r->config, 1, &arena, &plan, &fault), &fault);
    for (uint32_t pos = 0; pos < d->n_tokens; pos += rows) {
        set_step(r, d, pos, d->n_tokens - pos < rows ? d->n_tokens - pos : rows);
        must_not_fault(r, tw_plan_begin(plan, &fault), &fault);
        tw_plan_run(plan, 0, NULL, NULL);
    }
    free(arena.base);
}

static void compare(struct decoder *d, const float *logits, size_t i) {
    size_t bytes = d->shape.n_vocab * sizeof *logits;
    if (!d->first) {
        d->first = malloc(bytes);
        assert_non_null(d->first);
        memcpy(d->first, logits, bytes);
    } else if (memcmp(d->first, logits, bytes) != 0) {
        fail_msg("%s: other bits on %s x %u in steps of %u", random_shape_text(&d->shape),
                 cases[i].target, cases[i].host_sites, cases[i].rows);
    }
}

static void check_case(struct decoder *d, size_t i) {
    struct pipeline p;
    struct pipeline_program program;
    struct program_run run;
    tw_error err = {0};
    uint32_t rows = cases[i].rows;
    int rc = pipeline_init(&p, &d->model.model, cases[i].target, cases[i].host_sites, &err);
    rc = rc ? rc : pipeline_program(&p, rows, 0, &program, &err);
    if (rc == TW_E_PLACEMENT) { /* as the compiler does */
        rows = (rows + 1) / 2;
        rc = pipeline_program(&p, rows, TW_PLAN_PLAINEST, &program, &err);
    }
    if (rc) {
        fail_msg("%s on %s: %s", random_shape_text(&d->shape), cases[i].target, err.message);
    }
    must_prove(&program.program);
    run_open(&run, &program.program, &(struct run_side){"", &p.graph}, 1);
    (cases[i].strict ? feed_strictly : feed_fast)(&run, d, rows);
    compare(d, logits_of(&run), i);
    run_close(&run);
    pipeline_finish(&p);
}

/* Compares numbers that differ in rounding only. */
static void compare_with_reference(const struct decoder *d) {
    struct pipeline p;
    struct tw_reference *reference;
    tw_error err = {0};
    const float *logits = NULL;
    float largest = 0, apart = 0;
    assert_int_equal(pipeline_init(&p, &d->model.model, "host", 1, &err), 0);
    assert_int_equal(tw_reference_create(&p.graph, d->n_tokens, &reference, &err), 0);
    for (uint32_t i = 0; i < d->n_tokens; i++) {
        assert_int_equal(tw_reference_step(reference, d->tokens[i], &logits, &err), 0);
    }
    for (uint32_t i = 0; i < d->shape.n_vocab; i++) {
        largest = fmaxf(largest, fabsf(logits[i]));
        apart = fmaxf(apart, fabsf(logits[i] - d->first[i]));
    }
    assert_true(largest > 0);
    if (!(apart <= 3e-4f * largest)) {
        fail_msg("%s: it is %g from the reference, whose largest logit is %g",
                 random_shape_text(&d->shape), (double)apart, (double)largest);
    }
    tw_reference_destroy(reference);
    pipeline_finish(&p);
}

static void decoder_open(struct decoder *d, uint64_t seed) {
    uint64_t s = seed;
    *d = (struct decoder){.shape = random_decoder_of(seed)};
    d->shape.n_vocab += 2;
    d->shape.n_ctx = N_TOKENS;
    d->shape.hidden = d->shape.hidden < 8 ? 8 : d->shape.hidden;
    d->n_tokens = N_TOKENS - random_below(&s, 40);
    for (uint32_t i = 0; i < d->n_tokens; i++) {
        d->tokens[i] = random_below(&s, d->shape.n_vocab);
    }
    assert_true(random_model_init(&d->model, &d->shape));
}

static void decoder_close(struct decoder *d) {
    random_model_finish(&d->model);
    free(d->first);
}

/* Runs TW_SEEDS seeds, and as many more as it takes for one to be compared with the reference. */
static void random_decoders_give_the_same_bits_everywhere_and_the_references_numbers(void **state) {
    (void)state;
    const char *first = getenv("TW_FIRST_SEED"), *many = getenv("TW_SEEDS");
    uint64_t from = first ? strtoull(first, NULL, 0) : 0, n = many        ? strtoull(many, NULL, 0)
                                                              : TEST_ASAN ? N_DECODERS / 3
                                                                          : N_DECODERS;
    uint32_t exact = 0;
    for (uint64_t seed = from; seed < from + n || exact == 0; seed++) {
        struct decoder d;
        decoder_open(&d, seed);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            check_case(&d, i);
        }
        if (tw_dtype_block_elems(d.shape.dtype) == 1 && !d.shape.mixed) {
            compare_with_reference(&d);
            exact++;
        }
        decoder_close(&d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_decoders_give_the_same_bits_everywhere_and_the_references_numbers),
    };
    return cmocka_run_group_tests_name("random decoders", tests, NULL, NULL);
}
