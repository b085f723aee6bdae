/* SPDX-License-Identifier: Apache-2.0
 *
 * Composition, one phase after the other: map each section's ids to the program's, copy its
 * records, rewrite its ops through the op table, then close the phase. The tensors have been
 * unified before (unify.c) and the bytes placed (residency.c).
 */
#include "compiler/spatial/compose.h"

#include "compiler/spatial/phases.h"
#include "compiler/spatial/residency.h"
#include "loader/base/assert.h"
#include "loader/verify/verify.h"

#include <string.h>

/* Capacities of the machine's tables (rules 1 and 14 of the verifier). */
#define MAX_INCREMENTS 0x7FFFFFFFu
#define MAX_WORDS (1u << 24)
#define MAX_GROUPS 0x10000u

struct composer {
    struct tw_composition c; /* with all sections of a phase repeated equally often */
    struct tw_builder *out;
    struct tw_unified unified;
    struct tw_residency residency;
    /* by tensor, then site: 1 + the buffer that holds it since an earlier phase, 0 if none does;
     * NULL if no site holds it */
    uint32_t **held;
    uint32_t next_loop;
    tw_error *err;
};

struct join {
    struct composer *k;
    struct tw_builder *out;
    const struct tw_builder *section;
    const uint32_t *tensor_map;
    uint32_t *buffer_map, *group_map, *trip_map;
    uint32_t first_semaphore, first_stage, loop_shift;
    uint64_t base; /* offset of private memory */
};

static const char *string(const struct tw_builder *u, uint32_t at) {
    return u->strings->bytes.items + at;
}

/* ---- checks of the input ---- */

static uint64_t code_words(const struct tw_builder *s) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_sites * TW_ENGINE_COUNT; i++) {
        n += s->code[i].n;
    }
    return n;
}

/* Refuses a program that spans chips without links between them. */
static int check_links(const struct composer *k, const struct tw_target *t) {
    if (t->n_chips == 1 || tw_target_has_links(t)) {
        return 0;
    }
    return tw_refuse(
        k->err, TW_REFUSE_no_chip_links,
        "program %s spans the %u chips of target %s, which has no links between them (keys "
        "\"chip_link_bytes_per_cycle\" and \"chip_link_cycles\")",
        k->c.name, t->n_chips, t->name);
}

static int check_section(const struct composer *k, uint32_t i) {
    const struct tw_builder *a = k->c.sections[0], *s = k->c.sections[i];
    const struct tw_target *t = a->target, *o = s->target;
    if (t->width != o->width || t->height != o->height || t->n_chips != o->n_chips ||
        a->rows != s->rows || memcmp(t->class_bytes, o->class_bytes, sizeof t->class_bytes) != 0 ||
        memcmp(t->hash, o->hash, sizeof t->hash) != 0 || a->strings != s->strings) {
        return tw_refuse(k->err, TW_REFUSE_target_mismatch,
                         "section %s is for %u rows on target %s with %u x %u sites on %u chips, "
                         "but section %s is for %u rows on %s with %u x %u sites on %u chips%s",
                         s->name, s->rows, o->name, o->width, o->height, o->n_chips, a->name,
                         a->rows, t->name, t->width, t->height, t->n_chips,
                         a->strings == s->strings ? "" : ", and they use different string pools");
    }
    if (k->c.phases && i > 0 && k->c.phases[i] < k->c.phases[i - 1]) {
        return tw_refuse(k->err, TW_REFUSE_not_scheduled,
                         "section %s of phase %u comes after a section of phase %u", s->name,
                         k->c.phases[i], k->c.phases[i - 1]);
    }
    if (code_words(s) == 0 || s->repeat == 0) {
        return tw_refuse(k->err, TW_REFUSE_not_scheduled, "section %s has no code", s->name);
    }
    return 0;
}

/* ---- records ---- */

static const char *clamped(const struct tw_trip *t) {
    return t->clamp ? " (clamped)" : "";
}

