/* SPDX-License-Identifier: Apache-2.0
 *
 * Page tables on hand-made programs: a batch whose rows belong to sequences at positions of their
 * own, tiles of a state that a table names, and the checks of a table when a step begins: each
 * refused entry with its fault, in strict and in fast execution, before anything is written.
 */
#include "firmware/core/plan/plan.h"
#include "firmware/core/strict/strict.h"
#include "tests/support/machine_run.h"
#include "tests/support/server_client.h"
#include "tests/support/test.h"
#include "tilewright/progblob.h"

enum {
    BATCH = 3,
    SLOTS = 3,
    PAGES = 8,
    HEADS = 2,
    DIM = 4,
    ROW = HEADS * DIM,
    PAGE_FLOATS = 64 * ROW,
    /* a state of tiles: pages of two rows of four floats */
    TILES = 6,
    TILE_FLOATS = 8
};

/* One site. Each of the rows that are there (n of BATCH) writes its key and value at its own
 * position into pages of its own row of the table; then tile `turn` of the state is copied to the
 * output, and row 0 of the input to the tile after it. */
struct batch {
    struct pb *m;
    uint32_t x, n, pos, table, tiles, keys, values, state, out;
    uint32_t fifo, tile, back;
};

static uint32_t i32_input(struct pb *m, uint32_t rows, uint32_t cols) {
    uint32_t t = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, rows, cols, 1);
    m->tensors[t].dtype = TW_DT_I32;
    return t;
}

static void emit_writes(struct batch *b) {
    struct pb *m = b->m;
    mb_op(m, 0, L, RESERVE, F_(b->fifo), I_(1));
    mb_op(m, 0, L, READ, T_(b->x, mb_at(0), mb_at(0)), W_(b->fifo, mb_at(0)), I_(1),
          I_(BATCH * ROW * 4), I_(0), I_(0));
    mb_op(m, 0, L, PUSH, F_(b->fifo), I_(1));
    mb_op(m, 0, S, WAIT, F_(b->fifo), I_(1));
    for (uint32_t r = 0; r < BATCH; r++) {
        struct tw_trip at = {.input = b->pos, .element = r, .div = 1, .max = SLOTS * 64};
        struct tw_trip there = {.input = b->n, .add = -(int32_t)r, .div = 1, .max = 1, .clamp = 1};
        struct tw_operand pos = X_(pb_trip_of(m, NULL, at), SLOTS * 64),
                          rows = X_(pb_trip_of(m, NULL, there), 1);
        mb_op(m, 0, S, KEY_WRITE, R_(b->fifo, mb_at(r * ROW * 4)), I_(ROW * 4),
              mb_paged(U_(b->keys, mb_at(0), mb_at(0)), b->table, mb_at(r * SLOTS)), I_(0),
              I_(HEADS), I_(DIM), pos, rows);
        mb_op(m, 0, S, VALUE_WRITE, R_(b->fifo, mb_at(r * ROW * 4)), I_(ROW * 4),
              mb_paged(U_(b->values, mb_at(0), mb_at(0)), b->table, mb_at(r * SLOTS)), I_(0),
              I_(HEADS), I_(DIM), pos, rows);
    }
    mb_op(m, 0, S, POP, F_(b->fifo), I_(1));
}

/* Tiles 0 and 1 of the table are read in a loop, and tile 2 is written. */
static void emit_tiles(struct batch *b) {
    struct pb *m = b->m;
    mb_loop(m, 0, L, 1, 2);
    mb_op(m, 0, L, RESERVE, F_(b->tile), I_(1));
    mb_op(m, 0, L, READ,
          mb_paged(T_(b->state, mb_at(0), mb_at(0)), b->tiles, tw_affine_plus(mb_at(0), 1, 1)),
          W_(b->tile, mb_at(0)), I_(2), I_(16), I_(16), I_(16));
    mb_op(m, 0, L, PUSH, F_(b->tile), I_(1));
    mb_end(m, 0, TW_ENGINE_LOAD);
    mb_loop(m, 0, M, 1, 2);
    mb_op(m, 0, M, WAIT, F_(b->tile), I_(1));
    mb_op(m, 0, M, RESERVE, F_(b->back), I_(1));
    mb_op(m, 0, M, ADD, R_(b->tile, mb_at(0)), I_(16), R_(b->tile, mb_at(0)), I_(16),
          W_(b->back, mb_at(0)), I_(16), I_(4), X_(TW_NONE, 2));
    mb_op(m, 0, M, PUSH, F_(b->back), I_(1));
    mb_op(m, 0, M, POP, F_(b->tile), I_(1));
    mb_end(m, 0, TW_ENGINE_MATH);
    for (uint32_t i = 0; i < 2; i++) {
        mb_op(m, 0, S, WAIT, F_(b->back), I_(1));
        mb_op(m, 0, S, WRITE, R_(b->back, mb_at(0)), I_(16),
              i ? mb_paged(U_(b->state, mb_at(0), mb_at(0)), b->tiles, mb_at(2))
                : U_(b->out, mb_at(0), mb_at(0)),
              I_(16), I_(16), X_(TW_NONE, 2));
        mb_op(m, 0, S, POP, F_(b->back), I_(1));
    }
}

