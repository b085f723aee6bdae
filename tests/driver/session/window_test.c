/* SPDX-License-Identifier: Apache-2.0
 *
 * States that are read through windows keep the last positions only, and give the bits of states
 * that keep all: in contexts of which they hold a part, however tokens are fed, forked, rewound and
 * chosen on the device; and the reference evaluator's numbers.
 */
#include "driver/session/session.h"
#include "tests/support/golden.h"
#include "tests/support/model_fixture.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"
#include "tilewright/compile.h"
#include "tilewright/state.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { SHORT_CTX = 760, LONG_CTX = 3000, N = TEST_ASAN ? 1300 : 1900 };

static const char *const models[] = {"gemma3-F32", "gemma2-F32", "cohere2-F32", "exaone4-swa-F32"};
enum { N_MODELS = sizeof models / sizeof models[0] };

struct opened {
    char path[4200], bundle[64];
    tw_device *device;
    tw_decoder *decoder;
    tw_deployment *deployment;
    tw_error err;
    uint32_t n_vocab;
};

static uint32_t tokens[LONG_CTX];

static void open_model(struct opened *o, const char *name, const char *target, uint32_t n_ctx) {
    const char *folder = golden_shared("data/arch");
    if (!folder) {
        skip();
    }
    struct tw_compile_options c = {
        .size = sizeof c, .target = target, .host_sites = 2, .n_ctx = n_ctx, .kv = "f32"};
    struct tw_decoder_info info = {.size = sizeof info};
    c.host_sites = strcmp(target, "host") == 0 ? 2 : 0;
    memset(o, 0, sizeof *o);
    snprintf(o->path, sizeof o->path, "%s/%s.gguf", folder ? folder : "", name);
    snprintf(o->bundle, sizeof o->bundle, "/tmp/tw-window-XXXXXX");
    int fd = mkstemp(o->bundle);
    assert_true(fd >= 0);
    close(fd);
    char device[64];
    snprintf(device, sizeof device, "emu:%s", target);
    if (tw_compile_file(o->path, o->bundle, &c, NULL, &o->err) ||
        tw_device_open(strcmp(target, "host") == 0 ? "emu" : device, NULL, &o->device, &o->err) ||
        tw_decoder_open(o->bundle, 0, &o->decoder, &o->err) ||
        tw_deploy(o->device, o->decoder, &o->deployment, &o->err) ||
        tw_decoder_get_info(o->decoder, &info, &o->err)) {
        fail_msg("%s: %s", name, o->err.message);
    }
    o->n_vocab = info.n_vocab;
    for (uint32_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        tokens[i] = (i * 31 + i / 7) % info.n_vocab;
    }
}

static void close_model(struct opened *o) {
    tw_deployment_destroy(o->deployment);
    tw_decoder_close(o->decoder);
    tw_device_close(o->device);
    unlink(o->bundle);
}

static tw_session *create(struct opened *o, uint32_t chunk) {
    struct tw_session_options s = {.size = sizeof s, .chunk = chunk, .n_threads = 1};
    tw_session *session = NULL;
    if (tw_session_create(o->deployment, &s, &session, &o->err)) {
        fail_msg("%s", o->err.message);
    }
    return session;
}

static void feed(struct opened *o, tw_session *s, uint32_t n) {
    if (tw_session_feed(s, tokens + tw_session_position(s), n, &o->err)) {
        fail_msg("%s: %s", o->path, o->err.message);
    }
}

static void same_bits(const struct opened *o, const float *a, const float *b) {
    assert_memory_equal(a, b, o->n_vocab * sizeof *a);
}