static int map_trips(struct join *j) {
    const struct tw_builder *s = j->section;
    struct tw_builder *o = j->out;
    j->trip_map = tw_cmem_alloc(o->mem, (s->trips.n + 1) * sizeof *j->trip_map);
    for (uint32_t i = 0; i < s->trips.n; i++) {
        struct tw_trip t = s->trips.items[i];
        uint32_t id = 0;
        TW_ASSERT(t.input < s->tensors.n && j->tensor_map[t.input] < o->tensors.n);
        t.input = j->tensor_map[t.input];
        while (id < o->trips.n && o->trips.items[id].name != t.name) {
            id++;
        }
        if (id == o->trips.n) {
            *TW_VEC_PUSH(o->mem, o->trips) = t;
        } else if (memcmp(&o->trips.items[id], &t, sizeof t) != 0) {
            return tw_refuse(j->k->err, TW_REFUSE_shape_conflict,
                             "trip %s of section %s is (tensor %u[%u] + %d) / %u, max %u%s, but an "
                             "earlier section has (tensor %u[%u] + %d) / %u, max %u%s",
                             string(s, t.name), s->name, t.input, t.element, t.add, t.div, t.max,
                             clamped(&t), o->trips.items[id].input, o->trips.items[id].element,
                             o->trips.items[id].add, o->trips.items[id].div, o->trips.items[id].max,
                             clamped(&o->trips.items[id]));
        }
        j->trip_map[i] = id;
    }
    return 0;
}

static void map_groups(struct join *j) {
    const struct tw_builder *s = j->section;
    struct tw_builder *o = j->out;
    j->group_map = tw_cmem_alloc(o->mem, (s->groups.n + 1) * sizeof *j->group_map);
    for (uint32_t i = 0; i < s->groups.n; i++) {
        uint32_t id = 0;
        while (id < o->groups.n &&
               memcmp(&o->groups.items[id], &s->groups.items[i], sizeof *s->groups.items) != 0) {
            id++;
        }
        if (id == o->groups.n) {
            *TW_VEC_PUSH(o->mem, o->groups) = s->groups.items[i];
        }
        j->group_map[i] = id;
    }
}

/* Returns the program's buffer that holds an activation (or a pinned Param) on a site, or
 * TW_NONE. */
static uint32_t find_activation(const struct composer *k, uint32_t tensor, uint32_t site) {
    TW_ASSERT(tensor == TW_NONE || tensor < k->unified.tensors.n);
    TW_ASSERT(site < k->out->n_sites);
    const uint32_t *held = tensor == TW_NONE ? NULL : k->held[tensor];
    return held && held[site] ? held[site] - 1 : TW_NONE;
}

/* Records the buffer of a tensor on a site; the first one counts. */
static void record_activation(struct composer *k, uint32_t tensor, uint32_t site, uint32_t buffer) {
    if (tensor == TW_NONE) {
        return;
    }
    if (!k->held[tensor]) {
        k->held[tensor] = tw_cmem_alloc(k->out->mem, k->out->n_sites * sizeof **k->held);
    }
    TW_ASSERT(tensor < k->unified.tensors.n && site < k->out->n_sites);
    if (!k->held[tensor][site]) {
        k->held[tensor][site] = buffer + 1;
    }
}

static bool is_same_set(const struct join *j, const struct tw_buffer *known,
                        const struct tw_buffer *b) {
    return b->sibling_base == TW_NONE
               ? known->sibling_base == TW_NONE
               : known->sibling_base != TW_NONE && known->group == j->group_map[b->group];
}

static bool same_window(const struct tw_buffer *a, const struct tw_buffer *b) {
    return a->window_first == b->window_first && a->window_stride == b->window_stride &&
           a->window_rows == b->window_rows && a->window_row_bytes == b->window_row_bytes;
}

