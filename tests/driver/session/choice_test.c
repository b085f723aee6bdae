/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of the best logits, made by the sites that compute them: merged, they are the best of all
 * logits, and greedy runs that choose from them give the same tokens. Also where logits are equal,
 * on one site and on different ones, and where a site's logits pass through many pages.
 */
#include "compiler/import/model.h"
#include "driver/session/session.h"
#include "tests/support/bundle_fixture.h"
#include "tests/support/model_bundle.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"
#include "tilewright/compile.h"
#include "tilewright/numerics.h"

#include <unistd.h>

/* Sites so small that the head's weights pass through two pages, and through many. */
#define SITES(sram)                                                                               \
    "{\"name\":\"small\",\"chips\":1,\"width\":3,\"height\":1,\"sram_bytes\":" sram               \
    ",\"banks\":1,\"clock_hz\":1e9,\"dram_bytes_per_cycle\":64,\"site_load_bytes_per_cycle\":16," \
    "\"fma_per_cycle\":64,\"int8_mac_per_cycle\":256,\"vector_per_cycle\":16,"                    \
    "\"link_bytes_per_cycle\":32,\"sync_cycles\":50,\"call_cycles\":20}"
static const char small_sites[] = SITES("262144"), tiny_sites[] = SITES("98304");

static const uint32_t prompt[] = {1, 403, 407, 261, 378};
enum { N_PROMPT = sizeof prompt / sizeof prompt[0], N_TOKENS = 24, MAX_LISTS = 64, MAX_K = 64 };

static void open_on(struct rig *r, const char *device, const char *bundle, uint32_t n_threads,
                    enum tw_mode mode) {
    struct tw_device_options d = {.size = sizeof d, .n_threads = n_threads};
    struct tw_session_options o = {.size = sizeof o, .mode = mode};
    memset(r, 0, sizeof *r);
    if (tw_device_open(device, &d, &r->device, &r->err) ||
        tw_decoder_open(bundle, 0, &r->decoder, &r->err) ||
        tw_deploy(r->device, r->decoder, &r->deployment, &r->err) ||
        tw_session_create(r->deployment, &o, &r->session, &r->err)) {
        fail_msg("%s on %s: %s", bundle, device, r->err.message);
    }
}

/* ---- tokens ---- */

/* The tokens that the logits of each step say, the lowest id among equals. */
static void choose_by_logits(const char *bundle, uint32_t tokens[N_TOKENS]) {
    struct rig r;
    open_on(&r, "emu", bundle, 1, TW_MODE_FAST);
    assert_int_equal(tw_session_feed(r.session, prompt, N_PROMPT, &r.err), 0);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        tokens[i] = tw_argmax(tw_session_logits(r.session), r.session->n_vocab);
        assert_int_equal(tw_session_feed(r.session, &tokens[i], 1, &r.err), 0);
    }
    rig_close(&r);
}

static void expect_tokens(const char *device, const char *bundle, uint32_t n_threads,
                          enum tw_mode mode, const uint32_t *expected) {
    struct rig r;
    struct tw_greedy_options o = {
        .size = sizeof o, .n = N_TOKENS - 1, .flags = TW_GREEDY_NO_LOGITS};
    uint32_t got[N_TOKENS], n = 0;
    enum tw_stop_reason reason;
    open_on(&r, device, bundle, n_threads, mode);
    assert_true(r.session->executor->decode.n_choices > 0);
    assert_int_equal(tw_session_feed(r.session, prompt, N_PROMPT, &r.err), 0);
    if (tw_session_run_greedy(r.session, expected[0], &o, got, &n, &reason, &r.err)) {
        fail_msg("%s: %s", bundle, r.err.message);
    }
    assert_int_equal(n, N_TOKENS - 1);
    assert_memory_equal(got, expected + 1, n * sizeof *got);
    /* with the logits, they are read as before */
    o.flags = 0;
    assert_int_equal(tw_session_rewind(r.session, N_PROMPT, &r.err), 0);
    assert_int_equal(tw_session_run_greedy(r.session, expected[0], &o, got, &n, &reason, &r.err),
                     0);
    assert_memory_equal(got, expected + 1, n * sizeof *got);
    assert_non_null(tw_session_logits(r.session));
    rig_close(&r);
}

static void greedy_runs_choose_from_lists_what_logits_say(void **state) {
    (void)state;
    static const char *const targets[] = {"host", "sim4x4", "grid8x8", "sim4x4x2", small_sites};
    uint32_t expected[N_TOKENS];
    choose_by_logits(model_bundle("host"), expected);
    for (size_t t = 0; t < sizeof targets / sizeof targets[0]; t++) {
        for (uint32_t k = 1; k <= 40; k += 39) {
            expect_tokens("emu", model_bundle_lists(targets[t], k), 1 + t % 2, TW_MODE_FAST,
                          expected);
        }
    }
    expect_tokens("emu", model_bundle_lists("host", 1), 1, TW_MODE_STRICT, expected);
}

