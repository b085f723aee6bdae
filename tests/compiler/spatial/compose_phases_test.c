/* SPDX-License-Identifier: Apache-2.0
 *
 * Phases: two decoders in one program, on different sites or on the same ones, compute what each
 * computes alone, in strict and in fast mode; sections that must not run at the same time are
 * refused.
 */
#include "compiler/spatial/retarget.h"
#include "tests/compiler/program_run.h"

static const struct random_shape twin_shapes[2] = {
    {.dim = 32,
     .hidden = 64,
     .n_layers = 3,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 8,
     .n_vocab = 40,
     .n_ctx = 64,
     .dtype = TW_DT_Q8_0,
     .seed = 3},
    {.dim = 48,
     .hidden = 80,
     .n_layers = 5,
     .n_heads = 3,
     .n_kv_heads = 3,
     .head_dim = 16,
     .n_vocab = 33,
     .n_ctx = 64,
     .dtype = TW_DT_F32,
     .tied = true,
     .seed = 8},
};
static const char *const twin_prefix[2] = {"a.", "b."};

/* Two models compiled for a mesh of 2 x 4, and a target with room for both: of 4 x 4 sites, or of
 * two chips of 2 x 4. */
struct twins {
    struct random_model model[2];
    struct pipeline p[2];
    struct pipeline_program program[2];
    struct tw_target wide;
    struct run_side sides[2];
};

static void open_twins(struct twins *t, uint32_t rows) {
    tw_error err = {0};
    for (uint32_t i = 0; i < 2; i++) {
        struct random_shape shape = twin_shapes[i];
        assert_true(random_model_init(&t->model[i], &shape));
        assert_int_equal(pipeline_init(&t->p[i], &t->model[i].model, "sim4x4", 0, &err), 0);
        t->wide = t->p[i].target;
        t->p[i].target.width = 2;
        t->p[i].target.class_bytes[0] = 200000;
        if (pipeline_program(&t->p[i], rows, 0, &t->program[i], &err)) {
            fail_msg("%s", err.message);
        }
        t->sides[i] = (struct run_side){twin_prefix[i], &t->p[i].graph};
    }
}

static void close_twins(struct twins *t) {
    for (uint32_t i = 0; i < 2; i++) {
        pipeline_finish(&t->p[i]);
        random_model_finish(&t->model[i]);
    }
}

/* Moves the sections of both models, under different names, in the order embed, layer, head, each
 * pair one phase. x[i] is the column of model i's first site, in one row of chips. */
static void side_by_side(struct twins *t, const uint32_t x[2], struct tw_builder *sections,
                         struct tw_builder **list, uint32_t *phases) {
    for (uint32_t k = 0; k < 6; k++) {
        struct tw_retarget how = {.target = &t->wide,
                                  .x = x[k % 2] % t->wide.width,
                                  .chip = x[k % 2] / t->wide.width,
                                  .prefix = twin_prefix[k % 2]};
        tw_error err = {0};
        if (tw_section_retarget(t->program[k % 2].sections[k / 2], &how, &t->p[0].mem,
                                &t->p[0].strings, &sections[k], &err)) {
            fail_msg("%s", err.message);
        }
        list[k] = &sections[k];
        phases[k] = k / 2;
    }
}

static void compose_twins(struct twins *t, const uint32_t x[2], struct tw_builder *out) {
    static struct tw_builder sections[6];
    struct tw_builder *list[6];
    uint32_t phases[6];
    tw_error err = {0};
    side_by_side(t, x, sections, list, phases);
    struct tw_composition c = {.name = "twins", .sections = list, .n = 6, .phases = phases};
    if (tw_compose_program(&c, out, &err)) {
        fail_msg("%s", err.message);
    }
    must_prove(out);
}

/* Makes the halves of the mesh two chips with a link between them. */
static void two_chips(struct twins *t) {
    t->wide.width /= 2;
    t->wide.n_chips = 2;
    t->wide.chip_link_bytes_per_cycle = 8;
}

static void run_alone(struct twins *t, uint32_t i, struct run_trace *out) {
    struct program_run r;
    struct run_side side = {"", &t->p[i].graph};
    must_prove(&t->program[i].program);
    run_open(&r, &t->program[i].program, &side, 1);
    run_strict(&r, TW_SCHED_CANONICAL, 0, out);
    run_close(&r);
}

