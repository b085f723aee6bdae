/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a step: where ops read and write, what is defined, and races.
 */
#include "tests/second_checker/second_internal.h"

/* ---- what is defined ---- */

struct cell *second_cells(const struct second *c, uint32_t buffer) {
    const struct tw_buffer *b = &c->p->buffers[buffer];
    return c->sram[b->site * TW_MEM_CLASSES + b->mem_class] + b->offset / 4;
}

void second_data_begin(struct second *c) {
    const struct tw_program *p = c->p;
    uint64_t room[TW_MEM_CLASSES] = {0};
    for (const struct tw_buffer *b = p->buffers; b < p->buffers + p->n_buffers; b++) {
        uint64_t end = b->offset + b->pages * b->page_bytes;
        room[b->mem_class] = end > room[b->mem_class] ? end : room[b->mem_class];
    }
    NEW(p->n_sites * TW_MEM_CLASSES, c->sram);
    for (uint32_t i = 0; i < p->n_sites * TW_MEM_CLASSES; i++) {
        NEW(room[i % TW_MEM_CLASSES] / 4, c->sram[i]);
    }
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const struct tw_tensor *t = tw_buffer_pinned(p, &p->buffers[i]);
        bool ready = t && (t->role == TW_ROLE_PARAM || t->init != TW_INIT_NONE);
        struct cell *is = second_cells(c, i);
        for (uint64_t n = p->buffers[i].pages * p->buffers[i].page_bytes / 4; ready && n-- > 0;) {
            is[n] = (struct cell){.owner = i + 1, .plain = true};
        }
    }
    NEW((uint64_t)p->n_buffers + p->n_tensors, c->access);
}

/* As many rows as a trip says are defined by as many rows of the same stride, others by others.
 * Reads of a trip's rows are also served by all bytes, gaps and all, of its most rows. */
static void read_bytes(struct second *c, const struct region *x) {
    const struct cell *at = second_cells(c, x->object) + x->lo / 4, *is;
    uint64_t all = (tw_extent_span(x->e[1]) + 3) / 4;
    uint32_t owner = x->object + 1;
    bool plain = !x->trip || c->op.code == TW_OP_LAST_ROW ||
                 ALL(k, all, at[k].plain && at[k].owner == owner);
    for (uint64_t row = 0; row < x->e->rows; row++, at += x->e->stride / 4) {
        for (is = at; is < at + (x->e->row_bytes + 3) / 4; is++) {
            bool same =
                x->trip && ANY(k, 2, is->trip[k] == x->trip && is->stride[k] == x->e->stride);
            NEED(25, is->owner == owner && (same || (is->plain && plain)));
            c->verdict.limits |= (uint32_t)(is->depth > !x->moves) << 25;
        }
    }
}

/* What a loop over a trip writes to other than FIFOs is not defined, it may run no iteration; and
 * bytes that were written through another buffer are defined no longer. */
static void write_bytes(struct second *c, const struct region *x) {
    bool defines = c->p->buffers[x->object].kind == TW_BUF_FIFO ||
                   ALL(i, c->e->depth, c->e->frame[i].loop->trip == TW_NONE);
    struct cell *at = second_cells(c, x->object) + x->lo / 4, *is;
    for (uint64_t row = 0; row < x->e->rows; row++, at += x->e->stride / 4) {
        for (is = at; is < at + (x->e->row_bytes + 3) / 4; is++) {
            *is = is->owner == x->object + 1 ? *is : (struct cell){.owner = x->object + 1};
            if (defines) {
                is->plain = is->plain || !x->trip;
                bool last = !x->trip || (is->trip[0] == x->trip && is->stride[0] == x->e->stride);
                is->trip[1] = last ? is->trip[1] : is->trip[0];
                is->stride[1] = last ? is->stride[1] : is->stride[0];
                is->trip[0] = last ? is->trip[0] : x->trip;
                is->stride[0] = last ? is->stride[0] : (uint32_t)x->e->stride;
                is->depth = (uint8_t)c->e->depth;
            }
        }
    }
}

/* ---- races ---- */

/* The tensor of a region, or NULL. */
static const struct tw_tensor *tensor_of(const struct second *c, const struct region *x) {
    return x->object < c->p->n_buffers ? NULL : &c->p->tensors[x->object - c->p->n_buffers];
}

/* Whether two regions share a byte, with the step's rows or the most. Pages that tables name may be
 * any, but different columns name different ones: regions of them are compared at their places in
 * a page. */