static void a_served_device_chooses_from_lists(void **state) {
    (void)state;
    struct socket_device d;
    uint32_t expected[N_TOKENS];
    choose_by_logits(model_bundle("host"), expected);
    socket_folder_make();
    socket_device_start(&d, "choice", NULL, 0);
    expect_tokens(d.selector, model_bundle_lists("host", 1), 0, TW_MODE_FAST, expected);
    assert_int_equal(socket_device_end(&d), 0);
    socket_folder_remove();
}

/* ---- drawn tokens ---- */

struct drawn {
    uint32_t id[N_TOKENS], n;
    bool had_logits;
};

static int keep_id(void *ctx, uint32_t id, const float *logits) {
    struct drawn *d = ctx;
    assert_null(logits);
    d->id[d->n++] = id;
    return 0;
}

static struct drawn draw(tw_session *session, float temperature, uint32_t top_k, uint64_t seed) {
    struct drawn d = {.n = 0};
    tw_error err = {0};
    struct tw_generate_options o = {
        .size = sizeof o,
        .n_predict = N_TOKENS,
        .flags = TW_GENERATE_NO_LOGITS | TW_GENERATE_IGNORE_EOS,
        .temperature = temperature,
        .top_k = top_k,
        .top_p = seed % 2 ? 0.9f : 1.0f,
        .min_p = seed % 3 ? 0.02f : 0.0f,
        .seed = seed,
        .on_token = keep_id,
        .ctx = &d,
    };
    assert_int_equal(tw_session_rewind(session, 0, &err), 0);
    if (tw_generate(session, prompt, N_PROMPT, &o, NULL, &err)) {
        fail_msg("%s", err.message);
    }
    d.had_logits = tw_session_logits(session) != NULL;
    return d;
}

/* A served device's logits would have to be read; lists are, if they are long enough. */
static void tokens_are_drawn_from_lists_as_from_all_logits(void **state) {
    (void)state;
    static const uint32_t top_k[] = {2, 7, 40, 41, 0};
    struct socket_device d;
    struct rig all, lists;
    socket_folder_make();
    socket_device_start(&d, "drawn", NULL, 0);
    open_on(&all, "emu", model_bundle("host"), 1, TW_MODE_FAST);
    open_on(&lists, d.selector, model_bundle_lists("host", 40), 0, TW_MODE_FAST);
    for (uint32_t k = 0; k < sizeof top_k / sizeof top_k[0]; k++) {
        for (uint64_t seed = 0; seed < 6; seed++) {
            struct drawn a = draw(all.session, 1.1f, top_k[k], seed),
                         b = draw(lists.session, 1.1f, top_k[k], seed);
            assert_int_equal(a.n, N_TOKENS);
            assert_int_equal(b.n, N_TOKENS);
            assert_memory_equal(a.id, b.id, sizeof a.id);
            assert_true(a.had_logits);
            assert_int_equal(b.had_logits, top_k[k] == 0 || top_k[k] > 40);
        }
    }
    struct drawn a = draw(all.session, 0.0f, 0, 1), b = draw(lists.session, 0.0f, 0, 1);
    assert_memory_equal(a.id, b.id, sizeof a.id);
    rig_close(&all);
    rig_close(&lists);
    assert_int_equal(socket_device_end(&d), 0);
    socket_folder_remove();
}

/* ---- lists ---- */

/* Merges the lists of the last step, each of which must be in order, and compares with the logits.
 * Returns how many lists there are. */
static uint32_t check_lists(struct rig *r, const struct session_program *p, uint32_t k) {
    static struct tw_top lists[MAX_LISTS * MAX_K];
    struct tw_top merged[MAX_K], expected[MAX_K];
    const float *logits = tw_session_logits(r->session);
    uint32_t n = p->n_choices / k;
    assert_true(n > 0 && n <= MAX_LISTS && k <= MAX_K && p->n_choices == n * k);
    assert_int_equal(
        tw_device_read(r->device, p->choice_address, lists, p->n_choices * sizeof *lists, &r->err),
        0);
    memcpy(merged, lists, sizeof merged);
    for (uint32_t i = 0; i < p->n_choices; i++) {
        assert_true(i % k == 0 || !tw_top_before(lists[i], lists[i - 1]));
        assert_true(lists[i].id == TW_NONE || lists[i].value == logits[lists[i].id]);
    }
    for (uint32_t i = 1; i < n; i++) {
        tw_top_merge(merged, lists + i * k, k, merged);
    }
    tw_top_row(logits, r->session->n_vocab, 0, k, expected);
    assert_memory_equal(merged, expected, k * sizeof *merged);
    return n;
}

