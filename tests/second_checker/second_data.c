/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a step: where ops read and write, what is defined, races, and memory that buffers
 * share.
 */
#include "tests/second_checker/second_internal.h"

/* A region of an op, as bytes of a buffer or tensor. */
struct region {
    uint32_t object; /* buffer, or n_buffers + tensor */
    uint64_t lo;
    struct tw_extent e, most;  /* most: with the greatest number of rows */
    bool read, write, one_row; /* one_row: of the rows only the last */
    uint32_t trip;             /* that counts its rows, or TW_NONE */
};

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
    uint32_t n = c->p->n_buffers, *list = second_alloc(c, n, sizeof *list);
    c->uses = second_alloc(c, n, sizeof *c->uses);
    for (uint32_t a = 0; a < n; a++) {
        struct uses *u = &c->uses[a];
        for (uint32_t b = 0; b < n; b++) {
            if (a != b && shares(&c->p->buffers[a], &c->p->buffers[b])) {
                list[u->n_over++] = b;
            }
        }
        u->over = second_copy(c, list, u->n_over, sizeof *list);
        if (c->p->buffers[a].tensor == TW_NONE) {
            u = lifetime(c, a);
            u->first = section_of(c, a);
            u->end = u->first + 1;
        }
    }
}

/* A buffer belongs to a section, unless it holds an Activation: that lives from the first to the
 * last section that names it. */
void second_use(struct second *c, const struct engine *e, uint32_t buffer) {
    const struct tw_buffer *b = &c->p->buffers[buffer];
    bool own = b->tensor != TW_NONE || section_of(c, buffer) == e->section;
    struct uses *l = lifetime(c, buffer);
    c->uses[buffer].engines |= (uint8_t)(b->site == e->s->site ? 1u << e->s->engine : 8u);
    NEED(26, own, "a buffer of another section");
    l->first = l->end == 0 || e->section < l->first ? e->section : l->first;
    l->end = e->section < l->end ? l->end : e->section + 1;
}

void second_uses_end(struct second *c) {
    for (uint32_t a = 0; a < c->p->n_buffers; a++) {
        const struct uses *u = &c->uses[a], *x = lifetime(c, a);
        for (uint32_t i = 0; i < u->n_over; i++) {
            const struct uses *y = lifetime(c, u->over[i]);
            uint32_t engines = u->engines | c->uses[u->over[i]].engines;
            bool one = (engines & (engines - 1)) == 0 && c->p->buffers[a].tensor == TW_NONE &&
                       c->p->buffers[u->over[i]].tensor == TW_NONE;
            const struct tw_tensor *t = tw_buffer_pinned(c->p, &c->p->buffers[a]);
            const struct tw_tensor *o = tw_buffer_pinned(c->p, &c->p->buffers[u->over[i]]);
            if ((t && !o && c->uses[u->over[i]].engines == 0) || (o && !t && u->engines == 0)) {
                continue; /* over a buffer that nobody uses */
            }
            NEED(26, !t && !o, "over a Param or State");
            NEED(26, one || x->first >= y->end || y->first >= x->end, "buffers share bytes");
        }
    }
}

/* ---- what is defined ---- */

void second_data_begin(struct second *c) {
    const struct tw_program *p = c->p;
    c->defined = second_alloc(c, p->n_buffers, sizeof *c->defined);
    c->n_tags = 0;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        uint64_t bytes = p->buffers[i].pages * p->buffers[i].page_bytes;
        c->defined[i] = second_alloc(c, bytes / 4, 1);
        const struct tw_tensor *t = tw_buffer_pinned(p, &p->buffers[i]);
        if (t && (t->role == TW_ROLE_PARAM || t->init != TW_INIT_NONE)) {
            memset(c->defined[i], 1, bytes / 4);
        }
    }
    c->access = second_alloc(c, (size_t)p->n_buffers + p->n_tensors, sizeof *c->access);
}

/* As many rows as a trip says are defined by as many rows of the same stride, others by others. */
static uint8_t tag_of(struct second *c, const struct region *x) {
    uint32_t stride = (uint32_t)x->e.stride, i = 0;
    while (i < c->n_tags && (c->tag[i][0] != x->trip || c->tag[i][1] != stride)) {
        i++;
    }
    if (i == c->n_tags && x->trip != TW_NONE && i < SECOND_TAGS) {
        c->tag[i][0] = x->trip;
        c->tag[i][1] = stride;
        c->n_tags++;
    }
    return x->trip == TW_NONE ? 1 : (uint8_t)(i * 2 + 2);
}

