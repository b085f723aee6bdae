/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches: programs decode.N whose rows are tokens of any sequences at any positions. Each row has
 * the bits of the same token alone in the program decode, and the caches hold the same bytes after
 * each step, whatever is beside a row: other sequences, later tokens of its own, rows that are not
 * used.
 */
#include "firmware/explore/explore.h"
#include "tests/compiler/program_run.h"

#include <pthread.h>

enum { MAX_BATCH = 16, SEQUENCES = 5, STEPS = 6, MAX_SLOTS = 32 };

/* A compiled program, and the machines that run it. */
struct world {
    struct pipeline pipeline;
    struct pipeline_program program;
    struct run_side side;
    struct program_run run;
};

/* What the rows are of: each sequence has a next position, an origin from which windows count, and
 * pages of its own. */
struct sequence {
    uint32_t pos, origin;
    int32_t page[MAX_SLOTS], window_page[MAX_SLOTS];
};

struct row {
    uint32_t sequence, pos, id; /* sequence TW_NONE: not used */
};

struct bed {
    struct random_shape shape;
    uint32_t n, slots, window_slots;
    struct random_model model;
    struct world alone, batch;
    struct sequence sequences[SEQUENCES];
    struct row rows[MAX_BATCH];
    uint64_t seed;
};

/* A deployment has as many pages as it wants; the compiler counts those of one sequence. */
static void add_pages(struct tw_builder *u, const struct tw_graph *g) {
    for (uint32_t t = 0; t < u->tensors.n; t++) {
        struct tw_tensor *x = &u->tensors.items[t];
        if (x->role == TW_ROLE_STATE && g->values.items[u->tensor_value.items[t]].window) {
            x->rows *= SEQUENCES;
            x->bytes *= SEQUENCES;
        }
    }
}

/* Caches of batches of 8 rows are f16. */
static void open_one(const struct bed *b, struct world *w, const char *target, uint32_t host_sites,
                     bool batch) {
    tw_error err = {0};
    uint32_t n = batch ? b->n : 1;
    int rc = pipeline_init(&w->pipeline, &b->model.model, target, host_sites, &err);
    struct tw_section_config *config = &w->pipeline.config;
    for (uint32_t v = 0; rc == 0 && b->n == 8 && v < w->pipeline.graph.values.n; v++) {
        struct tw_gvalue *value = &w->pipeline.graph.values.items[v];
        value->dtype = value->kind == TW_GV_STATE ? TW_DT_F16 : value->dtype;
    }
    config->kv_pages = SEQUENCES * b->slots;
    config->batch = batch;
    if (b->window_slots) {
        config->window_ctx = b->window_slots * TW_KV_BLOCK - 128;
        config->window_positions = b->window_slots * TW_KV_BLOCK;
    }
    assert_int_equal(config->n_positions, b->slots * TW_KV_BLOCK);
    rc = rc ? rc : pipeline_program(&w->pipeline, n, 0, &w->program, &err);
    if (rc) {
        fail_msg("%s, %u rows: %s", target, n, err.message);
    }
    struct tw_builder *u = &w->program.program;
    for (uint32_t t = 0, row = 0; t < u->tensors.n; t++) {
        u->tensors.items[t].bind_first = row;
        row += u->tensors.items[t].bind_count;
    }
    if (b->window_slots) {
        add_pages(u, &w->pipeline.graph);
    }
    must_prove(u);
    w->side = (struct run_side){"", &w->pipeline.graph};
    run_open(&w->run, u, &w->side, 1);
}

static void close_one(struct world *w) {
    run_close(&w->run);
    pipeline_finish(&w->pipeline);
}

static void shuffle(struct bed *b, int32_t *page, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        page[i] = (int32_t)i;
    }
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = random_below(&b->seed, i);
        int32_t last = page[i - 1];
        page[i - 1] = page[k];
        page[k] = last;
    }
}

