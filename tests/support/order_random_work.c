/* SPDX-License-Identifier: Apache-2.0
 *
 * Transactions of random programs (order_random_internal.h): each adds a block of ops to one
 * engine, or the two halves of a handshake to two.
 */
#include "tests/support/order_random_internal.h"

/* ---- data ops ---- */

static struct tw_affine zero(void) {
    return tw_affine_const(0);
}

/* Opens a loop over the parts of 16 bytes of a buffer, mostly all of them; their offset. */
static struct tw_affine parts_begin(struct gen *g) {
    bool dynamic = below(g, 12) == 0;
    uint32_t n = dynamic || below(g, 12) == 0 ? 2 : 4;
    PB_OP(g->b, LOOP, pb_id(V_PART), pb_rows(dynamic ? g->trip : TW_NONE, n),
          pb_id(dynamic ? g->next_loop++ : TW_NONE));
    g->out->has_trip = g->out->has_trip || dynamic;
    g->out->has_loop = true;
    return pb_v(0, V_PART, PAGE / 4);
}

static bool in_parts(struct gen *g) {
    return below(g, 6) == 0;
}

static void read_into(struct gen *g, uint32_t buffer) {
    struct tw_affine from = tw_affine_const(below(g, 2) * PAGE);
    if (g->depth) {
        from = tw_affine_plus(from, V_LOOP, PAGE);
    }
    if (in_parts(g)) {
        struct tw_affine at = parts_begin(g);
        PB_OP(g->b, READ, pb_of(T_IN, zero(), tw_affine_plus(from, V_PART, PAGE / 4)),
              pb_at(buffer, at), pb_id(1), pb_id(PAGE / 4), pb_id(PAGE), pb_id(PAGE));
        pb_end(g->b);
        return;
    }
    PB_OP(g->b, READ, pb_of(T_IN, zero(), from), pb_on(buffer, 0), pb_id(1), pb_id(PAGE),
          pb_id(PAGE), pb_id(PAGE));
}

/* Returns true if the buffer holds two rows of 32 bytes whose number is the trip's; now and then it
 * is wrong, on purpose. */
static bool has_rows(struct gen *g, uint32_t buffer) {
    bool rows = g->by_rows >> buffer / g->sites % MAX_SETS & 1;
    rows = below(g, 16) ? rows : !rows && g->by_rows;
    g->out->has_trip = g->out->has_trip || rows;
    return rows;
}

/* Four folds of two parts each, a quarter of a page each, or what a split norm does: squares, and
 * numbers that are scaled by their sum. */
static void split_sums(struct gen *g, uint32_t from, uint32_t to) {
    if (below(g, 2)) {
        for (uint32_t i = 0; i < 4; i++) {
            PB_OP(g->b, FOLD, pb_on(from, i % 2 * PAGE / 2), pb_id(PAGE), pb_id(2),
                  pb_on(to, i * PAGE / 4), pb_id(PAGE), pb_id(PAGE / 16), pb_rows(TW_NONE, 1));
        }
        return;
    }
    uint32_t half = PAGE / 2;
    PB_OP(g->b, SQUARES, pb_on(from, 0), pb_id(PAGE), pb_on(to, half), pb_id(4), pb_id(PAGE / 4),
          pb_rows(TW_NONE, 1));
    PB_OP(g->b, RMS_SCALE, pb_on(from, half), pb_id(PAGE), pb_on(to, half), pb_id(4),
          pb_on(from, half), pb_on(to, 0), pb_id(PAGE), pb_id(PAGE / 8), pb_id(PAGE / 4),
          pb_float(1e-5f), pb_rows(TW_NONE, 1));
    PB_OP(g->b, FOLD, pb_on(from, 0), pb_id(PAGE), pb_id(2), pb_on(to, half), pb_id(PAGE),
          pb_id(PAGE / 8), pb_rows(TW_NONE, 1));
}

