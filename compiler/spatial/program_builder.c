/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs under construction (compiler/spatial/program_builder.h). Ops are encoded as they are
 * emitted; the emitter of each op is generated from ops.def.
 */
#include "compiler/spatial/program_builder.h"

#include <string.h>

static uint32_t hash_text(const char *s) {
    uint32_t h = 2166136261u; /* FNV-1a */
    for (; *s; s++) {
        h = (h ^ (unsigned char)*s) * 16777619u;
    }
    return h;
}

/* Enters every string into the table, which is empty. */
static void fill_slots(struct tw_strpool *p) {
    uint32_t slots = p->slots.n;
    for (uint32_t at = 1; at < p->bytes.n; at += (uint32_t)strlen(p->bytes.items + at) + 1) {
        uint32_t i = hash_text(p->bytes.items + at) & (slots - 1);
        while (p->slots.items[i]) {
            i = (i + 1) & (slots - 1);
        }
        p->slots.items[i] = at;
    }
}

static void rehash(struct tw_strpool *p, uint32_t slots) {
    p->slots.items = tw_cmem_alloc(p->mem, slots * sizeof *p->slots.items);
    p->slots.n = slots;
    fill_slots(p);
}

void tw_strpool_rewind(struct tw_strpool *p, const struct tw_strpool *before) {
    *p = *before; /* older arrays are still there: growing copies */
    if (p->slots.n) {
        memset(p->slots.items, 0, p->slots.n * sizeof *p->slots.items);
        fill_slots(p);
    }
}

uint32_t tw_strpool_add(struct tw_strpool *p, const char *text) {
    if (p->bytes.n == 0) {
        *TW_VEC_PUSH(p->mem, p->bytes) = '\0';
    }
    if (!*text) {
        return 0;
    }
    if (p->slots.n < 2 * (p->n_strings + 1)) {
        rehash(p, p->slots.n ? p->slots.n * 4 : 256);
    }
    uint32_t i = hash_text(text) & (p->slots.n - 1);
    for (; p->slots.items[i]; i = (i + 1) & (p->slots.n - 1)) {
        if (!strcmp(p->bytes.items + p->slots.items[i], text)) {
            return p->slots.items[i];
        }
    }
    uint32_t at = p->bytes.n;
    for (const char *c = text;; c++) {
        *TW_VEC_PUSH(p->mem, p->bytes) = *c;
        if (!*c) {
            break;
        }
    }
    p->slots.items[i] = at;
    p->n_strings++;
    return at;
}

void tw_builder_init(struct tw_builder *u, struct tw_cmem *mem, struct tw_strpool *strings,
                     const struct tw_target *t, const char *name, uint32_t rows) {
    *u = (struct tw_builder){
        .mem = mem, .strings = strings, .name = name, .repeat = 1, .rows = rows, .target = t};
    u->n_sites = tw_target_sites(t);
    u->code = tw_cmem_alloc(mem, (size_t)u->n_sites * TW_ENGINE_COUNT * sizeof *u->code);
    tw_strpool_add(strings, name);
}

void tw_builder_emit(struct tw_builder *u, uint32_t site, enum tw_engine engine, struct tw_op *op) {
    uint32_t words[TW_MAX_OP_WORDS];
    uint32_t n = tw_op_encode(op, words);
    for (uint32_t i = 0; i < n; i++) {
        *TW_VEC_PUSH(u->mem, u->code[site * TW_ENGINE_COUNT + engine]) = words[i];
    }
}

uint32_t tw_builder_tensor(struct tw_builder *u, const char *name) {
    uint32_t at = tw_strpool_add(u->strings, name);
    for (uint32_t i = 0; i < u->tensors.n; i++) {
        if (u->tensors.items[i].name == at) {
            return i;
        }
    }
    return TW_NONE;
}

uint32_t tw_builder_add_tensor(struct tw_builder *u, const char *name,
                               const struct tw_tensor *record, uint32_t value) {
    struct tw_tensor *t = TW_VEC_PUSH(u->mem, u->tensors);
    *t = *record;
    t->name = tw_strpool_add(u->strings, name);
    *TW_VEC_PUSH(u->mem, u->tensor_value) = value;
    return u->tensors.n - 1;
}

