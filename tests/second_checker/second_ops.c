/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of single ops, of loops as they are written, and of the shape of rendezvous.
 */
#include "tests/second_checker/second_internal.h"

struct walk {
    const struct tw_stream *s;
    uint32_t at, depth, section, last_id, var[TW_MAX_VARS], from_section[TW_MAX_VARS];
    struct loop *open[TW_MAX_VARS];
    char meeting;                        /* the last letter of meeting_letter(), or 'w' */
    bool late;                           /* the last op is a wait after the rendezvous */
    uint64_t times, step_ops;            /* every trip at its maximum */
    uint8_t *leaders, *released;         /* by section and site */
    uint32_t *root, *target;             /* by section: site, plus 1 */
    uint8_t *user, *unaligned, *weights; /* by buffer: engine plus 1 of a scratch buffer; how it is
                                            filled; that a matmul takes weights from it */
};

/* Demands that an affine number is of open loops; returns the bits that its multiples have set. */
static uint64_t affine(struct second *c, const struct walk *w, const struct tw_affine *a,
                       bool epoch) {
    uint64_t bits = a->base;
    for (uint32_t i = 0; i < a->n_terms; bits |= a->term[i++].step) {
        bool open = epoch && a->term[i].var == 0;
        for (uint32_t k = 0; k < w->depth; k++) {
            open = open || w->var[k] == a->term[i].var;
        }
        NEED(2, open, "a variable of no open loop");
    }
    return bits;
}

static void check_buffer(struct second *c, struct walk *w, const struct tw_operand *o,
                         uint32_t demand, uint32_t named) {
    const struct tw_buffer *b = &c->p->buffers[o->id];
    bool producer = w->s->engine == b->producer, consumer = w->s->engine == b->consumer;
    uint64_t bits = affine(c, w, &o->offset, false);
    NEED(5, b->site == w->s->site || o->kind == 'D', "a buffer of another site");
    NEED(13, b->kind == TW_BUF_RESIDENT || o->kind != 'D',
         "data for a buffer that is not resident");
    NEED(9, !tw_buffer_pinned(c->p, b) || o->kind != 'D', "data for what keeps a Param or State");
    NEED(5, b->kind != TW_BUF_FIFO || producer || (consumer && o->kind == 'R'), "not its end");
    if (b->kind == TW_BUF_SCRATCH) {
        NEED(5, w->user[o->id] == 0 || w->user[o->id] == w->s->engine + 1, "not its scratch");
        w->user[o->id] = (uint8_t)(w->s->engine + 1);
    }
    NEED(10, tw_demand_dtype(demand, b->dtype, named), "element type of a buffer");
    NEED(9, !tw_buffer_param(c->p, b) || o->kind == 'R', "writes a Param");
    NEED(10, bits % (demand == TW_DEMAND_WEIGHTS ? 64 : 4) == 0, "alignment");
    if (demand == TW_DEMAND_WEIGHTS) {
        NEED(10, b->pages == 1 || b->page_bytes % 64 == 0, "pages of weights");
        w->weights[o->id] = 1;
    }
    w->unaligned[o->id] |= bits % 64 != 0 && o->kind != 'R';
}

static void check_tensor(struct second *c, struct walk *w, const struct tw_operand *o,
                         uint32_t demand) {
    const struct tw_tensor *t = &c->p->tensors[o->id];
    (void)affine(c, w, &o->instance, false);
    NEED(10, affine(c, w, &o->offset, false) % 4 == 0, "alignment");
    NEED(9, tw_demand_role(o->kind, demand, t->role), "role of a tensor");
    NEED(9, !c->kept[o->id], "names a State that is in SRAM");
    NEED(10, tw_demand_dtype(demand, t->dtype, 0), "element type of a tensor");
    c->written[o->id] |= o->kind == 'U';
    if (o->paged) {
        (void)affine(c, w, &o->element, false);
        NEED(1, o->table < c->p->n_tensors, "no such table");
        const struct tw_tensor *x = &c->p->tensors[o->table];
        NEED(9, x->role == TW_ROLE_INPUT && x->dtype == TW_DT_I32 && x->packing == TW_PACK_ROW,
             "not a page table");
        NEED(10, t->role == TW_ROLE_STATE && tw_tensor_pages(t) > 0, "a tensor without pages");
    }
}