/* A context that the window does not shorten, against one of which it keeps a part. */
static void the_bits_are_those_of_whole_contexts(void **state) {
    (void)state;
    static const char *const targets[] = {"host", "sim4x4"};
    for (uint32_t i = 0; i < N_MODELS * 2; i++) {
        struct opened whole, part;
        open_model(&whole, models[i / 2], targets[i % 2], SHORT_CTX);
        open_model(&part, models[i / 2], targets[i % 2], LONG_CTX);
        assert_int_equal(whole.deployment->window_pool.n_tensors, 0);
        assert_true(part.deployment->window_pool.n_tensors > 0);
        tw_session *a = create(&whole, 0), *b = create(&part, 0);
        static const uint32_t pieces[] = {1, 40, 130, 1, 300, 64, 2, 200};
        for (uint32_t k = 0; k < sizeof pieces / sizeof pieces[0]; k++) {
            feed(&whole, a, pieces[k]);
            feed(&part, b, pieces[k]);
            same_bits(&part, tw_session_logits(a), tw_session_logits(b));
        }
        tw_session_destroy(a);
        tw_session_destroy(b);
        close_model(&whole);
        close_model(&part);
    }
}

static void a_long_context_holds_few_pages_and_meets_the_reference(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_MODELS; i += 2) {
        struct opened o;
        struct model_fixture f;
        const float *logits = NULL;
        float largest = 0, apart = 0;
        open_model(&o, models[i], "host", LONG_CTX);
        tw_session *s = create(&o, 0);
        feed(&o, s, N);
        uint32_t window = o.deployment->window_pool.window;
        assert_in_range(s->window.n, 1, (window + TW_KEY_SEGMENT) / TW_KV_BLOCK + 2);
        assert_int_equal(s->pages.n, (N + TW_KV_BLOCK - 1) / TW_KV_BLOCK);
        assert_int_equal(model_fixture_open(o.path, N, &f, &o.err), 0);
        for (uint32_t k = 0; k < N; k++) {
            assert_int_equal(tw_reference_step(f.reference, tokens[k], &logits, &o.err), 0);
        }
        for (uint32_t k = 0; k < o.n_vocab; k++) {
            largest = fmaxf(largest, fabsf(logits[k]));
            apart = fmaxf(apart, fabsf(logits[k] - tw_session_logits(s)[k]));
        }
        if (!(apart <= 3e-4f * largest)) {
            fail_msg("%s: %g from the reference", models[i], (double)apart);
        }
        model_fixture_finish(&f);
        tw_session_destroy(s);
        close_model(&o);
    }
}

static void forks_rewinds_and_chunks_change_no_bit(void **state) {
    (void)state;
    struct opened o;
    uint64_t seed = 5;
    open_model(&o, models[0], "host", LONG_CTX);
    tw_session *fresh = create(&o, 0);
    feed(&o, fresh, N);
    float *expected = malloc(o.n_vocab * sizeof *expected);
    assert_non_null(expected);
    memcpy(expected, tw_session_logits(fresh), o.n_vocab * sizeof *expected);
    tw_session_destroy(fresh);
    for (uint32_t i = 0; i < 10; i++) {
        static const uint32_t chunks[] = {0, 1, 7, 64, 100};
        tw_session *s = create(&o, i < 2 ? 0 : chunks[i % 5]), *fork = NULL;
        while (tw_session_position(s) < N) {
            uint32_t left = N - tw_session_position(s), n = 1 + random_below(&seed, 400);
            feed(&o, s, n < left ? n : left);
            uint32_t back = tw_session_position(s);
            back -= random_below(&seed, back < 30 || i % 3 ? 10 : back) % (back + 1);
            if (random_below(&seed, 4) == 0 && back < tw_session_position(s)) {
                assert_int_equal(tw_session_rewind(s, back, &o.err), 0);
            } else if (random_below(&seed, 3) == 0) {
                assert_int_equal(tw_session_fork(s, &fork, &o.err), 0);
                tw_session *gone = random_below(&seed, 2) ? s : fork;
                s = gone == s ? fork : s;
                uint32_t other[200] = {1};
                assert_int_equal(tw_session_feed(gone, other, 200, &o.err), 0);
                tw_session_destroy(gone);
            }
        }
        same_bits(&o, expected, tw_session_logits(s));
        tw_session_destroy(s);
        assert_int_equal(o.deployment->window_pool.n_free, o.deployment->window_pool.n_pages);
        assert_int_equal(o.deployment->pool.n_free, o.deployment->pool.n_pages);
    }
    free(expected);
    close_model(&o);
}

