/* SPDX-License-Identifier: Apache-2.0
 *
 * Resolves operands to pointers. A READ whose rows have the same layout in device memory as they
 * would have in the page is not executed at all: the page records where its content is, and
 * operands that name the page resolve to that address. Whatever would make this wrong (the page is
 * written to or read beyond the rows, or the memory changes while the page is in use) marks the
 * READ and has the walk repeated without it.
 */
#include "firmware/core/plan/plan_walk.h"

#include "tilewright/range.h"

#define IN_PLACE_ALIGN 64u /* alignment of weight pages that kernels require */

static int set_fault(struct walk *w, const char *what, uint32_t object, uint64_t have,
                     uint64_t need) {
    return tw_fault_fail(w->fault, what, object, have, need);
}

static bool add_term(struct walk_terms *t, uint32_t level, uint64_t step) {
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->level[i] == level) {
            t->step[i] += step;
            return true;
        }
    }
    if (t->n == WALK_TERMS) {
        return false;
    }
    t->level[t->n] = level;
    t->step[t->n++] = step;
    return true;
}

int tw_walk_eval(struct walk *w, const struct walk_engine *e, const uint32_t *affine,
                 uint64_t *value, struct walk_terms *terms) {
    *value = affine[0] | (uint64_t)affine[1] << 32;
    terms->n = 0;
    for (uint32_t i = 0; i < affine[2]; i++) {
        const uint32_t *a = affine + 3 + (size_t)3 * i;
        uint64_t step = a[1] | (uint64_t)a[2] << 32;
        if (a[0] == 0) {
            return set_fault(w, "EpochInAddress", TW_NONE, i, affine[2]);
        }
        if (e->level[a[0]] == 0) {
            *value += step * e->vars[a[0]];
        } else if (!add_term(terms, e->level[a[0]] - 1, step)) {
            return set_fault(w, "TooManyTerms", TW_NONE, WALK_TERMS + 1, WALK_TERMS);
        }
    }
    return 0;
}

/* Computes the maximum that the terms can add to an address; returns false if they can decrease it
 * or add too much. */
static bool max_reach(const struct walk *w, const struct walk_terms *t, uint64_t *bytes) {
    *bytes = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t max = w->dynamic_max[t->level[i]];
        uint64_t far;
        if (t->step[i] > INT64_MAX || !tw_mul_u64(t->step[i], max ? max - 1 : 0, &far) ||
            !tw_add_u64(*bytes, far, bytes)) {
            return false;
        }
    }
    return true;
}

static int check_range(struct walk *w, bool write, uint32_t id, uint64_t offset, uint64_t bytes,
                       uint64_t limit) {
    if (tw_range_ok(offset, bytes, limit)) {
        return 0;
    }
    uint64_t end;
    end = tw_add_u64(offset, bytes, &end) ? end : UINT64_MAX;
    return tw_fault_fail(w->fault, write ? "WriteOutOfRange" : "ReadOutOfRange", id, end, limit);
}

static bool mark_copy(struct walk *w, uint8_t *flags, uint8_t flag) {
    bool fresh = !(*flags & flag);
    *flags |= flag;
    w->marks += fresh ? 1u : 0u;
    return fresh;
}

/* ---- device memory ---- */

static int find_row(struct walk *w, uint32_t tensor, uint64_t instance, struct walk_row **out) {
    const struct tw_tensor *t = &w->program->tensors[tensor];
    if (instance >= t->bind_count) {
        return set_fault(w, "ReadOutOfRange", tensor, instance, t->bind_count);
    }
    struct walk_row *row = &w->rows[t->bind_first + instance];
    if (!(row->flags & WALK_ROW_MAPPED)) {
        row->at = tw_bind_tensor(&w->config, tensor, instance);
        row->flags |= WALK_ROW_MAPPED;
    }
    *out = row;
    return row->at ? 0 : set_fault(w, "ReadOutOfRange", tensor, instance, t->bytes);
}