static void check_operand(struct second *c, struct walk *w, const struct tw_op *op, uint32_t i) {
    const struct tw_operand *o = &op->operand[i];
    uint32_t demand = tw_op_operands(op->code)[i].demand, named = 0;
    for (uint32_t k = 0; k < op->n_operands; k++) {
        bool names = tw_demand_names_dtype(tw_op_operands(op->code)[k].demand);
        named = names ? op->operand[k].id : named;
    }
    uint32_t n = tw_letter_in("RWMDF", o->kind) ? c->p->n_buffers
                 : tw_letter_in("TU", o->kind)  ? c->p->n_tensors
                 : o->kind == 'S'               ? c->p->n_semaphores
                 : o->kind == 'C'               ? c->p->n_sites
                 : o->kind == 'G'               ? c->p->n_groups
                 : o->kind == 'X'               ? c->p->n_trips
                                                : UINT32_MAX;
    NEED(1, n == UINT32_MAX || o->id < n || (o->kind == 'X' && o->id == TW_NONE), "no such object");
    if (tw_letter_in("RWMD", o->kind)) {
        check_buffer(c, w, o, demand, named);
    } else if (tw_letter_in("TU", o->kind)) {
        check_tensor(c, w, o, demand);
    } else if (o->kind == 'X') {
        bool none = o->id == TW_NONE ? demand != TW_DEMAND_POSITION : demand == TW_DEMAND_TIMES;
        NEED(11, o->max <= 0x7FFFFFFF && (o->max > 0 || !none), "a count");
        NEED(11, o->id == TW_NONE || c->p->trips[o->id].max <= o->max, "a trip beyond the count");
    } else if (o->kind == 'A') {
        (void)affine(c, w, &o->offset, op->code == TW_OP_SEM_WAIT);
    }
    NEED(1, o->kind != 'F' || c->p->buffers[o->id].kind == TW_BUF_FIFO, "not a FIFO");
    NEED(13, o->kind != 'G' || c->p->groups[o->id].chips == 1, "a group on several chips");
    NEED(10, o->kind != 'E' || (o->id >> 23 & 255) != 255, "not a finite number");
    NEED(10, o->kind != 'I' || tw_demand_number(demand, o->id), tw_demand_text(demand));
}

/* ---- what single ops demand ---- */

static uint32_t dtype_of(const struct second *c, const struct tw_operand *o) {
    const struct tw_tensor *t = second_tensor(c, o);
    return t ? t->dtype : c->p->buffers[o->id].dtype;
}

static void check_move(struct second *c, struct walk *w, const struct tw_op *op) {
    const struct tw_operand *from = tw_op_region(op, 0), *to = tw_op_region(op, 1);
    const struct tw_tensor *x = second_tensor(c, from), *y = second_tensor(c, to);
    uint32_t a = dtype_of(c, from), b = dtype_of(c, to);
    bool typed = to->kind == 'D' || (x && y);
    NEED(10, a == b || (!typed && (a == TW_DT_U8 || b == TW_DT_U8)), "another element type");
    NEED(10, !y || x || y->packing == TW_PACK_ROW, "a packed tensor");
    NEED(10, !x || !y || (x->packing == y->packing && x->head_dim == y->head_dim), "packings");
    for (uint32_t i = 0; i < 2 && x && !y; i++) {
        struct tw_extent e = tw_op_extent(op, i, 0, 0, x);
        w->unaligned[to->id] |= e.rows > 1 && e.stride % 64 != 0;
        w->unaligned[to->id] |= affine(c, w, &from->offset, false) % 64 != 0;
    }
}

