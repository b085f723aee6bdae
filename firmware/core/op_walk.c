/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk over a program's text (bind.h): one pass that decodes each op, checks its ids against
 * the tables and follows the loops, so that later stages may index without checking again.
 */
#include "firmware/core/bind.h"
#include "tilewright/range.h"

struct nest {
    uint32_t loop[TW_MAX_VARS]; /* op index of the LOOP */
    uint32_t var[TW_MAX_VARS];
    uint64_t times[TW_MAX_VARS + 1];
    uint32_t dynamic[TW_MAX_VARS + 1];
    uint32_t depth, vars; /* vars: bit set of open loop variables; bit 0 is the epoch */
};

static int bad(struct tw_fault *fault, const char *what, uint32_t object, uint64_t have,
               uint64_t need) {
    return tw_fault_fail(fault, what, object, have, need);
}

/* Returns true if a key or value cache has whole pages with room for all heads. */
static bool cache_ok(const struct tw_tensor *t) {
    uint64_t bytes;
    return (t->packing != TW_PACK_KEYS && t->packing != TW_PACK_VALUES) ||
           (tw_demand_number(TW_DEMAND_CACHE_DTYPE, t->dtype) && t->head_dim > 0 &&
            t->cols % t->head_dim == 0 && t->rows % TW_KV_BLOCK == 0 &&
            tw_mul_u64(t->rows, tw_row_bytes(t->dtype, t->cols), &bytes) && bytes <= t->bytes);
}

static bool tensor_ok(const struct tw_machine_config *config, const struct tw_tensor *t) {
    uint64_t end = (uint64_t)t->bind_first + t->bind_count;
    return t->role < TW_ROLE_COUNT && t->dtype < TW_DT_COUNT &&
           (t->bind_count == 0 || (end <= config->n_bind && cache_ok(t)));
}

/* Returns true if a buffer that keeps a Param or State has a page for each instance, and the page
 * has room for the window, which lies inside the instance. */
static bool pinned_ok(const struct tw_program *p, const struct tw_buffer *b) {
    const struct tw_tensor *t = tw_buffer_pinned(p, b);
    if (!t) {
        return true;
    }
    struct tw_window w = tw_buffer_window(t, b);
    return b->kind == TW_BUF_RESIDENT && b->pages == t->bind_count &&
           b->page_bytes >= tw_window_bytes(&w) && tw_window_inside(&w, t->bytes) &&
           (t->role == TW_ROLE_PARAM || (tw_window_contiguous(&w) && b->sibling_base == TW_NONE));
}

static bool buffer_ok(const struct tw_program *p, const struct tw_buffer *b) {
    uint64_t bytes;
    return pinned_ok(p, b) && b->site < p->n_sites && b->kind <= TW_BUF_SCRATCH && b->pages > 0 &&
           b->page_bytes > 0 && b->dtype < TW_DT_COUNT && b->mem_class < TW_MEM_CLASSES &&
           tw_mul_u64(b->pages, b->page_bytes, &bytes) &&
           tw_range_ok(b->offset, bytes, p->sram_bytes[b->mem_class]) && b->offset % 4 == 0 &&
           b->page_bytes % 4 == 0 && b->producer < TW_ENGINE_COUNT && b->consumer < TW_ENGINE_COUNT;
}

/* Returns true if the sibling set has one member on each site of its group, and all have the
 * properties on which a multicast relies in common. */
static bool siblings_ok(const struct tw_program *p, uint32_t id) {
    const struct tw_buffer *b = &p->buffers[id];
    if (b->sibling_base == TW_NONE) {
        return true;
    }
    if (b->group >= p->n_groups || tw_buffer_sibling(p, b, b->site) != id ||
        !tw_range_ok(b->sibling_base, tw_group_size(&p->groups[b->group]), p->n_buffers)) {
        return false;
    }
    for (uint64_t i = 0; id == b->sibling_base && i < tw_group_size(&p->groups[b->group]); i++) {
        if (p->buffers[id + i].sibling_base != id) {
            return false;
        }
    }
    const struct tw_buffer *first = &p->buffers[b->sibling_base];
    return first->sibling_base == b->sibling_base && first->group == b->group &&
           first->offset == b->offset && first->page_bytes == b->page_bytes &&
           first->pages == b->pages && first->dtype == b->dtype && first->kind == b->kind &&
           first->mem_class == b->mem_class;
}

