/* SPDX-License-Identifier: Apache-2.0
 * Composition, one section after the other: map its ids into the program's, copy its records, rewrite its ops through the op table,
 * then close it. */
#include "compiler/spatial/compose.h"

#include <string.h>

struct join {
    struct tw_unit *out;
    struct tw_unit *section;
    uint32_t *tensor_map, *buffer_map;
    uint32_t first_semaphore, first_stage, first_edge;
    uint32_t *trip_map;
    uint64_t private_base; /* activations come first in each site's SRAM */
};

static const char *string(const struct tw_unit *u, uint32_t at) {
    return u->strings->bytes.items + at;
}

/* Names unify: same shape, type, packing and role, or the sections do not belong together. */
static int unify_tensors(struct join *j, tw_error *err) {
    j->tensor_map = tw_cmem_alloc(j->out->mem, (j->section->tensors.n + 1) * sizeof *j->tensor_map);
    for (uint32_t i = 0; i < j->section->tensors.n; i++) {
        const struct tw_tensor *t = &j->section->tensors.items[i];
        const char *name = string(j->section, t->name);
        uint32_t id = tw_unit_tensor(j->out, name);
        if (id == TW_NONE) {
            id = tw_unit_add_tensor(j->out, name, t, j->section->tensor_value.items[i]);
        } else {
            const struct tw_tensor *o = &j->out->tensors.items[id];
            if (o->rows != t->rows || o->cols != t->cols || o->dtype != t->dtype || o->packing != t->packing ||
                o->role != t->role || o->bind_count != t->bind_count) {
                return tw_fail(err, TW_E_INTERNAL, "compose: tensor %s of section %s differs from an earlier section's",
                               name, j->section->name);
            }
        }
        j->tensor_map[i] = id;
    }
    j->trip_map = tw_cmem_alloc(j->out->mem, (j->section->trips.n + 1) * sizeof *j->trip_map);
    for (uint32_t i = 0; i < j->section->trips.n; i++) {
        const struct tw_trip *t = &j->section->trips.items[i];
        const char *input = string(j->section, j->section->tensors.items[t->input].name);
        j->trip_map[i] = tw_unit_trip(j->out, string(j->section, t->name), input, t->div, t->max);
    }
    return 0;
}

/* The program's buffer that holds the same activation on the same site, or TW_NONE. */
static uint32_t find_activation(const struct tw_unit *o, uint32_t tensor, uint32_t site) {
    for (uint32_t i = 0; i < o->buffers.n; i++) {
        if (o->buffers.items[i].tensor == tensor && o->buffers.items[i].site == site) {
            return i;
        }
    }
    return TW_NONE;
}

/* An activation that an earlier section brought is held in that section's buffers; all others are new. Siblings are neighbours and are
 * found or made together, so their base maps like any buffer. */
static void append_buffers(struct join *j) {
    struct tw_unit *s = j->section, *o = j->out;
    uint32_t known = o->buffers.n;
    j->buffer_map = tw_cmem_alloc(o->mem, (s->buffers.n + 1) * sizeof *j->buffer_map);
    for (uint32_t i = 0; i < s->buffers.n; i++) {
        const struct tw_buffer *from = &s->buffers.items[i];
        uint32_t tensor = from->tensor == TW_NONE ? TW_NONE : j->tensor_map[from->tensor];
        uint32_t found = tensor == TW_NONE ? TW_NONE : find_activation(o, tensor, from->site);
        j->buffer_map[i] = found;
        if (found != TW_NONE && found < known) {
            continue;
        }
        j->buffer_map[i] = o->buffers.n;
        struct tw_buffer *b = TW_VEC_PUSH(o->mem, o->buffers);
        *b = *from;
        b->tensor = tensor;
        b->offset += tensor == TW_NONE ? j->private_base : 0;
        b->sibling_base = from->sibling_base == TW_NONE ? TW_NONE : j->buffer_map[from->sibling_base];
    }
}