static void check_twins(const uint32_t x[2], bool on_chips) {
    struct twins t;
    static struct run_trace alone[2], together;
    struct tw_builder whole;
    struct program_run r;
    open_twins(&t, 1);
    for (uint32_t i = 0; i < 2; i++) {
        run_alone(&t, i, &alone[i]);
    }
    if (on_chips) {
        two_chips(&t);
    }
    compose_twins(&t, x, &whole);
    assert_int_equal(whole.sections.n, 4); /* embed, three layers of both, two more of b, head */
    run_open(&r, &whole, t.sides, 2);
    for (uint32_t mode = 0; mode < 4; mode++) {
        if (mode == 3) {
            run_fast(&r, &together);
        } else {
            run_strict(&r, mode ? TW_SCHED_RANDOM : TW_SCHED_CANONICAL, mode * 100, &together);
        }
        for (uint32_t i = 0; i < 2; i++) {
            must_agree(&alone[i], twin_prefix[i], &together);
        }
    }
    run_close(&r);
    close_twins(&t);
}

static void decoders_on_halves_of_a_mesh_compute_what_each_does_alone(void **state) {
    (void)state;
    check_twins((const uint32_t[]){0, 2}, false);
}

static void decoders_on_different_chips_compute_what_each_does_alone(void **state) {
    (void)state;
    check_twins((const uint32_t[]){0, 2}, true);
    check_twins((const uint32_t[]){2, 0}, true);
}

static void decoders_on_the_same_sites_compute_what_each_does_alone(void **state) {
    (void)state;
    check_twins((const uint32_t[]){1, 1}, false);
}

static void expect(const struct tw_composition *c, int code, const char *a, const char *b) {
    struct tw_builder out;
    tw_error err = {0};
    assert_int_equal(tw_compose_program(c, &out, &err), code);
    if (!strstr(err.message, a) || !strstr(err.message, b)) {
        fail_msg("\"%s\" does not contain \"%s\" or \"%s\"", err.message, a, b);
    }
}

/* ---- structure ---- */

static void the_engines_of_one_half_run_no_op_of_the_other(void **state) {
    (void)state;
    struct twins t;
    struct tw_builder whole;
    open_twins(&t, 1);
    compose_twins(&t, (const uint32_t[]){0, 2}, &whole);
    struct tw_program p = tw_builder_program(&whole);
    uint32_t ops[2] = {0};
    for (uint32_t s = 0; s < p.n_sites * TW_ENGINE_COUNT; s++) {
        struct tw_op op;
        for (uint32_t at = 0; next_op(&p.streams[s], &at, &op);) {
            const char *origin = tw_program_string(&p, p.stages[op.stage].origin);
            uint32_t half = p.streams[s].site % 4 / 2;
            assert_int_equal(p.stages[op.stage].site, p.streams[s].site);
            if (!strstr(origin, "rendezvous")) {
                assert_memory_equal(origin, twin_prefix[half], 2);
                ops[half]++;
            }
        }
    }
    assert_true(ops[0] > 100 && ops[1] > 100);
    close_twins(&t);
}

static void sections_that_share_a_site_have_disjoint_memory(void **state) {
    (void)state;
    struct twins t;
    struct tw_builder whole;
    open_twins(&t, 1);
    compose_twins(&t, (const uint32_t[]){0, 0}, &whole);
    uint64_t max = 0;
    for (uint32_t k = 0; k < 3; k++) {
        uint64_t sum =
            t.program[0].sections[k]->private_bytes + t.program[1].sections[k]->private_bytes;
        max = sum > max ? sum : max;
    }
    assert_int_equal(whole.private_bytes, max);
    close_twins(&t);
}

/* Bytes that the fullest of the sites in columns [x, x + 2) needs. */
static uint64_t bytes_in_columns(const struct tw_program *p, uint32_t x) {
    uint64_t max = 0;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const struct tw_buffer *b = &p->buffers[i];
        uint64_t end = b->offset + b->pages * b->page_bytes;
        max = b->site % p->mesh_width / 2 == x / 2 && end > max ? end : max;
    }
    return max;
}

/* Two decoders on halves of a mesh need on each half exactly what the one there needs alone,
 * including sets of siblings and activations. */
