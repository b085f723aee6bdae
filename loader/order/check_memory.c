/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory accesses: reads of written bytes (rule 25), buffers of other sections (26); conflicts (24)
 * are found in check_races.c. Regions are kept as rectangles, rows times columns, over all
 * iterations of the open loops; a rectangle that has gaps counts whole for conflicts and not at all
 * as written. FIFO pages belong to one engine at a time, so only their content is followed.
 */
#include "loader/base/assert.h"
#include "loader/order/check_internal.h"
#include "tilewright/range.h"

#include <stdlib.h>

/* ---- rectangles ---- */

/* Returns an operand's rows: a count that the op names, or a constant. One row, or rows without
 * gaps, is a run of bytes. */
static struct tw_ck_rect rows_of(const struct tw_checker *c, uint32_t n, unsigned x_dtype,
                                 const struct tw_tensor *t) {
    struct tw_extent one = tw_op_extent(&c->op, n, 1, x_dtype, t),
                     two = tw_op_extent(&c->op, n, 2, x_dtype, t);
    struct tw_ck_rect r = {0, one.row_bytes, one.stride, TW_NONE, (uint32_t)one.rows, true};
    if (one.rows != two.rows) {
        const struct tw_operand *rows = tw_op_rows(&c->op);
        TW_ASSERT(rows); /* else the extent could not depend on it */
        r.trip = rows->id;
        r.max = rows->max;
    }
    if (r.trip == TW_NONE && r.max > 1 && r.stride == r.row_bytes) {
        r.row_bytes *= r.max;
        r.max = 1;
    }
    if (r.trip == TW_NONE && r.max == 1) {
        r.stride = 0;
    }
    return r;
}

/* Returns the bounds of a region over all iterations of the open loops. */
static struct tw_ck_rect widen(const struct tw_checker *c, struct tw_ck_rect r,
                               const struct tw_affine *offset) {
    uint64_t lo = offset->base, span = 0;
    for (uint32_t i = 0; i < offset->n_terms; i++) {
        uint64_t step = offset->term[i].step, count = 1;
        const struct tw_ck_stream *s = &c->streams[c->stream];
        for (uint32_t d = 0; d < c->depth; d++) {
            count = s->loop_var[d] == offset->term[i].var ? s->loop_count[d] : count;
        }
        bool falls = step >> 63;
        uint64_t size = falls ? 0 - step : step,
                 reach = size * (count - 1); /* the verifier keeps it inside the buffer */
        lo -= falls ? reach : 0;
        r.exact = r.exact && (reach == 0 || (size <= r.row_bytes + span && span == 0));
        span += reach;
    }
    r.lo = lo;
    r.row_bytes += span;
    if (r.stride && !tw_ck_in_columns(&r)) {
        r.row_bytes = tw_ck_rect_end(&r) - r.lo;
        r.stride = 0;
        r.trip = TW_NONE;
        r.max = 1;
        r.exact = false;
    }
    return r;
}

static bool same_rows(const struct tw_ck_span *s, const struct tw_ck_rect *r) {
    if (s->trip != r->trip || s->max < r->max) {
        return false;
    }
    return s->stride == r->stride ? s->trip == TW_NONE || s->max == r->max
                                  : s->trip == TW_NONE && r->max == 1;
}

static bool is_written(struct tw_checker *c, const struct tw_ck_written *w,
                       const struct tw_ck_rect *r) {
    c->comparisons += w->n;
    for (size_t i = 0; i < w->n; i++) {
        if (same_rows(&w->items[i], r) && w->items[i].lo <= r->lo &&
            r->lo + r->row_bytes <= w->items[i].hi) {
            return true;
        }
    }
    return r->row_bytes == 0 || r->max == 0;
}

