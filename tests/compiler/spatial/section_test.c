/* SPDX-License-Identifier: Apache-2.0
 *
 * Sections: each is a valid program of its own on every target; flags, loops and streams are what
 * the section's work needs.
 */
#include "loader/target/target_open.h"
#include "tests/compiler/program_kit.h"

/* ---- validity ---- */

static void every_section_alone_obeys_every_rule(void **state) {
    (void)state;
    assert_true(over_the_grid(verify_sections_alone) > 100);
}

/* ---- flags ---- */

/* Counts the increments of each word (semaphore, site) in one iteration of a section. */
static uint32_t *count_increments(const struct tw_program *p) {
    uint32_t *words = calloc((size_t)p->n_semaphores * p->n_sites + 1, sizeof *words);
    assert_non_null(words);
    for (uint32_t i = 0; i < p->n_sites * TW_ENGINE_COUNT; i++) {
        struct tw_op op;
        for (uint32_t at = 0; next_op(&p->streams[i], &at, &op);) {
            if (op.code == TW_OP_SEM_INC) {
                words[op.operand[0].id * p->n_sites + op.operand[1].id] += op.operand[2].id;
            }
            for (uint32_t s = 0; s < p->n_sites && op.code == TW_OP_MCAST_SET; s++) {
                words[op.operand[0].id * p->n_sites + s] +=
                    (uint32_t)tw_group_holds(p, &p->groups[op.operand[1].id], s);
            }
        }
    }
    return words;
}

static uint64_t term(const struct tw_affine *a, uint32_t var) {
    for (uint32_t i = 0; i < a->n_terms; i++) {
        if (a->term[i].var == var) {
            return a->term[i].step;
        }
    }
    return 0;
}

static uint32_t waits;

static void check_thresholds(struct grid_world *w) {
    for (uint32_t r = 0; r < w->p.graph.regions.n; r++) {
        struct tw_builder *u = w->program.sections[r];
        struct tw_program p = tw_builder_program(u);
        uint32_t *words = count_increments(&p);
        for (uint32_t i = 0; i < p.n_sites * TW_ENGINE_COUNT; i++) {
            struct tw_op op;
            for (uint32_t at = 0; next_op(&p.streams[i], &at, &op);) {
                if (op.code != TW_OP_SEM_WAIT) {
                    continue;
                }
                uint32_t count = words[op.operand[0].id * p.n_sites + i / TW_ENGINE_COUNT];
                assert_true(count > 0);
                assert_int_equal(op.operand[1].offset.base, count);
                assert_int_equal(term(&op.operand[1].offset, TW_VAR_EPOCH),
                                 (uint64_t)count * u->repeat);
                assert_int_equal(term(&op.operand[1].offset, TW_VAR_INSTANCE),
                                 u->repeat > 1 ? count : 0);
                waits++;
            }
        }
        free(words);
    }
}

static void every_wait_is_for_exactly_the_increments_of_its_iteration(void **state) {
    (void)state;
    waits = 0;
    over_the_grid(check_thresholds);
    assert_true(waits > 1000);
}

static void thresholds_count_iterations_and_epochs(void **state) {
    (void)state;
    struct tw_builder once = {.repeat = 1}, layers = {.repeat = 5};
    struct tw_affine a = tw_builder_threshold(&once, 3), b = tw_builder_threshold(&layers, 3);
    uint32_t vars[TW_MAX_VARS] = {2, 4};
    assert_int_equal(tw_affine_value(&a, vars), 3 + 2 * 3);
    assert_int_equal(tw_affine_value(&b, vars), 3 + 4 * 3 + 2 * 5 * 3);
}

/* ---- the cache ---- */

static uint32_t cache_waits;

/* Returns 1 if the site reads, with its LOAD engine, a head of [first, first + n) of the tensor. */
static int reads_heads(const struct tw_program *p, uint32_t site, uint32_t tensor, uint32_t first,
                       uint32_t n) {
    const struct tw_tensor *t = &p->tensors[tensor];
    uint64_t head_bytes = tw_cache_head_bytes(t); /* of the first page, where all heads are */
    struct tw_op op;
    for (uint32_t at = 0;
         next_op(&p->streams[site * TW_ENGINE_COUNT + TW_ENGINE_LOAD], &at, &op);) {
        uint64_t head = op.code == TW_OP_READ ? op.operand[0].offset.base / head_bytes : 0;
        if (op.code == TW_OP_READ && op.operand[0].id == tensor && head >= first &&
            head < first + n) {
            return 1;
        }
    }
    return 0;
}

/* The two caches that LOAD reads from word `at` of its stream on. */
struct caches {
    uint32_t tensor[2];
};

static struct caches caches_read_from(const struct tw_stream *s, uint32_t at) {
    struct caches c = {{TW_NONE, TW_NONE}};
    struct tw_op op;
    while (c.tensor[1] == TW_NONE && next_op(s, &at, &op)) {
        if (op.code == TW_OP_READ && op.operand[0].id != c.tensor[0]) {
            c.tensor[c.tensor[0] != TW_NONE] = op.operand[0].id;
        }
    }
    return c;
}