static void compute(struct gen *g, uint32_t from, uint32_t to) {
    if (has_rows(g, from)) {
        PB_OP(g->b, COPY, pb_on(from, 0), pb_id(PAGE / 2), pb_on(to, 0), pb_id(PAGE / 2),
              pb_id(PAGE / 2), pb_rows(g->trip, 2));
    } else if (below(g, 10) == 0) { /* one part only */
        struct tw_affine at = tw_affine_const(below(g, 4) * PAGE / 4);
        PB_OP(g->b, COPY, pb_at(from, at), pb_id(PAGE), pb_at(to, at), pb_id(PAGE), pb_id(PAGE / 4),
              pb_rows(TW_NONE, 1));
    } else if (in_parts(g)) {
        struct tw_affine at = parts_begin(g);
        PB_OP(g->b, COPY, pb_at(from, at), pb_id(PAGE), pb_at(to, at), pb_id(PAGE), pb_id(PAGE / 4),
              pb_rows(TW_NONE, 1));
        pb_end(g->b);
    } else if (below(g, 2)) {
        order_math(g, from, to);
    } else if (from == to || below(g, 2)) {
        PB_OP(g->b, ADD, pb_on(from, 0), pb_id(PAGE), pb_on(from, 0), pb_id(PAGE), pb_on(to, 0),
              pb_id(PAGE), pb_id(16), pb_rows(TW_NONE, 1));
    } else if (below(g, 3) == 0) {
        split_sums(g, from, to);
    } else {
        PB_OP(g->b, COPY, pb_on(from, 0), pb_id(PAGE), pb_on(to, 0), pb_id(PAGE), pb_id(PAGE),
              pb_rows(TW_NONE, 1));
    }
}

/* A row of a page of the ring: mostly of the page that an element of the table names. */
struct tw_operand order_in_ring(struct gen *g) {
    uint64_t row = below(g, 2) * PAGE;
    if (below(g, 6) == 0) {
        return pb_of(T_RING, zero(), tw_affine_const(below(g, ORDER_PAGES) * 2 * PAGE + row));
    }
    struct tw_affine element = tw_affine_const(below(g, RING_SLOTS - 1));
    if (g->repeat > 1 && below(g, 2)) {
        element = tw_affine_plus(element, V_REPEAT, 1);
    }
    return pb_in_page(pb_of(T_RING, zero(), tw_affine_const(row)), T_PAGES, element);
}

static void write_out(struct gen *g, uint32_t buffer) {
    bool state = below(g, 6) == 0, rows = has_rows(g, buffer);
    if (!rows && below(g, 4) == 0) {
        PB_OP(g->b, WRITE, pb_on(buffer, 0), pb_id(PAGE), order_in_ring(g), pb_id(PAGE),
              pb_id(PAGE), pb_rows(TW_NONE, 1));
        return;
    }
    uint32_t row = below(g, 2) ? g->b->site : below(g, OUT_ROWS), tensor = state ? T_STATE : T_OUT;
    struct tw_affine instance = state ? zero() : tw_affine_const(below(g, 2)),
                     at = tw_affine_const(state ? 0 : row * PAGE);
    if (!state && g->repeat > 1 && below(g, 2)) {
        instance = pb_v(0, V_REPEAT, 1);
    }
    if (!rows && in_parts(g)) {
        struct tw_affine part = parts_begin(g);
        PB_OP(g->b, WRITE, pb_at(buffer, part), pb_id(PAGE),
              pb_of(tensor, instance, tw_affine_plus(at, V_PART, PAGE / 4)), pb_id(PAGE),
              pb_id(PAGE / 4), pb_rows(TW_NONE, 1));
        pb_end(g->b);
        return;
    }
    uint32_t bytes = rows ? PAGE / 2 : PAGE;
    PB_OP(g->b, WRITE, pb_on(buffer, 0), pb_id(bytes), pb_of(tensor, instance, at), pb_id(bytes),
          pb_id(bytes), pb_rows(rows ? g->trip : TW_NONE, rows ? 2 : 1));
}

/* Content for a page or buffer by an engine that can make it. */
static void produce(struct gen *g, uint32_t to) {
    if (g->b->engine == TW_ENGINE_LOAD) {
        if (has_rows(g, to)) {
            PB_OP(g->b, GATHER, pb_of(T_TABLE, zero(), zero()), pb_of(T_IDS, zero(), zero()),
                  pb_on(to, 0), pb_id(PAGE / 2), pb_id(8), pb_rows(g->trip, 2));
        } else if (below(g, 8) == 0) {
            PB_OP(g->b, READ, pb_of(T_STATE, zero(), zero()), pb_on(to, 0), pb_id(1), pb_id(PAGE),
                  pb_id(PAGE), pb_id(PAGE));
        } else if (below(g, 6) == 0) {
            PB_OP(g->b, READ, order_in_ring(g), pb_on(to, 0), pb_id(1), pb_id(PAGE), pb_id(PAGE),
                  pb_id(PAGE));
        } else {
            read_into(g, to);
        }
    } else if (g->b->engine == TW_ENGINE_MATH) {
        bool rows = has_rows(g, to);
        PB_OP(g->b, ATTN_INIT, pb_on(to, 0), pb_id(1), pb_id(rows ? 6 : 14),
              pb_rows(rows ? g->trip : TW_NONE, rows ? 2 : 1));
    }
}

