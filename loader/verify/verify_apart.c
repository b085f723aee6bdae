/* SPDX-License-Identifier: Apache-2.0
 *
 * What one op writes overlaps nothing else that it touches (rule 17): its regions are compared in
 * pairs, by their bases where their terms are equal, by their extremes where not, and at their
 * places in a page where a table names one.
 */
#include "loader/base/assert.h"
#include "loader/verify/verify_internal.h"

static bool same_terms(const struct tw_affine *a, const struct tw_affine *b) {
    if (a->n_terms != b->n_terms) {
        return false;
    }
    for (uint32_t i = 0; i < a->n_terms; i++) {
        if (a->term[i].var != b->term[i].var || a->term[i].step != b->term[i].step) {
            return false;
        }
    }
    return true;
}

/* Returns true if two regions of one buffer share no byte: disjoint ranges, disjoint columns of
 * rows of equal stride, or one row between those of the other. With equal terms the bases decide
 * for every iteration. */
static bool apart(const struct tw_vf_data *d, uint32_t a, uint32_t b) {
    const struct tw_affine *fa = &d->region[a]->offset, *fb = &d->region[b]->offset;
    const struct tw_extent *ea = &d->extent[a], *eb = &d->extent[b];
    if (!same_terms(fa, fb)) {
        return d->hi[a] + tw_extent_span(*ea) <= d->lo[b] ||
               d->hi[b] + tw_extent_span(*eb) <= d->lo[a];
    }
    if (fa->base > fb->base) {
        return apart(d, b, a);
    }
    uint64_t distance = fb->base - fa->base;
    if (distance >= tw_extent_span(*ea)) {
        return true;
    }
    uint64_t column = ea->stride ? distance % ea->stride : 0;
    bool one_row = tw_extent_span(*eb) == eb->row_bytes; /* of the one that begins later */
    return (ea->stride == eb->stride || one_row) && ea->stride > 0 && column >= ea->row_bytes &&
           column + eb->row_bytes <= ea->stride;
}

/* Returns true for ops that may write exactly where they read: elementwise ones, and the multicast
 * of a site's own part of a buffer to the siblings, and a merge into its first list. */
static bool may_be_in_place(uint32_t code) {
    switch (code) {
    case TW_OP_ADD:
    case TW_OP_SILU_MUL:
    case TW_OP_GELU:
    case TW_OP_GELU_MUL:
    case TW_OP_SCALE:
    case TW_OP_SOFT_CAP:
    case TW_OP_POS_SCALE:
    case TW_OP_MCAST:
    case TW_OP_TOPK_MERGE:
        return true;
    default:
        return false;
    }
}

static bool same_place(const struct tw_vf_data *d, uint32_t a, uint32_t b) {
    return same_terms(&d->region[a]->offset, &d->region[b]->offset) &&
           d->region[a]->offset.base == d->region[b]->offset.base &&
           d->extent[a].stride == d->extent[b].stride &&
           d->extent[a].row_bytes == d->extent[b].row_bytes;
}

/* Returns the buffer of the engine's own site that a region touches, or TW_NONE: a multicast's
 * destination may be any member of the set, and what it writes here is the sibling. */
static uint32_t buffer_here(const struct tw_verifier *v, const struct tw_vf_data *d, uint32_t n) {
    const struct tw_program *p = v->program;
    if (d->region[n]->kind != 'D') {
        return d->region[n]->id;
    }
    bool here = v->op.code == TW_OP_MCAST &&
                tw_group_holds(p, &p->groups[v->op.operand[TW_MCAST_group].id], v->place.site);
    return here ? tw_buffer_sibling(p, d->buffer[n], v->place.site) : TW_NONE;
}

static bool memory_apart(const struct tw_buffer *a, const struct tw_buffer *b) {
    return a->mem_class != b->mem_class || a->offset + a->pages * a->page_bytes <= b->offset ||
           b->offset + b->pages * b->page_bytes <= a->offset;
}

static int fail_pair(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t a, uint32_t b) {
    const char *what = d->buffer[a] ? "buffer" : "tensor";
    return tw_vf_fail(v, TW_RULE_regions_apart,
                      "%s [%llu, %llu) of %s %u overlaps %s [%llu, %llu) of %s %u",
                      tw_vf_region_name(v->op.code, a), (unsigned long long)d->lo[a],
                      tw_vf_end_of(d, a), what, d->region[a]->id, tw_vf_region_name(v->op.code, b),
                      (unsigned long long)d->lo[b], tw_vf_end_of(d, b), what, d->region[b]->id);
}

/* What ops.def demands of a region: an op may write in the place of its like, and not in that of a
 * vector that is read for each row. */
