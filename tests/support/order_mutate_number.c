/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of mutants (order_mutate_number.h).
 */
#include "tests/support/order_mutate_number.h"

#include "tests/support/random_model.h"

#include <stdio.h>

uint64_t order_tweak(uint64_t v, uint64_t *seed) {
    static const int64_t near[] = {1,  -1,  1,  -1,  2,   -2,   4,   -4,
                                   64, -64, 32, -32, 128, -128, 256, -256};
    uint32_t r = random_below(seed, 24);
    switch (r) {
    case 16:
        return v * 2;
    case 17:
        return v / 2;
    case 18:
        return 0;
    case 19:
        return v ^ 1ull << random_below(seed, 12);
    case 20:
        return v ^ 1ull << random_below(seed, 32);
    case 21:
        return TW_NONE;
    case 22:
        return (v + 64) / 64 * 64;
    case 23:
        return random_below(seed, 16);
    default:
        return v + (uint64_t)near[r];
    }
}

/* Another id of a table, or one just outside. */
static uint32_t other(uint32_t id, uint32_t n, uint64_t *seed) {
    switch (random_below(seed, 4)) {
    case 0:
        return id + 1;
    case 1:
        return id - 1;
    default:
        return random_below(seed, n + 1);
    }
}

/* ---- ops ---- */

static void alter_affine(struct tw_affine *a, uint64_t *seed) {
    uint32_t r = random_below(seed, a->n_terms ? 6 : 3);
    uint32_t i = a->n_terms ? random_below(seed, a->n_terms) : 0;
    switch (r) {
    case 0:
    case 1:
        a->base = order_tweak(a->base, seed);
        break;
    case 2:
        *a = tw_affine_plus(*a, random_below(seed, 4), order_tweak(a->base, seed));
        break;
    case 3:
        a->term[i].step = order_tweak(a->term[i].step, seed);
        break;
    case 4:
        a->term[i].var = random_below(seed, 4);
        break;
    default:
        a->term[i] = a->term[--a->n_terms];
        break;
    }
}

static void alter_region(struct tw_operand *o, uint32_t n_ids, uint64_t *seed) {
    if (random_below(seed, 3) == 0) {
        o->id = other(o->id, n_ids, seed);
    } else {
        alter_affine(o->instance.n_terms && random_below(seed, 2) ? &o->instance : &o->offset,
                     seed);
    }
}

/* A region of a tensor, in a page or not. */
static void alter_tensor_region(const struct tw_program *p, struct tw_operand *o, uint64_t *seed) {
    uint32_t r = random_below(seed, o->paged ? 4 : 12);
    if (r == 0) {
        o->paged = !o->paged;
        o->table = o->paged ? random_below(seed, p->n_tensors + 1) : TW_NONE;
    } else if (r == 1 && o->paged) {
        o->table = other(o->table, p->n_tensors, seed);
    } else if (r == 2 && o->paged) {
        alter_affine(&o->element, seed);
    } else {
        alter_region(o, p->n_tensors, seed);
    }
}

static void alter_count(const struct tw_program *p, struct tw_operand *o, uint64_t *seed) {
    uint32_t r = random_below(seed, 3);
    if (r == 0) {
        o->id = random_below(seed, 2) ? TW_NONE : random_below(seed, p->n_trips + 1);
    } else {
        o->max = (uint32_t)order_tweak(o->max, seed);
    }
}

static void alter_operand(const struct tw_program *p, struct tw_operand *o, uint64_t *seed) {
    switch (o->kind) {
    case 'R':
    case 'W':
    case 'M':
    case 'D':
        alter_region(o, p->n_buffers, seed);
        break;
    case 'T':
    case 'U':
        alter_tensor_region(p, o, seed);
        break;
    case 'F':
        o->id = other(o->id, p->n_buffers, seed);
        break;
    case 'S':
        o->id = other(o->id, p->n_semaphores, seed);
        break;
    case 'G':
        o->id = other(o->id, p->n_groups, seed);
        break;
    case 'C':
        o->id = random_below(seed, p->n_sites + 1);
        break;
    case 'X':
        alter_count(p, o, seed);
        break;
    case 'A':
        alter_affine(&o->offset, seed);
        break;
    case 'V':
        o->id = 1 + random_below(seed, TW_MAX_VARS - 1);
        break;
    default: /* I E */
        o->id = (uint32_t)order_tweak(o->id, seed);
        break;
    }
}

