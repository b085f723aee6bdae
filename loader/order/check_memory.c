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

/* Returns true if a run of bytes without gaps, which a constant number of rows may be, holds the
 * rectangle, gaps and all. */
static bool holds_whole(const struct tw_ck_span *s, const struct tw_ck_rect *r) {
    return s->trip == TW_NONE && s->max > 0 && (s->max == 1 || s->stride <= s->hi - s->lo) &&
           s->lo <= r->lo && tw_ck_rect_end(r) <= s->hi + s->stride * (s->max - 1);
}

/* Returns true if the rectangle is some of a constant number of rows: at most one, or several as
 * far apart. */
static bool holds_some(const struct tw_ck_span *s, const struct tw_ck_rect *r) {
    bool single = r->max == 1, as_far = r->trip == TW_NONE && r->stride == s->stride;
    if (s->trip != TW_NONE || s->stride == 0 || r->lo < s->lo || (!single && !as_far)) {
        return false;
    }
    uint64_t at = r->lo - s->lo;
    return at / s->stride + r->max <= s->max &&
           tw_range_ok(at % s->stride, r->row_bytes, s->hi - s->lo);
}

static bool covers(const struct tw_ck_span *s, const struct tw_ck_rect *r) {
    return holds_whole(s, r) || holds_some(s, r) ||
           (same_rows(s, r) && s->lo <= r->lo && r->lo + r->row_bytes <= s->hi);
}

static bool is_written(struct tw_checker *c, const struct tw_ck_written *w,
                       const struct tw_ck_rect *r) {
    c->spent[TW_CK_COMPARISONS] += w->n; /* tw_ck_memory_op looks */
    for (size_t i = 0; i < w->n; i++) {
        if (covers(&w->items[i], r)) {
            return true;
        }
    }
    return r->row_bytes == 0 || r->max == 0;
}

static int add_span(struct tw_checker *c, struct tw_ck_written *w, struct tw_ck_span fresh) {
    size_t kept = 0;
    c->spent[TW_CK_COMPARISONS] += w->n;
    for (size_t i = 0; i < w->n; i++) { /* merge with what it touches */
        struct tw_ck_span *s = &w->items[i];
        bool same = s->stride == fresh.stride && s->trip == fresh.trip && s->max == fresh.max &&
                    s->group == fresh.group;
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
    if (!w->items) { /* most buffers never have another one */
        w->items = malloc(sizeof *w->items);
        w->cap = w->items ? 1 : 0;
    }
    int rc = tw_ck_grow(c, &w->items, &w->cap, w->n, sizeof *w->items);
    if (rc == 0) {
        w->items[w->n++] = fresh;
    }
    return rc ? rc : tw_ck_spend(c, TW_CK_SPAN_BYTES, (w->cap - cap) * sizeof *w->items);
}

static int add_written(struct tw_checker *c, struct tw_ck_written *w, const struct tw_ck_rect *r,
                       uint32_t group) {
    return add_span(
        c, w, (struct tw_ck_span){r->lo, r->lo + r->row_bytes, r->stride, r->trip, r->max, group});
}

static void forget_written(struct tw_checker *c, struct tw_ck_written *w) {
    c->spent[TW_CK_SPAN_BYTES] -= w->cap * sizeof(struct tw_ck_span);
    free(w->items);
    *w = (struct tw_ck_written){.items = NULL};
}

/* ---- sets of siblings ---- */

/* What the buffers of a set are. */
enum { SET_PRIVATE = 1, SET_ACTIVATION = 2, SET_PARAM = 4, SET_OF_SECTIONS = 8 };

static uint32_t set_of(const struct tw_program *p, uint32_t buffer) {
    uint32_t base = p->buffers[buffer].sibling_base;
    return base == TW_NONE ? buffer : base;
}

static void find_sets(struct tw_checker *c) {
    const struct tw_program *p = c->p;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        uint32_t set = set_of(p, i);
        const struct tw_buffer *b = &p->buffers[i];
        c->set_kinds[set] |= tw_buffer_param(p, b)  ? SET_PARAM
                             : b->tensor == TW_NONE ? SET_PRIVATE
                                                    : SET_ACTIVATION;
        c->set_kinds[set] |= c->buffer_section[i] != c->buffer_section[set] ? SET_OF_SECTIONS : 0;
    }
}