static void append_records(struct join *j, uint32_t span) {
    struct tw_unit *s = j->section, *o = j->out;
    for (uint32_t i = 0; i < s->semaphores.n; i++) {
        *TW_VEC_PUSH(o->mem, o->semaphores) =
            s->semaphores.items[i]; /* all over the group of all sites, number 0 in both */
    }
    for (uint32_t i = 0; i < s->stages.n; i++) {
        struct tw_stage *stage = TW_VEC_PUSH(o->mem, o->stages);
        *stage = s->stages.items[i];
        stage->section = span;
    }
    for (uint32_t i = 0; i < s->edges.n; i++) {
        struct tw_edge *e = TW_VEC_PUSH(o->mem, o->edges);
        *e = s->edges.items[i];
        e->from += j->first_stage;
        e->to += j->first_stage;
        e->buffer = j->buffer_map[e->buffer];
        e->semaphore += e->semaphore == TW_NONE ? 0 : j->first_semaphore;
    }
}

/* What an id of each operand letter becomes in the program. */
static void shift_operand(const struct join *j, struct tw_operand *o) {
    switch (o->kind) {
    case 'R':
    case 'W':
    case 'M':
    case 'F':
        o->id = j->buffer_map[o->id];
        break;
    case 'T':
    case 'U':
        o->id = j->tensor_map[o->id];
        break;
    case 'S':
        o->id += j->first_semaphore;
        break;
    case 'X':
        o->id = o->id == TW_NONE ? TW_NONE : j->trip_map[o->id];
        break;
    default: /* groups are shared; the rest are numbers */
        break;
    }
}

static int append_code(struct join *j, uint32_t stream, tw_error *err) {
    const uint32_t *words = j->section->code[stream].items;
    uint32_t n = j->section->code[stream].n;
    struct tw_op op;
    for (uint32_t at = 0; at < n; at += op.n_words) {
        if (!tw_op_decode(words, n, at, &op)) {
            return tw_fail(err, TW_E_INTERNAL, "compose: section %s stream %u word %u does not decode",
                           j->section->name, stream, at);
        }
        for (uint32_t i = 0; i < op.n_operands; i++) {
            shift_operand(j, &op.operand[i]);
        }
        op.stage += j->first_stage;
        uint32_t encoded[TW_MAX_OP_WORDS];
        uint32_t size = tw_op_encode(&op, encoded);
        for (uint32_t i = 0; i < size; i++) {
            *TW_VEC_PUSH(j->out->mem, j->out->code[stream]) = encoded[i];
        }
    }
    return 0;
}

/* The closing rendezvous: the engines of a site arrive on the site's own word, its MATH engine then arrives once at the root, and the
 * root's MATH engine releases every site. Linear in sites. */
static void emit_rendezvous(struct tw_unit *u, const struct tw_span *span, uint32_t site, uint32_t engine,
                            uint32_t stage) {
    const enum tw_engine e = (enum tw_engine)engine;
    const uint32_t root = 0;
    tw_unit_emit(u, site, e, TW_OP_SEM_INC, stage, span->local, site, 1);
    if (e == TW_ENGINE_MATH) {
        tw_unit_emit(u, site, e, TW_OP_SEM_WAIT, stage, span->local, tw_unit_threshold(u, TW_ENGINE_COUNT));
        tw_unit_emit(u, site, e, TW_OP_SEM_INC, stage, span->gather, root, 1);
        if (site == root) {
            tw_unit_emit(u, site, e, TW_OP_SEM_WAIT, stage, span->gather, tw_unit_threshold(u, u->n_sites));
            for (uint32_t s = 0; s < u->n_sites; s++) {
                tw_unit_emit(u, site, e, TW_OP_SEM_INC, stage, span->release, s, 1);
            }
        }
    }
    tw_unit_emit(u, site, e, TW_OP_SEM_WAIT, stage, span->release, tw_unit_threshold(u, 1));
}

