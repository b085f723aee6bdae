/* SPDX-License-Identifier: Apache-2.0
 *
 * Composition: programs of many models are valid on every target, close with a rendezvous linear in
 * sites, unify what has one name, and refuse what does not fit.
 */
#include "compiler/memory.h"
#include "compiler/spatial/certify.h"
#include "loader/text/print_program.h"
#include "tests/compiler/program_kit.h"

#include <unistd.h>

/* ---- validity ---- */

static void verify_program(struct grid_world *w) {
    must_verify(w, &w->program.program);
}

static void every_program_obeys_every_rule_on_every_target(void **state) {
    (void)state;
    assert_true(over_the_grid(verify_program) > 100);
}

static void every_finalist_is_a_valid_program(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 5; rank++) {
        struct grid_world w;
        open_shape(&w, known_shapes[0], "sim4x4", 0);
        for (uint32_t r = 0; r < N_GRID_ROWS; r++) {
            if (build(&w, grid_rows[r], rank < 4 ? rank : TW_PLAN_PLAINEST)) {
                must_verify(&w, &w.program.program);
            }
        }
        close_world(&w);
    }
}

/* ---- structure ---- */

static uint32_t distinct_loops;

static void check_structure(struct grid_world *w) {
    struct tw_program p = tw_builder_program(&w->program.program);
    uint32_t buffers = 0, semaphores = 0, stages = 0;
    assert_int_equal(p.n_sections, w->p.graph.regions.n);
    for (uint32_t i = 0; i < p.n_sections; i++) {
        const struct tw_section *s = &p.sections[i];
        assert_int_equal(s->repeat, w->p.graph.regions.items[i].repeat);
        assert_int_equal(s->first_buffer, buffers);
        assert_int_equal(s->first_semaphore, semaphores);
        assert_int_equal(s->first_stage, stages);
        buffers += s->n_buffers;
        semaphores += s->n_semaphores;
        stages += s->n_stages;
    }
    assert_true(buffers == p.n_buffers && semaphores == p.n_semaphores && stages == p.n_stages);
    for (uint32_t i = 0; i < p.n_tensors; i++) {
        for (uint32_t k = i + 1; k < p.n_tensors; k++) {
            assert_int_not_equal(p.tensors[i].name, p.tensors[k].name);
        }
    }
    uint32_t before = 0;
    struct tw_op op;
    for (uint32_t at = 0; next_op(&p.streams[TW_ENGINE_LOAD], &at, &op);) {
        if (op.code == TW_OP_LOOP && op.operand[2].id != TW_NONE) {
            assert_true(op.operand[2].id > before);
            before = op.operand[2].id;
            distinct_loops++;
        }
    }
}

static void sections_partition_the_ids_and_names_and_loop_ids_are_unique(void **state) {
    (void)state;
    distinct_loops = 0;
    over_the_grid(check_structure);
    assert_true(distinct_loops > 50);
}

static void an_activation_has_one_buffer_per_site_for_all_sections(void **state) {
    (void)state;
    struct grid_world w;
    uint32_t shared = 0;
    open_shape(&w, known_shapes[0], "sim4x4", 0);
    assert_true(build(&w, 32, 0));
    struct tw_program p = tw_builder_program(&w.program.program);
    for (uint32_t t = 0; t < p.n_tensors; t++) {
        uint32_t holders[16] = {0};
        for (uint32_t i = 0; i < p.n_buffers && p.tensors[t].role == TW_ROLE_ACTIVATION; i++) {
            if (p.buffers[i].tensor == t) {
                holders[p.buffers[i].site]++;
                assert_true(p.buffers[i].offset + p.buffers[i].page_bytes <=
                            w.program.program.shared_bytes);
            }
        }
        for (uint32_t s = 0; s < 16 && p.tensors[t].role == TW_ROLE_ACTIVATION; s++) {
            assert_int_equal(holders[s], 1);
            shared += s == 0;
        }
    }
    assert_int_equal(shared, 2); /* x and the rotation table */
    close_world(&w);
}

/* Private memory begins after the activations, and all of it is inside the SRAM. */
static void check_memory(struct grid_world *w) {
    struct tw_program p = tw_builder_program(&w->program.program);
    const struct tw_builder *u = &w->program.program;
    assert_true(u->shared_bytes + u->private_bytes <= p.sram_bytes[0]);
    assert_true(u->shared_bytes <= p.sram_bytes[0] - pipeline_budget(&w->p, w->program.rows));
    for (uint32_t i = 0; i < p.n_buffers; i++) {
        const struct tw_buffer *b = &p.buffers[i];
        if (b->tensor == TW_NONE) {
            assert_in_range(b->offset, u->shared_bytes, u->shared_bytes + u->private_bytes);
        }
    }
}

