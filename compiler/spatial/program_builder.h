/* SPDX-License-Identifier: Apache-2.0
 *
 * A program under construction: growable tables of the machine's records and one op stream an
 * engine. Each section has a builder; compose appends them to one more, the program's.
 */
#ifndef TW_COMPILER_SPATIAL_PROGRAM_BUILDER_H
#define TW_COMPILER_SPATIAL_PROGRAM_BUILDER_H

#include "compiler/arena.h"
#include "tilewright/op_schema.h"
#include "tilewright/target.h"

/* Strings of all programs of a bundle; offset 0 is "". Equal strings get equal offsets. */
struct tw_strpool {
    struct tw_cmem *mem;
    TW_VEC(char) bytes;
    TW_VEC(uint32_t) slots; /* hash table of offsets, 0 empty */
    uint32_t n_strings;
};
uint32_t tw_strpool_add(struct tw_strpool *pool, const char *text);
/* Forgets every string added since the pool was as `before`; the arena may then be released to what
 * it was at that time. */
void tw_strpool_rewind(struct tw_strpool *pool, const struct tw_strpool *before);

/* Loop variables: 0 is the epoch, 1 runs over a repeated section's instances, 2 over pages and key
 * blocks. */
enum { TW_VAR_EPOCH = 0, TW_VAR_INSTANCE = 1, TW_VAR_INNER = 2 };

struct tw_builder {
    struct tw_cmem *mem;
    struct tw_strpool *strings;
    const char *name;
    uint32_t repeat; /* sections: iterations */
    uint32_t rows, n_sites;
    const struct tw_target *target;
    /* SRAM of the fullest site: sections' own memory, activations */
    uint64_t private_bytes, shared_bytes;
    TW_VEC(struct tw_tensor) tensors;
    TW_VEC(uint32_t) tensor_value; /* graph value of each tensor, or TW_NONE */
    TW_VEC(struct tw_buffer) buffers;
    TW_VEC(struct tw_semaphore) semaphores;
    TW_VEC(struct tw_group) groups;
    TW_VEC(struct tw_trip) trips;
    TW_VEC(struct tw_stage) stages;
    TW_VEC(struct tw_section) sections;
    TW_VEC(uint32_t) * code;  /* [site * TW_ENGINE_COUNT + engine] */
    TW_VEC(uint32_t) outputs; /* programs: tensors that the host reads after a step */
    /* NULL: exact, bit-equal to the strict interpreter; else why it may not be */
    const char *approx;
};

void tw_builder_init(struct tw_builder *u, struct tw_cmem *mem, struct tw_strpool *strings,
                     const struct tw_target *t, const char *name, uint32_t rows);

/* Appends one op to the stream of an engine. Sets op->n_words. */
void tw_builder_emit(struct tw_builder *u, uint32_t site, enum tw_engine engine, struct tw_op *op);

/* tw_builder_NAME(to, at_site, engine, stage, operands...) for each op of ops.def: appends it, as
 * tw_make_NAME makes it. */
#define TW_OP(NAME, number, name, engines, part)                                               \
    static inline void tw_builder_##name(                                                      \
        struct tw_builder *to, uint32_t at_site, enum tw_engine engine,                        \
        uint32_t stage TW_OPERANDS_##NAME(TW_OPERAND_PARAMETER, NAME)) {                       \
        struct tw_op op = tw_make_##name(stage TW_OPERANDS_##NAME(TW_OPERAND_ARGUMENT, NAME)); \
        tw_builder_emit(to, at_site, engine, &op);                                             \
    }
#include "tilewright/ops.def"
#undef TW_OP

/* Records; found again by name where they have one. */
uint32_t tw_builder_tensor(struct tw_builder *u, const char *name); /* TW_NONE: not there */
uint32_t tw_builder_add_tensor(struct tw_builder *u, const char *name,
                               const struct tw_tensor *record, uint32_t value);
uint32_t tw_builder_trip(struct tw_builder *u, const char *name, const char *input, uint32_t div,
                         uint32_t max);
/* the trip of one element of an Input of so many rows of one number */
uint32_t tw_builder_row_trip(struct tw_builder *u, const char *name, const char *input,
                             uint32_t rows, uint32_t element, uint32_t div, uint32_t max);
/* the group of all sites of all chips */
uint32_t tw_builder_all_sites(struct tw_builder *u);
/* the group of all sites of a chip */
uint32_t tw_builder_chip_sites(struct tw_builder *u, uint32_t chip);
uint32_t tw_builder_semaphore(struct tw_builder *u, const char *name, enum tw_sem_role role);

/* The threshold of a wait for `count` increments an iteration of the section: count*(1 + instance +
 * repeat*epoch). */
struct tw_affine tw_builder_threshold(const struct tw_builder *u, uint32_t count);

/* A view for the verifier, the printer and the writer; valid while the builder is not changed. */
struct tw_program tw_builder_program(struct tw_builder *u);

#endif