static int append_section(struct join *j, tw_error *err) {
    struct tw_unit *s = j->section, *o = j->out;
    struct tw_span *span = TW_VEC_PUSH(o->mem, o->spans);
    uint32_t index = o->spans.n - 1;
    *span = (struct tw_span){.name = tw_strpool_add(o->strings, s->name),
                             .repeat = s->repeat,
                             .first_buffer = o->buffers.n,

                             .first_semaphore = o->semaphores.n,
                             .first_stage = o->stages.n,
                             .first_edge = o->edges.n,
                             .n_edges = s->edges.n};
    j->first_semaphore = o->semaphores.n;
    j->first_stage = o->stages.n;
    j->first_edge = o->edges.n;
    append_buffers(j);
    span->n_buffers = o->buffers.n - span->first_buffer;
    append_records(j, index);
    span->local = tw_unit_semaphore(o, tw_cmem_printf(o->mem, "%s.local", s->name), TW_SEM_GATHER);
    span->gather = tw_unit_semaphore(o, tw_cmem_printf(o->mem, "%s.gather", s->name), TW_SEM_GATHER);
    span->release = tw_unit_semaphore(o, tw_cmem_printf(o->mem, "%s.release", s->name), TW_SEM_RELEASE);
    span->n_semaphores = o->semaphores.n - span->first_semaphore;
    uint32_t origin = tw_strpool_add(o->strings, tw_cmem_printf(o->mem, "%s.rendezvous", s->name));
    o->repeat = s->repeat; /* for thresholds */
    int rc = 0;
    for (uint32_t i = 0; i < o->n_sites * TW_ENGINE_COUNT && rc == 0; i++) {
        uint32_t site = i / TW_ENGINE_COUNT, engine = i % TW_ENGINE_COUNT, stage = o->stages.n;
        *TW_VEC_PUSH(o->mem, o->stages) = (struct tw_stage){TW_STAGE_SYNC, site, engine, index, origin, 0, 0, 0};
        if (s->repeat > 1) {
            tw_unit_emit(o, site, (enum tw_engine)engine, TW_OP_LOOP, stage, TW_VAR_INSTANCE, TW_NONE, s->repeat,
                         TW_NONE);
        }
        rc = append_code(j, i, err);
        emit_rendezvous(o, span, site, engine, stage);
        if (s->repeat > 1) {
            tw_unit_emit(o, site, (enum tw_engine)engine, TW_OP_END, stage);
        }
    }
    span->n_stages = o->stages.n - span->first_stage;
    return rc;
}

/* Residency of activations: they live in SRAM across sections, below all private memory, one after the other in order of first use. */
static void place_activations(struct tw_unit *o) {
    uint64_t *offset = tw_cmem_alloc(o->mem, (o->tensors.n + 1) * sizeof *offset), end = 0;
    for (uint32_t i = 0; i < o->buffers.n; i++) {
        struct tw_buffer *b = &o->buffers.items[i];
        if (b->tensor == TW_NONE) {
            continue;
        }
        if (!offset[b->tensor]) {
            offset[b->tensor] = end + 1; /* 0 marks "none yet" */
            end += (b->pages * b->page_bytes + 63) / 64 * 64;
        }
        b->offset = offset[b->tensor] - 1;
    }
    o->shared_bytes = end;
}

static uint64_t activation_bytes(struct tw_unit *const *sections, uint32_t n) {
    uint32_t seen[64] = {0}, n_seen = 0;
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < sections[k]->buffers.n; i++) {
            const struct tw_buffer *b = &sections[k]->buffers.items[i];
            if (b->tensor == TW_NONE || b->site != 0) {
                continue;
            }
            uint32_t name = sections[k]->tensors.items[b->tensor].name, known = 0;
            for (uint32_t s = 0; s < n_seen; s++) {
                known |= seen[s] == name;
            }
            if (!known && n_seen < 64) {
                seen[n_seen++] = name;
                bytes += (b->pages * b->page_bytes + 63) / 64 * 64;
            }
        }
    }
    return bytes;
}

int tw_compose(struct tw_unit *const *sections, uint32_t n, const char *name, struct tw_unit *out, tw_error *err) {
    tw_unit_init(out, sections[0]->mem, sections[0]->strings, sections[0]->target, name, sections[0]->rows);
    tw_unit_all_sites(out);
    uint64_t shared = activation_bytes(sections, n);
    for (uint32_t k = 0; k < n; k++) {
        struct join j = {.out = out, .section = sections[k], .private_base = shared};
        if (shared + sections[k]->private_bytes > out->target->sram_bytes) {
            return tw_fail(
                err, TW_E_PLACEMENT,
                "program %s: section %s needs %llu bytes of SRAM and activations %llu; a site of target %s has %llu",
                name, sections[k]->name, (unsigned long long)sections[k]->private_bytes, (unsigned long long)shared,
                out->target->name, (unsigned long long)out->target->sram_bytes);
        }
        out->private_bytes =
            sections[k]->private_bytes > out->private_bytes ? sections[k]->private_bytes : out->private_bytes;
        int rc = unify_tensors(&j, err);
        if (rc == 0) {
            rc = append_section(&j, err);
        }
        if (rc) {
            return rc;
        }
    }
    place_activations(out);
    return 0;
}