static void activations_and_private_memory_do_not_overlap(void **state) {
    (void)state;
    over_the_grid(check_memory);
}

/* ---- rendezvous ---- */

static uint32_t rendezvous_ops(const struct tw_program *p, const struct tw_section *section) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_sites * TW_ENGINE_COUNT; i++) {
        struct tw_op op;
        for (uint32_t at = 0; next_op(&p->streams[i], &at, &op);) {
            int flag = op.code == TW_OP_SEM_INC || op.code == TW_OP_SEM_WAIT;
            uint32_t s = op.operand[0].id;
            n += flag && (s == section->local || s == section->gather || s == section->release);
        }
    }
    return n;
}

static void expect_rendezvous(const char *target, uint32_t host_sites, uint32_t sites) {
    struct grid_world w;
    open_shape(&w, known_shapes[0], target, host_sites);
    assert_true(build(&w, 1, 0));
    struct tw_program p = tw_builder_program(&w.program.program);
    for (uint32_t i = 0; i < p.n_sections; i++) {
        assert_int_equal(rendezvous_ops(&p, &p.sections[i]), 9 * sites + 1);
    }
    close_world(&w);
}

/* Per site three arrivals, a wait and an arrival at the root, a release and three waits; one more
 * wait at the root. */
static void the_rendezvous_is_linear_in_sites(void **state) {
    (void)state;
    for (uint32_t sites = 1; sites <= 256; sites *= 2) {
        expect_rendezvous("host", sites, sites);
    }
    expect_rendezvous("sim4x4x2", 0, 32);
    expect_rendezvous("quad2x2", 0, 16);
}

/* ---- chips ---- */

/* A STORE engine sends to one chip after the other, data and then flag, with nothing between them
 * that could block. */
static void check_sends(const struct tw_program *p, uint32_t site, uint32_t *sends) {
    struct tw_op op;
    uint32_t expected = 0, open = TW_NONE;
    for (uint32_t at = 0;
         next_op(&p->streams[site * TW_ENGINE_COUNT + TW_ENGINE_STORE], &at, &op);) {
        if (op.code != TW_OP_MCAST && op.code != TW_OP_MCAST_SET) {
            assert_true(open == TW_NONE || op.code == TW_OP_POP);
            continue;
        }
        uint32_t group = op.operand[op.n_operands - 1].id;
        assert_int_equal(p->groups[group].chips, 1);
        assert_int_equal(p->groups[group].chip, expected);
        assert_int_equal(tw_group_size(&p->groups[group]), p->mesh_width * p->mesh_height);
        assert_int_equal(open, op.code == TW_OP_MCAST ? TW_NONE : group);
        open = op.code == TW_OP_MCAST ? group : TW_NONE;
        expected = op.code == TW_OP_MCAST ? expected : (expected + 1) % p->n_chips;
        *sends += op.code == TW_OP_MCAST_SET;
    }
    assert_int_equal(expected, 0);
}

static void every_value_goes_to_each_chip_in_turn_and_semaphores_span_all(void **state) {
    (void)state;
    static const char *const targets[] = {"sim4x4", "sim4x4x2", "quad2x2"};
    for (uint32_t t = 0; t < 3; t++) {
        struct grid_world w;
        uint32_t sends = 0;
        open_shape(&w, known_shapes[1], targets[t], 0);
        assert_true(build(&w, 32, TW_PLAN_PLAINEST) || build(&w, 1, 0));
        struct tw_program p = tw_builder_program(&w.program.program);
        for (uint32_t i = 0; i < p.n_semaphores; i++) {
            assert_int_equal(tw_group_size(&p.groups[p.semaphores[i].group]), p.n_sites);
        }
        for (uint32_t site = 0; site < p.n_sites; site++) {
            check_sends(&p, site, &sends);
        }
        assert_true(sends >= p.n_chips * p.n_sites);
        close_world(&w);
    }
}

/* ---- determinism ---- */

static char *program_text(struct tw_builder *u) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    struct tw_program p = tw_builder_program(u);
    assert_non_null(f);
    assert_int_equal(tw_program_print_file(&p, TW_PRINT_ALL, f, NULL), 0);
    assert_int_equal(fclose(f), 0);
    return text;
}