static struct batch make_batch(void) {
    struct batch b = {.m = mb_create(1, 1)};
    struct pb *m = b.m;
    b.x = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, BATCH, ROW, 1);
    b.n = i32_input(m, 1, 1);
    b.pos = i32_input(m, 1, BATCH);
    b.table = i32_input(m, BATCH, SLOTS);
    b.tiles = i32_input(m, 1, 3);
    b.keys = mb_tensor_bytes(m, TW_ROLE_STATE, TW_INIT_ZERO, PAGES * 64, ROW, TW_PACK_KEYS,
                             PAGES * PAGE_FLOATS * 4, 1);
    b.values = mb_tensor_bytes(m, TW_ROLE_STATE, TW_INIT_ZERO, PAGES * 64, ROW, TW_PACK_VALUES,
                               PAGES * PAGE_FLOATS * 4, 1);
    m->tensors[b.keys].head_dim = m->tensors[b.values].head_dim = DIM;
    b.state = mb_tensor(m, TW_ROLE_STATE, TW_INIT_ZERO, 2 * TILES, 4, 1);
    m->tensors[b.state].page_rows = 2;
    b.out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 2, 4, 1);
    mb_fill(m, b.x);
    mb_fill(m, b.state);
    b.fifo = pb_fifo(m, 0, TW_ENGINE_LOAD, TW_ENGINE_STORE, 1, BATCH * ROW * 4);
    b.tile = pb_fifo(m, 0, TW_ENGINE_LOAD, TW_ENGINE_MATH, 1, TILE_FLOATS * 4);
    b.back = pb_fifo(m, 0, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, TILE_FLOATS * 4);
    emit_writes(&b);
    emit_tiles(&b);
    mb_set_i32(m, b.n, 0, BATCH);
    return b;
}

static const int32_t good_table[BATCH][SLOTS] = {{6, 2, -1}, {0, 7, 3}, {5, -7, 99}};
static const int32_t good_pos[BATCH] = {64, 191, 0}, good_tiles[3] = {5, 1, 3};