void order_alter_op(const struct tw_program *p, uint32_t stream, struct tw_op *op, uint64_t *seed,
                    char *what, size_t size) {
    /* another stage: of the same engine, mostly */
    if (op->n_operands == 0 || random_below(seed, 16) == 0) {
        uint32_t stage = random_below(seed, p->n_stages + 1);
        for (uint32_t i = 0; i < p->n_stages && random_below(seed, 8); i++) {
            stage = (stage + 1) % (p->n_stages + 1);
            if (stage < p->n_stages && p->stages[stage].site == stream / TW_ENGINE_COUNT &&
                p->stages[stage].engine == stream % TW_ENGINE_COUNT) {
                break;
            }
        }
        snprintf(what, size, "stage %u -> %u", op->stage, stage);
        op->stage = stage;
        return;
    }
    uint32_t n = random_below(seed, op->n_operands);
    struct tw_operand *o = &op->operand[n], before = *o;
    for (uint32_t tries = 0; tries < 8 && memcmp(o, &before, sizeof before) == 0; tries++) {
        alter_operand(p, o, seed);
    }
    snprintf(what, size, "operand %u %c id %u->%u max %u->%u base %llu->%llu terms %u->%u", n,
             o->kind, before.id, o->id, before.max, o->max, (unsigned long long)before.offset.base,
             (unsigned long long)o->offset.base, before.offset.n_terms, o->offset.n_terms);
}

/* ---- records ---- */

const void *order_record_table(const struct tw_program *p, enum order_record record,
                               size_t *bytes) {
    switch (record) {
    case ORDER_REC_BUFFER:
        *bytes = p->n_buffers * sizeof *p->buffers;
        return p->buffers;
    case ORDER_REC_SEMAPHORE:
        *bytes = p->n_semaphores * sizeof *p->semaphores;
        return p->semaphores;
    case ORDER_REC_TRIP:
        *bytes = p->n_trips * sizeof *p->trips;
        return p->trips;
    case ORDER_REC_SPAN:
        *bytes = p->n_sections * sizeof *p->sections;
        return p->sections;
    case ORDER_REC_GROUP:
        *bytes = p->n_groups * sizeof *p->groups;
        return p->groups;
    case ORDER_REC_TENSOR:
        *bytes = p->n_tensors * sizeof *p->tensors;
        return p->tensors;
    case ORDER_REC_STAGE:
        *bytes = p->n_stages * sizeof *p->stages;
        return p->stages;
    case ORDER_REC_SHAPE:
    case ORDER_N_RECORDS:
        break;
    }
    *bytes = 0;
    return NULL;
}

static void alter_buffer(const struct tw_program *p, struct tw_buffer *b, uint64_t *seed) {
    switch (random_below(seed, 17)) {
    case 0:
    case 1:
        b->offset = order_tweak(b->offset, seed);
        break;
    case 2:
    case 3:
        b->offset += (1 + random_below(seed, 8)) * 64;
        break;
    case 4:
    case 5:
        b->offset -= (1 + random_below(seed, 8)) * 64;
        break;
    case 6:
    case 7:
        b->offset = p->buffers[random_below(seed, p->n_buffers)].offset;
        break;
    case 8:
        b->page_bytes = order_tweak(b->page_bytes, seed);
        break;
    case 9:
        b->pages = (uint32_t)order_tweak(b->pages, seed);
        break;
    case 10:
        b->kind = (uint8_t)random_below(seed, 4);
        break;
    case 11:
        b->dtype = (uint8_t)random_below(seed, TW_DT_COUNT + 1);
        break;
    case 12:
        *(random_below(seed, 2) ? &b->producer : &b->consumer) = (uint8_t)random_below(seed, 4);
        break;
    case 13:
        b->sibling_base =
            random_below(seed, 2) ? TW_NONE : other(b->sibling_base, p->n_buffers, seed);
        break;
    case 15:
        b->group = (uint16_t)other(b->group, p->n_groups, seed);
        break;
    case 14:
        b->tensor = b->tensor == TW_NONE || random_below(seed, 2)
                        ? random_below(seed, p->n_tensors + 1)
                        : TW_NONE;
        break;
    default:
        b->site = random_below(seed, p->n_sites + 1);
        break;
    }
}

