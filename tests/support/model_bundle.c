/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles the shipped model into a folder of the test's own.
 */
#include "tests/support/model_bundle.h"

#include "tilewright/compile.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    char target[512], path[96];
    uint32_t all_logits, top_k, batch_rows;
} made[24];
static uint32_t n_made;
static char folder[64];

static void die(const char *what, const tw_error *err) {
    fprintf(stderr, "model bundle: %s: %s\n", what, err ? err->message : "");
    abort();
}

static const char *make(const char *target, uint32_t all_logits, uint32_t top_k,
                        uint32_t batch_rows) {
    for (uint32_t i = 0; i < n_made; i++) {
        if (strcmp(made[i].target, target) == 0 && made[i].all_logits == all_logits &&
            made[i].top_k == top_k && made[i].batch_rows == batch_rows) {
            return made[i].path;
        }
    }
    if (!folder[0]) {
        strcpy(folder, "/tmp/tw-model-XXXXXX");
        if (!mkdtemp(folder)) {
            die("no folder", NULL);
        }
    }
    if (n_made == sizeof made / sizeof made[0]) {
        die("too many targets", NULL);
    }
    struct tw_compile_options o = {.size = sizeof o,
                                   .host_sites = 2,
                                   .prefill_rows = 32,
                                   .target = target,
                                   .all_logits = all_logits,
                                   .top_k = top_k,
                                   .batch_rows = batch_rows};
    tw_error err = {0};
    made[n_made].all_logits = all_logits;
    made[n_made].top_k = top_k;
    made[n_made].batch_rows = batch_rows;
    snprintf(made[n_made].target, sizeof made[0].target, "%s", target);
    snprintf(made[n_made].path, sizeof made[0].path, "%s/%u%s-%u.twb", folder, n_made,
             all_logits ? "-all" : "", top_k);
    if (tw_compile_file(SHIPPED_MODEL, made[n_made].path, &o, NULL, &err)) {
        die(target, &err);
    }
    return made[n_made++].path;
}

const char *model_bundle(const char *target) {
    return make(target, 0, 0, 0);
}

const char *model_bundle_all_logits(const char *target) {
    return make(target, 1, 0, 0);
}

const char *model_bundle_lists(const char *target, uint32_t top_k) {
    return make(target, 0, top_k, 0);
}

const char *model_bundle_batch(const char *target) {
    return make(target, 0, 0, MODEL_BATCH);
}

void model_bundle_cleanup(void) {
    while (n_made) {
        unlink(made[--n_made].path);
    }
    if (folder[0]) {
        rmdir(folder);
        folder[0] = 0;
    }
}

void rig_open(struct rig *r, const char *target, uint32_t n_threads,
              const struct tw_session_options *options) {
    memset(r, 0, sizeof *r);
    struct tw_device_options d = {.size = sizeof d, .n_threads = n_threads};
    if (tw_device_open("emu", &d, &r->device, &r->err) ||
        tw_decoder_open(model_bundle(target), 0, &r->decoder, &r->err) ||
        tw_deploy(r->device, r->decoder, &r->deployment, &r->err) ||
        tw_session_create(r->deployment, options, &r->session, &r->err)) {
        die(target, &r->err);
    }
}

void rig_close(struct rig *r) {
    tw_session_destroy(r->session);
    tw_deployment_destroy(r->deployment);
    tw_decoder_close(r->decoder);
    tw_device_close(r->device);
}
