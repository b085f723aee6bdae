/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of single ops, of loops as they are written, and of the shape of rendezvous.
 */
#include "tests/second_checker/second_internal.h"

/* Where a stream is in the rendezvous of its section. */
enum meeting { WORK, LOCAL, LEADER, GATHERED, ROOT, RELEASES, PASSED };

struct walk {
    const struct tw_stream *s;
    uint32_t at, depth, section, last_id, var[TW_MAX_VARS], from_section[TW_MAX_VARS];
    struct loop *open[TW_MAX_VARS];
    enum meeting meeting;
    bool late;                           /* the last op is a wait after the rendezvous */
    uint64_t times, step_ops;            /* every trip at its maximum */
    uint8_t *leaders, *released;         /* by section and site */
    uint32_t *root, *target;             /* by section: site, plus 1 */
    uint8_t *user, *unaligned, *weights; /* by buffer: engine plus 1 of a scratch buffer; how it is
                                            filled; that a matmul takes weights from it */
};

/* Returns false if an affine number is not of open loops; *bits is what its multiples have set. */
static bool affine(const struct walk *w, const struct tw_affine *a, bool epoch, uint64_t *bits) {
    *bits = a->base;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        bool open = epoch && a->term[i].var == 0;
        for (uint32_t k = 0; k < w->depth; k++) {
            open = open || w->var[k] == a->term[i].var;
        }
        if (!open) {
            return false;
        }
        *bits |= a->term[i].step;
    }
    return true;
}

static void check_buffer(struct second *c, struct walk *w, const struct tw_operand *o,
                         uint32_t demand, uint32_t weights) {
    NEED(1, o->id < c->p->n_buffers, "no such buffer");
    const struct tw_buffer *b = &c->p->buffers[o->id];
    bool producer = w->s->engine == b->producer, consumer = w->s->engine == b->consumer;
    uint64_t bits;
    NEED(5, b->site == w->s->site, "a buffer of another site");
    NEED(5, b->kind != TW_BUF_FIFO || producer || (consumer && o->kind == 'R'), "not its end");
    if (b->kind == TW_BUF_SCRATCH) {
        NEED(5, w->user[o->id] == 0 || w->user[o->id] == w->s->engine + 1, "not its scratch");
        w->user[o->id] = (uint8_t)(w->s->engine + 1);
    }
    NEED(10, tw_demand_dtype(demand, b->dtype, weights), "element type of a buffer");
    NEED(9, !tw_buffer_param(c->p, b) || o->kind == 'R', "writes a Param");
    NEED(2, affine(w, &o->offset, false, &bits), "a variable of no open loop");
    NEED(10, bits % 4 == 0, "alignment");
    if (demand == TW_DEMAND_WEIGHTS) {
        NEED(10, bits % 64 == 0 && (b->pages == 1 || b->page_bytes % 64 == 0), "weights");
        w->weights[o->id] = 1;
    }
    w->unaligned[o->id] |= bits % 64 != 0 && o->kind != 'R';
}

static void check_tensor(struct second *c, struct walk *w, const struct tw_operand *o,
                         uint32_t demand) {
    NEED(1, o->id < c->p->n_tensors, "no such tensor");
    const struct tw_tensor *t = &c->p->tensors[o->id];
    uint64_t bits;
    NEED(9, tw_demand_role(o->kind, demand, t->role), "role of a tensor");
    NEED(9, !c->kept[o->id], "names a State that is in SRAM");
    NEED(10, tw_demand_dtype(demand, t->dtype, 0), "element type of a tensor");
    NEED(2, affine(w, &o->instance, false, &bits), "a variable of no open loop");
    NEED(2, affine(w, &o->offset, false, &bits), "a variable of no open loop");
    NEED(10, bits % 4 == 0, "alignment");
    c->written[o->id] |= o->kind == 'U';
}