static int check_tables(const struct tw_machine_config *config, struct tw_fault *fault) {
    const struct tw_program *p = config->program;
    uint64_t sites = (uint64_t)p->mesh_width * p->mesh_height;
    if (p->n_sites == 0 || !tw_mul_u64(sites, p->n_chips, &sites) || sites != p->n_sites) {
        return bad(fault, "BadTable", TW_NONE, p->n_sites, sites);
    }
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        if (!tensor_ok(config, &p->tensors[i])) {
            return bad(fault, "BadTable", i, p->tensors[i].bind_count, config->n_bind);
        }
    }
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (!buffer_ok(p, &p->buffers[i]) || !siblings_ok(p, i)) {
            return bad(fault, "BadTable", i, p->buffers[i].offset, p->sram_bytes[0]);
        }
    }
    for (uint32_t i = 0; i < p->n_semaphores; i++) {
        if (p->semaphores[i].group >= p->n_groups) {
            return bad(fault, "BadTable", i, p->semaphores[i].group, p->n_groups);
        }
    }
    for (uint32_t i = 0; i < p->n_trips; i++) {
        const struct tw_trip *t = &p->trips[i];
        if (t->input >= p->n_tensors || p->tensors[t->input].bytes / 4 <= t->element) {
            return bad(fault, "BadTable", i, t->input, p->n_tensors);
        }
    }
    return 0;
}

static uint32_t id_limit(const struct tw_program *p, const struct tw_operand *o) {
    switch (o->kind) {
    case 'R':
    case 'W':
    case 'M':
    case 'D':
    case 'F':
        return p->n_buffers;
    case 'T':
    case 'U':
        return p->n_tensors;
    case 'S':
        return p->n_semaphores;
    case 'G':
        return p->n_groups;
    case 'C':
        return p->n_sites;
    case 'X':
        return o->id == TW_NONE ? TW_NONE : p->n_trips;
    default:
        return TW_NONE;
    }
}

static bool vars_open(const struct tw_affine *a, uint32_t vars) {
    for (uint32_t i = 0; i < a->n_terms; i++) {
        if (!(vars >> a->term[i].var & 1u)) {
            return false;
        }
    }
    return true;
}

/* Returns true if a paged operand has a table, an Input of numbers, and a tensor with pages. */
static bool page_ok(const struct tw_program *p, const struct tw_op *op,
                    const struct tw_operand *o) {
    const struct tw_tensor *t = o->table < p->n_tensors ? &p->tensors[o->table] : NULL;
    return t && t->role == TW_ROLE_INPUT && t->dtype == TW_DT_I32 && t->bind_count > 0 &&
           t->cols > 0 && t->rows <= t->bytes / 4 / t->cols &&
           tw_tensor_pages(&p->tensors[o->id]) > 0 && op->code != TW_OP_GATHER;
}

static int check_op(const struct tw_machine_config *config, const struct tw_text_place *at,
                    const struct nest *nest, const struct tw_op *op, struct tw_fault *fault) {
    const struct tw_program *p = config->program;
    static const char letter[TW_ENGINE_COUNT] = {'L', 'M', 'S'};
    if (!tw_letter_in(tw_op_info(op->code).engines, letter[tw_stream_engine(at->stream)])) {
        return bad(fault, "BadOp", TW_NONE, tw_stream_engine(at->stream), op->code);
    }
    for (uint32_t n = 0; n < op->n_operands; n++) {
        const struct tw_operand *o = &op->operand[n];
        uint32_t limit = id_limit(p, o);
        if (limit != TW_NONE && o->id >= limit) {
            return bad(fault, "BadOp", o->id, o->id, limit);
        }
        if (o->paged && !page_ok(p, op, o)) {
            return bad(fault, "BadOp", o->table, o->table, p->n_tensors);
        }
        if (o->kind == 'X' && o->id != TW_NONE && p->trips[o->id].max > o->max) {
            return bad(fault, "BadOp", o->id, p->trips[o->id].max, o->max);
        }
        if (!vars_open(&o->offset, nest->vars) || !vars_open(&o->instance, nest->vars) ||
            !vars_open(&o->element, nest->vars)) {
            return bad(fault, "BadOp", TW_NONE, nest->vars, n);
        }
    }
    if (tw_op_is_data(op->code) && (op->code >= TW_OP_LIMIT || !config->kernels->fn[op->code])) {
        return bad(fault, "BadOp", TW_NONE, op->code, TW_OP_LIMIT);
    }
    return 0;
}