static int check_same_buffer(struct join *j, const struct tw_buffer *known,
                             const struct tw_buffer *b) {
    if (!is_same_set(j, known, b)) {
        return tw_refuse(j->k->err, TW_REFUSE_shape_conflict,
                         "activation %s: section %s and an earlier section have it on different "
                         "sites besides site %u",
                         string(j->section, b->name), j->section->name, b->site);
    }
    if (known->page_bytes == b->page_bytes && known->pages == b->pages && known->kind == b->kind &&
        known->dtype == b->dtype && known->mem_class == b->mem_class && same_window(known, b)) {
        return 0;
    }
    return tw_refuse(j->k->err, TW_REFUSE_shape_conflict,
                     "activation %s: section %s has %u pages of %llu bytes, %s, on site %u, but an "
                     "earlier section has %u pages of %llu bytes, %s",
                     string(j->section, b->name), j->section->name, b->pages,
                     (unsigned long long)b->page_bytes, tw_dtype_name(b->dtype), b->site,
                     known->pages, (unsigned long long)known->page_bytes,
                     tw_dtype_name(known->dtype));
}

/* Maps buffers: an activation that an earlier section introduced stays in that section's buffers,
 * all others are new. Siblings are adjacent and are found or created together, so their base maps
 * like any other buffer. */
static int append_buffers(struct join *j) {
    const struct tw_builder *s = j->section;
    struct tw_builder *o = j->out;
    uint32_t known = o->buffers.n;
    j->buffer_map = tw_cmem_alloc(o->mem, (s->buffers.n + 1) * sizeof *j->buffer_map);
    for (uint32_t i = 0; i < s->buffers.n; i++) {
        const struct tw_buffer *from = &s->buffers.items[i];
        uint32_t tensor = from->tensor == TW_NONE ? TW_NONE : j->tensor_map[from->tensor];
        uint32_t found = find_activation(j->k, tensor, from->site);
        j->buffer_map[i] = found;
        if (found != TW_NONE && found < known) {
            int rc = check_same_buffer(j, &o->buffers.items[found], from);
            if (rc) {
                return rc;
            }
            continue;
        }
        j->buffer_map[i] = o->buffers.n;
        record_activation(j->k, tensor, from->site, o->buffers.n);
        struct tw_buffer *b = TW_VEC_PUSH(o->mem, o->buffers);
        *b = *from;
        TW_ASSERT(tensor == TW_NONE || j->k->residency.offset[tensor] != UINT64_MAX);
        b->tensor = tensor;
        b->offset = tensor == TW_NONE ? from->offset + j->base : j->k->residency.offset[tensor];
        if (from->sibling_base != TW_NONE) {
            TW_ASSERT(from->sibling_base <= i && from->group < s->groups.n);
            b->sibling_base = j->buffer_map[from->sibling_base];
            TW_ASSERT(b->sibling_base <= j->buffer_map[i]);
            b->group = (uint16_t)j->group_map[from->group];
        }
    }
    return 0;
}

static void append_records(struct join *j, uint32_t phase) {
    const struct tw_builder *s = j->section;
    struct tw_builder *o = j->out;
    for (uint32_t i = 0; i < s->semaphores.n; i++) {
        struct tw_semaphore *sem = TW_VEC_PUSH(o->mem, o->semaphores);
        *sem = s->semaphores.items[i];
        TW_ASSERT(sem->group < s->groups.n);
        sem->group = j->group_map[sem->group];
    }
    for (uint32_t i = 0; i < s->stages.n; i++) {
        struct tw_stage *stage = TW_VEC_PUSH(o->mem, o->stages);
        *stage = s->stages.items[i];
        stage->section = phase;
    }
}

/* Loop ids ascend along each stream. A section whose ids are above those used so far keeps its
 * own. */
static void shift_loops(struct join *j) {
    uint32_t first, last;
    if (tw_builder_loop_ids(j->section, &first, &last)) {
        j->loop_shift = first < j->k->next_loop ? j->k->next_loop - first : 0;
        TW_ASSERT(first <= last && first + j->loop_shift >= j->k->next_loop);
        j->k->next_loop = last + j->loop_shift + 1;
    }
}

/* Appends everything of a section except its code. */
static int append_tables(struct join *j, uint32_t phase) {
    j->first_semaphore = j->out->semaphores.n;
    j->first_stage = j->out->stages.n;
    map_groups(j);
    shift_loops(j);
    int rc = map_trips(j);
    rc = rc ? rc : append_buffers(j);
    if (rc == 0) {
        append_records(j, phase);
    }
    return rc;
}

/* ---- code ---- */