static void set_good(struct batch *b) {
    for (uint32_t r = 0; r < BATCH; r++) {
        mb_set_i32(b->m, b->pos, r, good_pos[r]);
        for (uint32_t i = 0; i < SLOTS; i++) {
            mb_set_i32(b->m, b->table, r * SLOTS + i, good_table[r][i]);
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        mb_set_i32(b->m, b->tiles, i, good_tiles[i]);
    }
}

/* ---- runs ---- */

struct machine {
    void *memory;
    struct tw_strict *strict;
    struct tw_plan *plan;
};

static struct machine start(struct batch *b, bool fast) {
    struct machine k = {NULL, NULL, NULL};
    struct tw_fault f = {0};
    int rc =
        fast ? mb_plan(b->m, 1, &k.memory, &k.plan, &f) : mb_strict(b->m, &k.memory, &k.strict, &f);
    if (rc) {
        fail_msg("%s %u", f.what, f.object);
    }
    return k;
}

static int step(struct machine *k, struct tw_fault *f) {
    if (k->strict) {
        return tw_strict_step(k->strict, TW_SCHED_CANONICAL, 0, f);
    }
    int rc = tw_plan_begin(k->plan, f);
    if (rc == 0) {
        tw_plan_run(k->plan, 0, NULL, NULL);
    }
    return rc;
}

static float key_of(const struct batch *b, uint32_t page, uint32_t at, uint32_t h, uint32_t d) {
    const float *keys = mb_data(b->m, b->keys, 0);
    return keys[(size_t)page * PAGE_FLOATS + ((h * 4 + at / 16) * DIM + d) * 16 + at % 16];
}

static float value_of(const struct batch *b, uint32_t page, uint32_t at, uint32_t h, uint32_t d) {
    const float *values = mb_data(b->m, b->values, 0);
    return values[(size_t)page * PAGE_FLOATS + (h * 64 + at) * DIM + d];
}

/* Every float of the caches is a row's, where its table and position say, or 0. */
static void check_caches(const struct batch *b, uint32_t n) {
    const float *x = mb_data(b->m, b->x, 0);
    for (uint32_t page = 0; page < PAGES; page++) {
        for (uint32_t i = 0; i < PAGE_FLOATS; i++) {
            uint32_t at = i / ROW, h = i % ROW / DIM, d = i % DIM;
            float expected = 0;
            for (uint32_t r = 0; r < n; r++) {
                bool here = good_table[r][good_pos[r] / 64] == (int32_t)page &&
                            (uint32_t)good_pos[r] % 64 == at;
                expected = here ? x[r * ROW + h * DIM + d] : expected;
            }
            assert_true(key_of(b, page, at, h, d) == expected);
            assert_true(value_of(b, page, at, h, d) == expected);
        }
    }
}

static void rows_of_a_batch_write_pages_of_their_own(void **state) {
    (void)state;
    struct batch b = make_batch();
    set_good(&b);
    mb_freeze(b.m);
    const float *before =
        (const float *)(const void *)(b.m->initial +
                                      ((uint8_t *)mb_data(b.m, b.state, 0) - (uint8_t *)b.m->dram));
    for (int fast = 0; fast < 2; fast++) {
        for (uint32_t n = 0; n <= BATCH; n++) {
            struct tw_fault f = {0};
            mb_rewind(b.m);
            struct machine k = start(&b, fast);
            mb_set_i32(b.m, b.n, 0, (int32_t)n);
            assert_int_equal(step(&k, &f), 0);
            check_caches(&b, n);
            const float *now = mb_data(b.m, b.state, 0), *out = mb_data(b.m, b.out, 0);
            for (uint32_t i = 0; i < TILES * TILE_FLOATS; i++) {
                uint32_t tile = i / TILE_FLOATS, at = i % TILE_FLOATS;
                float twice = 2 * before[1 * TILE_FLOATS + at];
                assert_true(now[i] == (tile == 3 ? twice : before[i]));
            }
            for (uint32_t i = 0; i < TILE_FLOATS; i++) {
                assert_true(out[i] == 2 * before[5 * TILE_FLOATS + i]);
            }
            free(k.memory);
        }
    }
    pb_free(b.m);
}

/* ---- refused ---- */

/* An element of a table, the number put there, and the fault of the step. */
struct bad {
    bool tiles;
    uint32_t element;
    int32_t page;
    const char *what;
    uint32_t fault_element;
    uint64_t have, need;
};

static void each_bad_entry_is_refused_and_nothing_is_written(void **state) {
    (void)state;
    static const struct bad list[] = {
        {false, 1, -1, "PageOutOfRange", 1, UINT64_MAX, PAGES},
        {false, 1, PAGES, "PageOutOfRange", 1, PAGES, PAGES},
        {false, 5, INT32_MIN, "PageOutOfRange", 5, (uint64_t)INT32_MIN, PAGES},
        {false, 6, INT32_MAX, "PageOutOfRange", 6, INT32_MAX, PAGES},
        {false, 5, 2, "PageShared", 5, 2, 1},
        {false, 6, 3, "PageShared", 6, 3, 5},
        {true, 0, TILES, "PageOutOfRange", 0, TILES, TILES},
        {true, 1, -2, "PageOutOfRange", 1, UINT64_MAX - 1, TILES},
        {true, 2, TILES, "PageOutOfRange", 2, TILES, TILES},
        {true, 0, 3, "PageShared", 0, 3, 2},
        {true, 1, 3, "PageShared", 1, 3, 2},
        {true, 2, 5, "PageShared", 0, 5, 2},
    };
    struct batch b = make_batch();
    uint8_t *before = malloc(MB_DRAM);
    set_good(&b);
    mb_freeze(b.m);
    for (int fast = 0; fast < 2; fast++) {
        struct machine k = start(&b, fast);
        struct tw_fault f = {0};
        for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
            uint32_t table = list[i].tiles ? b.tiles : b.table;
            set_good(&b);
            mb_set_i32(b.m, table, list[i].element, list[i].page);
            memcpy(before, b.m->dram, MB_DRAM);
            assert_int_equal(step(&k, &f), TW_E_FAULT);
            assert_string_equal(f.what, list[i].what);
            assert_int_equal(f.object, table);
            assert_int_equal(f.element, list[i].fault_element);
            assert_int_equal(f.have, list[i].have);
            assert_int_equal(f.need, list[i].need);
            assert_int_equal(f.site, 0);
            assert_memory_equal(before, b.m->dram, MB_DRAM);
        }
        set_good(&b); /* the machine goes on */
        assert_int_equal(step(&k, &f), 0);
        free(k.memory);
        mb_rewind(b.m);
    }
    free(before);
    pb_free(b.m);
}