static int open_loop(struct nest *nest, const struct tw_text_place *at, const struct tw_op *op,
                     struct tw_fault *fault) {
    uint32_t var = op->operand[TW_LOOP_var].id, d = nest->depth;
    const struct tw_operand *count = &op->operand[TW_LOOP_times];
    if (d + 1 >= TW_MAX_VARS || (nest->vars >> var & 1u)) {
        return bad(fault, "BadOp", var, d, TW_MAX_VARS);
    }
    bool dynamic = count->id != TW_NONE;
    nest->loop[d] = at->index;
    nest->var[d] = var;
    nest->vars |= 1u << var;
    nest->dynamic[d + 1] = nest->dynamic[d] + (dynamic ? 1u : 0u);
    nest->depth = d + 1;
    if (!tw_mul_u64(nest->times[d], dynamic ? 1 : count->max, &nest->times[d + 1]) ||
        nest->times[d + 1] > UINT32_MAX) {
        return bad(fault, "BadOp", var, count->max, UINT32_MAX);
    }
    return 0;
}

static int close_loop(struct nest *nest, struct tw_text_place *at, struct tw_fault *fault) {
    if (nest->depth == 0) {
        return bad(fault, "BadOp", TW_NONE, 0, 1);
    }
    nest->depth--;
    nest->vars &= ~(1u << nest->var[nest->depth]);
    at->match = nest->loop[nest->depth];
    return 0;
}

static int walk_op(const struct tw_machine_config *config, struct nest *nest,
                   struct tw_text_place *at, const struct tw_op *op, tw_text_visit *visit,
                   void *ctx, struct tw_fault *fault) {
    int rc = op->code == TW_OP_END ? close_loop(nest, at, fault) : 0;
    at->depth = nest->depth;
    at->dynamic = nest->dynamic[nest->depth];
    at->times = nest->times[nest->depth];
    if (rc == 0) {
        rc = check_op(config, at, nest, op, fault);
    }
    if (rc == 0 && visit) {
        rc = visit(ctx, at, op, fault);
    }
    if (rc == 0 && op->code == TW_OP_LOOP) {
        rc = open_loop(nest, at, op, fault);
    }
    return rc;
}

static int walk_stream(const struct tw_machine_config *config, struct tw_text_place *at,
                       tw_text_visit *visit, void *ctx, struct tw_fault *fault) {
    const struct tw_stream *s = &config->program->streams[at->stream];
    struct nest nest;
    struct tw_op op;
    memset(&nest, 0, sizeof nest);
    nest.vars = 1;
    nest.times[0] = 1;
    for (at->index = at->word = 0; at->word < s->n_words; at->index++) {
        fault->op_index = at->index;
        if (!tw_op_decode(s->words, s->n_words, at->word, &op)) {
            fault->opcode = s->words[at->word] & 0xFFFFu;
            return bad(fault, "BadOp", TW_NONE, at->word, s->n_words);
        }
        fault->opcode = op.code;
        fault->stage = op.stage;
        int rc = walk_op(config, &nest, at, &op, visit, ctx, fault);
        if (rc != 0) {
            return rc;
        }
        at->word += op.n_words;
    }
    return nest.depth == 0 ? 0 : bad(fault, "BadOp", TW_NONE, nest.depth, 0);
}

int tw_text_walk(const struct tw_machine_config *config, tw_text_visit *visit, void *ctx,
                 struct tw_fault *fault) {
    memset(fault, 0, sizeof *fault);
    fault->site = fault->engine = fault->op_index = fault->stage = TW_NONE;
    int rc = check_tables(config, fault);
    struct tw_text_place at;
    memset(&at, 0, sizeof at);
    for (; rc == 0 && at.stream < config->program->n_sites * TW_ENGINE_COUNT; at.stream++) {
        fault->site = tw_stream_site(at.stream);
        fault->engine = tw_stream_engine(at.stream);
        rc = walk_stream(config, &at, visit, ctx, fault);
    }
    return rc;
}
