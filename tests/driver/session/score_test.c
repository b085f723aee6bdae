/* SPDX-License-Identifier: Apache-2.0
 *
 * The logits of all tokens: bit for bit those that follow each token when they are fed one by one,
 * on every target, in pieces of any size, on a device without shared memory too.
 */
#include "driver/session/session.h"
#include "tests/support/model_bundle.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"

static const uint32_t tokens[] = {1,   403, 407, 261, 378, 300, 301, 260, 500, 77, 13, 999,
                                  3,   4,   812, 45,  6,   7,   8,   9,   10,  11, 12, 301,
                                  301, 2,   55,  600, 34,  35,  36,  37,  38,  39, 40, 41};
enum { N_TOKENS = sizeof tokens / sizeof tokens[0] };

struct scored {
    tw_device *device;
    tw_decoder *decoder;
    tw_deployment *deployment;
    tw_session *session;
    uint32_t n_vocab;
    tw_error err;
};

static void open_on(struct scored *s, const char *device, const char *bundle, uint32_t n_threads,
                    enum tw_mode mode) {
    struct tw_device_options d = {.size = sizeof d, .n_threads = n_threads};
    struct tw_session_options o = {.size = sizeof o, .mode = mode};
    struct tw_session_info info = {.size = sizeof info};
    memset(s, 0, sizeof *s);
    if (tw_device_open(device, &d, &s->device, &s->err) ||
        tw_decoder_open(bundle, 0, &s->decoder, &s->err) ||
        tw_deploy(s->device, s->decoder, &s->deployment, &s->err) ||
        tw_session_create(s->deployment, &o, &s->session, &s->err)) {
        fail_msg("%s on %s: %s", bundle, device, s->err.message);
    }
    assert_int_equal(tw_session_get_info(s->session, &info, &s->err), 0);
    s->n_vocab = info.n_vocab;
}

static void close_all(struct scored *s) {
    tw_session_destroy(s->session);
    tw_deployment_destroy(s->deployment);
    tw_decoder_close(s->decoder);
    tw_device_close(s->device);
}

/* The logits after each token, fed one by one by the decode program of the host target. */
static const float *one_by_one(uint32_t *n_vocab) {
    static float *rows;
    static uint32_t n;
    if (!rows) {
        struct scored s;
        open_on(&s, "emu", model_bundle("host"), 1, TW_MODE_FAST);
        n = s.n_vocab;
        rows = malloc((size_t)N_TOKENS * n * sizeof *rows);
        assert_non_null(rows);
        for (size_t i = 0; i < N_TOKENS; i++) {
            assert_int_equal(tw_session_feed(s.session, &tokens[i], 1, &s.err), 0);
            memcpy(rows + i * n, tw_session_logits(s.session), n * sizeof *rows);
        }
        close_all(&s);
    }
    *n_vocab = n;
    return rows;
}

/* Scores all tokens, `piece` in each call, and compares. */
static void check(struct scored *s, size_t piece) {
    uint32_t n;
    const float *expected = one_by_one(&n);
    float *got = malloc((size_t)N_TOKENS * n * sizeof *got);
    assert_non_null(got);
    assert_int_equal(s->n_vocab, n);
    assert_int_equal(tw_session_rewind(s->session, 0, &s->err), 0);
    for (size_t at = 0; at < N_TOKENS; at += piece) {
        size_t now = N_TOKENS - at < piece ? N_TOKENS - at : piece;
        if (tw_session_score(s->session, tokens + at, now, got + at * n, &s->err)) {
            fail_msg("%s", s->err.message);
        }
    }
    assert_memory_equal(got, expected, (size_t)N_TOKENS * n * sizeof *got);
    assert_memory_equal(tw_session_logits(s->session), expected + (size_t)(N_TOKENS - 1) * n,
                        n * sizeof *got);
    assert_int_equal(tw_session_position(s->session), N_TOKENS);
    free(got);
}

