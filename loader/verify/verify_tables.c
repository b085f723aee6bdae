/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier's checks of the tables alone: every id inside its table, every enum known, sizes
 * that follow from shapes, buffers inside SRAM, groups on their chips, valid trips, sections that
 * partition the ids. One pass over each table.
 */
#include "loader/verify/verify_internal.h"

#include <stdlib.h>

#define CHECK(cond, rule, ...)                                 \
    do {                                                       \
        tw_vf_count(v, TW_RULE_##rule);                        \
        if (!(cond)) {                                         \
            return tw_vf_fail(v, TW_RULE_##rule, __VA_ARGS__); \
        }                                                      \
    } while (0)

static int check_name(struct tw_verifier *v, uint32_t name) {
    CHECK(name < v->program->strings_bytes, table_sizes,
          "name at offset %u of a string table of %u bytes", name, v->program->strings_bytes);
    return 0;
}

static int check_strings(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    CHECK(p->name && p->strings && p->strings_bytes > 0, table_sizes,
          "the program has no name or no string table");
    CHECK(p->strings[0] == 0 && p->strings[p->strings_bytes - 1] == 0, table_sizes,
          "the string table of %u bytes does not begin and end with a zero byte", p->strings_bytes);
    return 0;
}

static int check_mesh(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    uint64_t sites = (uint64_t)p->mesh_width * p->mesh_height;
    CHECK(p->mesh_width <= 0xFFFF && p->mesh_height <= 0xFFFF && p->n_chips >= 1 &&
              p->n_chips <= 0xFFFF && sites * p->n_chips == p->n_sites && p->n_sites >= 1 &&
              p->n_sites <= TW_VF_MAX_COUNT / TW_ENGINE_COUNT,
          table_sizes, "%u sites, but %u chips of %u x %u", p->n_sites, p->n_chips, p->mesh_width,
          p->mesh_height);
    for (uint32_t c = 0; c < TW_MEM_CLASSES; c++) {
        CHECK(p->sram_bytes[c] <= TW_VF_MAX_SRAM, table_sizes,
              "memory class %u has %llu bytes, the maximum is %llu", c,
              (unsigned long long)p->sram_bytes[c], (unsigned long long)TW_VF_MAX_SRAM);
    }
    CHECK(p->rows >= 1 && p->rows <= TW_VF_MAX_COUNT, table_sizes,
          "%u rows per step, expected 1 to %u", p->rows, TW_VF_MAX_COUNT);
    return 0;
}

static int check_pointers(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    const struct {
        const char *what;
        const void *table;
        uint32_t n;
    } t[] = {{"tensors", p->tensors, p->n_tensors},
             {"buffers", p->buffers, p->n_buffers},
             {"semaphores", p->semaphores, p->n_semaphores},
             {"groups", p->groups, p->n_groups},
             {"trips", p->trips, p->n_trips},
             {"stages", p->stages, p->n_stages},
             {"sections", p->sections, p->n_sections},
             {"streams", p->streams, p->n_sites}};
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        CHECK(t[i].n == 0 || t[i].table, table_sizes, "%u %s but no table", t[i].n, t[i].what);
        CHECK(t[i].n < TW_VF_MAX_COUNT, table_sizes, "%u %s, the maximum is %u", t[i].n, t[i].what,
              TW_VF_MAX_COUNT - 1);
    }
    return 0;
}

static int check_streams(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    for (uint32_t i = 0; i < p->n_sites * TW_ENGINE_COUNT; i++) {
        const struct tw_stream *s = &p->streams[i];
        CHECK(s->site == i / TW_ENGINE_COUNT && s->engine == i % TW_ENGINE_COUNT, table_sizes,
              "stream %u is site %u engine %u, expected site %u engine %u", i, s->site, s->engine,
              i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT);
        CHECK(s->n_words == 0 || s->words, table_sizes, "stream %u has %u words but no bytes", i,
              s->n_words);
        CHECK(s->n_words <= TW_VF_MAX_COUNT, table_sizes,
              "stream %u has %u words, the maximum is %u", i, s->n_words, TW_VF_MAX_COUNT);
    }
    for (uint32_t site = 0; site < p->n_sites; site++) {
        for (unsigned e = 0; e < TW_ENGINE_COUNT; e++) {
            if (tw_vf_stream_words(v, site, e) > 0) {
                v->n_active_sites++;
                break;
            }
        }
    }
    return 0;
}

int tw_vf_header(struct tw_verifier *v) {
    v->place.object = "program";
    v->place.id = TW_NONE;
    int rc = check_strings(v);
    rc = rc ? rc : check_mesh(v);
    rc = rc ? rc : check_pointers(v);
    return rc ? rc : check_streams(v);
}

/* Computes the bytes of an instance from its shape. Returns false if dtype, packing and shape do
 * not match. */
static bool tensor_bytes(const struct tw_tensor *t, uint64_t *bytes) {
    uint32_t block = tw_dtype_block_elems(t->dtype);
    switch ((enum tw_packing)t->packing) {
    case TW_PACK_ROW:
        return t->cols % block == 0 && tw_mul_u64(t->rows, tw_row_bytes(t->dtype, t->cols), bytes);
    case TW_PACK_PANEL16:
        return t->cols % block == 0 && tw_panel_bytes(t->dtype, t->cols) > 0 &&
               tw_mul_u64(tw_panels(t->rows), tw_panel_bytes(t->dtype, t->cols), bytes);
    case TW_PACK_KEYS:
    case TW_PACK_VALUES:
        return tw_demand_number(TW_DEMAND_CACHE_DTYPE, t->dtype) && t->rows % TW_KV_BLOCK == 0 &&
               t->head_dim > 0 && t->cols % t->head_dim == 0 &&
               tw_mul_u64(t->rows, tw_row_bytes(t->dtype, t->cols), bytes);
    case TW_PACK_COUNT:
        break;
    }
    return false;
}

static int check_tensor(struct tw_verifier *v, const struct tw_tensor *t) {
    uint64_t bytes = 0;
    CHECK(t->dtype < TW_DT_COUNT && t->packing < TW_PACK_COUNT && t->role < TW_ROLE_COUNT &&
              t->init <= TW_INIT_BLOB,
          table_sizes, "dtype %u, packing %u, role %u, init %u: one is unknown", t->dtype,
          t->packing, t->role, t->init);
    CHECK(
        t->init != TW_INIT_BLOB, table_sizes,
        "its initial value is bytes of the bundle, which this version does not read; expected none "
        "or zero");
    CHECK(t->rows >= 1 && t->cols >= 1 && t->rows <= TW_VF_MAX_COUNT && t->cols <= TW_VF_MAX_COUNT,
          table_sizes, "invalid shape %u x %u", t->rows, t->cols);
    CHECK((uint64_t)t->bind_first + t->bind_count < TW_NONE, table_sizes,
          "binding rows %u + %u exceed the maximum, %u", t->bind_first, t->bind_count, TW_NONE - 1);
    CHECK((t->role == TW_ROLE_ACTIVATION) == (t->bind_count == 0), roles_kept,
          "an %s tensor with %u binding rows",
          t->role == TW_ROLE_ACTIVATION ? "activation" : "other than activation", t->bind_count);
    if (t->role == TW_ROLE_ACTIVATION) {
        return 0; /* its bytes are checked with its buffers */
    }
    CHECK(!tw_dtype_is_activation(t->dtype), operand_types, "%s is never stored in a tensor",
          tw_dtype_name(t->dtype));
    CHECK(tensor_bytes(t, &bytes), operand_types,
          "%s packed as %u cannot hold %u x %u with heads of %u", tw_dtype_name(t->dtype),
          t->packing, t->rows, t->cols, t->head_dim);
    CHECK(t->bytes == bytes, operand_types, "%llu bytes, but its shape needs %llu",
          (unsigned long long)t->bytes, (unsigned long long)bytes);
    CHECK(t->page_rows == 0 || (t->role == TW_ROLE_STATE && t->packing == TW_PACK_ROW &&
                                t->rows % t->page_rows == 0 && tw_tensor_page_bytes(t) % 4 == 0),
          operand_types,
          "pages of %u rows of a tensor of role %u packed as %u with %u rows of %llu bytes; only a "
          "state of rows can be cut into pages, of equal rows and a multiple of 4 bytes",
          t->page_rows, t->role, t->packing, t->rows, (unsigned long long)(bytes / t->rows));
    return 0;
}

static int check_tensors(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct tw_tensor *t = &p->tensors[i];
        tw_vf_at_object(v, "tensor", i, t->name);
        int rc = check_name(v, t->name);
        rc = rc ? rc : check_tensor(v, t);
        if (rc) {
            return rc;
        }
        if (t->packing == TW_PACK_KEYS && t->role != TW_ROLE_ACTIVATION &&
            t->rows > v->key_positions) {
            v->key_positions = t->rows;
        }
    }
    return 0;
}

