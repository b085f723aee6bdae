/* SPDX-License-Identifier: Apache-2.0
 * Random programs (order_random.h). They grow in an order in which they could run: each transaction adds a block of ops to one engine, or
 * the two halves of a handshake to two. */
#include "tests/support/order_random.h"

#include "tests/support/random_model.h"

enum { T_IN, T_OUT, T_N, T_STATE, T_TABLE, T_IDS };
enum { X0, X1, SCRATCH, N_PLAIN };
enum { MAX_FIFOS = 4, MAX_BLOCKS = 64, PAGE = 64, OUT_ROWS = 6, MAX_FLAGS = 4, MAX_SETS = 32 };
enum { V_LOOP = 1, V_PART, V_REPEAT }; /* loop variables */

struct fifo {
    uint32_t set, pending;
    enum tw_engine from, to;
    uint32_t pages;
};

/* Who has touched a resident buffer since its last write was known to all. */
struct touch {
    bool written, read;
    uint32_t writer, reader; /* streams */
};

struct gen {
    struct pb *b;
    uint64_t seed;
    uint32_t sites, section, n_fifos, n_flags, next_loop, depth;
    struct fifo before; /* one of the section before */
    bool active[PB_SITES * TW_ENGINE_COUNT];
    uint32_t care;    /* of 16: how often a handshake is there where it is needed */
    uint32_t repeat;  /* iterations of the section */
    uint32_t by_rows; /* sets of buffers, as bits, whose content has as many rows as the trip says */
    uint32_t plain[N_PLAIN];
    struct fifo fifos[MAX_FIFOS];
    uint32_t flags[MAX_FLAGS], flag_count[MAX_FLAGS][PB_SITES];
    struct touch touch[2][PB_SITES];
    uint32_t first_stage, rendezvous;
    uint32_t blocks[PB_SITES * TW_ENGINE_COUNT][MAX_BLOCKS], n_blocks[PB_SITES * TW_ENGINE_COUNT];
    struct order_small *out;
};

static uint32_t below(struct gen *g, uint32_t n) {
    return random_below(&g->seed, n);
}

static void go(struct gen *g, uint32_t site, uint32_t engine) {
    g->b->site = site;
    g->b->engine = engine;
    g->b->stage = g->first_stage + site * TW_ENGINE_COUNT + engine;
}

/* A place where blocks of this stream may be exchanged. */
static void block(struct gen *g, uint32_t site, uint32_t engine) {
    uint32_t s = site * TW_ENGINE_COUNT + engine;
    go(g, site, engine);
    if (g->depth == 0 && g->n_blocks[s] < MAX_BLOCKS) {
        g->blocks[s][g->n_blocks[s]++] = pb_stream(g->b, site, engine)->n_words;
    }
}

static bool is_active(const struct gen *g, uint32_t site, uint32_t engine) {
    return g->active[site * TW_ENGINE_COUNT + engine];
}

static uint32_t id(const struct gen *g, uint32_t set) {
    return set + g->b->site;
}

/* ---- data ops ---- */

static struct tw_affine zero(void) {
    return tw_affine_const(0);
}

/* Opens a loop over the parts of 16 bytes of a buffer, mostly all of them; their offset. */
static struct tw_affine parts_begin(struct gen *g) {
    bool dynamic = below(g, 12) == 0;
    uint32_t n = dynamic || below(g, 12) == 0 ? 2 : 4;
    PB_OP(g->b, LOOP, pb_id(V_PART), pb_rows(dynamic ? 0 : TW_NONE, n), pb_id(dynamic ? g->next_loop++ : TW_NONE));
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
        PB_OP(g->b, READ, pb_of(T_IN, zero(), tw_affine_plus(from, V_PART, PAGE / 4)), pb_at(buffer, at), pb_id(1),
              pb_id(PAGE / 4), pb_id(PAGE), pb_id(PAGE));
        pb_end(g->b);
        return;
    }
    PB_OP(g->b, READ, pb_of(T_IN, zero(), from), pb_on(buffer, 0), pb_id(1), pb_id(PAGE), pb_id(PAGE), pb_id(PAGE));
}

/* Does the buffer hold two rows of 32 bytes, of which the trip counts? Now and then an op is wrong about it. */
static bool has_rows(struct gen *g, uint32_t buffer) {
    bool rows = g->by_rows >> buffer / g->sites % MAX_SETS & 1;
    rows = below(g, 16) ? rows : !rows && g->by_rows;
    g->out->has_trip = g->out->has_trip || rows;
    return rows;
}

