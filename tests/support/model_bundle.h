/* SPDX-License-Identifier: Apache-2.0
 *
 * The shipped model as a bundle for a target, compiled once per test program; and a session on it.
 */
#ifndef TW_TESTS_SUPPORT_MODEL_BUNDLE_H
#define TW_TESTS_SUPPORT_MODEL_BUNDLE_H

#include "tilewright/tilewright.h"

#define SHIPPED_MODEL "tests/data/fairytale-1.7m-Q8_0.gguf"

/* Returns the path of the bundle for that target ("host" has two sites), a static string. Aborts
 * the test if it cannot be compiled. */
const char *model_bundle(const char *target);
/* The same with a program that gives the logits of all tokens. */
const char *model_bundle_all_logits(const char *target);
/* The same with lists of the top_k best logits of each site. */
const char *model_bundle_lists(const char *target, uint32_t top_k);
/* The same with programs of up to MODEL_BATCH sequences, or as many as fit the target. */
#define MODEL_BATCH 16u
const char *model_bundle_batch(const char *target);
/* Removes what model_bundle created. */
void model_bundle_cleanup(void);

struct rig {
    tw_device *device;
    tw_decoder *decoder;
    tw_deployment *deployment;
    tw_session *session;
    tw_error err;
};
/* Opens a session; the test fails if it cannot. NULL options: defaults. */
void rig_open(struct rig *r, const char *target, uint32_t n_threads,
              const struct tw_session_options *options);
void rig_close(struct rig *r);

#endif