/* Counts the appends to the caches that write a head which the site reads. */
static uint32_t count_writers(const struct tw_program *p, uint32_t reader, struct caches c) {
    uint32_t n = 0;
    for (uint32_t site = 0; site < p->n_sites; site++) {
        struct tw_op op;
        for (uint32_t at = 0;
             next_op(&p->streams[site * TW_ENGINE_COUNT + TW_ENGINE_STORE], &at, &op);) {
            bool append = op.code == TW_OP_KEY_WRITE || op.code == TW_OP_VALUE_WRITE;
            if (append && (op.operand[2].id == c.tensor[0] || op.operand[2].id == c.tensor[1])) {
                n += (uint32_t)reads_heads(p, reader, op.operand[2].id, op.operand[3].id,
                                           op.operand[4].id);
            }
        }
    }
    return n;
}

static void check_cache_waits(struct grid_world *w) {
    struct tw_program p = tw_builder_program(w->program.sections[1]);
    for (uint32_t site = 0; site < p.n_sites && p.n_sites <= 16; site++) {
        struct tw_op op;
        const struct tw_stream *load = &p.streams[site * TW_ENGINE_COUNT + TW_ENGINE_LOAD];
        for (uint32_t at = 0; next_op(load, &at, &op);) {
            if (op.code == TW_OP_SEM_WAIT) {
                assert_int_equal(op.operand[1].offset.base,
                                 count_writers(&p, site, caches_read_from(load, at)));
                cache_waits++;
            }
        }
    }
}

static void attention_waits_for_all_writers_of_its_heads_and_no_others(void **state) {
    (void)state;
    cache_waits = 0;
    over_the_grid(check_cache_waits);
    assert_true(cache_waits > 300);
}

/* ---- loops ---- */

static uint32_t shared_loops;

static void check_loops(struct grid_world *w) {
    for (uint32_t r = 0; r < w->p.graph.regions.n; r++) {
        struct tw_program p = tw_builder_program(w->program.sections[r]);
        for (uint32_t site = 0; site < p.n_sites; site++) {
            uint32_t ids[TW_ENGINE_COUNT][64], n[TW_ENGINE_COUNT] = {0};
            for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
                struct tw_op op;
                for (uint32_t at = 0; next_op(&p.streams[site * TW_ENGINE_COUNT + e], &at, &op);) {
                    if (op.code == TW_OP_LOOP && op.operand[2].id != TW_NONE) {
                        assert_int_equal(op.operand[2].id >> 16, r);
                        assert_true(n[e] == 0 || op.operand[2].id > ids[e][n[e] - 1]);
                        ids[e][n[e]++] = op.operand[2].id;
                        shared_loops++;
                    }
                }
            }
            assert_int_equal(n[TW_ENGINE_LOAD], n[TW_ENGINE_MATH]);
            assert_memory_equal(ids[TW_ENGINE_LOAD], ids[TW_ENGINE_MATH],
                                n[TW_ENGINE_LOAD] * sizeof ids[0][0]);
            assert_int_equal(n[TW_ENGINE_STORE], 0);
        }
    }
}

static void loops_over_trips_have_ids_of_their_section_shared_by_both_engines(void **state) {
    (void)state;
    shared_loops = 0;
    over_the_grid(check_loops);
    assert_true(shared_loops > 500);
}

/* ---- products ---- */

/* Over all sites, each weight is read completely. */
static void every_weight_panel_is_read_by_some_site(void **state) {
    (void)state;
    for (uint32_t t = 0; t < N_GRID_TARGETS; t++) {
        struct grid_world w;
        open_shape(&w, known_shapes[1], grid_targets[t].name, grid_targets[t].host_sites);
        assert_true(build(&w, 1, 0));
        struct tw_program p = tw_builder_program(&w.program.program);
        uint64_t *bytes = calloc(p.n_tensors, sizeof *bytes);
        assert_non_null(bytes);
        for (uint32_t i = 0; i < p.n_sites * TW_ENGINE_COUNT; i++) {
            struct tw_op op;
            uint64_t times = 1;
            for (uint32_t at = 0; next_op(&p.streams[i], &at, &op);) {
                if (op.code == TW_OP_LOOP && op.operand[0].id == TW_VAR_INNER &&
                    op.operand[2].id == TW_NONE) {
                    times = op.operand[1].max;
                } else if (op.code == TW_OP_END) {
                    times = 1;
                } else if (op.code == TW_OP_READ &&
                           p.tensors[op.operand[0].id].packing == TW_PACK_PANEL16) {
                    bytes[op.operand[0].id] += times * op.operand[3].id;
                }
            }
        }
        uint32_t matrices = 0;
        for (uint32_t i = 0; i < p.n_tensors; i++) {
            if (p.tensors[i].packing == TW_PACK_PANEL16) {
                /* two sites may share a panel that the boundary of a head cuts */
                assert_true(bytes[i] >= p.tensors[i].bytes);
                assert_true(bytes[i] <= 2 * p.tensors[i].bytes);
                matrices++;
            }
        }
        assert_int_equal(matrices, 8); /* 7 per layer, and the tied embedding */
        free(bytes);
        close_world(&w);
    }
}