static void compute(struct gen *g, uint32_t from, uint32_t to) {
    if (has_rows(g, from)) {
        PB_OP(g->b, COPY, pb_on(from, 0), pb_id(PAGE / 2), pb_on(to, 0), pb_id(PAGE / 2), pb_id(PAGE / 2),
              pb_rows(0, 2));
    } else if (in_parts(g)) {
        struct tw_affine at = parts_begin(g);
        PB_OP(g->b, COPY, pb_at(from, at), pb_id(PAGE), pb_at(to, at), pb_id(PAGE), pb_id(PAGE / 4),
              pb_rows(TW_NONE, 1));
        pb_end(g->b);
    } else if (from == to || below(g, 2)) {
        PB_OP(g->b, ADD, pb_on(from, 0), pb_id(PAGE), pb_on(from, 0), pb_id(PAGE), pb_on(to, 0), pb_id(PAGE), pb_id(16),
              pb_rows(TW_NONE, 1));
    } else {
        PB_OP(g->b, COPY, pb_on(from, 0), pb_id(PAGE), pb_on(to, 0), pb_id(PAGE), pb_id(PAGE), pb_rows(TW_NONE, 1));
    }
}

static void write_out(struct gen *g, uint32_t buffer) {
    bool state = below(g, 6) == 0, rows = has_rows(g, buffer);
    uint32_t row = below(g, 2) ? g->b->site : below(g, OUT_ROWS), tensor = state ? T_STATE : T_OUT;
    struct tw_affine instance = state ? zero() : tw_affine_const(below(g, 2)),
                     at = tw_affine_const(state ? 0 : row * PAGE);
    if (!state && g->repeat > 1 && below(g, 2)) {
        instance = pb_v(0, V_REPEAT, 1);
    }
    if (!rows && in_parts(g)) {
        struct tw_affine part = parts_begin(g);
        PB_OP(g->b, WRITE, pb_at(buffer, part), pb_id(PAGE),
              pb_of(tensor, instance, tw_affine_plus(at, V_PART, PAGE / 4)), pb_id(PAGE), pb_id(PAGE / 4),
              pb_rows(TW_NONE, 1));
        pb_end(g->b);
        return;
    }
    uint32_t bytes = rows ? PAGE / 2 : PAGE;
    PB_OP(g->b, WRITE, pb_on(buffer, 0), pb_id(bytes), pb_of(tensor, instance, at), pb_id(bytes), pb_id(bytes),
          pb_rows(rows ? 0 : TW_NONE, rows ? 2 : 1));
}

/* Content for a page or buffer by an engine that can make it. */
static void produce(struct gen *g, uint32_t to) {
    if (g->b->engine == TW_ENGINE_LOAD) {
        if (has_rows(g, to)) {
            PB_OP(g->b, GATHER, pb_of(T_TABLE, zero(), zero()), pb_of(T_IDS, zero(), zero()), pb_on(to, 0),
                  pb_id(PAGE / 2), pb_id(8), pb_rows(0, 2));
        } else if (below(g, 8) == 0) {
            PB_OP(g->b, READ, pb_of(T_STATE, zero(), zero()), pb_on(to, 0), pb_id(1), pb_id(PAGE), pb_id(PAGE),
                  pb_id(PAGE));
        } else {
            read_into(g, to);
        }
    } else if (g->b->engine == TW_ENGINE_MATH) {
        bool rows = has_rows(g, to);
        PB_OP(g->b, ATTN_INIT, pb_on(to, 0), pb_id(1), pb_id(rows ? 6 : 14), pb_rows(rows ? 0 : TW_NONE, rows ? 2 : 1));
    }
}

static void consume(struct gen *g, uint32_t from) {
    if (g->b->engine == TW_ENGINE_STORE) {
        write_out(g, from);
    } else if (g->b->engine == TW_ENGINE_MATH) {
        compute(g, from, id(g, g->plain[SCRATCH]));
    }
}

/* ---- FIFOs ---- */

static void push_page(struct gen *g, struct fifo *f, uint32_t site) {
    block(g, site, f->from);
    PB_OP(g->b, RESERVE, pb_id(id(g, f->set)), pb_id(1));
    produce(g, id(g, f->set));
    PB_OP(g->b, PUSH, pb_id(id(g, f->set)), pb_id(1));
}

