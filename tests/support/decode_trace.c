/* SPDX-License-Identifier: Apache-2.0
 *
 * What a decode of the shipped model chooses, and from which logits.
 */
#include "tests/support/decode_trace.h"

#include "tests/support/test.h"

static int record(void *ctx, uint32_t id, const float *logits) {
    struct decode_trace *t = ctx;
    t->ids[t->n] = id;
    memcpy(t->logits + (size_t)t->n * t->n_vocab, logits, t->n_vocab * sizeof *logits);
    t->n++;
    return 0;
}

void decode_trace(tw_session *session, uint32_t n, struct decode_trace *t) {
    static const uint32_t prompt[] = {1, 403, 407};
    struct tw_session_info info = {.size = sizeof info};
    tw_error err = {0};
    assert_true(n <= TRACE_MAX_TOKENS);
    tw_session_get_info(session, &info, NULL);
    *t = (struct decode_trace){.n_vocab = info.n_vocab};
    t->logits = calloc((size_t)n * info.n_vocab, sizeof *t->logits);
    struct tw_generate_options g = {.size = sizeof g,
                                    .n_predict = n,
                                    .flags = TW_GENERATE_IGNORE_EOS,
                                    .on_token = record,
                                    .ctx = t};
    if (tw_generate(session, prompt, 3, &g, NULL, &err)) {
        fail_msg("%s", err.message);
    }
}

void decode_trace_check_equal(const struct decode_trace *a, const struct decode_trace *b,
                              uint32_t n) {
    assert_int_equal(a->n, n);
    assert_int_equal(b->n, n);
    assert_int_equal(a->n_vocab, b->n_vocab);
    assert_memory_equal(a->ids, b->ids, n * sizeof *a->ids);
    assert_memory_equal(a->logits, b->logits, (size_t)n * a->n_vocab * sizeof *a->logits);
}
