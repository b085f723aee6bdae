/* SPDX-License-Identifier: Apache-2.0
 *
 * The tests' builder for hand-made programs: fixed tables, a cursor (site, engine, stage) and an
 * append of one op at a time; and editing: find an op, change or remove it, insert one.
 * hand_machine.h gives such a program memory and runs it. A mistake in the use of the builder
 * aborts.
 */
#ifndef TW_TESTS_SUPPORT_HAND_PROGRAM_H
#define TW_TESTS_SUPPORT_HAND_PROGRAM_H

#include "firmware/core/tile_machine.h"
#include "tilewright/opcode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PB_MAX 128u /* records of a table, except buffers */
#define PB_BUFFERS 512u
#define PB_SITES 16u
#define PB_WORDS 8192u /* of a stream */
#define PB_ROWS 512u   /* binding rows, if there is a machine */

struct pb {
    struct tw_program p;
    struct tw_tensor tensors[PB_MAX];
    struct tw_buffer buffers[PB_BUFFERS];
    struct tw_semaphore semaphores[PB_MAX];
    struct tw_group groups[PB_MAX];
    struct tw_trip trips[PB_MAX];
    struct tw_stage stages[PB_MAX];
    struct tw_section sections[PB_MAX];
    struct tw_stream streams[PB_SITES * TW_ENGINE_COUNT];
    uint32_t (*words)[PB_WORDS]; /* of each stream */
    char strings[4096];
    uint64_t sram_next[PB_SITES]; /* where the next buffer of a site is placed */
    uint32_t site, engine, stage; /* where PB_OP appends */

    /* The machine of hand_machine.h; zeros without one. */
    uint8_t *dram, *initial; /* device memory, now and as mb_freeze() found it */
    uint64_t dram_next, misalign;
    uint64_t bind[PB_ROWS];
    struct tw_machine_config config;
};

static inline void pb_require(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "hand_program: %s\n", what);
        abort();
    }
}

/* `chips` chips of width x height sites each. */
static inline struct pb *pb_new_chips(const char *name, uint32_t chips, uint32_t width,
                                      uint32_t height) {
    struct pb *b = calloc(1, sizeof *b);
    uint32_t n_sites = chips * width * height;
    pb_require(b && n_sites <= PB_SITES, "too many sites, or no memory");
    b->words = calloc((size_t)n_sites * TW_ENGINE_COUNT, sizeof *b->words);
    pb_require(b->words != NULL, "no memory for the streams");
    b->p = (struct tw_program){.name = name,
                               .strings = b->strings,
                               .strings_bytes = 1,
                               .rows = 1,
                               .n_sites = n_sites,
                               .mesh_width = width,
                               .mesh_height = height,
                               .n_chips = chips,
                               .sram_bytes = {1u << 20},
                               .tensors = b->tensors,
                               .buffers = b->buffers,
                               .semaphores = b->semaphores,
                               .groups = b->groups,
                               .trips = b->trips,
                               .stages = b->stages,
                               .sections = b->sections,
                               .streams = b->streams};
    for (uint32_t i = 0; i < n_sites * TW_ENGINE_COUNT; i++) {
        b->streams[i] =
            (struct tw_stream){i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT, b->words[i], 0};
    }
    return b;
}

static inline struct pb *pb_new(const char *name, uint32_t width, uint32_t height) {
    return pb_new_chips(name, 1, width, height);
}

/* `b` may be NULL. */
static inline void pb_free(struct pb *b) {
    if (b) {
        free(b->words);
        free(b->dram);
        free(b->initial);
        free(b);
    }
}

/* Returns the offset of a string in the table; NULL stands for the empty string. */
static inline uint32_t pb_string(struct pb *b, const char *s) {
    if (!s) {
        return 0;
    }
    uint32_t at = b->p.strings_bytes, n = (uint32_t)strlen(s) + 1;
    pb_require(at + n <= sizeof b->strings, "the string table is full");
    memcpy(b->strings + at, s, n);
    b->p.strings_bytes += n;
    return at;
}