/* Siblings must agree, so in two cases of three all of a set get the same change. */
static void alter_buffers(struct tw_program *p, struct tw_buffer *copy, uint64_t *seed, char *what,
                          size_t size) {
    uint32_t n = random_below(seed, p->n_buffers), base = copy[n].sibling_base;
    uint64_t same = random_next(seed);
    struct tw_buffer before = copy[n];
    if (base != TW_NONE && random_below(seed, 3)) {
        for (uint32_t i = base; i < p->n_buffers && copy[i].sibling_base == base; i++) {
            uint64_t again = same;
            alter_buffer(p, &copy[i], &again);
        }
    } else {
        alter_buffer(p, &copy[n], &same);
    }
    p->buffers = copy;
    snprintf(what, size,
             "buffer %u offset %llu->%llu page %llu->%llu pages %u->%u kind %u->%u siblings %d->%d "
             "of %d->%d",
             n, (unsigned long long)before.offset, (unsigned long long)copy[n].offset,
             (unsigned long long)before.page_bytes, (unsigned long long)copy[n].page_bytes,
             before.pages, copy[n].pages, before.kind, copy[n].kind, (int)before.sibling_base,
             (int)copy[n].sibling_base, (int)before.tensor, (int)copy[n].tensor);
}

/* Any word of a record of words. */
static void alter_word(uint32_t *words, uint32_t n_records, uint32_t words_each, uint64_t *seed,
                       const char *name, char *what, size_t size) {
    uint32_t n = random_below(seed, n_records), k = random_below(seed, words_each);
    uint32_t *w = &words[n * words_each + k], before = *w;
    *w = (uint32_t)order_tweak(*w, seed);
    snprintf(what, size, "%s %u word %u %u->%u", name, n, k, before, *w);
}

/* Half of the time a border between two sections moves, for one kind of id, so that they still
 * partition the ids. */
static void alter_span(struct tw_program *p, struct tw_section *copy, uint64_t *seed, char *what,
                       size_t size) {
    p->sections = copy;
    if (p->n_sections < 2 || random_below(seed, 2)) {
        alter_word((uint32_t *)(void *)copy, p->n_sections, sizeof *copy / 4, seed, "span", what,
                   size);
        return;
    }
    struct tw_section *a = &copy[random_below(seed, p->n_sections - 1)], *b = a + 1;
    uint32_t by = 1 + random_below(seed, 4), which = random_below(seed, 3);
    uint32_t *n_a = which == 0 ? &a->n_buffers : which == 1 ? &a->n_semaphores : &a->n_stages;
    uint32_t *n_b = which == 0 ? &b->n_buffers : which == 1 ? &b->n_semaphores : &b->n_stages;
    uint32_t *first = which == 0   ? &b->first_buffer
                      : which == 1 ? &b->first_semaphore
                                   : &b->first_stage;
    by = random_below(seed, 2) ? by : 0 - by;
    *n_a += by;
    *n_b -= by;
    *first += by;
    snprintf(what, size, "border of spans %d and next, kind %u, by %d", (int)(a - copy), which,
             (int)by);
}

