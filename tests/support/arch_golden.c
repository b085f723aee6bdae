/* SPDX-License-Identifier: Apache-2.0
 *
 * Goldens of architectures (arch_golden.h), read with jansson.
 */
#include "tests/support/arch_golden.h"

#include "tests/support/test.h"
#include "tilewright/tilewright.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

/* ---- reading ---- */

static uint32_t *integers(const json_t *array, uint32_t *n) {
    *n = (uint32_t)json_array_size(array);
    uint32_t *out = calloc(*n + 1, sizeof *out);
    for (uint32_t i = 0; out && i < *n; i++) {
        out[i] = (uint32_t)json_integer_value(json_array_get(array, i));
    }
    return out;
}

static float *rows_of(const json_t *rows, uint32_t n_rows, uint32_t n_vocab) {
    float *out = calloc((size_t)n_rows * n_vocab + 1, sizeof *out);
    for (uint32_t r = 0; out && r < n_rows; r++) {
        for (uint32_t i = 0; i < n_vocab; i++) {
            const json_t *x = json_array_get(json_array_get(rows, r), i);
            out[(size_t)r * n_vocab + i] = (float)json_number_value(x);
        }
    }
    return out;
}

/* The peer's choices of a run. */
static void read_choices(const json_t *from, struct arch_run *run) {
    uint32_t n;
    run->argmax = integers(json_object_get(from, "argmax"), &n);
    run->margin = calloc(run->n_ids + 1, sizeof *run->margin);
    for (uint32_t i = 0; run->margin && i < run->n_ids; i++) {
        run->margin[i] = json_number_value(json_array_get(json_object_get(from, "margin"), i));
    }
}

/* `from` is one of "runs"; `exact` the entry for it in "exact", or NULL. */
static int read_run(const json_t *from, const json_t *exact, uint32_t n_vocab,
                    struct arch_run *run) {
    const json_t *of = exact ? exact : from;
    run->ids = integers(json_object_get(from, "ids"), &run->n_ids);
    run->n_ctx = (uint32_t)json_integer_value(json_object_get(from, "n_ctx"));
    run->tolerance = json_number_value(json_object_get(of, "tolerance"));
    run->positions = integers(json_object_get(of, "positions"), &run->n_positions);
    run->logits = rows_of(json_object_get(of, "logits"), run->n_positions, n_vocab);
    if (!exact) {
        read_choices(from, run);
    }
    return run->n_ids && run->n_positions && run->tolerance > 0 && run->n_ctx ? 0 : TW_E_FORMAT;
}

static int read_runs(const json_t *root, bool exact, struct arch_golden *out) {
    const json_t *runs = json_object_get(root, "runs");
    const json_t *exacts = json_object_get(json_object_get(root, "exact"), "runs");
    out->n_vocab = (uint32_t)json_integer_value(json_object_get(root, "n_vocab"));
    out->n_runs = (uint32_t)json_array_size(exact ? exacts : runs);
    out->runs = calloc(out->n_runs + 1, sizeof *out->runs);
    int rc = out->runs && out->n_runs && out->n_vocab ? 0 : TW_E_FORMAT;
    for (uint32_t i = 0; i < out->n_runs && rc == 0; i++) {
        const json_t *e = exact ? json_array_get(exacts, i) : NULL;
        size_t at = e ? (size_t)json_integer_value(json_object_get(e, "run")) : i;
        rc = read_run(json_array_get(runs, at), e, out->n_vocab, &out->runs[i]);
    }
    return rc;
}

int arch_golden_load(const char *path, bool exact, struct arch_golden *out, tw_error *err) {
    json_error_t where;
    json_t *root = json_load_file(path, 0, &where);
    *out = (struct arch_golden){.n_runs = 0};
    if (!root) {
        return tw_fail(err, TW_E_IO, "%s: %s", path, where.text);
    }
    int rc = read_runs(root, exact, out);
    json_decref(root);
    if (rc) {
        arch_golden_finish(out);
        tw_error_set(err, rc, "%s: not a golden file of an architecture", path);
    }
    return rc;
}

