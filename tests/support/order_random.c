/* SPDX-License-Identifier: Apache-2.0
 *
 * Random programs (order_random.h). They grow, transaction by transaction, in an order in which
 * they could run; then some blocks of ops change places.
 */
#include "tests/support/order_random_internal.h"

#include <assert.h>

/* ---- sections ---- */

static uint32_t active_engines(const struct gen *g, uint32_t site) {
    uint32_t n = 0;
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        n += is_active(g, site, e);
    }
    return n;
}

struct tw_affine order_threshold(const struct gen *g, uint64_t base, uint32_t n) {
    struct tw_affine a = pb_v(base, 0, (uint64_t)n * g->repeat);
    return g->repeat > 1 ? tw_affine_plus(a, V_REPEAT, n) : a;
}

static void wait_for(struct gen *g, uint32_t semaphore, uint32_t n) {
    PB_OP(g->b, SEM_WAIT, pb_id(semaphore), pb_num(order_threshold(g, n, n)));
}

static void release(struct gen *g, uint32_t semaphore) {
    if (g->b->engine == TW_ENGINE_STORE && below(g, 2) && g->b->p.n_chips == 1) {
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
                    op.operand[1].offset = order_threshold(g, op.operand[1].offset.base,
                                                           g->flag_count[k][i / TW_ENGINE_COUNT]);
                    pb_splice(g->b, s->site, s->engine, at, old, &op);
                    op.n_words = s->words[at] >> 16;
                }
            }
        }
    }
}

/* The window has two half rows of T_IN; the State is cut into a row for each site, in two
 * instances. */
static void make_pinned(struct gen *g) {
    struct pb *b = g->b;
    g->window = b->p.n_buffers;
    g->kept = g->window + g->sites;
    for (uint32_t i = 0; i < 2 * g->sites; i++) {
        bool kept = i >= g->sites;
        uint32_t site = i % g->sites;
        struct tw_buffer *f = &b->buffers[pb_buffer(b, site, TW_BUF_RESIDENT, kept ? 2 : 1, PAGE)];
        b->sram_next[site] -= (kept ? 2u : 1u) * PAGE; /* not in class 0 */
        f->mem_class = CLASS_PINNED;
        f->offset = kept ? PAGE : 0;
        f->tensor = kept ? T_KEPT : T_IN;
        f->window_first = kept ? site * PAGE : PAGE / 2 + site * PAGE;
        f->window_rows = kept ? 1 : 2;
        f->window_row_bytes = kept ? PAGE : PAGE / 2;
        f->window_stride = kept ? 0 : 2 * PAGE;
    }
    b->p.sram_bytes[CLASS_PINNED] = b->p.sram_bytes[CLASS_OTHER] = CLASS_BYTES;
}

/* Half of the sets of the section go to another class, to the places that they have. */
static void spread_classes(struct gen *g, const struct tw_section *s) {
    for (uint32_t i = s->first_buffer; i < g->b->p.n_buffers; i++) {
        struct tw_buffer *f = &g->b->buffers[i];
        bool other = (g->b->p.n_buffers + f->sibling_base / g->sites * 7 / 4) & 1;
        if (f->sibling_base != TW_NONE && other &&
            f->offset - g->first_byte + f->pages * f->page_bytes <= CLASS_BYTES) {
            f->mem_class = CLASS_OTHER;
            f->offset -= g->first_byte;
        }
    }
}