/* Rows of one sequence write different positions of one page; the same position is refused. */
static void rows_of_one_sequence_share_its_page(void **state) {
    (void)state;
    struct batch b = make_batch();
    set_good(&b);
    mb_set_i32(b.m, b.table, SLOTS + 1, good_table[0][1]);
    mb_set_i32(b.m, b.pos, 1, good_pos[0] + 1);
    mb_freeze(b.m);
    const float *x = mb_data(b.m, b.x, 0);
    for (int fast = 0; fast < 2; fast++) {
        struct machine k = start(&b, fast);
        struct tw_fault f = {0};
        assert_int_equal(step(&k, &f), 0);
        for (uint32_t r = 0; r < 2; r++) {
            assert_true(key_of(&b, 2, r, 1, 2) == x[r * ROW + DIM + 2]);
            assert_true(value_of(&b, 2, r, 1, 2) == x[r * ROW + DIM + 2]);
        }
        mb_set_i32(b.m, b.pos, 1, good_pos[0]);
        assert_int_equal(step(&k, &f), TW_E_FAULT);
        assert_string_equal(f.what, "PageShared");
        assert_int_equal(f.element, SLOTS + 1);
        assert_int_equal(f.have, 2);
        assert_int_equal(f.need, 1);
        mb_set_i32(b.m, b.pos, 1, 63); /* its other page: column 0 */
        mb_set_i32(b.m, b.table, SLOTS, 2);
        assert_int_equal(step(&k, &f), TW_E_FAULT);
        assert_string_equal(f.what, "PageShared");
        free(k.memory);
        mb_rewind(b.m);
    }
    pb_free(b.m);
}

/* Neither what is before the page of a position, nor the pages of a row that is not there. */
static void entries_that_are_not_used_may_be_anything(void **state) {
    (void)state;
    struct batch b = make_batch();
    set_good(&b);
    for (uint32_t i = 0; i < SLOTS; i++) {
        mb_set_i32(b.m, b.table, SLOTS + i, i == 2 ? 3 : -1);
        mb_set_i32(b.m, b.table, 2 * SLOTS + i, INT32_MIN);
    }
    mb_set_i32(b.m, b.n, 0, 2);
    mb_freeze(b.m);
    for (int fast = 0; fast < 2; fast++) {
        struct machine k = start(&b, fast);
        struct tw_fault f = {0};
        assert_int_equal(step(&k, &f), 0);
        check_caches(&b, 2);
        free(k.memory);
        mb_rewind(b.m);
    }
    pb_free(b.m);
}

/* A position beyond the row of a table has no page, though the next row has one. */
static void a_position_beyond_the_table_is_refused(void **state) {
    (void)state;
    struct batch b = make_batch();
    set_good(&b);
    mb_freeze(b.m);
    for (int fast = 0; fast < 2; fast++) {
        struct machine k = start(&b, fast);
        struct tw_fault f = {0};
        mb_set_i32(b.m, b.pos, 0, SLOTS * 64);
        assert_int_equal(step(&k, &f), TW_E_FAULT);
        assert_string_equal(f.what, "PageOutOfRange");
        assert_int_equal(f.element, SLOTS);
        assert_int_equal(f.have, SLOTS);
        assert_int_equal(f.need, SLOTS);
        mb_set_i32(b.m, b.n, 0, 0); /* a row that is not there uses no page */
        assert_int_equal(step(&k, &f), 0);
        free(k.memory);
        mb_rewind(b.m);
    }
    pb_free(b.m);
}