/* Maps the id of an operand to the program's id; TW_NONE if it is outside its table. */
static uint32_t mapped_id(const struct join *j, const struct tw_operand *o) {
    const struct tw_builder *s = j->section;
    switch (o->kind) {
    case 'R':
    case 'W':
    case 'M':
    case 'D':
    case 'F':
        return o->id < s->buffers.n ? j->buffer_map[o->id] : TW_NONE;
    case 'T':
    case 'U':
        return o->id < s->tensors.n ? j->tensor_map[o->id] : TW_NONE;
    case 'S':
        return o->id < s->semaphores.n ? o->id + j->first_semaphore : TW_NONE;
    case 'G':
        return o->id < s->groups.n ? j->group_map[o->id] : TW_NONE;
    case 'X':
        return o->id < s->trips.n ? j->trip_map[o->id] : TW_NONE; /* TW_NONE: a constant */
    default: /* site ids do not change; the rest are numbers */
        return o->id;
    }
}

static void shift_op(const struct join *j, struct tw_op *op) {
    for (uint32_t i = 0; i < op->n_operands; i++) {
        struct tw_operand *o = &op->operand[i];
        o->id = mapped_id(j, o);
        if (o->paged) {
            o->table = o->table < j->section->tensors.n ? j->tensor_map[o->table] : TW_NONE;
            o->paged = o->table != TW_NONE;
        }
    }
    if (op->code == TW_OP_LOOP && op->operand[TW_LOOP_id].id != TW_NONE) {
        op->operand[TW_LOOP_id].id += j->loop_shift;
    }
    op->stage += j->first_stage;
}

static void append_code(const struct join *j, uint32_t stream) {
    const uint32_t *words = j->section->code[stream].items;
    uint32_t n = j->section->code[stream].n, n_words;
    struct tw_op op;
    for (uint32_t at = 0; at < n; at += n_words) {
        bool decodes = tw_op_decode(words, n, at, &op);
        TW_ASSERT(decodes); /* tw_unify() has already decoded it */
        n_words = op.n_words;
        TW_ASSERT(n_words > 0 && n_words <= n - at);
        shift_op(j, &op);
        tw_builder_emit(j->out, stream / TW_ENGINE_COUNT,
                        (enum tw_engine)(stream % TW_ENGINE_COUNT), &op);
    }
}

/* Emits the closing rendezvous: the engines of a site arrive on the site's own word, its MATH
 * engine then arrives once at the root, and the root's MATH engine releases every site. Linear in
 * sites. */
static void emit_rendezvous(struct tw_builder *u, const struct tw_section *phase, uint32_t site,
                            uint32_t engine, uint32_t stage) {
    const enum tw_engine e = (enum tw_engine)engine;
    const uint32_t root = 0;
    tw_builder_sem_inc(u, site, e, stage, phase->local, site, 1);
    if (e == TW_ENGINE_MATH) {
        tw_builder_sem_wait(u, site, e, stage, phase->local,
                            tw_builder_threshold(u, TW_ENGINE_COUNT));
        tw_builder_sem_inc(u, site, e, stage, phase->gather, root, 1);
        if (site == root) {
            tw_builder_sem_wait(u, site, e, stage, phase->gather,
                                tw_builder_threshold(u, u->n_sites));
            for (uint32_t s = 0; s < u->n_sites; s++) {
                tw_builder_sem_inc(u, site, e, stage, phase->release, s, 1);
            }
        }
    }
    tw_builder_sem_wait(u, site, e, stage, phase->release, tw_builder_threshold(u, 1));
}

/* ---- phases ---- */

/* Returns "a", or "a+b" for several sections. */
static const char *phase_name(const struct composer *k, uint32_t first, uint32_t n) {
    const char *name = k->c.sections[first]->name;
    for (uint32_t i = 1; i < n; i++) {
        name = tw_cmem_printf(k->out->mem, "%s+%s", name, k->c.sections[first + i]->name);
    }
    return name;
}

