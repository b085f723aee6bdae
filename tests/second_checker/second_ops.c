/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of ops as they are written, whatever a step does: streams are followed with their loops
 * rolled.
 */
#include "tests/second_checker/second_internal.h"

/* ---- operands ---- */

const struct tw_tensor *second_tensor(const struct second *c, const struct tw_operand *o) {
    return tw_letter_in("TU", o->kind) ? &c->p->tensors[o->id] : NULL;
}

uint32_t second_semaphore(const struct second *c) {
    const struct tw_operand *o = c->op.operand;
    return c->op.n_operands && o->kind == TW_KIND_SEMAPHORE ? o->id : TW_NONE;
}

struct tw_extent second_extent(const struct second *c, uint32_t n, uint64_t rows) {
    const struct tw_operand *x = tw_op_region(&c->op, 0), *o = tw_op_region(&c->op, n);
    uint32_t x_dtype = c->op.code == TW_OP_MATMUL ? c->p->buffers[x->id].dtype : 0;
    return tw_op_extent(&c->op, n, rows, x_dtype, second_tensor(c, o));
}

bool second_inside(const struct second *c, const struct tw_affine *a, uint64_t size,
                   uint64_t limit) {
    __int128 lo = (int64_t)a->base, hi = lo;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        for (uint32_t k = 0; k < c->e->depth; k++) {
            const struct loop *l = c->e->frame[k].loop;
            __int128 most = (__int128)(int64_t)a->term[i].step * (l->max - 1);
            *(most < 0 ? &lo : &hi) += l->var == a->term[i].var ? most : 0;
        }
    }
    return lo >= 0 && hi + size <= limit;
}

/* Demands that an affine number is of open loops; returns the bits that its multiples have set. */
static uint64_t affine(struct second *c, const struct tw_affine *a) {
    uint64_t bits = a->base;
    for (uint32_t i = 0; i < a->n_terms; bits |= a->term[i++].step) {
        uint32_t var = a->term[i].var;
        bool epoch = var == 0 && c->op.code == TW_OP_SEM_WAIT;
        NEED(2, epoch || ANY(k, c->e->depth, c->e->frame[k].loop->var == var));
    }
    return bits;
}

static void use(struct second *c, uint32_t buffer, bool by_many) {
    bool holds = c->p->buffers[buffer].tensor != TW_NONE;
    struct uses *u = &c->uses[buffer];
    uint32_t user = by_many ? SECOND_MANY : c->e->number + 1, section = c->e->section;
    NEED(26, holds || u->section == section);
    u->stream = u->stream == 0 || u->stream == user ? user : SECOND_MANY;
    u->first = u->end == 0 || section < u->first ? section : u->first;
    u->end = section < u->end ? u->end : section + 1;
}

/* Data for other sites: a multicast names all siblings. */
static void check_remote(struct second *c, const struct tw_operand *o, const struct tw_buffer *b) {
    const struct tw_buffer *m = b;
    bool send = c->op.code == TW_OP_SEND, holds = b->tensor != TW_NONE;
    NEED(13, b->kind == TW_BUF_RESIDENT);
    NEED(13, send ? b->site != c->e->s->site : b->sibling_base != TW_NONE);
    uint32_t id = send ? o->id : b->sibling_base;
    uint64_t n = send ? 1 : tw_group_size(&c->p->groups[b->group]);
    for (uint32_t i = id; i < id + n; i++) {
        m = &c->p->buffers[i];
        NEED(i == o->id ? 9 : 26, !tw_buffer_pinned(c->p, m));
        NEED(26, (m->tensor != TW_NONE) == holds);
        use(c, i, true);
    }
}

static void check_buffer(struct second *c, const struct tw_operand *o, uint32_t demand) {
    const struct tw_buffer *b = &c->p->buffers[o->id];
    const struct tw_operand_info *info = tw_op_operands(c->op.code);
    struct uses *u = &c->uses[o->id];
    bool producer = c->e->s->engine == b->producer, consumer = c->e->s->engine == b->consumer;
    bool read = o->kind == TW_KIND_READ, weights = demand == TW_DEMAND_WEIGHTS;
    uint64_t bits = affine(c, &o->offset);
    uint32_t named = (uint32_t)SUM(k, c->op.n_operands,
                                   tw_demand_names_dtype(info[k].demand) ? c->op.operand[k].id : 0);
    NEED(10, tw_demand_dtype(demand, b->dtype, named) && bits % (weights ? 64 : 4) == 0);
    NEED(10, !weights || b->pages == 1 || b->page_bytes % 64 == 0);
    u->weights |= weights;
    u->unaligned |= bits % 64 != 0 && !read;
    if (o->kind == TW_KIND_REMOTE) {
        check_remote(c, o, b);
        return;
    }
    NEED(5, b->site == c->e->s->site);
    NEED(5, b->kind != TW_BUF_FIFO || producer || (consumer && read));
    NEED(9, read || !tw_buffer_param(c->p, b));
    use(c, o->id, false);
    NEED(5, b->kind != TW_BUF_SCRATCH || u->stream != SECOND_MANY);
}