/* What a loop over a trip defines is forgotten when it is over. */
static void note_made(struct second *c, const struct engine *e, uint32_t buffer, uint64_t at) {
    uint32_t i = e->depth;
    while (i > 0 && e->frame[i - 1].loop->trip == TW_NONE) {
        i--;
    }
    struct group *g = i ? e->frame[i - 1].group : NULL;
    if (g && g->made && g->made->buffer == buffer && g->made->at + g->made->n == at) {
        g->made->n++;
    } else if (g) {
        struct bytes *m = second_alloc(c, 1, sizeof *m);
        *m = (struct bytes){g->made, buffer, at, 1};
        g->made = m;
    }
}

/* Bytes that were written through another buffer are defined no longer. */
static void forget(struct second *c, uint32_t buffer, uint64_t lo, uint64_t bytes) {
    uint64_t from = c->p->buffers[buffer].offset + lo;
    for (uint32_t i = 0; i < c->uses[buffer].n_over; i++) {
        uint32_t other = c->uses[buffer].over[i];
        const struct tw_buffer *o = &c->p->buffers[other];
        for (uint64_t at = from; at < from + bytes; at += 4) {
            if (at >= o->offset && at < o->offset + o->pages * o->page_bytes) {
                c->defined[other][(at - o->offset) / 4] = 0;
            }
        }
    }
}

/* Defines the bytes of a region, or demands that they are defined. */
static void define(struct second *c, const struct engine *e, const struct region *x, bool write) {
    uint8_t tag = tag_of(c, x), *is = c->defined[x->object];
    for (uint64_t row = 0; row < x->e.rows; row++) {
        uint64_t lo = x->lo + row * x->e.stride;
        for (uint64_t at = lo / 4; at < (lo + x->e.row_bytes + 3) / 4; at++) {
            uint8_t has = tag == 1 ? is[at] & 1 : is[at] & 254;
            bool is_one = x->one_row && (is[at] & 1);
            NEED(25, write || has == tag || is_one, "reads bytes that were not written");
            if (write && is[at] == 0) {
                note_made(c, e, x->object, at);
            }
            if (write) {
                is[at] = (uint8_t)(tag == 1 ? is[at] | 1 : (is[at] & 1) | tag);
            }
        }
        if (write) {
            forget(c, x->object, lo, x->e.row_bytes);
        }
    }
}

/* ---- races ---- */

/* Whether rows of bytes share one. */
static bool meet(uint64_t a, const struct tw_extent *x, uint64_t b, const struct tw_extent *y) {
    bool near = a < b + tw_extent_span(*y) && b < a + tw_extent_span(*x);
    for (uint64_t i = 0; i < x->rows && near; i++) {
        uint64_t lo = a + i * x->stride, hi = lo + x->row_bytes, k = 0;
        if (y->stride > 0 && lo > b + y->row_bytes) {
            k = (lo - b - y->row_bytes) / y->stride;
        }
        for (; k < y->rows && b + k * y->stride < hi; k++) {
            if (b + k * y->stride + y->row_bytes > lo) {
                return true;
            }
        }
    }
    return false;
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
    for (uint32_t i = 0; i < c->p->n_buffers + c->p->n_tensors; i++) {
        c->access[i].n = 0;
    }
}

static void access_bytes(struct second *c, struct engine *e, const struct region *x) {
    struct accesses *l = &c->access[x->object];
    struct access a = {x->lo,     x->e,
                       e->number, e->clock[e->number],
                       x->write,  e->depth ? e->frame[e->depth - 1].group : NULL};
    struct access *same = NULL;
    for (uint32_t i = 0; i < l->n; i++) {
        struct access *o = &l->a[i];
        if (o->engine != a.engine && (o->write || a.write) && meet(o->lo, &o->e, a.lo, &a.e)) {
            NEED(24, e->clock[o->engine] >= o->clock, "a race");
            NEED(24, !in_one_loop(e, o->group), "a conflict in one open loop");
        }
        bool equal = o->engine == a.engine && o->write == a.write && o->group == a.group;
        same = equal && o->lo == a.lo && !memcmp(&o->e, &a.e, sizeof a.e) ? o : same;
    }
    if (same) {
        same->clock = a.clock;
        return;
    }
    if (l->n == l->room) {
        struct access *more = second_alloc(c, l->room * 2 + 16, sizeof *more);
        l->a = l->n ? memcpy(more, l->a, l->n * sizeof *more) : more;
        l->room = l->room * 2 + 16;
    }
    l->a[l->n++] = a;
}