/* The same page in another state is another page. */
static void tables_of_different_states_are_independent(void **state) {
    (void)state;
    struct batch b = make_batch();
    set_good(&b);
    mb_set_i32(b.m, b.tiles, 2, 2); /* as a page that keys and values are written to */
    mb_freeze(b.m);
    for (int fast = 0; fast < 2; fast++) {
        struct machine k = start(&b, fast);
        struct tw_fault f = {0};
        assert_int_equal(step(&k, &f), 0);
        free(k.memory);
    }
    pb_free(b.m);
}

/* A page that is read in place and multicast to some of the sites is a call for each of them, with
 * its page to find in each. */
static void a_page_goes_to_many_sites(void **state) {
    (void)state;
    enum { SITES = 16, TURNS = 64 };
    struct pb *m = mb_create(SITES, 1);
    uint32_t table = i32_input(m, 1, TURNS);
    uint32_t tiles = mb_tensor(m, TW_ROLE_STATE, TW_INIT_ZERO, TURNS, 16, 1);
    uint32_t out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 1, 16, 1);
    uint32_t set = pb_siblings(m, 64), group = pb_group(m, 1, 0, SITES, 1);
    uint32_t fifo = pb_fifo(m, 0, TW_ENGINE_LOAD, TW_ENGINE_STORE, 1, 64);
    uint32_t valid = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    m->tensors[tiles].page_rows = 1;
    mb_fill(m, tiles);
    for (uint32_t i = 0; i < TURNS; i++) {
        mb_set_i32(m, table, i, (int32_t)(TURNS - 1 - i));
    }
    mb_loop(m, 0, L, 1, TURNS);
    mb_op(m, 0, L, RESERVE, F_(fifo), I_(1));
    mb_op(m, 0, L, READ,
          mb_paged(T_(tiles, mb_at(0), mb_at(0)), table, tw_affine_plus(mb_at(0), 1, 1)),
          W_(fifo, mb_at(0)), I_(1), I_(64), I_(64), I_(64));
    mb_op(m, 0, L, PUSH, F_(fifo), I_(1));
    mb_end(m, 0, TW_ENGINE_LOAD);
    mb_loop(m, 0, S, 1, TURNS);
    mb_op(m, 0, S, WAIT, F_(fifo), I_(1));
    mb_op(m, 0, S, MCAST, R_(fifo, mb_at(0)), I_(64), D_(set, mb_at(0)), I_(64), I_(64),
          X_(TW_NONE, 1), G_(group));
    mb_op(m, 0, S, POP, F_(fifo), I_(1));
    mb_end(m, 0, TW_ENGINE_STORE);
    mb_op(m, 0, S, MCAST_SET, S_(valid), G_(0));
    mb_op(m, SITES - 1, S, SEM_WAIT, S_(valid), A_(tw_affine_plus(mb_at(1), 0, 1)));
    mb_op(m, SITES - 1, S, WRITE, R_(set + SITES - 1, mb_at(0)), I_(64),
          U_(out, mb_at(0), mb_at(0)), I_(64), I_(64), X_(TW_NONE, 1));
    mb_freeze(m);
    struct mr_case c = {m, NULL, NULL, 1};
    struct tw_plan_stats stats;
    struct mr_result strict = mr_strict(&c, TW_SCHED_CANONICAL, 0), fast = mr_fast(&c, 1, &stats);
    assert_int_equal(strict.rc, 0);
    if (fast.rc) {
        fail_msg("%s", fast.fault.what);
    }
    assert_int_equal(stats.in_place_reads, TURNS);
    assert_memory_equal(strict.bytes, fast.bytes, strict.size);
    free(strict.bytes);
    free(fast.bytes);
    assert_memory_equal(mb_data(m, out, 0), mb_data(m, tiles, 0), 64);
    pb_free(m);
}

/* Without their latched copies a table could change after the check, and rows between two reads. */
static void the_latched_table_and_rows_are_used(void **state) {
    (void)state;
    struct batch b = make_batch();
    struct tw_fault f = {0};
    float rows[BATCH * ROW];
    set_good(&b);
    mb_freeze(b.m);
    struct machine k = start(&b, true);
    assert_int_equal(tw_plan_begin(k.plan, &f), 0);
    for (uint32_t i = 0; i < BATCH * SLOTS; i++) { /* the host writes them meanwhile */
        mb_set_i32(b.m, b.table, i, INT32_MAX);
    }
    float *x = mb_data(b.m, b.x, 0);
    memcpy(rows, x, sizeof rows);
    memset(x, 0, sizeof rows);
    tw_plan_run(k.plan, 0, NULL, NULL);
    memcpy(x, rows, sizeof rows);
    check_caches(&b, BATCH);
    free(k.memory);
    pb_free(b.m);
}

