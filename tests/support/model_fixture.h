/* SPDX-License-Identifier: Apache-2.0
 *
 * A model file with its graph and, if wanted, its reference evaluator.
 */
#ifndef TW_TESTS_SUPPORT_MODEL_FIXTURE_H
#define TW_TESTS_SUPPORT_MODEL_FIXTURE_H

#include "tests/support/reference.h"

struct model_fixture {
    struct tw_model model;
    struct tw_cmem mem;
    struct tw_graph graph;
    struct tw_reference *reference;
    uint32_t n_ctx;
};

/* Opens a model, builds its graph and, if n_ctx is not 0, an evaluator with that many
 * positions. */
int model_fixture_open(const char *path, uint32_t n_ctx, struct model_fixture *out, tw_error *err);
void model_fixture_finish(struct model_fixture *fixture);

/* Returns the evaluator to position 0. */
int model_fixture_restart(struct model_fixture *fixture, tw_error *err);

/* Returns the id of the largest logit; among equals the lowest. */
uint32_t best_token(const float *logits, uint32_t n);

#endif