/* Sequences begin anywhere; what is before that is zeros for both programs. */
static void make_sequences(struct bed *b) {
    int32_t page[SEQUENCES * MAX_SLOTS];
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        struct sequence *s = &b->sequences[i];
        s->pos = random_below(&b->seed, b->shape.n_ctx - STEPS * MAX_BATCH); /* room for all */
        s->origin = s->pos < b->shape.window
                        ? 0
                        : (s->pos - b->shape.window) / TW_KEY_SEGMENT * TW_KEY_SEGMENT;
    }
    shuffle(b, page, SEQUENCES * b->slots);
    for (uint32_t i = 0; i < SEQUENCES * b->slots; i++) {
        b->sequences[i / b->slots].page[i % b->slots] = page[i];
    }
    shuffle(b, page, SEQUENCES * b->window_slots);
    for (uint32_t i = 0; i < SEQUENCES * b->window_slots; i++) {
        b->sequences[i / b->window_slots].window_page[i % b->window_slots] = page[i];
    }
}

static void open_bed(struct bed *b, const struct random_shape *shape, const char *target,
                     uint32_t host_sites, uint32_t n) {
    memset(b, 0, sizeof *b);
    b->shape = *shape;
    b->n = n;
    b->seed = n * 7 + host_sites;
    assert_true(n <= MAX_BATCH);
    b->slots = (shape->n_ctx + 128 + TW_KV_BLOCK - 1) / TW_KV_BLOCK;
    assert_true(b->slots <= MAX_SLOTS);
    uint32_t most = shape->window + TW_KEY_SEGMENT + STEPS * MAX_BATCH + 128;
    if (shape->window && most / TW_KV_BLOCK + 1 < b->slots) {
        b->window_slots = most / TW_KV_BLOCK + 1;
    }
    assert_true(random_model_init(&b->model, shape));
    open_one(b, &b->alone, target, host_sites, false);
    open_one(b, &b->batch, target, host_sites, true);
    make_sequences(b);
}

static void close_bed(struct bed *b) {
    close_one(&b->alone);
    close_one(&b->batch);
    random_model_finish(&b->model);
}

/* ---- inputs ---- */

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
    if (t != TW_NONE) { /* not every program has all */
        assert_int_equal(r->p.tensors[t].role, TW_ROLE_INPUT);
        assert_true((uint64_t)element * 4 + 4 <= r->p.tensors[t].bytes);
        memcpy(run_data(r, t, 0) + (size_t)element * 4, &value, sizeof value);
    }
}

/* Sets row `at` of a program's inputs. The pages of rows that are not used are none. */
static void set_row(const struct bed *b, const struct program_run *r, uint32_t at,
                    const struct row *row) {
    bool used = row->sequence != TW_NONE;
    set(r, "ids", at, (int32_t)row->id);
    set(r, "pos", at, (int32_t)row->pos);
    set(r, "end", at, used ? (int32_t)row->pos + 1 : 0);
    set(r, "rows", at, used);
    const struct sequence *s = used ? &b->sequences[row->sequence] : NULL;
    for (uint32_t i = 0; i < b->slots; i++) {
        set(r, "pages", at * b->slots + i, s ? s->page[i] : -1);
    }
    set(r, "pos.window", at, s ? (int32_t)(row->pos - s->origin) : 0);
    set(r, "end.window", at, s ? (int32_t)(row->pos - s->origin) + 1 : 0);
    for (uint32_t i = 0; i < b->window_slots; i++) {
        set(r, "pages.window", at * b->window_slots + i, s ? s->window_page[i] : -1);
    }
}

/* Rows of the next step: some are not used, others are consecutive tokens of one sequence, in any
 * order. */
static void draw_rows(struct bed *b) {
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t s = random_below(&b->seed, SEQUENCES + 1);
        b->rows[i] = (struct row){TW_NONE, random_below(&b->seed, b->shape.n_ctx),
                                  random_below(&b->seed, b->shape.n_vocab)};
        if (s < SEQUENCES) {
            b->rows[i].sequence = s;
            b->rows[i].pos = b->sequences[s].pos++;
        }
    }
    for (uint32_t i = b->n; i > 1; i--) {
        uint32_t k = random_below(&b->seed, i);
        struct row last = b->rows[i - 1];
        b->rows[i - 1] = b->rows[k];
        b->rows[k] = last;
    }
}

