/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs whose key and value caches are in pages of a table: proved like any other, and with
 * every table of different pages they give the bits of the contiguous cache, which is the table 0,
 * 1, 2, ... Hostile tables are refused before a byte changes.
 */
#include "firmware/explore/explore.h"
#include "tests/compiler/program_run.h"

enum { CHUNK = 32, STEPS = 5, PAGES = 11, MAX_VOCAB = 64 };

static const struct random_shape shapes[] = {
    {.dim = 32,
     .hidden = 64,
     .n_layers = 2,
     .n_heads = 2,
     .n_kv_heads = 2,
     .head_dim = 16,
     .n_vocab = 48,
     .n_ctx = 160,
     .seed = 3},
    {.dim = 48,
     .hidden = 64,
     .n_layers = 2,
     .n_heads = 6,
     .n_kv_heads = 2,
     .head_dim = 8,
     .n_vocab = 33,
     .n_ctx = 160,
     .seed = 4,
     .dtype = TW_DT_Q8_0},
};

/* A compiled program of `rows` rows, with its caches in PAGES pages or contiguous. */
struct paged {
    struct random_model model;
    struct pipeline pipeline;
    struct pipeline_program program;
    struct run_side side;
    struct program_run run;
    uint32_t slots;
};

static void open_paged(struct paged *w, const struct random_shape *shape, const char *target,
                       uint32_t host_sites, uint32_t rows, uint32_t pages) {
    tw_error err = {0};
    assert_true(random_model_init(&w->model, shape));
    int rc = pipeline_init(&w->pipeline, &w->model.model, target, host_sites, &err);
    w->pipeline.config.kv_pages = pages;
    w->slots = w->pipeline.config.n_positions / TW_KV_BLOCK;
    rc = rc ? rc : pipeline_program(&w->pipeline, rows, 0, &w->program, &err);
    if (rc) {
        fail_msg("%s: %s", target, err.message);
    }
    for (uint32_t t = 0, row = 0; t < w->program.program.tensors.n; t++) {
        w->program.program.tensors.items[t].bind_first = row;
        row += w->program.program.tensors.items[t].bind_count;
    }
    must_prove(&w->program.program);
    w->side = (struct run_side){"", &w->pipeline.graph};
    run_open(&w->run, &w->program.program, &w->side, 1);
}

static void close_paged(struct paged *w) {
    run_close(&w->run);
    pipeline_finish(&w->pipeline);
    random_model_finish(&w->model);
}

static uint32_t find(const struct program_run *r, const char *name) {
    for (uint32_t t = 0; t < r->p.n_tensors; t++) {
        if (strcmp(run_name(r, t), name) == 0) {
            return t;
        }
    }
    return TW_NONE;
}

static void set(const struct program_run *r, const char *name, uint32_t element, int32_t value) {
    uint32_t t = find(r, name);
    if (t != TW_NONE) { /* decode has no rows, a contiguous program no pages */
        assert_true((uint64_t)element * 4 + 4 <= r->p.tensors[t].bytes);
        memcpy(run_data(r, t, 0) + (size_t)element * 4, &value, sizeof value);
    }
}

/* Tokens and position of step s; the last one is not full. */
static void set_step(const struct paged *w, uint32_t s, uint32_t rows) {
    uint32_t n = rows > 1 && s == STEPS - 1 ? rows - 5 : rows;
    for (uint32_t i = 0; i < rows; i++) {
        set(&w->run, "ids", i, (int32_t)((s * 7 + i * 5 + 1) % 33));
    }
    set(&w->run, "rows", 0, (int32_t)n);
    set(&w->run, "pos", 0, (int32_t)(s * rows));
    set(&w->run, "end", 0, (int32_t)(s * rows + n));
}

/* Different pages in random order; seed 0: 0, 1, 2, ... */
static void set_table(const struct paged *w, uint64_t seed) {
    int32_t page[PAGES];
    for (int32_t i = 0; i < PAGES; i++) {
        page[i] = i;
    }
    for (uint32_t i = PAGES; i > 1 && seed; i--) {
        uint32_t k = random_below(&seed, i);
        int32_t last = page[i - 1];
        page[i - 1] = page[k];
        page[k] = last;
    }
    for (uint32_t i = 0; i < w->slots; i++) {
        set(&w->run, "pages", i, page[i]);
    }
}

enum mode { STRICT, RANDOM, STARVE, FAST, FAST_SIMD, N_MODES };

struct machine {
    enum mode mode;
    struct tw_arena arena;
    struct tw_strict *strict;
    struct tw_plan *plan;
};

static int make(struct paged *w, struct machine *m, struct tw_fault *fault) {
    bool fast = m->mode >= FAST;
    w->run.config.kernels =
        m->mode == FAST_SIMD ? tw_kernel_table_best() : tw_kernel_table(TW_ISA_SCALAR);
    return fast ? tw_plan_build(&w->run.config, 1, &m->arena, &m->plan, fault)
                : tw_strict_init(&w->run.config, &m->arena, &m->strict, fault);
}