/* Strict execution checks each access, whatever was checked before. */
static void strict_finds_what_the_latch_let_pass(void **state) {
    (void)state;
    struct batch b = make_batch();
    struct tw_fault f = {0};
    set_good(&b);
    mb_set_i32(b.m, b.table, 1, PAGES);
    mb_freeze(b.m);
    struct machine k = start(&b, false);
    k.strict->pages.n = 0; /* the enforcer is gone */
    assert_int_equal(step(&k, &f), TW_E_FAULT);
    assert_string_equal(f.what, "PageOutOfRange");
    assert_int_equal(f.opcode, TW_OP_KEY_WRITE);
    free(k.memory);
    pb_free(b.m);
}

/* What the driver promises: else a row loses what it wrote, and reads another's. */
static void without_the_check_rows_would_share_a_page(void **state) {
    (void)state;
    struct batch b = make_batch();
    struct tw_fault f = {0};
    set_good(&b);
    mb_set_i32(b.m, b.pos, 1, 128); /* as row 0 the first position of a page */
    mb_set_i32(b.m, b.table, 1 * SLOTS + 2, good_table[0][1]);
    mb_freeze(b.m);
    const float *x = mb_data(b.m, b.x, 0);
    for (int fast = 0; fast < 2; fast++) {
        struct machine k = start(&b, fast);
        assert_int_equal(step(&k, &f), TW_E_FAULT);
        assert_string_equal(f.what, "PageShared");
        (fast ? &k.plan->pages : &k.strict->pages)->n = 0;
        assert_int_equal(step(&k, &f), 0);
        assert_true(key_of(&b, (uint32_t)good_table[0][1], 0, 0, 0) == x[ROW]);
        free(k.memory);
        mb_rewind(b.m);
    }
    pb_free(b.m);
}

/* ---- served ---- */

struct served {
    struct client c;
    struct batch *b;
    uint64_t address[16];
    uint32_t program;
};

static void load(struct served *s, struct batch *b, enum tw_wire_mode mode) {
    struct pb *m = b->m;
    client_init(&s->c, UINT64_C(1) << 22);
    s->b = b;
    for (uint32_t t = 0; t < m->p.n_tensors; t++) { /* each has one instance */
        s->address[t] = client_alloc(&s->c, m->tensors[t].bytes);
        assert_int_equal(client_call(&s->c, TW_WIRE_WRITE, s->address[t], mb_data(m, t, 0),
                                     (uint32_t)m->tensors[t].bytes),
                         0);
    }
    uint32_t bytes = tw_progblob_bytes(&m->p, true);
    uint8_t *blob = malloc(bytes);
    assert_non_null(blob);
    tw_progblob_write(&m->p, true, blob);
    struct tw_wire_load q = {.blob = client_alloc(&s->c, bytes),
                             .blob_bytes = bytes,
                             .bind = client_alloc(&s->c, sizeof s->address),
                             .n_bind = m->p.n_tensors,
                             .mode = mode};
    client_call(&s->c, TW_WIRE_WRITE, q.blob, blob, bytes);
    client_call(&s->c, TW_WIRE_WRITE, q.bind, s->address, m->p.n_tensors * 8);
    free(blob);
    assert_int_equal(client_call(&s->c, TW_WIRE_LOAD, 0, &q, sizeof q), 0);
    struct tw_wire_loaded loaded;
    memcpy(&loaded, s->c.answer.payload, sizeof loaded);
    s->program = loaded.program;
}

/* Runs a step with the program's Inputs as they are in the batch's own memory. */
static int run_served(struct served *s) {
    uint8_t request[2048] = {0};
    struct tw_wire_run run = {.program = s->program, .n_steps = 1};
    size_t at = sizeof run;
    for (uint32_t t = 0; t < s->b->m->p.n_tensors; t++) {
        const struct tw_tensor *x = &s->b->m->tensors[t];
        struct tw_wire_input in = {.address = s->address[t], .bytes = (uint32_t)x->bytes};
        if (x->role == TW_ROLE_INPUT) {
            memcpy(request + at, &in, sizeof in);
            at += sizeof in;
            run.n_inputs++;
        }
    }
    for (uint32_t t = 0; t < s->b->m->p.n_tensors; t++) {
        const struct tw_tensor *x = &s->b->m->tensors[t];
        if (x->role == TW_ROLE_INPUT) {
            memcpy(request + at, mb_data(s->b->m, t, 0), (size_t)x->bytes);
            at += (size_t)x->bytes;
        }
    }
    assert_true(at <= sizeof request);
    memcpy(request, &run, sizeof run);
    return client_call(&s->c, TW_WIRE_RUN, 0, request, (uint32_t)at);
}