static void two_builds_print_equal_programs(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_KNOWN_SHAPES; i++) {
        char *text[2];
        for (uint32_t k = 0; k < 2; k++) {
            struct grid_world w;
            open_shape(&w, known_shapes[i], "sim4x4", 0);
            assert_true(build(&w, 7, 1));
            text[k] = program_text(&w.program.program);
            close_world(&w);
        }
        assert_true(strlen(text[0]) > 10000);
        assert_string_equal(text[0], text[1]);
        free(text[0]);
        free(text[1]);
    }
}

/* ---- refusals ---- */

static void expect_refused(struct grid_world *w, int code, const char *a, const char *b) {
    struct tw_builder out;
    tw_error err = {0};
    assert_int_equal(tw_compose(w->program.sections, 3, "program", &out, &err), code);
    if (!strstr(err.message, a) || !strstr(err.message, b)) {
        fail_msg("\"%s\" does not contain \"%s\" or \"%s\"", err.message, a, b);
    }
}

static void a_tensor_that_differs_between_sections_is_refused_by_name(void **state) {
    (void)state;
    struct grid_world w;
    open_shape(&w, known_shapes[0], "sim4x4", 0);
    assert_true(build(&w, 7, 0));
    struct tw_builder *layer = w.program.sections[1];
    struct tw_tensor *x = &layer->tensors.items[tw_builder_tensor(layer, "x")], good = *x;
    for (uint32_t i = 0; i < 6; i++) {
        x->rows += i == 0;
        x->cols += i == 1;
        x->dtype = i == 2 ? TW_DT_F16 : good.dtype;
        x->packing = i == 3 ? TW_PACK_PANEL16 : good.packing;
        x->role = i == 4 ? TW_ROLE_STATE : good.role;
        x->bind_count += i == 5;
        expect_refused(&w, TW_E_INTERNAL, "tensor x ", "section layer");
        *x = good;
    }
    struct tw_builder out;
    assert_int_equal(tw_compose(w.program.sections, 3, "program", &out, NULL), 0);
    must_verify(&w, &out);
    close_world(&w);
}

static void memory_overflow_is_refused_with_the_numbers(void **state) {
    (void)state;
    struct grid_world w;
    char need[32], available[64];
    open_shape(&w, known_shapes[0], "sim4x4", 0);
    assert_true(build(&w, 32, 0));
    uint64_t private = w.program.sections[1]->private_bytes,
             shared = w.program.program.shared_bytes;
    assert_int_equal(private, w.program.program.private_bytes); /* the layer is the widest */
    w.p.target.class_bytes[0] = private + shared;
    struct tw_builder out;
    assert_int_equal(tw_compose(w.program.sections, 3, "program", &out, NULL), 0);
    w.p.target.class_bytes[0] -= 64;
    snprintf(need, sizeof need, "layer needs %llu bytes", (unsigned long long)private);
    snprintf(available, sizeof available,
             "activations need %llu, but a site of target sim4x4 has %llu",
             (unsigned long long)shared, (unsigned long long)w.p.target.class_bytes[0]);
    expect_refused(&w, TW_E_PLACEMENT, need, available);
    close_world(&w);
}

static void code_that_does_not_decode_is_refused(void **state) {
    (void)state;
    struct grid_world w;
    open_shape(&w, known_shapes[0], "host", 2);
    assert_true(build(&w, 1, 0));
    w.program.sections[2]->code[TW_ENGINE_MATH].items[0] = 0xFFFF;
    expect_refused(&w, TW_E_INTERNAL, "section head", "does not decode");
    close_world(&w);
}

/* ---- memory of the compiler ---- */

/* A compilation takes from its arena: both programs with their certificates, and each section
 * alone. */
static void check_arena(struct random_shape shape, const char *target, uint32_t host_sites) {
    struct grid_world w;
    open_shape(&w, shape, target, host_sites);
    for (uint32_t i = 0; i < 2; i++) {
        if (build(&w, i ? 7 : 1, 0)) {
            verify_sections_alone(&w);
            struct tw_program view = tw_builder_program(&w.program.program);
            struct tw_certificate certificate;
            assert_int_equal(tw_verify_program(&view, NULL, NULL), 0);
            assert_int_equal(tw_certify(&w.p.mem, &view, &certificate, NULL), 0);
        }
    }
    uint64_t bound =
        tw_compile_memory(&w.model.model.h, &w.p.target, (uint32_t)w.p.graph.regions.n - 2, 0);
    if (w.p.mem.used > bound * 3 / 4) {
        fail_msg("%s on %s x %u: %zu bytes used, bound %llu", random_shape_text(&w.shape), target,
                 tw_target_sites(&w.p.target), w.p.mem.used, (unsigned long long)bound);
    }
    close_world(&w);
}

