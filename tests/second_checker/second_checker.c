/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, verdicts, and the rules of tables: 1, 4, 5, 9 to 11, 13 to 16, 26, 28.
 */
#include "tests/second_checker/second_internal.h"

#include <stdio.h>

void second_refuse(struct second *c, int rule, const char *what) {
    uint32_t site = c->e ? c->e->s->site : 0, index = c->e ? c->e->index : c->index;
    snprintf(c->verdict.text, sizeof c->verdict.text, "site %u %s %u: not %s", site,
             c->e ? tw_engine_name(c->e->s->engine) : c->what, index, what);
    c->verdict.rule = rule;
    c->verdict.unjudged = rule == 0;
    longjmp(c->out, 1);
}

void *second_alloc(struct second *c, uint64_t n, size_t bytes) {
    struct block *b = n > (UINT64_C(1) << 32) / bytes ? NULL : calloc(1, sizeof *b + n * bytes);
    NEED(0, b);
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
    NEED(1, p->rows - 1 < SECOND_MOST && p->strings_bytes && !p->strings[p->strings_bytes - 1]);
    NEED(1, sites > 0 && sites <= 65536 && p->n_chips > 0 && p->n_sites <= 65536);
    NEED(1, sites * p->n_chips == p->n_sites);
    NEED(1, ALL(i, TW_MEM_CLASSES, p->sram_bytes[i] <= UINT64_C(1) << 40));
    NEED(1, ALL(i, p->n_sites * 3, p->streams[i].site == i / 3 && p->streams[i].engine == i % 3));
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
    bool stored = t->role != TW_ROLE_ACTIVATION, pages = t->page_rows != 0;
    NEED(1, t->name < c->p->strings_bytes && t->dtype < TW_DT_COUNT && t->packing < TW_PACK_COUNT);
    NEED(1, t->role < TW_ROLE_COUNT && t->init < TW_INIT_BLOB);
    NEED(1, t->rows - 1 < SECOND_MOST && t->cols - 1 < SECOND_MOST);
    NEED(1, t->bind_first <= UINT32_MAX - t->bind_count);
    NEED(9, stored == (t->bind_count > 0));
    NEED(10, !stored || (!tw_dtype_is_activation(t->dtype) && t->bytes > 0));
    NEED(10, !stored || tensor_bytes(t) == t->bytes);
    NEED(10, !pages || (t->role == TW_ROLE_STATE && t->packing == TW_PACK_ROW));
    NEED(10, !pages || (t->rows % t->page_rows == 0 && tw_tensor_page_bytes(t) % 4 == 0));
}

static void check_group(struct second *c, const struct tw_group *g) {
    NEED(13, g->x0 < g->x1 && g->x1 <= c->p->mesh_width);
    NEED(13, g->y0 < g->y1 && g->y1 <= c->p->mesh_height);
    NEED(13, g->chips > 0 && g->chip + (uint32_t)g->chips <= c->p->n_chips);
}

static void check_siblings(struct second *c, const struct tw_buffer *b) {
    const struct tw_program *p = c->p;
    NEED(4, b->group < p->n_groups);
    const struct tw_group *g = &p->groups[b->group];
    NEED(4, b->sibling_base + tw_group_size(g) <= p->n_buffers);
    NEED(4, tw_buffer_sibling(p, b, b->site) == c->index);
    const struct tw_buffer *m = &p->buffers[b->sibling_base];
    for (uint32_t k = 0; k < tw_group_size(g); k++, m++) {
        NEED(4, m->site == tw_group_site(p, g, k) && m->sibling_base == b->sibling_base);
        NEED(4, m->kind == b->kind && m->dtype == b->dtype && m->group == b->group);
        NEED(4, m->offset == b->offset && m->mem_class == b->mem_class);
        NEED(4, m->pages == b->pages && m->page_bytes == b->page_bytes);
    }
}

/* A buffer that keeps a Param or State, or a window of each instance. */
static void check_pinned(struct second *c, const struct tw_buffer *b, const struct tw_tensor *t) {
    struct tw_window w = tw_buffer_window(t, b), x;
    uint64_t unit = t->packing == TW_PACK_PANEL16 ? 32 : tw_dtype_block_bytes(t->dtype);
    bool state = t->role == TW_ROLE_STATE;
    NEED(4, b->kind == TW_BUF_RESIDENT && b->pages == t->bind_count && b->dtype == t->dtype);
    NEED(4, b->window_rows || !(b->window_first || b->window_stride || b->window_row_bytes));
    NEED(4, tw_window_inside(&w, t->bytes));
    NEED(4, b->page_bytes == (tw_window_bytes(&w) + 63) / 64 * 64);
    NEED(4, w.rows == 1 ? w.stride == 0 : w.stride >= w.row_bytes);
    NEED(4, w.first % unit == 0 && w.stride % unit == 0);
    NEED(4, !b->window_rows || w.row_bytes % unit == 0);
    NEED(4, !state || (b->sibling_base == TW_NONE && tw_window_contiguous(&w)));
    NEED(4, !state || w.first % 64 == 0);
    c->kept[b->tensor] |= state;
    for (const struct tw_buffer *o = c->p->buffers; o < b && state; o++) {
        x = tw_buffer_window(t, o);
        NEED(4, o->tensor != b->tensor || x.first >= w.first + tw_window_bytes(&w) ||
                    w.first >= x.first + tw_window_bytes(&x));
    }
}