static int add_written(struct tw_checker *c, struct tw_ck_written *w, const struct tw_ck_rect *r) {
    struct tw_ck_span fresh = {r->lo, r->lo + r->row_bytes, r->stride, r->trip, r->max};
    size_t kept = 0;
    c->comparisons += w->n;
    for (size_t i = 0; i < w->n; i++) { /* merge with what it touches */
        struct tw_ck_span *s = &w->items[i];
        bool same = s->stride == fresh.stride && s->trip == fresh.trip && s->max == fresh.max;
        if (same && s->lo <= fresh.hi && fresh.lo <= s->hi) {
            fresh.lo = s->lo < fresh.lo ? s->lo : fresh.lo;
            fresh.hi = s->hi > fresh.hi ? s->hi : fresh.hi;
        } else {
            w->items[kept++] = *s;
        }
    }
    TW_ASSERT(kept <= w->n && fresh.lo <= fresh.hi);
    w->n = kept;
    size_t cap = w->cap;
    int rc = tw_ck_grow(c, &w->items, &w->cap, w->n, sizeof *w->items);
    if (rc == 0) {
        w->items[w->n++] = fresh;
    }
    return rc ? rc : tw_ck_logged(c, 0, (w->cap - cap) * sizeof *w->items);
}

/* ---- sections ---- */

/* The first engine that enters a section knows that all data ops of those before it are over
 * (rule 23), and so will every other that follows. */
void tw_ck_memory_section(struct tw_checker *c, uint32_t section) {
    if (section <= c->top_section) {
        return;
    }
    for (uint32_t s = c->top_section; s < section; s++) {
        for (uint32_t i = 0; i < c->p->sections[s].n_buffers; i++) {
            uint32_t buffer = c->p->sections[s].first_buffer + i;
            if (c->p->buffers[buffer].tensor == TW_NONE) { /* rule 26: of this section alone */
                c->span_bytes -= c->written[buffer].cap * sizeof(struct tw_ck_span);
                free(c->written[buffer].items);
                c->written[buffer] = (struct tw_ck_written){.items = NULL};
            }
        }
    }
    c->top_section = section;
    tw_ck_memory_forget(c);
}

/* ---- regions ---- */

struct region {
    uint32_t id;
    char kind;
    bool reads, writes;
    const struct tw_affine *offset, *instance;
    struct tw_ck_rect now, wide;
};

static const char *buffer_name(const struct tw_checker *c, uint32_t id) {
    return tw_program_string(c->p, c->p->buffers[id].name);
}

/* Returns the outermost open loop over which the region moves: only after it all iterations have
 * written. */
static uint32_t moving_frame(const struct tw_checker *c, const struct region *r) {
    const struct tw_ck_stream *s = &c->streams[c->stream];
    for (uint32_t d = 0; d < c->depth; d++) {
        for (uint32_t i = 0; i < r->offset->n_terms; i++) {
            if (r->offset->term[i].var == s->loop_var[d] && r->offset->term[i].step != 0 &&
                s->loop_count[d] > 1) {
                return d;
            }
        }
    }
    return TW_NONE;
}

static bool varies(const struct region *r) {
    return r->now.lo != r->wide.lo || r->now.row_bytes != r->wide.row_bytes;
}

static int add_pending(struct tw_checker *c, struct tw_ck_pending p) {
    int rc = tw_ck_grow(c, &c->pending, &c->cap_pending, c->n_pending, sizeof *c->pending);
    if (rc == 0) {
        c->pending[c->n_pending++] = p;
    }
    return rc;
}

/* Records a write. A loop over a trip may run no iteration at all: inside it a page may be written
 * for its consumer in the same iteration, but nothing counts as written after it. */
static int record_write(struct tw_checker *c, const struct region *r, struct tw_ck_written *list,
                        uint32_t buffer, uint32_t page) {
    uint32_t dynamic = TW_NONE, moving = moving_frame(c, r);
    for (uint32_t d = 0; d < c->depth; d++) {
        dynamic = c->frames[d].dynamic ? d : dynamic;
    }
    int rc =
        r->now.exact && (page != TW_NONE || dynamic == TW_NONE) ? add_written(c, list, &r->now) : 0;
    if (rc == 0 && page != TW_NONE && dynamic != TW_NONE) {
        rc = add_pending(c, (struct tw_ck_pending){buffer, page, dynamic, true, r->now});
    }
    if (rc == 0 && varies(r) && r->wide.exact && dynamic == TW_NONE && moving != TW_NONE) {
        rc = add_pending(c, (struct tw_ck_pending){buffer, page, moving, false, r->wide});
    }
    return rc;
}

