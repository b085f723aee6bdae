/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a step: where ops read and write, what is defined, races, and memory that buffers
 * share.
 */
#include "tests/second_checker/second_internal.h"

/* ---- memory that buffers share ---- */

static bool shares(const struct tw_buffer *a, const struct tw_buffer *b) {
    return a->site == b->site && a->mem_class == b->mem_class &&
           a->offset < b->offset + b->pages * b->page_bytes &&
           b->offset < a->offset + a->pages * a->page_bytes;
}

/* Of a set of siblings, the first stands for all. */
static struct uses *lifetime(const struct second *c, uint32_t buffer) {
    uint32_t base = c->p->buffers[buffer].sibling_base;
    return &c->uses[base == TW_NONE ? buffer : base];
}

static uint32_t section_of(const struct second *c, uint32_t buffer) {
    const struct tw_section *s = c->p->sections;
    uint32_t i = 0;
    while (buffer >= s[i].first_buffer + s[i].n_buffers) {
        i++;
    }
    return i;
}

void second_uses_begin(struct second *c) {
    uint32_t n = c->p->n_buffers;
    c->uses = second_alloc(c, n, sizeof *c->uses);
    for (uint32_t a = 0; a < n; a++) {
        struct uses *u = &c->uses[a];
        for (int fill = 0; fill < 2; fill++) {
            u->over = fill ? second_alloc(c, u->n_over, sizeof *u->over) : NULL;
            u->n_over = 0;
            for (uint32_t b = 0; b < n; b++) {
                if (a != b && shares(&c->p->buffers[a], &c->p->buffers[b])) {
                    u->n_over++;
                    if (fill) {
                        u->over[u->n_over - 1] = b;
                    }
                }
            }
        }
        if (c->p->buffers[a].tensor == TW_NONE) {
            u = lifetime(c, a);
            u->first = section_of(c, a);
            u->end = u->first + 1;
        }
    }
}

/* A buffer belongs to a section, unless it holds a tensor: an Activation lives from the first to
 * the last section that names it. */
void second_use(struct second *c, const struct engine *e, uint32_t buffer) {
    struct uses *u = &c->uses[buffer], *l = lifetime(c, buffer);
    bool own = c->p->buffers[buffer].tensor != TW_NONE || section_of(c, buffer) == e->section;
    NEED(26, own, "a buffer of another section");
    u->engine = u->engine == 0 || u->engine == e->number + 1 ? e->number + 1 : SECOND_MANY;
    l->first = l->end == 0 || e->section < l->first ? e->section : l->first;
    l->end = e->section < l->end ? l->end : e->section + 1;
}

void second_uses_end(struct second *c) {
    for (uint32_t a = 0; a < c->p->n_buffers; a++) {
        const struct uses *u = &c->uses[a], *x = lifetime(c, a);
        for (uint32_t i = 0; i < u->n_over; i++) {
            uint32_t b = u->over[i];
            const struct uses *v = &c->uses[b], *y = lifetime(c, b);
            const struct tw_buffer *p = &c->p->buffers[a], *q = &c->p->buffers[b];
            bool one = u->engine != SECOND_MANY && v->engine != SECOND_MANY &&
                       (!u->engine || !v->engine || u->engine == v->engine) &&
                       p->tensor == TW_NONE && q->tensor == TW_NONE;
            bool keeps = tw_buffer_pinned(c->p, p), other = tw_buffer_pinned(c->p, q);
            bool unused = (keeps && !other && !v->engine) || (other && !keeps && !u->engine);
            NEED(26, unused || (!keeps && !other), "over a Param or State");
            NEED(26, unused || one || x->first >= y->end || y->first >= x->end, "share bytes");
        }
    }
}

/* ---- what is defined ---- */

void second_data_begin(struct second *c) {
    const struct tw_program *p = c->p;
    c->cells = second_alloc(c, p->n_buffers, sizeof *c->cells);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        uint64_t bytes = p->buffers[i].pages * p->buffers[i].page_bytes;
        const struct tw_tensor *t = tw_buffer_pinned(p, &p->buffers[i]);
        bool ready = t && (t->role == TW_ROLE_PARAM || t->init != TW_INIT_NONE);
        c->cells[i] = second_alloc(c, bytes / 4, sizeof **c->cells);
        for (uint64_t k = 0; k < bytes / 4 && ready; k++) {
            c->cells[i][k].plain = true;
        }
    }
    c->access = second_alloc(c, (uint64_t)p->n_buffers + p->n_tensors, sizeof(struct access *));
}

