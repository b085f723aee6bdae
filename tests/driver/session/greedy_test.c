/* SPDX-License-Identifier: Apache-2.0
 *
 * Greedy runs of sessions on the shipped model: the device chooses the same tokens as feeding one
 * by one, and a run ends where it should and can be continued.
 */
#include "driver/session/session.h"
#include "driver/tokenizer/tokenizer_internal.h"
#include "tests/support/model_bundle.h"
#include "tests/support/model_fixture.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <time.h>

/* More than a key block, so that attention takes another block in the middle of a run. */
enum { N = 80, N_VOCAB = 1024 };
static const uint32_t prompt[] = {1, 403, 407, 261, 378};
#define N_PROMPT 5u

static uint32_t expected[N]; /* by feeding one by one */
static float expected_logits[N_VOCAB];

static void feed_one_by_one(struct rig *r, uint32_t *ids, uint32_t n) {
    assert_int_equal(tw_session_feed(r->session, prompt, N_PROMPT, &r->err), 0);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) {
            assert_int_equal(tw_session_feed(r->session, &ids[i - 1], 1, &r->err), 0);
        }
        ids[i] = best_token(tw_session_logits(r->session), N_VOCAB);
    }
}

static int find_expected(void **state) {
    struct rig r;
    (void)state;
    rig_open(&r, "host", 1, NULL);
    feed_one_by_one(&r, expected, N);
    memcpy(expected_logits, tw_session_logits(r.session), sizeof expected_logits);
    rig_close(&r);
    return 0;
}

static struct tw_greedy_options tokens_of(uint32_t n) {
    return (struct tw_greedy_options){.size = sizeof(struct tw_greedy_options), .n = n};
}

/* Compares runs of n tokens, where n grows by `grow` each time. */
static void check_runs(struct rig *r, uint32_t n, uint32_t grow) {
    uint32_t ids[N] = {0};
    assert_int_equal(tw_session_feed(r->session, prompt, N_PROMPT - 1, &r->err), 0);
    uint32_t id = prompt[N_PROMPT - 1], got = 0, chosen;
    for (; got < N; got += chosen, n += grow) {
        struct tw_greedy_options o = tokens_of(n < N - got ? n : N - got);
        enum tw_stop_reason reason = TW_STOP_CALLBACK;
        assert_int_equal(
            tw_session_run_greedy(r->session, id, &o, ids + got, &chosen, &reason, &r->err), 0);
        assert_int_equal(reason, TW_STOP_COUNT);
        assert_int_equal(chosen, o.n);
        id = ids[got + chosen - 1];
    }
    assert_memory_equal(ids, expected, sizeof ids);
    assert_memory_equal(tw_session_logits(r->session), expected_logits, sizeof expected_logits);
    assert_int_equal(tw_session_position(r->session), N_PROMPT + N - 1);
}

static void check(const char *target, uint32_t threads, struct tw_session_options o, uint32_t n,
                  uint32_t grow) {
    struct rig r;
    o.size = sizeof o;
    rig_open(&r, target, threads, &o);
    check_runs(&r, n, grow);
    rig_close(&r);
}

static void runs_of_any_length_give_the_tokens_of_single_steps(void **state) {
    (void)state;
    check("host", 1, (struct tw_session_options){0}, N, 0);
    check("host", 1, (struct tw_session_options){0}, 1, 0);
    check("host", 2, (struct tw_session_options){0}, 1, 1);
    check("host", 2, (struct tw_session_options){0}, 16, 0);
}

static void strict_mode_gives_the_same_tokens(void **state) {
    (void)state;
    check("host", 1, (struct tw_session_options){.mode = TW_MODE_STRICT}, 16, 0);
    check("host", 1,
          (struct tw_session_options){.mode = TW_MODE_STRICT, .random_schedule = 1, .seed = 4}, 7,
          0);
}

static void another_target_gives_the_same_tokens(void **state) {
    (void)state;
    check("sim4x4", 2, (struct tw_session_options){0}, 16, 0);
}