void order_consume(struct gen *g, uint32_t from) {
    if (g->b->engine == TW_ENGINE_STORE) {
        write_out(g, from);
    } else if (g->b->engine == TW_ENGINE_MATH) {
        compute(g, from, id(g, g->plain[SCRATCH]));
    }
}

/* ---- FIFOs ---- */

/* STORE fills its pages from x0. Returns false if it cannot. */
static bool push_page(struct gen *g, struct fifo *f, uint32_t site) {
    bool store = f->from == TW_ENGINE_STORE;
    if (store && (!g->touch[0][site].written || g->depth || g->care == 0)) {
        return false;
    }
    if (store) {
        order_before_access(g, 0, site, site * TW_ENGINE_COUNT + TW_ENGINE_STORE, false);
    }
    block(g, site, f->from);
    PB_OP(g->b, RESERVE, pb_id(id(g, f->set)), pb_id(1));
    if (store) {
        PB_OP(g->b, COPY, pb_on(id(g, g->plain[X0]), 0), pb_id(PAGE), pb_on(id(g, f->set), 0),
              pb_id(PAGE), pb_id(PAGE), pb_rows(TW_NONE, 1));
    } else {
        produce(g, id(g, f->set));
    }
    PB_OP(g->b, PUSH, pb_id(id(g, f->set)), pb_id(1));
    return true;
}

static void pop_page(struct gen *g, struct fifo *f, uint32_t site) {
    block(g, site, f->to);
    PB_OP(g->b, WAIT, pb_id(id(g, f->set)), pb_id(1));
    if (below(g, 8)) {
        order_consume(g, id(g, f->set));
    }
    PB_OP(g->b, POP, pb_id(id(g, f->set)), pb_id(1));
}

static bool is_usable(const struct gen *g, const struct fifo *f, uint32_t site) {
    return is_active(g, site, f->from) && is_active(g, site, f->to);
}

/* One half of a passage, or both. FIFOs of different sites are counted together in `pending`, site
 * by site in bytes. */
void order_fifo_transaction(struct gen *g) {
    struct fifo *f = &g->fifos[below(g, g->n_fifos)];
    uint32_t site = below(g, g->sites);
    if (!is_usable(g, f, site)) {
        return;
    }
    uint32_t level = f->pending >> site * 8 & 0xFF;
    if (level < f->pages && (level == 0 || below(g, 2))) {
        f->pending += push_page(g, f, site) ? 1u << site * 8 : 0;
    } else if (level > 0) {
        pop_page(g, f, site);
        f->pending -= 1u << site * 8;
    }
}

void order_drain(struct gen *g) {
    for (uint32_t i = 0; i < g->n_fifos; i++) {
        for (uint32_t site = 0; site < g->sites; site++) {
            for (; g->fifos[i].pending >> site * 8 & 0xFF; g->fifos[i].pending -= 1u << site * 8) {
                pop_page(g, &g->fifos[i], site);
            }
        }
    }
}

/* ---- loops ---- */

void order_loop_begin(struct gen *g, uint32_t site, uint32_t engine, uint32_t loop,
                      uint32_t count) {
    block(g, site, engine);
    PB_OP(g->b, LOOP, pb_id(V_LOOP), pb_rows(loop == TW_NONE ? TW_NONE : g->trip, count),
          pb_id(loop));
}

/* LOAD writes a resident buffer in the loop that no engine reads there. */
static bool write_aside(struct gen *g, uint32_t site, const bool in[TW_ENGINE_COUNT]) {
    if (!in[TW_ENGINE_LOAD] || below(g, 2)) {
        return false;
    }
    go(g, site, TW_ENGINE_LOAD);
    read_into(g, id(g, g->plain[X1]));
    g->touch[1][site] =
        (struct touch){.written = true, .writer = site * TW_ENGINE_COUNT + TW_ENGINE_LOAD};
    return true;
}