static int check_participants(const struct composer *k, const char *name, uint32_t repeat) {
    const struct tw_builder *o = k->out;
    uint64_t arrivals = (uint64_t)o->n_sites * repeat, words = 0;
    for (uint32_t i = 0; i < o->semaphores.n; i++) {
        words += tw_group_size(&o->groups.items[o->semaphores.items[i].group]);
    }
    if (arrivals > MAX_INCREMENTS) {
        return tw_refuse(k->err, TW_REFUSE_participant_limit,
                         "program %s: %u sites arrive %u times per step at the rendezvous of %s, "
                         "%llu in all; a semaphore word can count %u",
                         k->c.name, o->n_sites, repeat, name, (unsigned long long)arrivals,
                         MAX_INCREMENTS);
    }
    if (o->groups.n > MAX_GROUPS) {
        return tw_refuse(k->err, TW_REFUSE_participant_limit,
                         "program %s: %u groups of sites up to section %s; the maximum is %u",
                         k->c.name, o->groups.n, name, MAX_GROUPS);
    }
    if (words > MAX_WORDS) {
        return tw_refuse(
            k->err, TW_REFUSE_participant_limit,
            "program %s: %u semaphores have %llu words up to section %s; the maximum is %u",
            k->c.name, o->semaphores.n, (unsigned long long)words, name, MAX_WORDS);
    }
    return 0;
}

/* Appends one engine's part of a phase: in its loop, the code of each section, then the
 * rendezvous. */
static void append_stream(const struct composer *k, const struct join *joins, uint32_t n,
                          const struct tw_section *phase, uint32_t stream, uint32_t origin) {
    struct tw_builder *o = k->out;
    uint32_t site = stream / TW_ENGINE_COUNT, engine = stream % TW_ENGINE_COUNT,
             stage = o->stages.n;
    *TW_VEC_PUSH(o->mem, o->stages) =
        (struct tw_stage){TW_STAGE_SYNC, site, engine, o->sections.n - 1, origin, 0, 0, 0};
    if (phase->repeat > 1) {
        tw_builder_loop(o, site, (enum tw_engine)engine, stage, TW_VAR_INSTANCE,
                        tw_count_const(phase->repeat), TW_NONE);
    }
    for (uint32_t i = 0; i < n; i++) {
        append_code(&joins[i], stream);
    }
    emit_rendezvous(o, phase, site, engine, stage);
    if (phase->repeat > 1) {
        tw_builder_end(o, site, (enum tw_engine)engine, stage);
    }
}

static void add_rendezvous(struct tw_builder *o, struct tw_section *phase, const char *name) {
    phase->local = tw_builder_semaphore(o, tw_cmem_printf(o->mem, "%s.local", name), TW_SEM_GATHER);
    phase->gather =
        tw_builder_semaphore(o, tw_cmem_printf(o->mem, "%s.gather", name), TW_SEM_GATHER);
    phase->release =
        tw_builder_semaphore(o, tw_cmem_printf(o->mem, "%s.release", name), TW_SEM_RELEASE);
}

static int append_phase(struct composer *k, uint32_t first, uint32_t n) {
    struct tw_builder *o = k->out;
    TW_ASSERT(n > 0 && first + n <= k->c.n);
    const char *name = phase_name(k, first, n);
    struct join *joins = tw_cmem_alloc(o->mem, n * sizeof *joins);
    uint64_t *bases = tw_cmem_alloc(o->mem, n * sizeof *bases), private_bytes;
    struct tw_section *phase = TW_VEC_PUSH(o->mem, o->sections);
    *phase = (struct tw_section){.name = tw_strpool_add(o->strings, name),
                                 .repeat = k->c.sections[first]->repeat,
                                 .first_buffer = o->buffers.n,
                                 .first_semaphore = o->semaphores.n,
                                 .first_stage = o->stages.n};
    int rc = tw_residency_phase(&k->c, &k->unified, &k->residency, first, n, bases, &private_bytes,
                                k->err);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        joins[i] = (struct join){.k = k,
                                 .out = o,
                                 .section = k->c.sections[first + i],
                                 .tensor_map = k->unified.map[first + i],
                                 .base = bases[i]};
        rc = append_tables(&joins[i], o->sections.n - 1);
    }
    if (rc) {
        return rc;
    }
    TW_ASSERT(phase == &o->sections.items[o->sections.n - 1]);
    add_rendezvous(o, phase, name);
    rc = check_participants(k, name, phase->repeat);
    o->private_bytes = private_bytes > o->private_bytes ? private_bytes : o->private_bytes;
    o->repeat = phase->repeat; /* read by tw_builder_threshold() */
    uint32_t origin = tw_strpool_add(o->strings, tw_cmem_printf(o->mem, "%s.rendezvous", name));
    for (uint32_t i = 0; i < o->n_sites * TW_ENGINE_COUNT && rc == 0; i++) {
        append_stream(k, joins, n, phase, i, origin);
    }
    phase->n_buffers = o->buffers.n - phase->first_buffer;
    phase->n_semaphores = o->semaphores.n - phase->first_semaphore;
    phase->n_stages = o->stages.n - phase->first_stage;
    return rc;
}