/* Bytes that were written through another buffer are defined no longer. */
static void forget(struct second *c, uint32_t buffer, uint64_t lo, uint64_t bytes) {
    uint64_t from = c->p->buffers[buffer].offset + lo;
    for (uint32_t i = 0; i < c->uses[buffer].n_over; i++) {
        const struct tw_buffer *o = &c->p->buffers[c->uses[buffer].over[i]];
        for (uint64_t at = from; at < from + bytes; at += 4) {
            if (at >= o->offset && at < o->offset + o->pages * o->page_bytes) {
                c->cells[c->uses[buffer].over[i]][(at - o->offset) / 4] = (struct cell){0};
            }
        }
    }
}

/* As many rows as a trip says are defined by as many rows of the same stride, others by others.
 * Reads of a trip's rows are also served by all bytes, gaps and all, of its most rows. */
static void read_bytes(struct second *c, const struct region *x) {
    const struct cell *at = c->cells[x->object] + x->lo / 4, *is;
    uint64_t n = (tw_extent_span(x->trip ? x->most : x->e) + x->lo % 4 + 3) / 4, plain = 0;
    for (; plain < n && x->trip && at[plain].plain; plain++) {
    }
    for (uint64_t row = 0; row < x->e.rows; row++) {
        uint64_t lo = x->lo % 4 + row * x->e.stride;
        for (is = at + lo / 4; is < at + (lo + x->e.row_bytes + 3) / 4; is++) {
            bool same = is->trip == x->trip && is->stride == x->e.stride;
            bool other = is->plain && (!x->trip || plain == n || x->one_row);
            NEED(25, (same && x->trip) || other, "reads bytes that were not written");
            c->verdict.limits |= (uint32_t)(is->depth > !x->moves) << 25;
        }
    }
}

/* What a loop over a trip writes to other than FIFOs is not defined, it may run no iteration. */
static void write_bytes(struct second *c, const struct engine *e, const struct region *x) {
    bool dynamic = false;
    for (uint32_t i = 0; i < e->depth; i++) {
        dynamic = dynamic || e->frame[i].loop->trip != TW_NONE;
    }
    dynamic = dynamic && c->p->buffers[x->object].kind != TW_BUF_FIFO;
    for (uint64_t row = 0; row < x->e.rows; row++) {
        uint64_t lo = x->lo + row * x->e.stride, end = lo + x->e.row_bytes;
        for (uint64_t at = lo / 4; at < (end + 3) / 4 && !dynamic; at++) {
            struct cell *is = &c->cells[x->object][at];
            is->plain = is->plain || !x->trip;
            is->trip = x->trip ? x->trip : is->trip;
            is->stride = x->trip ? (uint32_t)x->e.stride : is->stride;
            is->depth = (uint8_t)e->depth;
        }
        forget(c, x->object, lo, x->e.row_bytes);
    }
}

/* ---- races ---- */

/* Whether two regions share a byte; `page`, if not 0: at their places in a page of so many. */
static bool rows_meet(uint64_t lo, struct tw_extent x, uint64_t at, struct tw_extent y,
                      uint64_t page) {
    bool near = page || (lo < at + tw_extent_span(y) && at < lo + tw_extent_span(x));
    for (uint64_t i = 0; i < x.rows && near; i++) {
        for (uint64_t k = 0; k < y.rows; k++) {
            uint64_t a = lo + i * x.stride, b = at + k * y.stride;
            if (page ? (b % page + page - a % page) % page < x.row_bytes ||
                           (a % page + page - b % page) % page < y.row_bytes
                     : a < b + y.row_bytes && b < a + x.row_bytes) {
                return true;
            }
        }
    }
    return false;
}

/* Pages that tables name may be any, but different elements name different ones. */
static bool meet(const struct second *c, const struct region *a, const struct region *b,
                 bool most) {
    bool tensor = a->object >= c->p->n_buffers, tables = a->table || b->table;
    const struct tw_tensor *t = tensor ? &c->p->tensors[a->object - c->p->n_buffers] : NULL;
    bool paged = tensor && tw_tensor_pages(t) > 0 && (tables || !most);
    if (a->object != b->object || (paged && a->instance != b->instance) ||
        (a->table && b->table &&
         (a->table != b->table || a->last < b->first || b->last < a->first))) {
        return false;
    }
    uint64_t page = paged ? tw_tensor_page_bytes(t) : 0;
    return rows_meet(a->lo, most ? a->most : a->e, b->lo, most ? b->most : b->e, page);
}

