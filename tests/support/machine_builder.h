/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of the tile machine by hand, for tests: append objects and ops, then run them strictly
 * or by replay. Tensors get memory of their own, so that each run starts from the same bytes. A
 * mistake in the use of the builder aborts.
 */
#ifndef TW_TESTS_SUPPORT_MACHINE_BUILDER_H
#define TW_TESTS_SUPPORT_MACHINE_BUILDER_H

#include "firmware/core/tile_machine.h"
#include "tests/support/make_op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MB_TENSORS = 64,
    MB_BUFFERS = 512,
    MB_SEMS = 32,
    MB_GROUPS = 8,
    MB_TRIPS = 8,
    MB_SITES = 16,
    MB_ROWS = 512
};
enum { MB_WORDS = 8192, MB_DRAM = 4 << 20 };

struct mb {
    struct tw_program p;
    struct tw_tensor tensors[MB_TENSORS];
    struct tw_buffer buffers[MB_BUFFERS];
    struct tw_semaphore sems[MB_SEMS];
    struct tw_group groups[MB_GROUPS];
    struct tw_trip trips[MB_TRIPS];
    struct tw_stream streams[MB_SITES * TW_ENGINE_COUNT];
    uint32_t words[MB_SITES * TW_ENGINE_COUNT][MB_WORDS];
    uint64_t bind[MB_ROWS];
    uint64_t sram_next[MB_SITES];
    uint64_t dram_next, initial_bytes, misalign;
    uint8_t *dram, *initial;
    struct tw_machine_config config;
};

static inline void mb_require(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "machine_builder: %s\n", what);
        abort();
    }
}

static inline void *mb_map(void *ctx, uint64_t address, uint64_t size) {
    struct mb *m = ctx;
    uint64_t base = (uint64_t)(uintptr_t)m->dram;
    bool ok = address >= base && size <= MB_DRAM && address - base <= MB_DRAM - size;
    return ok ? (void *)(uintptr_t)address : NULL;
}

/* A program for chips of width x height sites; group 0 is all of them. */
static inline struct mb *mb_create_chips(uint32_t chips, uint32_t width, uint32_t height) {
    struct mb *m = calloc(1, sizeof *m);
    mb_require(m && chips * width * height <= MB_SITES, "create");
    m->dram = aligned_alloc(64, MB_DRAM);
    mb_require(m->dram != NULL, "memory");
    memset(m->dram, 0, MB_DRAM);
    m->p = (struct tw_program){
        .name = "test", .strings = "", .strings_bytes = 1, .rows = 1, .n_chips = chips};
    m->p.n_sites = chips * width * height;
    m->p.mesh_width = width;
    m->p.mesh_height = height;
    m->p.sram_bytes = 1 << 20;
    m->p.tensors = m->tensors;
    m->p.buffers = m->buffers;
    m->p.semaphores = m->sems;
    m->p.groups = m->groups;
    m->p.trips = m->trips;
    m->p.streams = m->streams;
    for (uint32_t i = 0; i < m->p.n_sites * TW_ENGINE_COUNT; i++) {
        m->streams[i] =
            (struct tw_stream){i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT, m->words[i], 0};
    }
    m->groups[m->p.n_groups++] =
        (struct tw_group){0, 0, 0, (uint16_t)width, (uint16_t)height, (uint16_t)chips};
    m->config =
        (struct tw_machine_config){.program = &m->p, .bind = m->bind, .map = mb_map, .ctx = m};
    return m;
}

static inline struct mb *mb_create(uint32_t width, uint32_t height) {
    return mb_create_chips(1, width, height);
}

static inline void mb_destroy(struct mb *m) {
    if (m) {
        free(m->dram);
        free(m->initial);
        free(m);
    }
}

/* A tensor with `instances` binding rows of `bytes` bytes each; m->misalign is added to their
 * addresses. */