/* Runs on the device move position and end of windows, too. */
static void greedy_runs_choose_what_single_steps_do(void **state) {
    (void)state;
    struct opened o;
    open_model(&o, models[0], "host", LONG_CTX);
    tw_session *a = create(&o, 0), *b = create(&o, 0);
    uint32_t ids[TW_GREEDY_MAX], n = 0, id = 3;
    enum tw_stop_reason reason;
    struct tw_greedy_options g = {.size = sizeof g, .n = TW_GREEDY_MAX};
    feed(&o, a, 900);
    feed(&o, b, 900);
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t first = id;
        assert_int_equal(tw_session_run_greedy(a, first, &g, ids, &n, &reason, &o.err), 0);
        assert_int_equal(n, TW_GREEDY_MAX);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(tw_session_feed(b, &id, 1, &o.err), 0);
            id = best_token(tw_session_logits(b), o.n_vocab);
            assert_int_equal(ids[i], id);
        }
        same_bits(&o, tw_session_logits(a), tw_session_logits(b));
    }
    tw_session_destroy(a);
    tw_session_destroy(b);
    close_model(&o);
}

/* Room for one whole context is enough for any pieces of it. */
static void one_context_of_pages_is_enough(void **state) {
    (void)state;
    struct opened o;
    struct tw_deploy_options d = {.size = sizeof d, .state_positions = LONG_CTX};
    uint32_t ids[TW_GREEDY_MAX], n = 0;
    enum tw_stop_reason reason;
    struct tw_greedy_options g = {.size = sizeof g, .n = TW_GREEDY_MAX};
    open_model(&o, models[0], "host", LONG_CTX);
    tw_deployment_destroy(o.deployment);
    assert_int_equal(tw_deploy_with(o.device, o.decoder, &d, &o.deployment, &o.err), 0);
    static const uint32_t pieces[] = {1000, 22, 1, 300, 511, 2};
    for (uint32_t round = 0; round < 2; round++) {
        tw_session *s = create(&o, 0);
        for (uint32_t k = 0; k < sizeof pieces / sizeof pieces[0]; k++) {
            feed(&o, s, pieces[(k + round) % 6]);
            if (k % 2) {
                assert_int_equal(tw_session_run_greedy(s, 1, &g, ids, &n, &reason, &o.err), 0);
                assert_int_equal(tw_session_rewind(s, tw_session_position(s) - n, &o.err), 0);
            }
        }
        tw_session_destroy(s);
    }
    close_model(&o);
}

/* A session whose tokens were not all fed again has no state that could be saved. */
static void a_lost_window_is_not_saved(void **state) {
    (void)state;
    struct opened o;
    volatile sig_atomic_t stop = 0;
    struct tw_session_options options = {.size = sizeof options, .n_threads = 1, .stop = &stop};
    tw_session *s = NULL;
    size_t size = 0;
    uint32_t id = 1, n = 0;
    open_model(&o, models[0], "host", LONG_CTX);
    assert_int_equal(tw_session_create(o.deployment, &options, &s, &o.err), 0);
    feed(&o, s, 1500);
    assert_int_equal(tw_session_rewind(s, 800, &o.err), 0);
    assert_true(s->window_lost);
    stop = 1;
    assert_int_equal(tw_session_feed(s, &id, 1, &o.err), TW_E_INTERRUPTED);
    assert_int_equal(tw_session_position(s), 800);
    assert_int_equal(tw_session_save_memory(s, NULL, 0, &size, &o.err), TW_E_USAGE);
    stop = 0;
    feed(&o, s, 1);
    tw_session *fresh = create(&o, 0);
    feed(&o, fresh, 801);
    same_bits(&o, tw_session_logits(fresh), tw_session_logits(s));
    /* restored, it feeds them again, too */
    assert_int_equal(tw_session_save_memory(s, NULL, 0, &size, &o.err), 0);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    assert_int_equal(tw_session_save_memory(s, bytes, size, &size, &o.err), 0);
    assert_int_equal(tw_session_rewind(fresh, 0, &o.err), 0);
    assert_int_equal(tw_session_restore_memory(fresh, bytes, size, &n, &o.err), 0);
    assert_int_equal(n, 801);
    feed(&o, fresh, 1);
    feed(&o, s, 1);
    same_bits(&o, tw_session_logits(fresh), tw_session_logits(s));
    free(bytes);
    tw_session_destroy(fresh);
    tw_session_destroy(s);
    close_model(&o);
}