/* Accesses a region of a FIFO page. The verifier has checked that the engine holds the page and
 * that the region stays inside. */
static int touch_page(struct tw_checker *c, const struct region *r) {
    const struct tw_buffer *b = &c->p->buffers[r->id];
    const struct tw_ck_fifo *f = &c->fifos[r->id];
    bool producer = c->p->streams[c->stream].engine == b->producer &&
                    (b->producer != b->consumer || r->kind != 'R');
    uint64_t page_no = r->now.lo / b->page_bytes;
    struct region in = *r;
    uint32_t page =
        f->first_page + (uint32_t)((f->head + (producer ? f->level : 0) + page_no) % b->pages);
    TW_ASSERT(page_no < b->pages && page < c->n_pages);
    in.now.lo -= page_no * b->page_bytes;
    in.wide.lo -= in.wide.lo / b->page_bytes * b->page_bytes;
    bool one_page =
        r->wide.lo / b->page_bytes == page_no && tw_ck_rect_end(&in.wide) <= b->page_bytes;
    in.wide.exact = in.wide.exact && one_page;
    int rc = tw_ck_own_section(c, r->id);
    if (rc == 0 && r->reads) { /* what all iterations read must be written, and be in this page */
        tw_ck_count(c, TW_ORDER_defined);
        static const struct tw_ck_written nothing;
        const struct tw_ck_page *made = tw_ck_made(&c->pages, page);
        const struct tw_ck_written *written = made ? &made->written : &nothing;
        if ((varies(r) && !one_page) || !is_written(c, written, &in.wide)) {
            rc = tw_ck_fail(
                c, TW_ORDER_defined,
                "reads bytes [%llu, %llu) of a page of FIFO %u (%s) that were not written",
                (unsigned long long)in.wide.lo, (unsigned long long)tw_ck_rect_end(&in.wide), r->id,
                buffer_name(c, r->id));
        }
    }
    if (rc) {
        return rc;
    }
    if (tw_ck_rect_end(&in.now) > b->page_bytes && r->writes) {
        return tw_ck_fail(c, TW_ORDER_defined, "writes across a page boundary of FIFO %u (%s)",
                          r->id, buffer_name(c, r->id));
    }
    if (!r->writes) {
        return 0;
    }
    struct tw_ck_page *made = tw_ck_make(c, &c->pages, page);
    if (!made) {
        return c->make_error;
    }
    return record_write(c, &in, &made->written, r->id, page);
}

int tw_ck_own_section(struct tw_checker *c, uint32_t id) {
    TW_ASSERT(id < c->p->n_buffers && c->op.stage < c->p->n_stages);
    if (c->p->buffers[id].tensor != TW_NONE ||
        c->buffer_section[id] == c->p->stages[c->op.stage].section) {
        return 0;
    }
    return tw_ck_fail(c, TW_ORDER_memory_apart, "buffer %u (%s) belongs to section %u", id,
                      buffer_name(c, id), c->buffer_section[id]);
}

static int touch_buffer(struct tw_checker *c, const struct region *r, uint32_t id) {
    uint32_t section = c->p->stages[c->op.stage].section;
    int rc = tw_ck_own_section(c, id);
    if (rc) {
        return rc;
    }
    /* written by the device, before the first step */
    if (tw_buffer_param(c->p, &c->p->buffers[id])) {
        tw_ck_count(c, TW_ORDER_defined);
        if (!r->writes) {
            return 0;
        }
        return tw_ck_fail(c, TW_ORDER_memory_apart,
                          "a multicast writes buffer %u (%s), which keeps a param", id,
                          buffer_name(c, id)); /* rule 9 excludes other ops */
    }
    if (r->reads) {
        tw_ck_count(c, TW_ORDER_defined);
        if (!is_written(c, &c->written[id], &r->wide)) {
            return tw_ck_fail(c, TW_ORDER_defined,
                              "reads bytes [%llu, %llu) of buffer %u (%s) that were not written",
                              (unsigned long long)r->wide.lo,
                              (unsigned long long)tw_ck_rect_end(&r->wide), id, buffer_name(c, id));
        }
    }
    struct tw_ck_access access = {c->streams[c->stream].at, r->wide, 0, true, r->writes};
    rc = tw_ck_log_access(c, &c->buffer_log[id], &access, buffer_name(c, id));
    if (rc || !r->writes) {
        return rc;
    }
    uint64_t n = 0;
    for (const uint32_t *o = &c->overlaps[c->overlap_first[id]]; *o != TW_NONE; o++, n++) {
        c->written[*o].n = c->buffer_section[*o] == section ? 0 : c->written[*o].n;
    }
    rc = tw_ck_compared(c, n);
    return rc ? rc : record_write(c, r, &c->written[id], id, TW_NONE);
}

