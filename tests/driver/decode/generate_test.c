/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the decode loop on the shipped model: golden text, where it stops, and the callbacks.
 */
#include "tests/support/golden.h"
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"

struct heard {
    uint32_t ids[1024], n;
    char text[8192];
    size_t n_text;
    uint32_t stop_after; /* tokens; 0: never */
    volatile sig_atomic_t *interrupt;
};

static int on_token(void *ctx, uint32_t id, const float *logits) {
    struct heard *h = ctx;
    for (uint32_t i = 0; i < 1024; i++) {
        assert_true(logits[i] == logits[i]);
    }
    h->ids[h->n++] = id;
    if (h->interrupt && h->n == h->stop_after) {
        *h->interrupt = 1;
        return 0;
    }
    return h->stop_after && h->n == h->stop_after;
}

static int on_text(void *ctx, const char *text, size_t n) {
    struct heard *h = ctx;
    assert_true(n > 0);
    assert_true(h->n_text + n < sizeof h->text);
    memcpy(h->text + h->n_text, text, n);
    h->n_text += n;
    return 0;
}

static struct tw_generate_options listen(struct heard *h, uint32_t n) {
    memset(h, 0, sizeof *h);
    return (struct tw_generate_options){.size = sizeof(struct tw_generate_options),
                                        .n_predict = n,
                                        .on_token = on_token,
                                        .on_text = on_text,
                                        .ctx = h};
}

/* Only the first ids: further on, margins fall below what rounding of the activations may move
 * (tests/golden compares within those margins). */
#define GOLDEN_IDS 16u

static void greedy_ids_are_the_golden_ones(void **state) {
    (void)state;
    struct golden golden;
    tw_error err = {0};
    assert_int_equal(
        golden_load("tests/data/fairytale-1.7m.golden.json", "llamacpp_q8_0", &golden, &err), 0);
    struct rig r;
    rig_open(&r, "host", 2, NULL);
    assert_true(golden.n_runs > 0);
    for (uint32_t i = 0; i < golden.n_runs; i++) {
        const struct golden_run *run = &golden.runs[i];
        struct heard h;
        struct tw_generate_options o = listen(&h, GOLDEN_IDS);
        struct tw_generate_result result = {.size = sizeof result};
        o.flags = TW_GENERATE_IGNORE_EOS;
        uint32_t ids[256];
        size_t n;
        assert_int_equal(
            tw_tokenize(r.decoder, run->prompt, strlen(run->prompt), 0, ids, 256, &n, &r.err), 0);
        assert_int_equal(n, run->n_prompt);
        assert_memory_equal(ids, run->prompt_ids, n * sizeof *ids);
        assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
        assert_int_equal(tw_generate(r.session, ids, n, &o, &result, &r.err), 0);
        assert_int_equal(result.n_generated, GOLDEN_IDS);
        assert_int_equal(result.n_prompt, n);
        assert_memory_equal(h.ids, run->ids, GOLDEN_IDS * sizeof *h.ids);
    }
    rig_close(&r);
    golden_finish(&golden);
}

static void the_text_is_what_the_ids_say(void **state) {
    (void)state;
    struct rig r;
    struct heard h;
    rig_open(&r, "host", 1, NULL);
    const uint32_t bos = 1;
    struct tw_generate_options o = listen(&h, 60);
    o.temperature = 0.8f;
    o.top_p = 0.95f;
    o.seed = 3;
    assert_int_equal(tw_generate(r.session, &bos, 1, &o, NULL, &r.err), 0);
    char text[8192];
    size_t n;
    assert_int_equal(tw_detokenize(r.decoder, h.ids, h.n, text, sizeof text, &n, &r.err), 0);
    assert_int_equal(n, h.n_text);
    assert_memory_equal(text, h.text, n);
    assert_true(text[0] != ' ');
    rig_close(&r);
}

static void a_seed_repeats_itself_and_another_one_differs(void **state) {
    (void)state;
    struct rig r;
    struct heard h[3];
    rig_open(&r, "host", 1, NULL);
    const uint32_t bos = 1;
    for (int i = 0; i < 3; i++) {
        struct tw_generate_options o = listen(&h[i], 40);
        o.temperature = 1.0f;
        o.seed = i < 2 ? 11 : 12;
        assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
        assert_int_equal(tw_generate(r.session, &bos, 1, &o, NULL, &r.err), 0);
    }
    assert_int_equal(h[0].n, h[1].n);
    assert_memory_equal(h[0].ids, h[1].ids, h[0].n * sizeof(uint32_t));
    assert_true(h[0].n != h[2].n || memcmp(h[0].ids, h[2].ids, h[0].n * sizeof(uint32_t)) != 0);
    rig_close(&r);
}

static void a_callback_stops_generation(void **state) {
    (void)state;
    struct rig r;
    struct heard h;
    rig_open(&r, "host", 1, NULL);
    const uint32_t prompt[] = {1, 300, 301};
    struct tw_generate_options o = listen(&h, 50);
    struct tw_generate_result result = {.size = sizeof result};
    h.stop_after = 5;
    assert_int_equal(tw_generate(r.session, prompt, 3, &o, &result, &r.err), 0);
    assert_int_equal(result.reason, TW_STOP_CALLBACK);
    assert_int_equal(result.n_generated, 5);
    assert_int_equal(tw_session_position(r.session), 3 + 4); /* the last token is not fed */
    rig_close(&r);
}

