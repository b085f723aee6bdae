/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, verdicts, and the rules of tables: 1, 4, 5, 9 to 11, 13 to 16, 28.
 */
#include "tests/second_checker/second_internal.h"

#include <stdio.h>

void second_refuse(struct second *c, int rule, const char *what) {
    snprintf(c->verdict.text, sizeof c->verdict.text, "site %u %s %u: %s", c->site, c->what,
             c->index, what);
    c->verdict.rule = rule;
    c->verdict.unjudged = rule == 0;
    longjmp(c->out, 1);
}

void *second_alloc(struct second *c, uint64_t n, size_t bytes) {
    struct block *b = n > (UINT64_C(1) << 32) / bytes ? NULL : calloc(1, sizeof *b + n * bytes);
    NEED(0, b, "no memory");
    b->next = c->memory;
    c->memory = b;
    return b + 1;
}

void second_free_to(struct second *c, struct block *mark) {
    while (c->memory != mark) {
        struct block *next = c->memory->next;
        free(c->memory);
        c->memory = next;
    }
}

static void check_shape(struct second *c) {
    const struct tw_program *p = c->p;
    uint64_t sites = (uint64_t)p->mesh_width * p->mesh_height;
    NEED(1, p->rows > 0 && p->rows <= 0x7FFFFFFF, "rows");
    NEED(1, sites > 0 && sites <= 65536 && p->n_chips > 0, "mesh");
    NEED(1, sites * p->n_chips == p->n_sites && p->n_sites <= 65536, "sites are not the mesh");
    NEED(1, p->strings_bytes && !p->strings[p->strings_bytes - 1], "the strings do not end");
    for (uint32_t i = 0; i < TW_MEM_CLASSES; i++) {
        NEED(1, p->sram_bytes[i] <= UINT64_C(1) << 40, "size of a memory class");
    }
    for (uint32_t i = 0; i < p->n_sites * TW_ENGINE_COUNT; i++) {
        NEED(1, p->streams[i].site == i / 3 && p->streams[i].engine == i % 3, "another stream");
    }
}

/* Bytes of an instance by the page's packings; 0: the record names no such matrix. */
static uint64_t tensor_bytes(const struct tw_tensor *t) {
    uint64_t row = t->cols % tw_dtype_block_elems(t->dtype) ? 0 : tw_row_bytes(t->dtype, t->cols);
    bool cache = (t->dtype == TW_DT_F32 || t->dtype == TW_DT_F16) && t->head_dim > 0 &&
                 t->cols % t->head_dim == 0 && t->rows % TW_KV_BLOCK == 0;
    uint64_t panels = row ? tw_panels(t->rows) * tw_panel_bytes(t->dtype, t->cols) : 0;
    return t->packing == TW_PACK_PANEL16        ? panels
           : t->packing == TW_PACK_ROW || cache ? t->rows * row
                                                : 0;
}

static void check_tensor(struct second *c, const struct tw_tensor *t) {
    NEED(1, t->name < c->p->strings_bytes, "name");
    NEED(1, t->dtype < TW_DT_COUNT && t->packing < TW_PACK_COUNT, "unknown type");
    NEED(1, t->role < TW_ROLE_COUNT && t->init < TW_INIT_BLOB, "unknown role or initial value");
    NEED(1, t->rows - 1 < 0x7FFFFFFF && t->cols - 1 < 0x7FFFFFFF, "shape");
    NEED(1, t->bind_first <= UINT32_MAX - t->bind_count, "binding rows");
    bool stored = t->role != TW_ROLE_ACTIVATION, pages = t->page_rows != 0;
    NEED(9, stored == (t->bind_count > 0), "binding rows do not fit its role");
    NEED(10, !stored || !tw_dtype_is_activation(t->dtype), "stores activations");
    NEED(10, !stored || (t->bytes && tensor_bytes(t) == t->bytes), "bytes");
    NEED(10, !pages || (t->role == TW_ROLE_STATE && t->packing == TW_PACK_ROW), "has no pages");
    NEED(10, !pages || (t->rows % t->page_rows == 0 && tw_tensor_page_bytes(t) % 4 == 0), "pages");
}

static void check_group(struct second *c, const struct tw_group *g) {
    const struct tw_program *p = c->p;
    NEED(13, g->x0 < g->x1 && g->y0 < g->y1, "no sites");
    NEED(13, g->x1 <= p->mesh_width && g->y1 <= p->mesh_height, "outside the mesh");
    NEED(13, g->chips > 0 && g->chip + (uint32_t)g->chips <= p->n_chips, "no such chip");
}

static void check_siblings(struct second *c, const struct tw_buffer *b) {
    const struct tw_program *p = c->p;
    NEED(4, b->group < p->n_groups, "no such group");
    uint64_t n = tw_group_size(&p->groups[b->group]);
    NEED(4, b->sibling_base + n <= p->n_buffers, "siblings missing");
    NEED(4, tw_buffer_sibling(p, b, b->site) == c->index, "not the sibling of its site");
    for (uint32_t k = 0; k < n; k++) {
        const struct tw_buffer *m = &p->buffers[b->sibling_base + k];
        NEED(4, m->kind == b->kind && m->dtype == b->dtype && m->offset == b->offset, "siblings");
        NEED(4, m->pages == b->pages && m->page_bytes == b->page_bytes, "pages of siblings");
        NEED(4, m->mem_class == b->mem_class && m->group == b->group, "class of siblings");
        NEED(4, m->sibling_base == b->sibling_base, "another set of siblings");
        NEED(4, m->site == tw_group_site(p, &p->groups[b->group], k), "site of a sibling");
    }
}