/* The elements of the table are in one row of it: multiples of a row's length choose the row. */
static void check_table(struct second *c, const struct tw_operand *o) {
    NEED(1, o->table < c->p->n_tensors);
    const struct tw_tensor *t = &c->p->tensors[o->table];
    const struct tw_operand *pos = tw_op_position(&c->op);
    struct tw_affine in_row = {.base = o->element.base % t->cols};
    uint64_t n = pos ? ((uint64_t)pos->max + tw_op_rows(&c->op)->max - 1) / TW_KV_BLOCK + 1 : 1;
    (void)affine(c, &o->element);
    NEED(9, t->role == TW_ROLE_INPUT && t->dtype == TW_DT_I32 && t->packing == TW_PACK_ROW);
    for (uint32_t i = 0; i < o->element.n_terms; i++) {
        in_row.term[in_row.n_terms] = o->element.term[i];
        in_row.n_terms += (int64_t)o->element.term[i].step % (int64_t)t->cols != 0;
    }
    NEED(8, second_inside(c, &in_row, n, t->cols));
    NEED(8, second_inside(c, &o->element, n, (uint64_t)t->rows * t->cols));
}

static void check_tensor(struct second *c, const struct tw_operand *o, uint32_t demand) {
    const struct tw_tensor *t = &c->p->tensors[o->id];
    bool write = o->kind == TW_KIND_TENSOR_WRITE;
    bool ready = t->role == TW_ROLE_PARAM || t->role == TW_ROLE_INPUT || t->init != TW_INIT_NONE;
    (void)affine(c, &o->instance);
    NEED(10, affine(c, &o->offset) % 4 == 0 && tw_demand_dtype(demand, t->dtype, 0));
    NEED(9, tw_demand_role(o->kind, demand, t->role) && !c->kept[o->id]);
    NEED(25, write || ready);
    NEED(8, second_inside(c, &o->instance, 1, t->bind_count));
    c->written[o->id] |= write;
    if (o->paged) {
        NEED(10, t->role == TW_ROLE_STATE && tw_tensor_pages(t) > 0);
        check_table(c, o);
    }
}

static void check_operand(struct second *c, const struct tw_operand *o) {
    const struct tw_program *p = c->p;
    uint32_t demand = tw_op_operands(c->op.code)[o - c->op.operand].demand;
    if (tw_letter_in("RWMD", o->kind)) {
        NEED(1, o->id < p->n_buffers);
        check_buffer(c, o, demand);
    } else if (tw_letter_in("TU", o->kind)) {
        NEED(1, o->id < p->n_tensors);
        check_tensor(c, o, demand);
    } else if (o->kind == 'X') {
        bool not_0 = o->id == TW_NONE ? demand != TW_DEMAND_POSITION : demand == TW_DEMAND_TIMES;
        NEED(1, o->id < p->n_trips || o->id == TW_NONE);
        NEED(11, o->max <= SECOND_MOST && (o->max > 0 || !not_0));
        NEED(11, o->id == TW_NONE || p->trips[o->id].max <= o->max);
    } else if (o->kind == 'A') {
        (void)affine(c, &o->offset);
    }
    NEED(1, o->kind != 'F' || (o->id < p->n_buffers && p->buffers[o->id].kind == TW_BUF_FIFO));
    NEED(1, o->kind != 'S' || o->id < p->n_semaphores);
    NEED(1, o->kind != 'C' || o->id < p->n_sites);
    NEED(1, o->kind != 'G' || o->id < p->n_groups);
    NEED(13, o->kind != 'G' || p->groups[o->id].chips == 1);
    NEED(10, o->kind != 'E' || (o->id >> 23 & 255) != 255);
    NEED(10, o->kind != 'I' || tw_demand_number(demand, o->id));
}