/* Returns true if multicasts have written the bytes on the site, alone or together with what is in
 * the buffer's own list, which then has all of them. */
static int is_sent(struct tw_checker *c, uint32_t buffer, const struct tw_ck_rect *r, bool *sent) {
    const struct tw_ck_written *w = &c->set_written[set_of(c->p, buffer)];
    uint32_t site = c->p->buffers[buffer].site;
    int rc = 0;
    *sent = false;
    c->spent[TW_CK_COMPARISONS] += w->n;
    for (size_t i = 0; i < w->n; i++) {
        if (covers(&w->items[i], r) &&
            tw_group_holds(c->p, &c->p->groups[w->items[i].group], site)) {
            *sent = true;
            return 0;
        }
    }
    for (size_t i = 0; i < w->n && rc == 0; i++) {
        struct tw_ck_span s = w->items[i];
        if (tw_group_holds(c->p, &c->p->groups[s.group], site)) {
            s.group = TW_NONE;
            rc = add_span(c, &c->written[buffer], s);
        }
    }
    *sent = rc == 0 && w->n && is_written(c, &c->written[buffer], r);
    return rc;
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
                forget_written(c, &c->written[buffer]);
                forget_written(c, &c->set_written[buffer]);
            }
        }
    }
    c->top_section = section;
    tw_ck_memory_forget(c);
}

/* ---- regions ---- */

struct region {
    uint32_t id, group; /* group: of a multicast, or TW_NONE */
    char kind;
    bool reads, writes;
    const struct tw_affine *offset, *instance;
    const struct tw_operand *operand;
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
    int rc = r->now.exact && (page != TW_NONE || dynamic == TW_NONE)
                 ? add_written(c, list, &r->now, r->group)
                 : 0;
    if (rc == 0 && page != TW_NONE && dynamic != TW_NONE) {
        rc = add_pending(c, (struct tw_ck_pending){buffer, page, dynamic, TW_NONE, true, r->now});
    }
    if (rc == 0 && varies(r) && r->wide.exact && dynamic == TW_NONE && moving != TW_NONE) {
        rc = add_pending(c, (struct tw_ck_pending){buffer, page, moving, r->group, false, r->wide});
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

static struct tw_ck_access access_of(const struct tw_checker *c, const struct region *r) {
    const struct tw_ck_stream *s = &c->streams[c->stream];
    return (struct tw_ck_access){.over = (int32_t)s->at + 1 + c->offset[c->stream],
                                 .group = r->group,
                                 .rect = r->wide,
                                 .constant = true,
                                 .write = r->writes,
                                 .at = s->at,
                                 .table = TW_NONE};
}

static int fail_param(struct tw_checker *c, uint32_t id) {
    return tw_ck_fail(c, TW_ORDER_memory_apart,
                      "a multicast writes buffer %u (%s), which keeps a param", id,
                      buffer_name(c, id)); /* rule 9 excludes other ops */
}

/* Rule 25: all that a region reads in any iteration is written. */
static int check_read(struct tw_checker *c, const struct region *r, uint32_t id) {
    const struct tw_tensor *state = tw_buffer_state(c->p, &c->p->buffers[id]);
    tw_ck_count(c, TW_ORDER_defined);
    if (state && state->init != TW_INIT_NONE) {
        return 0; /* it is there from the beginning, and stays */
    }
    bool written = is_written(c, &c->written[id], &r->wide);
    int rc = written ? 0 : is_sent(c, id, &r->wide, &written);
    if (rc || written) {
        return rc;
    }
    return tw_ck_fail(c, TW_ORDER_defined,
                      "reads bytes [%llu, %llu) of buffer %u (%s) that were not written",
                      (unsigned long long)r->wide.lo, (unsigned long long)tw_ck_rect_end(&r->wide),
                      id, buffer_name(c, id));
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
        return r->writes ? fail_param(c, id) : 0;
    }
    bool before = c->part && c->p->buffers[id].tensor != TW_NONE;
    rc = r->reads && !before ? check_read(c, r, id) : 0;
    if (rc) {
        return rc;
    }
    struct tw_ck_access access = access_of(c, r);
    if (r->kind == 'D') { /* a send: not on the stream's own site */
        access.group = TW_CK_TO_SITE | c->p->buffers[id].site;
    }
    rc = tw_ck_log_access(c, &c->buffer_log[set_of(c->p, id)], true, &access, buffer_name(c, id));
    if (rc || !r->writes) {
        return rc;
    }
    uint64_t n = 0;
    for (const uint32_t *o = &c->overlaps[c->overlap_first[id]]; *o != TW_NONE; o++, n++) {
        c->written[*o].n = c->buffer_section[*o] == section ? 0 : c->written[*o].n;
    }
    rc = tw_ck_spend(c, TW_CK_COMPARISONS, n);
    return rc ? rc : record_write(c, r, &c->written[id], id, TW_NONE);
}

/* One access to all buffers of the set that the multicast reaches. Others cannot share their bytes
 * in this section (rule 26). */
static int touch_siblings(struct tw_checker *c, struct region *r) {
    uint32_t set = set_of(c->p, r->id);
    uint8_t kinds = c->set_kinds[set];
    int rc = tw_ck_own_section(c, r->id);
    if (rc) {
        return rc;
    }
    while (kinds & SET_PARAM) { /* name one that does */
        if (tw_buffer_param(c->p, &c->p->buffers[set])) {
            return fail_param(c, set);
        }
        set++;
    }
    if (kinds & SET_PRIVATE && kinds != SET_PRIVATE) {
        return tw_ck_fail(c, TW_ORDER_memory_apart,
                          "a multicast writes buffers like %u (%s), some of which are activations "
                          "or of other sections",
                          r->id, buffer_name(c, r->id));
    }
    r->group = c->op.operand[TW_MCAST_group].id;
    struct tw_ck_access access = access_of(c, r);
    rc = tw_ck_log_access(c, &c->buffer_log[set], true, &access, buffer_name(c, r->id));
    rc = rc ? rc : record_write(c, r, &c->set_written[set], set, TW_NONE);
    return rc ? rc : tw_ck_sync_sent(c, r->group);
}

static int touch_remote(struct tw_checker *c, struct region *r) {
    if (c->op.code == TW_OP_MCAST) {
        return touch_siblings(c, r);
    }
    c->streams[c->stream].sent = true;
    return touch_buffer(c, r, r->id);
}

static uint64_t instance_key(const struct tw_affine *a) {
    uint64_t key = a->base * 0x9E3779B97F4A7C15u;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        key = (key ^ a->term[i].var ^ a->term[i].step << 8) * 0x9E3779B97F4A7C15u;
    }
    return key;
}