static void check_data(struct second *c, struct walk *w, const struct tw_op *op) {
    const struct tw_operand *o = op->operand;
    if (tw_op_operands(op->code)[0].demand == TW_DEMAND_ANY) {
        check_move(c, w, op);
    }
    if (op->code == TW_OP_KEY_WRITE || op->code == TW_OP_VALUE_WRITE) {
        const struct tw_tensor *t = &c->p->tensors[o[TW_KEY_WRITE_cache].id];
        struct tw_numbers_key_write v = tw_numbers_key_write(op);
        NEED(10, t->packing == (op->code == TW_OP_KEY_WRITE ? TW_PACK_KEYS : TW_PACK_VALUES), "");
        NEED(10, t->head_dim == v.head_dim, "another head_dim than the cache's");
        uint64_t end = (uint64_t)tw_op_position(op)->max + tw_op_rows(op)->max;
        NEED(8, end <= t->rows && (v.first + v.heads) * v.head_dim <= t->cols, "outside the cache");
    } else if (op->code == TW_OP_GATHER) {
        const struct tw_tensor *t = &c->p->tensors[o[TW_GATHER_table].id];
        NEED(10, (TW_WEIGHT_DTYPES >> t->dtype & 1) && t->packing <= TW_PACK_PANEL16, "a table");
        NEED(10, t->cols == o[TW_GATHER_cols].id, "columns of a table");
        NEED(10, !o[TW_GATHER_table].paged && !o[TW_GATHER_ids].paged, "pages of a gather");
    } else if (op->code == TW_OP_MATMUL) {
        struct tw_numbers_matmul v = tw_numbers_matmul(op);
        uint32_t dtype = (uint32_t)v.dtype, x = c->p->buffers[o[TW_MATMUL_x].id].dtype;
        NEED(10, x == TW_DT_F32 || x == tw_dtype_activation(dtype), "x does not fit the weights");
        NEED(10, v.k % tw_dtype_block_elems(dtype) == 0, "k is not whole blocks");
        NEED(10, v.panels == 1 || v.w_stride >= tw_panel_bytes(dtype, v.k), "panels overlap");
    } else if (op->code == TW_OP_RMS_SCALE) {
        NEED(10, o[TW_RMS_SCALE_cols].id <= o[TW_RMS_SCALE_width].id, "columns outside the row");
    } else if (op->code == TW_OP_QUANT || op->code == TW_OP_QUANT_K) {
        NEED(10, o[TW_QUANT_cols].id % (op->code == TW_OP_QUANT ? 32 : 256) == 0, "part of blocks");
    } else if (op->code == TW_OP_ROPE) {
        NEED(10, o[TW_ROPE_rotated].id <= o[TW_ROPE_head_dim].id, "rotates too much");
    } else if (op->code == TW_OP_ATTN_STEP || op->code == TW_OP_ATTN_WINDOW) {
        struct tw_numbers_attn_step v = tw_numbers_attn_step(op);
        NEED(10, v.first + v.heads <= v.state_heads, "heads outside the state");
        NEED(10, v.segments * v.state_heads <= 65536, "heads of all segments");
        bool window = op->code == TW_OP_ATTN_WINDOW;
        NEED(10, !window || tw_operand_float(&o[TW_ATTN_WINDOW_cap]) >= 0.0f, "a cap");
    } else if (op->code == TW_OP_SOFT_CAP) {
        NEED(10, tw_operand_float(&o[TW_SOFT_CAP_cap]) > 0.0f, "a cap");
    } else if (op->code == TW_OP_ATTN_DONE) {
        NEED(10, o[TW_ATTN_DONE_segments].id * (uint64_t)o[TW_ATTN_DONE_heads].id <= 65536,
             "heads");
    } else if (op->code == TW_OP_MCAST) {
        const struct tw_buffer *y = &c->p->buffers[o[TW_MCAST_destination].id];
        const struct tw_group *g = &c->p->groups[o[TW_MCAST_group].id];
        NEED(13, y->sibling_base != TW_NONE, "not siblings");
        NEED(13, tw_group_within(g, &c->p->groups[y->group]), "no sibling there");
    } else if (op->code == TW_OP_SEND) {
        uint32_t site = c->p->buffers[o[TW_SEND_destination].id].site;
        NEED(13, site != w->s->site, "sends to its own site");
    }
}

/* Rows of a destination do not overlap. */
static void check_rows(struct second *c, const struct tw_op *op) {
    const struct tw_operand *rows = tw_op_rows(op), *o;
    for (uint32_t n = 0; (o = tw_op_region(op, n)) != NULL; n++) {
        struct tw_extent e =
            tw_op_extent(op, n, rows ? rows->max : 0, second_x_dtype(c, op), second_tensor(c, o));
        bool reads = o->kind == 'R' || o->kind == 'T';
        NEED(10, reads || e.rows < 2 || e.stride >= e.row_bytes, "rows overlap");
    }
    if (rows && rows->id != TW_NONE) {
        (op->code == TW_OP_LOOP ? c->in_loop : c->in_rows)[rows->id] = 1;
        c->not_zero[rows->id] |= op->code == TW_OP_LAST_ROW;
    }
}

/* Notes an op of one word in the loops around it, and who increments it. */
static void note_word(struct second *c, struct walk *w, uint32_t word, uint32_t by, uint8_t kind) {
    struct word *x = &c->word[word];
    uint32_t stream = w->s->site * 3 + w->s->engine;
    x->many = x->many || (by && x->kinds && x->stream != stream);
    x->stream = by ? stream : x->stream;
    x->kinds |= by ? kind : 0;
    for (uint32_t i = w->depth; i-- > 0; by *= w->open[i]->max) {
        uint32_t *adds = &w->open[i]->adds[word];
        *adds += by + (*adds == 0);
    }
}