static void make_machine(struct paged *w, enum mode mode, struct machine *m) {
    struct tw_fault fault = {0};
    *m = (struct machine){.mode = mode};
    assert_int_equal(make(w, m, &fault), TW_E_NOMEM);
    m->arena = (struct tw_arena){malloc(m->arena.used), m->arena.used, 0};
    must_not_fault(&w->run, make(w, m, &fault), &fault);
}

static int step(struct machine *m, uint64_t seed, struct tw_fault *fault) {
    static const enum tw_scheduler of[] = {TW_SCHED_CANONICAL, TW_SCHED_RANDOM, TW_SCHED_STARVE};
    if (m->mode < FAST) {
        return tw_strict_step(m->strict, of[m->mode], seed, fault);
    }
    int rc = tw_plan_begin(m->plan, fault);
    if (rc == 0) {
        tw_plan_run(m->plan, 0, NULL, NULL);
    }
    return rc;
}

/* Runs the steps and stores the logits after each. */
static void run(struct paged *w, enum mode mode, uint64_t table, uint32_t rows,
                uint8_t logits[STEPS][MAX_VOCAB * 4]) {
    struct machine m;
    struct tw_fault fault = {0};
    uint32_t out = find(&w->run, "logits");
    assert_true(out != TW_NONE && w->run.p.tensors[out].bytes <= MAX_VOCAB * 4);
    make_machine(w, mode, &m);
    run_clear(&w->run);
    set_table(w, table);
    memset(logits, 0, (size_t)STEPS * MAX_VOCAB * 4);
    for (uint32_t s = 0; s < STEPS; s++) {
        set_step(w, s, rows);
        must_not_fault(&w->run, step(&m, s, &fault), &fault);
        memcpy(logits[s], run_data(&w->run, out, 0), w->run.p.tensors[out].bytes);
    }
    free(m.arena.base);
}

static const struct {
    const char *name;
    uint32_t host_sites;
} targets[] = {{"host", 1}, {"host", 3}, {"sim4x4", 0}, {"quad2x2", 0}};

static void any_pages_give_the_bits_of_the_contiguous_cache(void **state) {
    (void)state;
    for (uint32_t k = 0; k < sizeof targets / sizeof *targets; k++) {
        struct paged alone, paged;
        const struct random_shape *shape = &shapes[k % 2];
        uint8_t expected[STEPS][MAX_VOCAB * 4], got[STEPS][MAX_VOCAB * 4];
        open_paged(&alone, shape, targets[k].name, targets[k].host_sites, CHUNK, 0);
        open_paged(&paged, shape, targets[k].name, targets[k].host_sites, CHUNK, PAGES);
        run(&alone, FAST, 0, CHUNK, expected);
        for (uint32_t mode = 0; mode < N_MODES; mode++) {
            for (uint64_t seed = 0; seed < (mode >= FAST ? 4 : 2); seed++) {
                run(&paged, (enum mode)mode, seed, CHUNK, got);
                if (memcmp(expected, got, sizeof got) != 0) {
                    fail_msg("%s %u: other bits in mode %u with table %u", targets[k].name,
                             targets[k].host_sites, mode, (unsigned)seed);
                }
            }
        }
        close_paged(&alone);
        close_paged(&paged);
    }
}

/* A cache of which positions are moved to other pages between steps goes on as if they were not. */
static void a_sequence_may_move_to_other_pages(void **state) {
    (void)state;
    struct paged w;
    uint8_t expected[STEPS][MAX_VOCAB * 4], got[MAX_VOCAB * 4];
    open_paged(&w, &shapes[0], "host", 2, CHUNK, PAGES);
    run(&w, FAST, 0, CHUNK, expected);
    struct machine m;
    struct tw_fault fault = {0};
    make_machine(&w, FAST, &m);
    run_clear(&w.run);
    uint32_t out = find(&w.run, "logits");
    for (uint32_t s = 0; s < STEPS; s++) {
        set_step(&w, s, CHUNK);
        set_table(&w, 0);
        for (uint32_t t = 0; t < w.run.p.n_tensors && s % 2; t++) { /* page 1 is page 9 now */
            const struct tw_tensor *x = &w.run.p.tensors[t];
            uint64_t bytes = tw_tensor_page_bytes(x);
            for (uint32_t i = 0; i < x->bind_count && x->role == TW_ROLE_STATE; i++) {
                memcpy(run_data(&w.run, t, i) + 9 * bytes, run_data(&w.run, t, i) + bytes, bytes);
            }
        }
        set(&w.run, "pages", 1, s % 2 ? 9 : 1);
        must_not_fault(&w.run, step(&m, s, &fault), &fault);
        memcpy(got, run_data(&w.run, out, 0), w.run.p.tensors[out].bytes);
        assert_memory_equal(got, expected[s], w.run.p.tensors[out].bytes);
        for (uint32_t t = 0; t < w.run.p.n_tensors && s % 2; t++) {
            const struct tw_tensor *x = &w.run.p.tensors[t];
            uint64_t bytes = tw_tensor_page_bytes(x);
            for (uint32_t i = 0; i < x->bind_count && x->role == TW_ROLE_STATE; i++) {
                memcpy(run_data(&w.run, t, i) + bytes, run_data(&w.run, t, i) + 9 * bytes, bytes);
            }
        }
    }
    free(m.arena.base);
    close_paged(&w);
}

