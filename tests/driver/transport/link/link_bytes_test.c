/* SPDX-License-Identifier: Apache-2.0
 *
 * What a token costs on the link: below 1 KiB in addition to the logits requested. A relay counts
 * the bytes.
 */
#include "tests/support/model_bundle.h"
#include "tests/support/relay.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"

#define TOKENS 64u
#define MAX_BYTES 1024u /* for each token */

static struct socket_device device;
static struct relay *relay;
static struct rig rig;
static uint64_t logits_bytes;

static int open_all(void **state) {
    (void)state;
    struct tw_decoder_info info = {.size = sizeof info};
    socket_device_start(&device, "far", NULL, 0);
    relay = relay_start("relay", device.path);
    rig = (struct rig){.err = {0}};
    int code = socket_open("socket:relay", 0, &rig.device, &rig.err);
    code = code ? code : tw_decoder_open(model_bundle("host"), 0, &rig.decoder, &rig.err);
    code = code ? code : tw_deploy(rig.device, rig.decoder, &rig.deployment, &rig.err);
    code = code ? code : tw_session_create(rig.deployment, NULL, &rig.session, &rig.err);
    if (code) {
        return code;
    }
    tw_decoder_get_info(rig.decoder, &info, NULL);
    logits_bytes = 4ull * info.n_vocab;
    relay_take_count(relay);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    rig_close(&rig);
    relay_end(relay);
    return socket_device_end(&device);
}

/* Returns the bytes that were transferred in addition to `n_logits` sets of logits. */
static uint64_t beyond(uint64_t n_logits, const char *what) {
    struct relay_count c = relay_take_count(relay);
    assert_true(c.data >= n_logits * logits_bytes);
    printf("# %s: %llu bytes beyond %llu logits, %llu of waiting\n", what,
           (unsigned long long)(c.data - n_logits * logits_bytes), (unsigned long long)n_logits,
           (unsigned long long)c.others);
    return c.data - n_logits * logits_bytes;
}

static void a_step_moves_its_logits_and_little_else(void **state) {
    (void)state;
    uint32_t id = 1;
    for (uint32_t i = 0; i < TOKENS; i++, id = 1 + i) {
        assert_int_equal(tw_session_feed(rig.session, &id, 1, &rig.err), 0);
    }
    uint64_t bytes = beyond(TOKENS, "stepwise decode");
    assert_true(bytes > 0 && bytes < TOKENS * (uint64_t)MAX_BYTES);
}

static void a_prompt_in_chunks_moves_logits_once(void **state) {
    (void)state;
    uint32_t ids[400];
    struct tw_session_info info = {.size = sizeof info};
    tw_session_get_info(rig.session, &info, NULL);
    assert_int_equal(info.chunk, 32);
    for (uint32_t i = 0; i < 400; i++) {
        ids[i] = 1 + i;
    }
    assert_int_equal(tw_session_feed(rig.session, ids, 400, &rig.err), 0);
    assert_true(beyond(1, "prefill") < 5 * logits_bytes); /* of 13 steps */
    assert_non_null(tw_session_logits(rig.session));
}

static int ignore(void *ctx, uint32_t id, const float *logits) {
    (void)id, (void)logits;
    ++*(uint32_t *)ctx;
    return 0;
}

static void a_greedy_run_moves_no_logits_but_the_prompts(void **state) {
    (void)state;
    uint32_t n = 0;
    const uint32_t prompt[] = {1, 403, 407};
    struct tw_generate_options o = {.size = sizeof o,
                                    .n_predict = TOKENS,
                                    .flags = TW_GENERATE_IGNORE_EOS | TW_GENERATE_NO_LOGITS,
                                    .on_token = ignore,
                                    .ctx = &n};
    assert_int_equal(tw_generate(rig.session, prompt, 3, &o, NULL, &rig.err), 0);
    assert_int_equal(n, TOKENS);
    assert_true(beyond(1, "greedy run") < TOKENS * (uint64_t)MAX_BYTES);
}

static void a_greedy_run_is_one_command(void **state) {
    (void)state;
    uint32_t tokens[TOKENS], n;
    enum tw_stop_reason reason;
    struct tw_greedy_options o = {.size = sizeof o, .n = TOKENS, .flags = TW_GREEDY_NO_LOGITS};
    assert_int_equal(tw_session_run_greedy(rig.session, 1, &o, tokens, &n, &reason, &rig.err), 0);
    assert_int_equal(n, TOKENS);
    assert_true(beyond(0, "one command") < 4 * 1024);
    assert_null(tw_session_logits(rig.session));
    o.flags = 0;
    assert_int_equal(
        tw_session_run_greedy(rig.session, tokens[TOKENS - 1], &o, tokens, &n, &reason, &rig.err),
        0);
    assert_true(beyond(1, "with its logits") <
                4 * 1024 + logits_bytes); /* which may have been sent again */
    assert_non_null(tw_session_logits(rig.session));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_step_moves_its_logits_and_little_else),
        TEST(a_prompt_in_chunks_moves_logits_once),
        TEST(a_greedy_run_moves_no_logits_but_the_prompts),
        TEST(a_greedy_run_is_one_command),
    };
    socket_folder_make();
    int failed = cmocka_run_group_tests_name("link_bytes", tests, NULL, NULL);
    model_bundle_cleanup();
    socket_folder_remove();
    return failed;
}