/* Stops the session once it feeds its tokens again, beyond position `from`. */
struct late_stop {
    const tw_session *s;
    uint32_t from;
    volatile sig_atomic_t stop;
    atomic_bool over;
};

static void *stop_late(void *ctx) {
    struct late_stop *l = ctx;
    const volatile uint32_t *position = &l->s->position;
    while (!atomic_load(&l->over) && *position > l->from) {
    }
    while (!atomic_load(&l->over) && *position <= l->from) {
    }
    l->stop = 1;
    return NULL;
}

enum { LAST_PAGE = 832, END = 891 };

/* Loses the window at position END, and stops while the tokens of the last page are fed again.
 * Returns false if that was too late, or in the middle of a step. */
static bool stop_in_last_page(struct opened *o, struct late_stop *l, const char *salt,
                              tw_session **out) {
    struct tw_session_options options = {.size = sizeof options,
                                         .n_threads = 1,
                                         .chunk = 1,
                                         .stop = &l->stop,
                                         .prefix_cache = 1,
                                         .prefix_salt = salt};
    pthread_t thread;
    *l = (struct late_stop){.from = LAST_PAGE};
    assert_int_equal(tw_session_create(o->deployment, &options, out, &o->err), 0);
    tw_session *s = *out;
    l->s = s;
    s->caches = false; /* what was computed must not be in the way of what was not */
    feed(o, s, 1500);
    assert_int_equal(tw_session_rewind(s, END, &o->err), 0);
    assert_true(s->window_lost);
    s->caches = true;
    assert_int_equal(pthread_create(&thread, NULL, stop_late, l), 0);
    int code = tw_session_feed(s, tokens + END, 1, &o->err);
    atomic_store(&l->over, true);
    pthread_join(thread, NULL);
    return code == TW_E_INTERRUPTED && !s->broken;
}

/* Positions that were not fed again are neither saved nor left in the cache, although their page is
 * one that others were fed to. */
static void what_was_not_fed_again_is_not_used(void **state) {
    (void)state;
    struct opened o;
    struct late_stop l;
    tw_session *s = NULL;
    char salt[16];
    size_t size = 0;
    bool hit = false;
    open_model(&o, models[0], "host", LONG_CTX);
    for (uint32_t i = 0; i < (TEST_ASAN ? 10 : 50) && !hit; i++) {
        tw_session_destroy(s);
        snprintf(salt, sizeof salt, "%u", i);
        hit = stop_in_last_page(&o, &l, salt, &s);
    }
    if (!hit) { /* a loaded machine: the other thread came too late each time */
        tw_session_destroy(s);
        close_model(&o);
        skip();
    }
    assert_int_equal(tw_session_position(s), END);
    assert_int_equal(tw_session_save_memory(s, NULL, 0, &size, &o.err), TW_E_USAGE);
    assert_int_equal(tw_session_rewind(s, END - 1, &o.err), 0);
    assert_int_equal(tw_session_save_memory(s, NULL, 0, &size, &o.err), TW_E_USAGE);
    tw_session_destroy(s);
    struct tw_session_options options = {
        .size = sizeof options, .n_threads = 1, .prefix_cache = 1, .prefix_salt = salt};
    assert_int_equal(tw_session_create(o.deployment, &options, &s, &o.err), 0);
    assert_int_equal(tw_session_feed_prompt(s, tokens, END + 1, NULL, &o.err), 0);
    tw_session *fresh = create(&o, 0);
    feed(&o, fresh, END + 1);
    same_bits(&o, tw_session_logits(fresh), tw_session_logits(s));
    tw_session_destroy(fresh);
    tw_session_destroy(s);
    close_model(&o);
}

