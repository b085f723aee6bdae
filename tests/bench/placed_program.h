/* SPDX-License-Identifier: Apache-2.0
 *
 * For benchmarks that run steps of compiled programs: the shape of a Llama of 110M parameters, and
 * a program with memory of its own, ready to be prepared.
 */
#ifndef TW_TESTS_BENCH_PLACED_PROGRAM_H
#define TW_TESTS_BENCH_PLACED_PROGRAM_H

#include "firmware/core/tile_machine.h"
#include "tests/support/compile_stages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BENCH_CTX 4224u

struct placed_program {
    struct pipeline pipeline;
    struct pipeline_program built;
    struct tw_program program;
    struct tw_machine_config config;
    uint64_t *bind;
    uint8_t *memory;
    struct tw_plan *plan;
};

/* 8-bit weights, which are zeros. */
static const struct random_shape bench_shape = {.dim = 768,
                                                .hidden = 2048,
                                                .n_layers = 12,
                                                .n_heads = 12,
                                                .n_kv_heads = 12,
                                                .head_dim = 64,
                                                .n_vocab = 32000,
                                                .n_ctx = BENCH_CTX,
                                                .dtype = TW_DT_Q8_0,
                                                .hollow = true};

static void must(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
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

/* Writes an element of an Input, if the program has it. */
static void set_input(const struct placed_program *p, const char *name, uint32_t element,
                      uint32_t value) {
    for (uint32_t t = 0; t < p->program.n_tensors; t++) {
        const struct tw_tensor *x = &p->program.tensors[t];
        if (strcmp(tw_program_string(&p->program, x->name), name) == 0) {
            memcpy((uint8_t *)(uintptr_t)p->bind[x->bind_first] + (size_t)element * 4, &value, 4);
        }
    }
}

/* Gives the built program memory, all zeros, and a configuration. */
static void place(struct placed_program *p) {
    uint64_t bytes = 64;
    uint32_t rows = 0;
    struct tw_tensor *t = p->built.program.tensors.items;
    for (uint32_t i = 0; i < p->built.program.tensors.n; i++) {
        t[i].bind_first = rows;
        rows += t[i].bind_count;
        bytes += (t[i].bytes + 63) / 64 * 64 * t[i].bind_count;
    }
    p->program = tw_builder_program(&p->built.program);
    p->bind = calloc(rows + 1, sizeof *p->bind);
    p->memory = aligned_alloc(64, bytes / 64 * 64);
    must(p->bind && p->memory, "no memory");
    memset(p->memory, 0, bytes / 64 * 64);
    uint64_t next = (uint64_t)(uintptr_t)p->memory;
    for (uint32_t i = 0, row = 0; i < p->program.n_tensors; i++) {
        for (uint32_t k = 0; k < p->program.tensors[i].bind_count; k++) {
            p->bind[row++] = next;
            next += (p->program.tensors[i].bytes + 63) / 64 * 64;
        }
    }
    p->config = (struct tw_machine_config){.program = &p->program,
                                           .bind = p->bind,
                                           .n_bind = rows,
                                           .map = map,
                                           .kernels = tw_kernel_table_best()};
}

#endif
