/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier's bounds: each region of a data op lies inside its page, buffer or tensor for every
 * value of the loop variables, aligned, and in a role that permits it. An affine number is extreme
 * where each loop variable is at its first or last value, so the extremes are sums of one end per
 * term.
 */
#include "loader/base/assert.h"
#include "loader/verify/verify_internal.h"

#define NAME(v, n) tw_vf_region_name((v)->op.code, n)

static bool is_negative(uint64_t step) {
    return step >> 63 != 0;
}

/* Stores how far the terms can fall below and rise above the base. Returns false on overflow. */
static bool term_range(const struct tw_verifier *v, const struct tw_affine *a, uint64_t *fall,
                       uint64_t *rise) {
    *fall = *rise = 0;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        uint32_t var = a->term[i].var;
        uint64_t step = a->term[i].step, max;
        uint64_t *sum = is_negative(step) ? fall : rise;
        if (var == 0) {
            continue;
        }
        if (!tw_mul_u64(is_negative(step) ? 0 - step : step, (uint64_t)v->var_count[var] - 1,
                        &max) ||
            !tw_add_u64(*sum, max, sum)) {
            return false;
        }
    }
    return true;
}

void tw_vf_range(const struct tw_verifier *v, const struct tw_affine *a, uint64_t *lo,
                 uint64_t *hi) {
    uint64_t fall, rise;
    if (!term_range(v, a, &fall, &rise) || fall > a->base || !tw_add_u64(a->base, rise, hi)) {
        *lo = 0;
        *hi = UINT64_MAX;
        return;
    }
    *lo = a->base - fall;
}

static bool affine_aligned(const struct tw_affine *a, uint64_t align) {
    uint64_t bits = a->base;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        bits |= a->term[i].step;
    }
    return bits % align == 0;
}

unsigned long long tw_vf_end_of(const struct tw_vf_data *d, uint32_t n) {
    uint64_t end;
    return tw_add_u64(d->hi[n], tw_extent_span(d->extent[n]), &end) ? end : UINT64_MAX;
}

/* ---- buffers ---- */

/* A region of a ring must stay in one page: terms that step by whole pages choose the page, the
 * others stay in it. */
static int check_one_page(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t n) {
    const struct tw_tensor *pinned = tw_buffer_pinned(v->program, d->buffer[n]);
    uint64_t page = d->buffer[n]->page_bytes, held = page, lo, hi;
    if (pinned) {
        struct tw_window w = tw_buffer_window(pinned, d->buffer[n]);
        held = tw_window_bytes(&w);
    }
    struct tw_affine in_page = tw_affine_const(d->region[n]->offset.base % page);
    const struct tw_affine *a = &d->region[n]->offset;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        uint64_t step = a->term[i].step;
        if ((is_negative(step) ? 0 - step : step) % page != 0) {
            in_page = tw_affine_plus(in_page, a->term[i].var, step);
        }
    }
    tw_vf_range(v, &in_page, &lo, &hi);
    if (!tw_range_ok(hi, tw_extent_span(d->extent[n]), held)) {
        return tw_vf_fail(v, TW_RULE_region_in_buffer,
                          "%s spans %llu bytes from %llu of a page of %llu bytes", NAME(v, n),
                          (unsigned long long)tw_extent_span(d->extent[n]), (unsigned long long)hi,
                          (unsigned long long)held);
    }
    return 0;
}

static int check_fifo_region(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t n) {
    const struct tw_operand *o = d->region[n];
    const struct tw_buffer *b = d->buffer[n];
    bool produces = b->producer == v->place.engine;
    if (!produces && (b->consumer != v->place.engine || o->kind != 'R')) {
        return tw_vf_fail(v, TW_RULE_fifo_ends,
                          "%s %s in FIFO %u (%s), produced by %s and consumed by %s",
                          o->kind == 'R' ? "reads" : "writes", NAME(v, n), o->id,
                          tw_program_string(v->program, b->name), tw_engine_name(b->producer),
                          tw_engine_name(b->consumer));
    }
    uint32_t level = v->buffers[o->id].side[produces ? 0 : 1].level;
    /* no overflow: level <= pages, and the ring fits the SRAM */
    uint64_t held = level * b->page_bytes;
    if (!tw_range_ok(d->hi[n], tw_extent_span(d->extent[n]), held)) {
        return tw_vf_fail(v, TW_RULE_region_in_buffer,
                          "%s spans [%llu, %llu), but only %u pages of %llu bytes are %s",
                          NAME(v, n), (unsigned long long)d->lo[n], tw_vf_end_of(d, n), level,
                          (unsigned long long)b->page_bytes, produces ? "reserved" : "waited for");
    }
    return check_one_page(v, d, n);
}