static void check_count(struct second *c, const struct tw_operand *o, uint32_t demand) {
    NEED(1, o->id == TW_NONE || o->id < c->p->n_trips, "no such trip");
    bool none = o->id == TW_NONE ? demand != TW_DEMAND_POSITION : demand == TW_DEMAND_TIMES;
    NEED(11, o->max > 0 || !none, "a count of 0");
    NEED(11, o->max <= 0x7FFFFFFF, "a count");
    NEED(11, o->id == TW_NONE || c->p->trips[o->id].max <= o->max, "a trip beyond the count");
}

static void check_operand(struct second *c, struct walk *w, const struct tw_op *op, uint32_t i) {
    const struct tw_operand *o = &op->operand[i];
    uint32_t demand = tw_op_operands(op->code)[i].demand;
    uint64_t bits;
    if (tw_letter_in("RWM", o->kind)) {
        check_buffer(c, w, o, demand,
                     op->code == TW_OP_MATMUL      ? op->operand[TW_MATMUL_dtype].id
                     : op->code == TW_OP_ATTN_STEP ? op->operand[TW_ATTN_STEP_dtype].id
                                                   : 0);
    } else if (tw_letter_in("TU", o->kind)) {
        check_tensor(c, w, o, demand);
    } else if (o->kind == 'X') {
        check_count(c, o, demand);
    } else if (o->kind == 'A') {
        bool epoch = op->code == TW_OP_SEM_WAIT;
        NEED(2, affine(w, &o->offset, epoch, &bits), "a variable of no open loop");
    }
    NEED(1, o->kind != 'F' || o->id < c->p->n_buffers, "no such buffer");
    NEED(1, o->kind != 'F' || c->p->buffers[o->id].kind == TW_BUF_FIFO, "not a FIFO");
    NEED(1, o->kind != 'S' || o->id < c->p->n_semaphores, "no such semaphore");
    NEED(1, o->kind != 'C' || o->id < c->p->n_sites, "no such site");
    NEED(1, o->kind != 'G' || o->id < c->p->n_groups, "no such group");
    NEED(13, o->kind != 'G' || c->p->groups[o->id].chips == 1, "a group on several chips");
    NEED(10, o->kind != 'E' || (o->id >> 23 & 255) != 255, "not a finite number");
    NEED(10, o->kind != 'I' || tw_demand_number(demand, o->id), tw_demand_text(demand));
}

/* ---- what single ops demand ---- */

static uint32_t dtype_of(const struct second *c, const struct tw_operand *o) {
    bool tensor = o->kind == 'T' || o->kind == 'U';
    return tensor ? c->p->tensors[o->id].dtype : c->p->buffers[o->id].dtype;
}

static void check_moves(struct second *c, struct walk *w, const struct tw_op *op) {
    const struct tw_operand *from = tw_op_region(op, 0), *to = tw_op_region(op, 1);
    uint32_t a = dtype_of(c, from), b = dtype_of(c, to);
    bool bytes = op->code != TW_OP_MCAST && (a == TW_DT_U8 || b == TW_DT_U8);
    uint64_t bits;
    NEED(10, a == b || bytes, "moves bytes to another element type");
    NEED(10, to->kind != 'U' || c->p->tensors[to->id].packing == TW_PACK_ROW, "a packed tensor");
    (void)affine(w, &from->offset, false, &bits);
    w->unaligned[to->kind == 'W' ? to->id : 0] |= from->kind == 'T' && bits % 64 != 0;
}