/* Another engine of the loop reads it after the loop, without any other synchronisation. */
static void read_aside(struct gen *g, uint32_t site, const bool in[TW_ENGINE_COUNT]) {
    uint32_t engine = in[TW_ENGINE_STORE] && below(g, 2) ? TW_ENGINE_STORE : TW_ENGINE_MATH;
    if (in[engine] && g->depth == 0) {
        block(g, site, engine);
        order_consume(g, id(g, g->plain[X1]));
        g->touch[1][site].read = true;
        g->touch[1][site].reader = site * TW_ENGINE_COUNT + engine;
    }
}

/* Pages pass through a FIFO, or two, in a loop of their engines; or one that is there before stays
 * the whole time. */
void order_loop_transaction(struct gen *g) {
    struct fifo *f = &g->fifos[below(g, g->n_fifos)], *second = &g->fifos[below(g, g->n_fifos)];
    uint32_t site = below(g, g->sites), count = below(g, 8) ? 2 + below(g, 2) : 1;
    bool dynamic = below(g, 3) == 0, in[TW_ENGINE_COUNT] = {false},
         two = second != f && below(g, 2);
    two = two && is_usable(g, second, site) && !(second->pending >> site * 8 & 0xFF);
    uint32_t in_flight = f->pending >> site * 8 & 0xFF;
    two = two && second->from != TW_ENGINE_STORE;
    if (!is_usable(g, f, site) || in_flight >= f->pages || f->from == TW_ENGINE_STORE) {
        return;
    }
    in[f->from] = in[f->to] = true;
    in[second->from] = in[second->from] || two;
    in[second->to] = in[second->to] || two;
    uint32_t loop = dynamic ? g->next_loop++ : TW_NONE;
    count = dynamic ? 2 : count;
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        if (in[e]) {
            order_loop_begin(g, site, e, loop, count);
        }
    }
    g->depth++;
    bool early = below(g, 2), aside = early && write_aside(g, site, in);
    push_page(g, f, site);
    if (two && below(g, 2)) {
        push_page(g, second, site);
        pop_page(g, f, site);
        pop_page(g, second, site);
    } else {
        pop_page(g, f, site);
        if (two) {
            push_page(g, second, site);
            pop_page(g, second, site);
        }
    }
    aside = aside || (!early && write_aside(g, site, in));
    g->depth--;
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        if (in[e]) {
            go(g, site, e);
            pb_end(g->b);
        }
    }
    if (aside && below(g, 3)) {
        read_aside(g, site, in);
    }
    g->out->has_loop = true;
    g->out->has_trip = g->out->has_trip || dynamic;
}

/* ---- flags and resident buffers ---- */

uint32_t order_new_flag(struct gen *g) {
    uint32_t k = g->n_flags < MAX_FLAGS ? g->n_flags++ : below(g, MAX_FLAGS);
    g->out->has_flag = true;
    return k;
}

/* `to` waits until `from` is here. */
static void sync(struct gen *g, uint32_t from, uint32_t to) {
    if (from == to || below(g, 16) >= g->care) {
        return;
    }
    uint32_t k = order_new_flag(g), site = to / TW_ENGINE_COUNT;
    block(g, from / TW_ENGINE_COUNT, from % TW_ENGINE_COUNT);
    PB_OP(g->b, SEM_INC, pb_id(g->flags[k]), pb_id(site), pb_id(1));
    g->flag_count[k][site]++;
    block(g, site, to % TW_ENGINE_COUNT);
    PB_OP(g->b, SEM_WAIT, pb_id(g->flags[k]), pb_num(tw_affine_const(g->flag_count[k][site])));
}

void order_before_access(struct gen *g, uint32_t x, uint32_t site, uint32_t stream, bool write) {
    struct touch *t = &g->touch[x][site];
    if (t->written && t->writer != stream) {
        sync(g, t->writer, stream);
    }
    if (write && t->read && t->reader != stream) {
        sync(g, t->reader, stream);
    }
    if (write) {
        *t = (struct touch){.written = true, .writer = stream};
    } else {
        t->read = true;
        t->reader = stream;
    }
}

void order_resident_write(struct gen *g) {
    uint32_t site = below(g, g->sites), engine = below(g, 2), x = below(g, 2);
    if (!is_active(g, site, engine)) {
        return;
    }
    order_before_access(g, x, site, site * TW_ENGINE_COUNT + engine, true);
    block(g, site, engine);
    produce(g, id(g, g->plain[x]));
}