/* Checks a Param or State in SRAM: an access stays in the window of one instance, and does not
 * write a Param. */
static int check_pinned_region(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t n) {
    const struct tw_buffer *b = d->buffer[n];
    tw_vf_count(v, TW_RULE_roles_kept);
    if (tw_buffer_param(v->program, b) &&
        !tw_demand_role(d->region[n]->kind, d->region_demand[n], TW_ROLE_PARAM)) {
        return tw_vf_fail(v, TW_RULE_roles_kept, "writes buffer %u (%s), which keeps a param",
                          d->region[n]->id, tw_program_string(v->program, b->name));
    }
    if (!tw_range_ok(d->hi[n], tw_extent_span(d->extent[n]), b->pages * b->page_bytes)) {
        return tw_vf_fail(v, TW_RULE_region_in_buffer,
                          "%s spans [%llu, %llu) of %u pages of %llu bytes", NAME(v, n),
                          (unsigned long long)d->lo[n], tw_vf_end_of(d, n), b->pages,
                          (unsigned long long)b->page_bytes);
    }
    return check_one_page(v, d, n);
}

static int check_plain_region(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t n) {
    const struct tw_buffer *b = d->buffer[n];
    struct tw_vf_buffer *state = &v->buffers[d->region[n]->id];
    if (b->kind == TW_BUF_SCRATCH) {
        if (state->user && state->user != v->place.engine + 1) {
            return tw_vf_fail(v, TW_RULE_fifo_ends,
                              "%s is in scratch %u (%s), which engine %s uses", NAME(v, n),
                              d->region[n]->id, tw_program_string(v->program, b->name),
                              tw_engine_name(state->user - 1u));
        }
        state->user = (uint8_t)(v->place.engine + 1);
    }
    if (!tw_range_ok(d->hi[n], tw_extent_span(d->extent[n]), b->page_bytes)) {
        return tw_vf_fail(v, TW_RULE_region_in_buffer,
                          "%s spans [%llu, %llu) of a page of %llu bytes", NAME(v, n),
                          (unsigned long long)d->lo[n], tw_vf_end_of(d, n),
                          (unsigned long long)b->page_bytes);
    }
    return 0;
}

/* ---- tensors ---- */

static int check_role(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t n) {
    const struct tw_tensor *t = d->tensor[n];
    bool writes = d->region[n]->kind == 'U';
    tw_vf_count(v, TW_RULE_roles_kept);
    if (!tw_demand_role(d->region[n]->kind, d->region_demand[n], t->role)) {
        static const char *const name[TW_ROLE_COUNT] = {"an input", "a param", "an output",
                                                        "a state", "an activation"};
        bool ids = d->region_demand[n] == TW_DEMAND_IDS;
        return tw_vf_fail(v, TW_RULE_roles_kept, "%s tensor %u (%s), %s%s",
                          writes ? "writes" : "reads", d->region[n]->id,
                          tw_program_string(v->program, t->name), name[t->role],
                          ids ? ", as ids, which must be an input" : "");
    }
    if (v->op.code == TW_OP_WRITE && t->packing != TW_PACK_ROW) {
        return tw_vf_fail(v, TW_RULE_operand_types, "writes rows into a tensor packed as %u",
                          t->packing);
    }
    if (v->in_sram[d->region[n]->id]) {
        return tw_vf_fail(v, TW_RULE_roles_kept,
                          "%s tensor %u (%s), a state that lives in SRAM: only its buffers may be "
                          "named",
                          writes ? "writes" : "reads", d->region[n]->id,
                          tw_program_string(v->program, t->name));
    }
    v->written[d->region[n]->id] |= writes;
    return 0;
}