static void check_steps(const char *bundle, uint32_t k) {
    struct rig r;
    open_on(&r, "emu", bundle, 2, TW_MODE_FAST);
    assert_int_equal(tw_session_feed(r.session, prompt, N_PROMPT, &r.err), 0);
    check_lists(&r, &r.session->executor->prefill, k);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t id = tw_argmax(tw_session_logits(r.session), r.session->n_vocab);
        assert_int_equal(tw_session_feed(r.session, &id, 1, &r.err), 0);
        check_lists(&r, &r.session->executor->decode, k);
    }
    rig_close(&r);
}

static void merged_lists_are_the_best_of_all_logits(void **state) {
    (void)state;
    static const char *const targets[] = {"host", "grid8x8", small_sites};
    for (size_t t = 0; t < sizeof targets / sizeof targets[0]; t++) {
        for (uint32_t k = 1; k <= MAX_K; k = k * 5 + 1) {
            check_steps(model_bundle_lists(targets[t], k), k);
        }
    }
}

/* ---- equal logits ---- */

/* Writes the shipped model with every second row of the head equal to the one before, and the
 * second half of all rows equal to the first. */
static void write_equal_rows(const char *path) {
    struct tw_model m;
    tw_error err = {0};
    size_t size;
    if (tw_model_open(SHIPPED_MODEL, NULL, &m, &err)) {
        fail_msg("%s", err.message);
    }
    const struct tw_model_tensor *t = tw_model_find(&m, "output.weight");
    t = t ? t : tw_model_find(&m, "token_embd.weight");
    uint8_t *file = bundle_fixture_read(SHIPPED_MODEL, &size),
            *rows = file + (t->data - t->file->bytes);
    size_t row = t->bytes / t->rows;
    for (uint32_t i = 0; i < t->rows; i += 2) {
        memcpy(rows + (i + 1) * row, rows + i * row, row);
    }
    memcpy(rows + t->rows / 2 * row, rows, t->rows / 2 * row);
    assert_int_equal(bundle_fixture_save(path, file, size), 0);
    free(file);
    tw_model_close(&m);
}

static void the_lowest_id_among_equals_is_chosen(void **state) {
    (void)state;
    static const char *const targets[] = {"host", "grid8x8", tiny_sites};
    char model[64], bundle[64];
    snprintf(model, sizeof model, "/tmp/tw-equal-%d.gguf", (int)getpid());
    snprintf(bundle, sizeof bundle, "/tmp/tw-equal-%d.twb", (int)getpid());
    write_equal_rows(model);
    for (size_t t = 0; t < sizeof targets / sizeof targets[0]; t++) {
        tw_error err = {0};
        uint32_t expected[N_TOKENS];
        struct tw_compile_options o = {.size = sizeof o,
                                       .host_sites = t ? 0 : 2,
                                       .prefill_rows = 2,
                                       .target = targets[t],
                                       .top_k = 7};
        if (tw_compile_file(model, bundle, &o, NULL, &err)) {
            fail_msg("%s", err.message);
        }
        choose_by_logits(bundle, expected);
        for (uint32_t i = 0; i < N_TOKENS; i++) {
            assert_true(expected[i] % 2 == 0 && expected[i] < 512); /* equals were there */
        }
        expect_tokens("emu", bundle, 1, TW_MODE_FAST, expected);
        check_steps(bundle, 7);
        unlink(bundle);
    }
    unlink(model);
}

/* ---- options ---- */

static void lists_that_are_too_long_are_refused(void **state) {
    (void)state;
    tw_error err = {0};
    struct tw_compile_options o = {.size = sizeof o, .top_k = TW_MAX_TOPS + 1};
    assert_int_equal(tw_compile_file(SHIPPED_MODEL, "/tmp/tw-none.twb", &o, NULL, &err),
                     TW_E_USAGE);
    assert_non_null(strstr(err.message, "lists of the 1025 best logits are too long"));
}

static int cleanup(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_runs_choose_from_lists_what_logits_say),
        cmocka_unit_test(a_served_device_chooses_from_lists),
        cmocka_unit_test(tokens_are_drawn_from_lists_as_from_all_logits),
        cmocka_unit_test(merged_lists_are_the_best_of_all_logits),
        cmocka_unit_test(the_lowest_id_among_equals_is_chosen),
        cmocka_unit_test(lists_that_are_too_long_are_refused),
    };
    return cmocka_run_group_tests_name("choice", tests, NULL, cleanup);
}