/* ---- machines ---- */

enum mode { STRICT, RANDOM, STARVE, FAST, FAST_SIMD, FAST_THREADS, N_MODES };
enum { THREADS = 2 };

struct machine {
    enum mode mode;
    struct tw_arena arena;
    struct tw_strict *strict;
    struct tw_plan *plan;
};

static int make(struct world *w, struct machine *m, struct tw_fault *fault) {
    uint32_t threads = m->mode == FAST_THREADS ? THREADS : 1;
    w->run.config.kernels =
        m->mode >= FAST_SIMD ? tw_kernel_table_best() : tw_kernel_table(TW_ISA_SCALAR);
    return m->mode >= FAST ? tw_plan_build(&w->run.config, threads, &m->arena, &m->plan, fault)
                           : tw_strict_init(&w->run.config, &m->arena, &m->strict, fault);
}

static struct machine make_machine(struct world *w, enum mode mode) {
    struct tw_fault fault = {0};
    struct machine m = {.mode = mode};
    assert_int_equal(make(w, &m, &fault), TW_E_NOMEM);
    m.arena = (struct tw_arena){malloc(m.arena.used), m.arena.used, 0};
    must_not_fault(&w->run, make(w, &m, &fault), &fault);
    return m;
}

static void *run_second(void *plan) {
    tw_plan_run(plan, 1, NULL, NULL);
    return NULL;
}

static int step(struct machine *m, uint64_t seed, struct tw_fault *fault) {
    static const enum tw_scheduler of[] = {TW_SCHED_CANONICAL, TW_SCHED_RANDOM, TW_SCHED_STARVE};
    if (m->mode < FAST) {
        return tw_strict_step(m->strict, of[m->mode], seed, fault);
    }
    int rc = tw_plan_begin(m->plan, fault);
    pthread_t second;
    if (rc == 0 && m->mode == FAST_THREADS) {
        assert_int_equal(pthread_create(&second, NULL, run_second, m->plan), 0);
    }
    if (rc == 0) {
        tw_plan_run(m->plan, 0, NULL, NULL);
    }
    if (rc == 0 && m->mode == FAST_THREADS) {
        assert_int_equal(pthread_join(second, NULL), 0);
    }
    return rc;
}

static const float *logits_of(const struct program_run *r, uint32_t row) {
    uint32_t t = find(r, "logits");
    assert_true(t != TW_NONE && row < r->p.tensors[t].rows);
    return (const float *)(const void *)run_data(r, t, 0) + (size_t)row * r->p.tensors[t].cols;
}

static void check_row(struct bed *b, struct machine *alone, uint32_t row) {
    const struct row *x = &b->rows[row];
    const float *got = logits_of(&b->batch.run, row);
    struct tw_fault fault = {0};
    if (x->sequence == TW_NONE) {
        for (uint32_t i = 0; i < b->shape.n_vocab; i++) {
            assert_true(got[i] - got[i] == 0.0f);
        }
        return;
    }
    set_row(b, &b->alone.run, 0, x);
    must_not_fault(&b->alone.run, step(alone, 0, &fault), &fault);
    if (memcmp(got, logits_of(&b->alone.run, 0), b->shape.n_vocab * sizeof *got) != 0) {
        fail_msg("%s: %s on %u sites: row %u of sequence %u at %u has other bits",
                 random_shape_text(&b->shape), b->batch.program.program.name,
                 b->batch.run.p.n_sites, row, x->sequence, x->pos);
    }
}

static void states_must_agree(const struct bed *b) {
    for (uint32_t t = 0; t < b->batch.run.p.n_tensors; t++) {
        const struct tw_tensor *x = &b->batch.run.p.tensors[t];
        for (uint32_t i = 0; i < x->bind_count && x->role == TW_ROLE_STATE; i++) {
            uint32_t same = find(&b->alone.run, run_name(&b->batch.run, t));
            assert_memory_equal(run_data(&b->batch.run, t, i), run_data(&b->alone.run, same, i),
                                x->bytes);
        }
    }
}