/* ---- ops ---- */

/* Bytes are moved between equal types, or to and from untyped buffers of the site. */
static void check_move(struct second *c) {
    const struct tw_operand *from = tw_op_region(&c->op, 0), *to = tw_op_region(&c->op, 1);
    const struct tw_tensor *x = second_tensor(c, from), *y = second_tensor(c, to);
    uint32_t a = x ? x->dtype : c->p->buffers[from->id].dtype;
    uint32_t b = y ? y->dtype : c->p->buffers[to->id].dtype;
    bool typed = to->kind == TW_KIND_REMOTE || (x && y);
    NEED(10, a == b || (!typed && (a == TW_DT_U8 || b == TW_DT_U8)));
    NEED(10, !y || x || y->packing == TW_PACK_ROW);
    NEED(10, !x || !y || (x->packing == y->packing && x->head_dim == y->head_dim));
    if (x && !y) {
        struct tw_extent s = second_extent(c, 0, 0), d = second_extent(c, 1, 0);
        c->uses[to->id].unaligned |=
            affine(c, &from->offset) % 64 != 0 || (s.rows > 1 && (s.stride % 64 || d.stride % 64));
    }
}

/* The block is inside the longest cache, and in a segment of the state, or a later one for which a
 * state of two makes room. */
static void check_attention(struct second *c) {
    struct tw_numbers_attn_step v = tw_numbers_attn_step(&c->op);
    struct tw_affine block = c->op.operand[TW_ATTN_STEP_block].offset;
    uint32_t most = 0;
    for (const struct tw_tensor *t = c->p->tensors; t < c->p->tensors + c->p->n_tensors; t++) {
        most = t->packing == TW_PACK_KEYS && t->rows > most ? t->rows : most;
    }
    NEED(8, second_inside(c, &block, 1, most / TW_KV_BLOCK));
    block.base -= v.segment * 8;
    NEED(10, second_inside(c, &block, 1, v.segments == 2 ? UINT32_MAX : v.segments * 8));
    NEED(10, v.first + v.heads <= v.state_heads && v.segments * v.state_heads <= 65536);
}

/* What single ops demand of their numbers v, operands o, and of the tensor t or the element type x
 * of their first region. */
#define DEMAND(rule, NAME, name, ...)                           \
    case TW_OP_##NAME: {                                        \
        struct tw_numbers_##name v = tw_numbers_##name(&c->op); \
        (void)v;                                                \
        NEED(rule, __VA_ARGS__);                                \
        break;                                                  \
    }

static void check_numbers(struct second *c) {
    const struct tw_operand *o = c->op.operand, *first = tw_op_region(&c->op, 0);
    const struct tw_tensor *t = second_tensor(c, first);
    const struct tw_group *groups = c->p->groups;
    const struct tw_buffer *buffers = c->p->buffers;
    uint32_t x = t ? t->dtype : buffers[first->id].dtype;
    switch (c->op.code) {
        DEMAND(10, GATHER, gather,
               (TW_WEIGHT_DTYPES >> x & 1) && t->packing <= TW_PACK_PANEL16 && t->cols == v.cols &&
                   !o[TW_GATHER_table].paged && !o[TW_GATHER_ids].paged)
        DEMAND(10, MATMUL, matmul,
               (x == TW_DT_F32 || x == tw_dtype_activation((uint8_t)v.dtype)) &&
                   v.k % tw_dtype_block_elems((uint8_t)v.dtype) == 0 &&
                   (v.panels == 1 || v.w_stride >= tw_panel_bytes((uint8_t)v.dtype, v.k)))
        DEMAND(13, MCAST, mcast,
               tw_group_within(&groups[o[TW_MCAST_group].id],
                               &groups[buffers[o[TW_MCAST_destination].id].group]))
        DEMAND(10, QUANT, quant, v.cols % 32 == 0)
        DEMAND(10, QUANT_K, quant_k, v.cols % 256 == 0)
        DEMAND(10, RMS_SCALE, rms_scale, v.cols <= v.width)
        DEMAND(10, ROPE, rope, v.rotated <= v.head_dim)
        DEMAND(10, ATTN_DONE, attn_done, v.segments * v.heads <= 65536)
        DEMAND(10, ATTN_WINDOW, attn_window, tw_operand_float(&o[TW_ATTN_WINDOW_cap]) >= 0.0f)
        DEMAND(10, SOFT_CAP, soft_cap, tw_operand_float(&o[TW_SOFT_CAP_cap]) > 0.0f)
        DEMAND(10, TOPK, topk, second_inside(c, &o[TW_TOPK_base].offset, v.cols, SECOND_MOST))
    default:
        break;
    }
}