static inline uint32_t mb_tensor_bytes(struct mb *m, enum tw_role role, enum tw_init init,
                                       uint32_t rows, uint32_t cols, enum tw_packing packing,
                                       uint64_t bytes, uint32_t instances) {
    uint32_t id = m->p.n_tensors++;
    mb_require(id < MB_TENSORS && m->config.n_bind + instances <= MB_ROWS, "tensor table");
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
        mb_require(m->dram_next <= MB_DRAM, "device memory");
    }
    return id;
}

/* Row-major float32. */
static inline uint32_t mb_tensor(struct mb *m, enum tw_role role, enum tw_init init, uint32_t rows,
                                 uint32_t cols, uint32_t instances) {
    return mb_tensor_bytes(m, role, init, rows, cols, TW_PACK_ROW, (uint64_t)rows * cols * 4,
                           instances);
}

static inline void *mb_data(struct mb *m, uint32_t tensor, uint32_t instance) {
    return (void *)(uintptr_t)m->bind[m->tensors[tensor].bind_first + instance];
}

/* Small numbers, different in each tensor. */
static inline void mb_fill(struct mb *m, uint32_t tensor) {
    uint32_t x = 12345u + tensor * 7919u;
    for (uint32_t i = 0; i < m->tensors[tensor].bind_count; i++) {
        float *f = mb_data(m, tensor, i);
        for (uint64_t n = 0; n < m->tensors[tensor].bytes / 4; n++) {
            x = x * 1664525u + 1013904223u;
            f[n] = (float)((int32_t)(x >> 20) - 2048) / 8192.0f;
        }
    }
}

static inline void mb_set_i32(struct mb *m, uint32_t tensor, uint32_t index, int32_t value) {
    memcpy((uint8_t *)mb_data(m, tensor, 0) + (size_t)index * 4, &value, sizeof value);
}

static inline uint32_t mb_buffer(struct mb *m, uint32_t site, enum tw_buffer_kind kind,
                                 uint32_t pages, uint64_t page_bytes) {
    uint32_t id = m->p.n_buffers++;
    mb_require(id < MB_BUFFERS, "buffer table");
    m->buffers[id] = (struct tw_buffer){.site = site,
                                        .kind = (uint8_t)kind,
                                        .dtype = TW_DT_F32,
                                        .pages = pages,
                                        .page_bytes = page_bytes,
                                        .offset = m->sram_next[site],
                                        .sibling_base = TW_NONE,
                                        .tensor = TW_NONE};
    m->sram_next[site] += (pages * page_bytes + 63) / 64 * 64;
    mb_require(m->sram_next[site] <= m->p.sram_bytes, "SRAM");
    return id;
}

static inline uint32_t mb_fifo(struct mb *m, uint32_t site, enum tw_engine from, enum tw_engine to,
                               uint32_t pages, uint64_t page_bytes) {
    uint32_t id = mb_buffer(m, site, TW_BUF_FIFO, pages, page_bytes);
    m->buffers[id].producer = (uint8_t)from;
    m->buffers[id].consumer = (uint8_t)to;
    return id;
}

/* A sibling set on the sites of a group, in its order from the result on. All of them must have
 * used equally much SRAM before. */
static inline uint32_t mb_siblings_of(struct mb *m, uint32_t group, uint64_t bytes) {
    uint32_t base = m->p.n_buffers;
    for (uint32_t i = 0; i < tw_group_size(&m->groups[group]); i++) {
        mb_buffer(m, tw_group_site(&m->p, &m->groups[group], i), TW_BUF_RESIDENT, 1, bytes);
        m->buffers[base + i].sibling_base = base;
        m->buffers[base + i].group = (uint16_t)group;
    }
    return base;
}

/* On all sites: the member of site s is the result + s. */
static inline uint32_t mb_siblings(struct mb *m, uint64_t bytes) {
    return mb_siblings_of(m, 0, bytes);
}

static inline uint32_t mb_semaphore(struct mb *m, uint32_t group, uint32_t initial) {
    mb_require(m->p.n_semaphores < MB_SEMS, "semaphore table");
    m->sems[m->p.n_semaphores] = (struct tw_semaphore){0, group, 0, initial};
    return m->p.n_semaphores++;
}

