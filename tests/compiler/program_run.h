/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of composition: a composed program is proved by the loader, then run on the tile
 * machine with the weights of its models, one token per step. The content of each Output and State
 * after each step is recorded as a hash, by name.
 */
#ifndef TW_TESTS_COMPILER_PROGRAM_RUN_H
#define TW_TESTS_COMPILER_PROGRAM_RUN_H

#include "compiler/emit/fill.h"
#include "compiler/spatial/certify.h"
#include "firmware/core/tile_machine.h"
#include "tests/compiler/program_kit.h"

/* A model in a program: its graph, and the prefix of its names. */
struct run_side {
    const char *prefix;
    struct tw_graph *graph;
};

struct program_run {
    struct tw_builder *u;
    struct tw_program p;
    uint64_t *bind;
    uint8_t *dram;
    uint64_t dram_bytes;
    struct tw_machine_config config;
};

enum { RUN_STEPS = 5, RUN_MAX_TENSORS = 64 };
struct run_trace {
    uint32_t n;
    struct {
        char name[64];
        uint64_t hash[RUN_STEPS];
    } tensors[RUN_MAX_TENSORS];
};

/* Checks rules, order and certificate of a composed program, as for a bundle. */
static inline void must_prove(struct tw_builder *u) {
    tw_error err = {0};
    struct tw_program p = tw_builder_program(u);
    struct tw_certificate certificate;
    int rc = tw_verify_program(&p, NULL, &err);
    rc = rc ? rc : tw_certify(u->mem, &p, &certificate, &err);
    rc = rc ? rc : tw_check_order(&p, &certificate, NULL, &err);
    if (rc) {
        fail_msg("%s: %s", u->name, err.message);
    }
}

static inline void *run_map(void *ctx, uint64_t address, uint64_t size) {
    const struct program_run *r = ctx;
    uint64_t base = (uint64_t)(uintptr_t)r->dram;
    bool ok = address >= base && size <= r->dram_bytes && address - base <= r->dram_bytes - size;
    return ok ? (void *)(uintptr_t)address : NULL;
}

static inline const char *run_name(const struct program_run *r, uint32_t tensor) {
    return tw_program_string(&r->p, r->p.tensors[tensor].name);
}

static inline uint8_t *run_data(const struct program_run *r, uint32_t tensor, uint32_t instance) {
    return (uint8_t *)(uintptr_t)r->bind[r->p.tensors[tensor].bind_first + instance];
}

static inline void run_fill(const struct program_run *r, uint32_t tensor,
                            const struct run_side *sides, uint32_t n) {
    const struct tw_tensor *t = &r->p.tensors[tensor];
    for (uint32_t s = 0; s < n; s++) {
        size_t length = strlen(sides[s].prefix);
        if (strncmp(run_name(r, tensor), sides[s].prefix, length) != 0) {
            continue;
        }
        struct tw_gvalue *value = &sides[s].graph->values.items[r->u->tensor_value.items[tensor]];
        assert_string_equal(value->name, run_name(r, tensor) + length);
        for (uint32_t i = 0; i < t->bind_count; i++) {
            struct tw_filler filler = {.mem = sides[s].graph->mem};
            struct tw_fill_source source = {value, i};
            assert_int_equal(tw_fill(&filler, &source, 0, t->bytes, run_data(r, tensor, i), NULL),
                             0);
        }
    }
}

/* Gives every tensor device memory: a Param the weights of its model, all others zeros. */
static inline void run_open(struct program_run *r, struct tw_builder *u,
                            const struct run_side *sides, uint32_t n) {
    uint32_t rows = 0, at = 0;
    memset(r, 0, sizeof *r);
    r->u = u;
    for (uint32_t t = 0; t < u->tensors.n; t++) {
        rows += u->tensors.items[t].bind_count;
        r->dram_bytes +=
            (u->tensors.items[t].bytes + 63) / 64 * 64 * u->tensors.items[t].bind_count;
    }
    r->p = tw_builder_program(u);
    r->bind = calloc(rows + 1, sizeof *r->bind);
    r->dram = aligned_alloc(64, r->dram_bytes + 64);
    assert_true(r->bind && r->dram);
    memset(r->dram, 0, r->dram_bytes);
    uint64_t next = (uint64_t)(uintptr_t)r->dram;
    for (uint32_t t = 0; t < u->tensors.n; t++) {
        for (uint32_t i = 0; i < u->tensors.items[t].bind_count; i++) {
            r->bind[at++] = next;
            next += (u->tensors.items[t].bytes + 63) / 64 * 64;
        }
        if (u->tensors.items[t].role == TW_ROLE_PARAM) {
            run_fill(r, t, sides, n);
        }
    }
    r->config = (struct tw_machine_config){.program = &r->p,
                                           .bind = r->bind,
                                           .n_bind = rows,
                                           .map = run_map,
                                           .ctx = r,
                                           .kernels = tw_kernel_table(TW_ISA_SCALAR)};
}

static inline void run_close(struct program_run *r) {
    free(r->bind);
    free(r->dram);
}