static void check_buffer(struct second *c, const struct tw_buffer *b) {
    uint64_t bytes, window = b->window_first | b->window_stride | b->window_rows;
    uint32_t padding;
    memcpy(&padding, (const char *)b + 20, sizeof padding);
    NEED(1, b->name < c->p->strings_bytes && !b->pad && !padding && b->site < c->p->n_sites);
    NEED(1, b->kind <= TW_BUF_SCRATCH && b->dtype < TW_DT_COUNT && b->mem_class < TW_MEM_CLASSES);
    NEED(1, b->tensor == TW_NONE || b->tensor < c->p->n_tensors);
    bool ends = b->producer < 3 && b->consumer < 3 && b->producer != b->consumer;
    NEED(5, b->kind != TW_BUF_FIFO || ends);
    NEED(4, b->page_bytes > 0 && b->page_bytes % 4 == 0 && b->offset % 64 == 0);
    NEED(4, b->pages > 0 && tw_mul_u64(b->pages, b->page_bytes, &bytes));
    NEED(4, tw_range_ok(b->offset, bytes, c->p->sram_bytes[b->mem_class]));
    const struct tw_tensor *t = tw_buffer_pinned(c->p, b);
    NEED(4, t || b->kind == TW_BUF_FIFO || b->pages == 1);
    NEED(4, t || !(window | b->window_row_bytes));
    NEED(4, b->sibling_base != TW_NONE || b->group == 0);
    if (t) {
        check_pinned(c, b, t);
    }
    if (b->sibling_base != TW_NONE) {
        check_siblings(c, b);
    }
}

static void check_trip(struct second *c, const struct tw_trip *t) {
    NEED(1, t->name < c->p->strings_bytes);
    NEED(11, t->input < c->p->n_tensors && t->div > 0 && t->clamp < 2 && t->max <= SECOND_MOST);
    const struct tw_tensor *x = &c->p->tensors[t->input];
    NEED(11, x->role == TW_ROLE_INPUT && x->dtype == TW_DT_I32 && x->packing == TW_PACK_ROW);
    NEED(11, t->element < (uint64_t)x->rows * x->cols);
}

static void check_semaphore(struct second *c, const struct tw_semaphore *s) {
    NEED(1, s->name < c->p->strings_bytes && s->group < c->p->n_groups);
    NEED(1, s->role <= TW_SEM_RELEASE);
    NEED(14, s->initial <= SECOND_MOST);
}

static void check_stage(struct second *c, const struct tw_stage *s) {
    NEED(1, s->origin < c->p->strings_bytes && s->kind <= TW_STAGE_SYNC);
    NEED(1, s->site < c->p->n_sites && s->engine < 3 && s->section < c->p->n_sections);
}

/* The ranges of the sections follow each other; `next` is where those of this one begin. */
static void check_section(struct second *c, const struct tw_section *s, uint64_t next[3]) {
    const uint32_t id[3] = {s->local, s->gather, s->release}, n = c->p->n_semaphores;
    bool none = s->local == TW_NONE && s->gather == TW_NONE && s->release == TW_NONE;
    NEED(1, s->name < c->p->strings_bytes && !s->reserved && s->repeat > 0);
    NEED(16, !none || c->index + 1 < c->p->n_sections);
    for (uint32_t k = 0; k < 3 && !none; k++) {
        NEED(15, id[k] - s->first_semaphore < s->n_semaphores && id[k] < n);
        NEED(15, c->p->semaphores[id[k]].role == (k < 2 ? TW_SEM_GATHER : TW_SEM_RELEASE));
        NEED(15, id[k] != id[(k + 1) % 3]);
    }
    NEED(16, s->first_buffer == next[0] && s->first_semaphore == next[1]);
    NEED(16, s->first_stage == next[2]);
    for (uint64_t k = next[0]; k < next[0] + s->n_buffers && k < c->p->n_buffers; k++) {
        bool own = c->p->buffers[k].tensor == TW_NONE;
        c->uses[k].section = c->uses[k].first = c->index;
        c->uses[k].end = own ? c->index + 1 : 0;
    }
    next[0] += s->n_buffers;
    next[1] += s->n_semaphores;
    next[2] += s->n_stages;
    NEED(16, next[0] <= c->p->n_buffers && next[1] <= n && next[2] <= c->p->n_stages);
    NEED(16, ALL(k, s->n_stages, c->p->stages[s->first_stage + k].section == c->index));
}