void order_resident_read(struct gen *g) {
    uint32_t site = below(g, g->sites), engine = 1 + below(g, 2), x = below(g, 2);
    if (!is_active(g, site, engine) || (!g->touch[x][site].written && below(g, 64))) {
        return;
    }
    order_before_access(g, x, site, site * TW_ENGINE_COUNT + engine, false);
    block(g, site, engine);
    order_consume(g, id(g, g->plain[x]));
}

/* MATH adds the window of the Param to an instance of the State in SRAM, or the other way to its
 * scratch; STORE writes an instance out. In a repeated section MATH steps over the instances. */
void order_pinned(struct gen *g) {
    uint32_t site = below(g, g->sites), engine = 1 + below(g, 2),
             scratch = g->plain[SCRATCH] + site, kept = g->kept + site;
    bool write = engine == TW_ENGINE_MATH && below(g, 3);
    if (!is_active(g, site, engine)) {
        return;
    }
    struct tw_affine at = tw_affine_const(below(g, 2) * PAGE);
    if (g->repeat > 1 && g->care && below(g, 2)) {
        at = pb_v(0, V_REPEAT, PAGE);
    }
    order_before_access(g, TOUCH_STATE, site, site * TW_ENGINE_COUNT + engine, write);
    block(g, site, engine);
    if (engine == TW_ENGINE_STORE) {
        PB_OP(g->b, WRITE, pb_at(kept, at), pb_id(PAGE),
              pb_of(T_OUT, zero(), tw_affine_const(site * PAGE)), pb_id(PAGE), pb_id(PAGE),
              pb_rows(TW_NONE, 1));
    } else if (write) {
        PB_OP(g->b, ADD, pb_at(kept, at), pb_id(PAGE), pb_on(g->window + site, 0), pb_id(PAGE),
              pb_at(kept, at), pb_id(PAGE), pb_id(16), pb_rows(TW_NONE, 1));
    } else {
        PB_OP(g->b, ADD, pb_at(kept, at), pb_id(PAGE), pb_on(g->window + site, 0), pb_id(PAGE),
              pb_on(scratch, 0), pb_id(PAGE), pb_id(16), pb_rows(TW_NONE, 1));
    }
}

/* A loop that runs once, with all engines and a flag between two of them. */
void order_flag_loop(struct gen *g) {
    uint32_t n = g->sites * TW_ENGINE_COUNT, from = below(g, n), to = below(g, n);
    if (g->care == 0 || from == to || !g->active[from] || !g->active[to]) {
        return;
    }
    uint32_t care = g->care;
    for (uint32_t i = 0; i < n; i++) {
        if (g->active[i]) {
            order_loop_begin(g, i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT, TW_NONE, 1);
        }
    }
    g->depth++;
    g->care = 16;
    sync(g, from, to);
    g->care = care;
    g->depth--;
    for (uint32_t i = 0; i < n; i++) {
        if (g->active[i]) {
            go(g, i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT);
            pb_end(g->b);
        }
    }
    g->out->has_loop = true;
}

/* Waits in a loop whose iterations overlap; mostly what the handshake needs. */
void order_overlap_wait(struct gen *g, uint32_t semaphore, uint32_t base, uint32_t each,
                        uint32_t total) {
    uint32_t wrong = below(g, 16) < g->care ? 0 : below(g, 4);
    struct tw_affine a = order_threshold(g, wrong == 1 ? base + 1 : base, total);
    if (wrong != 2) {
        PB_OP(g->b, SEM_WAIT, pb_id(semaphore),
              pb_num(tw_affine_plus(a, V_LOOP, wrong == 3 ? each + 1 : each)));
    }
}

/* LOAD writes x0 in each iteration, MATH and STORE read it: only when both have told so, LOAD knows
 * that either has. */
static void two_readers(struct gen *g, uint32_t site, uint32_t count) {
    static const uint32_t readers[] = {TW_ENGINE_MATH, TW_ENGINE_STORE};
    g->streamed = true;
    order_before_access(g, 0, site, site * TW_ENGINE_COUNT + TW_ENGINE_LOAD, true);
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        order_loop_begin(g, site, e, TW_NONE, count);
    }
    g->depth++;
    go(g, site, TW_ENGINE_LOAD);
    order_overlap_wait(g, g->ready, g->credit, 2, 2 * count);
    produce(g, id(g, g->plain[0]));
    PB_OP(g->b, SEM_INC, pb_id(g->valid), pb_id(site), pb_id(1));
    for (uint32_t r = 0; r < 2; r++) {
        go(g, site, readers[r]);
        order_overlap_wait(g, g->valid, 1, 1, count);
        order_consume(g, id(g, g->plain[0]));
        PB_OP(g->b, SEM_INC, pb_id(g->ready), pb_id(site), pb_id(1));
    }
    g->depth--;
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        go(g, site, e);
        pb_end(g->b);
    }
    g->touch[0][site] = (struct touch){.written = true,
                                       .read = true,
                                       .writer = site * TW_ENGINE_COUNT + TW_ENGINE_LOAD,
                                       .reader = site * TW_ENGINE_COUNT + TW_ENGINE_STORE};
    g->out->has_flag = true;
    g->out->has_loop = true;
}

