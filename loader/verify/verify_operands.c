/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier's checks of operands: ids, loop variables, counts, and the types and immediates that
 * kernels rely on. ops.def says what each may be by itself; constraints between operands are here.
 */
#include "loader/verify/verify_internal.h"

#include <math.h>

/* Checks that the arrays are large enough for every op. */
#define TW_OP(NAME, number, name, engines, part)                                \
    _Static_assert((unsigned)TW_##NAME##_COUNT <= TW_MAX_OPERANDS &&            \
                       (unsigned)TW_##NAME##_REGION_COUNT <= TW_VF_MAX_REGIONS, \
                   "struct tw_op and struct tw_vf_data hold the operands of " #name);
#include "tilewright/ops.def"
#undef TW_OP

const char *tw_vf_region_name(uint32_t code, uint32_t n) {
    for (const struct tw_operand_info *o = tw_op_operands(code); o->name; o++) {
        if (tw_letter_in("RWMDTU", o->kind) && n-- == 0) {
            return o->name;
        }
    }
    return "?";
}

/* ---- ids and variables ---- */

static int check_affine(struct tw_verifier *v, const struct tw_affine *a) {
    for (uint32_t i = 0; i < a->n_terms; i++) {
        uint32_t var = a->term[i].var;
        if (var == 0 ? v->op.code != TW_OP_SEM_WAIT : v->var_count[var] == 0) {
            return tw_vf_fail(v, TW_RULE_stream_decodes,
                              var == 0 ? "variable %u is the epoch, which only thresholds may use"
                                       : "variable %u belongs to no enclosing loop",
                              var);
        }
    }
    return 0;
}

static int check_id(struct tw_verifier *v, const char *what, uint32_t id, uint32_t n) {
    tw_vf_count(v, TW_RULE_table_sizes);
    return id < n ? 0
                  : tw_vf_fail(v, TW_RULE_table_sizes, "%s %u does not exist, there are %u", what,
                               id, n);
}

static int check_count(struct tw_verifier *v, const struct tw_operand *o, bool is_position) {
    tw_vf_count(v, TW_RULE_trips_sound);
    if (o->id == TW_NONE) {
        if (o->max > TW_VF_MAX_COUNT || (o->max == 0 && !is_position)) {
            return tw_vf_fail(v, TW_RULE_trips_sound, "count %u is out of range", o->max);
        }
        return 0;
    }
    int rc = check_id(v, "trip", o->id, v->program->n_trips);
    if (rc) {
        return rc;
    }
    const struct tw_trip *t = &v->program->trips[o->id];
    if (t->max > o->max || o->max > TW_VF_MAX_COUNT) {
        return tw_vf_fail(v, TW_RULE_trips_sound,
                          "count is at most %u, but trip %u (%s) reaches %u", o->max, o->id,
                          tw_program_string(v->program, t->name), t->max);
    }
    return 0;
}

static int check_buffer(struct tw_verifier *v, uint32_t id) {
    int rc = check_id(v, "buffer", id, v->program->n_buffers);
    if (!rc && v->program->buffers[id].site != v->place.site) {
        rc = tw_vf_fail(v, TW_RULE_region_in_buffer, "buffer %u (%s) is on site %u", id,
                        tw_program_string(v->program, v->program->buffers[id].name),
                        v->program->buffers[id].site);
    }
    return rc;
}

static int check_operand(struct tw_verifier *v, const struct tw_operand *o, bool is_position) {
    const struct tw_program *p = v->program;
    int rc = 0;
    switch (o->kind) {
    case 'R':
    case 'W':
    case 'M':
        rc = check_buffer(v, o->id);
        return rc ? rc : check_affine(v, &o->offset);
    case 'D': /* on any site */
        rc = check_id(v, "buffer", o->id, p->n_buffers);
        return rc ? rc : check_affine(v, &o->offset);
    case 'T':
    case 'U':
        rc = check_id(v, "tensor", o->id, p->n_tensors);
        rc = rc ? rc : check_affine(v, &o->instance);
        rc = rc ? rc : check_affine(v, &o->offset);
        rc = rc || !o->paged ? rc : check_id(v, "page table", o->table, p->n_tensors);
        return rc || !o->paged ? rc : check_affine(v, &o->element);
    case 'F':
        return check_buffer(v, o->id);
    case 'S':
        return check_id(v, "semaphore", o->id, p->n_semaphores);
    case 'G':
        return check_id(v, "group", o->id, p->n_groups);
    case 'C':
        return check_id(v, "site", o->id, p->n_sites);
    case 'X':
        return check_count(v, o, is_position);
    case 'A':
        return check_affine(v, &o->offset);
    default:
        return 0; /* I E V: checked with their ops */
    }
}

static void sort_operand(struct tw_verifier *v, const struct tw_operand *o, uint32_t demand,
                         struct tw_vf_data *d) {
    uint32_t n = d->n_regions;
    switch (o->kind) {
    case 'R':
    case 'W':
    case 'M':
    case 'D':
    case 'T':
    case 'U':
        d->region[n] = o;
        d->region_demand[n] = demand;
        d->buffer[n] = o->kind == 'T' || o->kind == 'U' ? NULL : &v->program->buffers[o->id];
        d->tensor[n] = d->buffer[n] ? NULL : &v->program->tensors[o->id];
        d->n_regions++;
        break;
    case 'I':
        d->imm_demand[d->n_imm] = demand;
        d->imm[d->n_imm++] = o->id;
        break;
    case 'X':
        d->count[d->n_counts++] = o;
        break;
    default:
        break;
    }
}

int tw_vf_operands(struct tw_verifier *v, struct tw_vf_data *d) {
    const struct tw_operand_info *info = tw_op_operands(v->op.code);
    for (uint32_t i = 0; i < v->op.n_operands; i++) {
        const struct tw_operand *o = &v->op.operand[i];
        int rc = check_operand(v, o, info[i].demand == TW_DEMAND_POSITION);
        if (rc) {
            return rc;
        }
        sort_operand(v, o, info[i].demand, d);
    }
    d->rows = d->n_counts ? d->count[d->n_counts - 1]->max : 1;
    return 0;
}

/* ---- types ---- */

static bool is_weight_dtype(uint32_t dtype) {
    return tw_demand_number(TW_DEMAND_WEIGHT_DTYPE, dtype);
}

static int check_immediates(struct tw_verifier *v, const struct tw_vf_data *d) {
    for (uint32_t i = 0; i < d->n_imm; i++) {
        if (!tw_demand_number(d->imm_demand[i], d->imm[i])) {
            return tw_vf_fail(v, TW_RULE_operand_types, "immediate %u, %s, is %u", i,
                              tw_demand_text(d->imm_demand[i]), d->imm[i]);
        }
    }
    return 0;
}

/* Returns the dtype of the op's weights or cache, or 0 if it has none. */
static uint32_t named_dtype(const struct tw_vf_data *d) {
    for (uint32_t i = 0; i < d->n_imm; i++) {
        if (tw_demand_names_dtype(d->imm_demand[i])) {
            return d->imm[i];
        }
    }
    return 0;
}

static unsigned dtype_of(const struct tw_vf_data *d, uint32_t n) {
    return d->buffer[n] ? d->buffer[n]->dtype : d->tensor[n]->dtype;
}

static int check_regions(struct tw_verifier *v, const struct tw_vf_data *d) {
    for (uint32_t i = 0; i < d->n_regions; i++) {
        unsigned dtype = dtype_of(d, i);
        if (!tw_demand_dtype(d->region_demand[i], dtype, named_dtype(d))) {
            return tw_vf_fail(v, TW_RULE_operand_types, "%s is in a %s %s",
                              tw_vf_region_name(v->op.code, i), tw_dtype_name(dtype),
                              d->buffer[i] ? "buffer" : "tensor");
        }
    }
    return 0;
}

static int check_matmul(struct tw_verifier *v, const struct tw_vf_data *d) {
    unsigned x = dtype_of(d, TW_MATMUL_REGION_x), w = v->op.operand[TW_MATMUL_dtype].id;
    uint32_t k = v->op.operand[TW_MATMUL_k].id;
    uint32_t block = tw_dtype_block_elems(w);
    if (x != TW_DT_F32 && x != tw_dtype_activation(w)) {
        bool blocks = block > 1;
        return tw_vf_fail(v, TW_RULE_operand_types,
                          "x is %s, which does not go with %s weights (they need %s%s)",
                          tw_dtype_name(x), tw_dtype_name(w), blocks ? "f32 or " : "",
                          tw_dtype_name(tw_dtype_activation(w)));
    }
    if (k % block != 0) {
        return tw_vf_fail(v, TW_RULE_operand_types,
                          "depth %u is not a multiple of %u with %s weights", k, block,
                          tw_dtype_name(w));
    }
    uint32_t panels = v->op.operand[TW_MATMUL_panels].id,
             stride = v->op.operand[TW_MATMUL_w_stride].id;
    if (panels > 1 && stride < tw_panel_bytes(w, k)) {
        return tw_vf_fail(v, TW_RULE_operand_types, "panels of %llu bytes every %u bytes",
                          (unsigned long long)tw_panel_bytes(w, k), stride);
    }
    return 0;
}

static int check_rms_scale(struct tw_verifier *v) {
    uint32_t cols = v->op.operand[TW_RMS_SCALE_cols].id,
             width = v->op.operand[TW_RMS_SCALE_width].id;
    return cols <= width ? 0
                         : tw_vf_fail(v, TW_RULE_operand_types, "scales %u columns of rows of %u",
                                      cols, width);
}

static int check_quant(struct tw_verifier *v, uint32_t cols, uint32_t block) {
    return cols % block == 0 ? 0
                             : tw_vf_fail(v, TW_RULE_operand_types,
                                          "%u columns are not a multiple of %u", cols, block);
}

static int check_rope(struct tw_verifier *v) {
    uint32_t rotated = v->op.operand[TW_ROPE_rotated].id,
             head_dim = v->op.operand[TW_ROPE_head_dim].id;
    return rotated <= head_dim ? 0
                               : tw_vf_fail(v, TW_RULE_operand_types,
                                            "rotates %u values of heads of %u", rotated, head_dim);
}

static int check_gather(struct tw_verifier *v, const struct tw_vf_data *d) {
    const struct tw_tensor *t = d->tensor[TW_GATHER_REGION_table];
    uint32_t cols = v->op.operand[TW_GATHER_cols].id;
    if (!is_weight_dtype(t->dtype) || t->packing > TW_PACK_PANEL16) {
        return tw_vf_fail(v, TW_RULE_operand_types, "gathers from a %s table packed as %u",
                          tw_dtype_name(t->dtype), t->packing);
    }
    if (t->cols != cols) {
        return tw_vf_fail(v, TW_RULE_operand_types, "gathers %u columns of a table of %u", cols,
                          t->cols);
    }
    return 0;
}

/* VALUE_WRITE has the operands of KEY_WRITE. */
static int check_cache_write(struct tw_verifier *v, const struct tw_vf_data *d) {
    const struct tw_tensor *t = d->tensor[TW_KEY_WRITE_REGION_cache];
    const struct tw_operand *o = v->op.operand;
    unsigned packing = v->op.code == TW_OP_KEY_WRITE ? TW_PACK_KEYS : TW_PACK_VALUES;
    uint32_t first = o[TW_KEY_WRITE_first].id, heads = o[TW_KEY_WRITE_heads].id,
             head_dim = o[TW_KEY_WRITE_head_dim].id;
    uint64_t last = (uint64_t)o[TW_KEY_WRITE_pos].max + d->rows;
    if (t->packing != packing || t->head_dim != head_dim) {
        return tw_vf_fail(v, TW_RULE_operand_types,
                          "heads of %u into a %s tensor packed as %u with heads of %u", head_dim,
                          tw_dtype_name(t->dtype), t->packing, t->head_dim);
    }
    if ((uint64_t)first + heads > t->cols / t->head_dim) {
        return tw_vf_fail(v, TW_RULE_region_in_tensor, "heads %u + %u of a cache of %u heads",
                          first, heads, t->cols / t->head_dim);
    }
    if (last > t->rows && !o[TW_KEY_WRITE_cache].paged) { /* else its table limits positions */
        return tw_vf_fail(v, TW_RULE_region_in_tensor, "positions up to %llu of a cache of %u",
                          (unsigned long long)last, t->rows);
    }
    return 0;
}

/* Checks a state of that many segments of that many heads. */
static int check_segments(struct tw_verifier *v, uint32_t segments, uint32_t heads) {
    return (uint64_t)segments * heads <= TW_VF_MAX_STATE_HEADS
               ? 0
               : tw_vf_fail(v, TW_RULE_operand_types,
                            "a state of %u segments of %u heads, more than %u in all", segments,
                            heads, TW_VF_MAX_STATE_HEADS);
}

/* Checks that a block's segment is one of the state's, or one that a state of two makes room for:
 * with more, the last but one would not be the sum of all before it, and with one there is none. */
static int check_segment_range(struct tw_verifier *v, uint64_t lo, uint64_t hi) {
    const struct tw_operand *o = v->op.operand;
    uint32_t segments = o[TW_ATTN_STEP_segments].id, first = o[TW_ATTN_STEP_segment].id;
    uint64_t blocks = TW_KEY_SEGMENT / TW_KV_BLOCK;
    if (lo / blocks < first || (segments != 2 && hi / blocks - first >= segments)) {
        return tw_vf_fail(v, TW_RULE_operand_types,
                          "key blocks %llu to %llu, segments %llu to %llu, in a state of %u "
                          "segments from %u on",
                          (unsigned long long)lo, (unsigned long long)hi,
                          (unsigned long long)(lo / blocks), (unsigned long long)(hi / blocks),
                          segments, first);
    }
    return 0;
}

static int check_attention(struct tw_verifier *v) {
    const struct tw_operand *o = v->op.operand;
    uint32_t first = o[TW_ATTN_STEP_first].id, heads = o[TW_ATTN_STEP_heads].id,
             state_heads = o[TW_ATTN_STEP_state_heads].id;
    uint64_t lo, hi;
    if ((uint64_t)first + heads > state_heads) {
        return tw_vf_fail(v, TW_RULE_operand_types, "heads %u + %u of a state of %u heads", first,
                          heads, state_heads);
    }
    tw_vf_range(v, &o[TW_ATTN_STEP_block].offset, &lo, &hi);
    if (hi >= v->key_blocks) { /* how many there may be is known when all ops have been seen */
        v->key_blocks = hi < UINT64_MAX ? hi + 1 : hi;
        v->key_place = v->place;
    }
    int rc = check_segments(v, o[TW_ATTN_STEP_segments].id, state_heads);
    return rc ? rc : check_segment_range(v, lo, hi);
}

/* A cap is a divisor; an attention may have none. */
static int check_cap(struct tw_verifier *v, const struct tw_operand *cap, bool needed) {
    float value = tw_operand_float(cap);
    if (value > 0.0f || (value == 0.0f && !needed)) {
        return 0;
    }
    return tw_vf_fail(v, TW_RULE_operand_types, "a cap of %g, expected a number above 0",
                      (double)value);
}

static int check_window(struct tw_verifier *v) {
    int rc = check_attention(v); /* an attn_window's operands begin with those of an attn_step */
    return rc ? rc : check_cap(v, &v->op.operand[TW_ATTN_WINDOW_cap], false);
}

/* Bytes are moved unchanged, so both ends must have one dtype, or one end is untyped. */
static int check_same(struct tw_verifier *v, const struct tw_vf_data *d) {
    unsigned a = dtype_of(d, 0), b = dtype_of(d, 1);
    bool typed =
        v->op.code == TW_OP_MCAST || v->op.code == TW_OP_SEND || v->op.code == TW_OP_DRAM_COPY;
    if (a != b && (typed || (a != TW_DT_U8 && b != TW_DT_U8))) {
        return tw_vf_fail(v, TW_RULE_operand_types, "moves %s to %s", tw_dtype_name(a),
                          tw_dtype_name(b));
    }
    return 0;
}

/* Bytes keep their meaning only if both tensors are packed alike. */
static int check_dram_copy(struct tw_verifier *v, const struct tw_vf_data *d) {
    const struct tw_tensor *from = d->tensor[TW_DRAM_COPY_REGION_source],
                           *to = d->tensor[TW_DRAM_COPY_REGION_destination];
    if (from->packing != to->packing || from->head_dim != to->head_dim) {
        return tw_vf_fail(v, TW_RULE_operand_types,
                          "copies a tensor packed as %u with heads of %u to one packed as %u with "
                          "heads of %u",
                          from->packing, from->head_dim, to->packing, to->head_dim);
    }
    return check_same(v, d);
}

/* Ids are below 2^31, as token ids are. */
static int check_topk(struct tw_verifier *v) {
    const struct tw_operand *o = v->op.operand;
    uint64_t lo, hi;
    tw_vf_range(v, &o[TW_TOPK_base].offset, &lo, &hi);
    if (!tw_range_ok(hi, o[TW_TOPK_cols].id, TW_VF_MAX_COUNT)) {
        return tw_vf_fail(v, TW_RULE_operand_types,
                          "%u columns from id %llu on: ids must stay below %u", o[TW_TOPK_cols].id,
                          (unsigned long long)hi, TW_VF_MAX_COUNT);
    }
    return 0;
}

static int check_floats(struct tw_verifier *v) {
    for (uint32_t i = 0; i < v->op.n_operands; i++) {
        if (v->op.operand[i].kind == 'E' && !isfinite(tw_operand_float(&v->op.operand[i]))) {
            return tw_vf_fail(v, TW_RULE_operand_types, "operand %u is not a finite number", i);
        }
    }
    return 0;
}

static int check_positions(struct tw_verifier *v, const struct tw_vf_data *d) {
    if (d->n_counts == 2 && (uint64_t)d->count[0]->max + d->rows > TW_VF_MAX_COUNT) {
        return tw_vf_fail(v, TW_RULE_trips_sound, "position %u + %llu rows is out of range",
                          d->count[0]->max, (unsigned long long)d->rows);
    }
    return 0;
}

static int check_special(struct tw_verifier *v, const struct tw_vf_data *d) {
    switch (v->op.code) {
    case TW_OP_READ:
    case TW_OP_WRITE:
    case TW_OP_MCAST:
    case TW_OP_SEND:
    case TW_OP_COPY:
    case TW_OP_LAST_ROW:
        return check_same(v, d);
    case TW_OP_DRAM_COPY:
        return check_dram_copy(v, d);
    case TW_OP_TOPK:
        return check_topk(v);
    case TW_OP_GATHER:
        return check_gather(v, d);
    case TW_OP_KEY_WRITE:
    case TW_OP_VALUE_WRITE:
        return check_cache_write(v, d);
    case TW_OP_MATMUL:
        return check_matmul(v, d);
    case TW_OP_RMS_SCALE:
        return check_rms_scale(v);
    case TW_OP_QUANT:
        return check_quant(v, v->op.operand[TW_QUANT_cols].id, 32);
    case TW_OP_QUANT_K:
        return check_quant(v, v->op.operand[TW_QUANT_K_cols].id, 256);
    case TW_OP_ROPE:
        return check_rope(v);
    case TW_OP_ATTN_STEP:
        return check_attention(v);
    case TW_OP_ATTN_WINDOW:
        return check_window(v);
    case TW_OP_SOFT_CAP:
        return check_cap(v, &v->op.operand[TW_SOFT_CAP_cap], true);
    case TW_OP_ATTN_DONE:
        return check_segments(v, v->op.operand[TW_ATTN_DONE_segments].id,
                              v->op.operand[TW_ATTN_DONE_heads].id);
    default:
        return 0;
    }
}

int tw_vf_types(struct tw_verifier *v, const struct tw_vf_data *d) {
    tw_vf_count(v, TW_RULE_operand_types);
    int rc = check_immediates(v, d);
    rc = rc ? rc : check_regions(v, d);
    rc = rc ? rc : check_floats(v);
    rc = rc ? rc : check_positions(v, d);
    return rc ? rc : check_special(v, d);
}