/* Stores which columns of its table an access may use; the verifier has checked that they exist. */
static void find_columns(const struct tw_checker *c, const struct tw_operand *o,
                         struct tw_ck_access *access) {
    struct tw_affine in_row = tw_in_row(&o->element, c->p->tensors[o->table].cols);
    struct tw_ck_rect one = {0, 1, 0, TW_NONE, 1, true}, all = widen(c, one, &in_row);
    uint64_t more = 0;
    if (c->op.code == TW_OP_KEY_WRITE || c->op.code == TW_OP_VALUE_WRITE) {
        const struct tw_operand *op = c->op.operand;
        more = ((uint64_t)op[TW_KEY_WRITE_pos].max + op[TW_KEY_WRITE_rows].max - 1) / TW_KV_BLOCK;
    }
    access->table = o->table;
    access->first = (uint32_t)all.lo;
    access->last = (uint32_t)(all.lo + all.row_bytes - 1 + more);
}

/* Returns the region of a tensor with pages as columns of all of them: accesses are apart only if
 * they are at different places in their pages. Terms that step by whole pages choose the page. */
static struct tw_ck_rect in_pages(const struct tw_checker *c, const struct tw_tensor *t,
                                  const struct region *r) {
    uint64_t page = tw_tensor_page_bytes(t);
    struct tw_ck_rect all = {0, page, page, TW_NONE, tw_tensor_pages(t), false}, in = all;
    if (c->op.code == TW_OP_KEY_WRITE ||
        c->op.code == TW_OP_VALUE_WRITE) { /* both packings keep a head's bytes together */
        struct tw_numbers_key_write v = tw_numbers_key_write(&c->op);
        in.lo = v.first * tw_cache_head_bytes(t);
        in.row_bytes = v.heads * tw_cache_head_bytes(t);
        return in;
    }
    struct tw_affine at = tw_affine_const(r->offset->base % page);
    for (uint32_t i = 0; i < r->offset->n_terms; i++) {
        uint64_t step = r->offset->term[i].step;
        if ((step >> 63 ? 0 - step : step) % page != 0) {
            at = tw_affine_plus(at, r->offset->term[i].var, step);
        }
    }
    struct tw_ck_rect wide = widen(c, r->now, &at);
    in.lo = wide.lo;
    in.row_bytes = tw_ck_rect_end(&wide) - wide.lo;
    return in.lo < page && in.row_bytes <= page - in.lo ? in : all;
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
    if (tw_tensor_pages(t)) {
        r->wide = in_pages(c, t, r);
    }
    struct tw_ck_access access = access_of(c, r);
    access.instance = instance_key(r->instance);
    access.constant = r->instance->n_terms == 0;
    if (r->operand->paged) {
        find_columns(c, r->operand, &access);
    }
    return tw_ck_log_access(c, &c->tensor_log[r->id], false, &access,
                            tw_program_string(c->p, t->name));
}