static bool overlaps(uint64_t a_lo, uint64_t a_hi, uint64_t b_lo, uint64_t b_hi) {
    return a_lo < b_hi && b_lo < a_hi;
}

/* Bytes of an instance: [lo, hi). Of a tensor with pages these are bytes of any of its pages, so
 * that accesses are apart only if they are at different places in their pages. */
struct bytes {
    uint64_t lo, hi;
};

/* Records a write to memory to which pages of this step refer or have referred in place: all uses
 * of the same bytes must be known to be complete. */
static void record_row_write(struct walk *w, const struct walk_engine *e, struct walk_row *row,
                             struct bytes b) {
    const struct walk_use *uses = &w->uses[(size_t)(row - w->rows) * w->n_threads];
    const uint32_t *clock = walk_clock(w, e->thread);
    bool refuted = false;
    for (uint32_t i = row->live; i != TW_NONE; i = w->pages[i].next) {
        refuted = refuted || overlaps(b.lo, b.hi, w->pages[i].lo, w->pages[i].hi);
    }
    for (uint32_t t = 0; t < w->n_threads; t++) {
        refuted = refuted || (t != e->thread && uses[t].last > clock[t] &&
                              overlaps(b.lo, b.hi, uses[t].lo, uses[t].hi));
    }
    if (refuted) {
        mark_copy(w, &row->flags, WALK_ROW_COPY);
    }
}

/* Returns the bytes [offset, offset + bytes) at every iteration of the terms. */
static struct bytes bytes_of(const struct walk *w, const struct tw_tensor *t, uint64_t offset,
                             uint64_t bytes, const struct walk_terms *terms) {
    uint64_t page = tw_tensor_page_bytes(t), far;
    struct walk_terms in_page = {.n = 0};
    for (uint32_t i = 0; i < terms->n; i++) {
        if (page == 0 || terms->step[i] % page != 0) {
            in_page.level[in_page.n] = terms->level[i];
            in_page.step[in_page.n++] = terms->step[i];
        }
    }
    (void)max_reach(w, &in_page, &far); /* known to be in range */
    uint64_t lo = page ? offset % page : offset, hi = lo + far + bytes;
    return page && hi > page ? (struct bytes){0, page} : (struct bytes){lo, hi};
}

/* Returns the bytes of the instance that a write may touch. Both cache packings keep the bytes of a
 * head together. */
static struct bytes written_bytes(const struct walk *w, const struct walk_op *op, uint32_t n,
                                  uint64_t offset, const struct walk_terms *terms) {
    const struct walk_region *r = &op->region[n];
    if (walk_is_cache_write(op)) {
        uint64_t head = tw_cache_head_bytes(op->args.tensor);
        const struct tw_args_key_write v = tw_args_key_write(&op->args);
        return (struct bytes){v.first * head, (v.first + (uint64_t)v.heads) * head};
    }
    return bytes_of(w, &w->program->tensors[r->id], offset, r->span, terms);
}

static int find_instance(struct walk *w, const struct walk_engine *e, const struct walk_region *r,
                         struct walk_row **row) {
    struct walk_terms terms;
    uint64_t instance;
    int rc = tw_walk_eval(w, e, r->instance, &instance, &terms);
    if (rc == 0 && terms.n > 0) {
        rc = set_fault(w, "DynamicInstance", r->id, terms.n, 0);
    }
    return rc == 0 ? find_row(w, r->id, instance, row) : rc;
}

/* Resolves the element of a page table. The page number is checked when a step begins. */
static int resolve_page(struct walk *w, const struct walk_engine *e, const struct walk_region *r,
                        struct walk_page_of *out) {
    const struct tw_tensor *table = &w->program->tensors[r->table];
    uint64_t far, n = (uint64_t)table->rows * table->cols;
    int rc = tw_walk_eval(w, e, r->element, &out->element, &out->terms);
    if (rc == 0 && !max_reach(w, &out->terms, &far)) {
        rc = set_fault(w, "BadOp", r->table, out->terms.n, 0);
    }
    rc = rc ? rc : check_range(w, false, r->table, out->element, far + 1, n);
    out->any = true;
    out->table = r->table;
    out->page_bytes = tw_tensor_page_bytes(&w->program->tensors[r->id]);
    return rc;
}