void arch_golden_finish(struct arch_golden *g) {
    for (uint32_t i = 0; g->runs && i < g->n_runs; i++) {
        free(g->runs[i].ids);
        free(g->runs[i].positions);
        free(g->runs[i].logits);
        free(g->runs[i].argmax);
        free(g->runs[i].margin);
    }
    free(g->runs);
    *g = (struct arch_golden){.n_runs = 0};
}

/* ---- comparing ---- */

/* A bundle, opened. */
struct opened {
    tw_device *device;
    tw_decoder *decoder;
    tw_deployment *deployment;
    tw_session *session;
    const char *name, *target;
    tw_error err;
};

static void open_bundle(struct opened *o, const char *bundle) {
    struct tw_device_options d = {.size = sizeof d, .n_threads = 1};
    if (tw_device_open("emu", &d, &o->device, &o->err) ||
        tw_decoder_open(bundle, 0, &o->decoder, &o->err) ||
        tw_deploy(o->device, o->decoder, &o->deployment, &o->err) ||
        tw_session_create(o->deployment, NULL, &o->session, &o->err)) {
        fail_msg("%s on %s: %s", o->name, o->target, o->err.message);
    }
}

static void close_bundle(struct opened *o) {
    tw_session_destroy(o->session);
    tw_deployment_destroy(o->deployment);
    tw_decoder_close(o->decoder);
    tw_device_close(o->device);
}

static void feed(struct opened *o, const uint32_t *ids, uint32_t n) {
    if (tw_session_feed(o->session, ids, n, &o->err)) {
        fail_msg("%s on %s: %s", o->name, o->target, o->err.message);
    }
}

