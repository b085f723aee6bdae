/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds small programs by hand: fixed tables, a cursor (site, engine, stage) and an append of one
 * op at a time; and edits them: find an op, change or remove it, insert one. Everything asserts on
 * the test's own mistakes.
 */
#ifndef TW_TESTS_SUPPORT_PROGRAM_BUILDER_H
#define TW_TESTS_SUPPORT_PROGRAM_BUILDER_H

#include "tests/support/make_op.h"

#include <assert.h>
#include <stdlib.h>

#define PB_MAX 128u
#define PB_SITES 4u
#define PB_WORDS 4096u

struct pb {
    struct tw_program p;
    struct tw_tensor tensors[PB_MAX];
    struct tw_buffer buffers[PB_MAX];
    struct tw_semaphore semaphores[PB_MAX];
    struct tw_group groups[PB_MAX];
    struct tw_trip trips[PB_MAX];
    struct tw_stage stages[PB_MAX];
    struct tw_edge edges[PB_MAX];
    struct tw_section sections[PB_MAX];
    struct tw_stream streams[PB_SITES * TW_ENGINE_COUNT];
    uint32_t words[PB_SITES * TW_ENGINE_COUNT][PB_WORDS];
    char strings[4096];
    uint32_t site, engine, stage; /* where PB_OP appends */
};

static inline struct pb *pb_new(const char *name, uint32_t width, uint32_t height) {
    struct pb *b = (struct pb *)calloc(1, sizeof *b);
    assert(b && width * height <= PB_SITES);
    b->p.name = name;
    b->p.strings = b->strings;
    b->p.strings_bytes = 1;
    b->p.rows = 1;
    b->p.n_sites = width * height;
    b->p.mesh_width = width;
    b->p.mesh_height = height;
    b->p.n_chips = 1;
    b->p.sram_bytes = 1u << 20;
    b->p.tensors = b->tensors;
    b->p.buffers = b->buffers;
    b->p.semaphores = b->semaphores;
    b->p.groups = b->groups;
    b->p.trips = b->trips;
    b->p.stages = b->stages;
    b->p.edges = b->edges;
    b->p.sections = b->sections;
    b->p.streams = b->streams;
    for (uint32_t i = 0; i < b->p.n_sites * TW_ENGINE_COUNT; i++) {
        b->streams[i].site = i / TW_ENGINE_COUNT;
        b->streams[i].engine = i % TW_ENGINE_COUNT;
        b->streams[i].words = b->words[i];
    }
    return b;
}

static inline void pb_free(struct pb *b) {
    free(b);
}

static inline uint32_t pb_string(struct pb *b, const char *s) {
    uint32_t at = b->p.strings_bytes, n = (uint32_t)strlen(s) + 1;
    assert(at + n <= sizeof b->strings);
    memcpy(b->strings + at, s, n);
    b->p.strings_bytes += n;
    return at;
}

/* ---- tables ---- */

static inline uint64_t pb_tensor_bytes(const struct tw_tensor *t) {
    return t->packing == TW_PACK_PANEL16 ? tw_panels(t->rows) * tw_panel_bytes(t->dtype, t->cols)
                                         : t->rows * tw_row_bytes(t->dtype, t->cols);
}

/* A tensor whose binding rows follow those of the one before. head_dim 0 where it has none. */
static inline uint32_t pb_tensor(struct pb *b, const char *name, enum tw_role role,
                                 enum tw_dtype dtype, enum tw_packing packing, uint32_t rows,
                                 uint32_t cols, uint32_t head_dim, uint32_t instances) {
    uint32_t id = b->p.n_tensors++;
    assert(id < PB_MAX);
    struct tw_tensor *t = &b->tensors[id];
    t->name = pb_string(b, name);
    t->rows = rows;
    t->cols = cols;
    t->dtype = (uint8_t)dtype;
    t->packing = (uint8_t)packing;
    t->role = (uint8_t)role;
    t->init = role == TW_ROLE_STATE ? TW_INIT_ZERO : TW_INIT_NONE;
    t->head_dim = head_dim;
    t->bind_first = id ? t[-1].bind_first + t[-1].bind_count : 0;
    t->bind_count = instances;
    t->bytes = pb_tensor_bytes(t);
    return id;
}

/* A buffer on every site, as siblings; returns the id of site 0's. Placed behind the buffers before
 * it. */
static inline uint32_t pb_buffers(struct pb *b, const char *name, enum tw_buffer_kind kind,
                                  enum tw_dtype dtype, uint32_t pages, uint64_t page_bytes) {
    uint32_t base = b->p.n_buffers, label = pb_string(b, name);
    uint64_t offset = 0;
    assert(base + b->p.n_sites <= PB_MAX);
    if (base) {
        const struct tw_buffer *last = &b->buffers[base - 1];
        offset = (last->offset + last->pages * last->page_bytes + 63) / 64 * 64;
    }
    for (uint32_t s = 0; s < b->p.n_sites; s++) {
        struct tw_buffer *f = &b->buffers[base + s];
        f->name = label;
        f->site = s;
        f->kind = (uint8_t)kind;
        f->dtype = (uint8_t)dtype;
        f->pages = pages;
        f->page_bytes = page_bytes;
        f->offset = offset;
        f->sibling_base = base;
        f->tensor = TW_NONE;
    }
    b->p.n_buffers += b->p.n_sites;
    return base;
}