static void a_device_without_shared_memory_gives_the_same_tokens(void **state) {
    (void)state;
    struct rig r = {0};
    assert_int_equal(tw_device_open("emu", NULL, &r.device, &r.err), 0);
    struct tw_transport_ops distant = *r.device->transport->ops;
    distant.map = NULL;
    distant.adopt = NULL;
    r.device->transport->ops = &distant;
    assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &r.decoder, &r.err), 0);
    assert_int_equal(tw_deploy(r.device, r.decoder, &r.deployment, &r.err), 0);
    assert_int_equal(tw_session_create(r.deployment, NULL, &r.session, &r.err), 0);
    check_runs(&r, 9, 0);
    tw_session_interrupt(r.session); /* takes effect before a request is sent */
    struct tw_greedy_options o = tokens_of(4);
    uint32_t ids[4], n = 7;
    enum tw_stop_reason reason;
    assert_int_equal(tw_session_run_greedy(r.session, 5, &o, ids, &n, &reason, &r.err), 0);
    assert_int_equal(reason, TW_STOP_INTERRUPT);
    assert_int_equal(n, 0);
    rig_close(&r);
}

/* ---- ends ---- */

/* Opens a session and feeds all of the prompt but its last token. */
static void open_at_prompt(struct rig *r, uint32_t n_ctx) {
    struct tw_session_options o = {.size = sizeof o, .n_ctx = n_ctx};
    rig_open(r, "host", 1, &o);
    assert_int_equal(tw_session_feed(r->session, prompt, N_PROMPT - 1, &r->err), 0);
}

static uint32_t run(struct rig *r, struct tw_greedy_options o, uint32_t id,
                    enum tw_stop_reason expected_reason) {
    uint32_t ids[TW_GREEDY_MAX], n = 99;
    enum tw_stop_reason reason = TW_STOP_CALLBACK;
    assert_int_equal(tw_session_run_greedy(r->session, id, &o, ids, &n, &reason, &r->err), 0);
    assert_int_equal(reason, expected_reason);
    uint32_t at = tw_session_position(r->session) - n - (N_PROMPT - 1);
    assert_memory_equal(ids, expected + at, n * sizeof *ids);
    return n;
}

static void a_stop_ends_a_run_and_can_be_fed_after_it(void **state) {
    (void)state;
    struct rig r;
    struct tw_greedy_options o = tokens_of(40);
    uint32_t at = 10;
    o.n_stops = 2;
    o.stop[0] = 1023;
    o.stop[1] = expected[at];
    uint32_t first = 0;
    while (expected[first] != expected[at]) {
        first++; /* where it comes for the first time */
    }
    open_at_prompt(&r, 0);
    assert_int_equal(run(&r, o, prompt[N_PROMPT - 1], TW_STOP_END), first + 1);
    assert_int_equal(tw_session_position(r.session), N_PROMPT + first);
    assert_int_equal(run(&r, tokens_of(5), expected[first], TW_STOP_COUNT), 5);
    rig_close(&r);
}

static void a_run_ends_where_the_context_does(void **state) {
    (void)state;
    struct rig r;
    open_at_prompt(&r, 20);
    assert_int_equal(run(&r, tokens_of(40), prompt[N_PROMPT - 1], TW_STOP_CONTEXT),
                     20 - (N_PROMPT - 1));
    assert_int_equal(tw_session_position(r.session), 20);
    struct tw_greedy_options o = tokens_of(1);
    uint32_t ids[1], n;
    enum tw_stop_reason reason;
    assert_int_equal(tw_session_run_greedy(r.session, 5, &o, ids, &n, &reason, &r.err),
                     TW_E_CONTEXT_FULL);
    assert_int_equal(n, 0);
    rig_close(&r);
}