static void pop_page(struct gen *g, struct fifo *f, uint32_t site) {
    block(g, site, f->to);
    PB_OP(g->b, WAIT, pb_id(id(g, f->set)), pb_id(1));
    if (below(g, 8)) {
        consume(g, id(g, f->set));
    }
    PB_OP(g->b, POP, pb_id(id(g, f->set)), pb_id(1));
}

static bool is_usable(const struct gen *g, const struct fifo *f, uint32_t site) {
    return is_active(g, site, f->from) && is_active(g, site, f->to);
}

/* One half of a passage, or both. FIFOs of different sites are counted together in `pending`, site by site in bytes. */
static void fifo_transaction(struct gen *g) {
    struct fifo *f = &g->fifos[below(g, g->n_fifos)];
    uint32_t site = below(g, g->sites);
    if (!is_usable(g, f, site)) {
        return;
    }
    uint32_t level = f->pending >> site * 8 & 0xFF;
    if (level < f->pages && (level == 0 || below(g, 2))) {
        push_page(g, f, site);
        f->pending += 1u << site * 8;
    } else if (level > 0) {
        pop_page(g, f, site);
        f->pending -= 1u << site * 8;
    }
}

static void drain(struct gen *g) {
    for (uint32_t i = 0; i < g->n_fifos; i++) {
        for (uint32_t site = 0; site < g->sites; site++) {
            for (; g->fifos[i].pending >> site * 8 & 0xFF; g->fifos[i].pending -= 1u << site * 8) {
                pop_page(g, &g->fifos[i], site);
            }
        }
    }
}

/* ---- loops ---- */

static void loop_begin(struct gen *g, uint32_t site, uint32_t engine, uint32_t loop, uint32_t count) {
    block(g, site, engine);
    PB_OP(g->b, LOOP, pb_id(V_LOOP), pb_rows(loop == TW_NONE ? TW_NONE : 0, count), pb_id(loop));
}

/* LOAD writes a resident buffer in the loop, which is not for anybody in it. */
static void write_aside(struct gen *g, uint32_t site, const bool in[TW_ENGINE_COUNT]) {
    if (in[TW_ENGINE_LOAD] && below(g, 2)) {
        go(g, site, TW_ENGINE_LOAD);
        read_into(g, id(g, g->plain[X1]));
        g->touch[1][site] = (struct touch){.written = true, .writer = site * TW_ENGINE_COUNT + TW_ENGINE_LOAD};
    }
}

/* Pages pass through a FIFO, or two, in a loop of their engines; or one that is there before stays the whole time. */
static void loop_transaction(struct gen *g) {
    struct fifo *f = &g->fifos[below(g, g->n_fifos)], *second = &g->fifos[below(g, g->n_fifos)];
    uint32_t site = below(g, g->sites), count = 1 + below(g, 3);
    bool dynamic = below(g, 3) == 0, in[TW_ENGINE_COUNT] = {false}, two = second != f && below(g, 2);
    two = two && is_usable(g, second, site) && !(second->pending >> site * 8 & 0xFF);
    uint32_t in_flight = f->pending >> site * 8 & 0xFF;
    if (!is_usable(g, f, site) || in_flight >= f->pages) {
        return;
    }
    in[f->from] = in[f->to] = true;
    in[second->from] = in[second->from] || two;
    in[second->to] = in[second->to] || two;
    uint32_t loop = dynamic ? g->next_loop++ : TW_NONE;
    count = dynamic ? 2 : count;
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        if (in[e]) {
            loop_begin(g, site, e, loop, count);
        }
    }
    g->depth++;
    bool early = below(g, 2);
    if (early) {
        write_aside(g, site, in);
    }
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
    if (!early) {
        write_aside(g, site, in);
    }
    g->depth--;
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        if (in[e]) {
            go(g, site, e);
            pb_end(g->b);
        }
    }
    g->out->has_loop = true;
    g->out->has_trip = g->out->has_trip || dynamic;
}

/* ---- flags and resident buffers ---- */

static uint32_t new_flag(struct gen *g) {
    uint32_t k = g->n_flags < MAX_FLAGS ? g->n_flags++ : below(g, MAX_FLAGS);
    g->out->has_flag = true;
    return k;
}