/* Checks each member of a sibling set against the first, and the set as a whole at the first:
 * linear in the members. */
static int check_siblings(struct tw_verifier *v, uint32_t id) {
    const struct tw_program *p = v->program;
    const struct tw_buffer *b = &p->buffers[id];
    uint32_t base = b->sibling_base;
    CHECK(b->group < p->n_groups, table_sizes, "group %u does not exist, there are %u", b->group,
          p->n_groups);
    uint64_t size = tw_group_size(&p->groups[b->group]);
    CHECK(tw_buffer_sibling(p, b, b->site) == id && base + size <= p->n_buffers, buffer_placed,
          "is on site %u, where it is not a member of the set of buffers %u..%llu, one on each "
          "site of group %u",
          b->site, base, (unsigned long long)base + size - 1, b->group);
    const struct tw_buffer *first = &p->buffers[base];
    CHECK(first->sibling_base == base && first->group == b->group && first->kind == b->kind &&
              first->dtype == b->dtype && first->offset == b->offset && first->pages == b->pages &&
              first->page_bytes == b->page_bytes && first->mem_class == b->mem_class,
          buffer_placed, "differs from its sibling %u in group, kind, dtype, place or size", base);
    for (uint32_t i = 1; id == base && i < size; i++) {
        CHECK(p->buffers[base + i].sibling_base == base, buffer_placed,
              "buffer %u is not its sibling", base + i);
    }
    return 0;
}