static int resolve_tensor(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                          uint32_t n, struct walk_pointer *out) {
    const struct walk_region *r = &op->region[n];
    const struct tw_tensor *t = &w->program->tensors[r->id];
    struct walk_row *row = NULL;
    uint64_t offset = 0, far, bytes = 0;
    bool write = r->kind == 'U';
    if (!tw_demand_role(r->kind, TW_DEMAND_ANY, t->role)) { /* ids: plan_calls.c */
        return set_fault(w, "Role", r->id, t->role, TW_ROLE_STATE);
    }
    int rc = find_instance(w, e, r, &row);
    if (rc == 0) {
        rc = tw_walk_eval(w, e, r->offset, &offset, &out->terms);
    }
    if (rc == 0 && (!max_reach(w, &out->terms, &far) || !tw_add_u64(far, r->span, &bytes))) {
        rc = set_fault(w, "BadOp", r->id, out->terms.n, 0);
    }
    bool in_page = r->paged && !walk_is_cache_write(op);
    if (rc == 0) {
        rc = check_range(w, write, r->id, offset, bytes,
                         in_page ? tw_tensor_page_bytes(t) : t->bytes);
    }
    if (rc == 0 && r->paged) {
        rc = resolve_page(w, e, r, &out->page);
    }
    if (rc != 0) {
        return rc;
    }
    if (write) {
        record_row_write(w, e, row, written_bytes(w, op, n, offset, &out->terms));
    }
    out->at = row->at + offset;
    return 0;
}

/* ---- SRAM ---- */

/* Where a region is among the pages of its buffer. */
struct place {
    uint64_t at, in_page; /* from the buffer's start; from its first page's start */
    uint64_t bytes;       /* maximum over all iterations */
    uint32_t page, n_pages;
};

static bool is_producer_side(const struct tw_buffer *b, const struct walk_engine *e, char kind) {
    return e->engine == b->producer && (b->producer != b->consumer || kind != 'R');
}

static int find_place(struct walk *w, const struct walk_engine *e, const struct walk_region *r,
                      struct walk_terms *terms, struct place *out) {
    const struct tw_buffer *b = &w->program->buffers[r->id];
    const struct walk_buffer *state = &w->buffers[r->id];
    uint64_t offset, far, first = 0, allowed = b->pages;
    if (tw_buffer_param(w->program, b) && !tw_demand_role(r->kind, TW_DEMAND_ANY, TW_ROLE_PARAM)) {
        return set_fault(w, "Role", r->id, TW_ROLE_PARAM, TW_ROLE_ACTIVATION);
    }
    int rc = tw_walk_eval(w, e, r->offset, &offset, terms);
    if (rc != 0) {
        return rc;
    }
    bool reachable = r->kind == 'D' ? b->kind == TW_BUF_RESIDENT : b->site == e->site;
    if (!reachable || !max_reach(w, terms, &far) || !tw_add_u64(far, r->span, &out->bytes)) {
        return set_fault(w, "BadOp", r->id, e->site, b->site);
    }
    if (b->kind == TW_BUF_FIFO) {
        bool producer = is_producer_side(b, e, r->kind);
        if (e->engine != (producer ? b->producer : b->consumer)) {
            return set_fault(w, "Role", r->id, e->engine, b->consumer);
        }
        first = producer ? (uint64_t)state->head + state->level : state->head;
        allowed = producer ? b->pages - state->level : state->level;
    }
    rc = check_range(w, r->kind != 'R', r->id, offset, out->bytes, allowed * b->page_bytes);
    if (rc != 0) {
        return rc;
    }
    out->page = (uint32_t)((first + offset / b->page_bytes) % b->pages);
    out->in_page = offset % b->page_bytes;
    out->at = out->page * b->page_bytes + out->in_page;
    out->n_pages = out->bytes ? (uint32_t)((out->in_page + out->bytes - 1) / b->page_bytes + 1) : 1;
    return check_range(w, r->kind != 'R', r->id, out->at, out->bytes, b->pages * b->page_bytes);
}