/* Checks which elements of a table an op uses: they exist and are in one row. */
static int check_elements(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t n,
                          const struct tw_tensor *table) {
    const struct tw_affine *a = &d->region[n]->element;
    struct tw_affine in_row = tw_in_row(a, table->cols);
    uint64_t more = 0, lo, hi, end;
    if (v->op.code == TW_OP_KEY_WRITE || v->op.code == TW_OP_VALUE_WRITE) {
        more = (v->op.operand[TW_KEY_WRITE_pos].max + d->rows - 1) / TW_KV_BLOCK;
    }
    tw_vf_range(v, &in_row, &lo, &hi);
    if (!tw_add_u64(hi, more, &end) || end >= table->cols) {
        return tw_vf_fail(v, TW_RULE_region_in_tensor,
                          "%s uses elements %llu to %llu of a row of page table %s, which has %u",
                          NAME(v, n), (unsigned long long)lo,
                          (unsigned long long)(hi == UINT64_MAX ? hi : end),
                          tw_program_string(v->program, table->name), table->cols);
    }
    tw_vf_range(v, a, &lo, &hi);
    if (!tw_add_u64(hi, more, &end) || end >= (uint64_t)table->rows * table->cols) {
        return tw_vf_fail(v, TW_RULE_region_in_tensor,
                          "%s uses elements up to %llu of page table %s, which has %u x %u",
                          NAME(v, n), (unsigned long long)hi,
                          tw_program_string(v->program, table->name), table->rows, table->cols);
    }
    return 0;
}

/* Checks a region of a page: the table's role and type, its elements, and that the region stays in
 * the page; a cache write names whole pages. */
static int check_page_region(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t n) {
    const struct tw_operand *o = d->region[n];
    const struct tw_tensor *t = d->tensor[n], *table = &v->program->tensors[o->table];
    uint64_t page = tw_tensor_page_bytes(t), span = tw_extent_span(d->extent[n]);
    if (v->op.code == TW_OP_GATHER || page == 0 || t->role != TW_ROLE_STATE) {
        return tw_vf_fail(v, TW_RULE_operand_types, "%s is in pages of tensor %u (%s), %s",
                          NAME(v, n), o->id, tw_program_string(v->program, t->name),
                          page == 0                    ? "which has none"
                          : v->op.code == TW_OP_GATHER ? "which a gather cannot use"
                                                       : "which is no state");
    }
    if (table->role != TW_ROLE_INPUT || table->dtype != TW_DT_I32 ||
        table->packing != TW_PACK_ROW || (uint64_t)table->rows * table->cols > TW_VF_MAX_COUNT) {
        return tw_vf_fail(v, TW_RULE_roles_kept,
                          "%s takes page numbers from tensor %u (%s), %u x %u %s of role %u packed "
                          "as %u, not an i32 input of rows",
                          NAME(v, n), o->table, tw_program_string(v->program, table->name),
                          table->rows, table->cols, tw_dtype_name(table->dtype), table->role,
                          table->packing);
    }
    bool cache = v->op.code == TW_OP_KEY_WRITE || v->op.code == TW_OP_VALUE_WRITE;
    if (cache ? d->hi[n] != 0 : !tw_range_ok(d->hi[n], span, page)) {
        return tw_vf_fail(v, TW_RULE_region_in_tensor,
                          "%s spans [%llu, %llu) of a page of %llu bytes of %s", NAME(v, n),
                          (unsigned long long)d->lo[n], tw_vf_end_of(d, n),
                          (unsigned long long)page, tw_program_string(v->program, t->name));
    }
    if (t->packing == TW_PACK_KEYS && (uint64_t)table->cols * TW_KV_BLOCK > v->key_positions) {
        v->key_positions = (uint64_t)table->cols * TW_KV_BLOCK;
    }
    return check_elements(v, d, n, table);
}

static int check_tensor_region(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t n) {
    const struct tw_tensor *t = d->tensor[n];
    uint64_t lo, hi;
    int rc = check_role(v, d, n);
    if (rc) {
        return rc;
    }
    tw_vf_count(v, TW_RULE_region_in_tensor);
    tw_vf_range(v, &d->region[n]->instance, &lo, &hi);
    if (hi >= t->bind_count) {
        return tw_vf_fail(v, TW_RULE_region_in_tensor,
                          "%s uses instances up to %llu of %s, which has %u", NAME(v, n),
                          (unsigned long long)hi, tw_program_string(v->program, t->name),
                          t->bind_count);
    }
    if (d->region[n]->paged) {
        return check_page_region(v, d, n);
    }
    if (!tw_range_ok(d->hi[n], tw_extent_span(d->extent[n]), t->bytes)) {
        return tw_vf_fail(v, TW_RULE_region_in_tensor,
                          "%s spans [%llu, %llu) of the %llu bytes of %s", NAME(v, n),
                          (unsigned long long)d->lo[n], tw_vf_end_of(d, n),
                          (unsigned long long)t->bytes, tw_program_string(v->program, t->name));
    }
    return 0;
}