static inline uint32_t pb_fifos(struct pb *b, const char *name, enum tw_engine producer,
                                enum tw_engine consumer, enum tw_dtype dtype, uint32_t pages,
                                uint64_t page_bytes) {
    uint32_t base = pb_buffers(b, name, TW_BUF_FIFO, dtype, pages, page_bytes);
    for (uint32_t s = 0; s < b->p.n_sites; s++) {
        b->buffers[base + s].producer = (uint8_t)producer;
        b->buffers[base + s].consumer = (uint8_t)consumer;
    }
    return base;
}

static inline uint32_t pb_semaphore(struct pb *b, const char *name, enum tw_sem_role role,
                                    uint32_t group) {
    uint32_t id = b->p.n_semaphores++;
    struct tw_semaphore s = {pb_string(b, name), group, role, 0};
    assert(id < PB_MAX);
    b->semaphores[id] = s;
    return id;
}

static inline uint32_t pb_group(struct pb *b, uint32_t x0, uint32_t y0, uint32_t x1, uint32_t y1) {
    uint32_t id = b->p.n_groups++;
    struct tw_group g = {0, (uint16_t)x0, (uint16_t)y0, (uint16_t)x1, (uint16_t)y1, 1};
    assert(id < PB_MAX);
    b->groups[id] = g;
    return id;
}

static inline uint32_t pb_trip(struct pb *b, const char *name, uint32_t input, uint32_t add,
                               uint32_t div, uint32_t max) {
    uint32_t id = b->p.n_trips++;
    struct tw_trip t = {pb_string(b, name), input, add, div, max};
    assert(id < PB_MAX);
    b->trips[id] = t;
    return id;
}

/* Stages of one section, one a (site, engine), each of that origin; returns the first. */
static inline uint32_t pb_stages(struct pb *b, uint32_t section, const char *origin) {
    uint32_t first = b->p.n_stages, label = pb_string(b, origin);
    for (uint32_t i = 0; i < b->p.n_sites * TW_ENGINE_COUNT; i++) {
        struct tw_stage s = {
            TW_STAGE_COMPUTE, i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT, section, label, 0, 0, 0};
        assert(b->p.n_stages < PB_MAX);
        b->stages[b->p.n_stages++] = s;
    }
    return first;
}

/* ---- operands ---- */

static inline uint32_t pb_id(uint32_t id) {
    return id;
}
static inline struct tw_buffer_at pb_at(uint32_t buffer, struct tw_affine offset) {
    return tw_in_buffer(buffer, offset);
}
static inline struct tw_buffer_at pb_on(uint32_t buffer, uint64_t offset) {
    return pb_at(buffer, tw_affine_const(offset));
}
static inline struct tw_tensor_at pb_of(uint32_t tensor, struct tw_affine instance,
                                        struct tw_affine offset) {
    return tw_in_tensor(tensor, instance, offset);
}
static inline struct tw_count pb_rows(uint32_t trip, uint32_t max) {
    return tw_count_of(trip, max);
}
static inline struct tw_affine pb_num(struct tw_affine number) {
    return number;
}
static inline float pb_float(float f) {
    return f;
}
static inline struct tw_affine pb_v(uint64_t base, uint32_t var, uint64_t step) {
    return tw_affine_plus(tw_affine_const(base), var, step);
}

/* ---- streams ---- */

static inline struct tw_stream *pb_stream(struct pb *b, uint32_t site, uint32_t engine) {
    return &b->streams[site * TW_ENGINE_COUNT + engine];
}

/* Replaces `old_words` words at `at` by `op` (nothing where it is NULL). */
static inline void pb_splice(struct pb *b, uint32_t site, uint32_t engine, uint32_t at,
                             uint32_t old_words, const struct tw_op *op) {
    struct tw_stream *s = pb_stream(b, site, engine);
    uint32_t *words = b->words[site * TW_ENGINE_COUNT + engine], encoded[TW_MAX_OP_WORDS], n = 0;
    if (op) {
        struct tw_op copy = *op;
        n = tw_op_encode(&copy, encoded);
    }
    assert(at + old_words <= s->n_words && s->n_words - old_words + n <= PB_WORDS);
    memmove(words + at + n, words + at + old_words, (size_t)(s->n_words - at - old_words) * 4);
    memcpy(words + at, encoded, (size_t)n * 4);
    s->n_words += n - old_words;
}

static inline void pb_append(struct pb *b, const struct tw_op *op) {
    pb_splice(b, b->site, b->engine, pb_stream(b, b->site, b->engine)->n_words, 0, op);
}
#define PB_OP(b, NAME, ...)                                        \
    do {                                                           \
        struct tw_op made_ = make_##NAME((b)->stage, __VA_ARGS__); \
        pb_append((b), &made_);                                    \
    } while (0)
static inline void pb_end(struct pb *b) {
    struct tw_op end = tw_make_end(b->stage);
    pb_append(b, &end);
}

/* The word at which the nth (from 0) op of that code begins; *op is the op. */
static inline uint32_t pb_find(struct pb *b, uint32_t site, uint32_t engine, uint32_t code,
                               uint32_t nth, struct tw_op *op) {
    const struct tw_stream *s = pb_stream(b, site, engine);
    for (uint32_t at = 0; at < s->n_words; at += op->n_words) {
        bool decoded = tw_op_decode(s->words, s->n_words, at, op);
        assert(decoded);
        (void)decoded;
        if (op->code == code && nth-- == 0) {
            return at;
        }
    }
    assert(false); /* the program has no such op */
    return 0;
}

/* Puts an END before the nth op of that code. */
static inline void pb_insert_end(struct pb *b, uint32_t site, uint32_t engine, uint32_t code,
                                 uint32_t nth) {
    struct tw_op end = tw_make_end(TW_NONE), op;
    pb_splice(b, site, engine, pb_find(b, site, engine, code, nth, &op), 0, &end);
}

#endif