/* Sets the inputs of a step, by the end of their names: any model's ids, position and end. */
static inline void run_set_inputs(const struct program_run *r, uint32_t step) {
    static const uint32_t ids[RUN_STEPS] = {1, 4, 0, 7, 4};
    for (uint32_t t = 0; t < r->p.n_tensors; t++) {
        const char *dot = strrchr(run_name(r, t), '.'), *name = dot ? dot + 1 : run_name(r, t);
        if (r->p.tensors[t].role == TW_ROLE_INPUT) {
            uint32_t value = !strcmp(name, "ids")   ? ids[step]
                             : !strcmp(name, "pos") ? step
                                                    : step + 1;
            memcpy(run_data(r, t, 0), &value, sizeof value);
        }
    }
}

static inline void run_record(const struct program_run *r, uint32_t step, struct run_trace *out) {
    out->n = 0;
    for (uint32_t t = 0; t < r->p.n_tensors; t++) {
        const struct tw_tensor *x = &r->p.tensors[t];
        if (x->role != TW_ROLE_OUTPUT && x->role != TW_ROLE_STATE) {
            continue;
        }
        uint64_t hash = 14695981039346656037u;
        for (uint32_t i = 0; i < x->bind_count; i++) {
            for (uint64_t k = 0; k < x->bytes; k++) {
                hash = (hash ^ run_data(r, t, i)[k]) * 1099511628211u;
            }
        }
        assert_true(out->n < RUN_MAX_TENSORS);
        snprintf(out->tensors[out->n].name, sizeof out->tensors[out->n].name, "%s", run_name(r, t));
        out->tensors[out->n++].hash[step] = hash;
    }
}

static inline void run_clear(const struct program_run *r) {
    for (uint32_t t = 0; t < r->p.n_tensors; t++) {
        const struct tw_tensor *x = &r->p.tensors[t];
        for (uint32_t i = 0;
             i < x->bind_count && (x->role == TW_ROLE_STATE || x->role == TW_ROLE_OUTPUT); i++) {
            memset(run_data(r, t, i), 0, x->bytes);
        }
    }
}

static inline void must_not_fault(const struct program_run *r, int rc, const struct tw_fault *f) {
    if (rc) {
        fail_msg("%s: %s at site %u engine %u op %u (%s), object %u, have %llu, need %llu",
                 r->u->name, f->what, f->site, f->engine, f->op_index,
                 tw_op_info(f->opcode).name ? tw_op_info(f->opcode).name : "?", f->object,
                 (unsigned long long)f->have, (unsigned long long)f->need);
    }
}

static inline void run_strict(struct program_run *r, enum tw_scheduler scheduler, uint64_t seed,
                              struct run_trace *out) {
    struct tw_arena arena = {NULL, 0, 0};
    struct tw_strict *s;
    struct tw_fault fault = {0};
    assert_int_equal(tw_strict_init(&r->config, &arena, &s, &fault), TW_E_NOMEM);
    arena = (struct tw_arena){malloc(arena.used), arena.used, 0};
    run_clear(r);
    must_not_fault(r, tw_strict_init(&r->config, &arena, &s, &fault), &fault);
    for (uint32_t step = 0; step < RUN_STEPS; step++) {
        run_set_inputs(r, step);
        must_not_fault(r, tw_strict_step(s, scheduler, seed + step, &fault), &fault);
        run_record(r, step, out);
    }
    free(arena.base);
}

static inline void run_fast(struct program_run *r, struct run_trace *out) {
    struct tw_arena arena = {NULL, 0, 0};
    struct tw_plan *plan;
    struct tw_fault fault = {0};
    assert_int_equal(tw_plan_build(&r->config, 1, &arena, &plan, &fault), TW_E_NOMEM);
    arena = (struct tw_arena){malloc(arena.used), arena.used, 0};
    run_clear(r);
    must_not_fault(r, tw_plan_build(&r->config, 1, &arena, &plan, &fault), &fault);
    for (uint32_t step = 0; step < RUN_STEPS; step++) {
        run_set_inputs(r, step);
        must_not_fault(r, tw_plan_begin(plan, &fault), &fault);
        tw_plan_run(plan, 0, NULL, NULL);
        run_record(r, step, out);
    }
    free(arena.base);
}

/* Checks that everything recorded of `alone` is in `whole` under its prefix, with equal bytes after
 * each step. */
static inline void must_agree(const struct run_trace *alone, const char *prefix,
                              const struct run_trace *whole) {
    assert_true(alone->n > 1);
    for (uint32_t i = 0; i < alone->n; i++) {
        char name[80];
        uint32_t k = 0;
        snprintf(name, sizeof name, "%s%s", prefix, alone->tensors[i].name);
        while (k < whole->n && strcmp(whole->tensors[k].name, name) != 0) {
            k++;
        }
        assert_true(k < whole->n);
        for (uint32_t s = 0; s < RUN_STEPS; s++) {
            if (alone->tensors[i].hash[s] != whole->tensors[k].hash[s]) {
                fail_msg("%s differs after step %u", name, s);
            }
        }
    }
}

#endif