/* The prefix cache keeps the windows that prompts went through, so that another prompt can part
 * from them in the middle; where it has them no more, it starts from earlier, or computes all. */
static void prompts_start_from_windows(void **state) {
    (void)state;
    struct opened o;
    static const uint32_t parts[] = {1200, 1900, 700, 100};
    uint32_t mixed[LONG_CTX], reused = 0;
    open_model(&o, models[0], "host", LONG_CTX);
    struct tw_session_options options = {.size = sizeof options, .n_threads = 1, .prefix_cache = 1};
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t at = i ? parts[i - 1] : 0, n = i == 2 ? 1900 : at + 50;
        n = i ? n : N;
        at = at < N ? at : N;
        n = n < N ? n : N;
        memcpy(mixed, tokens, n * sizeof *mixed);
        for (uint32_t k = i ? at : n; k < n; k++) {
            mixed[k] = (mixed[k] + 1) % o.n_vocab;
        }
        tw_session *s = NULL, *fresh = create(&o, 0);
        assert_int_equal(tw_session_create(o.deployment, &options, &s, &o.err), 0);
        assert_int_equal(tw_session_feed_prompt(s, mixed, n, &reused, &o.err), 0);
        assert_int_equal(reused, i == 0 ? 0 : at < n ? at : n - 1);
        assert_false(s->window_lost);
        assert_int_equal(tw_session_feed(fresh, mixed, n, &o.err), 0);
        same_bits(&o, tw_session_logits(fresh), tw_session_logits(s));
        tw_session_destroy(fresh);
        tw_session_destroy(s);
    }
    tw_deployment_destroy(o.deployment);
    struct tw_deploy_options d = {.size = sizeof d, .state_positions = LONG_CTX};
    assert_int_equal(tw_deploy_with(o.device, o.decoder, &d, &o.deployment, &o.err), 0);
    for (uint32_t i = 0; i < 4; i++) { /* too few pages for all windows */
        tw_session *s = NULL;
        uint32_t n = i % 2 ? 1100 : N - i;
        assert_int_equal(tw_session_create(o.deployment, &options, &s, &o.err), 0);
        if (tw_session_feed_prompt(s, tokens, n, &reused, &o.err)) {
            fail_msg("%s", o.err.message);
        }
        float *logits = malloc(o.n_vocab * sizeof *logits);
        assert_non_null(logits);
        memcpy(logits, tw_session_logits(s), o.n_vocab * sizeof *logits);
        tw_session_destroy(s);
        tw_session *fresh = create(&o, 0);
        feed(&o, fresh, n);
        same_bits(&o, logits, tw_session_logits(fresh));
        tw_session_destroy(fresh);
        free(logits);
    }
    close_model(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_whole_contexts),
        cmocka_unit_test(a_long_context_holds_few_pages_and_meets_the_reference),
        cmocka_unit_test(forks_rewinds_and_chunks_change_no_bit),
        cmocka_unit_test(greedy_runs_choose_what_single_steps_do),
        cmocka_unit_test(one_context_of_pages_is_enough),
        cmocka_unit_test(a_lost_window_is_not_saved),
        cmocka_unit_test(what_was_not_fed_again_is_not_used),
        cmocka_unit_test(prompts_start_from_windows),
    };
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