/* Returns the bytes of which the places and sizes of a window are multiples: panels are cut between
 * rows of quants or scales, other packings between blocks of elements. */
static uint64_t window_unit(const struct tw_tensor *t) {
    return t->packing == TW_PACK_PANEL16 ? 32 : tw_dtype_block_bytes(t->dtype);
}

/* Checks which part of each instance the buffer of a Param or State holds. */
static int check_window(struct tw_verifier *v, const struct tw_buffer *b,
                        const struct tw_tensor *t) {
    struct tw_window w = tw_buffer_window(t, b);
    uint64_t unit = window_unit(t), bytes = tw_window_bytes(&w);
    CHECK(b->window_rows || (!b->window_first && !b->window_stride && !b->window_row_bytes),
          buffer_placed, "a window of no rows at byte %llu, with rows of %u bytes",
          (unsigned long long)b->window_first, b->window_row_bytes);
    CHECK(tw_window_inside(&w, t->bytes) && (w.rows == 1 ? w.stride == 0 : w.stride >= w.row_bytes),
          buffer_placed,
          "%llu rows of %llu bytes from byte %llu on, one every %llu, are not a window of an "
          "instance of %llu bytes",
          (unsigned long long)w.rows, (unsigned long long)w.row_bytes, (unsigned long long)w.first,
          (unsigned long long)w.stride, (unsigned long long)t->bytes);
    CHECK(!b->window_rows ||
              (w.first % unit == 0 && w.stride % unit == 0 && w.row_bytes % unit == 0),
          buffer_placed,
          "a window of rows of %llu bytes from byte %llu on, one every %llu, does not consist of "
          "whole units of %llu bytes of %s",
          (unsigned long long)w.row_bytes, (unsigned long long)w.first,
          (unsigned long long)w.stride, (unsigned long long)unit, tw_dtype_name(t->dtype));
    CHECK(b->page_bytes >= bytes && b->page_bytes - bytes < 64 && b->page_bytes % 64 == 0,
          buffer_placed,
          "pages of %llu bytes for a window of %llu, expected it rounded up to a multiple of 64",
          (unsigned long long)b->page_bytes, (unsigned long long)bytes);
    return 0;
}

