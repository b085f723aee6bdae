/* SPDX-License-Identifier: Apache-2.0
 *
 * Sections are proved alone: compiled ones pass, and one that lost a wait is refused by name before
 * any program is composed.
 */
#include "compiler/spatial/section_proof.h"
#include "tests/support/compile_stages.h"
#include "tests/support/test.h"

static const struct random_shape shape = {.dim = 64,
                                          .hidden = 128,
                                          .n_layers = 2,
                                          .n_heads = 4,
                                          .n_kv_heads = 2,
                                          .head_dim = 16,
                                          .n_vocab = 96,
                                          .n_ctx = 64,
                                          .dtype = TW_DT_F32};

struct made {
    struct random_model model;
    struct pipeline stages;
    struct pipeline_program program;
};

static void make(struct made *m, const char *target, uint32_t rows) {
    tw_error err = {0};
    assert_true(random_model_init(&m->model, &shape));
    if (pipeline_init(&m->stages, &m->model.model, target, 4, &err) ||
        pipeline_program(&m->stages, rows, 0, &m->program, &err)) {
        fail_msg("%s: %s", target, err.message);
    }
}

static void finish(struct made *m) {
    pipeline_finish(&m->stages);
    random_model_finish(&m->model);
}

static void compiled_sections_are_proved_alone(void **state) {
    static const char *const targets[] = {"host", "sim4x4", "sim4x4x2"};
    struct made m;
    tw_error err = {0};
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        make(&m, targets[i / 2], i % 2 ? 5 : 1);
        for (uint32_t s = 0; s < m.stages.graph.regions.n; s++) {
            if (tw_section_prove(m.program.sections[s], &err) != 0) {
                fail_msg("%s", err.message);
            }
        }
        finish(&m);
    }
}

/* Removes wait number n for a flag. Returns false if there are fewer. */
static bool remove_wait(struct tw_builder *s, uint32_t n) {
    for (uint32_t i = 0; i < s->n_sites * TW_ENGINE_COUNT; i++) {
        struct tw_op op;
        for (uint32_t at = 0; tw_op_decode(s->code[i].items, s->code[i].n, at, &op);
             at += op.n_words) {
            if (op.code == TW_OP_SEM_WAIT && n-- == 0) {
                memmove(s->code[i].items + at, s->code[i].items + at + op.n_words,
                        (s->code[i].n - at - op.n_words) * sizeof *s->code[i].items);
                s->code[i].n -= op.n_words;
                return true;
            }
        }
    }
    return false;
}

static void a_section_without_a_wait_is_refused_by_name(void **state) {
    uint32_t refused = 0;
    (void)state;
    for (uint32_t n = 0;; n++) {
        struct made m;
        tw_error err = {0};
        make(&m, "sim4x4", 1);
        struct tw_builder *layer = m.program.sections[1];
        bool removed = remove_wait(layer, n);
        int rc = removed ? tw_section_prove(layer, &err) : 0; /* not every wait is needed */
        if (rc) {
            char begin[120];
            snprintf(begin, sizeof begin, "section %s: rule ", layer->name);
            assert_int_equal(rc, TW_E_VERIFY);
            assert_memory_equal(err.message, begin, strlen(begin));
            refused++;
        }
        finish(&m);
        if (!removed || n == 12) {
            break;
        }
    }
    assert_true(refused >= 6);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(compiled_sections_are_proved_alone),
        cmocka_unit_test(a_section_without_a_wait_is_refused_by_name),
    };
    return cmocka_run_group_tests_name("section proof", tests, NULL, NULL);
}