/* ---- building blocks ---- */

static void an_emitted_op_decodes_to_its_arguments(void **state) {
    (void)state;
    struct tw_cmem mem;
    struct tw_target target;
    struct tw_builder u;
    struct tw_strpool strings = {.mem = &mem};
    struct tw_op op;
    assert_int_equal(tw_cmem_init(&mem, NULL), 0);
    assert_int_equal(tw_target_open("sim4x4", 0, &target, NULL), 0);
    tw_builder_init(&u, &mem, &strings, &target, "unit", 4);
    struct tw_affine a =
        tw_affine_plus(tw_affine_const((uint64_t)5 << 32 | 7), TW_VAR_INNER, (uint64_t)-64);
    tw_builder_rms_norm(&u, 3, TW_ENGINE_MATH, 9, tw_in_buffer(1, a), 128,
                        tw_in_buffer(2, tw_affine_const(64)), tw_in_buffer(3, tw_affine_const(0)),
                        256, 32, 1e-5f, tw_count_const(4));
    assert_true(tw_op_decode(u.code[3 * TW_ENGINE_COUNT + TW_ENGINE_MATH].items,
                             u.code[3 * TW_ENGINE_COUNT + TW_ENGINE_MATH].n, 0, &op));
    assert_int_equal(op.stage, 9);
    assert_int_equal(op.operand[0].id, 1);
    assert_int_equal(op.operand[0].offset.base, a.base);
    assert_int_equal(op.operand[0].offset.n_terms, 1);
    assert_int_equal(term(&op.operand[0].offset, TW_VAR_INNER), (uint64_t)-64);
    assert_int_equal(op.operand[2].id * 100 + op.operand[3].id, 203);
    assert_true(tw_operand_float(&op.operand[6]) == 1e-5f);
    assert_int_equal(op.operand[7].max, 4);
    tw_cmem_finish(&mem);
}

static void strings_are_pooled_and_a_pool_can_be_rewound(void **state) {
    (void)state;
    struct tw_cmem mem;
    char name[32];
    assert_int_equal(tw_cmem_init(&mem, NULL), 0);
    struct tw_strpool pool = {.mem = &mem}, empty = pool;
    uint32_t first[300];
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 300; i++) {
            snprintf(name, sizeof name, "s%u", i);
            uint32_t at = tw_strpool_add(&pool, name);
            assert_true(round == 0 || at == first[i]);
            first[i] = at;
            assert_string_equal(pool.bytes.items + at, name);
        }
    }
    assert_int_equal(tw_strpool_add(&pool, ""), 0);
    struct tw_strpool before = pool;
    size_t used = mem.used;
    for (uint32_t i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "t%u", i);
        tw_strpool_add(&pool, name);
    }
    tw_strpool_rewind(&pool, &before);
    tw_cmem_release(&mem, used);
    assert_int_equal(pool.bytes.n, before.bytes.n);
    for (uint32_t i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "s%u", i);
        assert_int_equal(tw_strpool_add(&pool, name), first[i]);
    }
    assert_int_equal(tw_strpool_add(&pool, "t0"), before.bytes.n);
    tw_strpool_rewind(&pool, &empty);
    assert_int_equal(tw_strpool_add(&pool, "s0"), 1);
    tw_cmem_finish(&mem);
}

static void released_memory_comes_back_zeroed(void **state) {
    (void)state;
    struct tw_cmem mem;
    assert_int_equal(tw_cmem_init(&mem, NULL), 0);
    tw_cmem_alloc(&mem, 100);
    size_t used = mem.used;
    uint8_t *p = tw_cmem_alloc(&mem, 5000);
    memset(p, 0xAA, 5000);
    tw_cmem_release(&mem, used);
    uint8_t *q = tw_cmem_alloc(&mem, 5000);
    assert_ptr_equal(p, q);
    for (uint32_t i = 0; i < 5000; i++) {
        assert_int_equal(q[i], 0);
    }
    tw_cmem_finish(&mem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_section_alone_obeys_every_rule),
        cmocka_unit_test(every_wait_is_for_exactly_the_increments_of_its_iteration),
        cmocka_unit_test(thresholds_count_iterations_and_epochs),
        cmocka_unit_test(attention_waits_for_all_writers_of_its_heads_and_no_others),
        cmocka_unit_test(loops_over_trips_have_ids_of_their_section_shared_by_both_engines),
        cmocka_unit_test(every_weight_panel_is_read_by_some_site),
        cmocka_unit_test(an_emitted_op_decodes_to_its_arguments),
        cmocka_unit_test(strings_are_pooled_and_a_pool_can_be_rewound),
        cmocka_unit_test(released_memory_comes_back_zeroed),
    };
    return cmocka_run_group_tests_name("section", tests, NULL, NULL);
}
