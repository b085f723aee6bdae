/* SPDX-License-Identifier: Apache-2.0
 *
 * Params that stay in SRAM: which ones do, that all programs have them at the same offset, and that
 * only the loads change.
 */
#include "compiler/low/pin_params.h"
#include "loader/bundle/shared_params.h"
#include "tests/compiler/program_run.h"

static const struct random_shape shape = {.dim = 48,
                                          .hidden = 80,
                                          .n_layers = 3,
                                          .n_heads = 3,
                                          .n_kv_heads = 3,
                                          .head_dim = 16,
                                          .n_vocab = 33,
                                          .n_ctx = 64,
                                          .seed = 8};
static const char *const targets[] = {"host", "sim4x4", "sim4x4x2", "quad2x2"};
enum { N_TARGETS = 4 };

struct compiled {
    struct random_model model;
    struct pipeline p;
    struct pipeline_program decode, prefill;
};

static uint64_t compile(struct compiled *d, const char *target, uint32_t host_sites, bool pin) {
    tw_error err = {0};
    struct random_shape s = shape;
    assert_true(random_model_init(&d->model, &s));
    assert_int_equal(pipeline_init(&d->p, &d->model.model, target, host_sites, &err), 0);
    uint64_t bytes = pin ? tw_pin_params(&d->p.graph, &d->p.target) : 0;
    if (pipeline_program(&d->p, 1, 0, &d->decode, &err) ||
        pipeline_program(&d->p, 7, 0, &d->prefill, &err)) {
        fail_msg("%s: %s", target, err.message);
    }
    return bytes;
}

static void finish(struct compiled *d) {
    pipeline_finish(&d->p);
    random_model_finish(&d->model);
}

static void run_all(struct compiled *d, struct tw_builder *u, struct run_trace *strict,
                    struct run_trace *fast) {
    struct program_run r;
    struct run_side side = {"", &d->p.graph};
    must_prove(u);
    run_open(&r, u, &side, 1);
    run_strict(&r, TW_SCHED_RANDOM, 5, strict);
    run_fast(&r, fast);
    run_close(&r);
}

static void pinning_does_not_change_results(void **state) {
    (void)state;
    static struct run_trace expected, ignored, strict, fast;
    for (uint32_t i = 0; i < N_TARGETS; i++) {
        struct compiled plain, pinned;
        (void)compile(&plain, targets[i], 0, false);
        assert_true(compile(&pinned, targets[i], 0, true) > 0);
        for (uint32_t k = 0; k < 2; k++) {
            run_all(&plain, k ? &plain.prefill.program : &plain.decode.program, &expected,
                    &ignored);
            run_all(&pinned, k ? &pinned.prefill.program : &pinned.decode.program, &strict, &fast);
            must_agree(&expected, "", &strict);
            must_agree(&expected, "", &fast);
        }
        finish(&plain);
        finish(&pinned);
    }
}

static uint32_t n_reads(const struct tw_program *p) {
    uint32_t n = 0;
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        struct tw_op op;
        for (uint32_t at = 0; tw_op_decode(p->streams[s].words, p->streams[s].n_words, at, &op);
             at += op.n_words) {
            n += op.code == TW_OP_READ;
        }
    }
    return n;
}

static void all_programs_have_pinned_params_at_one_offset_and_load_less(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_TARGETS; i++) {
        struct compiled plain, pinned;
        (void)compile(&plain, targets[i], 0, false);
        uint64_t bytes = compile(&pinned, targets[i], 0, true), sum = 0;
        struct tw_program a = tw_builder_program(&pinned.decode.program),
                          b = tw_builder_program(&pinned.prefill.program);
        struct tw_program loading = tw_builder_program(&plain.decode.program);
        assert_true(n_reads(&a) < n_reads(&loading));
        uint32_t n[2] = {0, 0};
        for (uint32_t x = 0; x < a.n_buffers; x++) {
            if (!tw_buffer_param(&a, &a.buffers[x])) {
                continue;
            }
            n[0]++;
            sum += a.buffers[x].site == 0 ? a.buffers[x].pages * a.buffers[x].page_bytes : 0;
            bool found = false;
            for (uint32_t y = 0; y < b.n_buffers; y++) {
                found = found || (strcmp(tw_program_string(&a, a.buffers[x].name),
                                         tw_program_string(&b, b.buffers[y].name)) == 0 &&
                                  a.buffers[x].site == b.buffers[y].site &&
                                  tw_buffer_param(&b, &b.buffers[y]) &&
                                  a.buffers[x].offset == b.buffers[y].offset);
            }
            assert_true(found);
        }
        for (uint32_t y = 0; y < b.n_buffers; y++) {
            n[1] += tw_buffer_param(&b, &b.buffers[y]) != NULL;
        }
        /* frequencies, two norms of all layers, the last norm */
        assert_int_equal(n[0], 4 * a.n_sites);
        assert_int_equal(n[0], n[1]);
        assert_int_equal(sum, bytes);
        finish(&plain);
        finish(&pinned);
    }
}