static void what_is_refused_changes_nothing(void **state) {
    (void)state;
    struct rig r;
    open_at_prompt(&r, 0);
    uint32_t ids[TW_GREEDY_MAX], n;
    enum tw_stop_reason reason;
    struct tw_greedy_options bad[] = {tokens_of(0), tokens_of(TW_GREEDY_MAX + 1), tokens_of(5)};
    bad[2].n_stops = TW_GREEDY_STOPS + 1;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(tw_session_run_greedy(r.session, 5, &bad[i], ids, &n, &reason, &r.err),
                         TW_E_USAGE);
    }
    struct tw_greedy_options o = tokens_of(5);
    assert_int_equal(tw_session_run_greedy(r.session, N_VOCAB, &o, ids, &n, &reason, &r.err),
                     TW_E_RANGE);
    r.device->identity.capabilities &= ~(uint32_t)TW_WIRE_CAN_GREEDY;
    assert_int_equal(tw_session_run_greedy(r.session, 5, &o, ids, &n, &reason, &r.err),
                     TW_E_UNSUPPORTED);
    r.device->identity.capabilities |= TW_WIRE_CAN_GREEDY;
    assert_int_equal(tw_session_position(r.session), N_PROMPT - 1);
    assert_int_equal(run(&r, tokens_of(8), prompt[N_PROMPT - 1], TW_STOP_COUNT), 8);
    rig_close(&r);
}

static void an_interrupt_before_a_run_is_not_lost(void **state) {
    (void)state;
    struct rig r;
    open_at_prompt(&r, 0);
    tw_session_interrupt(r.session);
    assert_int_equal(run(&r, tokens_of(10), prompt[N_PROMPT - 1], TW_STOP_INTERRUPT), 0);
    /* an interrupt ends one run only */
    assert_int_equal(run(&r, tokens_of(10), prompt[N_PROMPT - 1], TW_STOP_COUNT), 10);
    rig_close(&r);
}

struct later {
    tw_session *session;
    struct timespec pause;
};

static void *interrupt_later(void *arg) {
    const struct later *l = arg;
    nanosleep(&l->pause, NULL);
    tw_session_interrupt(l->session);
    return NULL;
}

/* However far the run is when the interrupt arrives, it returns correct tokens and can be
 * continued. */
static void an_interrupt_from_another_thread_ends_a_run_between_tokens(void **state) {
    (void)state;
    bool interrupted = false;
    for (int i = 0; i < 100 && !interrupted; i++) {
        struct rig r;
        pthread_t thread;
        uint32_t ids[N], n = 0, more;
        enum tw_stop_reason reason = TW_STOP_CALLBACK;
        struct tw_greedy_options o = tokens_of(N);
        open_at_prompt(&r, 0);
        struct later later = {r.session, {.tv_nsec = 500000 * (i % 20 + 1)}};
        assert_int_equal(pthread_create(&thread, NULL, interrupt_later, &later), 0);
        assert_int_equal(
            tw_session_run_greedy(r.session, prompt[N_PROMPT - 1], &o, ids, &n, &reason, &r.err),
            0);
        pthread_join(thread, NULL);
        assert_true(reason == TW_STOP_COUNT || reason == TW_STOP_INTERRUPT);
        interrupted = reason == TW_STOP_INTERRUPT && n > 0 && n < N;
        assert_memory_equal(ids, expected, n * sizeof *ids);
        assert_int_equal(tw_session_position(r.session), N_PROMPT - 1 + n);
        if (interrupted) {
            o.n = N - n;
            assert_int_equal(
                tw_session_run_greedy(r.session, ids[n - 1], &o, ids + n, &more, &reason, &r.err),
                0);
            assert_memory_equal(ids, expected, sizeof ids);
        }
        rig_close(&r);
    }
    assert_true(interrupted);
}

/* The test changes the session's context length, so that only the device notices its end, after
 * some tokens. */
static void a_fault_comes_with_the_tokens_before_it(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    uint32_t ids[TW_GREEDY_MAX], n = 0;
    enum tw_stop_reason reason;
    struct tw_greedy_options o = tokens_of(TW_GREEDY_MAX);
    const struct tw_program *p = r.session->executor->decode.program;
    uint32_t max = 0;
    for (uint32_t t = 0; t < p->n_trips; t++) {
        max = strcmp(tw_program_string(p, p->trips[t].name), "pos") == 0 ? p->trips[t].max : max;
    }
    assert_true(max > 8);
    struct session_pages *pages = &r.session->pages;
    r.session->n_ctx = max * 2;
    pages->page = realloc(pages->page, max * sizeof *pages->page);
    assert_non_null(pages->page);
    assert_int_equal(tw_session_own_pages(r.session, 0, max - 5, &r.err), 0);
    r.session->position = max - 5;
    assert_int_equal(tw_session_run_greedy(r.session, 5, &o, ids, &n, &reason, &r.err), TW_E_FAULT);
    assert_true(n >= 5 && n < 10);
    assert_non_null(strstr(r.err.message, "decode"));
    assert_non_null(strstr(r.err.message, "InputRange"));
    assert_null(tw_session_logits(r.session));
    assert_int_equal(tw_session_feed(r.session, ids, 1, &r.err), TW_E_FAULT);
    rig_close(&r);
}