static void check_data(struct second *c, const struct tw_op *op) {
    const struct tw_operand *o = op->operand;
    if (op->code == TW_OP_KEY_WRITE || op->code == TW_OP_VALUE_WRITE) {
        const struct tw_tensor *t = &c->p->tensors[o[TW_KEY_WRITE_cache].id];
        struct tw_numbers_key_write v = tw_numbers_key_write(op);
        NEED(10, t->packing == (op->code == TW_OP_KEY_WRITE ? TW_PACK_KEYS : TW_PACK_VALUES), "");
        NEED(10, t->head_dim == v.head_dim, "another head_dim than the cache's");
        uint64_t end = (uint64_t)tw_op_position(op)->max + tw_op_rows(op)->max;
        NEED(8, end <= t->rows, "positions outside the cache");
        NEED(8, (v.first + v.heads) * v.head_dim <= t->cols, "heads outside the cache");
    } else if (op->code == TW_OP_GATHER) {
        const struct tw_tensor *t = &c->p->tensors[o[TW_GATHER_table].id];
        NEED(10, (TW_WEIGHT_DTYPES >> t->dtype & 1) && t->packing <= TW_PACK_PANEL16, "a table");
        NEED(10, t->cols == o[TW_GATHER_cols].id, "columns of a table");
    } else if (op->code == TW_OP_MATMUL) {
        uint32_t w = o[TW_MATMUL_dtype].id, x = c->p->buffers[o[TW_MATMUL_x].id].dtype;
        NEED(10, x == tw_dtype_activation(w), "x does not fit the weights");
        NEED(10, o[TW_MATMUL_k].id % tw_dtype_block_elems(w) == 0, "k is not whole blocks");
        struct tw_numbers_matmul v = tw_numbers_matmul(op);
        NEED(10, v.panels == 1 || v.w_stride >= tw_panel_bytes(w, v.k), "panels overlap");
    } else if (op->code == TW_OP_RMS_SCALE) {
        NEED(10, o[TW_RMS_SCALE_cols].id <= o[TW_RMS_SCALE_width].id, "columns outside the row");
    } else if (op->code == TW_OP_QUANT) {
        NEED(10, o[TW_QUANT_cols].id % 32 == 0, "not whole blocks");
    } else if (op->code == TW_OP_QUANT_K) {
        NEED(10, o[TW_QUANT_K_cols].id % 256 == 0, "not whole blocks");
    } else if (op->code == TW_OP_ROPE) {
        NEED(10, o[TW_ROPE_rotated].id <= o[TW_ROPE_head_dim].id, "rotates too much");
    } else if (op->code == TW_OP_ATTN_STEP) {
        struct tw_numbers_attn_step v = tw_numbers_attn_step(op);
        NEED(10, v.first + v.heads <= v.state_heads, "heads outside the state");
        NEED(10, v.segments * v.state_heads <= 65536, "heads of all segments");
    } else if (op->code == TW_OP_ATTN_DONE) {
        NEED(10, o[TW_ATTN_DONE_segments].id * (uint64_t)o[TW_ATTN_DONE_heads].id <= 65536, "");
    } else if (op->code == TW_OP_MCAST) {
        const struct tw_buffer *y = &c->p->buffers[o[TW_MCAST_destination].id];
        const struct tw_group *g = &c->p->groups[o[TW_MCAST_group].id];
        NEED(13, y->kind == TW_BUF_RESIDENT && y->sibling_base != TW_NONE, "not siblings");
        NEED(13, tw_group_within(g, &c->p->groups[y->group]), "no sibling there");
    }
}

/* Notes an op of one word in the loops around it, and who increments it. */
static void note_word(struct second *c, struct walk *w, uint32_t word, uint64_t by, uint8_t kind) {
    struct writers *x = &c->writers[word];
    uint32_t stream = w->s->site * 3 + w->s->engine;
    x->many = x->many || (by && x->kinds && x->stream != stream);
    x->stream = by ? stream : x->stream;
    x->kinds |= by ? kind : 0;
    for (uint32_t i = w->depth; i-- > 0; by *= w->open[i]->max) {
        struct loop *l = w->open[i];
        uint32_t k = 0;
        while (k < l->n_words && l->words[k].word != word) {
            k++;
        }
        if (k == l->n_words && (k & (k - 1)) == 0) { /* room up to a power of two */
            struct counted *more = second_alloc(c, k * 2 + 1, sizeof *more);
            l->words = k ? memcpy(more, l->words, k * sizeof *more) : more;
        }
        l->n_words += k == l->n_words;
        l->words[k].word = word;
        l->words[k].by += (uint32_t)by;
    }
}