/* A buffer that keeps a Param or State, or a window of each instance. */
static void check_pinned(struct second *c, const struct tw_buffer *b, const struct tw_tensor *t) {
    struct tw_window w = tw_buffer_window(t, b);
    uint64_t unit = t->packing == TW_PACK_PANEL16 ? 32 : tw_dtype_block_bytes(t->dtype);
    bool state = t->role == TW_ROLE_STATE, untyped = b->dtype == TW_DT_U8 && t->packing == 1;
    NEED(4, b->kind == TW_BUF_RESIDENT && b->pages == t->bind_count, "kind or pages");
    NEED(4, b->dtype == t->dtype || untyped, "element type of what it keeps");
    NEED(4, tw_window_inside(&w, t->bytes), "a window outside its tensor");
    NEED(4, b->page_bytes == (tw_window_bytes(&w) + 63) / 64 * 64, "page of another size");
    NEED(4, w.rows == 1 ? w.stride == 0 : w.stride >= w.row_bytes, "rows of a window overlap");
    NEED(4, b->window_rows || !(b->window_first || b->window_stride || b->window_row_bytes),
         "none");
    NEED(4, !b->window_rows || w.row_bytes % unit == 0, "parts of blocks");
    NEED(4, w.first % unit == 0 && w.stride % unit == 0, "parts of blocks");
    NEED(4, !state || b->sibling_base == TW_NONE, "a State with siblings");
    NEED(4, !state || (tw_window_contiguous(&w) && w.first % 64 == 0), "window of a State");
    c->kept[b->tensor] |= state;
    for (const struct tw_buffer *o = c->p->buffers; o < b && state; o++) {
        struct tw_window x = tw_buffer_window(t, o);
        bool same = o->tensor == b->tensor && x.first < w.first + tw_window_bytes(&w) &&
                    w.first < x.first + tw_window_bytes(&x);
        NEED(4, !same, "two buffers keep the same State");
    }
}

static void check_buffer(struct second *c, const struct tw_buffer *b) {
    uint64_t bytes, window = b->window_first | b->window_stride | b->window_rows;
    uint32_t padding;
    memcpy(&padding, (const char *)b + 20, sizeof padding);
    NEED(1, b->name < c->p->strings_bytes && !b->pad && !padding, "name or padding");
    NEED(1, b->site < c->p->n_sites && b->kind <= TW_BUF_SCRATCH, "site or kind");
    NEED(1, b->dtype < TW_DT_COUNT && b->mem_class < TW_MEM_CLASSES, "type or memory class");
    NEED(1, b->tensor == TW_NONE || b->tensor < c->p->n_tensors, "no such tensor");
    bool ends = b->producer < 3 && b->consumer < 3 && b->producer != b->consumer;
    NEED(5, b->kind != TW_BUF_FIFO || ends, "ends");
    NEED(4, b->page_bytes > 0 && b->page_bytes % 4 == 0 && b->offset % 64 == 0, "alignment");
    NEED(4, b->pages > 0 && tw_mul_u64(b->pages, b->page_bytes, &bytes), "pages");
    NEED(4, tw_range_ok(b->offset, bytes, c->p->sram_bytes[b->mem_class]), "outside the SRAM");
    const struct tw_tensor *t = tw_buffer_pinned(c->p, b);
    NEED(4, t || b->kind == TW_BUF_FIFO || b->pages == 1, "several pages");
    NEED(4, t || !(window | b->window_row_bytes), "a window of nothing");
    NEED(4, b->sibling_base != TW_NONE || b->group == 0, "a group without siblings");
    if (t) {
        check_pinned(c, b, t);
    }
    if (b->sibling_base != TW_NONE) {
        check_siblings(c, b);
    }
}

static void check_trip(struct second *c, const struct tw_trip *t) {
    NEED(1, t->name < c->p->strings_bytes, "name");
    NEED(11, t->input < c->p->n_tensors && t->div > 0, "no such input, or div");
    const struct tw_tensor *x = &c->p->tensors[t->input];
    NEED(11, x->role == TW_ROLE_INPUT && x->dtype == TW_DT_I32, "not an i32 Input");
    NEED(11, x->packing == TW_PACK_ROW && t->element < (uint64_t)x->rows * x->cols, "element");
    NEED(11, t->clamp < 2 && t->max <= 0x7FFFFFFF, "clamp or max");
}

static void check_semaphore(struct second *c, const struct tw_semaphore *s) {
    NEED(1, s->name < c->p->strings_bytes && s->group < c->p->n_groups, "no such group");
    NEED(1, s->role <= TW_SEM_RELEASE, "unknown role");
    NEED(14, s->initial <= 0x7FFFFFFF, "initial value");
}