/* `to` waits until `from` is here. */
static void sync(struct gen *g, uint32_t from, uint32_t to) {
    if (from == to || below(g, 16) >= g->care) {
        return;
    }
    uint32_t k = new_flag(g), site = to / TW_ENGINE_COUNT;
    block(g, from / TW_ENGINE_COUNT, from % TW_ENGINE_COUNT);
    PB_OP(g->b, SEM_INC, pb_id(g->flags[k]), pb_id(site), pb_id(1));
    g->flag_count[k][site]++;
    block(g, site, to % TW_ENGINE_COUNT);
    PB_OP(g->b, SEM_WAIT, pb_id(g->flags[k]), pb_num(tw_affine_const(g->flag_count[k][site])));
}

static void before_access(struct gen *g, uint32_t x, uint32_t site, uint32_t stream, bool write) {
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

static void resident_write(struct gen *g) {
    uint32_t site = below(g, g->sites), engine = below(g, 2), x = below(g, 2);
    if (!is_active(g, site, engine)) {
        return;
    }
    before_access(g, x, site, site * TW_ENGINE_COUNT + engine, true);
    block(g, site, engine);
    produce(g, id(g, g->plain[x]));
}

static void resident_read(struct gen *g) {
    uint32_t site = below(g, g->sites), engine = 1 + below(g, 2), x = below(g, 2);
    if (!is_active(g, site, engine) || (!g->touch[x][site].written && below(g, 16))) {
        return;
    }
    before_access(g, x, site, site * TW_ENGINE_COUNT + engine, false);
    block(g, site, engine);
    consume(g, id(g, g->plain[x]));
}

/* A site sends its x0 to the x1 of all; MATH of each waits for the flag. */
static void multicast(struct gen *g) {
    if (g->care == 0) { /* before a section's loop there are no flags */
        return;
    }
    uint32_t site = below(g, g->sites), k = new_flag(g), store = site * TW_ENGINE_COUNT + TW_ENGINE_STORE;
    if (!is_active(g, site, TW_ENGINE_STORE) || !g->touch[0][site].written) {
        return;
    }
    before_access(g, 0, site, store, false);
    for (uint32_t s = 0; s < g->sites; s++) {
        before_access(g, 1, s, store, true);
    }
    block(g, site, TW_ENGINE_STORE);
    PB_OP(g->b, MCAST, pb_on(id(g, g->plain[X0]), 0), pb_id(PAGE), pb_on(id(g, g->plain[X1]), 0), pb_id(PAGE),
          pb_id(PAGE), pb_rows(TW_NONE, 1), pb_id(0));
    PB_OP(g->b, MCAST_SET, pb_id(g->flags[k]), pb_id(0));
    for (uint32_t s = 0; s < g->sites; s++) {
        g->flag_count[k][s]++;
        if (is_active(g, s, TW_ENGINE_MATH) && below(g, 16) < g->care) {
            block(g, s, TW_ENGINE_MATH);
            PB_OP(g->b, SEM_WAIT, pb_id(g->flags[k]), pb_num(tw_affine_const(g->flag_count[k][s])));
        }
    }
}

/* A loop that runs once, with all engines and a flag between two of them. */
static void flag_loop(struct gen *g) {
    uint32_t n = g->sites * TW_ENGINE_COUNT, from = below(g, n), to = below(g, n);
    if (g->care == 0 || from == to || !g->active[from] || !g->active[to]) {
        return;
    }
    uint32_t care = g->care;
    for (uint32_t i = 0; i < n; i++) {
        if (g->active[i]) {
            loop_begin(g, i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT, TW_NONE, 1);
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

/* A loop in a loop: MATH writes a quarter of x0 in each outer iteration, and reads all of it behind the loops, or too early. */
static void nested_loops(struct gen *g) {
    uint32_t site = below(g, g->sites), x0 = g->plain[X0] + site, scratch = g->plain[SCRATCH] + site;
    if (!is_active(g, site, TW_ENGINE_MATH)) {
        return;
    }
    bool early = below(g, 3) == 0;
    before_access(g, 0, site, site * TW_ENGINE_COUNT + TW_ENGINE_MATH, true);
    loop_begin(g, site, TW_ENGINE_MATH, TW_NONE, 4);
    PB_OP(g->b, LOOP, pb_id(V_PART), pb_rows(TW_NONE, 2), pb_id(TW_NONE));
    PB_OP(g->b, ATTN_INIT, pb_at(x0, pb_v(0, V_LOOP, PAGE / 4)), pb_id(1), pb_id(2), pb_rows(TW_NONE, 1));
    pb_end(g->b);
    if (!early) {
        pb_end(g->b);
    }
    PB_OP(g->b, COPY, pb_on(x0, 0), pb_id(PAGE), pb_on(scratch, 0), pb_id(PAGE), pb_id(PAGE), pb_rows(TW_NONE, 1));
    if (early) {
        pb_end(g->b);
    }
    g->out->has_loop = true;
}

/* ---- sections ---- */

static uint32_t active_engines(const struct gen *g, uint32_t site) {
    uint32_t n = 0;
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        n += is_active(g, site, e);
    }
    return n;
}

/* `base` in the first iteration and step, n more in each. */
static struct tw_affine threshold(const struct gen *g, uint64_t base, uint32_t n) {
    struct tw_affine a = pb_v(base, 0, (uint64_t)n * g->repeat);
    return g->repeat > 1 ? tw_affine_plus(a, V_REPEAT, n) : a;
}

static void wait_for(struct gen *g, uint32_t semaphore, uint32_t n) {
    PB_OP(g->b, SEM_WAIT, pb_id(semaphore), pb_num(threshold(g, n, n)));
}

static void release(struct gen *g, uint32_t semaphore) {
    if (g->b->engine == TW_ENGINE_STORE && below(g, 2)) {
        PB_OP(g->b, MCAST_SET, pb_id(semaphore), pb_id(0));
        return;
    }
    for (uint32_t s = 0; s < g->sites; s++) {
        PB_OP(g->b, SEM_INC, pb_id(semaphore), pb_id(s), pb_id(1));
    }
}

static void rendezvous(struct gen *g) {
    uint32_t first = g->rendezvous, n_sites = 0;
    for (uint32_t s = 0; s < g->sites; s++) {
        n_sites += active_engines(g, s) > 0;
    }
    for (uint32_t i = 0; i < g->sites * TW_ENGINE_COUNT; i++) {
        uint32_t site = i / TW_ENGINE_COUNT, engine = i % TW_ENGINE_COUNT;
        bool last = true;
        if (!g->active[i]) {
            continue;
        }
        for (uint32_t e = engine + 1; e < TW_ENGINE_COUNT; e++) {
            last = last && !is_active(g, site, e);
        }
        go(g, site, engine);
        PB_OP(g->b, SEM_INC, pb_id(first), pb_id(site), pb_id(1));
        if (last) {
            wait_for(g, first, active_engines(g, site));
            PB_OP(g->b, SEM_INC, pb_id(first + 1), pb_id(0), pb_id(1));
            if (site == 0) {
                wait_for(g, first + 1, n_sites);
                release(g, first + 2);
            }
        }
        wait_for(g, first + 2, 1);
    }
}

/* Thresholds grow by what arrives in a step, which is known at its end. */
static void close_flags(struct gen *g) {
    for (uint32_t i = 0; i < g->sites * TW_ENGINE_COUNT; i++) {
        const struct tw_stream *s = &g->b->streams[i];
        struct tw_op op;
        for (uint32_t at = 0; at < s->n_words; at += op.n_words) {
            bool ok = tw_op_decode(s->words, s->n_words, at, &op);
            assert(ok);
            (void)ok;
            for (uint32_t k = 0; op.code == TW_OP_SEM_WAIT && k < g->n_flags; k++) {
                if (op.operand[0].id == g->flags[k] && op.operand[1].offset.n_terms == 0) {
                    uint32_t old = op.n_words;
                    op.operand[1].offset =
                        threshold(g, op.operand[1].offset.base, g->flag_count[k][i / TW_ENGINE_COUNT]);
                    pb_splice(g->b, s->site, s->engine, at, old, &op);
                    op.n_words = s->words[at] >> 16;
                }
            }
        }
    }
}

static void begin_section(struct gen *g, const struct tw_span *before) {
    struct pb *b = g->b;
    struct tw_span s = {.name = pb_string(b, "s"), .repeat = g->repeat};
    s.first_buffer = before ? before->first_buffer + before->n_buffers : 0;
    s.first_semaphore = before ? before->first_semaphore + before->n_semaphores : 0;
    s.first_stage = before ? before->first_stage + before->n_stages : 0;
    uint32_t count = 1 + below(g, MAX_FIFOS - 1);
    bool shared = before && below(g, 2); /* over the memory of the section before */
    g->plain[X0] = pb_buffers(b, "x0", TW_BUF_RESIDENT, TW_DT_F32, 1, PAGE);
    g->plain[X1] = pb_buffers(b, "x1", TW_BUF_RESIDENT, TW_DT_F32, 1, PAGE);
    g->plain[SCRATCH] = pb_buffers(b, "s", TW_BUF_SCRATCH, TW_DT_F32, 1, PAGE);
    for (g->n_fifos = 0; g->n_fifos < count; g->n_fifos++) {
        static const enum tw_engine ends[][2] = {{TW_ENGINE_LOAD, TW_ENGINE_MATH},
                                                 {TW_ENGINE_MATH, TW_ENGINE_STORE},
                                                 {TW_ENGINE_LOAD, TW_ENGINE_STORE},
                                                 {TW_ENGINE_MATH, TW_ENGINE_LOAD}};
        uint32_t k = below(g, 7) % 4, pages = 1 + below(g, 2);
        uint32_t set = pb_fifos(b, "f", ends[k][0], ends[k][1], TW_DT_F32, pages, PAGE);
        g->fifos[g->n_fifos] = (struct fifo){set, 0, ends[k][0], ends[k][1], pages};
    }
    if (before && below(g, 6) == 0) {
        g->fifos[0] = g->before;
    }
    g->before = g->fifos[0];
    uint64_t base = b->buffers[s.first_buffer].offset;
    for (uint32_t i = s.first_buffer; shared && i < b->p.n_buffers; i++) {
        b->buffers[i].offset -= base;
    }
    for (g->n_flags = 0; g->n_flags < MAX_FLAGS; g->n_flags++) {
        g->flags[g->n_flags] = pb_semaphore(b, "flag", TW_SEM_VALID, 0);
    }
    g->n_flags = 0;
    memset(g->flag_count, 0, sizeof g->flag_count);
    memset(g->touch, 0, sizeof g->touch);
    g->rendezvous = pb_semaphore(b, "local", TW_SEM_GATHER, 0);
    pb_semaphore(b, "gather", TW_SEM_GATHER, 0);
    pb_semaphore(b, "release", TW_SEM_RELEASE, 0);
    g->first_stage = pb_stages(b, g->section, "work");
    g->by_rows = below(g, 4) ? 0 : (uint32_t)random_next(&g->seed);
    g->by_rows &= ~(1u << g->plain[SCRATCH] / g->sites % MAX_SETS); /* scratch takes what comes */
    s.n_buffers = b->p.n_buffers - s.first_buffer;
    s.n_semaphores = b->p.n_semaphores - s.first_semaphore;
    s.n_stages = b->p.n_stages - s.first_stage;
    s.local = g->rendezvous;
    s.gather = g->rendezvous + 1;
    s.release = g->rendezvous + 2;
    b->spans[b->p.n_spans++] = s;
}

static void fill_section(struct gen *g, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        switch (below(g, 22)) {
        case 0:
        case 1:
        case 2:
        case 3:
            resident_write(g);
            break;
        case 4:
        case 5:
        case 6:
        case 7:
            resident_read(g);
            break;
        case 8:
        case 9:
        case 10:
        case 11:
            loop_transaction(g);
            break;
        case 12:
            nested_loops(g);
            break;
        case 13:
            flag_loop(g);
            break;
        case 14:
        case 15:
            multicast(g);
            break;
        default:
            fifo_transaction(g);
            break;
        }
    }
    drain(g);
}

/* The loop of a repeated section, or one that runs once. Some of the section's ops are before it, without flags. */
static void open_section_loop(struct gen *g) {
    uint32_t care = g->care, repeat = g->repeat;
    g->care = 0;
    g->repeat = 1;
    if (below(g, 3) == 0) {
        fill_section(g, 3);
    }
    g->care = care;
    g->repeat = repeat;
    g->n_flags = 0;
    memset(g->flag_count, 0, sizeof g->flag_count);
    memset(g->n_blocks, 0, sizeof g->n_blocks);
    for (uint32_t i = 0; i < g->sites * TW_ENGINE_COUNT; i++) {
        if (g->active[i]) {
            go(g, i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT);
            PB_OP(g->b, LOOP, pb_id(V_REPEAT), pb_rows(TW_NONE, g->repeat), pb_id(TW_NONE));
        }
    }
    g->out->has_loop = true;
}

/* Two neighbouring blocks of one engine change places. */
static void exchange_blocks(struct gen *g) {
    uint32_t s = below(g, g->sites * TW_ENGINE_COUNT);
    if (g->n_blocks[s] < 3) {
        return;
    }
    uint32_t k = below(g, g->n_blocks[s] - 2), *words = g->b->words[s], *at = &g->blocks[s][k];
    uint32_t copy[PB_WORDS], first = at[1] - at[0], second = at[2] - at[1];
    memcpy(copy, words + at[0], (size_t)first * 4);
    memmove(words + at[0], words + at[1], (size_t)second * 4);
    memcpy(words + at[0] + second, copy, (size_t)first * 4);
    at[1] = at[0] + second;
}

static void choose_engines(struct gen *g) {
    uint32_t n = 0;
    do {
        n = 0;
        for (uint32_t i = 0; i < g->sites * TW_ENGINE_COUNT; i++) {
            g->active[i] = below(g, 8) < (g->sites == 1 ? 7u : 5u);
            n += g->active[i];
        }
    } while (n < 2 || n > 5 || !(g->active[0] || g->active[1] || g->active[2]));
}

/* The Output must be written by an op: STORE or, where there is none, nobody; then it is a State. */
static void tables(struct gen *g) {
    struct pb *b = g->b;
    bool stores = false;
    for (uint32_t s = 0; s < g->sites; s++) {
        stores = stores || is_active(g, s, TW_ENGINE_STORE);
    }
    pb_tensor(b, "in", TW_ROLE_PARAM, TW_DT_F32, TW_PACK_ROW, 5, 16, 0, 1);
    pb_tensor(b, "out", TW_ROLE_STATE, TW_DT_F32, TW_PACK_ROW, OUT_ROWS, 16, 0, 2);
    pb_tensor(b, "n", TW_ROLE_INPUT, TW_DT_I32, TW_PACK_ROW, 1, 1, 0, 1);
    pb_tensor(b, "state", TW_ROLE_STATE, TW_DT_F32, TW_PACK_ROW, 1, 16, 0, 1);
    pb_tensor(b, "table", TW_ROLE_PARAM, TW_DT_F32, TW_PACK_ROW, 4, 8, 0, 1);
    pb_tensor(b, "ids", TW_ROLE_INPUT, TW_DT_I32, TW_PACK_ROW, 2, 1, 0, 1);
    pb_group(b, 0, 0, g->sites, 1);
    pb_trip(b, "n", T_N, 0, 1, 2);
}

struct order_small order_small_program(uint64_t seed) {
    static const uint32_t cares[] = {16, 16, 15, 13, 8};
    struct order_small out = {NULL, false, false, false};
    struct gen *g = calloc(1, sizeof *g);
    assert(g);
    g->seed = seed;
    g->out = &out;
    g->sites = 1 + (below(g, 5) < 2);
    g->care = cares[below(g, 5)];
    g->b = pb_new("p", g->sites, 1);
    choose_engines(g);
    tables(g);
    uint32_t n_sections = 1 + (below(g, 5) == 0);
    for (g->section = 0; g->section < n_sections; g->section++) {
        g->repeat = below(g, 4) ? 1 : 2;
        begin_section(g, g->section ? &g->b->spans[g->section - 1] : NULL);
        memset(g->n_blocks, 0, sizeof g->n_blocks);
        bool looped = g->repeat > 1 || below(g, 8) == 0;
        if (looped) {
            open_section_loop(g);
        }
        fill_section(g, 3 + below(g, 14));
        for (uint32_t i = 0; i < g->sites * TW_ENGINE_COUNT; i++) {
            block(g, i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT);
        }
        for (uint32_t k = below(g, 2) ? 0 : 1 + below(g, 4); k > 0; k--) {
            exchange_blocks(g);
        }
        close_flags(g);
        rendezvous(g);
        for (uint32_t i = 0; looped && i < g->sites * TW_ENGINE_COUNT; i++) {
            if (g->active[i]) {
                go(g, i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT);
                pb_end(g->b);
            }
        }
    }
    out.b = g->b;
    free(g);
    return out;
}