/* ---- the program ---- */

/* Adds the tensors, each with binding rows of its own; emission renumbers them for all programs of
 * a bundle. */
static void add_tensors(struct composer *k) {
    struct tw_builder *o = k->out;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < k->unified.tensors.n; i++) {
        const struct tw_unified_tensor *t = &k->unified.tensors.items[i];
        struct tw_tensor *tensor = TW_VEC_PUSH(o->mem, o->tensors);
        *tensor = t->record;
        tensor->bind_first = rows;
        rows += tensor->bind_count;
        *TW_VEC_PUSH(o->mem, o->tensor_value) = t->value;
        if (t->record.role == TW_ROLE_OUTPUT) {
            *TW_VEC_PUSH(o->mem, o->outputs) = i;
        }
    }
}

/* The program is exact only if every section is. */
static void join_claims(struct composer *k) {
    struct tw_builder *o = k->out;
    for (uint32_t i = 0; i < k->c.n; i++) {
        const struct tw_builder *s = k->c.sections[i];
        if (s->approx) {
            o->approx = tw_cmem_printf(o->mem, "%s%s%s: %s", o->approx ? o->approx : "",
                                       o->approx ? "; " : "", s->name, s->approx);
        }
    }
}

static int check_valid(struct composer *k) {
    struct tw_program view = tw_builder_program(k->out);
    tw_error broken = {0};
    if (k->c.part || tw_verify_program(&view, NULL, &broken) == 0) {
        return 0;
    }
    return tw_refuse(k->err, TW_REFUSE_invalid, "%s", broken.message);
}

int tw_compose_program(const struct tw_composition *c, struct tw_builder *out, tw_error *err) {
    struct composer k = {.c = *c, .out = out, .err = err};
    if (c->n == 0) {
        return tw_refuse(err, TW_REFUSE_no_sections, "program %s has no sections", c->name);
    }
    const struct tw_builder *a = c->sections[0];
    tw_builder_init(out, a->mem, a->strings, a->target, c->name, a->rows);
    tw_builder_all_sites(out);
    int rc = check_links(&k, a->target);
    for (uint32_t i = 0; i < c->n && rc == 0; i++) {
        rc = check_section(&k, i);
    }
    rc = rc ? rc : tw_phases_cut(c, &k.c, err);
    rc = rc ? rc : tw_unify(&k.c, &k.unified, err);
    if (rc) {
        return rc;
    }
    tw_residency_plan(&k.c, &k.unified, &k.residency);
    out->shared_bytes = k.residency.shared;
    add_tensors(&k);
    k.held = tw_cmem_alloc(out->mem, (k.unified.tensors.n + 1) * sizeof *k.held);
    join_claims(&k);
    for (uint32_t first = 0; first < k.c.n && rc == 0;) {
        uint32_t n = tw_phase_size(&k.c, first);
        TW_ASSERT(n > 0 && n <= k.c.n - first);
        rc = append_phase(&k, first, n);
        first += n;
    }
    return rc ? rc : check_valid(&k);
}

int tw_compose(struct tw_builder *const *sections, uint32_t n, const char *name,
               struct tw_builder *out, tw_error *err) {
    struct tw_composition c = {.name = name, .sections = sections, .n = n, .part = true};
    return tw_compose_program(&c, out, err);
}