static int check_pinned(struct tw_verifier *v, const struct tw_buffer *b,
                        const struct tw_tensor *t) {
    bool state = t->role == TW_ROLE_STATE;
    CHECK(b->kind == TW_BUF_RESIDENT && b->pages == t->bind_count && b->dtype == t->dtype,
          buffer_placed, "%u pages, kind %u, %s, cannot keep %u instances of a %s %s", b->pages,
          b->kind, tw_dtype_name(b->dtype), t->bind_count, tw_dtype_name(t->dtype),
          state ? "state" : "param");
    int rc = check_window(v, b, t);
    if (rc || !state) {
        return rc;
    }
    struct tw_window w = tw_buffer_window(t, b);
    CHECK(
        tw_window_contiguous(&w) && w.first % 64 == 0, buffer_placed,
        "a window of a state from byte %llu on, %llu rows of %llu bytes, one every %llu: expected "
        "it to be contiguous and to begin at a multiple of 64",
        (unsigned long long)w.first, (unsigned long long)w.rows, (unsigned long long)w.row_bytes,
        (unsigned long long)w.stride);
    CHECK(b->sibling_base == TW_NONE, buffer_placed,
          "keeps a state and is in a sibling set: each byte of a state is in one place");
    v->in_sram[b->tensor] = 1;
    v->windows[v->n_windows++] = (uint32_t)(b - v->program->buffers);
    return 0;
}

static int check_buffer(struct tw_verifier *v, const struct tw_buffer *b) {
    const struct tw_program *p = v->program;
    uint64_t bytes = 0;
    CHECK(b->site < p->n_sites && b->kind <= TW_BUF_SCRATCH && b->dtype < TW_DT_COUNT &&
              (b->tensor == TW_NONE || b->tensor < p->n_tensors) && b->mem_class < TW_MEM_CLASSES,
          table_sizes, "site %u, kind %u, dtype %u, tensor %u or memory class %u is unknown",
          b->site, b->kind, b->dtype, b->tensor, b->mem_class);
    const struct tw_tensor *pinned = tw_buffer_pinned(p, b);
    CHECK(b->pages >= 1 && b->page_bytes >= 1 &&
              (b->kind == TW_BUF_FIFO || b->pages == 1 || pinned),
          buffer_placed,
          "%u pages of %llu bytes; only a FIFO and the buffer of a param or state may have several "
          "pages",
          b->pages, (unsigned long long)b->page_bytes);
    CHECK(pinned ||
              (!b->window_first && !b->window_stride && !b->window_rows && !b->window_row_bytes),
          buffer_placed, "has a window, but is not the buffer of a param or state");
    int rc = pinned ? check_pinned(v, b, pinned) : 0;
    if (rc) {
        return rc;
    }
    CHECK(b->offset % 64 == 0 && b->page_bytes % 4 == 0, buffer_placed,
          "offset %llu is not a multiple of 64, or page size %llu not of 4",
          (unsigned long long)b->offset, (unsigned long long)b->page_bytes);
    CHECK(tw_mul_u64(b->pages, b->page_bytes, &bytes) &&
              tw_range_ok(b->offset, bytes, p->sram_bytes[b->mem_class]),
          buffer_placed, "%u pages of %llu bytes at %llu do not fit memory class %u of %llu bytes",
          b->pages, (unsigned long long)b->page_bytes, (unsigned long long)b->offset, b->mem_class,
          (unsigned long long)p->sram_bytes[b->mem_class]);
    if (b->kind == TW_BUF_FIFO) {
        CHECK(b->producer < TW_ENGINE_COUNT && b->consumer < TW_ENGINE_COUNT &&
                  b->producer != b->consumer,
              fifo_ends, "producer %u and consumer %u are not two different engines", b->producer,
              b->consumer);
    }
    return 0;
}

