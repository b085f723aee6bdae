/* SPDX-License-Identifier: Apache-2.0
 *
 * Models for tests (model_fixture.h).
 */
#include "tests/support/model_fixture.h"

#include "compiler/arch/arch.h"

int model_fixture_open(const char *path, uint32_t n_ctx, struct model_fixture *out, tw_error *err) {
    *out = (struct model_fixture){.n_ctx = n_ctx};
    out->graph.mem = &out->mem;
    out->graph.n_ctx = n_ctx;
    int rc = tw_cmem_init(&out->mem, err);
    rc = rc ? rc : tw_model_open(path, NULL, &out->model, err);
    rc = rc ? rc : tw_arch_build(&out->model, &out->graph, err);
    if (rc == 0 && n_ctx) {
        rc = tw_reference_create(&out->graph, n_ctx, &out->reference, err);
    }
    if (rc) {
        model_fixture_finish(out);
    }
    return rc;
}

void model_fixture_finish(struct model_fixture *fixture) {
    tw_reference_destroy(fixture->reference);
    tw_model_close(&fixture->model);
    tw_cmem_finish(&fixture->mem);
    *fixture = (struct model_fixture){.n_ctx = 0};
}

int model_fixture_restart(struct model_fixture *fixture, tw_error *err) {
    tw_reference_destroy(fixture->reference);
    return tw_reference_create(&fixture->graph, fixture->n_ctx, &fixture->reference, err);
}

uint32_t best_token(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return best;
}
