/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden files (golden.h), read with jansson.
 */
#include "tests/support/golden.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_LOGITS 16u

const char *golden_shared(const char *rest) {
    static char path[4096];
    const char *root = getenv("TW_SHARED");
    if (!root) {
        fprintf(stderr, "skipped: TW_SHARED is not set, so there is no %s\n", rest);
        return NULL;
    }
    snprintf(path, sizeof path, "%s/%s", root, rest);
    if (access(path, R_OK)) {
        fprintf(stderr, "skipped: %s is absent\n", path);
        return NULL;
    }
    return path;
}

/* calloc that does not return NULL for 0. */
static void *alloc(size_t n, size_t size) {
    return calloc(n ? n : 1, size);
}

static uint32_t *ids_of(const json_t *array, uint32_t *n) {
    *n = (uint32_t)json_array_size(array);
    uint32_t *ids = alloc(*n, sizeof *ids);
    for (uint32_t i = 0; ids && i < *n; i++) {
        ids[i] = (uint32_t)json_integer_value(json_array_get(array, i));
    }
    return ids;
}

/* The 16 first logits of step 0, and the best one of each step. */
static void logits_of_run(const json_t *object, struct golden_run *run) {
    const json_t *first = json_object_get(object, "first_logits16"),
                 *best = json_object_get(object, "top1");
    run->logits = alloc(FIRST_LOGITS + run->n_ids, sizeof *run->logits);
    for (uint32_t i = 0; run->logits && i < FIRST_LOGITS; i++) {
        double value = json_number_value(json_array_get(first, i));
        run->logits[run->n_logits++] = (struct golden_logit){.step = 0, .id = i, .logit = value};
    }
    for (uint32_t i = 0; run->logits && i < run->n_ids; i++) {
        double value = json_number_value(json_array_get(best, i));
        run->logits[run->n_logits++] =
            (struct golden_logit){.step = i, .id = run->ids[i], .logit = value};
    }
}

static int load_run(const json_t *object, struct golden_run *run) {
    const json_t *margins = json_object_get(object, "margin");
    run->prompt = json_string_value(json_object_get(object, "prompt"));
    run->prompt_ids = ids_of(json_object_get(object, "prompt_ids"), &run->n_prompt);
    run->ids = ids_of(json_object_get(object, "ids"), &run->n_ids);
    run->margins = alloc(run->n_ids, sizeof *run->margins);
    if (!run->prompt || !run->prompt_ids || !run->ids || !run->margins ||
        json_array_size(margins) != run->n_ids ||
        json_array_size(json_object_get(object, "top1")) != run->n_ids ||
        json_array_size(json_object_get(object, "first_logits16")) != FIRST_LOGITS) {
        return TW_E_FORMAT;
    }
    for (uint32_t i = 0; i < run->n_ids; i++) {
        run->margins[i] = json_number_value(json_array_get(margins, i));
    }
    logits_of_run(object, run);
    return run->logits && run->n_ids && run->n_prompt ? 0 : TW_E_FORMAT;
}

/* {"0": [[id, logit], ...], "1": ..., "31": ...}; some precisions have ids only. */
static int top5_of_prompt(json_t *steps, struct golden_run *run) {
    const char *step;
    json_t *pairs, *pair;
    size_t i;
    run->logits = alloc(json_object_size(steps) * 5, sizeof *run->logits);
    if (!run->logits) {
        return TW_E_NOMEM;
    }
    json_object_foreach(steps, step, pairs) {
        if (json_array_size(pairs) != 5) {
            return TW_E_FORMAT;
        }
        json_array_foreach(pairs, i, pair) {
            run->logits[run->n_logits++] =
                (struct golden_logit){.step = (uint32_t)strtoul(step, NULL, 10),
                                      .id = (uint32_t)json_integer_value(json_array_get(pair, 0)),
                                      .logit = json_number_value(json_array_get(pair, 1))};
        }
    }
    return 0;
}

static int load_prompt(const json_t *object, const char *suffix, struct golden_run *run) {
    char key[64];
    run->prompt = json_string_value(json_object_get(object, "prompt"));
    run->prompt_ids = ids_of(json_object_get(object, "ids"), &run->n_prompt);
    snprintf(key, sizeof key, "greedy_%s", suffix);
    run->ids = ids_of(json_object_get(object, key), &run->n_ids);
    if (!run->prompt || !run->prompt_ids || !run->ids || !run->n_prompt || !run->n_ids) {
        return TW_E_FORMAT;
    }
    snprintf(key, sizeof key, "top5_%s", suffix);
    return top5_of_prompt(json_object_get(object, key), run);
}

int golden_load(const char *path, const char *suffix, struct golden *out, tw_error *err) {
    json_error_t where;
    json_t *root = json_load_file(path, 0, &where);
    *out = (struct golden){.json = root};
    if (!root) {
        return tw_fail(err, TW_E_IO, "%s: %s", path, where.text);
    }
    const json_t *runs = json_object_get(root, suffix ? "prompts" : "runs");
    out->mean_nll = json_number_value(json_object_get(root, "mean_nll"));
    out->nll_tokens = (uint32_t)json_integer_value(json_object_get(root, "nll_file_tokens"));
    out->n_runs = (uint32_t)json_array_size(runs);
    out->runs = alloc(out->n_runs, sizeof *out->runs);
    int rc = out->n_runs && out->runs ? 0 : TW_E_FORMAT;
    for (uint32_t i = 0; rc == 0 && i < out->n_runs; i++) {
        const json_t *object = json_array_get(runs, i);
        rc = suffix ? load_prompt(object, suffix, &out->runs[i]) : load_run(object, &out->runs[i]);
    }
    if (rc) {
        golden_finish(out);
        tw_error_set(err, rc, "%s: not a golden file", path);
    }
    return rc;
}

void golden_finish(struct golden *golden) {
    for (uint32_t i = 0; golden->runs && i < golden->n_runs; i++) {
        free(golden->runs[i].prompt_ids);
        free(golden->runs[i].ids);
        free(golden->runs[i].margins);
        free(golden->runs[i].logits);
    }
    free(golden->runs);
    json_decref(golden->json);
    *golden = (struct golden){.n_runs = 0};
}