static void alter_tensor(struct tw_program *p, struct tw_tensor *copy, uint64_t *seed, char *what,
                         size_t size) {
    uint32_t n = random_below(seed, p->n_tensors), r = random_below(seed, 8);
    struct tw_tensor *t = &copy[n];
    p->tensors = copy;
    switch (r) {
    case 0:
        t->role = (uint8_t)random_below(seed, TW_ROLE_COUNT + 1);
        break;
    case 1:
        t->init = (uint8_t)random_below(seed, 4);
        break;
    case 2:
        t->dtype = (uint8_t)random_below(seed, TW_DT_COUNT + 1);
        break;
    case 3:
        t->rows = (uint32_t)order_tweak(t->rows, seed);
        break;
    case 4:
        t->cols = (uint32_t)order_tweak(t->cols, seed);
        break;
    case 5:
        t->bytes = order_tweak(t->bytes, seed);
        break;
    case 6:
        t->bind_count = t->bind_count ? random_below(seed, t->bind_count + 1) : 1;
        break;
    default:
        t->packing = (uint8_t)random_below(seed, TW_PACK_COUNT + 1);
        break;
    }
    snprintf(what, size, "tensor %u field %u", n, r);
}

static void alter_stage(struct tw_program *p, struct tw_stage *copy, uint64_t *seed, char *what,
                        size_t size) {
    uint32_t n = random_below(seed, p->n_stages), r = random_below(seed, 4);
    struct tw_stage *s = &copy[n];
    p->stages = copy;
    switch (r) {
    case 0:
        s->site = random_below(seed, p->n_sites + 1);
        break;
    case 1:
        s->engine = random_below(seed, 4);
        break;
    default:
        s->section = other(s->section, p->n_sections, seed);
        break;
    }
    snprintf(what, size, "stage %u field %u", n, r);
}

static void alter_group(struct tw_program *p, struct tw_group *copy, uint64_t *seed, char *what,
                        size_t size) {
    uint32_t n = random_below(seed, p->n_groups), r = random_below(seed, 6);
    struct tw_group *g = &copy[n];
    uint16_t *const field[] = {&g->x0, &g->x1, &g->y0, &g->y1, &g->chip, &g->chips};
    *field[r] = (uint16_t)(*field[r] + (random_below(seed, 2) ? 1 : -1));
    p->groups = copy;
    snprintf(what, size, "group %u field %u", n, r);
}

static void alter_shape(struct tw_program *p, uint64_t *seed, char *what, size_t size) {
    uint32_t r = random_below(seed, 4), c = random_below(seed, TW_MEM_CLASSES);
    switch (r) {
    case 0:
        p->sram_bytes[c] = order_tweak(p->sram_bytes[c], seed);
        break;
    case 1:
        p->rows = (uint32_t)order_tweak(p->rows, seed);
        break;
    case 2:
        p->mesh_width *= 2;
        p->mesh_height /= 2;
        break;
    default:
        p->mesh_height *= 2;
        p->mesh_width /= 2;
        break;
    }
    snprintf(what, size, "shape, field %u", r);
}

void order_alter_record(struct tw_program *p, enum order_record record, void *copy, uint64_t *seed,
                        char *what, size_t size) {
    switch (record) {
    case ORDER_REC_BUFFER:
        alter_buffers(p, copy, seed, what, size);
        break;
    case ORDER_REC_SEMAPHORE:
        alter_word(copy, p->n_semaphores, sizeof *p->semaphores / 4, seed, "semaphore", what, size);
        p->semaphores = copy;
        break;
    case ORDER_REC_TRIP:
        alter_word(copy, p->n_trips, sizeof *p->trips / 4, seed, "trip", what, size);
        p->trips = copy;
        break;
    case ORDER_REC_SPAN:
        alter_span(p, copy, seed, what, size);
        break;
    case ORDER_REC_GROUP:
        alter_group(p, copy, seed, what, size);
        break;
    case ORDER_REC_TENSOR:
        alter_tensor(p, copy, seed, what, size);
        break;
    case ORDER_REC_STAGE:
        alter_stage(p, copy, seed, what, size);
        break;
    case ORDER_REC_SHAPE:
    case ORDER_N_RECORDS:
        alter_shape(p, seed, what, size);
        break;
    }
}