static void check_semaphore(struct second *c, struct walk *w, const struct tw_op *op) {
    const struct tw_operand *o = op->operand;
    const struct tw_group *g = &c->p->groups[c->p->semaphores[o[0].id].group], *to;
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
    to = &c->p->groups[o[1].id];
    NEED(13, tw_group_within(to, g), "no word there");
    bool whole = to->x0 == g->x0 && to->x1 == g->x1 && to->y0 == g->y0 && to->y1 == g->y1;
    for (uint32_t i = 0; i < tw_group_size(to); i++) {
        uint32_t site = tw_group_site(c->p, to, i);
        note_word(c, w, first + tw_group_number(c->p, g, site), 1, whole ? 1 : 2);
    }
}

/* Adds a FIFO to a list without doubles, which has room up to a power of two. */
static void add_fifo(struct second *c, uint32_t **list, uint32_t *n, uint32_t fifo) {
    for (uint32_t i = 0; i < *n; i++) {
        if ((*list)[i] == fifo) {
            return;
        }
    }
    if ((*n & (*n - 1)) == 0) {
        uint32_t *more = second_alloc(c, *n * 2 + 1, sizeof *more);
        *list = *n ? memcpy(more, *list, *n * sizeof *more) : more;
    }
    (*list)[(*n)++] = fifo;
}

static void check_pages(struct second *c, struct walk *w, const struct tw_op *op) {
    uint32_t id = op->operand[0].id, n = op->operand[1].id;
    const struct tw_buffer *f = &c->p->buffers[id];
    uint32_t end = op->code <= TW_OP_PUSH ? f->producer : f->consumer;
    NEED(5, f->site == w->s->site && w->s->engine == end, "not its end of the FIFO");
    NEED(6, n > 0 && n <= f->pages, "more pages than the FIFO has");
    for (uint32_t i = 0; i < w->depth; i++) {
        struct loop *l = w->open[i];
        add_fifo(c, &l->held, &l->n_held, id);
        if (op->code == TW_OP_PUSH || op->code == TW_OP_POP) {
            add_fifo(c, &l->moved, &l->n_moved, id);
        }
    }
}