static void every_row_is_that_of_feeding_one_by_one(void **state) {
    (void)state;
    static const char *const targets[] = {"host", "sim4x4", "grid8x8", "sim4x4x2"};
    for (size_t t = 0; t < sizeof targets / sizeof targets[0]; t++) {
        struct scored s;
        open_on(&s, "emu", model_bundle_all_logits(targets[t]), 1 + t % 2, TW_MODE_FAST);
        check(&s, N_TOKENS);
        check(&s, 1);
        check(&s, 7);
        close_all(&s);
    }
}

static void strict_execution_gives_the_same_rows(void **state) {
    (void)state;
    struct scored s;
    open_on(&s, "emu", model_bundle_all_logits("host"), 1, TW_MODE_STRICT);
    check(&s, N_TOKENS);
    close_all(&s);
}

static void a_served_device_gives_the_same_rows(void **state) {
    (void)state;
    struct socket_device d;
    struct scored s;
    socket_device_start(&d, "score", NULL, 0);
    open_on(&s, d.selector, model_bundle_all_logits("host"), 0, TW_MODE_FAST);
    check(&s, N_TOKENS);
    close_all(&s);
    socket_device_end(&d);
}

static void scoring_continues_and_is_continued_by_feeding(void **state) {
    (void)state;
    uint32_t n;
    const float *expected = one_by_one(&n);
    struct scored s;
    float *row = malloc(n * sizeof *row);
    assert_non_null(row);
    open_on(&s, "emu", model_bundle_all_logits("host"), 1, TW_MODE_FAST);
    assert_int_equal(tw_session_feed(s.session, tokens, 10, &s.err), 0);
    assert_int_equal(tw_session_score(s.session, tokens + 10, 1, row, &s.err), 0);
    assert_memory_equal(row, expected + (size_t)10 * n, n * sizeof *row);
    assert_int_equal(tw_session_feed(s.session, tokens + 11, N_TOKENS - 11, &s.err), 0);
    assert_memory_equal(tw_session_logits(s.session), expected + (size_t)(N_TOKENS - 1) * n,
                        n * sizeof *row);
    close_all(&s);
    free(row);
}

static void steps_take_no_more_tokens_than_the_chunk(void **state) {
    (void)state;
    static const uint32_t chunks[] = {0, 1, 5}, steps[] = {2, N_TOKENS, (N_TOKENS + 4) / 5};
    struct scored s;
    open_on(&s, "emu", model_bundle_all_logits("host"), 1, TW_MODE_FAST);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        struct tw_session_options o = {.size = sizeof o, .chunk = chunks[i]};
        tw_session_destroy(s.session);
        assert_int_equal(tw_session_create(s.deployment, &o, &s.session, &s.err), 0);
        check(&s, N_TOKENS);
        assert_int_equal(s.session->steps, steps[i]); /* a score program here takes 32 tokens */
    }
    close_all(&s);
}

static void a_bundle_without_the_program_says_how_to_get_it(void **state) {
    (void)state;
    struct scored s;
    float row[1];
    open_on(&s, "emu", model_bundle("host"), 1, TW_MODE_FAST);
    assert_int_equal(tw_session_score(s.session, tokens, 1, row, &s.err), TW_E_UNSUPPORTED);
    assert_non_null(strstr(s.err.message, "compile the model with --logits all"));
    assert_int_equal(tw_session_feed(s.session, tokens, 2, &s.err), 0); /* nothing has changed */
    assert_int_equal(tw_session_score(s.session, tokens, 0, row, &s.err), TW_E_USAGE);
    assert_int_equal(tw_session_score(s.session, tokens, 1, NULL, &s.err), TW_E_USAGE);
    close_all(&s);
}

static int tear_down(void **state) {
    model_bundle_cleanup();
    return socket_folder_tear_down(state);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_that_of_feeding_one_by_one),
        cmocka_unit_test(strict_execution_gives_the_same_rows),
        cmocka_unit_test(a_served_device_gives_the_same_rows),
        cmocka_unit_test(scoring_continues_and_is_continued_by_feeding),
        cmocka_unit_test(steps_take_no_more_tokens_than_the_chunk),
        cmocka_unit_test(a_bundle_without_the_program_says_how_to_get_it),
    };
    return cmocka_run_group_tests_name("score", tests, socket_folder_set_up, tear_down);
}
