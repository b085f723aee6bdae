/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier's look at operands: ids, loop variables, counts, and the types and immediates that
 * kernels rely on. One letter per region and immediate in the table below says what an op
 * demands. */
#include "loader/verify/verify_internal.h"

#include <math.h>

#define MAX_COLS (1u << 26) /* columns, reduction depth */
#define MAX_HEADS (1u << 16)
#define MAX_PANELS (1u << 22) /* these bounds keep every product of an extent below 2^63 */
#define MAX_HEAD_DIM 256u

/* Regions:  f f32   g f32, or u8 (untyped pages)   q q8s   x f32 or q8s   w the op's weight dtype, or u8   * any
 * Immediates:  s stride   b row bytes   n rows   c columns or depth   t weight dtype   p panels   h heads   a first head
 *              d head_dim   r rotated dims   z 0 or 1 */
struct demand {
    const char *regions, *immediates, *names;
};

static struct demand demand_of(uint32_t code) {
    static const struct demand table[TW_OP_LIMIT] = {
        [TW_OP_READ] = {"**", "nbss", "source destination"},
        [TW_OP_GATHER] = {"**f", "sc", "table ids y"},
        [TW_OP_WRITE] = {"**", "ssb", "source destination"},
        [TW_OP_KEY_WRITE] = {"f*", "sahd", "source cache"},
        [TW_OP_VALUE_WRITE] = {"f*", "sahd", "source cache"},
        [TW_OP_MCAST] = {"**", "ssb", "source destination"},
        [TW_OP_RMS_NORM] = {"fgf", "ssc", "x weight y"},
        [TW_OP_QUANT] = {"fq", "ssc", "x y"},
        [TW_OP_MATMUL] = {"xwf", "stcpsz", "x w y"},
        [TW_OP_ROPE_TABLE] = {"gf", "sc", "freq cs"},
        [TW_OP_ROPE] = {"ff", "sshdrz", "x cs"},
        [TW_OP_ATTN_INIT] = {"f", "hd", "state"},
        [TW_OP_ATTN_STEP] = {"fggf", "shahd", "q keys values state"},
        [TW_OP_ATTN_DONE] = {"ff", "shd", "state y"},
        [TW_OP_ADD] = {"fff", "sssc", "x y z"},
        [TW_OP_SILU_MUL] = {"fff", "sssc", "g u h"},
        [TW_OP_COPY] = {"**", "ssb", "x y"},
        [TW_OP_LAST_ROW] = {"**", "sb", "x y"},
    };
    return table[code];
}

const char *tw_vf_region_name(uint32_t code, uint32_t n) {
    const char *names = demand_of(code).names;
    while (names && n-- > 0) {
        names = strchr(names, ' ');
        names = names ? names + 1 : NULL;
    }
    return names ? names : "?";
}

/* ---- ids and variables ---- */

static int check_affine(struct tw_verifier *v, const struct tw_affine *a) {
    for (uint32_t i = 0; i < a->n_terms; i++) {
        uint32_t var = a->term[i].var;
        if (var == 0 ? v->op.code != TW_OP_SEM_WAIT : v->var_count[var] == 0) {
            return tw_vf_fail(v, TW_RULE_stream_decodes,
                              var == 0 ? "variable %u, the epoch, outside a threshold"
                                       : "variable %u belongs to no enclosing loop",
                              var);
        }
    }
    return 0;
}

static int check_id(struct tw_verifier *v, const char *what, uint32_t id, uint32_t n) {
    tw_vf_count(v, TW_RULE_table_sizes);
    return id < n ? 0 : tw_vf_fail(v, TW_RULE_table_sizes, "%s %u of %u", what, id, n);
}

