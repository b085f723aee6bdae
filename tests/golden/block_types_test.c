/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of every quantised type against the logits in shared data: the reference evaluator, which
 * computes in float with the weights of the file, against exact ones (what a weight means), and the
 * machine, which also rounds activations to 8 bits, against llama.cpp's within the tolerance that
 * the golden states. The machine's bits do not depend on target, mode, chunk, threads or
 * instruction set. Types that are not supported are refused by tensor and type.
 */
#include "firmware/kernels/kernels.h"
#include "tests/support/command_run.h"
#include "tests/support/golden.h"
#include "tests/support/model_fixture.h"
#include "tests/support/test.h"

#include <jansson.h>
#include <math.h>

static const char *const models[] = {
    "llama-256-Q2_K",   "llama-256-Q3_K_M", "llama-256-Q4_K_M",   "llama-256-Q5_K_M",
    "llama-256x1-Q4_0", "llama-256x1-Q4_1", "llama-256x1-Q5_0",   "llama-256x1-Q5_1",
    "llama-256x1-Q6_K", "llama-256x1-Q8_0", "llama-256x1-IQ4_NL", "llama-256x1-IQ4_XS",
};
enum { N_MODELS = sizeof models / sizeof models[0] };

struct subject {
    char path[1024];
    json_t *golden;
};

static void path_of(const char *name, const char *ending, char path[1024]) {
    char rest[512];
    snprintf(rest, sizeof rest, "data/arch/%s%s", name, ending);
    const char *full = golden_shared(rest);
    if (!full) {
        skip();
    }
    snprintf(path, 1024, "%s", full);
}

static struct subject open_subject(const char *name) {
    struct subject s;
    char golden[1024];
    path_of(name, ".gguf", s.path);
    path_of(name, ".json", golden);
    s.golden = json_load_file(golden, 0, NULL);
    assert_non_null(s.golden);
    return s;
}

/* The ids of a run; returns their number. */
static uint32_t run_ids(const json_t *run, uint32_t ids[64]) {
    const json_t *list = json_object_get(run, "ids");
    uint32_t n = (uint32_t)json_array_size(list);
    assert_true(n <= 64);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    }
    return n;
}

static uint32_t position_of(const json_t *at, size_t i) {
    return (uint32_t)json_integer_value(json_array_get(json_object_get(at, "positions"), i));
}

/* Returns the largest difference from the logits of position number i. */
static double difference(const json_t *at, size_t i, const float *logits) {
    const json_t *expected = json_array_get(json_object_get(at, "logits"), i);
    double worst = 0;
    for (size_t k = 0; k < json_array_size(expected); k++) {
        double d = fabs((double)logits[k] - json_number_value(json_array_get(expected, k)));
        worst = d > worst || d != d ? d : worst;
    }
    return worst;
}

/* ---- weights ---- */

static void check_exact_run(const char *name, struct model_fixture *f, const json_t *exact,
                            const json_t *run) {
    uint32_t ids[64], n = run_ids(run, ids);
    size_t next = 0;
    double tolerance = json_number_value(json_object_get(exact, "tolerance"));
    tw_error err = {0};
    assert_int_equal(model_fixture_restart(f, &err), 0);
    for (uint32_t t = 0; t < n; t++) {
        const float *logits;
        assert_int_equal(tw_reference_step(f->reference, ids[t], &logits, &err), 0);
        if (next < json_array_size(json_object_get(exact, "positions")) &&
            position_of(exact, next) == t) {
            double d = difference(exact, next++, logits);
            if (!(d <= tolerance)) {
                fail_msg("%s, position %u: %g from exact, tolerance %g", name, t, d, tolerance);
            }
        }
    }
    assert_true(next > 0);
}

static void weights_mean_what_the_format_says(void **state) {
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        struct subject s = open_subject(models[m]);
        struct model_fixture f;
        tw_error err = {0};
        if (model_fixture_open(s.path, 64, &f, &err)) {
            fail_msg("%s", err.message);
        }
        const json_t *exact = json_object_get(json_object_get(s.golden, "exact"), "runs");
        for (size_t r = 0; r < json_array_size(exact); r++) {
            const json_t *at = json_array_get(exact, r);
            size_t run = (size_t)json_integer_value(json_object_get(at, "run"));
            check_exact_run(models[m], &f, at,
                            json_array_get(json_object_get(s.golden, "runs"), run));
        }
        model_fixture_finish(&f);
        json_decref(s.golden);
    }
}

/* ---- the machine ---- */

static void run_one(const struct subject *s, struct command_run run, struct command_output *out) {
    uint32_t n_vocab = (uint32_t)json_integer_value(json_object_get(s->golden, "n_vocab"));
    tw_error err = {0};
    run.model = s->path;
    if (command_run(&run, n_vocab, out, &err)) {
        fail_msg("%s: %s", command_text(&run), err.message);
    }
}