/* Compares State and Output with the batch's own memory. */
static void must_hold(struct served *s) {
    for (uint32_t t = 0; t < s->b->m->p.n_tensors; t++) {
        const struct tw_tensor *x = &s->b->m->tensors[t];
        if (x->role == TW_ROLE_STATE || x->role == TW_ROLE_OUTPUT) {
            struct tw_wire_range r = {.bytes = x->bytes};
            assert_int_equal(client_call(&s->c, TW_WIRE_READ, s->address[t], &r, sizeof r), 0);
            assert_memory_equal(s->c.answer.payload, mb_data(s->b->m, t, 0), x->bytes);
        }
    }
}

static void a_served_device_refuses_the_step_and_goes_on(void **state) {
    (void)state;
    for (int fast = 0; fast < 2; fast++) {
        static struct served s;
        struct batch b = make_batch();
        struct tw_fault f = {0};
        set_good(&b);
        mb_freeze(b.m);
        load(&s, &b, fast ? TW_WIRE_FAST : TW_WIRE_STRICT);
        mb_set_i32(b.m, b.table, 1, PAGES);
        assert_int_equal(run_served(&s), TW_E_FAULT);
        const struct tw_wire_failure *why = client_failure(&s.c);
        assert_string_equal(why->what, "PageOutOfRange");
        assert_int_equal(why->object, b.table);
        assert_int_equal(why->element, 1);
        assert_int_equal(why->have, PAGES);
        assert_int_equal(why->need, PAGES);
        must_hold(&s);
        set_good(&b);
        mb_set_i32(b.m, b.tiles, 0, 3);
        assert_int_equal(run_served(&s), TW_E_FAULT);
        assert_string_equal(client_failure(&s.c)->what, "PageShared");
        must_hold(&s);
        set_good(&b);
        assert_int_equal(run_served(&s), 0);
        struct machine k = start(&b, false);
        assert_int_equal(step(&k, &f), 0);
        must_hold(&s);
        free(k.memory);
        client_finish(&s.c);
        pb_free(b.m);
    }
}

/* What a host could send to a device that trusts it. */
static void a_program_with_a_bad_table_is_refused(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct batch b = make_batch();
        struct tw_tensor *table = &b.m->tensors[b.table];
        struct tw_strict *s = NULL;
        struct tw_plan *plan = NULL;
        struct tw_fault f = {0};
        void *memory;
        table->role = i == 0 ? TW_ROLE_STATE : table->role;
        table->dtype = i == 1 ? TW_DT_F32 : table->dtype;
        table->bytes -= i == 2 ? 4 : 0;
        b.m->tensors[b.state].page_rows = i == 3 ? 0 : 2;
        b.m->tensors[b.keys].bytes -= i == 4 ? 4 : 0;
        mb_freeze(b.m);
        assert_int_equal(mb_strict(b.m, &memory, &s, &f), TW_E_FAULT);
        assert_string_equal(f.what, i == 4 ? "BadTable" : "BadOp");
        assert_int_equal(mb_plan(b.m, 1, &memory, &plan, &f), TW_E_FAULT);
        pb_free(b.m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_batch_write_pages_of_their_own),
        cmocka_unit_test(each_bad_entry_is_refused_and_nothing_is_written),
        cmocka_unit_test(rows_of_one_sequence_share_its_page),
        cmocka_unit_test(entries_that_are_not_used_may_be_anything),
        cmocka_unit_test(a_position_beyond_the_table_is_refused),
        cmocka_unit_test(tables_of_different_states_are_independent),
        cmocka_unit_test(a_page_goes_to_many_sites),
        cmocka_unit_test(the_latched_table_and_rows_are_used),
        cmocka_unit_test(strict_finds_what_the_latch_let_pass),
        cmocka_unit_test(without_the_check_rows_would_share_a_page),
        cmocka_unit_test(a_served_device_refuses_the_step_and_goes_on),
        cmocka_unit_test(a_program_with_a_bad_table_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
