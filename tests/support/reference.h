/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference evaluator: the meaning of a ComputeGraph in plain fp32. One token at a time, no
 * tiling, no threads, sums in ascending order, libm's functions; weights as floats (whatever the
 * file's type), activations never quantised. It is the oracle for every later stage and is written
 * for clarity, not speed.
 *
 * Expected agreement: with F32, F16 and BF16 weights the machine's logits differ by rounding only
 * (1e-4 of the largest logit is a generous tolerance); with Q8_0 and Q4_0 also by the machine's
 * 8-bit activations.
 */
#ifndef TW_TESTS_SUPPORT_REFERENCE_H
#define TW_TESTS_SUPPORT_REFERENCE_H

#include "compiler/graph/graph.h"

struct tw_reference;

/* Creates an evaluator at position 0 with room for n_ctx positions; destroy it with
 * tw_reference_destroy(). `g` must have passed tw_graph_check() and, with its model, outlive the
 * evaluator. Memory: the states, one row of each activation and one of the widest weight. Errors:
 * USAGE (n_ctx is 0), NOMEM. */
int tw_reference_create(const struct tw_graph *g, uint32_t n_ctx, struct tw_reference **out,
                        tw_error *err);
void tw_reference_destroy(struct tw_reference *r); /* NULL is legal */

/* Feeds one token at the current position, which advances. *logits points to one float per token of
 * the vocabulary, owned by the evaluator and valid until the next call. Errors, after which nothing
 * has changed: RANGE (the token is not in the vocabulary), CONTEXT_FULL. */
int tw_reference_step(struct tw_reference *r, uint32_t token, const float **logits, tw_error *err);

/* Returns the number of logits of a step. */
uint32_t tw_reference_n_vocab(const struct tw_reference *r);

#endif