/* The same of a batch, whose attention is emitted row by row. */
static void check_batch_arena(struct random_shape shape, const char *target, uint32_t host_sites) {
    const uint32_t rows = 16;
    struct grid_world w;
    struct tw_certificate certificate;
    open_shape(&w, shape, target, host_sites);
    w.p.config.kv_pages = w.p.config.n_positions / TW_KV_BLOCK;
    w.p.config.batch = true;
    size_t before = w.p.mem.used;
    if (build(&w, rows, 0)) {
        verify_sections_alone(&w);
        struct tw_program view = tw_builder_program(&w.program.program);
        assert_int_equal(tw_verify_program(&view, NULL, NULL), 0);
        assert_int_equal(tw_certify(&w.p.mem, &view, &certificate, NULL), 0);
        uint32_t bodies = (uint32_t)w.p.graph.regions.n - 2;
        const struct tw_hparams *h = &w.model.model.h;
        uint64_t bound = tw_compile_memory(h, &w.p.target, bodies, rows) -
                         tw_compile_memory(h, &w.p.target, bodies, rows / 2),
                 used = w.p.mem.used - before;
        if (used > bound * 3 / 4) {
            fail_msg("%s on %s x %u: a batch takes %llu bytes, bound %llu",
                     random_shape_text(&w.shape), target, tw_target_sites(&w.p.target),
                     (unsigned long long)used, (unsigned long long)bound);
        }
    }
    close_world(&w);
}

/* 64 chips of 4 sites: every exchanged value is sent 64 times. */
static void check_many_chips(struct random_shape shape) {
    static const char text[] =
        "{\"name\":\"many\",\"chips\":64,\"width\":2,\"height\":2,\"sram_bytes\":1048576,\"banks\":"
        "1,\"clock_hz\":1e9,"
        "\"dram_bytes_per_cycle\":64,\"site_load_bytes_per_cycle\":16,\"fma_per_cycle\":64,\"int8_"
        "mac_per_cycle\":256,"
        "\"vector_per_cycle\":16,\"link_bytes_per_cycle\":32,\"sync_cycles\":50,\"call_cycles\":20,"
        "\"chip_link_bytes_per_cycle\":1e6,\"chip_link_cycles\":0}";
    char path[] = "/tmp/tw-chips-XXXXXX.json";
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    close(fd);
    check_arena(shape, path, 0);
    unlink(path);
}

static void the_arena_stays_well_below_its_bound(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        check_arena(random_shape_of(i), grid_targets[i % N_GRID_TARGETS].name,
                    grid_targets[i % N_GRID_TARGETS].host_sites);
    }
    for (uint32_t i = 0; i < N_GRID_TARGETS; i++) {
        check_batch_arena(known_shapes[i % N_KNOWN_SHAPES], grid_targets[i].name,
                          grid_targets[i].host_sites);
    }
    struct random_shape s = known_shapes[2];
    check_batch_arena(s, "host", 2); /* 128 key heads */
    s.n_heads = s.n_kv_heads = 256;
    check_arena(s, "host", 256);
    s.n_heads = s.n_kv_heads = 8192;
    check_arena(s, "host", 2);
    check_arena(s, "host", 64);
    s.n_kv_heads = 1;
    check_arena(s, "host", 256);
    s = known_shapes[0];
    s.n_layers = 4096;
    check_arena(s, "sim4x4", 0);
    check_many_chips(known_shapes[0]);
    for (uint32_t sites = 1; sites <= 256; sites += 17) {
        check_arena(known_shapes[sites % N_KNOWN_SHAPES], "host", sites);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_program_obeys_every_rule_on_every_target),
        cmocka_unit_test(every_finalist_is_a_valid_program),
        cmocka_unit_test(sections_partition_the_ids_and_names_and_loop_ids_are_unique),
        cmocka_unit_test(an_activation_has_one_buffer_per_site_for_all_sections),
        cmocka_unit_test(activations_and_private_memory_do_not_overlap),
        cmocka_unit_test(the_rendezvous_is_linear_in_sites),
        cmocka_unit_test(every_value_goes_to_each_chip_in_turn_and_semaphores_span_all),
        cmocka_unit_test(two_builds_print_equal_programs),
        cmocka_unit_test(a_tensor_that_differs_between_sections_is_refused_by_name),
        cmocka_unit_test(memory_overflow_is_refused_with_the_numbers),
        cmocka_unit_test(code_that_does_not_decode_is_refused),
        cmocka_unit_test(the_arena_stays_well_below_its_bound),
    };
    return cmocka_run_group_tests_name("compose", tests, NULL, NULL);
}