static void refute_page(struct walk *w, struct walk_page *page, uint32_t buffer) {
    if (page->op != TW_NONE && w->program->buffers[buffer].kind == TW_BUF_FIFO) {
        mark_copy(w, &w->ops[page->op].flags, WALK_OP_COPY);
    } else {
        mark_copy(w, &w->buffers[buffer].flags, WALK_BUF_COPY);
    }
}

static bool has_same_terms(const struct walk_terms *a, const struct walk_terms *b) {
    bool same = a->n == b->n;
    for (uint32_t i = 0; same && i < a->n; i++) {
        same = a->level[i] == b->level[i] && a->step[i] == b->step[i];
    }
    return same;
}

static bool is_same_page(const struct walk_page_of *a, const struct walk_page_of *b) {
    return a->any == b->any && (!a->any || (a->table == b->table && a->element == b->element &&
                                            has_same_terms(&a->terms, &b->terms)));
}

/* Returns true if the pages of a place are in place as one contiguous piece. Otherwise refutes
 * those that are in place, so that none will be. */
static bool is_whole_in_place(struct walk *w, uint32_t buffer, const struct place *at) {
    uint64_t page_bytes = w->program->buffers[buffer].page_bytes, end = at->in_page + at->bytes;
    struct walk_page *first = &w->pages[w->buffers[buffer].first_page + at->page];
    bool any = false, whole = first->alias != NULL;
    for (uint32_t i = 0; i < at->n_pages; i++) {
        const struct walk_page *p = first + i;
        uint64_t needed = end - i * page_bytes < page_bytes ? end - i * page_bytes : page_bytes;
        any = any || p->alias;
        whole = whole && p->alias == first->alias + i * page_bytes && p->bytes >= needed &&
                has_same_terms(&p->terms, &first->terms) && is_same_page(&p->page, &first->page);
    }
    for (uint32_t i = 0; any && !whole && i < at->n_pages; i++) {
        if (first[i].alias) {
            refute_page(w, &first[i], buffer);
        }
    }
    return whole;
}

/* Uses the alias of a page. `uses` is the maximum number of entries that the op being bound will
 * become; they will be the thread's next ones. */
static int use_alias(struct walk *w, const struct walk_engine *e, const struct walk_page *page,
                     uint64_t in_page, uint32_t uses, struct walk_pointer *out) {
    out->at = page->alias + in_page;
    out->page = page->page;
    for (uint32_t i = 0; i < page->terms.n; i++) {
        if (!add_term(&out->terms, page->terms.level[i], page->terms.step[i])) {
            return set_fault(w, "TooManyTerms", TW_NONE, WALK_TERMS + 1, WALK_TERMS);
        }
    }
    if (page->row != TW_NONE) {
        struct walk_use *use = &w->uses[(size_t)page->row * w->n_threads + e->thread];
        use->lo = use->last == 0 || page->lo < use->lo ? page->lo : use->lo;
        use->hi = use->last == 0 || page->hi > use->hi ? page->hi : use->hi;
        use->last = w->n_entries[e->thread] + uses;
    }
    return 0;
}

