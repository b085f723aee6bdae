/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of every type of weights, and of several types in one file, as they are stored: compiled,
 * run on the emulator and compared with the goldens of the shared data, token by token and in
 * parts, on every target.
 */
#include "tests/support/arch_golden.h"
#include "tests/support/bundle_fixture.h"
#include "tests/support/golden.h"
#include "tests/support/test.h"

#include <unistd.h>

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

/* Sanitized programs are slow: some of the models. */
enum { STEP = TEST_ASAN ? 3 : 1 };

/* With float activations: against the exact logits. */
static void check(const char *const names[], size_t n, bool floats, uint32_t n_targets) {
    const struct tw_compile_options o = {
        .size = sizeof o, .host_sites = 2, .n_ctx = 256, .activations = floats ? "f32" : NULL};
    need_data();
    for (size_t i = 0; i < n; i += STEP) {
        double largest = arch_golden_check(folder, names[i], floats, &o, targets, n_targets);
        print_message("%-22s %g\n", names[i], largest);
    }
}

/* Their rows are multiples of 256 and others, so each holds three to five types. */
static void mixtures_of_types_meet_their_goldens_on_every_target(void **state) {
    static const char *const names[] = {"llama-256-Q2_K", "llama-256-Q3_K_M", "llama-256-Q4_K_M",
                                        "llama-256-Q5_K_M"};
    (void)state;
    check(names, sizeof names / sizeof names[0], false, 3);
    check(names, sizeof names / sizeof names[0], true, 1);
    check(names + 2, 1, true, 3);
}

static void each_type_meets_its_goldens(void **state) {
    static const char *const names[] = {
        "llama-256x1-Q4_0", "llama-256x1-Q4_1",   "llama-256x1-Q5_0",  "llama-256x1-Q5_1",
        "llama-256x1-Q8_0", "llama-256x1-Q6_K",   "llama-llama3-Q8_0", "llama-linear-Q8_0",
        "llama-hd-Q8_0",    "llama-256x1-IQ4_NL", "llama-256x1-IQ4_XS"};
    (void)state;
    check(names, sizeof names / sizeof names[0], false, 1);
    check(names, sizeof names / sizeof names[0], true, 1);
}

static void types_of_other_architectures_meet_their_goldens(void **state) {
    static const char *const types[] = {"Q2_K", "Q3_K_M", "Q4_0", "Q4_1", "Q4_K_M", "Q5_0",
                                        "Q5_1", "Q5_K_M", "Q6_K", "Q8_0", "IQ4_NL", "IQ4_XS"},
                             *const models[] = {"qwen2-256", "qwen3-256", "gemma3-256"};
    (void)state;
    for (size_t i = 0; i < 36; i += TEST_ASAN ? 7 : 1) {
        char name[64];
        const char *one = name;
        snprintf(name, sizeof name, "%s-%s", models[i % 3], types[i / 3]);
        check(&one, 1, i / 3 % 2, 1);
    }
    static const char *const others[] = {"qwen2-tied-Q8_0", "qwen2-untied-Q8_0",
                                         "qwen3-tied-Q8_0", "gemma2-Q8_0",
                                         "gemma3-Q8_0",     "gemma3-linear-Q8_0"};
    check(others, sizeof others / sizeof others[0], false, 1);
}

/* ---- converting weights ---- */

static void compile(const char *name, const char *quant, char bundle[]) {
    const struct tw_compile_options o = {.size = sizeof o, .host_sites = 2, .quant = quant};
    char path[4200];
    tw_error err = {0};
    int fd = mkstemp(bundle);
    assert_true(fd >= 0);
    close(fd);
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    if (tw_compile_file(path, bundle, &o, NULL, &err)) {
        fail_msg("%s", err.message);
    }
}

/* The Q8_0 files were made from the F32 ones by another program. */
static void converting_gives_the_bundle_of_the_converted_file(void **state) {
    static const char *const names[] = {"llama-llama3", "llama-hd", "llama-linear"};
    (void)state;
    need_data();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char a[] = "/tmp/tw-types-XXXXXX", b[] = "/tmp/tw-types-XXXXXX", name[64];
        size_t a_size, b_size;
        snprintf(name, sizeof name, "%s-F32", names[i]);
        compile(name, "q8_0", a);
        snprintf(name, sizeof name, "%s-Q8_0", names[i]);
        compile(name, NULL, b);
        uint8_t *x = bundle_fixture_read(a, &a_size), *y = bundle_fixture_read(b, &b_size);
        assert_non_null(x);
        assert_non_null(y);
        assert_int_equal(a_size, b_size);
        assert_memory_equal(x, y, a_size);
        free(x);
        free(y);
        unlink(a);
        unlink(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixtures_of_types_meet_their_goldens_on_every_target),
        cmocka_unit_test(each_type_meets_its_goldens),
        cmocka_unit_test(types_of_other_architectures_meet_their_goldens),
        cmocka_unit_test(converting_gives_the_bundle_of_the_converted_file),
    };
    return cmocka_run_group_tests_name("types", tests, NULL, NULL);
}