static void check_semaphore(struct second *c, struct walk *w, const struct tw_op *op) {
    const struct tw_operand *o = op->operand;
    const struct tw_group *g = &c->p->groups[c->p->semaphores[o[0].id].group];
    uint32_t first = c->first_word[o[0].id];
    for (uint32_t i = 0; i < w->depth; i++) {
        NEED(12, w->open[i]->trip == TW_NONE, "a flag in a loop over a trip");
    }
    if (op->code != TW_OP_MCAST_SET) {
        bool inc = op->code == TW_OP_SEM_INC;
        uint32_t site = inc ? o[1].id : w->s->site;
        NEED(13, tw_group_holds(c->p, g, site), "no word there");
        NEED(14, !inc || o[2].id > 0, "adds nothing");
        note_word(c, w, first + tw_group_number(c->p, g, site), inc ? o[2].id : 0, 2);
        return;
    }
    const struct tw_group *to = &c->p->groups[o[1].id];
    NEED(13, tw_group_within(to, g), "no word there");
    bool whole = to->x0 == g->x0 && to->x1 == g->x1 && to->y0 == g->y0 && to->y1 == g->y1;
    for (uint32_t i = 0; i < tw_group_size(to); i++) {
        uint32_t site = tw_group_site(c->p, to, i);
        note_word(c, w, first + tw_group_number(c->p, g, site), 1, whole ? 1 : 2);
    }
}

static void check_pages(struct second *c, struct walk *w, const struct tw_op *op) {
    uint32_t id = op->operand[0].id, n = op->operand[1].id;
    const struct tw_buffer *f = &c->p->buffers[id];
    uint32_t end = op->code <= TW_OP_PUSH ? f->producer : f->consumer;
    bool moved = op->code == TW_OP_PUSH || op->code == TW_OP_POP;
    NEED(5, f->site == w->s->site && w->s->engine == end, "not its end of the FIFO");
    NEED(6, n > 0 && n <= f->pages, "more pages than the FIFO has");
    for (uint32_t i = 0; i < w->depth; i++) {
        w->open[i]->pages[id] |= moved ? SECOND_HELD | SECOND_MOVED : SECOND_HELD;
    }
}

/* ---- sections and their rendezvous ---- */

static void check_section(struct second *c, struct walk *w, const struct tw_op *op) {
    if (op->stage == TW_NONE) {
        return;
    }
    NEED(1, op->stage < c->p->n_stages, "no such stage");
    const struct tw_stage *g = &c->p->stages[op->stage];
    NEED(1, g->site == w->s->site && g->engine == w->s->engine, "another engine's stage");
    if (op->code == TW_OP_END) {
        return;
    }
    NEED(23, g->section >= w->section, "goes back to a section");
    for (; w->section < g->section; w->section++, w->meeting = 'w') {
        bool open = c->p->sections[w->section].local != TW_NONE && w->meeting != 'R';
        NEED(23, !open, "leaves a section before its rendezvous");
    }
    for (uint32_t i = 0; i < w->depth; i++) {
        uint32_t *from = &w->from_section[i];
        *from = *from == TW_NONE ? w->section : *from;
        NEED(23, *from == w->section, "a loop over several sections");
    }
}

/* Which word of the section's rendezvous an op raises, l(ocal), g(ather) or r(elease), or waits
 * for, L, G or R; '!': one of another section; 0: none. */
static char meeting_letter(const struct second *c, const struct walk *w, const struct tw_op *op) {
    bool flag = op->n_operands && op->operand[0].kind == 'S';
    for (uint32_t i = 0; flag && i < c->p->n_sections; i++) {
        const struct tw_section *s = &c->p->sections[i];
        uint32_t id = op->operand[0].id;
        const char *which = id == s->local     ? "lL"
                            : id == s->gather  ? "gG"
                            : id == s->release ? "rR"
                                               : NULL;
        if (which) {
            return i == w->section ? which[op->code == TW_OP_SEM_WAIT] : '!';
        }
    }
    return 0;
}