/* An eighth of the SRAM, in order: 64 bytes of frequencies, two norms of three layers of 192 bytes
 * each, the last norm. */
static void params_that_do_not_fit_are_loaded(void **state) {
    (void)state;
    struct random_model model;
    struct pipeline p;
    tw_error err = {0};
    struct random_shape s = shape;
    assert_true(random_model_init(&model, &s));
    assert_int_equal(pipeline_init(&p, &model.model, "sim4x4", 0, &err), 0);
    static const uint64_t sram[] = {0, 8 * 64, 8 * (64 + 192), 8 * (64 + 3 * 192),
                                    8 * (64 + 7 * 192)};
    static const uint64_t bytes[] = {0, 64, 64 + 192, 64 + 3 * 192, 64 + 7 * 192};
    for (uint32_t i = 0; i < 5; i++) {
        for (uint32_t v = 0; v < p.graph.values.n; v++) {
            p.graph.values.items[v].resident = 0;
        }
        p.target.class_bytes[0] = sram[i];
        assert_int_equal(tw_pin_params(&p.graph, &p.target), bytes[i]);
    }
    pipeline_finish(&p);
    random_model_finish(&model);
}

/* ---- the rules ---- */

static void programs_of_a_bundle_must_agree_on_pinned_params(void **state) {
    (void)state;
    struct compiled pinned, plain;
    tw_error err = {0};
    (void)compile(&pinned, "sim4x4", 0, true);
    (void)compile(&plain, "sim4x4", 0, false);
    struct tw_program two[2] = {tw_builder_program(&pinned.decode.program),
                                tw_builder_program(&pinned.prefill.program)};
    assert_int_equal(tw_same_pinned(two, 2, &err), 0);
    assert_int_equal(tw_same_pinned(two, 1, &err), 0);
    struct tw_buffer *b = pinned.prefill.program.buffers.items;
    while (!tw_buffer_param(&two[1], b)) {
        b++;
    }
    b->offset += 64;
    assert_int_equal(tw_same_pinned(two, 2, &err), TW_E_VERIFY);
    assert_non_null(strstr(err.message, "rule 26 memory_apart: program decode keeps param "));
    b->offset -= 64;
    two[1] = tw_builder_program(&plain.prefill.program);
    assert_int_equal(tw_same_pinned(two, 2, &err), TW_E_VERIFY);
    two[0] = tw_builder_program(&plain.decode.program);
    assert_int_equal(tw_same_pinned(two, 2, &err), 0);
    finish(&pinned);
    finish(&plain);
}

static void expect(struct tw_builder *u, const char *message) {
    struct tw_program p = tw_builder_program(u);
    tw_error err = {0};
    assert_int_equal(tw_verify_program(&p, NULL, &err), TW_E_VERIFY);
    if (!strstr(err.message, message)) {
        fail_msg("expected %s, found %s", message, err.message);
    }
}

static void the_rules_refuse_params_that_a_device_cannot_fill_or_that_ops_write(void **state) {
    (void)state;
    struct compiled d;
    (void)compile(&d, "host", 1, true);
    struct tw_builder *u = &d.decode.program;
    must_prove(u);
    uint32_t id = 0;
    while (u->buffers.items[id].tensor == TW_NONE || u->buffers.items[id].pages != 3) {
        id++;
    }
    struct tw_buffer *b = &u->buffers.items[id], whole = *b;
    b->pages = 2;
    expect(u, "rule 4 buffer_placed");
    *b = whole;
    b->page_bytes -= 64;
    expect(u, "rule 4 buffer_placed");
    *b = whole;
    b->kind = TW_BUF_SCRATCH;
    expect(u, "rule 4 buffer_placed");
    *b = whole;
    b->page_bytes += 64;
    expect(u, "rule 4 buffer_placed");
    *b = whole;
    uint32_t n = 0;
    for (uint32_t i = 0; i < u->buffers.n; i++) { /* a buffer that ops write becomes the Param's */
        struct tw_buffer *x = &u->buffers.items[i], old = *x;
        if (x->tensor != TW_NONE || x->kind != TW_BUF_RESIDENT || x->dtype != TW_DT_F32) {
            continue;
        }
        x->tensor = whole.tensor;
        x->pages = 3;
        x->page_bytes = 192;
        struct tw_program p = tw_builder_program(u);
        tw_error err = {0};
        assert_int_equal(tw_verify_program(&p, NULL, &err), TW_E_VERIFY);
        n += strstr(err.message, "rule 9 roles_kept") && strstr(err.message, "which keeps a param");
        *x = old;
    }
    assert_true(n > 0);
    must_prove(u);
    finish(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pinning_does_not_change_results),
        cmocka_unit_test(all_programs_have_pinned_params_at_one_offset_and_load_less),
        cmocka_unit_test(params_that_do_not_fit_are_loaded),
        cmocka_unit_test(programs_of_a_bundle_must_agree_on_pinned_params),
        cmocka_unit_test(the_rules_refuse_params_that_a_device_cannot_fill_or_that_ops_write),
    };
    return cmocka_run_group_tests_name("pin_params", tests, NULL, NULL);
}