/* Sites x0 <= x < x1, y0 <= y < y1 of a chip. */
static inline uint32_t mb_chip_group(struct mb *m, uint32_t chip, uint32_t x0, uint32_t y0,
                                     uint32_t x1, uint32_t y1) {
    mb_require(m->p.n_groups < MB_GROUPS, "group table");
    m->groups[m->p.n_groups] = (struct tw_group){(uint16_t)chip, (uint16_t)x0, (uint16_t)y0,
                                                 (uint16_t)x1,   (uint16_t)y1, 1};
    return m->p.n_groups++;
}

static inline uint32_t mb_group(struct mb *m, uint32_t x0, uint32_t y0, uint32_t x1, uint32_t y1) {
    return mb_chip_group(m, 0, x0, y0, x1, y1);
}

static inline uint32_t mb_trip(struct mb *m, uint32_t input, uint32_t add, uint32_t div,
                               uint32_t max) {
    mb_require(m->p.n_trips < MB_TRIPS, "trip table");
    m->trips[m->p.n_trips] = (struct tw_trip){0, input, add, div, max};
    return m->p.n_trips++;
}

/* ---- operands ---- */

static inline struct tw_affine mb_at(uint64_t base) {
    return tw_affine_const(base);
}
#define R_(id, at) tw_in_buffer(id, at)
#define W_(id, at) tw_in_buffer(id, at)
#define M_(id, at) tw_in_buffer(id, at)
#define F_(id) (id)
#define S_(id) (id)
#define G_(id) (id)
#define C_(id) (id)
#define I_(v) ((uint32_t)(v))
#define V_(v) (v)
#define T_(id, instance, at) tw_in_tensor(id, instance, at)
#define U_(id, instance, at) tw_in_tensor(id, instance, at)
#define X_(trip, max) tw_count_of(trip, max)
#define A_(number) (number)
#define E_(f) (f)

/* The op's stage becomes that of the engine. */
static inline void mb_append(struct mb *m, uint32_t site, enum tw_engine engine, struct tw_op op) {
    uint32_t stream = site * TW_ENGINE_COUNT + (uint32_t)engine, words[TW_MAX_OP_WORDS];
    op.stage = stream;
    uint32_t used = tw_op_encode(&op, words);
    mb_require(m->streams[stream].n_words + used <= MB_WORDS, "stream too long");
    memcpy(m->words[stream] + m->streams[stream].n_words, words, used * sizeof *words);
    m->streams[stream].n_words += used;
}

/* mb_op(m, site, engine letter L M S, OP, operands...) */
#define MB_ENGINE_L TW_ENGINE_LOAD
#define MB_ENGINE_M TW_ENGINE_MATH
#define MB_ENGINE_S TW_ENGINE_STORE
#define mb_op(m, site, letter, code, ...) \
    mb_append(m, site, MB_ENGINE_##letter, make_##code(0, __VA_ARGS__))
static inline void mb_end(struct mb *m, uint32_t site, enum tw_engine engine) {
    mb_append(m, site, engine, tw_make_end(0));
}
#define mb_loop(m, site, letter, var, times) \
    mb_op(m, site, letter, LOOP, V_(var), X_(TW_NONE, times), I_(TW_NONE))
#define mb_dynamic(m, site, letter, var, trip, id) \
    mb_op(m, site, letter, LOOP, V_(var), X_(trip, (m)->trips[trip].max), I_(id))

/* ---- running ---- */

/* Remembers device memory as it is now; mb_rewind brings it back. */
static inline void mb_freeze(struct mb *m) {
    free(m->initial);
    m->initial = malloc(MB_DRAM);
    mb_require(m->initial != NULL, "memory");
    memcpy(m->initial, m->dram, MB_DRAM);
    m->config.kernels = tw_kernel_table(TW_ISA_SCALAR);
}
static inline void mb_rewind(struct mb *m) {
    memcpy(m->dram, m->initial, MB_DRAM);
}

/* A machine in memory of exactly the size it asks for. The caller frees *memory. */
static inline int mb_strict(struct mb *m, void **memory, struct tw_strict **out,
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

static inline int mb_plan(struct mb *m, uint32_t threads, void **memory, struct tw_plan **out,
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