uint32_t tw_builder_trip(struct tw_builder *u, const char *name, const char *input, uint32_t div,
                         uint32_t max) {
    return tw_builder_row_trip(u, name, input, 1, 0, div, max);
}

uint32_t tw_builder_row_trip(struct tw_builder *u, const char *name, const char *input,
                             uint32_t rows, uint32_t element, uint32_t div, uint32_t max) {
    uint32_t at = tw_strpool_add(u->strings, name);
    for (uint32_t i = 0; i < u->trips.n; i++) {
        if (u->trips.items[i].name == at) {
            return i;
        }
    }
    uint32_t tensor = tw_builder_tensor(u, input);
    if (tensor == TW_NONE) {
        struct tw_tensor t = {.rows = rows,
                              .cols = 1,
                              .dtype = TW_DT_I32,
                              .role = TW_ROLE_INPUT,
                              .bind_count = 1,
                              .bytes = (uint64_t)rows * 4};
        tensor = tw_builder_add_tensor(u, input, &t, TW_NONE);
    }
    struct tw_trip *trip = TW_VEC_PUSH(u->mem, u->trips);
    *trip =
        (struct tw_trip){.name = at, .input = tensor, .element = element, .div = div, .max = max};
    return u->trips.n - 1;
}

uint32_t tw_builder_all_sites(struct tw_builder *u) {
    uint32_t chips = u->target->n_chips;
    /* all chips, then each of several */
    for (uint32_t i = u->groups.n; i < (chips > 1 ? 1 + chips : 1); i++) {
        struct tw_group *g = TW_VEC_PUSH(u->mem, u->groups);
        *g = (struct tw_group){.chip = (uint16_t)(i ? i - 1 : 0),
                               .x1 = (uint16_t)u->target->width,
                               .y1 = (uint16_t)u->target->height,
                               .chips = (uint16_t)(i ? 1 : chips)};
    }
    return 0;
}

uint32_t tw_builder_chip_sites(struct tw_builder *u, uint32_t chip) {
    uint32_t all = tw_builder_all_sites(u);
    return u->target->n_chips > 1 ? all + 1 + chip : all;
}

uint32_t tw_builder_semaphore(struct tw_builder *u, const char *name, enum tw_sem_role role) {
    struct tw_semaphore *s = TW_VEC_PUSH(u->mem, u->semaphores);
    *s = (struct tw_semaphore){tw_strpool_add(u->strings, name), tw_builder_all_sites(u), role, 0};
    return u->semaphores.n - 1;
}

struct tw_affine tw_builder_threshold(const struct tw_builder *u, uint32_t count) {
    struct tw_affine a = tw_affine_const(count);
    if (u->repeat > 1) {
        a = tw_affine_plus(a, TW_VAR_INSTANCE, count);
    }
    return tw_affine_plus(a, TW_VAR_EPOCH, (uint64_t)count * u->repeat);
}

struct tw_program tw_builder_program(struct tw_builder *u) {
    uint32_t n = u->n_sites * TW_ENGINE_COUNT;
    struct tw_stream *streams = tw_cmem_alloc(u->mem, n * sizeof *streams);
    for (uint32_t i = 0; i < n; i++) {
        streams[i] = (struct tw_stream){i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT, u->code[i].items,
                                        u->code[i].n};
    }
    return (struct tw_program){
        .name = u->name,
        .strings = u->strings->bytes.items,
        .strings_bytes = u->strings->bytes.n,
        .rows = u->rows,
        .n_sites = u->n_sites,
        .mesh_width = u->target->width,
        .mesh_height = u->target->height,
        .n_chips = u->target->n_chips,
        .sram_bytes = {u->target->class_bytes[0], u->target->class_bytes[1],
                       u->target->class_bytes[2], u->target->class_bytes[3]},
        .n_tensors = u->tensors.n,
        .n_buffers = u->buffers.n,
        .n_semaphores = u->semaphores.n,
        .n_groups = u->groups.n,
        .n_trips = u->trips.n,
        .n_stages = u->stages.n,
        .n_sections = u->sections.n,
        .tensors = u->tensors.items,
        .buffers = u->buffers.items,
        .semaphores = u->semaphores.items,
        .groups = u->groups.items,
        .trips = u->trips.items,
        .stages = u->stages.items,
        .sections = u->sections.items,
        .streams = streams,
    };
}