static uint32_t demand_of(const struct tw_verifier *v, uint32_t n) {
    return tw_op_operands(v->op.code)[tw_op_region(&v->op, n) - v->op.operand].demand;
}

static int check_pair(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t a, uint32_t b) {
    uint32_t first = buffer_here(v, d, a), second = buffer_here(v, d, b);
    bool ok;
    if (first == TW_NONE || second == TW_NONE) {
        return 0; /* on another site */
    }
    tw_vf_count(v, TW_RULE_regions_apart);
    if (first != second) {
        ok = memory_apart(&v->program->buffers[first], &v->program->buffers[second]);
    } else {
        bool in_place = may_be_in_place(v->op.code) && demand_of(v, a) == demand_of(v, b);
        ok = apart(d, a, b) || (in_place && same_place(d, a, b));
    }
    return ok ? 0 : fail_pair(v, d, a, b);
}

/* Returns true if the elements of page tables that name the pages of two regions are never in one
 * column of one table. */
static bool other_columns(const struct tw_verifier *v, const struct tw_operand *a,
                          const struct tw_operand *b) {
    uint64_t lo_a, hi_a, lo_b, hi_b;
    if (a->table != b->table) {
        return true;
    }
    uint32_t cols = v->program->tensors[a->table].cols;
    struct tw_affine x = tw_in_row(&a->element, cols), y = tw_in_row(&b->element, cols);
    if (same_terms(&x, &y)) {
        return x.base != y.base;
    }
    tw_vf_range(v, &x, &lo_a, &hi_a);
    tw_vf_range(v, &y, &lo_b, &hi_b);
    return hi_a < lo_b || hi_b < lo_a;
}

/* Makes region n the one at the same place in the first page. Returns false if it may be in more
 * than one page. */
static bool to_first_page(const struct tw_verifier *v, struct tw_vf_data *d, uint32_t n,
                          struct tw_operand *copy) {
    uint64_t page = tw_tensor_page_bytes(d->tensor[n]);
    TW_ASSERT(page); /* one of the two regions is in pages of this tensor */
    struct tw_affine offset = tw_affine_const(d->region[n]->offset.base % page);
    for (uint32_t i = 0; i < d->region[n]->offset.n_terms; i++) {
        uint64_t step = d->region[n]->offset.term[i].step;
        if ((step >> 63 ? 0 - step : step) % page != 0) {
            offset = tw_affine_plus(offset, d->region[n]->offset.term[i].var, step);
        }
    }
    *copy = *d->region[n];
    copy->offset = offset;
    d->region[n] = copy;
    tw_vf_range(v, &offset, &d->lo[n], &d->hi[n]);
    return tw_range_ok(d->hi[n], tw_extent_span(d->extent[n]), page);
}

/* Two regions of one instance, of which a page table names the page of one at least. Elements of
 * different columns name different pages where one is written (PageShared); otherwise it may be any
 * page. */
static bool pages_apart(const struct tw_verifier *v, const struct tw_vf_data *d, uint32_t a,
                        uint32_t b) {
    struct tw_vf_data first = *d;
    struct tw_operand copy[2];
    if (d->region[a]->paged && d->region[b]->paged &&
        other_columns(v, d->region[a], d->region[b])) {
        return true;
    }
    return to_first_page(v, &first, a, &copy[0]) && to_first_page(v, &first, b, &copy[1]) &&
           apart(&first, a, b);
}

/* Two regions of tensors: other tensors share no bytes (rule 28), nor do other instances. */
static int check_tensors(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t a,
                         uint32_t b) {
    const struct tw_affine *x = &d->region[a]->instance, *y = &d->region[b]->instance;
    tw_vf_count(v, TW_RULE_regions_apart);
    bool paged = d->region[a]->paged || d->region[b]->paged;
    bool ok = d->region[a]->id != d->region[b]->id || (same_terms(x, y) && x->base != y->base) ||
              (paged ? pages_apart(v, d, a, b) : apart(d, a, b));
    return ok ? 0 : fail_pair(v, d, a, b);
}

int tw_vf_apart(struct tw_verifier *v, const struct tw_vf_data *d) {
    int rc = 0;
    for (uint32_t w = 0; w < d->n_regions && !rc; w++) {
        if (d->region[w]->kind == 'R' || d->region[w]->kind == 'T') {
            continue;
        }
        for (uint32_t r = 0; r < d->n_regions && !rc; r++) {
            bool both = r != w && (d->buffer[r] != NULL) == (d->buffer[w] != NULL);
            if (both) {
                rc = d->buffer[w] ? check_pair(v, d, w, r) : check_tensors(v, d, w, r);
            }
        }
    }
    return rc;
}