/* ---- alignment ---- */

static int check_shape(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t n) {
    const struct tw_extent *e = &d->extent[n];
    bool weights = d->region_demand[n] == TW_DEMAND_WEIGHTS;
    if (!affine_aligned(&d->region[n]->offset, weights ? 64 : 4)) {
        return tw_vf_fail(v, TW_RULE_operand_types, "%s is not aligned to %d bytes", NAME(v, n),
                          weights ? 64 : 4);
    }
    if (d->region[n]->kind != 'R' && d->region[n]->kind != 'T' && e->rows > 1 &&
        e->stride < e->row_bytes) {
        return tw_vf_fail(v, TW_RULE_operand_types, "%s writes rows of %llu bytes every %llu bytes",
                          NAME(v, n), (unsigned long long)e->row_bytes,
                          (unsigned long long)e->stride);
    }
    if (weights) {
        v->buffers[d->region[n]->id].is_weight = 1;
    }
    return 0;
}

/* Parameter pages may be used in place, so a READ that fills a weight buffer must have the
 * alignment that MATMUL needs. */
static void record_alignment(struct tw_verifier *v) {
    const struct tw_operand *o = v->op.operand;
    struct tw_vf_buffer *b = &v->buffers[o[TW_READ_destination].id];
    bool one = o[TW_READ_rows].id == 1;
    uint64_t page = o[TW_READ_source].paged
                        ? tw_tensor_page_bytes(&v->program->tensors[o[TW_READ_source].id])
                        : 0;
    if (!b->is_unaligned && !(affine_aligned(&o[TW_READ_source].offset, 64) && page % 64 == 0 &&
                              affine_aligned(&o[TW_READ_destination].offset, 64) &&
                              (one || (o[TW_READ_source_stride].id % 64 == 0 &&
                                       o[TW_READ_destination_stride].id % 64 == 0)))) {
        b->is_unaligned = 1;
        b->unaligned = v->place;
    }
}

/* ---- other sites ---- */

/* Only resident buffers are written from other sites: a FIFO has its producer and its consumer, a
 * scratch buffer its engine, on their site. */
static int check_remote_region(struct tw_verifier *v, const struct tw_vf_data *d, uint32_t n) {
    const struct tw_buffer *b = d->buffer[n];
    tw_vf_count(v, TW_RULE_groups_on_chip);
    if (b->kind != TW_BUF_RESIDENT) {
        return tw_vf_fail(v, TW_RULE_groups_on_chip, "%s %u (%s) is not a resident buffer",
                          NAME(v, n), d->region[n]->id, tw_program_string(v->program, b->name));
    }
    tw_vf_count(v, TW_RULE_roles_kept);
    if (tw_buffer_pinned(v->program, b)) { /* State is its own site's */
        return tw_vf_fail(v, TW_RULE_roles_kept, "writes buffer %u (%s), which keeps a %s",
                          d->region[n]->id, tw_program_string(v->program, b->name),
                          tw_buffer_param(v->program, b) ? "param" : "state");
    }
    if (!tw_range_ok(d->hi[n], tw_extent_span(d->extent[n]), b->page_bytes)) {
        return tw_vf_fail(v, TW_RULE_region_in_buffer,
                          "%s spans [%llu, %llu) of a page of %llu bytes", NAME(v, n),
                          (unsigned long long)d->lo[n], tw_vf_end_of(d, n),
                          (unsigned long long)b->page_bytes);
    }
    return 0;
}

static int check_send(struct tw_verifier *v, const struct tw_vf_data *d) {
    const struct tw_buffer *b = d->buffer[TW_SEND_REGION_destination];
    if (b->site == v->place.site) {
        return tw_vf_fail(v, TW_RULE_groups_on_chip,
                          "sends to buffer %u (%s) of its own site: copy moves data inside a site",
                          v->op.operand[TW_SEND_destination].id,
                          tw_program_string(v->program, b->name));
    }
    return 0;
}

