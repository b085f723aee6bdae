/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference evaluator: what a ComputeGraph means, in plain fp32. One token at a time, no
 * tiling, no threads, sums in ascending order, libm's functions; weights as floats (whatever the
 * file's type), activations never quantised. It is the oracle of everything behind it, and about as
 * slow as it is plain.
 *
 * Agreement to expect: with weights of F32, F16 and BF16 the machine's logits differ by rounding
 * only (1e-4 of the largest logit is generous); with Q8_0 and Q4_0 also by the machine's 8-bit
 * activations.
 */
#ifndef TW_TESTS_SUPPORT_REFERENCE_H
#define TW_TESTS_SUPPORT_REFERENCE_H

#include "compiler/graph/graph.h"

struct tw_reference;

/* An evaluator at position 0 with room for n_ctx positions. `g` is checked (tw_graph_check) and,
 * with its model, outlives it. Memory: the states, one row of each activation and one of the widest
 * weight. Errors: USAGE (n_ctx is 0), NOMEM. */
int tw_reference_create(const struct tw_graph *g, uint32_t n_ctx, struct tw_reference **out,
                        tw_error *err);
void tw_reference_destroy(struct tw_reference *r); /* NULL is fine */

/* Feeds one token at the current position, which advances. *logits: one float a token of the
 * vocabulary, valid until the next call. Errors, after which nothing has changed: RANGE (no such
 * token), CONTEXT_FULL. */
int tw_reference_step(struct tw_reference *r, uint32_t token, const float **logits, tw_error *err);

uint32_t tw_reference_n_vocab(const struct tw_reference *r);

#endif