/* ---- tables ---- */

static inline uint64_t pb_tensor_bytes(const struct tw_tensor *t) {
    return t->packing == TW_PACK_PANEL16 ? tw_panels(t->rows) * tw_panel_bytes(t->dtype, t->cols)
                                         : t->rows * tw_row_bytes(t->dtype, t->cols);
}

/* Adds a tensor whose binding rows follow those of the previous one. head_dim 0 if it has none. */
static inline uint32_t pb_tensor(struct pb *b, const char *name, enum tw_role role,
                                 enum tw_dtype dtype, enum tw_packing packing, uint32_t rows,
                                 uint32_t cols, uint32_t head_dim, uint32_t instances) {
    uint32_t id = b->p.n_tensors++;
    pb_require(id < PB_MAX, "the tensor table is full");
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

/* Adds a buffer of one site, f32, placed after those that the site has. */
static inline uint32_t pb_buffer(struct pb *b, uint32_t site, enum tw_buffer_kind kind,
                                 uint32_t pages, uint64_t page_bytes) {
    uint32_t id = b->p.n_buffers++;
    pb_require(id < PB_BUFFERS, "the buffer table is full");
    b->buffers[id] = (struct tw_buffer){.site = site,
                                        .kind = (uint8_t)kind,
                                        .dtype = TW_DT_F32,
                                        .pages = pages,
                                        .page_bytes = page_bytes,
                                        .offset = b->sram_next[site],
                                        .sibling_base = TW_NONE,
                                        .tensor = TW_NONE};
    b->sram_next[site] += (pages * page_bytes + 63) / 64 * 64;
    pb_require(b->sram_next[site] <= b->p.sram_bytes[0], "the SRAM of a site is full");
    return id;
}

static inline uint32_t pb_fifo(struct pb *b, uint32_t site, enum tw_engine from, enum tw_engine to,
                               uint32_t pages, uint64_t page_bytes) {
    uint32_t id = pb_buffer(b, site, TW_BUF_FIFO, pages, page_bytes);
    b->buffers[id].producer = (uint8_t)from;
    b->buffers[id].consumer = (uint8_t)to;
    return id;
}

/* Adds a buffer on every site, as siblings; returns the id of site 0's. All sites must have used
 * the same amount of SRAM before. */
static inline uint32_t pb_buffers(struct pb *b, const char *name, enum tw_buffer_kind kind,
                                  enum tw_dtype dtype, uint32_t pages, uint64_t page_bytes) {
    uint32_t base = b->p.n_buffers, label = pb_string(b, name);
    for (uint32_t s = 0; s < b->p.n_sites; s++) {
        struct tw_buffer *f = &b->buffers[pb_buffer(b, s, kind, pages, page_bytes)];
        f->name = label;
        f->dtype = (uint8_t)dtype;
        f->sibling_base = base;
    }
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

/* Adds a sibling set of one page on the sites of a group; returns the id of the first, the others
 * follow in the group's order. All of them must have used the same amount of SRAM before. */
static inline uint32_t pb_siblings_of(struct pb *b, uint32_t group, uint64_t bytes) {
    uint32_t base = b->p.n_buffers;
    for (uint32_t i = 0; i < tw_group_size(&b->groups[group]); i++) {
        pb_buffer(b, tw_group_site(&b->p, &b->groups[group], i), TW_BUF_RESIDENT, 1, bytes);
        b->buffers[base + i].sibling_base = base;
        b->buffers[base + i].group = (uint16_t)group;
    }
    return base;
}

/* On all sites, which are group 0: the member of site s is the result + s. */
static inline uint32_t pb_siblings(struct pb *b, uint64_t bytes) {
    return pb_siblings_of(b, 0, bytes);
}

static inline uint32_t pb_semaphore(struct pb *b, const char *name, enum tw_sem_role role,
                                    uint32_t group, uint32_t initial) {
    uint32_t id = b->p.n_semaphores++;
    pb_require(id < PB_MAX, "the semaphore table is full");
    b->semaphores[id] = (struct tw_semaphore){pb_string(b, name), group, role, initial};
    return id;
}

/* Adds a group: sites x0 <= x < x1, y0 <= y < y1 of a chip. */
static inline uint32_t pb_chip_group(struct pb *b, uint32_t chip, uint32_t x0, uint32_t y0,
                                     uint32_t x1, uint32_t y1) {
    uint32_t id = b->p.n_groups++;
    pb_require(id < PB_MAX, "the group table is full");
    b->groups[id] = (struct tw_group){(uint16_t)chip, (uint16_t)x0, (uint16_t)y0,
                                      (uint16_t)x1,   (uint16_t)y1, 1};
    return id;
}

static inline uint32_t pb_group(struct pb *b, uint32_t x0, uint32_t y0, uint32_t x1, uint32_t y1) {
    return pb_chip_group(b, 0, x0, y0, x1, y1);
}

/* Adds the record, with that name. */
static inline uint32_t pb_trip_of(struct pb *b, const char *name, struct tw_trip trip) {
    uint32_t id = b->p.n_trips++;
    pb_require(id < PB_MAX, "the trip table is full");
    trip.name = pb_string(b, name);
    b->trips[id] = trip;
    return id;
}

static inline uint32_t pb_trip(struct pb *b, const char *name, uint32_t input, int32_t add,
                               uint32_t div, uint32_t max) {
    struct tw_trip trip = {.input = input, .add = add, .div = div, .max = max};
    return pb_trip_of(b, name, trip);
}

/* Adds stages of one section, one for each (site, engine), with that origin; returns the first. */
static inline uint32_t pb_stages(struct pb *b, uint32_t section, const char *origin) {
    uint32_t first = b->p.n_stages, label = pb_string(b, origin);
    for (uint32_t i = 0; i < b->p.n_sites * TW_ENGINE_COUNT; i++) {
        struct tw_stage s = {
            TW_STAGE_COMPUTE, i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT, section, label, 0, 0, 0};
        pb_require(b->p.n_stages < PB_MAX, "the stage table is full");
        b->stages[b->p.n_stages++] = s;
    }
    return first;
}

/* ---- operands ---- */

static inline struct tw_operand pb_id(uint32_t id) {
    struct tw_operand o;
    memset(&o, 0, sizeof o);
    o.id = id;
    return o;
}
static inline struct tw_operand pb_at(uint32_t buffer, struct tw_affine offset) {
    struct tw_operand o = pb_id(buffer);
    o.offset = offset;
    return o;
}
static inline struct tw_operand pb_on(uint32_t buffer, uint64_t offset) {
    return pb_at(buffer, tw_affine_const(offset));
}
static inline struct tw_operand pb_of(uint32_t tensor, struct tw_affine instance,
                                      struct tw_affine offset) {
    struct tw_operand o = pb_at(tensor, offset);
    o.instance = instance;
    return o;
}
/* The same in the page that an element of a table names. */
static inline struct tw_operand pb_in_page(struct tw_operand o, uint32_t table,
                                           struct tw_affine element) {
    o.paged = true;
    o.table = table;
    o.element = element;
    return o;
}
static inline struct tw_operand pb_rows(uint32_t trip, uint32_t max) {
    struct tw_operand o = pb_id(trip);
    o.max = max;
    return o;
}
static inline struct tw_operand pb_num(struct tw_affine number) {
    return pb_at(0, number);
}
static inline struct tw_operand pb_float(float f) {
    struct tw_operand o = pb_id(0);
    memcpy(&o.id, &f, sizeof f);
    return o;
}
static inline struct tw_affine pb_v(uint64_t base, uint32_t var, uint64_t step) {
    return tw_affine_plus(tw_affine_const(base), var, step);
}

/* ---- streams ---- */

/* An operand's kind may be omitted (0): it is the one that the op has at that position. */
static inline struct tw_op pb_make(uint32_t stage, uint32_t code, const struct tw_operand *operands,
                                   uint32_t n) {
    struct tw_op op;
    const char *kinds = tw_op_info(code).operands;
    memset(&op, 0, sizeof op);
    pb_require(tw_op_info(code).name && strlen(kinds) == n, "wrong number of operands");
    op.code = code;
    op.stage = stage;
    op.n_operands = n;
    for (uint32_t i = 0; i < n; i++) {
        pb_require(!operands[i].kind || operands[i].kind == kinds[i], "wrong kind of operand");
        op.operand[i] = operands[i];
        op.operand[i].kind = kinds[i];
    }
    return op;
}

static inline struct tw_stream *pb_stream(struct pb *b, uint32_t site, uint32_t engine) {
    return &b->streams[site * TW_ENGINE_COUNT + engine];
}

/* Replaces `old_words` words at `at` with `op` (with nothing if it is NULL). */
static inline void pb_splice(struct pb *b, uint32_t site, uint32_t engine, uint32_t at,
                             uint32_t old_words, const struct tw_op *op) {
    struct tw_stream *s = pb_stream(b, site, engine);
    uint32_t *words = b->words[site * TW_ENGINE_COUNT + engine], encoded[TW_MAX_OP_WORDS], n = 0;
    if (op) {
        struct tw_op copy = *op;
        n = tw_op_encode(&copy, encoded);
    }
    pb_require(at + old_words <= s->n_words && s->n_words - old_words + n <= PB_WORDS,
               "stream too long");
    memmove(words + at + n, words + at + old_words, (size_t)(s->n_words - at - old_words) * 4);
    memcpy(words + at, encoded, (size_t)n * 4);
    s->n_words += n - old_words;
}

/* Appends to the end of any stream. */
static inline void pb_append_at(struct pb *b, uint32_t site, uint32_t engine, uint32_t stage,
                                uint32_t code, const struct tw_operand *operands, uint32_t n) {
    struct tw_op op = pb_make(stage, code, operands, n);
    pb_splice(b, site, engine, pb_stream(b, site, engine)->n_words, 0, &op);
}

/* Appends at the cursor. */
static inline void pb_append(struct pb *b, uint32_t code, const struct tw_operand *operands,
                             uint32_t n) {
    pb_append_at(b, b->site, b->engine, b->stage, code, operands, n);
}
#define PB_OP(b, NAME, ...)                                          \
    pb_append(                                                       \
        (b), TW_OP_##NAME, (const struct tw_operand[]){__VA_ARGS__}, \
        (uint32_t)(sizeof((const struct tw_operand[]){__VA_ARGS__}) / sizeof(struct tw_operand)))
static inline void pb_end(struct pb *b) {
    pb_append(b, TW_OP_END, NULL, 0);
}

/* Returns the word at which the nth (from 0) op of that code begins; *op is the op. */
static inline uint32_t pb_find(struct pb *b, uint32_t site, uint32_t engine, uint32_t code,
                               uint32_t nth, struct tw_op *op) {
    const struct tw_stream *s = pb_stream(b, site, engine);
    for (uint32_t at = 0; at < s->n_words; at += op->n_words) {
        pb_require(tw_op_decode(s->words, s->n_words, at, op), "an op that does not decode");
        if (op->code == code && nth-- == 0) {
            return at;
        }
    }
    pb_require(false, "the program has no such op");
    return 0;
}

/* Inserts an END before the nth op of that code. */
static inline void pb_insert_end(struct pb *b, uint32_t site, uint32_t engine, uint32_t code,
                                 uint32_t nth) {
    struct tw_op end = pb_make(TW_NONE, TW_OP_END, NULL, 0), op;
    pb_splice(b, site, engine, pb_find(b, site, engine, code, nth, &op), 0, &end);
}

#endif
