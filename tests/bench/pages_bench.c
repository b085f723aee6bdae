/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures what page tables cost a decode step: two programs of one model (the shape of a Llama of
 * 110M parameters, 8-bit), with a contiguous cache and with one in pages of a table in any order,
 * step by step in turn, at several depths. Prints medians of CPU time; weights are zeros.
 * Usage: pages_bench [ROUNDS].
 */
#include "firmware/core/tile_machine.h"
#include "tests/support/compile_stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CTX = 4224, ROUNDS = 41, MAX_ROUNDS = 1001 };

struct side {
    struct random_model model;
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
        fprintf(stderr, "pages_bench: %s\n", what);
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

static void set_input(struct side *s, const char *name, uint32_t element, uint32_t value) {
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

static void open_side(struct side *s, bool paged) {
    struct random_shape shape = {.dim = 768,
                                 .hidden = 2048,
                                 .n_layers = 12,
                                 .n_heads = 12,
                                 .n_kv_heads = 12,
                                 .head_dim = 64,
                                 .n_vocab = 32000,
                                 .n_ctx = CTX,
                                 .dtype = TW_DT_Q8_0,
                                 .hollow = true};
    tw_error err = {0};
    must(random_model_init(&s->model, &shape), "no memory");
    must(pipeline_init(&s->pipeline, &s->model.model, "host", 1, &err) == 0, err.message);
    uint32_t slots = s->pipeline.config.n_positions / TW_KV_BLOCK;
    s->pipeline.config.kv_pages = paged ? slots : 0;
    must(pipeline_program(&s->pipeline, 1, 0, &s->built, &err) == 0, err.message);
    place(s);
    for (uint32_t i = 0; i < slots; i++) { /* 37 and the number of slots have no common factor */
        set_input(s, "pages", i, (i * 37 + 5) % slots);
    }
    struct tw_arena arena = {NULL, 0, 0};
    struct tw_fault fault = {0};
    must(tw_plan_build(&s->config, 1, &arena, &s->plan, &fault) == TW_E_NOMEM, "plan");
    arena = (struct tw_arena){aligned_alloc(64, (arena.used + 63) / 64 * 64), arena.used, 0};
    must(arena.base && tw_plan_build(&s->config, 1, &arena, &s->plan, &fault) == 0, "plan");
}

static double step(struct side *s, uint32_t depth) {
    struct tw_fault fault = {0};
    set_input(s, "pos", 0, depth);
    set_input(s, "end", 0, depth + 1);
    double start = now_s();
    must(tw_plan_begin(s->plan, &fault) == 0, fault.what ? fault.what : "begin");
    tw_plan_run(s->plan, 0, NULL, NULL);
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