/* Entries that the step uses are checked when it begins; all others may hold anything. */
static void hostile_tables_are_refused_before_a_byte_changes(void **state) {
    (void)state;
    static const struct {
        uint32_t element;
        int32_t page;
        const char *what;
        uint64_t have, need;
    } bad[] = {
        {0, -1, "PageOutOfRange", UINT64_MAX, PAGES},
        {1, PAGES, "PageOutOfRange", PAGES, PAGES},
        {1, INT32_MAX, "PageOutOfRange", INT32_MAX, PAGES},
        {0, INT32_MIN, "PageOutOfRange", (uint64_t)(int64_t)INT32_MIN, PAGES},
        {0, 1, "PageShared", 1, 1}, /* the write's page, also that of earlier positions */
    };
    struct paged w;
    open_paged(&w, &shapes[0], "host", 2, CHUNK, PAGES);
    uint8_t *before = malloc(w.run.dram_bytes);
    for (uint32_t mode = STRICT; mode <= FAST; mode += FAST) {
        struct machine m;
        struct tw_fault fault = {0};
        make_machine(&w, (enum mode)mode, &m);
        run_clear(&w.run);
        for (uint32_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            set_step(&w, 2, CHUNK); /* positions 64 to 95 */
            set_table(&w, 0);
            set(&w.run, "pages", bad[i].element, bad[i].page);
            memcpy(before, w.run.dram, w.run.dram_bytes);
            assert_int_equal(step(&m, 0, &fault), TW_E_FAULT);
            assert_string_equal(fault.what, bad[i].what);
            assert_int_equal(fault.object, find(&w.run, "pages"));
            assert_int_equal(fault.element, bad[i].element);
            assert_int_equal(fault.have, bad[i].have);
            assert_int_equal(fault.need, bad[i].need);
            assert_true(fault.opcode == TW_OP_READ || fault.opcode == TW_OP_KEY_WRITE ||
                        fault.opcode == TW_OP_VALUE_WRITE);
            assert_memory_equal(before, w.run.dram, w.run.dram_bytes);
        }
        set_table(&w, 0);
        set(&w.run, "pages", 2, -1);
        set(&w.run, "pages", 3, 0); /* as page 0 */
        must_not_fault(&w.run, step(&m, 0, &fault), &fault);
        set_step(&w, 4, CHUNK); /* positions 128 on use element 2 */
        assert_int_equal(step(&m, 0, &fault), TW_E_FAULT);
        assert_int_equal(fault.element, 2);
        free(m.arena.base);
    }
    free(before);
    close_paged(&w);
}

/* Every interleaving of a step at a border between pages. */
static void the_explorer_finds_nothing(void **state) {
    (void)state;
    static const struct random_shape tiny = {.dim = 4,
                                             .hidden = 4,
                                             .n_layers = 1,
                                             .n_heads = 1,
                                             .n_kv_heads = 1,
                                             .head_dim = 4,
                                             .n_vocab = 4,
                                             .n_ctx = 128,
                                             .seed = 5};
    struct paged w;
    struct tw_explore_options options = {.steps = 1, .max_states = 4096, .max_depth = 32};
    struct tw_explore_result result;
    struct tw_fault fault = {0};
    struct tw_arena arena = {NULL, 0, 0};
    open_paged(&w, &tiny, "host", 2, 1, PAGES);
    set_table(&w, 8);
    set(&w.run, "pos", 0, 64);
    set(&w.run, "end", 0, 65);
    int rc = tw_explore(&w.run.config, &arena, &options, &result, &fault);
    while (rc == TW_E_NOMEM) {
        size_t bytes = arena.used;
        free(arena.base);
        arena = (struct tw_arena){aligned_alloc(64, (bytes + 63) / 64 * 64), bytes, 0};
        rc = tw_explore(&w.run.config, &arena, &options, &result, &fault);
    }
    must_not_fault(&w.run, rc, &fault);
    assert_int_equal(result.found & ~(uint32_t)TW_EXPLORE_LIMIT, 0);
    free(arena.base);
    close_paged(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_pages_give_the_bits_of_the_contiguous_cache),
        cmocka_unit_test(a_sequence_may_move_to_other_pages),
        cmocka_unit_test(hostile_tables_are_refused_before_a_byte_changes),
        cmocka_unit_test(the_explorer_finds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
