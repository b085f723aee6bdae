/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation past the end of the context: what stays is fed again, so that each token is the one
 * that a session chooses which was fed the window only; for greedy runs on the device, for logits
 * on the host, and for prompts that are longer than the context.
 */
#include "driver/session/session.h"
#include "tests/support/model_bundle.h"
#include "tests/support/model_fixture.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"
#include "tilewright/state.h"

enum { N_CTX = 40, N = 100, PROMPT = 12, LONG = 97 };

static uint32_t prompt[LONG];

static int set_up(void **state) {
    uint64_t seed = 3;
    (void)state;
    for (uint32_t i = 0; i < LONG; i++) {
        prompt[i] = random_below(&seed, 1000);
    }
    return 0;
}

struct heard {
    uint32_t ids[N], n;
    float logits[N][2000];
};

static int on_token(void *ctx, uint32_t id, const float *logits) {
    struct heard *h = ctx;
    if (logits) {
        memcpy(h->logits[h->n], logits, 1000 * sizeof *logits);
    }
    h->ids[h->n++] = id;
    return 0;
}

static tw_session *create(struct rig *r) {
    struct tw_session_options o = {.size = sizeof o, .n_ctx = N_CTX, .n_threads = 1};
    tw_session *s = NULL;
    assert_int_equal(tw_session_create(r->deployment, &o, &s, &r->err), 0);
    return s;
}

/* The tokens that stay of a full context. */
static uint32_t window(const uint32_t *all, uint32_t n, uint32_t sink, uint32_t *out) {
    memcpy(out, all, sink * sizeof *out);
    uint32_t newest = N_CTX / 2 - sink;
    memcpy(out + sink, all + n - newest, newest * sizeof *out);
    return N_CTX / 2;
}

/* Checks every token against a session that is fed anew after each window. */
static void check(struct rig *r, const struct heard *h, const uint32_t *ids, uint32_t n_prompt,
                  uint32_t sink, bool logits, uint32_t *windows) {
    uint32_t seen[N_CTX], n = 0, kept[N_CTX];
    tw_session *s = create(r);
    *windows = 0;
    for (uint32_t i = 0; i < n_prompt + h->n; i++) {
        if (i >= n_prompt) {
            const float *expected = tw_session_logits(s);
            if (h->ids[i - n_prompt] != best_token(expected, s->n_vocab)) {
                fail_msg("token %u is another one", i - n_prompt);
            }
            if (logits) {
                assert_memory_equal(h->logits[i - n_prompt], expected, 1000 * sizeof *expected);
            }
        }
        uint32_t id = i < n_prompt ? ids[i] : h->ids[i - n_prompt];
        if (n == N_CTX) {
            n = window(seen, n, sink, kept);
            memcpy(seen, kept, n * sizeof *seen);
            tw_session_destroy(s); /* a fresh one */
            s = create(r);
            assert_int_equal(tw_session_feed(s, kept, n, &r->err), 0);
            ++*windows;
        }
        seen[n++] = id;
        assert_int_equal(tw_session_feed(s, &id, 1, &r->err), 0);
    }
    tw_session_destroy(s);
}

static void the_bits_are_those_of_the_window(void **state) {
    static struct heard h;
    struct rig r;
    (void)state;
    rig_open(&r, "host", 1, NULL);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t sink = i % 2 ? (i == 3 ? 9 : 4) : 0, n_prompt = i < 4 ? PROMPT : LONG, windows;
        bool logits = i / 2 % 2;
        struct tw_generate_options o = {.size = sizeof o,
                                        .n_predict = N,
                                        .flags = TW_GENERATE_IGNORE_EOS |
                                                 (logits ? 0 : TW_GENERATE_NO_LOGITS),
                                        .on_token = on_token,
                                        .ctx = &h,
                                        .on_full = sink ? TW_FULL_SINK : TW_FULL_SLIDE,
                                        .n_sink = sink == 4 ? 0 : sink};
        struct tw_generate_result result = {.size = sizeof result};
        tw_session *s = create(&r);
        h.n = 0;
        if (tw_generate(s, prompt, n_prompt, &o, &result, &r.err)) {
            fail_msg("%s", r.err.message);
        }
        assert_int_equal(result.reason, TW_STOP_COUNT);
        assert_int_equal(h.n, N);
        assert_int_equal(result.n_prompt, n_prompt);
        check(&r, &h, prompt, n_prompt, sink, logits, &windows);
        /* the last token is not fed */
        assert_true(result.n_windows == windows || result.n_windows + 1 == windows);
        assert_int_equal(result.n_dropped, result.n_windows * N_CTX / 2);
        tw_session_destroy(s);
    }
    rig_close(&r);
}

static void without_the_option_it_ends(void **state) {
    static struct heard h;
    struct rig r;
    struct tw_generate_options o = {.size = sizeof o,
                                    .n_predict = N,
                                    .flags = TW_GENERATE_IGNORE_EOS,
                                    .on_token = on_token,
                                    .ctx = &h};
    struct tw_generate_result result = {.size = sizeof result};
    (void)state;
    rig_open(&r, "host", 1, NULL);
    tw_session *s = create(&r);
    assert_int_equal(tw_generate(s, prompt, PROMPT, &o, &result, &r.err), TW_E_CONTEXT_FULL);
    assert_int_equal(result.reason, TW_STOP_CONTEXT);
    assert_int_equal(result.n_windows, 0);
    assert_int_equal(h.n, N_CTX - PROMPT + 1);
    assert_int_equal(tw_session_rewind(s, 0, &r.err), 0);
    assert_int_equal(tw_generate(s, prompt, LONG, &o, &result, &r.err), TW_E_CONTEXT_FULL);
    assert_int_equal(tw_session_position(s), 0);
    o.on_full = 3;
    assert_int_equal(tw_generate(s, prompt, PROMPT, &o, &result, &r.err), TW_E_USAGE);
    o.on_full = TW_FULL_SLIDE;
    o.n_sink = 3;
    assert_int_equal(tw_generate(s, prompt, PROMPT, &o, &result, &r.err), TW_E_USAGE);
    o.on_full = TW_FULL_SINK;
    o.n_sink = N_CTX / 2;
    assert_int_equal(tw_generate(s, prompt, PROMPT, &o, &result, &r.err), TW_E_USAGE);
    assert_non_null(strstr(r.err.message, "40 positions 20 stay"));
    assert_int_equal(tw_session_position(s), 0);
    tw_session_destroy(s);
    rig_close(&r);
}

static int cleanup(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_the_window),
        cmocka_unit_test(without_the_option_it_ends),
    };
    return cmocka_run_group_tests_name("full context", tests, set_up, cleanup);
}