static uint32_t best_of(const float *x, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

/* Compares the logits after `position` with the golden; returns the largest difference. */
static double compare_position(const struct opened *o, const struct arch_golden *g, uint32_t run,
                               uint32_t position, const float *found) {
    const struct arch_run *r = &g->runs[run];
    double largest = 0;
    for (uint32_t p = 0; p < r->n_positions; p++) {
        const float *expected = r->logits + (size_t)p * g->n_vocab;
        for (uint32_t i = 0; r->positions[p] == position && i < g->n_vocab; i++) {
            double difference = fabs((double)found[i] - (double)expected[i]);
            if (!(difference <= r->tolerance)) {
                fail_msg("%s on %s, run %u, position %u: logit %u is %f, not %f +- %g", o->name,
                         o->target, run, position, i, (double)found[i], (double)expected[i],
                         r->tolerance);
            }
            largest = difference > largest ? difference : largest;
        }
    }
    uint32_t best = best_of(found, g->n_vocab);
    if (r->argmax && r->margin[position] > 2 * r->tolerance && best != r->argmax[position]) {
        fail_msg("%s on %s, run %u, position %u: best id %u, not %u", o->name, o->target, run,
                 position, best, r->argmax[position]);
    }
    return largest;
}

/* `rows`: of all positions of the run. `first`: they are to be filled, else compared with. */
static double check_run(struct opened *o, const struct arch_golden *g, uint32_t run, bool first,
                        float *rows) {
    const struct arch_run *r = &g->runs[run];
    const uint32_t n = g->n_vocab, part = r->n_ids < 20 ? r->n_ids : 20;
    double largest = 0;
    assert_int_equal(tw_session_rewind(o->session, 0, &o->err), 0);
    for (uint32_t i = 0; i < r->n_ids; i++) {
        float *row = rows + (size_t)i * n;
        feed(o, r->ids + i, 1);
        const float *found = tw_session_logits(o->session);
        if (first) {
            memcpy(row, found, n * sizeof *row);
        }
        assert_memory_equal(found, row, n * sizeof *row);
        double difference = compare_position(o, g, run, i, found);
        largest = difference > largest ? difference : largest;
    }
    assert_int_equal(tw_session_rewind(o->session, 0, &o->err), 0);
    feed(o, r->ids, part);
    assert_memory_equal(tw_session_logits(o->session), rows + (size_t)(part - 1) * n,
                        n * sizeof *rows);
    if (r->n_ids > part) {
        feed(o, r->ids + part, r->n_ids - part);
        assert_memory_equal(tw_session_logits(o->session), rows + (size_t)(r->n_ids - 1) * n,
                            n * sizeof *rows);
    }
    return largest;
}

/* n_ctx: of the runs that are checked; 0: all. */
static double check_target(struct opened *o, const struct arch_golden *g, uint32_t n_ctx,
                           bool first, float *const *rows) {
    struct tw_session_info info = {.size = sizeof info};
    double largest = 0;
    assert_int_equal(tw_session_get_info(o->session, &info, &o->err), 0);
    assert_int_equal(info.n_vocab, g->n_vocab);
    for (uint32_t i = 0; i < g->n_runs; i++) {
        bool checked = n_ctx == 0 || g->runs[i].n_ctx == n_ctx;
        double difference = checked ? check_run(o, g, i, first, rows[i]) : 0;
        largest = difference > largest ? difference : largest;
    }
    return largest;
}

static double compile_and_check(const char *model, const char *name,
                                const struct tw_compile_options *options, const char *target,
                                uint32_t n_ctx, const struct arch_golden *g, bool first,
                                float *const *rows) {
    char bundle[] = "/tmp/tw-arch-XXXXXX";
    struct tw_compile_options o = *options;
    struct opened opened = {.name = name, .target = target};
    int fd = mkstemp(bundle);
    assert_true(fd >= 0);
    close(fd);
    o.target = target;
    o.n_ctx = n_ctx ? n_ctx : o.n_ctx;
    if (tw_compile_file(model, bundle, &o, NULL, &opened.err)) {
        fail_msg("%s for %s: %s", name, target, opened.err.message);
    }
    open_bundle(&opened, bundle);
    unlink(bundle);
    double largest = check_target(&opened, g, n_ctx, first, rows);
    close_bundle(&opened);
    return largest;
}

/* Returns whether run i is the first with its context. */
static bool is_first_with_context(const struct arch_golden *g, uint32_t i) {
    uint32_t k = 0;
    while (g->runs[k].n_ctx != g->runs[i].n_ctx) {
        k++;
    }
    return k == i;
}

static double check_contexts(const char *model, const char *name,
                             const struct tw_compile_options *options, const char *target,
                             const struct arch_golden *g, bool first, float *const *rows) {
    double largest = 0;
    if (options->n_ctx) {
        return compile_and_check(model, name, options, target, 0, g, first, rows);
    }
    for (uint32_t i = 0; i < g->n_runs; i++) {
        if (is_first_with_context(g, i)) {
            double found =
                compile_and_check(model, name, options, target, g->runs[i].n_ctx, g, first, rows);
            largest = found > largest ? found : largest;
        }
    }
    return largest;
}

double arch_golden_check(const char *folder, const char *name, bool exact,
                         const struct tw_compile_options *options, const char *const targets[],
                         uint32_t n_targets) {
    char model[2048], golden[2048];
    snprintf(model, sizeof model, "%s/%s.gguf", folder, name);
    snprintf(golden, sizeof golden, "%s/%s.json", folder, name);
    return arch_golden_check_model(model, golden, exact, options, targets, n_targets);
}

double arch_golden_check_model(const char *model, const char *golden, bool exact,
                               const struct tw_compile_options *options,
                               const char *const targets[], uint32_t n_targets) {
    struct arch_golden g;
    tw_error err = {0};
    double largest = 0;
    if (arch_golden_load(golden, exact, &g, &err)) {
        fail_msg("%s", err.message);
    }
    float **rows = calloc(g.n_runs, sizeof *rows);
    assert_non_null(rows);
    for (uint32_t i = 0; i < g.n_runs; i++) {
        rows[i] = calloc((size_t)g.runs[i].n_ids * g.n_vocab, sizeof **rows);
        assert_non_null(rows[i]);
    }
    for (uint32_t t = 0; t < n_targets; t++) {
        double found = check_contexts(model, model, options, targets[t], &g, t == 0, rows);
        largest = found > largest ? found : largest;
    }
    for (uint32_t i = 0; i < g.n_runs; i++) {
        free(rows[i]);
    }
    free(rows);
    arch_golden_finish(&g);
    return largest;
}