static bool meet(const struct second *c, const struct region *a, const struct region *b, int most) {
    const struct tw_tensor *t = tensor_of(c, a);
    bool paged = t && tw_tensor_pages(t) > 0 && (a->table || b->table || !most);
    uint64_t page = paged ? tw_tensor_page_bytes(t) : 0;
    struct tw_extent x = a->e[most], y = b->e[most];
    bool other =
        a->table && b->table && (a->table != b->table || a->last < b->first || b->last < a->first);
    bool near = paged ? a->instance == b->instance
                      : a->lo < b->lo + tw_extent_span(y) && b->lo < a->lo + tw_extent_span(x);
    for (uint64_t i = 0; i < x.rows && a->object == b->object && near && !other; i++) {
        for (uint64_t k = 0; k < y.rows; k++) {
            uint64_t from = a->lo + i * x.stride, to = b->lo + k * y.stride;
            from = paged ? from % page : from;
            to = paged ? to % page : to;
            if (to - from + (to < from ? page : 0) < x.row_bytes ||
                from - to + (from < to ? page : 0) < y.row_bytes) {
                return true;
            }
        }
    }
    return false;
}

/* After a rendezvous all engines know of all accesses. */
void second_forget_accesses(struct second *c) {
    memset(c->access, 0, (c->p->n_buffers + c->p->n_tensors) * sizeof *c->access);
}

/* Whether an access was made in a loop without flags in which the engine still is. */
static bool in_one_loop(const struct engine *e, const struct group *g) {
    bool in = false;
    for (; g && !in; g = g->parent) {
        in = !g->flags && ANY(i, e->depth, e->frame[i].group == g);
    }
    return in;
}

static void access_bytes(struct second *c, const struct region *x) {
    const struct engine *e = c->e;
    struct region *same = NULL;
    for (struct region *o = c->access[x->object]; o; o = o->next) {
        bool conflict = o->engine != e->number && (o->write || x->write);
        bool apart = e->clock[o->engine] < o->clock || in_one_loop(e, o->group);
        NEED(24, !conflict || !apart || !meet(c, o, x, 0));
        c->verdict.limits |= (uint32_t)(conflict && apart) << 24;
        bool equal = o->engine == e->number && !memcmp(o, x, offsetof(struct region, engine));
        same = equal ? o : same;
    }
    if (!same) {
        NEW(1, same);
        *same = *x;
        same->engine = e->number;
        same->next = c->access[x->object];
        c->access[x->object] = same;
    }
    same->clock = e->clock[e->number];
}

static void touch(struct second *c, const struct region *x) {
    const struct tw_program *p = c->p;
    const struct tw_buffer *b = x->object < p->n_buffers ? &p->buffers[x->object] : NULL;
    if (b ? b->kind == TW_BUF_RESIDENT && !tw_buffer_param(p, b)
          : c->written[x->object - p->n_buffers]) {
        access_bytes(c, x);
    }
    if (b && x->write) {
        write_bytes(c, x);
    }
}

/* Data for other sites: a multicast writes the siblings of its group. */
static void transmit(struct second *c, struct region *x) {
    const struct tw_buffer *b = &c->p->buffers[x->object];
    struct engine *e = c->e;
    uint32_t id = c->op.operand[TW_MCAST_group].id;
    const struct tw_group *g = &c->p->groups[id];
    if (c->op.code == TW_OP_SEND) {
        touch(c, x);
        e->posted = true;
        return;
    }
    for (uint32_t i = 0; i < tw_group_size(g); i++) {
        x->object = tw_buffer_sibling(c->p, b, tw_group_site(c->p, g, i));
        touch(c, x);
    }
    e->posted = tw_group_size(g) > 1 || tw_group_site(c->p, g, 0) != e->s->site;
    e->n_sent += !e->sent[id];
    e->sent[id] = 1;
    NEED(27, e->n_sent <= SECOND_SENT);
}

/* ---- regions ---- */

static void in_buffer(struct second *c, const struct tw_operand *o, struct region *x) {
    const struct tw_buffer *b = &c->p->buffers[o->id];
    const struct tw_tensor *t = tw_buffer_pinned(c->p, b);
    struct fifo_end *end = second_end(c, c->e, o->id);
    uint64_t page = b->page_bytes, most = tw_extent_span(x->e[1]);
    struct tw_window w = {.row_bytes = page, .rows = 1};
    w = t ? tw_buffer_window(t, b) : w;
    x->object = o->id;
    x->lo = tw_affine_value(&o->offset, c->e->vars);
    NEED(7, second_inside(c, &o->offset, most, (end ? end->held : b->pages) * page));
    NEED(7, !(end || t) || tw_range_ok(x->lo % page, most, tw_window_bytes(&w)));
    if (end) {
        uint64_t at = (end->moved + x->lo / page) % b->pages;
        uint8_t *filled = &c->fifo[o->id].filled[at];
        *filled = x->write ? (uint8_t)(c->e->depth + 1) : *filled;
        x->lo = at * page + x->lo % page;
    }
}

