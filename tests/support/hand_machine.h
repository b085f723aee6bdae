/* SPDX-License-Identifier: Apache-2.0
 *
 * A machine for hand-made programs (hand_program.h): device memory for tensors, each with memory of
 * its own, so that every run starts from the same bytes; ops appended to any site's engines; and
 * strict execution or replay. pb_free() ends it.
 */
#ifndef TW_TESTS_SUPPORT_HAND_MACHINE_H
#define TW_TESTS_SUPPORT_HAND_MACHINE_H

#include "tests/support/hand_program.h"

enum { MB_DRAM = 4 << 20 };

static inline void *mb_map(void *ctx, uint64_t address, uint64_t size) {
    struct pb *m = ctx;
    uint64_t base = (uint64_t)(uintptr_t)m->dram;
    bool ok = address >= base && size <= MB_DRAM && address - base <= MB_DRAM - size;
    return ok ? (void *)(uintptr_t)address : NULL;
}

/* Creates a program for chips of width x height sites; group 0 is all of them. */
static inline struct pb *mb_create_chips(uint32_t chips, uint32_t width, uint32_t height) {
    struct pb *m = pb_new_chips("test", chips, width, height);
    m->dram = aligned_alloc(64, MB_DRAM);
    pb_require(m->dram != NULL, "memory");
    memset(m->dram, 0, MB_DRAM);
    m->groups[m->p.n_groups++] =
        (struct tw_group){0, 0, 0, (uint16_t)width, (uint16_t)height, (uint16_t)chips};
    m->config =
        (struct tw_machine_config){.program = &m->p, .bind = m->bind, .map = mb_map, .ctx = m};
    return m;
}

static inline struct pb *mb_create(uint32_t width, uint32_t height) {
    return mb_create_chips(1, width, height);
}

/* A tensor with `instances` binding rows of `bytes` bytes each; m->misalign is added to their
 * addresses. */
static inline uint32_t mb_tensor_bytes(struct pb *m, enum tw_role role, enum tw_init init,
                                       uint32_t rows, uint32_t cols, enum tw_packing packing,
                                       uint64_t bytes, uint32_t instances) {
    uint32_t id = m->p.n_tensors++;
    pb_require(id < PB_MAX && m->config.n_bind + instances <= PB_ROWS, "tensor table");
    m->tensors[id] = (struct tw_tensor){.rows = rows,
                                        .cols = cols,
                                        .dtype = TW_DT_F32,
                                        .packing = (uint8_t)packing,
                                        .role = (uint8_t)role,
                                        .init = (uint8_t)init,
                                        .bind_first = (uint32_t)m->config.n_bind,
                                        .bind_count = instances,
                                        .bytes = bytes};
    for (uint32_t i = 0; i < instances; i++) {
        m->bind[m->config.n_bind++] = (uint64_t)(uintptr_t)m->dram + m->dram_next + m->misalign;
        m->dram_next += (bytes + m->misalign + 63) / 64 * 64;
        pb_require(m->dram_next <= MB_DRAM, "device memory");
    }
    return id;
}

/* Row-major float32. */
static inline uint32_t mb_tensor(struct pb *m, enum tw_role role, enum tw_init init, uint32_t rows,
                                 uint32_t cols, uint32_t instances) {
    return mb_tensor_bytes(m, role, init, rows, cols, TW_PACK_ROW, (uint64_t)rows * cols * 4,
                           instances);
}

static inline void *mb_data(struct pb *m, uint32_t tensor, uint32_t instance) {
    return (void *)(uintptr_t)m->bind[m->tensors[tensor].bind_first + instance];
}

/* Small numbers, different in each tensor. */
static inline void mb_fill(struct pb *m, uint32_t tensor) {
    uint32_t x = 12345u + tensor * 7919u;
    for (uint32_t i = 0; i < m->tensors[tensor].bind_count; i++) {
        float *f = mb_data(m, tensor, i);
        for (uint64_t n = 0; n < m->tensors[tensor].bytes / 4; n++) {
            x = x * 1664525u + 1013904223u;
            f[n] = (float)((int32_t)(x >> 20) - 2048) / 8192.0f;
        }
    }
}

static inline void mb_set_i32(struct pb *m, uint32_t tensor, uint32_t index, int32_t value) {
    memcpy((uint8_t *)mb_data(m, tensor, 0) + (size_t)index * 4, &value, sizeof value);
}

/* ---- ops: of any site, each operand with its kind ---- */