static void begin_section(struct gen *g, const struct tw_section *before) {
    struct pb *b = g->b;
    struct tw_section s = {.name = pb_string(b, "s"), .repeat = g->repeat};
    s.first_buffer = before ? before->first_buffer + before->n_buffers : 0;
    s.first_semaphore = before ? before->first_semaphore + before->n_semaphores : 0;
    s.first_stage = before ? before->first_stage + before->n_stages : 0;
    uint32_t count = 1 + below(g, MAX_FIFOS - 1);
    bool shared = before && below(g, 2); /* over the memory of the previous section */
    if (!before) {
        make_pinned(g);
        order_math_pinned(g);
    }
    uint32_t first_set = b->p.n_buffers;
    g->plain[X0] = pb_buffers(b, "x0", TW_BUF_RESIDENT, TW_DT_F32, 1, PAGE);
    g->plain[X1] = pb_buffers(b, "x1", TW_BUF_RESIDENT, TW_DT_F32, 1, PAGE);
    g->plain[SCRATCH] = pb_buffers(b, "s", TW_BUF_SCRATCH, TW_DT_F32, 1, PAGE);
    order_math_buffers(g);
    for (g->n_fifos = 0; g->n_fifos < count; g->n_fifos++) {
        static const enum tw_engine ends[][2] = {{TW_ENGINE_LOAD, TW_ENGINE_MATH},
                                                 {TW_ENGINE_MATH, TW_ENGINE_STORE},
                                                 {TW_ENGINE_LOAD, TW_ENGINE_STORE},
                                                 {TW_ENGINE_MATH, TW_ENGINE_LOAD},
                                                 {TW_ENGINE_STORE, TW_ENGINE_MATH}};
        uint32_t k = below(g, 8) % 5, pages = 1 + below(g, 2);
        uint32_t set = pb_fifos(b, "f", ends[k][0], ends[k][1], TW_DT_F32, pages, PAGE);
        g->fifos[g->n_fifos] = (struct fifo){set, 0, ends[k][0], ends[k][1], pages};
    }
    if (before && below(g, 6) == 0) {
        g->fifos[0] = g->before;
    }
    g->before = g->fifos[0];
    g->first_byte = before ? g->first_byte : b->buffers[first_set].offset;
    uint64_t base = b->buffers[first_set].offset - g->first_byte;
    for (uint32_t i = first_set; shared && i < b->p.n_buffers; i++) {
        b->buffers[i].offset -= base;
    }
    for (uint32_t site = 0; shared && site < b->p.n_sites; site++) {
        b->sram_next[site] -= base; /* the next buffers are placed after these */
    }
    spread_classes(g, &s);
    for (g->n_flags = 0; g->n_flags < MAX_FLAGS; g->n_flags++) {
        g->flags[g->n_flags] = pb_semaphore(b, "flag", TW_SEM_VALID, 0, 0);
    }
    g->n_flags = 0;
    memset(g->flag_count, 0, sizeof g->flag_count);
    memset(g->touch, 0, sizeof g->touch);
    g->streamed = false;
    g->credit = below(g, 8) ? 1 + below(g, 2) : below(g, 4);
    g->valid = pb_semaphore(b, "valid", TW_SEM_VALID, 0, 0);
    g->ready = pb_semaphore(b, "ready", TW_SEM_READY, 0, g->credit);
    g->rendezvous = pb_semaphore(b, "local", TW_SEM_GATHER, 0, 0);
    pb_semaphore(b, "gather", TW_SEM_GATHER, 0, 0);
    pb_semaphore(b, "release", TW_SEM_RELEASE, 0, 0);
    g->first_stage = pb_stages(b, g->section, "work");
    g->by_rows = below(g, 4) ? 0 : (uint32_t)random_next(&g->seed);
    /* not scratch: it holds pages of any kind */
    g->by_rows &= ~(1u << g->plain[SCRATCH] / g->sites % MAX_SETS);
    s.n_buffers = b->p.n_buffers - s.first_buffer;
    s.n_semaphores = b->p.n_semaphores - s.first_semaphore;
    s.n_stages = b->p.n_stages - s.first_stage;
    s.local = g->rendezvous;
    s.gather = g->rendezvous + 1;
    s.release = g->rendezvous + 2;
    b->sections[b->p.n_sections++] = s;
}

static uint32_t all_words(const struct gen *g) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->sites * TW_ENGINE_COUNT; i++) {
        n += g->b->streams[i].n_words;
    }
    return n;
}

/* About n transactions; those that cannot be are tried again, as others. */
static void fill_section(struct gen *g, uint32_t n) {
    for (uint32_t i = 0, tries = 0, before = 0; i < n && tries < 4 * n; tries++) {
        switch (below(g, 52)) {
        case 22:
        case 23:
            order_overlapping_loop(g);
            break;
        case 24:
        case 25:
        case 26:
            order_pinned(g);
            break;
        case 27:
        case 28:
            order_send(g);
            break;
        case 29:
        case 30:
            order_dram_copy(g);
            break;
        case 31:
        case 42:
        case 43:
            order_send_loop(g);
            break;
        case 44:
        case 45:
        case 46:
        case 47:
            order_kernel(g);
            break;
        case 48:
        case 49:
        case 50:
            order_send(g);
            break;
        case 51:
            order_multicast(g);
            break;
        case 32:
            order_copy(g);
            break;
        case 33:
        case 34:
        case 35:
            order_keys_load(g);
            break;
        case 36:
        case 37:
        case 38:
        case 39:
            order_attention(g);
            break;
        case 40:
        case 41:
            order_cache_write(g);
            break;
        case 0:
        case 1:
        case 2:
        case 3:
            order_resident_write(g);
            break;
        case 4:
        case 5:
        case 6:
        case 7:
            order_resident_read(g);
            break;
        case 8:
        case 9:
        case 10:
        case 11:
            order_loop_transaction(g);
            break;
        case 12:
            order_nested_loops(g);
            break;
        case 13:
            /* rare: it is a barrier of all engines, which most exchanges of blocks break */
            if (below(g, 3) == 0) {
                order_flag_loop(g);
            }
            break;
        case 14:
        case 15:
            order_multicast(g);
            break;
        default:
            order_fifo_transaction(g);
            break;
        }
        i += all_words(g) != before;
        before = all_words(g);
    }
    order_drain(g);
}

/* The loop of a repeated section, or one that runs once. Some of the section's ops are before it,
 * without flags. */
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

/* An Output must be written by a STORE op; if no engine of the program can have one, "out" becomes
 * a State. */