/* One engine writes x0, or x0 and x1 in turn, another one reads it, each in a loop of its own; the
 * writer is ahead as far as the credit lets it. */
void order_overlapping_loop(struct gen *g) {
    uint32_t site = below(g, g->sites), n = 1 + below(g, 2), count = 2 + below(g, 3),
             from = below(g, 2), to = 1 + below(g, 2), total = n * count, late = below(g, 4);
    if (g->care == 0 || g->streamed || from == to || !is_active(g, site, from) ||
        !is_active(g, site, to)) {
        return;
    }
    if (from == TW_ENGINE_LOAD && below(g, 4) == 0 && is_active(g, site, TW_ENGINE_MATH) &&
        is_active(g, site, TW_ENGINE_STORE)) {
        two_readers(g, site, count);
        return;
    }
    g->streamed = true;
    for (uint32_t x = 0; x < n; x++) {
        order_before_access(g, x, site, site * TW_ENGINE_COUNT + from, true);
    }
    order_loop_begin(g, site, from, TW_NONE, count);
    order_loop_begin(g, site, to, TW_NONE, below(g, 24) ? count : count + 1);
    g->depth++;
    for (uint32_t x = 0; x < n; x++) {
        go(g, site, from);
        if (late != 1) {
            order_overlap_wait(g, g->ready, 1 + x, n, total);
        }
        produce(g, id(g, g->plain[x]));
        PB_OP(g->b, SEM_INC, pb_id(g->valid), pb_id(site), pb_id(1));
        if (late == 1) { /* for room in the next iteration */
            order_overlap_wait(g, g->ready, 1 + x + (g->credit ? 1 : 0), n, total);
        }
        go(g, site, to);
        order_overlap_wait(g, g->valid, 1 + x, n, total);
        order_consume(g, id(g, g->plain[x]));
        PB_OP(g->b, SEM_INC, pb_id(g->ready), pb_id(site), pb_id(1));
    }
    g->depth--;
    go(g, site, from);
    pb_end(g->b);
    go(g, site, to);
    pb_end(g->b);
    for (uint32_t x = 0; x < n; x++) {
        g->touch[x][site] = (struct touch){.written = true,
                                           .read = true,
                                           .writer = site * TW_ENGINE_COUNT + from,
                                           .reader = site * TW_ENGINE_COUNT + to};
    }
    g->out->has_flag = true;
    g->out->has_loop = true;
}

/* A loop in a loop: MATH writes a quarter of x0 in each outer iteration, and reads all of it after
 * the loops, or too early. */
void order_nested_loops(struct gen *g) {
    uint32_t site = below(g, g->sites), x0 = g->plain[X0] + site,
             scratch = g->plain[SCRATCH] + site;
    if (!is_active(g, site, TW_ENGINE_MATH)) {
        return;
    }
    bool early = below(g, 10) == 0;
    order_before_access(g, 0, site, site * TW_ENGINE_COUNT + TW_ENGINE_MATH, true);
    order_loop_begin(g, site, TW_ENGINE_MATH, TW_NONE, 4);
    PB_OP(g->b, LOOP, pb_id(V_PART), pb_rows(TW_NONE, 2), pb_id(TW_NONE));
    PB_OP(g->b, ATTN_INIT, pb_at(x0, pb_v(0, V_LOOP, PAGE / 4)), pb_id(1), pb_id(2),
          pb_rows(TW_NONE, 1));
    pb_end(g->b);
    if (!early) {
        pb_end(g->b);
    }
    PB_OP(g->b, COPY, pb_on(x0, 0), pb_id(PAGE), pb_on(scratch, 0), pb_id(PAGE), pb_id(PAGE),
          pb_rows(TW_NONE, 1));
    if (early) {
        pb_end(g->b);
    }
    g->out->has_loop = true;
}