static void run_batches(struct bed *b, enum mode mode) {
    struct machine alone = make_machine(&b->alone, mode >= FAST_SIMD ? FAST_SIMD : FAST),
                   batch = make_machine(&b->batch, mode);
    struct tw_fault fault = {0};
    for (uint32_t s = 0; s < (mode >= FAST ? STEPS : 1); s++) {
        draw_rows(b);
        for (uint32_t i = 0; i < b->n; i++) {
            set_row(b, &b->batch.run, i, &b->rows[i]);
        }
        must_not_fault(&b->batch.run, step(&batch, s, &fault), &fault);
        for (uint32_t done = 0; done < b->n; done++) { /* tokens of one sequence in order */
            uint32_t next = TW_NONE;
            for (uint32_t i = 0; i < b->n; i++) {
                bool later = b->rows[i].id == TW_NONE ||
                             (next != TW_NONE && b->rows[next].pos <= b->rows[i].pos);
                next = later ? next : i;
            }
            check_row(b, &alone, next);
            b->rows[next].id = TW_NONE;
        }
        states_must_agree(b);
    }
    free(alone.arena.base);
    free(batch.arena.base);
}

static const struct random_shape shapes[] = {
    {.dim = 32,
     .hidden = 64,
     .n_layers = 2,
     .n_heads = 2,
     .n_kv_heads = 2,
     .head_dim = 6,
     .n_vocab = 48,
     .n_ctx = 700,
     .seed = 3},
    {.dim = 64,
     .hidden = 64,
     .n_layers = 3,
     .n_heads = 6,
     .n_kv_heads = 2,
     .head_dim = 16,
     .n_vocab = 33,
     .n_ctx = 200,
     .seed = 4,
     .dtype = TW_DT_Q8_0},
};

static const struct {
    const char *name;
    uint32_t host_sites;
} targets[] = {{"host", 1}, {"host", 3}, {"sim4x4", 0}, {"grid8x8", 0}, {"quad2x2", 0}};

static void rows_have_the_bits_of_the_token_alone(void **state) {
    (void)state;
    for (uint32_t t = 0; t < sizeof targets / sizeof *targets; t++) {
        for (uint32_t n = 2; n <= MAX_BATCH; n *= 2) {
            struct bed b;
            open_bed(&b, &shapes[(t + n / 2) % 2], targets[t].name, targets[t].host_sites, n);
            run_batches(&b, FAST_SIMD);
            close_bed(&b);
        }
    }
}

/* Every access checked, in any order of the engines. */
static void rows_have_those_bits_in_any_order(void **state) {
    (void)state;
    for (uint32_t mode = 0; mode < N_MODES; mode++) {
        struct bed b;
        open_bed(&b, &shapes[mode % 2], mode % 2 ? "host" : "sim4x4", mode % 2 ? 2 : 0, 4);
        run_batches(&b, (enum mode)mode);
        close_bed(&b);
    }
}

/* Windows with tables of their own, and queries that are scaled by position. */
static void windows_and_scaled_queries(void **state) {
    (void)state;
    static const struct random_shape windowed = {
        .dim = 32,
        .hidden = 64,
        .n_layers = 3,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = 8,
        .n_vocab = 40,
        .n_ctx = 1400,
        .seed = 9,
        .switches = {.query_slope = 0.2f, .query_period = 20},
        .window = 40,
        .period = 2};
    for (uint32_t t = 0; t < sizeof targets / sizeof *targets; t++) {
        struct bed b;
        open_bed(&b, &windowed, targets[t].name, targets[t].host_sites, t % 2 ? 8 : 4);
        assert_true(find(&b.batch.run, "pages.window") != TW_NONE &&
                    find(&b.batch.run, "pages") != TW_NONE);
        run_batches(&b, FAST_SIMD);
        run_batches(&b, RANDOM);
        close_bed(&b);
    }
}

static void any_decoder(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 10; seed++) {
        struct random_shape shape = random_decoder_of(seed);
        struct bed b;
        shape.n_ctx = 200;
        open_bed(&b, &shape, "host", seed % 3 + 1, seed % 2 ? 4 : 8);
        run_batches(&b, FAST_SIMD);
        close_bed(&b);
    }
}