/* One op of the rendezvous, in the only order that there is. */
static void check_meeting(struct second *c, struct walk *w, const struct tw_op *op) {
    static const char follows[] = "wl lL lR Lg gG gR Gr rr rR";
    const struct tw_section *s = &c->p->sections[w->section];
    uint32_t slot = w->section * c->p->n_sites, here = w->s->site, *to = &w->target[w->section];
    uint32_t site = op->code == TW_OP_SEM_INC ? op->operand[1].id : TW_NONE;
    char pair[] = {w->meeting, meeting_letter(c, w, op), 0}, which = pair[1];
    bool one = op->code == TW_OP_SEM_INC && op->operand[2].id == 1;
    if (which == 0) {
        bool wait = op->code == TW_OP_SEM_WAIT, border = op->code == TW_OP_END || wait;
        NEED(15, tw_letter_in("wR", w->meeting), "works in the rendezvous");
        NEED(15, w->meeting == 'w' || s->local == TW_NONE || border, "works after the rendezvous");
        w->late = w->meeting == 'R' && (wait || w->late);
        return;
    }
    NEED(15, strstr(follows, pair), "an op of a rendezvous out of place");
    w->meeting = which;
    w->late = false;
    if (which == 'l') {
        NEED(15, one && site == here, "local of another site");
        NEED(15, s->repeat == 1 || w->times == s->repeat, "passed another number of times");
    } else if (which == 'L') {
        NEED(15, !w->leaders[slot + here]++, "two engines wait for local");
    } else if (which == 'g') {
        NEED(15, one && (*to == 0 || *to == site + 1), "gathers at several sites");
        *to = site + 1;
    } else if (which == 'G') {
        NEED(15, w->root[w->section] == 0, "several roots");
        w->root[w->section] = here + 1;
    } else if (which == 'r') {
        NEED(15, one || op->code == TW_OP_MCAST_SET, "release by another number than 1");
        for (uint32_t i = 0; i < c->p->n_sites; i++) {
            bool to_it = site == TW_NONE ? tw_group_holds(c->p, &c->p->groups[op->operand[1].id], i)
                                         : site == i;
            w->released[slot + i] = (uint8_t)(w->released[slot + i] + to_it);
        }
    }
}

static void check_meetings(struct second *c, const struct walk *w) {
    for (uint32_t i = 0; i < c->p->n_sections; i++) {
        for (uint32_t k = 0; k < c->p->n_sites && c->p->sections[i].local != TW_NONE; k++) {
            const struct tw_stream *s = &c->p->streams[k * 3];
            uint32_t work = (s[0].n_words | s[1].n_words | s[2].n_words) != 0;
            uint32_t slot = i * c->p->n_sites + k;
            NEED(15, w->root[i] != 0 && w->root[i] == w->target[i], "no root that gathers");
            NEED(15, w->leaders[slot] == work, "a site is not gathered");
            NEED(15, !work || w->released[slot] == 1, "a site is not released once");
        }
    }
}

/* ---- streams ---- */

static void enter(struct second *c, struct walk *w, const struct tw_op *op, struct loop *l) {
    NEED(2, w->depth < TW_MAX_VARS - 1, "too many open loops");
    for (uint32_t i = 0; i < w->depth; i++) {
        NEED(2, w->var[i] != op->operand[0].id, "the variable of an open loop");
    }
    l->trip = op->operand[1].id;
    l->max = op->operand[1].max;
    l->id = op->operand[2].id;
    l->depth = w->depth;
    NEED(12, (l->trip == TW_NONE) == (l->id == TW_NONE), "id of a loop");
    NEED(12, l->id == TW_NONE || w->last_id == TW_NONE || l->id > w->last_id, "ids descend");
    w->last_id = l->id == TW_NONE ? w->last_id : l->id;
    w->times *= l->max;
    NEED(11, w->times <= 0x7FFFFFFF, "too many iterations");
    w->from_section[w->depth] = op->stage == TW_NONE ? TW_NONE : w->section;
    w->var[w->depth] = op->operand[0].id;
    w->open[w->depth++] = l;
}

static void check_op(struct second *c, struct walk *w, const struct tw_op *op) {
    char engine[2] = {"LMS"[w->s->engine], 0};
    NEED(3, strstr(tw_op_info(op->code).engines, engine), "not an op of this engine");
    for (uint32_t i = 0; i < op->n_operands; i++) {
        check_operand(c, w, op, i);
    }
    check_section(c, w, op);
    if (tw_op_is_data(op->code)) {
        check_data(c, w, op);
    } else if (op->n_operands && op->operand[0].kind == 'S') {
        check_semaphore(c, w, op);
    } else if (op->n_operands && op->operand[0].kind == 'F') {
        check_pages(c, w, op);
    }
    check_rows(c, op);
    check_meeting(c, w, op);
}