static void tables(struct gen *g) {
    struct pb *b = g->b;
    bool stores = false;
    for (uint32_t s = 0; s < g->sites; s++) {
        stores = stores || is_active(g, s, TW_ENGINE_STORE);
    }
    pb_tensor(b, "in", TW_ROLE_PARAM, TW_DT_F32, TW_PACK_ROW, 5, 16, 0, 1);
    pb_tensor(b, "out", TW_ROLE_STATE, TW_DT_F32, TW_PACK_ROW, OUT_ROWS, 16, 0, 2);
    pb_tensor(b, "n", TW_ROLE_INPUT, TW_DT_I32, TW_PACK_ROW, 1, 2, 0, 1);
    pb_tensor(b, "state", TW_ROLE_STATE, TW_DT_F32, TW_PACK_ROW, 1, 16, 0, 1);
    pb_tensor(b, "table", TW_ROLE_PARAM, TW_DT_F32, TW_PACK_ROW, 4, 8, 0, 1);
    pb_tensor(b, "ids", TW_ROLE_INPUT, TW_DT_I32, TW_PACK_ROW, 2, 1, 0, 1);
    pb_tensor(b, "kept", TW_ROLE_STATE, TW_DT_F32, TW_PACK_ROW, 2, 16, 0, 2);
    uint32_t ring =
        pb_tensor(b, "ring", TW_ROLE_STATE, TW_DT_F32, TW_PACK_ROW, 2 * ORDER_PAGES, 16, 0, 1);
    b->tensors[ring].page_rows = 2;
    pb_tensor(b, "pages", TW_ROLE_INPUT, TW_DT_I32, TW_PACK_ROW, 1, RING_SLOTS, 0, 1);
    order_math_tensors(g);
    pb_group(b, 0, 0, b->p.mesh_width, 1);
    b->groups[0].chips = (uint16_t)b->p.n_chips;
    for (uint32_t site = 0; site < g->sites; site++) { /* group 1 + site */
        uint32_t x = site % b->p.mesh_width;
        pb_chip_group(b, site / b->p.mesh_width, x, 0, x + 1, 1);
    }
    struct tw_trip trip = {.input = T_N, .element = below(g, 2), .div = 1, .max = 2};
    if (below(g, 3) == 0) { /* any input, and often no iteration */
        trip.add = (int32_t)below(g, 4) - 2;
        trip.clamp = 1;
    }
    pb_trip_of(b, "n", trip);
    struct tw_trip half = {.input = T_N, .element = below(g, 2), .div = 2, .max = 2, .clamp = 1};
    half.add = below(g, 2) ? 3 : -1; /* after the element: initialisers have no order */
    pb_trip_of(b, "half", half);
    struct tw_trip pos = {
        .input = T_N, .element = below(g, 2), .div = 1, .max = POS_MAX, .clamp = 1};
    pos.add = below(g, 2) ? 60 : -1;
    pb_trip_of(b, "pos", pos);
    g->trip = below(g, 3) ? 0 : TRIP_HALF;
    g->has_some = below(g, 2);
    if (g->has_some) { /* of the element that the first trip does not use */
        pb_trip_of(b, "some",
                   (struct tw_trip){
                       .input = T_N, .element = 1 - trip.element, .add = 1, .div = 1, .max = 3});
    }
}

/* SRAM is no larger than needed: each run clears it. */
static void trim_sram(struct pb *b) {
    b->p.sram_bytes[0] = 0;
    for (uint32_t s = 0; s < b->p.n_sites; s++) {
        uint64_t used = b->sram_next[s] + 256;
        b->p.sram_bytes[0] = used > b->p.sram_bytes[0] ? used : b->p.sram_bytes[0];
    }
}

struct order_small order_small_program(uint64_t seed) {
    static const uint32_t cares[] = {16, 16, 16, 15, 10};
    struct order_small out = {NULL, false, false, false};
    struct gen *g = calloc(1, sizeof *g);
    assert(g);
    g->seed = seed;
    g->out = &out;
    g->sites = 1 + (below(g, 2));
    g->care = cares[below(g, 5)];
    bool chips = g->sites == 2 && below(g, 3) == 0;
    g->b = pb_new_chips("p", chips ? 2 : 1, chips ? 1 : g->sites, 1);
    choose_engines(g);
    tables(g);
    uint32_t n_sections = 1 + (below(g, 5) == 0);
    for (g->section = 0; g->section < n_sections; g->section++) {
        g->repeat = below(g, 4) ? 1 : 2;
        begin_section(g, g->section ? &g->b->sections[g->section - 1] : NULL);
        memset(g->n_blocks, 0, sizeof g->n_blocks);
        bool looped = g->repeat > 1 || below(g, 8) == 0;
        if (looped) {
            open_section_loop(g);
        }
        fill_section(g, 3 + below(g, 11));
        for (uint32_t i = 0; i < g->sites * TW_ENGINE_COUNT; i++) {
            block(g, i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT);
        }
        for (uint32_t k = below(g, 3) ? 0 : 1 + below(g, 4); k > 0; k--) {
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
    trim_sram(g->b);
    out.b = g->b;
    free(g);
    return out;
}