static inline struct tw_affine mb_at(uint64_t base) {
    return tw_affine_const(base);
}
static inline struct tw_operand mb_operand(char kind, uint32_t id) {
    struct tw_operand o;
    memset(&o, 0, sizeof o);
    o.kind = kind;
    o.id = id;
    return o;
}
static inline struct tw_operand mb_region(char kind, uint32_t id, struct tw_affine offset) {
    struct tw_operand o = mb_operand(kind, id);
    o.offset = offset;
    return o;
}
#define R_(id, at) mb_region('R', id, at)
#define W_(id, at) mb_region('W', id, at)
#define D_(id, at) mb_region('D', id, at)
#define M_(id, at) mb_region('M', id, at)
#define F_(id) mb_operand('F', id)
#define S_(id) mb_operand('S', id)
#define G_(id) mb_operand('G', id)
#define C_(id) mb_operand('C', id)
#define I_(v) mb_operand('I', (uint32_t)(v))
#define V_(v) mb_operand('V', v)
static inline struct tw_operand mb_tensor_at(char kind, uint32_t id, struct tw_affine instance,
                                             struct tw_affine offset) {
    struct tw_operand o = mb_region(kind, id, offset);
    o.instance = instance;
    return o;
}
/* The same in the page that an element of a table names. */
static inline struct tw_operand mb_paged(struct tw_operand o, uint32_t table,
                                         struct tw_affine element) {
    o.paged = true;
    o.table = table;
    o.element = element;
    return o;
}
#define T_(id, instance, at) mb_tensor_at('T', id, instance, at)
#define U_(id, instance, at) mb_tensor_at('U', id, instance, at)
static inline struct tw_operand X_(uint32_t trip, uint32_t max) {
    struct tw_operand o = mb_operand('X', trip);
    o.max = max;
    return o;
} static inline struct tw_operand A_(struct tw_affine a) {
    return mb_region('A', 0, a);
} static inline struct tw_operand E_(float f) {
    struct tw_operand o = mb_operand('E', 0);
    memcpy(&o.id, &f, sizeof f);
    return o;
}

static inline void
mb_append(struct pb *m, uint32_t site, enum tw_engine engine, uint32_t code, uint32_t n,
          const struct tw_operand *operands) {
    for (uint32_t i = 0; i < n; i++) {
        pb_require(operands[i].kind != 0, "an operand without its kind");
    }
    pb_append_at(m, site, engine, site * TW_ENGINE_COUNT + (uint32_t)engine, code, operands, n);
}

/* mb_op(m, site, engine letter L M S, OP, operands...) */
#define MB_ENGINE_L TW_ENGINE_LOAD
#define MB_ENGINE_M TW_ENGINE_MATH
#define MB_ENGINE_S TW_ENGINE_STORE
#define mb_op(m, site, letter, code, ...)                                                         \
    mb_append(m, site, MB_ENGINE_##letter, TW_OP_##code,                                          \
              (uint32_t)(sizeof((struct tw_operand[]){__VA_ARGS__}) / sizeof(struct tw_operand)), \
              (struct tw_operand[]){__VA_ARGS__})
static inline void mb_end(struct pb *m, uint32_t site, enum tw_engine engine) {
    mb_append(m, site, engine, TW_OP_END, 0, NULL);
}
#define mb_loop(m, site, letter, var, times) \
    mb_op(m, site, letter, LOOP, V_(var), X_(TW_NONE, times), I_(TW_NONE))
#define mb_dynamic(m, site, letter, var, trip, id) \
    mb_op(m, site, letter, LOOP, V_(var), X_(trip, (m)->trips[trip].max), I_(id))

/* ---- running ---- */

/* Saves the contents of device memory; mb_rewind restores them. */
static inline void mb_freeze(struct pb *m) {
    free(m->initial);
    m->initial = malloc(MB_DRAM);
    pb_require(m->initial != NULL, "memory");
    memcpy(m->initial, m->dram, MB_DRAM);
    m->config.kernels = tw_kernel_table(TW_ISA_SCALAR);
}
static inline void mb_rewind(struct pb *m) {
    memcpy(m->dram, m->initial, MB_DRAM);
}

/* Creates a machine in memory of exactly the size it needs. The caller frees *memory. */
static inline int mb_strict(struct pb *m, void **memory, struct tw_strict **out,
                            struct tw_fault *fault) {
    struct tw_arena arena = {NULL, 0, 0};
    *memory = NULL;
    int rc = tw_strict_init(&m->config, &arena, out, fault);
    if (rc != TW_E_NOMEM) {
        return rc;
    }
    arena = (struct tw_arena){malloc(arena.used), arena.used, 0};
    *memory = arena.base;
    return tw_strict_init(&m->config, &arena, out, fault);
}

static inline int mb_plan(struct pb *m, uint32_t threads, void **memory, struct tw_plan **out,
                          struct tw_fault *fault) {
    struct tw_arena arena = {NULL, 0, 0};
    *memory = NULL;
    int rc = tw_plan_build(&m->config, threads, &arena, out, fault);
    if (rc != TW_E_NOMEM) {
        return rc;
    }
    arena = (struct tw_arena){malloc(arena.used), arena.used, 0};
    *memory = arena.base;
    return tw_plan_build(&m->config, threads, &arena, out, fault);
}

#endif