static void check_stage(struct second *c, const struct tw_stage *s) {
    NEED(1, s->origin < c->p->strings_bytes && s->kind <= TW_STAGE_SYNC, "unknown kind");
    NEED(1, s->site < c->p->n_sites && s->engine < 3, "no such engine");
    NEED(1, s->section < c->p->n_sections, "no such section");
}

/* The ranges of the sections follow each other; `next` is where those of this one begin. */
static void check_section(struct second *c, const struct tw_section *s, uint64_t next[3]) {
    const uint32_t id[3] = {s->local, s->gather, s->release};
    bool none = s->local == TW_NONE && s->gather == TW_NONE && s->release == TW_NONE;
    NEED(1, s->name < c->p->strings_bytes && !s->reserved && s->repeat > 0, "unknown number");
    NEED(16, !none || c->index + 1 < c->p->n_sections, "the last section does not close");
    for (uint32_t k = 0; k < 3 && !none; k++) {
        NEED(15, id[k] - s->first_semaphore < s->n_semaphores, "another section's semaphore");
        NEED(15, id[k] < c->p->n_semaphores && id[k] != id[(k + 1) % 3], "no such semaphore");
        uint32_t role = c->p->semaphores[id[k]].role;
        NEED(15, role == (k < 2 ? TW_SEM_GATHER : TW_SEM_RELEASE), "role of a semaphore");
    }
    NEED(16, s->first_buffer == next[0] && s->first_semaphore == next[1], "a gap");
    NEED(16, s->first_stage == next[2], "a gap");
    for (uint64_t k = next[2]; k < next[2] + s->n_stages && k < c->p->n_stages; k++) {
        NEED(16, c->p->stages[k].section == c->index, "a stage of another section");
    }
    next[0] += s->n_buffers;
    next[1] += s->n_semaphores;
    next[2] += s->n_stages;
}

/* Calls the check for each record; c->index counts them. */
#define EACH(table, name, check, ...)                                          \
    for (c->what = name, c->index = 0; c->index < c->p->n_##table; c->index++) \
        check(c, &c->p->table[c->index] __VA_ARGS__);

static void check_tables(struct second *c) {
    uint64_t next[3] = {0, 0, 0};
    check_shape(c);
    c->kept = second_alloc(c, c->p->n_tensors, 1);
    EACH(tensors, "tensor", check_tensor)
    EACH(groups, "group", check_group)
    EACH(buffers, "buffer", check_buffer)
    EACH(trips, "trip", check_trip)
    EACH(semaphores, "semaphore", check_semaphore)
    EACH(stages, "stage", check_stage)
    EACH(sections, "section", check_section, , next)
    NEED(16, c->p->n_sections && next[0] == c->p->n_buffers, "buffers are not covered");
    NEED(16, next[1] == c->p->n_semaphores && next[2] == c->p->n_stages, "not covered");
}

/* Without places each binding row has its own bytes. */
static void rows_apart(struct second *c, const struct tw_tensor *x, const struct tw_tensor *y) {
    uint64_t x0 = x->bind_first, x1 = x0 + x->bind_count;
    uint64_t y0 = y->bind_first, y1 = y0 + y->bind_count;
    NEED(28, x == y || x0 >= y1 || y0 >= x1, "shares binding rows");
    NEED(28, !c->rows || (x1 <= c->n_rows && y1 <= c->n_rows), "no such binding rows");
    for (uint64_t i = x0; c->rows && i < x1; i++) {
        for (uint64_t k = x == y ? i + 1 : y0; k < y1; k++) {
            const struct tw_bind_target *a = &c->rows[i], *b = &c->rows[k];
            bool apart = a->offset >= b->offset + y->bytes || b->offset >= a->offset + x->bytes;
            NEED(28, a->segment != b->segment || apart, "shares bytes with another instance");
        }
    }
}

static void judge(struct second *c) {
    const struct tw_program *p = c->p;
    check_tables(c);
    second_ops(c);
    for (c->what = "tensor", c->index = 0; c->index < p->n_tensors; c->index++) {
        const struct tw_tensor *x = &p->tensors[c->index];
        NEED(9, x->role != TW_ROLE_OUTPUT || c->written[c->index], "an Output is not written");
        for (const struct tw_tensor *y = x; y < p->tensors + p->n_tensors; y++) {
            if (x->role != TW_ROLE_PARAM || y->role != TW_ROLE_PARAM) {
                rows_apart(c, x, y);
            }
        }
    }
    second_steps(c);
}

struct second_verdict second_check(const struct tw_program *p, const struct tw_bind_target *rows,
                                   uint64_t n_rows) {
    struct second *c = calloc(1, sizeof *c);
    struct second_verdict v = {.unjudged = true};
    if (c) {
        c->p = p;
        c->rows = rows;
        c->n_rows = n_rows;
        c->what = "program";
        if (setjmp(c->out) == 0) {
            judge(c);
        }
        v = c->verdict;
        second_free_to(c, NULL);
        free(c);
    }
    return v;
}