/* Rows of a destination do not overlap. */
static void check_rows(struct second *c, const struct tw_op *op) {
    const struct tw_operand *rows = tw_op_rows(op), *x = tw_op_region(op, 0), *o;
    for (uint32_t n = 0; (o = tw_op_region(op, n)) != NULL; n++) {
        bool tensor = o->kind == 'T' || o->kind == 'U';
        struct tw_extent e = tw_op_extent(op, n, rows ? rows->max : 0, dtype_of(c, x),
                                          tensor ? &c->p->tensors[o->id] : NULL);
        bool reads = o->kind == 'R' || o->kind == 'T';
        NEED(10, reads || e.rows < 2 || e.stride >= e.row_bytes, "rows overlap");
    }
    if (rows && rows->id != TW_NONE) {
        (op->code == TW_OP_LOOP ? c->in_loop : c->in_rows)[rows->id] = 1;
        c->not_zero[rows->id] |= op->code == TW_OP_LAST_ROW;
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
    for (; w->section < g->section; w->section++, w->meeting = WORK) {
        bool open = c->p->sections[w->section].local != TW_NONE && w->meeting != PASSED;
        NEED(23, !open, "leaves a section before its rendezvous");
    }
    for (uint32_t i = 0; i < w->depth; i++) {
        uint32_t *from = &w->from_section[i];
        *from = *from == TW_NONE ? w->section : *from;
        NEED(23, *from == w->section, "a loop over several sections");
    }
}

/* Which semaphore of a rendezvous an op is about: 'l', 'g', 'r' of this section, '!' of another, 0
 * of none. */
static char meeting_word(const struct second *c, const struct walk *w, const struct tw_op *op) {
    bool flag = op->n_operands && op->operand[0].kind == 'S';
    for (uint32_t i = 0; flag && i < c->p->n_sections; i++) {
        const struct tw_section *s = &c->p->sections[i];
        uint32_t id = op->operand[0].id;
        char which = id == s->local ? 'l' : id == s->gather ? 'g' : id == s->release ? 'r' : 0;
        if (which) {
            return i == w->section ? which : '!';
        }
    }
    return 0;
}

/* One op of the rendezvous, in the only order that there is. */
static void check_meeting(struct second *c, struct walk *w, const struct tw_op *op) {
    uint32_t slot = w->section * c->p->n_sites, here = w->s->site, *to = &w->target[w->section];
    bool wait = op->code == TW_OP_SEM_WAIT, closes = c->p->sections[w->section].local != TW_NONE;
    bool one = op->code == TW_OP_SEM_INC && op->operand[2].id == 1;
    enum meeting m = w->meeting;
    char which = meeting_word(c, w, op);
    if (which == 0) {
        NEED(15, m == WORK || m == PASSED, "works in the rendezvous");
        bool border = op->code == TW_OP_END || wait;
        NEED(15, m == WORK || !closes || border, "works after the rendezvous");
        w->late = m == PASSED && wait;
    } else if (which == 'l' && !wait) {
        NEED(15, m == WORK && one && op->operand[1].id == here, "local out of place");
        uint32_t repeat = c->p->sections[w->section].repeat;
        NEED(15, repeat == 1 || w->times == repeat, "passed another number of times");
        w->meeting = LOCAL;
    } else if (which == 'l') {
        NEED(15, m == LOCAL && !w->leaders[slot + here]++, "local out of place");
        w->meeting = LEADER;
    } else if (which == 'g' && !wait) {
        NEED(15, m == LEADER && one, "gather out of place");
        NEED(15, *to == 0 || *to == op->operand[1].id + 1, "gathers at several sites");
        *to = op->operand[1].id + 1;
        w->meeting = GATHERED;
    } else if (which == 'g') {
        NEED(15, m == GATHERED && w->root[w->section] == 0, "gather out of place");
        w->root[w->section] = here + 1;
        w->meeting = ROOT;
    } else if (which == 'r' && !wait) {
        NEED(15, m == ROOT || m == RELEASES, "release out of place");
        NEED(15, one || op->code == TW_OP_MCAST_SET, "release by another number than 1");
        for (uint32_t i = 0; i < c->p->n_sites; i++) {
            bool to_it = op->code == TW_OP_SEM_INC
                             ? op->operand[1].id == i
                             : tw_group_holds(c->p, &c->p->groups[op->operand[1].id], i);
            w->released[slot + i] = (uint8_t)(w->released[slot + i] + to_it);
        }
        w->meeting = RELEASES;
    } else {
        NEED(15, which == 'r', "the rendezvous of another section");
        NEED(15, m == LOCAL || m == GATHERED || m == RELEASES, "release out of place");
        w->meeting = PASSED;
    }
}

static void check_meetings(struct second *c, const struct walk *w) {
    for (uint32_t i = 0; i < c->p->n_sections; i++) {
        for (uint32_t k = 0; k < c->p->n_sites && c->p->sections[i].local != TW_NONE; k++) {
            const struct tw_stream *s = &c->p->streams[k * 3];
            uint32_t work = (s[0].n_words | s[1].n_words | s[2].n_words) != 0,
                     slot = i * c->p->n_sites + k;
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
    *l = (struct loop){.head = w->at, .trip = op->operand[1].id, .max = op->operand[1].max};
    l->id = op->operand[2].id;
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
        check_data(c, op);
        if (op->n_operands > 1 && tw_op_operands(op->code)[0].demand == TW_DEMAND_ANY) {
            check_moves(c, w, op);
        }
    } else if (op->n_operands && op->operand[0].kind == 'S') {
        check_semaphore(c, w, op);
    } else if (op->n_operands && op->operand[0].kind == 'F') {
        check_pages(c, w, op);
    }
    check_rows(c, op);
    check_meeting(c, w, op);
}

static void check_stream(struct second *c, struct walk *w, uint32_t stream) {
    struct tw_op op;
    uint32_t n = 0;
    for (w->at = 0; w->at < w->s->n_words; w->at += op.n_words, n++) {
        NEED(2, tw_op_decode(w->s->words, w->s->n_words, w->at, &op), "does not decode");
    }
    struct loop *loops = c->loops[stream] = second_alloc(c, n + 1, sizeof *loops);
    for (w->at = 0; w->at < w->s->n_words; w->at += op.n_words, c->index++) {
        (void)tw_op_decode(w->s->words, w->s->n_words, w->at, &op);
        w->step_ops += w->times;
        check_op(c, w, &op);
        if (op.code == TW_OP_LOOP) {
            enter(c, w, &op, &loops[c->n_loops[stream]++]);
        } else if (op.code == TW_OP_END) {
            NEED(2, w->depth > 0, "closes no loop");
            w->open[--w->depth]->end = w->at;
            w->times /= w->open[w->depth]->max;
        }
    }
    NEED(2, w->depth == 0, "a loop does not end");
    bool last = w->section == c->p->n_sections - 1 && w->meeting == PASSED && !w->late;
    NEED(15, n == 0 || last, "does not end with the last rendezvous");
}

void second_ops(struct second *c) {
    const struct tw_program *p = c->p;
    uint32_t streams = p->n_sites * TW_ENGINE_COUNT, slots = p->n_sections * p->n_sites;
    struct walk w = {.leaders = second_alloc(c, slots, 1), .released = second_alloc(c, slots, 1)};
    w.root = second_alloc(c, p->n_sections, sizeof *w.root);
    w.target = second_alloc(c, p->n_sections, sizeof *w.target);
    w.user = second_alloc(c, p->n_buffers, 1);
    w.unaligned = second_alloc(c, p->n_buffers + 1, 1);
    w.weights = second_alloc(c, p->n_buffers, 1);
    c->written = second_alloc(c, p->n_tensors, 1);
    c->in_loop = second_alloc(c, p->n_trips, 1);
    c->in_rows = second_alloc(c, p->n_trips, 1);
    c->not_zero = second_alloc(c, p->n_trips, 1);
    uint64_t words = 0, room = 131072;
    c->first_word = second_alloc(c, p->n_semaphores, sizeof *c->first_word);
    for (uint32_t i = 0; i < p->n_semaphores; i++) {
        c->first_word[i] = (uint32_t)words;
        words += tw_group_size(&p->groups[p->semaphores[i].group]);
    }
    for (uint32_t i = 0; i < streams; i++) {
        room += 4 * (uint64_t)p->streams[i].n_words;
    }
    NEED(1, words <= room, "too many words of semaphores");
    c->n_words = (uint32_t)words;
    c->writers = second_alloc(c, words, sizeof *c->writers);
    c->loops = second_alloc(c, streams, sizeof *c->loops);
    c->n_loops = second_alloc(c, streams, sizeof *c->n_loops);
    for (uint32_t i = 0; i < streams; i++) {
        w.s = &p->streams[i];
        w.section = c->index = 0;
        w.meeting = WORK;
        w.late = false;
        w.times = 1;
        w.last_id = TW_NONE;
        c->site = i / 3;
        c->what = tw_engine_name(i % 3);
        check_stream(c, &w, i);
    }
    check_meetings(c, &w);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        NEED(10, !w.weights[i] || !w.unaligned[i], "weights in a buffer that is not filled so");
    }
    NEED(29, w.step_ops <= TW_MAX_STEP_OPS, "too many ops in a step");
}