static void find_region(const struct tw_checker *c, uint32_t n, struct region *r) {
    const struct tw_operand *o = tw_op_region(&c->op, n);
    bool tensor = o->kind == 'T' || o->kind == 'U';
    unsigned x_dtype = TW_DT_F32;
    if (c->op.code == TW_OP_MATMUL) {
        x_dtype = c->p->buffers[c->op.operand[TW_MATMUL_x].id].dtype;
    }
    *r = (struct region){.id = o->id,
                         .group = TW_NONE,
                         .kind = o->kind,
                         .offset = &o->offset,
                         .instance = &o->instance,
                         .operand = o};
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
            } else if (r.kind == 'D') {
                rc = touch_remote(c, &r);
            } else if (c->p->buffers[r.id].kind == TW_BUF_FIFO) {
                rc = touch_page(c, &r);
            } else {
                r.kind = both ? 'M' : r.kind;
                rc = touch_buffer(c, &r, r.id);
            }
            if (rc) {
                return rc;
            }
        }
    }
    return tw_ck_spend(c, TW_CK_COMPARISONS, 0);
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
    struct tw_ck_written *list = page                  ? &page->written
                                 : p->group != TW_NONE ? &c->set_written[p->buffer]
                                                       : &c->written[p->buffer];
    return add_written(c, list, &p->rect, p->group);
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
    c->set_written = calloc(n, sizeof *c->set_written);
    c->set_kinds = calloc(n, sizeof *c->set_kinds);
    c->buffer_section = calloc(n, sizeof *c->buffer_section);
    if (!c->buffer_log || !c->tensor_log || !c->written || !c->set_written || !c->set_kinds ||
        !c->buffer_section) {
        return tw_fail(c->err, TW_E_NOMEM, "out of memory to check the order of %s: %u buffers",
                       p->name, p->n_buffers);
    }
    for (uint32_t s = 0; s < p->n_sections; s++) {
        TW_ASSERT(p->sections[s].first_buffer + p->sections[s].n_buffers <= p->n_buffers);
        for (uint32_t i = 0; i < p->sections[s].n_buffers; i++) {
            c->buffer_section[p->sections[s].first_buffer + i] = s;
        }
    }
    find_sets(c);
    return tw_ck_overlap_init(c);
}

void tw_ck_memory_finish(struct tw_checker *c) {
    for (uint32_t i = 0; i < c->p->n_buffers && c->written && c->set_written; i++) {
        free(c->written[i].items);
        free(c->set_written[i].items);
    }
    tw_ck_alloc_finish(c);
    free(c->buffer_log);
    free(c->tensor_log);
    free(c->written);
    free(c->set_written);
    free(c->set_kinds);
    free(c->overlap_first);
    free(c->overlaps);
    free(c->buffer_section);
    free(c->buffer_users);
    free(c->pending);
    free(c->used_logs);
}