/* Logits after the first `n` ids of a run. */
static void check_position(const struct subject *s, const json_t *run, size_t i,
                           const struct command_run *how) {
    uint32_t ids[64];
    struct command_run command = *how;
    struct command_output out;
    run_ids(run, ids);
    command.ids = ids;
    command.n_ids = position_of(run, i) + 1;
    command.n = 1;
    run_one(s, command, &out);
    double tolerance = json_number_value(json_object_get(run, "tolerance")),
           d = difference(run, i, out.logits);
    if (!(d <= tolerance)) {
        fail_msg("%s, %s, position %u: %g from llama.cpp, tolerance %g", s->path,
                 command_text(&command), position_of(run, i), d, tolerance);
    }
    command_output_finish(&out);
}

static void machine_or_skip(void) {
    const char *why = command_absent();
    if (why) {
        print_message("skipped: %s\n", why);
        skip();
    }
    command_folder();
}

static void the_machine_is_within_the_tolerance_of_the_peer(void **state) {
    (void)state;
    machine_or_skip();
    for (size_t m = 0; m < N_MODELS; m++) {
        struct subject s = open_subject(models[m]);
        const json_t *runs = json_object_get(s.golden, "runs");
        const struct command_run how = {.target = "host", .mode = "fast", .threads = 1};
        for (size_t r = 0; r < json_array_size(runs); r++) {
            const json_t *run = json_array_get(runs, r);
            for (size_t i = 0; i < json_array_size(json_object_get(run, "positions")); i++) {
                check_position(&s, run, i, &how);
            }
        }
        json_decref(s.golden);
    }
}

static void check_same(const struct subject *s, const struct command_output *base,
                       struct command_run other) {
    struct command_output out;
    run_one(s, other, &out);
    assert_int_equal(out.n, base->n);
    if (memcmp(out.logits, base->logits, (size_t)base->n * base->n_vocab * sizeof(float)) != 0) {
        fail_msg("%s: %s gives other bits", s->path, command_text(&other));
    }
    command_output_finish(&out);
}

static void the_bits_do_not_depend_on_target_mode_chunk_or_instruction_set(void **state) {
    (void)state;
    machine_or_skip();
    for (size_t m = 0; m < N_MODELS; m++) {
        struct subject s = open_subject(models[m]);
        uint32_t ids[64], n = run_ids(json_array_get(json_object_get(s.golden, "runs"), 0), ids);
        struct command_run base = {
            .ids = ids, .n_ids = n, .n = 3, .target = "host", .mode = "fast", .threads = 1};
        struct command_run other = base;
        struct command_output out;
        run_one(&s, base, &out);
        for (int isa = 0; isa < TW_ISA_COUNT; isa++) {
            other.isa = tw_isa_name((enum tw_isa)isa);
            if (tw_kernel_table((enum tw_isa)isa)) {
                check_same(&s, &out, other);
            }
        }
        other = base;
        other.target = "sim4x4";
        other.chunk = 20;
        other.threads = 2;
        check_same(&s, &out, other);
        other.chunk = 1;
        other.mode = "strict";
        check_same(&s, &out, other);
        command_output_finish(&out);
        json_decref(s.golden);
    }
}

static void types_that_are_not_supported_are_refused_by_tensor_and_type(void **state) {
    (void)state;
    static const char *const others[] = {"IQ1_M", "IQ1_S",   "IQ2_S", "IQ2_XS", "IQ2_XXS",
                                         "IQ3_S", "IQ3_XXS", "TQ1_0", "TQ2_0"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char name[64], path[1024], type[80];
        struct model_fixture f;
        tw_error err = {0};
        snprintf(name, sizeof name, "llama-256x1-%s", others[i]);
        path_of(name, ".gguf", path);
        assert_int_equal(model_fixture_open(path, 0, &f, &err), TW_E_UNSUPPORTED);
        snprintf(type, sizeof type, " has type %s, which is not supported", others[i]);
        assert_non_null(strstr(err.message, type));
        assert_non_null(strstr(err.message, "tensor token_embd.weight"));
    }
}

static int remove_folder(void **state) {
    (void)state;
    command_folder_remove();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_mean_what_the_format_says),
        cmocka_unit_test(the_machine_is_within_the_tolerance_of_the_peer),
        cmocka_unit_test(the_bits_do_not_depend_on_target_mode_chunk_or_instruction_set),
        cmocka_unit_test(types_that_are_not_supported_are_refused_by_tensor_and_type),
    };
    return cmocka_run_group_tests_name("block types", tests, NULL, remove_folder);
}