static int check_count(struct tw_verifier *v, const struct tw_operand *o, bool is_position) {
    tw_vf_count(v, TW_RULE_trips_sound);
    if (o->id == TW_NONE) {
        if (o->max > TW_VF_MAX_COUNT || (o->max == 0 && !is_position)) {
            return tw_vf_fail(v, TW_RULE_trips_sound, "a count of %u", o->max);
        }
        return 0;
    }
    int rc = check_id(v, "trip", o->id, v->program->n_trips);
    if (rc) {
        return rc;
    }
    const struct tw_trip *t = &v->program->trips[o->id];
    if (t->max > o->max || o->max > TW_VF_MAX_COUNT) {
        return tw_vf_fail(v, TW_RULE_trips_sound, "at most %u of trip %u (%s), which reaches %u",
                          o->max, o->id, tw_program_string(v->program, t->name), t->max);
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
    case 'T':
    case 'U':
        rc = check_id(v, "tensor", o->id, p->n_tensors);
        rc = rc ? rc : check_affine(v, &o->instance);
        return rc ? rc : check_affine(v, &o->offset);
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
        return 0; /* I E V: their ops know what they may be */
    }
}

static void sort_operand(struct tw_verifier *v, const struct tw_operand *o, struct tw_vf_data *d) {
    uint32_t n = d->n_regions;
    switch (o->kind) {
    case 'R':
    case 'W':
    case 'M':
    case 'T':
    case 'U':
        d->region[n] = o;
        d->buffer[n] = o->kind == 'T' || o->kind == 'U' ? NULL : &v->program->buffers[o->id];
        d->tensor[n] = d->buffer[n] ? NULL : &v->program->tensors[o->id];
        d->n_regions++;
        break;
    case 'I':
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
    const char *letters = tw_op_info(v->op.code).operands;
    bool has_position = strchr(letters, 'X') != strrchr(letters, 'X');
    for (uint32_t i = 0; i < v->op.n_operands; i++) {
        const struct tw_operand *o = &v->op.operand[i];
        int rc = check_operand(v, o, has_position && d->n_counts == 0);
        if (rc) {
            return rc;
        }
        sort_operand(v, o, d);
    }
    d->rows = d->n_counts ? d->count[d->n_counts - 1]->max : 1;
    return 0;
}

/* ---- types ---- */

static bool is_weight_dtype(uint32_t dtype) {
    return dtype == TW_DT_F32 || dtype == TW_DT_F16 || dtype == TW_DT_BF16 || dtype == TW_DT_Q8_0 ||
           dtype == TW_DT_Q4_0;
}

static bool imm_ok(char letter, uint32_t i) {
    switch (letter) {
    case 's':
        return i % 4 == 0;
    case 'b':
        return i >= 1 && i % 4 == 0;
    case 'n':
        return i >= 1 && i <= TW_VF_MAX_COUNT;
    case 'c':
        return i >= 1 && i <= MAX_COLS;
    case 't':
        return is_weight_dtype(i);
    case 'p':
        return i >= 1 && i <= MAX_PANELS;
    case 'h':
        return i >= 1 && i <= MAX_HEADS;
    case 'a':
        return i < MAX_HEADS;
    case 'd':
    case 'r':
        return i >= 2 && i <= MAX_HEAD_DIM && i % 2 == 0;
    default:
        return i <= 1;
    }
}

static const char *imm_name(char letter) {
    switch (letter) {
    case 's':
        return "stride (a multiple of 4)";
    case 'b':
        return "row bytes (a multiple of 4)";
    case 'n':
        return "rows";
    case 'c':
        return "columns or depth";
    case 't':
        return "weight dtype";
    case 'p':
        return "panels";
    case 'h':
    case 'a':
        return "heads";
    case 'd':
        return "head_dim (even, 2..256)";
    case 'r':
        return "rotated dims (even, 2..256)";
    default:
        return "mode (0 or 1)";
    }
}

static int check_immediates(struct tw_verifier *v, const struct tw_vf_data *d,
                            const char *letters) {
    for (uint32_t i = 0; i < d->n_imm; i++) {
        if (!imm_ok(letters[i], d->imm[i])) {
            return tw_vf_fail(v, TW_RULE_operand_types, "immediate %u, %s, is %u", i,
                              imm_name(letters[i]), d->imm[i]);
        }
    }
    return 0;
}

static bool region_ok(char letter, unsigned dtype, const struct tw_vf_data *d) {
    switch (letter) {
    case 'f':
        return dtype == TW_DT_F32;
    case 'g':
        return dtype == TW_DT_F32 || dtype == TW_DT_U8;
    case 'q':
        return dtype == TW_DT_Q8S;
    case 'x':
        return dtype == TW_DT_F32 || dtype == TW_DT_Q8S;
    case 'w':
        return dtype == d->imm[1] || dtype == TW_DT_U8;
    default:
        return true;
    }
}

static int check_regions(struct tw_verifier *v, const struct tw_vf_data *d, const char *letters) {
    for (uint32_t i = 0; i < d->n_regions; i++) {
        unsigned dtype = d->buffer[i] ? d->buffer[i]->dtype : d->tensor[i]->dtype;
        if (!region_ok(letters[i], dtype, d)) {
            return tw_vf_fail(v, TW_RULE_operand_types, "%.*s is in a %s buffer",
                              (int)strcspn(tw_vf_region_name(v->op.code, i), " "),
                              tw_vf_region_name(v->op.code, i), tw_dtype_name(dtype));
        }
    }
    return 0;
}

static int check_matmul(struct tw_verifier *v, const struct tw_vf_data *d) {
    unsigned x = d->buffer[0]->dtype, w = d->imm[1];
    bool quantised = tw_dtype_block_elems(w) > 1;
    if ((x == TW_DT_Q8S) != quantised) {
        return tw_vf_fail(v, TW_RULE_operand_types, "x is %s and the weights are %s",
                          tw_dtype_name(x), tw_dtype_name(w));
    }
    if (quantised && d->imm[2] % 32 != 0) {
        return tw_vf_fail(v, TW_RULE_operand_types,
                          "depth %u is not a multiple of 32 with %s weights", d->imm[2],
                          tw_dtype_name(w));
    }
    return 0;
}

static int check_gather(struct tw_verifier *v, const struct tw_vf_data *d) {
    const struct tw_tensor *t = d->tensor[0];
    if (!is_weight_dtype(t->dtype) || t->packing > TW_PACK_PANEL16 ||
        d->tensor[1]->dtype != TW_DT_I32) {
        return tw_vf_fail(v, TW_RULE_operand_types, "a %s table packed as %u by %s ids",
                          tw_dtype_name(t->dtype), t->packing, tw_dtype_name(d->tensor[1]->dtype));
    }
    if (t->cols != d->imm[1]) {
        return tw_vf_fail(v, TW_RULE_operand_types, "%u columns of a table of %u", d->imm[1],
                          t->cols);
    }
    return 0;
}

static int check_cache_write(struct tw_verifier *v, const struct tw_vf_data *d) {
    const struct tw_tensor *t = d->tensor[1];
    unsigned packing = v->op.code == TW_OP_KEY_WRITE ? TW_PACK_KEYS : TW_PACK_VALUES;
    uint64_t last = (uint64_t)d->count[0]->max + d->rows;
    if (t->packing != packing || t->dtype != TW_DT_F32 || t->head_dim != d->imm[3]) {
        return tw_vf_fail(v, TW_RULE_operand_types,
                          "heads of %u into a %s tensor packed as %u with heads of %u", d->imm[3],
                          tw_dtype_name(t->dtype), t->packing, t->head_dim);
    }
    if ((uint64_t)d->imm[1] + d->imm[2] > t->cols / t->head_dim) {
        return tw_vf_fail(v, TW_RULE_region_in_tensor, "heads %u + %u of a cache of %u heads",
                          d->imm[1], d->imm[2], t->cols / t->head_dim);
    }
    if (last > t->rows) {
        return tw_vf_fail(v, TW_RULE_region_in_tensor, "positions up to %llu of a cache of %u",
                          (unsigned long long)last, t->rows);
    }
    return 0;
}

static int check_attention(struct tw_verifier *v, const struct tw_vf_data *d) {
    uint64_t lo, hi;
    if ((uint64_t)d->imm[2] + d->imm[1] > d->imm[3]) {
        return tw_vf_fail(v, TW_RULE_operand_types, "heads %u + %u of a state of %u heads",
                          d->imm[2], d->imm[1], d->imm[3]);
    }
    for (uint32_t i = 0; i < v->op.n_operands; i++) {
        if (v->op.operand[i].kind == 'A') {
            tw_vf_range(v, &v->op.operand[i].offset, &lo, &hi);
            if (hi >= v->key_positions / TW_KV_BLOCK) {
                return tw_vf_fail(v, TW_RULE_region_in_tensor,
                                  "key blocks up to %llu of caches of %u positions",
                                  (unsigned long long)hi, v->key_positions);
            }
        }
    }
    return 0;
}

/* Bytes are moved as they are, so both ends have one dtype, or one end is untyped. */
static int check_same(struct tw_verifier *v, const struct tw_vf_data *d) {
    unsigned a = d->buffer[0] ? d->buffer[0]->dtype : d->tensor[0]->dtype;
    unsigned b = d->buffer[1] ? d->buffer[1]->dtype : d->tensor[1]->dtype;
    bool untyped = v->op.code != TW_OP_MCAST && (a == TW_DT_U8 || b == TW_DT_U8);
    if (a != b && !untyped) {
        return tw_vf_fail(v, TW_RULE_operand_types, "moves %s to %s", tw_dtype_name(a),
                          tw_dtype_name(b));
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
        return tw_vf_fail(v, TW_RULE_trips_sound, "position %u + %llu rows", d->count[0]->max,
                          (unsigned long long)d->rows);
    }
    return 0;
}

static int check_special(struct tw_verifier *v, const struct tw_vf_data *d) {
    switch (v->op.code) {
    case TW_OP_READ:
    case TW_OP_WRITE:
    case TW_OP_MCAST:
    case TW_OP_COPY:
    case TW_OP_LAST_ROW:
        return check_same(v, d);
    case TW_OP_GATHER:
        return check_gather(v, d);
    case TW_OP_KEY_WRITE:
    case TW_OP_VALUE_WRITE:
        return check_cache_write(v, d);
    case TW_OP_MATMUL:
        return check_matmul(v, d);
    case TW_OP_QUANT:
        return d->imm[2] % 32 == 0 ? 0
                                   : tw_vf_fail(v, TW_RULE_operand_types,
                                                "%u columns are not a multiple of 32", d->imm[2]);
    case TW_OP_ROPE:
        return d->imm[4] <= d->imm[3]
                   ? 0
                   : tw_vf_fail(v, TW_RULE_operand_types, "rotates %u of heads of %u", d->imm[4],
                                d->imm[3]);
    case TW_OP_ATTN_STEP:
        return check_attention(v, d);
    default:
        return 0;
    }
}

int tw_vf_types(struct tw_verifier *v, const struct tw_vf_data *d) {
    struct demand demand = demand_of(v->op.code);
    tw_vf_count(v, TW_RULE_operand_types);
    if (!demand.regions || strlen(demand.immediates) != d->n_imm ||
        strlen(demand.regions) != d->n_regions) {
        return tw_vf_fail(v, TW_RULE_stream_decodes, "the verifier does not know this op");
    }
    int rc = check_immediates(v, d, demand.immediates);
    rc = rc ? rc : check_regions(v, d, demand.regions);
    rc = rc ? rc : check_floats(v);
    rc = rc ? rc : check_positions(v, d);
    return rc ? rc : check_special(v, d);
}