static int resolve_buffer(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                          uint32_t n, struct walk_pointer *out) {
    const struct walk_region *r = &op->region[n];
    struct walk_buffer *state = &w->buffers[r->id];
    struct place at;
    int rc = find_place(w, e, r, &out->terms, &at);
    if (rc != 0) {
        return rc;
    }
    struct walk_page *pages = &w->pages[state->first_page + at.page];
    out->at = state->base + at.at;
    if (r->kind == 'R' && is_whole_in_place(w, r->id, &at)) {
        return use_alias(w, e, pages, at.in_page, op->code == TW_OP_MCAST ? w->program->n_sites : 1,
                         out);
    }
    if (tw_buffer_state(w->program, &w->program->buffers[r->id]) &&
        is_whole_in_place(w, r->id, &at)) { /* written in place, too */
        return use_alias(w, e, pages, at.in_page, 1, out);
    }
    if (tw_buffer_pinned(w->program, &w->program->buffers[r->id])) {
        return set_fault(w, r->kind == 'R' ? "ReadOutOfRange" : "WriteOutOfRange", r->id, at.at,
                         at.bytes);
    }
    for (uint32_t i = 0; i < at.n_pages && r->kind != 'R'; i++) {
        if (pages[i].alias) {
            refute_page(w, &pages[i], r->id);
        }
        pages[i].written = true;
    }
    bool expects_alias =
        (state->flags & WALK_BUF_READ) && !(state->flags & (WALK_BUF_WRITTEN | WALK_BUF_COPY));
    if (r->kind == 'R' && expects_alias && w->program->buffers[r->id].kind != TW_BUF_FIFO &&
        !pages->alias && !pages->written) {
        mark_copy(w, &state->flags,
                  /* read before the step's READ: the previous step's bytes are meant */
                  WALK_BUF_COPY);
    }
    return 0;
}

int tw_walk_resolve(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                    uint32_t n, struct walk_pointer *out) {
    return tw_region_is_tensor(op->region[n].kind) ? resolve_tensor(w, e, op, n, out)
                                                   : resolve_buffer(w, e, op, n, out);
}

/* ---- in-place reads ---- */

/* Places one page of a Param or State that stays in SRAM. The bytes of a contiguous window are used
 * where the instance's binding row has them; other windows, and those that begin where kernels may
 * not read, are copied when the plan is stored. */
static int place_pinned(struct walk *w, uint32_t buffer, uint32_t k) {
    const struct tw_buffer *b = &w->program->buffers[buffer];
    const struct tw_tensor *t = tw_buffer_pinned(w->program, b);
    struct walk_page *page = &w->pages[w->buffers[buffer].first_page + k];
    struct tw_window window = tw_buffer_window(t, b);
    struct walk_row *row = NULL;
    int rc = find_row(w, b->tensor, k, &row);
    if (rc == 0 && (uintptr_t)row->at % IN_PLACE_ALIGN != 0) {
        rc = set_fault(w, "BadTable", buffer, (uintptr_t)row->at % IN_PLACE_ALIGN, IN_PLACE_ALIGN);
    }
    if (rc != 0) {
        return rc;
    }
    bool in_place = t->role == TW_ROLE_STATE ||
                    (tw_window_contiguous(&window) && window.first % IN_PLACE_ALIGN == 0);
    uint8_t *copy = w->buffers[buffer].base + k * b->page_bytes;
    if (!in_place && w->plan) {
        tw_bind_copy_window(&window, row->at, copy);
    }
    page->alias = in_place ? row->at + window.first : copy;
    page->bytes = tw_window_bytes(&window);
    page->written = true;
    return 0;
}

int tw_walk_place_pinned(struct walk *w) {
    const struct tw_program *p = w->program;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        for (uint32_t k = 0; tw_buffer_pinned(p, &p->buffers[i]) && k < p->buffers[i].pages; k++) {
            int rc = place_pinned(w, i, k);
            if (rc != 0) {
                return rc;
            }
        }
    }
    return 0;
}

void tw_walk_release_page(struct walk *w, struct walk_page *page) {
    if (page->alias && page->row != TW_NONE) {
        uint32_t *link = &w->rows[page->row].live, id = (uint32_t)(page - w->pages);
        while (*link != id) {
            link = &w->pages[*link].next;
        }
        *link = page->next;
    }
    page->alias = NULL;
    page->page.any = false;
    page->op = TW_NONE;
    page->written = false;
}