bool second_share(const struct tw_buffer *a, const struct tw_buffer *b) {
    return a->site == b->site && a->mem_class == b->mem_class &&
           a->offset < b->offset + b->pages * b->page_bytes &&
           b->offset < a->offset + a->pages * a->page_bytes;
}

/* What fills weights is aligned. Buffers that share bytes live in different sections, or none of
 * them holds a tensor and one engine uses both; what keeps a Param or State shares bytes with
 * buffers that no op names. */
static void check_uses(struct second *c, const struct tw_buffer *a) {
    const struct uses *u = &c->uses[c->index], *v = c->uses;
    NEED(10, !u->weights || !u->unaligned);
    for (const struct tw_buffer *b = c->p->buffers; b < a; b++, v++) {
        bool keeps = tw_buffer_pinned(c->p, a), other = tw_buffer_pinned(c->p, b);
        bool one = (u->stream == v->stream || !u->stream || !v->stream) &&
                   u->stream != SECOND_MANY && v->stream != SECOND_MANY && a->tensor == TW_NONE &&
                   b->tensor == TW_NONE;
        NEED(26, !second_share(a, b) ||
                     (keeps || other ? keeps != other && (keeps ? v : u)->stream == 0
                                     : one || u->first >= v->end || v->first >= u->end));
    }
}

/* Without places each binding row has its own bytes. */
static void rows_apart(struct second *c, const struct tw_tensor *x, const struct tw_tensor *y) {
    uint64_t x0 = x->bind_first, x1 = x0 + x->bind_count;
    uint64_t y0 = y->bind_first, y1 = y0 + y->bind_count;
    NEED(28, x == y || x0 >= y1 || y0 >= x1);
    NEED(28, !c->rows || (x1 <= c->n_rows && y1 <= c->n_rows));
    for (const struct tw_bind_target *a = c->rows + x0; c->rows && a < c->rows + x1; a++) {
        const struct tw_bind_target *b = x == y ? a + 1 : c->rows + y0;
        for (; b < c->rows + y1; b++) {
            NEED(28, a->segment != b->segment || a->offset >= b->offset + y->bytes ||
                         b->offset >= a->offset + x->bytes);
        }
    }
}

static void check_bindings(struct second *c, const struct tw_tensor *x) {
    NEED(9, x->role != TW_ROLE_OUTPUT || c->written[c->index]);
    for (const struct tw_tensor *y = x; y < c->p->tensors + c->p->n_tensors; y++) {
        if (x->role != TW_ROLE_PARAM || y->role != TW_ROLE_PARAM) {
            rows_apart(c, x, y);
        }
    }
}

/* Calls the check for each record; c->index counts them. */
#define EACH(table, name, check, ...)                                          \
    for (c->what = name, c->index = 0; c->index < c->p->n_##table; c->index++) \
        check(c, &c->p->table[c->index] __VA_ARGS__);

static void judge(struct second *c) {
    uint64_t next[3] = {0, 0, 0};
    check_shape(c);
    NEW(c->p->n_tensors, c->kept);
    NEW(c->p->n_buffers, c->uses);
    EACH(tensors, "tensor", check_tensor)
    EACH(groups, "group", check_group)
    EACH(buffers, "buffer", check_buffer)
    EACH(trips, "trip", check_trip)
    EACH(semaphores, "semaphore", check_semaphore)
    EACH(stages, "stage", check_stage)
    EACH(sections, "section", check_section, , next)
    NEED(16, c->p->n_sections && next[0] == c->p->n_buffers && next[1] == c->p->n_semaphores);
    NEED(16, next[2] == c->p->n_stages);
    second_ops(c);
    EACH(tensors, "tensor", check_bindings)
    EACH(buffers, "buffer", check_uses)
    second_steps(c);
}

struct second_verdict second_check(const struct tw_program *p, const struct tw_bind_target *rows,
                                   uint64_t n_rows) {
    struct second *c = calloc(1, sizeof *c);
    struct second_verdict v = {.unjudged = true};
    if (c) {
        *c = (struct second){.p = p, .rows = rows, .n_rows = n_rows, .what = "program"};
        if (setjmp(c->out) == 0) {
            judge(c);
        }
        v = c->verdict;
        second_free_to(c, NULL);
        free(c);
    }
    return v;
}