static int check_mcast(struct tw_verifier *v, const struct tw_vf_data *d) {
    const struct tw_program *p = v->program;
    const struct tw_buffer *b = d->buffer[TW_MCAST_REGION_destination];
    uint32_t group = v->op.operand[TW_MCAST_group].id;
    tw_vf_count(v, TW_RULE_groups_on_chip);
    if (b->sibling_base == TW_NONE) {
        return tw_vf_fail(v, TW_RULE_groups_on_chip, "buffer %u (%s) has no siblings",
                          v->op.operand[TW_MCAST_destination].id, tw_program_string(p, b->name));
    }
    if (!tw_group_within(&p->groups[group], &p->groups[b->group])) {
        return tw_vf_fail(
            v, TW_RULE_groups_on_chip,
            "multicasts to group %u; buffer %u (%s) has siblings on the sites of group %u", group,
            v->op.operand[TW_MCAST_destination].id, tw_program_string(p, b->name), b->group);
    }
    return tw_vf_mcast_group(v, group);
}

/* ---- regions of one op ---- */

int tw_vf_regions(struct tw_verifier *v, struct tw_vf_data *d) {
    unsigned x_dtype = d->buffer[0] ? d->buffer[0]->dtype : 0;
    int rc = 0;
    for (uint32_t n = 0; n < d->n_regions && !rc; n++) {
        d->extent[n] = tw_op_extent(&v->op, n, d->rows, x_dtype, d->tensor[n]);
        tw_vf_range(v, &d->region[n]->offset, &d->lo[n], &d->hi[n]);
        rc = check_shape(v, d, n);
        if (rc) {
            break;
        }
        if (d->tensor[n]) {
            rc = check_tensor_region(v, d, n);
            continue;
        }
        tw_vf_count(v, TW_RULE_region_in_buffer);
        TW_ASSERT(d->buffer[n]); /* tw_vf_operands sets one of the two */
        rc = d->region[n]->kind == 'D'                    ? check_remote_region(v, d, n)
             : d->buffer[n]->kind == TW_BUF_FIFO          ? check_fifo_region(v, d, n)
             : tw_buffer_pinned(v->program, d->buffer[n]) ? check_pinned_region(v, d, n)
                                                          : check_plain_region(v, d, n);
    }
    if (!rc && v->op.code == TW_OP_READ) {
        record_alignment(v);
    }
    if (!rc && v->op.code == TW_OP_MCAST) {
        rc = check_mcast(v, d);
    }
    if (!rc && v->op.code == TW_OP_SEND) {
        rc = check_send(v, d);
    }
    return rc ? rc : tw_vf_apart(v, d);
}

int tw_vf_regions_finish(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        struct tw_vf_buffer *b = &v->buffers[i];
        if (b->is_weight && b->is_unaligned) {
            v->place = b->unaligned;
            return tw_vf_fail(
                v, TW_RULE_operand_types,
                "fills weight buffer %u (%s) at offsets or strides that are not multiples of 64", i,
                tw_program_string(p, p->buffers[i].name));
        }
        if (b->is_weight && p->buffers[i].page_bytes % 64 != 0) {
            tw_vf_at_object(v, "buffer", i, p->buffers[i].name);
            return tw_vf_fail(v, TW_RULE_operand_types,
                              "holds weights in pages of %llu bytes, not a multiple of 64",
                              (unsigned long long)p->buffers[i].page_bytes);
        }
    }
    if (v->key_blocks > v->key_positions / TW_KV_BLOCK) {
        v->place = v->key_place;
        return tw_vf_fail(
            v, TW_RULE_region_in_tensor, "key blocks up to %llu of caches of %llu positions",
            (unsigned long long)(v->key_blocks - 1), (unsigned long long)v->key_positions);
    }
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        tw_vf_count(v, TW_RULE_roles_kept);
        if (p->tensors[i].role == TW_ROLE_OUTPUT && !v->written[i]) {
            tw_vf_at_object(v, "tensor", i, p->tensors[i].name);
            return tw_vf_fail(v, TW_RULE_roles_kept, "no op writes this output");
        }
    }
    return 0;
}