static bool is_aligned(const struct walk_pointer *p) {
    bool ok = (uintptr_t)p->at % IN_PLACE_ALIGN == 0 &&
              (!p->page.any || p->page.page_bytes % IN_PLACE_ALIGN == 0);
    for (uint32_t i = 0; i < p->terms.n; i++) {
        ok = ok && p->terms.step[i] % IN_PLACE_ALIGN == 0;
    }
    return ok;
}

static bool memory_allows(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                          uint32_t *row_id) {
    const struct tw_tensor *t = &w->program->tensors[op->region[TW_READ_REGION_source].id];
    uint64_t instance;
    struct walk_terms none;
    *row_id = TW_NONE;
    if (t->role == TW_ROLE_PARAM || t->role == TW_ROLE_INPUT) {
        return true;
    }
    if (tw_walk_eval(w, e, op->region[TW_READ_REGION_source].instance, &instance, &none) != 0) {
        return false;
    }
    *row_id = t->bind_first + (uint32_t)instance;
    return !(w->rows[*row_id].flags & WALK_ROW_COPY);
}

static bool buffer_allows(const struct walk *w, const struct walk_op *op, const struct place *at,
                          const struct walk_terms *terms) {
    const struct tw_buffer *b = &w->program->buffers[op->region[TW_READ_REGION_destination].id];
    const struct walk_buffer *state = &w->buffers[op->region[TW_READ_REGION_destination].id];
    if (terms->n > 0 || at->in_page != 0 || at->bytes == 0 || tw_buffer_pinned(w->program, b)) {
        return false;
    }
    if (b->kind == TW_BUF_RESIDENT) {
        return w->dynamic_depth == 0 && (state->flags & WALK_BUF_READ) &&
               !(state->flags & ~WALK_BUF_READ);
    }
    bool fresh = b->kind == TW_BUF_FIFO;
    for (uint32_t i = 0; i < at->n_pages; i++) {
        fresh = fresh && !w->pages[state->first_page + at->page + i].written;
    }
    return fresh;
}

static void put_in_place(struct walk *w, const struct walk_op *op,
                         const struct walk_pointer *source, const struct place *at, uint32_t row) {
    uint64_t page_bytes = w->program->buffers[op->region[TW_READ_REGION_destination].id].page_bytes,
             left = at->bytes;
    const struct tw_tensor *t = &w->program->tensors[op->region[TW_READ_REGION_source].id];
    for (uint32_t i = 0; i < at->n_pages; i++, left -= page_bytes) {
        struct walk_page *page =
            &w->pages[w->buffers[op->region[TW_READ_REGION_destination].id].first_page + at->page +
                      i];
        page->alias = source->at + i * page_bytes;
        page->bytes = left < page_bytes ? left : page_bytes;
        page->terms = source->terms;
        page->page = source->page;
        page->row = row;
        page->op = (uint32_t)(op - w->ops);
        page->written = true;
        if (row != TW_NONE) {
            struct bytes b = bytes_of(w, t, (uint64_t)(page->alias - w->rows[row].at), page->bytes,
                                      &page->terms);
            page->lo = b.lo;
            page->hi = b.hi;
            page->next = w->rows[row].live;
            w->rows[row].live = (uint32_t)(page - w->pages);
        }
    }
}

int tw_walk_read_in_place(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                          const struct walk_pointer *source, bool *done) {
    struct walk_terms terms;
    struct place at;
    uint32_t row;
    *done = false;
    if ((op->flags & WALK_OP_COPY) || !walk_is_dense(op) || !is_aligned(source)) {
        return 0;
    }
    int rc = find_place(w, e, &op->region[TW_READ_REGION_destination], &terms, &at);
    if (rc == 0 && memory_allows(w, e, op, &row) && buffer_allows(w, op, &at, &terms)) {
        put_in_place(w, op, source, &at, row);
        *done = true;
    }
    return rc;
}