/* Steps that the host must not ask for, of a row and its table, are refused before a byte changes;
 * then the machine goes on. */
static void hostile_rows_are_refused_before_a_byte_changes(void **state) {
    (void)state;
    static const struct {
        const char *input;
        int32_t value; /* of row 1; of pages: of its entry for position 64 */
        const char *what;
    } bad[] = {
        {"rows", 2, "InputRange"},           {"rows", -1, "InputRange"},
        {"end", -1, "InputRange"},           {"end", 100000, "InputRange"},
        {"pos", -1, "InputRange"},           {"pos", 100000, "InputRange"},
        {"pos", 64, "PageShared"},           {"pages", -1, "PageOutOfRange"},
        {"pages", 100000, "PageOutOfRange"}, {"ids", 100000, "IdOutOfRange"},
    };
    struct bed b;
    open_bed(&b, &shapes[1], "host", 2, 4);
    uint8_t *before = malloc(b.batch.run.dram_bytes);
    assert_non_null(before);
    for (enum mode mode = STRICT; mode <= FAST; mode += FAST) {
        struct machine m = make_machine(&b.batch, mode);
        struct tw_fault fault = {0};
        for (uint32_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
            for (uint32_t r = 0; r < b.n; r++) { /* two rows of one sequence, two not used */
                set_row(&b, &b.batch.run, r, &(struct row){r < 2 ? 0 : TW_NONE, 64 + r, r});
            }
            if (i == sizeof bad / sizeof *bad) {
                must_not_fault(&b.batch.run, step(&m, 0, &fault), &fault);
                break;
            }
            bool page = strcmp(bad[i].input, "pages") == 0;
            set(&b.batch.run, bad[i].input, page ? b.slots + 1 : 1, bad[i].value);
            memcpy(before, b.batch.run.dram, b.batch.run.dram_bytes);
            int rc = step(&m, 0, &fault);
            if (rc != TW_E_FAULT || strcmp(fault.what, bad[i].what) != 0) {
                fail_msg("%s %d: code %d, %s", bad[i].input, (int)bad[i].value, rc,
                         fault.what ? fault.what : "");
            }
            /* strict execution looks at an id when it comes to it, and then ends */
            if (mode == STRICT && strcmp(bad[i].what, "IdOutOfRange") == 0) {
                free(m.arena.base);
                m = make_machine(&b.batch, mode);
            } else {
                assert_memory_equal(before, b.batch.run.dram, b.batch.run.dram_bytes);
            }
        }
        free(m.arena.base);
    }
    free(before);
    close_bed(&b);
}

/* Every interleaving of a step of two rows of one sequence, on both sides of a border of pages. */
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
    struct tw_explore_options options = {.steps = 1, .max_states = 4096, .max_depth = 32};
    struct tw_explore_result result;
    struct tw_fault fault = {0};
    struct tw_arena arena = {NULL, 0, 0};
    struct bed b;
    open_bed(&b, &tiny, "host", 2, 2);
    set_row(&b, &b.batch.run, 0, &(struct row){0, 64, 1});
    set_row(&b, &b.batch.run, 1, &(struct row){0, 63, 2});
    int rc = tw_explore(&b.batch.run.config, &arena, &options, &result, &fault);
    while (rc == TW_E_NOMEM) {
        size_t bytes = arena.used;
        free(arena.base);
        arena = (struct tw_arena){aligned_alloc(64, (bytes + 63) / 64 * 64), bytes, 0};
        rc = tw_explore(&b.batch.run.config, &arena, &options, &result, &fault);
    }
    must_not_fault(&b.batch.run, rc, &fault);
    assert_int_equal(result.found & ~(uint32_t)TW_EXPLORE_LIMIT, 0);
    free(arena.base);
    close_bed(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_bits_of_the_token_alone),
        cmocka_unit_test(rows_have_those_bits_in_any_order),
        cmocka_unit_test(windows_and_scaled_queries),
        cmocka_unit_test(any_decoder),
        cmocka_unit_test(hostile_rows_are_refused_before_a_byte_changes),
        cmocka_unit_test(the_explorer_finds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