static int touch_siblings(struct tw_checker *c, const struct region *r) {
    const struct tw_group *g = &c->p->groups[c->op.operand[TW_MCAST_group].id];
    const struct tw_buffer *own = &c->p->buffers[r->id];
    for (uint32_t i = 0; i < tw_group_size(g);
         i++) { /* the verifier checked that each site has one */
        int rc = touch_buffer(c, r, tw_buffer_sibling(c->p, own, tw_group_site(c->p, g, i)));
        if (rc) {
            return rc;
        }
    }
    return tw_ck_sync_sent(c, c->op.operand[TW_MCAST_group].id);
}

static uint64_t instance_key(const struct tw_affine *a) {
    uint64_t key = a->base * 0x9E3779B97F4A7C15u;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        key = (key ^ a->term[i].var ^ a->term[i].step << 8) * 0x9E3779B97F4A7C15u;
    }
    return key;
}

static int touch_tensor(struct tw_checker *c, struct region *r) {
    const struct tw_tensor *t = &c->p->tensors[r->id];
    if (t->role == TW_ROLE_PARAM || t->role == TW_ROLE_INPUT) {
        return 0;
    }
    if (r->reads && t->init == TW_INIT_NONE) {
        return tw_ck_fail(c, TW_ORDER_defined, "reads tensor %u (%s), which has no initial value",
                          r->id, tw_program_string(c->p, t->name));
    }
    if (c->op.code == TW_OP_KEY_WRITE ||
        c->op.code == TW_OP_VALUE_WRITE) { /* both packings keep a head's bytes together */
        uint64_t head = tw_cache_head_bytes(t);
        struct tw_numbers_key_write v = tw_numbers_key_write(&c->op);
        r->wide = (struct tw_ck_rect){v.first * head, v.heads * head, 0, TW_NONE, 1, false};
    }
    struct tw_ck_access access = {c->streams[c->stream].at, r->wide, instance_key(r->instance),
                                  r->instance->n_terms == 0, r->writes};
    return tw_ck_log_access(c, &c->tensor_log[r->id], &access, tw_program_string(c->p, t->name));
}

static void find_region(const struct tw_checker *c, uint32_t n, struct region *r) {
    const struct tw_operand *o = tw_op_region(&c->op, n);
    bool tensor = o->kind == 'T' || o->kind == 'U';
    unsigned x_dtype = TW_DT_F32;
    if (c->op.code == TW_OP_MATMUL) {
        x_dtype = c->p->buffers[c->op.operand[TW_MATMUL_x].id].dtype;
    }
    *r = (struct region){
        .id = o->id, .kind = o->kind, .offset = &o->offset, .instance = &o->instance};
    r->writes = o->kind != 'R' && o->kind != 'T';
    r->reads = tw_op_reads(&c->op, o);
    r->now = rows_of(c, n, x_dtype, tensor ? &c->p->tensors[o->id] : NULL);
    r->wide = widen(c, r->now, r->offset);
    r->now.lo = tw_affine_value(r->offset, c->vars);
}