static void touch(struct second *c, struct engine *e, const struct region *x) {
    const struct tw_program *p = c->p;
    const struct tw_buffer *b = x->object < p->n_buffers ? &p->buffers[x->object] : NULL;
    if (b ? b->kind == TW_BUF_RESIDENT && !tw_buffer_param(p, b)
          : c->written[x->object - p->n_buffers]) {
        access_bytes(c, e, x);
    }
    if (b) {
        second_use(c, e, x->object);
    }
    if (b && x->write) {
        NEED(26, !tw_buffer_param(p, b), "writes a Param");
        define(c, e, x, true);
    }
}

/* ---- regions ---- */

/* The least and the greatest value up to each open loop's maximum; false if one is out of range. */
static bool extremes(const struct engine *e, const struct tw_affine *a, int64_t *lo, int64_t *hi) {
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
    uint64_t at = tw_affine_value(&o->offset, e->vars), room = b->pages * b->page_bytes;
    bool producer = e->s->engine == b->producer, fifo = b->kind == TW_BUF_FIFO;
    int64_t lo, hi;
    room = !fifo ? room : (producer ? f->reserved : f->waited) * b->page_bytes;
    NEED(7, extremes(e, &o->offset, &lo, &hi), "an offset out of range");
    NEED(7, tw_range_ok((uint64_t)hi, most, room), "outside a buffer, or the pages held");
    const struct tw_tensor *t = tw_buffer_pinned(c->p, b);
    struct tw_window w = {0, 0, b->page_bytes, 1};
    w = t ? tw_buffer_window(t, b) : w;
    bool paged = fifo || t;
    NEED(7, !paged || tw_range_ok(at % b->page_bytes, most, tw_window_bytes(&w)), "several pages");
    x->object = o->id;
    x->lo = at;
    if (fifo) {
        uint64_t page = ((producer ? f->pushed : f->popped) + at / b->page_bytes) % b->pages;
        x->lo = page * b->page_bytes + at % b->page_bytes;
        f->filled[page] |= o->kind != 'R';
    }
}

static void in_tensor(struct second *c, struct engine *e, const struct tw_op *op,
                      const struct tw_operand *o, struct region *x, uint64_t most) {
    const struct tw_tensor *t = &c->p->tensors[o->id];
    int64_t lo, hi;
    NEED(8, !o->paged, "a page of a table: not judged yet");
    NEED(8, extremes(e, &o->instance, &lo, &hi) && hi < t->bind_count, "no such instance");
    NEED(8, extremes(e, &o->offset, &lo, &hi), "an offset out of range");
    NEED(8, tw_range_ok((uint64_t)hi, most, t->bytes), "outside a tensor");
    x->object = c->p->n_buffers + o->id;
    x->lo = tw_affine_value(&o->instance, e->vars) * t->bytes;
    x->lo += tw_affine_value(&o->offset, e->vars);
    if (op->code == TW_OP_KEY_WRITE || op->code == TW_OP_VALUE_WRITE) {
        struct tw_numbers_key_write v = tw_numbers_key_write(op); /* only these heads */
        x->lo += v.first * tw_cache_head_bytes(t);
        x->e = tw_extent_make(1, v.heads * tw_cache_head_bytes(t), 0);
    }
    bool ready = t->role == TW_ROLE_PARAM || t->role == TW_ROLE_INPUT || t->init != TW_INIT_NONE;
    NEED(25, x->write || ready, "reads a tensor without initial value");
}

/* A block of an attention is inside the longest cache, and in a segment of the state, or a later one
 * for which a state of two makes room. */
static void check_block(struct second *c, const struct engine *e, const struct tw_op *op) {
    const struct tw_affine *block = &op->operand[TW_ATTN_STEP_block].offset;
    int64_t lo, hi, most = 0, first = op->operand[TW_ATTN_STEP_segment].id;
    uint32_t segments = op->operand[TW_ATTN_STEP_segments].id;
    for (uint32_t i = 0; i < c->p->n_tensors; i++) {
        const struct tw_tensor *t = &c->p->tensors[i];
        most = t->packing == TW_PACK_KEYS && t->rows > most ? t->rows : most;
    }
    NEED(8, extremes(e, block, &lo, &hi) && hi < most / TW_KV_BLOCK, "a block outside the caches");
    NEED(10, lo / 8 >= first && (segments == 2 || hi / 8 < first + segments), "segments");
}