static void check_data(struct second *c) {
    const struct tw_operand *rows = tw_op_rows(&c->op), *o;
    bool key = c->op.code == TW_OP_KEY_WRITE, cache = key || c->op.code == TW_OP_VALUE_WRITE;
    if (tw_op_operands(c->op.code)[0].demand == TW_DEMAND_ANY) {
        check_move(c);
    } else if (c->op.code == TW_OP_ATTN_STEP || c->op.code == TW_OP_ATTN_WINDOW) {
        check_attention(c);
    }
    check_numbers(c);
    for (uint32_t n = 0; (o = tw_op_region(&c->op, n)) != NULL; n++) {
        struct tw_extent x = second_extent(c, n, rows ? rows->max : 0);
        const struct tw_tensor *t = second_tensor(c, o);
        uint64_t room = !t ? 0 : o->paged && !cache ? tw_tensor_page_bytes(t) : t->bytes;
        NEED(8, !t || second_inside(c, &o->offset, tw_extent_span(x), room));
        NEED(10, o->kind == 'R' || o->kind == 'T' || x.rows < 2 || x.stride >= x.row_bytes);
        if (cache && t) {
            struct tw_numbers_key_write v = tw_numbers_key_write(&c->op);
            NEED(10,
                 t->packing == (key ? TW_PACK_KEYS : TW_PACK_VALUES) && t->head_dim == v.head_dim);
            NEED(8, (uint64_t)rows[-1].max + rows->max <= t->rows &&
                        (v.first + v.heads) * v.head_dim <= t->cols);
        }
    }
}

/* Notes an op of a channel in the loops around it. */
static void note(struct second *c, uint32_t channel, uint32_t by) {
    for (uint32_t i = c->e->depth; i-- > 0; by *= c->e->frame[i].loop->max) {
        uint32_t *adds = &c->e->frame[i].loop->adds[channel];
        *adds += by + (*adds == 0);
    }
}

/* Notes an op of one word, and who increments it; by 0: a wait. */
static void note_word(struct second *c, uint32_t site, uint32_t by, uint32_t kind) {
    struct word *x = second_word(c, c->op.operand[0].id, site);
    NEED(13, x);
    x->many = x->many || (by && x->kinds && x->stream != c->e->number);
    x->stream = by ? c->e->number : x->stream;
    x->kinds |= kind;
    x->raised += by > 0;
    x->awaited += by == 0;
    note(c, c->p->n_buffers + (uint32_t)(x - c->word), by);
}

static void check_flag(struct second *c) {
    const struct tw_operand *o = c->op.operand;
    const struct tw_group *g = &c->p->groups[c->p->semaphores[o[0].id].group], *to;
    NEED(12, ALL(i, c->e->depth, c->e->frame[i].loop->trip == TW_NONE));
    if (c->op.code == TW_OP_SEM_WAIT) {
        note_word(c, c->e->s->site, 0, 0);
    } else if (c->op.code == TW_OP_SEM_INC) {
        NEED(14, o[2].id > 0);
        note_word(c, o[1].id, o[2].id, 2);
    } else {
        to = &c->p->groups[o[1].id];
        bool whole = to->x0 == g->x0 && to->x1 == g->x1 && to->y0 == g->y0 && to->y1 == g->y1;
        for (uint32_t i = 0; i < tw_group_size(to); i++) {
            note_word(c, tw_group_site(c->p, to, i), 1, whole ? 1 : 2);
        }
    }
}

static void check_pages(struct second *c) {
    uint32_t id = c->op.operand[0].id, n = c->op.operand[1].id;
    const struct tw_buffer *f = &c->p->buffers[id];
    NEED(5, f->site == c->e->s->site);
    NEED(5, c->e->s->engine == (c->op.code <= TW_OP_PUSH ? f->producer : f->consumer));
    NEED(6, n > 0 && n <= f->pages);
    if (c->op.code == TW_OP_PUSH || c->op.code == TW_OP_POP) {
        const struct tw_stream *s = &c->p->streams[f->site * TW_ENGINE_COUNT];
        NEED(6, s[f->producer].n_words > 0 && s[f->consumer].n_words > 0);
        note(c, id, 1);
    } else {
        use(c, id, false);
    }
}