static void check_stream(struct second *c, struct walk *w, struct loop **next) {
    struct tw_op op;
    for (w->at = 0; w->at < w->s->n_words; w->at += op.n_words, c->index++) {
        (void)tw_op_decode(w->s->words, w->s->n_words, w->at, &op);
        w->step_ops += w->times;
        check_op(c, w, &op);
        if (op.code == TW_OP_LOOP) {
            (*next)->stream = c->site * 3 + w->s->engine;
            (*next)->head = w->at;
            enter(c, w, &op, (*next)++);
        } else if (op.code == TW_OP_END) {
            NEED(2, w->depth > 0, "closes no loop");
            w->open[--w->depth]->end = w->at;
            w->times /= w->open[w->depth]->max;
        }
    }
    NEED(2, w->depth == 0, "a loop does not end");
    bool last = w->section == c->p->n_sections - 1 && w->meeting == 'R' && !w->late;
    NEED(15, w->at == 0 || last, "does not end with the last rendezvous");
}

/* Counts words of semaphores, and loops. */
static void count(struct second *c, uint32_t streams) {
    uint64_t words = 0, room = 131072;
    c->first_word = second_alloc(c, c->p->n_semaphores, sizeof *c->first_word);
    for (uint32_t i = 0; i < c->p->n_semaphores; i++) {
        c->first_word[i] = (uint32_t)words;
        words += tw_group_size(&c->p->groups[c->p->semaphores[i].group]);
    }
    for (uint32_t i = 0; i < streams; i++) {
        const struct tw_stream *s = &c->p->streams[i];
        struct tw_op op;
        room += 4 * (uint64_t)s->n_words;
        for (uint32_t at = 0; at < s->n_words; at += op.n_words) {
            NEED(2, tw_op_decode(s->words, s->n_words, at, &op), "does not decode");
            c->n_loops += op.code == TW_OP_LOOP;
        }
    }
    NEED(1, words <= room, "too many words of semaphores");
    c->n_words = (uint32_t)words;
}

void second_ops(struct second *c) {
    const struct tw_program *p = c->p;
    uint32_t streams = p->n_sites * TW_ENGINE_COUNT, slots = p->n_sections * p->n_sites;
    struct walk w = {.leaders = second_alloc(c, slots, 1), .released = second_alloc(c, slots, 1)};
    w.root = second_alloc(c, p->n_sections, sizeof *w.root);
    w.target = second_alloc(c, p->n_sections, sizeof *w.target);
    w.user = second_alloc(c, p->n_buffers, 1);
    w.unaligned = second_alloc(c, p->n_buffers, 1);
    w.weights = second_alloc(c, p->n_buffers, 1);
    c->written = second_alloc(c, p->n_tensors, 1);
    c->in_loop = second_alloc(c, p->n_trips, 1);
    c->in_rows = second_alloc(c, p->n_trips, 1);
    c->not_zero = second_alloc(c, p->n_trips, 1);
    count(c, streams);
    struct loop *next = c->loop = second_alloc(c, c->n_loops, sizeof *c->loop);
    for (uint32_t i = 0; i < c->n_loops; i++) {
        c->loop[i].adds = second_alloc(c, c->n_words, sizeof *c->loop->adds);
        c->loop[i].pages = second_alloc(c, p->n_buffers, 1);
    }
    c->word = second_alloc(c, c->n_words, sizeof *c->word);
    for (uint32_t i = 0; i < streams; i++) {
        w.s = &p->streams[i];
        w.section = c->index = 0;
        w.meeting = 'w';
        w.late = false;
        w.times = 1;
        w.last_id = TW_NONE;
        c->site = i / 3;
        c->what = tw_engine_name(i % 3);
        check_stream(c, &w, &next);
    }
    check_meetings(c, &w);
    for (uint32_t i = 0; i < c->n_loops * c->n_loops; i++) {
        const struct loop *a = &c->loop[i / c->n_loops], *b = &c->loop[i % c->n_loops];
        bool one = a->id == b->id && a->id != TW_NONE && a->stream / 3 == b->stream / 3;
        NEED(12, !one || (a->trip == b->trip && a->max == b->max && a->depth == b->depth), "loops");
    }
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        NEED(10, !w.weights[i] || !w.unaligned[i], "weights in a buffer that is not filled so");
    }
    NEED(29, w.step_ops <= TW_MAX_STEP_OPS, "too many ops in a step");
}