static void in_tensor(struct second *c, const struct tw_operand *o, struct region *x) {
    const struct tw_tensor *t = &c->p->tensors[o->id];
    const struct tw_operand *pos = o->paged ? tw_op_position(&c->op) : NULL;
    x->object = c->p->n_buffers + o->id;
    x->instance = tw_affine_value(&o->instance, c->e->vars);
    x->lo = x->instance * t->bytes + tw_affine_value(&o->offset, c->e->vars);
    x->table = o->paged ? o->table + 1 : 0;
    x->first = x->last = (uint32_t)tw_affine_value(&o->element, c->e->vars);
    if (o->paged) {
        x->first = x->last = x->first % c->p->tensors[o->table].cols;
    }
    if (pos) {
        x->first += pos->id == TW_NONE ? pos->max / TW_KV_BLOCK : 0;
        x->last += (uint32_t)(((uint64_t)pos->max + pos[1].max - 1) / TW_KV_BLOCK);
    }
    if (c->op.code == TW_OP_KEY_WRITE || c->op.code == TW_OP_VALUE_WRITE) { /* heads of pages */
        struct tw_numbers_key_write v = tw_numbers_key_write(&c->op);
        uint64_t head = tw_cache_head_bytes(t), pages = o->paged ? 1 : tw_tensor_pages(t);
        x->lo += v.first * head;
        x->e[0] = x->e[1] = tw_extent_make(pages, v.heads * head, tw_tensor_page_bytes(t));
    }
}

/* What an op writes overlaps nothing else, or is exactly what it reads. */
static void check_apart(struct second *c, const struct region *w, const struct region *x,
                        bool in_place) {
    const struct tw_buffer *b = c->p->buffers;
    bool one = w->object == x->object;
    NEED(17, one || w->object >= c->p->n_buffers || x->object >= c->p->n_buffers ||
                 !second_share(&b[w->object], &b[x->object]));
    bool rows = w->e[1].rows > 1 && x->e[1].rows > 1 && w->e[1].stride != x->e[1].stride;
    c->verdict.limits |= (uint32_t)(one && (w->moves || x->moves || rows)) << 17;
    bool same = in_place && one && w->lo == x->lo && !x->write &&
                w->e->row_bytes == x->e->row_bytes && w->e->stride == x->e->stride;
    NEED(17, same || !meet(c, w, x, 1));
    /* If a table names the page of one, the other is in one page as well. */
    const struct tw_tensor *t = one && (w->table || x->table) ? tensor_of(c, w) : NULL;
    const struct region *all = w->table ? x : w;
    NEED(17, !t || all->table || all->instance != (w->table ? w : x)->instance ||
                 all->lo % tw_tensor_page_bytes(t) + tw_extent_span(all->e[1]) <=
                     tw_tensor_page_bytes(t));
}

static struct region region_of(struct second *c, const struct tw_operand *o, uint32_t n,
                               uint64_t rows) {
    const struct tw_operand *count = tw_op_rows(&c->op);
    struct region r = {
        .e = {second_extent(c, n, rows), second_extent(c, n, count ? count->max : 0)}};
    bool counted = count && second_extent(c, n, rows + 1).rows != r.e->rows;
    r.trip = counted ? count->id + 1 : 0; /* TW_NONE + 1 is 0 */
    r.moves = o->offset.n_terms > 0 || (o->paged && o->element.n_terms > 0);
    r.write = tw_letter_in("WMDU", o->kind);
    r.group = c->e->depth ? c->e->frame[c->e->depth - 1].group : NULL;
    if (second_tensor(c, o)) {
        in_tensor(c, o, &r);
    } else {
        in_buffer(c, o, &r);
    }
    return r;
}

void second_data_op(struct second *c) {
    const struct tw_operand *count = tw_op_rows(&c->op), *o;
    const struct tw_operand_info *info = tw_op_operands(c->op.code);
    uint64_t rows = !count ? 0 : count->id == TW_NONE ? count->max : c->trip[count->id];
    uint32_t n = 0, code = c->op.code;
    bool in_place = code == TW_OP_ADD || code == TW_OP_SILU_MUL || code == TW_OP_MCAST ||
                    (code >= TW_OP_GELU && code <= TW_OP_POS_SCALE) || code == TW_OP_TOPK_MERGE;
    struct region region[TW_MAX_OPERANDS];
    for (; (o = tw_op_region(&c->op, n)) != NULL; n++) {
        region[n] = region_of(c, o, n, rows);
    }
    n = count && rows == 0 ? 0 : n;
    for (uint32_t i = 0; i < n; i++) {
        o = tw_op_region(&c->op, i);
        bool page = info[o - c->op.operand].demand == TW_DEMAND_F32_PAGE;
        for (uint32_t k = 0; k < n; k++) {
            if (k != i && region[k].write) {
                check_apart(c, &region[k], &region[i], in_place && !page);
            }
        }
        if (tw_op_reads(&c->op, o) && region[i].object < c->p->n_buffers) {
            read_bytes(c, &region[i]);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (tw_op_region(&c->op, i)->kind == TW_KIND_REMOTE) {
            transmit(c, &region[i]);
        } else {
            touch(c, &region[i]);
        }
    }
}