static void memory_of_sections_on_different_sites_does_not_add_up(void **state) {
    (void)state;
    struct twins t;
    for (int colour = 0; colour < 2; colour++) {
        static struct tw_builder sections[6];
        struct tw_builder *list[6], whole, alone;
        uint32_t phases[6];
        tw_error err = {0};
        open_twins(&t, 1);
        side_by_side(&t, (const uint32_t[]){0, 2}, sections, list, phases);
        uint64_t need[2];
        for (uint32_t i = 0; i < 2; i++) {
            struct tw_composition one = {
                .name = "one", .sections = t.program[i].sections, .n = 3, .colour = (bool)colour};
            assert_int_equal(tw_compose_program(&one, &alone, &err), 0);
            struct tw_program p = tw_builder_program(&alone);
            need[i] = bytes_in_columns(&p, 0);
        }
        t.wide.class_bytes[0] = need[0] > need[1] ? need[0] : need[1];
        struct tw_composition c = {
            .name = "twins", .sections = list, .n = 6, .phases = phases, .colour = (bool)colour};
        if (tw_compose_program(&c, &whole, &err)) {
            fail_msg("%s", err.message);
        }
        must_prove(&whole);
        struct tw_program p = tw_builder_program(&whole);
        assert_int_equal(bytes_in_columns(&p, 0), need[0]);
        assert_int_equal(bytes_in_columns(&p, 2), need[1]);
        t.wide.class_bytes[0] -= 64;
        expect(&c, TW_E_PLACEMENT, "compose: phase_overflow: ", "run at the same time");
        close_twins(&t);
    }
}

static void a_moved_section_alone_is_a_valid_program(void **state) {
    (void)state;
    struct twins t;
    open_twins(&t, 7);
    for (uint32_t x = 0; x <= 2; x++) {
        for (uint32_t k = 0; k < 3; k++) {
            struct tw_retarget how = {.target = &t.wide, .x = x, .prefix = "moved."};
            struct tw_builder moved, alone, *list[1] = {&moved};
            assert_int_equal(tw_section_retarget(t.program[0].sections[k], &how, &t.p[0].mem,
                                                 &t.p[0].strings, &moved, NULL),
                             0);
            assert_int_equal(tw_compose(list, 1, moved.name, &alone, NULL), 0);
            struct tw_program p = tw_builder_program(&alone);
            tw_error err = {0};
            if (tw_verify_program(&p, NULL, &err)) {
                fail_msg("%s", err.message);
            }
        }
    }
    close_twins(&t);
}

/* The layers cut into sections of one or more iterations give the same results. */
static void a_section_cut_into_parts_computes_the_same(void **state) {
    (void)state;
    struct twins t;
    static struct run_trace whole, cut;
    open_twins(&t, 1);
    run_alone(&t, 1, &whole);
    for (uint32_t part = 1; part < 5; part++) {
        struct tw_builder parts[5], program, *list[7] = {t.program[1].sections[0]};
        uint32_t n = 1;
        for (uint32_t first = 0; first < 5; first += part, n++) {
            struct tw_retarget how = {.first = first, .count = first + part < 5 ? part : 5 - first};
            assert_int_equal(tw_section_retarget(t.program[1].sections[1], &how, &t.p[1].mem,
                                                 &t.p[1].strings, &parts[n - 1], NULL),
                             0);
            list[n] = &parts[n - 1];
        }
        list[n++] = t.program[1].sections[2];
        struct tw_composition c = {.name = "cut", .sections = list, .n = n};
        tw_error err = {0};
        if (tw_compose_program(&c, &program, &err)) {
            fail_msg("%s", err.message);
        }
        must_prove(&program);
        struct program_run r;
        struct run_side side = {"", &t.p[1].graph};
        run_open(&r, &program, &side, 1);
        run_strict(&r, TW_SCHED_RANDOM, part, &cut);
        must_agree(&whole, "", &cut);
        run_fast(&r, &cut);
        must_agree(&whole, "", &cut);
        run_close(&r);
    }
    close_twins(&t);
}

/* ---- refusals ---- */