static void an_interrupt_ends_generation_after_the_token(void **state) {
    (void)state;
    struct rig r;
    struct heard h;
    volatile sig_atomic_t stop = 0;
    rig_open(&r, "host", 1, NULL);
    const uint32_t prompt[] = {1, 300, 301};
    struct tw_generate_options o = listen(&h, 50);
    struct tw_generate_result result = {.size = sizeof result};
    h.stop_after = 7;
    h.interrupt = &stop;
    o.stop = &stop;
    assert_int_equal(tw_generate(r.session, prompt, 3, &o, &result, &r.err), TW_E_INTERRUPTED);
    assert_int_equal(result.reason, TW_STOP_INTERRUPT);
    assert_int_equal(h.n, 7);
    assert_int_equal(tw_generate(r.session, prompt, 3, &o, &result, &r.err), TW_E_INTERRUPTED);
    assert_int_equal(result.n_prompt, 0);
    rig_close(&r);
}

static void a_full_context_is_an_error_after_all_text(void **state) {
    (void)state;
    struct rig r;
    struct heard h;
    struct tw_session_options s = {.size = sizeof s, .n_ctx = 12};
    rig_open(&r, "host", 1, &s);
    const uint32_t prompt[] = {1, 300, 301};
    struct tw_generate_options o = listen(&h, 0);
    struct tw_generate_result result = {.size = sizeof result};
    o.flags = TW_GENERATE_IGNORE_EOS;
    assert_int_equal(tw_generate(r.session, prompt, 3, &o, &result, &r.err), TW_E_CONTEXT_FULL);
    assert_int_equal(result.reason, TW_STOP_CONTEXT);
    assert_int_equal(h.n, 12 - 3 + 1);
    assert_true(h.n_text > 0);
    rig_close(&r);
}

/* What on_prompt and count_token were called with. */
struct parts {
    uint32_t n, last, total, tokens;
};

static void on_prompt(void *ctx, uint32_t done, uint32_t total) {
    struct parts *p = ctx;
    assert_true(done > p->last && done <= total);
    assert_int_equal(p->tokens, 0);
    p->n++;
    p->last = done;
    p->total = total;
}

static int count_token(void *ctx, uint32_t id, const float *logits) {
    struct parts *p = ctx;
    assert_true(id < 1024 && logits);
    assert_int_equal(p->last, p->total);
    p->tokens++;
    return 0;
}

static void prompt_progress_is_reported_before_the_first_token(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    uint32_t ids[300];
    for (uint32_t i = 0; i < 300; i++) {
        ids[i] = 3 + i;
    }
    struct parts p = {0};
    struct tw_generate_options o = {.size = sizeof o,
                                    .n_predict = 2,
                                    .on_prompt = on_prompt,
                                    .on_token = count_token,
                                    .ctx = &p};
    assert_int_equal(tw_generate(r.session, ids, 300, &o, NULL, &r.err), 0);
    assert_int_equal(p.total, 300);
    assert_int_equal(p.last, 300);
    assert_true(p.n > 1);
    assert_int_equal(p.tokens, 2);
    rig_close(&r);
}

/* Finds a seed whose text ends by itself, then checks that IGNORE_EOS continues from there. */
static void the_end_token_ends_generation_unless_ignored(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    const uint32_t bos = 1;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct heard h, on;
        struct tw_generate_options o = listen(&h, 100);
        struct tw_generate_result result = {.size = sizeof result};
        o.temperature = 3.0f;
        o.seed = seed;
        assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
        assert_int_equal(tw_generate(r.session, &bos, 1, &o, &result, &r.err), 0);
        if (result.reason != TW_STOP_END) {
            continue;
        }
        assert_true(h.n < 100);
        o = listen(&on, 100);
        o.temperature = 3.0f;
        o.seed = seed;
        o.flags = TW_GENERATE_IGNORE_EOS;
        assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
        assert_int_equal(tw_generate(r.session, &bos, 1, &o, &result, &r.err), 0);
        assert_int_equal(on.n, 100);
        assert_memory_equal(on.ids, h.ids, h.n * sizeof(uint32_t));
        assert_int_equal(on.ids[h.n], 2); /* </s> */
        rig_close(&r);
        return;
    }
    fail_msg("no seed below 200 ended the text within 100 tokens");
}

static void bad_sampling_parameters_are_refused(void **state) {
    (void)state;
    struct rig r;
    struct heard h;
    rig_open(&r, "host", 1, NULL);
    const uint32_t bos = 1;
    struct tw_generate_options o = listen(&h, 5);
    o.temperature = -1.0f;
    assert_int_equal(tw_generate(r.session, &bos, 1, &o, NULL, &r.err), TW_E_USAGE);
    assert_int_equal(tw_session_position(r.session), 0);
    rig_close(&r);
}

static int cleanup(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_ids_are_the_golden_ones),
        cmocka_unit_test(the_text_is_what_the_ids_say),
        cmocka_unit_test(a_seed_repeats_itself_and_another_one_differs),
        cmocka_unit_test(a_callback_stops_generation),
        cmocka_unit_test(an_interrupt_ends_generation_after_the_token),
        cmocka_unit_test(a_full_context_is_an_error_after_all_text),
        cmocka_unit_test(prompt_progress_is_reported_before_the_first_token),
        cmocka_unit_test(the_end_token_ends_generation_unless_ignored),
        cmocka_unit_test(bad_sampling_parameters_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, cleanup);
}
