/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF variants of a real model (rotary scaling and base, factors, alignment, key order, tied
 * output, ...), which mkvariants.py of the shared data writes, through importer, graph and
 * reference evaluator, against the ids and logits that llama.cpp gives for them. A variant that we
 * refuse has to be refused by name.
 */
#include "tests/support/command_run.h"
#include "tests/support/model_fixture.h"
#include "tests/support/test.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

struct variants {
    json_t *golden; /* NULL: the shared data or python3 is missing, and the tests are skipped */
    char folder[512];
};

static int set_up(void **state) {
    char command[4096], path[2048];
    struct variants *v = calloc(1, sizeof *v);
    const char *root = getenv("TW_SHARED");
    *state = v;
    if (!v || !root || system("python3 -c 'import struct' 2>/dev/null")) {
        fprintf(stderr, "skipped: %s\n",
                root ? "python3 is not installed" : "TW_SHARED is not set");
        return 0;
    }
    snprintf(v->folder, sizeof v->folder, "%s", command_folder());
    snprintf(command, sizeof command,
             "python3 '%s/data/variants/mkvariants.py' '%s/data/models' '%s' >/dev/null", root,
             root, v->folder);
    snprintf(path, sizeof path, "%s/data/variants/golden.json", root);
    if (access(path, R_OK) || system(command)) {
        fprintf(stderr, "skipped: %s and mkvariants.py beside it cannot be used\n", path);
        return 0;
    }
    v->golden = json_load_file(path, 0, NULL);
    return v->golden ? 0 : -1;
}

static int tear_down(void **state) {
    struct variants *v = *state;
    char command[1024];
    int rc = 0;
    if (*v->folder) {
        snprintf(command, sizeof command, "rm -rf '%s'", v->folder);
        rc = system(command);
    }
    json_decref(v->golden);
    free(v);
    return rc;
}

/* ---- comparing ---- */

static uint32_t id_at(const json_t *ids, size_t i) {
    return (uint32_t)json_integer_value(json_array_get(ids, i));
}

static const float *feed(struct model_fixture *f, uint32_t id) {
    const float *logits = NULL;
    tw_error err = {0};
    if (tw_reference_step(f->reference, id, &logits, &err)) {
        fail_msg("%s", err.message);
    }
    return logits;
}

static void compare_first_logits(const char *name, const json_t *expected, const float *logits) {
    assert_int_equal(json_array_size(expected), 16);
    for (size_t i = 0; i < 16; i++) {
        double golden = json_number_value(json_array_get(expected, i));
        if (!(fabs((double)logits[i] - golden) <= 2e-4)) {
            fail_msg("%s, token %zu: logit %f, golden %f", name, i, (double)logits[i], golden);
        }
    }
}

static void compare_run(struct model_fixture *f, const char *name, const json_t *run) {
    const json_t *prompt = json_object_get(run, "prompt_ids"), *ids = json_object_get(run, "ids");
    const float *logits = NULL;
    tw_error err = {0};
    assert_int_equal(model_fixture_restart(f, &err), 0);
    assert_true(json_array_size(prompt) > 0 && json_array_size(ids) > 0);
    for (size_t i = 0; i < json_array_size(prompt); i++) {
        logits = feed(f, id_at(prompt, i));
    }
    compare_first_logits(name, json_object_get(run, "first_logits16"), logits);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        uint32_t best = best_token(logits, f->model.h.n_vocab);
        if (!((double)logits[best] - (double)logits[id_at(ids, i)] <= 1e-4)) {
            fail_msg("%s, step %zu: token %u, golden %u", name, i, best, id_at(ids, i));
        }
        logits = feed(f, id_at(ids, i));
    }
}

static void compare_variant(const struct variants *v, const char *name) {
    struct model_fixture f;
    char path[1024];
    size_t i;
    json_t *run;
    tw_error err = {0};
    json_t *runs =
        json_object_get(json_object_get(json_object_get(v->golden, "gguf"), name), "runs");
    snprintf(path, sizeof path, "%s/%s.gguf", v->folder, name);
    if (model_fixture_open(path, 512, &f, &err)) {
        fail_msg("%s", err.message);
    }
    assert_true(json_array_size(runs) > 0);
    json_array_foreach(runs, i, run) {
        compare_run(&f, name, run);
    }
    model_fixture_finish(&f);
}

static const struct variants *variants_or_skip(void **state) {
    const struct variants *v = *state;
    if (!v->golden) {
        skip();
    }
    return v;
}

/* ---- the cases ---- */

static void rotary_scaling_bases_and_factors_give_llama_cpps_ids(void **state) {
    const struct variants *v = variants_or_skip(state);
    compare_variant(v, "rope_linear2");
    compare_variant(v, "rope_linear4_oldkey");
    compare_variant(v, "rope_none_factor2");
    compare_variant(v, "rope_base500k");
    compare_variant(v, "rope_llama3_freqs");
    compare_variant(v, "no_rope_dim");
}

static void the_same_model_in_another_file_gives_llama_cpps_ids(void **state) {
    const struct variants *v = variants_or_skip(state);
    compare_variant(v, "align64");
    compare_variant(v, "align4096");
    compare_variant(v, "kv_reversed");
    compare_variant(v, "tensors_reversed");
    compare_variant(v, "tied_no_output");
}

static void expect_refused(const struct variants *v, const char *name, const char *part) {
    struct model_fixture f;
    char path[1024];
    tw_error err = {0};
    snprintf(path, sizeof path, "%s/%s.gguf", v->folder, name);
    int rc = model_fixture_open(path, 0, &f, &err);
    assert_true(rc == TW_E_UNSUPPORTED || rc == TW_E_SHAPE);
    assert_non_null(strstr(err.message, part));
}

static void what_we_do_not_compute_is_refused_by_name(void **state) {
    const struct variants *v = variants_or_skip(state);
    expect_refused(v, "rope_yarn4", "llama.rope.scaling.type is \"yarn\"");
    expect_refused(v, "no_kv_heads", "blk.0.attn_k.weight");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotary_scaling_bases_and_factors_give_llama_cpps_ids),
        cmocka_unit_test(the_same_model_in_another_file_gives_llama_cpps_ids),
        cmocka_unit_test(what_we_do_not_compute_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