/* ---- the decode loop ---- */

struct heard {
    uint32_t ids[128], n, stop_after;
    char text[2048];
    size_t n_text;
    volatile sig_atomic_t *interrupt;
    bool logits;
};

static int on_token(void *ctx, uint32_t id, const float *logits) {
    struct heard *h = ctx;
    assert_true((logits != NULL) == h->logits);
    h->ids[h->n++] = id;
    if (h->interrupt && h->n == h->stop_after) {
        *h->interrupt = 1;
        return 0;
    }
    return h->stop_after && h->n == h->stop_after;
}

static int on_text(void *ctx, const char *text, size_t n) {
    struct heard *h = ctx;
    assert_true(h->n_text + n < sizeof h->text);
    memcpy(h->text + h->n_text, text, n);
    h->n_text += n;
    return 0;
}

static struct tw_generate_options listen(struct heard *h, uint32_t n, bool logits) {
    memset(h, 0, sizeof *h);
    h->logits = logits;
    return (struct tw_generate_options){.size = sizeof(struct tw_generate_options),
                                        .n_predict = n,
                                        .flags = logits ? 0 : TW_GENERATE_NO_LOGITS,
                                        .on_token = on_token,
                                        .on_text = on_text,
                                        .ctx = h};
}

static void generating_without_logits_gives_the_same_text(void **state) {
    (void)state;
    struct rig r;
    struct heard with, without;
    rig_open(&r, "host", 2, NULL);
    for (uint32_t n = 1; n < 60; n += 19) {
        struct tw_generate_options o = listen(&with, n, true);
        struct tw_generate_result a = {.size = sizeof a}, b = {.size = sizeof b};
        assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
        assert_int_equal(tw_generate(r.session, prompt, N_PROMPT, &o, &a, &r.err), 0);
        uint32_t position = tw_session_position(r.session);
        o = listen(&without, n, false);
        assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
        assert_int_equal(tw_generate(r.session, prompt, N_PROMPT, &o, &b, &r.err), 0);
        assert_int_equal(tw_session_position(r.session), position);
        assert_non_null(tw_session_logits(r.session));
        assert_int_equal(without.n, n);
        assert_memory_equal(with.ids, without.ids, n * sizeof *with.ids);
        assert_int_equal(with.n_text, without.n_text);
        assert_memory_equal(with.text, without.text, with.n_text);
        assert_int_equal(a.reason, b.reason);
        assert_int_equal(a.n_generated, b.n_generated);
    }
    rig_close(&r);
}

static void sampling_without_logits_is_done_by_the_host(void **state) {
    (void)state;
    struct rig r;
    struct heard h[2];
    rig_open(&r, "host", 1, NULL);
    for (int i = 0; i < 2; i++) {
        struct tw_generate_options o = listen(&h[i], 30, i == 0);
        o.temperature = 0.9f;
        o.seed = 5;
        assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
        assert_int_equal(tw_generate(r.session, prompt, N_PROMPT, &o, NULL, &r.err), 0);
    }
    assert_memory_equal(h[0].ids, h[1].ids, 30 * sizeof h[0].ids[0]);
    rig_close(&r);
}

/* Wherever a run is stopped, the session has been fed all tokens that were reported but the
 * last. */
