/* SPDX-License-Identifier: Apache-2.0
 *
 * What a decode of the shipped model chooses, and from which logits.
 */
#ifndef TW_TESTS_SUPPORT_DECODE_TRACE_H
#define TW_TESTS_SUPPORT_DECODE_TRACE_H

#include "tilewright/tilewright.h"

#define TRACE_MAX_TOKENS 64u

struct decode_trace {
    uint32_t n, n_vocab, ids[TRACE_MAX_TOKENS];
    float *logits; /* [n][n_vocab]; freed by the caller */
};

/* Generates n tokens after a short prompt of ids, whatever they are. Fails the test if it
 * cannot. */
void decode_trace(tw_session *session, uint32_t n, struct decode_trace *t);
/* Fails the test unless both have the same n ids and the same bits of logits. */
void decode_trace_check_equal(const struct decode_trace *a, const struct decode_trace *b,
                              uint32_t n);

#endif