static int check_buffers(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    int rc = 0;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        tw_vf_at_object(v, "buffer", i, p->buffers[i].name);
        rc = check_name(v, p->buffers[i].name);
        rc = rc ? rc : check_buffer(v, &p->buffers[i]);
        if (rc) {
            return rc;
        }
        v->buffers[i].first_move = v->buffers[i].last_move = TW_NONE;
    }
    return rc;
}

/* ---- windows of State ---- */

/* A window is contiguous: its place in the instance. */
struct span {
    uint32_t tensor, buffer;
    uint64_t lo, hi;
};

static int by_place(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    if (x->tensor != y->tensor) {
        return x->tensor < y->tensor ? -1 : 1;
    }
    if (x->lo != y->lo) {
        return x->lo < y->lo ? -1 : 1;
    }
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* No two buffers hold the same bytes of a State. */
static int check_state_windows(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    struct span *list = calloc((size_t)v->n_windows + 1, sizeof *list);
    if (!list) {
        return tw_fail(v->err, TW_E_NOMEM, "out of memory to verify %s", p->name);
    }
    for (uint32_t i = 0; i < v->n_windows; i++) {
        const struct tw_buffer *b = &p->buffers[v->windows[i]];
        struct tw_window w = tw_buffer_window(&p->tensors[b->tensor], b);
        list[i] = (struct span){b->tensor, v->windows[i], w.first, w.first + tw_window_bytes(&w)};
    }
    qsort(list, v->n_windows, sizeof *list, by_place);
    int rc = 0;
    for (uint32_t i = 1; i < v->n_windows && !rc; i++) {
        tw_vf_count(v, TW_RULE_buffer_placed);
        if (list[i].tensor == list[i - 1].tensor && list[i].lo < list[i - 1].hi) {
            tw_vf_at_object(v, "buffer", list[i].buffer, p->buffers[list[i].buffer].name);
            rc =
                tw_vf_fail(v, TW_RULE_buffer_placed,
                           "holds bytes of state %u from %llu on, which buffer %u holds up to %llu",
                           list[i].tensor, (unsigned long long)list[i].lo, list[i - 1].buffer,
                           (unsigned long long)list[i - 1].hi);
        }
    }
    free(list);
    return rc;
}

/* Sets of siblings name groups, which have been checked. */
static int check_sets(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    int rc = 0;
    for (uint32_t i = 0; i < p->n_buffers && !rc; i++) {
        tw_vf_at_object(v, "buffer", i, p->buffers[i].name);
        if (p->buffers[i].sibling_base != TW_NONE) {
            rc = check_siblings(v, i);
        } else {
            CHECK(p->buffers[i].group == 0, buffer_placed,
                  "names group %u but is in no sibling set", p->buffers[i].group);
        }
    }
    return rc;
}

static int check_groups(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        const struct tw_group *g = &p->groups[i];
        tw_vf_at_object(v, "group", i, 0);
        CHECK(g->chips >= 1 && (uint32_t)g->chip + g->chips <= p->n_chips && g->x0 < g->x1 &&
                  g->x1 <= p->mesh_width && g->y0 < g->y1 && g->y1 <= p->mesh_height,
              groups_on_chip,
              "chips %u..%u x %u..%u y %u..%u is not a rectangle on %u chips of %u x %u", g->chip,
              (uint32_t)g->chip + g->chips, g->x0, g->x1, g->y0, g->y1, p->n_chips, p->mesh_width,
              p->mesh_height);
    }
    return 0;
}

