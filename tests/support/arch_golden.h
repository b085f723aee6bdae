/* SPDX-License-Identifier: Apache-2.0
 *
 * The goldens of data/arch of the shared test data (its README says what they hold): logits of a
 * model's positions, of llama.cpp or in exact arithmetic, and a comparison of a compiled model with
 * them.
 */
#ifndef TW_TESTS_SUPPORT_ARCH_GOLDEN_H
#define TW_TESTS_SUPPORT_ARCH_GOLDEN_H

#include "tilewright/compile.h"

#include <stdbool.h>

/* One prompt. */
struct arch_run {
    uint32_t n_ids, n_positions;
    uint32_t *ids;
    uint32_t *positions;
    float *logits; /* [n_positions][n_vocab] */
    uint32_t *argmax;
    double *margin; /* [n_ids] each; of the peer, so absent with `exact` */
    uint32_t n_ctx; /* that the run was made with */
    double tolerance;
};

struct arch_golden {
    uint32_t n_vocab, n_runs;
    struct arch_run *runs;
};

/* Reads a golden; `exact`: with the logits and tolerances of "exact". Errors: IO, FORMAT. */
int arch_golden_load(const char *path, bool exact, struct arch_golden *out, tw_error *err);
void arch_golden_finish(struct arch_golden *g);

/* Compiles a model with these options, but for their target, for each of the targets (n_ctx 0: for
 * each context that a run of the golden was made with) and compares it with its golden: logits and
 * best ids of all runs, token by token; and
 * the bits of the logits after 20 and after all tokens, fed as 20 and the rest, with those. The
 * test fails if they differ. All targets must give the bits of the first. Returns the largest
 * difference to the golden. */
double arch_golden_check_model(const char *model, const char *golden, bool exact,
                               const struct tw_compile_options *options,
                               const char *const targets[], uint32_t n_targets);

/* The same for NAME.gguf and NAME.json in `folder`. */
double arch_golden_check(const char *folder, const char *name, bool exact,
                         const struct tw_compile_options *options, const char *const targets[],
                         uint32_t n_targets);

#endif
