/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures what a batch gains: steps of decode.8 and decode.16, whose rows are of different
 * sequences, against decode of one token, and prefill and score of as many tokens of one sequence,
 * step by step in turn, at several depths. Prefill computes the logits of one row, score those of
 * all, as a batch does; neither reads a cache for each row. The model has the shape of a Llama of
 * 110M parameters, 8-bit; weights are zeros. Prints medians of CPU time. Usage: batch_bench
 * [ROUNDS].
 */
#include "firmware/core/tile_machine.h"
#include "tests/support/compile_stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CTX = 4224, ROUNDS = 15, MAX_ROUNDS = 1001, MAX_ROWS = 16, PAGES = 132 };

struct side {
    const char *name;
    uint32_t rows;
    bool batch, score;
    uint32_t slots;
    struct pipeline pipeline;
    struct pipeline_program built;
    struct tw_program program;
    struct tw_machine_config config;
    uint64_t *bind;
    uint8_t *memory;
    struct tw_plan *plan;
    double seconds[MAX_ROUNDS];
};

static void must(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "batch_bench: %s\n", what);
        exit(1);
    }
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *map(void *ctx, uint64_t address, uint64_t size) {
    (void)ctx;
    (void)size;
    return (void *)(uintptr_t)address;
}

static void set_input(const struct side *s, const char *name, uint32_t element, uint32_t value) {
    for (uint32_t t = 0; t < s->program.n_tensors; t++) {
        const struct tw_tensor *x = &s->program.tensors[t];
        if (strcmp(tw_program_string(&s->program, x->name), name) == 0) {
            memcpy((uint8_t *)(uintptr_t)s->bind[x->bind_first] + (size_t)element * 4, &value, 4);
        }
    }
}

static void place(struct side *s) {
    uint64_t bytes = 64;
    uint32_t rows = 0;
    struct tw_tensor *t = s->built.program.tensors.items;
    for (uint32_t i = 0; i < s->built.program.tensors.n; i++) {
        t[i].bind_first = rows;
        rows += t[i].bind_count;
        bytes += (t[i].bytes + 63) / 64 * 64 * t[i].bind_count;
    }
    s->program = tw_builder_program(&s->built.program);
    s->bind = calloc(rows + 1, sizeof *s->bind);
    s->memory = aligned_alloc(64, bytes / 64 * 64);
    must(s->bind && s->memory, "no memory");
    memset(s->memory, 0, bytes / 64 * 64);
    uint64_t next = (uint64_t)(uintptr_t)s->memory;
    for (uint32_t i = 0, row = 0; i < s->program.n_tensors; i++) {
        for (uint32_t k = 0; k < s->program.tensors[i].bind_count; k++) {
            s->bind[row++] = next;
            next += (s->program.tensors[i].bytes + 63) / 64 * 64;
        }
    }
    s->config = (struct tw_machine_config){.program = &s->program,
                                           .bind = s->bind,
                                           .n_bind = rows,
                                           .map = map,
                                           .kernels = tw_kernel_table_best()};
}

static void open_side(struct side *s, const struct tw_model *model) {
    tw_error err = {0};
    must(pipeline_init(&s->pipeline, model, "host", 1, &err) == 0, err.message);
    s->slots = s->pipeline.config.n_positions / TW_KV_BLOCK;
    s->pipeline.config.kv_pages = PAGES;
    s->pipeline.config.batch = s->batch;
    s->pipeline.all_logits = s->score;
    must(pipeline_program(&s->pipeline, s->rows, 0, &s->built, &err) == 0, err.message);
    place(s);
    struct tw_arena arena = {NULL, 0, 0};
    struct tw_fault fault = {0};
    must(tw_plan_build(&s->config, 1, &arena, &s->plan, &fault) == TW_E_NOMEM, "plan");
    arena = (struct tw_arena){aligned_alloc(64, (arena.used + 63) / 64 * 64), arena.used, 0};
    must(arena.base && tw_plan_build(&s->config, 1, &arena, &s->plan, &fault) == 0, "plan");
}

/* Rows of a batch write to a page of their own; those before it are the same for all, as of
 * sequences that begin with one prompt, so that the state is as large as that of a few. */
static void set_step(const struct side *s, uint32_t depth) {
    uint32_t sequences = s->batch ? s->rows : 1;
    for (uint32_t r = 0; r < sequences; r++) {
        set_input(s, "pos", r, depth);
        set_input(s, "end", r, depth + (s->batch ? 1 : s->rows));
        set_input(s, "rows", r, s->batch ? 1 : s->rows);
        for (uint32_t i = 0; i < s->slots; i++) {
            set_input(s, "pages", r * s->slots + i, i < depth / 64 ? i : s->slots + (i + r) % 61);
        }
    }
}

static double step(const struct side *s) {
    struct tw_fault fault = {0};
    double start = now_s();
    must(tw_plan_begin(s->plan, &fault) == 0, fault.what ? fault.what : "begin");
    tw_plan_run(s->plan, 0, NULL, NULL);
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
    const struct random_shape shape = {.dim = 768,
                                       .hidden = 2048,
                                       .n_layers = 12,
                                       .n_heads = 12,
                                       .n_kv_heads = 12,
                                       .head_dim = 64,
                                       .n_vocab = 32000,
                                       .n_ctx = CTX,
                                       .dtype = TW_DT_Q8_0,
                                       .hollow = true};
    uint32_t rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : ROUNDS, n = sizeof sides / sizeof *sides;
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    must(random_model_init(&model, &shape), "no memory");
    for (uint32_t i = 0; i < n; i++) {
        open_side(&sides[i], &model.model);
    }
    printf("%-8s %-12s %10s %10s %8s\n", "depth", "program", "ms a step", "tok/s", "times");
    for (uint32_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        measure(sides, n, depths[d], rounds);
    }
    return 0;
}