static uint64_t max_words_of_semaphores(const struct tw_program *p) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_sites * TW_ENGINE_COUNT; i++) {
        n += p->streams[i].n_words;
    }
    n = TW_VF_WORDS_FREE + n * TW_VF_WORDS_PER_STREAM_WORD;
    return n < TW_VF_MAX_WORDS_OF_SEMAPHORES ? n : TW_VF_MAX_WORDS_OF_SEMAPHORES;
}

static int check_semaphores(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    uint64_t n_words = 0, max = max_words_of_semaphores(p);
    for (uint32_t i = 0; i < p->n_semaphores; i++) {
        const struct tw_semaphore *s = &p->semaphores[i];
        tw_vf_at_object(v, "semaphore", i, s->name);
        int rc = check_name(v, s->name);
        if (rc) {
            return rc;
        }
        CHECK(s->group < p->n_groups && s->role <= TW_SEM_RELEASE, table_sizes,
              "group %u or role %u is unknown", s->group, s->role);
        CHECK(s->initial <= TW_VF_MAX_COUNT, thresholds_reachable,
              "initial value %u, the maximum is %u", s->initial, TW_VF_MAX_COUNT);
        v->sems[i].first_word = (uint32_t)n_words;
        v->sems[i].section = TW_NONE;
        n_words += tw_group_size(&p->groups[s->group]);
        CHECK(n_words <= max, table_sizes,
              "more than %llu semaphore words (%u, and %u for each word of the streams)",
              (unsigned long long)max, TW_VF_WORDS_FREE, TW_VF_WORDS_PER_STREAM_WORD);
    }
    v->n_words = (uint32_t)n_words;
    return 0;
}

static int check_trips(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    for (uint32_t i = 0; i < p->n_trips; i++) {
        const struct tw_trip *t = &p->trips[i];
        tw_vf_at_object(v, "trip", i, t->name);
        int rc = check_name(v, t->name);
        if (rc) {
            return rc;
        }
        CHECK(t->input < p->n_tensors, table_sizes, "input tensor %u does not exist, there are %u",
              t->input, p->n_tensors);
        const struct tw_tensor *in = &p->tensors[t->input];
        CHECK(in->role == TW_ROLE_INPUT && in->dtype == TW_DT_I32 && in->packing == TW_PACK_ROW,
              trips_sound, "reads tensor %u, %s of role %u packed as %u, not an i32 input of rows",
              t->input, tw_dtype_name(in->dtype), in->role, in->packing);
        CHECK(t->element < (uint64_t)in->rows * in->cols, trips_sound,
              "reads element %u of tensor %u, which has %u x %u", t->element, t->input, in->rows,
              in->cols);
        CHECK(t->div >= 1 && t->max <= TW_VF_MAX_COUNT && t->clamp <= 1, trips_sound,
              "div %u, max %u, clamp %u; expected div from 1, max up to %u, clamp 0 or 1", t->div,
              t->max, t->clamp, TW_VF_MAX_COUNT);
    }
    return 0;
}

static int check_stages(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    for (uint32_t i = 0; i < p->n_stages; i++) {
        const struct tw_stage *s = &p->stages[i];
        tw_vf_at_object(v, "stage", i, s->origin);
        int rc = check_name(v, s->origin);
        if (rc) {
            return rc;
        }
        CHECK(s->kind <= TW_STAGE_SYNC && s->site < p->n_sites && s->engine < TW_ENGINE_COUNT &&
                  s->section < p->n_sections,
              table_sizes, "kind %u, site %u, engine %u or section %u is unknown", s->kind, s->site,
              s->engine, s->section);
        const struct tw_section *section = &p->sections[s->section];
        CHECK(i >= section->first_stage && i - section->first_stage < section->n_stages,
              sections_partition, "names section %u, which holds stages %u + %u", s->section,
              section->first_stage, section->n_stages);
    }
    return 0;
}