/* ---- sections and their rendezvous ---- */

static void check_stage(struct second *c) {
    struct engine *e = c->e;
    NEED(1, c->op.stage < c->p->n_stages);
    const struct tw_stage *g = &c->p->stages[c->op.stage];
    NEED(1, g->site == e->s->site && g->engine == e->s->engine);
    if (c->op.code != TW_OP_END) {
        NEED(23, g->section == e->section || (g->section > e->section && e->staged == 0));
        for (; e->section < g->section; e->section++, e->meeting = 'w') {
            NEED(23, c->p->sections[e->section].local == TW_NONE || e->meeting == 'R');
        }
        e->staged = e->depth;
    }
}

/* Which word of the section's rendezvous the op raises, l(ocal), g(ather) or r(elease), or waits
 * for, L, G or R; '!': one of another section; 0: none. */
static char meeting_letter(const struct second *c) {
    uint32_t id = second_semaphore(c);
    for (uint32_t i = 0; i < c->p->n_sections && id != TW_NONE; i++) {
        const struct tw_section *s = &c->p->sections[i];
        uint32_t k = id == s->local ? 0 : id == s->gather ? 1 : id == s->release ? 2 : 3;
        if (k < 3) {
            return i != c->e->section ? '!' : (c->op.code == TW_OP_SEM_WAIT ? "LGR" : "lgr")[k];
        }
    }
    return 0;
}

/* The ops of a rendezvous come in the only order that there is; between the last of them and the
 * next section are only waits and ends. */
static void check_meeting(struct second *c) {
    static const char follows[] = "wl lL lR Lg gG gR Gr rr rR";
    const struct tw_operand *o = c->op.operand;
    struct engine *e = c->e;
    char pair[] = {e->meeting, meeting_letter(c), 0};
    bool wait = c->op.code == TW_OP_SEM_WAIT, inc = c->op.code == TW_OP_SEM_INC;
    uint32_t repeat = c->p->sections[e->section].repeat;
    if (pair[1] == 0) {
        NEED(15, e->meeting == 'w' || (e->meeting == 'R' && (wait || c->op.code == TW_OP_END)));
        e->late = e->meeting == 'R' && (wait || e->late);
        return;
    }
    NEED(15, strstr(follows, pair) && (!inc || o[2].id == 1));
    NEED(15, inc || !tw_letter_in("lg", pair[1]));
    NEED(15, pair[1] != 'l' || (o[1].id == e->s->site && (repeat == 1 || e->times == repeat)));
    e->meeting = pair[1];
    e->late = false;
}

/* One engine of each site that works gathers at the root, and one op releases the site. */
static void check_meetings(struct second *c, const struct tw_section *s) {
    uint32_t roots = 0, elsewhere = 0;
    for (uint32_t k = 0; k < c->p->n_sites && s->local != TW_NONE; k++) {
        const struct word *l = second_word(c, s->local, k), *g = second_word(c, s->gather, k);
        const struct word *r = second_word(c, s->release, k);
        bool works = ANY(i, 3, c->p->streams[k * 3 + i].n_words);
        NEED(15, (l ? l->awaited : 0) == works);
        NEED(15, !works || (r && r->raised == 1));
        roots += g ? g->awaited : 0;
        elsewhere += g && !g->awaited ? g->raised : 0;
    }
    NEED(15, s->local == TW_NONE || (roots == 1 && elsewhere == 0));
}

/* ---- streams ---- */

static void enter(struct second *c) {
    const struct tw_operand *o = c->op.operand;
    struct engine *e = c->e;
    struct loop *l = &e->loops[e->n_loops++];
    *l = (struct loop){.head = e->at, .body = e->at + c->op.n_words, .depth = e->depth};
    l->var = o[0].id;
    l->trip = o[1].id;
    l->max = o[1].max;
    l->id = o[2].id;
    NEW(c->n_channels, l->adds);
    NEED(2, e->depth < TW_MAX_VARS - 1 && ALL(i, e->depth, e->frame[i].loop->var != l->var));
    NEED(12, (l->trip == TW_NONE) == (l->id == TW_NONE));
    NEED(12, l->id == TW_NONE || e->last_id == TW_NONE || l->id > e->last_id);
    e->last_id = l->id == TW_NONE ? e->last_id : l->id;
    e->times *= l->max;
    NEED(11, e->times <= SECOND_MOST);
    e->frame[e->depth++].loop = l;
    e->staged += c->op.stage != TW_NONE;
    for (const struct engine *m = c->start; m <= e; m++) {
        NEED(12, m->s->site != e->s->site || l->id == TW_NONE ||
                     ALL(i, m->n_loops,
                         m->loops[i].id != l->id ||
                             (m->loops[i].trip == l->trip && m->loops[i].max == l->max &&
                              m->loops[i].depth == l->depth)));
    }
}

