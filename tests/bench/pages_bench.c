/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures what page tables cost a decode step: two programs of one model (the shape of a Llama of
 * 110M parameters, 8-bit), with a contiguous cache and with one in pages of a table in any order,
 * step by step in turn, at several depths. Prints medians of CPU time; weights are zeros.
 * Usage: pages_bench [ROUNDS].
 */
#include "tests/bench/placed_program.h"

enum { ROUNDS = 41, MAX_ROUNDS = 1001 };

struct side {
    struct random_model model;
    struct placed_program run;
    double seconds[MAX_ROUNDS];
};

static void open_side(struct side *s, bool paged) {
    tw_error err = {0};
    must(random_model_init(&s->model, &bench_shape), "no memory");
    must(pipeline_init(&s->run.pipeline, &s->model.model, "host", 1, &err) == 0, err.message);
    uint32_t slots = s->run.pipeline.config.n_positions / TW_KV_BLOCK;
    s->run.pipeline.config.kv_pages = paged ? slots : 0;
    must(pipeline_program(&s->run.pipeline, 1, 0, &s->run.built, &err) == 0, err.message);
    place(&s->run);
    for (uint32_t i = 0; i < slots; i++) { /* 37 and the number of slots have no common factor */
        set_input(&s->run, "pages", i, (i * 37 + 5) % slots);
    }
    struct tw_arena arena = {NULL, 0, 0};
    struct tw_fault fault = {0};
    must(tw_plan_build(&s->run.config, 1, &arena, &s->run.plan, &fault) == TW_E_NOMEM, "plan");
    arena = (struct tw_arena){aligned_alloc(64, (arena.used + 63) / 64 * 64), arena.used, 0};
    must(arena.base && tw_plan_build(&s->run.config, 1, &arena, &s->run.plan, &fault) == 0, "plan");
}

static double step(struct side *s, uint32_t depth) {
    struct tw_fault fault = {0};
    set_input(&s->run, "pos", 0, depth);
    set_input(&s->run, "end", 0, depth + 1);
    double start = now_s();
    must(tw_plan_begin(s->run.plan, &fault) == 0, fault.what ? fault.what : "begin");
    tw_plan_run(s->run.plan, 0, NULL, NULL);
    return now_s() - start;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    static const uint32_t depths[] = {0, 1024, 4096};
    static struct side sides[2];
    uint32_t rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : ROUNDS;
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    open_side(&sides[0], false);
    open_side(&sides[1], true);
    printf("%-8s %14s %14s %10s\n", "depth", "contiguous ms", "paged ms", "cost");
    for (uint32_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        for (uint32_t i = 0; i < rounds; i++) {
            for (uint32_t k = 0; k < 2; k++) { /* in turn, and in either order */
                struct side *s = &sides[(k + i) % 2];
                s->seconds[i] = step(s, depths[d]);
            }
        }
        for (uint32_t k = 0; k < 2; k++) {
            qsort(sides[k].seconds, rounds, sizeof(double), by_value);
        }
        double a = sides[0].seconds[rounds / 2], b = sides[1].seconds[rounds / 2];
        printf("%-8u %14.3f %14.3f %9.2f%%\n", depths[d], a * 1e3, b * 1e3, (b / a - 1) * 100);
    }
    return 0;
}