/* Whether an access was made in a loop without flags in which the engine still is. */
static bool in_one_loop(const struct engine *e, const struct group *g) {
    for (; g; g = g->parent) {
        for (uint32_t i = 0; i < e->depth && !g->flags; i++) {
            if (e->frame[i].group == g) {
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

static void access_bytes(struct second *c, struct engine *e, const struct region *x) {
    const struct group *group = e->depth ? e->frame[e->depth - 1].group : NULL;
    struct access *same = NULL;
    for (struct access *o = c->access[x->object]; o; o = o->next) {
        bool conflict = o->engine != e->number && (o->r.write || x->write);
        bool apart = e->clock[o->engine] < o->clock || in_one_loop(e, o->group);
        NEED(24, !conflict || !apart || !meet(c, &o->r, x, false), "a race");
        c->verdict.limits |= (uint32_t)(conflict && apart) << 24;
        bool equal = o->engine == e->number && o->group == group && !memcmp(&o->r, x, sizeof *x);
        same = equal ? o : same;
    }
    if (!same) {
        same = second_alloc(c, 1, sizeof *same);
        *same = (struct access){c->access[x->object], *x, e->number, 0, group};
        c->access[x->object] = same;
    }
    same->clock = e->clock[e->number];
}

static void touch(struct second *c, struct engine *e, const struct region *x) {
    const struct tw_program *p = c->p;
    const struct tw_buffer *b = x->object < p->n_buffers ? &p->buffers[x->object] : NULL;
    bool shared = b ? b->kind == TW_BUF_RESIDENT && !tw_buffer_param(p, b)
                    : c->written[x->object - p->n_buffers];
    if (shared && x->e.rows > 0) {
        access_bytes(c, e, x);
    }
    if (b) {
        second_use(c, e, x->object);
    }
    if (b && x->write) {
        NEED(26, !tw_buffer_param(p, b), "writes a Param");
        write_bytes(c, e, x);
    }
}

/* ---- regions ---- */

bool second_extremes(const struct engine *e, const struct tw_affine *a, int64_t *lo, int64_t *hi) {
    bool fits = true;
    *lo = *hi = (int64_t)a->base;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        int64_t most = 0;
        for (uint32_t k = 0; k < e->depth; k++) {
            const struct loop *l = e->frame[k].loop;
            if (e->s->words[l->head + 2] == a->term[i].var) {
                fits = fits && !__builtin_mul_overflow((int64_t)a->term[i].step,
                                                       (int64_t)l->max - 1, &most);
            }
        }
        fits = fits && !__builtin_add_overflow(*lo, most < 0 ? most : 0, lo) &&
               !__builtin_add_overflow(*hi, most > 0 ? most : 0, hi);
    }
    return fits && *lo >= 0;
}

/* `most` is what the op touches with the greatest number of rows. */
static void in_buffer(struct second *c, struct engine *e, const struct tw_operand *o,
                      struct region *x, uint64_t most) {
    const struct tw_buffer *b = &c->p->buffers[o->id];
    const struct fifo *f = &c->fifo[o->id];
    const struct tw_tensor *t = tw_buffer_pinned(c->p, b);
    bool producer = e->s->engine == b->producer, fifo = b->kind == TW_BUF_FIFO;
    uint64_t held = !fifo ? b->pages : producer ? f->reserved : f->waited, page = b->page_bytes;
    struct tw_window w = {0, 0, page, 1};
    int64_t lo, hi;
    w = t ? tw_buffer_window(t, b) : w;
    NEED(7, second_extremes(e, &o->offset, &lo, &hi), "an offset out of range");
    NEED(7, tw_range_ok((uint64_t)hi, most, held * page), "outside a buffer, or the pages held");
    x->object = o->id;
    x->lo = tw_affine_value(&o->offset, e->vars);
    NEED(7, !(fifo || t) || tw_range_ok(x->lo % page, most, tw_window_bytes(&w)), "several pages");
    if (fifo) {
        uint64_t first = producer ? f->pushed : f->popped, at = (first + x->lo / page) % b->pages;
        x->lo = at * page + x->lo % page;
        f->filled[at] = o->kind == 'R' ? f->filled[at] : (uint8_t)(e->depth + 1);
    }
}

/* The elements of the table are in one row of it: multiples of a row's length choose the row. */
static void in_table(struct second *c, struct engine *e, const struct tw_op *op,
                     const struct tw_operand *o, struct region *x) {
    const struct tw_tensor *t = &c->p->tensors[o->table];
    const struct tw_operand *pos = tw_op_position(op);
    struct tw_affine in_row = {.base = o->element.base % t->cols};
    uint64_t first = tw_affine_value(&o->element, e->vars), more = 0, from = 0;
    int64_t lo, hi, low, high;
    if (pos) {
        from = pos->id == TW_NONE ? pos->max / TW_KV_BLOCK : 0;
        more = ((uint64_t)pos->max + tw_op_rows(op)->max - 1) / TW_KV_BLOCK;
    }
    for (uint32_t i = 0; i < o->element.n_terms; i++) {
        bool moves = (int64_t)o->element.term[i].step % (int64_t)t->cols != 0;
        in_row.term[in_row.n_terms] = o->element.term[i];
        in_row.n_terms += moves;
    }
    NEED(8, second_extremes(e, &in_row, &lo, &hi) && (uint64_t)hi + more < t->cols, "a row");
    NEED(8, second_extremes(e, &o->element, &low, &high), "an element out of range");
    NEED(8, (uint64_t)high + more < (uint64_t)t->rows * t->cols, "no such element of a table");
    x->table = o->table + 1;
    x->first = (uint32_t)(first + from);
    x->last = (uint32_t)(first + more);
}

static void in_tensor(struct second *c, struct engine *e, const struct tw_op *op,
                      const struct tw_operand *o, struct region *x, uint64_t most) {
    const struct tw_tensor *t = &c->p->tensors[o->id];
    bool cache = op->code == TW_OP_KEY_WRITE || op->code == TW_OP_VALUE_WRITE;
    uint64_t room = o->paged && !cache ? tw_tensor_page_bytes(t) : t->bytes;
    int64_t lo, hi;
    NEED(8, second_extremes(e, &o->instance, &lo, &hi) && hi < t->bind_count, "no such instance");
    NEED(8, second_extremes(e, &o->offset, &lo, &hi), "an offset out of range");
    NEED(8, tw_range_ok((uint64_t)hi, most, room), "outside a tensor or page");
    x->object = c->p->n_buffers + o->id;
    x->instance = tw_affine_value(&o->instance, e->vars);
    x->lo = x->instance * t->bytes + tw_affine_value(&o->offset, e->vars);
    if (o->paged) {
        in_table(c, e, op, o, x);
    }
    if (cache) { /* only these heads of each page */
        struct tw_numbers_key_write v = tw_numbers_key_write(op);
        uint64_t head = tw_cache_head_bytes(t);
        x->lo += v.first * head;
        x->e = x->most = tw_extent_make(o->paged ? 1 : tw_tensor_pages(t), v.heads * head,
                                        tw_tensor_page_bytes(t));
    }
    bool ready = t->role == TW_ROLE_PARAM || t->role == TW_ROLE_INPUT || t->init != TW_INIT_NONE;
    NEED(25, x->write || ready, "reads a tensor without initial value");
}

/* A block of an attention is inside the longest cache, and in a segment of the state, or a later
 * one for which a state of two makes room. */
static void check_block(struct second *c, const struct engine *e, const struct tw_op *op) {
    const struct tw_affine *block = &op->operand[TW_ATTN_STEP_block].offset;
    int64_t lo, hi, most = 0, first = op->operand[TW_ATTN_STEP_segment].id;
    uint32_t segments = op->operand[TW_ATTN_STEP_segments].id;
    for (uint32_t i = 0; i < c->p->n_tensors; i++) {
        const struct tw_tensor *t = &c->p->tensors[i];
        most = t->packing == TW_PACK_KEYS && t->rows > most ? t->rows : most;
    }
    NEED(8, second_extremes(e, block, &lo, &hi) && hi < most / TW_KV_BLOCK, "outside the caches");
    NEED(10, lo / 8 >= first && (segments == 2 || hi / 8 < first + segments), "segments");
}

/* What an op writes overlaps nothing else, or is exactly what it reads. */
static void check_apart(struct second *c, const struct tw_op *op, const struct region *w,
                        const struct region *x) {
    bool in_place = op->code == TW_OP_ADD || op->code == TW_OP_SILU_MUL ||
                    (op->code >= TW_OP_GELU && op->code <= TW_OP_POS_SCALE) ||
                    op->code == TW_OP_MCAST || op->code == TW_OP_TOPK_MERGE;
    const struct tw_buffer *b = c->p->buffers;
    bool buffers = w->object < c->p->n_buffers && x->object < c->p->n_buffers;
    bool share = buffers && w->object != x->object && shares(&b[w->object], &b[x->object]);
    NEED(17, !share, "uses two buffers that share bytes");
    bool rows = w->most.rows > 1 && x->most.rows > 1 && w->most.stride != x->most.stride;
    bool unlike = w->object == x->object && (w->moves || x->moves || rows);
    c->verdict.limits |= (uint32_t)unlike << 17;
    bool same = in_place && !x->vector && w->object == x->object && w->lo == x->lo && !x->write &&
                w->e.row_bytes == x->e.row_bytes && w->e.stride == x->e.stride;
    NEED(17, same || !meet(c, w, x, true), "overlap");
}

/* Data for other sites: a multicast writes all siblings of the group. */
static void transmit(struct second *c, struct engine *e, const struct tw_op *op, struct region *x) {
    const struct tw_buffer *b = &c->p->buffers[x->object];
    e->posted = true;
    if (op->code == TW_OP_SEND) {
        touch(c, e, x);
        c->uses[x->object].engine = SECOND_MANY; /* of other sites */
        return;
    }
    const struct tw_group *g = &c->p->groups[op->operand[TW_MCAST_group].id];
    for (uint32_t i = 0; i < tw_group_size(&c->p->groups[b->group]); i++) {
        const struct tw_buffer *m = &c->p->buffers[b->sibling_base + i];
        NEED(26, !tw_buffer_pinned(c->p, m), "a multicast to a set that keeps a Param");
        NEED(26, (m->tensor == TW_NONE) == (b->tensor == TW_NONE), "siblings of two kinds");
        second_use(c, e, b->sibling_base + i);
        c->uses[b->sibling_base + i].engine = SECOND_MANY;
    }
    e->posted = tw_group_size(g) > 1 || tw_group_site(c->p, g, 0) != e->s->site;
    for (uint32_t i = 0; i < tw_group_size(g); i++) {
        x->object = tw_buffer_sibling(c->p, b, tw_group_site(c->p, g, i));
        touch(c, e, x);
    }
    uint32_t id = op->operand[TW_MCAST_group].id, k = 0;
    while (k < e->n_sent && e->sent[k] != id) {
        k++;
    }
    NEED(27, k < SECOND_SENT, "multicasts to many groups without a flag");
    e->sent[k] = id;
    e->n_sent += k == e->n_sent;
}

void second_data_op(struct second *c, struct engine *e, const struct tw_op *op) {
    const struct tw_operand *count = tw_op_rows(op), *o;
    uint64_t rows = !count ? 0 : count->id == TW_NONE ? count->max : c->trip[count->id];
    struct region region[TW_MAX_OPERANDS] = {0};
    uint32_t n = 0, x = second_x_dtype(c, op);
    for (; (o = tw_op_region(op, n)) != NULL; n++) {
        const struct tw_tensor *t = second_tensor(c, o);
        struct region *r = &region[n];
        r->e = tw_op_extent(op, n, rows, x, t);
        r->e.rows = count && rows == 0 ? 0 : r->e.rows;
        r->most = tw_op_extent(op, n, count ? count->max : 0, x, t);
        r->moves = o->offset.n_terms > 0 || (o->paged && o->element.n_terms > 0);
        r->one_row = op->code == TW_OP_LAST_ROW;
        r->write = tw_letter_in("WMDU", o->kind);
        r->vector = tw_op_operands(op->code)[o - op->operand].demand == TW_DEMAND_F32_PAGE;
        bool counted = tw_op_extent(op, n, rows + 1, x, t).rows != r->e.rows;
        r->trip = count && counted ? count->id + 1 : 0; /* TW_NONE + 1 is 0 */
        if (t) {
            in_tensor(c, e, op, o, r, tw_extent_span(r->most));
        } else {
            in_buffer(c, e, o, r, tw_extent_span(r->most));
        }
    }
    bool below = count && count->id != TW_NONE && c->p->trips[count->id].max < count->max;
    c->verdict.limits |= below ? 3u << 24 : 0;
    if (op->code == TW_OP_ATTN_STEP || op->code == TW_OP_ATTN_WINDOW) {
        check_block(c, e, op);
    }
    if (op->code == TW_OP_TOPK) {
        int64_t lo, hi, cols = op->operand[TW_TOPK_cols].id;
        bool ids = second_extremes(e, &op->operand[TW_TOPK_base].offset, &lo, &hi);
        NEED(10, ids && hi <= 0x7FFFFFFF - cols, "ids of columns");
    }
    for (uint32_t i = 0; i < n && !(count && rows == 0); i++) {
        for (uint32_t k = 0; k < n && region[i].write; k++) {
            if (k != i) {
                check_apart(c, op, &region[i], &region[k]);
            }
        }
        if (tw_op_reads(op, tw_op_region(op, i)) && region[i].object < c->p->n_buffers) {
            read_bytes(c, &region[i]);
        }
    }
    for (uint32_t i = 0; i < n && !(count && rows == 0); i++) {
        if (tw_op_region(op, i)->kind == 'D') {
            transmit(c, e, op, &region[i]);
        } else {
            touch(c, e, &region[i]);
        }
    }
}
