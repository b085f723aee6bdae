/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiny models of all supported architectures (data/arch of the shared data): the reference
 * evaluator and the machine, on every target, against llama.cpp's logits, or exact ones where
 * llama.cpp is imprecise. Files of other architectures and types are refused by name.
 */
#include "tests/compiler/compile_kit.h"
#include "tests/support/arch_golden.h"
#include "tests/support/golden.h"
#include "tests/support/model_fixture.h"

#include <math.h>

static const char *const targets[] = {"host", "sim4x4", "grid8x8"};

static char folder[4096];

/* Skips the test without the shared data. */
static void need_data(void) {
    const char *path = golden_shared("data/arch");
    if (!path) {
        skip();
    }
    snprintf(folder, sizeof folder, "%s", path ? path : "");
}

/* exact: llama.cpp takes GELU from a table of half-precision numbers, so its logits are off. */
static const struct {
    const char *name;
    bool exact;
} models[] = {
    {"llama-llama3", false},  {"llama-linear", false}, {"llama-hd", false},
    {"llama-mistral", false}, {"qwen2-tied", false},   {"qwen2-untied", false},
    {"qwen3-tied", false},    {"qwen3-untied", false}, {"gemma2", true},
    {"gemma3", true},         {"gemma3-linear", true}, {"phi3-plain", false},
    {"phi3-long", false},     {"granite", false},      {"smollm3", false},
    {"olmo2", false},         {"olmo2-swa", false},    {"exaone4", false},
    {"exaone4-swa", false},   {"mistral3", false},     {"stablelm", false},
    {"stablelm-par", false},  {"starcoder2", true},    {"ernie4_5", false},
    {"gemma3-full", true},    {"llama-yarn", false},   {"hunyuan-dense", false},
    {"command-r", false},     {"cohere2", false},
};
#define N_MODELS (sizeof models / sizeof models[0])
/* Sanitized programs are slow: some models, on the host. */
enum { STEP = TEST_ASAN ? 5 : 1, N_TARGETS = TEST_ASAN ? 1 : 3 };

static void each_architecture_gives_its_golden_logits_on_every_target(void **state) {
    const struct tw_compile_options o = {.size = sizeof o, .host_sites = 2};
    char name[64];
    (void)state;
    need_data();
    for (size_t i = 0; i < N_MODELS; i += STEP) {
        snprintf(name, sizeof name, "%s-F32", models[i].name);
        double largest = arch_golden_check(folder, name, models[i].exact, &o, targets, N_TARGETS);
        print_message("%-22s %.1e\n", name, largest);
    }
}

/* Checks the logits of a run's positions. */
static void check_reference_run(const char *name, const struct arch_golden *g, uint32_t run,
                                struct model_fixture *f) {
    const struct arch_run *r = &g->runs[run];
    const float *logits = NULL;
    tw_error err = {0};
    for (uint32_t i = 0, p = 0; i < r->n_ids; i++) {
        assert_int_equal(tw_reference_step(f->reference, r->ids[i], &logits, &err), 0);
        if (p == r->n_positions || r->positions[p] != i) {
            continue;
        }
        for (uint32_t k = 0; k < g->n_vocab; k++) {
            double apart = fabs((double)logits[k] - (double)r->logits[(size_t)p * g->n_vocab + k]);
            if (!(apart <= r->tolerance)) {
                fail_msg("%s, run %u, position %u: logit %u is %g off", name, run, i, k, apart);
            }
        }
        p++;
    }
}

static void the_reference_evaluator_gives_them_too(void **state) {
    (void)state;
    need_data();
    for (size_t i = 0; i < N_MODELS; i += STEP) {
        char path[4200], golden[4200];
        struct arch_golden g;
        tw_error err = {0};
        snprintf(path, sizeof path, "%s/%s-F32.gguf", folder, models[i].name);
        snprintf(golden, sizeof golden, "%s/%s-F32.json", folder, models[i].name);
        assert_int_equal(arch_golden_load(golden, models[i].exact, &g, &err), 0);
        for (uint32_t run = 0; run < g.n_runs; run++) {
            struct model_fixture f;
            assert_int_equal(model_fixture_open(path, g.runs[run].n_ctx, &f, &err), 0);
            check_reference_run(models[i].name, &g, run, &f);
            model_fixture_finish(&f);
        }
        arch_golden_finish(&g);
    }
}

static void other_architectures_and_types_are_refused_by_name(void **state) {
    static const char *const cases[][2] = {
        {"qwen35-F32", "architecture \"qwen35\" is not supported yet (it has recurrent layers)"},
        {"lfm2-F32", "architecture \"lfm2\" is not supported yet (it has recurrent layers)"},
        {"falcon-h1-F32", "\"falcon-h1\" is not supported yet (it has recurrent layers)"},
        {"granitehybrid-moe-F32", "\"granitehybrid\" is not supported yet (it has recurrent"},
        {"gpt-oss-F32", "architecture \"gpt-oss\" is not supported yet (it has experts)"},
        {"qwen3moe-F32", "architecture \"qwen3moe\" is not supported yet (it has experts)"},
        {"gemma4-ple-F32", "architecture \"gemma4\" is not supported yet (it has layers of"},
        {"llama-moe-F32", "key llama.expert_count is 4, which is not supported"},
        {"llama-256x1-IQ2_XS", "tensor token_embd.weight has type"},
        {"llama-256x1-TQ1_0", "has type TQ1_0, which is not supported"},
    };
    struct compile_world *w = *state;
    char path[4300];
    need_data();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(path, sizeof path, "%s/%s.gguf", folder, cases[i][0]);
        expect_error(w, path, w->out, TW_E_UNSUPPORTED, cases[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_architecture_gives_its_golden_logits_on_every_target),
        cmocka_unit_test(the_reference_evaluator_gives_them_too),
        cmocka_unit_test_setup_teardown(other_architectures_and_types_are_refused_by_name,
                                        compile_setup, compile_teardown),
    };
    return cmocka_run_group_tests_name("architectures", tests, NULL, NULL);
}