static void dependent_sections_in_one_phase_are_refused(void **state) {
    (void)state;
    struct twins t;
    open_twins(&t, 1);
    static const uint32_t phases[2][3] = {{0, 0, 1}, {0, 1, 1}};
    static const char *const names[2] = {
        "tensor x is written by section embed and touched by section layer, which runs at the same "
        "time",
        "tensor x is written by section layer and touched by section head"};
    for (uint32_t i = 0; i < 2; i++) {
        struct tw_composition c = {
            .name = "p", .sections = t.program[0].sections, .n = 3, .phases = phases[i]};
        expect(&c, TW_E_INTERNAL, "compose: phase_crossing: ", names[i]);
    }
    close_twins(&t);
}

static void phases_that_need_too_much_memory_are_refused_with_the_numbers(void **state) {
    (void)state;
    struct twins t;
    static struct tw_builder sections[6];
    struct tw_builder *list[6], out;
    uint32_t phases[6];
    char need[64], available[64];
    open_twins(&t, 1);
    side_by_side(&t, (const uint32_t[]){0, 0}, sections, list, phases);
    struct tw_composition c = {.name = "p", .sections = list, .n = 6, .phases = phases};
    assert_int_equal(tw_compose_program(&c, &out, NULL), 0);
    t.wide.class_bytes[0] = out.private_bytes + out.shared_bytes;
    assert_int_equal(tw_compose_program(&c, &out, NULL), 0);
    t.wide.class_bytes[0] -= 64;
    snprintf(need, sizeof need, "need %llu bytes of memory class 0",
             (unsigned long long)out.private_bytes);
    snprintf(available, sizeof available, "has %llu", (unsigned long long)t.wide.class_bytes[0]);
    expect(&c, TW_E_PLACEMENT, "compose: phase_overflow: ", need);
    expect(&c, TW_E_PLACEMENT, "run at the same time", available);
    for (uint32_t k = 0; k < 6; k++) {
        phases[k] = k; /* one after the other they fit */
    }
    assert_int_equal(tw_compose_program(&c, &out, NULL), 0);
    close_twins(&t);
}

static void a_section_that_leaves_the_mesh_is_refused(void **state) {
    (void)state;
    struct twins t;
    struct tw_builder out;
    open_twins(&t, 1);
    const struct tw_retarget bad[] = {{.target = &t.wide, .x = 3},
                                      {.target = &t.wide, .y = 1},
                                      {.target = &t.wide, .chip = 1},
                                      {.target = &t.wide, .x = UINT32_MAX},
                                      {.target = &t.p[0].target, .x = 1}};
    for (uint32_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tw_error err = {0};
        assert_int_equal(tw_section_retarget(t.program[0].sections[1], &bad[i], &t.p[0].mem,
                                             &t.p[0].strings, &out, &err),
                         TW_E_INTERNAL);
        assert_non_null(
            strstr(err.message, "compose: target_mismatch: section layer takes 2 x 4 sites"));
    }
    const struct tw_retarget cut[] = {
        {.first = 3}, {.first = 1, .count = 3}, {.first = UINT32_MAX, .count = 2}};
    for (uint32_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        assert_int_equal(tw_section_retarget(t.program[0].sections[1], &cut[i], &t.p[0].mem,
                                             &t.p[0].strings, &out, NULL),
                         TW_E_INTERNAL);
    }
    close_twins(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoders_on_halves_of_a_mesh_compute_what_each_does_alone),
        cmocka_unit_test(decoders_on_different_chips_compute_what_each_does_alone),
        cmocka_unit_test(decoders_on_the_same_sites_compute_what_each_does_alone),
        cmocka_unit_test(the_engines_of_one_half_run_no_op_of_the_other),
        cmocka_unit_test(sections_that_share_a_site_have_disjoint_memory),
        cmocka_unit_test(memory_of_sections_on_different_sites_does_not_add_up),
        cmocka_unit_test(a_moved_section_alone_is_a_valid_program),
        cmocka_unit_test(a_section_cut_into_parts_computes_the_same),
        cmocka_unit_test(dependent_sections_in_one_phase_are_refused),
        cmocka_unit_test(phases_that_need_too_much_memory_are_refused_with_the_numbers),
        cmocka_unit_test(a_section_that_leaves_the_mesh_is_refused),
    };
    return cmocka_run_group_tests_name("compose_phases", tests, NULL, NULL);
}
