/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures what a batch gains: steps of decode.8 and decode.16, whose rows are of different
 * sequences, against decode of one token, and prefill and score of as many tokens of one sequence,
 * step by step in turn, at several depths. Prefill computes the logits of one row, score those of
 * all, as a batch does; neither reads a cache for each row. The model has the shape of a Llama of
 * 110M parameters, 8-bit; weights are zeros. Prints medians of CPU time. Usage: batch_bench
 * [ROUNDS].
 */
#include "tests/bench/placed_program.h"

enum { ROUNDS = 15, MAX_ROUNDS = 1001, MAX_ROWS = 16, PAGES = 132 };

struct side {
    const char *name;
    uint32_t rows;
    bool batch, score;
    uint32_t slots;
    struct placed_program run;
    double seconds[MAX_ROUNDS];
};

static void open_side(struct side *s, const struct tw_model *model) {
    tw_error err = {0};
    must(pipeline_init(&s->run.pipeline, model, "host", 1, &err) == 0, err.message);
    s->slots = s->run.pipeline.config.n_positions / TW_KV_BLOCK;
    s->run.pipeline.config.kv_pages = PAGES;
    s->run.pipeline.config.batch = s->batch;
    s->run.pipeline.all_logits = s->score;
    must(pipeline_program(&s->run.pipeline, s->rows, 0, &s->run.built, &err) == 0, err.message);
    place(&s->run);
    struct tw_arena arena = {NULL, 0, 0};
    struct tw_fault fault = {0};
    must(tw_plan_build(&s->run.config, 1, &arena, &s->run.plan, &fault) == TW_E_NOMEM, "plan");
    arena = (struct tw_arena){aligned_alloc(64, (arena.used + 63) / 64 * 64), arena.used, 0};
    must(arena.base && tw_plan_build(&s->run.config, 1, &arena, &s->run.plan, &fault) == 0, "plan");
}

/* Rows of a batch write to a page of their own; those before it are the same for all, as of
 * sequences that begin with one prompt, so that the state is as large as that of a few. */
static void set_step(const struct side *s, uint32_t depth) {
    uint32_t sequences = s->batch ? s->rows : 1;
    for (uint32_t r = 0; r < sequences; r++) {
        set_input(&s->run, "pos", r, depth);
        set_input(&s->run, "end", r, depth + (s->batch ? 1 : s->rows));
        set_input(&s->run, "rows", r, s->batch ? 1 : s->rows);
        for (uint32_t i = 0; i < s->slots; i++) {
            set_input(&s->run, "pages", r * s->slots + i,
                      i < depth / 64 ? i : s->slots + (i + r) % 61);
        }
    }
}

static double step(const struct side *s) {
    struct tw_fault fault = {0};
    double start = now_s();
    must(tw_plan_begin(s->run.plan, &fault) == 0, fault.what ? fault.what : "begin");
    tw_plan_run(s->run.plan, 0, NULL, NULL);
    return now_s() - start;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void measure(struct side *sides, uint32_t n, uint32_t depth, uint32_t rounds) {
    for (uint32_t k = 0; k < n; k++) {
        set_step(&sides[k], depth);
        step(&sides[k]);
    }
    for (uint32_t i = 0; i < rounds; i++) {
        for (uint32_t k = 0; k < n; k++) {
            struct side *s = &sides[(k + i) % n];
            s->seconds[i] = step(s);
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        qsort(sides[k].seconds, rounds, sizeof(double), by_value);
    }
    double one = sides[0].seconds[rounds / 2];
    for (uint32_t k = 0; k < n; k++) {
        double s = sides[k].seconds[rounds / 2];
        printf("%-8u %-12s %10.2f %10.1f %8.2f\n", depth, sides[k].name, s * 1e3, sides[k].rows / s,
               sides[k].rows * one / s);
    }
}

int main(int argc, char **argv) {
    static const uint32_t depths[] = {0, 256, 1024, 4096};
    static struct side sides[] = {
        {.name = "decode", .rows = 1},
        {.name = "decode.8", .rows = 8, .batch = true},
        {.name = "prefill.8", .rows = 8},
        {.name = "score.8", .rows = 8, .score = true},
        {.name = "decode.16", .rows = 16, .batch = true},
        {.name = "prefill.16", .rows = 16},
        {.name = "score.16", .rows = 16, .score = true},
    };
    static struct random_model model;
    uint32_t rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : ROUNDS, n = sizeof sides / sizeof *sides;
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    must(random_model_init(&model, &bench_shape), "no memory");
    for (uint32_t i = 0; i < n; i++) {
        open_side(&sides[i], &model.model);
    }
    printf("%-8s %-12s %10s %10s %8s\n", "depth", "program", "ms a step", "tok/s", "times");
    for (uint32_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        measure(sides, n, depths[d], rounds);
    }
    return 0;
}