/* Registers a rendezvous semaphore of a section. */
static int take_semaphore(struct tw_verifier *v, uint32_t section, uint32_t sem,
                          enum tw_vf_sem_use use, uint32_t role) {
    const struct tw_program *p = v->program;
    const struct tw_section *s = &p->sections[section];
    CHECK(sem >= s->first_semaphore && sem - s->first_semaphore < s->n_semaphores &&
              sem < p->n_semaphores,
          rendezvous_shape, "semaphore %u is not one of the section's %u + %u", sem,
          s->first_semaphore, s->n_semaphores);
    CHECK(p->semaphores[sem].role == role, rendezvous_shape,
          "semaphore %u has role %u, expected %u", sem, p->semaphores[sem].role, role);
    CHECK(v->sems[sem].use == TW_VF_PLAIN, rendezvous_shape,
          "semaphore %u has two roles in the rendezvous", sem);
    v->sems[sem].use = use;
    v->sems[sem].section = section;
    return 0;
}

static int check_closing(struct tw_verifier *v, uint32_t i) {
    const struct tw_section *s = &v->program->sections[i];
    unsigned named = (s->local != TW_NONE ? 1u : 0u) + (s->gather != TW_NONE ? 1u : 0u) +
                     (s->release != TW_NONE ? 1u : 0u);
    CHECK(named == 0 || named == 3, rendezvous_shape, "names %u of the three rendezvous semaphores",
          named);
    v->sections[i].root = TW_NONE;
    if (named == 0) {
        return 0;
    }
    v->n_closing++;
    int rc = take_semaphore(v, i, s->local, TW_VF_LOCAL, TW_SEM_GATHER);
    rc = rc ? rc : take_semaphore(v, i, s->gather, TW_VF_GATHER, TW_SEM_GATHER);
    return rc ? rc : take_semaphore(v, i, s->release, TW_VF_RELEASE, TW_SEM_RELEASE);
}

static int check_sections(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    uint64_t buffer = 0, sem = 0, stage = 0;
    CHECK(p->n_sections >= 1, sections_partition, "the program has no sections");
    for (uint32_t i = 0; i < p->n_sections; i++) {
        const struct tw_section *s = &p->sections[i];
        tw_vf_at_object(v, "section", i, s->name);
        int rc = check_name(v, s->name);
        if (rc) {
            return rc;
        }
        CHECK(s->repeat >= 1, table_sizes, "repeat is 0, expected 1 or more");
        CHECK(s->reserved == 0, table_sizes, "reserved is %u, expected 0", s->reserved);
        CHECK(s->first_buffer == buffer && s->first_semaphore == sem && s->first_stage == stage,
              sections_partition,
              "begins at buffer %u, semaphore %u, stage %u, expected %llu, %llu, %llu",
              s->first_buffer, s->first_semaphore, s->first_stage, (unsigned long long)buffer,
              (unsigned long long)sem, (unsigned long long)stage);
        buffer += s->n_buffers;
        sem += s->n_semaphores;
        stage += s->n_stages;
        rc = check_closing(v, i);
        if (rc) {
            return rc;
        }
    }
    CHECK(buffer == p->n_buffers && sem == p->n_semaphores && stage == p->n_stages,
          sections_partition,
          "sections hold %llu buffers, %llu semaphores, %llu stages of %u, %u, %u",
          (unsigned long long)buffer, (unsigned long long)sem, (unsigned long long)stage,
          p->n_buffers, p->n_semaphores, p->n_stages);
    CHECK(p->sections[p->n_sections - 1].release != TW_NONE, sections_partition,
          "the last section does not close: it names no rendezvous semaphores");
    return 0;
}

int tw_vf_tables(struct tw_verifier *v) {
    int rc = check_tensors(v);
    rc = rc ? rc : check_buffers(v);
    rc = rc ? rc : check_groups(v);
    rc = rc ? rc : check_state_windows(v);
    rc = rc ? rc : check_sets(v);
    rc = rc ? rc : check_semaphores(v);
    rc = rc ? rc : check_trips(v);
    rc = rc ? rc : check_sections(v);
    return rc ? rc : check_stages(v);
}