static void leave(struct second *c) {
    struct engine *e = c->e;
    NEED(2, e->depth > 0);
    struct loop *l = e->frame[--e->depth].loop;
    l->next = e->at + c->op.n_words;
    e->times /= l->max;
    e->staged = e->staged < e->depth ? e->staged : e->depth;
}

static void check_op(struct second *c) {
    const struct tw_operand *rows = tw_op_rows(&c->op);
    bool loop = c->op.code == TW_OP_LOOP;
    NEED(3, tw_letter_in(tw_op_info(c->op.code).engines, "LMS"[c->e->s->engine]));
    if (c->op.stage != TW_NONE) {
        check_stage(c);
    }
    for (uint32_t i = 0; i < c->op.n_operands; i++) {
        check_operand(c, &c->op.operand[i]);
    }
    if (tw_op_is_data(c->op.code)) {
        check_data(c);
    } else if (second_semaphore(c) != TW_NONE) {
        check_flag(c);
    } else if (!loop && c->op.n_operands) {
        check_pages(c);
    }
    check_meeting(c);
    if (rows && rows->id != TW_NONE) {
        uint32_t last = c->op.code == TW_OP_LAST_ROW ? SECOND_NOT_0 : 0;
        c->counts[rows->id] |= (uint8_t)(loop ? SECOND_LOOPS : SECOND_ROWS | last);
        c->verdict.limits |= !loop && c->p->trips[rows->id].max < rows->max ? 3u << 24 : 0;
    }
    if (loop) {
        enter(c);
    } else if (c->op.code == TW_OP_END) {
        leave(c);
    }
}

static void check_stream(struct second *c, const struct tw_stream *s) {
    struct engine *e = c->e = &c->start[c->n++];
    *e = (struct engine){.s = s, .loops = c->loop, .times = 1, .meeting = 'w', .last_id = TW_NONE};
    e->number = (uint32_t)(s - c->p->streams);
    for (; e->at < s->n_words; e->at += c->op.n_words, e->index++) {
        NEED(2, tw_op_decode(s->words, s->n_words, e->at, &c->op));
        c->step_ops += e->times;
        check_op(c);
    }
    NEED(2, e->depth == 0);
    NEED(15, e->section == c->p->n_sections - 1 && e->meeting == 'R' && !e->late);
    c->loop += e->n_loops;
    c->e = NULL;
}

void second_ops(struct second *c) {
    const struct tw_program *p = c->p;
    uint32_t streams = p->n_sites * TW_ENGINE_COUNT, n = 0;
    uint64_t room = SUM(i, streams, p->streams[i].n_words);
    uint64_t words = SUM(i, p->n_semaphores, tw_group_size(&p->groups[p->semaphores[i].group]));
    NEED(1, words <= 131072 + 4 * room);
    c->n_channels = p->n_buffers + (uint32_t)words;
    NEW(p->n_semaphores, c->first_word);
    NEW(words, c->word);
    NEW(room / 6, c->loop); /* a loop's op has 6 words */
    NEW(p->n_tensors, c->written);
    NEW(p->n_trips, c->counts);
    NEW(streams, c->start);
    for (uint32_t i = 0; i < p->n_semaphores; i++) {
        c->first_word[i] = n;
        for (; n < c->first_word[i] + tw_group_size(&p->groups[p->semaphores[i].group]); n++) {
            c->word[n].initial = p->semaphores[i].initial;
        }
    }
    for (uint32_t i = 0; i < streams; i++) {
        if (p->streams[i].n_words) {
            check_stream(c, &p->streams[i]);
        }
    }
    for (uint32_t i = 0; i < p->n_sections; i++) {
        check_meetings(c, &p->sections[i]);
    }
    NEED(29, c->step_ops <= TW_MAX_STEP_OPS);
}