int tw_ck_memory_op(struct tw_checker *c) {
    struct region r;
    for (int pass = 0; pass < 2; pass++) { /* an op reads before it writes */
        for (uint32_t n = 0; tw_op_region(&c->op, n); n++) {
            find_region(c, n, &r);
            if (pass == 0 ? !r.reads : !r.writes) {
                continue;
            }
            bool both = r.reads && r.writes;
            r.writes = pass == 1;
            r.reads = pass == 0;
            int rc;
            if (r.kind == 'T' || r.kind == 'U') {
                rc = touch_tensor(c, &r);
            } else if (c->p->buffers[r.id].kind == TW_BUF_FIFO) {
                rc = touch_page(c, &r);
            } else if (c->op.code == TW_OP_MCAST && r.writes) {
                rc = touch_siblings(c, &r);
            } else {
                r.kind = both ? 'M' : r.kind;
                rc = touch_buffer(c, &r, r.id);
            }
            if (rc) {
                return rc;
            }
        }
    }
    return tw_ck_compared(c, 0);
}

/* ---- loops ---- */

static int apply_pending(struct tw_checker *c, const struct tw_ck_frame *f,
                         const struct tw_ck_pending *p) {
    for (size_t k = f->fifo_log; k < c->fifo_log.n && p->page != TW_NONE; k++) {
        if (c->fifo_log.items[k].item == p->buffer) {
            return 0; /* pages of FIFOs that moved are other pages now */
        }
    }
    struct tw_ck_page *page = p->page == TW_NONE ? NULL : tw_ck_made(&c->pages, p->page);
    return add_written(c, page ? &page->written : &c->written[p->buffer], &p->rect);
}

/* At the end of a loop, what its iterations have written together counts as written; entries of
 * outer loops stay. */
int tw_ck_memory_leave(struct tw_checker *c, const struct tw_ck_frame *f) {
    size_t kept = f->pending;
    int rc = 0;
    TW_ASSERT(c->depth > 0 && f->pending <= c->n_pending);
    for (size_t i = f->pending; i < c->n_pending && rc == 0; i++) {
        struct tw_ck_pending p = c->pending[i];
        TW_ASSERT(p.frame < c->depth && (p.page == TW_NONE ? !p.drop : p.page < c->n_pages));
        if (p.frame != c->depth - 1) {
            c->pending[kept++] = p;
        } else if (p.drop) {
            struct tw_ck_page *page = tw_ck_made(&c->pages, p.page);
            TW_ASSERT(page); /* it was written */
            page->written.n = 0;
        } else {
            rc = apply_pending(c, f, &p);
        }
    }
    c->n_pending = kept;
    return rc;
}

/* ---- set-up ---- */

int tw_ck_memory_init(struct tw_checker *c) {
    const struct tw_program *p = c->p;
    size_t n = (size_t)p->n_buffers + 1;
    c->buffer_log = calloc(n, sizeof *c->buffer_log);
    c->tensor_log = calloc((size_t)p->n_tensors + 1, sizeof *c->tensor_log);
    c->written = calloc(n, sizeof *c->written);
    c->buffer_section = calloc(n, sizeof *c->buffer_section);
    if (!c->buffer_log || !c->tensor_log || !c->written || !c->buffer_section) {
        return tw_fail(c->err, TW_E_NOMEM, "out of memory to check the order of %s: %u buffers",
                       p->name, p->n_buffers);
    }
    for (uint32_t s = 0; s < p->n_sections; s++) {
        TW_ASSERT(p->sections[s].first_buffer + p->sections[s].n_buffers <= p->n_buffers);
        for (uint32_t i = 0; i < p->sections[s].n_buffers; i++) {
            c->buffer_section[p->sections[s].first_buffer + i] = s;
        }
    }
    return tw_ck_overlap_init(c);
}

void tw_ck_memory_finish(struct tw_checker *c) {
    for (uint32_t i = 0; i < c->p->n_buffers; i++) {
        if (c->buffer_log) {
            tw_ck_log_free(&c->buffer_log[i]);
        }
        if (c->written) {
            free(c->written[i].items);
        }
    }
    for (uint32_t i = 0; i < c->p->n_tensors && c->tensor_log; i++) {
        tw_ck_log_free(&c->tensor_log[i]);
    }
    free(c->buffer_log);
    free(c->tensor_log);
    free(c->written);
    free(c->overlap_first);
    free(c->overlaps);
    free(c->buffer_section);
    free(c->buffer_users);
    free(c->pending);
    free(c->used_logs);
}