/* What an op writes overlaps nothing else, or is exactly what it reads. */
static void check_apart(struct second *c, const struct tw_op *op, const struct region *w,
                        const struct region *x) {
    bool in_place = op->code == TW_OP_ADD || op->code == TW_OP_SILU_MUL || op->code == TW_OP_MCAST;
    if (w->object >= c->p->n_buffers || x->object >= c->p->n_buffers) {
        return;
    }
    bool share = shares(&c->p->buffers[w->object], &c->p->buffers[x->object]);
    NEED(17, w->object == x->object || !share, "uses two buffers that share bytes");
    bool same = in_place && w->lo == x->lo && w->e.row_bytes == x->e.row_bytes && !x->write &&
                w->e.stride == x->e.stride;
    NEED(17, w->object != x->object || same || !meet(w->lo, &w->most, x->lo, &x->most), "overlap");
}

static void multicast(struct second *c, struct engine *e, const struct tw_op *op,
                      struct region *x) {
    const struct tw_group *g = &c->p->groups[op->operand[TW_MCAST_group].id];
    const struct tw_buffer *b = &c->p->buffers[x->object];
    for (uint32_t i = 0; i < tw_group_size(&c->p->groups[b->group]); i++) {
        const struct tw_buffer *m = &c->p->buffers[b->sibling_base + i];
        NEED(26, !tw_buffer_pinned(c->p, m), "a multicast to a set that keeps a Param");
        NEED(26, (m->tensor == TW_NONE) == (b->tensor == TW_NONE), "siblings of two kinds");
        second_use(c, e, b->sibling_base + i);
        c->uses[b->sibling_base + i].engines |= 24; /* of other sites */
    }
    for (uint32_t i = 0; i < tw_group_size(g); i++) {
        x->object = tw_buffer_sibling(c->p, b, tw_group_site(c->p, g, i));
        touch(c, e, x);
    }
    NEED(27, e->n_sent < 16, "many multicasts without a flag");
    e->sent[e->n_sent++] = op->operand[TW_MCAST_group].id;
}

void second_data_op(struct second *c, struct engine *e, const struct tw_op *op) {
    const struct tw_operand *count = tw_op_rows(op), *o, *x = tw_op_region(op, 0);
    uint64_t rows = !count ? 0 : count->id == TW_NONE ? count->max : c->trip[count->id];
    unsigned x_dtype = x->kind == 'R' ? c->p->buffers[x->id].dtype : 0;
    struct region region[TW_MAX_OPERANDS];
    uint32_t n = 0;
    for (; (o = tw_op_region(op, n)) != NULL; n++) {
        const struct tw_tensor *t = tw_letter_in("TU", o->kind) ? &c->p->tensors[o->id] : NULL;
        struct region *r = &region[n];
        r->e = tw_op_extent(op, n, rows, x_dtype, t);
        r->read = tw_op_reads(op, o);
        r->one_row = op->code == TW_OP_LAST_ROW;
        r->write = tw_letter_in("WMU", o->kind);
        bool counted = tw_op_extent(op, n, rows + 1, x_dtype, t).rows != r->e.rows;
        r->trip = count && counted ? count->id : TW_NONE;
        r->most = tw_op_extent(op, n, count ? count->max : 0, x_dtype, t);
        uint64_t most = tw_extent_span(r->most);
        if (t) {
            in_tensor(c, e, op, o, r, most);
        } else {
            in_buffer(c, e, o, r, most);
        }
    }
    if (op->code == TW_OP_ATTN_STEP) {
        check_block(c, e, op);
    }
    for (uint32_t i = 0; i < n && !(count && rows == 0); i++) {
        for (uint32_t k = 0; k < n && region[i].write; k++) {
            if (k != i) {
                check_apart(c, op, &region[i], &region[k]);
            }
        }
        if (region[i].read && region[i].object < c->p->n_buffers) {
            define(c, e, &region[i], false);
        }
    }
    for (uint32_t i = 0; i < n && !(count && rows == 0); i++) {
        if (op->code == TW_OP_MCAST && region[i].write) {
            multicast(c, e, op, &region[i]);
        } else {
            touch(c, e, &region[i]);
        }
    }
}