static void a_callback_or_interrupt_leaves_a_consistent_position(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    for (uint32_t after = 1; after < 40; after++) {
        struct heard h;
        volatile sig_atomic_t stop = 0;
        struct tw_generate_options o = listen(&h, 50, false);
        struct tw_generate_result result = {.size = sizeof result};
        bool interrupt = after % 2;
        h.stop_after = after;
        h.interrupt = interrupt ? &stop : NULL;
        o.stop = &stop;
        assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
        assert_int_equal(tw_generate(r.session, prompt, N_PROMPT, &o, &result, &r.err),
                         interrupt ? TW_E_INTERRUPTED : 0);
        assert_int_equal(result.reason, interrupt ? TW_STOP_INTERRUPT : TW_STOP_CALLBACK);
        assert_int_equal(h.n, after);
        assert_int_equal(tw_session_position(r.session), N_PROMPT + after - 1);
        assert_memory_equal(h.ids, expected, after * sizeof *h.ids);
        if (after % 8 == 0) { /* and can continue */
            o = listen(&h, 4, false);
            assert_int_equal(tw_generate(r.session, expected + after - 1, 1, &o, &result, &r.err),
                             0);
            assert_memory_equal(h.ids, expected + after, 4 * sizeof *h.ids);
        }
    }
    rig_close(&r);
}

static void a_full_context_ends_generation_after_all_text(void **state) {
    (void)state;
    struct rig r;
    struct heard h;
    struct tw_session_options s = {.size = sizeof s, .n_ctx = 30};
    rig_open(&r, "host", 1, &s);
    struct tw_generate_options o = listen(&h, 0, false);
    struct tw_generate_result result = {.size = sizeof result};
    o.flags |= TW_GENERATE_IGNORE_EOS;
    assert_int_equal(tw_generate(r.session, prompt, N_PROMPT, &o, &result, &r.err),
                     TW_E_CONTEXT_FULL);
    assert_int_equal(result.reason, TW_STOP_CONTEXT);
    assert_int_equal(h.n, 30 - N_PROMPT + 1);
    assert_memory_equal(h.ids, expected, h.n * sizeof *h.ids);
    rig_close(&r);
}

/* The test makes a token from the middle of the text an end token. */
static void the_end_token_ends_generation(void **state) {
    (void)state;
    struct rig r;
    struct heard with, without;
    rig_open(&r, "host", 1, NULL);
    uint32_t at = 20, first = 0;
    while (expected[first] != expected[at]) {
        first++;
    }
    struct tw_vocab_header *own = (struct tw_vocab_header *)(uintptr_t)&r.decoder->vocab.header;
    struct tw_vocab *used = &r.decoder->tokenizer->vocab;
    uint32_t eos = own->eos;
    own->eos = used->header.eos = expected[at];
    for (int logits = 0; logits < 2; logits++) {
        struct heard *h = logits ? &with : &without;
        struct tw_generate_options o = listen(h, 50, logits);
        struct tw_generate_result result = {.size = sizeof result};
        assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
        assert_int_equal(tw_generate(r.session, prompt, N_PROMPT, &o, &result, &r.err), 0);
        assert_int_equal(result.reason, TW_STOP_END);
        assert_int_equal(h->n, first);
        assert_int_equal(tw_session_position(r.session), N_PROMPT + first);
    }
    assert_memory_equal(with.ids, without.ids, first * sizeof *with.ids);
    own->eos = used->header.eos = eos;
    rig_close(&r);
}

static int cleanup(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_of_any_length_give_the_tokens_of_single_steps),
        cmocka_unit_test(strict_mode_gives_the_same_tokens),
        cmocka_unit_test(another_target_gives_the_same_tokens),
        cmocka_unit_test(a_device_without_shared_memory_gives_the_same_tokens),
        cmocka_unit_test(a_stop_ends_a_run_and_can_be_fed_after_it),
        cmocka_unit_test(a_run_ends_where_the_context_does),
        cmocka_unit_test(what_is_refused_changes_nothing),
        cmocka_unit_test(an_interrupt_before_a_run_is_not_lost),
        cmocka_unit_test(an_interrupt_from_another_thread_ends_a_run_between_tokens),
        cmocka_unit_test(a_fault_comes_with_the_tokens_before_it),
        cmocka_unit_test(generating_without_logits_gives_the_same_text),
        cmocka_unit_test(sampling_without_logits_is_done_by_the_host),
        cmocka_unit_test(a_callback_or_interrupt_leaves_a_consistent_position),
        cmocka_unit_test(a_full_context_ends_generation_after_all_text),
        cmocka_unit_test(the_end_token_ends_generation),
    };
    return cmocka_run_group_tests(tests, find_expected, cleanup);
}
